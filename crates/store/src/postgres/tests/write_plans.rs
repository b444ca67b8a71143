//! Query plans of the statements that lock and write: they must use an index and touch no more rows than
//! requested, with a custom plan and with the generic one, before and after statistics are collected.

use super::database::{TestDatabase, own_client};
use crate::postgres::names::{LANES_ABOVE, LANES_BY_NAME, LANES_BY_NUMBER, LANES_WITH_WORK};
use crate::postgres::tables::read_set::{
    CLAIM, ENDED, FACTS, HELD_LANES, JOBS, LAST_QUEUED, LINES, LIVE, LIVE_OF, SCHEDULES,
};
use crate::postgres::tables::write_set::statement;
use crate::postgres::wire::Wire;
use crate::server::changes::TableChange;
use crate::server::maintenance::MaintenanceStatements;
use crate::server::unused::UnusedStatements;
use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

const KEYS: &str =
    "ARRAY['01234567-0000-7000-8000-000000004000', '01234567-0000-7000-8000-000000090000']::uuid[]";
const NUMBERS: &str = "ARRAY[1, 1]::bigint[]";

/// Statements, their parameters, and the maximum of rows that one plan node may touch in a large table.
fn statements() -> Vec<(&'static str, Vec<&'static str>, u64)> {
    vec![
        (CLAIM, vec!["ARRAY[1, 2, 3, 4]::bigint[]", "ARRAY[0, 7, 500, 90000]::bigint[]", "100"], 400),
        (CLAIM, vec!["ARRAY[1]::bigint[]", "ARRAY[50000]::bigint[]", "1"], 1),
        (LINES, vec!["ARRAY[-1, -2]::bigint[]", "ARRAY[10, 10]::bigint[]"], 20),
        (LAST_QUEUED, vec!["'queue 1'", "50000", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "1", "100"], 400),
        (Wire::RETAIN_PACES.find, vec!["-50000", "10", "-50000", "10", "500"], 20),
        (LIVE, vec![KEYS, NUMBERS], 2),
        (
            LIVE_OF,
            vec![KEYS, NUMBERS, KEYS, "10001", "ARRAY[7, 8]::bigint[]", "ARRAY[50, 50]::bigint[]"],
            102,
        ),
        (LANES_WITH_WORK, vec![], 8),
        (LANES_ABOVE, vec!["5000", "129"], 129),
        (LANES_BY_NUMBER, vec!["ARRAY[7, 9000]::bigint[]"], 2),
        (LANES_BY_NAME, vec!["ARRAY['queue 7', 'queue 9']", "ARRAY['type10', 'type12']"], 2),
        (HELD_LANES, vec!["ARRAY[7, 9000]::bigint[]"], 2),
        (Wire::LANES_LOOKED_AT, vec!["5000", "10"], 10),
        (&JOBS, vec![KEYS, "ARRAY[true, false]"], 2),
        (SCHEDULES, vec![KEYS], 2),
        (FACTS, vec![KEYS], 2),
        (ENDED, vec![KEYS, NUMBERS, "ARRAY[1, 1]::integer[]"], 2),
        (statement(TableChange::DeleteLive), vec![KEYS, NUMBERS], 2),
        (
            statement(TableChange::Lease),
            vec![KEYS, NUMBERS, NUMBERS, NUMBERS, "ARRAY[1, 1]", "ARRAY[1, 1]"],
            2,
        ),
        (
            statement(TableChange::UpdateLive),
            vec![
                KEYS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                "ARRAY[1, 1]",
                "ARRAY[1, 1]",
                "ARRAY[1, 1]",
                "ARRAY[1, 1]",
                "ARRAY[1, 1]::smallint[]",
                "ARRAY[2, 2]::smallint[]",
                "ARRAY[0, 0]::smallint[]",
                "ARRAY[5, 5]::smallint[]",
                "ARRAY[0, 0]::smallint[]",
                "ARRAY[0, 0]::smallint[]",
                "ARRAY[false, false]",
                NUMBERS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                NUMBERS,
                "ARRAY[NULL, NULL]::text[]",
            ],
            2,
        ),
    ]
}

/// A hundred thousand executions queued in four lanes, as many waiting, two hundred held by each of some
/// sessions, and history.
const FILL: &str = "
    ALTER TABLE live SET (autovacuum_enabled = off);
    ALTER TABLE jobs SET (autovacuum_enabled = off);
    ALTER TABLE schedules SET (autovacuum_enabled = off);
    INSERT INTO live (job, occurrence, lane, rank, available_at, scheduled_time, job_version, attempt, charged, epoch,
                      segment, state, gates, priority, origin, ties, cancel_requested, session, claimed_at, look_at)
    SELECT ('01234567-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 1, 1 + n % 4, (n * 7919) % 100000, n, n, 1, 1, 0, 0,
           n % 64, CASE WHEN n <= 100000 THEN 1 WHEN n <= 200000 THEN 0 ELSE 2 END, CASE WHEN n > 100000 AND n <= 200000
           THEN 1 ELSE 0 END, 5, 0, 0, false, CASE WHEN n > 200000 THEN n % 10 END, CASE WHEN n > 200000 THEN n END,
           CASE WHEN n > 100000 AND n <= 200000 THEN n END
    FROM generate_series(1, 202000) AS n;
    UPDATE live SET line = -lane, gates = 8 WHERE state = 0;
    INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, payload)
    SELECT job, lane, 0, 1, 0, 5, 0, 'null' FROM live;
    INSERT INTO schedules (job, lane, fired, version, job_version, segment, priority, overlap, ties, due_at)
    SELECT job, lane, 0, 1, 1, segment, 5, 0, 0, rank FROM live WHERE state = 1;
    INSERT INTO lanes (queue, job_type) SELECT 'queue ' || greatest(n - 3, 1), 'type' || n FROM generate_series(1, 10000) AS n;
    INSERT INTO limiter_paces (limiter, last_at) SELECT -n, n % 1000 FROM generate_series(1, 100000) AS n;
    CREATE TABLE history_old (LIKE history INCLUDING ALL);
    ALTER TABLE history ATTACH PARTITION history_old FOR VALUES FROM (0) TO (50000);
    CREATE TABLE history_new (LIKE history INCLUDING ALL);
    ALTER TABLE history ATTACH PARTITION history_new FOR VALUES FROM (50000) TO (1000000);
    INSERT INTO history (job, occurrence, completed_at, place, scheduled_time, available_at, attempt, epoch, job_version,
                         status, origin)
    SELECT job, 1, rank, rank, 0, 0, 1, 1, 1, 0, 0 FROM live WHERE state = 1";

#[tokio::test]
async fn hot_statements_touch_only_the_requested_rows() {
    TestDatabase::with(async |options| {
        let client = own_client(&options).await;
        client.batch_execute(FILL).await.unwrap();
        for prepare in ["", "ANALYZE live, jobs, schedules, history, lanes, limiter_paces"] {
            client.batch_execute(prepare).await.unwrap();
            for mode in ["force_generic_plan", "force_custom_plan"] {
                for (sql, parameters, most) in &statements() {
                    let plan = explain(&client, mode, sql, parameters).await;
                    check(&plan, *most, &format!("{prepare}\n{mode}\n{sql}\n{plan:#}"));
                }
            }
        }
    })
    .await;
}

async fn explain(client: &Client, mode: &str, sql: &str, parameters: &[&str]) -> Value {
    let begin = format!("BEGIN; SET LOCAL plan_cache_mode = {mode}; PREPARE hot AS {sql}");
    client.batch_execute(&begin).await.unwrap();
    let parameters = match parameters {
        [] => String::new(),
        some => format!("({})", some.join(", ")),
    };
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot{parameters}");
    let answer = client.simple_query(&explain).await.unwrap();
    client.batch_execute("ROLLBACK; DEALLOCATE hot").await.unwrap();
    let text: String = answer
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .collect();
    serde_json::from_str::<Value>(&text).unwrap()[0]["Plan"].take()
}

fn check(node: &Value, most: u64, context: &str) {
    let kind = node["Node Type"].as_str().unwrap();
    if node.get("Relation Name").is_some() && kind.ends_with("Scan") {
        assert!(kind.contains("Index") || kind.contains("Bitmap"), "{kind}: {context}");
    }
    if kind.ends_with("Scan") || kind == "Sort" {
        let filtered = node["Rows Removed by Filter"].as_u64().unwrap_or(0);
        let touched = (node["Actual Rows"].as_u64().unwrap_or(0) + filtered)
            * node["Actual Loops"].as_u64().unwrap_or(1);
        assert!(touched <= most, "{kind} touches {touched} rows: {context}");
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        check(child, most, context);
    }
}
