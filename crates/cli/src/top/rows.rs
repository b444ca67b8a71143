//! The rows of each pane: filtered, sorted and formatted.

use crate::job::live::rough;
use crate::job::progress;
use crate::top::model::{FailedAttempt, FailureOutcome, Model, Pane, RunningExecution};
use punctual_client::{QueueBody, WorkerBody};
use punctual_config::output::{shortened, visible};
use punctual_core::time::Timestamp;
use std::cmp::Reverse;

/// Characters of one cell: a terminal would cut longer ones anyway.
const CELL_CHARS_MAX: usize = 200;

/// The highlighting of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Warning,
    Bad,
}

pub struct Row {
    pub cells: Vec<String>,
    pub tone: Tone,
    /// The values to sort by, in the order of the pane's sort columns.
    keys: Vec<SortKey>,
}

/// Names ascend, numbers descend: the largest is usually the interesting one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Name(String),
    Number(Reverse<u64>),
}

impl Pane {
    pub const fn title(self) -> &'static str {
        match self {
            Pane::Queues => "Queues",
            Pane::Workers => "Workers",
            Pane::Running => "Running",
            Pane::Failures => "Failures",
        }
    }

    /// Headers and their minimum widths; the last column takes the rest.
    pub const fn columns(self) -> &'static [(&'static str, u16)] {
        match self {
            Pane::Queues => &[("QUEUE", 11), ("WAIT", 5), ("QUEUED", 6), ("RUN", 4), ("OLDEST", 7)],
            Pane::Workers => &[("WORKER", 15), ("SLOTS", 7), ("BEAT", 4), ("TYPES", 5)],
            Pane::Running => &[("JOB", 22), ("TYPE", 10), ("ATTEMPT", 7), ("FOR", 8), ("PROGRESS", 10)],
            Pane::Failures => &[("AGO", 7), ("JOB", 22), ("OUTCOME", 10), ("ERROR", 10)],
        }
    }

    /// The sort columns of the pane.
    pub const fn sorts(self) -> &'static [&'static str] {
        match self {
            Pane::Queues => &["queued", "running", "oldest", "name"],
            Pane::Workers => &["name", "slots used"],
            Pane::Running => &["longest", "name", "type"],
            Pane::Failures => &["latest", "name"],
        }
    }
}

pub fn rows(model: &Model, pane: Pane) -> Vec<Row> {
    let now = model.snapshot.now;
    let snapshot = &model.snapshot;
    let mut rows: Vec<Row> = match pane {
        Pane::Queues => snapshot.queues.iter().map(|queue| of_queue(queue, now)).collect(),
        Pane::Workers => snapshot.workers.iter().map(|worker| of_worker(model, worker)).collect(),
        Pane::Running => snapshot.running.iter().map(|running| of_running(running, now)).collect(),
        Pane::Failures => snapshot.failures.iter().map(|failure| of_failure(failure, now)).collect(),
    };
    let wanted = model.filter.to_lowercase();
    rows.retain(|row| row.cells.iter().any(|cell| cell.to_lowercase().contains(&wanted)));
    let sort = model.sort(pane);
    rows.sort_by(|a, b| a.keys.get(sort).cmp(&b.keys.get(sort)));
    rows
}

fn row<const CELLS: usize, const KEYS: usize>(
    cells: [String; CELLS],
    tone: Tone,
    keys: [SortKey; KEYS],
) -> Row {
    // Names of jobs and workers must not move the cursor.
    let cells = cells.map(|cell| visible(&shortened(&cell, CELL_CHARS_MAX)).into_owned());
    Row { cells: cells.to_vec(), tone, keys: keys.to_vec() }
}

fn name(text: &str) -> SortKey {
    SortKey::Name(text.to_lowercase())
}

fn of_queue(queue: &QueueBody, now: Timestamp) -> Row {
    let oldest = queue.oldest_queued_at.map(|since| now.since(since));
    let state = match (queue.paused, oldest) {
        (true, _) => "PAUSED".to_owned(),
        (false, Some(oldest)) => rough(oldest),
        (false, None) => "-".to_owned(),
    };
    let tone = if queue.paused { Tone::Warning } else { Tone::Plain };
    let [waiting, queued, running] = [queue.waiting, queue.queued, queue.running];
    row(
        [queue.queue.clone(), waiting.to_string(), queued.to_string(), running.to_string(), state],
        tone,
        [
            SortKey::Number(Reverse(queued)),
            SortKey::Number(Reverse(running)),
            SortKey::Number(Reverse(oldest.unwrap_or_default().as_millis() as u64)),
            name(&queue.queue),
        ],
    )
}

fn of_worker(model: &Model, worker: &WorkerBody) -> Row {
    let snapshot = &model.snapshot;
    let listed = snapshot.running.iter().filter(|running| running.worker.as_ref() == Some(&worker.worker_id));
    let listed = listed.count() as u64;
    // Where not all running executions are listed, more slots may be in use than is known.
    let (used, mark) = match snapshot.workers.len() {
        1 => (snapshot.running_count, ""),
        _ if (snapshot.running.len() as u64) < snapshot.running_count => (listed, "+"),
        _ => (listed, ""),
    };
    row(
        [
            worker.worker_id.clone(),
            format!("{used}{mark}/{}", worker.slots),
            rough(snapshot.now.since(worker.last_heartbeat_at)),
            worker.job_types.join(" "),
        ],
        Tone::Plain,
        [name(&worker.worker_id), SortKey::Number(Reverse(used))],
    )
}

fn of_running(running: &RunningExecution, now: Timestamp) -> Row {
    let ran = running.started_at.map(|started| now.since(started));
    let progress = match (&running.progress, running.is_asked_to_stop) {
        (_, true) => "asked to stop".to_owned(),
        (Some(progress), _) => progress::told(progress),
        (None, _) => "-".to_owned(),
    };
    let attempt = match running.attempt > running.attempts_max {
        true => running.attempt.to_string(),
        false => format!("{}/{}", running.attempt, running.attempts_max),
    };
    let tone = if running.attempt > 1 { Tone::Warning } else { Tone::Plain };
    row(
        [
            running.name.clone(),
            running.job_type.clone(),
            attempt,
            ran.map_or_else(|| "-".to_owned(), rough),
            progress,
        ],
        tone,
        [
            SortKey::Number(Reverse(ran.unwrap_or_default().as_millis() as u64)),
            name(&running.name),
            name(&running.job_type),
        ],
    )
}

fn of_failure(failure: &FailedAttempt, now: Timestamp) -> Row {
    let (outcome, tone) = match failure.outcome {
        FailureOutcome::Dead => ("dead".to_owned(), Tone::Bad),
        FailureOutcome::Retried(status) => (status.to_string(), Tone::Warning),
    };
    let at = u64::try_from(failure.at.as_micros()).unwrap_or_default();
    row(
        [rough(now.since(failure.at)), failure.name.clone(), outcome, failure.error.clone()],
        tone,
        [SortKey::Number(Reverse(at)), name(&failure.name)],
    )
}
