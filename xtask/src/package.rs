//! `cargo xtask package`: the release package of this machine's platform, a `.tar.gz` with the binary, its manual pages and
//! completions, the systemd unit and the licences. The binary has the `dist` profile and every broker.

use crate::test::{KAFKA_VARIABLES, cargo};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const USAGE: &str = "\
cargo xtask package         builds the release package of this machine's platform in target/package (some minutes), and prints
                            the sizes of its binary and archive
";

/// Smaller and slower to build than `release`: see the profile in Cargo.toml.
const PROFILE: &str = "dist";

/// The features of packages: brokers that default builds leave out for their build time.
const FEATURES: &str = "kafka";

const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/punctual"),
    ("fish", "share/fish/vendor_completions.d/punctual.fish"),
    ("zsh", "share/zsh/site-functions/_punctual"),
];

/// Files of the repository, and their places in the package.
const FILES: [(&str, &str); 5] = [
    ("deploy/systemd/punctual.service", "lib/systemd/system/punctual.service"),
    ("LICENSE-APACHE", "share/doc/punctual/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/punctual/LICENSE-MIT"),
    ("README.md", "share/doc/punctual/README.md"),
    ("CHANGELOG.md", "share/doc/punctual/CHANGELOG.md"),
];

pub fn run(root: &Path) -> Result<()> {
    let binary = build(root)?;
    let name = package_name(&binary)?;
    let folder = root.join("target/package");
    let staged = folder.join(&name);
    if staged.exists() {
        std::fs::remove_dir_all(&staged).with_context(|| format!("empty {}", staged.display()))?;
    }
    stage(root, &binary, &staged)?;
    let archive = archive(&folder, &name)?;
    for file in [&staged.join("bin/punctual"), &archive] {
        let bytes = file.metadata().with_context(|| format!("read {}", file.display()))?.len();
        println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf> {
    let words = ["build", "--locked", "--profile", PROFILE, "--package", "punctual", "--features", FEATURES];
    let mut command = cargo();
    command.args(words).args(["--message-format", "json-render-diagnostics"]).current_dir(root);
    command.envs(KAFKA_VARIABLES).stderr(std::process::Stdio::inherit());
    let output = command.output().context("start cargo build")?;
    ensure!(output.status.success(), "cargo build ended with {}", output.status);
    executable(&String::from_utf8(output.stdout)?).context("cargo build reported no executable")
}

/// The executable that cargo reported last.
fn executable(messages: &str) -> Option<PathBuf> {
    let message = |line| serde_json::from_str::<serde_json::Value>(line).ok();
    let executable = |message: serde_json::Value| message["executable"].as_str().map(PathBuf::from);
    messages.lines().filter_map(message).filter_map(executable).next_back()
}

/// Such as `punctual-0.1.0-x86_64-linux`.
fn package_name(binary: &Path) -> Result<String> {
    let version = output_of(Command::new(binary).arg("--version"))?;
    let number = version.split_whitespace().nth(1).context("punctual --version prints no version")?;
    Ok(format!("punctual-{number}-{}-{}", std::env::consts::ARCH, std::env::consts::OS))
}

fn stage(root: &Path, binary: &Path, staged: &Path) -> Result<()> {
    copy(binary, &staged.join("bin/punctual"))?;
    for (source, target) in FILES {
        copy(&root.join(source), &staged.join(target))?;
    }
    for (shell, target) in SHELLS {
        let script = output_of(Command::new(binary).args(["completions", shell]))?;
        write(&staged.join(target), &script)?;
    }
    let manual = staged.join("share/man/man1");
    std::fs::create_dir_all(&manual)?;
    output_of(Command::new(binary).arg("man").arg(&manual))?;
    Ok(())
}

fn copy(source: &Path, target: &Path) -> Result<()> {
    std::fs::create_dir_all(target.parent().expect("a file lies in a folder"))?;
    std::fs::copy(source, target).with_context(|| format!("copy {}", source.display()))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().expect("a file lies in a folder"))?;
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Owners, order and times of files do not depend on the machine. A checksum lies beside the archive.
fn archive(folder: &Path, name: &str) -> Result<PathBuf> {
    let file = format!("{name}.tar.gz");
    let tar =
        ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "--gzip", "--create"];
    output_of(
        Command::new("tar").args(tar).args(["--file", &file, name]).env("GZIP", "-9n").current_dir(folder),
    )?;
    let checksum = output_of(Command::new("sha256sum").arg(&file).current_dir(folder))?;
    write(&folder.join(format!("{file}.sha256")), &checksum)?;
    Ok(folder.join(file))
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {errors}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_the_last_that_cargo_reports() {
        let messages = "{\"reason\":\"compiler-artifact\",\"executable\":null}\n\
            {\"reason\":\"compiler-artifact\",\"executable\":\"/built/punctual\"}\n\
            {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(executable(messages), Some(PathBuf::from("/built/punctual")));
        assert_eq!(executable("{\"reason\":\"build-finished\",\"success\":false}\n"), None);
    }

    #[test]
    fn files_of_packages_exist() {
        for (source, _) in FILES {
            assert!(crate::root().join(source).is_file(), "{source}");
        }
    }

    #[test]
    fn times_of_files_do_not_change_an_archive() {
        let archived = |seconds: u64| {
            let folder = tempfile::tempdir().unwrap();
            write(&folder.path().join("punctual-1/share/a"), "text").unwrap();
            let file = std::fs::File::open(folder.path().join("punctual-1/share/a")).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
            std::fs::read(archive(folder.path(), "punctual-1").unwrap()).unwrap()
        };
        assert_eq!(archived(1_000), archived(2_000_000));
    }
}
