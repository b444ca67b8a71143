//! The mount namespace of one command: the worker's files and the directories of other commands are empty in
//! it, `/proc` shows the command's processes only, and nothing in it changes the kernel or other cgroups. Runs in the
//! first process of its PID namespace.

use super::hidden::inode_of;
use crate::mountinfo::{self, Mount};
use punctual_worker::process::protocol::HiddenPlace;
use rustix::fs::{Mode, OFlags, major, minor};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The mounts of a command.
#[derive(Debug, Serialize, Deserialize)]
pub struct Mounts {
    /// Directories and files that are empty.
    pub hidden: Vec<HiddenPlace>,
    /// The command's own directory; others next to it are hidden.
    pub scratch: PathBuf,
    /// Whether cgroups and settings of the kernel are read-only.
    pub protects_kernel: bool,
}

/// The kinds of file systems through which root changes the kernel, or ends processes of others.
const KERNEL_FILE_SYSTEMS: [&str; 8] =
    ["cgroup", "cgroup2", "configfs", "debugfs", "efivarfs", "securityfs", "sysfs", "tracefs"];
/// Where cgroups are mounted. If there are several hierarchies, it is a file system of its own.
const CGROUPS: &str = "/sys/fs/cgroup";
/// What is not about processes in `/proc`.
const KERNEL_FILES: [&str; 5] = ["/proc/sys", "/proc/sysrq-trigger", "/proc/bus", "/proc/fs", "/proc/irq"];

/// Enters a mount namespace with these mounts.
pub fn enter(mounts: &Mounts) -> io::Result<()> {
    crate::namespace::unshare_namespaces(UnshareFlags::NEWNS)?;
    // Mounts of the machine still appear here, but never the other way round.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    // All are opened before the first one is hidden: one may be inside another.
    let hidden = mounts.hidden.iter().map(|place| find(place).map_err(|error| about(&place.path, &error)));
    let hidden = hidden.collect::<io::Result<Vec<_>>>()?;
    hide_neighbours(&mounts.scratch).map_err(|error| about(&mounts.scratch, &error))?;
    for (found, place) in hidden.into_iter().zip(&mounts.hidden) {
        found.map_or(Ok(()), |file| hide(&file)).map_err(|error| about(&place.path, &error))?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|error| about(Path::new("/proc"), &error.into()))?;
    if mounts.protects_kernel { protect_kernel() } else { Ok(()) }
}

/// Makes everything read-only through which the kernel is changed.
fn protect_kernel() -> io::Result<()> {
    for line in fs::read_to_string(mountinfo::FILE)?.lines() {
        let Some(found) = Mount::read(line) else { continue };
        let is_other_proc = found.kind == "proc" && found.point != Path::new("/proc");
        let is_of_kernel = KERNEL_FILE_SYSTEMS.contains(&found.kind) || found.point.starts_with(CGROUPS);
        // Where another file system covers it, it cannot be reached.
        if (is_of_kernel || is_other_proc) && is_at(found.device, &found.point) {
            forbid_writing(&found.point).map_err(|error| about(&found.point, &error))?;
        }
    }
    for path in KERNEL_FILES.map(Path::new).into_iter().filter(|path| path.exists()) {
        mount_bind(path, path)
            .map_err(io::Error::from)
            .and_then(|()| forbid_writing(path))
            .map_err(|error| about(path, &error))?;
    }
    Ok(())
}

/// Whether this device is mounted there.
fn is_at(device: &str, point: &Path) -> bool {
    let there = fs::metadata(point).map(|metadata| metadata.dev());
    there.is_ok_and(|there| format!("{}:{}", major(there), minor(there)) == device)
}

/// For this mount point only: elsewhere, what is mounted stays as it is.
fn forbid_writing(point: &Path) -> io::Result<()> {
    Ok(mount_remount(point, COVER | MountFlags::BIND | MountFlags::RDONLY, "")?)
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

/// Opens a path that is to be hidden. Without an inode, a path that does not exist or cannot be reached here is
/// skipped.
fn find(place: &HiddenPlace) -> io::Result<Option<File>> {
    let opened = rustix::fs::open(&place.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file = match opened.map(OwnedFd::into).map_err(io::Error::from) {
        Err(error)
            if place.inode.is_none()
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
        {
            return Ok(None);
        }
        file => file?,
    };
    match place.inode {
        Some(inode) if inode != inode_of(&file)? => {
            Err(io::Error::other("it was moved while the command started"))
        }
        _ => Ok(Some(file)),
    }
}

fn hide(file: &File) -> io::Result<()> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    if file.metadata()?.is_dir() {
        return cover(&path, MountFlags::RDONLY);
    }
    Ok(mount_bind("/dev/null", &path)?)
}

const COVER: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

/// Mounts an empty directory over another one.
fn cover(dir: &Path, flags: MountFlags) -> io::Result<()> {
    Ok(mount("punctual", dir, "tmpfs", COVER | flags, c"mode=0755,size=64k")?)
}
