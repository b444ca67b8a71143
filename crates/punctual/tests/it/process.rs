//! Commands: how they are started, what is reported about them, and that no process is ever left behind.

use crate::server::{BINARY, Server, eventually};
use punctual_client::{Client, ExecutionBody, ExecutionStatus, LogLineBody, LogStreamBody};
use punctual_core::ids::JobId;
use punctual_core::limits;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

fn server() -> Server {
    Server::start_with(&["--allow", "process,shell"])
}

pub async fn submit(client: &Client, job: Value) -> JobId {
    client.submit_json(&to_raw_value(&job).unwrap()).await.unwrap().job_id
}

/// Runs a job with this handler and payload, without retries, and returns its execution.
async fn run(client: &Client, job_type: &str, payload: Value) -> ExecutionBody {
    let job = json!({"name": "one", "job_type": job_type, "payload": payload, "max_retries": 0});
    let id = submit(client, job).await;
    client.wait(id).await.unwrap();
    last_execution(client, id).await
}

async fn shell(client: &Client, script: &str) -> ExecutionBody {
    run(client, "shell", json!({"script": script})).await
}

pub async fn last_execution(client: &Client, job: JobId) -> ExecutionBody {
    client.executions(job, None, None).await.unwrap().items.remove(0)
}

async fn lines(client: &Client, execution: &ExecutionBody) -> Vec<LogLineBody> {
    let mut lines = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page =
            client.execution_logs(execution.execution_id, Some(1_000), cursor.as_deref()).await.unwrap();
        lines.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return lines;
        }
    }
}

/// The messages of one stream.
pub async fn written(client: &Client, execution: &ExecutionBody, stream: LogStreamBody) -> Vec<String> {
    let lines = lines(client, execution).await;
    lines.into_iter().filter(|line| line.stream == stream).map(|line| line.message).collect()
}

pub fn failure(execution: &ExecutionBody) -> &str {
    assert_eq!(execution.status, ExecutionStatus::Failed);
    execution.error_message.as_deref().unwrap()
}

/// The processes that have this marker in their environment.
pub fn processes_with(marker: &str) -> Vec<String> {
    let marker = format!("MARKER={marker}");
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let marked = entries.filter(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes())
    });
    marked.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A marker that is unique to this run of this test.
pub fn marker(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// Commands that resist: two ways out of the session, and SIGTERM ignored.
const RESISTING: &str = r#"
    trap '' TERM
    setsid sh -c 'sleep 1000 & sleep 1001' &
    (setsid sh -c 'trap "" TERM; sleep 1002' &)
    echo started
    sleep 1003
    sleep 1004"#;

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    let server = server();
    let client = server.client();
    assert_eq!(shell(&client, "exit 0").await.status, ExecutionStatus::Succeeded);
    let failed = shell(&client, "echo first >&2; echo 'disk full' >&2; exit 7").await;
    assert_eq!(failure(&failed), "exited with code 7: first\ndisk full");
    assert_eq!(failure(&shell(&client, "kill -SEGV $$").await), "killed by signal 11 (SIGSEGV)");
    assert_eq!(failure(&shell(&client, "kill -TERM $$").await), "killed by signal 15 (SIGTERM)");
    let killed = shell(&client, "kill -KILL $$").await;
    assert!(failure(&killed).starts_with("killed by signal 9 (SIGKILL), which Punctual did not send"));
    let inner = shell(&client, "sh -c 'kill -SEGV $$'; exit $?").await;
    assert!(
        failure(&inner)
            .contains("exited with code 139, as a shell does when a command was killed by SIGSEGV")
    );
}

#[tokio::test]
async fn what_can_never_start_fails_for_good_and_names_why() {
    let server = server();
    let client = server.client();
    let directory = tempfile::tempdir().unwrap();
    let plain_file = directory.path().join("plain");
    std::fs::write(&plain_file, "").unwrap();
    for (payload, said) in [
        (json!({"command": ["no-such-program"]}), "command[0]: there is no program no-such-program in PATH"),
        (json!({"command": ["/no/such"]}), "command[0]: there is no program /no/such"),
        (json!({"command": [plain_file]}), "cannot be executed"),
        (json!({"command": ["true"], "cwd": "/no/such"}), "payload.cwd: /no/such is not a directory"),
        (json!({"command": ["true", "x".repeat(200_000)]}), "too long for this machine"),
    ] {
        let id = submit(&client, json!({"name": "bad", "job_type": "process", "payload": payload})).await;
        client.wait(id).await.unwrap();
        let executions = client.executions(id, None, None).await.unwrap().items;
        assert_eq!(executions.len(), 1, "another attempt was made: {payload}");
        assert!(failure(&executions[0]).contains(said), "{:?}", executions[0].error_message);
    }
}

#[tokio::test]
async fn a_command_finds_its_input_directory_and_environment_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let variables = ["SECRET=hidden", "LC_TIME=C", "TZ=Europe/Berlin", "PATH=/usr/bin:/bin"];
    let start = ["sh", "-c", r#"exec "$0" "$@" --allow process"#, BINARY];
    let launcher = [&["env"][..], &variables, &start].concat();
    let server = Server::start_through(&launcher, &directory.path().join("data"));
    let client = server.client();
    let payload = json!({
        "command": ["sh", "-c", "pwd; cat; env"],
        "stdin": "line one\nline two",
        "cwd": directory.path(),
        "env": {"COLOUR": "blue $HOME", "TZ": "UTC"},
    });
    let execution = run(&client, "process", payload).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error_message);
    let stdout = written(&client, &execution, LogStreamBody::Stdout).await;
    let real = directory.path().canonicalize().unwrap();
    assert_eq!(stdout[0], real.to_str().unwrap());
    assert_eq!(stdout[1], "line one");
    // The input has no newline at its end.
    let rest = stdout[2].strip_prefix("line two").unwrap().to_owned();
    let variables: BTreeMap<String, String> = std::iter::once(rest)
        .chain(stdout[3..].iter().cloned())
        .filter_map(|line| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    let id = execution.execution_id;
    assert_eq!(variables["COLOUR"], "blue $HOME");
    assert_eq!(variables["TZ"], "UTC");
    assert_eq!(variables["LC_TIME"], "C");
    assert_eq!(variables["PUNCTUAL_JOB_ID"], execution.job_id.to_string());
    assert_eq!(variables["PUNCTUAL_EXECUTION_ID"], id.to_string());
    assert_eq!(variables["PUNCTUAL_IDEMPOTENCY_KEY"], id.occurrence.to_string());
    assert_eq!(variables["PUNCTUAL_ATTEMPT"], "1");
    assert_eq!(variables["PUNCTUAL_SCHEDULED_TIME"], execution.scheduled_time.to_string());
    assert!(variables.contains_key("PUNCTUAL_DEADLINE"));
    assert!(!variables.contains_key("SECRET"), "{variables:?}");
}

#[tokio::test]
async fn arguments_are_not_looked_at_by_a_shell() {
    let server = server();
    let client = server.client();
    let payload = json!({"command": ["echo", "$HOME `id` $(id); *", "a  b"]});
    let execution = run(&client, "process", payload).await;
    assert_eq!(written(&client, &execution, LogStreamBody::Stdout).await, ["$HOME `id` $(id); * a  b"]);
}

#[tokio::test]
async fn a_last_line_of_json_is_the_result() {
    let server = server();
    let client = server.client();
    let result =
        async |script: &str| shell(&client, script).await.result.map(|result| result.get().to_owned());
    assert_eq!(result(r#"echo working; echo '{"rows": 3}'"#).await.as_deref(), Some(r#"{"rows": 3}"#));
    assert_eq!(result(r#"printf '[1,2]'"#).await.as_deref(), Some("[1,2]"));
    assert_eq!(result("echo '{}'; echo done").await, None);
    assert_eq!(result("true").await, None);
    assert_eq!(result("echo '{\"a\": 1}' >&2").await, None);
    // As large as a result may be, and one byte more.
    let sized = |bytes: usize| {
        let letters = bytes - 2;
        format!("printf '\"'; head -c {letters} /dev/zero | tr '\\0' x; printf '\"'")
    };
    assert_eq!(result(&sized(limits::RESULT_BYTES_MAX)).await.unwrap().len(), limits::RESULT_BYTES_MAX);
    let execution = shell(&client, &sized(limits::RESULT_BYTES_MAX + 1)).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded);
    let cut: serde_json::Value = serde_json::from_str(execution.result.as_ref().unwrap().get()).unwrap();
    assert_eq!(cut["truncated"], true);
    assert!(cut["beginning"].as_str().unwrap().starts_with("\"xxx"), "{cut}");
    let notes = written(&client, &execution, LogStreamBody::Log).await;
    assert!(notes[0].contains("too long to be the result"), "{notes:?}");
    // A job may want to fail instead.
    let script = sized(limits::RESULT_BYTES_MAX + 1);
    server.cli(&["job", "submit", "large", "--shell", &script, "--result-overflow", "fail", "--wait"]);
    let shown = server.said(&["job", "show", "large"]);
    assert!(shown.contains("more than 65536 bytes (result_overflow: fail)"), "{shown}");
    // Nested too deeply for readers of the page.
    let many = |sign: char| format!("head -c 30000 /dev/zero | tr '\\0' '{sign}'");
    let execution = shell(&client, &format!("{}; {}", many('['), many(']'))).await;
    assert_eq!((execution.status, execution.result.is_none()), (ExecutionStatus::Succeeded, true));
    let notes = written(&client, &execution, LogStreamBody::Log).await;
    assert!(notes[0].contains("nests arrays and objects more than 100 deep"), "{notes:?}");
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_and_its_result_is_still_found() {
    let server = server();
    let client = server.client();
    let short = shell(&client, r#"yes | head -c 20000000; echo; echo '{"done": true}'"#).await;
    assert_eq!(short.status, ExecutionStatus::Succeeded, "{:?}", short.error_message);
    assert_eq!(short.result.as_ref().unwrap().get(), r#"{"done": true}"#);
    let kept = lines(&client, &short).await;
    assert_eq!(kept.len(), limits::LOG_LINES_PER_EXECUTION_MAX);
    assert!(kept.last().unwrap().message.contains("the rest is dropped"), "{:?}", kept.last());
    assert!(kept[..kept.len() - 1].iter().all(|line| line.message == "y"));

    let long = "yes 0123456789012345678901234567890123456789 | head -c 20000000";
    let long = shell(&client, &format!("{long}; yes x | tr -d '\\n' | head -c 5000000")).await;
    let kept = lines(&client, &long).await;
    let bytes: usize = kept.iter().map(|line| line.message.len()).sum();
    assert!(bytes <= limits::LOG_BYTES_PER_EXECUTION_MAX + 1_000, "{bytes}");
    assert!(kept.last().unwrap().message.contains("the rest is dropped"), "{:?}", kept.last());

    let payload = json!({"script": "yes 123456789 | head -n 50; yes y | tr -d '\\n' | head -c 100000",
        "limits": {"output": 100}});
    let chosen = run(&client, "shell", payload).await;
    assert_eq!(written(&client, &chosen, LogStreamBody::Stdout).await.len(), 10);
    let notes = written(&client, &chosen, LogStreamBody::Log).await;
    assert!(notes[0].contains("more than 100 bytes (limits.output)"), "{notes:?}");
}

#[tokio::test]
async fn a_long_line_is_cut_and_bytes_that_are_no_text_are_kept_readable() {
    let server = server();
    let client = server.client();
    let execution =
        shell(&client, r"head -c 40000 /dev/zero | tr '\0' x; echo; printf 'a\377b\r\nlast'").await;
    let stdout = written(&client, &execution, LogStreamBody::Stdout).await;
    assert_eq!(stdout.len(), 3);
    assert!(stdout[0].len() < limits::LOG_LINE_BYTES_MAX + 10 && stdout[0].ends_with("x […]"));
    assert_eq!(stdout[1..], ["a\u{fffd}b", "last"]);
}

#[tokio::test]
async fn limits_are_kept_and_told_by_name() {
    let server = server();
    let client = server.client();
    let payload = json!({"script": "while :; do :; done", "limits": {"cpu_secs": 1}});
    let cpu = run(&client, "shell", payload).await;
    assert_eq!(
        failure(&cpu),
        "killed by signal 24 (SIGXCPU): it used more than 1 s of CPU time (limits.cpu_secs)"
    );
    let limits = json!({"memory": "32M"});
    let script = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}";
    let memory = run(&client, "shell", json!({"script": script, "limits": limits})).await;
    // By cgroup or by resource limit, whichever the machine supports: it does not get the memory.
    assert!(!failure(&memory).is_empty());
    assert_ne!(written(&client, &memory, LogStreamBody::Stdout).await, ["300000000"]);
}

#[tokio::test]
async fn a_timeout_ends_everything_that_the_command_started() {
    let server = server();
    let client = server.client();
    let marker = marker("timeout");
    let payload = json!({"script": RESISTING, "env": {"MARKER": marker}, "kill_grace": "200ms"});
    let job = json!({"name": "stuck", "job_type": "shell", "payload": payload, "timeout_secs": 1, "max_retries": 0});
    let id = submit(&client, job).await;
    eventually("the whole tree runs", async || processes_with(&marker).len() >= 6).await;
    client.wait(id).await.unwrap();
    // Not eventually: an attempt does not end before its processes have.
    assert_eq!(processes_with(&marker), [""; 0]);
    let execution = last_execution(&client, id).await;
    assert_eq!(execution.status, ExecutionStatus::TimedOut);
    let notes = written(&client, &execution, LogStreamBody::Log).await;
    assert_eq!(
        notes,
        ["asked to stop: SIGTERM, and SIGKILL after 200ms", "still running 200ms after SIGTERM: SIGKILL"]
    );
}

#[tokio::test]
async fn a_command_that_suspends_its_shim_is_ended_all_the_same() {
    let server = server();
    let client = server.client();
    let marker = marker("suspended");
    let payload =
        json!({"script": "kill -STOP $PPID; sleep 1000", "env": {"MARKER": marker}, "kill_grace": "0s"});
    let job =
        json!({"name": "x", "job_type": "shell", "payload": payload, "timeout_secs": 0.3, "max_retries": 0});
    let id = submit(&client, job).await;
    client.wait(id).await.unwrap();
    assert_eq!(last_execution(&client, id).await.status, ExecutionStatus::TimedOut);
    assert_eq!(processes_with(&marker), [""; 0]);
}

#[tokio::test]
async fn a_command_may_tidy_up_and_the_next_attempt_waits_for_it() {
    let server = server();
    let client = server.client();
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    let script = format!(
        "mkdir {0} || echo overlap; trap 'sleep 0.5; rmdir {0}; echo tidied; exit' TERM; sleep 1000 & wait",
        lock.display()
    );
    let job = json!({"name": "tidy", "job_type": "shell", "payload": {"script": script}, "timeout_secs": 1,
        "max_retries": 1, "retry": {"strategy": "fixed", "delay": "1ms"}});
    let id = submit(&client, job).await;
    client.wait(id).await.unwrap();
    let executions = client.executions(id, None, None).await.unwrap().items;
    assert_eq!(executions.len(), 2);
    for execution in &executions {
        assert_eq!(execution.status, ExecutionStatus::TimedOut);
        assert_eq!(written(&client, execution, LogStreamBody::Stdout).await, ["tidied"]);
    }
    assert!(!lock.exists());
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let server = server();
    let client = server.client();
    let marker = marker("leftover");
    let script = "setsid sh -c 'sleep 1000 & sleep 1001' & (sleep 1002 &); echo '{\"ok\": 1}'";
    let execution = run(&client, "shell", json!({"script": script, "env": {"MARKER": marker}})).await;
    assert_eq!(processes_with(&marker), [""; 0]);
    assert_eq!(execution.status, ExecutionStatus::Succeeded);
    assert_eq!(execution.result.unwrap().get(), "{\"ok\": 1}");
}

#[tokio::test]
async fn a_killed_server_leaves_no_process_behind() {
    let server = server();
    let client = server.client();
    let marker = marker("killed");
    let payload = json!({"script": RESISTING, "env": {"MARKER": marker}, "kill_grace": "60s"});
    for _ in 0..3 {
        submit(&client, json!({"name": "orphan", "job_type": "shell", "payload": payload})).await;
    }
    eventually("all trees run", async || processes_with(&marker).len() >= 18).await;
    server.kill();
    eventually("all trees are gone", async || processes_with(&marker).is_empty()).await;
}

#[tokio::test]
async fn a_stopped_server_ends_its_commands_first() {
    let server = Server::start_with(&["--allow", "shell", "--drain-grace", "100ms"]);
    let client = server.client();
    let marker = marker("stopped");
    let payload = json!({"script": RESISTING, "env": {"MARKER": marker}, "kill_grace": "100ms"});
    submit(&client, json!({"name": "drained", "job_type": "shell", "payload": payload})).await;
    eventually("the tree runs", async || processes_with(&marker).len() >= 6).await;
    assert!(server.stop().success());
    assert_eq!(processes_with(&marker), [""; 0]);
}

#[tokio::test]
async fn a_hundred_timeouts_at_once_leave_no_process_behind() {
    let server = Server::start_with(&["--allow", "shell", "--slots", "100"]);
    let client = server.client();
    let marker = marker("hundred");
    let payload = json!({"script": RESISTING, "env": {"MARKER": marker}, "kill_grace": 0});
    let mut jobs = Vec::new();
    for number in 0..100 {
        let job = json!({"name": format!("stuck-{number}"), "job_type": "shell", "payload": payload,
            "timeout_secs": 2, "max_retries": 0});
        jobs.push(submit(&client, job).await);
    }
    for job in jobs {
        client.wait(job).await.unwrap();
        assert_eq!(last_execution(&client, job).await.status, ExecutionStatus::TimedOut);
    }
    assert_eq!(processes_with(&marker), [""; 0]);
}

#[tokio::test]
async fn commands_run_only_where_they_are_allowed() {
    let server = Server::start_with(&["--allow", "process"]);
    let client = server.client();
    assert_eq!(
        run(&client, "process", json!({"command": ["true"]})).await.status,
        ExecutionStatus::Succeeded
    );
    let payload = json!({"script": "true"});
    let id = submit(&client, json!({"name": "no", "job_type": "shell", "payload": payload})).await;
    eventually("the job is known to lack a worker", async || {
        let reason = client.job(id).await.unwrap().status_reason;
        reason.is_some_and(|reason| reason.contains("shell"))
    })
    .await;
    let refused = Command::new(BINARY).args(["serve", "--allow", "everything"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(complaint.contains("--allow: must be process or shell"), "{complaint}");
}

#[tokio::test]
async fn logs_are_read_page_by_page_and_across_attempts() {
    let server = server();
    let client = server.client();
    let script = "for i in 1 2 3; do echo $PUNCTUAL_ATTEMPT.$i; done; [ $PUNCTUAL_ATTEMPT = 2 ]";
    let job = json!({"name": "paged", "job_type": "shell", "payload": {"script": script},
        "retry": {"strategy": "fixed", "delay": "1ms"}});
    let id = submit(&client, job).await;
    client.wait(id).await.unwrap();
    let mut read = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = client.job_logs(id, Some(2), cursor.as_deref()).await.unwrap();
        assert!(page.items.len() <= 2);
        read.extend(page.items.into_iter().map(|line| (line.execution_id.attempt, line.message)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            let after = client.job_logs(id, None, page.follow_cursor.as_deref()).await.unwrap();
            assert_eq!(
                (after.items, after.next_cursor, after.follow_cursor),
                (vec![], None, page.follow_cursor)
            );
            break;
        }
    }
    let expected = [(1, "1.1"), (1, "1.2"), (1, "1.3"), (2, "2.1"), (2, "2.2"), (2, "2.3")];
    assert_eq!(read, expected.map(|(attempt, message)| (attempt, message.to_owned())));
    let quiet = json!({"name": "later", "job_type": "shell", "payload": {"script": "true"}, "delay": "1h"});
    let quiet = submit(&client, quiet).await;
    let page = client.job_logs(quiet, None, None).await.unwrap();
    assert_eq!((page.items, page.next_cursor, page.follow_cursor), (vec![], None, None));
    let (status, _) = server.get(&format!("/api/v1/executions/{quiet}.9.9/logs")).await;
    assert_eq!(status, 404);
    let (status, _) = server.get(&format!("/api/v1/jobs/{id}/logs?cursor=nonsense")).await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn a_command_can_be_submitted_and_followed_on_the_command_line() {
    let server = server();
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let on_data_dir = |arguments: &[&str], command: &[&str]| {
        let dir: &Path = server.data_dir();
        let mut run = Command::new(BINARY);
        run.args(arguments).arg("--data-dir").arg(dir);
        if !command.is_empty() {
            run.arg("--").args(command);
        }
        run.output().unwrap()
    };
    assert!(
        on_data_dir(&["job", "submit", "greet", "--wait"], &["echo", "--wait", "$HOME"]).status.success()
    );
    assert_eq!(said(&on_data_dir(&["job", "logs", "greet"], &[])), "--wait $HOME\n");
    assert!(on_data_dir(&["job", "submit", "--wait"], &["/bin/echo", "unnamed"]).status.success());
    assert_eq!(said(&on_data_dir(&["job", "logs", "echo"], &[])), "unnamed\n");
    let script = "for i in 1 2 3; do echo step $i; sleep 0.1; done; echo over >&2";
    let slow = on_data_dir(&["job", "submit", "slow", "--shell", script], &[]);
    assert!(slow.status.success(), "{}", String::from_utf8_lossy(&slow.stderr));
    assert_eq!(said(&on_data_dir(&["job", "logs", "slow", "-f"], &[])), "step 1\nstep 2\nstep 3\nover\n");
    let page: Value =
        serde_json::from_str(&said(&on_data_dir(&["job", "logs", "slow", "-o", "json"], &[]))).unwrap();
    assert_eq!(page["items"][3]["stream"], "stderr");
    let failed =
        on_data_dir(&["job", "submit", "fails", "--max-retries", "0", "--wait", "--shell", "exit 3"], &[]);
    assert_eq!(failed.status.code(), Some(1));
}

#[tokio::test]
async fn a_command_that_ended_in_time_succeeds_although_its_daemons_outlast_the_timeout() {
    let server = server();
    let client = server.client();
    let script = "setsid sh -c 'trap \"\" TERM; sleep 60' >/dev/null 2>&1 & sleep 0.2; exit 0";
    let payload = json!({"script": script, "kill_grace": "3s"});
    let job = json!({"name": "daemon", "job_type": "shell", "payload": payload, "timeout_secs": 1, "max_retries": 0});
    let id = submit(&client, job).await;
    client.wait(id).await.unwrap();
    let execution = last_execution(&client, id).await;
    assert_eq!(execution.status, ExecutionStatus::Succeeded, "{:?}", execution.error_message);
}
