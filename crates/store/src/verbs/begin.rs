//! Submitting jobs, and what all starts share: a new or newly ready execution either goes into its lane or
//! is leased to the worker whose slot reservation came with the call.

use super::each::each;
use super::keys::{self, KeyAdmission};
use super::notes::checkpoint_of;
use super::{dependents, lines, queues};
use crate::fault::Fault;
use crate::rows::{JobFacts, LiveRow, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::dependencies::Parents;
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobStatus};
use punctual_core::limiter::{LimiterId, Line};
use punctual_core::notes::Checkpoint;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Assignment, Begun, Due, DueKind, Lane, NewJob, Offer, SubmitOutcome};
use punctual_core::schedule::{self, Beginning, ScheduleState};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

pub(super) fn submit<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    jobs: &[NewJob],
) -> Result<Vec<SubmitOutcome>, Fault> {
    let mut offers = Offers::default();
    each(rows, jobs, |rows, new| submit_one(rows, &mut offers, now, new))
}

fn submit_one<R: Rows>(
    rows: &mut R,
    offers: &mut Offers,
    now: Timestamp,
    NewJob { job, offer }: &NewJob,
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
    let begun = match schedule::begin(job, now, is_gated, rows.shares()) {
        Beginning::Due(live) => begin_at_once(rows, offers, now, job, live, (lane_id, &lane), *offer)?,
        Beginning::Later(state) => {
            rows.put_schedule(&state, lane_id)?;
            rows.counters().job(None, Some(JobStatus::Active));
            Begun { due: schedule_due(&state, &lane).into_iter().collect(), ..Begun::default() }
        }
        Beginning::Over => {
            rows.counters().job(None, Some(JobStatus::Completed));
            Begun::default()
        }
    };
    Ok(SubmitOutcome::Created(match parents {
        Parents::Done => begun,
        Parents::Unfinished(parents) => {
            dependents::tie(rows, job.id, &parents)?;
            begun
        }
        Parents::Failed(parent) => {
            let mut begun = Begun::default();
            dependents::skip(rows, job.id, parent, now, &mut begun)?;
            begun
        }
    }))
}

fn begin_at_once<R: Rows>(
    rows: &mut R,
    offers: &mut Offers,
    now: Timestamp,
    job: &Job,
    live: Live,
    (lane_id, lane): (i64, &Lane),
    offer: Option<Offer>,
) -> Result<Begun, Fault> {
    let live = lines::pass(rows, live, lane, now, |_| Ok(job.spec.settings.concurrency_key.clone()))?;
    let live = offers.place(rows, live, lane, offer, job.version, now)?;
    let row = LiveRow { live, lane: lane_id, is_sole: true };
    rows.insert_live(&row)?;
    rows.counters().job(None, Some(JobStatus::Active));
    begun_with(rows, &row.live, lane, offer, |_| Ok(JobFacts::from(job)))
}

/// The slot reservations of one call: each is checked once, and one that was valid for the first item is
/// valid for all of them.
#[derive(Default)]
pub(super) struct Offers {
    seen: BTreeMap<Offer, bool>,
}

impl Offers {
    /// Leases a queued execution to the slot reservation if that is still valid and nothing forbids it.
    /// Otherwise the execution stays as it is.
    pub fn place<R: Rows>(
        &mut self,
        rows: &mut R,
        live: Live,
        lane: &Lane,
        offer: Option<Offer>,
        job_version: u32,
        now: Timestamp,
    ) -> Result<Live, Fault> {
        let is_claimable = live.state == LiveState::Queued && !live.is_expired(now);
        let Some(offer) = offer.filter(|_| is_claimable) else { return Ok(live) };
        if queues::is_paused(rows, lane.queue())? || !self.holds(rows, offer)? {
            return Ok(live);
        }
        Ok(live.claimed(offer.session, job_version, now)?)
    }

    fn holds<R: Rows>(&mut self, rows: &mut R, offer: Offer) -> Result<bool, Fault> {
        if let Some(holds) = self.seen.get(&offer) {
            return Ok(*holds);
        }
        let place = rows.session(offer.session)?.filter(|place| place.mode.gets_work());
        let holds = place
            .is_some_and(|place| place.turn.checked_add(1) == Some(offer.turn) || planted(Defect::DropTurn));
        if holds {
            rows.set_turn(offer.session, offer.turn)?;
        }
        self.seen.insert(offer, holds);
        Ok(holds)
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
        rank: live.rank,
        checkpoint,
    }
}

/// The facts of a job that must exist.
pub(super) fn facts_of<R: Rows>(rows: &mut R, job: JobId, lane: &Lane) -> Result<JobFacts, Fault> {
    rows.facts_of(job, lane)?.ok_or_else(|| Fault::Missing(format!("job {job}")))
}

/// The commit effects of a live row that was just written: leased to the slot reservation, queued, or due
/// later.
pub(super) fn begun_with<R: Rows>(
    rows: &mut R,
    live: &Live,
    lane: &Lane,
    offer: Option<Offer>,
    facts: impl FnOnce(&mut R) -> Result<JobFacts, Fault>,
) -> Result<Begun, Fault> {
    if let (LiveState::Running(_), Some(offer)) = (live.state, offer) {
        let facts = facts(rows)?;
        let assignment = assignment(live, lane, facts, checkpoint_of(rows, live)?);
        return Ok(Begun { assigned: vec![(offer, assignment)], ..Begun::default() });
    }
    Ok(begun(live, lane))
}

/// The commit effects of a live row that was just written and not leased.
pub(super) fn begun(live: &Live, lane: &Lane) -> Begun {
    Begun {
        queued: if live.state == LiveState::Queued { vec![lane.clone()] } else { vec![] },
        due: look_due(live, lane).into_iter().collect(),
        joined: live.line.map(|line| line_of(live, line, lane)).into_iter().collect(),
        ..Begun::default()
    }
}

fn line_of(live: &Live, line: LimiterId, lane: &Lane) -> Line {
    Line { queue: lane.queue().to_owned(), key: live.limiter.filter(|key| *key == line) }
}

fn look_due(live: &Live, lane: &Lane) -> Option<Due> {
    let what = DueKind::Live { occurrence: live.id, attempt: live.attempt };
    live.look_at().map(|at| Due { at, lane: lane.clone(), what })
}

pub(super) fn schedule_due(state: &ScheduleState, lane: &Lane) -> Option<Due> {
    let what = DueKind::Schedule { job: state.job, version: state.version };
    state.due_at.map(|at| Due { at, lane: lane.clone(), what })
}
