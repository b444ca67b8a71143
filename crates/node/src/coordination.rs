//! The coordination backend of the processes on one store: the only place that names those adapters.

use crate::store::{OpenStore, SharedSide};
use punctual_api::NodeInfo;
use punctual_config::CoordinationSettings;
use punctual_config::exit::{CliError, Exit};
use punctual_coordination::{CoordinationOptions, StoreSide};
use punctual_core::cluster::Card;
use punctual_core::ports::Host;
use punctual_core::recurrence::tzdb_version;
use punctual_engine::ClusterParticipation;

/// This process's membership in the cluster of its store; `None` where the store is not shared.
pub fn participation(
    settings: &CoordinationSettings,
    open: &OpenStore,
    host: &Host,
    info: &NodeInfo,
) -> Result<Option<ClusterParticipation>, CliError> {
    let Some(SharedSide { membership_table, cluster }) = open.shared.clone() else {
        return match settings.url.options() {
            CoordinationOptions::Store => Ok(None),
            _ => Err(misunderstood(
                "coordination.url is for processes that share a store, but the embedded SQLite store is used by a single one: \
                 remove it, or choose a PostgreSQL or MySQL database with --store",
            )),
        };
    };
    // No caller waits longer than a third of the TTL for a call; a silent host is reported before that.
    let options = with_password(settings)?.answering_within(settings.ttl.get() / 4);
    let store = StoreSide { membership_table, clock: host.clock.clone() };
    // Prefixed with the id of the database, so that clusters on different databases never take each other's
    // segments.
    let coordination = punctual_coordination::open(&options.clone().below(&cluster), store)
        .map_err(|error| CliError::cannot_start(format!("coordination.url {options}: {error}")))?;
    Ok(Some(ClusterParticipation { coordination, card: card(info) }))
}

fn with_password(settings: &CoordinationSettings) -> Result<CoordinationOptions, CliError> {
    let Some(file) = &settings.password_file else { return Ok(settings.url.options().clone()) };
    let text = crate::password_file::read("coordination.password_file", file)?;
    settings.url.with_password(&text).ok_or_else(|| {
        misunderstood(
            "coordination.password_file needs a user in coordination.url: write it as SCHEME://USER@HOST",
        )
    })
}

/// This process's description of itself for its peers.
pub fn card(info: &NodeInfo) -> Card {
    Card {
        node_id: info.id.clone(),
        roles: info.roles.clone(),
        host: info.host.clone(),
        address: info.address.clone(),
        version: info.version.clone(),
        pid: info.pid,
        started_at: info.started_at,
        tzdb_version: tzdb_version().to_owned(),
        store: info.store.clone(),
        schema_version: info.schema_version as u32,
        coordination: info.coordination.clone(),
        ..Card::default()
    }
}

fn misunderstood(message: &str) -> CliError {
    CliError { exit: Exit::Misunderstood, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_config::value::{Raw, Value};

    #[test]
    fn the_password_of_the_user_in_the_url_comes_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let settings = |url: &str| CoordinationSettings {
            url: Value::read(&Raw::word(url)).unwrap(),
            password_file: Some(file.clone()),
            ttl: Value::read(&Raw::word("3s")).unwrap(),
        };
        let CoordinationOptions::Etcd(options) = with_password(&settings("etcd://ann@host")).unwrap() else {
            panic!("the URL names etcd");
        };
        assert_eq!(options.login.unwrap().password.0, "secret");
        let error = with_password(&settings("etcd://host")).unwrap_err();
        assert!(error.message.contains("USER@HOST"), "{}", error.message);
    }
}
