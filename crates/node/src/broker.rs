//! Brokers: they wake the processes on one store, carry events to other systems, and bring jobs from them. The only place
//! that names those adapters.

use crate::store::OpenStore;
use punctual_api::MessageJobs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::{BrokerSettings, BrokerUrl, EventSettings, IntakeSettings};
use punctual_core::ports::{ReadyQueue, Store};
use punctual_engine::{EventsConfig, IntakeConfig, cluster_key};
use punctual_queue::{BrokerOptions, BrokerQueue, QueueMember, SettingNames, event_sink, message_source};
use std::path::Path;
use std::sync::Arc;

/// Uses the broker for the hints between processes, instead of those of the store. Does not connect yet: a process
/// starts without its broker, and polls the database until it is there.
pub async fn attach(settings: &BrokerSettings, open: &mut OpenStore) -> Result<(), CliError> {
    let Some(options) =
        with_password(&settings.url, settings.password_file.as_deref(), SettingNames::BROKER)?
    else {
        return Ok(());
    };
    let Some(shared) = &open.shared else {
        return Err(misunderstood(
            "broker.url is for processes that share a store, but the embedded SQLite store is used by a single one: remove \
             it, or choose a PostgreSQL or MySQL database with --store",
        ));
    };
    let key = key(&*open.store).await.map_err(|error| {
        CliError::cannot_start(format!(
            "cannot read the key of the cluster for messages to the broker: {error}"
        ))
    })?;
    let sender = u128::from_le_bytes(random()?);
    let sender = format!("{sender:032x}");
    // Prefixed with the id of the database, so that clusters on different databases do not wake each other.
    let queue = BrokerQueue::new(&options.clone().below(&shared.cluster), QueueMember { sender, key })
        .map_err(|error| CliError::cannot_start(format!("broker.url {options}: {error}")))?;
    open.ready_queue = Some(Arc::new(queue) as Arc<dyn ReadyQueue>);
    Ok(())
}

async fn key(store: &dyn Store) -> anyhow::Result<[u8; 32]> {
    let now = store.clock().await?;
    Ok(cluster_key(store, now, random()?).await?)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], CliError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| CliError::cannot_start(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}

/// What publishes events, or `None`. Does not connect yet.
pub fn events(settings: &EventSettings) -> Result<Option<EventsConfig>, CliError> {
    let names = SettingNames::EVENTS;
    let Some(options) = with_password(&settings.url, settings.password_file.as_deref(), names)? else {
        return Ok(None);
    };
    if settings.types.is_empty() {
        return Err(misunderstood("events.types is empty: name at least one type, or remove events.url"));
    }
    let topic =
        settings.topic.as_ref().map_or_else(|| format!("{}.events", options.prefix), |topic| topic.0.clone());
    let sink = event_sink(&options, &topic)
        .map_err(|error| CliError::cannot_start(format!("{} {options}: {error}", names.url)))?;
    Ok(Some(EventsConfig {
        sink,
        types: settings.types.iter().map(|kind| kind.0).collect(),
        source: settings.source.0.clone(),
        with_payloads: settings.payloads.0,
    }))
}

/// What receives jobs, or `None`. Does not connect yet.
pub fn intake(settings: &IntakeSettings) -> Result<Option<IntakeConfig>, CliError> {
    let names = SettingNames::INTAKE;
    let Some(options) = with_password(&settings.url, settings.password_file.as_deref(), names)? else {
        return Ok(None);
    };
    let Some(owner) = &settings.owner else {
        return Err(misunderstood("intake.url needs intake.owner: the owner of the jobs in messages"));
    };
    let place =
        settings.topic.as_ref().map_or_else(|| format!("{}.jobs", options.prefix), |topic| topic.0.clone());
    let consumer = format!("{:032x}", u128::from_le_bytes(random()?));
    let source = message_source(&options, &place, &consumer)
        .map_err(|error| CliError::cannot_start(format!("{} {options}: {error}", names.url)))?;
    let reader = Arc::new(MessageJobs { place });
    Ok(Some(IntakeConfig { source, reader, owner: owner.0.clone() }))
}

fn with_password(
    url: &BrokerUrl,
    password_file: Option<&Path>,
    names: SettingNames,
) -> Result<Option<BrokerOptions>, CliError> {
    let options = match password_file {
        None => url.options().cloned(),
        Some(file) => {
            let text = crate::password_file::read(names.password_file, file)?;
            Some(url.with_password(&text).ok_or_else(|| {
                misunderstood(&format!(
                    "{} needs a user in {}: write it as SCHEME://USER@HOST",
                    names.password_file, names.url
                ))
            })?)
        }
    };
    Ok(options.map(|options| options.configured_as(names)))
}

fn misunderstood(message: &str) -> CliError {
    CliError { exit: Exit::Misunderstood, message: message.to_owned() }
}
