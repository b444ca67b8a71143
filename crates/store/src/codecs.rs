//! Converts rows of the wide tables to core's types and back, the same for every database. It knows columns, not
//! rules.

use crate::cells::{RowCells, get, read};
use crate::codes::{
    SettingsColumns, StateColumns, fired_column, limiter_column, live_flags, owner_column, read_limiter,
    read_live_flags, read_owner,
};
use crate::fault::Fault;
use crate::layout::{DeadLetterColumns, HistoryColumns, JOBS, JobColumns, LiveColumns, ScheduleColumns};
use crate::rows::{AssignedJob, JobRow, JobTerms, LiveRow, ScheduleRow};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::{Job, JobSpec, Settings};
use punctual_core::occurrence::{Finished, Live, RunInput};
use punctual_core::ports::{DeadLetter, Lane};
use punctual_core::schedule::ScheduleState;
use std::borrow::Cow;
use std::sync::Arc;

/// A limit as an SQL parameter.
pub(crate) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A counter as a column value; values that no correct caller reaches saturate.
pub(crate) fn counter(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn job_id(row: &(impl RowCells + ?Sized), column: usize) -> Result<JobId, Fault> {
    read(row, column, "the id of a job")
}

/// The job and number of an occurrence, in consecutive columns.
pub(crate) fn occurrence_id(row: &(impl RowCells + ?Sized), first: usize) -> Result<OccurrenceId, Fault> {
    Ok(job_id(row, first)?.occurrence(read(row, first + 1, "occurrence")?))
}

/// Job, number and attempt of an execution, in consecutive columns.
pub(crate) fn execution_id(row: &(impl RowCells + ?Sized), first: usize) -> Result<ExecutionId, Fault> {
    Ok(occurrence_id(row, first)?.attempt(read(row, first + 2, "attempt")?))
}

/// A job whose lane name is not resolved yet.
#[derive(Debug)]
pub(crate) struct UnnamedJob {
    job: Job,
    name: Option<String>,
    pub lane: i64,
}

impl UnnamedJob {
    pub fn named(self, lane: &Lane) -> JobRow {
        let mut job = self.job;
        job.spec.name = self.name.unwrap_or_else(|| lane.job_type().to_owned());
        job.spec.queue = lane.queue().to_owned();
        job.spec.job_type = lane.job_type().to_owned();
        JobRow { job, lane: self.lane }
    }
}

/// Reads the columns of `jobs`.
pub(crate) fn read_job(row: &(impl RowCells + ?Sized), first: usize) -> Result<UnnamedJob, Fault> {
    let columns = JobColumns::read(row, first)?;
    let settings =
        SettingsColumns::read(columns.schedule_type, columns.execute_at, columns.settings.as_deref())?;
    let spec = JobSpec {
        name: String::new(),
        job_type: String::new(),
        queue: String::new(),
        owner: read_owner(columns.owner.map(Cow::into_owned)),
        priority: columns.priority,
        payload: columns.payload.into_owned(),
        settings,
    };
    let job = Job {
        id: columns.id,
        version: columns.version,
        mark: columns.mark,
        numbered: columns.numbered,
        fired: columns.fired.unwrap_or(0),
        created_at: columns.created_at,
        updated_at: columns.updated_at.unwrap_or(columns.created_at),
        spec,
    };
    Ok(UnnamedJob { job, name: columns.name.map(Cow::into_owned), lane: columns.lane })
}

/// Reads the columns of `jobs` that hold the stored status and the settings.
pub(crate) fn read_terms(row: &(impl RowCells + ?Sized)) -> Result<JobTerms, Fault> {
    const AT: [usize; 3] = [JOBS.at("schedule_type"), JOBS.at("execute_at"), JOBS.at("settings")];
    Ok(JobTerms {
        settings: read_settings_at(row, AT)?,
        mark: read(row, const { JOBS.at("mark") }, "jobs.mark")?,
    })
}

/// The columns that [`read_settings`] expects.
macro_rules! settings_columns {
    () => {
        "jobs.schedule_type, jobs.execute_at, jobs.settings"
    };
}
pub(crate) use settings_columns;

pub(crate) fn read_settings(row: &(impl RowCells + ?Sized), first: usize) -> Result<Settings, Fault> {
    read_settings_at(row, [first, first + 1, first + 2])
}

fn read_settings_at(
    row: &(impl RowCells + ?Sized),
    [kind, at, document]: [usize; 3],
) -> Result<Settings, Fault> {
    let kind = read(row, kind, "jobs.schedule_type")?;
    SettingsColumns::read(kind, get(row, at)?, get(row, document)?)
}

/// The columns that [`read_facts`] expects.
macro_rules! fact_columns {
    () => {
        concat!("jobs.name, jobs.payload, jobs.version, ", $crate::codecs::settings_columns!())
    };
}
pub(crate) use fact_columns;

/// The job's data that an assignment contains; a job without a name has the name of its type.
pub(crate) fn read_facts(
    row: &(impl RowCells + ?Sized),
    first: usize,
    lane: &Lane,
) -> Result<AssignedJob, Fault> {
    Ok(AssignedJob {
        name: get::<Option<String>>(row, first)?.unwrap_or_else(|| lane.job_type().to_owned()),
        payload: read(row, first + 1, "jobs.payload")?,
        version: read(row, first + 2, "jobs.version")?,
        settings: read_settings(row, first + 3)?,
    })
}

impl<'a> JobColumns<'a> {
    pub fn of(JobRow { job, lane }: &'a JobRow) -> Result<Self, Fault> {
        Self::of_job(job, *lane)
    }

    pub fn of_job(job: &'a Job, lane: i64) -> Result<Self, Fault> {
        let spec = &job.spec;
        let SettingsColumns { schedule_type, execute_at, document } = SettingsColumns::of(&spec.settings)?;
        Ok(JobColumns {
            id: job.id,
            lane,
            created_at: job.created_at,
            version: job.version,
            mark: job.mark,
            priority: spec.priority,
            schedule_type,
            execute_at,
            updated_at: (job.updated_at != job.created_at).then_some(job.updated_at),
            numbered: job.numbered,
            fired: fired_column(job.fired),
            owner: owner_column(&spec.owner).map(Cow::Borrowed),
            name: (spec.name != spec.job_type).then_some(Cow::Borrowed(spec.name.as_str())),
            settings: document.map(Cow::Owned),
            payload: Cow::Borrowed(&spec.payload),
        })
    }
}

/// The column for an occurrence's own input.
pub(crate) fn input_column(input: Option<&RunInput>) -> Option<Cow<'static, str>> {
    let json = |input| serde_json::to_string(input).expect("texts and numbers are JSON");
    input.map(json).map(Cow::Owned)
}

fn read_input(stored: Option<&str>, column: &'static str) -> Result<Option<Arc<RunInput>>, Fault> {
    let read = |text| serde_json::from_str(text).map(Arc::new).map_err(|error| Fault::damaged(column, error));
    stored.map(read).transpose()
}

/// Reads the columns of `live`.
pub(crate) fn read_live(row: &(impl RowCells + ?Sized), first: usize) -> Result<LiveRow, Fault> {
    let columns = LiveColumns::read(row, first)?;
    let (flags, is_sole) = read_live_flags(columns.ties)?;
    let state = StateColumns {
        state: columns.state,
        gates: columns.gates,
        session: columns.session,
        claimed_at: columns.claimed_at,
        cancel_requested: columns.cancel_requested,
    };
    let live = Live {
        id: columns.job.occurrence(columns.occurrence),
        state: state.read()?,
        rank: columns.rank,
        priority: columns.priority,
        available_at: columns.available_at,
        scheduled_time: columns.scheduled_time,
        origin: columns.origin,
        job_version: columns.job_version,
        attempt: columns.attempt,
        charged: columns.charged,
        epoch: columns.epoch,
        expires_at: columns.expires_at,
        flags,
        limiter: read_limiter(columns.limiter, "live.limiter")?,
        line: read_limiter(columns.line, "live.line")?,
        input: read_input(columns.input.as_deref(), "live.input")?,
    };
    Ok(LiveRow { live, lane: columns.lane, is_sole })
}

impl LiveColumns<'_> {
    pub fn of(row: &LiveRow) -> Self {
        let live = &row.live;
        let StateColumns { state, gates, session, claimed_at, cancel_requested } =
            StateColumns::of(live.state);
        LiveColumns {
            job: live.id.job,
            occurrence: live.id.number,
            lane: row.lane,
            rank: live.rank,
            available_at: live.available_at,
            scheduled_time: live.scheduled_time,
            job_version: live.job_version,
            attempt: live.attempt,
            charged: live.charged,
            epoch: live.epoch,
            segment: live.id.job.segment().index(),
            state,
            gates,
            priority: live.priority,
            origin: live.origin,
            ties: live_flags(row),
            cancel_requested,
            session,
            claimed_at,
            expires_at: live.expires_at,
            look_at: live.look_at(),
            limiter: limiter_column(live.limiter),
            line: limiter_column(live.line),
            input: input_column(live.input.as_deref()),
        }
    }
}

/// A schedule whose lane name is not resolved yet.
#[derive(Debug)]
pub(crate) struct UnnamedSchedule {
    state: ScheduleState,
    pub lane: i64,
}

impl UnnamedSchedule {
    pub fn named(self, lane: &Lane) -> ScheduleRow {
        let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
        ScheduleRow { state: ScheduleState { queue, job_type, ..self.state }, lane: self.lane }
    }
}

/// Reads the columns of `schedules`.
pub(crate) fn read_schedule(row: &(impl RowCells + ?Sized), first: usize) -> Result<UnnamedSchedule, Fault> {
    let columns = ScheduleColumns::read(row, first)?;
    let parts = columns.parts()?;
    let state = ScheduleState {
        job: columns.job,
        version: columns.version,
        nominal: parts.nominal,
        due_at: columns.due_at,
        replay: parts.replay,
        fired: columns.fired,
        numbered: parts.numbered,
        job_version: columns.job_version,
        queue: String::new(),
        job_type: String::new(),
        owner: read_owner(columns.owner.map(Cow::into_owned)),
        priority: columns.priority,
        overlap: parts.overlap,
        expiry: parts.expiry,
        depends: parts.depends,
        awaited: parts.awaited,
        schedule: parts.schedule,
    };
    Ok(UnnamedSchedule { state, lane: columns.lane })
}

/// Reads the columns of `history`, and the worker's name, which follows them.
pub(crate) fn read_finished(row: &(impl RowCells + ?Sized), first: usize) -> Result<Finished, Fault> {
    let columns = HistoryColumns::read(row, first)?;
    Ok(Finished {
        id: columns.job.occurrence(columns.occurrence).attempt(columns.attempt),
        epoch: columns.epoch,
        status: columns.status,
        origin: columns.origin,
        job_version: columns.job_version,
        scheduled_time: columns.scheduled_time,
        available_at: columns.available_at,
        started_at: columns.started_at,
        completed_at: columns.completed_at,
        session: columns.session,
        worker: get(row, first + HistoryColumns::COUNT)?,
        error: columns.error.map(Cow::into_owned),
        result: columns.result.map(Cow::into_owned),
        reason: columns.reason,
        input: read_input(columns.input.as_deref(), "history.input")?,
    })
}

/// The number of columns that [`read_finished`] expects.
pub(crate) const FINISHED_COLUMNS: usize = HistoryColumns::COUNT + 1;

impl<'a> HistoryColumns<'a> {
    /// The position is assigned when the row is written.
    pub fn of(finished: &'a Finished, worker: Option<i64>) -> Self {
        HistoryColumns {
            place: 0,
            job: finished.id.occurrence.job,
            occurrence: finished.id.occurrence.number,
            completed_at: finished.completed_at,
            scheduled_time: finished.scheduled_time,
            available_at: finished.available_at,
            attempt: finished.id.attempt,
            epoch: finished.epoch,
            job_version: finished.job_version,
            status: finished.status,
            origin: finished.origin,
            reason: finished.reason,
            started_at: finished.started_at,
            session: finished.session,
            worker,
            error: finished.error.as_deref().map(Cow::Borrowed),
            result: finished.result.as_deref().map(Cow::Borrowed),
            input: input_column(finished.input.as_deref()),
        }
    }
}

/// Reads the columns of `dead_letters`, and the name of its job. The owner and the lane's number of the job
/// follow them.
pub(crate) fn read_dead_letter(
    row: &(impl RowCells + ?Sized),
    first: usize,
    lane: &Lane,
) -> Result<DeadLetter, Fault> {
    let columns = DeadLetterColumns::read(row, first)?;
    let name: Option<String> = get(row, first + DeadLetterColumns::COUNT)?;
    Ok(DeadLetter {
        number: columns.number,
        occurrence: columns.job.occurrence(columns.occurrence),
        job_name: name.unwrap_or_else(|| lane.job_type().to_owned()),
        job_type: lane.job_type().to_owned(),
        queue: lane.queue().to_owned(),
        attempts: columns.attempts,
        epoch: columns.epoch,
        scheduled_time: columns.scheduled_time,
        origin: columns.origin,
        died_at: columns.died_at,
        error: columns.error.map(Cow::into_owned),
        noted: columns.noted,
        input: read_input(columns.input.as_deref(), "dead_letters.input")?,
    })
}

/// The number of columns before and including the number of the job's lane.
pub(crate) const LETTER_COLUMNS: usize = DeadLetterColumns::COUNT + 3;

/// The owner of a dead letter's job, as stored in its column.
pub(crate) fn owner_of_letter(row: &(impl RowCells + ?Sized)) -> Result<Option<&str>, Fault> {
    get(row, LETTER_COLUMNS - 2)
}
