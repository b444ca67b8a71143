//! Adapters of the `Store` port, and the conformance suite that defines its behaviour.
//!
//! This crate owns all SQL, which compares and swaps. The rules that decide what to write are in
//! `punctual_core`. No other crate knows a table or a column.

pub mod bare;
mod codes;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[cfg(any(test, feature = "postgres", feature = "mysql"))]
mod draft;
pub mod drift;
mod failures;
mod fault;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod inventory;
mod kept;
mod layout;
mod lists;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod log_quota;
pub mod malformed;
mod malformed_check;
mod marks;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod moving;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod register;
mod rows;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod served;
pub mod sqlite;
mod tally;
mod unfinished;
mod verbs;
mod write;
