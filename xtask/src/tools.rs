//! Programs that tests need and the repository does not have: installed into a folder beside the build, once.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is installed from PyPI, with exact versions: a new one is taken when someone has looked at it.
const PACKAGES: [&str; 2] = ["openapi-spec-validator==0.9.0", "schemathesis==4.32.5"];

/// Installs what the test command needs and this machine lacks: parts of the toolchain, Python with its module venv, and
/// Prometheus' own tool for metrics and alerts. Says what could not be had; where `CI` is set, that is a failure.
pub fn install(root: &Path) -> Result<bool> {
    let missing: Vec<String> = [
        ensure(&["cargo", "fmt", "--version"], &[&["rustup", "component", "add", "rustfmt"]]),
        ensure(&["cargo", "clippy", "--version"], &[&["rustup", "component", "add", "clippy"]]),
        ensure(&["cargo", "nextest", "--version"], &[&["cargo", "install", "--locked", "cargo-nextest"]]),
        ensure(&["python3", "-c", "import ensurepip, venv"], &[APT_UPDATE, APT_INSTALL_PYTHON]),
        install_promtool(root),
    ]
    .into_iter()
    .filter_map(|outcome| outcome.err().map(|error| format!("{error:#}")))
    .collect();
    for error in &missing {
        println!("missing: {error}");
    }
    Ok(missing.is_empty() || !must_be_there())
}

const APT_UPDATE: &[&str] = &["apt-get", "update", "-q"];
const APT_INSTALL_PYTHON: &[&str] =
    &["apt-get", "install", "-qy", "--no-install-recommends", "python3", "python3-venv"];

/// Runs the steps that install something, if the program that shows whether it is there does not succeed.
fn ensure(probe: &[&str], steps: &[&[&str]]) -> Result<()> {
    if is_there(probe) {
        return Ok(());
    }
    for step in steps {
        succeed(Command::new(step[0]).args(&step[1..]))?;
    }
    if !is_there(probe) {
        bail!("`{}` still fails after it was installed", probe.join(" "));
    }
    Ok(())
}

fn is_there(probe: &[&str]) -> bool {
    let mut command = Command::new(probe[0]);
    command.args(&probe[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Takes promtool out of Debian's package: installing all of it would start a server that nobody asked for.
fn install_promtool(root: &Path) -> Result<()> {
    let folder = promtool_folder(root);
    if is_there(&["promtool", "--version"]) || folder.join("promtool").exists() {
        return Ok(());
    }
    let unpacked = tools_folder(root).join("prometheus");
    std::fs::create_dir_all(&unpacked)?;
    let download =
        || succeed(Command::new("apt-get").args(["download", "prometheus"]).current_dir(&unpacked));
    download()
        .or_else(|_| succeed(Command::new(APT_UPDATE[0]).args(&APT_UPDATE[1..])).and_then(|()| download()))?;
    for entry in std::fs::read_dir(&unpacked)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            succeed(Command::new("dpkg").arg("-x").arg(&path).arg(&unpacked))?;
            std::fs::remove_file(&path)?;
        }
    }
    if !folder.join("promtool").exists() {
        bail!("promtool is not in Debian's package of Prometheus");
    }
    Ok(())
}

fn promtool_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("prometheus").join("usr").join("bin")
}

/// Where programs are looked for, with what was installed here at the end.
pub fn search_path(root: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([promtool_folder(root)]);
    std::env::join_paths(folders).context("the search path has an odd folder")
}

pub fn tools_folder(root: &Path) -> PathBuf {
    target_folder(root).join("tools")
}

/// Programs written in Python, in a folder of their own.
pub struct PythonTools {
    folder: PathBuf,
}

impl PythonTools {
    /// Installs what is missing.
    pub fn ready(root: &Path) -> Result<Self> {
        let tools = PythonTools { folder: tools_folder(root).join("python") };
        let mark = tools.folder.join("installed.txt");
        let wanted = PACKAGES.join("\n");
        if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
            return Ok(tools);
        }
        std::fs::create_dir_all(&tools.folder)?;
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&tools.folder))
            .context("Python 3 with its module venv is needed")?;
        let mut install = tools.command("python");
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(PACKAGES);
        succeed(&mut install).context("the packages cannot be installed")?;
        std::fs::write(&mark, wanted)?;
        Ok(tools)
    }

    pub fn command(&self, program: &str) -> Command {
        Command::new(self.folder.join("bin").join(program))
    }
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
