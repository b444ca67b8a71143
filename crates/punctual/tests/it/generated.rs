//! What is generated from the command-line definition: completions, manual, reference.

use crate::server::{BINARY, Server};
use serde_json::json;
use std::path::Path;
use std::process::Command;

fn said(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The completions that bash offers for the last of these words.
fn completed(script: &Path, words: &[&str]) -> Vec<String> {
    let (last, before) = words.split_last().unwrap();
    let line = format!(
        "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _clap_complete_punctual punctual '{last}' '{}'; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.join(" "),
        before.len(),
        before.last().unwrap(),
    );
    let output = Command::new("bash").args(["--norc", "-c", &line]).output().expect("bash");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("punctual.bash");
    std::fs::write(&script, said(&["completions", "bash"])).unwrap();
    assert_eq!(completed(&script, &["punctual", "compl"]), ["completions"]);
    assert_eq!(completed(&script, &["punctual", "job", "sub"]), ["submit"]);
    assert_eq!(completed(&script, &["punctual", "job", "submit", "--misfire-p"]), ["--misfire-policy"]);
    assert_eq!(completed(&script, &["punctual", "job", "list", "--output", "y"]), ["yaml"]);
    assert_eq!(completed(&script, &["punctual", "job", "list", "--status", "fa"]), ["failed"]);
    assert_eq!(completed(&script, &["punctual", "executions", "list", "--status", "tim"]), ["timed_out"]);
    assert_eq!(completed(&script, &["punctual", "job", "submit", "--misfire-policy", "run_a"]), ["run_all"]);
}

#[tokio::test]
async fn names_are_completed_from_the_server() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("punctual.bash");
    std::fs::write(&script, said(&["completions", "bash"])).unwrap();
    server.submit(json!({"name": "nightly", "job_type": "report", "queue": "bulk", "delay": "1h"})).await;
    server.submit(json!({"name": "night shift", "delay": "1h"})).await;
    server.client().pause_queue("mail").await.unwrap();
    let data_dir = server.data_dir().to_str().unwrap().to_owned();
    let offered = |words: &[&str]| {
        let (command, rest) = words.split_at(2);
        completed(&script, &[["punctual"].as_slice(), command, &["--data-dir", &data_dir], rest].concat())
    };
    assert_eq!(offered(&["job", "show", "nig"]), ["nightly"], "a shell would split the other name");
    assert_eq!(offered(&["queue", "show", "ma"]), ["mail"]);
    assert_eq!(offered(&["job", "list", "--queue", "ma"]), ["mail"]);
    assert_eq!(offered(&["job", "list", "--type", "rep"]), ["report"]);
    assert_eq!(offered(&["workers", "pause", "emb"]), ["embedded"]);
    let calendar = json!({"entries": [{"weekdays": ["SAT"]}]});
    let channel = json!({"type": "slack", "url": "https://hooks.slack.example/T0/private"});
    for (path, body) in [("calendars/holidays", calendar), ("channels/ops", channel)] {
        let request = server.request(reqwest::Method::PUT, &format!("/api/v1/{path}")).json(&body);
        assert!(request.send().await.unwrap().status().is_success(), "{path}");
    }
    assert_eq!(offered(&["job", "submit", "--calendar", "ho"]), ["holidays"]);
    assert_eq!(offered(&["calendar", "show", "ho"]), ["holidays"]);
    assert_eq!(offered(&["job", "submit", "--notify", "fail"]), ["failure=ops"]);
    let paused =
        server.said(&["job", "pause", "--all", "--name", "nightly", "--yes", "--detach", "-o", "json"]);
    let operation = serde_json::from_str::<serde_json::Value>(&paused).unwrap()["operation_id"].clone();
    let operation = operation.as_str().unwrap();
    assert_eq!(offered(&["operations", "show", &operation[..8]]), [operation]);
    // Without a server there is nothing to offer, and no error.
    let away = ["punctual", "job", "show", "--server", "127.0.0.1:1", "nig"];
    assert_eq!(completed(&script, &away), [""]);
}

#[test]
fn every_shell_has_its_script() {
    for (shell, sign) in [
        ("zsh", "#compdef punctual"),
        ("fish", "--command punctual"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion:arg-completer[punctual]"),
    ] {
        let script = said(&["completions", shell]);
        assert!(script.contains(sign) && script.contains("_PUNCTUAL_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn the_manual_has_a_page_per_command_without_a_flaw() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("man1");
    let told = said(&["man", dir.to_str().unwrap()]);
    let mut pages: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|page| page.unwrap().path()).collect();
    pages.sort();
    assert!(told.starts_with(&format!("wrote {} pages to", pages.len())), "{told}");
    let names: Vec<_> = pages.iter().map(|page| page.file_name().unwrap().to_str().unwrap()).collect();
    assert!(names.contains(&"punctual.1") && names.contains(&"punctual-job-submit.1"), "{names:?}");
    assert!(said(&["man"]).contains("EXIT STATUS"));
    // Groff comes with every `man`; only a machine without both cannot check the pages.
    let has_groff = Command::new("groff").arg("--version").output().is_ok();
    assert!(has_groff || std::env::var_os("CI").is_none(), "groff is needed");
    for page in pages.iter().filter(|_| has_groff) {
        let checked =
            Command::new("groff").args(["-k", "-man", "-ww", "-z", "-Tutf8"]).arg(page).output().unwrap();
        assert!(checked.stderr.is_empty(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn the_reference_page_is_that_of_this_binary() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let committed = std::fs::read_to_string(page).unwrap_or_default();
    // Not with `assert_eq`, which would print both.
    assert!(committed == said(&["reference"]), "generate it: punctual reference > docs/reference/cli.md");
}
