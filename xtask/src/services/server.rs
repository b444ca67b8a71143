//! The servers of a service and what has to run before them. Each command is the first of a process group of its own that
//! can be ended as a whole.

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

/// The last lines of a server's output that are shown when it fails.
const LINES_SHOWN_MAX: usize = 30;
/// Another program may take a port between our looking for it and the server's using it; it does not do so every time.
const PORTS_TRIED_MAX: usize = 5;
/// How every server says that its port is taken.
const PORT_TAKEN: &str = "already in use";

/// How a service is started: its servers one after the other, each as soon as the one before takes connections.
pub struct Plan {
    pub service: Service,
    /// Makes them anew for every time that they are tried, on ports and in folders that nobody has used yet.
    pub nodes: MakeNodes,
}

/// Takes how often it was tried before.
pub type MakeNodes = Box<dyn Fn(usize) -> Result<Vec<Node>> + Send>;

/// One server, and how it is started and stopped.
pub struct Node {
    /// The service's, or one that begins with it where there are several servers.
    pub name: &'static str,
    /// Run to their end before the first start, one after the other.
    pub setup: Vec<Command>,
    pub server: Command,
    /// How it is started a second time, if not as at first.
    pub server_again: Option<Command>,
    /// Parts of lines in which the server says that it takes connections, once it has said all of them.
    pub ready_lines: &'static [&'static str],
    /// Ends it quickly: what it holds is thrown away.
    pub stop_signal: Signal,
    /// Ends it as an operator does: what it holds is written first, and connections are closed.
    pub restart_signal: Signal,
    pub url: String,
    /// It works below this one, and so does all that it starts.
    pub folder: PathBuf,
    /// Makes a command that says a statement of SQL to it and prints what it answers.
    pub client: Client,
}

pub type Client = Box<dyn Fn(&str) -> Command + Send + Sync>;

/// A server that takes connections.
pub struct Started {
    pub node: Box<Node>,
    pub id: Pid,
    pub took: Duration,
}

/// What becomes of servers, and what is wanted of them.
pub enum Event {
    /// All servers of a service take connections, or not all of them could be started.
    Begun {
        service: Service,
        outcome: Result<Vec<Started>>,
    },
    /// One that was started a second time.
    StartedAgain {
        name: &'static str,
        outcome: Result<Started>,
    },
    /// One that was asked something.
    Answered {
        name: &'static str,
        outcome: Result<String>,
    },
    /// One that was ready.
    Ended {
        id: Pid,
        why: anyhow::Error,
    },
    Ordered(String),
    LifelineCut,
}

/// Carries a plan out, on a thread of its own.
pub fn begin(plan: Plan, children: Arc<Children>, events: Sender<Event>) {
    std::thread::spawn(move || {
        let outcome = begin_all(&plan, &children, &events);
        // Nobody listens any more when the guard itself is at its end.
        let _ = events.send(Event::Begun { service: plan.service, outcome });
    });
}

/// Starts a server again that has ended, on a thread of its own.
pub fn start_again(mut node: Box<Node>, children: Arc<Children>, events: Sender<Event>) {
    std::thread::spawn(move || {
        let name = node.name;
        node.setup.clear();
        if let Some(server) = node.server_again.take() {
            node.server = server;
        }
        let outcome = start(node, &children, &events).and_then(|outcome| match outcome {
            Outcome::Started(started) => Ok(started),
            Outcome::PortTaken(why) => Err(why),
        });
        let _ = events.send(Event::StartedAgain { name, outcome });
    });
}

/// Says something to a server, on a thread of its own: it may take its time to answer.
pub fn ask(node: &Node, statement: &str, children: Arc<Children>, events: Sender<Event>) {
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
        let _ = events.send(Event::Answered { name, outcome: answered() });
    });
}

fn begin_all(plan: &Plan, children: &Arc<Children>, events: &Sender<Event>) -> Result<Vec<Started>> {
    'tries: for tried in 0.. {
        let mut all = Vec::new();
        for node in (plan.nodes)(tried)? {
            match start(Box::new(node), children, events)? {
                Outcome::Started(started) => all.push(started),
                Outcome::PortTaken(why) => {
                    ensure!(tried + 1 < PORTS_TRIED_MAX, why);
                    all.iter().for_each(|started| children.kill(started.id));
                    continue 'tries;
                }
            }
        }
        return Ok(all);
    }
    bail!("nothing was tried")
}

enum Outcome {
    Started(Started),
    PortTaken(anyhow::Error),
}

/// Returns when the server takes connections or has ended.
fn start(mut node: Box<Node>, children: &Arc<Children>, events: &Sender<Event>) -> Result<Outcome> {
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
        Said::Ready => Ok(Outcome::Started(Started { node, id, took: started.elapsed() })),
        Said::Ended { status, shown, port_was_taken } => {
            let why = anyhow::anyhow!("{} ended: {}\n{shown}", node.name, status?);
            if port_was_taken { Ok(Outcome::PortTaken(why)) } else { Err(why) }
        }
    }
}

/// The first thing that is known of a server.
enum Said {
    Ready,
    Ended { status: Result<ExitStatus>, shown: LastLines, port_was_taken: bool },
}

/// Reads what a server writes, to its end. Only the end of one that was ready is an event.
fn listen(
    node: &Node,
    id: Pid,
    output: BufReader<PipeReader>,
    children: Arc<Children>,
    events: Sender<Event>,
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
            let _ = events.send(Event::Ended { id, why: anyhow::anyhow!("{name} ended: {status}\n{shown}") });
        } else {
            let _ = said.send(Said::Ended { status, shown, port_was_taken });
        }
    });
    first
}

/// Ports that nobody listens on at this moment, no two of them the same. They are below those that the system gives to
/// whoever connects: a server that is started later would find one of these taken by a connection of others.
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

/// All ports that may be used, from anywhere on, so that those who look at the same time do not find the same.
fn tried_ports() -> impl Iterator<Item = u16> {
    let first = RandomState::new().build_hasher().finish() % u64::from(PORTS.end - PORTS.start);
    let first = PORTS.start + u16::try_from(first).unwrap_or_default();
    (first..PORTS.end).chain(PORTS.start..first)
}

/// Above those of well-known services, below those of connections.
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
