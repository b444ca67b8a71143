//! The settings that a fresh machine gets from this one: how to reach the network. None of them is written to
//! the repository.

use anyhow::{Context, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables for reaching the network, or for limiting the use of the machine.
const VARIABLES: &[&str] = &[
    "CARGO_BUILD_JOBS",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NEXTEST_TEST_THREADS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
];
const PREFIXES: &[&str] =
    &["CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTRIES_", "CARGO_REGISTRY_", "CARGO_SOURCE_", "PIP_"];
/// In lower or upper case.
const PROXIES: &[&str] = &["all_proxy", "http_proxy", "https_proxy", "no_proxy"];
/// Parts of the names of variables that contain secrets, which no command needs here.
const SECRETS: &[&str] = &["TOKEN", "PASSWORD", "CREDENTIAL"];

pub fn variables() -> Vec<(OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed)).collect()
}

fn is_passed(name: &str) -> bool {
    let is_known = VARIABLES.contains(&name)
        || PROXIES.contains(&name.to_lowercase().as_str())
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    is_known && !SECRETS.iter().any(|secret| name.contains(secret))
}

/// Files that are copied to the same path.
const FILES: &[&str] = &["/etc/hosts", "/etc/pip.conf", "/etc/resolv.conf"];
/// Certificate authorities that Debian does not include.
const AUTHORITIES: &str = "/usr/local/share/ca-certificates";

/// Gives a root folder the network settings of this machine.
pub fn copy_settings(root: &Path) -> Result<()> {
    let named = variables().into_iter().map(|(_, value)| PathBuf::from(value));
    let named = named.filter(|file| file.is_absolute() && file.is_file() && !inside(root, file).exists());
    let files = FILES.iter().map(PathBuf::from).filter(|file| file.is_file());
    for file in files.chain(named).chain(files_below(Path::new(AUTHORITIES))) {
        let copy = inside(root, &file);
        std::fs::create_dir_all(copy.parent().context("a file has no parent directory")?)?;
        // Do not write through a link in the root folder.
        let _ = std::fs::remove_file(&copy);
        std::fs::copy(&file, &copy).with_context(|| format!("copy {}", file.display()))?;
    }
    Ok(())
}

/// Gives a user's cargo and pip the network settings of this machine.
pub fn copy_users_settings(home: &Path) -> Result<()> {
    let Some(own) = std::env::var_os("HOME").map(PathBuf::from) else { return Ok(()) };
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| own.join(".cargo"), PathBuf::from);
    if let Ok(text) = std::fs::read_to_string(cargo.join("config.toml")) {
        write(&home.join(".cargo").join("config.toml"), network_tables(&text).as_bytes())?;
    }
    for file in [".config/pip/pip.conf", ".pip/pip.conf"] {
        if let Ok(text) = std::fs::read(own.join(file)) {
            write(&home.join(file), &text)?;
        }
    }
    Ok(())
}

fn write(file: &Path, text: &[u8]) -> Result<()> {
    std::fs::create_dir_all(file.parent().context("a file has no parent directory")?)?;
    Ok(std::fs::write(file, text)?)
}

/// The tables of cargo's settings that concern the network.
fn network_tables(text: &str) -> String {
    const TABLES: &[&str] = &["[http", "[net", "[registries", "[registry", "[source"];
    let mut is_kept = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with('[') {
            is_kept = TABLES.iter().any(|table| line.trim_start().starts_with(table));
        }
        if is_kept {
            kept.extend([line, "\n"]);
        }
    }
    kept
}

/// The path of a file in a root folder, as seen from outside.
pub fn inside(root: &Path, file: &Path) -> PathBuf {
    root.join(file.strip_prefix("/").unwrap_or(file))
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The files that list this machine's sources of a Debian release.
pub fn apt_sources(suite: &str) -> Vec<PathBuf> {
    let mut files = files_below(Path::new("/etc/apt/sources.list.d"));
    files.push(PathBuf::from("/etc/apt/sources.list"));
    files.retain(|file| {
        let is_read = file.extension().is_some_and(|extension| extension == "list" || extension == "sources");
        is_read && std::fs::read_to_string(file).is_ok_and(|text| names_suite(&text, suite))
    });
    files.sort();
    files
}

fn names_suite(text: &str, suite: &str) -> bool {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.into_iter().any(|line| line.split_whitespace().any(|word| word == suite))
}

/// This machine's network settings of apt-get, in its file format.
pub fn apt_settings() -> Result<String> {
    let mut command = Command::new("apt-config");
    command.args(["dump", "--no-empty", "Acquire::http", "Acquire::https"]);
    let output = command.output().context("start apt-config")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_network_settings_are_passed_on() {
        for name in ["https_proxy", "NO_PROXY", "PIP_CERT", "SSL_CERT_FILE", "CARGO_NET_OFFLINE"] {
            assert!(is_passed(name), "{name}");
        }
        for name in ["PATH", "CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_REGISTRY_TOKEN", "PUNCTUAL_STORE", "CI"]
        {
            assert!(!is_passed(name), "{name}");
        }
    }

    #[test]
    fn only_network_tables_are_copied_from_cargo() {
        let text = "[build]\njobs = 3\n[source.crates-io]\nreplace-with = \"near\"\n\n[alias]\nx = \"run\"\n[net]\nretry = 3\n";
        assert_eq!(network_tables(text), "[source.crates-io]\nreplace-with = \"near\"\n\n[net]\nretry = 3\n");
    }

    #[test]
    fn sources_of_other_releases_are_ignored() {
        assert!(names_suite("Types: deb\nSuites: bookworm bookworm-updates\n", "bookworm"));
        assert!(names_suite("deb http://deb.debian.org/debian bookworm main\n", "bookworm"));
        assert!(!names_suite("# deb http://deb.debian.org/debian bookworm main\n", "bookworm"));
        assert!(!names_suite("deb https://example.com/apt tool-bookworm main\n", "bookworm"));
    }
}
