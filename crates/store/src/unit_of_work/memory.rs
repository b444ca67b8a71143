//! The state that all writers of a process keep between transactions. Losing it costs a few reads and a moment of
//! fairness.
//!
//! Lane numbers are never reused, so the name read for a number stays valid. A name may get another number
//! after its lane was deleted. A transaction that writes a number found by name therefore locks the lane's
//! row first, and detects the deletion. See decision 0026.

use super::loaded::LoadedRows;
use super::read_set::ReadSet;
use punctual_core::ids::SessionId;
use punctual_core::ports::{Lane, QueueRow};
use punctual_core::rank::Shares;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long lanes created by other processes may stay unknown to claims, if claims query all lanes.
const LANES_REFRESHED_AFTER: Duration = Duration::from_secs(1);
/// How long claims may not know that another process has queued an execution in a lane, if there are too
/// many lanes to query them all. An adapter may return what it knows as long as a query would cost too
/// much.
const BUSY_LANES_REFRESHED_AFTER: Duration = Duration::from_millis(20);
/// Lanes to remember in addition to those that claims query. Beyond this, all are discarded and read again.
const LANES_REMEMBERED_MAX: usize = 10_000;
/// Sessions whose worker is remembered. Beyond this, all are discarded and read again.
const WORKERS_REMEMBERED_MAX: usize = 10_000;

/// Shared by the writers.
#[derive(Debug, Default)]
pub(crate) struct WriterMemory(Mutex<Remembered>);

/// The state that one transaction uses. Copies share their contents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembered {
    pub lanes: Arc<LaneNames>,
    pub asked: Arc<AskedLanes>,
    pub workers: Arc<BTreeMap<SessionId, i64>>,
    pub shares: Arc<Shares>,
    /// As last read: a hint about what to load, never an answer.
    pub queues: Arc<BTreeMap<String, QueueRow>>,
}

impl Remembered {
    /// The name of a lane.
    pub fn lane(&self, number: i64) -> Option<&Lane> {
        self.lanes.lane(number).or_else(|| self.asked.names.lane(number))
    }

    /// The number of a lane, which may have been deleted since.
    pub fn find(&self, queue: &str, job_type: &str) -> Option<(i64, Lane)> {
        self.lanes.find(queue, job_type).or_else(|| self.asked.names.find(queue, job_type))
    }
}

impl WriterMemory {
    pub fn copy(&self) -> Remembered {
        self.lock().clone()
    }

    /// Stores names that were committed in their own transaction.
    pub fn learn_lanes(&self, found: &LoadedRows) {
        if found.lanes.is_empty() {
            return;
        }
        let mut remembered = self.lock();
        let is_known = |(number, lane): &(i64, Lane)| {
            remembered.lanes.find(lane.queue(), lane.job_type()).is_some_and(|(known, _)| known == *number)
        };
        if found.lanes.iter().all(is_known) {
            return;
        }
        let lanes = Arc::make_mut(&mut remembered.lanes);
        if lanes.by_number.len() + found.lanes.len() > LANES_REMEMBERED_MAX {
            *lanes = LaneNames::default();
        }
        lanes.learn(found.lanes.iter().take(LANES_REMEMBERED_MAX));
    }

    /// Removes lanes that no longer exist.
    pub fn forget_lanes(&self, numbers: &[i64]) {
        let mut remembered = self.lock();
        for number in numbers {
            Arc::make_mut(&mut remembered.lanes).remove(*number);
            Arc::make_mut(&mut remembered.asked).names.remove(*number);
        }
    }

    /// Must be called before reading the lanes that claims query. Pass the returned number on with the
    /// result.
    pub fn begin_to_ask(&self) -> u64 {
        let mut remembered = self.lock();
        let asked = Arc::make_mut(&mut remembered.asked);
        asked.begun += 1;
        asked.begun
    }

    /// Stores the lanes that claims query as of this time. Lanes in which this process has queued
    /// executions since the read began are added.
    pub fn lanes_to_ask(&self, begun: u64, found: &LoadedRows, at: Option<Timestamp>) {
        let mut remembered = self.lock();
        let asked = Arc::make_mut(&mut remembered.asked);
        if begun < asked.finished {
            return;
        }
        asked.finished = begun;
        asked.read_at = at;
        let Some(to_ask) = &found.lanes_to_ask else { return };
        asked.are_all = to_ask.are_all;
        asked.queued_here.retain(|_, (noted, _)| *noted >= begun);
        asked.names = LaneNames::default();
        asked.names.learn(&to_ask.lanes);
        for (number, (_, lane)) in &asked.queued_here {
            asked.names.learn([&(*number, lane.clone())]);
        }
    }

    /// Stores the facts that a committed transaction has learned.
    pub fn keep(&self, learned: Learned) {
        let mut remembered = self.lock();
        if let Some(shares) = learned.shares {
            remembered.shares = Arc::new(shares);
        }
        if let Some(queues) = learned.queues {
            remembered.queues = Arc::new(queues);
        }
        if learned.queued.iter().any(|(number, _)| remembered.asked.is_to_note(*number)) {
            Arc::make_mut(&mut remembered.asked).note(learned.queued);
        }
        if learned.workers.iter().any(|(session, worker)| remembered.workers.get(session) != worker.as_ref())
        {
            let workers = Arc::make_mut(&mut remembered.workers);
            if workers.len() >= WORKERS_REMEMBERED_MAX {
                workers.clear();
            }
            for (session, worker) in learned.workers {
                match worker {
                    Some(worker) => workers.insert(session, worker),
                    None => workers.remove(&session),
                };
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Facts that a transaction has learned, for use by others after it is committed.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    pub shares: Option<Shares>,
    /// The workers of sessions; `None` for a session that no longer exists.
    pub workers: BTreeMap<SessionId, Option<i64>>,
    pub queues: Option<BTreeMap<String, QueueRow>>,
    /// The lanes in which it has queued executions.
    pub queued: Vec<(i64, Lane)>,
}

/// The lanes that claims query: all lanes while there are few; otherwise the lanes that had queued
/// executions at the last read, or in which this process has queued some since.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedLanes {
    names: LaneNames,
    are_all: bool,
    /// When they were last read, in the caller's time.
    read_at: Option<Timestamp>,
    /// How many reads have begun, and which of them was stored last.
    begun: u64,
    finished: u64,
    /// Where this process has queued executions, with the number of reads that had begun by then.
    queued_here: BTreeMap<i64, (u64, Lane)>,
}

impl AskedLanes {
    /// Ordered by number.
    pub fn matching(&self, queues: &[String], job_types: &[String]) -> Vec<i64> {
        self.names.matching(queues, job_types)
    }

    /// Whether lanes may have work that this process does not know of.
    pub fn is_outdated(&self, now: Timestamp) -> bool {
        let most = if self.are_all { LANES_REFRESHED_AFTER } else { BUSY_LANES_REFRESHED_AFTER };
        // A clock that was set back must not delay the next read.
        let since = |read_at: Timestamp| Duration::from_micros(read_at.as_micros().abs_diff(now.as_micros()));
        self.read_at.is_none_or(|read_at| since(read_at) >= most)
    }

    fn is_to_note(&self, number: i64) -> bool {
        let is_noted = self.queued_here.get(&number).is_some_and(|(noted, _)| *noted == self.begun);
        // If all lanes are queried, a known one is never left out.
        self.names.lane(number).is_none() || (!self.are_all && !is_noted)
    }

    fn note(&mut self, queued: Vec<(i64, Lane)>) {
        self.names.learn(&queued);
        for (number, lane) in queued {
            self.queued_here.insert(number, (self.begun, lane));
        }
    }
}

/// Lanes by number and by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaneNames {
    by_number: BTreeMap<i64, Lane>,
    by_name: BTreeMap<String, BTreeMap<String, i64>>,
}

impl LaneNames {
    pub fn learn<'l>(&mut self, lanes: impl IntoIterator<Item = &'l (i64, Lane)>) {
        for (number, lane) in lanes {
            let types = self.by_name.entry(lane.queue().to_owned()).or_default();
            types.insert(lane.job_type().to_owned(), *number);
            self.by_number.insert(*number, lane.clone());
        }
    }

    pub fn find(&self, queue: &str, job_type: &str) -> Option<(i64, Lane)> {
        let number = *self.by_name.get(queue)?.get(job_type)?;
        Some((number, self.by_number.get(&number)?.clone()))
    }

    pub fn lane(&self, number: i64) -> Option<&Lane> {
        self.by_number.get(&number)
    }

    pub fn remove(&mut self, number: i64) {
        let Some(lane) = self.by_number.remove(&number) else { return };
        if let Some(types) = self.by_name.get_mut(lane.queue()) {
            if types.get(lane.job_type()) == Some(&number) {
                types.remove(lane.job_type());
            }
            if types.is_empty() {
                self.by_name.remove(lane.queue());
            }
        }
    }

    /// Ordered by number.
    fn matching(&self, queues: &[String], job_types: &[String]) -> Vec<i64> {
        let numbers = |types: &BTreeMap<String, i64>| -> Vec<i64> {
            job_types.iter().filter_map(|job_type| types.get(job_type)).copied().collect()
        };
        let mut lanes: Vec<i64> = if queues.is_empty() {
            self.by_name.values().flat_map(numbers).collect()
        } else {
            queues.iter().filter_map(|queue| self.by_name.get(queue)).flat_map(numbers).collect()
        };
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }
}

/// The part of the read set that neither of the two knows.
pub(crate) fn unknown_lanes(read_set: &ReadSet, own: &LaneNames, remembered: &Remembered) -> ReadSet {
    let is_new = |(queue, job_type): &&(String, String)| {
        own.find(queue, job_type).or_else(|| remembered.find(queue, job_type)).is_none()
    };
    let is_unknown = |number: &&i64| own.lane(**number).or_else(|| remembered.lane(**number)).is_none();
    ReadSet {
        lanes: read_set.lanes.iter().filter(is_new).cloned().collect(),
        lane_numbers: read_set.lane_numbers.iter().filter(is_unknown).copied().collect(),
        ..ReadSet::default()
    }
}
