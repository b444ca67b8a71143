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
pub struct Drift {
    pub of: Counted,
    /// The counters that differ.
    pub counts: Vec<DriftedCount>,
}

/// What the counters are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
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
pub struct DriftedCount {
    pub name: &'static str,
    pub kept: i64,
    pub counted: i64,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.of {
            Counted::Lane { queue, job_type } => {
                write!(f, "the counts of job type {job_type} in queue {queue}")
            }
            Counted::Queue { queue } => write!(f, "the counts of the limits of queue {queue}"),
            Counted::Key { limiter } => {
                write!(f, "the counts of the limits of a concurrency key ({limiter})")
            }
            Counted::UnknownLane { lane } => write!(f, "the counts of lane {lane}, which is not known"),
            Counted::Jobs => write!(f, "the counts of jobs"),
        }?;
        let mut separator = ":";
        for DriftedCount { name, kept, counted } in &self.counts {
            write!(f, "{separator} {name} is {kept} and should be {counted}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// The counters of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Lanes,
    Limiters,
    Jobs,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Lanes, Kind::Limiters, Kind::Jobs];

    /// The counters, in the order of their columns.
    pub const fn counts(self) -> &'static [&'static str] {
        match self {
            Kind::Lanes => &["waiting", "queued", "running"],
            Kind::Limiters => &["waiting", "in_use"],
            Kind::Jobs => &["active", "paused", "completed", "failed", "cancelled", "dead_letters"],
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
            Kind::Lanes | Kind::Limiters => ("number", "GROUP BY number"),
            Kind::Jobs => ("COUNT(*)", ""),
        };
        let rows = self.rows();
        format!("SELECT {key}, {counted}, {kept} FROM ({rows}) AS each_one {group} HAVING {differs}")
    }

    /// The rows to count, together with the stored counters.
    fn rows(self) -> &'static str {
        match self {
            Kind::Lanes => {
                "SELECT lane AS number, CASE WHEN state = 0 THEN 1 ELSE 0 END AS counted_waiting, \
                 CASE WHEN state = 1 THEN 1 ELSE 0 END AS counted_queued, \
                 CASE WHEN state = 2 THEN 1 ELSE 0 END AS counted_running, \
                 0 AS kept_waiting, 0 AS kept_queued, 0 AS kept_running FROM live \
                 UNION ALL SELECT lane, 0, 0, 0, waiting, queued, running FROM lane_tallies"
            }
            Kind::Limiters => {
                "SELECT line AS number, 1 AS counted_waiting, 0 AS counted_in_use, 0 AS kept_waiting, 0 AS kept_in_use \
                 FROM live WHERE line IS NOT NULL \
                 UNION ALL SELECT limiter, 0, 1, 0, 0 FROM live \
                 WHERE limiter IS NOT NULL AND (state <> 0 OR line <> limiter) \
                 UNION ALL SELECT limiter, 0, 0, waiting, in_use FROM limiter_tallies"
            }
            Kind::Jobs => {
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

/// A row of [`Kind::sql`].
#[derive(Debug)]
pub(crate) struct FoundDrift {
    pub key: i64,
    counted: Vec<i64>,
    kept: Vec<i64>,
}

impl FoundDrift {
    /// Reads the columns one by one.
    pub fn read<E>(kind: Kind, mut column: impl FnMut(usize) -> Result<i64, E>) -> Result<Self, E> {
        let count = kind.counts().len();
        let counted = (1..=count).map(&mut column).collect::<Result<_, E>>()?;
        let kept = (count + 1..=count * 2).map(&mut column).collect::<Result<_, E>>()?;
        Ok(FoundDrift { key: column(0)?, counted, kept })
    }

    /// The amount to add to each counter.
    pub fn missing(&self) -> Vec<i64> {
        self.counted.iter().zip(&self.kept).map(|(counted, kept)| counted - kept).collect()
    }

    fn named(&self, kind: Kind, names: &LaneNames) -> Drift {
        let of = match kind {
            Kind::Lanes => match names.lanes.get(&self.key) {
                Some((queue, job_type)) => Counted::Lane { queue: queue.clone(), job_type: job_type.clone() },
                None => Counted::UnknownLane { lane: self.key },
            },
            Kind::Limiters => match names.queue_of(self.key) {
                Some(queue) => Counted::Queue { queue: queue.to_owned() },
                None => Counted::Key { limiter: self.key },
            },
            Kind::Jobs => Counted::Jobs,
        };
        let counts = kind.counts().iter().zip(self.kept.iter().zip(&self.counted));
        let counts = counts.filter(|(_, (kept, counted))| kept != counted);
        let counts =
            counts.map(|(name, (kept, counted))| DriftedCount { name, kept: *kept, counted: *counted });
        Drift { of, counts: counts.collect() }
    }
}

/// The names of all lanes.
pub(crate) const LANE_NAMES: &str = "SELECT id, queue, job_type FROM lanes";

#[derive(Debug)]
pub(crate) struct LaneNames {
    lanes: BTreeMap<i64, (String, String)>,
}

impl LaneNames {
    pub fn new(lanes: impl IntoIterator<Item = (i64, String, String)>) -> Self {
        let lanes = lanes.into_iter().map(|(id, queue, job_type)| (id, (queue, job_type)));
        LaneNames { lanes: lanes.collect() }
    }

    /// The mismatches in the form that users see.
    pub fn name(&self, kind: Kind, found: &[FoundDrift]) -> Vec<Drift> {
        found.iter().map(|found| found.named(kind, self)).collect()
    }

    fn queue_of(&self, limiter: i64) -> Option<&str> {
        let mut queues = self.lanes.values().map(|(queue, _)| queue.as_str());
        queues.find(|queue| LimiterId::of_queue(queue).number() == limiter)
    }
}
