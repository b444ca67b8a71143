//! What sends notifications, by the operator's settings.

use crate::password_file;
use punctual_config::exit::{CliError, Exit};
use punctual_config::{AddressSettings, AllowedNetwork, ConfiguredChannel, NotificationSettings};
use punctual_core::notify::{Channel, ChannelSecret, ChannelType};
use punctual_core::ports::Host;
use punctual_core::time::Timestamp;
use punctual_engine::NotificationConfig;
use punctual_outbound::Allow;
use punctual_outbound::channels::{ChannelSender, ChannelsConfig};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The configuration of a process, whose links lead to `public_url` by default. `origin` returns where a setting comes from, for errors.
pub fn config(
    (settings, address): (&NotificationSettings, &AddressSettings),
    origin: impl Fn(&str) -> String,
    host: &Host,
) -> Result<NotificationConfig, CliError> {
    let allow = settings.allow.iter().map(allowed).collect::<Result<Vec<Allow>, CliError>>()?;
    let wrong = |error: &dyn std::fmt::Display| {
        let file = settings.ca_file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
        CliError::cannot_start(format!("{} {file}: {error}", origin("notify.ca_file")))
    };
    let root_certificates_pem = match &settings.ca_file {
        Some(file) => std::fs::read(file).map_err(|error| wrong(&error))?,
        None => vec![],
    };
    let commands = settings.commands.iter().map(|channel| {
        let command = Channel {
            command: channel.command.clone(),
            ..Channel::new(ChannelType::Command, Timestamp::EPOCH)
        };
        Ok((channel.name.clone(), command))
    });
    let others = settings.channels.iter().map(|channel| configured(channel, &origin("notify.channels")));
    let configured: Vec<(String, Channel)> = commands.chain(others).collect::<Result<_, CliError>>()?;
    let mut names = BTreeSet::new();
    if let Some((name, _)) = configured.iter().find(|(name, _)| !names.insert(name)) {
        let message = format!("{}: two channels have the name {name}", origin("notify.channels"));
        return Err(CliError::cannot_start(message));
    }
    let config = ChannelsConfig { allow, root_certificates_pem, configured };
    let sender = ChannelSender::new(config, host).map_err(|error| wrong(&error))?;
    Ok(NotificationConfig {
        notifier: Arc::new(sender),
        window: settings.window.get(),
        repeat: settings.repeat.get(),
        heartbeat_url: heartbeat_url(settings, &origin)?,
        public_url: settings.link_url.as_ref().or(address.public_url.as_ref()).map(|url| url.0.clone()),
    })
}

/// The URL of the heartbeat, from its setting or its file.
fn heartbeat_url(
    settings: &NotificationSettings,
    origin: impl Fn(&str) -> String,
) -> Result<Option<String>, CliError> {
    match (&settings.heartbeat_url, &settings.heartbeat_url_file) {
        (Some(_), Some(_)) => Err(CliError {
            exit: Exit::Misunderstood,
            message: format!(
                "{} conflicts with {}: set one of them",
                origin("notify.heartbeat_url"),
                origin("notify.heartbeat_url_file")
            ),
        }),
        (Some(url), None) => Ok(Some(url.0.clone())),
        (None, Some(file)) => password_file::read("notify.heartbeat_url_file", file).map(Some),
        (None, None) => Ok(None),
    }
}

/// A channel of the configuration file, with the values of its files.
fn configured(given: &ConfiguredChannel, origin: &str) -> Result<(String, Channel), CliError> {
    let ConfiguredChannel { name, channel, files } = given;
    let wrong = |message: String| CliError::cannot_start(format!("{origin}: channel {name}: {message}"));
    let mut channel = channel.clone().channel(Timestamp::EPOCH);
    for (field, value) in channel.secrets_mut() {
        let Some(file) = files.get(field) else { continue };
        let text = std::fs::read_to_string(file)
            .map_err(|error| wrong(format!("cannot read {field}_file {}: {error}", file.display())))?;
        *value = Some(ChannelSecret::Plain(text.trim_end().to_owned()));
    }
    match channel.problems(name).first() {
        Some(problem) => Err(wrong(format!("{} {}", problem.field, problem.fix))),
        None => Ok((name.clone(), channel)),
    }
}

fn allowed(network: &AllowedNetwork) -> Result<Allow, CliError> {
    let wrong = |error| CliError::cannot_start(format!("notify.allow {}: {error}", network.0));
    network.0.parse().map_err(wrong)
}
