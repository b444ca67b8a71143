//! What travels between Punctual and its users: the wire types of the HTTP API and a client that speaks it.
//!
//! The wire types own names and spellings, nothing else: what a value means and whether it is allowed is for
//! the API and the core to say. This crate must not know the engine, any store, or HTTP servers.

mod client;
mod duration;
mod execution;
mod job;
mod moment;
mod object;
mod page;
mod priority;
mod problem;
mod schedule;
mod stats;

pub use client::{Client, ClientError, JobFilter};
pub use duration::{ParseSpanError, Seconds, Span};
pub use execution::{DeadLetterBody, ExecutionBody, ExecutionStatus, SkipRangeBody};
pub use job::{
    BatchAnswer, BatchItem, BatchRequest, JobBody, LastExecution, RetryBody, RetryStrategy, ScheduleType,
    SubmitJob, SubmittedBody,
};
pub use moment::time_fix;
pub use page::{ExecutionsPage, Page};
pub use priority::PriorityBody;
pub use problem::{FieldError, Problem};
pub use schedule::{OccurrencePreview, ParseRateError, PreviewBody, PreviewRequest, ReplayRate};
pub use stats::{CountersBody, LaneBody, StatsBody, WorkerBody};

/// Where the API lives on its server.
pub const API_PREFIX: &str = "/api/v1";
