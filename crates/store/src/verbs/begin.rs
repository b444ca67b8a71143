//! Submitting jobs, and code that all starts share: a new or newly ready execution either goes into its lane or is
//! leased to the worker whose slot reservation came with the call.

use super::keys::{self, KeyAdmission};
use super::missing_rows::each;
use super::notes::checkpoint_of;
use super::{dependents, queues, wait_lists};
use crate::fault::Fault;
use crate::rows::{AssignedJob, LiveRow, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::dependencies::Parents;
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobStatus};
use punctual_core::limiter::{LimiterId, WaitList};
use punctual_core::notes::Checkpoint;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{
    Assignment, CommitEffects, Due, DueKind, Lane, NewJob, SlotReservation, SubmitOutcome,
};
use punctual_core::schedule::{self, Beginning, ScheduleState};
use punctual_core::time::Timestamp;
use punctual_core::trace_context::RunTrace;
use std::collections::BTreeMap;

pub(super) fn submit<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    jobs: &[NewJob],
) -> Result<Vec<SubmitOutcome>, Fault> {
    let mut reservations = SlotReservations::default();
    each(rows, jobs, |rows, new| submit_one(rows, &mut reservations, now, new))
}

fn submit_one<R: Rows>(
    rows: &mut R,
    reservations: &mut SlotReservations,
    now: Timestamp,
    NewJob { job, reservation }: &NewJob,
) -> Result<SubmitOutcome, Fault> {
    let admission = keys::admit(rows, job)?;
    match admission {
        KeyAdmission::AlreadyThere => return Ok(SubmitOutcome::AlreadyThere),
        KeyAdmission::Existing(job) => return Ok(SubmitOutcome::Existing(job)),
        KeyAdmission::KeyTaken(job) => return Ok(SubmitOutcome::KeyTaken(job)),
        KeyAdmission::Plain | KeyAdmission::Keyed => {}
    }
    let parents = match dependents::parents_of(rows, &job.spec.settings.depends_on)? {
        Ok(parents) => parents,
        Err((parent, problem)) => return Ok(SubmitOutcome::BadParent { parent, problem }),
    };
    match queues::admit(rows, job, now)? {
        Ok(()) => {}
        Err(refusal) => return Ok(refusal),
    }
    let (lane_id, lane) = rows.intern_lane(&job.spec.queue, &job.spec.job_type)?;
    if !rows.insert_job(job, lane_id)? {
        return Ok(SubmitOutcome::AlreadyThere);
    }
    if !job.spec.settings.tags.is_empty() {
        rows.put_tags(job.id, &job.spec.settings.tags)?;
    }
    if admission == KeyAdmission::Keyed {
        keys::hold(rows, job)?;
    }
    queues::weigh(rows, &job.spec.queue)?;
    let is_gated = parents != Parents::Done;
    let effects = match schedule::begin(job, now, is_gated, rows.shares()) {
        Beginning::Due(live) => {
            begin_at_once(rows, reservations, now, job, live, (lane_id, &lane), *reservation)?
        }
        Beginning::Later(state) => {
            rows.put_schedule(&state, lane_id)?;
            rows.counters().job(None, Some(JobStatus::Active));
            CommitEffects {
                due: schedule_due(&state, &lane).into_iter().collect(),
                ..CommitEffects::default()
            }
        }
        Beginning::Over => {
            rows.counters().job(None, Some(JobStatus::Completed));
            CommitEffects::default()
        }
    };
    Ok(SubmitOutcome::Created(match parents {
        Parents::Done => effects,
        Parents::Unfinished(parents) => {
            dependents::add_dependencies(rows, job.id, &parents)?;
            effects
        }
        Parents::Failed(parent) => {
            let mut effects = CommitEffects::default();
            dependents::skip(rows, job.id, parent, now, &mut effects)?;
            effects
        }
    }))
}

fn begin_at_once<R: Rows>(
    rows: &mut R,
    reservations: &mut SlotReservations,
    now: Timestamp,
    job: &Job,
    live: Live,
    (lane_id, lane): (i64, &Lane),
    reservation: Option<SlotReservation>,
) -> Result<CommitEffects, Fault> {
    let live = wait_lists::pass(rows, live, lane, now, |_| Ok(job.spec.settings.concurrency_key.clone()))?;
    let live = reservations.place(rows, live, lane, reservation, job.version, now)?;
    let row = LiveRow { live, lane: lane_id, is_sole: true };
    rows.insert_live(&row)?;
    rows.counters().job(None, Some(JobStatus::Active));
    effects_with(rows, &row.live, lane, reservation, |_| Ok(AssignedJob::from(job)))
}

/// The slot reservations of one call: each is checked once, and one that was valid for the first item is
/// valid for all of them.
#[derive(Default)]
pub(super) struct SlotReservations {
    seen: BTreeMap<SlotReservation, bool>,
}

impl SlotReservations {
    /// Leases a queued execution to the slot reservation if that is still valid and nothing forbids it.
    /// Otherwise the execution stays as it is.
    pub fn place<R: Rows>(
        &mut self,
        rows: &mut R,
        live: Live,
        lane: &Lane,
        reservation: Option<SlotReservation>,
        job_version: u32,
        now: Timestamp,
    ) -> Result<Live, Fault> {
        let is_claimable = live.state == LiveState::Queued && !live.is_expired(now);
        let Some(reservation) = reservation.filter(|_| is_claimable) else { return Ok(live) };
        if queues::is_paused(rows, lane.queue())? || !self.holds(rows, reservation)? {
            return Ok(live);
        }
        Ok(live.claimed(reservation.session, job_version, now)?)
    }

    fn holds<R: Rows>(&mut self, rows: &mut R, reservation: SlotReservation) -> Result<bool, Fault> {
        if let Some(holds) = self.seen.get(&reservation) {
            return Ok(*holds);
        }
        let place = rows.session(reservation.session)?.filter(|place| place.mode.gets_work());
        let holds = place.is_some_and(|place| {
            place.turn.checked_add(1) == Some(reservation.turn) || planted(Defect::DropTurn)
        });
        if holds {
            rows.set_turn(reservation.session, reservation.turn)?;
        }
        self.seen.insert(reservation, holds);
        Ok(holds)
    }
}

pub(super) fn assignment(
    live: &Live,
    lane: &Lane,
    facts: AssignedJob,
    checkpoint: Option<Checkpoint>,
) -> Assignment {
    let trace = RunTrace::of(&facts.settings, live.input.as_deref(), live.id);
    Assignment {
        execution: live.execution(),
        epoch: live.epoch,
        job_version: live.job_version,
        name: facts.name,
        job_type: lane.job_type().to_owned(),
        queue: lane.queue().to_owned(),
        payload: live.input.as_ref().and_then(|input| input.payload.clone()).unwrap_or(facts.payload),
        timeout: facts.settings.timeout_after(live.charged),
        scheduled_time: live.scheduled_time,
        available_at: live.available_at,
        rank: live.rank,
        checkpoint,
        result_overflow: facts.settings.result_overflow,
        trace,
    }
}

/// The facts of a job that must exist.
pub(super) fn facts_of<R: Rows>(rows: &mut R, job: JobId, lane: &Lane) -> Result<AssignedJob, Fault> {
    rows.facts_of(job, lane)?.ok_or_else(|| Fault::Missing(format!("job {job}")))
}

/// The commit effects of a live row that was just written: leased to the slot reservation, queued, or due
/// later.
pub(super) fn effects_with<R: Rows>(
    rows: &mut R,
    live: &Live,
    lane: &Lane,
    reservation: Option<SlotReservation>,
    facts: impl FnOnce(&mut R) -> Result<AssignedJob, Fault>,
) -> Result<CommitEffects, Fault> {
    if let (LiveState::Running(_), Some(reservation)) = (live.state, reservation) {
        let facts = facts(rows)?;
        let assignment = assignment(live, lane, facts, checkpoint_of(rows, live)?);
        return Ok(CommitEffects { assigned: vec![(reservation, assignment)], ..CommitEffects::default() });
    }
    Ok(effects(live, lane))
}

/// The commit effects of a live row that was just written and not leased.
pub(super) fn effects(live: &Live, lane: &Lane) -> CommitEffects {
    CommitEffects {
        queued: if live.state == LiveState::Queued { vec![lane.clone()] } else { vec![] },
        due: look_due(live, lane).into_iter().collect(),
        joined: live.line.map(|line| line_of(live, line, lane)).into_iter().collect(),
        ..CommitEffects::default()
    }
}

fn line_of(live: &Live, line: LimiterId, lane: &Lane) -> WaitList {
    WaitList { queue: lane.queue().to_owned(), key: live.limiter.filter(|key| *key == line) }
}

fn look_due(live: &Live, lane: &Lane) -> Option<Due> {
    let what = DueKind::Live { occurrence: live.id, attempt: live.attempt };
    live.look_at().map(|at| Due { at, lane: lane.clone(), what })
}

pub(super) fn schedule_due(state: &ScheduleState, lane: &Lane) -> Option<Due> {
    let what = DueKind::Schedule { job: state.job, version: state.version };
    state.due_at.map(|at| Due { at, lane: lane.clone(), what })
}
