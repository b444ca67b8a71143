//! Request signatures, by which the receiver can verify that a call is ours and recent.
//! docs/guides/web-calls.md documents what is signed and how to verify it.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt::{self, Write};

/// A secret shared with the receiver. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

/// An empty key would let anyone sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a signing key must not be empty")]
pub struct EmptyKeyError;

impl SigningKey {
    pub fn new(key: impl Into<Vec<u8>>) -> Result<Self, EmptyKeyError> {
        let key = key.into();
        if key.is_empty() { Err(EmptyKeyError) } else { Ok(SigningKey(key)) }
    }

    /// The value of the `Punctual-Signature` header for this body at this time.
    pub(super) fn signature(&self, unix_seconds: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(format!("{unix_seconds}.").as_bytes());
        mac.update(body);
        let mut text = format!("t={unix_seconds},v1=");
        for byte in mac.finalize().into_bytes() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_time_and_body() {
        // The value that Python's hmac computes for 1700000000.{"a":1}.
        let key = SigningKey::new("secret").unwrap();
        let expected = "t=1700000000,v1=49f24e537407743fa4a0242bb63b94b9a47ee99cbbe071ccd8a22550ae411686";
        assert_eq!(key.signature(1_700_000_000, br#"{"a":1}"#), expected);
        assert_ne!(key.signature(1_700_000_001, br#"{"a":1}"#), expected);
        assert_ne!(key.signature(1_700_000_000, br#"{"a":2}"#), expected);
    }

    #[test]
    fn a_key_is_neither_empty_nor_printed() {
        assert_eq!(SigningKey::new(""), Err(EmptyKeyError));
        assert_eq!(format!("{:?}", SigningKey::new("secret").unwrap()), "SigningKey(…)");
    }
}
