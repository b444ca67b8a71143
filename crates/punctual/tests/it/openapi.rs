//! The OpenAPI document as the server serves it, and the page that shows it.

use crate::server::Server;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use std::collections::BTreeSet;

async fn document(server: &Server) -> (String, Value) {
    let answer = server.anonymous(Method::GET, "/openapi.json").send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "application/json");
    let text = answer.text().await.expect("a body");
    let document = serde_json::from_str(&text).expect("JSON");
    (text, document)
}

#[tokio::test]
async fn the_served_document_is_the_committed_one_and_needs_no_token() {
    let server = Server::start();
    let (served, document) = document(&server).await;
    let committed = include_str!("../../../../docs/openapi.json");
    assert!(
        served == committed,
        "docs/openapi.json is not what the server serves; regenerate it with \
         `UPDATE_DOCS=1 cargo nextest run -p punctual-api openapi`"
    );
    assert_eq!(document["openapi"], "3.1.0");
}

/// The server's own 405 responses list the methods of a path.
#[tokio::test]
async fn every_path_has_the_methods_that_the_document_says_and_no_others() {
    let server = Server::start();
    let (_, document) = document(&server).await;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let place = path.replace("{id}", "1").replace("{queue}", "q");
        let answer = server.request(Method::TRACE, &place).send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed: BTreeSet<String> = answer.headers()["allow"]
            .to_str()
            .expect("text")
            .split(',')
            .map(|method| method.trim().to_lowercase())
            .collect();
        let mut described: BTreeSet<String> = methods.as_object().expect("methods").keys().cloned().collect();
        if described.contains("get") {
            described.insert("head".to_owned());
        }
        assert_eq!(allowed, described, "{path}");
    }
}

#[tokio::test]
async fn what_needs_a_token_says_so_and_the_rest_needs_none() {
    let server = Server::start();
    let (_, document) = document(&server).await;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let place = path.replace("{id}", "1").replace("{queue}", "q");
            let method: Method = method.to_uppercase().parse().expect("a method");
            let answer = server.anonymous(method, &place).send().await.expect("an answer");
            let is_refused = answer.status() == StatusCode::UNAUTHORIZED;
            let is_public = operation["security"].as_array().is_some_and(Vec::is_empty);
            assert_eq!(is_refused, !is_public, "{path}: {}", answer.status());
        }
    }
}

#[tokio::test]
async fn the_page_brings_all_that_it_needs_and_may_load_nothing_else() {
    let server = Server::start();
    let answer = server.anonymous(Method::GET, "/docs").send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
    let policy = answer.headers()["content-security-policy"].to_str().expect("text").to_owned();
    assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let page = answer.text().await.expect("a body");
    assert!(!page.contains("http://") && !page.contains("https://"), "the page loads from elsewhere");
    assert!(page.contains("/openapi.json"));
}
