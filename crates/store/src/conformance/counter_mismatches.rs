//! Damaged counters in server stores, while stores continue to work.

use super::counts_agree;
use super::fixture::{Harness, at, job_with, succeeded};
use punctual_core::job::Job;
use punctual_core::limiter::QueueLimits;
use punctual_core::ports::Store;
use punctual_core::queue::QueueSettings;
use std::sync::Arc;

/// Runs that continue during checks and repairs.
const RUNS: u32 = 60;

/// A job with a limited key.
fn keyed(number: u32) -> Job {
    job_with(number, |spec| spec.settings.concurrency_key = Some("a".to_owned()))
}

async fn limited(store: Arc<dyn Store>) -> Harness {
    let limits = QueueLimits { key_concurrency: Some(1), ..QueueLimits::default() };
    let settings = QueueSettings { limits, ..QueueSettings::default() };
    let queue = keyed(1).spec.queue;
    store.set_queue(queue, settings).await.unwrap();
    Harness::new(store)
}

/// The statements damage counters; each time the check finds the mismatch, the repair fixes it, and the
/// counters are correct again.
pub(crate) async fn wrong_counters_are_found_and_repaired(
    store: Arc<dyn Store>,
    spoil: impl AsyncFn(&'static str),
    find: impl AsyncFn() -> Vec<String>,
    repair: impl AsyncFn() -> Vec<String>,
) {
    let harness = limited(store.clone()).await;
    for number in 1..=4 {
        harness.submit(at(1), keyed(number)).await;
    }
    let mut worker = harness.worker().await;
    worker.claim_one(at(2)).await;
    assert_eq!(find().await, Vec::<String>::new());
    let depths = store.depths().await.unwrap();
    for (sql, expected) in [
        ("UPDATE lane_tallies SET queued = queued + 5", "queued is "),
        ("UPDATE limiter_tallies SET in_use = in_use - 2", "in_use is -1 and should be 1"),
        ("UPDATE limiter_tallies SET waiting = waiting + 2", "waiting is 5 and should be 3"),
        ("UPDATE job_tally SET active = active - 3", "the counts of jobs: active is "),
        ("DELETE FROM lane_tallies", "running is 0 and should be 1"),
        ("DELETE FROM limiter_tallies", "waiting is 0 and should be 3, in_use is 0 and should be 1"),
        ("INSERT INTO limiter_tallies (limiter, waiting, in_use) VALUES (-7, 0, 4)", "(-7): in_use is 4"),
    ] {
        spoil(sql).await;
        let found = find().await;
        assert!(found.len() == 1 && found[0].contains(expected), "{sql}: {found:?}");
        assert_eq!(repair().await, found, "{sql}");
        assert_eq!((find().await, repair().await), (vec![], vec![]), "{sql}");
        assert_eq!(store.depths().await.unwrap(), depths, "{sql}");
        counts_agree(&*store).await;
    }
}

/// The counters of two connections are valid, but not their sum. Reads and writes go on, and a check reports it.
pub(crate) async fn counts_whose_sum_overflows_are_read_and_found(
    store: Arc<dyn Store>,
    spoil: impl AsyncFn(&'static str),
    find: impl AsyncFn() -> Vec<String>,
    repair: impl AsyncFn() -> Vec<String>,
) {
    let harness = Harness::new(store.clone());
    harness.submit(at(1), keyed(1)).await;
    for sql in [
        "UPDATE lane_tallies SET waiting = 9223372036854770000, queued = 9223372036854770000, \
         running = 9223372036854770000",
        "INSERT INTO lane_tallies (lane, shard, waiting, queued, running) \
         SELECT lane, shard + 1000, waiting, queued, running FROM lane_tallies",
        "UPDATE job_tally SET active = 9223372036854770000, dead_letters = 9223372036854770000",
        "INSERT INTO job_tally (shard, active, paused, completed, failed, cancelled, dead_letters) \
         SELECT shard + 1000, active, paused, completed, failed, cancelled, dead_letters FROM job_tally",
    ] {
        spoil(sql).await;
    }
    assert_eq!(store.depths().await.unwrap()[0].queued, i64::MAX.unsigned_abs());
    assert_eq!(store.job_counts().await.unwrap().active, i64::MAX.unsigned_abs());
    let limits = QueueLimits { concurrency: Some(1), ..QueueLimits::default() };
    let settings = QueueSettings { limits, ..QueueSettings::default() };
    store.set_queue(keyed(1).spec.queue, settings).await.unwrap();
    harness.submit(at(2), keyed(2)).await;
    let bounded = QueueSettings::holding(Some(5));
    store.set_queue(keyed(1).spec.queue, bounded).await.unwrap();
    store.set_queue(keyed(1).spec.queue, QueueSettings::default()).await.unwrap();
    let found = find().await;
    assert!(found.len() == 2 && found[0].contains("queued is 9223372036854775807"), "{found:?}");
    // A difference that large cannot be added to a counter: the rows are removed, and then counted again.
    spoil("DELETE FROM lane_tallies WHERE shard >= 1000").await;
    spoil("DELETE FROM job_tally WHERE shard >= 1000").await;
    assert_eq!(repair().await.len(), 2);
    assert_eq!(find().await, Vec::<String>::new());
    counts_agree(&*store).await;
}

/// A check during writes finds only real mismatches, and repairs, two at a time, fix only those.
pub(crate) async fn counters_are_repaired_while_others_change_them(
    store: Arc<dyn Store>,
    spoil: impl AsyncFn(&'static str),
    find: impl AsyncFn() -> Vec<String>,
    repair: impl AsyncFn() -> Vec<String>,
) {
    let harness = limited(store.clone()).await;
    harness.submit(at(1), keyed(RUNS + 1)).await;
    let worked = tokio::spawn(async move {
        let mut worker = harness.worker().await;
        for number in 1..=RUNS {
            harness.submit(at(1), keyed(number)).await;
            let _ = worker.run(at(2), succeeded(2)).await;
            harness
                .store
                .admit(at(3), harness.store.waiting_lines(None, 10).await.unwrap().items, 10)
                .await
                .unwrap();
        }
    });
    let mut looks = 0;
    while !worked.is_finished() {
        assert_eq!(find().await, Vec::<String>::new());
        spoil("UPDATE job_tally SET completed = completed + 1000").await;
        let (one, other) = futures_util::join!(repair(), repair());
        assert_eq!(one.len() + other.len(), 1, "{one:?} {other:?}");
        looks += 1;
    }
    worked.await.unwrap();
    assert!(looks > 0);
    assert_eq!(find().await, Vec::<String>::new());
    counts_agree(&*store).await;
}
