//! The nominal times of a recurring schedule, found by brute force: plain arithmetic for intervals, and an
//! independent matcher of seconds and minutes for the cron patterns of the workload.

use crate::calendar::{CLOCK_CHANGES, ClockChange};
use punctual_core::recurrence::Rule;
use punctual_core::schedule::Recurring;
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

const SECOND_US: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Clockwork {
    hands: ClockworkRule,
    end_at: Option<Timestamp>,
}

#[derive(Debug)]
enum ClockworkRule {
    Steps { every_us: i64, anchor: Timestamp },
    Local(Local),
}

/// A pattern in local time.
#[derive(Debug)]
struct Local {
    seconds: BTreeSet<i64>,
    minutes: BTreeSet<i64>,
    /// `None` for every hour.
    hour: Option<i64>,
    zone: ZoneOffset,
}

/// The offset of a zone from UTC, in seconds.
#[derive(Debug)]
enum ZoneOffset {
    Fixed(i64),
    Changing(ClockChange),
}

impl Clockwork {
    pub(super) fn of(recurring: &Recurring) -> Self {
        let spec = recurring.recurrence.spec();
        let hands = match &spec.rule {
            Rule::Interval { every, anchor } => {
                let ms = every.strip_suffix("ms").and_then(|number| number.parse::<i64>().ok());
                ClockworkRule::Steps {
                    every_us: ms.expect("intervals are in milliseconds") * 1_000,
                    anchor: *anchor,
                }
            }
            Rule::Rrule { rule, .. } => panic!("{rule} is not of the workload"),
            Rule::Union { parts } => panic!("{parts:?} are not of the workload"),
            Rule::Cron { pattern, .. } => {
                let fields: Vec<&str> = pattern.split(' ').collect();
                let [second, minute, hour, "*", "*", "*"] = fields[..] else {
                    panic!("{pattern} is not of the workload");
                };
                ClockworkRule::Local(Local {
                    seconds: values(second),
                    minutes: values(minute),
                    hour: hour.parse().ok(),
                    zone: ZoneOffset::named(&spec.zone, spec.end_at),
                })
            }
        };
        Clockwork { hands, end_at: spec.end_at }
    }

    /// Whether the zone's offset has changed by then.
    pub(super) fn has_changed(&self, nominal: Timestamp) -> bool {
        matches!(&self.hands, ClockworkRule::Local(Local { zone: ZoneOffset::Changing(change), .. }) if change.at <= nominal)
    }

    /// The first nominal time after an instant.
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let next = match &self.hands {
            ClockworkRule::Steps { every_us, anchor } => {
                let mut steps = (after.as_micros() - anchor.as_micros()) / every_us - 1;
                steps = steps.max(0);
                while anchor.shifted(steps * every_us) <= after {
                    steps += 1;
                }
                anchor.shifted(steps * every_us)
            }
            ClockworkRule::Local(local) => {
                let mut instant = after.as_micros().div_euclid(SECOND_US) + 1;
                while !local.names(instant) {
                    instant += 1;
                    // A pattern with a fixed hour has an end; otherwise the next match would be days away.
                    if self.end_at.is_some_and(|end| instant * SECOND_US > end.as_micros()) {
                        return None;
                    }
                }
                Timestamp::from_micros(instant * SECOND_US)
            }
        };
        Some(next).filter(|next| self.end_at.is_none_or(|end| *next <= end))
    }
}

impl Clockwork {
    /// The nominal time before this one, if there is one within two days.
    /// The last nominal time of a schedule that ends.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.last_before(self.end_at?.shifted(1))
    }

    pub(super) fn last_before(&self, nominal: Timestamp) -> Option<Timestamp> {
        match &self.hands {
            ClockworkRule::Steps { every_us, anchor } => {
                let steps = (nominal.as_micros() - 1 - anchor.as_micros()).div_euclid(*every_us);
                (steps >= 0).then(|| anchor.shifted(steps * every_us))
            }
            ClockworkRule::Local(local) => {
                let next = nominal.as_micros().div_euclid(SECOND_US);
                let before = (next - 2 * 86_400..next).rev().find(|instant| local.names(*instant))?;
                Some(Timestamp::from_micros(before * SECOND_US))
            }
        }
    }
}

impl Local {
    /// Whether an instant, in seconds, is a nominal time. A pattern for every hour simply matches local time.
    /// A pattern for one hour runs at the end of a gap for everything that fell into it, and once in an hour
    /// that occurs twice.
    fn names(&self, instant: i64) -> bool {
        let shown = instant + self.zone.offset(instant);
        let (Some(_), ZoneOffset::Changing(change)) = (self.hour, &self.zone) else {
            return self.matches(shown);
        };
        let at = change.at.as_micros() / SECOND_US;
        let (gap, repeated) =
            (change.after_secs - change.before_secs, change.before_secs - change.after_secs);
        if instant == at && gap > 0 {
            return (at + change.before_secs..=at + change.after_secs).any(|shown| self.matches(shown));
        }
        self.matches(shown) && !(at..at + repeated).contains(&instant)
    }

    fn matches(&self, shown: i64) -> bool {
        self.seconds.contains(&shown.rem_euclid(60))
            && self.minutes.contains(&shown.div_euclid(60).rem_euclid(60))
            && self.hour.is_none_or(|hour| shown.div_euclid(3_600).rem_euclid(24) == hour)
    }
}

impl ZoneOffset {
    /// The zone around the end of the schedule.
    fn named(name: &str, end_at: Option<Timestamp>) -> Self {
        match name {
            "UTC" => ZoneOffset::Fixed(0),
            // Without daylight saving: five and a half hours.
            "Asia/Kolkata" => ZoneOffset::Fixed(19_800),
            _ => {
                let end_us =
                    end_at.expect("a pattern in a zone that changes its clocks has an end").as_micros();
                let changes = CLOCK_CHANGES.iter().filter(|change| change.zone == name);
                let near = changes.min_by_key(|change| (change.at.as_micros() - end_us).abs());
                ZoneOffset::Changing(*near.unwrap_or_else(|| panic!("{name} is not of the workload")))
            }
        }
    }

    fn offset(&self, instant: i64) -> i64 {
        match self {
            ZoneOffset::Fixed(offset) => *offset,
            ZoneOffset::Changing(change) if instant * SECOND_US < change.at.as_micros() => change.before_secs,
            ZoneOffset::Changing(change) => change.after_secs,
        }
    }
}

/// The values of a field from 0 to 59: `*`, `*/n`, `a-b/n` or a list.
fn values(field: &str) -> BTreeSet<i64> {
    let number = |text: &str| text.parse::<i64>().expect("a number of the workload");
    let (range, step) = field.split_once('/').map_or((field, 1), |(range, step)| (range, number(step)));
    match (range, range.split_once('-')) {
        ("*", _) => (0..60).filter(|value| value % step == 0).collect(),
        (_, Some((first, last))) => {
            let first = number(first);
            (first..=number(last)).filter(|value| (value - first) % step == 0).collect()
        }
        (list, None) => list.split(',').map(number).collect(),
    }
}
