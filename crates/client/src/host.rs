//! The machine behind the ports: its clock, its randomness, its threads. For workers written with this crate and
//! for the binary; the simulator has its own.

use punctual_core::mix::mix;
use punctual_core::ports::{Clock, Host, Random, Spawn, Task};
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// The host of this process. Must be called within the runtime that is to run what the host spawns.
pub fn this_machine() -> Result<Host, getrandom::Error> {
    let clock = Arc::new(SystemClock { started: Instant::now() });
    Ok(Host {
        clock: clock.clone(),
        calendar: clock,
        random: Arc::new(SystemRandom::seeded()?),
        spawn: Arc::new(TokioSpawn(Handle::current())),
    })
}

/// The time of this machine, which need not be the server's.
pub fn wall_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX))
}

struct SystemClock {
    started: Instant,
}

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        wall_time()
    }

    fn monotonic(&self) -> Monotonic {
        let micros = self.started.elapsed().as_micros();
        Monotonic::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// SplitMix64 from a seed of the operating system: one atomic addition per number, and no number comes twice
/// within a process. For ids and spreading, not for secrets.
struct SystemRandom(AtomicU64);

impl SystemRandom {
    fn seeded() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 8];
        getrandom::fill(&mut seed)?;
        Ok(SystemRandom(AtomicU64::new(u64::from_le_bytes(seed))))
    }
}

impl Random for SystemRandom {
    fn next_u64(&self) -> u64 {
        // Counting by one is enough: what comes out of the mixing does not repeat before the count does.
        mix(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

struct TokioSpawn(Handle);

impl Spawn for TokioSpawn {
    fn spawn(&self, task: Task) {
        self.0.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn random_numbers_do_not_repeat() {
        let random = SystemRandom(AtomicU64::new(7));
        let numbers: HashSet<u64> = (0..100_000).map(|_| random.next_u64()).collect();
        assert_eq!(numbers.len(), 100_000);
    }
}
