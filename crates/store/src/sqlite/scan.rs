//! Reads every row of a table and looks it up through every index, in steps that can be continued. This is what
//! `PRAGMA integrity_check` does in one go, for tables that are too large for that while a server runs.
//!
//! A step finds pages that cannot be read, rows out of order, rows that an index or a search by key does not find,
//! and documents that are not JSON. SQLite stores no checksums, so other text that was changed on disk is not
//! detected.

use super::rows::{all, limit};
use crate::fault::Fault;
use punctual_core::sealed::is_sealed;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};
use std::cmp::Ordering;

/// Columns that hold JSON, which may fill overflow pages.
const JSON_COLUMNS: &[(&str, &str)] = &[
    ("jobs", "settings"),
    ("jobs", "payload"),
    ("schedules", "schedule"),
    ("checkpoints", "document"),
    ("session_conditions", "document"),
    ("queues", "limits"),
];

/// The position of a row in its table. Text is kept as bytes, because damaged text may not be UTF-8.
pub(crate) type ScanKey = Vec<Value>;

/// The findings of a step.
#[derive(Debug)]
pub(crate) struct ScanStep {
    /// The last row that was read; `None` at the end of the table.
    pub last: Option<ScanKey>,
    /// Damage of the file, which may hide rows near it.
    pub problems: Vec<String>,
    /// Values that no reader accepts. They affect only the objects that their rows describe (decision 0027).
    pub malformed: Vec<String>,
}

/// How to read one table.
#[derive(Debug)]
pub(crate) struct TableScan {
    table: String,
    /// The columns by which rows are ordered in the table itself.
    key: Vec<String>,
    /// Whether each key column holds text.
    key_is_text: Vec<bool>,
    columns: Vec<String>,
    /// Indexes of the columns that hold JSON.
    json: Vec<usize>,
    /// What is searched, and a query for rows between two keys that the search does not find.
    searches: Vec<(String, String)>,
    /// Queries for the first and the last entry of every index: an index may be empty although its table is not.
    ends: Vec<String>,
}

/// The tables of a database, including SQLite's own.
pub(crate) fn tables(conn: &Connection) -> Result<Vec<String>, Fault> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    all(&mut conn.prepare(sql)?, [], |row| Ok(row.get(0)?))
}

impl TableScan {
    pub fn of(conn: &Connection, table: &str) -> Result<Self, Fault> {
        let sql = "SELECT name, pk, type = 'TEXT' FROM pragma_table_info(?1) ORDER BY cid";
        let found: Vec<(String, i64, bool)> =
            all(&mut conn.prepare(sql)?, [table], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let sql = "SELECT wr FROM pragma_table_list(?1) WHERE schema = 'main'";
        let has_rowid = conn.query_row(sql, [table], |row| row.get::<_, i64>(0))? == 0;
        let columns: Vec<String> = found.iter().map(|(name, ..)| name.clone()).collect();
        let (key, key_is_text) = if has_rowid {
            (vec!["rowid".to_owned()], vec![false])
        } else {
            let mut key: Vec<_> = found.into_iter().filter(|(_, place, _)| *place > 0).collect();
            key.sort_by_key(|(_, place, _)| *place);
            key.into_iter().map(|(name, _, is_text)| (name, is_text)).unzip()
        };
        let is_json = |column: &String| JSON_COLUMNS.contains(&(table, column.as_str()));
        let json = (0..columns.len()).filter(|place| is_json(&columns[*place])).collect();
        let mut scan = TableScan {
            table: table.to_owned(),
            key,
            key_is_text,
            columns,
            json,
            searches: vec![],
            ends: vec![],
        };
        scan.searches.push(("its key".to_owned(), scan.search("NOT INDEXED", &[], None)));
        let sql = "SELECT name FROM pragma_index_list(?1) WHERE ?2 OR origin <> 'pk'";
        let indexes: Vec<String> = all(&mut conn.prepare(sql)?, (table, has_rowid), |row| Ok(row.get(0)?))?;
        for index in indexes {
            let sql = "SELECT name FROM pragma_index_xinfo(?1) WHERE key = 1 AND name IS NOT NULL";
            let columns: Vec<String> = all(&mut conn.prepare(sql)?, [&index], |row| Ok(row.get(0)?))?;
            let sql = "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?1";
            let created: Option<String> =
                conn.query_row(sql, [&index], |row| row.get(0)).optional()?.flatten();
            // The condition of a partial index, which holds only the rows that satisfy it.
            let part = created.as_deref().and_then(|sql| sql.split_once(" WHERE ")).map(|(_, part)| part);
            let how = format!("INDEXED BY {}", quoted(&index));
            for order in ["ASC", "DESC"] {
                let by: Vec<String> =
                    columns.iter().map(|name| format!("{} {order}", quoted(name))).collect();
                scan.ends.push(format!(
                    "SELECT count(*) FROM (SELECT 1 FROM {} {how} WHERE {} ORDER BY {} LIMIT 1)",
                    quoted(table),
                    part.unwrap_or("true"),
                    by.join(", "),
                ));
            }
            let search = scan.search(&how, &columns, part);
            scan.searches.push((format!("index {index}"), search));
        }
        Ok(scan)
    }

    /// Whether rows have numbers, so that positions between them can be chosen.
    pub fn is_numbered(&self) -> bool {
        self.key == ["rowid"]
    }

    /// Counts rows from one key up to another that this search does not find.
    fn search(&self, how: &str, columns: &[String], part: Option<&str>) -> String {
        let table = quoted(&self.table);
        let named = |place: usize| format!("\"key {place}\"");
        let key =
            self.key.iter().enumerate().map(|(place, key)| format!("{} AS {}", column(key), named(place)));
        let key: Vec<String> = key.collect();
        let same_key =
            self.key.iter().enumerate().map(|(at, key)| format!("b.{} = a.{}", column(key), named(at)));
        let same = columns.iter().map(|name| format!("b.{0} IS a.{0}", quoted(name)));
        let condition = same.chain(same_key).collect::<Vec<_>>().join(" AND ");
        let part = part.map_or(String::new(), |part| format!(" AND ({part})"));
        let count = self.key.len();
        format!(
            "SELECT count(*) FROM (SELECT {}, * FROM {table} NOT INDEXED WHERE {} AND {}{part}) AS a \
             WHERE NOT EXISTS (SELECT 1 FROM {table} AS b {how} WHERE {condition}{part})",
            key.join(", "),
            self.compared(">=", 1),
            self.compared("<=", count + 1),
        )
    }

    fn compared(&self, operator: &str, first: usize) -> String {
        let mark = |(place, is_text): (usize, &bool)| {
            let mark = first + place;
            if *is_text { format!("CAST(?{mark} AS TEXT)") } else { format!("?{mark}") }
        };
        let marks: Vec<String> = self.key_is_text.iter().enumerate().map(mark).collect();
        format!("({}) {operator} ({})", self.keys(""), marks.join(", "))
    }

    fn keys(&self, suffix: &str) -> String {
        let keys: Vec<String> = self.key.iter().map(|key| format!("{}{suffix}", column(key))).collect();
        keys.join(", ")
    }

    /// Reads rows after a key, in the order of the table. The caller holds a snapshot.
    pub fn step(
        &self,
        conn: &Connection,
        after: Option<&ScanKey>,
        rows_max: usize,
    ) -> Result<ScanStep, Fault> {
        let plain = self.columns.iter().map(|name| quoted(name));
        let json = self.json.iter().map(|place| format!("json_valid({})", quoted(&self.columns[*place])));
        let columns: Vec<String> = plain.chain(json).collect();
        let from = after.map_or(String::new(), |_| format!("WHERE {}", self.compared(">", 1)));
        let sql = format!(
            "SELECT {}, {} FROM {} NOT INDEXED {from} ORDER BY {} LIMIT {}",
            self.keys(""),
            columns.join(", "),
            quoted(&self.table),
            self.keys(""),
            limit(rows_max),
        );
        if after.is_none() {
            for ends in &self.ends {
                conn.prepare_cached(ends)?.query_row([], |_| Ok(()))?;
            }
        }
        let mut step = ScanStep { last: None, problems: vec![], malformed: vec![] };
        let mut first: Option<ScanKey> = None;
        let mut count = 0;
        let mut statement = conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(after.into_iter().flatten()))?;
        while let Some(row) = rows.next()? {
            let key = self.key_of(row)?;
            let before = step.last.as_ref().or(after);
            if before.is_some_and(|before| compare(before, &key) != Ordering::Less) {
                // A caller that continued from here might never reach the end.
                step.problems.push(format!("table {}: rows are out of order", self.table));
                step.last = None;
                return Ok(step);
            }
            step.malformed.extend(self.unreadable(row)?);
            first.get_or_insert_with(|| key.clone());
            step.last = Some(key);
            count += 1;
        }
        drop(rows);
        if let (Some(first), Some(last)) = (&first, &step.last) {
            step.problems.extend(self.not_found(conn, first, last)?);
        }
        if count < rows_max {
            step.last = None;
        }
        Ok(step)
    }

    fn key_of(&self, row: &Row<'_>) -> rusqlite::Result<ScanKey> {
        let value = |place| match row.get_ref(place)? {
            ValueRef::Text(text) => Ok(Value::Blob(text.to_vec())),
            value => Ok(value.try_into()?),
        };
        (0..self.key.len()).map(value).collect()
    }

    /// Reads every byte of a row's values. Returns the problems.
    fn unreadable(&self, row: &Row<'_>) -> Result<Vec<String>, Fault> {
        let mut problems = Vec::new();
        let mut found = |column: &str, what: &str| {
            problems.push(format!("table {}: column {column} holds {what}", self.table));
        };
        let first = self.key.len();
        for (place, column) in self.columns.iter().enumerate() {
            if let ValueRef::Text(text) = row.get_ref(first + place)?
                && std::str::from_utf8(text).is_err()
            {
                found(column, "text that is not UTF-8");
            }
        }
        for (at, place) in self.json.iter().enumerate() {
            let is_encrypted = match row.get_ref(first + *place)? {
                ValueRef::Text(text) => std::str::from_utf8(text).is_ok_and(is_sealed),
                _ => false,
            };
            if row.get::<_, Option<bool>>(first + self.columns.len() + at)? == Some(false) && !is_encrypted {
                found(&self.columns[*place], "a document that is not JSON");
            }
        }
        Ok(problems)
    }

    /// The rows that were just read and that searches do not find.
    fn not_found(&self, conn: &Connection, first: &ScanKey, last: &ScanKey) -> Result<Vec<String>, Fault> {
        let mut problems = Vec::new();
        for (what, sql) in &self.searches {
            let range = first.iter().chain(last);
            let missing: i64 =
                conn.prepare_cached(sql)?.query_row(params_from_iter(range), |row| row.get(0))?;
            if missing > 0 {
                problems.push(format!("table {}: rows that {what} does not find: {missing}", self.table));
            }
        }
        Ok(problems)
    }

    /// The key of the row that is followed by this many rows at the end; `None` if there are fewer.
    pub fn key_before_last(&self, conn: &Connection, rows: usize) -> Result<Option<ScanKey>, Fault> {
        let sql = format!(
            "SELECT {} FROM {} NOT INDEXED ORDER BY {} LIMIT 1 OFFSET {}",
            self.keys(""),
            quoted(&self.table),
            self.keys(" DESC"),
            limit(rows),
        );
        Ok(conn.prepare(&sql)?.query_row([], |row| self.key_of(row)).optional()?)
    }

    /// The lowest and highest number of a row; `None` if the table is empty.
    pub fn numbers(&self, conn: &Connection) -> Result<Option<(i64, i64)>, Fault> {
        let end = |order: &str| -> Result<Option<i64>, Fault> {
            let sql = format!(
                "SELECT rowid FROM {} NOT INDEXED ORDER BY rowid {order} LIMIT 1",
                quoted(&self.table)
            );
            Ok(conn.prepare(&sql)?.query_row([], |row| row.get(0)).optional()?)
        };
        Ok(end("ASC")?.zip(end("DESC")?))
    }
}

/// The findings of a scan of a whole database, see [`ScanStep`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanReport {
    pub problems: Vec<String>,
    pub malformed: Vec<String>,
}

impl ScanReport {
    pub fn of(problem: String) -> Self {
        ScanReport { problems: vec![problem], malformed: vec![] }
    }
}

/// Scans all tables at once, for a caller that can wait.
pub(crate) fn scan_all(conn: &Connection, rows_max: usize) -> Result<ScanReport, Fault> {
    let mut report = ScanReport::default();
    for table in tables(conn)? {
        let scan = TableScan::of(conn, &table)?;
        let mut last = None;
        loop {
            let step = scan.step(conn, last.as_ref(), rows_max)?;
            report.problems.extend(step.problems);
            report.malformed.extend(step.malformed);
            last = step.last;
            if last.is_none() {
                break;
            }
        }
    }
    Ok(report)
}

/// Compares keys in SQLite's order: numbers, then text, then bytes.
fn compare(a: &ScanKey, b: &ScanKey) -> Ordering {
    let class = |value: &Value| match value {
        Value::Null => 0,
        Value::Integer(_) | Value::Real(_) => 1,
        Value::Text(_) => 2,
        Value::Blob(_) => 3,
    };
    let one = |(a, b): (&Value, &Value)| match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        (Value::Real(a), Value::Real(b)) => a.total_cmp(b),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Blob(a), Value::Blob(b)) => a.cmp(b),
        (a, b) => class(a).cmp(&class(b)),
    };
    a.iter().zip(b).map(one).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// The number of a row is not the name of a column.
fn column(key: &str) -> String {
    if key == "rowid" { key.to_owned() } else { quoted(key) }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
