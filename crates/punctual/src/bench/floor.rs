//! The floor under the engine: the same store verbs for the same jobs, called one after the other from one
//! thread, without engine, worker or hand-over between threads.

use crate::bench::per_second;
use anyhow::{Context, bail};
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobMark, JobSpec};
use punctual_core::limits::{SESSION_LEASE, STORE_BATCH_MAX};
use punctual_core::ports::{Assignment, Claim, ClaimOutcome, Host, NewJob, Outcome, Report, SessionOpening};
use punctual_store::sqlite::{SqliteCore, Write, WriteReply};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Floor {
    pub submit_per_second: f64,
    pub drain_per_second: f64,
}

impl Floor {
    pub fn better(self, other: Floor) -> Floor {
        Floor {
            submit_per_second: self.submit_per_second.max(other.submit_per_second),
            drain_per_second: self.drain_per_second.max(other.drain_per_second),
        }
    }
}

/// Submits `count` jobs like `spec` in full batches to a fresh database, then claims and reports them all. Only
/// the time within the store counts.
pub fn measure(dir: &Path, host: &Host, spec: &JobSpec, count: usize) -> anyhow::Result<Floor> {
    let dir = tempfile::tempdir_in(dir).context("cannot write there")?;
    let mut core = SqliteCore::open(&dir.path().join("floor.db")).context("cannot open a database there")?;
    let mut submit_time = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let batch = left.min(STORE_BATCH_MAX);
        let now = host.clock.wall();
        let jobs = (0..batch).map(|_| new_job(host, spec)).collect();
        let start = Instant::now();
        apply(&mut core, Write::Submit { now, jobs })?;
        submit_time += start.elapsed();
        left -= batch;
    }
    let submit_per_second = per_second(count as u64, submit_time);

    let session = open_session(&mut core, host, spec)?;
    let start = Instant::now();
    let (mut done, mut turn) = (0, 0);
    while done < count {
        turn += 1;
        let claimed = claim(&mut core, host, spec, session, turn)?;
        if claimed.is_empty() {
            bail!("only {done} of {count} jobs could be claimed");
        }
        done += claimed.len();
        let now = host.clock.wall();
        let end = Outcome::Succeeded { result: None }.into_end(now, now);
        let report = |assignment: Assignment| Report { session, lease: assignment.lease(), end: end.clone() };
        apply(&mut core, Write::Report { now, reports: claimed.into_iter().map(report).collect() })?;
    }
    Ok(Floor { submit_per_second, drain_per_second: per_second(count as u64, start.elapsed()) })
}

fn new_job(host: &Host, spec: &JobSpec) -> NewJob {
    let now = host.clock.wall();
    let id = JobId::new(now, host.random.next_u64());
    let job = Job {
        id,
        version: 1,
        mark: JobMark::Active,
        numbered: None,
        fired: 0,
        created_at: now,
        updated_at: now,
        spec: spec.clone(),
    };
    NewJob { job, offer: None }
}

fn open_session(core: &mut SqliteCore, host: &Host, spec: &JobSpec) -> anyhow::Result<SessionId> {
    let opening = SessionOpening {
        worker: "floor".to_owned(),
        lease: SESSION_LEASE,
        embedded: true,
        job_types: vec![spec.job_type.clone()],
        slots: 1,
        about: Default::default(),
    };
    match apply(core, Write::OpenSession { now: host.clock.wall(), opening })? {
        WriteReply::SessionOpened(session) => Ok(session),
        other => bail!("a session was asked for, the answer was {other:?}"),
    }
}

fn claim(
    core: &mut SqliteCore,
    host: &Host,
    spec: &JobSpec,
    session: SessionId,
    turn: u64,
) -> anyhow::Result<Vec<Assignment>> {
    let job_types = vec![spec.job_type.clone()];
    let claim = Claim { session, turn, limit: STORE_BATCH_MAX, queues: vec![], job_types };
    match apply(core, Write::Claim { now: host.clock.wall(), claims: vec![claim] })? {
        WriteReply::Claimed(outcomes) => match outcomes.into_iter().next() {
            Some(ClaimOutcome::Claimed { assignments, .. }) => Ok(assignments),
            other => bail!("work was asked for, the answer was {other:?}"),
        },
        other => bail!("work was asked for, the answer was {other:?}"),
    }
}

fn apply(core: &mut SqliteCore, write: Write) -> anyhow::Result<WriteReply> {
    let reply = core.apply(vec![write]).into_iter().next();
    Ok(reply.context("the store gave no answer")??)
}
