//! Access that changes while a stream or a list is open: no row follows that the caller no longer sees.

use crate::browser::Browser;
use crate::principals::Principal;
use crate::server::{PATIENCE, Server, eventually};
use reqwest::Method;
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

const LOGS: &str = "logs?follow=true";

/// A token of ann that sees the jobs of all owners, until its role changes.
async fn operator(server: &Server) -> Principal<'_> {
    Principal::create(
        server,
        json!({"name": "ann", "role": "operator", "owner_id": "ann", "all_owners": true}),
    )
    .await
}

async fn demote(server: &Server, token: &Principal<'_>) {
    let path = format!("/api/v1/tokens/{}", token.id);
    let (status, body) = server.patch(&path, &json!({"role": "submitter", "all_owners": false})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["all_owners"], false, "{body}");
}

/// A stream of server-sent events, and what it has sent.
pub struct Followed {
    response: Response,
    pub text: String,
}

impl Followed {
    pub async fn open(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        Followed { response, text: String::new() }
    }

    async fn read(&mut self) -> bool {
        let chunk = timeout(PATIENCE, self.response.chunk()).await.expect("the stream goes on or ends");
        let Some(chunk) = chunk.expect("a stream") else { return false };
        self.text += std::str::from_utf8(&chunk).expect("text");
        true
    }

    pub async fn until(&mut self, text: &str) {
        while !self.text.contains(text) {
            assert!(self.read().await, "the stream ended without {text}: {}", self.text);
        }
    }

    /// Everything that it has sent when it ends by itself.
    async fn ended(mut self) -> String {
        while self.read().await {}
        assert!(self.text.contains("event: stop") && self.text.contains("no longer valid"), "{}", self.text);
        self.text
    }
}

/// A job of bob that says one word, and another one when the test lets it.
async fn talking_job(server: &Server, folder: &std::path::Path) -> String {
    let script = format!(
        "echo before; until [ -e {}/go ]; do sleep 0.05; done; echo after; sleep 60",
        folder.display()
    );
    let bob = Principal::submitter(server, "bob").await;
    bob.submit(json!({"name": "talks", "job_type": "shell", "payload": {"script": script}})).await
}

async fn let_it_talk(server: &Server, folder: &std::path::Path, job: &str) {
    std::fs::write(folder.join("go"), "").expect("a file");
    let is_said =
        async || server.get(&format!("/api/v1/jobs/{job}/logs")).await.1.to_string().contains("after");
    eventually("the job has said the second word", is_said).await;
}

#[tokio::test]
async fn events_end_before_the_first_one_that_a_new_role_hides() {
    let server = Server::start();
    let ann = operator(&server).await;
    let bob = Principal::submitter(&server, "bob").await;
    let noop = |name: &str| json!({"name": name, "job_type": "noop"});
    let mut events = Followed::open(ann.request(Method::GET, "/api/v1/events")).await;
    events.until(&bob.submit(noop("before")).await).await;
    demote(&server, &ann).await;
    let hidden = bob.submit(noop("after")).await;
    let text = events.ended().await;
    assert!(!text.contains(&hidden), "{text}");
}

#[tokio::test]
async fn followed_logs_end_before_the_first_line_that_a_new_role_hides() {
    let server = Server::start_with(&["--allow", "shell"]);
    let folder = tempfile::tempdir().unwrap();
    let job = talking_job(&server, folder.path()).await;
    let ann = operator(&server).await;
    let mut lines = Followed::open(ann.request(Method::GET, &format!("/api/v1/jobs/{job}/{LOGS}"))).await;
    lines.until("before").await;
    demote(&server, &ann).await;
    let_it_talk(&server, folder.path(), &job).await;
    let text = lines.ended().await;
    assert!(!text.contains("after"), "{text}");
}

#[tokio::test]
async fn the_next_page_shows_what_a_new_role_may_see() {
    let server = Server::start();
    let (ann, bob) = (operator(&server).await, Principal::submitter(&server, "bob").await);
    for number in 0..6 {
        let queued = json!({"name": format!("job {number}"), "queue": "idle", "job_type": "none"});
        match number % 2 {
            0 => ann.submit(queued).await,
            _ => bob.submit(queued).await,
        };
    }
    let owners = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap_or_else(|| panic!("{page}")).iter();
        items.map(|item| item["owner_id"].as_str().expect("an owner").to_owned()).collect()
    };
    let (_, first) = ann.get("/api/v1/jobs?limit=2").await;
    assert!(owners(&first).contains(&"bob".to_owned()), "{first}");
    demote(&server, &ann).await;
    let cursor = first["next_cursor"].as_str().expect("a second page");
    let (status, second) = ann.get(&format!("/api/v1/jobs?limit=2&cursor={cursor}")).await;
    match status {
        StatusCode::OK => assert!(owners(&second).iter().all(|owner| owner == "ann"), "{second}"),
        // Cursors of limited callers are sealed, so it may also be refused.
        _ => assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{second}"),
    }
    let (_, first) = ann.get("/api/v1/jobs").await;
    assert_eq!(owners(&first), ["ann"; 3]);
}

#[tokio::test]
async fn streams_end_with_their_token_and_with_the_session_of_a_browser() {
    let server = Server::start_with(&["--allow", "shell"]);
    let folder = tempfile::tempdir().unwrap();
    let job = talking_job(&server, folder.path()).await;
    let logs = format!("/api/v1/jobs/{job}/{LOGS}");
    let ann = operator(&server).await;
    let mut browser = Browser::new();
    let at = |path: &str| format!("http://{}{path}", server.address);
    let page = browser.submit(&at("/login"), &format!("token={}", ann.secret)).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let mut streams = vec![];
    for path in ["/api/v1/events", &logs] {
        streams.push(Followed::open(ann.request(Method::GET, path)).await);
        streams.push(Followed::open(browser.request(Method::GET, &at(path))).await);
    }
    for stream in &mut streams {
        stream.until(&job).await;
    }
    ann.revoke().await;
    let_it_talk(&server, folder.path(), &job).await;
    for stream in streams {
        let text = stream.ended().await;
        assert!(!text.contains("after"), "{text}");
    }
}

#[tokio::test]
async fn a_stream_without_events_ends_as_well() {
    let server = Server::start();
    let user = json!({"email": "ann@example.org", "role": "operator"}).to_string();
    let (_, user) = server.post("/api/v1/users", &user).await;
    let user = user["user_id"].as_str().unwrap();
    let token = Principal::create(&server, json!({"name": "t", "user_id": user})).await;
    let events = Followed::open(token.request(Method::GET, "/api/v1/events")).await;
    let (status, body) = server.patch(&format!("/api/v1/users/{user}"), &json!({"role": "submitter"})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    events.ended().await;
}
