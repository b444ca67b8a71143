//! `punctual worker`: runs only handlers. It uses the store directly, as one of the processes that share it,
//! or polls a server over the worker protocol.

use super::engine::store_time;
use super::listener::{host_name, node_info};
use super::node::{AfterDrain, Node};
use super::transport::Transport;
use super::{api_of, begin, config_mismatch, engine, logging, warn_of_seen_passwords};
use crate::blobs;
use crate::broker;
use crate::coordination;
use crate::secrets::{self, SecretsKeyArg};
use crate::spans;
use crate::store::{self, OpenStore, PasswordArg, StorePlace};
use anyhow::Context;
use punctual_api::{Listeners, ServerLimits};
use punctual_client::{Client, ClientError, RemotePort, host};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{self, CliError, Exit};
use punctual_config::output;
use punctual_config::store_url::StoreUrl;
use punctual_config::value::JobTypeName;
use punctual_config::{Flags, Surroundings, WorkerRoleSettings, WorkerSettings};
use punctual_core::health::HealthLimits;
use punctual_core::ports::{Executor, Host};
use punctual_engine::{Duties, EngineConfig};
use punctual_worker::{Worker, WorkerConfig, builtin_executors, prefetch_max};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The name of a worker in the process that holds the store.
const EMBEDDED: &str = "embedded";

#[derive(clap::Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    settings: Flags<WorkerRoleSettings>,
    #[command(flatten)]
    password: PasswordArg,
    #[command(flatten)]
    secrets_key: SecretsKeyArg,
}

/// Where a worker gets its work from.
#[derive(Debug, PartialEq, Eq)]
enum WorkSource {
    Store,
    Server,
}

pub async fn run(args: WorkerArgs, unknown: &[String]) -> anyhow::Result<Exit> {
    let around = args.connect.surroundings()?;
    let settings = around.read(&args.settings)?;
    match way(&args, &settings)? {
        WorkSource::Store => on_store(&args, &around, &settings, unknown).await,
        WorkSource::Server => on_server(&args, &around, &settings, unknown).await,
    }
}

/// A flag decides; without one, a database in the configuration; without that, the server that commands find.
fn way(args: &WorkerArgs, settings: &WorkerRoleSettings) -> Result<WorkSource, CliError> {
    match (args.settings.has("store.url"), args.connect.names_server()) {
        (true, true) => Err(CliError {
            exit: Exit::Misunderstood,
            message: "a worker uses either a store or a server: pass --store or --server, not both"
                .to_owned(),
        }),
        (false, true) => Ok(WorkSource::Server),
        (true, false) => Ok(WorkSource::Store),
        (false, false) if matches!(settings.store.url, Some(StoreUrl::Server(_))) => Ok(WorkSource::Store),
        (false, false) => Ok(WorkSource::Server),
    }
}

async fn on_store(
    args: &WorkerArgs,
    around: &Surroundings,
    settings: &WorkerRoleSettings,
    unknown: &[String],
) -> anyhow::Result<Exit> {
    let data_dir = args.connect.data_dir_within(around)?;
    let place = StorePlace::of(&settings.store, &args.password, data_dir.path())?;
    if place.is_embedded() {
        return Err(CliError {
            exit: Exit::Misunderstood,
            message: "a worker cannot share the embedded SQLite store, which is used by a single process: connect it to the \
                      server of that store, with --server and a token"
                .to_owned(),
        }
        .into());
    }
    let (mut signals, host) = begin(&settings.log, &settings.time, unknown)?;
    let origin = |key: &str| around.origin(&args.settings, key);
    let cipher = secrets::cipher(&settings.store, &settings.secrets, &args.secrets_key, &place)?;
    warn_of_seen_passwords(&place, &settings.coordination, &settings.broker, origin);
    let mut transport = Transport::of(&settings.listener, None, origin)?;
    if let Some(address) = &settings.health.listen {
        transport = transport.checked(&address.0)?;
    }
    let mut hidden = around.secret_files(&args.settings);
    hidden.push(data_dir.path().to_owned());
    hidden.extend(blobs::hidden(&settings.blobs));
    let blobs = blobs::config(&settings.blobs, &place)?;
    let web_calls = super::http::executor(&settings.worker, origin, &host)?;
    let executors = executors(&settings.worker, web_calls, hidden, &host).await?;
    let mut open = store::open(&place, settings.logs.total_size_max, &host).await?;
    broker::attach(&settings.broker, &mut open).await?;
    let listener = match &settings.health.listen {
        Some(address) => Some(transport.listen(&address.0, "--health-listen").await?),
        None => None,
    };
    let info =
        node_info(&open, &settings.coordination, &["worker"], listener.as_ref(), store_time(&open).await?);
    let participation = coordination::participation(&settings.coordination, &open, &host, &info)?;
    let (tracing, exporter) = spans::start(&settings.tracing, origin, &info)?;
    let mut engine_config = EngineConfig {
        tracing,
        member_ttl: settings.coordination.ttl.get(),
        secret_cipher: Some(cipher),
        encrypt_payloads: settings.store.encrypt_payloads.0,
        blobs,
        ..EngineConfig::default()
    };
    logging::configure(&settings.log, &mut engine_config);
    let engine =
        engine::start(engine_config.clone(), Duties::OwnCommits, &host, &open, participation).await?;
    secrets::warn_of_missing_keys(&engine_config, &*open.store).await;
    let mut node = Node::new(settings.worker.drain_grace.get());
    let config_mismatch = config_mismatch::watch(&open, &host, &engine, &info, node.draining());
    let mut said = format!("Punctual {} works on {place}", env!("CARGO_PKG_VERSION"));
    if let Some(listener) = listener {
        let address = listener.local_addr().context("cannot read the address of the listener")?;
        let api = api_of(&engine, &host, &node, info).noticing(config_mismatch).open_to(transport.web());
        transport.warn_if_exposed(address);
        said += &format!(", health checks on {}", transport.url(address));
        let http = transport.server(
            &api,
            &host,
            Listeners::new(listener, None),
            ServerLimits::default(),
            node.stopping(),
        );
        node.run_http(http.run(api.health_router(), node.stopping()));
    }
    let config = config(&settings.worker, name(settings), false);
    tracing::info!(store = %place, worker = config.name, "working");
    let worker = Worker::new(config, host.clone(), engine.clone(), executors);
    node.run_worker(worker.on_machine(host::health(".")), AfterDrain::End);
    node.run_loops(engine);
    output::print_raw(&said)?;
    let exit = node.until_stopped(&mut signals).await;
    exporter.flush().await;
    Ok(exit)
}

async fn on_server(
    args: &WorkerArgs,
    around: &Surroundings,
    settings: &WorkerRoleSettings,
    unknown: &[String],
) -> anyhow::Result<Exit> {
    if settings.health.listen.is_some() {
        return Err(CliError {
            exit: Exit::Misunderstood,
            message: "health.listen is only for workers on a store: `punctual workers list` shows the health of workers that are \
                      connected to a server"
                .to_owned(),
        }
        .into());
    }
    let client = args.connect.client_within(around)?;
    let (mut signals, host) = begin(&settings.log, &settings.time, unknown)?;
    let origin = |key: &str| around.origin(&args.settings, key);
    let mut hidden = args.connect.secret_files(around);
    hidden.extend(around.secret_files(&args.settings));
    hidden.push(args.connect.data_dir_within(around)?.path().to_owned());
    let web_calls = super::http::executor(&settings.worker, origin, &host)?;
    let executors = executors(&settings.worker, web_calls, hidden, &host).await?;
    let mut node = Node::new(settings.worker.drain_grace.get());
    let refusal: Arc<Mutex<Option<ClientError>>> = Arc::default();
    let shown = client.server().to_owned();
    let config = remote_config(config(&settings.worker, name(settings), false));
    tracing::info!(server = shown, worker = config.name, "connecting");
    let port = remote_port(client, &node, refusal.clone())
        .when_opened(say_once(format!("Punctual {} works for {shown}", env!("CARGO_PKG_VERSION"))));
    let worker = Worker::new(config, host, Arc::new(port), executors);
    node.run_worker(worker.on_machine(host::health(".")), AfterDrain::End);
    let exit = node.until_stopped(&mut signals).await;
    let refused = refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
    refused.map_or(Ok(exit), |error| Err(error.into()))
}

/// Prints the line at the first call only: a worker opens further sessions after it has lost one.
fn say_once(line: String) -> impl Fn() + Send + Sync {
    let once = Once::new();
    move || {
        once.call_once(|| {
            // A closed output is no reason to stop working.
            let _ = output::print_raw(&line);
        });
    }
}

/// The port to the server. A server that rejects this worker, however often it retries, ends it.
fn remote_port(client: Client, node: &Node, refusal: Arc<Mutex<Option<ClientError>>>) -> RemotePort {
    let drain = node.drain();
    let once = Once::new();
    RemotePort::new(client)
        .when_refused(move |error| {
            *refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            drain.send_replace(true);
        })
        // The server may get another certificate, so the worker tries again.
        .when_distrusted(move |distrust| {
            once.call_once(|| tracing::warn!("{}", exit::reach_it(Some(distrust))));
        })
}

/// The same with prefetch limited to what a server allows remote workers. The server rejects too many slots.
fn remote_config(config: WorkerConfig) -> WorkerConfig {
    let slots = config.slots_max.unwrap_or(config.slots);
    WorkerConfig { prefetch: config.prefetch.min(prefetch_max(slots)), ..config }
}

/// The worker's config.
pub fn config(settings: &WorkerSettings, name: String, embedded: bool) -> WorkerConfig {
    WorkerConfig {
        name,
        slots: settings.slots.0.min() as usize,
        slots_max: Some(settings.slots.0.max() as usize),
        prefetch: settings.prefetch.as_usize(),
        queues: settings.queues.iter().map(|queue| queue.0.clone()).collect(),
        lease: settings.lease.get(),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        host: host_name(),
        address: host::own_address(),
        limits: HealthLimits {
            memory_free_min: settings.memory_free_min.0,
            disk_free_min: settings.disk_free_min.0,
            cpu_pct_max: settings.cpu_max.0,
        },
        embedded,
        drain_grace: settings.drain_grace.get(),
        ..WorkerConfig::default()
    }
}

fn name(settings: &WorkerRoleSettings) -> String {
    match &settings.name.worker_name {
        Some(name) => name.0.clone(),
        None => host_name().unwrap_or_else(|| "worker".to_owned()),
    }
}

/// The name of the worker of `punctual serve`: on a shared store other processes have one, too.
pub fn name_beside_api(open: &OpenStore) -> String {
    let name = if open.is_embedded { None } else { host_name() };
    name.unwrap_or_else(|| EMBEDDED.to_owned())
}

/// The handlers of a worker, with the one for web calls. Commands cannot read the files and directories in `hidden`.
pub async fn executors(
    settings: &WorkerSettings,
    web_calls: Arc<dyn Executor>,
    hidden: Vec<PathBuf>,
    host: &Host,
) -> Result<Vec<Arc<dyn Executor>>, CliError> {
    let mut executors = builtin_executors(host);
    executors.extend(super::allowed::executors(settings, hidden, host).await?);
    executors.push(web_calls);
    chosen(executors, &settings.job_types)
}

/// The handlers of these job types; all of them if none is named.
fn chosen(
    mut executors: Vec<Arc<dyn Executor>>,
    job_types: &[JobTypeName],
) -> Result<Vec<Arc<dyn Executor>>, CliError> {
    if job_types.is_empty() {
        return Ok(executors);
    }
    let known: BTreeSet<String> = executors.iter().flat_map(|executor| executor.job_types()).collect();
    if let Some(JobTypeName(unknown)) = job_types.iter().find(|job_type| !known.contains(&job_type.0)) {
        let known: Vec<String> = known.into_iter().collect();
        let message = format!(
            "job_types has {unknown}, and this worker has handlers for {}: allow commands with `allow`, or write a worker \
             with an SDK for a type of your own",
            known.join(", ")
        );
        return Err(CliError { exit: Exit::Misunderstood, message });
    }
    let is_named = |name: &String| job_types.iter().any(|job_type| job_type.0 == *name);
    executors.retain(|executor| executor.job_types().iter().any(is_named));
    Ok(executors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::{ExecutionContext, Outcome, Task};

    struct Handler(&'static str);

    impl Executor for Handler {
        fn job_types(&self) -> Vec<String> {
            vec![self.0.to_owned()]
        }

        fn execute(&self, _context: ExecutionContext) -> Task<Outcome> {
            unreachable!("nothing runs here")
        }
    }

    #[test]
    fn a_worker_runs_the_job_types_that_are_named() {
        let types = |named: &[&str]| {
            let all: Vec<Arc<dyn Executor>> = vec![Arc::new(Handler("http")), Arc::new(Handler("noop"))];
            let named: Vec<JobTypeName> = named.iter().map(|name| JobTypeName((*name).to_owned())).collect();
            let chosen = chosen(all, &named).map_err(|error| error.message)?;
            Ok::<_, String>(chosen.iter().flat_map(|executor| executor.job_types()).collect::<Vec<_>>())
        };
        assert_eq!(types(&[]).unwrap(), ["http", "noop"]);
        assert_eq!(types(&["noop"]).unwrap(), ["noop"]);
        let refused = types(&["noop", "ImageProcessing"]).unwrap_err();
        assert!(
            refused.starts_with("job_types has ImageProcessing, and this worker has handlers for http, noop")
        );
    }
}
