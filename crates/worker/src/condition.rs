//! The condition of a worker during a session: its health, the number of slots that follows from its health
//! and from the waiting work, and when to report both to the server. It only decides: it measures nothing and
//! makes no calls.

use crate::WorkerConfig;
use punctual_core::health::{Health, Measured, WorkerCondition};
use punctual_core::limits;
use punctual_core::slots::{Demand, Sight, SlotRange, Slots};
use punctual_core::time::{Monotonic, duration_micros};
use std::time::Duration;

/// What a worker holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerLoad {
    pub(crate) running: usize,
    pub(crate) ready: usize,
}

impl WorkerLoad {
    fn busy(self) -> u32 {
        number(self.running + self.ready)
    }
}

#[derive(Debug)]
pub(crate) struct Condition {
    health: Health,
    slots: Slots,
    address: Option<String>,
    round_trip: Option<Duration>,
    last_error: Option<String>,
    /// The last reported condition, and when it was reported.
    told: Option<(Monotonic, WorkerCondition)>,
}

impl Condition {
    pub(crate) fn new(config: &WorkerConfig) -> Self {
        Condition {
            health: Health::within(config.limits),
            slots: Slots::new(slot_range(config)),
            address: config.address.clone(),
            round_trip: None,
            last_error: None,
            told: None,
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.get() as usize
    }

    pub(crate) fn refuses_work(&self) -> bool {
        self.health.refuses_work()
    }

    pub(crate) fn adapts(&self) -> bool {
        !self.slots.range().is_fixed()
    }

    pub(crate) fn wants_to_know_demand(&self, load: WorkerLoad) -> bool {
        self.slots.wants_to_know_demand(load.busy()) && self.health.has_room_for_more()
    }

    pub(crate) fn adapt(&mut self, load: WorkerLoad, demand: Demand, now: Monotonic) {
        let sight = Sight {
            busy: load.busy(),
            demand,
            has_room_for_more: self.health.has_room_for_more(),
            refuses_work: self.health.refuses_work(),
        };
        if self.slots.adapt(&sight, now) {
            tracing::info!(
                slots = self.slots.get(),
                queued = demand.queued,
                "the number of slots has changed"
            );
        }
    }

    /// Records a measurement, and logs it when it changes whether the worker accepts work.
    pub(crate) fn measured(&mut self, measured: Measured) {
        if !self.health.measured(measured) {
            return;
        }
        match self.health.refuses_work() {
            true => tracing::warn!(
                reasons = self.health.reasons().join("; "),
                "the worker refuses new work until it has enough resources; running executions continue"
            ),
            false => tracing::info!("the worker accepts work again"),
        }
    }

    pub(crate) fn answered(&mut self, took: Duration) {
        self.round_trip = Some(took);
    }

    /// Records a failed call. After a failed heartbeat the server may not know the condition sent with it.
    pub(crate) fn failed(&mut self, error: &dyn std::error::Error) {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(limits::NAME_BYTES_MAX));
        self.last_error = Some(text);
        self.told = None;
    }

    /// The condition to send with a heartbeat: the first time always, changes that affect where work goes at
    /// once, and the rest at intervals.
    pub(crate) fn take_news(&mut self, load: WorkerLoad, now: Monotonic) -> Option<WorkerCondition> {
        let condition = self.as_it_is(load);
        let is_due = self.told.as_ref().is_none_or(|(then, told)| {
            now.since(*then) >= limits::CONDITION_INTERVAL || condition.differs_noticeably_from(told)
        });
        is_due.then(|| {
            self.told = Some((now, condition.clone()));
            condition
        })
    }

    fn as_it_is(&self, load: WorkerLoad) -> WorkerCondition {
        let range = Some(self.slots.range()).filter(|range| !range.is_fixed());
        WorkerCondition {
            address: self.address.clone(),
            slots: self.slots.get(),
            slots_min: range.map(SlotRange::min),
            slots_max: range.map(SlotRange::max),
            running: number(load.running),
            ready: number(load.ready),
            measured: *self.health.last(),
            round_trip_us: self.round_trip.map(|took| duration_micros(took).unsigned_abs()),
            last_error: self.last_error.clone(),
            refuses: self.health.reasons(),
        }
    }
}

/// The range of slots that the config allows.
pub(crate) fn slot_range(config: &WorkerConfig) -> SlotRange {
    let least = number(config.slots).max(1);
    let most = config.slots_max.map_or(least, number);
    SlotRange::new(least, most).unwrap_or(SlotRange::fixed(least))
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::health::{FreeMin, HealthLimits, Room};
    use punctual_core::ports::WorkerPortError;

    const IDLE: WorkerLoad = WorkerLoad { running: 0, ready: 0 };

    fn at(ms: u64) -> Monotonic {
        Monotonic::from_micros(ms * 1_000)
    }

    fn condition() -> Condition {
        let limits = HealthLimits { memory_free_min: Some(FreeMin::Percent(10)), ..HealthLimits::default() };
        Condition::new(&WorkerConfig { slots: 2, slots_max: Some(8), limits, ..WorkerConfig::default() })
    }

    fn memory(free: u64) -> Measured {
        Measured { memory: Some(Room { free, total: 100 }), ..Measured::default() }
    }

    #[test]
    fn it_tells_at_first_then_now_and_then_and_at_once_that_it_refuses_work() {
        let mut condition = condition();
        assert!(condition.take_news(IDLE, at(0)).is_some());
        assert!(condition.take_news(WorkerLoad { running: 2, ready: 1 }, at(1_200)).is_none());
        condition.measured(memory(5));
        let told = condition.take_news(IDLE, at(2_400)).expect("it refuses work");
        assert_eq!(told.refuses, ["memory: 5 B of 100 B free, less than 10%"]);
        assert!(condition.take_news(IDLE, at(3_600)).is_none());
        assert!(condition.take_news(IDLE, at(2_400 + 5_000)).is_some());
    }

    #[test]
    fn what_may_not_have_arrived_is_told_again() {
        let mut condition = condition();
        condition.take_news(IDLE, at(0));
        condition.failed(&WorkerPortError::Unavailable("ü".repeat(500)));
        let told = condition.take_news(IDLE, at(1)).expect("it tells again");
        let error = told.last_error.expect("the error");
        assert!(
            error.starts_with("a request to the server failed: ü") && error.len() <= limits::NAME_BYTES_MAX
        );
    }

    #[test]
    fn a_worker_that_adapts_says_within_which_bounds() {
        let mut condition = condition();
        let full = WorkerLoad { running: 2, ready: 0 };
        assert!(condition.adapts() && condition.wants_to_know_demand(full));
        condition.take_news(full, at(0));
        condition.adapt(full, Demand { queued: 50, oldest_wait: Duration::from_secs(3) }, at(1));
        let told = condition.take_news(full, at(2)).expect("the slots have changed");
        assert_eq!((told.slots, told.slots_min, told.slots_max), (3, Some(2), Some(8)));
        condition.measured(memory(11));
        assert!(
            !condition.wants_to_know_demand(WorkerLoad { running: 3, ready: 0 }),
            "memory is nearly short"
        );
    }
}
