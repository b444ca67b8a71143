//! The notes of one execution on their way to the server. Progress is coalesced and only the latest is sent:
//! a flood of it costs the server nothing. A checkpoint is sent at once, and its saver is notified when it is
//! stored.
//!
//! One note is in flight at a time, each with its own number, so that a late copy of an abandoned note cannot
//! replace a newer one.

use async_trait::async_trait;
use futures_util::future::{Either, select};
use punctual_core::ids::SessionId;
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Note, NoteAnswer, Progress};
use punctual_core::ports::{Clock, LeaseRef, NoteError, NoteSink, Task, WorkerPort, WorkerPortError};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Where the notes go.
pub(crate) struct NoteOutlet {
    pub(crate) port: Arc<dyn WorkerPort>,
    pub(crate) session: SessionId,
    pub(crate) lease: LeaseRef,
    /// Pause after a failed call.
    pub(crate) error_pause: Duration,
}

/// What happens to unsent notes when the run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnsentNotes {
    /// They are sent: the next attempt, or the analysis of the failure, may need them.
    Send,
    /// They are dropped: notes of a successful execution are not kept.
    Drop,
}

pub(crate) struct ExecutionNotes {
    clock: Arc<dyn Clock>,
    waiting: Mutex<WaitingNotes>,
    first: Notify,
    urgent: Notify,
}

#[derive(Default)]
struct WaitingNotes {
    progress: Option<Progress>,
    checkpoint: Option<Checkpoint>,
    /// The callers that wait for a checkpoint to be stored.
    savers: Vec<oneshot::Sender<Result<(), NoteError>>>,
    /// The number of the last note sent.
    number: u64,
    /// No further notes are accepted.
    is_closed: bool,
}

impl ExecutionNotes {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        ExecutionNotes { clock, waiting: Mutex::default(), first: Notify::new(), urgent: Notify::new() }
    }

    /// The run is over: no more notes will come.
    pub(crate) fn close(&self, rest: UnsentNotes) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        if rest == UnsentNotes::Drop {
            waiting.give_up();
        }
        self.first.notify_one();
        self.urgent.notify_one();
    }

    /// Sends notes until they are closed and none are waiting.
    pub(crate) fn keep(self: Arc<Self>, outlet: NoteOutlet) -> Task {
        Box::pin(async move {
            loop {
                self.first.notified().await;
                if !self.waiting().is_urgent() {
                    let pause = self.clock.sleep(limits::PROGRESS_FLUSH_INTERVAL);
                    select(pin!(self.until_urgent()), pause).await;
                }
                while let Some((note, savers)) = self.next_note(&outlet) {
                    self.send(&outlet, note, savers).await;
                }
                if self.waiting().is_closed {
                    return;
                }
            }
        })
    }

    async fn until_urgent(&self) {
        // A signal may be left over from notes that were sent meanwhile.
        while !self.waiting().is_urgent() {
            self.urgent.notified().await;
        }
    }

    /// All waiting notes as one, and how many callers wait for it. The note stays pending until it is
    /// answered, unless a newer one replaces it.
    fn next_note(&self, outlet: &NoteOutlet) -> Option<(Note, usize)> {
        let mut waiting = self.waiting();
        if waiting.progress.is_none() && waiting.checkpoint.is_none() {
            return None;
        }
        waiting.number += 1;
        let note = Note {
            session: outlet.session,
            lease: outlet.lease,
            number: Some(waiting.number),
            progress: waiting.progress.clone(),
            checkpoint: waiting.checkpoint.clone(),
        };
        Some((note, waiting.savers.len()))
    }

    async fn send(&self, outlet: &NoteOutlet, note: Note, savers: usize) {
        match outlet.port.note(vec![note.clone()]).await.map(|answers| answers.first().copied()) {
            Ok(Some(NoteAnswer::Accepted | NoteAnswer::AlreadyAccepted)) => {
                self.waiting().kept(&note, savers)
            }
            Err(WorkerPortError::Unavailable(reason)) => {
                tracing::debug!(reason, "a note was not stored; retrying");
                self.clock.sleep(outlet.error_pause).await;
            }
            // The server no longer accepts it.
            Ok(Some(NoteAnswer::Stale) | None)
            | Err(WorkerPortError::SessionLost | WorkerPortError::StaleTurn) => {
                let mut waiting = self.waiting();
                waiting.is_closed = true;
                waiting.give_up();
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingNotes> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl NoteSink for ExecutionNotes {
    fn progress(&self, progress: Progress) {
        let mut waiting = self.waiting();
        if !waiting.is_closed {
            waiting.progress = Some(progress.within_limits());
            self.first.notify_one();
        }
    }

    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<(), NoteError> {
        let (saver, kept) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.is_closed {
                return Err(NoteError::LeaseLost);
            }
            waiting.checkpoint = Some(checkpoint);
            waiting.savers.push(saver);
            self.first.notify_one();
            self.urgent.notify_one();
        }
        match select(kept, self.clock.sleep(limits::CHECKPOINT_WAIT_MAX)).await {
            Either::Left((kept, _)) => kept.unwrap_or(Err(NoteError::LeaseLost)),
            Either::Right(_) => Err(NoteError::Unanswered),
        }
    }
}

impl WaitingNotes {
    fn is_urgent(&self) -> bool {
        self.is_closed || self.checkpoint.is_some()
    }

    /// This note is stored; notifies the first `savers` waiting callers.
    fn kept(&mut self, note: &Note, savers: usize) {
        if self.progress == note.progress {
            self.progress = None;
        }
        if note.checkpoint.is_some() {
            if self.checkpoint == note.checkpoint {
                self.checkpoint = None;
            }
            let kept = savers.min(self.savers.len());
            for saver in self.savers.drain(..kept) {
                // The caller may have stopped waiting.
                let _ = saver.send(Ok(()));
            }
        }
    }

    fn give_up(&mut self) {
        (self.progress, self.checkpoint) = (None, None);
        for saver in self.savers.drain(..) {
            let _ = saver.send(Err(NoteError::LeaseLost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{House, TokioClock};
    use punctual_core::ids::{Epoch, JobId};
    use punctual_core::notes::Percent;
    use punctual_core::time::Timestamp;

    fn notes(house: &Arc<House>) -> (Arc<ExecutionNotes>, tokio::task::JoinHandle<()>) {
        let notes = Arc::new(ExecutionNotes::new(Arc::new(TokioClock)));
        let outlet = NoteOutlet {
            port: house.clone(),
            session: SessionId(1),
            lease: LeaseRef {
                execution: JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1),
                epoch: Epoch(1),
            },
            error_pause: Duration::from_millis(200),
        };
        (notes.clone(), tokio::spawn(notes.keep(outlet)))
    }

    fn percent(percent: f64) -> Progress {
        Progress { percent: Percent::new(percent), message: None }
    }

    fn document(json: &str) -> Checkpoint {
        Checkpoint::new(json).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_progress_is_one_note_now_and_then() {
        let house = House::new();
        let (notes, keeping) = notes(&house);
        for _ in 0..3 {
            for number in 0..=100 {
                notes.progress(percent(f64::from(number)));
            }
            tokio::time::sleep(2 * limits::PROGRESS_FLUSH_INTERVAL).await;
        }
        let noted = house.noted();
        assert_eq!(noted.len(), 3);
        assert!(noted.iter().all(|note| note.progress == Some(percent(100.0))), "the latest word counts");
        assert_eq!(noted.iter().map(|note| note.number).collect::<Vec<_>>(), [1, 2, 3].map(Some));
        notes.close(UnsentNotes::Drop);
        keeping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn progress_after_a_checkpoint_waits_for_its_time() {
        let house = House::new();
        let (notes, _keeping) = notes(&house);
        for _ in 0..2 {
            notes.checkpoint(document("1")).await.unwrap();
            notes.progress(percent(10.0));
            tokio::time::sleep(limits::PROGRESS_FLUSH_INTERVAL / 2).await;
        }
        let said: Vec<bool> = house.noted().iter().map(|note| note.checkpoint.is_some()).collect();
        assert_eq!(said, [true, true], "each checkpoint takes the progress before it along");
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_well_before_it_is_time_to_send_costs_nothing() {
        let house = House::new();
        let (notes, keeping) = notes(&house);
        notes.progress(percent(50.0));
        notes.close(UnsentNotes::Drop);
        keeping.await.unwrap();
        assert_eq!(house.noted(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_word_of_a_failed_run_is_sent_at_once() {
        let house = House::new();
        let (notes, keeping) = notes(&house);
        notes.progress(percent(50.0));
        notes.close(UnsentNotes::Send);
        keeping.await.unwrap();
        assert_eq!(house.noted().len(), 1);
        notes.progress(percent(60.0));
        assert_eq!(notes.checkpoint(document("1")).await, Err(NoteError::LeaseLost), "the run is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_saved_checkpoint_is_kept_and_takes_waiting_progress_along() {
        let house = House::new();
        let (notes, _keeping) = notes(&house);
        notes.progress(percent(10.0));
        notes.checkpoint(document("{\"offset\": 7}")).await.unwrap();
        let noted = house.noted();
        assert_eq!(noted.len(), 1);
        assert_eq!(noted[0].checkpoint, Some(document("{\"offset\": 7}")));
        assert_eq!(noted[0].progress, Some(percent(10.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_the_newest_is_sent_under_a_new_number() {
        let house = House::new();
        house.fail(3);
        let (notes, _keeping) = notes(&house);
        let (first, second) = tokio::join!(notes.checkpoint(document("1")), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            notes.checkpoint(document("2")).await
        });
        assert_eq!((first, second), (Ok(()), Ok(())), "what is newer stands for what it replaced");
        let noted = house.noted();
        assert_eq!(noted.len(), 1);
        assert_eq!((noted[0].number, noted[0].checkpoint.clone()), (Some(4), Some(document("2"))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_gone_is_told() {
        let house = House::new();
        house.answer(NoteAnswer::Stale);
        let (notes, _keeping) = notes(&house);
        assert_eq!(notes.checkpoint(document("1")).await, Err(NoteError::LeaseLost));
        assert_eq!(notes.checkpoint(document("2")).await, Err(NoteError::LeaseLost));
        assert_eq!(house.noted().len(), 1, "nothing more is sent");
    }

    #[tokio::test(start_paused = true)]
    async fn a_house_that_never_answers_is_not_waited_for_for_ever() {
        let house = House::new();
        house.fail(usize::MAX);
        let (notes, _keeping) = notes(&house);
        assert_eq!(notes.checkpoint(document("1")).await, Err(NoteError::Unanswered));
    }
}
