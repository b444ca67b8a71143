//! Jobs begin and schedules fire: every nominal time is fired or skipped exactly once, for a valid reason,
//! and never early.

use super::clockwork::Clockwork;
use super::dependencies::ParentsModel;
use super::overlap::{OpenAtFire, OpenedByFire};
use super::{
    AuditResult, AuditViolation, Auditor, Cursors, JobModel, Life, Occurrence, OccurrenceFate,
    OccurrenceState, ScheduleModel, rule, start_of,
};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, JobId, OccurrenceId};
use punctual_core::job::StoredStatus;
use punctual_core::occurrence::Origin;
use punctual_core::ports::{CommitEffects, FireOutcome, FireRequest, NewJob, SubmitOutcome};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy, Recurring, Schedule, SkipReason};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Outages whose missed times may wait for the replay of another.
const REPLAYS_WAITING_MAX: usize = 16;
/// How much of a delay a replay makes up for, in microseconds.
const REPLAY_CATCH_UP_US: i64 = 1_000_000;
/// How long a replay waits for room before it retries, in microseconds.
const REPLAY_RECHECK_US: i64 = 30_000_000;
/// Maximum nominal times in one fire, besides those that it skips as missed.
const FIRES_PER_CALL_MAX: usize = 100;

/// The expected result of one fire.
struct ExpectedFire {
    fates: Vec<(Timestamp, OccurrenceFate)>,
    opened: Vec<OpenedByFire>,
    /// The open occurrences are replaced.
    replaces: bool,
    /// How many occurrences were opened and then replaced by a later one before they started: they still
    /// count towards their owner's share.
    replaced: usize,
    cursors: Cursors,
    is_over: bool,
}

impl Auditor {
    pub fn submitted(&mut self, now: Timestamp, jobs: &[NewJob], outcomes: &[SubmitOutcome]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("submit", jobs.len(), outcomes.len())?;
        for (new, outcome) in jobs.iter().zip(outcomes) {
            self.submitted_one(new, outcome)?;
        }
        Ok(())
    }

    fn submitted_one(&mut self, new: &NewJob, outcome: &SubmitOutcome) -> AuditResult {
        let (id, spec) = (new.job.id, &new.job.spec);
        if self.jobs.get(&id).is_some_and(|job| job.is_purged) {
            self.purged_before(id);
        }
        if let Some(known) = self.jobs.get(&id) {
            // A server store may find no room before another node stores the job while this call runs.
            let is_refused = matches!(outcome, SubmitOutcome::QueueFull { .. }) && known.stored_at > self.at;
            rule!(
                *outcome == SubmitOutcome::AlreadyThere || is_refused,
                "a job is created once",
                "job {id} was submitted again and answered {outcome:?}"
            );
            self.count("repeated submits recognised");
            return Ok(());
        }
        if let Some(refusal) = self.key_refusal(spec) {
            rule!(
                *outcome == refusal,
                "a key names one job",
                "job {id} was answered {outcome:?}, expected {refusal:?}"
            );
            return Ok(());
        }
        let parents = self.parents(&spec.settings.depends_on);
        let is_bad = matches!(parents, ParentsModel::Bad { .. });
        if self.is_overlapping
            && let SubmitOutcome::QueueFull { queue, full } = outcome
        {
            return self.was_full(spec, queue, *full);
        }
        if !is_bad
            && !self.is_overlapping
            && let Some(refusal) = self.depth_refusal(spec)?
        {
            rule!(
                *outcome == refusal,
                "a full queue accepts nothing",
                "job {id} was answered {outcome:?}, expected {refusal:?}"
            );
            return Ok(());
        }
        match (&parents, outcome) {
            (ParentsModel::Bad { parent, problem }, _) => {
                let expected = SubmitOutcome::BadParent { parent: *parent, problem: *problem };
                rule!(
                    *outcome == expected,
                    "a dependency must be an existing one-time job",
                    "job {id} was answered {outcome:?}, expected {expected:?}"
                );
                self.count("submits refused for a parent");
                Ok(())
            }
            (_, SubmitOutcome::Created(effects)) => self.created(new, parents, effects),
            _ => {
                rule!(false, "a new job is created", "job {id}: {outcome:?}, {parents:?}");
                Ok(())
            }
        }
    }

    fn created(&mut self, new: &NewJob, parents: ParentsModel, effects: &CommitEffects) -> AuditResult {
        let (id, at) = (new.job.id, self.at);
        let spec = new.job.spec.clone();
        let schedule = spec.settings.schedule.clone();
        let is_due = match &schedule {
            Schedule::Immediate => true,
            Schedule::OneTime { at: execute_at } => *execute_at <= at,
            Schedule::Recurring(_) => false,
        };
        let since = if schedule.is_immediate() { at } else { new.job.created_at };
        let is_failed = matches!(parents, ParentsModel::Failed);
        let waits_for = match parents {
            ParentsModel::Unfinished(parents) => parents,
            _ => BTreeSet::new(),
        };
        let waits = is_failed || !waits_for.is_empty();
        self.count(if waits { "jobs that wait for others" } else { "jobs that wait for nothing" });
        let mut job = JobModel {
            versions: vec![spec],
            changed_by_hand_at: new.job.created_at,
            stored_at: self.now,
            mark: StoredStatus::Active,
            numbered: 0,
            runs: 0,
            schedule: None,
            lives: vec![],
            occurrences: BTreeMap::new(),
            open: BTreeSet::new(),
            waits_for,
            is_purged: false,
        };
        job.begin_life(since, 1, 0, self.now);
        for parent in &job.waits_for {
            self.await_parent(*parent)?;
        }
        self.jobs.insert(id, job);
        if is_due {
            let job = self.job_mut(id)?;
            let first = job.lives.last().map_or(at, |life| life.first);
            job.end_life(false);
            let is_beside = job.spec().settings.overlap == OverlapPolicy::Allow;
            let gates = if waits { Gates::only(Gate::Dependency) } else { Gates::NONE };
            self.fire_one(id, first, gates, is_beside)?;
        } else {
            self.rescheduled(id);
        }
        if is_failed {
            self.skip_child(id)?;
        }
        self.announced(effects)
    }

    pub fn fired(&mut self, now: Timestamp, fires: &[FireRequest], outcomes: &[FireOutcome]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("fire", fires.len(), outcomes.len())?;
        for (fire, outcome) in fires.iter().zip(outcomes) {
            let job = self.job(fire.job)?;
            let version = job.schedule.as_ref().map(|schedule| schedule.version);
            let is_current = version == Some(fire.version);
            let due_at = job.due_at(fire.job);
            match outcome {
                FireOutcome::Fired { effects, occurrences, skipped } => {
                    rule!(
                        is_current && due_at.is_some_and(|due_at| due_at <= now),
                        "a schedule fires only when due and in the version that was read",
                        "job {} fired at {now} for version {}, but it has version {version:?} and fires next at \
                         {due_at:?}",
                        fire.job,
                        fire.version
                    );
                    self.fired_one(fire.job, effects, occurrences, *skipped)?;
                }
                FireOutcome::Conflict => {
                    rule!(
                        !is_current,
                        "a fire is refused only when another one came first",
                        "job {} version {} is untouched and was refused",
                        fire.job,
                        fire.version
                    );
                    self.count("conflicts on fire");
                }
                FireOutcome::UnknownCalendar(name) => {
                    rule!(
                        false,
                        "a schedule of the workload names no calendar",
                        "job {} names {name}",
                        fire.job
                    );
                }
                FireOutcome::NotDue => {
                    rule!(
                        is_current && due_at.is_none_or(|due_at| due_at > now),
                        "a schedule is not due only before its time",
                        "job {} is due at {due_at:?} and was refused at {now}",
                        fire.job
                    );
                }
            }
        }
        Ok(())
    }

    fn fired_one(
        &mut self,
        id: JobId,
        effects: &CommitEffects,
        occurrences: &[(OccurrenceId, Timestamp)],
        skipped: u64,
    ) -> AuditResult {
        let job = self.job(id)?;
        let (Some(due_at), Some(schedule)) = (job.due_at(id), job.schedule.clone()) else { return Ok(()) };
        let expected = expected(id, job, &schedule, self.at);
        self.on_time("a fire", due_at.max(schedule.changed_at))?;
        if schedule.cursors.replay.is_empty() && !expected.cursors.replay.is_empty() {
            self.count("replays begun");
        }
        if !schedule.cursors.waits && expected.cursors.waits {
            self.count("replays that wait for room");
        }
        let (opened, at) = (&expected.opened, self.at);
        let job = self.job_mut(id)?;
        let fired = schedule.fired + opened.len() as u32;
        let schedule_is_one_shot = job.is_one_shot();
        let (version, cursors) = (schedule.version + 1, expected.cursors);
        job.schedule = Some(ScheduleModel { version, cursors, fired, ..schedule });
        if !schedule_is_one_shot {
            job.runs = fired;
        }
        if expected.is_over {
            job.end_life(false);
            if !schedule_is_one_shot || job.numbered + opened.len() as u32 > 1 {
                job.changed_by_hand_at = at.max(job.changed_by_hand_at);
            }
        }
        let gates = match job.waits_for.is_empty() {
            true => Gates::NONE,
            false => Gates::only(Gate::Dependency),
        };
        let is_beside = job.spec().settings.overlap == OverlapPolicy::Allow;
        let is_awaited = schedule.is_awaited;
        for (nominal, fate) in &expected.fates {
            let (life, earlier) = job.lives.split_last_mut().expect("a schedule fires during its life");
            let mut earlier = earlier.iter().filter(|earlier| earlier.clockwork.is_some());
            if life.clockwork.is_some()
                && *fate == OccurrenceFate::Fired
                && earlier.any(|earlier| earlier.fates.get(nominal) == Some(&OccurrenceFate::Fired))
            {
                return Err(twice(id, *nominal, OccurrenceFate::Fired));
            }
            if let Some(earlier) = life.fates.insert(*nominal, *fate) {
                return Err(twice(id, *nominal, earlier));
            }
        }
        for (nominal, fate) in &expected.fates {
            let life = self.job(id)?.lives.last();
            if life.and_then(|life| life.clockwork.as_ref()).is_some_and(|clock| clock.has_changed(*nominal))
            {
                self.count("nominal times after a DST change");
            }
            match fate {
                OccurrenceFate::Fired => {}
                OccurrenceFate::Skipped(SkipReason::Misfire) => self.count("occurrences skipped as missed"),
                OccurrenceFate::Skipped(SkipReason::Backlog) => {
                    self.count("occurrences skipped for their backlog")
                }
                OccurrenceFate::Skipped(_) => self.count("occurrences skipped for overlap"),
            }
        }
        if expected.replaces {
            if !self.job(id)?.open.is_empty() {
                self.count("occurrences replaced before their start");
            }
            self.stop_regular(id)?;
        }
        let mut fired = vec![];
        let spec = self.job(id)?.spec().clone();
        (0..expected.replaced).for_each(|_| {
            self.place_by_share(&spec);
        });
        for one in opened {
            let gates = if one.is_behind { gates.with(Gate::Overlap) } else { gates };
            if one.is_behind && !one.is_replayed && self.open_is_replayed(id)? {
                self.count("regular occurrences that wait behind replayed ones");
            }
            let occurrence = self.fire_one(id, one.nominal, gates, is_beside)?;
            let (model, _) = self.occurrence_mut(occurrence)?;
            (model.is_awaited, model.is_replayed) = (is_awaited, one.is_replayed);
            if one.is_replayed {
                self.count("occurrences replayed");
            }
            fired.push((occurrence, one.nominal));
        }
        let expected_skips =
            expected.fates.iter().filter(|(_, fate)| matches!(fate, OccurrenceFate::Skipped(_))).count();
        rule!(
            fired == occurrences && expected_skips as u64 == skipped,
            "every due nominal time is fired, or skipped for a reason that holds",
            "job {id} at {}: expected {fired:?} and {expected_skips} skipped, \
             got {occurrences:?} and {skipped} skipped",
            self.at
        );
        self.rescheduled(id);
        self.follow(id, false)?;
        self.announced(effects)
    }

    fn open_is_replayed(&self, id: JobId) -> Result<bool, AuditViolation> {
        let job = self.job(id)?;
        Ok(job.open.iter().any(|number| job.occurrences[number].is_replayed))
    }

    fn fire_one(
        &mut self,
        id: JobId,
        nominal: Timestamp,
        gates: Gates,
        is_beside: bool,
    ) -> Result<OccurrenceId, AuditViolation> {
        let (at, now) = (self.at, self.now);
        let spec = self.job(id)?.spec().clone();
        let place = self.place_by_share(&spec);
        let job = self.job_mut(id)?;
        job.numbered += 1;
        let life = job.lives.last_mut().expect("a schedule fires during its life");
        life.fates.insert(nominal, OccurrenceFate::Fired);
        let occurrence = Occurrence {
            origin: Origin::Schedule,
            scheduled_time: nominal,
            available_at: at,
            expires_at: job.expires_at(nominal),
            attempt: 1,
            first_of_drive: 1,
            charged: 0,
            epoch: Epoch(0),
            state: state_behind(gates),
            place,
            limiter: None,
            wait_list: None,
            job_version: job.version(),
            is_beside,
            is_replayed: false,
            is_exempt: false,
            is_awaited: false,
            changed_at: now,
            finished: Vec::new(),
        };
        let number = job.numbered;
        job.occurrences.insert(number, occurrence);
        job.open.insert(number);
        if gates.contains(Gate::Overlap) {
            self.count("occurrences that wait behind others");
        }
        if gates.is_empty() {
            self.becomes_ready(id.occurrence(number))?;
        } else {
            self.placed(id.occurrence(number));
        }
        self.count("occurrences fired");
        Ok(id.occurrence(number))
    }
}

pub(super) fn state_behind(gates: Gates) -> OccurrenceState {
    if gates.is_empty() { OccurrenceState::Queued } else { OccurrenceState::Waiting(gates) }
}

impl JobModel {
    /// Starts a schedule at `since`, unless it has no nominal times after that.
    pub(super) fn begin_life(&mut self, since: Timestamp, version: u32, fired: u32, now: Timestamp) {
        let schedule = self.spec().settings.schedule.clone();
        let clockwork = match &schedule {
            Schedule::Recurring(recurring) => Some(Clockwork::of(recurring)),
            Schedule::Immediate | Schedule::OneTime { .. } => None,
        };
        let first = match (&schedule, &clockwork) {
            (Schedule::OneTime { at }, _) => Some(*at),
            (_, Some(clockwork)) => clockwork.next_after(since),
            _ => Some(since),
        };
        let Some(first) = first else { return };
        let cursors = Cursors { regular: Some(first), replay: vec![], replay_due: since, waits: false };
        let (is_held, is_awaited, changed_at) = (false, false, now);
        self.schedule = Some(ScheduleModel { version, cursors, is_held, fired, is_awaited, changed_at });
        self.runs = fired;
        let (fates, undone) = (BTreeMap::new(), vec![]);
        self.lives.push(Life { schedule, clockwork, first, fates, undone, is_cut_short: false, fired });
    }
}

/// Walks the nominal times one by one.
fn expected(id: JobId, job: &JobModel, schedule: &ScheduleModel, now: Timestamp) -> ExpectedFire {
    let cursors = schedule.cursors.clone();
    let mut crowd = OpenAtFire::of(job);
    let life = job.lives.last().expect("a schedule has a life");
    let (Schedule::Recurring(recurring), Some(clockwork)) = (&life.schedule, &life.clockwork) else {
        crowd.decide_once(cursors.regular.unwrap_or(now));
        let cursors = Cursors { regular: None, ..cursors };
        let OpenAtFire { fates, opened, replaces, replaced, .. } = crowd;
        return ExpectedFire { fates, opened, replaces, replaced, cursors, is_over: true };
    };
    let mut walk = Walk {
        id,
        schedule: &life.schedule,
        recurring,
        clockwork,
        now,
        cursors,
        crowd,
        fired: schedule.fired as usize,
        looked_at: 0,
        missed: vec![],
    };
    walk.settle_missed();
    walk.regular();
    walk.replay();
    let is_over = walk.is_spent() || walk.cursors.is_at_end();
    let OpenAtFire { fates, opened, replaces, replaced, .. } = walk.crowd;
    let fates = walk.missed.into_iter().chain(fates).collect();
    ExpectedFire { fates, opened, replaces, replaced, cursors: walk.cursors, is_over }
}

impl Cursors {
    pub(super) fn is_at_end(&self) -> bool {
        self.regular.is_none() && self.replay.is_empty()
    }
}

/// The model's computation of one fire of a recurring schedule.
struct Walk<'a> {
    id: JobId,
    schedule: &'a Schedule,
    recurring: &'a Recurring,
    clockwork: &'a Clockwork,
    now: Timestamp,
    cursors: Cursors,
    crowd: OpenAtFire,
    /// Occurrences fired before this one.
    fired: usize,
    looked_at: usize,
    missed: Vec<(Timestamp, OccurrenceFate)>,
}

impl Walk<'_> {
    fn late_us(&self, nominal: Timestamp) -> i64 {
        self.now.as_micros() - nominal.as_micros()
    }

    fn settle_missed(&mut self) {
        let misfire = &self.recurring.misfire;
        let mut missed = vec![];
        while let Some(nominal) = self.cursors.regular
            && self.late_us(nominal) > (misfire.grace_ms + self.recurring.jitter_ms) as i64 * 1_000
        {
            missed.push(nominal);
            self.cursors.regular = self.clockwork.next_after(nominal);
        }
        let run = match misfire.policy {
            MisfirePolicy::SkipMissed => 0,
            MisfirePolicy::RunOnce => {
                usize::from(self.cursors.regular.is_none_or(|nominal| nominal > self.now))
            }
            MisfirePolicy::RunAll => {
                let lateness_us = misfire.max_lateness_ms.map_or(i64::MAX, |ms| ms as i64 * 1_000);
                let recent = missed.iter().filter(|nominal| self.late_us(**nominal) <= lateness_us).count();
                misfire.limit.map_or(recent, |limit| recent.min(limit as usize))
            }
        };
        let kept = missed.split_off(missed.len() - run.min(missed.len()));
        let left_out = self.pass_to_replay(kept);
        let skipped = OccurrenceFate::Skipped(SkipReason::Misfire);
        self.missed.extend(missed.into_iter().chain(left_out).map(|nominal| (nominal, skipped)));
        if misfire.policy == MisfirePolicy::RunAll {
            self.replay_all_but_latest();
        }
    }

    /// Only the latest due time stays regular.
    fn replay_all_but_latest(&mut self) {
        let mut earlier = vec![];
        let jitter_us = self.recurring.jitter_ms as i64 * 1_000;
        let before = self.cursors.regular;
        while let Some(nominal) = self.cursors.regular
            && let Some(next) = self.clockwork.next_after(nominal)
            && self.late_us(next) >= jitter_us
        {
            earlier.push(nominal);
            self.cursors.regular = Some(next);
        }
        if !self.pass_to_replay(earlier).is_empty() {
            self.cursors.regular = before;
        }
    }

    /// Returns them if the replay has no room for another range.
    fn pass_to_replay(&mut self, mut kept: Vec<Timestamp>) -> Vec<Timestamp> {
        let before = self.cursors.replay.last().and_then(|list| list.last());
        let next = before.and_then(|before| self.clockwork.next_after(*before));
        let goes_on = next.is_some() && next == kept.first().copied();
        if self.cursors.replay.len() > REPLAYS_WAITING_MAX && !goes_on {
            return kept;
        }
        if !kept.is_empty() {
            if self.cursors.replay.is_empty() {
                self.cursors.replay_due = self.now;
            }
            match self.cursors.replay.last_mut().filter(|_| goes_on) {
                Some(list) => list.append(&mut kept),
                None => self.cursors.replay.push(kept),
            }
        }
        vec![]
    }

    fn regular(&mut self) {
        while let Some(nominal) = self.cursors.regular
            && start_of(self.id, self.schedule, nominal) <= self.now
            && self.may_go_on()
        {
            self.decide(nominal);
            self.cursors.regular = self.clockwork.next_after(nominal);
        }
    }

    fn replay(&mut self) {
        let spacing_us =
            self.recurring.misfire.replay_per_minute.map_or(0, |rate| 60_000_000 / i64::from(rate));
        if !self.cursors.replay.is_empty() {
            self.cursors.replay_due = match std::mem::take(&mut self.cursors.waits) {
                true => self.cursors.replay_at(self.now),
                false => self.cursors.replay_due.max(self.now.shifted(-REPLAY_CATCH_UP_US)),
            };
        }
        while !self.cursors.replay.is_empty() && self.cursors.replay_due <= self.now && self.may_go_on() {
            if !self.crowd.replay(self.cursors.replay[0][0]) {
                self.cursors.waits = true;
                self.cursors.replay_due = self.now.shifted(REPLAY_RECHECK_US);
                return;
            }
            self.looked_at += 1;
            self.cursors.replay[0].remove(0);
            self.cursors.replay.retain(|list| !list.is_empty());
            self.cursors.replay_due = self.cursors.replay_at(self.cursors.replay_due.shifted(spacing_us));
        }
    }

    fn decide(&mut self, nominal: Timestamp) {
        self.looked_at += 1;
        self.crowd.decide(nominal);
    }

    fn may_go_on(&self) -> bool {
        self.looked_at < FIRES_PER_CALL_MAX && !self.is_spent()
    }

    fn is_spent(&self) -> bool {
        let fired = self.fired + self.crowd.opened.len();
        self.recurring.max_runs.is_some_and(|runs| fired >= runs as usize)
    }
}

fn twice(job: JobId, nominal: Timestamp, earlier: OccurrenceFate) -> AuditViolation {
    AuditViolation {
        rule: "no nominal time is accounted for twice",
        detail: format!("{nominal} of job {job} was {earlier:?} before"),
    }
}

pub(super) fn answers_each(verb: &str, asked: usize, answered: usize) -> AuditResult {
    rule!(asked == answered, "a verb answers once per item", "{verb} of {asked} answered {answered}");
    Ok(())
}
