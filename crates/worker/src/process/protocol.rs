//! The protocol between a worker and the shim of one command.
//!
//! The worker writes the request as one line of JSON to the shim's stdin, then at most one byte per stop. It
//! keeps the pipe open as long as it lives: a closed pipe is the most urgent stop. The shim writes frames to
//! its stdout; the last one reports how the command ended. Both ends are the same binary, so the protocol has
//! no versions.

use punctual_core::job::ResultOverflow;
use punctual_core::limits;
use punctual_core::notes::Progress;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Stops the tree with SIGTERM, and with SIGKILL after the grace period.
pub const STOP_POLITELY: u8 = b'T';
/// Stops the tree with SIGKILL.
pub const STOP_AT_ONCE: u8 = b'K';
/// Bytes of a request: a payload with every byte escaped, and what is added to it.
pub const REQUEST_BYTES_MAX: usize = 8 * limits::PAYLOAD_BYTES_MAX;
/// Bytes of a frame's content: an end with a result whose every byte is escaped; a checkpoint is no larger.
pub const FRAME_BYTES_MAX: usize = 8 * limits::RESULT_BYTES_MAX;
/// Bytes before a frame's content: its kind and its length.
pub const FRAME_HEAD_BYTES: usize = 5;

/// The command to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The program and its arguments; never empty.
    pub command: Vec<String>,
    /// Its complete environment.
    pub env: BTreeMap<String, String>,
    pub cwd: Option<PathBuf>,
    pub stdin: Option<String>,
    pub kill_grace: Duration,
    pub limits: CommandLimits,
    pub enclosure: Enclosure,
}

/// How the processes of one command are contained, besides being descendants of their shim.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Enclosure {
    /// Names the cgroups that are made for the command; unique on the machine.
    pub name: String,
    pub hold: Hold,
    pub sandbox: Sandbox,
}

impl Enclosure {
    /// Whether everything that the command has started ends with it, even without its shim.
    pub fn contains_all(&self) -> bool {
        self.hold != Hold::ShimOnly || self.sandbox.namespaces
    }
}

/// As whom a command runs, and what it cannot reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sandbox {
    /// The user of the command; the worker's if absent.
    pub account: Option<Account>,
    /// A directory for this command alone. The shim creates it, and removes it when the command has ended.
    pub scratch: PathBuf,
    /// Whether the command has its own PID and mount namespaces, in which `hidden` is empty.
    pub namespaces: bool,
    /// Whether cgroups and settings of the kernel are read-only in the mount namespace.
    pub protects_kernel: bool,
    /// Directories and files of the worker that commands must not read.
    pub hidden: Vec<HiddenPlace>,
    pub landlock: Landlock,
}

/// Where a directory or file is that commands must not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HiddenPlace {
    pub path: PathBuf,
    /// What must be there: a command does not start if it is elsewhere by now. If absent, whatever is there is
    /// hidden, and nothing need be there.
    pub inode: Option<Inode>,
}

/// Identifies a directory or file of this machine, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

/// How Landlock restricts a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    #[default]
    Off,
    /// No access to processes outside, and none to these directories and files.
    Denies(Vec<PathBuf>),
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Absent if the machine has no name for it.
    pub name: Option<String>,
    pub home: Option<PathBuf>,
}

impl fmt::Display for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account { uid, gid, name, .. } = self;
        match name {
            Some(name) => write!(out, "{name} ({uid}:{gid})"),
            None => write!(out, "{uid}:{gid}"),
        }
    }
}

impl Sandbox {
    /// Where the command may write temporary files.
    pub fn temporary_dir(&self) -> PathBuf {
        self.scratch.join("tmp")
    }

    /// The named pipe for the command's notes.
    pub fn notes(&self) -> PathBuf {
        self.scratch.join("notes")
    }

    /// The variables that follow from it.
    pub fn env(&self) -> BTreeMap<String, String> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let temporary_dir = text(self.temporary_dir());
        let mut env = BTreeMap::from([("TMPDIR".to_owned(), temporary_dir.clone())]);
        if let Some(account) = &self.account {
            let name = account.name.clone().unwrap_or_else(|| account.uid.to_string());
            env.insert("HOME".to_owned(), account.home.clone().map_or(temporary_dir, text));
            env.insert("USER".to_owned(), name.clone());
            env.insert("LOGNAME".to_owned(), name);
        }
        env
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Only the shim.
    #[default]
    ShimOnly,
    /// A dedicated cgroup below this directory.
    Cgroup { parent: PathBuf },
    /// A dedicated PID namespace.
    Namespace,
}

/// Resource limits of a command. Absent limits do not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommandLimits {
    pub memory_bytes: Option<u64>,
    pub cpu_secs: Option<u64>,
    pub processes: Option<u64>,
    /// Bytes of stdout and stderr that are passed on.
    pub output_bytes: u64,
    #[serde(default)]
    pub result_overflow: ResultOverflow,
}

/// A message from the shim.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Stdout(String),
    Stderr(String),
    /// A line by the shim itself.
    Note(String),
    /// Notes of the command.
    Noted(CommandNote),
    /// The beginning of a line of stdout that is too long to be a result in the database. If it is the last one, it may
    /// be a result that is stored as a blob.
    ResultBegins(Vec<u8>),
    /// The next part of that line.
    ResultPart(Vec<u8>),
    /// The last frame: no process of the tree is left.
    Ended(CommandEnd),
}

/// Notes of a command. Absent fields leave the earlier value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommandNote {
    pub progress: Option<Progress>,
    /// JSON text, within its limit.
    pub checkpoint: Option<String>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandEnd {
    pub how: How,
    /// The last line of stdout, if it is JSON.
    pub result: Option<String>,
    /// The beginning of a last line that may be JSON, but is too long to be the result.
    #[serde(default)]
    pub overflow: Option<String>,
    pub stderr_tail: Vec<String>,
    /// Whether the kernel killed a process of the tree because of the memory limit.
    pub out_of_memory: bool,
    /// Whether the shim sent the signals that end a tree.
    pub was_stopped: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Exited { code: i32 },
    Signaled { signal: i32 },
    CannotStart { problem: String, is_permanent: bool },
}

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a frame of {0} bytes")]
    Length(usize),
    #[error("a frame that cannot be read: {0}")]
    Content(String),
}

const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const NOTE: u8 = 3;
const ENDED: u8 = 4;
const NOTED: u8 = 5;
const RESULT_BEGINS: u8 = 6;
const RESULT_PART: u8 = 7;

impl Frame {
    /// Appends the encoded frame.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        let json;
        let (kind, content) = match self {
            Frame::Stdout(line) => (STDOUT, line.as_bytes()),
            Frame::Stderr(line) => (STDERR, line.as_bytes()),
            Frame::Note(line) => (NOTE, line.as_bytes()),
            Frame::Noted(note) => {
                json = serde_json::to_vec(note).unwrap_or_default();
                (NOTED, json.as_slice())
            }
            Frame::ResultBegins(part) => (RESULT_BEGINS, part.as_slice()),
            Frame::ResultPart(part) => (RESULT_PART, part.as_slice()),
            Frame::Ended(ended) => {
                json = serde_json::to_vec(ended).unwrap_or_default();
                (ENDED, json.as_slice())
            }
        };
        bytes.push(kind);
        bytes.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(content);
    }

    /// The kind and the length of the content that follows.
    pub fn read_head(head: [u8; FRAME_HEAD_BYTES]) -> Result<(u8, usize), FrameError> {
        let [kind, length @ ..] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > FRAME_BYTES_MAX { Err(FrameError::Length(length)) } else { Ok((kind, length)) }
    }

    pub fn read(kind: u8, content: Vec<u8>) -> Result<Self, FrameError> {
        match kind {
            RESULT_BEGINS => return Ok(Frame::ResultBegins(content)),
            RESULT_PART => return Ok(Frame::ResultPart(content)),
            _ => {}
        }
        let text = String::from_utf8(content).map_err(|error| FrameError::Content(error.to_string()))?;
        match kind {
            STDOUT => Ok(Frame::Stdout(text)),
            STDERR => Ok(Frame::Stderr(text)),
            NOTE => Ok(Frame::Note(text)),
            ENDED => serde_json::from_str(&text)
                .map(Frame::Ended)
                .map_err(|error| FrameError::Content(error.to_string())),
            NOTED => serde_json::from_str(&text)
                .map(Frame::Noted)
                .map_err(|error| FrameError::Content(error.to_string())),
            kind => Err(FrameError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_as_they_were_written() {
        let ended = CommandEnd {
            how: How::Signaled { signal: 9 },
            result: Some("{}".to_owned()),
            overflow: Some("[".to_owned()),
            stderr_tail: vec!["oh\nno".to_owned()],
            out_of_memory: true,
            was_stopped: false,
        };
        for frame in [
            Frame::Stdout("grüße".to_owned()),
            Frame::Stderr(String::new()),
            Frame::Note("n".to_owned()),
            Frame::Noted(CommandNote {
                progress: Some(Progress::default()),
                checkpoint: Some("[1.50]".to_owned()),
            }),
            Frame::ResultBegins(vec![b'[', 0xff]),
            Frame::ResultPart(vec![b']']),
            Frame::Ended(ended),
        ] {
            let mut bytes = Vec::new();
            frame.write_to(&mut bytes);
            let (head, content) = bytes.split_first_chunk().unwrap();
            let (kind, length) = Frame::read_head(*head).unwrap();
            assert_eq!(length, content.len());
            assert_eq!(Frame::read(kind, content.to_vec()).unwrap(), frame);
        }
    }

    #[test]
    fn frames_of_nonsense_are_refused() {
        assert!(Frame::read_head([1, 255, 255, 255, 255]).is_err());
        assert!(Frame::read(9, vec![]).is_err());
        assert!(Frame::read(ENDED, b"{}".to_vec()).is_err());
        assert!(Frame::read(STDOUT, vec![0xff]).is_err());
    }
}
