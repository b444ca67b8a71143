//! How values are stored in columns, the same in every database: integers for enums, and NULL for the value
//! that nearly every row has. These codecs are part of the storage format: an integer that was ever written
//! keeps its meaning.

use crate::fault::Fault;
use crate::layout::ScheduleColumns;
use crate::malformed::note;
use crate::rows::{KeyKind, LiveRow};
use punctual_core::access::Role;
use punctual_core::gates::Gates;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::SessionId;
use punctual_core::job::{DEFAULT_OWNER, Expiry, Settings, StoredStatus};
use punctual_core::lifecycle::Status;
use punctual_core::limiter::{LimiterId, QueueLimits, WaitList};
use punctual_core::occurrence::{Lease, LiveState, OccurrenceFlags, Origin};
use punctual_core::ports::{Lane, LogStream, Page, PausedQueue, QueueRow};
use punctual_core::queue::QueueSettings;
use punctual_core::readmission::Readmission;
use punctual_core::schedule::{Overlap, OverlapPolicy, Replay, Schedule, ScheduleState, SkipReason};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use std::borrow::Cow;

/// An enum that a column holds as a small integer.
pub(crate) trait Code: Sized {
    fn code(self) -> i64;
    fn from_code(code: i64) -> Option<Self>;

    /// Decodes a column's integer. `what` names the column in the error if no variant has this code.
    fn read(code: i64, what: &'static str) -> Result<Self, Fault> {
        Self::from_code(code).ok_or_else(|| Fault::damaged(what, code))
    }
}

macro_rules! codes {
    ($($enum:ty { $($variant:ident = $code:literal),* })*) => {$(
        impl Code for $enum {
            fn code(self) -> i64 {
                match self { $(Self::$variant => $code),* }
            }

            fn from_code(code: i64) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
        }
    )*};
}

codes! {
    StoredStatus { Active = 0, Paused = 1, Failed = 2, Cancelled = 3, Deleted = 4 }
    Status { Succeeded = 0, Failed = 1, TimedOut = 2, Cancelled = 3, Lost = 4, Skipped = 5, Expired = 6, Snoozed = 7 }
    Origin { Schedule = 0, Trigger = 1, Backfill = 2 }
    OverlapPolicy { Skip = 0, Allow = 1, Queue = 2, Replace = 3 }
    SkipReason { Overlap = 0, Misfire = 1, Paused = 2, Calendar = 3, Dependency = 4, Backlog = 5, Requested = 6 }
    LogStream { Stdout = 0, Stderr = 1, Log = 2 }
    SessionMode { Open = 0, Paused = 1, Draining = 2 }
    Role { Viewer = 0, Submitter = 1, Operator = 2, Admin = 3, Worker = 4 }
    KeyKind { Idempotency = 0, Unique = 1, Name = 2 }
}

/// `live.state`; partial indexes name these numbers.
pub(crate) mod state {
    pub const WAITING: u8 = 0;
    pub const QUEUED: u8 = 1;
    pub const RUNNING: u8 = 2;
}

pub(crate) fn state_code(live: LiveState) -> u8 {
    match live {
        LiveState::Waiting(_) => state::WAITING,
        LiveState::Queued => state::QUEUED,
        LiveState::Running(_) => state::RUNNING,
    }
}

/// A live state as its columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateColumns {
    pub state: u8,
    pub gates: u8,
    pub session: Option<SessionId>,
    pub claimed_at: Option<Timestamp>,
    pub cancel_requested: bool,
}

impl StateColumns {
    pub fn of(live: LiveState) -> Self {
        let columns = StateColumns {
            state: state_code(live),
            gates: 0,
            session: None,
            claimed_at: None,
            cancel_requested: false,
        };
        match live {
            LiveState::Waiting(gates) => StateColumns { gates: gates.bits(), ..columns },
            LiveState::Queued => columns,
            LiveState::Running(lease) => StateColumns {
                session: Some(lease.session),
                claimed_at: Some(lease.claimed_at),
                cancel_requested: lease.cancel_requested,
                ..columns
            },
        }
    }

    pub fn read(self) -> Result<LiveState, Fault> {
        match self.state {
            state::WAITING => {
                let gates = Gates::from_bits(self.gates).filter(|gates| !gates.is_empty());
                gates.map(LiveState::Waiting).ok_or_else(|| Fault::damaged("live.gates", self.gates))
            }
            state::QUEUED => Ok(LiveState::Queued),
            state::RUNNING => match (self.session, self.claimed_at) {
                (Some(session), Some(claimed_at)) => Ok(LiveState::Running(Lease {
                    session,
                    claimed_at,
                    cancel_requested: self.cancel_requested,
                })),
                _ => Err(Fault::damaged("live.session", "NULL")),
            },
            other => Err(Fault::damaged("live.state", other)),
        }
    }
}

/// The bit for [`LiveRow::is_sole`]; it shares the column with the flags.
pub(crate) const SOLE: u8 = 128;

/// Returns the parsed document, or a fault that names the column.
pub(crate) fn document<T>(
    parsed: Result<T, serde_json::Error>,
    what: impl Into<Cow<'static, str>>,
) -> Result<T, Fault> {
    parsed.map_err(|error| Fault::damaged(what, format!("a document ({error})")))
}

/// The value of `live.ties`.
pub(crate) fn live_flags(row: &LiveRow) -> u8 {
    row.live.flags.bits() | if row.is_sole { SOLE } else { 0 }
}

/// The flags of a live row, and whether nothing else is left of its job.
pub(crate) fn read_live_flags(bits: u8) -> Result<(OccurrenceFlags, bool), Fault> {
    let flags = OccurrenceFlags::from_bits(bits & !SOLE).ok_or_else(|| Fault::damaged("live.ties", bits))?;
    Ok((flags, bits & SOLE != 0))
}

/// The number of a limiter, if there is one.
pub(crate) fn limiter_column(limiter: Option<LimiterId>) -> Option<i64> {
    limiter.map(LimiterId::number)
}

pub(crate) fn read_limiter(number: Option<i64>, what: &'static str) -> Result<Option<LimiterId>, Fault> {
    let read = |number| LimiterId::from_number(number).ok_or_else(|| Fault::damaged(what, number));
    number.map(read).transpose()
}

/// `queues.limits`; NULL for most queues.
pub(crate) fn limits_column(limits: &QueueLimits) -> Result<Option<String>, Fault> {
    if *limits == QueueLimits::default() { Ok(None) } else { Ok(Some(serde_json::to_string(limits)?)) }
}

pub(crate) fn read_limits(text: Option<&str>) -> Result<QueueLimits, Fault> {
    let limits = text.map(|text| document(serde_json::from_str(text), "queues.limits")).transpose()?;
    Ok(limits.unwrap_or_default())
}

/// `queues.unplaced`; NULL for almost all queues, and set only for a short time.
pub(crate) fn readmission_column(readmission: Option<&Readmission>) -> Result<Option<String>, Fault> {
    Ok(readmission.map(serde_json::to_string).transpose()?)
}

pub(crate) fn read_readmission(text: Option<&str>) -> Result<Option<Readmission>, Fault> {
    text.map(|text| document(serde_json::from_str(text), "queues.unplaced")).transpose()
}

/// The row of a queue. A queue whose settings cannot be read counts as paused, so that no unreadable limit
/// is exceeded. The row keeps the reason (decision 0027).
pub(crate) fn queue_row(
    queue: String,
    paused_at: Result<Option<Timestamp>, Fault>,
    settings: Result<(QueueSettings, Option<Readmission>), Fault>,
) -> Result<QueueRow, Fault> {
    let mut row = QueueRow::unset(&queue);
    let mut unreadable = |fault: Fault| {
        if !fault.is_malformed() {
            return Err(fault);
        }
        note(&fault);
        row.unreadable = Some(fault.to_string());
        Ok(())
    };
    // A queue that was paused at an unknown time stays paused after its settings are set again.
    let paused_at = paused_at.or_else(|fault| unreadable(fault).map(|()| Some(Timestamp::EPOCH)))?;
    let (settings, readmission) = settings.or_else(|fault| unreadable(fault).map(|()| Default::default()))?;
    Ok(QueueRow { paused_at, settings, readmission, ..row })
}

/// The queues that hand out no work, of all queues that have a row.
pub(crate) fn held_queues(rows: Vec<QueueRow>) -> Vec<PausedQueue> {
    let held = rows.into_iter().filter(QueueRow::is_held);
    held.map(|row| PausedQueue { paused_at: row.paused_at.unwrap_or(Timestamp::EPOCH), queue: row.queue })
        .collect()
}

/// The wait list of the limiter with this number, in which an execution of this lane waits.
pub(crate) fn read_line(number: i64, lane: &Lane) -> Result<WaitList, Fault> {
    let own = WaitList::of_queue(lane.queue());
    let id = LimiterId::from_number(number).ok_or_else(|| Fault::damaged("live.line", number))?;
    Ok(if own.id() == id { own } else { WaitList { key: Some(id), ..own } })
}

/// The limiter number after which a page of wait lists begins.
pub(crate) fn lines_after(after: Option<LimiterId>) -> i64 {
    after.map_or(i64::MIN, LimiterId::number)
}

/// A page of the wait lists that are not empty. The first page begins with the wait lists of queues whose
/// re-admission is in progress.
pub(crate) fn lines_to_look_at(
    after: Option<LimiterId>,
    queues: &[QueueRow],
    waited_in: WaitedIn,
) -> Page<WaitList, LimiterId> {
    let readmission = queues.iter().filter(|row| row.readmission.is_some() && after.is_none());
    let mut items: Vec<WaitList> = readmission.map(|row| WaitList::of_queue(&row.queue)).collect();
    let others: Vec<WaitList> = waited_in.lines.into_iter().filter(|line| !items.contains(line)).collect();
    items.extend(others);
    Page { items, next: waited_in.last.and_then(LimiterId::from_number) }
}

/// Wait lists that are not empty.
pub(crate) struct WaitedIn {
    pub lines: Vec<WaitList>,
    /// The last number that was read, if more may follow.
    pub last: Option<i64>,
}

/// `jobs.schedule_type`.
pub(crate) mod schedule_type {
    pub const IMMEDIATE: u8 = 0;
    pub const ONE_TIME: u8 = 1;
    pub const RECURRING: u8 = 2;
}

/// A job's settings as columns. The time of a one-time job has its own column, so that the most common jobs
/// need no JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettingsColumns {
    pub schedule_type: u8,
    pub execute_at: Option<Timestamp>,
    pub document: Option<String>,
}

impl SettingsColumns {
    pub fn of(settings: &Settings) -> Result<Self, Fault> {
        let (schedule_type, execute_at, rest) = match settings.schedule {
            Schedule::Immediate => (schedule_type::IMMEDIATE, None, Cow::Borrowed(settings)),
            Schedule::OneTime { at } => {
                let rest = Settings { schedule: Schedule::Immediate, ..settings.clone() };
                (schedule_type::ONE_TIME, Some(at), Cow::Owned(rest))
            }
            _ => (schedule_type::RECURRING, None, Cow::Borrowed(settings)),
        };
        let is_default = *rest == Settings::default();
        let document = (!is_default).then(|| serde_json::to_string(&*rest)).transpose()?;
        Ok(SettingsColumns { schedule_type, execute_at, document })
    }

    pub fn read(
        schedule_type: u8,
        execute_at: Option<Timestamp>,
        text: Option<&str>,
    ) -> Result<Settings, Fault> {
        let mut settings: Settings = match text {
            None => Settings::default(),
            Some(text) => document(serde_json::from_str(text), "jobs.settings")?,
        };
        if schedule_type == schedule_type::ONE_TIME {
            let at = execute_at.ok_or_else(|| Fault::damaged("jobs.execute_at", "NULL"))?;
            settings.schedule = Schedule::OneTime { at };
        }
        Ok(settings)
    }
}

/// `jobs.owner` and `schedules.owner`.
pub(crate) fn owner_column(owner: &str) -> Option<&str> {
    (owner != DEFAULT_OWNER).then_some(owner)
}

pub(crate) fn read_owner(column: Option<String>) -> String {
    column.unwrap_or_else(|| DEFAULT_OWNER.to_owned())
}

/// `jobs.fired`; NULL for nearly every job.
pub(crate) fn fired_column(fired: u32) -> Option<u32> {
    (fired > 0).then_some(fired)
}

/// Bits of `schedules.ties`.
pub(crate) const FLAG_DEPENDS: u8 = 1;
pub(crate) const FLAG_AWAITED: u8 = 2;

/// The values read from [`ScheduleColumns`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScheduleParts {
    pub nominal: Option<Timestamp>,
    pub schedule: Schedule,
    pub replay: Option<Replay>,
    pub numbered: u32,
    pub overlap: Overlap,
    pub expiry: Option<Expiry>,
    pub depends: bool,
    pub awaited: bool,
}

impl ScheduleColumns<'_> {
    /// Columns are NULL if their value follows from other columns or is the default.
    pub fn of(state: &ScheduleState, lane: i64) -> Result<ScheduleColumns<'_>, Fault> {
        let schedule = match state.schedule {
            Schedule::OneTime { at } if state.nominal == Some(at) => None,
            _ => Some(serde_json::to_string(&state.schedule)?.into()),
        };
        let defaults = Overlap::default();
        Ok(ScheduleColumns {
            job: state.job,
            lane,
            fired: state.fired,
            version: state.version,
            job_version: state.job_version,
            segment: state.job.segment().index(),
            priority: state.priority,
            overlap: state.overlap.policy,
            ties: (u8::from(state.depends) * FLAG_DEPENDS) | (u8::from(state.awaited) * FLAG_AWAITED),
            due_at: state.due_at,
            nominal: nominal_column(state),
            numbered: numbered_column(state),
            overlap_limit: (state.overlap.limit != defaults.limit).then_some(state.overlap.limit),
            max_open: (state.overlap.max_open != defaults.max_open).then_some(state.overlap.max_open),
            owner: owner_column(&state.owner).map(Cow::Borrowed),
            schedule,
            replay: replay_column(state)?.map(Cow::Owned),
            expiry: state.expiry.as_ref().map(serde_json::to_string).transpose()?.map(Cow::Owned),
        })
    }

    /// The values that depend on several columns, or are documents.
    pub fn parts(&self) -> Result<ScheduleParts, Fault> {
        let replay = self.replay.as_deref();
        let replay: Option<Replay> =
            replay.map(|text| document(serde_json::from_str(text), "schedules.replay")).transpose()?;
        let nominal = self.nominal.or(self.due_at.filter(|_| replay.is_none()));
        let schedule = match (&self.schedule, nominal) {
            (Some(text), _) => document(serde_json::from_str(text), "schedules.schedule")?,
            (None, Some(at)) => Schedule::OneTime { at },
            (None, None) => return Err(Fault::damaged("schedules.nominal", "NULL")),
        };
        let (defaults, expiry) = (Overlap::default(), self.expiry.as_deref());
        Ok(ScheduleParts {
            nominal,
            schedule,
            replay,
            numbered: self.numbered.unwrap_or(self.fired),
            overlap: Overlap {
                policy: self.overlap,
                limit: self.overlap_limit.unwrap_or(defaults.limit),
                max_open: self.max_open.unwrap_or(defaults.max_open),
            },
            expiry: expiry
                .map(|text| document(serde_json::from_str(text), "schedules.expiry"))
                .transpose()?,
            depends: self.ties & FLAG_DEPENDS != 0,
            awaited: self.ties & FLAG_AWAITED != 0,
        })
    }
}

/// `schedules.nominal`; every fire changes this and the next two columns.
pub(crate) fn nominal_column(state: &ScheduleState) -> Option<Timestamp> {
    let is_implied = state.replay.is_none() && state.nominal == state.due_at;
    state.nominal.filter(|_| !is_implied)
}

pub(crate) fn replay_column(state: &ScheduleState) -> Result<Option<String>, Fault> {
    Ok(state.replay.as_ref().map(serde_json::to_string).transpose()?)
}

pub(crate) fn numbered_column(state: &ScheduleState) -> Option<u32> {
    (state.numbered != state.fired).then_some(state.numbered)
}

/// The queues or job types that a session's worker named. Heartbeats do not depend on them, so a document
/// that cannot be read counts as empty.
pub(crate) fn read_names(text: Option<&str>, what: &'static str) -> Vec<String> {
    let names = text.map(|text| document(serde_json::from_str(text), what)).transpose();
    names
        .unwrap_or_else(|fault| {
            note(&fault);
            None
        })
        .unwrap_or_default()
}

/// What a worker reported about its health, if this version can read it. No rule depends on it.
pub(crate) fn read_condition(document: Option<&str>) -> Option<WorkerCondition> {
    serde_json::from_str(document?).ok()
}
