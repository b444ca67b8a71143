//! Query plans of the reading statements: they must use an index, never scan or sort a large table. Costs
//! must follow the rows that are read.

use super::database::{TestDatabase, own_client};
use crate::audit::AuditStatements;
use crate::postgres::PostgresOptions;
use crate::postgres::reads::statements::{LAST_PLACE, statement};
use crate::postgres::wire::Wire;
use crate::reads::ReadKind;
use tokio_postgres::Client;

/// A job somewhere in the middle, and a cursor after all.
const JOB: &str = "'01234567-0000-7000-8000-000000004000'::uuid";
const JOBS_NAMED: &str =
    "ARRAY['01234567-0000-7000-8000-000000004000', '01234567-0000-7000-8000-000000000007']::uuid[]";
const AFTER_ALL: &str = "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid";

/// Statements, their parameters, and the index that each must use.
const SEARCHES: &[(&str, &[&str], &str)] = &[
    (statement(ReadKind::DueSchedules), &["ARRAY[1, 2, 3]", "50000", "1000"], "schedules_due"),
    (statement(ReadKind::DueLive), &["ARRAY[1, 2, 3]", "50000", "1000"], "live_due"),
    (statement(ReadKind::FinishedAfter), &["0", "100000", "100", "1048576"], "place_idx"),
    (statement(ReadKind::FinishedAfter), &["19990", "100000", "1000", "1048576"], "place_idx"),
    (statement(ReadKind::RunTimesAfter), &["19990", "100000", "1000"], "place_idx"),
    (LAST_PLACE, &["100000"], "place_idx"),
    (statement(ReadKind::OpenExecutions), &[JOBS_NAMED, "ARRAY[1, 1]::bigint[]"], "live_pkey"),
    (statement(ReadKind::Running), &["3", JOB, "1", "100"], "live_session"),
    (statement(ReadKind::HistoryOfJob), &[JOB, "1000", "0", "101", "1048576"], "_pkey"),
    (statement(ReadKind::Execution), &[JOB, "1", "1"], "live_pkey"),
    (statement(ReadKind::Skipped), &[JOB, "100"], "skipped_job"),
    (statement(ReadKind::DeadLetters), &["1000000", "2000", "'no'"], "dead_letters_pkey"),
    (statement(ReadKind::DeadLettersOfJob), &["1000000", "2000", "NULL", JOB], "dead_letters_job"),
    (statement(ReadKind::ErrorsOfLetters), &["ARRAY[7, 8]::bigint[]"], "dead_letters_pkey"),
    (statement(ReadKind::LatestJobs), &[AFTER_ALL, "2000"], "jobs_pkey"),
    (statement(ReadKind::MarkedJobs), &[AFTER_ALL, "2000", "3"], "jobs_marked"),
    (statement(ReadKind::TaggedJobs), &[AFTER_ALL, "2000", "'tag 7'"], "job_tags_pkey"),
    (statement(ReadKind::ActiveJobs), &[AFTER_ALL, "2000"], "live_pkey"),
    (statement(ReadKind::ActiveJobs), &[AFTER_ALL, "2000"], "schedules_pkey"),
    (statement(ReadKind::ScheduledJobs), &[AFTER_ALL, "2000"], "schedules_pkey"),
    (statement(ReadKind::OneJob), &[JOB], "jobs_pkey"),
    (statement(ReadKind::TagsOfJobs), &[JOBS_NAMED], "job_tags_job"),
    (statement(ReadKind::StandingOfJobs), &[JOBS_NAMED], "live_pkey"),
    (statement(ReadKind::Jobs), &[JOBS_NAMED], "jobs_pkey"),
    (statement(ReadKind::Schedules), &[JOBS_NAMED], "schedules_pkey"),
    (statement(ReadKind::OpenOfJobBefore), &[JOB, "1000", "0", "101"], "live_pkey"),
    (statement(ReadKind::OpenOfJobs), &[JOBS_NAMED, "10"], "live_pkey"),
    (statement(ReadKind::LastFinished), &[JOBS_NAMED, "8"], "_pkey"),
    (statement(ReadKind::LanesOfQueue), &["'queue 7'", "100"], "lanes_queue_job_type_key"),
    (statement(ReadKind::HeadsOfLanes), &["ARRAY[1, 2]::bigint[]", "100"], "live_claim"),
    (statement(ReadKind::OpenBefore), &[JOB, "1", "2000"], "live_pkey"),
    (statement(ReadKind::FinishedBefore), &["15000", "2000"], "place_idx"),
    (statement(ReadKind::FinishedAt), &["ARRAY[100]::bigint[]", "ARRAY[100]::bigint[]"], "place_idx"),
    (statement(ReadKind::NamesOfJobs), &[JOBS_NAMED], "jobs_pkey"),
    (statement(ReadKind::KeyHolder), &["'owner 7'", "2::smallint", "'name 7'"], "job_keys_pkey"),
    (statement(ReadKind::OwnersOfJobs), &[JOBS_NAMED], "jobs_pkey"),
    (statement(ReadKind::TokenOfSession), &["7"], "sessions_pkey"),
    (statement(ReadKind::Token), &["'token 7'"], "tokens_pkey"),
    (statement(ReadKind::Tokens), &["'token 7'", "100"], "tokens_pkey"),
    (statement(ReadKind::User), &["'user 7'"], "users_pkey"),
    (statement(ReadKind::UserByEmail), &["'7@example.org'"], "users_email_key"),
    (statement(ReadKind::Users), &["''", "100"], "users_pkey"),
    (statement(ReadKind::Secret), &["'secret 7'"], "secrets_pkey"),
    (statement(ReadKind::Secrets), &["''", "100"], "secrets_pkey"),
    (statement(ReadKind::Document), &["'view/7'"], "documents_pkey"),
    (statement(ReadKind::Documents), &["'view/'", "100"], "documents_pkey"),
    (statement(ReadKind::AuditPage), &[JOB, AFTER_ALL, "100"], "audit_pkey"),
    (statement(ReadKind::AuditChain), &["7", "100"], "audit_number"),
    (statement(ReadKind::Unsealed), &["100"], "audit_unsealed"),
    (statement(ReadKind::UnsealedCount), &[], "audit_unsealed"),
    (Wire::DELETE, &["7"], "audit_number"),
    (statement(ReadKind::LinesOfExecution), &[JOB, "1", "1", "0", "101", "1048576"], "_pkey"),
    (statement(ReadKind::LastLines), &[JOB, "1", "1", "1000000", "100", "1048576"], "_pkey"),
    (statement(ReadKind::NotesOfJob), &[JOB, "100", "100"], "notes_pkey"),
    (statement(ReadKind::Checkpoint), &[JOB, "1"], "checkpoints_pkey"),
    (statement(ReadKind::Ahead), &[JOB, "1", "10000"], "live_claim"),
    (statement(ReadKind::Depths), &["10000", "100"], "live_claim"),
    (statement(ReadKind::WaitingLines), &["-7", "100"], "live_line"),
    (statement(ReadKind::Holdings), &[], "live_session"),
    (statement(ReadKind::Sessions), &[], "workers_pkey"),
];

/// Many jobs, most of them finished; some waiting, queued, running and in the future, in several lanes and
/// partitions.
const FILL: &str = "
    INSERT INTO lanes (queue, job_type) SELECT 'queue ' || n, 'noop' FROM generate_series(1, 20) AS n;
    INSERT INTO workers (name) SELECT 'worker ' || n FROM generate_series(1, 2000) AS n;
    INSERT INTO sessions (id, worker, lease_us, beat, turn, opened_at, beaten_at, slots, mode, embedded, attention,
                          lost, job_types)
    SELECT n, n, 1, 0, 0, 0, 0, 1, 0, false, false, false, '[]' FROM generate_series(1, 2000) AS n;
    INSERT INTO tokens (id, secret_sha256, role, created_at)
    SELECT 'token ' || n, '', 0, n FROM generate_series(1, 2000) AS n;
    INSERT INTO users (id, email, role, created_at)
    SELECT 'user ' || n, n || '@example.org', 0, n FROM generate_series(1, 2000) AS n;
    INSERT INTO secrets (id, version, key_id, sealed, about)
    SELECT 'secret ' || n, n, 'k', 'x', '{}' FROM generate_series(1, 2000) AS n;
    INSERT INTO documents (id, version, body) SELECT 'view/' || n, n, '{}' FROM generate_series(1, 2000) AS n;
    INSERT INTO audit (id, at, token, name, action, object, outcome, number, hash)
    SELECT job(n), n, 'token 7', '', 'job.submit', '', 'ok', CASE WHEN n < 19990 THEN n END, '' FROM generate_series(1, 20000) AS n;
    INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, payload)
    SELECT job(n), 1 + n % 20, n, 1, CASE WHEN n % 50 = 0 THEN 3 ELSE 0 END, 5, 0, repeat('x', 200)
    FROM generate_series(1, 20000) AS n;
    INSERT INTO job_tags (tag, job) SELECT 'tag ' || n % 100, job(n) FROM generate_series(1, 20000) AS n;
    INSERT INTO schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at)
    SELECT job(n), 1, 0, 1, 1, n % 64, 5, 0, 0, n FROM generate_series(1, 20000) AS n;
    INSERT INTO live (job, occurrence, lane, rank, available_at, scheduled_time, job_version, attempt, charged, epoch,
                      segment, state, gates, priority, origin, ties, cancel_requested, session, claimed_at, look_at)
    SELECT job(n), 1, 1 + n % 20, n, n, n, 1, 1, 0, 0, n % 64, n % 3, CASE WHEN n % 3 = 0 THEN 1 ELSE 0 END, 5, 0, 0,
           false, CASE WHEN n % 3 = 2 THEN n % 2000 END, CASE WHEN n % 3 = 2 THEN n END,
           CASE WHEN n % 3 = 0 THEN n END
    FROM generate_series(1, 20000) AS n;
    INSERT INTO history (job, occurrence, completed_at, place, scheduled_time, available_at, attempt, epoch,
                         job_version, status, origin, worker, result)
    SELECT job(n), 1, n, n, n, n, 2, 1, 1, 0, 0, n % 2000, repeat('y', 100) FROM generate_series(1, 20000) AS n;
    INSERT INTO lines (job, occurrence, number, timestamp, attempt, stream, message)
    SELECT job(n), 1, n, n, 1, 0, 'a line' FROM generate_series(1, 20000) AS n;
    INSERT INTO dead_letters (job, occurrence, scheduled_time, died_at, attempts, epoch, origin, noted, error)
    SELECT job(n), 7, n, n, 1, 1, 0, false, 'no' FROM generate_series(1, 20000) AS n;
    INSERT INTO skipped (job, first, last, count, reason)
    SELECT job(n), n, n, 1, 0 FROM generate_series(1, 20000) AS n;
    INSERT INTO notes (job, occurrence, number, noted_at, epoch, attempt)
    SELECT job(n), 1, 1, n, 1, 1 FROM generate_series(1, 20000) AS n;
    INSERT INTO checkpoints (job, occurrence, document) SELECT job(n), 1, '1' FROM generate_series(1, 20000) AS n;
    INSERT INTO lane_tallies (lane, waiting, queued, running, shard)
    SELECT n, 1, 1, 1, s FROM generate_series(1, 20) AS n, generate_series(0, 3) AS s;
    INSERT INTO limiter_tallies (limiter, waiting, in_use) SELECT -n, 1, 1 FROM generate_series(1, 20) AS n;
    UPDATE live SET line = -1 - lane, gates = 8 WHERE state = 0;
    ANALYZE;
";

#[tokio::test]
async fn every_read_uses_an_index() {
    TestDatabase::with(|options| async move {
        let client = filled(&options).await;
        let mut wrong = Vec::new();
        for (sql, values, index) in SEARCHES {
            let plan = explain(&client, sql, values).await;
            let walks = plan.iter().any(|step| step.contains("Seq Scan on") && !is_small(step));
            let is_found = plan.iter().any(|step| step.contains("Index") && step.contains(index));
            if walks || !is_found {
                wrong.push(format!("{index}: {sql}\n{}", plan.join("\n")));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    })
    .await;
}

/// Tables with a few rows for each lane in use or each worker: they are read completely.
fn is_small(step: &str) -> bool {
    ["lane_tallies", "limiter_tallies", "sessions", "history_bounds", "punctual"]
        .iter()
        .any(|table| step.contains(&format!("on {table}")))
}

async fn filled(options: &PostgresOptions) -> Client {
    let client = own_client(options).await;
    let job = "CREATE FUNCTION pg_temp.job(n integer) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ \
         SELECT ('01234567-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid $$";
    client.batch_execute(job).await.unwrap();
    for (table, name) in [("history", "history_part"), ("lines", "lines_part")] {
        for part in 0..4 {
            let (from, to) = (part * 5_001, (part + 1) * 5_001);
            let sql =
                format!("CREATE TABLE {name}_{part} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})");
            client.batch_execute(&sql).await.unwrap();
        }
    }
    client.batch_execute(&FILL.replace(" job(", " pg_temp.job(")).await.unwrap();
    client
}

/// The steps of the plan for these values, which replace the parameters.
async fn explain(client: &Client, sql: &str, values: &[&str]) -> Vec<String> {
    let mut sql = sql.to_owned();
    for (index, value) in values.iter().enumerate().rev() {
        sql = sql.replace(&format!("${}", index + 1), value);
    }
    let rows = client.query(&format!("EXPLAIN (COSTS OFF) {sql}"), &[]).await;
    let rows = rows.unwrap_or_else(|error| panic!("{error:?}\n{sql}"));
    rows.iter().map(|row| row.get(0)).collect()
}
