//! A measured process and the pipe to it. Dropping this value kills the process; it exits by itself when the
//! measuring process is killed.

use crate::bench_server::StageOptions;
use crate::node::{self, worker_name};
use crate::pipe::{NodeMessage, NodeRequest, RecordedStart, ServerAccess, ServerCounts, TransactionTimes};
use crate::usage::ProcessUsage;
use anyhow::{Context, bail};
use punctual_client::Span;
use punctual_node::store::ServerPlace;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// How long a process may take to start, or to answer on its pipe.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait after an error for the process to exit, so that the error can name its exit status.
const END_SEEN_WITHIN: Duration = Duration::from_secs(1);
const END_LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The parts that a process runs, and where.
pub struct ProcessLaunch<'a> {
    pub dir: &'a Path,
    /// The URL of the database on a server, with its credentials. `None` for the embedded store.
    pub database: Option<BenchDatabase<'a>>,
    /// Variables with the settings of the broker.
    pub broker: &'a [(String, String)],
    pub options: StageOptions,
}

pub struct BenchDatabase<'a> {
    pub url: String,
    pub server: &'a ServerPlace,
}

pub struct NodeProcess {
    child: Child,
    stdin: ChildStdin,
    counts: UnboundedReceiver<ServerCounts>,
    transactions: UnboundedReceiver<TransactionTimes>,
}

/// A process that is ready.
pub struct Launched {
    pub process: NodeProcess,
    pub starts: UnboundedReceiver<RecordedStart>,
    /// The address at which it accepts requests, if it does.
    pub access: Option<ServerAccess>,
}

impl NodeProcess {
    /// Starts a process and waits until it is ready.
    pub async fn start(launch: ProcessLaunch<'_>) -> anyhow::Result<Launched> {
        let mut child = launch.command()?.spawn().context("cannot start the measured server")?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.context("the measured server has no pipes")?;
        let (ready_sender, mut ready) = unbounded_channel();
        let (start_sender, starts) = unbounded_channel();
        let (count_sender, counts) = unbounded_channel();
        let (transaction_sender, transactions) = unbounded_channel();
        let listener = ProcessListener {
            ready: ready_sender,
            starts: start_sender,
            counts: count_sender,
            transactions: transaction_sender,
        };
        std::thread::spawn(move || listener.listen(stdout));
        let process = NodeProcess { child, stdin, counts, transactions };
        let Ok(Some(access)) = timeout(ANSWER_TIMEOUT, ready.recv()).await else {
            bail!("the measured server did not start");
        };
        Ok(Launched { process, starts, access })
    }

    /// Counters of the process.
    pub async fn counts(&mut self) -> anyhow::Result<ServerCounts> {
        self.ask(NodeRequest::Counts)?;
        let counted = timeout(ANSWER_TIMEOUT, self.counts.recv()).await;
        counted.ok().flatten().context("the measured server does not respond")
    }

    /// Durations of its transactions so far.
    pub async fn transactions(&mut self) -> anyhow::Result<TransactionTimes> {
        self.ask(NodeRequest::Transactions)?;
        let received = timeout(ANSWER_TIMEOUT, self.transactions.recv()).await;
        received.ok().flatten().context("the measured server does not respond")
    }

    pub fn worker(&self) -> String {
        worker_name(self.child.id())
    }

    /// CPU time and memory that the process has used so far.
    pub fn usage(&self) -> anyhow::Result<ProcessUsage> {
        ProcessUsage::of_process(self.child.id())
    }

    /// The exit status, if the process has exited. Its connections close a moment before the exit is visible.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        let gives_up_at = Instant::now() + END_SEEN_WITHIN;
        loop {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > gives_up_at {
                return ended;
            }
            tokio::time::sleep(END_LOOK_INTERVAL).await;
        }
    }

    fn ask(&mut self, ask: NodeRequest) -> anyhow::Result<()> {
        let line = serde_json::to_string(&ask)? + "\n";
        self.stdin.write_all(line.as_bytes()).context("the measured server has exited")
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        // None of its data is needed any more, and it must not write while its directory is removed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ProcessLaunch<'_> {
    fn command(&self) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        let StageOptions { part, slots, prefetch, keep, series } = self.options;
        command.args(["bench", node::SUBCOMMAND, part.word()]).arg("--data-dir").arg(self.dir);
        command.arg("--slots").arg(slots.to_string());
        command.arg("--prefetch").arg(prefetch.to_string());
        if let Some(keep) = keep {
            command.arg("--keep").arg(Span::from(keep).to_string());
        }
        if !series {
            command.arg("--without-series");
        }
        // What somebody has set for a server is not meant for this one.
        for setting in ["URL", "PASSWORD", "PASSWORD_FILE", "POOL", "WRITERS", "STATEMENT_TIMEOUT", "REPLICA"]
        {
            command.env_remove(format!("PUNCTUAL_STORE_{setting}"));
        }
        for setting in ["PUNCTUAL_STORE", "PUNCTUAL_BROKER", "PUNCTUAL_BROKER_PASSWORD_FILE"] {
            command.env_remove(setting);
        }
        command.envs(self.broker.iter().map(|(variable, value)| (variable, value)));
        if let Some(BenchDatabase { url, server }) = &self.database {
            command.env("PUNCTUAL_STORE", url);
            command.env("PUNCTUAL_STORE_POOL", server.pool.to_string());
            command.env("PUNCTUAL_STORE_WRITERS", server.writers.to_string());
            command.env("PUNCTUAL_STORE_STATEMENT_TIMEOUT", Span::from(server.statement_timeout).to_string());
        }
        // In its own process group, so that Ctrl-C reaches only the measuring process, which then stops this one.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        Ok(command)
    }
}

/// Forwards the messages of the process.
struct ProcessListener {
    ready: UnboundedSender<Option<ServerAccess>>,
    starts: UnboundedSender<RecordedStart>,
    counts: UnboundedSender<ServerCounts>,
    transactions: UnboundedSender<TransactionTimes>,
}

impl ProcessListener {
    fn listen(self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines() {
            let Ok(line) = line else { return };
            // The receiver is gone once the benchmark has ended.
            let _ = match serde_json::from_str(&line) {
                Ok(NodeMessage::Ready { access }) => self.ready.send(access).is_ok(),
                Ok(NodeMessage::Started(start)) => self.starts.send(start).is_ok(),
                Ok(NodeMessage::Counted(counts)) => self.counts.send(counts).is_ok(),
                Ok(NodeMessage::Transactions(times)) => self.transactions.send(times).is_ok(),
                Err(_) => return,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeArgs;
    use clap::Parser;
    use std::sync::Arc;

    #[derive(Parser)]
    struct NodeCommand {
        #[command(flatten)]
        args: NodeArgs,
    }

    #[test]
    fn a_process_rolls_up_executions_unless_it_must_not() {
        for series in [true, false] {
            let options = StageOptions { series, ..StageOptions::USUAL };
            let launch = ProcessLaunch { dir: Path::new("data"), database: None, broker: &[], options };
            let command = launch.command().unwrap();
            // After "bench".
            let parsed = NodeCommand::try_parse_from(command.get_args().skip(1)).unwrap();
            let config = node::engine_config(&parsed.args, Arc::default());
            assert_eq!(config.series.is_some(), series);
        }
    }
}
