//! `punctual serve`: API, scheduler and an embedded worker in one process, on an embedded store.

mod admin_token;
mod clock;
#[cfg(feature = "http")]
mod http;
mod logging;
mod manual_clock;
mod retention;
mod signals;

use crate::connect::DEFAULT_ADDRESS;
use crate::data_dir::DataDir;
use crate::exit::{CliError, Exit};
use crate::{args, output, shim};
use admin_token::AdminToken;
use anyhow::Context;
use clock::ClockArgs;
use logging::LogArgs;
use punctual_api::{Api, NodeInfo, Server, ServerLimits};
use punctual_client::{Span, host};
use punctual_core::ports::{DrivenClock, Executor, Host, Store};
use punctual_core::time::Timestamp;
use punctual_engine::{Engine, EngineConfig};
use punctual_store::sqlite::{OpenError, SqliteOptions, SqliteStore};
use punctual_worker::process::{process_executor, shell_executor};
use punctual_worker::{Worker, WorkerConfig, builtin_executors};
use retention::RetentionArgs;
use signals::Signals;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long a server with a manual clock waits for its worker, and the pause between two looks.
const WORKER_TIMEOUT: Duration = Duration::from_secs(10);
const WORKER_PAUSE: Duration = Duration::from_millis(2);

#[derive(clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    data_dir: DataDir,
    /// Where to listen; port 0 takes any free one
    #[arg(long, env = "PUNCTUAL_LISTEN", default_value = DEFAULT_ADDRESS, value_name = "ADDRESS", value_parser = args::address)]
    listen: String,
    /// Handlers that run at once
    #[arg(long, env = "PUNCTUAL_SLOTS", default_value_t = 16, value_parser = args::slots)]
    slots: usize,
    /// Executions held ready beyond the slots
    #[arg(long, env = "PUNCTUAL_PREFETCH", default_value_t = 64)]
    prefetch: usize,
    /// The queues that the embedded worker serves, separated by commas; all if left out
    #[arg(long, env = "PUNCTUAL_QUEUES", value_delimiter = ',')]
    queues: Vec<String>,
    /// Commands that the embedded worker runs for whoever may submit jobs: process, shell, separated by commas; none
    /// if left out
    #[arg(long, env = "PUNCTUAL_ALLOW", value_delimiter = ',', value_enum)]
    allow: Vec<Allowed>,
    /// How long running handlers may take to finish when the server stops
    #[arg(long, env = "PUNCTUAL_DRAIN_GRACE", default_value = "30s", value_name = "DURATION")]
    drain_grace: Span,
    #[command(flatten)]
    retention: RetentionArgs,
    /// Replace the admin token by a new one
    #[arg(long)]
    new_admin_token: bool,
    #[command(flatten)]
    clock: ClockArgs,
    #[cfg(feature = "http")]
    #[command(flatten)]
    http: http::HttpArgs,
    #[command(flatten)]
    log: LogArgs,
}

/// A way to run commands that the operator may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Allowed {
    /// Programs with arguments
    Process,
    /// Scripts through `sh -c`
    Shell,
}

impl Allowed {
    fn executor(self) -> Arc<dyn Executor> {
        match self {
            Allowed::Process => process_executor(shim::command()),
            Allowed::Shell => shell_executor(shim::command()),
        }
    }
}

pub async fn run(args: ServeArgs) -> anyhow::Result<Exit> {
    logging::start(&args.log)?;
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    raise_open_files_limit();
    let host = host::this_machine().context("cannot read randomness")?;
    let (host, driven) = args.clock.choose(host)?;
    let executors = executors(&args, &host)?;
    args.data_dir.prepare()?;
    let store = open_store(&args.data_dir, &host)?;
    let listener = listen(&args.listen).await?;
    let address = listener.local_addr().context("cannot tell where the server listens")?;
    let engine = start_engine(args.retention.config(), &host, store.clone()).await?;
    let token = admin_token::ensure(&*store, &args.data_dir, engine.now(), args.new_admin_token).await?;
    let now = engine.now();
    let is_driven = driven.is_some();
    let node = Node::start(&args, &host, engine, executors, listener, driven);
    if is_driven {
        worker_connected(&host, &*store).await;
    }
    args.data_dir.write_address(&address.to_string())?;
    welcome(&args.data_dir, address, token, is_driven.then_some(now))?;
    tracing::info!(%address, data_dir = %args.data_dir.path().display(), "serving");
    if token == AdminToken::Replaced {
        let file = args.data_dir.token_file();
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

/// The handlers of the embedded worker.
fn executors(args: &ServeArgs, host: &Host) -> Result<Vec<Arc<dyn Executor>>, CliError> {
    let mut executors = builtin_executors(host);
    executors.extend(args.allow.iter().map(|allowed| allowed.executor()));
    #[cfg(feature = "http")]
    executors.push(args.http.executor(host)?);
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
    let lost = store.lose_embedded_sessions(engine.now()).await.context("cannot end old sessions")?;
    if lost > 0 {
        tracing::info!(sessions = lost, "the last process did not close its sessions; recovering their work");
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

fn welcome(
    data_dir: &DataDir,
    address: SocketAddr,
    token: AdminToken,
    manual_clock: Option<Timestamp>,
) -> anyhow::Result<()> {
    let dir = data_dir.path().display();
    let option = if data_dir.is_default() { String::new() } else { format!(" --data-dir {dir}") };
    output::print_text(&format!(
        "Punctual {version} listens on http://{address}\n  \
           data   {dir}\n  \
           token  {token_file}{note}\n  \
           {clock}try    punctual job submit hello --type noop --wait{option}",
        version = env!("CARGO_PKG_VERSION"),
        token_file = data_dir.token_file().display(),
        note = match token {
            AdminToken::Usual => "",
            AdminToken::Replaced => " (new; the earlier one no longer works)",
        },
        clock = manual_clock.map_or_else(String::new, |now| {
            format!("clock  manual, stands at {now}; move it with punctual clock advance 1h{option}\n  ")
        }),
    ))
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
        args: &ServeArgs,
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
            slots: args.slots,
            prefetch: args.prefetch,
            // `--queues ''` and a trailing comma name no queue.
            queues: args.queues.iter().filter(|queue| !queue.is_empty()).cloned().collect(),
            version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            host: host_name(),
            embedded: true,
            drain_grace: args.drain_grace.get(),
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
            limits: ServerLimits::default(),
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
            drain_grace: args.drain_grace,
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
