//! Workers written with the Rust SDK.

use crate::server::{Server, eventually};
use crate::worker_protocol::{finished, only_execution};
use punctual_client::worker::{Context, HandlerError, Worker, WorkerError};
use punctual_client::{Client, ExecutionStatus};
use punctual_core::job::JobStatus;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

#[path = "../../../client/examples/worker.rs"]
#[expect(dead_code, reason = "its main is for people; a test runs the worker itself")]
mod example;

#[tokio::test]
async fn the_rust_example_runs_a_typed_job() {
    let server = Server::start();
    let client = server.client();
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = tokio::spawn(example::worker(client.clone()).run_until(async {
        let _ = stopped.await;
    }));
    let job = json!({"name": "ImageProcessing", "payload": {"imageUrl": "http://img.com/1.png"}});
    let job = server.submit(job).await;
    assert_eq!(finished(&client, job).await.status, JobStatus::Completed);
    let execution = only_execution(&client, job).await;
    assert_eq!(execution.worker_id.as_deref(), Some("example"));
    let result: Value = serde_json::from_str(execution.result.unwrap().get()).unwrap();
    assert_eq!(result, json!({"file": "1.png", "attempt": 1, "key": format!("{job}.1")}));
    let logs = client.execution_logs(execution.execution_id, None, None).await.unwrap();
    assert_eq!(logs.items[0].message, "processing 1.png");
    let misfit = server.submit(json!({"name": "ImageProcessing", "payload": {"url": 1}})).await;
    assert_eq!(finished(&client, misfit).await.status, JobStatus::Failed);
    let error = only_execution(&client, misfit).await.error_message.unwrap();
    assert!(error.contains("missing field `imageUrl`"), "{error}");
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
    let workers = client.stats().await.unwrap().workers;
    assert!(workers.iter().all(|worker| worker.worker_id != "example"), "it has closed its session");
}

#[tokio::test]
async fn a_cancel_ends_a_rust_handler_and_tells_what_it_has_spawned() {
    let server = Server::start();
    let client = server.client();
    let (started, mut starts) = mpsc::unbounded_channel();
    let worker = Worker::builder(client.clone())
        .lease(std::time::Duration::from_secs(10))
        .queue("slow")
        .handler("wait", move |context: Context, (): ()| {
            started.send(context.cancellation()).unwrap();
            std::future::pending::<Result<(), HandlerError>>()
        })
        .build();
    let worker = tokio::spawn(worker.run());
    let elsewhere = server.submit(json!({"name": "wait"})).await;
    let job = server.submit(json!({"name": "wait", "queue": "slow"})).await;
    let cancellation = starts.recv().await.unwrap();
    client.cancel(job).await.unwrap();
    cancellation.cancelled().await;
    let reported = async || only_execution(&client, job).await.status == ExecutionStatus::Cancelled;
    eventually("the end is reported", reported).await;
    assert_eq!(only_execution(&client, elsewhere).await.status, ExecutionStatus::Queued);
    worker.abort();
}

#[tokio::test]
async fn a_rust_worker_that_the_server_refuses_says_why() {
    let server = Server::start();
    let stranger = Client::new(&server.address, "pt_admin_00000000").unwrap();
    match example::worker(stranger).run().await {
        Err(WorkerError::Refused(error)) => assert_eq!(error.problem().unwrap().status, 401),
        other => panic!("{other:?}"),
    }
    match Worker::builder(server.client()).build().run().await {
        Err(WorkerError::Refused(error)) => {
            assert_eq!(error.problem().unwrap().errors[0].field, "job_types");
        }
        other => panic!("{other:?}"),
    }
}
