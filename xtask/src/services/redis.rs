//! Redis for tests: one server, also over TLS; a primary with replicas and sentinels; and a cluster. Settings have their
//! defaults, except for ports, folders, certificates, and the times after which a node counts as failed, which would make
//! tests slow.

use super::certificates::Certificates;
use super::programs::Programs;
use super::server::{MakeSqlCommand, ServerNode, free_ports};
use super::site::ServerSite;
use anyhow::Result;
use rustix::process::Signal;
use std::ffi::OsString;
use std::process::Command;

const READY: &[&str] = &["Ready to accept connections"];
const REPLICA_READY: &[&str] = &["Ready to accept connections", "sync: Finished with success"];
const SENTINEL_READY: &[&str] = &["+monitor master"];
const CLUSTER_READY: &[&str] = &["Ready to accept connections", "Cluster state changed: ok"];

const PRIMARY: &str = "redis-primary";
const REPLICAS: [&str; 2] = ["redis-replica-1", "redis-replica-2"];
const SENTINELS: [&str; 3] = ["redis-sentinel-1", "redis-sentinel-2", "redis-sentinel-3"];
const CLUSTER: [&str; 3] = ["redis-cluster-1", "redis-cluster-2", "redis-cluster-3"];

pub fn alone(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    Ok(vec![node("redis", programs, site, server(programs, site, port), port, READY)])
}

pub fn secured(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let Certificates { ca, server: certificate, key } = Certificates::for_servers_in(site)?;
    let mut server = server(programs, site, 0);
    server.args(["--tls-port", &port.to_string()]);
    server.arg("--tls-ca-cert-file").arg(&ca).arg("--tls-cert-file").arg(&certificate);
    server.arg("--tls-key-file").arg(&key);
    // It accepts only clients with a certificate, so its client presents the server's.
    let words = ["--tls".into(), "--cacert".into(), ca.into(), "--cert".into(), certificate.into()];
    let words = words.into_iter().chain(["--key".into(), key.into()]).collect();
    let url = format!("rediss://127.0.0.1:{port}");
    let client = redis_client(programs, port, words);
    Ok(vec![ServerNode { url, client, ..node("redis-secured", programs, site, server, port, READY) }])
}

/// The primary is `punctual` to the sentinels. Their URLs come last.
pub fn sentinel(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [primary, others @ ..]: [u16; 6] = free_ports()?;
    let (replicas, sentinels) = others.split_at(REPLICAS.len());
    let mut nodes = Vec::new();
    for (name, port) in [PRIMARY].iter().chain(&REPLICAS).zip([&[primary], replicas].concat()) {
        let site = site.within(name)?;
        let mut server = server(programs, &site, port);
        // Otherwise a replica waits 5 s for others that may want the same copy.
        server.args(["--repl-diskless-sync-delay", "0"]);
        let is_replica = port != primary;
        if is_replica {
            server.args(["--replicaof", "127.0.0.1", &primary.to_string()]);
        }
        let ready = if is_replica { REPLICA_READY } else { READY };
        nodes.push(node(name, programs, &site, server, port, ready));
    }
    for (name, port) in SENTINELS.iter().zip(sentinels) {
        let site = site.within(name)?;
        let settings = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor punctual 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds punctual 1000\n\
             sentinel failover-timeout punctual 5000\n",
            site.folder.display()
        );
        let mut server = site.command(programs, &programs.folder.join("redis-server"));
        server.arg(site.write("sentinel.conf", &settings)?).arg("--sentinel");
        nodes.push(node(name, programs, &site, server, *port, SENTINEL_READY));
    }
    Ok(nodes)
}

/// The nodes know each other from their first start.
pub fn cluster(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    const SLOTS: [&str; 3] = ["0-5460", "5461-10922", "10923-16383"];
    let ports: [u16; 6] = free_ports()?;
    let id = |number: usize| format!("{number:040x}");
    let mut nodes = Vec::new();
    for (number, name) in CLUSTER.iter().enumerate() {
        let site = site.within(name)?;
        let members: String = (0..CLUSTER.len())
            .map(|other| {
                let (port, bus) = (ports[2 * other], ports[2 * other + 1]);
                let me = if other == number { "myself," } else { "" };
                let (epoch, slots) = (other + 1, SLOTS[other]);
                format!(
                    "{} 127.0.0.1:{port}@{bus} {me}master - 0 0 {epoch} connected {slots}\n",
                    id(other + 1)
                )
            })
            .collect();
        let known = format!("{members}vars currentEpoch {} lastVoteEpoch 0\n", CLUSTER.len());
        site.write("nodes.conf", &known)?;
        let (port, bus) = (ports[2 * number], ports[2 * number + 1]);
        let mut server = server(programs, &site, port);
        server.args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()]);
        server.args(["--cluster-node-timeout", "2000"]);
        let is_last = number + 1 == CLUSTER.len();
        nodes.push(node(name, programs, &site, server, port, if is_last { CLUSTER_READY } else { READY }));
    }
    Ok(nodes)
}

fn server(programs: &Programs, site: &ServerSite, port: u16) -> Command {
    let mut server = site.command(programs, &programs.folder.join("redis-server"));
    server.args(["--bind", "127.0.0.1", "--port", &port.to_string()]).arg("--dir").arg(&site.folder);
    server
}

/// Runs a command on the server; its words are separated by blanks.
fn redis_client(programs: &Programs, port: u16, options: Vec<OsString>) -> MakeSqlCommand {
    let (programs, port) = (programs.clone(), port.to_string());
    Box::new(move |words| {
        let mut client = programs.command(&programs.folder.join("redis-cli"));
        client.args(["-e", "-h", "127.0.0.1", "-p", &port]).args(&options).args(words.split(' '));
        client
    })
}

fn node(
    name: &'static str,
    programs: &Programs,
    site: &ServerSite,
    server: Command,
    port: u16,
    ready_lines: &'static [&'static str],
) -> ServerNode {
    ServerNode {
        name,
        setup: vec![],
        server,
        server_again: None,
        ready_lines,
        stop_signal: Signal::KILL,
        restart_signal: Signal::TERM,
        url: format!("redis://127.0.0.1:{port}"),
        folder: site.folder.clone(),
        client: redis_client(programs, port, vec![]),
    }
}
