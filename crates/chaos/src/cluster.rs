//! All processes of a run, each with its own fault proxy to the database and, for API nodes, one for its
//! clients.

use crate::database::DatabaseServer;
use crate::member::{MemberLaunch, MemberProcess, UnorderedEnd};
use crate::plan::{ProcessTopology, Role};
use anyhow::{Context, Result, ensure};
use punctual_client::Client;
use punctual_link::Link;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The time limit for the first start of a process: a debug binary on a busy machine is slow.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// Slots of each worker. Handlers only wait, and a single worker has room for everything that runs at once:
/// lateness is never due to a lack of slots.
const SLOTS: usize = 64;

/// The settings of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    pub binary: PathBuf,
    /// `postgres` or `mariadb`.
    pub service: String,
    pub topology: ProcessTopology,
    pub lease: Duration,
    /// The folder for data directories and logs.
    pub folder: PathBuf,
    pub faketime: Option<PathBuf>,
}

pub struct ChaosCluster {
    pub database: DatabaseServer,
    pub members: Vec<MemberProcess>,
    pub token: String,
}

impl ChaosCluster {
    pub async fn start(options: &ClusterOptions) -> Result<Self> {
        let database = DatabaseServer::start(&options.service).await?;
        let mut cluster = ChaosCluster { database, members: Vec::new(), token: String::new() };
        std::fs::create_dir_all(options.folder.join("logs"))?;
        let (first, others): (Vec<_>, Vec<_>) = options
            .topology
            .members()
            .into_iter()
            .partition(|(role, name)| *role == Role::Api && name.ends_with("-1"));
        // The first API node creates the tables and the token; the others find both.
        for (role, name) in first.into_iter().chain(others) {
            let is_first = cluster.members.is_empty();
            let member = cluster.member(options, role, &name).await?;
            if is_first {
                ready(&member).await?;
                let file = options.folder.join(&name).join("admin.token");
                let token =
                    std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
                cluster.token = token.trim().to_owned();
            }
            cluster.members.push(member);
        }
        for member in &cluster.members {
            ready(member).await?;
        }
        cluster.members.sort_by_key(|member| (member.role, member.name.clone()));
        Ok(cluster)
    }

    async fn member(&self, options: &ClusterOptions, role: Role, name: &str) -> Result<MemberProcess> {
        let link = Link::open(self.database.address()).await.context("open a fault proxy")?;
        let front = match role {
            Role::Api => Some(Arc::new(Link::open("").await.context("open a fault proxy")?)),
            Role::Scheduler | Role::Worker => None,
        };
        let launch = MemberLaunch {
            binary: options.binary.clone(),
            arguments: arguments(role, name, options),
            store: self.database.url.replacen(self.database.address(), &link.address, 1),
            data: options.folder.join(name),
            log: options.folder.join("logs").join(format!("{name}.log")),
            faketime: options.faketime.clone(),
        };
        MemberProcess::start(name, role, link, front, launch)
    }

    /// Migrates the schema with a newer binary.
    pub async fn migrate(&self, binary: &Path) -> Result<()> {
        let mut command = tokio::process::Command::new(binary);
        command.args(["migrate", "up"]).env("PUNCTUAL_STORE", &self.database.url);
        let output = command.output().await.with_context(|| format!("start {}", binary.display()))?;
        ensure!(output.status.success(), "migrate up: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    pub fn of(&self, role: Role) -> impl Iterator<Item = &MemberProcess> {
        self.members.iter().filter(move |member| member.role == role)
    }

    pub fn named(&self, name: &str) -> Result<&MemberProcess> {
        self.members.iter().find(|member| member.name == name).with_context(|| format!("no process {name}"))
    }

    /// A client of each API node, through its fault proxy.
    pub fn clients(&self) -> Result<Vec<Client>> {
        let fronts = self.of(Role::Api).filter_map(|member| member.front.as_ref());
        fronts.map(|front| Ok(Client::new(&front.address, self.token.clone())?.without_retries())).collect()
    }

    /// Ends of processes without an order.
    pub fn unordered_ends(&self) -> Vec<UnorderedEnd> {
        self.members.iter().flat_map(MemberProcess::unordered_ends).collect()
    }

    /// Ends all processes as an operator does. The database ends when the value is dropped.
    pub async fn stop(self) {
        for member in &self.members {
            if tokio::time::timeout(START_TIME_MAX, member.terminate()).await.is_err() {
                member.kill().await;
            }
        }
    }
}

async fn ready(member: &MemberProcess) -> Result<()> {
    let begun = tokio::time::timeout(START_TIME_MAX, member.begins()).await;
    begun.with_context(|| format!("{} was not ready after {} s", member.name, START_TIME_MAX.as_secs()))?
}

fn arguments(role: Role, name: &str, options: &ClusterOptions) -> Vec<String> {
    let words: &[&str] = match role {
        // The receivers of notifications and of handlers' calls are on this machine.
        Role::Scheduler => &[
            "scheduler",
            "--health-listen",
            "127.0.0.1:0",
            "--notify-allow",
            "127.0.0.1",
            "--notify-window",
            "1s",
        ],
        Role::Api => &["api", "--listen", "127.0.0.1:0", "--notify-allow", "127.0.0.1"],
        Role::Worker => &["worker", "--http-allow", "127.0.0.1", "--drain-grace", "10s"],
    };
    let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if role == Role::Worker {
        arguments.extend(["--worker-name".to_owned(), name.to_owned()]);
        arguments.extend(["--slots".to_owned(), SLOTS.to_string()]);
        arguments.extend(["--lease".to_owned(), format!("{}ms", options.lease.as_millis())]);
    }
    arguments
}

/// The binary under test: the one next to this one, unless another is given.
pub fn beside_us() -> Result<PathBuf> {
    let us = std::env::current_exe().context("find this program")?;
    let binary = us.parent().unwrap_or(Path::new(".")).join("punctual");
    ensure!(
        binary.exists(),
        "{} does not exist: build it, or pass another one with --binary",
        binary.display()
    );
    Ok(binary)
}
