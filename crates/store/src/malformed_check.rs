//! Finds rows that cannot be read, the same way in every database. Each adapter reads its tables page by
//! page as cells; this module decides which of them are malformed. It uses the codecs of the readers
//! (`codes.rs`), so it finds everything that a reader rejects.

use crate::codes::{
    Code, ScheduleColumns, SettingsColumns, StateColumns, document, read_limiter, read_limits,
    read_live_ties, read_placing, schedule_type,
};
use crate::fault::Fault;
use crate::layout::{Cell, Cells, Column, ColumnKind, Layout, hex};
use crate::rows::KeyKind;
use punctual_core::ids::JobId;
use punctual_core::job::{JobMark, Priority};
use punctual_core::lifecycle::Status;
use punctual_core::notes::{Checkpoint, Percent};
use punctual_core::occurrence::Origin;
use punctual_core::ports::{LogStream, Role};
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use std::borrow::Cow;

/// Rows that are reported by name; a table in which every row is malformed would fill the screen.
pub(crate) const NAMED_MAX: usize = 100;
/// Rows that are read at a time.
pub(crate) const PAGE_ROWS: usize = 200;

/// A column that refers to a row of another table.
pub(crate) struct Reference {
    pub table: &'static str,
    pub column: &'static str,
    pub target: &'static str,
    pub key: &'static str,
}

const fn reference(
    table: &'static str,
    column: &'static str,
    target: &'static str,
    key: &'static str,
) -> Reference {
    Reference { table, column, target, key }
}

/// Columns whose referenced row exists after every commit.
pub(crate) const REFERENCES: &[Reference] = &[
    reference("jobs", "lane", "lanes", "id"),
    reference("schedules", "job", "jobs", "id"),
    reference("schedules", "lane", "lanes", "id"),
    reference("live", "job", "jobs", "id"),
    reference("live", "lane", "lanes", "id"),
    reference("live", "session", "sessions", "id"),
    reference("job_tags", "job", "jobs", "id"),
    reference("job_keys", "job", "jobs", "id"),
    reference("dead_letters", "job", "jobs", "id"),
    reference("lane_tallies", "lane", "lanes", "id"),
    reference("sessions", "worker", "workers", "id"),
    reference("history", "worker", "workers", "id"),
];

impl Reference {
    pub fn layout(&self) -> Option<&'static Layout> {
        crate::layout::TABLES.iter().find(|layout| layout.name == self.table)
    }

    /// Finds the keys of rows that refer to a missing row, up to [`NAMED_MAX`].
    pub fn sql(&self, keys: &str, quote: char) -> String {
        let Reference { table, column, target, key } = self;
        format!(
            "SELECT {keys} FROM {table} WHERE {quote}{column}{quote} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM {target} \
             WHERE {target}.{key} = {table}.{quote}{column}{quote}) LIMIT {NAMED_MAX}"
        )
    }

    pub fn problem(&self, layout: &Layout, row_key: &[Cell]) -> String {
        let Reference { column, target, .. } = self;
        told(layout, row_key, column, &format!("names a row of {target} that is not there"))
    }
}

/// One sentence for each problem in these rows of a table.
pub(crate) fn problems(table: &Layout, rows: &[Cells]) -> Vec<String> {
    rows.iter().filter_map(|cells| problem(&CheckedRow { table, cells })).collect()
}

/// Names the table, the key and the column.
fn told(table: &Layout, key: &[Cell], column: &str, problem: &str) -> String {
    let key: Vec<String> =
        table.key_columns().iter().zip(key).map(|(column, cell)| shown(column, cell)).collect();
    format!("malformed row in {}, key {}, column {column}: {problem}", table.name, key.join(" "))
}

fn shown(column: &Column, cell: &Cell) -> String {
    match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => format!("{text:?}"),
        Cell::Bytes(bytes) => match (column.kind, <[u8; 16]>::try_from(bytes.as_slice())) {
            (ColumnKind::Id, Ok(id)) => JobId::from_bytes(id).to_string(),
            _ => hex(bytes),
        },
    }
}

struct CheckedRow<'a> {
    table: &'a Layout,
    cells: &'a [Cell],
}

fn problem(row: &CheckedRow<'_>) -> Option<String> {
    let tell = |column: &str, fault: &Fault| Some(told(row.table, row.cells, column, &fault.to_string()));
    for (column, cell) in row.table.columns.iter().zip(row.cells) {
        if let Err(fault) = read_cell(row.table.name, column, cell) {
            return tell(column.name, &fault);
        }
    }
    let fault = read_row(row).err()?;
    let column = match &fault {
        Fault::Damaged { what, .. } => what.rsplit('.').next().unwrap_or(what),
        _ => "?",
    };
    tell(column, &fault)
}

/// Reads a single value.
fn read_cell(table: &str, column: &Column, cell: &Cell) -> Result<(), Fault> {
    let what = || Cow::Owned(format!("{table}.{}", column.name));
    match (column.kind, cell) {
        (_, Cell::Null) => Ok(()),
        (ColumnKind::Id, Cell::Bytes(bytes)) if bytes.len() == 16 => Ok(()),
        (ColumnKind::Bytes, Cell::Bytes(bytes)) if bytes.len() == 32 => Ok(()),
        (ColumnKind::Text | ColumnKind::Document, Cell::Text(text)) => read_text(table, column.name, text),
        (ColumnKind::Big | ColumnKind::Int | ColumnKind::Small | ColumnKind::Flag, Cell::Number(number)) => {
            if is_meant(table, column.name, *number) {
                Ok(())
            } else {
                Err(Fault::damaged(what(), number))
            }
        }
        (ColumnKind::Id | ColumnKind::Bytes, Cell::Bytes(bytes)) => {
            Err(Fault::damaged(what(), format!("{} bytes", bytes.len())))
        }
        (_, Cell::Bytes(_)) => Err(Fault::damaged(what(), "bytes that are no text")),
        (_, Cell::Text(_)) => Err(Fault::damaged(what(), "a text")),
        (_, Cell::Number(number)) => Err(Fault::damaged(what(), number)),
    }
}

/// Whether a number is valid in its column.
fn is_meant(table: &str, column: &str, number: i64) -> bool {
    fn is<T: Code>(number: i64) -> bool {
        T::from_code(number).is_some()
    }
    let is_u32 = || u32::try_from(number).is_ok();
    match (table, column) {
        ("jobs", "mark") => is::<JobMark>(number),
        ("jobs", "schedule_type") => (schedule_type::IMMEDIATE..=schedule_type::RECURRING).contains(&number),
        (_, "priority") => u8::try_from(number).ok().and_then(Priority::new).is_some(),
        ("schedules", "overlap") => is::<OverlapPolicy>(number),
        ("live" | "history" | "dead_letters", "origin") => is::<Origin>(number),
        ("history", "status") => is::<Status>(number),
        ("history" | "skipped", "reason") => is::<SkipReason>(number),
        ("lines", "stream") => is::<LogStream>(number),
        ("sessions", "mode") => is::<SessionMode>(number),
        ("tokens", "role") => is::<Role>(number),
        ("job_keys", "kind") => is::<KeyKind>(number),
        ("requests", "status") => u16::try_from(number).is_ok(),
        ("notes", "percent") => u16::try_from(number).ok().and_then(Percent::from_hundredths).is_some(),
        ("live" | "schedules", "ties") | ("live", "gates") => u8::try_from(number).is_ok(),
        (
            _,
            "version" | "job_version" | "numbered" | "fired" | "occurrence" | "attempt" | "attempts"
            | "charged" | "epoch" | "overlap_limit" | "max_open" | "slots",
        ) => is_u32(),
        (_, "max_depth" | "beat" | "turn" | "lease_us" | "place" | "given")
        | ("skipped", "count")
        | ("notes" | "dead_letters" | "lines", "number") => number >= 0,
        _ => true,
    }
}

fn read_text(table: &str, column: &str, text: &str) -> Result<(), Fault> {
    match (table, column) {
        ("queues", "limits") => read_limits(Some(text)).map(drop),
        ("queues", "unplaced") => read_placing(Some(text)).map(drop),
        ("sessions", "job_types") => names(text, "sessions.job_types"),
        ("sessions", "queues") => names(text, "sessions.queues"),
        ("checkpoints", "document") => {
            let checkpoint = Checkpoint::new(text.to_owned());
            checkpoint.map(drop).map_err(|too_large| Fault::damaged("checkpoints.document", too_large))
        }
        _ => Ok(()),
    }
}

fn names(text: &str, what: &'static str) -> Result<(), Fault> {
    document(serde_json::from_str::<Vec<String>>(text), what).map(drop)
}

impl CheckedRow<'_> {
    fn cell(&self, column: &str) -> &Cell {
        let place = self.table.position(column);
        place.and_then(|place| self.cells.get(place)).unwrap_or(&Cell::Null)
    }

    fn number_or_none(&self, column: &str) -> Option<i64> {
        match self.cell(column) {
            Cell::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn number(&self, column: &str) -> i64 {
        self.number_or_none(column).unwrap_or(0)
    }

    /// A number that is known to be in range.
    fn small<T: TryFrom<i64> + Default>(&self, column: &str) -> T {
        T::try_from(self.number(column)).unwrap_or_default()
    }

    fn small_or_none<T: TryFrom<i64>>(&self, column: &str) -> Option<T> {
        self.number_or_none(column).and_then(|number| T::try_from(number).ok())
    }

    fn text(&self, column: &str) -> Option<&str> {
        match self.cell(column) {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    fn job(&self) -> Option<JobId> {
        match self.cell("job") {
            Cell::Bytes(bytes) => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(JobId::from_bytes),
            _ => None,
        }
    }

    /// A row in another segment than its job would never be found.
    fn read_segment(&self) -> Result<(), Fault> {
        let (held, job) = (self.number("segment"), self.job());
        match job.filter(|job| i64::from(job.segment().index()) != held) {
            Some(_) => Err(Fault::damaged(format!("{}.segment", self.table.name), held)),
            None => Ok(()),
        }
    }
}

/// Reads values that span several columns.
fn read_row(row: &CheckedRow<'_>) -> Result<(), Fault> {
    match row.table.name {
        "jobs" => {
            let settings = row.text("settings");
            SettingsColumns::read(row.number("schedule_type"), row.number_or_none("execute_at"), settings)
                .map(drop)
        }
        "schedules" => {
            row.read_segment()?;
            let columns = ScheduleColumns {
                nominal: row.number_or_none("nominal"),
                schedule: row.text("schedule").map(Cow::Borrowed),
                replay: row.text("replay").map(Cow::Borrowed),
                numbered: row.small_or_none("numbered"),
                overlap_limit: row.small_or_none("overlap_limit"),
                max_open: row.small_or_none("max_open"),
                expiry: row.text("expiry").map(Cow::Borrowed),
                ties: row.small("ties"),
            };
            let due_at = row.number_or_none("due_at").map(Timestamp::from_micros);
            let policy = OverlapPolicy::read(row.number("overlap"), "schedules.overlap")?;
            columns.read(due_at, row.small("fired"), policy).map(drop)
        }
        "live" => {
            row.read_segment()?;
            read_live_ties(row.small("ties"))?;
            for column in ["limiter", "line"] {
                read_limiter(row.number_or_none(column))
                    .map_err(|_| Fault::damaged(format!("live.{column}"), row.number(column)))?;
            }
            let state = StateColumns {
                state: row.number("state"),
                gates: row.small("gates"),
                session: row.number_or_none("session"),
                claimed_at: row.number_or_none("claimed_at"),
                cancel_requested: row.number("cancel_requested") != 0,
            };
            state.read().map(drop)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::TABLES;

    fn of(table: &str, cells: Vec<Cell>) -> Vec<String> {
        let table = TABLES.iter().find(|layout| layout.name == table).unwrap();
        problems(table, &[cells])
    }

    #[test]
    fn a_malformed_row_is_named_by_table_key_and_column() {
        let queue = |limits: &str| {
            let limits = Cell::Text(limits.to_owned());
            vec![Cell::Text("mail".to_owned()), Cell::Null, Cell::Null, limits, Cell::Null]
        };
        assert_eq!(of("queues", queue("{}")), Vec::<String>::new());
        let told = of("queues", queue("{garbage"));
        let begins = "malformed row in queues, key \"mail\", column limits: queues.limits holds a document";
        assert!(told.len() == 1 && told[0].starts_with(begins), "{told:?}");
        let token =
            vec![Cell::Text("t".to_owned()), Cell::Bytes(vec![0; 32]), Cell::Number(77), Cell::Number(0)];
        assert_eq!(
            of("tokens", token),
            ["malformed row in tokens, key \"t\", column role: tokens.role holds 77, which is not valid"]
        );
    }
}
