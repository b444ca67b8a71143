//! `punctual serve`: API, scheduler and an embedded worker in one process, on an embedded store.

mod admin_token;
mod allowed;
mod clock;
#[cfg(feature = "http")]
mod http;
mod logging;
mod manual_clock;
mod repeats;
mod retention;
mod signals;
mod welcome;

pub use allowed::{Allowed, Network};
pub use clock::ClockKind;
pub use logging::{Level, LogFormat};

use crate::config::{Flags, ServeSettings, unknown_variables};
use crate::data_dir::{DataDir, DataDirArgs};
use crate::exit::{CliError, Exit};
use admin_token::AdminToken;
use anyhow::Context;
use clap::CommandFactory;
use punctual_api::{Api, NodeInfo, Server, ServerLimits};
use punctual_client::{Span, host};
use punctual_core::ports::{DrivenClock, Executor, Host, Store, StoreError};
use punctual_engine::{Engine, EngineConfig};
use punctual_store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use punctual_worker::{Worker, WorkerConfig, builtin_executors};
use signals::Signals;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use welcome::Welcome;

/// How long a server with a manual clock waits for its worker, and the pause between two looks.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);
const WORKER_PAUSE: Duration = Duration::from_millis(2);

#[derive(clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    settings: Flags<ServeSettings>,
    /// Replace the admin token by a new one
    #[arg(long)]
    new_admin_token: bool,
}

pub async fn run(args: ServeArgs) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let data_dir = args.data_dir.within(&around)?;
    let settings = around.read(&args.settings)?;
    settings.check()?;
    logging::start(&settings)?;
    for unknown in unknown_variables(&crate::Cli::command()) {
        tracing::warn!("{unknown}");
    }
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    raise_open_files_limit();
    let host = host::this_machine().context("cannot read randomness")?;
    let (host, driven) = clock::choose(&settings, host);
    let origin = |key: &str| around.origin(&args.settings, key);
    let executors = executors(&settings, origin, &host)?;
    data_dir.prepare()?;
    data_dir.must_not_have_lost_database()?;
    let store = open_store(&data_dir, &host)?;
    let listener = listen(&settings.listen.0).await?;
    let address = listener.local_addr().context("cannot tell where the server listens")?;
    let engine = start_engine(retention::config(&settings), &host, store.clone()).await?;
    let token = admin_token::ensure(&*store, &data_dir, engine.now(), args.new_admin_token).await?;
    let now = engine.now();
    let is_driven = driven.is_some();
    let node = Node::start(&settings, &host, engine, executors, listener, driven);
    if is_driven {
        worker_connected(&host, &*store).await;
    }
    tell_commands(&data_dir, address);
    let config_file = around.file.as_ref().map(|file| file.path.as_path());
    Welcome { data_dir: &data_dir, config_file, address, token, manual_clock: is_driven.then_some(now) }
        .print()?;
    tracing::info!(%address, data_dir = %data_dir.path().display(), "serving");
    if token == AdminToken::Replaced {
        let file = data_dir.token_file();
        tracing::warn!(file = %file.display(), "made a new admin token; the earlier one no longer works");
    }
    if is_driven {
        tracing::warn!(%now, "the clock is manual: nothing falls due until it is moved, see `punctual clock`");
    }
    if !address.ip().is_loopback() {
        tracing::warn!(
            "others can reach this address and the connection is not encrypted: put TLS before it"
        );
    }
    Ok(node.until_stopped(&mut signals).await)
}

/// Writes down where the server listens. It serves all the same if that fails, as it does on a full disk.
fn tell_commands(data_dir: &DataDir, address: SocketAddr) {
    if let Err(error) = data_dir.write_address(&address.to_string()) {
        tracing::warn!("{error:#}: commands find this server only with --server {address}");
    }
}

/// The handlers of the embedded worker.
#[cfg_attr(not(feature = "http"), expect(unused_variables, reason = "only http jobs name files"))]
fn executors(
    settings: &ServeSettings,
    origin: impl Fn(&str) -> String,
    host: &Host,
) -> Result<Vec<Arc<dyn Executor>>, CliError> {
    let mut executors = builtin_executors(host);
    executors.extend(settings.allow.iter().map(|allowed| allowed.executor()));
    #[cfg(feature = "http")]
    executors.push(http::executor(settings, origin, host)?);
    Ok(executors)
}

fn open_store(data_dir: &DataDir, host: &Host) -> Result<Arc<dyn Store>, CliError> {
    let store = SqliteStore::open(&SqliteOptions::new(data_dir.path()), host.calendar.clone());
    store.map(|store| Arc::new(store) as Arc<dyn Store>).map_err(|error| cannot_open(data_dir, error))
}

/// What went wrong with the data directory, in words that say what to do.
pub fn cannot_open(data_dir: &DataDir, error: OpenError) -> CliError {
    let dir = data_dir.path().display();
    match error {
        OpenError::InUse { .. } => CliError::cannot_start(format!(
            "another process has the data directory {dir} open: stop it first, or choose another directory \
             with --data-dir"
        )),
        error => CliError::cannot_start(format!(
            "cannot open the store in {dir}: {:#}",
            anyhow::Error::from(error)
        )),
    }
}

async fn listen(address: &str) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => ": the port is in use; stop the other process or choose another port",
            io::ErrorKind::PermissionDenied => ": no right to use this port; choose one above 1023",
            io::ErrorKind::AddrNotAvailable => ": this machine does not have the address; choose another",
            _ => return CliError::cannot_start(format!("cannot listen on {address}: {error}")),
        };
        CliError::cannot_start(format!("cannot listen on {address}{hint} with --listen"))
    })
}

/// An engine on this store, with what earlier processes left behind taken care of.
pub async fn start_engine(
    config: EngineConfig,
    host: &Host,
    store: Arc<dyn Store>,
) -> anyhow::Result<Arc<Engine>> {
    let engine = Engine::new(config, host.clone(), store.clone());
    engine.start().await.context("cannot read the store's clock")?;
    // The embedded workers of earlier processes died with them: their work need not wait for the lease.
    match store.lose_embedded_sessions(engine.now()).await {
        Ok(0) => {}
        Ok(lost) => {
            tracing::info!(
                sessions = lost,
                "the last process did not close its sessions; recovering their work"
            );
        }
        // A full disk: they end with their leases.
        Err(error @ StoreError::Unavailable(_)) => {
            tracing::warn!(%error, "the sessions of the last process cannot be ended yet; their work waits for its leases");
        }
        Err(error) => return Err(error).context("cannot end old sessions"),
    }
    Ok(engine)
}

/// Waits until the worker has its session. Driven time could pass before that, and all that falls due would run
/// late.
async fn worker_connected(host: &Host, store: &dyn Store) {
    let gives_up_at = host.clock.monotonic().plus(WORKER_TIMEOUT);
    while host.clock.monotonic() < gives_up_at {
        match store.sessions().await {
            Ok(sessions) if sessions.is_empty() => host.clock.sleep(WORKER_PAUSE).await,
            // A store in trouble is reported by all that need it.
            _ => return,
        }
    }
    tracing::warn!("the worker is not connected yet; what falls due before it is will run late");
}

/// Everything that runs in this process.
struct Node {
    api: JoinHandle<()>,
    worker: JoinHandle<()>,
    loops: JoinHandle<()>,
    stop_api: watch::Sender<bool>,
    drain_worker: watch::Sender<bool>,
    drain_grace: Span,
}

impl Node {
    fn start(
        settings: &ServeSettings,
        host: &Host,
        engine: Arc<Engine>,
        executors: Vec<Arc<dyn Executor>>,
        listener: TcpListener,
        driven: Option<Arc<dyn DrivenClock>>,
    ) -> Self {
        let (stop_api, stop) = watch::channel(false);
        let (drain_worker, drain) = watch::channel(false);
        let config = WorkerConfig {
            name: "embedded".to_owned(),
            slots: settings.slots.as_usize(),
            prefetch: settings.prefetch.as_usize(),
            queues: settings.queues.iter().map(|queue| queue.0.clone()).collect(),
            lease: settings.lease.get(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            host: host_name(),
            embedded: true,
            drain_grace: settings.drain_grace.get(),
            ..WorkerConfig::default()
        };
        let worker = Worker::new(config, host.clone(), engine.clone(), executors);
        let node = NodeInfo {
            id: "local".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: engine.now(),
            roles: ["api", "scheduler", "worker"].map(str::to_owned).to_vec(),
            address: listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string()),
            store: "sqlite".to_owned(),
            schema_version: SqliteStore::schema_version(),
            embedded_store: true,
        };
        let mut api = Api::new(engine.clone(), host.clock.clone())
            .on_node(node)
            .ready_until(drain.clone())
            .streaming_until(stop.clone());
        if let Some(clock) = driven {
            api = api.driving(clock);
        }
        let server = Server {
            listener,
            limits: server_limits(settings),
            clock: host.clock.clone(),
            spawn: host.spawn.clone(),
            traffic: api.traffic(),
        };
        Node {
            api: tokio::spawn(server.run(api.router(), stop)),
            worker: tokio::spawn(work(worker, drain)),
            loops: tokio::spawn(engine.run()),
            stop_api,
            drain_worker,
            drain_grace: settings.drain_grace.get().into(),
        }
    }

    /// Runs until a signal comes, then stops in order. A second signal ends the process at once.
    async fn until_stopped(mut self, signals: &mut Signals) -> Exit {
        let died = tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "stopping; a second signal stops at once");
                None
            }
            _ = &mut self.api => Some("the API"),
            _ = &mut self.worker => Some("the worker"),
            _ = &mut self.loops => Some("the scheduler"),
        };
        if let Some(part) = died {
            tracing::error!("{part} stopped unexpectedly: stopping the server");
            return Exit::Failed;
        }
        tokio::select! {
            () = self.stop() => Exit::Done,
            signal = signals.next() => {
                tracing::warn!(signal, "stopping at once");
                std::process::exit(Exit::Failed as i32)
            }
        }
    }

    /// First nothing more is fired, then what runs finishes, and only then does the API go: until the end people
    /// can see what is being waited for, and what they submit is kept for the next start.
    async fn stop(self) {
        self.loops.abort();
        let _ = self.loops.await;
        tracing::info!("draining: handlers that run may take up to {} to finish", self.drain_grace);
        self.drain_worker.send_replace(true);
        let _ = self.worker.await;
        tracing::info!("drained; finishing open requests");
        self.stop_api.send_replace(true);
        let _ = self.api.await;
    }
}

/// Runs the embedded worker until the server stops. If people drain it before that, the server goes on without
/// it until its next start.
async fn work(worker: Worker, mut drain: watch::Receiver<bool>) {
    worker.run(drain.clone()).await;
    if !*drain.borrow() {
        tracing::warn!(
            "the embedded worker was drained; this server runs no handlers until it is started again"
        );
        let _ = drain.wait_for(|drain| *drain).await;
    }
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

fn server_limits(settings: &ServeSettings) -> ServerLimits {
    ServerLimits {
        connections_max: settings.connections_max.as_u32(),
        header_timeout: settings.header_timeout.get(),
        body_timeout: settings.body_timeout.get(),
        write_timeout: settings.write_timeout.get(),
        head_bytes_max: settings.head_bytes_max.as_usize(),
        uri_bytes_max: settings.uri_bytes_max.as_usize(),
        shutdown_grace: settings.shutdown_grace.get(),
    }
}

/// Lets the process open as many files as it may: the usual soft limit of 1,024 is less than the connections
/// that the server takes.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_name_can_be_listened_on() {
        let listener = listen("localhost:0").await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }
}
