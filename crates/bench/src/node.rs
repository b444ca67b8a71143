//! The server that a benchmark measures, in its own process: everything that `punctual serve` runs, on the loopback
//! interface, plus a handler that records its starts. It can also run only some of its parts.

use crate::failures::{CountingNotifier, FailingHandler};
use crate::pipe::{MachineMoment, NodeMessage, NodeRequest, ServerAccess, ServerCounts, TransactionTimes};
use crate::recorder::StartRecorder;
use anyhow::Context;
use punctual_api::{Api, Listeners, RateLimits, Server, ServerLimits, secret_sha256};
use punctual_client::{Span, host};
use punctual_config::args;
use punctual_config::exit::Exit;
use punctual_config::{BrokerSettings, Flags, SizeMax, Surroundings};
use punctual_core::access::Role;
use punctual_core::histogram::HistogramSnapshot;
use punctual_core::limits;
use punctual_core::ports::{Executor, Host, Token};
use punctual_engine::{
    ClusterParticipation, Duties, Engine, EngineConfig, NotificationConfig, Quota, SeriesConfig,
};
use punctual_node::store::{self, OpenStore, StoreArgs};
use punctual_node::{broker, coordination, serve};
use punctual_worker::{Worker, WorkerConfig, builtin_executors};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// The subcommand with which the measuring process starts this one.
pub const SUBCOMMAND: &str = "node";
const TOKEN_ID: &str = "bench";
/// Bounds of the interval at which retention runs.
const RETAIN_INTERVAL_MIN: Duration = Duration::from_millis(500);
const RETAIN_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// The parts of a server that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ServerPart {
    Everything,
    /// A scheduler that shares the segments with others.
    Scheduler,
    /// The API and a worker, without a scheduler.
    Rest,
    /// The API and a scheduler, without a worker.
    Control,
    /// A worker that is connected to the database.
    Worker,
}

impl ServerPart {
    /// The value on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            ServerPart::Everything => "everything",
            ServerPart::Scheduler => "scheduler",
            ServerPart::Rest => "rest",
            ServerPart::Control => "control",
            ServerPart::Worker => "worker",
        }
    }

    const fn duties(self) -> Duties {
        match self {
            ServerPart::Everything | ServerPart::Scheduler | ServerPart::Control => Duties::Everything,
            ServerPart::Rest | ServerPart::Worker => Duties::OwnCommits,
        }
    }

    const fn has_api(self) -> bool {
        !matches!(self, ServerPart::Scheduler | ServerPart::Worker)
    }

    const fn has_worker(self) -> bool {
        !matches!(self, ServerPart::Scheduler | ServerPart::Control)
    }
}

#[derive(clap::Args)]
pub struct NodeArgs {
    part: ServerPart,
    #[arg(long)]
    data_dir: PathBuf,
    /// The store, by variables: a flag would show its password
    #[command(flatten)]
    store: StoreArgs,
    #[arg(long, value_parser = args::slots)]
    slots: usize,
    #[arg(long)]
    prefetch: usize,
    /// How long finished jobs and their history are kept
    #[arg(long)]
    keep: Option<Span>,
    /// Executions are not rolled up
    #[arg(long)]
    without_series: bool,
}

/// Serves until stdin is closed.
pub async fn run(args: NodeArgs) -> anyhow::Result<Exit> {
    let host = host::this_machine().context("cannot read randomness")?;
    let place = args.store.place(&Surroundings::without_file(), &args.data_dir)?;
    let mut open = store::open(&place, SizeMax::default(), &host).await?;
    let broker: BrokerSettings = Surroundings::without_file().read(&Flags::default())?;
    broker::attach(&broker, &mut open).await?;
    let participation =
        if args.part == ServerPart::Scheduler { participation(&open, &host).await? } else { None };
    let notifier = Arc::new(CountingNotifier::default());
    let config = engine_config(&args, notifier.clone());
    let engine = serve::start_engine(config, args.part.duties(), &host, &open, participation).await?;
    let measured = MeasuredNode { engine: engine.clone(), notifier };
    let (sender, messages) = unbounded_channel();
    tokio::task::spawn_blocking(move || write_lines(messages));
    tokio::spawn(engine.clone().run());
    // Both stop what they belong to when they are dropped.
    let _draining =
        args.part.has_worker().then(|| start_worker(&args, &host, &engine, open.is_embedded, &sender));
    let (access, _stop) = if args.part.has_api() {
        let token = make_token(&engine).await?;
        let (address, stop) = start_api(&host, &engine).await?;
        (Some(ServerAccess { address, token }), Some(stop))
    } else {
        (None, None)
    };
    let _ = sender.send(NodeMessage::Ready { access });
    answer_until_the_end(measured, sender).await
}

/// What the answers to the measuring process are read from.
struct MeasuredNode {
    engine: Arc<Engine>,
    notifier: Arc<CountingNotifier>,
}

async fn answer_until_the_end(
    measured: MeasuredNode,
    sender: UnboundedSender<NodeMessage>,
) -> anyhow::Result<Exit> {
    tokio::task::spawn_blocking(move || answer_lines(&measured, &sender))
        .await
        .context("reading standard input failed")?;
    Ok(Exit::Done)
}

/// The default membership settings of `punctual scheduler`.
async fn participation(open: &OpenStore, host: &Host) -> anyhow::Result<Option<ClusterParticipation>> {
    let nothing = Surroundings { variables: BTreeMap::new(), file: None };
    let settings = nothing.read(&Flags::default())?;
    let info = serve::node_info(open, &settings, &["scheduler"], None, open.store.clock().await?);
    Ok(coordination::participation(&settings, open, host, &info)?)
}

/// The settings of the measured engine.
pub fn engine_config(args: &NodeArgs, notifier: Arc<CountingNotifier>) -> EngineConfig {
    // As on a server: their cost is part of what is measured.
    let notifications = NotificationConfig {
        notifier,
        window: limits::NOTIFY_WINDOW_DEFAULT,
        repeat: limits::NOTIFY_REPEAT_DEFAULT,
        heartbeat_url: None,
        public_url: None,
    };
    let usual = EngineConfig {
        series: (!args.without_series).then(SeriesConfig::default),
        notifications: Some(notifications),
        ..EngineConfig::default()
    };
    let Some(keep) = args.keep.map(Span::get) else { return usual };
    EngineConfig {
        jobs_kept: Some(keep),
        history_kept: keep,
        // The store is new, and its clock does not jump.
        retention_hold: Duration::ZERO,
        retain_interval: (keep / 4).clamp(RETAIN_INTERVAL_MIN, RETAIN_INTERVAL_MAX),
        ..usual
    }
}

/// The worker name of a process. The session of a killed process is listed until it expires, so each process needs
/// its own name.
pub fn worker_name(process: u32) -> String {
    format!("bench-{process}")
}

fn start_worker(
    args: &NodeArgs,
    host: &Host,
    engine: &Arc<Engine>,
    embedded: bool,
    sender: &UnboundedSender<NodeMessage>,
) -> watch::Sender<bool> {
    let recorder = StartRecorder { clock: host.clock.clone(), sender: sender.clone() };
    let mut executors = builtin_executors(host);
    executors.push(Arc::new(recorder) as Arc<dyn Executor>);
    executors.push(Arc::new(FailingHandler));
    let config = WorkerConfig {
        name: worker_name(std::process::id()),
        slots: args.slots,
        prefetch: args.prefetch,
        embedded,
        ..WorkerConfig::default()
    };
    let (drain, draining) = watch::channel(false);
    tokio::spawn(Worker::new(config, host.clone(), engine.clone(), executors).run(draining));
    drain
}

/// Creates a new token for every run, because other users of the machine can reach the port.
async fn make_token(engine: &Engine) -> anyhow::Result<String> {
    let mut random = [0_u8; 16];
    getrandom::fill(&mut random).context("cannot read randomness")?;
    let mut secret = String::new();
    for byte in random {
        let _ = write!(secret, "{byte:02x}");
    }
    let token = Token::new(TOKEN_ID, secret_sha256(&secret), Role::Admin, engine.now());
    engine.store().put_token(token).await?;
    Ok(format!("pt_{TOKEN_ID}_{secret}"))
}

async fn start_api(host: &Host, engine: &Arc<Engine>) -> anyhow::Result<(String, watch::Sender<bool>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
    let address = listener.local_addr()?.to_string();
    let api = Api::new(engine.clone(), host.clock.clone()).limited_to(unreachable_limits());
    let server = Server {
        listeners: Listeners::new(listener, None),
        tls: None,
        limits: ServerLimits::default(),
        clock: host.clock.clone(),
        spawn: host.spawn.clone(),
        traffic: api.traffic(),
    };
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(server.run(api.router(), stopping));
    Ok((address, stop))
}

/// The server counts requests as usual, but no machine is fast enough to reach these limits.
fn unreachable_limits() -> RateLimits {
    RateLimits { requests: Some(Quota::per_second(u32::MAX, u32::MAX)), ..RateLimits::default() }
}

/// Writes each message as a line until the reader closes the pipe.
fn write_lines(mut messages: UnboundedReceiver<NodeMessage>) {
    let mut out = io::BufWriter::new(io::stdout().lock());
    while let Some(message) = messages.blocking_recv() {
        let written = serde_json::to_writer(&mut out, &message).map_err(io::Error::from);
        let ended = written.and_then(|()| out.write_all(b"\n"));
        // Flush only when no further line is waiting, so that a burst is written in large pieces.
        let flushed = ended.and_then(|()| if messages.is_empty() { out.flush() } else { Ok(()) });
        if flushed.is_err() {
            return;
        }
    }
}

fn answer_lines(measured: &MeasuredNode, sender: &UnboundedSender<NodeMessage>) {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        match serde_json::from_str(&line) {
            Ok(NodeRequest::Counts) => {
                let _ = sender.send(NodeMessage::Counted(counts(measured)));
            }
            Ok(NodeRequest::Transactions) => {
                match Handle::current().block_on(measured.engine.store().figures()) {
                    Ok(figures) => {
                        let HistogramSnapshot { bounds, counts, .. } = figures.transaction_time;
                        let times = TransactionTimes { bounds_us: bounds.to_vec(), counts };
                        let _ = sender.send(NodeMessage::Transactions(times));
                    }
                    Err(error) => eprintln!("cannot read the statistics of the store: {error}"),
                }
            }
            Err(error) => eprintln!("invalid command: {line}: {error}"),
        }
    }
}

fn counts(MeasuredNode { engine, notifier }: &MeasuredNode) -> ServerCounts {
    let counted = engine.counters();
    let otherwise = counted.failed + counted.timed_out + counted.cancelled + counted.expired + counted.lost;
    let cluster = engine.cluster();
    ServerCounts {
        at: MachineMoment::now(),
        succeeded: counted.succeeded,
        otherwise,
        failed: counted.failed,
        lost: counted.lost,
        fired: counted.fired,
        fire_conflicts: counted.fire_conflicts,
        segments: cluster.is_coordinated.then_some(cluster.segments as u64),
        notified_events: notifier.events(),
    }
}
