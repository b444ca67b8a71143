//! Counter mismatches: counters that differ from the rows they count (see `counters.rs`), how they are found,
//! and how they are repaired.
//!
//! Every transaction that changes rows changes their counters too. So one statement sees rows and counters
//! that belong together, whatever other transactions write meanwhile. The difference of a wrong counter
//! does not change when others commit. A repair therefore adds the difference, and no process has to stop
//! for it. Only two repairs must not run at the same time.

use crate::layout::{
    CountedRows, CounterColumn, JOB_TALLY, JobTally, LANE_TALLIES, LIMITER_TALLIES, LaneCounts, Layout,
    LimiterCounts, StoredCounts,
};
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

/// The subject of a counter.
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
    pub const fn columns(self) -> &'static [CounterColumn] {
        match self {
            CounterTable::Lanes => LaneCounts::COLUMNS,
            CounterTable::Limiters => LimiterCounts::COLUMNS,
            CounterTable::Jobs => JobTally::COLUMNS,
        }
    }

    const fn layout(self) -> Layout {
        match self {
            CounterTable::Lanes => LANE_TALLIES,
            CounterTable::Limiters => LIMITER_TALLIES,
            CounterTable::Jobs => JOB_TALLY,
        }
    }

    /// A query with one result row for each key whose counters differ: the key (any number if there is only
    /// one), the counts of the rows, and the stored counters. The SQL is common to all databases except
    /// `sum`: the sum of the column `{}` as a whole number, or the nearest one if it is beyond the largest.
    pub fn sql(self, sum: &str) -> String {
        let sum = |name: String| sum.replace("{}", &name);
        let counted = self.each(", ", |count| sum(format!("counted_{}", count.name)));
        let kept = self.each(", ", |count| sum(format!("kept_{}", count.name)));
        let is_keyed = self.columns()[0].rows.key.is_some();
        let (key, group) = if is_keyed { ("number", "GROUP BY number") } else { ("COUNT(*)", "") };
        let (rows, differ) = (self.rows(), self.differ());
        format!("SELECT {key}, {counted}, {kept} FROM ({rows}) AS each_one {group} HAVING {differ}")
    }

    /// A query for the keys of counters that differ or count nothing. No row should exist for the latter.
    pub fn wrong_keys(self) -> String {
        let (rows, differ) = (self.rows(), self.differ());
        let empty = self.each(" AND ", |count| format!("SUM(counted_{}) = 0", count.name));
        format!("SELECT number FROM ({rows}) AS each_one GROUP BY number HAVING {differ} OR ({empty})")
    }

    fn differ(self) -> String {
        self.each(" OR ", |count| format!("SUM(counted_{0}) <> SUM(kept_{0})", count.name))
    }

    /// The rows to count, together with the stored counters.
    fn rows(self) -> String {
        let mut kinds: Vec<CountedRows> = self.columns().iter().map(|count| count.rows).collect();
        kinds.dedup();
        let zero = |_: &CounterColumn| "0".to_owned();
        let counted = |rows: &CountedRows| {
            let value = |count: &CounterColumn| if count.rows == *rows { count.value() } else { zero(count) };
            self.select(rows.key, value, zero, rows.from)
        };
        let Layout { name, columns, .. } = self.layout();
        let key = kinds[0].key.map(|_| columns[0].name);
        let kept = self.select(key, zero, |count| count.name.to_owned(), name);
        let selects: Vec<String> = kinds.iter().map(counted).chain([kept]).collect();
        selects.join(" UNION ALL ")
    }

    /// A row of each of these, with by how much it raises each counter, and its stored counters.
    fn select(
        self,
        key: Option<&str>,
        counted: impl Fn(&CounterColumn) -> String,
        kept: impl Fn(&CounterColumn) -> String,
        from: &str,
    ) -> String {
        let key = key.map(|key| format!("{key} AS number, ")).unwrap_or_default();
        let counted = self.each(", ", |count| format!("{} AS counted_{}", counted(count), count.name));
        let kept = self.each(", ", |count| format!("{} AS kept_{}", kept(count), count.name));
        format!("SELECT {key}{counted}, {kept} FROM {from}")
    }

    fn each(self, separator: &str, write: impl FnMut(&CounterColumn) -> String) -> String {
        self.columns().iter().map(write).collect::<Vec<_>>().join(separator)
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
        let count = kind.columns().len();
        let counted = (1..=count).map(&mut column).collect::<Result<_, E>>()?;
        let kept = (count + 1..=count * 2).map(&mut column).collect::<Result<_, E>>()?;
        Ok(MismatchRow { key: column(0)?, counted, kept })
    }

    /// The amount to add to each counter.
    pub fn missing<C: StoredCounts>(&self) -> C {
        let mut missing = C::default();
        for (missing, (counted, kept)) in missing.each_mut().zip(self.counted.iter().zip(&self.kept)) {
            *missing = counted.saturating_sub(*kept);
        }
        missing
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
        let counts = kind.columns().iter().zip(self.kept.iter().zip(&self.counted));
        let counts = counts.map(|(count, (kept, counted))| MismatchedCounter {
            name: count.name,
            kept: *kept,
            counted: *counted,
        });
        CounterMismatch { of, counts: counts.filter(|count| count.kept != count.counted).collect() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_counters_are_compared_in_one_statement() {
        assert_eq!(
            CounterTable::Limiters.sql("CAST(COALESCE(SUM({}), 0) AS INTEGER)"),
            "SELECT number, CAST(COALESCE(SUM(counted_waiting), 0) AS INTEGER), \
             CAST(COALESCE(SUM(counted_in_use), 0) AS INTEGER), CAST(COALESCE(SUM(kept_waiting), 0) AS INTEGER), \
             CAST(COALESCE(SUM(kept_in_use), 0) AS INTEGER) FROM (\
             SELECT line AS number, 1 AS counted_waiting, 0 AS counted_in_use, 0 AS kept_waiting, 0 AS kept_in_use \
             FROM live WHERE line IS NOT NULL \
             UNION ALL SELECT limiter AS number, 0 AS counted_waiting, 1 AS counted_in_use, 0 AS kept_waiting, \
             0 AS kept_in_use FROM live WHERE limiter IS NOT NULL AND (state <> 0 OR line <> limiter) \
             UNION ALL SELECT limiter AS number, 0 AS counted_waiting, 0 AS counted_in_use, waiting AS kept_waiting, \
             in_use AS kept_in_use FROM limiter_tallies) AS each_one GROUP BY number \
             HAVING SUM(counted_waiting) <> SUM(kept_waiting) OR SUM(counted_in_use) <> SUM(kept_in_use)"
        );
    }
}
