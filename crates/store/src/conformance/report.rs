//! Reporting outcomes.

use super::fixture::{Harness, at, every, failed, job, job_with, succeeded, time_gate};
use punctual_core::ids::{Epoch, SegmentSet, SessionId};
use punctual_core::job::{Job, JobStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{Assignment, CommitEffects, LookOutcome, Report, ReportAnswer, Store};
use punctual_core::retry::{ChosenTime, RetryPolicy};
use std::sync::Arc;
use std::time::Duration;

pub async fn a_success_closes_the_occurrence(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    let end = ReportedEnd { started_at: Some(at(3)), completed_at: at(5), ..succeeded(5) };
    assert_eq!(harness.accept(at(6), session, &assignment, end).await, CommitEffects::default());
    let view = harness.view(job(1).id).await;
    assert_eq!((view.status(), view.open), (JobStatus::Completed, vec![]));
    let finished = view.last_finished.expect("it has run");
    assert_eq!((finished.id, finished.status), (assignment.execution, Status::Succeeded));
    assert_eq!((finished.started_at, finished.completed_at), (Some(at(3)), at(5)));
    assert_eq!((finished.scheduled_time, finished.available_at), (at(1), at(1)));
    assert_eq!((finished.session, finished.worker.as_deref()), (Some(session), Some("w")));
    assert_eq!((finished.result.as_deref(), finished.error, finished.epoch), (Some("42"), None, Epoch(1)));
}

pub async fn a_repeated_report_was_accepted_already(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    harness.accept(at(3), session, &assignment, succeeded(3)).await;
    let again = harness.report(at(4), session, &assignment, succeeded(3)).await;
    assert_eq!((again.answer, again.effects), (ReportAnswer::AlreadyAccepted, CommitEffects::default()));

    let (session, assignment) = run(&harness, job(2)).await;
    harness.accept(at(3), session, &assignment, failed(3)).await;
    let again = harness.report(at(4), session, &assignment, failed(3)).await;
    assert_eq!(again.answer, ReportAnswer::AlreadyAccepted, "also while the next attempt waits");
    let history = harness.store.history(job(2).id, None, 10).await.unwrap();
    assert_eq!(history.items.len(), 1);
}

pub async fn a_report_of_an_earlier_epoch_is_stale(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, first) = run(&harness, job(1)).await;
    harness.store.give_back(at(3), session, vec![first.lease()]).await.unwrap();
    assert_eq!(harness.report(at(4), session, &first, succeeded(4)).await.answer, ReportAnswer::Stale);
    let second = harness.claim_one(at(5), session, 2).await;
    assert_eq!(harness.report(at(6), session, &first, succeeded(6)).await.answer, ReportAnswer::Stale);
    harness.accept(at(7), session, &second, succeeded(7)).await;
    assert_eq!(harness.report(at(8), session, &first, succeeded(8)).await.answer, ReportAnswer::Stale);
}

pub async fn a_report_of_another_session_is_stale(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    let other = harness.open_session("other").await;
    assert_eq!(harness.report(at(3), other, &assignment, succeeded(3)).await.answer, ReportAnswer::Stale);
    harness.accept(at(4), session, &assignment, succeeded(4)).await;
    assert_eq!(harness.report(at(5), other, &assignment, succeeded(5)).await.answer, ReportAnswer::Stale);
}

pub async fn a_report_of_an_unknown_execution_is_stale(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    let unknown = Assignment { execution: job(99).id.occurrence(1).attempt(1), ..assignment };
    assert_eq!(harness.report(at(3), session, &unknown, succeeded(3)).await.answer, ReportAnswer::Stale);
}

pub async fn a_timed_out_attempt_is_retried(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    let end = ReportedEnd { ending: Ending::TimedOut, ..failed(3) };
    let (due_at, execution) = time_gate(&harness.accept(at(3), session, &assignment, end).await);
    assert_eq!(execution.attempt, 2);
    assert!(due_at > at(3));
    let last = harness.view(job(1).id).await.last_finished.expect("one attempt has ended");
    assert_eq!((last.status, last.id.attempt), (Status::TimedOut, 1));
}

pub async fn an_exhausted_job_fails_and_leaves_a_dead_letter(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| {
        spec.name = "nightly".to_owned();
        spec.settings.max_retries = 2;
        spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![1_000] };
    });
    let (session, mut assignment) = run(&harness, job.clone()).await;
    for attempt in 1..=2 {
        let now = at(10 * attempt);
        let (due_at, next) =
            time_gate(&harness.accept(now, session, &assignment, failed(10 * attempt)).await);
        assert_eq!(due_at, at(10 * attempt + 1));
        assert!(matches!(harness.look(due_at, next, None).await, LookOutcome::Opened(_)));
        assignment = harness.claim_one(due_at, session, attempt as u64 + 1).await;
        assert_eq!(i64::from(assignment.execution.attempt), attempt + 1);
    }
    assert_eq!(harness.accept(at(50), session, &assignment, failed(50)).await, CommitEffects::default());
    let view = harness.view(job.id).await;
    assert_eq!((view.status(), view.open.len()), (JobStatus::Failed, 0));
    let letters = harness.dead_letters().await;
    let letter = &letters[0];
    assert_eq!((letters.len(), letter.occurrence, letter.attempts), (1, job.id.occurrence(1), 3));
    assert_eq!((letter.died_at, letter.error.as_deref()), (at(50), Some("it broke")));
    assert_eq!(
        (letter.job_name.as_str(), letter.job_type.as_str(), letter.queue.as_str()),
        ("nightly", "report", "default")
    );
    let history = harness.store.history(job.id, None, 10).await.unwrap().items;
    let attempts: Vec<_> = history.iter().map(|finished| (finished.id.attempt, finished.status)).collect();
    assert_eq!(attempts, [(3, Status::Failed), (2, Status::Failed), (1, Status::Failed)]);
}

pub async fn an_error_that_is_not_retryable_ends_the_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    let end = ReportedEnd { retryable: false, ..failed(3) };
    assert_eq!(harness.accept(at(3), session, &assignment, end).await, CommitEffects::default());
    assert_eq!(harness.view(job(1).id).await.status(), JobStatus::Failed);
    assert_eq!(harness.dead_letters().await.len(), 1);
}

pub async fn a_snoozed_attempt_comes_again_and_is_not_charged(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job_with(1, |spec| spec.settings.max_retries = 0)).await;
    let snoozed = ReportedEnd {
        ending: Ending::Snoozed,
        next_at: Some(ChosenTime::After(Duration::from_secs(600))),
        error: None,
        ..failed(3)
    };
    let effects = harness.accept(at(3), session, &assignment, snoozed).await;
    assert_eq!(effects.due.iter().map(|due| due.at).collect::<Vec<_>>(), [at(603)]);
    let live = harness.view(job(1).id).await.open[0].clone();
    assert_eq!((live.attempt, live.charged, live.available_at), (2, 0, at(603)));
    assert_eq!(live.input.map(|input| (input.snoozes, input.chosen)), Some((1, true)));

    let next = job(1).id.occurrence(1).attempt(2);
    assert!(matches!(harness.look(at(603), next, None).await, LookOutcome::Opened(_)));
    let assignment = harness.claim_one(at(603), session, 2).await;
    harness.accept(at(604), session, &assignment, succeeded(604)).await;
    let history = harness.store.history(job(1).id, None, 10).await.unwrap().items;
    let attempts: Vec<_> = history.iter().map(|finished| (finished.id.attempt, finished.status)).collect();
    assert_eq!(attempts, [(2, Status::Succeeded), (1, Status::Snoozed)]);
    assert!(history[0].input.as_ref().is_some_and(|input| input.chosen), "it ran at the time that its handler chose");
    assert_eq!(harness.dead_letters().await.len(), 0);
}

pub async fn no_retries_means_at_most_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job_with(1, |spec| spec.settings.max_retries = 0)).await;
    assert_eq!(harness.accept(at(3), session, &assignment, failed(3)).await, CommitEffects::default());
    assert_eq!(harness.view(job(1).id).await.status(), JobStatus::Failed);
    assert_eq!(harness.claim(at(9_999), session, 2, 1).await, []);
    assert_eq!(harness.store.due(SegmentSet::ALL, at(9_999), 10).await.unwrap(), []);
}

pub async fn a_cancelled_run_ends_the_job_cancelled(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, assignment) = run(&harness, job(1)).await;
    let end = ReportedEnd { ending: Ending::Cancelled, error: None, ..failed(3) };
    assert_eq!(harness.accept(at(3), session, &assignment, end).await, CommitEffects::default());
    let view = harness.view(job(1).id).await;
    assert_eq!(view.status(), JobStatus::Cancelled);
    assert_eq!(view.last_finished.expect("it has run").status, Status::Cancelled);
    assert_eq!(harness.dead_letters().await, []);
}

pub async fn a_recurring_job_outlives_a_failed_occurrence(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.max_retries = 0;
    });
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let session = harness.open_session("w").await;
    let assignment = harness.claim_one(at(11), session, 1).await;
    harness.accept(at(12), session, &assignment, failed(12)).await;
    assert_eq!(harness.view(job.id).await.status(), JobStatus::Active);
    assert_eq!(harness.dead_letters().await.len(), 1);
    harness.fired(at(20), job.id, 2).await;
    let next = harness.claim_one(at(21), session, 2).await;
    assert_eq!(next.execution, job.id.occurrence(2).attempt(1));
}

pub async fn one_call_settles_many_reports_in_order(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    for n in 1..=3 {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let claimed = harness.claim(at(5), session, 1, 10).await;
    let report = |n: usize, end| Report { session, lease: claimed[n].lease(), end };
    let reports =
        vec![report(0, succeeded(6)), report(1, failed(6)), report(0, succeeded(6)), report(2, succeeded(6))];
    let outcomes = harness.store.report(at(7), reports).await.unwrap();
    let answers: Vec<_> = outcomes.iter().map(|outcome| outcome.answer).collect();
    use ReportAnswer::{Accepted, AlreadyAccepted};
    assert_eq!(answers, [Accepted, Accepted, AlreadyAccepted, Accepted]);
    assert!(outcomes[1].is_retried && outcomes[1].effects.due.len() == 1);
}

pub async fn an_error_that_the_job_calls_final_is_not_retried(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let picky = |number, fail_on: &str| {
        job_with(number, |spec| spec.settings.fail_on = vec!["no such thing".to_owned(), fail_on.to_owned()])
    };
    let timed_out = ReportedEnd { ending: Ending::TimedOut, error: None, ..failed(3) };
    let cases = [
        (picky(1, "broke"), failed(3), JobStatus::Failed),
        (picky(2, "TIMED_OUT"), timed_out.clone(), JobStatus::Failed),
        (picky(3, "out of paper"), failed(3), JobStatus::Active),
        (picky(4, "LOST"), timed_out, JobStatus::Active),
    ];
    for (job, end, status) in cases {
        let (session, assignment) = run(&harness, job.clone()).await;
        let outcome = harness.report(at(3), session, &assignment, end).await;
        assert_eq!(outcome.is_retried, status == JobStatus::Active, "{:?}", job.spec.settings.fail_on);
        assert_eq!(harness.status(job.id).await, status, "{:?}", job.spec.settings.fail_on);
    }
    assert_eq!(harness.dead_letters().await.len(), 2);
}

pub async fn a_loss_that_the_job_calls_final_is_not_retried(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let fragile = job_with(1, |spec| spec.settings.fail_on = vec!["LOST".to_owned()]);
    let (session, _) = run(&harness, fragile).await;
    let recovered = harness.lose_and_recover(at(9), session).await;
    assert_eq!((recovered.ended.len(), recovered.effects), (1, CommitEffects::default()));
    assert_eq!(harness.status(job(1).id).await, JobStatus::Failed);
}

pub async fn a_growing_timeout_grows_with_every_charged_attempt(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| {
        spec.settings.timeout_ms = 10_000;
        spec.settings.timeout_growth_pct = 150;
        spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![1_000] };
    });
    harness.submit(at(1), job.clone()).await;
    for (attempt, timeout_ms) in [(1, 10_000), (2, 15_000), (3, 22_500)] {
        let now = 10 * i64::from(attempt);
        let unstarted = worker.claim_one(at(now)).await;
        worker.give_back(at(now), &unstarted).await;
        let assignment = worker.claim_one(at(now)).await;
        assert_eq!(assignment.timeout, Duration::from_millis(timeout_ms), "attempt {attempt}");
        worker.end(at(now), &assignment, failed(now)).await;
        harness.look(at(now + 1), job.id.occurrence(1).attempt(attempt + 1), None).await;
    }
}

/// Submits a job and claims it, with the first poll of a new session.
async fn run(harness: &Harness, job: Job) -> (SessionId, Assignment) {
    let session = harness.open_session("w").await;
    harness.submit(at(1), job).await;
    let assignment = harness.claim_one(at(2), session, 1).await;
    (session, assignment)
}
