//! Statements that change rows: one or a few for each kind of change, whatever the number of rows.

use crate::cells::Cell;
use crate::codes::state;
use crate::fault::Fault;
use crate::layout::{Column, HISTORY, LIVE, Layout, each_limiter_count};
use crate::mysql::lists::{Insertion, Statement, documents, list};
use crate::mysql::sql::{column_name, each, given, join, json_table, names};
use crate::row_list::List;
use crate::server::changes::{ChangeShape, Changed, Conflict, TableChange, changes, columns_to_set};
use crate::unit_of_work::WriteSet;
use mysql_async::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

const ASK_FOR_ATTENTION: &str = concat!(
    "UPDATE ",
    list!(0 number int),
    " STRAIGHT_JOIN sessions FORCE INDEX (PRIMARY) ON sessions.id = given.number SET sessions.attention = 1"
);
const UPDATE_NUMBERED: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 numbered int, 2 fired int, 3 over_at int),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
     SET jobs.numbered = given.numbered, jobs.fired = IF(given.over_at IS NULL, jobs.fired, given.fired), \
     jobs.updated_at = IF(given.over_at IS NULL, jobs.updated_at, \
       GREATEST(COALESCE(jobs.updated_at, jobs.created_at), given.over_at))"
);
const LEASE: &str = concat!(
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
const LENGTHEN_SKIPPED: &str = concat!(
    "UPDATE ",
    list!(0 number int, 1 last int, 2 count int),
    " STRAIGHT_JOIN skipped FORCE INDEX (PRIMARY) ON skipped.number = given.number \
     SET skipped.last = given.last, skipped.count = skipped.count + given.count"
);
const FORGET_NOTES: &str = concat!(
    "DELETE notes FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN notes FORCE INDEX (PRIMARY) ON notes.job = UNHEX(given.job) \
     LEFT JOIN live FORCE INDEX (PRIMARY) ON live.job = notes.job AND live.occurrence = notes.occurrence \
     WHERE live.job IS NULL"
);
const FORGET_CHECKPOINTS: &str = concat!(
    "DELETE checkpoints FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN checkpoints FORCE INDEX (PRIMARY) ON checkpoints.job = UNHEX(given.job) \
     LEFT JOIN live FORCE INDEX (PRIMARY) ON live.job = checkpoints.job \
     AND live.occurrence = checkpoints.occurrence WHERE live.job IS NULL"
);
const ANSWER_REQUEST: &str =
    "UPDATE requests SET status = ?, location = ?, body = ? WHERE token = ? AND `key` = ?";
const FORGET_LIMITERS: &str = concat!(
    "DELETE limiter_tallies FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN limiter_tallies FORCE INDEX (PRIMARY) ON limiter_tallies.limiter = given.number \
     WHERE ",
    each_limiter_count!(" AND ", "limiter_tallies.", " = 0")
);

/// How the rows of a change are sent.
enum Sending {
    /// As a JSON document.
    Listed(String),
    /// As `VALUES`: the server takes several times as long to read a list of many columns or of long texts.
    /// It also knows how many positions of history to assign. Otherwise it would leave gaps, and followers
    /// of history wait after each gap.
    Values(Insertion),
}

/// By the numbers of the changes.
static STATEMENTS: LazyLock<Vec<Sending>> =
    LazyLock::new(|| TableChange::ALL.iter().map(|change| sending_of(*change)).collect());

/// The statement of a change whose rows are sent as a list.
pub(crate) fn statement(change: TableChange) -> &'static str {
    match &STATEMENTS[change as usize] {
        Sending::Listed(sql) => sql,
        Sending::Values(_) => unreachable!("{change:?} is sent as VALUES"),
    }
}

fn sending_of(change: TableChange) -> Sending {
    let special = |sql: &str| Sending::Listed(sql.to_owned());
    match change {
        TableChange::AskForAttention => special(ASK_FOR_ATTENTION),
        TableChange::UpdateNumbered => special(UPDATE_NUMBERED),
        TableChange::Lease => special(LEASE),
        TableChange::LengthenSkipped => special(LENGTHEN_SKIPPED),
        TableChange::ForgetNotes => special(FORGET_NOTES),
        TableChange::ForgetCheckpoints => special(FORGET_CHECKPOINTS),
        TableChange::AnswerRequests => special(ANSWER_REQUEST),
        TableChange::ForgetLimiters => special(FORGET_LIMITERS),
        TableChange::InsertHistory => {
            Sending::Values(values(&HISTORY, &HISTORY.columns[1..], Conflict::Fail))
        }
        TableChange::InsertSessions
        | TableChange::InsertJobs
        | TableChange::InsertLive
        | TableChange::InsertDeadLetters
        | TableChange::CountNotes
        | TableChange::PutProgress
        | TableChange::PutCheckpoints
        | TableChange::InsertRequests
        | TableChange::InsertAudit
        | TableChange::AddToJobs => match change.shape() {
            ChangeShape::Insert { table, columns, conflict } => {
                Sending::Values(values(&table, columns, conflict))
            }
            other => unreachable!("{change:?}: {other:?}"),
        },
        // The rows exist and are locked: only their contents are rewritten.
        TableChange::UpdateJobs | TableChange::UpdateLive => match change.shape() {
            ChangeShape::Update { table, columns, key } => Sending::Values(rewriting(&table, &columns, key)),
            other => unreachable!("{change:?}: {other:?}"),
        },
        _ => Sending::Listed(listed(change)),
    }
}

fn listed(change: TableChange) -> String {
    match change.shape() {
        ChangeShape::Insert { table, columns, conflict } => {
            let select = columns.iter().map(given).collect::<Vec<_>>().join(", ");
            let replaced = |name: &str| format!("{name} = given.{name}");
            format!(
                "INSERT INTO {} ({}) SELECT {select} FROM {}{}",
                table.name,
                names(&table, columns),
                json_table(columns),
                on_duplicate(&table, conflict, replaced, |name| format!("given.{name}")),
            )
        }
        ChangeShape::Update { table, columns, key } => format!(
            "UPDATE {} {} SET {}",
            json_table(&columns),
            join(&table, &columns[..key]),
            columns_to_set(&columns, key)
                .map(|column| format!("{}.{} = {}", table.name, column_name(&table, column), given(column)))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ChangeShape::Delete { table, by } => {
            format!("DELETE {} FROM {} {}", table.name, json_table(&by), join(&table, &by))
        }
        ChangeShape::Special => unreachable!("{change:?} has its own statement"),
    }
}

/// `given` is the expression for the new value of a column.
fn on_duplicate(
    table: &Layout,
    conflict: Conflict,
    replaced: impl Fn(&str) -> String,
    given: impl Fn(&str) -> String,
) -> String {
    let rest = &table.columns[table.key..];
    let action = match conflict {
        Conflict::Fail => return String::new(),
        Conflict::Ignore => {
            each(table, &table.columns[..1], |name| format!("{name} = {}.{name}", table.name))
        }
        Conflict::Replace(count) => each(table, &rest[..count], replaced),
        Conflict::Add => {
            each(table, rest, |name| format!("{name} = {}.{name} + {}", table.name, given(name)))
        }
    };
    format!(" ON DUPLICATE KEY UPDATE {action}")
}

fn values(table: &Layout, columns: &[Column], conflict: Conflict) -> Insertion {
    let value = |name: &str| format!("VALUES({name})");
    let tail = on_duplicate(table, conflict, |name| format!("{name} = VALUES({name})"), value);
    insertion(table, columns, tail)
}

fn rewriting(table: &Layout, columns: &[Column], key: usize) -> Insertion {
    let set = each(table, columns_to_set(columns, key), |name| format!("{name} = VALUES({name})"));
    let more = if table.name == LIVE.name { ", queued_lane = VALUES(queued_lane)" } else { "" };
    insertion(table, columns, format!(" ON DUPLICATE KEY UPDATE {set}{more}"))
}

fn insertion(table: &Layout, columns: &[Column], tail: String) -> Insertion {
    let names = names(table, columns);
    let (more, columns) =
        if table.name == LIVE.name { (", queued_lane", columns.len() + 1) } else { ("", columns.len()) };
    Insertion { head: format!("INSERT INTO {} ({names}{more})", table.name), columns, tail }
}

/// The rows of `live` with the column that only this schema has: the lane of a claimable row, or the wait
/// list that it is on.
pub(crate) fn queued_lane<'a>(row: &[Cell<'a>]) -> Cell<'a> {
    const AT: [usize; 3] = [LIVE.at("state"), LIVE.at("lane"), LIVE.at("line")];
    let [state, lane, line] = AT.map(|place| &row[place]);
    if *state == Cell::Number(i64::from(state::QUEUED)) { lane.clone() } else { line.clone() }
}

/// The statements for these changes.
pub(crate) fn statements(changes: Vec<Changed<'_>>) -> Vec<Statement> {
    changes.into_iter().flat_map(|(change, list)| statements_of(change, list)).collect()
}

fn statements_of(change: TableChange, list: List<'_>) -> Vec<Statement> {
    match &STATEMENTS[change as usize] {
        Sending::Listed(_) if change == TableChange::Lease => leases(&list),
        Sending::Listed(sql) if change == TableChange::AnswerRequests => {
            let answer = |row: &[Cell<'_>]| {
                let [token, key, answer @ ..] = row else { unreachable!("{row:?}") };
                let cells = answer.iter().chain([token, key]);
                Statement { sql: Cow::Borrowed(sql), values: cells.cloned().map(Value::from).collect() }
            };
            list.rows().map(answer).collect()
        }
        Sending::Listed(sql) => sharing(sql, &list),
        Sending::Values(insertion) => {
            let is_live = matches!(change, TableChange::InsertLive | TableChange::UpdateLive);
            let row = |row: &[Cell<'_>]| {
                let more = is_live.then(|| queued_lane(row));
                row.iter().cloned().chain(more).map(Value::from).collect()
            };
            insertion.of(list.rows().map(row).collect())
        }
    }
}

/// One statement for each document.
pub(crate) fn sharing(sql: &'static str, list: &List<'_>) -> Vec<Statement> {
    let statement = |document| Statement { sql: Cow::Borrowed(sql), values: vec![document] };
    documents(list).into_iter().map(statement).collect()
}

fn leases(list: &List<'_>) -> Vec<Statement> {
    let mut alike: BTreeMap<[i64; 4], Vec<[Cell<'_>; 2]>> = BTreeMap::new();
    for row in list.rows() {
        let [job, number, shared @ ..] = row else { unreachable!("{row:?}") };
        let shared = shared.iter().map(|cell| cell.number("live").unwrap_or_default());
        let shared = shared.collect::<Vec<_>>().try_into().unwrap_or_default();
        alike.entry(shared).or_default().push([job.clone(), number.clone()]);
    }
    if alike.len() > LEASES_ALIKE_MAX {
        return sharing(LEASE, list);
    }
    let each = alike.into_iter().flat_map(|(shared, keys)| {
        documents(&List::of(keys)).into_iter().map(move |document| Statement {
            sql: Cow::Borrowed(LEASE_ALIKE),
            values: [document].into_iter().chain(shared.map(Value::Int)).collect(),
        })
    });
    each.collect()
}

/// The statements for these changes; counters go to this shard.
pub(crate) fn writes(write_set: &WriteSet, shard: i64) -> Result<Vec<Statement>, Fault> {
    Ok(statements(changes(write_set, shard)?))
}
