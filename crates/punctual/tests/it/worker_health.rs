//! Workers report their condition, refuse work that their machine could not carry, and get more slots while
//! more work waits.

use crate::server::{BINARY, Server, eventually};
use punctual_client::{ConditionBody, ExecutionStatus};
use punctual_core::job::JobStatus;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// `punctual worker` for a server. Killed on drop.
struct Remote(Child);

impl Remote {
    fn start(server: &Server, options: &[&str]) -> Self {
        let child = Command::new(BINARY)
            .args(["worker", "--server", &server.address, "--log-level", "off", "--data-dir"])
            .arg(server.data_dir())
            .args(options)
            .stdout(Stdio::null())
            .spawn();
        Remote(child.expect("the binary starts"))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A worker's condition, as soon as it matches.
async fn told(server: &Server, worker: &str, is_it: impl Fn(&ConditionBody) -> bool) -> ConditionBody {
    let mut told = None;
    eventually("the worker says so", async || {
        told = server.client().worker(worker).await.ok().and_then(|worker| worker.condition);
        told.as_ref().is_some_and(&is_it)
    })
    .await;
    told.expect("it was just there")
}

#[tokio::test]
async fn a_worker_says_how_it_and_its_machine_are() {
    let server = Server::start_with(&["--slots", "3"]);
    let job = server.submit(json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 60_000}})).await;
    let is_complete = |told: &ConditionBody| {
        told.running == 1 && told.cpu_percent.is_some() && told.round_trip_ms.is_some()
    };
    let embedded = told(&server, "embedded", is_complete).await;
    assert_eq!((embedded.slots, embedded.slots_min, embedded.ready), (3, None, 0));
    assert!(
        embedded.memory_free_bytes <= embedded.memory_total_bytes && embedded.memory_total_bytes > Some(0)
    );
    assert!(embedded.disk_free_bytes <= embedded.disk_total_bytes && embedded.disk_total_bytes > Some(0));
    assert_eq!((embedded.refuses.len(), embedded.last_error), (0, None));

    let _remote = Remote::start(&server, &["--worker-name", "remote", "--slots", "2..5"]);
    let remote = told(&server, "remote", |told| told.memory_free_bytes.is_some()).await;
    assert_eq!((remote.slots, remote.slots_min, remote.slots_max), (2, Some(2), Some(5)));
    let said = server.said(&["workers", "list"]);
    assert!(said.contains("0/2 (2..5)") && said.contains("1/3") && said.contains(" free"), "{said}");
    let (_, metrics) = server.get("/metrics").await;
    let metrics = metrics.as_str().expect("text").to_owned();
    assert!(metrics.contains("punctual_worker_slots 5\n"), "{metrics}");
    assert!(metrics.contains("punctual_workers_refusing 0\n"), "{metrics}");
    server.client().cancel(job).await.unwrap();
}

#[tokio::test]
async fn a_worker_without_room_refuses_work_and_another_one_takes_it() {
    // No machine has nearly all of its memory free while it runs a server.
    let server = Server::start_with(&["--worker-memory-free-min", "99%"]);
    let client = server.client();
    let refusing = told(&server, "embedded", |told| !told.refuses.is_empty()).await;
    assert!(
        refusing.refuses[0].starts_with("memory: ") && refusing.refuses[0].ends_with("less than 99%"),
        "{refusing:?}"
    );
    let job = server.submit(json!({"name": "hello", "job_type": "noop"})).await;
    let execution = job.occurrence(1).attempt(1);
    let (_, explained) = server.get(&format!("/api/v1/jobs/{job}/explain")).await;
    let summary = explained["summary"].as_str().expect("a summary");
    assert!(
        summary.starts_with("Worker embedded, the only one with its handler, refuses work until")
            && summary.contains("less than 99%"),
        "{explained}"
    );
    assert_eq!(explained["advice"], json!([]));
    assert_eq!(client.execution(execution).await.unwrap().status, ExecutionStatus::Queued);
    let reason = client.job(job).await.unwrap().status_reason.expect("a reason");
    assert!(reason.contains("embedded refuses work (memory: "), "{reason}");
    assert!(server.said(&["workers", "list"]).contains("refuses work: memory: "));
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.as_str().expect("text").contains("punctual_workers_refusing 1\n"), "{metrics}");

    let _remote = Remote::start(&server, &["--worker-name", "remote", "--worker-memory-free-min", "off"]);
    assert_eq!(client.wait(job).await.unwrap().status, JobStatus::Completed);
    assert_eq!(client.execution(execution).await.unwrap().worker_id.as_deref(), Some("remote"));
}

#[tokio::test]
async fn a_worker_has_more_slots_while_more_waits() {
    let server = Server::start_with(&["--slots", "2..8"]);
    let nap = json!({"name": "nap", "job_type": "sleep", "payload": {"ms": 600_000}, "timeout_secs": 900});
    let naps: Vec<Value> = std::iter::repeat_n(nap, 8).collect();
    let (status, body) = server.post("/api/v1/jobs/batch", &json!({"jobs": naps}).to_string()).await;
    assert!(status.is_success(), "{body}");
    let grown = told(&server, "embedded", |told| told.running == 8).await;
    assert_eq!((grown.slots, grown.slots_min, grown.slots_max), (8, Some(2), Some(8)));
    assert!(server.said(&["workers", "list"]).contains("8/8 (2..8)"));
}

#[tokio::test]
async fn a_worker_in_any_language_says_how_it_is_with_its_heartbeats() {
    let server = Server::start();
    let open = json!({"worker": "py", "job_types": ["report"], "slots": 4}).to_string();
    let (_, session) = server.post("/api/v1/worker/sessions", &open).await;
    let session = &session["session"];
    let beat = async |beat: u64, condition: Value| {
        let body = json!({"session": session, "beat": beat, "condition": condition}).to_string();
        server.post("/api/v1/worker/heartbeat", &body).await
    };
    let condition =
        json!({"slots": 6, "running": 2, "cpu_percent": 40, "refuses": ["the printer is on fire"]});
    assert_eq!(beat(1, condition).await.0, 200);
    let said = told(&server, "py", |told| told.slots == 6).await;
    assert_eq!((said.running, said.cpu_percent, said.memory_free_bytes), (2, Some(40), None));
    assert_eq!(server.client().worker("py").await.unwrap().slots, 6);
    let job = server.submit(json!({"name": "report"})).await;
    let reason = server.client().job(job).await.unwrap().status_reason.expect("a reason");
    assert!(reason.contains("py refuses work (the printer is on fire)"), "{reason}");

    for (wrong, field) in [
        (json!({"slots": 0}), "condition.slots"),
        (json!({"slots": 1, "cpu_percent": 101}), "condition.cpu_percent"),
        (json!({"slots": 1, "refuses": [""]}), "condition.refuses[0]"),
        (json!({"slots": 1, "address": "x".repeat(1_000)}), "condition.address"),
    ] {
        let (status, problem) = beat(2, wrong).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["field"]), (422, &json!(field)), "{problem}");
    }
    let (status, demand) =
        server.post("/api/v1/worker/demand", &json!({"job_types": ["report"]}).to_string()).await;
    assert_eq!((status.as_u16(), &demand["queued"]), (200, &json!(1)), "{demand}");
    let (_, demand) = server
        .post("/api/v1/worker/demand", &json!({"job_types": ["report"], "queues": ["other"]}).to_string())
        .await;
    assert_eq!(demand, json!({"queued": 0, "oldest_wait_secs": 0}));
}
