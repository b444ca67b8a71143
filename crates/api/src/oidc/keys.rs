//! The public keys of an issuer, and the signatures that they verify. The type of a key decides which
//! algorithms it verifies: a JWT cannot choose another one.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

/// Keys of one issuer. Further ones are ignored.
const KEYS_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "RS256" => Some(Algorithm::Rs256),
            "PS256" => Some(Algorithm::Ps256),
            "ES256" => Some(Algorithm::Es256),
            "EdDSA" => Some(Algorithm::EdDsa),
            _ => None,
        }
    }
}

/// The keys of an issuer that can verify signatures.
#[derive(Debug)]
pub struct Keys(Vec<IssuerKey>);

#[derive(Debug)]
pub struct IssuerKey {
    id: Option<String>,
    /// The only algorithm that it may be used for, if the issuer says so.
    algorithm: Option<Algorithm>,
    public: PublicKey,
}

#[derive(Debug)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl Keys {
    /// Reads a JSON Web Key Set. Keys for other purposes and of unknown types are ignored.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let set: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let keys = set["keys"].as_array().ok_or("it has no list of keys")?;
        Ok(Keys(keys.iter().take(KEYS_MAX).filter_map(IssuerKey::parse).collect()))
    }

    /// The key for a JWT: the one with its key id or, if it names none, the only one that fits its algorithm.
    pub fn find(&self, algorithm: Algorithm, id: Option<&str>) -> Option<&IssuerKey> {
        let is_meant =
            |key: &&IssuerKey| key.verifies(algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id));
        let mut found = self.0.iter().filter(is_meant);
        let key = found.next()?;
        found.next().is_none().then_some(key)
    }
}

impl IssuerKey {
    fn parse(jwk: &Value) -> Option<Self> {
        let is_for_signatures = match (&jwk["use"], &jwk["key_ops"]) {
            (Value::Null, Value::Null) => true,
            (Value::String(purpose), _) => purpose == "sig",
            (_, Value::Array(operations)) => operations.iter().any(|operation| operation == "verify"),
            _ => false,
        };
        if !is_for_signatures {
            return None;
        }
        let algorithm = match &jwk["alg"] {
            Value::Null => None,
            word => Some(Algorithm::from_word(word.as_str()?)?),
        };
        Some(IssuerKey {
            id: jwk["kid"].as_str().map(str::to_owned),
            algorithm,
            public: PublicKey::parse(jwk)?,
        })
    }

    fn verifies(&self, algorithm: Algorithm) -> bool {
        let fits = matches!(
            (&self.public, algorithm),
            (PublicKey::Rsa { .. }, Algorithm::Rs256 | Algorithm::Ps256)
                | (PublicKey::P256(_), Algorithm::Es256)
                | (PublicKey::Ed25519(_), Algorithm::EdDsa)
        );
        fits && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Whether this key made the signature. An RSA key with fewer than 2,048 bits makes none that counts.
    pub fn has_signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match (&self.public, algorithm) {
            (PublicKey::Rsa { modulus, exponent }, Algorithm::Rs256) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (PublicKey::Rsa { modulus, exponent }, Algorithm::Ps256) => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&RSA_PSS_2048_8192_SHA256, message, signature)
            }
            (PublicKey::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (PublicKey::Ed25519(point), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
            _ => return false,
        };
        verified.is_ok()
    }
}

impl PublicKey {
    fn parse(jwk: &Value) -> Option<Self> {
        let bytes = |member: &str| BASE64_URL_SAFE_NO_PAD.decode(jwk[member].as_str()?).ok();
        let curve = jwk["crv"].as_str();
        match (jwk["kty"].as_str()?, curve) {
            ("RSA", _) => {
                let number = |member| Some(without_leading_zeros(bytes(member)?));
                Some(PublicKey::Rsa { modulus: number("n")?, exponent: number("e")? })
            }
            ("EC", Some("P-256")) => {
                let coordinate = |member| bytes(member).filter(|number| number.len() == 32);
                let (x, y) = (coordinate("x")?, coordinate("y")?);
                // An uncompressed point begins with 4.
                Some(PublicKey::P256([vec![4], x, y].concat()))
            }
            ("OKP", Some("Ed25519")) => Some(PublicKey::Ed25519(bytes("x").filter(|x| x.len() == 32)?)),
            _ => None,
        }
    }
}

fn without_leading_zeros(number: Vec<u8>) -> Vec<u8> {
    number.into_iter().skip_while(|byte| *byte == 0).collect()
}
