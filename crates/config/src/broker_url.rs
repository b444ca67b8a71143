//! The URL of the broker. A password in it is never printed.

use crate::value::{ListItem, Raw, Value};
use punctual_core::published::PublishedType;
use punctual_core::service_url::UrlError;
use punctual_queue::BrokerOptions;
use serde_json::Value as Json;

const FORMS: &str = "none, redis://HOST:6379, nats://HOST:4222 or amqp://HOST:5672";
const NONE: &str = "none";
/// The longest name of a topic: RabbitMQ has room for 255 bytes, and `.rejected` follows.
const TOPIC_BYTES_MAX: usize = 200;

/// The value of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerUrl(Option<BrokerOptions>);

impl Value for BrokerUrl {
    fn kind() -> String {
        FORMS.to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| format!("must be {FORMS}"))?;
        let options = BrokerOptions::parse(text).map_err(|error: UrlError| error.to_string())?;
        match raw {
            Raw::Text(_) if has_password(options.as_ref()) => Err(
                "must not contain the password: write it to a separate file, and set password_file of the same table to its \
                 path (broker.password_file, events.password_file)"
                    .to_owned(),
            ),
            _ => Ok(BrokerUrl(options)),
        }
    }

    /// A malformed value may contain a password anywhere.
    fn found(_: &Raw) -> Option<String> {
        None
    }

    fn written(&self) -> Json {
        self.0.as_ref().map_or_else(|| NONE.to_owned(), BrokerOptions::to_string).into()
    }
}

impl BrokerUrl {
    /// `None` without a broker.
    pub const fn options(&self) -> Option<&BrokerOptions> {
        self.0.as_ref()
    }

    /// The options with the password of the user in the URL; `None` if it names no user.
    pub fn with_password(&self, text: &str) -> Option<BrokerOptions> {
        let mut options = self.0.clone()?;
        text.clone_into(&mut options.login.as_mut()?.password.0);
        Some(options)
    }

    /// A warning if other users of this machine can see the password. `origin` is where the URL was found, `instead`
    /// names better places.
    pub fn seen_password(&self, origin: &str, instead: &str) -> Option<String> {
        has_password(self.options()).then(|| crate::seen_password(origin, instead)).flatten()
    }
}

fn has_password(options: Option<&BrokerOptions>) -> bool {
    let login = options.and_then(|options| options.login.as_ref());
    login.is_some_and(|login| !login.password.0.is_empty())
}

/// The name of a stream, subject, queue or exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic(pub String);

impl Value for Topic {
    fn kind() -> String {
        format!("a name of 1 to {TOPIC_BYTES_MAX} letters, digits, dots, dashes, underscores and colons")
    }

    fn placeholder() -> String {
        "TOPIC".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().unwrap_or_default();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || ".-_:".contains(letter);
        let has_empty_part = text.split('.').any(str::is_empty);
        if text.len() > TOPIC_BYTES_MAX || has_empty_part || !text.chars().all(is_plain) {
            return Err(format!("must be {}, without an empty part between dots", Self::kind()));
        }
        Ok(Topic(text.to_owned()))
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

/// A type of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedTypeName(pub PublishedType);

impl ListItem for PublishedTypeName {
    fn kind_of_list() -> String {
        format!("a list of {}", PublishedType::ALL.map(PublishedType::word).join(" and "))
    }

    fn placeholder() -> String {
        "TYPE".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let known = || format!("must be {}", PublishedType::ALL.map(PublishedType::word).join(" or "));
        PublishedType::of_word(text.trim()).map(PublishedTypeName).ok_or_else(known)
    }

    fn written(&self) -> String {
        self.0.word().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BrokerUrl, String> {
        BrokerUrl::read(&Raw::word(text))
    }

    #[test]
    fn a_url_is_shown_without_its_password_and_what_is_wrong_is_not_repeated() {
        assert_eq!(read("none").unwrap().written(), Json::from("none"));
        let url = read("nats://ann:secret@host").unwrap();
        assert_eq!(url.written(), Json::from("nats://host:4222?prefix=punctual"));
        let error = read("mqtt://ann:secret@host").unwrap_err();
        assert!(error.contains("nats://HOST:4222") && !error.contains("secret"), "{error}");
        assert_eq!(BrokerUrl::found(&Raw::word("mqtt://ann:secret@host")), None);
    }

    #[test]
    fn a_password_belongs_in_its_file() {
        let error = BrokerUrl::read(&Raw::Text("redis://ann:secret@host".to_owned())).unwrap_err();
        assert!(error.contains("broker.password_file") && !error.contains("secret"), "{error}");
        let url = BrokerUrl::read(&Raw::Text("redis://ann@host".to_owned())).unwrap();
        assert_eq!(url.with_password("x").unwrap().login.unwrap().password.0, "x");
        assert_eq!(read("redis://host").unwrap().with_password("x"), None);
        let instead = "broker.password_file or PUNCTUAL_BROKER";
        assert!(read("redis://ann:secret@host").unwrap().seen_password("--broker", instead).is_some());
        assert_eq!(read("redis://ann:secret@host").unwrap().seen_password("PUNCTUAL_BROKER", instead), None);
    }
}
