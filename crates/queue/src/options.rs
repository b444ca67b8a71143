//! The address of a broker, parsed from one word or URL. Passwords are never printed.

use punctual_core::service_url::{HostAndPort, Login, ServiceUrl, Tls, UrlError, listed, name_or_default};
use punctual_tls::TlsFileError;
use std::fmt;

/// The keys of a broker in the settings, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingNames {
    pub url: &'static str,
    pub password_file: &'static str,
}

impl SettingNames {
    pub const BROKER: Self = SettingNames { url: "broker.url", password_file: "broker.password_file" };
    pub const EVENTS: Self = SettingNames { url: "events.url", password_file: "events.password_file" };
    pub const INTAKE: Self = SettingNames { url: "intake.url", password_file: "intake.password_file" };
}

#[derive(Debug, thiserror::Error)]
pub enum BrokerOpenError {
    #[error(transparent)]
    Certificates(#[from] TlsFileError),
    #[error("{0}")]
    Options(String),
}

#[cfg(not(feature = "kafka"))]
const FORMS: &str = "none, redis://HOST:6379, nats://HOST:4222 or amqp://HOST:5672";
#[cfg(feature = "kafka")]
const FORMS: &str = "none, redis://HOST:6379, nats://HOST:4222, amqp://HOST:5672 or kafka://HOST:9092";

/// The port of a sentinel, if the URL names none.
const SENTINEL_PORT: u16 = 26_379;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerKind {
    Redis,
    Nats,
    Amqp,
    #[cfg(feature = "kafka")]
    Kafka,
}

impl BrokerKind {
    pub const fn word(self) -> &'static str {
        match self {
            BrokerKind::Redis => "redis",
            BrokerKind::Nats => "nats",
            BrokerKind::Amqp => "amqp",
            #[cfg(feature = "kafka")]
            BrokerKind::Kafka => "kafka",
        }
    }

    /// The name of the service, for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            BrokerKind::Redis => "Redis",
            BrokerKind::Nats => "NATS",
            BrokerKind::Amqp => "RabbitMQ",
            #[cfg(feature = "kafka")]
            BrokerKind::Kafka => "Kafka",
        }
    }

    #[cfg(feature = "kafka")]
    const KAFKA: Option<Self> = Some(BrokerKind::Kafka);
    #[cfg(not(feature = "kafka"))]
    const KAFKA: Option<Self> = None;
}

/// How a login is presented to Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SaslMechanism {
    #[default]
    Plain,
    ScramSha256,
    ScramSha512,
}

impl SaslMechanism {
    const ALL: [SaslMechanism; 3] =
        [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512];

    /// Its registered name.
    pub const fn word(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }

    fn parse(text: &str) -> Result<Self, UrlError> {
        let found = SaslMechanism::ALL.into_iter().find(|known| known.word().eq_ignore_ascii_case(text));
        let words = SaslMechanism::ALL.map(|known| known.word().to_lowercase());
        found.ok_or_else(|| UrlError(format!("unknown sasl={text}: use {}", words.join(", "))))
    }
}

/// `SCHEME://[user:password@]host[:port][,host…][/virtual host][?prefix=…]`, where the scheme is `redis`, `nats`, `amqp` or
/// `kafka`, or with TLS `rediss`, `natss`, `amqps` or `kafkas` and `ca=FILE`, `cert=FILE` and `key=FILE` after the `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerOptions {
    pub kind: BrokerKind,
    pub hosts: Vec<HostAndPort>,
    pub login: Option<Login>,
    pub tls: Option<Tls>,
    /// The virtual host of RabbitMQ; the others have none.
    pub virtual_host: String,
    /// How the login is presented to Kafka; the others have one way.
    pub sasl: SaslMechanism,
    /// The name of the primary, if the hosts are sentinels of Redis.
    pub sentinel: Option<String>,
    /// The prefix of the channel, subject, exchange or topic.
    pub prefix: String,
    /// Where the URL is configured.
    pub names: SettingNames,
}

impl BrokerOptions {
    /// `None` for the word `none`: hints come from the database, or work is polled.
    pub fn parse(text: &str) -> Result<Option<Self>, UrlError> {
        if text == "none" {
            return Ok(None);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(UrlError(format!("must be {FORMS}")));
        };
        let (kind, is_tls, port) = match scheme {
            "redis" => (BrokerKind::Redis, false, 6_379),
            "rediss" => (BrokerKind::Redis, true, 6_379),
            "nats" => (BrokerKind::Nats, false, 4_222),
            "natss" => (BrokerKind::Nats, true, 4_222),
            "amqp" => (BrokerKind::Amqp, false, 5_672),
            "amqps" => (BrokerKind::Amqp, true, 5_671),
            "kafka" | "kafkas" => {
                let kind = BrokerKind::KAFKA.ok_or_else(|| missing("Kafka", "kafka"))?;
                (kind, scheme == "kafkas", 9_092)
            }
            _ => return Err(UrlError(format!("unknown kind of broker {scheme}: use {FORMS}"))),
        };
        let url = ServiceUrl::parse(rest)?;
        let (is_redis, is_kafka) = (kind == BrokerKind::Redis, Some(kind) == BrokerKind::KAFKA);
        let known = [(true, "prefix"), (is_redis, "sentinel"), (is_kafka, "sasl")];
        let known = known.into_iter().chain(["ca", "cert", "key"].map(|name| (is_tls, name)));
        url.knows_only(&known.filter_map(|(has, name)| has.then_some(name)).collect::<Vec<_>>())?;
        let sentinel = url.setting("sentinel");
        if sentinel.as_ref().is_some_and(|name| name.is_empty() || name.contains(char::is_whitespace)) {
            return Err(UrlError("sentinel must be the name of the primary, such as mymaster".to_owned()));
        }
        let port = if sentinel.is_some() { SENTINEL_PORT } else { port };
        let sasl = url.setting("sasl");
        if sasl.is_some() && url.login.is_none() {
            return Err(UrlError("sasl needs a user: write kafka://USER:PASSWORD@HOST".to_owned()));
        }
        let sasl = sasl.map(|text| SaslMechanism::parse(&text)).transpose()?.unwrap_or_default();
        if is_kafka && (is_tls || sasl != SaslMechanism::Plain) && !cfg!(feature = "kafka-tls") {
            return Err(missing("TLS and SCRAM for Kafka", "kafka-tls"));
        }
        if kind != BrokerKind::Amqp && !url.path.is_empty() {
            return Err(UrlError(format!(
                "the URL of {} has no path: a prefix goes into ?prefix=",
                kind.name()
            )));
        }
        Ok(Some(BrokerOptions {
            kind,
            hosts: url.hosts(port)?,
            tls: if is_tls { Some(url.tls()?) } else { None },
            virtual_host: url.decoded_path()?,
            sasl,
            sentinel,
            prefix: name_or_default(&url.setting("prefix").unwrap_or_default())?,
            login: url.login,
            names: SettingNames::BROKER,
        }))
    }

    /// The place of one of several clusters under the same prefix.
    #[must_use]
    pub fn below(mut self, cluster: &str) -> Self {
        self.prefix.push('/');
        self.prefix.push_str(cluster);
        self
    }

    /// The same broker, configured in another table of the settings.
    #[must_use]
    pub const fn configured_as(mut self, names: SettingNames) -> Self {
        self.names = names;
        self
    }

    /// The hosts, for messages.
    pub(crate) fn address(&self) -> String {
        listed(&self.hosts)
    }
}

fn missing(what: &str, feature: &str) -> UrlError {
    UrlError(format!("this build has no {what}: build it with the cargo feature `{feature}`"))
}

/// The URL without the password.
impl fmt::Display for BrokerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, tls) = (self.kind.word(), if self.tls.is_some() { "s" } else { "" });
        write!(f, "{scheme}{tls}://{}", self.address())?;
        if !self.virtual_host.is_empty() {
            write!(f, "/{}", self.virtual_host)?;
        }
        write!(f, "?prefix={}", self.prefix)?;
        self.sentinel.as_ref().map_or(Ok(()), |name| write!(f, "&sentinel={name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_and_shown_without_its_password() {
        assert_eq!(BrokerOptions::parse("none"), Ok(None));
        for (text, shown) in [
            ("redis://:secret@a", "redis://a:6379?prefix=punctual"),
            ("rediss://a,b:1?ca=ca.pem&prefix=blue", "rediss://a:6379,b:1?prefix=blue"),
            ("redis://ann:secret@a,b:1?sentinel=main", "redis://a:26379,b:1?prefix=punctual&sentinel=main"),
            ("nats://ann:secret@a,[::1]:5", "nats://a:4222,[::1]:5?prefix=punctual"),
            ("amqp://ann:secret@a/blue%2Fred", "amqp://a:5672/blue/red?prefix=punctual"),
            ("amqps://ann:secret@a,b:9?ca=ca.pem", "amqps://a:5671,b:9?prefix=punctual"),
            #[cfg(feature = "kafka")]
            ("kafka://ann:secret@a,b:9?sasl=plain", "kafka://a:9092,b:9?prefix=punctual"),
            #[cfg(feature = "kafka-tls")]
            ("kafkas://ann:secret@a?sasl=scram-sha-512&ca=ca.pem", "kafkas://a:9092?prefix=punctual"),
        ] {
            let options = BrokerOptions::parse(text).unwrap().unwrap();
            assert_eq!(options.to_string(), shown);
            assert!(!format!("{options:?}").contains("secret"));
            assert!(options.below("7f").to_string().contains("/7f"));
        }
    }

    #[test]
    fn errors_name_the_problem_and_the_fix() {
        for (text, words) in [
            ("", "must be none, redis://HOST:6379"),
            ("redis", "must be none"),
            ("mqtt://topsecret@a", "unknown kind of broker mqtt"),
            #[cfg(not(feature = "kafka"))]
            ("kafka://ann:topsecret@a", "cargo feature `kafka`"),
            #[cfg(all(feature = "kafka", not(feature = "kafka-tls")))]
            ("kafkas://ann:topsecret@a", "cargo feature `kafka-tls`"),
            #[cfg(feature = "kafka")]
            ("kafka://ann:topsecret@a?sasl=gssapi", "use plain, scram-sha-256, scram-sha-512"),
            #[cfg(feature = "kafka")]
            ("kafka://a?sasl=plain", "sasl needs a user"),
            #[cfg(feature = "kafka")]
            ("kafka://a?ca=x.pem", "unknown setting ca; known: prefix, sasl"),
            ("amqp://a?sasl=plain", "unknown setting sasl; known: prefix"),
            ("amqp://a?ca=x.pem", "unknown setting ca; known: prefix"),
            ("redis://a/3", "?prefix="),
            ("nats://a?ca=x.pem", "unknown setting ca; known: prefix"),
            ("redis://a?sentinel=", "the name of the primary"),
            ("nats://a?sentinel=main", "unknown setting sentinel; known: prefix"),
            ("nats://ann:topsecret/x@a", "write / as %2F"),
        ] {
            let error = BrokerOptions::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("topsecret"), "{error}");
        }
    }
}
