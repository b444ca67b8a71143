//! Forwards the output of a command to the worker.

use super::exec;
use super::lines::{LINE_BYTES_MAX, LinePiece, PartialLine};
use punctual_core::documents::check_document;
use punctual_core::limits;
use punctual_worker::process::protocol::{Frame, How};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, watch};

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Bytes kept of a result that is too large. Escaped and marked, they must still fit.
const OVERFLOW_BYTES_KEPT: usize = 8 * 1024;
/// How long a pipe may stay open without output after the tree is gone: a process outside the tree holds it.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The pipe to the worker.
pub struct Outlet(Mutex<pipe::Sender>);

impl Outlet {
    pub fn new(pipe: pipe::Sender) -> Arc<Self> {
        Arc::new(Outlet(Mutex::new(pipe)))
    }

    /// Writes the frames in order. Errors of a worker that is gone are ignored.
    pub async fn send(&self, frames: &[Frame]) {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.write_to(&mut bytes);
        }
        if !bytes.is_empty() {
            let _ = self.0.lock().await.write_all(&bytes).await;
        }
    }
}

/// Forwards one stream of a command to the worker, as fast as the worker accepts it.
#[derive(Clone)]
pub struct Pump {
    outlet: Arc<Outlet>,
    /// The bytes forwarded from both streams.
    carried: Arc<AtomicU64>,
    bytes_max: u64,
    nonce: String,
    is_dead: watch::Receiver<bool>,
    /// Whether lines that are too long to be results are forwarded as well, and completely.
    forwards_long_lines: bool,
}

/// The parts of a stream that are kept.
#[derive(Debug, Default)]
pub struct Output {
    last_line: Vec<u8>,
    /// The last lines, cut for an error message.
    pub tail: VecDeque<String>,
    /// A report of the stage before the command.
    pub cannot_start: Option<How>,
}

impl Pump {
    pub fn new(outlet: Arc<Outlet>, bytes_max: u64, nonce: String, is_dead: watch::Receiver<bool>) -> Self {
        Pump { outlet, carried: Arc::default(), bytes_max, nonce, is_dead, forwards_long_lines: false }
    }

    /// For the stream with the result, if a large one is stored as a blob.
    pub fn forwarding_long_lines(self, forwards_long_lines: bool) -> Self {
        Pump { forwards_long_lines, ..self }
    }

    pub async fn run(mut self, mut stream: impl AsyncRead + Unpin, frame: fn(String) -> Frame) -> Output {
        let mut output = Output::default();
        let mut lines = PartialLine::default();
        let mut chunk = vec![0; CHUNK_BYTES];
        // Whether the beginning of the current line was forwarded as that of a result.
        let mut is_begun = false;
        loop {
            let read = tokio::select! {
                biased;
                read = stream.read(&mut chunk) => read,
                () = silence(&mut self.is_dead) => break,
            };
            let Ok(count @ 1..) = read else { break };
            let mut frames = Vec::new();
            lines.feed_whole(&chunk[..count], |piece| match piece {
                LinePiece::Beyond { kept, beyond } => {
                    if self.forwards(kept) {
                        if !std::mem::replace(&mut is_begun, true) {
                            frames.push(Frame::ResultBegins(kept.to_vec()));
                        }
                        frames.push(Frame::ResultPart(beyond.to_vec()));
                    }
                }
                LinePiece::Line(line) => {
                    if !std::mem::take(&mut is_begun) && self.forwards(line) {
                        frames.push(Frame::ResultBegins(line.to_vec()));
                    }
                    self.take(line, frame, &mut output, &mut frames);
                }
            });
            self.outlet.send(&frames).await;
        }
        let mut frames = Vec::new();
        lines.finish(|line| {
            if !is_begun && self.forwards(line) {
                frames.push(Frame::ResultBegins(line.to_vec()));
            }
            self.take(line, frame, &mut output, &mut frames);
        });
        self.outlet.send(&frames).await;
        output
    }

    /// Whether this is the beginning of a line that may be a large result.
    fn forwards(&self, kept: &[u8]) -> bool {
        self.forwards_long_lines && is_large_result(kept)
    }

    fn take(&self, line: &[u8], frame: fn(String) -> Frame, output: &mut Output, frames: &mut Vec<Frame>) {
        if let Some(how) = exec::read_report(line, &self.nonce) {
            output.cannot_start = Some(how);
            return;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        output.keep(line);
        let size = line.len() as u64 + 1;
        let before = self.carried.fetch_add(size, Ordering::Relaxed);
        if before + size <= self.bytes_max {
            frames.push(frame(String::from_utf8_lossy(line).into_owned()));
        } else if before <= self.bytes_max {
            frames.push(Frame::Note(format!(
                "the command wrote more than {} bytes (limits.output): the rest is dropped",
                self.bytes_max
            )));
            // From now on all lines are dropped, even those that would still fit.
            self.carried.fetch_add(self.bytes_max, Ordering::Relaxed);
        }
    }
}

/// Waits until no more output is expected.
async fn silence(is_dead: &mut watch::Receiver<bool>) {
    let _ = is_dead.wait_for(|is_dead| *is_dead).await;
    tokio::time::sleep(SILENCE_MAX).await;
}

impl Output {
    fn keep(&mut self, line: &[u8]) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        self.last_line.clear();
        self.last_line.extend_from_slice(line);
        if self.tail.len() == limits::STDERR_TAIL_LINES_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(shown(line));
    }

    /// The last line, if it is JSON; or why it is not a result although it may be JSON.
    pub fn result(&self) -> Result<Option<String>, String> {
        if self.last_line.len() >= LINE_BYTES_MAX {
            let most = limits::RESULT_BYTES_MAX;
            return Err(format!(
                "the last line of stdout is too long to be the result: it has more than {most} bytes"
            ));
        }
        let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&self.last_line).is_ok();
        let Some(text) = std::str::from_utf8(&self.last_line).ok().filter(|_| is_json) else {
            return Ok(None);
        };
        match check_document(text) {
            Ok(()) => Ok(Some(text.trim().to_owned())),
            Err(problem) => Err(format!("the last line of stdout cannot be the result: it {problem}")),
        }
    }
}

impl Output {
    /// The beginning of a last line that is too long to be the result, if it may be JSON.
    pub fn overflow(&self) -> Option<String> {
        let line = self.last_line.trim_ascii_start();
        let beginning = line.get(..OVERFLOW_BYTES_KEPT).filter(|_| is_large_result(&self.last_line))?;
        Some(String::from_utf8_lossy(beginning).into_owned())
    }
}

/// Whether a line that is too long to be a result may be JSON.
fn is_large_result(kept: &[u8]) -> bool {
    kept.len() >= LINE_BYTES_MAX && matches!(kept.trim_ascii_start().first(), Some(b'{' | b'[' | b'"'))
}

/// A line, cut for an error message.
fn shown(line: &[u8]) -> String {
    let shown = String::from_utf8_lossy(&line[..line.len().min(limits::STDERR_TAIL_LINE_BYTES_MAX)]);
    if line.len() > limits::STDERR_TAIL_LINE_BYTES_MAX {
        format!("{shown} […]")
    } else {
        shown.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(lines: &[&str]) -> Option<String> {
        let mut output = Output::default();
        for line in lines {
            output.keep(line.as_bytes());
        }
        output.result().unwrap()
    }

    #[test]
    fn the_result_is_a_last_line_of_json() {
        assert_eq!(result(&["hello", r#" {"rows": 3} "#]).as_deref(), Some(r#"{"rows": 3}"#));
        assert_eq!(result(&["{}", "42", "", "  "]).as_deref(), Some("42"));
        assert_eq!(result(&["{}", "done"]), None);
        assert_eq!(result(&["{} {}"]), None);
        assert_eq!(result(&[]), None);
    }

    #[test]
    fn an_endless_last_line_is_not_a_result() {
        let mut output = Output::default();
        output.keep(&vec![b'1'; LINE_BYTES_MAX]);
        let problem =
            "the last line of stdout is too long to be the result: it has more than 65536 bytes".to_owned();
        assert_eq!(output.result(), Err(problem));
    }

    #[test]
    fn the_beginning_of_a_long_result_is_kept() {
        let overflow = |first: u8| {
            let mut output = Output::default();
            output.keep(&[&[first][..], &vec![b'x'; LINE_BYTES_MAX - 1]].concat());
            output.overflow()
        };
        assert_eq!(overflow(b'[').unwrap().len(), OVERFLOW_BYTES_KEPT);
        assert_eq!(overflow(b'x'), None);
    }

    #[test]
    fn a_last_line_that_nests_too_deep_is_no_result() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let mut output = Output::default();
        output.keep(nested(30_000).as_bytes());
        let problem =
            "the last line of stdout cannot be the result: it nests arrays and objects more than 100 deep";
        assert_eq!(output.result(), Err(problem.to_owned()));
        assert_eq!(result(&[&nested(100)]), Some(nested(100)));
        assert_eq!(result(&[&"[".repeat(30_000)]), None, "it is not JSON");
    }

    #[test]
    fn the_tail_has_the_last_lines() {
        let mut output = Output::default();
        for number in 0..100 {
            output.keep(format!("line {number}").as_bytes());
        }
        output.keep("ü".repeat(10_000).as_bytes());
        assert_eq!(output.tail.len(), limits::STDERR_TAIL_LINES_MAX);
        assert_eq!(output.tail[0], "line 91");
        assert!(output.tail.back().unwrap().len() < limits::STDERR_TAIL_LINE_BYTES_MAX + 10);
    }
}
