//! Handling of Ctrl-C and similar signals while servers run: an interrupted process still waits until they
//! have ended.

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Interrupts {
    state: Mutex<InterruptState>,
}

struct InterruptState {
    /// The guard reads from it; when it is closed, the guard ends the servers. `None` after that.
    lifeline: Option<ChildStdin>,
    command: Option<Pid>,
    /// The first signal received.
    interrupted_by: Option<i32>,
}

impl Interrupts {
    /// Handles signals from now on.
    pub fn watch(lifeline: ChildStdin) -> Result<Arc<Self>> {
        let state = InterruptState { lifeline: Some(lifeline), command: None, interrupted_by: None };
        let interrupts = Arc::new(Interrupts { state: Mutex::new(state) });
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let shared = interrupts.clone();
        std::thread::spawn(move || signals.forever().for_each(|signal| shared.take(signal)));
        Ok(interrupts)
    }

    fn take(&self, signal: i32) {
        let mut state = self.state();
        if state.lifeline.is_none() && state.interrupted_by.is_none() {
            // Nothing is left to wait for: use the default action.
            let _ = emulate_default_handler(signal);
        }
        state.interrupted_by.get_or_insert(signal);
        match state.command {
            // A terminal sends SIGINT to the command as well; a second one would mean something else.
            Some(_) if signal == SIGINT => {}
            Some(command) => drop(kill_process(command, Signal::TERM)),
            None => state.lifeline = None,
        }
    }

    /// Sets the command that signals are forwarded to, so that the servers outlive it.
    pub fn pass_on_to(&self, process: u32) {
        let mut state = self.state();
        state.command = i32::try_from(process).ok().and_then(Pid::from_raw);
        // Signals that came while the command was being started are forwarded, too.
        if let (Some(command), Some(_)) = (state.command, state.interrupted_by) {
            let _ = kill_process(command, Signal::TERM);
        }
    }

    pub fn stop_forwarding(&self) {
        self.state().command = None;
    }

    pub fn cut_lifeline(&self) {
        self.state().lifeline = None;
    }

    /// Ends this process with the signal that it received while it still had to wait.
    pub fn end_if_interrupted(&self) {
        let signal = self.state().interrupted_by;
        if let Some(signal) = signal {
            let _ = emulate_default_handler(signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, InterruptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
