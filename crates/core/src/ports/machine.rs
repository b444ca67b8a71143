//! Measurements of the machine that a worker runs on.

use crate::health::Measured;
use crate::ports::Task;

/// Measures the machine. CPU usage is that of the time since the previous measurement.
pub trait Machine: Send + Sync {
    fn measure(&self) -> Task<Measured>;
}
