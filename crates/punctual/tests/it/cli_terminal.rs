//! Text of jobs and clients cannot take over the reader's terminal.

use crate::server::{BINARY, Server};
use crate::terminal::Terminal;
use serde_json::json;
use std::process::Command;

/// Sets the window title, clears the screen, and colours a word.
const SCRIPT: &str = r"printf '\033]0;pwn\007\033[2J\033[31mred\033[0m \302\23331m  \n'";
const WRITTEN: &str = "\u{1b}]0;pwn\u{7}\u{1b}[2J\u{1b}[31mred\u{1b}[0m \u{9b}31m  \n";

#[tokio::test]
async fn logs_reach_a_terminal_without_their_control_sequences_and_a_pipe_as_they_are() {
    let server = Server::start_with(&["--allow", "shell"]);
    let job =
        server.submit(json!({"name": "rude", "job_type": "shell", "payload": {"script": SCRIPT}})).await;
    server.client().wait(job).await.unwrap();
    let data_dir = server.data_dir().to_str().unwrap();
    for follow in [&["job", "logs", "rude"][..], &["job", "logs", "rude", "-f"]] {
        assert_eq!(server.said(follow), WRITTEN, "{follow:?}");
        let mut terminal = Terminal::start(&[follow, &["--data-dir", data_dir]].concat());
        terminal.waits_for("\\u{1b}]0;pwn\\u{7}\\u{1b}[2J\u{1b}[31mred\u{1b}[0m \\u{9b}31m");
        assert!(terminal.ended().success());
        assert!(!terminal.drawn.contains("\u{1b}[2J") && !terminal.drawn.contains('\u{7}'));
    }
}

#[tokio::test]
async fn text_that_reads_as_other_text_is_spelled_out_and_json_keeps_it() {
    let server = Server::start();
    let text = "pay\u{202e}lla\u{2066}\u{200b}\u{2028}";
    // Names cannot contain such characters; the output of handlers and the text of clients can.
    server.submit(json!({"name": "plain", "job_type": "nobody", "payload": {"note": text}})).await;
    let said = server.said(&["job", "show", "plain"]);
    assert!(!said.contains(['\u{202e}', '\u{2066}', '\u{200b}', '\u{2028}']), "{said}");
    assert!(said.contains("202e"), "{said}");
    let said = server.said(&["job", "show", "plain", "-o", "json"]);
    assert!(said.contains(r"pay\u202ella") && !said.contains('\u{202e}'), "{said}");
    let read: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(read["payload"]["note"], text);
}

#[test]
fn errors_spell_out_what_they_repeat() {
    let server = Server::start();
    let sequence = "a\u{1b}[2J\nb";
    for line in [
        &["job", "show", sequence][..],
        &["job", "pause", sequence],
        &["job", "list", sequence],
        &["job", "submit", "x", "--priority", sequence],
        &["job", "list", "--server", sequence],
    ] {
        let output = server.cli(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(r"a\u{1b}[2J") && !said.contains('\u{1b}'), "{line:?}: {said:?}");
    }
    let mut terminal = Terminal::start(&["job", "list", sequence]);
    terminal.waits_for(r"a\u{1b}[2J\nb");
    assert_eq!(terminal.ended().code(), Some(2));
    assert!(!terminal.drawn.contains("\u{1b}[2J"));
    let help = Command::new(BINARY).args(["job", "--help"]).output().unwrap();
    assert!(help.status.success() && help.stderr.is_empty());
}
