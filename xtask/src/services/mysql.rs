//! MariaDB and MySQL for tests: small buffers, the socket in the data folder, and defaults for all other
//! settings, above all durability.

use super::certificates::Certificates;
use super::programs::Programs;
use super::server::{MakeSqlCommand, ServerNode, free_ports};
use super::site::ServerSite;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::process::Command;

/// Run before the first connection is accepted, at every start; one statement per line.
const CREATE: &str = "\
CREATE USER IF NOT EXISTS 'punctual'@'%' IDENTIFIED BY 'punctual';
GRANT ALL ON *.* TO 'punctual'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS punctual;
";

pub fn mariadb(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let setup = vec![install_mariadb(programs, site)?];
    let mut server = mariadb_server(programs, site, port)?;
    create_at_start(&mut server, site)?;
    Ok(vec![ServerNode { name: "mariadb", setup, ..node(programs, site, server, port) }])
}

pub fn mariadb_secured(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let Certificates { ca, server: certificate, key } = Certificates::for_servers_in(site)?;
    let mut nodes = mariadb(programs, site)?;
    for node in &mut nodes {
        node.name = "mariadb-secured";
        node.server.arg(format!("--ssl-ca={}", ca.display()));
        node.server.arg(format!("--ssl-cert={}", certificate.display()));
        node.server.arg(format!("--ssl-key={}", key.display()));
    }
    Ok(nodes)
}

pub fn mysql(programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let base = programs.folder.parent().context("mysqld has no parent directory")?;
    let program = programs.folder.join("mysqld");
    let (mut init, mut server) = (site.command(programs, &program), site.command(programs, &program));
    for command in [&mut init, &mut server] {
        command.args(["--no-defaults", "--secure-file-priv=NULL"]);
        command.arg(format!("--basedir={}", base.display()));
        command.arg(format!("--datadir={}", site.folder.join("data").display()));
    }
    init.arg("--initialize-insecure");
    // The X protocol would need another port.
    server.arg("--mysqlx=OFF");
    serve(&mut server, port);
    create_at_start(&mut server, site)?;
    Ok(vec![ServerNode { name: "mysql", setup: vec![init], ..node(programs, site, server, port) }])
}

/// Creates the server's system tables.
pub fn install_mariadb(programs: &Programs, site: &ServerSite) -> Result<Command> {
    let base = programs.folder.parent().context("mariadbd has no parent directory")?;
    let mut install = site.command(programs, &base.join("bin").join("mariadb-install-db"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    install.args(["--skip-test-db", "--skip-name-resolve"]);
    install.arg(format!("--basedir={}", base.display()));
    install.arg(format!("--datadir={}", site.folder.join("data").display()));
    Ok(install)
}

pub fn mariadb_server(programs: &Programs, site: &ServerSite, port: u16) -> Result<Command> {
    let base = programs.folder.parent().context("mariadbd has no parent directory")?;
    let mut server = site.command(programs, &programs.folder.join("mariadbd"));
    server.arg("--no-defaults");
    server.arg(format!("--basedir={}", base.display()));
    server.arg(format!("--datadir={}", site.folder.join("data").display()));
    serve(&mut server, port);
    Ok(server)
}

/// Common arguments of both for serving.
fn serve(server: &mut Command, port: u16) {
    // Relative to the data folder: an absolute path may be too long for a socket.
    server.args(["--bind-address=127.0.0.1", "--socket=mysql.sock", "--pid-file=mysql.pid"]);
    server.args(["--innodb-buffer-pool-size=64M", "--max-connections=400"]).arg(format!("--port={port}"));
}

pub fn create_at_start(server: &mut Command, site: &ServerSite) -> Result<()> {
    let create = site.write("create.sql", CREATE)?;
    server.arg(format!("--init-file={}", create.display()));
    Ok(())
}

pub fn node(programs: &Programs, site: &ServerSite, server: Command, port: u16) -> ServerNode {
    ServerNode {
        name: "mariadb",
        setup: vec![],
        server,
        server_again: None,
        ready_lines: &["ready for connections"],
        // A clean shutdown takes seconds, for data that is not read again.
        stop_signal: Signal::KILL,
        restart_signal: Signal::TERM,
        url: format!("mysql://punctual:punctual@127.0.0.1:{port}/punctual"),
        folder: site.folder.clone(),
        client: client(programs, port),
    }
}

/// MariaDB's client works with both.
fn client(programs: &Programs, port: u16) -> MakeSqlCommand {
    let programs = programs.clone();
    Box::new(move |statement| {
        let installed = || programs.file("bin/mariadb").or_else(|| programs.file("bin/mysql"));
        let mut client = programs.command(&installed().unwrap_or_else(|| "mariadb".into()));
        client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=punctual"]);
        client.args(["--password=punctual", "--batch", "--skip-column-names", "--execute", statement]);
        client.arg(format!("--port={port}")).arg("punctual");
        client
    })
}
