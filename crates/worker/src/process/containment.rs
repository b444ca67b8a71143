//! How the worker ends a command whose shim cannot, because the command has stopped or killed it.
//!
//! The shim ends the process tree in the normal case. The worker steps in when the shim does not answer a
//! stop in time, when the shim ends before the command, and when the handler is dropped. This module decides
//! when processes are killed; the [`Containment`] port knows how.

use super::protocol::Enclosure;
use punctual_core::limits;
use punctual_core::ports::{Clock, Spawn};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Child;

/// The first and the longest pause between two rounds of SIGKILL.
const ROUND_PAUSE_MIN: Duration = Duration::from_millis(10);
const ROUND_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Keeps the processes of each command together.
pub trait Containment: fmt::Debug + Send + Sync {
    /// The enclosure of the next command, whose job is in this queue. Its name is unique on this machine.
    fn next(&self, queue: &str) -> Enclosure;

    /// Sends SIGKILL to every process of a command except its shim, and removes the enclosure if it is empty.
    /// Does not wait. Without a shim, only the enclosure identifies the command's processes, and its files are
    /// removed as well.
    fn kill(&self, enclosure: &Enclosure, shim: Option<&ShimProcess>) -> Remains;
}

/// Whether processes of a command were left after a round of SIGKILL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    Nothing,
    Processes,
}

/// The process of a shim. It can be signalled safely even after it has been reaped.
#[derive(Debug)]
pub struct ShimProcess {
    pid: Pid,
    /// `None` on kernels without pidfds.
    pidfd: Option<OwnedFd>,
}

impl ShimProcess {
    /// A child of this process that has not been reaped yet.
    fn of(child: &Child) -> Option<Self> {
        let pid = Pid::from_raw(child.id()?.cast_signed())?;
        Some(ShimProcess { pid, pidfd: pidfd_open(pid, PidfdFlags::empty()).ok() })
    }

    /// Any process, if it exists and `is_it` still holds once its pid can no longer be reused.
    pub fn found(pid: Pid, is_it: impl FnOnce() -> bool) -> Option<Self> {
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::SRCH) => return None,
            Err(_) => None,
        };
        is_it().then_some(ShimProcess { pid, pidfd })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends a signal; returns whether the process existed.
    pub fn signal(&self, signal: Signal) -> bool {
        match &self.pidfd {
            Some(pidfd) => pidfd_send_signal(pidfd, signal).is_ok(),
            None => kill_process(self.pid, signal).is_ok(),
        }
    }
}

/// What a worker needs to end commands without their shim.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) containment: Arc<dyn Containment>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) spawn: Arc<dyn Spawn>,
}

impl Keeper {
    /// Takes responsibility for a command whose shim has just been started.
    pub(crate) fn watch(&self, enclosure: Enclosure, shim: &Child) -> Option<ContainedCommand> {
        let shim = Arc::new(ShimProcess::of(shim)?);
        let command = KeptCommand { keeper: self.clone(), enclosure, shim };
        Some(ContainedCommand { command, is_over: false })
    }
}

/// A command that is ended when this is dropped.
pub(crate) struct ContainedCommand {
    command: KeptCommand,
    is_over: bool,
}

#[derive(Clone)]
struct KeptCommand {
    keeper: Keeper,
    enclosure: Enclosure,
    shim: Arc<ShimProcess>,
}

impl ContainedCommand {
    /// Resumes a shim that its command may have stopped.
    pub(crate) fn wake_shim(&self) {
        self.command.shim.signal(Signal::CONT);
    }

    pub(crate) async fn sleep(&self, pause: Duration) {
        self.command.keeper.clock.sleep(pause).await;
    }

    /// Kills all processes of the command, and then its shim. The shim has some time to report what it has
    /// read.
    pub(crate) async fn kill_with_shim(&self) {
        self.command.kill_until_gone(Some(&self.command.shim)).await;
        self.sleep(limits::SHIM_ANSWER_MAX).await;
        self.command.shim.signal(Signal::KILL);
    }

    /// Ends the processes that a reaped shim left behind. Returns when none is left.
    pub(crate) async fn over(mut self) {
        self.command.kill_until_gone(None).await;
        self.is_over = true;
    }
}

impl Drop for ContainedCommand {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // A worker that is about to end gets no further than this round.
        let command = self.command.clone();
        if command.kill(Some(&command.shim)) == Remains::Processes {
            let spawn = command.keeper.spawn.clone();
            spawn.spawn(Box::pin(async move {
                // From here on the shim may be reaped at any time.
                let shim = Some(&*command.shim).filter(|shim| shim.pidfd.is_some());
                command.kill_until_gone(shim).await;
            }));
        }
    }
}

impl KeptCommand {
    fn kill(&self, shim: Option<&ShimProcess>) -> Remains {
        let remains = self.keeper.containment.kill(&self.enclosure, shim);
        if let Some(shim) = shim {
            // No process is left that could stop it again.
            shim.signal(Signal::CONT);
        }
        remains
    }

    async fn kill_until_gone(&self, shim: Option<&ShimProcess>) {
        let mut pause = ROUND_PAUSE_MIN;
        while self.kill(shim) == Remains::Processes {
            self.keeper.clock.sleep(pause).await;
            pause = (pause * 2).min(ROUND_PAUSE_MAX);
        }
    }
}
