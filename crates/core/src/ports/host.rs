//! Time, chance and concurrency: the only ways in which engine and worker may obtain them.

use crate::time::{Monotonic, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A boxed future that owns all it needs.
pub type Task<T = ()> = Pin<Box<dyn Future<Output = T> + Send>>;

pub trait Clock: Send + Sync {
    /// This machine's wall clock. It may be wrong and may jump: the cluster's time is the store's.
    fn wall(&self) -> Timestamp;
    fn monotonic(&self) -> Monotonic;
    fn sleep(&self, duration: Duration) -> Task;
}

/// A clock that stands still until someone moves it, for people who try out their schedules.
pub trait DrivenClock: Clock {
    /// Moves the clock on. A time that it has reached already changes nothing: it never goes back.
    fn set(&self, to: Timestamp);
}

pub trait Random: Send + Sync {
    fn next_u64(&self) -> u64;
}

pub trait Spawn: Send + Sync {
    /// Runs the future beside the caller until it ends or the node goes down.
    fn spawn(&self, task: Task);
}

/// What a node has of the machine it runs on.
#[derive(Clone)]
pub struct Host {
    /// Elapsed time, which nobody drives: leases, beats, timeouts and all waits go by it.
    pub clock: Arc<dyn Clock>,
    /// The time by which schedules go, and which the store tells. The same as `clock`, unless it is driven; a
    /// driven one moves schedules and loses no worker, because nothing about sessions looks at it.
    pub calendar: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub spawn: Arc<dyn Spawn>,
}
