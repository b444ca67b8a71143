//! Results that are too large for the database: how they are stored as blobs, read, and deleted.
//!
//! No row says which blobs there are. A blob belongs to the execution in its key; it is in use as long as the stored
//! result of that execution refers to it. The sweep deletes all others, once they are old enough that no report about
//! them can be on its way. So a crash between upload and report leaves only a blob that the sweep finds, and blobs go
//! after their executions, whatever has deleted these.

use crate::{Engine, EngineContext};
use async_trait::async_trait;
use punctual_core::blobs::{BlobKey, BlobReference, CountedParts, VerifiedParts};
use punctual_core::ids::{BlobId, ExecutionId};
use punctual_core::limits;
use punctual_core::ports::{
    BlobError, BlobParts, BlobStore, ExecutionView, LeaseRef, SecretCipher, StoreError,
};
use punctual_core::sealed::{self, SealedPlace, is_sealed, sealed_bytes_max};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// Where large results go.
#[derive(Debug, Clone)]
pub struct BlobConfig {
    pub store: Arc<dyn BlobStore>,
    /// Bytes of one blob, at most.
    pub bytes_max: u64,
}

/// Bytes of a line of an encrypted blob.
const SEALED_LINE_BYTES_MAX: usize = sealed_bytes_max(limits::BLOB_PART_BYTES);

impl Engine {
    /// Whether this node can store results as blobs.
    pub(crate) fn has_blobs(&self) -> bool {
        self.context.config.blobs.is_some()
    }

    /// The blob of an execution, in parts.
    pub(crate) async fn open_result(
        &self,
        execution: ExecutionId,
        reference: BlobReference,
    ) -> Result<Box<dyn BlobParts>, BlobError> {
        let config = self.context.blob_config()?;
        let key = BlobKey { execution, id: reference.id };
        let parts = config.store.get(&key.to_string()).await?;
        let parts: Box<dyn BlobParts> = match &self.context.config.secret_cipher {
            Some(cipher) => Box::new(OpenedParts::new(parts, cipher.clone(), key)),
            None => parts,
        };
        Ok(Box::new(VerifiedParts::new(reference, parts)))
    }
}

impl EngineContext {
    fn blob_config(&self) -> Result<&BlobConfig, BlobError> {
        self.config.blobs.as_ref().ok_or_else(|| {
            BlobError::Refused("this server has no place for blobs: set blobs.url on all servers".to_owned())
        })
    }

    pub(crate) async fn store_result(
        &self,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        let config = self.blob_config()?;
        let execution = lease.execution;
        let unavailable = |error: StoreError| BlobError::Unavailable(error.to_string());
        if self.uses_secrets(execution).await.map_err(unavailable)? {
            return Err(BlobError::Refused(
                "the job uses secrets, which cannot be removed from a blob: set result_overflow to truncate or fail"
                    .to_owned(),
            ));
        }
        let id = BlobId::new(self.time.now(), self.host.random.next_u64());
        let key = BlobKey { execution, id };
        let mut counted = CountedParts::up_to(config.bytes_max, parts);
        let name = key.to_string();
        match self.config.secret_cipher.as_ref().filter(|_| self.config.encrypt_payloads) {
            Some(cipher) => {
                let mut sealed = SealedParts {
                    inner: &mut counted,
                    cipher: &**cipher,
                    key,
                    number: 0,
                    plain: vec![],
                    is_over: false,
                };
                config.store.put(&name, &mut sealed).await?;
            }
            None => config.store.put(&name, &mut counted).await?,
        }
        Ok(counted.reference(id))
    }
}

/// Deletes blobs that no execution refers to.
pub(crate) async fn sweep(context: &EngineContext, now: Timestamp) {
    let Some(config) = &context.config.blobs else { return };
    match sweep_once(context, &*config.store, now.minus(limits::BLOB_UNUSED_KEPT)).await {
        Ok(0) => {}
        Ok(deleted) => tracing::info!(deleted, "deleted blobs that no execution refers to"),
        Err(error) => tracing::warn!(%error, "unused blobs could not be deleted; retrying later"),
    }
}

async fn sweep_once(
    context: &EngineContext,
    blobs: &dyn BlobStore,
    before: Timestamp,
) -> Result<u64, BlobError> {
    let (mut keys, mut deleted) = (blobs.keys(), 0);
    while let Some(name) = keys.next().await? {
        let Ok(key) = name.parse() else { continue };
        if !is_in_use(context, key, before).await? {
            blobs.delete(&name).await?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

async fn is_in_use(context: &EngineContext, key: BlobKey, before: Timestamp) -> Result<bool, BlobError> {
    if key.id.made_at() >= before {
        return Ok(true);
    }
    let found = context.store.execution(key.execution).await;
    Ok(match found.map_err(|error| BlobError::Unavailable(error.to_string()))? {
        // Its report may be on its way.
        Some(ExecutionView::Live { live, .. }) if live.execution() == key.execution => true,
        // A result that cannot be decrypted here may refer to it.
        Some(ExecutionView::Finished(finished)) => match &finished.result {
            Some(result) => BlobReference::read(result).is_some_and(|reference| reference.id == key.id),
            None => finished.error.is_some_and(|error| error.contains("cannot be decrypted")),
        },
        Some(ExecutionView::Live { .. }) | None => false,
    })
}

/// Encrypts parts: each is one line.
struct SealedParts<'a> {
    inner: &'a mut CountedParts,
    cipher: &'a dyn SecretCipher,
    key: BlobKey,
    number: u64,
    plain: Vec<u8>,
    is_over: bool,
}

#[async_trait]
impl BlobParts for SealedParts<'_> {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        // One byte more than a part: then it is known that another one follows.
        while !self.is_over && self.plain.len() <= limits::BLOB_PART_BYTES {
            match self.inner.next().await? {
                Some(part) => self.plain.extend(part),
                None => self.is_over = true,
            }
        }
        if self.plain.is_empty() {
            return Ok(None);
        }
        let rest = self.plain.split_off(part_length(&self.plain));
        let part = std::mem::replace(&mut self.plain, rest);
        let is_last = self.is_over && self.plain.is_empty();
        let text = String::from_utf8(part)
            .map_err(|_| BlobError::Refused("it is not UTF-8, and so no JSON".to_owned()))?;
        let place = place(self.key, self.number, is_last);
        self.number += 1;
        let sealed = sealed::seal(self.cipher, place, &text)
            .map_err(|error| BlobError::Refused(format!("it cannot be encrypted: {error}")))?;
        Ok(Some(format!("{sealed}\n").into_bytes()))
    }
}

fn place(BlobKey { execution, id }: BlobKey, number: u64, is_last: bool) -> SealedPlace<'static> {
    SealedPlace::BlobPart { execution, blob: id, number, is_last }
}

/// The bytes of the next part: not within a character.
fn part_length(plain: &[u8]) -> usize {
    let most = plain.len().min(limits::BLOB_PART_BYTES);
    let is_boundary = |at: &usize| plain.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
    (most.saturating_sub(3)..=most).rev().find(is_boundary).unwrap_or(most)
}

/// Decrypts the parts of a blob, if it is encrypted.
struct OpenedParts {
    inner: Box<dyn BlobParts>,
    cipher: Arc<dyn SecretCipher>,
    key: BlobKey,
    number: u64,
    stored: Vec<u8>,
    is_over: bool,
    is_plain: bool,
}

impl OpenedParts {
    fn new(inner: Box<dyn BlobParts>, cipher: Arc<dyn SecretCipher>, key: BlobKey) -> Self {
        OpenedParts { inner, cipher, key, number: 0, stored: vec![], is_over: false, is_plain: false }
    }

    /// Reads until a line is complete and another byte follows, or to the end.
    async fn fill(&mut self) -> Result<Option<usize>, BlobError> {
        let mut looked_at = 0;
        loop {
            let newline = self.stored[looked_at..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = newline.map(|at| looked_at + at)
                && (self.is_over || self.stored.len() > end + 1)
            {
                return Ok(Some(end));
            }
            looked_at = newline.map_or(self.stored.len(), |at| looked_at + at);
            if self.is_over || looked_at > SEALED_LINE_BYTES_MAX {
                return Ok(None);
            }
            match self.inner.next().await? {
                Some(part) => self.stored.extend(part),
                None => self.is_over = true,
            }
        }
    }
}

#[async_trait]
impl BlobParts for OpenedParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        if self.is_plain {
            return self.inner.next().await;
        }
        let Some(end) = self.fill().await? else {
            return match (self.number, self.stored.is_empty()) {
                (_, true) => Ok(None),
                // It has no line of an encrypted blob at its start.
                (0, false) => {
                    self.is_plain = true;
                    Ok(Some(std::mem::take(&mut self.stored)))
                }
                (number, false) => Err(BlobError::Damaged(format!("part {number} is not complete"))),
            };
        };
        let line = std::str::from_utf8(&self.stored[..end]).unwrap_or_default();
        if self.number == 0 && !is_sealed(line) {
            self.is_plain = true;
            return Ok(Some(std::mem::take(&mut self.stored)));
        }
        let rest = end + 1;
        let place = place(self.key, self.number, self.stored.len() == rest);
        if !is_sealed(line) {
            return Err(BlobError::Damaged(format!("part {} is not encrypted", self.number)));
        }
        let plain = sealed::open(&*self.cipher, place, line);
        let plain = plain.map_err(|error| BlobError::Damaged(error.to_string()))?;
        self.stored.drain(..rest);
        self.number += 1;
        Ok(Some(plain.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::blobs::HeldBlob;
    use punctual_core::ids::JobId;
    use punctual_core::ports::{BlobSource, CipherError, SealedValue};

    /// Writes down what a text is bound to, and the text in hexadecimal digits.
    #[derive(Debug)]
    struct OpenBook;

    impl SecretCipher for OpenBook {
        fn current_key(&self) -> Option<String> {
            Some("k".to_owned())
        }

        fn has_key(&self, id: &str) -> bool {
            id == "k"
        }

        fn key_place(&self) -> String {
            "in the book".to_owned()
        }

        fn seal(&self, value: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError> {
            let text = format!("{}|{value}", String::from_utf8_lossy(bound_to));
            Ok(SealedValue { key_id: "k".to_owned(), text: text.replace('\n', "\\n") })
        }

        fn open(&self, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
            let begins = format!("{}|", String::from_utf8_lossy(bound_to));
            sealed
                .text
                .strip_prefix(&begins)
                .map(|text| text.replace("\\n", "\n"))
                .ok_or(CipherError::Mismatch)
        }

        fn seal_data(&self, text: &str, bound_to: &[u8]) -> Result<SealedValue, CipherError> {
            self.seal(text, bound_to)
        }

        fn open_data(&self, sealed: &SealedValue, bound_to: &[u8]) -> Result<String, CipherError> {
            self.open(sealed, bound_to)
        }
    }

    fn key() -> BlobKey {
        let execution = JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1);
        BlobKey { execution, id: BlobId::new(Timestamp::EPOCH, 2) }
    }

    async fn all(parts: &mut dyn BlobParts) -> Result<Vec<u8>, BlobError> {
        let mut bytes = Vec::new();
        while let Some(part) = parts.next().await? {
            assert!(!part.is_empty());
            bytes.extend(part);
        }
        Ok(bytes)
    }

    async fn sealed(plain: &str) -> Vec<u8> {
        let source = HeldBlob(plain.as_bytes().to_vec()).open().await.unwrap();
        let mut inner = CountedParts::up_to(u64::MAX, source);
        let mut parts = SealedParts {
            inner: &mut inner,
            cipher: &OpenBook,
            key: key(),
            number: 0,
            plain: vec![],
            is_over: false,
        };
        all(&mut parts).await.unwrap()
    }

    async fn opened(stored: Vec<u8>) -> Result<Vec<u8>, BlobError> {
        let inner = HeldBlob(stored).open().await.unwrap();
        all(&mut OpenedParts::new(inner, Arc::new(OpenBook), key())).await
    }

    #[tokio::test]
    async fn what_was_sealed_is_read_back_whatever_its_length() {
        for bytes in [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000] {
            let plain = "x".repeat(bytes);
            assert_eq!(opened(sealed(&plain).await).await.unwrap(), plain.as_bytes(), "{bytes}");
        }
        // A part does not end within a character.
        let plain = "ü€𝄞\n".repeat(30_000);
        assert_eq!(opened(sealed(&plain).await).await.unwrap(), plain.as_bytes());
    }

    #[tokio::test]
    async fn parts_cannot_be_left_out_exchanged_or_added() {
        let stored = String::from_utf8(sealed(&"x".repeat(200_000)).await).unwrap();
        let lines: Vec<&str> = stored.lines().collect();
        assert_eq!(lines.len(), 4);
        for chosen in [&[0, 1, 2][..], &[0, 1, 3], &[1, 0, 2, 3], &[0, 1, 2, 3, 3], &[1, 2, 3]] {
            let changed: String = chosen.iter().map(|line| format!("{}\n", lines[*line])).collect();
            assert!(matches!(opened(changed.into()).await, Err(BlobError::Damaged(_))), "{chosen:?}");
        }
        let cut = stored.as_bytes()[..stored.len() - 5].to_vec();
        assert!(matches!(opened(cut).await, Err(BlobError::Damaged(_))));
        let mixed = format!("{}\nplain\n", lines[0]);
        assert!(matches!(opened(mixed.into()).await, Err(BlobError::Damaged(_))));
    }

    #[tokio::test]
    async fn a_blob_from_before_the_option_was_set_stays_readable() {
        for plain in ["{}", "[1,\n2]\n", "\"", &"x".repeat(300_000), &"line\n".repeat(50_000)] {
            assert_eq!(opened(plain.as_bytes().to_vec()).await.unwrap(), plain.as_bytes());
        }
    }
}
