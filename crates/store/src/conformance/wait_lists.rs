//! Limits of queues and of keys: no more executions run at once, or start in an interval, than they allow,
//! and none waits without reason.

use super::fixture::{Harness, at, every, failed, job_with, succeeded};
use punctual_core::control::{Update, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobSpec, Priority};
use punctual_core::limiter::{LimiterId, LimiterUse, QueueLimits, Rate, WaitList};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{Admitted, LookOutcome, NewJob, Pausing, QueueRow, Store};
use punctual_core::queue::QueueSettings;
use punctual_core::schedule::OverlapPolicy;
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub async fn no_more_of_a_queue_run_at_once_than_it_allows(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { concurrency: Some(2), ..none() }).await;
    let mut worker = harness.worker().await;
    for number in 1..=4 {
        harness.submit(at(1), in_bulk(number, |_| {})).await;
    }
    assert_eq!(used(&harness, &queue()).await, (2, 2));
    let claimed = worker.claim(at(2), 10).await;
    assert_eq!(claimed.len(), 2, "the others wait behind their gate");
    assert_eq!(harness.open(job(3).id).await, [(1, in_line())]);
    assert_eq!(harness.store.waiting_lines(None, 10).await.unwrap().items, [queue()]);

    let effects = worker.end(at(3), &claimed[0], succeeded(3)).await;
    assert_eq!(effects.freed, [queue()]);
    let admitted = admit(&harness, at(3), &queue()).await;
    assert_eq!(admitted.effects.queued.len(), 1);
    assert_eq!(admitted.waiting, [(queue(), None)], "the last one still waits, and not for a point in time");
    assert_eq!(worker.claim_one(at(4)).await.execution.occurrence.job, job(3).id);
    assert_eq!(admit(&harness, at(4), &queue()).await.effects.queued, [], "there is no room");

    worker.end(at(5), &claimed[1], succeeded(5)).await;
    let admitted = admit(&harness, at(5), &queue()).await;
    assert_eq!((admitted.effects.queued.len(), admitted.waiting.len(), admitted.more.len()), (1, 0, 0));
    assert_eq!(harness.store.waiting_lines(None, 10).await.unwrap().items, []);
}

pub async fn lines_are_found_a_page_at_a_time(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { key_concurrency: Some(1), ..none() }).await;
    let names = ["a", "b", "c", "d", "e"];
    for (number, name) in (1..).zip(names.into_iter().chain(names)) {
        harness.submit(at(1), keyed(number, Some(name))).await;
    }
    let mut expected = names.map(key);
    expected.sort_by_key(WaitList::id);
    let (mut found, mut after) = (vec![], None);
    for items in [2, 2, 1] {
        let page = harness.store.waiting_lines(after, 2).await.unwrap();
        assert_eq!((page.items.len(), page.next.is_some()), (items, items == 2));
        found.extend(page.items);
        after = page.next;
    }
    assert_eq!(found, expected, "each of them once");
}

pub async fn each_key_has_a_limit_of_its_own(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { key_concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    for (number, key) in [(1, Some("a")), (2, Some("a")), (3, Some("b")), (4, None), (5, None)] {
        harness.submit(at(1), keyed(number, key)).await;
    }
    let claimed = worker.claim(at(2), 10).await;
    let jobs: Vec<JobId> = claimed.iter().map(|assignment| assignment.execution.occurrence.job).collect();
    assert_eq!(jobs, [1, 3, 4, 5].map(|number| job(number).id), "those without a key have no limit");
    assert_eq!((used(&harness, &key("a")).await, used(&harness, &key("b")).await), ((1, 1), (0, 1)));

    let effects = worker.end(at(3), &claimed[0], succeeded(3)).await;
    assert!(effects.freed.contains(&key("a")), "{:?}", effects.freed);
    assert_eq!(admit(&harness, at(3), &key("b")).await, Admitted::default());
    admit(&harness, at(3), &key("a")).await;
    assert_eq!(worker.claim_one(at(4)).await.execution.occurrence.job, job(2).id);
    assert_eq!(used(&harness, &key("a")).await, (0, 1));
}

pub async fn what_has_passed_its_key_waits_for_its_queue(store: Arc<dyn Store>) {
    let limits = QueueLimits { concurrency: Some(2), key_concurrency: Some(1), ..none() };
    let harness = limited(store, limits).await;
    let mut worker = harness.worker().await;
    for (number, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "c")] {
        harness.submit(at(1), keyed(number, Some(key))).await;
    }
    assert_eq!(used(&harness, &queue()).await, (1, 2));
    assert_eq!(used(&harness, &key("c")).await, (1, 1), "the first counts although it does not run");
    let claimed = worker.claim(at(2), 10).await;
    worker.end(at(3), &claimed[0], succeeded(3)).await;
    // The wait list of the key moves when its first execution has ended, not when it has started.
    assert_eq!(admit(&harness, at(3), &key("c")).await.effects.queued, []);
    assert_eq!(admit(&harness, at(3), &queue()).await.effects.queued.len(), 1);
    let third = worker.claim_one(at(4)).await;
    assert_eq!(third.execution.occurrence.job, job(3).id);
    worker.end(at(5), &claimed[1], succeeded(5)).await;
    worker.end(at(5), &third, succeeded(5)).await;
    let admitted = admit(&harness, at(5), &key("c")).await;
    assert_eq!((admitted.effects.queued.len(), admitted.effects.joined.len()), (1, 0));
    worker.run(at(6), succeeded(6)).await;
    assert_nothing_is_used(&harness, &[queue(), key("a"), key("b"), key("c")]).await;
}

pub async fn a_line_goes_by_rank(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    for (number, priority) in [(1, 5), (2, 1), (3, 9), (4, 5)] {
        harness.submit(at(1), in_bulk(number, |spec| spec.priority = Priority::new(priority).unwrap())).await;
    }
    for number in [1, 3, 4, 2] {
        let assignment = worker.claim_one(at(2)).await;
        assert_eq!(assignment.execution.occurrence.job, job(number).id);
        worker.end(at(2), &assignment, succeeded(2)).await;
        admit(&harness, at(2), &queue()).await;
    }
}

pub async fn an_attempt_that_waits_for_its_retry_holds_no_place(store: Arc<dyn Store>) {
    let harness =
        limited(store, QueueLimits { concurrency: Some(1), key_concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), keyed(1, Some("a"))).await;
    harness.submit(at(1), keyed(2, Some("a"))).await;
    let (first, effects) = worker.run(at(2), failed(2)).await;
    assert_eq!(effects.freed, [queue(), key("a")]);
    admit(&harness, at(2), &key("a")).await;
    let second = worker.claim_one(at(3)).await;
    assert_eq!(second.execution.occurrence.job, job(2).id);
    // Its time gate is open, and now it is on the wait list.
    let again = first.occurrence.attempt(2);
    let due_at = harness.view(job(1).id).await.open[0].available_at;
    let LookOutcome::Opened(effects) = harness.look(due_at, again, None).await else { panic!("it was due") };
    assert_eq!((effects.queued.len(), effects.joined), (0, vec![key("a")]));
    worker.end(due_at, &second, succeeded(3)).await;
    admit(&harness, due_at, &key("a")).await;
    worker.run(due_at, succeeded(3)).await;
    assert_nothing_is_used(&harness, &[queue(), key("a")]).await;
}

pub async fn an_execution_that_left_a_wait_list_is_not_waited_for(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1, |_| {})).await;
    harness.submit(at(1), in_bulk(2, |_| {})).await;
    harness.submit(at(1), in_bulk(3, |spec| spec.settings.expiry = Some(expiry(10)))).await;
    harness.submit(at(1), in_bulk(4, |_| {})).await;
    harness.cancel(at(2), job(2).id.occurrence(1).attempt(1)).await;
    let expired = harness.look(at(10), job(3).id.occurrence(1).attempt(1), None).await;
    assert!(matches!(expired, LookOutcome::Expired(_)));
    assert_eq!(used(&harness, &queue()).await, (1, 1));
    harness.done(at(11), job(1).id, Verb::Cancel).await;
    admit(&harness, at(11), &queue()).await;
    assert_eq!(worker.claim_one(at(12)).await.execution.occurrence.job, job(4).id);
}

pub async fn a_pause_holds_no_place(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    for number in 1..=3 {
        harness.submit(at(1), in_bulk(number, |_| {})).await;
    }
    let paused = harness.done(at(2), job(1).id, Verb::Pause).await;
    assert_eq!(paused.effects.freed, [queue()]);
    harness.done(at(2), job(2).id, Verb::Pause).await;
    let admitted = admit(&harness, at(2), &queue()).await;
    assert_eq!(admitted.effects.queued, [], "the first of the list is paused");
    assert_eq!(admitted.more, [queue()], "there is room for another one");
    admit(&harness, at(2), &queue()).await;
    let third = worker.claim_one(at(3)).await;
    assert_eq!(third.execution.occurrence.job, job(3).id);
    for number in [1, 2] {
        let resumed = harness.done(at(4), job(number).id, Verb::Resume).await;
        assert_eq!((resumed.effects.queued.len(), resumed.effects.joined), (0, vec![queue()]));
    }
    assert_eq!(used(&harness, &queue()).await, (2, 1));
    // An execution that is returned while the job is paused makes room, too.
    harness.done(at(5), job(3).id, Verb::Pause).await;
    assert_eq!(worker.give_back(at(5), &third).await.freed, [queue()]);
    admit(&harness, at(5), &queue()).await;
    worker.run(at(6), succeeded(6)).await;
}

pub async fn what_comes_back_or_is_lost_keeps_its_place(store: Arc<dyn Store>) {
    let harness =
        limited(store, QueueLimits { concurrency: Some(1), key_concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), keyed(1, Some("a"))).await;
    harness.submit(at(1), keyed(2, Some("b"))).await;
    let assignment = worker.claim_one(at(2)).await;
    assert_eq!(worker.give_back(at(3), &assignment).await.freed, []);
    assert_eq!(used(&harness, &queue()).await, (1, 1));
    worker.claim_one(at(4)).await;
    let recovered = worker.lose(at(5)).await;
    assert_eq!((recovered.ended.len(), recovered.retried.len()), (1, 1));
    assert_eq!((used(&harness, &queue()).await, used(&harness, &key("a")).await), ((1, 1), (0, 1)));
    let mut other = harness.worker().await;
    assert_eq!(other.claim_one(at(6)).await.execution, job(1).id.occurrence(1).attempt(2));
}

pub async fn a_limit_that_is_raised_or_taken_away_lets_more_go_on(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    let jobs = (1..=9).map(|number| NewJob { job: in_bulk(number, |_| {}), reservation: None }).collect();
    harness.store.submit(at(1), jobs).await.unwrap();
    assert_eq!(used(&harness, &queue()).await, (8, 1));
    set(&harness, QueueLimits { concurrency: Some(3), ..none() }).await;
    assert_eq!(admit(&harness, at(2), &queue()).await.effects.queued.len(), 2);
    let claimed = worker.claim(at(3), 10).await;
    // A lower limit admits nothing until enough executions have ended.
    set(&harness, QueueLimits { concurrency: Some(2), ..none() }).await;
    for (assignment, admitted) in claimed.iter().zip([0, 1, 1]) {
        worker.end(at(4), assignment, succeeded(4)).await;
        assert_eq!(admit(&harness, at(4), &queue()).await.effects.queued.len(), admitted);
    }
    set(&harness, none()).await;
    let admitted = harness.store.admit(at(5), vec![queue()], 3).await.unwrap();
    assert_eq!((admitted.effects.queued.len(), admitted.more), (3, vec![queue()]), "in steps");
    assert_eq!(admit(&harness, at(5), &queue()).await.effects.queued.len(), 1);
    assert_eq!(worker.claim(at(6), 10).await.len(), 6);
}

pub async fn a_limit_of_a_queue_counts_what_was_there_before(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=3 {
        harness.submit(at(1), in_bulk(number, |_| {})).await;
    }
    let claimed = worker.claim(at(2), 1).await;
    set(&harness, QueueLimits { concurrency: Some(2), ..none() }).await;
    harness.submit(at(3), in_bulk(4, |_| {})).await;
    assert_eq!(used(&harness, &queue()).await, (1, 3));
    worker.end(at(4), &claimed[0], succeeded(4)).await;
    assert_eq!(admit(&harness, at(4), &queue()).await.effects.queued, []);
    worker.run(at(5), succeeded(5)).await;
    assert_eq!(admit(&harness, at(5), &queue()).await.effects.queued.len(), 1);
}

pub async fn starts_are_paced_by_a_rate(store: Arc<dyn Store>) {
    let rate = Some(Rate { count: 2, per_ms: 10_000 });
    let harness = limited(store, QueueLimits { rate, ..none() }).await;
    let mut worker = harness.worker().await;
    for number in 1..=4 {
        harness.submit(at(1), in_bulk(number, |_| {})).await;
    }
    assert_eq!(worker.claim(at(1), 10).await.len(), 1);
    let admitted = admit(&harness, at(2), &queue()).await;
    assert_eq!((admitted.effects.queued.len(), admitted.waiting), (0, vec![(queue(), Some(at(6)))]));
    let admitted = admit(&harness, at(6), &queue()).await;
    assert_eq!((admitted.effects.queued.len(), admitted.waiting), (1, vec![(queue(), Some(at(11)))]));
    assert_eq!(worker.claim(at(6), 10).await.len(), 1);
    let admitted = admit(&harness, at(100), &queue()).await;
    assert_eq!(admitted.effects.queued.len(), 1, "missed starts are not caught up");
    admit(&harness, at(105), &queue()).await;
    harness.submit(at(106), in_bulk(5, |_| {})).await;
    assert_eq!(harness.open(job(5).id).await, [(1, in_line())], "the next start is still to come");
    harness.submit(at(111), in_bulk(6, |_| {})).await;
    assert_eq!(used(&harness, &queue()).await.0, 2, "a later one does not overtake it");
}

pub async fn a_rate_that_is_changed_holds_at_once(store: Arc<dyn Store>) {
    let rate = |per_ms| QueueLimits { rate: Some(Rate { count: 1, per_ms }), ..none() };
    let harness = limited(store, rate(3_600_000)).await;
    for number in 1..=3 {
        harness.submit(at(1), in_bulk(number, |_| {})).await;
    }
    assert_eq!(admit(&harness, at(2), &queue()).await.waiting, [(queue(), Some(at(3_601)))]);
    set(&harness, rate(5_000)).await;
    assert_eq!(admit(&harness, at(5), &queue()).await.waiting, [(queue(), Some(at(6)))]);
    assert_eq!(admit(&harness, at(6), &queue()).await.effects.queued.len(), 1);
    set(&harness, rate(60_000)).await;
    assert!(admit(&harness, at(7), &queue()).await.is_look_due, "queued executions return to the wait list");
    assert_eq!(admit(&harness, at(11), &queue()).await.waiting, [(queue(), Some(at(66)))]);
}

pub async fn a_paused_queue_spends_nothing_of_its_limits(store: Arc<dyn Store>) {
    let pace = Some(Rate { count: 1, per_ms: 10_000 });
    let harness = limited(store, QueueLimits { rate: pace, key_concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), keyed(1, Some("a"))).await;
    harness.submit(at(1), keyed(2, None)).await;
    pause(&harness, Pausing::Pause).await;
    harness.submit(at(20), keyed(3, Some("b"))).await;
    harness.submit(at(20), keyed(4, None)).await;
    for (list, waiting) in [(key("b"), 1), (queue(), 2)] {
        let admitted = admit(&harness, at(60), &list).await;
        let still = Admitted { waiting: vec![(list.clone(), None)], ..Admitted::default() };
        assert_eq!(admitted, still, "none of them is admitted, and time alone changes nothing");
        assert_eq!(used(&harness, &list).await.0, waiting);
    }
    pause(&harness, Pausing::Resume).await;
    assert_eq!(admit(&harness, at(60), &key("b")).await.effects.joined, [queue()]);
    let admitted = admit(&harness, at(60), &queue()).await;
    assert_eq!((admitted.effects.queued.len(), admitted.waiting), (1, vec![(queue(), Some(at(70)))]));
    let claimed = worker.claim(at(60), 10).await;
    let jobs: Vec<JobId> = claimed.iter().map(|assignment| assignment.execution.occurrence.job).collect();
    assert_eq!(jobs, [1, 2].map(|number| job(number).id), "those admitted before, and one more");
}

pub async fn what_has_left_a_queue_no_longer_counts_there(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { key_concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), keyed(1, Some("a"))).await;
    // It fails under the key, and moves to a queue without limits before its next attempt.
    let (first, _) = worker.run(at(2), failed(2)).await;
    let moved = job_with(1, |spec| spec.settings.concurrency_key = Some("a".to_owned()));
    harness.done(at(2), job(1).id, update(moved.spec)).await;
    let due_at = harness.view(job(1).id).await.open[0].available_at;
    harness.look(due_at, first.occurrence.attempt(2), None).await;
    assert_eq!(harness.open(job(1).id).await, [(1, LiveState::Queued)]);
    assert_nothing_is_used(&harness, &[key("a")]).await;
}

pub async fn each_key_is_paced_by_itself(store: Arc<dyn Store>) {
    let key_rate = Some(Rate { count: 1, per_ms: 60_000 });
    let harness = limited(store, QueueLimits { key_rate, ..none() }).await;
    let mut worker = harness.worker().await;
    for (number, key) in [(1, "a"), (2, "a"), (3, "b")] {
        harness.submit(at(1), keyed(number, Some(key))).await;
    }
    assert_eq!(worker.claim(at(1), 10).await.len(), 2);
    assert_eq!(admit(&harness, at(60), &key("a")).await.waiting, [(key("a"), Some(at(61)))]);
    assert_eq!(admit(&harness, at(61), &key("a")).await.effects.queued.len(), 1);
}

pub async fn an_update_takes_a_place_in_the_other_queue(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1, |_| {})).await;
    harness.submit(at(1), in_bulk(2, |_| {})).await;
    harness.submit(at(1), job_with(3, |_| {})).await;
    // From the wait list into a queue without limits, and the other way round.
    let moved = harness.done(at(2), job(2).id, update(job_with(2, |_| {}).spec)).await;
    assert_eq!(moved.effects.queued.len(), 2, "the lane, and its queued execution");
    let moved = harness.done(at(2), job(3).id, update(in_bulk(3, |_| {}).spec)).await;
    assert_eq!(moved.effects.joined, [queue()]);
    assert_eq!(used(&harness, &queue()).await, (1, 1));
    assert_eq!(worker.claim(at(3), 10).await.len(), 2);
    assert_eq!(harness.open(job(3).id).await, [(1, in_line())]);
}

pub async fn an_update_takes_a_place_under_the_other_key(store: Arc<dyn Store>) {
    let harness = limited(store, QueueLimits { key_concurrency: Some(1), ..none() }).await;
    for (number, key) in [(1, "a"), (2, "a"), (3, "b")] {
        harness.submit(at(1), keyed(number, Some(key))).await;
    }
    let moved = harness.done(at(2), job(2).id, update(keyed(2, Some("c")).spec)).await;
    assert_eq!(moved.effects.joined, [key("c")]);
    assert_eq!(admit(&harness, at(2), &key("c")).await.effects.queued.len(), 1);
    harness.done(at(2), job(2).id, update(keyed(2, None).spec)).await;
    assert_eq!(harness.open(job(2).id).await, [(1, LiveState::Queued)]);
    assert_nothing_is_used(&harness, &[key("c")]).await;
    assert_eq!(used(&harness, &key("a")).await, (0, 1));
}

pub async fn what_follows_takes_its_place_in_line(store: Arc<dyn Store>) {
    let harness =
        limited(store, QueueLimits { concurrency: Some(1), key_concurrency: Some(1), ..none() }).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), keyed(1, Some("a"))).await;
    harness.submit(at(1), keyed(2, Some("b"))).await;
    // One that depends on the first, and one that waits behind another occurrence of its own job.
    let child = |spec: &mut JobSpec| {
        spec.settings.depends_on = vec![job(1).id];
        spec.settings.concurrency_key = Some("a".to_owned());
    };
    harness.submit(at(1), in_bulk(3, child)).await;
    let effects = worker.run(at(2), succeeded(2)).await.1;
    assert_eq!(effects.joined, [queue()], "the second goes before the child");
    let recurring = in_bulk(4, |spec| {
        spec.settings.schedule = every(60);
        spec.settings.overlap = OverlapPolicy::Queue;
        spec.settings.concurrency_key = Some("d".to_owned());
    });
    harness.submit(at(3), recurring.clone()).await;
    harness.fire(at(60), recurring.id, 1).await;
    harness.fire(at(120), recurring.id, 2).await;
    let overlap = LiveState::Waiting(Gates::only(Gate::Overlap));
    assert_eq!(harness.open(recurring.id).await, [(1, in_line()), (2, overlap)]);
    for _ in 0..4 {
        admit(&harness, at(130), &queue()).await;
        worker.run(at(130), succeeded(130)).await;
    }
    assert_nothing_is_used(&harness, &[queue(), key("a"), key("b"), key("d")]).await;
}

pub async fn limits_are_kept_with_their_queue(store: Arc<dyn Store>) {
    let limits = QueueLimits {
        concurrency: Some(7),
        rate: Some(Rate { count: 100, per_ms: 60_000 }),
        key_concurrency: Some(2),
        key_rate: Some(Rate { count: 1, per_ms: 1_000 }),
        weights: [("ann".to_owned(), 3)].into(),
    };
    let harness = limited(store, limits.clone()).await;
    harness.store.pause_queue(at(1), "bulk".to_owned(), Pausing::Pause).await.unwrap();
    let settings = QueueSettings { limits, ..QueueSettings::default() };
    let row =
        QueueRow { queue: "bulk".to_owned(), paused_at: Some(at(1)), settings, ..QueueRow::unset("bulk") };
    assert_eq!(harness.store.queues().await.unwrap(), [row]);
}

/// All workers submit, claim, report and admit at the same time.
pub async fn racing_workers_never_exceed_a_limit(store: Arc<dyn Store>) {
    let limits = QueueLimits { concurrency: Some(3), key_concurrency: Some(2), ..none() };
    let harness = limited(store, limits).await;
    let (running, of_a, most) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let ended = AtomicUsize::new(0);
    let works = (0..6_u32).map(|hand| {
        let (harness, running, of_a, most, ended) = (harness.clone(), &running, &of_a, &most, &ended);
        async move {
            let mut worker = harness.worker().await;
            for number in 0..5 {
                let key = if number % 2 == 0 { "a" } else { "b" };
                harness.submit(at(1), keyed(1 + hand * 5 + number, Some(key))).await;
            }
            for _round in 0..10_000 {
                if ended.load(Ordering::SeqCst) == 30 {
                    return;
                }
                let claimed = worker.claim(at(2), 2).await;
                for assignment in claimed {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    // Determined by the numbers from which the keys were assigned.
                    let is_a = is_of_a(&assignment.execution.occurrence.job);
                    if is_a {
                        assert!(of_a.fetch_add(1, Ordering::SeqCst) < 2, "two of the key at most");
                    }
                    tokio::task::yield_now().await;
                    of_a.fetch_sub(usize::from(is_a), Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                    worker.end(at(3), &assignment, succeeded(3)).await;
                    ended.fetch_add(1, Ordering::SeqCst);
                }
                let lines = vec![key("a"), key("b"), queue()];
                harness.store.admit(at(3), lines, 100).await.unwrap();
            }
            panic!("the wait list does not advance");
        }
    });
    futures_util::future::join_all(works).await;
    assert!(most.load(Ordering::SeqCst) <= 3, "three at once at most");
    assert_nothing_is_used(&harness, &[queue(), key("a"), key("b")]).await;
    assert_eq!(harness.store.waiting_lines(None, 10).await.unwrap().items, []);
}

fn is_of_a(id: &JobId) -> bool {
    (1..=30).any(|number| job(number).id == *id && (number - 1) % 5 % 2 == 0)
}

pub(super) fn none() -> QueueLimits {
    QueueLimits::default()
}

pub(super) fn queue() -> WaitList {
    WaitList::of_queue("bulk")
}

pub(super) fn key(key: &str) -> WaitList {
    WaitList { key: Some(LimiterId::of_key("bulk", key)), ..queue() }
}

pub(super) fn in_line() -> LiveState {
    LiveState::Waiting(Gates::only(Gate::Concurrency))
}

fn expiry(seconds: i64) -> punctual_core::job::Expiry {
    punctual_core::job::Expiry::At(at(seconds))
}

pub(super) fn job(number: u32) -> Job {
    in_bulk(number, |_| {})
}

pub(super) fn in_bulk(number: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
    job_with(number, |spec| {
        spec.queue = "bulk".to_owned();
        change(spec);
    })
}

pub(super) fn keyed(number: u32, key: Option<&str>) -> Job {
    in_bulk(number, |spec| spec.settings.concurrency_key = key.map(str::to_owned))
}

fn update(spec: JobSpec) -> Verb {
    Verb::Update(Box::new(Update { spec, expected_version: None }))
}

pub(super) async fn limited(store: Arc<dyn Store>, limits: QueueLimits) -> Harness {
    let harness = Harness::new(store);
    set(&harness, limits).await;
    harness
}

pub(super) async fn set(harness: &Harness, limits: QueueLimits) {
    let settings = QueueSettings { limits, ..QueueSettings::default() };
    harness.store.set_queue("bulk".to_owned(), settings).await.unwrap();
}

async fn pause(harness: &Harness, pausing: Pausing) {
    harness.store.pause_queue(at(2), "bulk".to_owned(), pausing).await.unwrap();
}

pub(super) async fn admit(harness: &Harness, now: Timestamp, line: &WaitList) -> Admitted {
    harness.store.admit(now, vec![line.clone()], 100).await.unwrap()
}

/// How many executions are on a wait list, and how many count against its limit.
pub(super) async fn used(harness: &Harness, line: &WaitList) -> (u64, u64) {
    let used = harness.store.limiters(vec![line.clone()]).await.unwrap()[0];
    (used.waiting, used.in_use)
}

pub(super) async fn assert_nothing_is_used(harness: &Harness, lines: &[WaitList]) {
    for used in harness.store.limiters(lines.to_vec()).await.unwrap() {
        assert_eq!(LimiterUse { last_at: None, ..used }, LimiterUse::default());
    }
}
