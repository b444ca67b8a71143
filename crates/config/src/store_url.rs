//! The URL of a store. A password in it is removed at once, and only options that cannot be secret are shown:
//! so it can be printed anywhere.

use crate::value::{Raw, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value as Json;
use std::fmt;
use std::path::{Path, PathBuf};

/// The accepted forms, for errors.
const FORMS: &str = "sqlite:DIRECTORY, postgres://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE";

/// A store by its URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// The embedded store in a directory; by default the data directory.
    Sqlite { directory: Option<PathBuf> },
    /// A database server.
    Server(ServerUrl),
}

/// The database systems that several processes can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Postgres,
    Mysql,
}

impl Dialect {
    /// As in `/nodes` and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Dialect::Postgres => "postgres",
            Dialect::Mysql => "mysql",
        }
    }
}

/// A database on a server. Parsed by hand: PostgreSQL accepts several hosts, which standard URLs do not
/// allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    pub dialect: Dialect,
    scheme: String,
    /// As written, with its escapes.
    user: Option<String>,
    /// The password from the URL.
    password: Option<Password>,
    /// Hosts with their ports.
    hosts: String,
    database: String,
    options: UrlOptions,
}

/// The part after the question mark. It may contain a secret under an unknown name.
#[derive(Clone, PartialEq, Eq)]
struct UrlOptions(String);

/// Options whose values may be shown: all common ones.
const SHOWN_OPTIONS: &[&str] = &[
    // PostgreSQL.
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "channel_binding",
    "load_balance_hosts",
    "host",
    "hostaddr",
    "port",
    "user",
    "dbname",
    // MySQL and MariaDB.
    "ssl-mode",
    "ssl-ca",
    "socket",
    "prefer_socket",
    "compression",
    "tcp_keepalive",
    "tcp_nodelay",
    "wait_timeout",
    "max_allowed_packet",
    "stmt_cache_size",
];
/// Replaces all other options.
const HIDDEN: &str = "…";

impl UrlOptions {
    /// With the question mark, if it is not empty.
    fn written(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!("?{}", self.0) }
    }

    /// The same without secrets.
    fn shown(&self) -> String {
        let is_shown =
            |pair: &&str| pair.split_once('=').is_some_and(|(name, _)| SHOWN_OPTIONS.contains(&name));
        let (mut shown, hidden): (Vec<&str>, Vec<&str>) = self.0.split('&').partition(is_shown);
        if hidden.iter().any(|pair| !pair.is_empty()) {
            shown.push(HIDDEN);
        }
        UrlOptions(shown.join("&")).written()
    }
}

impl fmt::Debug for UrlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// A secret that no output repeats.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    pub fn new(text: impl Into<String>) -> Self {
        Password(text.into())
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Password {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Password::new(text))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(a password)")
    }
}

impl StoreUrl {
    /// The URL, or the requirement, beginning with "must". Repeats nothing of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(':').ok_or_else(|| format!("must be {FORMS}"))?;
        let dialect = match scheme {
            "sqlite" => return sqlite(rest),
            "postgres" | "postgresql" => Dialect::Postgres,
            "mysql" | "mariadb" => Dialect::Mysql,
            _ => return Err(format!("must be {FORMS}: no other database is supported")),
        };
        ServerUrl::parse(dialect, text).map(StoreUrl::Server)
    }
}

fn sqlite(rest: &str) -> Result<StoreUrl, String> {
    if rest.contains('\0') {
        return Err("must be a directory path without a NUL character".to_owned());
    }
    // With or without the slashes that URLs usually have before a host.
    let directory = rest.strip_prefix("//").unwrap_or(rest);
    // Something that looks like a user may contain a password, which would be shown as part of a path.
    if rest.starts_with("//") && !directory.starts_with('/') && directory.contains('@') {
        return Err(
            "must be sqlite:DIRECTORY, without a user and a host: the embedded store is a directory on this \
                    machine. If its path contains an @, write it without the two slashes"
                .to_owned(),
        );
    }
    let directory = (!directory.is_empty()).then(|| PathBuf::from(directory));
    Ok(StoreUrl::Sqlite { directory })
}

/// Characters that are escaped in a user or password: all that would end it.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl ServerUrl {
    fn parse(dialect: Dialect, text: &str) -> Result<Self, String> {
        let form = format!("{}://USER@HOST/DATABASE", dialect.word());
        let wrong = |why: &str| Err(format!("must be {form}{why}"));
        let Some((scheme, rest)) = text.split_once("://") else { return wrong("") };
        if rest.contains('#') {
            return wrong(", without a #; in a password, write it as %23");
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let is_option = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        if database.is_empty() || database.contains('/') {
            return wrong(", with the name of the database at its end");
        }
        if hosts.is_empty() && !is_option("host") {
            return wrong(", with the host of the database");
        }
        if !hosts.is_empty() && !hosts.split(',').all(is_host) {
            return wrong(", and the port, if given, must be a number");
        }
        if query.to_ascii_lowercase().contains("password") {
            return wrong(
                ", without a password among its parameters: write it to a file and set store.password_file to its path, \
                 or set PUNCTUAL_STORE_PASSWORD",
            );
        }
        let (user, password) = match user.and_then(|user| user.split_once(':')) {
            Some((user, password)) => (Some(user), Some(password)),
            None => (user, None),
        };
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(Password::new);
        let Ok(password) = password.map(decoded).transpose() else {
            return wrong(", with a password in UTF-8");
        };
        Ok(ServerUrl {
            dialect,
            scheme: scheme.to_owned(),
            user: user.filter(|user| !user.is_empty()).map(str::to_owned),
            password,
            hosts: hosts.to_owned(),
            database: database.to_owned(),
            options: UrlOptions(query.to_owned()),
        })
    }

    pub const fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// A warning if every user of the machine can see the password.
    pub fn seen_password(&self, origin: &str, instead: &str) -> Option<String> {
        self.has_password().then(|| crate::seen_password(origin, instead)).flatten()
    }

    /// The statement with which an administrator grants the user of this URL all required permissions.
    pub fn grant(&self) -> String {
        let (user, database) = (self.user.as_deref().unwrap_or("USER"), &self.database);
        match self.dialect {
            Dialect::Postgres => format!(
                "it must own the database and its tables (ALTER DATABASE {database} OWNER TO {user}, ALTER TABLE … \
                 OWNER TO {user})"
            ),
            Dialect::Mysql => format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX ON {database}.* TO {user}"
            ),
        }
    }

    /// With a password, only for the connection: this one, or the one from the URL.
    pub fn with_password(&self, password: Option<&Password>) -> String {
        let password = password.or(self.password.as_ref());
        let password = password.map(|Password(text)| utf8_percent_encode(text, ESCAPED).to_string());
        format!("{}{}", self.without_options(password), self.options.written())
    }

    /// The same server with another database.
    pub fn on_database(&self, name: &str) -> Self {
        ServerUrl { database: name.to_owned(), ..self.clone() }
    }

    /// The address of its only host; `None` for several hosts, or if options modify it.
    pub fn address(&self) -> Option<String> {
        let says_more = |pair: &str| {
            let name = pair.split('=').next().unwrap_or_default();
            ["host", "hostaddr", "port", "socket", "prefer_socket"].contains(&name)
        };
        if self.hosts.is_empty() || self.hosts.contains(',') || self.options.0.split('&').any(says_more) {
            return None;
        }
        let has_port = self.hosts.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = match self.dialect {
            Dialect::Postgres => 5_432,
            Dialect::Mysql => 3_306,
        };
        Some(if has_port { self.hosts.clone() } else { format!("{}:{port}", self.hosts) })
    }

    /// The same database at another address.
    pub fn at(&self, address: &str) -> Self {
        ServerUrl { hosts: address.to_owned(), ..self.clone() }
    }

    fn without_options(&self, password: Option<String>) -> String {
        let user = self.user.as_deref().unwrap_or_default();
        let who = match password {
            Some(password) => format!("{user}:{password}@"),
            None if user.is_empty() => String::new(),
            None => format!("{user}@"),
        };
        format!("{}://{who}{}/{}", self.scheme, self.hosts, self.database)
    }
}

/// A host or address, with an optional port.
fn is_host(text: &str) -> bool {
    let rest = match text.strip_prefix('[') {
        Some(address) => match address.split_once(']') {
            Some((_, rest)) => rest,
            None => return false,
        },
        None => text.find(':').map_or("", |colon| &text[colon..]),
    };
    !text.starts_with(':')
        && (rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()))
}

/// Without a password, and without options that may contain one.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.without_options(None), self.options.shown())
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite { directory: None } => f.write_str("sqlite:"),
            StoreUrl::Sqlite { directory: Some(directory) } => write!(f, "sqlite:{}", directory.display()),
            StoreUrl::Server(server) => server.fmt(f),
        }
    }
}

impl Value for StoreUrl {
    fn kind() -> String {
        FORMS.to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let url = StoreUrl::parse(raw.text().ok_or_else(|| format!("must be {FORMS}"))?)?;
        match (&url, raw) {
            (StoreUrl::Server(server), Raw::Text(_)) if server.has_password() => Err(
                "must not contain the password: write it to a separate file, and set store.password_file to its path"
                    .to_owned(),
            ),
            _ => Ok(url),
        }
    }

    /// A malformed value may contain a password anywhere.
    fn found(_: &Raw) -> Option<String> {
        None
    }

    fn written(&self) -> Json {
        self.to_string().into()
    }

    fn seen_from(self, directory: &Path) -> Self {
        match self {
            StoreUrl::Sqlite { directory: Some(path) } => {
                StoreUrl::Sqlite { directory: Some(directory.join(path)) }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> ServerUrl {
        match StoreUrl::parse(text) {
            Ok(StoreUrl::Server(server)) => server,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_only_host_of_a_url_can_be_reached_over_another_address() {
        let address = |text: &str| server(text).address();
        assert_eq!(address("postgres://u@h/d").as_deref(), Some("h:5432"));
        assert_eq!(address("mysql://u@[::1]/d").as_deref(), Some("[::1]:3306"));
        assert_eq!(address("mysql://u@[::1]:3307/d").as_deref(), Some("[::1]:3307"));
        for several in ["postgres://u@one,two/d", "postgres:///d?host=/run", "mysql://u@h/d?socket=/run/x"] {
            assert_eq!(address(several), None, "{several}");
        }
        let other = server("postgres://u@h:5433/d?sslmode=require").at("127.0.0.1:9");
        assert_eq!(other.to_string(), "postgres://u@127.0.0.1:9/d?sslmode=require");
    }

    #[test]
    fn stores_are_named_by_their_urls() {
        let sqlite =
            |directory: Option<&str>| Ok(StoreUrl::Sqlite { directory: directory.map(PathBuf::from) });
        assert_eq!(StoreUrl::parse("sqlite:"), sqlite(None));
        assert_eq!(StoreUrl::parse("sqlite:data/here"), sqlite(Some("data/here")));
        assert_eq!(StoreUrl::parse("sqlite:/var/lib/x"), sqlite(Some("/var/lib/x")));
        assert_eq!(StoreUrl::parse("sqlite:///var/lib/x"), sqlite(Some("/var/lib/x")));
        assert_eq!(StoreUrl::parse("sqlite:///var/lib/x@1"), sqlite(Some("/var/lib/x@1")));
        assert_eq!(StoreUrl::parse("sqlite:x@1"), sqlite(Some("x@1")));
        for text in [
            "postgres://u@h/d",
            "postgresql://h:5433/d?sslmode=require",
            "postgres://u@one:5432,two:5432,[::1]:5433/d",
            "postgres:///d?host=/run/postgresql",
        ] {
            assert_eq!(server(text).dialect, Dialect::Postgres);
            assert_eq!(server(text).to_string(), text);
        }
        for text in ["mysql://u@h/d", "mariadb://u@h:3307/d"] {
            assert_eq!(server(text).dialect, Dialect::Mysql);
        }
    }

    #[test]
    fn a_password_is_used_and_never_shown() {
        let url = server("postgres://me:hun%40ter2@h/d");
        let shown = format!("{url} {url:?} {}", StoreUrl::Server(url.clone()).written());
        assert!(!shown.contains("hun") && shown.contains("postgres://me@h/d"), "{shown}");
        assert_eq!(url.with_password(None), "postgres://me:hun%40ter2@h/d");
        assert_eq!(url.with_password(Some(&Password::new("a b"))), "postgres://me:a%20b@h/d");
        assert_eq!(url.on_database("other").with_password(None), "postgres://me:hun%40ter2@h/other");
    }

    #[test]
    fn of_the_options_only_those_are_shown_that_cannot_be_secret() {
        for (text, expected) in [
            ("mysql://me@h/d?passwd=hunter2", "mysql://me@h/d?…"),
            ("postgres://me@h/d?pass=hunter2&sslmode=require", "postgres://me@h/d?sslmode=require&…"),
            (
                "postgres://me@h/d?sslmode=require&PASS=hunter2&pw=hunter2",
                "postgres://me@h/d?sslmode=require&…",
            ),
            ("mysql://me@h/d?hunter2", "mysql://me@h/d?…"),
            (
                "mysql://me@h/d?ssl-mode=verify-ca&ssl-ca=/ca.pem",
                "mysql://me@h/d?ssl-mode=verify-ca&ssl-ca=/ca.pem",
            ),
        ] {
            let url = server(text);
            assert_eq!(url.to_string(), expected);
            let shown = format!("{url:?} {}", StoreUrl::Server(url.clone()).written());
            assert!(!shown.contains("hunter2"), "{shown}");
            assert_eq!(url.with_password(None), text, "the connection is made with all of it");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_would_be_right_and_without_what_was_written() {
        for (text, told) in [
            ("hunter2", "must be sqlite:DIRECTORY, postgres://"),
            ("oracle://me:hunter2@h/d", "no other database is supported"),
            ("postgres:hunter2", "must be postgres://USER@HOST/DATABASE"),
            ("postgres:///d", "with the host of the database"),
            ("postgres://me:hunter2@h", "with the name of the database at its end"),
            ("postgres://me:hunter2@h:port/d", "must be a number"),
            ("postgres://me:hun#ter2@h/d", "write it as %23"),
            ("postgres://me@h/d?password=hunter2", "without a password among its parameters"),
            ("mysql://me@/d", "mysql://USER@HOST/DATABASE"),
            ("sqlite://me:hunter2@h/x", "must be sqlite:DIRECTORY, without a user and a host"),
            ("sqlite://me:hun/ter2@h/x", "must be sqlite:DIRECTORY, without a user and a host"),
        ] {
            let error = StoreUrl::parse(text).unwrap_err();
            assert!(error.starts_with("must ") && error.contains(told), "{text}: {error}");
            assert!(!error.contains("hunter2") && !error.contains("ter2"), "{text}: {error}");
        }
    }

    #[test]
    fn a_password_does_not_stand_in_the_file() {
        let url = "postgres://me:hunter2@h/d";
        let error = StoreUrl::read(&Raw::Text(url.to_owned())).unwrap_err();
        assert!(error.contains("store.password_file") && !error.contains("hunter2"), "{error}");
        assert!(StoreUrl::read(&Raw::word(url)).is_ok(), "a variable may hold it");
    }
}
