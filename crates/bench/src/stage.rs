//! A server in a process of its own, on a temporary directory and a free port of the loopback interface, and a
//! client for it. Whatever ends the benchmark ends the server and removes the directory.

use crate::node::ServerPart;
use crate::pipe::{RecordedStart, ServerCounts, TransactionTimes};
use crate::process::{BenchDatabase, Launched, NodeProcess, ProcessLaunch};
use crate::scratch::ScratchDirectory;
use crate::units::{grouped, megabytes};
use crate::usage::ProcessUsage;
use crate::{PlaceArgs, space};
use anyhow::Context;
use punctual_client::{Client, ClientError};
use punctual_config::exit::{CliError, Exit};
use punctual_store::baseline::{BaselineDatabase, Past, RowProgress};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};

/// How long a database may take for a small commit before it counts as gone.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the worker may take to open its session, and the pause between two looks.
const WORKER_OPEN_MAX: Duration = Duration::from_secs(10);
const WORKER_OPEN_PAUSE: Duration = Duration::from_millis(10);

/// What the server does, its worker, and how long it keeps what is over.
#[derive(Debug, Clone, Copy)]
pub struct StageOptions {
    pub part: ServerPart,
    pub slots: usize,
    pub prefetch: usize,
    pub keep: Option<Duration>,
}

impl StageOptions {
    /// Slots and prefetch of a server that is to be busy with many short handlers.
    pub const USUAL: StageOptions =
        StageOptions { part: ServerPart::Everything, slots: 64, prefetch: 2_000, keep: None };
}

/// Where a server is going to be: its directory, and its database where that is on a database server.
pub struct Ground {
    // Before the database, which can be dropped only when no connection is left.
    pub bare: Option<Box<dyn BaselineDatabase>>,
    scratch: Option<ScratchDirectory>,
    directory: TempDir,
    /// The disks that are written to, as far as they can be seen from here.
    disks: Vec<space::DiskModel>,
}

impl Ground {
    pub async fn lay(place: &PlaceArgs) -> anyhow::Result<Self> {
        let directory = temporary_directory(place)?;
        let mut ground = Ground { bare: None, scratch: None, directory, disks: Vec::new() };
        if let Some(server) = place.database_server()? {
            let scratch = ground.scratch.insert(ScratchDirectory::create(server).await?);
            let bare = ground.bare.insert(scratch.bare(None).await?);
            ground.disks.extend(bare.data_directory().await.map(space::DiskModel::of_database_server));
        } else {
            ground.disks.push(space::DiskModel::of_dir(&place.dir));
        }
        Ok(ground)
    }

    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// Refuses what the disks would not hold, as far as they can be seen from here.
    pub fn must_hold(&self, what: &str, bytes: u64) -> Result<(), CliError> {
        self.disks.iter().try_for_each(|disk| disk.must_hold(what, bytes))
    }

    /// Writes what executions of the past have left. No server may run there yet.
    pub async fn keep_past(&mut self, past: Past, progress: RowProgress) -> anyhow::Result<()> {
        if let Some(bare) = &mut self.bare {
            return Ok(bare.keep_past(past, progress).await?);
        }
        let dir = self.dir().to_owned();
        let kept =
            tokio::task::spawn_blocking(move || punctual_store::sqlite::keep_past(&dir, past, &progress));
        Ok(kept.await.context("writing the history was interrupted")??)
    }

    /// Measures the bare database over another address, if one is given.
    pub async fn go_over(&mut self, address: Option<&str>) -> anyhow::Result<()> {
        if let (Some(scratch), Some(_)) = (&self.scratch, address) {
            self.bare = Some(scratch.bare(address).await?);
        }
        Ok(())
    }

    /// Starts one more process there, which reaches its database over another address if one is given.
    pub async fn launch(&self, options: StageOptions, address: Option<&str>) -> anyhow::Result<Launched> {
        let database = self
            .scratch
            .as_ref()
            .map(|scratch| BenchDatabase { url: scratch.url(address), server: scratch.server() });
        let StageOptions { part, slots, prefetch, keep } = options;
        NodeProcess::start(ProcessLaunch { part, dir: self.dir(), database, slots, prefetch, keep }).await
    }

    /// Starts a server there and measures it. What went wrong is told as what it comes from.
    pub async fn measure<T>(
        self,
        options: StageOptions,
        work: impl AsyncFnOnce(&mut Stage) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut stage = Stage::start(self, options).await?;
        match work(&mut stage).await {
            Ok(measured) => Ok(measured),
            Err(error) => Err(stage.explained(error).await),
        }
    }
}

pub struct Stage {
    pub client: Client,
    pub starts: UnboundedReceiver<RecordedStart>,
    // Before the ground: fields are dropped in this order, and the server writes there until it is gone.
    server: NodeProcess,
    pub ground: Ground,
}

impl Stage {
    /// Sets up a server and measures it.
    pub async fn measure<T>(
        place: &PlaceArgs,
        options: StageOptions,
        work: impl AsyncFnOnce(&mut Stage) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        Ground::lay(place).await?.measure(options, work).await
    }

    pub async fn start(ground: Ground, options: StageOptions) -> anyhow::Result<Self> {
        let Launched { process, starts, door } = ground.launch(options, None).await?;
        let door = door.context("the measured server accepts no requests")?;
        let client = Client::new(&door.address, door.token)?.without_retries();
        Ok(Stage { client, starts, server: process, ground })
    }

    /// Ends the server; what it has written stays.
    pub fn into_ground(self) -> Ground {
        let Stage { server, ground, .. } = self;
        drop(server);
        ground
    }

    /// What the server has done so far.
    pub async fn counts(&mut self) -> anyhow::Result<ServerCounts> {
        self.server.counts().await
    }

    /// How long its transactions have taken so far.
    pub async fn transactions(&mut self) -> anyhow::Result<TransactionTimes> {
        self.server.transactions().await
    }

    /// Gives the worker nothing until it is let go. Its queue goes on: what becomes ready goes through the limits there are.
    pub async fn hold_worker(&self) -> anyhow::Result<()> {
        let gives_up_at = Instant::now() + WORKER_OPEN_MAX;
        let worker = self.server.worker();
        while Instant::now() < gives_up_at {
            if self.client.workers().await?.items.iter().any(|open| open.worker_id == worker) {
                break;
            }
            sleep(WORKER_OPEN_PAUSE).await;
        }
        self.client.pause_worker(&worker).await?;
        Ok(())
    }

    /// Gives a worker that was held all it can take.
    pub async fn let_worker_go(&self) -> anyhow::Result<()> {
        self.client.resume_worker(&self.server.worker()).await?;
        Ok(())
    }

    /// What the server has used so far.
    pub fn usage(&self) -> anyhow::Result<ProcessUsage> {
        self.server.usage()
    }

    /// What its files or its database take up.
    pub async fn disk(&mut self) -> anyhow::Result<DiskUsage> {
        if let Some(bare) = &mut self.ground.bare {
            let size = bare.size().await.context("cannot read the size of the database")?;
            return Ok(DiskUsage {
                bytes: size.bytes,
                write_ahead_log_bytes: None,
                dead_rows: size.dead_rows,
            });
        }
        let (mut bytes, mut log_bytes) = (0, 0);
        for entry in std::fs::read_dir(self.ground.dir())? {
            let entry = entry?;
            let length = entry.metadata()?.len();
            bytes += length;
            if entry.file_name().to_string_lossy().ends_with("-wal") {
                log_bytes += length;
            }
        }
        Ok(DiskUsage { bytes, write_ahead_log_bytes: Some(log_bytes), dead_rows: None })
    }

    /// An error as what it comes from: the measured server has ended, the database is gone, or a disk is full. Its own
    /// words say what a client can do, and the benchmark is no client.
    pub async fn explained(&mut self, error: anyhow::Error) -> anyhow::Error {
        let told = format!("{error:#}");
        if let Some(full) = self.ground.disks.iter().find_map(space::DiskModel::fullness) {
            return failed(format!(
                "{full}: free some space, or measure elsewhere or with fewer jobs ({told})"
            ));
        }
        if let Some(how) = self.server.ended().await {
            return failed(format!("the measured server exited during the measurement ({how}): {told}"));
        }
        if let (Some(bare), Some(scratch)) = (&mut self.ground.bare, &self.ground.scratch)
            && !matches!(timeout(DATABASE_TIMEOUT, bare.commit_once()).await, Ok(Ok(())))
        {
            let url = &scratch.server().url;
            return failed(format!(
                "the connection to the database server {url} was lost during the measurement: {told}"
            ));
        }
        match error.downcast_ref::<ClientError>() {
            Some(ClientError::Unreachable { .. }) => {
                failed(format!("the measured server does not respond: {told}"))
            }
            _ => error,
        }
    }
}

fn failed(message: String) -> anyhow::Error {
    CliError { exit: Exit::Failed, message }.into()
}

/// What the server's files, or its database, take up.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DiskUsage {
    pub bytes: u64,
    /// Part of the above: its size follows from how much was written at once, not from how much is kept. Absent on a
    /// database server, whose log is shared.
    pub write_ahead_log_bytes: Option<u64>,
    /// Row versions that wait to be swept away, where the database counts them.
    pub dead_rows: Option<u64>,
}

impl DiskUsage {
    pub fn describe(self) -> String {
        let all = format!("{} in all", megabytes(self.bytes));
        match (self.write_ahead_log_bytes, self.dead_rows) {
            (Some(log), _) => format!("{all}, {} of it write-ahead log", megabytes(log)),
            (None, Some(dead)) => {
                format!("{all} in the database's tables, {} dead rows among them", grouped(dead as f64))
            }
            (None, None) => format!("{all} in the database's tables"),
        }
    }

    /// What has come since, for each of so many.
    pub fn bytes_each_since(self, before: DiskUsage, count: u64) -> f64 {
        self.bytes.saturating_sub(before.bytes) as f64 / count.max(1) as f64
    }
}

fn temporary_directory(place: &PlaceArgs) -> Result<TempDir, CliError> {
    let made = tempfile::Builder::new().prefix("punctual-bench-").tempdir_in(&place.dir);
    made.map_err(|error| {
        CliError::cannot_start(format!("--dir {}: cannot write there: {error}", place.dir.display()))
    })
}
