//! Logging in with a browser: the authorization code flow of OpenID Connect, with PKCE.
//!
//! The browser carries what belongs to one login in a cookie, so that any node can finish what another one
//! has begun.

use super::claims::Claims;
use super::jwt::{self, JwtError};
use super::{Oidc, OidcClient, OidcError};
use crate::secrets::new_secret;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use punctual_core::time::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use url::form_urlencoded;

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingLogin {
    /// Comes back from the provider; shows that this browser began the login.
    state: String,
    /// Comes back in the ID token; shows that the token belongs to this login.
    nonce: String,
    /// Shows to the provider that the code belongs to this login.
    verifier: String,
    /// The path to go to afterwards.
    pub next: String,
}

impl PendingLogin {
    pub fn new(next: &str) -> Result<Self, OidcError> {
        let (state, nonce, verifier) = (random()?, random()?, random()?);
        Ok(PendingLogin { state, nonce, verifier, next: next.to_owned() })
    }

    pub fn to_cookie(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    pub fn from_cookie(text: &str) -> Option<Self> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text).ok()?).ok()
    }

    fn challenge(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

/// What the provider sends back through the browser.
#[derive(Debug, Clone, Default)]
pub struct Callback {
    pub state: String,
    pub code: Option<String>,
    pub issuer: Option<String>,
    /// The provider's reason why there is no code.
    pub error: Option<String>,
}

impl Oidc {
    /// The provider's page where a login begins.
    pub async fn login_address(
        &self,
        client: &OidcClient,
        pending: &PendingLogin,
        redirect_uri: &str,
    ) -> Result<String, OidcError> {
        let metadata = self.provider.metadata().await?;
        let endpoint = metadata.authorization_endpoint.as_deref();
        let endpoint =
            endpoint.ok_or_else(|| OidcError::login("the issuer has no authorization endpoint"))?;
        let mut url = self.provider.endpoint(endpoint).map_err(OidcError::login)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", redirect_uri)
            .append_pair("scope", &client.scopes.join(" "))
            .append_pair("state", &pending.state)
            .append_pair("nonce", &pending.nonce)
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// Exchanges the code for an ID token, and returns what it says.
    pub async fn finish_login(
        &self,
        client: &OidcClient,
        pending: &PendingLogin,
        callback: &Callback,
        redirect_uri: &str,
        now: Timestamp,
    ) -> Result<Claims, OidcError> {
        if !bool::from(pending.state.as_bytes().ct_eq(callback.state.as_bytes())) {
            return Err(OidcError::login("this browser has not begun this login"));
        }
        if callback.issuer.as_ref().is_some_and(|issuer| *issuer != self.provider.issuer) {
            return Err(OidcError::login("the answer comes from another issuer"));
        }
        if let Some(error) = &callback.error {
            return Err(OidcError::login(format!("the provider refused: {error}")));
        }
        let code = callback.code.as_deref().ok_or_else(|| OidcError::login("the answer has no code"))?;
        let id_token = self.exchange(client, pending, code, redirect_uri).await?;
        let claims = self.verify(&id_token, &client.id, now).await?;
        check_id_token(&claims, client, pending)?;
        Ok(claims)
    }

    async fn exchange(
        &self,
        client: &OidcClient,
        pending: &PendingLogin,
        code: &str,
        redirect_uri: &str,
    ) -> Result<String, OidcError> {
        let metadata = self.provider.metadata().await?;
        let endpoint = metadata.token_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| OidcError::login("the issuer has no token endpoint"))?;
        let url = self.provider.endpoint(endpoint).map_err(OidcError::login)?;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", &pending.verifier),
        ];
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let has = |method: &str| methods.iter().any(|supported| supported == method);
        let id = ("client_id", client.id.as_str());
        let request = self.provider.http.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = match &client.secret {
            None => request.body(encoded(form.into_iter().chain([id]))),
            Some(secret) if has("client_secret_post") && !has("client_secret_basic") => {
                request.body(encoded(form.into_iter().chain([id, ("client_secret", secret)])))
            }
            Some(secret) => {
                request.header(AUTHORIZATION, basic(id.1, secret)).body(encoded(form.into_iter()))
            }
        };
        let answer = self.provider.read(request).await.map_err(OidcError::login)?;
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let id_token = answer["id_token"].as_str();
        Ok(id_token.ok_or_else(|| OidcError::login("the provider sent no ID token"))?.to_owned())
    }
}

fn encoded<'a>(form: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish()
}

/// Id and secret are encoded before they are joined, so that a colon in the id does no harm.
fn basic(id: &str, secret: &str) -> String {
    let plain = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", plain(id), plain(secret))))
}

/// What must hold for ID tokens beyond the rules for all JWTs.
fn check_id_token(claims: &Claims, client: &OidcClient, pending: &PendingLogin) -> Result<(), JwtError> {
    let text = |claim: &str| claims.values.get(claim).and_then(Value::as_str);
    if !text("nonce").is_some_and(|nonce| bool::from(nonce.as_bytes().ct_eq(pending.nonce.as_bytes()))) {
        return Err(JwtError::Nonce);
    }
    let has_others = jwt::audiences(&claims.values).is_none_or(|all| all.len() > 1);
    let party = claims.values.get("azp");
    let is_ours = || text("azp") == Some(client.id.as_str());
    if (party.is_some() || has_others) && !is_ours() {
        return Err(JwtError::Audience);
    }
    Ok(())
}

fn random() -> Result<String, OidcError> {
    new_secret().map_err(|error| OidcError::login(format!("cannot read randomness: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_login_survives_its_way_through_the_browser() {
        let pending = PendingLogin::new("/docs").unwrap();
        assert_eq!(PendingLogin::from_cookie(&pending.to_cookie()), Some(pending.clone()));
        assert_ne!(pending.state, PendingLogin::new("/docs").unwrap().state);
        assert_eq!(PendingLogin::from_cookie("e30"), None);
        assert_eq!(PendingLogin::from_cookie("!"), None);
    }

    #[test]
    fn the_challenge_is_the_hash_of_the_verifier() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let pending = PendingLogin { verifier, ..PendingLogin::new("/").unwrap() };
        // The example of RFC 7636.
        assert_eq!(pending.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_secret_with_a_colon_is_sent_unambiguously() {
        assert_eq!(basic("a", "b"), "Basic YTpi");
        assert_eq!(basic("a:b", "c d"), format!("Basic {}", BASE64_STANDARD.encode("a%3Ab:c+d")));
    }

    #[test]
    fn an_id_token_belongs_to_one_login_and_one_client() {
        let client = OidcClient { id: "punctual".to_owned(), secret: None, scopes: vec![] };
        let pending = PendingLogin { nonce: "n".to_owned(), ..PendingLogin::new("/").unwrap() };
        let check = |values: Value| {
            let Value::Object(values) = values else { panic!() };
            let (issuer, subject) = ("https://id.example".to_owned(), "ann".to_owned());
            check_id_token(&Claims { issuer, subject, until: Timestamp::EPOCH, values }, &client, &pending)
        };
        let both = json!(["punctual", "other"]);
        assert_eq!(check(json!({"nonce": "n", "aud": "punctual"})), Ok(()));
        assert_eq!(check(json!({"nonce": "n", "aud": both, "azp": "punctual"})), Ok(()));
        for wrong in [json!({"aud": "punctual"}), json!({"aud": "punctual", "nonce": "m"})] {
            assert_eq!(check(wrong), Err(JwtError::Nonce));
        }
        for wrong in [
            json!({"nonce": "n", "aud": both}),
            json!({"nonce": "n", "aud": both, "azp": "other"}),
            json!({"nonce": "n", "aud": "punctual", "azp": "other"}),
            json!({"nonce": "n", "aud": "punctual", "azp": 1}),
        ] {
            assert_eq!(check(wrong), Err(JwtError::Audience));
        }
    }
}
