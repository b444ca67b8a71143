//! Secrets on the wire. Values are sent, never received.

use crate::client::{Client, ClientError, segment};
use crate::page::Page;
use crate::wire::wire;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use std::fmt;

wire! {
    /// A secret to set. Rules that are omitted or null stay as they are; a new secret gets their defaults.
    #[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct SetSecret as "SetSecret" {
        /// Its value. No response contains it.
        pub value: String = text()
            .with("minLength", 1)
            .with("maxLength", limits::SECRET_VALUE_BYTES_MAX)
            .with("writeOnly", true)
            .example("correct horse battery staple"),
        /// The owners whose jobs may use it, as names in which `*` stands for any text. `[]` for the owner of the
        /// caller, which is the default; `["*"]` for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owners: Option<Vec<String>> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("An owner, or a pattern."))).example(vec!["team-mail"]),
        /// The queues whose jobs may use it, as names in which `*` stands for any text; `[]` for all, which is the
        /// default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queues: Option<Vec<String>> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A queue, or a pattern."))).example(vec!["mail-*"]),
        /// The types of the jobs that may use it, as names in which `*` stands for any text; `[]` for all, which is the
        /// default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub job_types: Option<Vec<String>> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A job type, or a pattern."))).example(vec!["send-*"]),
    }

    /// A secret, without its value.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SecretBody as "Secret" {
        /// Its name, for references such as `{"$secret": "smtp-password"}` in payloads.
        pub name: String = text().example("smtp-password"),
        /// Counts the times that it was written. A rotation of keys counts too.
        pub version: u64,
        /// The owners whose jobs may use it.
        pub owners: Vec<String> = list(text().about("An owner, or a pattern.")),
        /// The queues whose jobs may use it; empty for all.
        pub queues: Vec<String> = list(text().about("A queue, or a pattern.")),
        /// The types of the jobs that may use it; empty for all.
        pub job_types: Vec<String> = list(text().about("A job type, or a pattern.")),
        /// The key that encrypts it.
        pub key_id: String = text().example("3f9a0c12b7de"),
        /// The server that answers has the key. If it does not, jobs that use the secret fail there.
        pub readable: bool,
        /// When it was first set.
        pub created_at: Timestamp,
        /// When its value and rules were last set.
        pub set_at: Timestamp,
        /// The token or user that last set it.
        pub set_by: String = text().example("deploy"),
    }

    /// Where a rotation continues.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RotateSecrets as "RotateSecrets" {
        /// The `next` of the previous step; omitted for the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub after: Option<String> = text().example("smtp-password"),
    }

    /// What a step of a rotation has done.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct RotatedSecrets as "RotatedSecrets" {
        /// The current key.
        pub key_id: String = text().example("3f9a0c12b7de"),
        /// How many secrets were encrypted again. Those with the current key are left out.
        pub rotated: u64,
        /// How many payloads of jobs were encrypted with the current key. Plain ones stay so unless new payloads are encrypted.
        #[serde(default)]
        pub payloads: u64,
        /// Secrets and payloads that the server cannot decrypt, with the reason.
        pub unreadable: Vec<String> = list(text().about("A name and a reason.")),
        /// Pass it as `after` to continue; null at the end.
        pub next: Option<String> = text().example("smtp-password"),
    }
}

/// Without the value.
impl fmt::Debug for SetSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetSecret")
            .field("owners", &self.owners)
            .field("queues", &self.queues)
            .field("job_types", &self.job_types)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// All secrets that the caller may see, by name, without their values.
    pub async fn secrets(&self) -> Result<Page<SecretBody>, ClientError> {
        self.all_pages("/secrets").await
    }

    pub async fn secret(&self, name: &str) -> Result<SecretBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/secrets/{}", segment(name)))).await
    }

    /// Sets the value of a secret, and the rules that are given.
    pub async fn set_secret(&self, name: &str, secret: &SetSecret) -> Result<SecretBody, ClientError> {
        self.send(self.request(Method::PUT, &format!("/secrets/{}", segment(name))).json(secret)).await
    }

    /// Removes a secret that nothing uses.
    pub async fn remove_secret(&self, name: &str) -> Result<(), ClientError> {
        self.remove(format!("/secrets/{}", segment(name)), false).await
    }

    /// Removes a secret, even if something uses it.
    pub async fn remove_secret_in_use(&self, name: &str) -> Result<(), ClientError> {
        self.remove(format!("/secrets/{}", segment(name)), true).await
    }

    /// Encrypts secrets with the current key, one bounded step.
    pub async fn rotate_secrets(&self, step: &RotateSecrets) -> Result<RotatedSecrets, ClientError> {
        self.send(self.request(Method::POST, "/secret-keys/rotate").json(step)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_shown() {
        let secret = SetSecret { value: "hunter2".to_owned(), ..SetSecret::default() };
        assert_eq!(format!("{secret:?}"), "SetSecret { owners: None, queues: None, job_types: None, .. }");
        let read: SetSecret = serde_json::from_str(r#"{"value":"hunter2","owners":null}"#).unwrap();
        assert_eq!(read, secret);
        assert!(serde_json::from_str::<SetSecret>(r#"{"value":"x","owner":["a"]}"#).is_err());
    }
}
