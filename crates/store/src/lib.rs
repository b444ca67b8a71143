//! Adapters of the `Store` port, and the conformance suite that defines its behaviour.
//!
//! This crate owns all SQL, which compares and swaps. The rules that decide what to write are in
//! `punctual_core`. No other crate knows a table or a column.

#![cfg_attr(test, expect(clippy::duplicate_mod, reason = "the tests of server stores run for each dialect"))]

mod audit;
pub mod baseline;
mod cells;
mod codecs;
mod codes;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod counter_mismatch;
mod counters;
pub mod data_migration;
mod directory;
mod execution_log_quota;
mod failures;
mod fault;
mod inventory;
mod layout;
mod lists;
mod log_quota;
pub mod malformed;
mod malformed_check;
pub mod membership;
pub mod mysql;
mod new_rows;
pub mod postgres;
mod reads;
mod row_list;
mod rows;
mod server;
pub mod sqlite;
mod store_port;
mod stored_numbers;
mod tokio_host;
mod unfinished;
mod unit_of_work;
mod verbs;

pub use server::migrations::{MigrateError, MigrationStatus};
pub use server::options::ServerOptions;

#[cfg(any(test, feature = "memory-tables"))]
pub mod memory_server {
    //! A database server in memory, on which the simulator runs the writers of the server stores.
    pub use crate::unit_of_work::simulated_server::{
        Commit, Isolation, MemoryDatabase, MemoryServer, MemoryWriters, RoundTrip, ServerNetwork,
    };
}
