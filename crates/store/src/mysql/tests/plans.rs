//! Every list and lookup searches an index, on each server, in a database with many rows in every table.

use super::database::{TestDatabase, client};
use crate::mysql::MySqlStore;
use crate::mysql::reads::statements::*;
use crate::reads::ReadKind;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Params, Row, Value};
use punctual_core::ids::{JobId, SegmentSet};

/// A statement, and the table and index that it must search.
struct Search {
    sql: String,
    values: Vec<Value>,
    table: &'static str,
    index: &'static str,
}

fn search(sql: impl Into<String>, values: Vec<Value>, table: &'static str, index: &'static str) -> Search {
    Search { sql: sql.into(), values, table, index }
}

/// The key of the n-th row of [`FILLING`].
fn job(number: u128) -> JobId {
    JobId::from_bytes(number.to_be_bytes())
}

fn key(number: u128) -> Value {
    Value::Bytes(job(number).as_bytes().to_vec())
}

fn sql(read: ReadKind) -> &'static str {
    statement(read).0
}

fn searches() -> Vec<Search> {
    let number = |value: i64| Value::Int(value);
    let (one, some) = (|| key(5_000), || Value::from(format!("[[\"{:032x}\",1]]", 5_000)));
    let places = || Value::from("[[100,100]]");
    let of_each = |branch| branches(branch, (5_000..5_007).map(key).collect());
    let (open_of_jobs, open_keys) = of_each(OPEN_OF_JOB);
    let (latest_of_jobs, latest_keys) = of_each(LATEST_OF_JOB);
    let all: Vec<i64> = SegmentSet::ALL.iter().map(|segment| segment.index().into()).collect();
    let bounds: Vec<Value> = all.iter().flat_map(|_| [number(50), number(10)]).collect();
    let limit = || number(10);
    vec![
        search(due_schedules(&all), bounds.clone(), "schedules", "schedules_due"),
        search(due_live(&all), bounds, "live", "live_due"),
        search(sql(ReadKind::FinishedAfter), vec![number(100), limit()], "history", "PRIMARY"),
        search(sql(ReadKind::RunTimesAfter), vec![number(100), limit()], "history", "PRIMARY"),
        search(RECENT, vec![number(100), limit()], "history", "PRIMARY"),
        search(sql(ReadKind::OpenExecutions), vec![some()], "live", "PRIMARY"),
        search(RUNNING_FIRST, vec![limit()], "live", "live_session"),
        search(
            sql(ReadKind::Running),
            vec![number(5), number(5), one(), one(), number(1), limit()],
            "live",
            "live_session",
        ),
        search(WORKERS_OF_SESSIONS, vec![places()], "sessions", "PRIMARY"),
        search(
            sql(ReadKind::HistoryOfJob),
            vec![one(), number(9), number(9), number(1), limit()],
            "history",
            "history_job",
        ),
        search(sql(ReadKind::Skipped), vec![one(), limit()], "skipped", "skipped_job"),
        search(sql(ReadKind::DeadLetters), vec![number(100), limit()], "dead_letters", "PRIMARY"),
        search(
            sql(ReadKind::DeadLettersOfJob),
            vec![one(), number(9_999), limit()],
            "dead_letters",
            "dead_letters_job",
        ),
        search(sql(ReadKind::LatestJobs), vec![one(), limit()], "jobs", "PRIMARY"),
        search(sql(ReadKind::MarkedJobs), vec![number(2), one(), limit()], "jobs", "jobs_marked"),
        search(sql(ReadKind::TaggedJobs), vec![Value::from("tag 1"), one(), limit()], "job_tags", "PRIMARY"),
        search(sql(ReadKind::ScheduledJobs), vec![one(), limit()], "schedules", "PRIMARY"),
        search(JOBS_BY_ID, vec![some()], "jobs", "PRIMARY"),
        search(sql(ReadKind::TagsOfJobs), vec![some()], "job_tags", "job_tags_job"),
        search(ACTIVE_LIVE, vec![one(), limit()], "live", "PRIMARY"),
        search(ACTIVE_SCHEDULES, vec![one(), limit()], "schedules", "PRIMARY"),
        search(
            sql(ReadKind::OpenOfJobBefore),
            vec![one(), number(9), number(9), number(1), limit()],
            "live",
            "PRIMARY",
        ),
        search(sql(ReadKind::LanesOfQueue), vec![Value::from("queue 7"), limit()], "lanes", "lanes_name"),
        search(HEAD_OF_LANE, vec![number(1), limit()], "live", "live_claim"),
        search(sql(ReadKind::OpenBefore), vec![one(), one(), number(1), limit()], "live", "PRIMARY"),
        search(sql(ReadKind::FinishedBefore), vec![number(9_000), limit()], "history", "PRIMARY"),
        search(sql(ReadKind::NamesOfJobs), vec![some()], "jobs", "PRIMARY"),
        search(
            sql(ReadKind::KeyHolder),
            vec![Value::from("owner 7"), number(2), Value::from("name 7")],
            "job_keys",
            "PRIMARY",
        ),
        search(sql(ReadKind::OwnersOfJobs), vec![some()], "jobs", "PRIMARY"),
        search(sql(ReadKind::TokenOfSession), vec![number(7)], "sessions", "PRIMARY"),
        search(sql(ReadKind::Token), vec![Value::from("token 7")], "tokens", "PRIMARY"),
        search(sql(ReadKind::Tokens), vec![Value::from("token 7"), limit()], "tokens", "PRIMARY"),
        search(sql(ReadKind::User), vec![Value::from("user 7")], "users", "PRIMARY"),
        search(sql(ReadKind::UserByEmail), vec![Value::from("7@example.org")], "users", "users_email"),
        search(sql(ReadKind::Users), vec![Value::from(""), limit()], "users", "PRIMARY"),
        search(sql(ReadKind::Secret), vec![Value::from("secret 7")], "secrets", "PRIMARY"),
        search(sql(ReadKind::Secrets), vec![Value::from(""), limit()], "secrets", "PRIMARY"),
        search(sql(ReadKind::Document), vec![Value::from("view/7")], "documents", "PRIMARY"),
        search(sql(ReadKind::Documents), vec![Value::from("view/"), limit()], "documents", "PRIMARY"),
        search(statement(ReadKind::AuditPage).0, vec![one(), key(6_000), limit()], "audit", "PRIMARY"),
        search(statement(ReadKind::AuditChain).0, vec![number(7), limit()], "audit", "audit_number"),
        search(statement(ReadKind::Unsealed).0, vec![limit()], "audit", "audit_number"),
        search(statement(ReadKind::UnsealedCount).0, vec![], "audit", "audit_number"),
        search(
            sql(ReadKind::LinesOfExecution),
            vec![key(7), number(1), number(1), number(50), limit()],
            "log_lines",
            "PRIMARY",
        ),
        search(
            sql(ReadKind::LastLines),
            vec![key(7), number(1), number(1), number(i64::MAX), limit()],
            "log_lines",
            "PRIMARY",
        ),
        search(sql(ReadKind::NotesOfJob), vec![one(), number(9), limit()], "notes", "PRIMARY"),
        search(
            AHEAD,
            vec![number(1), number(900), number(900), one(), one(), number(1), limit()],
            "live",
            "live_claim",
        ),
        search(heads(&[1, 2, 3], 100), vec![], "live", "live_claim"),
        search(sql(ReadKind::Jobs), vec![some()], "jobs", "PRIMARY"),
        search(sql(ReadKind::Schedules), vec![some()], "schedules", "PRIMARY"),
        search(open_of_jobs, open_keys, "live", "PRIMARY"),
        search(latest_of_jobs, latest_keys, "history", "history_job"),
        search(FINISHED_AT, vec![places()], "history", "PRIMARY"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_searches_an_index() {
    TestDatabase::with(async |options| {
        MySqlStore::open(&options).await.unwrap().close().await;
        let mut conn = client(&options).await;
        for statement in FILLING {
            conn.query_drop(*statement).await.unwrap();
        }
        for search in searches() {
            check(&mut conn, &search).await;
        }
        conn.disconnect().await.unwrap();
    })
    .await;
}

async fn check(conn: &mut Conn, search: &Search) {
    let Search { sql, values, table, index } = search;
    let params = if values.is_empty() { Params::Empty } else { Params::Positional(values.clone()) };
    let steps: Vec<Row> = conn.exec(format!("EXPLAIN FORMAT=TRADITIONAL {sql}"), params).await.unwrap();
    let text = |row: &Row, column: &str| row.get::<Option<String>, _>(column).flatten().unwrap_or_default();
    let shown: Vec<_> =
        steps.iter().map(|step| ["table", "type", "key", "Extra"].map(|column| text(step, column))).collect();
    for [name, access, _, extra] in &shown {
        // A list that was sent, and the few rows of a bounded subquery, are scanned.
        let is_ours =
            name == "wanted" || name == "head" || name == "ahead" || name.starts_with('<') || name.is_empty();
        assert!(is_ours || !["ALL", "index"].contains(&access.as_str()), "{sql}\n{shown:#?}");
        assert!(is_ours || !extra.contains("filesort") && !extra.contains("temporary"), "{sql}\n{shown:#?}");
    }
    let is_found = shown.iter().any(|[name, _, key, _]| name == table && key == index);
    assert!(is_found, "{sql}\nsearches {index} of {table}: {shown:#?}");
}

/// Ten thousand numbers, from zero on.
macro_rules! numbers {
    () => {
        "(SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n AS n FROM ten AS a, ten AS b, ten AS c, ten AS d) AS numbers"
    };
}

macro_rules! fill {
    ($table:literal, $values:literal) => {
        concat!("INSERT INTO ", $table, " SELECT ", $values, " FROM ", numbers!())
    };
}

const FILLING: &[&str] = &[
    "CREATE TABLE ten AS SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 \
     UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9",
    fill!("lanes (id, queue, job_type)", "n + 1, CONCAT('queue ', n), 'type'"),
    fill!("workers (id, name)", "n + 1, CONCAT('worker ', n)"),
    fill!(
        "sessions (id, worker, lease_us, beat, turn, opened_at, beaten_at, slots, mode, embedded, attention, lost, job_types)",
        "n + 1, n + 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, '[]'"
    ),
    fill!(
        "job_keys (owner, kind, `key`, job)",
        "CONCAT('owner ', n), 2, CONCAT('name ', n), UNHEX(LPAD(HEX(n), 32, '0'))"
    ),
    fill!("tokens (id, secret_sha256, role, created_at)", "CONCAT('token ', n), UNHEX(SHA2(n, 256)), 0, n"),
    fill!("users (id, email, role, created_at)", "CONCAT('user ', n), CONCAT(n, '@example.org'), 0, n"),
    fill!("documents (id, version, body)", "CONCAT('view/', n), n, '{}'"),
    fill!("secrets (id, version, key_id, sealed, about)", "CONCAT('secret ', n), n, 'k', 'x', '{}'"),
    fill!(
        "audit (id, at, token, name, action, object, outcome, number, hash)",
        "UNHEX(LPAD(HEX(n), 32, '0')), n, 'token 7', '', 'job.submit', '', 'ok', IF(n < 9990, n, NULL), UNHEX(SHA2(n, 256))"
    ),
    fill!(
        "jobs (id, lane, created_at, version, mark, priority, schedule_type, payload)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1 + n % 5, n, 1, IF(n % 50 = 0, 2, 0), 5, 0, REPEAT('x', 200)"
    ),
    fill!(
        "schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1 + n % 5, 0, 1, 1, n % 64, 5, 0, 0, n"
    ),
    fill!(
        "live (job, occurrence, lane, claim_rank, available_at, scheduled_time, job_version, attempt, charged, epoch, \
         segment, state, gates, priority, origin, ties, cancel_requested, queued_lane, session, claimed_at, look_at)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 1 + n % 5, n, n, n, 1, 1, 0, 1, n % 64, n % 3, IF(n % 3 = 0, 1, 0), 5, 0, 0, 0, \
         IF(n % 3 = 1, 1 + n % 5, NULL), IF(n % 3 = 2, n % 50, NULL), IF(n % 3 = 2, n, NULL), IF(n % 3 = 0, n, NULL)"
    ),
    fill!(
        "history (job, occurrence, completed_at, scheduled_time, available_at, attempt, epoch, job_version, status, origin, \
         worker, result)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, n, n, n, 1, 1, 1, 0, 0, 1 + n % 100, REPEAT('x', 100)"
    ),
    fill!("job_tags (tag, job)", "CONCAT('tag ', n % 10), UNHEX(LPAD(HEX(n), 32, '0'))"),
    fill!(
        "dead_letters (job, occurrence, scheduled_time, died_at, attempts, epoch, origin, noted)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 1, n, 1, 1, 0, 0"
    ),
    fill!("skipped (job, first, last, count, reason)", "UNHEX(LPAD(HEX(n), 32, '0')), n, n, 1, 0"),
    fill!(
        "notes (job, occurrence, number, noted_at, epoch, attempt)",
        "UNHEX(LPAD(HEX(n), 32, '0')), 1, 1, 1, 1, 1"
    ),
    fill!("checkpoints (job, occurrence, document)", "UNHEX(LPAD(HEX(n), 32, '0')), 1, '{}'"),
    fill!(
        "log_lines (job, occurrence, attempt, number, timestamp, stream, message)",
        "UNHEX(LPAD(HEX(n % 100), 32, '0')), 1, 1, n, n, 0, 'a line'"
    ),
    "DROP TABLE ten",
    "ANALYZE TABLE lanes, workers, sessions, job_keys, tokens, users, secrets, documents, jobs, schedules, live, history, job_tags, dead_letters, skipped, notes, \
     checkpoints, log_lines",
];
