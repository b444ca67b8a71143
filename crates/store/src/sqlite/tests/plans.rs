//! Query plans of the frequent statements: they must search an index, never scan a table or sort. Costs
//! must follow the work that is due.

use super::{apply, claim, future_job, job, open_session, report, submit};
use crate::reads::ReadKind;
use crate::sqlite::active_lanes::{HAS_WORK, NEXT_LANE_WITH_WORK};
use crate::sqlite::counters::STATUS_OF_JOB;
use crate::sqlite::logs::OLDEST_LINES;
use crate::sqlite::maintenance::{JOBS_AFTER, LAST_COMPLETED, PURGEABLE, RETAIN_PACES, RETAIN_REQUESTS};
use crate::sqlite::names::{LANE_BY_NAME, LANE_BY_NUMBER};
use crate::sqlite::reads::statements::{ACTIVE_LIVE, ACTIVE_SCHEDULES, statement};
use crate::sqlite::rows::FORGET_SOLE;
use crate::sqlite::tx::{
    CHILDREN, COUNT_OPEN, DEAD_LETTER, FIRST_BEHIND, FIRST_IN_LINE, FIRST_OF_LANE, FORGET_NOTES,
    FORGET_PARENTS, FORGET_TAGS, HAS_OPEN_NOT_IN_LINE, HAS_PARENT, IS_UNFINISHED, LAST_OF_LANE,
    LATEST_DEAD_LETTER, LENGTHEN_SKIPPED, LIVE_OF_SESSION, NEXT_OF_LANE, SCHEDULE_OF_JOB,
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
    (statement(ReadKind::DueSchedules), "schedules USING INDEX schedules_due (segment=? AND due_at<?)"),
    (statement(ReadKind::DueLive), "live USING INDEX live_due (segment=? AND look_at>? AND look_at<?)"),
    (FIRST_IN_LINE, "live USING INDEX live_line (line=?)"),
    (LIVE_OF_SESSION, "live USING INDEX live_session (session=?)"),
    (COUNT_OPEN, "live USING PRIMARY KEY (job=?)"),
    (LENGTHEN_SKIPPED, "skipped USING INDEX skipped_job (job=? AND last=?)"),
    (SCHEDULE_OF_JOB, "schedules USING PRIMARY KEY (job=?)"),
    (
        statement(ReadKind::HistoryOfJob),
        "history USING INDEX history_job (job=? AND (occurrence,attempt)<(?,?))",
    ),
    (statement(ReadKind::OpenOfJobs), "live USING PRIMARY KEY (job=?)"),
    (statement(ReadKind::OpenOfJobBefore), "live USING PRIMARY KEY (job=? AND occurrence<?)"),
    (statement(ReadKind::LatestJobs), "jobs USING PRIMARY KEY (id<?)"),
    (statement(ReadKind::MarkedJobs), "jobs USING INDEX jobs_marked (mark=? AND id<?)"),
    (statement(ReadKind::TaggedJobs), "job_tags USING PRIMARY KEY (tag=? AND job<?)"),
    (statement(ReadKind::ScheduledJobs), "schedules USING PRIMARY KEY (job<?)"),
    (statement(ReadKind::StandingOfJobs), "live USING PRIMARY KEY (job=?)"),
    (statement(ReadKind::TagsOfJobs), "job_tags USING COVERING INDEX job_tags_job (job=?)"),
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
    (
        statement(ReadKind::Ahead),
        "earlier USING COVERING INDEX live_claim (lane=? AND (rank,job,occurrence)<(?,?,?))",
    ),
    (statement(ReadKind::FinishedAfter), "history USING INTEGER PRIMARY KEY (rowid>?)"),
    (statement(ReadKind::RunTimesAfter), "history USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
    (statement(ReadKind::FinishedBefore), "history USING INTEGER PRIMARY KEY (rowid<?)"),
    (statement(ReadKind::FinishedAt), "history USING INTEGER PRIMARY KEY (rowid=?)"),
    (statement(ReadKind::LanesOfQueue), "lanes USING COVERING INDEX sqlite_autoindex_lanes_1 (queue=?)"),
    (statement(ReadKind::HeadsOfLanes), "live USING INDEX live_claim (lane=?)"),
    (statement(ReadKind::OpenBefore), "live USING PRIMARY KEY ((job,occurrence)<(?,?))"),
    (statement(ReadKind::NamesOfJobs), "jobs USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::Running), "sessions USING INTEGER PRIMARY KEY (rowid=?)"),
    (statement(ReadKind::Running), "live USING INDEX live_session ((session,job,occurrence)>(?,?,?))"),
    (statement(ReadKind::Execution), "live USING PRIMARY KEY (job=? AND occurrence=?) LEFT-JOIN"),
    (
        statement(ReadKind::Execution),
        "history USING INDEX history_job (job=? AND occurrence=? AND attempt=?) LEFT-JOIN",
    ),
    (statement(ReadKind::OpenExecutions), "live USING PRIMARY KEY (job=? AND occurrence=?)"),
    (FORGET_SOLE, "live USING PRIMARY KEY (job=?)"),
    (STATUS_OF_JOB, "jobs USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::Checkpoint), "checkpoints USING PRIMARY KEY (job=? AND occurrence=?)"),
    (FORGET_NOTES[0], "notes USING PRIMARY KEY (job=?)"),
    (FORGET_NOTES[1], "checkpoints USING PRIMARY KEY (job=?)"),
    (statement(ReadKind::NotesOfJob), "notes USING PRIMARY KEY (job=? AND occurrence<?)"),
    (DEAD_LETTER, "dead_letters USING INDEX dead_letters_occurrence (job=? AND occurrence=?)"),
    (LATEST_DEAD_LETTER, "dead_letters USING INDEX dead_letters_occurrence (job=?)"),
    (statement(ReadKind::DeadLetters), "dead_letters USING INTEGER PRIMARY KEY (rowid<?)"),
    (statement(ReadKind::KeyHolder), "job_keys USING PRIMARY KEY (owner=? AND kind=? AND key=?)"),
    (statement(ReadKind::OwnersOfJobs), "jobs USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::TokenOfSession), "sessions USING INTEGER PRIMARY KEY (rowid=?)"),
    (statement(ReadKind::Token), "tokens USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::Tokens), "tokens USING PRIMARY KEY (id>?)"),
    (statement(ReadKind::User), "users USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::UserByEmail), "users USING INDEX sqlite_autoindex_users_2 (email=?)"),
    (statement(ReadKind::Users), "users USING PRIMARY KEY (id>?)"),
    (statement(ReadKind::Secret), "secrets USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::Secrets), "secrets USING PRIMARY KEY (id>?)"),
    (statement(ReadKind::Document), "documents USING PRIMARY KEY (id=?)"),
    (statement(ReadKind::Documents), "documents USING PRIMARY KEY (id>?)"),
    (statement(ReadKind::DeadLettersOfJob), "dead_letters USING INDEX dead_letters_job (job=? AND rowid<?)"),
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
fn statistics_do_not_change_the_plans() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    fill(&mut core);
    core.connection().execute_batch("ANALYZE").unwrap();
    for (sql, expected) in SEARCHES {
        check(core.connection(), sql, expected);
    }
}

/// Everything that an overview reads: tables with one row for each lane in use, or with one row.
#[test]
fn an_overview_reads_counters_and_no_rows() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    fill(&mut core);
    let is_short = |step: &String| {
        ["lane_tallies", "job_tally", "busy", "(subquery"]
            .iter()
            .any(|table| step.starts_with(&format!("SCAN {table}")))
    };
    for sql in [ReadKind::Depths, ReadKind::JobCounts].map(statement) {
        let steps = steps_of(core.connection(), sql);
        assert!(!steps.iter().any(|step| step.starts_with("SCAN") && !is_short(step)), "{sql}\n{steps:#?}");
    }
    let heads = "SEARCH live USING INDEX live_claim (lane=?)".to_owned();
    assert!(steps_of(core.connection(), statement(ReadKind::Depths)).contains(&heads));
    let rows: i64 =
        core.connection().query_row("SELECT count(*) FROM lane_tallies", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1, "one row for each lane, however many executions wait");
}

#[test]
fn log_lines_are_found_by_their_execution() {
    let logs = LogCore::open_in_memory().unwrap();
    let expected = "lines USING INDEX lines_execution (job=? AND occurrence=? AND attempt=? AND rowid>?)";
    check(logs.connection(), statement(ReadKind::LinesOfExecution), expected);
    let expected = "lines USING INDEX lines_execution (job=? AND occurrence=? AND attempt=? AND rowid<?)";
    check(logs.connection(), statement(ReadKind::LastLines), expected);
}

#[test]
fn the_oldest_log_lines_are_read_in_the_order_of_the_table() {
    let logs = LogCore::open_in_memory().unwrap();
    let mut explain = logs.connection().prepare(&format!("EXPLAIN QUERY PLAN {OLDEST_LINES}")).unwrap();
    let steps: Vec<String> =
        explain.query_map([1_i64], |row| row.get(3)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(steps, ["SCAN lines"], "reads only the first rows and does not sort");
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
    report(core, session, &failing, Outcome::failed("no".to_owned()));
    let succeeding = claim(core, session, 2, 1_000);
    report(core, session, &succeeding, Outcome::Succeeded { result: None });
    let dying = claim(core, session, 3, 100);
    report(core, session, &dying, Outcome::failed_for_good("no".to_owned()));
    claim(core, session, 4, 400);
}

fn steps_of(conn: &Connection, sql: &str) -> Vec<String> {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let parameters = explain.parameter_count();
    let nothing = rusqlite::params_from_iter(std::iter::repeat_n(rusqlite::types::Null, parameters));
    let steps = explain.query_map(nothing, |row| row.get::<_, String>(3)).unwrap();
    steps.map(Result::unwrap).collect()
}

fn check(conn: &Connection, sql: &str, expected: &str) {
    let steps = steps_of(conn, sql);
    // Counting the rows of a bounded subquery scans its result, not a table.
    let is_short = |step: &&str| ["(subquery", "CONSTANT ROW", "one"].iter().any(|of| step.starts_with(of));
    let walks = |step: &String| step.strip_prefix("SCAN ").is_some_and(|of| !is_short(&of));
    let sorts = |step: &String| step.contains("TEMP B-TREE");
    assert!(!steps.iter().any(|step| walks(step) || sorts(step)), "{sql}\n{steps:#?}");
    assert!(steps.iter().any(|step| step == &format!("SEARCH {expected}")), "{sql}\n{steps:#?}");
}
