//! The address of coordination, parsed from one word or URL. Passwords are never printed.

use percent_encoding::percent_decode_str;
use punctual_core::limits::COORDINATION_ANSWER_MAX;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The service that coordinates the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CoordinationOptions {
    /// The store itself.
    #[default]
    Store,
    Etcd(EtcdOptions),
    Redis(RedisOptions),
    ZooKeeper(ZooKeeperOptions),
}

/// `etcd://[user:password@]host[:2379][,host…][/prefix]`, or `etcds://…[?ca=FILE&cert=FILE&key=FILE]` with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    pub hosts: Vec<HostAndPort>,
    pub login: Option<Login>,
    pub tls: Option<Tls>,
    /// The prefix of all keys of this cluster.
    pub prefix: String,
    /// How long a host may take to answer.
    pub answer_max: Duration,
}

/// `redis://[user:password@]host[:6379][,host…][/database][?prefix=…]`, or `rediss://…[?ca=FILE&cert=FILE&key=FILE]` with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisOptions {
    /// One server, or a primary and its replicas in any order.
    pub hosts: Vec<HostAndPort>,
    pub login: Option<Login>,
    pub tls: Option<Tls>,
    pub database: i64,
    pub prefix: String,
    /// How long a host may take to answer.
    pub answer_max: Duration,
}

/// `zookeeper://[user:password@]host[:2181][,host…][/path]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZooKeeperOptions {
    pub hosts: Vec<HostAndPort>,
    /// Login of the scheme `digest`.
    pub login: Option<Login>,
    /// The path of nodes under which this cluster stores its data.
    pub path: String,
    /// How long an answer may take.
    pub answer_max: Duration,
}

impl CoordinationOptions {
    /// Limits the answer time for callers that wait no longer than this. Their error then says which host has
    /// not answered, and the next one is tried in time.
    #[must_use]
    pub fn answering_within(mut self, limit: Duration) -> Self {
        let answer_max = match &mut self {
            CoordinationOptions::Store => return self,
            CoordinationOptions::Etcd(options) => &mut options.answer_max,
            CoordinationOptions::Redis(options) => &mut options.answer_max,
            CoordinationOptions::ZooKeeper(options) => &mut options.answer_max,
        };
        *answer_max = limit.min(COORDINATION_ANSWER_MAX);
        self
    }

    /// The location of one of several clusters under the same prefix.
    #[must_use]
    pub fn below(mut self, cluster: &str) -> Self {
        let prefix = match &mut self {
            // A database holds one cluster.
            CoordinationOptions::Store => return self,
            CoordinationOptions::Etcd(options) => &mut options.prefix,
            CoordinationOptions::Redis(options) => &mut options.prefix,
            CoordinationOptions::ZooKeeper(options) => &mut options.path,
        };
        prefix.push('/');
        prefix.push_str(cluster);
        self
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAndPort {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for HostAndPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Empty if the service has passwords without users.
    pub user: String,
    pub password: Secret,
}

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// The certificate of the authority that has signed the server's. Without it, the public authorities are
    /// used.
    pub ca: Option<PathBuf>,
    /// The certificate that we present to servers that authenticate clients.
    pub identity: Option<ClientCertificate>,
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The error in a URL, and what would be valid. It does not quote the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UrlError(String);

const FORMS: &str = "store, etcd://HOST:2379, redis://HOST:6379 or zookeeper://HOST:2181";
/// The default prefix of everything that a cluster stores.
const PREFIX: &str = "punctual";

impl FromStr for CoordinationOptions {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text == "store" {
            return Ok(CoordinationOptions::Store);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UrlError(format!("must be {FORMS}")));
        };
        let parts = Parts::of(rest)?;
        match scheme {
            "etcd" | "etcds" => parts.etcd(scheme == "etcds").map(CoordinationOptions::Etcd),
            "redis" | "rediss" => parts.redis(scheme == "rediss").map(CoordinationOptions::Redis),
            "zookeeper" => parts.zookeeper().map(CoordinationOptions::ZooKeeper),
            _ => Err(UrlError(format!("unknown kind of coordination {scheme}: use {FORMS}"))),
        }
    }
}

/// The URL without the password.
impl fmt::Display for CoordinationOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CoordinationOptions::Store => f.write_str("store"),
            CoordinationOptions::Etcd(options) => {
                let scheme = if options.tls.is_some() { "etcds" } else { "etcd" };
                write!(f, "{scheme}://{}/{}", listed(&options.hosts), options.prefix)
            }
            CoordinationOptions::Redis(options) => {
                let scheme = if options.tls.is_some() { "rediss" } else { "redis" };
                let hosts = listed(&options.hosts);
                write!(f, "{scheme}://{hosts}/{}?prefix={}", options.database, options.prefix)
            }
            CoordinationOptions::ZooKeeper(options) => {
                write!(f, "zookeeper://{}/{}", listed(&options.hosts), options.path)
            }
        }
    }
}

pub(crate) fn listed(hosts: &[HostAndPort]) -> String {
    hosts.iter().map(HostAndPort::to_string).collect::<Vec<_>>().join(",")
}

/// Advice for a host that cannot be reached, by the reason.
pub(crate) fn advice(why: &str) -> &'static str {
    if why.contains("certificate") || why.contains("fatal alert") {
        "check ca, cert and key in coordination.url"
    } else {
        "check that it runs and that the address in coordination.url is right"
    }
}

/// A URL after its scheme.
struct Parts<'a> {
    login: Option<Login>,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: Vec<(&'a str, String)>,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str) -> Result<Self, UrlError> {
        // Otherwise a part of a password would be taken for a host, a path or a setting, and printed.
        if rest.rsplit_once('@').is_some_and(|(before, _)| before.contains(['/', '?', '#'])) {
            return Err(UrlError(
                "before an @, write / as %2F, ? as %3F and # as %23; after a / or ?, write @ as %40"
                    .to_owned(),
            ));
        }
        if rest.contains('#') {
            return Err(UrlError("a # has no meaning in it: remove it and what follows".to_owned()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match place.rsplit_once('@') {
            Some((login, hosts)) => (Some(login_of(login)?), hosts),
            None => (None, place),
        };
        let mut settings = Vec::new();
        for setting in query.split('&').filter(|setting| !setting.is_empty()) {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(UrlError(format!("expected NAME=VALUE after the ?, not {setting}")));
            };
            if settings.iter().any(|(known, _)| *known == name) {
                return Err(UrlError(format!("{name} is given twice: remove one")));
            }
            settings.push((name, decoded(value)?));
        }
        Ok(Parts { login, hosts: hosts.split(',').collect(), path, query: settings })
    }

    fn etcd(self, is_tls: bool) -> Result<EtcdOptions, UrlError> {
        self.knows_only(if is_tls { &["ca", "cert", "key"] } else { &[] })?;
        let hosts = hosts(&self.hosts, 2_379)?;
        let tls = if is_tls { Some(self.tls()?) } else { None };
        let prefix = name_or_default(self.path)?;
        Ok(EtcdOptions { hosts, tls, prefix, login: self.login, answer_max: COORDINATION_ANSWER_MAX })
    }

    fn redis(self, is_tls: bool) -> Result<RedisOptions, UrlError> {
        self.knows_only(if is_tls { &["ca", "cert", "key", "prefix"] } else { &["prefix"] })?;
        let hosts = hosts(&self.hosts, 6_379)?;
        let database = match self.path {
            "" => 0,
            text => text.parse().map_err(|_| {
                UrlError(format!("the path of a Redis URL is the number of a database, not {text}; a prefix goes into ?prefix="))
            })?,
        };
        let prefix = self.setting("prefix").unwrap_or_default();
        let (tls, prefix) = (if is_tls { Some(self.tls()?) } else { None }, name_or_default(&prefix)?);
        let answer_max = COORDINATION_ANSWER_MAX;
        Ok(RedisOptions { hosts, tls, database, prefix, login: self.login, answer_max })
    }

    fn zookeeper(self) -> Result<ZooKeeperOptions, UrlError> {
        self.knows_only(&[])?;
        let hosts = hosts(&self.hosts, 2_181)?;
        let path = name_or_default(self.path)?;
        Ok(ZooKeeperOptions { hosts, path, login: self.login, answer_max: COORDINATION_ANSWER_MAX })
    }

    fn setting(&self, name: &str) -> Option<String> {
        self.query.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone())
    }

    fn tls(&self) -> Result<Tls, UrlError> {
        let file = |name| self.setting(name).map(PathBuf::from);
        let identity = match (file("cert"), file("key")) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(UrlError("cert needs its key: add &key=FILE".to_owned())),
            (None, Some(_)) => return Err(UrlError("key needs its certificate: add &cert=FILE".to_owned())),
        };
        Ok(Tls { ca: file("ca"), identity })
    }

    fn knows_only(&self, known: &[&str]) -> Result<(), UrlError> {
        match self.query.iter().find(|(name, _)| !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) if known.is_empty() => {
                Err(UrlError(format!("unknown setting {name}: remove it")))
            }
            Some((name, _)) => Err(UrlError(format!("unknown setting {name}; known: {}", known.join(", ")))),
        }
    }
}

fn login_of(text: &str) -> Result<Login, UrlError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Ok(Login { user: decoded(user)?, password: Secret(decoded(password)?) })
}

fn decoded(text: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|_| UrlError("the percent-encoded text in the URL is not UTF-8".to_owned()))
}

fn hosts(texts: &[&str], port: u16) -> Result<Vec<HostAndPort>, UrlError> {
    texts.iter().map(|text| host(text, port)).collect()
}

fn host(text: &str, port: u16) -> Result<HostAndPort, UrlError> {
    let wrong = |said: &str| Err(UrlError(said.to_owned()));
    // An IPv6 address contains colons and is in brackets.
    let (host, written) = match text.rsplit_once(':') {
        Some((host, written)) if !written.ends_with(']') => (host, Some(written)),
        _ => (text, None),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match address {
        Some(address) if address.parse::<Ipv6Addr>().is_ok() => {}
        Some(_) => return wrong("expected an IPv6 address in brackets, such as [::1]"),
        None if host.contains(['[', ']', ':']) => {
            return wrong("an IPv6 address must be in brackets, such as [::1] or [::1]:6379");
        }
        None if host.is_empty() => return wrong("a host is missing in the URL: name one after the //"),
        None if host.contains(|letter: char| letter.is_whitespace() || letter.is_control()) => {
            return wrong("a host contains white space or a control character: remove it");
        }
        None => {}
    }
    let port = match written.map(str::parse) {
        None => port,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return wrong("expected a port after the colon of a host, a number from 1 to 65535"),
    };
    Ok(HostAndPort { host: host.to_owned(), port })
}

/// Plain words separated by slashes, so that they mean the same to every service.
fn name_or_default(text: &str) -> Result<String, UrlError> {
    let text = text.trim_matches('/');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let is_odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if text.is_empty() {
        Ok(PREFIX.to_owned())
    } else if text.bytes().all(is_plain) && text.len() <= 200 && !text.split('/').any(is_odd) {
        Ok(text.to_owned())
    } else {
        Err(UrlError(format!(
            "{text} cannot be the prefix of a cluster: use letters, digits, - _ . and / between words, at \
             most 200 characters"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> CoordinationOptions {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn clusters_have_places_of_their_own_below_a_prefix() {
        for (text, shown) in [
            ("store", "store"),
            ("etcd://a", "etcd://a:2379/punctual/7f"),
            ("redis://a?prefix=blue", "redis://a:6379/0?prefix=blue/7f"),
            ("zookeeper://a/x", "zookeeper://a:2181/x/7f"),
        ] {
            assert_eq!(read(text).below("7f").to_string(), shown);
        }
    }

    #[test]
    fn a_url_reads_as_it_is_meant_and_shows_no_password() {
        for (text, shown) in [
            ("store", "store"),
            ("etcd://a", "etcd://a:2379/punctual"),
            ("etcd://ann:se%3Acret@a:1,b,[::1]:3/x/y/", "etcd://a:1,b:2379,[::1]:3/x/y"),
            ("etcds://a?ca=/etc/ca.pem", "etcds://a:2379/punctual"),
            ("redis://:secret@a", "redis://a:6379/0?prefix=punctual"),
            ("redis://a,b:1", "redis://a:6379,b:1/0?prefix=punctual"),
            ("rediss://a:7/3?prefix=blue&ca=ca.pem", "rediss://a:7/3?prefix=blue"),
            ("zookeeper://a,b,c/jobs/blue", "zookeeper://a:2181,b:2181,c:2181/jobs/blue"),
        ] {
            assert_eq!(read(text).to_string(), shown);
        }
        let CoordinationOptions::Etcd(etcd) = read("etcd://ann:se%3Acret@a") else { panic!("not etcd") };
        let login = etcd.login.clone().unwrap();
        assert_eq!((login.user.as_str(), login.password.0.as_str()), ("ann", "se:cret"));
        assert!(!format!("{etcd:?}").contains("cret@") && !format!("{etcd:?}").contains("se:cret"));
        let CoordinationOptions::Redis(redis) = read("rediss://a?ca=x.pem&cert=y.pem&key=z.pem") else {
            panic!("not Redis")
        };
        let identity = ClientCertificate { certificate: "y.pem".into(), key: "z.pem".into() };
        assert_eq!(redis.tls, Some(Tls { ca: Some("x.pem".into()), identity: Some(identity) }));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (text, words) in [
            ("", "must be store"),
            ("etcd", "etcd://HOST:2379"),
            ("consul://a", "unknown kind of coordination consul"),
            ("etcd://", "a host is missing"),
            ("etcd://ann:topsecret@a:x", "a number from 1 to 65535"),
            ("redis://a:0", "a number from 1 to 65535"),
            ("redis://a:", "a number from 1 to 65535"),
            ("redis://a:65536", "a number from 1 to 65535"),
            ("redis://[::1", "must be in brackets"),
            ("redis://::1", "must be in brackets"),
            ("redis://[::1]x", "must be in brackets"),
            ("redis://[a]:6379", "expected an IPv6 address"),
            ("redis://a b", "contains white space"),
            ("redis://a#blue", "a # has no meaning"),
            ("redis://a/0?prefix=x#blue", "a # has no meaning"),
            ("redis://ann:topsecret/x@a", "write / as %2F"),
            ("redis://ann:x?topsecret@a", "? as %3F"),
            ("redis://ann:topsecret#x@a", "# as %23"),
            ("redis://a?prefix=x&prefix=y", "prefix is given twice"),
            ("zookeeper://a?timeout=3", "unknown setting timeout: remove it"),
            ("etcd://a?tls=true", "unknown setting tls: remove it"),
            ("redis://a?ca=x.pem", "unknown setting ca; known: prefix"),
            ("rediss://a?cert=x.pem", "add &key=FILE"),
            ("etcds://a?key=x.pem", "add &cert=FILE"),
            ("redis://a,", "a host is missing"),
            ("redis://a/blue", "?prefix="),
            ("zookeeper://a/b c", "cannot be the prefix"),
            ("zookeeper://a/../b", "cannot be the prefix"),
        ] {
            let error = text.parse::<CoordinationOptions>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("topsecret"), "{error}");
        }
    }
}
