//! Setting values about identity providers.

use crate::value::{ListItem, Raw, Value};
use crate::web::WebOrigin;
use punctual_core::access::Role;
use punctual_core::names::line_problem;
use serde_json::Value as Json;

/// A text in one line, such as the name of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(pub String);

impl Value for Text {
    fn kind() -> String {
        "a text in one line".to_owned()
    }

    fn placeholder() -> String {
        "TEXT".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| format!("must be {}", <Self as Value>::kind()))?;
        <Text as ListItem>::read(text)
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

impl ListItem for Text {
    fn kind_of_list() -> String {
        "a list of texts, such as [\"openid\", \"email\"]".to_owned()
    }

    fn placeholder() -> String {
        "TEXT".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match line_problem(text) {
            Some(problem) => Err(problem),
            None => Ok(Text(text.to_owned())),
        }
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}

/// The URL of an issuer, exactly as its JWTs have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerUrl(pub String);

impl Value for IssuerUrl {
    fn kind() -> String {
        "the URL of an issuer, such as https://id.example.org".to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).filter(|text| is_issuer(text));
        text.map(|text| IssuerUrl(text.to_owned()))
            .ok_or_else(|| format!("must be {}, without a user, a query and a fragment", Self::kind()))
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

pub(crate) fn is_issuer(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.starts_with('/')
            && rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"@?#\\".contains(&byte))
    })
}

/// The address of this server for browsers: an origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(pub String);

impl Value for PublicUrl {
    fn kind() -> String {
        "a URL without a path, such as https://jobs.example.org".to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().map(str::trim).ok_or_else(|| format!("must be {}", Self::kind()))?;
        let origin = WebOrigin::read(text.strip_suffix('/').unwrap_or(text));
        origin.map(|WebOrigin(origin)| PublicUrl(origin)).map_err(|_| format!("must be {}", Self::kind()))
    }

    fn written(&self) -> Json {
        self.0.as_str().into()
    }
}

/// A role at an identity provider, and the role that it gives here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleMapping {
    pub value: String,
    pub role: Role,
}

impl ListItem for RoleMapping {
    fn kind_of_list() -> String {
        "a list of VALUE=ROLE, such as [\"jobs-admins=admin\"]".to_owned()
    }

    fn placeholder() -> String {
        "VALUE=ROLE".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let (value, role) = text.rsplit_once('=').filter(|(value, _)| !value.trim().is_empty()).ok_or(
            "must be VALUE=ROLE: a role at the provider, and the role that it gives here, such as jobs-admins=admin",
        )?;
        let role = role.trim().parse::<Role>();
        let role =
            role.map_err(|problem| problem.replacen("must be a role", "must end with = and a role", 1))?;
        Ok(RoleMapping { value: value.trim().to_owned(), role })
    }

    fn written(&self) -> String {
        format!("{}={}", self.value, self.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_a_url_without_extras() {
        let issuer = |text: &str| IssuerUrl::read(&Raw::word(text)).ok().map(|issuer| issuer.0);
        for good in ["https://id.example.org", "https://id.example.org/realms/a/", "http://127.0.0.1:3000"] {
            assert_eq!(issuer(good).as_deref(), Some(good));
        }
        for bad in
            ["", "id.example.org", "https://", "https:///a", "https://u@a", "https://a?b", "https://a#b"]
        {
            assert_eq!(issuer(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_public_url_has_no_path() {
        let url = |text: &str| PublicUrl::read(&Raw::word(text)).ok().map(|url| url.0);
        assert_eq!(url("https://Jobs.example.org/").as_deref(), Some("https://jobs.example.org"));
        assert_eq!(url("http://localhost:7070").as_deref(), Some("http://localhost:7070"));
        for bad in ["", "jobs.example.org", "https://jobs.example.org/punctual", "ftp://jobs.example.org"] {
            assert_eq!(url(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_role_at_the_provider_gives_one_here() {
        let read = |text: &str| RoleMapping::read(text).map(|mapping| (mapping.value, mapping.role));
        assert_eq!(read("jobs-admins=admin"), Ok(("jobs-admins".to_owned(), Role::Admin)));
        assert_eq!(read("cn=jobs=viewer"), Ok(("cn=jobs".to_owned(), Role::Viewer)));
        assert!(read("admin").unwrap_err().starts_with("must be VALUE=ROLE"));
        assert!(read("=admin").unwrap_err().starts_with("must be VALUE=ROLE"));
        assert!(read("x=root").unwrap_err().starts_with("must end with = and a role: viewer"));
    }
}
