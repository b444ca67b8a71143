//! One test per conformance case, each with its own database on each server, whose tables must agree at the
//! end.

use super::database::TestDatabase;
use super::dialect::{ServerStore, close, problems};
use crate::conformance::{Case, counts_agree};
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
        let store = Arc::new(ServerStore::open(&options).await.unwrap());
        case(store.clone()).await;
        counts_agree(&*store).await;
        assert_eq!(problems(&options).await, Vec::<String>::new());
        close(store).await;
    })
    .await;
}
