//! Configuration and what all commands share. One table of settings, from which flags, variables,
//! `punctual.toml`, its template and the reference page are generated, and `punctual config`; the data
//! directory; arguments, output and exit codes. This crate does not know what settings do, nor any store,
//! engine or API.

mod allowed;
pub mod args;
mod blob_url;
mod broker_url;
mod choices;
pub mod connect;
pub mod contexts;
mod coordination_url;
pub mod data_dir;
pub mod exit;
mod file;
pub mod handover;
pub mod hints;
mod layers;
mod log_level;
mod oidc;
pub mod output;
mod page;
mod rates;
mod run_as;
mod secret_file;
mod settings;
pub mod store_url;
pub mod suggest;
mod tracing_values;
mod trust;
pub mod value;
mod variables;
mod web;

pub use allowed::{Allowed, AllowedNetwork, CommandChannel, ConfiguredChannel};
pub use blob_url::BlobUrl;
pub use broker_url::{BrokerUrl, PublishedTypeName, Topic};
pub use choices::{ClientAuth, ClockKind, LogFormat};
pub use coordination_url::{COORDINATION_BY_STORE, CoordinationUrl};
pub use file::{ConfigFile, USUAL_FILE};
pub use layers::{ConfigFlag, Flags, Surroundings, refusal};
pub use log_level::LogLevels;
pub use oidc::{IssuerUrl, PublicUrl, RoleMapping, Text};
pub use rates::{PerSecond, PerTime};
pub use run_as::{QueueUser, RunAs};
pub use secret_file::{exposure, foreign_hand, foreign_keys, seen_password};
pub use settings::{
    AddressSettings, ApiRoleSettings, ApiSettings, BlobSettings, BrokerSettings, ClientSettings,
    ClockSettings, CoordinationSettings, DataPlace, EventSettings, IntakeSettings, ListenerSettings,
    LogSettings, NotificationSettings, OidcSettings, RoleSettings, SchedulerRoleSettings, SchedulerSettings,
    SecretsSettings, ServeSettings, StoreSettings, TimeSettings, TracingSettings, WorkerRoleSettings,
    WorkerSettings,
};
pub use tracing_values::{CollectorUrl, Ratio};
pub use value::SizeMax;
pub use variables::unknown_variables;
pub use web::{HostName, Switch, WebOrigin};

use crate::exit::{CliError, Exit};
use crate::output::{OutputArgs, table};
use crate::store_url::StoreUrl;
use clap::Subcommand;
use layers::{ConfigProblem, Source};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Print a configuration file with every setting, its default and what it does
    Template,
    /// Show the effective settings and the source of each value
    Show(ShowArgs),
    /// Report all problems in a configuration file
    Check(CheckArgs),
    /// Print the reference page
    #[command(hide = true)]
    Reference,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    config: ConfigFlag,
    #[command(flatten)]
    place: Flags<DataPlace>,
    #[command(flatten)]
    roles: Flags<RoleSettings>,
    #[command(flatten)]
    client: Flags<ClientSettings>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct CheckArgs {
    /// The file to check; by default the one that a server would read
    file: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigFlag,
}

/// The output of `config show`.
#[derive(Serialize)]
struct ConfigReport {
    /// The file that was read.
    file: Option<PathBuf>,
    settings: Vec<ShownSetting>,
}

#[derive(Serialize)]
struct ShownSetting {
    key: &'static str,
    value: serde_json::Value,
    #[serde(flatten)]
    source: Source,
}

/// `check_files` checks what settings refer to.
pub fn run(
    command: ConfigCommand,
    check_files: impl FnOnce(&Surroundings) -> Result<Vec<String>, CliError>,
) -> anyhow::Result<Exit> {
    match command {
        ConfigCommand::Template => output::print_raw(&page::template())?,
        ConfigCommand::Reference => output::print_raw(&page::reference())?,
        ConfigCommand::Show(args) => args.output.print(&show(&args)?, shown_table)?,
        ConfigCommand::Check(args) => check(args, check_files)?,
    }
    Ok(Exit::Done)
}

fn show(args: &ShowArgs) -> Result<ConfigReport, CliError> {
    let around = Surroundings::find(&args.config)?;
    // Invalid values are reported instead of shown.
    around.read(&args.place)?;
    around.read(&args.roles)?.serve.check()?;
    around.read(&args.client)?;
    let mut rows = around.sources(&args.place);
    rows.extend(around.sources(&args.roles));
    rows.extend(around.sources(&args.client));
    let shown = |(setting, value, source): (&'static settings::Setting, _, _)| ShownSetting {
        key: setting.key,
        value,
        source,
    };
    Ok(ConfigReport {
        file: around.file.map(|file| file.path),
        settings: rows.into_iter().map(shown).collect(),
    })
}

fn shown_table(shown: &ConfigReport) -> String {
    let value = |setting: &ShownSetting| match &setting.value {
        serde_json::Value::Null => "-".to_owned(),
        value => page::toml(value),
    };
    let rows = shown
        .settings
        .iter()
        .map(|setting| vec![setting.key.to_owned(), value(setting), setting.source.to_string()]);
    let file = match &shown.file {
        Some(file) => format!("configuration file: {}", file.display()),
        None => format!(
            "no configuration file: {USUAL_FILE} does not exist in this directory, and none was given"
        ),
    };
    format!("{}\n\n{file}", table(&["SETTING", "VALUE", "FROM"], rows))
}

fn check(
    args: CheckArgs,
    check_files: impl FnOnce(&Surroundings) -> Result<Vec<String>, CliError>,
) -> anyhow::Result<()> {
    let config = args.file.map_or(args.config, ConfigFlag::naming);
    // Only the file: variables and flags do not matter here.
    let Some(file) = config.read().map_err(|problems| refusal(&problems))? else {
        let message = format!(
            "{USUAL_FILE} does not exist in this directory; pass a file, or create one with `punctual config template`"
        );
        return Err(CliError::not_found(message).into());
    };
    let path = file.path.clone();
    let alone = Surroundings { variables: Default::default(), file: Some(file) };
    alone.read(&Flags::<RoleSettings>::default())?.serve.check()?;
    for warning in check_files(&alone)? {
        output::tell(&format!("warning: {warning}"));
    }
    output::print_text(&format!("{} is valid", path.display()))
}

impl ServeSettings {
    /// Checks across several values: whether they fit together.
    pub fn check(&self) -> Result<(), CliError> {
        let is_manual = self.clock.clock == ClockKind::Manual;
        if self.clock.clock_start.is_some() && !is_manual {
            let message =
                "only valid with a manual clock: add --clock manual, or clock = \"manual\" to the file"
                    .to_owned();
            return Err(refusal(&[ConfigProblem::new("clock_start", message)]));
        }
        if let (true, Some(StoreUrl::Server(url))) = (is_manual, &self.store.url) {
            let message = format!(
                "a manual clock is only for the embedded store, which a single process uses; other processes on {url} would \
                 use a different time"
            );
            return Err(refusal(&[ConfigProblem::new("clock", message)]));
        }
        Ok(())
    }
}
