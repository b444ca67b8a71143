//! One test per conformance case, each with its own database, whose tables must agree at the end.

use super::database::{TestDatabase, client};
use super::integrity::problems;
use crate::conformance::{Case, counts_agree};
use crate::postgres::PostgresStore;
use std::sync::Arc;

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::check(|store| Box::pin(crate::conformance::$module::$case(store))).await;
            })*
        }
    )*};
}
crate::each_conformance_case!(define);

async fn check(case: Case) {
    TestDatabase::with(async |options| {
        let store = Arc::new(PostgresStore::open(&options).await.unwrap());
        case(store.clone()).await;
        counts_agree(&*store).await;
        assert_eq!(problems(&client(&options).await).await, Vec::<String>::new());
    })
    .await;
}
