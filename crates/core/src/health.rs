//! The health of a worker: the measurements of its machine, when they make it refuse work, and what it
//! reports. Pure rules; the measuring is behind a port.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Measurements of a machine. Values that cannot be measured are left out, and never make a worker refuse
/// work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Measured {
    /// CPU usage, in percent of what the worker may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pct: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Room>,
    /// The disk on which the worker stores its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Room>,
}

/// Total and free bytes of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub free: u64,
    pub total: u64,
}

/// The minimum that must be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeMin {
    Bytes(u64),
    Percent(u8),
}

impl FreeMin {
    pub fn bytes_of(self, total: u64) -> u64 {
        match self {
            FreeMin::Bytes(bytes) => bytes,
            FreeMin::Percent(percent) => part(total, percent.into(), 100),
        }
    }
}

impl fmt::Display for FreeMin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeMin::Bytes(bytes) => write!(f, "{}", HumanBytes(*bytes)),
            FreeMin::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// The limits at which a worker refuses new work; `None` if a limit is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthLimits {
    pub memory_free_min: Option<FreeMin>,
    pub disk_free_min: Option<FreeMin>,
    pub cpu_pct_max: Option<u8>,
}

/// What a worker is short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shortage {
    Memory,
    Disk,
    Cpu,
}

/// How much more than the minimum must be free before work is accepted again. Without a margin, a worker at
/// its limit would alternate between refusing and accepting.
const FREE_MARGIN_PCT: u64 = 20;
/// How far below the limit CPU usage must be before work is accepted again.
const CPU_MARGIN_PCT: u8 = 10;
/// The latest CPU reading has a weight of one in this many: a burst of one second does not make a worker
/// refuse work.
const CPU_WEIGHT: u16 = 8;

/// The current health of a worker: its measurements, and what follows from them.
#[derive(Debug, Clone, Default)]
pub struct Health {
    limits: HealthLimits,
    measured: Measured,
    short_of: BTreeSet<Shortage>,
}

impl Health {
    pub fn within(limits: HealthLimits) -> Self {
        Health { limits, ..Health::default() }
    }

    /// Records new measurements. Returns whether the worker has started or stopped refusing work, or refuses
    /// it for another reason.
    pub fn measured(&mut self, now: Measured) -> bool {
        let cpu_pct = match (self.measured.cpu_pct, now.cpu_pct) {
            (Some(before), Some(now)) => Some(smoothed(before, now)),
            (_, now) => now,
        };
        self.measured = Measured { cpu_pct, ..now };
        let short_of = [Shortage::Memory, Shortage::Disk, Shortage::Cpu]
            .into_iter()
            .filter(|shortage| self.is_short_of(*shortage, self.short_of.contains(shortage)))
            .collect();
        let changed = short_of != self.short_of;
        self.short_of = short_of;
        changed
    }

    pub fn last(&self) -> &Measured {
        &self.measured
    }

    pub fn refuses_work(&self) -> bool {
        !self.short_of.is_empty()
    }

    /// Whether more handlers may run at once: no limited resource is short or close to it.
    pub fn has_room_for_more(&self) -> bool {
        [Shortage::Memory, Shortage::Disk, Shortage::Cpu]
            .into_iter()
            .all(|shortage| !self.is_short_of(shortage, true))
    }

    /// Why work is refused, for users.
    pub fn reasons(&self) -> Vec<String> {
        self.short_of.iter().filter_map(|shortage| self.reason(*shortage)).collect()
    }

    /// Whether a limit is reached; with the margin, if it was reached before.
    fn is_short_of(&self, shortage: Shortage, before: bool) -> bool {
        let is_short = |room: Option<Room>, least: Option<FreeMin>| {
            let (Some(room), Some(least)) = (room, least) else { return false };
            let least = least.bytes_of(room.total);
            let margin = if before { part(least, FREE_MARGIN_PCT, 100) } else { 0 };
            room.free < least.saturating_add(margin)
        };
        match shortage {
            Shortage::Memory => is_short(self.measured.memory, self.limits.memory_free_min),
            Shortage::Disk => is_short(self.measured.disk, self.limits.disk_free_min),
            Shortage::Cpu => {
                let (Some(busy), Some(most)) = (self.measured.cpu_pct, self.limits.cpu_pct_max) else {
                    return false;
                };
                busy > if before { most.saturating_sub(CPU_MARGIN_PCT) } else { most }
            }
        }
    }

    fn reason(&self, shortage: Shortage) -> Option<String> {
        let too_little = |what: &str, room: Option<Room>, least: Option<FreeMin>| {
            let (room, least) = (room?, least?);
            let (free, total) = (HumanBytes(room.free), HumanBytes(room.total));
            Some(format!("{what}: {free} of {total} free, less than {least}"))
        };
        match shortage {
            Shortage::Memory => too_little("memory", self.measured.memory, self.limits.memory_free_min),
            Shortage::Disk => too_little("disk", self.measured.disk, self.limits.disk_free_min),
            Shortage::Cpu => {
                let (busy, most) = (self.measured.cpu_pct?, self.limits.cpu_pct_max?);
                Some(format!("cpu: {busy}% busy, more than {most}%"))
            }
        }
    }
}

/// What a worker reports about itself from time to time, for users. It is used only for explanations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WorkerCondition {
    /// The address of its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// How many handlers it currently runs at once; within these bounds, if it adapts.
    pub slots: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_min: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots_max: Option<u32>,
    /// Running handlers.
    pub running: u32,
    /// Executions that it holds without a free slot.
    pub ready: u32,
    #[serde(default)]
    pub measured: Measured,
    /// The duration of the last answered heartbeat, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// The last error between it and its server or store, within this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Why it accepts no new work; empty if it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuses: Vec<String>,
}

impl WorkerCondition {
    /// Whether the difference affects where work goes, so that it should be reported at once.
    pub fn differs_noticeably_from(&self, other: &WorkerCondition) -> bool {
        self.slots != other.slots || self.refuses.is_empty() != other.refuses.is_empty()
    }
}

fn smoothed(before: u8, now: u8) -> u8 {
    let sum = u16::from(before) * (CPU_WEIGHT - 1) + u16::from(now);
    // Rounded towards the latest reading, so that the average reaches it.
    let rounding = if now > before { CPU_WEIGHT - 1 } else { 0 };
    u8::try_from((sum + rounding) / CPU_WEIGHT).unwrap_or(u8::MAX)
}

fn part(of: u64, numerator: u64, denominator: u64) -> u64 {
    u64::try_from(u128::from(of) * u128::from(numerator) / u128::from(denominator)).unwrap_or(u64::MAX)
}

/// Formats bytes for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HumanBytes(pub u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut amount = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while amount >= 1024.0 && unit + 1 < UNITS.len() {
            amount /= 1024.0;
            unit += 1;
        }
        let decimals = usize::from(amount < 10.0);
        write!(f, "{amount:.decimals$} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn limits() -> HealthLimits {
        HealthLimits {
            memory_free_min: Some(FreeMin::Percent(10)),
            disk_free_min: Some(FreeMin::Bytes(500 * MIB)),
            cpu_pct_max: Some(80),
        }
    }

    fn memory(free: u64) -> Measured {
        Measured { memory: Some(Room { free: free * MIB, total: 1_000 * MIB }), ..Measured::default() }
    }

    #[test]
    fn work_is_refused_at_the_limit_and_taken_again_beyond_a_margin() {
        let mut health = Health::within(limits());
        for (free, changes, refuses) in [
            (100, false, false),
            (99, true, true),
            (101, false, true),
            (119, false, true),
            (120, true, false),
            (101, false, false),
        ] {
            assert_eq!(health.measured(memory(free)), changes, "{free}");
            assert_eq!(health.refuses_work(), refuses, "{free}");
        }
    }

    #[test]
    fn reasons_name_what_is_short_and_the_limit() {
        let mut health = Health::within(limits());
        let disk = Some(Room { free: 100 * MIB, total: 2_048 * MIB });
        health.measured(Measured { disk, cpu_pct: Some(97), ..memory(50) });
        assert_eq!(
            health.reasons(),
            [
                "memory: 50 MiB of 1000 MiB free, less than 10%",
                "disk: 100 MiB of 2.0 GiB free, less than 500 MiB",
                "cpu: 97% busy, more than 80%",
            ]
        );
    }

    #[test]
    fn what_is_not_measured_or_not_limited_refuses_nothing() {
        let mut health = Health::within(limits());
        assert!(!health.measured(Measured::default()) && health.has_room_for_more());
        let mut unlimited = Health::within(HealthLimits::default());
        let full = Measured { cpu_pct: Some(100), disk: Some(Room { free: 0, total: 1 }), ..memory(0) };
        assert!(!unlimited.measured(full) && !unlimited.refuses_work());
    }

    #[test]
    fn a_short_burst_refuses_nothing_and_a_long_one_does() {
        let busy = |pct| Measured { cpu_pct: Some(pct), ..Measured::default() };
        let mut health = Health::within(limits());
        health.measured(busy(10));
        assert!(!health.measured(busy(100)));
        let changes = (0..60).filter(|_| health.measured(busy(100))).count();
        assert_eq!((changes, health.refuses_work(), health.last().cpu_pct), (1, true, Some(100)));
        let changes = (0..60).filter(|_| health.measured(busy(5))).count();
        assert_eq!((changes, health.refuses_work(), health.last().cpu_pct), (1, false, Some(5)));
    }

    #[test]
    fn near_its_limits_a_worker_has_no_room_for_more() {
        let mut health = Health::within(limits());
        health.measured(memory(200));
        assert!(health.has_room_for_more());
        health.measured(memory(110));
        assert!(!health.has_room_for_more() && !health.refuses_work());
        let mut busy = Health::within(limits());
        busy.measured(Measured { cpu_pct: Some(75), ..Measured::default() });
        assert!(!busy.has_room_for_more() && !busy.refuses_work());
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_fits() {
        let shown = |bytes| HumanBytes(bytes).to_string();
        assert_eq!(shown(1_023), "1023 B");
        assert_eq!(shown(1_536), "1.5 KiB");
        assert_eq!(shown(64 * 1024 * MIB), "64 GiB");
        assert_eq!(shown(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn what_an_older_version_told_can_be_read() {
        let told: WorkerCondition =
            serde_json::from_str(r#"{"slots": 4, "running": 1, "ready": 0}"#).unwrap();
        assert_eq!((told.slots, told.measured), (4, Measured::default()));
    }
}
