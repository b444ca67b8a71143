//! Tests of this adapter: the conformance suite, and tests that only these servers can run.

mod alike;
mod conflicts;
mod conformance;
mod counter_mismatch;
pub(crate) mod database;
mod fixture;
mod following;
mod galera;
pub(crate) mod integrity;
mod log_quota;
mod malformed_rows;
mod membership;
mod migrations;
mod nodes;
mod partitioning;
mod plans;
mod readers;
mod round_trips;
mod security;
mod unused;
mod write_plans;
