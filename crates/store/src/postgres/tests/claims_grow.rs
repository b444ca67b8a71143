//! A claimed row costs the database as much with many claimers as with one, however long each holds its rows.

use super::database::{TestDatabase, client};
use super::dialect::tables;
use super::fixture::{at, lane};
use crate::postgres::PostgresOptions;
use crate::postgres::tables::PostgresTables;
use crate::rows::LiveRow;
use crate::unit_of_work::{Leased, ReadSet, RequestedClaims, Tables, WriteSet};
use futures_util::future::join_all;
use punctual_core::ids::SessionId;
use tokio::sync::Barrier;

/// Executions of one claim.
const COUNT: usize = 64;
/// Rounds in which the claimers learn that the lane is crowded.
const FIRST_ROUNDS: usize = 3;
/// Claims that count, by all claimers together.
const CLAIMS: usize = 320;
/// The most that a row may cost with many claimers, as a multiple of its cost with one.
const GROWTH_MAX: f64 = 1.3;

/// Queued executions of one lane. A thousand have the same rank, as after a bulk submit. Dead rows stay.
fn backlog(lane: i64) -> String {
    format!(
        "ALTER TABLE live SET (autovacuum_enabled = off);
         INSERT INTO live (job, occurrence, lane, rank, available_at, scheduled_time, job_version, attempt, charged,
                           epoch, segment, state, gates, priority, origin, ties, cancel_requested)
         SELECT ('01234567-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 1, {lane}, n / 1000, n, n, 1, 1, 0, 0,
                n % 64, 1, 0, 5, 0, 0, false
         FROM generate_series(1, 30000) AS n;
         INSERT INTO jobs (id, lane, created_at, version, mark, priority, schedule_type, payload)
         SELECT job, lane, 0, 1, 0, 5, 0, 'null' FROM live;
         SELECT pg_stat_force_next_flush()"
    )
}

/// What the claims of a database have cost so far.
#[derive(Debug, Clone, Copy)]
struct ClaimCost {
    claimed: f64,
    /// Entries of the claim index that scans returned: rows that were claimed, that others had locked, and dead ones.
    visits: f64,
    /// Pages of the table and its indexes, for claims and leases.
    pages: f64,
}

impl ClaimCost {
    async fn so_far(options: &PostgresOptions) -> Self {
        let sql = "SELECT (SELECT count(*) FROM live WHERE state = 2)::float8, idx_tup_read::float8, \
             (heap_blks_read + heap_blks_hit + statio.idx_blks_read + statio.idx_blks_hit)::float8 \
             FROM pg_stat_user_indexes JOIN pg_statio_user_tables AS statio USING (relid) \
             WHERE indexrelname = 'live_claim'";
        let row = client(options).await.query_one(sql, &[]).await.unwrap();
        ClaimCost { claimed: row.get(0), visits: row.get(1), pages: row.get(2) }
    }

    fn per_row_since(self, before: ClaimCost) -> ClaimCost {
        let claimed = self.claimed - before.claimed;
        let (visits, pages) = (self.visits - before.visits, self.pages - before.pages);
        ClaimCost { claimed, visits: visits / claimed, pages: pages / claimed }
    }
}

/// One process that claims. All hold what they have before any commits.
struct Claimer<'a> {
    tables: PostgresTables,
    lane: i64,
    all: &'a Barrier,
}

impl Claimer<'_> {
    async fn claim(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.tables.begin().await.unwrap();
            let claims = vec![RequestedClaims { lanes: vec![self.lane], count: COUNT }];
            let found = self.tables.fetch(&ReadSet { claims, ..ReadSet::default() }).await.unwrap();
            self.all.wait().await;
            let lease = |row: &LiveRow| {
                let live = row.live.claimed(SessionId(7), 1, at(4)).unwrap();
                Leased::of(row, &LiveRow { live, ..row.clone() }).unwrap()
            };
            let leased = found.live.iter().map(lease).collect();
            self.tables.commit(&WriteSet { leased, ..WriteSet::default() }).await.unwrap();
        }
        self.tables.client().batch_execute("SELECT pg_stat_force_next_flush()").await.unwrap();
    }
}

async fn cost_with(claimers: usize) -> ClaimCost {
    let (sender, receiver) = std::sync::mpsc::channel();
    TestDatabase::with(async |options| {
        let all = Barrier::new(claimers);
        let mut group = Vec::new();
        for _ in 0..claimers {
            let mut tables = tables(&options).await;
            let lane = lane(&mut tables, "a").await;
            group.push(Claimer { tables, lane, all: &all });
        }
        client(&options).await.batch_execute(&backlog(group[0].lane)).await.unwrap();
        join_all(group.iter_mut().map(|claimer| claimer.claim(FIRST_ROUNDS))).await;
        // Looks go by the clock, and there would be more of them the slower the machine is.
        let no_looks = "UPDATE claim_heads SET looked_at = clock_timestamp(), look_rest = interval '1 day'";
        client(&options).await.batch_execute(no_looks).await.unwrap();
        let before = ClaimCost::so_far(&options).await;
        join_all(group.iter_mut().map(|claimer| claimer.claim(CLAIMS / claimers))).await;
        sender.send(ClaimCost::so_far(&options).await.per_row_since(before)).unwrap();
    })
    .await;
    receiver.recv().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_costs_sixteen_claimers_no_more_than_one() {
    let (one, sixteen) = (cost_with(1).await, cost_with(16).await);
    println!("one claimer: {one:?}\nsixteen: {sixteen:?}");
    assert!(sixteen.claimed >= 0.9 * (COUNT * CLAIMS) as f64, "windows are full: {sixteen:?}");
    assert!(sixteen.visits <= GROWTH_MAX * one.visits, "{sixteen:?} with sixteen, {one:?} with one");
    assert!(sixteen.pages <= GROWTH_MAX * one.pages, "{sixteen:?} with sixteen, {one:?} with one");
}
