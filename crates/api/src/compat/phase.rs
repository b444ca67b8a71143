//! How far a job is, as the other APIs see it: they know one status per job, which also follows its executions.

use punctual_core::gates::Gate;
use punctual_core::job::JobStatus;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::JobView;
use punctual_core::time::Timestamp;
use punctual_engine::next_run_time;

/// Each form of the API has one word for each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// Waits for its time, or for something else that must happen first.
    Scheduled,
    /// An attempt has failed, and the next one waits for its time.
    Retrying,
    Queued,
    Running,
    Paused,
    Completed,
    Failed,
    Cancelled,
}

impl JobPhase {
    pub const ALL: [JobPhase; 8] = [
        JobPhase::Scheduled,
        JobPhase::Retrying,
        JobPhase::Queued,
        JobPhase::Running,
        JobPhase::Paused,
        JobPhase::Completed,
        JobPhase::Failed,
        JobPhase::Cancelled,
    ];

    pub fn of(view: &JobView) -> Self {
        match view.status() {
            JobStatus::Paused => JobPhase::Paused,
            JobStatus::Completed => JobPhase::Completed,
            JobStatus::Failed => JobPhase::Failed,
            JobStatus::Cancelled => JobPhase::Cancelled,
            JobStatus::Active => JobPhase::of_open(&view.open),
        }
    }

    /// Of several open occurrences, the one that is furthest decides.
    fn of_open(open: &[Live]) -> Self {
        let any = |is: fn(&Live) -> bool| open.iter().any(is);
        if any(Live::is_running) {
            JobPhase::Running
        } else if any(|live| matches!(live.state, LiveState::Queued)) {
            JobPhase::Queued
        } else if any(|live| live.attempt > 1 && live.is_closed_by(Gate::Time)) {
            JobPhase::Retrying
        } else {
            JobPhase::Scheduled
        }
    }

    /// The job status that all jobs of this phase have.
    pub fn job_status(self) -> JobStatus {
        match self {
            JobPhase::Scheduled | JobPhase::Retrying | JobPhase::Queued | JobPhase::Running => {
                JobStatus::Active
            }
            JobPhase::Paused => JobStatus::Paused,
            JobPhase::Completed => JobStatus::Completed,
            JobPhase::Failed => JobStatus::Failed,
            JobPhase::Cancelled => JobStatus::Cancelled,
        }
    }
}

/// The time of the next occurrence, or else of the latest one.
pub fn execution_time(view: &JobView) -> Option<Timestamp> {
    next_run_time(view)
        .or_else(|| view.open.first().map(|live| live.scheduled_time))
        .or_else(|| view.last_finished.as_ref().map(|last| last.scheduled_time))
}

/// When the description of the job changed, it ended, or one of its executions started or ended, whichever was
/// last. Times of pauses are not stored.
pub fn last_updated(view: &JobView) -> Timestamp {
    let started = view.open.iter().filter_map(crate::views::claimed_at);
    let ended = view.last_finished.as_ref().map(|last| last.completed_at);
    started.chain(ended).fold(view.job.updated_at, Timestamp::max)
}
