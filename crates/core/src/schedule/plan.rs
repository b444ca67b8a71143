//! The plan of one fire: which occurrences open, which are skipped and why, and the schedule's state
//! afterwards.
//!
//! Two cursors advance over the nominal times. The regular cursor is at the next occurrence. At each fire,
//! the occurrences that are late by more than the grace are *missed* and follow the schedule's policy at
//! once: they are skipped as one range, by counting and never by stepping, or passed to the second cursor,
//! the replay. Under `RUN_ALL` the replay also gets the occurrences within the grace, except the latest. The
//! regular cursor goes first, so that occurrences stay on time while older ones are replayed. The rules of the
//! replay are in `replay`.

use super::replay::{ReplayRoom, room, with_missed};
use super::{
    MisfirePolicy, OverlapPolicy, Recurring, Replay, Schedule, ScheduleState, SkipRange, SkipReason, behind,
};
use crate::calendar::{NamedCalendars, excluded_by};
use crate::defects::{Defect, planted};
use crate::gates::Gate;
use crate::limits;
use crate::occurrence::{Cancelled, Live, OccurrenceFlags, Origin};
use crate::rank::Shares;
use crate::recurrence::Recurrence;
use crate::time::Timestamp;

/// What one fire of a schedule does, all of it in one commit.
#[derive(Debug, Clone, PartialEq)]
pub struct FirePlan {
    pub fired: Vec<Live>,
    pub skipped: Vec<SkipRange>,
    /// Open occurrences that a fired one replaces.
    pub replaced: Vec<Cancelled>,
    /// The last assigned occurrence number.
    pub numbered: u32,
    /// Runs of a recurring schedule so far, including those of this plan.
    pub runs: u32,
    /// The state afterwards; `None` when the schedule is exhausted.
    pub next: Option<ScheduleState>,
}

/// The state of the job at the moment of a fire.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Present {
    /// Open occurrences.
    pub open: usize,
    /// Those of them that wait for others.
    pub behind: usize,
    /// Open occurrences that a replay opened.
    pub replayed: usize,
    /// Those of them that wait for others.
    pub replayed_behind: usize,
    /// The open occurrences themselves, if the policy replaces them; without those that a replay opened.
    pub replaceable: Vec<Live>,
    /// Whether a job that this one depends on is unfinished.
    pub waits_for_parents: bool,
    /// The calendars of the schedule.
    pub calendars: NamedCalendars,
}

impl ScheduleState {
    /// The plan for a schedule found due at `now`.
    pub fn plan(&self, now: Timestamp, present: Present, shares: &mut Shares) -> FirePlan {
        debug_assert!(
            self.due_at.is_some_and(|due_at| due_at <= now),
            "fired at {now}, due at {:?}",
            self.due_at
        );
        match &self.schedule {
            Schedule::Immediate | Schedule::OneTime { .. } => self.plan_once(now, present, shares),
            Schedule::Recurring(recurring) => Planning {
                state: self,
                recurring,
                now,
                present,
                shares,
                has_replay: false,
                rounds: 0,
                fired: vec![],
                skipped: vec![],
                replaced: vec![],
            }
            .finish(),
        }
    }

    /// The plan for a schedule found due at `now` while the cluster skips recurring occurrences. `None` if there is
    /// nothing to skip: one-time jobs and replays go on, and wait in their queues.
    pub fn plan_skipped(&self, now: Timestamp) -> Option<FirePlan> {
        let (next, skipped) = self.released(now);
        let skipped = vec![skipped?];
        let (fired, replaced) = (vec![], vec![]);
        Some(FirePlan { fired, skipped, replaced, numbered: self.numbered, runs: self.fired, next })
    }

    /// One-time jobs are never missed and never skipped: they run late, after occurrences that were triggered
    /// before.
    fn plan_once(&self, now: Timestamp, present: Present, shares: &mut Shares) -> FirePlan {
        let numbered = self.numbered + 1;
        let mut live = self.occurrence(numbered, self.nominal.unwrap_or(now), now, shares);
        let (is_gated, replaced) = match self.overlap.policy {
            OverlapPolicy::Allow => (false, vec![]),
            OverlapPolicy::Skip | OverlapPolicy::Queue => (present.open > 0, vec![]),
            OverlapPolicy::Replace => {
                let (is_gated, replaced) = replaced(&present.replaceable, now);
                (is_gated || present.replayed > 0, replaced)
            }
        };
        let gates = [(Gate::Dependency, present.waits_for_parents), (Gate::Overlap, is_gated)];
        for (gate, _) in gates.into_iter().filter(|(_, is_closed)| *is_closed) {
            live = live.gate_closed(gate).expect("nothing that was just fired has started");
        }
        // Another waiting occurrence may run after it.
        live.flags.followed |= is_gated || present.behind > 0;
        FirePlan { fired: vec![live], skipped: vec![], replaced, numbered, runs: self.fired, next: None }
    }

    /// The next occurrence as if it had been fired.
    pub fn unfired(&self, now: Timestamp) -> Live {
        let nominal = self.nominal.unwrap_or(now);
        self.occurrence(self.numbered + 1, nominal, now, &mut Shares::default())
    }

    /// This schedule as seen by a scheduler that missed its last fire: used for a fire under
    /// [`crate::defects::Defect::DropVersionCheck`].
    pub fn remembered(&self) -> ScheduleState {
        let earlier = match self.nominal {
            Some(nominal) if self.fired > 0 => self.schedule.before(nominal).or(self.nominal),
            _ => self.nominal,
        };
        ScheduleState { nominal: earlier, due_at: earlier.or(self.due_at), ..self.clone() }
    }

    fn occurrence(&self, number: u32, nominal: Timestamp, now: Timestamp, shares: &mut Shares) -> Live {
        let lag = shares.lag(&self.queue, &self.owner, now);
        let id = self.job.occurrence(number);
        let live = Live::fired(id, nominal, Origin::Schedule, self.job_version, self.priority, now, lag);
        Live {
            expires_at: self.expiry.map(|expiry| expiry.of(nominal)),
            flags: OccurrenceFlags { awaited: self.awaited, ..self.overlap.flags() },
            ..live
        }
    }
}

/// A plan of a recurring schedule under construction.
struct Planning<'a> {
    state: &'a ScheduleState,
    recurring: &'a Recurring,
    now: Timestamp,
    /// The state of the job, including the occurrences that this plan has opened.
    present: Present,
    shares: &'a mut Shares,
    /// Missed occurrences are still to run, or were when this plan started.
    has_replay: bool,
    /// Nominal times that were processed one by one.
    rounds: usize,
    fired: Vec<Live>,
    skipped: Vec<SkipRange>,
    replaced: Vec<Cancelled>,
}

impl Planning<'_> {
    fn finish(mut self) -> FirePlan {
        let (regular, replay) = self.settle_missed();
        let (regular, replay) = self.replay_all_but_latest(regular, replay);
        self.has_replay = replay.is_some();
        let regular = self.fire_regular(regular);
        let replay = self.fire_replay(replay);
        let next = (!self.is_spent()).then(|| self.next(regular, replay)).flatten();
        let (numbered, runs) = (self.numbered(), self.fired_in_all());
        FirePlan { fired: self.fired, skipped: self.skipped, replaced: self.replaced, numbered, runs, next }
    }

    /// Decides about all missed occurrences, and returns the positions of both cursors.
    fn settle_missed(&mut self) -> (Option<Timestamp>, Option<Replay>) {
        let (regular, replay) = (self.state.nominal, self.state.replay.clone());
        let grace_ms = self.recurring.misfire.grace_ms.saturating_add(self.recurring.jitter_ms);
        let oldest = self.now.shifted(-micros(grace_ms));
        let Some(first) = regular.filter(|first| *first < oldest) else { return (regular, replay) };
        let recurring = self.recurring;
        let recurrence = &recurring.recurrence;
        let missed = Missed::from(recurrence, first, oldest);
        let regular = recurrence.next_time_after(missed.last);
        let kept = self.kept(first, &missed, regular);
        let first_kept = match kept {
            0 => None,
            _ => recurrence.nth_time_after(first.shifted(-1), missed.count - kept),
        };
        let first_kept = first_kept.filter(|first| has_room(replay.as_ref(), *first, recurrence));
        let last_skipped = match first_kept {
            None => Some(missed.last),
            Some(kept) => self.state.schedule.before(kept).filter(|last| *last >= first),
        };
        if let Some(last) = last_skipped {
            let count = if first_kept.is_none() { missed.count } else { missed.count - kept };
            self.skipped.push(SkipRange { first, last, count, reason: SkipReason::Misfire });
        }
        (regular, with_missed(replay, first_kept, missed.last, self.now, recurrence))
    }

    /// Under `RUN_ALL`, occurrences within the grace are replayed too, unless they are the latest one that is
    /// due: as regular ones, the overlap policy would skip them.
    fn replay_all_but_latest(
        &self,
        regular: Option<Timestamp>,
        replay: Option<Replay>,
    ) -> (Option<Timestamp>, Option<Replay>) {
        let recurrence = &self.recurring.recurrence;
        let due_for_sure = self.now.shifted(-micros(self.recurring.jitter_ms));
        let later = |first: Timestamp| {
            let latest = recurrence.last_time_at_or_before(due_for_sure)?;
            let last = self.state.schedule.before(latest)?;
            (last >= first && has_room(replay.as_ref(), first, recurrence)).then_some((first, last, latest))
        };
        let is_run_all = self.recurring.misfire.policy == MisfirePolicy::RunAll;
        match regular.filter(|_| is_run_all).and_then(later) {
            None => (regular, replay),
            Some((first, last, latest)) => {
                (Some(latest), with_missed(replay, Some(first), last, self.now, recurrence))
            }
        }
    }

    /// How many of the missed occurrences still run, counted from the latest.
    fn kept(&self, first: Timestamp, missed: &Missed, regular: Option<Timestamp>) -> u64 {
        let misfire = &self.recurring.misfire;
        match misfire.policy {
            MisfirePolicy::SkipMissed => 0,
            MisfirePolicy::RunOnce if regular.is_none_or(|next| next > self.now) => {
                self.kept_once(first, missed)
            }
            MisfirePolicy::RunOnce => 0,
            MisfirePolicy::RunAll => {
                let recent = misfire.max_lateness_ms.map_or(missed.count, |ms| {
                    let before = self.now.shifted(-micros(ms)).shifted(-1);
                    self.recurring.recurrence.count_between(before, missed.last)
                });
                recent.min(missed.count).min(misfire.limit.map_or(u64::MAX, u64::from))
            }
        }
    }

    /// How many there are from the latest missed one that no calendar excludes; 0 if they exclude all.
    fn kept_once(&self, first: Timestamp, missed: &Missed) -> u64 {
        let (mut latest, mut kept) = (missed.last, 1);
        while self.is_excluded(latest) {
            let before = self.state.schedule.before(latest).filter(|before| *before >= first);
            match before.filter(|_| kept < limits::CALENDAR_STEPS_MAX as u64) {
                Some(before) => (latest, kept) = (before, kept + 1),
                None => return 0,
            }
        }
        kept
    }

    fn is_excluded(&self, nominal: Timestamp) -> bool {
        excluded_by(&self.present.calendars, nominal).is_some()
    }

    fn fire_regular(&mut self, regular: Option<Timestamp>) -> Option<Timestamp> {
        let mut regular = regular;
        while let Some(nominal) = regular
            && self.recurring.due_at(self.state.job, nominal) <= self.now
            && self.has_rounds()
        {
            self.open_or_skip(nominal);
            regular = self.recurring.recurrence.next_time_after(nominal);
        }
        regular
    }

    fn fire_replay(&mut self, replay: Option<Replay>) -> Option<Replay> {
        let mut replay = replay?;
        // A replay that waits for room has already waited for its rate. A replay that was delayed continues
        // at its rate instead of catching up on the delay, too.
        let due_at = match std::mem::take(&mut replay.waits) {
            true => self.now,
            false => replay.due_at.max(self.now.minus(limits::REPLAY_CATCH_UP)),
        };
        replay = replay.due(due_at);
        while replay.due_at <= self.now && self.has_rounds() {
            let is_backfill = replay.is_backfill();
            let spacing_us = replay.spacing_us(self.recurring.misfire.replay_per_minute);
            if self.is_excluded(replay.next) {
                self.rounds += 1;
                // What is filled in was accounted for when it was due.
                if !is_backfill {
                    self.skip(replay.next, SkipReason::Calendar);
                }
                replay = replay.stepped(&self.recurring.recurrence, 0)?;
                continue;
            }
            let gate = match room(self.state.overlap, &self.present) {
                ReplayRoom::Beside => None,
                ReplayRoom::Behind(gate) => Some(gate),
                ReplayRoom::None if planted(Defect::CutReplay) => {
                    self.rounds += 1;
                    self.skip(replay.next, SkipReason::Backlog);
                    replay = replay.stepped(&self.recurring.recurrence, spacing_us)?;
                    continue;
                }
                ReplayRoom::None => return Some(replay.waiting(self.now)),
            };
            self.rounds += 1;
            self.open_replayed(replay.next, gate);
            if is_backfill && let Some(live) = self.fired.last_mut() {
                (live.origin, live.expires_at) = (Origin::Backfill, None);
            }
            replay = replay.stepped(&self.recurring.recurrence, spacing_us)?;
        }
        Some(replay)
    }

    /// Opens a regular occurrence unless other regular ones prevent it.
    fn open_or_skip(&mut self, nominal: Timestamp) {
        self.rounds += 1;
        if self.is_excluded(nominal) {
            return self.skip(nominal, SkipReason::Calendar);
        }
        let overlap = self.state.overlap;
        let Present { open, behind, replayed, replayed_behind, .. } = self.present;
        let (regular, mut waiting) = match planted(Defect::SkipForReplay) {
            true => (open, behind),
            false => (open - replayed, behind - replayed_behind),
        };
        // Without the replay, the first of them would not wait.
        if regular == waiting && replayed > 0 {
            waiting = waiting.saturating_sub(1);
        }
        match overlap.policy {
            OverlapPolicy::Skip if regular > 0 => self.skip(nominal, SkipReason::Overlap),
            OverlapPolicy::Queue if regular > 0 && waiting >= overlap.limit as usize => {
                self.skip(nominal, SkipReason::Overlap);
            }
            OverlapPolicy::Replace => self.replace(nominal),
            _ if regular >= overlap.max_open as usize => self.skip(nominal, SkipReason::Backlog),
            OverlapPolicy::Skip | OverlapPolicy::Queue if open > 0 => self.open(nominal, Some(Gate::Overlap)),
            _ => self.open(nominal, None),
        }
    }

    fn open(&mut self, nominal: Timestamp, gate: Option<Gate>) {
        let mut live = self.state.occurrence(self.numbered() + 1, nominal, self.now, self.shares);
        if let Some(gate) = gate {
            live.state = behind(gate);
            self.present.behind += 1;
        }
        // Under an earlier policy, occurrences may be waiting.
        live.flags.followed |= self.present.behind > 0 || self.has_replay;
        self.present.open += 1;
        self.fired.push(live);
    }

    fn open_replayed(&mut self, nominal: Timestamp, gate: Option<Gate>) {
        self.open(nominal, gate);
        if let Some(live) = self.fired.last_mut() {
            live.flags.replayed = true;
        }
        self.present.replayed += 1;
        self.present.replayed_behind += usize::from(gate.is_some());
    }

    /// Replaces all open regular occurrences. An occurrence that this plan has opened before never starts: it
    /// is skipped.
    fn replace(&mut self, nominal: Timestamp) {
        let is_later = |live: &Live| live.origin == Origin::Schedule && live.scheduled_time > nominal;
        if self.fired.iter().chain(&self.present.replaceable).any(is_later) {
            return self.skip(nominal, SkipReason::Overlap);
        }
        let is_gated = match self.fired.pop() {
            Some(given_way) => {
                self.skip(given_way.scheduled_time, SkipReason::Overlap);
                given_way.is_closed_by(Gate::Overlap)
            }
            None => {
                let (is_gated, replaced) = replaced(&self.present.replaceable, self.now);
                self.replaced = replaced;
                is_gated || self.present.replayed > 0
            }
        };
        self.open(nominal, is_gated.then_some(Gate::Overlap));
    }

    fn skip(&mut self, nominal: Timestamp, reason: SkipReason) {
        // The cursors, and the outages of a replay, are not contiguous: only neighbours form a range.
        let before = self.state.schedule.before(nominal);
        match self.skipped.last_mut() {
            Some(last) if last.reason == reason && before == Some(last.last) => {
                last.last = nominal;
                last.count += 1;
            }
            _ => self.skipped.push(SkipRange { first: nominal, last: nominal, count: 1, reason }),
        }
    }

    fn next(&self, regular: Option<Timestamp>, replay: Option<Replay>) -> Option<ScheduleState> {
        let due_at = Some(self.recurring.fires_at(self.state.job, regular, replay.as_ref())?);
        let (version, fired, numbered) = (self.state.version + 1, self.fired_in_all(), self.numbered());
        Some(ScheduleState {
            version,
            nominal: regular,
            due_at,
            replay,
            fired,
            numbered,
            ..self.state.clone()
        })
    }

    fn has_rounds(&self) -> bool {
        self.rounds < limits::FIRES_PER_PLAN_MAX && !self.is_spent()
    }

    /// Whether the job has used all its runs.
    fn is_spent(&self) -> bool {
        self.recurring.max_runs.is_some_and(|max| self.fired_in_all() >= max)
    }

    /// Runs of the schedule: a backfill does not count.
    fn fired_in_all(&self) -> u32 {
        let runs = self.fired.iter().filter(|live| live.origin != Origin::Backfill);
        self.state.fired + runs.count() as u32
    }

    /// The last assigned occurrence number.
    fn numbered(&self) -> u32 {
        self.state.numbered + self.fired.len() as u32
    }
}

/// The occurrences of the regular cursor that are late by more than the grace.
struct Missed {
    last: Timestamp,
    count: u64,
}

impl Missed {
    /// All from `first` on that are before `oldest`. The time zone data may have changed since `first` was
    /// computed, so it counts even if the schedule no longer contains it.
    fn from(recurrence: &Recurrence, first: Timestamp, oldest: Timestamp) -> Self {
        let last =
            recurrence.last_time_at_or_before(oldest.shifted(-1)).map_or(first, |last| last.max(first));
        Missed { last, count: recurrence.count_between(first.shifted(-1), last).max(1) }
    }
}

/// Whether a replay can take occurrences from this one on.
fn has_room(replay: Option<&Replay>, first: Timestamp, recurrence: &Recurrence) -> bool {
    replay.is_none_or(|replay| {
        replay.later.len() < limits::REPLAY_RANGES_MAX || replay.is_continued_by(first, recurrence)
    })
}

/// The changes of open occurrences that are replaced, and whether one of them has to end first.
fn replaced(open: &[Live], now: Timestamp) -> (bool, Vec<Cancelled>) {
    // An occurrence that was already asked to stop is not asked again.
    let replaced = open.iter().filter_map(|live| live.cancelled(None, now).ok()).collect();
    (open.iter().any(Live::is_running), replaced)
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)
}
