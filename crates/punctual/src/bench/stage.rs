//! A complete node in a temporary directory: store, engine and its loops, without the API.

use crate::bench::PlaceArgs;
use crate::serve;
use anyhow::Context;
use punctual_client::host;
use punctual_core::ports::{Executor, Host, Store};
use punctual_engine::{Engine, EngineConfig};
use punctual_store::sqlite::{SqliteOptions, SqliteStore};
use punctual_worker::{Worker, WorkerConfig};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Stage {
    pub engine: Arc<Engine>,
    pub host: Host,
    loops: JoinHandle<()>,
    directory: TempDir,
}

impl Stage {
    pub async fn set_up(place: &PlaceArgs) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("punctual-bench-")
            .tempdir_in(&place.dir)
            .with_context(|| format!("cannot write to {}", place.dir.display()))?;
        let host = host::this_machine().context("cannot read randomness")?;
        let store = SqliteStore::open(&SqliteOptions::new(directory.path()), host.calendar.clone())
            .context("cannot open a database there")?;
        let store: Arc<dyn Store> = Arc::new(store);
        let engine = serve::start_engine(EngineConfig::default(), &host, store).await?;
        let loops = tokio::spawn(engine.clone().run());
        Ok(Stage { engine, host, loops, directory })
    }

    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    pub fn start_worker(
        &self,
        slots: usize,
        prefetch: usize,
        executors: Vec<Arc<dyn Executor>>,
    ) -> RunningWorker {
        let (drain, draining) = watch::channel(false);
        let config = WorkerConfig {
            name: "bench".to_owned(),
            slots,
            prefetch,
            embedded: true,
            ..WorkerConfig::default()
        };
        let worker = Worker::new(config, self.host.clone(), self.engine.clone(), executors);
        RunningWorker { drain, running: tokio::spawn(worker.run(draining)) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.loops.abort();
    }
}

pub struct RunningWorker {
    drain: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl RunningWorker {
    pub async fn stop(self) -> anyhow::Result<()> {
        self.drain.send_replace(true);
        self.running.await.context("the worker broke off")
    }
}
