//! The parts of a process, whatever its role: loops, a worker, a listener. And the order in which they stop.

use super::signals::StopSignals;
use punctual_client::Span;
use punctual_config::exit::Exit;
use punctual_engine::Engine;
use punctual_worker::Worker;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens when an operator drains the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterDrain {
    /// The process continues without it until its next start.
    GoOn,
    /// The process has nothing else to do and ends.
    End,
}

/// Everything that runs in this process.
pub struct Node {
    loops: Option<(JoinHandle<()>, Arc<Engine>)>,
    worker: Option<(JoinHandle<()>, AfterDrain)>,
    http: Option<JoinHandle<()>>,
    draining: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
    drain_grace: Span,
}

impl Node {
    /// A process without running parts.
    pub fn new(drain_grace: Duration) -> Self {
        Node {
            loops: None,
            worker: None,
            http: None,
            draining: watch::Sender::new(false),
            stopping: watch::Sender::new(false),
            drain_grace: drain_grace.into(),
        }
    }

    /// Turns true when the process is about to stop.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.subscribe()
    }

    /// Turns true when all handlers have ended and open requests should end.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Ends the process as a signal would.
    pub fn drain(&self) -> watch::Sender<bool> {
        self.draining.clone()
    }

    pub fn run_loops(&mut self, engine: Arc<Engine>) {
        self.loops = Some((tokio::spawn(engine.clone().run()), engine));
    }

    pub fn run_worker(&mut self, worker: Worker, drained: AfterDrain) {
        self.worker = Some((tokio::spawn(work(worker, self.draining(), drained)), drained));
    }

    /// Runs the HTTP server, whose future ends after [`Node::stopping`] turns true.
    pub fn run_http(&mut self, serving: impl Future<Output = ()> + Send + 'static) {
        self.http = Some(tokio::spawn(serving));
    }

    /// Runs until a signal arrives, then stops in order. A second signal ends the process at once.
    pub async fn until_stopped(mut self, signals: &mut StopSignals) -> Exit {
        let ends_with_worker = matches!(self.worker, Some((_, AfterDrain::End)));
        let died = tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "stopping; a second signal stops immediately");
                None
            }
            () = ended(self.http.as_mut()) => Some("the listener"),
            () = ended(self.worker.as_mut().map(|(worker, _)| worker)) => Some("the worker").filter(|_| !ends_with_worker),
            () = ended(self.loops.as_mut().map(|(loops, _)| loops)) => Some("the scheduler"),
        };
        if let Some(part) = died {
            tracing::error!("{part} stopped unexpectedly: stopping the server");
            return Exit::Failed;
        }
        tokio::select! {
            () = self.stop() => Exit::Done,
            signal = signals.next() => {
                tracing::warn!(signal, "stopping immediately");
                std::process::exit(Exit::Failed as i32)
            }
        }
    }

    /// First, no work is accepted any more, and the segments of this process go to its peers, which fire them
    /// from then on. Then running handlers finish. Only then does the listener close: until the end the API
    /// shows what the process waits for, and submitted jobs are stored for the next start.
    async fn stop(self) {
        if self.worker.is_some() {
            tracing::info!("draining: running handlers may take up to {} to finish", self.drain_grace);
        }
        self.draining.send_replace(true);
        let mut stopped = None;
        if let Some((loops, engine)) = self.loops {
            // The loops continue meanwhile: what falls due before a peer takes over is still fired here.
            engine.hand_over().await;
            loops.abort();
            let _ = loops.await;
            stopped = Some(engine);
        }
        if let Some((worker, _)) = self.worker
            && !worker.is_finished()
        {
            let _ = worker.await;
            tracing::info!("drained; finishing open requests");
        }
        self.stopping.send_replace(true);
        if let Some(http) = self.http {
            let _ = http.await;
        }
        if let Some(engine) = stopped {
            engine.finish().await;
        }
    }
}

/// Waits until a part has ended; forever if there is none.
async fn ended(part: Option<&mut JoinHandle<()>>) {
    match part {
        Some(part) => {
            let _ = part.await;
        }
        None => std::future::pending().await,
    }
}

/// Runs the worker until the process stops, or, if the process is to end with it, until an operator drains
/// it.
async fn work(worker: Worker, mut draining: watch::Receiver<bool>, drained: AfterDrain) {
    worker.run(draining.clone()).await;
    if *draining.borrow() {
        return;
    }
    match drained {
        AfterDrain::End => tracing::info!("the worker was drained; the process exits"),
        AfterDrain::GoOn => {
            tracing::warn!(
                "the embedded worker was drained; this server runs no handlers until it is restarted"
            );
            let _ = draining.wait_for(|is_draining| *is_draining).await;
        }
    }
}
