//! Results that are stored as blobs: the reference that stands in place of such a result, and the names of blobs in
//! their store.
//!
//! The key of a blob begins with its execution, and it is read through that execution only. So a handler that returns
//! a reference to the blob of another execution reaches nothing, and no table is needed that says whose a blob is.

use crate::ids::{BlobId, ExecutionId};
use crate::ports::{BlobError, BlobParts, BlobSource};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::str::FromStr;

/// The result of an execution whose result is stored as a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlobReference {
    #[serde(rename = "$blob")]
    pub id: BlobId,
    pub bytes: u64,
    /// SHA-256 of the data in hexadecimal digits.
    pub sha256: String,
}

impl BlobReference {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("ids, numbers and texts are JSON")
    }

    /// `None` if the result is anything else.
    pub fn read(result: &str) -> Option<Self> {
        // Most results are no references: do not parse them.
        if !result.contains("\"$blob\"") {
            return None;
        }
        serde_json::from_str(result).ok()
    }
}

/// The name of a blob in its store: `results/JOB/NUMBER.ATTEMPT/BLOB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobKey {
    pub execution: ExecutionId,
    pub id: BlobId,
}

const RESULTS: &str = "results/";

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlobKey { execution: ExecutionId { occurrence, attempt }, id } = self;
        write!(f, "{RESULTS}{}/{}.{attempt}/{id}", occurrence.job, occurrence.number)
    }
}

impl FromStr for BlobKey {
    type Err = ();

    /// Files of others in the same place are no blobs.
    fn from_str(key: &str) -> Result<Self, ()> {
        let (execution, id) = key.strip_prefix(RESULTS).and_then(|rest| rest.rsplit_once('/')).ok_or(())?;
        let execution = execution.replacen('/', ".", 1).parse().map_err(|_| ())?;
        let found = BlobKey { execution, id: id.parse().map_err(|_| ())? };
        if found.to_string() == key { Ok(found) } else { Err(()) }
    }
}

/// Passes parts on, while it counts their bytes and computes their hash.
pub struct CountedParts {
    inner: Box<dyn BlobParts>,
    bytes: u64,
    bytes_max: u64,
    hash: Sha256,
}

impl CountedParts {
    /// More bytes are an error.
    pub fn up_to(bytes_max: u64, inner: Box<dyn BlobParts>) -> Self {
        CountedParts { inner, bytes: 0, bytes_max, hash: Sha256::new() }
    }

    /// The reference to the parts that were passed on.
    pub fn reference(self, id: BlobId) -> BlobReference {
        BlobReference { id, bytes: self.bytes, sha256: hex(self.hash) }
    }
}

#[async_trait]
impl BlobParts for CountedParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        let part = self.inner.next().await?;
        if let Some(part) = &part {
            self.bytes += part.len() as u64;
            if self.bytes > self.bytes_max {
                return Err(BlobError::TooLarge { bytes_max: self.bytes_max });
            }
            self.hash.update(part);
        }
        Ok(part)
    }
}

/// Passes on the parts of a stored blob, and ends with an error if they are not what its reference says.
pub struct VerifiedParts {
    inner: Option<CountedParts>,
    expected: BlobReference,
}

impl VerifiedParts {
    pub fn new(expected: BlobReference, inner: Box<dyn BlobParts>) -> Self {
        VerifiedParts { inner: Some(CountedParts::up_to(u64::MAX, inner)), expected }
    }
}

#[async_trait]
impl BlobParts for VerifiedParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        let Some(inner) = &mut self.inner else { return Ok(None) };
        if let Some(part) = inner.next().await? {
            return Ok(Some(part));
        }
        let found = self.inner.take().map(|inner| inner.reference(self.expected.id));
        match found {
            Some(found) if found != self.expected => Err(BlobError::Damaged(format!(
                "it has {} bytes with the SHA-256 {}, and should have {} bytes with {}",
                found.bytes, found.sha256, self.expected.bytes, self.expected.sha256
            ))),
            _ => Ok(None),
        }
    }
}

/// Data in memory.
#[derive(Debug, Clone)]
pub struct HeldBlob(pub Vec<u8>);

#[async_trait]
impl BlobSource for HeldBlob {
    async fn open(&self) -> Result<Box<dyn BlobParts>, BlobError> {
        Ok(Box::new(HeldParts(Some(self.0.clone()))))
    }
}

struct HeldParts(Option<Vec<u8>>);

#[async_trait]
impl BlobParts for HeldParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        Ok(self.0.take().filter(|part| !part.is_empty()))
    }
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::time::Timestamp;

    fn key() -> BlobKey {
        let execution = JobId::new(Timestamp::from_micros(5_000), 1).occurrence(12).attempt(3);
        BlobKey { execution, id: BlobId::new(Timestamp::from_micros(9_000), 2) }
    }

    #[test]
    fn a_key_reads_back_and_other_files_are_none() {
        let text = key().to_string();
        assert_eq!(text.parse(), Ok(key()));
        assert!(text.ends_with(&format!("/12.3/{}", key().id)), "{text}");
        let other = |text: String| assert_eq!(text.parse::<BlobKey>(), Err(()), "{text}");
        for at in [text.replace("results/", "other/"), text.to_uppercase(), text.replace("/12.3/", "/../")] {
            other(at);
        }
        other(format!("{text}/more"));
        other(String::new());
    }

    #[test]
    fn only_a_whole_reference_is_one() {
        let reference = BlobReference { id: key().id, bytes: 7, sha256: "ab".to_owned() };
        assert_eq!(BlobReference::read(&reference.to_json()), Some(reference.clone()));
        for other in ["{}", r#"{"$blob":"x"}"#, "[\"$blob\"]", "{\"$blob\""] {
            assert_eq!(BlobReference::read(other), None, "{other}");
        }
        assert_eq!(BlobReference::read(&reference.to_json().replace("bytes", "size")), None);
    }
}
