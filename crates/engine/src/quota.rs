//! How many requests a principal, or how many jobs an owner, may send: token buckets by name.
//!
//! Buckets live in the memory of one process, and a restart fills them. They must not decide anything that
//! has to hold across processes: the limits of queues do that (decision 0023).

use crate::{Engine, SubmitError};
use punctual_core::job::Job;
use punctual_core::limiter::Rate;
use punctual_core::limits::{QUOTA_NAMES_MAX, QUOTA_SWEEP_INTERVAL};
use punctual_core::time::Monotonic;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A steady rate, and how much may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    pub rate: Rate,
    pub burst: u32,
}

impl Quota {
    /// A number per second.
    pub const fn per_second(count: u32, burst: u32) -> Self {
        Quota { rate: Rate { count, per_ms: 1_000 }, burst }
    }
}

/// What is left of a quota after some of it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLeft {
    pub remaining: u32,
    /// When the whole burst is available again, if nothing else is taken.
    pub full_after: Duration,
}

/// The quota is used up; the earliest time at which the same may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the quota is used up for the next {0:?}")]
pub struct RetryAfter(pub Duration);

const SWEEP_NS: u64 = QUOTA_SWEEP_INTERVAL.as_nanos() as u64;

/// One bucket for each name, all of the same size.
///
/// A bucket is stored as the time at which it is full again, so a full one need not be stored. The number of
/// stored buckets is bounded: while all of them are in use, the remaining names share one.
#[derive(Debug)]
pub struct TokenBuckets {
    quota: Quota,
    /// The time in which one token flows in, and in which an empty bucket fills, in nanoseconds.
    token_ns: u64,
    fill_ns: u64,
    names_max: usize,
    buckets: Mutex<Buckets>,
}

#[derive(Debug, Default)]
struct Buckets {
    /// When each is full again, in nanoseconds.
    by_name: BTreeMap<String, u64>,
    /// The shared one.
    others: u64,
    /// Before this time, full buckets are not searched again.
    sweep_at: u64,
}

impl TokenBuckets {
    pub fn new(quota: Quota) -> Self {
        TokenBuckets::with_names_max(quota, QUOTA_NAMES_MAX)
    }

    fn with_names_max(quota: Quota, names_max: usize) -> Self {
        let Rate { count, per_ms } = quota.rate;
        let token_ns = (per_ms.saturating_mul(1_000_000) / u64::from(count.max(1))).max(1);
        let fill_ns = token_ns.saturating_mul(u64::from(quota.burst));
        TokenBuckets { quota, token_ns, fill_ns, names_max, buckets: Mutex::default() }
    }

    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Takes `count` tokens out of the bucket of this name, or none if it holds fewer. More than the burst
    /// never succeeds.
    pub fn take(&self, name: &str, count: u32, now: Monotonic) -> Result<QuotaLeft, RetryAfter> {
        let now = nanos(now);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.of(name, now, self.names_max);
        let next = (*full_at).max(now).saturating_add(self.token_ns.saturating_mul(count.into()));
        let missing = (next - now).saturating_sub(self.fill_ns);
        if missing > 0 {
            return Err(RetryAfter(Duration::from_nanos(missing)));
        }
        *full_at = next;
        let left = (self.fill_ns - (next - now)) / self.token_ns;
        Ok(QuotaLeft {
            remaining: u32::try_from(left).unwrap_or(u32::MAX),
            full_after: Duration::from_nanos(next - now),
        })
    }

    /// Whether there is a token for this name now. Takes nothing.
    pub fn check(&self, name: &str, now: Monotonic) -> Result<(), RetryAfter> {
        let now = nanos(now);
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = match buckets.by_name.get(name) {
            Some(full_at) => *full_at,
            None if buckets.by_name.len() < self.names_max => return Ok(()),
            None => buckets.others,
        };
        let missing = full_at.saturating_sub(now).saturating_add(self.token_ns).saturating_sub(self.fill_ns);
        if missing > 0 { Err(RetryAfter(Duration::from_nanos(missing))) } else { Ok(()) }
    }
}

impl Buckets {
    /// The bucket of this name; the shared one if there is no room for another.
    fn of(&mut self, name: &str, now: u64, names_max: usize) -> &mut u64 {
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= names_max && now >= self.sweep_at {
                self.by_name.retain(|_, full_at| *full_at > now);
                self.sweep_at = now.saturating_add(SWEEP_NS);
            }
            if self.by_name.len() >= names_max {
                return &mut self.others;
            }
            self.by_name.insert(name.to_owned(), now);
        }
        self.by_name.get_mut(name).unwrap_or(&mut self.others)
    }
}

fn nanos(time: Monotonic) -> u64 {
    time.as_micros().saturating_mul(1_000)
}

/// How many jobs each owner may submit to this process.
#[derive(Debug)]
pub struct SubmitQuota(Option<TokenBuckets>);

impl SubmitQuota {
    /// A full period's jobs may come at once. `None` for no limit.
    pub fn new(rate: Option<Rate>) -> Self {
        SubmitQuota(rate.map(|rate| TokenBuckets::new(Quota { rate, burst: rate.count })))
    }

    pub fn take(&self, owner: &str, jobs: u32, now: Monotonic) -> Result<(), RetryAfter> {
        match &self.0 {
            Some(buckets) => buckets.take(owner, jobs, now).map(|_| ()),
            None => Ok(()),
        }
    }
}

impl Engine {
    /// The same job, unless the quota of its owner is used up.
    pub(crate) fn within_quota(&self, job: Job) -> Result<Job, SubmitError> {
        let owner = &job.spec.owner;
        match self.context.submit_quota.take(owner, 1, self.context.host.clock.monotonic()) {
            Ok(()) => Ok(job),
            Err(RetryAfter(retry_after)) => {
                Err(SubmitError::QuotaReached { owner: owner.clone(), retry_after })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(ms: u64) -> Monotonic {
        Monotonic::from_micros(ms * 1_000)
    }

    fn remaining(buckets: &TokenBuckets, name: &str, count: u32, now: Monotonic) -> Result<u32, u64> {
        buckets
            .take(name, count, now)
            .map(|left| left.remaining)
            .map_err(|RetryAfter(wait)| u64::try_from(wait.as_millis()).unwrap())
    }

    #[test]
    fn a_burst_is_accepted_at_once_and_the_rest_at_the_steady_rate() {
        let buckets = TokenBuckets::new(Quota::per_second(10, 3));
        assert_eq!(remaining(&buckets, "ann", 1, millis(0)), Ok(2));
        assert_eq!(remaining(&buckets, "ann", 2, millis(0)), Ok(0));
        assert_eq!(remaining(&buckets, "ann", 1, millis(0)), Err(100));
        assert_eq!(remaining(&buckets, "ann", 1, millis(60)), Err(40));
        assert_eq!(remaining(&buckets, "ann", 1, millis(100)), Ok(0));
        assert_eq!(remaining(&buckets, "ann", 2, millis(100)), Err(200));
        // Nothing was taken by what was refused, and a bucket holds no more than the burst.
        assert_eq!(remaining(&buckets, "ann", 1, millis(60_000)), Ok(2));
    }

    #[test]
    fn names_do_not_share_a_bucket() {
        let buckets = TokenBuckets::new(Quota::per_second(1, 1));
        assert_eq!(remaining(&buckets, "ann", 1, millis(0)), Ok(0));
        assert_eq!(remaining(&buckets, "ann", 1, millis(0)), Err(1_000));
        assert_eq!(remaining(&buckets, "ben", 1, millis(0)), Ok(0));
    }

    #[test]
    fn it_says_when_the_whole_burst_is_available_again() {
        let buckets = TokenBuckets::new(Quota::per_second(10, 20));
        let left = buckets.take("ann", 15, millis(0)).unwrap();
        assert_eq!(left, QuotaLeft { remaining: 5, full_after: Duration::from_millis(1_500) });
        let left = buckets.take("ann", 1, millis(1_000)).unwrap();
        assert_eq!(left, QuotaLeft { remaining: 14, full_after: Duration::from_millis(600) });
    }

    #[test]
    fn no_period_has_more_than_the_rate_and_one_burst() {
        let buckets = TokenBuckets::new(Quota::per_second(50, 20));
        let taken = (0..10_000).filter(|ms| buckets.take("ann", 1, millis(*ms)).is_ok()).count();
        assert!((500..=520).contains(&taken), "{taken} in ten seconds");
    }

    #[test]
    fn a_check_takes_nothing() {
        let buckets = TokenBuckets::new(Quota::per_second(1, 1));
        for _ in 0..10 {
            assert_eq!(buckets.check("ann", millis(0)), Ok(()));
        }
        assert_eq!(remaining(&buckets, "ann", 1, millis(0)), Ok(0));
        assert_eq!(buckets.check("ann", millis(400)), Err(RetryAfter(Duration::from_millis(600))));
        assert_eq!(buckets.check("ann", millis(1_000)), Ok(()));
    }

    #[test]
    fn idle_names_are_forgotten_and_too_many_busy_ones_share_a_bucket() {
        let buckets = TokenBuckets::with_names_max(Quota::per_second(1, 2), 10);
        let take = |number: u64, ms| remaining(&buckets, &format!("name-{number}"), 1, millis(ms));
        for number in 0..10 {
            assert_eq!(take(number, 0), Ok(1));
        }
        assert_eq!(take(10, 0), Ok(1), "the shared one");
        assert_eq!(take(11, 0), Ok(0), "the shared one");
        assert_eq!(take(12, 0), Err(1_000), "the shared one is empty");
        assert_eq!(buckets.check("name-13", millis(0)), Err(RetryAfter(Duration::from_secs(1))));
        assert_eq!(take(0, 0), Ok(0), "a known name keeps its own");
        assert_eq!(buckets.buckets.lock().unwrap().by_name.len(), 10);
        // All but the first are full again.
        assert_eq!(take(12, 1_000), Ok(1), "it has its own now");
        assert_eq!(buckets.buckets.lock().unwrap().by_name.len(), 2);
    }

    #[test]
    fn extreme_sizes_neither_overflow_nor_divide_by_zero() {
        let most = TokenBuckets::new(Quota::per_second(u32::MAX, u32::MAX));
        assert!(remaining(&most, "ann", u32::MAX, millis(0)).is_ok());
        let day = Rate { count: 1, per_ms: 24 * 3_600_000 };
        let slow = TokenBuckets::new(Quota { rate: day, burst: u32::MAX });
        assert!(remaining(&slow, "ann", 1, Monotonic::from_micros(u64::MAX / 2)).is_ok());
        let none = TokenBuckets::new(Quota { rate: Rate { count: 0, per_ms: 0 }, burst: 0 });
        assert!(remaining(&none, "ann", 1, millis(0)).is_err());
    }

    #[test]
    fn an_owner_may_submit_a_whole_period_at_once() {
        let quota = SubmitQuota::new(Some(Rate { count: 100, per_ms: 60_000 }));
        assert_eq!(quota.take("ann", 100, millis(0)), Ok(()));
        assert_eq!(quota.take("ann", 1, millis(0)), Err(RetryAfter(Duration::from_millis(600))));
        assert_eq!(quota.take("ben", 1, millis(0)), Ok(()));
        assert_eq!(SubmitQuota::new(None).take("ann", u32::MAX, millis(0)), Ok(()));
    }
}
