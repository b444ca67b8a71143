//! The machine that a worker runs on, as far as it measures it.

use crate::health::Measured;
use crate::ports::Task;

/// Measures. Each look at the processors is about the time since the one before.
pub trait Machine: Send + Sync {
    fn measure(&self) -> Task<Measured>;
}
