//! Jobs that owner and name identify.

use crate::driven::{HOUR, advance, everything, standing_at, start};
use crate::server::{Server, answer};
use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn put(server: &Server, name: &str, job: &Value) -> (StatusCode, Value) {
    answer(server.request(Method::PUT, &format!("/api/v1/jobs/by-name/{name}")).json(job)).await
}

async fn plan(server: &Server, name: &str, job: &Value) -> (StatusCode, Value) {
    server.post(&format!("/api/v1/jobs/by-name/{name}/plan"), &job.to_string()).await
}

async fn count(server: &Server, query: &str) -> usize {
    let (_, jobs) = server.get(&format!("/api/v1/jobs?{query}")).await;
    jobs["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_put_creates_the_job_once_and_then_replaces_it() {
    let server = standing_at(start());
    let job = json!({"job_type": "noop", "interval": "1h", "queue": "reports"});
    let (status, first) = put(&server, "report", &job).await;
    assert_eq!((status, &first["name"]), (StatusCode::CREATED, &json!("report")), "{first}");
    advance(&server, start().plus(HOUR / 6)).await;
    let before = everything(&server).await;
    let (status, again) = put(&server, "report", &job).await;
    assert_eq!((status, &again), (StatusCode::OK, &first), "nothing has changed");
    assert_eq!(everything(&server).await, before);
    let (status, moved) = put(&server, "report", &json!({"job_type": "noop", "interval": "1h"})).await;
    assert_eq!((status, &moved["job_id"]), (StatusCode::OK, &first["job_id"]));
    assert_eq!((&moved["queue"], &moved["version"]), (&json!("default"), &json!(2)));
    assert_eq!(moved["next_run_time"], first["next_run_time"], "the interval keeps its rhythm");
    assert_eq!(count(&server, "name=report").await, 1);
}

#[tokio::test]
async fn a_job_that_was_put_is_found_by_its_name_alone() {
    let server = Server::start();
    let later = json!({"job_type": "noop", "delay": "1h"});
    let (_, put_by_name) = put(&server, "report", &later).await;
    let find = async |path: &str| server.get(&format!("/api/v1/jobs/by-name/{path}")).await;
    let (status, found) = find("report").await;
    assert_eq!((status, &found["job_id"]), (StatusCode::OK, &put_by_name["job_id"]), "{found}");
    server.submit(json!({"name": "other", "job_type": "noop", "delay": "1h"})).await;
    let (_, of_ann) =
        put(&server, "other", &json!({"job_type": "noop", "delay": "1h", "owner_id": "ann"})).await;
    assert_eq!(find("other").await.0, StatusCode::NOT_FOUND, "it was only submitted");
    assert_eq!(find("other?owner=ann").await.1["job_id"], of_ann["job_id"]);
    // Others with the same name do not make it ambiguous.
    for _ in 0..2 {
        server.submit(json!({"name": "report", "job_type": "noop", "delay": "1h"})).await;
    }
    server.said(&["job", "pause", "report"]);
    assert_eq!(find("report").await.1["status"], "PAUSED");
}

#[tokio::test]
async fn old_schedules_are_found_by_name_among_many_unfinished_jobs() {
    let server = Server::start();
    let old = server.submit(json!({"name": "nightly", "job_type": "noop", "interval": "1d"})).await;
    for batch in 0..11 {
        let jobs: Vec<Value> = (0..1_000)
            .map(|number| json!({"name": format!("{batch} {number}"), "job_type": "none"}))
            .collect();
        let (status, made) = server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await;
        assert!(status.is_success(), "{made}");
    }
    let (status, taken_over) = put(&server, "nightly", &json!({"job_type": "noop", "interval": "2d"})).await;
    assert_eq!((status, &taken_over["job_id"]), (StatusCode::OK, &json!(old)), "{taken_over}");
    // A part of an id cannot be looked for among so many: one that was found may not be the only one.
    let part = &old.to_string()[24..];
    let page: Value = server.get(&format!("/api/v1/jobs?q={part}")).await.1;
    assert!(page["next_cursor"].is_string() && page["examined_back_to"].is_string(), "{page}");
}

#[tokio::test]
async fn a_finished_job_is_not_run_again() {
    let server = standing_at(start());
    for (hours, name, job) in
        [(1, "now", json!({"job_type": "noop"})), (2, "soon", json!({"job_type": "noop", "delay": "10m"}))]
    {
        let (_, first) = put(&server, name, &job).await;
        advance(&server, start().plus(HOUR * hours)).await;
        let id = first["job_id"].as_str().unwrap().parse().unwrap();
        server.client().wait(id).await.unwrap();
        let (status, again) = put(&server, name, &job).await;
        assert_eq!((status, &again["status"]), (StatusCode::OK, &json!("COMPLETED")), "{again}");
        assert_eq!((&again["job_id"], &again["version"]), (&first["job_id"], &json!(1)));
    }
    let (_, later) = put(&server, "later", &json!({"job_type": "noop", "delay": "10m"})).await;
    let (_, moved) = put(&server, "later", &json!({"job_type": "noop", "delay": "20m"})).await;
    assert!(moved["execute_at"].as_str().unwrap() > later["execute_at"].as_str().unwrap(), "{moved}");
    assert_eq!(moved["version"], 2);
}

#[tokio::test]
async fn racing_puts_make_one_job() {
    let server = standing_at(start());
    let job = json!({"job_type": "noop", "cron_expression": "@daily"});
    let puts = join_all((0..20).map(|_| put(&server, "nightly", &job))).await;
    let created = puts.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
    let unchanged = puts.iter().filter(|(status, _)| *status == StatusCode::OK).count();
    assert_eq!((created, unchanged), (1, 19), "{puts:?}");
    assert_eq!(count(&server, "name=nightly").await, 1);
}

#[tokio::test]
async fn an_unfinished_job_is_taken_over_and_several_are_a_conflict() {
    let server = standing_at(start());
    let daily = json!({"name": "backup", "job_type": "noop", "cron_expression": "@daily"});
    let old = server.submit(daily.clone()).await;
    let (status, planned) = plan(&server, "backup", &daily).await;
    assert_eq!((status, &planned["action"]), (StatusCode::OK, &json!("update")), "{planned}");
    assert_eq!(planned["job_id"], json!(old));
    let (status, taken) = put(&server, "backup", &daily).await;
    assert_eq!((status, &taken["job_id"]), (StatusCode::OK, &json!(old)));
    let other = server.submit(daily.clone()).await;
    let (status, same) = put(&server, "backup", &daily).await;
    assert_eq!((status, &same["job_id"]), (StatusCode::OK, &json!(old)), "the name identifies the first one");
    let (status, problem) = server.patch(&format!("/api/v1/jobs/{old}"), &json!({"name": "x"})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(problem["errors"][0]["field"], "name");

    let sync = json!({"name": "sync", "job_type": "noop", "interval": "1h"});
    let both = [server.submit(sync.clone()).await, server.submit(sync.clone()).await];
    let before = everything(&server).await;
    for (status, problem) in [put(&server, "sync", &sync).await, plan(&server, "sync", &sync).await] {
        assert_eq!(status, StatusCode::CONFLICT, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(both.iter().all(|id| detail.contains(&id.to_string())), "{detail}");
        assert!(!detail.contains(&other.to_string()), "{detail}");
    }
    assert_eq!(everything(&server).await, before);
}

#[tokio::test]
async fn a_plan_says_what_a_put_would_do_and_changes_nothing() {
    let server = standing_at(start());
    let job = json!({"job_type": "noop", "interval": "P1M", "timezone": "Europe/Berlin"});
    let (status, planned) = plan(&server, "billing", &job).await;
    assert_eq!((status, &planned["action"]), (StatusCode::OK, &json!("create")), "{planned}");
    assert_eq!(count(&server, "").await, 0);
    let (_, created) = put(&server, "billing", &job).await;
    advance(&server, start().plus(HOUR)).await;
    let (_, planned) = plan(&server, "billing", &job).await;
    assert_eq!(planned["action"], "none");
    assert_eq!(planned["before"], planned["after"]);
    let mut anchored = job.clone();
    anchored["start_at"] = planned["before"]["start_at"].clone();
    assert_eq!(anchored["start_at"], created["interval_anchor"]);
    assert_eq!(plan(&server, "billing", &anchored).await.1["action"], "none", "it counts from there anyway");
    let (_, planned) = plan(&server, "billing", &json!({"job_type": "noop", "interval": "P1M"})).await;
    assert_eq!(planned["action"], "update");
    assert_eq!(planned["before"]["timezone"], "Europe/Berlin");
    assert_eq!(planned["after"]["timezone"], "UTC");
    let (_, read) = put(&server, "billing", &job).await;
    assert_eq!(read["version"], 1);
    for bad in [
        json!({"job_type": "shell", "payload": {"scrip": "true"}}),
        json!({"job_type": "noop", "interval": "x"}),
        json!({"name": "other"}),
        json!({"nme": 1}),
    ] {
        for (status, problem) in [put(&server, "billing", &bad).await, plan(&server, "billing", &bad).await] {
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        }
    }
}

#[tokio::test]
async fn a_deleted_job_gives_its_name_free() {
    let server = standing_at(start());
    let job = json!({"job_type": "noop", "interval": "1h"});
    let (_, first) = put(&server, "report", &job).await;
    let path = format!("/api/v1/jobs/{}", first["job_id"].as_str().unwrap());
    let deleted = server.request(Method::DELETE, &path).send().await.unwrap();
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    let (status, second) = put(&server, "report", &job).await;
    assert_eq!(status, StatusCode::CREATED, "{second}");
    let path = format!("/api/v1/jobs/{}/cancel", second["job_id"].as_str().unwrap());
    assert_eq!(server.post(&path, "{}").await.0, StatusCode::OK);
    assert_eq!(put(&server, "report", &job).await.0, StatusCode::OK, "nothing is to be changed");
    let (status, problem) = put(&server, "report", &json!({"job_type": "noop"})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("delete it"), "{problem}");
    let (_, third) = put(&server, "third", &job).await;
    assert_eq!(third["version"], 1);
    let request = server.request(Method::PUT, "/api/v1/jobs/by-name/third").header("if-match", "\"7\"");
    let (status, problem) = answer(request.json(&json!({"job_type": "noop"}))).await;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{problem}");
    let request = server.request(Method::PUT, "/api/v1/jobs/by-name/unknown").header("if-match", "\"7\"");
    assert_eq!(answer(request.json(&job)).await.0, StatusCode::NOT_FOUND);
}
