//! `punctual api`: serves requests, hands work to workers that poll over HTTP, and fires what it has
//! committed itself and is due at once. Runs no handlers, and leaves everything else to schedulers.

use super::engine::store_time;
use super::listener::{limits, listen_before_creating, node_info, rate_limits};
use super::node::Node;
use super::transport::Transport;
use super::welcome::Welcome;
use super::{
    admin_token, api_of, begin, config_mismatch, engine, logging, notifications, oidc, tell_commands,
    warn_of_seen_password, warn_of_seen_passwords, warn_of_token,
};
use crate::blobs;
use crate::broker;
use crate::coordination;
use crate::secrets::{self, SecretsKeyArg};
use crate::spans;
use crate::store::{self, PasswordArg, StorePlace};
use anyhow::Context;
use punctual_api::{DASHBOARD_PATH, Listeners};
use punctual_config::data_dir::DataDirArgs;
use punctual_config::exit::Exit;
use punctual_config::{ApiRoleSettings, Flags};
use punctual_engine::{Duties, EngineConfig};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(clap::Args)]
pub struct ApiArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,
    #[command(flatten)]
    settings: Flags<ApiRoleSettings>,
    #[command(flatten)]
    password: PasswordArg,
    #[command(flatten)]
    secrets_key: SecretsKeyArg,
    /// Replace the admin token with a new one
    #[arg(long)]
    new_admin_token: bool,
}

pub async fn run(args: ApiArgs, unknown: &[String]) -> anyhow::Result<Exit> {
    let around = args.data_dir.surroundings()?;
    let data_dir = args.data_dir.within(&around)?;
    let settings = around.read(&args.settings)?;
    let place = StorePlace::of(&settings.store, &args.password, data_dir.path())?;
    place.must_be_shared("api")?;
    let (mut signals, host) = begin(&settings.log, &settings.time, unknown)?;
    let origin = |key: &str| around.origin(&args.settings, key);
    let transport =
        Transport::of(&settings.listener, Some(&settings.api), origin)?.known_as(&settings.address);
    let provider = oidc::config(&settings.oidc, origin)?;
    let mut transport = transport.checked(&settings.api.listen.0)?;
    let cipher = secrets::cipher(&settings.store, &settings.secrets, &args.secrets_key, &place)?;
    warn_of_seen_passwords(&place, &settings.coordination, &settings.broker, origin);
    warn_of_seen_password(&settings.intake.url, "intake", origin);
    listen_before_creating(&mut transport, data_dir.path(), &settings.api.listen.0).await?;
    data_dir.prepare()?;
    let mut open = store::open(&place, settings.logs.total_size_max, &host).await?;
    broker::attach(&settings.broker, &mut open).await?;
    let listener = transport.listen(&settings.api.listen.0, "--listen").await?;
    let info = node_info(&open, &settings.coordination, &["api"], Some(&listener), store_time(&open).await?);
    let participation = coordination::participation(&settings.coordination, &open, &host, &info)?;
    let notifications = notifications::config((&settings.notify, &settings.address), origin, &host)?;
    let (tracing, exporter) = spans::start(&settings.tracing, origin, &info)?;
    let mut config = EngineConfig {
        tracing,
        notifications: Some(notifications),
        member_ttl: settings.coordination.ttl.get(),
        submit_quota: settings.api.submit_quota.0,
        secret_cipher: Some(cipher),
        encrypt_payloads: settings.store.encrypt_payloads.0,
        intake: broker::intake(&settings.intake)?,
        blobs: blobs::config(&settings.blobs, &place)?,
        ..EngineConfig::default()
    };
    logging::configure(&settings.log, &mut config);
    let engine = engine::start(config.clone(), Duties::OwnCommits, &host, &open, participation).await?;
    secrets::warn_of_missing_keys(&config, &*open.store).await;
    let token = admin_token::ensure(&open, &data_dir, &engine, args.new_admin_token).await?;
    let mut node = Node::new(Duration::ZERO);
    let config_mismatch = config_mismatch::watch(&open, &host, &engine, &info, node.draining());
    let api = api_of(&engine, &host, &node, info).noticing(config_mismatch).open_to(transport.web());
    let api = api.configured_by(args.data_dir.report(&around, &args.settings));
    let api = oidc::trusting(api.limited_to(rate_limits(&settings.api)), provider)?;
    let address = listener.local_addr().context("cannot read the address of the listener")?;
    transport.warn_if_exposed(address);
    let (url, announced) = (transport.url(address), transport.announced(address));
    let (socket, bound) = oneshot::channel();
    let listeners = Listeners::new(listener, Some(bound));
    let http = transport.server(&api, &host, listeners, limits(&settings.api), node.stopping());
    let api = api.presenting(http.tls.clone());
    tokio::spawn(api.follow_provider());
    node.run_http(http.run(api.router(), node.stopping()));
    node.run_loops(engine);
    tell_commands(&data_dir, &announced, socket);
    let config_file = around.file.as_ref().map(|file| file.path.as_path());
    let store = Some(&place);
    let dashboard = &format!("{url}{DASHBOARD_PATH}");
    Welcome { data_dir: &data_dir, store, config_file, url: &url, dashboard, token, manual_clock: None }
        .print()?;
    tracing::info!(%address, store = %place, "taking requests");
    warn_of_token(token, &data_dir);
    let exit = node.until_stopped(&mut signals).await;
    exporter.flush().await;
    data_dir.remove_socket();
    Ok(exit)
}
