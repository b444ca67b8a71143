//! Occurrences that become due while others of the job are open.

use super::fixture::{Harness, at, behind, died, every, failed, job_with, lane, once, succeeded};
use punctual_core::control::{Update, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::Job;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{CancelOutcome, FireOutcome, LookOutcome, Store};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{OverlapPolicy, SkipRange, SkipReason};
use std::sync::Arc;

pub async fn queued_occurrences_start_one_after_the_other(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Queue);
    harness.submit(at(1), job.clone()).await;
    for round in 1..=3 {
        harness.fired(at(10 * i64::from(round)), job.id, round).await;
    }
    let waiting = behind(Gate::Overlap);
    assert_eq!(harness.open(job.id).await, [(1, LiveState::Queued), (2, waiting), (3, waiting)]);
    for number in 1..=3 {
        let claimed = worker.claim(at(40), 10).await;
        assert_eq!(claimed.iter().map(|next| next.execution.occurrence.number).collect::<Vec<_>>(), [number]);
        let effects = worker.end(at(41), &claimed[0], succeeded(41)).await;
        assert_eq!(effects.queued, if number < 3 { vec![lane()] } else { vec![] });
    }
    assert_eq!(harness.fired(at(50), job.id, 4).await.0, 2, "the occurrences of 40 and 50, of which one waits");
}

pub async fn the_line_moves_on_although_fewer_may_be_open_by_now(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Queue);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(30), job.id, 1).await;
    let mut spec = job.spec.clone();
    spec.settings.schedule = once(40);
    spec.settings.overlap = OverlapPolicy::Allow;
    spec.settings.max_open = 1;
    let update = Verb::Update(Box::new(Update { spec, expected_version: None }));
    harness.done(at(31), job.id, update).await;
    let version = harness.view(job.id).await.schedule.expect("it runs at 40").version;
    assert!(matches!(harness.fire(at(40), job.id, version).await, FireOutcome::Fired { .. }));
    let claimed = worker.claim(at(41), 10).await;
    assert_eq!(claimed.iter().map(|next| next.execution.occurrence.number).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(worker.end(at(42), &claimed[0], succeeded(42)).await.queued, [], "the fourth still runs");
    assert_eq!(worker.end(at(43), &claimed[1], succeeded(43)).await.queued, [lane()]);
}

pub async fn occurrences_queue_up_to_the_limit(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut job = recurring(OverlapPolicy::Queue);
    job.spec.settings.overlap_limit = 2;
    harness.submit(at(1), job.clone()).await;
    assert_eq!(harness.fired(at(20), job.id, 1).await.0, 2);
    let (fired, skipped, _) = harness.fired(at(50), job.id, 2).await;
    assert_eq!((fired, skipped), (1, 2));
    let range = SkipRange { first: at(40), last: at(50), count: 2, reason: SkipReason::Overlap };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
}

pub async fn the_line_moves_on_however_its_first_one_ends(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = recurring(OverlapPolicy::Queue);
    job.spec.settings.max_retries = 0;
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(50), job.id, 1).await;
    assert_eq!(worker.run(at(51), died(51)).await.1.queued, [lane()], "it died");

    let lost = worker.claim_one(at(52)).await;
    assert_eq!(worker.lose(at(60)).await.effects.queued, [lane()], "its worker was lost");
    assert_eq!(lost.execution.occurrence.number, 2);

    let queued = job.id.occurrence(3).attempt(1);
    let CancelOutcome::Cancelled(effects) = harness.cancel(at(61), queued).await else { panic!("it waits") };
    assert_eq!(effects.queued, [lane()], "it was cancelled before it started");

    let mut worker = harness.worker().await;
    let asked = worker.claim_one(at(62)).await;
    harness.cancel(at(63), asked.execution).await;
    assert_eq!(worker.give_back(at(64), &asked).await.queued, [lane()], "it was cancelled and returned");
    assert_eq!(worker.run(at(65), succeeded(65)).await.0.occurrence.number, 5);
    assert_eq!(harness.open(job.id).await, []);
}

pub async fn one_in_line_can_leave_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Queue);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(30), job.id, 1).await;
    let CancelOutcome::Cancelled(effects) = harness.cancel(at(31), job.id.occurrence(2).attempt(1)).await
    else {
        panic!("it waits");
    };
    assert_eq!(effects.queued, [], "the first one is still open");
    assert_eq!(worker.run(at(32), succeeded(32)).await.1.queued, [lane()]);
    assert_eq!(worker.claim_one(at(33)).await.execution.occurrence.number, 3);
}

pub async fn the_line_waits_for_the_retries_of_its_first_one(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = recurring(OverlapPolicy::Queue);
    job.spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![1_000] };
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(20), job.id, 1).await;
    let (first, effects) = worker.run(at(21), failed(21)).await;
    assert_eq!(effects.queued, []);
    assert_eq!(harness.open(job.id).await, [(1, behind(Gate::Time)), (2, behind(Gate::Overlap))]);
    assert!(matches!(harness.look(at(22), first.occurrence.attempt(2), None).await, LookOutcome::Opened(_)));
    assert_eq!(worker.run(at(23), succeeded(23)).await.1.queued, [lane()]);
}

pub async fn a_replaced_occurrence_that_has_not_started_is_cancelled(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Replace);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let FireOutcome::Fired { effects, skipped, .. } = harness.fire(at(20), job.id, 2).await else {
        panic!("it is due");
    };
    assert_eq!(effects.ended, [(job.id.occurrence(1).attempt(1), Status::Cancelled)]);
    assert_eq!((effects.queued, skipped), (vec![lane()], 0));
    assert_eq!(harness.open(job.id).await, [(2, LiveState::Queued)]);
    assert_eq!(harness.ended(job.id).await, [(1, 1, Status::Cancelled)]);
    assert_eq!(worker.claim(at(21), 10).await.len(), 1);
}

pub async fn a_replaced_run_is_asked_to_stop_and_its_successor_waits_for_the_end(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Replace);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let running = worker.claim_one(at(11)).await;
    let FireOutcome::Fired { effects, .. } = harness.fire(at(20), job.id, 2).await else {
        panic!("it is due")
    };
    assert!(effects.queued.is_empty() && effects.ended.is_empty());
    assert_eq!(harness.open(job.id).await[1], (2, behind(Gate::Overlap)));
    assert_eq!(worker.beat(at(21)).await, [running.lease()]);
    assert!(worker.is_idle(at(21)).await);
    assert_eq!(worker.end(at(22), &running, failed(22)).await.queued, [lane()]);
    assert_eq!(harness.ended(job.id).await, [(1, 1, Status::Cancelled)], "it is not retried");
    assert_eq!(worker.claim_one(at(23)).await.execution, job.id.occurrence(2).attempt(1));
}

pub async fn a_successor_starts_when_the_worker_of_the_replaced_run_is_lost(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (mut worker, mut other) = (harness.worker().await, harness.worker().await);
    let job = recurring(OverlapPolicy::Replace);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    worker.claim_one(at(11)).await;
    harness.fired(at(20), job.id, 2).await;
    let recovered = worker.lose(at(30)).await;
    assert_eq!(recovered.effects.queued, [lane()]);
    assert_eq!(other.run(at(31), succeeded(31)).await.0.occurrence.number, 2);
}

pub async fn a_successor_starts_when_the_replaced_run_is_given_back(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Replace);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let running = worker.claim_one(at(11)).await;
    harness.fired(at(20), job.id, 2).await;
    assert_eq!(worker.give_back(at(21), &running).await.queued, [lane()]);
    assert_eq!(harness.ended(job.id).await, [(1, 1, Status::Cancelled)]);
    assert_eq!(worker.claim_one(at(22)).await.execution.occurrence.number, 2);
}

pub async fn a_successor_that_waits_is_replaced_in_turn(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Replace);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let running = worker.claim_one(at(11)).await;
    harness.fired(at(20), job.id, 2).await;
    let FireOutcome::Fired { effects, .. } = harness.fire(at(30), job.id, 3).await else {
        panic!("it is due")
    };
    assert_eq!(effects.ended, [(job.id.occurrence(2).attempt(1), Status::Cancelled)]);
    assert_eq!(effects.queued, [], "the first one has not ended yet");
    assert_eq!(worker.end(at(31), &running, succeeded(31)).await.queued, [lane()]);
    assert_eq!(worker.claim_one(at(32)).await.execution.occurrence.number, 3);
}

pub async fn no_more_than_max_open_occurrences_are_open(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = recurring(OverlapPolicy::Allow);
    job.spec.settings.max_open = 2;
    harness.submit(at(1), job.clone()).await;
    let (fired, skipped, _) = harness.fired(at(40), job.id, 1).await;
    assert_eq!((fired, skipped), (2, 2));
    let range = SkipRange { first: at(30), last: at(40), count: 2, reason: SkipReason::Backlog };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
    worker.run(at(41), succeeded(41)).await;
    assert_eq!(harness.fired(at(50), job.id, 2).await.0, 1);
}

fn recurring(overlap: OverlapPolicy) -> Job {
    job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = overlap;
    })
}
