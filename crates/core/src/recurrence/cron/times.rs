//! The times of day of a pattern: every combination of its hours, minutes and seconds.

use super::nth_bit;

/// Bit sets; none is empty.
#[derive(Debug, Clone, Copy)]
pub(in crate::recurrence) struct TimesOfDay {
    pub(in crate::recurrence) hours: u64,
    pub(in crate::recurrence) minutes: u64,
    pub(in crate::recurrence) seconds: u64,
}

impl TimesOfDay {
    pub(in crate::recurrence) fn count(&self) -> u64 {
        ones(self.hours) * ones(self.minutes) * ones(self.seconds)
    }

    /// How many of the times are before this second of the day.
    pub(in crate::recurrence) fn rank(&self, second_of_day: u32) -> u64 {
        let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
        let mut rank = ones_below(self.hours, hour) * ones(self.minutes) * ones(self.seconds);
        if has(self.hours, hour) {
            rank += ones_below(self.minutes, minute) * ones(self.seconds);
            if has(self.minutes, minute) {
                rank += ones_below(self.seconds, second);
            }
        }
        rank
    }

    /// The time with `rank` others before it, as a second of the day.
    pub(in crate::recurrence) fn nth(&self, rank: u64) -> u32 {
        let (per_minute, minutes) = (ones(self.seconds), ones(self.minutes));
        let hour = nth_bit(self.hours, rank / per_minute / minutes);
        let minute = nth_bit(self.minutes, rank / per_minute % minutes);
        let second = nth_bit(self.seconds, rank % per_minute);
        hour * 3_600 + minute * 60 + second
    }
}

fn ones(bits: u64) -> u64 {
    u64::from(bits.count_ones())
}

fn ones_below(bits: u64, position: u32) -> u64 {
    ones(bits & ((1 << position) - 1))
}

fn has(bits: u64, position: u32) -> bool {
    bits >> position & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_nth_undo_each_other() {
        let times =
            TimesOfDay { hours: 1 << 0 | 1 << 9 | 1 << 23, minutes: 1 << 30 | 1 << 59, seconds: 0b101 };
        assert_eq!(times.count(), 12);
        let mut second_before = None;
        for rank in 0..times.count() {
            let second = times.nth(rank);
            assert_eq!(times.rank(second), rank);
            assert_eq!(times.rank(second + 1), rank + 1);
            assert!(second_before < Some(second));
            second_before = Some(second);
        }
        assert_eq!(times.rank(0), 0);
    }
}
