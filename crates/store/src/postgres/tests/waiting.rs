//! Waiting for a condition, with a time limit.

use punctual_core::ports::StoreError;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// Checks until the condition is true.
pub(super) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Repeats a call, like its callers do, until it succeeds.
pub(super) async fn again<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    let start = Instant::now();
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                assert!(start.elapsed() < PATIENCE, "never came back: {error}");
                // The pace of a caller that retries, not a wait for something.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
