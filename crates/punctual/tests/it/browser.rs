//! A browser, as far as a server sees one: it keeps cookies, and follows redirects one at a time.

use punctual_client::ClientTls;
use reqwest::header::{CONTENT_TYPE, COOKIE, HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use std::collections::BTreeMap;

pub struct Browser {
    http: Client,
    /// Browsers send the cookies of a host to all of its ports.
    pub cookies: BTreeMap<String, String>,
    /// The addresses of all requests so far.
    pub visited: Vec<Url>,
}

pub struct Page {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub url: Url,
    pub text: String,
}

impl Page {
    /// Where it redirects to.
    pub fn location(&self) -> Option<Url> {
        let location = self.headers.get(LOCATION)?.to_str().ok()?;
        self.url.join(location).ok()
    }
}

impl Browser {
    pub fn new() -> Self {
        Browser::with(&ClientTls::default())
    }

    pub fn with(tls: &ClientTls) -> Self {
        let http = tls.http().redirect(Policy::none()).build().expect("a client");
        Browser { http, cookies: BTreeMap::new(), visited: vec![] }
    }

    /// A request with the cookies, and nothing else that a browser adds.
    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = self.http.request(method, url);
        if cookies.is_empty() { request } else { request.header(COOKIE, cookies.join("; ")) }
    }

    pub async fn open(&mut self, url: &str) -> Page {
        self.send(self.request(Method::GET, url)).await
    }

    /// Sends a form of a page.
    pub async fn submit(&mut self, url: &str, form: &str) -> Page {
        let url = Url::parse(url).expect("an address");
        let request = self.request(Method::POST, url.as_str());
        let request = request.header("origin", url.origin().ascii_serialization());
        let request = request.header("sec-fetch-site", "same-origin");
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(form.to_owned())).await
    }

    pub async fn send(&mut self, request: RequestBuilder) -> Page {
        let response = request.send().await.expect("an answer");
        for cookie in response.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("text");
            let (name, value) =
                cookie.split(';').next().unwrap_or_default().split_once('=').expect("a cookie");
            match value.is_empty() {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        self.visited.push(response.url().clone());
        let (status, headers, url) = (response.status(), response.headers().clone(), response.url().clone());
        Page { status, headers, url, text: response.text().await.expect("a body") }
    }

    /// Follows redirects until a page that has none, or whose address `is_end` accepts before it is opened.
    pub async fn follow(&mut self, mut page: Page, is_end: impl Fn(&Url) -> bool) -> Page {
        while let Some(next) = page.location() {
            if is_end(&next) {
                break;
            }
            page = self.open(next.as_str()).await;
        }
        page
    }
}
