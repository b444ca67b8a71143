//! PostgreSQL, version 14 or later: the statements, the schema and the connections. The verbs are in
//! `verbs/`, and the unit of work is in `unit_of_work/`; this module knows only how PostgreSQL stores the
//! rows.

mod audit;
mod baseline;
mod claim_cursors;
mod connection;
pub mod counter_mismatch;
mod databases;
mod directory;
mod errors;
pub(crate) mod export;
mod guard;
mod hosts;
mod inspect;
mod listen;
mod logs;
mod maintenance;
pub mod malformed;
mod membership;
pub mod migrate;
mod names;
mod options;
mod partitions;
mod readers;
mod reads;
mod rows;
mod sql;
mod standby;
mod store;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod tls;
mod unused;
mod wire;

pub use baseline::PostgresBaseline;
pub use databases::{create_database, drop_database};
pub use options::{OptionsError, PostgresOptions};
pub use store::{OpenError, PostgresStore};
