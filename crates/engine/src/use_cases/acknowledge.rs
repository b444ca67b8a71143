//! Acknowledgement of alerts by a link of a message. The link is the permission: each reader of the message may use it.

use super::{Access, Caller, NamedAlert, UseCaseError};
use crate::notify::{ack_key, read};
use punctual_core::access::{GrantTerms, Role};
use punctual_core::notify::{AckClaim, Alert};
use punctual_core::ports::{DocumentKind, StoreError};

/// Why a link cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AckLinkError {
    #[error("this link is not valid: copy it completely from the message")]
    Invalid,
    #[error("this link has expired: acknowledge the alert with `punctual notify ack`, or in the dashboard")]
    Expired,
    #[error("the alert of this link is over")]
    Over,
    #[error(transparent)]
    Failed(#[from] UseCaseError),
}

impl From<StoreError> for AckLinkError {
    fn from(error: StoreError) -> Self {
        AckLinkError::Failed(error.into())
    }
}

impl Access {
    /// The alert of a link. Nothing is changed: programs that check links in messages call this too.
    pub async fn alert_of_link(&self, token: &str) -> Result<NamedAlert, AckLinkError> {
        self.claimed(token).await.map(|(_, alert)| alert)
    }

    /// Acknowledges the alert of a link. The link cannot be used again for a later alert of the same job.
    pub async fn acknowledge_by_link(
        &self,
        token: &str,
        source: Option<String>,
    ) -> Result<NamedAlert, AckLinkError> {
        let (claim, alert) = self.claimed(token).await?;
        if alert.alert.acknowledged.is_some() {
            return Ok(alert);
        }
        let name = format!("a link sent to {}", claim.channel);
        let caller = Caller {
            token_id: "link".to_owned(),
            name,
            user: None,
            session_of: None,
            is_stored: false,
            grant: GrantTerms::default().grant(Role::Operator),
            source,
        };
        Ok(self.on_behalf_of(caller).acknowledge_alert(&claim.alert).await?)
    }

    async fn claimed(&self, token: &str) -> Result<(AckClaim, NamedAlert), AckLinkError> {
        let context = &self.engine.context;
        let claim = ack_key(context).await?.claim(token).ok_or(AckLinkError::Invalid)?;
        if claim.expires_at <= self.now() {
            return Err(AckLinkError::Expired);
        }
        let stored = read::<Alert>(&*context.store, (DocumentKind::Alert, &claim.alert)).await?;
        match stored.filter(|stored| stored.value.since == claim.since) {
            Some(stored) => Ok((claim, NamedAlert { id: stored.name, alert: stored.value })),
            None => Err(AckLinkError::Over),
        }
    }
}
