//! Counter mismatches: counters that differ from the rows they count (see `counters.rs`), how they are found,
//! and how they are repaired.
//!
//! Every transaction that changes rows changes their counters too. So one statement sees rows and counters
//! that belong together, whatever other transactions write meanwhile. The difference of a wrong counter
//! does not change when others commit. A repair therefore adds the difference, and no process has to stop
//! for it. Only two repairs must not run at the same time.

use punctual_core::limiter::LimiterId;
use std::collections::BTreeMap;
use std::fmt;

/// Counters that differ from their rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterMismatch {
    pub of: CounterSubject,
    /// The counters that differ.
    pub counts: Vec<MismatchedCounter>,
}

/// What the counters are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CounterSubject {
    Lane {
        queue: String,
        job_type: String,
    },
    /// The wait list of a queue's own limit.
    Queue {
        queue: String,
    },
    /// The limiter of a concurrency key, by its number: its name is not stored.
    Key {
        limiter: i64,
    },
    /// A lane that no longer exists.
    UnknownLane {
        lane: i64,
    },
    Jobs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MismatchedCounter {
    pub name: &'static str,
    pub kept: i64,
    pub counted: i64,
}

impl fmt::Display for CounterMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            CounterSubject::Lane { queue, job_type } => {
                write!(f, "the counts of job type {job_type} in queue {queue}")
            }
            CounterSubject::Queue { queue } => write!(f, "the counts of the limits of queue {queue}"),
            CounterSubject::Key { limiter } => {
                write!(f, "the counts of the limits of a concurrency key ({limiter})")
            }
            CounterSubject::UnknownLane { lane } => {
                write!(f, "the counts of lane {lane}, which is not known")
            }
            CounterSubject::Jobs => write!(f, "the counts of jobs"),
        }?;
        let mut separator = ":";
        for MismatchedCounter { name, kept, counted } in &self.counts {
            write!(f, "{separator} {name} is {kept} and should be {counted}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// The counters of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CounterTable {
    Lanes,
    Limiters,
    Jobs,
}

impl CounterTable {
    pub const ALL: [CounterTable; 3] = [CounterTable::Lanes, CounterTable::Limiters, CounterTable::Jobs];

    /// The counters, in the order of their columns.
    pub const fn counts(self) -> &'static [&'static str] {
        match self {
            CounterTable::Lanes => &["waiting", "queued", "running"],
            CounterTable::Limiters => &["waiting", "in_use"],
            CounterTable::Jobs => &["active", "paused", "completed", "failed", "cancelled", "dead_letters"],
        }
    }

    /// A query with one result row for each key whose counters differ: the key (any number if there is only
    /// one), the counts of the rows, and the stored counters. The SQL is common to all databases except
    /// `integer`, the type of whole numbers.
    pub fn sql(self, integer: &str) -> String {
        let counts = self.counts();
        let each = |write: &dyn Fn(&str) -> String, separator: &str| {
            counts.iter().map(|count| write(count)).collect::<Vec<_>>().join(separator)
        };
        let sum = |name: String| format!("CAST(COALESCE(SUM({name}), 0) AS {integer})");
        let counted = each(&|count| sum(format!("counted_{count}")), ", ");
        let kept = each(&|count| sum(format!("kept_{count}")), ", ");
        let differs = each(&|count| format!("SUM(counted_{count}) <> SUM(kept_{count})"), " OR ");
        let (key, group) = match self {
            CounterTable::Lanes | CounterTable::Limiters => ("number", "GROUP BY number"),
            CounterTable::Jobs => ("COUNT(*)", ""),
        };
        let rows = self.rows();
        format!("SELECT {key}, {counted}, {kept} FROM ({rows}) AS each_one {group} HAVING {differs}")
    }

    /// The rows to count, together with the stored counters.
    fn rows(self) -> &'static str {
        match self {
            CounterTable::Lanes => {
                "SELECT lane AS number, CASE WHEN state = 0 THEN 1 ELSE 0 END AS counted_waiting, \
                 CASE WHEN state = 1 THEN 1 ELSE 0 END AS counted_queued, \
                 CASE WHEN state = 2 THEN 1 ELSE 0 END AS counted_running, \
                 0 AS kept_waiting, 0 AS kept_queued, 0 AS kept_running FROM live \
                 UNION ALL SELECT lane, 0, 0, 0, waiting, queued, running FROM lane_tallies"
            }
            CounterTable::Limiters => {
                "SELECT line AS number, 1 AS counted_waiting, 0 AS counted_in_use, 0 AS kept_waiting, 0 AS kept_in_use \
                 FROM live WHERE line IS NOT NULL \
                 UNION ALL SELECT limiter, 0, 1, 0, 0 FROM live \
                 WHERE limiter IS NOT NULL AND (state <> 0 OR line <> limiter) \
                 UNION ALL SELECT limiter, 0, 0, waiting, in_use FROM limiter_tallies"
            }
            CounterTable::Jobs => {
                "SELECT CASE WHEN mark = 0 AND unfinished = 1 THEN 1 ELSE 0 END AS counted_active, \
                 CASE WHEN mark = 1 AND unfinished = 1 THEN 1 ELSE 0 END AS counted_paused, \
                 CASE WHEN mark IN (0, 1) AND unfinished = 0 THEN 1 ELSE 0 END AS counted_completed, \
                 CASE WHEN mark = 2 THEN 1 ELSE 0 END AS counted_failed, \
                 CASE WHEN mark = 3 THEN 1 ELSE 0 END AS counted_cancelled, 0 AS counted_dead_letters, \
                 0 AS kept_active, 0 AS kept_paused, 0 AS kept_completed, 0 AS kept_failed, 0 AS kept_cancelled, \
                 0 AS kept_dead_letters FROM (SELECT mark, CASE WHEN id IN (SELECT job FROM schedules) \
                 OR id IN (SELECT job FROM live) THEN 1 ELSE 0 END AS unfinished FROM jobs) AS marked \
                 UNION ALL SELECT 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0 FROM dead_letters \
                 UNION ALL SELECT 0, 0, 0, 0, 0, 0, active, paused, completed, failed, cancelled, dead_letters \
                 FROM job_tally"
            }
        }
    }
}

/// A row of [`CounterTable::sql`].
#[derive(Debug)]
pub(crate) struct MismatchRow {
    pub key: i64,
    counted: Vec<i64>,
    kept: Vec<i64>,
}

impl MismatchRow {
    /// Reads the columns one by one.
    pub fn read<E>(kind: CounterTable, mut column: impl FnMut(usize) -> Result<i64, E>) -> Result<Self, E> {
        let count = kind.counts().len();
        let counted = (1..=count).map(&mut column).collect::<Result<_, E>>()?;
        let kept = (count + 1..=count * 2).map(&mut column).collect::<Result<_, E>>()?;
        Ok(MismatchRow { key: column(0)?, counted, kept })
    }

    /// The amount to add to each counter.
    pub fn missing(&self) -> Vec<i64> {
        self.counted.iter().zip(&self.kept).map(|(counted, kept)| counted - kept).collect()
    }

    fn named(&self, kind: CounterTable, names: &NamesByLane) -> CounterMismatch {
        let of = match kind {
            CounterTable::Lanes => match names.lanes.get(&self.key) {
                Some((queue, job_type)) => {
                    CounterSubject::Lane { queue: queue.clone(), job_type: job_type.clone() }
                }
                None => CounterSubject::UnknownLane { lane: self.key },
            },
            CounterTable::Limiters => match names.queue_of(self.key) {
                Some(queue) => CounterSubject::Queue { queue: queue.to_owned() },
                None => CounterSubject::Key { limiter: self.key },
            },
            CounterTable::Jobs => CounterSubject::Jobs,
        };
        let counts = kind.counts().iter().zip(self.kept.iter().zip(&self.counted));
        let counts = counts.filter(|(_, (kept, counted))| kept != counted);
        let counts =
            counts.map(|(name, (kept, counted))| MismatchedCounter { name, kept: *kept, counted: *counted });
        CounterMismatch { of, counts: counts.collect() }
    }
}

/// The names of all lanes.
pub(crate) const LANE_NAMES: &str = "SELECT id, queue, job_type FROM lanes";

#[derive(Debug)]
pub(crate) struct NamesByLane {
    lanes: BTreeMap<i64, (String, String)>,
}

impl NamesByLane {
    pub fn new(lanes: impl IntoIterator<Item = (i64, String, String)>) -> Self {
        let lanes = lanes.into_iter().map(|(id, queue, job_type)| (id, (queue, job_type)));
        NamesByLane { lanes: lanes.collect() }
    }

    /// The mismatches in the form that users see.
    pub fn name(&self, kind: CounterTable, found: &[MismatchRow]) -> Vec<CounterMismatch> {
        found.iter().map(|found| found.named(kind, self)).collect()
    }

    fn queue_of(&self, limiter: i64) -> Option<&str> {
        let mut queues = self.lanes.values().map(|(queue, _)| queue.as_str());
        queues.find(|queue| LimiterId::of_queue(queue).number() == limiter)
    }
}
