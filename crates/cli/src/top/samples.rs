//! Snapshots for tests.

use crate::top::model::{FailedAttempt, FailureOutcome, RunningExecution, TopSnapshot};
use punctual_client::{CountersBody, ExecutionStatus, ProgressBody, QueueBody, WorkerBody};
use punctual_core::notes::Percent;
use punctual_core::time::Timestamp;
use std::time::Duration;

fn now() -> Timestamp {
    "2026-11-15T08:30:00Z".parse().unwrap()
}

fn ago(seconds: u64) -> Timestamp {
    now().minus(Duration::from_secs(seconds))
}

pub fn idle() -> TopSnapshot {
    TopSnapshot {
        version: "0.1.0".to_owned(),
        started_at: Some(ago(93_784)),
        now: now(),
        counters: CountersBody::default(),
        queues: vec![],
        workers: vec![],
        running: vec![],
        running_count: 0,
        failures: vec![],
    }
}

/// The busy server this many seconds later.
pub fn later(seconds: u64) -> TopSnapshot {
    let counters = CountersBody {
        submitted: 100 * seconds * seconds,
        claimed: 90 * seconds * seconds,
        succeeded: 80 * seconds,
        failed: seconds / 4,
        retried: seconds / 4,
        ..CountersBody::default()
    };
    TopSnapshot { counters, now: now(), ..snapshot() }
}

pub fn snapshot() -> TopSnapshot {
    TopSnapshot {
        queues: vec![queue("default", [3, 1_250, 2], Some(95)), queue("mail", [0, 40, 0], Some(7_400))],
        workers: vec![worker("alpha-1", 16), worker("a-worker-with-a-long-name", 4)],
        running: vec![
            running("nightly-report", "process", 1, 754),
            RunningExecution {
                progress: Some(ProgressBody {
                    percent: Percent::new(41.5),
                    message: Some("page 5 of 12".to_owned()),
                    noted_at: ago(1),
                }),
                ..running("thumbnails", "thumbs", 2, 3)
            },
        ],
        running_count: 2,
        failures: vec![
            failure(
                12,
                "sync",
                FailureOutcome::Retried(ExecutionStatus::TimedOut),
                "the time limit of 30s ran out",
            ),
            failure(
                301,
                "mail-digest",
                FailureOutcome::Dead,
                "the server answered 550\u{1b}[2J: no such user",
            ),
        ],
        ..idle()
    }
}

fn queue(name: &str, [waiting, queued, running]: [u64; 3], oldest: Option<u64>) -> QueueBody {
    let paused = name == "mail";
    QueueBody {
        queue: name.to_owned(),
        paused,
        unreadable: None,
        paused_at: paused.then(|| ago(7_400)),
        waiting,
        queued,
        running,
        oldest_queued_at: oldest.map(ago),
        settings: Default::default(),
        in_line: 0,
    }
}

fn worker(id: &str, slots: u32) -> WorkerBody {
    WorkerBody {
        worker_id: id.to_owned(),
        slots,
        job_types: vec!["noop".to_owned(), "process".to_owned(), "sleep".to_owned()],
        started_at: ago(86_400),
        last_heartbeat_at: ago(1),
    }
}

fn running(name: &str, job_type: &str, attempt: u32, seconds: u64) -> RunningExecution {
    RunningExecution {
        name: name.to_owned(),
        job_type: job_type.to_owned(),
        worker: Some("alpha-1".to_owned()),
        attempt,
        attempts_max: 4,
        started_at: Some(ago(seconds)),
        is_asked_to_stop: false,
        progress: None,
    }
}

fn failure(seconds: u64, name: &str, outcome: FailureOutcome, error: &str) -> FailedAttempt {
    FailedAttempt { at: ago(seconds), name: name.to_owned(), outcome, error: error.to_owned() }
}
