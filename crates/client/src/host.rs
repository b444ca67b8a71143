//! The ports of this machine: clock, randomness and threads. For workers written with this crate and for the
//! binary; the simulator has its own.

use punctual_core::health::Measured;
use punctual_core::mix::mix;
use punctual_core::ports::{Clock, Host, Machine, Random, Spawn, Task};
use punctual_core::time::{Monotonic, Timestamp};
use punctual_worker::machine::LinuxMachine;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::runtime::Handle;

/// The host of this process. Must be called within the runtime that is to run spawned tasks.
pub fn this_machine() -> Result<Host, getrandom::Error> {
    let clock = Arc::new(SystemClock { started: Instant::now() });
    Ok(Host {
        clock: clock.clone(),
        calendar: clock,
        random: Arc::new(SystemRandom::seeded()?),
        spawn: Arc::new(TokioSpawn(Handle::current())),
    })
}

/// Health measurements of this machine and of the disk with this directory. Must be called within a runtime.
pub fn health(disk: impl Into<PathBuf>) -> Arc<dyn Machine> {
    Arc::new(ThisMachine { machine: Arc::new(LinuxMachine::with_disk(disk)), runtime: Handle::current() })
}

/// The source address of this machine's outgoing connections, if it has any. Nothing is sent to find out.
pub fn own_address() -> Option<String> {
    // A reserved address (TEST-NET-1) and the discard port.
    const NOBODY: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(NOBODY).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_unspecified()).then(|| address.to_string())
}

struct ThisMachine {
    machine: Arc<LinuxMachine>,
    runtime: Handle,
}

impl Machine for ThisMachine {
    fn measure(&self) -> Task<Measured> {
        let machine = self.machine.clone();
        let looking = self.runtime.spawn_blocking(move || machine.look());
        Box::pin(async move { looking.await.unwrap_or_default() })
    }
}

/// The time of this machine, which may differ from the server's.
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

/// SplitMix64 with a seed from the operating system: one atomic addition per number, and no number repeats
/// within a process. For ids and jitter, not for secrets.
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
        // Counting by one is enough: the mixed output repeats only when the counter does.
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
