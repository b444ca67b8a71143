//! Tests of this adapter: the conformance suite, and tests that only PostgreSQL can run.

mod alike;
mod conflicts;
mod conformance;
mod contention;
mod damaged;
pub(crate) mod database;
mod drift;
mod faults;
mod fixture;
mod heads;
mod hosts;
pub(crate) mod integrity;
mod log_quota;
mod migrations;
mod nodes;
mod partitioning;
mod patience;
mod plans;
mod proxy;
mod reading;
mod register;
mod replica;
mod restarts;
mod round_trips;
mod security;
mod telling;
mod write_plans;
