//! A browser for tests: Debian's headless Chromium, driven by `playwright-core` from npm. Tests start the launcher;
//! `xtask/browser/driver.cjs` describes its commands.

use super::{launchers_folder, runs, succeed, tools_folder, write_launcher};
use crate::services::{self, NodeJs};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the launcher.
const LAUNCHER: &str = "punctual-test-browser";
const CHROMIUM: &str = "punctual-test-chromium";
const MODULES: &str = "browser";
const SPEED: &str = "speed.cjs";
const FILES: [&str; 4] = ["package.json", "package-lock.json", "driver.cjs", SPEED];

pub fn install(root: &Path) -> Result<()> {
    let install = || -> Result<()> {
        let chromium = install_chromium(root)?;
        let node = NodeJs::install(root)?;
        let modules = node.install_modules(root, MODULES, &FILES)?;
        let variables = [
            ("PUNCTUAL_TEST_CHROMIUM", chromium.into_os_string()),
            ("LD_LIBRARY_PATH", node.programs.libraries().unwrap_or_default()),
        ];
        let arguments = [modules.join("driver.cjs")];
        write_launcher(&launchers_folder(root), LAUNCHER, &node.program(), &arguments, &variables)
    };
    install().context(
        "tests in a real browser need Debian's chromium-headless-shell, and playwright-core from npm",
    )
}

/// Measures the dashboard of a running server.
pub fn measure_dashboard(root: &Path, arguments: &[&str]) -> Result<()> {
    let chromium = install_chromium(root)?;
    let node = NodeJs::install(root)?;
    let script = node.install_modules(root, MODULES, &FILES)?.join(SPEED);
    succeed(node.command().arg(script).args(arguments).env("PUNCTUAL_TEST_CHROMIUM", chromium))
}

/// Finds or unpacks Chromium, and returns a program that starts it.
fn install_chromium(root: &Path) -> Result<PathBuf> {
    let installed = ["chromium-headless-shell", "chromium"].map(PathBuf::from);
    let (program, variables) = match installed.into_iter().find(|program| shows_a_page(program)) {
        Some(program) => (program, vec![]),
        None => unpack_chromium(root)?,
    };
    write_launcher(&launchers_folder(root), CHROMIUM, &program, &[], &variables)?;
    let launcher = launchers_folder(root).join(CHROMIUM);
    ensure!(shows_a_page(&launcher), "Chromium was unpacked but does not run");
    Ok(launcher)
}

/// More than its version: that needs none of its files.
fn shows_a_page(program: &Path) -> bool {
    runs(Command::new(program).args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        "about:blank",
    ]))
}

/// The program, and the variables that it needs.
fn unpack_chromium(root: &Path) -> Result<(PathBuf, Vec<(&'static str, OsString)>)> {
    let tree = tools_folder(root).join("chromium-unpacked");
    if !tree.exists() {
        println!("Chromium is not installed; downloading it once into the build directory");
        services::unpack(&["chromium-headless-shell", "fonts-dejavu-core", "fonts-inter"], &tree)?;
    }
    let fonts = tree.join("fonts.conf");
    std::fs::write(&fonts, fonts_of(&tree))?;
    let variables = [("LD_LIBRARY_PATH", libraries_of(&tree)?), ("FONTCONFIG_FILE", fonts.into_os_string())];
    Ok((tree.join("usr/lib/chromium/chromium-headless-shell"), variables.into()))
}

/// The machine may have no fonts, and Chromium takes any font for a family that fontconfig does not know.
fn fonts_of(tree: &Path) -> String {
    let folder = tree.join("usr/share/fonts");
    format!(
        "<?xml version=\"1.0\"?>\n<fontconfig><dir>{}</dir><dir>/usr/share/fonts</dir>\
         <alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>\
         <match><edit name=\"family\" mode=\"append_last\"><string>Inter</string><string>DejaVu Sans</string></edit></match>\
         </fontconfig>\n",
        folder.display()
    )
}

/// One of its libraries expects another one in a folder that it names from the root.
fn libraries_of(tree: &Path) -> Result<OsString> {
    let folders = services::library_folders(tree);
    let inside = folders.iter().map(|folder| folder.join("pulseaudio"));
    Ok(std::env::join_paths(folders.iter().cloned().chain(inside))?)
}
