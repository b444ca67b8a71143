//! The calendar: when the jobs in a caller's scope fire within a range of time.

use super::jobs::next_run_time;
use super::{UseCase, UseCaseError, UseCases};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::ports::{JobQuery, JobView, Page};
use punctual_core::recurrence::PreviewedFire;
use punctual_core::schedule::Schedule;
use punctual_core::time::Timestamp;

/// A range of time to look at, and how many fires of each job to list.
#[derive(Debug, Clone, Copy)]
pub struct FireRange {
    pub from: Timestamp,
    /// Not part of the range.
    pub until: Timestamp,
    pub per_job: usize,
}

/// The fires of a job within a range.
#[derive(Debug, Clone)]
pub struct JobFires {
    pub view: JobView,
    /// All of them, listed or not.
    pub count: u64,
    /// Whether that is no upper bound.
    pub is_exact: bool,
    /// The first ones.
    pub fires: Vec<PreviewedFire>,
}

impl UseCases {
    /// The active jobs of a list that fire within the range. Each page looks at a bounded number of jobs and lists a
    /// bounded number of fires, so that it may be short or empty although more follow.
    pub async fn fires(
        &self,
        query: JobQuery,
        range: FireRange,
    ) -> Result<Page<JobFires, JobId>, UseCaseError> {
        self.permit(UseCase::ReadJobs)?;
        let page = self.read_in_scope(JobQuery { status: Some(JobStatus::Active), ..query }).await?;
        let (mut items, mut listed, mut last): (Vec<JobFires>, usize, Option<JobId>) = (vec![], 0, None);
        for view in page.items {
            if listed >= limits::FIRES_MAX {
                return Ok(Page { items, next: last });
            }
            last = Some(view.job.id);
            if let Some((count, is_exact, fires)) = fires_of(&view, range) {
                listed += fires.len();
                items.push(JobFires { view: self.shown(view), count, is_exact, fires });
            }
        }
        Ok(Page { items, next: page.next })
    }
}

/// How often a job fires within a range, whether that is exact, and its first fires there; `None` if it does not fire.
fn fires_of(view: &JobView, range: FireRange) -> Option<(u64, bool, Vec<PreviewedFire>)> {
    let Schedule::Recurring(recurring) = &view.job.spec.settings.schedule else {
        let at = next_run_time(view).filter(|at| (range.from..range.until).contains(at))?;
        return Some((1, true, vec![PreviewedFire { at, local: at.to_string(), dst: None, schedule: None }]));
    };
    let state = view.schedule.as_ref()?;
    let next = state.nominal?;
    let (from, before_next) = (range.from.max(next).shifted(-1), next.shifted(-1));
    let fired = u64::from(state.fired) + recurring.recurrence.count_between(before_next, from);
    let left = recurring.max_runs.map_or(u64::MAX, |max| u64::from(max).saturating_sub(fired));
    let until = range.until.shifted(-1);
    let count = recurring.recurrence.count_between(from, until).min(left);
    let is_exact = recurring.recurrence.counts_exactly(before_next, from)
        && recurring.recurrence.counts_exactly(from, until);
    if count == 0 {
        return None;
    }
    let listed = usize::try_from(count).unwrap_or(usize::MAX).min(range.per_job);
    Some((count, is_exact, recurring.preview(from, listed, fired)))
}
