//! The directories and files of the worker that commands must not read, wherever they are.
//!
//! A command of the worker's user can move them if it may write to a parent directory. So the worker keeps a
//! descriptor of each, which shows where the file is now.

use punctual_worker::process::protocol::{HiddenPlace, Inode};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A directory or file of the worker.
#[derive(Debug)]
pub struct HiddenFile {
    path: PathBuf,
    /// The file at the path when the worker started, or when it first existed.
    file: Mutex<Option<File>>,
}

impl HiddenFile {
    /// It need not exist yet.
    pub fn new(path: &Path) -> Self {
        HiddenFile { path: path.to_owned(), file: Mutex::new(open(path).ok()) }
    }

    /// The places that commands must not read now: the file itself, and any newer file at its path, such as a new
    /// token.
    pub fn places(&self) -> Vec<HiddenPlace> {
        let file = self.current();
        let is_at_path = file.as_ref().is_some_and(|file| self.is_at_path(file));
        let path = (!is_at_path).then(|| HiddenPlace { path: self.path.clone(), inode: None });
        file.into_iter().chain(path).collect()
    }

    /// Where the file is, if it was moved.
    pub fn elsewhere(&self) -> Option<HiddenPlace> {
        self.current().filter(|file| !self.is_at_path(file))
    }

    fn is_at_path(&self, file: &HiddenPlace) -> bool {
        let at_path = fs::metadata(&self.path).ok().map(|metadata| inode(&metadata));
        at_path.is_some() && at_path == file.inode
    }

    /// Where the file is, unless it was deleted. A deleted file is replaced by the one at its path now.
    fn current(&self) -> Option<HiddenPlace> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_ref().and_then(place_of).is_none() {
            *file = open(&self.path).ok();
        }
        file.as_ref().and_then(place_of)
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    Ok(OwnedFd::into(file))
}

fn place_of(file: &File) -> Option<HiddenPlace> {
    let metadata = file.metadata().ok()?;
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    (metadata.nlink() > 0).then(|| HiddenPlace { path, inode: Some(inode(&metadata)) })
}

/// Which file this is.
pub fn inode_of(file: &File) -> io::Result<Inode> {
    Ok(inode(&file.metadata()?))
}

fn inode(metadata: &fs::Metadata) -> Inode {
    Inode { device: metadata.dev(), number: metadata.ino() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_where_it_was_moved_to() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let [above, moved] = ["above", "moved"].map(|name| base.join(name));
        fs::create_dir(&above).unwrap();
        let path = above.join("token");
        let paths = |file: &HiddenFile| -> Vec<(PathBuf, bool)> {
            file.places().into_iter().map(|place| (place.path, place.inode.is_some())).collect()
        };

        let file = HiddenFile::new(&path);
        assert_eq!(paths(&file), [(path.clone(), false)], "it does not exist yet");
        fs::write(&path, "old").unwrap();
        assert_eq!(paths(&file), [(path.clone(), true)]);
        assert_eq!(file.elsewhere(), None);
        fs::rename(&above, &moved).unwrap();
        assert_eq!(paths(&file), [(moved.join("token"), true), (path.clone(), false)]);
        assert_eq!(file.elsewhere().map(|place| place.path), Some(moved.join("token")));
        fs::rename(&moved, &above).unwrap();
        fs::write(base.join("new"), "new").unwrap();
        fs::rename(base.join("new"), &path).unwrap();
        assert_eq!(paths(&file), [(path, true)], "the old one is gone");
    }
}
