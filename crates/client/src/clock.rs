//! The server's clock: what it shows, and how it is driven where that is allowed.

use crate::duration::Span;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Who moves the clock by which schedules go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockMode {
    /// Nobody: it is the machine's.
    System,
    /// Whoever asks: the server was started with `--clock manual`.
    Manual,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBody {
    pub mode: ClockMode,
    pub now: Timestamp,
}

/// Where to move the clock: `by` a length of time, or `to` a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveClock {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// How long to wait, in real time, until what has begun is finished; `0s` not to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settle: Option<Span>,
}

/// How far the clock was moved, and what happened on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockMoved {
    pub now: Timestamp,
    /// Occurrences that schedules began.
    pub fired: u64,
    /// Occurrences that schedules skipped.
    pub skipped: u64,
    /// Whether nothing that is due, queued for a worker or running is left.
    pub settled: bool,
    /// Whether a limit came before the time that was asked for: ask again to go on.
    pub more: bool,
}
