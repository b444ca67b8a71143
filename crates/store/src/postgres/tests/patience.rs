//! Waiting for something to come true, with a patience that ends.

use punctual_core::ports::StoreError;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks until it is so.
pub(super) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Repeats a call, as its callers do, until it is answered.
pub(super) async fn again<T, F: Future<Output = Result<T, StoreError>>>(call: impl Fn() -> F) -> T {
    let start = Instant::now();
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                assert!(start.elapsed() < PATIENCE, "never came back: {error}");
                // The pace of a caller that tries again, not a wait for something.
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
