//! Claims start where work was last found, and still miss nothing.

use super::database::TestDatabase;
use super::dialect::tables;
use super::fixture::{fetch, id, job, lane, queued, write};
use super::waiting::eventually;
use crate::postgres::tables::PostgresTables;
use crate::unit_of_work::{ReadSet, RequestedClaims, WriteSet};
use punctual_core::ids::OccurrenceId;

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
async fn work_that_a_process_queues_before_its_cursor_is_found_first() {
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
async fn work_that_another_process_queues_before_the_cursor_is_found() {
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
