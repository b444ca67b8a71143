//! Claims of crowded lanes reserve windows, and still miss nothing.

use super::database::TestDatabase;
use super::dialect::{query, run, tables};
use super::fixture::{at, fetch, id, job, lane, queued, write};
use super::waiting::eventually;
use crate::postgres::tables::PostgresTables;
use crate::rows::LiveRow;
use crate::unit_of_work::{Leased, ReadSet, RequestedClaims, Tables, WriteSet};
use punctual_core::ids::{OccurrenceId, SessionId};

fn ids(numbers: &[u32]) -> Vec<OccurrenceId> {
    numbers.iter().map(|number| id(*number).occurrence(1)).collect()
}

async fn queue(tables: &mut PostgresTables, lane: i64, numbers: &[u32]) {
    let jobs_inserted = numbers.iter().map(|number| job(*number, lane)).collect();
    let live_inserted = numbers.iter().map(|number| queued(*number, lane)).collect();
    write(tables, &WriteSet { jobs_inserted, live_inserted, ..WriteSet::default() }).await;
}

async fn first(tables: &mut PostgresTables, lane: i64, count: usize) -> Vec<OccurrenceId> {
    let claims = vec![RequestedClaims { lanes: vec![lane], count }];
    fetch(tables, &ReadSet { claims, ..ReadSet::default() }).await.claims.remove(0)
}

#[tokio::test]
async fn work_that_a_process_queues_before_its_window_is_found_first() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let lane = lane(&mut tables, "a").await;
        queue(&mut tables, lane, &[5, 6, 7, 8]).await;
        assert_eq!(first(&mut tables, lane, 2).await, ids(&[5, 6]));
        queue(&mut tables, lane, &[4]).await;
        assert_eq!(first(&mut tables, lane, 2).await, ids(&[4, 5]));
    })
    .await;
}

#[tokio::test]
async fn work_that_another_process_queues_before_the_head_is_found() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let number = lane(&mut one, "a").await;
        lane(&mut other, "a").await;
        queue(&mut one, number, &[5, 6, 7, 8]).await;
        assert_eq!(first(&mut one, number, 2).await, ids(&[5, 6]));
        queue(&mut other, number, &[4]).await;
        assert_eq!(
            first(&mut one, number, 9).await,
            ids(&[4, 5, 6, 7, 8]),
            "a claim for more than is found scans from the start"
        );

        assert_eq!(first(&mut one, number, 2).await, ids(&[4, 5]));
        queue(&mut other, number, &[3]).await;
        eventually("the first is found although there is enough other work", async || {
            first(&mut one, number, 2).await == ids(&[3, 4])
        })
        .await;
    })
    .await;
}

/// Claims this many in a lane and leases them.
async fn take(tables: &mut PostgresTables, lane: i64, count: usize) -> Vec<OccurrenceId> {
    let claims = vec![RequestedClaims { lanes: vec![lane], count }];
    tables.begin().await.unwrap();
    let found = tables.fetch(&ReadSet { claims, ..ReadSet::default() }).await.unwrap();
    let lease = |row: &LiveRow| {
        let live = row.live.claimed(SessionId(7), 1, at(4)).unwrap();
        Leased::of(row, &LiveRow { live, ..row.clone() }).unwrap()
    };
    let leased = found.live.iter().map(lease).collect();
    tables.commit(&WriteSet { leased, ..WriteSet::default() }).await.unwrap();
    assert_eq!(found.facts.len(), found.live.len(), "each comes with the data of its job");
    found.claims.concat()
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<u32> {
    range.collect()
}

#[tokio::test]
async fn windows_follow_each_other_and_the_rest_is_scanned() {
    TestDatabase::with(async |options| {
        let (mut one, mut other) = (tables(&options).await, tables(&options).await);
        let number = lane(&mut one, "a").await;
        lane(&mut other, "a").await;
        queue(&mut one, number, &numbers(1..=13)).await;
        assert_eq!(take(&mut one, number, 2).await, ids(&[1, 2]), "a scan");
        assert_eq!(take(&mut other, number, 2).await, ids(&[3, 4]), "a scan");
        assert_eq!(take(&mut one, number, 2).await, ids(&[5, 6]), "the first window");
        assert_eq!(take(&mut other, number, 2).await, ids(&[7, 8]), "the second");
        assert_eq!(take(&mut other, number, 4).await, ids(&[9, 10, 11, 12]));
        assert_eq!(take(&mut one, number, 4).await, ids(&[13]), "less than a claim takes");
        assert_eq!(take(&mut one, number, 4).await, ids(&[]));
    })
    .await;
}

#[tokio::test]
async fn windows_of_several_lanes_are_given_out_by_rank() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let (a, b) = (lane(&mut tables, "a").await, lane(&mut tables, "b").await);
        queue(&mut tables, a, &[1, 2, 3, 7, 8, 9, 13, 14]).await;
        queue(&mut tables, b, &[4, 5, 6, 10, 11, 12]).await;
        let mut order = Vec::new();
        for _ in 0..7 {
            let claims = vec![RequestedClaims { lanes: vec![a, b], count: 2 }];
            tables.begin().await.unwrap();
            let found = tables.fetch(&ReadSet { claims, ..ReadSet::default() }).await.unwrap();
            let live_deleted = found.claims.concat();
            order.extend(live_deleted.clone());
            tables.commit(&WriteSet { live_deleted, ..WriteSet::default() }).await.unwrap();
        }
        assert_eq!(order, ids(&numbers(1..=14)));
    })
    .await;
}

#[tokio::test]
async fn the_window_of_a_claim_that_is_rolled_back_is_claimed_next() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let number = lane(&mut tables, "a").await;
        queue(&mut tables, number, &numbers(1..=20)).await;
        assert_eq!(take(&mut tables, number, 2).await, ids(&[1, 2]));
        tables.begin().await.unwrap();
        let claims = vec![RequestedClaims { lanes: vec![number], count: 2 }];
        let found = tables.fetch(&ReadSet { claims, ..ReadSet::default() }).await.unwrap();
        assert_eq!(found.claims, [ids(&[3, 4])]);
        tables.abandon().await;
        assert_eq!(take(&mut tables, number, 2).await, ids(&[3, 4]));
    })
    .await;
}

#[tokio::test]
async fn more_work_before_the_head_than_a_claim_takes_is_claimed_before_what_comes_after() {
    TestDatabase::with(async |options| {
        let mut tables = tables(&options).await;
        let number = lane(&mut tables, "a").await;
        queue(&mut tables, number, &numbers(101..=140)).await;
        assert_eq!(take(&mut tables, number, 2).await, ids(&[101, 102]));
        assert_eq!(take(&mut tables, number, 2).await, ids(&[103, 104]));
        queue(&mut tables, number, &numbers(1..=7)).await;
        for expected in [[1, 2], [3, 4], [5, 6]] {
            assert_eq!(take(&mut tables, number, 2).await, ids(&expected));
        }
        let mut rest = Vec::new();
        while rest.len() < 37 {
            rest.extend(take(&mut tables, number, 2).await);
        }
        rest.sort();
        assert_eq!(rest, ids(&[numbers(7..=7), numbers(105..=140)].concat()));
    })
    .await;
}

/// A head that is wrong costs time only, and so does a reservation that fails.
#[tokio::test]
async fn heads_are_hints() {
    TestDatabase::with(async |options| {
        for damage in [
            "TRUNCATE claim_heads",
            "UPDATE claim_heads SET rank = 9000",
            "UPDATE claim_heads SET rank = -9000, settled_rank = -9000, looked_at = 'infinity'",
            "UPDATE claim_heads SET looked_at = '-infinity'",
            "ALTER TABLE claim_heads ADD CONSTRAINT never CHECK (rank IS NULL) NOT VALID",
        ] {
            let mut tables = tables(&options).await;
            let number = lane(&mut tables, damage).await;
            run(&options, "DELETE FROM live; DELETE FROM jobs; DELETE FROM claim_heads").await;
            queue(&mut tables, number, &numbers(1..=20)).await;
            let mut taken = Vec::new();
            for round in 0..10 {
                if round == 3 {
                    run(&options, damage).await;
                }
                taken.extend(take(&mut tables, number, 2).await);
            }
            assert_eq!(taken, ids(&numbers(1..=20)), "{damage}");
        }
        assert_eq!(query(&options, "SELECT 1 FROM live WHERE state = 1").await.len(), 0);
    })
    .await;
}
