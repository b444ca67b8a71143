//! Web calls by `http` jobs, against real servers on this machine.

mod injection;
pub mod web;

use crate::server::{BINARY, Server, eventually};
use punctual_client::{ExecutionBody, ExecutionStatus};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use web::{Answer, Web};

/// A server whose jobs may call this machine.
fn allowed() -> Server {
    Server::start_with(&["--http-allow", "127.0.0.1/32"])
}

/// Runs a call with at most two attempts, and returns its attempts, the last one first.
async fn run(server: &Server, payload: Value) -> Vec<ExecutionBody> {
    run_job(server, json!({"payload": payload})).await
}

async fn run_job(server: &Server, mut job: Value) -> Vec<ExecutionBody> {
    job["name"] = json!("call");
    job["job_type"] = json!("http");
    job["max_retries"] = json!(1);
    job["retry"] = json!({"strategy": "fixed", "delay": "10ms"});
    let (status, body) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let client = server.client();
    let job = client.wait(body["job_id"].as_str().unwrap().parse().unwrap()).await.unwrap();
    client.executions(job.job_id, None, None).await.unwrap().items
}

fn result(execution: &ExecutionBody) -> Value {
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{execution:?}");
    serde_json::from_str(execution.result.as_ref().unwrap().get()).unwrap()
}

/// The error of the last attempt, and how many attempts there were.
fn failure(attempts: &[ExecutionBody]) -> (String, usize) {
    assert_eq!(attempts[0].status, ExecutionStatus::Failed, "{:?}", attempts[0]);
    (attempts[0].error_message.clone().unwrap(), attempts.len())
}

#[tokio::test]
async fn a_failed_answer_can_leave_a_checkpoint_for_the_next_attempt() {
    let server = allowed();
    let left = "Punctual-Checkpoint: {\"page\": 2.50}\r\n";
    let web = Web::answering(Answer::with_headers("503 Later", left, "")).await;
    let attempts = run(&server, json!({"url": web.url("/")})).await;
    let carried: Vec<_> =
        web.asked().iter().map(|asked| asked.header("punctual-checkpoint").map(str::to_owned)).collect();
    assert_eq!(carried, [None, Some("{\"page\": 2.50}".to_owned())]);
    let dead = server.client().execution(attempts[0].execution_id).await.unwrap();
    assert_eq!(dead.checkpoint.unwrap().get(), "{\"page\": 2.50}", "a redrive would go on from it");
}

#[tokio::test]
async fn an_answer_whose_checkpoint_makes_no_sense_says_so_in_the_log() {
    let server = allowed();
    let left = "Punctual-Checkpoint: page 2\r\n";
    let web = Web::answering(Answer::with_headers("500 Oops", left, "")).await;
    let attempts = run(&server, json!({"url": web.url("/")})).await;
    assert_eq!(attempts[0].checkpoint_bytes, None);
    let page = server.client().execution_logs(attempts[0].execution_id, None, None).await.unwrap();
    let said = &page.items[0].message;
    assert!(said.contains("Punctual-Checkpoint of the response was not stored: it is not JSON"), "{said}");
}

#[tokio::test]
async fn a_call_carries_what_the_job_says_and_its_facts() {
    let server = allowed();
    let web = Web::answering(Answer::status("201 Created", r#"{"id": 7, "price": 1.50}"#)).await;
    let payload = json!({
        "url": web.url("/orders?draft=1"), "method": "POST", "body": {"item": "tea"},
        "headers": {"X-Shop": "north", "Authorization": "Bearer abc"},
    });
    let attempts = run(&server, payload).await;
    assert_eq!(result(&attempts[0]), json!({"status": 201, "body": {"id": 7, "price": 1.5}}));
    assert!(attempts[0].result.as_ref().unwrap().get().contains("1.50"), "numbers stay as they were sent");

    let [asked] = &web.asked()[..] else { panic!("{:?}", web.asked()) };
    assert_eq!(asked.line, "POST /orders?draft=1 HTTP/1.1");
    assert_eq!(asked.body, br#"{"item":"tea"}"#);
    let execution = &attempts[0];
    let occurrence = execution.execution_id.occurrence.to_string();
    for (name, value) in [
        ("host", web.address.to_string()),
        ("content-type", "application/json".to_owned()),
        ("x-shop", "north".to_owned()),
        ("authorization", "Bearer abc".to_owned()),
        ("user-agent", concat!("punctual/", env!("CARGO_PKG_VERSION")).to_owned()),
        ("idempotency-key", occurrence),
        ("punctual-job-id", execution.job_id.to_string()),
        ("punctual-execution-id", execution.execution_id.to_string()),
        ("punctual-attempt", "1".to_owned()),
        ("punctual-scheduled-time", execution.scheduled_time.to_string()),
    ] {
        assert_eq!(asked.header(name), Some(value.as_str()), "{name}");
    }
    let deadline = asked.header("punctual-deadline").unwrap();
    let deadline: punctual_core::time::Timestamp = deadline.parse().unwrap();
    assert!(deadline > execution.started_at.unwrap());
    assert_eq!(asked.header("punctual-signature"), None);
}

#[tokio::test]
async fn a_retry_has_the_same_idempotency_key_and_a_job_may_bring_its_own() {
    let server = allowed();
    let web = Web::answering(Answer::status("503 Service Unavailable", "later")).await;
    run(&server, json!({"url": web.url("/")})).await;
    run(&server, json!({"url": web.url("/"), "headers": {"idempotency-key": "mine", "user-agent": "me"}}))
        .await;
    let asked = web.asked();
    assert_eq!(asked[0].header("idempotency-key"), asked[1].header("idempotency-key"));
    assert_eq!([0, 1].map(|n: usize| asked[n].header("punctual-attempt")), [Some("1"), Some("2")]);
    assert_eq!(asked[2].header("idempotency-key"), Some("mine"));
    assert_eq!(asked[2].header("user-agent"), Some("me"));
}

#[tokio::test]
async fn statuses_decide_over_success_retry_and_the_end() {
    let server = allowed();
    for (status, attempts_expected) in [
        ("429 Too Many Requests", 2),
        ("408 Request Timeout", 2),
        ("500 Internal Server Error", 2),
        ("400 Bad Request", 1),
        ("404 Not Found", 1),
    ] {
        let web = Web::answering(Answer::with_headers(status, "retry-after: 0\r\n", "so\nsorry")).await;
        let (error, attempts) = failure(&run(&server, json!({"url": web.url("/a?b=c")})).await);
        assert_eq!(attempts, attempts_expected, "{status}");
        let expected = format!("GET {} answered {status} (Retry-After: 0): so sorry", web.address);
        assert_eq!(error, expected);
        let attempts = run(&server, json!({"url": web.url("/"), "expect_status": ["2xx", "4xx", 500]})).await;
        assert_eq!(result(&attempts[0])["body"], "so\nsorry", "{status}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let server = allowed();
    let target = Web::answering(Answer::status("200 OK", "secret")).await;
    let location = format!("location: {}\r\n", target.url("/"));
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect"] {
        let web = Web::answering(Answer::with_headers(status, &location, "")).await;
        let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
        assert_eq!(attempts, 1);
        assert!(error.contains(&format!("answered {status}: redirects are not followed")), "{error}");
    }
    assert_eq!(target.connections(), 0);
}

#[tokio::test]
async fn a_server_that_never_answers_costs_the_time_limit_and_no_connection() {
    let server = allowed();
    let web = Web::answering(Answer::Hanging(b"")).await;
    let job = json!({"payload": {"url": web.url("/")}, "timeout_secs": 0.3});
    let attempts = run_job(&server, job).await;
    assert_eq!(attempts.iter().map(|a| a.status).collect::<Vec<_>>(), [ExecutionStatus::TimedOut; 2]);
    eventually("both connections are closed", async || web.hung_up() == 2).await;
}

#[tokio::test]
async fn of_an_endless_answer_the_beginning_is_kept() {
    let server = allowed();
    let web = Web::answering(Answer::Endless(b"HTTP/1.1 200 OK\r\n\r\n", &[b'x'; 65_536])).await;
    let attempts = run(&server, json!({"url": web.url("/")})).await;
    let result = result(&attempts[0]);
    assert_eq!(result["body_cut"], json!(true));
    assert_eq!(result["body"].as_str().unwrap().len(), punctual_core::limits::HTTP_RESPONSE_BYTES_MAX);
    eventually("the connection is closed", async || web.hung_up() == 1).await;
    // What the system's buffers hold; the rest was never read.
    assert!(web.bytes_written() < 32 << 20, "{}", web.bytes_written());
}

#[tokio::test]
async fn an_endless_error_page_and_endless_headers_end_too() {
    let server = allowed();
    let page: &[u8] = b"HTTP/1.1 404 Not Found\r\n\r\n";
    let web = Web::answering(Answer::Endless(page, &[b'x'; 65_536])).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 1);
    assert!(error.ends_with(" […]") && error.len() < 1_000, "{error}");

    let web = Web::answering(Answer::Endless(b"HTTP/1.1 200 OK\r\n", &[b'x'; 65_536])).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 2, "{error}");
    let web = Web::answering(Answer::Endless(b"HTTP/1.1 200 OK\r\n", b"x-more: of it\r\n")).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 2, "{error}");
    eventually("all are closed", async || web.hung_up() == 2).await;
}

#[tokio::test]
async fn an_error_page_that_hangs_is_not_waited_for() {
    let server = allowed();
    let page = b"HTTP/1.1 404 Not Found\r\ncontent-length: 100\r\n\r\nno such";
    let web = Web::answering(Answer::Hanging(page)).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 1);
    assert!(error.ends_with("answered 404 Not Found: no such […]"), "{error}");
}

#[tokio::test]
async fn what_breaks_off_is_tried_again() {
    let server = allowed();
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
    let web = Web::answering(Answer::Bytes(cut)).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 2);
    assert!(error.contains("answered 200 OK, but the body was interrupted"), "{error}");

    let web = Web::answering(Answer::Bytes(b"".to_vec())).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 2);
    assert!(error.contains("no answer: "), "{error}");

    let web = Web::answering(Answer::Bytes(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())).await;
    let (error, attempts) = failure(&run(&server, json!({"url": web.url("/")})).await);
    assert_eq!(attempts, 2, "{error}");

    // Nothing listens on a port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (error, attempts) = failure(&run(&server, json!({"url": format!("http://{free}/")})).await);
    assert_eq!(attempts, 2);
    assert!(error.contains(&format!("GET {free}: cannot connect: ")), "{error}");

    let (error, attempts) = failure(&run(&server, json!({"url": "http://nowhere.invalid/"})).await);
    assert_eq!(attempts, 2);
    assert!(error.starts_with("GET nowhere.invalid: cannot connect: "), "{error}");
}

#[tokio::test]
async fn without_leave_no_call_reaches_this_machine() {
    let server = Server::start();
    let web = Web::answering(Answer::status("200 OK", "secret")).await;
    let port = web.port();
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0", "[::ffff:127.0.0.1]", "[::1]"] {
        let attempts = run(&server, json!({"url": format!("http://{host}:{port}/")})).await;
        let (error, attempts) = failure(&attempts);
        assert_eq!(attempts, 1, "{host}: {error}");
        assert!(error.contains("the address ") && error.contains("--http-allow "), "{host}: {error}");
    }
    let (error, _) = failure(&run(&server, json!({"url": "https://169.254.169.254/latest/meta-data"})).await);
    assert!(error.contains("169.254.169.254 is link-local"), "{error}");
    assert_eq!(web.connections(), 0);
}

/// Every notation is refused when the job is submitted, or fails without a connection.
#[tokio::test]
async fn no_notation_of_this_machine_gets_a_call_through() {
    let server = Server::start();
    let web = Web::answering(Answer::status("200 OK", "secret")).await;
    let port = web.port();
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "127.0.0.1.",
        "127.127.127.127",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0177.0.0.0x1",
        "0x7f000001",
        "0x7F.0.0.1",
        "0x7f.0x0.0x0.0x1",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "\u{2460}\u{2461}\u{2466}.0.0.1",
        "0",
        "0.0.0.0",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ];
    let mut submitted = vec![];
    for host in hosts {
        for url in [format!("http://{host}:{port}/"), format!("http://1.1.1.1@{host}:{port}/")] {
            let job = json!({"name": "call", "job_type": "http", "max_retries": 0, "payload": {"url": url}});
            let (status, body) = server.post("/api/v1/jobs", &job.to_string()).await;
            match status {
                StatusCode::CREATED => {
                    submitted.push((url, body["job_id"].as_str().unwrap().parse().unwrap()))
                }
                status => assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{url}: {body}"),
            }
        }
    }
    assert!(submitted.len() > hosts.len() / 2, "most are right in form");
    for (url, id) in submitted {
        let job = server.client().wait(id).await.unwrap();
        let attempts = server.client().executions(job.job_id, None, None).await.unwrap().items;
        assert_eq!(attempts[0].status, ExecutionStatus::Failed, "{url}: {:?}", attempts[0]);
    }
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_host_is_allowed_by_name_and_port() {
    let web = Web::answering(Answer::status("200 OK", "hello")).await;
    let other = Web::answering(Answer::status("200 OK", "secret")).await;
    let server = Server::start_with(&["--http-allow", &format!("LocalHost:{}", web.port())]);
    let url = format!("http://localhost:{}/", web.port());
    assert_eq!(result(&run(&server, json!({"url": url})).await[0])["body"], "hello");
    for refused in [web.url("/"), format!("http://localhost:{}/", other.port())] {
        let (error, _) = failure(&run(&server, json!({"url": refused})).await);
        assert!(error.contains("--http-allow"), "{error}");
    }
    assert_eq!((web.connections(), other.connections()), (1, 0));
}

#[tokio::test]
async fn a_secret_that_is_no_url_fails_for_good_by_field() {
    let server = Server::start();
    let secret = json!({"value": "ftp://hunter2/", "owners": ["*"]}).to_string();
    let set = server.request(reqwest::Method::PUT, "/api/v1/secrets/address");
    let set = set.header("content-type", "application/json").body(secret).send().await.unwrap();
    assert!(set.status().is_success(), "{set:?}");
    let (error, attempts) = failure(&run(&server, json!({"url": {"$secret": "address"}})).await);
    assert_eq!((error.as_str(), attempts), ("payload.url must begin with http:// or https://", 1));
}

#[tokio::test]
async fn errors_tell_no_secrets() {
    let server = allowed();
    let web = Web::answering(Answer::status("403 Forbidden", "no")).await;
    let url = |address: &str| format!("http://zaphod:hunter2@{address}/hook/hunter2?token=hunter2#hunter2");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [web.address.to_string(), free.to_string(), "10.0.0.1".to_owned()] {
        let payload = json!({
            "url": url(&address), "headers": {"X-Api-Key": "hunter2"}, "sign": {"key": "hunter2"},
        });
        let (error, _) = failure(&run(&server, payload).await);
        assert!(!error.contains("hunter2") && !error.contains("zaphod"), "{error}");
        assert!(error.contains(&address), "{error}");
    }
    assert_eq!(web.asked()[0].header("authorization"), Some("Basic emFwaG9kOmh1bnRlcjI="));
    assert_eq!(web.asked()[0].line, "GET /hook/hunter2?token=hunter2 HTTP/1.1");
}

#[tokio::test]
async fn calls_are_signed_as_the_guide_verifies_them() {
    let directory = tempfile::tempdir().unwrap();
    let key_file = directory.path().join("key");
    std::fs::write(&key_file, "the server's key\n").unwrap();
    let key_file = key_file.to_str().unwrap();
    let server = Server::start_with(&["--http-allow", "127.0.0.1", "--http-signing-key-file", key_file]);
    let web = Web::answering(Answer::status("200 OK", "")).await;
    let payload = json!({"url": web.url("/"), "method": "POST", "body": {"amount": "12 €"}});
    run(&server, payload.clone()).await;
    let mut own = payload;
    own["sign"] = json!({"key": "the job's key"});
    run(&server, own).await;
    let asked = web.asked();
    for (asked, key) in asked.iter().zip(["the server's key", "the job's key"]) {
        let signature = asked.header("punctual-signature").unwrap();
        assert!(is_from_punctual(key, signature, &asked.body));
        assert!(!is_from_punctual("another key", signature, &asked.body));
        assert!(!is_from_punctual(key, signature, b"{\"amount\":\"99\"}"));
        let (_, code) = signature.split_once(',').unwrap();
        assert!(!is_from_punctual(key, &format!("t=1700000000,{code}"), &asked.body));
    }
}

/// The example of the guide.
fn is_from_punctual(key: &str, signature: &str, body: &[u8]) -> bool {
    const GUIDE: &str = include_str!("../../../../../docs/guides/web-calls.md");
    let (_, example) = GUIDE.split_once("```python\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    let program = format!(
        "{example}\nimport sys\nprint(is_from_punctual(sys.argv[1].encode(), sys.argv[2], sys.stdin.buffer.read()))"
    );
    let mut python = Command::new("python3")
        .args(["-c", &program, key, signature])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    python.stdin.take().unwrap().write_all(body).unwrap();
    let output = python.wait_with_output().unwrap();
    match output.stdout.trim_ascii() {
        b"True" => true,
        b"False" => false,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

#[tokio::test]
async fn a_certificate_must_be_trusted() {
    let (web, certificate) = Web::with_tls(Answer::status("200 OK", "hello")).await;
    let url = format!("https://localhost:{}/", web.port());
    let (error, attempts) = failure(&run(&allowed(), json!({"url": url})).await);
    assert_eq!(attempts, 2);
    assert!(error.contains("cannot connect: invalid peer certificate"), "{error}");
    assert!(web.asked().is_empty());

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    std::fs::write(&file, certificate).unwrap();
    let file = file.to_str().unwrap();
    let server = Server::start_with(&["--http-allow", "127.0.0.1/32", "--http-ca-file", file]);
    for host in ["localhost", "127.0.0.1"] {
        let attempts = run(&server, json!({"url": format!("https://{host}:{}/", web.port())})).await;
        assert_eq!(result(&attempts[0])["body"], "hello");
    }
}

#[test]
fn options_that_cannot_work_stop_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let empty = empty.to_str().unwrap();
    for (option, value, exit, said) in [
        ("--http-allow", "10.0.0.0/99", 2, "must be a network such as"),
        ("--http-signing-key-file", "/nowhere/key", 7, "--http-signing-key-file /nowhere/key: No such file"),
        ("--http-signing-key-file", empty, 7, "a signing key must not be empty"),
        ("--http-ca-file", empty, 7, "no certificate in PEM found"),
    ] {
        let data_dir = directory.path().join("data");
        let command = &mut Command::new(BINARY);
        let output = command.args(["serve", option, value, "--data-dir"]).arg(&data_dir).output().unwrap();
        assert_eq!(output.status.code(), Some(exit), "{option} {value}");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(said), "{error}");
        assert!(!data_dir.exists(), "nothing is left behind");
    }
}
