//! The replay: missed occurrences that still run, one after the other, next to the regular ones.
//!
//! Only `misfire_limit`, `max_lateness`, `replay_rate` and `max_runs` bound a replay. A replay without room
//! for its next occurrence waits; the end of an occurrence of the job wakes it in the same transaction. There
//! is room:
//!
//! - under every policy, if no occurrence of the job is open;
//! - under `ALLOW`, if fewer than `max_open - 1` are open: one place stays free for a regular occurrence;
//! - under `QUEUE`, if also fewer than `overlap_limit - 1` wait.
//!
//! A regular occurrence is skipped only if it would be skipped without the replayed ones. If it may not run
//! in parallel with them (`SKIP`, `QUEUE`, `REPLACE`), it waits behind the overlap gate and starts before any
//! further replayed one. `REPLACE` cancels regular occurrences only, so that every missed one runs.

use super::{Overlap, OverlapPolicy, Present, Schedule, ScheduleState, SkipRange, SkipReason};
use crate::gates::Gate;
use crate::limits;
use crate::recurrence::Recurrence;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Missed occurrences that still have to run: determined when they were found, then run one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The next nominal time to run.
    pub next: Timestamp,
    /// The last one.
    pub until: Timestamp,
    /// When `next` runs; while it waits for room, when to retry.
    pub due_at: Timestamp,
    /// Ranges that were missed later, with occurrences in between that were not: first and last nominal
    /// times.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later: Vec<(Timestamp, Timestamp)>,
    /// `next` is due and waits for room.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// A user has asked to run the occurrences up to a time again. Those after it were missed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backfill: Option<BackfillTerms>,
}

/// What a user has asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackfillTerms {
    /// The last nominal time to fill in.
    pub until: Timestamp,
    /// How many are opened in a minute; as many as there is room for if not set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
}

impl Replay {
    /// Whether the next occurrence is filled in because a user asked for it.
    pub fn is_backfill(&self) -> bool {
        self.backfill.is_some_and(|backfill| self.next <= backfill.until)
    }

    /// The time between two occurrences, where missed ones have this rate.
    pub(super) fn spacing_us(&self, missed_per_minute: Option<u32>) -> i64 {
        let backfill = self.backfill.filter(|_| self.is_backfill());
        let per_minute = backfill.map_or(missed_per_minute, |backfill| backfill.per_minute);
        per_minute.map_or(0, |rate| 60_000_000 / i64::from(rate))
    }

    /// The replay after its next occurrence is processed; `None` if that was the last.
    pub(super) fn stepped(mut self, recurrence: &Recurrence, spacing_us: i64) -> Option<Replay> {
        self.due_at = self.due_at.shifted(spacing_us);
        match recurrence.next_time_after(self.next).filter(|next| *next <= self.until) {
            Some(next) => self.next = next,
            None if self.later.is_empty() => return None,
            None => (self.next, self.until) = self.later.remove(0),
        }
        let due_at = self.due_at;
        Some(self.due(due_at))
    }

    /// The replay with its next occurrence due at this time, or at its nominal time if that is later: a clock
    /// that was set back has not reached what was missed before.
    pub(super) fn due(self, at: Timestamp) -> Replay {
        Replay { due_at: at.max(self.next), ..self }
    }

    /// The first and last nominal times of each range that is still to run.
    fn ranges(&self) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        std::iter::once((self.next, self.until)).chain(self.later.iter().copied())
    }

    /// The last nominal time of the whole replay.
    fn last(&self) -> Timestamp {
        self.later.last().map_or(self.until, |(_, last)| *last)
    }

    /// Whether the occurrence at this nominal time directly follows the last one of the replay.
    pub(super) fn is_continued_by(&self, first: Timestamp, recurrence: &Recurrence) -> bool {
        recurrence.next_time_after(self.last()) == Some(first)
    }

    /// Whether nothing that was missed follows the occurrences of a backfill.
    fn ends_with_backfill(&self) -> bool {
        self.backfill.is_some_and(|backfill| self.last() <= backfill.until)
    }

    /// The replay after it found no room at `now`.
    pub(super) fn waiting(self, now: Timestamp) -> Replay {
        Replay { waits: true, due_at: now.plus(limits::REPLAY_RECHECK), ..self }
    }

    /// The replay after a pause.
    pub(super) fn resumed(self, now: Timestamp) -> Replay {
        let due_at = if self.waits { now } else { self.due_at.max(now) };
        self.due(due_at)
    }
}

/// The replay with newly missed occurrences appended.
pub(super) fn with_missed(
    replay: Option<Replay>,
    first: Option<Timestamp>,
    last: Timestamp,
    now: Timestamp,
    recurrence: &Recurrence,
) -> Option<Replay> {
    match (replay, first) {
        (replay, None) => replay,
        (Some(mut replay), Some(first))
            if replay.is_continued_by(first, recurrence) && !replay.ends_with_backfill() =>
        {
            *replay.later.last_mut().map_or(&mut replay.until, |(_, last)| last) = last;
            Some(replay)
        }
        (None, Some(next)) => {
            Some(Replay { next, until: last, due_at: now, later: vec![], waits: false, backfill: None })
        }
        (Some(mut replay), Some(first)) => {
            replay.later.push((first, last));
            Some(replay)
        }
    }
}

/// Where a replayed occurrence may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayRoom {
    Beside,
    Behind(Gate),
    None,
}

/// The room for a replayed occurrence, given the open ones.
pub(super) fn room(overlap: Overlap, present: &Present) -> ReplayRoom {
    let max_open = (overlap.max_open as usize).saturating_sub(1).max(1);
    let limit = (overlap.limit as usize).saturating_sub(1);
    match overlap.policy {
        OverlapPolicy::Allow if present.open < max_open => ReplayRoom::Beside,
        _ if present.open == 0 => ReplayRoom::Beside,
        OverlapPolicy::Queue if present.behind < limit && present.open < max_open => {
            ReplayRoom::Behind(Gate::Overlap)
        }
        _ => ReplayRoom::None,
    }
}

impl ScheduleState {
    /// Whether a replay waits for room and is not due by `now`. A paused schedule retries when it is resumed.
    pub fn sleeps(&self, now: Timestamp) -> bool {
        self.is_replay_waiting() && self.due_at.is_some_and(|due_at| due_at > now)
    }

    /// The state after an occurrence of the job has ended and left `left` open: a waiting replay is retried
    /// at once if there is room for it.
    pub fn woken(&self, now: Timestamp, left: &Present) -> Option<ScheduleState> {
        let is_woken = self.sleeps(now) && room(self.overlap, left) != ReplayRoom::None;
        is_woken.then(|| self.tried(now)).filter(|woken| woken.due_at != self.due_at)
    }

    /// The state with the replay due at `now`, whether or not there is room for it, but not before its
    /// nominal time.
    pub(crate) fn tried(&self, now: Timestamp) -> ScheduleState {
        let replay = self.replay.clone().map(|replay| replay.due(now));
        let due_at = replay.as_ref().map_or(now, |replay| replay.due_at);
        ScheduleState { version: self.version + 1, due_at: Some(due_at), replay, ..self.clone() }
    }

    /// Whether a replay waits for room.
    pub fn is_replay_waiting(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| replay.waits)
    }

    /// Whether the next run is that of a missed occurrence.
    pub fn is_replay_next(&self) -> bool {
        self.replay.as_ref().is_some_and(|replay| !replay.waits && self.due_at == Some(replay.due_at))
    }

    /// How many missed occurrences are still to run.
    pub fn replays_left(&self) -> u64 {
        self.left_to_replay().iter().map(|range| range.count).sum()
    }

    /// The missed occurrences that are still to run, as skipped ones. Those of a backfill were accounted for before.
    pub(crate) fn unreplayed(&self) -> Vec<SkipRange> {
        let backfill = self.replay.as_ref().and_then(|replay| replay.backfill);
        let is_missed = |range: &SkipRange| backfill.is_none_or(|backfill| range.first > backfill.until);
        self.left_to_replay().into_iter().filter(is_missed).collect()
    }

    fn left_to_replay(&self) -> Vec<SkipRange> {
        let (Some(replay), Schedule::Recurring(recurring)) = (&self.replay, &self.schedule) else {
            return vec![];
        };
        // The time zone data may have changed since: the first time of a range counts in any case.
        let count =
            |first: Timestamp, last| recurring.recurrence.count_between(first.shifted(-1), last).max(1);
        let reason = SkipReason::Misfire;
        let skipped = |(first, last)| SkipRange { first, last, count: count(first, last), reason };
        replay.ranges().map(skipped).collect()
    }

    /// When the next occurrence runs as far as the schedule decides: a replay that waits for room has no
    /// time. `None` while the job is paused.
    pub fn runs_at(&self) -> Option<Timestamp> {
        match (&self.schedule, self.nominal) {
            (Schedule::Recurring(recurring), nominal) if self.is_replay_waiting() => {
                self.due_at?;
                nominal.map(|nominal| recurring.due_at(self.job, nominal))
            }
            _ => self.due_at,
        }
    }
}
