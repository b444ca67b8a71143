//! The listener of a process, and its description of itself.

use super::transport::Transport;
use crate::store::OpenStore;
use punctual_api::{NodeInfo, RateLimits, ServerLimits};
use punctual_config::data_dir::DATABASE_FILE;
use punctual_config::exit::CliError;
use punctual_config::{ApiSettings, CoordinationSettings, PerSecond};
use punctual_core::time::Timestamp;
use punctual_engine::Quota;
use std::io;
use std::path::Path;
use tokio::net::TcpListener;

/// Listens on an address; `flag` is the flag for choosing another one.
pub async fn listen(address: &str, flag: &str) -> Result<TcpListener, CliError> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => ": the port is in use; stop the other process or choose another port",
            io::ErrorKind::PermissionDenied => ": no permission to use this port; choose one above 1023",
            io::ErrorKind::AddrNotAvailable => ": this machine does not have the address; choose another",
            _ => return CliError::cannot_start(format!("cannot listen on {address}: {error}")),
        };
        CliError::cannot_start(format!("cannot listen on {address}{hint} with {flag}"))
    })
}

/// Fails if the address cannot be used and the directory has no database yet, so that a failed start creates
/// nothing. Otherwise errors of the store come first: another server may have the directory open.
pub async fn listen_before_creating(
    transport: &mut Transport,
    data_dir: &Path,
    address: &str,
) -> Result<(), CliError> {
    if !data_dir.join(DATABASE_FILE).exists() {
        transport.listen(address, "--listen").await?;
    }
    Ok(())
}

/// This process's description of itself.
pub fn node_info(
    open: &OpenStore,
    coordination: &CoordinationSettings,
    roles: &[&str],
    listener: Option<&TcpListener>,
    now: Timestamp,
) -> NodeInfo {
    let address = listener.and_then(|listener| listener.local_addr().ok());
    NodeInfo {
        id: node_id(open),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: now,
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        address: address.map_or_else(String::new, |address| address.to_string()),
        store: open.kind.to_owned(),
        schema_version: open.schema_version,
        embedded_store: open.is_embedded,
        coordination: open.shared.as_ref().map_or("", |_| coordination.url.kind()).to_owned(),
        host: host_name().unwrap_or_default(),
        pid: std::process::id(),
    }
}

/// Distinguishes processes that share a store.
fn node_id(open: &OpenStore) -> String {
    if open.is_embedded {
        return "local".to_owned();
    }
    format!("{}-{}", host_name().as_deref().unwrap_or("node"), std::process::id())
}

pub fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

pub fn limits(settings: &ApiSettings) -> ServerLimits {
    ServerLimits {
        connections_max: settings.connections_max.as_u32(),
        header_timeout: settings.header_timeout.get(),
        body_timeout: settings.body_timeout.get(),
        write_timeout: settings.write_timeout.get(),
        head_bytes_max: settings.head_bytes_max.as_usize(),
        uri_bytes_max: settings.uri_bytes_max.as_usize(),
        shutdown_grace: settings.shutdown_grace.get(),
    }
}

/// How fast clients may send requests.
pub fn rate_limits(settings: &ApiSettings) -> RateLimits {
    let quota = |limit: PerSecond, burst: u32| limit.0.map(|count| Quota::per_second(count, burst));
    RateLimits {
        requests: quota(settings.rate_limit, settings.rate_burst.as_u32()),
        failures: quota(settings.auth_failure_limit, settings.auth_failure_burst.as_u32()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_config::{Flags, Surroundings};
    use punctual_engine::EngineConfig;
    use std::collections::BTreeMap;

    #[test]
    fn the_default_settings_are_the_limits_of_an_api_without_settings() {
        let nothing = Surroundings { variables: BTreeMap::new(), file: None };
        let settings: ApiSettings = nothing.read(&Flags::default()).unwrap();
        assert_eq!(rate_limits(&settings), RateLimits::default());
        assert_eq!(settings.submit_quota.0, EngineConfig::default().submit_quota);
    }

    #[tokio::test]
    async fn a_host_name_can_be_listened_on() {
        let listener = listen("localhost:0", "--listen").await.unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback());
    }

    #[tokio::test]
    async fn a_port_in_use_is_told_with_the_flag_that_chooses_another() {
        let taken = listen("127.0.0.1:0", "--listen").await.unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let error = listen(&address, "--health-listen").await.unwrap_err();
        assert!(error.message.ends_with("choose another port with --health-listen"), "{}", error.message);
    }
}
