//! Pausing the whole cluster, and resuming it.

use super::{UseCase, UseCaseError, UseCases};
use crate::cluster_pause::stored;
use punctual_core::cluster_pause::{CLUSTER_PAUSE, ClusterPause};
use punctual_core::ports::{
    DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, StoreError, StoredDocument,
};
use punctual_core::time::Timestamp;
use serde_json::json;

/// How often a change is made again because of a concurrent one.
const CHANGE_TRIES_MAX: usize = 10;

/// What the cluster is object of in the audit log.
const CLUSTER: &str = "cluster";

impl UseCases {
    /// The pause of the cluster, if there is one.
    pub async fn cluster_pause(&self) -> Result<Option<ClusterPause>, UseCaseError> {
        self.permit(UseCase::ReadPause)?;
        Ok(self.current_pause().await?)
    }

    pub(super) async fn current_pause(&self) -> Result<Option<ClusterPause>, StoreError> {
        let pause = stored(self.store()).await?.map(|(_, pause)| pause);
        Ok(pause.filter(|pause| !pause.is_over(self.now())))
    }

    /// Pauses the cluster, or changes the reason, the end and the choice of a pause.
    pub async fn pause_cluster(
        &self,
        reason: String,
        until: Option<Timestamp>,
        skips: bool,
    ) -> Result<ClusterPause, UseCaseError> {
        self.permit_on(UseCase::SetPause, CLUSTER)?;
        let now = self.now();
        for _ in 0..CHANGE_TRIES_MAX {
            let before = stored(self.store()).await?;
            let paused_at = before.as_ref().filter(|(_, pause)| !pause.is_over(now));
            let paused_at = paused_at.map_or(now, |(_, pause)| pause.paused_at);
            let paused_by = self.caller.name.clone();
            let pause = ClusterPause { reason: reason.clone(), paused_at, until, skips, paused_by };
            if let Some(problem) = pause.problem(now) {
                return Err(UseCaseError::Invalid(vec![problem]));
            }
            let change = match &before {
                Some((document, _)) => DocumentChange::Replace(document.changed(&pause)),
                None => DocumentChange::Add(StoredDocument::new(
                    DocumentKind::ClusterPause,
                    CLUSTER_PAUSE,
                    &pause,
                )),
            };
            let details = json!({ "reason": reason, "until": until, "skip": skips });
            let entry = self.audited_with(UseCase::SetPause, CLUSTER, &details);
            let outcome =
                self.store().change_directory(DirectoryChange::Documents(vec![change]), entry).await?;
            if outcome == DirectoryOutcome::Done {
                self.engine.apply_cluster_pause(Some(&pause)).await?;
                return Ok(pause);
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Ends the pause of the cluster. Returns whether there was one.
    pub async fn resume_cluster(&self) -> Result<bool, UseCaseError> {
        self.permit_on(UseCase::EndPause, CLUSTER)?;
        for _ in 0..CHANGE_TRIES_MAX {
            let Some((document, _)) = stored(self.store()).await? else {
                self.engine.apply_cluster_pause(None).await?;
                return Ok(false);
            };
            let StoredDocument { kind, name, version, .. } = document;
            let removal = DirectoryChange::Documents(vec![DocumentChange::Remove { kind, name, version }]);
            let entry = self.audited(UseCase::EndPause, CLUSTER);
            if self.store().change_directory(removal, entry).await? == DirectoryOutcome::Done {
                self.engine.apply_cluster_pause(None).await?;
                return Ok(true);
            }
        }
        Err(UseCaseError::Busy)
    }
}
