//! Histories with deliberate errors, and one without any.

use super::*;
use crate::member::UnorderedEnd;
use crate::nemesis::InjectedFault;
use crate::observed::{Attempts, ClientRequest, FoundExecution, FoundSkip, OverlapAllowed, Times};
use crate::plan::{DATABASE, FaultKind};
use crate::receiver::{NotificationTry, ReceivedEvent};
use crate::recorder::CallOutcome;
use punctual_client::ExecutionStatus;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use std::time::Duration;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_000_000_000_000 + millis * 1_000)
}

fn id(number: u64) -> JobId {
    JobId::new(at(0), number)
}

const EVERY_SECOND: u64 = 1;
const ONCE: u64 = 2;

/// A job that runs every second from 1 s to 4 s and skips overlaps: it was skipped at 3 s, because the second
/// occurrence took long and was lost once. And a job that runs once, at 2 s, after a failed attempt.
fn good() -> Observed {
    let mut observed = Observed { apis: vec!["api-1".into(), "api-2".into()], ..Observed::default() };
    let times = Times::Every { first: at(1_000), step: Duration::from_secs(1), last: at(4_000) };
    wish(&mut observed, "every", times, EVERY_SECOND);
    wish(&mut observed, "once", Times::Once { at: Some(at(2_000)) }, ONCE);
    run(&mut observed, (EVERY_SECOND, 1, 1), 1_000, 1_010..1_100, CallOutcome::Succeeded);
    run(&mut observed, (EVERY_SECOND, 2, 1), 2_000, 2_010..2_500, CallOutcome::BrokenOff);
    run(&mut observed, (EVERY_SECOND, 2, 2), 2_000, 2_600..3_500, CallOutcome::Succeeded);
    run(&mut observed, (EVERY_SECOND, 3, 1), 4_000, 4_010..4_100, CallOutcome::Succeeded);
    run(&mut observed, (ONCE, 1, 1), 2_000, 2_020..2_030, CallOutcome::Failed);
    run(&mut observed, (ONCE, 1, 2), 2_000, 2_600..2_700, CallOutcome::Succeeded);
    let skip = FoundSkip { first: at(3_000), last: at(3_000), count: 1, reason: SkipReason::Overlap };
    observed.jobs[0].skips.push(skip);
    observed
}

fn wish(observed: &mut Observed, key: &str, times: Times, number: u64) {
    observed.wishes.push(RequestedJob {
        key: key.to_owned(),
        times,
        overlap: OverlapAllowed::Skip,
        attempts: Attempts::UntilItSucceeds,
        acknowledged: Some(id(number)),
    });
    observed.jobs.push(FoundJob {
        id: id(number),
        key: Some(key.to_owned()),
        is_finished: true,
        executions: vec![],
        skips: vec![],
    });
}

/// A run in the record, and its attempt in history.
fn run(
    observed: &mut Observed,
    (job, occurrence, attempt): (u64, u32, u32),
    scheduled: i64,
    took: std::ops::Range<i64>,
    answer: CallOutcome,
) {
    let execution = id(job).occurrence(occurrence).attempt(attempt);
    let number = observed.runs.len() as u64 + 1;
    observed.runs.push(RecordedRun {
        number,
        execution,
        attempt,
        scheduled_time: at(scheduled),
        idempotency_key: execution.occurrence.to_string(),
        began: at(took.start),
        ended: Some((at(took.end), answer)),
    });
    let status = match answer {
        CallOutcome::Succeeded => ExecutionStatus::Succeeded,
        CallOutcome::Failed => ExecutionStatus::Failed,
        CallOutcome::BrokenOff => ExecutionStatus::Lost,
    };
    let job = observed.jobs.iter_mut().find(|found| found.id == id(job)).expect("a job");
    job.executions.push(FoundExecution {
        id: execution,
        scheduled_time: at(scheduled),
        status,
        worker: Some("worker-1".into()),
        completed_at: Some(at(took.end)),
        run: (answer == CallOutcome::Succeeded).then_some(number),
    });
}

/// The rules that are broken after a change.
fn broken(change: impl FnOnce(&mut Observed)) -> Vec<CheckedRule> {
    let mut observed = good();
    change(&mut observed);
    let mut rules: Vec<CheckedRule> =
        judge(&observed).violations.iter().map(|violation| violation.rule).collect();
    rules.sort();
    rules.dedup();
    rules
}

#[test]
fn a_good_run_passes_and_is_counted() {
    let verdict = judge(&good());
    assert_eq!(verdict.violations, []);
    let counted = verdict.counted;
    assert_eq!((counted.jobs, counted.occurrences_due, counted.fired), (2, 5, 4));
    assert_eq!((counted.skipped_for_overlap, counted.attempts, counted.runs), (1, 6, 6));
    assert_eq!((counted.lost_attempts, counted.failed_attempts), (1, 1));
}

#[test]
fn a_missed_fire_is_found() {
    let missed = |observed: &mut Observed| {
        observed.jobs[0].executions.retain(|one| one.scheduled_time != at(4_000));
        observed.runs.retain(|run| run.scheduled_time != at(4_000));
    };
    assert_eq!(broken(missed), [CheckedRule::Missed]);
    let never = |observed: &mut Observed| {
        observed.jobs[1].executions.clear();
        observed.runs.retain(|run| run.execution.occurrence.job != id(ONCE));
    };
    assert_eq!(broken(never), [CheckedRule::Missed]);
}

#[test]
fn an_extra_fire_is_found() {
    let twice = |observed: &mut Observed| {
        run(observed, (EVERY_SECOND, 4, 1), 4_000, 4_200..4_300, CallOutcome::Succeeded);
    };
    assert_eq!(broken(twice), [CheckedRule::Extra]);
    let between = |observed: &mut Observed| {
        run(observed, (EVERY_SECOND, 4, 1), 4_500, 4_600..4_700, CallOutcome::Succeeded);
    };
    assert_eq!(broken(between), [CheckedRule::Extra]);
    let once_more =
        |observed: &mut Observed| run(observed, (ONCE, 2, 1), 2_000, 2_800..2_900, CallOutcome::Succeeded);
    assert_eq!(broken(once_more), [CheckedRule::Extra]);
}

#[test]
fn a_fire_before_its_time_is_found() {
    assert_eq!(broken(|observed| observed.runs[0].began = at(999)), [CheckedRule::Early]);
}

#[test]
fn skips_need_a_reason() {
    let skips = |observed: &mut Observed, change: fn(&mut FoundSkip)| change(&mut observed.jobs[0].skips[0]);
    assert_eq!(
        broken(|observed| skips(observed, |skip| skip.reason = SkipReason::Misfire)),
        [CheckedRule::Missed]
    );
    assert_eq!(broken(|observed| skips(observed, |skip| skip.count = 2)), [CheckedRule::Missed]);
    // Nothing was open 20 s later that could have caused an overlap.
    let long_after = |observed: &mut Observed| {
        let last = at(24_000);
        observed.wishes[0].times = Times::Every { first: at(1_000), step: Duration::from_secs(1), last };
        let skip = FoundSkip { first: at(5_000), last, count: 20, reason: SkipReason::Overlap };
        observed.jobs[0].skips.push(skip);
    };
    assert_eq!(broken(long_after), [CheckedRule::Missed]);
    // A worker that could not report explains it.
    let unreported = |observed: &mut Observed| {
        long_after(observed);
        observed.faults.push(fault("worker-1", 4_050, 20_000));
    };
    assert_eq!(broken(unreported), []);
    let both = |observed: &mut Observed| {
        run(observed, (EVERY_SECOND, 4, 1), 3_000, 3_600..3_700, CallOutcome::Succeeded);
    };
    assert_eq!(broken(both), [CheckedRule::Extra]);
    let allowed = |observed: &mut Observed| observed.wishes[0].overlap = OverlapAllowed::Allow;
    assert_eq!(broken(allowed), [CheckedRule::Missed]);
}

#[test]
fn a_doubled_outcome_is_found() {
    // A lost attempt whose success was accepted after the next one had begun.
    let both = |observed: &mut Observed| {
        observed.jobs[0].executions[1].status = ExecutionStatus::Succeeded;
        observed.jobs[0].executions[1].run = Some(2);
        observed.runs[1].ended = Some((at(2_500), CallOutcome::Succeeded));
    };
    assert_eq!(broken(both), [CheckedRule::DoubledOutcome]);
    let gap = |observed: &mut Observed| {
        observed.jobs[1].executions.remove(0);
        observed.runs.remove(4);
    };
    assert_eq!(broken(gap), [CheckedRule::DoubledOutcome]);
}

#[test]
fn an_outcome_of_another_run_is_found() {
    assert_eq!(broken(|observed| observed.jobs[0].executions[2].run = Some(2)), [CheckedRule::StaleOutcome]);
    let unrun = |observed: &mut Observed| {
        observed.runs.remove(3);
    };
    assert_eq!(broken(unrun), [CheckedRule::StaleOutcome]);
}

#[test]
fn a_run_that_is_missing_from_history_is_found() {
    let unknown = |observed: &mut Observed| {
        observed.jobs[1].executions.pop();
    };
    assert_eq!(broken(unknown), [CheckedRule::UnknownRun, CheckedRule::GaveUp]);
    assert_eq!(broken(|observed| observed.runs[0].idempotency_key.clear()), [CheckedRule::UnknownRun]);
}

#[test]
fn an_attempt_that_ran_twice_is_found() {
    let again = |observed: &mut Observed| {
        let run = RecordedRun {
            number: 99,
            began: at(4_200),
            ended: Some((at(4_250), CallOutcome::Succeeded)),
            ..observed.runs[3].clone()
        };
        observed.runs.push(run);
    };
    assert_eq!(broken(again), [CheckedRule::RanTwice]);
    assert_eq!(broken(|observed| observed.wishes[1].attempts = Attempts::AtMostOne), [CheckedRule::RanTwice]);
}

#[test]
fn an_overlap_is_found_unless_a_paused_worker_could_not_stop() {
    let beside = |observed: &mut Observed| observed.runs[3].ended = Some((at(4_900), CallOutcome::Succeeded));
    assert_eq!(broken(beside), []);
    let overlapping = |observed: &mut Observed| {
        observed.runs[2].ended = Some((at(4_050), CallOutcome::Succeeded));
    };
    assert_eq!(broken(overlapping), [CheckedRule::Overlapped]);
    let late_stop =
        |observed: &mut Observed| observed.runs[1].ended = Some((at(2_700), CallOutcome::BrokenOff));
    assert_eq!(broken(late_stop), [CheckedRule::Overlapped]);
    let mut observed = good();
    late_stop(&mut observed);
    observed.faults.push(InjectedFault { kind: FaultKind::Pause, ..fault("worker-1", 2_100, 2_650) });
    let verdict = judge(&observed);
    assert_eq!((verdict.violations.len(), verdict.counted.overlaps_of_paused_workers), (0, 1));
}

#[test]
fn a_lost_submission_is_found_and_an_unanswered_one_may_exist_once() {
    let lost = |observed: &mut Observed| {
        observed.jobs.remove(1);
        observed.runs.truncate(4);
    };
    assert_eq!(broken(lost), [CheckedRule::LostSubmission]);
    let unanswered = |observed: &mut Observed| {
        lost(observed);
        observed.wishes[1].acknowledged = None;
    };
    assert_eq!(broken(unanswered), []);
    assert_eq!(broken(|observed| observed.wishes[1].acknowledged = None), []);
    let doubled = |observed: &mut Observed| {
        let mut second = observed.jobs[1].clone();
        second.id = id(3);
        second.executions.clear();
        observed.jobs.push(second);
    };
    assert_eq!(broken(doubled), [CheckedRule::Missed, CheckedRule::DoubledSubmission]);
}

#[test]
fn an_unfinished_job_is_found() {
    assert_eq!(broken(|observed| observed.jobs[1].is_finished = false), [CheckedRule::Unfinished]);
    let gave_up = |observed: &mut Observed| {
        observed.jobs[1].executions.pop();
        observed.runs.pop();
    };
    assert_eq!(broken(gave_up), [CheckedRule::GaveUp]);
    let running = |observed: &mut Observed| {
        observed.jobs[1].executions[1].status = ExecutionStatus::Running;
        observed.jobs[1].executions[1].completed_at = None;
    };
    assert_eq!(broken(running), [CheckedRule::Unfinished]);
}

#[test]
fn a_process_may_only_end_by_itself_when_it_cannot_start() {
    let end = |is_expected| {
        move |observed: &mut Observed| {
            let (member, status) = ("api-1".to_owned(), "exit status: 7".to_owned());
            observed.unordered_ends.push(UnorderedEnd { member, at: at(0), status, is_expected });
        }
    };
    assert_eq!(broken(end(true)), []);
    assert_eq!(broken(end(false)), [CheckedRule::EndedByItself]);
}

fn asked(from: i64, until: i64, failure: Option<&str>) -> ClientRequest {
    ClientRequest { from: at(from), until: at(until), tries: 2, failure: failure.map(str::to_owned) }
}

fn fault(target: &str, from: i64, until: i64) -> InjectedFault {
    let kind = if target == DATABASE { FaultKind::DatabaseKill } else { FaultKind::Kill };
    InjectedFault { kind, target: target.to_owned(), amount: 0, from: at(from), until: at(until) }
}

#[test]
fn a_failed_request_counts_if_a_node_could_have_answered() {
    let answered = |faults: Vec<InjectedFault>| {
        let mut observed = good();
        observed.asked.extend((0..999).map(|_| asked(0, 10, None)));
        observed.asked.push(asked(0, 20_000, Some("no")));
        observed.faults = faults;
        availability(&observed)
    };
    let counts = |answered: &Availability| (answered.failed, answered.failed_while_away);
    assert_eq!(counts(&answered(vec![])), (1, 0));
    assert!(answered(vec![]).is_enough(), "{}", answered(vec![]));
    let one_node = vec![fault("api-1", 0, 20_000)];
    assert_eq!(counts(&answered(one_node)), (1, 0));
    let both_nodes = vec![fault("api-1", 0, 15_000), fault("api-2", 0, 20_000)];
    assert_eq!(counts(&answered(both_nodes)), (0, 1));
    let database = vec![fault(DATABASE, 1_000, 16_000)];
    assert_eq!(counts(&answered(database)), (0, 1));
    let brief = vec![fault(DATABASE, 1_000, 3_000)];
    assert_eq!(counts(&answered(brief)), (1, 0));
}

#[test]
fn two_failed_requests_of_a_thousand_are_too_many() {
    let mut observed = good();
    observed.asked.extend((0..998).map(|_| asked(0, 10, None)));
    observed.asked.extend([asked(0, 20_000, Some("no")), asked(0, 20_000, Some("no"))]);
    let rules: Vec<CheckedRule> =
        judge(&observed).violations.iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, [CheckedRule::Unavailable]);
}

const FAILS: u64 = 3;

/// The good run, with a job that failed for good and one that did not run. The first try of a message was refused.
fn with_notifications() -> Observed {
    let mut observed = good();
    wish(&mut observed, "fails", Times::Once { at: Some(at(2_000)) }, FAILS);
    observed.wishes[2].attempts = Attempts::AtMostOne;
    run(&mut observed, (FAILS, 1, 1), 2_000, 2_010..2_020, CallOutcome::Failed);
    observed.unserved.push("unserved".to_owned());
    let execution = id(FAILS).occurrence(1).attempt(1);
    for (id, kind, name, execution_id, is_accepted) in [
        ("msg_1", "job.failed", "fails", Some(execution), false),
        ("msg_2", "job.missed", "unserved", None, true),
        ("msg_1", "job.failed", "fails", Some(execution), true),
    ] {
        observed.messages.push(NotificationTry {
            at: at(2_100),
            id: id.to_owned(),
            kind: kind.to_owned(),
            events: vec![ReceivedEvent { name: name.to_owned(), execution_id }],
            is_accepted,
        });
    }
    observed
}

#[test]
fn lost_and_doubled_messages_are_found() {
    let broken = |change: fn(&mut Observed)| {
        let mut observed = with_notifications();
        change(&mut observed);
        judge(&observed).violations.iter().map(|violation| violation.rule).collect::<Vec<_>>()
    };
    assert_eq!(broken(|_| {}), []);
    let counted = judge(&with_notifications()).counted;
    assert_eq!((counted.notifications_due, counted.notifications, counted.notification_tries), (2, 2, 3));
    let lost = [CheckedRule::LostNotification];
    assert_eq!(broken(|observed| observed.messages.retain(|one| one.kind != "job.failed")), lost);
    assert_eq!(broken(|observed| observed.messages.retain(|one| one.kind != "job.missed")), lost);
    assert_eq!(broken(|observed| observed.messages.truncate(2)), lost, "it was refused and not sent again");
    let renamed = |observed: &mut Observed| observed.messages[2].id = "msg_3".to_owned();
    assert_eq!(broken(renamed), [CheckedRule::LostNotification, CheckedRule::DoubledNotification]);
}
