//! Channels with their secrets.

use super::stored::{StoredAs, read};
use crate::EngineContext;
use punctual_core::notify::{Channel, ChannelSecret};
use punctual_core::ports::{CipherError, DocumentKind, SealedValue, StoreError};

/// What the value of a field is encrypted together with: it cannot be used in another channel or field.
pub(crate) fn bound_to(channel: &str, field: &str) -> Vec<u8> {
    serde_json::json!(["punctual channel", channel, field]).to_string().into_bytes()
}

/// The channel with this name: of the configuration, with version 0, or stored.
pub(crate) async fn read_channel(
    context: &EngineContext,
    name: &str,
) -> Result<Option<StoredAs<Channel>>, StoreError> {
    let config = context.config.notifications.as_ref();
    let mut configured = config.iter().flat_map(|config| config.notifier.configured());
    if let Some((name, channel)) = configured.find(|(configured, _)| configured == name) {
        return Ok(Some(StoredAs { name: name.clone(), version: 0, value: channel.clone() }));
    }
    read(&*context.store, (DocumentKind::Channel, name)).await
}

/// A channel with plain values in place of secrets.
pub(crate) struct ReadyChannel {
    pub channel: Channel,
    /// Whether the operator has configured it.
    pub is_configured: bool,
}

/// The channel with plain values in place of secrets, or why that is not possible.
pub(crate) async fn resolved(
    context: &EngineContext,
    stored: &StoredAs<Channel>,
) -> Result<Result<ReadyChannel, String>, StoreError> {
    let mut channel = stored.value.clone();
    let owner = channel.owner.clone();
    for (field, value) in channel.secrets_mut() {
        let opened = match value {
            None | Some(ChannelSecret::Plain(_)) => continue,
            Some(ChannelSecret::Sealed { text, key_id }) => {
                let sealed = SealedValue { key_id: key_id.clone(), text: text.clone() };
                open(context, &sealed, &bound_to(&stored.name, field))
            }
            Some(ChannelSecret::Reference { name }) => match context.store.secret(name).await? {
                Some(secret) if is_usable(&secret.about.rule, &owner) => {
                    open(context, &secret.sealed, &secret.own_binding())
                }
                _ => return Ok(Err(format!("{field} refers to the secret {name}: {NOT_FOR_CHANNELS}"))),
            },
        };
        match opened {
            Ok(text) => *value = Some(ChannelSecret::Plain(text)),
            Err(error) => return Ok(Err(format!("{field}: {error}"))),
        }
    }
    Ok(Ok(ReadyChannel { channel, is_configured: stored.version == 0 }))
}

/// Whether a channel of this owner may use a secret with this rule. One that is limited to queues or job types is
/// for jobs only.
pub(crate) fn is_usable(rule: &punctual_core::secrets::SecretRule, owner: &str) -> bool {
    rule.has_owner(owner) && rule.queues.is_empty() && rule.job_types.is_empty()
}

pub(crate) const NOT_FOR_CHANNELS: &str = "there is no such secret, or its rules do not allow the owner of the channel, or limit it to queues or job types";

fn open(context: &EngineContext, sealed: &SealedValue, bound: &[u8]) -> Result<String, CipherError> {
    context.config.secret_cipher.as_deref().ok_or(CipherError::NoKey)?.open(sealed, bound)
}
