//! Levels of log lines, and the search across jobs.

use crate::server::{Server, eventually};
use serde_json::{Value, json};

async fn ran(server: &Server, name: &str, queue: &str, script: &str) {
    let job = json!({"name": name, "job_type": "shell", "queue": queue, "tags": [name], "payload": {"script": script}});
    let id = server.submit(job).await;
    eventually("the job has run", async || server.client().job(id).await.unwrap().is_finished()).await;
}

async fn search(server: &Server, query: &str) -> Value {
    let (status, found) = server.get(&format!("/api/v1/logs?{query}")).await;
    assert_eq!(status, 200, "{found}");
    found
}

fn messages(found: &Value) -> Vec<&str> {
    found["items"].as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn lines_carry_levels_and_are_found_across_jobs() {
    let server = Server::start_with(&["--allow", "shell", "--allow-root-commands"]);
    ran(&server, "backup", "night", "echo starting; echo '<3>Disk FULL' >&2; echo '<4>slow' >&2").await;
    ran(&server, "report", "day", "echo 'disk is fine'").await;

    let found = search(&server, "grep=disk").await;
    assert_eq!(messages(&found), ["Disk FULL", "disk is fine"]);
    assert_eq!(
        (&found["items"][0]["level"], &found["items"][0]["job_name"]),
        (&json!("error"), &json!("backup"))
    );
    assert_eq!(found["items"][1]["level"], json!(null));
    assert_eq!((&found["searched"]["complete"], &found["searched"]["executions"]), (&json!(true), &json!(2)));

    assert_eq!(messages(&search(&server, "level=warn").await), ["Disk FULL", "slow"]);
    assert_eq!(messages(&search(&server, "level=error").await), ["Disk FULL"]);
    assert_eq!(messages(&search(&server, "queue=day").await), ["disk is fine"]);
    assert_eq!(messages(&search(&server, "tag=report").await), ["disk is fine"]);
    assert!(messages(&search(&server, "since=2999-01-01T00:00:00Z").await).is_empty());
    let short = search(&server, "limit=1").await;
    assert_eq!(messages(&short), ["disk is fine"]);
    assert_eq!(short["searched"]["complete"], json!(false));
    let until = short["searched"]["back_to"].as_str().unwrap();
    assert!(messages(&search(&server, &format!("until={until}&grep=full")).await).contains(&"Disk FULL"));
    assert_eq!(server.get("/api/v1/logs?level=loud").await.0, 400);

    let said = server.said(&["logs", "--grep", "disk", "--level", "error", "--since", "1h"]);
    assert!(said.contains("error   backup  Disk FULL") && said.lines().count() == 1, "{said}");
    // Where one job is read, lines have the same levels.
    let logs = server.said(&["job", "logs", "backup"]);
    assert!(logs.contains("Disk FULL") && !logs.contains("<3>"), "{logs}");
}

#[tokio::test]
async fn a_search_that_reads_an_execution_only_in_part_is_not_complete() {
    let server = Server::start_with(&["--allow", "shell", "--allow-root-commands"]);
    // More lines than a search reads, and its limit falls within the last execution.
    let mut jobs = Vec::new();
    for number in 0..5 {
        let payload = json!({"script": "yes x | head -n 45000"});
        let job = json!({"name": format!("long-{number}"), "job_type": "shell", "payload": payload});
        jobs.push(server.submit(job).await);
    }
    for job in jobs {
        let path = format!("/api/v1/jobs/{job}");
        eventually("its log is whole", async || server.get(&path).await.1["status"] == "COMPLETED").await;
    }
    eventually("as many lines are stored as a search reads", async || {
        search(&server, "grep=y").await["searched"]["lines"].as_u64().unwrap() >= 200_000
    })
    .await;
    let found = search(&server, "grep=y").await;
    assert_eq!((messages(&found).len(), &found["searched"]["complete"]), (0, &json!(false)), "{found}");
    assert!(found["searched"]["back_to"].is_string(), "{found}");
}

#[tokio::test]
async fn a_worker_that_sends_levels_is_understood() {
    let server = Server::start();
    let (status, session) = server
        .post("/api/v1/worker/sessions", r#"{"worker": "w", "job_types": ["mail"], "lease_secs": 6}"#)
        .await;
    assert_eq!(status, 201, "{session}");
    server.submit(json!({"name": "mail", "job_type": "mail"})).await;
    let poll =
        json!({"session": session["session"], "turn": 1, "job_types": ["mail"], "held": [], "wait_secs": 5});
    let (_, answer) = server.post("/api/v1/worker/poll", &poll.to_string()).await;
    let execution = &answer["assignments"][0]["execution_id"];
    let lines = json!({"session": session["session"], "execution_id": execution, "lines": [
        {"message": "no route", "level": "error"}, {"message": "<7>details"}, {"message": "plain", "stream": "stdout"}]});
    let (status, answer) = server.post("/api/v1/worker/logs", &lines.to_string()).await;
    assert!(status.is_success(), "{answer}");
    let (_, page) = server.get(&format!("/api/v1/executions/{}/logs", execution.as_str().unwrap())).await;
    let levels: Vec<(&Value, &Value)> =
        page["items"].as_array().unwrap().iter().map(|line| (&line["level"], &line["message"])).collect();
    let expected = [
        (json!("error"), json!("no route")),
        (json!("debug"), json!("details")),
        (json!(null), json!("plain")),
    ];
    assert_eq!(levels, expected.iter().map(|(level, message)| (level, message)).collect::<Vec<_>>());
    // A running execution is searched, too.
    assert_eq!(messages(&search(&server, "level=error").await), ["no route"]);
}
