//! Jobs begin and schedules fire: every nominal time is fired or skipped once, for a reason that holds, and
//! never before its time.

use super::clockwork::Clockwork;
use super::{Auditor, Cursors, Fate, JobModel, Occurrence, OccurrenceState, Place, Verdict, Violation, rule};
use punctual_core::ids::{Epoch, JobId, OccurrenceId, SegmentSet};
use punctual_core::ports::{
    Begun, Due, DueKind, Fire, FireOutcome, NewJob, OpenOutcome, SubmitOutcome, TimeGate,
};
use punctual_core::schedule::{MisfirePolicy, Recurring, Schedule, SkipReason};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Outages whose missed times wait behind those of another.
const REPLAYS_WAITING_MAX: usize = 16;
/// How far a replay that was held up makes up for that, in microseconds.
const REPLAY_CATCH_UP_US: i64 = 1_000_000;
/// Nominal times that one fire takes at most, besides those that it skips as missed.
const FIRES_PER_CALL_MAX: usize = 100;
/// The most that an owner's backlog moves its next execution back, with the few hundred jobs of a run.
const SHARE_LAG_MAX: Duration = Duration::from_secs(2);
/// Open occurrences of one job.
const OPEN_MAX: usize = 1_000;

/// What one fire of a schedule must come to.
struct Expected {
    fates: Vec<(Timestamp, Fate)>,
    cursors: Cursors,
    next: Option<Timestamp>,
}

impl Auditor {
    pub fn submitted(&mut self, now: Timestamp, jobs: &[NewJob], outcomes: &[SubmitOutcome]) -> Verdict {
        self.not_ahead(now)?;
        answers_each("submit", jobs.len(), outcomes.len())?;
        for (new, outcome) in jobs.iter().zip(outcomes) {
            match outcome {
                SubmitOutcome::Created(begun) => self.created(now, new, begun)?,
                SubmitOutcome::AlreadyThere => {
                    let id = new.job.id;
                    rule!(
                        self.jobs.contains_key(&id),
                        "a job is there already only if it was created",
                        "job {id} was refused as a repetition but never created"
                    );
                }
            }
        }
        Ok(())
    }

    fn created(&mut self, now: Timestamp, new: &NewJob, begun: &Begun) -> Verdict {
        let id = new.job.id;
        rule!(!self.jobs.contains_key(&id), "a job is created once", "job {id} was created twice");
        let spec = new.job.spec.clone();
        let clockwork = match &spec.settings.schedule {
            Schedule::Recurring(recurring) => Some(Clockwork::of(recurring)),
            Schedule::Immediate | Schedule::OneTime { .. } => None,
        };
        let (at_once, first) = match (&spec.settings.schedule, &clockwork) {
            (Schedule::OneTime { at }, _) => ((*at <= now).then_some(*at), Some(*at)),
            (_, Some(clockwork)) => (None, clockwork.next_after(new.job.created_at)),
            _ => (Some(now), None),
        };
        let regular = if at_once.is_some() { None } else { first };
        let cursors = Cursors { regular, replay: vec![], replay_due: now };
        let mut job = JobModel {
            spec,
            created_at: self.now,
            version: 1,
            clockwork,
            first,
            next: cursors.next(),
            cursors,
            fates: BTreeMap::new(),
            occurrences: BTreeMap::new(),
            open: 0,
            failed: false,
        };
        let fired: Vec<OccurrenceId> =
            at_once.into_iter().map(|nominal| self.fire_one(id, &mut job, nominal, now)).collect();
        self.jobs.insert(id, job);
        self.begun(begun, &fired)?;
        self.due_next_is(id, begun)
    }

    pub fn fired(&mut self, now: Timestamp, fires: &[Fire], outcomes: &[FireOutcome]) -> Verdict {
        self.not_ahead(now)?;
        answers_each("fire", fires.len(), outcomes.len())?;
        for (fire, outcome) in fires.iter().zip(outcomes) {
            let job = self.job(fire.job)?;
            let current = (job.version == fire.version).then_some(job.next).flatten();
            match outcome {
                FireOutcome::Fired { begun, occurrences, skipped } => {
                    rule!(
                        current.is_some_and(|next| next <= now),
                        "a schedule fires only when due and in the version that was read",
                        "job {} fired at {now} for version {}, but it has version {} and fires next at {:?}",
                        fire.job,
                        fire.version,
                        job.version,
                        job.next
                    );
                    self.fired_one(now, fire.job, begun, occurrences, *skipped)?;
                }
                FireOutcome::Conflict => {
                    rule!(
                        current.is_none(),
                        "a fire is refused only when another one came first",
                        "job {} version {} is untouched and was refused",
                        fire.job,
                        fire.version
                    );
                    self.count("conflicts on fire");
                }
                FireOutcome::NotDue => {
                    rule!(
                        current.is_some_and(|next| next > now),
                        "a schedule is not due only before its time",
                        "job {} is due at {current:?} and was refused at {now}",
                        fire.job
                    );
                }
            }
        }
        Ok(())
    }

    fn fired_one(
        &mut self,
        now: Timestamp,
        id: JobId,
        begun: &Begun,
        occurrences: &[(OccurrenceId, Timestamp)],
        skipped: u64,
    ) -> Verdict {
        let Some(mut job) = self.jobs.remove(&id) else { return Ok(()) };
        if let Some(first) = job.next {
            self.on_time("a fire", first.max(job.created_at))?;
        }
        let expected = expected(&job, now);
        job.version += 1;
        job.next = expected.next;
        if job.cursors.replay.is_empty() && !expected.cursors.replay.is_empty() {
            self.count("replays begun");
        }
        job.cursors = expected.cursors;
        let mut fired = Vec::new();
        for (nominal, fate) in &expected.fates {
            if let Some(earlier) = job.fates.get(nominal) {
                return Err(twice(id, *nominal, *earlier));
            }
            match fate {
                Fate::Fired => fired.push((self.fire_one(id, &mut job, *nominal, now), *nominal)),
                Fate::Skipped(reason) => {
                    job.fates.insert(*nominal, *fate);
                    self.count(match reason {
                        SkipReason::Misfire => "occurrences skipped as missed",
                        _ => "occurrences skipped for overlap",
                    });
                }
            }
        }
        self.jobs.insert(id, job);
        let expected_skips = expected.fates.len() - fired.len();
        rule!(
            fired == occurrences && expected_skips as u64 == skipped,
            "every due nominal time is fired, or skipped for a reason that holds",
            "job {id} at {now}: expected {fired:?} and {expected_skips} skipped, \
             got {occurrences:?} and {skipped} skipped"
        );
        let fired: Vec<OccurrenceId> = fired.into_iter().map(|(id, _)| id).collect();
        self.begun(begun, &fired)?;
        self.due_next_is(id, begun)
    }

    fn fire_one(
        &mut self,
        id: JobId,
        job: &mut JobModel,
        nominal: Timestamp,
        now: Timestamp,
    ) -> OccurrenceId {
        let number = job.occurrences.len() as u32 + 1;
        job.fates.insert(nominal, Fate::Fired);
        job.open += 1;
        job.occurrences.insert(
            number,
            Occurrence {
                scheduled_time: nominal,
                attempt: 1,
                charged: 0,
                epoch: Epoch(0),
                state: OccurrenceState::Queued,
                // An owner's share reaches at most as far as the latest time that any call has named.
                place: Place::between(now, self.now.plus(SHARE_LAG_MAX), &job.spec),
                finished: Vec::new(),
            },
        );
        let occurrence = id.occurrence(number);
        self.queued.insert(occurrence);
        self.count("occurrences fired");
        occurrence
    }

    pub fn gates_opened(&mut self, now: Timestamp, gates: &[TimeGate], outcomes: &[OpenOutcome]) -> Verdict {
        self.not_ahead(now)?;
        answers_each("open_time_gates", gates.len(), outcomes.len())?;
        for (gate, outcome) in gates.iter().zip(outcomes) {
            let id = gate.occurrence;
            let (occurrence, spec) = self.occurrence_mut(id)?;
            let closed_until = match occurrence.state {
                OccurrenceState::Waiting { until } if occurrence.attempt == gate.attempt => Some(until),
                _ => None,
            };
            let state = occurrence.state;
            match outcome {
                OpenOutcome::Opened(begun) => {
                    rule!(
                        closed_until.is_some_and(|until| until <= now),
                        "a time gate opens once, and not before its time",
                        "{id}.{} was opened at {now} while it was {state:?}",
                        gate.attempt
                    );
                    occurrence.state = OccurrenceState::Queued;
                    let ready_at = closed_until.unwrap_or(now);
                    occurrence.place = Place::between(ready_at, ready_at, spec);
                    self.on_time("a retry", closed_until.unwrap_or(now))?;
                    self.queued.insert(id);
                    self.begun(begun, &[id])?;
                    self.count("time gates opened");
                }
                OpenOutcome::Conflict => {
                    rule!(
                        closed_until.is_none(),
                        "a gate is refused only when it is no longer closed",
                        "{id}.{} is {state:?} and was refused",
                        gate.attempt
                    );
                    self.count("conflicts on gates");
                }
                OpenOutcome::NotDue => rule!(
                    closed_until.is_some_and(|until| until > now),
                    "a gate is not due only before its time",
                    "{id}.{} is {state:?} and was refused at {now}",
                    gate.attempt
                ),
            }
        }
        Ok(())
    }

    /// What a read of due times must contain: all there is up to `until`, unless the limit cut it off.
    pub fn read_due(&mut self, segments: SegmentSet, until: Timestamp, limit: usize, due: &[Due]) -> Verdict {
        let got: BTreeSet<(Timestamp, DueKind)> = due.iter().map(|due| (due.at, due.what)).collect();
        rule!(got.len() == due.len(), "what is due is read once", "{due:?}");
        let expected = self.all_due(segments, until);
        if expected.len() < limit {
            rule!(
                got == expected,
                "all that is due is read, and nothing else",
                "until {until}: expected {expected:?}, got {got:?}"
            );
        }
        Ok(())
    }

    fn all_due(&self, segments: SegmentSet, until: Timestamp) -> BTreeSet<(Timestamp, DueKind)> {
        let mut all = BTreeSet::new();
        for (id, job) in self.jobs.iter().filter(|(id, _)| segments.contains(id.segment())) {
            if let Some(next) = job.next {
                all.insert((next, DueKind::Schedule { job: *id, version: job.version }));
            }
            if job.open == 0 {
                continue;
            }
            for (number, occurrence) in &job.occurrences {
                if let OccurrenceState::Waiting { until } = occurrence.state {
                    let (occurrence, attempt) = (id.occurrence(*number), occurrence.attempt);
                    all.insert((until, DueKind::TimeGate { occurrence, attempt }));
                }
            }
        }
        all.retain(|(at, _)| *at <= until);
        all
    }

    /// New work is leased to the offers named, or else announced in its lane.
    fn begun(&mut self, begun: &Begun, fresh: &[OccurrenceId]) -> Verdict {
        for (offer, assignment) in &begun.assigned {
            let id = assignment.execution.occurrence;
            rule!(
                fresh.contains(&id),
                "an offer is given only the work that came with it",
                "{id} was given to {offer:?}, fresh are {fresh:?}"
            );
            self.granted(offer.session, offer.turn, assignment)?;
            self.count("offers taken");
        }
        if let Some(left) = fresh.iter().find(|id| self.queued.contains(id)) {
            let lane = self.lane(left.job)?;
            rule!(
                begun.queued.as_ref() == Some(&lane),
                "work that is queued is announced",
                "{left} is queued in {lane:?}, announced was {:?}",
                begun.queued
            );
        }
        Ok(())
    }

    fn due_next_is(&self, id: JobId, begun: &Begun) -> Verdict {
        let job = self.job(id)?;
        let lane = self.lane(id)?;
        let expected =
            job.next.map(|at| Due { at, lane, what: DueKind::Schedule { job: id, version: job.version } });
        rule!(
            begun.due == expected,
            "a commit tells what is due next because of it",
            "job {id}: expected {expected:?}, got {:?}",
            begun.due
        );
        Ok(())
    }
}

/// Walks the nominal times one by one.
fn expected(job: &JobModel, now: Timestamp) -> Expected {
    let cursors = job.cursors.clone();
    let (Schedule::Recurring(recurring), Some(clockwork)) = (&job.spec.settings.schedule, &job.clockwork)
    else {
        let fates = cursors.regular.map(|nominal| (nominal, Fate::Fired)).into_iter().collect();
        return Expected { fates, cursors: Cursors { regular: None, ..cursors }, next: None };
    };
    let mut walk = Walk {
        recurring,
        clockwork,
        now,
        cursors,
        skips_overlap: job.skips_overlap(),
        open: job.open,
        fired: job.occurrences.len(),
        looked_at: 0,
        fates: vec![],
    };
    walk.settle_missed();
    walk.regular();
    walk.replay();
    let next = if walk.is_spent() { None } else { walk.cursors.next() };
    Expected { fates: walk.fates, cursors: walk.cursors, next }
}

impl Cursors {
    pub(super) fn next(&self) -> Option<Timestamp> {
        let replay = (!self.replay.is_empty()).then_some(self.replay_due);
        self.regular.into_iter().chain(replay).min()
    }
}

/// One fire of a recurring schedule, retold.
struct Walk<'a> {
    recurring: &'a Recurring,
    clockwork: &'a Clockwork,
    now: Timestamp,
    cursors: Cursors,
    skips_overlap: bool,
    open: usize,
    fired: usize,
    looked_at: usize,
    fates: Vec<(Timestamp, Fate)>,
}

impl Walk<'_> {
    fn late_us(&self, nominal: Timestamp) -> i64 {
        self.now.as_micros() - nominal.as_micros()
    }

    fn settle_missed(&mut self) {
        let misfire = &self.recurring.misfire;
        let mut missed = vec![];
        while let Some(nominal) = self.cursors.regular
            && self.late_us(nominal) > misfire.grace_ms as i64 * 1_000
        {
            missed.push(nominal);
            self.cursors.regular = self.clockwork.next_after(nominal);
        }
        let has_room = self.cursors.replay.len() <= REPLAYS_WAITING_MAX;
        let run = match misfire.policy {
            _ if !has_room => 0,
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
        let skipped = Fate::Skipped(SkipReason::Misfire);
        self.fates.extend(missed.into_iter().map(|nominal| (nominal, skipped)));
        if !kept.is_empty() {
            if self.cursors.replay.is_empty() {
                self.cursors.replay_due = self.now;
            }
            self.cursors.replay.push(kept);
        }
    }

    fn regular(&mut self) {
        while let Some(nominal) = self.cursors.regular
            && nominal <= self.now
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
            self.cursors.replay_due = self.cursors.replay_due.max(self.now.shifted(-REPLAY_CATCH_UP_US));
        }
        while !self.cursors.replay.is_empty() && self.cursors.replay_due <= self.now && self.may_go_on() {
            let nominal = self.cursors.replay[0].remove(0);
            self.cursors.replay.retain(|list| !list.is_empty());
            self.cursors.replay_due = self.cursors.replay_due.shifted(spacing_us);
            self.decide(nominal);
        }
    }

    fn decide(&mut self, nominal: Timestamp) {
        self.looked_at += 1;
        let fate = if self.skips_overlap && self.open > 0 {
            Fate::Skipped(SkipReason::Overlap)
        } else if self.open >= OPEN_MAX {
            Fate::Skipped(SkipReason::Backlog)
        } else {
            self.open += 1;
            self.fired += 1;
            Fate::Fired
        };
        self.fates.push((nominal, fate));
    }

    fn may_go_on(&self) -> bool {
        self.looked_at < FIRES_PER_CALL_MAX && !self.is_spent()
    }

    fn is_spent(&self) -> bool {
        self.recurring.max_runs.is_some_and(|runs| self.fired >= runs as usize)
    }
}

fn twice(job: JobId, nominal: Timestamp, earlier: Fate) -> Violation {
    Violation {
        rule: "no nominal time is accounted for twice",
        detail: format!("{nominal} of job {job} was {earlier:?} before"),
    }
}

pub(super) fn answers_each(verb: &str, asked: usize, answered: usize) -> Verdict {
    rule!(asked == answered, "a verb answers once per item", "{verb} of {asked} answered {answered}");
    Ok(())
}
