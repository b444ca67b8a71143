//! Pausing and resuming queues.

use super::fixture::{Harness, at, failed, job, job_with, once};
use punctual_core::cluster_pause::{EVERY_QUEUE, is_paused};
use punctual_core::ids::JobId;
use punctual_core::job::Job;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    Assignment, CommitEffects, FireOutcome, FireRequest, Lane, LookOutcome, NewJob, PausedQueue, Pausing,
    Store, SubmitOutcome,
};
use std::sync::Arc;

pub async fn nothing_of_a_paused_queue_is_claimed(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1)).await;
    harness.submit(at(2), job(2)).await;
    assert_eq!(pause(&harness, Pausing::Pause).await, CommitEffects::default());
    harness.submit(at(4), in_bulk(3)).await;
    assert_eq!(jobs(&worker.claim(at(5), 10).await), [job(2).id]);
    let live = harness.view(job(1).id).await.open.remove(0);
    assert_eq!(live.state, LiveState::Queued, "the queue waits, not the execution");
    let resumed = pause(&harness, Pausing::Resume).await;
    assert!(resumed.queued.contains(&Lane::new("bulk", "report")), "{resumed:?}");
    assert_eq!(jobs(&worker.claim(at(6), 10).await), [job(1).id, job(3).id]);
}

pub async fn a_resumed_queue_names_all_its_lanes(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), in_bulk(1)).await;
    harness
        .submit(
            at(1),
            job_with(2, |spec| {
                spec.queue = "bulk".to_owned();
                spec.job_type = "mail".to_owned();
            }),
        )
        .await;
    harness.submit(at(1), job(3)).await;
    pause(&harness, Pausing::Pause).await;
    let mut lanes = pause(&harness, Pausing::Resume).await.queued;
    lanes.sort();
    assert_eq!(lanes, [Lane::new("bulk", "mail"), Lane::new("bulk", "report")]);
}

pub async fn an_offer_takes_nothing_of_a_paused_queue(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness
        .submit(
            at(1),
            job_with(1, |spec| {
                spec.queue = "bulk".to_owned();
                spec.settings.schedule = once(100);
            }),
        )
        .await;
    harness.submit(at(1), in_bulk(2)).await;
    let (failing, _) = worker.run(at(2), failed(2)).await;
    pause(&harness, Pausing::Pause).await;
    let bulk = vec![Lane::new("bulk", "report")];

    let reservation = Some(worker.reservation());
    let submitted = harness.submit_to(at(3), in_bulk(3), reservation).await;
    assert_eq!((submitted.assigned, submitted.queued), (vec![], bulk.clone()));
    let fire = FireRequest { job: job(1).id, version: 1, reservation };
    let fired = harness.store.fire(at(100), vec![fire]).await.unwrap().remove(0);
    let FireOutcome::Fired { effects, .. } = fired else { panic!("{fired:?}") };
    assert_eq!((effects.assigned, effects.queued), (vec![], bulk.clone()));
    let LookOutcome::Opened(effects) =
        harness.look(at(100), failing.occurrence.attempt(2), reservation).await
    else {
        panic!("it is due");
    };
    assert_eq!((effects.assigned, effects.queued), (vec![], bulk));
    let other = harness.submit_to(at(101), job(4), reservation).await;
    assert_eq!(other.assigned.len(), 1, "the reservation is still good for other queues");
}

pub async fn one_batch_of_offered_jobs_heeds_each_queue(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let worker = harness.worker().await;
    pause(&harness, Pausing::Pause).await;
    let reservation = Some(worker.reservation());
    let jobs = [in_bulk(1), job(2)].map(|job| NewJob { job, reservation }).to_vec();
    let outcomes = harness.store.submit(at(1), jobs).await.unwrap();
    assert!(matches!(&outcomes[0], SubmitOutcome::Created(effects) if effects.assigned.is_empty()));
    assert!(matches!(&outcomes[1], SubmitOutcome::Created(effects) if effects.assigned.len() == 1));
}

pub async fn what_runs_of_a_paused_queue_finishes_and_goes_back(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1)).await;
    let running = worker.claim_one(at(2)).await;
    pause(&harness, Pausing::Pause).await;
    assert_eq!(worker.beat(at(3)).await, []);
    worker.give_back(at(4), &running).await;
    assert!(worker.is_idle(at(5)).await);
    pause(&harness, Pausing::Resume).await;
    assert_eq!(worker.claim_one(at(6)).await.execution, running.execution);
}

pub async fn a_paused_cluster_hands_out_nothing(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), in_bulk(1)).await;
    harness.submit(at(2), job(2)).await;
    harness.store.pause_queue(at(3), EVERY_QUEUE.to_owned(), Pausing::Pause).await.unwrap();
    harness.submit(at(4), job(3)).await;
    assert!(worker.is_idle(at(5)).await);
    assert_eq!(harness.store.queues().await.unwrap(), [], "internal queues are not listed");
    let paused = harness.store.paused_queues().await.unwrap();
    assert!(is_paused(&paused, "bulk") && is_paused(&paused, "any"), "{paused:?}");
    harness.store.pause_queue(at(6), EVERY_QUEUE.to_owned(), Pausing::Resume).await.unwrap();
    assert_eq!(jobs(&worker.claim(at(7), 10).await), [job(1).id, job(2).id, job(3).id]);
    assert_eq!(harness.store.paused_queues().await.unwrap(), []);
}

pub async fn paused_queues_are_listed(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    assert_eq!(harness.store.paused_queues().await.unwrap(), []);
    for (seconds, queue) in [(1, "b"), (2, "a"), (3, "b")] {
        harness.store.pause_queue(at(seconds), queue.to_owned(), Pausing::Pause).await.unwrap();
    }
    let paused = |queue: &str, seconds| PausedQueue { queue: queue.to_owned(), paused_at: at(seconds) };
    assert_eq!(harness.store.paused_queues().await.unwrap(), [paused("a", 2), paused("b", 1)]);
    for queue in ["b", "b", "never paused"] {
        harness.store.pause_queue(at(4), queue.to_owned(), Pausing::Resume).await.unwrap();
    }
    assert_eq!(harness.store.paused_queues().await.unwrap(), [paused("a", 2)]);
}

pub async fn an_execution_knows_how_many_go_before_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in 1..=5 {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    harness.submit(at(1), in_bulk(6)).await;
    let ahead = async |n: u32, limit| harness.store.ahead(job(n).id.occurrence(1), limit).await.unwrap();
    assert_eq!((ahead(1, 10).await, ahead(5, 10).await), (Some(0), Some(4)));
    assert_eq!(ahead(5, 2).await, Some(2), "counts only up to the limit");
    assert_eq!(ahead(6, 10).await, Some(0), "other lanes do not count");
    assert_eq!(worker.claim_in(at(9), "default", "report").await.len(), 5);
    assert_eq!((ahead(1, 10).await, ahead(7, 10).await), (None, None));
}

fn in_bulk(number: u32) -> Job {
    job_with(number, |spec| spec.queue = "bulk".to_owned())
}

async fn pause(harness: &Harness, pausing: Pausing) -> CommitEffects {
    harness.store.pause_queue(at(3), "bulk".to_owned(), pausing).await.unwrap()
}

fn jobs(assignments: &[Assignment]) -> Vec<JobId> {
    assignments.iter().map(|assignment| assignment.execution.occurrence.job).collect()
}
