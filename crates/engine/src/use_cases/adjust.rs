//! Single occurrences of recurring jobs: skipping the next one, running it at another time, running past ones again.

use super::{UseCase, UseCaseError, UseCases};
use crate::ControlError;
use punctual_core::calendar::{NamedCalendars, excluded_by};
use punctual_core::control::{Backfill, NextRun, Refusal, Verb};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::ports::{Controlled, StoreError};
use punctual_core::recurrence::PreviewedFire;
use punctual_core::schedule::{Recurring, Schedule};
use punctual_core::time::Timestamp;
use serde_json::json;

/// How often the next occurrence is looked up again because the job fired meanwhile.
const TRIES_MAX: usize = 20;

/// What a backfill runs, or would run.
#[derive(Debug, Clone)]
pub struct BackfillPlan {
    pub recurring: Recurring,
    pub calendars: NamedCalendars,
    pub first: Timestamp,
    pub last: Timestamp,
    /// How many run.
    pub count: u64,
    /// How many between the first and the last do not run, because a calendar excludes them.
    pub excluded: u64,
    /// The first of all of them.
    pub fires: Vec<PreviewedFire>,
}

impl UseCases {
    /// Skips the next occurrence of a job, and returns its nominal time.
    pub async fn skip_next(&self, id: JobId) -> Result<Timestamp, UseCaseError> {
        self.permit_on(UseCase::SkipNext, format_args!("job {id}"))?;
        let (next, _) = self.on_next(id, UseCase::SkipNext, Verb::SkipNext).await?;
        Ok(next)
    }

    /// Runs the next occurrence of a job at this time instead of its own. Returns its execution.
    pub async fn run_next_at(&self, id: JobId, at: Timestamp) -> Result<ExecutionId, UseCaseError> {
        self.permit_on(UseCase::RunNextAt, format_args!("job {id}"))?;
        if at > Timestamp::MAX {
            return Err(UseCaseError::invalid("at", "must be before 9999-12-30"));
        }
        let verb = |next| Verb::RunNextAt { next, at };
        let (_, controlled) = self.on_next(id, UseCase::RunNextAt, verb).await?;
        let missing = || StoreError::Broken("a run that was moved but not added".to_owned());
        Ok(controlled.added.ok_or_else(missing)?)
    }

    /// Applies a verb to the next occurrence that no calendar excludes.
    async fn on_next(
        &self,
        id: JobId,
        case: UseCase,
        verb: impl Fn(NextRun) -> Verb,
    ) -> Result<(Timestamp, Controlled), UseCaseError> {
        for _ in 0..TRIES_MAX {
            let state = self.job_in_scope(id).await?.schedule;
            let is_recurring = |schedule: &Schedule| matches!(schedule, Schedule::Recurring(_));
            let next = state.filter(|state| is_recurring(&state.schedule)).and_then(|state| state.nominal);
            let Some(nominal) = next else {
                return Err(UseCaseError::Refused { job: id, refusal: Refusal::NothingNext });
            };
            let details = json!({ "scheduled_time": nominal });
            let audit = self.audited_with(case, format_args!("job {id}"), &details);
            match self.engine.control(id, verb(NextRun { nominal }), audit).await {
                Ok(controlled) => return Ok((nominal, controlled)),
                // It fired in the meantime.
                Err(ControlError::Refused(Refusal::NotNext)) => {}
                Err(error) => return Err(UseCaseError::of_control(id, error)),
            }
        }
        Err(UseCaseError::Busy)
    }

    /// The occurrences that a backfill would run.
    pub async fn plan_backfill(&self, id: JobId, backfill: Backfill) -> Result<BackfillPlan, UseCaseError> {
        self.permit_on(UseCase::Backfill, format_args!("job {id}"))?;
        check_backfill(&backfill)?;
        self.backfill_plan(id, backfill).await
    }

    /// Runs past occurrences of a job again, one after the other, next to its schedule.
    pub async fn backfill(&self, id: JobId, backfill: Backfill) -> Result<BackfillPlan, UseCaseError> {
        let plan = self.plan_backfill(id, backfill).await?;
        let details = json!({
            "from": plan.first, "to": plan.last, "occurrences": plan.count, "excluded": plan.excluded
        });
        let audit = self.audited_with(UseCase::Backfill, format_args!("job {id}"), &details);
        let started = self.engine.control(id, Verb::Backfill(backfill), audit).await;
        started.map_err(|error| UseCaseError::of_control(id, error))?;
        Ok(plan)
    }

    async fn backfill_plan(&self, id: JobId, backfill: Backfill) -> Result<BackfillPlan, UseCaseError> {
        let refused = |refusal| UseCaseError::Refused { job: id, refusal };
        self.check_in_scope(id).await?;
        // As it is stored: calendars move the next time that users see.
        let view = self.store().job(id).await?.ok_or(UseCaseError::NoSuchJob(id))?;
        let state = view.schedule.ok_or_else(|| refused(Refusal::NothingNext))?;
        let Schedule::Recurring(recurring) = &state.schedule else {
            return Err(refused(Refusal::NothingNext));
        };
        let range = state.backfill_range(backfill);
        let (first, last) = range.ok_or_else(|| refused(Refusal::NothingToBackfill))?;
        let all = recurring.recurrence.count_between(first.shifted(-1), last);
        let shown = usize::try_from(all).unwrap_or(usize::MAX).min(limits::BACKFILL_SHOWN_MAX);
        let fires = recurring.recurrence.preview(first.shifted(-1), shown);
        let calendars = self.calendars_of(&recurring.calendars).await?;
        let excluded = excluded_between(recurring, &calendars, (first, last));
        let count = all.saturating_sub(excluded);
        Ok(BackfillPlan { recurring: (**recurring).clone(), calendars, first, last, count, excluded, fires })
    }
}

/// How many occurrences of a range calendars exclude. The range of a backfill is bounded.
fn excluded_between(
    recurring: &Recurring,
    calendars: &NamedCalendars,
    (first, last): (Timestamp, Timestamp),
) -> u64 {
    if calendars.is_empty() {
        return 0;
    }
    let next = |after: &Timestamp| recurring.recurrence.next_time_after(*after);
    let times = std::iter::successors(Some(first), next).take_while(|time| *time <= last);
    let excluded =
        times.take(limits::BACKFILL_MAX as usize).filter(|time| excluded_by(calendars, *time).is_some());
    excluded.count() as u64
}

fn check_backfill(backfill: &Backfill) -> Result<(), UseCaseError> {
    let most = limits::BACKFILL_MAX;
    if backfill.limit == 0 || backfill.limit > most {
        return Err(UseCaseError::invalid("limit", format!("must be from 1 to {most}")));
    }
    if backfill.to < backfill.from {
        return Err(UseCaseError::invalid("to", "must not be before from"));
    }
    let fastest = limits::REPLAY_RATE_MAX;
    if backfill.per_minute.is_some_and(|rate| rate == 0 || rate > fastest) {
        return Err(UseCaseError::invalid("rate", format!("must be from 1 to {fastest} a minute")));
    }
    Ok(())
}
