//! Contains the processes of a command, whatever the command does to its shim: by a cgroup, by a PID
//! namespace, or not at all. Determines what this machine supports, and kills the processes of a command.

pub mod cgroup;
mod leftovers;
mod owner;
pub mod trial;

pub use leftovers::{end_all as end_leftovers, owner_of};
pub use owner::Owner;

use crate::sandbox::{Sandboxes, scratch};
use cgroup::{Memberships, Version};
use punctual_worker::process::containment::{Containment, Remains, ShimProcess};
use punctual_worker::process::protocol::{Enclosure, Hold};
use rustix::fs::{Access, access};
use rustix::process::Signal;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// The prefix of the cgroups of all commands.
const NAME_PREFIX: &str = "punctual-";
/// Version 1 controllers in whose hierarchies commands are contained where there is no version 2. The first
/// can freeze processes while they are killed.
const V1_CONTROLLERS: [&str; 2] = ["freezer", "pids"];
/// The controllers for commands with limits.
const LIMIT_CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// The operator's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ContainmentMode {
    Auto,
    Cgroup,
    Namespace,
    None,
}

/// The containment that is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InForce {
    Cgroup {
        parent: PathBuf,
        version: Version,
    },
    Namespace,
    /// Only the shim, for this reason.
    ShimOnly {
        because: String,
    },
}

impl InForce {
    /// The containment that the setting selects on this machine, or why it is not possible.
    pub fn choose(mode: ContainmentMode) -> Result<Self, String> {
        match mode {
            ContainmentMode::Auto => {
                Ok(cgroup_here().unwrap_or_else(|because| InForce::ShimOnly { because }))
            }
            ContainmentMode::Cgroup => cgroup_here(),
            ContainmentMode::Namespace => namespace_here(),
            ContainmentMode::None => {
                Ok(InForce::ShimOnly { because: "worker.containment is none".to_owned() })
            }
        }
    }

    /// No containment, for a trial of something else.
    pub fn trial() -> Self {
        InForce::ShimOnly { because: "a trial".to_owned() }
    }

    fn hold(&self) -> Hold {
        match self {
            InForce::Cgroup { parent, .. } => Hold::Cgroup { parent: parent.clone() },
            InForce::Namespace => Hold::Namespace,
            InForce::ShimOnly { .. } => Hold::ShimOnly,
        }
    }

    /// Logs the containment in force.
    pub fn announce(&self, sandboxes: &Sandboxes) {
        match self {
            InForce::ShimOnly { .. } if sandboxes.has_namespaces() => {
                tracing::info!("commands are contained by their PID namespaces");
            }
            InForce::ShimOnly { because } => {
                tracing::warn!(
                    because,
                    "commands can outlive their jobs if they kill their shim; see worker.containment"
                );
            }
            _ => tracing::info!(containment = %self, "commands are contained"),
        }
    }
}

impl fmt::Display for InForce {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InForce::Cgroup { parent, version } => {
                let version = match version {
                    Version::V1 => 1,
                    Version::V2 => 2,
                };
                write!(out, "a cgroup for each command (version {version}, below {})", parent.display())
            }
            InForce::Namespace => write!(out, "a PID namespace for each command"),
            InForce::ShimOnly { because } => write!(out, "none: {because}"),
        }
    }
}

/// The first cgroup in which a command can really run, or why there is none.
fn cgroup_here() -> Result<InForce, String> {
    let memberships = Memberships::read();
    let v1 = V1_CONTROLLERS.into_iter().filter_map(|controller| memberships.version_1(controller));
    let v2 = memberships.version_2().map(|parent| (parent, Version::V2));
    let mut problems = Vec::new();
    for (parent, version) in v2.into_iter().chain(v1.map(|parent| (parent, Version::V1))) {
        if let Err(error) = access(&parent, Access::WRITE_OK) {
            problems.push(format!("cannot write {}: {error}", parent.display()));
            continue;
        }
        let in_force = InForce::Cgroup { parent, version };
        match trial::of(&in_force, &Sandboxes::plain()) {
            Ok(()) => return Ok(in_force),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        problems.push("no cgroups are mounted".to_owned());
    }
    Err(format!("cannot create a cgroup for commands: {}", problems.join("; ")))
}

fn namespace_here() -> Result<InForce, String> {
    match trial::of(&InForce::Namespace, &Sandboxes::plain()) {
        Ok(()) => Ok(InForce::Namespace),
        Err(problem) => Err(format!("cannot create a PID namespace for commands: {problem}")),
    }
}

/// Contains the commands of this process.
#[derive(Debug)]
pub struct Contained {
    owner: Owner,
    hold: Hold,
    /// The possible parents of commands' cgroups.
    parents: Vec<PathBuf>,
    count: AtomicU64,
    sandboxes: Sandboxes,
}

impl Contained {
    pub fn new(in_force: &InForce, sandboxes: Sandboxes) -> Self {
        let hold = in_force.hold();
        let memberships = Memberships::read();
        let mut parents: Vec<PathBuf> = LIMIT_CONTROLLERS
            .into_iter()
            .filter_map(|controller| Some(memberships.of_controller(controller)?.0))
            .collect();
        if let Hold::Cgroup { parent } = &hold {
            parents.push(parent.clone());
        }
        parents.sort();
        parents.dedup();
        Contained { owner: Owner::this(), hold, parents, count: AtomicU64::new(0), sandboxes }
    }
}

impl Containment for Contained {
    fn next(&self, queue: &str) -> Enclosure {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME_PREFIX}{}-{number}", self.owner);
        let sandbox = self.sandboxes.next(&name, queue);
        Enclosure { name, hold: self.hold.clone(), sandbox }
    }

    fn kill(&self, enclosure: &Enclosure, shim: Option<&ShimProcess>) -> Remains {
        let mut remains = shim.map_or(Remains::Nothing, kill_below);
        for parent in &self.parents {
            if cgroup::kill_and_remove(&parent.join(&enclosure.name)) == Remains::Processes {
                remains = Remains::Processes;
            }
        }
        if shim.is_none() && remains == Remains::Nothing {
            // Usually the shim has removed it already.
            let _ = scratch::remove(&enclosure.sandbox.scratch);
        }
        remains
    }
}

/// Sends SIGKILL to everything that a shim has started and that has not left its tree.
fn kill_below(shim: &ShimProcess) -> Remains {
    // It is the same process as long as it accepts signals; this one is harmless.
    if shim.signal(Signal::CONT) && crate::signal_below(shim.pid(), Signal::KILL) {
        return Remains::Processes;
    }
    Remains::Nothing
}
