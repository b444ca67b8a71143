//! Files with secrets and commands: whether other users can read or write them.

use crate::trust::Ownership;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The mode bits that let the group and others read.
const READABLE_BY_OTHERS: u32 = 0o044;
/// The same for writing.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A warning if others can read the file of a secret.
pub fn exposure(file: &Path) -> io::Result<Option<String>> {
    let mode = std::fs::metadata(file)?.mode();
    Ok((mode & READABLE_BY_OTHERS != 0).then(|| {
        let file = file.display();
        format!("other users can read the secret in {file} (mode {:04o}): chmod 600 {file}", mode & 0o7777)
    }))
}

/// A warning if others can write a file whose commands this process runs.
pub fn foreign_hand(file: &Path) -> io::Result<Option<String>> {
    let mode = std::fs::metadata(file)?.mode();
    Ok((mode & WRITABLE_BY_OTHERS != 0).then(|| {
        let (file, mode) = (file.display(), mode & 0o7777);
        format!(
            "other users can write {file} (mode {mode:04o}), and this process runs the commands in it: chmod go-w {file}"
        )
    }))
}

/// Why the keys in a file must not be used: a user other than this one and root could choose them.
pub fn foreign_keys(file: &Path) -> io::Result<Option<String>> {
    Ok(Ownership::of(&std::fs::metadata(file)?).wrong_for_configuration())
}

/// A warning about a password in a URL that every user of the machine can see, because the flags of a process
/// are visible. `origin` is where the URL was found.
pub fn seen_password(origin: &str, instead: &str) -> Option<String> {
    origin
        .starts_with("--")
        .then(|| format!("all users of this machine can see the password in {origin}: use {instead}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_exposed_when_its_group_or_others_can_read_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_exposed) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(exposure(file.path()).unwrap().is_some(), is_exposed, "{mode:o}");
        }
    }

    #[test]
    fn commands_are_in_foreign_hands_when_the_group_or_others_can_write_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_foreign) in [(0o600, false), (0o644, false), (0o664, true), (0o602, true)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(foreign_hand(file.path()).unwrap().is_some(), is_foreign, "{mode:o}");
        }
    }

    #[test]
    fn keys_are_foreign_when_others_can_write_them_or_own_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, is_foreign) in [(0o600, false), (0o644, false), (0o602, true)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(foreign_keys(file.path()).unwrap().is_some(), is_foreign, "{mode:o}");
        }
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(file.path(), Some(65534), None).unwrap();
            assert!(foreign_keys(file.path()).unwrap().unwrap().starts_with("it belongs to user 65534"));
        }
    }

    #[test]
    fn only_flags_are_seen_by_everybody() {
        assert!(seen_password("--store-url", "a file").is_some());
        for elsewhere in ["PUNCTUAL_STORE_URL", "punctual.toml:3: store.url"] {
            assert_eq!(seen_password(elsewhere, "a file"), None);
        }
    }
}
