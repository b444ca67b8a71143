//! Every change of a live row, case by case.

use super::*;
use crate::ids::JobId;
use crate::recurrence::RecurrenceSpec;
use crate::retry::RetryPolicy;
use crate::schedule::{OverlapPolicy, Recurring};

const HOLDER: SessionId = SessionId(1);
const OTHER: SessionId = SessionId(2);
const RETRY_DELAY: Duration = Duration::from_secs(5);
const SNOOZE: Duration = Duration::from_secs(70);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
}

fn fired() -> Live {
    let id = JobId::new(at(0), 1).occurrence(1);
    Live::fired(id, at(0), Origin::Schedule, 1, Priority::DEFAULT, at(0), Duration::ZERO)
}

fn running() -> Live {
    fired().claimed(HOLDER, 1, at(1)).unwrap()
}

fn cancel_requested() -> Live {
    match running().cancelled(None, at(2)).unwrap() {
        Cancelled::Requested(live) => live,
        Cancelled::Closed(settled) => panic!("a running execution ended by a request: {settled:?}"),
    }
}

fn terms(settings: &Settings) -> Option<Terms<'_>> {
    Some(Terms { settings, mark: StoredStatus::Active })
}

fn paused(settings: &Settings) -> Option<Terms<'_>> {
    Some(Terms { settings, mark: StoredStatus::Paused })
}

fn one_shot(max_retries: u32) -> Settings {
    let retry = RetryPolicy::Ladder { steps_ms: vec![RETRY_DELAY.as_millis() as u64] };
    Settings { max_retries, retry, ..Settings::default() }
}

fn recurring(max_retries: u32) -> Settings {
    let schedule = Recurring::new(RecurrenceSpec::interval("60s", at(0))).unwrap().into();
    Settings { schedule, overlap: OverlapPolicy::Allow, ..one_shot(max_retries) }
}

fn end(ending: Ending) -> ReportedEnd {
    let error = (ending == Ending::Failed).then(|| "out of paper".to_owned());
    let next_at = (ending == Ending::Snoozed).then_some(ChosenTime::After(SNOOZE));
    let (started_at, completed_at) = (Some(at(1)), at(9));
    ReportedEnd { ending, retryable: true, next_at, started_at, completed_at, error, result: None }
}

fn next(settled: Settled) -> Live {
    match settled.next {
        Next::Retry(live) => live,
        closed => panic!("no further attempt: {closed:?}"),
    }
}

#[test]
fn a_claim_leases_to_the_session_and_raises_the_epoch() {
    let live = running();
    let lease = Lease { session: HOLDER, claimed_at: at(1), cancel_requested: false };
    assert_eq!(live, Live { state: LiveState::Running(lease), epoch: Epoch(1), ..fired() });
    assert!(live.claimed(OTHER, 1, at(2)).is_err());
}

#[test]
fn a_lease_is_held_only_by_its_session_in_its_epoch_and_attempt() {
    let live = running();
    let execution = live.execution();
    assert!(live.held_by(HOLDER, execution, Epoch(1)).is_some());
    assert_eq!(live.held_by(OTHER, execution, Epoch(1)), None);
    assert_eq!(live.held_by(HOLDER, execution, Epoch(0)), None);
    assert_eq!(live.held_by(HOLDER, execution, Epoch(2)), None);
    assert_eq!(live.held_by(HOLDER, live.id.attempt(2), Epoch(1)), None);
    assert_eq!(fired().held_by(HOLDER, execution, Epoch(0)), None);
}

#[test]
fn given_back_is_neither_charged_nor_numbered_and_keeps_its_place_and_epoch() {
    let given_back = running().given_back(None, at(5)).unwrap();
    assert_eq!(given_back, GivenBack::Queued(Live { epoch: Epoch(1), ..fired() }));
    assert!(fired().given_back(None, at(5)).is_err());
}

#[test]
fn given_back_after_a_cancel_request_ends_cancelled() {
    let given_back = cancel_requested().given_back(terms(&one_shot(3)), at(5)).unwrap();
    let GivenBack::Closed(Settled { finished, next }) = given_back else {
        panic!("queued again although a cancel was requested");
    };
    assert_eq!(next, Next::Closed { dead_letter: false, job_mark: Some(StoredStatus::Cancelled) });
    assert_eq!((finished.status, finished.completed_at), (Status::Cancelled, at(5)));
    assert_eq!(finished.session, Some(HOLDER));
}

#[test]
fn nothing_ends_before_it_starts_however_far_a_node_lies_behind() {
    let claimed_at = at(1);
    let GivenBack::Closed(given_back) = cancel_requested().given_back(None, at(-3)).unwrap() else {
        panic!("queued again although a cancel was requested");
    };
    let late = ReportedEnd { started_at: Some(at(-5)), completed_at: at(-4), ..end(Ending::Succeeded) };
    let lost = ReportedEnd::lost(claimed_at, at(-2));
    let settled = [late, lost].map(|end| running().settled(end, None, at(-2)).unwrap());
    for Settled { finished, .. } in settled.into_iter().chain([given_back]) {
        assert_eq!((finished.started_at, finished.completed_at), (Some(claimed_at), claimed_at));
    }
}

#[test]
fn nothing_starts_before_it_was_available_however_long_its_claim_was_held_up() {
    let retried = Live { available_at: at(12), attempt: 2, charged: 1, ..fired() };
    let claimed = retried.claimed(HOLDER, 1, at(3)).unwrap();
    let LiveState::Running(lease) = claimed.state else { panic!("{:?}", claimed.state) };
    let lost = ReportedEnd::lost(lease.claimed_at, at(20));
    let early = ReportedEnd { started_at: Some(at(4)), completed_at: at(5), ..end(Ending::Succeeded) };
    for end in [lost, early] {
        let finished = claimed.settled(end, None, at(20)).unwrap().finished;
        assert_eq!((finished.available_at, finished.started_at), (at(12), Some(at(12))));
        assert!(finished.completed_at >= at(12));
    }
}

#[test]
fn only_the_last_gate_makes_ready_and_ranks_by_when_it_could_have_started() {
    let gates = Gates::only(Gate::Time).with(Gate::Paused);
    let waiting = Live { state: LiveState::Waiting(gates), available_at: at(10), rank: 0, ..fired() };
    let half_open = waiting.gate_opened(Gate::Time, at(11)).unwrap();
    assert_eq!(half_open, Live { state: LiveState::Waiting(Gates::only(Gate::Paused)), ..waiting });
    let ready = half_open.gate_opened(Gate::Paused, at(500)).unwrap();
    assert_eq!(ready.state, LiveState::Queued);
    assert_eq!(ready.rank, rank(at(10), Priority::DEFAULT, Duration::ZERO));
    assert!(ready.gate_opened(Gate::Paused, at(501)).is_err());
}

#[test]
fn no_gate_opens_under_a_running_execution() {
    for gate in Gate::ALL {
        assert!(running().gate_opened(gate, at(2)).is_err());
    }
}

#[test]
fn a_success_closes_the_occurrence_and_keeps_what_was_told() {
    let told = ReportedEnd { result: Some("42".to_owned()), ..end(Ending::Succeeded) };
    let settled = running().settled(told, None, at(10)).unwrap();
    assert_eq!(settled.next, Next::Closed { dead_letter: false, job_mark: None });
    let finished = settled.finished;
    assert_eq!((finished.id, finished.epoch), (fired().execution(), Epoch(1)));
    assert_eq!((finished.status, finished.session), (Status::Succeeded, Some(HOLDER)));
    assert_eq!((finished.started_at, finished.completed_at), (Some(at(1)), at(9)));
    assert_eq!((finished.result.as_deref(), finished.error), (Some("42"), None));
}

#[test]
fn what_does_not_run_cannot_end() {
    let waiting = Live { state: LiveState::Waiting(Gates::only(Gate::Time)), ..fired() };
    for live in [fired(), waiting] {
        for ending in Ending::ALL {
            assert!(live.settled(end(ending), terms(&one_shot(3)), at(10)).is_err());
        }
    }
}

#[test]
fn a_failure_waits_out_its_backoff_behind_the_time_gate() {
    for ending in [Ending::Failed, Ending::TimedOut] {
        let retry = next(running().settled(end(ending), terms(&one_shot(3)), at(10)).unwrap());
        assert_eq!(retry.state, LiveState::Waiting(Gates::only(Gate::Time)));
        assert_eq!((retry.attempt, retry.charged, retry.epoch), (2, 1, Epoch(1)));
        assert_eq!(retry.available_at, at(10).plus(RETRY_DELAY));
    }
}

#[test]
fn a_handler_may_choose_the_time_of_its_retry() {
    let settings = one_shot(3);
    let told = ReportedEnd { next_at: Some(ChosenTime::At(at(900))), ..end(Ending::Failed) };
    let retry = next(running().settled(told, terms(&settings), at(10)).unwrap());
    assert_eq!((retry.attempt, retry.charged, retry.available_at), (2, 1, at(900)));
    assert!(retry.is_closed_by(Gate::Time) && retry.input.as_ref().is_some_and(|input| input.chosen));

    let again = Live { state: running().state, ..retry };
    let later = next(again.settled(end(Ending::Failed), terms(&settings), at(910)).unwrap());
    assert_eq!(
        (later.available_at, later.input),
        (at(910).plus(RETRY_DELAY), None),
        "the policy decides again"
    );
}

#[test]
fn a_snooze_is_no_failure_until_there_were_too_many() {
    let settings = Settings { fail_on: vec!["".to_owned()], ..one_shot(0) };
    let mut live = running();
    for count in 1..=limits::SNOOZES_MAX {
        let settled = live.settled(end(Ending::Snoozed), terms(&settings), at(10)).unwrap();
        assert_eq!((settled.finished.status, &settled.finished.error), (Status::Snoozed, &None));
        let later = next(settled);
        assert_eq!((later.attempt, later.charged, later.available_at), (count + 1, 0, at(10).plus(SNOOZE)));
        assert_eq!(later.input.as_ref().map(|input| (input.snoozes, input.chosen)), Some((count, true)));
        assert!(later.is_closed_by(Gate::Time));
        live = Live { state: running().state, ..later };
    }
    let settled = live.settled(end(Ending::Snoozed), terms(&settings), at(10)).unwrap();
    assert_eq!(settled.finished.error.as_deref(), Some("the handler asked for more than 100 snoozes"));
    assert!(matches!(settled.next, Next::Closed { dead_letter: true, .. }), "it is charged: {settled:?}");
    assert_eq!(RunInput::redriven(live.input.as_ref()), None, "a redriven one may snooze again");
}

#[test]
fn a_loss_is_charged_and_requeued_at_once_at_its_old_rank() {
    let live = Live { rank: -7, ..running() };
    let settled = live.settled(ReportedEnd::lost(at(1), at(10)), terms(&one_shot(3)), at(10)).unwrap();
    assert_eq!(settled.finished.status, Status::Lost);
    let retry = next(settled);
    assert_eq!((retry.state, retry.rank, retry.available_at), (LiveState::Queued, -7, at(10)));
    assert_eq!((retry.attempt, retry.charged), (2, 1));
}

#[test]
fn a_job_that_loses_worker_after_worker_is_suspected_in_its_dead_letter() {
    let error = |live: Live, end: ReportedEnd| {
        let settled = live.settled(end, terms(&one_shot(2)), at(10)).unwrap();
        settled.finished.error.expect("an error")
    };
    let last = || Live { attempt: 3, charged: 2, ..running() };
    assert_eq!(
        error(last(), ReportedEnd::lost(at(1), at(10))),
        "the worker stopped responding in attempt 3, the last: a job that repeatedly loses its workers may \
         be crashing them"
    );
    assert_eq!(
        error(running(), ReportedEnd::lost(at(1), at(10))),
        "the worker stopped responding",
        "a retry is left"
    );
    let stopped = ReportedEnd {
        error: Some("the worker was shut down".to_owned()),
        ..ReportedEnd::lost(at(1), at(10))
    };
    assert_eq!(error(last(), stopped), "the worker was shut down", "that one is known not to be the job");
}

/// The statuses of all attempts of an occurrence whose runs all end this way, and how it was closed.
fn run_until_closed(ending: Ending, settings: &Settings) -> (Vec<Status>, Next) {
    let (mut live, mut statuses) = (fired(), vec![]);
    loop {
        if live.state != LiveState::Queued {
            live = live.gate_opened(Gate::Time, at(1_000)).unwrap();
        }
        let running = live.claimed(HOLDER, 1, at(1)).unwrap();
        let settled = running.settled(end(ending), terms(settings), at(10)).unwrap();
        assert_eq!(settled.finished.id.attempt as usize, statuses.len() + 1);
        statuses.push(settled.finished.status);
        match settled.next {
            Next::Retry(next) => live = next,
            closed => return (statuses, closed),
        }
    }
}

#[test]
fn three_retries_mean_four_attempts_and_then_a_dead_letter() {
    for (ending, status) in
        [(Ending::Failed, Status::Failed), (Ending::TimedOut, Status::TimedOut), (Ending::Lost, Status::Lost)]
    {
        let (statuses, closed) = run_until_closed(ending, &one_shot(3));
        assert_eq!(statuses, [status; 4]);
        assert_eq!(closed, Next::Closed { dead_letter: true, job_mark: Some(StoredStatus::Failed) });
    }
}

#[test]
fn no_retries_mean_at_most_once_even_when_lost() {
    for ending in [Ending::Failed, Ending::TimedOut, Ending::Lost] {
        assert_eq!(run_until_closed(ending, &one_shot(0)).0.len(), 1);
    }
}

#[test]
fn give_backs_use_up_no_attempt() {
    let mut live = fired();
    for _ in 0..10 {
        let GivenBack::Queued(queued) =
            live.claimed(HOLDER, 1, at(1)).unwrap().given_back(None, at(2)).unwrap()
        else {
            panic!("cancelled without a request");
        };
        live = queued;
    }
    let failed =
        live.claimed(HOLDER, 1, at(3)).unwrap().settled(end(Ending::Failed), terms(&one_shot(1)), at(4));
    let retry = next(failed.unwrap());
    assert_eq!((retry.attempt, retry.charged, retry.epoch), (2, 1, Epoch(11)));
}

#[test]
fn a_failure_that_no_retry_can_mend_goes_to_the_dead_letters_at_once() {
    let told = ReportedEnd { retryable: false, ..end(Ending::Failed) };
    let settled = running().settled(told, terms(&one_shot(3)), at(10)).unwrap();
    assert_eq!(settled.next, Next::Closed { dead_letter: true, job_mark: Some(StoredStatus::Failed) });
    assert_eq!(settled.finished.error.as_deref(), Some("out of paper"));
}

#[test]
fn a_recurring_job_is_not_marked_by_one_occurrence() {
    let failed = running().settled(end(Ending::Failed), terms(&recurring(0)), at(10)).unwrap();
    assert_eq!(failed.next, Next::Closed { dead_letter: true, job_mark: None });
    let cancelled = cancel_requested().settled(end(Ending::Cancelled), terms(&recurring(3)), at(10)).unwrap();
    assert_eq!(cancelled.next, Next::Closed { dead_letter: false, job_mark: None });
}

#[test]
fn nothing_is_retried_for_a_job_that_is_gone() {
    let settled = running().settled(end(Ending::Failed), None, at(10)).unwrap();
    assert_eq!(settled.next, Next::Closed { dead_letter: true, job_mark: None });
}

#[test]
fn cancelling_what_has_not_started_ends_it_without_a_holder() {
    let waiting = Live { state: LiveState::Waiting(Gates::only(Gate::Overlap)), ..fired() };
    for live in [fired(), waiting] {
        let cancelled = live.cancelled(terms(&recurring(3)), at(2)).unwrap();
        let Cancelled::Closed(Settled { finished, next }) = cancelled else {
            panic!("it has not started, so nobody can be asked to stop");
        };
        assert_eq!(next, Next::Closed { dead_letter: false, job_mark: None });
        assert_eq!((finished.status, finished.completed_at), (Status::Cancelled, at(2)));
        assert_eq!((finished.session, finished.started_at), (None, None));
    }
}

#[test]
fn cancelling_a_run_leaves_its_lease_and_is_asked_for_once() {
    let requested = cancel_requested();
    let lease = requested.held_by(HOLDER, requested.execution(), Epoch(1)).unwrap();
    assert!(lease.cancel_requested);
    assert!(requested.cancelled(None, at(3)).is_err());
}

#[test]
fn after_a_requested_cancel_every_ending_is_cancelled_and_none_is_retried() {
    for ending in Ending::ALL {
        let settled = cancel_requested().settled(end(ending), terms(&one_shot(3)), at(10)).unwrap();
        assert_eq!(settled.finished.status, Status::Cancelled, "{ending:?}");
        assert_eq!(
            settled.next,
            Next::Closed { dead_letter: false, job_mark: Some(StoredStatus::Cancelled) },
            "{ending:?}"
        );
    }
}

#[test]
fn ties_read_back_what_they_write() {
    for bits in 0..=31 {
        assert_eq!(OccurrenceFlags::from_bits(bits).unwrap().bits(), bits);
    }
    assert_eq!(OccurrenceFlags::from_bits(32), None);
}

#[test]
fn what_comes_back_while_its_job_is_paused_waits_for_the_resume() {
    let settings = one_shot(3);
    let held = LiveState::Waiting(Gates::only(Gate::Paused));
    let given_back = running().given_back(paused(&settings), at(5)).unwrap();
    assert_eq!(given_back, GivenBack::Queued(Live { state: held, ..running() }));
    let lost = running().settled(ReportedEnd::lost(at(1), at(5)), paused(&settings), at(5)).unwrap();
    assert_eq!(next(lost).state, held);
    let failed = running().settled(end(Ending::Failed), paused(&settings), at(5)).unwrap();
    assert_eq!(next(failed).state, LiveState::Waiting(Gates::only(Gate::Time).with(Gate::Paused)));
    let triggered =
        Live { flags: OccurrenceFlags { exempt: true, ..OccurrenceFlags::default() }, ..running() };
    let lost = triggered.settled(ReportedEnd::lost(at(1), at(5)), paused(&settings), at(5)).unwrap();
    assert_eq!(next(lost).state, LiveState::Queued);
}

#[test]
fn what_has_not_started_expires_and_what_runs_does_not() {
    let expiring = Live { expires_at: Some(at(20)), ..fired() };
    assert_eq!(expiring.look_at(), Some(at(20)));
    assert!(!expiring.is_expired(at(19)) && expiring.is_expired(at(20)));
    let Looked::Expired(settled) = expiring.looked_at(terms(&one_shot(3)), at(20)).unwrap() else {
        panic!("not expired");
    };
    assert_eq!((settled.finished.status, settled.finished.started_at), (Status::Expired, None));
    assert_eq!(settled.next, Next::Closed { dead_letter: false, job_mark: Some(StoredStatus::Failed) });
    let running = expiring.claimed(HOLDER, 1, at(19)).unwrap();
    assert_eq!(running.look_at(), None);
    assert!(!running.is_expired(at(30)) && running.expired(None, at(30)).is_err());
}

#[test]
fn a_retry_that_would_come_after_the_expiry_does_not_come() {
    let settings = one_shot(3);
    let until = |seconds| Live { expires_at: Some(at(seconds)), ..running() };
    let settled = until(15).settled(end(Ending::Failed), terms(&settings), at(10)).unwrap();
    assert_eq!(settled.next, Next::Closed { dead_letter: true, job_mark: Some(StoredStatus::Failed) });
    let retry = next(until(16).settled(end(Ending::Failed), terms(&settings), at(10)).unwrap());
    assert_eq!(retry.look_at(), Some(retry.available_at));
    let Looked::Expired(expired) = retry.looked_at(terms(&settings), at(16)).unwrap() else {
        panic!("not expired");
    };
    assert_eq!(expired.next, Next::Closed { dead_letter: true, job_mark: Some(StoredStatus::Failed) });
}

#[test]
fn a_failure_that_the_job_calls_final_is_not_retried() {
    let settings = Settings { fail_on: vec!["paper".to_owned()], ..one_shot(3) };
    let settled = running().settled(end(Ending::Failed), terms(&settings), at(10)).unwrap();
    assert_eq!(settled.next, Next::Closed { dead_letter: true, job_mark: Some(StoredStatus::Failed) });
}

#[test]
fn the_mark_of_a_verb_outlives_the_end_of_what_ran() {
    let settings = one_shot(0);
    for mark in [StoredStatus::Cancelled, StoredStatus::Deleted] {
        let terms = Some(Terms { settings: &settings, mark });
        let settled = cancel_requested().settled(end(Ending::Failed), terms, at(10)).unwrap();
        assert_eq!(settled.next, Next::Closed { dead_letter: false, job_mark: None });
    }
}
