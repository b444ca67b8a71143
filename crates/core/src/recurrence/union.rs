//! Several recurrences as one: it fires whenever one of them does, once at each instant.

use super::Recurrence;
use super::civil::DAY_US;
use super::cron::PatternSource;
use super::spec::{RecurrenceError, Rule, UnionPart};
use crate::limits;
use crate::names::name_problem;
use crate::time::Timestamp;
use std::ops::Range;

/// Occurrences that are compared to find out how close together they are, and how long after the first they may be.
const COMPARED: usize = 200;
const COMPARED_WITHIN_US: i64 = 10 * 366 * DAY_US;

#[derive(Debug, Clone)]
pub(super) struct RecurrenceUnion(Vec<(Option<String>, Recurrence)>);

impl RecurrenceUnion {
    /// Reads the parts, and replaces each by its stored form.
    pub(super) fn read(parts: &mut [UnionPart], source: PatternSource) -> Result<Self, RecurrenceError> {
        let refuse = |problem: String| Err(RecurrenceError::Parts(problem));
        let most = limits::SCHEDULES_OF_JOB_MAX;
        if parts.is_empty() || parts.len() > most {
            return refuse(format!("must be 1 to {most} schedules, not {}", parts.len()));
        }
        let mut read = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter_mut().enumerate() {
            if matches!(part.spec.rule, Rule::Union { .. }) {
                return refuse(format!("must not contain schedules in [{index}]"));
            }
            let recurrence = Recurrence::read(part.spec.clone(), source)?;
            if source == PatternSource::Submitted {
                recurrence.refuse_idle_choices()?;
                if let Some(problem) = part.name.as_deref().and_then(name_problem) {
                    return refuse(format!("has a bad name in [{index}]: {problem}"));
                }
                if is_too_dense(&recurrence) {
                    let least = limits::SCHEDULES_SPACING_MIN.as_secs();
                    return refuse(format!(
                        "[{index}] fires more often than every {least} s: a schedule like that must be the only \
                         one of its job"
                    ));
                }
            }
            part.spec = recurrence.spec().clone();
            read.push((part.name.clone(), recurrence));
        }
        Ok(RecurrenceUnion(read))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Recurrence> {
        self.0.iter().map(|(_, recurrence)| recurrence)
    }

    /// The first part that fires at an instant, with its name.
    pub(super) fn part_at(&self, at: Timestamp) -> Option<(Option<&String>, &Recurrence)> {
        let found = self.0.iter().find(|(_, part)| fires_at(part, at));
        found.map(|(name, part)| (name.as_ref(), part))
    }

    /// The instants of a range at which a part fires. Each part is searched once per occurrence of its own.
    pub(super) fn times_in(&self, range: Range<i64>) -> impl Iterator<Item = Timestamp> {
        let after = before(range.start);
        let mut nexts: Vec<_> = self.iter().map(|part| part.next_time_after(after)).collect();
        std::iter::from_fn(move || {
            let at = nexts.iter().flatten().min().copied().filter(|next| next.as_micros() < range.end)?;
            for (part, next) in self.iter().zip(&mut nexts) {
                if *next == Some(at) {
                    *next = part.next_time_after(at);
                }
            }
            Some(at)
        })
    }

    /// Steps only over as many occurrences as are compared in counts: for a later one, counts lead near it.
    pub(super) fn nth_in(&self, range: Range<i64>, index: u64) -> Option<i64> {
        if let Ok(index @ ..=limits::SCHEDULES_COMPARED_MAX) = usize::try_from(index) {
            // A part is not searched for the occurrence after the one that is wanted.
            if index == 0 {
                let after = before(range.start);
                let first = self.iter().filter_map(|part| part.next_time_after(after)).min();
                return first.map(Timestamp::as_micros).filter(|first| *first < range.end);
            }
            return self.times_in(range).nth(index).map(Timestamp::as_micros);
        }
        let wanted = index.checked_add(1)?;
        let near = self.first_with(&range, wanted)?;
        // Parts that fire at the same instant were counted apiece.
        match wanted.saturating_sub(self.count_in(range.start..near + 1)) {
            0 => Some(near),
            left => {
                let index = usize::try_from(left - 1).ok()?;
                self.times_in(near + 1..range.end).nth(index).map(Timestamp::as_micros)
            }
        }
    }

    /// The first instant up to which the parts have so many occurrences, each counted by itself.
    fn first_with(&self, range: &Range<i64>, wanted: u64) -> Option<i64> {
        let has_enough = |last: i64| self.count_apiece(&(range.start..last + 1)) >= wanted;
        let end = range.end.checked_sub(1)?;
        let (mut low, mut width) = (range.start, DAY_US);
        // Wider and wider ranges, so that the end of all schedules is not searched for times of this year.
        while !has_enough(low.saturating_add(width).min(end)) {
            if low.saturating_add(width) >= end {
                return None;
            }
            width = width.saturating_mul(2);
        }
        let mut high = low.saturating_add(width).min(end);
        while low < high {
            let middle = low + (high - low) / 2;
            if has_enough(middle) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Some(high)
    }

    fn count_apiece(&self, range: &Range<i64>) -> u64 {
        let (after, until) = (before(range.start), before(range.end));
        self.iter().map(|part| part.count_between(after, until)).sum()
    }

    pub(super) fn last_in(&self, range: Range<i64>) -> Option<i64> {
        let last = self.iter().filter_map(|part| part.last_time_at_or_before(before(range.end))).max();
        last.map(Timestamp::as_micros).filter(|last| range.contains(last))
    }

    /// Only the most frequent part is counted without stepping. Of each other one, the occurrences that no part
    /// before it has are counted one by one. If they are too many to compare, all parts are stepped through together, and
    /// if they are too many for that as well, the sum of the parts is an upper bound.
    pub(super) fn count_in(&self, range: Range<i64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (after, until) = (before(range.start), before(range.end));
        let parts = self.counted(&range);
        match CountingWay::of(&parts) {
            CountingWay::Compare => {}
            CountingWay::Step => return self.times_in(range).count() as u64,
            CountingWay::Sum => return parts.iter().map(|(count, _)| count).sum(),
        }
        let mut total = 0;
        for (index, (count, part)) in parts.iter().enumerate() {
            let earlier = &parts[..index];
            if earlier.is_empty() {
                total += count;
                continue;
            }
            let times = std::iter::successors(part.next_time_after(after), |at| part.next_time_after(*at));
            let is_new = |at: &Timestamp| !earlier.iter().any(|(_, other)| fires_at(other, *at));
            total += times.take_while(|at| *at <= until).filter(is_new).count() as u64;
        }
        total
    }

    /// Whether a count of this range is exact, and not an upper bound.
    pub(super) fn counts_exactly_in(&self, range: &Range<i64>) -> bool {
        range.is_empty() || CountingWay::of(&self.counted(range)) != CountingWay::Sum
    }

    /// The parts with how often each fires in a range, the most frequent one first.
    fn counted(&self, range: &Range<i64>) -> Vec<(u64, &Recurrence)> {
        let (after, until) = (before(range.start), before(range.end));
        let mut parts: Vec<_> = self.iter().map(|part| (part.count_between(after, until), part)).collect();
        parts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        parts
    }

    pub(super) fn describe(&self) -> String {
        let told = |(name, part): &(Option<String>, Recurrence)| match name {
            Some(name) => format!("{name} ({})", part.describe()),
            None => part.describe(),
        };
        self.0.iter().map(told).collect::<Vec<_>>().join(" + ")
    }
}

/// How the occurrences of a union are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountingWay {
    Compare,
    Step,
    Sum,
}

impl CountingWay {
    fn of(parts: &[(u64, &Recurrence)]) -> Self {
        let all: u64 = parts.iter().map(|(count, _)| count).sum();
        let most = parts.first().map_or(0, |(count, _)| *count);
        if all - most <= limits::SCHEDULES_COMPARED_MAX as u64 {
            CountingWay::Compare
        } else if all <= limits::SCHEDULES_STEPPED_MAX {
            CountingWay::Step
        } else {
            CountingWay::Sum
        }
    }
}

fn before(us: i64) -> Timestamp {
    Timestamp::from_micros(us.saturating_sub(1))
}

fn fires_at(part: &Recurrence, at: Timestamp) -> bool {
    part.count_between(at.shifted(-1), at) > 0
}

/// Whether two of its first occurrences are too close together. Unions count by stepping, which would take too
/// long for schedules of seconds.
fn is_too_dense(recurrence: &Recurrence) -> bool {
    let first = recurrence.next_time_after(Timestamp::EPOCH);
    let end = first.map(|first| first.shifted(COMPARED_WITHIN_US));
    let times: Vec<_> = std::iter::successors(first, |at| recurrence.next_time_after(*at))
        .take(COMPARED)
        .take_while(|at| Some(*at) < end)
        .collect();
    times.windows(2).any(|pair| pair[1].since(pair[0]) < limits::SCHEDULES_SPACING_MIN)
}

#[cfg(test)]
mod tests {
    use super::super::RecurrenceSpec;
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn union(specs: Vec<RecurrenceSpec>) -> Result<Recurrence, RecurrenceError> {
        let parts = specs.into_iter().map(|spec| UnionPart { name: None, spec }).collect();
        Recurrence::new(RecurrenceSpec::new(Rule::Union { parts }))
    }

    #[test]
    fn a_union_fires_whenever_a_part_does_and_once_at_each_instant() {
        let start = at("2026-03-02T00:00:00Z");
        let both = union(vec![
            RecurrenceSpec::cron("0 9 * * MON-FRI", 0).in_zone("Europe/Berlin"),
            RecurrenceSpec::interval("4h", start),
            RecurrenceSpec::rrule("FREQ=DAILY;BYHOUR=12;BYMINUTE=0;BYSECOND=0", start),
        ])
        .unwrap();
        let times: Vec<_> = both.preview(start, 8).into_iter().map(|fire| fire.local).collect();
        let expected = [
            "2026-03-02T04:00:00+00:00",
            "2026-03-02T09:00:00+01:00",
            "2026-03-02T08:00:00+00:00",
            "2026-03-02T12:00:00+00:00",
            "2026-03-02T16:00:00+00:00",
            "2026-03-02T20:00:00+00:00",
            "2026-03-03T00:00:00+00:00",
            "2026-03-03T04:00:00+00:00",
        ];
        // 09:00 in Berlin is 08:00 in UTC: one occurrence, shown by the first schedule that has it.
        let mut expected: Vec<_> = expected.iter().map(|text| (*text).to_owned()).collect();
        expected.remove(2);
        assert_eq!(times[..7], expected);

        let until = at("2026-06-01T00:00:00Z");
        let stepped: Vec<_> =
            std::iter::successors(both.next_time_after(start), |time| both.next_time_after(*time))
                .take_while(|time| *time <= until)
                .collect();
        assert_eq!(both.count_between(start, until), stepped.len() as u64);
        for (index, time) in stepped.iter().enumerate().step_by(7) {
            assert_eq!(both.nth_time_after(start, index as u64), Some(*time));
            assert_eq!(both.last_time_at_or_before(time.shifted(1)), Some(*time));
        }
        assert_eq!(both.nth_time_after(start, u64::MAX), None, "schedules end before the year 9999");
    }

    #[test]
    fn a_union_has_a_window_and_is_stored_as_its_parts() {
        let spec = |hour| RecurrenceSpec::cron(&format!("0 {hour} * * *"), 0);
        let whole = union(vec![spec(1), spec(2)]).unwrap();
        let bounded = RecurrenceSpec {
            start_at: Some(at("2026-01-05T02:00:00Z")),
            end_at: Some(at("2026-01-06T01:00:00Z")),
            ..whole.spec().clone()
        };
        let bounded = Recurrence::new(bounded).unwrap();
        assert_eq!(bounded.count_between(Timestamp::EPOCH, Timestamp::MAX), 2);
        assert_eq!(bounded.last_time_at_or_before(Timestamp::MAX), Some(at("2026-01-06T01:00:00Z")));
        let text = serde_json::to_string(&bounded).unwrap();
        assert_eq!(serde_json::from_str::<Recurrence>(&text).unwrap(), bounded);
    }

    #[test]
    fn unions_of_frequent_schedules_compare_a_bounded_number_of_occurrences() {
        let start = at("2026-01-01T00:00:00Z");
        let minutely = union(vec![RecurrenceSpec::cron("* * * * *", 0); 16]).unwrap();
        let in_day = minutely.count_between(start.shifted(-1), at("2026-01-01T05:00:00Z"));
        assert_eq!(in_day, 301, "those at the same instant count once");
        let in_days = |union: &Recurrence, until: &str| {
            let (start, until) = (start.shifted(-1), at(until));
            (union.count_between(start, until), union.counts_exactly(start, until))
        };
        assert_eq!(in_days(&minutely, "2026-01-03T00:00:00Z"), (2_881, true), "46,096 in all parts");
        assert_eq!(in_days(&minutely, "2026-01-04T00:00:00Z"), (16 * 4_321, false), "an upper bound");
        let pair =
            union(vec![RecurrenceSpec::cron("*/5 * * * *", 0), RecurrenceSpec::interval("10m", start)]);
        let year = in_days(&pair.unwrap(), "2026-03-01T00:00:00Z");
        assert_eq!(year, (59 * 288 + 1, true), "8,497 shared occurrences");
        let until = at("2046-01-01T00:00:00Z");
        let single = minutely.parts().next().unwrap().count_between(start, until);
        assert_eq!(minutely.count_between(start, until), 16 * single, "too many to compare");
        assert_eq!(minutely.nth_time_after(start, 16 * single - 1), Some(until));

        let yearly = RecurrenceSpec::cron("0 0 1 1 *", 0);
        let few = union(vec![RecurrenceSpec::cron("* * * * *", 0), yearly]).unwrap();
        let exact = few.count_between(start, at("2046-01-01T00:00:00Z"));
        assert!(exact > limits::SCHEDULES_COMPARED_MAX as u64);
        assert_eq!(few.nth_time_after(start, exact - 1), Some(at("2046-01-01T00:00:00Z")));
        assert_eq!(few.nth_time_after(start, exact), Some(at("2046-01-01T00:01:00Z")));
    }

    #[test]
    fn bad_unions_are_refused() {
        let said = |specs| union(specs).unwrap_err().to_string();
        assert!(said(vec![]).contains("must be 1 to 16 schedules"));
        assert!(said(vec![RecurrenceSpec::cron("0 1 * * *", 0); 17]).contains("not 17"));
        let nested = union(vec![RecurrenceSpec::cron("0 1 * * *", 0)]).unwrap().spec().clone();
        assert!(said(vec![nested]).contains("must not contain schedules"));
        for dense in
            [RecurrenceSpec::interval("30s", Timestamp::EPOCH), RecurrenceSpec::cron("*/5 0 3 * * *", 0)]
        {
            assert!(said(vec![dense]).contains("more often than every 60 s"));
        }
        assert!(matches!(union(vec![RecurrenceSpec::cron("x", 0)]), Err(RecurrenceError::Cron(_))));
    }
}
