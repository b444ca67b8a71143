//! The statements that lock and write search an index and sort nothing, on each server, in a database with a hundred
//! thousand queued and as many waiting executions.

use super::database::query;
use super::database::{TestDatabase, client};
use crate::directory::DirectoryStatements;
use crate::mysql::MySqlOptions;
use crate::mysql::connection::Connection;
use crate::mysql::galera::{TOUCH_LIVE, TOUCH_QUEUES, TOUCH_SESSIONS};
use crate::mysql::maintenance::OLD_HISTORY;
use crate::mysql::migrate::prepare;
use crate::mysql::names::{FIND_WORKERS, LANES_ABOVE, LANES_BY_NAME, LANES_BY_NUMBER};
use crate::mysql::tables::statements::*;
use crate::mysql::tables::{LANES_WITH_WORK, statement};
use crate::server::changes::TableChange;
use crate::server::logs::LogTables;
use crate::server::maintenance::MaintenanceStatements;
use crate::server::unused::UnusedStatements;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};
use punctual_core::readmission::QueuePosition;

/// The key of the n-th job of [`FILLING`].
fn key(number: u128) -> String {
    format!("{number:032x}")
}

/// A list of two rows that begin with the id of a job, followed by this many numbers.
fn list(numbers: usize) -> Value {
    let rest = ",1".repeat(numbers);
    Value::from(format!("[[\"{}\"{rest}],[\"{}\"{rest}]]", key(4_000), key(90_000)))
}

fn search(sql: &str, values: Vec<Value>, table: &'static str, index: &'static str) -> Search {
    Search { sql: sql.to_owned(), values, table, index }
}

/// A statement, and the table and index that it must search.
struct Search {
    sql: String,
    values: Vec<Value>,
    table: &'static str,
    index: &'static str,
}

fn searches() -> Vec<Search> {
    let number = Value::Int;
    let id = || Value::Bytes(4_000_u128.to_be_bytes().to_vec());
    let numbers = || Value::from("[[1,1,1,1,1,1,1],[2,1,1,1,1,1,1]]");
    let pairs = || Value::from(format!("[[\"{}\",\"{}\"]]", key(1), key(2)));
    let names = || Value::from(format!("[[\"ann\",0,\"key 7\",\"{}\"]]", key(7)));
    let heads = [1, 2, 3].map(|lane| head_of_lane(lane, 100)).join(" UNION ALL ");
    let locks = [1, 2, 3].map(|lane| lock_in_lane(lane, 100)).join(" UNION ALL ");
    let [history, lines, skipped] = Connection::PURGE;
    let before = QueuePosition { rank: 5_000, ..QueuePosition::LAST };
    let ends = [1, 2, 3].map(|lane| end_of_lane(lane, before, 100)).join(" UNION ALL ");
    vec![
        search(CLAIM, vec![number(1), number(100)], "live", "live_claim"),
        search(CLAIM, vec![number(1), number(1)], "live", "live_claim"),
        search(&heads, vec![], "live", "live_claim"),
        search(&locks, vec![], "live", "live_claim"),
        search(LANES_WITH_WORK, vec![], "live", "live_claim"),
        search(&ends, vec![], "live", "live_claim"),
        search(LANES_OF_QUEUE, vec![Value::from("mail")], "lanes", "lanes_name"),
        search(SESSIONS, vec![numbers()], "sessions", "PRIMARY"),
        search(LOST_SESSIONS, vec![], "sessions", "sessions_lost"),
        search(EMBEDDED_SESSIONS, vec![], "sessions", "sessions_embedded"),
        search(&JOBS, vec![list(1)], "jobs", "PRIMARY"),
        search(SCHEDULES, vec![list(0)], "schedules", "PRIMARY"),
        search(LIVE, vec![list(1)], "live", "PRIMARY"),
        search(LIVE_OF_JOBS, vec![list(0)], "live", "PRIMARY"),
        search(KEYS_OF_JOBS, vec![list(0)], "live", "PRIMARY"),
        search(KEYS_OF_SESSION, vec![number(7), number(100)], "live", "live_session"),
        search(FACTS, vec![list(0)], "jobs", "PRIMARY"),
        search(CANCELS, vec![numbers()], "live", "live_session"),
        search(LIMITERS, vec![numbers()], "limiter_tallies", "PRIMARY"),
        search(LOCK_QUEUES, vec![Value::from("[[\"queue 7\"]]")], "queues", "PRIMARY"),
        search(ENDED, vec![list(2)], "history", "history_job"),
        search(SKIPPED, vec![list(2)], "skipped", "skipped_job"),
        search(DEAD_LETTERS, vec![list(1)], "dead_letters", "dead_letters_occurrence"),
        search(LATEST_DEAD_LETTERS, vec![list(0)], "dead_letters", "dead_letters_occurrence"),
        search(DEAD_OF_JOBS, vec![list(0)], "dead_letters", "dead_letters_occurrence"),
        search(KEYS, vec![names()], "job_keys", "PRIMARY"),
        search(PARENTS, vec![list(0)], "dependencies", "dependencies_child"),
        search(CHILDREN, vec![id(), number(10)], "dependencies", "PRIMARY"),
        search(LAST_NOTES, vec![list(1)], "notes", "PRIMARY"),
        search(CHECKPOINTS, vec![list(1)], "checkpoints", "PRIMARY"),
        search(REQUESTS, vec![Value::from("[[\"t\",\"key 7\"]]")], "requests", "PRIMARY"),
        search(LANES_ABOVE, vec![number(9_000), number(100)], "lanes", "PRIMARY"),
        search(LANES_BY_NUMBER, vec![Value::from("[[7],[9000]]")], "lanes", "PRIMARY"),
        search(LANES_BY_NAME, vec![Value::from("[[\"queue 7\",\"type\"]]")], "lanes", "lanes_name"),
        search(HELD_LANES, vec![Value::from("[[7],[9000]]")], "lanes", "PRIMARY"),
        search(Connection::LANES_LOOKED_AT, vec![number(100), number(10)], "jobs", "jobs_lane"),
        search(FIND_WORKERS, vec![Value::from("[[\"worker 1\"]]")], "workers", "workers_name"),
        search(statement(TableChange::UpdateSessions), vec![numbers()], "sessions", "PRIMARY"),
        search(TOUCH_SESSIONS, vec![numbers()], "sessions", "PRIMARY"),
        search(TOUCH_LIVE, vec![list(1)], "live", "PRIMARY"),
        search(TOUCH_QUEUES, vec![Value::from("[[\"queue 7\"]]")], "queues", "PRIMARY"),
        search(statement(TableChange::UpdateMarks), vec![list(1)], "jobs", "PRIMARY"),
        search(statement(TableChange::DeleteTags), vec![list(0)], "job_tags", "job_tags_job"),
        search(statement(TableChange::DeleteKeys), vec![list(0)], "job_keys", "job_keys_job"),
        search(statement(TableChange::UpdateKeys), vec![names()], "job_keys", "PRIMARY"),
        search(statement(TableChange::UpdateSchedules), vec![list(17)], "schedules", "PRIMARY"),
        search(statement(TableChange::DeleteSchedules), vec![list(0)], "schedules", "PRIMARY"),
        search(statement(TableChange::Lease), vec![list(5)], "live", "PRIMARY"),
        search(LEASE_ALIKE, vec![list(1), number(7), number(1), number(1), number(1)], "live", "PRIMARY"),
        search(statement(TableChange::DeleteLive), vec![list(1)], "live", "PRIMARY"),
        search(statement(TableChange::LengthenSkipped), vec![numbers()], "skipped", "PRIMARY"),
        search(
            statement(TableChange::DeleteDeadLetters),
            vec![list(1)],
            "dead_letters",
            "dead_letters_occurrence",
        ),
        search(statement(TableChange::DeleteDependencies), vec![pairs()], "dependencies", "PRIMARY"),
        search(statement(TableChange::ForgetParents), vec![list(0)], "dependencies", "dependencies_child"),
        search(statement(TableChange::ForgetNotes), vec![list(0)], "notes", "PRIMARY"),
        search(statement(TableChange::ForgetCheckpoints), vec![list(0)], "checkpoints", "PRIMARY"),
        search(Connection::TOUCH_TOKENS, vec![Value::from("[[\"token 7\",5]]")], "tokens", "PRIMARY"),
        search(OLD_HISTORY, vec![number(10)], "history", "PRIMARY"),
        search(Connection::RETAIN_SKIPPED.find, vec![number(50), number(10)], "skipped", "skipped_last"),
        search(Connection::RETAIN_REQUESTS, vec![number(50), number(10)], "requests", "requests_begun"),
        search(
            Connection::RETAIN_PACES.find,
            [-50, 10, -50, 10, 50].map(number).into(),
            "limiter_paces",
            "PRIMARY",
        ),
        search(
            Connection::RETAIN_PACES.delete.unwrap().0,
            vec![numbers(), number(50)],
            "limiter_paces",
            "PRIMARY",
        ),
        search(Connection::JOBS_AFTER, vec![id(), number(10)], "jobs", "PRIMARY"),
        search(Connection::LOCK_JOBS, vec![list(0), number(50)], "jobs", "PRIMARY"),
        search(Connection::OVER, vec![list(0), number(50)], "history", "history_job"),
        search(Connection::PURGEABLE, vec![number(50), number(50), number(10)], "jobs", "jobs_marked"),
        search(history.find, vec![list(0), number(10)], "history", "history_job"),
        search(skipped.find, vec![list(0), number(10)], "skipped", "skipped_job"),
        search(lines.find, vec![list(0), number(10)], "log_lines", "PRIMARY"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_writes_search_an_index() {
    TestDatabase::with(async |options| {
        let mut conn = filled(&options).await;
        for search in searches() {
            check(&mut conn, &search).await;
        }
        // They compute sums, which takes a temporary table of a few rows, but no more than are named.
        for (sql, values, table) in [
            (UNSTARTED, "[[1],[2]]".to_owned(), "lane_tallies"),
            (Connection::COUNT_LINES, format!("[[\"{}\",1,1]]", key(1)), "log_lines"),
        ] {
            let plan = explain(&mut conn, sql, vec![Value::from(values)]).await;
            assert!(
                plan.iter()
                    .any(|[name, access, ..]| name == table && ["ref", "range"].contains(&access.as_str())),
                "{plan:#?}"
            );
        }
        conn.disconnect().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_reads_only_the_rows_that_it_takes() {
    TestDatabase::with(async |options| {
        let mut conn = filled(&options).await;
        conn.query_drop("BEGIN").await.unwrap();
        for lanes in [1_i64, 4] {
            let branches: Vec<String> = (1..=lanes).map(|lane| lock_in_lane(lane, 50)).collect();
            // Plans are made before the reads are counted.
            conn.query_drop("FLUSH STATUS").await.unwrap();
            let rows: Vec<Row> = conn.query(branches.join(" UNION ALL ")).await.unwrap();
            let read: Vec<(String, u64)> =
                conn.query("SHOW SESSION STATUS LIKE 'Handler_read%'").await.unwrap();
            let touched: u64 =
                read.iter().filter(|(name, _)| name != "Handler_read_rnd_next").map(|(_, count)| count).sum();
            assert_eq!(rows.len() as i64, 50 * lanes);
            assert!(touched <= 2 * 50 * lanes as u64 + 10, "{read:?}");
        }
        conn.query_drop("ROLLBACK").await.unwrap();
        conn.disconnect().await.unwrap();
    })
    .await;
}

async fn filled(options: &MySqlOptions) -> Conn {
    prepare(options).await.unwrap();
    assert_eq!(query::<i64>(options, "SELECT COUNT(*) FROM live").await, [0]);
    let mut conn = client(options).await;
    for statement in FILLING {
        conn.query_drop(*statement).await.unwrap();
    }
    conn
}

/// The table, access type, index and extra information of each step.
async fn explain(conn: &mut Conn, sql: &str, values: Vec<Value>) -> Vec<[String; 4]> {
    let params = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
    let steps: Vec<Row> = conn.exec(format!("EXPLAIN FORMAT=TRADITIONAL {sql}"), params).await.unwrap();
    let text = |row: &Row, column: &str| row.get::<Option<String>, _>(column).flatten().unwrap_or_default();
    steps.iter().map(|step| ["table", "type", "key", "Extra"].map(|column| text(step, column))).collect()
}

async fn check(conn: &mut Conn, search: &Search) {
    let Search { sql, values, table, index } = search;
    let shown = explain(conn, sql, values.clone()).await;
    for [name, access, _, extra] in &shown {
        // The list that was sent, and the result of a union, are scanned. Rows that are read in the order
        // of a partitioned key are merged, which is not a scan as long as it is bounded.
        let is_ours = name == "given" || name.starts_with('<') || name.is_empty();
        let is_merged = *sql == OLD_HISTORY && access == "index";
        let is_leaping = extra.contains("Using index for group-by");
        assert!(
            is_ours || is_merged || is_leaping || !["ALL", "index"].contains(&access.as_str()),
            "{sql}\n{shown:#?}"
        );
        assert!(is_ours || !extra.contains("filesort") && !extra.contains("temporary"), "{sql}\n{shown:#?}");
    }
    let is_found = shown.iter().any(|[name, _, key, _]| name == table && key == index);
    assert!(is_found, "{sql}\nsearches {index} of {table}: {shown:#?}");
}

/// Two hundred thousand numbers, from 1 on.
macro_rules! fill {
    ($table:literal, $values:literal, $most:literal) => {
        concat!(
            "INSERT INTO ", $table, " SELECT ", $values,
            " FROM (SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n + 100000 * f.n AS n \
             FROM ten AS a, ten AS b, ten AS c, ten AS d, ten AS e, ten AS f WHERE f.n < 2) AS numbers WHERE n <= ",
            $most
        )
    };
}

/// A hundred thousand executions queued in four lanes, as many waiting, except two thousand that ten
/// sessions hold.
const FILLING: &[&str] = &[
    "CREATE TEMPORARY TABLE ten_1 AS SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 \
     UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9",
    "CREATE TABLE IF NOT EXISTS ten (n INT PRIMARY KEY) ENGINE = InnoDB",
    "DELETE FROM ten",
    "INSERT INTO ten SELECT n FROM ten_1",
    fill!(
        "live (job, occurrence, lane, claim_rank, available_at, scheduled_time, job_version, attempt, charged, epoch, \
         segment, state, gates, priority, origin, ties, cancel_requested, queued_lane, session, claimed_at, look_at)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 1 + n % 4, (n * 7919) % 100000, n, n, 1, 1, 0, 0, n % 64, \
         IF(n <= 100000, 1, IF(n > 198000, 2, 0)), IF(n > 100000 AND n <= 198000, 1, 0), 5, 0, 0, 0, \
         IF(n <= 100000, 1 + n % 4, NULL), IF(n > 198000, 1 + n % 10, NULL), IF(n > 198000, n, NULL), \
         IF(n > 100000 AND n <= 198000, n, NULL)",
        "200000"
    ),
    fill!(
        "jobs (id, lane, created_at, version, mark, priority, schedule_type, payload)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, n, 1, IF(n % 100 = 0, 4, 0), 5, 0, 'null'",
        "100000"
    ),
    fill!(
        "schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 0, 1, 1, n % 64, 5, 0, 0, n",
        "100000"
    ),
    fill!(
        "history (job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, job_version, status, origin)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, n, 0, 0, 1, 1, 1, 0, 0",
        "100000"
    ),
    fill!("lanes (id, queue, job_type)", "n, CONCAT('queue ', n), 'type'", "10000"),
    fill!("workers (id, name)", "n, CONCAT('worker ', n)", "10000"),
    fill!(
        "sessions (id, worker, lease_us, beat, turn, opened_at, beaten_at, slots, mode, embedded, attention, lost, job_types)",
        "n, n, 1, 1, 1, 1, 1, 1, 0, n % 1000 = 0, 0, n % 1000 = 1, '[]'",
        "10000"
    ),
    fill!("job_tags (tag, job)", "CONCAT('tag ', n % 10), UNHEX(LPAD(HEX(n), 32, '0'))", "10000"),
    fill!(
        "job_keys (owner, kind, `key`, job)",
        "'ann', 0, CONCAT('key ', n), UNHEX(LPAD(HEX(n), 32, '0'))",
        "10000"
    ),
    fill!(
        "dependencies (parent, child)",
        "UNHEX(LPAD(HEX(n % 100), 32, '0')), UNHEX(LPAD(HEX(n), 32, '0'))",
        "10000"
    ),
    fill!("skipped (job, first, last, count, reason)", "UNHEX(LPAD(HEX(n), 32, '0')), n, n, 1, 0", "10000"),
    fill!(
        "dead_letters (job, occurrence, scheduled_time, died_at, attempts, epoch, origin, noted)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 0, 0, 1, 1, 0, 0",
        "10000"
    ),
    fill!(
        "notes (job, occurrence, number, noted_at, epoch, attempt)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 1, 1, 1, 1",
        "10000"
    ),
    fill!("checkpoints (job, occurrence, document)", "UNHEX(LPAD(HEX(n), 32, '0')), 1, '{}'", "10000"),
    fill!(
        "requests (token, `key`, fingerprint, begun_at, seed)",
        "'t', CONCAT('key ', n), '', n, 1",
        "10000"
    ),
    fill!("queues (queue, max_depth)", "CONCAT('queue ', n), 5", "10000"),
    fill!("lane_tallies (lane, shard, waiting, queued, running)", "n, 1, 1, 1, 1", "10000"),
    fill!(
        "log_lines (job, occurrence, attempt, number, timestamp, stream, message)",
        "UNHEX(LPAD(HEX(n % 100), 32, '0')), 1, 1, n, n, 0, 'said'",
        "10000"
    ),
    "ANALYZE TABLE live, jobs, schedules, history, lanes, workers, sessions, job_tags, job_keys, dependencies, skipped, \
     dead_letters, notes, checkpoints, requests, queues, lane_tallies, log_lines",
];
