//! Scale hooks: which hook is notified that a queue is long, when, by which process, and what happens to
//! hooks that fail.

use crate::cluster::{Cluster, Process};
use crate::http::web::{Answer, Web};
use crate::segments::shared_by;
use crate::server::{BINARY, Server, eventually};
use punctual_core::ids::JobId;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A file of hooks, and their output.
struct Hooks {
    folder: TempDir,
}

impl Hooks {
    fn new() -> Self {
        Hooks { folder: tempfile::tempdir().unwrap() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("hooks.toml")
    }

    /// A command that appends its input to a file named after its hook.
    fn recording(&self, name: &str) -> String {
        let file = self.folder.path().join(name);
        format!("command = [\"sh\", \"-c\", 'cat >> \"$1\"', \"hook\", \"{}\"]", file.display())
    }

    fn write(&self, hooks: &[String]) -> &Self {
        std::fs::write(self.file(), hooks.join("\n")).unwrap();
        self
    }

    /// The notifications of a recording hook.
    fn told(&self, name: &str) -> Vec<String> {
        let written = std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        written.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(str::to_owned).collect()
    }

    /// A server with these hooks, which writes its log to a file.
    fn server(&self) -> Server {
        let hooks = format!("PUNCTUAL_SCALING_HOOKS_FILE={}", self.file().display());
        let script = format!("exec \"$@\" 2>{}", self.log_file().display());
        let launcher = ["env", &hooks, "sh", "-c", &script, "sh", BINARY];
        Server::start_through(&launcher, &self.folder.path().join("data"))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap()
    }
}

fn hook(name: &str, lines: &[&str]) -> String {
    format!("[[hook]]\nname = \"{name}\"\n{}\n", lines.join("\n"))
}

/// Jobs without a handler, so that they stay queued.
async fn fill(server: &Server, queue: &str, count: usize) {
    let jobs: Vec<Value> = (0..count).map(|_| json!({"name": "report", "queue": queue})).collect();
    let (status, body) = server.post("/api/v1/jobs/batch", &json!({"jobs": jobs}).to_string()).await;
    assert!(status.is_success(), "{body}");
}

#[tokio::test]
async fn a_hook_is_told_of_a_queue_that_stays_long_and_not_again_until_it_has_cooled_down() {
    let hooks = Hooks::new();
    let names = ["often", "seldom", "later", "deeper", "elsewhere"];
    let [often, seldom, later, deeper, elsewhere] = names.map(|name| hooks.recording(name));
    hooks.write(&[
        hook(
            "often",
            &["queue = \"images\"", "depth_above = 4", "for = \"1s\"", "cool_down = \"1s\"", &often],
        ),
        hook("seldom", &["queue = \"images\"", "depth_above = 4", "for = \"1s\"", &seldom]),
        hook("later", &["queue = \"images\"", "depth_above = 4", "for = \"1h\"", &later]),
        hook("deeper", &["queue = \"images\"", "depth_above = 5", "for = \"0s\"", &deeper]),
        hook("elsewhere", &["queue = \"mail\"", "depth_above = 0", "for = \"0s\"", &elsewhere]),
    ]);
    let server = hooks.server();
    fill(&server, "images", 5).await;
    // A hook that may be notified every second shows that there was time to notify the others.
    eventually("the hook with the short cooldown runs again", async || hooks.told("often").len() >= 4).await;
    assert_eq!(hooks.told("seldom").len(), 1);
    for name in ["later", "deeper", "elsewhere"] {
        assert_eq!(hooks.told(name), [""; 0], "{name}");
    }
    let told: Value = serde_json::from_str(&hooks.told("seldom")[0]).unwrap();
    let wait = told["oldest_wait_secs"].as_f64().unwrap();
    assert!(wait >= 1.0, "it lasted that long: {told}");
    let slots = server.client().workers().await.unwrap().items[0].slots;
    // As many as there are, or as there is work for.
    let expected = json!({
        "hook": "seldom", "queue": "images", "queued": 5, "running": 0, "oldest_wait_secs": wait,
        "workers": 1, "slots": slots, "desired_slots": 5,
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn what_a_paused_queue_holds_is_told_to_nobody() {
    let hooks = Hooks::new();
    let [paused, all] = ["paused", "all"].map(|name| hooks.recording(name));
    hooks.write(&[
        hook("paused", &["queue = \"images\"", "depth_above = 0", "for = \"0s\"", &paused]),
        hook("all", &["depth_above = 0", "for = \"0s\"", "cool_down = \"1s\"", &all]),
    ]);
    let server = hooks.server();
    server.client().pause_queue("images").await.unwrap();
    fill(&server, "images", 5).await;
    fill(&server, "mail", 2).await;
    eventually("the hook runs for the other queue", async || hooks.told("all").len() >= 3).await;
    assert_eq!(hooks.told("paused"), [""; 0]);
    for line in hooks.told("all") {
        let told: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&told["queue"], &told["queued"]), (&Value::Null, &json!(2)), "{told}");
    }
}

#[tokio::test]
async fn a_web_hook_that_fails_is_told_again_and_the_log_says_why_without_its_secrets() {
    let hooks = Hooks::new();
    let (web, certificate) = Web::with_tls(Answer::status("500 Internal Server Error", "")).await;
    let ca = hooks.folder.path().join("ca.pem");
    std::fs::write(&ca, certificate).unwrap();
    let url = format!("url = \"https://ann:topsecret@localhost:{}/scale/token-17\"", web.port());
    let ca = format!("ca = \"{}\"", ca.display());
    hooks.write(&[hook("more", &["depth_above = 0", "for = \"0s\"", "cool_down = \"1s\"", &url, &ca])]);
    let server = hooks.server();
    fill(&server, "images", 3).await;
    eventually("it is called again", async || web.asked().len() >= 2).await;
    let asked = &web.asked()[0];
    assert_eq!(asked.line, "POST /scale/token-17 HTTP/1.1");
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("authorization"), Some("Basic YW5uOnRvcHNlY3JldA=="));
    let told: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!((&told["hook"], &told["queue"], &told["queued"]), (&json!("more"), &Value::Null, &json!(3)));
    eventually("the log says so", async || {
        hooks.log().contains("a scale hook failed; it is called again after its cool-down")
    })
    .await;
    let log = hooks.log();
    assert!(log.contains("answered with 500 Internal Server Error") && log.contains("more"), "{log}");
    assert!(!log.contains("topsecret") && !log.contains("token-17"), "{log}");
}

#[tokio::test]
async fn a_web_hook_whose_certificate_nobody_knows_is_not_told() {
    let hooks = Hooks::new();
    let (web, _) = Web::with_tls(Answer::status("204 No Content", "")).await;
    let url = format!("url = \"https://localhost:{}/\"", web.port());
    hooks.write(&[hook("more", &["depth_above = 0", "for = \"0s\"", &url])]);
    let server = hooks.server();
    fill(&server, "images", 1).await;
    eventually("the log says so", async || hooks.log().contains("a scale hook failed")).await;
    assert!(hooks.log().contains("invalid peer certificate"), "{}", hooks.log());
    assert!(web.asked().is_empty());
}

#[tokio::test]
async fn a_command_that_fails_or_hangs_is_logged_and_told_again() {
    let hooks = Hooks::new();
    let tries = hooks.folder.path().join("tries");
    let script = format!("echo tried >> {}; echo no quota >&2; exit 3", tries.display());
    let failing = format!("command = [\"sh\", \"-c\", \"{script}\"]");
    let common = ["depth_above = 0", "for = \"0s\"", "cool_down = \"1s\""];
    hooks.write(&[
        hook("failing", &[&common[..], &[&failing]].concat()),
        hook("hanging", &[&common[..], &["timeout = \"1s\"", "command = [\"sleep\", \"600\"]"]].concat()),
        hook("missing", &[&common[..], &["command = [\"/nonexistent/scale\"]"]].concat()),
    ]);
    let server = hooks.server();
    fill(&server, "images", 1).await;
    eventually("all hooks run again", async || {
        let log = hooks.log();
        let failures = |name: &str| {
            let of_hook = log.lines().filter(|line| line.contains("a scale hook failed"));
            of_hook.filter(|line| line.contains(name)).count()
        };
        ["failing", "hanging", "missing"].iter().all(|name| failures(name) >= 2)
    })
    .await;
    assert!(hooks.told("tries").len() >= 2);
    let log = hooks.log();
    for words in [
        "sh ended with exit status: 3: no quota",
        "it took longer than 1s",
        "cannot start /nonexistent/scale",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// The output of a start with these hooks, which must fail.
fn refused(hooks: &Hooks, file: &Path) -> String {
    let output = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "off", "--scaling-hooks-file"])
        .arg(file)
        .arg("--data-dir")
        .arg(hooks.folder.path().join("data"))
        .output()
        .expect("the binary starts");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_file_of_hooks_with_a_mistake_refuses_the_start_and_names_it() {
    let hooks = Hooks::new();
    hooks.write(&[hook("more", &["depth_above = 1", "url = \"ftp://scaler\""])]);
    let said = refused(&hooks, &hooks.file());
    assert!(said.contains("hooks.toml: hook \"more\": url must begin with http:// or https://"), "{said}");
    let said = refused(&hooks, Path::new("/nonexistent/hooks.toml"));
    assert!(said.contains("/nonexistent/hooks.toml: cannot read the file of scale hooks"), "{said}");
}

/// Reading a pipe blocks until there is a writer.
#[test]
fn a_pipe_instead_of_a_file_of_hooks_refuses_the_start_at_once() {
    let hooks = Hooks::new();
    let pipe = hooks.folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts").success());
    let said = refused(&hooks, &pipe);
    assert!(said.contains("pipe: not a file: pass a TOML file with scale hooks"), "{said}");
}

fn set_mode(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The log of a server with these hooks until it is ready.
fn log_of_start(hooks: &Hooks) -> String {
    let mut server = Command::new(BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--log-level", "info", "--scaling-hooks-file"])
        .arg(hooks.file())
        .arg("--data-dir")
        .arg(hooks.folder.path().join("data"))
        .stdout(Stdio::piped())
        .stderr(File::create(hooks.log_file()).unwrap())
        .spawn()
        .expect("the binary starts");
    let mut greeting = String::new();
    BufReader::new(server.stdout.take().expect("stdout is piped"))
        .read_line(&mut greeting)
        .expect("a greeting");
    server.kill().expect("it is there");
    server.wait().expect("it has ended");
    hooks.log()
}

#[test]
fn the_start_says_how_many_hooks_there_are_and_who_else_could_write_or_read_them() {
    let hooks = Hooks::new();
    let more = hook("more", &["depth_above = 1", &hooks.recording("more")]);
    let fewer = hook("fewer", &["depth_below = 1", "url = \"https://ann:topsecret@scaler.example.org/\""]);
    hooks.write(&[more, fewer]);
    let (writable, readable) = ("other users can write ", "other users can read the secret in ");
    for (mode, is_writable, is_readable) in
        [(0o600, false, false), (0o644, false, true), (0o620, true, false)]
    {
        set_mode(&hooks.file(), mode);
        let log = log_of_start(&hooks);
        assert!(log.contains("scale hooks were loaded") && log.contains("hooks=2"), "{log}");
        assert_eq!(log.contains(writable), is_writable, "{mode:o}: {log}");
        assert_eq!(log.contains(readable), is_readable, "{mode:o}: {log}");
        assert!(!log.contains("topsecret"), "{log}");
    }
}

/// The pids of the processes that have notified a hook.
fn tellers(hooks: &Hooks) -> BTreeSet<u32> {
    hooks.told("tellers").iter().map(|line| line.trim().parse().expect("the id of a process")).collect()
}

async fn leader(api: &Process, cluster: &Cluster) -> Option<u32> {
    let (_, page) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
    let nodes = page["items"].as_array().cloned().unwrap_or_default();
    let leader = nodes.iter().find(|node| node["leader"] == true)?;
    leader["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_schedulers_the_leader_tells_and_when_it_dies_the_other_one_does() {
    let hooks = Hooks::new();
    let tellers_file = hooks.folder.path().join("tellers");
    let told = format!("command = [\"sh\", \"-c\", 'echo $PPID >> {}']", tellers_file.display());
    hooks.write(&[hook("more", &["depth_above = 0", "for = \"1s\"", "cool_down = \"1s\"", &told])]);
    let file = hooks.file().display().to_string();
    Cluster::with(async |cluster| {
        let options = ["scheduler", "--health-listen", "127.0.0.1:0", "--coordination-ttl", "1s"];
        let options = [&options[..], &["--scaling-hooks-file", &file]].concat();
        let api = cluster.api();
        let mut schedulers = vec![cluster.start(&options), cluster.start(&options)];
        shared_by(2, &api, cluster).await;
        let _job: JobId = api.submit(cluster, json!({"name": "report"})).await;
        eventually("the hook runs a few times", async || hooks.told("tellers").len() >= 3).await;
        let first = leader(&api, cluster).await.expect("somebody leads");
        assert_eq!(tellers(&hooks), BTreeSet::from([first]));
        let place = schedulers.iter().position(|process| process.child.id() == first).unwrap();
        schedulers.remove(place).kill();
        let second = schedulers[0].child.id();
        eventually("its successor tells", async || tellers(&hooks).contains(&second)).await;
        assert_eq!(tellers(&hooks), BTreeSet::from([first, second]));
    })
    .await;
}
