//! The keys that users give to jobs.

use super::fixture::{Harness, at, died, job_with, once, succeeded};
use punctual_core::control::{Refusal, Update, Verb};
use punctual_core::job::{Job, JobStatus};
use punctual_core::ports::{ControlOutcome, NewJob, Retirement, Store, SubmitOutcome};
use std::sync::Arc;

const TRIGGER: Verb = Verb::trigger(false);

pub async fn an_idempotency_key_names_one_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), named(1)).await;
    assert_eq!(harness.try_submit(at(2), named(2)).await, SubmitOutcome::Existing(named(1).id));
    assert_eq!(harness.store.job(named(2).id).await.unwrap(), None, "nothing of it is stored");
    assert_eq!(worker.claim(at(3), 10).await.len(), 1);
}

pub async fn an_idempotency_key_names_its_job_after_that_has_finished(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), named(1)).await;
    worker.run(at(2), succeeded(2)).await;
    assert_eq!(harness.try_submit(at(3), named(2)).await, SubmitOutcome::Existing(named(1).id));
    assert!(worker.is_idle(at(4)).await);
}

pub async fn a_repeated_submit_of_a_keyed_job_is_already_there(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for job in [named(1), unique(2)] {
        harness.submit(at(1), job.clone()).await;
        assert_eq!(harness.try_submit(at(2), job).await, SubmitOutcome::AlreadyThere);
    }
}

pub async fn the_first_of_a_batch_gets_the_key(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let jobs = [named(1), named(2), unique(3), unique(4)];
    let jobs = jobs.map(|job| NewJob { job, reservation: None }).to_vec();
    let outcomes = harness.store.submit(at(1), jobs).await.unwrap();
    assert!(matches!(outcomes[0], SubmitOutcome::Created(_)));
    assert_eq!(outcomes[1], SubmitOutcome::Existing(named(1).id));
    assert!(matches!(outcomes[2], SubmitOutcome::Created(_)));
    assert_eq!(outcomes[3], SubmitOutcome::KeyTaken(unique(3).id));
}

pub async fn racing_submits_with_one_key_create_one_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let submits = (1..=20).map(|n| harness.try_submit(at(1), named(n)));
    let outcomes = futures_util::future::join_all(submits).await;
    let created = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::Created(_))).count();
    let existing = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::Existing(_))).count();
    assert_eq!((created, existing), (1, 19));
}

pub async fn owners_have_keys_of_their_own(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let owned = |mut job: Job, owner: &str| {
        job.spec.owner = owner.to_owned();
        job
    };
    harness.submit(at(1), named(1)).await;
    harness.submit(at(1), owned(named(2), "ann")).await;
    harness.submit(at(1), owned(named(3), "bob")).await;
    harness.submit(at(1), unique(4)).await;
    harness.submit(at(1), owned(unique(5), "ann")).await;
    let again = harness.try_submit(at(2), owned(named(6), "ann")).await;
    assert_eq!(again, SubmitOutcome::Existing(named(2).id));
}

pub async fn a_key_names_either_one_job_or_one_unfinished_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), named(1)).await;
    harness.submit(at(1), unique(2)).await;
}

pub async fn a_deleted_job_frees_its_keys(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for (first, second) in [(named(1), named(2)), (unique(3), unique(4))] {
        harness.submit(at(1), first.clone()).await;
        worker.claim_one(at(2)).await;
        harness.done(at(3), first.id, Verb::Delete).await;
        harness.submit(at(4), second.clone()).await;
        assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap());
        let third = Job { id: first.id, ..second };
        let outcome = harness.try_submit(at(5), third).await;
        assert_eq!(outcome, SubmitOutcome::AlreadyThere, "its running execution still exists");
        worker.claim_one(at(6)).await;
    }
}

pub async fn a_retired_job_frees_its_keys(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), named(1)).await;
    worker.run(at(2), succeeded(2)).await;
    let step = Retirement { finished_before: at(50), after: None, limit: 10 };
    assert_eq!(harness.store.retire(at(100), step).await.unwrap().jobs, 1);
    harness.submit(at(101), named(2)).await;
}

pub async fn a_job_that_was_put_by_its_name_keeps_it_until_it_is_deleted(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), put(1)).await;
    harness.submit(at(1), named(2)).await;
    worker.run(at(2), succeeded(2)).await;
    worker.run(at(2), succeeded(2)).await;
    let step = Retirement { finished_before: at(50), after: None, limit: 10 };
    assert_eq!(harness.store.retire(at(100), step).await.unwrap().jobs, 1, "the other one");
    assert_eq!(harness.status(put(1).id).await, JobStatus::Completed);
    assert_eq!(harness.try_submit(at(101), put(3)).await, SubmitOutcome::Existing(put(1).id));
    harness.done(at(102), put(1).id, Verb::Delete).await;
    harness.submit(at(103), put(3)).await;
}

pub async fn a_unique_key_admits_one_unfinished_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut first = unique(1);
    first.spec.settings.schedule = once(100);
    let taken = SubmitOutcome::KeyTaken(first.id);
    harness.submit(at(1), first.clone()).await;
    assert_eq!(harness.try_submit(at(2), unique(2)).await, taken, "it is in the future");
    harness.fired(at(100), first.id, 1).await;
    assert_eq!(harness.try_submit(at(101), unique(2)).await, taken, "it is queued");
    let running = worker.claim_one(at(102)).await;
    assert_eq!(harness.try_submit(at(103), unique(2)).await, taken, "it runs");
    worker.end(at(104), &running, succeeded(104)).await;
    harness.submit(at(105), unique(2)).await;
    assert_eq!(harness.try_submit(at(106), unique(3)).await, SubmitOutcome::KeyTaken(unique(2).id));
}

pub async fn every_end_of_a_job_gives_its_unique_key_free(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), unique(1)).await;
    worker.run(at(2), died(2)).await;
    harness.submit(at(3), unique(2)).await;
    harness.done(at(4), unique(2).id, Verb::Cancel).await;
    harness.submit(at(5), unique(3)).await;
    let execution = unique(3).id.occurrence(1).attempt(1);
    harness.cancel(at(6), execution).await;
    harness.submit(at(7), unique(4)).await;
}

pub async fn a_cancelled_job_keeps_its_unique_key_while_it_runs(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), unique(1)).await;
    let running = worker.claim_one(at(2)).await;
    harness.done(at(3), unique(1).id, Verb::Cancel).await;
    assert_eq!(harness.try_submit(at(4), unique(2)).await, SubmitOutcome::KeyTaken(unique(1).id));
    worker.end(at(5), &running, succeeded(5)).await;
    harness.submit(at(6), unique(2)).await;
}

pub async fn a_finished_job_whose_unique_key_was_taken_cannot_begin_again(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), unique(1)).await;
    let (dead, _) = worker.run(at(2), died(2)).await;
    harness.submit(at(3), unique(2)).await;
    let taken = Refusal::KeyTaken(unique(2).id);
    let first = unique(1).id;
    assert_eq!(harness.refused(at(4), first, TRIGGER).await, taken);
    assert_eq!(harness.refused(at(4), first, Verb::Retry).await, taken);
    assert_eq!(harness.redrive(at(4), dead.occurrence).await, ControlOutcome::Refused(taken.clone()));
    let mut later = unique(1);
    later.spec.settings.schedule = once(500);
    let update = Verb::Update(Box::new(Update { spec: later.spec, expected_version: None }));
    assert_eq!(harness.refused(at(4), first, update).await, taken);
    assert_eq!(harness.status(first).await, JobStatus::Failed);
    assert_eq!(harness.dead_letters().await.len(), 1);

    worker.run(at(5), succeeded(5)).await;
    harness.redriven(at(6), dead.occurrence).await;
    assert_eq!(
        harness.try_submit(at(7), unique(3)).await,
        SubmitOutcome::KeyTaken(first),
        "it holds the key again"
    );
    assert_eq!(harness.refused(at(8), unique(2).id, TRIGGER).await, Refusal::KeyTaken(first));
}

pub async fn a_name_identifies_one_job_that_was_put_by_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let named_job =
        async || harness.store.named_job("default".to_owned(), "nightly".to_owned()).await.unwrap();
    harness.submit(at(1), nightly(1)).await;
    assert_eq!(named_job().await, None, "it was not put by its name");
    harness.submit(at(1), put(2)).await;
    assert_eq!(named_job().await, Some(put(2).id));
    assert_eq!(harness.store.named_job("ann".to_owned(), "nightly".to_owned()).await.unwrap(), None);
    assert_eq!(harness.try_submit(at(2), put(3)).await, SubmitOutcome::Existing(put(2).id));
    harness.submit(at(2), nightly(4)).await;
    for _ in 0..3 {
        worker.run(at(3), succeeded(3)).await;
    }
    let again = harness.try_submit(at(4), put(3)).await;
    assert_eq!(again, SubmitOutcome::Existing(put(2).id), "a finished job has its name");
    harness.done(at(5), put(2).id, Verb::Delete).await;
    assert_eq!(named_job().await, None);
    harness.submit(at(6), put(3)).await;
    assert_eq!(named_job().await, Some(put(3).id));
}

pub async fn an_update_may_let_a_free_name_identify_the_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let update = |spec| Verb::Update(Box::new(Update { spec, expected_version: None }));
    harness.submit(at(1), nightly(1)).await;
    harness.submit(at(1), nightly(2)).await;
    harness.done(at(2), nightly(1).id, update(put(1).spec)).await;
    let named = harness.store.named_job("default".to_owned(), "nightly".to_owned()).await.unwrap();
    assert_eq!(named, Some(put(1).id));
    let taken = Refusal::NameTaken(put(1).id);
    assert_eq!(harness.refused(at(3), nightly(2).id, update(put(2).spec)).await, taken);
    assert_eq!(harness.try_submit(at(3), put(3)).await, SubmitOutcome::Existing(put(1).id));
    let mut renamed = put(1).spec;
    renamed.name = "weekly".to_owned();
    assert_eq!(harness.refused(at(4), put(1).id, update(renamed)).await, Refusal::Fixed("name"));
}

pub async fn racing_puts_by_one_name_create_one_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let submits = (1..=20).map(|n| harness.try_submit(at(1), put(n)));
    let outcomes = futures_util::future::join_all(submits).await;
    let created = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::Created(_))).count();
    let existing = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::Existing(_))).count();
    assert_eq!((created, existing), (1, 19));
}

/// The n-th job with the name that all of them share.
fn nightly(number: u32) -> Job {
    job_with(number, |spec| spec.name = "nightly".to_owned())
}

/// The same job, put by its name.
fn put(number: u32) -> Job {
    job_with(number, |spec| {
        spec.name = "nightly".to_owned();
        spec.settings.by_name = true;
    })
}

/// The n-th job, with the idempotency key that all of them share.
fn named(number: u32) -> Job {
    job_with(number, |spec| spec.settings.idempotency_key = Some("invoice".to_owned()))
}

/// The n-th job, with the unique key that all of them share.
fn unique(number: u32) -> Job {
    job_with(number, |spec| spec.settings.unique_key = Some("invoice".to_owned()))
}
