//! Real servers for tests and for development, single and in clusters: found or unpacked, started on free
//! ports in a temporary folder, and removed afterwards. The servers belong to a guard, a second process of
//! this program, which ends them as soon as its lifeline to the first process closes. So nothing survives,
//! however the first process ends.
//!
//! A test that breaks a cluster has its own guard, and sends it commands through the lifeline.

mod brokers;
mod certificates;
mod children;
mod coordination;
mod galera;
mod guard;
mod interrupts;
mod mysql;
mod node;
mod oidc;
mod packages;
mod postgres;
mod programs;
mod receivers;
mod redis;
mod s3;
mod server;
mod site;

use crate::test::remove_package_variables;
use anyhow::{Context, Result, bail, ensure};
use interrupts::Interrupts;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub use guard::hold;
pub use node::NodeJs;
pub use programs::{find_or_unpack, library_folders};

pub const USAGE: &str = "\
cargo xtask services run [SERVICE…] -- COMMAND…
                            runs a command with its own servers; PUNCTUAL_TEST_POSTGRES and similar variables hold their addresses;
                            a SERVICE is postgres, mariadb, mysql, redis, nats, rabbitmq, etcd, zookeeper, or of several servers: replica
                            (PostgreSQL with a standby), galera (three of MariaDB), etcd-cluster, zookeeper-cluster, nats-cluster, redis-cluster
                            (three each), redis-sentinel (three, and three sentinels);
                            oidc is a provider of OpenID Connect; receivers get mails and webhooks; s3 has a bucket;
                            mariadb-secured, redis-secured, etcd-secured, nats-secured and rabbitmq-secured speak TLS, with the
                            certificates in PUNCTUAL_TEST_CERTIFICATES, a folder with ca.pem, server.pem and server.key
cargo xtask services start [SERVICE…]
                            starts the servers and keeps them running until Ctrl-C";

/// A service: one server, or several that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Postgres,
    MariaDb,
    MySql,
    /// PostgreSQL with a standby.
    Replica,
    Galera,
    Redis,
    Etcd,
    ZooKeeper,
    EtcdCluster,
    ZooKeeperCluster,
    /// MariaDB with optional TLS.
    MariaDbSecured,
    /// Redis over TLS with client certificates.
    RedisSecured,
    /// A Redis with two replicas, and three sentinels that choose the primary.
    RedisSentinel,
    /// Three nodes of Redis that share the keys.
    RedisCluster,
    /// etcd over TLS: one server that accepts all clients, and one that requires client certificates.
    EtcdSecured,
    Nats,
    RabbitMq,
    /// NATS and RabbitMQ over TLS with client certificates.
    NatsSecured,
    RabbitMqSecured,
    /// Three servers with JetStream.
    NatsCluster,
    /// An identity provider.
    Oidc,
    /// Receivers of mails and webhooks.
    Receivers,
    /// An S3 store with a bucket.
    S3,
}

impl Service {
    const ALL: [Service; 23] = [
        Service::Postgres,
        Service::MariaDb,
        Service::MySql,
        Service::Replica,
        Service::Galera,
        Service::Redis,
        Service::Etcd,
        Service::ZooKeeper,
        Service::EtcdCluster,
        Service::ZooKeeperCluster,
        Service::MariaDbSecured,
        Service::RedisSecured,
        Service::RedisSentinel,
        Service::RedisCluster,
        Service::EtcdSecured,
        Service::Nats,
        Service::RabbitMq,
        Service::NatsSecured,
        Service::RabbitMqSecured,
        Service::NatsCluster,
        Service::Oidc,
        Service::Receivers,
        Service::S3,
    ];

    /// Its name on the command line, and of its folder.
    fn word(self) -> &'static str {
        match self {
            Service::Postgres => "postgres",
            Service::MariaDb => "mariadb",
            Service::MySql => "mysql",
            Service::Replica => "replica",
            Service::Galera => "galera",
            Service::Redis => "redis",
            Service::Etcd => "etcd",
            Service::ZooKeeper => "zookeeper",
            Service::EtcdCluster => "etcd-cluster",
            Service::ZooKeeperCluster => "zookeeper-cluster",
            Service::MariaDbSecured => "mariadb-secured",
            Service::RedisSecured => "redis-secured",
            Service::RedisSentinel => "redis-sentinel",
            Service::RedisCluster => "redis-cluster",
            Service::EtcdSecured => "etcd-secured",
            Service::Nats => "nats",
            Service::RabbitMq => "rabbitmq",
            Service::NatsSecured => "nats-secured",
            Service::RabbitMqSecured => "rabbitmq-secured",
            Service::NatsCluster => "nats-cluster",
            Service::Oidc => "oidc",
            Service::Receivers => "receivers",
            Service::S3 => "s3",
        }
    }

    fn from_word(word: &str) -> Result<Self> {
        let found = Service::ALL.into_iter().find(|service| service.word() == word);
        found.with_context(|| {
            let words = Service::ALL.map(Service::word);
            format!("unknown service: {word}; use one of {}", words.join(", "))
        })
    }
}

/// The default services: the single-server databases. Clusters take more memory than most machines can spare.
const SINGLE: [Service; 3] = [Service::Postgres, Service::MariaDb, Service::MySql];

/// The environment variable with the address of a service.
fn variable(service: &str) -> String {
    format!("PUNCTUAL_TEST_{}", service.replace('-', "_").to_uppercase())
}

/// One URL for all servers of a cluster, with a list of hosts.
fn url_of_all(servers: &[ReadyServer]) -> String {
    let [first, others @ ..] = servers else { return String::new() };
    let host = |server: &ReadyServer| host_of(&server.url).to_owned();
    let first_host = host(first);
    let hosts: Vec<String> = std::iter::once(first_host.clone()).chain(others.iter().map(host)).collect();
    first.url.replacen(&first_host, &hosts.join(","), 1)
}

/// The host and port of a URL, with or without a user before it.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split('/').next().unwrap_or_default();
    place.rsplit('@').next().unwrap_or_default()
}

/// The environment variable with the program that starts servers which tests may break.
pub const SERVICES_VARIABLE: &str = "PUNCTUAL_TEST_SERVICES";

/// Parses names of services; without names, the single-server databases.
fn named(words: &[&str]) -> Result<Vec<Service>> {
    let mut services = Vec::new();
    for word in words {
        let service = Service::from_word(word)?;
        ensure!(!services.contains(&service), "{word} is given twice");
        services.push(service);
    }
    Ok(if services.is_empty() { SINGLE.to_vec() } else { services })
}

/// `cargo xtask services …`
pub fn run(root: &Path, words: &[&str]) -> Result<ExitCode> {
    match words {
        ["start", names @ ..] => {
            let running = RunningServers::start(root, &named(names)?)?;
            let mut output = std::io::stdout();
            running.describe(&mut output)?;
            writeln!(output, "# Ctrl-C stops them.")?;
            running.until_interrupted()
        }
        ["run", rest @ ..] => {
            let Some(at) = rest.iter().position(|word| *word == "--") else {
                bail!("put the command after --\n\n{USAGE}");
            };
            let (names, [_, program, arguments @ ..]) = rest.split_at(at) else {
                bail!("no command after --\n\n{USAGE}");
            };
            let running = RunningServers::start(root, &named(names)?)?;
            // Standard output belongs to the command.
            running.describe(&mut std::io::stderr())?;
            let mut command = Command::new(program);
            command.args(arguments).env("PATH", crate::tools::search_path(root)?);
            let status = running.run(&mut command)?;
            Ok(exit_code(status))
        }
        // For the first process to start the guard, and for tests that break servers; not for users.
        ["hold", names @ ..] => hold(root, &named(names)?),
        _ => bail!("services takes run or start\n\n{USAGE}"),
    }
}

/// Downloads packages of this machine's Debian release and unpacks them into a folder; nothing is installed.
pub fn unpack(names: &'static [&'static str], folder: &Path) -> Result<()> {
    packages::unpack(&packages::Packages { names, suite: packages::Suite::OfThisMachine }, folder)
}

/// The library path of unpacked programs.
pub fn libraries_of(tree: &Path) -> Option<OsString> {
    std::env::join_paths(programs::library_folders(tree)).ok()
}

/// The exit code that a shell would return.
pub fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

/// The guard's message once every server is ready.
#[derive(Serialize, Deserialize)]
struct Ready {
    /// Data and sockets.
    folder: PathBuf,
    servers: Vec<ReadyServer>,
}

#[derive(Serialize, Deserialize)]
struct ReadyServer {
    name: String,
    service: String,
    url: String,
    process: i32,
    started_ms: u64,
}

impl Ready {
    /// The servers of each service.
    fn services(&self) -> impl Iterator<Item = &[ReadyServer]> {
        self.servers.chunk_by(|one, next| one.service == next.service)
    }
}

/// Servers that run as long as this value lives.
pub struct RunningServers {
    guard: Child,
    ready: Ready,
    interrupts: Arc<Interrupts>,
}

impl RunningServers {
    /// Installs what is missing, then starts all of them and waits until the last one is ready.
    pub fn start(root: &Path, services: &[Service]) -> Result<Self> {
        for service in services {
            programs::find_or_unpack(root, *service)?;
        }
        // The executable file may have been rebuilt in the meantime.
        let mut guard = Command::new("/proc/self/exe");
        guard.args(["services", "hold"]).args(services.iter().map(|service| service.word()));
        // A separate process group: Ctrl-C is for this process and the command, which still needs the servers
        // while it ends.
        guard.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut guard = guard.spawn().context("start the guard of the services")?;
        let interrupts = Interrupts::watch(guard.stdin.take().context("the guard has no standard input")?)?;
        let mut line = String::new();
        BufReader::new(guard.stdout.take().context("the guard has no output")?).read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(ready) => Ok(RunningServers { guard, ready, interrupts }),
            Err(_) => {
                let status = guard.wait()?;
                interrupts.end_if_interrupted();
                bail!("the services did not start ({status})");
            }
        }
    }

    /// Prints the addresses of the servers, in shell syntax, and how long each of them took to start.
    pub fn describe(&self, output: &mut dyn Write) -> Result<()> {
        for servers in self.ready.services() {
            let took_ms: u64 = servers.iter().map(|server| server.started_ms).sum();
            let (variable, url) = (variable(&servers[0].service), url_of_all(servers));
            let seconds = Duration::from_millis(took_ms).as_secs_f64();
            writeln!(output, "# ready after {seconds:.1} s:\nexport {variable}={url}")?;
        }
        let program = std::process::id();
        writeln!(output, "# Starts servers for the exclusive use of one test:")?;
        writeln!(output, "export {SERVICES_VARIABLE}=/proc/{program}/exe")?;
        let folder = self.ready.folder.display();
        writeln!(output, "# Their data is in {folder}, for as long as they run.")?;
        Ok(())
    }

    /// Runs a command with the servers' addresses in its environment, and stops them when it ends.
    pub fn run(self, command: &mut Command) -> Result<ExitStatus> {
        for servers in self.ready.services() {
            command.env(variable(&servers[0].service), url_of_all(servers));
        }
        remove_package_variables(command);
        // Works even if the executable file is replaced while this process runs.
        command.env(SERVICES_VARIABLE, format!("/proc/{}/exe", std::process::id()));
        let mut child =
            command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        self.interrupts.pass_on_to(child.id());
        let status = child.wait();
        self.interrupts.stop_forwarding();
        self.stop()?;
        Ok(status?)
    }

    fn until_interrupted(mut self) -> Result<ExitCode> {
        let status = self.guard.wait()?;
        self.stop()?;
        Ok(exit_code(status))
    }

    fn stop(mut self) -> Result<()> {
        self.interrupts.cut_lifeline();
        let status = self.guard.wait()?;
        self.interrupts.end_if_interrupted();
        ensure!(status.success(), "the services failed to stop cleanly ({status})");
        Ok(())
    }
}

impl Drop for RunningServers {
    fn drop(&mut self) {
        self.interrupts.cut_lifeline();
        let _ = self.guard.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_named_once_or_not_at_all() {
        assert_eq!(named(&["mysql", "postgres"]).unwrap(), [Service::MySql, Service::Postgres]);
        assert_eq!(named(&[]).unwrap(), SINGLE);
        assert!(named(&["mysql", "mysql"]).unwrap_err().to_string().contains("given twice"));
        assert!(named(&["oracle"]).unwrap_err().to_string().contains("unknown service: oracle"));
    }

    #[test]
    fn a_cluster_has_one_url() {
        let server = |url: &str| ReadyServer {
            name: "galera-1".to_owned(),
            service: "galera".to_owned(),
            url: url.to_owned(),
            process: 1,
            started_ms: 1,
        };
        let alone = [server("mysql://ann:secret@127.0.0.1:1/jobs")];
        assert_eq!(url_of_all(&alone), alone[0].url);
        let cluster =
            [server("mysql://ann:secret@127.0.0.1:1/jobs"), server("mysql://ann:secret@127.0.0.1:2/jobs")];
        assert_eq!(url_of_all(&cluster), "mysql://ann:secret@127.0.0.1:1,127.0.0.1:2/jobs");
        let ensemble = [server("etcd://127.0.0.1:1"), server("etcd://127.0.0.1:2")];
        assert_eq!(url_of_all(&ensemble), "etcd://127.0.0.1:1,127.0.0.1:2");
    }

    #[test]
    fn variables_are_valid_shell_words() {
        assert_eq!(variable("postgres"), "PUNCTUAL_TEST_POSTGRES");
        assert_eq!(variable("etcd-cluster"), "PUNCTUAL_TEST_ETCD_CLUSTER");
    }

    #[test]
    fn a_killed_command_is_not_a_success() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), ExitCode::from(7));
        assert_eq!(exit_code(ExitStatus::from_raw(9)), ExitCode::from(137));
    }
}
