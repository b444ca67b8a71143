//! Fair shares: recomputes the rank of an execution. Earlier submissions of an owner to a queue delay its
//! next execution there a little, and less if the queue gives the owner more weight.

use super::{AuditResult, Auditor, rule};
use punctual_core::ids::ExecutionId;
use punctual_core::job::JobSpec;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// How far one step of priority moves an execution ahead, in microseconds.
const STEP_US: i64 = 10_000_000;
/// The delay that one execution adds for its owner, in microseconds.
const QUANTUM_US: i64 = 2_000;
/// The maximum delay by an owner's share, in microseconds.
const LAG_US_MAX: i64 = 60_000_000;
/// An execution that becomes ready later than this after another one never overtakes it.
const PASSED_OVER_MAX: Duration = Duration::from_secs(150);

/// The position of an execution among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimPlace {
    /// Lower goes first.
    pub rank_us: i64,
    /// When it became ready.
    pub ready_at: Timestamp,
    /// By how much its rank may be higher, if each node keeps its own shares.
    lag_us_max: i64,
}

impl ClaimPlace {
    pub fn at(ready_at: Timestamp, spec: &JobSpec) -> Self {
        let rank_us = ready_at.as_micros() - STEP_US * i64::from(spec.priority.get());
        ClaimPlace { rank_us, ready_at, lag_us_max: 0 }
    }

    pub fn is_at(self, rank_us: i64) -> bool {
        (self.rank_us..=self.rank_us + self.lag_us_max).contains(&rank_us)
    }
}

/// By queue and owner: the time up to which the submitted work reaches.
#[derive(Debug, Default)]
pub(super) struct SharesModel {
    reach_us: BTreeMap<(String, String), i64>,
}

impl Auditor {
    /// The position of an execution that fires now, after its owner's other executions in the queue.
    pub(super) fn place_by_share(&mut self, spec: &JobSpec) -> ClaimPlace {
        if self.is_overlapping {
            return ClaimPlace { lag_us_max: LAG_US_MAX, ..ClaimPlace::at(self.at, spec) };
        }
        let now_us = self.at.as_micros();
        let weights = self.limits_of(&spec.queue).map(|limits| &limits.weights);
        let weight = weights.and_then(|weights| weights.get(&spec.owner)).copied().unwrap_or(1);
        if weight > 1 {
            self.count("executions of an owner with more weight");
        }
        let owner = (spec.queue.clone(), spec.owner.clone());
        let reach_us = self.shares.reach_us.entry(owner).or_insert(now_us);
        let lag_us = (*reach_us - now_us).clamp(0, LAG_US_MAX);
        *reach_us = now_us + lag_us + QUANTUM_US / i64::from(weight);
        let place = ClaimPlace::at(self.at, spec);
        ClaimPlace { rank_us: place.rank_us + lag_us, ..place }
    }

    /// The store's process was restarted: shares are only in its memory.
    pub fn shares_are_forgotten(&mut self) {
        self.shares = SharesModel::default();
    }
}

/// One execution is claimed and another one, which could have been claimed instead, is not.
pub(super) fn goes_before(goes: (ExecutionId, ClaimPlace), stays: (ExecutionId, ClaimPlace)) -> AuditResult {
    let ((first, place), (second, behind)) = (goes, stays);
    rule!(
        place.rank_us <= behind.rank_us,
        "the first in rank is claimed first",
        "{first} at {place:?} went before {second} at {behind:?}"
    );
    rule!(
        place.ready_at <= behind.ready_at.plus(PASSED_OVER_MAX),
        "no execution is bypassed for longer than the bound",
        "{first}, ready at {}, went before {second}, ready at {}",
        place.ready_at,
        behind.ready_at
    );
    Ok(())
}
