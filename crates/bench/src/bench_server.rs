//! A server in its own process, on a temporary directory and a free port of the loopback interface, and a client for
//! it. However the benchmark ends, the server stops and the directory is removed.

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

/// How long a small commit may take before the database counts as unreachable.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for the worker to open its session, and the interval at which that is checked.
const WORKER_OPEN_MAX: Duration = Duration::from_secs(10);
const WORKER_OPEN_PAUSE: Duration = Duration::from_millis(10);

/// The parts that the server runs, its worker's settings, and its retention time.
#[derive(Debug, Clone, Copy)]
pub struct StageOptions {
    pub part: ServerPart,
    pub slots: usize,
    pub prefetch: usize,
    pub keep: Option<Duration>,
    /// Whether executions are rolled up for charts, as on a server.
    pub series: bool,
}

impl StageOptions {
    /// Slots and prefetch of a server that runs many short handlers.
    pub const USUAL: StageOptions =
        StageOptions { part: ServerPart::Everything, slots: 64, prefetch: 2_000, keep: None, series: true };
}

/// Where a server will run: its directory, and its database if that is on a database server.
pub struct BenchSite {
    // Declared before the database, which can be dropped only after the last connection is closed.
    pub bare: Option<Box<dyn BaselineDatabase>>,
    scratch: Option<ScratchDirectory>,
    /// Variables for every process.
    broker: Vec<(String, String)>,
    directory: TempDir,
    /// The disks that are written to, as far as they are visible from this machine.
    disks: Vec<space::DiskModel>,
}

impl BenchSite {
    pub async fn prepare(place: &PlaceArgs) -> anyhow::Result<Self> {
        let directory = temporary_directory(place)?;
        place.broker()?;
        let broker = place.broker.variables();
        let mut site = BenchSite { bare: None, scratch: None, broker, directory, disks: Vec::new() };
        if let Some(server) = place.database_server()? {
            let scratch = site.scratch.insert(ScratchDirectory::create(server).await?);
            let bare = site.bare.insert(scratch.bare(None).await?);
            site.disks.extend(bare.data_directory().await.map(space::DiskModel::of_database_server));
        } else {
            site.disks.push(space::DiskModel::of_dir(&place.dir));
        }
        Ok(site)
    }

    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// Returns an error if the data would not fit on the disks that are visible from this machine.
    pub fn must_hold(&self, what: &str, bytes: u64) -> Result<(), CliError> {
        self.disks.iter().try_for_each(|disk| disk.must_hold(what, bytes))
    }

    /// Writes the history of past executions. No server may run yet.
    pub async fn keep_past(&mut self, past: Past, progress: RowProgress) -> anyhow::Result<()> {
        if let Some(bare) = &mut self.bare {
            return Ok(bare.keep_past(past, progress).await?);
        }
        let dir = self.dir().to_owned();
        let kept =
            tokio::task::spawn_blocking(move || punctual_store::sqlite::keep_past(&dir, past, &progress));
        Ok(kept.await.context("writing the history was interrupted")??)
    }

    /// Measures the bare database through another address, if one is given.
    pub async fn connect_through(&mut self, address: Option<&str>) -> anyhow::Result<()> {
        if let (Some(scratch), Some(_)) = (&self.scratch, address) {
            self.bare = Some(scratch.bare(address).await?);
        }
        Ok(())
    }

    /// Starts one more process, which connects to its database through another address if one is given.
    pub async fn launch(&self, options: StageOptions, address: Option<&str>) -> anyhow::Result<Launched> {
        let database = self
            .scratch
            .as_ref()
            .map(|scratch| BenchDatabase { url: scratch.url(address), server: scratch.server() });
        let broker = &self.broker;
        NodeProcess::start(ProcessLaunch { dir: self.dir(), database, broker, options }).await
    }

    /// Starts a server and measures it. An error is replaced by its cause, as in [`Stage::explained`].
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
    // Declared before the site: fields are dropped in this order, and the server writes there until it exits.
    server: NodeProcess,
    pub site: BenchSite,
}

impl Stage {
    /// Sets up a server and measures it.
    pub async fn measure<T>(
        place: &PlaceArgs,
        options: StageOptions,
        work: impl AsyncFnOnce(&mut Stage) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        BenchSite::prepare(place).await?.measure(options, work).await
    }

    pub async fn start(site: BenchSite, options: StageOptions) -> anyhow::Result<Self> {
        let Launched { process, starts, access } = site.launch(options, None).await?;
        let access = access.context("the measured server accepts no requests")?;
        let client = Client::new(&access.address, access.token)?.without_retries();
        Ok(Stage { client, starts, server: process, site })
    }

    /// Stops the server and keeps its data.
    pub fn into_site(self) -> BenchSite {
        let Stage { server, site, .. } = self;
        drop(server);
        site
    }

    /// Counters of the server.
    pub async fn counts(&mut self) -> anyhow::Result<ServerCounts> {
        self.server.counts().await
    }

    /// Durations of its transactions so far.
    pub async fn transactions(&mut self) -> anyhow::Result<TransactionTimes> {
        self.server.transactions().await
    }

    /// Pauses the worker. The queue is not paused, so that executions that become ready pass the limits.
    pub async fn pause_worker(&self) -> anyhow::Result<()> {
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

    /// Resumes the worker.
    pub async fn resume_worker(&self) -> anyhow::Result<()> {
        self.client.resume_worker(&self.server.worker()).await?;
        Ok(())
    }

    /// CPU time and memory that the server has used so far.
    pub fn usage(&self) -> anyhow::Result<ProcessUsage> {
        self.server.usage()
    }

    /// Size of its files or of its database.
    pub async fn disk(&mut self) -> anyhow::Result<DiskUsage> {
        if let Some(bare) = &mut self.site.bare {
            let size = bare.size().await.context("cannot read the size of the database")?;
            return Ok(DiskUsage {
                bytes: size.bytes,
                write_ahead_log_bytes: None,
                dead_rows: size.dead_rows,
            });
        }
        let (mut bytes, mut log_bytes) = (0, 0);
        for entry in std::fs::read_dir(self.site.dir())? {
            let entry = entry?;
            let length = entry.metadata()?.len();
            bytes += length;
            if entry.file_name().to_string_lossy().ends_with("-wal") {
                log_bytes += length;
            }
        }
        Ok(DiskUsage { bytes, write_ahead_log_bytes: Some(log_bytes), dead_rows: None })
    }

    /// Replaces an error by its cause: the server has exited, the database is unreachable, or a disk is full. The
    /// original message tells a client what to do, which does not help the user of a benchmark.
    pub async fn explained(&mut self, error: anyhow::Error) -> anyhow::Error {
        let message = format!("{error:#}");
        if let Some(full) = self.site.disks.iter().find_map(space::DiskModel::fullness) {
            return failed(format!(
                "{full}: free some space, or measure elsewhere or with fewer jobs ({message})"
            ));
        }
        if let Some(how) = self.server.ended().await {
            return failed(format!("the measured server exited during the measurement ({how}): {message}"));
        }
        if let (Some(bare), Some(scratch)) = (&mut self.site.bare, &self.site.scratch)
            && !matches!(timeout(DATABASE_TIMEOUT, bare.commit_once()).await, Ok(Ok(())))
        {
            let url = &scratch.server().url;
            return failed(format!(
                "the connection to the database server {url} was lost during the measurement: {message}"
            ));
        }
        match error.downcast_ref::<ClientError>() {
            Some(ClientError::Unreachable { .. }) => {
                failed(format!("the measured server does not respond: {message}"))
            }
            _ => error,
        }
    }
}

fn failed(message: String) -> anyhow::Error {
    CliError { exit: Exit::Failed, message }.into()
}

/// Size of the server's files or of its database.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DiskUsage {
    pub bytes: u64,
    /// Part of the above. Depends on how much was written at once, not on how much is stored. `None` on a database
    /// server, whose log is shared.
    pub write_ahead_log_bytes: Option<u64>,
    /// Row versions that wait for vacuum, if the database counts them.
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

    /// The growth since an earlier reading, divided by `count`.
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
