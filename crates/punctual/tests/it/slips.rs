//! Typical mistakes of users, and the messages about them: what was probably meant, and what to do.

use crate::redact::shown;
use crate::server::{BINARY, Server, eventually};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn has_workers(server: &Server) {
    let client = server.client();
    eventually("the worker is connected", async || !client.stats().await.unwrap().workers.is_empty()).await;
}

#[tokio::test]
async fn names_that_are_nearly_right_are_offered() {
    let server = Server::start();
    for name in ["nightly-report", "nightly-backup"] {
        let job = json!({"name": name, "job_type": "noop", "queue": "reports", "delay": "1d"});
        server.submit(job).await;
    }
    insta::assert_snapshot!("slip_name", shown(&server.cli(&["job", "show", "nightly-reprot"])));
    insta::assert_snapshot!("slip_pause", shown(&server.cli(&["job", "pause", "nightly-repotr"])));
    insta::assert_snapshot!("slip_list", shown(&server.cli(&["job", "list", "--queue", "report"])));
    insta::assert_snapshot!("slip_queue", shown(&server.cli(&["queue", "pause", "reprots"])));
    assert_eq!(server.cli(&["job", "list", "--queue", "other"]).stderr, b"");
    insta::assert_snapshot!("slip_queue_shown", shown(&server.cli(&["queue", "show", "reprots"])));
    let unlike = server.cli(&["queue", "show", "nope"]);
    assert_eq!(stderr(&unlike), "note: no job is in queue nope\n");
    assert_eq!(stderr(&server.cli(&["queue", "show", "reports"])), "");
}

#[tokio::test]
async fn a_job_can_be_named_by_a_part_of_its_id() {
    let server = Server::start();
    let ids = [
        server.submit(json!({"name": "a", "delay": "1d"})).await.to_string(),
        server.submit(json!({"name": "b", "delay": "1d"})).await.to_string(),
    ];
    // The end of an id is random, so the first differing character can be anywhere.
    let same = ids[0].bytes().zip(ids[1].bytes()).take_while(|(a, b)| a == b).count();
    for (id, name) in ids.iter().zip(["a", "b"]) {
        for part in [&id[..same + 1], &id[id.len() - 12..], &id[id.len() - 10..id.len() - 1]] {
            let job = server.said(&["job", "show", &part.to_uppercase(), "-o", "json"]);
            let job: serde_json::Value = serde_json::from_str(&job).unwrap();
            assert_eq!(job["name"], name, "{part}");
        }
    }
    if same >= 8 {
        let both = server.cli(&["job", "show", &ids[0][..same]]);
        assert_eq!(both.status.code(), Some(2));
        assert!(stderr(&both).contains("2 ids contain"), "{}", stderr(&both));
    }
    let short = server.cli(&["job", "show", &ids[0][..5]]);
    assert_eq!(short.status.code(), Some(5));
    assert!(stderr(&short).contains("a part of an id needs at least 6 characters"), "{}", stderr(&short));
    assert_eq!(server.cli(&["job", "show", "ffffffff"]).status.code(), Some(5));
}

#[tokio::test]
async fn a_job_that_nobody_can_run_is_taken_with_a_warning() {
    let server = Server::start();
    has_workers(&server).await;
    let submit = |options: &[&str]| server.cli(&[&["job", "submit", "x", "--delay", "1d"], options].concat());
    insta::assert_snapshot!("slip_type", shown(&submit(&["--type", "sleeep"])));
    insta::assert_snapshot!(
        "slip_shell",
        shown(&server.cli(&["job", "submit", "--shell", "date", "--delay", "1d"]))
    );
    assert_eq!(stderr(&submit(&["--type", "noop"])), "");
    let for_programs = submit(&["--type", "mine", "-o", "json"]);
    assert!(for_programs.status.success() && stderr(&for_programs).starts_with("warning: no worker has"));
    assert!(serde_json::from_slice::<serde_json::Value>(&for_programs.stdout).is_ok());
}

#[tokio::test]
async fn a_time_in_the_past_is_told_as_such() {
    let server = Server::start();
    has_workers(&server).await;
    let early = server.cli(&["job", "submit", "x", "--type", "noop", "--at", "2020-02-29T00:00:00Z"]);
    insta::assert_snapshot!("slip_past", shown(&early));
}

#[test]
fn command_lines_that_are_nearly_right_are_answered_with_right_ones() {
    for (line, said) in [
        ("jobs list", "'job'"),
        ("job sbmit x", "'submit'"),
        ("job submit x --prioritty high", "'--priority'"),
        ("job list -o jsno", "did you mean json?"),
        ("job show x -o jsno", "'json'"),
        ("job submit x --cron 30 2 * * MON-FRI", "such as --cron \"30 2 * * MON-FRI\""),
        ("job submit x --cron 30 2 Cargo.toml src Cargo.toml src", "put the cron expression in quotes"),
        ("schedule preview --cron 0 8 * * *", "such as --cron \"0 8 * * *\""),
        ("job submit x --timeout 10", "must have a unit, such as 10s"),
        ("job submit x --retry-steps 1m,5", "must have a unit, such as 5s"),
        ("job wait x --wait-timeout 10", "must have a unit, such as 10s"),
        ("job submit x --payload @/nonexistent", "cannot read /nonexistent"),
        ("job submit x --delay 1h1h", "must name each unit once, the longer before the shorter"),
        ("job submit x --end-at 9999-12-31T00:00:00Z", "must be before 9999-12-30T00:00:00Z"),
    ] {
        let refused = Command::new(BINARY).args(line.split(' ')).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{line}");
        assert!(stderr(&refused).contains(said), "{line}: {}", stderr(&refused));
    }
}

#[tokio::test]
async fn a_payload_comes_from_a_file_or_from_standard_input() {
    let server = Server::start();
    let file = server.data_dir().join("payload.json");
    std::fs::write(&file, "{\"ms\": 1}\n").unwrap();
    let named = format!("@{}", file.display());
    server.said(&["job", "submit", "nap", "--type", "sleep", "--payload", &named, "--wait"]);
    let mut updating = Command::new(BINARY)
        .args(["job", "update", "nap", "--payload", "@-", "--data-dir"])
        .arg(server.data_dir())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    updating.stdin.take().unwrap().write_all(b"{\"ms\": 2}").unwrap();
    assert!(updating.wait().unwrap().success());
    let job = server.said(&["job", "show", "nap"]);
    assert!(job.contains("{\"ms\":2}"), "{job}");
}

#[test]
fn what_is_not_punctual_is_told_as_such() {
    for (answer, said) in [
        ("501 Not Implemented", "(501 Not Implemented)"),
        ("404 Not Found", "(404 Not Found)"),
        ("200 OK", "(200 OK)"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let other = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0; 4096]).unwrap();
            let page = "<!DOCTYPE HTML>";
            let head = format!("HTTP/1.1 {answer}\r\ncontent-length: {}\r\nconnection: close", page.len());
            connection.write_all(format!("{head}\r\n\r\n{page}").as_bytes()).unwrap();
        });
        let line = ["job", "list", "--token", "pt_admin_x", "--server", &address];
        let failed = Command::new(BINARY).args(line).output().unwrap();
        other.join().unwrap();
        assert_eq!(failed.status.code(), Some(3), "{}", stderr(&failed));
        let expected = format!("error: the server at http://{address} is not Punctual {said}\n");
        assert!(stderr(&failed).starts_with(&expected), "{}", stderr(&failed));
    }
}

#[test]
fn answers_come_as_yaml_too() {
    let server = Server::start();
    let file = server.data_dir().join("jobs.yaml");
    std::fs::write(
        &file,
        "- name: no\n  delay: 1d\n  payload: {when: 1e3, z: 1, a: on}\n- name: b\n  delay: 1d\n",
    )
    .unwrap();
    server.said(&["job", "submit", "-f", file.to_str().unwrap()]);
    let job = server.said(&["job", "show", "no", "-o", "yaml"]);
    for line in ["name: \"no\"", "status: ACTIVE", "  a: \"on\"", "queue: default"] {
        assert!(job.lines().any(|shown| shown == line || shown == line.replace('"', "'")), "{line} in {job}");
    }
    let (job_id, name) = (job.find("job_id:").unwrap(), job.find("\nname:").unwrap());
    assert!(job_id < name, "{job}");
    for line in
        ["job list", "job history no", "job explain no", "queue list", "stats", "clock show", "dlq list"]
    {
        let told = server.said(&[&line.split(' ').collect::<Vec<_>>()[..], &["-o", "yaml"]].concat());
        assert!(told.contains(':') && !told.starts_with('{'), "{line}: {told}");
    }
}
