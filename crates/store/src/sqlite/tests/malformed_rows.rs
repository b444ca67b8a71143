//! Damaged rows: see [`crate::conformance::malformed_rows`].

use super::open;
use crate::conformance::malformed_rows::{
    Dialect, ROUNDS, SPOILED_QUEUES, damages, everything_else_works, is_found_by_check, populate, set_again,
};
use crate::layout::Layout;
use crate::sqlite::malformed::{malformed_rows, rows_of};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

fn connection(dir: &Path) -> Connection {
    Connection::open(dir.join("punctual.db")).unwrap()
}

async fn damage_every_column(round: usize) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()));
    populate(store.clone()).await;
    assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
    drop(store);
    let rows = async |table: &'static Layout| rows_of(&connection(dir.path()), table).unwrap();
    let mut tried = 0;
    for (number, damage) in damages(Dialect::Sqlite, round, rows).await.iter().enumerate() {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap) {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        // A value that the database itself rejects cannot occur.
        if connection(copy.path()).execute_batch(&damage.spoil).is_err() {
            continue;
        }
        tried += 1;
        println!("{}", damage.about);
        let store = open(copy.path());
        let check = async || malformed_rows(&connection(copy.path())).unwrap();
        is_found_by_check(damage, everything_else_works(&store, number as u32), check).await;
    }
    assert!(tried > 100, "{tried}");
}

macro_rules! rounds {
    ($($name:ident = $round:literal),*) => {$(
        #[tokio::test]
        async fn $name() {
            const { assert!($round < ROUNDS) };
            damage_every_column($round).await;
        }
    )*};
}
rounds!(
    a_damaged_row_affects_only_what_it_describes = 0,
    a_row_damaged_with_other_values_affects_only_what_it_describes = 1,
    and_with_the_largest_numbers = 2,
    and_without_values = 3,
    and_with_bytes_that_are_no_text = 4
);

#[tokio::test]
async fn a_malformed_queue_is_paused_until_it_is_set_again() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    for (number, (column, sql)) in (1..).zip(SPOILED_QUEUES) {
        let spoil = async || connection(dir.path()).execute_batch(sql).unwrap();
        let check = async || malformed_rows(&connection(dir.path())).unwrap();
        let problem = set_again(number, async || Arc::new(open(dir.path())), spoil, check).await;
        assert!(
            problem.starts_with(&format!("malformed row in queues, key \"bulk\", column {column}: ")),
            "{problem}"
        );
    }
}
