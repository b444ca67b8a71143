//! The mount namespace of one command: the worker's files and the directories of other commands are empty in
//! it, and `/proc` shows the command's processes only. Runs in the first process of its PID namespace.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The mounts of a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Mounts {
    /// Directories and files that are empty. Those that do not exist, or that nobody here can reach, are skipped.
    pub hidden: Vec<PathBuf>,
    /// The command's own directory; others next to it are hidden.
    pub scratch: PathBuf,
}

/// Enters a mount namespace with these mounts.
pub fn enter(mounts: &Mounts) -> io::Result<()> {
    crate::namespace::unshare_namespaces(UnshareFlags::NEWNS)?;
    // Mounts of the machine still appear here, but never the other way round.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    hide_neighbours(&mounts.scratch).map_err(|error| about(&mounts.scratch, &error))?;
    for path in &mounts.hidden {
        hide(path).map_err(|error| about(path, &error))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|error| about(Path::new("/proc"), &error.into()))
}

fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn hide_neighbours(scratch: &Path) -> io::Result<()> {
    let Some(base) = scratch.parent() else { return Ok(()) };
    let own = rustix::fs::open(scratch, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    cover(base, MountFlags::empty())?;
    DirBuilder::new().mode(0o700).create(scratch)?;
    mount_bind(format!("/proc/self/fd/{}", own.as_raw_fd()), scratch)?;
    Ok(mount_remount(base, COVER | MountFlags::RDONLY, "")?)
}

fn hide(path: &Path) -> io::Result<()> {
    let path = match path.canonicalize() {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(());
        }
        path => path?,
    };
    if fs::metadata(&path)?.is_dir() {
        return cover(&path, MountFlags::RDONLY);
    }
    Ok(mount_bind("/dev/null", &path)?)
}

const COVER: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Mounts an empty directory over another one.
fn cover(dir: &Path, flags: MountFlags) -> io::Result<()> {
    Ok(mount("punctual", dir, "tmpfs", COVER | flags, c"mode=0755,size=64k")?)
}
