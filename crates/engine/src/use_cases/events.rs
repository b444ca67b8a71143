//! Reading events about executions.
//!
//! Finished executions are read from history in commit order, each with its position. Open executions have no
//! position: they are read when they change, and all that run when a reader begins or falls behind. The engine
//! signals when to read; a reader that reads once a second finds whatever was not signalled.

use super::{UseCase, UseCaseError, UseCases};
use crate::{CommitListener, Touched};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limits;
use punctual_core::ports::{FinishedEvent, OpenExecution, RunningPlace};
use std::collections::BTreeSet;

/// The state of an execution, for a listener.
#[derive(Debug, Clone, PartialEq)]
pub enum ExecutionEvent {
    Finished(FinishedEvent),
    Open(OpenExecution),
}

/// Events that were read together.
#[derive(Debug, Clone, PartialEq)]
pub struct EventBatch {
    pub events: Vec<ExecutionEvent>,
    /// The position in history before the batch and after it.
    pub from: u64,
    pub to: u64,
}

/// What a reader reads next.
enum Unread {
    /// History, and then what may have changed.
    History(Touched),
    These(Vec<OccurrenceId>),
    /// Everything that runs, from here on.
    Running(Option<RunningPlace>),
}

/// Reads events on behalf of a caller.
pub struct EventReader {
    cases: UseCases,
    listener: CommitListener,
    /// Reads open executions of this job only.
    job: Option<JobId>,
    /// All executions that finished up to this position were read.
    place: u64,
    /// The requested position, if history after it is no longer retained.
    gap: Option<u64>,
    unread: Unread,
}

impl UseCases {
    /// A reader of events, from a position in history on; from now on without one.
    pub async fn events(&self, start: Option<u64>, job: Option<JobId>) -> Result<EventReader, UseCaseError> {
        self.permit(UseCase::ReadEvents)?;
        // Subscribe before reading anything, so that every later commit is signalled.
        let listener = self.engine.listen();
        let span = self.store().history_span().await?;
        let place = start.filter(|place| *place <= span.ends_at);
        Ok(EventReader {
            cases: self.clone(),
            listener,
            job,
            place: place.map_or(span.ends_at, |place| place.max(span.begins_after)),
            gap: start.filter(|place| *place < span.begins_after || *place > span.ends_at),
            unread: Unread::History(Touched::Anything),
        })
    }
}

impl EventReader {
    /// The position after which events are missing.
    pub fn gap(&self) -> Option<u64> {
        self.gap
    }

    /// The next events; `None` if there are none now: wait with [`Self::changed`], and then read again.
    pub async fn read(&mut self) -> Result<Option<EventBatch>, UseCaseError> {
        // After an error, what changed meanwhile is no longer known.
        match std::mem::replace(&mut self.unread, Unread::History(Touched::Anything)) {
            Unread::History(touched) => self.read_history(touched).await.map(Some),
            Unread::These(mut ids) if !ids.is_empty() => {
                let rest = ids.split_off(ids.len().min(limits::PAGE_ITEMS_MAX));
                let open = self.cases.store().open_executions(ids).await?;
                self.unread = Unread::These(rest);
                Ok(Some(self.open(open).await?))
            }
            Unread::Running(after) => {
                let page = self.cases.store().running(after, limits::PAGE_ITEMS_DEFAULT).await?;
                self.unread = match page.next {
                    Some(next) => Unread::Running(Some(next)),
                    None => Unread::These(vec![]),
                };
                Ok(Some(self.open(page.items).await?))
            }
            Unread::These(_) => {
                self.unread = Unread::History(Touched::These(BTreeSet::new()));
                Ok(None)
            }
        }
    }

    async fn read_history(&mut self, touched: Touched) -> Result<EventBatch, UseCaseError> {
        let from = self.place;
        let page = self.cases.store().finished_after(from, limits::PAGE_ITEMS_DEFAULT).await?;
        let visible =
            self.cases.in_scope(page.items.iter().map(|event| event.finished.id.occurrence.job)).await?;
        self.place = page.looked_to;
        self.unread = match touched {
            touched if page.more => Unread::History(touched),
            Touched::Anything => Unread::Running(None),
            Touched::These(ids) => {
                let is_meant = |id: &OccurrenceId| self.job.is_none_or(|job| job == id.job);
                Unread::These(ids.into_iter().filter(is_meant).collect())
            }
        };
        let events = page.items.into_iter().filter(|event| visible.has(event.finished.id.occurrence.job));
        let events = events
            .map(|event| FinishedEvent { finished: self.cases.shown_finished(event.finished), ..event });
        Ok(EventBatch { events: events.map(ExecutionEvent::Finished).collect(), from, to: self.place })
    }

    async fn open(&self, open: Vec<OpenExecution>) -> Result<EventBatch, UseCaseError> {
        let visible = self.cases.in_scope(open.iter().map(|open| open.live.id.job)).await?;
        let events = open.into_iter().filter(|open| visible.has(open.live.id.job));
        let events = events.map(ExecutionEvent::Open).collect();
        Ok(EventBatch { events, from: self.place, to: self.place })
    }

    /// Waits until something may have changed. May be dropped at any time.
    pub async fn changed(&mut self) {
        self.unread = Unread::History(self.listener.next().await);
    }
}
