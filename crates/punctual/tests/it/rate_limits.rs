//! The pace of requests is limited, by user or token and by address, and clients wait when the server asks.

use crate::server::{Server, eventually, http_client};
use punctual_client::worker::{Context, HandlerError, Worker};
use punctual_client::{BatchItem, Client, SubmitJob};
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

/// One request a second: what the server refuses during a test.
const TINY: [&str; 4] = ["--rate-limit", "1", "--rate-burst", "2"];

fn header(response: &Response, name: &str) -> Option<u64> {
    response.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// Answers to this many requests at once.
async fn at_once(server: &Server, count: usize, token: &str) -> Vec<Response> {
    let http = http_client();
    let mut requests = JoinSet::new();
    for _ in 0..count {
        let request = http.get(format!("http://{}/api/v1/jobs", server.address)).bearer_auth(token);
        requests.spawn(async move { request.send().await.expect("an answer") });
    }
    requests.join_all().await
}

async fn metric(server: &Server, series: &str) -> f64 {
    let text = server.client().metrics().await.expect("metrics are not limited");
    let line = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{text}"));
    line.trim().parse().expect("a number")
}

#[tokio::test]
async fn a_token_beyond_its_limit_gets_429_and_is_told_when_to_retry() {
    let server = Server::start_with(&TINY);
    let answers = at_once(&server, 40, &server.token).await;
    let (refused, accepted): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.is_empty() && !accepted.is_empty());
    for answer in &accepted {
        assert_eq!((answer.status(), header(answer, "ratelimit-limit")), (StatusCode::OK, Some(2)));
        assert!(header(answer, "ratelimit-remaining").unwrap() <= 1);
        assert!(header(answer, "ratelimit-reset").unwrap() <= 2);
    }
    let count = refused.len();
    for answer in refused {
        assert_eq!(header(&answer, "retry-after"), Some(1));
        assert_eq!(
            (header(&answer, "ratelimit-limit"), header(&answer, "ratelimit-remaining")),
            (Some(2), Some(0))
        );
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["title"], "the rate limit is reached");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.request(Method::GET, path).send().await.unwrap().status(), StatusCode::OK);
    }
    let limited = metric(&server, "punctual_http_requests_limited_total{limit=\"rate_limit\"}").await;
    assert_eq!(limited, count as f64);
}

#[tokio::test]
async fn the_command_line_waits_says_so_once_and_succeeds() {
    let server = Server::start_with(&["--rate-limit", "1", "--rate-burst", "1"]);
    eventually("a command had to wait", async || {
        at_once(&server, 3, &server.token).await;
        let output = server.cli(&["job", "list"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{told}");
        let said = "note: the rate limit is reached; the server asks to wait 1s, retrying for up to 30s";
        assert!(told.lines().filter(|line| *line == said).count() <= 1, "{told}");
        told.contains(said)
    })
    .await;
    eventually("a command that must not wait failed", async || {
        at_once(&server, 3, &server.token).await;
        server.cli(&["job", "list", "--retry-time", "0s"]).status.code() == Some(6)
    })
    .await;
}

#[tokio::test]
async fn workers_are_not_limited() {
    let server = Server::start_with(&["--rate-limit", "1", "--rate-burst", "1"]);
    let worker = Worker::builder(server.client())
        .name("remote")
        .handler("greet", |_: Context, _: Option<Value>| async { Ok::<_, HandlerError>(()) })
        .build();
    let worker = tokio::spawn(async move { worker.run().await });
    let jobs: Vec<SubmitJob> =
        (0..50).map(|n| SubmitJob::named(format!("hello-{n}")).with_type("greet")).collect();
    let client = Client::new(&server.address, server.token.clone()).unwrap();
    client.submit_batch(&jobs).await.expect("the client waits for its turn");
    // Meanwhile requests with the same token are refused.
    eventually("all jobs have run", async || {
        at_once(&server, 5, &server.token).await;
        metric(&server, "punctual_executions_finished_total{status=\"succeeded\"}").await >= 50.0
    })
    .await;
    let limited = metric(&server, "punctual_http_requests_limited_total{limit=\"rate_limit\"}").await;
    assert!(limited > 0.0);
    worker.abort();
}

#[tokio::test]
async fn tokens_cannot_be_guessed_at_full_speed() {
    let server = Server::start_with(&["--auth-failure-limit", "1", "--auth-failure-burst", "3"]);
    assert_eq!(server.get("/api/v1/jobs").await.0, StatusCode::OK);
    let wrong = at_once(&server, 30, "pt_admin_00000000000000000000000000000000").await;
    let (refused, unknown): (Vec<_>, Vec<_>) =
        wrong.into_iter().partition(|answer| answer.status() == StatusCode::TOO_MANY_REQUESTS);
    assert!(!refused.is_empty());
    assert!(unknown.iter().all(|answer| answer.status() == StatusCode::UNAUTHORIZED));
    assert!(refused.iter().all(|answer| header(answer, "retry-after") == Some(1)));
    // A token that was valid before still is, and so are health checks.
    assert_eq!(server.get("/api/v1/jobs").await.0, StatusCode::OK);
    assert_eq!(server.anonymous(Method::GET, "/livez").send().await.unwrap().status(), StatusCode::OK);
    let limited = metric(&server, "punctual_http_requests_limited_total{limit=\"auth_failure_limit\"}").await;
    assert_eq!(limited, refused.len() as f64);
}

#[tokio::test]
async fn an_owner_beyond_its_quota_is_refused_job_by_job() {
    let server = Server::start_with(&["--submit-quota", "3/1d"]);
    let client = server.client();
    let jobs: Vec<SubmitJob> =
        (0..5).map(|n| SubmitJob::named(format!("job-{n}")).with_type("noop")).collect();
    let items = client.submit_batch(&jobs).await.unwrap().items;
    let accepted: Vec<bool> = items.iter().map(|item| matches!(item, BatchItem::Submitted(_))).collect();
    assert_eq!(accepted, [true, true, true, false, false]);
    let BatchItem::Refused { error } = &items[3] else { panic!("{items:?}") };
    assert_eq!((error.status, error.title.as_str()), (429, "the submit quota is used up"));
    assert!(error.retry_after_secs.unwrap() > 3_600, "{error:?}");
    let refused = client.submit(&jobs[0]).await.unwrap_err();
    assert_eq!(refused.problem().unwrap().status, 429);
    assert!(refused.retry_after().unwrap() > Duration::from_secs(3_600));
    // Invalid jobs do not count, and other owners have their own quota.
    let (status, _) = server.post("/api/v1/jobs", &json!({"name": "", "owner_id": "ann"}).to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    for number in 0..3 {
        server.submit(json!({"name": format!("ann-{number}"), "job_type": "noop", "owner_id": "ann"})).await;
    }
}

#[tokio::test]
async fn limits_can_be_switched_off_and_are_generous_by_default() {
    let server = Server::start();
    let answer = server.request(Method::GET, "/api/v1/jobs").send().await.unwrap();
    assert_eq!(header(&answer, "ratelimit-limit"), Some(100_000));
    let off = ["--rate-limit", "none", "--auth-failure-limit", "none"];
    let server = Server::start_with(&off);
    let answer = server.request(Method::GET, "/api/v1/jobs").send().await.unwrap();
    assert_eq!((answer.status(), header(&answer, "ratelimit-limit")), (StatusCode::OK, None));
}
