//! How many client requests were answered. A client tries the next API node when one fails, until its
//! patience ends. An abandoned request counts as failed if, at some point, the database and an API node were
//! available for long enough to be asked; otherwise it is counted separately, as caused by the fault.

use crate::load::TRY_TIMEOUT;
use crate::nemesis::InjectedFault;
use crate::observed::{ClientRequest, Observed};
use crate::plan::DATABASE;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// Minimum of answered requests, in 1,000.
const ANSWERED_PER_MILLE_MIN: f64 = 999.0;
/// Two tries of a client, whichever node it asks first, and the pause between them.
const LONG_ENOUGH: Duration = Duration::from_secs(TRY_TIMEOUT.as_secs() * 2 + 1);

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Availability {
    pub requests: usize,
    /// Answered, but not by the first node that was asked.
    pub answered_by_another: usize,
    /// Abandoned although a node could have answered.
    pub failed: usize,
    /// Abandoned while the database, or all API nodes, were unavailable.
    pub failed_while_away: usize,
    /// How long the database was down.
    pub database_down_secs: f64,
    /// The last errors of the failed requests, without duplicates.
    pub reasons: BTreeSet<String>,
}

impl Availability {
    pub fn per_mille(&self) -> f64 {
        let counted = self.requests - self.failed_while_away;
        if counted == 0 { 1_000.0 } else { 1_000.0 * (counted - self.failed) as f64 / counted as f64 }
    }

    pub fn is_enough(&self) -> bool {
        self.per_mille() >= ANSWERED_PER_MILLE_MIN
    }
}

impl fmt::Display for Availability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Availability { requests, answered_by_another, failed, failed_while_away, .. } = self;
        write!(
            f,
            "{:.3} % of {requests} requests ({answered_by_another} by a different node than the first, {failed} failed, \
             {failed_while_away} failed while the database or all API nodes were down)",
            self.per_mille() / 10.0
        )
    }
}

pub fn availability(observed: &Observed) -> Availability {
    let down: Vec<&InjectedFault> = observed.faults.iter().filter(|fault| fault.target == DATABASE).collect();
    let mut answered = Availability {
        requests: observed.asked.len(),
        answered_by_another: observed
            .asked
            .iter()
            .filter(|one| one.failure.is_none() && one.tries > 1)
            .count(),
        database_down_secs: down.iter().map(|fault| fault.until.since(fault.from).as_secs_f64()).sum(),
        ..Availability::default()
    };
    for asked in &observed.asked {
        let Some(failure) = &asked.failure else { continue };
        if could_have_been_answered(observed, asked) {
            answered.failed += 1;
            answered.reasons.insert(failure.clone());
        } else {
            answered.failed_while_away += 1;
        }
    }
    answered
}

/// Whether, for long enough within this time, neither the database nor some one API node had a fault.
fn could_have_been_answered(observed: &Observed, asked: &ClientRequest) -> bool {
    observed.apis.iter().any(|api| {
        let faults = observed.faults.iter().filter(|fault| fault.target == DATABASE || fault.target == *api);
        let mut away: Vec<(Timestamp, Timestamp)> = faults.map(|fault| (fault.from, fault.until)).collect();
        away.sort();
        let mut free_from = asked.from;
        for (begins, ends) in away {
            if begins.min(asked.until).since(free_from) >= LONG_ENOUGH {
                return true;
            }
            free_from = free_from.max(ends);
        }
        asked.until.since(free_from) >= LONG_ENOUGH
    })
}
