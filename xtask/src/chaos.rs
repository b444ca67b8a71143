//! `cargo xtask chaos`: builds the binary and the suite, finds what the suite needs, and starts it. The suite
//! itself is in `crates/chaos`, which is built only for this.

use crate::services::{self, Service};
use crate::{test, tools};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

pub const USAGE: &str = "\
cargo xtask chaos [--store postgres|mariadb] [--seed N] [--for 20m] [--short] [-o json]
                            runs chaos tests on clusters of real processes and checks that every job ran on time, once; see --help
cargo xtask chaos failover [--store postgres|mariadb]
                            measures the effect of losing or restarting a process";

/// Environment variable with the library that changes the clocks of processes.
const FAKETIME_VARIABLE: &str = "PUNCTUAL_CHAOS_FAKETIME";
/// The variant for multi-threaded programs.
const FAKETIME_FILE: &str = "libfaketimeMT.so.1";

/// `cargo xtask chaos …`; the arguments are the suite's.
pub fn run(root: &Path, words: &[&str]) -> Result<ExitCode> {
    build(root, &["--package", "punctual", "--package", "punctual-chaos"])?;
    Ok(services::exit_code(start(root, words)?))
}

/// As a step of the tests: the short form on both databases. When built together with the tests, almost
/// everything has been built already; alone it would be built a second time, because dependencies have other
/// features then.
pub fn short(root: &Path) -> Result<bool> {
    build(root, &["--workspace", "--bins", "--tests"])?;
    Ok(start(root, &["--short", "--seed", "1"])?.success())
}

fn build(root: &Path, what: &[&str]) -> Result<()> {
    let mut build = test::cargo();
    build.arg("build").args(what).current_dir(root);
    tools::succeed(&mut build)
}

fn start(root: &Path, words: &[&str]) -> Result<ExitStatus> {
    for service in [Service::Postgres, Service::MariaDb] {
        services::find_or_unpack(root, service)?;
    }
    let mut suite = Command::new(tools::target_folder(root).join("debug").join("punctual-chaos"));
    suite.args(words).current_dir(root).env(FAKETIME_VARIABLE, faketime(root)?);
    // Works even if the executable file is replaced while this process runs.
    suite.env(services::SERVICES_VARIABLE, format!("/proc/{}/exe", std::process::id()));
    suite.status().context("start punctual-chaos")
}

/// The library, installed on this machine or unpacked next to the build.
fn faketime(root: &Path) -> Result<PathBuf> {
    let unpacked = tools::tools_folder(root).join("faketime");
    if let Some(library) = faketime_below(Path::new("/usr")).or_else(|| faketime_below(&unpacked.join("usr")))
    {
        return Ok(library);
    }
    println!("faketime is not installed; downloading it once into the build directory");
    services::unpack(&["libfaketime"], &unpacked)?;
    faketime_below(&unpacked.join("usr"))
        .with_context(|| format!("{FAKETIME_FILE} is not in Debian's package libfaketime: install faketime"))
}

/// Debian has a folder for each architecture.
fn faketime_below(usr: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(usr.join("lib")).ok()?;
    let files = folders.filter_map(|folder| Some(folder.ok()?.path().join("faketime").join(FAKETIME_FILE)));
    files.into_iter().find(|file| file.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_on_every_machine() {
        let usr = tempfile::tempdir().unwrap();
        assert_eq!(faketime_below(usr.path()), None);
        let folder = usr.path().join("lib").join("riscv64-linux-gnu").join("faketime");
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(faketime_below(usr.path()), None);
        std::fs::write(folder.join(FAKETIME_FILE), "").unwrap();
        assert_eq!(faketime_below(usr.path()), Some(folder.join(FAKETIME_FILE)));
    }
}
