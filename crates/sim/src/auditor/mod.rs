//! The auditor: an independent model of what must be true. It observes every store call as applied, every
//! physical run, and every response to a client. The first broken rule stops the run.
//!
//! It recomputes everything by plain arithmetic and must not call the rules in core: a mistake there has to
//! show here.

mod announced;
mod attempt_rules;
mod attempts;
mod clockwork;
mod control;
mod dependencies;
mod depth;
mod finale;
mod firing;
mod followed;
mod keys;
mod limiters;
mod look;
mod maintenance;
mod notes;
mod orders;
mod overlap;
mod polls;
mod readmission;
mod redrive;
mod requests;
mod runs;
mod sessions;
mod shares;
mod update;

pub use finale::{JobContents, StoreContents};
pub use limiters::Limiter;
pub use notes::Saved;
pub use runs::{RESUME_GRACE, RunEnd};

use clockwork::Clockwork;
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::{Expiry, JobSpec, JobStatus, StoredStatus};
use punctual_core::lifecycle::Status;
use punctual_core::notes::Checkpoint;
use punctual_core::occurrence::Origin;
use punctual_core::ports::{Lane, LeaseRef, RequestKey, SessionOpening};
use punctual_core::queue::QueueSettings;
use punctual_core::recurrence::jitter;
use punctual_core::schedule::{Schedule, SkipReason};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use shares::ClaimPlace;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A broken rule, with the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditViolation {
    pub rule: &'static str,
    pub detail: String,
}

pub type AuditResult = Result<(), AuditViolation>;

/// Requires a condition: the rule as a sentence, then the numbers as in `format!`.
macro_rules! rule {
    ($condition:expr, $rule:literal, $($detail:tt)+) => {
        if !$condition {
            return Err($crate::auditor::AuditViolation { rule: $rule, detail: format!($($detail)+) });
        }
    };
}
use rule;

/// How long nodes may take after the last fault to be up and to have read what is due. An earlier call may
/// stall for 12 seconds on its way and for 12 more on its way back, and its loop waits for it.
const SETTLING: Duration = Duration::from_secs(30);
/// The maximum lateness without faults: a few sequential round trips to the store.
const LATENESS_MAX: Duration = Duration::from_millis(50);
/// The same if a transaction takes several round trips itself and waits for others.
const LATENESS_OF_TRANSACTIONS_MAX: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct Auditor {
    jobs: BTreeMap<JobId, JobModel>,
    sessions: BTreeMap<SessionId, SessionModel>,
    /// Every lease ever granted, and its session.
    grants: BTreeMap<(ExecutionId, Epoch), SessionId>,
    /// Claimable occurrences.
    queued: BTreeSet<OccurrenceId>,
    /// Leased occurrences.
    running: BTreeSet<OccurrenceId>,
    nodes: BTreeMap<usize, runs::NodeModel>,
    runs: BTreeMap<(ExecutionId, Epoch), runs::RunModel>,
    /// Runs that have not ended, by occurrence.
    active: BTreeMap<OccurrenceId, BTreeSet<(ExecutionId, Epoch)>>,
    /// Counts the verbs applied: all grants of one poll sequence number belong to one verb.
    call: u64,
    /// The true time of the current verb or event.
    now: Timestamp,
    /// The time that the current verb uses.
    at: Timestamp,
    /// The effects of the current verb.
    fresh: announced::ExpectedEffects,
    /// Transactions overlap, as on a database server: each sees everything that was committed when it read, and
    /// claims skip rows that others have locked.
    is_overlapping: bool,
    /// The current transaction has seen everything that was committed up to this time.
    seen_until: Option<Timestamp>,
    paused_queues: BTreeSet<String>,
    /// When queues were last paused.
    paused_at: BTreeMap<String, Timestamp>,
    /// When queues were last resumed.
    resumed_queues: BTreeMap<String, Timestamp>,
    /// The settings of all queues that have any.
    queue_settings: BTreeMap<String, QueueSettings>,
    limiters: limiters::AuditedLimiters,
    shares: shares::SharesModel,
    /// The queues that were found full, with their depth and their limit.
    refusals: BTreeSet<(String, u64, u64)>,
    requests: BTreeMap<RequestKey, requests::RequestModel>,
    /// Since when there have been no faults.
    calm_since: Option<Timestamp>,
    /// The whole run is without faults.
    is_peaceful: bool,
    /// The unanswered poll of each session.
    asking: BTreeMap<SessionId, orders::Asking>,
    followed: followed::Followed,
    /// Skipped ranges that ended before this time may have been deleted.
    skips_kept_since: Option<Timestamp>,
    history_kept: Duration,
    polls: BTreeMap<(SessionId, u64), polls::PollModel>,
    /// Leases that the worker does not know yet, with the time of the grant.
    undelivered: BTreeMap<LeaseRef, Timestamp>,
    /// Leases that workers know and have neither started nor returned, with the time at which they arrived.
    held: BTreeMap<LeaseRef, Timestamp>,
    /// Leases that workers have returned.
    returned: BTreeMap<LeaseRef, polls::Return>,
    /// The notes of open and dead occurrences.
    notes: BTreeMap<OccurrenceId, notes::NotesModel>,
    /// The last checkpoint that was accepted under each lease.
    saved: BTreeMap<(ExecutionId, Epoch), Checkpoint>,
    /// The checkpoints delivered with leases.
    handed_over: BTreeMap<(ExecutionId, Epoch), Checkpoint>,
    coverage: Coverage,
}

/// How often each interesting event happened.
pub type Coverage = BTreeMap<&'static str, u64>;

#[derive(Debug)]
struct JobModel {
    /// All its descriptions; the last one is current.
    versions: Vec<JobSpec>,
    /// The time of the verb that stored it, last updated it, or ended it or its schedule.
    changed_by_hand_at: Timestamp,
    /// The true time of its submit.
    stored_at: Timestamp,
    mark: StoredStatus,
    /// The last occurrence number assigned.
    numbered: u32,
    /// How often its latest schedule has fired.
    runs: u32,
    /// Its remaining fires.
    schedule: Option<ScheduleModel>,
    /// All its schedules; the last one is current.
    lives: Vec<Life>,
    occurrences: BTreeMap<u32, Occurrence>,
    /// The numbers of its open occurrences.
    open: BTreeSet<u32>,
    /// Unfinished jobs that it depends on.
    waits_for: BTreeSet<JobId>,
    /// Nothing of it is left in the store.
    is_purged: bool,
}

#[derive(Debug, Clone)]
struct ScheduleModel {
    version: u32,
    cursors: Cursors,
    /// Held by a pause.
    is_held: bool,
    /// Occurrences that count against `max_runs`.
    fired: u32,
    /// Other jobs may depend on how it ends.
    is_awaited: bool,
    /// The true time of its last change.
    changed_at: Timestamp,
}

/// One schedule of a job, from the verb that set it to its end or to the verb that replaced it.
#[derive(Debug)]
struct Life {
    schedule: Schedule,
    clockwork: Option<Clockwork>,
    /// Its first nominal time.
    first: Timestamp,
    /// The outcome of each past nominal time.
    fates: BTreeMap<Timestamp, OccurrenceFate>,
    /// Missed times that were still to be replayed when it ended.
    undone: Vec<Timestamp>,
    /// A verb ended it, or the end of a job that it depends on.
    is_cut_short: bool,
    /// Occurrences that counted against `max_runs` at its end.
    fired: u32,
}

/// The part of a schedule that is neither fired nor skipped yet.
#[derive(Debug, Clone)]
struct Cursors {
    /// The next nominal time, from which all later ones follow.
    regular: Option<Timestamp>,
    /// Missed times that will be replayed: a list for each outage.
    replay: Vec<Vec<Timestamp>>,
    /// When the first of those runs, or is retried while it waits for room.
    replay_due: Timestamp,
    /// The first of those is due and waits for room.
    waits: bool,
}

impl Cursors {
    /// When the first of those runs if it may run at this time: never before its nominal time.
    fn replay_at(&self, at: Timestamp) -> Timestamp {
        self.replay.first().and_then(|list| list.first()).map_or(at, |nominal| at.max(*nominal))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OccurrenceFate {
    Fired,
    Skipped(SkipReason),
}

#[derive(Debug)]
struct Occurrence {
    origin: Origin,
    scheduled_time: Timestamp,
    available_at: Timestamp,
    expires_at: Option<Timestamp>,
    attempt: u32,
    /// The first attempt since it was fired or redriven.
    first_of_drive: u32,
    charged: u32,
    epoch: Epoch,
    state: OccurrenceState,
    place: ClaimPlace,
    /// The limiter of its key, if its queue limited keys when it became ready.
    limiter: Option<Limiter>,
    /// The limiter on whose wait list it is.
    wait_list: Option<Limiter>,
    /// The version of the job that it was fired with or last ran with.
    job_version: u32,
    /// May run concurrently with others of its job.
    is_beside: bool,
    /// It was missed and is replayed.
    is_replayed: bool,
    /// Triggered while its job was paused.
    is_exempt: bool,
    /// Other jobs may depend on how it ends.
    is_awaited: bool,
    /// The true time of its last change.
    changed_at: Timestamp,
    finished: Vec<FinishedAttempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OccurrenceState {
    Waiting(Gates),
    Queued,
    Running { session: SessionId, claimed_at: Timestamp, is_asked_to_stop: bool },
    Closed { dead: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FinishedAttempt {
    epoch: Epoch,
    session: Option<SessionId>,
    status: Status,
    reason: Option<SkipReason>,
    job_version: u32,
    completed_at: Timestamp,
    /// Deleted by retention.
    is_forgotten: bool,
}

#[derive(Debug)]
struct SessionModel {
    opening: SessionOpening,
    state: SessionState,
    /// The mode that operators have set, and the true time of that.
    mode: SessionMode,
    mode_since: Timestamp,
    beat: u64,
    /// The true time at which the counter last changed.
    beaten_at: Timestamp,
    turn: u64,
    /// The verb in which the last poll sequence number was used.
    turn_call: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionState {
    Live,
    Lost,
    Closed,
}

impl Auditor {
    /// Begins the next verb or event.
    pub fn step(&mut self, now: Timestamp) -> &mut Self {
        self.now = now;
        self.call += 1;
        self
    }

    pub fn count(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// A client got the response that its job is stored.
    pub fn acknowledged(&mut self, job: JobId) -> AuditResult {
        rule!(self.jobs.contains_key(&job), "an acknowledged job exists", "job {job} was never stored");
        self.count("submits acknowledged");
        Ok(())
    }

    /// Whether every job ever submitted has finished.
    pub fn is_drained(&self) -> bool {
        self.jobs
            .values()
            .all(|job| job.is_finished() && (job.mark != StoredStatus::Deleted || job.is_purged))
    }

    /// The remaining work, for a message.
    pub fn left_over(&self) -> String {
        let mut text = String::new();
        for (id, job) in &self.jobs {
            if let Some(schedule) = &job.schedule {
                text += &format!("job {id} {:?} has still to fire {schedule:?}; ", job.mark);
            }
            if job.is_finished() && job.mark == StoredStatus::Deleted && !job.is_purged {
                text += &format!("job {id} is deleted and still exists; ");
            }
            for number in &job.open {
                let occurrence = &job.occurrences[number];
                text += &format!(
                    "{id}.{number}.{} in {} {} is {:?}; ",
                    occurrence.attempt,
                    job.spec().queue,
                    job.spec().job_type,
                    occurrence.state
                );
            }
        }
        text
    }

    /// The store is on a database server.
    pub fn transactions_overlap(&mut self) {
        self.is_overlapping = true;
    }

    /// The next writes are of a transaction that began at this time.
    pub fn seen_since(&mut self, began: Timestamp) -> &mut Self {
        self.seen_until = Some(began);
        self
    }

    /// From now on nothing fails, so everything is on time once the nodes have settled.
    pub fn calm_begins(&mut self) {
        self.calm_since.get_or_insert(self.now);
    }

    /// The whole run is without faults.
    pub fn peace_begins(&mut self) {
        self.is_peaceful = true;
        self.calm_begins();
    }

    /// Checked at the end of a run without faults.
    pub fn nothing_was_lost(&self) -> AuditResult {
        for what in [
            "executions lost",
            "sessions lost",
            "stale reports refused",
            "stale notes refused",
            "submits with unknown outcome",
        ] {
            let count = self.coverage.get(what).copied().unwrap_or(0);
            rule!(count == 0, "without faults nothing is lost or refused", "{what}: {count}");
        }
        Ok(())
    }

    /// Something due happens now: without faults it must not be late.
    fn on_time(&mut self, what: &str, due: Timestamp) -> AuditResult {
        let Some(settled) = self.calm_since.map(|since| since.plus(SETTLING)) else { return Ok(()) };
        if due > settled {
            let late = self.now.since(due);
            let most = if self.is_overlapping { LATENESS_OF_TRANSACTIONS_MAX } else { LATENESS_MAX };
            rule!(late <= most, "without faults everything is on time", "{what} is {late:?} late");
            self.count("fires and gates on time");
        }
        Ok(())
    }

    /// A verb begins. Nodes use the store's clock and are never ahead of it, or something could fire early.
    fn not_ahead(&mut self, now: Timestamp) -> AuditResult {
        self.at = now;
        rule!(
            now <= self.now,
            "no node's time is ahead of the store's",
            "a verb of {now} was applied at {}",
            self.now
        );
        Ok(())
    }

    fn job(&self, id: JobId) -> Result<&JobModel, AuditViolation> {
        self.jobs.get(&id).ok_or_else(|| AuditViolation {
            rule: "only submitted jobs do anything",
            detail: format!("job {id} is not known"),
        })
    }

    fn job_mut(&mut self, id: JobId) -> Result<&mut JobModel, AuditViolation> {
        self.jobs.get_mut(&id).ok_or_else(|| AuditViolation {
            rule: "only submitted jobs do anything",
            detail: format!("job {id} is not known"),
        })
    }

    fn occurrence(&self, id: OccurrenceId) -> Result<&Occurrence, AuditViolation> {
        let occurrence = self.jobs.get(&id.job).and_then(|job| job.occurrences.get(&id.number));
        occurrence.ok_or_else(|| never_fired(id))
    }

    fn occurrence_mut(&mut self, id: OccurrenceId) -> Result<(&mut Occurrence, &JobSpec), AuditViolation> {
        let job = self.jobs.get_mut(&id.job).ok_or_else(|| never_fired(id))?;
        let occurrence = job.occurrences.get_mut(&id.number).ok_or_else(|| never_fired(id))?;
        Ok((occurrence, job.versions.last().expect("a job has a description")))
    }

    fn session_mut(&mut self, id: SessionId) -> Result<&mut SessionModel, AuditViolation> {
        self.sessions.get_mut(&id).ok_or_else(|| AuditViolation {
            rule: "only opened sessions do anything",
            detail: format!("session {id} was never opened"),
        })
    }

    fn lane(&self, job: JobId) -> Result<Lane, AuditViolation> {
        let spec = self.job(job)?.spec();
        Ok(Lane::new(spec.queue.as_str(), spec.job_type.as_str()))
    }
}

fn never_fired(id: OccurrenceId) -> AuditViolation {
    AuditViolation {
        rule: "only fired occurrences do anything",
        detail: format!("occurrence {id} was never fired"),
    }
}

impl JobModel {
    fn spec(&self) -> &JobSpec {
        self.versions.last().expect("a job has a description")
    }

    fn version(&self) -> u32 {
        self.versions.len() as u32
    }

    fn is_one_shot(&self) -> bool {
        !matches!(self.spec().settings.schedule, Schedule::Recurring(_))
    }

    /// Whether none of it is open or still to come.
    fn is_finished(&self) -> bool {
        self.schedule.is_none() && self.open.is_empty()
    }

    fn status(&self) -> JobStatus {
        match (self.mark, self.is_finished()) {
            (StoredStatus::Active, false) => JobStatus::Active,
            (StoredStatus::Paused, false) => JobStatus::Paused,
            (StoredStatus::Active | StoredStatus::Paused, true) => JobStatus::Completed,
            (StoredStatus::Failed, _) => JobStatus::Failed,
            (StoredStatus::Cancelled | StoredStatus::Deleted, _) => JobStatus::Cancelled,
        }
    }

    /// Whether other jobs may depend on how it ends.
    fn is_awaited(&self) -> bool {
        self.schedule.as_ref().is_some_and(|schedule| schedule.is_awaited)
            || self.open.iter().any(|number| self.occurrences[number].is_awaited)
    }

    /// When its schedule is due.
    fn due_at(&self, id: JobId) -> Option<Timestamp> {
        let schedule = self.schedule.as_ref().filter(|schedule| !schedule.is_held)?;
        let regular =
            schedule.cursors.regular.map(|nominal| start_of(id, &self.spec().settings.schedule, nominal));
        let replay = (!schedule.cursors.replay.is_empty()).then_some(schedule.cursors.replay_due);
        regular.into_iter().chain(replay).min()
    }

    fn expires_at(&self, scheduled_time: Timestamp) -> Option<Timestamp> {
        self.spec().settings.expiry.map(|expiry| match expiry {
            Expiry::At(at) => at,
            Expiry::AfterMs(ms) => scheduled_time.shifted(ms as i64 * 1_000),
        })
    }

    fn letters(&self) -> impl Iterator<Item = u32> {
        let dead = |occurrence: &Occurrence| occurrence.state == OccurrenceState::Closed { dead: true };
        self.occurrences.iter().filter(move |(_, one)| dead(one)).map(|(number, _)| *number)
    }
}

/// When the occurrence at a nominal time may start: delayed by the job's jitter.
fn start_of(id: JobId, schedule: &Schedule, nominal: Timestamp) -> Timestamp {
    let Schedule::Recurring(recurring) = schedule else { return nominal };
    let bytes = u128::from_be_bytes(*id.as_bytes());
    let hash = (bytes >> 64) as u64 ^ bytes as u64;
    nominal.plus(jitter(hash, nominal, Duration::from_millis(recurring.jitter_ms)))
}

impl Occurrence {
    fn is_closed(&self) -> bool {
        matches!(self.state, OccurrenceState::Closed { .. })
    }

    fn is_running(&self) -> bool {
        matches!(self.state, OccurrenceState::Running { .. })
    }

    fn is_behind(&self, gate: Gate) -> bool {
        matches!(self.state, OccurrenceState::Waiting(gates) if gates.contains(gate))
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        !self.is_running() && !self.is_closed() && self.expires_at.is_some_and(|at| at <= now)
    }

    /// The next time at which it changes.
    fn look_at(&self) -> Option<Timestamp> {
        let opens_at = self.is_behind(Gate::Time).then_some(self.available_at);
        let expires_at = self.expires_at.filter(|_| !self.is_running() && !self.is_closed());
        opens_at.into_iter().chain(expires_at).min()
    }
}
