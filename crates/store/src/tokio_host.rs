//! The host of the writers outside of the simulator: the clocks and the runtime of this process.

use punctual_core::mix::mix;
use punctual_core::ports::{Clock, Host, Random, Spawn, Task};
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// A host on the current runtime. The seed determines its random numbers.
pub(crate) fn tokio_host(seed: u64) -> Host {
    let clock = Arc::new(TokioClock(Instant::now()));
    Host {
        clock: clock.clone(),
        calendar: clock,
        random: Arc::new(SeededRandom(AtomicU64::new(seed))),
        spawn: Arc::new(TokioSpawn(Handle::current())),
    }
}

/// Counts from its creation.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn wall(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(tokio::time::sleep(duration))
    }
}

struct SeededRandom(AtomicU64);

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        mix(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

struct TokioSpawn(Handle);

impl Spawn for TokioSpawn {
    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }
}
