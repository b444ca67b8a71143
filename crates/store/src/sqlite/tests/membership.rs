//! One test per case of the membership table.

use crate::conformance::membership::TableConnections;
use std::sync::Arc;

macro_rules! define {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(super::open(dir.path()));
            let connections: TableConnections = vec![store.clone(), store.clone()];
            crate::conformance::membership::$case(connections).await;
            assert_eq!(store.integrity_check().await.unwrap(), Vec::<String>::new());
        }
    )*};
}
crate::each_membership_case!(define);

macro_rules! define_odd {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(super::open(dir.path()));
            let conn = rusqlite::Connection::open(dir.path().join("punctual.db")).unwrap();
            let run = async |sql: &'static str| conn.execute_batch(sql).unwrap();
            crate::conformance::membership::malformed::$case(vec![store], run).await;
        }
    )*};
}
define_odd!(
    rows_that_cannot_be_read_are_named_and_the_others_go_on,
    a_lease_whose_row_cannot_be_read_is_taken_and_is_in_nobodys_way,
);

/// SQLite accepts any bytes as text.
#[tokio::test]
async fn an_id_that_is_not_text_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = super::open(dir.path());
    let conn = rusqlite::Connection::open(dir.path().join("punctual.db")).unwrap();
    conn.execute_batch(
        "INSERT INTO cluster_members VALUES (CAST(x'ff' AS TEXT), 1, 1, 0, 0, CAST(x'fe' AS TEXT))",
    )
    .unwrap();
    let entries = punctual_core::ports::MembershipTable::entries(&store).await.unwrap();
    assert_eq!((entries.members.len(), entries.malformed.len()), (0, 1));
}
