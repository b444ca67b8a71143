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

const FORMS: &str = "none, redis://HOST:6379, nats://HOST:4222 or amqp://HOST:5672";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokerKind {
    Redis,
    Nats,
    Amqp,
}

impl BrokerKind {
    pub const fn word(self) -> &'static str {
        match self {
            BrokerKind::Redis => "redis",
            BrokerKind::Nats => "nats",
            BrokerKind::Amqp => "amqp",
        }
    }

    /// The name of the service, for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            BrokerKind::Redis => "Redis",
            BrokerKind::Nats => "NATS",
            BrokerKind::Amqp => "RabbitMQ",
        }
    }
}

/// `SCHEME://[user:password@]host[:port][,host…][/virtual host][?prefix=…]`, where the scheme is `redis`, `nats` or
/// `amqp`, or with TLS `rediss` or `natss` and `ca=FILE`, `cert=FILE` and `key=FILE` after the `?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerOptions {
    pub kind: BrokerKind,
    pub hosts: Vec<HostAndPort>,
    pub login: Option<Login>,
    pub tls: Option<Tls>,
    /// The virtual host of RabbitMQ; the others have none.
    pub virtual_host: String,
    /// The prefix of the channel, subject or exchange.
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
            "kafka" => {
                return Err(UrlError(format!(
                    "this build has no Kafka (cargo feature `kafka`): use {FORMS}"
                )));
            }
            _ => return Err(UrlError(format!("unknown kind of broker {scheme}: use {FORMS}"))),
        };
        let url = ServiceUrl::parse(rest)?;
        url.knows_only(if is_tls { &["ca", "cert", "key", "prefix"] } else { &["prefix"] })?;
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

/// The URL without the password.
impl fmt::Display for BrokerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, tls) = (self.kind.word(), if self.tls.is_some() { "s" } else { "" });
        write!(f, "{scheme}{tls}://{}", self.address())?;
        if !self.virtual_host.is_empty() {
            write!(f, "/{}", self.virtual_host)?;
        }
        write!(f, "?prefix={}", self.prefix)
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
            ("nats://ann:secret@a,[::1]:5", "nats://a:4222,[::1]:5?prefix=punctual"),
            ("amqp://ann:secret@a/blue%2Fred", "amqp://a:5672/blue/red?prefix=punctual"),
            ("amqps://ann:secret@a,b:9?ca=ca.pem", "amqps://a:5671,b:9?prefix=punctual"),
        ] {
            let options = BrokerOptions::parse(text).unwrap().unwrap();
            assert_eq!(options.to_string(), shown);
            assert!(!format!("{options:?}").contains("secret"));
            assert!(options.below("7f").to_string().ends_with("/7f"));
        }
    }

    #[test]
    fn errors_name_the_problem_and_the_fix() {
        for (text, words) in [
            ("", "must be none, redis://HOST:6379"),
            ("redis", "must be none"),
            ("mqtt://topsecret@a", "unknown kind of broker mqtt"),
            ("kafka://a", "cargo feature `kafka`"),
            ("amqp://a?ca=x.pem", "unknown setting ca; known: prefix"),
            ("redis://a/3", "?prefix="),
            ("nats://a?ca=x.pem", "unknown setting ca; known: prefix"),
            ("nats://ann:topsecret/x@a", "write / as %2F"),
        ] {
            let error = BrokerOptions::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("topsecret"), "{error}");
        }
    }
}
