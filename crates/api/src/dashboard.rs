//! The dashboard: serves the files of the folder `dashboard`, which are part of the binary. Debug builds read them
//! from the disk, so that a reload shows an edited file.
//!
//! The pages use the public API and nothing else. They work below any path that a proxy strips, because every
//! address in them is relative ([`base_of`]).

use crate::Api;
use crate::browser::escaped;
use crate::scripts;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    HeaderName, IF_NONE_MATCH, LOCATION, REFERRER_POLICY, VARY,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// Where the dashboard is.
pub const HOME: &str = "/ui/";
/// Where its files are below that. The next part of the path is their version.
const ASSETS: &str = "a";
const INDEX: &str = "index.html";

/// Scripts, styles and pictures of this server only, and no inline code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'self'; frame-ancestors 'none'";

/// All files of the dashboard with their paths below it, as they were when this crate was built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// For people, so these paths are not part of the OpenAPI document.
pub fn router() -> Router<Api> {
    Router::new().route("/ui", get(to_home)).route(HOME, get(page)).route("/ui/{*path}", get(page))
}

/// Whether a path belongs to the dashboard, which shows nothing without the API and so needs no token.
pub fn is_at(path: &str) -> bool {
    path == "/ui" || path.starts_with(HOME)
}

/// Sends a browser from the parent folder to the dashboard.
pub async fn to_home() -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, "ui/")]).into_response()
}

/// Whether the client is a browser that shows a page, rather than a program.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.contains("text/html")
}

/// A file of the dashboard as it is sent.
struct DashboardAsset {
    kind: &'static str,
    etag: String,
    plain: Bytes,
    gzip: Bytes,
}

impl DashboardAsset {
    fn new(path: &str, file: Bytes) -> Option<Self> {
        let kind = kind_of(path)?;
        let plain = sent(path, file);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish()).unwrap_or_default().into();
        Some(DashboardAsset { kind, etag: format!("\"{}\"", digest(&plain)), plain, gzip })
    }

    fn answer(&self, request: &HeaderMap, cache: &'static str) -> Response {
        let has = |name: HeaderName, part: &str| {
            request.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| value.contains(part))
        };
        let headers = [
            (CONTENT_TYPE, self.kind),
            (CACHE_CONTROL, cache),
            (ETAG, self.etag.as_str()),
            (VARY, "accept-encoding"),
            (CONTENT_SECURITY_POLICY, POLICY),
        ];
        if has(IF_NONE_MATCH, &self.etag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        if has(ACCEPT_ENCODING, "gzip") {
            return (headers, [(CONTENT_ENCODING, "gzip")], self.gzip.clone()).into_response();
        }
        (headers, self.plain.clone()).into_response()
    }
}

/// All files by their path, compressed once.
static EMBEDDED: LazyLock<BTreeMap<&str, Arc<DashboardAsset>>> = LazyLock::new(|| {
    let asset = |(path, bytes): &(&'static str, &'static [u8])| {
        Some((*path, Arc::new(DashboardAsset::new(path, Bytes::from_static(bytes))?)))
    };
    FILES.iter().filter_map(asset).collect()
});

/// The version of all files together, which is part of their addresses.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let all: String = EMBEDDED.iter().map(|(path, asset)| format!("{path} {}\n", asset.etag)).collect();
    digest(all.as_bytes())
});

fn asset(path: &str) -> Option<Arc<DashboardAsset>> {
    let embedded = EMBEDDED.get(path)?;
    if cfg!(debug_assertions) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard").join(path);
        return DashboardAsset::new(path, std::fs::read(file).ok()?.into()).map(Arc::new);
    }
    Some(Arc::clone(embedded))
}

/// A file as browsers get it: third-party ones are unchanged.
fn sent(path: &str, file: Bytes) -> Bytes {
    if !path.ends_with(".js") || path.starts_with("vendor/") {
        return file;
    }
    str::from_utf8(&file).map(scripts::compact).map_or(file.clone(), Bytes::from)
}

fn kind_of(path: &str) -> Option<&'static str> {
    Some(match path.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// A file of the dashboard, or its page for every other path: the page itself shows what the path means.
async fn page(State(api): State<Api>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix(HOME).unwrap_or_default();
    if let Some((ASSETS, file)) = path.split_once('/') {
        let (version, file) = file.split_once('/').unwrap_or(("", file));
        // An open page of an earlier version may still ask for files that it loads later.
        let cache = match version == *VERSION && !cfg!(debug_assertions) {
            true => "public, max-age=31536000, immutable",
            false => "no-cache",
        };
        return match asset(file) {
            Some(found) => found.answer(request.headers(), cache),
            None => StatusCode::NOT_FOUND.into_response(),
        };
    }
    let Some(index) = asset(INDEX) else { return StatusCode::NOT_FOUND.into_response() };
    let provider = api.oidc.as_deref().filter(|oidc| oidc.client().is_some());
    let html = String::from_utf8_lossy(&index.plain)
        .replace("{base}", &base_of(path))
        .replace("{assets}", &format!("{ASSETS}/{}", *VERSION))
        .replace("{provider}", &provider.map(|oidc| escaped(&oidc.issuer_name())).unwrap_or_default());
    let headers = [
        (CONTENT_TYPE, index.kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "same-origin"),
    ];
    (headers, html).into_response()
}

/// The way from a path below [`HOME`] back to it.
fn base_of(path: &str) -> String {
    match path.matches('/').count() {
        0 => "./".to_owned(),
        depth => "../".repeat(depth),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_path_leads_back_to_the_root_of_the_dashboard() {
        for (path, base) in [("", "./"), ("jobs", "./"), ("jobs/1", "../"), ("a/b/c", "../../")] {
            assert_eq!(base_of(path), base, "{path}");
        }
    }

    /// Third-party files are those that their checksums name, unchanged.
    #[test]
    fn vendored_files_have_their_checksums() {
        let read = |path: &str| {
            let file = FILES.iter().find(|(name, _)| *name == path);
            file.unwrap_or_else(|| panic!("{path} is missing")).1
        };
        let list = str::from_utf8(read("vendor/CHECKSUMS")).unwrap();
        let mut named = BTreeSet::new();
        for line in list.lines() {
            let (sum, file) = line.split_once("  ").expect("a checksum and a file");
            let bytes = read(&format!("vendor/{file}"));
            let found: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, sum, "{file} has changed");
            named.insert(format!("vendor/{file}"));
        }
        let is_code = |path: &&str| path.starts_with("vendor/") && kind_of(path).is_some();
        let present: BTreeSet<String> =
            FILES.iter().map(|(path, _)| *path).filter(is_code).map(str::to_owned).collect();
        assert_eq!(named, present);
    }

    /// Debug builds send the same text, so the tests in a browser run it.
    #[test]
    fn scripts_lose_comments_and_indentation_but_no_code_and_no_text() {
        for (path, file) in FILES.iter().filter(|(path, _)| path.ends_with(".js")) {
            let (before, after) = (str::from_utf8(file).unwrap(), &EMBEDDED[path].plain);
            let after = str::from_utf8(after).unwrap();
            if path.starts_with("vendor/") {
                assert_eq!(before, after, "{path}");
            }
            assert_eq!(before.lines().count(), after.lines().count(), "{path}");
            for (number, (before, after)) in before.lines().zip(after.lines()).enumerate() {
                let is_comment = ["//", "/*", "*"].iter().any(|mark| before.trim_start().starts_with(mark));
                let is_same = before == after || before.trim_start() == after;
                assert!(is_same || is_comment && after.trim().is_empty(), "{path}:{}: {after}", number + 1);
            }
        }
    }

    /// The pages stay fast over slow connections.
    #[test]
    fn all_files_together_are_small() {
        let bytes: usize = EMBEDDED.values().map(|asset| asset.gzip.len()).sum();
        assert!(bytes < 150_000, "{bytes} bytes compressed");
    }

    #[test]
    fn pages_contain_no_inline_code_and_no_address_of_another_host() {
        let html = String::from_utf8(asset(INDEX).expect("a page").plain.to_vec()).unwrap();
        assert!(!html.contains("style=") && !html.contains(" on") && !html.contains("<style"), "{html}");
        for (path, asset) in EMBEDDED.iter().filter(|(path, _)| !path.starts_with("vendor/")) {
            let text = String::from_utf8_lossy(&asset.plain);
            for rest in text.split("://").skip(1) {
                let is_ours = ["www.w3.org/2000/svg", "127.0.0.1", "example."]
                    .iter()
                    .any(|host| rest.starts_with(host));
                let named: String = rest.chars().take(40).collect();
                assert!(is_ours || !rest.starts_with(char::is_alphanumeric), "{path} names a host: {named}");
            }
        }
    }
}
