//! Invariants of every database between two transactions; the counterpart of `sqlite/integrity.rs`.

use crate::counter_mismatch::CounterTable;
use crate::mysql::counter_mismatch::SUM;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

/// Rules between tables, each with a query that finds violations.
const RULES: &[(&str, &str)] = &[
    ("a live row without its job", "SELECT COUNT(*) FROM live WHERE job NOT IN (SELECT id FROM jobs)"),
    ("a schedule without its job", "SELECT COUNT(*) FROM schedules WHERE job NOT IN (SELECT id FROM jobs)"),
    ("a row in an unknown lane", "SELECT COUNT(*) FROM live WHERE lane NOT IN (SELECT id FROM lanes)"),
    (
        "a lease of a session that no longer exists",
        "SELECT COUNT(*) FROM live WHERE state = 2 AND session NOT IN (SELECT id FROM sessions)",
    ),
    (
        "a live row whose columns contradict its state",
        "SELECT COUNT(*) FROM live WHERE (state = 0) <> (gates <> 0) OR (state = 2) <> (session IS NOT NULL) \
         OR (state = 2) <> (claimed_at IS NOT NULL) OR (cancel_requested AND state <> 2) \
         OR NOT queued_lane <=> IF(state = 1, lane, line)",
    ),
    (
        "an attempt that is both live and finished",
        "SELECT COUNT(*) FROM live JOIN history USING (job, occurrence, attempt)",
    ),
    (
        "an attempt that has finished twice",
        "SELECT COUNT(*) FROM (SELECT 1 FROM history GROUP BY job, occurrence, attempt HAVING COUNT(*) > 1) AS twice",
    ),
    (
        "a position that was assigned twice",
        "SELECT COUNT(*) FROM (SELECT 1 FROM history GROUP BY place HAVING COUNT(*) > 1) AS twice",
    ),
    (
        "a live row whose next check is too early, too late or missing",
        "SELECT COUNT(*) FROM live WHERE NOT look_at <=> CASE WHEN state = 2 THEN NULL \
         WHEN state = 0 AND (gates & 1) = 1 THEN LEAST(available_at, COALESCE(expires_at, available_at)) \
         ELSE expires_at END",
    ),
    (
        "a schedule that is held although its job is not paused, or not held although the job is paused",
        "SELECT COUNT(*) FROM schedules JOIN jobs ON jobs.id = job WHERE (due_at IS NULL) <> (mark = 1)",
    ),
    (
        "an execution that is held although its job is not paused, or not held although the job is paused",
        "SELECT COUNT(*) FROM live JOIN jobs ON jobs.id = job WHERE state <> 2 AND (ties & 4) = 0 \
         AND ((gates & 16) = 16) <> (mark = 1)",
    ),
    (
        "an execution that waits for parents although all of them have finished",
        "SELECT COUNT(*) FROM live WHERE state = 0 AND (gates & 2) = 2 \
         AND job NOT IN (SELECT child FROM dependencies)",
    ),
    (
        "a child whose parent is not flagged to resolve it",
        "SELECT COUNT(*) FROM dependencies WHERE parent NOT IN (SELECT parent FROM resolutions) \
         AND NOT EXISTS (SELECT 1 FROM schedules WHERE job = parent AND (ties & 2) = 2) \
         AND NOT EXISTS (SELECT 1 FROM live WHERE job = parent AND (ties & 2) = 2)",
    ),
    (
        "occurrences behind the overlap gate with none ahead of them",
        "SELECT COUNT(*) FROM live AS line WHERE state = 0 AND (gates & 4) = 4 AND NOT EXISTS \
         (SELECT 1 FROM live AS head WHERE head.job = line.job AND NOT (head.state = 0 AND (head.gates & 4) = 4))",
    ),
    (
        "an occurrence that is not flagged although others wait behind it",
        "SELECT COUNT(*) FROM live AS head WHERE (ties & 1) = 0 AND EXISTS \
         (SELECT 1 FROM live AS line WHERE line.job = head.job AND line.state = 0 AND (line.gates & 4) = 4)",
    ),
    (
        "a deleted job with a schedule, a key, a dead letter or an execution that was not stopped",
        "SELECT COUNT(*) FROM jobs WHERE mark = 4 AND (id IN (SELECT job FROM schedules) \
         OR id IN (SELECT job FROM job_keys) OR id IN (SELECT job FROM dead_letters) \
         OR id IN (SELECT job FROM live WHERE NOT cancel_requested))",
    ),
    (
        "a cancelled job with a schedule or an execution that was not stopped",
        "SELECT COUNT(*) FROM jobs WHERE mark = 3 AND (id IN (SELECT job FROM schedules) \
         OR id IN (SELECT job FROM live WHERE NOT cancel_requested))",
    ),
    (
        "a failed job with open or future occurrences",
        "SELECT COUNT(*) FROM jobs WHERE mark = 2 \
         AND (id IN (SELECT job FROM schedules) OR id IN (SELECT job FROM live))",
    ),
    (
        "a unique key that two unfinished jobs have",
        "SELECT COUNT(*) FROM (SELECT 1 FROM jobs WHERE settings LIKE '%unique_key%' AND mark <> 4 \
         AND (id IN (SELECT job FROM schedules) OR id IN (SELECT job FROM live)) \
         AND JSON_VALUE(settings, '$.unique_key') IS NOT NULL \
         GROUP BY owner, JSON_VALUE(settings, '$.unique_key') HAVING COUNT(*) > 1) AS doubled",
    ),
    ("a key without its job", "SELECT COUNT(*) FROM job_keys WHERE job NOT IN (SELECT id FROM jobs)"),
    (
        "a dead letter without its job",
        "SELECT COUNT(*) FROM dead_letters WHERE job NOT IN (SELECT id FROM jobs)",
    ),
    (
        "notes of an occurrence that is not flagged as noted",
        "SELECT COUNT(*) FROM notes AS n WHERE NOT EXISTS (SELECT 1 FROM live WHERE live.job = n.job \
         AND live.occurrence = n.occurrence AND (ties & 8) = 8) AND NOT EXISTS (SELECT 1 FROM dead_letters AS d \
         WHERE d.job = n.job AND d.occurrence = n.occurrence AND d.noted)",
    ),
    (
        "an occurrence that is flagged as noted but has no notes",
        "SELECT (SELECT COUNT(*) FROM live WHERE (ties & 8) = 8 AND NOT EXISTS (SELECT 1 FROM notes AS n \
         WHERE n.job = live.job AND n.occurrence = live.occurrence)) \
         + (SELECT COUNT(*) FROM dead_letters AS d WHERE noted AND NOT EXISTS (SELECT 1 FROM notes AS n \
         WHERE n.job = d.job AND n.occurrence = d.occurrence))",
    ),
    (
        "a checkpoint without notes",
        "SELECT COUNT(*) FROM checkpoints AS c WHERE NOT EXISTS \
         (SELECT 1 FROM notes AS n WHERE n.job = c.job AND n.occurrence = c.occurrence)",
    ),
    (
        "an occurrence that is both dead and open",
        "SELECT COUNT(*) FROM dead_letters JOIN live USING (job, occurrence)",
    ),
    (
        "a number that may be assigned twice",
        "SELECT COUNT(*) FROM schedules WHERE COALESCE(numbered, fired) < \
         GREATEST(COALESCE((SELECT max(occurrence) FROM live WHERE live.job = schedules.job), 0), \
         COALESCE((SELECT max(occurrence) FROM history WHERE history.job = schedules.job), 0))",
    ),
    (
        "a cancel request that no heartbeat will deliver",
        "SELECT COUNT(*) FROM live JOIN sessions ON sessions.id = session \
         WHERE state = 2 AND cancel_requested AND NOT attention",
    ),
    (
        "a live row on a wait list without the gate for it, or behind that gate without a wait list",
        "SELECT COUNT(*) FROM live WHERE (line IS NOT NULL) <> (state = 0 AND (gates & 8) = 8)",
    ),
    (
        "an occurrence marked as sole although more is left of its job",
        "SELECT COUNT(*) FROM live AS sole JOIN jobs ON jobs.id = sole.job WHERE (sole.ties & 128) = 128 \
         AND (mark <> 0 OR sole.job IN (SELECT job FROM schedules) OR EXISTS (SELECT 1 FROM live AS other \
         WHERE other.job = sole.job AND other.occurrence <> sole.occurrence))",
    ),
];

/// All problems; empty if there are none.
pub(crate) async fn problems(conn: &mut Conn) -> Vec<String> {
    let mut problems = Vec::new();
    let counters =
        CounterTable::ALL.map(|table| format!("SELECT COUNT(*) FROM ({}) AS wrong", table.sql(SUM)));
    let counters = counters.iter().map(|query| ("counters that differ from their rows", query.as_str()));
    for (rule, query) in RULES.iter().copied().chain(counters) {
        let broken: Option<i64> = conn.query_first(query).await.unwrap();
        if broken != Some(0) {
            problems.push(format!("{rule}: {broken:?}"));
        }
    }
    problems
}
