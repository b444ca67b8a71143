//! Debian packages, unpacked into a folder. They are not installed: that needs root, and starts unwanted
//! servers. apt-get gets separate lists and a separate cache, so that it changes nothing on the machine.

use crate::tools::succeed;
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Packages {
    pub names: &'static [&'static str],
    pub suite: Suite,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// From this machine's own sources. Only missing packages are unpacked.
    OfThisMachine,
    /// From Debian's newest release. Everything is unpacked, including the C library: this machine's may be
    /// too old.
    Unstable,
}

const UNSTABLE: &str = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian unstable main\n";

/// Downloads packages with all their dependencies and unpacks them as `folder`.
pub fn unpack(packages: &Packages, folder: &Path) -> Result<()> {
    let beside = folder.parent().context("the folder has no parent")?;
    std::fs::create_dir_all(beside)?;
    // Atomically: it gets its name only once it is complete.
    let partial = tempfile::Builder::new().prefix("partial-").tempdir_in(beside)?;
    let tree = partial.path().join("tree");
    std::fs::create_dir(&tree)?;
    for package in download(packages, partial.path())? {
        let mut unpack = Command::new("dpkg");
        succeed(unpack.arg("-x").arg(&package).arg(&tree).stdout(std::io::stderr()))?;
    }
    keep_links_inside(&tree, &tree, folder)?;
    std::fs::set_permissions(&tree, std::fs::Permissions::from_mode(0o755))?;
    match std::fs::rename(&tree, folder) {
        // Another process has unpacked the same packages first.
        Err(_) if folder.exists() => Ok(()),
        outcome => outcome.with_context(|| format!("rename to {}", folder.display())),
    }
}

fn download(packages: &Packages, folder: &Path) -> Result<Vec<PathBuf>> {
    let (lists, cache) = (folder.join("lists"), folder.join("cache"));
    let archives = cache.join("archives");
    for folder in [lists.join("partial"), archives.join("partial")] {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = vec![
        format!("Dir::State::lists={}", lists.display()),
        format!("Dir::Cache={}", cache.display()),
        format!("Dir::Cache::archives={}", archives.display()),
        // The folders are not shared; the machine's locks belong to root.
        "Debug::NoLocking=true".to_owned(),
        // The user that root would switch to for downloads may not have access to the folder.
        "APT::Sandbox::User=root".to_owned(),
        "APT::Install-Recommends=false".to_owned(),
        "Acquire::Languages=none".to_owned(),
    ];
    if packages.suite == Suite::Unstable {
        let (sources, status) = (folder.join("sources.list"), folder.join("status"));
        std::fs::write(&sources, UNSTABLE)?;
        std::fs::write(&status, "")?;
        options.push(format!("Dir::Etc::sourcelist={}", sources.display()));
        options.push("Dir::Etc::sourceparts=/dev/null".to_owned());
        options.push("Dir::Etc::preferencesparts=/dev/null".to_owned());
        options.push(format!("Dir::State::status={}", status.display()));
    }
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(options.iter().flat_map(|option| ["-o", option])).args(words);
        succeed(command.stdout(std::io::stderr()))
    };
    // One of several sources may be broken without affecting these packages.
    let updated = apt(&["-qq", "update"]);
    let words = [&["-qqy", "--download-only", "install"], packages.names].concat();
    let downloaded = apt(&words);
    if downloaded.is_err() {
        updated?;
    }
    downloaded?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&archives)? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "deb"));
    ensure!(!files.is_empty(), "apt-get has found nothing to download for {}", packages.names.join(" "));
    Ok(files)
}

/// Absolute links would lead out of the tree, such as those to `/etc`: they are redirected to the same file
/// inside the tree's final location.
fn keep_links_inside(below: &Path, tree: &Path, place: &Path) -> Result<()> {
    for entry in std::fs::read_dir(below)? {
        let path = entry?.path();
        if path.is_symlink() {
            let target = std::fs::read_link(&path)?;
            let Ok(inside) = target.strip_prefix("/") else { continue };
            if tree.join(inside).symlink_metadata().is_ok() {
                std::fs::remove_file(&path)?;
                std::os::unix::fs::symlink(place.join(inside), &path)?;
            }
        } else if path.is_dir() {
            keep_links_inside(&path, tree, place)?;
        }
    }
    Ok(())
}

/// Whether unprivileged users can access it.
pub fn may_be_entered_by_everyone(folder: &Path) -> Result<bool> {
    const ENTER_OTHERS: u32 = 0o001;
    for folder in folder.canonicalize()?.ancestors() {
        if folder.metadata()?.permissions().mode() & ENTER_OTHERS == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_from_the_root_lead_into_the_tree() {
        let (tree, place) = (tempfile::tempdir().unwrap(), Path::new("/tools/java"));
        let usr = tree.path().join("usr");
        std::fs::create_dir_all(tree.path().join("etc/java")).unwrap();
        std::fs::create_dir(&usr).unwrap();
        for (name, target) in [("conf", "/etc/java"), ("else", "/var/elsewhere"), ("near", "conf")] {
            std::os::unix::fs::symlink(target, usr.join(name)).unwrap();
        }
        keep_links_inside(tree.path(), tree.path(), place).unwrap();
        let leads = |name: &str| std::fs::read_link(usr.join(name)).unwrap().display().to_string();
        assert_eq!(["conf", "else", "near"].map(leads), ["/tools/java/etc/java", "/var/elsewhere", "conf"]);
    }

    #[test]
    fn a_folder_below_a_closed_one_is_closed() {
        let closed = tempfile::tempdir().unwrap();
        let inside = closed.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let set =
            |mode| std::fs::set_permissions(closed.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o700);
        assert!(!may_be_entered_by_everyone(&inside).unwrap());
        set(0o711);
        assert!(may_be_entered_by_everyone(&inside).unwrap());
    }
}
