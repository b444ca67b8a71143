//! The commands that use a server's HTTP API, through the client alone: they know no store, engine or adapter.

pub mod audit;
pub mod clock;
pub mod context;
pub mod demo;
pub mod dlq;
pub mod executions;
pub mod flag_names;
mod grant;
pub mod job;
pub mod login;
pub mod nodes;
mod pages;
pub mod queue;
mod reconnect;
pub mod schedule;
pub mod secret;
pub mod stats;
pub mod token;
pub mod top;
pub mod user;
pub mod workers;
