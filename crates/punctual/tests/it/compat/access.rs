//! Who may use these routes: tokens, permissions and scopes are those of `/api/v1`.

use super::{ask, server};
use crate::principals::Principal;
use crate::server::{Server, answer, eventually};
use punctual_core::access::{Permission, Role};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../../../docs/reference/compatibility.md");

/// An id that no job has.
const NO_JOB: &str = "01900000-0000-7000-8000-000000000000";

pub struct Request {
    pub method: Method,
    pub path: String,
    permission: Permission,
}

impl Request {
    /// A body that is right in form.
    pub fn body(&self) -> Option<Value> {
        match (self.method.as_str(), self.path.as_str()) {
            ("POST", "/api/job") => Some(json!({"name": "noop"})),
            ("POST", "/api/jobs") => Some(json!({"jobName": "noop"})),
            ("POST", "/jobs") => Some(json!({"type": "noop"})),
            ("POST", path) if path.starts_with("/users/") => Some(json!({"is_reccuring": false})),
            ("PUT", _) => Some(json!({"priority": "high"})),
            ("PATCH", _) => Some(json!({"next_execution_time": "2030-01-01T00:00:00Z"})),
            _ => None,
        }
    }

    async fn send(&self, server: &Server, token: Option<&str>) -> (StatusCode, Value) {
        let mut request = server.anonymous(self.method.clone(), &self.path);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = self.body() {
            request = request.json(&body);
        }
        answer(request).await
    }
}

/// Every request that the documentation lists, which a unit test compares with the router, about this job and
/// user.
pub fn requests(job: &str, user: &str) -> Vec<Request> {
    let section =
        PAGE.split("\n## ").find(|section| section.starts_with("Routes")).expect("a list of routes");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let requests: Vec<Request> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('`').collect();
            let (method, path) = cells[1].split_once(' ').expect("a method and a path");
            let path = path.replace("{id}", job).replace("{job_id}", job).replace("{user_id}", user);
            let permission = cells[3].parse().expect("a permission");
            Request { method: method.parse().expect("a method"), path, permission }
        })
        .collect();
    assert!(requests.len() >= 20, "only {} requests", requests.len());
    requests
}

#[tokio::test]
async fn every_request_is_refused_exactly_to_roles_without_its_permission() {
    let server = server();
    let mut callers = Vec::new();
    for role in Role::ALL {
        let fields = json!({"name": role.word(), "role": role.word(), "all_owners": true});
        callers.push((role, Principal::create(&server, fields).await));
    }
    for request in requests(NO_JOB, "ann") {
        let Request { method, path, permission } = &request;
        assert_eq!(request.send(&server, None).await.0, StatusCode::UNAUTHORIZED, "{method} {path}");
        for (role, principal) in &callers {
            let (status, body) = request.send(&server, Some(&principal.secret)).await;
            let lacks = !role.permissions().has(*permission);
            assert_eq!(status == StatusCode::FORBIDDEN, lacks, "{method} {path} for {role}: {body}");
            assert!(!status.is_server_error(), "{method} {path} for {role}: {body}");
            assert!(
                status != StatusCode::METHOD_NOT_ALLOWED && status.as_u16() != 422,
                "{method} {path}: {body}"
            );
        }
    }
}

/// The answer with the id of the job replaced, to compare answers about different jobs.
fn without_id((status, body): (StatusCode, Value), job: &str) -> (StatusCode, String) {
    (status, body.to_string().replace(job, "ID"))
}

#[tokio::test]
async fn another_owners_job_answers_like_an_unknown_one_and_is_untouched() {
    let server = server();
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let job = ann.submit(json!({"name": "payroll", "interval": "1d"})).await;
    let before = server.get(&format!("/api/v1/jobs/{job}")).await;
    let about_a_job = |job: &str, user: &str| {
        let path = job.to_owned();
        requests(job, user).into_iter().filter(move |request| request.path.contains(&path))
    };
    for (foreign, unknown) in about_a_job(&job, "bob").zip(about_a_job(NO_JOB, "bob")) {
        let secret = Some(bob.secret.as_str());
        let seen = without_id(foreign.send(&server, secret).await, &job);
        assert_eq!(
            seen,
            without_id(unknown.send(&server, secret).await, NO_JOB),
            "{} {}",
            foreign.method,
            foreign.path
        );
        assert_eq!(seen.0, StatusCode::NOT_FOUND, "{} {}", foreign.method, foreign.path);
    }
    // An operator reaches the jobs of all owners, but not below the path of another one.
    let path = format!("/users/bob/jobs/{job}");
    ask(&server, Method::DELETE, &path, None, 404).await;
    ask(&server, Method::GET, &format!("{path}/history"), None, 404).await;
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}")).await, before);
    assert_eq!(bob.get("/api/jobs").await.1, json!([]));
    assert_eq!(ann.get("/api/jobs").await.1[0]["jobName"], "payroll");
}

#[tokio::test]
async fn the_path_of_another_user_is_for_callers_that_reach_all_owners() {
    let server = server();
    let ann = Principal::submitter(&server, "ann").await;
    let bob = Principal::submitter(&server, "bob").await;
    let job = ann.submit(json!({"name": "payroll", "interval": "1d"})).await;
    let of_user = |job: &str, user: &str| {
        let requests = requests(job, user);
        requests.into_iter().filter(|request| request.path.starts_with("/users/")).collect::<Vec<_>>()
    };
    // The answer is the same whether there is such a user or job or not.
    for (known, unknown) in of_user(&job, "ann").iter().zip(&of_user(NO_JOB, "eve")) {
        let (status, body) = known.send(&server, Some(&bob.secret)).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{} {}: {body}", known.method, known.path);
        let (_, other) = unknown.send(&server, Some(&bob.secret)).await;
        assert_eq!(body.to_string().replace("ann", "eve"), other.to_string());
    }
    let operator = Principal::create(&server, json!({"name": "ops", "role": "operator"})).await;
    let (status, accepted) = operator.post("/users/eve/jobs", &json!({"executionInterval": "PT3H"})).await;
    assert_eq!(status, StatusCode::CREATED, "{accepted}");
    let (_, stored) = server.get(&format!("/api/v1/jobs/{}", accepted["job_id"].as_str().unwrap())).await;
    assert_eq!(stored["owner_id"], "eve");
    let viewer = Principal::create(&server, json!({"name": "board", "role": "viewer"})).await;
    assert_eq!(viewer.get("/users/eve/jobs").await.1["jobs"].as_array().unwrap().len(), 1);
    let (status, _) = viewer.post("/users/eve/jobs", &json!({"executionInterval": "PT3H"})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn changes_have_audit_entries() {
    let server = server();
    let ann = Principal::submitter(&server, "ann").await;
    let (_, accepted) = ann.post("/api/jobs", &json!({"jobName": "noop", "frequency": "daily"})).await;
    let job = accepted["jobId"].as_str().expect("an id");
    ann.send(Method::PUT, &format!("/api/jobs/{job}"), &json!({"priority": "high"})).await;
    assert_eq!(answer(ann.request(Method::DELETE, &format!("/api/jobs/{job}"))).await.0, StatusCode::OK);
    let (status, refused) = ann.get("/users/bob/jobs").await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{refused}");
    let mut expected =
        vec![("job.cancel", true), ("job.read", false), ("job.submit", true), ("job.update", true)];
    expected.sort_unstable();
    eventually("the refusal is recorded", async || {
        let (_, audit) = server.get(&format!("/api/v1/audit?token_id={}", ann.id)).await;
        let items = audit["items"].as_array().expect("entries").iter();
        let mut seen: Vec<(&str, bool)> =
            items.map(|entry| (entry["action"].as_str().unwrap(), entry["outcome"] == "ok")).collect();
        seen.sort_unstable();
        seen == expected
    })
    .await;
}

#[tokio::test]
async fn requests_count_against_the_rate_limit() {
    let server = Server::start_with(&["--rate-limit", "1", "--rate-burst", "2"]);
    let request = || answer(server.request(Method::GET, "/api/jobs"));
    let answers = futures_util::future::join_all((0..40).map(|_| request())).await;
    let limited = answers.iter().filter(|(status, _)| *status == StatusCode::TOO_MANY_REQUESTS).count();
    assert!((1..40).contains(&limited), "{limited} of 40");
}
