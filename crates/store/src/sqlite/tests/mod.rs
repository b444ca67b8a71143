//! Tests of this adapter: the conformance suite, and tests that only SQLite can run.

mod audit;
mod budget;
mod cancel;
mod conformance;
mod counters;
mod damaged_pages;
mod files;
mod inspect;
mod log_limit;
mod malformed_rows;
mod membership;
mod outages;
mod plans;
mod torn;
mod unused;
mod upgrade;
pub(crate) mod walk;

use crate::sqlite::{SqliteCall, SqliteCore, SqliteOptions, SqliteReply, SqliteStore, Upkeep, UpkeepReply};
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, Clock, NewJob, Outcome, Report, ReportAnswer, SessionOpening,
    StoreError, Task, Write, WriteReply,
};
use punctual_core::schedule::Schedule;
use punctual_core::time::{Monotonic, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A clock that does not move.
pub(crate) struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000)
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(0)
    }

    fn sleep(&self, _duration: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

pub(crate) fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(dir), Arc::new(Still)).unwrap()
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
}

/// The n-th job of a test, with a payload of the size that budgets are stated for.
pub(crate) fn job(number: u64) -> Job {
    let mut spec = JobSpec::named("noop");
    spec.payload = format!("\"{}\"", "x".repeat(198));
    let created_at = at(0).shifted(number as i64);
    Job {
        id: JobId::new(created_at, number),
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at,
        updated_at: created_at,
        spec,
    }
}

pub(crate) fn future_job(number: u64, seconds: i64) -> Job {
    let mut job = job(number);
    job.spec.settings.schedule = Schedule::OneTime { at: at(seconds) };
    job
}

pub(crate) fn submit(jobs: impl IntoIterator<Item = Job>) -> Write {
    let jobs = jobs.into_iter().map(|job| NewJob { job, reservation: None }).collect();
    Write::Submit { now: at(1), jobs }
}

/// Applies one write that must succeed.
fn apply(core: &mut SqliteCore, write: Write) -> WriteReply {
    apply_all(core, vec![write]).pop().unwrap().unwrap()
}

/// Applies writes in one transaction.
fn apply_all(core: &mut SqliteCore, writes: Vec<Write>) -> Vec<Result<WriteReply, StoreError>> {
    let replies = core.apply(&writes.into_iter().map(SqliteCall::Write).collect::<Vec<_>>());
    let written = |reply| match reply {
        SqliteReply::Write(reply) => reply,
        other => panic!("{other:?}"),
    };
    replies.into_iter().map(|reply| reply.map(written)).collect()
}

/// Runs maintenance that must succeed.
fn keep(core: &mut SqliteCore, upkeep: Upkeep) -> UpkeepReply {
    match core.apply(&[upkeep.into()]).pop().unwrap().unwrap() {
        SqliteReply::Upkeep(reply) => reply,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn opening() -> SessionOpening {
    SessionOpening {
        worker: "w".to_owned(),
        lease: Duration::from_secs(6),
        embedded: false,
        job_types: vec!["noop".to_owned()],
        slots: 1,
        about: Default::default(),
        token: None,
    }
}

fn open_session(core: &mut SqliteCore) -> SessionId {
    match apply(core, Write::OpenSession { now: at(0), opening: opening() }) {
        WriteReply::SessionOpened(session) => session,
        other => panic!("{other:?}"),
    }
}

fn claim(core: &mut SqliteCore, session: SessionId, turn: u64, limit: usize) -> Vec<Assignment> {
    let claim = Claim { session, turn, limit, queues: vec![], job_types: vec!["noop".to_owned()] };
    match apply(core, Write::Claim { now: at(2), claims: vec![claim] }) {
        WriteReply::Claimed(mut outcomes) => match outcomes.pop() {
            Some(ClaimOutcome::Claimed { assignments, .. }) => assignments,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn report(core: &mut SqliteCore, session: SessionId, assignments: &[Assignment], outcome: Outcome) {
    let report = |assignment: &Assignment| Report {
        session,
        lease: assignment.lease(),
        end: outcome.clone().into_end(at(2), at(3)),
    };
    let reports = assignments.iter().map(report).collect();
    match apply(core, Write::Report { now: at(3), reports }) {
        WriteReply::Reported(outcomes) => {
            assert!(outcomes.iter().all(|outcome| outcome.answer == ReportAnswer::Accepted));
        }
        other => panic!("{other:?}"),
    }
}
