//! The model around the store: which action each party may take next, and what must hold after every step.

use crate::store::{
    Broken, Claimed, LiveRow, ONE_SHOT, RECURRING, Resynced, ScheduleRow, Session, Store, settings,
};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::LeaseRef;
use stateright::{Model, Property};

const WORKERS: usize = 2;
/// Heartbeats of a session after its opening.
const BEATS_MAX: u8 = 1;

/// The size of one search. Searching everything at once is infeasible; each search leaves out what the others
/// cover.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub jobs: &'static [JobId],
    /// A scheduler holds at most one schedule that it has read.
    pub schedulers: usize,
    /// Sessions that are ever opened, including the workers' first ones.
    pub sessions: usize,
    /// Leases that a worker requests at once.
    pub slots: usize,
    /// Crashes, lost answers, duplicate messages, give-backs and cancels in one run, all together.
    pub faults: u8,
    /// Whether the observer scans, so that sessions can be lost.
    pub is_observed: bool,
}

/// The model to be searched: with the real rules, or with one of them broken.
pub struct Scope {
    pub bounds: Bounds,
    pub broken: Option<Broken>,
}

#[derive(Debug, Clone, PartialEq, Hash)]
pub struct World {
    pub store: Store,
    /// Schedules that schedulers have read and not yet fired. Which scheduler read one does not matter.
    readings: Vec<ScheduleRow>,
    workers: [Worker; WORKERS],
    /// The session that the observer watches, and the counter that it read.
    seen: Option<(SessionId, u8)>,
    /// A copy of a message that has not arrived yet.
    late: Option<Message>,
    faults_left: u8,
    /// Data for the audit, which no store has: every fire, accepted cancels, and sessions lost while they
    /// sent heartbeats.
    fired: Vec<OccurrenceId>,
    asked_to_stop: Vec<OccurrenceId>,
    lost_though_beating: bool,
}

/// The knowledge of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Worker {
    session: Option<SessionId>,
    /// The last poll sequence number that it knows it has used.
    turn: u8,
    /// An answer was lost, so that it must resync before it polls again.
    is_unsure: bool,
    held: Vec<Held>,
}

/// A lease that a worker believes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Held {
    lease: LeaseRef,
    /// Reported as succeeded or not, without an answer so far.
    reported: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Message {
    Poll { session: SessionId, turn: u8 },
    Resync { session: SessionId, turn: u8, held: Vec<LeaseRef> },
    Report { session: SessionId, lease: LeaseRef, succeeded: bool },
    GiveBack { session: SessionId, lease: LeaseRef },
}

/// What happens to a message besides being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Answered,
    AnswerLost,
    Doubled,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    ReadDue(usize),
    Fire(usize),
    OpenTimeGate(ExecutionId),
    OpenSession(usize),
    Poll(usize, Fate),
    Report(usize, LeaseRef, bool, Fate),
    GiveBack(usize, LeaseRef, Fate),
    Resync(usize, Fate),
    Beat(usize),
    Crash(usize),
    Observe(SessionId),
    Lose,
    Recover(OccurrenceId),
    Cancel(OccurrenceId),
    LateCopyArrives,
}

impl Model for Scope {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let worker = |n: usize| Worker { session: Some(SessionId(n as i64)), ..Worker::default() };
        vec![World {
            store: Store::new(self.bounds.jobs, WORKERS),
            readings: vec![],
            workers: std::array::from_fn(worker),
            seen: None,
            late: None,
            faults_left: self.bounds.faults,
            fired: vec![],
            asked_to_stop: vec![],
            lost_though_beating: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.scheduler_actions(self.bounds, actions);
        for worker in 0..WORKERS {
            world.worker_actions(worker, self.bounds, actions);
        }
        if self.bounds.is_observed {
            world.observer_actions(actions);
        }
        if world.faults_left > 0 {
            actions.extend(world.store.live.iter().map(|row| Action::Cancel(row.0.id)));
        }
        if world.late.is_some() {
            actions.push(Action::LateCopyArrives);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        Broken::plant(self.broken);
        let mut world = last.clone();
        world.act(action, self.broken);
        world.renumber_turns();
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all()
    }
}

impl World {
    fn scheduler_actions(&self, bounds: Bounds, actions: &mut Vec<Action>) {
        if self.readings.len() < bounds.schedulers {
            actions.extend((0..self.store.schedules.len()).map(Action::ReadDue));
        }
        actions.extend((0..self.readings.len()).map(Action::Fire));
        // A party that expects a retry may open its gate, once or repeatedly, at any later time.
        let failed = self.store.history.iter().filter(|past| past.status == Status::Failed);
        let retries = failed.map(|past| past.execution.occurrence.attempt(past.execution.attempt + 1));
        actions.extend(retries.map(Action::OpenTimeGate));
    }

    fn worker_actions(&self, n: usize, bounds: Bounds, actions: &mut Vec<Action>) {
        let worker = &self.workers[n];
        let Some(session) = worker.session else {
            let may_open = self.store.sessions.len() < bounds.sessions;
            actions.extend(may_open.then_some(Action::OpenSession(n)));
            return;
        };
        let fates: &[Fate] = match (self.faults_left, &self.late) {
            (0, _) => &[Fate::Answered],
            (_, Some(_)) => &[Fate::Answered, Fate::AnswerLost],
            (_, None) => &[Fate::Answered, Fate::AnswerLost, Fate::Doubled],
        };
        if worker.is_unsure {
            actions.extend(fates.iter().map(|fate| Action::Resync(n, *fate)));
        } else if worker.held.len() < bounds.slots {
            actions.extend(fates.iter().map(|fate| Action::Poll(n, *fate)));
        }
        for Held { lease, reported } in &worker.held {
            for succeeded in [true, false].into_iter().filter(|told| reported.is_none_or(|was| was == *told))
            {
                actions.extend(fates.iter().map(|fate| Action::Report(n, *lease, succeeded, *fate)));
            }
            if reported.is_none() && self.faults_left > 0 {
                actions.push(Action::GiveBack(n, *lease, Fate::Answered));
                let may_double = self.late.is_none() && self.faults_left > 1;
                actions.extend(may_double.then_some(Action::GiveBack(n, *lease, Fate::Doubled)));
            }
        }
        // A heartbeat before any scan of the observer has no visible effect.
        let row = self.store.sessions[session.0 as usize];
        let matters = !row.is_open || self.seen.is_some_and(|(seen, _)| seen == session);
        if matters && row.beat < BEATS_MAX {
            actions.push(Action::Beat(n));
        }
        if self.faults_left > 0 {
            actions.push(Action::Crash(n));
        }
    }

    fn observer_actions(&self, actions: &mut Vec<Action>) {
        if self.seen.is_some() {
            actions.push(Action::Lose);
        } else {
            // Losing a session that holds nothing has no effect.
            let holders = self.store.live.iter().filter_map(row_lease).map(|(session, _)| session);
            actions.extend(holders.filter(|session| self.is_open(*session)).map(Action::Observe));
        }
        let running = self.store.live.iter().filter(|row| matches!(row.0.state, LiveState::Running(_)));
        actions.extend(running.map(|row| Action::Recover(row.0.id)));
    }

    fn act(&mut self, action: Action, broken: Option<Broken>) {
        match action {
            Action::ReadDue(row) => {
                self.readings.push(self.store.schedules[row].clone());
                self.readings.sort_by_key(|reading| (reading.0.job, reading.0.version));
            }
            Action::Fire(reading) => {
                let reading = self.readings.remove(reading).0;
                self.fired.extend(self.store.fire(&reading, broken));
                self.fired.sort();
            }
            Action::OpenTimeGate(execution) => self.store.open_time_gate(execution),
            Action::OpenSession(n) => self.open_session(n),
            Action::Poll(n, fate) => self.poll(n, fate, broken),
            Action::Report(n, lease, succeeded, fate) => self.report(n, lease, succeeded, fate),
            Action::GiveBack(n, lease, fate) => self.give_back(n, lease, fate, broken),
            Action::Resync(n, fate) => self.resync(n, fate, broken),
            Action::Beat(n) => {
                let session = self.workers[n].session.expect("only a session beats");
                if !self.store.beat(session) {
                    self.workers[n] = Worker::default();
                }
            }
            Action::Crash(n) => {
                self.faults_left -= 1;
                self.workers[n] = Worker::default();
            }
            Action::Observe(session) => {
                self.seen = Some((session, self.store.sessions[session.0 as usize].beat));
            }
            Action::Lose => {
                let (session, seen) = self.seen.take().expect("seen before");
                let has_beaten = self.store.sessions[session.0 as usize].beat != seen;
                let is_lost = self.store.lose(session, seen, broken);
                self.lost_though_beating |= is_lost && has_beaten;
            }
            Action::Recover(occurrence) => self.store.recover(occurrence, broken),
            Action::Cancel(occurrence) => {
                if self.store.cancel(occurrence) {
                    self.faults_left -= 1;
                    self.asked_to_stop.push(occurrence);
                    self.asked_to_stop.sort();
                }
            }
            Action::LateCopyArrives => self.late_copy_arrives(broken),
        }
    }

    fn open_session(&mut self, n: usize) {
        let session = SessionId(self.store.sessions.len() as i64);
        self.store.sessions.push(Session { is_open: true, beat: 0, turn: 0 });
        self.workers[n] = Worker { session: Some(session), ..Worker::default() };
    }

    fn poll(&mut self, n: usize, fate: Fate, broken: Option<Broken>) {
        let session = self.workers[n].session.expect("only a session polls");
        let turn = self.workers[n].turn + 1;
        let claimed = self.store.claim(session, turn, broken);
        self.suffer(fate, Message::Poll { session, turn });
        let worker = &mut self.workers[n];
        match claimed {
            _ if fate == Fate::AnswerLost => (worker.turn, worker.is_unsure) = (turn, true),
            Claimed::Lease(lease) => {
                worker.turn = turn;
                worker.held.push(Held { lease, reported: None });
                worker.held.sort();
            }
            Claimed::Nothing => {}
            Claimed::StaleTurn => (worker.turn, worker.is_unsure) = (turn, true),
            Claimed::SessionLost => *worker = Worker::default(),
        }
    }

    fn report(&mut self, n: usize, lease: LeaseRef, succeeded: bool, fate: Fate) {
        let session = self.workers[n].session.expect("only a session reports");
        self.store.report(session, lease, ending(succeeded));
        self.suffer(fate, Message::Report { session, lease, succeeded });
        let held = &mut self.workers[n].held;
        if fate == Fate::AnswerLost {
            let told = held.iter_mut().find(|held| held.lease == lease).expect("it is held");
            told.reported = Some(succeeded);
        } else {
            held.retain(|held| held.lease != lease);
        }
    }

    fn give_back(&mut self, n: usize, lease: LeaseRef, fate: Fate, broken: Option<Broken>) {
        let session = self.workers[n].session.expect("only a session gives back");
        self.faults_left -= 1;
        self.store.give_back(session, lease, broken);
        self.suffer(fate, Message::GiveBack { session, lease });
        self.workers[n].held.retain(|held| held.lease != lease);
    }

    fn resync(&mut self, n: usize, fate: Fate, broken: Option<Broken>) {
        let worker = &mut self.workers[n];
        let session = worker.session.expect("only a session resyncs");
        worker.turn += 1;
        let (turn, held) = (worker.turn, worker.held.iter().map(|held| held.lease).collect::<Vec<_>>());
        let resynced = self.store.resync(session, turn, &held, broken);
        self.suffer(fate, Message::Resync { session, turn, held });
        match resynced {
            _ if fate == Fate::AnswerLost => {}
            Resynced::Done => self.workers[n].is_unsure = false,
            Resynced::StaleTurn => {}
            Resynced::SessionLost => self.workers[n] = Worker::default(),
        }
    }

    /// Charges a fault to the budget, and keeps the copy of a duplicate message.
    fn suffer(&mut self, fate: Fate, message: Message) {
        if fate != Fate::Answered {
            self.faults_left -= 1;
        }
        if fate == Fate::Doubled {
            self.late = Some(message);
        }
    }

    /// A copy is handled like the message itself, but its sender no longer waits for the answer.
    fn late_copy_arrives(&mut self, broken: Option<Broken>) {
        match self.late.take().expect("there is a late copy") {
            Message::Poll { session, turn } => {
                self.store.claim(session, turn, broken);
            }
            Message::Resync { session, turn, held } => {
                self.store.resync(session, turn, &held, broken);
            }
            Message::Report { session, lease, succeeded } => {
                self.store.report(session, lease, ending(succeeded));
            }
            Message::GiveBack { session, lease } => self.store.give_back(session, lease, broken),
        }
    }

    /// Renumbers poll sequence numbers from the oldest one that still matters, because states that differ
    /// only in how many came before behave the same.
    fn renumber_turns(&mut self) {
        for worker in &mut self.workers {
            let Some(session) = worker.session else { continue };
            let used = &mut self.store.sessions[session.0 as usize].turn;
            let base = worker.turn.min(*used);
            worker.turn -= base;
            *used -= base;
            if let Some(
                Message::Poll { session: sender, turn } | Message::Resync { session: sender, turn, .. },
            ) = &mut self.late
                && *sender == session
            {
                *turn = turn.saturating_sub(base);
            }
        }
    }

    /// Every lease that a worker believes to hold and has not reported on, with its session.
    fn beliefs(&self) -> impl Iterator<Item = (SessionId, LeaseRef)> {
        self.workers.iter().filter_map(|worker| Some((worker.session?, worker))).flat_map(
            |(session, worker)| {
                let unreported = worker.held.iter().filter(|held| held.reported.is_none());
                unreported.map(move |held| (session, held.lease))
            },
        )
    }

    fn is_open(&self, session: SessionId) -> bool {
        self.store.sessions[session.0 as usize].is_open
    }

    fn statuses(&self, occurrence: OccurrenceId) -> impl Iterator<Item = Status> {
        let rows = self.store.history.iter().filter(move |past| past.execution.occurrence == occurrence);
        rows.map(|past| past.status)
    }
}

fn ending(succeeded: bool) -> Ending {
    if succeeded { Ending::Succeeded } else { Ending::Failed }
}

fn row_lease(row: &LiveRow) -> Option<(SessionId, LeaseRef)> {
    let LiveState::Running(lease) = row.0.state else { return None };
    Some((lease.session, LeaseRef { execution: row.0.execution(), epoch: row.0.epoch }))
}

pub mod property {
    use super::*;
    use stateright::Expectation;

    pub const FIRED_ONCE: &str = "an occurrence is fired once";
    pub const ONE_OUTCOME: &str = "an attempt has at most one outcome";
    pub const ONE_LIVE_LEASE: &str = "an occurrence has at most one live lease";
    pub const ONE_BELIEVER: &str = "only the holder believes in a lease of the current epoch";
    pub const HOLDS_WHAT_IT_BELIEVES: &str = "a live session holds what it believes it holds";
    pub const UNKNOWN_LEASES_ARE_REVEALED: &str = "what a session holds unknowingly its next turn reveals";
    pub const WITHIN_BUDGET: &str = "charged attempts stay within the budget";
    pub const CANCELLED_IS_FINAL: &str = "a cancelled occurrence is never retried";
    pub const CANCEL_IS_HONOURED: &str = "an accepted cancel is honoured";
    pub const NOTHING_IS_FORGOTTEN: &str = "what was fired is open or has its final outcome";
    pub const ONLY_SILENT_SESSIONS_ARE_LOST: &str = "only a silent session is lost";

    pub const EVERYTHING_SUCCEEDS: &str = "everything succeeds";
    pub const FAILED_THEN_SUCCEEDED: &str = "a failed attempt is followed by a success";
    pub const LOST_THEN_SUCCEEDED: &str = "a lost attempt is followed by a success";
    pub const LOST_FOR_GOOD: &str = "a lost attempt is a dead letter";
    pub const CANCELLED_WHILE_RUNNING: &str = "a run is cancelled";
    pub const CANCELLED_WHILE_WAITING: &str = "what waits is cancelled";
    pub const LEASED_UNNOTICED: &str = "a session holds a lease and does not suspect it";

    pub fn all() -> Vec<Property<Scope>> {
        vec![
            Property::<Scope>::always(FIRED_ONCE, |_, world| is_set(&world.fired)),
            Property::<Scope>::always(ONE_OUTCOME, |_, world| {
                world.store.history.windows(2).all(|pair| pair[0].execution != pair[1].execution)
            }),
            Property::<Scope>::always(ONE_LIVE_LEASE, |_, world| one_live_lease(world)),
            Property::<Scope>::always(ONE_BELIEVER, |_, world| one_believer(world)),
            Property::<Scope>::always(HOLDS_WHAT_IT_BELIEVES, |_, world| holds_what_it_believes(world)),
            Property::<Scope>::always(UNKNOWN_LEASES_ARE_REVEALED, |_, world| {
                unknown_leases_are_revealed(world)
            }),
            Property::<Scope>::always(WITHIN_BUDGET, |_, world| within_budget(world)),
            Property::<Scope>::always(CANCELLED_IS_FINAL, |_, world| cancelled_is_final(world)),
            Property::<Scope>::always(CANCEL_IS_HONOURED, |_, world| cancel_is_honoured(world)),
            Property::<Scope>::always(NOTHING_IS_FORGOTTEN, |_, world| nothing_is_forgotten(world)),
            Property::<Scope>::always(ONLY_SILENT_SESSIONS_ARE_LOST, |_, world| !world.lost_though_beating),
            Property::<Scope>::sometimes(EVERYTHING_SUCCEEDS, |_, world| everything_succeeds(world)),
            Property::<Scope>::sometimes(FAILED_THEN_SUCCEEDED, |_, world| {
                has(world, ONE_SHOT, Status::Failed) && has(world, ONE_SHOT, Status::Succeeded)
            }),
            Property::<Scope>::sometimes(LOST_THEN_SUCCEEDED, |_, world| {
                has(world, ONE_SHOT, Status::Lost) && has(world, ONE_SHOT, Status::Succeeded)
            }),
            Property::<Scope>::sometimes(LOST_FOR_GOOD, |_, world| {
                has(world, RECURRING, Status::Lost) && !world.store.dead_letters.is_empty()
            }),
            Property::<Scope>::sometimes(CANCELLED_WHILE_RUNNING, |_, world| {
                world.store.history.iter().any(|past| past.status == Status::Cancelled && past.has_run)
            }),
            Property::<Scope>::sometimes(CANCELLED_WHILE_WAITING, |_, world| {
                world.store.history.iter().any(|past| past.status == Status::Cancelled && !past.has_run)
            }),
            Property::<Scope>::sometimes(LEASED_UNNOTICED, |_, world| {
                unknown_leases(world).any(|(worker, _)| !worker.is_unsure)
            }),
        ]
    }

    pub fn is_guarantee(name: &str) -> bool {
        all().iter().any(|property| property.name == name && property.expectation == Expectation::Always)
    }

    fn everything_succeeds(world: &World) -> bool {
        let succeeded = world.store.history.iter().filter(|past| past.status == Status::Succeeded);
        succeeded.count() == 3 && world.store.live.is_empty() && world.store.schedules.is_empty()
    }

    fn is_set<T: PartialEq>(sorted: &[T]) -> bool {
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    }

    fn has(world: &World, job: JobId, status: Status) -> bool {
        let history = &world.store.history;
        history.iter().any(|past| past.execution.occurrence.job == job && past.status == status)
    }

    fn one_live_lease(world: &World) -> bool {
        let live = world.beliefs().filter(|(session, _)| world.is_open(*session));
        let mut occurrences: Vec<OccurrenceId> = live.map(|(_, lease)| lease.execution.occurrence).collect();
        occurrences.sort();
        let rows: Vec<OccurrenceId> = world.store.live.iter().map(|row| row.0.id).collect();
        is_set(&occurrences) && is_set(&rows)
    }

    fn one_believer(world: &World) -> bool {
        world.store.live.iter().filter_map(row_lease).all(|(holder, held)| {
            world.beliefs().filter(|(_, lease)| *lease == held).all(|(session, _)| session == holder)
        })
    }

    fn holds_what_it_believes(world: &World) -> bool {
        world
            .beliefs()
            .filter(|(session, _)| world.is_open(*session))
            .all(|believed| world.store.live.iter().filter_map(row_lease).any(|held| held == believed))
    }

    /// Every lease of a live session that its worker does not know of, with the worker and the last poll
    /// sequence number used.
    fn unknown_leases(world: &World) -> impl Iterator<Item = (&Worker, u8)> {
        let leases = world.store.live.iter().filter_map(row_lease);
        leases.filter(|(session, _)| world.is_open(*session)).filter_map(|(session, lease)| {
            let worker = world.workers.iter().find(|worker| worker.session == Some(session))?;
            let is_known = worker.held.iter().any(|held| held.lease == lease);
            (!is_known).then_some((worker, world.store.sessions[session.0 as usize].turn))
        })
    }

    /// A worker that does not know of a lease will find out: it knows that an answer was lost, or its next
    /// poll sequence number will be rejected as used. Either makes it resync.
    fn unknown_leases_are_revealed(world: &World) -> bool {
        unknown_leases(world).all(|(worker, turn_used)| worker.is_unsure || turn_used > worker.turn)
    }

    fn within_budget(world: &World) -> bool {
        world.fired.iter().all(|occurrence| {
            let is_charged = |status: &Status| matches!(status, Status::Failed | Status::Lost);
            let charged = world.statuses(*occurrence).filter(is_charged).count() as u32;
            let open = world.store.find(*occurrence).map(|row| &world.store.live[row].0);
            charged <= settings(occurrence.job).max_retries + 1
                && open.is_none_or(|live| live.charged == charged)
        })
    }

    fn cancelled_is_final(world: &World) -> bool {
        let history = &world.store.history;
        history.iter().filter(|past| past.status == Status::Cancelled).all(|cancelled| {
            let occurrence = cancelled.execution.occurrence;
            let mut attempts = history.iter().filter(|past| past.execution.occurrence == occurrence);
            world.store.find(occurrence).is_none()
                && attempts.all(|past| past.execution <= cancelled.execution)
        })
    }

    fn cancel_is_honoured(world: &World) -> bool {
        world.asked_to_stop.iter().all(|occurrence| {
            let is_cancelled = world.statuses(*occurrence).any(|status| status == Status::Cancelled);
            is_cancelled
                || world.store.find(*occurrence).is_some_and(|row| {
                    matches!(world.store.live[row].0.state, LiveState::Running(lease) if lease.cancel_requested)
                })
        })
    }

    fn nothing_is_forgotten(world: &World) -> bool {
        world.fired.iter().all(|occurrence| {
            let is_final = |status| matches!(status, Status::Succeeded | Status::Cancelled);
            world.store.find(*occurrence).is_some()
                || world.store.dead_letters.contains(occurrence)
                || world.statuses(*occurrence).any(is_final)
        })
    }
}
