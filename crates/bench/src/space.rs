//! Free space on the disks that a benchmark writes to: whether there is enough before it starts, and whether it ran
//! out.

use crate::units::megabytes;
use punctual_config::exit::CliError;
use std::path::{Path, PathBuf};

/// With less free space than this, no useful measurement is possible.
const FULL_BYTES: u64 = 8 * 1024 * 1024;
/// Free space that must remain after everything is written, as a share of it: for logs, sorting, and other processes.
const SPARE: f64 = 0.25;

/// A disk and its description for users.
#[derive(Debug, Clone)]
pub struct DiskModel {
    pub path: PathBuf,
    /// What writes to this disk.
    pub of: String,
}

impl DiskModel {
    pub fn of_dir(dir: &Path) -> Self {
        DiskModel { path: dir.to_owned(), of: format!("--dir {}", dir.display()) }
    }

    pub fn of_database_server(path: PathBuf) -> Self {
        let of = format!("the database server ({})", path.display());
        DiskModel { path, of }
    }

    /// Unknown if the file system does not report it or access is denied.
    fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.path).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// An error message if the disk is full.
    pub fn fullness(&self) -> Option<String> {
        let free = self.free_bytes()?;
        (free < FULL_BYTES).then(|| format!("the disk of {} is full ({} left)", self.of, megabytes(free)))
    }

    /// Returns an error if the data would not fit.
    pub fn must_hold(&self, what: &str, bytes: u64) -> Result<(), CliError> {
        let needed = (bytes as f64 * (1.0 + SPARE)) as u64;
        match self.free_bytes() {
            Some(free) if free < needed => Err(CliError::cannot_start(format!(
                "{what} take about {}, but the disk of {} has {} left: reduce the number, or free {}",
                megabytes(bytes),
                self.of,
                megabytes(free),
                megabytes(needed)
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_does_not_fit_is_rejected_with_both_sizes() {
        let dir = tempfile::tempdir().unwrap();
        let disk = DiskModel::of_dir(dir.path());
        assert!(disk.must_hold("a few jobs", 1_000).is_ok());
        let refused = disk.must_hold("--historic 9 jobs", 1 << 60).unwrap_err().message;
        assert!(refused.starts_with("--historic 9 jobs take about 1152921504606.8 MB"), "{refused}");
        assert!(refused.contains("--dir") && refused.contains("left: reduce the number"), "{refused}");
        let nowhere = DiskModel::of_dir(Path::new("/nowhere/at/all"));
        assert!(nowhere.must_hold("anything", u64::MAX / 2).is_ok(), "unknown free space is not an error");
    }
}
