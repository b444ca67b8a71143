//! Signals that end a benchmark early.

use anyhow::Context;
use punctual_config::exit::{CliError, Exit};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct BenchSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl BenchSignals {
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(BenchSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }

    /// Runs `work` unless a signal arrives first. Dropping a benchmark stops its server and removes its directory.
    pub async fn unless<T>(&mut self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        tokio::select! {
            biased;
            () = self.next() => Err(broken_off().into()),
            done = work => done,
        }
    }
}

pub fn broken_off() -> CliError {
    CliError { exit: Exit::Failed, message: "interrupted; all temporary data was removed".to_owned() }
}
