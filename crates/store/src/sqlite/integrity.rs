//! Invariants that every database satisfies between two transactions.

use super::damage::{CheckScope, read_structure};
use super::malformed::malformed_rows;
use super::scan::{ScanReport, scan_all};
use crate::counter_mismatch::CounterTable;
use crate::fault::Fault;
use crate::layout::{DEAD, JobTally, MARKED_JOBS, StoredCounts};
use punctual_core::limits;
use rusqlite::Connection;
use std::sync::LazyLock;

/// Rules between tables, each with a query that finds violations.
const RULES: &[(&str, &str)] = &[
    ("a live row without its job", "SELECT count(*) FROM live WHERE job NOT IN (SELECT id FROM jobs)"),
    ("a schedule without its job", "SELECT count(*) FROM schedules WHERE job NOT IN (SELECT id FROM jobs)"),
    ("a row in an unknown lane", "SELECT count(*) FROM live WHERE lane NOT IN (SELECT id FROM lanes)"),
    (
        "a lease of a session that no longer exists",
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
    (
        "a live row whose next check is too early, too late or missing",
        "SELECT count(*) FROM live WHERE look_at IS NOT CASE WHEN state = 2 THEN NULL \
         WHEN state = 0 AND (gates & 1) = 1 THEN min(available_at, coalesce(expires_at, available_at)) \
         ELSE expires_at END",
    ),
    (
        "a live row on a wait list without the gate for it, or behind that gate without a wait list",
        "SELECT count(*) FROM live WHERE (line IS NOT NULL) <> (state = 0 AND (gates & 8) = 8)",
    ),
    (
        "a schedule that is held although its job is not paused, or not held although the job is paused",
        "SELECT count(*) FROM schedules JOIN jobs ON jobs.id = job WHERE (due_at IS NULL) <> (mark = 1)",
    ),
    (
        "an execution that is held although its job is not paused, or not held although the job is paused",
        "SELECT count(*) FROM live JOIN jobs ON jobs.id = job WHERE state <> 2 AND (ties & 4) = 0 \
         AND ((gates & 16) = 16) <> (mark = 1)",
    ),
    (
        "an execution that waits for parents although all of them have finished",
        "SELECT count(*) FROM live WHERE state = 0 AND (gates & 2) = 2 \
         AND job NOT IN (SELECT child FROM dependencies)",
    ),
    (
        "a child whose parent is not flagged to resolve it",
        "SELECT count(*) FROM dependencies WHERE parent NOT IN (SELECT parent FROM resolutions) \
         AND NOT EXISTS (SELECT 1 FROM schedules WHERE job = parent AND (ties & 2) = 2) \
         AND NOT EXISTS (SELECT 1 FROM live WHERE job = parent AND (ties & 2) = 2)",
    ),
    (
        "occurrences behind the overlap gate with none ahead of them",
        "SELECT count(*) FROM live AS line WHERE state = 0 AND (gates & 4) = 4 AND NOT EXISTS \
         (SELECT 1 FROM live AS head WHERE head.job = line.job AND NOT (head.state = 0 AND (head.gates & 4) = 4))",
    ),
    (
        "an occurrence that is not flagged although others wait behind it",
        "SELECT count(*) FROM live AS head WHERE (ties & 1) = 0 AND EXISTS \
         (SELECT 1 FROM live AS line WHERE line.job = head.job AND line.state = 0 AND (line.gates & 4) = 4)",
    ),
    (
        "a deleted job with a schedule, a key, a dead letter or an execution that was not stopped",
        "SELECT count(*) FROM jobs WHERE mark = 4 AND (id IN (SELECT job FROM schedules) \
         OR id IN (SELECT job FROM job_keys) OR id IN (SELECT job FROM dead_letters) \
         OR id IN (SELECT job FROM live WHERE cancel_requested = 0))",
    ),
    (
        "a cancelled job with a schedule or an execution that was not stopped",
        "SELECT count(*) FROM jobs WHERE mark = 3 AND (id IN (SELECT job FROM schedules) \
         OR id IN (SELECT job FROM live WHERE cancel_requested = 0))",
    ),
    (
        "a failed job with open or future occurrences",
        "SELECT count(*) FROM jobs WHERE mark = 2 \
         AND (id IN (SELECT job FROM schedules) OR id IN (SELECT job FROM live))",
    ),
    (
        "a unique key that two unfinished jobs have",
        "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE settings LIKE '%unique_key%' AND mark <> 4 \
         AND (id IN (SELECT job FROM schedules) OR id IN (SELECT job FROM live)) \
         GROUP BY owner, json_extract(settings, '$.unique_key') HAVING count(*) > 1)",
    ),
    ("a key without its job", "SELECT count(*) FROM job_keys WHERE job NOT IN (SELECT id FROM jobs)"),
    (
        "a dead letter without its job",
        "SELECT count(*) FROM dead_letters WHERE job NOT IN (SELECT id FROM jobs)",
    ),
    (
        "notes of an occurrence that is not flagged as noted",
        "SELECT count(*) FROM notes AS n WHERE NOT EXISTS (SELECT 1 FROM live WHERE live.job = n.job \
         AND live.occurrence = n.occurrence AND (ties & 8) = 8) AND NOT EXISTS (SELECT 1 FROM dead_letters AS d \
         WHERE d.job = n.job AND d.occurrence = n.occurrence AND d.noted = 1)",
    ),
    (
        "an occurrence that is flagged as noted but has no notes",
        "SELECT (SELECT count(*) FROM live WHERE (ties & 8) = 8 AND NOT EXISTS (SELECT 1 FROM notes AS n \
         WHERE n.job = live.job AND n.occurrence = live.occurrence)) \
         + (SELECT count(*) FROM dead_letters AS d WHERE noted = 1 AND NOT EXISTS (SELECT 1 FROM notes AS n \
         WHERE n.job = d.job AND n.occurrence = d.occurrence))",
    ),
    (
        "a checkpoint without notes",
        "SELECT count(*) FROM checkpoints AS c WHERE NOT EXISTS \
         (SELECT 1 FROM notes AS n WHERE n.job = c.job AND n.occurrence = c.occurrence)",
    ),
    (
        "an occurrence that is both dead and open",
        "SELECT count(*) FROM dead_letters JOIN live USING (job, occurrence)",
    ),
    (
        "a number that may be assigned twice",
        "SELECT count(*) FROM schedules WHERE coalesce(numbered, fired) < \
         max(coalesce((SELECT max(occurrence) FROM live WHERE live.job = schedules.job), 0), \
         coalesce((SELECT max(occurrence) FROM history WHERE history.job = schedules.job), 0))",
    ),
    (
        "a cancel request that no heartbeat will deliver",
        "SELECT count(*) FROM live JOIN sessions ON sessions.id = session \
         WHERE state = 2 AND cancel_requested = 1 AND attention = 0",
    ),
];

/// Rules between counters and the rows they count, as [`RULES`]. Most follow from the description of the counters.
static COUNTER_RULES: LazyLock<Vec<(&str, String)>> = LazyLock::new(|| {
    let keyed = |table: CounterTable| format!("SELECT count(*) FROM ({})", table.wrong_keys());
    let of_jobs = |rows| {
        let columns = JobTally::COLUMNS.iter().filter(|column| column.rows == rows);
        let (names, sums): (Vec<_>, Vec<_>) =
            columns.map(|column| (column.name, format!("coalesce(sum({}), 0)", column.value()))).unzip();
        let (names, sums, from) = (names.join(", "), sums.join(", "), rows.from);
        format!("SELECT count(*) FROM job_tally WHERE ({names}) IS NOT (SELECT {sums} FROM {from})")
    };
    vec![
        ("a lane whose counters differ from its rows", keyed(CounterTable::Lanes)),
        ("a limiter whose counters differ from its rows", keyed(CounterTable::Limiters)),
        ("job counters that differ from the rows", of_jobs(MARKED_JOBS)),
        ("a dead letter counter that differs from the rows", of_jobs(DEAD)),
        ("missing job counters", "SELECT count(*) <> 1 FROM job_tally".to_owned()),
        (
            "an occurrence marked as sole although more is left of its job",
            "SELECT count(*) FROM live AS sole JOIN jobs ON jobs.id = sole.job WHERE (sole.ties & 128) = 128 \
             AND (mark <> 0 OR sole.job IN (SELECT job FROM schedules) OR EXISTS (SELECT 1 FROM live AS other \
             WHERE other.job = sole.job AND other.occurrence <> sole.occurrence))"
                .to_owned(),
        ),
    ]
});

/// All problems; empty if there are none.
pub(crate) fn problems(conn: &Connection) -> Result<Vec<String>, Fault> {
    // One snapshot for all rules, because the writer may commit between two of them.
    let _snapshot = conn.unchecked_transaction()?;
    let ScanReport { problems, malformed } = scan(conn)?;
    // Other queries on a damaged file are meaningless.
    if !problems.is_empty() {
        return Ok(problems);
    }
    let mut problems = malformed_rows(conn)?;
    if problems.is_empty() {
        // These problems name no rows. They are reported only if no table of the store is affected.
        problems = malformed;
    }
    problems.extend(broken(conn, RULES.iter().copied())?);
    problems.extend(counter_problems(conn)?);
    Ok(problems)
}

/// The problems of counters; empty if there are none.
pub(crate) fn counter_problems(conn: &Connection) -> Result<Vec<String>, Fault> {
    broken(conn, COUNTER_RULES.iter().map(|(rule, query)| (*rule, query.as_str())))
}

fn broken<'a>(
    conn: &Connection,
    rules: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<String>, Fault> {
    let mut problems = Vec::new();
    for (rule, query) in rules {
        let broken: i64 = conn.prepare_cached(query)?.query_row([], |row| row.get(0))?;
        if broken > 0 {
            problems.push(format!("{rule}: {broken}"));
        }
    }
    Ok(problems)
}

/// Damage of the file and values that cannot be read, whatever the tables mean.
pub(crate) fn file_problems(conn: &Connection) -> Result<Vec<String>, Fault> {
    let ScanReport { mut problems, malformed } = scan(conn)?;
    problems.extend(malformed);
    problems.truncate(limits::DAMAGE_LISTED_MAX);
    Ok(problems)
}

/// Damage of the file, and values that cannot be read.
pub(crate) fn scan(conn: &Connection) -> Result<ScanReport, Fault> {
    let problems = match read_structure(conn, CheckScope::File) {
        // The comparison of rows with indexes stops at some damage; the check of pages lists it.
        Err(fault) => match read_structure(conn, CheckScope::Pages) {
            Ok(problems) if !problems.is_empty() => problems,
            _ => return Err(fault),
        },
        Ok(problems) => problems,
    };
    if !problems.is_empty() {
        return Ok(ScanReport { problems, malformed: vec![] });
    }
    scan_all(conn, limits::CHECK_ROWS)
}
