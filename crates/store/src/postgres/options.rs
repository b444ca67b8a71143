//! How to reach a database: the URL that users write, and the settings of every connection.

use super::hosts::{address, host_name, split_hosts};
use super::tls::{self, Verification};
use crate::server::options::{ServerOptions, decoded, take_parameters};
use punctual_core::limits;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The dialect of PostgreSQL.
#[derive(Debug, Clone, Copy)]
pub enum PostgresDialect {}

pub type PostgresOptions = ServerOptions<PostgresDialect>;

impl PostgresOptions {
    /// The database for writes, in the form that drivers expect.
    pub(crate) fn target(&self) -> Result<Target, OptionsError> {
        Target::parse(Use::Primary, &self.url, self)
    }

    /// The standby to read from, if there is one.
    pub(crate) fn replica(&self) -> Result<Option<Target>, OptionsError> {
        self.replica_url.as_deref().map(|url| Target::parse(Use::Replica, url, self)).transpose()
    }
}

/// The problem with the options. It never repeats the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{field}: must begin with postgres:// or postgresql://")]
    Scheme { field: &'static str },
    #[error("{field}: {problem}")]
    Url { field: &'static str, problem: String },
    #[error("{field}: sslmode must be disable, prefer, require, verify-ca or verify-full")]
    SslMode { field: &'static str },
    #[error(
        "{field}: target_session_attrs must be read-write or omitted: decisions are read where they are written"
    )]
    Sessions { field: &'static str },
    #[error("{field}: sslrootcert: {problem}")]
    RootCertificate { field: &'static str, problem: String },
}

/// The purpose of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// All writes and decisions. Whether it names one host or several, only a writable one is used: a
    /// standby would return outdated rows.
    Primary,
    /// Views and lists for users.
    Replica,
}

impl Use {
    const fn field(self) -> &'static str {
        match self {
            Use::Primary => "url",
            Use::Replica => "replica_url",
        }
    }

    /// Which servers are acceptable, in libpq's terms.
    fn sessions(self, word: Option<&str>) -> Result<TargetSessionAttrs, OptionsError> {
        match (self, word) {
            (Use::Primary, None | Some("any" | "read-write" | "primary")) => {
                Ok(TargetSessionAttrs::ReadWrite)
            }
            (Use::Primary, Some(_)) => Err(OptionsError::Sessions { field: self.field() }),
            (Use::Replica, Some("read-write" | "primary")) => Ok(TargetSessionAttrs::ReadWrite),
            (Use::Replica, Some("read-only" | "standby")) => Ok(TargetSessionAttrs::ReadOnly),
            (Use::Replica, _) => Ok(TargetSessionAttrs::Any),
        }
    }
}

/// A database and its connection settings.
#[derive(Clone)]
pub(crate) struct Target {
    /// One for each host that was named.
    hosts: Vec<Config>,
    /// The host that was connected to last. The others are tried after it.
    latest: Arc<AtomicUsize>,
    pub tls: MakeRustlsConnect,
    pub connect_timeout: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("database", &self.name()).finish_non_exhaustive()
    }
}

impl Target {
    /// Hosts and database, for messages.
    pub fn name(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(host_name).collect();
        let database = self.hosts.first().and_then(|host| host.get_dbname().or(host.get_user()));
        format!("{}/{}", hosts.join(","), database.unwrap_or_default())
    }

    /// The indexes of the hosts, the most likely first.
    pub fn places(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (count, latest) = (self.hosts.len(), self.latest.load(Ordering::Relaxed));
        (0..count).map(move |step| (latest + step) % count)
    }

    /// The host with this index, and its name with its port.
    pub fn host(&self, place: usize) -> (&Config, String) {
        let host = &self.hosts[place];
        (host, address(host))
    }

    /// Makes other connections start with this host.
    pub fn prefer(&self, place: usize) {
        self.latest.store(place, Ordering::Relaxed);
    }

    /// The same with an additional setting for every connection.
    pub fn with_setting(mut self, setting: &str) -> Self {
        for host in &mut self.hosts {
            let options = format!("{} -c {setting}", host.get_options().unwrap_or_default());
            host.options(options.trim_start());
        }
        self
    }

    fn parse(purpose: Use, url: &str, options: &PostgresOptions) -> Result<Self, OptionsError> {
        let field = purpose.field();
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(OptionsError::Scheme { field });
        }
        let (plain, words) = Words::split_off(field, url)?;
        let mut config = Config::from_str(&plain)
            .map_err(|error| OptionsError::Url { field, problem: url_problem(&error) })?;
        config.ssl_mode(words.ssl_mode);
        config.target_session_attrs(purpose.sessions(words.sessions.as_deref())?);
        let mut hosts = split_hosts(&config).map_err(|problem| OptionsError::Url { field, problem })?;
        hosts.iter_mut().for_each(|host| configure(host, options));
        let tls = tls::connector(words.verification, words.root_certificate.as_deref())
            .map_err(|problem| OptionsError::RootCertificate { field, problem })?;
        Ok(Target { hosts, latest: Arc::default(), tls, connect_timeout: options.connect_timeout })
    }
}

/// The parameters of the URL about TLS and acceptable servers, in libpq's terms; the driver knows only some of them.
struct Words {
    ssl_mode: SslMode,
    verification: Verification,
    root_certificate: Option<PathBuf>,
    /// Which servers are acceptable.
    sessions: Option<String>,
}

impl Words {
    /// Takes the parameters that it knows out of the URL.
    fn split_off(field: &'static str, url: &str) -> Result<(String, Self), OptionsError> {
        let mut mode = "prefer".to_owned();
        let (mut root_certificate, mut sessions) = (None, None);
        let plain = take_parameters(url, |name, value| {
            match name {
                "sslmode" => mode = value.to_owned(),
                "sslrootcert" => {
                    let path = decoded(value);
                    let problem = "is not UTF-8".to_owned();
                    root_certificate = Some(path.ok_or(OptionsError::RootCertificate { field, problem })?);
                }
                "target_session_attrs" => sessions = Some(value.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        // As in libpq: naming an authority enables its verification.
        let encrypted =
            if root_certificate.is_some() { Verification::Authority } else { Verification::Nothing };
        let (ssl_mode, verification) = match mode.as_str() {
            "disable" => (SslMode::Disable, Verification::Nothing),
            "prefer" => (SslMode::Prefer, Verification::Nothing),
            "require" => (SslMode::Require, encrypted),
            "verify-ca" => (SslMode::Require, Verification::Authority),
            "verify-full" => (SslMode::Require, Verification::AuthorityAndName),
            _ => return Err(OptionsError::SslMode { field }),
        };
        Ok((plain, Words { ssl_mode, verification, root_certificate, sessions }))
    }
}

/// How statements are planned. Each of ours searches rows by key or takes the first few of an index. Any
/// other plan is a wrong guess, made when the statistics of a table are missing or outdated: a new backlog
/// would be sorted for each claim. JIT compilation takes longer than running the plans.
const PLANS: &str = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";

/// The settings of every connection: nothing may wait or run forever.
fn configure(config: &mut Config, options: &PostgresOptions) {
    let millis = |duration: Duration| duration.as_millis();
    let settings = format!(
        "{} -c default_transaction_isolation=read\\ committed {PLANS} -c statement_timeout={} -c lock_timeout={} \
         -c idle_in_transaction_session_timeout={} -c client_min_messages=warning -c TimeZone=UTC",
        config.get_options().unwrap_or_default(),
        millis(options.statement_timeout),
        millis(limits::DATABASE_LOCK_TIMEOUT.min(options.statement_timeout)),
        millis(limits::DATABASE_IDLE_TRANSACTION_MAX),
    );
    config.options(settings.trim_start());
    config.connect_timeout(options.connect_timeout);
    if config.get_application_name().is_none() {
        config.application_name("punctual");
    }
    // Detects a server that has disappeared without closing the connection.
    config.keepalives_idle(limits::DATABASE_SILENCE_MAX);
    config.keepalives_interval(limits::DATABASE_SILENCE_MAX / 3);
    config.keepalives_retries(3);
    config.tcp_user_timeout(limits::DATABASE_SILENCE_MAX);
}

/// The driver's message about a URL, without the parts that it quotes.
fn url_problem(error: &tokio_postgres::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    let unquoted = source.split(['`', '\'', '"']).next().unwrap_or_default().trim();
    match unquoted {
        "" => {
            "cannot be read: postgres://user:password@host:port/database?option=value is expected".to_owned()
        }
        problem => format!(
            "cannot be read ({problem}): postgres://user:password@host:port/database?option=value is expected"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, OptionsError> {
        PostgresOptions::new(url).target()
    }

    #[test]
    fn a_url_is_parsed_into_hosts_and_settings() {
        let target =
            target("postgres://ann:p%40ss@db.example:6543/payroll?sslmode=verify-full&application_name=me")
                .unwrap();
        assert_eq!(target.name(), "db.example/payroll");
        let (config, name) = target.host(0);
        assert_eq!(name, "db.example:6543");
        assert_eq!(config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        assert_eq!(config.get_application_name(), Some("me"));
        let settings = config.get_options().unwrap();
        assert!(settings.contains("statement_timeout=30000") && settings.contains("jit=off"), "{settings}");
    }

    #[test]
    fn the_writable_one_of_several_hosts_is_used() {
        for words in ["", "?target_session_attrs=any", "?target_session_attrs=primary", "?sslmode=disable"] {
            let target = target(&format!("postgres://ann:p%40ss@one:1,two,[::1]:3/payroll{words}")).unwrap();
            assert_eq!(target.name(), "one,two,::1/payroll");
            let names: Vec<String> = target.places().map(|place| target.host(place).1).collect();
            assert_eq!(names, ["one:1", "two:5432", "::1:3"]);
            for place in target.places() {
                let (config, _) = target.host(place);
                assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
                assert_eq!((config.get_hosts().len(), config.get_password()), (1, Some(&b"p@ss"[..])));
            }
            target.prefer(2);
            assert_eq!(
                target.places().collect::<Vec<_>>(),
                [2, 0, 1],
                "the host that answered last comes first"
            );
        }
    }

    #[test]
    fn a_replica_may_be_a_standby_and_the_primary_may_not() {
        let sessions = |words: &str| {
            let url = format!("postgres://ann@one,two/payroll{words}");
            let options = PostgresOptions { replica_url: Some(url.clone()), ..PostgresOptions::new(url) };
            let replica = options.replica().unwrap().unwrap();
            (options.target().map(drop), replica.host(1).0.get_target_session_attrs())
        };
        let refused = Err(OptionsError::Sessions { field: "url" });
        assert_eq!(sessions(""), (Ok(()), TargetSessionAttrs::Any));
        assert_eq!(
            sessions("?target_session_attrs=standby"),
            (refused.clone(), TargetSessionAttrs::ReadOnly)
        );
        assert_eq!(sessions("?target_session_attrs=prefer-standby"), (refused, TargetSessionAttrs::Any));
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        let wrong = [
            ("mysql://ann:s3cret@host/db", "url: must begin with postgres:// or postgresql://"),
            ("postgres://ann:s3cret@host/db?sslmode=maybe", "url: sslmode must be"),
            ("postgres://ann:s3cret@host:port/db", "url: cannot be read"),
            ("postgres://ann:s3cret@host/db?s3cret=1", "url: cannot be read"),
            ("postgres://ann:s3cret@/db", "url: names no host"),
            ("postgres://ann:s3cret@one,two/db?hostaddr=127.0.0.1", "url: must have as many of host"),
            (
                "postgres://ann:s3cret@host/db?sslmode=verify-ca&sslrootcert=/no/such.pem",
                "url: sslrootcert: the certificates in /no/such.pem cannot be used: ",
            ),
        ];
        for (url, expected) in wrong {
            let error = target(url).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
        let options = PostgresOptions::new("postgres://ann:s3cret@host/db");
        assert!(!format!("{options:?} {:?}", options.target().unwrap()).contains("s3cret"));
    }
}
