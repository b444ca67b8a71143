//! What a job costs, counted.

use super::{apply, claim, future_job, job, keep, open_session, report, submit};
use crate::sqlite::{
    ROW_WRITES_PER_JOB, ROW_WRITES_PER_OFFERED_JOB, SqliteCore, TALLY_WRITES_PER_TRANSACTION, Upkeep, Write,
    WriteReply,
};
use punctual_core::ports::{Horizon, NewJob, Offer, Outcome, SubmitOutcome};

const JOBS: u64 = 500;

#[test]
fn a_job_costs_its_row_writes_and_no_more() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    apply(&mut core, submit([job(0)]));
    let before = core.total_changes();
    apply(&mut core, submit((1..JOBS).map(job)));
    let assignments = claim(&mut core, session, 1, JOBS as usize);
    report(&mut core, session, &assignments, Outcome::Succeeded { result: None });
    let spent = core.total_changes() - before;
    // A claim changes no job's status.
    let counts = 3 * TALLY_WRITES_PER_TRANSACTION - 1;
    // The job that was there before still had its claim, its delete and its history to come; one turn was used.
    assert_eq!(spent, (JOBS - 1) * ROW_WRITES_PER_JOB + 3 + 1 + counts);
}

#[test]
fn a_job_leased_at_its_submit_costs_one_write_less() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    apply(&mut core, submit([future_job(0, 1_000_000)]));
    let before = core.total_changes();
    let offer = Some(Offer { session, turn: 1 });
    let jobs = (1..=JOBS).map(|n| NewJob { job: job(n), offer }).collect();
    let reply = apply(&mut core, Write::Submit { now: super::at(1), jobs });
    let WriteReply::Submitted(outcomes) = reply else { panic!("{reply:?}") };
    let assigned = outcomes.into_iter().flat_map(|outcome| match outcome {
        SubmitOutcome::Created(begun) => begun.assigned,
        other => panic!("not created: {other:?}"),
    });
    let assignments: Vec<_> = assigned.map(|(_, assignment)| assignment).collect();
    report(&mut core, session, &assignments, Outcome::Succeeded { result: None });
    let counts = 2 * TALLY_WRITES_PER_TRANSACTION;
    assert_eq!(core.total_changes() - before, JOBS * ROW_WRITES_PER_OFFERED_JOB + 1 + counts);
}

#[test]
fn a_call_that_finds_nothing_writes_nothing() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    let before = core.total_changes();
    assert!(claim(&mut core, session, 1, 10).is_empty());
    apply(&mut core, Write::Recover { now: super::at(9), limit: 10 });
    let horizon = Horizon { history: super::at(9), requests: super::at(9) };
    keep(&mut core, Upkeep::Retain { horizon, limit: 10 });
    assert_eq!(core.total_changes(), before);
}

#[test]
fn a_future_job_takes_less_than_500_bytes_of_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = SqliteCore::open(&dir.path().join("jobs.db")).unwrap();
    let jobs = 20_000_u64;
    for batch in 0..jobs / 1_000 {
        // Times in an order of their own, as users choose them.
        let later = |n: u64| future_job(n, 1_000 + (n * 7_919 % 100_000) as i64);
        apply(&mut core, submit((batch * 1_000..(batch + 1) * 1_000).map(later)));
    }
    let size = |pragma: &str| -> u64 {
        let bytes: i64 = core.connection().query_row(pragma, [], |row| row.get(0)).unwrap();
        bytes as u64
    };
    let bytes = size("PRAGMA page_count") * size("PRAGMA page_size") / jobs;
    assert!(bytes < 500, "{bytes} bytes for each job");
}
