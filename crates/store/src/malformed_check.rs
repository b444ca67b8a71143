//! Finds rows that cannot be read, the same way in every database. Each adapter reads its tables page by
//! page as cells; this module decides which of them are malformed. It uses the codecs of the readers
//! (`codes.rs`), so it finds everything that a reader rejects.

use crate::cells::{Cell, Cells, ColumnKind};
use crate::codecs::read_live;
use crate::codes::{SettingsColumns, document, read_limits, read_readmission, schedule_type};
use crate::fault::Fault;
use crate::layout::{Column, JobColumns, Layout, LiveColumns, ScheduleColumns, hex};
use punctual_core::ids::JobId;
use punctual_core::notes::Checkpoint;
use punctual_core::occurrence::RunInput;
use punctual_core::ports::{SecretAbout, TokenAbout, UserAbout};
use punctual_core::sealed::is_sealed;
use serde::de::IgnoredAny;

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

    pub fn problem(&self, layout: &Layout, row_key: &[Cell<'_>]) -> String {
        let Reference { column, target, .. } = self;
        problem_text(layout, row_key, column, &format!("names a row of {target} that does not exist"))
    }
}

/// One sentence for each problem in these rows of a table.
pub(crate) fn problems(table: &Layout, rows: &[Cells]) -> Vec<String> {
    rows.iter().filter_map(|cells| problem(table, cells)).collect()
}

/// Names the table, the key and the column.
fn problem_text(table: &Layout, key: &[Cell<'_>], column: &str, problem: &str) -> String {
    let key: Vec<String> =
        table.key_columns().iter().zip(key).map(|(column, cell)| shown(column, cell)).collect();
    format!("malformed row in {}, key {}, column {column}: {problem}", table.name, key.join(" "))
}

fn shown(column: &Column, cell: &Cell<'_>) -> String {
    match cell {
        Cell::Null => "NULL".to_owned(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => format!("{text:?}"),
        Cell::Id(id) => id.to_string(),
        Cell::Bytes(bytes) => match (column.kind, <[u8; 16]>::try_from(&**bytes)) {
            (ColumnKind::Id, Ok(id)) => JobId::from_bytes(id).to_string(),
            _ => hex(bytes),
        },
    }
}

fn problem(table: &Layout, cells: &[Cell<'_>]) -> Option<String> {
    let tell = |column: &str, fault: &Fault| Some(problem_text(table, cells, column, &fault.to_string()));
    for (place, column) in table.columns.iter().enumerate() {
        let read = (column.check)(cells, place).and_then(|()| match &cells[place] {
            Cell::Text(text) => read_text(table.name, column.name, text),
            _ => Ok(()),
        });
        if let Err(fault) = read {
            return tell(column.name, &fault);
        }
    }
    let fault = read_row(table, cells).err()?;
    let column = match &fault {
        Fault::Damaged { what, .. } => what.rsplit('.').next().unwrap_or(what),
        _ => "?",
    };
    tell(column, &fault)
}

fn read_text(table: &str, column: &str, text: &str) -> Result<(), Fault> {
    match (table, column) {
        ("queues", "limits") => read_limits(Some(text)).map(drop),
        ("queues", "unplaced") => read_readmission(Some(text)).map(drop),
        ("tokens", "about") => document(serde_json::from_str::<TokenAbout>(text), "tokens.about").map(drop),
        ("users", "about") => document(serde_json::from_str::<UserAbout>(text), "users.about").map(drop),
        ("secrets", "about") => {
            document(serde_json::from_str::<SecretAbout>(text), "secrets.about").map(drop)
        }
        ("documents", "body") => {
            document(serde_json::from_str::<IgnoredAny>(text), "documents.body").map(drop)
        }
        ("live" | "history" | "dead_letters", "input") => {
            document(serde_json::from_str::<RunInput>(text), "the input of a run").map(drop)
        }
        ("sessions", "job_types") => names(text, "sessions.job_types"),
        ("sessions", "queues") => names(text, "sessions.queues"),
        ("checkpoints", "document") => {
            if is_sealed(text) {
                let checkpoint = Checkpoint::stored(text.to_owned());
                return checkpoint.map(drop).map_err(|large| Fault::damaged("checkpoints.document", large));
            }
            let checkpoint = Checkpoint::new(text.to_owned());
            checkpoint.map(drop).map_err(|too_large| Fault::damaged("checkpoints.document", too_large))
        }
        _ => Ok(()),
    }
}

fn names(text: &str, what: &'static str) -> Result<(), Fault> {
    document(serde_json::from_str::<Vec<String>>(text), what).map(drop)
}

/// Reads values that span several columns.
fn read_row(table: &Layout, cells: &[Cell<'_>]) -> Result<(), Fault> {
    match table.name {
        "jobs" => {
            let JobColumns { schedule_type, execute_at, settings, .. } = JobColumns::read(cells, 0)?;
            if schedule_type > schedule_type::RECURRING {
                return Err(Fault::damaged("jobs.schedule_type", schedule_type));
            }
            SettingsColumns::read(schedule_type, execute_at, settings.as_deref()).map(drop)
        }
        "schedules" => {
            let columns = ScheduleColumns::read(cells, 0)?;
            is_in_segment(columns.job, columns.segment, "schedules.segment")?;
            columns.parts().map(drop)
        }
        "live" => {
            let LiveColumns { job, segment, .. } = LiveColumns::read(cells, 0)?;
            is_in_segment(job, segment, "live.segment")?;
            read_live(cells, 0).map(drop)
        }
        _ => Ok(()),
    }
}

/// A row in another segment than its job would never be found.
fn is_in_segment(job: JobId, segment: u8, what: &'static str) -> Result<(), Fault> {
    if job.segment().index() == segment { Ok(()) } else { Err(Fault::damaged(what, segment)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::TABLES;

    fn of(table: &str, cells: Cells) -> Vec<String> {
        let table = TABLES.iter().find(|layout| layout.name == table).unwrap();
        problems(table, &[cells])
    }

    #[test]
    fn a_malformed_row_is_named_by_table_key_and_column() {
        let queue = |limits: &str| {
            let limits = Cell::Text(limits.to_owned().into());
            vec![Cell::Text("mail".into()), Cell::Null, Cell::Null, limits, Cell::Null]
        };
        assert_eq!(of("queues", queue("{}")), Vec::<String>::new());
        let found = of("queues", queue("{garbage"));
        let begins = "malformed row in queues, key \"mail\", column limits: queues.limits holds a document";
        assert!(found.len() == 1 && found[0].starts_with(begins), "{found:?}");
        let token = |role, about: &str| {
            let (id, secret) = (Cell::Text("t".into()), Cell::Bytes(vec![0; 32].into()));
            let about = Cell::Text(about.to_owned().into());
            vec![id, secret, Cell::Number(role), Cell::Number(0), Cell::Null, Cell::Null, about]
        };
        assert_eq!(
            of("tokens", token(77, "{}")),
            ["malformed row in tokens, key \"t\", column role: tokens.role holds 77, which is not valid"]
        );
        let found = of("tokens", token(4, "[7]"));
        let begins = "malformed row in tokens, key \"t\", column about: tokens.about holds a document";
        assert!(found.len() == 1 && found[0].starts_with(begins), "{found:?}");
    }
}
