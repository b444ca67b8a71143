//! Records handler runs independently of Punctual. Jobs of the run are web calls to this server. It appends a
//! line to a file when a call arrives and another when it was answered or aborted, and answers as the call's
//! path says. A call costs a hundredth of a process, so that the machine is busy with Punctual and not with
//! its handlers.

use crate::member::now;
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use punctual_core::ids::ExecutionId;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// The behaviour of a handler, encoded in the path of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallBehaviour {
    pub takes: Duration,
    /// Attempts up to this one fail.
    pub failing_attempts: u32,
}

/// One line of the record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum RecordLine {
    Began {
        run: u64,
        at: Timestamp,
        execution_id: ExecutionId,
        attempt: u32,
        scheduled_time: Timestamp,
        idempotency_key: String,
    },
    Ended {
        run: u64,
        at: Timestamp,
        answer: CallOutcome,
    },
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    Succeeded,
    Failed,
    /// The worker disconnected before it got a response: it was killed, or had to stop.
    BrokenOff,
}

/// One recorded run of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRun {
    pub number: u64,
    pub execution: ExecutionId,
    pub attempt: u32,
    pub scheduled_time: Timestamp,
    pub idempotency_key: String,
    pub began: Timestamp,
    /// `None` if it was still in progress when the record was read.
    pub ended: Option<(Timestamp, CallOutcome)>,
}

/// The server. It runs until this program ends.
pub struct Recorder {
    address: String,
    file: PathBuf,
}

#[derive(Clone)]
struct SharedRecord {
    file: Arc<Mutex<File>>,
    next: Arc<AtomicU64>,
}

impl Recorder {
    pub async fn start(folder: &Path) -> Result<Self> {
        let path = folder.join("record.jsonl");
        let file = OpenOptions::new().create(true).append(true).open(&path).context("make the record")?;
        let shared = SharedRecord { file: Arc::new(Mutex::new(file)), next: Arc::new(AtomicU64::new(1)) };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let router = Router::new().route("/run/{takes_ms}/{failing}", post(run)).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Recorder { address, file: path })
    }

    /// The URL that a job calls for this behaviour.
    pub fn url(&self, behaviour: CallBehaviour) -> String {
        let CallBehaviour { takes, failing_attempts } = behaviour;
        format!("http://{}/run/{}/{failing_attempts}", self.address, takes.as_millis())
    }

    /// All runs so far, from the file.
    pub fn runs(&self) -> Result<Vec<RecordedRun>> {
        let text = std::fs::read_to_string(&self.file).context("read the record")?;
        read(&text)
    }
}

fn read(text: &str) -> Result<Vec<RecordedRun>> {
    let mut runs: BTreeMap<u64, RecordedRun> = BTreeMap::new();
    for line in text.lines() {
        match serde_json::from_str(line).with_context(|| format!("a line of the record: {line}"))? {
            RecordLine::Began { run: number, at, execution_id, attempt, scheduled_time, idempotency_key } => {
                let run = RecordedRun {
                    number,
                    execution: execution_id,
                    attempt,
                    scheduled_time,
                    idempotency_key,
                    began: at,
                    ended: None,
                };
                runs.insert(number, run);
            }
            RecordLine::Ended { run, at, answer } => {
                let run = runs.get_mut(&run).with_context(|| format!("run {run} ends before it begins"))?;
                run.ended = Some((at, answer));
            }
        }
    }
    Ok(runs.into_values().collect())
}

impl SharedRecord {
    fn append(&self, line: &RecordLine) -> Result<()> {
        // This program is never killed, so a write is enough: only a failure of the machine could lose it.
        let text = serde_json::to_string(line)? + "\n";
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(file.write_all(text.as_bytes())?)
    }
}

/// Records on drop that a call was aborted, unless it was answered.
struct OpenCall {
    shared: SharedRecord,
    run: u64,
    is_answered: bool,
}

impl OpenCall {
    fn end(&mut self, answer: CallOutcome) -> Result<()> {
        self.is_answered = true;
        self.shared.append(&RecordLine::Ended { run: self.run, at: now(), answer })
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = self.end(CallOutcome::BrokenOff);
        }
    }
}

async fn run(
    State(shared): State<SharedRecord>,
    UrlPath((takes_ms, failing)): UrlPath<(u64, u32)>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    match record(&shared, &headers, takes_ms, failing).await {
        Ok((CallOutcome::Succeeded, run)) => (StatusCode::OK, format!("{{\"run\": {run}}}")),
        Ok((_, run)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("run {run} fails as requested")),
        Err(error) => (StatusCode::BAD_REQUEST, format!("{error:#}")),
    }
}

async fn record(
    shared: &SharedRecord,
    headers: &HeaderMap,
    takes_ms: u64,
    failing: u32,
) -> Result<(CallOutcome, u64)> {
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.with_context(|| format!("the call has no header {name}"))
    };
    let run = shared.next.fetch_add(1, Ordering::Relaxed);
    let attempt = header("punctual-attempt")?.parse()?;
    shared.append(&RecordLine::Began {
        run,
        at: now(),
        execution_id: header("punctual-execution-id")?.parse()?,
        attempt,
        scheduled_time: header("punctual-scheduled-time")?.parse()?,
        idempotency_key: header("idempotency-key")?.to_owned(),
    })?;
    let mut open = OpenCall { shared: shared.clone(), run, is_answered: false };
    tokio::time::sleep(Duration::from_millis(takes_ms)).await;
    let answer = if attempt <= failing { CallOutcome::Failed } else { CallOutcome::Succeeded };
    open.end(answer)?;
    Ok((answer, run))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let execution = punctual_core::ids::JobId::new(Timestamp::EPOCH, 1).occurrence(2).attempt(3);
        let at = Timestamp::from_micros;
        let lines = [
            RecordLine::Began {
                run: 1,
                at: at(5),
                execution_id: execution,
                attempt: 3,
                scheduled_time: at(4),
                idempotency_key: "k".into(),
            },
            RecordLine::Ended { run: 1, at: at(9), answer: CallOutcome::BrokenOff },
        ];
        let text: Vec<String> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let [run] = &read(&text.join("\n")).unwrap()[..] else { panic!("one run") };
        assert_eq!((run.number, run.execution, run.attempt), (1, execution, 3));
        assert_eq!((run.began, run.ended), (at(5), Some((at(9), CallOutcome::BrokenOff))));
        assert!(read(&text[1]).is_err(), "an end without a beginning");
    }
}
