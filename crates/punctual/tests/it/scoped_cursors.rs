//! Cursors of callers with a limited scope: they tell nothing about the rows in between, and every node of a store
//! continues where another one has stopped.

use crate::cluster::Cluster;
use crate::principals::Principal;
use crate::server::{PATIENCE, Server, answer, eventually, http_client};
use punctual_client::{Client, EventFilter, StreamedEvent};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A viewer of the queue `mail`.
fn viewer_of_mail() -> Value {
    json!({"name": "mail", "role": "operator", "queues": ["mail"]})
}

fn failing(queue: &str) -> Value {
    let payload = json!({"command": ["sh", "-c", "exit 3"]});
    json!({"name": "failing", "job_type": "process", "queue": queue, "max_retries": 0, "payload": payload})
}

/// No worker runs it, so its execution stays queued.
fn queued(queue: &str) -> Value {
    json!({"name": "stays", "queue": queue})
}

async fn submit(server: &Server, job: Value) -> String {
    let (status, body) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    body["job_id"].as_str().expect("an id").to_owned()
}

/// The ids of jobs in all pages of a list, and its cursors. No page may contain a hidden id.
async fn walk(caller: &Principal<'_>, path: &str, hidden: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    let (mut found, mut cursors) = (vec![], Vec::<String>::new());
    loop {
        let cursor = cursors.last().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let (status, page) = caller.get(&format!("{path}{cursor}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        assert!(hidden.iter().all(|id| !page.to_string().contains(id)), "{path}: {page}");
        let items = page["items"].as_array().expect("a list").iter();
        found.extend(items.map(|item| item["job_id"].as_str().expect("an id").to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursors.push(next.to_owned()),
            None => return (found, cursors),
        }
    }
}

#[tokio::test]
async fn cursors_of_a_limited_token_tell_nothing_about_other_rows() {
    let server = Server::start_with(&["--allow", "process"]);
    let (mut own, mut hidden) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..6 {
        // Each page of two rows ends with a hidden one.
        let (ids, queue) = if number % 2 == 0 { (&mut hidden, "secret") } else { (&mut own, "mail") };
        for job in [failing(queue), queued(queue)] {
            ids.insert(submit(&server, job).await);
        }
        let dead = number + 1;
        eventually("it is a dead letter", async || {
            let (_, page) = server.get("/api/v1/dead-letters").await;
            page["items"].as_array().is_some_and(|items| items.len() == dead)
        })
        .await;
    }
    let mail = Principal::create(&server, viewer_of_mail()).await;
    let lists = [
        ("/api/v1/jobs?limit=3", 6),
        ("/api/v1/executions?status=QUEUED&limit=2", 3),
        ("/api/v1/executions?status=FAILED&limit=2", 3),
        ("/api/v1/dead-letters?limit=2", 3),
    ];
    for (path, count) in lists {
        let (found, cursors) = walk(&mail, path, &hidden).await;
        assert_eq!(found.len(), count, "{path}");
        assert!(found.iter().all(|id| own.contains(id)), "{path}");
        assert!(!cursors.is_empty(), "{path} has one page");
        for cursor in &cursors {
            assert!(!cursor.contains('~'), "{path}: {cursor} is readable");
            // Neither for another list nor modified.
            let (head, tail) = cursor.split_at(cursor.len() - 4);
            for other in [format!("{head}AAAA{tail}"), cursor.replacen('.', "s.", 1)] {
                let (status, problem) = mail.get(&format!("{path}&cursor={other}")).await;
                assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
                assert_eq!(problem["errors"][0]["field"], "cursor");
            }
        }
        // A caller that sees everything may use it too, and gets readable ones.
        let (status, page) = server.get(&format!("{path}&cursor={}", cursors[0])).await;
        assert_eq!(status, StatusCode::OK, "{page}");
    }

    let mut step = json!({"filter": {}, "limit": 2});
    let mut discarded = 0;
    loop {
        let (status, answer) = mail.post("/api/v1/dead-letters/discard", &step).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        discarded += answer["discarded"].as_u64().expect("a number");
        let Some(next) = answer["next_cursor"].as_str() else { break };
        assert!(!next.contains('~'), "{next}");
        step["cursor"] = json!(next);
    }
    assert_eq!(discarded, 3);
}

#[tokio::test]
async fn the_key_of_cursors_is_no_token() {
    let server = Server::start();
    let mail = Principal::create(&server, viewer_of_mail()).await;
    for queue in ["mail", "secret", "secret"] {
        submit(&server, queued(queue)).await;
    }
    let (_, page) = mail.get("/api/v1/jobs?limit=1").await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
    submit(&server, queued("mail")).await;
    let (_, page) = mail.get("/api/v1/jobs?limit=1").await;
    assert!(page["next_cursor"].is_string(), "{page}");
    let (_, tokens) = server.get("/api/v1/tokens").await;
    let names: Vec<&Value> = tokens["items"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert!(
        names.len() == 2 && names.contains(&&json!("admin")) && names.contains(&&json!("mail")),
        "{tokens}"
    );
    for method in [Method::GET, Method::DELETE] {
        let (status, _) = answer(server.request(method, "/api/v1/tokens/cursorkey")).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn queues_outside_of_the_scope_leave_no_further_page() {
    let server = Server::start();
    let mail = Principal::create(&server, viewer_of_mail()).await;
    for queue in ["mail", "secret"] {
        submit(&server, queued(queue)).await;
    }
    eventually("the queue has work", async || {
        let (_, page) = mail.get("/api/v1/queues?limit=1").await;
        page["items"][0]["queue"] == "mail" && page["next_cursor"].is_null()
    })
    .await;
}

#[tokio::test]
async fn events_of_a_limited_token_have_unreadable_ids_and_can_be_resumed() {
    let server = Server::start();
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let client = Client::new(&server.address, ann.secret.clone()).unwrap();
    let mut cursor: Option<String> = None;
    for round in 0..2 {
        let mut events = client.events(&EventFilter::default(), cursor.as_deref()).await.unwrap();
        bob.submit(json!({"name": "noop"})).await;
        let own = ann.submit(json!({"name": "noop"})).await;
        let seen = async {
            loop {
                match events.next().await.expect("a stream").expect("an event") {
                    StreamedEvent::Execution(body) => {
                        assert!(round > 0 || body.job_id.to_string() == own, "{body:?}");
                        let is_told = events.cursor().is_some_and(|id| cursor.as_deref() != Some(id));
                        if body.job_id.to_string() == own && is_told {
                            return events.cursor().map(str::to_owned);
                        }
                    }
                    other => panic!("{other:?}"),
                }
            }
        };
        cursor = tokio::time::timeout(PATIENCE, seen).await.expect("an event in time");
        let id = cursor.as_deref().expect("the end of a run has a position");
        assert!(id.starts_with("events.") && !id.contains('~'), "{id}");
    }
}

#[tokio::test]
async fn every_node_continues_the_list_of_another_one() {
    Cluster::with(async |cluster| {
        let (first, second) = (cluster.api(), cluster.api());
        let token = viewer_of_mail();
        let (_, created) = first.request(cluster, Method::POST, "/api/v1/tokens", Some(token)).await;
        let secret = created["secret"].as_str().expect("a secret");
        let mut hidden = vec![];
        for queue in ["mail", "secret", "mail", "secret", "mail"] {
            let id = first.submit(cluster, queued(queue)).await;
            if queue == "secret" {
                hidden.push(id.to_string());
            }
        }
        let (mut found, mut cursor) = (0, String::new());
        for node in [&first, &second].into_iter().cycle() {
            let url = format!("http://{}/api/v1/jobs?limit=2{cursor}", node.address);
            let (status, page) = answer(http_client().get(url).bearer_auth(secret)).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            assert!(hidden.iter().all(|id| !page.to_string().contains(id)), "{page}");
            found += page["items"].as_array().expect("a list").len();
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, 3);
    })
    .await;
}
