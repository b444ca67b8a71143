//! The poll registry, where polls wait for work. A waiting poll is a free slot: work that is just being
//! committed can be leased to it in the same transaction by a slot reservation, and the dispatch loop claims
//! queued work for it.
//!
//! A poll is in one of three states. *Unchecked*: there may be work for it in the store. *Idle*: the store
//! had nothing for it, so a reservation overtakes no queued work. *Busy*: a claim or a reservation with its
//! poll sequence number is in progress; only its outcome may answer the poll.

use punctual_core::defects::{Defect, planted};
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, Lane, LeaseRef, Poll, SlotReservation, WorkerPortError,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

pub(crate) type PollResult = Result<Vec<Assignment>, WorkerPortError>;

#[derive(Default)]
pub(crate) struct PollRegistry {
    polls: Mutex<BTreeMap<SlotReservation, WaitingPoll>>,
    unchecked: Notify,
}

struct WaitingPoll {
    poll: Poll,
    state: ParkedState,
    /// Its wait is over: the next outcome from the store is its answer, even if that is empty.
    is_leaving: bool,
    reply: oneshot::Sender<PollResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParkedState {
    Unchecked,
    Idle,
    Busy {
        /// Work was queued for it meanwhile: check again if this brings nothing.
        woken: bool,
    },
}

/// Slots reserved for the items of one transaction.
#[derive(Default)]
pub(crate) struct ReservedSlots {
    free: BTreeMap<SlotReservation, usize>,
}

impl PollRegistry {
    /// Adds a waiting poll. It replaces an older one of the same session: a poll sequence number cannot be
    /// granted twice.
    pub(crate) fn park(&self, poll: Poll) -> oneshot::Receiver<PollResult> {
        let (reply, answer) = oneshot::channel();
        let reservation = SlotReservation { session: poll.session, turn: poll.turn };
        let mut polls = self.lock();
        let of_session =
            SlotReservation { turn: 0, ..reservation }..=SlotReservation { turn: u64::MAX, ..reservation };
        let older: Vec<SlotReservation> = polls.range(of_session).map(|(key, _)| *key).collect();
        for key in older {
            if let Some(old) = polls.remove(&key) {
                let _ = old.reply.send(Err(WorkerPortError::StaleTurn));
            }
        }
        polls.insert(
            reservation,
            WaitingPoll { poll, state: ParkedState::Unchecked, is_leaving: false, reply },
        );
        drop(polls);
        self.unchecked.notify_one();
        answer
    }

    /// Removes a poll whose wait is over. If there may be work for it, or an outcome is pending, that outcome
    /// answers it instead.
    pub(crate) fn leave(&self, reservation: SlotReservation) -> bool {
        let mut polls = self.lock();
        // A poll that is no longer there has just been answered.
        let Some(parked) = polls.get_mut(&reservation) else { return false };
        if parked.state == ParkedState::Idle {
            polls.remove(&reservation);
            return true;
        }
        parked.is_leaving = true;
        false
    }

    /// Work is queued in these lanes: marks the polls that serve them as unchecked.
    pub(crate) fn wake(&self, lanes: &BTreeSet<Lane>) {
        let mut any = false;
        for parked in self.lock().values_mut() {
            if lanes.iter().any(|lane| serves(&parked.poll, lane.queue(), lane.job_type())) {
                any = true;
                parked.look_again();
            }
        }
        if any {
            self.unchecked.notify_one();
        }
    }

    /// Whether an idle poll serves this lane.
    pub(crate) fn is_idle_for(&self, lane: &Lane) -> bool {
        let is_idle = |parked: &WaitingPoll| parked.state == ParkedState::Idle;
        self.lock()
            .values()
            .any(|parked| is_idle(parked) && serves(&parked.poll, lane.queue(), lane.job_type()))
    }

    /// Marks all polls as unchecked: a wake-up may have been missed, or a session gets work again.
    pub(crate) fn wake_all(&self) {
        if planted(Defect::LoseWakeUp) {
            return;
        }
        let mut any = false;
        for parked in self.lock().values_mut() {
            any = true;
            parked.look_again();
        }
        if any {
            self.unchecked.notify_one();
        }
    }

    /// Waits until there may be an unchecked poll.
    pub(crate) async fn unchecked(&self) {
        self.unchecked.notified().await;
    }

    /// Takes all unchecked polls, to claim for them.
    pub(crate) fn take_unchecked(&self) -> Vec<Claim> {
        let mut polls = self.lock();
        polls.retain(|_, parked| !(parked.state == ParkedState::Unchecked && parked.reply.is_closed()));
        let mut claims = Vec::new();
        for parked in polls.values_mut().filter(|parked| parked.state == ParkedState::Unchecked) {
            parked.state = ParkedState::Busy { woken: false };
            claims.push(Claim {
                session: parked.poll.session,
                turn: parked.poll.turn,
                limit: parked.poll.capacity,
                queues: parked.poll.queues.clone(),
                job_types: parked.poll.job_types.clone(),
            });
        }
        claims
    }

    /// Answers a poll with the outcome of its claim, or lets it wait on. Returns leases whose poll no longer
    /// waits.
    pub(crate) fn claimed(&self, reservation: SlotReservation, outcome: ClaimOutcome) -> Vec<LeaseRef> {
        match outcome {
            ClaimOutcome::Claimed { assignments, .. } if assignments.is_empty() => {
                self.nothing(reservation);
                Vec::new()
            }
            ClaimOutcome::Claimed { assignments, .. } => self.answer(reservation, Ok(assignments)),
            ClaimOutcome::StaleTurn => self.answer(reservation, Err(WorkerPortError::StaleTurn)),
            ClaimOutcome::SessionLost => self.answer(reservation, Err(WorkerPortError::SessionLost)),
        }
    }

    /// The outcome of a claim or reservation is unknown, so the poll sequence number may be used: the worker
    /// must resync.
    pub(crate) fn failed(&self, reservation: SlotReservation, reason: &str) {
        self.answer(reservation, Err(WorkerPortError::Unavailable(reason.to_owned())));
    }

    /// Reserves a slot for an execution of this lane among the idle polls, for a transaction being prepared.
    pub(crate) fn reserve(
        &self,
        reserved: &mut ReservedSlots,
        queue: &str,
        job_type: &str,
    ) -> Option<SlotReservation> {
        let mut polls = self.lock();
        let has_room = |reservation: &SlotReservation, parked: &WaitingPoll| {
            let free = reserved.free.get(reservation).copied();
            free.map_or(parked.state == ParkedState::Idle && !parked.reply.is_closed(), |free| free > 0)
        };
        // The worker with the most free slots first, so that work is spread.
        let (reservation, parked) = polls
            .iter_mut()
            .filter(|(reservation, parked)| {
                has_room(reservation, parked) && serves(&parked.poll, queue, job_type)
            })
            .max_by_key(|(reservation, parked)| {
                (
                    reserved.free.get(reservation).copied().unwrap_or(parked.poll.capacity),
                    std::cmp::Reverse(**reservation),
                )
            })?;
        let free = reserved.free.entry(*reservation).or_insert(parked.poll.capacity);
        *free -= 1;
        parked.state = match parked.state {
            ParkedState::Idle => ParkedState::Busy { woken: false },
            state => state,
        };
        Some(*reservation)
    }

    /// Answers the polls of a reservation after its commit. Returns leases whose poll no longer waits.
    pub(crate) fn settle(
        &self,
        reserved: ReservedSlots,
        assigned: Vec<(SlotReservation, Assignment)>,
    ) -> Vec<(SlotReservation, Vec<LeaseRef>)> {
        let mut by_reservation: BTreeMap<SlotReservation, Vec<Assignment>> = BTreeMap::new();
        for (reservation, assignment) in assigned {
            by_reservation.entry(reservation).or_default().push(assignment);
        }
        let mut undelivered = Vec::new();
        for (reservation, _) in reserved.free {
            match by_reservation.remove(&reservation) {
                Some(mut assignments) => {
                    // In the order of a claim's answer.
                    assignments.sort_by_key(|assignment| assignment.rank);
                    let leases = self.answer(reservation, Ok(assignments));
                    if !leases.is_empty() {
                        undelivered.push((reservation, leases));
                    }
                }
                // The reservation was not used; a claim will find out why.
                None => {
                    if let Some(parked) = self.lock().get_mut(&reservation) {
                        parked.state = ParkedState::Unchecked;
                    }
                    self.unchecked.notify_one();
                }
            }
        }
        assert!(
            by_reservation.is_empty(),
            "work was leased to a slot that was not reserved: {by_reservation:?}"
        );
        undelivered
    }

    /// The transaction of a reservation failed; whether it took effect is unknown.
    pub(crate) fn settle_failed(&self, reserved: ReservedSlots, reason: &str) {
        for (reservation, _) in reserved.free {
            self.failed(reservation, reason);
        }
    }

    fn nothing(&self, reservation: SlotReservation) {
        let mut polls = self.lock();
        let Some(parked) = polls.get_mut(&reservation) else { return };
        if parked.is_leaving {
            drop(polls);
            self.answer(reservation, Ok(Vec::new()));
            return;
        }
        let woken = parked.state == ParkedState::Busy { woken: true };
        parked.state = if woken { ParkedState::Unchecked } else { ParkedState::Idle };
        drop(polls);
        if woken {
            self.unchecked.notify_one();
        }
    }

    fn answer(&self, reservation: SlotReservation, answer: PollResult) -> Vec<LeaseRef> {
        let leases = answer.iter().flatten().map(Assignment::lease).collect();
        match self.lock().remove(&reservation).map(|parked| parked.reply.send(answer)) {
            Some(Ok(())) => Vec::new(),
            Some(Err(_)) | None => leases,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SlotReservation, WaitingPoll>> {
        self.polls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingPoll {
    fn look_again(&mut self) {
        self.state = match self.state {
            ParkedState::Busy { .. } => ParkedState::Busy { woken: true },
            ParkedState::Idle | ParkedState::Unchecked => ParkedState::Unchecked,
        };
    }
}

fn serves(poll: &Poll, queue: &str, job_type: &str) -> bool {
    (poll.queues.is_empty() || poll.queues.iter().any(|served| served == queue))
        && poll.job_types.iter().any(|served| served == job_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use punctual_core::ids::{Epoch, JobId, SessionId};
    use punctual_core::ports::CommitEffects;
    use punctual_core::time::Timestamp;
    use std::time::Duration;

    fn poll(session: i64, turn: u64, capacity: usize) -> Poll {
        let (queues, job_types) = (vec![], vec!["noop".to_owned()]);
        Poll { session: SessionId(session), turn, capacity, queues, job_types, wait: Duration::ZERO }
    }

    fn reservation(session: i64, turn: u64) -> SlotReservation {
        SlotReservation { session: SessionId(session), turn }
    }

    fn assignment(number: u32) -> Assignment {
        Assignment {
            execution: JobId::new(Timestamp::EPOCH, 1).occurrence(number).attempt(1),
            epoch: Epoch(1),
            job_version: 1,
            name: "noop".to_owned(),
            job_type: "noop".to_owned(),
            queue: "default".to_owned(),
            payload: "null".to_owned(),
            timeout: Duration::from_secs(1),
            scheduled_time: Timestamp::EPOCH,
            available_at: Timestamp::EPOCH,
            rank: 0,
            checkpoint: None,
            result_overflow: Default::default(),
            trace: None,
        }
    }

    /// A registry with one idle poll.
    fn idle(capacity: usize) -> (PollRegistry, oneshot::Receiver<PollResult>) {
        let poll_registry = PollRegistry::default();
        let answer = poll_registry.park(poll(1, 1, capacity));
        assert_eq!(poll_registry.take_unchecked().len(), 1);
        poll_registry.claimed(
            reservation(1, 1),
            ClaimOutcome::Claimed { assignments: vec![], effects: CommitEffects::default() },
        );
        (poll_registry, answer)
    }

    #[test]
    fn a_new_poll_gets_no_offer_before_the_store_was_asked_what_waits() {
        let poll_registry = PollRegistry::default();
        let _answer = poll_registry.park(poll(1, 1, 5));
        assert_eq!(poll_registry.reserve(&mut ReservedSlots::default(), "default", "noop"), None);
    }

    #[test]
    fn offers_end_with_the_capacity_and_all_go_in_one_answer() {
        let (poll_registry, mut answer) = idle(2);
        let mut places = ReservedSlots::default();
        let reservations: Vec<_> =
            (0..3).map(|_| poll_registry.reserve(&mut places, "default", "noop")).collect();
        assert_eq!(reservations, [Some(reservation(1, 1)), Some(reservation(1, 1)), None]);
        assert_eq!(poll_registry.reserve(&mut places, "default", "other"), None);
        let assigned = (1..3).map(|number| (reservation(1, 1), assignment(number))).collect();
        assert_eq!(poll_registry.settle(places, assigned), []);
        assert_eq!(answer.try_recv().unwrap().unwrap().len(), 2);
    }

    #[test]
    fn what_was_offered_is_answered_by_rank() {
        let (poll_registry, mut answer) = idle(3);
        let mut places = ReservedSlots::default();
        let assigned = [(1, 5), (2, -7), (3, 5)].map(|(number, rank)| {
            let reservation = poll_registry.reserve(&mut places, "default", "noop").expect("a place");
            (reservation, Assignment { rank, ..assignment(number) })
        });
        poll_registry.settle(places, assigned.into());
        let answered = answer.try_recv().unwrap().unwrap();
        let numbers: Vec<u32> = answered.iter().map(|one| one.execution.occurrence.number).collect();
        assert_eq!(numbers, [2, 1, 3]);
    }

    #[test]
    fn a_place_in_one_transaction_is_not_offered_in_another() {
        let (poll_registry, _answer) = idle(5);
        let mut first = ReservedSlots::default();
        assert!(poll_registry.reserve(&mut first, "default", "noop").is_some());
        assert_eq!(poll_registry.reserve(&mut ReservedSlots::default(), "default", "noop"), None);
        assert_eq!(poll_registry.take_unchecked(), []);
    }

    #[test]
    fn an_offer_that_was_not_taken_up_sends_the_poll_back_to_the_store() {
        let (poll_registry, mut answer) = idle(5);
        let mut places = ReservedSlots::default();
        poll_registry.reserve(&mut places, "default", "noop");
        poll_registry.settle(places, vec![]);
        assert!(answer.try_recv().is_err());
        assert_eq!(poll_registry.take_unchecked().len(), 1);
    }

    #[test]
    fn a_failed_transaction_tells_the_worker_to_resync() {
        let (poll_registry, mut answer) = idle(5);
        let mut places = ReservedSlots::default();
        poll_registry.reserve(&mut places, "default", "noop");
        poll_registry.settle_failed(places, "the reply was lost");
        assert!(matches!(answer.try_recv().unwrap(), Err(WorkerPortError::Unavailable(_))));
    }

    #[test]
    fn work_queued_while_a_claim_is_under_way_is_not_forgotten() {
        let poll_registry = PollRegistry::default();
        let _answer = poll_registry.park(poll(1, 1, 5));
        poll_registry.take_unchecked();
        poll_registry.wake(&BTreeSet::from([Lane::new("default", "noop")]));
        poll_registry.claimed(
            reservation(1, 1),
            ClaimOutcome::Claimed { assignments: vec![], effects: CommitEffects::default() },
        );
        assert_eq!(poll_registry.take_unchecked().len(), 1);
    }

    #[test]
    fn a_poll_is_idle_for_what_it_serves_once_the_store_had_nothing_for_it() {
        let lane = |job_type| Lane::new("default", job_type);
        let asked = PollRegistry::default();
        let _answer = asked.park(poll(1, 1, 5));
        assert!(!asked.is_idle_for(&lane("noop")), "the store was not asked yet");
        let (poll_registry, _answer) = idle(5);
        assert!(poll_registry.is_idle_for(&lane("noop")) && !poll_registry.is_idle_for(&lane("other")));
    }

    #[test]
    fn work_for_others_does_not_disturb_an_idle_poll() {
        let (poll_registry, _answer) = idle(5);
        poll_registry.wake(&BTreeSet::from([Lane::new("default", "other")]));
        assert_eq!(poll_registry.take_unchecked(), []);
    }

    #[test]
    fn all_polls_are_looked_at_again_without_waiting_for_the_next_round() {
        let (poll_registry, _answer) = idle(5);
        let _ = poll_registry.unchecked().now_or_never();
        poll_registry.wake_all();
        assert!(poll_registry.unchecked().now_or_never().is_some(), "no poll was woken");
        assert_eq!(poll_registry.take_unchecked().len(), 1);
    }

    #[test]
    fn leases_that_nobody_waits_for_come_back() {
        let (poll_registry, answer) = idle(5);
        let mut places = ReservedSlots::default();
        poll_registry.reserve(&mut places, "default", "noop");
        drop(answer);
        let undelivered = poll_registry.settle(places, vec![(reservation(1, 1), assignment(1))]);
        assert_eq!(undelivered, [(reservation(1, 1), vec![assignment(1).lease()])]);
    }

    #[test]
    fn a_poll_leaves_unless_its_answer_is_on_the_way() {
        let (poll_registry, _answer) = idle(5);
        poll_registry.reserve(&mut ReservedSlots::default(), "default", "noop");
        assert!(!poll_registry.leave(reservation(1, 1)));
        let (poll_registry, _answer) = idle(5);
        assert!(poll_registry.leave(reservation(1, 1)));
        assert_eq!(poll_registry.reserve(&mut ReservedSlots::default(), "default", "noop"), None);
    }

    #[test]
    fn a_poll_whose_time_is_over_is_answered_by_what_the_store_says_next() {
        let nothing = || ClaimOutcome::Claimed { assignments: vec![], effects: CommitEffects::default() };
        let poll_registry = PollRegistry::default();
        let mut answer = poll_registry.park(poll(1, 1, 5));
        assert!(!poll_registry.leave(reservation(1, 1)), "the store was not asked yet");
        assert_eq!(poll_registry.take_unchecked().len(), 1);
        poll_registry.claimed(reservation(1, 1), nothing());
        assert_eq!(answer.try_recv().unwrap(), Ok(vec![]));

        let mut answer = poll_registry.park(poll(1, 1, 5));
        poll_registry.take_unchecked();
        assert!(!poll_registry.leave(reservation(1, 1)), "the store is being asked");
        poll_registry.wake(&BTreeSet::from([Lane::new("default", "noop")]));
        poll_registry.claimed(reservation(1, 1), nothing());
        assert_eq!(answer.try_recv().unwrap(), Ok(vec![]));
    }

    #[test]
    fn a_poll_that_was_answered_in_the_moment_its_time_was_over_keeps_its_answer() {
        let (poll_registry, mut answer) = idle(5);
        let mut places = ReservedSlots::default();
        poll_registry.reserve(&mut places, "default", "noop");
        assert_eq!(poll_registry.settle(places, vec![(reservation(1, 1), assignment(1))]), []);
        assert!(!poll_registry.leave(reservation(1, 1)));
        assert_eq!(answer.try_recv().unwrap().unwrap().len(), 1);
    }

    #[test]
    fn a_second_poll_of_a_session_replaces_the_first() {
        let (poll_registry, mut first) = idle(5);
        let _second = poll_registry.park(poll(1, 1, 5));
        assert_eq!(first.try_recv().unwrap(), Err(WorkerPortError::StaleTurn));
        assert_eq!(poll_registry.take_unchecked().len(), 1);
    }

    #[test]
    fn the_emptiest_worker_is_offered_work_first() {
        let (poll_registry, _first) = idle(2);
        let _second = poll_registry.park(poll(2, 1, 9));
        poll_registry.take_unchecked();
        poll_registry.claimed(
            reservation(2, 1),
            ClaimOutcome::Claimed { assignments: vec![], effects: CommitEffects::default() },
        );
        assert_eq!(
            poll_registry.reserve(&mut ReservedSlots::default(), "default", "noop"),
            Some(reservation(2, 1))
        );
    }
}
