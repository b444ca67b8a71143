//! The servers of a service and their setup commands. Each command leads its own process group, which can be
//! ended as a whole.

use super::Service;
use super::children::Children;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Last lines of a server's output that are shown when it fails.
const LINES_SHOWN_MAX: usize = 30;
/// Another program may take a port between the search and the server's start, but not every time.
const PORTS_TRIED_MAX: usize = 5;
/// The text with which every server reports that its port is taken.
const PORT_TAKEN: &str = "already in use";

/// How to start a service: its servers in sequence, each as soon as the previous one accepts connections.
pub struct ServicePlan {
    pub service: Service,
    /// Creates them for each try, with unused ports and folders.
    pub nodes: MakeNodes,
}

/// The argument is the number of earlier tries.
pub type MakeNodes = Box<dyn Fn(usize) -> Result<Vec<ServerNode>> + Send>;

/// One server, and how it is started and stopped.
pub struct ServerNode {
    /// The name of the service, or one that begins with it where there are several servers.
    pub name: &'static str,
    /// Run to completion before the first start, in sequence.
    pub setup: Vec<Command>,
    pub server: Command,
    /// The command for later starts, if it differs.
    pub server_again: Option<Command>,
    /// Parts of output lines. The server accepts connections once it has printed all of them.
    pub ready_lines: &'static [&'static str],
    /// Ends it quickly: unsaved data is discarded.
    pub stop_signal: Signal,
    /// Ends it as an operator does: data is written first, and connections are closed.
    pub restart_signal: Signal,
    pub url: String,
    /// The working directory of it and all its descendants is below this one.
    pub folder: PathBuf,
    /// Creates a command that runs an SQL statement on it and prints the result.
    pub client: MakeSqlCommand,
}

pub type MakeSqlCommand = Box<dyn Fn(&str) -> Command + Send + Sync>;

/// A server that accepts connections.
pub struct StartedServer {
    pub node: Box<ServerNode>,
    pub id: Pid,
    pub took: Duration,
}

/// Events of servers, and commands for them.
pub enum ServiceEvent {
    /// All servers of a service accept connections, or not all of them could be started.
    Ready {
        service: Service,
        outcome: Result<Vec<StartedServer>>,
    },
    /// A server was started a second time.
    StartedAgain {
        name: &'static str,
        outcome: Result<StartedServer>,
    },
    /// A statement was run on a server.
    Answered {
        name: &'static str,
        outcome: Result<String>,
    },
    /// A server that was ready has ended.
    Ended {
        id: Pid,
        why: anyhow::Error,
    },
    Ordered(String),
    LifelineCut,
}

/// Carries out a plan, on its own thread.
pub fn begin(plan: ServicePlan, children: Arc<Children>, events: Sender<ServiceEvent>) {
    std::thread::spawn(move || {
        let outcome = begin_all(&plan, &children, &events);
        // The receiver is gone when the guard itself is ending.
        let _ = events.send(ServiceEvent::Ready { service: plan.service, outcome });
    });
}

/// Starts a server that has ended again, on its own thread.
pub fn start_again(mut node: Box<ServerNode>, children: Arc<Children>, events: Sender<ServiceEvent>) {
    std::thread::spawn(move || {
        let name = node.name;
        node.setup.clear();
        if let Some(server) = node.server_again.take() {
            node.server = server;
        }
        let outcome = start(node, &children, &events).and_then(|outcome| match outcome {
            StartOutcome::Started(started) => Ok(started),
            StartOutcome::PortTaken(why) => Err(why),
        });
        let _ = events.send(ServiceEvent::StartedAgain { name, outcome });
    });
}

/// Runs a statement on a server, on its own thread: it may be slow to answer.
pub fn ask(node: &ServerNode, statement: &str, children: Arc<Children>, events: Sender<ServiceEvent>) {
    let (name, mut command) = (node.name, (node.client)(statement));
    std::thread::spawn(move || {
        let mut answered = || {
            let (id, mut output) = children.spawn(&mut command, Signal::KILL)?;
            let mut said = String::new();
            output.read_to_string(&mut said)?;
            let status = children.wait(id)?;
            ensure!(status.success(), "{status}: {said}");
            Ok(said.trim_end().to_owned())
        };
        let _ = events.send(ServiceEvent::Answered { name, outcome: answered() });
    });
}

fn begin_all(
    plan: &ServicePlan,
    children: &Arc<Children>,
    events: &Sender<ServiceEvent>,
) -> Result<Vec<StartedServer>> {
    'tries: for tried in 0.. {
        let mut all = Vec::new();
        for node in (plan.nodes)(tried)? {
            match start(Box::new(node), children, events)? {
                StartOutcome::Started(started) => all.push(started),
                StartOutcome::PortTaken(why) => {
                    ensure!(tried + 1 < PORTS_TRIED_MAX, why);
                    all.iter().for_each(|started| children.kill(started.id));
                    continue 'tries;
                }
            }
        }
        return Ok(all);
    }
    bail!("no attempt was made")
}

enum StartOutcome {
    Started(StartedServer),
    PortTaken(anyhow::Error),
}

/// Returns when the server accepts connections or has ended.
fn start(
    mut node: Box<ServerNode>,
    children: &Arc<Children>,
    events: &Sender<ServiceEvent>,
) -> Result<StartOutcome> {
    let started = Instant::now();
    for command in &mut node.setup {
        let (id, output) = children.spawn(command, Signal::KILL)?;
        let mut shown = LastLines::default();
        output.lines().map_while(Result::ok).for_each(|line| shown.push(line));
        let status = children.wait(id)?;
        ensure!(status.success(), "{command:?} failed: {status}\n{shown}");
    }
    let (id, output) = children.spawn(&mut node.server, node.stop_signal)?;
    match listen(&node, id, output, children.clone(), events.clone()).recv()? {
        Said::Ready => Ok(StartOutcome::Started(StartedServer { node, id, took: started.elapsed() })),
        Said::Ended { status, shown, port_was_taken } => {
            let why = anyhow::anyhow!("{} ended: {}\n{shown}", node.name, status?);
            if port_was_taken { Ok(StartOutcome::PortTaken(why)) } else { Err(why) }
        }
    }
}

/// The first state of a server that becomes known.
enum Said {
    Ready,
    Ended { status: Result<ExitStatus>, shown: LastLines, port_was_taken: bool },
}

/// Reads a server's output to its end. The end is an event only if the server was ready.
fn listen(
    node: &ServerNode,
    id: Pid,
    output: BufReader<PipeReader>,
    children: Arc<Children>,
    events: Sender<ServiceEvent>,
) -> Receiver<Said> {
    let (said, first) = channel();
    let (name, mut awaited) = (node.name, node.ready_lines.to_vec());
    std::thread::spawn(move || {
        let (mut shown, mut was_ready, mut port_was_taken) = (LastLines::default(), false, false);
        for line in output.lines().map_while(Result::ok) {
            awaited.retain(|part| !line.contains(part));
            if !was_ready && awaited.is_empty() {
                was_ready = true;
                let _ = said.send(Said::Ready);
            }
            port_was_taken |= line.contains(PORT_TAKEN);
            shown.push(line);
        }
        let status = children.wait(id);
        if was_ready {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            let _ = events
                .send(ServiceEvent::Ended { id, why: anyhow::anyhow!("{name} ended: {status}\n{shown}") });
        } else {
            let _ = said.send(Said::Ended { status, shown, port_was_taken });
        }
    });
    first
}

/// Distinct ports without a listener at this moment. They are below the ephemeral range: otherwise a
/// connection could take a port before its server starts.
pub fn free_ports<const COUNT: usize>() -> Result<[u16; COUNT]> {
    // All are held until the last one is found.
    let mut listeners = Vec::new();
    for port in tried_ports() {
        if listeners.len() == COUNT {
            break;
        }
        listeners
            .extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|listener| (port, listener)));
    }
    let ports: Vec<u16> = listeners.iter().map(|(port, _)| *port).collect();
    ports.try_into().ok().context("there are no free ports")
}

/// All usable ports, starting at a random one, so that concurrent searches do not find the same ports.
fn tried_ports() -> impl Iterator<Item = u16> {
    let first = RandomState::new().build_hasher().finish() % u64::from(PORTS.end - PORTS.start);
    let first = PORTS.start + u16::try_from(first).unwrap_or_default();
    (first..PORTS.end).chain(PORTS.start..first)
}

/// Above the ports of well-known services, below the ephemeral ones.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

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
