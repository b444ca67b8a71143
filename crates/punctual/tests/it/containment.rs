//! Commands that stop or kill their shim, or leave daemons behind: none of their processes is left, with
//! every containment that this machine supports. Every case runs with each of them, and fails where there is
//! none. Commands are not isolated here, because in a sandbox they could not reach their shim.

use crate::process::{failure, last_execution, marker, processes_with, submit, written};
use crate::server::{ALLOW_ROOT, BINARY, Server, eventually};
use punctual_client::{ExecutionStatus, LogStreamBody};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A way to start a server, and the containment of its commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// The containment that `auto` selects here.
    Auto,
    Namespace,
    /// A machine with version 1 cgroups only.
    OldCgroups,
}

/// Hides all version 2 cgroups from a server, and mounts a version 1 hierarchy. For root only.
const WITH_OLD_CGROUPS: &str = r#"
    set -e
    for mount in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do umount -l "$mount"; done
    mount -t cgroup -o freezer none /mnt
    exec "$0" "$@" --allow shell --worker-isolation none --worker-containment cgroup"#;
/// Commands that can reach their shim.
const UNISOLATED: [&str; 4] = ["--allow", "shell", "--worker-isolation", "none"];
/// Hides all cgroups.
const WITHOUT_CGROUPS: &str = r#"mount -t tmpfs none /sys/fs/cgroup && exec "$0" "$@""#;
/// Stops its shim in an endless loop, and starts daemons that have left its session.
const STOPPING: &str = r#"
    (setsid sh -c 'trap "" TERM; sleep 1000 & sleep 1001' &)
    while :; do kill -STOP $PPID; done &
    while :; do kill -STOP $PPID; done &
    sleep 1002"#;
/// The minimum number of that script's processes: its shell, two loops, and two or three of the daemon.
const STOPPING_PROCESSES: usize = 5;

/// The doctor's finding about containment with this setting.
fn examined(mode: &str) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(BINARY)
        .args(["doctor", "-o", "json", "--data-dir"])
        .arg(directory.path())
        .env("PUNCTUAL_ALLOW", "shell")
        .env("PUNCTUAL_WORKER_ISOLATION", "none")
        .env(ALLOW_ROOT, "true")
        .env("PUNCTUAL_WORKER_CONTAINMENT", mode)
        .current_dir(directory.path())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == "containment").unwrap().clone()
}

/// All containments of this machine. There must be at least one, or nothing would be tested.
fn all_means() -> Vec<Means> {
    let mut means = Vec::new();
    let (auto, namespace) = (examined("auto"), examined("namespace"));
    if auto["level"] == "good" {
        means.push(Means::Auto);
    }
    if namespace["level"] == "good" {
        means.push(Means::Namespace);
    }
    if rustix::process::geteuid().is_root() {
        means.push(Means::OldCgroups);
        assert_eq!(auto["level"], "good", "root can make no cgroup here: {auto}");
    }
    assert!(!means.is_empty(), "nothing can contain commands here: {auto}, {namespace}");
    means
}

impl Means {
    fn start(self, data_dir: &Path) -> Server {
        match self {
            Means::Auto => Server::start_in(data_dir, &UNISOLATED),
            Means::Namespace => {
                let options = [&UNISOLATED[..], &["--worker-containment", "namespace"]].concat();
                Server::start_in(data_dir, &options)
            }
            Means::OldCgroups => {
                let launcher = ["unshare", "-m", "sh", "-c", WITH_OLD_CGROUPS, BINARY];
                Server::start_through(&launcher, data_dir)
            }
        }
    }

    fn is_namespace(self) -> bool {
        self == Means::Namespace
    }
}

/// A server with each of them, on a directory that outlives it.
fn servers() -> impl Iterator<Item = (Means, Server, tempfile::TempDir)> {
    all_means().into_iter().map(|means| {
        let directory = tempfile::tempdir().unwrap();
        (means, means.start(&directory.path().join("data")), directory)
    })
}

fn job(script: &str, marker: &str, timeout_secs: u32) -> Value {
    let payload = json!({"script": script, "env": {"MARKER": marker}, "kill_grace": "0s"});
    json!({"name": "wild", "job_type": "shell", "payload": payload, "timeout_secs": timeout_secs, "max_retries": 0})
}

/// The shims of a server, running or stopped.
fn shims_of(server_pid: u32) -> BTreeSet<String> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let shims = entries.filter(|entry| {
        let command_line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        command_line.contains("__shim\0") && command_line.contains(&format!("-{server_pid}-"))
    });
    shims.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The cgroups of a server's commands, in all hierarchies.
fn cgroups_of(server_pid: u32) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.starts_with("punctual-") && name.contains(&format!("-{server_pid}-")) {
                true => found.push(entry.path()),
                false => dirs.push(entry.path()),
            }
        }
    }
    found
}

#[tokio::test]
async fn a_command_that_keeps_stopping_its_shim_ends_with_its_timeout() {
    for (means, server, _directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("stopping-{means:?}"));
        let id = submit(&client, job(STOPPING, &marker, 1)).await;
        client.wait(id).await.unwrap();
        // Not eventually: an attempt does not end before its processes have.
        assert_eq!(processes_with(&marker), [""; 0], "{means:?}");
        let execution = last_execution(&client, id).await;
        assert_eq!(execution.status, ExecutionStatus::TimedOut, "{means:?}");
        assert_eq!(cgroups_of(server.pid()), Vec::<PathBuf>::new(), "{means:?}");
        eventually("the shim is gone", async || shims_of(server.pid()).is_empty()).await;
    }
}

#[tokio::test]
async fn a_stopped_shim_is_passed_over_also_where_nothing_contains_the_command() {
    let server = Server::start_with(&[&UNISOLATED[..], &["--worker-containment", "none"]].concat());
    let client = server.client();
    let marker = marker("stopping-none");
    let id = submit(&client, job(STOPPING, &marker, 1)).await;
    client.wait(id).await.unwrap();
    assert_eq!(processes_with(&marker), [""; 0]);
    assert_eq!(last_execution(&client, id).await.status, ExecutionStatus::TimedOut);
}

#[tokio::test]
async fn a_command_that_keeps_stopping_its_shim_can_be_cancelled() {
    for (means, server, _directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("cancelled-{means:?}"));
        let id = submit(&client, job(STOPPING, &marker, 600)).await;
        eventually("the tree runs", async || processes_with(&marker).len() >= STOPPING_PROCESSES).await;
        client.cancel(id).await.unwrap();
        client.wait(id).await.unwrap();
        eventually("the attempt has ended", async || {
            last_execution(&client, id).await.status == ExecutionStatus::Cancelled
        })
        .await;
        assert_eq!(processes_with(&marker), [""; 0], "{means:?}");
    }
}

#[tokio::test]
async fn a_command_that_kills_its_shim_takes_its_daemons_with_it() {
    let script = "(setsid sh -c 'sleep 1000 & sleep 1001' &) ; setsid sleep 1002 & kill -KILL $PPID; exit 3";
    for (means, server, _directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("shimless-{means:?}"));
        let id = submit(&client, job(script, &marker, 600)).await;
        client.wait(id).await.unwrap();
        assert_eq!(processes_with(&marker), [""; 0], "{means:?}");
        let execution = last_execution(&client, id).await;
        let error = failure(&execution);
        if means.is_namespace() {
            // It cannot reach its shim.
            assert_eq!(error, "exited with code 3");
        } else {
            let said = "the shim of the command ended before the command (signal: 9 (SIGKILL)); all processes of the \
                        command were killed";
            assert_eq!(error, said);
        }
        assert_eq!(cgroups_of(server.pid()), Vec::<PathBuf>::new(), "{means:?}");
    }
}

#[tokio::test]
async fn a_worker_ends_what_one_that_was_killed_could_not() {
    for (means, server, directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("orphaned-{means:?}"));
        submit(&client, job(STOPPING, &marker, 600)).await;
        eventually("the tree runs", async || processes_with(&marker).len() >= STOPPING_PROCESSES).await;
        let killed = server.pid();
        server.kill();
        let _next = means.start(&directory.path().join("data"));
        assert_eq!(processes_with(&marker), [""; 0], "{means:?}");
        assert_eq!(cgroups_of(killed), Vec::<PathBuf>::new(), "{means:?}");
        eventually("the shim is gone", async || shims_of(killed).is_empty()).await;
    }
}

#[tokio::test]
async fn a_worker_leaves_the_commands_of_others_alone() {
    for (means, server, directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("others-{means:?}"));
        let go_on = directory.path().join("go-on");
        let script = format!("while ! [ -e {} ]; do sleep 0.02; done; echo '[2]'", go_on.display());
        let id = submit(&client, job(&script, &marker, 600)).await;
        eventually("the command runs", async || !processes_with(&marker).is_empty()).await;
        let _other = means.start(&directory.path().join("other"));
        std::fs::write(&go_on, "").unwrap();
        client.wait(id).await.unwrap();
        let execution = last_execution(&client, id).await;
        assert_eq!(execution.status, ExecutionStatus::Succeeded, "{means:?}: {:?}", execution.error_message);
        assert_eq!(execution.result.unwrap().get(), "[2]");
    }
}

#[tokio::test]
async fn a_server_that_stops_ends_commands_that_stop_their_shims() {
    let server = Server::start_with(&[&UNISOLATED[..], &["--drain-grace", "100ms"]].concat());
    let client = server.client();
    let marker = marker("drained");
    submit(&client, job(STOPPING, &marker, 600)).await;
    eventually("the tree runs", async || processes_with(&marker).len() >= STOPPING_PROCESSES).await;
    assert!(server.stop().success());
    assert_eq!(processes_with(&marker), [""; 0]);
}

#[tokio::test]
async fn daemons_end_with_a_command_that_succeeds() {
    let script = "(setsid sh -c 'sleep 1000 & sleep 1001' &); (sleep 1002 &); echo '{\"ok\": 1}'";
    for (means, server, _directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("daemons-{means:?}"));
        let id = submit(&client, job(script, &marker, 600)).await;
        client.wait(id).await.unwrap();
        assert_eq!(processes_with(&marker), [""; 0], "{means:?}");
        let execution = last_execution(&client, id).await;
        assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error_message);
        assert_eq!(execution.result.unwrap().get(), "{\"ok\": 1}");
    }
}

#[tokio::test]
async fn a_command_that_forks_without_end_is_killed() {
    // Each of its processes lives only for a moment, and most have left the session.
    let script =
        "storm() { while :; do (setsid sh -c : &) ; done; }; storm & storm & kill -STOP $PPID; storm";
    for (means, server, _directory) in servers() {
        let client = server.client();
        let marker = marker(&format!("storm-{means:?}"));
        let mut job = job(script, &marker, 1);
        job["payload"]["limits"] = json!({"processes": 60});
        let id = submit(&client, job).await;
        client.wait(id).await.unwrap();
        assert_eq!(processes_with(&marker), [""; 0], "{means:?}");
        assert_eq!(last_execution(&client, id).await.status, ExecutionStatus::TimedOut, "{means:?}");
    }
}

#[tokio::test]
async fn a_contained_command_works_as_any_other() {
    for (means, server, _directory) in servers() {
        let client = server.client();
        let run = async |script: &str| {
            let payload =
                json!({"script": script, "stdin": "in", "limits": {"memory": "64M", "processes": 30}});
            let job = json!({"name": "tame", "job_type": "shell", "payload": payload, "max_retries": 0});
            let id = submit(&client, job).await;
            client.wait(id).await.unwrap();
            last_execution(&client, id).await
        };
        let noted = r#"cat; echo '{"percent": 40, "message": "half"}' >"$PUNCTUAL_NOTES"; exit 5"#;
        let noted = run(noted).await;
        assert_eq!(failure(&noted), "exited with code 5", "{means:?}");
        assert_eq!(noted.progress.unwrap().message.as_deref(), Some("half"), "{means:?}");
        assert_eq!(
            failure(&run("kill -SEGV $$; sleep 1").await),
            "killed by signal 11 (SIGSEGV)",
            "{means:?}"
        );
        let missing = run("no-such-program-here").await;
        assert!(failure(&missing).starts_with("exited with code 127"), "{means:?}: {missing:?}");
        let fine = run("cat; echo; echo '[1]'").await;
        assert_eq!(fine.result.as_ref().unwrap().get(), "[1]", "{means:?}");
        assert_eq!(written(&client, &fine, LogStreamBody::Stdout).await, ["in", "[1]"], "{means:?}");
        assert_eq!(cgroups_of(server.pid()), Vec::<PathBuf>::new(), "{means:?}");
    }
}

#[test]
fn a_choice_that_the_machine_cannot_keep_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", WITHOUT_CGROUPS, BINARY])
        .args(["serve", "--listen", "127.0.0.1:0", "--allow", "shell", "--worker-containment", "cgroup"])
        .env(ALLOW_ROOT, "true")
        .arg("--data-dir")
        .arg(directory.path().join("data"))
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{complaint}");
    let said = "worker.containment is cgroup: cannot create a cgroup for commands: ";
    assert!(complaint.contains(said), "{complaint}");
    let unknown = Command::new(BINARY).args(["serve", "--worker-containment", "jail"]).output().unwrap();
    let complaint = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(
        complaint.contains("must be auto or cgroup or namespace or none, but is \"jail\""),
        "{complaint}"
    );
}

#[test]
fn the_doctor_says_what_contains_commands() {
    let auto = examined("auto");
    let (found, fix) = (auto["found"].as_str().unwrap(), auto["fix"].as_str().unwrap_or_default());
    // An ordinary user may not create cgroups; a namespace for each command must then be chosen.
    let is_right = match auto["level"].as_str() {
        Some("warning") => found.contains("cannot create a cgroup") && fix.contains("worker.containment"),
        _ => found.contains("for each command"),
    };
    assert!(is_right, "{auto}");
    let none = examined("none");
    assert_eq!(none["level"], "warning");
    assert!(none["found"].as_str().unwrap().contains("worker.containment is none"), "{none}");
    assert!(none["fix"].as_str().unwrap().contains("worker.containment"), "{none}");
}
