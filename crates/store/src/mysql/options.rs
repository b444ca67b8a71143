//! How to reach a database: the URL that users write, and the settings of every connection.

use super::hosts::{self, Hosts};
use crate::server::options::{ServerOptions, decoded, take_parameters};
use mysql_async::{Opts, OptsBuilder, SslOpts, UrlError};
use punctual_core::limits;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The dialect of MariaDB and MySQL.
#[derive(Debug, Clone, Copy)]
pub enum MySqlDialect {}

/// Several hosts are nodes of one cluster: the first that answers is used as long as it does.
pub type MySqlOptions = ServerOptions<MySqlDialect>;

impl MySqlOptions {
    /// The database for writes, in the form that the driver expects.
    pub(crate) fn target(&self) -> Result<Target, OptionsError> {
        Target::parse("url", &self.url, self)
    }

    /// The replica to read from, if there is one.
    pub(crate) fn replica(&self) -> Result<Option<Target>, OptionsError> {
        self.replica_url.as_deref().map(|url| Target::parse("replica_url", url, self)).transpose()
    }
}

/// The problem with the options. It never repeats the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{field}: must begin with mysql:// or mariadb://")]
    Scheme { field: &'static str },
    #[error("{field}: {problem}: mysql://user:password@host:port/database?ssl-mode=… is expected")]
    Url { field: &'static str, problem: String },
    #[error("{field}: names no database: mysql://user:password@host:port/database is expected")]
    NoDatabase { field: &'static str },
    #[error("{field}: names {found} hosts, but at most {} are tried", limits::DATABASE_HOSTS_MAX)]
    Hosts { field: &'static str, found: usize },
    #[error("{field}: ssl-mode must be disabled, required, verify-ca or verify-identity")]
    SslMode { field: &'static str },
}

/// A database and its connection settings.
#[derive(Clone)]
pub(crate) struct Target {
    pub hosts: Hosts<Opts>,
    /// Whether reads must be as recent as what any node of a Galera cluster has acknowledged.
    is_node: bool,
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("database", &self.name()).finish_non_exhaustive()
    }
}

/// Statements that a connection caches. More than there are, so that none is prepared twice.
const STATEMENTS_REMEMBERED: usize = 256;

/// Nothing is truncated, rounded or redirected silently.
const SQL_MODE: &str = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,\
     NO_ENGINE_SUBSTITUTION";

impl Target {
    /// Hosts and database, for messages.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.hosts.all().iter().map(Opts::ip_or_hostname).collect();
        let database = self.hosts.all().first().and_then(Opts::db_name).unwrap_or_default();
        format!("{}/{database}", names.join(","))
    }

    /// The same with this setting for nodes of a Galera cluster.
    pub fn of_nodes(self, is_node: bool) -> Self {
        Target { is_node, ..self }
    }

    /// The connect timeout of one host. If there are others, it is short.
    pub fn patience_with_host(&self) -> Duration {
        match self.hosts.all().len() {
            0 | 1 => self.connect_timeout,
            _ => self.connect_timeout.min(limits::DATABASE_HOST_TIMEOUT),
        }
    }

    /// Each statement is a transaction; for reads. One entry for each host.
    pub fn reading(&self) -> Vec<Opts> {
        let setup = |opts| self.with_setup(opts, "autocommit = 1", self.statement_timeout);
        self.hosts.all().iter().map(setup).collect()
    }

    /// Each statement is part of a transaction, which begins implicitly.
    pub fn writing(&self, host: &Opts) -> Opts {
        self.with_setup(host, "autocommit = 0", self.statement_timeout)
    }

    /// For DDL statements: a waiting one blocks all later users of the table, so it gives up soon. Once it
    /// has started, it has no time limit.
    pub fn defining(&self, host: &Opts) -> Opts {
        let seconds = DEFINITION_WAIT_MAX.as_secs();
        self.with_setup(host, &format!("autocommit = 1, lock_wait_timeout = {seconds}"), Duration::ZERO)
    }

    /// The settings of every connection: nothing may wait or run forever, and no server setting changes the
    /// meaning of a statement. MySQL has no time limit for statements that write; the client's own limit
    /// ends them. A limit of zero means none.
    fn with_setup(&self, host: &Opts, more: &str, statement_timeout: Duration) -> Opts {
        let lock_wait = limits::DATABASE_LOCK_TIMEOUT.min(self.statement_timeout).as_secs().max(1);
        let idle = limits::DATABASE_IDLE_TRANSACTION_MAX.as_secs();
        let (seconds, millis) = (statement_timeout.as_secs_f64(), statement_timeout.as_millis());
        let mut setup = vec![
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!(
                "SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = {lock_wait}, \
                 lock_wait_timeout = {lock_wait}, {more} \
                 /*M!, max_statement_time = {seconds}, idle_transaction_timeout = {idle} */ \
                 /*!80000 , max_execution_time = {millis} */"
            ),
        ];
        if self.is_node {
            setup.push(SEE_ALL_NODES.to_owned());
        }
        OptsBuilder::from_opts(host.clone()).setup(setup).into()
    }

    fn parse(field: &'static str, url: &str, options: &MySqlOptions) -> Result<Self, OptionsError> {
        let rest = url.strip_prefix("mysql://").or_else(|| url.strip_prefix("mariadb://"));
        let rest = rest.ok_or(OptionsError::Scheme { field })?;
        let (plain, security) = TlsOptions::split_off(field, &format!("mysql://{rest}"))?;
        let urls = hosts::split(&plain);
        if urls.len() > limits::DATABASE_HOSTS_MAX {
            return Err(OptionsError::Hosts { field, found: urls.len() });
        }
        let hosts: Vec<Opts> =
            urls.iter().map(|url| Self::parse_host(field, url, &security)).collect::<Result<_, _>>()?;
        Ok(Target {
            hosts: Hosts::new(hosts),
            is_node: false,
            connect_timeout: options.connect_timeout,
            statement_timeout: options.statement_timeout,
        })
    }

    fn parse_host(field: &'static str, url: &str, security: &TlsOptions) -> Result<Opts, OptionsError> {
        let opts = Opts::from_url(url).map_err(|error| url_problem(field, &error))?;
        if opts.db_name().is_none_or(str::is_empty) {
            return Err(OptionsError::NoDatabase { field });
        }
        let ssl_opts = security.ssl_opts(is_near(&opts));
        let opts = OptsBuilder::from_opts(opts)
            .ssl_opts(ssl_opts)
            // The socket path that the server reports may belong to another container.
            .prefer_socket(false)
            // A row that was found counts even if nothing in it changed.
            .client_found_rows(true)
            .tcp_keepalive(Some(limits::DATABASE_SILENCE_MAX))
            .stmt_cache_size(STATEMENTS_REMEMBERED);
        Ok(opts.into())
    }
}

/// The first statement of each transaction waits until this node has everything that the others have
/// acknowledged, so that it sees the complete state at its start. Other servers do not know this variable.
pub(crate) const SEE_ALL_NODES: &str = "SET SESSION wsrep_sync_wait = 7";

/// How long a DDL statement waits for users of the table.
const DEFINITION_WAIT_MAX: Duration = Duration::from_secs(2);

/// The TLS parameters of the URL, named as in MySQL's own clients; the driver uses other names.
#[derive(Debug, Default)]
struct TlsOptions {
    mode: Option<SslMode>,
    authority: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SslMode {
    Disabled,
    Required,
    VerifyCa,
    VerifyIdentity,
}

impl TlsOptions {
    /// Takes the parameters that it knows out of the URL.
    fn split_off(field: &'static str, url: &str) -> Result<(String, Self), OptionsError> {
        let mut security = TlsOptions::default();
        let plain = take_parameters(url, |name, value| {
            match name {
                "ssl-mode" => security.mode = Some(SslMode::read(field, value)?),
                "ssl-ca" => {
                    let problem = "ssl-ca is not UTF-8".to_owned();
                    security.authority = Some(decoded(value).ok_or(OptionsError::Url { field, problem })?);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok((plain, security))
    }

    /// Without a mode the connection is encrypted, unless the server is on the same machine; naming an
    /// authority enables its verification.
    fn ssl_opts(&self, is_near: bool) -> Option<SslOpts> {
        let mode = self.mode.unwrap_or(match (&self.authority, is_near) {
            (Some(_), _) => SslMode::VerifyIdentity,
            (None, true) => SslMode::Disabled,
            (None, false) => SslMode::Required,
        });
        let verifies = mode != SslMode::Required;
        let opts = match &self.authority {
            Some(path) => SslOpts::default()
                .with_root_certs(vec![path.clone().into()])
                .with_disable_built_in_roots(true),
            None => SslOpts::default(),
        };
        (mode != SslMode::Disabled).then(|| {
            opts.with_danger_accept_invalid_certs(!verifies)
                .with_danger_skip_domain_validation(mode != SslMode::VerifyIdentity)
        })
    }
}

impl SslMode {
    fn read(field: &'static str, text: &str) -> Result<Self, OptionsError> {
        match text.to_ascii_lowercase().replace('_', "-").as_str() {
            "disabled" => Ok(SslMode::Disabled),
            "required" => Ok(SslMode::Required),
            "verify-ca" => Ok(SslMode::VerifyCa),
            "verify-identity" => Ok(SslMode::VerifyIdentity),
            _ => Err(OptionsError::SslMode { field }),
        }
    }
}

/// Whether the server is on the same machine. The driver treats an address in a URL like any other name.
fn is_near(opts: &Opts) -> bool {
    let host = opts.ip_or_hostname();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback()) || opts.socket().is_some()
}

/// The driver's message about a URL, without the parts that it quotes.
fn url_problem(field: &'static str, error: &UrlError) -> OptionsError {
    let problem = match error {
        UrlError::UnknownParameter { param } => format!("the option {param} is not known"),
        UrlError::InvalidParamValue { param, .. } => {
            format!("the option {param} has a value that it cannot have")
        }
        UrlError::FeatureRequired { param, .. } => format!("the option {param} is not available"),
        _ => "cannot be read".to_owned(),
    };
    OptionsError::Url { field, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Result<Target, OptionsError> {
        MySqlOptions::new(url).target()
    }

    #[test]
    fn the_password_is_never_shown() {
        let url = "mysql://punctual:s3cret@db.example:3307/work?ssl-mode=required";
        let options = MySqlOptions::new(url);
        let shown = format!("{options:?} {:?}", options.target().unwrap());
        assert!(!shown.contains("s3cret") && shown.contains("db.example/work"), "{shown}");
        for bad in
            ["pg://u:s3cret@h/d", "mysql://u:s3cret@h/d?x=s3cret", "mysql://u:s3cret@h/d?ssl-mode=s3cret"]
        {
            let error = target(bad).unwrap_err().to_string();
            assert!(error.starts_with("url: ") && !error.contains("s3cret"), "{error}");
        }
        assert_eq!(target("mysql://u:p@h").unwrap_err(), OptionsError::NoDatabase { field: "url" });
    }

    #[test]
    fn a_url_may_name_several_hosts() {
        let target = target("mysql://ann:s3cret@one:3307,two,[::1]:3309/work?ssl-mode=required").unwrap();
        let found: Vec<(&str, u16, Option<&str>, bool)> = target
            .hosts
            .all()
            .iter()
            .map(|opts| (opts.ip_or_hostname(), opts.tcp_port(), opts.pass(), opts.ssl_opts().is_some()))
            .collect();
        let secret = Some("s3cret");
        assert_eq!(
            found,
            [("one", 3307, secret, true), ("two", 3306, secret, true), ("[::1]", 3309, secret, true)]
        );
        assert_eq!(target.name(), "one,two,[::1]/work");
        assert!(target.patience_with_host() < target.connect_timeout);
        assert!(self::target("mysql://u@h/d").unwrap().patience_with_host() == target.connect_timeout);

        let near = self::target("mysql://u@127.0.0.1,db.example/d").unwrap();
        let ssl: Vec<bool> = near.hosts.all().iter().map(|opts| opts.ssl_opts().is_some()).collect();
        assert_eq!(ssl, [false, true], "TLS depends on whether the host is on this machine");
    }

    #[test]
    fn invalid_hosts_are_reported_without_the_password() {
        let many = vec!["h"; limits::DATABASE_HOSTS_MAX + 1].join(",");
        for (bad, words) in [
            ("one:x,two", "cannot be read"),
            ("one,,two", "cannot be read"),
            (many.as_str(), "at most 16 are tried"),
        ] {
            let error = target(&format!("mysql://u:s3cret@{bad}/d")).unwrap_err().to_string();
            assert!(error.contains(words) && !error.contains("s3cret"), "{bad}: {error}");
        }
    }

    #[test]
    fn nodes_of_a_cluster_wait_for_each_other() {
        let setup = |is_node| {
            let target = target("mysql://u@h/d").unwrap().of_nodes(is_node);
            target.reading()[0].setup().join(";")
        };
        assert!(setup(true).contains("wsrep_sync_wait") && !setup(false).contains("wsrep"));
    }

    #[test]
    fn remote_connections_are_encrypted_unless_the_url_disables_it() {
        let ssl = |url: &str| target(url).unwrap().hosts.all()[0].ssl_opts().cloned();
        for near in ["127.0.0.1", "[::1]:3307", "localhost"] {
            assert_eq!(ssl(&format!("mysql://u@{near}/d")), None, "{near}");
        }
        assert_eq!(ssl("mysql://u@db.example/d?ssl-mode=disabled"), None);
        let required = ssl("mysql://u@db.example/d").unwrap();
        assert!(required.accept_invalid_certs());
        let verified = ssl("mariadb://u@db.example/d?ssl-mode=VERIFY_IDENTITY&ssl-ca=%2Fca.pem").unwrap();
        assert!(!verified.accept_invalid_certs() && !verified.skip_domain_validation());
        assert!(verified.disable_built_in_roots() && verified.root_certs().len() == 1);
        let authority = ssl("mysql://u@db.example/d?ssl-mode=verify-ca").unwrap();
        assert!(!authority.accept_invalid_certs() && authority.skip_domain_validation());
    }
}
