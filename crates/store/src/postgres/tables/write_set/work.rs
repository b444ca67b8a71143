//! Sessions, open occurrences and finished attempts.

use super::Writing;
use super::jobs::ids;
use crate::codes::{StateColumns, limiter_column, live_ties};
use crate::fault::Fault;
use crate::postgres::rows::{clean, code, counter, integer};
use crate::postgres::tables::read_set::occurrences;
use crate::postgres::wire::{Parameter, column};
use crate::rows::LiveRow;
use crate::unit_of_work::{EndedRow, Leased, NewSession, SessionChange, WriteSet};
use punctual_core::time::{Timestamp, duration_micros};

const INSERT_SESSIONS: &str = "INSERT INTO sessions (id, worker, lease_us, slots, opened_at, beaten_at, embedded, job_types, queues, \
     version, host, beat, turn, mode, attention, lost) \
     SELECT id, worker, lease_us, slots, opened_at, opened_at, embedded, job_types, queues, version, host, 0, 0, 0, \
     false, false \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[], $7::text[], \
     $8::text[], $9::text[], $10::text[]) \
     AS new(id, worker, lease_us, slots, opened_at, embedded, job_types, queues, version, host)";
const UPDATE_SESSIONS: &str = "UPDATE sessions SET turn = new.turn, beat = new.beat, beaten_at = new.beaten_at, mode = new.mode, \
     attention = new.attention, lost = new.lost \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::boolean[], $7::boolean[]) \
     AS new(id, turn, beat, beaten_at, mode, attention, lost) WHERE sessions.id = new.id";
/// Locked in order, because they were not loaded.
const ASK_FOR_ATTENTION: &str = "WITH locked AS (SELECT id FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE) \
     UPDATE sessions SET attention = true FROM locked WHERE sessions.id = locked.id AND NOT sessions.attention";
const DELETE_SESSIONS: &str = "DELETE FROM sessions WHERE id = ANY($1)";
const DELETE_CONDITIONS: &str = "DELETE FROM session_conditions WHERE session = ANY($1)";

/// Arrays of all columns of live, in the order of [`live_parameters`].
macro_rules! live_arrays {
    () => {
        "unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[], \
         $8::integer[], $9::integer[], $10::integer[], $11::smallint[], $12::smallint[], $13::smallint[], \
         $14::smallint[], $15::smallint[], $16::smallint[], $17::boolean[], $18::bigint[], $19::bigint[], $20::bigint[], \
         $21::bigint[], $22::bigint[], $23::bigint[]) \
         AS new(job, occurrence, lane, rank, available_at, scheduled_time, job_version, attempt, charged, epoch, \
         segment, state, gates, priority, origin, ties, cancel_requested, session, claimed_at, expires_at, look_at, limiter, \
         line)"
    };
}
pub(crate) const INSERT_LIVE: &str = concat!(
    "INSERT INTO live (job, occurrence, lane, rank, available_at, scheduled_time, job_version, attempt, charged, epoch, \
     segment, state, gates, priority, origin, ties, cancel_requested, session, claimed_at, expires_at, look_at, limiter, line) \
     SELECT * FROM ",
    live_arrays!()
);
pub(crate) const LEASE: &str = "UPDATE live SET state = 2, session = new.session, claimed_at = new.claimed_at, epoch = new.epoch, \
     job_version = new.job_version, look_at = NULL \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[]) \
     AS new(job, occurrence, session, claimed_at, epoch, job_version) \
     WHERE live.job = new.job AND live.occurrence = new.occurrence";
pub(crate) const UPDATE_LIVE: &str = concat!(
    "UPDATE live SET lane = new.lane, rank = new.rank, available_at = new.available_at, \
     scheduled_time = new.scheduled_time, job_version = new.job_version, attempt = new.attempt, \
     charged = new.charged, epoch = new.epoch, state = new.state, gates = new.gates, priority = new.priority, \
     origin = new.origin, ties = new.ties, cancel_requested = new.cancel_requested, session = new.session, \
     claimed_at = new.claimed_at, expires_at = new.expires_at, look_at = new.look_at, limiter = new.limiter, \
     line = new.line FROM ",
    live_arrays!(),
    " WHERE live.job = new.job AND live.occurrence = new.occurrence"
);
pub(crate) const DELETE_LIVE: &str = "DELETE FROM live USING unnest($1::uuid[], $2::bigint[]) AS old(job, occurrence) \
     WHERE live.job = old.job AND live.occurrence = old.occurrence";

/// Positions grow with the number of the transaction, and within it in the order of the rows.
pub(crate) const INSERT_HISTORY: &str = "INSERT INTO history (place, job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, \
     job_version, status, origin, reason, started_at, session, worker, error, result) \
     SELECT (SELECT (pg_current_xact_id()::text::bigint + place_base) << 20 FROM punctual) | new.index, new.job, new.occurrence, \
     new.completed_at, new.scheduled_time, new.available_at, new.attempt, new.epoch, new.job_version, new.status, \
     new.origin, new.reason, new.started_at, new.session, new.worker, new.error, new.result \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::integer[], \
     $7::integer[], $8::integer[], $9::smallint[], $10::smallint[], $11::smallint[], $12::bigint[], $13::bigint[], \
     $14::bigint[], $15::text[], $16::text[]) WITH ORDINALITY \
     AS new(job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, job_version, status, origin, \
     reason, started_at, session, worker, error, result, index)";
const LENGTHEN_SKIPPED: &str = "UPDATE skipped SET last = new.last, count = skipped.count + new.count \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new(number, last, count) WHERE skipped.number = new.number";
const INSERT_SKIPPED: &str = "INSERT INTO skipped (job, first, last, count, reason) \
     SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[])";

impl<'a> Writing<'a> {
    pub(super) fn sessions(&mut self, write_set: &'a WriteSet) -> Result<(), Fault> {
        if !write_set.sessions_inserted.is_empty() {
            self.add(INSERT_SESSIONS, new_sessions(&write_set.sessions_inserted)?);
        }
        if !write_set.sessions_updated.is_empty() {
            self.add(UPDATE_SESSIONS, session_changes(&write_set.sessions_updated));
        }
        if !write_set.attention.is_empty() {
            self.add(ASK_FOR_ATTENTION, [column(write_set.attention.iter().map(|session| session.0))]);
        }
        if !write_set.sessions_deleted.is_empty() {
            let ids = || [column(write_set.sessions_deleted.iter().map(|session| session.0))];
            self.add(DELETE_SESSIONS, ids());
            self.add(DELETE_CONDITIONS, ids());
        }
        Ok(())
    }

    pub(super) fn live(&mut self, write_set: &'a WriteSet) {
        if !write_set.live_inserted.is_empty() {
            self.add(INSERT_LIVE, live_parameters(&write_set.live_inserted));
        }
        if !write_set.leased.is_empty() {
            self.add(LEASE, lease_parameters(&write_set.leased));
        }
        if !write_set.live_updated.is_empty() {
            self.add(UPDATE_LIVE, live_parameters(&write_set.live_updated));
        }
        if !write_set.live_deleted.is_empty() {
            self.add(DELETE_LIVE, occurrences(&write_set.live_deleted));
        }
    }

    pub(super) fn history(&mut self, write_set: &'a WriteSet) {
        if !write_set.history.is_empty() {
            self.add(INSERT_HISTORY, history_parameters(&write_set.history));
        }
    }

    pub(super) fn skipped(&mut self, write_set: &'a WriteSet) {
        let lengthened = &write_set.skips_lengthened;
        if !lengthened.is_empty() {
            let parameters = [
                column(lengthened.iter().map(|(number, _)| *number)),
                column(lengthened.iter().map(|(_, range)| range.last.as_micros())),
                column(lengthened.iter().map(|(_, range)| counter(range.count))),
            ];
            self.add(LENGTHEN_SKIPPED, parameters);
        }
        let inserted = &write_set.skips_inserted;
        if !inserted.is_empty() {
            let parameters = [
                ids(inserted.iter().map(|(job, _)| job)),
                column(inserted.iter().map(|(_, range)| range.first.as_micros())),
                column(inserted.iter().map(|(_, range)| range.last.as_micros())),
                column(inserted.iter().map(|(_, range)| counter(range.count))),
                column(inserted.iter().map(|(_, range)| code(range.reason))),
            ];
            self.add(INSERT_SKIPPED, parameters);
        }
    }
}

fn new_sessions(new: &[NewSession]) -> Result<[Parameter<'_>; 10], Fault> {
    let openings = || new.iter().map(|session| &session.opening);
    let mut job_types = Vec::with_capacity(new.len());
    let mut queues = Vec::with_capacity(new.len());
    for opening in openings() {
        job_types.push(serde_json::to_string(&opening.job_types)?);
        queues.push(match opening.about.queues.as_slice() {
            [] => None,
            queues => Some(serde_json::to_string(queues)?),
        });
    }
    Ok([
        column(new.iter().map(|session| session.id.0)),
        column(new.iter().map(|session| session.worker)),
        column(openings().map(|opening| duration_micros(opening.lease))),
        column(openings().map(|opening| i64::from(opening.slots))),
        column(new.iter().map(|session| session.opened_at.as_micros())),
        column(openings().map(|opening| opening.embedded)),
        column(job_types),
        column(queues),
        column(openings().map(|opening| opening.about.version.as_deref().map(clean))),
        column(openings().map(|opening| opening.about.host.as_deref().map(clean))),
    ])
}

fn session_changes(changes: &[SessionChange]) -> [Parameter<'_>; 7] {
    [
        column(changes.iter().map(|change| change.id.0)),
        column(changes.iter().map(|change| counter(change.turn))),
        column(changes.iter().map(|change| counter(change.beat))),
        column(changes.iter().map(|change| change.beaten_at.as_micros())),
        column(changes.iter().map(|change| code(change.mode))),
        column(changes.iter().map(|change| change.attention)),
        column(changes.iter().map(|change| change.lost)),
    ]
}

fn live_parameters(rows: &[LiveRow]) -> [Parameter<'_>; 23] {
    let live = || rows.iter().map(|row| &row.live);
    let states = || live().map(|live| StateColumns::of(live.state));
    [
        ids(live().map(|live| &live.id.job)),
        column(live().map(|live| i64::from(live.id.number))),
        column(rows.iter().map(|row| row.lane)),
        column(live().map(|live| live.rank)),
        column(live().map(|live| live.available_at.as_micros())),
        column(live().map(|live| live.scheduled_time.as_micros())),
        column(live().map(|live| integer(live.job_version))),
        column(live().map(|live| integer(live.attempt))),
        column(live().map(|live| integer(live.charged))),
        column(live().map(|live| integer(live.epoch.0))),
        column(live().map(|live| i16::from(live.id.job.segment().index()))),
        column(states().map(|columns| columns.state as i16)),
        column(states().map(|columns| i16::from(columns.gates))),
        column(live().map(|live| i16::from(live.priority.get()))),
        column(live().map(|live| code(live.origin))),
        column(rows.iter().map(|row| i16::from(live_ties(row)))),
        column(states().map(|columns| columns.cancel_requested)),
        column(states().map(|columns| columns.session)),
        column(states().map(|columns| columns.claimed_at)),
        column(live().map(|live| live.expires_at.map(Timestamp::as_micros))),
        column(live().map(|live| live.look_at().map(Timestamp::as_micros))),
        column(live().map(|live| limiter_column(live.limiter))),
        column(live().map(|live| limiter_column(live.line))),
    ]
}

fn lease_parameters(leased: &[Leased]) -> [Parameter<'_>; 6] {
    [
        ids(leased.iter().map(|leased| &leased.id.job)),
        column(leased.iter().map(|leased| i64::from(leased.id.number))),
        column(leased.iter().map(|leased| leased.session.0)),
        column(leased.iter().map(|leased| leased.claimed_at.as_micros())),
        column(leased.iter().map(|leased| integer(leased.epoch.0))),
        column(leased.iter().map(|leased| integer(leased.job_version))),
    ]
}

fn history_parameters(rows: &[EndedRow]) -> [Parameter<'_>; 16] {
    let ended = || rows.iter().map(|row| &row.finished);
    [
        ids(ended().map(|finished| &finished.id.occurrence.job)),
        column(ended().map(|finished| i64::from(finished.id.occurrence.number))),
        column(ended().map(|finished| finished.completed_at.as_micros())),
        column(ended().map(|finished| finished.scheduled_time.as_micros())),
        column(ended().map(|finished| finished.available_at.as_micros())),
        column(ended().map(|finished| integer(finished.id.attempt))),
        column(ended().map(|finished| integer(finished.epoch.0))),
        column(ended().map(|finished| integer(finished.job_version))),
        column(ended().map(|finished| code(finished.status))),
        column(ended().map(|finished| code(finished.origin))),
        column(ended().map(|finished| finished.reason.map(code))),
        column(ended().map(|finished| finished.started_at.map(Timestamp::as_micros))),
        column(ended().map(|finished| finished.session.map(|session| session.0))),
        column(rows.iter().map(|row| row.worker)),
        column(ended().map(|finished| finished.error.as_deref().map(clean))),
        column(ended().map(|finished| finished.result.as_deref().map(clean))),
    ]
}
