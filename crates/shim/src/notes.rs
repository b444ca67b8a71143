//! Forwards the notes of a command to the worker.
//!
//! The command writes lines of JSON to a named pipe in its private directory, whose path is in
//! `PUNCTUAL_NOTES`. It is a path, not an inherited descriptor: it works from every process of the tree,
//! whatever that process has closed, and from many at once. The command's output is never interpreted as notes.
//!
//! A flood is harmless: the shim reads all of it, keeps only the latest values, and passes those on at
//! intervals.

use super::lines::PartialLine;
use super::output::Outlet;
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Percent, Progress};
use punctual_worker::process::protocol::{CommandNote, Frame};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

pub const VARIABLE: &str = "PUNCTUAL_NOTES";

/// Bytes of one line: a checkpoint of the maximum size with a message whose every byte is escaped.
const LINE_BYTES_MAX: usize = limits::CHECKPOINT_BYTES_MAX + 8 * limits::PROGRESS_MESSAGE_BYTES_MAX;
const CHUNK_BYTES: usize = 16 * 1024;
/// Pause between two notes that are passed on.
const PAUSE: Duration = Duration::from_millis(100);

/// One line of a command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoteLine {
    percent: Option<Percent>,
    message: Option<String>,
    #[serde(default, deserialize_with = "even_null")]
    checkpoint: Option<Box<RawValue>>,
}

/// A document that is present, even if it is `null`.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The pipe for the notes of one command.
pub struct Notebook {
    /// Open for writing as well, so that the pipe does not end with its first writer.
    receiver: pipe::Receiver,
}

impl Notebook {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Notebook { receiver: pipe::OpenOptions::new().read_write(true).open_receiver(path)? })
    }

    /// Passes on notes until no process of the tree is left and everything that it has written is read.
    pub async fn pass_on(mut self, outlet: Arc<Outlet>, mut is_dead: watch::Receiver<bool>) {
        let mut lines = PartialLine::up_to(LINE_BYTES_MAX + 1);
        let mut latest = Latest::default();
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut quiet_until = Instant::now();
        loop {
            tokio::select! {
                biased;
                () = until_dead(&mut is_dead) => break,
                () = sleep_until(quiet_until), if !latest.is_empty() => {
                    outlet.send(&latest.take()).await;
                    quiet_until = Instant::now() + PAUSE;
                }
                read = self.receiver.read(&mut chunk) => {
                    let Ok(count @ 1..) = read else { break };
                    lines.feed(&chunk[..count], |line| latest.read(line));
                }
            }
        }
        self.read_rest(&mut chunk, |bytes| lines.feed(bytes, |line| latest.read(line)));
        lines.finish(|line| latest.read(line));
        outlet.send(&latest.take()).await;
    }

    /// Reads everything that is in the pipe now. Asks the kernel and not the runtime, which may not have seen the
    /// last writes of a command. Does not wait for writers outside the tree.
    fn read_rest(&self, chunk: &mut [u8], mut take: impl FnMut(&[u8])) {
        let mut left = rustix::io::ioctl_fionread(&self.receiver).unwrap_or_default();
        while left > 0 {
            match rustix::io::read(&self.receiver, &mut *chunk) {
                Ok(count @ 1..) => {
                    take(&chunk[..count]);
                    left = left.saturating_sub(count as u64);
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}

async fn until_dead(is_dead: &mut watch::Receiver<bool>) {
    // A dropped sender means the same as dead.
    let _ = is_dead.wait_for(|is_dead| *is_dead).await;
}

/// Notes that have not been passed on.
#[derive(Debug, Default)]
struct Latest {
    note: CommandNote,
    bad: Vec<String>,
    bad_lines: usize,
}

impl Latest {
    fn is_empty(&self) -> bool {
        self.note == CommandNote::default() && self.bad.is_empty()
    }

    /// Takes all of them, as frames.
    fn take(&mut self) -> Vec<Frame> {
        let mut frames: Vec<Frame> = self.bad.drain(..).map(Frame::Note).collect();
        let note = std::mem::take(&mut self.note);
        if note != CommandNote::default() {
            frames.push(Frame::Noted(note));
        }
        frames
    }

    fn read(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if let Err(problem) = self.try_read(line) {
            self.bad_lines += 1;
            if self.bad_lines <= limits::BAD_NOTES_SHOWN_MAX {
                self.bad.push(format!("a line in {VARIABLE} was ignored: {problem}"));
            } else if self.bad_lines == limits::BAD_NOTES_SHOWN_MAX + 1 {
                self.bad.push(format!("further such lines in {VARIABLE} are not shown"));
            }
        }
    }

    fn try_read(&mut self, line: &[u8]) -> Result<(), String> {
        if line.len() > LINE_BYTES_MAX {
            let most = limits::CHECKPOINT_BYTES_MAX;
            return Err(format!("it is too long; a checkpoint may have {most} bytes"));
        }
        let line = parse(line).map_err(|problem| {
            let example = r#"{"percent": 40, "message": "copying", "checkpoint": {"offset": 4096}}"#;
            format!("{problem}; write {example}, where every field is optional")
        })?;
        let checkpoint = line.checkpoint.map(|document| Checkpoint::new(document.get()));
        let checkpoint = checkpoint.transpose().map_err(|error| error.to_string())?;
        let progress = Progress { percent: line.percent, message: line.message }.within_limits();
        if progress.is_empty() && checkpoint.is_none() {
            return Err("it contains no field".to_owned());
        }
        if !progress.is_empty() {
            self.note.progress = Some(progress);
        }
        if let Some(checkpoint) = checkpoint {
            self.note.checkpoint = Some(checkpoint.into_json());
        }
        Ok(())
    }
}

/// Parses a line as a note, or returns its problem.
fn parse(line: &[u8]) -> Result<NoteLine, String> {
    if serde_json::from_slice::<IgnoredAny>(line).is_err() {
        return Err("it is not JSON".to_owned());
    }
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is JSON, but not an object".to_owned());
    }
    serde_json::from_slice(line).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode};
    use std::io::Write;

    fn read(lines: &[&str]) -> Vec<Frame> {
        let mut latest = Latest::default();
        for line in lines {
            latest.read(line.as_bytes());
        }
        latest.take()
    }

    fn noted(percent: Option<f64>, message: Option<&str>, checkpoint: Option<&str>) -> Frame {
        let progress =
            Progress { percent: percent.and_then(Percent::new), message: message.map(str::to_owned) };
        let progress = (!progress.is_empty()).then_some(progress);
        Frame::Noted(CommandNote { progress, checkpoint: checkpoint.map(str::to_owned) })
    }

    #[test]
    fn the_latest_value_of_each_field_counts() {
        let lines = [
            r#"{"percent": 10, "message": "begin"}"#,
            r#"{"checkpoint": {"offset": 1.50}}"#,
            "",
            r#"{"percent": 40.5}"#,
        ];
        assert_eq!(read(&lines), [noted(Some(40.5), None, Some(r#"{"offset": 1.50}"#))]);
        assert_eq!(read(&[r#"{"checkpoint": null}"#]), [noted(None, None, Some("null"))]);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn a_bounded_number_of_bad_lines_is_reported() {
        let deep = format!("{{\"checkpoint\": {}{}}}", "[".repeat(30_000), "]".repeat(30_000));
        let long = format!("{{\"checkpoint\": \"{}\"}}", "x".repeat(limits::CHECKPOINT_BYTES_MAX));
        for (line, said) in [
            ("40 %", "was ignored: it is not JSON; write {"),
            (r#"{"percent": 40"#, "it is not JSON; write {"),
            ("{'percent': 40}", "it is not JSON; write {"),
            ("[40]", "it is JSON, but not an object; write {"),
            ("{}", "it contains no field"),
            (r#"{"percent": 101}"#, "must be a number from 0 to 100"),
            (r#"{"progress": 1}"#, "unknown field `progress`"),
            (&deep, "the checkpoint nests arrays and objects more than 100 deep"),
            (&long, "the checkpoint has 65538 bytes, more than the 65536 that are kept"),
            (&"x".repeat(LINE_BYTES_MAX + 1), "a checkpoint may have 65536 bytes"),
        ] {
            let frames = read(&[line]);
            let [Frame::Note(text)] = &frames[..] else { panic!("{frames:?}") };
            assert!(text.contains(said), "{text}");
        }
        let many = vec!["no"; 1_000];
        assert_eq!(read(&many).len(), limits::BAD_NOTES_SHOWN_MAX + 1);
    }

    #[tokio::test]
    async fn a_note_written_just_before_the_end_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes");
        rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let notebook = Notebook::open(&path).unwrap();
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let long = "x".repeat(2 * CHUNK_BYTES);
        write!(writer, "no\n{{\"checkpoint\": \"{long}\"}}").unwrap();
        let (sender, mut listener) = pipe::pipe().unwrap();
        // The tree is gone before the runtime learns that the pipe is readable.
        let (_is_dead, dead) = watch::channel(true);
        tokio::spawn(notebook.pass_on(Outlet::new(sender), dead));
        let mut bytes = Vec::new();
        listener.read_to_end(&mut bytes).await.unwrap();
        let mut expected = Vec::new();
        for frame in read(&["no", &format!("{{\"checkpoint\": \"{long}\"}}")]) {
            frame.write_to(&mut expected);
        }
        assert!(!expected.is_empty() && bytes == expected, "{} of {} bytes", bytes.len(), expected.len());
    }
}
