//! Deterministic simulation: the real engine, the real worker, and the real SQLite core or the real unit of
//! work of the server stores, in one thread on virtual time, with every kind of fault, and an auditor that knows what must be true.
//!
//! One seed decides topology, workload, faults and every interleaving; the same seed always gives the same
//! run. This crate must not contain rules about jobs that affect a run: it observes.

mod actions;
mod auditor;
mod calendar;
mod clients;
mod cluster;
mod coordination;
mod database;
mod executor;
mod follower;
mod handlers;
mod host;
mod nemesis;
mod network;
mod network_faults;
mod observed_port;
mod random;
mod reads;
mod ready_queue;
mod run;
mod store_connection;
mod topology;
mod trace;
mod workload;
mod world;

pub use auditor::{AuditViolation, Coverage};
pub use database::StoreKind;
pub use punctual_core::lifecycle_coverage::MoveCounts;
pub use run::{RunOutcome, SimOptions, simulate};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even after a panic: a run that panicked is reported from the state it left.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
