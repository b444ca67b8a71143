//! Splits a configuration with several hosts into one configuration per host.

use punctual_core::limits;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// PostgreSQL's default port.
const PORT_DEFAULT: u16 = 5432;

/// The name of the host in a single-host configuration.
pub(super) fn host_name(host: &Config) -> String {
    match host.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => host.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    }
}

/// The same with its port.
pub(super) fn address(host: &Config) -> String {
    let port = host.get_ports().first().copied().unwrap_or(PORT_DEFAULT);
    format!("{}:{port}", host_name(host))
}

/// Splits several hosts: the driver would try them one after the other, and a host that does not answer
/// would delay the next.
pub(super) fn split_hosts(config: &Config) -> Result<Vec<Config>, String> {
    let (names, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = names.len().max(addresses.len());
    if count == 0 {
        return Err("names no host".to_owned());
    }
    if count > limits::DATABASE_HOSTS_MAX {
        return Err(format!("names more than {} hosts", limits::DATABASE_HOSTS_MAX));
    }
    let fits = |length: usize| length == count || length == 0;
    if !fits(names.len()) || !fits(addresses.len()) || !(fits(ports.len()) || ports.len() == 1) {
        return Err("must have as many of host, hostaddr and port, or one port for all".to_owned());
    }
    let single = |place: usize| {
        let mut single = without_hosts(config);
        match names.get(place) {
            Some(Host::Tcp(name)) => drop(single.host(name)),
            #[cfg(unix)]
            Some(Host::Unix(path)) => drop(single.host_path(path)),
            None => {}
        }
        if let Some(address) = addresses.get(place) {
            single.hostaddr(*address);
        }
        single.port(ports.get(place).or(ports.first()).copied().unwrap_or(PORT_DEFAULT));
        single
    };
    Ok((0..count).map(single).collect())
}

fn without_hosts(config: &Config) -> Config {
    let mut bare = Config::new();
    bare.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    bare.channel_binding(config.get_channel_binding());
    bare.target_session_attrs(config.get_target_session_attrs());
    bare.load_balance_hosts(config.get_load_balance_hosts());
    if let Some(user) = config.get_user() {
        bare.user(user);
    }
    if let Some(password) = config.get_password() {
        bare.password(password);
    }
    if let Some(database) = config.get_dbname() {
        bare.dbname(database);
    }
    if let Some(options) = config.get_options() {
        bare.options(options);
    }
    if let Some(name) = config.get_application_name() {
        bare.application_name(name);
    }
    bare
}
