//! Programs that tests need and the repository does not contain: installed once, in a folder next to the
//! build.

mod browser;
mod python;

use crate::services;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use browser::measure_dashboard;
use python::Python;
pub use python::PythonTools;

/// Packages from PyPI, with exact versions: upgrades are reviewed.
const PACKAGES: [&str; 2] = ["openapi-spec-validator==0.9.0", "schemathesis==4.32.5"];

/// Installs what the test command needs and this machine lacks: parts of the toolchain, nextest, Python,
/// Prometheus' own tool for metrics and alerts, and a browser. Only parts of the toolchain are installed on the machine, and
/// root is not needed. Prints what could not be installed; returns whether the other steps can run without
/// it.
pub fn install(root: &Path) -> Result<bool> {
    let needed = [
        ensure(&["cargo", "fmt", "--version"], &["rustup", "component", "add", "rustfmt"]),
        ensure(&["cargo", "clippy", "--version"], &["rustup", "component", "add", "clippy"]),
        Python::find_or_unpack(root).map(drop),
        install_promtool(root),
    ];
    let useful = [
        install_nextest(root),
        install_groff(root),
        install_make(root),
        browser::install(root),
        install_proxies(root),
    ];
    let print = |outcomes: Vec<Result<()>>| {
        let missing: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        missing.iter().for_each(|error| println!("missing: {error:#}"));
        missing.is_empty()
    };
    let (has_needed, has_useful) = (print(needed.into()), print(useful.into()));
    Ok(has_needed && (has_useful || !must_be_there()))
}

/// Runs the installation step, if the probe fails.
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

/// Whether tests can run with nextest, installed or built here.
pub fn has_nextest(root: &Path) -> Result<bool> {
    let path = search_path(root)?;
    Ok(runs(crate::test::cargo().args(["nextest", "--version"]).env("PATH", path)))
}

fn install_nextest(root: &Path) -> Result<()> {
    if has_nextest(root)? {
        return Ok(());
    }
    println!("nextest is not installed; building it once into the build directory");
    let mut install = crate::test::cargo();
    install.args(["install", "--quiet", "--locked", "cargo-nextest", "--root"]).arg(nextest_folder(root));
    succeed(&mut install).context("nextest cannot be built, tests run with `cargo test`")
}

fn nextest_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("nextest")
}

/// Takes promtool out of Debian's package: installing the package would start an unwanted server.
fn install_promtool(root: &Path) -> Result<()> {
    let folder = promtool_folder(root);
    if is_there(&["promtool", "--version"]) || folder.join("promtool").exists() {
        return Ok(());
    }
    println!("promtool is not installed; downloading it once into the build directory");
    services::unpack(&["prometheus"], &tools_folder(root).join("prometheus-unpacked"))
        .and_then(|()| folder.join("promtool").exists().then_some(()).context("it is not in the package"))
        .context("promtool is not available from apt-get: install Prometheus, so that `promtool` is found")
}

fn promtool_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("prometheus-unpacked").join("usr").join("bin")
}

/// groff, which checks manual pages.
fn install_groff(root: &Path) -> Result<()> {
    let tree = tools_folder(root).join("groff-unpacked");
    let (program, data) = (tree.join("usr/bin/groff"), tree.join("usr/share/groff"));
    if is_there(&["groff", "--version"]) {
        return Ok(());
    }
    if !program.exists() {
        println!("groff is not installed; downloading it once into the build directory");
        services::unpack(&["groff-base"], &tree)
            .context("groff is not available from apt-get: install it, or manual pages are not checked")?;
    }
    let variables = [
        ("LD_LIBRARY_PATH", services::libraries_of(&tree).unwrap_or_default()),
        ("GROFF_BIN_PATH", tree.join("usr/bin").into()),
        ("GROFF_FONT_PATH", data.join("current/font").into()),
        ("GROFF_TMAC_PATH", std::env::join_paths([data.join("current/tmac"), tree.join("etc/groff")])?),
    ];
    write_launcher(&launchers_folder(root), "groff", &program, &[], &variables)
}

/// make, which builds librdkafka.
fn install_make(root: &Path) -> Result<()> {
    let tree = tools_folder(root).join("make-unpacked");
    if is_there(&["make", "--version"]) {
        return Ok(());
    }
    let program = tree.join("usr/bin/make");
    if !program.exists() {
        println!("make is not installed; downloading it once into the build directory");
        services::unpack(&["make"], &tree)
            .context("make is not available from apt-get: install it, or Kafka cannot be built")?;
    }
    let variables = [("LD_LIBRARY_PATH", services::libraries_of(&tree).unwrap_or_default())];
    write_launcher(&launchers_folder(root), "make", &program, &[], &variables)
}

/// Web proxies in front of the dashboard. Tests start their launchers.
fn install_proxies(root: &Path) -> Result<()> {
    let tree = tools_folder(root).join("proxies-unpacked");
    if !tree.exists() {
        println!("downloading nginx, HAProxy and Caddy once into the build directory");
        services::unpack(&["nginx", "haproxy", "caddy"], &tree)
            .context("tests behind proxies need Debian's nginx, haproxy and caddy")?;
    }
    let variables = [("LD_LIBRARY_PATH", services::libraries_of(&tree).unwrap_or_default())];
    for (name, program) in [("nginx", "sbin/nginx"), ("haproxy", "sbin/haproxy"), ("caddy", "bin/caddy")] {
        let launcher = format!("punctual-test-{name}");
        write_launcher(&launchers_folder(root), &launcher, &tree.join("usr").join(program), &[], &variables)?;
    }
    Ok(())
}

/// The folder for unpacked programs that need environment variables to run.
fn launchers_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("bin")
}

/// Lets tests find an unpacked program by its name. These arguments come before those of the caller.
fn write_launcher(
    folder: &Path,
    name: &str,
    program: &Path,
    arguments: &[PathBuf],
    variables: &[(&str, OsString)],
) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut text = "#!/bin/sh\n".to_owned();
    for (variable, value) in variables.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("{variable}={} ", quoted(&value.to_string_lossy())));
    }
    text.push_str("exec ");
    for word in [program].into_iter().chain(arguments.iter().map(PathBuf::as_path)) {
        text.push_str(&format!("{} ", quoted(&word.to_string_lossy())));
    }
    text.push_str("\"$@\"\n");
    // Atomically: another process may start it at this moment.
    let partial = folder.join(format!("{name}.{}", std::process::id()));
    std::fs::write(&partial, text)?;
    std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o755))?;
    Ok(std::fs::rename(&partial, folder.join(name))?)
}

/// Quoted for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The search path, with the folders next to the build at the end.
pub fn search_path(root: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = [promtool_folder(root), nextest_folder(root).join("bin"), launchers_folder(root)];
    let folders = std::env::split_paths(&path).chain(own);
    std::env::join_paths(folders).context("PATH contains an invalid directory")
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

/// The folder of cargo's build output.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Set where a missing tool is a failure outside CI.
pub const REQUIRED: &str = "PUNCTUAL_TEST_TOOLS_REQUIRED";

/// Whether a missing tool is a failure: in CI skipped checks would go unnoticed.
pub fn must_be_there() -> bool {
    ["CI", REQUIRED].into_iter().any(|variable| is_set(std::env::var_os(variable)))
}

fn is_set(variable: Option<OsString>) -> bool {
    variable.is_some_and(|value| !value.is_empty())
}

/// Runs a check that needs the tools, or prints why it was skipped.
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

    #[test]
    fn an_unpacked_program_is_started_with_its_variables() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("it's python");
        std::fs::write(&program, "#!/bin/sh\necho \"$LD_LIBRARY_PATH $1\"\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let variables = [("LD_LIBRARY_PATH", "/some/lib".into())];
        write_launcher(folder.path(), "python3", &program, &[], &variables).unwrap();
        let output = Command::new(folder.path().join("python3")).arg("-V").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/some/lib -V\n");
    }
}
