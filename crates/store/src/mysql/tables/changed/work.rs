//! Sessions, open occurrences and what has ended.

use super::{Writing, int_or_none, text_or_none};
use crate::codes::{Code, StateColumns, limiter_column, live_ties, state};
use crate::draft::{Changes, EndedRow, NewSession};
use crate::fault::Fault;
use crate::mysql::lists::{Insertion, documents, list, numbers, occurrences};
use crate::mysql::rows::{counter, integer};
use crate::rows::LiveRow;
use mysql_async::Value;
use punctual_core::time::{Timestamp, duration_micros};

const INSERT_SESSIONS: Insertion = Insertion {
    head: "INSERT INTO sessions (id, worker, lease_us, slots, opened_at, beaten_at, embedded, job_types, queues, \
         version, host, beat, turn, mode, attention, lost)",
    columns: 16,
    tail: "",
};
pub(crate) const UPDATE_SESSIONS: &str = concat!(
    "UPDATE ",
    list!(0 number int, 1 turn int, 2 beat int, 3 beaten_at int, 4 mode int, 5 attention int, 6 lost int),
    " STRAIGHT_JOIN sessions FORCE INDEX (PRIMARY) ON sessions.id = given.number \
     SET sessions.turn = given.turn, sessions.beat = given.beat, sessions.beaten_at = given.beaten_at, \
     sessions.mode = given.mode, sessions.attention = given.attention, sessions.lost = given.lost"
);
const ASK_FOR_ATTENTION: &str = concat!(
    "UPDATE ",
    list!(0 number int),
    " STRAIGHT_JOIN sessions FORCE INDEX (PRIMARY) ON sessions.id = given.number SET sessions.attention = 1"
);
const DELETE_SESSIONS: &str = concat!(
    "DELETE sessions FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN sessions FORCE INDEX (PRIMARY) ON sessions.id = given.number"
);
const DELETE_CONDITIONS: &str = concat!(
    "DELETE session_conditions FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN session_conditions FORCE INDEX (PRIMARY) ON session_conditions.session = given.number"
);

/// All columns of live, by the order of [`live_lists`].
macro_rules! live_list {
    () => {
        list!(
            0 job id, 1 occurrence int, 2 lane int, 3 claim_rank int, 4 available_at int, 5 scheduled_time int,
            6 job_version int, 7 attempt int, 8 charged int, 9 epoch int, 10 segment int, 11 state int, 12 gates int,
            13 priority int, 14 origin int, 15 ties int, 16 cancel_requested int, 17 queued_lane int, 18 session int,
            19 claimed_at int, 20 expires_at int, 21 look_at int, 22 limiter int, 23 line int
        )
    };
}
const INSERT_LIVE: &str = concat!(
    "INSERT INTO live (job, occurrence, lane, claim_rank, available_at, scheduled_time, job_version, attempt, charged, \
     epoch, segment, state, gates, priority, origin, ties, cancel_requested, queued_lane, session, claimed_at, \
     expires_at, look_at, limiter, line) \
     SELECT UNHEX(given.job), given.occurrence, given.lane, given.claim_rank, given.available_at, \
     given.scheduled_time, given.job_version, given.attempt, given.charged, given.epoch, given.segment, given.state, \
     given.gates, given.priority, given.origin, given.ties, given.cancel_requested, given.queued_lane, \
     given.session, given.claimed_at, given.expires_at, given.look_at, given.limiter, given.line FROM ",
    live_list!()
);
pub(crate) const LEASE: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 occurrence int, 2 session int, 3 claimed_at int, 4 epoch int, 5 job_version int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence \
     SET live.state = 2, live.queued_lane = NULL, live.session = given.session, live.claimed_at = given.claimed_at, \
     live.epoch = given.epoch, live.job_version = given.job_version, live.look_at = NULL"
);
pub(crate) const UPDATE_LIVE: &str = concat!(
    "UPDATE ",
    live_list!(),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence \
     SET live.lane = given.lane, live.claim_rank = given.claim_rank, live.available_at = given.available_at, \
     live.scheduled_time = given.scheduled_time, live.job_version = given.job_version, \
     live.attempt = given.attempt, live.charged = given.charged, live.epoch = given.epoch, \
     live.state = given.state, live.gates = given.gates, live.priority = given.priority, \
     live.origin = given.origin, live.ties = given.ties, live.cancel_requested = given.cancel_requested, \
     live.queued_lane = given.queued_lane, live.session = given.session, live.claimed_at = given.claimed_at, \
     live.expires_at = given.expires_at, live.look_at = given.look_at, live.limiter = given.limiter, \
     live.line = given.line"
);
pub(crate) const DELETE_LIVE: &str = concat!(
    "DELETE live FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence"
);

/// As `VALUES`, so that the server knows how many places it gives: it would leave gaps otherwise, and whoever follows
/// history waits behind each.
const INSERT_HISTORY: Insertion = Insertion {
    head: "INSERT INTO history (job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, \
         job_version, status, origin, reason, started_at, session, worker, error, result)",
    columns: 16,
    tail: "",
};
pub(crate) const LENGTHEN_SKIPPED: &str = concat!(
    "UPDATE ",
    list!(0 number int, 1 last int, 2 count int),
    " STRAIGHT_JOIN skipped FORCE INDEX (PRIMARY) ON skipped.number = given.number \
     SET skipped.last = given.last, skipped.count = skipped.count + given.count"
);
const INSERT_SKIPPED: &str = concat!(
    "INSERT INTO skipped (job, first, last, count, reason) \
     SELECT UNHEX(given.job), given.first, given.last, given.count, given.reason FROM ",
    list!(0 job id, 1 first int, 2 last int, 3 count int, 4 reason int)
);

impl Writing {
    pub(super) fn sessions(&mut self, changes: &Changes) -> Result<(), Fault> {
        let new: Vec<_> = changes.sessions_inserted.iter().map(session_row).collect::<Result<_, _>>()?;
        self.insert(INSERT_SESSIONS, new);
        let changed = documents(&changes.sessions_updated, |row, change| {
            row.int(change.id.0)
                .int(counter(change.turn))
                .int(counter(change.beat))
                .int(change.beaten_at.as_micros())
                .int(change.mode.code())
                .int(change.attention)
                .int(change.lost);
        });
        self.add(UPDATE_SESSIONS, changed);
        self.add(ASK_FOR_ATTENTION, numbers(changes.attention.iter().map(|session| session.0)));
        let deleted = || numbers(changes.sessions_deleted.iter().map(|session| session.0));
        self.add(DELETE_SESSIONS, deleted());
        self.add(DELETE_CONDITIONS, deleted());
        Ok(())
    }

    pub(super) fn live(&mut self, changes: &Changes) {
        self.add(INSERT_LIVE, live_lists(&changes.live_inserted));
        let leased = documents(&changes.leased, |row, leased| {
            row.occurrence(leased.id)
                .int(leased.session.0)
                .int(leased.claimed_at.as_micros())
                .int(integer(leased.epoch.0))
                .int(integer(leased.job_version));
        });
        self.add(LEASE, leased);
        self.add(UPDATE_LIVE, live_lists(&changes.live_updated));
        self.add(DELETE_LIVE, occurrences(&changes.live_deleted));
    }

    pub(super) fn history(&mut self, changes: &Changes) {
        self.insert(INSERT_HISTORY, changes.history.iter().map(history_row).collect());
    }

    pub(super) fn skipped(&mut self, changes: &Changes) {
        let lengthened = documents(&changes.skips_lengthened, |row, (number, range)| {
            row.int(*number).int(range.last.as_micros()).int(counter(range.count));
        });
        self.add(LENGTHEN_SKIPPED, lengthened);
        let inserted = documents(&changes.skips_inserted, |row, (job, range)| {
            row.id(*job)
                .int(range.first.as_micros())
                .int(range.last.as_micros())
                .int(counter(range.count))
                .int(range.reason.code());
        });
        self.add(INSERT_SKIPPED, inserted);
    }
}

fn session_row(new: &NewSession) -> Result<Vec<Value>, Fault> {
    let opening = &new.opening;
    let queues = match opening.about.queues.as_slice() {
        [] => None,
        queues => Some(serde_json::to_string(queues)?),
    };
    let opened_at = Value::Int(new.opened_at.as_micros());
    let none = Value::Int(0);
    Ok(vec![
        Value::Int(new.id.0),
        Value::Int(new.worker),
        Value::Int(duration_micros(opening.lease)),
        opening.slots.into(),
        opened_at.clone(),
        opened_at,
        opening.embedded.into(),
        serde_json::to_string(&opening.job_types)?.into(),
        text_or_none(queues.as_deref()),
        text_or_none(opening.about.version.as_deref()),
        text_or_none(opening.about.host.as_deref()),
        none.clone(),
        none.clone(),
        none.clone(),
        none.clone(),
        none,
    ])
}

fn live_lists(rows: &[LiveRow]) -> Vec<Value> {
    documents(rows, |list, row| {
        let live = &row.live;
        let columns = StateColumns::of(live.state);
        list.occurrence(live.id)
            .int(row.lane)
            .int(live.rank)
            .int(live.available_at.as_micros())
            .int(live.scheduled_time.as_micros())
            .int(integer(live.job_version))
            .int(integer(live.attempt))
            .int(integer(live.charged))
            .int(integer(live.epoch.0))
            .int(live.id.job.segment().index())
            .int(columns.state)
            .int(columns.gates)
            .int(live.priority.get())
            .int(live.origin.code())
            .int(live_ties(row))
            .int(columns.cancel_requested)
            .int_or_none((columns.state == state::QUEUED).then_some(row.lane).or(limiter_column(live.line)))
            .int_or_none(columns.session)
            .int_or_none(columns.claimed_at)
            .int_or_none(live.expires_at.map(Timestamp::as_micros))
            .int_or_none(live.look_at().map(Timestamp::as_micros))
            .int_or_none(limiter_column(live.limiter))
            .int_or_none(limiter_column(live.line));
    })
}

fn history_row(EndedRow { finished, worker }: &EndedRow) -> Vec<Value> {
    let occurrence = finished.id.occurrence;
    vec![
        occurrence.job.as_bytes().into(),
        occurrence.number.into(),
        Value::Int(finished.completed_at.as_micros()),
        Value::Int(finished.scheduled_time.as_micros()),
        Value::Int(finished.available_at.as_micros()),
        Value::Int(integer(finished.id.attempt)),
        Value::Int(integer(finished.epoch.0)),
        Value::Int(integer(finished.job_version)),
        Value::Int(finished.status.code()),
        Value::Int(finished.origin.code()),
        int_or_none(finished.reason.map(Code::code)),
        int_or_none(finished.started_at.map(Timestamp::as_micros)),
        int_or_none(finished.session.map(|session| session.0)),
        int_or_none(*worker),
        text_or_none(finished.error.as_deref()),
        text_or_none(finished.result.as_deref()),
    ]
}
