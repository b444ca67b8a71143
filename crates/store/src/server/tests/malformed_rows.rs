//! Damaged rows: see [`crate::conformance::malformed_rows`].

use super::database::TestDatabase;
use super::dialect::{DIALECT, Options, ServerStore, find_malformed as find, rows_of, run, try_run};
use crate::conformance::malformed_rows::{
    Damage, SPOILED_QUEUES, damages, everything_else_works, is_found_by_check, populate, set_again,
};
use crate::layout::Layout;
use std::sync::Arc;

/// Opening a store on a server takes time: one in this many columns is tested, different ones in each
/// round.
const TRIED_EVERY: usize = 5;

/// Damages columns one by one; `chosen` names them when the rows are there.
async fn damage_columns(options: &Options, chosen: impl AsyncFnOnce() -> Vec<Damage>) {
    let store = Arc::new(ServerStore::open(options).await.unwrap());
    populate(store.clone()).await;
    assert_eq!(find(options).await.unwrap(), Vec::<String>::new());
    Arc::into_inner(store).unwrap().close().await;
    let mut tried = 0;
    for (number, damage) in chosen().await.iter().enumerate() {
        // A value that the database itself rejects cannot occur.
        if !try_run(options, &damage.spoil).await {
            continue;
        }
        tried += 1;
        println!("{}", damage.about);
        let store = ServerStore::open(options).await.unwrap();
        let check = async || find(options).await.unwrap();
        is_found_by_check(damage, everything_else_works(&store, number as u32), check).await;
        store.close().await;
        // If the damaged row was replaced meanwhile, the replacement stays.
        try_run(options, &damage.repair).await;
    }
    assert!(tried > 20, "{tried}");
}

async fn damages_of(options: &Options, round: usize) -> Vec<Damage> {
    damages(DIALECT, round, async |table: &'static Layout| rows_of(options, table).await).await
}

async fn damage_every_column(options: &Options, round: usize) {
    damage_columns(options, async || {
        damages_of(options, round).await.into_iter().skip(round).step_by(TRIED_EVERY).collect()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_row_affects_only_what_it_describes() {
    TestDatabase::with(async |options| damage_every_column(&options, 0).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_damaged_with_other_values_affects_only_what_it_describes() {
    TestDatabase::with(async |options| damage_every_column(&options, 1).await).await;
}

/// Three rounds give every column the first or the last number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_with_times_beyond_the_calendar_affects_only_what_it_describes() {
    TestDatabase::with(async |options| {
        damage_columns(&options, async || {
            let mut chosen = Vec::new();
            for round in 0..3 {
                let all = damages_of(&options, round).await.into_iter();
                let times = all.filter(|damage| damage.is_beyond_calendar);
                // Retention may have deleted the row by then, so that a check finds nothing.
                chosen.extend(times.map(|damage| Damage { is_beyond_calendar: false, ..damage }));
            }
            chosen
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_malformed_queue_is_paused_until_it_is_set_again() {
    TestDatabase::with(async |options| {
        ServerStore::open(&options).await.unwrap().close().await;
        for (number, (column, sql)) in (1..).zip(SPOILED_QUEUES) {
            let spoil = async || run(&options, sql).await;
            let open = async || Arc::new(ServerStore::open(&options).await.unwrap());
            let problem = set_again(number, open, spoil, async || find(&options).await.unwrap()).await;
            assert!(
                problem.starts_with(&format!("malformed row in queues, key \"bulk\", column {column}: ")),
                "{problem}"
            );
        }
    })
    .await;
}
