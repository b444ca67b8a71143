//! The baseline, in a separate database.

use super::database::TestDatabase;
use super::dialect::{Baseline, Options, problems, query};
use crate::baseline::{BaselineDatabase, BaselineOptions, NOT_EMPTY, Past, RowProgress};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test]
async fn the_baseline_is_measured_in_an_empty_database_only() {
    TestDatabase::with(async |options| {
        let mut baseline = Baseline::open(&options).await.unwrap();
        let few = BaselineOptions { jobs: 1_250, batch: 600, payload_bytes: 100 };
        let rates = baseline.measure_baseline(few).await.unwrap();
        assert!(rates.insert_per_sec > 0.0 && rates.claim_complete_per_sec > 0.0 && rates.hold_per_sec > 0.0);
        assert_eq!(counts(&options).await, ["2500", "0", "1250", "1250"]);
        let error = baseline.measure_baseline(few).await.unwrap_err();
        assert!(error.to_string().contains(NOT_EMPTY), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_database_with_a_history_is_consistent() {
    TestDatabase::with(async |options| {
        // Other tests have narrow partitions, of which this history would need half a million.
        let options = Options { partition_width: limits::PARTITION_WIDTH, ..options };
        let mut baseline = Baseline::open(&options).await.unwrap();
        let empty = baseline.size().await.unwrap().bytes;
        let until = Timestamp::from_micros(1_763_195_400_000_000);
        let span = Duration::from_secs(5 * 86_400);
        let past = Past { executions: 8_005, until, span, payload_bytes: 100 };
        let written = Arc::new(AtomicUsize::new(0));
        let counter = written.clone();
        let progress: RowProgress = Arc::new(move |rows| {
            counter.fetch_add(rows as usize, Ordering::Relaxed);
        });
        baseline.keep_past(past, progress).await.unwrap();
        assert_eq!(written.load(Ordering::Relaxed), 8_005);
        assert_eq!(counts(&options).await, ["801", "0", "8005", "0"]);
        assert_eq!(problems(&options).await, Vec::<String>::new());
        baseline.commit_once().await.unwrap();
        assert!(baseline.size().await.unwrap().bytes > empty);
    })
    .await;
}

/// Jobs, open occurrences, history, schedules.
async fn counts(options: &Options) -> Vec<String> {
    let sql = "SELECT (SELECT COUNT(*) FROM jobs), (SELECT COUNT(*) FROM live), (SELECT COUNT(*) FROM history), \
         (SELECT COUNT(*) FROM schedules)";
    query(options, sql).await.remove(0)
}
