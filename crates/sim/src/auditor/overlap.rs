//! Occurrences of one job beside and behind each other: who may open, who gives way, and whose turn comes when one
//! has ended.

use super::{Auditor, Fate, JobModel, OccurrenceState, Verdict, rule};
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use punctual_core::time::Timestamp;

/// An occurrence that a fire opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub nominal: Timestamp,
    /// Behind those that are open.
    pub is_behind: bool,
}

/// The open occurrences of a job as a fire finds them, with what it opens itself.
#[derive(Debug)]
pub(super) struct Crowd {
    policy: OverlapPolicy,
    limit: usize,
    max_open: usize,
    open: usize,
    behind: usize,
    /// The latest scheduled time among those that the schedule opened.
    latest: Option<Timestamp>,
    is_running: bool,
    pub opened: Vec<Opened>,
    pub fates: Vec<(Timestamp, Fate)>,
    /// Those that were open give way.
    pub replaces: bool,
    /// How many of those that this fire opened have given way to a later one.
    pub gave_way: usize,
}

impl Crowd {
    pub fn of(job: &JobModel) -> Self {
        let settings = &job.spec().settings;
        let open: Vec<_> = job.open.iter().map(|number| &job.occurrences[number]).collect();
        let max_open = settings.max_open as usize;
        let scheduled = open.iter().filter(|one| one.origin == Origin::Schedule);
        Crowd {
            policy: settings.overlap,
            limit: settings.overlap_limit as usize,
            max_open,
            open: open.len(),
            behind: open.iter().filter(|one| one.is_behind(Gate::Overlap)).count(),
            latest: scheduled.map(|one| one.scheduled_time).max(),
            is_running: open.iter().any(|one| one.is_running()),
            opened: vec![],
            fates: vec![],
            replaces: false,
            gave_way: 0,
        }
    }

    /// What a recurring schedule does at a nominal time.
    pub fn decide(&mut self, nominal: Timestamp) {
        let is_crowded = self.open > 0;
        match self.policy {
            OverlapPolicy::Skip if is_crowded => self.skip(nominal, SkipReason::Overlap),
            OverlapPolicy::Queue if is_crowded && self.behind >= self.limit => {
                self.skip(nominal, SkipReason::Overlap);
            }
            OverlapPolicy::Replace => self.replace(nominal),
            _ if self.open >= self.max_open => self.skip(nominal, SkipReason::Backlog),
            policy => self.open(nominal, policy == OverlapPolicy::Queue && is_crowded),
        }
    }

    /// What a schedule of one run does: it is never skipped.
    pub fn decide_once(&mut self, nominal: Timestamp) {
        let is_behind = match self.policy {
            OverlapPolicy::Allow => false,
            OverlapPolicy::Skip | OverlapPolicy::Queue => self.open > 0,
            OverlapPolicy::Replace => {
                self.replaces = true;
                self.is_running
            }
        };
        self.open(nominal, is_behind);
    }

    fn replace(&mut self, nominal: Timestamp) {
        if self.latest.is_some_and(|latest| latest > nominal) {
            return self.skip(nominal, SkipReason::Overlap);
        }
        let is_behind = match self.opened.pop() {
            Some(given_way) => {
                self.gave_way += 1;
                self.fates.retain(|(time, _)| *time != given_way.nominal);
                self.skip(given_way.nominal, SkipReason::Overlap);
                given_way.is_behind
            }
            None => {
                self.replaces = true;
                self.is_running
            }
        };
        self.open(nominal, is_behind);
    }

    fn open(&mut self, nominal: Timestamp, is_behind: bool) {
        self.open += 1;
        self.behind += usize::from(is_behind);
        self.latest = self.latest.max(Some(nominal));
        self.opened.push(Opened { nominal, is_behind });
        self.fates.push((nominal, Fate::Fired));
    }

    fn skip(&mut self, nominal: Timestamp, reason: SkipReason) {
        self.fates.push((nominal, Fate::Skipped(reason)));
    }
}

impl Auditor {
    /// All that is open of a job gives way: what has not started ends, what runs is asked to stop.
    pub(super) fn stop_open(&mut self, job: JobId) -> Verdict {
        for number in self.job(job)?.open.clone() {
            self.stop(job.occurrence(number), None)?;
        }
        Ok(())
    }

    /// The end of one occurrence opens the way for the first that waits behind, if none else is in its way.
    pub(super) fn next_in_line(&mut self, id: JobId) -> Verdict {
        let job = self.job(id)?;
        let is_in_line = |number: &u32| job.occurrences[number].is_behind(Gate::Overlap);
        if job.open.iter().all(is_in_line)
            && let Some(first) = job.open.first().copied()
        {
            self.count("followers whose turn came");
            self.open_gate(id.occurrence(first), Gate::Overlap)?;
        }
        Ok(())
    }

    /// An execution is being leased: no other of its job runs, unless one of the two may run beside others.
    pub(super) fn runs_alone(&self, id: OccurrenceId) -> Verdict {
        let job = self.job(id.job)?;
        for number in job.open.iter().filter(|number| **number != id.number) {
            let other = &job.occurrences[number];
            rule!(
                !other.is_running() || other.is_beside || job.occurrences[&id.number].is_beside,
                "a job runs twice at once only if that was allowed",
                "{id} is leased while {}.{number} runs: {other:?}",
                id.job
            );
        }
        Ok(())
    }

    /// One occurrence is stopped; the job is marked by its end if that is said.
    pub(super) fn stop(
        &mut self,
        id: OccurrenceId,
        mark: Option<punctual_core::job::JobMark>,
    ) -> Result<(), super::Violation> {
        let at = self.at;
        let (occurrence, _) = self.occurrence_mut(id)?;
        let execution = id.attempt(occurrence.attempt);
        match &mut occurrence.state {
            OccurrenceState::Closed { .. } => {}
            OccurrenceState::Running { is_asked_to_stop, .. } => *is_asked_to_stop = true,
            OccurrenceState::Waiting(_) | OccurrenceState::Queued => {
                self.ended_unstarted(execution, Status::Cancelled);
                self.close(id, super::attempts::Ended::unstarted(Status::Cancelled, at), mark)?;
                self.count("executions cancelled before they started");
            }
        }
        Ok(())
    }
}
