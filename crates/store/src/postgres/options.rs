//! How a database is reached: what people write into a URL, and what this adapter asks of every connection.

use super::tls::{self, Verification};
use punctual_core::limits;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Where the database is and how much of it may be used. The URLs hold passwords and are never shown.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=ca.pem`.
    pub url: String,
    /// A standby from which lists and views may be read.
    pub replica_url: Option<String>,
    /// Connections that read.
    pub readers: usize,
    /// Connections that write.
    pub writers: usize,
    /// How long a connection may take to be made, greetings included.
    pub connect_timeout: Duration,
    /// How long one statement may take before the database ends it.
    pub statement_timeout: Duration,
    /// How much time one partition of history and logs covers; retention drops whole ones.
    pub partition_width: Duration,
}

impl PostgresOptions {
    pub fn new(url: impl Into<String>) -> Self {
        PostgresOptions {
            url: url.into(),
            replica_url: None,
            readers: limits::DATABASE_READERS_DEFAULT,
            writers: limits::DATABASE_WRITERS_DEFAULT,
            connect_timeout: limits::DATABASE_CONNECT_TIMEOUT,
            statement_timeout: limits::DATABASE_STATEMENT_TIMEOUT,
            partition_width: limits::PARTITION_WIDTH,
        }
    }

    /// The database that is written to, as drivers want it.
    pub(crate) fn target(&self) -> Result<Target, OptionsError> {
        Target::parse("url", &self.url, self)
    }

    /// The standby to read from, if there is one.
    pub(crate) fn replica(&self) -> Result<Option<Target>, OptionsError> {
        self.replica_url.as_deref().map(|url| Target::parse("replica_url", url, self)).transpose()
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("readers", &self.readers)
            .field("writers", &self.writers)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("partition_width", &self.partition_width)
            .finish_non_exhaustive()
    }
}

/// What is wrong with the options. It never repeats the URL, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{field}: must begin with postgres:// or postgresql://")]
    Scheme { field: &'static str },
    #[error("{field}: {problem}")]
    Url { field: &'static str, problem: String },
    #[error("{field}: sslmode must be disable, prefer, require, verify-ca or verify-full")]
    SslMode { field: &'static str },
    #[error("{field}: sslrootcert: {problem}")]
    RootCertificate { field: &'static str, problem: String },
}

/// A database and how to speak to it.
#[derive(Clone)]
pub(crate) struct Target {
    pub config: Config,
    pub tls: MakeRustlsConnect,
    pub connect_timeout: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("database", &self.name()).finish_non_exhaustive()
    }
}

impl Target {
    /// Host and database, for messages.
    pub fn name(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        };
        format!("{host}/{}", self.config.get_dbname().or(self.config.get_user()).unwrap_or_default())
    }

    fn parse(field: &'static str, url: &str, options: &PostgresOptions) -> Result<Self, OptionsError> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(OptionsError::Scheme { field });
        }
        let (plain, security) = Security::split_off(field, url)?;
        let mut config = Config::from_str(&plain)
            .map_err(|error| OptionsError::Url { field, problem: url_problem(&error) })?;
        config.ssl_mode(security.ssl_mode);
        configure(&mut config, options);
        let tls = tls::connector(security.verification, security.root_certificate.as_deref())
            .map_err(|problem| OptionsError::RootCertificate { field, problem })?;
        Ok(Target { config, tls, connect_timeout: options.connect_timeout })
    }
}

/// What the URL says of TLS, by libpq's words; the driver knows only some of them.
struct Security {
    ssl_mode: SslMode,
    verification: Verification,
    root_certificate: Option<PathBuf>,
}

impl Security {
    /// Takes what it knows out of the URL.
    fn split_off(field: &'static str, url: &str) -> Result<(String, Self), OptionsError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut mode = "prefer";
        let mut root_certificate = None;
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = value,
                Some(("sslrootcert", value)) => root_certificate = Some(decoded(field, value)?),
                _ => rest.push(pair),
            }
        }
        // As libpq has it: who names an authority wants it to count.
        let encrypted =
            if root_certificate.is_some() { Verification::Authority } else { Verification::Nothing };
        let (ssl_mode, verification) = match mode {
            "disable" => (SslMode::Disable, Verification::Nothing),
            "prefer" => (SslMode::Prefer, Verification::Nothing),
            "require" => (SslMode::Require, encrypted),
            "verify-ca" => (SslMode::Require, Verification::Authority),
            "verify-full" => (SslMode::Require, Verification::AuthorityAndName),
            _ => return Err(OptionsError::SslMode { field }),
        };
        let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        Ok((plain, Security { ssl_mode, verification, root_certificate }))
    }
}

/// A path out of a URL.
fn decoded(field: &'static str, value: &str) -> Result<PathBuf, OptionsError> {
    percent_encoding::percent_decode_str(value)
        .decode_utf8()
        .map(|path| PathBuf::from(path.into_owned()))
        .map_err(|_| OptionsError::RootCertificate { field, problem: "is not UTF-8".to_owned() })
}

/// What every connection is set to, whoever made it: nothing may wait or run for ever, and plans are not compiled, which
/// takes longer than to run them.
fn configure(config: &mut Config, options: &PostgresOptions) {
    let millis = |duration: Duration| duration.as_millis();
    let settings = format!(
        "{} -c default_transaction_isolation=read\\ committed -c jit=off -c statement_timeout={} -c lock_timeout={} \
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
    // Of several hosts, the one that can be written to.
    if config.get_hosts().len() > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    // A server that is gone without a word is noticed.
    config.keepalives_idle(limits::DATABASE_SILENCE_MAX);
    config.keepalives_interval(limits::DATABASE_SILENCE_MAX / 3);
    config.keepalives_retries(3);
    config.tcp_user_timeout(limits::DATABASE_SILENCE_MAX);
}

/// The driver's word on a URL without what it quotes of it.
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
    fn a_url_says_where_and_how() {
        let target =
            target("postgres://ann:p%40ss@db.example:6543/payroll?sslmode=verify-full&application_name=me")
                .unwrap();
        assert_eq!(target.name(), "db.example/payroll");
        assert_eq!(target.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(target.config.get_ports(), [6543]);
        assert_eq!(target.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(target.config.get_application_name(), Some("me"));
        let settings = target.config.get_options().unwrap();
        assert!(settings.contains("statement_timeout=30000") && settings.contains("jit=off"), "{settings}");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let wrong = [
            ("mysql://ann:s3cret@host/db", "url: must begin with postgres:// or postgresql://"),
            ("postgres://ann:s3cret@host/db?sslmode=maybe", "url: sslmode must be"),
            ("postgres://ann:s3cret@host:port/db", "url: cannot be read"),
            ("postgres://ann:s3cret@host/db?s3cret=1", "url: cannot be read"),
            (
                "postgres://ann:s3cret@host/db?sslmode=verify-ca&sslrootcert=/no/such.pem",
                "url: sslrootcert: /no/such.pem",
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
