//! Python, and programs written in it: this machine's Python where it can create environments, or else one
//! unpacked next to the build. Root is not needed.

use super::{PACKAGES, launchers_folder, runs, succeed, tools_folder, write_launcher};
use crate::services;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The packages to unpack: Python, and pip as a runnable file. Only missing ones are unpacked.
const DEBIAN_PACKAGES: &[&str] = &["python3", "python3-pip-whl"];

/// A Python that can install packages into an environment.
#[derive(Debug, PartialEq, Eq)]
pub struct Python {
    program: PathBuf,
    /// Libraries of the program that the machine may lack.
    libraries: Option<OsString>,
    pip: Pip,
}

#[derive(Debug, PartialEq, Eq)]
enum Pip {
    /// Every new environment has it.
    InEnvironments,
    /// A file next to Python. Debian's Python cannot put pip into an environment without its package
    /// `python3-venv`.
    Wheel(PathBuf),
}

impl Python {
    pub fn find_or_unpack(root: &Path) -> Result<Self> {
        let python = match Python::find(root) {
            Some(python) => python,
            None => Python::unpack(root).context(
                "Python 3 with venv and pip is not available from apt-get: install it (on Debian the packages python3 and \
                 python3-venv), so that `python3 -m venv` works",
            )?,
        };
        python.link(root)?;
        Ok(python)
    }

    fn unpack(root: &Path) -> Result<Self> {
        println!("Python 3 with venv and pip is not installed; downloading it once into the build directory");
        services::unpack(DEBIAN_PACKAGES, &unpacked_folder(root))?;
        Python::find(root).context("it was unpacked but does not run")
    }

    fn find(root: &Path) -> Option<Self> {
        let with = |program, libraries| Python { program, libraries, pip: Pip::InEnvironments };
        let can_import = |python: &Python, modules: &str| {
            runs(python.command().arg("-c").arg(format!("import {modules}")))
        };
        let installed = with(PathBuf::from("python3"), None);
        if can_import(&installed, "ensurepip, venv") {
            return Some(installed);
        }
        let tree = unpacked_folder(root);
        let unpacked = with(tree.join("usr/bin/python3"), services::libraries_of(&tree));
        let python = [installed, unpacked].into_iter().find(|python| can_import(python, "venv"))?;
        let wheels = [Path::new("/"), &tree].map(|top| top.join("usr/share/python-wheels"));
        let wheel = wheels.iter().find_map(|folder| pip_in(folder))?;
        Some(Python { pip: Pip::Wheel(wheel), ..python })
    }

    fn command(&self) -> Command {
        self.with_libraries(Command::new(&self.program))
    }

    fn with_libraries(&self, mut command: Command) -> Command {
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Creates an empty environment and installs packages into it.
    fn install_into(&self, folder: &Path, packages: &[&str]) -> Result<()> {
        let mut make = self.command();
        make.args(["-m", "venv", "--clear"]);
        if self.pip != Pip::InEnvironments {
            make.arg("--without-pip");
        }
        succeed(make.arg(folder))?;
        let mut install = self.with_libraries(Command::new(folder.join("bin").join("python")));
        match &self.pip {
            Pip::InEnvironments => install.args(["-m", "pip"]),
            Pip::Wheel(file) => install.arg(file.join("pip")),
        };
        install.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        succeed(&mut install).context("the packages cannot be installed")
    }

    /// Lets tests find it by its name, if it is not the machine's.
    fn link(&self, root: &Path) -> Result<()> {
        let Some(libraries) = &self.libraries else { return Ok(()) };
        let variables = [("LD_LIBRARY_PATH", libraries.clone())];
        write_launcher(&launchers_folder(root), "python3", &self.program, &[], &variables)
    }
}

fn unpacked_folder(root: &Path) -> PathBuf {
    tools_folder(root).join("python-unpacked")
}

fn pip_in(folder: &Path) -> Option<PathBuf> {
    let mut files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("pip-") && name.ends_with(".whl")
    })
}

/// Programs written in Python, in a separate folder.
pub struct PythonTools {
    python: Python,
    folder: PathBuf,
}

impl PythonTools {
    /// Installs what is missing.
    pub fn ready(root: &Path) -> Result<Self> {
        PythonTools::with(root, "python", &PACKAGES)
    }

    /// Installs packages into a separate folder, unless they are installed.
    pub fn with(root: &Path, folder: &str, packages: &[&str]) -> Result<Self> {
        let tools =
            PythonTools { python: Python::find_or_unpack(root)?, folder: tools_folder(root).join(folder) };
        let mark = tools.folder.join("installed.txt");
        let wanted = packages.join("\n");
        if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
            return Ok(tools);
        }
        std::fs::create_dir_all(&tools.folder)?;
        tools.python.install_into(&tools.folder, packages)?;
        std::fs::write(&mark, wanted)?;
        Ok(tools)
    }

    pub fn command(&self, program: &str) -> Command {
        self.python.with_libraries(Command::new(self.folder.join("bin").join(program)))
    }

    /// Libraries that the machine may lack.
    pub fn libraries(&self) -> Option<OsString> {
        self.python.libraries.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pip_is_found_among_other_wheels() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(pip_in(folder.path()), None);
        for name in ["setuptools-66.1.1-py3-none-any.whl", "pip-23.0.1-py3-none-any.whl", "pip-old"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(pip_in(folder.path()), Some(folder.path().join("pip-23.0.1-py3-none-any.whl")));
    }
}
