//! `cargo xtask fresh`: runs the two commands of the README on a machine that has never seen this project. A
//! minimal Debian in a separate folder has a C compiler, git, this machine's Rust, and a clone of the last
//! commit. Machines that were used before hide missing steps: users, packages and tools that something else
//! has installed.

mod cell;
mod debian;
mod host;
mod options;
mod room;

use crate::tools::succeed;
use anyhow::{Context, Result, bail, ensure};
use cell::NamespaceCell;
use options::FreshOptions;
use room::FreshRoom;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

pub use options::USAGE;

/// A command that a user runs in a room.
struct RoomCommand {
    name: String,
    /// The program and its arguments, run in the clone.
    words: Vec<String>,
}

/// The first command of the README, and a check that it works.
const SERVE: &str = include_str!("serve.sh");

pub fn run(root: &Path, words: &[&str]) -> Result<ExitCode> {
    let options = FreshOptions::parse(words)?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "`cargo xtask fresh` needs root, to mount directories and to change its root directory"
    );
    let cell = NamespaceCell::watch()?;
    let outcome = run_all(root, &options, &cell);
    // Everything temporary has been removed by now.
    cell.end_if_interrupted();
    let results = outcome?;
    println!();
    for (name, took_s, failure) in &results {
        let verdict = failure.as_ref().map_or("passed".to_owned(), |failure| format!("FAILED ({failure})"));
        println!("{name}: {verdict} in {took_s:.1} s");
    }
    let has_passed = results.iter().all(|(_, _, failure)| failure.is_none());
    Ok(if has_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The command, its duration in seconds, and its failure.
type TriedCommand = (String, f64, Option<String>);

fn run_all(root: &Path, options: &FreshOptions, cell: &NamespaceCell) -> Result<Vec<TriedCommand>> {
    report_uncommitted_changes(root)?;
    let toolchain = toolchain()?;
    let scratch = ScratchFolder::new(options.keep)?;
    let base = options.root.clone().unwrap_or_else(|| scratch.folder.join("base"));
    let started = Instant::now();
    if debian::make_if_missing(cell, &base, &scratch.folder)? {
        println!("== made a root folder in {:.1} s", started.elapsed().as_secs_f64());
    }
    let mut results = Vec::new();
    for user in options.users() {
        // Each user starts with a copy: what root installs must not help the other user.
        let room = FreshRoom::make(cell, &base, &scratch.folder.join(user.word()), user, root)?;
        for task in tasks(options) {
            let name = format!("{}: {}", user.word(), task.name);
            println!("\n== {name}");
            let started = Instant::now();
            let status = room.run(cell, &toolchain, options.target_dir.as_deref(), &task.words)?;
            let failure = (!status.success()).then(|| status.to_string());
            results.push((name, started.elapsed().as_secs_f64(), failure));
        }
        if options.keep {
            println!("{}'s root folder is {}", user.word(), room.folder.display());
        } else {
            remove(&room.folder)?;
        }
    }
    Ok(results)
}

fn tasks(options: &FreshOptions) -> Vec<RoomCommand> {
    let task = |name: &str, words: &[&str]| RoomCommand {
        name: name.to_owned(),
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    };
    if !options.own_command.is_empty() {
        return vec![RoomCommand { name: options.own_command.join(" "), words: options.own_command.clone() }];
    }
    let mut tasks = Vec::new();
    if options.runs_serve() {
        tasks.push(task("cargo run --release -- serve", &["bash", "-c", SERVE]));
    }
    if options.runs_test() {
        tasks.push(task("cargo xtask test", &["cargo", "xtask", "test"]));
    }
    tasks
}

/// Only the last commit is tested, because that is what others get.
fn report_uncommitted_changes(root: &Path) -> Result<()> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(root).args(["status", "--porcelain"]).output().context("start git")?;
    ensure!(output.status.success(), "git status: {}", String::from_utf8_lossy(&output.stderr));
    let changes = String::from_utf8_lossy(&output.stdout).lines().count();
    if changes > 0 {
        println!("{changes} uncommitted changes are not included");
    }
    Ok(())
}

/// The folder of the Rust toolchain that builds this program.
fn toolchain() -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().context("start rustc")?;
    ensure!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr));
    let folder = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let is_whole = ["cargo", "rustc"].iter().all(|program| folder.join("bin").join(program).exists());
    ensure!(
        is_whole && folder != Path::new("/usr"),
        "{} is not a toolchain of rustup: install Rust with rustup",
        folder.display()
    );
    Ok(folder)
}

/// Removed on drop, unless it is to be kept.
struct ScratchFolder {
    folder: PathBuf,
    is_kept: bool,
}

/// On a disk, where a build has room; `/tmp` may be in memory.
const SCRATCH_FOLDER: &str = "/var/tmp";

impl ScratchFolder {
    fn new(is_kept: bool) -> Result<Self> {
        let beside = std::env::var_os("TMPDIR").map_or_else(|| SCRATCH_FOLDER.into(), PathBuf::from);
        let folder = tempfile::Builder::new().prefix("punctual-fresh-").tempdir_in(beside)?.keep();
        Ok(ScratchFolder { folder, is_kept })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        let removed = if self.is_kept { Ok(()) } else { remove(&self.folder) };
        if let Err(error) = removed {
            eprintln!("{error:#}");
        }
    }
}

/// Removes a folder with its contents, but never through a mount into other data.
fn remove(folder: &Path) -> Result<()> {
    let folder = folder.canonicalize().with_context(|| format!("find {}", folder.display()))?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts")?;
    if let Some(mount) = mount_below(&mounts, &folder) {
        bail!("{} was not removed: something is mounted at {}", folder.display(), mount.display());
    }
    succeed(Command::new("rm").args(["--recursive", "--force", "--one-file-system", "--"]).arg(&folder))
}

/// The first mount point in a list of mounts that is below a folder.
fn mount_below(mounts: &str, folder: &Path) -> Option<PathBuf> {
    // Blanks and other special characters are escaped as numbers.
    let unescaped = |place: &str| {
        [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")]
            .iter()
            .fold(place.to_owned(), |place, (code, character)| place.replace(code, character))
    };
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(unescaped);
    places.map(PathBuf::from).find(|place| place.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_below_a_folder_is_found() {
        let mounts = "disk / ext4 rw 0 0\nproc /srv/a\\040b/root/proc proc rw 0 0\n";
        let found = |folder: &str| mount_below(mounts, Path::new(folder));
        assert_eq!(found("/srv/a b"), Some("/srv/a b/root/proc".into()));
        assert_eq!(found("/srv/a b/root/proc"), Some("/srv/a b/root/proc".into()));
        assert_eq!(found("/srv/a"), None);
    }

    #[test]
    fn both_commands_are_in_the_readme() {
        let readme = include_str!("../../../README.md");
        for task in tasks(&FreshOptions::parse(&[]).unwrap()) {
            assert!(readme.lines().any(|line| line.starts_with(&task.name)), "{}", task.name);
        }
    }

    #[test]
    fn a_custom_command_replaces_both() {
        let options = FreshOptions::parse(&["--", "cargo", "fmt", "--check"]).unwrap();
        let tasks = tasks(&options);
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].words, ["cargo", "fmt", "--check"]);
    }
}
