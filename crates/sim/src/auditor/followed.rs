//! A follower of history gets every execution that ends, exactly once and in order of position. Executions
//! that retention deleted before they were delivered leave a detectable gap.

use super::{AuditResult, AuditViolation, Auditor, rule};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::ports::{FinishedEvent, FinishedPage, HistorySpan};
use std::collections::BTreeSet;

/// The follower's position, and the executions still to be delivered.
#[derive(Debug, Default)]
pub(super) struct Followed {
    cursor: u64,
    undelivered: BTreeSet<ExecutionId>,
    /// Executions that the page in flight shows to be missing permanently.
    missed: BTreeSet<ExecutionId>,
}

impl Auditor {
    pub(super) fn history_grew(&mut self, execution: ExecutionId) {
        self.followed.undelivered.insert(execution);
    }

    pub(super) fn history_forgot(&mut self, job: JobId) {
        self.followed.undelivered.retain(|execution| execution.occurrence.job != job);
        self.followed.missed.retain(|execution| execution.occurrence.job != job);
    }

    /// The position after which the follower continues.
    pub fn follows_after(&self) -> u64 {
        self.followed.cursor
    }

    /// A page was read after the follower's position; it is not known yet whether it reaches the follower.
    pub fn read_finished(&mut self, limit: usize, page: &FinishedPage, span: HistorySpan) -> AuditResult {
        let after = self.followed.cursor;
        let mut place = after;
        for event in &page.items {
            rule!(
                place < event.place && event.place <= page.looked_to,
                "history is read in the order of its positions",
                "after {after}: {} comes after {place}, the page ends at {}",
                event.place,
                page.looked_to
            );
            place = event.place;
            self.event_matches(event)?;
        }
        rule!(
            page.items.len() <= limit && after <= page.looked_to && page.looked_to <= span.ends_at.max(after),
            "a page of history keeps to its bounds",
            "after {after}, at most {limit}: {page:?} in {span:?}"
        );
        let delivered: BTreeSet<ExecutionId> = page.items.iter().map(|event| event.finished.id).collect();
        self.followed.missed.clear();
        for execution in self.followed.undelivered.clone() {
            let occurrence = execution.occurrence;
            // Executions of a deleted job are delivered until the job is purged.
            if self.job(occurrence.job)?.is_purged {
                self.followed.undelivered.remove(&execution);
            } else if self.is_retained(execution)? {
                rule!(
                    span.begins_after > after,
                    "a follower can detect that it missed something",
                    "{execution} was deleted before it was read after {after}, history spans {span:?}"
                );
                self.followed.missed.insert(execution);
                self.count("ends that retention deleted before they were read");
            } else {
                rule!(
                    page.more || delivered.contains(&execution),
                    "a follower reads every end",
                    "{execution} has ended and is not returned after {after}: {page:?}"
                );
            }
        }
        Ok(())
    }

    fn event_matches(&mut self, event: &FinishedEvent) -> AuditResult {
        let id = event.finished.id;
        rule!(
            self.followed.undelivered.contains(&id),
            "a follower reads every end once",
            "{id} is returned at {} and was returned before, or never ended",
            event.place
        );
        let job = self.job(id.occurrence.job)?;
        let attempt = self.occurrence(id.occurrence)?.finished.get(id.attempt as usize - 1);
        let is_right = attempt.is_some_and(|attempt| {
            (attempt.status, attempt.completed_at) == (event.finished.status, event.finished.completed_at)
        });
        rule!(
            is_right && event.queue == job.spec().queue && !job.is_purged,
            "an event about an end matches what happened",
            "{event:?} reports {attempt:?}, the job is {:?} in {}",
            job.mark,
            job.spec().queue
        );
        Ok(())
    }

    fn is_retained(&self, execution: ExecutionId) -> Result<bool, AuditViolation> {
        let finished = &self.occurrence(execution.occurrence)?.finished;
        Ok(finished.get(execution.attempt as usize - 1).is_some_and(|attempt| attempt.is_forgotten))
    }

    /// The page has reached the follower.
    pub fn followed_to(&mut self, page: &FinishedPage) {
        self.followed.cursor = page.looked_to;
        for event in &page.items {
            self.followed.undelivered.remove(&event.finished.id);
            self.count("ends read by a follower");
        }
        for execution in std::mem::take(&mut self.followed.missed) {
            self.followed.undelivered.remove(&execution);
        }
    }
}
