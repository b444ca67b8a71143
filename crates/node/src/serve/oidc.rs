//! The identity provider that the settings name, and the files that belong to it.

use punctual_api::{Api, OidcClient, OidcConfig, RoleRules};
use punctual_client::ClientTls;
use punctual_config::exit::{CliError, Exit};
use punctual_config::{AddressSettings, OidcSettings, exposure};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;

/// Reads the provider's settings, before anything starts; `None` without a provider. `origin` returns where a
/// setting was found.
pub fn config(
    settings: &OidcSettings,
    origin: impl Fn(&str) -> String,
) -> Result<Option<OidcConfig>, CliError> {
    let wrong = |key: &str, problem: &str| CliError {
        exit: Exit::Misunderstood,
        message: format!("{}: {problem}", origin(key)),
    };
    let Some(issuer) = &settings.issuer else { return without_issuer(settings, wrong) };
    let allows_http = settings.allow_http.0;
    if let Some(problem) = OidcConfig::issuer_problem(&issuer.0, allows_http) {
        return Err(wrong("oidc.issuer", &problem));
    }
    if settings.audience.is_none() && settings.client_id.is_none() {
        return Err(wrong(
            "oidc.issuer",
            "needs oidc.audience for JWTs in requests, or oidc.client_id for logins of browsers, or both",
        ));
    }
    if settings.client_id.is_none() && settings.client_secret_file.is_some() {
        return Err(wrong("oidc.client_secret_file", "needs oidc.client_id as well"));
    }
    let scopes: Vec<String> = settings.scopes.iter().map(|scope| scope.0.clone()).collect();
    if !scopes.iter().any(|scope| scope == "openid") {
        return Err(wrong("oidc.scopes", "must contain openid"));
    }
    let secret = match &settings.client_secret_file {
        Some(file) => Some(secret(&NamedOidcFile { origin: origin("oidc.client_secret_file"), path: file })?),
        None => None,
    };
    let tls = match &settings.ca_file {
        None => ClientTls::default(),
        Some(path) => {
            let file = NamedOidcFile { origin: origin("oidc.ca_file"), path };
            ClientTls::new(Some(&file.read()?), None).map_err(|error| file.wrong(error))?
        }
    };
    Ok(Some(OidcConfig {
        issuer: issuer.0.clone(),
        audience: settings.audience.as_ref().map(|audience| audience.0.clone()),
        client: settings.client_id.as_ref().map(|id| OidcClient { id: id.0.clone(), secret, scopes }),
        rules: RoleRules {
            role_claim: settings.role_claim.0.clone(),
            roles: settings.roles.iter().map(|mapping| (mapping.value.clone(), mapping.role)).collect(),
            owner_claim: settings.owner_claim.as_ref().map(|claim| claim.0.clone()),
        },
        clock_skew: settings.clock_skew.get(),
        tls,
        allows_http,
    }))
}

/// A warning if browsers send the answer of the identity provider over plain HTTP to another machine.
pub fn public_url_warning(settings: &OidcSettings, address: &AddressSettings) -> Option<String> {
    settings.issuer.as_ref()?;
    let url = &address.public_url.as_ref()?.0;
    let address = url.strip_prefix("http://")?;
    let host = match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => address,
    };
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    if host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback()) {
        return None;
    }
    Some(format!(
        "public_url {url} is not encrypted, and logins with the identity provider return to it: use https://"
    ))
}

fn without_issuer(
    settings: &OidcSettings,
    wrong: impl Fn(&str, &str) -> CliError,
) -> Result<Option<OidcConfig>, CliError> {
    let set = [
        ("oidc.audience", settings.audience.is_some()),
        ("oidc.client_id", settings.client_id.is_some()),
        ("oidc.client_secret_file", settings.client_secret_file.is_some()),
        ("oidc.roles", !settings.roles.is_empty()),
        ("oidc.ca_file", settings.ca_file.is_some()),
    ];
    match set.into_iter().find(|(_, is_set)| *is_set) {
        Some((key, _)) => Err(wrong(key, "needs oidc.issuer as well: set it, or remove this")),
        None => Ok(None),
    }
}

/// The API, with the provider if there is one.
pub fn trusting(api: Api, config: Option<OidcConfig>) -> Result<Api, CliError> {
    match config {
        None => Ok(api),
        Some(config) => api
            .trusting(config)
            .map_err(|error| CliError::cannot_start(format!("oidc.issuer cannot be used: {error}"))),
    }
}

/// The secret in a file, without a trailing line break.
fn secret(file: &NamedOidcFile<'_>) -> Result<String, CliError> {
    let text = String::from_utf8(file.read()?).map_err(|_| file.wrong("is not text"))?;
    if let Ok(Some(exposed)) = exposure(file.path) {
        tracing::warn!("{exposed}");
    }
    match text.trim() {
        "" => Err(file.wrong("is empty")),
        secret => Ok(secret.to_owned()),
    }
}

/// A file named by a setting.
struct NamedOidcFile<'a> {
    origin: String,
    path: &'a Path,
}

impl NamedOidcFile<'_> {
    fn read(&self) -> Result<Vec<u8>, CliError> {
        std::fs::read(self.path).map_err(|error| self.wrong(format!("cannot be read: {error}")))
    }

    fn wrong(&self, problem: impl fmt::Display) -> CliError {
        CliError::cannot_start(format!("{} {}: {problem}", self.origin, self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_config::{Flags, Surroundings};

    fn read(variables: &[(&str, &str)]) -> Result<Option<OidcConfig>, String> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let around = Surroundings { variables: variables.collect(), file: None };
        let flags = Flags::<OidcSettings>::default();
        let settings = around.read(&flags).map_err(|error| error.message)?;
        config(&settings, |key| around.origin(&flags, key)).map_err(|error| error.message)
    }

    #[test]
    fn without_an_issuer_there_is_no_provider() {
        assert!(read(&[]).unwrap().is_none());
        let problem = read(&[("PUNCTUAL_OIDC_ROLES", "a=admin")]).unwrap_err();
        assert_eq!(problem, "PUNCTUAL_OIDC_ROLES: needs oidc.issuer as well: set it, or remove this");
    }

    #[test]
    fn a_provider_is_read_from_its_settings() {
        let config = read(&[
            ("PUNCTUAL_OIDC_ISSUER", "https://id.example.org/a"),
            ("PUNCTUAL_OIDC_AUDIENCE", "punctual"),
            ("PUNCTUAL_OIDC_ROLES", "jobs-admins=admin,jobs=submitter"),
        ]);
        let config = config.unwrap().unwrap();
        assert_eq!((config.issuer.as_str(), config.rules.roles.len()), ("https://id.example.org/a", 2));
        assert!(config.client.is_none() && config.audience.as_deref() == Some("punctual"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let issuer = ("PUNCTUAL_OIDC_ISSUER", "https://id.example.org");
        let audience = ("PUNCTUAL_OIDC_AUDIENCE", "punctual");
        for (variables, expected) in [
            (vec![issuer], "PUNCTUAL_OIDC_ISSUER: needs oidc.audience"),
            (
                vec![("PUNCTUAL_OIDC_ISSUER", "http://id.example.org"), audience],
                "must begin with https://: anyone",
            ),
            (vec![("PUNCTUAL_OIDC_ISSUER", "http://127.0.0.1:1"), audience], "or set oidc.allow_http"),
            (vec![issuer, audience, ("PUNCTUAL_OIDC_SCOPES", "email")], "oidc.scopes: must contain openid"),
            (vec![issuer, audience, ("PUNCTUAL_OIDC_CLIENT_SECRET_FILE", "/x")], "needs oidc.client_id"),
            (
                vec![issuer, audience, ("PUNCTUAL_OIDC_CA_FILE", "/nonexistent")],
                "/nonexistent: cannot be read",
            ),
            (vec![issuer, ("PUNCTUAL_OIDC_ROLES", "a=root"), audience], "must end with = and a role"),
        ] {
            let problem = read(&variables).unwrap_err();
            let problem = problem.replace("PUNCTUAL_OIDC_SCOPES", "oidc.scopes");
            assert!(problem.contains(expected), "{problem}");
        }
        let here =
            [("PUNCTUAL_OIDC_ISSUER", "http://127.0.0.1:1"), audience, ("PUNCTUAL_OIDC_ALLOW_HTTP", "true")];
        assert!(read(&here).unwrap().is_some());
    }
}
