//! Data of jobs that is encrypted at rest: payloads, results, checkpoints, and stored answers to requests. This
//! module owns the form in which they are stored, and what each of them is bound to. Keys and ciphers are behind
//! [`SecretCipher`].
//!
//! The stored form begins with [`PREFIX`], which no JSON text does, so plain and encrypted rows can be mixed.

use crate::ids::{BlobId, ExecutionId, JobId, OccurrenceId, OperationId};
use crate::ports::{CipherError, RequestKey, SealedValue, SecretCipher};
use serde_json::json;
use std::fmt;

/// The beginning of an encrypted text; the id of its key and the ciphertext follow, separated by a colon.
const PREFIX: &str = "punctual-sealed:1:";

/// Bytes that an encrypted text has at most beyond the Base64 of the plain one: prefix, key id, nonce and tag.
const OVERHEAD_BYTES_MAX: usize = 256;

/// Where an encrypted text is stored. A text that is copied to another place cannot be decrypted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealedPlace<'a> {
    Payload(JobId),
    Result(ExecutionId),
    Checkpoint(OccurrenceId),
    Answer(&'a RequestKey),
    Patch(OperationId),
    /// A part of a result that is stored as a blob, counted from 0. The last one is marked, so that a blob that was
    /// shortened cannot be read.
    BlobPart {
        execution: ExecutionId,
        blob: BlobId,
        number: u64,
        is_last: bool,
    },
}

impl SealedPlace<'_> {
    /// What the text is encrypted together with.
    fn binding(&self) -> Vec<u8> {
        let names = match self {
            SealedPlace::Payload(job) => json!(["punctual payload", job.to_string()]),
            SealedPlace::Result(execution) => json!(["punctual result", execution.to_string()]),
            SealedPlace::Checkpoint(occurrence) => json!(["punctual checkpoint", occurrence.to_string()]),
            SealedPlace::Patch(operation) => json!(["punctual patch", operation.to_string()]),
            SealedPlace::BlobPart { execution, blob, number, is_last } => {
                json!(["punctual blob", execution.to_string(), blob.to_string(), number, is_last])
            }
            SealedPlace::Answer(request) => json!(["punctual answer", request.token, request.key]),
        };
        names.to_string().into_bytes()
    }
}

impl fmt::Display for SealedPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SealedPlace::Payload(job) => write!(f, "the payload of job {job}"),
            SealedPlace::Result(execution) => write!(f, "the result of execution {execution}"),
            SealedPlace::Checkpoint(occurrence) => write!(f, "the checkpoint of occurrence {occurrence}"),
            SealedPlace::Patch(operation) => write!(f, "the patch of operation {operation}"),
            SealedPlace::BlobPart { execution, number, .. } => {
                write!(f, "part {number} of the result of execution {execution}")
            }
            SealedPlace::Answer(_) => f.write_str("the stored answer to a request with this Idempotency-Key"),
        }
    }
}

/// A stored text that this node cannot decrypt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place} cannot be decrypted: {}", reason(.why))]
pub struct Undecryptable {
    place: String,
    why: CipherError,
}

fn reason(why: &CipherError) -> String {
    match why {
        CipherError::Mismatch => "the stored text was changed, or copied from another row".to_owned(),
        why => why.to_string(),
    }
}

/// Whether a stored text is encrypted.
pub fn is_sealed(stored: &str) -> bool {
    stored.starts_with(PREFIX)
}

/// The id of the key of a stored text; `None` if it is plain.
pub fn key_of(stored: &str) -> Option<&str> {
    Some(stored.strip_prefix(PREFIX)?.split_once(':').map_or("", |(key_id, _)| key_id))
}

/// The most bytes that the stored form of a text with this many bytes has.
pub const fn sealed_bytes_max(plain_bytes: usize) -> usize {
    plain_bytes.div_ceil(3) * 4 + OVERHEAD_BYTES_MAX
}

/// The stored form of a text, encrypted with the current key.
pub fn seal(cipher: &dyn SecretCipher, place: SealedPlace<'_>, text: &str) -> Result<String, CipherError> {
    let SealedValue { key_id, text } = cipher.seal_data(text, &place.binding())?;
    Ok(format!("{PREFIX}{key_id}:{text}"))
}

/// The plain text; that of a plain row is as it is stored.
pub fn open(
    cipher: &dyn SecretCipher,
    place: SealedPlace<'_>,
    stored: &str,
) -> Result<String, Undecryptable> {
    let Some(sealed) = stored.strip_prefix(PREFIX) else { return Ok(stored.to_owned()) };
    let (key_id, text) = sealed.split_once(':').unwrap_or((sealed, ""));
    let value = SealedValue { key_id: key_id.to_owned(), text: text.to_owned() };
    cipher.open_data(&value, &place.binding()).map_err(|why| Undecryptable { place: place.to_string(), why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;
    use crate::notes::Checkpoint;
    use crate::time::Timestamp;

    /// Writes down what it gets, in place of encrypting it.
    #[derive(Debug)]
    struct OpenBook(&'static str);

    impl SecretCipher for OpenBook {
        fn current_key(&self) -> Option<String> {
            Some(self.0.to_owned())
        }

        fn has_key(&self, id: &str) -> bool {
            id == self.0
        }

        fn key_place(&self) -> String {
            "in the book".to_owned()
        }

        fn seal(&self, value: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError> {
            let text = format!("{}|{value}", String::from_utf8_lossy(bound_to));
            Ok(SealedValue { key_id: self.0.to_owned(), text })
        }

        fn open(&self, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
            if sealed.key_id != self.0 {
                let (key_id, known, place) =
                    (sealed.key_id.clone(), vec![self.0.to_owned()], self.key_place());
                return Err(CipherError::UnknownKey { key_id, known, place });
            }
            let begins = format!("{}|", String::from_utf8_lossy(bound_to));
            sealed.text.strip_prefix(&begins).map(str::to_owned).ok_or(CipherError::Mismatch)
        }

        fn seal_data(&self, text: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError> {
            self.seal(text, bound_to)
        }

        fn open_data(&self, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
            self.open(sealed, bound_to)
        }
    }

    fn job(entropy: u64) -> JobId {
        JobId::new(Timestamp::EPOCH, entropy)
    }

    #[test]
    fn a_text_is_read_back_only_where_it_was_stored() {
        let (cipher, one) = (OpenBook("k1"), job(1));
        let stored = seal(&cipher, SealedPlace::Payload(one), r#"{"a":1}"#).unwrap();
        assert!(is_sealed(&stored) && key_of(&stored) == Some("k1"), "{stored}");
        assert_eq!(open(&cipher, SealedPlace::Payload(one), &stored).unwrap(), r#"{"a":1}"#);
        let occurrence = one.occurrence(1);
        let request = RequestKey { token: "t".to_owned(), key: one.to_string() };
        for elsewhere in [
            SealedPlace::Payload(job(2)),
            SealedPlace::Checkpoint(occurrence),
            SealedPlace::Result(occurrence.attempt(1)),
            SealedPlace::Answer(&request),
        ] {
            let error = open(&cipher, elsewhere, &stored).unwrap_err().to_string();
            let expected = format!(
                "{elsewhere} cannot be decrypted: the stored text was changed, or copied from another row"
            );
            assert_eq!(error, expected);
        }
    }

    #[test]
    fn plain_rows_stay_as_they_are() {
        let cipher = OpenBook("k1");
        for text in ["null", "{}", "\"punctual-sealed:1:k1:x\"", " {}", ""] {
            assert!(!is_sealed(text) && key_of(text).is_none());
            assert_eq!(open(&cipher, SealedPlace::Payload(job(1)), text).unwrap(), text);
        }
    }

    #[test]
    fn a_missing_key_is_named_and_a_damaged_text_is_no_panic() {
        let stored = seal(&OpenBook("old"), SealedPlace::Payload(job(1)), "1").unwrap();
        let error = open(&OpenBook("new"), SealedPlace::Payload(job(1)), &stored).unwrap_err().to_string();
        let expected = "cannot be decrypted: it is encrypted with the key old, which this server does not have (it has new)";
        assert!(error.contains(expected), "{error}");
        for damaged in
            [PREFIX.to_owned(), format!("{PREFIX}new"), format!("{PREFIX}new:"), format!("{PREFIX}:")]
        {
            assert!(open(&OpenBook("new"), SealedPlace::Payload(job(1)), &damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn the_limit_of_a_checkpoint_applies_to_its_plain_text() {
        let base64 = "A".repeat(limits::CHECKPOINT_BYTES_MAX.div_ceil(3) * 4);
        let stored = format!("{PREFIX}0123456789ab:{base64}");
        assert!(stored.len() > limits::CHECKPOINT_BYTES_MAX);
        assert!(Checkpoint::stored(stored.clone()).is_ok());
        assert!(Checkpoint::stored(stored.replace(PREFIX, "")).is_err());
        assert!(Checkpoint::stored(stored.repeat(2)).is_err());
    }
}
