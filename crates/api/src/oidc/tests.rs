//! JWTs that are accepted, and forged or confused ones that are not.

mod issuer;

use super::claims::Claims;
use super::jwt::{ExpectedClaims, JwtError, UnverifiedJwt};
use super::keys::Keys;
use super::{OidcConfig, RoleRules};
use crate::error::ApiError;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use punctual_core::access::Role;
use punctual_core::time::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use ring::{hmac, signature};
use serde_json::{Value, json};
use std::time::Duration;

const ISSUER: &str = "https://id.example.org";
const AUDIENCE: &str = "punctual";
const NOW_SECS: i64 = 1_800_000_000;
const SKEW: Duration = Duration::from_secs(60);
/// A key of 2,048 bits for these tests alone: ring makes no RSA keys.
const RSA_PKCS8: &[u8] = include_bytes!("test-rsa.pk8");

/// The private keys of an issuer.
struct Signer {
    rsa: RsaKeyPair,
    ec_pkcs8: Vec<u8>,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    random: SystemRandom,
}

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ed = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Signer {
            rsa: RsaKeyPair::from_pkcs8(RSA_PKCS8).unwrap(),
            ec: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random).unwrap(),
            ec_pkcs8: ec.as_ref().to_vec(),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).unwrap(),
            random,
        }
    }

    fn modulus(&self) -> Vec<u8> {
        RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public()).n
    }

    fn jwks(&self) -> Value {
        let exponent = RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public()).e;
        let point = self.ec.public_key().as_ref();
        json!({"keys": [
            {"kty": "RSA", "kid": "rsa", "use": "sig", "n": b64(self.modulus()), "e": b64(exponent)},
            {"kty": "EC", "kid": "ec", "crv": "P-256", "alg": "ES256", "x": b64(&point[1..33]), "y": b64(&point[33..])},
            {"kty": "OKP", "kid": "ed", "crv": "Ed25519", "key_ops": ["verify"], "x": b64(self.ed.public_key())},
            {"kty": "oct", "kid": "secret", "k": b64("a shared secret that nobody should use")},
            {"kty": "RSA", "kid": "enc", "use": "enc", "n": b64(self.modulus()), "e": "AQAB"},
            {"kty": "EC", "kid": "curve", "crv": "P-521", "x": "AA", "y": "AA"},
        ]})
    }

    fn keys(&self) -> Keys {
        Keys::parse(self.jwks().to_string().as_bytes()).unwrap()
    }

    fn signature(&self, key: &str, message: &[u8]) -> Vec<u8> {
        let rsa = |padding: &'static dyn signature::RsaEncoding| {
            let mut bytes = vec![0; self.rsa.public().modulus_len()];
            self.rsa.sign(padding, &self.random, message, &mut bytes).unwrap();
            bytes
        };
        match key {
            "rsa" => rsa(&RSA_PKCS1_SHA256),
            "rsa-pss" => rsa(&RSA_PSS_SHA256),
            "ec" => self.ec.sign(&self.random, message).unwrap().as_ref().to_vec(),
            "ed" => self.ed.sign(message).as_ref().to_vec(),
            other => panic!("{other}"),
        }
    }

    /// Signs texts that need not be JSON.
    fn sign_texts(&self, key: &str, header: &str, payload: &str) -> String {
        let signed = format!("{}.{}", b64(header), b64(payload));
        let signature = self.signature(key, signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }

    fn sign(&self, key: &str, header: Value, payload: Value) -> String {
        self.sign_texts(key, &header.to_string(), &payload.to_string())
    }

    /// A right JWT, with some claims changed; null removes one.
    fn with(&self, changes: Value) -> String {
        self.sign("ec", es256(), changed(claims(), changes))
    }

    /// A right JWT, with some members of the header changed.
    fn headed(&self, changes: Value) -> String {
        self.sign("ec", changed(es256(), changes), claims())
    }
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn es256() -> Value {
    json!({"alg": "ES256", "kid": "ec", "typ": "JWT"})
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": NOW_SECS + 300, "iat": NOW_SECS, "nbf": NOW_SECS,
    })
}

fn changed(mut object: Value, changes: Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(name)),
            value => object[name] = value.clone(),
        }
    }
    object
}

fn verify(jwt: &str, keys: &Keys) -> Result<Claims, JwtError> {
    let now = Timestamp::from_micros(NOW_SECS * 1_000_000);
    let expected = ExpectedClaims { issuer: ISSUER, audience: AUDIENCE, now, clock_skew: SKEW };
    UnverifiedJwt::parse(jwt)?.verify(keys, &expected)
}

#[test]
fn right_jwts_are_accepted_with_each_algorithm() {
    let signer = Signer::new();
    let keys = signer.keys();
    for (key, header) in [
        ("rsa", json!({"alg": "RS256", "kid": "rsa"})),
        ("rsa-pss", json!({"alg": "PS256", "kid": "rsa"})),
        ("ec", es256()),
        ("ed", json!({"alg": "EdDSA", "kid": "ed", "typ": "at+jwt"})),
        // The only key of its type.
        ("ed", json!({"alg": "EdDSA", "typ": "application/at+JWT"})),
        (
            "ec",
            changed(es256(), json!({"jku": "https://evil.example/keys", "x5u": "https://evil.example/c"})),
        ),
    ] {
        let verified = verify(&signer.sign(key, header.clone(), claims()), &keys);
        assert_eq!(verified.map(|claims| claims.principal()), Ok(format!("{ISSUER}#ann")), "{header}");
    }
    for changes in [
        json!({"aud": ["other", AUDIENCE]}),
        json!({"exp": NOW_SECS as f64 + 0.5}),
        json!({"exp": NOW_SECS - 59}),
        json!({"nbf": NOW_SECS + 60, "iat": NOW_SECS + 60}),
        json!({"nbf": null, "iat": null}),
        json!({"sub": "x".repeat(255)}),
    ] {
        assert!(verify(&signer.with(changes.clone()), &keys).is_ok(), "{changes}");
    }
}

#[test]
fn a_foreign_issuer_is_known_without_keys() {
    let signer = Signer::new();
    let names_other = |jwt: &str| UnverifiedJwt::parse(jwt).unwrap().names_other_issuer(ISSUER);
    assert!(names_other(&signer.with(json!({"iss": "https://other"}))));
    assert!(names_other(&signer.with(json!({"iss": null}))));
    assert!(!names_other(&signer.with(json!({}))));
}

#[test]
fn forged_and_confused_jwts_are_refused() {
    let (signer, attacker) = (Signer::new(), Signer::new());
    let cases = [
        unsigned(&signer),
        public_keys_as_secrets(&signer),
        confused_keys(&signer, &attacker),
        extensions(&signer),
        wrong_claims(&signer),
        wrong_times(&signer),
        malformed(&signer),
        wrong_signatures(&signer, &attacker),
    ]
    .concat();
    assert!(cases.len() >= 100, "{}", cases.len());
    let keys = signer.keys();
    assert!(verify(&signer.with(json!({})), &keys).is_ok());
    let found = cases
        .into_iter()
        .map(|(what, jwt, expected)| (what, verify(&jwt, &keys).map(|claims| claims.subject), Err(expected)));
    let wrong: Vec<_> = found.filter(|(_, found, expected)| found != expected).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

type Case = (String, String, JwtError);

fn unsigned(signer: &Signer) -> Vec<Case> {
    let mut cases = Vec::new();
    for word in ["none", "None", "NONE", "nOnE", "none ", " none", "none\u{0}", "", "null"] {
        let signed =
            format!("{}.{}", b64(json!({"alg": word, "kid": "ec"}).to_string()), b64(claims().to_string()));
        let signature = b64(signer.signature("ec", signed.as_bytes()));
        cases.push((format!("alg {word:?} unsigned"), format!("{signed}."), JwtError::Algorithm));
        cases.push((format!("alg {word:?} signed"), format!("{signed}.{signature}"), JwtError::Algorithm));
    }
    for (value, expected) in [
        (json!(null), JwtError::Algorithm),
        (json!(0), JwtError::Malformed),
        (json!(["ES256"]), JwtError::Malformed),
        (json!({"alg": "ES256"}), JwtError::Malformed),
        (json!(false), JwtError::Malformed),
    ] {
        cases.push((format!("alg {value}"), signer.headed(json!({"alg": value})), expected));
    }
    for word in [
        "es256", "Es256", "ES256K", "ES384", "ES512", "RS384", "RS512", "PS512", "RS1", "EDDSA", "A128KW",
        "dir",
    ] {
        cases.push((format!("alg {word}"), signer.headed(json!({"alg": word})), JwtError::Algorithm));
    }
    cases
}

/// A verifier that lets the JWT choose the algorithm would take the public key as a shared secret.
fn public_keys_as_secrets(signer: &Signer) -> Vec<Case> {
    let set = signer.jwks();
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        BASE64_STANDARD.encode(signer.rsa.public().as_ref())
    );
    let secrets = [
        ("modulus", signer.modulus()),
        ("encoded modulus", b64(signer.modulus()).into_bytes()),
        ("document", set["keys"][0].to_string().into_bytes()),
        ("DER", signer.rsa.public().as_ref().to_vec()),
        ("PEM", pem.into_bytes()),
        ("key set", set.to_string().into_bytes()),
        ("published secret", b"a shared secret that nobody should use".to_vec()),
        ("empty secret", vec![]),
    ];
    let mut cases = Vec::new();
    for (what, secret) in secrets {
        for (word, algorithm) in [("HS256", hmac::HMAC_SHA256), ("HS512", hmac::HMAC_SHA512)] {
            let kid = if what == "published secret" { "secret" } else { "rsa" };
            let header = json!({"alg": word, "kid": kid}).to_string();
            let signed = format!("{}.{}", b64(header), b64(claims().to_string()));
            let tag = hmac::sign(&hmac::Key::new(algorithm, &secret), signed.as_bytes());
            cases.push((
                format!("{word} with {what}"),
                format!("{signed}.{}", b64(tag)),
                JwtError::Algorithm,
            ));
        }
    }
    cases
}

fn confused_keys(signer: &Signer, attacker: &Signer) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (key, alg, kid) in [
        ("ec", "ES256", "rsa"),
        ("ec", "ES256", "ed"),
        ("rsa", "RS256", "ec"),
        ("ed", "EdDSA", "ec"),
        ("rsa", "RS256", "ed"),
        ("rsa", "RS256", "enc"),
        ("ec", "ES256", "curve"),
        ("ec", "ES256", "secret"),
        ("ec", "ES256", "unknown"),
        ("ec", "ES256", ""),
        ("ec", "ES256", "EC"),
        ("ec", "ES256", "ec\u{0}"),
        ("ec", "ES256", "../../../dev/null"),
        ("ec", "ES256", "' OR '1'='1"),
    ] {
        let jwt = signer.sign(key, json!({"alg": alg, "kid": kid}), claims());
        cases.push((format!("{alg} with the key {kid:?}"), jwt, JwtError::Key));
    }
    for kid in [json!(1), json!(["ec"]), json!({"kid": "ec"}), json!(true)] {
        cases.push((format!("kid {kid}"), signer.headed(json!({"kid": kid})), JwtError::Malformed));
    }
    // Keys of the attacker, who signs with them.
    let own = &attacker.jwks()["keys"][1];
    let certificate = json!([BASE64_STANDARD.encode("a certificate")]);
    for extra in [
        json!({"jwk": own}),
        json!({"jku": "https://evil.example/keys"}),
        json!({"jku": "http://127.0.0.1/keys"}),
        json!({"x5u": "https://evil.example/certificate"}),
        json!({"x5c": certificate}),
        json!({"x5t": "AAAA", "x5t#S256": "AAAA"}),
    ] {
        let jwt = attacker.sign("ec", changed(es256(), extra.clone()), claims());
        cases.push((format!("header {extra}"), jwt, JwtError::Signature));
    }
    let unnamed = json!({"alg": "ES256", "jwk": own});
    cases.push((
        "a key without an id".to_owned(),
        attacker.sign("ec", unnamed, claims()),
        JwtError::Signature,
    ));
    cases
}

fn extensions(signer: &Signer) -> Vec<Case> {
    let mut cases = Vec::new();
    for extra in [
        json!({"crit": ["exp"]}),
        json!({"crit": []}),
        json!({"crit": "b64"}),
        json!({"b64": false}),
        json!({"b64": false, "crit": ["b64"]}),
        json!({"zip": "DEF"}),
        json!({"enc": "A128GCM"}),
    ] {
        cases.push((format!("header {extra}"), signer.headed(extra), JwtError::Extension));
    }
    for kind in ["logout+jwt", "dpop+jwt", "JWE", "secevent+jwt", ""] {
        cases.push((format!("typ {kind:?}"), signer.headed(json!({"typ": kind})), JwtError::Type));
    }
    cases.push(("typ 1".to_owned(), signer.headed(json!({"typ": 1})), JwtError::Malformed));
    cases
}

fn wrong_claims(signer: &Signer) -> Vec<Case> {
    let mut cases = Vec::new();
    for issuer in [
        json!(null),
        json!(""),
        json!("https://id.example.org/"),
        json!("https://ID.example.org"),
        json!("http://id.example.org"),
        json!("https://id.example.org.evil.example"),
        json!([ISSUER]),
    ] {
        cases.push((format!("iss {issuer}"), signer.with(json!({"iss": issuer})), JwtError::Issuer));
    }
    for audience in [
        json!(null),
        json!(""),
        json!("Punctual"),
        json!("punctual2"),
        json!("punctual other"),
        json!([]),
        json!(["other"]),
        json!([["punctual"]]),
        json!(["punctual", 1]),
        json!({"punctual": true}),
        json!(1),
    ] {
        cases.push((format!("aud {audience}"), signer.with(json!({"aud": audience})), JwtError::Audience));
    }
    for subject in
        [json!(null), json!(""), json!(" "), json!(1), json!(["ann"]), json!("a\nb"), json!("x".repeat(256))]
    {
        cases.push((format!("sub {subject}"), signer.with(json!({"sub": subject})), JwtError::Subject));
    }
    cases
}

fn wrong_times(signer: &Signer) -> Vec<Case> {
    let mut cases = Vec::new();
    for expiry in [
        json!(null),
        json!("1900000000"),
        json!(true),
        json!([NOW_SECS + 300]),
        json!({}),
        json!(-1),
        json!(1e300),
        json!(i64::MAX),
        json!(u64::MAX),
        // Milliseconds.
        json!((NOW_SECS + 300) * 1_000),
    ] {
        cases.push((format!("exp {expiry}"), signer.with(json!({"exp": expiry})), JwtError::Times));
    }
    for expiry in [json!(NOW_SECS - 60), json!(NOW_SECS - 1_000), json!(0), json!(0.5)] {
        cases.push((format!("exp {expiry}"), signer.with(json!({"exp": expiry})), JwtError::Expired));
    }
    for claim in ["nbf", "iat"] {
        let later = signer.with(json!({claim: NOW_SECS + 61}));
        cases.push((format!("{claim} in the future"), later, JwtError::NotYet));
        let text = signer.with(json!({claim: NOW_SECS.to_string()}));
        cases.push((format!("{claim} as text"), text, JwtError::Times));
    }
    cases
}

fn malformed(signer: &Signer) -> Vec<Case> {
    let good = signer.with(json!({}));
    let [header, payload, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let texts = |header: &str, payload: &str| signer.sign_texts("ec", header, payload);
    let (head, body) = (es256().to_string(), claims().to_string());
    let doubled = |text: &str, member: &str| text.replacen('{', &format!("{{{member},"), 1);
    let mut cases: Vec<(String, String)> = vec![
        ("nothing".into(), String::new()),
        ("dots".into(), "..".into()),
        ("one part".into(), header.into()),
        ("two parts".into(), format!("{header}.{payload}")),
        ("four parts".into(), format!("{good}.")),
        ("five parts".into(), format!("{good}.{signature}.{signature}")),
        ("no header".into(), format!(".{payload}.{signature}")),
        ("padding".into(), format!("{header}=.{payload}.{signature}")),
        ("padded signature".into(), format!("{header}.{payload}.{signature}==")),
        ("another alphabet".into(), format!("{header}.{payload}.+/{}", &signature[2..])),
        ("a space".into(), format!("{header}.{payload}. {signature}")),
        ("a line break".into(), format!("{header}.{payload}.{signature}\n")),
        ("one character too many".into(), format!("{header}.{payload}.{signature}AAA")),
        ("a header that is no JSON".into(), texts("alg=ES256", &body)),
        ("a header with a byte order mark".into(), texts(&format!("\u{feff}{head}"), &body)),
        ("a header that is a list".into(), texts("[\"ES256\"]", &body)),
        ("a header with an appendix".into(), texts(&format!("{head} {{}}"), &body)),
        ("alg twice".into(), texts(&doubled(&head, "\"alg\":\"none\""), &body)),
        ("kid twice".into(), texts(&doubled(&head, "\"kid\":\"rsa\""), &body)),
        ("an unknown member twice".into(), texts(&doubled(&head, "\"a\":1,\"a\":1"), &body)),
        ("an escaped name twice".into(), texts(&doubled(&head, "\"\\u0061lg\":\"none\""), &body)),
        ("claims that are no JSON".into(), texts(&head, "sub=ann")),
        ("claims that are a list".into(), texts(&head, &format!("[{body}]"))),
        ("claims that are text".into(), texts(&head, "\"ann\"")),
        ("claims with NaN".into(), texts(&head, &body.replacen("\"exp\":", "\"x\":NaN,\"exp\":", 1))),
        ("sub twice".into(), texts(&head, &doubled(&body, "\"sub\":\"root\""))),
        ("exp twice".into(), texts(&head, &doubled(&body, "\"exp\":1"))),
        ("a nested name twice".into(), texts(&head, &doubled(&body, "\"a\":{\"roles\":1,\"roles\":2}"))),
        (
            "deep nesting".into(),
            texts(&head, &doubled(&body, &format!("\"a\":{}1{}", "[".repeat(200), "]".repeat(200)))),
        ),
    ];
    // The last character of a signature has bits to spare.
    let last = signature.chars().last().unwrap();
    let other = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let at = other.find(last).unwrap();
    let spare = &other[at + 1..at + 2];
    cases.push((
        "spare bits".into(),
        format!("{header}.{payload}.{}{spare}", &signature[..signature.len() - 1]),
    ));
    let mut cases: Vec<Case> =
        cases.into_iter().map(|(what, jwt)| (what, jwt, JwtError::Malformed)).collect();
    let huge = signer.with(json!({"filler": "x".repeat(10_000)}));
    cases.push(("8 KiB and more".to_owned(), huge, JwtError::TooLong));
    cases
}

fn wrong_signatures(signer: &Signer, attacker: &Signer) -> Vec<Case> {
    let good = signer.with(json!({}));
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let admin = b64(changed(claims(), json!({"sub": "root"})).to_string());
    let mut flipped = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[10] ^= 1;
    let random = SystemRandom::new();
    let asn1 = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &signer.ec_pkcs8, &random).unwrap();
    let asn1 = asn1.sign(&random, signed.as_bytes()).unwrap();
    let pss = signer.sign("rsa-pss", json!({"alg": "RS256", "kid": "rsa"}), claims());
    let pkcs1 = signer.sign("rsa", json!({"alg": "PS256", "kid": "rsa"}), claims());
    let ed = attacker.sign("ed", json!({"alg": "EdDSA", "kid": "ed"}), claims());
    let other_header = b64(json!({"alg": "ES256", "kid": "ec"}).to_string());
    let cases = [
        ("none", format!("{signed}.")),
        ("one bit off", format!("{signed}.{}", b64(flipped))),
        ("of other claims", format!("{header}.{admin}.{signature}")),
        ("of another header", format!("{other_header}.{payload}.{signature}")),
        ("of an attacker", attacker.with(json!({}))),
        ("of an attacker with EdDSA", ed),
        ("zeros", format!("{signed}.{}", b64([0; 64]))),
        ("ones", format!("{signed}.{}", b64([255; 64]))),
        ("another encoding", format!("{signed}.{}", b64(asn1))),
        ("twice", format!("{signed}.{}", b64(BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap().repeat(2)))),
        ("PS256 as RS256", pss),
        ("RS256 as PS256", pkcs1),
    ];
    cases.map(|(what, jwt)| (format!("signature: {what}"), jwt, JwtError::Signature)).to_vec()
}

#[test]
fn a_jwt_without_a_key_id_needs_an_issuer_with_one_key_of_its_type() {
    let (signer, other) = (Signer::new(), Signer::new());
    let jwt = signer.sign("ec", json!({"alg": "ES256"}), claims());
    assert!(verify(&jwt, &signer.keys()).is_ok());
    let mut both = signer.jwks();
    let mut second = other.jwks()["keys"][1].clone();
    second["kid"] = json!("second");
    both["keys"].as_array_mut().unwrap().push(second);
    let keys = Keys::parse(both.to_string().as_bytes()).unwrap();
    assert_eq!(verify(&jwt, &keys).map(|claims| claims.subject), Err(JwtError::Key));
    assert!(verify(&signer.with(json!({})), &keys).is_ok());
}

#[test]
fn a_key_is_used_for_its_own_algorithm_only() {
    let signer = Signer::new();
    let mut set = signer.jwks();
    set["keys"][0]["alg"] = json!("RS256");
    let keys = Keys::parse(set.to_string().as_bytes()).unwrap();
    let jwt = |key: &str, alg: &str| signer.sign(key, json!({"alg": alg, "kid": "rsa"}), claims());
    assert!(verify(&jwt("rsa", "RS256"), &keys).is_ok());
    assert_eq!(verify(&jwt("rsa-pss", "PS256"), &keys).map(|claims| claims.subject), Err(JwtError::Key));
    for nonsense in ["", "[]", "{}", "{\"keys\": {}}"] {
        assert!(Keys::parse(nonsense.as_bytes()).is_err(), "{nonsense}");
    }
}

fn saying(values: Value) -> Claims {
    let Value::Object(values) = values else { panic!("{values}") };
    Claims { issuer: ISSUER.to_owned(), subject: "ann".to_owned(), until: Timestamp::EPOCH, values }
}

#[test]
fn claims_are_mapped_to_roles_and_owners() {
    let rules = |role_claim: &str, owner_claim: Option<&str>| RoleRules {
        role_claim: role_claim.to_owned(),
        roles: vec![("jobs-admins".to_owned(), Role::Admin), ("jobs".to_owned(), Role::Submitter)],
        owner_claim: owner_claim.map(str::to_owned),
    };
    let role =
        |claim: &str, values: Value| rules(claim, None).grant(&saying(values)).map(|grant| grant.role).ok();
    assert_eq!(role("roles", json!({"roles": ["other", "jobs"]})), Some(Role::Submitter));
    assert_eq!(
        role("roles", json!({"roles": ["jobs", "jobs-admins"]})),
        Some(Role::Admin),
        "the first rule decides"
    );
    assert_eq!(role("roles", json!({"roles": "jobs"})), Some(Role::Submitter));
    assert_eq!(role("realm.roles", json!({"realm": {"roles": ["jobs"]}})), Some(Role::Submitter));
    assert_eq!(
        role("https://a.example/roles", json!({"https://a.example/roles": ["jobs"]})),
        Some(Role::Submitter)
    );
    assert_eq!(role("scope", json!({"scope": "openid jobs"})), Some(Role::Submitter));
    for nothing in [
        json!({}),
        json!({"roles": "openid jobs"}),
        json!({"roles": ["Jobs", "jobs "]}),
        json!({"roles": [["jobs"]]}),
        json!({"roles": {"jobs": true}}),
        json!({"roles": null}),
    ] {
        assert_eq!(role("roles", nothing.clone()), None, "{nothing}");
    }

    let grant = |owner_claim, values| rules("roles", owner_claim).grant(&saying(values));
    let own = grant(None, json!({"roles": "jobs"})).unwrap();
    assert_eq!((own.owner.as_str(), own.scope.owner.as_deref()), ("ann", Some("ann")));
    let email = json!({"roles": "jobs", "email": "Ann@Example.org", "email_verified": true});
    assert_eq!(grant(None, email).unwrap().owner, "ann@example.org");
    let team = grant(Some("team"), json!({"roles": "jobs", "team": "billing"})).unwrap();
    assert_eq!((team.owner.as_str(), team.scope.owner.as_deref()), ("billing", Some("billing")));
    let admin = grant(Some("team"), json!({"roles": "jobs-admins", "team": "billing"})).unwrap();
    assert_eq!((admin.owner.as_str(), admin.scope.owner), ("billing", None));
    for wrong in [
        json!({"roles": "jobs"}),
        json!({"roles": "jobs", "team": ""}),
        json!({"roles": "jobs", "team": ["a"]}),
    ] {
        assert!(matches!(grant(Some("team"), wrong), Err(ApiError::Unauthorized(_))));
    }
}

#[test]
fn an_email_address_counts_only_if_it_is_verified() {
    let email = |values: Value| saying(values).verified_email();
    let address = "Ann@Example.org";
    assert_eq!(email(json!({"email": address, "email_verified": true})).as_deref(), Some("ann@example.org"));
    for unverified in [json!(false), json!("true"), json!(1), json!(null)] {
        assert_eq!(email(json!({"email": address, "email_verified": unverified})), None);
    }
    assert_eq!(email(json!({"email": [address], "email_verified": true})), None);
}

#[test]
fn nobody_is_named_by_an_address_that_is_not_verified() {
    let name = |values: Value| saying(values).name();
    let address = "admin@example.org";
    assert_eq!(name(json!({"email": address, "email_verified": true, "name": "Ann"})), address);
    for unverified in [json!(false), json!("true"), json!(null)] {
        let claims = json!({"email": address, "email_verified": unverified, "preferred_username": "admin"});
        assert_eq!(name(claims), "ann", "the subject");
    }
    assert_eq!(name(json!({"preferred_username": address, "name": "Ann Example"})), "Ann Example");
    assert_eq!(name(json!({"name": "a\nb"})), "ann");
}

#[test]
fn the_owner_of_the_servers_own_jobs_is_reserved() {
    let rules = RoleRules {
        role_claim: "roles".to_owned(),
        roles: vec![("jobs".to_owned(), Role::Submitter)],
        owner_claim: None,
    };
    let subject = Claims { subject: "default".to_owned(), ..saying(json!({"roles": "jobs"})) };
    let Err(ApiError::Unauthorized(why)) = rules.grant(&subject) else { panic!("it was granted") };
    assert!(why.contains("oidc.owner_claim"), "{why}");
}

#[test]
fn an_issuer_must_use_tls_unless_it_is_on_this_machine_and_a_test() {
    let is_good = |issuer: &str, allows_http| OidcConfig::issuer_problem(issuer, allows_http).is_none();
    assert!(is_good("https://id.example.org/realms/a", false));
    assert!(is_good("http://127.0.0.1:3000", true) && is_good("http://localhost:3000", true));
    for (issuer, allows_http) in [
        ("http://127.0.0.1:3000", false),
        ("http://id.example.org", true),
        ("http://127.0.0.1.evil.example", true),
        ("ftp://id.example.org", true),
        ("https://user@id.example.org", true),
        ("https://id.example.org?a=b", true),
        ("id.example.org", true),
    ] {
        assert!(!is_good(issuer, allows_http), "{issuer}");
    }
}
