//! Links that acknowledge an alert: a signed claim about one alert, until a time. It is used up when the alert is
//! acknowledged, and does not apply to a later alert with the same id.

use crate::time::Timestamp;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Signs links. Derived from the key of the store, so that every node verifies the links of all others.
#[derive(Clone)]
pub struct AckKey([u8; 32]);

/// What a link says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckClaim {
    #[serde(rename = "a")]
    pub alert: String,
    /// Since when the alert has been firing.
    #[serde(rename = "s")]
    pub since: Timestamp,
    /// The channel that got the link.
    #[serde(rename = "c")]
    pub channel: String,
    #[serde(rename = "e")]
    pub expires_at: Timestamp,
}

impl AckKey {
    pub fn of(cluster_key: [u8; 32]) -> Self {
        let derived = Sha256::new().chain_update(b"punctual acknowledgement links").chain_update(cluster_key);
        AckKey(derived.finalize().into())
    }

    /// The claim and its signature, in characters that a URL may have.
    pub fn token(&self, claim: &AckClaim) -> String {
        let claim = serde_json::to_vec(claim).unwrap_or_default();
        let signature = self.mac(&claim).finalize().into_bytes();
        format!("{}.{}", BASE64_URL_SAFE_NO_PAD.encode(claim), BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// The claim of a token that this key has signed; `None` for any other text. Whether it has expired is not checked.
    pub fn claim(&self, token: &str) -> Option<AckClaim> {
        let (claim, signature) = token.split_once('.')?;
        let read = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let (claim, signature) = (read(claim)?, read(signature)?);
        self.mac(&claim).verify_slice(&signature).ok()?;
        serde_json::from_slice(&claim).ok()
    }

    fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any length is a key");
        mac.update(text);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_of_the_same_key_is_believed() {
        let claim = AckClaim {
            alert: "failed~1".to_owned(),
            since: Timestamp::from_micros(7),
            channel: "ops".to_owned(),
            expires_at: Timestamp::from_micros(9),
        };
        let key = AckKey::of([1; 32]);
        let token = key.token(&claim);
        assert_eq!(key.claim(&token), Some(claim.clone()));
        assert_eq!(AckKey::of([2; 32]).claim(&token), None);
        let other = key.token(&AckClaim { alert: "failed~2".to_owned(), ..claim });
        let (claim, _) = other.split_once('.').unwrap();
        let (_, signature) = token.split_once('.').unwrap();
        for wrong in [
            format!("{claim}.{signature}"),
            String::new(),
            ".".to_owned(),
            "zz.zz".to_owned(),
            "0".to_owned(),
        ] {
            assert_eq!(key.claim(&wrong), None, "{wrong}");
        }
    }
}
