//! Pausing and resuming jobs.

use super::fixture::{
    Harness, at, behind, every, failed, job, job_with, lane, once, recurring_every, succeeded,
};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::job::JobStatus;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{ControlOutcome, DueKind, FireOutcome, LookOutcome, Store};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{Recurring, SkipRange, SkipReason};
use std::sync::Arc;

pub async fn a_pause_holds_what_is_queued(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.done(at(2), job(1).id, Verb::Pause).await;
    assert_eq!(harness.status(job(1).id).await, JobStatus::Paused);
    assert_eq!(harness.open(job(1).id).await, [(1, behind(Gate::Paused))]);
    assert!(worker.is_idle(at(3)).await);
    let resumed = harness.done(at(9), job(1).id, Verb::Resume).await;
    assert_eq!((resumed.effects.queued, resumed.skipped), (vec![lane()], 0));
    assert_eq!(harness.status(job(1).id).await, JobStatus::Active);
    assert_eq!(worker.claim_one(at(10)).await.execution, job(1).id.occurrence(1).attempt(1));
}

pub async fn a_pause_lets_what_runs_finish(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    let paused = harness.done(at(3), job(1).id, Verb::Pause).await;
    assert_eq!(paused.asked, []);
    assert_eq!(worker.beat(at(4)).await, []);
    worker.end(at(5), &running, succeeded(5)).await;
    assert_eq!(harness.status(job(1).id).await, JobStatus::Completed);
}

pub async fn a_paused_schedule_does_not_fall_due(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    assert_eq!(harness.done(at(2), job.id, Verb::Pause).await.effects.due, []);
    assert_eq!(harness.due(at(9_999)).await, []);
    let held = harness.view(job.id).await.schedule.expect("it has a future run");
    assert_eq!((held.nominal, held.due_at), (Some(at(100)), None));
    assert_eq!(harness.fire(at(100), job.id, 1).await, FireOutcome::Conflict);
    assert_eq!(harness.fire(at(100), job.id, held.version).await, FireOutcome::NotDue);
}

pub async fn a_one_time_job_whose_time_passed_in_a_pause_runs_late(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::Pause).await;
    let resumed = harness.done(at(200), job.id, Verb::Resume).await;
    let due = &resumed.effects.due[0];
    let DueKind::Schedule { version, .. } = due.what else { panic!("the schedule continues: {due:?}") };
    assert_eq!((due.at, resumed.skipped, harness.due(at(200)).await), (at(100), 0, vec![at(100)]));
    assert_eq!(harness.fired(at(200), job.id, version).await.0, 1);
    assert_eq!(harness.view(job.id).await.open[0].scheduled_time, at(100));
}

pub async fn a_job_resumed_before_its_time_waits_for_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::Pause).await;
    harness.done(at(50), job.id, Verb::Resume).await;
    assert_eq!((harness.due(at(99)).await, harness.due(at(100)).await), (vec![], vec![at(100)]));
}

pub async fn what_fell_due_in_a_pause_is_skipped_as_one_range(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(5), job.id, Verb::Pause).await;
    let resumed = harness.done(at(35), job.id, Verb::Resume).await;
    assert_eq!((resumed.skipped, resumed.effects.due[0].at), (3, at(40)));
    let range = SkipRange { first: at(10), last: at(30), count: 3, reason: SkipReason::Paused };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
    assert_eq!(harness.done(at(36), job.id, Verb::Resume).await.skipped, 0, "once");
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
    let version = harness.view(job.id).await.schedule.expect("the schedule has further runs").version;
    let (fired, skipped, due) = harness.fired(at(40), job.id, version).await;
    assert_eq!((fired, skipped, due.expect("the schedule has further runs").at), (1, 0, at(50)));
}

pub async fn a_schedule_that_ended_in_a_pause_completes_the_job_on_resume(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let spec = RecurrenceSpec { end_at: Some(at(20)), ..recurring_every(10).recurrence.spec().clone() };
    let job = job_with(1, |job| {
        job.settings.schedule = Recurring::new(spec).expect("it is valid").into();
    });
    harness.submit(at(1), job.clone()).await;
    harness.done(at(5), job.id, Verb::Pause).await;
    let resumed = harness.done(at(100), job.id, Verb::Resume).await;
    assert_eq!((resumed.skipped, resumed.effects.due), (2, vec![]));
    let view = harness.view(job.id).await;
    assert_eq!((view.status(), view.schedule), (JobStatus::Completed, None));
}

pub async fn a_retry_that_falls_due_in_a_pause_waits_for_the_resume(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    harness.done(at(3), job(1).id, Verb::Pause).await;
    worker.end(at(4), &running, failed(4)).await;
    let gates = Gates::only(Gate::Time).with(Gate::Paused);
    assert_eq!(harness.open(job(1).id).await, [(1, LiveState::Waiting(gates))]);
    let next = running.execution.occurrence.attempt(2);
    let LookOutcome::Opened(effects) = harness.look(at(100), next, Some(worker.reservation())).await else {
        panic!("its time has come");
    };
    assert!(effects.queued.is_empty() && effects.assigned.is_empty() && effects.due.is_empty());
    assert!(worker.is_idle(at(100)).await);
    assert_eq!(harness.done(at(200), job(1).id, Verb::Resume).await.effects.queued, [lane()]);
    assert_eq!(worker.claim_one(at(201)).await.execution, next);
}

pub async fn what_comes_back_in_a_pause_is_held(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in [1, 2] {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let running = worker.claim(at(3), 2).await;
    for n in [1, 2] {
        harness.done(at(4), job(n).id, Verb::Pause).await;
    }
    assert_eq!(worker.give_back(at(5), &running[0]).await.queued, []);
    assert_eq!(worker.lose(at(9)).await.effects.queued, []);
    for n in [1, 2] {
        assert_eq!(harness.open(job(n).id).await, [(1, behind(Gate::Paused))]);
        assert_eq!(harness.done(at(10), job(n).id, Verb::Resume).await.effects.queued, [lane()]);
    }
}

pub async fn pausing_twice_is_pausing_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::Resume).await;
    assert_eq!(harness.due(at(10)).await, [at(10)], "it was not paused");
    harness.done(at(3), job.id, Verb::Pause).await;
    let once = harness.view(job.id).await;
    harness.done(at(4), job.id, Verb::Pause).await;
    assert_eq!(harness.view(job.id).await, once);
}

pub async fn what_has_finished_cannot_be_paused_or_resumed(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), succeeded(2)).await;
    for verb in [Verb::Pause, Verb::Resume] {
        let refusal = harness.refused(at(3), job(1).id, verb.clone()).await;
        assert_eq!(refusal, Refusal::Finished(JobStatus::Completed));
        assert_eq!(harness.control(at(3), job(2).id, verb).await, ControlOutcome::NotThere);
    }
}
