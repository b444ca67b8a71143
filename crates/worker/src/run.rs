//! Acts on what a session decided. Each action that takes time is a task of its own, which ends by sending its
//! event.

use crate::Worker;
use crate::session::{Action, Event};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use punctual_core::ids::SessionId;
use punctual_core::limits;
use punctual_core::ports::{Assignment, ExecutionContext, LeaseRef, Outcome};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) struct Hands<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) session: SessionId,
    pub(crate) events: mpsc::UnboundedSender<Event>,
    /// Stops a running handler: by sending the outcome to report, or by being dropped, which reports nothing.
    pub(crate) stops: BTreeMap<LeaseRef, oneshot::Sender<Outcome>>,
}

impl Hands<'_> {
    pub(crate) fn act(&mut self, action: Action) {
        let (port, session) = (self.worker.port.clone(), self.session);
        match action {
            Action::Beat(beat) => {
                let sent_at = self.worker.host.clock.monotonic();
                self.tell(async move { Event::Beaten { sent_at, result: port.beat(session, beat).await } });
            }
            Action::Poll(poll) => self.tell(async move { Event::Polled(port.poll(poll).await) }),
            Action::Resync { turn, held } => {
                self.tell(async move { Event::Resynced(port.resync(session, turn, held).await) });
            }
            Action::Start { assignment, deadline } => self.start(assignment, deadline),
            Action::Stop { lease, outcome } => {
                if let Some(stop) = self.stops.remove(&lease) {
                    // A handler that has just ended reports its own outcome.
                    let _ = stop.send(outcome);
                }
            }
            Action::StopAll => self.stops.clear(),
            Action::Report(reports) => self.tell(async move { Event::Reported(port.report(reports).await) }),
            Action::GiveBack(leases) => {
                self.tell(async move {
                    if let Err(error) = port.give_back(session, leases).await {
                        tracing::debug!(%error, "unstarted work not given back; closing the session will");
                    }
                    Event::GaveBack
                });
            }
            Action::Close => self.tell(async move {
                if let Err(error) = port.close_session(session).await {
                    tracing::warn!(%error, "the session was not closed; it will be found silent");
                }
                Event::Closed
            }),
            Action::After(pause, event) => {
                let sleep = self.worker.host.clock.sleep(pause);
                self.tell(async move {
                    sleep.await;
                    event
                });
            }
        }
    }

    /// Forgets how to stop a handler that has ended.
    pub(crate) fn ended(&mut self, event: &Event) {
        if let Event::Ended { lease, .. } = event {
            self.stops.remove(lease);
        }
    }

    pub(crate) fn watch_drain(&self, mut drain: watch::Receiver<bool>) {
        let events = self.events.clone();
        self.worker.host.spawn.spawn(Box::pin(async move {
            // A sender that is gone can only mean that the process is ending.
            let drained = pin!(drain.wait_for(|drain| *drain));
            if let Either::Left(_) = select(drained, pin!(events.closed())).await {
                let _ = events.send(Event::Drain);
            }
        }));
    }

    fn start(&mut self, assignment: Assignment, deadline: Timestamp) {
        let lease = assignment.lease();
        let (stop, stopped) = oneshot::channel();
        self.stops.insert(lease, stop);
        let calendar = self.worker.host.calendar.clone();
        let timeout = self.worker.host.clock.sleep(assignment.timeout);
        let handler = match self.worker.executors.get(&assignment.job_type) {
            Some(executor) => executor.execute(ExecutionContext { assignment, deadline }),
            None => {
                let error = format!("this worker has no handler for {}", assignment.job_type);
                Box::pin(async move { Outcome::Failed { error, retryable: true } })
            }
        };
        let (events, started_at) = (self.events.clone(), calendar.monotonic());
        self.worker.host.spawn.spawn(Box::pin(async move {
            let handler = AssertUnwindSafe(handler).catch_unwind();
            let outcome = match select(stopped, select(pin!(handler), timeout)).await {
                Either::Left((Ok(outcome), _)) => outcome,
                // The session is over: nobody is to hear of it.
                Either::Left((Err(_), _)) => return,
                Either::Right((Either::Left((Ok(outcome), _)), _)) => bounded(outcome),
                Either::Right((Either::Left((Err(panic), _)), _)) => panicked(&*panic),
                Either::Right((Either::Right(_), _)) => Outcome::TimedOut,
            };
            let _ = events.send(Event::Ended { lease, started_at, ended_at: calendar.monotonic(), outcome });
        }));
    }

    fn tell(&self, event: impl Future<Output = Event> + Send + 'static) {
        let events = self.events.clone();
        self.worker.host.spawn.spawn(Box::pin(async move {
            // The session may have ended meanwhile.
            let _ = events.send(event.await);
        }));
    }
}

/// Holds an outcome to its limits.
fn bounded(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Succeeded { result: Some(result) } if result.len() > limits::RESULT_BYTES_MAX => {
            Outcome::Failed {
                error: format!(
                    "the result has {} bytes, more than the {} that are kept",
                    result.len(),
                    limits::RESULT_BYTES_MAX
                ),
                retryable: false,
            }
        }
        Outcome::Failed { error, retryable } if error.len() > limits::ERROR_BYTES_MAX => {
            let cut = error.floor_char_boundary(limits::ERROR_BYTES_MAX);
            Outcome::Failed { error: format!("{} […]", &error[..cut]), retryable }
        }
        outcome => outcome,
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Outcome {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Outcome::Failed { error: format!("the handler panicked: {message}"), retryable: true }
}
