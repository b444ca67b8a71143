//! An in-memory database server for the unit of work: tables, row locks and connections. The simulator runs
//! the writers of the server stores over it, and the tests of this module use its tables.
//!
//! It behaves as PostgreSQL and MariaDB do at READ COMMITTED: a transaction waits for rows that others have
//! locked, reads what was committed last, and is rolled back in a deadlock, after a lock timeout or when its
//! connection is lost. Nothing of it is visible before its commit.

mod connection;
mod database;
mod reads;
mod row_locks;
mod server;
mod upkeep;

pub use connection::MemoryWriters;
pub use database::MemoryDatabase;
pub use server::{Commit, Isolation, MemoryServer, RoundTrip, ServerNetwork};
