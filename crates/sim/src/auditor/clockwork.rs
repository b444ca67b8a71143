//! Which instants a recurring schedule names, found by trying one after the other: plain arithmetic for
//! intervals, and for the cron patterns of the workload a matcher of seconds and minutes of its own.

use punctual_core::recurrence::Rule;
use punctual_core::schedule::Recurring;
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

const SECOND_US: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Clockwork {
    hands: Hands,
    end_at: Option<Timestamp>,
}

#[derive(Debug)]
enum Hands {
    Steps { every_us: i64, anchor: Timestamp },
    Local { seconds: BTreeSet<i64>, minutes: BTreeSet<i64>, offset_us: i64 },
}

impl Clockwork {
    pub(super) fn of(recurring: &Recurring) -> Self {
        let spec = recurring.recurrence.spec();
        let hands = match &spec.rule {
            Rule::Interval { every, anchor } => {
                let ms = every.strip_suffix("ms").and_then(|number| number.parse::<i64>().ok());
                Hands::Steps { every_us: ms.expect("intervals are in milliseconds") * 1_000, anchor: *anchor }
            }
            Rule::Cron { pattern, .. } => {
                let fields: Vec<&str> = pattern.split(' ').collect();
                let [second, minute, "*", "*", "*", "*"] = fields[..] else {
                    panic!("{pattern} is not of the workload");
                };
                let offset_us = match spec.zone.as_str() {
                    "UTC" => 0,
                    // Never changes its clocks: five and a half hours.
                    "Asia/Kolkata" => 19_800 * SECOND_US,
                    other => panic!("{other} is not of the workload"),
                };
                Hands::Local { seconds: values(second), minutes: values(minute), offset_us }
            }
        };
        Clockwork { hands, end_at: spec.end_at }
    }

    /// The first nominal time after an instant.
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let next = match &self.hands {
            Hands::Steps { every_us, anchor } => {
                let mut steps = (after.as_micros() - anchor.as_micros()) / every_us - 1;
                steps = steps.max(0);
                while anchor.shifted(steps * every_us) <= after {
                    steps += 1;
                }
                anchor.shifted(steps * every_us)
            }
            Hands::Local { seconds, minutes, offset_us } => {
                let mut local = (after.as_micros() + offset_us).div_euclid(SECOND_US) + 1;
                while !(seconds.contains(&(local % 60)) && minutes.contains(&(local / 60 % 60))) {
                    local += 1;
                }
                Timestamp::from_micros(local * SECOND_US - offset_us)
            }
        };
        Some(next).filter(|next| self.end_at.is_none_or(|end| *next <= end))
    }
}

/// The values of a field of sixty: `*`, `*/n`, `a-b/n` or a list.
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
