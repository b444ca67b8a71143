//! Dead letters, dependencies, notes, queues, requests and counters.

use super::{Writing, int_or_none, text_or_none};
use crate::codes::{Code, limits_column, placing_column};
use crate::counters::Counts;
use crate::fault::Fault;
use crate::mysql::lists::{Insertion, documents, jobs, list, numbers, occurrences};
use crate::mysql::rows::{counter, integer};
use crate::unit_of_work::{Dependency, NewDeadLetter, NoteChange, WriteSet};
use mysql_async::Value;
use punctual_core::ids::OccurrenceId;
use punctual_core::notes::Progress;
use punctual_core::ports::{NewRequest, RequestKey, StoredAnswer};
use punctual_core::time::Timestamp;

const INSERT_DEAD_LETTERS: Insertion = Insertion {
    head: "INSERT INTO dead_letters (job, occurrence, scheduled_time, died_at, attempts, epoch, origin, noted, error)",
    columns: 9,
    tail: "",
};
pub(crate) const DELETE_DEAD_LETTERS: &str = concat!(
    "DELETE dead_letters FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN dead_letters FORCE INDEX (dead_letters_occurrence) ON dead_letters.job = UNHEX(given.job) \
     AND dead_letters.occurrence = given.occurrence"
);
const FORGET_DEAD_LETTERS: &str = concat!(
    "DELETE dead_letters FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN dead_letters FORCE INDEX (dead_letters_occurrence) ON dead_letters.job = UNHEX(given.job)"
);

const INSERT_DEPENDENCIES: &str = concat!(
    "INSERT INTO dependencies (parent, child) SELECT UNHEX(given.parent), UNHEX(given.child) FROM ",
    list!(0 parent id, 1 child id)
);
pub(crate) const DELETE_DEPENDENCIES: &str = concat!(
    "DELETE dependencies FROM ",
    list!(0 parent id, 1 child id),
    " STRAIGHT_JOIN dependencies FORCE INDEX (PRIMARY) ON dependencies.parent = UNHEX(given.parent) \
     AND dependencies.child = UNHEX(given.child)"
);
pub(crate) const FORGET_PARENTS: &str = concat!(
    "DELETE dependencies FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN dependencies FORCE INDEX (dependencies_child) ON dependencies.child = UNHEX(given.job)"
);
const INSERT_RESOLUTIONS: &str = concat!(
    "INSERT INTO resolutions (parent, succeeded) SELECT UNHEX(given.parent), given.succeeded FROM ",
    list!(0 parent id, 1 succeeded int)
);
const DELETE_RESOLUTIONS: &str = concat!(
    "DELETE resolutions FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN resolutions FORCE INDEX (PRIMARY) ON resolutions.parent = UNHEX(given.job)"
);

/// The columns that a note without progress changes.
const COUNT_NOTES: Insertion = Insertion {
    head: "INSERT INTO notes (job, occurrence, attempt, epoch, number, noted_at)",
    columns: 6,
    tail: " ON DUPLICATE KEY UPDATE epoch = VALUES(epoch), number = VALUES(number), noted_at = VALUES(noted_at)",
};
const PUT_PROGRESS: Insertion = Insertion {
    head: "INSERT INTO notes (job, occurrence, attempt, epoch, number, noted_at, percent, message)",
    columns: 8,
    tail: " ON DUPLICATE KEY UPDATE attempt = VALUES(attempt), epoch = VALUES(epoch), number = VALUES(number), \
         noted_at = VALUES(noted_at), percent = VALUES(percent), message = VALUES(message)",
};
const PUT_CHECKPOINTS: Insertion = Insertion {
    head: "INSERT INTO checkpoints (job, occurrence, document)",
    columns: 3,
    tail: " ON DUPLICATE KEY UPDATE document = VALUES(document)",
};
const DELETE_CHECKPOINTS: &str = concat!(
    "DELETE checkpoints FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN checkpoints FORCE INDEX (PRIMARY) ON checkpoints.job = UNHEX(given.job) \
     AND checkpoints.occurrence = given.occurrence"
);
const DELETE_NOTES: &str = concat!(
    "DELETE notes FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN notes FORCE INDEX (PRIMARY) ON notes.job = UNHEX(given.job) \
     AND notes.occurrence = given.occurrence"
);
/// Except those of open occurrences.
pub(crate) const FORGET_NOTES: [&str; 2] = [
    concat!(
        "DELETE notes FROM ",
        list!(0 job id),
        " STRAIGHT_JOIN notes FORCE INDEX (PRIMARY) ON notes.job = UNHEX(given.job) \
         LEFT JOIN live FORCE INDEX (PRIMARY) ON live.job = notes.job AND live.occurrence = notes.occurrence \
         WHERE live.job IS NULL"
    ),
    concat!(
        "DELETE checkpoints FROM ",
        list!(0 job id),
        " STRAIGHT_JOIN checkpoints FORCE INDEX (PRIMARY) ON checkpoints.job = UNHEX(given.job) \
         LEFT JOIN live FORCE INDEX (PRIMARY) ON live.job = checkpoints.job \
         AND live.occurrence = checkpoints.occurrence WHERE live.job IS NULL"
    ),
];

const PUT_QUEUES: &str = concat!(
    "INSERT INTO queues (queue, paused_at, max_depth, limits, unplaced) \
     SELECT given.queue, given.paused_at, given.max_depth, given.limits, given.unplaced FROM ",
    list!(0 queue name, 1 paused_at int, 2 max_depth int, 3 limits text, 4 unplaced text),
    " ON DUPLICATE KEY UPDATE paused_at = given.paused_at, max_depth = given.max_depth, limits = given.limits, \
     unplaced = given.unplaced"
);
const DELETE_QUEUES: &str = concat!(
    "DELETE queues FROM ",
    list!(0 queue name),
    " STRAIGHT_JOIN queues FORCE INDEX (PRIMARY) ON queues.queue = given.queue"
);
const INSERT_REQUESTS: Insertion = Insertion {
    head: "INSERT INTO requests (token, `key`, fingerprint, seed, begun_at)",
    columns: 5,
    tail: "",
};
const ANSWER_REQUEST: &str =
    "UPDATE requests SET status = ?, location = ?, body = ? WHERE token = ? AND `key` = ?";

const ADD_TO_LANES: &str = concat!(
    "INSERT INTO lane_tallies (lane, shard, waiting, queued, running) \
     SELECT given.lane, given.shard, given.waiting, given.queued, given.running FROM ",
    list!(0 lane int, 1 shard int, 2 waiting int, 3 queued int, 4 running int),
    " ON DUPLICATE KEY UPDATE waiting = lane_tallies.waiting + given.waiting, \
     queued = lane_tallies.queued + given.queued, running = lane_tallies.running + given.running"
);
/// One row each and in order, so that transactions that add to several rows do not deadlock.
const ADD_TO_LIMITERS: &str = concat!(
    "INSERT INTO limiter_tallies (limiter, waiting, in_use) SELECT given.limiter, given.waiting, given.in_use FROM ",
    list!(0 limiter int, 1 waiting int, 2 in_use int),
    " ON DUPLICATE KEY UPDATE waiting = limiter_tallies.waiting + given.waiting, \
     in_use = limiter_tallies.in_use + given.in_use"
);
pub(crate) const FORGET_LIMITERS: &str = concat!(
    "DELETE limiter_tallies FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN limiter_tallies FORCE INDEX (PRIMARY) ON limiter_tallies.limiter = given.number \
     WHERE limiter_tallies.waiting = 0 AND limiter_tallies.in_use = 0"
);
const SET_LAST_STARTS: &str = concat!(
    "INSERT INTO limiter_paces (limiter, last_at) SELECT given.limiter, given.last_at FROM ",
    list!(0 limiter int, 1 last_at int),
    " ON DUPLICATE KEY UPDATE last_at = given.last_at"
);
const ADD_TO_JOBS: Insertion = Insertion {
    head: "INSERT INTO job_tally (shard, active, paused, completed, failed, cancelled, dead_letters)",
    columns: 7,
    tail: " ON DUPLICATE KEY UPDATE active = active + VALUES(active), paused = paused + VALUES(paused), \
         completed = completed + VALUES(completed), failed = failed + VALUES(failed), \
         cancelled = cancelled + VALUES(cancelled), dead_letters = dead_letters + VALUES(dead_letters)",
};

impl Writing {
    pub(super) fn dead_letters(&mut self, write_set: &WriteSet) {
        self.insert(INSERT_DEAD_LETTERS, write_set.new_dead_letters.iter().map(dead_letter_row).collect());
        self.add(DELETE_DEAD_LETTERS, occurrences(&write_set.deleted_dead_letters));
        self.add(FORGET_DEAD_LETTERS, jobs(&write_set.dead_forgotten));
    }

    pub(super) fn dependencies(&mut self, write_set: &WriteSet) {
        let lists = |dependencies: &[Dependency]| {
            documents(dependencies, |row, dependency| {
                row.id(dependency.parent).id(dependency.child);
            })
        };
        self.add(INSERT_DEPENDENCIES, lists(&write_set.dependencies_inserted));
        self.add(DELETE_DEPENDENCIES, lists(&write_set.dependencies_deleted));
        self.add(FORGET_PARENTS, jobs(&write_set.parents_forgotten));
        let resolutions = documents(&write_set.resolutions_inserted, |row, (parent, succeeded)| {
            row.id(*parent).int(*succeeded);
        });
        self.add(INSERT_RESOLUTIONS, resolutions);
        self.add(DELETE_RESOLUTIONS, jobs(&write_set.resolutions_deleted));
    }

    pub(super) fn notes(&mut self, write_set: &WriteSet) {
        let without = write_set.notes.iter().filter(|note| note.progress.is_none());
        self.insert(COUNT_NOTES, without.map(note_row).collect());
        let said = write_set.notes.iter().filter_map(|note| Some((note, note.progress.as_ref()?)));
        self.insert(PUT_PROGRESS, said.map(|(note, progress)| progress_row(note, progress)).collect());
        let put = write_set.checkpoints_put.iter().map(|(id, checkpoint)| {
            let [job, number] = key(*id);
            vec![job, number, checkpoint.as_json().into()]
        });
        self.insert(PUT_CHECKPOINTS, put.collect());
        self.add(DELETE_CHECKPOINTS, occurrences(&write_set.checkpoints_deleted));
        self.add(DELETE_NOTES, occurrences(&write_set.notes_forgotten));
        self.add(DELETE_CHECKPOINTS, occurrences(&write_set.notes_forgotten));
        for sql in FORGET_NOTES {
            self.add(sql, jobs(&write_set.notes_of_jobs_forgotten));
        }
    }

    pub(super) fn queues(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        let limits = write_set.queues_put.iter().map(|row| limits_column(&row.settings.limits));
        let limits = limits.collect::<Result<Vec<_>, _>>()?;
        let placing = write_set.queues_put.iter().map(|row| placing_column(row.placing.as_ref()));
        let placing = placing.collect::<Result<Vec<_>, _>>()?;
        let put = write_set.queues_put.iter().zip(limits.iter().zip(&placing));
        let put = documents(put, |row, (queue, (limits, placing))| {
            row.text(&queue.queue)
                .int_or_none(queue.paused_at.map(Timestamp::as_micros))
                .int_or_none(queue.settings.max_depth.map(counter))
                .text_or_none(limits.as_deref())
                .text_or_none(placing.as_deref());
        });
        self.add(PUT_QUEUES, put);
        let deleted = documents(&write_set.queues_deleted, |row, queue| {
            row.text(queue);
        });
        self.add(DELETE_QUEUES, deleted);
        let last = documents(&write_set.counts.last_starts, |row, (limiter, at)| {
            row.int(limiter.number()).int(at.as_micros());
        });
        self.add(SET_LAST_STARTS, last);
        Ok(())
    }

    pub(super) fn requests(&mut self, write_set: &WriteSet) {
        self.insert(INSERT_REQUESTS, write_set.requests_inserted.iter().map(request_row).collect());
        for (request, answer) in &write_set.requests_answered {
            self.add_once(ANSWER_REQUEST, answer_row(request, answer));
        }
    }

    pub(super) fn counts(&mut self, counts: &Counts, shard: i64) {
        let lanes = counts.lanes.iter().filter(|(_, change)| **change != [0; 3]);
        let lists = documents(lanes, |row, (lane, [waiting, queued, running])| {
            row.int(*lane).int(shard).int(*waiting).int(*queued).int(*running);
        });
        self.add(ADD_TO_LANES, lists);
        let limiters: Vec<_> = counts.changed_limiters().collect();
        let lists = documents(&limiters, |row, (limiter, [waiting, in_use])| {
            row.int(*limiter).int(*waiting).int(*in_use);
        });
        self.add(ADD_TO_LIMITERS, lists);
        self.add(FORGET_LIMITERS, numbers(counts.lessened_limiters()));
        if counts.jobs != [0; 5] || counts.dead_letters != 0 {
            let [active, paused, completed, failed, cancelled] = counts.jobs;
            let row = [shard, active, paused, completed, failed, cancelled, counts.dead_letters];
            self.insert(ADD_TO_JOBS, vec![row.map(Value::Int).to_vec()]);
        }
    }
}

/// The job and number of an occurrence.
fn key(id: OccurrenceId) -> [Value; 2] {
    [id.job.as_bytes().into(), id.number.into()]
}

fn dead_letter_row(NewDeadLetter { finished, noted, died_at }: &NewDeadLetter) -> Vec<Value> {
    let [job, number] = key(finished.id.occurrence);
    vec![
        job,
        number,
        Value::Int(finished.scheduled_time.as_micros()),
        Value::Int(died_at.as_micros()),
        Value::Int(integer(finished.id.attempt)),
        Value::Int(integer(finished.epoch.0)),
        Value::Int(finished.origin.code()),
        (*noted).into(),
        text_or_none(finished.error.as_deref()),
    ]
}

fn note_row(note: &NoteChange) -> Vec<Value> {
    let [job, number] = key(note.id);
    vec![
        job,
        number,
        Value::Int(integer(note.attempt)),
        Value::Int(integer(note.last.epoch.0)),
        Value::Int(counter(note.last.number)),
        Value::Int(note.noted_at.as_micros()),
    ]
}

fn progress_row(note: &NoteChange, progress: &Progress) -> Vec<Value> {
    let mut row = note_row(note);
    row.push(int_or_none(progress.percent.map(|percent| i64::from(percent.hundredths()))));
    row.push(text_or_none(progress.message.as_deref()));
    row
}

fn request_row((new, begun_at): &(NewRequest, Timestamp)) -> Vec<Value> {
    vec![
        new.request.token.as_str().into(),
        new.request.key.as_str().into(),
        new.fingerprint.as_slice().into(),
        Value::Int(new.seed.cast_signed()),
        Value::Int(begun_at.as_micros()),
    ]
}

fn answer_row(request: &RequestKey, answer: &StoredAnswer) -> Vec<Value> {
    vec![
        answer.status.into(),
        text_or_none(answer.location.as_deref()),
        answer.body.as_str().into(),
        request.token.as_str().into(),
        request.key.as_str().into(),
    ]
}
