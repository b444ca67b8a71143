//! The effect of a full disk, a damaged row or a panic on the calls around it.

use super::{apply, apply_all, at, claim, job, open, open_session, submit};
use crate::sqlite::SqliteCore;
use punctual_core::ids::Epoch;
use punctual_core::job::Job;
use punctual_core::ports::{
    Claim, ClaimOutcome, LeaseRef, NewJob, Outcome, Report, SessionOpening, Store, SubmitOutcome, Write,
    WriteReply,
};
use rusqlite::Connection;
use std::time::Duration;

/// A trigger that fails every insert of a job whose owner is `boom`.
const BOOM: &str = "CREATE TRIGGER boom BEFORE INSERT ON jobs WHEN NEW.owner = 'boom' \
     BEGIN SELECT RAISE(ABORT, 'boom'); END";

#[test]
fn a_full_disk_fails_the_whole_transaction_and_the_next_one_works() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    apply(&mut core, submit([job(0)]));
    core.connection().pragma_update(None, "max_page_count", 60).unwrap();
    let results =
        apply_all(&mut core, vec![submit([job(1)]), submit((2..3_000).map(job)), submit([job(3_001)])]);
    assert_eq!(results.len(), 3);
    for result in results {
        assert!(matches!(&result, Err(error) if error.is_retryable()), "{result:?}");
    }
    assert!(core.reads().job(job(1).id).unwrap().is_none(), "nothing of it took effect");
    core.connection().pragma_update(None, "max_page_count", 1_000_000).unwrap();
    apply(&mut core, submit([job(1)]));
    assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_write_that_fails_is_rolled_back_alone() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    core.connection().execute_batch(BOOM).unwrap();
    // The failing write is the first to use its lane, and the next one uses the lane again.
    let results = apply_all(
        &mut core,
        vec![
            submit([job(1)]),
            submit([in_lane(2, "x", "default"), in_lane(3, "x", "boom")]),
            submit([in_lane(4, "x", "default")]),
        ],
    );
    assert!(results[0].is_ok() && results[2].is_ok());
    let Ok(WriteReply::Submitted(outcomes)) = &results[1] else { panic!("{:?}", results[1]) };
    assert!(
        matches!(outcomes[..], [SubmitOutcome::Created(_), SubmitOutcome::Unreadable(_)]),
        "{outcomes:?}"
    );
    let there: Vec<bool> = (1..=4).map(|n| core.reads().job(job(n).id).unwrap().is_some()).collect();
    assert_eq!(there, [true, true, false, true]);
    let session = open_session(&mut core);
    assert_eq!(claim(&mut core, session, 1, 10).len(), 3);
    assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
}

#[test]
fn a_malformed_row_is_reported() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    apply(&mut core, submit([job(1)]));
    core.connection().execute("UPDATE live SET state = 9", []).unwrap();
    assert_eq!(
        core.reads().job(job(1).id).unwrap().map(|view| view.open),
        Some(vec![]),
        "the malformed row is skipped"
    );
    let problems = core.integrity_check().unwrap();
    assert!(problems.iter().any(|line| line.contains("column state: live.state holds 9")), "{problems:#?}");
    core.connection().execute("UPDATE jobs SET mark = 9", []).unwrap();
    let error = core.reads().job(job(1).id).unwrap_err();
    assert!(error.to_string().contains("jobs.mark holds 9") && !error.is_retryable(), "{error}");
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_panic_becomes_an_error_reply_and_the_writer_continues() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.submit(at(1), vec![NewJob { job: job(1), reservation: None }]).await.unwrap();
    let opening = SessionOpening {
        worker: "w".to_owned(),
        lease: Duration::from_secs(6),
        embedded: false,
        job_types: vec![],
        slots: 1,
        about: Default::default(),
        token: None,
    };
    let session = store.open_session(at(1), opening).await.unwrap();
    let claim = Claim { session, turn: 1, limit: 1, queues: vec![], job_types: vec!["noop".to_owned()] };
    let claimed = store.claim(at(2), vec![claim]).await.unwrap();
    assert!(matches!(&claimed[0], ClaimOutcome::Claimed { assignments, .. } if assignments.len() == 1));
    // Incrementing this attempt overflows, which panics in the rules.
    let conn = Connection::open(dir.path().join("punctual.db")).unwrap();
    conn.execute("UPDATE live SET attempt = 4294967295", []).unwrap();
    let lease = LeaseRef { execution: job(1).id.occurrence(1).attempt(u32::MAX), epoch: Epoch(1) };
    let failed = Outcome::failed("no".to_owned());
    let report = Report { session, lease, end: failed.into_end(at(2), at(3)) };
    let error = store.report(at(3), vec![report]).await.unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    store.submit(at(4), vec![NewJob { job: job(2), reservation: None }]).await.unwrap();
    assert!(store.job(job(2).id).await.unwrap().is_some());
}

#[test]
fn the_simulator_gets_its_answers_in_the_order_of_its_writes() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let replies = apply_all(
        &mut core,
        vec![
            submit([job(1)]),
            Write::LoseEmbeddedSessions { now: at(1) },
            Write::Recover { now: at(1), limit: 1 },
        ],
    );
    assert!(matches!(replies[0], Ok(WriteReply::Submitted(_))));
    assert!(matches!(replies[1], Ok(WriteReply::EmbeddedSessionsLost(0))));
    assert!(matches!(replies[2], Ok(WriteReply::Recovered(_))));
}

fn in_lane(number: u64, queue: &str, owner: &str) -> Job {
    let mut job = job(number);
    job.spec.queue = queue.to_owned();
    job.spec.owner = owner.to_owned();
    job
}
