//! Updates of a job: running executions continue unchanged, everything else follows the new description, and
//! a changed schedule applies from then on.

use super::control::{Asked, Effect};
use super::{Auditor, JobModel, OccurrenceState, Place, Violation};
use punctual_core::control::{Refusal, Update};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus, StoredStatus};
use punctual_core::occurrence::Origin;
use punctual_core::schedule::Schedule;
use punctual_core::time::Timestamp;

impl Auditor {
    pub(super) fn update(&mut self, id: JobId, update: &Update) -> Asked {
        let at = self.at;
        let job = self.job(id)?;
        let version = job.version();
        if update.expected_version.is_some_and(|expected| expected != version) {
            self.count("updates of a stale version");
            return Ok(Err(Refusal::Stale { version }));
        }
        if job.status() == JobStatus::Cancelled {
            return Ok(Err(Refusal::Cancelled));
        }
        let (old, new) = (job.spec().clone(), update.spec.clone());
        if let Some(field) = fixed(&old, &new) {
            return Ok(Err(Refusal::Fixed(field)));
        }
        if old == new {
            return Ok(Ok(Effect::default()));
        }
        if job.is_awaited() && !new.settings.schedule.is_one_shot() {
            self.count("updates refused because others depend on the job");
            return Ok(Err(Refusal::Awaited));
        }
        let is_moved = old.settings.schedule != new.settings.schedule;
        let has_fired = job.schedule.is_none() && job.is_one_shot();
        let postponed =
            job.unstarted().filter(|_| is_moved && has_fired && new.settings.schedule.is_one_shot());
        let begins = is_moved && postponed.is_none() && job.begins_anew(&new, at);
        if begins && let Some(refusal) = self.revival_refusal(id)? {
            return Ok(Err(refusal));
        }
        let job = self.job_mut(id)?;
        let since = job.since(&old, at);
        job.versions.push(new.clone());
        job.changed_by_hand_at = at.max(job.changed_by_hand_at);
        let has_other_limits = old.settings.overlap() != new.settings.overlap();
        let is_later = job.due_at(id).is_some_and(|due_at| due_at > at);
        if let Some(schedule) = &mut job.schedule {
            schedule.version += 1;
            if schedule.cursors.waits && has_other_limits && is_later {
                schedule.cursors.replay_due = schedule.cursors.replay_at(at);
            }
        }
        for number in job.open.clone() {
            self.describe(id, number, &old)?;
        }
        match postponed {
            Some(number) => self.postpone(id, number)?,
            None if is_moved => self.begin_anew(id, begins, since)?,
            None => {}
        }
        let place = |spec: &JobSpec| {
            (spec.queue.clone(), spec.job_type.clone(), spec.settings.concurrency_key.clone())
        };
        if place(&old) != place(&new) {
            self.takes_place_again(id)?;
        }
        self.rescheduled(id);
        self.count(if is_moved { "updates of a schedule" } else { "updates" });
        self.follow(id, false)?;
        Ok(Ok(Effect::default()))
    }

    /// Applies a new description to an open occurrence.
    fn describe(&mut self, id: JobId, number: u32, old: &JobSpec) -> Result<(), Violation> {
        let id = id.occurrence(number);
        let job = self.job(id.job)?;
        let one = &job.occurrences[&number];
        let is_untouched = one.origin == Origin::Schedule && one.charged == 0 && one.attempt == 1;
        let expires_at = if is_untouched { job.expires_at(one.scheduled_time) } else { one.expires_at };
        let (occurrence, spec) = self.occurrence_mut(id)?;
        // Running executions have a rank, too: they may return to the queue.
        if old.priority != spec.priority {
            occurrence.place = Place::at(occurrence.available_at, spec);
        }
        if occurrence.is_running() {
            return Ok(());
        }
        let is_changed = occurrence.expires_at != expires_at;
        occurrence.expires_at = expires_at;
        let has_moved = old.queue != spec.queue || old.job_type != spec.job_type;
        let is_queued = occurrence.state == OccurrenceState::Queued;
        if is_changed {
            self.placed(id);
        } else if has_moved && is_queued {
            self.moved(id);
        }
        Ok(())
    }

    /// The only run of the job has not started: it moves to the job's new time.
    fn postpone(&mut self, id: JobId, number: u32) -> Result<(), Violation> {
        let at = self.at;
        let job = self.job_mut(id)?;
        let schedule = job.spec().settings.schedule.clone();
        let nominal = match &schedule {
            Schedule::OneTime { at } => *at,
            _ => at,
        };
        let expires_at = job.expires_at(nominal);
        if let Some(life) = job.lives.last_mut() {
            (life.schedule, life.first) = (schedule, nominal);
            life.fates = [(nominal, super::OccurrenceFate::Fired)].into();
        }
        let (occurrence, _) = self.occurrence_mut(id.occurrence(number))?;
        occurrence.scheduled_time = nominal;
        occurrence.available_at = nominal.max(at);
        occurrence.expires_at = expires_at;
        if nominal > at {
            occurrence.state = match occurrence.state {
                OccurrenceState::Waiting(gates) => OccurrenceState::Waiting(gates.with(Gate::Time)),
                _ => OccurrenceState::Waiting(punctual_core::gates::Gates::only(Gate::Time)),
            };
            self.placed(id.occurrence(number));
        } else if occurrence.is_behind(Gate::Time) {
            self.open_gate(id.occurrence(number), Gate::Time)?;
        } else {
            self.placed(id.occurrence(number));
        }
        self.count("runs moved by an update");
        Ok(())
    }

    fn begin_anew(&mut self, id: JobId, begins: bool, since: Timestamp) -> Result<(), Violation> {
        let now = self.now;
        let job = self.job_mut(id)?;
        let version = job.schedule.as_ref().map_or(1, |old| old.version);
        let fired = job.runs();
        let is_awaited = job.is_awaited();
        // The status is read before the old schedule is removed.
        let status = job.status();
        job.end_life(true);
        if begins {
            job.revive(status);
            job.begin_life(since, version, fired, now);
            let is_held = job.mark == StoredStatus::Paused;
            if let Some(schedule) = &mut job.schedule {
                (schedule.is_held, schedule.is_awaited) = (is_held, is_awaited);
            }
        }
        Ok(())
    }
}

impl JobModel {
    /// The number of the open, unstarted run of a one-time schedule.
    fn unstarted(&self) -> Option<u32> {
        self.open.iter().copied().find(|number| {
            let one = &self.occurrences[number];
            one.attempt == 1 && one.origin == Origin::Schedule && !one.is_running()
        })
    }

    /// The start of a new schedule. All nominal times of the old one before its next time are accounted for,
    /// and so are those before the last change, even if the verb's time is earlier.
    fn since(&self, before: &JobSpec, at: Timestamp) -> Timestamp {
        let at = at.max(self.changed_by_hand_at);
        let (Some(schedule), Schedule::Recurring(recurring)) = (&self.schedule, &before.settings.schedule)
        else {
            return at;
        };
        let over =
            schedule.cursors.regular.and_then(|next| super::Clockwork::of(recurring).last_before(next));
        over.map_or(at, |over| over.max(at))
    }

    /// Runs that the job has had.
    fn runs(&self) -> u32 {
        match &self.schedule {
            Some(schedule) => schedule.fired,
            None => self.runs,
        }
    }

    /// Whether a new schedule has anything to fire from now on: earlier runs of the job count.
    fn begins_anew(&self, new: &JobSpec, at: Timestamp) -> bool {
        let Schedule::Recurring(recurring) = &new.settings.schedule else { return true };
        let fired = self.runs();
        let since = self.since(self.spec(), at);
        let is_spent = recurring.max_runs.is_some_and(|max| fired >= max);
        !is_spent && super::Clockwork::of(recurring).next_after(since).is_some()
    }
}

fn fixed(old: &JobSpec, new: &JobSpec) -> Option<&'static str> {
    if old.owner != new.owner {
        Some("owner_id")
    } else if old.settings.idempotency_key != new.settings.idempotency_key {
        Some("idempotency_key")
    } else if old.settings.unique_key != new.settings.unique_key {
        Some("unique_key")
    } else if old.settings.depends_on != new.settings.depends_on {
        Some("depends_on")
    } else {
        None
    }
}
