//! The database of one run: a server of our own that `cargo xtask` starts, and kills or restarts by order.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

/// Names the program that starts servers; `cargo xtask chaos` sets it.
const PROGRAM: &str = "PUNCTUAL_TEST_SERVICES";

/// A running server. It ends when this is dropped, or when we do.
pub struct Database {
    service: String,
    pub url: String,
    guard: Arc<Mutex<Guard>>,
}

struct Guard {
    process: Child,
    /// Orders go through it; when it is closed, the server ends.
    lifeline: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Database {
    pub async fn start(service: &str) -> Result<Self> {
        let service = service.to_owned();
        blocking(move || {
            let program = std::env::var_os(PROGRAM)
                .with_context(|| format!("{PROGRAM} is not set: run `cargo xtask chaos`"))?;
            let mut command = Command::new(program);
            command.args(["services", "hold", &service]).stdin(Stdio::piped()).stdout(Stdio::piped());
            // A group of its own: on Ctrl-C the server outlives the processes that use it.
            let mut process = command.process_group(0).spawn().context("start xtask")?;
            let answers = BufReader::new(process.stdout.take().context("it has no output")?);
            let mut guard = Guard { lifeline: process.stdin.take(), process, answers };
            let ready = guard.answer()?;
            let url = ready["servers"][0]["url"].as_str().context("no URL in what xtask said")?.to_owned();
            Ok(Database { service, url, guard: Arc::new(Mutex::new(guard)) })
        })
        .await
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.url.split(['@', '/']).nth(3).unwrap_or_default()
    }

    /// Ends it as a power failure does.
    pub async fn kill(&self) -> Result<()> {
        self.order("kill").await
    }

    /// Ends it as an operator does.
    pub async fn stop(&self) -> Result<()> {
        self.order("stop").await
    }

    /// Starts it again, and waits until it takes connections.
    pub async fn start_again(&self) -> Result<()> {
        self.order("start").await
    }

    async fn order(&self, verb: &str) -> Result<()> {
        let (guard, order) = (self.guard.clone(), format!("{verb} {}", self.service));
        blocking(move || {
            let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
            let lifeline = guard.lifeline.as_mut().context("the server was given up")?;
            writeln!(lifeline, "{order}")?;
            let answer = guard.answer()?;
            ensure!(answer["error"].is_null(), "{order}: {answer}");
            Ok(())
        })
        .await
    }
}

impl Guard {
    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("xtask said {line:?} about the database"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.lifeline = None;
        let _ = self.process.wait();
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the thread that waits for xtask is gone")?
}
