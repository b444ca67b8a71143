//! Checks the types of the dashboard: TypeScript reads its scripts with their JSDoc, and the answers of the API as
//! `docs/openapi.json` describes them. Nothing of this is needed to build or to run the dashboard.

use crate::services::NodeJs;
use crate::tools;
use anyhow::{Context, Result};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const MODULES: &str = "dashboard-types";
/// Files of `xtask/dashboard-types`.
const FILES: [&str; 3] = ["package.json", "package-lock.json", "tsconfig.json"];
const ANSWERS: &str = "api.d.ts";
/// Files of the dashboard that people edit, and the types of the third-party ones.
const FOLDERS: [(&str, &str, &str); 3] = [
    ("dashboard", "", "js"),
    ("dashboard/pages", "pages", "js"),
    ("xtask/dashboard-types/vendor", "vendor", "ts"),
];

/// Whether the scripts of the dashboard fit together and to the API. Without npm it is skipped, except in CI.
pub fn check(root: &Path) -> Result<bool> {
    let installed = NodeJs::install(root).and_then(|node| {
        let modules = node.install_modules(root, MODULES, &FILES)?;
        Ok((node, modules))
    });
    let (node, modules) = match installed {
        Ok(installed) => installed,
        Err(error) => {
            println!("skipped: TypeScript and openapi-typescript are needed from npm: {error:#}");
            return Ok(!tools::must_be_there());
        }
    };
    // The copy has declarations in place of third-party scripts.
    let copy = modules.join("dashboard");
    let _ = fs::remove_dir_all(&copy);
    for (from, to, extension) in FOLDERS {
        let to = copy.join(to);
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(root.join(from)).with_context(|| format!("read {from}"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|found| found == extension) {
                fs::copy(&path, to.join(path.file_name().context("a file has a name")?))?;
            }
        }
    }
    fs::copy(root.join("xtask").join(MODULES).join(ANSWERS), modules.join(ANSWERS))?;
    let run = |script: &str, arguments: &[&OsStr]| -> Result<bool> {
        let mut command = node.programs.command(&node.program());
        command.arg(modules.join("node_modules").join(script)).args(arguments).current_dir(&modules);
        Ok(command.status().with_context(|| format!("start {script}"))?.success())
    };
    let document = root.join("docs").join("openapi.json");
    let answers = ["-o".as_ref(), "openapi.d.ts".as_ref()];
    let arguments = [&[document.as_os_str()], &answers[..]].concat();
    Ok(run("openapi-typescript/bin/cli.js", &arguments)?
        && run("typescript/bin/tsc", &["-p".as_ref(), ".".as_ref()])?)
}
