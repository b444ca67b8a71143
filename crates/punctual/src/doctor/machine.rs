//! The machine: its clock, its user, its limits, and whether commands can be run on it.

use super::finding::Finding;
use crate::config::ServeSettings;
use crate::shim;
use punctual_core::recurrence::tzdb_version;
use punctual_worker::process::protocol::{CommandLimits, Ended, FRAME_HEAD_BYTES, Frame, How, Request};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Descriptors that the server needs beside its connections: files of the store, pipes of commands.
const DESCRIPTORS_BESIDE: u64 = 256;
/// How long the trial of a command may take.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// What leaves a trace of a clock that is kept in step, and who leaves it.
const CLOCK_KEEPERS: [(&str, &str); 5] = [
    ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
    ("/run/chrony/chronyd.pid", "chrony"),
    ("/run/chronyd.pid", "chrony"),
    ("/run/ntpd.pid", "ntpd"),
    ("/var/run/openntpd.sock", "openntpd"),
];

pub async fn check(settings: &ServeSettings) -> Vec<Finding> {
    let mut findings = vec![
        clock_keeper(),
        Finding::good("time zones", format!("tzdata {} is built in", tzdb_version())),
        user(),
        open_files(settings),
    ];
    findings.extend(commands(settings).await);
    findings
}

fn clock_keeper() -> Finding {
    match CLOCK_KEEPERS.iter().find(|(trace, _)| Path::new(trace).exists()) {
        Some((_, keeper)) => Finding::good("clock", format!("kept in step by {keeper}")),
        None => {
            let found =
                "whether something keeps it in step cannot be told from here (a container goes by its host)";
            Finding::skipped("clock", found)
        }
    }
}

fn user() -> Finding {
    if rustix::process::geteuid().is_root() {
        let found = "this is root; a server started like this runs the commands of jobs as root as well";
        return Finding::warning("user", found, "run the server as a user of its own");
    }
    Finding::good("user", format!("user {}, not root", rustix::process::geteuid().as_raw()))
}

/// The server raises its soft limit to the hard one, so only that counts.
fn open_files(settings: &ServeSettings) -> Finding {
    let needed = settings.api.connections_max.get() + DESCRIPTORS_BESIDE;
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < needed => {
            let found = format!(
                "{limit} at most, but {} connections need {needed}",
                settings.api.connections_max.get()
            );
            let fix = format!("raise the limit (LimitNOFILE={needed} in the unit), or lower connections_max");
            Finding::warning("open files", found, fix)
        }
        Some(limit) => Finding::good("open files", format!("{limit} at most, {needed} needed")),
        None => Finding::good("open files", "not limited"),
    }
}

async fn commands(settings: &ServeSettings) -> Vec<Finding> {
    if settings.worker.allow.is_empty() {
        let found = "process and shell jobs are not allowed here; `serve --allow process,shell` allows them";
        return vec![Finding::skipped("commands", found)];
    }
    let trial = tokio::time::timeout(TRIAL_TIMEOUT, tokio::task::spawn_blocking(try_command)).await;
    let outcome = match trial {
        Ok(Ok(outcome)) => outcome.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("`true` did not end within {}s", TRIAL_TIMEOUT.as_secs())),
    };
    let trial = match outcome {
        Ok(Ended { how: How::Exited { code: 0 }, .. }) => {
            Finding::good("commands", "allowed, and a trial of `true` ran")
        }
        Ok(ended) => failed_trial(format!("{:?}", ended.how)),
        Err(error) => failed_trial(error),
    };
    vec![trial, cgroups()]
}

fn failed_trial(how: String) -> Finding {
    let fix = "see that processes can be started here and that /proc is mounted";
    Finding::failed("commands", format!("allowed, but a trial of `true` failed: {how}"), fix)
}

/// Runs `true` as a job would.
fn try_command() -> io::Result<Ended> {
    let shim = shim::command();
    let mut child = Command::new(&shim.program)
        .args(&shim.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let request = Request {
        command: vec!["true".to_owned()],
        env: BTreeMap::from_iter(shim.env),
        cwd: None,
        stdin: None,
        kill_grace: Duration::from_secs(1),
        limits: CommandLimits { output_bytes: 1_024, ..CommandLimits::default() },
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

/// The last of the frames, which says how the command ended.
fn ended(mut frames: &[u8]) -> io::Result<Ended> {
    while let Some((head, rest)) = frames.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let (kind, length) = Frame::read_head(*head).map_err(io::Error::other)?;
        let Some((content, rest)) = rest.split_at_checked(length) else { break };
        if let Frame::Ended(ended) = Frame::read(kind, content.to_vec()).map_err(io::Error::other)? {
            return Ok(ended);
        }
        frames = rest;
    }
    Err(io::Error::other("the shim did not say how it ended"))
}

fn cgroups() -> Finding {
    let missing: Vec<&str> = ["memory", "pids"]
        .into_iter()
        .filter(|controller| shim::cgroup_place(controller).is_none())
        .collect();
    if missing.is_empty() {
        return Finding::good("cgroups", "limits of commands hold for their whole process trees");
    }
    let found =
        format!("no cgroup for {} can be made: limits hold for single processes only", missing.join(" and "));
    Finding::warning(
        "cgroups",
        found,
        "nothing, unless jobs rely on limits for all that they start; see the guide on running commands",
    )
}
