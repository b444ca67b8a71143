//! What all parts of one run share: time, trace, and the auditor with its first violation.

use crate::auditor::{AuditResult, AuditViolation, Auditor};
use crate::executor::SimExecutor;
use crate::host::true_time;
use crate::lock;
use crate::network_faults::NetworkFaults;
use crate::trace::Trace;
use punctual_core::ports::NotedClock;
use punctual_core::time::Timestamp;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

pub struct World {
    pub executor: SimExecutor,
    trace: Mutex<Trace>,
    auditor: Mutex<Auditor>,
    network_faults: Mutex<NetworkFaults>,
    /// How far the store's clock is off for retention, in microseconds.
    store_skew_us: AtomicI64,
    /// The last time at which retention found the store's clock steady, as the store keeps it.
    steady_clock: Mutex<Timestamp>,
    /// When everything sent so far has arrived, including responses.
    all_arrived_at_us: AtomicU64,
    violation: Mutex<Option<AuditViolation>>,
    is_broken: AtomicBool,
}

impl World {
    pub fn new(executor: SimExecutor, trace: Trace, network_faults: NetworkFaults) -> Self {
        World {
            store_skew_us: AtomicI64::new(0),
            // The store has been in use before.
            steady_clock: Mutex::new(executor.starts_at()),
            executor,
            trace: Mutex::new(trace),
            auditor: Mutex::default(),
            network_faults: Mutex::new(network_faults),
            all_arrived_at_us: AtomicU64::new(0),
            violation: Mutex::default(),
            is_broken: AtomicBool::new(false),
        }
    }

    pub fn now(&self) -> Timestamp {
        true_time(&self.executor)
    }

    /// The store's clock as retention reads it.
    pub fn noted_clock(&self) -> NotedClock {
        let now = self.now().shifted(self.store_skew_us.load(Ordering::Relaxed));
        NotedClock { now, noted: Some(*lock(&self.steady_clock)) }
    }

    pub fn note_clock(&self, at: Timestamp) {
        *lock(&self.steady_clock) = at;
    }

    /// Sets the skew of the store's clock; 0 corrects it.
    pub fn set_store_skew(&self, skew_us: i64) {
        self.note(format_args!("the store's clock is off by {skew_us} us for retention"));
        self.store_skew_us.store(skew_us, Ordering::Relaxed);
    }

    pub fn note(&self, event: fmt::Arguments<'_>) {
        let at_us = self.executor.now_us();
        lock(&self.trace).event(at_us, event);
    }

    /// Passes an observation to the auditor and keeps its first violation.
    pub fn audit(&self, tell: impl FnOnce(&mut Auditor) -> AuditResult) {
        let now = self.now();
        let verdict = tell(lock(&self.auditor).step(now));
        if let Err(violation) = verdict {
            self.object(violation);
        }
    }

    /// Passes an observation that cannot break a rule to the auditor.
    pub fn tell(&self, tell: impl FnOnce(&mut Auditor)) {
        let now = self.now();
        tell(lock(&self.auditor).step(now));
    }

    pub fn object(&self, violation: AuditViolation) {
        self.note(format_args!("VIOLATION {}: {}", violation.rule, violation.detail));
        lock(&self.violation).get_or_insert(violation);
        self.is_broken.store(true, Ordering::Relaxed);
    }

    pub fn count(&self, what: &'static str) {
        lock(&self.auditor).count(what);
    }

    /// Queries the auditor.
    pub fn ask<T>(&self, question: impl FnOnce(&Auditor) -> T) -> T {
        question(&lock(&self.auditor))
    }

    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    pub fn violation(&self) -> Option<AuditViolation> {
        lock(&self.violation).clone()
    }

    pub fn network_faults(&self) -> NetworkFaults {
        *lock(&self.network_faults)
    }

    pub fn set_network_faults(&self, network_faults: NetworkFaults) {
        *lock(&self.network_faults) = network_faults;
    }

    /// Records that a message is in flight for this long.
    pub fn travels(&self, takes: Duration) {
        let arrives_at_us = self.executor.now_us() + takes.as_micros() as u64;
        self.all_arrived_at_us.fetch_max(arrives_at_us, Ordering::Relaxed);
    }

    /// When everything sent so far has arrived.
    pub fn all_arrived_at_us(&self) -> u64 {
        self.all_arrived_at_us.load(Ordering::Relaxed)
    }

    /// The hash of all events, their number, and the last ones.
    pub fn traced(&self) -> (u64, u64, Vec<String>) {
        let trace = lock(&self.trace);
        (trace.hash(), trace.count(), trace.last().map(str::to_owned).collect())
    }
}
