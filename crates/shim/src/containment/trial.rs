//! Runs a harmless command as a job would, to see whether that works.

use super::{Contained, InForce};
use crate::sandbox::Sandboxes;
use punctual_worker::process::containment::Containment;
use punctual_worker::process::protocol::{CommandEnd, CommandLimits, FRAME_HEAD_BYTES, Frame, How, Request};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The queue of the trial, which no job has: commands of it run as the usual user.
const QUEUE: &str = "";

/// Whether this containment and these sandboxes work together; if not, why.
pub fn of(in_force: &InForce, sandboxes: &Sandboxes) -> Result<(), String> {
    match run(crate::THIS_PROGRAM, &["--version"], in_force, sandboxes) {
        Ok(CommandEnd { how: How::Exited { code: 0 }, .. }) => Ok(()),
        Ok(CommandEnd { how: How::CannotStart { problem, .. }, .. }) => Err(problem),
        Ok(ended) => Err(format!("a test run failed: {:?}", ended.how)),
        Err(error) => Err(format!("a test run failed: {error}")),
    }
}

/// Runs a command under its own shim.
pub fn run(
    program: &str,
    args: &[&str],
    in_force: &InForce,
    sandboxes: &Sandboxes,
) -> io::Result<CommandEnd> {
    let contained = Arc::new(Contained::new(in_force, sandboxes.clone()));
    let enclosure = contained.next(QUEUE);
    let shim = crate::command(contained);
    let mut child = Command::new(&shim.program)
        .args(&shim.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env_clear()
        .spawn()?;
    let request = Request {
        command: std::iter::once(program).chain(args.iter().copied()).map(str::to_owned).collect(),
        env: BTreeMap::from_iter(shim.env),
        cwd: None,
        stdin: None,
        kill_grace: Duration::from_secs(1),
        limits: CommandLimits { output_bytes: 1_024, ..CommandLimits::default() },
        enclosure,
    };
    let mut line = serde_json::to_vec(&request)?;
    line.push(b'\n');
    // Kept open until the end: closing it would stop the command.
    let mut stdin = child.stdin.take();
    if let Some(stdin) = &mut stdin {
        stdin.write_all(&line)?;
    }
    let mut frames = Vec::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_end(&mut frames)?;
    }
    drop(stdin);
    child.wait()?;
    ended(&frames)
}

/// The last frame, which reports how the command ended.
fn ended(mut frames: &[u8]) -> io::Result<CommandEnd> {
    while let Some((head, rest)) = frames.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let (kind, length) = Frame::read_head(*head).map_err(io::Error::other)?;
        let Some((content, rest)) = rest.split_at_checked(length) else { break };
        if let Frame::Ended(ended) = Frame::read(kind, content.to_vec()).map_err(io::Error::other)? {
            return Ok(ended);
        }
        frames = rest;
    }
    Err(io::Error::other("the shim did not report the result of the command"))
}
