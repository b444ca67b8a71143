//! MariaDB and MySQL for tests: small buffers, their socket in the folder, and every other setting, durability above all,
//! as it comes.

use super::Service;
use super::programs::Programs;
use super::server::Plan;
use super::site::Site;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::process::Command;

/// Run before the first connection is taken; one statement per line.
const CREATE: &str = "\
CREATE USER 'punctual'@'%' IDENTIFIED BY 'punctual';
GRANT ALL ON *.* TO 'punctual'@'%' WITH GRANT OPTION;
CREATE DATABASE punctual;
";

pub fn plan_mariadb(programs: &Programs, site: &Site) -> Result<Plan> {
    let base = programs.folder.parent().context("mariadbd lies in no folder")?;
    let mut init = site.command(programs, &base.join("bin").join("mariadb-install-db"));
    init.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
    init.args(["--skip-test-db", "--skip-name-resolve"]);
    let mut run = site.command(programs, &programs.folder.join("mariadbd"));
    run.arg("--no-defaults");
    for command in [&mut init, &mut run] {
        command.arg(format!("--basedir={}", base.display()));
        command.arg(format!("--datadir={}", site.folder.join("data").display()));
    }
    serve(&mut run, site)?;
    Ok(plan(Service::MariaDb, init, run))
}

pub fn plan_mysql(programs: &Programs, site: &Site) -> Result<Plan> {
    let base = programs.folder.parent().context("mysqld lies in no folder")?;
    let server = programs.folder.join("mysqld");
    let (mut init, mut run) = (site.command(programs, &server), site.command(programs, &server));
    for command in [&mut init, &mut run] {
        command.args(["--no-defaults", "--secure-file-priv=NULL"]);
        command.arg(format!("--basedir={}", base.display()));
        command.arg(format!("--datadir={}", site.folder.join("data").display()));
    }
    init.arg("--initialize-insecure");
    // The X protocol would want another port.
    run.arg("--mysqlx=OFF");
    serve(&mut run, site)?;
    Ok(plan(Service::MySql, init, run))
}

/// What is the same for both once their data is there.
fn serve(run: &mut Command, site: &Site) -> Result<()> {
    let create = site.write("create.sql", CREATE)?;
    run.arg(format!("--init-file={}", create.display()));
    // Relative to the data: a whole path may be too long for a socket.
    run.args(["--bind-address=127.0.0.1", "--socket=mysql.sock", "--pid-file=mysql.pid"]);
    run.args(["--innodb-buffer-pool-size=64M", "--max-connections=200"]);
    Ok(())
}

fn plan(service: Service, init: Command, server: Command) -> Plan {
    Plan {
        service,
        setup: vec![init],
        server,
        ready_line: "ready for connections",
        // Shutting down in order takes seconds, for data that nobody reads again.
        stop_signal: Signal::KILL,
        url: |port| format!("mysql://punctual:punctual@127.0.0.1:{port}/punctual"),
    }
}
