//! OpenID Connect: JWTs of an identity provider as bearer tokens, and logins of browsers.
//!
//! The provider says who somebody is. What that person may do follows from the stored user with the same
//! verified email address, or else from the mapping of claims to roles.

mod claims;
mod code_flow;
mod jwt;
mod keys;
mod provider;
mod roles;
#[cfg(test)]
mod tests;

pub use claims::Claims;
pub use code_flow::{Callback, PendingLogin};
pub use roles::RoleRules;

use crate::error::ApiError;
use jwt::{ExpectedClaims, JwtError, UnverifiedJwt};
use provider::Provider;
use punctual_client::ClientTls;
use punctual_core::ports::Clock;
use punctual_core::time::Timestamp;
use reqwest::Url;
use reqwest::redirect::Policy;
use std::sync::Arc;
use std::time::Duration;

/// The identity provider that a server trusts.
#[derive(Debug, Clone)]
pub struct OidcConfig {
    pub issuer: String,
    /// The audience that bearer tokens must have. Without it, JWTs are accepted only in logins.
    pub audience: Option<String>,
    /// How this server is known to the provider. Without it, browsers cannot log in there.
    pub client: Option<OidcClient>,
    pub rules: RoleRules,
    pub clock_skew: Duration,
    /// Which certificates the provider may have.
    pub tls: ClientTls,
    /// Whether the provider may use plain HTTP, on this machine.
    pub allows_http: bool,
}

#[derive(Debug, Clone)]
pub struct OidcClient {
    pub id: String,
    pub secret: Option<String>,
    pub scopes: Vec<String>,
}

impl OidcConfig {
    /// What is wrong with an issuer, if anything.
    pub fn issuer_problem(issuer: &str, allows_http: bool) -> Option<String> {
        let Ok(url) = Url::parse(issuer) else {
            return Some("must be a URL such as https://id.example.org".to_owned());
        };
        if !url.username().is_empty() || url.query().is_some() || url.fragment().is_some() {
            return Some("must be a URL without a user, a query and a fragment".to_owned());
        }
        let is_plain_here = provider::is_plain_here(&url);
        match url.scheme() {
            "https" => None,
            "http" if is_plain_here && allows_http => None,
            "http" if is_plain_here => {
                Some("must begin with https://, or set oidc.allow_http for tests".to_owned())
            }
            _ => Some("must begin with https://: anyone in between could forge its keys".to_owned()),
        }
    }
}

/// Verifies what the provider has signed.
pub struct Oidc {
    config: OidcConfig,
    provider: Provider,
}

/// Why nothing is known about a caller.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("{}", .0.detail())]
    Jwt(JwtError),
    #[error("the keys of the issuer cannot be fetched")]
    Unavailable,
    /// The login failed; with the reason for the log.
    #[error("{0}")]
    Login(String),
}

impl OidcError {
    fn login(reason: impl Into<String>) -> Self {
        OidcError::Login(reason.into())
    }
}

impl From<JwtError> for OidcError {
    fn from(error: JwtError) -> Self {
        OidcError::Jwt(error)
    }
}

impl From<OidcError> for ApiError {
    fn from(error: OidcError) -> Self {
        match error {
            OidcError::Jwt(error) => ApiError::Unauthorized(error.detail()),
            OidcError::Unavailable => ApiError::IssuerUnavailable,
            OidcError::Login(reason) => {
                tracing::warn!(reason, "a login with the identity provider failed");
                ApiError::Unauthorized("the login failed: begin it again")
            }
        }
    }
}

impl Oidc {
    pub fn new(config: OidcConfig, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let http = config.tls.http().redirect(Policy::none()).build().map_err(|error| error.to_string())?;
        let provider = Provider::new(config.issuer.clone(), config.allows_http, http, clock);
        Ok(Oidc { config, provider })
    }

    pub fn rules(&self) -> &RoleRules {
        &self.config.rules
    }

    pub fn client(&self) -> Option<&OidcClient> {
        self.config.client.as_ref()
    }

    /// Observes the provider, for [`Self::warning`]. Never ends.
    pub async fn follow(&self) {
        self.provider.follow().await;
    }

    /// A warning if the provider could not be used at the last attempt.
    pub fn warning(&self) -> Option<String> {
        let (issuer, problem) = (&self.config.issuer, self.provider.problem()?);
        Some(format!(
            "the identity provider {issuer} cannot be used: {problem}: logins and requests with its JWTs fail, or soon \
             will; check oidc.issuer, and that this server can reach it"
        ))
    }

    /// The host of the issuer, for people.
    pub fn issuer_name(&self) -> String {
        let url = Url::parse(&self.config.issuer).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| self.config.issuer.clone())
    }

    /// Verifies a JWT in an `Authorization` header.
    pub async fn verify_bearer(&self, jwt: &str, now: Timestamp) -> Result<Claims, ApiError> {
        let Some(audience) = &self.config.audience else {
            return Err(ApiError::Unauthorized(
                "this server accepts no JWTs, because it has no oidc.audience: send a token that looks like \
                 pt_<id>_<secret>",
            ));
        };
        Ok(self.verify(jwt, audience, now).await?)
    }

    async fn verify(&self, jwt: &str, audience: &str, now: Timestamp) -> Result<Claims, OidcError> {
        let jwt = UnverifiedJwt::parse(jwt)?;
        // No key of this issuer verifies it, so none is fetched for it.
        if jwt.names_other_issuer(&self.config.issuer) {
            return Err(JwtError::Issuer.into());
        }
        let (algorithm, key_id) = (jwt.algorithm, jwt.key_id.as_deref());
        let keys = self.provider.keys(|keys| keys.find(algorithm, key_id).is_some()).await?;
        let (issuer, clock_skew) = (self.config.issuer.as_str(), self.config.clock_skew);
        Ok(jwt.verify(&keys, &ExpectedClaims { issuer, audience, now, clock_skew })?)
    }
}
