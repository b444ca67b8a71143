//! Time, randomness and concurrency: engine and worker may obtain them only through these ports.

use crate::time::{Monotonic, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A boxed future that owns its data.
pub type Task<T = ()> = Pin<Box<dyn Future<Output = T> + Send>>;

pub trait Clock: Send + Sync {
    /// This machine's wall clock. It may be wrong and may jump: the cluster uses the store's time.
    fn wall(&self) -> Timestamp;
    fn monotonic(&self) -> Monotonic;
    fn sleep(&self, duration: Duration) -> Task;
}

/// A clock that moves only when it is set, for testing schedules.
pub trait DrivenClock: Clock {
    /// Moves the clock forward. A time that it has already reached changes nothing: it never goes back.
    fn set(&self, to: Timestamp);
}

pub trait Random: Send + Sync {
    fn next_u64(&self) -> u64;
}

pub trait Spawn: Send + Sync {
    /// Runs the future concurrently until it ends or the node stops.
    fn spawn(&self, task: Task);
}

/// The services of the machine that a node runs on.
#[derive(Clone)]
pub struct Host {
    /// Elapsed time, which is never driven: leases, heartbeats, timeouts and all waits use it.
    pub clock: Arc<dyn Clock>,
    /// The time that schedules and the store use. The same as `clock`, unless it is driven. A driven one
    /// moves schedules and loses no worker, because sessions do not use it.
    pub calendar: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub spawn: Arc<dyn Spawn>,
}
