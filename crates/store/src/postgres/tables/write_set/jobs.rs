//! Jobs, their keys and tags, and their schedules.

use super::Writing;
use crate::codes::{ScheduleColumns, SettingsColumns, fired_column, owner_column};
use crate::fault::Fault;
use crate::postgres::rows::{code, integer, uuid};
use crate::postgres::wire::{Parameter, column, value};
use crate::rows::{JobKey, JobRow, ScheduleRow};
use crate::unit_of_work::WriteSet;
use punctual_core::ids::JobId;
use punctual_core::time::Timestamp;

/// Arrays of all columns of jobs, in the order of [`job_parameters`].
macro_rules! job_arrays {
    () => {
        "unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::integer[], $5::smallint[], $6::smallint[], $7::smallint[], \
         $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::text[], $15::text[]) \
         AS new(id, lane, created_at, version, mark, priority, schedule_type, execute_at, updated_at, numbered, fired, \
         owner, name, settings, payload)"
    };
}
pub(crate) const INSERT_JOBS: &str = concat!(
    "INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, execute_at, updated_at, numbered, \
     fired, owner, name, settings, payload) SELECT * FROM ",
    job_arrays!()
);
const UPDATE_JOBS: &str = concat!(
    "UPDATE jobs SET lane = new.lane, created_at = new.created_at, version = new.version, mark = new.mark, \
     priority = new.priority, schedule_type = new.schedule_type, execute_at = new.execute_at, \
     updated_at = new.updated_at, numbered = new.numbered, fired = new.fired, owner = new.owner, name = new.name, \
     settings = new.settings, payload = new.payload FROM ",
    job_arrays!(),
    " WHERE jobs.id = new.id"
);
const UPDATE_MARKS: &str = "UPDATE jobs SET mark = new.mark \
     FROM unnest($1::uuid[], $2::smallint[]) AS new(id, mark) WHERE jobs.id = new.id";
const UPDATE_NUMBERED: &str = "UPDATE jobs SET numbered = new.numbered, \
     fired = CASE WHEN new.over_at IS NOT NULL THEN new.fired ELSE jobs.fired END, \
     updated_at = CASE WHEN new.over_at IS NOT NULL THEN greatest(coalesce(jobs.updated_at, jobs.created_at), new.over_at) \
       ELSE jobs.updated_at END \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[]) AS new(id, numbered, fired, over_at) \
     WHERE jobs.id = new.id";
const DELETE_TAGS: &str = "DELETE FROM job_tags WHERE job = ANY($1)";
const INSERT_TAGS: &str = "INSERT INTO job_tags (job, tag) SELECT * FROM unnest($1::uuid[], $2::text[]) \
     ON CONFLICT (tag, job) DO NOTHING";
const DELETE_KEYS: &str = "DELETE FROM job_keys WHERE job = ANY($1)";
/// A key that another transaction has inserted meanwhile is a conflict, and never overwritten.
const INSERT_KEYS: &str = "INSERT INTO job_keys (owner, kind, key, job) \
     SELECT * FROM unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[])";
const UPDATE_KEYS: &str = "UPDATE job_keys SET job = new.job \
     FROM unnest($1::text[], $2::smallint[], $3::text[], $4::uuid[]) AS new(owner, kind, key, job) \
     WHERE job_keys.owner = new.owner AND job_keys.kind = new.kind AND job_keys.key = new.key";

/// Arrays of all columns of schedules, in the order of [`schedule_parameters`].
macro_rules! schedule_arrays {
    () => {
        "unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::integer[], $5::integer[], $6::smallint[], $7::smallint[], \
         $8::smallint[], $9::smallint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], \
         $15::text[], $16::text[], $17::text[], $18::text[]) \
         AS new(job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at, nominal, numbered, \
         overlap_limit, max_open, owner, schedule, replay, expiry)"
    };
}
const INSERT_SCHEDULES: &str = concat!(
    "INSERT INTO schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at, nominal, \
     numbered, overlap_limit, max_open, owner, schedule, replay, expiry) SELECT * FROM ",
    schedule_arrays!()
);
const UPDATE_SCHEDULES: &str = concat!(
    "UPDATE schedules SET lane = new.lane, fired = new.fired, version = new.version, job_version = new.job_version, \
     priority = new.priority, overlap = new.overlap, ties = new.ties, due_at = new.due_at, nominal = new.nominal, \
     numbered = new.numbered, overlap_limit = new.overlap_limit, max_open = new.max_open, owner = new.owner, \
     schedule = new.schedule, replay = new.replay, expiry = new.expiry FROM ",
    schedule_arrays!(),
    " WHERE schedules.job = new.job"
);
const DELETE_SCHEDULES: &str = "DELETE FROM schedules WHERE job = ANY($1)";

impl<'a> Writing<'a> {
    pub(super) fn jobs(&mut self, write_set: &'a WriteSet) -> Result<(), Fault> {
        if !write_set.jobs_inserted.is_empty() {
            self.add(INSERT_JOBS, job_parameters(&write_set.jobs_inserted)?);
        }
        if !write_set.jobs_updated.is_empty() {
            self.add(UPDATE_JOBS, job_parameters(&write_set.jobs_updated)?);
        }
        if !write_set.marks.is_empty() {
            let marks = column(write_set.marks.iter().map(|(_, mark)| code(*mark)));
            self.add(UPDATE_MARKS, [ids(write_set.marks.iter().map(|(job, _)| job)), marks]);
        }
        let numbered = &write_set.numbered;
        if !numbered.is_empty() {
            let parameters =
                [
                    ids(numbered.iter().map(|change| &change.job)),
                    column(numbered.iter().map(|change| i64::from(change.numbered))),
                    column(numbered.iter().map(|change| {
                        change.spent.and_then(|spent| fired_column(spent.fired)).map(i64::from)
                    })),
                    column(numbered.iter().map(|change| change.spent.map(|spent| spent.at.as_micros()))),
                ];
            self.add(UPDATE_NUMBERED, parameters);
        }
        Ok(())
    }

    pub(super) fn tags_and_keys(&mut self, write_set: &'a WriteSet) {
        if !write_set.tags_forgotten.is_empty() {
            self.add(DELETE_TAGS, [ids(&write_set.tags_forgotten)]);
        }
        if !write_set.tags_put.is_empty() {
            let tags = column(write_set.tags_put.iter().map(|(_, tag)| tag.as_str()));
            self.add(INSERT_TAGS, [ids(write_set.tags_put.iter().map(|(job, _)| job)), tags]);
        }
        if !write_set.keys_freed.is_empty() {
            self.add(DELETE_KEYS, [ids(&write_set.keys_freed)]);
        }
        if !write_set.keys_held.is_empty() {
            self.add(INSERT_KEYS, key_parameters(&write_set.keys_held));
        }
        if !write_set.keys_taken.is_empty() {
            self.add(UPDATE_KEYS, key_parameters(&write_set.keys_taken));
        }
    }

    pub(super) fn schedules(&mut self, write_set: &'a WriteSet) -> Result<(), Fault> {
        if !write_set.schedules_inserted.is_empty() {
            self.add(INSERT_SCHEDULES, schedule_parameters(&write_set.schedules_inserted)?);
        }
        if !write_set.schedules_updated.is_empty() {
            self.add(UPDATE_SCHEDULES, schedule_parameters(&write_set.schedules_updated)?);
        }
        if !write_set.schedules_deleted.is_empty() {
            self.add(DELETE_SCHEDULES, [ids(&write_set.schedules_deleted)]);
        }
        Ok(())
    }
}

pub(super) fn ids<'a, 'b>(jobs: impl IntoIterator<Item = &'b JobId>) -> Parameter<'a> {
    value(jobs.into_iter().copied().map(uuid).collect::<Vec<_>>())
}

fn job_parameters(rows: &[JobRow]) -> Result<[Parameter<'_>; 15], Fault> {
    let jobs = || rows.iter().map(|row| &row.job);
    let settings: Vec<SettingsColumns> =
        jobs().map(|job| SettingsColumns::of(&job.spec.settings)).collect::<Result<_, _>>()?;
    Ok([
        ids(jobs().map(|job| &job.id)),
        column(rows.iter().map(|row| row.lane)),
        column(jobs().map(|job| job.created_at.as_micros())),
        column(jobs().map(|job| integer(job.version))),
        column(jobs().map(|job| code(job.mark))),
        column(jobs().map(|job| i16::from(job.spec.priority.get()))),
        column(settings.iter().map(|settings| settings.schedule_type as i16)),
        column(settings.iter().map(|settings| settings.execute_at)),
        column(jobs().map(|job| (job.updated_at != job.created_at).then_some(job.updated_at.as_micros()))),
        column(jobs().map(|job| job.numbered.map(i64::from))),
        column(jobs().map(|job| fired_column(job.fired).map(i64::from))),
        column(jobs().map(|job| owner_column(&job.spec.owner))),
        column(jobs().map(|job| (job.spec.name != job.spec.job_type).then_some(job.spec.name.as_str()))),
        column(settings.into_iter().map(|settings| settings.document)),
        column(jobs().map(|job| job.spec.payload.as_str())),
    ])
}

fn key_parameters(keys: &[(JobKey, JobId)]) -> [Parameter<'_>; 4] {
    [
        column(keys.iter().map(|(key, _)| key.owner.as_str())),
        column(keys.iter().map(|(key, _)| code(key.kind))),
        column(keys.iter().map(|(key, _)| key.key.as_str())),
        ids(keys.iter().map(|(_, job)| job)),
    ]
}

fn schedule_parameters(rows: &[ScheduleRow]) -> Result<[Parameter<'_>; 18], Fault> {
    let states = || rows.iter().map(|row| &row.state);
    let columns: Vec<ScheduleColumns<'_>> = states().map(ScheduleColumns::of).collect::<Result<_, _>>()?;
    let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_ref().map(|text| text.clone().into_owned());
    Ok([
        ids(states().map(|state| &state.job)),
        column(rows.iter().map(|row| row.lane)),
        column(states().map(|state| i64::from(state.fired))),
        column(states().map(|state| integer(state.version))),
        column(states().map(|state| integer(state.job_version))),
        column(states().map(|state| i16::from(state.job.segment().index()))),
        column(states().map(|state| i16::from(state.priority.get()))),
        column(states().map(|state| code(state.overlap.policy))),
        column(columns.iter().map(|columns| i16::from(columns.ties))),
        column(states().map(|state| state.due_at.map(Timestamp::as_micros))),
        column(columns.iter().map(|columns| columns.nominal)),
        column(columns.iter().map(|columns| columns.numbered.map(i64::from))),
        column(columns.iter().map(|columns| columns.overlap_limit.map(i64::from))),
        column(columns.iter().map(|columns| columns.max_open.map(i64::from))),
        column(states().map(|state| owner_column(&state.owner))),
        column(columns.iter().map(|columns| text(&columns.schedule))),
        column(columns.iter().map(|columns| text(&columns.replay))),
        column(columns.iter().map(|columns| text(&columns.expiry))),
    ])
}
