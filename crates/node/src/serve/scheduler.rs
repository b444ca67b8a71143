//! `punctual scheduler`: fires what is due, recovers the executions of lost workers, and deletes what has
//! exceeded its retention. Any number may run on one store: they divide the segments among themselves, and
//! one leads. Every change is a compare-and-swap, so nothing is done twice.

use super::engine::store_time;
use super::listener::node_info;
use super::node::Node;
use super::scaling::{self, Hook};
use super::transport::Transport;
use super::{
    api_of, begin, config_mismatch, engine, logging, notifications, retention, warn_of_seen_password,
    warn_of_seen_passwords,
};
use crate::blobs;
use crate::broker;
use crate::coordination;
use crate::secrets::{self, SecretsKeyArg};
use crate::spans;
use crate::store::{self, PasswordArg, StorePlace};
use anyhow::Context;
use punctual_api::{Listeners, ServerLimits};
use punctual_config::data_dir::DataDirArgs;
use punctual_config::exit::Exit;
use punctual_config::output;
use punctual_config::{Flags, SchedulerRoleSettings};
use punctual_engine::Duties;
use std::time::Duration;

/// The default address of a scheduler's health endpoints.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7071";

#[derive(clap::Args)]
pub struct SchedulerArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    settings: Flags<SchedulerRoleSettings>,
    #[command(flatten)]
    password: PasswordArg,
    #[command(flatten)]
    secrets_key: SecretsKeyArg,
}

pub async fn run(args: SchedulerArgs, unknown: &[String]) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let data_dir = args.data_dir.within(&around)?;
    let settings = around.read(&args.settings)?;
    let place = StorePlace::of(&settings.store, &args.password, data_dir.path())?;
    place.must_be_shared("scheduler")?;
    let (mut signals, host) = begin(&settings.log, &settings.time, unknown)?;
    let hooks = Hook::read_all(settings.scheduler.scaling_hooks_file.as_deref())?;
    let origin = |key: &str| around.origin(&args.settings, key);
    let address = settings.health.listen.as_ref().map_or(DEFAULT_ADDRESS, |address| address.0.as_str());
    let mut transport = Transport::of(&settings.listener, None, origin)?.checked(address)?;
    warn_of_seen_passwords(&place, &settings.coordination, &settings.broker, origin);
    warn_of_seen_password(&settings.events.url, "events", origin);
    let mut open = store::open(&place, settings.logs.total_size_max, &host).await?;
    broker::attach(&settings.broker, &mut open).await?;
    let listener = transport.listen(address, "--health-listen").await?;
    let info =
        node_info(&open, &settings.coordination, &["scheduler"], Some(&listener), store_time(&open).await?);
    let participation = coordination::participation(&settings.coordination, &open, &host, &info)?;
    let mut config = retention::config(&settings.scheduler, &settings.coordination);
    // For the secrets of channels.
    config.secret_cipher =
        Some(secrets::cipher(&settings.store, &settings.secrets, &args.secrets_key, &place)?);
    config.encrypt_payloads = settings.store.encrypt_payloads.0;
    config.notifications = Some(notifications::config((&settings.notify, &settings.address), origin, &host)?);
    logging::configure(&settings.log, &mut config);
    config.events = broker::events(&settings.events)?;
    config.blobs = blobs::config(&settings.blobs, &place)?;
    let (tracing, exporter) = spans::start(&settings.tracing, origin, &info)?;
    config.tracing = tracing;
    let engine = engine::start(config, Duties::Everything, &host, &open, participation).await?;
    let mut node = Node::new(Duration::ZERO);
    let config_mismatch = config_mismatch::watch(&open, &host, &engine, &info, node.draining());
    let api = api_of(&engine, &host, &node, info).noticing(config_mismatch).open_to(transport.web());
    let address = listener.local_addr().context("cannot read the address of the listener")?;
    transport.warn_if_exposed(address);
    let url = transport.url(address);
    let http = transport.server(
        &api,
        &host,
        Listeners::new(listener, None),
        ServerLimits::default(),
        node.stopping(),
    );
    node.run_http(http.run(api.health_router(), node.stopping()));
    tokio::spawn(scaling::run(hooks, engine.clone(), host.clone(), node.draining()));
    node.run_loops(engine);
    let version = env!("CARGO_PKG_VERSION");
    output::print_raw(&format!("Punctual {version} schedules on {place}, health checks on {url}"))?;
    tracing::info!(%address, store = %place, "scheduling");
    let exit = node.until_stopped(&mut signals).await;
    exporter.flush().await;
    Ok(exit)
}
