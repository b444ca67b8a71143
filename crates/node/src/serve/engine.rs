//! The engine of a process, and its store.

use crate::store::OpenStore;
use anyhow::Context;
use punctual_api::MergePatches;
use punctual_config::exit::CliError;
use punctual_core::ports::{Host, Store, StoreError};
use punctual_core::time::Timestamp;
use punctual_engine::{ClusterParticipation, Duties, Engine, EngineConfig};
use std::sync::Arc;
use std::time::Duration;

/// How long a server with a manual clock waits for its worker, and the pause between two checks.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);
const WORKER_PAUSE: Duration = Duration::from_millis(2);

/// An engine on this store, after cleaning up what earlier processes left behind, where that is known.
pub async fn start(
    config: EngineConfig,
    duties: Duties,
    host: &Host,
    open: &OpenStore,
    participation: Option<ClusterParticipation>,
) -> anyhow::Result<Arc<Engine>> {
    let config = EngineConfig { job_patches: Some(Arc::new(MergePatches)), ..config };
    let config = if open.is_embedded { config } else { config.sharing_store(duties) };
    let (store, ready_queue) = (open.store.clone(), open.ready_queue.clone());
    let engine = Engine::in_cluster(config, host.clone(), store, ready_queue, participation);
    engine.start().await.map_err(|error| no_clock(&error))?;
    // If only this process uses the store, the embedded workers of earlier processes ended with them: their
    // work need not wait for the lease. On a shared store they may be alive in another process.
    if open.is_embedded {
        lose_sessions_of_last_process(&*open.store, &engine).await?;
    }
    Ok(engine)
}

/// The store's time, before there is an engine.
pub async fn store_time(open: &OpenStore) -> Result<Timestamp, CliError> {
    open.store.clock().await.map_err(|error| no_clock(&error))
}

fn no_clock(error: &StoreError) -> CliError {
    CliError::cannot_start(format!("cannot read the store's clock: {error}; is the database running?"))
}

async fn lose_sessions_of_last_process(store: &dyn Store, engine: &Engine) -> anyhow::Result<()> {
    match store.lose_embedded_sessions(engine.now()).await {
        Ok(0) => Ok(()),
        Ok(lost) => {
            tracing::info!(
                sessions = lost,
                "the last process did not close its sessions; recovering their work"
            );
            Ok(())
        }
        // With a full disk, they end with their leases.
        Err(error) if error.is_retryable() => {
            tracing::warn!(%error, "cannot end the sessions of the last process yet; their executions are recovered when the leases expire");
            Ok(())
        }
        Err(error) => Err(error).context("cannot end old sessions"),
    }
}

/// Waits until the worker has its session. Otherwise driven time could pass before that, and everything due
/// would run late.
pub async fn worker_connected(host: &Host, store: &dyn Store) {
    let gives_up_at = host.clock.monotonic().plus(WORKER_TIMEOUT);
    while host.clock.monotonic() < gives_up_at {
        match store.sessions().await {
            Ok(sessions) if sessions.is_empty() => host.clock.sleep(WORKER_PAUSE).await,
            // Everything that needs the store reports its failures.
            _ => return,
        }
    }
    tracing::warn!(
        "the worker is not connected yet; executions that fall due before it connects will run late"
    );
}
