//! Retention deletes unused rows, and no rows in use.

use super::fixture::{Harness, at, every, job_with, succeeded};
use punctual_core::control::{Update, Verb};
use punctual_core::job::{Job, JobSpec};
use punctual_core::limits;
use punctual_core::ports::{Horizon, Store};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// Rounds of retention after which everything that can be deleted is gone.
const ROUNDS: i64 = 6;
const DAY: i64 = 86_400;

fn in_queue(number: u32, queue: &str, change: impl FnOnce(&mut JobSpec)) -> Job {
    job_with(number, |spec| {
        spec.queue = queue.to_owned();
        change(spec);
    })
}

/// Runs retention repeatedly while time advances.
async fn sweep(harness: &Harness, now: Timestamp) {
    while harness.store.purge(now, 100).await.unwrap() {}
    for round in 0..ROUNDS {
        let now = now.shifted(round * DAY * 1_000_000);
        let horizon = Horizon { history: now, requests: now.minus(limits::REQUESTS_KEPT) };
        while harness.store.retain(horizon, 100).await.unwrap().more {}
        while harness.store.delete_unused(100).await.unwrap() {}
    }
}

/// Lanes that were used and have no work left. Their counters go without retention by age; the lanes of jobs that are
/// kept stay. `counters` counts the rows of the counters.
pub async fn counters_of_lanes_without_work_are_deleted(
    store: Arc<dyn Store>,
    counters: impl AsyncFn() -> i64,
) {
    const LANES: u32 = 25;
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 0..LANES {
        harness.submit(at(1), in_queue(number, &format!("used-{number}"), |_| {})).await;
        worker.run(at(2), succeeded(3)).await;
    }
    harness.submit(at(4), in_queue(LANES, "in use", |_| {})).await;
    // More than one step.
    while harness.store.delete_unused(10).await.unwrap() {}
    let depths = harness.store.depths().await.unwrap();
    let queues: Vec<&str> = depths.iter().map(|depth| depth.lane.queue()).collect();
    assert_eq!(queues, ["in use"]);
    let left = counters().await;
    assert!((1..=2).contains(&left), "{left} rows are left");
    assert_eq!(harness.view(job_with(0, |_| {}).id).await.job.spec.queue, "used-0");
}

pub async fn a_lane_that_went_with_its_last_job_is_there_again_for_the_next(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for round in 0..3_u32 {
        let now = i64::from(round) * 1_000;
        // Another lane is created last, so that the number of this one is not the highest.
        for (number, queue) in [(round * 2, "mail"), (round * 2 + 1, "other")] {
            harness.submit(at(now + 1), in_queue(number, queue, |_| {})).await;
            let claimed = worker.claim_one(at(now + 2 + i64::from(number % 2))).await;
            assert_eq!(claimed.queue, queue);
            worker.end(at(now + 3), &claimed, succeeded(now + 3)).await;
            harness.done(at(now + 4), claimed.execution.occurrence.job, Verb::Delete).await;
        }
        sweep(&harness, at(now + 100)).await;
        assert_eq!(harness.store.depths().await.unwrap().len(), 0);
    }
}

pub async fn names_in_use_stay(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_queue(1, "finished", |_| {})).await;
    let (finished, _) = worker.run(at(2), succeeded(3)).await;
    harness.submit(at(4), in_queue(2, "to come", |spec| spec.settings.schedule = every(1_000_000))).await;
    harness.submit(at(5), in_queue(3, "queued", |_| {})).await;
    harness.submit(at(6), in_queue(4, "last", |_| {})).await;
    sweep(&harness, at(100)).await;
    let queue_of = async |number| harness.view(job_with(number, |_| {}).id).await.job.spec.queue;
    assert_eq!(queue_of(1).await, "finished", "a job that is kept is in its queue");
    assert_eq!(queue_of(2).await, "to come");
    assert_eq!(finished.occurrence.job, job_with(1, |_| {}).id);
    let queues: Vec<String> =
        harness.store.depths().await.unwrap().iter().map(|depth| depth.lane.queue().to_owned()).collect();
    assert_eq!(queues, ["queued", "last"]);
    assert_eq!(worker.claim(at(7), 10).await.len(), 2);
    let sessions = harness.store.sessions().await.unwrap();
    assert_eq!(sessions.len(), 1, "the name of a connected worker stays");
}

pub async fn a_job_moves_to_a_lane_that_was_deleted(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_queue(1, "gone", |_| {})).await;
    let (gone, _) = worker.run(at(2), succeeded(3)).await;
    harness.submit(at(4), in_queue(2, "kept", |_| {})).await;
    harness.done(at(5), gone.occurrence.job, Verb::Delete).await;
    sweep(&harness, at(100)).await;
    let mut moved = harness.view(job_with(2, |_| {}).id).await.job;
    moved.spec.queue = "gone".to_owned();
    let update = Update { spec: moved.spec, expected_version: None };
    harness.done(at(101), moved.id, Verb::Update(Box::new(update))).await;
    assert_eq!(worker.claim_one(at(102)).await.queue, "gone");
}

/// More lanes than claims query one by one.
const MANY: u32 = 300;

pub async fn claims_find_what_is_queued_among_many_lanes(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let queue = |number: u32| format!("queue {number}");
    for number in 0..MANY {
        harness.submit(at(1), in_queue(number, &queue(number), |_| {})).await;
    }
    let mut seconds = 2;
    let mut run = 0;
    while run < MANY as usize {
        seconds += 1;
        let claimed = worker.claim(at(seconds), 50).await;
        assert_eq!(claimed.len(), 50, "after {run}");
        for assignment in &claimed {
            worker.end(at(seconds), assignment, succeeded(seconds)).await;
        }
        run += claimed.len();
    }
    assert!(worker.is_idle(at(seconds)).await);
    // The process that queues an execution in an empty lane finds it at once.
    harness.submit(at(seconds), in_queue(MANY, &queue(7), |_| {})).await;
    assert_eq!(worker.claim_one(at(seconds)).await.queue, queue(7));
}
