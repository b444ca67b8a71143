//! An identity provider for tests: `oidc-provider` from npm, in the folder `xtask/oidc-provider`.

use super::node::{NodeJs, modules_folder};
use super::programs::Programs;
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

const PROVIDER: &str = "oidc-provider";
/// The files of the provider.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "provider.mjs"];

/// Installs Node.js and the provider, unless they are installed.
pub fn install(root: &Path) -> Result<Programs> {
    let install = || -> Result<Programs> {
        let node = NodeJs::install(root)?;
        node.install_modules(root, PROVIDER, &FILES)?;
        Ok(node.programs)
    };
    install().context("the tests need Node.js from PyPI and oidc-provider from npm")
}

pub fn provider(root: &Path, programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let mut server = site.command(programs, &programs.folder.join("node"));
    server.arg(modules_folder(root, PROVIDER).join("provider.mjs")).arg(port.to_string());
    Ok(vec![ServerNode {
        name: "oidc",
        setup: vec![],
        server,
        server_again: None,
        ready_lines: &["the provider is ready"],
        stop_signal: Signal::KILL,
        restart_signal: Signal::TERM,
        url: format!("http://127.0.0.1:{port}"),
        folder: site.folder.clone(),
        // It has no SQL.
        client: Box::new(|_| Command::new("false")),
    }])
}
