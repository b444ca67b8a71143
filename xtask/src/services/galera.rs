//! A Galera cluster for tests: three MariaDB servers that all accept writes. The first one bootstraps the
//! cluster, the others copy its data when they join. The timeouts for a silent member have their defaults.

use super::mysql::{create_at_start, install_mariadb, mariadb_server, node};
use super::programs::Programs;
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::process::Command;

/// The server that bootstraps the cluster comes first.
pub const NODES: [&str; 3] = ["galera-1", "galera-2", "galera-3"];
/// The replication library, below `usr`.
pub const PROVIDER: &str = "lib/galera/libgalera_smm.so";
/// The program that copies the data to a joining server, below `usr`. It calls rsync.
pub const COPIER: &str = "bin/wsrep_sst_rsync";

/// The ports of one server: for clients, for the other members, and for the two ways to catch up with them.
#[derive(Clone, Copy)]
struct Ports {
    clients: u16,
    group: u16,
    missed_writes: u16,
    whole_copy: u16,
}

pub fn cluster(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let ports: [u16; 4 * NODES.len()] = free_ports()?;
    let ports: Vec<Ports> = ports
        .chunks_exact(4)
        .map(|four| Ports { clients: four[0], group: four[1], missed_writes: four[2], whole_copy: four[3] })
        .collect();
    let members: Vec<String> = ports.iter().map(|ports| format!("127.0.0.1:{}", ports.group)).collect();
    let members = format!("gcomm://{}", members.join(","));
    let mut nodes = Vec::new();
    for (name, ports) in NODES.into_iter().zip(ports) {
        let site = site.within(name)?;
        let command = || member(programs, &site, name, &members, ports);
        let (mut first, mut setup) = (command()?, vec![]);
        if nodes.is_empty() {
            setup.push(install_mariadb(programs, &site)?);
            first.arg("--wsrep-new-cluster");
            create_at_start(&mut first, &site)?;
        } else {
            site.create_folder("data")?;
        }
        nodes.push(ServerNode {
            name,
            setup,
            server_again: Some(command()?),
            // It accepts connections before it has caught up, but rejects their statements.
            ready_lines: &[": ready for connections.", "Synchronized with group"],
            ..node(programs, &site, first, ports.clients)
        });
    }
    Ok(nodes)
}

fn member(
    programs: &Programs,
    site: &ServerSite,
    name: &str,
    members: &str,
    ports: Ports,
) -> Result<Command> {
    let Ports { clients, group, missed_writes, whole_copy } = ports;
    let provider = programs.file(PROVIDER).context("the library of Galera has disappeared")?;
    let mut server = mariadb_server(programs, site, clients)?;
    server.args(["--wsrep-on=ON", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2"]);
    server.arg(format!("--wsrep-provider={}", provider.display()));
    server.arg("--wsrep-cluster-name=punctual").arg(format!("--wsrep-cluster-address={members}"));
    server.arg(format!("--wsrep-node-name={name}")).arg(format!("--wsrep-node-address=127.0.0.1:{group}"));
    server.arg("--wsrep-sst-method=rsync").arg(format!("--wsrep-sst-receive-address=127.0.0.1:{whole_copy}"));
    server.arg(format!(
        "--wsrep-provider-options=base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};\
         ist.recv_addr=127.0.0.1:{missed_writes};gcache.size=32M;gcache.page_size=32M"
    ));
    // The copy program is found through the search path.
    server.env("PATH", search_path(programs)?);
    Ok(server)
}

fn search_path(programs: &Programs) -> Result<OsString> {
    let mut folders: Vec<_> = programs.usr.iter().map(|usr| usr.join("bin")).collect();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    folders.extend(["/usr/sbin", "/sbin", "/bin"].map(Into::into));
    Ok(std::env::join_paths(folders)?)
}
