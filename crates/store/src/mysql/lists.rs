//! How many rows are combined into one statement.
//!
//! Narrow rows are sent as one JSON document, which the server reads as a table: the text is the same for
//! any number of rows, and rows are visited in the order sent, so that sorting them determines the order of
//! the locks. Rows with free text or a payload are sent as parameters of a multi-row `VALUES`, in a few
//! sizes, so that each text is prepared once.

use crate::cells::Cell;
use crate::layout::hex;
use crate::row_list::{self, List};
use mysql_async::Value;
use punctual_core::ids::JobId;
use punctual_core::limits::{DATABASE_LIST_ROWS_MAX, DATABASE_PACKET_BYTES_MAX};
use std::borrow::Cow;
use std::fmt::Write as _;

/// A list as a statement reads it: its columns, each with its index and kind. `id`: sixteen bytes as
/// hexadecimal digits; `int`; `name`: compared like the names in the tables; `text`: written but not
/// compared.
macro_rules! list {
    ($place:literal $name:ident $kind:ident $(, $places:literal $names:ident $kinds:ident)* $(,)?) => {
        concat!(
            "JSON_TABLE(?, '$[*]' COLUMNS (",
            stringify!($name), " ", $crate::mysql::lists::list_type!($kind), " PATH '$[", $place, "]'",
            $(", ", stringify!($names), " ", $crate::mysql::lists::list_type!($kinds), " PATH '$[", $places, "]'",)*
            ")) AS given"
        )
    };
}
pub(crate) use list;

macro_rules! list_type {
    (id) => {
        "CHAR(32)"
    };
    (int) => {
        "BIGINT"
    };
    (name) => {
        $crate::mysql::connection::text_type!("255")
    };
    (text) => {
        "LONGTEXT CHARACTER SET utf8mb4"
    };
}
pub(crate) use list_type;

/// A statement with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    pub sql: Cow<'static, str>,
    pub values: Vec<Value>,
}

/// These rows as documents, each within the size limit of a statement. Without rows there are no documents.
pub(crate) fn documents(list: &List<'_>) -> Vec<Value> {
    let mut documents = Vec::new();
    let (mut document, mut rows, mut row) = (String::new(), 0, String::new());
    for cells in list.rows() {
        row.clear();
        for (place, cell) in cells.iter().enumerate() {
            row.push_str(if place == 0 { "" } else { "," });
            write_cell(&mut row, cell);
        }
        let is_full =
            document.len() + row.len() > DATABASE_PACKET_BYTES_MAX || rows == DATABASE_LIST_ROWS_MAX;
        if rows > 0 && is_full {
            finish(&mut documents, std::mem::take(&mut document));
            rows = 0;
        }
        document.push_str(if rows == 0 { "[[" } else { ",[" });
        document.push_str(&row);
        document.push(']');
        rows += 1;
    }
    if rows > 0 {
        finish(&mut documents, document);
    }
    documents
}

fn finish(documents: &mut Vec<Value>, mut document: String) {
    document.push(']');
    documents.push(Value::Bytes(document.into_bytes()));
}

/// Writing to a string cannot fail.
fn write_cell(out: &mut String, cell: &Cell<'_>) {
    match cell {
        Cell::Null => out.push_str("null"),
        Cell::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Cell::Id(id) => {
            let _ = write!(out, "\"{:032x}\"", u128::from_be_bytes(*id.as_bytes()));
        }
        Cell::Bytes(bytes) => {
            let _ = write!(out, "\"{}\"", hex(bytes));
        }
        Cell::Text(text) => {
            out.push('"');
            for letter in text.chars() {
                match letter {
                    '"' | '\\' => out.extend(['\\', letter]),
                    control if control < ' ' => {
                        let _ = write!(out, "\\u{:04x}", u32::from(control));
                    }
                    other => out.push(other),
                }
            }
            out.push('"');
        }
    }
}

/// Jobs as documents of `list!(0 job id)`.
pub(crate) fn jobs<'a>(jobs: impl IntoIterator<Item = &'a JobId>) -> Vec<Value> {
    documents(&row_list::ids(jobs))
}

/// A statement that inserts rows by `VALUES`.
#[derive(Debug, Clone)]
pub(crate) struct Insertion {
    /// Up to the keyword VALUES.
    pub head: String,
    pub columns: usize,
    /// The clause after the rows.
    pub tail: String,
}

/// Rows per statement. Few sizes, so that each text is prepared once and not once for every number of rows.
const SIZES: [usize; 5] = [256, 64, 16, 4, 1];

impl Insertion {
    /// The statements for these rows, in order.
    pub fn of(&self, rows: Vec<Vec<Value>>) -> Vec<Statement> {
        let mut statements = Vec::new();
        let mut rest = &rows[..];
        while !rest.is_empty() {
            let size = SIZES.into_iter().find(|size| fits(rest, *size)).unwrap_or(1);
            let (now, later) = rest.split_at(size);
            debug_assert!(now.iter().all(|row| row.len() == self.columns), "{}", self.head);
            let values = now.iter().flatten().cloned().collect();
            statements.push(Statement { sql: Cow::Owned(self.text(size)), values });
            rest = later;
        }
        statements
    }

    pub fn text(&self, rows: usize) -> String {
        let row = format!("({})", vec!["?"; self.columns].join(", "));
        format!("{} VALUES {}{}", self.head, vec![row; rows].join(", "), self.tail)
    }
}

/// Whether there are this many rows and they may share a statement.
fn fits(rows: &[Vec<Value>], size: usize) -> bool {
    rows.get(..size)
        .is_some_and(|rows| rows.iter().flatten().map(bytes_of).sum::<usize>() <= DATABASE_PACKET_BYTES_MAX)
}

fn bytes_of(value: &Value) -> usize {
    match value {
        // Including its length.
        Value::Bytes(bytes) => bytes.len() + 9,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row_list::row;
    use punctual_core::time::Timestamp;

    fn text(value: &Value) -> &str {
        match value {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_list_is_valid_json() {
        let job = JobId::new(Timestamp::from_micros(1), 7);
        let nasty = "a \"quoted\" \\ back\u{1}slash\n ü 😀";
        let written = documents(&List::of([row![job, 3_u32, i64::MIN, None::<i64>, nasty, None::<&str>]]));
        let read: serde_json::Value = serde_json::from_str(text(&written[0])).unwrap();
        let hex = job.to_string().replace('-', "");
        assert_eq!(read, serde_json::json!([[hex, 3, i64::MIN, null, nasty, null]]));
        assert_eq!(documents(&List::of::<1>([])), []);
    }

    #[test]
    fn lists_are_split_by_rows_and_by_bytes() {
        let many = documents(&row_list::numbers(0..(2 * DATABASE_LIST_ROWS_MAX as i64 + 1)));
        assert_eq!(many.len(), 3);
        assert_eq!(text(&many[2]), format!("[[{}]]", 2 * DATABASE_LIST_ROWS_MAX));
        let long = "x".repeat(DATABASE_PACKET_BYTES_MAX / 3);
        let few = documents(&List::of((0..7_i64).map(|number| row![number, long.as_str()])));
        let mut seen = 0;
        for document in &few {
            assert!(text(document).len() <= DATABASE_PACKET_BYTES_MAX + 4);
            let rows: Vec<(i64, String)> = serde_json::from_str(text(document)).unwrap();
            for (number, _) in rows {
                assert_eq!(number, seen);
                seen += 1;
            }
        }
        assert_eq!((seen, few.len()), (7, 4));
    }

    #[test]
    fn values_have_few_sizes_and_keep_their_order() {
        let insert =
            Insertion { head: "INSERT INTO t (a, b)".to_owned(), columns: 2, tail: " END".to_owned() };
        let rows = |count: i64, bytes: usize| -> Vec<Vec<Value>> {
            (0..count).map(|n| vec![Value::Int(n), Value::Bytes(vec![b'x'; bytes])]).collect()
        };
        let statements = insert.of(rows(256 + 64 + 3, 10));
        let sizes: Vec<usize> = statements.iter().map(|statement| statement.values.len() / 2).collect();
        assert_eq!(sizes, [256, 64, 1, 1, 1]);
        assert_eq!(statements[2].sql, "INSERT INTO t (a, b) VALUES (?, ?) END");
        let order: Vec<_> =
            statements.iter().flat_map(|statement| statement.values.iter().step_by(2)).collect();
        assert!(order.iter().enumerate().all(|(n, value)| **value == Value::Int(n as i64)));
        let large = insert.of(rows(20, DATABASE_PACKET_BYTES_MAX / 5));
        assert!(large.iter().all(|statement| statement.values.len() / 2 <= 4));
        assert_eq!(
            insert.of(rows(1, 2 * DATABASE_PACKET_BYTES_MAX)).len(),
            1,
            "a single row is sent whatever its size"
        );
    }
}
