//! The OpenAPI document, and a page that shows it in a browser.
//!
//! Operations are described by hand next to the routes, and a test compares them with the router. The schemas
//! follow from the wire types (decision 0032).

#[cfg(test)]
mod jobs_schema;
mod operation;
mod paths;
#[cfg(test)]
mod permissions;
mod schemas;
mod types;

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The document as served and as committed.
static TEXT: LazyLock<String> =
    LazyLock::new(|| serde_json::to_string_pretty(&document()).map(|text| text + "\n").unwrap_or_default());

/// Shows the document in a browser. It loads no external resources: the server may have no internet access.
const PAGE: &str = include_str!("page.html");
/// Only the page's own script and style may run, and they may connect only to their own server.
static PAGE_POLICY: LazyLock<String> = LazyLock::new(|| {
    let (script, style) = (hash_of("script"), hash_of("style"));
    format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
});

/// The hash of the page's text between these tags, by which a browser permits it.
fn hash_of(tag: &str) -> String {
    let (from, to) = (format!("<{tag}>"), format!("</{tag}>"));
    let text = PAGE.split_once(&from).and_then(|(_, rest)| rest.split_once(&to)).map_or("", |(text, _)| text);
    BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()))
}

pub async fn serve() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-cache")], TEXT.as_str())
}

pub async fn page() -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, PAGE_POLICY.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, PAGE)
}

const ABOUT: &str = "Jobs on time, run once, never lost.

Times are RFC 3339 and returned in UTC; durations are `30s`, `5m`, `1h30m`, `1d` or ISO 8601 such as `PT3H`. Every \
request except those for health and documentation needs `Authorization: Bearer <token>`. The admin token is in `<data \
dir>/admin.token`; with it, create a token with the right role for each service and worker. `x-permission` names the permission that a \
request needs. Errors are problem details (RFC 9457). Unknown fields and parameters in requests are errors; clients \
must ignore unknown fields in responses.

Besides the listed responses, any request may return 400 if it names no host or several, 404 for an unknown path, 405 (with `Allow`) if the method is not \
allowed, 414 if path and query are too long, 421 if the server does not answer to the host that it names, 431 (without a body) if the headers are too long or too many, 500 if the \
server failed, and 503 (without a body) if no connection is free. Responses to a user or token with a rate limit have the \
headers `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`; 429 always means that nothing was done. A request whose head takes too long to arrive is not \
answered: its connection is closed.";

pub fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in paths::all() {
        let (path, method) = (operation.path.clone(), operation.method.as_str().to_lowercase());
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[method] = operation.value();
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Punctual",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "A distributed job scheduler.",
            "description": ABOUT,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that returned this document."}],
        "tags": paths::tags(),
        "paths": paths,
        "components": {
            "schemas": types::all().named,
            "responses": operation::shared_answers(),
            "headers": operation::shared_headers(),
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer", "bearerFormat": "pt_<id>_<secret>",
                "description": "A token of this server, or a JWT of the identity provider that it trusts. Its role, permissions and scope decide what it may do.",
            }},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let routed: BTreeSet<String> = routes::paths().iter().map(|path| without_slash(path)).collect();
        let described: BTreeSet<String> =
            paths::all().iter().map(|operation| operation.path.clone()).collect();
        assert_eq!(routed, described, "describe the route in openapi/paths");
    }

    fn without_slash(path: &str) -> String {
        if path == "/" { path.to_owned() } else { path.trim_end_matches('/').to_owned() }
    }

    /// Every value under this keyword, anywhere in the document.
    fn all_under<'a>(keyword: &str, value: &'a Value, found: &mut Vec<&'a Value>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    if key == keyword {
                        found.push(member);
                    }
                    all_under(keyword, member, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| all_under(keyword, item, found)),
            _ => {}
        }
    }

    #[test]
    fn what_is_referred_to_is_there_and_what_is_there_is_referred_to() {
        let document = document();
        let mut found = Vec::new();
        all_under("$ref", &document, &mut found);
        let referred: BTreeSet<&str> = found.into_iter().filter_map(Value::as_str).collect();
        for reference in &referred {
            assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
        }
        for kind in ["schemas", "responses", "headers"] {
            for name in document["components"][kind].as_object().unwrap().keys() {
                let reference = format!("#/components/{kind}/{name}");
                assert!(referred.contains(reference.as_str()), "nothing refers to {reference}");
            }
        }
    }

    #[test]
    fn every_operation_and_field_says_what_it_is() {
        let document = document();
        let mut ids = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id), "{id} is there twice");
                assert!(operation["description"].is_string(), "{method} {path} has no description");
                let placeholders = path.matches('{').count();
                let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
                let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
                assert_eq!(placeholders, in_path, "{method} {path}");
                for parameter in parameters {
                    assert!(parameter["description"].is_string(), "{method} {path}: {parameter}");
                }
            }
        }
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{name} has no description");
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                assert!(schema["description"].is_string(), "{name}.{field} has no description");
            }
        }
    }

    #[test]
    fn the_committed_document_is_the_one_that_is_served() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, TEXT.as_str()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == *TEXT,
            "docs/openapi.json differs from what the server serves; regenerate it with `UPDATE_DOCS=1 \
             cargo nextest run -p punctual-api openapi`"
        );
    }
}
