//! Logs and retention.

use super::fixture::{Harness, at, died, every, job, job_with, once, succeeded};
use punctual_core::control::Verb;
use punctual_core::ids::ExecutionId;
use punctual_core::job::Expiry;
use punctual_core::limiter::{LimiterId, QueueLimits, Rate, WaitList};
use punctual_core::limits;
use punctual_core::ports::{Horizon, LogLine, LogStream, Retirement, Store};
use punctual_core::queue::QueueSettings;
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

pub async fn log_lines_are_read_in_order_and_in_pages(store: Arc<dyn Store>) {
    let execution = job(1).id.occurrence(1).attempt(1);
    let streams = [LogStream::Stdout, LogStream::Stderr, LogStream::Log];
    let lines = (0..5).map(|n| LogLine { stream: streams[n % 3], ..line(execution, n) }).collect();
    store.append_logs(lines).await.unwrap();
    let mut after = None;
    let mut read = Vec::new();
    for expected in [2, 2, 1] {
        let page = store.logs(execution, after, 2).await.unwrap();
        assert_eq!(page.items.len(), expected);
        read.extend(page.items);
        after = page.next;
    }
    assert_eq!(after, None);
    assert!(read.is_sorted_by_key(|line| line.number));
    for (n, found) in read.iter().enumerate() {
        let expected = LogLine { number: found.number, stream: streams[n % 3], ..line(execution, n) };
        assert_eq!(*found, expected);
    }
    let followed = store.logs(execution, Some(read[4].number), 10).await.unwrap();
    assert_eq!(followed.items, []);
    store.append_logs(vec![line(execution, 9)]).await.unwrap();
    assert_eq!(store.logs(execution, Some(read[4].number), 10).await.unwrap().items[0].message, "line 9");
}

pub async fn log_lines_of_other_executions_stay_out(store: Arc<dyn Store>) {
    let first = job(1).id.occurrence(1).attempt(1);
    for other in [first, first.occurrence.attempt(2), job(1).id.occurrence(2).attempt(1)] {
        store.append_logs(vec![line(other, 1)]).await.unwrap();
    }
    assert_eq!(store.logs(first, None, 10).await.unwrap().items.len(), 1);
}

pub async fn retention_deletes_only_what_is_older(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    finish_jobs(&harness, 4).await;
    let retained = harness.store.retain(before(at(12)), 100).await.unwrap();
    assert_eq!((retained.history, retained.logs, retained.more), (2, 2, false));
    for n in 0..4 {
        let id = job(n).id;
        let kept = n >= 2;
        assert_eq!(harness.store.history(id, None, 10).await.unwrap().items.len() == 1, kept, "job {n}");
        let execution = id.occurrence(1).attempt(1);
        assert_eq!(harness.store.logs(execution, None, 10).await.unwrap().items.len() == 1, kept, "job {n}");
    }
    let again = harness.store.retain(before(at(12)), 100).await.unwrap();
    assert_eq!((again.history, again.logs), (0, 0));
}

pub async fn retention_is_bounded_and_says_when_there_is_more(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    finish_jobs(&harness, 5).await;
    let first = harness.store.retain(before(at(1_000)), 3).await.unwrap();
    assert_eq!((first.history, first.logs, first.more), (3, 3, true));
    let second = harness.store.retain(before(at(1_000)), 3).await.unwrap();
    assert_eq!((second.history, second.logs, second.more), (2, 2, false));
}

pub async fn the_note_of_a_steady_clock_is_kept_and_replaced(store: Arc<dyn Store>) {
    assert_eq!(store.noted_clock().await.unwrap().noted, None, "a new store has none");
    // A clock that was set back leaves an earlier time.
    for at in [at(5), at(70), at(20)] {
        store.note_clock(at).await.unwrap();
        store.probe(at.plus(Duration::from_secs(1))).await.unwrap();
        assert_eq!(store.noted_clock().await.unwrap().noted, Some(at));
    }
}

pub async fn jobs_that_finished_long_ago_are_retired(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    finish_jobs(&harness, 3).await;
    harness.submit(at(4), job(5)).await;
    harness.submit(at(4), job_with(6, |spec| spec.settings.schedule = once(900))).await;
    let step = Retirement { finished_before: at(12), after: None, limit: 100 };
    let retired = harness.store.retire(at(500), step).await.unwrap();
    assert_eq!((retired.jobs, retired.next), (2, None));
    let mut left = Vec::new();
    for n in [0, 1, 2, 5, 6] {
        left.extend(harness.store.job(job(n).id).await.unwrap().map(|_| n));
    }
    assert_eq!(left, [2, 5, 6], "jobs that ended later, are queued or are in the future");
    assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap());
    assert_eq!((harness.ended(job(0).id).await.len(), harness.ended(job(2).id).await.len()), (0, 1));
    assert_eq!(harness.store.retire(at(501), step).await.unwrap().jobs, 0);
}

pub async fn a_job_with_a_dead_letter_is_not_retired(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (execution, _) = worker.run(at(2), died(2)).await;
    let step = Retirement { finished_before: at(100), after: None, limit: 100 };
    assert_eq!(harness.store.retire(at(500), step).await.unwrap().jobs, 0);
    harness.store.discard(vec![execution.occurrence]).await.unwrap();
    assert_eq!(harness.store.retire(at(500), step).await.unwrap().jobs, 1);
}

pub async fn every_finished_status_is_retired(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    harness.done(at(2), job(1).id, Verb::Cancel).await;
    harness.submit(at(1), job_with(2, |spec| spec.settings.expiry = Some(Expiry::AfterMs(1)))).await;
    harness.look(at(3), job(2).id.occurrence(1).attempt(1), None).await;
    let step = Retirement { finished_before: at(100), after: None, limit: 100 };
    assert_eq!(harness.store.retire(at(500), step).await.unwrap().jobs, 2);
}

pub async fn retirement_walks_over_the_jobs_in_steps(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    finish_jobs(&harness, 5).await;
    let mut step = Retirement { finished_before: at(100), after: None, limit: 2 };
    let mut retired = Vec::new();
    for _step in 0..10 {
        let found = harness.store.retire(at(500), step).await.unwrap();
        retired.push(found.jobs);
        step.after = found.next;
        if found.next.is_none() {
            break;
        }
    }
    assert_eq!((retired[..3].to_vec(), retired.len()), (vec![2, 2, 1], 3));
}

pub async fn retention_reaches_skipped_ranges(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(5), job.id, Verb::Pause).await;
    harness.done(at(35), job.id, Verb::Resume).await;
    assert_eq!(harness.store.retain(before(at(30)), 10).await.unwrap().skipped, 0);
    assert_eq!(harness.store.retain(before(at(31)), 10).await.unwrap().skipped, 1);
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), []);
}

pub async fn retention_reaches_starts_that_pace_nothing_any_more(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let limits = QueueLimits { key_rate: Some(Rate { count: 1, per_ms: 1_000 }), ..QueueLimits::default() };
    let settings = QueueSettings { limits, ..QueueSettings::default() };
    harness.store.set_queue("bulk".to_owned(), settings).await.unwrap();
    let key = |number: u32| format!("key {number}");
    for number in 1..=20 {
        let job = job_with(number, |spec| {
            spec.queue = "bulk".to_owned();
            spec.settings.concurrency_key = Some(key(number));
        });
        harness.submit(at(i64::from(number)), job).await;
    }
    let kept = async || {
        let key = |number| Some(LimiterId::of_key("bulk", &key(number)));
        let lines = (1..=20).map(|number| WaitList { queue: "bulk".to_owned(), key: key(number) }).collect();
        let used = harness.store.limiters(lines).await.unwrap();
        used.iter().map(|used| used.last_at.is_some()).collect::<Vec<bool>>()
    };
    harness.store.retain(before(at(1)), 100).await.unwrap();
    assert_eq!(kept().await, [true; 20]);
    harness.store.retain(before(at(11)), 100).await.unwrap();
    assert_eq!(kept().await, [[false; 10], [true; 10]].concat());
    // A few at a time, and all of them within a few rounds.
    let mut rounds = 0;
    while kept().await.contains(&true) {
        rounds += 1;
        assert!(rounds < 100, "{:?}", kept().await);
        harness.store.retain(before(at(100 + rounds)), 3).await.unwrap();
    }
    assert!(rounds > 1, "each round checks only a few");
}

fn before(time: Timestamp) -> Horizon {
    Horizon { history: time, requests: time }
}

fn line(execution: ExecutionId, n: usize) -> LogLine {
    LogLine {
        number: 0,
        execution,
        timestamp: at(10 + n as i64),
        stream: LogStream::Stdout,
        message: format!("line {n}"),
    }
}

/// Runs jobs 0 to `count`, each ending at second 10 plus its number with one log line.
async fn finish_jobs(harness: &Harness, count: u32) {
    let session = harness.open_session("w").await;
    for n in 0..count {
        harness.submit(at(1), job(n)).await;
        let assignment = harness.claim_one(at(2), session, u64::from(n) + 1).await;
        let end_at = 10 + i64::from(n);
        harness.accept(at(end_at), session, &assignment, succeeded(end_at)).await;
        harness.store.append_logs(vec![line(assignment.execution, n as usize)]).await.unwrap();
    }
}

pub async fn a_log_is_kept_within_its_bounds(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let line = |attempt, message: String| LogLine {
        number: 0,
        execution: job(1).id.occurrence(1).attempt(attempt),
        timestamp: at(1),
        stream: LogStream::Stdout,
        message,
    };
    let long = "x".repeat(limits::LOG_LINE_BYTES_MAX);
    let lines = 2 * limits::LOG_BYTES_PER_EXECUTION_MAX / long.len();
    for _ in 0..4 {
        let some = (0..lines / 4).map(|_| line(1, long.clone())).collect();
        harness.store.append_logs(some).await.unwrap();
    }
    let last = harness.store.last_logs(job(1).id.occurrence(1).attempt(1), None, 2).await.unwrap();
    assert!(last[1].message.contains("dropped") && !last[0].message.contains("dropped"), "the message appears once");
    assert_eq!(last[1].stream, LogStream::Log);
    let mut bytes = 0;
    let mut after = None;
    loop {
        let page = harness.store.logs(job(1).id.occurrence(1).attempt(1), after, 1_000).await.unwrap();
        bytes += page.items.iter().map(|line| line.message.len()).sum::<usize>();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(bytes <= limits::LOG_BYTES_PER_EXECUTION_MAX + 3 * limits::LOG_LINE_BYTES_MAX, "{bytes}");
    harness.store.append_logs(vec![line(2, "next".to_owned())]).await.unwrap();
    let next = harness.store.last_logs(job(1).id.occurrence(1).attempt(2), None, 10).await.unwrap();
    assert_eq!(next.len(), 1, "the next attempt has a separate log");
}
