//! One server and what has to run before it: a series of commands in one folder, each in a process group of its own that
//! can be ended as a whole.

use super::Service;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The last lines of a server's output that are shown when it fails.
const LINES_SHOWN_MAX: usize = 30;
/// Another program may take a port between our looking for it and the server's using it; it does not do so every time.
const PORTS_TRIED_MAX: usize = 5;
/// How every server says that its port is taken.
const PORT_TAKEN: &str = "already in use";

/// How a server is started and stopped.
pub struct Plan {
    pub service: Service,
    /// Run to their end first, one after the other.
    pub setup: Vec<Command>,
    /// Takes `--port=N` behind its arguments; if there are several, the last one counts.
    pub server: Command,
    /// A part of the line in which the server says that it takes connections.
    pub ready_line: &'static str,
    /// Ends it quickly: what it holds is thrown away.
    pub stop_signal: Signal,
    pub url: fn(port: u16) -> String,
}

/// What becomes of a server. The last one is always `Ended`.
pub enum Event {
    Ready { service: Service, url: String, took: Duration },
    Ended { service: Service, why: anyhow::Error },
    LifelineCut,
}

/// Carries a plan out, on a thread of its own, to the end of the server.
pub fn carry_out(plan: Plan, children: Arc<Children>, events: Sender<Event>) {
    std::thread::spawn(move || {
        let service = plan.service;
        let Err(why) = run(plan, &children, &events);
        // Nobody listens any more when the guard itself is at its end.
        let _ = events.send(Event::Ended { service, why });
    });
}

fn run(mut plan: Plan, children: &Children, events: &Sender<Event>) -> Result<std::convert::Infallible> {
    let started = Instant::now();
    for command in &mut plan.setup {
        let (id, output) = children.spawn(command, Signal::KILL)?;
        let mut shown = LastLines::default();
        output.lines().map_while(Result::ok).for_each(|line| shown.push(line));
        let status = children.wait(id)?;
        ensure!(status.success(), "{command:?} failed: {status}\n{shown}");
    }
    let mut ports_tried = 0;
    loop {
        let port = free_port()?;
        ports_tried += 1;
        plan.server.arg(format!("--port={port}"));
        let (id, output) = children.spawn(&mut plan.server, plan.stop_signal)?;
        let (mut shown, mut was_ready, mut port_was_taken) = (LastLines::default(), false, false);
        for line in output.lines().map_while(Result::ok) {
            if !was_ready && line.contains(plan.ready_line) {
                was_ready = true;
                let ready =
                    Event::Ready { service: plan.service, url: (plan.url)(port), took: started.elapsed() };
                let _ = events.send(ready);
            }
            port_was_taken |= line.contains(PORT_TAKEN);
            shown.push(line);
        }
        let status = children.wait(id)?;
        if was_ready || !port_was_taken || ports_tried == PORTS_TRIED_MAX {
            bail!("{} ended: {status}\n{shown}", plan.service.word());
        }
    }
}

/// A port that nobody listens on at this moment.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port")?;
    Ok(listener.local_addr()?.port())
}

#[derive(Default)]
struct LastLines(VecDeque<String>);

impl LastLines {
    fn push(&mut self, line: String) {
        if self.0.len() == LINES_SHOWN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }
}

impl std::fmt::Display for LastLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Every process that was started and not yet waited for.
#[derive(Default)]
pub struct Children {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Nothing is started any more.
    is_closed: bool,
    running: Vec<Running>,
}

struct Running {
    child: Child,
    id: Pid,
    stop_signal: Signal,
}

impl Children {
    /// Starts a command as the first of a process group. Returns what it and all that it starts write, until the last of
    /// them has ended.
    fn spawn(&self, command: &mut Command, stop_signal: Signal) -> Result<(Pid, BufReader<PipeReader>)> {
        let mut state = self.state();
        ensure!(!state.is_closed, "the services are being stopped");
        let (reader, writer) = std::io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer).process_group(0);
        let spawned = command.spawn().with_context(|| format!("start {command:?}"));
        // The command keeps its ends of the pipe; with ours open, the output would never end.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = spawned?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("an odd process id")?;
        state.running.push(Running { child, id, stop_signal });
        Ok((id, BufReader::new(reader)))
    }

    /// Waits for a process whose output has ended.
    fn wait(&self, id: Pid) -> Result<ExitStatus> {
        // It stays in the list, and can be killed, for as long as it runs.
        waitid(WaitId::Pid(id), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let mut state = self.state();
        let at = state.running.iter().position(|running| running.id == id).context("waited for already")?;
        // Out of the list together with its end: the id may belong to someone else from then on.
        Ok(state.running.remove(at).child.wait()?)
    }

    /// Tells all of them to end, and lets no other one start.
    pub fn stop(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for running in &state.running {
            let _ = kill_process_group(running.id, running.stop_signal);
        }
    }

    /// Ends all that is left, with whatever it has started.
    pub fn kill(&self) {
        let mut state = self.state();
        state.is_closed = true;
        for running in &state.running {
            let _ = kill_process_group(running.id, Signal::KILL);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
