//! The limits of a queue: how many of its executions, and of those with the same key, are queued or running
//! at once, and how many become claimable within a period. Executions that do not fit go on the wait list of
//! the limit, ordered by rank (decision 0023).
//!
//! This module computes how much room there is. The store holds the wait lists and the counts.

use crate::defects::{Defect, planted};
use crate::job::InvalidField;
use crate::limits;
use crate::mix::mix;
use crate::names::name_problem;
use crate::time::{Timestamp, duration_micros};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The number of a limiter, a hash of its queue and key, so that no names have to be stored. It is negative:
/// in some databases the wait lists of limiters share an index with lanes, whose numbers are positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimiterId(i64);

impl LimiterId {
    pub fn of_queue(queue: &str) -> Self {
        LimiterId::hashed(queue.bytes())
    }

    /// The limiter of one key within a queue.
    pub fn of_key(queue: &str, key: &str) -> Self {
        // The separator byte occurs in neither.
        LimiterId::hashed(queue.bytes().chain([0xFF]).chain(key.bytes()))
    }

    /// The limiter with this number; `None` if it is not a limiter's number.
    pub const fn from_number(number: i64) -> Option<Self> {
        if number < 0 { Some(LimiterId(number)) } else { None }
    }

    pub const fn number(self) -> i64 {
        self.0
    }

    fn hashed(bytes: impl Iterator<Item = u8>) -> Self {
        let hash = bytes.fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        LimiterId((hash | 1 << 63).cast_signed())
    }
}

/// The wait list of a limit: that of a queue, or of one key within it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitList {
    pub queue: String,
    /// `None` for the limit of the queue.
    pub key: Option<LimiterId>,
}

impl WaitList {
    pub fn of_queue(queue: &str) -> Self {
        WaitList { queue: queue.to_owned(), key: None }
    }

    pub fn id(&self) -> LimiterId {
        self.key.unwrap_or_else(|| LimiterId::of_queue(&self.queue))
    }
}

/// A number of starts per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub count: u32,
    pub per_ms: u64,
}

impl Rate {
    fn period(self) -> Duration {
        Duration::from_millis(self.per_ms)
    }

    /// The time between two starts.
    fn step(self) -> Duration {
        self.period() / self.count.max(1)
    }

    /// How far missed starts may be caught up, when the wait list was not scanned in time: a tenth of the
    /// period.
    fn slack(self) -> Duration {
        self.step() * (self.count / 10)
    }

    /// The last start to assume when the rate finds so many executions running that it has not counted: they were
    /// claimed before it was set. They count as if they had just started, but for no more than a period. `None` if there are
    /// none, or if starts were counted within the last period.
    fn start_of_running(self, running: u64, last_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        let is_counting = last_at.is_some_and(|last_at| last_at > now.minus(self.period()));
        let others = u32::try_from(running).unwrap_or(u32::MAX).min(self.count).checked_sub(1)?;
        (!is_counting).then(|| now.plus(self.step() * others))
    }

    /// The time at which the next start counts. It is computed from the last one with the current rate, so
    /// that a changed rate applies at once.
    fn next(self, last_at: Option<Timestamp>, now: Timestamp) -> Timestamp {
        let ahead_max = limits::RATE_AHEAD_MAX.max(self.period());
        match last_at.filter(|last_at| *last_at <= now.plus(ahead_max)) {
            None => now,
            Some(last_at) => last_at.plus(self.step()).max(now.minus(self.slack())),
        }
    }

    /// How many may start by `now`.
    fn room(self, last_at: Option<Timestamp>, now: Timestamp) -> u64 {
        let next = self.next(last_at, now);
        if next > now {
            return 0;
        }
        let step = duration_micros(self.step()).max(1);
        1 + ((now.as_micros() - next.as_micros()) / step).unsigned_abs()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.count)?;
        match self.per_ms {
            ms if ms % 3_600_000 == 0 => write!(f, "{}h", ms / 3_600_000),
            ms if ms % 60_000 == 0 => write!(f, "{}m", ms / 60_000),
            ms if ms % 1_000 == 0 => write!(f, "{}s", ms / 1_000),
            ms => write!(f, "{ms}ms"),
        }
    }
}

/// The limits of one limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// Maximum number of executions that are queued or running.
    pub concurrency: Option<u32>,
    pub rate: Option<Rate>,
}

/// The current use of a limiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimiterUse {
    /// Executions on its wait list.
    pub waiting: u64,
    /// Executions that count against it.
    pub in_use: u64,
    /// The time at which the last start counted, if there is a rate.
    pub last_at: Option<Timestamp>,
}

impl Limit {
    pub fn is_none(&self) -> bool {
        *self == Limit::default()
    }

    /// Whether the concurrency is lower than under another limit.
    pub fn is_narrower_than(&self, other: &Limit) -> bool {
        self.concurrency.is_some_and(|most| other.concurrency.is_none_or(|other| most < other))
    }

    /// Whether starts are further apart than under another limit.
    pub fn is_slower_than(&self, other: &Limit) -> bool {
        self.rate.is_some_and(|rate| other.rate.is_none_or(|other| rate.step() > other.step()))
    }

    /// How many more executions may proceed now.
    pub fn room(&self, used: &LimiterUse, now: Timestamp) -> u64 {
        let in_use = used.in_use.saturating_sub(u64::from(planted(Defect::AdmitOneTooMany)));
        let by_count = self.concurrency.map_or(u64::MAX, |limit| u64::from(limit).saturating_sub(in_use));
        let by_rate = self.rate.map_or(u64::MAX, |rate| rate.room(used.last_at, now));
        by_count.min(by_rate)
    }

    /// Whether more executions count than allowed: the limit has become tighter since they were admitted.
    pub fn is_exceeded(&self, used: &LimiterUse) -> bool {
        self.concurrency.is_some_and(|limit| used.in_use > u64::from(limit))
    }

    /// The time at which one more start counts; `None` if there is no rate.
    pub fn start_of_one(&self, last_at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        self.rate.map(|rate| rate.next(last_at, now))
    }

    /// The last start to assume after the limit was set, because of what runs; `None` if nothing changes.
    pub fn start_of_running(&self, used: &LimiterUse, now: Timestamp) -> Option<Timestamp> {
        self.rate?.start_of_running(used.in_use, used.last_at, now)
    }

    /// When room appears by the passing of time alone; `None` if it does not.
    pub fn opens_at(&self, used: &LimiterUse) -> Option<Timestamp> {
        let is_full = self.concurrency.is_some_and(|limit| used.in_use >= u64::from(limit));
        let (rate, last_at) = (self.rate?, used.last_at?);
        (!is_full).then(|| last_at.plus(rate.step()))
    }
}

/// The limits of a queue and the weights of its owners. Empty by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QueueLimits {
    /// Maximum number of its executions that are queued or running at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Maximum number of its executions that become claimable within a period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The same for each `concurrency_key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_rate: Option<Rate>,
    /// The weights of owners. An owner without an entry has weight 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
}

impl QueueLimits {
    pub fn of_queue(&self) -> Limit {
        Limit { concurrency: self.concurrency, rate: self.rate }
    }

    pub fn of_key(&self) -> Limit {
        Limit { concurrency: self.key_concurrency, rate: self.key_rate }
    }

    /// Whether any execution may have to wait because of them.
    pub fn hold_anything(&self) -> bool {
        !self.of_queue().is_none() || !self.of_key().is_none()
    }

    /// The limit of a wait list.
    pub fn of(&self, line: &WaitList) -> Limit {
        if line.key.is_some() { self.of_key() } else { self.of_queue() }
    }

    pub fn weight(&self, owner: &str) -> u32 {
        self.weights.get(owner).copied().unwrap_or(1)
    }

    /// All invalid settings.
    pub fn problems(&self) -> Vec<InvalidField> {
        let mut problems = Vec::new();
        for (field, limit) in [("concurrency", self.concurrency), ("key_concurrency", self.key_concurrency)] {
            if limit.is_some_and(|limit| !(1..=limits::CONCURRENCY_MAX).contains(&limit)) {
                let max = limits::CONCURRENCY_MAX;
                let fix = format!(
                    "must be a number from 1 to {max}, or none; pause the queue to let nothing start"
                );
                problems.push(InvalidField::new(field, fix));
            }
        }
        for (field, rate) in [("rate", self.rate), ("key_rate", self.key_rate)] {
            problems.extend(rate.and_then(rate_problem).map(|fix| InvalidField::new(field, fix)));
        }
        problems.extend(self.weights_problem().map(|fix| InvalidField::new("weights", fix)));
        problems
    }

    fn weights_problem(&self) -> Option<String> {
        if self.weights.len() > limits::QUEUE_WEIGHTS_MAX {
            return Some(format!("must name at most {} owners", limits::QUEUE_WEIGHTS_MAX));
        }
        if self.weights.contains_key("") {
            return Some("must name the owner of each, as in ann=3".to_owned());
        }
        if let Some(problem) = self.weights.keys().find_map(|owner| name_problem(owner)) {
            return Some(format!("the name of each owner {problem}"));
        }
        let (min, max) = (1, limits::OWNER_WEIGHT_MAX);
        let odd = self.weights.iter().find(|(_, weight)| !(min..=max).contains(*weight));
        odd.map(|(owner, _)| format!("that of {owner} must be a number from {min} to {max}"))
    }
}

fn rate_problem(rate: Rate) -> Option<String> {
    let (span_min, span_max) = (limits::RATE_SPAN_MIN, limits::RATE_SPAN_MAX);
    if !(1..=limits::RATE_COUNT_MAX).contains(&rate.count) {
        return Some(format!("must allow from 1 to {} starts, as in \"100/1m\"", limits::RATE_COUNT_MAX));
    }
    if !(span_min..=span_max).contains(&Duration::from_millis(rate.per_ms)) {
        return Some("must be over a span from one second to a day, as in \"100/1m\"".to_owned());
    }
    (rate.step() < limits::RATE_STEP_MIN).then(|| {
        let most = 1_000_000 / limits::RATE_STEP_MIN.as_micros();
        format!("must be at most {most} starts a second")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000 + ms * 1_000)
    }

    fn rate(count: u32, per_ms: u64) -> Limit {
        Limit { rate: Some(Rate { count, per_ms }), ..Limit::default() }
    }

    /// Admits what may proceed at each of these times; returns the start times.
    fn starts(limit: Limit, looks: impl Iterator<Item = i64>) -> Vec<i64> {
        let mut used = LimiterUse { waiting: 1, ..LimiterUse::default() };
        let mut starts = Vec::new();
        for ms in looks {
            for _ in 0..limit.room(&used, at(ms)) {
                used.last_at = limit.start_of_one(used.last_at, at(ms));
                starts.push(ms);
            }
        }
        starts
    }

    #[test]
    fn as_many_go_on_as_are_free() {
        let limit = Limit { concurrency: Some(3), ..Limit::default() };
        let room = |in_use| limit.room(&LimiterUse { in_use, ..LimiterUse::default() }, at(0));
        assert_eq!([0, 2, 3, 9].map(room), [3, 1, 0, 0]);
        let is_exceeded = |in_use| limit.is_exceeded(&LimiterUse { in_use, ..LimiterUse::default() });
        assert_eq!([2, 3, 4].map(is_exceeded), [false, false, true]);
        assert_eq!(
            Limit::default().room(&LimiterUse { in_use: 9, ..LimiterUse::default() }, at(0)),
            u64::MAX
        );
    }

    #[test]
    fn starts_are_paced() {
        assert_eq!(starts(rate(4, 1_000), 0..1_001), [0, 250, 500, 750, 1_000]);
        let used = LimiterUse { last_at: Some(at(0)), ..LimiterUse::default() };
        assert_eq!(rate(4, 1_000).opens_at(&used), Some(at(250)));
        let full = Limit { concurrency: Some(0), ..rate(4, 1_000) };
        assert_eq!(full.opens_at(&used), None, "time alone makes no room");
    }

    #[test]
    fn a_rate_that_is_changed_holds_at_once() {
        let used = LimiterUse { waiting: 1, last_at: Some(at(0)), ..LimiterUse::default() };
        let (slow, fast) = (rate(1, 3_600_000), rate(10, 1_000));
        assert_eq!((slow.room(&used, at(100)), slow.opens_at(&used)), (0, Some(at(3_600_000))));
        assert_eq!((fast.room(&used, at(99)), fast.opens_at(&used)), (0, Some(at(100))));
        assert_eq!(fast.room(&used, at(100)), 1);
    }

    #[test]
    fn what_runs_when_a_rate_is_set_counts_as_started_just_now() {
        let running = |in_use, last_at: Option<i64>| {
            let used = LimiterUse { in_use, last_at: last_at.map(at), ..LimiterUse::default() };
            rate(4, 1_000).start_of_running(&used, at(5_000))
        };
        assert_eq!(running(0, None), None);
        assert_eq!(running(1, None), Some(at(5_000)), "the next one starts 250 ms later");
        assert_eq!(running(3, None), Some(at(5_500)));
        assert_eq!(running(1_000_000, None), Some(at(5_750)), "no more than a period");
        assert_eq!(running(3, Some(4_000)), Some(at(5_500)), "another rate, long ago");
        assert_eq!(running(3, Some(4_001)), None, "they are counted");
        let used = LimiterUse { in_use: 3, ..LimiterUse::default() };
        assert_eq!(Limit::default().start_of_running(&used, at(0)), None);
        // A start that is ahead by less than a period is one of these.
        let daily = rate(2, 86_400_000);
        let used = LimiterUse { last_at: Some(at(43_200_000)), ..LimiterUse::default() };
        assert_eq!(daily.room(&used, at(0)), 0);
    }

    #[test]
    fn in_no_span_start_more_than_a_tenth_too_many() {
        for (count, per_ms, step) in [(1, 1_000, 7), (9, 1_000, 13), (100, 1_000, 37), (1_000, 60_000, 211)] {
            // The wait list is scanned from time to time, and not at all for a while.
            let looks = (0..40_000).filter(|ms| ms % step == 0 && !(10_000..25_000).contains(ms));
            let starts = starts(rate(count, per_ms), looks);
            for (index, first) in starts.iter().enumerate() {
                let within = starts[index..].iter().take_while(|ms| **ms < first + per_ms as i64).count();
                let most = (count + count / 10 + 1) as usize;
                assert!(within <= most, "{within} of {count} in {per_ms} ms from {first}");
            }
            let expected = 25_000 / per_ms * u64::from(count) * 8 / 10;
            assert!(starts.len() as u64 >= expected, "{} of {expected}", starts.len());
        }
    }

    #[test]
    fn limiters_have_numbers_of_their_own_below_zero() {
        let queue = LimiterId::of_queue("mail");
        let keys =
            [("mail", "a"), ("mail", "b"), ("mai", "la"), ("mail", "")].map(|(q, k)| LimiterId::of_key(q, k));
        for (index, id) in keys.iter().enumerate() {
            assert!(id.number() < 0 && *id != queue && !keys[..index].contains(id), "{id:?}");
        }
        assert_eq!(LimiterId::from_number(queue.number()), Some(queue));
        assert_eq!(LimiterId::from_number(7), None);
        assert_eq!(WaitList::of_queue("mail").id(), queue);
    }

    #[test]
    fn limits_that_nobody_can_mean_are_problems() {
        let field = |limits: QueueLimits| limits.problems().into_iter().next().map(|problem| problem.field);
        assert_eq!(field(QueueLimits { concurrency: Some(0), ..Default::default() }).unwrap(), "concurrency");
        let rate =
            |count, per_ms| QueueLimits { key_rate: Some(Rate { count, per_ms }), ..Default::default() };
        for odd in [rate(0, 1_000), rate(1, 10), rate(1, 86_400_001), rate(1_000_000, 1_000)] {
            assert_eq!(field(odd).unwrap(), "key_rate");
        }
        assert_eq!(field(rate(1_000, 1_000)), None);
        let fields: Vec<String> = QueueLimits { concurrency: Some(0), ..rate(0, 1_000) }
            .problems()
            .into_iter()
            .map(|problem| problem.field)
            .collect();
        assert_eq!(fields, ["concurrency", "key_rate"]);
        let weights =
            |weight| QueueLimits { weights: [("a".to_owned(), weight)].into(), ..Default::default() };
        assert_eq!(field(weights(0)).unwrap(), "weights");
        let nobody = QueueLimits { weights: [(String::new(), 2)].into(), ..Default::default() };
        assert_eq!(field(nobody).unwrap(), "weights");
        for odd in ["a\u{202e}b", "a\nb", " ", "\u{200b}"] {
            let named = QueueLimits { weights: [(odd.to_owned(), 2)].into(), ..Default::default() };
            assert_eq!(field(named).unwrap(), "weights", "{odd:?}");
        }
        assert_eq!((field(weights(3)), weights(3).weight("a"), weights(3).weight("b")), (None, 3, 1));
    }

    #[test]
    fn a_rate_is_said_in_few_letters() {
        let said = |count, per_ms| Rate { count, per_ms }.to_string();
        assert_eq!(said(100, 60_000), "100/1m");
        assert_eq!(said(5, 1_500), "5/1500ms");
        assert_eq!(said(7, 7_200_000), "7/2h");
    }
}
