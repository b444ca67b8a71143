//! Fault probabilities on the way to the store and between nodes. Each seed draws its own and leaves out whole kinds
//! of faults, so that rare combinations are not hidden by common ones.

use crate::random::Rng;

/// Probabilities per thousand calls or messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkFaults {
    /// A store call fails before it reaches the store.
    pub store_refuses: u64,
    /// A store call is applied and its answer is lost.
    pub store_reply_lost: u64,
    /// A store call takes up to `stall_ms_max`, before or after it is applied.
    pub store_stalls: u64,
    pub stall_ms_max: u64,
    /// The store lets writes accumulate and applies them as one batch.
    pub store_gathers: u64,
    pub store_latency_ms_max: u64,
    /// A call to coordination fails before it arrives.
    pub coordination_refuses: u64,
    /// A call to coordination is applied and its answer is lost.
    pub coordination_reply_lost: u64,
    /// A call to coordination takes up to `stall_ms_max`, before or after it is applied.
    pub coordination_stalls: u64,
    pub message_lost: u64,
    pub message_doubled: u64,
    /// A message takes up to `delay_ms_max`, so that later ones overtake it.
    pub message_delayed: u64,
    pub delay_ms_max: u64,
}

impl NetworkFaults {
    pub fn calm() -> Self {
        NetworkFaults {
            store_refuses: 0,
            store_reply_lost: 0,
            store_stalls: 0,
            stall_ms_max: 1,
            store_gathers: 100,
            store_latency_ms_max: 3,
            coordination_refuses: 0,
            coordination_reply_lost: 0,
            coordination_stalls: 0,
            message_lost: 0,
            message_doubled: 0,
            message_delayed: 0,
            delay_ms_max: 1,
        }
    }

    pub fn drawn(rng: &mut Rng) -> Self {
        let mut chance = |max: u64| if rng.per_mille(500) { rng.between(1, max) } else { 0 };
        NetworkFaults {
            store_refuses: chance(60),
            store_reply_lost: chance(60),
            store_stalls: chance(40),
            store_gathers: chance(500),
            message_lost: chance(120),
            message_doubled: chance(200),
            message_delayed: chance(150),
            coordination_refuses: chance(150),
            coordination_reply_lost: chance(100),
            coordination_stalls: chance(80),
            stall_ms_max: rng.between(200, 12_000),
            store_latency_ms_max: rng.between(1, 40),
            delay_ms_max: rng.between(50, 8_000),
        }
    }

    /// A short period in which most store calls fail or stall.
    pub fn storm(self) -> Self {
        NetworkFaults { store_refuses: 400, store_reply_lost: 200, store_stalls: 100, ..self }
    }
}
