//! Cancelling jobs and single executions.

use super::fixture::{Harness, at, every, failed, job, job_with, lane, once, succeeded};
use punctual_core::control::{Refusal, Verb};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{CancelOutcome, CommitEffects, ControlOutcome, FireOutcome, ReportAnswer, Store};
use punctual_core::schedule::OverlapPolicy;
use std::sync::Arc;

pub async fn a_cancelled_job_does_not_fire(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let jobs = [
        job_with(1, |spec| spec.settings.schedule = once(100)),
        job_with(2, |spec| spec.settings.schedule = every(10)),
    ];
    for job in jobs {
        harness.submit(at(1), job.clone()).await;
        let cancelled = harness.done(at(2), job.id, Verb::Cancel).await;
        assert_eq!((cancelled.effects, cancelled.asked), (CommitEffects::default(), vec![]));
        let view = harness.view(job.id).await;
        assert_eq!((view.status(), view.schedule), (JobStatus::Cancelled, None));
        assert_eq!(harness.fire(at(100), job.id, 1).await, FireOutcome::Conflict);
    }
    assert_eq!(harness.due(at(9_999)).await, []);
}

pub async fn cancelling_a_job_ends_what_is_queued(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let cancelled = harness.done(at(2), job(1).id, Verb::Cancel).await;
    let execution = job(1).id.occurrence(1).attempt(1);
    assert_eq!(cancelled.effects.ended, [(execution, Status::Cancelled)]);
    assert_eq!(harness.status(job(1).id).await, JobStatus::Cancelled);
    assert_eq!(harness.ended(job(1).id).await, [(1, 1, Status::Cancelled)]);
    assert!(worker.is_idle(at(3)).await);
    assert_eq!(harness.dead_letters().await, []);
}

pub async fn cancelling_a_job_ends_what_waits_for_its_retry(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), failed(2)).await;
    harness.done(at(3), job(1).id, Verb::Cancel).await;
    assert_eq!(harness.ended(job(1).id).await, [(1, 1, Status::Failed), (1, 2, Status::Cancelled)]);
    assert_eq!(harness.due(at(9_999)).await, []);
}

pub async fn cancelling_a_job_asks_what_runs_to_stop(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    assert_eq!(worker.beat(at(3)).await, []);
    let cancelled = harness.done(at(4), job(1).id, Verb::Cancel).await;
    assert_eq!((cancelled.asked, cancelled.effects), (vec![running.execution], CommitEffects::default()));
    assert_eq!(worker.beat(at(5)).await, [running.lease()]);
    assert_eq!(harness.open(job(1).id).await.len(), 1, "it runs until its worker reports the end");
    worker.end(at(6), &running, succeeded(6)).await;
    assert_eq!(harness.ended(job(1).id).await, [(1, 1, Status::Cancelled)], "too late to succeed");
    assert_eq!(harness.status(job(1).id).await, JobStatus::Cancelled);
    assert_eq!(worker.beat(at(7)).await, []);
}

pub async fn a_cancelled_run_is_never_retried(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (mut worker, mut lost) = (harness.worker().await, harness.worker().await);
    for n in 1..=3 {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let (held, failing) = (worker.claim_one(at(5)).await, worker.claim_one(at(5)).await);
    let silent = lost.claim_one(at(5)).await;
    for n in 1..=3 {
        harness.done(at(6), job(n).id, Verb::Cancel).await;
    }
    let ended = vec![(held.execution, Status::Cancelled)];
    assert_eq!(worker.give_back(at(7), &held).await, CommitEffects { ended, ..CommitEffects::default() });
    let reported = harness.report(at(7), worker.session, &failing, failed(7)).await;
    assert_eq!((reported.recorded, reported.effects), (Some(Status::Cancelled), CommitEffects::default()));
    let recovered = lost.lose(at(9)).await;
    assert_eq!(recovered.ended, [(silent.execution, Status::Cancelled)]);
    assert_eq!(recovered.effects, CommitEffects::default());
    for n in 1..=3 {
        assert_eq!(harness.ended(job(n).id).await, [(1, 1, Status::Cancelled)], "job {n}");
        assert_eq!(harness.status(job(n).id).await, JobStatus::Cancelled, "job {n}");
    }
    assert_eq!(harness.dead_letters().await, []);
}

pub async fn cancelling_a_job_takes_all_its_occurrences(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = OverlapPolicy::Queue;
    });
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(30), job.id, 1).await;
    let running = worker.claim_one(at(31)).await;
    let cancelled = harness.done(at(32), job.id, Verb::Cancel).await;
    assert_eq!(cancelled.asked, [running.execution]);
    let ended = [2, 3].map(|number| (job.id.occurrence(number).attempt(1), Status::Cancelled));
    assert_eq!(cancelled.effects.ended, ended);
    assert_eq!(worker.end(at(33), &running, succeeded(33)).await, CommitEffects::default());
    assert_eq!(harness.open(job.id).await, []);
}

pub async fn a_paused_job_can_be_cancelled(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    harness.done(at(2), job(1).id, Verb::Pause).await;
    assert_eq!(harness.done(at(3), job(1).id, Verb::Cancel).await.effects.ended.len(), 1);
    assert_eq!(harness.status(job(1).id).await, JobStatus::Cancelled);
    assert_eq!(
        harness.refused(at(4), job(1).id, Verb::Resume).await,
        Refusal::Finished(JobStatus::Cancelled)
    );
}

pub async fn cancelling_twice_is_cancelling_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.claim_one(at(2)).await;
    harness.done(at(3), job(1).id, Verb::Cancel).await;
    let once = harness.view(job(1).id).await;
    let again = harness.done(at(4), job(1).id, Verb::Cancel).await;
    assert_eq!((again.asked, again.effects), (vec![], CommitEffects::default()));
    assert_eq!(harness.view(job(1).id).await, once);
    assert_eq!(harness.control(at(4), job(2).id, Verb::Cancel).await, ControlOutcome::NotThere);
}

pub async fn what_has_finished_cannot_be_cancelled(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), succeeded(2)).await;
    let refusal = harness.refused(at(3), job(1).id, Verb::Cancel).await;
    assert_eq!(refusal, Refusal::Finished(JobStatus::Completed));
}

pub async fn cancelling_an_execution_that_has_not_started_ends_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let execution = job(1).id.occurrence(1).attempt(1);
    let ended = vec![(execution, Status::Cancelled)];
    let cancelled = CancelOutcome::Cancelled(CommitEffects { ended, ..CommitEffects::default() });
    assert_eq!(harness.cancel(at(2), execution).await, cancelled);
    assert_eq!(harness.cancel(at(3), execution).await, CancelOutcome::Finished);
    assert_eq!(harness.status(job(1).id).await, JobStatus::Cancelled, "no other occurrence was left");
    assert!(worker.is_idle(at(4)).await);
}

pub async fn cancelling_an_execution_that_runs_asks_its_worker(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    assert_eq!(harness.cancel(at(3), running.execution).await, CancelOutcome::Asked);
    assert_eq!(harness.cancel(at(4), running.execution).await, CancelOutcome::Asked, "repeating the request changes nothing");
    assert_eq!(harness.status(job(1).id).await, JobStatus::Active);
    assert_eq!(worker.beat(at(5)).await, [running.lease()]);
    worker.end(at(6), &running, failed(6)).await;
    assert_eq!(harness.ended(job(1).id).await, [(1, 1, Status::Cancelled)]);
    assert_eq!(harness.status(job(1).id).await, JobStatus::Cancelled);
}

pub async fn an_outcome_accepted_before_the_cancel_stands(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (execution, _) = worker.run(at(2), succeeded(2)).await;
    assert_eq!(harness.cancel(at(3), execution).await, CancelOutcome::Finished);
    assert_eq!(harness.status(job(1).id).await, JobStatus::Completed);
}

pub async fn cancelling_names_one_attempt(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (first, _) = worker.run(at(2), failed(2)).await;
    assert_eq!(harness.cancel(at(3), first).await, CancelOutcome::Finished);
    assert_eq!(harness.cancel(at(3), first.occurrence.attempt(3)).await, CancelOutcome::NotThere);
    assert_eq!(harness.cancel(at(3), job(2).id.occurrence(1).attempt(1)).await, CancelOutcome::NotThere);
    assert!(matches!(harness.cancel(at(3), first.occurrence.attempt(2)).await, CancelOutcome::Cancelled(_)));
    assert_eq!(harness.open(job(1).id).await, []);
}

pub async fn a_recurring_job_outlives_a_cancelled_execution(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let running = worker.claim_one(at(11)).await;
    harness.cancel(at(12), running.execution).await;
    let report = harness.report(at(13), worker.session, &running, succeeded(13)).await;
    assert_eq!((report.answer, report.is_retried), (ReportAnswer::Accepted, false));
    assert_eq!(harness.status(job.id).await, JobStatus::Active);
    let FireOutcome::Fired { effects, .. } = harness.fire(at(20), job.id, 2).await else {
        panic!("it is due")
    };
    assert_eq!(effects.queued, [lane()]);
}
