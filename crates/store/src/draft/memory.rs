//! What is remembered between transactions, by all writers of a process. Losing it costs a few reads and a moment of
//! fairness. Names are never renumbered, so what was once read of them stays true.

use super::found::Found;
use super::wants::Wants;
use punctual_core::ids::SessionId;
use punctual_core::ports::{Lane, QueueRow};
use punctual_core::rank::Shares;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long lanes that other processes have made may stay unknown to claims.
const LANES_REFRESHED_AFTER: Duration = Duration::from_secs(1);
/// Sessions whose worker is remembered; beyond, all are forgotten and learned anew.
const WORKERS_REMEMBERED_MAX: usize = 10_000;

/// Shared by the writers.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Remembered>);

/// What one transaction goes by. Copies share what they were copied from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembered {
    pub lanes: Arc<LaneNames>,
    pub workers: Arc<BTreeMap<SessionId, i64>>,
    pub shares: Arc<Shares>,
    /// As they were last seen: a hint of what to fetch, never an answer.
    pub queues: Arc<BTreeMap<String, QueueRow>>,
}

impl Memory {
    pub fn copy(&self) -> Remembered {
        self.lock().clone()
    }

    /// Keeps names, which were committed on their own.
    pub fn learn_lanes(&self, found: &Found) {
        if !found.lanes.is_empty() {
            Arc::make_mut(&mut self.lock().lanes).learn(&found.lanes);
        }
    }

    /// Notes that all lanes there were at this time are known.
    pub fn lanes_were_read(&self, at: Option<Timestamp>) {
        Arc::make_mut(&mut self.lock().lanes).read_at = at;
    }

    /// Keeps what a transaction has learned that was committed.
    pub fn keep(&self, learned: Learned) {
        let mut remembered = self.lock();
        if let Some(shares) = learned.shares {
            remembered.shares = Arc::new(shares);
        }
        if let Some(queues) = learned.queues {
            remembered.queues = Arc::new(queues);
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

/// What a transaction has learned and others may use once it is committed.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    pub shares: Option<Shares>,
    /// The workers of sessions; `None` for a session that is gone.
    pub workers: BTreeMap<SessionId, Option<i64>>,
    pub queues: Option<BTreeMap<String, QueueRow>>,
}

/// Lanes by number and by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct LaneNames {
    by_number: BTreeMap<i64, Lane>,
    by_name: BTreeMap<String, BTreeMap<String, i64>>,
    /// When all lanes were last read, by the time of a caller.
    read_at: Option<Timestamp>,
}

impl LaneNames {
    pub fn learn(&mut self, lanes: &[(i64, Lane)]) {
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

    /// In the order of their numbers.
    pub fn matching(&self, queues: &[String], job_types: &[String]) -> Vec<i64> {
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

    /// In the order of their job types.
    pub fn through(&self, queue: &str) -> Vec<(i64, Lane)> {
        let numbers = self.by_name.get(queue).into_iter().flat_map(BTreeMap::values);
        numbers.filter_map(|number| Some((*number, self.by_number.get(number)?.clone()))).collect()
    }

    /// Whether lanes may have come to be that nobody here knows of.
    pub fn is_outdated(&self, now: Timestamp) -> bool {
        // A clock that was set back must not hold it up.
        let since = |read_at: Timestamp| Duration::from_micros(read_at.as_micros().abs_diff(now.as_micros()));
        self.read_at.is_none_or(|read_at| since(read_at) >= LANES_REFRESHED_AFTER)
    }

    /// What of these wants is not known.
    pub fn unknown(&self, wants: &Wants) -> Wants {
        let is_new = |(queue, job_type): &&(String, String)| self.find(queue, job_type).is_none();
        Wants {
            lanes: wants.lanes.iter().filter(is_new).cloned().collect(),
            lane_numbers: wants
                .lane_numbers
                .iter()
                .filter(|number| self.lane(**number).is_none())
                .copied()
                .collect(),
            ..Wants::default()
        }
    }
}
