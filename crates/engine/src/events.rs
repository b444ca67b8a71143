//! Event listeners and log followers.
//!
//! The engine only reports which occurrences a commit may have changed; a listener reads their state from the
//! store. Nothing has to be stored here, nothing can be wrong, and without listeners the cost is one read of
//! a counter. A listener that falls behind is notified and reads everything again.

use futures_util::future::{Either, select};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

#[derive(Debug)]
pub(crate) struct CommitEvents {
    touched: broadcast::Sender<Arc<[OccurrenceId]>>,
    written: broadcast::Sender<Arc<[JobId]>>,
}

impl Default for CommitEvents {
    fn default() -> Self {
        CommitEvents {
            touched: broadcast::Sender::new(limits::EVENT_COMMITS_WAITING_MAX),
            written: broadcast::Sender::new(limits::EVENT_COMMITS_WAITING_MAX),
        }
    }
}

impl CommitEvents {
    /// Whether there are listeners: without them, nothing that costs anything is collected.
    pub(crate) fn has_listeners(&self) -> bool {
        self.touched.receiver_count() > 0
    }

    /// A commit may have changed these occurrences.
    pub(crate) fn touched(&self, occurrences: impl IntoIterator<Item = OccurrenceId>) {
        if self.has_listeners() {
            let occurrences: Arc<[OccurrenceId]> = occurrences.into_iter().collect();
            if !occurrences.is_empty() {
                // The last listener may have just left.
                let _ = self.touched.send(occurrences);
            }
        }
    }

    /// Log lines of these jobs were stored.
    pub(crate) fn written(&self, jobs: impl IntoIterator<Item = JobId>) {
        if self.written.receiver_count() > 0 {
            let jobs: BTreeSet<JobId> = jobs.into_iter().collect();
            let _ = self.written.send(jobs.into_iter().collect());
        }
    }

    pub(crate) fn listen(&self) -> CommitListener {
        CommitListener { touched: self.touched.subscribe() }
    }

    pub(crate) fn follow_logs(&self, job: JobId) -> LogFollower {
        LogFollower { job, touched: self.touched.subscribe(), written: self.written.subscribe() }
    }
}

/// Receives what commits change, from its creation on.
#[derive(Debug)]
pub struct CommitListener {
    touched: broadcast::Receiver<Arc<[OccurrenceId]>>,
}

/// What may have changed since a listener's last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    These(BTreeSet<OccurrenceId>),
    /// More than is buffered for this listener: anything may have changed.
    Anything,
}

impl CommitListener {
    /// Waits until something has changed and returns all of it. Never returns if the engine is gone: the
    /// caller must also have a timer.
    pub async fn next(&mut self) -> Touched {
        let mut occurrences = BTreeSet::new();
        match self.touched.recv().await {
            Ok(some) => occurrences.extend(some.iter().copied()),
            Err(RecvError::Lagged(_)) => return Touched::Anything,
            Err(RecvError::Closed) => std::future::pending().await,
        }
        loop {
            match self.touched.try_recv() {
                Ok(more) => occurrences.extend(more.iter().copied()),
                Err(TryRecvError::Lagged(_)) => return Touched::Anything,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return Touched::These(occurrences),
            }
        }
    }
}

/// Receives a signal when a job may have more log lines.
#[derive(Debug)]
pub struct LogFollower {
    job: JobId,
    touched: broadcast::Receiver<Arc<[OccurrenceId]>>,
    written: broadcast::Receiver<Arc<[JobId]>>,
}

impl LogFollower {
    /// Waits until lines of the job were stored, or one of its executions has changed.
    pub async fn next(&mut self) {
        loop {
            let (written, touched) = (pin!(self.written.recv()), pin!(self.touched.recv()));
            let is_meant = match select(written, touched).await {
                Either::Left((Ok(jobs), _)) => jobs.contains(&self.job),
                Either::Right((Ok(occurrences), _)) => occurrences.iter().any(|one| one.job == self.job),
                Either::Left((Err(RecvError::Lagged(_)), _))
                | Either::Right((Err(RecvError::Lagged(_)), _)) => true,
                Either::Left((Err(RecvError::Closed), _)) | Either::Right((Err(RecvError::Closed), _)) => {
                    std::future::pending().await
                }
            };
            if is_meant {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use punctual_core::time::Timestamp;

    fn occurrence(number: u32) -> OccurrenceId {
        JobId::new(Timestamp::EPOCH, 1).occurrence(number)
    }

    #[tokio::test]
    async fn a_listener_takes_all_that_was_touched_since_it_asked() {
        let events = CommitEvents::default();
        events.touched([occurrence(1)]);
        let mut listener = events.listen();
        events.touched([occurrence(2), occurrence(3)]);
        events.touched([occurrence(2)]);
        assert_eq!(listener.next().await, Touched::These([occurrence(2), occurrence(3)].into()));
    }

    #[tokio::test]
    async fn a_listener_that_lags_is_told_that_anything_may_have_moved() {
        let events = CommitEvents::default();
        let mut listener = events.listen();
        for _ in 0..=limits::EVENT_COMMITS_WAITING_MAX {
            events.touched([occurrence(1)]);
        }
        assert_eq!(listener.next().await, Touched::Anything);
        assert_eq!(listener.next().await, Touched::These([occurrence(1)].into()), "and goes on from there");
    }

    #[tokio::test]
    async fn a_follower_wakes_for_its_own_job_alone() {
        let events = CommitEvents::default();
        let (mine, other) = (JobId::new(Timestamp::EPOCH, 1), JobId::new(Timestamp::EPOCH, 2));
        let mut follower = events.follow_logs(mine);
        events.written([other]);
        events.touched([other.occurrence(1)]);
        let mut waiting = std::pin::pin!(follower.next());
        assert!(waiting.as_mut().now_or_never().is_none());
        events.written([mine]);
        waiting.await;
    }
}
