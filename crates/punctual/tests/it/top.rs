//! `punctual top` on a real terminal, against a real server.

use crate::server::{BINARY, Server};
use crate::terminal::Terminal;
use serde_json::json;
use std::process::Command;

/// The sequence that restores the previous screen.
const LEAVES_SCREEN: &str = "\u{1b}[?1049l";

#[tokio::test]
async fn the_live_view_shows_what_runs_and_says_when_the_server_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("data");
    let server = Server::start_in(&data_dir, &[]);
    server.submit(json!({"name": "long-nap", "job_type": "sleep", "payload": {"ms": 3_600_000}})).await;
    let mut top = Terminal::start(&["top", "--interval", "100ms", "--data-dir", data_dir.to_str().unwrap()]);
    for text in ["Queues", "Workers", "Running", "long-nap"] {
        top.waits_for(text);
    }
    let address = server.address.clone();
    server.kill();
    top.waits_for("reconnecting");
    let mut again = Command::new(BINARY);
    again.args(["serve", "--log-level", "error", "--listen", &address, "--data-dir"]).arg(&data_dir);
    let mut again = again.stdout(std::process::Stdio::null()).spawn().unwrap();
    top.waits_for("live");
    top.press("?");
    top.waits_for("Keys");
    top.press("xq");
    let status = top.ended();
    again.kill().unwrap();
    again.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(top.drawn.ends_with(LEAVES_SCREEN) || top.drawn.contains(LEAVES_SCREEN), "{:?}", top.drawn);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let server = Server::start();
    let mut top = Terminal::start(&["top", "--data-dir", server.data_dir().to_str().unwrap()]);
    top.waits_for("Queues");
    top.terminate();
    let status = top.ended();
    assert!(status.success(), "{status}");
    assert!(top.drawn.contains(LEAVES_SCREEN), "{:?}", top.drawn);
}

#[tokio::test]
async fn what_a_handler_says_of_its_progress_is_seen_by_all_who_look() {
    let server = Server::start_with(&["--allow", "shell"]);
    let script = r#"echo '{"percent": 40.5, "message": "copying"}' >"$PUNCTUAL_NOTES"; sleep 1000"#;
    let job = json!({"name": "copy", "job_type": "shell", "payload": {"script": script}, "queue": "disks"});
    let job = server.submit(job).await;
    let data_dir = server.data_dir().to_str().unwrap();
    let mut waiting = Terminal::start(&["job", "wait", &job.to_string(), "--data-dir", data_dir]);
    waiting.waits_for("40% copying");
    let listed = server.said(&["executions", "list", "--queue", "disks"]);
    assert!(listed.contains("RUNNING") && listed.contains("40% copying"), "{listed}");
    assert_eq!(server.said(&["executions", "list", "--queue", "mail"]).trim(), "no executions");
    let frame = server.said(&["top", "--once", "--interval", "100ms"]);
    assert!(frame.contains("40% copying") && frame.contains(", up "), "{frame}");
    server.client().cancel(job).await.unwrap();
    assert_eq!(waiting.ended().code(), Some(1));
}

#[tokio::test]
async fn one_frame_is_text_for_pipes() {
    let server = Server::start();
    server.submit(json!({"name": "long-nap", "job_type": "sleep", "payload": {"ms": 3_600_000}})).await;
    let frame = server.said(&["top", "--once", "--interval", "100ms"]);
    assert!(frame.starts_with("punctual ") && frame.contains("long-nap"), "{frame}");
    assert!(!frame.contains('\u{1b}'), "{frame}");
    let refused = server.cli(&["top"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("top --once"));
}
