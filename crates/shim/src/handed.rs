//! What one stage of a command hands to the next: JSON in a pipe, whose descriptor is the argument. The command can read
//! the arguments of the first process of its namespace, but this pipe is empty before the command starts.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::AsRawFd;

/// Bytes that fit into a pipe that has no reader yet.
const BYTES_MAX: usize = 64 * 1024;

/// A setup that the next process reads. Open until that process has inherited it.
pub struct Handed(PipeReader);

impl Handed {
    pub fn new(setup: &impl Serialize) -> io::Result<Self> {
        let bytes = serde_json::to_vec(setup)?;
        if bytes.len() > BYTES_MAX {
            return Err(io::Error::other(format!("it has more than {BYTES_MAX} bytes")));
        }
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(&bytes)?;
        // Inherited by the process that is started next.
        rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty())?;
        Ok(Handed(reader))
    }

    pub fn argument(&self) -> String {
        self.0.as_raw_fd().to_string()
    }
}

/// The setup in the pipe of an argument, which is empty afterwards.
pub fn read<T: DeserializeOwned>(argument: Option<OsString>) -> Option<T> {
    let fd: u32 = argument?.to_str()?.parse().ok()?;
    let mut bytes = Vec::new();
    File::open(format!("/proc/self/fd/{fd}")).ok()?.read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_is_read_once() {
        let handed = Handed::new(&["/var/lib/hidden"]).unwrap();
        let argument = || Some(OsString::from(handed.argument()));
        assert_eq!(read::<Vec<String>>(argument()).unwrap(), ["/var/lib/hidden"]);
        assert_eq!(read::<Vec<String>>(argument()), None, "nothing is left");
        assert_eq!(read::<Vec<String>>(Some("x".into())), None);
        assert!(Handed::new(&"x".repeat(BYTES_MAX)).is_err());
    }
}
