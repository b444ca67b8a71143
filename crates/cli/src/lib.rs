//! The commands that use a server's HTTP API, through the client alone: they know no store, engine or adapter.

pub mod clock;
pub mod demo;
pub mod dlq;
pub mod executions;
pub mod job;
pub mod nodes;
mod pages;
mod patience;
pub mod queue;
pub mod schedule;
pub mod stats;
pub mod top;
pub mod workers;
