//! How the listener of a process is reached: TLS or plain HTTP, the hosts that it answers to, and the web
//! pages that may use it.

use super::listener::listen;
use super::tls::{LoadedTls, TlsFiles};
use punctual_api::{Api, Listeners, Server, ServerLimits, WebPolicy};
use punctual_client::host;
use punctual_config::exit::{CliError, Exit};
use punctual_config::{AddressSettings, ApiSettings, ListenerSettings};
use punctual_core::ports::Host;
use punctual_core::time::Timestamp;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub struct Transport {
    tls: Option<LoadedTls>,
    allows_plain: bool,
    web: WebPolicy,
}

impl Transport {
    /// Reads certificates, before anything starts. `origin` returns where a setting was found.
    pub fn of(
        listener: &ListenerSettings,
        api: Option<&ApiSettings>,
        origin: impl Fn(&str) -> String,
    ) -> Result<Self, CliError> {
        let files = TlsFiles::named(listener, api, origin)?;
        let origins = api.map_or(&[][..], |api| &api.cors_origins);
        Ok(Transport {
            tls: files.map(TlsFiles::load).transpose()?,
            allows_plain: listener.insecure_http.0,
            web: WebPolicy {
                allowed_hosts: listener.allowed_hosts.iter().map(|host| host.0.clone()).collect(),
                cors_origins: origins.iter().map(|origin| origin.0.clone()).collect(),
                public_origin: None,
            },
        })
    }

    /// Sets the address under which browsers know the server.
    pub fn known_as(mut self, settings: &AddressSettings) -> Self {
        if let Some(url) = &settings.public_url {
            let rest = url.0.split_once("://").map_or(url.0.as_str(), |(_, rest)| rest);
            let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            let host = rest.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(rest, |(host, _)| host);
            self.web.allowed_hosts.push(host.to_owned());
            self.web.public_origin = Some(url.0.clone());
        }
        self
    }

    /// Refuses plain HTTP where other machines can reach it, before anything starts. An address with a name
    /// is checked when it is listened on.
    pub fn checked(self, address: &str) -> Result<Self, CliError> {
        if let Ok(parsed) = address.parse::<SocketAddr>() {
            self.check(address, parsed.ip())?;
        }
        Ok(self)
    }

    fn check(&self, address: &str, ip: IpAddr) -> Result<(), CliError> {
        if self.tls.is_some() || self.allows_plain || ip.to_canonical().is_loopback() {
            return Ok(());
        }
        Err(CliError {
            exit: Exit::Misunderstood,
            message: format!(
                "other machines can reach {address}, and connections would not be encrypted: set tls_cert and tls_key \
                 (--tls-cert FILE --tls-key FILE), or allow plain HTTP in a network that you trust with insecure_http \
                 (--insecure-http)"
            ),
        })
    }

    /// Listens on an address; `flag` is the flag for choosing another one.
    pub async fn listen(&mut self, address: &str, flag: &str) -> Result<TcpListener, CliError> {
        let listener = listen(address, flag).await?;
        let bound = listener.local_addr().map_err(|error| {
            CliError::cannot_start(format!("cannot read the address of the listener: {error}"))
        })?;
        self.check(address, bound.ip())?;
        // An address may be a name.
        if let Some((host, _)) = address.rsplit_once(':') {
            self.web.allowed_hosts.push(host.to_ascii_lowercase());
        }
        Ok(listener)
    }

    /// The address with its scheme.
    pub fn url(&self, address: SocketAddr) -> String {
        format!("{}://{address}", if self.tls.is_some() { "https" } else { "http" })
    }

    /// The address as commands on this machine use it. No certificate names "every address".
    pub fn announced(&self, address: SocketAddr) -> String {
        let here: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        match (&self.tls, address.ip().is_unspecified()) {
            (None, _) => address.to_string(),
            (Some(_), true) => self.url(SocketAddr::new(here, address.port())),
            (Some(_), false) => self.url(address),
        }
    }

    /// The hosts and web pages that the API is open to.
    pub fn web(&self) -> WebPolicy {
        self.web.clone()
    }

    /// A warning if the certificate has ended, or is about to.
    pub fn certificate_warning(&self, now: Timestamp) -> Option<String> {
        self.tls.as_ref()?.warning(now)
    }

    /// Warnings if other machines can read what is sent, or clients do not trust the certificate for long.
    pub fn warn_if_exposed(&self, address: SocketAddr) {
        if let Some(warning) = self.certificate_warning(host::wall_time()) {
            tracing::warn!("{warning}");
        }
        if self.tls.is_none() && !address.ip().to_canonical().is_loopback() {
            tracing::warn!(
                "other machines can reach this address, and connections are not encrypted: use a TLS proxy, or set \
                 tls_cert and tls_key"
            );
        }
    }

    /// A server for an API on these listeners.
    pub fn server(
        self,
        api: &Api,
        host: &Host,
        listeners: Listeners,
        limits: ServerLimits,
        stopping: watch::Receiver<bool>,
    ) -> Server {
        let tls = self.tls.map(|tls| tls.follow(host, api.traffic(), stopping));
        Server {
            listeners,
            tls,
            limits,
            clock: host.clock.clone(),
            spawn: host.spawn.clone(),
            traffic: api.traffic(),
        }
    }
}
