//! Setting values about the web: host names, origins, and switches.

use crate::value::{ListItem, Raw, Value};
use serde_json::Value as Json;

/// On or off. Its flag alone means on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch(pub bool);

impl Value for Switch {
    const IS_SWITCH: bool = true;

    fn kind() -> String {
        "true or false".to_owned()
    }

    fn placeholder() -> String {
        "true|false".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = match raw {
            // A file has a type for it.
            Raw::Other(text) => Some(text.as_str()),
            raw => raw.text(),
        };
        let is_on = text.and_then(|text| text.trim().to_ascii_lowercase().parse().ok());
        is_on.map(Switch).ok_or_else(|| format!("must be {}", Self::kind()))
    }

    fn written(&self) -> Json {
        self.0.into()
    }
}

/// A host name, or a pattern of them such as `*.example.org`, in lower case and without a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(pub String);

impl ListItem for HostName {
    fn kind_of_list() -> String {
        "a list of host names, such as [\"jobs.example.org\"]".to_owned()
    }

    fn placeholder() -> String {
        "HOST".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let host = text.trim().to_ascii_lowercase();
        if is_host(host.strip_prefix("*.").unwrap_or(&host)) {
            return Ok(HostName(host));
        }
        Err("must be a host name without a scheme and a port, such as jobs.example.org or *.example.org"
            .to_owned())
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}

fn is_host(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    text.split('.').all(|label| !label.is_empty() && label.bytes().all(is_plain))
}

/// The origin of a web page, as browsers send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin(pub String);

impl ListItem for WebOrigin {
    fn kind_of_list() -> String {
        "a list of origins, such as [\"https://intranet.example.org\"]".to_owned()
    }

    fn placeholder() -> String {
        "ORIGIN".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let origin = text.trim().to_ascii_lowercase();
        let usual_port = |scheme| if scheme == "https" { "443" } else { "80" };
        let parsed = origin.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
        let parsed = parsed.and_then(|(scheme, rest)| match rest.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => {
                // Browsers leave it out.
                let is_usual = port == usual_port(scheme);
                is_named(host).then(|| if is_usual { format!("{scheme}://{host}") } else { origin.clone() })
            }
            _ => is_named(rest).then(|| origin.clone()),
        });
        parsed.map(WebOrigin).ok_or_else(|| {
            "must be an exact origin: a scheme, a host and a port if it is not the usual one, such as \
             https://intranet.example.org or http://localhost:3000"
                .to_owned()
        })
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}

/// A host name, or an IPv6 address in brackets.
fn is_named(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    v6.map_or_else(|| is_host(host), |v6| v6.parse::<std::net::Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_a_word_or_a_value_of_the_file() {
        let switch = |raw: Raw| Switch::read(&raw).ok().map(|switch| switch.0);
        assert_eq!(switch(Raw::word("true")), Some(true));
        assert_eq!(switch(Raw::word("FALSE")), Some(false));
        assert_eq!(switch(Raw::Other("true".to_owned())), Some(true));
        assert_eq!((switch(Raw::word("yes")), switch(Raw::Number("1".to_owned()))), (None, None));
    }

    #[test]
    fn hosts_have_no_scheme_and_no_port() {
        let host = |text: &str| HostName::read(text).ok().map(|host| host.0);
        assert_eq!(host("Jobs.Example.org").as_deref(), Some("jobs.example.org"));
        assert_eq!(host("*.example.org").as_deref(), Some("*.example.org"));
        for wrong in ["", "*", "*.", "a..b", "https://a", "a:80", "a/b", "u@a", "a.*.b"] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn origins_are_written_as_browsers_send_them() {
        let origin = |text: &str| WebOrigin::read(text).ok().map(|origin| origin.0);
        assert_eq!(origin("https://Intranet.example:443").as_deref(), Some("https://intranet.example"));
        assert_eq!(origin("http://localhost:3000").as_deref(), Some("http://localhost:3000"));
        assert_eq!(origin("http://[::1]:3000").as_deref(), Some("http://[::1]:3000"));
        for wrong in
            ["", "*", "null", "intranet.example", "https://a/", "https://a/b", "ftp://a", "https://*.a"]
        {
            assert_eq!(origin(wrong), None, "{wrong}");
        }
    }
}
