//! Jobs, their keys and tags, and their schedules.

use super::{Writing, int_or_none, text_or_none};
use crate::codes::{Code, ScheduleColumns, SettingsColumns, fired_column, owner_column};
use crate::fault::Fault;
use crate::mysql::lists::{Insertion, documents, jobs, list};
use crate::mysql::rows::integer;
use crate::rows::{JobKey, JobRow, ScheduleRow};
use crate::unit_of_work::WriteSet;
use mysql_async::Value;
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;

macro_rules! insert_jobs {
    () => {
        "INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, execute_at, updated_at, numbered, \
         fired, owner, name, settings, payload)"
    };
}
const INSERT_JOBS: Insertion = Insertion { head: insert_jobs!(), columns: 15, tail: "" };
/// The rows exist and are locked: only their contents are rewritten.
const UPDATE_JOBS: Insertion = Insertion {
    head: insert_jobs!(),
    columns: 15,
    tail: " ON DUPLICATE KEY UPDATE lane = VALUES(lane), created_at = VALUES(created_at), version = VALUES(version), \
         mark = VALUES(mark), priority = VALUES(priority), schedule_type = VALUES(schedule_type), \
         execute_at = VALUES(execute_at), updated_at = VALUES(updated_at), numbered = VALUES(numbered), \
         fired = VALUES(fired), owner = VALUES(owner), name = VALUES(name), settings = VALUES(settings), \
         payload = VALUES(payload)",
};
pub(crate) const UPDATE_MARKS: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 mark int),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) SET jobs.mark = given.mark"
);
const UPDATE_NUMBERED: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 numbered int, 2 fired int, 3 over_at int),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
     SET jobs.numbered = given.numbered, jobs.fired = IF(given.over_at IS NULL, jobs.fired, given.fired), \
     jobs.updated_at = IF(given.over_at IS NULL, jobs.updated_at, \
       GREATEST(COALESCE(jobs.updated_at, jobs.created_at), given.over_at))"
);
pub(crate) const DELETE_TAGS: &str = concat!(
    "DELETE job_tags FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN job_tags FORCE INDEX (job_tags_job) ON job_tags.job = UNHEX(given.job)"
);
const INSERT_TAGS: &str = concat!(
    "INSERT INTO job_tags (job, tag) SELECT UNHEX(given.job), given.tag FROM ",
    list!(0 job id, 1 tag name),
    " ON DUPLICATE KEY UPDATE tag = job_tags.tag"
);
pub(crate) const DELETE_KEYS: &str = concat!(
    "DELETE job_keys FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN job_keys FORCE INDEX (job_keys_job) ON job_keys.job = UNHEX(given.job)"
);
/// A key that another transaction has inserted meanwhile is a conflict, and never overwritten.
const INSERT_KEYS: &str = concat!(
    "INSERT INTO job_keys (owner, kind, `key`, job) SELECT owner, kind, name, UNHEX(job) FROM ",
    list!(0 owner name, 1 kind int, 2 name name, 3 job id)
);
pub(crate) const UPDATE_KEYS: &str = concat!(
    "UPDATE ",
    list!(0 owner name, 1 kind int, 2 name name, 3 job id),
    " STRAIGHT_JOIN job_keys FORCE INDEX (PRIMARY) ON job_keys.owner = given.owner AND job_keys.kind = given.kind \
     AND job_keys.`key` = given.name SET job_keys.job = UNHEX(given.job)"
);

/// All columns of schedules, in the order of [`schedule_lists`].
macro_rules! schedule_list {
    () => {
        list!(
            0 job id, 1 lane int, 2 fired int, 3 version int, 4 job_version int, 5 segment int, 6 priority int,
            7 overlap int, 8 ties int, 9 due_at int, 10 nominal int, 11 numbered int, 12 overlap_limit int,
            13 max_open int, 14 owner text, 15 schedule text, 16 replay text, 17 expiry text
        )
    };
}
const INSERT_SCHEDULES: &str = concat!(
    "INSERT INTO schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at, nominal, \
     numbered, overlap_limit, max_open, owner, schedule, replay, expiry) \
     SELECT UNHEX(job), lane, fired, version, job_version, segment, priority, overlap, ties, due_at, nominal, numbered, \
     overlap_limit, max_open, owner, schedule, replay, expiry FROM ",
    schedule_list!()
);
pub(crate) const UPDATE_SCHEDULES: &str = concat!(
    "UPDATE ",
    schedule_list!(),
    " STRAIGHT_JOIN schedules FORCE INDEX (PRIMARY) ON schedules.job = UNHEX(given.job) \
     SET schedules.lane = given.lane, schedules.fired = given.fired, schedules.version = given.version, \
     schedules.job_version = given.job_version, schedules.priority = given.priority, \
     schedules.overlap = given.overlap, schedules.ties = given.ties, schedules.due_at = given.due_at, \
     schedules.nominal = given.nominal, schedules.numbered = given.numbered, \
     schedules.overlap_limit = given.overlap_limit, schedules.max_open = given.max_open, \
     schedules.owner = given.owner, schedules.schedule = given.schedule, schedules.replay = given.replay, \
     schedules.expiry = given.expiry"
);
pub(crate) const DELETE_SCHEDULES: &str = concat!(
    "DELETE schedules FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN schedules FORCE INDEX (PRIMARY) ON schedules.job = UNHEX(given.job)"
);

impl Writing {
    pub(super) fn jobs(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        self.insert(INSERT_JOBS, job_rows(&write_set.jobs_inserted)?);
        self.insert(UPDATE_JOBS, job_rows(&write_set.jobs_updated)?);
        let marks = documents(&write_set.marks, |row, (job, mark)| {
            row.id(*job).int(mark.code());
        });
        self.add(UPDATE_MARKS, marks);
        let numbered = documents(&write_set.numbered, |row, change| {
            let fired = change.spent.and_then(|spent| fired_column(spent.fired)).map(i64::from);
            let over_at = change.spent.map(|spent| spent.at.as_micros());
            row.id(change.job).int(change.numbered).int_or_none(fired).int_or_none(over_at);
        });
        self.add(UPDATE_NUMBERED, numbered);
        Ok(())
    }

    pub(super) fn tags_and_keys(&mut self, write_set: &WriteSet) {
        self.add(DELETE_TAGS, jobs(&write_set.tags_forgotten));
        let tags = documents(&write_set.tags_put, |row, (job, tag)| {
            row.id(*job).text(tag);
        });
        self.add(INSERT_TAGS, tags);
        self.add(DELETE_KEYS, jobs(&write_set.keys_freed));
        self.add(INSERT_KEYS, key_lists(&write_set.keys_held));
        self.add(UPDATE_KEYS, key_lists(&write_set.keys_taken));
    }

    pub(super) fn schedules(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        self.add(INSERT_SCHEDULES, schedule_lists(&write_set.schedules_inserted)?);
        self.add(UPDATE_SCHEDULES, schedule_lists(&write_set.schedules_updated)?);
        self.add(DELETE_SCHEDULES, jobs(&write_set.schedules_deleted));
        Ok(())
    }
}

fn job_rows(rows: &[JobRow]) -> Result<Vec<Vec<Value>>, Fault> {
    rows.iter().map(job_row).collect()
}

fn job_row(JobRow { job, lane }: &JobRow) -> Result<Vec<Value>, Fault> {
    let spec = &job.spec;
    let settings = SettingsColumns::of(&spec.settings)?;
    let updated_at = (job.updated_at != job.created_at).then_some(job.updated_at.as_micros());
    Ok(vec![
        job.id.as_bytes().into(),
        Value::Int(*lane),
        Value::Int(job.created_at.as_micros()),
        Value::Int(integer(job.version)),
        Value::Int(job.mark.code()),
        spec.priority.get().into(),
        Value::Int(settings.schedule_type),
        int_or_none(settings.execute_at),
        int_or_none(updated_at),
        int_or_none(job.numbered.map(i64::from)),
        int_or_none(fired_column(job.fired).map(i64::from)),
        text_or_none(owner_column(&spec.owner)),
        text_or_none((spec.name != spec.job_type).then_some(&spec.name)),
        text_or_none(settings.document.as_deref()),
        spec.payload.as_str().into(),
    ])
}

fn key_lists(keys: &[(JobKey, JobId)]) -> Vec<Value> {
    documents(keys, |row, (key, job)| {
        row.text(&key.owner).int(key.kind.code()).text(&key.key).id(*job);
    })
}

fn schedule_lists(rows: &[ScheduleRow]) -> Result<Vec<Value>, Fault> {
    let columns: Vec<ScheduleColumns<'_>> =
        rows.iter().map(|row| ScheduleColumns::of(&row.state)).collect::<Result<_, _>>()?;
    Ok(documents(rows.iter().zip(&columns), |row, (ScheduleRow { state, lane }, columns)| {
        row.id(state.job)
            .int(*lane)
            .int(state.fired)
            .int(integer(state.version))
            .int(integer(state.job_version))
            .int(state.job.segment().index())
            .int(state.priority.get())
            .int(state.overlap.policy.code())
            .int(columns.ties)
            .int_or_none(state.due_at.map(Timestamp::as_micros))
            .int_or_none(columns.nominal)
            .int_or_none(columns.numbered.map(i64::from))
            .int_or_none(columns.overlap_limit.map(i64::from))
            .int_or_none(columns.max_open.map(i64::from))
            .text_or_none(owner_column(&state.owner))
            .text_or_none(columns.schedule.as_deref())
            .text_or_none(columns.replay.as_deref())
            .text_or_none(columns.expiry.as_deref());
    }))
}
