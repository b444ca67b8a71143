//! Single numbers that a store keeps durably, each in a row of its own of the table `probe`.

/// Which number it is: the id of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Written to find out whether writing works; nobody reads it.
    Probe = 1,
    /// The time at which retention last found the store's clock steady.
    SteadyClock = 2,
    /// Log lines written before this time may have been removed to keep all of them within their limit. Not on SQLite, where
    /// log lines have a database of their own.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    LogsRemoved = 3,
    /// The place in history up to which the logs of executions were removed for that.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    LogsRemovedPlace = 4,
}

impl Mark {
    pub const fn id(self) -> i32 {
        self as i32
    }
}
