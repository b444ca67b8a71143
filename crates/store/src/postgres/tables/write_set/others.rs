//! Dead letters, dependencies, notes, queues, requests and counters.

use super::Writing;
use super::jobs::ids;
use crate::codes::{limits_column, placing_column};
use crate::counters::Counts;
use crate::fault::Fault;
use crate::postgres::rows::{clean, code, counter, integer};
use crate::postgres::tables::read_set::occurrences;
use crate::postgres::wire::{Parameter, column, value};
use crate::unit_of_work::{Dependency, NewDeadLetter, NoteChange, WriteSet};
use punctual_core::time::Timestamp;

const INSERT_DEAD_LETTERS: &str = "INSERT INTO dead_letters (job, occurrence, scheduled_time, died_at, attempts, epoch, origin, noted, error) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[], \
     $7::smallint[], $8::boolean[], $9::text[])";
const DELETE_DEAD_LETTERS: &str = "DELETE FROM dead_letters USING unnest($1::uuid[], $2::bigint[]) AS old(job, occurrence) \
     WHERE dead_letters.job = old.job AND dead_letters.occurrence = old.occurrence";
const FORGET_DEAD_LETTERS: &str = "DELETE FROM dead_letters WHERE job = ANY($1)";

const INSERT_DEPENDENCIES: &str =
    "INSERT INTO dependencies (parent, child) SELECT * FROM unnest($1::uuid[], $2::uuid[])";
const DELETE_DEPENDENCIES: &str = "DELETE FROM dependencies USING unnest($1::uuid[], $2::uuid[]) AS old(parent, child) \
     WHERE dependencies.parent = old.parent AND dependencies.child = old.child";
const FORGET_PARENTS: &str = "DELETE FROM dependencies WHERE child = ANY($1)";
const INSERT_RESOLUTIONS: &str =
    "INSERT INTO resolutions (parent, succeeded) SELECT * FROM unnest($1::uuid[], $2::boolean[])";
const DELETE_RESOLUTIONS: &str = "DELETE FROM resolutions WHERE parent = ANY($1)";

const COUNT_NOTES: &str = "INSERT INTO notes (job, occurrence, attempt, epoch, number, noted_at) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[]) \
     ON CONFLICT (job, occurrence) \
     DO UPDATE SET epoch = excluded.epoch, number = excluded.number, noted_at = excluded.noted_at";
const PUT_PROGRESS: &str = "UPDATE notes SET attempt = new.attempt, percent = new.percent, message = new.message \
     FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::smallint[], $5::text[]) \
     AS new(job, occurrence, attempt, percent, message) \
     WHERE notes.job = new.job AND notes.occurrence = new.occurrence";
const PUT_CHECKPOINTS: &str = "INSERT INTO checkpoints (job, occurrence, document) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[]) \
     ON CONFLICT (job, occurrence) DO UPDATE SET document = excluded.document";
const DELETE_CHECKPOINTS: &str = "DELETE FROM checkpoints USING unnest($1::uuid[], $2::bigint[]) AS old(job, occurrence) \
     WHERE checkpoints.job = old.job AND checkpoints.occurrence = old.occurrence";
const DELETE_NOTES: &str = "DELETE FROM notes USING unnest($1::uuid[], $2::bigint[]) AS old(job, occurrence) \
     WHERE notes.job = old.job AND notes.occurrence = old.occurrence";
/// Except those of open occurrences.
pub(crate) const FORGET_NOTES: [&str; 2] = [
    "DELETE FROM notes WHERE job = ANY($1) AND NOT EXISTS \
     (SELECT 1 FROM live WHERE live.job = notes.job AND live.occurrence = notes.occurrence)",
    "DELETE FROM checkpoints WHERE job = ANY($1) AND NOT EXISTS \
     (SELECT 1 FROM live WHERE live.job = checkpoints.job AND live.occurrence = checkpoints.occurrence)",
];

const PUT_QUEUES: &str = "INSERT INTO queues (queue, paused_at, max_depth, limits, unplaced) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) \
     ON CONFLICT (queue) DO UPDATE SET paused_at = excluded.paused_at, max_depth = excluded.max_depth, \
     limits = excluded.limits, unplaced = excluded.unplaced";
const DELETE_QUEUES: &str = "DELETE FROM queues WHERE queue = ANY($1)";
const INSERT_REQUESTS: &str = "INSERT INTO requests (token, key, fingerprint, seed, begun_at) \
     SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bigint[], $5::bigint[])";
const ANSWER_REQUESTS: &str = "UPDATE requests SET status = new.status, location = new.location, body = new.body \
     FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[]) AS new(token, key, status, location, body) \
     WHERE requests.token = new.token AND requests.key = new.key";

const ADD_TO_LANES: &str = "INSERT INTO lane_tallies (lane, shard, waiting, queued, running) \
     SELECT lane, $1, waiting, queued, running \
     FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS change(lane, waiting, queued, running) \
     ON CONFLICT (lane, shard) DO UPDATE SET waiting = lane_tallies.waiting + excluded.waiting, \
     queued = lane_tallies.queued + excluded.queued, running = lane_tallies.running + excluded.running";
/// One row each and in order, so that transactions that add to several rows do not deadlock.
const ADD_TO_LIMITERS: &str = "INSERT INTO limiter_tallies (limiter, waiting, in_use) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) ON CONFLICT (limiter) DO UPDATE \
     SET waiting = limiter_tallies.waiting + excluded.waiting, in_use = limiter_tallies.in_use + excluded.in_use";
const FORGET_LIMITERS: &str =
    "DELETE FROM limiter_tallies WHERE limiter = ANY($1) AND waiting = 0 AND in_use = 0";
const SET_LAST_STARTS: &str = "INSERT INTO limiter_paces (limiter, last_at) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[]) ON CONFLICT (limiter) DO UPDATE SET last_at = excluded.last_at";
const ADD_TO_JOBS: &str = "INSERT INTO job_tally (shard, active, paused, completed, failed, cancelled, dead_letters) \
     VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (shard) DO UPDATE SET active = job_tally.active + excluded.active, \
     paused = job_tally.paused + excluded.paused, completed = job_tally.completed + excluded.completed, \
     failed = job_tally.failed + excluded.failed, cancelled = job_tally.cancelled + excluded.cancelled, \
     dead_letters = job_tally.dead_letters + excluded.dead_letters";

impl<'a> Writing<'a> {
    pub(super) fn dead_letters(&mut self, write_set: &'a WriteSet) {
        if !write_set.new_dead_letters.is_empty() {
            self.add(INSERT_DEAD_LETTERS, dead_letter_parameters(&write_set.new_dead_letters));
        }
        if !write_set.deleted_dead_letters.is_empty() {
            self.add(DELETE_DEAD_LETTERS, occurrences(&write_set.deleted_dead_letters));
        }
        if !write_set.dead_forgotten.is_empty() {
            self.add(FORGET_DEAD_LETTERS, [ids(&write_set.dead_forgotten)]);
        }
    }

    pub(super) fn dependencies(&mut self, write_set: &'a WriteSet) {
        if !write_set.dependencies_inserted.is_empty() {
            self.add(INSERT_DEPENDENCIES, dependency_parameters(&write_set.dependencies_inserted));
        }
        if !write_set.dependencies_deleted.is_empty() {
            self.add(DELETE_DEPENDENCIES, dependency_parameters(&write_set.dependencies_deleted));
        }
        if !write_set.parents_forgotten.is_empty() {
            self.add(FORGET_PARENTS, [ids(&write_set.parents_forgotten)]);
        }
        let resolutions = &write_set.resolutions_inserted;
        if !resolutions.is_empty() {
            let succeeded = column(resolutions.iter().map(|(_, succeeded)| *succeeded));
            self.add(INSERT_RESOLUTIONS, [ids(resolutions.iter().map(|(parent, _)| parent)), succeeded]);
        }
        if !write_set.resolutions_deleted.is_empty() {
            self.add(DELETE_RESOLUTIONS, [ids(&write_set.resolutions_deleted)]);
        }
    }

    pub(super) fn notes(&mut self, write_set: &'a WriteSet) {
        if !write_set.notes.is_empty() {
            self.put_notes(&write_set.notes);
        }
        let put = &write_set.checkpoints_put;
        if !put.is_empty() {
            let [jobs, numbers] = occurrences(put.iter().map(|(id, _)| id));
            let documents = column(put.iter().map(|(_, checkpoint)| checkpoint.as_json()));
            self.add(PUT_CHECKPOINTS, [jobs, numbers, documents]);
        }
        if !write_set.checkpoints_deleted.is_empty() {
            self.add(DELETE_CHECKPOINTS, occurrences(&write_set.checkpoints_deleted));
        }
        if !write_set.notes_forgotten.is_empty() {
            self.add(DELETE_NOTES, occurrences(&write_set.notes_forgotten));
            self.add(DELETE_CHECKPOINTS, occurrences(&write_set.notes_forgotten));
        }
        if !write_set.notes_of_jobs_forgotten.is_empty() {
            for sql in FORGET_NOTES {
                self.add(sql, [ids(&write_set.notes_of_jobs_forgotten)]);
            }
        }
    }

    fn put_notes(&mut self, notes: &'a [NoteChange]) {
        let [jobs, numbers] = occurrences(notes.iter().map(|note| &note.id));
        let parameters = [
            jobs,
            numbers,
            column(notes.iter().map(|note| integer(note.attempt))),
            column(notes.iter().map(|note| integer(note.last.epoch.0))),
            column(notes.iter().map(|note| counter(note.last.number))),
            column(notes.iter().map(|note| note.noted_at.as_micros())),
        ];
        self.add(COUNT_NOTES, parameters);
        let progress: Vec<_> =
            notes.iter().filter_map(|note| Some((note, note.progress.as_ref()?))).collect();
        if progress.is_empty() {
            return;
        }
        let [jobs, numbers] = occurrences(progress.iter().map(|(note, _)| &note.id));
        let percent = |hundredths: u16| i16::try_from(hundredths).unwrap_or(i16::MAX);
        let parameters = [
            jobs,
            numbers,
            column(progress.iter().map(|(note, _)| integer(note.attempt))),
            column(progress.iter().map(|(_, said)| said.percent.map(|share| percent(share.hundredths())))),
            column(progress.iter().map(|(_, said)| said.message.as_deref().map(clean))),
        ];
        self.add(PUT_PROGRESS, parameters);
    }

    pub(super) fn queues(&mut self, write_set: &'a WriteSet) -> Result<(), Fault> {
        let put = &write_set.queues_put;
        if !put.is_empty() {
            let limits = put.iter().map(|row| limits_column(&row.settings.limits));
            let limits = limits.collect::<Result<Vec<_>, _>>()?;
            let placing = put.iter().map(|row| placing_column(row.placing.as_ref()));
            let placing = placing.collect::<Result<Vec<_>, _>>()?;
            let parameters = [
                column(put.iter().map(|row| row.queue.as_str())),
                column(put.iter().map(|row| row.paused_at.map(Timestamp::as_micros))),
                column(put.iter().map(|row| row.settings.max_depth.map(counter))),
                column(limits),
                column(placing),
            ];
            self.add(PUT_QUEUES, parameters);
        }
        if !write_set.queues_deleted.is_empty() {
            self.add(DELETE_QUEUES, [column(write_set.queues_deleted.iter().map(String::as_str))]);
        }
        let last = &write_set.counts.last_starts;
        if !last.is_empty() {
            let limiters = column(last.keys().map(|limiter| limiter.number()));
            self.add(SET_LAST_STARTS, [limiters, column(last.values().map(|at| at.as_micros()))]);
        }
        Ok(())
    }

    pub(super) fn requests(&mut self, write_set: &'a WriteSet) {
        let inserted = &write_set.requests_inserted;
        if !inserted.is_empty() {
            let new = || inserted.iter().map(|(new, _)| new);
            let parameters = [
                column(new().map(|new| new.request.token.as_str())),
                column(new().map(|new| new.request.key.as_str())),
                column(new().map(|new| new.fingerprint.as_slice())),
                column(new().map(|new| new.seed.cast_signed())),
                column(inserted.iter().map(|(_, begun_at)| begun_at.as_micros())),
            ];
            self.add(INSERT_REQUESTS, parameters);
        }
        let answered = &write_set.requests_answered;
        if !answered.is_empty() {
            let parameters = [
                column(answered.iter().map(|(request, _)| request.token.as_str())),
                column(answered.iter().map(|(request, _)| request.key.as_str())),
                column(answered.iter().map(|(_, answer)| i32::from(answer.status))),
                column(answered.iter().map(|(_, answer)| answer.location.as_deref().map(clean))),
                column(answered.iter().map(|(_, answer)| clean(&answer.body))),
            ];
            self.add(ANSWER_REQUESTS, parameters);
        }
    }

    pub(super) fn counts(&mut self, counts: &Counts, shard: i16) {
        let lanes: Vec<_> = counts.lanes.iter().filter(|(_, change)| **change != [0; 3]).collect();
        if !lanes.is_empty() {
            let by_state =
                |state: usize| column(lanes.iter().map(move |(_, change)| change[state]).collect::<Vec<_>>());
            let numbers = column(lanes.iter().map(|(lane, _)| **lane).collect::<Vec<_>>());
            self.add(ADD_TO_LANES, [value(shard), numbers, by_state(0), by_state(1), by_state(2)]);
        }
        let limiters: Vec<_> = counts.changed_limiters().collect();
        if !limiters.is_empty() {
            let numbers = column(limiters.iter().map(|(limiter, _)| *limiter).collect::<Vec<_>>());
            let of =
                |place: usize| column(limiters.iter().map(|(_, change)| change[place]).collect::<Vec<_>>());
            self.add(ADD_TO_LIMITERS, [numbers, of(0), of(1)]);
        }
        let lessened = counts.lessened_limiters();
        if !lessened.is_empty() {
            self.add(FORGET_LIMITERS, [column(lessened)]);
        }
        if counts.jobs != [0; 5] || counts.dead_letters != 0 {
            let [active, paused, completed, failed, cancelled] = counts.jobs.map(value);
            let dead_letters = value(counts.dead_letters);
            self.add(ADD_TO_JOBS, [value(shard), active, paused, completed, failed, cancelled, dead_letters]);
        }
    }
}

fn dead_letter_parameters(new_dead_letters: &[NewDeadLetter]) -> [Parameter<'_>; 9] {
    let ended = || new_dead_letters.iter().map(|letter| &letter.finished);
    let [jobs, numbers] = occurrences(ended().map(|finished| &finished.id.occurrence));
    [
        jobs,
        numbers,
        column(ended().map(|finished| finished.scheduled_time.as_micros())),
        column(new_dead_letters.iter().map(|letter| letter.died_at.as_micros())),
        column(ended().map(|finished| integer(finished.id.attempt))),
        column(ended().map(|finished| integer(finished.epoch.0))),
        column(ended().map(|finished| code(finished.origin))),
        column(new_dead_letters.iter().map(|letter| letter.noted)),
        column(ended().map(|finished| finished.error.as_deref().map(clean))),
    ]
}

fn dependency_parameters(dependencies: &[Dependency]) -> [Parameter<'_>; 2] {
    [
        ids(dependencies.iter().map(|dependency| &dependency.parent)),
        ids(dependencies.iter().map(|dependency| &dependency.child)),
    ]
}
