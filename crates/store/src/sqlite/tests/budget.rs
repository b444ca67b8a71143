//! The measured cost of a job.

use super::{apply, at, claim, future_job, job, keep, open_session, report, submit};
use crate::sqlite::{
    COUNTER_WRITES_PER_TRANSACTION, ROW_WRITES_PER_JOB, ROW_WRITES_PER_OFFERED_JOB, SqliteCore, Upkeep,
};
use punctual_core::job::Job;
use punctual_core::limiter::{QueueLimits, Rate, WaitList};
use punctual_core::ports::{Horizon, NewJob, Outcome, SlotReservation, SubmitOutcome, Write, WriteReply};
use punctual_core::queue::{QueueChange, QueueSettings};

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
    let counts = 3 * COUNTER_WRITES_PER_TRANSACTION - 1;
    // The job from before still needed its claim, its delete and its history; one poll sequence number was
    // used.
    assert_eq!(spent, (JOBS - 1) * ROW_WRITES_PER_JOB + 3 + 1 + counts);
}

#[test]
fn a_job_leased_at_its_submit_costs_one_write_less() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    apply(&mut core, submit([future_job(0, 1_000_000)]));
    let before = core.total_changes();
    let reservation = Some(SlotReservation { session, turn: 1 });
    let jobs = (1..=JOBS).map(|n| NewJob { job: job(n), reservation }).collect();
    let reply = apply(&mut core, Write::Submit { now: at(1), jobs });
    let WriteReply::Submitted(outcomes) = reply else { panic!("{reply:?}") };
    let assigned = outcomes.into_iter().flat_map(|outcome| match outcome {
        SubmitOutcome::Created(effects) => effects.assigned,
        other => panic!("not created: {other:?}"),
    });
    let assignments: Vec<_> = assigned.map(|(_, assignment)| assignment).collect();
    report(&mut core, session, &assignments, Outcome::Succeeded { result: None });
    let counts = 2 * COUNTER_WRITES_PER_TRANSACTION;
    assert_eq!(core.total_changes() - before, JOBS * ROW_WRITES_PER_OFFERED_JOB + 1 + counts);
}

/// Keys that the jobs of a test share.
const KEYS: u64 = 10;

/// A job with one of the keys; neighbours have different ones.
fn keyed(number: u64) -> Job {
    let mut job = job(number);
    job.spec.settings.concurrency_key = Some(format!("key-{}", number % KEYS));
    job
}

fn limit(core: &mut SqliteCore, concurrency: u32) {
    let limits = QueueLimits {
        concurrency: Some(concurrency),
        key_concurrency: Some(concurrency),
        key_rate: Some(Rate { count: 10_000, per_ms: 1_000 }),
        ..QueueLimits::default()
    };
    let settings = QueueSettings { max_depth: None, limits };
    apply(core, Write::SetQueue { queue: "default".to_owned(), change: QueueChange::Replace(settings) });
}

/// Starts each key long enough before the others that the rate limit delays none of them.
fn start_keys(core: &mut SqliteCore) {
    let jobs = (0..KEYS).map(|number| NewJob { job: keyed(number), reservation: None }).collect();
    apply(core, Write::Submit { now: at(-9), jobs });
}

#[test]
fn limits_cost_writes_for_each_limiter_and_none_for_each_job() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    limit(&mut core, 1_000_000);
    start_keys(&mut core);
    let before = core.total_changes();
    apply(&mut core, submit((KEYS..JOBS).map(keyed)));
    let submitted = core.total_changes() - before;
    let paces = KEYS;
    assert_eq!(submitted, (JOBS - KEYS) * 2 + KEYS + paces + COUNTER_WRITES_PER_TRANSACTION);
    let assignments = claim(&mut core, session, 1, JOBS as usize);
    assert_eq!(assignments.len() as u64, JOBS, "no execution waits");
    let before = core.total_changes();
    report(&mut core, session, &assignments, Outcome::Succeeded { result: None });
    assert_eq!(core.total_changes() - before, JOBS * 2 + KEYS + COUNTER_WRITES_PER_TRANSACTION);
}

#[test]
fn leaving_a_wait_list_costs_one_write() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    limit(&mut core, KEYS as u32);
    start_keys(&mut core);
    apply(&mut core, submit((KEYS..JOBS).map(keyed)));
    let assignments = claim(&mut core, session, 1, JOBS as usize);
    assert_eq!(assignments.len() as u64, KEYS);
    report(&mut core, session, &assignments, Outcome::Succeeded { result: None });
    let before = core.total_changes();
    let lines = vec![WaitList::of_queue("default")];
    apply(&mut core, Write::Admit { now: at(4), lines, limit: JOBS as usize });
    // The counters of the lane and of the wait list.
    assert_eq!(core.total_changes() - before, KEYS + 2);
    assert_eq!(claim(&mut core, session, 2, JOBS as usize).len() as u64, KEYS);
}

#[test]
fn a_call_that_finds_nothing_writes_nothing() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    let before = core.total_changes();
    assert!(claim(&mut core, session, 1, 10).is_empty());
    apply(&mut core, Write::Recover { now: at(9), limit: 10 });
    let horizon = Horizon { history: at(9), requests: at(9) };
    keep(&mut core, Upkeep::Retain { horizon, limit: 10 });
    assert_eq!(core.total_changes(), before);
}

#[test]
fn a_future_job_takes_less_than_500_bytes_of_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut core = SqliteCore::open(&dir.path().join("jobs.db")).unwrap();
    let jobs = 20_000_u64;
    for batch in 0..jobs / 1_000 {
        // Times in arbitrary order, as users choose them.
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
