//! Progress output while waiting for a job: an updating line on a terminal, an occasional plain line
//! elsewhere.
//!
//! All of it goes to stderr; stdout is for the result.

use crate::job::progress;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::{Client, ExecutionBody, ExecutionStatus, JobBody, Span};
use punctual_config::output::{shortened, visible};
use punctual_core::time::Timestamp;
use std::time::{Duration, Instant};

/// How often a line on a terminal is redrawn, so that its times are current.
const REDRAW_PAUSE: Duration = Duration::from_millis(200);
/// The minimum time between plain lines. Shorter waits show only their result.
const PLAIN_LINE_PAUSE: Duration = Duration::from_secs(10);
/// Characters of an error or a message that fit into the line.
const TEXT_CHARS_MAX: usize = 60;

pub struct LiveJobView {
    bar: ProgressBar,
    /// The server's time at the start, and the local instant at which it was read.
    began: (Timestamp, Instant),
    seen: Option<SeenRun>,
    told_at: Instant,
    told: String,
}

/// A job and its open or latest run.
pub struct SeenRun {
    pub job: JobBody,
    pub execution: Option<ExecutionBody>,
}

impl LiveJobView {
    /// Starts with the server's clock: this machine's may differ.
    pub async fn start(client: &Client) -> LiveJobView {
        let now = client.clock().await.map(|clock| clock.now).unwrap_or_default();
        let bar = ProgressBar::new(100).with_style(spinner());
        LiveJobView {
            bar,
            began: (now, Instant::now()),
            seen: None,
            told_at: Instant::now(),
            told: String::new(),
        }
    }

    /// Reads the job's open or latest run, and shows it.
    pub async fn look(&mut self, client: &Client, job: &JobBody) {
        // Open executions come first.
        let page = client.executions(job.job_id, Some(1), None).await;
        let execution = page.ok().and_then(|page| page.items.into_iter().next());
        self.show(SeenRun { job: job.clone(), execution });
    }

    pub fn show(&mut self, seen: SeenRun) {
        self.seen = Some(seen);
        self.draw();
    }

    /// Waits, with a line that shows the time passing.
    pub async fn pause(&mut self, pause: Duration) {
        let until = tokio::time::Instant::now() + pause;
        while tokio::time::Instant::now() < until {
            tokio::time::sleep_until(until.min(tokio::time::Instant::now() + REDRAW_PAUSE)).await;
            self.draw();
        }
    }

    /// Prints a permanent line above the updating one.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{}", visible(text)));
    }

    fn draw(&mut self) {
        let Some(seen) = &self.seen else { return };
        let (now, at) = self.began;
        let now = now.plus(at.elapsed());
        let line = visible(&told(seen, now)).into_owned();
        if self.bar.is_hidden() {
            if self.told_at.elapsed() >= PLAIN_LINE_PAUSE && line != self.told {
                eprintln!("{line}");
                self.told_at = Instant::now();
                self.told = line;
            }
            return;
        }
        match seen.execution.as_ref().and_then(running_percent) {
            Some(percent) => {
                self.bar.set_style(meter());
                self.bar.set_position(percent);
            }
            None => self.bar.set_style(spinner()),
        }
        self.bar.set_message(line);
        self.bar.tick();
    }
}

impl Drop for LiveJobView {
    /// Removes the line, however the wait has ended.
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn running_percent(execution: &ExecutionBody) -> Option<u64> {
    let progress = execution.progress.as_ref().filter(|_| execution.status == ExecutionStatus::Running)?;
    progress::whole_percent(progress)
}

fn spinner() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn meter() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} [{bar:20}] {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// The state of a job in one line.
pub fn told(seen: &SeenRun, now: Timestamp) -> String {
    let SeenRun { job, execution } = seen;
    let Some(execution) = execution else {
        return match job.next_run_time {
            Some(at) if at > now => format!("{}: runs in {}", job.name, rough(at.since(now))),
            _ => format!("{}: nothing has run yet", job.name),
        };
    };
    let mut parts = vec![format!("{}: {}", job.name, execution.status), attempt(job, execution)];
    match execution.status {
        ExecutionStatus::Waiting if execution.available_at > now => {
            parts.push(format!("starts in {}", rough(execution.available_at.since(now))));
            let error = job.last_error.as_ref().filter(|_| execution.attempt_number > 1);
            parts.extend(error.map(|error| format!("failed before: {}", shortened(error, TEXT_CHARS_MAX))));
        }
        ExecutionStatus::Waiting => {
            let gates: Vec<&str> = execution.gates.iter().map(|gate| gate.name()).collect();
            parts.push(format!("waits for {}", gates.join(", ")));
        }
        ExecutionStatus::Queued => {
            parts.push(format!("for {}", rough(now.since(execution.available_at))));
            parts.extend(job.status_reason.clone());
        }
        ExecutionStatus::Running => parts.extend(running(job, execution, now)),
        _ => {}
    }
    parts.join(", ")
}

/// `attempt 2 of 4`; a redriven attempt exceeds the job's number of attempts.
fn attempt(job: &JobBody, execution: &ExecutionBody) -> String {
    let (number, most) = (execution.attempt_number, job.max_retries.saturating_add(1));
    if number > most { format!("attempt {number}") } else { format!("attempt {number} of {most}") }
}

fn running(job: &JobBody, execution: &ExecutionBody, now: Timestamp) -> Vec<String> {
    let Some(started) = execution.started_at else { return vec![] };
    let ran = now.since(started);
    let mut parts = vec![format!("for {}", rough(ran))];
    if execution.cancel_requested {
        parts.push("asked to stop".to_owned());
    }
    let left = time_limit(job, execution.attempt_number).saturating_sub(ran);
    parts.push(format!("{} left", rough(left)));
    let progress = execution.progress.as_ref().map(progress::told);
    parts.extend(progress.map(|told| shortened(&told, TEXT_CHARS_MAX)));
    parts
}

/// The timeout of this attempt.
fn time_limit(job: &JobBody, attempt: u32) -> Duration {
    let growth = job.retry.timeout_growth.map_or(1.0, |growth| f64::from(growth.percent) / 100.0);
    let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
    let seconds = job.timeout_secs.as_millis() as f64 / 1_000.0 * growth.powi(exponent);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// An elapsed time in whole seconds.
pub fn rough(duration: Duration) -> String {
    Span::from(Duration::from_secs(duration.as_secs())).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(seconds: u64) -> Timestamp {
        "2026-11-15T08:00:00Z".parse::<Timestamp>().unwrap().plus(Duration::from_secs(seconds))
    }

    fn seen(job: Value, execution: Option<Value>) -> SeenRun {
        let id = "01a1de7b-f418-719d-bed9-34f76e02395c";
        let mut all = json!({
            "job_id": id, "name": "report", "job_type": "sleep", "payload": null, "queue": "default",
            "priority": 5, "schedule_type": "IMMEDIATE", "max_retries": 3, "retry": {}, "timeout_secs": 60,
            "owner_id": "ann", "tags": [], "status": "ACTIVE", "status_reason": null,
            "next_run_time": null, "next_retry_time": null, "last_run_time": null, "last_error": null,
            "last_execution": null, "version": 1, "created_at": at(0), "updated_at": at(0),
        });
        all.as_object_mut().unwrap().extend(job.as_object().unwrap().clone());
        let execution = execution.map(|execution| {
            let mut all = json!({
                "execution_id": format!("{id}.1.1"), "job_id": id, "job_version": 1,
                "scheduled_time": at(0), "origin": "schedule", "attempt_number": 1, "status": "RUNNING",
                "reason": null, "gates": [], "worker_id": null, "available_at": at(0),
                "started_at": null, "completed_at": null, "error_message": null, "result": null,
                "progress": null,
            });
            all.as_object_mut().unwrap().extend(execution.as_object().unwrap().clone());
            serde_json::from_value(all).unwrap()
        });
        SeenRun { job: serde_json::from_value(all).unwrap(), execution }
    }

    #[test]
    fn a_line_says_where_a_job_is() {
        let running = json!({"started_at": at(2)});
        let retry = json!({
            "status": "WAITING", "attempt_number": 2, "gates": ["time"], "available_at": at(90),
        });
        let cases = [
            (json!({"next_run_time": at(3_610)}), None),
            (json!({}), Some(json!({"status": "QUEUED"}))),
            (json!({"status_reason": "waits for a worker"}), Some(json!({"status": "QUEUED"}))),
            (json!({}), Some(running.clone())),
            (json!({"last_error": "no paper\nat all"}), Some(retry)),
            (json!({}), Some(json!({"status": "WAITING", "gates": ["dependency"]}))),
            (
                json!({"retry": {"timeout_growth": 2.0}}),
                Some(json!({"started_at": at(2), "attempt_number": 2})),
            ),
            (json!({"max_retries": 0}), Some(json!({"started_at": at(2), "attempt_number": 5}))),
            (json!({}), Some(json!({"started_at": at(2), "cancel_requested": true}))),
            (
                json!({}),
                Some(json!({
                    "started_at": at(2),
                    "progress": {"percent": 40.5, "message": "copying", "noted_at": at(9)},
                })),
            ),
        ];
        let lines = cases.map(|(job, execution)| told(&seen(job, execution), at(10)));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
