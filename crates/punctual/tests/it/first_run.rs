//! The first start: its output, and what it rejects.

use crate::server::{BINARY, PATIENCE, Server};
use punctual_client::SubmitJob;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

/// A server in a working directory, with its output.
struct Started {
    child: Child,
    /// Its output, with the address replaced by that of the README.
    said: String,
}

impl Started {
    fn in_directory(dir: &Path, options: &[&str]) -> Self {
        let mut child = Command::new(BINARY)
            .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(options)
            .current_dir(dir)
            .env_remove("PUNCTUAL_DATA_DIR")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut said = String::new();
        let mut stdout = BufReader::new(child.stdout.as_mut().expect("stdout is piped"));
        while !said.contains("punctual top") {
            assert_ne!(stdout.read_line(&mut said).expect("a line"), 0, "it ended after {said}");
        }
        let address = said.lines().next().and_then(|line| line.rsplit("http://").next()).expect("an address");
        let said = said.replace(address, "127.0.0.1:7070");
        Started { child, said }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_says_where_everything_is_and_what_to_try_as_the_readme_shows() {
    let directory = tempfile::tempdir().unwrap();
    let started = Started::in_directory(directory.path(), &[]);
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    assert!(readme.contains(&started.said), "the README does not show this:\n{}", started.said);
    let token = std::fs::read_to_string(directory.path().join("punctual-data/admin.token")).unwrap();
    assert!(!started.said.contains(token.trim()) && !started.said.contains('\u{1b}'), "{}", started.said);
}

#[test]
fn what_to_try_works_where_the_server_was_started() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("punctual.toml"), "data_dir = \"mine\"").unwrap();
    let started = Started::in_directory(directory.path(), &[]);
    assert!(started.said.contains("\n  config punctual.toml\n"), "{}", started.said);
    assert!(
        started.said.contains("\n  try    punctual job submit hello --type noop --wait\n"),
        "{}",
        started.said
    );
    try_hello(directory.path(), &started.said);
    let started = Started::in_directory(directory.path(), &["--data-dir", "an other"]);
    assert!(started.said.contains("--wait --data-dir 'an other'\n"), "{}", started.said);
    try_hello(directory.path(), &started.said);
    std::fs::write(directory.path().join("third.toml"), "data_dir = \"third\"").unwrap();
    let started = Started::in_directory(directory.path(), &["--config", "third.toml"]);
    assert!(started.said.contains("--wait --config third.toml\n"), "{}", started.said);
    try_hello(directory.path(), &started.said);
}

/// Runs the first command that a server suggests.
fn try_hello(dir: &Path, said: &str) {
    let line =
        said.lines().find_map(|line| line.trim_start().strip_prefix("try ")).expect("something to try");
    let line = line.trim_start().strip_prefix("punctual ").expect("a command of ours");
    let output =
        Command::new("sh").args(["-c", &format!("'{BINARY}' {line}")]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn serve(dir: &Path) -> Output {
    let options = ["serve", "--listen", "127.0.0.1:0", "--data-dir"];
    Command::new(BINARY).args(options).arg(dir).stdin(Stdio::null()).output().expect("the binary starts")
}

#[test]
fn a_token_file_that_holds_none_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("admin.token");
    let refused = || {
        let refused = serve(directory.path());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(7), "{said}");
        assert!(said.contains(&format!("{} does not contain an admin token", file.display())), "{said}");
        assert!(said.contains("delete the file"), "{said}");
    };
    for text in ["hello", "pt_admin_", "pt_admin_tooshort", "pt_other_0123456789abcdef0123456789abcdef"] {
        std::fs::write(&file, text).unwrap();
        refused();
    }
    std::fs::remove_file(&file).unwrap();
    assert!(Server::start_in(directory.path(), &[]).stop().success());
    // Nor later, when the server knows the valid token.
    std::fs::write(&file, "hello").unwrap();
    refused();
}

#[test]
fn a_token_may_be_there_before_the_first_start() {
    let directory = tempfile::tempdir().unwrap();
    let token = format!("pt_admin_{}", "0123456789abcdef".repeat(2));
    std::fs::write(directory.path().join("admin.token"), format!("{token}\n")).unwrap();
    let server = Server::start_in(directory.path(), &[]);
    assert_eq!(server.token, token);
    server.said(&["job", "list"]);
}

#[tokio::test]
async fn a_full_disk_does_not_flood_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    // With the signal ignored, a write beyond the limit is an error, as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 512; exec \"$0\" \"$@\" 2>'{}'", log.display());
    let server = Server::start_through(&["bash", "-c", &script, BINARY], &directory.path().join("data"));
    let client = server.client();
    let large = SubmitJob {
        delay: Some("1h".parse().unwrap()),
        ..SubmitJob::named("large").with_payload(&"x".repeat(10_000)).unwrap()
    };
    let (start, mut refusals) = (Instant::now(), 0);
    while refusals < 50 {
        refusals += usize::from(client.submit(&large).await.is_err());
        assert!(start.elapsed() < PATIENCE, "the disk never gets full");
    }
    server.kill();
    let log = std::fs::read_to_string(log).unwrap();
    let told = log.lines().filter(|line| line.contains("a request failed")).count();
    // Once for each pause that the test may have taken, on a machine of any speed.
    assert!(
        told >= 1 && told <= 1 + usize::try_from(start.elapsed().as_secs() / 30).unwrap(),
        "{told}:\n{log}"
    );
}

#[test]
fn a_directory_whose_database_is_gone_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Server::start_in(directory.path(), &[]).stop().success());
    for lost in ["punctual.db", "logs.db"] {
        std::fs::remove_file(directory.path().join(lost)).unwrap();
        let refused = serve(directory.path());
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(7), "{said}");
        assert!(said.contains("restore punctual.db and logs.db from a backup, or move"), "{said}");
        assert!(!directory.path().join("punctual.db").exists(), "it was not created again");
        let doctor =
            Command::new(BINARY).args(["doctor", "--data-dir"]).arg(directory.path()).output().unwrap();
        let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert_eq!(doctor.status.code(), Some(1), "{found}");
        assert!(found.contains("✗  store"), "{found}");
    }
}
