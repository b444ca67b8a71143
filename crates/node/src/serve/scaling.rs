//! Scale hooks: notify a command or a URL that a queue has been long, or short, for a while, so that it
//! starts or stops workers. They come only from a file that the operator names: clients of the API cannot run
//! anything with them.

mod file;
mod web;

pub use file::Hook;
use file::HookTarget;

use punctual_core::cluster_pause::is_paused;
use punctual_core::limits;
use punctual_core::ports::{Host, StoreError};
use punctual_core::scaling::{QueueLoad, TriggerWatch};
use punctual_engine::Engine;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::sync::{Mutex, watch};

/// Bytes of a failed command's error output that are logged.
const STDERR_BYTES_MAX: usize = 500;

/// How long to wait for the rest of a command's output after it has ended.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(100);

/// A hook in use.
struct ActiveHook {
    hook: Arc<Hook>,
    watch: TriggerWatch,
    /// Held during a notification: a slow hook is not notified again meanwhile.
    telling: Arc<Mutex<()>>,
}

/// Watches the queues until the process stops, while it leads: only one process of a cluster notifies each
/// hook.
pub async fn run(hooks: Vec<Hook>, engine: Arc<Engine>, host: Host, mut draining: watch::Receiver<bool>) {
    if hooks.is_empty() {
        return;
    }
    let watched =
        |hook| ActiveHook { hook: Arc::new(hook), watch: TriggerWatch::default(), telling: Arc::default() };
    let mut hooks: Vec<ActiveHook> = hooks.into_iter().map(watched).collect();
    loop {
        tokio::select! {
            () = host.clock.sleep(limits::SCALE_LOOK_INTERVAL) => {}
            _ = draining.wait_for(|is_draining| *is_draining) => return,
        }
        if !engine.leads() {
            hooks.iter_mut().for_each(|hook| hook.watch.forget());
            continue;
        }
        if let Err(error) = look(&mut hooks, &engine, &host).await {
            // While the process did not watch, the state may have changed.
            hooks.iter_mut().for_each(|hook| hook.watch.forget());
            tracing::debug!(%error, "scale hooks cannot read the queues");
        }
    }
}

async fn look(hooks: &mut [ActiveHook], engine: &Engine, host: &Host) -> Result<(), StoreError> {
    let store = engine.store();
    let paused = store.paused_queues().await?;
    let mut depths = store.depths().await?;
    // Work in a paused queue waits for a resume, not for workers.
    depths.retain(|depth| !is_paused(&paused, depth.lane.queue()));
    let sessions = store.sessions().await?;
    for ActiveHook { hook, watch, telling } in hooks {
        let load = QueueLoad::of(hook.queue.as_deref(), &depths, &sessions, engine.now());
        if !watch.look(&hook.trigger, &load, host.clock.monotonic()) {
            continue;
        }
        let Ok(turn) = telling.clone().try_lock_owned() else { continue };
        let hook = hook.clone();
        host.spawn.spawn(Box::pin(async move {
            tell(&hook, &load).await;
            drop(turn);
        }));
    }
    Ok(())
}

async fn tell(hook: &Hook, load: &QueueLoad) {
    let said = document(hook, load);
    let telling = async {
        match &hook.target {
            HookTarget::Command(command) => run_command(command, &said).await,
            HookTarget::Web(hook) => call(hook, &said).await,
        }
    };
    let result = match tokio::time::timeout(hook.timeout, telling).await {
        Ok(result) => result,
        Err(_) => Err(format!("it took longer than {}", punctual_client::Span::from(hook.timeout))),
    };
    let (name, queued) = (hook.name.as_str(), load.queued);
    match result {
        Ok(()) => {
            tracing::info!(hook = name, queued, oldest_wait = ?load.oldest_wait, "a scale hook was called")
        }
        Err(reason) => tracing::warn!(
            hook = name,
            queued,
            reason,
            "a scale hook failed; it is called again after its cool-down"
        ),
    }
}

/// The document sent to a hook.
fn document(hook: &Hook, load: &QueueLoad) -> Value {
    json!({
        "hook": hook.name,
        "queue": hook.queue,
        "queued": load.queued,
        "running": load.running,
        "oldest_wait_secs": load.oldest_wait.as_millis() as f64 / 1_000.0,
        "workers": load.workers,
        "slots": load.slots,
        "desired_slots": load.desired_slots(limits::TARGET_WAIT_DEFAULT),
    })
}

/// Runs a command with the document on its standard input. If this future is dropped, the command is killed
/// with all its descendants. Background processes that it leaves when it ends by itself continue, because one
/// may be the worker that it was to start.
async fn run_command(command: &[String], said: &Value) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| format!("cannot start {program}: {error}"))?;
    let group = HookProcesses(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    if let Some(mut stdin) = stdin {
        let written = stdin.write_all(format!("{said}\n").as_bytes()).await;
        // A command need not read it.
        written.or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(format!("cannot write to the standard input of {program}: {error}")),
        })?;
    }
    let mut words = Vec::new();
    let waited = {
        let reading = async {
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut words).await;
            }
        };
        let mut reading = std::pin::pin!(reading);
        tokio::select! {
            waited = child.wait() => {
                // A background process may keep its error output open forever.
                let _ = tokio::time::timeout(LAST_WORDS_TIME_MAX, reading).await;
                waited
            }
            () = &mut reading => child.wait().await,
        }
    };
    let status = waited.map_err(|error| format!("{program}: {error}"))?;
    group.has_ended();
    if status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&words);
    let tail = &stderr[stderr.floor_char_boundary(stderr.len().saturating_sub(STDERR_BYTES_MAX))..];
    Err(format!("{program} ended with {status}: {}", tail.trim()))
}

/// The processes of a command. Killed on drop, unless it has ended by itself.
struct HookProcesses(Option<Pid>);

impl HookProcesses {
    fn has_ended(mut self) {
        self.0 = None;
    }
}

impl Drop for HookProcesses {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // They may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn call(hook: &web::WebHook, said: &Value) -> Result<(), String> {
    match hook.post(said).await {
        Ok(status) if status.is_success() => Ok(()),
        Ok(status) => Err(format!("the call was answered with {status}")),
        Err(why) => Err(format!("the call failed: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[tokio::test]
    async fn a_command_is_told_on_its_standard_input() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("told");
        let command = words(&["sh", "-c", "cat > \"$1\"", "hook", file.to_str().unwrap()]);
        run_command(&command, &json!({"queued": 7})).await.unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "{\"queued\":7}\n");
    }

    #[tokio::test]
    async fn a_command_may_leave_something_running_and_is_killed_with_all_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let forks = words(&["sh", "-c", "sleep 3600 & echo $! > \"$1\"", "hook", file.to_str().unwrap()]);
        run_command(&forks, &json!({})).await.unwrap();
        let left = std::fs::read_to_string(&file).unwrap().trim().parse().ok().and_then(Pid::from_raw);
        rustix::process::kill_process(left.unwrap(), Signal::KILL).expect("it goes on");

        let hangs =
            words(&["sh", "-c", "sleep 3600 & echo $! > \"$1\"; wait", "hook", file.to_str().unwrap()]);
        std::fs::remove_file(&file).unwrap();
        let started = async {
            while std::fs::read_to_string(&file).unwrap_or_default().trim().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let said = json!({});
        tokio::select! {
            ended = run_command(&hangs, &said) => panic!("{ended:?}"),
            () = started => {}
        }
        let child: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        // It is a zombie until init has reaped it.
        let is_gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !is_gone() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_command_that_fails_is_told_with_its_last_words() {
        let failed = run_command(&words(&["sh", "-c", "echo no quota >&2; exit 3"]), &json!({})).await;
        assert_eq!(failed.unwrap_err(), "sh ended with exit status: 3: no quota");
        let missing = run_command(&words(&["/nonexistent/scale"]), &json!({})).await.unwrap_err();
        assert!(missing.starts_with("cannot start /nonexistent/scale"), "{missing}");
    }
}
