//! One test per conformance case, each with its own database on each server, whose tables must agree at the
//! end.

use super::database::{TestDatabase, client};
use super::integrity::problems;
use crate::conformance::{Case, counts_agree};
use crate::mysql::MySqlStore;
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
        let store = Arc::new(MySqlStore::open(&options).await.unwrap());
        case(store.clone()).await;
        counts_agree(&*store).await;
        assert_eq!(problems(&mut client(&options).await).await, Vec::<String>::new());
        close(store).await;
    })
    .await;
}

/// Waits until the database is no longer in use, so that the next test finds it idle.
async fn close(store: Arc<MySqlStore>) {
    if let Some(store) = Arc::into_inner(store) {
        store.close().await;
    }
}
