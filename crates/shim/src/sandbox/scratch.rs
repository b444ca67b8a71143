//! The private directory of each command: its temporary files, and the pipe for its notes.
//!
//! All of them are in one directory of the worker's user. Its mode lets other users pass through to their own
//! directory, but not list it.

use crate::containment::owner_of;
use punctual_worker::process::protocol::Sandbox;
use rustix::fs::{CWD, FileType, Mode};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

const PASSABLE: u32 = 0o711;
const PRIVATE: u32 = 0o700;

/// Where the directories of commands are.
#[derive(Debug, Clone)]
pub struct ScratchPlace {
    /// The directory of all commands of this user.
    pub base: PathBuf,
    /// The directory above it, if it has no other purpose.
    pub dedicated: Option<PathBuf>,
}

impl ScratchPlace {
    /// Below the directory that the operator has chosen, or else below the one for temporary files.
    pub fn new(chosen: Option<&Path>) -> Self {
        let parent = chosen.map_or_else(std::env::temp_dir, Path::to_owned);
        let parent = std::path::absolute(&parent).unwrap_or(parent);
        let base = parent.join(format!("punctual-{}", geteuid().as_raw()));
        ScratchPlace { base, dedicated: chosen.map(|_| parent) }
    }
}

/// Creates it if it does not exist, and refuses one of another user.
pub fn prepare(base: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(PASSABLE).create(base) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let metadata = fs::symlink_metadata(base)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to user {}, not to this server", metadata.uid())));
    }
    // The umask may have removed some of it.
    if metadata.mode() & 0o777 != PASSABLE {
        fs::set_permissions(base, Permissions::from_mode(PASSABLE))?;
    }
    Ok(())
}

/// The directory of a command; removed on drop.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
}

impl Scratch {
    pub fn create(sandbox: &Sandbox) -> io::Result<Self> {
        if let Some(base) = sandbox.scratch.parent() {
            prepare(base)?;
        }
        DirBuilder::new().mode(PRIVATE).create(&sandbox.scratch)?;
        let scratch = Scratch { dir: sandbox.scratch.clone() };
        let (temporary_dir, notes) = (sandbox.temporary_dir(), sandbox.notes());
        DirBuilder::new().mode(PRIVATE).create(&temporary_dir)?;
        rustix::fs::mknodat(CWD, &notes, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        if let Some(account) = &sandbox.account {
            for path in [&temporary_dir, &notes] {
                chown(path, Some(account.uid), Some(account.gid))?;
            }
            fs::set_permissions(&sandbox.scratch, Permissions::from_mode(PASSABLE))?;
        }
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The worker tries again.
        let _ = remove(&self.dir);
    }
}

/// Removes the directories of workers that are gone.
pub fn remove_leftovers(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let dir = entry.path();
        if owner_of(&dir).is_some_and(|owner| owner.is_gone())
            && let Err(error) = remove(&dir)
        {
            tracing::warn!(directory = %dir.display(), %error, "cannot remove the files of an old command");
        }
    }
}

/// Removes a directory with everything in it. Its command may have nested directories deeper than a path may
/// be long: each of them is first moved to the top, under a name that the command could not know.
///
/// Only the worker's user can change the top. So a directory that was moved there cannot be replaced by a link while
/// it is emptied, even if processes of the command's user still run elsewhere on the machine.
pub fn remove(top: &Path) -> io::Result<()> {
    let mut prefix = None;
    let mut moved = 0_u64;
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        match fs::symlink_metadata(&dir) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                fs::remove_file(&dir)?;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        unlock(&dir);
        for entry in fs::read_dir(&dir)?.collect::<io::Result<Vec<_>>>()? {
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
                continue;
            }
            unlock(&entry.path());
            let prefix = match &mut prefix {
                Some(prefix) => prefix,
                empty => empty.insert(crate::nonce()?),
            };
            moved += 1;
            let place = top.join(format!("{prefix}-{moved}"));
            fs::rename(entry.path(), &place)?;
            dirs.push(place);
        }
        if dir != top {
            fs::remove_dir(&dir)?;
        }
    }
    match fs::remove_dir(top) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Gives the owner access to a directory that a command has locked. Root has it anyway, and must not change a
/// file that a link of another user leads to.
fn unlock(dir: &Path) {
    if !geteuid().is_root() {
        let _ = fs::set_permissions(dir, Permissions::from_mode(PRIVATE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn sandbox(base: &Path) -> Sandbox {
        Sandbox { scratch: base.join("one"), ..Sandbox::default() }
    }

    #[test]
    fn a_scratch_directory_is_private_and_disappears() {
        let parent = tempfile::tempdir().unwrap();
        let ScratchPlace { base, .. } = ScratchPlace::new(Some(parent.path()));
        let sandbox = sandbox(&base);
        let scratch = Scratch::create(&sandbox).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&base), mode(&sandbox.scratch)), (PASSABLE, PRIVATE));
        assert_eq!(mode(&sandbox.temporary_dir()), PRIVATE);
        assert!(Scratch::create(&sandbox).is_err(), "two commands would share it");
        drop(scratch);
        assert!(!sandbox.scratch.exists());
    }

    #[test]
    fn everything_is_removed_however_deep_or_locked_except_link_targets() {
        let parent = tempfile::tempdir().unwrap();
        let kept = parent.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "").unwrap();
        let top = parent.path().join("top");
        fs::create_dir(&top).unwrap();
        symlink(&kept, top.join("link")).unwrap();
        // Longer than any path may be.
        let script =
            "d=$(printf 'x%.0s' $(seq 200)); for i in $(seq 60); do mkdir $d && cd -P ./$d || exit 1; done";
        let made = std::process::Command::new("sh").args(["-c", script]).current_dir(&top).status().unwrap();
        assert!(made.success());
        fs::create_dir_all(top.join("locked/in")).unwrap();
        fs::write(top.join("locked/in/file"), "").unwrap();
        fs::set_permissions(top.join("locked/in"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(top.join("locked"), Permissions::from_mode(0o000)).unwrap();
        remove(&top).unwrap();
        assert!(!top.exists() && kept.join("file").exists());
        remove(&top).unwrap();
    }

    #[test]
    fn a_foreign_base_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let ScratchPlace { base, .. } = ScratchPlace::new(Some(parent.path()));
        symlink("/tmp", &base).unwrap();
        assert!(prepare(&base).is_err());
    }
}
