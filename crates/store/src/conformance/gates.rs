//! Time gates: executions that wait for their next attempt.

use super::fixture::{Harness, at, failed, job, time_gate};
use punctual_core::control::{Update, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{ExecutionId, SegmentSet, SessionId};
use punctual_core::job::JobStatus;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{DueKind, Lane, LookOutcome, SlotReservation, Store};
use punctual_core::time::Timestamp;
use std::sync::Arc;

pub async fn a_failed_attempt_waits_behind_its_time_gate(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, due_at, execution) = fail_once(&harness).await;
    assert_eq!(execution.attempt, 2);
    let view = harness.view(job(1).id).await;
    assert_eq!(view.status(), JobStatus::Active);
    let live = &view.open[0];
    assert_eq!(live.state, LiveState::Waiting(Gates::only(Gate::Time)));
    assert_eq!((live.attempt, live.charged, live.available_at), (2, 1, due_at));
    assert_eq!(harness.claim(at(10), session, 2, 10).await, [], "a gate is closed");

    assert_eq!(harness.store.due(SegmentSet::ALL, due_at.shifted(-1), 10).await.unwrap(), []);
    let due = harness.store.due(SegmentSet::ALL, due_at, 10).await.unwrap();
    let what = DueKind::Live { occurrence: execution.occurrence, attempt: 2 };
    assert_eq!(due.iter().map(|due| (due.at, due.what)).collect::<Vec<_>>(), [(due_at, what)]);
}

pub async fn a_time_gate_opens_when_its_time_has_come(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, due_at, execution) = fail_once(&harness).await;
    let LookOutcome::Opened(effects) = harness.look(due_at, execution, None).await else {
        panic!("its time has come");
    };
    assert!(effects.queued.len() == 1 && effects.due.is_empty());
    let assignment = harness.claim_one(due_at, session, 2).await;
    assert_eq!((assignment.execution, assignment.epoch.0), (execution, 2));
    assert_eq!(harness.store.due(SegmentSet::ALL, due_at, 10).await.unwrap(), []);
}

pub async fn a_time_gate_does_not_open_before_its_time(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, due_at, execution) = fail_once(&harness).await;
    assert_eq!(harness.look(due_at.shifted(-1), execution, None).await, LookOutcome::NotDue);
    assert_eq!(harness.claim(at(10), session, 2, 10).await, []);
}

pub async fn a_time_gate_opens_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, due_at, execution) = fail_once(&harness).await;
    assert!(matches!(harness.look(due_at, execution, None).await, LookOutcome::Opened(_)));
    assert_eq!(harness.look(due_at, execution, None).await, LookOutcome::Conflict);
    harness.claim_one(due_at, session, 2).await;
    assert_eq!(harness.look(due_at, execution, None).await, LookOutcome::Conflict);
}

pub async fn a_time_gate_of_another_attempt_conflicts(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (_, due_at, execution) = fail_once(&harness).await;
    let unknown = job(99).id.occurrence(1).attempt(2);
    for other in [execution.occurrence.attempt(1), execution.occurrence.attempt(3), unknown] {
        assert_eq!(harness.look(due_at, other, None).await, LookOutcome::Conflict);
    }
}

pub async fn an_opened_gate_leases_to_a_valid_offer(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, due_at, execution) = fail_once(&harness).await;
    let reservation = SlotReservation { session, turn: 2 };
    let LookOutcome::Opened(effects) = harness.look(due_at, execution, Some(reservation)).await else {
        panic!("its time has come");
    };
    assert_eq!(effects.queued, []);
    let (to, assignment) = effects.assigned.into_iter().next().expect("it is leased");
    assert_eq!((to, assignment.execution, assignment.epoch.0), (reservation, execution, 2));
    assert_eq!(assignment.payload, "null");
}

pub async fn an_offer_made_for_another_lane_is_not_taken(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (session, due_at, execution) = fail_once(&harness).await;
    let mut spec = job(1).spec;
    spec.job_type = "another".to_owned();
    let update = Verb::Update(Box::new(Update { spec, expected_version: None }));
    harness.done(at(4), job(1).id, update).await;
    let LookOutcome::Opened(effects) =
        harness.look(due_at, execution, Some(SlotReservation { session, turn: 2 })).await
    else {
        panic!("its time has come");
    };
    assert_eq!((effects.assigned.len(), effects.queued), (0, vec![Lane::new("default", "another")]));
}

/// Runs the first attempt of job 1 into a failure. Returns the session (poll sequence number 1 used), when
/// the gate opens, and the attempt behind it.
async fn fail_once(harness: &Harness) -> (SessionId, Timestamp, ExecutionId) {
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(1)).await;
    let assignment = harness.claim_one(at(2), session, 1).await;
    let effects = harness.accept(at(3), session, &assignment, failed(3)).await;
    let (due_at, execution) = time_gate(&effects);
    assert!(due_at >= at(63) && due_at <= at(69), "a minute and up to a tenth: {due_at}");
    (session, due_at, execution)
}
