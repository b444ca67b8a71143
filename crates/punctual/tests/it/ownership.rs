//! What callers see and change: their own jobs, and nothing of the others. Another owner's job answers exactly
//! like one that does not exist.

use crate::principals::Principal;
use crate::server::{PATIENCE, Server, eventually};
use punctual_client::{Client, EventFilter, StreamedEvent};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An id that no job has.
const NO_JOB: &str = "01900000-0000-7000-8000-000000000000";

/// The names in a list.
async fn names(principal: &Principal<'_>, path: &str) -> BTreeSet<String> {
    let (status, body) = principal.get(path).await;
    assert_eq!(status, StatusCode::OK, "{path}: {body}");
    let items = body["items"].as_array().expect("a list").iter();
    items
        .map(|item| item["name"].as_str().or(item["job_name"].as_str()).expect("a name").to_owned())
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A job of `owner` that has failed for good, and so has a dead letter, history and a log.
async fn fail(server: &Server, owner: &Principal<'_>, name: &str) -> String {
    let job = json!({"name": name, "job_type": "process", "payload": {"command": ["sh", "-c", "echo secret-of-a-job; exit 3"]},
        "max_retries": 0});
    let id = owner.submit(job).await;
    eventually("it has failed", async || {
        let (_, job) = server.get(&format!("/api/v1/jobs/{id}")).await;
        job["status"] == "FAILED"
    })
    .await;
    id
}

/// Every request about one job, execution or dead letter.
fn requests_about(job: &str) -> Vec<(Method, String, Value)> {
    let execution = format!("{job}.1.1");
    let mut requests = Vec::new();
    for rest in ["", "/explain", "/executions", "/logs", "/next"] {
        requests.push((Method::GET, format!("/api/v1/jobs/{job}{rest}"), Value::Null));
    }
    for verb in ["pause", "resume", "cancel", "retry", "trigger"] {
        requests.push((Method::POST, format!("/api/v1/jobs/{job}/{verb}"), json!({})));
    }
    requests.push((Method::PATCH, format!("/api/v1/jobs/{job}"), json!({"priority": 9})));
    requests.push((Method::PUT, format!("/api/v1/jobs/{job}"), json!({"name": "taken"})));
    requests.push((Method::DELETE, format!("/api/v1/jobs/{job}"), Value::Null));
    for rest in ["", "/logs", "/result"] {
        requests.push((Method::GET, format!("/api/v1/executions/{execution}{rest}"), Value::Null));
    }
    requests.push((Method::POST, format!("/api/v1/executions/{execution}/cancel"), json!({})));
    requests.push((Method::POST, "/api/v1/jobs".to_owned(), json!({"name": "child", "depends_on": [job]})));
    let chosen = json!({"ids": [format!("{job}.1")]});
    for verb in ["redrive", "discard"] {
        requests.push((Method::POST, format!("/api/v1/dead-letters/{verb}"), chosen.clone()));
    }
    requests
}

/// The answer with the id of the job replaced, to compare answers about different jobs.
fn without_id(answer: (StatusCode, Value), job: &str) -> (StatusCode, String) {
    (answer.0, answer.1.to_string().replace(job, "ID"))
}

#[tokio::test]
async fn another_owners_job_answers_like_an_unknown_one_and_is_untouched() {
    let server = Server::start_with(&["--allow", "process"]);
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let job = fail(&server, &ann, "payroll").await;
    let before = server.get(&format!("/api/v1/jobs/{job}")).await;
    for ((method, path, body), (_, unknown_path, unknown_body)) in
        requests_about(&job).into_iter().zip(requests_about(NO_JOB))
    {
        let send = async |path: &str, body: &Value| match body {
            Value::Null => crate::server::answer(bob.request(method.clone(), path)).await,
            body => bob.send(method.clone(), path, body).await,
        };
        let foreign = without_id(send(&path, &body).await, &job);
        let unknown = without_id(send(&unknown_path, &unknown_body).await, NO_JOB);
        assert_eq!(foreign, unknown, "{method} {path}");
    }
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}")).await, before);
    let (status, letters) = ann.get("/api/v1/dead-letters").await;
    assert_eq!((status, letters["items"].as_array().map(Vec::len)), (StatusCode::OK, Some(1)), "{letters}");
}

#[tokio::test]
async fn lists_search_and_dead_letters_hold_own_jobs_only() {
    let server = Server::start_with(&["--allow", "process"]);
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let viewer = Principal::create(&server, json!({"name": "board", "role": "viewer"})).await;
    fail(&server, &ann, "payroll-ann").await;
    fail(&server, &bob, "payroll-bob").await;
    for path in
        ["/api/v1/jobs", "/api/v1/jobs?q=payroll", "/api/v1/executions?status=FAILED", "/api/v1/dead-letters"]
    {
        assert_eq!(names(&ann, path).await, set(&["payroll-ann"]), "{path}");
        assert_eq!(names(&bob, path).await, set(&["payroll-bob"]), "{path}");
        assert_eq!(names(&viewer, path).await, set(&["payroll-ann", "payroll-bob"]), "{path}");
        let asked = format!("{path}{}owner=bob", if path.contains('?') { '&' } else { '?' });
        assert_eq!(names(&ann, &asked).await, set(&[]), "{asked}");
        assert_eq!(names(&viewer, &asked).await, set(&["payroll-bob"]), "{asked}");
    }
    // A bulk action by filter reaches own dead letters only.
    let (status, answer) = bob.post("/api/v1/dead-letters/discard", &json!({"filter": {}})).await;
    assert_eq!((status, &answer["discarded"]), (StatusCode::OK, &json!(1)), "{answer}");
    assert_eq!(names(&viewer, "/api/v1/dead-letters").await, set(&["payroll-ann"]));
    // What covers all owners is refused.
    for path in
        ["/api/v1/nodes", "/metrics", "/api/v1/tokens", "/api/v1/autoscaling", "/api/v1/autoscaling/default"]
    {
        assert_eq!(ann.get(path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn figures_of_a_caller_with_an_owner_cover_its_own_jobs_only() {
    let server = Server::start();
    let ann = Principal::submitter(&server, "ann").await;
    let bob = Principal::submitter(&server, "bob").await;
    for queue in ["shared", "private", "secret"] {
        server.said(&["queue", "pause", queue]);
    }
    let held = |queue: &str| json!({"name": "held", "job_type": "noop", "queue": queue});
    ann.submit(held("shared")).await;
    for queue in ["shared", "shared", "private"] {
        bob.submit(held(queue)).await;
    }

    let (status, stats) = ann.get("/api/v1/stats").await;
    assert_eq!(status, StatusCode::OK, "{stats}");
    assert_eq!((&stats["jobs"]["active"], &stats["live"]["queued"]), (&json!(1), &json!(1)), "{stats}");
    assert_eq!(stats["looked_at"], json!({"jobs": 1, "executions": 1, "complete": true}));
    assert_eq!(stats["counters"]["submitted"], 0);
    assert!(!stats.to_string().contains("private"), "{stats}");
    let (_, queues) = ann.get("/api/v1/queues").await;
    let items = queues["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{queues}");
    assert_eq!(
        (&items[0]["queue"], &items[0]["queued"], &items[0]["paused"]),
        (&json!("shared"), &json!(1), &json!(true))
    );
    let (_, queue) = ann.get("/api/v1/queues/private").await;
    assert_eq!(queue["queued"], 0, "{queue}");
    let (_, queue) = ann.get("/api/v1/queues/secret").await;
    assert_eq!(queue["paused"], false, "a queue without own jobs looks like an unused one: {queue}");
    assert_eq!(ann.post("/api/v1/queues/shared/pause", &json!({})).await.0, StatusCode::FORBIDDEN);
    let (_, workers) = ann.get("/api/v1/workers").await;
    let worker = &workers["items"][0];
    assert_eq!(
        (&worker["running"], &worker["free_slots"], &worker["condition"]),
        (&json!(0), &Value::Null, &Value::Null)
    );
    assert_eq!(ann.post("/api/v1/workers/embedded/pause", &json!({})).await.0, StatusCode::FORBIDDEN);

    let typed = json!({"name": "typed", "role": "viewer", "job_types": ["none-*"]});
    let typed = Principal::create(&server, typed).await;
    assert_eq!(typed.get("/api/v1/workers").await.1["items"], json!([]), "none could run its jobs");
    assert_eq!(typed.get("/api/v1/stats").await.1["live"]["queued"], 0);
    let (_, all) = server.get("/api/v1/stats").await;
    assert_eq!((&all["live"]["queued"], all.get("looked_at")), (&json!(4), None), "{all}");
}

#[tokio::test]
async fn a_submitter_submits_for_itself_and_into_its_queues() {
    let server = Server::start_with(&["--allow", "process"]);
    let fields = json!({"name": "ci", "role": "submitter", "owner_id": "ann", "queues": ["mail-*"], "job_types": ["noop"]});
    let ann = Principal::create(&server, fields).await;
    let job = |more: Value| {
        let mut job = json!({"name": "hello", "job_type": "noop", "queue": "mail-eu"});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let id = ann.submit(job(json!({}))).await;
    let (_, stored) = server.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!(stored["owner_id"], "ann");
    for (more, field) in [
        (json!({"owner_id": "bob"}), "owner_id"),
        (json!({"queue": "default"}), "queue"),
        (json!({"job_type": "process"}), "job_type"),
    ] {
        let (status, body) = ann.post("/api/v1/jobs", &job(more.clone())).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
        assert!(body["detail"].as_str().unwrap().contains(field), "{body}");
        let (status, body) =
            ann.post("/api/v1/jobs/batch", &json!({"jobs": [job(json!({})), job(more)]})).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(body["items"][1]["error"]["status"], 403, "{body}");
        assert!(body["items"][0]["job_id"].is_string(), "{body}");
    }
    // A job cannot be moved out of the scope.
    let (status, body) =
        ann.send(Method::PATCH, &format!("/api/v1/jobs/{id}"), &json!({"queue": "default"})).await;
    assert!([StatusCode::FORBIDDEN, StatusCode::CONFLICT].contains(&status), "{body}");
    // Jobs of the same owner in other queues are out of sight.
    let other = server.submit(json!({"name": "other", "owner_id": "ann"})).await;
    assert_eq!(names(&ann, "/api/v1/jobs").await, set(&["hello"]));
    assert_eq!(ann.get(&format!("/api/v1/jobs/{other}")).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn data_of_jobs_needs_a_permission_of_its_own() {
    let server = Server::start_with(&["--allow", "process"]);
    let ann = Principal::submitter(&server, "ann").await;
    let job = fail(&server, &ann, "payroll").await;
    let viewer = Principal::create(&server, json!({"name": "v", "role": "viewer"})).await;
    let auditor =
        Principal::create(&server, json!({"name": "a", "role": "viewer", "permissions": ["payload:read"]}))
            .await;
    for path in
        ["/api/v1/jobs".to_owned(), format!("/api/v1/jobs/{job}"), format!("/api/v1/jobs/{job}/executions")]
    {
        let (status, body) = viewer.get(&path).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert!(!body.to_string().contains("secret-of-a-job"), "{path}: {body}");
    }
    assert_eq!(viewer.get(&format!("/api/v1/jobs/{job}/logs")).await.0, StatusCode::FORBIDDEN);
    let shown = |secret: &str| server.said(&["job", "show", &job, "--token", secret]);
    let hidden = "hidden: needs payload:read";
    assert!(shown(&viewer.secret).contains(hidden) && !shown(&auditor.secret).contains(hidden));
    let (_, body) = auditor.get(&format!("/api/v1/jobs/{job}")).await;
    assert!(body["payload"].to_string().contains("secret-of-a-job"), "{body}");
    let (status, body) = auditor.get(&format!("/api/v1/jobs/{job}/logs")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(body.to_string().contains("secret-of-a-job"), "{body}");
    // A change by a caller that cannot read the payload does not lose it.
    let blind =
        Principal::create(&server, json!({"name": "b", "role": "viewer", "permissions": ["jobs:write"]}))
            .await;
    let (status, body) =
        blind.send(Method::PATCH, &format!("/api/v1/jobs/{job}"), &json!({"timeout_secs": 77})).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let (_, body) = auditor.get(&format!("/api/v1/jobs/{job}")).await;
    assert!(body["payload"].to_string().contains("secret-of-a-job"), "{body}");
}

#[tokio::test]
async fn events_are_about_own_jobs_and_end_with_the_token() {
    let server = Server::start_with(&["--allow", "process"]);
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let client = Client::new(&server.address, ann.secret.clone()).unwrap();
    let mut events = client.events(&EventFilter::default(), None).await.unwrap();
    let noop = |name: &str| json!({"name": name, "job_type": "noop"});
    let foreign = bob.submit(noop("foreign")).await;
    let own = ann.submit(noop("own")).await;
    let mut seen = BTreeSet::new();
    while !seen.contains(&own) {
        let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("an event in time");
        if let StreamedEvent::Execution(body) = event.expect("a stream").expect("an event") {
            seen.insert(body.job_id.to_string());
        }
    }
    assert!(!seen.contains(&foreign));
    ann.revoke().await;
    // The stream ends by itself; what is sent until then is still about own jobs.
    let ended = async {
        while let Ok(Some(event)) = events.next().await {
            if let StreamedEvent::Execution(body) = event {
                assert_eq!(body.job_id.to_string(), own);
            }
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the stream ends");
}

#[tokio::test]
async fn of_mixed_dead_letters_only_own_ones_change_and_foreign_ones_are_unknown() {
    let server = Server::start_with(&["--allow", "process"]);
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let foreign = fail(&server, &ann, "foreign").await;
    let before = server.get(&format!("/api/v1/jobs/{foreign}")).await;
    for (verb, count) in [("redrive", "redriven"), ("discard", "discarded")] {
        let own = fail(&server, &bob, verb).await;
        let unknown = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11.1";
        let ids = json!({"ids": [format!("{foreign}.1"), format!("{own}.1"), unknown]});
        let (status, body) = bob.post(&format!("/api/v1/dead-letters/{verb}"), &ids).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(body[count], 1, "{body}");
        let refused = |id: &str| json!({"occurrence_id": id, "reason": "there is no such dead letter"});
        assert_eq!(body["refused"], json!([refused(&format!("{foreign}.1")), refused(unknown)]), "{body}");
        assert_eq!(server.get(&format!("/api/v1/jobs/{foreign}")).await, before, "{verb}");
        let (_, letters) = ann.get("/api/v1/dead-letters").await;
        assert_eq!(letters["items"].as_array().map(Vec::len), Some(1), "{verb}: {letters}");
    }
}
