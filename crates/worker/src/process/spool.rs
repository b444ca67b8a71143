//! The result of a command that is too large to be kept in memory: a file without a name, which is gone with this
//! process however it ends. Its parts are written to the page cache and read from there, so that nothing waits for
//! the disk.

use async_trait::async_trait;
use futures_util::future::{Either, select};
use punctual_core::limits;
use punctual_core::ports::{BlobError, BlobParts, BlobSource, ExecutionContext, LogStream, Outcome, Stop};
use serde::de::IgnoredAny;
use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::sync::Arc;

/// The last long line of a command's stdout.
#[derive(Default)]
pub(super) struct ResultSpool {
    file: Option<File>,
    bytes: u64,
    /// Why the line is not complete.
    failed: Option<BlobError>,
}

impl ResultSpool {
    /// A new long line begins.
    pub fn begin(&mut self, part: &[u8]) {
        *self = ResultSpool::default();
        match tempfile::tempfile() {
            Ok(file) => self.file = Some(file),
            Err(error) => self.fail(&error),
        }
        self.add(part);
    }

    pub fn add(&mut self, part: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.bytes += part.len() as u64;
        if self.bytes > limits::BLOB_BYTES_MAX {
            self.file = None;
            self.failed = Some(BlobError::TooLarge { bytes_max: limits::BLOB_BYTES_MAX });
        } else if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(part)
        {
            self.fail(&error);
        }
    }

    /// The next attempt may find room.
    fn fail(&mut self, error: &io::Error) {
        self.file = None;
        let place = std::env::temp_dir();
        let place = place.display();
        self.failed = Some(BlobError::Unavailable(format!("it cannot be written to {place}: {error}")));
    }

    /// The end of a command that has succeeded and whose last line is this one.
    pub async fn store(self, context: &ExecutionContext) -> Outcome {
        let file = match (self.file, self.failed) {
            (Some(file), None) => file,
            (_, failed) => {
                let missing = || BlobError::Unavailable("the shim did not send it".to_owned());
                return Outcome::with_stored(Err(failed.unwrap_or_else(missing)));
            }
        };
        match is_json(&file) {
            Ok(true) => {}
            Ok(false) => {
                let note = format!(
                    "the last line of stdout has {} bytes and is not JSON: it is not the result",
                    self.bytes
                );
                context.logs.append(LogStream::Log, note).await;
                return Outcome::Succeeded { result: None };
            }
            Err(error) => return Outcome::with_stored(Err(unreadable(&error))),
        }
        let source = Arc::new(SpooledResult(Arc::new(file)));
        let stored = pin!(context.results.store(source));
        let stopped = pin!(context.stop.requested(Stop::Politely));
        match select(stored, stopped).await {
            Either::Left((stored, _)) => Outcome::with_stored(stored),
            Either::Right(_) => Outcome::with_stored(Err(BlobError::Unavailable(
                "the attempt was stopped before the server had accepted it".to_owned(),
            ))),
        }
    }
}

fn is_json(mut file: &File) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    match serde_json::from_reader::<_, IgnoredAny>(BufReader::with_capacity(limits::BLOB_PART_BYTES, file)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_io() => Err(error.into()),
        Err(_) => Ok(false),
    }
}

fn unreadable(error: &io::Error) -> BlobError {
    BlobError::Unavailable(format!("it cannot be read back from the disk of the worker: {error}"))
}

struct SpooledResult(Arc<File>);

#[async_trait]
impl BlobSource for SpooledResult {
    async fn open(&self) -> Result<Box<dyn BlobParts>, BlobError> {
        Ok(Box::new(SpooledParts { file: self.0.clone(), at: 0 }))
    }
}

struct SpooledParts {
    file: Arc<File>,
    at: u64,
}

#[async_trait]
impl BlobParts for SpooledParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        let mut part = vec![0; limits::BLOB_PART_BYTES];
        let read = self.file.read_at(&mut part, self.at).map_err(|error| unreadable(&error))?;
        part.truncate(read);
        self.at += read as u64;
        Ok((read > 0).then_some(part))
    }
}
