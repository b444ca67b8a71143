//! Lists of jobs: exclusion, time ranges, fields of payloads, orders, and formats of the command line.

use crate::server::{Server, answer};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn names(server: &Server, query: &str) -> Vec<String> {
    let (status, page) = server.get(&format!("/api/v1/jobs?{query}")).await;
    assert_eq!(status, StatusCode::OK, "{query}: {page}");
    let items = page["items"].as_array().expect("items").iter();
    items.map(|job| job["name"].as_str().expect("a name").to_owned()).collect()
}

async fn submit_some(server: &Server) {
    let later = |name: &str, at: &str, more: Value| {
        let mut job = json!({"name": name, "job_type": "noop", "execute_at": at});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    server
        .submit(later(
            "backup",
            "2099-01-03T00:00:00Z",
            json!({"tags": ["nightly"], "queue": "disk", "priority": 2}),
        ))
        .await;
    server
        .submit(later(
            "report",
            "2099-01-01T00:00:00Z",
            json!({"tags": ["nightly", "eu"], "payload": {"customer": {"id": 7}}}),
        ))
        .await;
    server.submit(later("mail", "2099-01-02T00:00:00Z", json!({"priority": 9, "owner_id": "ann"}))).await;
}

#[tokio::test]
async fn jobs_are_left_out_by_value_and_found_by_time_and_payload() {
    let server = Server::start();
    submit_some(&server).await;
    for (query, expected) in [
        ("not_tag=nightly", &["mail"][..]),
        ("not_tag=eu", &["mail", "backup"]),
        ("not_queue=disk&not_name=mail", &["report"]),
        ("not_owner=ann&not_status=paused", &["report", "backup"]),
        ("not_status=ACTIVE", &[]),
        ("next_run_before=2099-01-02T00:00:00Z", &["report"]),
        ("next_run_after=2099-01-02T00:00:00Z&next_run_before=2099-01-03T00:00:00Z", &["mail"]),
        ("created_after=2098-01-01T00:00:00Z", &[]),
        ("created_before=2098-01-01T00:00:00Z", &["mail", "report", "backup"]),
        ("last_run_before=2098-01-01T00:00:00Z", &[]),
        ("payload_has=customer.id", &["report"]),
        ("payload_has=customer&not_tag=eu", &[]),
    ] {
        assert_eq!(names(&server, query).await, expected, "{query}");
    }
    let (status, problem) = server.get("/api/v1/jobs?not_status=done&created_after=noon").await;
    assert_eq!(
        (status, problem["errors"].as_array().unwrap().len()),
        (StatusCode::BAD_REQUEST, 2),
        "{problem}"
    );
}

#[tokio::test]
async fn jobs_are_sorted_among_a_bounded_number_and_the_answer_says_how_many() {
    let server = Server::start();
    submit_some(&server).await;
    for (sort, expected) in [
        ("next_run", ["report", "mail", "backup"]),
        ("name", ["backup", "mail", "report"]),
        ("priority", ["mail", "report", "backup"]),
        ("last_run", ["mail", "report", "backup"]),
        ("lateness", ["mail", "report", "backup"]),
    ] {
        assert_eq!(names(&server, &format!("sort={sort}")).await, expected, "{sort}");
    }
    let (_, page) = server.get("/api/v1/jobs?sort=name&limit=1").await;
    assert_eq!(
        (&page["compared"], &page["next_cursor"]),
        (&json!({"jobs": 3, "complete": true}), &Value::Null)
    );
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/api/v1/jobs?sort=age").await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn finished_jobs_are_not_compared_for_the_next_runs() {
    let server = Server::start();
    submit_some(&server).await;
    for number in 0..3 {
        server.said(&["job", "submit", &format!("done-{number}"), "--type", "noop", "--wait"]);
    }
    for (query, compared) in [("next_run&limit=3", 3), ("next_run&limit=4", 6), ("name&limit=3", 6)] {
        let (_, page) = server.get(&format!("/api/v1/jobs?sort={query}")).await;
        assert_eq!(page["compared"], json!({"jobs": compared, "complete": true}), "{query}");
    }
    assert_eq!(names(&server, "sort=next_run&limit=3").await, ["report", "mail", "backup"]);
}

#[tokio::test]
async fn the_next_runs_are_found_among_any_number_of_jobs() {
    let server = Server::start();
    let one_time = |name: &str, at: &str, tags: &[&str]| json!({"name": name, "job_type": "noop", "execute_at": at, "tags": tags});
    server.submit(one_time("soon", "2098-01-01T00:00:00Z", &["old"])).await;
    for batch in 0..6 {
        let jobs: Vec<Value> = (0..900)
            .map(|number| one_time(&format!("later {batch} {number}"), "2099-01-01T00:00:00Z", &[]))
            .collect();
        let (status, made) = server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await;
        assert!(status.is_success(), "{made}");
    }
    server.submit(one_time("last", "2100-01-01T00:00:00Z", &["rare"])).await;
    let (_, page) = server.get("/api/v1/jobs?sort=next_run&limit=1").await;
    assert_eq!(
        (&page["items"][0]["name"], &page["compared"]["complete"]),
        (&json!("soon"), &json!(true)),
        "{page}"
    );
    // What is ready runs next.
    server.submit(json!({"name": "ready", "job_type": "nothing-runs-this"})).await;
    assert_eq!(names(&server, "sort=next_run&limit=2").await, ["ready", "soon"]);
    assert_eq!(names(&server, "sort=next_run&limit=1&tag=old").await, ["soon"]);
    assert_eq!(names(&server, "sort=next_run&limit=1&tag=rare").await, ["last"]);
    assert_eq!(names(&server, "sort=next_run&limit=1&not_name=ready").await, ["soon"]);
    assert_eq!(names(&server, "sort=next_run&limit=5&status=PAUSED").await, [""; 0]);
    let (_, page) = server.get("/api/v1/jobs?sort=name&limit=1").await;
    assert_eq!(page["compared"], json!({"jobs": 5_000, "complete": false}));
}

#[tokio::test]
async fn the_next_runs_are_sorted_as_calendars_allow() {
    let server = Server::start();
    let calendar = json!({"entries": [{"dates": ["2099-01-01/2099-01-31"]}]});
    let (status, body) =
        answer(server.request(Method::PUT, "/api/v1/calendars/january").json(&calendar)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let daily = |name: &str, start: &str| json!({"name": name, "job_type": "noop", "cron_expression": "0 0 * * *", "start_at": start});
    let mut excluded = daily("excluded", "2099-01-01T00:00:00Z");
    excluded["calendars"] = json!(["january"]);
    server.submit(excluded).await;
    server.submit(daily("plain", "2099-01-15T00:00:00Z")).await;
    assert_eq!(names(&server, "sort=next_run").await, ["plain", "excluded"]);
}

#[tokio::test]
async fn the_command_line_prints_ids_wide_tables_and_paths() {
    let server = Server::start();
    submit_some(&server).await;
    let ids = server.said(&["job", "list", "-o", "name"]);
    assert_eq!(ids.lines().filter(|line| line.len() == 36).count(), 3, "{ids}");
    let wide = server.said(&["job", "list", "-o", "wide", "--sort", "name"]);
    assert!(wide.contains("OWNER") && wide.contains("nightly, eu") && wide.contains("ann"), "{wide}");
    let paths = server.said(&[
        "job",
        "list",
        "-o",
        "jsonpath={.items[*].name}",
        "--where",
        "not_tag=eu",
        "--sort",
        "name",
    ]);
    assert_eq!(paths.lines().collect::<Vec<_>>(), ["backup", "mail"]);
    assert_eq!(server.cli(&["job", "list", "-o", "csv"]).status.code(), Some(2));
}

/// What a list says next to its items.
fn noted(server: &Server, args: &[&str]) -> (Option<i32>, String) {
    let ended = server.cli(args);
    (ended.status.code(), String::from_utf8(ended.stderr).expect("text"))
}

#[tokio::test]
async fn a_list_that_is_cut_off_says_so_in_every_format() {
    let server = Server::start();
    submit_some(&server).await;
    for format in ["table", "wide", "name", "jsonpath={.items[*].name}"] {
        let (_, note) = noted(&server, &["job", "list", "-o", format, "--limit", "2"]);
        assert!(note.contains("more with --cursor "), "{format}: {note}");
        let sorted = ["job", "list", "-o", format, "--sort", "name", "--limit", "2"];
        let (_, note) = noted(&server, &sorted);
        assert!(note.contains("the first 2 of at least 3 jobs that match"), "{format}: {note}");
        let (_, note) = noted(&server, &["job", "list", "-o", format, "--sort", "name"]);
        assert_eq!(note, "", "{format}");
        let (_, note) = noted(&server, &["job", "list", "-o", format]);
        assert_eq!(note, "", "{format}");
    }
    // Programs find the cursor in the list.
    assert_eq!(noted(&server, &["job", "list", "-o", "json", "--limit", "2"]).1, "");
    let (code, problem) = noted(&server, &["job", "list", "--sort", "name", "--limit", "1001"]);
    assert_eq!(code, Some(2), "{problem}");
    assert!(problem.contains("must be at most 1000 with --sort"), "{problem}");
}

#[tokio::test]
async fn executions_queues_and_workers_have_the_formats_of_jobs() {
    let server = Server::start();
    submit_some(&server).await;
    server.said(&[
        "job",
        "submit",
        "done",
        "--type",
        "noop",
        "--queue",
        "a-queue-with-a-long-name-that-tables-cut-off",
        "--wait",
    ]);
    server.said(&["queue", "set", "a-queue-with-a-long-name-that-tables-cut-off", "--concurrency", "2"]);
    let done = ["executions", "list", "--status", "SUCCEEDED"];
    let id = server.said(&[&done[..], &["-o", "name"]].concat());
    assert!(id.trim().ends_with(".1.1") || id.trim().ends_with("-1-1"), "{id}");
    let wide = server.said(&[&done[..], &["-o", "wide"]].concat());
    assert!(
        wide.contains("ORIGIN") && wide.contains("a-queue-with-a-long-name-that-tables-cut-off"),
        "{wide}"
    );
    assert_eq!(server.said(&[&done[..], &["-o", "jsonpath={.items[*].name}"]].concat()).trim(), "done");
    server.said(&["job", "submit", "again", "--type", "noop", "--wait"]);
    let (_, note) = noted(&server, &[&done[..], &["-o", "name", "--limit", "1"]].concat());
    assert!(note.contains("more with --cursor "), "{note}");
    let queues = server.said(&["queue", "list", "-o", "name"]);
    assert!(queues.lines().any(|name| name == "a-queue-with-a-long-name-that-tables-cut-off"), "{queues}");
    assert!(!server.said(&["queue", "list"]).contains("tables-cut-off"));
    let sessions = server.said(&["workers", "list", "-o", "name"]);
    assert_eq!(
        sessions.trim(),
        server.said(&["workers", "list", "-o", "jsonpath={.items[*].session_id}"]).trim()
    );
}
