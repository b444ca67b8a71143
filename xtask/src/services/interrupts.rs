//! What happens to Ctrl-C and its like while servers run: whoever is interrupted still waits until they are gone.

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub struct Interrupts {
    state: Mutex<State>,
}

struct State {
    /// The guard reads from it; when it is closed, the guard ends the servers. None once that was done.
    lifeline: Option<ChildStdin>,
    command: Option<Pid>,
    /// The first signal that came.
    interrupted_by: Option<i32>,
}

impl Interrupts {
    /// Takes signals from now on.
    pub fn watch(lifeline: ChildStdin) -> Result<Arc<Self>> {
        let state = State { lifeline: Some(lifeline), command: None, interrupted_by: None };
        let interrupts = Arc::new(Interrupts { state: Mutex::new(state) });
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let shared = interrupts.clone();
        std::thread::spawn(move || signals.forever().for_each(|signal| shared.take(signal)));
        Ok(interrupts)
    }

    fn take(&self, signal: i32) {
        let mut state = self.state();
        if state.lifeline.is_none() && state.interrupted_by.is_none() {
            // There is nothing left to wait for: as if nobody watched.
            let _ = emulate_default_handler(signal);
        }
        state.interrupted_by.get_or_insert(signal);
        match state.command {
            // A terminal sends SIGINT to the command as well; twice would mean more than once.
            Some(_) if signal == SIGINT => {}
            Some(command) => drop(kill_process(command, Signal::TERM)),
            None => state.lifeline = None,
        }
    }

    /// The command that is told to end, so that the servers outlive it.
    pub fn pass_on_to(&self, process: u32) {
        let mut state = self.state();
        state.command = i32::try_from(process).ok().and_then(Pid::from_raw);
        // What came while the command was being started was meant for it, too.
        if let (Some(command), Some(_)) = (state.command, state.interrupted_by) {
            let _ = kill_process(command, Signal::TERM);
        }
    }

    pub fn pass_on_to_nobody(&self) {
        self.state().command = None;
    }

    pub fn cut_lifeline(&self) {
        self.state().lifeline = None;
    }

    /// Ends this process by the signal that it was sent while there was still something to wait for.
    pub fn end_if_interrupted(&self) {
        let signal = self.state().interrupted_by;
        if let Some(signal) = signal {
            let _ = emulate_default_handler(signal);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
