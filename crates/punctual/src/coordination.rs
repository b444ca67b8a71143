//! The coordination backend of the processes on one store: the only place that names those adapters.

use crate::config::CoordinationSettings;
use crate::config::value::{Raw, Value};
use crate::exit::{CliError, Exit};
use crate::store::{OpenStore, SharedSide};
use punctual_api::NodeInfo;
use punctual_coordination::{CoordinationOptions, Secret, StoreSide, UrlError};
use punctual_core::cluster::Card;
use punctual_core::ports::Host;
use punctual_core::recurrence::tzdb_version;
use punctual_engine::Seat;
use serde_json::Value as Json;

const FORMS: &str = "store, etcd://HOST:2379, redis://HOST:6379 or zookeeper://HOST:2181";

/// The value of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinationUrl(CoordinationOptions);

impl Value for CoordinationUrl {
    fn kind() -> String {
        FORMS.to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| format!("must be {FORMS}"))?;
        let options: CoordinationOptions = text.parse().map_err(|error: UrlError| error.to_string())?;
        match raw {
            Raw::Text(_) if has_password(&options) => {
                Err("must not contain the password: write it to a separate file, and set coordination.password_file to its \
                 path"
                    .to_owned())
            }
            _ => Ok(CoordinationUrl(options)),
        }
    }

    /// A malformed value may contain a password anywhere.
    fn found(_: &Raw) -> Option<String> {
        None
    }

    fn written(&self) -> Json {
        self.0.to_string().into()
    }
}

/// The backend that needs no other service.
pub const STORE: &str = "store";

impl CoordinationUrl {
    /// The name of the service, without its address, which may be secret.
    pub const fn kind(&self) -> &'static str {
        match self.0 {
            CoordinationOptions::Store => STORE,
            CoordinationOptions::Etcd(_) => "etcd",
            CoordinationOptions::Redis(_) => "redis",
            CoordinationOptions::ZooKeeper(_) => "zookeeper",
        }
    }
}

fn password(options: &mut CoordinationOptions) -> Option<&mut Secret> {
    let login = match options {
        CoordinationOptions::Store => return None,
        CoordinationOptions::Etcd(options) => &mut options.login,
        CoordinationOptions::Redis(options) => &mut options.login,
        CoordinationOptions::ZooKeeper(options) => &mut options.login,
    };
    login.as_mut().map(|login| &mut login.password)
}

/// A warning if other users of this machine can see the password. `origin` is where the URL was found.
pub fn seen_password(settings: &CoordinationSettings, origin: &str) -> Option<String> {
    let instead = "coordination.password_file or PUNCTUAL_COORDINATION";
    has_password(&settings.url.0).then(|| crate::config::seen_password(origin, instead)).flatten()
}

fn has_password(options: &CoordinationOptions) -> bool {
    password(&mut options.clone()).is_some_and(|password| !password.0.is_empty())
}

/// This process's membership in the cluster of its store; `None` where the store is not shared.
pub fn seat(
    settings: &CoordinationSettings,
    open: &OpenStore,
    host: &Host,
    info: &NodeInfo,
) -> Result<Option<Seat>, CliError> {
    let Some(SharedSide { register, cluster }) = open.shared.clone() else {
        return match settings.url.0 {
            CoordinationOptions::Store => Ok(None),
            _ => Err(misunderstood(
                "coordination.url is for processes that share a store, but the embedded SQLite store is used by a single one: \
                 remove it, or choose a PostgreSQL or MySQL database with --store",
            )),
        };
    };
    // No caller waits longer than a third of the TTL for a call; a silent host is reported before that.
    let options = with_password(settings)?.answering_within(settings.ttl.get() / 4);
    let store = StoreSide { register, clock: host.clock.clone() };
    // Prefixed with the id of the database, so that clusters on different databases never take each other's
    // segments.
    let coordination = punctual_coordination::open(&options.clone().below(&cluster), store)
        .map_err(|error| CliError::cannot_start(format!("coordination.url {options}: {error}")))?;
    Ok(Some(Seat { coordination, card: card(info) }))
}

fn with_password(settings: &CoordinationSettings) -> Result<CoordinationOptions, CliError> {
    let mut options = settings.url.0.clone();
    let Some(file) = &settings.password_file else { return Ok(options) };
    let wrong =
        |why: String| CliError::cannot_start(format!("coordination.password_file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(wrong("the file is empty".to_owned()));
    }
    if let Ok(Some(exposed)) = crate::config::exposure(file) {
        tracing::warn!("{exposed}");
    }
    match password(&mut options) {
        Some(password) => text.clone_into(&mut password.0),
        None => {
            let why =
                "coordination.password_file needs a user in coordination.url: write it as SCHEME://USER@HOST";
            return Err(misunderstood(why));
        }
    }
    Ok(options)
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

    fn read(text: &str) -> Result<CoordinationUrl, String> {
        CoordinationUrl::read(&Raw::word(text))
    }

    #[test]
    fn a_url_is_shown_without_its_password_and_what_is_wrong_is_not_repeated() {
        let url = read("redis://ann:secret@host").unwrap();
        assert!(!url.written().to_string().contains("secret"), "{}", url.written());
        let error = read("consul://ann:secret@host").unwrap_err();
        assert!(error.contains("etcd://HOST:2379") && !error.contains("secret"), "{error}");
        assert_eq!(CoordinationUrl::found(&Raw::word("redis://ann:secret@host")), None);
    }

    #[test]
    fn a_password_in_a_flag_is_seen_by_everybody() {
        let settings = |url: &str| CoordinationSettings {
            url: read(url).unwrap(),
            password_file: None,
            ttl: Value::read(&Raw::word("3s")).unwrap(),
        };
        let seen = seen_password(&settings("redis://ann:secret@host"), "--coordination").unwrap();
        assert_eq!(
            seen,
            "all users of this machine can see the password in --coordination: use coordination.password_file or \
             PUNCTUAL_COORDINATION"
        );
        for (url, origin) in [
            ("redis://ann@host", "--coordination"),
            ("store", "--coordination"),
            ("redis://ann:secret@host", "PUNCTUAL_COORDINATION"),
        ] {
            assert_eq!(seen_password(&settings(url), origin), None, "{url} in {origin}");
        }
    }

    #[test]
    fn a_password_does_not_belong_in_the_configuration_file() {
        let error = CoordinationUrl::read(&Raw::Text("redis://ann:secret@host".to_owned())).unwrap_err();
        assert!(error.contains("coordination.password_file") && !error.contains("secret"), "{error}");
        assert!(CoordinationUrl::read(&Raw::Text("redis://ann@host".to_owned())).is_ok());
    }

    #[test]
    fn the_password_of_the_user_in_the_url_comes_from_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("password");
        std::fs::write(&file, "secret\n").unwrap();
        let settings = |url: &str| CoordinationSettings {
            url: read(url).unwrap(),
            password_file: Some(file.clone()),
            ttl: crate::config::value::Value::read(&Raw::word("3s")).unwrap(),
        };
        let mut options = with_password(&settings("etcd://ann@host")).unwrap();
        assert_eq!(password(&mut options).unwrap().0, "secret");
        let error = with_password(&settings("etcd://host")).unwrap_err();
        assert!(error.message.contains("USER@HOST"), "{}", error.message);
    }
}
