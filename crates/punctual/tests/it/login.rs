//! Browsers that log in with a token, and requests with unclear or outdated credentials.

use crate::browser::{Browser, Page};
use crate::certificates::Certificates;
use crate::server::{Server, answer, eventually};
use punctual_client::ClientTls;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// A new token with this role: its id and the token itself.
async fn token(server: &Server, role: &str) -> (String, String) {
    let (status, body) = server.post("/api/v1/tokens", &json!({"name": "t", "role": role}).to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let text = |field: &str| body[field].as_str().unwrap().to_owned();
    (text("token_id"), text("secret"))
}

fn at(server: &Server, path: &str) -> String {
    format!("http://{}{path}", server.address)
}

async fn logged_in(server: &Server, token: &str) -> (Browser, Page) {
    let mut browser = Browser::new();
    let page = browser.submit(&at(server, "/login"), &format!("token={token}&next=/docs")).await;
    (browser, page)
}

async fn me(browser: &mut Browser, server: &Server) -> (StatusCode, Value) {
    let page = browser.open(&at(server, "/api/v1/me")).await;
    (page.status, serde_json::from_str(&page.text).unwrap_or_default())
}

#[tokio::test]
async fn a_browser_logs_in_with_a_token_and_out_again() {
    let server = Server::start();
    let mut browser = Browser::new();
    let page = browser.open(&at(&server, "/login?next=/docs")).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("name=\"token\"") && !page.text.contains("<script"), "{}", page.text);
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"),
        "{policy}"
    );

    let (id, viewer) = token(&server, "viewer").await;
    let (mut browser, page) = logged_in(&server, &viewer).await;
    assert_eq!((page.status, page.location().unwrap().path()), (StatusCode::SEE_OTHER, "/docs"));
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    let port = server.address.rsplit(':').next().unwrap();
    assert!(cookie.starts_with(&format!("punctual_{port}=pt_")), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax"), "{cookie}");

    let (status, body) = me(&mut browser, &server).await;
    assert_eq!(
        (status, body["role"].as_str(), body["name"].as_str()),
        (StatusCode::OK, Some("viewer"), Some("t"))
    );
    assert_ne!(body["token_id"], id, "the session has an id of its own");
    let page = browser.open(&at(&server, "/login")).await;
    assert!(page.text.contains("You are logged in as t with the role viewer"), "{}", page.text);

    let session = browser.cookies.values().next().unwrap().clone();
    let as_token = server.anonymous(Method::GET, "/api/v1/me").bearer_auth(&session).send().await.unwrap();
    assert_eq!(as_token.status(), StatusCode::UNAUTHORIZED, "a session is no token");
    let mut other = Browser::new();
    other.cookies.insert(format!("punctual_{port}"), viewer.clone());
    assert_eq!(me(&mut other, &server).await.0, StatusCode::UNAUTHORIZED, "a token is no session");

    let mut old = Browser::new();
    old.cookies = browser.cookies.clone();
    let page = browser.submit(&at(&server, "/logout"), "").await;
    assert_eq!((page.status, browser.cookies.len()), (StatusCode::SEE_OTHER, 0));
    for mut browser in [browser, old] {
        assert_eq!(me(&mut browser, &server).await.0, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn pages_of_other_sites_can_neither_log_in_nor_change_anything() {
    let server = Server::start();
    let (browser, _) = logged_in(&server, &server.token).await;
    let origin = at(&server, "");
    let job = || json!({"name": "noop"}).to_string();
    let send = async |path: &str, headers: &[(&str, &str)]| {
        let (kind, body) = match path {
            "/login" => ("application/x-www-form-urlencoded", format!("token={}", server.token)),
            _ => ("application/json", job()),
        };
        let mut request = browser.request(Method::POST, &at(&server, path)).header("content-type", kind);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body).send().await.unwrap().status().as_u16()
    };
    for (path, done) in [("/api/v1/jobs", 201), ("/login", 303)] {
        assert_eq!(send(path, &[("origin", &origin), ("sec-fetch-site", "same-origin")]).await, done);
        assert_eq!(send(path, &[("origin", &origin)]).await, done);
        for foreign in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "https://evil.example")],
            &[("origin", "http://127.0.0.1:1")],
            &[("origin", origin.as_str()), ("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "cross-site")],
            &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
        ] {
            assert_eq!(send(path, foreign).await, 403, "{path} {foreign:?}");
        }
    }
    assert_eq!(send("/logout", &[("origin", "https://evil.example")]).await, 403);
    // Other programs send no cookie, and need no origin.
    assert_eq!(server.post("/api/v1/jobs", &job()).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_login_with_a_wrong_token_says_so_and_sets_no_cookie() {
    let server = Server::start();
    for wrong in ["", "x", "pt_admin_wrong", "a.b.c", "pt_%3Cb%3E_x"] {
        let (browser, page) = logged_in(&server, wrong).await;
        assert_eq!((page.status, browser.cookies.len()), (StatusCode::UNAUTHORIZED, 0), "{wrong}");
        assert!(page.text.contains("role=\"alert\"") && !page.text.contains("<b>"), "{}", page.text);
    }
    let mut browser = Browser::new();
    let elsewhere = format!("token={}&next=//evil.example", server.token);
    let page = browser.submit(&at(&server, "/login"), &elsewhere).await;
    assert_eq!(page.headers["location"], "/ui/");
    let request =
        browser.request(Method::POST, &at(&server, "/login")).header("sec-fetch-site", "same-origin");
    let page = browser.send(request.body("token=x")).await;
    assert_eq!(page.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(browser.open(&at(&server, "/login/oidc")).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let server = Server::start();
    let (id, viewer) = token(&server, "viewer").await;
    let (mut browser, _) = logged_in(&server, &viewer).await;
    assert_eq!(me(&mut browser, &server).await.0, StatusCode::OK);
    let revoked = server.request(Method::DELETE, &format!("/api/v1/tokens/{id}")).send().await.unwrap();
    assert_eq!(revoked.status(), StatusCode::NO_CONTENT);
    eventually("the session is over", async || me(&mut browser, &server).await.0 == StatusCode::UNAUTHORIZED)
        .await;
}

#[tokio::test]
async fn a_session_may_do_what_its_token_may_now() {
    let server = Server::start();
    let (id, admin) = token(&server, "admin").await;
    let (mut browser, _) = logged_in(&server, &admin).await;
    assert_eq!(me(&mut browser, &server).await.1["role"], "admin");
    let changed = server.patch(&format!("/api/v1/tokens/{id}"), &json!({"role": "viewer"})).await;
    assert_eq!(changed.0, StatusCode::OK, "{}", changed.1);
    assert_eq!(me(&mut browser, &server).await.1["role"], "viewer");
    let tokens = browser.open(&at(&server, "/api/v1/tokens")).await;
    assert_eq!(tokens.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn cookies_over_tls_belong_to_this_host_alone() {
    let certificates = Certificates::new();
    let server = certificates.serve(&[]);
    let tls = ClientTls::new(Some(certificates.authority.pem.as_bytes()), None).unwrap();
    let mut browser = Browser::with(&tls);
    let address = format!("https://{}/login", server.address);
    let page = browser.submit(&address, &format!("token={}", server.token)).await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    let port = server.address.rsplit(':').next().unwrap();
    assert!(cookie.starts_with(&format!("__Host-punctual_{port}=pt_")), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax; Secure"), "{cookie}");
    let page = browser.open(&format!("https://{}/api/v1/me", server.address)).await;
    assert_eq!(page.status, StatusCode::OK);
    // The cookie of a plain server on the same host is another one.
    let mut plain = Browser::with(&tls);
    plain.cookies.insert(format!("punctual_{port}"), browser.cookies.into_values().next().unwrap());
    let page = plain.open(&format!("https://{}/api/v1/me", server.address)).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn two_credentials_in_one_request_are_refused() {
    let server = Server::start();
    let request = server.request(Method::GET, "/api/v1/me").bearer_auth(&server.token);
    assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    let other = server.anonymous(Method::GET, "/api/v1/me").bearer_auth("x");
    let request = other.header("authorization", format!("Bearer {}", server.token));
    assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    let (browser, _) = logged_in(&server, &server.token).await;
    let (name, value) = browser.cookies.iter().next().unwrap();
    let request =
        server.anonymous(Method::GET, "/api/v1/me").header("cookie", format!("{name}={value}; {name}=x"));
    assert_eq!(request.send().await.unwrap().status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_token_expires_and_a_replaced_secret_stops_working_at_its_time() {
    let server = Server::start_with(&["--clock", "manual", "--clock-start", "2026-01-01T00:00:00Z"]);
    let status =
        async |token: &str| answer(server.anonymous(Method::GET, "/api/v1/me").bearer_auth(token)).await;
    let new = json!({"name": "t", "role": "viewer", "expires_after": "3h"}).to_string();
    let (_, token) = server.post("/api/v1/tokens", &new).await;
    let (id, old) = (token["token_id"].as_str().unwrap(), token["secret"].as_str().unwrap());
    let (code, token) = server.post(&format!("/api/v1/tokens/{id}/rotate"), r#"{"overlap": "1h"}"#).await;
    assert_eq!(code, StatusCode::OK, "{token}");
    let new = token["secret"].as_str().unwrap();
    assert_eq!((status(old).await.0, status(new).await.0), (StatusCode::OK, StatusCode::OK));
    let advance = async |time: &str| {
        let (code, body) = server.post("/api/v1/clock/advance", &json!({"by": time}).to_string()).await;
        assert_eq!(code, StatusCode::OK, "{body}");
    };
    advance("61m").await;
    assert_eq!((status(old).await.0, status(new).await.0), (StatusCode::UNAUTHORIZED, StatusCode::OK));
    advance("2h").await;
    let (code, body) = status(new).await;
    assert_eq!((code, body["detail"].as_str()), (StatusCode::UNAUTHORIZED, Some("the token has expired")));
}

#[tokio::test]
async fn the_last_use_of_a_token_is_stored_at_the_latest_when_the_server_stops() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(folder.path(), &[]);
    let (id, viewer) = token(&server, "viewer").await;
    let path = format!("/api/v1/tokens/{id}");
    assert_eq!(server.get(&path).await.1["last_used_at"], Value::Null);
    let used = server.anonymous(Method::GET, "/api/v1/me").bearer_auth(&viewer).send().await.unwrap();
    assert_eq!(used.status(), StatusCode::OK);
    assert!(tokio::task::spawn_blocking(|| server.stop()).await.unwrap().success());
    let server = Server::start_in(folder.path(), &[]);
    let (_, token) = server.get(&path).await;
    assert!(token["last_used_at"].as_str() >= token["created_at"].as_str(), "{token}");
}
