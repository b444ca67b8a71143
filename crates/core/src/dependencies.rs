//! Jobs that depend on other jobs: the status of their parents, and when the end of a parent's run is the end
//! of the parent.

use crate::ids::JobId;
use crate::job::StoredStatus;
use crate::ports::ParentProblem;

/// A job that a new job depends on, as loaded from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parent {
    pub id: JobId,
    pub mark: StoredStatus,
    pub is_one_shot: bool,
    /// Whether it has an open occurrence or one still to fire.
    pub is_unfinished: bool,
}

/// The combined status of the jobs that a new job depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parents {
    /// All have succeeded, or there are none.
    Done,
    Unfinished(Vec<JobId>),
    /// The child will not run.
    Failed(JobId),
}

/// Computes the combined status of all parents of a new job, or an error for one that cannot be a parent. A
/// parent that does not exist is passed as `Err` with its id.
pub fn parents(
    found: impl IntoIterator<Item = Result<Parent, JobId>>,
) -> Result<Parents, (JobId, ParentProblem)> {
    let (mut unfinished, mut failed) = (vec![], None);
    for parent in found {
        let parent = parent.map_err(|id| (id, ParentProblem::NotThere))?;
        match parent.mark {
            StoredStatus::Deleted => return Err((parent.id, ParentProblem::NotThere)),
            _ if !parent.is_one_shot => return Err((parent.id, ParentProblem::Recurring)),
            _ if parent.is_unfinished => unfinished.push(parent.id),
            StoredStatus::Active | StoredStatus::Paused => {}
            StoredStatus::Failed | StoredStatus::Cancelled => failed = failed.or(Some(parent.id)),
        }
    }
    Ok(match failed {
        Some(parent) => Parents::Failed(parent),
        None if unfinished.is_empty() => Parents::Done,
        None => Parents::Unfinished(unfinished),
    })
}

/// Whether the end of one of a parent's runs settles its children. A success does. A failure does only if no
/// other run of the parent may still succeed.
pub const fn is_told(succeeded: bool, is_unfinished: bool) -> bool {
    succeeded || !is_unfinished
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn parent(number: u64, mark: StoredStatus, is_unfinished: bool) -> Result<Parent, JobId> {
        Ok(Parent { id: JobId::new(Timestamp::EPOCH, number), mark, is_one_shot: true, is_unfinished })
    }

    #[test]
    fn one_failed_parent_outweighs_those_that_are_unfinished() {
        let (done, open) = (parent(1, StoredStatus::Active, false), parent(2, StoredStatus::Active, true));
        let (failed, ending) =
            (parent(3, StoredStatus::Failed, false), parent(4, StoredStatus::Cancelled, true));
        let id = |parent: Result<Parent, JobId>| parent.unwrap().id;
        assert_eq!(parents([]), Ok(Parents::Done));
        assert_eq!(parents([done]), Ok(Parents::Done));
        assert_eq!(parents([done, open, ending]), Ok(Parents::Unfinished(vec![id(open), id(ending)])));
        assert_eq!(parents([open, failed]), Ok(Parents::Failed(id(failed))));
    }

    #[test]
    fn what_is_gone_or_recurring_cannot_be_depended_on() {
        let gone = JobId::new(Timestamp::EPOCH, 9);
        assert_eq!(parents([Err(gone)]), Err((gone, ParentProblem::NotThere)));
        let deleted = parent(1, StoredStatus::Deleted, true);
        assert_eq!(parents([deleted]), Err((deleted.unwrap().id, ParentProblem::NotThere)));
        let recurring = Parent { is_one_shot: false, ..parent(2, StoredStatus::Active, true).unwrap() };
        assert_eq!(parents([Ok(recurring)]), Err((recurring.id, ParentProblem::Recurring)));
    }
}
