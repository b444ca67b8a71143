//! The days of a pattern: the two day fields and how they combine.

use super::Month;

/// Which days of the month, each set as bits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct MonthDays {
    /// Days 1 to 31.
    pub(super) fixed: u32,
    /// Days before the last day of the month: bit 0 is the last day itself.
    pub(super) before_last: u32,
    /// Days 1 to 31 that are replaced by their nearest weekday.
    pub(super) nearest_weekday: u32,
    pub(super) last_weekday: bool,
}

/// Which days of the week; Sunday is bit 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WeekDays {
    pub(super) every: u8,
    /// The first to fifth of each weekday in the month.
    pub(super) nth: [u8; 5],
    pub(super) last: u8,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DayRule {
    pub(super) month_days: MonthDays,
    pub(super) week_days: WeekDays,
    /// Whether the field is a wildcard.
    pub(super) month_days_open: bool,
    pub(super) week_days_open: bool,
}

impl DayRule {
    /// The matching days of a month, as bits 1 to 31.
    pub(super) fn days_of(&self, month: &Month) -> u32 {
        let (of_month, of_week) = (self.month_days.days_of(month), self.week_days.days_of(month));
        if self.both_must_match() { of_month & of_week } else { of_month | of_week }
    }

    pub(super) const fn both_must_match(&self) -> bool {
        self.month_days_open || self.week_days_open
    }
}

impl MonthDays {
    pub(super) const ALL: u32 = !1;

    fn days_of(&self, month: &Month) -> u32 {
        let all = all_days(month);
        let mut days = self.fixed & all;
        if self.before_last == 0 && self.nearest_weekday == 0 && !self.last_weekday {
            return days;
        }
        for day in 1..=month.length {
            if self.before_last >> (month.length - day) & 1 == 1 {
                days |= 1 << day;
            }
            if self.nearest_weekday >> day & 1 == 1 {
                days |= 1 << nearest_weekday(month, day);
            }
        }
        if self.last_weekday {
            days |= 1 << nearest_weekday_before(month, month.length);
        }
        days
    }
}

impl WeekDays {
    pub(super) const ALL: u8 = 0x7F;

    fn days_of(&self, month: &Month) -> u32 {
        if self.every == Self::ALL {
            return all_days(month);
        }
        let mut days = 0;
        for day in 1..=month.length {
            let weekday = month.weekday(day);
            let nth = self.nth[usize::from((day - 1) / 7)];
            let last = if day + 7 > month.length { self.last } else { 0 };
            if (self.every | nth | last) >> weekday & 1 == 1 {
                days |= 1 << day;
            }
        }
        days
    }
}

fn all_days(month: &Month) -> u32 {
    ((1u64 << (month.length + 1)) - 2) as u32
}

/// The weekday nearest to a day, within the month.
fn nearest_weekday(month: &Month, day: u8) -> u8 {
    match month.weekday(day) {
        6 if day == 1 => 3,
        0 if day < month.length => day + 1,
        _ => nearest_weekday_before(month, day),
    }
}

fn nearest_weekday_before(month: &Month, day: u8) -> u8 {
    match month.weekday(day) {
        6 => day - 1,
        0 => day - 2,
        _ => day,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_weekday_stays_within_the_month() {
        let august = Month::new(2026, 8);
        assert_eq!(august.weekday(1), 6, "1 August 2026 is a Saturday");
        assert_eq!(nearest_weekday(&august, 1), 3);
        assert_eq!(nearest_weekday(&august, 15), 14);
        assert_eq!(nearest_weekday(&august, 16), 17);
        assert_eq!(nearest_weekday(&august, 20), 20);
        let may = Month::new(2026, 5);
        assert_eq!(may.weekday(31), 0, "31 May 2026 is a Sunday");
        assert_eq!(nearest_weekday(&may, 31), 29);
    }
}
