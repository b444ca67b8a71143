//! URLs of the services beside the store: coordination and brokers. One parser, so that hosts, logins and TLS are
//! written in the same way for all of them. Passwords are never printed.

use percent_encoding::percent_decode_str;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

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
pub struct UrlError(pub String);

/// The default prefix of everything that a cluster keeps in a service.
const PREFIX: &str = "punctual";

/// The hosts of a service, for messages.
pub fn listed(hosts: &[HostAndPort]) -> String {
    hosts.iter().map(HostAndPort::to_string).collect::<Vec<_>>().join(",")
}

/// Advice for a host that cannot be reached, by the reason. `setting` is the key of the URL.
pub fn advice(why: &str, setting: &str) -> String {
    if why.contains("certificate") || why.contains("fatal alert") {
        format!("check ca, cert and key in {setting}")
    } else {
        format!("check that it runs and that the address in {setting} is right")
    }
}

/// A URL after its scheme.
pub struct ServiceUrl<'a> {
    pub login: Option<Login>,
    hosts: Vec<&'a str>,
    pub path: &'a str,
    query: Vec<(&'a str, String)>,
}

impl<'a> ServiceUrl<'a> {
    /// Parses a URL without its scheme and `://`.
    pub fn parse(rest: &'a str) -> Result<Self, UrlError> {
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
        Ok(ServiceUrl { login, hosts: hosts.split(',').collect(), path, query: settings })
    }

    /// The hosts, with the default port where the URL names none.
    pub fn hosts(&self, default_port: u16) -> Result<Vec<HostAndPort>, UrlError> {
        self.hosts.iter().map(|text| host(text, default_port)).collect()
    }

    pub fn setting(&self, name: &str) -> Option<String> {
        self.query.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone())
    }

    /// The path without its percent-encoding.
    pub fn decoded_path(&self) -> Result<String, UrlError> {
        decoded(self.path)
    }

    /// The files of TLS.
    pub fn tls(&self) -> Result<Tls, UrlError> {
        let file = |name| self.setting(name).map(PathBuf::from);
        let identity = match (file("cert"), file("key")) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
            (None, None) => None,
            (Some(_), None) => return Err(UrlError("cert needs its key: add &key=FILE".to_owned())),
            (None, Some(_)) => return Err(UrlError("key needs its certificate: add &cert=FILE".to_owned())),
        };
        Ok(Tls { ca: file("ca"), identity })
    }

    /// Rejects settings after the `?` that the service does not have.
    pub fn knows_only(&self, known: &[&str]) -> Result<(), UrlError> {
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
pub fn name_or_default(text: &str) -> Result<String, UrlError> {
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
