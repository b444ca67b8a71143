//! The address of coordination, parsed from one word or URL. Passwords are never printed.

use punctual_core::limits::COORDINATION_ANSWER_MAX;
use punctual_core::service_url::{HostAndPort, Login, ServiceUrl, Tls, UrlError, listed, name_or_default};
use std::fmt;
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

/// The key of the URL in the settings, for messages.
pub(crate) const SETTING: &str = "coordination.url";
const FORMS: &str = "store, etcd://HOST:2379, redis://HOST:6379 or zookeeper://HOST:2181";

impl FromStr for CoordinationOptions {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        if text == "store" {
            return Ok(CoordinationOptions::Store);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UrlError(format!("must be {FORMS}")));
        };
        let url = ServiceUrl::parse(rest)?;
        match scheme {
            "etcd" | "etcds" => etcd(url, scheme == "etcds").map(CoordinationOptions::Etcd),
            "redis" | "rediss" => redis(url, scheme == "rediss").map(CoordinationOptions::Redis),
            "zookeeper" => zookeeper(url).map(CoordinationOptions::ZooKeeper),
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

fn etcd(url: ServiceUrl<'_>, is_tls: bool) -> Result<EtcdOptions, UrlError> {
    url.knows_only(if is_tls { &["ca", "cert", "key"] } else { &[] })?;
    let hosts = url.hosts(2_379)?;
    let tls = if is_tls { Some(url.tls()?) } else { None };
    let prefix = name_or_default(url.path)?;
    Ok(EtcdOptions { hosts, tls, prefix, login: url.login, answer_max: COORDINATION_ANSWER_MAX })
}

fn redis(url: ServiceUrl<'_>, is_tls: bool) -> Result<RedisOptions, UrlError> {
    url.knows_only(if is_tls { &["ca", "cert", "key", "prefix"] } else { &["prefix"] })?;
    let hosts = url.hosts(6_379)?;
    let database = match url.path {
        "" => 0,
        text => text.parse().map_err(|_| {
            UrlError(format!(
                "the path of a Redis URL is the number of a database, not {text}; a prefix goes into ?prefix="
            ))
        })?,
    };
    let prefix = url.setting("prefix").unwrap_or_default();
    let (tls, prefix) = (if is_tls { Some(url.tls()?) } else { None }, name_or_default(&prefix)?);
    let answer_max = COORDINATION_ANSWER_MAX;
    Ok(RedisOptions { hosts, tls, database, prefix, login: url.login, answer_max })
}

fn zookeeper(url: ServiceUrl<'_>) -> Result<ZooKeeperOptions, UrlError> {
    url.knows_only(&[])?;
    let hosts = url.hosts(2_181)?;
    let path = name_or_default(url.path)?;
    Ok(ZooKeeperOptions { hosts, path, login: url.login, answer_max: COORDINATION_ANSWER_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::service_url::ClientCertificate;

    fn read(text: &str) -> CoordinationOptions {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn clusters_have_separate_locations_below_a_prefix() {
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
    fn a_url_is_parsed_and_shown_without_its_password() {
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
    fn errors_name_the_problem_and_the_fix() {
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
