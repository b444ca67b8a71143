//! How a database is reached: what people write into a URL, and what this adapter asks of every connection.

use super::hosts::{self, Hosts};
use mysql_async::{Opts, OptsBuilder, SslOpts, UrlError};
use punctual_core::limits;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where the database is and how much of it may be used. The URLs hold passwords and are never shown.
#[derive(Clone)]
pub struct MySqlOptions {
    /// `mysql://user:password@host:port/database?ssl-mode=verify-identity&ssl-ca=ca.pem`. Of several hosts, separated by
    /// commas, the first that answers is used for as long as it does: nodes of one cluster.
    pub url: String,
    /// A replica from which lists and views may be read.
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
    /// Bytes that all log lines together may take up; `None` for any number. Beyond it the oldest go.
    pub log_bytes_max: Option<u64>,
    /// Where the chance of pauses and of shards comes from; another one in every process.
    pub seed: u64,
}

impl MySqlOptions {
    pub fn new(url: impl Into<String>) -> Self {
        MySqlOptions {
            url: url.into(),
            replica_url: None,
            readers: limits::DATABASE_READERS_DEFAULT,
            writers: limits::DATABASE_WRITERS_DEFAULT,
            connect_timeout: limits::DATABASE_CONNECT_TIMEOUT,
            statement_timeout: limits::DATABASE_STATEMENT_TIMEOUT,
            partition_width: limits::PARTITION_WIDTH,
            log_bytes_max: Some(limits::LOGS_BYTES_DEFAULT),
            seed: 0,
        }
    }

    /// The database that is written to, as the driver wants it.
    pub(crate) fn target(&self) -> Result<Target, OptionsError> {
        Target::parse("url", &self.url, self)
    }

    /// The replica to read from, if there is one.
    pub(crate) fn replica(&self) -> Result<Option<Target>, OptionsError> {
        self.replica_url.as_deref().map(|url| Target::parse("replica_url", url, self)).transpose()
    }
}

impl fmt::Debug for MySqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlOptions")
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

/// A database and how to speak to it.
#[derive(Clone)]
pub(crate) struct Target {
    pub hosts: Hosts<Opts>,
    /// Whether what is read has to be as new as what any node of a Galera cluster has acknowledged.
    is_node: bool,
    pub connect_timeout: Duration,
    pub statement_timeout: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("database", &self.name()).finish_non_exhaustive()
    }
}

/// Statements that a connection remembers. More than there are, so that none is prepared twice.
const STATEMENTS_REMEMBERED: usize = 256;

/// Nothing is cut, rounded or put elsewhere without a word.
const SQL_MODE: &str = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,\
     NO_ENGINE_SUBSTITUTION";

impl Target {
    /// Hosts and database, for messages.
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.hosts.all().iter().map(Opts::ip_or_hostname).collect();
        let database = self.hosts.all().first().and_then(Opts::db_name).unwrap_or_default();
        format!("{}/{database}", names.join(","))
    }

    /// The same where the servers are nodes of a Galera cluster, or are not.
    pub fn of_nodes(self, is_node: bool) -> Self {
        Target { is_node, ..self }
    }

    /// How long one host may take to be connected to. Where there are others, nobody waits long for the first.
    pub fn patience_with_host(&self) -> Duration {
        match self.hosts.all().len() {
            0 | 1 => self.connect_timeout,
            _ => self.connect_timeout.min(limits::DATABASE_HOST_TIMEOUT),
        }
    }

    /// Each statement is a transaction; for those who only read. Each host in its turn.
    pub fn reading(&self) -> Vec<Opts> {
        let setup = |opts| self.with_setup(opts, "autocommit = 1", self.statement_timeout);
        self.hosts.all().iter().map(setup).collect()
    }

    /// Each statement is part of a transaction, which nobody has to open.
    pub fn writing(&self, host: &Opts) -> Opts {
        self.with_setup(host, "autocommit = 0", self.statement_timeout)
    }

    /// For definitions: whoever wants one waits in front of everybody who comes later, so it gives up soon. What has begun
    /// may take its time.
    pub fn defining(&self, host: &Opts) -> Opts {
        let seconds = DEFINITION_WAIT_MAX.as_secs();
        self.with_setup(host, &format!("autocommit = 1, lock_wait_timeout = {seconds}"), Duration::ZERO)
    }

    /// What every connection is set to: nothing may wait or run for ever, and no setting of the server's own changes what
    /// a statement means. MySQL has no limit for statements that write; the client's own ends them. A limit of zero is none.
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
        let (plain, security) = Security::split_off(field, &format!("mysql://{rest}"))?;
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

    fn parse_host(field: &'static str, url: &str, security: &Security) -> Result<Opts, OptionsError> {
        let opts = Opts::from_url(url).map_err(|error| url_problem(field, &error))?;
        if opts.db_name().is_none_or(str::is_empty) {
            return Err(OptionsError::NoDatabase { field });
        }
        let ssl_opts = security.ssl_opts(is_near(&opts));
        let opts = OptsBuilder::from_opts(opts)
            .ssl_opts(ssl_opts)
            // What the server says of its socket may lie in another container.
            .prefer_socket(false)
            // A row that was found counts, also if nothing of it had to change.
            .client_found_rows(true)
            .tcp_keepalive(Some(limits::DATABASE_SILENCE_MAX))
            .stmt_cache_size(STATEMENTS_REMEMBERED);
        Ok(opts.into())
    }
}

/// The first statement of each transaction waits until this node has all that the others have acknowledged: the whole of
/// what was true when it began. Other servers do not know these words.
pub(crate) const SEE_ALL_NODES: &str = "SET SESSION wsrep_sync_wait = 7";

/// How long a definition waits for those who use the table.
const DEFINITION_WAIT_MAX: Duration = Duration::from_secs(2);

/// What the URL says of TLS, by the words of MySQL's own clients; the driver knows others.
#[derive(Debug, Default)]
struct Security {
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

impl Security {
    /// Takes what it knows out of the URL.
    fn split_off(field: &'static str, url: &str) -> Result<(String, Self), OptionsError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut security = Security::default();
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("ssl-mode", value)) => security.mode = Some(SslMode::read(field, value)?),
                Some(("ssl-ca", value)) => security.authority = Some(decoded(field, value)?),
                _ => rest.push(pair),
            }
        }
        let plain = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        Ok((plain, security))
    }

    /// Who names no mode gets encryption, unless the server is on the same machine; who names an authority wants it to
    /// count.
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

/// Whether the server is on the same machine. To the driver an address in a URL is a name like any other.
fn is_near(opts: &Opts) -> bool {
    let host = opts.ip_or_hostname();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback()) || opts.socket().is_some()
}

/// A path out of a URL.
fn decoded(field: &'static str, value: &str) -> Result<PathBuf, OptionsError> {
    percent_encoding::percent_decode_str(value)
        .decode_utf8()
        .map(|path| PathBuf::from(path.into_owned()))
        .map_err(|_| OptionsError::Url { field, problem: "ssl-ca is not UTF-8".to_owned() })
}

/// The driver's word on a URL without what it quotes of it.
fn url_problem(field: &'static str, error: &UrlError) -> OptionsError {
    let problem = match error {
        UrlError::UnknownParameter { param } => format!("the option {param} is not known"),
        UrlError::InvalidParamValue { param, .. } => {
            format!("the option {param} has a value that it cannot have")
        }
        UrlError::FeatureRequired { param, .. } => format!("the option {param} is not to be had"),
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
    fn nothing_that_is_shown_holds_the_password() {
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
        assert_eq!(ssl, [false, true], "each as far away as it is");
    }

    #[test]
    fn hosts_that_cannot_be_are_told_without_the_password() {
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
    fn what_is_far_away_is_encrypted_unless_the_url_says_otherwise() {
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
