//! Secrets: the command line, who may set and use them, and that only workers get their values.

use crate::principals::Principal;
use crate::process::{failure, last_execution, submit, written};
use crate::server::{BINARY, Server, answer, eventually};
use punctual_client::{ExecutionStatus, LogStreamBody, SetSecret};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// No other text of these tests contains it, in plain text or in Base64.
const VALUE: &str = "correct-horse-battery";
const VALUE_BASE64: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5";

async fn set(server: &Server, name: &str, fields: Value) -> (StatusCode, Value) {
    answer(server.request(Method::PUT, &format!("/api/v1/secrets/{name}")).json(&fields)).await
}

async fn must_set(server: &Server, name: &str, value: &str) {
    let (status, body) = set(server, name, json!({"value": value, "owners": ["*"]})).await;
    assert!(status.is_success(), "{body}");
}

/// Runs the command with this standard input.
fn cli_with_input(server: &Server, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .arg("--data-dir")
        .arg(server.data_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The files below a directory that contain a text.
fn files_with(directory: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn say(server: &Server, verb: &str, body: Value) -> Value {
    let (status, answer) = server.post(&format!("/api/v1/worker/{verb}"), &body.to_string()).await;
    assert!(status.is_success(), "{verb}: {answer}");
    answer
}

async fn open(server: &Server) -> i64 {
    let opening = json!({"worker": "raw", "job_types": ["raw"], "lease_secs": 600});
    say(server, "sessions", opening).await["session"].as_i64().unwrap()
}

async fn poll(server: &Server, session: i64, turn: u64, wait_secs: u64) -> Vec<Value> {
    let poll = json!({"session": session, "turn": turn, "job_types": ["raw"], "wait_secs": wait_secs});
    say(server, "poll", poll).await["assignments"].as_array().unwrap().clone()
}

/// A poll that gets no work, because the execution that it was granted may not have its secrets. Its number is used up.
async fn poll_in_vain(server: &Server, session: i64, turn: u64) {
    assert_eq!(poll(server, session, turn, 30).await, Vec::<Value>::new());
}

/// A job of a worker over HTTP with one secret in its payload.
fn raw(secret: &str) -> Value {
    json!({"name": "raw", "payload": {"n": 1, "token": {"$secret": secret}}, "max_retries": 0})
}

#[tokio::test]
async fn values_come_from_a_file_or_standard_input_and_are_never_shown() {
    let server = Server::start();
    let file = server.data_dir().parent().unwrap().join("value");
    std::fs::write(&file, format!("{VALUE}\n")).unwrap();
    let from_file = ["secret", "set", "db", "--from-file", file.to_str().unwrap(), "--queue", "mail-*"];
    let said = server.said(&from_file);
    assert!(said.contains("mail-*") && !said.contains(VALUE), "{said}");
    std::fs::remove_file(&file).unwrap();
    let output = cli_with_input(&server, &["secret", "set", "api.key", "--owner", "*"], VALUE);
    assert!(output.status.success(), "{output:?}");
    let shown = server.said(&["secret", "list", "--output", "json"]);
    let list: Value = serde_json::from_str(&shown).unwrap();
    let names: Vec<&Value> = list["items"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["api.key", "db"]);
    assert_eq!(list["items"][1]["owners"], json!(["default"]));
    let one = server.said(&["secret", "show", "db"]);
    assert!(one.contains("default") && !one.contains(VALUE) && !shown.contains(VALUE), "{one}");
    assert_eq!(server.said(&["secret", "remove", "db"]), "removed secret db\n");
    assert_eq!(server.cli(&["secret", "show", "db"]).status.code(), Some(5));
    for (input, arguments) in
        [("", ["secret", "set", "x", "--owner", "a"]), ("v", ["secret", "set", "a b", "--owner", "a"])]
    {
        let output = cli_with_input(&server, &arguments, input);
        assert!(!output.status.success(), "{arguments:?}");
    }
    // A value cannot be an argument.
    assert_eq!(server.cli(&["secret", "set", "x", "v"]).status.code(), Some(2));
}

#[tokio::test]
async fn rules_that_are_not_named_stay_when_the_value_changes() {
    let server = Server::start();
    let shown = || -> Value {
        serde_json::from_str(&server.said(&["secret", "show", "db", "--output", "json"])).unwrap()
    };
    let rules = || {
        let secret = shown();
        [&secret["owners"], &secret["queues"], &secret["job_types"]].map(Clone::clone)
    };
    let first = ["secret", "set", "db", "--owner", "team-*", "--queue", "mail", "--job-type", "send"];
    assert!(cli_with_input(&server, &first, VALUE).status.success());
    let kept = [json!(["team-*"]), json!(["mail"]), json!(["send"])];
    assert_eq!(rules(), kept);

    assert!(cli_with_input(&server, &["secret", "set", "db"], "another value").status.success());
    assert_eq!((rules(), &shown()["version"]), (kept.clone(), &json!(2)));
    for body in [json!({"value": "v3"}), json!({"value": "v4", "owners": null, "queues": null})] {
        assert_eq!(set(&server, "db", body).await.0, StatusCode::OK);
        assert_eq!(rules(), kept);
    }
    assert!(cli_with_input(&server, &["secret", "set", "db", "--queue", "*"], "v5").status.success());
    assert_eq!(rules(), [json!(["team-*"]), json!(["*"]), json!(["send"])]);
    // An empty list is a rule: the caller's own owner, all job types.
    let cleared = json!({"value": "v6", "owners": [], "job_types": []});
    assert_eq!(set(&server, "db", cleared).await.0, StatusCode::OK);
    assert_eq!(rules(), [json!(["default"]), json!(["*"]), json!([])]);
}

#[tokio::test]
async fn bad_secrets_are_refused_by_field() {
    let server = Server::start();
    for (name, body, field) in [
        ("a", json!({"value": ""}), "value"),
        ("a", json!({"value": "x".repeat(32 * 1024 + 1)}), "value"),
        ("a", json!({}), "value"),
        ("a", json!({"value": "x", "owners": [""]}), "owners"),
        ("a%20b", json!({"value": "x"}), "name"),
        (&"n".repeat(101), json!({"value": "x"}), "name"),
    ] {
        let (status, problem) = set(&server, name, body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    assert_eq!(server.get("/api/v1/secrets/a").await.0, StatusCode::NOT_FOUND);
    let keyed = server.request(Method::PUT, "/api/v1/secrets/a").header("Idempotency-Key", "k");
    assert_eq!(answer(keyed.json(&json!({"value": "x"}))).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_worker_over_http_gets_the_value_and_every_view_keeps_the_reference() {
    let server = Server::start();
    must_set(&server, "token", VALUE).await;
    let session = open(&server).await;
    // Once for a waiting poll, whose slot is reserved by the submit, and once for a claim.
    let (first, job) = tokio::join!(poll(&server, session, 1, 30), server.submit(raw("token")));
    assert_eq!(first[0]["payload"], json!({"n": 1, "token": VALUE}));
    server.submit(raw("token")).await;
    let second = poll(&server, session, 2, 0).await.remove(0);
    assert_eq!(second["payload"], json!({"n": 1, "token": VALUE}));

    let (execution, epoch) = (&first[0]["execution_id"], &first[0]["epoch"]);
    let spread: Vec<String> =
        VALUE.as_bytes().chunks(5).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let lines: Vec<Value> = ["the token is ".to_owned() + VALUE, VALUE_BASE64.to_owned()]
        .into_iter()
        .chain(spread)
        .map(|message| json!({"message": message}))
        .collect();
    say(&server, "logs", json!({"session": session, "execution_id": execution, "lines": lines})).await;
    let note = json!({"execution_id": execution, "epoch": epoch, "number": 1,
        "progress": {"percent": 5, "message": format!("with {VALUE}")}, "checkpoint": {"at": VALUE}});
    say(&server, "notes", json!({"session": session, "notes": [note]})).await;
    let running = server.get(&format!("/api/v1/jobs/{job}")).await.1;
    assert!(running.to_string().contains("with [secret token]"), "{running}");
    let report = json!({"session": session, "execution_id": execution, "epoch": epoch, "outcome": "failed",
        "error": format!("refused: {VALUE}")});
    let succeeded = json!({"session": session, "execution_id": second["execution_id"], "epoch": second["epoch"],
        "outcome": "succeeded", "result": {"used": [VALUE]}});
    say(&server, "report", json!({"reports": [report, succeeded]})).await;
    let path = format!("/api/v1/executions/{}", second["execution_id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.1["result"], json!({"used": ["[secret token]"]}));

    let reference = json!({"n": 1, "token": {"$secret": "token"}});
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}")).await.1["payload"], reference);
    let mut views = vec![server.said(&["job", "show", &job.to_string()])];
    for path in [
        format!("/api/v1/jobs/{job}"),
        format!("/api/v1/jobs/{job}/executions"),
        format!("/api/v1/jobs/{job}/logs"),
        format!("/api/v1/jobs/{job}/explain"),
        "/api/v1/jobs".to_owned(),
        "/api/v1/dead-letters".to_owned(),
        "/api/v1/audit".to_owned(),
        "/api/v1/secrets".to_owned(),
    ] {
        views.push(server.get(&path).await.1.to_string());
    }
    for view in &views {
        assert!(!view.contains(VALUE) && !view.contains(VALUE_BASE64), "{view}");
    }
    assert!(views[2].contains("refused: [secret token]"), "{}", views[2]);
    let logs = server.get(&format!("/api/v1/jobs/{job}/logs")).await.1;
    let messages: Vec<&str> =
        logs["items"].as_array().unwrap().iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(messages[..2], ["the token is [secret token]", "[secret token]"]);
    assert!(messages[2..].iter().all(|message| *message == "[secret token]"), "{messages:?}");

    let data_dir = server.data_dir().to_owned();
    assert_eq!(files_with(&data_dir, VALUE), [] as [String; 0], "in a file of the running server");
    assert_eq!(files_with(&data_dir, VALUE_BASE64), [] as [String; 0]);
    assert!(!files_with(&data_dir, "$secret").is_empty(), "the reference is stored");
}

#[tokio::test]
async fn every_use_is_in_the_audit_log() {
    let server = Server::start();
    must_set(&server, "token", VALUE).await;
    let session = open(&server).await;
    let job = server.submit(raw("token")).await;
    server.submit(json!({"name": "raw", "payload": {"n": 2}})).await;
    let first = poll(&server, session, 1, 0).await;
    assert_eq!(first.len(), 1);
    assert_eq!(poll(&server, session, 2, 0).await.len(), 1, "a job without secrets");
    let (_, uses) = server.get("/api/v1/audit?action=secret.use").await;
    let uses = uses["items"].as_array().unwrap();
    assert_eq!(uses.len(), 1, "{uses:?}");
    assert_eq!(uses[0]["object"], format!("execution {job}.1.1"));
    let details = &uses[0]["details"];
    assert_eq!(
        (&details["secrets"], &details["worker"], &details["job"]),
        (&json!(["token"]), &json!("raw"), &json!(job))
    );
    let (_, changes) = server.get("/api/v1/audit?action=secret.set").await;
    assert_eq!(changes["items"][0]["object"], "secret token");
    assert!(!changes.to_string().contains(VALUE));
}

#[tokio::test]
async fn commands_get_values_and_their_output_is_redacted_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let server = Server::start_in(&data_dir, &["--allow", "shell"]);
    let client = server.client();
    let private = "-----BEGIN KEY-----\nabcdefghijkl\nmnopqrstuvwx\n-----END KEY-----";
    must_set(&server, "pem", private).await;
    must_set(&server, "token", VALUE).await;
    let script =
        "echo \"$PEM\"; echo \"it is $TOKEN\" >&2; echo '{\"token\": \"'$TOKEN'\"}'; test -n \"$OK\"";
    let env = json!({"PEM": {"$secret": "pem"}, "TOKEN": {"$secret": "token"}, "OK": "1"});
    let job = json!({"name": "s", "job_type": "shell", "payload": {"script": script, "env": env}});
    let id = submit(&client, job).await;
    client.wait(id).await.unwrap();
    let execution = last_execution(&client, id).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded);
    let out = written(&client, &execution, LogStreamBody::Stdout).await;
    assert_eq!(out[..4], ["[secret pem]"; 4], "{out:?}");
    assert_eq!(written(&client, &execution, LogStreamBody::Stderr).await, ["it is [secret token]"]);
    let result =
        server.get(&format!("/api/v1/executions/{}", execution.execution_id)).await.1["result"].clone();
    assert_eq!(result, json!({"token": "[secret token]"}));

    // Executions of a worker that outlives the server. The second has its secret in the payload of its trigger only.
    let session = open(&server).await;
    server.submit(raw("token")).await;
    let first = poll(&server, session, 1, 0).await.remove(0);
    let idle =
        json!({"name": "idle", "job_type": "raw", "interval": "24h", "start_at": "2099-01-01T00:00:00Z"});
    let idle = server.submit(idle).await;
    let input = json!({"payload": {"token": {"$secret": "token"}}}).to_string();
    let (status, answer) = server.post(&format!("/api/v1/jobs/{idle}/trigger"), &input).await;
    assert!(status.is_success(), "{answer}");
    let second = poll(&server, session, 2, 0).await.remove(0);
    assert_eq!(second["payload"]["token"], VALUE);
    server.kill();
    let server = Server::start_in(&data_dir, &[]);
    for running in [first, second] {
        let (execution, epoch) = (&running["execution_id"], &running["epoch"]);
        let lines = json!({"session": session, "execution_id": execution, "lines": [{"message": VALUE}]});
        say(&server, "logs", lines).await;
        let report = json!({"session": session, "execution_id": execution, "epoch": epoch,
            "outcome": "failed", "error": format!("after the restart: {VALUE}")});
        say(&server, "report", json!({"reports": [report]})).await;
        let shown = server.get(&format!("/api/v1/executions/{}", execution.as_str().unwrap())).await.1;
        assert_eq!(shown["error_message"], "after the restart: [secret token]");
    }
    server.stop();
    assert_eq!(files_with(&data_dir, VALUE), [] as [String; 0]);
    assert_eq!(files_with(&data_dir, "abcdefghijkl"), [] as [String; 0]);
}

#[tokio::test]
async fn a_job_may_name_only_secrets_whose_rules_allow_it() {
    let server = Server::start();
    let fields = json!({"value": VALUE, "owners": ["team-*"], "queues": ["mail"], "job_types": ["raw"]});
    assert_eq!(set(&server, "limited", fields).await.0, StatusCode::CREATED);
    let job = |owner: &str, queue: &str, job_type: &str| {
        json!({"name": "j", "job_type": job_type, "queue": queue, "owner_id": owner,
            "payload": {"env": {"A": {"$secret": "limited"}}}})
    };
    let mut details = Vec::new();
    for (owner, queue, job_type) in
        [("team-a", "mail", "other"), ("team-a", "web", "raw"), ("bob", "mail", "raw")]
    {
        let (status, problem) = server.post("/api/v1/jobs", &job(owner, queue, job_type).to_string()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], "payload.env.A", "{problem}");
        details.push(problem["errors"][0]["detail"].clone());
    }
    let mut unknown = job("team-a", "mail", "raw");
    unknown["payload"]["env"]["A"] = json!({"$secret": "unknown"});
    let (_, problem) = server.post("/api/v1/jobs", &unknown.to_string()).await;
    let detail = problem["errors"][0]["detail"].as_str().unwrap().replace("unknown", "limited");
    assert!(details.iter().all(|other| *other == json!(detail)), "{details:?} {detail}");

    let id = server.submit(job("team-a", "mail", "raw")).await;
    let path = format!("/api/v1/jobs/{id}");
    let (status, problem) = server.patch(&path, &json!({"queue": "web"})).await;
    assert_eq!(
        (status, &problem["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("payload.env.A"))
    );
    assert_eq!(server.patch(&path, &json!({"priority": 9})).await.0, StatusCode::OK);
    for (payload, field) in
        [(json!({"a": [{"$secret": 1}]}), "payload.a[0]"), (json!({"$secret": "limited", "x": 1}), "payload")]
    {
        let job = json!({"name": "j", "payload": payload});
        let (status, problem) = server.post("/api/v1/jobs", &job.to_string()).await;
        assert_eq!(
            (status, &problem["errors"][0]["field"]),
            (StatusCode::UNPROCESSABLE_ENTITY, &json!(field))
        );
    }
    // In a batch, the others are stored.
    let batch = json!({"jobs": [job("bob", "mail", "raw"), job("team-b", "mail", "raw")]});
    let (_, body) = server.post("/api/v1/jobs/batch", &batch.to_string()).await;
    assert!(body.to_string().contains("payload.env.A") && body.to_string().contains("job_id"), "{body}");
}

#[tokio::test]
async fn rules_are_checked_again_when_work_is_handed_out() {
    let server = Server::start();
    must_set(&server, "token", VALUE).await;
    let session = open(&server).await;
    let mut ids = Vec::new();
    for change in ["removed", "narrowed"] {
        let id = server.submit(raw("token")).await;
        match change {
            "removed" => assert_eq!(
                answer(server.request(Method::DELETE, "/api/v1/secrets/token?force=true")).await.0,
                StatusCode::NO_CONTENT
            ),
            _ => {
                let (status, _) =
                    set(&server, "token", json!({"value": VALUE, "owners": ["somebody"]})).await;
                assert_eq!(status, StatusCode::OK);
            }
        }
        let turn = ids.len() as u64 + 1;
        poll_in_vain(&server, session, turn).await;
        ids.push(id);
        must_set(&server, "token", VALUE).await;
    }
    for id in &ids {
        let execution = last_execution(&server.client(), *id).await;
        let expected =
            "payload.token refers to the secret token: there is no such secret, or its rules do not allow";
        assert!(failure(&execution).starts_with(expected), "{execution:?}");
    }
    // Nothing is lost: the dead letters run once the secret is there again.
    let dead: Vec<String> = ids.iter().map(|id| format!("{id}.1")).collect();
    let (status, body) = server.post("/api/v1/dead-letters/redrive", &json!({"ids": dead}).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(poll(&server, session, 3, 30).await[0]["payload"]["token"], VALUE);
}

#[tokio::test]
async fn a_secret_without_owners_is_for_the_owner_who_set_it_and_roles_decide_who_sets_them() {
    let server = Server::start();
    let (ann, bob) = (Principal::submitter(&server, "ann").await, Principal::submitter(&server, "bob").await);
    let operator = json!({"name": "ops", "role": "operator", "owner_id": "ann"});
    let operator = Principal::create(&server, operator).await;
    let value = json!({"value": VALUE});
    let (status, secret) = operator.send(Method::PUT, "/api/v1/secrets/own", &value).await;
    assert_eq!((status, &secret["owners"]), (StatusCode::CREATED, &json!(["ann"])), "{secret}");
    let job = json!({"name": "raw", "payload": {"$secret": "own"}});
    ann.submit(job.clone()).await;
    assert_eq!(bob.post("/api/v1/jobs", &job).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let names = async |principal: &Principal<'_>| {
        principal.get("/api/v1/secrets").await.1["items"].as_array().map(Vec::len)
    };
    assert_eq!((names(&ann).await, names(&bob).await), (Some(1), Some(0)));
    assert_eq!(bob.get("/api/v1/secrets/own").await.0, StatusCode::NOT_FOUND);

    // A caller that is limited to an owner cannot reach beyond it.
    for owners in [json!(["*"]), json!(["bob"]), json!(["ann", "bob"])] {
        let body = json!({"value": VALUE, "owners": owners});
        assert_eq!(operator.send(Method::PUT, "/api/v1/secrets/own", &body).await.0, StatusCode::FORBIDDEN);
    }
    must_set(&server, "shared", VALUE).await;
    assert_eq!(operator.send(Method::PUT, "/api/v1/secrets/shared", &value).await.0, StatusCode::FORBIDDEN);
    // Of a secret that it cannot see, it learns nothing but that the name cannot be used.
    let (status, _) = set(&server, "hidden", json!({"value": VALUE, "owners": ["team-payroll"]})).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, problem) = operator.send(Method::PUT, "/api/v1/secrets/hidden", &value).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{problem}");
    assert!(!problem.to_string().contains("team-payroll"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("this name cannot be used"), "{problem}");
    let removal = operator.request(Method::DELETE, "/api/v1/secrets/shared");
    assert_eq!(answer(removal).await.0, StatusCode::FORBIDDEN);

    let viewer = Principal::create(&server, json!({"name": "v", "role": "viewer"})).await;
    assert_eq!(viewer.get("/api/v1/secrets").await.0, StatusCode::FORBIDDEN);
    for principal in [&ann, &viewer] {
        let (status, _) = principal.send(Method::PUT, "/api/v1/secrets/x", &value).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
}

fn key(byte: u8) -> String {
    format!("{byte:02x}").repeat(32)
}

#[tokio::test]
async fn keys_are_rotated_without_losing_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let (data_dir, file) = (directory.path().join("data"), directory.path().join("keys"));
    let options = ["--secrets-key-file", file.to_str().unwrap()];
    std::fs::write(&file, key(1)).unwrap();
    let server = Server::start_in(&data_dir, &options);
    for name in ["a", "b"] {
        must_set(&server, name, VALUE).await;
    }
    let old = server.client().secret("a").await.unwrap().key_id;
    server.stop();

    std::fs::write(&file, format!("{}\n{}\n", key(2), key(1))).unwrap();
    let server = Server::start_in(&data_dir, &options);
    let said = server.said(&["secret", "rotate"]);
    assert!(said.starts_with("encrypted 2 secrets with the key "), "{said}");
    assert!(server.said(&["secret", "rotate"]).starts_with("encrypted 0 secrets"));
    assert_ne!(server.client().secret("a").await.unwrap().key_id, old);
    server.stop();

    std::fs::write(&file, key(2)).unwrap();
    let server = Server::start_in(&data_dir, &options);
    let session = open(&server).await;
    server.submit(raw("b")).await;
    assert_eq!(poll(&server, session, 1, 0).await[0]["payload"]["token"], VALUE);
    assert!(!data_dir.join("secrets.key").exists(), "a key file is only created where none is named");
}

#[tokio::test]
async fn with_the_wrong_key_attempts_fail_with_the_reason_and_can_be_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let server = Server::start_in(&data_dir, &[]);
    must_set(&server, "token", VALUE).await;
    server.stop();
    let file = directory.path().join("other");
    std::fs::write(&file, key(3)).unwrap();
    let server = Server::start_in(&data_dir, &["--secrets-key-file", file.to_str().unwrap()]);
    assert!(!server.client().secret("token").await.unwrap().readable);
    let session = open(&server).await;
    let job = server.submit(raw("token")).await;
    poll_in_vain(&server, session, 1).await;
    let execution = last_execution(&server.client(), job).await;
    let expected = "payload.token refers to the secret token: it is encrypted with the key ";
    assert!(failure(&execution).starts_with(expected), "{execution:?}");
    assert!(failure(&execution).contains("secrets.key_file"));
    let rotated = server.cli(&["secret", "rotate"]);
    assert!(!rotated.status.success());
    assert!(String::from_utf8_lossy(&rotated.stderr).contains("token: it is encrypted with the key"));
    server.stop();
    let server = Server::start_in(&data_dir, &[]);
    server.client().retry(job).await.unwrap();
    let session = open(&server).await;
    eventually("the retry is handed out", async || {
        let turn = 1;
        poll(&server, session, turn, 0).await.first().is_some_and(|one| one["payload"]["token"] == VALUE)
    })
    .await;
}

#[tokio::test]
async fn wrong_keys_and_files_are_named_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys");
    std::fs::write(&file, "short").unwrap();
    let start = |variable: Option<&str>| {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("data"));
        match variable {
            Some(keys) => command.env("PUNCTUAL_SECRETS_KEY", keys),
            None => command.arg("--secrets-key-file").arg(&file),
        };
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = start(None);
    assert!(
        said.contains("secrets.key_file") && said.contains("key 1 is not a key: it must have 32 bytes"),
        "{said}"
    );
    let said = start(Some("not-a-key"));
    assert!(
        said.contains("PUNCTUAL_SECRETS_KEY: key 1 is not a key") && !said.contains("not-a-key"),
        "{said}"
    );
}

#[tokio::test]
async fn a_secret_in_use_is_removed_by_force_only() {
    let server = Server::start();
    must_set(&server, "token", VALUE).await;
    let channel = json!({"type": "pagerduty", "routing_key": {"$secret": "token"}});
    let (status, body) = answer(server.request(Method::PUT, "/api/v1/channels/duty").json(&channel)).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let jobs: Vec<Value> = (0..12).map(|_| raw("token")).collect();
    let (status, stored) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    assert!(status.is_success(), "{stored}");
    let remove = async || answer(server.request(Method::DELETE, "/api/v1/secrets/token")).await;
    let (status, refused) = remove().await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let detail = refused["detail"].as_str().unwrap().to_owned();
    // The channel and the first nine jobs.
    assert!(detail.starts_with("the secret token is in use by channel duty, job raw ("), "{detail}");
    assert!(detail.contains(" and 3 more: take it out of them first, or pass force=true"), "{detail}");
    assert_eq!(detail.matches("job raw (").count(), 9, "{detail}");

    // Jobs that have ended do not use it.
    assert_eq!(
        answer(server.request(Method::DELETE, "/api/v1/channels/duty")).await.0,
        StatusCode::NO_CONTENT
    );
    server.said(&["job", "cancel", "--all", "--type", "raw", "--yes"]);
    eventually("all jobs are cancelled", async || {
        server.get("/api/v1/jobs?status=ACTIVE").await.1["items"] == json!([])
    })
    .await;
    assert_eq!(remove().await.0, StatusCode::NO_CONTENT);

    must_set(&server, "token", VALUE).await;
    server.submit(raw("token")).await;
    let refused = server.cli(&["secret", "remove", "token"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("the secret token is in use by job raw"), "{said}");
    assert_eq!(server.said(&["secret", "remove", "token", "--force"]), "removed secret token\n");
}

#[tokio::test]
async fn the_client_sets_lists_and_removes_secrets() {
    let server = Server::start();
    let client = server.client();
    let set = SetSecret {
        value: VALUE.to_owned(),
        job_types: Some(vec!["send".to_owned()]),
        ..SetSecret::default()
    };
    assert_eq!(client.set_secret("a", &set).await.unwrap().version, 1);
    let second = client.set_secret("a", &set).await.unwrap();
    assert_eq!((second.version, second.job_types.as_slice()), (2, ["send".to_owned()].as_slice()));
    assert_eq!(client.secrets().await.unwrap().items, [second]);
    client.remove_secret("a").await.unwrap();
    assert!(client.secret("a").await.is_err());
    let key_file = server.data_dir().join("secrets.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&key_file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_report_of_another_lease_does_not_end_redaction() {
    let server = Server::start();
    must_set(&server, "token", VALUE).await;
    let session = open(&server).await;
    let job = server.submit(raw("token")).await;
    let running = poll(&server, session, 1, 0).await.remove(0);
    // What the server knows of the value is now in its memory only.
    let removal = server.request(Method::DELETE, "/api/v1/secrets/token?force=true");
    assert_eq!(answer(removal).await.0, StatusCode::NO_CONTENT);
    let execution = &running["execution_id"];
    let epoch = running["epoch"].as_u64().unwrap() + 1;
    let stale =
        json!({"session": session, "execution_id": execution, "epoch": epoch, "outcome": "succeeded"});
    say(&server, "report", json!({"reports": [stale]})).await;
    let lines = json!([{"message": format!("it is {VALUE}")}]);
    say(&server, "logs", json!({"session": session, "execution_id": execution, "lines": lines})).await;
    let logs = server.get(&format!("/api/v1/jobs/{job}/logs")).await.1;
    assert_eq!(logs["items"][0]["message"], "it is [secret token]", "{logs}");
}

#[tokio::test]
async fn a_lost_key_file_is_not_replaced_while_secrets_need_it() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let server = Server::start_in(&data_dir, &[]);
    must_set(&server, "a", VALUE).await;
    let key_id = server.client().secret("a").await.unwrap().key_id;
    server.stop();
    let file = data_dir.join("secrets.key");
    let key = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();

    let log = directory.path().join("log");
    let script = format!("exec \"$@\" 2>'{}'", log.display());
    let server = Server::start_through(&["sh", "-c", &script, "sh", BINARY], &data_dir);
    let (status, problem) = set(&server, "b", json!({"value": VALUE})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{problem}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(&key_id) && detail.contains(file.to_str().unwrap()), "{detail}");
    assert!(!file.exists());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("ERROR") && said.contains(&key_id) && said.contains("secrets.key"), "{said}");
    let doctor = server.cli(&["doctor"]);
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!doctor.status.success() && said.contains(&format!("lacks the key {key_id} of a")), "{said}");
    server.stop();

    std::fs::write(&file, key).unwrap();
    let server = Server::start_in(&data_dir, &[]);
    must_set(&server, "b", VALUE).await;
    assert_eq!(server.client().secret("b").await.unwrap().key_id, key_id);
}

#[tokio::test]
async fn an_owner_with_a_star_does_not_become_a_pattern() {
    let server = Server::start();
    let operator = json!({"name": "ops", "role": "operator", "owner_id": "team-*"});
    let (status, problem) = server.post("/api/v1/tokens", &operator.to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
    assert_eq!(problem["errors"][0]["field"], "owner_id", "{problem}");
}

#[tokio::test]
async fn errors_of_commands_do_not_repeat_values() {
    let server = Server::start_with(&["--allow", "process"]);
    let client = server.client();
    must_set(&server, "quoted", "pa\"ss-word").await;
    let payload = json!({"command": ["true"], "kill_grace": {"$secret": "quoted"}});
    let id = submit(&client, json!({"name": "p", "job_type": "process", "payload": payload})).await;
    client.wait(id).await.unwrap();
    let execution = last_execution(&client, id).await;
    let said = "payload.kill_grace must be a number of seconds, or a text such as 500ms or 10s";
    assert_eq!(failure(&execution), said);
}
