//! Submitting jobs, and what all beginnings share: placing a new or newly ready execution either in its lane or
//! with the worker whose offer came along.

use super::dependents;
use super::keys::{self, Admission};
use super::notes::checkpoint_of;
use super::{queues, tags};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    INSERT_JOB, INSERT_LIVE, LiveRow, PUT_SCHEDULE, count, counter, decode, insert_live, one, put_schedule,
    read_settings, settings_columns, write_job,
};
use punctual_core::defects::{Defect, planted};
use punctual_core::dependencies::Parents;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobStatus, Settings};
use punctual_core::notes::Checkpoint;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Assignment, Begun, Due, DueKind, Lane, NewJob, Offer, SubmitOutcome};
use punctual_core::schedule::{self, Beginning, ScheduleState};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use rusqlite::Connection;
use std::collections::BTreeMap;

pub(super) fn submit(
    tx: &mut Tx<'_>,
    now: Timestamp,
    jobs: Vec<NewJob>,
) -> Result<Vec<SubmitOutcome>, Fault> {
    let mut offers = Offers::default();
    jobs.into_iter().map(|new| submit_one(tx, &mut offers, now, new)).collect()
}

fn submit_one(
    tx: &mut Tx<'_>,
    offers: &mut Offers,
    now: Timestamp,
    NewJob { job, offer }: NewJob,
) -> Result<SubmitOutcome, Fault> {
    let admission = keys::admit(tx.conn, &job)?;
    match admission {
        Admission::AlreadyThere => return Ok(SubmitOutcome::AlreadyThere),
        Admission::Existing(job) => return Ok(SubmitOutcome::Existing(job)),
        Admission::KeyTaken(job) => return Ok(SubmitOutcome::KeyTaken(job)),
        Admission::Plain | Admission::Keyed => {}
    }
    let parents = match dependents::parents_of(tx.conn, &job.spec.settings.depends_on)? {
        Ok(parents) => parents,
        Err((parent, problem)) => return Ok(SubmitOutcome::BadParent { parent, problem }),
    };
    match queues::admit(tx, &job, now)? {
        Ok(()) => {}
        Err(refusal) => return Ok(refusal),
    }
    let (lane_id, lane) = tx.memory.lanes.intern(tx.conn, &job.spec.queue, &job.spec.job_type)?;
    if !write_job(&mut *tx.conn.prepare_cached(INSERT_JOB)?, &job, lane_id)? {
        return Ok(SubmitOutcome::AlreadyThere);
    }
    tags::put(tx.conn, job.id, &job.spec.settings.tags)?;
    if admission == Admission::Keyed {
        keys::hold(tx.conn, &job)?;
    }
    let id = job.id;
    let is_gated = parents != Parents::Done;
    let begun = match schedule::begin(&job, now, is_gated, &mut tx.memory.shares) {
        Beginning::Due(live) => {
            let live = offers.place(tx, live, &lane, offer, job.version, now)?;
            let row = LiveRow { live, lane: lane_id, is_sole: true };
            insert_live(&mut *tx.conn.prepare_cached(INSERT_LIVE)?, &mut tx.memory.tally, &row)?;
            tx.memory.tally.job(None, Some(JobStatus::Active));
            begun_with(tx.conn, &row.live, &lane, offer, || Ok(JobFacts::from(job)))?
        }
        Beginning::Later(state) => {
            put_schedule(&mut *tx.conn.prepare_cached(PUT_SCHEDULE)?, &state, lane_id)?;
            tx.memory.tally.job(None, Some(JobStatus::Active));
            Begun { due: schedule_due(&state, &lane).into_iter().collect(), ..Begun::default() }
        }
        Beginning::Over => {
            tx.memory.tally.job(None, Some(JobStatus::Completed));
            Begun::default()
        }
    };
    Ok(SubmitOutcome::Created(match parents {
        Parents::Done => begun,
        Parents::Unfinished(parents) => {
            dependents::tie(tx.conn, id, &parents)?;
            begun
        }
        Parents::Failed(parent) => {
            let mut begun = Begun::default();
            dependents::skip(tx, id, parent, now, &mut begun)?;
            begun
        }
    }))
}

/// The offers of one call: each is looked at once, and one that held for the first item holds for all of them.
#[derive(Default)]
pub(super) struct Offers {
    seen: BTreeMap<Offer, bool>,
}

impl Offers {
    /// Leases a queued execution to the offer if that still holds and nothing forbids it; otherwise it stays as
    /// it is.
    pub fn place(
        &mut self,
        tx: &mut Tx<'_>,
        live: Live,
        lane: &Lane,
        offer: Option<Offer>,
        job_version: u32,
        now: Timestamp,
    ) -> Result<Live, Fault> {
        let is_claimable = live.state == LiveState::Queued && !live.is_expired(now);
        let Some(offer) = offer.filter(|_| is_claimable) else { return Ok(live) };
        if tx.memory.queues.is_paused(tx.conn, lane.queue())? || !self.holds(tx.conn, offer)? {
            return Ok(live);
        }
        Ok(live.claimed(offer.session, job_version, now)?)
    }

    fn holds(&mut self, conn: &Connection, offer: Offer) -> Result<bool, Fault> {
        if let Some(holds) = self.seen.get(&offer) {
            return Ok(*holds);
        }
        let turn = place_of(conn, offer.session)?.filter(|(_, mode)| mode.gets_work()).map(|(turn, _)| turn);
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
    Ok(place_of(conn, session)?.map(|(turn, _)| turn))
}

/// The last turn that a session has used, and whether it gets work; `None` as for [`turn_of`].
pub(super) fn place_of(conn: &Connection, session: SessionId) -> Result<Option<(u64, SessionMode)>, Fault> {
    let mut select = conn.prepare_cached("SELECT turn, mode FROM sessions WHERE id = ?1 AND lost = 0")?;
    one(&mut select, [session.0], |row| {
        Ok((count(row, 0, "sessions.turn")?, decode(row, 1, "sessions.mode")?))
    })
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
    pub version: u32,
    pub settings: Settings,
}

impl From<Job> for JobFacts {
    fn from(job: Job) -> Self {
        let spec = job.spec;
        JobFacts { name: spec.name, payload: spec.payload, version: job.version, settings: spec.settings }
    }
}

/// The columns that [`JobFacts::read`] expects one after the other.
macro_rules! job_facts_columns {
    () => {
        concat!("jobs.name, jobs.payload, jobs.version, ", settings_columns!())
    };
}
pub(super) use job_facts_columns;

impl JobFacts {
    /// Reads them for one job.
    pub fn find(conn: &Connection, job: JobId, lane: &Lane) -> Result<Self, Fault> {
        let mut select =
            conn.prepare_cached(concat!("SELECT ", job_facts_columns!(), " FROM jobs WHERE id = ?1"))?;
        let facts = one(&mut select, [job.as_bytes()], |row| Self::read(row, 0, lane))?;
        facts.ok_or_else(|| Fault::Missing(format!("job {job}")))
    }

    /// Reads them from columns of which the first is given.
    pub fn read(row: &rusqlite::Row<'_>, first: usize, lane: &Lane) -> Result<Self, Fault> {
        let name: Option<String> = row.get(first)?;
        Ok(JobFacts {
            name: name.unwrap_or_else(|| lane.job_type().to_owned()),
            payload: row.get(first + 1)?,
            version: row.get(first + 2)?,
            settings: read_settings(row, first + 3)?,
        })
    }
}

pub(super) fn assignment(
    live: &Live,
    lane: &Lane,
    facts: JobFacts,
    checkpoint: Option<Checkpoint>,
) -> Assignment {
    Assignment {
        execution: live.execution(),
        epoch: live.epoch,
        job_version: live.job_version,
        name: facts.name,
        job_type: lane.job_type().to_owned(),
        queue: lane.queue().to_owned(),
        payload: facts.payload,
        timeout: facts.settings.timeout_after(live.charged),
        scheduled_time: live.scheduled_time,
        available_at: live.available_at,
        checkpoint,
    }
}

/// What a live row that was just written means to its caller: leased to the offer, queued, or due later.
pub(super) fn begun_with(
    conn: &Connection,
    live: &Live,
    lane: &Lane,
    offer: Option<Offer>,
    facts: impl FnOnce() -> Result<JobFacts, Fault>,
) -> Result<Begun, Fault> {
    if let (LiveState::Running(_), Some(offer)) = (live.state, offer) {
        let assignment = assignment(live, lane, facts()?, checkpoint_of(conn, live)?);
        return Ok(Begun { assigned: vec![(offer, assignment)], ..Begun::default() });
    }
    Ok(begun(live, lane))
}

/// What a live row that was just written, and not leased, means to its caller.
pub(super) fn begun(live: &Live, lane: &Lane) -> Begun {
    Begun {
        queued: if live.state == LiveState::Queued { vec![lane.clone()] } else { vec![] },
        due: look_due(live, lane).into_iter().collect(),
        ..Begun::default()
    }
}

pub(super) fn look_due(live: &Live, lane: &Lane) -> Option<Due> {
    let what = DueKind::Live { occurrence: live.id, attempt: live.attempt };
    live.look_at().map(|at| Due { at, lane: lane.clone(), what })
}

pub(super) fn schedule_due(state: &ScheduleState, lane: &Lane) -> Option<Due> {
    let what = DueKind::Schedule { job: state.job, version: state.version };
    state.due_at.map(|at| Due { at, lane: lane.clone(), what })
}
