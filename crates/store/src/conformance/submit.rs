//! Submitting jobs.

use super::fixture::{Harness, at, every, job, job_with, once};
use punctual_core::ids::JobId;
use punctual_core::job::{JobStatus, Priority};
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    CommitEffects, DueKind, JobQuery, Lane, NewJob, SlotReservation, Store, SubmitOutcome,
};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::OverlapPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;

pub async fn a_submitted_job_is_queued(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let effects = harness.submit(at(1), job(1)).await;
    let queued = vec![Lane::new("default", "report")];
    assert_eq!(effects, CommitEffects { queued, ..CommitEffects::default() });
    let view = harness.view(job(1).id).await;
    assert_eq!((view.status(), &view.job, &view.schedule), (JobStatus::Active, &job(1), &None));
    assert_eq!(view.open.len(), 1);
    let live = &view.open[0];
    assert_eq!((live.state, live.attempt, live.epoch.0), (LiveState::Queued, 1, 0));
    assert_eq!((live.scheduled_time, live.available_at), (at(1), at(1)));
}

pub async fn a_repeated_submit_is_already_there(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    let twice = vec![
        NewJob { job: job(1), reservation: None },
        NewJob { job: job(2), reservation: None },
        NewJob { job: job(2), reservation: None },
    ];
    let outcomes = harness.store.submit(at(2), twice).await.unwrap();
    assert_eq!(outcomes[0], SubmitOutcome::AlreadyThere);
    assert!(matches!(outcomes[1], SubmitOutcome::Created(_)));
    assert_eq!(outcomes[2], SubmitOutcome::AlreadyThere);
    assert_eq!(harness.view(job(1).id).await.open[0].available_at, at(1), "the first submit counts");
    let session = harness.open_session("w").await;
    assert_eq!(harness.claim(at(3), session, 1, 10).await.len(), 2);
}

pub async fn a_job_reads_back_as_it_was_written(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut full = job_with(1, |spec| {
        spec.name = "nightly".to_owned();
        spec.queue = "bulk".to_owned();
        spec.owner = "ann".to_owned();
        spec.priority = Priority::MAX;
        spec.payload = r#"{"π":[1,2]}"#.to_owned();
        spec.settings.schedule = every(60);
        spec.settings.overlap = OverlapPolicy::Allow;
        spec.settings.max_retries = 7;
        spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![1, 2, 3] };
        spec.settings.timeout_ms = 1_500;
        spec.settings.tags = vec!["a".to_owned(), "b".to_owned()];
    });
    full.version = 3;
    full.updated_at = at(9);
    let later = job_with(2, |spec| {
        spec.settings.schedule = once(100);
        spec.settings.timeout_ms = 1_500;
    });
    for job in [full, later, job(3)] {
        harness.submit(at(1), job.clone()).await;
        assert_eq!(harness.view(job.id).await.job, job);
    }
}

pub async fn a_valid_offer_leases_the_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    let reservation = SlotReservation { session, turn: 1 };
    let effects = harness.submit_to(at(1), job(1), Some(reservation)).await;
    assert_eq!((effects.queued, effects.due), (vec![], vec![]));
    let (to, assignment) = effects.assigned.into_iter().next().expect("it is leased");
    assert_eq!(
        (to, assignment.execution, assignment.epoch.0),
        (reservation, job(1).id.occurrence(1).attempt(1), 1)
    );
    let open = harness.view(job(1).id).await.open;
    assert!(matches!(open[0].state, LiveState::Running(lease) if lease.session == session));
    assert_eq!(harness.claim(at(2), session, 2, 1).await, [], "nothing is queued, and sequence number 1 is used");
}

pub async fn one_offer_takes_all_jobs_of_its_call(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let reservation = Some(SlotReservation { session: harness.open_session("w").await, turn: 1 });
    let jobs = (1..=3).map(|n| NewJob { job: job(n), reservation }).collect();
    for outcome in harness.store.submit(at(1), jobs).await.unwrap() {
        assert!(matches!(outcome, SubmitOutcome::Created(effects) if effects.assigned.len() == 1));
    }
    let later = harness.submit_to(at(2), job(4), reservation).await;
    assert!(later.assigned.is_empty() && later.queued.len() == 1, "another call finds the sequence number used");
}

pub async fn an_offer_with_a_used_turn_queues(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(1)).await;
    harness.claim_one(at(1), session, 1).await;
    let effects = harness.submit_to(at(2), job(2), Some(SlotReservation { session, turn: 1 })).await;
    assert!(effects.assigned.is_empty() && effects.queued.len() == 1);
}

pub async fn an_offer_from_the_future_queues(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    let effects = harness.submit_to(at(1), job(1), Some(SlotReservation { session, turn: 2 })).await;
    assert!(effects.assigned.is_empty() && effects.queued.len() == 1);
    harness.claim_one(at(2), session, 1).await;
}

pub async fn an_offer_of_a_lost_session_queues(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.lose(at(1), session, 0).await;
    let effects = harness.submit_to(at(2), job(1), Some(SlotReservation { session, turn: 1 })).await;
    assert!(effects.assigned.is_empty() && effects.queued.len() == 1);
}

pub async fn a_one_time_job_waits_for_its_time(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    let session = harness.open_session("w").await;
    let effects = harness.submit_to(at(1), job.clone(), Some(SlotReservation { session, turn: 1 })).await;
    let due = effects.due.first().expect("it is due later");
    assert_eq!((due.at, due.what), (at(100), DueKind::Schedule { job: job.id, version: 1 }));
    assert_eq!(due.lane, Lane::new("default", "report"));
    assert_eq!((effects.due.len(), effects.assigned, effects.queued), (1, vec![], vec![]));
    let view = harness.view(job.id).await;
    assert_eq!((view.status(), view.open.len()), (JobStatus::Active, 0));
    let schedule = view.schedule.expect("it has a future occurrence");
    assert_eq!((schedule.nominal, schedule.due_at, schedule.fired), (Some(at(100)), Some(at(100)), 0));
    assert_eq!(schedule.schedule, once(100));
    assert_eq!(harness.claim(at(200), session, 1, 1).await, [], "the reservation was not used");
}

pub async fn a_one_time_job_of_the_past_is_due_at_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(-100));
    assert!(harness.submit(at(1), job.clone()).await.queued.len() == 1);
    let live = harness.view(job.id).await.open.remove(0);
    assert_eq!((live.scheduled_time, live.available_at), (at(-100), at(1)));
}

pub async fn a_thousand_concurrent_submits_are_neither_lost_nor_doubled(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let ids: BTreeSet<JobId> = (0..1_000).map(|n| job(n).id).collect();
    let submits = (0..1_000).map(|n| {
        let harness = harness.clone();
        // Each is sent twice, like a client that did not get the first reply.
        async move { futures_util::future::join(create(&harness, n), create(&harness, n)).await }
    });
    let created: Vec<bool> =
        futures_util::future::join_all(submits).await.into_iter().map(|(a, b)| a != b).collect();
    assert!(created.iter().all(|exactly_one| *exactly_one));

    let query = JobQuery { limit: 1_000, ..JobQuery::default() };
    let page = harness.store.jobs(query).await.unwrap();
    assert_eq!(page.items.into_iter().map(|view| view.job.id).collect::<BTreeSet<_>>(), ids);
    let session = harness.open_session("w").await;
    let claimed = harness.claim(at(2), session, 1, 5_000).await;
    assert_eq!(claimed.len(), 1_000);
    assert_eq!(claimed.iter().map(|a| a.execution.occurrence.job).collect::<BTreeSet<_>>(), ids);
}

/// Submits the n-th job. Returns whether that created it.
async fn create(harness: &Harness, n: u32) -> bool {
    let outcomes =
        harness.store.submit(at(1), vec![NewJob { job: job(n), reservation: None }]).await.unwrap();
    matches!(outcomes[0], SubmitOutcome::Created(_))
}
