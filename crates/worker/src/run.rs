//! Carries out what a session decided. Each action that takes time is a separate task, which ends by sending
//! its event.

use crate::Worker;
use crate::logs::{ExecutionLog, LogOrigin, LogOutlet};
use crate::notes::{ExecutionNotes, NoteOutlet, UnsentNotes};
use crate::results::{ResultOutlet, with_large_result};
use crate::session::{SessionAction, SessionEvent};
use crate::supervise::{self, SupervisedRun};
use futures_util::future::{Either, join, select};
use punctual_core::ids::SessionId;
use punctual_core::limits;
use punctual_core::ports::{
    Assignment, ExecutionContext, Heartbeat, LeaseRef, Outcome, Poll, Task, WorkerPort, WorkerPortError,
};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) struct SessionHands<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) session: SessionId,
    pub(crate) events: mpsc::UnboundedSender<SessionEvent>,
    /// Stops a running handler: by sending the outcome to report, or by being dropped, which reports nothing.
    pub(crate) stops: BTreeMap<LeaseRef, mpsc::Sender<Outcome>>,
    /// Dropped to abandon the waiting poll.
    pub(crate) poll: Option<oneshot::Sender<Infallible>>,
}

impl SessionHands<'_> {
    pub(crate) fn act(&mut self, action: SessionAction) {
        let (port, session) = (self.worker.port.clone(), self.session);
        match action {
            SessionAction::Beat { beat, condition, draining } => {
                let sent_at = self.worker.host.clock.monotonic();
                let heartbeat = Heartbeat { session, beat, condition, draining };
                self.tell(
                    async move { SessionEvent::Beaten { sent_at, result: port.beat(heartbeat).await } },
                );
            }
            SessionAction::Measure => {
                if let Some(machine) = &self.worker.machine {
                    let measured = machine.measure();
                    self.tell(async move { SessionEvent::Measured(measured.await) });
                }
            }
            SessionAction::AskDemand(served) => {
                self.tell(async move { SessionEvent::Demanded(port.demand(served).await) });
            }
            SessionAction::Poll(poll) => {
                let (leave, left) = oneshot::channel();
                self.poll = Some(leave);
                self.worker.host.spawn.spawn(Box::pin(ask(port, poll, left, self.events.clone())));
            }
            SessionAction::LeavePoll => self.poll = None,
            SessionAction::Resync { turn, held } => {
                self.tell(async move { SessionEvent::Resynced(port.resync(session, turn, held).await) });
            }
            SessionAction::Start { assignment, deadline } => self.start(assignment, deadline),
            SessionAction::Stop { lease, outcome } => {
                if let Some(stop) = self.stops.get(&lease) {
                    // A handler that has just ended reports its own outcome; one that is being stopped
                    // reports the first.
                    let _ = stop.try_send(outcome);
                }
            }
            SessionAction::StopAll => self.stops.clear(),
            SessionAction::Report(reports) => {
                self.tell(async move { SessionEvent::Reported(port.report(reports).await) })
            }
            SessionAction::GiveBack(leases) => {
                self.tell(async move { SessionEvent::GaveBack(port.give_back(session, leases).await) });
            }
            SessionAction::Close => self.tell(async move {
                if let Err(error) = port.close_session(session).await {
                    tracing::warn!(%error, "the session was not closed; its lease will expire");
                }
                SessionEvent::Closed
            }),
            SessionAction::After(pause, event) => {
                let sleep = self.worker.host.clock.sleep(pause);
                self.tell(async move {
                    sleep.await;
                    event
                });
            }
        }
    }

    /// Removes the stop channel of a handler that has ended.
    pub(crate) fn ended(&mut self, event: &SessionEvent) {
        if let SessionEvent::Ended { lease, .. } = event {
            self.stops.remove(lease);
        }
    }

    pub(crate) fn watch_drain(&self, mut drain: watch::Receiver<bool>) {
        let events = self.events.clone();
        self.worker.host.spawn.spawn(Box::pin(async move {
            // A dropped sender can only mean that the process is ending.
            let drained = pin!(drain.wait_for(|drain| *drain));
            if let Either::Left(_) = select(drained, pin!(events.closed())).await {
                let _ = events.send(SessionEvent::Drain);
            }
        }));
    }

    fn start(&mut self, assignment: Assignment, deadline: Timestamp) {
        let lease = assignment.lease();
        let (order, orders) = mpsc::channel(1);
        self.stops.insert(lease, order);
        let (calendar, clock) = (self.worker.host.calendar.clone(), self.worker.host.clock.clone());
        let timeout = clock.sleep(assignment.timeout);
        let started_at = calendar.monotonic();
        let logs = Arc::new(ExecutionLog::new(LogOrigin {
            execution: assignment.execution,
            calendar: calendar.clone(),
            started: (deadline.minus(assignment.timeout), started_at),
        }));
        let kept = logs.clone().keep(LogOutlet {
            port: self.worker.port.clone(),
            session: self.session,
            clock: clock.clone(),
            error_pause: self.worker.config.error_pause,
        });
        let notes = Arc::new(ExecutionNotes::new(clock.clone()));
        let noted = notes.clone().keep(NoteOutlet {
            port: self.worker.port.clone(),
            session: self.session,
            lease,
            error_pause: self.worker.config.error_pause,
        });
        let (stop, requests) = watch::channel(None);
        let had_ended = Arc::new(AtomicBool::new(false));
        let (handler, stop_time_max) = match self.worker.executors.get(&assignment.job_type) {
            Some(executor) => {
                let stop_time_max = executor.stop_time_max(&assignment);
                let stop = Arc::new(supervise::Stops { requests, had_ended: had_ended.clone() });
                let (logs, notes) = (logs.clone(), notes.clone());
                let results = Arc::new(ResultOutlet {
                    port: self.worker.port.clone(),
                    session: self.session,
                    lease,
                    clock: clock.clone(),
                    error_pause: self.worker.config.error_pause,
                });
                let (overflow, outlet) = (assignment.result_overflow, results.clone());
                let context = ExecutionContext { assignment, deadline, logs, notes, results, stop };
                (with_large_result(executor.execute(context), overflow, outlet), stop_time_max)
            }
            None => (no_handler(&assignment.job_type), Duration::ZERO),
        };
        let run =
            SupervisedRun { handler, timeout, orders, stop, had_ended, stop_time_max, clock: clock.clone() };
        let events = self.events.clone();
        self.worker.host.spawn.spawn(Box::pin(async move {
            let (outcome, kept) = match select(pin!(run.until_ended()), join(kept, noted)).await {
                Either::Left(ended) => ended,
                Either::Right(_) => unreachable!("a log is kept until it is closed"),
            };
            logs.close();
            notes.close(match outcome {
                Some(Outcome::Succeeded { .. }) => UnsentNotes::Drop,
                _ => UnsentNotes::Send,
            });
            select(kept, clock.sleep(limits::LAST_FLUSH_MAX)).await;
            // Without an outcome the session is over, and nothing is reported.
            if let Some(outcome) = outcome {
                let ended_at = calendar.monotonic();
                let _ = events.send(SessionEvent::Ended {
                    lease,
                    started_at,
                    ended_at,
                    outcome: outcome.within_limits(),
                });
            }
        }));
    }

    fn tell(&self, event: impl Future<Output = SessionEvent> + Send + 'static) {
        let events = self.events.clone();
        self.worker.host.spawn.spawn(Box::pin(async move {
            // The session may have ended meanwhile.
            let _ = events.send(event.await);
        }));
    }
}

/// Polls until the session is over or the poll is abandoned. Nothing could run the assignments after that:
/// the call is dropped, and assignments that have just arrived are returned.
async fn ask(
    port: Arc<dyn WorkerPort>,
    poll: Poll,
    left: oneshot::Receiver<Infallible>,
    events: mpsc::UnboundedSender<SessionEvent>,
) {
    let session = poll.session;
    let answer = match select(port.poll(poll), select(pin!(events.closed()), left)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((Either::Left(_), _)) => return,
        Either::Right((Either::Right(_), _)) => {
            Err(WorkerPortError::Unavailable("the worker no longer waits for work".to_owned()))
        }
    };
    if let Err(SendError(SessionEvent::Polled(Ok(assignments)))) = events.send(SessionEvent::Polled(answer)) {
        let leases = assignments.iter().map(Assignment::lease).collect();
        if let Err(error) = port.give_back(session, leases).await {
            tracing::debug!(%error, "work for a session that has ended was not given back");
        }
    }
}

fn no_handler(job_type: &str) -> Task<Outcome> {
    let error = format!("this worker has no handler for {job_type}");
    Box::pin(std::future::ready(Outcome::failed(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::House;
    use std::time::Duration;

    fn poll() -> Poll {
        let (queues, job_types) = (vec![], vec!["noop".to_owned()]);
        Poll { session: SessionId(7), turn: 1, capacity: 1, queues, job_types, wait: Duration::ZERO }
    }

    #[tokio::test]
    async fn a_poll_is_let_go_of_when_its_session_is_over() {
        let (house, (events, inbox)) = (House::new(), mpsc::unbounded_channel());
        let (_waits, left) = oneshot::channel();
        drop(inbox);
        ask(house.clone(), poll(), left, events).await;
        assert_eq!(house.given_back(), []);
    }

    #[tokio::test]
    async fn work_that_comes_when_the_session_is_over_goes_back() {
        let (house, (events, inbox)) = (House::new(), mpsc::unbounded_channel());
        house.allow(1);
        let (_waits, left) = oneshot::channel();
        drop(inbox);
        ask(house.clone(), poll(), left, events).await;
        assert_eq!(house.given_back().len(), 1);
    }

    #[tokio::test]
    async fn a_poll_that_is_left_is_told_as_one_of_which_nothing_is_known() {
        let (house, (events, mut inbox)) = (House::new(), mpsc::unbounded_channel());
        let (waits, left) = oneshot::channel();
        drop(waits);
        ask(house.clone(), poll(), left, events).await;
        let told = inbox.recv().await;
        assert!(matches!(told, Some(SessionEvent::Polled(Err(WorkerPortError::Unavailable(_))))), "{told:?}");
    }
}
