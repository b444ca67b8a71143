//! The commands that use a server's HTTP API, through the client alone: they know no store, engine or adapter.

pub mod apply;
pub mod audit;
pub mod clock;
pub mod context;
pub mod demo;
pub mod dlq;
pub mod executions;
pub mod export;
pub mod flag_names;
mod grant;
pub mod job;
pub mod job_schema;
pub mod login;
mod manifest;
pub mod nodes;
mod pages;
pub mod plan;
pub mod queue;
mod reconnect;
pub mod schedule;
pub mod secret;
pub mod stats;
pub mod token;
pub mod top;
pub mod user;
pub mod workers;
