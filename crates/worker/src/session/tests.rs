//! The decisions of a session, event by event.

use super::*;
use punctual_core::health::{FreeMin, HealthLimits, Room};
use punctual_core::ids::{Epoch, JobId, SessionId};

const LEASE: Duration = Duration::from_secs(6);

fn at(ms: u64) -> Monotonic {
    Monotonic::from_micros(1_000_000_000 + ms * 1_000)
}

fn now(ms: u64) -> Now {
    Now { clock: at(ms), calendar: at(ms) }
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
        timeout: Duration::from_secs(60),
        scheduled_time: Timestamp::EPOCH,
        available_at: Timestamp::EPOCH,
        rank: 0,
        checkpoint: None,
        result_overflow: Default::default(),
        trace: None,
    }
}

fn assignments(numbers: std::ops::Range<u32>) -> Vec<Assignment> {
    numbers.map(assignment).collect()
}

/// A session with two slots and a prefetch of two, and its actions on opening.
fn opened() -> (WorkerSession, Vec<SessionAction>) {
    opened_with(2, 2)
}

fn opened_with(slots: usize, prefetch: usize) -> (WorkerSession, Vec<SessionAction>) {
    let config = WorkerConfig { slots, prefetch, lease: LEASE, ..WorkerConfig::default() };
    let grant = SessionGrant { session: SessionId(7), now: Timestamp::from_micros(5_000_000) };
    let opened = OpenedSession { grant, sent_at: at(0), received: now(0) };
    let mut session = WorkerSession::new(config, vec!["noop".to_owned()], opened, Vec::new());
    let actions = session.handle(SessionEvent::Opened, now(0));
    (session, actions)
}

fn polls(actions: &[SessionAction]) -> Vec<(u64, usize)> {
    let poll = |action: &SessionAction| match action {
        SessionAction::Poll(poll) => Some((poll.turn, poll.capacity)),
        _ => None,
    };
    actions.iter().filter_map(poll).collect()
}

fn starts(actions: &[SessionAction]) -> usize {
    actions.iter().filter(|action| matches!(action, SessionAction::Start { .. })).count()
}

fn ended(number: u32) -> SessionEvent {
    let lease = assignment(number).lease();
    SessionEvent::Ended {
        lease,
        started_at: at(1),
        ended_at: at(2),
        outcome: Outcome::Succeeded { result: None },
    }
}

#[test]
fn a_session_whose_opening_took_long_beats_at_once() {
    let after = |actions: &[SessionAction]| {
        let beat = |action: &SessionAction| match action {
            SessionAction::After(pause, SessionEvent::BeatDue) => Some(*pause),
            _ => None,
        };
        actions.iter().find_map(beat).expect("a beat")
    };
    let (session, actions) = opened();
    assert_eq!(after(&actions), session.keeper.beat_interval());
    let grant = session.grant;
    let opened = OpenedSession { grant, sent_at: at(0), received: now(0) };
    let mut late = WorkerSession::new(session.config, vec![], opened, Vec::new());
    assert_eq!(after(&late.handle(SessionEvent::Opened, now(4_000))), Duration::ZERO);
}

#[test]
fn polls_for_its_slots_and_once_runs_are_known_to_be_short_for_a_reserve() {
    let (mut session, actions) = opened();
    assert_eq!(polls(&actions), [(1, 2)]);
    let actions = session.handle(SessionEvent::Polled(Ok(assignments(1..3))), now(1));
    assert_eq!((starts(&actions), polls(&actions)), (2, vec![]));
    let actions = session.handle(ended(1), now(2));
    assert_eq!(polls(&actions), [(2, 3)], "a slot and a reserve of two, although an outcome is being told");
    let actions = session.handle(SessionEvent::Polled(Ok(assignments(3..5))), now(3));
    assert_eq!(starts(&actions), 1);
    session.handle(SessionEvent::Reported(Ok(vec![ReportAnswer::Accepted])), now(4));
    let actions = session.handle(SessionEvent::Polled(Ok(vec![])), now(2_000));
    assert_eq!(polls(&actions), [], "what runs takes long by now: no reserve is needed");
}

fn running(session: &WorkerSession) -> Vec<u32> {
    session.running.keys().map(|lease| lease.execution.occurrence.number).collect()
}

/// Ends everything that the session runs and starts from then on, and returns the capacities of its polls.
fn run_all(session: &mut WorkerSession, ms: u64) -> Vec<usize> {
    let mut capacities = Vec::new();
    while !session.running.is_empty() {
        for number in running(session) {
            let actions = session.handle(ended(number), now(ms));
            capacities.extend(polls(&actions).into_iter().map(|(_, capacity)| capacity));
        }
    }
    capacities
}

#[test]
fn the_next_poll_leaves_when_a_quarter_of_the_places_is_free_and_waits_for_no_report() {
    let (mut session, _) = opened_with(2, 6);
    session.handle(SessionEvent::Polled(Ok(assignments(1..3))), now(1));
    assert_eq!(polls(&session.handle(ended(1), now(2))), [(2, 7)], "runs are known to be short");
    let actions = session.handle(SessionEvent::Polled(Ok(assignments(3..10))), now(3));
    assert_eq!(polls(&actions), [], "all eight places are taken");
    assert_eq!(polls(&session.handle(ended(2), now(3))), [], "one of eight is free");
    assert_eq!(polls(&session.handle(ended(3), now(3))), [(3, 2)], "two are, and no report has returned");
}

#[test]
fn outcomes_that_nobody_acknowledges_end_the_polls_and_bound_the_leases() {
    let (slots, prefetch) = (4, 20);
    let (mut session, actions) = opened_with(slots, prefetch);
    let mut asked: Vec<usize> = polls(&actions).into_iter().map(|(_, capacity)| capacity).collect();
    let (mut next, mut held_max) = (1, 0);
    while let Some(capacity) = asked.pop() {
        assert!(next < 1_000, "it polls without an end");
        let granted = assignments(next..next + capacity as u32);
        next += capacity as u32;
        let actions = session.handle(SessionEvent::Polled(Ok(granted)), now(1));
        asked.extend(polls(&actions).into_iter().map(|(_, capacity)| capacity));
        held_max = held_max.max(session.held().len());
        asked.extend(run_all(&mut session, 1));
    }
    assert_eq!((session.held().len(), held_max), (slots + 2 * prefetch, slots + 2 * prefetch));
    let told = session.reporting.len();
    let answers = vec![ReportAnswer::Accepted; told];
    let actions = session.handle(SessionEvent::Reported(Ok(answers)), now(2));
    assert_eq!(polls(&actions).len(), 1, "with an answer it goes on");
}

fn ranked(number: u32, rank: i64) -> Assignment {
    Assignment { rank, ..assignment(number) }
}

fn started(actions: &[SessionAction]) -> Vec<u32> {
    let number = |action: &SessionAction| match action {
        SessionAction::Start { assignment, .. } => Some(assignment.execution.occurrence.number),
        _ => None,
    };
    actions.iter().filter_map(number).collect()
}

#[test]
fn of_what_is_held_the_lowest_rank_starts_first_and_equals_as_they_came() {
    let (mut session, _) = opened();
    let came = vec![ranked(1, 50), ranked(2, 50), ranked(3, 70), ranked(4, 60), ranked(5, 60)];
    assert_eq!(started(&session.handle(SessionEvent::Polled(Ok(came)), now(1))), [1, 2]);
    session.handle(SessionEvent::Polled(Ok(vec![ranked(6, 60), ranked(7, 10)])), now(2));
    let mut order = Vec::new();
    for number in [1, 2, 7, 4, 5] {
        order.extend(started(&session.handle(ended(number), now(3))));
    }
    assert_eq!(order, [7, 4, 5, 6, 3]);
}

#[test]
fn what_has_been_held_for_too_long_goes_back_wherever_it_stands_in_line() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(vec![ranked(1, 0), ranked(2, 0), ranked(3, 70)])), now(1));
    session.handle(SessionEvent::Polled(Ok(vec![ranked(4, 60), ranked(5, 80)])), now(300));
    let actions = session.handle(SessionEvent::HoldDue, now(501));
    assert_eq!(given_back(&actions), [assignment(3).lease()]);
}

fn given_back(actions: &[SessionAction]) -> Vec<LeaseRef> {
    let leases = |action: &SessionAction| match action {
        SessionAction::GiveBack(leases) => Some(leases.clone()),
        _ => None,
    };
    actions.iter().filter_map(leases).flatten().collect()
}

fn watches_held(actions: &[SessionAction]) -> bool {
    actions.iter().any(|action| matches!(action, SessionAction::After(_, SessionEvent::HoldDue)))
}

#[test]
fn what_is_held_for_too_long_goes_back_unstarted() {
    let (mut session, _) = opened();
    let actions = session.handle(SessionEvent::Polled(Ok(assignments(1..4))), now(1));
    assert!(starts(&actions) == 2 && watches_held(&actions), "{actions:?}");
    let actions = session.handle(SessionEvent::HoldDue, now(400));
    assert!(given_back(&actions).is_empty() && watches_held(&actions), "{actions:?}");
    let actions = session.handle(SessionEvent::HoldDue, now(501));
    assert_eq!(given_back(&actions), [assignment(3).lease()]);
    assert_eq!(polls(&actions), [], "it would only get the same again");
    assert_eq!(session.held().len(), 2);
    let actions = session.handle(SessionEvent::GaveBack(Ok(())), now(510));
    assert!(actions.is_empty(), "{actions:?}");
}

#[test]
fn what_may_not_have_gone_back_is_settled_by_a_resync() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..4))), now(1));
    session.handle(SessionEvent::HoldDue, now(501));
    let lost = SessionEvent::GaveBack(Err(WorkerPortError::Unavailable("gone".to_owned())));
    let actions = session.handle(lost, now(510));
    assert!(
        matches!(&actions[..], [SessionAction::Resync { turn: 2, held }] if held.len() == 2),
        "{actions:?}"
    );
}

#[test]
fn an_empty_answer_leaves_the_turn_for_the_next_poll() {
    let (mut session, _) = opened();
    let actions = session.handle(SessionEvent::Polled(Ok(vec![])), now(1));
    assert_eq!(polls(&actions), [(1, 2)]);
}

#[test]
fn a_lost_answer_is_followed_by_a_resync_with_all_that_is_held() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    session.handle(SessionEvent::Polled(Err(WorkerPortError::Unavailable("gone".to_owned()))), now(2));
    let actions = session.handle(SessionEvent::Rested, now(300));
    let held: Vec<LeaseRef> = assignments(1..2).iter().map(Assignment::lease).collect();
    assert!(
        matches!(&actions[..], [SessionAction::Resync { turn: 3, held: found }] if *found == held),
        "{actions:?}"
    );
    let actions = session.handle(SessionEvent::Resynced(Ok(())), now(301));
    assert_eq!(polls(&actions), [(4, 1)]);
}

#[test]
fn a_turn_that_nobody_here_used_is_followed_by_a_resync() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..5))), now(1));
    let known = BeatAnswer { now: Timestamp::EPOCH, turn: 1, cancel: vec![], drain: false };
    let actions = session.handle(SessionEvent::Beaten { sent_at: at(2), result: Ok(known.clone()) }, now(3));
    assert!(actions.is_empty(), "{actions:?}");
    let unknown = BeatAnswer { turn: 2, ..known };
    let actions = session.handle(SessionEvent::Beaten { sent_at: at(4), result: Ok(unknown) }, now(5));
    assert!(
        matches!(&actions[..], [SessionAction::Resync { turn: 2, held }] if held.len() == 4),
        "{actions:?}"
    );
}

#[test]
fn an_outcome_stays_held_until_it_is_acknowledged() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    let actions = session.handle(ended(1), now(2));
    assert!(
        actions.iter().any(|action| matches!(action, SessionAction::Report(reports) if reports.len() == 1))
    );
    assert_eq!(session.held().len(), 1);
    session.handle(SessionEvent::Reported(Err(WorkerPortError::Unavailable("gone".to_owned()))), now(3));
    assert_eq!(session.held().len(), 1);
    let actions = session.handle(SessionEvent::ReportRested, now(300));
    assert!(
        actions.iter().any(|action| matches!(action, SessionAction::Report(reports) if reports.len() == 1))
    );
    session.handle(SessionEvent::Reported(Ok(vec![ReportAnswer::AlreadyAccepted])), now(301));
    assert_eq!(session.held(), []);
}

#[test]
fn handlers_stop_when_the_last_confirmed_beat_grows_old() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    let answer = BeatAnswer { now: Timestamp::EPOCH, turn: 1, cancel: vec![], drain: false };
    session.handle(SessionEvent::Beaten { sent_at: at(1_200), result: Ok(answer) }, now(1_300));
    let actions = session.handle(SessionEvent::LeaseDue, now(4_800));
    assert!(session.take_end().is_none(), "the beat of 1,200 ms counts: {actions:?}");
    let actions = session.handle(SessionEvent::LeaseDue, now(6_000));
    assert!(matches!(actions[..], [.., SessionAction::StopAll]), "{actions:?}");
    assert!(matches!(session.take_end(), Some(SessionEnd::Lost(_))));
}

#[test]
fn nothing_starts_after_a_pause_longer_than_the_lease_whatever_event_comes_first() {
    let (mut session, _) = opened();
    let actions = session.handle(SessionEvent::Polled(Ok(assignments(1..3))), now(60_000));
    assert!(matches!(actions[..], [SessionAction::StopAll]), "{actions:?}");
    assert!(matches!(session.take_end(), Some(SessionEnd::Lost(_))));
}

#[test]
fn a_lost_session_keeps_the_outcomes_that_nobody_acknowledged() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..4))), now(1));
    session.handle(ended(1), now(2));
    session.handle(ended(2), now(3));
    session
        .handle(SessionEvent::Beaten { sent_at: at(4), result: Err(WorkerPortError::SessionLost) }, now(5));
    assert!(matches!(session.take_end(), Some(SessionEnd::Lost(reports)) if reports.len() == 2));
}

#[test]
fn a_cancel_stops_what_runs_and_ends_what_waits() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..4))), now(1));
    let cancel = vec![assignment(1).lease(), assignment(3).lease(), assignment(9).lease()];
    let answer = BeatAnswer { now: Timestamp::EPOCH, turn: 1, cancel, drain: false };
    let actions = session.handle(SessionEvent::Beaten { sent_at: at(2), result: Ok(answer) }, now(3));
    let stopped = |action: &SessionAction| matches!(action, SessionAction::Stop { lease, .. } if *lease == assignment(1).lease());
    assert!(actions.iter().any(stopped), "{actions:?}");
    let reported = |action: &SessionAction| matches!(action, SessionAction::Report(reports) if reports[0].lease == assignment(3).lease());
    assert!(actions.iter().any(reported), "{actions:?}");
}

#[test]
fn draining_gives_back_what_has_not_started_and_closes_when_the_rest_is_reported() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..4))), now(1));
    let actions = session.handle(SessionEvent::Drain, now(2));
    assert!(
        actions.iter().any(|action| matches!(action, SessionAction::GiveBack(leases) if leases.len() == 1))
    );
    assert_eq!(polls(&actions), []);
    session.handle(SessionEvent::GaveBack(Ok(())), now(3));
    session.handle(ended(1), now(4));
    session.handle(SessionEvent::Reported(Ok(vec![ReportAnswer::Accepted])), now(5));
    session.handle(ended(2), now(6));
    let actions = session.handle(SessionEvent::Reported(Ok(vec![ReportAnswer::Accepted])), now(7));
    assert!(matches!(actions[..], [SessionAction::Close]), "{actions:?}");
    session.handle(SessionEvent::Closed, now(8));
    assert!(matches!(session.take_end(), Some(SessionEnd::Drained)));
}

/// The draining flag of each heartbeat.
fn beats(actions: &[SessionAction]) -> Vec<bool> {
    let draining = |action: &SessionAction| match action {
        SessionAction::Beat { draining, .. } => Some(*draining),
        _ => None,
    };
    actions.iter().filter_map(draining).collect()
}

#[test]
fn a_draining_worker_says_so_at_once_and_with_every_beat() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    assert_eq!(beats(&session.handle(SessionEvent::BeatDue, now(2))), [false]);
    assert_eq!(beats(&session.handle(SessionEvent::Drain, now(3))), [true]);
    let failed = Err(WorkerPortError::Unavailable("away".to_owned()));
    assert!(
        beats(&session.handle(SessionEvent::Beaten { sent_at: at(3), result: failed }, now(4))).is_empty()
    );
    assert_eq!(beats(&session.handle(SessionEvent::BeatDue, now(5))), [true], "the other one may be lost");
}

#[test]
fn one_that_was_told_to_drain_need_not_say_so_and_one_that_holds_nothing_just_closes() {
    let told = || {
        let answer = BeatAnswer { now: Timestamp::EPOCH, turn: 0, cancel: vec![], drain: true };
        SessionEvent::Beaten { sent_at: at(2), result: Ok(answer) }
    };
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    assert!(beats(&session.handle(told(), now(3))).is_empty());
    let (mut idle, _) = opened();
    let actions = idle.handle(SessionEvent::Drain, now(1));
    assert!(beats(&actions).is_empty() && has(&actions, |action| matches!(action, SessionAction::Close)));
    // A heartbeat in flight may be answered after the close: that is not a loss.
    let lost = SessionEvent::Beaten { sent_at: at(1), result: Err(WorkerPortError::SessionLost) };
    idle.handle(lost, now(2));
    assert!(idle.take_end().is_none());
    idle.handle(SessionEvent::Closed, now(3));
    assert!(matches!(idle.take_end(), Some(SessionEnd::Drained)));
}

#[test]
fn past_the_grace_running_handlers_are_stopped_and_reported() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    session.handle(SessionEvent::Drain, now(2));
    let actions = session.handle(SessionEvent::GraceOver, now(30_002));
    let failed = |action: &SessionAction| {
        matches!(action, SessionAction::Stop { outcome: Outcome::Interrupted { .. }, .. })
    };
    assert!(actions.iter().any(failed), "{actions:?}");
}

/// A session with two slots, or up to `slots_max`, that requires a tenth of its memory to be free.
fn opened_within_limits(slots_max: usize) -> WorkerSession {
    let limits = HealthLimits { memory_free_min: Some(FreeMin::Percent(10)), ..HealthLimits::default() };
    let slots_max = Some(slots_max);
    let config =
        WorkerConfig { slots: 2, slots_max, prefetch: 2, lease: LEASE, limits, ..WorkerConfig::default() };
    let grant = SessionGrant { session: SessionId(7), now: Timestamp::from_micros(5_000_000) };
    let opened = OpenedSession { grant, sent_at: at(0), received: now(0) };
    WorkerSession::new(config, vec!["noop".to_owned()], opened, Vec::new())
}

fn memory(free: u64) -> SessionEvent {
    SessionEvent::Measured(Measured { memory: Some(Room { free, total: 100 }), ..Measured::default() })
}

fn has(actions: &[SessionAction], wanted: impl Fn(&SessionAction) -> bool) -> bool {
    actions.iter().any(wanted)
}

#[test]
fn a_worker_that_is_short_of_memory_takes_nothing_new_and_goes_on_with_what_runs() {
    let mut session = opened_within_limits(2);
    let actions = session.handle(SessionEvent::Opened, now(0));
    assert!(has(&actions, |action| matches!(action, SessionAction::Measure)));
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    let actions = session.handle(memory(5), now(2));
    assert!(has(&actions, |action| matches!(action, SessionAction::LeavePoll)), "{actions:?}");

    let actions = session.handle(SessionEvent::Polled(Ok(assignments(2..4))), now(3));
    let back = [assignment(2).lease(), assignment(3).lease()];
    assert_eq!((given_back(&actions).as_slice(), starts(&actions)), (&back[..], 0), "others may run these");
    session.handle(SessionEvent::GaveBack(Ok(())), now(4));
    assert_eq!(session.held(), [assignment(1).lease()], "what runs goes on");
    let actions = session.handle(ended(1), now(5));
    assert!(has(&actions, |action| matches!(action, SessionAction::Report(_))) && polls(&actions).is_empty());

    let actions = session.handle(SessionEvent::BeatDue, now(6));
    let told = actions.iter().find_map(|action| match action {
        SessionAction::Beat { condition, .. } => condition.clone(),
        _ => None,
    });
    let refuses = told.expect("it says so with its next heartbeat").refuses;
    assert_eq!(refuses, ["memory: 5 B of 100 B free, less than 10%"]);
    assert_eq!(polls(&session.handle(memory(11), now(7))), [], "not enough of it is free again");
    assert_eq!(polls(&session.handle(memory(50), now(8))).len(), 1);
}

#[test]
fn a_poll_that_was_left_is_followed_by_a_resync_even_while_work_is_refused() {
    let mut session = opened_within_limits(2);
    session.handle(SessionEvent::Opened, now(0));
    session.handle(memory(5), now(1));
    let left = WorkerPortError::Unavailable("left".to_owned());
    session.handle(SessionEvent::Polled(Err(left)), now(2));
    let actions = session.handle(SessionEvent::Rested, now(200));
    assert!(has(&actions, |action| matches!(action, SessionAction::Resync { .. })), "{actions:?}");
    let actions = session.handle(SessionEvent::Resynced(Ok(())), now(201));
    assert!(polls(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_look_at_the_machine_that_hangs_is_not_followed_by_another() {
    let mut session = opened_within_limits(2);
    let measures =
        |actions: &[SessionAction]| has(actions, |action| matches!(action, SessionAction::Measure));
    assert!(measures(&session.handle(SessionEvent::Opened, now(0))));
    assert!(!measures(&session.handle(SessionEvent::BeatDue, now(1))));
    session.handle(memory(50), now(2));
    assert!(measures(&session.handle(SessionEvent::BeatDue, now(3))));
}

#[test]
fn a_worker_whose_slots_are_full_asks_what_waits_and_makes_more() {
    let mut session = opened_within_limits(8);
    session.handle(SessionEvent::Opened, now(0));
    let actions = session.handle(SessionEvent::SlotsDue, now(1_000));
    let asks =
        |actions: &[SessionAction]| has(actions, |action| matches!(action, SessionAction::AskDemand(_)));
    assert!(!asks(&actions), "there are free slots");
    session.handle(SessionEvent::Polled(Ok(assignments(1..3))), now(1_001));
    let actions = session.handle(SessionEvent::SlotsDue, now(2_000));
    assert!(
        asks(&actions)
            && has(&actions, |action| matches!(action, SessionAction::After(_, SessionEvent::SlotsDue)))
    );
    let demand = Demand { queued: 10, oldest_wait: Duration::from_secs(1) };
    let actions = session.handle(SessionEvent::Demanded(Ok(demand)), now(2_001));
    assert_eq!(polls(&actions), [(2, 1)], "it has a third slot, and something for it is asked for");
    let away = WorkerPortError::Unavailable("away".to_owned());
    session.handle(SessionEvent::Demanded(Err(away)), now(9_000));
    assert_eq!(session.condition.slots(), 3, "what is not known changes nothing");
}

#[test]
fn a_draining_worker_returns_at_once_what_its_last_poll_may_have_been_granted() {
    let (mut session, _) = opened();
    session.handle(SessionEvent::Polled(Ok(assignments(1..2))), now(1));
    let actions = session.handle(SessionEvent::Drain, now(2));
    assert!(has(&actions, |action| matches!(action, SessionAction::LeavePoll)), "{actions:?}");
    let left = WorkerPortError::Unavailable("left".to_owned());
    session.handle(SessionEvent::Polled(Err(left)), now(3));
    let actions = session.handle(SessionEvent::Rested, now(203));
    let resyncs = actions.iter().find_map(|action| match action {
        SessionAction::Resync { held, .. } => Some(held.clone()),
        _ => None,
    });
    assert_eq!(resyncs, Some(vec![assignment(1).lease()]), "all but what runs goes back, while it runs");
    session.handle(SessionEvent::Resynced(Ok(())), now(204));
    assert!(
        session
            .handle(SessionEvent::BeatDue, now(300))
            .iter()
            .all(|action| !matches!(action, SessionAction::Poll(_)))
    );
}
