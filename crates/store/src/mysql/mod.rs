//! MariaDB from 10.6 and MySQL from 8.0.19: the statements, the schema and the connections. The verbs are
//! in `verbs/`, and the unit of work is in `unit_of_work/`; this module knows only how these servers store
//! the rows.
//!
//! Both use the same SQL text. Where they differ, the difference is in a comment that only one of them
//! executes: `/*!80000 … */` is for MySQL, `/*M! … */` for MariaDB.

mod audit;
mod baseline;
mod connection;
pub mod counter_mismatch;
mod databases;
mod directory;
mod errors;
mod exclusive_work;
pub(crate) mod export;
mod galera;
mod hosts;
mod inspect;
mod lists;
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
mod store;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod unused;

pub use baseline::MySqlBaseline;
pub use databases::{create_database, drop_database};
pub use options::{MySqlOptions, OptionsError};
pub use store::{MySqlStore, OpenError};
