//! Submitting jobs, and what all beginnings share: placing a new or newly ready execution either in its lane or
//! with the worker whose offer came along.

use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    INSERT_JOB, INSERT_LIVE, INSERT_SCHEDULE, count, counter, insert_job, insert_live, insert_schedule, one,
    read_settings, settings_columns,
};
use punctual_core::defects::{Defect, planted};
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::Job;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Assignment, Begun, Due, DueKind, Lane, NewJob, Offer, SubmitOutcome};
use punctual_core::schedule::{self, Beginning, ScheduleState};
use punctual_core::time::Timestamp;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) fn submit(
    tx: &mut Tx<'_>,
    now: Timestamp,
    jobs: Vec<NewJob>,
) -> Result<Vec<SubmitOutcome>, Fault> {
    let mut job_insert = tx.conn.prepare_cached(INSERT_JOB)?;
    let mut live_insert = tx.conn.prepare_cached(INSERT_LIVE)?;
    let mut schedule_insert = tx.conn.prepare_cached(INSERT_SCHEDULE)?;
    let mut offers = Offers::default();
    let mut outcomes = Vec::with_capacity(jobs.len());
    for NewJob { job, offer } in jobs {
        let (lane_id, lane) = tx.memory.lanes.intern(tx.conn, &job.spec.queue, &job.spec.job_type)?;
        if !insert_job(&mut job_insert, &job, lane_id)? {
            outcomes.push(SubmitOutcome::AlreadyThere);
            continue;
        }
        let begun = match schedule::begin(&job, now, &mut tx.memory.shares) {
            Beginning::Due(live) => {
                let live = offers.place(tx.conn, live, offer, now)?;
                insert_live(&mut live_insert, &live, lane_id)?;
                begun_with(&live, &lane, offer, || Ok(JobFacts::from(job)))?
            }
            Beginning::Later(state) => {
                insert_schedule(&mut schedule_insert, &state, lane_id)?;
                Begun { due: Some(schedule_due(&state, &lane)), ..Begun::default() }
            }
            Beginning::Over => Begun::default(),
        };
        outcomes.push(SubmitOutcome::Created(begun));
    }
    Ok(outcomes)
}

/// The offers of one call: each is looked at once, and one that held for the first item holds for all of them.
#[derive(Default)]
pub(super) struct Offers {
    seen: BTreeMap<Offer, bool>,
}

impl Offers {
    /// Leases a queued execution to the offer if that still holds; otherwise it stays as it is.
    pub fn place(
        &mut self,
        conn: &Connection,
        live: Live,
        offer: Option<Offer>,
        now: Timestamp,
    ) -> Result<Live, Fault> {
        let Some(offer) = offer.filter(|_| live.state == LiveState::Queued) else { return Ok(live) };
        Ok(if self.holds(conn, offer)? { live.claimed(offer.session, now)? } else { live })
    }

    fn holds(&mut self, conn: &Connection, offer: Offer) -> Result<bool, Fault> {
        if let Some(holds) = self.seen.get(&offer) {
            return Ok(*holds);
        }
        let turn = turn_of(conn, offer.session)?;
        let holds =
            turn.is_some_and(|turn| turn.checked_add(1) == Some(offer.turn) || planted(Defect::DropTurn));
        if holds {
            use_turn(conn, offer)?;
        }
        self.seen.insert(offer, holds);
        Ok(holds)
    }
}

/// The last turn that a session has used; `None` if it is lost, closed or was never there.
pub(super) fn turn_of(conn: &Connection, session: SessionId) -> Result<Option<u64>, Fault> {
    let mut select = conn.prepare_cached("SELECT turn FROM sessions WHERE id = ?1 AND lost = 0")?;
    one(&mut select, [session.0], |row| count(row, 0, "sessions.turn"))
}

pub(super) fn use_turn(conn: &Connection, Offer { session, turn }: Offer) -> Result<(), Fault> {
    conn.prepare_cached("UPDATE sessions SET turn = ?2 WHERE id = ?1")?
        .execute((session.0, counter(turn)))?;
    Ok(())
}

/// What an assignment takes from the job itself.
pub(super) struct JobFacts {
    pub name: String,
    pub payload: String,
    pub timeout: Duration,
}

impl From<Job> for JobFacts {
    fn from(job: Job) -> Self {
        let timeout = job.spec.timeout();
        JobFacts { name: job.spec.name, payload: job.spec.payload, timeout }
    }
}

impl JobFacts {
    /// Reads them for one job.
    pub fn find(conn: &Connection, job: JobId, lane: &Lane) -> Result<Self, Fault> {
        let mut select = conn.prepare_cached(concat!(
            "SELECT name, payload, ",
            settings_columns!(),
            " FROM jobs WHERE id = ?1"
        ))?;
        let facts = one(&mut select, [job.as_bytes()], |row| Self::read(row, 0, lane))?;
        facts.ok_or_else(|| Fault::Missing(format!("job {job}")))
    }

    /// Reads them from the columns name, payload and settings, of which the first is given.
    pub fn read(row: &rusqlite::Row<'_>, first: usize, lane: &Lane) -> Result<Self, Fault> {
        let name: Option<String> = row.get(first)?;
        Ok(JobFacts {
            name: name.unwrap_or_else(|| lane.job_type().to_owned()),
            payload: row.get(first + 1)?,
            timeout: Duration::from_millis(read_settings(row, first + 2)?.timeout_ms),
        })
    }
}

pub(super) fn assignment(live: &Live, lane: &Lane, facts: JobFacts) -> Assignment {
    Assignment {
        execution: live.execution(),
        epoch: live.epoch,
        job_version: live.job_version,
        name: facts.name,
        job_type: lane.job_type().to_owned(),
        queue: lane.queue().to_owned(),
        payload: facts.payload,
        timeout: facts.timeout,
        scheduled_time: live.scheduled_time,
        available_at: live.available_at,
    }
}

/// What a live row that was just written means to its caller: leased to the offer, queued, or due later.
pub(super) fn begun_with(
    live: &Live,
    lane: &Lane,
    offer: Option<Offer>,
    facts: impl FnOnce() -> Result<JobFacts, Fault>,
) -> Result<Begun, Fault> {
    let mut begun = Begun::default();
    match (live.state, offer) {
        (LiveState::Running(_), Some(offer)) => {
            begun.assigned.push((offer, assignment(live, lane, facts()?)));
        }
        (LiveState::Running(_), None) => {}
        (LiveState::Queued, _) => begun.queued = Some(lane.clone()),
        (LiveState::Waiting(gates), _) => {
            begun.due = gates.contains(Gate::Time).then(|| time_gate_due(live, lane));
        }
    }
    Ok(begun)
}

pub(super) fn time_gate_due(live: &Live, lane: &Lane) -> Due {
    let what = DueKind::TimeGate { occurrence: live.id, attempt: live.attempt };
    Due { at: live.available_at, lane: lane.clone(), what }
}

pub(super) fn schedule_due(state: &ScheduleState, lane: &Lane) -> Due {
    let what = DueKind::Schedule { job: state.job, version: state.version };
    Due { at: state.due_at, lane: lane.clone(), what }
}
