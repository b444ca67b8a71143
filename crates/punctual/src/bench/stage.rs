//! A server in a process of its own, on a temporary directory and a free port of the loopback interface, and a
//! client for it. Whatever ends the benchmark ends the server and removes the directory.

use crate::bench::PlaceArgs;
use crate::bench::node;
use crate::bench::pipe::{Ask, Counts, Start, Tell};
use crate::bench::scratch::Scratch;
use crate::bench::usage::Usage;
use crate::bench::words::megabytes;
use crate::exit::CliError;
use anyhow::{Context, bail};
use punctual_client::{Client, Span};
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// How long the server may take to start, or to answer on its pipe.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The server's worker and how long it keeps what is over.
#[derive(Debug, Clone, Copy)]
pub struct StageOptions {
    pub slots: usize,
    pub prefetch: usize,
    pub keep: Option<Duration>,
}

impl StageOptions {
    /// Slots and prefetch of a server that is to be busy with many short handlers.
    pub const USUAL: StageOptions = StageOptions { slots: 64, prefetch: 2_000, keep: None };
}

pub struct Stage {
    pub client: Client,
    pub starts: UnboundedReceiver<Start>,
    counts: UnboundedReceiver<Counts>,
    // Before the directory: fields are dropped in this order, and the server writes there until it is gone.
    server: ServerProcess,
    /// Its database, where that is on a database server.
    scratch: Option<Scratch>,
    directory: TempDir,
}

impl Stage {
    pub async fn set_up(place: &PlaceArgs, options: StageOptions) -> anyhow::Result<Self> {
        let directory = temporary_directory(place)?;
        let scratch = match place.database_server()? {
            Some(server) => Some(Scratch::create(server).await?),
            None => None,
        };
        let (server, stdout) = ServerProcess::start(directory.path(), scratch.as_ref(), options)?;
        let (ready_sender, mut ready) = unbounded_channel();
        let (start_sender, starts) = unbounded_channel();
        let (count_sender, counts) = unbounded_channel();
        let listener = Listener { ready: ready_sender, starts: start_sender, counts: count_sender };
        std::thread::spawn(move || listener.listen(stdout));
        let told = timeout(ANSWER_TIMEOUT, ready.recv()).await;
        let Ok(Some((address, token))) = told else {
            bail!("the server to be measured did not start");
        };
        let client = Client::new(&address, token)?;
        Ok(Stage { client, starts, counts, server, scratch, directory })
    }

    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// What the server has done so far.
    pub async fn counts(&mut self) -> anyhow::Result<Counts> {
        self.server.ask(Ask::Counts)?;
        let counted = timeout(ANSWER_TIMEOUT, self.counts.recv()).await;
        counted.ok().flatten().context("the server to be measured does not answer")
    }

    /// What the server has used so far.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of_process(self.server.child.id())
    }

    /// The bytes of its files; unknown of a database server.
    pub fn disk(&self) -> anyhow::Result<Option<Disk>> {
        if self.scratch.is_some() {
            return Ok(None);
        }
        let mut disk = Disk { bytes: 0, write_ahead_log_bytes: 0 };
        for entry in std::fs::read_dir(self.dir())? {
            let entry = entry?;
            let bytes = entry.metadata()?.len();
            disk.bytes += bytes;
            if entry.file_name().to_string_lossy().ends_with("-wal") {
                disk.write_ahead_log_bytes += bytes;
            }
        }
        Ok(Some(disk))
    }
}

/// What the server's files take.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Disk {
    pub bytes: u64,
    /// Part of the above: its size follows from how much was written at once, not from how much is kept.
    pub write_ahead_log_bytes: u64,
}

impl Disk {
    pub fn describe(self) -> String {
        let log = megabytes(self.write_ahead_log_bytes);
        format!("{} in all, {log} of it write-ahead log", megabytes(self.bytes))
    }
}

/// What a share of the files is, or why it is not known.
pub fn describe_disk(share: Option<f64>, of: &str, disk: Option<Disk>) -> String {
    match share.zip(disk) {
        Some((bytes, disk)) => format!("{bytes:.0} bytes {of}; {}", disk.describe()),
        None => "the database server's; not measured".to_owned(),
    }
}

pub fn temporary_directory(place: &PlaceArgs) -> Result<TempDir, CliError> {
    let made = tempfile::Builder::new().prefix("punctual-bench-").tempdir_in(&place.dir);
    made.map_err(|error| {
        CliError::cannot_start(format!("--dir {}: cannot write there: {error}", place.dir.display()))
    })
}

struct ServerProcess {
    child: Child,
    stdin: ChildStdin,
}

impl ServerProcess {
    fn start(
        dir: &Path,
        scratch: Option<&Scratch>,
        options: StageOptions,
    ) -> anyhow::Result<(Self, ChildStdout)> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["bench", node::SUBCOMMAND]).arg("--data-dir").arg(dir);
        command.arg("--slots").arg(options.slots.to_string());
        command.arg("--prefetch").arg(options.prefetch.to_string());
        if let Some(keep) = options.keep {
            command.arg("--keep").arg(Span::from(keep).to_string());
        }
        // What somebody has set for a server is not meant for this one.
        for setting in ["URL", "PASSWORD", "PASSWORD_FILE", "POOL", "WRITERS", "STATEMENT_TIMEOUT", "REPLICA"]
        {
            command.env_remove(format!("PUNCTUAL_STORE_{setting}"));
        }
        command.env_remove("PUNCTUAL_STORE");
        if let Some(scratch) = scratch {
            let server = scratch.server();
            command.env("PUNCTUAL_STORE", scratch.url());
            command.env("PUNCTUAL_STORE_POOL", server.pool.to_string());
            command.env("PUNCTUAL_STORE_WRITERS", server.writers.to_string());
            command.env("PUNCTUAL_STORE_STATEMENT_TIMEOUT", Span::from(server.statement_timeout).to_string());
        }
        // A group of its own: Ctrl-C reaches only the measuring process, which then ends the server.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().context("cannot start the server to be measured")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("the server to be measured has no pipes")?;
        Ok((ServerProcess { child, stdin }, stdout))
    }

    fn ask(&mut self, ask: Ask) -> anyhow::Result<()> {
        let line = serde_json::to_string(&ask)? + "\n";
        self.stdin.write_all(line.as_bytes()).context("the server to be measured is gone")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Nothing that it holds is needed any more, and it must not write while its directory is removed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands on what the server tells.
struct Listener {
    ready: UnboundedSender<(String, String)>,
    starts: UnboundedSender<Start>,
    counts: UnboundedSender<Counts>,
}

impl Listener {
    fn listen(self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            // Nobody may listen any more: the benchmark is at its end.
            let _ = match serde_json::from_str(&line) {
                Ok(Tell::Ready { address, token }) => self.ready.send((address, token)).is_ok(),
                Ok(Tell::Started(start)) => self.starts.send(start).is_ok(),
                Ok(Tell::Counted(counts)) => self.counts.send(counts).is_ok(),
                Err(_) => return,
            };
        }
    }
}
