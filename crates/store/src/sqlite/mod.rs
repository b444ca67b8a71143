//! The embedded store: SQLite with one writer.
//!
//! [`SqliteCore`] and [`LogCore`] are synchronous and know no thread, clock or randomness; the simulator drives
//! them directly. [`SqliteStore`] puts them on threads of their own behind the `Store` port.

mod backup;
mod connection;
mod core;
mod fault;
mod integrity;
mod lock;
mod logs;
mod migrate;
mod names;
mod open;
mod reads;
mod rows;
mod store;
#[cfg(test)]
mod tests;
mod threads;
mod verbs;
mod write;

pub use self::core::SqliteCore;
pub use backup::{BackupError, BackupProgress};
pub use logs::LogCore;
pub use open::{OpenError, SqliteOptions};
pub use reads::Reads;
pub use store::SqliteStore;
pub use write::{Write, WriteReply};
