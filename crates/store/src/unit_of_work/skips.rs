//! Ranges of skipped occurrences in a unit of work: loaded ranges that grow, and new ones.

use super::loaded::LoadedSkip;
use super::table::Table;
use punctual_core::ids::JobId;
use punctual_core::schedule::{SkipRange, SkipReason};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// The end of a range, which identifies it.
type SkipKey = (JobId, Timestamp, SkipReason);

#[derive(Debug, Default)]
pub(super) struct Skips {
    ranges: Table<SkipKey, Range>,
}

#[derive(Debug, Clone, PartialEq)]
enum Range {
    /// A range in the database, and how much it has grown.
    Kept {
        number: i64,
        by: Option<SkipRange>,
    },
    New(SkipRange),
}

impl Skips {
    pub fn add_loaded(&mut self, wanted: &BTreeSet<SkipKey>, found: Vec<LoadedSkip>) {
        let found = found
            .into_iter()
            .map(|skip| ((skip.job, skip.last, skip.reason), Range::Kept { number: skip.number, by: None }));
        self.ranges.add_loaded(wanted, found);
    }

    pub fn undo(&mut self) {
        self.ranges.undo();
    }

    /// Whether there was a range to extend; `None` if that is unknown.
    pub fn lengthen(&mut self, job: JobId, last: Timestamp, by: &SkipRange) -> Option<bool> {
        let end = (job, last, by.reason);
        let Some(range) = self.ranges.get(&end)?.cloned() else { return Some(false) };
        let longer = match range {
            Range::Kept { number, by: None } => Range::Kept { number, by: Some(*by) },
            Range::Kept { number, by: Some(before) } => Range::Kept { number, by: Some(joined(before, by)) },
            Range::New(before) => Range::New(joined(before, by)),
        };
        self.ranges.remove(end);
        self.ranges.put((job, by.last, by.reason), longer);
        Some(true)
    }

    pub fn insert(&mut self, job: JobId, range: &SkipRange) {
        self.ranges.put((job, range.last, range.reason), Range::New(*range));
    }

    pub fn lengthened(&self) -> Vec<(i64, SkipRange)> {
        let mut lengthened: Vec<_> = self
            .ranges
            .rows()
            .filter_map(|(_, range)| match range {
                Range::Kept { number, by: Some(by) } => Some((*number, *by)),
                _ => None,
            })
            .collect();
        lengthened.sort_by_key(|(number, _)| *number);
        lengthened
    }

    pub fn inserted(&self) -> Vec<(JobId, SkipRange)> {
        let new = self.ranges.rows().filter_map(|((job, ..), range)| match range {
            Range::New(range) => Some((*job, *range)),
            Range::Kept { .. } => None,
        });
        new.collect()
    }
}

fn joined(before: SkipRange, by: &SkipRange) -> SkipRange {
    SkipRange { last: by.last, count: before.count.saturating_add(by.count), ..before }
}
