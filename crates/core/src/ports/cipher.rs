//! Encryption of secrets. The rules know neither keys nor randomness.

use std::fmt;

/// The keys of a node. A value is encrypted with the current key, and decrypted with the key that it names.
pub trait SecretCipher: fmt::Debug + Send + Sync {
    /// The id of the current key; `None` while there is none.
    fn current_key(&self) -> Option<String>;

    fn has_key(&self, id: &str) -> bool;

    /// What to do about a missing key, for errors: the setting or the file where it belongs.
    fn key_place(&self) -> String;

    /// Encrypts a value, so that it can be decrypted only together with the same `bound_to`.
    fn seal(&self, value: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError>;

    fn open(&self, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError>;

    /// Encrypts data of jobs. There may be more of them than one key can encrypt safely, so each `bound_to` gets a
    /// key of its own, derived from the current one.
    fn seal_data(&self, text: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError>;

    fn open_data(&self, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError>;
}

/// An encrypted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedValue {
    /// The key that decrypts it.
    pub key_id: String,
    /// Nonce, ciphertext and authentication tag, in Base64.
    pub text: String,
}

/// Why a value cannot be encrypted or decrypted on this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CipherError {
    #[error(
        "this server has no key for secrets: set secrets.key_file or PUNCTUAL_SECRETS_KEY, to the same keys on all \
         servers"
    )]
    NoKey,
    #[error(
        "it is encrypted with the key {key_id}, which this server does not have (it has {}): {place}", listed(.known)
    )]
    UnknownKey { key_id: String, known: Vec<String>, place: String },
    #[error(
        "this server has no key for secrets, and there are secrets that need one: {secret} is encrypted with the key \
         {key_id}: {place}; if the key is lost, remove those secrets first"
    )]
    LostKey { secret: String, key_id: String, place: String },
    #[error("its encrypted value does not belong to its name, version and rules: set it again")]
    Mismatch,
    #[error("the key for secrets is not available: {0}")]
    Unavailable(String),
}

fn listed(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
