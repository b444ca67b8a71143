//! What must be true of every database between two transactions, whatever happened before.

use super::fault::Fault;
use super::rows::all;
use rusqlite::Connection;

/// Rules between tables, each with a query for what breaks it.
const RULES: &[(&str, &str)] = &[
    ("a live row without its job", "SELECT count(*) FROM live WHERE job NOT IN (SELECT id FROM jobs)"),
    ("a schedule without its job", "SELECT count(*) FROM schedules WHERE job NOT IN (SELECT id FROM jobs)"),
    ("a row in an unknown lane", "SELECT count(*) FROM live WHERE lane NOT IN (SELECT id FROM lanes)"),
    (
        "a lease of a session that is gone",
        "SELECT count(*) FROM live WHERE state = 2 AND session NOT IN (SELECT id FROM sessions)",
    ),
    (
        "a live row whose columns contradict its state",
        "SELECT count(*) FROM live WHERE (state = 0) <> (gates <> 0) OR (state = 2) <> (session IS NOT NULL) \
         OR (state = 2) <> (claimed_at IS NOT NULL) OR (cancel_requested = 1 AND state <> 2)",
    ),
    (
        "an attempt that is both live and finished",
        "SELECT count(*) FROM live JOIN history USING (job, occurrence, attempt)",
    ),
];

/// Everything that is wrong; empty when all is well.
pub(crate) fn problems(conn: &Connection) -> Result<Vec<String>, Fault> {
    // One snapshot for all rules: between two of them the writer may commit.
    let _snapshot = conn.unchecked_transaction()?;
    let mut problems = file_problems(conn)?;
    for (rule, query) in RULES {
        let broken: i64 = conn.query_row(query, [], |row| row.get(0))?;
        if broken > 0 {
            problems.push(format!("{rule}: {broken}"));
        }
    }
    Ok(problems)
}

/// What SQLite itself finds wrong with the file.
pub(crate) fn file_problems(conn: &Connection) -> Result<Vec<String>, Fault> {
    let mut lines =
        all(&mut conn.prepare("PRAGMA integrity_check")?, [], |row| Ok(row.get::<_, String>(0)?))?;
    lines.retain(|line| line != "ok");
    Ok(lines)
}
