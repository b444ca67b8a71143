//! Landlock: the kernel restricts which files a command and all its descendants may reach.
//!
//! A restricted process cannot inspect or signal processes outside its domain, whatever user they have, and
//! cannot change mounts. Landlock allows and never denies, so a directory is denied by allowing all the others:
//! then no file can be created in the directories above it.

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The rights that are handled: all that this version knows. Older kernels have fewer.
const RIGHTS: ABI = ABI::V5;

/// Whether the kernel supports everything that is needed; if not, why.
pub fn supported() -> Result<(), String> {
    ruleset().map(|_| ()).map_err(|error| format!("this kernel lacks Landlock, or has an old one: {error}"))
}

/// Without the right to move files between directories, which Linux 5.19 added, commands could not do so.
fn ruleset() -> io::Result<RulesetCreated> {
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::Refer)
        .and_then(|rules| {
            rules
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(RIGHTS))?
                .scope(Scope::Signal)?
                .create()
        });
    created.map_err(io::Error::other)
}

/// Restricts this process, and everything that it starts: no access to `denied`, except for `own`.
pub fn restrict(denied: &[PathBuf], own: &Path) -> io::Result<()> {
    let denied: Vec<PathBuf> = denied.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut rules = ruleset()?;
    let mut allow = |path: &Path, rights| -> io::Result<()> {
        // A path that disappears meanwhile needs no rule.
        let Ok(place) = PathFd::new(path) else { return Ok(()) };
        (&mut rules).add_rule(PathBeneath::new(place, rights)).map_err(io::Error::other)?;
        Ok(())
    };
    for place in allowed(Path::new("/"), &denied)? {
        match place {
            AllowedPlace::Tree(path) => allow(&path, AccessFs::from_all(RIGHTS))?,
            AllowedPlace::File(path) => allow(&path, AccessFs::from_file(RIGHTS))?,
            AllowedPlace::Above(path) => allow(&path, AccessFs::ReadDir.into())?,
        }
    }
    if !denied.is_empty() {
        allow(own, AccessFs::from_all(RIGHTS))?;
    }
    rules.restrict_self().map(|_| ()).map_err(io::Error::other)
}

/// A place that a command may use.
#[derive(Debug, PartialEq, Eq)]
enum AllowedPlace {
    /// A directory with everything in it.
    Tree(PathBuf),
    File(PathBuf),
    /// A directory above a denied one: it can be listed.
    Above(PathBuf),
}

/// All of a directory except denied paths.
fn allowed(top: &Path, denied: &[PathBuf]) -> io::Result<Vec<AllowedPlace>> {
    let mut places = Vec::new();
    let mut dirs = vec![top.to_owned()];
    while let Some(dir) = dirs.pop() {
        if !denied.iter().any(|path| path.starts_with(&dir)) {
            places.push(AllowedPlace::Tree(dir));
            continue;
        }
        if denied.contains(&dir) {
            continue;
        }
        for entry in fs::read_dir(&dir)?.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(path),
                // A link leads to a place that has its own rule, or none.
                Ok(kind) if !kind.is_symlink() && !denied.contains(&path) => {
                    places.push(AllowedPlace::File(path))
                }
                _ => {}
            }
        }
        places.push(AllowedPlace::Above(dir));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn everything_is_allowed_except_denied_paths() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let at = |path: &str| top.join(path);
        for dir in ["a/data/deep", "a/other", "b"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        for file in ["a/key", "a/text"] {
            fs::write(at(file), "").unwrap();
        }
        symlink(at("a/data"), at("way-in")).unwrap();
        let mut places = allowed(&top, &[at("a/data"), at("a/key")]).unwrap();
        places.sort_by_key(|place| format!("{place:?}"));
        let expected = [
            AllowedPlace::Above(top.clone()),
            AllowedPlace::Above(at("a")),
            AllowedPlace::File(at("a/text")),
            AllowedPlace::Tree(at("a/other")),
            AllowedPlace::Tree(at("b")),
        ];
        assert_eq!(places.len(), expected.len(), "{places:?}");
        assert!(expected.iter().all(|place| places.contains(place)), "{places:?}");
        assert_eq!(allowed(&top, &[]).unwrap(), [AllowedPlace::Tree(top)]);
    }
}
