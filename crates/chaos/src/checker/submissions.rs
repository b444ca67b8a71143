//! Every acknowledged job exists, and no job exists twice.

use super::{CheckVerdict, CheckedRule, RuleViolation};
use crate::observed::Observed;
use punctual_core::ids::JobId;
use std::collections::BTreeMap;

pub fn check(observed: &Observed, verdict: &mut CheckVerdict) {
    let mut found: BTreeMap<&str, Vec<JobId>> = BTreeMap::new();
    for job in &observed.jobs {
        found.entry(job.key.as_deref().unwrap_or_default()).or_default().push(job.id);
    }
    for wish in &observed.wishes {
        let jobs = found.get(wish.key.as_str()).map_or(&[][..], Vec::as_slice);
        let key = &wish.key;
        if jobs.len() > 1 {
            let what = format!("{key} became {} jobs: {jobs:?}", jobs.len());
            verdict.violations.push(RuleViolation::new(CheckedRule::DoubledSubmission, what));
        }
        match wish.acknowledged {
            Some(id) if !jobs.contains(&id) => {
                let what = format!("{key} was acknowledged as job {id}, and there is {jobs:?}");
                verdict.violations.push(RuleViolation::new(CheckedRule::LostSubmission, what));
            }
            Some(_) => {}
            None => verdict.counted.submissions_unanswered += 1,
        }
    }
}
