//! Spans of OpenTelemetry, as plain records. What batches, encodes and sends them is an adapter.

use crate::time::Timestamp;
use crate::trace_context::{SpanId, TraceContext};
use std::fmt;

/// Where finished spans go.
pub trait SpanSink: Send + Sync + fmt::Debug {
    /// Takes a finished span. Never waits: a span for which there is no room is dropped and counted.
    fn record(&self, span: FinishedSpan);
    fn figures(&self) -> SpanFigures;
}

/// What happened to spans since the process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanFigures {
    /// Spans that the collector has accepted.
    pub exported: u64,
    /// Spans that were lost: there was no room, or the collector did not accept them.
    pub dropped: u64,
}

/// A part of the work on a job, after it has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSpan {
    pub name: String,
    pub kind: SpanKind,
    /// Its own place in its trace.
    pub context: TraceContext,
    pub parent: Option<SpanId>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub attributes: Vec<(&'static str, SpanValue)>,
    pub events: Vec<SpanEvent>,
    /// Spans of other traces that led to it.
    pub links: Vec<TraceContext>,
    /// Why the work failed, if it did.
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    Internal,
    Producer,
    Consumer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanValue {
    Text(String),
    Number(i64),
}

impl SpanValue {
    pub fn text(value: impl fmt::Display) -> Self {
        SpanValue::Text(value.to_string())
    }

    /// A count, or a number of milliseconds.
    pub fn number(value: impl TryInto<i64>) -> Self {
        SpanValue::Number(value.try_into().unwrap_or(i64::MAX))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanEvent {
    pub name: &'static str,
    pub at: Timestamp,
    pub attributes: Vec<(&'static str, SpanValue)>,
}
