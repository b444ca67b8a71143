//! The verbs that users apply to jobs. Each is a pure function from the current state of a job to the change
//! that the verb makes, or to the reason why it does not apply. A store reads the current state, calls the
//! function, and writes the change, in one transaction.
//!
//! A verb whose goal is already met changes nothing and succeeds, so that it can be repeated.

mod adjust;

pub use adjust::{Backfill, NextRun};

use crate::defects::{Defect, planted};
use crate::gates::{Gate, Gates};
use crate::ids::JobId;
use crate::job::{Job, JobSpec, JobStatus, StoredStatus};
use crate::occurrence::{Cancelled, Live, LiveState, OccurrenceFlags, Origin, RunInput, Settled, Terms};
use crate::ports::DeadLetter;
use crate::rank::rank;
use crate::schedule::{OverlapPolicy, Schedule, ScheduleState, SkipRange, scheduled};
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// A job with its schedule state and its open occurrences, ordered by occurrence number.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedJob {
    pub job: Job,
    pub schedule: Option<ScheduleState>,
    pub open: Vec<Live>,
}

/// The verbs for a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    Update(Box<Update>),
    /// Lets running executions finish and holds the rest.
    Pause,
    Resume,
    /// Adds an occurrence now; the schedule does not change.
    Trigger {
        /// Runs next to open occurrences, whatever the job's overlap policy.
        despite_overlap: bool,
        input: Option<Arc<RunInput>>,
        /// The nominal time of the occurrence; `None` for now.
        scheduled_time: Option<Timestamp>,
    },
    /// Skips the next occurrence of its schedule.
    SkipNext(NextRun),
    /// Runs the next occurrence of its schedule at another time.
    RunNextAt {
        next: NextRun,
        at: Timestamp,
    },
    /// Runs past occurrences of its schedule again.
    Backfill(Backfill),
    /// Adds an occurrence now, unless one was added after this number: repeating it adds nothing.
    TriggerAfter(u32),
    /// Redrives its latest dead-lettered occurrence.
    Retry,
    /// Stops firing, drops waiting occurrences, and asks running ones to stop.
    Cancel,
    /// Cancels and hides it; it is removed when no live row is left.
    Delete,
    /// Moves the next time of its schedule to where it is by other time zone data. Nothing changes if it is still right.
    Retime,
    /// Stores the same payload under another key. For users, nothing changes.
    Reseal(Box<Reseal>),
}

/// Another stored form of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reseal {
    /// The stored form that it replaces. A payload that was changed meanwhile stays.
    pub from: String,
    pub to: String,
}

/// A new description of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    pub spec: JobSpec,
    /// The version that the new description is based on; `None` to replace any version.
    pub expected_version: Option<u32>,
}

impl Verb {
    /// A run now with everything as the job describes it.
    pub const fn trigger(despite_overlap: bool) -> Self {
        Verb::Trigger { despite_overlap, input: None, scheduled_time: None }
    }
}

/// A run that a user asks for.
struct RequestedRun {
    input: Option<Arc<RunInput>>,
    scheduled_time: Timestamp,
}

/// The last occurrence number that a job has assigned.
pub fn last_number(job: &Job, schedule: Option<&ScheduleState>) -> u32 {
    schedule.map(|schedule| schedule.numbered).or(job.numbered).unwrap_or(1)
}

/// All changes of a verb, made in one commit. Empty by default.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    pub job: Option<Job>,
    pub schedule: ScheduleChange,
    pub live: Vec<LiveChange>,
    pub skipped: Vec<SkipRange>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub enum ScheduleChange {
    #[default]
    Keep,
    Put(Box<ScheduleState>),
    Remove,
}

#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a change holds a few of them and is written at once")]
pub enum LiveChange {
    Add(Live),
    Put(Live),
    /// Ends an occurrence that has not started.
    Close(Live, Settled),
}

/// Why a verb does not apply; nothing changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the job is {0:?}: it has no executions left to act on")]
    Finished(JobStatus),
    #[error("the job is cancelled")]
    Cancelled,
    #[error("the job is now at version {version}")]
    Stale { version: u32 },
    #[error("{0} cannot be changed after the job was submitted")]
    Fixed(&'static str),
    /// Other jobs depend on its single run.
    #[error("other jobs depend on it, and a recurring job cannot be depended on")]
    Awaited,
    #[error("an occurrence of the job is open")]
    Overlap,
    #[error("the number of waiting occurrences of the job has reached its limit")]
    QueueFull,
    #[error("the number of open occurrences of the job has reached its limit")]
    Backlog,
    /// Another occurrence was added since the job was read; the last one has this number.
    #[error("the job has got occurrence {0} meanwhile")]
    Numbered(u32),
    #[error("no occurrence of the job is dead")]
    NothingDead,
    /// The job runs once, or its schedule is over.
    #[error("the job has no schedule with further occurrences")]
    NothingNext,
    #[error("the next occurrence of the job is another one")]
    NotNext,
    /// The occurrence after the next one.
    #[error("the occurrence after the next one is due at {0}")]
    BeyondNext(Timestamp),
    #[error("the schedule has no past occurrence in that range")]
    NothingToBackfill,
    #[error("missed occurrences, or those of a backfill, are still to run")]
    ReplayUnderWay,
    /// To become unfinished again, the job would need its unique key, which another job now holds.
    #[error("job {0} now has the unique key")]
    KeyTaken(JobId),
    /// To be identified by its name, the job would need a name that identifies another job.
    #[error("the name identifies job {0}")]
    NameTaken(JobId),
}

impl LoadedJob {
    pub fn status(&self) -> JobStatus {
        self.job.mark.status(self.schedule.is_some(), !self.open.is_empty())
    }

    /// The changes of the verb. `dead` is the job's latest dead letter, for [`Verb::Retry`].
    pub fn apply(&self, verb: &Verb, dead: Option<&DeadLetter>, now: Timestamp) -> Result<Change, Refusal> {
        match verb {
            Verb::Update(update) => self.updated(update, now),
            Verb::Pause => self.paused(),
            Verb::Resume => self.resumed(now),
            Verb::Trigger { despite_overlap, input, scheduled_time } => {
                let run =
                    RequestedRun { input: input.clone(), scheduled_time: scheduled_time.unwrap_or(now) };
                self.triggered(*despite_overlap, run, now)
            }
            Verb::SkipNext(next) => self.skipped_next(*next, now),
            Verb::RunNextAt { next, at } => self.run_next_at(*next, *at, now),
            Verb::Backfill(backfill) => self.backfilled(*backfill, now),
            Verb::TriggerAfter(number) if *number != self.numbered() => {
                Err(Refusal::Numbered(self.numbered()))
            }
            Verb::TriggerAfter(_) => {
                self.triggered(false, RequestedRun { input: None, scheduled_time: now }, now)
            }
            Verb::Retry => {
                self.refuse_cancelled()?;
                self.redriven(dead.ok_or(Refusal::NothingDead)?, now)
            }
            Verb::Cancel => self.cancelled(now),
            Verb::Delete if self.job.mark == StoredStatus::Deleted => Ok(Change::default()),
            Verb::Delete => Ok(self.ended(StoredStatus::Deleted, now)),
            Verb::Retime => {
                let retimed = self.schedule.as_ref().and_then(|schedule| schedule.retimed(now));
                Ok(Change { schedule: retimed.into(), ..Change::default() })
            }
            Verb::Reseal(reseal) => Ok(self.resealed(reseal)),
        }
    }

    fn resealed(&self, reseal: &Reseal) -> Change {
        if self.job.spec.payload != reseal.from {
            return Change::default();
        }
        let spec = JobSpec { payload: reseal.to.clone(), ..self.job.spec.clone() };
        Change { job: Some(Job { spec, ..self.job.clone() }), ..Change::default() }
    }

    fn paused(&self) -> Result<Change, Refusal> {
        match self.status() {
            JobStatus::Active => {}
            JobStatus::Paused => return Ok(Change::default()),
            finished => return Err(Refusal::Finished(finished)),
        }
        let held = |live: &Live| live.gate_closed(Gate::Paused).ok().map(LiveChange::Put);
        Ok(Change {
            job: Some(Job { mark: StoredStatus::Paused, ..self.job.clone() }),
            schedule: self.schedule.as_ref().map(ScheduleState::held).into(),
            live: self.open.iter().filter_map(held).collect(),
            skipped: vec![],
        })
    }

    fn resumed(&self, now: Timestamp) -> Result<Change, Refusal> {
        match self.status() {
            JobStatus::Paused => {}
            JobStatus::Active => return Ok(Change::default()),
            finished => return Err(Refusal::Finished(finished)),
        }
        let mut job = Job { mark: StoredStatus::Active, ..self.job.clone() };
        let (schedule, skipped) = match &self.schedule {
            None => (ScheduleChange::Keep, None),
            Some(held) => match held.released(now) {
                (Some(state), skipped) => (ScheduleChange::Put(Box::new(state)), skipped),
                (None, skipped) => {
                    // The occurrences that became due during the pause are accounted for, whatever the clock
                    // says where a new schedule is set.
                    job = Job { updated_at: self.changed_at(now), ..spent(job, held) };
                    (ScheduleChange::Remove, skipped)
                }
            },
        };
        let released = |live: &Live| {
            let released = live.gate_opened(Gate::Paused, now).unwrap_or_else(|_| live.clone());
            // The next pause also holds occurrences that were exempt from this one.
            let released = Live { flags: OccurrenceFlags { exempt: false, ..released.flags }, ..released };
            (released != *live).then_some(LiveChange::Put(released))
        };
        Ok(Change {
            job: Some(job),
            schedule,
            live: self.open.iter().filter_map(released).collect(),
            skipped: skipped.into_iter().collect(),
        })
    }

    fn cancelled(&self, now: Timestamp) -> Result<Change, Refusal> {
        match self.status() {
            JobStatus::Active | JobStatus::Paused => Ok(self.ended(StoredStatus::Cancelled, now)),
            JobStatus::Cancelled => Ok(Change::default()),
            finished => Err(Refusal::Finished(finished)),
        }
    }

    fn ended(&self, mark: StoredStatus, now: Timestamp) -> Change {
        let job = Job { mark, updated_at: self.changed_at(now), ..self.job.clone() };
        let job = match &self.schedule {
            Some(schedule) => spent(job, schedule),
            None => job,
        };
        let live = self.stopped(Some(Terms { settings: &job.spec.settings, mark }), now);
        let schedule = match self.schedule {
            Some(_) => ScheduleChange::Remove,
            None => ScheduleChange::Keep,
        };
        Change { job: Some(job), schedule, live, skipped: vec![] }
    }

    /// Ends executions that have not started and asks running ones to stop. Without terms, the job gets no
    /// stored status.
    fn stopped(&self, terms: Option<Terms<'_>>, now: Timestamp) -> Vec<LiveChange> {
        let stopped = self.open.iter().filter_map(|live| match live.cancelled(terms, now).ok()? {
            Cancelled::Closed(settled) => Some(LiveChange::Close(live.clone(), settled)),
            Cancelled::Requested(asked) => Some(LiveChange::Put(asked)),
        });
        stopped.collect()
    }

    fn triggered(&self, despite_overlap: bool, run: RequestedRun, now: Timestamp) -> Result<Change, Refusal> {
        self.refuse_cancelled()?;
        let settings = &self.job.spec.settings;
        let overlap = settings.overlap();
        let behind = self.open.iter().filter(|live| live.is_closed_by(Gate::Overlap)).count();
        let is_beside = despite_overlap || self.open.is_empty();
        let policy = if is_beside { OverlapPolicy::Allow } else { overlap.policy };
        let mut change = Change::default();
        let is_gated = match policy {
            OverlapPolicy::Skip => return Err(Refusal::Overlap),
            OverlapPolicy::Queue if behind >= overlap.limit as usize => return Err(Refusal::QueueFull),
            OverlapPolicy::Replace => {
                change.live = self.stopped(None, now);
                self.open.iter().any(Live::is_running)
            }
            _ if self.open.len() >= overlap.max_open as usize => return Err(Refusal::Backlog),
            OverlapPolicy::Allow => false,
            OverlapPolicy::Queue => true,
        };
        let number = self.numbered() + 1;
        let live = self.occurrence(number, run.scheduled_time, Origin::Trigger, now);
        let expires_at = settings.expires_at(now).filter(|at| *at > now);
        let exempt = self.status() == JobStatus::Paused;
        let flags = OccurrenceFlags { exempt, ..live.flags };
        let live = Live { expires_at, flags, input: run.input, ..live };
        self.add(&mut change, if is_gated { gated(live) } else { live });
        self.number(&mut change, number);
        Ok(change)
    }

    /// Adds another attempt of a dead-lettered occurrence, with all its retries. It does not expire, because
    /// a user has asked for it.
    pub fn redriven(&self, dead: &DeadLetter, now: Timestamp) -> Result<Change, Refusal> {
        self.refuse_cancelled()?;
        let overlap = self.job.spec.settings.overlap();
        if self.open.len() >= overlap.max_open as usize {
            return Err(Refusal::Backlog);
        }
        let number = dead.occurrence.number;
        let live = self.occurrence(number, dead.scheduled_time, dead.origin, now);
        let flags = OccurrenceFlags { noted: dead.noted, ..live.flags };
        let input = RunInput::redriven(dead.input.as_ref());
        let mut live = Live { attempt: dead.attempts + 1, epoch: dead.epoch, flags, input, ..live };
        if !self.open.is_empty() && overlap.policy != OverlapPolicy::Allow {
            live = gated(live);
        }
        if self.status() == JobStatus::Paused
            && let Ok(held) = live.gate_closed(Gate::Paused)
        {
            live = held;
        }
        let mut change = Change::default();
        self.add(&mut change, live);
        Ok(change)
    }

    fn occurrence(&self, number: u32, scheduled_time: Timestamp, origin: Origin, now: Timestamp) -> Live {
        let Job { id, version, ref spec, .. } = self.job;
        let id = id.occurrence(number);
        let live = Live::fired(id, scheduled_time, origin, version, spec.priority, now, Duration::ZERO);
        let flags = spec.settings.overlap().flags();
        // A one-time run is never skipped, so it may have to wait for this one. So may a replay.
        let may_wait = |schedule: &ScheduleState| schedule.is_one_shot() || schedule.replay.is_some();
        let followed = flags.followed || self.schedule.as_ref().is_some_and(may_wait);
        Live { flags: OccurrenceFlags { followed, awaited: self.is_awaited(), ..flags }, ..live }
    }

    /// Whether other jobs may depend on the outcome of the job.
    fn is_awaited(&self) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.awaited)
            || self.open.iter().any(|live| live.flags.awaited)
    }

    /// Adds an occurrence. Flags the occurrences that it waits for as followed, and makes a finished job
    /// active again.
    fn add(&self, change: &mut Change, live: Live) {
        if live.is_closed_by(Gate::Overlap) && !live.flags.followed {
            let open = self.open.iter().filter(|open| !open.flags.followed);
            change.live.extend(open.map(|open| {
                LiveChange::Put(Live {
                    flags: OccurrenceFlags { followed: true, ..open.flags },
                    ..open.clone()
                })
            }));
        }
        let is_behind = |live: &Live| live.is_closed_by(Gate::Overlap);
        let followed = live.flags.followed || is_behind(&live) || self.open.iter().any(is_behind);
        change.live.push(LiveChange::Add(Live { flags: OccurrenceFlags { followed, ..live.flags }, ..live }));
        if self.job.mark != self.mark_again() {
            change.job = Some(Job { mark: self.mark_again(), ..self.job.clone() });
        }
    }

    /// The stored status once the job has something to do again: a failure or a pause ends when all
    /// occurrences it applied to have ended.
    fn mark_again(&self) -> StoredStatus {
        match self.status() {
            JobStatus::Failed | JobStatus::Completed => StoredStatus::Active,
            _ => self.job.mark,
        }
    }

    /// Stores an occurrence number that was assigned outside the schedule.
    fn number(&self, change: &mut Change, numbered: u32) {
        match &self.schedule {
            Some(schedule) => {
                change.schedule = Some(ScheduleState { numbered, ..schedule.clone() }).into();
            }
            None => {
                let job = change.job.take().unwrap_or_else(|| self.job.clone());
                change.job = Some(Job { numbered: Some(numbered), ..job });
            }
        }
    }

    /// The last assigned occurrence number.
    fn numbered(&self) -> u32 {
        last_number(&self.job, self.schedule.as_ref())
    }

    fn refuse_cancelled(&self) -> Result<(), Refusal> {
        match self.status() {
            JobStatus::Cancelled => Err(Refusal::Cancelled),
            _ => Ok(()),
        }
    }

    fn updated(&self, update: &Update, now: Timestamp) -> Result<Change, Refusal> {
        let version = self.job.version;
        if update.expected_version.is_some_and(|expected| expected != version) {
            return Err(Refusal::Stale { version });
        }
        self.refuse_cancelled()?;
        let (old, new) = (&self.job.spec, &update.spec);
        if let Some(field) = fixed(old, new) {
            return Err(Refusal::Fixed(field));
        }
        if old == new {
            return Ok(Change::default());
        }
        if self.is_awaited() && !new.settings.schedule.is_one_shot() {
            return Err(Refusal::Awaited);
        }
        let updated_at = self.changed_at(now);
        let mut job = Job { version: version + 1, updated_at, spec: new.clone(), ..self.job.clone() };
        let mut live: Vec<Live> = self.open.iter().map(|live| live.under(&job)).collect();
        let mut schedule = self.schedule.as_ref().map(|schedule| schedule.under(&job, now));
        let has_fired = self.schedule.is_none() && old.settings.schedule.is_one_shot();
        if old.settings.schedule != new.settings.schedule && !(has_fired && postponed(&mut live, &job, now)) {
            let active = Job { mark: self.mark_again(), ..job.clone() };
            schedule = self.rescheduled(&active, now);
            if let Some(schedule) = &schedule {
                job = active;
                live.iter_mut().for_each(|live| live.flags.followed |= schedule.is_one_shot());
            }
        }
        job = match (&schedule, &self.schedule) {
            // The schedule now has the counts; older ones in the job would be wrong when it ends.
            (Some(_), _) => Job { numbered: None, fired: 0, ..job },
            (None, Some(over)) => spent(job, over),
            (None, None) => job,
        };
        let changed = live.into_iter().zip(&self.open).filter(|(live, open)| live != *open);
        let replays = schedule.as_ref().is_some_and(|schedule| schedule.replay.is_some());
        let unreplayed = self.schedule.as_ref().filter(|_| !replays).map(ScheduleState::unreplayed);
        Ok(Change {
            job: Some(job),
            schedule: match (schedule, &self.schedule) {
                (None, None) => ScheduleChange::Keep,
                (None, Some(_)) => ScheduleChange::Remove,
                (Some(state), _) => ScheduleChange::Put(Box::new(state)),
            },
            live: changed.map(|(live, _)| LiveChange::Put(live)).collect(),
            skipped: unreplayed.unwrap_or_default(),
        })
    }

    /// The time of a change. This node's clock may be behind that of the node that last changed the job or
    /// fired its schedule, or the call may have been delayed: it is never before that change, nor before the
    /// last occurrence that is accounted for, so that no later schedule repeats it.
    fn changed_at(&self, now: Timestamp) -> Timestamp {
        let accounted = self.schedule.as_ref().and_then(ScheduleState::last_accounted);
        now.max(self.job.updated_at).max(accounted.unwrap_or(now))
    }

    /// The state of a changed schedule: with the same recurrence it continues, with another one it starts
    /// now. Previous runs still count.
    fn rescheduled(&self, job: &Job, now: Timestamp) -> Option<ScheduleState> {
        let state = match (&self.schedule, &job.spec.settings.schedule) {
            (Some(old), Schedule::Recurring(new))
                if old.schedule.has_recurrence(&new.recurrence) && !planted(Defect::RestartUnchanged) =>
            {
                old.under(job, now).continued(new)?
            }
            _ => self.restarted(job, now)?,
        };
        let is_spent = match &state.schedule {
            Schedule::Recurring(recurring) => recurring.max_runs.is_some_and(|max| state.fired >= max),
            _ => false,
        };
        let due_at = state.due_at.filter(|_| job.mark != StoredStatus::Paused);
        (!is_spent).then_some(ScheduleState { due_at, ..state })
    }

    fn restarted(&self, job: &Job, now: Timestamp) -> Option<ScheduleState> {
        let (version, fired) = match &self.schedule {
            Some(old) => (old.version + 1, old.fired),
            None => (1, self.job.fired),
        };
        let state = scheduled(job, self.changed_at(now))?;
        let (numbered, awaited) = (self.numbered(), self.is_awaited());
        Some(ScheduleState { version, fired, numbered, awaited, ..state })
    }
}

/// The job with the counts of a schedule that has ended.
fn spent(job: Job, over: &ScheduleState) -> Job {
    Job { numbered: Some(over.numbered), fired: over.fired, ..job }
}

impl From<Option<ScheduleState>> for ScheduleChange {
    fn from(state: Option<ScheduleState>) -> Self {
        state.map_or(ScheduleChange::Keep, |state| ScheduleChange::Put(Box::new(state)))
    }
}

impl ScheduleState {
    fn is_one_shot(&self) -> bool {
        self.schedule.is_one_shot()
    }

    /// The same times with a new description of the job. Changed limits may have room for a waiting replay.
    fn under(&self, job: &Job, now: Timestamp) -> ScheduleState {
        let spec = &job.spec;
        let has_other_limits = self.overlap != spec.settings.overlap();
        let state = if has_other_limits && self.sleeps(now) { self.tried(now) } else { self.clone() };
        ScheduleState {
            version: self.version + 1,
            job_version: job.version,
            queue: spec.queue.clone(),
            job_type: spec.job_type.clone(),
            priority: spec.priority,
            overlap: spec.settings.overlap(),
            expiry: spec.settings.expiry,
            ..state
        }
    }
}

impl Live {
    /// The same occurrence with a new description of its job. Its rank changes at once, and its expiry unless
    /// it has started; everything else applies from the next claim on.
    fn under(&self, job: &Job) -> Live {
        let spec = &job.spec;
        let followed = self.flags.followed || spec.settings.overlap().flags().followed;
        // A running execution has a rank, too: it may return to the queue.
        let rank = if self.priority == spec.priority {
            self.rank
        } else {
            rank(self.available_at, spec.priority, Duration::ZERO)
        };
        let flags = OccurrenceFlags { followed, ..self.flags };
        let live = Live { priority: spec.priority, rank, flags, ..self.clone() };
        if self.is_running() {
            return live;
        }
        // A redriven or triggered occurrence has its own expiry, or none.
        let expires_at = match self.origin {
            Origin::Schedule if self.charged == 0 && self.attempt == 1 => {
                spec.settings.expires_at(self.scheduled_time)
            }
            _ => self.expires_at,
        };
        Live { expires_at, ..live }
    }
}

/// Moves the open, unstarted run of a one-shot job to the job's new time. Returns whether there was one.
fn postponed(open: &mut [Live], job: &Job, now: Timestamp) -> bool {
    let settings = &job.spec.settings;
    let at = match settings.schedule {
        Schedule::Immediate => now,
        Schedule::OneTime { at } => at,
        Schedule::Recurring(_) => return false,
    };
    let is_unstarted =
        |live: &&mut Live| live.attempt == 1 && live.origin == Origin::Schedule && !live.is_running();
    let Some(live) = open.iter_mut().find(is_unstarted) else { return false };
    live.scheduled_time = at;
    live.available_at = at.max(now);
    live.expires_at = settings.expires_at(at);
    let moved = if at > now { live.gate_closed(Gate::Time) } else { live.gate_opened(Gate::Time, now) };
    if let Ok(moved) = moved {
        *live = moved;
    }
    true
}

/// The first field that differs although it is immutable.
fn fixed(old: &JobSpec, new: &JobSpec) -> Option<&'static str> {
    let (before, after) = (&old.settings, &new.settings);
    [
        ("owner_id", old.owner == new.owner),
        ("name", !before.by_name || (after.by_name && old.name == new.name)),
        ("idempotency_key", before.idempotency_key == after.idempotency_key),
        ("unique_key", before.unique_key == after.unique_key),
        ("depends_on", before.depends_on == after.depends_on),
    ]
    .into_iter()
    .find_map(|(field, is_same)| (!is_same).then_some(field))
}

fn gated(live: Live) -> Live {
    Live { state: LiveState::Waiting(Gates::only(Gate::Overlap)), ..live }
}
