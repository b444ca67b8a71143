//! Occurrences that expire if they have not started by a given time.

use super::fixture::{Harness, at, every, failed, job, job_with, lane, once, succeeded};
use punctual_core::control::Verb;
use punctual_core::ids::ExecutionId;
use punctual_core::job::{Expiry, Job, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::ports::{ClaimOutcome, CommitEffects, DueKind, FireOutcome, LookOutcome, Store};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::OverlapPolicy;
use std::sync::Arc;

pub async fn what_is_queued_expires_when_it_is_looked_at(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let effects = harness.submit(at(1), expiring(10)).await;
    let execution = job(1).id.occurrence(1).attempt(1);
    let what = DueKind::Live { occurrence: execution.occurrence, attempt: 1 };
    assert_eq!(effects.due.iter().map(|due| (due.at, due.what)).collect::<Vec<_>>(), [(at(11), what)]);
    assert_eq!((effects.queued, harness.due(at(11)).await), (vec![lane()], vec![at(11)]));
    assert_eq!(harness.look(at(10), execution, None).await, LookOutcome::NotDue);
    assert_eq!(harness.look(at(11), execution, None).await, LookOutcome::Expired(expired(execution)));
    let view = harness.view(job(1).id).await;
    assert_eq!((view.status(), view.open), (JobStatus::Failed, vec![]));
    let last = view.last_finished.expect("it has ended");
    assert_eq!((last.status, last.started_at, last.completed_at), (Status::Expired, None, at(11)));
    assert!(last.error.is_some(), "the reason is recorded for users");
    assert_eq!(harness.dead_letters().await, [], "an execution that never ran leaves no dead letter");
    assert_eq!(harness.look(at(12), execution, None).await, LookOutcome::Conflict);
    assert!(worker.is_idle(at(12)).await);
}

pub async fn what_has_expired_is_not_claimed(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), expiring(10)).await;
    harness.submit(at(2), job(2)).await;
    let session = harness.open_session("w").await;
    let outcome = harness.try_claim(at(11), session, 1, 1).await;
    let ClaimOutcome::Claimed { assignments, effects } = outcome else { panic!("{outcome:?}") };
    assert_eq!(effects, expired(job(1).id.occurrence(1).attempt(1)));
    assert_eq!(assignments[0].execution.occurrence.job, job(2).id, "it makes room for the next one");
    assert_eq!(harness.status(job(1).id).await, JobStatus::Failed);
}

pub async fn what_is_claimed_in_time_does_not_expire(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), expiring(10)).await;
    let running = worker.claim_one(at(10)).await;
    assert_eq!(harness.due(at(9_999)).await, []);
    assert_eq!(harness.look(at(20), running.execution, None).await, LookOutcome::Conflict);
    worker.end(at(30), &running, succeeded(30)).await;
    assert_eq!(harness.status(job(1).id).await, JobStatus::Completed);
}

pub async fn what_comes_back_after_its_expiry_is_not_claimed_again(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), expiring(10)).await;
    let running = worker.claim_one(at(2)).await;
    let effects = worker.give_back(at(20), &running).await;
    assert_eq!(effects.due.iter().map(|due| due.at).collect::<Vec<_>>(), [at(11)]);
    assert!(worker.is_idle(at(21)).await);
    assert_eq!(harness.ended(job(1).id).await, [(1, 1, Status::Expired)]);
}

pub async fn what_waits_for_its_retry_expires(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = expiring(100);
    job.spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![10_000] };
    harness.submit(at(1), job.clone()).await;
    let (first, effects) = worker.run(at(2), failed(2)).await;
    assert_eq!(effects.due[0].at, at(12), "the gate opens before it expires");
    let next = first.occurrence.attempt(2);
    assert_eq!(harness.look(at(101), next, None).await, LookOutcome::Expired(expired(next)));
    assert_eq!(harness.ended(job.id).await, [(1, 1, Status::Failed), (1, 2, Status::Expired)]);
    assert_eq!(harness.status(job.id).await, JobStatus::Failed);
    assert_eq!(harness.dead_letters().await[0].attempts, 2, "an execution that failed before can be redriven");
}

pub async fn a_retry_keeps_the_expiry_of_its_occurrence(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = expiring(100);
    job.spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![10_000] };
    harness.submit(at(1), job.clone()).await;
    let (first, _) = worker.run(at(2), failed(2)).await;
    let next = first.occurrence.attempt(2);
    let LookOutcome::Opened(effects) = harness.look(at(12), next, None).await else { panic!("it is due") };
    assert_eq!((effects.queued, effects.due[0].at), (vec![lane()], at(101)));
    assert_eq!(harness.look(at(101), next, None).await, LookOutcome::Expired(expired(next)));
}

pub async fn a_retry_that_would_come_after_the_expiry_is_a_dead_letter(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = expiring(30);
    job.spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![60_000] };
    harness.submit(at(1), job.clone()).await;
    assert_eq!(worker.run(at(2), failed(2)).await.1, CommitEffects::default());
    assert_eq!(harness.status(job.id).await, JobStatus::Failed);
    assert_eq!(harness.dead_letters().await[0].attempts, 1);
    assert_eq!(harness.due(at(9_999)).await, []);
}

pub async fn what_a_pause_holds_expires_all_the_same(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), expiring(10)).await;
    harness.done(at(2), job(1).id, Verb::Pause).await;
    assert_eq!(harness.due(at(11)).await, [at(11)]);
    let execution = job(1).id.occurrence(1).attempt(1);
    assert_eq!(harness.look(at(11), execution, None).await, LookOutcome::Expired(expired(execution)));
    assert_eq!(harness.status(job(1).id).await, JobStatus::Failed);
}

pub async fn each_fire_of_a_recurring_job_expires_for_itself(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = OverlapPolicy::Queue;
        spec.settings.expiry = Some(Expiry::AfterMs(15_000));
    });
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(20), job.id, 1).await;
    assert_eq!(harness.due(at(35)).await, [at(25), at(30), at(35)], "two expiries and the next fire");
    let first = job.id.occurrence(1).attempt(1);
    let LookOutcome::Expired(effects) = harness.look(at(25), first, None).await else { panic!("it is due") };
    assert_eq!((effects.ended, effects.queued), (vec![(first, Status::Expired)], vec![lane()]));
    assert_eq!(harness.status(job.id).await, JobStatus::Active);
    assert_eq!(worker.claim_one(at(26)).await.execution.occurrence.number, 2);
}

pub async fn an_offer_does_not_take_what_has_expired(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let expired_before = job_with(1, |spec| spec.settings.expiry = Some(Expiry::At(at(0))));
    let effects = harness.submit_to(at(1), expired_before, Some(worker.reservation())).await;
    assert_eq!((effects.assigned, effects.due[0].at), (vec![], at(0)));
    assert!(worker.is_idle(at(2)).await);
}

pub async fn a_run_found_after_its_expiry_ends_at_its_first_look(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| {
        spec.settings.schedule = once(100);
        spec.settings.expiry = Some(Expiry::At(at(110)));
    });
    harness.submit(at(1), job.clone()).await;
    let FireOutcome::Fired { effects, .. } = harness.fire(at(200), job.id, 1).await else {
        panic!("one-time jobs are never missed");
    };
    assert_eq!(effects.due.iter().map(|due| due.at).collect::<Vec<_>>(), [at(110)]);
    let execution = job.id.occurrence(1).attempt(1);
    assert_eq!(harness.look(at(200), execution, None).await, LookOutcome::Expired(expired(execution)));
    assert_eq!(harness.status(job.id).await, JobStatus::Failed);
}

pub async fn a_redriven_occurrence_does_not_expire(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = expiring(30);
    job.spec.settings.max_retries = 0;
    harness.submit(at(1), job.clone()).await;
    worker.run(at(2), failed(2)).await;
    assert_eq!(harness.redriven(at(500), job.id.occurrence(1)).await.effects.due, []);
    assert_eq!(worker.claim_one(at(600)).await.execution.attempt, 2);
}

/// Job 1, which expires this long after its time.
fn expiring(seconds: u64) -> Job {
    job_with(1, |spec| spec.settings.expiry = Some(Expiry::AfterMs(seconds * 1_000)))
}

/// The commit effects when an execution without dependents expires.
fn expired(execution: ExecutionId) -> CommitEffects {
    CommitEffects { ended: vec![(execution, Status::Expired)], ..CommitEffects::default() }
}
