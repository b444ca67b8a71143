//! Deleting, hiding and purging jobs.

use super::fixture::{Harness, at, died, every, job, job_with, once, succeeded};
use punctual_core::control::Verb;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{
    CancelOutcome, CommitEffects, ControlOutcome, FireOutcome, JobQuery, LogLine, LogStream, Store,
    SubmitOutcome,
};
use punctual_core::schedule::OverlapPolicy;
use std::sync::Arc;

pub async fn a_deleted_job_is_hidden_everywhere(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (execution, _) = worker.run(at(2), died(2)).await;
    harness.done(at(3), job(1).id, Verb::Delete).await;
    assert_eq!(harness.store.job(job(1).id).await.unwrap(), None);
    assert_eq!(harness.store.jobs(JobQuery { limit: 10, ..JobQuery::default() }).await.unwrap().items, []);
    assert_eq!(harness.store.execution(execution).await.unwrap(), None);
    assert_eq!(harness.dead_letters().await, []);
    assert_eq!(harness.cancel(at(4), execution).await, CancelOutcome::NotThere);
    assert_eq!(harness.redrive(at(4), execution.occurrence).await, ControlOutcome::NotThere);
    let trigger = Verb::trigger(true);
    for verb in [Verb::Pause, Verb::Resume, trigger, Verb::Retry, Verb::Cancel, Verb::Delete] {
        assert_eq!(harness.control(at(4), job(1).id, verb).await, ControlOutcome::NotThere);
    }
}

pub async fn a_page_without_deleted_jobs_still_leads_on(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for n in 1..=6 {
        harness.submit(at(1), job(n)).await;
    }
    for n in [3, 4, 5, 6] {
        harness.done(at(2), job(n).id, Verb::Delete).await;
    }
    let mut query = JobQuery { limit: 1, ..JobQuery::default() };
    let mut found = Vec::new();
    for _page in 0..10 {
        let page = harness.store.jobs(query.clone()).await.unwrap();
        found.extend(page.items.iter().map(|view| view.job.id));
        let Some(next) = page.next else { break };
        query.before = Some(next);
    }
    assert_eq!(found, [job(2).id, job(1).id]);
}

pub async fn deleting_ends_what_has_not_started(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let deleted = harness.done(at(2), job(1).id, Verb::Delete).await;
    assert_eq!(deleted.effects.ended, [(job(1).id.occurrence(1).attempt(1), Status::Cancelled)]);
    assert!(worker.is_idle(at(3)).await);
    let later = job_with(2, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), later.clone()).await;
    harness.done(at(2), later.id, Verb::Delete).await;
    assert_eq!(harness.due(at(9_999)).await, []);
    assert_eq!(harness.fire(at(100), later.id, 1).await, FireOutcome::Conflict);
}

pub async fn what_runs_of_a_deleted_job_still_reports(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in [1, 2] {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let running = worker.claim(at(3), 2).await;
    for n in [1, 2] {
        let asked = harness.done(at(4), job(n).id, Verb::Delete).await.asked;
        assert_eq!(asked, [running[n as usize - 1].execution]);
    }
    assert_eq!(worker.beat(at(5)).await.len(), 2);
    assert_eq!(worker.end(at(6), &running[0], succeeded(6)).await, CommitEffects::default());
    let ended = vec![(running[1].execution, Status::Cancelled)];
    assert_eq!(
        worker.give_back(at(6), &running[1]).await,
        CommitEffects { ended, ..CommitEffects::default() }
    );
    assert!(worker.is_idle(at(7)).await);
}

pub async fn a_purge_removes_what_is_left_of_deleted_jobs(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (execution, _) = worker.run(at(2), succeeded(2)).await;
    let line = LogLine {
        number: 0,
        execution,
        timestamp: at(2),
        stream: LogStream::Log,
        message: "hello".to_owned(),
    };
    harness.store.append_logs(vec![line]).await.unwrap();
    assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap(), "nothing is deleted yet");
    assert_eq!(harness.ended(job(1).id).await.len(), 1);
    harness.done(at(3), job(1).id, Verb::Delete).await;
    assert_eq!(harness.try_submit(at(4), job(1)).await, SubmitOutcome::AlreadyThere, "its row still exists");
    assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap());
    assert_eq!(harness.ended(job(1).id).await, []);
    assert_eq!(harness.store.logs(execution, None, 10).await.unwrap().items, []);
    harness.submit(at(5), job(1)).await;
    assert_eq!(worker.claim_one(at(6)).await.execution, execution, "nothing is left of the first one");
}

pub async fn a_purge_waits_for_what_runs(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    harness.done(at(3), job(1).id, Verb::Delete).await;
    assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap());
    assert_eq!(harness.try_submit(at(4), job(1)).await, SubmitOutcome::AlreadyThere);
    worker.end(at(5), &running, succeeded(5)).await;
    assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap());
    assert!(matches!(harness.try_submit(at(6), job(1)).await, SubmitOutcome::Created(_)));
}

pub async fn a_purge_leaves_what_has_just_ended(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in [1, 2] {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let running = worker.claim_one(at(3)).await;
    for n in [1, 2] {
        harness.done(at(4), job(n).id, Verb::Delete).await;
    }
    worker.end(at(20), &running, succeeded(20)).await;
    assert!(!harness.store.purge(at(4), 100).await.unwrap());
    assert_eq!(harness.ended(job(2).id).await.len(), 1, "it was deleted just then");
    assert!(!harness.store.purge(at(20), 100).await.unwrap());
    assert_eq!(harness.ended(job(2).id).await, []);
    assert_eq!(harness.ended(job(1).id).await.len(), 1, "it kept running and has just ended");
    assert!(!harness.store.purge(at(20), 1).await.unwrap(), "nothing more can be purged now");
    assert!(!harness.store.purge(at(21), 100).await.unwrap());
    assert_eq!(harness.ended(job(1).id).await, []);
}

pub async fn a_purge_is_bounded_and_says_when_there_is_more(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = OverlapPolicy::Allow;
    });
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(50), job.id, 1).await;
    for _ in 0..5 {
        worker.run(at(51), succeeded(51)).await;
    }
    harness.done(at(52), job.id, Verb::Delete).await;
    let mut left = Vec::new();
    for _call in 0..10 {
        let more = harness.store.purge(at(1_000_000), 2).await.unwrap();
        left.push(harness.ended(job.id).await.len());
        if !more {
            break;
        }
    }
    assert_eq!(left[..3], [3, 1, 0]);
    assert!(matches!(harness.try_submit(at(60), job).await, SubmitOutcome::Created(_)));
}
