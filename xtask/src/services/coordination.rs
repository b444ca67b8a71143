//! Coordination services for tests: etcd and ZooKeeper as single servers and as ensembles of three, and etcd also over
//! TLS. Settings have their defaults, except for ports,
//! folders, certificates and ZooKeeper's tick time, which would make tests slow.

use super::certificates::Certificates;
use super::programs::Programs;
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The jars of ZooKeeper, below `usr`, with the simplest logging backend.
pub const JARS: &[&str] = &[
    "share/java/zookeeper.jar",
    "share/java/zookeeper-jute.jar",
    "share/java/slf4j-api.jar",
    "share/java/slf4j-simple.jar",
    "share/java/netty-buffer.jar",
    "share/java/netty-common.jar",
    "share/java/netty-handler.jar",
    "share/java/netty-transport.jar",
    "share/java/metrics-core.jar",
    "share/java/snappy-java.jar",
    "share/java/commons-cli.jar",
    "share/java/commons-io.jar",
];

/// Names of the members of ensembles.
const ETCD_NODES: [&str; 3] = ["etcd-1", "etcd-2", "etcd-3"];
const ZOOKEEPER_NODES: [&str; 3] = ["zookeeper-1", "zookeeper-2", "zookeeper-3"];

/// The output of an ensemble member before it has found enough others to serve clients: only the last one
/// started can wait for them.
const ETCD_STARTING: &[&str] = &["starting etcd server"];
const ETCD_READY: &[&str] = &["serving client traffic"];
const ETCD_READY_SECURED: &[&str] = &["serving client traffic securely"];
const ZOOKEEPER_STARTING: &[&str] = &["LOOKING"];
const ZOOKEEPER_READY_ALONE: &[&str] = &["PrepRequestProcessor (sid:0) started"];
const ZOOKEEPER_READY: &[&str] = &["- broadcast"];

pub fn etcd(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    etcd_ensemble(programs, site, &["etcd"])
}

pub fn etcd_cluster(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    etcd_ensemble(programs, site, &ETCD_NODES)
}

/// Two independent servers.
pub fn etcd_secured(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let ports: [u16; 4] = free_ports()?;
    let mut nodes = Vec::new();
    for (name, ports) in ["etcd-tls", "etcd-mutual"].into_iter().zip(ports.chunks_exact(2)) {
        let site = site.within(name)?;
        let Certificates { ca, server: certificate, key } = Certificates::for_servers_in(&site)?;
        let (client, peer) =
            (format!("https://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
        let mut server = etcd_server(programs, &site, name);
        server.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        server.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        server.args(["--initial-cluster", &format!("{name}={peer}")]);
        server.arg("--cert-file").arg(certificate).arg("--key-file").arg(key);
        if name == "etcd-mutual" {
            server.arg("--client-cert-auth").arg("--trusted-ca-file").arg(ca);
        }
        let url = format!("etcds://127.0.0.1:{}", ports[0]);
        nodes.push(node(name, &site, server, url, ETCD_READY_SECURED));
    }
    Ok(nodes)
}

fn etcd_server(programs: &Programs, site: &ServerSite, name: &str) -> Command {
    let mut server = site.command(programs, &programs.folder.join("etcd"));
    server.args(["--name", name, "--logger=zap", "--log-outputs=stderr", "--data-dir"]);
    server.arg(site.folder.join("data"));
    server
}

fn etcd_ensemble(programs: &Programs, site: &ServerSite, names: &[&'static str]) -> Result<Vec<ServerNode>> {
    let ports: [u16; 6] = free_ports()?;
    let (clients, peers) = ports.split_at(3);
    let at = |port: u16| format!("http://127.0.0.1:{port}");
    let members: Vec<String> =
        names.iter().zip(peers).map(|(name, port)| format!("{name}={}", at(*port))).collect();
    let mut nodes = Vec::new();
    for ((name, client), peer) in names.iter().zip(clients).zip(peers) {
        let site = site.within(name)?;
        let mut server = etcd_server(programs, &site, name);
        server.args(["--listen-client-urls", &at(*client), "--advertise-client-urls", &at(*client)]);
        server.args(["--listen-peer-urls", &at(*peer), "--initial-advertise-peer-urls", &at(*peer)]);
        server.args(["--initial-cluster", &members.join(",")]);
        let is_last = nodes.len() + 1 == names.len();
        let ready = if is_last { ETCD_READY } else { ETCD_STARTING };
        nodes.push(node(name, &site, server, format!("etcd://127.0.0.1:{client}"), ready));
    }
    Ok(nodes)
}

pub fn zookeeper(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    zookeeper_ensemble(programs, site, &["zookeeper"])
}

pub fn zookeeper_cluster(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    zookeeper_ensemble(programs, site, &ZOOKEEPER_NODES)
}

fn zookeeper_ensemble(
    programs: &Programs,
    site: &ServerSite,
    names: &[&'static str],
) -> Result<Vec<ServerNode>> {
    let ports: [u16; 9] = free_ports()?;
    let members: String = (1..)
        .zip(ports.chunks_exact(3))
        .take(names.len())
        .map(|(number, port)| format!("server.{number}=127.0.0.1:{}:{}\n", port[1], port[2]))
        .collect();
    let mut nodes = Vec::new();
    for ((number, name), port) in (1..).zip(names).zip(ports.chunks_exact(3)) {
        let site = site.within(name)?;
        let (data, client) = (site.create_folder("data")?, port[0]);
        site.write("data/myid", &format!("{number}\n"))?;
        let members = if names.len() == 1 { "" } else { members.as_str() };
        let settings = format!(
            "tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={client}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n{members}",
            data.display()
        );
        let settings = site.write("zoo.cfg", &settings)?;
        let is_last = nodes.len() + 1 == names.len();
        let ready = match names.len() {
            1 => ZOOKEEPER_READY_ALONE,
            _ if is_last => ZOOKEEPER_READY,
            _ => ZOOKEEPER_STARTING,
        };
        let server = zookeeper_server(programs, &site, &settings)?;
        nodes.push(node(name, &site, server, format!("zookeeper://127.0.0.1:{client}"), ready));
    }
    Ok(nodes)
}

fn zookeeper_server(programs: &Programs, site: &ServerSite, settings: &Path) -> Result<Command> {
    let mut server = site.command(programs, &programs.folder.join("java"));
    // Small, and with a fast start rather than high throughput.
    server
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(class_path(programs)?);
    server.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain").arg(settings);
    Ok(server)
}

fn class_path(programs: &Programs) -> Result<OsString> {
    let found: Vec<_> = JARS.iter().filter_map(|jar| programs.file(jar)).collect();
    ensure!(found.len() == JARS.len(), "files of ZooKeeper have disappeared");
    std::env::join_paths(found).context("a folder with a colon in its name")
}

fn node(
    name: &'static str,
    site: &ServerSite,
    server: Command,
    url: String,
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
        url,
        folder: site.folder.clone(),
        // They have no SQL.
        client: Box::new(|_| Command::new("false")),
    }
}
