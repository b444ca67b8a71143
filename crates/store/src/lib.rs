//! Adapters of the `Store` port, and the conformance suite that defines its behaviour.
//!
//! This crate owns every line of SQL. It compares and swaps; the rules that say what to write are in
//! `punctual_core`, and no other crate knows a table or a column.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod sqlite;
