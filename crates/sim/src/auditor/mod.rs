//! The auditor: a small model of its own of what must be true, told of every store call as it was applied, of
//! every physical run, and of every answer that a client got. The first rule that is broken stops the run.
//!
//! It recomputes by plain arithmetic and must not ask the rules in core what they would do: a mistake there
//! has to show here.

mod attempts;
mod clockwork;
mod finale;
mod firing;
mod polls;
mod runs;
mod sessions;

pub use finale::{Contents, JobContents};
pub use runs::{RESUME_GRACE, RunEnd};

use clockwork::Clockwork;
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::job::JobSpec;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{Lane, LeaseRef, SessionOpening};
use punctual_core::schedule::{OverlapPolicy, Schedule, SkipReason};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A broken rule, with the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub detail: String,
}

pub type Verdict = Result<(), Violation>;

/// Requires a condition: the rule as a sentence, then the numbers as in `format!`.
macro_rules! rule {
    ($condition:expr, $rule:literal, $($detail:tt)+) => {
        if !$condition {
            return Err($crate::auditor::Violation { rule: $rule, detail: format!($($detail)+) });
        }
    };
}
use rule;

/// How long nodes may take after the last fault to be up and to have read what is due. A call that was made before
/// may stall for 12 seconds on its way and for 12 more on its way back, and its loop waits for it.
const SETTLING: Duration = Duration::from_secs(30);
/// How late something may happen in calm weather: a few trips to the store and back, one after the other.
const LATENESS_MAX: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct Auditor {
    jobs: BTreeMap<JobId, JobModel>,
    sessions: BTreeMap<SessionId, SessionModel>,
    /// Every lease ever granted and who got it.
    grants: BTreeMap<(ExecutionId, Epoch), SessionId>,
    /// What is claimable now.
    queued: BTreeSet<OccurrenceId>,
    /// What is leased now.
    running: BTreeSet<OccurrenceId>,
    nodes: BTreeMap<usize, runs::NodeModel>,
    runs: BTreeMap<(ExecutionId, Epoch), runs::Run>,
    /// Runs that have not ended, by occurrence.
    active: BTreeMap<OccurrenceId, BTreeSet<(ExecutionId, Epoch)>>,
    /// Counts the verbs applied: grants of one turn belong to one of them.
    call: u64,
    /// The true time of the verb or event in hand.
    now: Timestamp,
    /// Since when nothing fails any more.
    calm_since: Option<Timestamp>,
    polls: BTreeMap<(SessionId, u64), polls::PollModel>,
    /// Leases of which the worker has not heard, with the time at which they were granted.
    untold: BTreeMap<LeaseRef, Timestamp>,
    coverage: Coverage,
}

/// How often the interesting things happened.
pub type Coverage = BTreeMap<&'static str, u64>;

#[derive(Debug)]
struct JobModel {
    spec: JobSpec,
    /// The true time at which it was stored.
    created_at: Timestamp,
    version: u32,
    /// What a recurring schedule names.
    clockwork: Option<Clockwork>,
    /// Its first nominal time.
    first: Option<Timestamp>,
    /// When it is due next.
    next: Option<Timestamp>,
    cursors: Cursors,
    /// What became of each nominal time that is past.
    fates: BTreeMap<Timestamp, Fate>,
    occurrences: BTreeMap<u32, Occurrence>,
    open: usize,
    /// A one-shot job whose occurrence failed for good.
    failed: bool,
}

/// What of a schedule is neither fired nor skipped yet.
#[derive(Debug, Clone)]
struct Cursors {
    /// The next nominal time, from which all later ones follow.
    regular: Option<Timestamp>,
    /// Missed ones that will run all the same: a list for each outage.
    replay: Vec<Vec<Timestamp>>,
    /// When the first of those runs.
    replay_due: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fired,
    Skipped(SkipReason),
}

#[derive(Debug)]
struct Occurrence {
    scheduled_time: Timestamp,
    attempt: u32,
    charged: u32,
    epoch: Epoch,
    state: OccurrenceState,
    place: Place,
    finished: Vec<FinishedAttempt>,
}

/// Where an execution stands in the queue, in microseconds: when it became ready, less ten seconds for each
/// step of priority. What its owner's share adds is known only within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    earliest_us: i64,
    latest_us: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OccurrenceState {
    Waiting { until: Timestamp },
    Queued,
    Running { session: SessionId },
    Closed { dead: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FinishedAttempt {
    epoch: Epoch,
    session: SessionId,
    status: Status,
}

#[derive(Debug)]
struct SessionModel {
    opening: SessionOpening,
    state: SessionState,
    beat: u64,
    /// The true time at which the counter last moved.
    beaten_at: Timestamp,
    turn: u64,
    /// The verb in which the last turn was used.
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

    /// A client was told that its job is kept.
    pub fn acknowledged(&mut self, job: JobId) -> Verdict {
        rule!(self.jobs.contains_key(&job), "an acknowledged job exists", "job {job} was never stored");
        self.count("submits acknowledged");
        Ok(())
    }

    /// Whether all that was ever submitted has come to its end.
    pub fn is_drained(&self) -> bool {
        self.jobs.values().all(|job| job.next.is_none() && job.open == 0)
    }

    /// What is still to be done, for a message.
    pub fn left_over(&self) -> String {
        let mut text = String::new();
        for (id, job) in &self.jobs {
            if let Some(next) = job.next {
                text += &format!("job {id} has still to fire {next}; ");
            }
            for (number, occurrence) in &job.occurrences {
                if !matches!(occurrence.state, OccurrenceState::Closed { .. }) {
                    text += &format!(
                        "{id}.{number}.{} in {} {} is {:?}; ",
                        occurrence.attempt, job.spec.queue, job.spec.job_type, occurrence.state
                    );
                }
            }
        }
        text
    }

    /// From now on nothing fails, so everything is on time as soon as the nodes have settled.
    pub fn calm_begins(&mut self) {
        self.calm_since.get_or_insert(self.now);
    }

    /// At the end of a run without any fault.
    pub fn nothing_was_lost(&self) -> Verdict {
        for what in ["executions lost", "sessions lost", "stale reports refused", "submits of unknown fate"] {
            let count = self.coverage.get(what).copied().unwrap_or(0);
            rule!(count == 0, "without faults nothing is lost or refused", "{what}: {count}");
        }
        Ok(())
    }

    /// Something that fell due happens now: without faults that is at once.
    fn on_time(&mut self, what: &str, due: Timestamp) -> Verdict {
        let Some(settled) = self.calm_since.map(|since| since.plus(SETTLING)) else { return Ok(()) };
        if due > settled {
            let late = self.now.since(due);
            rule!(late <= LATENESS_MAX, "without faults everything is on time", "{what} is {late:?} late");
            self.count("fires and gates on time");
        }
        Ok(())
    }

    /// Nodes go by the store's clock and never ahead of it, or something could fire early.
    fn not_ahead(&self, now: Timestamp) -> Verdict {
        rule!(
            now <= self.now,
            "no node's time is ahead of the store's",
            "a verb of {now} was applied at {}",
            self.now
        );
        Ok(())
    }

    fn job(&self, id: JobId) -> Result<&JobModel, Violation> {
        self.jobs.get(&id).ok_or_else(|| Violation {
            rule: "only submitted jobs do anything",
            detail: format!("job {id} is not known"),
        })
    }

    fn occurrence_mut(&mut self, id: OccurrenceId) -> Result<(&mut Occurrence, &JobSpec), Violation> {
        let unknown = || Violation {
            rule: "only fired occurrences do anything",
            detail: format!("occurrence {id} was never fired"),
        };
        let job = self.jobs.get_mut(&id.job).ok_or_else(unknown)?;
        let occurrence = job.occurrences.get_mut(&id.number).ok_or_else(unknown)?;
        Ok((occurrence, &job.spec))
    }

    fn session_mut(&mut self, id: SessionId) -> Result<&mut SessionModel, Violation> {
        self.sessions.get_mut(&id).ok_or_else(|| Violation {
            rule: "only opened sessions do anything",
            detail: format!("session {id} was never opened"),
        })
    }

    fn lane(&self, job: JobId) -> Result<Lane, Violation> {
        let spec = &self.job(job)?.spec;
        Ok(Lane::new(spec.queue.as_str(), spec.job_type.as_str()))
    }
}

impl Place {
    fn between(earliest: Timestamp, latest: Timestamp, spec: &JobSpec) -> Self {
        let head_start_us = 10_000_000 * i64::from(spec.priority.get());
        Place {
            earliest_us: earliest.as_micros() - head_start_us,
            latest_us: latest.as_micros() - head_start_us,
        }
    }
}

impl JobModel {
    fn is_one_shot(&self) -> bool {
        !matches!(self.spec.settings.schedule, Schedule::Recurring(_))
    }

    fn skips_overlap(&self) -> bool {
        self.spec.settings.overlap == OverlapPolicy::Skip
    }
}
