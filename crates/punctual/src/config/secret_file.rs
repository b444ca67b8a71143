//! Files that hold secrets: who else can read them.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The bits of a mode that let the group and others read.
const READABLE_BY_OTHERS: u32 = 0o044;

/// What to say of a secret's file that others can read, if they can.
pub fn exposure(file: &Path) -> io::Result<Option<String>> {
    let mode = std::fs::metadata(file)?.mode();
    Ok((mode & READABLE_BY_OTHERS != 0).then(|| {
        let file = file.display();
        format!("others can read the secret in {file} (mode {:04o}): chmod 600 {file}", mode & 0o7777)
    }))
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
}
