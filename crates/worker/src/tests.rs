//! What the tests of this crate share: a clock that can be paused, and a server that records what it
//! receives.

use async_trait::async_trait;
use punctual_core::blobs::{BlobReference, CountedParts};
use punctual_core::ids::{BlobId, Epoch, JobId, SessionId};
use punctual_core::limits;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Assignment, BeatAnswer, BlobError, BlobParts, Clock, Heartbeat, LeaseRef, LogLine, Poll, Report,
    ReportAnswer, Served, SessionGrant, SessionOpening, Task, WorkerPort, WorkerPortError,
};
use punctual_core::slots::Demand;
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

pub(crate) struct TokioClock;

impl Clock for TokioClock {
    fn wall(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(0)
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// Stores log lines, one batch per permit, and notes; fails as often as requested.
pub(crate) struct House {
    batches: Mutex<Vec<Vec<String>>>,
    permits: Semaphore,
    failures: Mutex<Vec<WorkerPortError>>,
    noted: Mutex<Vec<Note>>,
    failures_of_notes: Mutex<usize>,
    pub(crate) failures_of_results: Mutex<Vec<BlobError>>,
    answer: Mutex<NoteAnswer>,
    given_back: Mutex<Vec<LeaseRef>>,
}

impl House {
    pub(crate) fn new() -> Arc<Self> {
        House::for_logs(0, vec![])
    }

    pub(crate) fn for_logs(permits: usize, failures: Vec<WorkerPortError>) -> Arc<Self> {
        Arc::new(House {
            batches: Mutex::default(),
            permits: Semaphore::new(permits),
            failures: Mutex::new(failures),
            noted: Mutex::default(),
            failures_of_notes: Mutex::default(),
            failures_of_results: Mutex::default(),
            answer: Mutex::new(NoteAnswer::Accepted),
            given_back: Mutex::default(),
        })
    }

    pub(crate) fn given_back(&self) -> Vec<LeaseRef> {
        self.given_back.lock().unwrap().clone()
    }

    /// Permits this many more batches of lines, or polls with work.
    pub(crate) fn allow(&self, batches: usize) {
        self.permits.add_permits(batches);
    }

    pub(crate) fn batches(&self) -> Vec<Vec<String>> {
        self.batches.lock().unwrap().clone()
    }

    /// The notes that were answered.
    pub(crate) fn noted(&self) -> Vec<Note> {
        self.noted.lock().unwrap().clone()
    }

    /// Lets the next `notes` notes fail.
    pub(crate) fn fail(&self, notes: usize) {
        *self.failures_of_notes.lock().unwrap() = notes;
    }

    /// Sets the answer to notes from now on.
    pub(crate) fn answer(&self, answer: NoteAnswer) {
        *self.answer.lock().unwrap() = answer;
    }
}

fn assignment() -> Assignment {
    Assignment {
        execution: JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1),
        epoch: Epoch(1),
        job_version: 1,
        name: "noop".to_owned(),
        job_type: "noop".to_owned(),
        queue: "default".to_owned(),
        payload: "null".to_owned(),
        timeout: Duration::from_secs(1),
        scheduled_time: Timestamp::EPOCH,
        available_at: Timestamp::EPOCH,
        rank: 0,
        checkpoint: None,
        result_overflow: Default::default(),
        trace: None,
    }
}

#[async_trait]
impl WorkerPort for House {
    async fn append_logs(&self, _: SessionId, lines: Vec<LogLine>) -> Result<(), WorkerPortError> {
        self.permits.acquire().await.unwrap().forget();
        if let Some(failure) = self.failures.lock().unwrap().pop() {
            return Err(failure);
        }
        self.batches.lock().unwrap().push(lines.into_iter().map(|line| line.message).collect());
        Ok(())
    }

    async fn note(&self, notes: Vec<Note>) -> Result<Vec<NoteAnswer>, WorkerPortError> {
        let mut failures = self.failures_of_notes.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(WorkerPortError::Unavailable("away".to_owned()));
        }
        let answers = vec![*self.answer.lock().unwrap(); notes.len()];
        self.noted.lock().unwrap().extend(notes);
        Ok(answers)
    }

    async fn open_session(&self, _: SessionOpening) -> Result<SessionGrant, WorkerPortError> {
        unreachable!("only logs and notes are sent")
    }

    async fn poll(&self, _: Poll) -> Result<Vec<Assignment>, WorkerPortError> {
        self.permits.acquire().await.unwrap().forget();
        Ok(vec![assignment()])
    }

    async fn beat(&self, _: Heartbeat) -> Result<BeatAnswer, WorkerPortError> {
        unreachable!("only logs and notes are sent")
    }

    async fn demand(&self, _: Served) -> Result<Demand, WorkerPortError> {
        unreachable!("only logs and notes are sent")
    }

    async fn report(&self, _: Vec<Report>) -> Result<Vec<ReportAnswer>, WorkerPortError> {
        unreachable!("only logs and notes are sent")
    }

    async fn store_result(
        &self,
        _: SessionId,
        lease: LeaseRef,
        parts: Box<dyn BlobParts>,
    ) -> Result<BlobReference, BlobError> {
        let failure = self.failures_of_results.lock().unwrap().pop();
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mut parts = CountedParts::up_to(limits::BLOB_BYTES_MAX, parts);
        while parts.next().await?.is_some() {}
        Ok(parts.reference(BlobId::new(Timestamp::EPOCH, lease.epoch.0.into())))
    }

    async fn give_back(&self, _: SessionId, leases: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        self.given_back.lock().unwrap().extend(leases);
        Ok(())
    }

    async fn resync(&self, _: SessionId, _: u64, _: Vec<LeaseRef>) -> Result<(), WorkerPortError> {
        unreachable!("only logs and notes are sent")
    }

    async fn close_session(&self, _: SessionId) -> Result<(), WorkerPortError> {
        unreachable!("only logs and notes are sent")
    }
}
