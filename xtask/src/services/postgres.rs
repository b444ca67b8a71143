//! PostgreSQL for tests: small buffers, no socket but TCP, and every other setting, durability above all, as it comes.

use super::Service;
use super::programs::Programs;
use super::server::Plan;
use super::site::Site;
use anyhow::Result;
use rustix::process::Signal;
use std::fs::File;

pub fn plan(programs: &Programs, site: &Site) -> Result<Plan> {
    let data = site.folder.join("data");
    let password = site.write("password", "punctual\n")?;
    let mut init = site.command(programs, &programs.folder.join("initdb"));
    init.args(["--username=punctual", "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale"]);
    // A crash of the machine before the tests begin loses nothing.
    init.arg("--no-sync").arg("--pwfile").arg(password).arg("--pgdata").arg(&data);
    let server = programs.folder.join("postgres");
    let mut create = site.command(programs, &server);
    create.args(["--single", "-c", "exit_on_error=on", "-D"]).arg(&data).arg("postgres");
    create.stdin(File::open(site.write("create.sql", "CREATE DATABASE punctual\n")?)?);
    let mut run = site.command(programs, &server);
    run.arg("-D").arg(&data);
    run.args(["--listen_addresses=127.0.0.1", "--unix_socket_directories="]);
    run.args(["--shared_buffers=32MB", "--max_connections=200", "--jit=off"]);
    // Known without the machine's zone data.
    run.args(["--timezone=GMT", "--log_timezone=GMT"]);
    Ok(Plan {
        service: Service::Postgres,
        setup: vec![init, create],
        server: run,
        ready_line: "database system is ready to accept connections",
        // At once, but not without giving its shared memory back.
        stop_signal: Signal::QUIT,
        url: |port| format!("postgres://punctual:punctual@127.0.0.1:{port}/punctual"),
    })
}
