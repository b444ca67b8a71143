//! One session of a worker as a state machine: takes an event, decides, and returns actions. No awaiting, no
//! clock, no channel.

use crate::WorkerConfig;
use crate::condition::{Condition, WorkerLoad};
use crate::pace::RunPace;
use punctual_core::defects::{Defect, planted};
use punctual_core::health::{Measured, WorkerCondition};
use punctual_core::limits;
use punctual_core::ports::{
    Assignment, BeatAnswer, LeaseRef, Outcome, Poll, Report, ReportAnswer, Served, SessionGrant,
    WorkerPortError,
};
use punctual_core::session::LeaseKeeper;
use punctual_core::slots::Demand;
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The present by both of the worker's clocks: leases use one, reported run times the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) clock: Monotonic,
    pub(crate) calendar: Monotonic,
}

/// An event.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    Opened,
    BeatDue,
    Beaten {
        sent_at: Monotonic,
        result: Result<BeatAnswer, WorkerPortError>,
    },
    /// The lease may have expired.
    LeaseDue,
    Polled(Result<Vec<Assignment>, WorkerPortError>),
    Resynced(Result<(), WorkerPortError>),
    /// The pause after a failed poll or resync is over.
    Rested,
    /// By the calendar.
    Ended {
        lease: LeaseRef,
        started_at: Monotonic,
        ended_at: Monotonic,
        outcome: Outcome,
    },
    Reported(Result<Vec<ReportAnswer>, WorkerPortError>),
    ReportRested,
    GaveBack(Result<(), WorkerPortError>),
    /// Some prefetched executions may have been held for too long.
    HoldDue,
    Measured(Measured),
    /// It is time to check whether there should be more or fewer slots.
    SlotsDue,
    Demanded(Result<Demand, WorkerPortError>),
    Drain,
    GraceOver,
    Closed,
}

/// An action to carry out.
#[derive(Debug)]
pub(crate) enum SessionAction {
    Beat {
        beat: u64,
        condition: Option<WorkerCondition>,
        draining: bool,
    },
    /// Measure the machine.
    Measure,
    AskDemand(Served),
    Poll(Poll),
    /// Abandon the waiting poll; it is unknown then whether it was granted anything.
    LeavePoll,
    Resync {
        turn: u64,
        held: Vec<LeaseRef>,
    },
    Start {
        assignment: Assignment,
        deadline: Timestamp,
    },
    /// Stop the handler and report its end with this outcome.
    Stop {
        lease: LeaseRef,
        outcome: Outcome,
    },
    /// Stop all handlers at once and drop them.
    StopAll,
    Report(Vec<Report>),
    GiveBack(Vec<LeaseRef>),
    Close,
    After(Duration, SessionEvent),
}

/// How a session ended.
#[derive(Debug)]
pub(crate) enum SessionEnd {
    Drained,
    /// It is lost, or may be; with the outcomes that were not acknowledged.
    Lost(Vec<Report>),
}

/// A session just opened: when it was requested by the worker's own clock, and when it was granted by both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedSession {
    pub(crate) grant: SessionGrant,
    pub(crate) sent_at: Monotonic,
    pub(crate) received: Now,
}

/// What the session is doing to get more work. Polls and resyncs never overlap: each uses the next poll
/// sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    Free,
    Polling,
    Resyncing,
    /// After a failure; a resync follows.
    Resting,
}

pub(crate) struct WorkerSession {
    config: WorkerConfig,
    job_types: Vec<String>,
    grant: SessionGrant,
    /// Corresponding times of the server and of the worker's calendar.
    time: (Timestamp, Monotonic),
    keeper: LeaseKeeper,
    beat: u64,
    turn: u64,
    intake: Intake,
    resync_owed: bool,
    /// Executions waiting for a slot, with their arrival by the worker's clock: by rank, and in order of
    /// arrival where ranks are equal.
    ready: VecDeque<(Monotonic, Assignment)>,
    /// Whether a timer for the prefetched executions is set.
    hold_watched: bool,
    /// Running executions, with their start by the worker's clock.
    running: BTreeMap<LeaseRef, Monotonic>,
    pace: RunPace,
    condition: Condition,
    measuring: bool,
    finished: Vec<Report>,
    reporting: Vec<Report>,
    report_resting: bool,
    giving_back: bool,
    draining: bool,
    /// Whether the server knows that the session drains, from the worker or by its own request.
    drain_is_told: bool,
    closing: bool,
    end: Option<SessionEnd>,
}

impl WorkerSession {
    pub(crate) fn new(
        config: WorkerConfig,
        job_types: Vec<String>,
        opened: OpenedSession,
        unreported: Vec<Report>,
    ) -> Self {
        WorkerSession {
            keeper: LeaseKeeper::new(config.lease, opened.sent_at),
            condition: Condition::new(&config),
            measuring: false,
            config,
            job_types,
            grant: opened.grant,
            time: (opened.grant.now, opened.received.calendar),
            beat: 0,
            turn: 0,
            intake: Intake::Free,
            resync_owed: false,
            ready: VecDeque::new(),
            hold_watched: false,
            running: BTreeMap::new(),
            pace: RunPace::default(),
            finished: unreported,
            reporting: Vec::new(),
            report_resting: false,
            giving_back: false,
            draining: false,
            drain_is_told: false,
            closing: false,
            end: None,
        }
    }

    pub(crate) fn take_end(&mut self) -> Option<SessionEnd> {
        self.end.take()
    }

    pub(crate) fn handle(&mut self, event: SessionEvent, now: Now) -> Vec<SessionAction> {
        let mut actions = Vec::new();
        match event {
            SessionEvent::Opened => {
                actions
                    .push(SessionAction::After(self.keeper.first_beat_in(now.clock), SessionEvent::BeatDue));
                actions.push(self.watch_lease(now.clock));
                self.measure(&mut actions);
                if self.condition.adapts() {
                    actions.push(SessionAction::After(limits::SLOTS_LOOK_INTERVAL, SessionEvent::SlotsDue));
                }
            }
            SessionEvent::BeatDue => {
                self.beat(now.clock, &mut actions);
                actions.push(SessionAction::After(self.keeper.beat_interval(), SessionEvent::BeatDue));
                self.measure(&mut actions);
            }
            SessionEvent::Beaten { sent_at, result } => self.beaten(sent_at, result, now, &mut actions),
            SessionEvent::LeaseDue => actions.push(self.watch_lease(now.clock)),
            SessionEvent::Polled(result) => self.polled(result, now.clock, &mut actions),
            SessionEvent::Resynced(result) => self.resynced(result, &mut actions),
            SessionEvent::Rested => self.intake = Intake::Free,
            SessionEvent::Ended { lease, started_at, ended_at, outcome } => {
                if let Some(since) = self.running.remove(&lease) {
                    self.pace.ended(since, now.clock);
                    self.ended(lease, started_at, ended_at, outcome);
                }
            }
            SessionEvent::Reported(result) => self.reported(result, &mut actions),
            SessionEvent::ReportRested => self.report_resting = false,
            SessionEvent::GaveBack(result) => {
                self.giving_back = false;
                // It is unknown which were returned: a resync returns everything that is not held.
                self.resync_owed |= result.is_err();
            }
            SessionEvent::HoldDue => self.hold_watched = false,
            SessionEvent::Measured(measured) => self.measured(measured, &mut actions),
            SessionEvent::SlotsDue => self.look_at_slots(now.clock, &mut actions),
            SessionEvent::Demanded(result) => {
                if let Ok(demand) = result {
                    self.condition.adapt(self.load(), demand, now.clock);
                }
            }
            SessionEvent::Drain => self.drain(&mut actions),
            SessionEvent::GraceOver => {
                self.stop_running("the worker was shut down before the handler finished", &mut actions)
            }
            SessionEvent::Closed => self.end = Some(SessionEnd::Drained),
        }
        // After a pause, any event may come before the lease timer's. Nothing may start once the lease has
        // expired; a heartbeat just confirmed or an outcome just reported still counts.
        if self.end.is_none() && self.lease_is_over(now.clock) {
            self.lose("the lease expired without a confirmed heartbeat", &mut actions);
        }
        if self.end.is_none() {
            self.next_actions(now, &mut actions);
        }
        actions
    }

    fn beat(&mut self, now: Monotonic, actions: &mut Vec<SessionAction>) {
        self.beat += 1;
        let condition = self.condition.take_news(self.load(), now);
        // With every heartbeat, because a response may be lost.
        actions.push(SessionAction::Beat { beat: self.beat, condition, draining: self.draining });
    }

    fn beaten(
        &mut self,
        sent_at: Monotonic,
        result: Result<BeatAnswer, WorkerPortError>,
        now: Now,
        actions: &mut Vec<SessionAction>,
    ) {
        match result {
            Ok(answer) => {
                self.keeper.confirmed(sent_at);
                self.condition.answered(now.clock.since(sent_at));
                self.time = (answer.now, now.calendar);
                self.resync_owed |= answer.turn > self.turn;
                for lease in answer.cancel {
                    self.cancel(lease, now.calendar, actions);
                }
                if answer.drain {
                    self.drain_is_told = true;
                    self.drain(actions);
                }
            }
            // The worker has just closed the session; the response to that is on its way.
            Err(WorkerPortError::SessionLost) if self.closing => {}
            Err(WorkerPortError::SessionLost) => self.lose("the session was declared lost", actions),
            // The lease is still running; the next heartbeat may get through.
            Err(error @ (WorkerPortError::Unavailable(_) | WorkerPortError::StaleTurn)) => {
                self.condition.failed(&error);
            }
        }
    }

    /// Measures the machine, unless the last measurement has not returned: one that hangs must not be
    /// followed by more.
    fn measure(&mut self, actions: &mut Vec<SessionAction>) {
        if !std::mem::replace(&mut self.measuring, true) {
            actions.push(SessionAction::Measure);
        }
    }

    fn measured(&mut self, measured: Measured, actions: &mut Vec<SessionAction>) {
        self.measuring = false;
        let refused_before = self.condition.refuses_work();
        self.condition.measured(measured);
        if !refused_before && self.condition.refuses_work() && self.intake == Intake::Polling {
            actions.push(SessionAction::LeavePoll);
        }
    }

    /// Adapts the slots to what is known here, and asks the server how much waits where that could increase
    /// them.
    fn look_at_slots(&mut self, now: Monotonic, actions: &mut Vec<SessionAction>) {
        actions.push(SessionAction::After(limits::SLOTS_LOOK_INTERVAL, SessionEvent::SlotsDue));
        let load = self.load();
        if self.condition.wants_to_know_demand(load) {
            let (queues, job_types) = (self.config.queues.clone(), self.job_types.clone());
            actions.push(SessionAction::AskDemand(Served { queues, job_types }));
        } else {
            self.condition.adapt(load, Demand::default(), now);
        }
    }

    fn load(&self) -> WorkerLoad {
        WorkerLoad { running: self.running.len(), ready: self.ready.len() }
    }

    fn cancel(&mut self, lease: LeaseRef, calendar: Monotonic, actions: &mut Vec<SessionAction>) {
        if self.running.contains_key(&lease) {
            actions.push(SessionAction::Stop { lease, outcome: Outcome::Cancelled });
        } else if let Some(index) = self.ready.iter().position(|(_, assignment)| assignment.lease() == lease)
        {
            self.ready.remove(index);
            let now = self.house_time(calendar);
            let end = Outcome::Cancelled.into_end(now, now);
            self.finished.push(Report { session: self.grant.session, lease, end });
        }
    }

    /// A timer for when the lease may have expired. An expired lease is noticed with the current event.
    fn watch_lease(&self, now: Monotonic) -> SessionAction {
        let left = self.keeper.stop_at().since(now);
        SessionAction::After(if left.is_zero() { self.config.lease } else { left }, SessionEvent::LeaseDue)
    }

    fn lease_is_over(&self, now: Monotonic) -> bool {
        now >= self.keeper.stop_at() && !planted(Defect::KeepRunningWithoutLease)
    }

    /// Stops everything: from here on another worker may run what this one held.
    fn lose(&mut self, reason: &str, actions: &mut Vec<SessionAction>) {
        tracing::warn!(session = %self.grant.session, running = self.running.len(), reason, "session lost");
        actions.push(SessionAction::StopAll);
        let mut unreported = std::mem::take(&mut self.reporting);
        unreported.append(&mut self.finished);
        self.end = Some(SessionEnd::Lost(unreported));
    }

    fn polled(
        &mut self,
        result: Result<Vec<Assignment>, WorkerPortError>,
        clock: Monotonic,
        actions: &mut Vec<SessionAction>,
    ) {
        self.intake = Intake::Free;
        match result {
            // An empty response has not used the poll sequence number.
            Ok(assignments) if assignments.is_empty() => self.turn -= 1,
            Ok(assignments) => self.hold(assignments, clock),
            Err(WorkerPortError::SessionLost) => self.lose("the session was declared lost", actions),
            Err(WorkerPortError::StaleTurn) => self.resync_owed = true,
            Err(WorkerPortError::Unavailable(reason)) => {
                tracing::debug!(reason, "a poll failed; resyncing leases");
                self.resync_owed = true;
                self.rest(actions);
            }
        }
    }

    /// Adds assignments by rank. Usually that is at the end.
    fn hold(&mut self, assignments: Vec<Assignment>, clock: Monotonic) {
        self.ready.extend(assignments.into_iter().map(|assignment| (clock, assignment)));
        if !self.ready.iter().is_sorted_by_key(|(_, assignment)| assignment.rank) {
            self.ready.make_contiguous().sort_by_key(|(_, assignment)| assignment.rank);
        }
    }

    fn resynced(&mut self, result: Result<(), WorkerPortError>, actions: &mut Vec<SessionAction>) {
        self.intake = Intake::Free;
        match result {
            Ok(()) => self.resync_owed = false,
            Err(WorkerPortError::SessionLost) => self.lose("the session was declared lost", actions),
            Err(WorkerPortError::StaleTurn | WorkerPortError::Unavailable(_)) => self.rest(actions),
        }
    }

    fn rest(&mut self, actions: &mut Vec<SessionAction>) {
        self.intake = Intake::Resting;
        actions.push(SessionAction::After(self.config.error_pause, SessionEvent::Rested));
    }

    fn ended(&mut self, lease: LeaseRef, started_at: Monotonic, ended_at: Monotonic, outcome: Outcome) {
        let end = outcome.into_end(self.house_time(started_at), self.house_time(ended_at));
        self.finished.push(Report { session: self.grant.session, lease, end });
    }

    fn reported(
        &mut self,
        result: Result<Vec<ReportAnswer>, WorkerPortError>,
        actions: &mut Vec<SessionAction>,
    ) {
        match result {
            // Whatever the response, nothing more can be done about these.
            Ok(_) => self.reporting.clear(),
            Err(error) => {
                tracing::debug!(%error, count = self.reporting.len(), "outcomes were not reported; retrying");
                self.reporting.append(&mut self.finished);
                self.finished = std::mem::take(&mut self.reporting);
                self.report_resting = true;
                actions.push(SessionAction::After(self.config.error_pause, SessionEvent::ReportRested));
            }
        }
    }

    fn drain(&mut self, actions: &mut Vec<SessionAction>) {
        if !std::mem::replace(&mut self.draining, true) {
            actions.push(SessionAction::After(self.config.drain_grace, SessionEvent::GraceOver));
            if self.intake == Intake::Polling {
                actions.push(SessionAction::LeavePoll);
            }
        }
    }

    fn stop_running(&mut self, error: &str, actions: &mut Vec<SessionAction>) {
        for lease in self.running.keys() {
            let outcome = Outcome::Interrupted { error: error.to_owned() };
            actions.push(SessionAction::Stop { lease: *lease, outcome });
        }
    }

    /// The actions that follow from the state, whatever the event was.
    fn next_actions(&mut self, now: Now, actions: &mut Vec<SessionAction>) {
        if self.draining || self.condition.refuses_work() {
            // Other workers may have room for them. Leases granted to a failed poll must not wait until all
            // running executions have ended.
            self.give_back_held(|_| true, actions);
            self.resync_if_owed(actions);
        } else {
            self.start_ready(now, actions);
            self.watch_held(now.clock, actions);
            self.take_in(now.clock, actions);
        }
        if self.reporting.is_empty() && !self.finished.is_empty() && !self.report_resting {
            self.reporting = std::mem::take(&mut self.finished);
            actions.push(SessionAction::Report(self.reporting.clone()));
        }
        if self.is_drained() && !std::mem::replace(&mut self.closing, true) {
            actions.push(SessionAction::Close);
        }
        // Other components must not count on a draining worker. A session that closes at once need not report
        // it first.
        if self.draining && !self.closing && !std::mem::replace(&mut self.drain_is_told, true) {
            self.beat(now.clock, actions);
        }
    }

    fn start_ready(&mut self, now: Now, actions: &mut Vec<SessionAction>) {
        while self.running.len() < self.condition.slots() {
            let Some((_, assignment)) = self.ready.pop_front() else { return };
            self.running.insert(assignment.lease(), now.clock);
            self.pace.started(now.clock);
            // The worker's estimate of server time may be behind: nothing starts before it is available.
            let started_at = self.house_time(now.calendar).max(assignment.available_at);
            let deadline = started_at.plus(assignment.timeout);
            actions.push(SessionAction::Start { assignment, deadline });
        }
    }

    /// Returns executions that were held for too long: other workers may have a slot for them, or something
    /// more urgent has arrived.
    fn watch_held(&mut self, clock: Monotonic, actions: &mut Vec<SessionAction>) {
        if self.hold_watched {
            return;
        }
        self.give_back_held(|since| clock.since(since) >= limits::HELD_TIME_MAX, actions);
        if !self.ready.is_empty() {
            self.hold_watched = true;
            actions.push(SessionAction::After(limits::HELD_TIME_MAX, SessionEvent::HoldDue));
        }
    }

    /// Polls for more work when a slot is idle or a quarter of the worker's places is free. The reserve is what
    /// will start soon, judging by the duration of runs here. Executions held longer would be withheld from
    /// other workers, overtake more urgent ones, and be lost with this worker although they never ran.
    ///
    /// Ended executions occupy a place only once there are more of them than the reserve: reports on their
    /// way take as long as a poll, and must not delay it. So at most `slots + 2 * prefetch` leases are held.
    fn take_in(&mut self, clock: Monotonic, actions: &mut Vec<SessionAction>) {
        self.resync_if_owed(actions);
        if self.intake != Intake::Free {
            return;
        }
        let slots = self.condition.slots();
        let busy = self.ready.len() + self.running.len();
        let unacknowledged = self.finished.len() + self.reporting.len();
        let reserve = self.pace.started_within(limits::PREFETCH_TIME, slots, clock);
        let reserve = reserve.min(self.config.prefetch);
        let places = slots + reserve;
        let capacity = places.saturating_sub(busy + unacknowledged.saturating_sub(reserve));
        let wanted = busy < slots || capacity * 4 >= places;
        if capacity == 0 || !wanted {
            return;
        }
        self.turn += 1;
        self.intake = Intake::Polling;
        actions.push(SessionAction::Poll(Poll {
            session: self.grant.session,
            turn: self.turn,
            capacity,
            queues: self.config.queues.clone(),
            job_types: self.job_types.clone(),
            wait: self.config.poll_wait,
        }));
    }

    fn resync_if_owed(&mut self, actions: &mut Vec<SessionAction>) {
        if self.intake == Intake::Free && self.resync_owed {
            self.turn += 1;
            self.intake = Intake::Resyncing;
            actions.push(SessionAction::Resync { turn: self.turn, held: self.held() });
        }
    }

    /// Returns the prefetched executions whose arrival time `goes` selects.
    fn give_back_held(&mut self, goes: impl Fn(Monotonic) -> bool, actions: &mut Vec<SessionAction>) {
        if self.giving_back {
            return;
        }
        let keeps_all = planted(Defect::KeepWhatIsGivenBack) && !self.draining;
        let mut leases = Vec::new();
        self.ready.retain(|(since, assignment)| {
            let stays = !goes(*since);
            if !stays {
                leases.push(assignment.lease());
            }
            stays || keeps_all
        });
        if !leases.is_empty() {
            self.giving_back = true;
            actions.push(SessionAction::GiveBack(leases));
        }
    }

    fn is_drained(&self) -> bool {
        self.draining
            && self.ready.is_empty()
            && self.running.is_empty()
            && self.finished.is_empty()
            && self.reporting.is_empty()
            && !self.giving_back
    }

    fn held(&self) -> Vec<LeaseRef> {
        let unacknowledged = self.finished.iter().chain(&self.reporting).map(|report| report.lease);
        self.ready
            .iter()
            .map(|(_, assignment)| assignment.lease())
            .chain(self.running.keys().copied())
            .chain(unacknowledged)
            .collect()
    }

    /// The server's time at a moment of the worker's calendar, near the present.
    fn house_time(&self, at: Monotonic) -> Timestamp {
        let (time, then) = self.time;
        if at >= then { time.plus(at.since(then)) } else { time.minus(then.since(at)) }
    }
}

#[cfg(test)]
mod tests;
