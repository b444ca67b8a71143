//! Results that are too large for the database, on their way to the server.

use async_trait::async_trait;
use punctual_core::blobs::HeldBlob;
use punctual_core::ids::SessionId;
use punctual_core::job::ResultOverflow;
use punctual_core::limits;
use punctual_core::ports::{BlobError, BlobSource, Clock, LeaseRef, Outcome, ResultSink, Task, WorkerPort};
use std::sync::Arc;
use std::time::Duration;

/// Where the result of one execution goes.
pub(crate) struct ResultOutlet {
    pub(crate) port: Arc<dyn WorkerPort>,
    pub(crate) session: SessionId,
    pub(crate) lease: LeaseRef,
    pub(crate) clock: Arc<dyn Clock>,
    /// Pause after a failed call.
    pub(crate) error_pause: Duration,
}

#[async_trait]
impl ResultSink for ResultOutlet {
    async fn store(&self, result: Arc<dyn BlobSource>) -> Result<String, BlobError> {
        loop {
            let stored = match result.open().await {
                Ok(parts) => self.port.store_result(self.session, self.lease, parts).await,
                Err(unreadable) => return Err(unreadable),
            };
            match stored {
                Ok(reference) => return Ok(reference.to_json()),
                // The work is done and must not be repeated: only a stop of the handler ends this.
                Err(error @ BlobError::Unavailable(_)) => {
                    tracing::debug!(%error, "a result was not stored; retrying");
                    self.clock.sleep(self.error_pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The handler, whose result is stored as a blob if it is too large and its job asks for that.
pub(crate) fn with_large_result(
    handler: Task<Outcome>,
    overflow: ResultOverflow,
    results: Arc<dyn ResultSink>,
) -> Task<Outcome> {
    if overflow != ResultOverflow::Blob {
        return handler;
    }
    Box::pin(async move {
        match handler.await {
            Outcome::Succeeded { result: Some(result) } if result.len() > limits::RESULT_BYTES_MAX => {
                Outcome::with_stored(results.store(Arc::new(HeldBlob(result.into_bytes()))).await)
            }
            outcome => outcome,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{House, TokioClock};
    use punctual_core::ids::{Epoch, JobId};
    use punctual_core::time::Timestamp;

    fn outlet(house: Arc<House>) -> Arc<dyn ResultSink> {
        let execution = JobId::new(Timestamp::EPOCH, 1).occurrence(1).attempt(1);
        Arc::new(ResultOutlet {
            port: house,
            session: SessionId(1),
            lease: LeaseRef { execution, epoch: Epoch(1) },
            clock: Arc::new(TokioClock),
            error_pause: Duration::from_secs(1),
        })
    }

    async fn ended(house: Arc<House>, overflow: ResultOverflow, bytes: usize) -> Outcome {
        let result = Some(format!("\"{}\"", "x".repeat(bytes - 2)));
        let handler: Task<Outcome> = Box::pin(std::future::ready(Outcome::Succeeded { result }));
        with_large_result(handler, overflow, outlet(house)).await.within_limits()
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_result_of_any_handler_is_stored_if_its_job_asks_for_it() {
        let house = House::new();
        let is_reference = |outcome: &Outcome| match outcome {
            Outcome::Succeeded { result: Some(result) } => result.contains("$blob"),
            _ => false,
        };
        let most = limits::RESULT_BYTES_MAX;
        assert!(!is_reference(&ended(house.clone(), ResultOverflow::Blob, most).await));
        assert!(is_reference(&ended(house.clone(), ResultOverflow::Blob, most + 1).await));
        let refused = ended(house, ResultOverflow::Truncate, most + 1).await;
        assert!(matches!(refused, Outcome::Failed { retryable: false, .. }), "{refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_delays_a_result_and_one_that_refuses_it_fails_the_attempt() {
        let house = House::new();
        let away = BlobError::Unavailable("away".to_owned());
        house.failures_of_results.lock().unwrap().extend([away.clone(), away]);
        let began = tokio::time::Instant::now();
        let bytes = limits::RESULT_BYTES_MAX + 1;
        let stored = ended(house.clone(), ResultOverflow::Blob, bytes).await;
        assert!(matches!(stored, Outcome::Succeeded { .. }), "{stored:?}");
        assert_eq!(began.elapsed(), Duration::from_secs(2));

        house.failures_of_results.lock().unwrap().push(BlobError::TooLarge { bytes_max: 7 });
        let error =
            "the result was not stored (result_overflow: blob): it has more than 7 bytes (blobs.size_max)";
        assert_eq!(
            ended(house, ResultOverflow::Blob, bytes).await,
            Outcome::failed_for_good(error.to_owned())
        );
    }
}
