//! The embedded store: SQLite with one writer.
//!
//! [`SqliteCore`] and [`LogCore`] are synchronous and know no threads, clocks or randomness; the simulator
//! drives them directly. [`SqliteStore`] runs them on their own threads behind the `Store` port.

mod active_lanes;
mod audit;
mod background;
mod backup;
mod baseline;
mod checkpoint;
mod connection;
mod core;
mod counter_mismatch;
mod counters;
mod damage;
mod directory;
pub(crate) mod export;
mod figures;
mod file_check;
mod inspect;
mod integrity;
mod lock;
mod logs;
mod maintenance;
mod malformed;
mod membership;
mod migrate;
mod names;
mod open;
mod past;
mod reads;
mod rows;
mod scan;
mod statements;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod tx;
mod unused;
mod write;

pub use self::core::SqliteCore;
pub use crate::audit::AuditCall;
pub use crate::baseline::{BaselineOptions, BaselineRates};
pub use crate::directory::{DirectoryCall, DirectoryReply};
pub use crate::membership::{MembershipCall, MembershipReply};
pub use backup::{BackupError, BackupProgress, backup};
pub use baseline::{BaselineError, measure_baseline};
pub use file_check::{FileCheck, check_files};
pub use inspect::{Inspection, StoreState, inspect};
pub use logs::LogCore;
pub use open::{OpenError, SqliteOptions, refuse_incomplete};
pub use past::{PastError, keep_past};
pub use reads::SqliteReads;
pub use store::SqliteStore;
pub use write::{Purged, SqliteCall, SqliteReply, Upkeep, UpkeepReply};

/// Row writes of a no-op job from submit to success: insert the job, insert its live row, claim it, delete
/// it, append to history. Writes that a transaction shares, such as a session's poll sequence number and
/// the counters of `counters.rs`, are not included.
pub const ROW_WRITES_PER_JOB: u64 = 5;
/// The same for a job that the commit of its submit leases to a slot reservation.
pub const ROW_WRITES_PER_OFFERED_JOB: u64 = 4;
/// The maximum of counter writes that a transaction adds, no matter how many jobs of one lane it contains:
/// one for the lane, one for jobs by status.
pub const COUNTER_WRITES_PER_TRANSACTION: u64 = 2;
