//! The server's clock: its time, and driving it where that is allowed.

use crate::duration::Span;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What moves the scheduling clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockMode {
    /// The system clock.
    System,
    /// Requests: the server was started with `--clock manual`.
    Manual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBody {
    pub mode: ClockMode,
    pub now: Timestamp,
}

/// Where to move the clock: `by` a duration, or `to` a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveClock {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// How long to wait, in real time, until executions that have begun are finished; `0s` not to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Span>,
}

/// How far the clock was moved, and what happened on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockMoved {
    pub now: Timestamp,
    /// Occurrences that schedules opened.
    pub fired: u64,
    /// Occurrences that schedules skipped.
    pub skipped: u64,
    /// Whether nothing is left that is due, queued for a worker or running.
    pub settled: bool,
    /// Whether a limit was reached before the requested time: repeat the request to continue.
    pub more: bool,
}
