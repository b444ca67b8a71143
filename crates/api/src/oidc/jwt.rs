//! JSON Web Tokens: their form, their signature, and the claims that every one of them must have. Pure: keys
//! and time come from outside.

use super::claims::{Claims, object_in};
use super::keys::{Algorithm, Keys};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use punctual_core::names::is_hidden;
use punctual_core::time::Timestamp;
use serde_json::{Map, Value};
use std::time::Duration;

/// Bytes of a JWT.
const JWT_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a subject; the standard has the same limit.
const SUBJECT_BYTES_MAX: usize = 255;
/// Types of JWT that are accepted. Others have a purpose of their own, such as a logout.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/jwt", "application/at+jwt"];

/// Why a JWT is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JwtError {
    TooLong,
    Malformed,
    Algorithm,
    /// The header has a member that changes how the JWT is to be read.
    Extension,
    Type,
    Key,
    Signature,
    Issuer,
    Audience,
    Subject,
    Times,
    Expired,
    NotYet,
    Nonce,
}

impl JwtError {
    /// As a response says it.
    pub fn detail(self) -> &'static str {
        match self {
            JwtError::TooLong => "the JWT is longer than 8 KiB",
            JwtError::Malformed => "the JWT is malformed",
            JwtError::Algorithm => "the JWT must be signed with RS256, PS256, ES256 or EdDSA",
            JwtError::Extension => "the JWT uses an extension that this server does not know",
            JwtError::Type => "the JWT is of a type that is no access token",
            JwtError::Key => "the issuer has no such key for the JWT",
            JwtError::Signature => "the signature of the JWT is wrong",
            JwtError::Issuer => "the JWT has another issuer",
            JwtError::Audience => "the JWT is for another audience",
            JwtError::Subject => "the JWT has no valid subject",
            JwtError::Times => "the JWT has no valid expiry, or another of its times is invalid",
            JwtError::Expired => "the JWT has expired",
            JwtError::NotYet => "the JWT is not valid yet",
            JwtError::Nonce => "the JWT belongs to another login",
        }
    }
}

/// What a JWT must say.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedClaims<'a> {
    pub issuer: &'a str,
    pub audience: &'a str,
    pub now: Timestamp,
    /// How far the clocks of issuer and server may be apart.
    pub clock_skew: Duration,
}

/// A JWT whose form is right and whose signature is not verified yet.
#[derive(Debug)]
pub struct UnverifiedJwt<'a> {
    pub algorithm: Algorithm,
    pub key_id: Option<String>,
    signed: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
}

impl<'a> UnverifiedJwt<'a> {
    pub fn parse(jwt: &'a str) -> Result<Self, JwtError> {
        if jwt.len() > JWT_BYTES_MAX {
            return Err(JwtError::TooLong);
        }
        let (signed, signature) = jwt.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let parts = signed.split_once('.').filter(|(_, payload)| !payload.contains('.'));
        let (header, payload) = parts.ok_or(JwtError::Malformed)?;
        let header = decoded_object(header)?;
        let text = |member: &str| match header.get(member) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(JwtError::Malformed),
        };
        let algorithm = text("alg")?.and_then(Algorithm::from_word).ok_or(JwtError::Algorithm)?;
        if ["crit", "b64", "zip", "enc"].iter().any(|member| header.contains_key(*member)) {
            return Err(JwtError::Extension);
        }
        if text("typ")?.is_some_and(|kind| !TYPES.contains(&kind.to_ascii_lowercase().as_str())) {
            return Err(JwtError::Type);
        }
        // Keys in the header, and addresses of keys, are ignored: the forger of a JWT would choose them.
        let key_id = text("kid")?.map(str::to_owned);
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        Ok(UnverifiedJwt { algorithm, key_id, signed, payload, signature })
    }

    /// Whether it says that another issuer made it. It is not verified yet, so that only a refusal may follow.
    pub fn names_other_issuer(&self, issuer: &str) -> bool {
        decoded_object(self.payload)
            .is_ok_and(|values| values.get("iss").and_then(Value::as_str) != Some(issuer))
    }

    /// Verifies the signature and everything that must hold for any JWT.
    pub fn verify(&self, keys: &Keys, expected: &ExpectedClaims<'_>) -> Result<Claims, JwtError> {
        let key = keys.find(self.algorithm, self.key_id.as_deref()).ok_or(JwtError::Key)?;
        if !key.has_signed(self.algorithm, self.signed.as_bytes(), &self.signature) {
            return Err(JwtError::Signature);
        }
        let values = decoded_object(self.payload)?;
        if values.get("iss").and_then(Value::as_str) != Some(expected.issuer) {
            return Err(JwtError::Issuer);
        }
        if !audiences(&values).is_some_and(|all| all.contains(&expected.audience)) {
            return Err(JwtError::Audience);
        }
        let until = check_times(&values, expected)?;
        let subject = values.get("sub").and_then(Value::as_str).filter(|subject| is_subject(subject));
        let subject = subject.ok_or(JwtError::Subject)?.to_owned();
        Ok(Claims { issuer: expected.issuer.to_owned(), subject, until, values })
    }
}

fn decoded_object(part: &str) -> Result<Map<String, Value>, JwtError> {
    let json = BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    object_in(&json).ok_or(JwtError::Malformed)
}

/// One audience or a list of them.
pub fn audiences(values: &Map<String, Value>) -> Option<Vec<&str>> {
    match values.get("aud")? {
        Value::String(one) => Some(vec![one]),
        Value::Array(all) => all.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Until when it is valid.
fn check_times(values: &Map<String, Value>, expected: &ExpectedClaims<'_>) -> Result<Timestamp, JwtError> {
    let time = |claim: &str| values.get(claim).map(|value| time_in(value).ok_or(JwtError::Times)).transpose();
    let expiry = time("exp")?.ok_or(JwtError::Times)?;
    let (from, issued) = (time("nbf")?, time("iat")?);
    let until = expiry.plus(expected.clock_skew);
    if until <= expected.now {
        return Err(JwtError::Expired);
    }
    let soon = expected.now.plus(expected.clock_skew);
    if [from, issued].into_iter().flatten().any(|start| start > soon) {
        return Err(JwtError::NotYet);
    }
    Ok(until)
}

/// Seconds since 1970, with or without a fraction.
fn time_in(value: &Value) -> Option<Timestamp> {
    let micros = match value.as_i64() {
        Some(seconds) => seconds.checked_mul(1_000_000)?,
        None => {
            let micros = value.as_f64()? * 1e6;
            // Beyond the calendar, and infinite.
            if !(0.0..1e18).contains(&micros) {
                return None;
            }
            micros as i64
        }
    };
    Timestamp::stored(micros).filter(|time| *time >= Timestamp::EPOCH)
}

fn is_subject(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= SUBJECT_BYTES_MAX && !text.chars().any(is_hidden)
}
