//! The mounts of this process, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The list of mounts.
pub const FILE: &str = "/proc/self/mountinfo";

/// A mounted file system.
pub struct Mount<'a> {
    /// The numbers of its device, such as `0:26`.
    pub device: &'a str,
    /// The directory of the file system that is mounted.
    pub root: &'a str,
    pub point: PathBuf,
    pub kind: &'a str,
    pub options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses a line.
    pub fn read(line: &'a str) -> Option<Self> {
        let (place, what) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let (device, root, point) = (place.next()?, place.next()?, unescaped(place.next()?));
        let mut what = what.split(' ');
        let (kind, options) = (what.next()?, what.nth(1)?);
        Some(Mount { device, root, point, kind, options })
    }
}

/// A path in which the kernel has written white space and backslashes as `\040`.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped =
            digits.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_place_and_the_kind_of_a_mount() {
        let line = r"36 35 98:0 /a /my\040dir\134x rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = Mount::read(line).unwrap();
        assert_eq!((mount.device, mount.root, mount.kind), ("98:0", "/a", "ext3"));
        assert_eq!((mount.point, mount.options), (PathBuf::from(r"/my dir\x"), "rw,errors=continue"));
        assert!(Mount::read("36 35 98:0 /a").is_none());
    }
}
