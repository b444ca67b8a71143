//! Limits that are set or become tighter over a backlog: queued executions go back to a wait list as far as
//! the limits require, and keep their rank.

use super::fixture::{Harness, at, job_with, succeeded};
use super::wait_lists::{
    admit, assert_nothing_is_used, in_bulk, in_line, job, key, keyed, limited, none, queue, set, used,
};
use punctual_core::control::{Update, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::Expiry;
use punctual_core::limiter::{QueueLimits, Rate, WaitList};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{Admitted, Assignment, NewJob, Store};
use punctual_core::readmission::Readmission;
use std::sync::Arc;

pub async fn a_limit_reaches_what_is_queued(store: Arc<dyn Store>) {
    let harness = backlog(store, 6).await;
    let mut worker = harness.worker().await;
    set(&harness, QueueLimits { concurrency: Some(2), ..none() }).await;
    assert_eq!(used(&harness, &queue()).await, (0, 6), "nothing has been re-admitted yet");
    assert_eq!(harness.store.waiting_lines(None, 10).await.unwrap().items, [queue()], "a scan finds it");
    let placed = admit(&harness, at(2), &queue()).await;
    let expected = Admitted { waiting: vec![(queue(), None)], is_look_due: true, ..Admitted::default() };
    assert_eq!((placed, readmission(&harness).await), (expected, None));
    assert_eq!(used(&harness, &queue()).await, (4, 2));
    let claimed = worker.claim(at(3), 10).await;
    assert_eq!(jobs_of(&claimed), [1, 2].map(|number| job(number).id), "the first in rank stay queued");
    worker.end(at(4), &claimed[0], succeeded(4)).await;
    for next in 3..=6 {
        assert_eq!(admit(&harness, at(4), &queue()).await.effects.queued.len(), 1);
        let assignment = worker.claim_one(at(4)).await;
        assert_eq!(assignment.execution.occurrence.job, job(next).id, "they have kept their ranks");
        worker.end(at(5), &assignment, succeeded(5)).await;
    }
    worker.end(at(6), &claimed[1], succeeded(6)).await;
    assert_nothing_is_used(&harness, &[queue()]).await;
}

pub async fn a_rate_reaches_all_that_is_queued_in_steps(store: Arc<dyn Store>) {
    let harness = backlog(store, 7).await;
    let mut worker = harness.worker().await;
    set(&harness, QueueLimits { rate: per_10_s(), ..none() }).await;
    let placed = place(&harness, 3).await;
    assert_eq!((placed.more, placed.is_look_due), (vec![queue()], false));
    assert_eq!(used(&harness, &queue()).await, (3, 4));
    for (number, state) in [(4, LiveState::Queued), (5, in_line()), (7, in_line())] {
        assert_eq!(harness.open(job(number).id).await, [(1, state)]);
    }
    let reached = readmission(&harness).await.unwrap().reached.unwrap();
    assert_eq!(reached.occurrence, job(5).id.occurrence(1), "its progress is stored");
    // Meanwhile the first can be claimed, and new ones wait.
    assert_eq!(worker.claim_one(at(2)).await.execution.occurrence.job, job(1).id);
    harness.submit(at(2), in_bulk(8, |_| {})).await;
    assert_eq!(used(&harness, &queue()).await, (4, 4));
    let last = place(&harness, 4).await;
    assert_eq!((last.more, last.is_look_due), (vec![], true), "three executions were left");
    assert_eq!((used(&harness, &queue()).await, readmission(&harness).await), ((7, 1), None));
    let mut starts = vec![];
    for seconds in 0..40 {
        starts
            .extend(admit(&harness, at(20 + seconds), &queue()).await.effects.queued.iter().map(|_| seconds));
    }
    assert_eq!(starts, [0, 10, 20, 30], "starts follow the rate");
    assert_eq!(jobs_of(&worker.claim(at(60), 10).await), [2, 3, 4, 5].map(|number| job(number).id));
}

pub async fn a_limit_of_keys_reaches_those_who_have_one(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let keys = [Some("a"), None, Some("a"), Some("b"), None, Some("a")];
    for (number, key) in (1..).zip(keys) {
        harness.submit(at(1), keyed(number, key)).await;
    }
    set(&harness, QueueLimits { key_concurrency: Some(1), ..none() }).await;
    for (waiting, in_use) in [((1, 0), 5), ((2, 1), 3)] {
        assert_eq!(place(&harness, 2).await.more, [queue()]);
        assert_eq!(
            (used(&harness, &key("a")).await, used(&harness, &key("b")).await),
            ((waiting.0, 0), (waiting.1, 0))
        );
        assert_eq!(used(&harness, &queue()).await.1, in_use, "executions without a key are not affected");
        assert_eq!(
            admit(&harness, at(2), &key("a")).await.effects.queued,
            [],
            "not before all executions are re-admitted"
        );
    }
    assert_eq!(place(&harness, 2).await.more, [queue()], "there may be more");
    assert!(place(&harness, 2).await.is_look_due);
    assert_eq!(used(&harness, &key("a")).await, (3, 0));
    let lines = harness.store.waiting_lines(None, 10).await.unwrap().items;
    assert_eq!(lines.len(), 2, "{lines:?}");
    harness.store.admit(at(2), lines, 10).await.unwrap();
    let claimed = worker.claim(at(3), 10).await;
    assert_eq!(jobs_of(&claimed), [1, 2, 4, 5].map(|number| job(number).id), "one of each key, by rank");
    worker.end(at(4), &claimed[0], succeeded(4)).await;
    admit(&harness, at(4), &key("a")).await;
    assert_eq!(worker.claim_one(at(5)).await.execution.occurrence.job, job(3).id);
}

pub async fn a_limit_of_the_queue_leaves_keys_as_they_are(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { key_rate: per_10_s(), ..none() }).await;
    for (number, key) in [(1, "a"), (2, "b"), (3, "c")] {
        harness.submit(at(1), keyed(number, Some(key))).await;
    }
    set(&harness, QueueLimits { key_rate: per_10_s(), concurrency: Some(1), ..none() }).await;
    assert!(place(&harness, 10).await.is_look_due);
    assert_eq!(used(&harness, &queue()).await, (2, 1));
    for name in ["a", "b", "c"] {
        assert_eq!(used(&harness, &key(name)).await, (0, 1), "it has already passed the limit of its key");
    }
}

pub async fn what_runs_goes_on_and_counts(store: Arc<dyn Store>) {
    let harness = backlog(store, 6).await;
    let mut worker = harness.worker().await;
    let claimed = worker.claim(at(2), 3).await;
    set(&harness, QueueLimits { concurrency: Some(2), ..none() }).await;
    assert!(place(&harness, 10).await.is_look_due);
    assert_eq!(used(&harness, &queue()).await, (3, 3), "more run than the limit allows: all others wait");
    for (assignment, admitted) in claimed.iter().zip([0, 1, 1]) {
        worker.end(at(3), assignment, succeeded(3)).await;
        assert_eq!(admit(&harness, at(3), &queue()).await.effects.queued.len(), admitted);
    }
}

pub async fn what_runs_when_a_rate_is_set_counts_as_started(store: Arc<dyn Store>) {
    let harness = backlog(store, 6).await;
    let mut worker = harness.worker().await;
    let claimed = worker.claim(at(2), 2).await;
    let rate = |count| QueueLimits { rate: Some(Rate { count, per_ms: 40_000 }), ..none() };
    set(&harness, rate(4)).await;
    assert!(place(&harness, 10).await.is_look_due);
    assert_eq!(used(&harness, &queue()).await, (4, 2));
    // One in 10 s, and both have started at 2 s.
    assert_eq!(admit(&harness, at(21), &queue()).await.waiting, [(queue(), Some(at(22)))]);
    assert_eq!(used(&harness, &queue()).await, (4, 2));
    assert_eq!(admit(&harness, at(22), &queue()).await.effects.queued.len(), 1);
    // Returned work does not count twice.
    worker.give_back(at(23), &claimed[1]).await;
    assert_eq!(worker.claim(at(24), 10).await.len(), 2);
    assert_eq!(admit(&harness, at(31), &queue()).await.waiting, [(queue(), Some(at(32)))]);
    // A slower rate finds them counted.
    set(&harness, rate(2)).await;
    assert!(admit(&harness, at(31), &queue()).await.is_look_due);
    assert_eq!(admit(&harness, at(41), &queue()).await.waiting, [(queue(), Some(at(42)))]);
    assert_eq!(admit(&harness, at(42), &queue()).await.effects.queued.len(), 1);
}

pub async fn what_is_given_back_keeps_its_place_while_there_is_one(store: Arc<dyn Store>) {
    let harness = backlog(store, 4).await;
    let mut worker = harness.worker().await;
    let claimed = worker.claim(at(2), 4).await;
    set(&harness, QueueLimits { concurrency: Some(2), ..none() }).await;
    assert!(place(&harness, 10).await.is_look_due, "nothing is queued");
    for assignment in &claimed[2..] {
        assert_eq!(worker.give_back(at(3), assignment).await.joined, [queue()], "more are admitted than the limit allows");
    }
    assert_eq!(used(&harness, &queue()).await, (2, 2));
    let effects = worker.give_back(at(4), &claimed[1]).await;
    assert_eq!((effects.queued.len(), effects.joined), (1, vec![]), "as many are admitted as the limit allows");
    assert_eq!(jobs_of(&worker.claim(at(5), 10).await), [job(2).id]);
    worker.end(at(6), &claimed[0], succeeded(6)).await;
    admit(&harness, at(6), &queue()).await;
    assert_eq!(jobs_of(&worker.claim(at(7), 10).await), [job(3).id], "with its earlier rank");
}

pub async fn what_is_given_back_takes_the_place_of_its_key(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=2 {
        harness.submit(at(1), keyed(number, Some("a"))).await;
    }
    let claimed = worker.claim(at(2), 2).await;
    set(&harness, QueueLimits { key_concurrency: Some(1), ..none() }).await;
    assert!(place(&harness, 10).await.is_look_due);
    for (assignment, waiting) in claimed.iter().zip(1..) {
        assert_eq!(worker.give_back(at(3), assignment).await.joined, [key("a")]);
        assert_eq!(used(&harness, &key("a")).await, (waiting, 0), "neither was admitted there");
    }
    admit(&harness, at(4), &key("a")).await;
    let first = worker.claim_one(at(5)).await;
    assert_eq!(first.execution.occurrence.job, job(1).id);
    worker.give_back(at(6), &first).await;
    assert_eq!(used(&harness, &key("a")).await, (1, 1), "now it is admitted, and stays so");
}

pub async fn what_goes_back_in_line_can_expire_there(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let expiring = in_bulk(1, |spec| spec.settings.expiry = Some(Expiry::At(at(50))));
    harness.submit(at(1), expiring).await;
    set(&harness, QueueLimits { rate: per_10_s(), ..none() }).await;
    let due = place(&harness, 10).await.effects.due;
    assert_eq!(due.iter().map(|due| due.at).collect::<Vec<_>>(), [at(50)], "a scan at that time finds it");
}

pub async fn a_limit_that_is_raised_reaches_nobody(store: Arc<dyn Store>) {
    let harness = backlog(store, 4).await;
    let limits = QueueLimits { concurrency: Some(2), rate: per_10_s(), key_concurrency: Some(1), ..none() };
    for (day, raised) in (1..).zip([
        QueueLimits { concurrency: Some(3), ..limits.clone() },
        QueueLimits { rate: Some(Rate { count: 2, per_ms: 10_000 }), ..limits.clone() },
        QueueLimits { key_concurrency: None, ..limits.clone() },
    ]) {
        set(&harness, limits.clone()).await;
        while !place(&harness, 10).await.is_look_due {}
        admit(&harness, at(day * 86_400), &queue()).await;
        assert!(used(&harness, &queue()).await.1 > 0, "some executions are queued");
        set(&harness, raised).await;
        assert_eq!(readmission(&harness).await, None);
    }
    set(&harness, none()).await;
    assert_eq!((readmission(&harness).await, harness.store.queues().await.unwrap()), (None, vec![]));
}

pub async fn a_limit_that_is_taken_away_on_the_way_lets_all_go_on(store: Arc<dyn Store>) {
    let harness = backlog(store, 5).await;
    let mut worker = harness.worker().await;
    set(&harness, QueueLimits { rate: per_10_s(), ..none() }).await;
    place(&harness, 2).await;
    set(&harness, none()).await;
    assert_eq!(admit(&harness, at(3), &queue()).await.effects.queued.len(), 2);
    assert_eq!(worker.claim(at(4), 10).await.len(), 5);
}

pub async fn what_leaves_the_queue_on_the_way_is_left_alone(store: Arc<dyn Store>) {
    let harness = backlog(store, 4).await;
    set(&harness, QueueLimits { rate: per_10_s(), ..none() }).await;
    place(&harness, 1).await;
    let elsewhere = Update { spec: job_with(3, |_| {}).spec, expected_version: None };
    harness.done(at(2), job(3).id, Verb::Update(Box::new(elsewhere))).await;
    harness.done(at(2), job(2).id, Verb::Cancel).await;
    while !place(&harness, 1).await.is_look_due {}
    assert_eq!(harness.open(job(3).id).await, [(1, LiveState::Queued)]);
    assert_eq!(used(&harness, &queue()).await, (2, 0));
}

/// Two processes continue from each other's position, while a worker claims.
pub async fn two_at_once_have_everybody_take_one_place(store: Arc<dyn Store>) {
    let harness = backlog(store, 40).await;
    set(&harness, QueueLimits { concurrency: Some(3), key_concurrency: Some(1), ..none() }).await;
    let walk = || async {
        for _ in 0..100 {
            place(&harness, 5).await;
            if readmission(&harness).await.is_none() {
                return;
            }
        }
        panic!("re-admission never finishes");
    };
    let claims = async {
        let mut worker = harness.worker().await;
        let mut claimed = vec![];
        for _ in 0..4 {
            claimed.extend(worker.claim(at(2), 1).await);
        }
        (worker, claimed)
    };
    let ((), (), (mut worker, claimed)) = futures_util::future::join3(walk(), walk(), claims).await;
    let mut seen: Vec<JobId> = jobs_of(&claimed);
    for assignment in claimed {
        worker.end(at(3), &assignment, succeeded(3)).await;
    }
    for _ in 0..100 {
        admit(&harness, at(4), &queue()).await;
        let claimed = worker.claim(at(4), 10).await;
        assert!(claimed.len() <= 3, "three at once at most");
        seen.extend(jobs_of(&claimed));
        for assignment in claimed {
            worker.end(at(5), &assignment, succeeded(5)).await;
        }
    }
    let expected: Vec<JobId> = (1..=40).map(|number| job(number).id).collect();
    assert_eq!(seen, expected, "each runs once, ordered by rank");
    assert_nothing_is_used(&harness, &[queue()]).await;
}

fn per_10_s() -> Option<Rate> {
    Some(Rate { count: 1, per_ms: 10_000 })
}

/// This many queued jobs, in order, in a queue without limits.
async fn backlog(store: Arc<dyn Store>, count: u32) -> Harness {
    let harness = Harness::new(store);
    let jobs = (1..=count).map(|number| NewJob { job: in_bulk(number, |_| {}), reservation: None }).collect();
    harness.store.submit(at(1), jobs).await.unwrap();
    harness
}

/// One step of re-admission.
async fn place(harness: &Harness, count: usize) -> Admitted {
    let line: WaitList = queue();
    harness.store.admit(at(2), vec![line], count).await.unwrap()
}

async fn readmission(harness: &Harness) -> Option<Readmission> {
    harness.store.queues().await.unwrap().into_iter().find_map(|row| row.readmission)
}

fn jobs_of(assignments: &[Assignment]) -> Vec<JobId> {
    assignments.iter().map(|assignment| assignment.execution.occurrence.job).collect()
}
