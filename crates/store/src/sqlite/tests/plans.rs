//! Query plans of the frequent statements: they must search an index, never scan a table or sort. Costs
//! must follow the work that is due.

use super::{apply, claim, future_job, job, open_session, report, submit};
use crate::sqlite::active::{HAS_WORK, NEXT_LANE_WITH_WORK};
use crate::sqlite::counters::{JOB_COUNTERS, LANE_COUNTERS, STATUS_OF_JOB};
use crate::sqlite::directory::{SECRET, SECRETS, TOKEN, TOKENS, USER, USER_BY_EMAIL, USERS};
use crate::sqlite::logs::{LAST_LINES, LINES_OF_EXECUTION, OLDEST_LINES};
use crate::sqlite::maintenance::{JOBS_AFTER, LAST_COMPLETED, PURGEABLE, RETAIN_PACES, RETAIN_REQUESTS};
use crate::sqlite::names::{LANE_BY_NAME, LANE_BY_NUMBER};
use crate::sqlite::reads::{
    ACTIVE_LIVE, ACTIVE_SCHEDULES, AHEAD, DEAD_LETTER, DEAD_LETTERS, DEAD_LETTERS_OF_JOB, DUE_LIVE,
    DUE_SCHEDULES, FINISHED_AFTER, FINISHED_AT, FINISHED_BEFORE, HISTORY_OF_JOB, LATEST_DEAD_LETTER,
    LATEST_JOBS, MARKED_JOBS, NAME_OF_JOB, NOTES_OF_JOB, OLDEST_OF_HEAD, OPEN_BEFORE, OPEN_OF_JOB,
    OPEN_OF_JOB_BEFORE, OWNER_OF_JOB, RUNNING, TAGGED_JOBS, TAGS_OF_JOB, TOKEN_OF_SESSION, WORKER_OF_SESSION,
};
use crate::sqlite::rows::FORGET_SOLE;
use crate::sqlite::tx::{
    CHECKPOINT, CHILDREN, COUNT_OPEN, FIRST_BEHIND, FIRST_IN_LINE, FIRST_OF_LANE, FORGET_NOTES,
    FORGET_PARENTS, FORGET_TAGS, HAS_OPEN_NOT_IN_LINE, HAS_PARENT, IS_UNFINISHED, LAST_OF_LANE,
    LENGTHEN_SKIPPED, LIVE_OF_SESSION, NEXT_OF_LANE, SCHEDULE_OF_JOB,
};
use crate::sqlite::unused::FORGET_LANES;
use crate::sqlite::{LogCore, SqliteCore};
use punctual_core::ports::Outcome;
use rusqlite::Connection;

/// Statements of the main database, and the index that each must search.
const SEARCHES: &[(&str, &str)] = &[
    (FIRST_OF_LANE, "live USING COVERING INDEX live_claim (lane=?)"),
    (HAS_WORK, "live USING COVERING INDEX live_claim (lane=?)"),
    (LANE_BY_NAME, "lanes USING COVERING INDEX sqlite_autoindex_lanes_1 (queue=? AND job_type=?)"),
    (LANE_BY_NUMBER, "lanes USING INTEGER PRIMARY KEY (rowid=?)"),
    (FORGET_LANES, "jobs USING COVERING INDEX jobs_lane (lane=?)"),
    (NEXT_LANE_WITH_WORK, "live USING COVERING INDEX live_claim (lane>?)"),
    (NEXT_OF_LANE, "live USING COVERING INDEX live_claim (lane=? AND (rank,job,occurrence)>(?,?,?))"),
    (LAST_OF_LANE, "live USING COVERING INDEX live_claim (lane=? AND (rank,job,occurrence)<(?,?,?))"),
    (DUE_SCHEDULES, "schedules USING INDEX schedules_due (segment=? AND due_at<?)"),
    (DUE_LIVE, "live USING INDEX live_due (segment=? AND look_at>? AND look_at<?)"),
    (FIRST_IN_LINE, "live USING INDEX live_line (line=?)"),
    (LIVE_OF_SESSION, "live USING INDEX live_session (session=?)"),
    (COUNT_OPEN, "live USING PRIMARY KEY (job=?)"),
    (LENGTHEN_SKIPPED, "skipped USING INDEX skipped_job (job=? AND last=?)"),
    (SCHEDULE_OF_JOB, "schedules USING PRIMARY KEY (job=?)"),
    (HISTORY_OF_JOB, "history USING INDEX history_job (job=? AND (occurrence,attempt)<(?,?))"),
    (OPEN_OF_JOB, "live USING PRIMARY KEY (job=?)"),
    (OPEN_OF_JOB_BEFORE, "live USING PRIMARY KEY (job=? AND occurrence<?)"),
    (LATEST_JOBS, "jobs USING PRIMARY KEY (id<?)"),
    (MARKED_JOBS, "jobs USING INDEX jobs_marked (mark=? AND id<?)"),
    (TAGGED_JOBS, "job_tags USING PRIMARY KEY (tag=? AND job<?)"),
    (TAGS_OF_JOB, "job_tags USING COVERING INDEX job_tags_job (job=?)"),
    (FORGET_TAGS, "job_tags USING COVERING INDEX job_tags_job (job=?)"),
    (ACTIVE_LIVE, "live USING PRIMARY KEY (job<?)"),
    (ACTIVE_SCHEDULES, "schedules USING PRIMARY KEY (job<?)"),
    (CHILDREN, "dependencies USING PRIMARY KEY (parent=?)"),
    (HAS_PARENT, "dependencies USING COVERING INDEX dependencies_child (child=?)"),
    (FORGET_PARENTS, "dependencies USING COVERING INDEX dependencies_child (child=?)"),
    (FIRST_BEHIND, "live USING PRIMARY KEY (job=?)"),
    (HAS_OPEN_NOT_IN_LINE, "live USING PRIMARY KEY (job=?)"),
    (IS_UNFINISHED, "live USING PRIMARY KEY (job=?)"),
    (JOBS_AFTER, "jobs USING PRIMARY KEY (id>?)"),
    (LAST_COMPLETED, "history USING INDEX history_job (job=?)"),
    (PURGEABLE, "jobs USING INDEX jobs_marked (mark=?)"),
    (RETAIN_PACES, "limiter_paces USING INTEGER PRIMARY KEY (rowid=?)"),
    (RETAIN_REQUESTS, "requests USING COVERING INDEX requests_begun (begun_at<?)"),
    (AHEAD, "live USING COVERING INDEX live_claim (lane=? AND (rank,job,occurrence)<(?,?,?))"),
    (FINISHED_AFTER, "history USING INTEGER PRIMARY KEY (rowid>?)"),
    (FINISHED_BEFORE, "history USING INTEGER PRIMARY KEY (rowid<?)"),
    (FINISHED_AT, "history USING INTEGER PRIMARY KEY (rowid=?)"),
    (OPEN_BEFORE, "live USING PRIMARY KEY ((job,occurrence)<(?,?))"),
    (NAME_OF_JOB, "jobs USING PRIMARY KEY (id=?)"),
    (WORKER_OF_SESSION, "sessions USING INTEGER PRIMARY KEY (rowid=?)"),
    (RUNNING, "live USING INDEX live_session ((session,job,occurrence)>(?,?,?))"),
    (OLDEST_OF_HEAD, "live USING INDEX live_claim (lane=?)"),
    (FORGET_SOLE, "live USING PRIMARY KEY (job=?)"),
    (STATUS_OF_JOB, "jobs USING PRIMARY KEY (id=?)"),
    (CHECKPOINT, "checkpoints USING PRIMARY KEY (job=? AND occurrence=?)"),
    (FORGET_NOTES[0], "notes USING PRIMARY KEY (job=?)"),
    (FORGET_NOTES[1], "checkpoints USING PRIMARY KEY (job=?)"),
    (NOTES_OF_JOB, "notes USING PRIMARY KEY (job=? AND occurrence<?)"),
    (DEAD_LETTER, "dead_letters USING INDEX dead_letters_occurrence (job=? AND occurrence=?)"),
    (LATEST_DEAD_LETTER, "dead_letters USING INDEX dead_letters_occurrence (job=?)"),
    (DEAD_LETTERS, "dead_letters USING INTEGER PRIMARY KEY (rowid<?)"),
    (OWNER_OF_JOB, "jobs USING PRIMARY KEY (id=?)"),
    (TOKEN_OF_SESSION, "sessions USING INTEGER PRIMARY KEY (rowid=?)"),
    (TOKEN, "tokens USING PRIMARY KEY (id=?)"),
    (TOKENS, "tokens USING PRIMARY KEY (id>?)"),
    (USER, "users USING PRIMARY KEY (id=?)"),
    (USER_BY_EMAIL, "users USING INDEX sqlite_autoindex_users_2 (email=?)"),
    (USERS, "users USING PRIMARY KEY (id>?)"),
    (SECRET, "secrets USING PRIMARY KEY (id=?)"),
    (SECRETS, "secrets USING PRIMARY KEY (id>?)"),
    (DEAD_LETTERS_OF_JOB, "dead_letters USING INDEX dead_letters_job (job=? AND rowid<?)"),
];

#[test]
fn hot_statements_search_an_index_in_a_full_database() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    fill(&mut core);
    for (sql, expected) in SEARCHES {
        check(core.connection(), sql, expected);
    }
}

#[test]
fn statistics_do_not_lead_the_planner_astray() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    fill(&mut core);
    core.connection().execute_batch("ANALYZE").unwrap();
    for (sql, expected) in SEARCHES {
        check(core.connection(), sql, expected);
    }
}

/// Everything that an overview reads: tables with one row for each lane in use, or with one row.
#[test]
fn a_glance_at_everything_reads_counts_and_no_rows() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    fill(&mut core);
    for (sql, table) in [(LANE_COUNTERS, "lane_tallies"), (JOB_COUNTERS, "job_tally")] {
        let plan = format!("EXPLAIN QUERY PLAN {sql}");
        let mut explain = core.connection().prepare(&plan).unwrap();
        let steps: Vec<String> =
            explain.query_map([], |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap();
        assert!(steps.iter().all(|step| step.split(' ').nth(1) == Some(table)), "{sql}\n{steps:#?}");
    }
    let rows: i64 =
        core.connection().query_row("SELECT count(*) FROM lane_tallies", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1, "a row for each lane, whatever waits in it");
}

#[test]
fn log_lines_are_found_by_their_execution() {
    let logs = LogCore::open_in_memory().unwrap();
    let expected = "lines USING INDEX lines_execution (job=? AND occurrence=? AND attempt=? AND rowid>?)";
    check(logs.connection(), LINES_OF_EXECUTION, expected);
    let expected = "lines USING INDEX lines_execution (job=? AND occurrence=? AND attempt=?)";
    check(logs.connection(), LAST_LINES, expected);
}

#[test]
fn the_oldest_log_lines_are_read_in_the_order_of_the_table() {
    let logs = LogCore::open_in_memory().unwrap();
    let mut explain = logs.connection().prepare(&format!("EXPLAIN QUERY PLAN {OLDEST_LINES}")).unwrap();
    let steps: Vec<String> =
        explain.query_map([1_i64], |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(steps, ["SCAN lines"], "its first rows, and no sorting");
}

/// Many executions that wait behind gates, run, are queued, finished or dead, and future ones.
fn fill(core: &mut SqliteCore) {
    let session = open_session(core);
    let workers = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100) \
         INSERT INTO workers (name) SELECT 'worker ' || n FROM n";
    core.connection().execute_batch(workers).unwrap();
    let lanes = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 100) \
         INSERT INTO lanes (queue, job_type) SELECT 'queue ' || n, 'noop' FROM n";
    core.connection().execute_batch(lanes).unwrap();
    apply(core, submit((0..3_000).map(job)));
    apply(core, submit((3_000..6_000).map(|n| future_job(n, n as i64))));
    let failing = claim(core, session, 1, 1_000);
    report(core, session, &failing, Outcome::Failed { error: "no".to_owned(), retryable: true });
    let succeeding = claim(core, session, 2, 1_000);
    report(core, session, &succeeding, Outcome::Succeeded { result: None });
    let dying = claim(core, session, 3, 100);
    report(core, session, &dying, Outcome::Failed { error: "no".to_owned(), retryable: false });
    claim(core, session, 4, 400);
}

fn check(conn: &Connection, sql: &str, expected: &str) {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = explain.parameter_count();
    let nothing = rusqlite::params_from_iter(std::iter::repeat_n(rusqlite::types::Null, parameters));
    let steps = explain.query_map(nothing, |row| row.get::<_, String>(3)).unwrap();
    let steps: Vec<String> = steps.map(Result::unwrap).collect();
    // Counting the rows of a bounded subquery scans its result, not a table.
    let walks = |step: &String| step.starts_with("SCAN") && !step.starts_with("SCAN (subquery");
    let sorts = |step: &String| step.contains("TEMP B-TREE");
    assert!(!steps.iter().any(|step| walks(step) || sorts(step)), "{sql}\n{steps:#?}");
    assert!(steps.iter().any(|step| step == &format!("SEARCH {expected}")), "{sql}\n{steps:#?}");
}
