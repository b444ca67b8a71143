//! The server's clock: its time, and driving it where that is allowed.

use crate::duration::Span;
use crate::wire::wire;
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

wire! {
    /// The clock that schedules use.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ClockBody as "Clock" {
        /// Whether it is the machine's clock or a manual one.
        pub mode: ClockMode,
        /// The time it shows.
        pub now: Timestamp,
    }
}

wire! {
    /// Where to move the clock: either `by` a duration, or `to` a point in time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct MoveClock as "MoveClock" {
        /// How far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub by: Option<Span> = the("Duration").example("1h"),
        /// The time to move to; the clock never goes back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub to: Option<Timestamp>,
        /// How long to wait, in real time and at each stop, until no execution that could run is left; `0s`
        /// not to wait, at most 30s.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub settle: Option<Span> = the("Duration").otherwise("10s"),
    }
}

wire! {
    /// How far the clock was moved, and what happened on the way.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ClockMoved as "ClockMoved" {
        /// The time it shows.
        pub now: Timestamp,
        /// Occurrences started by schedules.
        pub fired: u64,
        /// Occurrences skipped by schedules.
        pub skipped: u64,
        /// Nothing is due, queued for a worker or running.
        pub settled: bool,
        /// A limit was reached before the requested time: repeat the request to continue.
        pub more: bool,
    }
}
