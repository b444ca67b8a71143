//! Overlapping occurrences of one job: which may open, which are replaced, and which one starts when another
//! has ended.

use super::{AuditResult, Auditor, JobModel, Occurrence, OccurrenceFate, OccurrenceState, rule};
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use punctual_core::time::Timestamp;

/// An occurrence that a fire opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenedByFire {
    pub nominal: Timestamp,
    /// It waits for those that are open.
    pub is_behind: bool,
    pub is_replayed: bool,
}

/// The open occurrences of a job at a fire, including those that the fire opens.
#[derive(Debug)]
pub(super) struct OpenAtFire {
    policy: OverlapPolicy,
    limit: usize,
    max_open: usize,
    open: usize,
    behind: usize,
    replayed: usize,
    replayed_behind: usize,
    /// The latest scheduled time among the regular occurrences that the schedule opened.
    latest: Option<Timestamp>,
    /// An occurrence that is not a replay is running.
    is_running: bool,
    pub opened: Vec<OpenedByFire>,
    pub fates: Vec<(Timestamp, OccurrenceFate)>,
    /// The open occurrences are replaced.
    pub replaces: bool,
    /// How many occurrences of this fire were replaced by a later one.
    pub replaced: usize,
}

impl OpenAtFire {
    pub fn of(job: &JobModel) -> Self {
        let settings = &job.spec().settings;
        let open: Vec<&Occurrence> = job.open.iter().map(|number| &job.occurrences[number]).collect();
        let max_open = settings.max_open as usize;
        let (replayed, others): (Vec<&Occurrence>, Vec<&Occurrence>) =
            open.iter().copied().partition(|one| one.is_replayed);
        let scheduled = others.iter().filter(|one| one.origin == Origin::Schedule);
        OpenAtFire {
            policy: settings.overlap,
            limit: settings.overlap_limit as usize,
            max_open,
            open: open.len(),
            behind: open.iter().filter(|one| one.is_behind(Gate::Overlap)).count(),
            replayed: replayed.len(),
            replayed_behind: replayed.iter().filter(|one| one.is_behind(Gate::Overlap)).count(),
            latest: scheduled.map(|one| one.scheduled_time).max(),
            is_running: others.iter().any(|one| one.is_running()),
            opened: vec![],
            fates: vec![],
            replaces: false,
            replaced: 0,
        }
    }

    /// The decision at a regular nominal time of a recurring schedule: it is skipped only if it would be
    /// skipped without the replayed ones.
    pub fn decide(&mut self, nominal: Timestamp) {
        let others = self.open - self.replayed;
        let others_behind = self.behind - self.replayed_behind;
        // If all of them wait, the first one waits for a replayed one.
        let is_delayed = self.replayed > 0 && others > 0 && others == others_behind;
        let waiting = if is_delayed { others_behind - 1 } else { others_behind };
        let is_alone = self.policy != OverlapPolicy::Allow;
        match self.policy {
            OverlapPolicy::Skip if others > 0 => self.skip(nominal, SkipReason::Overlap),
            OverlapPolicy::Queue if others > 0 && waiting >= self.limit => {
                self.skip(nominal, SkipReason::Overlap);
            }
            OverlapPolicy::Replace => self.replace(nominal),
            _ if others >= self.max_open => self.skip(nominal, SkipReason::Backlog),
            _ => self.open(nominal, is_alone && self.open > 0),
        }
    }

    /// Whether a missed occurrence may open, leaving room for a regular one.
    fn has_room(&self) -> bool {
        let is_below_max = self.open + 1 < self.max_open;
        self.open == 0
            || match self.policy {
                OverlapPolicy::Allow => is_below_max,
                OverlapPolicy::Queue => is_below_max && self.behind + 1 < self.limit,
                OverlapPolicy::Skip | OverlapPolicy::Replace => false,
            }
    }

    /// Opens a missed occurrence if there is room; returns whether there was.
    pub fn replay(&mut self, nominal: Timestamp) -> bool {
        let has_room = self.has_room();
        if has_room {
            let is_behind = self.policy == OverlapPolicy::Queue && self.open > 0;
            let latest = self.latest;
            self.open(nominal, is_behind);
            self.latest = latest;
            self.replayed += 1;
            self.replayed_behind += usize::from(is_behind);
            if let Some(opened) = self.opened.last_mut() {
                opened.is_replayed = true;
            }
        }
        has_room
    }

    /// The decision of a one-time schedule: it is never skipped.
    pub fn decide_once(&mut self, nominal: Timestamp) {
        let is_behind = match self.policy {
            OverlapPolicy::Allow => false,
            OverlapPolicy::Skip | OverlapPolicy::Queue => self.open > 0,
            OverlapPolicy::Replace => {
                self.replaces = true;
                self.is_running || self.replayed > 0
            }
        };
        self.open(nominal, is_behind);
    }

    fn replace(&mut self, nominal: Timestamp) {
        if self.latest.is_some_and(|latest| latest > nominal) {
            return self.skip(nominal, SkipReason::Overlap);
        }
        let is_behind = match self.opened.pop() {
            Some(replaced) => {
                self.replaced += 1;
                self.fates.retain(|(time, _)| *time != replaced.nominal);
                self.skip(replaced.nominal, SkipReason::Overlap);
                replaced.is_behind
            }
            None => {
                self.replaces = true;
                self.is_running || self.replayed > 0
            }
        };
        self.open(nominal, is_behind);
    }

    fn open(&mut self, nominal: Timestamp, is_behind: bool) {
        self.open += 1;
        self.behind += usize::from(is_behind);
        self.latest = self.latest.max(Some(nominal));
        self.opened.push(OpenedByFire { nominal, is_behind, is_replayed: false });
        self.fates.push((nominal, OccurrenceFate::Fired));
    }

    fn skip(&mut self, nominal: Timestamp, reason: SkipReason) {
        self.fates.push((nominal, OccurrenceFate::Skipped(reason)));
    }
}

impl Auditor {
    /// Stops all open occurrences of a job: unstarted ones end, running ones are asked to stop.
    pub(super) fn stop_open(&mut self, job: JobId) -> AuditResult {
        for number in self.job(job)?.open.clone() {
            self.stop(job.occurrence(number), None)?;
        }
        Ok(())
    }

    /// Stops all open regular occurrences of a job.
    pub(super) fn stop_regular(&mut self, job: JobId) -> AuditResult {
        for number in self.job(job)?.open.clone() {
            if !self.job(job)?.occurrences[&number].is_replayed {
                self.stop(job.occurrence(number), None)?;
            }
        }
        Ok(())
    }

    /// Something of the job has ended: a replay that waits for room is due, if there is room.
    pub(super) fn wake_replay(&mut self, id: JobId) -> AuditResult {
        let at = self.at;
        let job = self.job_mut(id)?;
        let due_at = job.due_at(id);
        let is_later = due_at.is_some_and(|due_at| due_at > at);
        let has_room = OpenAtFire::of(job).has_room();
        if is_later
            && has_room
            && let Some(schedule) = job.schedule.as_mut().filter(|schedule| schedule.cursors.waits)
            && due_at != Some(schedule.cursors.replay_at(at))
        {
            schedule.cursors.replay_due = schedule.cursors.replay_at(at);
            schedule.version += 1;
            self.rescheduled(id);
            self.count("replays woken");
        }
        Ok(())
    }

    /// The end of one occurrence lets the first waiting one start, if nothing else blocks it. Replayed ones
    /// start after the others.
    pub(super) fn start_next_waiting(&mut self, id: JobId) -> AuditResult {
        let job = self.job(id)?;
        let is_waiting = |number: &u32| job.occurrences[number].is_behind(Gate::Overlap);
        if job.open.iter().all(is_waiting)
            && let Some(first) =
                job.open.iter().copied().min_by_key(|number| (job.occurrences[number].is_replayed, *number))
        {
            self.count("followers whose turn came");
            self.open_gate(id.occurrence(first), Gate::Overlap)?;
        }
        Ok(())
    }

    /// Checked when an execution is leased: no other of its job runs, unless one of the two may run
    /// concurrently.
    pub(super) fn runs_alone(&self, id: OccurrenceId) -> AuditResult {
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

    /// Stops one occurrence; its end sets the job's stored status if one is given.
    pub(super) fn stop(
        &mut self,
        id: OccurrenceId,
        mark: Option<punctual_core::job::StoredStatus>,
    ) -> Result<(), super::AuditViolation> {
        let at = self.at;
        let (occurrence, _) = self.occurrence_mut(id)?;
        let execution = id.attempt(occurrence.attempt);
        match &mut occurrence.state {
            OccurrenceState::Closed { .. } => {}
            OccurrenceState::Running { is_asked_to_stop, .. } => *is_asked_to_stop = true,
            OccurrenceState::Waiting(_) | OccurrenceState::Queued => {
                self.ended_unstarted(execution, Status::Cancelled);
                self.close(id, super::attempts::AttemptEnd::unstarted(Status::Cancelled, at), mark)?;
                self.count("executions cancelled before they started");
            }
        }
        Ok(())
    }
}
