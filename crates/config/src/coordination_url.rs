//! The URL of the coordination backend. A password in it is never printed.

use crate::value::{Raw, Value};
use punctual_coordination::CoordinationOptions;
use punctual_core::service_url::{Secret, UrlError};
use serde_json::Value as Json;

const FORMS: &str = "store, etcd://HOST:2379, redis://HOST:6379 or zookeeper://HOST:2181";

/// The value of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinationUrl(CoordinationOptions);

impl Value for CoordinationUrl {
    fn kind() -> String {
        FORMS.to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| format!("must be {FORMS}"))?;
        let options: CoordinationOptions = text.parse().map_err(|error: UrlError| error.to_string())?;
        match raw {
            Raw::Text(_) if has_password(&options) => {
                Err("must not contain the password: write it to a separate file, and set coordination.password_file to its \
                 path"
                    .to_owned())
            }
            _ => Ok(CoordinationUrl(options)),
        }
    }

    /// A malformed value may contain a password anywhere.
    fn found(_: &Raw) -> Option<String> {
        None
    }

    fn written(&self) -> Json {
        self.0.to_string().into()
    }
}

/// The backend that needs no other service.
pub const COORDINATION_BY_STORE: &str = "store";

impl CoordinationUrl {
    /// The name of the service, without its address, which may be secret.
    pub const fn kind(&self) -> &'static str {
        match self.0 {
            CoordinationOptions::Store => COORDINATION_BY_STORE,
            CoordinationOptions::Etcd(_) => "etcd",
            CoordinationOptions::Redis(_) => "redis",
            CoordinationOptions::ZooKeeper(_) => "zookeeper",
        }
    }

    pub const fn options(&self) -> &CoordinationOptions {
        &self.0
    }

    /// The options with the password of the user in the URL; `None` if it names no user.
    pub fn with_password(&self, text: &str) -> Option<CoordinationOptions> {
        let mut options = self.0.clone();
        text.clone_into(&mut password(&mut options)?.0);
        Some(options)
    }

    /// A warning if other users of this machine can see the password. `origin` is where the URL was found.
    pub fn seen_password(&self, origin: &str) -> Option<String> {
        let instead = "coordination.password_file or PUNCTUAL_COORDINATION";
        has_password(&self.0).then(|| crate::seen_password(origin, instead)).flatten()
    }
}

fn password(options: &mut CoordinationOptions) -> Option<&mut Secret> {
    let login = match options {
        CoordinationOptions::Store => return None,
        CoordinationOptions::Etcd(options) => &mut options.login,
        CoordinationOptions::Redis(options) => &mut options.login,
        CoordinationOptions::ZooKeeper(options) => &mut options.login,
    };
    login.as_mut().map(|login| &mut login.password)
}

fn has_password(options: &CoordinationOptions) -> bool {
    password(&mut options.clone()).is_some_and(|password| !password.0.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CoordinationUrl, String> {
        CoordinationUrl::read(&Raw::word(text))
    }

    #[test]
    fn a_url_is_shown_without_its_password_and_what_is_wrong_is_not_repeated() {
        let url = read("redis://ann:secret@host").unwrap();
        assert!(!url.written().to_string().contains("secret"), "{}", url.written());
        let error = read("consul://ann:secret@host").unwrap_err();
        assert!(error.contains("etcd://HOST:2379") && !error.contains("secret"), "{error}");
        assert_eq!(CoordinationUrl::found(&Raw::word("redis://ann:secret@host")), None);
    }

    #[test]
    fn a_password_in_a_flag_is_seen_by_everybody() {
        let seen = read("redis://ann:secret@host").unwrap().seen_password("--coordination").unwrap();
        assert_eq!(
            seen,
            "all users of this machine can see the password in --coordination: use coordination.password_file or \
             PUNCTUAL_COORDINATION"
        );
        for (url, origin) in [
            ("redis://ann@host", "--coordination"),
            ("store", "--coordination"),
            ("redis://ann:secret@host", "PUNCTUAL_COORDINATION"),
        ] {
            assert_eq!(read(url).unwrap().seen_password(origin), None, "{url} in {origin}");
        }
    }

    #[test]
    fn a_password_does_not_belong_in_the_configuration_file() {
        let error = CoordinationUrl::read(&Raw::Text("redis://ann:secret@host".to_owned())).unwrap_err();
        assert!(error.contains("coordination.password_file") && !error.contains("secret"), "{error}");
        assert!(CoordinationUrl::read(&Raw::Text("redis://ann@host".to_owned())).is_ok());
    }
}
