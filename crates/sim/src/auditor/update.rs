//! Updates of a job: running executions continue unchanged, everything else follows the new description, and
//! a changed schedule applies from then on.

use super::control::{Effect, JudgedVerb};
use super::{AuditViolation, Auditor, ClaimPlace, JobModel, OccurrenceFate, OccurrenceState, rule};
use punctual_core::control::{Refusal, Update};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::{JobSpec, JobStatus, StoredStatus};
use punctual_core::occurrence::Origin;
use punctual_core::schedule::{MisfirePolicy, Schedule, SkipReason};
use punctual_core::time::Timestamp;

impl Auditor {
    pub(super) fn update(&mut self, id: JobId, update: &Update) -> JudgedVerb {
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
        let is_continued = is_moved && job.continues_under(&old, &new);
        let postponed =
            job.unstarted().filter(|_| is_moved && has_fired && new.settings.schedule.is_one_shot());
        let begins = is_moved && !is_continued && postponed.is_none() && job.has_new_times(&new, at);
        if begins && let Some(refusal) = self.revival_refusal(id)? {
            return Ok(Err(refusal));
        }
        let job = self.job_mut(id)?;
        let since = job.changed_at(at);
        job.versions.push(new.clone());
        job.changed_by_hand_at = since;
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
        let mut skipped = 0;
        match postponed {
            Some(number) => self.postpone(id, number)?,
            None if is_continued => skipped = self.job_mut(id)?.continue_life(id)?,
            None if is_moved => skipped = self.begin_new_schedule(id, begins, since)?,
            None => {}
        }
        let place = |spec: &JobSpec| {
            (spec.queue.clone(), spec.job_type.clone(), spec.settings.concurrency_key.clone())
        };
        if place(&old) != place(&new) {
            self.readmit_job(id)?;
        }
        self.rescheduled(id);
        self.count(if is_moved { "updates of a schedule" } else { "updates" });
        if is_continued {
            self.count("updates of a schedule that continues");
        }
        if skipped > 0 {
            self.count("replays ended by an update");
        }
        self.follow(id, false)?;
        Ok(Ok(Effect { skipped, added: None }))
    }

    /// Applies a new description to an open occurrence.
    fn describe(&mut self, id: JobId, number: u32, old: &JobSpec) -> Result<(), AuditViolation> {
        let id = id.occurrence(number);
        let job = self.job(id.job)?;
        let one = &job.occurrences[&number];
        let is_untouched = one.origin == Origin::Schedule && one.charged == 0 && one.attempt == 1;
        let expires_at = if is_untouched { job.expires_at(one.scheduled_time) } else { one.expires_at };
        let (occurrence, spec) = self.occurrence_mut(id)?;
        // Running executions have a rank, too: they may return to the queue.
        if old.priority != spec.priority {
            occurrence.place = ClaimPlace::at(occurrence.available_at, spec);
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
    fn postpone(&mut self, id: JobId, number: u32) -> Result<(), AuditViolation> {
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
            life.fates = [(nominal, OccurrenceFate::Fired)].into();
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

    /// Returns how many missed times of the old schedule are not replayed any more.
    fn begin_new_schedule(
        &mut self,
        id: JobId,
        begins: bool,
        since: Timestamp,
    ) -> Result<u64, AuditViolation> {
        let now = self.now;
        let job = self.job_mut(id)?;
        let version = job.schedule.as_ref().map_or(1, |old| old.version);
        let fired = job.runs();
        let is_awaited = job.is_awaited();
        // The status is read before the old schedule is removed.
        let status = job.status();
        let skipped = job.end_replay(id)?;
        job.end_life(true);
        if begins {
            job.revive(status);
            job.begin_life(since, version, fired, now);
            let is_held = job.mark == StoredStatus::Paused;
            if let Some(schedule) = &mut job.schedule {
                (schedule.is_held, schedule.is_awaited) = (is_held, is_awaited);
            }
        }
        Ok(skipped)
    }
}

impl JobModel {
    /// Whether the job has a schedule whose times are the same before and after an update.
    fn continues_under(&self, old: &JobSpec, new: &JobSpec) -> bool {
        match (&self.schedule, &old.settings.schedule, &new.settings.schedule) {
            (Some(_), Schedule::Recurring(old), Schedule::Recurring(new)) => old.recurrence == new.recurrence,
            _ => false,
        }
    }

    /// Continues with other settings of the same times. Pending times stay pending, unless missed times are skipped
    /// from now on or all runs are used. Returns how many are not replayed any more.
    fn continue_life(&mut self, id: JobId) -> Result<u64, AuditViolation> {
        let new = self.spec().settings.schedule.clone();
        let (Schedule::Recurring(recurring), Some(schedule), Some(life)) =
            (&new, &self.schedule, self.lives.last_mut())
        else {
            return Ok(0);
        };
        let is_spent = recurring.max_runs.is_some_and(|max| schedule.fired >= max);
        let replays = recurring.misfire.policy != MisfirePolicy::SkipMissed && !is_spent;
        life.schedule = new;
        let skipped = if replays { 0 } else { self.end_replay(id)? };
        if is_spent || self.schedule.as_ref().is_some_and(|schedule| schedule.cursors.is_at_end()) {
            self.end_life(true);
        }
        Ok(skipped)
    }

    /// Skips the missed times that were still to be replayed, and returns how many they are.
    fn end_replay(&mut self, id: JobId) -> Result<u64, AuditViolation> {
        let (Some(schedule), Some(life)) = (&mut self.schedule, self.lives.last_mut()) else { return Ok(0) };
        let undone = std::mem::take(&mut schedule.cursors.replay).concat();
        schedule.cursors.waits = false;
        for nominal in &undone {
            let earlier = life.fates.insert(*nominal, OccurrenceFate::Skipped(SkipReason::Misfire));
            rule!(
                earlier.is_none(),
                "no nominal time is accounted for twice",
                "{nominal} of job {id} was {earlier:?} before"
            );
        }
        Ok(undone.len() as u64)
    }

    /// The number of the open, unstarted run of a one-time schedule.
    fn unstarted(&self) -> Option<u32> {
        self.open.iter().copied().find(|number| {
            let one = &self.occurrences[number];
            one.attempt == 1 && one.origin == Origin::Schedule && !one.is_running()
        })
    }

    /// The time of a change, from which a new schedule starts. All nominal times of the old one before its
    /// next time are accounted for, and so are those before the last change, even if the verb's time is
    /// earlier.
    pub(super) fn changed_at(&self, at: Timestamp) -> Timestamp {
        let clockwork = self.lives.last().and_then(|life| life.clockwork.as_ref());
        let accounted = self.schedule.as_ref().zip(clockwork).and_then(|(schedule, clockwork)| {
            schedule.cursors.regular.map_or_else(|| clockwork.last(), |next| clockwork.last_before(next))
        });
        at.max(self.changed_by_hand_at).max(accounted.unwrap_or(at))
    }

    /// Runs that the job has had.
    fn runs(&self) -> u32 {
        match &self.schedule {
            Some(schedule) => schedule.fired,
            None => self.runs,
        }
    }

    /// Whether a new schedule has anything to fire from now on: earlier runs of the job count.
    fn has_new_times(&self, new: &JobSpec, at: Timestamp) -> bool {
        let Schedule::Recurring(recurring) = &new.settings.schedule else { return true };
        let fired = self.runs();
        let since = self.changed_at(at);
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
