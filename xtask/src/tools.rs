//! Programs that tests need and the repository does not have: put into a folder beside the build, once.

mod python;

use crate::services;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use python::Python;
pub use python::PythonTools;

/// What is installed from PyPI, with exact versions: a new one is taken when someone has looked at it.
const PACKAGES: [&str; 2] = ["openapi-spec-validator==0.9.0", "schemathesis==4.32.5"];

/// Gets what the test command needs and this machine lacks: parts of the toolchain, nextest, Python, and Prometheus' own tool for
/// metrics and alerts. Nothing but parts of the toolchain is installed on the machine, and root is not needed. Prints what
/// could not be had; returns whether the other steps can do without.
pub fn install(root: &Path) -> Result<bool> {
    let needed = [
        ensure(&["cargo", "fmt", "--version"], &["rustup", "component", "add", "rustfmt"]),
        ensure(&["cargo", "clippy", "--version"], &["rustup", "component", "add", "clippy"]),
        Python::find_or_unpack(root).map(drop),
        install_promtool(root),
    ];
    let useful = [install_nextest(root)];
    let print = |outcomes: Vec<Result<()>>| {
        let missing: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        missing.iter().for_each(|error| println!("missing: {error:#}"));
        missing.is_empty()
    };
    let (has_needed, has_useful) = (print(needed.into()), print(useful.into()));
    Ok(has_needed && (has_useful || !must_be_there()))
}

/// Runs the step that installs something, if the program that shows whether it is there does not succeed.
fn ensure(probe: &[&str], step: &[&str]) -> Result<()> {
    if is_there(probe) {
        return Ok(());
    }
    succeed(Command::new(step[0]).args(&step[1..]))
        .with_context(|| format!("`{}` fails", probe.join(" ")))?;
    if !is_there(probe) {
        bail!("`{}` still fails after it was installed", probe.join(" "));
    }
    Ok(())
}

fn is_there(probe: &[&str]) -> bool {
    runs(Command::new(probe[0]).args(&probe[1..]))
}

fn runs(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether tests can be run with nextest, installed or built here.
pub fn has_nextest(root: &Path) -> Result<bool> {
    let path = search_path(root)?;
    Ok(runs(Command::new(crate::test::cargo()).args(["nextest", "--version"]).env("PATH", path)))
}

fn install_nextest(root: &Path) -> Result<()> {
    if has_nextest(root)? {
        return Ok(());
    }
    println!("nextest is not here; it is built beside the build, once");
    let mut install = Command::new(crate::test::cargo());
    install.args(["install", "--quiet", "--locked", "cargo-nextest", "--root"]).arg(nextest_folder(root));
    succeed(&mut install).context("nextest cannot be built, tests run with `cargo test`")
}

fn nextest_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("nextest")
}

/// Takes promtool out of Debian's package: installing it would start a server that nobody asked for.
fn install_promtool(root: &Path) -> Result<()> {
    let folder = promtool_folder(root);
    if is_there(&["promtool", "--version"]) || folder.join("promtool").exists() {
        return Ok(());
    }
    println!("promtool is not here; it is unpacked beside the build, once");
    services::unpack(&["prometheus"], &tools_folder(root).join("prometheus-unpacked"))
        .and_then(|()| folder.join("promtool").exists().then_some(()).context("it is not in the package"))
        .context("promtool cannot be had with apt-get: install Prometheus, so that `promtool` is found")
}

fn promtool_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("prometheus-unpacked").join("usr").join("bin")
}

/// Where programs are looked for, with what was put beside the build at the end.
pub fn search_path(root: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = [promtool_folder(root), nextest_folder(root).join("bin"), Python::link_folder(root)];
    let folders = std::env::split_paths(&path).chain(own);
    std::env::join_paths(folders).context("the search path has an odd folder")
}

pub fn tools_folder(root: &Path) -> PathBuf {
    target_folder(root).join("tools")
}

pub fn succeed(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Where cargo puts what it builds.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Whether a missing tool is a failure: where nobody reads what was skipped, nothing may be.
pub fn must_be_there() -> bool {
    is_set(std::env::var_os("CI"))
}

fn is_set(variable: Option<OsString>) -> bool {
    variable.is_some_and(|value| !value.is_empty())
}

/// Runs a check that needs the tools, or says why it was skipped.
pub fn with_tools(root: &Path, check: impl FnOnce(&PythonTools) -> Result<bool>) -> Result<bool> {
    match PythonTools::ready(root) {
        Ok(tools) => check(&tools),
        Err(error) if must_be_there() => Err(error),
        Err(error) => {
            println!("SKIPPED, because its tools are missing: {error:#}");
            Ok(true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_not_set() {
        assert!(is_set(Some("true".into())));
        assert!(!is_set(Some(OsString::new())));
        assert!(!is_set(None));
    }
}
