//! One run of a handler from its start to its end: by itself, by its timeout, or because it was stopped.
//! Knows nothing of sessions and does not interpret the outcome.

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use punctual_core::ports::{Clock, Outcome, Stop, StopSignal, Task};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

pub(crate) struct SupervisedRun {
    pub(crate) handler: Task<Outcome>,
    pub(crate) timeout: Task,
    /// An outcome stops the handler and is reported; closing the channel stops it at once.
    pub(crate) orders: mpsc::Receiver<Outcome>,
    pub(crate) stop: watch::Sender<Option<Stop>>,
    /// Whether the handler's work had ended before it was asked to stop.
    pub(crate) had_ended: Arc<AtomicBool>,
    /// How long a handler may take to stop after it was asked to; zero drops it at once.
    pub(crate) stop_time_max: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl SupervisedRun {
    /// The outcome to report, or `None` if nothing is to be reported. The handler has ended by then.
    pub(crate) async fn until_ended(mut self) -> Option<Outcome> {
        let mut handler = pin!(AssertUnwindSafe(self.handler).catch_unwind());
        let outcome = match select(Box::pin(self.orders.recv()), select(&mut handler, self.timeout)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((Either::Left((Ok(outcome), _)), _)) => return Some(outcome),
            Either::Right((Either::Left((Err(panic), _)), _)) => return Some(panicked(&*panic)),
            Either::Right((Either::Right(_), _)) => Some(Outcome::TimedOut),
        };
        if self.stop_time_max.is_zero() {
            return outcome;
        }
        let mut ended = pin!(select(handler, self.clock.sleep(self.stop_time_max)));
        if outcome.is_some() {
            self.stop.send_replace(Some(Stop::Politely));
            let lost = pin!(until_closed(&mut self.orders));
            match select(&mut ended, lost).await {
                Either::Left((ended, _)) => {
                    tell_if_still_there(&ended);
                    return match ended {
                        Either::Left((Ok(own), _))
                            if outcome == Some(Outcome::TimedOut)
                                && self.had_ended.load(Ordering::Relaxed) =>
                        {
                            Some(own)
                        }
                        _ => outcome,
                    };
                }
                Either::Right(_) => {}
            }
        }
        self.stop.send_replace(Some(Stop::AtOnce));
        tell_if_still_there(&ended.await);
        None
    }
}

async fn until_closed(orders: &mut mpsc::Receiver<Outcome>) {
    while orders.recv().await.is_some() {}
}

fn tell_if_still_there<A, B>(ended: &Either<A, B>) {
    if let Either::Right(_) = ended {
        tracing::error!("a handler that was asked to stop has not ended; abandoning it");
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Outcome {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Outcome::failed(format!("the handler panicked: {message}"))
}

/// The stops requested of one handler.
pub(crate) struct Stops {
    pub(crate) requests: watch::Receiver<Option<Stop>>,
    pub(crate) had_ended: Arc<AtomicBool>,
}

#[async_trait]
impl StopSignal for Stops {
    async fn requested(&self, stop: Stop) {
        let mut requested = self.requests.clone();
        if requested.wait_for(|requested| *requested >= Some(stop)).await.is_err() {
            // The run is over, and this future will be dropped with it.
            std::future::pending::<()>().await;
        }
    }

    fn ended_before(&self) {
        self.had_ended.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TokioClock;

    /// A run of a handler that ends only when it is stopped, and reports which stop it got.
    fn stoppable(timeout: Duration) -> (SupervisedRun, mpsc::Sender<Outcome>, mpsc::Receiver<Stop>) {
        let (order, orders) = mpsc::channel(1);
        let (stop, stops) = watch::channel(None);
        let (tell, told) = mpsc::channel(2);
        let handler = Box::pin(async move {
            let stops = Stops { requests: stops, had_ended: Arc::default() };
            stops.requested(Stop::Politely).await;
            tell.send(Stop::Politely).await.unwrap();
            stops.requested(Stop::AtOnce).await;
            tell.send(Stop::AtOnce).await.unwrap();
            Outcome::Succeeded { result: None }
        });
        let clock = Arc::new(TokioClock);
        let timeout = clock.sleep(timeout);
        let stop_time_max = Duration::from_secs(60);
        let had_ended = Arc::default();
        (SupervisedRun { handler, timeout, orders, stop, had_ended, stop_time_max, clock }, order, told)
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_told_only_when_the_handler_has_ended() {
        let (run, _order, mut told) = stoppable(Duration::from_secs(1));
        assert_eq!(run.until_ended().await, Some(Outcome::TimedOut));
        assert_eq!(told.recv().await, Some(Stop::Politely));
        assert_eq!(told.recv().await, None, "it was abandoned after the longest time to stop");
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_had_ended_before_the_timeout_is_not_timed_out() {
        let (_order, orders) = mpsc::channel(1);
        let (stop, requests) = watch::channel(None);
        let stops = Stops { requests, had_ended: Arc::default() };
        let had_ended = stops.had_ended.clone();
        let handler = Box::pin(async move {
            stops.requested(Stop::Politely).await;
            stops.ended_before();
            Outcome::Succeeded { result: None }
        });
        let clock = Arc::new(TokioClock);
        let timeout = clock.sleep(Duration::from_secs(1));
        let run = SupervisedRun {
            handler,
            timeout,
            orders,
            stop,
            had_ended,
            stop_time_max: Duration::from_secs(60),
            clock,
        };
        assert_eq!(run.until_ended().await, Some(Outcome::Succeeded { result: None }));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_order_counts() {
        let (run, order, _told) = stoppable(Duration::from_secs(600));
        order.try_send(Outcome::Cancelled).unwrap();
        assert_eq!(run.until_ended().await, Some(Outcome::Cancelled));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_lease_makes_a_polite_stop_urgent_and_reports_nothing() {
        let (run, order, mut told) = stoppable(Duration::from_secs(600));
        order.try_send(Outcome::Cancelled).unwrap();
        let run = tokio::spawn(run.until_ended());
        assert_eq!(told.recv().await, Some(Stop::Politely));
        drop(order);
        assert_eq!(told.recv().await, Some(Stop::AtOnce));
        assert_eq!(run.await.unwrap(), None);
    }
}
