//! Verbs that change single occurrences of a recurring job and leave its schedule as it is: skipping the next one,
//! running it at another time, and running past ones again.

use super::{Change, LoadedJob, Refusal, ScheduleChange, gated, spent};
use crate::gates::Gate;
use crate::job::{Job, JobStatus};
use crate::limits;
use crate::occurrence::{Live, Origin, RunInput};
use crate::rank::rank;
use crate::schedule::{
    BackfillTerms, OverlapPolicy, Recurring, Replay, Schedule, ScheduleState, SkipRange, SkipReason,
};
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// The next occurrence as its user sees it: calendars exclude those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextRun {
    pub nominal: Timestamp,
}

/// Past occurrences to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backfill {
    /// The first and last nominal time, both included.
    pub from: Timestamp,
    pub to: Timestamp,
    /// How many run at most, the earliest.
    pub limit: u32,
    pub per_minute: Option<u32>,
}

impl LoadedJob {
    pub(super) fn skipped_next(&self, next: NextRun, now: Timestamp) -> Result<Change, Refusal> {
        let (state, recurring) = self.recurring()?;
        let mut skipped = passed(state, recurring, next)?;
        skipped.push(range(next.nominal, next.nominal, 1, SkipReason::Requested));
        let mut change = self.advanced(state, recurring, next, state.fired, now);
        change.skipped = skipped;
        Ok(change)
    }

    /// The occurrence is opened at once, behind a gate that opens at its time.
    pub(super) fn run_next_at(
        &self,
        next: NextRun,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Change, Refusal> {
        let (state, recurring) = self.recurring()?;
        let skipped = passed(state, recurring, next)?;
        if let Some(after) = recurring.recurrence.next_time_after(next.nominal).filter(|after| at >= *after) {
            return Err(Refusal::BeyondNext(after));
        }
        let overlap = state.overlap;
        if self.open.len() >= overlap.max_open as usize {
            return Err(Refusal::Backlog);
        }
        let number = self.numbered() + 1;
        let at = at.max(now);
        let input = RunInput { moved: true, ..RunInput::default() };
        let mut live = Live {
            available_at: at,
            rank: rank(at, self.job.spec.priority, Duration::ZERO),
            expires_at: self.job.spec.settings.expires_at(at),
            input: Some(Arc::new(input)),
            ..self.occurrence(number, next.nominal, Origin::Schedule, now)
        };
        if !self.open.is_empty() && overlap.policy != OverlapPolicy::Allow {
            live = gated(live);
        }
        let is_paused = self.status() == JobStatus::Paused;
        for (gate, is_closed) in [(Gate::Time, at > now), (Gate::Paused, is_paused)] {
            if is_closed && let Ok(closed) = live.gate_closed(gate) {
                live = closed;
            }
        }
        let mut change = self.advanced(state, recurring, next, state.fired + 1, now);
        change.skipped = skipped;
        self.add(&mut change, live);
        match &mut change.schedule {
            ScheduleChange::Put(state) => state.numbered = number,
            _ => change.job = change.job.map(|job| Job { numbered: Some(number), ..job }),
        }
        Ok(change)
    }

    pub(super) fn backfilled(&self, backfill: Backfill, now: Timestamp) -> Result<Change, Refusal> {
        let (state, recurring) = self.recurring()?;
        if state.replay.is_some() {
            return Err(Refusal::ReplayUnderWay);
        }
        let (first, until) = state.backfill_range(backfill).ok_or(Refusal::NothingToBackfill)?;
        let terms = BackfillTerms { until, per_minute: backfill.per_minute };
        let replay =
            Replay { next: first, until, due_at: now, later: vec![], waits: false, backfill: Some(terms) };
        let due_at = recurring.fires_at(self.job.id, state.nominal, Some(&replay));
        let due_at = due_at.filter(|_| self.status() != JobStatus::Paused);
        let version = state.version + 1;
        let state = ScheduleState { version, due_at, replay: Some(replay), ..state.clone() };
        Ok(Change { schedule: Some(state).into(), ..Change::default() })
    }

    /// The state of a schedule that repeats.
    fn recurring(&self) -> Result<(&ScheduleState, &Recurring), Refusal> {
        self.refuse_cancelled()?;
        let state = self.schedule.as_ref().ok_or(Refusal::NothingNext)?;
        match &state.schedule {
            Schedule::Recurring(recurring) => Ok((state, recurring)),
            Schedule::Immediate | Schedule::OneTime { .. } => Err(Refusal::NothingNext),
        }
    }

    /// The schedule after the next occurrence, which has used this many runs.
    fn advanced(
        &self,
        state: &ScheduleState,
        recurring: &Recurring,
        next: NextRun,
        fired: u32,
        now: Timestamp,
    ) -> Change {
        let nominal = recurring.recurrence.next_time_after(next.nominal);
        let is_spent = recurring.max_runs.is_some_and(|max| fired >= max);
        let due_at = recurring.fires_at(self.job.id, nominal, state.replay.as_ref());
        let version = state.version + 1;
        if due_at.is_none() || is_spent {
            let over = ScheduleState { fired, nominal, ..state.clone() };
            let job = Job { updated_at: self.changed_at(now), ..spent(self.job.clone(), &over) };
            return Change { job: Some(job), schedule: ScheduleChange::Remove, ..Change::default() };
        }
        let due_at = due_at.filter(|_| self.status() != JobStatus::Paused);
        let state = ScheduleState { version, nominal, due_at, fired, ..state.clone() };
        Change { schedule: Some(state).into(), ..Change::default() }
    }
}

impl ScheduleState {
    /// The first and last occurrences of a backfill: those that the schedule has accounted for, up to the limit.
    pub fn backfill_range(&self, backfill: Backfill) -> Option<(Timestamp, Timestamp)> {
        let Schedule::Recurring(recurring) = &self.schedule else { return None };
        let recurrence = &recurring.recurrence;
        let before = backfill.from.shifted(-1);
        let first = recurrence.next_time_after(before)?;
        let last = self.last_accounted()?.min(recurrence.last_time_at_or_before(backfill.to)?);
        let limit = u64::from(backfill.limit.clamp(1, limits::BACKFILL_MAX));
        let last = recurrence.nth_time_after(before, limit - 1).map_or(last, |nth| nth.min(last));
        (first <= last).then_some((first, last))
    }
}

/// The occurrences before the next one, which calendars exclude.
fn passed(state: &ScheduleState, recurring: &Recurring, next: NextRun) -> Result<Vec<SkipRange>, Refusal> {
    let first = state.nominal.ok_or(Refusal::NothingNext)?;
    let recurrence = &recurring.recurrence;
    if next.nominal == first {
        return Ok(vec![]);
    }
    if next.nominal < first || recurrence.last_time_at_or_before(next.nominal) != Some(next.nominal) {
        return Err(Refusal::NotNext);
    }
    let last = recurrence.last_time_at_or_before(next.nominal.shifted(-1)).ok_or(Refusal::NotNext)?;
    let count = recurrence.count_between(first.shifted(-1), last).max(1);
    Ok(vec![range(first, last, count, SkipReason::Calendar)])
}

fn range(first: Timestamp, last: Timestamp, count: u64, reason: SkipReason) -> SkipRange {
    SkipRange { first, last, count, reason }
}
