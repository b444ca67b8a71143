//! The server processes: `punctual serve`, which combines all roles, and `punctual api`, `punctual scheduler`
//! and `punctual worker`, of which any number share one database.

mod admin_token;
mod allowed;
mod api;
mod clock;
mod config_mismatch;
mod engine;
mod http;
mod listener;
mod logging;
mod manual_clock;
#[cfg(test)]
mod multi_node;
mod node;
mod notifications;
mod oidc;
mod repeats;
mod retention;
mod scaling;
mod scheduler;
mod signals;
mod tls;
mod transport;
mod welcome;
mod worker;

pub use allowed::sandbox_choice;
pub use api::{ApiArgs, run as run_api};
pub use engine::start as start_engine;
pub use listener::node_info;
pub use scheduler::{SchedulerArgs, run as run_scheduler};
pub use worker::{WorkerArgs, run as run_worker};

use crate::blobs;
use crate::broker;
use crate::coordination;
use crate::secrets::{self, SecretsKeyArg};
use crate::spans;
use crate::store::{self, PasswordArg, StorePlace};
use admin_token::AdminToken;
use anyhow::Context;
use engine::store_time;
use listener::{limits, listen_before_creating, rate_limits};
use node::{AfterDrain, Node};
use punctual_api::{Api, DASHBOARD_PATH, Listeners, LoginLink, NodeInfo};
use punctual_client::host;
use punctual_config::data_dir::{self, Announced, DataDir, DataDirArgs};
use punctual_config::exit::{CliError, Exit};
use punctual_config::{
    BrokerSettings, BrokerUrl, CoordinationSettings, Flags, LogSettings, ServeSettings, Surroundings,
    TimeSettings,
};
use punctual_core::ports::Host;
use punctual_engine::{Duties, Engine};
use punctual_worker::Worker;
use signals::StopSignals;
use std::io::IsTerminal;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tokio::sync::oneshot;
use transport::Transport;
use welcome::Welcome;

#[derive(clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    settings: Flags<ServeSettings>,
    #[command(flatten)]
    password: PasswordArg,
    #[command(flatten)]
    secrets_key: SecretsKeyArg,
    /// Replace the admin token with a new one
    #[arg(long)]
    new_admin_token: bool,
}

/// `unknown` are sentences about variables that mean nothing, for the log.
pub async fn run(args: ServeArgs, unknown: &[String]) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let data_dir = args.data_dir.within(&around)?;
    let settings = around.read(&args.settings)?;
    settings.check()?;
    allowed::check(&settings.worker)?;
    let (mut signals, host) = begin(&settings.log, &settings.time, unknown)?;
    let (host, driven) = clock::choose(&settings.clock, host);
    let origin = |key: &str| around.origin(&args.settings, key);
    let transport =
        Transport::of(&settings.listener, Some(&settings.api), origin)?.known_as(&settings.address);
    let mut transport = transport.checked(&settings.api.listen.0)?;
    let provider = oidc::config(&settings.oidc, origin)?;
    let place = StorePlace::of(&settings.store, &args.password, data_dir.path())?;
    secrets::check_encryption(&settings.store, &settings.secrets, &args.secrets_key, &place)?;
    let mut hidden = around.secret_files(&args.settings);
    hidden.push(data_dir.path().to_owned());
    hidden.extend(blobs::hidden(&settings.blobs));
    if let StorePlace::Sqlite(directory) = &place {
        hidden.push(directory.clone());
    }
    let web_calls = http::executor(&settings.worker, origin, &host)?;
    let mut notifications = notifications::config((&settings.notify, &settings.address), origin, &host)?;
    let hooks = scaling::Hook::read_all(settings.scheduler.scaling_hooks_file.as_deref())?;
    warn_of_seen_passwords(&place, &settings.coordination, &settings.broker, origin);
    warn_of_seen_password(&settings.events.url, "events", origin);
    warn_of_seen_password(&settings.intake.url, "intake", origin);
    listen_before_creating(&mut transport, data_dir.path(), &settings.api.listen.0).await?;
    prepare(&data_dir, &place)?;
    let blobs = blobs::config(&settings.blobs, &place)?;
    // After the directories exist: what commands must not read is looked up.
    let executors = worker::executors(&settings.worker, web_calls, hidden, &host).await?;
    let logs = settings.logs.total_size_max;
    let mut open = store::open_checking(&place, logs, &host, settings.store.check_interval.get()).await?;
    broker::attach(&settings.broker, &mut open).await?;
    let listener = transport.listen(&settings.api.listen.0, "--listen").await?;
    let info = node_info(
        &open,
        &settings.coordination,
        &["api", "scheduler", "worker"],
        Some(&listener),
        store_time(&open).await?,
    );
    let participation = coordination::participation(&settings.coordination, &open, &host, &info)?;
    let mut config = retention::config(&settings.scheduler, &settings.coordination);
    config.secret_cipher =
        Some(secrets::cipher(&settings.store, &settings.secrets, &args.secrets_key, &place)?);
    config.encrypt_payloads = settings.store.encrypt_payloads.0;
    config.submit_quota = settings.api.submit_quota.0;
    logging::configure(&settings.log, &mut config);
    let address = listener.local_addr().context("cannot read the address of the listener")?;
    notifications.public_url.get_or_insert_with(|| transport.url(address));
    config.notifications = Some(notifications);
    config.events = broker::events(&settings.events)?;
    config.intake = broker::intake(&settings.intake)?;
    config.blobs = blobs;
    let (tracing, exporter) = spans::start(&settings.tracing, origin, &info)?;
    config.tracing = tracing;
    if driven.is_some() {
        // Jumps of a driven clock are intended.
        config.retention_hold = std::time::Duration::ZERO;
    }
    let engine = engine::start(config.clone(), Duties::Everything, &host, &open, participation).await?;
    secrets::warn_of_missing_keys(&config, &*open.store).await;
    let token = admin_token::ensure(&open, &data_dir, &engine, args.new_admin_token).await?;
    let now = engine.now();
    let is_driven = driven.is_some();
    let mut node = Node::new(settings.worker.drain_grace.get());
    let config_mismatch = config_mismatch::watch(&open, &host, &engine, &info, node.draining());
    let mut api = api_of(&engine, &host, &node, info).noticing(config_mismatch).open_to(transport.web());
    api = api.configured_by(args.data_dir.report(&around, &args.settings));
    api = oidc::trusting(api.limited_to(rate_limits(&settings.api)), provider)?;
    if let Some(clock) = driven {
        api = api.driving(clock);
    }
    transport.warn_if_exposed(address);
    let (url, announced) = (transport.url(address), transport.announced(address));
    let mut dashboard = format!("{url}{DASHBOARD_PATH}");
    if let Some(link) = login_link(&data_dir, &host) {
        dashboard = link.address(&dashboard);
        api = api.greeting(link);
    }
    let (socket, bound) = oneshot::channel();
    let listeners = Listeners::new(listener, Some(bound));
    let http = transport.server(&api, &host, listeners, limits(&settings.api), node.stopping());
    api = api.presenting(http.tls.clone());
    tokio::spawn(api.follow_provider());
    node.run_http(http.run(api.router(), node.stopping()));
    let config = worker::config(&settings.worker, worker::name_beside_api(&open), open.is_embedded);
    let worker = Worker::new(config, host.clone(), engine.clone(), executors);
    node.run_worker(worker.on_machine(host::health(data_dir.path())), AfterDrain::GoOn);
    tokio::spawn(scaling::run(hooks, engine.clone(), host.clone(), node.draining()));
    node.run_loops(engine);
    if is_driven {
        engine::worker_connected(&host, &*open.store).await;
    }
    tell_commands(&data_dir, &announced, socket);
    Welcome {
        data_dir: &data_dir,
        store: (!open.is_embedded).then_some(&place),
        config_file: around.file.as_ref().map(|file| file.path.as_path()),
        url: &url,
        dashboard: &dashboard,
        token,
        manual_clock: is_driven.then_some(now),
    }
    .print()?;
    tracing::info!(%address, data_dir = %data_dir.path().display(), store = %place, "serving");
    warn_of_token(token, &data_dir);
    if is_driven {
        tracing::warn!(%now, "the clock is manual: nothing falls due until it is moved, see `punctual clock`");
    }
    let exit = node.until_stopped(&mut signals).await;
    exporter.flush().await;
    data_dir.remove_socket();
    Ok(exit)
}

/// Checks the rules and files of TLS, of the identity provider and of traces, as a start does, and returns warnings.
pub fn check_files(around: &Surroundings) -> Result<Vec<String>, CliError> {
    let certificate = check_certificate(around)?;
    let settings = around.read(&Flags::<ServeSettings>::default())?;
    let public_url = oidc::public_url_warning(&settings.oidc, &settings.address);
    Ok(certificate.into_iter().chain(public_url).collect())
}

/// The same, with the warning about the certificate only.
pub fn check_certificate(around: &Surroundings) -> Result<Option<String>, CliError> {
    let flags = Flags::<ServeSettings>::default();
    let settings = around.read(&flags)?;
    let origin = |key: &str| around.origin(&flags, key);
    let transport = Transport::of(&settings.listener, Some(&settings.api), origin)?;
    let transport = transport.checked(&settings.api.listen.0)?;
    oidc::config(&settings.oidc, origin)?;
    spans::check(&settings.tracing, origin)?;
    Ok(transport.certificate_warning(host::wall_time()))
}

/// The first steps of every role.
fn begin(log: &LogSettings, time: &TimeSettings, unknown: &[String]) -> anyhow::Result<(StopSignals, Host)> {
    logging::start(log)?;
    for unknown in unknown {
        tracing::warn!("{unknown}");
    }
    crate::zones::install(time)?;
    let signals = StopSignals::listen().context("cannot listen for signals")?;
    raise_open_files_limit();
    Ok((signals, host::this_machine().context("cannot read randomness")?))
}

/// Creates the required directories, and refuses to start with a new database where the old one is missing.
fn prepare(data_dir: &DataDir, place: &StorePlace) -> Result<(), CliError> {
    data_dir.prepare()?;
    match place {
        StorePlace::Sqlite(directory) if directory == data_dir.path() => {
            data_dir.must_not_have_lost_database()
        }
        StorePlace::Sqlite(directory) => data_dir::prepare(directory).map_err(|error| {
            let dir = directory.display();
            CliError::cannot_start(format!("store.url names {dir}, which cannot be used: {error}"))
        }),
        StorePlace::Server(_) => Ok(()),
    }
}

/// The part of this process's API that all roles have in common.
/// A link that logs a browser in, for the person at this terminal. No other user sees it: output that a service manager
/// collects contains no secrets.
fn login_link(data_dir: &DataDir, host: &Host) -> Option<LoginLink> {
    let token = data_dir.token().ok().flatten().filter(|_| std::io::stdout().is_terminal())?;
    LoginLink::new(token, host.clock.monotonic()).ok()
}

fn api_of(engine: &Arc<Engine>, host: &Host, node: &Node, info: NodeInfo) -> Api {
    Api::new(engine.clone(), host.clock.clone())
        .on_node(info)
        .ready_until(node.draining())
        .streaming_until(node.stopping())
}

/// Opens the way for commands to this server. If that fails, as on a full disk, the server continues.
fn tell_commands(data_dir: &DataDir, address: &str, socket: oneshot::Sender<UnixListener>) {
    // Without a receiver the server is stopping.
    let serve = |listener| drop(socket.send(listener));
    match data_dir.announce(address, serve) {
        Ok(Announced::Now) => {}
        Ok(Announced::Later) => tracing::info!(
            "another server runs in this data directory: until it ends, commands find this one only with --server {address} \
             and a token"
        ),
        Err(error) => {
            tracing::warn!("{error:#}: commands find this server only with --server {address} and a token");
        }
    }
}

fn warn_of_token(token: AdminToken, data_dir: &DataDir) {
    let file = data_dir.token_file();
    match token {
        AdminToken::Usual => {}
        AdminToken::Replaced => {
            tracing::warn!(file = %file.display(), "created a new admin token; the old one no longer works");
        }
        AdminToken::Elsewhere => tracing::warn!(
            file = %file.display(),
            "another server created the admin token of this store: copy its admin.token here for commands on this \
             machine, or create a new one with --new-admin-token"
        ),
        AdminToken::Revoked => tracing::warn!(
            "the admin token was revoked: commands on this machine need a token of their own; --new-admin-token creates \
             a new one"
        ),
    }
}

/// Warns of passwords in a flag or in a file that others can read. `origin` returns where a setting was
/// found.
fn warn_of_seen_passwords(
    place: &StorePlace,
    coordination: &CoordinationSettings,
    broker: &BrokerSettings,
    origin: impl Fn(&str) -> String,
) {
    let of_services = [
        coordination.url.seen_password(&origin("coordination.url")),
        broker.url.seen_password(&origin("broker.url"), "broker.password_file or PUNCTUAL_BROKER"),
    ];
    for warning in place.warnings(&origin("store.url")).into_iter().chain(of_services.into_iter().flatten()) {
        tracing::warn!("{warning}");
    }
}

/// The same for the broker in a table of the settings.
fn warn_of_seen_password(url: &BrokerUrl, table: &str, origin: impl Fn(&str) -> String) {
    let instead = format!("{table}.password_file or PUNCTUAL_{}", table.to_uppercase());
    if let Some(warning) = url.seen_password(&origin(&format!("{table}.url")), &instead) {
        tracing::warn!("{warning}");
    }
}

/// Raises the limit of open files to the maximum: the usual soft limit of 1,024 is less than the server's
/// connections.
fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
}
