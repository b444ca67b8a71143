//! The commands that use a server's HTTP API, through the client alone: they know no store, engine or adapter.

pub mod clock;
pub mod demo;
pub mod dlq;
pub mod executions;
pub mod flag_names;
pub mod job;
pub mod nodes;
mod pages;
pub mod queue;
mod reconnect;
pub mod schedule;
pub mod stats;
pub mod top;
pub mod workers;
