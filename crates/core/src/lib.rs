//! The rules of Punctual, and the ports through which it reaches the outside world.
//!
//! This crate owns every decision: which state an execution moves to, when a job fires next, whether a
//! failure is retried, which execution goes first, when a worker session is lost. It must not depend on any
//! database, protocol, clock or source of randomness. Those are port traits in [`ports`], and `now` is always
//! a parameter.

pub mod access;
pub mod blobs;
pub mod calendar;
pub mod causes;
pub mod cluster;
pub mod cluster_pause;
pub mod control;
pub mod defects;
pub mod dependencies;
pub mod documents;
pub mod gates;
pub mod health;
pub mod histogram;
pub mod ids;
pub mod job;
pub mod job_predicate;
pub mod lifecycle;
#[cfg(feature = "planted-defects")]
pub mod lifecycle_coverage;
pub mod limiter;
pub mod limits;
pub mod log_level;
pub mod mix;
pub mod names;
pub mod notes;
pub mod notify;
pub mod occurrence;
pub mod operation;
pub mod payload_filter;
pub mod payload_schema;
pub mod payloads;
pub mod ports;
pub mod published;
pub mod queue;
pub mod rank;
pub mod readmission;
pub mod recurrence;
pub mod retention;
pub mod retry;
pub mod saved_view;
pub mod scaling;
pub mod schedule;
pub mod sealed;
pub mod secrets;
pub mod series;
pub mod service_url;
pub mod session;
pub mod silence;
pub mod slots;
pub mod time;
pub mod trace_context;
