//! PostgreSQL for tests: small buffers, TCP only, and defaults for all other settings, above all durability.
//! Single, or with a standby that has every commit before it is acknowledged.

use super::programs::Programs;
use super::server::{MakeSqlCommand, ServerNode, free_ports};
use super::site::ServerSite;
use anyhow::Result;
use rustix::process::Signal;
use std::fs::File;
use std::path::Path;
use std::process::Command;

pub fn alone(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    Ok(vec![ServerNode { name: "postgres", ..primary(programs, site, port)? }])
}

/// A primary and its standby. A commit is acknowledged once the standby has it on disk, so that a promoted
/// standby lacks nothing that was acknowledged.
pub fn replica(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [of_primary, of_standby] = free_ports()?;
    let mut primary =
        ServerNode { name: "replica-primary", ..primary(programs, &site.within("primary")?, of_primary)? };
    primary.server.arg("--synchronous_standby_names=*");
    let site = site.within("standby")?;
    let data = site.folder.join("data");
    let mut copy = site.command(programs, &programs.folder.join("pg_basebackup"));
    copy.arg(format!("--dbname={}", primary.url)).arg("--pgdata").arg(&data);
    // The slot retains what the standby has not read yet, however long it is down.
    copy.args(["--write-recovery-conf", "--create-slot", "--slot=standby"]);
    copy.args(["--checkpoint=fast", "--no-sync"]);
    let standby = ServerNode {
        name: "replica-standby",
        setup: vec![copy],
        ready_lines: &["database system is ready to accept read-only connections"],
        ..node(programs, &site, &data, of_standby)
    };
    Ok(vec![primary, standby])
}

/// A server with a new data directory.
fn primary(programs: &Programs, site: &ServerSite, port: u16) -> Result<ServerNode> {
    let data = site.folder.join("data");
    let password = site.write("password", "punctual\n")?;
    let mut init = site.command(programs, &programs.folder.join("initdb"));
    init.args(["--username=punctual", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]);
    // A crash of the machine before the tests begin loses nothing.
    init.arg("--no-sync").arg("--pwfile").arg(password).arg("--pgdata").arg(&data);
    let mut create = site.command(programs, &programs.folder.join("postgres"));
    create.args(["--single", "-c", "exit_on_error=on", "-D"]).arg(&data).arg("postgres");
    create.stdin(File::open(site.write("create.sql", "CREATE DATABASE punctual\n")?)?);
    Ok(ServerNode { setup: vec![init, create], ..node(programs, site, &data, port) })
}

fn node(programs: &Programs, site: &ServerSite, data: &Path, port: u16) -> ServerNode {
    let url = format!("postgres://punctual:punctual@127.0.0.1:{port}/punctual");
    ServerNode {
        name: "postgres",
        setup: vec![],
        server: server(programs, site, data, port),
        server_again: None,
        ready_lines: &["database system is ready to accept connections"],
        // Immediate, but it still releases its shared memory.
        stop_signal: Signal::QUIT,
        // "Fast", like `pg_ctl restart`.
        restart_signal: Signal::INT,
        client: client(programs, url.clone()),
        url,
        folder: site.folder.clone(),
    }
}

fn client(programs: &Programs, url: String) -> MakeSqlCommand {
    let programs = programs.clone();
    Box::new(move |statement| {
        let mut client = programs.command(&programs.folder.join("psql"));
        client.args(["--no-psqlrc", "--tuples-only", "--no-align", "--command", statement, &url]);
        client
    })
}

fn server(programs: &Programs, site: &ServerSite, data: &Path, port: u16) -> Command {
    let mut server = site.command(programs, &programs.folder.join("postgres"));
    server.arg("-D").arg(data).arg(format!("--port={port}"));
    server.args(["--listen_addresses=127.0.0.1", "--unix_socket_directories="]);
    server.args(["--shared_buffers=32MB", "--max_connections=200", "--jit=off"]);
    // Does not need the machine's time zone data.
    server.args(["--timezone=GMT", "--log_timezone=GMT"]);
    server
}
