//! The store of the small model: rows in vectors, and verbs that compare, ask core and write. Every verb is
//! one step of the search, as every verb of a real store is one transaction.

use punctual_core::defects::{self, Defect};
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Job, JobSpec, Settings, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{
    Cancelled, Finished, GivenBack, Live, LiveState, Next, ReportedEnd, Settled, Terms,
};
use punctual_core::ports::LeaseRef;
use punctual_core::rank::Shares;
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{Beginning, OverlapPolicy, Present, Recurring, Schedule, ScheduleState, begin};
use punctual_core::time::Timestamp;
use std::hash::{Hash, Hasher};

pub const ONE_SHOT: JobId = JobId::from_bytes([1; 16]);
pub const RECURRING: JobId = JobId::from_bytes([2; 16]);

const JOB_VERSION: u32 = 1;
const SUBMITTED: Timestamp = Timestamp::from_micros(0);
const FIRST: Timestamp = Timestamp::from_micros(10_000_000);
/// The time of everything after the fires. Rules compare times only where a fire or a gate is due, and by now
/// all are.
const NOW: Timestamp = Timestamp::from_micros(30_000_000);

/// A deliberately broken rule, in core or in this store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    FireWithoutVersion,
    AnyEpoch,
    LoseWithoutComparing,
    OpenGateTwice,
    LoseRetry,
    AnyTurn,
    GiveBackForgetsCancel,
    RecoverFromAnyone,
    LossIsFree,
}

impl Broken {
    /// Breaks or restores the rules of core on this thread. The search runs on its own threads, so every step
    /// sets it again.
    pub fn plant(broken: Option<Broken>) {
        defects::plant(match broken {
            Some(Broken::AnyEpoch) => Some(Defect::DropEpoch),
            Some(Broken::OpenGateTwice) => Some(Defect::OpenGateTwice),
            Some(Broken::LoseRetry) => Some(Defect::LoseRetry),
            _ => None,
        });
    }
}

pub fn settings(job: JobId) -> Settings {
    let retry = RetryPolicy::Ladder { steps_ms: vec![0] };
    if job == ONE_SHOT {
        return Settings {
            schedule: Schedule::OneTime { at: FIRST },
            max_retries: 1,
            retry,
            ..Settings::default()
        };
    }
    let every = Recurring::new(RecurrenceSpec::interval("10s", FIRST)).expect("it is valid");
    let schedule = Recurring { max_runs: Some(2), ..every }.into();
    Settings { schedule, overlap: OverlapPolicy::Allow, max_retries: 0, retry, ..Settings::default() }
}

fn submitted(id: JobId) -> ScheduleState {
    let spec = JobSpec { settings: settings(id), ..JobSpec::named("") };
    let (version, mark, numbered) = (JOB_VERSION, StoredStatus::Active, None);
    let job =
        Job { id, version, mark, numbered, fired: 0, created_at: SUBMITTED, updated_at: SUBMITTED, spec };
    match begin(&job, SUBMITTED, false, &mut Shares::default()) {
        Beginning::Later(schedule) => schedule,
        other => panic!("due before its time: {other:?}"),
    }
}

/// A schedule's row, or a scheduler's copy of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRow(pub ScheduleState);

impl Hash for ScheduleRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.job, self.0.version).hash(state);
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct LiveRow(pub Live);

impl Hash for LiveRow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let live = &self.0;
        let lease = match live.state {
            LiveState::Running(lease) => Some((lease.session, lease.cancel_requested)),
            _ => None,
        };
        (live.id, live.attempt, live.charged, live.epoch, live.rank).hash(state);
        (live.state(), lease).hash(state);
    }
}

/// The columns of a history row that the checks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Past {
    pub execution: ExecutionId,
    pub status: Status,
    pub has_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    pub is_open: bool,
    pub beat: u8,
    /// The last poll sequence number used.
    pub turn: u8,
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub struct Store {
    pub schedules: Vec<ScheduleRow>,
    pub live: Vec<LiveRow>,
    /// Sorted: the order of insertion does not matter to any rule.
    pub history: Vec<Past>,
    pub dead_letters: Vec<OccurrenceId>,
    /// A session's id is its index here.
    pub sessions: Vec<Session>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Claimed {
    Lease(LeaseRef),
    Nothing,
    StaleTurn,
    SessionLost,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Resynced {
    Done,
    StaleTurn,
    SessionLost,
}

impl Store {
    pub fn new(jobs: &[JobId], sessions: usize) -> Self {
        Store {
            schedules: jobs.iter().map(|job| ScheduleRow(submitted(*job))).collect(),
            live: vec![],
            history: vec![],
            dead_letters: vec![],
            sessions: vec![Session { is_open: true, beat: 0, turn: 0 }; sessions],
        }
    }

    /// Fires when the schedule that was read is due and returns the new occurrences.
    pub fn fire(&mut self, reading: &ScheduleState, broken: Option<Broken>) -> Vec<OccurrenceId> {
        let row = self.schedules.iter().position(|row| row.0.job == reading.job);
        let current = row.map(|row| self.schedules[row].0.clone());
        let now = reading.due_at.expect("nobody pauses a job");
        let from = match current {
            _ if broken == Some(Broken::FireWithoutVersion) => reading.clone(),
            Some(current) if current.version == reading.version && current.due_at <= Some(now) => current,
            _ => return vec![],
        };
        let open = self.live.iter().filter(|row| row.0.id.job == reading.job).count();
        let present = Present { open, ..Present::default() };
        let plan = from.plan(now, present, &mut Shares::default());
        let fired = plan.fired.iter().map(|live| live.id).collect();
        self.schedules.retain(|row| row.0.job != reading.job);
        self.schedules.extend(plan.next.map(ScheduleRow));
        self.schedules.sort_by_key(|row| row.0.job);
        self.live.extend(plan.fired.into_iter().map(LiveRow));
        self.live.sort_by_key(|row| row.0.id);
        fired
    }

    pub fn open_time_gate(&mut self, execution: ExecutionId) {
        let Some(row) = self.find(execution.occurrence) else { return };
        let live = &self.live[row].0;
        if live.attempt == execution.attempt
            && live.available_at <= NOW
            && let Ok(opened) = live.gate_opened(Gate::Time, NOW)
        {
            self.live[row] = LiveRow(opened);
        }
    }

    pub fn claim(&mut self, session: SessionId, turn: u8, broken: Option<Broken>) -> Claimed {
        let asking = &mut self.sessions[session.0 as usize];
        if !asking.is_open {
            return Claimed::SessionLost;
        }
        if turn <= asking.turn && broken != Some(Broken::AnyTurn) {
            return Claimed::StaleTurn;
        }
        let queued = self.live.iter_mut().filter(|row| row.0.state == LiveState::Queued);
        let Some(row) = queued.min_by_key(|row| (row.0.rank, row.0.id)) else { return Claimed::Nothing };
        row.0 = row.0.claimed(session, JOB_VERSION, NOW).expect("a queued row is claimable");
        asking.turn = turn;
        Claimed::Lease(LeaseRef { execution: row.0.execution(), epoch: row.0.epoch })
    }

    pub fn report(&mut self, session: SessionId, lease: LeaseRef, ending: Ending) {
        let Some(row) = self.find_held(session, lease) else { return };
        let end = ReportedEnd {
            ending,
            retryable: true,
            next_at: None,
            started_at: Some(NOW),
            completed_at: NOW,
            error: None,
            result: None,
        };
        self.settle(row, end);
    }

    pub fn give_back(&mut self, session: SessionId, lease: LeaseRef, broken: Option<Broken>) {
        if let Some(row) = self.find_held(session, lease) {
            self.give_back_row(row, broken);
        }
    }

    pub fn resync(
        &mut self,
        session: SessionId,
        turn: u8,
        held: &[LeaseRef],
        broken: Option<Broken>,
    ) -> Resynced {
        let asking = &mut self.sessions[session.0 as usize];
        if !asking.is_open {
            return Resynced::SessionLost;
        }
        if turn <= asking.turn && broken != Some(Broken::AnyTurn) {
            return Resynced::StaleTurn;
        }
        asking.turn = turn;
        // In reverse, because a row may be removed.
        for row in (0..self.live.len()).rev() {
            let live = &self.live[row].0;
            let lease = LeaseRef { execution: live.execution(), epoch: live.epoch };
            let is_holder = matches!(live.state, LiveState::Running(lease) if lease.session == session);
            if is_holder && !held.contains(&lease) {
                self.give_back_row(row, broken);
            }
        }
        Resynced::Done
    }

    /// Returns whether the heartbeat counts: that of a lost session does not.
    pub fn beat(&mut self, session: SessionId) -> bool {
        let beating = &mut self.sessions[session.0 as usize];
        beating.beat += u8::from(beating.is_open);
        beating.is_open
    }

    /// Marks the session lost if its counter has not changed since it was read; returns whether it did.
    pub fn lose(&mut self, session: SessionId, seen: u8, broken: Option<Broken>) -> bool {
        let silent = &mut self.sessions[session.0 as usize];
        let is_lost = silent.beat == seen || broken == Some(Broken::LoseWithoutComparing);
        silent.is_open &= !is_lost;
        is_lost
    }

    pub fn recover(&mut self, occurrence: OccurrenceId, broken: Option<Broken>) {
        let Some(row) = self.find(occurrence) else { return };
        let LiveState::Running(lease) = self.live[row].0.state else { return };
        if !self.sessions[lease.session.0 as usize].is_open || broken == Some(Broken::RecoverFromAnyone) {
            let charged = self.live[row].0.charged;
            self.settle(row, ReportedEnd::lost(lease.claimed_at, NOW));
            if broken == Some(Broken::LossIsFree)
                && let Some(row) = self.find(occurrence)
            {
                self.live[row].0.charged = charged;
            }
        }
    }

    /// Returns whether the cancel was accepted.
    pub fn cancel(&mut self, occurrence: OccurrenceId) -> bool {
        let Some(row) = self.find(occurrence) else { return false };
        match self.live[row].0.cancelled(None, NOW) {
            Ok(Cancelled::Requested(live)) => self.live[row] = LiveRow(live),
            Ok(Cancelled::Closed(settled)) => self.close(row, settled.finished),
            Err(_) => return false,
        }
        true
    }

    pub fn find(&self, occurrence: OccurrenceId) -> Option<usize> {
        self.live.iter().position(|row| row.0.id == occurrence)
    }

    fn find_held(&self, session: SessionId, lease: LeaseRef) -> Option<usize> {
        let row = self.find(lease.execution.occurrence)?;
        self.live[row].0.held_by(session, lease.execution, lease.epoch).map(|_| row)
    }

    fn settle(&mut self, row: usize, end: ReportedEnd) {
        let live = &self.live[row].0;
        let occurrence = live.id;
        let settled = live.settled(
            end,
            Some(Terms { settings: &settings(occurrence.job), mark: StoredStatus::Active }),
            NOW,
        );
        let Settled { finished, next } = settled.expect("a held row is running");
        match next {
            Next::Retry(next) => {
                self.record(finished);
                self.live[row] = LiveRow(next);
            }
            Next::Closed { dead_letter, .. } => {
                self.close(row, finished);
                self.dead_letters.extend(dead_letter.then_some(occurrence));
                self.dead_letters.sort();
            }
        }
    }

    fn give_back_row(&mut self, row: usize, broken: Option<Broken>) {
        let live = &self.live[row].0;
        match live.given_back(None, NOW).expect("a held row is running") {
            GivenBack::Queued(live) => self.live[row] = LiveRow(live),
            GivenBack::Closed(_) if broken == Some(Broken::GiveBackForgetsCancel) => {
                self.live[row].0.state = LiveState::Queued;
            }
            GivenBack::Closed(settled) => self.close(row, settled.finished),
        }
    }

    fn close(&mut self, row: usize, finished: Finished) {
        self.live.remove(row);
        self.record(finished);
    }

    fn record(&mut self, finished: Finished) {
        let Finished { id: execution, status, session, .. } = finished;
        self.history.push(Past { execution, status, has_run: session.is_some() });
        self.history.sort();
    }
}
