//! Tests of this adapter: the conformance suite, and what only SQLite can be asked.

mod budget;
mod cancel;
mod conformance;
mod files;
mod inspect;
mod outages;
mod plans;
mod tally;
mod torn;
mod upgrade;
mod walk;

use crate::sqlite::{SqliteCore, SqliteOptions, SqliteStore, Write, WriteReply};
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobMark, JobSpec};
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, Clock, NewJob, Outcome, Report, ReportAnswer, SessionOpening, Task,
};
use punctual_core::schedule::Schedule;
use punctual_core::time::{Monotonic, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A clock that stands still.
struct Still;

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

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(dir), Arc::new(Still)).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * 1_000_000)
}

/// The n-th job of a test, with a payload of the size that budgets are stated for.
fn job(number: u64) -> Job {
    let mut spec = JobSpec::named("noop");
    spec.payload = format!("\"{}\"", "x".repeat(198));
    let created_at = at(0).shifted(number as i64);
    Job {
        id: JobId::new(created_at, number),
        version: 1,
        mark: JobMark::Active,
        numbered: None,
        fired: 0,
        created_at,
        updated_at: created_at,
        spec,
    }
}

fn future_job(number: u64, seconds: i64) -> Job {
    let mut job = job(number);
    job.spec.settings.schedule = Schedule::OneTime { at: at(seconds) };
    job
}

fn submit(jobs: impl IntoIterator<Item = Job>) -> Write {
    let jobs = jobs.into_iter().map(|job| NewJob { job, offer: None }).collect();
    Write::Submit { now: at(1), jobs }
}

/// Applies one write that must succeed.
fn apply(core: &mut SqliteCore, write: Write) -> WriteReply {
    core.apply(vec![write]).pop().unwrap().unwrap()
}

fn open_session(core: &mut SqliteCore) -> SessionId {
    let opening = SessionOpening {
        worker: "w".to_owned(),
        lease: Duration::from_secs(6),
        embedded: false,
        job_types: vec!["noop".to_owned()],
        slots: 1,
        about: Default::default(),
    };
    match apply(core, Write::OpenSession { now: at(0), opening }) {
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
