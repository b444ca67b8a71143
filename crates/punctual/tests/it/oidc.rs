//! Users and programs of an identity provider: `oidc-provider` from npm, which `cargo xtask services` starts.

use crate::browser::{Browser, Page};
use crate::private::Private;
use crate::server::{Server, answer, eventually, http_client};
use reqwest::{Method, StatusCode, Url};
use serde_json::{Value, json};

/// The provider that tests share.
pub fn issuer() -> String {
    std::env::var("PUNCTUAL_TEST_OIDC")
        .expect("PUNCTUAL_TEST_OIDC: use `cargo xtask services run oidc -- cargo nextest run`")
}

pub struct Site {
    pub server: Server,
    issuer: String,
    _folder: tempfile::TempDir,
}

impl Site {
    pub fn start(issuer: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "the secret: of punctual\n").unwrap();
        let roles = "jobs-operators=operator,jobs-submitters=submitter";
        let common = [
            &[
                "--oidc-issuer",
                issuer,
                "--oidc-allow-http",
                "--oidc-audience",
                "punctual",
                "--oidc-roles",
                roles,
            ],
            &["--oidc-client-id", "punctual", "--oidc-client-secret-file", secret.to_str().unwrap()][..],
        ];
        let server = Server::start_with(&[&common.concat(), options].concat());
        Site { server, issuer: issuer.to_owned(), _folder: folder }
    }

    pub fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address)
    }

    async fn me(&self, jwt: &str) -> (StatusCode, Value) {
        answer(self.server.anonymous(Method::GET, "/api/v1/me").bearer_auth(jwt)).await
    }

    /// Goes through the provider's pages and back.
    async fn log_in(&self, browser: &mut Browser, name: &str, next: &str) -> Page {
        let begun = browser.open(&self.at(&format!("/login/oidc?next={next}"))).await;
        assert_eq!(begun.status, StatusCode::SEE_OTHER, "{}", begun.text);
        let own = self.at("/login/callback");
        let is_callback = |url: &Url| url.as_str().starts_with(&own);
        let mut page = browser.follow(begun, is_callback).await;
        while page.location().is_none() {
            assert!(page.url.path().starts_with("/interaction/"), "{}: {}", page.url, page.text);
            let form = match page.text.contains("name=\"login\"") {
                true => format!("prompt=login&login={name}&password=x"),
                false => "prompt=consent".to_owned(),
            };
            let sent = browser.submit(page.url.as_str(), &form).await;
            page = browser.follow(sent, is_callback).await;
        }
        let callback = page.location().unwrap();
        browser.open(callback.as_str()).await
    }
}

/// A JWT for a program, with this audience.
async fn jwt(issuer: &str, client: &str, audience: &str, algorithm: &str) -> String {
    let form = format!("grant_type=client_credentials&scope=jobs&resource=urn:{audience}:{algorithm}");
    let request = http_client().post(format!("{issuer}/token")).basic_auth(client, Some("secret"));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    let (status, body) = answer(request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body["access_token"].as_str().unwrap().to_owned()
}

fn detail(body: &Value) -> &str {
    body["detail"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn programs_use_the_jwts_of_the_provider() {
    let site = Site::start(&issuer(), &[]);
    for algorithm in ["RS256", "PS256", "ES256"] {
        let operator = jwt(&site.issuer, "operator-service", "punctual", algorithm).await;
        let (status, body) = site.me(&operator).await;
        assert_eq!((status, body["role"].as_str()), (StatusCode::OK, Some("operator")), "{algorithm} {body}");
        assert_eq!(body["token_id"], format!("{}#operator-service", site.issuer));
    }
    let submitter = jwt(&site.issuer, "submitter-service", "punctual", "RS256").await;
    let request = site.server.anonymous(Method::POST, "/api/v1/jobs").bearer_auth(&submitter);
    let (status, job) = answer(request.json(&json!({"name": "noop"}))).await;
    assert_eq!(status, StatusCode::CREATED, "{job}");
    let (_, job) = site.server.get(&format!("/api/v1/jobs/{}", job["job_id"].as_str().unwrap())).await;
    assert_eq!(job["owner_id"], "submitter-service");
    let request = site.server.anonymous(Method::GET, "/api/v1/tokens").bearer_auth(&submitter);
    assert_eq!(answer(request).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn other_jwts_are_refused_with_the_reason() {
    let site = Site::start(&issuer(), &[]);
    let good = jwt(&site.issuer, "operator-service", "punctual", "RS256").await;
    assert_eq!(site.me(&good).await.0, StatusCode::OK);
    let other = jwt(&site.issuer, "operator-service", "other", "RS256").await;
    let stranger = jwt(&site.issuer, "stranger-service", "punctual", "RS256").await;
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    for (wrong, reason) in [
        (other.clone(), "the JWT is for another audience"),
        (stranger, "none of its roles is mapped"),
        (format!("{signed}."), "the signature of the JWT is wrong"),
        (format!("{signed}.A{}", &signature[1..]), "the signature of the JWT is wrong"),
        (
            format!("{header}.{}.{signature}", other.split('.').nth(1).unwrap()),
            "the signature of the JWT is wrong",
        ),
        (format!("eyJhbGciOiJub25lIn0.{payload}."), "must be signed with RS256"),
        ("a.b.c".to_owned(), "the JWT is malformed"),
    ] {
        let (status, body) = site.me(&wrong).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{wrong}");
        assert!(detail(&body).contains(reason), "{reason}: {body}");
    }
    let closed = Server::start();
    let request = closed.anonymous(Method::GET, "/api/v1/me").bearer_auth(&good);
    let (status, body) = answer(request).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(detail(&body).contains("accepts no JWTs"), "{body}");
}

#[tokio::test]
async fn new_keys_of_the_provider_are_used_and_old_ones_are_not() {
    let provider = Private::start("oidc");
    let site = Site::start(provider.url("oidc"), &[]);
    let old = jwt(&site.issuer, "operator-service", "punctual", "RS256").await;
    assert_eq!(site.me(&old).await.0, StatusCode::OK);
    let rotated = http_client().post(format!("{}/test/rotate", site.issuer)).send().await.unwrap();
    assert_eq!(rotated.status(), StatusCode::OK);
    let new = jwt(&site.issuer, "operator-service", "punctual", "RS256").await;
    eventually("the new key is used", async || site.me(&new).await.0 == StatusCode::OK).await;
    eventually("the old key is not", async || site.me(&old).await.0 == StatusCode::UNAUTHORIZED).await;
}

#[tokio::test]
async fn a_server_without_its_provider_serves_its_own_tokens() {
    let mut provider = Private::start("oidc");
    let issuer = provider.url("oidc").to_owned();
    let good = jwt(&issuer, "operator-service", "punctual", "RS256").await;
    provider.kill("oidc");
    let site = Site::start(&issuer, &[]);
    let (status, body) = site.me(&good).await;
    assert_eq!(
        (status, body["retry_after_secs"].as_u64()),
        (StatusCode::SERVICE_UNAVAILABLE, Some(5)),
        "{body}"
    );
    assert_eq!(site.server.get("/api/v1/me").await.0, StatusCode::OK);
}

#[tokio::test]
async fn people_log_in_at_the_provider_and_out_here() {
    let site = Site::start(&issuer(), &[]);
    let mut browser = Browser::new();
    let page = browser.open(&site.at("/login?next=/docs")).await;
    assert!(page.text.contains("href=\"/login/oidc?next=%2Fdocs\">Log in with 127.0.0.1<"), "{}", page.text);

    let page = site.log_in(&mut browser, "operator-ann", "/docs").await;
    assert_eq!(
        (page.status, page.location().unwrap().path()),
        (StatusCode::SEE_OTHER, "/docs"),
        "{}",
        page.text
    );
    let asked = browser.visited.iter().find(|url| url.path() == "/auth").unwrap().query().unwrap();
    for part in ["response_type=code", "code_challenge_method=S256", "state=", "nonce=", "scope=openid+email"]
    {
        assert!(asked.contains(part), "{asked}");
    }
    let port = site.server.address.rsplit(':').next().unwrap();
    assert!(browser.cookies.contains_key(&format!("punctual_{port}")));
    assert!(!browser.cookies.contains_key(&format!("punctual_login_{port}")), "{:?}", browser.cookies);

    let page = browser.open(&site.at("/api/v1/me")).await;
    let me: Value = serde_json::from_str(&page.text).unwrap();
    assert_eq!(
        (me["role"].as_str(), me["name"].as_str()),
        (Some("operator"), Some("operator-ann@example.org"))
    );
    let page = browser.submit(&site.at("/logout"), "").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.open(&site.at("/api/v1/me")).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_user_of_this_server_has_the_role_that_it_has_here() {
    let site = Site::start(&issuer(), &[]);
    let user = json!({"email": "Operator-Bob@example.org", "role": "viewer"});
    let (status, user) = site.server.post("/api/v1/users", &user.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{user}");
    let mut browser = Browser::new();
    site.log_in(&mut browser, "operator-bob", "/docs").await;
    let page = browser.open(&site.at("/api/v1/me")).await;
    let me: Value = serde_json::from_str(&page.text).unwrap();
    assert_eq!((&me["role"], &me["user_id"]), (&json!("viewer"), &user["user_id"]), "{me}");

    let path = format!("/api/v1/users/{}", user["user_id"].as_str().unwrap());
    let (status, body) = site.server.patch(&path, &json!({"disabled": true})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    eventually("the session of a disabled user is over", async || {
        browser.open(&site.at("/api/v1/me")).await.status == StatusCode::UNAUTHORIZED
    })
    .await;
    let page = site.log_in(&mut Browser::new(), "operator-bob", "/docs").await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
    assert!(page.text.contains("the user is disabled"), "{}", page.text);
    let refused =
        ["--action", "session.open", "--outcome", "refused", "--user", user["email"].as_str().unwrap()];
    eventually("the refused login is in the audit log", async || {
        site.server.said(&[&["audit"], &refused[..]].concat()).contains("the user is disabled")
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_not_verified_neither_is_a_user_nor_avoids_its_restrictions() {
    let site = Site::start(&issuer(), &[]);
    let page = site.log_in(&mut Browser::new(), "operator-unverified-eve", "/docs").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "no user has the address: {}", page.text);
    let user = json!({"email": "operator-unverified-eve@example.org", "role": "viewer"});
    assert_eq!(site.server.post("/api/v1/users", &user.to_string()).await.0, StatusCode::CREATED);
    let page = site.log_in(&mut Browser::new(), "operator-unverified-eve", "/docs").await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED, "{}", page.text);
    assert!(page.text.contains("email_verified"), "{}", page.text);
    let entries = ["audit", "--action", "session.open", "-o", "json"];
    eventually("the refusal is in the audit log", async || {
        site.server.said(&entries).contains("email_verified")
    })
    .await;
    assert!(!site.server.said(&entries).contains("eve@example.org"), "the subject is named, not the address");
}

#[tokio::test]
async fn a_login_that_another_browser_began_is_refused() {
    let site = Site::start(&issuer(), &[]);
    let mut browser = Browser::new();
    let page = site.log_in(&mut browser, "operator-ann", "/docs").await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let callback = page.url.to_string();
    // Without the cookie of the login, with that of another one, and with the code of an earlier one.
    let mut other = Browser::new();
    assert_eq!(other.open(&callback).await.status, StatusCode::UNAUTHORIZED);
    other.open(&site.at("/login/oidc")).await;
    let page = other.open(&callback).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
    assert!(page.text.contains("the login failed"), "{}", page.text);
    let begun = other.open(&site.at("/login/oidc")).await.location().unwrap();
    let query = |url: &Url, name: &str| {
        url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).unwrap()
    };
    let (code, state) = (query(&page.url, "code"), query(&begun, "state"));
    let page = other.open(&site.at(&format!("/login/callback?code={code}&state={state}"))).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED, "the code was used already");
    let denied = format!("/login/callback?error=access_denied&state={state}");
    assert_eq!(other.open(&site.at(&denied)).await.status, StatusCode::UNAUTHORIZED);
    let elsewhere = format!("/login/callback?code={code}&state={state}&iss=https://evil.example");
    assert_eq!(other.open(&site.at(&elsewhere)).await.status, StatusCode::UNAUTHORIZED);
    let session = format!("punctual_{}", site.server.address.rsplit(':').next().unwrap());
    assert!(!other.cookies.contains_key(&session), "{:?}", other.cookies);
}

#[tokio::test]
async fn a_session_from_a_jwt_lasts_no_longer_than_the_jwt() {
    let site = Site::start(&issuer(), &[]);
    let jwt = jwt(&site.issuer, "operator-service", "punctual", "ES256").await;
    let mut browser = Browser::new();
    let page = browser.submit(&site.at("/login"), &format!("token={jwt}")).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.text);
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    let age = cookie.split("Max-Age=").nth(1).and_then(|rest| rest.split(';').next()).unwrap();
    // Ten minutes, and the clock skew.
    assert!(age.parse::<u64>().unwrap() <= 660, "{cookie}");
    assert_eq!(browser.open(&site.at("/api/v1/me")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn behind_a_proxy_browsers_return_to_the_public_address() {
    let site = Site::start(&issuer(), &["--public-url", "https://jobs.example.org/"]);
    let mut browser = Browser::new();
    let request = browser.request(Method::GET, &site.at("/login/oidc")).header("host", "jobs.example.org");
    let page = browser.send(request).await;
    let asked = page.location().unwrap();
    let uri = asked.query_pairs().find(|(name, _)| name == "redirect_uri").unwrap().1.into_owned();
    assert_eq!(uri, "https://jobs.example.org/login/callback");
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-punctual_login_443=") && cookie.ends_with("; Secure"), "{cookie}");
}
