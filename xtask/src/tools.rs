//! Programs that tests need and the repository does not have: installed into a folder beside the build, once.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is installed from PyPI, with exact versions: a new one is taken when someone has looked at it.
const PACKAGES: [&str; 2] = ["openapi-spec-validator==0.9.0", "schemathesis==4.32.5"];

/// Programs written in Python, in a folder of their own.
pub struct PythonTools {
    folder: PathBuf,
}

impl PythonTools {
    /// Installs what is missing.
    pub fn ready(root: &Path) -> Result<Self> {
        let tools = PythonTools { folder: target_folder(root).join("tools").join("python") };
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

fn succeed(command: &mut Command) -> Result<()> {
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
