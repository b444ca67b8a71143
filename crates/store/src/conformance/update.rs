//! Updating jobs.

use super::fixture::{
    Harness, at, behind, died, every, failed, job, job_with, lane, once, recurring_every, succeeded,
};
use punctual_core::control::{Refusal, Reseal, Update, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::{Job, JobSpec, JobStatus, Priority};
use punctual_core::ports::{ControlOutcome, DueKind, FireOutcome, Lane, LookOutcome, Store};
use punctual_core::schedule::{OverlapPolicy, Recurring};
use std::sync::Arc;
use std::time::Duration;

pub async fn an_update_names_the_version_it_was_made_from(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    let renamed = |name: &str, expected_version| {
        Verb::Update(Box::new(Update {
            spec: JobSpec { name: name.to_owned(), ..job(1).spec },
            expected_version,
        }))
    };
    assert_eq!(harness.done(at(2), job(1).id, renamed("b", Some(1))).await.version, 2);
    let stale = harness.refused(at(3), job(1).id, renamed("c", Some(1))).await;
    assert_eq!(stale, Refusal::Stale { version: 2 });
    assert_eq!(harness.done(at(4), job(1).id, renamed("d", None)).await.version, 3);
    let now = harness.view(job(1).id).await.job;
    assert_eq!((now.version, now.spec.name.as_str(), now.updated_at), (3, "d", at(4)));
    assert_eq!(now.created_at, job(1).created_at);
    assert_eq!(harness.control(at(5), job(2).id, renamed("e", None)).await, ControlOutcome::NotThere);
}

pub async fn an_update_that_changes_nothing_keeps_the_version(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    assert_eq!(harness.done(at(2), job(1).id, to(&job(1))).await.version, 1);
    assert_eq!(harness.view(job(1).id).await.job, job(1));
}

pub async fn another_stored_form_of_a_payload_is_no_update(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    let before = harness.view(job(1).id).await;
    let reseal = |from: &str, to: &str| {
        Verb::Reseal(Box::new(Reseal { from: from.to_owned(), to: to.to_owned() }))
    };
    let stored = before.job.spec.payload.clone();
    assert_eq!(harness.done(at(2), job(1).id, reseal(&stored, "punctual-sealed:1:k:x")).await.version, 1);
    // A late copy, and one that was computed from another payload, change nothing.
    for from in [stored.as_str(), "{}"] {
        harness.done(at(3), job(1).id, reseal(from, "late")).await;
    }
    let mut after = harness.view(job(1).id).await;
    assert_eq!(after.job.spec.payload, "punctual-sealed:1:k:x");
    after.job.spec.payload = stored;
    assert_eq!(after, before);
}

pub async fn what_names_a_job_cannot_be_changed(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    let key = || Some("k".to_owned());
    let changed = [
        ("owner_id", job_with(1, |spec| spec.owner = "ann".to_owned())),
        ("idempotency_key", job_with(1, |spec| spec.settings.idempotency_key = key())),
        ("unique_key", job_with(1, |spec| spec.settings.unique_key = key())),
        ("depends_on", job_with(1, |spec| spec.settings.depends_on = vec![job(2).id])),
    ];
    for (field, job_changed) in changed {
        let refusal = harness.refused(at(2), job(1).id, to(&job_changed)).await;
        assert_eq!(refusal, Refusal::Fixed(field));
    }
    assert_eq!(harness.view(job(1).id).await.job, job(1));
}

pub async fn a_new_queue_or_job_type_moves_what_is_queued(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let moved = job_with(1, |spec| {
        spec.queue = "bulk".to_owned();
        spec.job_type = "mail".to_owned();
    });
    let lane = Lane::new("bulk", "mail");
    assert_eq!(harness.done(at(2), job(1).id, to(&moved)).await.effects.queued, std::slice::from_ref(&lane));
    assert!(worker.is_idle(at(3)).await);
    let depths = harness.store.depths().await.unwrap();
    assert_eq!(depths.iter().map(|depth| (&depth.lane, depth.queued)).collect::<Vec<_>>(), [(&lane, 1)]);
    let execution = job(1).id.occurrence(1).attempt(1);
    assert_eq!(worker.claim_in(at(4), "bulk", "mail").await, [execution]);
}

pub async fn a_new_queue_moves_what_waits_for_its_retry(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (first, _) = worker.run(at(2), failed(2)).await;
    harness.done(at(3), job(1).id, to(&in_bulk(1))).await;
    let next = first.occurrence.attempt(2);
    let LookOutcome::Opened(effects) = harness.look(at(100), next, None).await else { panic!("it is due") };
    assert_eq!(effects.queued, [Lane::new("bulk", "report")]);
    assert_eq!(worker.claim_in(at(101), "default", "report").await, []);
    assert_eq!(worker.claim_in(at(101), "bulk", "report").await, [next]);
}

pub async fn a_new_queue_moves_the_retry_of_what_runs(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    harness.done(at(3), job(1).id, to(&in_bulk(1))).await;
    assert_eq!(worker.give_back(at(4), &running).await.queued, [Lane::new("bulk", "report")]);
    assert_eq!(worker.claim_in(at(5), "bulk", "report").await, [running.execution]);
}

pub async fn a_new_queue_moves_what_is_to_come(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    let mut moved = job.clone();
    moved.spec.queue = "bulk".to_owned();
    let due = harness.done(at(2), job.id, to(&moved)).await.effects.due;
    let DueKind::Schedule { version, .. } = due[0].what else { panic!("{due:?}") };
    assert_eq!((due[0].at, &due[0].lane), (at(100), &Lane::new("bulk", "report")));
    assert_eq!(harness.fire(at(100), job.id, 1).await, FireOutcome::Conflict, "the old entry no longer applies");
    harness.fired(at(100), job.id, version).await;
    assert_eq!(worker.claim_in(at(101), "bulk", "report").await.len(), 1);
}

pub async fn a_new_priority_reorders_what_is_queued(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in 1..=3 {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let urgent = job_with(3, |spec| spec.priority = Priority::MAX);
    harness.done(at(4), job(3).id, to(&urgent)).await;
    let claimed = worker.claim(at(5), 10).await;
    let order: Vec<_> = claimed.iter().map(|assignment| assignment.execution.occurrence.job).collect();
    assert_eq!(order, [job(3).id, job(1).id, job(2).id]);
}

pub async fn the_next_claim_runs_by_the_new_description(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let changed = job_with(1, |spec| {
        spec.payload = "7".to_owned();
        spec.settings.timeout_ms = 1_500;
    });
    harness.done(at(2), job(1).id, to(&changed)).await;
    let assignment = worker.claim_one(at(3)).await;
    assert_eq!((assignment.payload.as_str(), assignment.timeout), ("7", Duration::from_millis(1_500)));
    assert_eq!(assignment.job_version, 2);
    worker.end(at(4), &assignment, succeeded(4)).await;
    let last = harness.view(job(1).id).await.last_finished.expect("it has run");
    assert_eq!(last.job_version, 2);
}

pub async fn what_runs_keeps_the_version_it_was_claimed_by(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    harness.done(at(3), job(1).id, to(&job_with(1, |spec| spec.payload = "7".to_owned()))).await;
    worker.end(at(4), &running, failed(4)).await;
    let last = harness.view(job(1).id).await.last_finished.expect("one attempt has ended");
    assert_eq!(last.job_version, 1);
    harness.look(at(100), running.execution.occurrence.attempt(2), None).await;
    let next = worker.claim_one(at(101)).await;
    assert_eq!((next.job_version, next.payload.as_str()), (2, "7"));
}

pub async fn a_gate_that_opens_to_an_offer_hands_out_the_new_description(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (first, _) = worker.run(at(2), failed(2)).await;
    harness.done(at(3), job(1).id, to(&job_with(1, |spec| spec.payload = "7".to_owned()))).await;
    let reservation = worker.reservation();
    let LookOutcome::Opened(effects) =
        harness.look(at(100), first.occurrence.attempt(2), Some(reservation)).await
    else {
        panic!("it is due");
    };
    let (_, assignment) = &effects.assigned[0];
    assert_eq!((assignment.job_version, assignment.payload.as_str()), (2, "7"));
}

pub async fn a_new_schedule_counts_from_now(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let mut changed = job.clone();
    changed.spec.settings.schedule = every(7);
    let due = harness.done(at(15), job.id, to(&changed)).await.effects.due;
    let DueKind::Schedule { version, .. } = due[0].what else { panic!("{due:?}") };
    assert_eq!((due[0].at, version), (at(21), 3));
    assert_eq!(harness.fire(at(21), job.id, 2).await, FireOutcome::Conflict, "the old entry no longer applies");
    assert_eq!(harness.due(at(21)).await, [at(21)]);
    let (_, _, next) = harness.fired(at(21), job.id, version).await;
    assert_eq!(next.expect("the schedule has further runs").at, at(28));
}

pub async fn a_schedule_that_is_renewed_from_behind_repeats_no_time_of_the_spent_one(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let runs = |max| {
        job_with(1, |spec| {
            spec.settings.schedule = Recurring { max_runs: Some(max), ..recurring_every(10) }.into();
            spec.settings.overlap = OverlapPolicy::Allow;
        })
    };
    harness.submit(at(1), runs(2)).await;
    harness.fired(at(10), job(1).id, 1).await;
    assert!(harness.fired(at(21), job(1).id, 2).await.2.is_none(), "its runs are used up");
    // On a node whose clock is a few seconds slow, or after a long delay.
    harness.done(at(15), job(1).id, to(&runs(3))).await;
    let view = harness.view(job(1).id).await;
    assert_eq!(view.job.updated_at, at(21), "the last update has the latest time");
    let schedule = view.schedule.expect("one more run");
    assert_eq!((schedule.nominal, schedule.due_at, schedule.fired), (Some(at(30)), Some(at(30)), 2));
}

pub async fn a_run_that_has_not_started_moves_to_its_new_time(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let later = job_with(1, |spec| spec.settings.schedule = once(500));
    let postponed = harness.done(at(2), job(1).id, to(&later)).await;
    assert_eq!(postponed.effects.due.iter().map(|due| due.at).collect::<Vec<_>>(), [at(500)]);
    assert_eq!(harness.open(job(1).id).await, [(1, behind(Gate::Time))]);
    assert!(worker.is_idle(at(499)).await);
    let execution = job(1).id.occurrence(1).attempt(1);
    assert!(matches!(harness.look(at(500), execution, None).await, LookOutcome::Opened(_)));
    assert_eq!(worker.claim_one(at(501)).await.scheduled_time, at(500));
}

pub async fn a_finished_job_with_a_new_time_runs_again(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), died(2)).await;
    let later = job_with(1, |spec| spec.settings.schedule = once(500));
    harness.done(at(3), job(1).id, to(&later)).await;
    assert_eq!(harness.status(job(1).id).await, JobStatus::Active);
    let version = harness.view(job(1).id).await.schedule.expect("it has a future run").version;
    harness.fired(at(500), job(1).id, version).await;
    assert_eq!(worker.claim_one(at(501)).await.execution, job(1).id.occurrence(2).attempt(1));
}

pub async fn a_paused_job_stays_paused_under_its_new_description(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::Pause).await;
    let mut changed = job.clone();
    changed.spec.queue = "bulk".to_owned();
    changed.spec.settings.schedule = every(7);
    assert_eq!(harness.done(at(3), job.id, to(&changed)).await.effects.due, []);
    assert_eq!((harness.status(job.id).await, harness.due(at(9_999)).await), (JobStatus::Paused, vec![]));
    assert_eq!(harness.done(at(5), job.id, Verb::Resume).await.effects.due[0].at, at(7));
}

pub async fn a_cancelled_job_cannot_be_updated(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    harness.done(at(2), job(1).id, Verb::Cancel).await;
    assert_eq!(harness.refused(at(3), job(1).id, to(&in_bulk(1))).await, Refusal::Cancelled);
}

pub async fn an_update_that_moves_nothing_wakes_nobody(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let running = worker.claim_one(at(2)).await;
    let changed = job_with(1, |spec| spec.settings.max_retries = 0);
    let updated = harness.done(at(3), job(1).id, to(&changed)).await;
    assert!(updated.effects.queued.is_empty() && updated.asked.is_empty());
    assert_eq!(worker.give_back(at(4), &running).await.queued, [lane()]);
}

fn in_bulk(number: u32) -> Job {
    job_with(number, |spec| spec.queue = "bulk".to_owned())
}

/// The update to this spec, whatever the version.
fn to(job: &Job) -> Verb {
    Verb::Update(Box::new(Update { spec: job.spec.clone(), expected_version: None }))
}
