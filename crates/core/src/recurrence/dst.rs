//! Wall-clock readings around clock changes.
//!
//! A zone is a sequence of [`Stretch`]es of constant offset. Within one, a reading maps to an instant by
//! addition. Where clocks go forward, the readings of the gap belong to no stretch; where they go back, the
//! readings of the overlap belong to two. The user's choice decides both cases. Each stretch thus contributes
//! one range of readings plus at most one instant at its start, so counting and searching work per stretch,
//! and a year costs as much as three of them.

use super::civil::{Civil, Pattern, SECOND_US};
use super::zone::{Stretch, Zone};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What happens to a local time that clocks skip when they go forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DstGap {
    /// It does not run.
    Skip,
    /// It runs at the end of the gap; several skipped times run once.
    RunAfter,
}

/// What happens to a local time that clocks repeat when they go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DstOverlap {
    First,
    Second,
    Both,
}

/// Which schedules run on wall-clock time around clock changes ([`DstGap::Skip`], [`DstOverlap::Both`]) if
/// the user chooses nothing. Other schedules run each of their times once. It is stored with a schedule, so
/// that a new release does not change when stored jobs fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DstDefaults {
    /// Those with a wildcard as hour. Schedules that do not say which rule they follow were stored under
    /// this one.
    WildcardHours,
    /// Also those that repeat within a range of hours, such as `*/15 0-6 * * *`.
    RepeatedHours,
}

impl DstDefaults {
    /// The rule for new schedules.
    pub const LATEST: DstDefaults = DstDefaults::RepeatedHours;

    pub(super) const fn of_stored() -> Self {
        DstDefaults::WildcardHours
    }

    pub(super) const fn is_of_stored(&self) -> bool {
        matches!(self, DstDefaults::WildcardHours)
    }
}

/// The effect of a clock change on one fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DstEffect {
    /// It runs at the end of the gap in place of one or more local times that clocks skipped.
    RunAfterGap,
    /// Its local time occurs twice; this is the first.
    OverlapFirst,
    /// Its local time occurs twice; this is the second.
    OverlapSecond,
}

/// No zone is further from UTC than this.
const OFFSET_MAX_US: i64 = 26 * 3_600 * SECOND_US;

/// A pattern on the clocks of a zone: the instants at which it fires, in microseconds.
pub(super) struct LocalPattern<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) zone: &'a Zone,
    pub(super) gap: DstGap,
    pub(super) overlap: DstOverlap,
}

/// The contribution of one stretch, restricted to the instants of interest.
struct Share {
    /// The start of the stretch, if it fires for skipped readings.
    after_gap: Option<i64>,
    readings: Range<Civil>,
    offset: i64,
}

impl LocalPattern<'_> {
    /// The fire in `range` with exactly `index` others before it.
    pub(super) fn nth_in(&self, range: Range<i64>, index: u64) -> Option<i64> {
        let (mut from, mut index) = (range.start, index);
        while from < range.end {
            let stretch = self.zone.stretch_at(from);
            let share = self.share(&stretch, from..range.end.min(stretch.end));
            if let Some(at) = share.after_gap {
                if index == 0 {
                    return Some(at);
                }
                index -= 1;
            }
            if let Some(reading) = self.pattern.nth_in(&share.readings, index) {
                return Some(reading.0 - share.offset);
            }
            if stretch.end >= range.end {
                return None;
            }
            if index > 0 {
                index -= self.pattern.count(&share.readings);
            }
            from = self.skip_ahead(stretch.end)?;
        }
        None
    }

    /// The last fire in `range`.
    pub(super) fn last_in(&self, range: Range<i64>) -> Option<i64> {
        let mut end = range.end;
        while end > range.start {
            let stretch = self.zone.stretch_at(end - 1);
            let share = self.share(&stretch, range.start.max(stretch.start)..end);
            if let Some(reading) = self.pattern.last_in(&share.readings) {
                return Some(reading.0 - share.offset);
            }
            if share.after_gap.is_some() {
                return share.after_gap;
            }
            // No reading up to this one fires later than it plus the widest offset.
            let latest = self.pattern.last_before(Civil(stretch.start + OFFSET_MAX_US))?;
            end = stretch.start.min(latest.0 + OFFSET_MAX_US + 1);
        }
        None
    }

    pub(super) fn count_in(&self, range: Range<i64>) -> u64 {
        let (mut from, mut count) = (range.start, 0);
        while from < range.end {
            let stretch = self.zone.stretch_at(from);
            let share = self.share(&stretch, from..range.end.min(stretch.end));
            count += u64::from(share.after_gap.is_some()) + self.pattern.count(&share.readings);
            if stretch.end >= range.end {
                break;
            }
            match self.skip_ahead(stretch.end) {
                Some(next) => from = next,
                None => break,
            }
        }
        count
    }

    /// The effect of a clock change on the fire at `at`.
    pub(super) fn effect_at(&self, at: i64) -> Option<DstEffect> {
        let stretch = self.zone.stretch_at(at);
        if self.fires_after_gap(&stretch, &(at..at + 1)) {
            return Some(DstEffect::RunAfterGap);
        }
        let reading = at + stretch.offset;
        if reading < stretch.start + stretch.offset_before {
            Some(DstEffect::OverlapSecond)
        } else if reading >= stretch.end + stretch.offset_after {
            Some(DstEffect::OverlapFirst)
        } else {
            None
        }
    }

    fn share(&self, stretch: &Stretch, instants: Range<i64>) -> Share {
        let Stretch { offset, offset_before, offset_after, .. } = *stretch;
        let mut start = instants.start + offset;
        let mut end = instants.end + offset;
        match self.overlap {
            DstOverlap::First => start = start.max(stretch.start + offset_before),
            DstOverlap::Second => end = end.min(stretch.end + offset_after),
            DstOverlap::Both => {}
        }
        let after_gap = self.fires_after_gap(stretch, &instants).then_some(stretch.start);
        if after_gap.is_some() {
            // The reading at the end of the gap is the same instant: they fire once.
            start += 1;
        }
        Share { after_gap, readings: Civil(start)..Civil(end.max(start)), offset }
    }

    fn fires_after_gap(&self, stretch: &Stretch, instants: &Range<i64>) -> bool {
        let Stretch { start, offset, offset_before, .. } = *stretch;
        self.gap == DstGap::RunAfter
            && offset > offset_before
            && instants.contains(&start)
            && self.pattern.nth_in(&(Civil(start + offset_before)..Civil(start + offset)), 0).is_some()
    }

    /// An instant at or after `from` with no fire in between, so that a pattern for one day in many years
    /// does not visit every clock change on the way; `None` if there are no more fires.
    fn skip_ahead(&self, from: i64) -> Option<i64> {
        let earliest = self.pattern.first_at_or_after(Civil(from - OFFSET_MAX_US))?;
        Some(from.max(earliest.0 - OFFSET_MAX_US))
    }
}
