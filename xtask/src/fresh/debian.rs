//! A minimal Debian in a folder: the base system, and what the README requires.

use super::cell::NamespaceCell;
use super::host;
use crate::tools::succeed;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

const SUITE: &str = "bookworm";
/// A C compiler, git, and certificates for TLS.
const PACKAGES: &str = "ca-certificates,gcc,git,libc6-dev";
const MAKER: &str = "mmdebstrap";

/// Creates it unless the folder exists; returns whether it did.
pub fn make_if_missing(cell: &NamespaceCell, folder: &Path, scratch: &Path) -> Result<bool> {
    if folder.exists() {
        let is_debian = folder.join("etc/debian_version").exists();
        ensure!(is_debian, "{} is not a root folder of Debian", folder.display());
        return Ok(false);
    }
    install_maker()?;
    println!("== {MAKER} {SUITE}");
    let settings = scratch.join("apt.conf");
    std::fs::write(&settings, host::apt_settings()?)?;
    // Atomically: it gets its name only once it is complete.
    let mut partial = folder.as_os_str().to_owned();
    partial.push(".partial");
    ensure!(!Path::new(&partial).exists(), "{} exists: remove it", partial.display());
    std::fs::create_dir_all(folder.parent().context("the folder has no parent")?)?;
    let mut make = NamespaceCell::command(MAKER);
    make.args(["--mode=root", "--variant=minbase"]).arg(format!("--include={PACKAGES}"));
    make.arg(format!("--aptopt={}", settings.display()));
    make.arg(SUITE).arg(&partial).args(host::apt_sources(SUITE));
    let made = cell.succeed(&mut make);
    if made.is_err() && Path::new(&partial).exists() {
        super::remove(Path::new(&partial))?;
    }
    made?;
    std::fs::rename(&partial, folder)?;
    Ok(true)
}

fn install_maker() -> Result<()> {
    let mut probe = Command::new(MAKER);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let install = || {
        let words = ["install", "-qy", "--no-install-recommends", MAKER];
        succeed(Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    install()
        .or_else(|_| succeed(Command::new("apt-get").args(["update", "-q"])).and_then(|()| install()))
        .with_context(|| format!("{MAKER} is not available from apt-get: install it"))
}
