//! Statements that change rows: one for each kind of change, with an array for each column.

use crate::fault::Fault;
use crate::layout::{HISTORY, Layout, each_limiter_count};
use crate::postgres::sql::{arrays, each, names};
use crate::postgres::tables::read_set::columns;
use crate::postgres::wire::StatementCall;
use crate::server::changes::{ChangeShape, Changed, Conflict, TableChange, changes, columns_to_set};
use crate::unit_of_work::WriteSet;
use std::sync::LazyLock;

/// Locked in order, because they were not loaded.
const ASK_FOR_ATTENTION: &str = "WITH locked AS (SELECT id FROM sessions WHERE id = ANY($1) ORDER BY id FOR UPDATE) \
     UPDATE sessions SET attention = true FROM locked WHERE sessions.id = locked.id AND NOT sessions.attention";
const UPDATE_NUMBERED: &str = "UPDATE jobs SET numbered = new.numbered, \
     fired = CASE WHEN new.over_at IS NOT NULL THEN new.fired ELSE jobs.fired END, \
     updated_at = CASE WHEN new.over_at IS NOT NULL THEN greatest(coalesce(jobs.updated_at, jobs.created_at), new.over_at) \
       ELSE jobs.updated_at END \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[]) AS new(id, numbered, fired, over_at) \
     WHERE jobs.id = new.id";
const LEASE: &str = "UPDATE live SET state = 2, session = new.session, claimed_at = new.claimed_at, epoch = new.epoch, \
     job_version = new.job_version, look_at = NULL \
     FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::integer[]) \
     AS new(job, occurrence, session, claimed_at, epoch, job_version) \
     WHERE live.job = new.job AND live.occurrence = new.occurrence";
const LENGTHEN_SKIPPED: &str = "UPDATE skipped SET last = new.last, count = skipped.count + new.count \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new(number, last, count) WHERE skipped.number = new.number";
const FORGET_NOTES: &str = "DELETE FROM notes WHERE job = ANY($1) AND NOT EXISTS \
     (SELECT 1 FROM live WHERE live.job = notes.job AND live.occurrence = notes.occurrence)";
const FORGET_CHECKPOINTS: &str = "DELETE FROM checkpoints WHERE job = ANY($1) AND NOT EXISTS \
     (SELECT 1 FROM live WHERE live.job = checkpoints.job AND live.occurrence = checkpoints.occurrence)";
const ANSWER_REQUESTS: &str = "UPDATE requests SET status = new.status, location = new.location, body = new.body \
     FROM unnest($1::text[], $2::text[], $3::integer[], $4::text[], $5::text[]) AS new(token, key, status, location, body) \
     WHERE requests.token = new.token AND requests.key = new.key";
const FORGET_LIMITERS: &str = concat!(
    "DELETE FROM limiter_tallies WHERE limiter = ANY($1) AND ",
    each_limiter_count!(" AND ", "", " = 0")
);

/// By the numbers of the changes.
static STATEMENTS: LazyLock<Vec<String>> =
    LazyLock::new(|| TableChange::ALL.iter().map(|change| statement_of(*change)).collect());

/// The statement of a change.
pub(crate) fn statement(change: TableChange) -> &'static str {
    &STATEMENTS[change as usize]
}

fn statement_of(change: TableChange) -> String {
    match change.shape() {
        ChangeShape::Insert { table, columns, conflict } => {
            let (names, on_conflict) = (names(columns), on_conflict(&table, conflict));
            format!("INSERT INTO {} ({names}) SELECT * FROM {}{on_conflict}", table.name, arrays(columns))
        }
        ChangeShape::Update { table, columns, key } => format!(
            "UPDATE {table} SET {} FROM {} AS new({}) WHERE {}",
            each(columns_to_set(&columns, key), ", ", |name| format!("\"{name}\" = new.\"{name}\"")),
            arrays(&columns),
            names(&columns),
            each(&columns[..key], " AND ", |name| format!("{}.\"{name}\" = new.\"{name}\"", table.name)),
            table = table.name,
        ),
        ChangeShape::Delete { table, by } => match by.as_slice() {
            [by] => format!("DELETE FROM {} WHERE \"{}\" = ANY($1)", table.name, by.name),
            by => format!(
                "DELETE FROM {table} USING {} AS old({}) WHERE {}",
                arrays(by),
                names(by),
                each(by, " AND ", |name| format!("{}.\"{name}\" = old.\"{name}\"", table.name)),
                table = table.name,
            ),
        },
        ChangeShape::Special => special(change).to_owned(),
    }
}

fn on_conflict(table: &Layout, conflict: Conflict) -> String {
    let rest = &table.columns[table.key..];
    let action = match conflict {
        Conflict::Fail => return String::new(),
        Conflict::Ignore => "NOTHING".to_owned(),
        Conflict::Replace(count) => {
            format!("UPDATE SET {}", each(&rest[..count], ", ", |name| format!("{name} = excluded.{name}")))
        }
        Conflict::Add => {
            let add = |name: &str| format!("{name} = {}.{name} + excluded.{name}", table.name);
            format!("UPDATE SET {}", each(rest, ", ", add))
        }
    };
    format!(" ON CONFLICT ({}) DO {action}", names(table.key_columns()))
}

fn special(change: TableChange) -> &'static str {
    match change {
        TableChange::AskForAttention => ASK_FOR_ATTENTION,
        TableChange::UpdateNumbered => UPDATE_NUMBERED,
        TableChange::Lease => LEASE,
        TableChange::InsertHistory => &INSERT_HISTORY,
        TableChange::LengthenSkipped => LENGTHEN_SKIPPED,
        TableChange::ForgetNotes => FORGET_NOTES,
        TableChange::ForgetCheckpoints => FORGET_CHECKPOINTS,
        TableChange::AnswerRequests => ANSWER_REQUESTS,
        TableChange::ForgetLimiters => FORGET_LIMITERS,
        other => unreachable!("{other:?} has a shape"),
    }
}

/// Positions grow with the number of the transaction, and within it in the order of the rows.
static INSERT_HISTORY: LazyLock<String> = LazyLock::new(|| {
    let columns = &HISTORY.columns[1..];
    let names = names(columns);
    format!(
        "INSERT INTO history (place, {names}) \
         SELECT (SELECT (pg_current_xact_id()::text::bigint + place_base) << 20 FROM punctual) | new.index, {} \
         FROM {} WITH ORDINALITY AS new({names}, index)",
        each(columns, ", ", |name| format!("new.{name}")),
        arrays(columns)
    )
});

pub(crate) fn calls(changes: Vec<Changed<'_>>) -> Vec<StatementCall<'_>> {
    let call = |(change, list)| StatementCall { sql: statement(change), parameters: columns(list) };
    changes.into_iter().map(call).collect()
}

/// The statements for these changes; counters go to this shard.
pub(crate) fn writes(write_set: &WriteSet, shard: i16) -> Result<Vec<StatementCall<'_>>, Fault> {
    Ok(calls(changes(write_set, i64::from(shard))?))
}
