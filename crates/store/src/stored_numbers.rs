//! Single numbers that a store keeps durably, one per row of the table `probe`.

/// Identifies the number: the id of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredNumber {
    /// Written to test whether writes succeed; never read.
    Probe = 1,
    /// The time at which retention last found the store's clock steady.
    SteadyClock = 2,
    /// Log lines written before this time may have been removed to keep the total log size within its
    /// limit. Not on SQLite, where log lines have their own database.
    LogsRemoved = 3,
    /// The position in history up to which the logs of executions were removed for that limit.
    LogsRemovedPlace = 4,
}

impl StoredNumber {
    pub const fn id(self) -> i32 {
        self as i32
    }
}
