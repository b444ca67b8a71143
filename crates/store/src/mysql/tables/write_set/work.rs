//! Sessions, open occurrences and finished attempts.

use super::{Writing, int_or_none, text_or_none};
use crate::codes::{Code, StateColumns, limiter_column, live_ties, state};
use crate::fault::Fault;
use crate::mysql::lists::{Insertion, documents, list, numbers, occurrences};
use crate::mysql::rows::{counter, integer};
use crate::rows::LiveRow;
use crate::unit_of_work::{EndedRow, Leased, NewSession, WriteSet};
use mysql_async::Value;
use punctual_core::ids::OccurrenceId;
use punctual_core::time::{Timestamp, duration_micros};
use std::collections::BTreeMap;

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

macro_rules! insert_live {
    () => {
        "INSERT INTO live (job, occurrence, lane, claim_rank, available_at, scheduled_time, job_version, attempt, charged, \
         epoch, segment, state, gates, priority, origin, ties, cancel_requested, queued_lane, session, claimed_at, \
         expires_at, look_at, limiter, line)"
    };
}
/// As `VALUES`: the server takes several times as long to read a list of this many columns.
const INSERT_LIVE: Insertion = Insertion { head: insert_live!(), columns: 24, tail: "" };
/// The rows exist and are locked: only their contents are rewritten.
const UPDATE_LIVE: Insertion = Insertion {
    head: insert_live!(),
    columns: 24,
    tail: " ON DUPLICATE KEY UPDATE lane = VALUES(lane), claim_rank = VALUES(claim_rank), \
         available_at = VALUES(available_at), scheduled_time = VALUES(scheduled_time), \
         job_version = VALUES(job_version), attempt = VALUES(attempt), charged = VALUES(charged), \
         epoch = VALUES(epoch), state = VALUES(state), gates = VALUES(gates), priority = VALUES(priority), \
         origin = VALUES(origin), ties = VALUES(ties), cancel_requested = VALUES(cancel_requested), \
         queued_lane = VALUES(queued_lane), session = VALUES(session), claimed_at = VALUES(claimed_at), \
         expires_at = VALUES(expires_at), look_at = VALUES(look_at), limiter = VALUES(limiter), \
         line = VALUES(line)",
};
pub(crate) const LEASE: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 occurrence int, 2 session int, 3 claimed_at int, 4 epoch int, 5 job_version int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence \
     SET live.state = 2, live.queued_lane = NULL, live.session = given.session, live.claimed_at = given.claimed_at, \
     live.epoch = given.epoch, live.job_version = given.job_version, live.look_at = NULL"
);
/// The same for many leases that differ only in their keys: the fewer columns a list has, the faster it is
/// read.
pub(crate) const LEASE_ALIKE: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence \
     SET live.state = 2, live.queued_lane = NULL, live.session = ?, live.claimed_at = ?, live.epoch = ?, \
     live.job_version = ?, live.look_at = NULL"
);
/// Kinds of leases that are written with one statement each; if there are more, all go into one list.
const LEASES_ALIKE_MAX: usize = 4;
pub(crate) const DELETE_LIVE: &str = concat!(
    "DELETE live FROM ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence"
);

/// As `VALUES`, so that the server knows how many positions to assign. Otherwise it would leave gaps, and
/// followers of history wait after each gap.
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
    pub(super) fn sessions(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        let new: Vec<_> = write_set.sessions_inserted.iter().map(session_row).collect::<Result<_, _>>()?;
        self.insert(INSERT_SESSIONS, new);
        let changed = documents(&write_set.sessions_updated, |row, change| {
            row.int(change.id.0)
                .int(counter(change.turn))
                .int(counter(change.beat))
                .int(change.beaten_at.as_micros())
                .int(change.mode.code())
                .int(change.attention)
                .int(change.lost);
        });
        self.add(UPDATE_SESSIONS, changed);
        self.add(ASK_FOR_ATTENTION, numbers(write_set.attention.iter().map(|session| session.0)));
        let deleted = || numbers(write_set.sessions_deleted.iter().map(|session| session.0));
        self.add(DELETE_SESSIONS, deleted());
        self.add(DELETE_CONDITIONS, deleted());
        Ok(())
    }

    pub(super) fn live(&mut self, write_set: &WriteSet) {
        self.insert(INSERT_LIVE, write_set.live_inserted.iter().map(live_row).collect());
        self.leases(&write_set.leased);
        self.insert(UPDATE_LIVE, write_set.live_updated.iter().map(live_row).collect());
        self.add(DELETE_LIVE, occurrences(&write_set.live_deleted));
    }

    fn leases(&mut self, leases: &[Leased]) {
        let mut alike: BTreeMap<_, Vec<OccurrenceId>> = BTreeMap::new();
        for Leased { id, session, claimed_at, epoch, job_version } in leases {
            alike.entry((*session, *claimed_at, *epoch, *job_version)).or_default().push(*id);
        }
        if alike.len() > LEASES_ALIKE_MAX {
            let lists = documents(leases, |row, leased| {
                row.occurrence(leased.id)
                    .int(leased.session.0)
                    .int(leased.claimed_at.as_micros())
                    .int(integer(leased.epoch.0))
                    .int(integer(leased.job_version));
            });
            return self.add(LEASE, lists);
        }
        for ((session, claimed_at, epoch, job_version), ids) in alike {
            let shared = [session.0, claimed_at.as_micros(), integer(epoch.0), integer(job_version)];
            for list in occurrences(&ids) {
                let values = [list].into_iter().chain(shared.map(Value::Int)).collect();
                self.add_once(LEASE_ALIKE, values);
            }
        }
    }

    pub(super) fn history(&mut self, write_set: &WriteSet) {
        self.insert(INSERT_HISTORY, write_set.history.iter().map(history_row).collect());
    }

    pub(super) fn skipped(&mut self, write_set: &WriteSet) {
        let lengthened = documents(&write_set.skips_lengthened, |row, (number, range)| {
            row.int(*number).int(range.last.as_micros()).int(counter(range.count));
        });
        self.add(LENGTHEN_SKIPPED, lengthened);
        let inserted = documents(&write_set.skips_inserted, |row, (job, range)| {
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

/// All columns of live.
fn live_row(row: &LiveRow) -> Vec<Value> {
    let live = &row.live;
    let columns = StateColumns::of(live.state);
    vec![
        live.id.job.as_bytes().into(),
        live.id.number.into(),
        Value::Int(row.lane),
        Value::Int(live.rank),
        Value::Int(live.available_at.as_micros()),
        Value::Int(live.scheduled_time.as_micros()),
        Value::Int(integer(live.job_version)),
        Value::Int(integer(live.attempt)),
        Value::Int(integer(live.charged)),
        Value::Int(integer(live.epoch.0)),
        live.id.job.segment().index().into(),
        columns.state.into(),
        columns.gates.into(),
        live.priority.get().into(),
        Value::Int(live.origin.code()),
        live_ties(row).into(),
        columns.cancel_requested.into(),
        int_or_none((columns.state == state::QUEUED).then_some(row.lane).or(limiter_column(live.line))),
        int_or_none(columns.session),
        int_or_none(columns.claimed_at),
        int_or_none(live.expires_at.map(Timestamp::as_micros)),
        int_or_none(live.look_at().map(Timestamp::as_micros)),
        int_or_none(limiter_column(live.limiter)),
        int_or_none(limiter_column(live.line)),
    ]
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
