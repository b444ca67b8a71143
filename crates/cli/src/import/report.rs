//! The report of an import, for people.

use super::schedule::{FireRow, FireTables};
use super::{Import, ImportEntry};
use punctual_config::output::{one_line, shortened, time};
use serde_json::Value;

/// Characters of an entry in a line.
const SOURCE_CHARS_MAX: usize = 100;

/// Every entry, and how many there are of each kind.
pub fn told(import: &Import, program: &str) -> String {
    let mut lines = Vec::new();
    for entry in &import.entries {
        lines.extend(entry_lines(entry, program));
    }
    if !import.notes.is_empty() {
        lines.push(String::new());
        lines.extend(import.notes.iter().map(|note| format!("note: {note}")));
    }
    let count =
        |is_one: fn(&ImportEntry) -> bool| import.entries.iter().filter(|entry| is_one(entry)).count();
    let impossible = count(|entry| entry.impossible.is_some());
    let changed = count(|entry| !entry.changes.is_empty());
    let total = import.entries.len();
    let entries = if total == 1 { "entry" } else { "entries" };
    lines.push(String::new());
    lines.push(format!(
        "{total} {entries}: {} imported, {changed} imported with changed meaning, {impossible} not possible",
        total - changed - impossible
    ));
    lines.join("\n")
}

fn entry_lines(entry: &ImportEntry, program: &str) -> Vec<String> {
    let names: Vec<&str> =
        entry.jobs.iter().filter_map(|job| job.get("name").and_then(Value::as_str)).collect();
    let verdict = match (&entry.impossible, entry.changes.is_empty()) {
        (Some(_), _) => "not possible".to_owned(),
        (None, true) => format!("imported as {}", one_line(&names.join(", "))),
        (None, false) => format!("changed meaning, imported as {}", one_line(&names.join(", "))),
    };
    let source = shortened(&one_line(&entry.source), SOURCE_CHARS_MAX);
    let mut lines = vec![format!("{}: {source}", one_line(&entry.place)), format!("    {verdict}")];
    lines.extend(entry.impossible.iter().map(|why| format!("    - {}", one_line(why))));
    for change in &entry.changes {
        lines.push(format!("    - {}", one_line(&change.what)));
        lines.extend(change.fires.iter().flat_map(|fires| table_lines(fires, program)));
    }
    lines
}

fn table_lines(FireTables { before, after }: &FireTables, program: &str) -> Vec<String> {
    let rows = |fires: &[FireRow]| -> Vec<String> {
        if fires.is_empty() {
            return vec!["        no runs".to_owned()];
        }
        fires.iter().map(|fire| format!("        {}  {}", time(fire.utc), fire.local)).collect()
    };
    let mut lines = Vec::new();
    if let Some(before) = before {
        lines.push(format!("      runs of {program}:"));
        lines.extend(rows(before));
    }
    lines.push("      runs of Punctual:".to_owned());
    lines.extend(rows(after));
    lines
}
