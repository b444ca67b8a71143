//! Receivers for tests: a mail server, a verifier of webhooks and a reader of spans from PyPI, in the folder
//! `xtask/receivers`.

use super::programs::Programs;
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use crate::tools::{PythonTools, tools_folder};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "receivers";
const PACKAGES: [&str; 3] = ["aiosmtpd==1.4.6", "opentelemetry-proto==1.45.2", "standardwebhooks==1.1.0"];

/// Installs the packages, unless they are installed.
pub fn install(root: &Path) -> Result<Programs> {
    let tools = PythonTools::with(root, FOLDER, &PACKAGES)
        .context("the tests need aiosmtpd, opentelemetry-proto and standardwebhooks from PyPI")?;
    Ok(Programs::alone(tools_folder(root).join(FOLDER).join("bin"), tools.libraries()))
}

pub fn receivers(root: &Path, programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let mut server = site.command(programs, &programs.folder.join("python"));
    server.arg(root.join("xtask").join(FOLDER).join("receivers.py")).arg(port.to_string());
    Ok(vec![ServerNode {
        name: "receivers",
        setup: vec![],
        server,
        server_again: None,
        ready_lines: &["the receivers are ready"],
        stop_signal: Signal::KILL,
        restart_signal: Signal::TERM,
        url: format!("http://127.0.0.1:{port}"),
        folder: site.folder.clone(),
        // It has no SQL.
        client: Box::new(|_| Command::new("false")),
    }])
}
