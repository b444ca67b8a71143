//! Cancel requests, from the request to the end of the run.

use super::{apply, at, claim, job, open_session, report, submit};
use crate::sqlite::SqliteCore;
use punctual_core::ids::SessionId;
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{
    Assignment, Beat, BeatOutcome, CancelOutcome, CommitEffects, LeaseRef, Outcome, Write, WriteReply,
};

#[test]
fn a_heartbeat_returns_the_leases_to_cancel() {
    let (mut core, session, held) = with_requested_cancel();
    assert_eq!(beat(&mut core, session, 1), [held.lease()]);
    assert_eq!(beat(&mut core, session, 2), [held.lease()], "repeated until the execution has ended");
    report(&mut core, session, &[held], Outcome::Cancelled);
    assert_eq!(beat(&mut core, session, 3), []);
    let attention: bool =
        core.connection().query_row("SELECT attention FROM sessions", [], |row| row.get(0)).unwrap();
    assert!(!attention, "no cancel request is left");
}

#[test]
fn an_outcome_after_the_request_is_a_cancel() {
    let (mut core, session, held) = with_requested_cancel();
    report(&mut core, session, &[held], Outcome::Succeeded { result: None });
    check_cancelled(&mut core);
}

#[test]
fn returning_a_lease_after_the_request_ends_the_job() {
    let (mut core, session, held) = with_requested_cancel();
    let reply = apply(&mut core, Write::GiveBack { now: at(4), session, leases: vec![held.lease()] });
    let ended = vec![(held.execution, Status::Cancelled)];
    let effects = CommitEffects { ended, ..CommitEffects::default() };
    assert_eq!(reply, WriteReply::GivenBack(vec![Some(effects)]), "no work is queued");
    check_cancelled(&mut core);
}

#[test]
fn losing_the_worker_after_the_request_ends_the_job() {
    let (mut core, _, held) = with_requested_cancel();
    core.connection().execute("UPDATE sessions SET lost = 1", []).unwrap();
    let reply = apply(&mut core, Write::Recover { now: at(9), limit: 10 });
    let WriteReply::Recovered(recovered) = reply else { panic!("{reply:?}") };
    assert_eq!(recovered.ended, [(held.execution, Status::Cancelled)]);
    assert_eq!(recovered.effects, CommitEffects::default());
    check_cancelled(&mut core);
}

fn with_requested_cancel() -> (SqliteCore, SessionId, Assignment) {
    let mut core = SqliteCore::open_in_memory().unwrap();
    apply(&mut core, submit([job(1)]));
    let session = open_session(&mut core);
    let held = claim(&mut core, session, 1, 1).remove(0);
    let reply = apply(&mut core, Write::Cancel { now: at(3), executions: vec![held.execution] });
    assert_eq!(reply, WriteReply::Cancelled(vec![CancelOutcome::Asked]));
    (core, session, held)
}

fn beat(core: &mut SqliteCore, session: SessionId, beat: u64) -> Vec<LeaseRef> {
    match apply(core, Write::Beat { now: at(4), beats: vec![Beat { session, beat, draining: false }] }) {
        WriteReply::Beaten(mut outcomes) => match outcomes.pop() {
            Some(BeatOutcome::Counted { cancel, .. }) => cancel,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn check_cancelled(core: &mut SqliteCore) {
    let view = core.reads().job(job(1).id).unwrap().unwrap();
    assert_eq!(view.status(), JobStatus::Cancelled);
    assert_eq!(view.last_finished.unwrap().status, Status::Cancelled);
    assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
}
