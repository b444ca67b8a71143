//! The dependencies of a unit of work, and the finished jobs whose children are not all resolved.

use super::read_set::ReadSet;
use super::table::{RowChange, Table};
use super::write_set::{DependencyRow, WriteSet};
use punctual_core::ids::JobId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

#[derive(Debug, Default)]
pub(super) struct Dependencies {
    /// Keyed by child and parent.
    by_child: Table<(JobId, JobId), ()>,
    /// The same, keyed by parent and child.
    by_parent: Table<(JobId, JobId), ()>,
    /// Children whose parents are all loaded.
    whole_children: BTreeSet<JobId>,
    /// Parents whose children are all loaded.
    whole_parents: BTreeSet<JobId>,
    /// Children whose dependencies will all be deleted, including those that are not loaded.
    forgotten: BTreeSet<JobId>,
    pub resolutions: Table<JobId, bool>,
    pub has_resolutions: bool,
}

impl Dependencies {
    pub fn add_loaded(
        &mut self,
        read_set: &ReadSet,
        parents: &[(JobId, JobId)],
        children: &[(JobId, JobId)],
    ) {
        let mut counts = BTreeMap::<JobId, usize>::new();
        for (parent, _) in children {
            *counts.entry(*parent).or_default() += 1;
        }
        let of_parents = parents.iter().map(|(child, parent)| (parent, child));
        for (parent, child) in children.iter().map(|(parent, child)| (parent, child)).chain(of_parents) {
            self.by_child.fetch((*child, *parent), Some(()));
            self.by_parent.fetch((*parent, *child), Some(()));
        }
        self.whole_children.extend(&read_set.parents_of);
        let is_whole = |parent: &JobId, wanted: usize| counts.get(parent).is_none_or(|found| *found < wanted);
        let whole = read_set.children_of.iter().filter(|(parent, wanted)| is_whole(parent, **wanted));
        self.whole_parents.extend(whole.map(|(parent, _)| *parent));
    }

    pub fn add_loaded_resolutions(&mut self, found: Vec<(JobId, bool)>) {
        self.has_resolutions = true;
        self.resolutions.add_loaded([], found);
    }

    pub fn undo(&mut self) {
        self.by_child.undo();
        self.by_parent.undo();
        self.forgotten.clear();
        self.resolutions.undo();
    }

    pub fn insert(&mut self, parent: JobId, child: JobId) {
        self.by_child.put((child, parent), ());
        self.by_parent.put((parent, child), ());
    }

    pub fn remove(&mut self, parent: JobId, child: JobId) {
        self.by_child.remove((child, parent));
        self.by_parent.remove((parent, child));
    }

    /// Removes all dependencies of a child.
    pub fn forget_parents(&mut self, child: JobId) {
        let parents: Vec<JobId> = self.parents(child).collect();
        for parent in parents {
            self.remove(parent, child);
        }
        self.forgotten.insert(child);
    }

    pub fn knows_parents_of(&self, child: JobId) -> bool {
        self.whole_children.contains(&child)
    }

    pub fn knows_children_of(&self, parent: JobId) -> bool {
        self.whole_parents.contains(&parent)
    }

    pub fn parents(&self, child: JobId) -> impl Iterator<Item = JobId> {
        self.by_child.range(all_of(child)).map(|((_, parent), ())| *parent)
    }

    /// The known children, ordered by id.
    pub fn children(&self, parent: JobId) -> impl Iterator<Item = JobId> {
        self.by_parent.range(all_of(parent)).map(|((_, child), ())| *child)
    }

    /// How many loaded children of a parent have been resolved since.
    pub fn resolved_since(&self, parent: JobId) -> usize {
        let before = self.by_parent.range_before(all_of(parent));
        before.filter(|(tie, ())| self.by_parent.present(tie).is_none()).count()
    }

    pub fn collect(&self, is_new: impl Fn(JobId) -> bool, write_set: &mut WriteSet) {
        for ((parent, child), change) in self.by_parent.changes() {
            let dependency = DependencyRow { parent: *parent, child: *child };
            match change {
                RowChange::Inserted(()) => write_set.dependencies_inserted.push(dependency),
                RowChange::Deleted if !self.forgotten.contains(child) => {
                    write_set.dependencies_deleted.push(dependency);
                }
                RowChange::Deleted | RowChange::Updated(()) => {}
            }
        }
        write_set.parents_forgotten =
            self.forgotten.iter().copied().filter(|child| !is_new(*child)).collect();
        for (parent, change) in self.resolutions.changes() {
            match change {
                RowChange::Inserted(succeeded) => write_set.resolutions_inserted.push((*parent, *succeeded)),
                RowChange::Deleted => write_set.resolutions_deleted.push(*parent),
                RowChange::Updated(_) => {}
            }
        }
    }
}

fn all_of(job: JobId) -> RangeInclusive<(JobId, JobId)> {
    (job, JobId::from_bytes([0; 16]))..=(job, JobId::from_bytes([u8::MAX; 16]))
}
