//! A queue with a `max_depth` accepts no more jobs than that.

use super::fixture::{Harness, at, every, failed, job, job_with, once, succeeded};
use punctual_core::control::Verb;
use punctual_core::job::Job;
use punctual_core::ports::{FireOutcome, NewJob, Pausing, QueueRow, Store, SubmitOutcome};
use punctual_core::queue::{QueueFull, QueueSettings};
use std::sync::Arc;

pub async fn a_full_queue_refuses_what_would_join_it(store: Arc<dyn Store>) {
    let harness = limited(store, 2).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1)).await;
    harness.submit(at(1), in_bulk(2)).await;
    assert_eq!(harness.try_submit(at(2), in_bulk(3)).await, full(2, 2));
    let past = job_with(4, |spec| {
        spec.queue = "bulk".to_owned();
        spec.settings.schedule = once(1);
    });
    assert_eq!(harness.try_submit(at(2), past).await, full(2, 2), "a late job enters the queue at once, too");
    assert!(harness.store.job(job(3).id).await.unwrap().is_none(), "nothing of it was stored");
    harness.submit(at(2), job(5)).await;
    // A running execution makes room; an execution that is returned takes it again.
    let assignment = worker.claim_one(at(3)).await;
    harness.submit(at(3), in_bulk(6)).await;
    worker.give_back(at(4), &assignment).await;
    assert_eq!(harness.try_submit(at(4), in_bulk(7)).await, full(3, 2));
}

pub async fn what_waits_counts_as_much_as_what_is_queued(store: Arc<dyn Store>) {
    let harness = limited(store, 2).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1)).await;
    worker.run(at(2), failed(2)).await;
    let child = |number| {
        job_with(number, |spec| {
            spec.queue = "bulk".to_owned();
            spec.settings.depends_on = vec![job(1).id];
        })
    };
    harness.submit(at(3), child(2)).await;
    assert_eq!(
        harness.try_submit(at(4), child(3)).await,
        full(2, 2),
        "one waits for its retry, one for the other"
    );
}

pub async fn a_batch_fills_a_queue_to_its_limit_and_no_further(store: Arc<dyn Store>) {
    let harness = limited(store, 3).await;
    let jobs = (1..=5).map(|number| NewJob { job: in_bulk(number), reservation: None }).collect();
    let outcomes = harness.store.submit(at(1), jobs).await.unwrap();
    let is_created = |outcome: &SubmitOutcome| matches!(outcome, SubmitOutcome::Created(_));
    assert!(outcomes[..3].iter().all(is_created));
    assert_eq!(outcomes[3..], [full(3, 3), full(3, 3)]);
}

pub async fn racing_submits_never_exceed_the_limit(store: Arc<dyn Store>) {
    let harness = limited(store, 10).await;
    let submits = (1..=50).map(|number| {
        let harness = harness.clone();
        async move { harness.try_submit(at(1), in_bulk(number)).await }
    });
    let outcomes = futures_util::future::join_all(submits).await;
    let created = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::Created(_))).count();
    assert_eq!(created, 10);
}

pub async fn what_was_accepted_for_later_is_never_refused(store: Arc<dyn Store>) {
    let harness = limited(store, 0).await;
    let later = job_with(1, |spec| {
        spec.queue = "bulk".to_owned();
        spec.settings.schedule = once(100);
    });
    let recurring = job_with(2, |spec| {
        spec.queue = "bulk".to_owned();
        spec.settings.schedule = every(60);
    });
    harness.submit(at(1), later.clone()).await;
    harness.submit(at(1), recurring.clone()).await;
    assert!(matches!(harness.fire(at(100), later.id, 1).await, FireOutcome::Fired { .. }));
    assert!(matches!(harness.fire(at(100), recurring.id, 1).await, FireOutcome::Fired { .. }));
    let trigger = Verb::trigger(true);
    harness.done(at(101), recurring.id, trigger).await;
    assert_eq!(harness.open(recurring.id).await.len(), 2, "a trigger ignores the limit");
}

pub async fn a_repeated_submit_to_a_full_queue_is_known(store: Arc<dyn Store>) {
    let harness = limited(store, 1).await;
    harness.submit(at(1), in_bulk(1)).await;
    assert_eq!(harness.try_submit(at(2), in_bulk(1)).await, SubmitOutcome::AlreadyThere);
    let named = |number| {
        job_with(number, |spec| {
            spec.queue = "bulk".to_owned();
            spec.settings.idempotency_key = Some("order".to_owned());
        })
    };
    harness.store.set_queue("bulk".to_owned(), QueueSettings::holding(Some(2))).await.unwrap();
    harness.submit(at(3), named(2)).await;
    assert_eq!(harness.try_submit(at(4), named(3)).await, SubmitOutcome::Existing(named(2).id));
}

pub async fn a_limit_holds_until_it_is_taken_away(store: Arc<dyn Store>) {
    let harness = limited(store, 1).await;
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1)).await;
    assert_eq!(harness.try_submit(at(2), in_bulk(2)).await, full(1, 1));
    worker.run(at(3), succeeded(3)).await;
    harness.submit(at(4), in_bulk(2)).await;
    harness.store.set_queue("bulk".to_owned(), QueueSettings::default()).await.unwrap();
    harness.submit(at(5), in_bulk(3)).await;
}

pub async fn settings_of_queues_are_listed_with_their_pauses(store: Arc<dyn Store>) {
    let harness = limited(store, 7).await;
    for queue in ["bulk", "a"] {
        harness.store.pause_queue(at(1), queue.to_owned(), Pausing::Pause).await.unwrap();
    }
    let row = |queue: &str, paused_at, max_depth| QueueRow {
        paused_at,
        settings: QueueSettings::holding(max_depth),
        ..QueueRow::unset(queue)
    };
    let listed = harness.store.queues().await.unwrap();
    assert_eq!(listed, [row("a", Some(at(1)), None), row("bulk", Some(at(1)), Some(7))]);
    for queue in ["bulk", "a"] {
        harness.store.pause_queue(at(2), queue.to_owned(), Pausing::Resume).await.unwrap();
    }
    assert_eq!(
        harness.store.queues().await.unwrap(),
        [row("bulk", None, Some(7))],
        "resuming the queue keeps the limit"
    );
    harness.store.set_queue("bulk".to_owned(), QueueSettings::default()).await.unwrap();
    assert_eq!(harness.store.queues().await.unwrap(), []);
}

fn in_bulk(number: u32) -> Job {
    job_with(number, |spec| spec.queue = "bulk".to_owned())
}

/// A harness whose queue `bulk` has this limit.
async fn limited(store: Arc<dyn Store>, max_depth: u64) -> Harness {
    store.set_queue("bulk".to_owned(), QueueSettings::holding(Some(max_depth))).await.unwrap();
    Harness::new(store)
}

fn full(depth: u64, max_depth: u64) -> SubmitOutcome {
    SubmitOutcome::QueueFull { queue: "bulk".to_owned(), full: QueueFull { depth, max_depth } }
}
