//! An S3 store for tests: moto from PyPI, in the folder `xtask/s3`.

use super::programs::Programs;
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use crate::tools::{PythonTools, tools_folder};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const FOLDER: &str = "s3";
const PACKAGES: [&str; 1] = ["moto[server,s3]==5.2.5"];

/// Installs the package, unless it is installed.
pub fn install(root: &Path) -> Result<Programs> {
    let tools = PythonTools::with(root, FOLDER, &PACKAGES).context("the tests need moto from PyPI")?;
    Ok(Programs::alone(tools_folder(root).join(FOLDER).join("bin"), tools.libraries()))
}

pub fn store(root: &Path, programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let mut server = site.command(programs, &programs.folder.join("python"));
    server.arg(root.join("xtask").join(FOLDER).join("s3.py")).arg(port.to_string());
    Ok(vec![ServerNode {
        name: "s3",
        setup: vec![],
        server,
        server_again: None,
        ready_lines: &["the bucket is ready"],
        stop_signal: Signal::KILL,
        restart_signal: Signal::TERM,
        url: format!("http://key:secret@127.0.0.1:{port}/punctual"),
        folder: site.folder.clone(),
        // It has no SQL.
        client: Box::new(|_| Command::new("false")),
    }])
}
