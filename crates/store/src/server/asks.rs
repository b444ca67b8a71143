//! The read set of a transaction as lists of keys. Each dialect has a statement for every kind of rows, and
//! its own way to lock sessions and live rows and to claim.

use crate::cells::Cell;
use crate::codecs::limit;
use crate::row_list::{List, executions, ids, names, numbers, occurrences, row};
use crate::unit_of_work::ReadSet;
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::readmission::QueuePosition;
use std::collections::BTreeSet;

/// The kind of a statement's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowKind {
    HeldLanes,
    Sessions,
    Jobs,
    Schedules,
    Live,
    /// For the requested claim with this index.
    Claims(usize),
    Facts,
    Cancels,
    Queues,
    /// Only locks. Serializes transactions that admit executions through the limits of a queue, so that each
    /// counts what the one before has admitted. The same applies to submits to a queue that may be full.
    LimitedQueues,
    Started,
    Limiters,
    /// The heads of wait lists.
    Lines,
    LastQueued,
    QueuedLanes,
    Unstarted,
    Ended,
    Skipped,
    DeadLetters,
    LatestDeadLetters,
    DeadOfJobs,
    Keys,
    Parents,
    Children,
    Resolutions,
    LastNotes,
    Checkpoints,
    Requests,
}

/// The statements to send for a kind of rows.
pub(crate) enum Ask<'a> {
    /// One statement with all of these keys.
    Listed(RowKind, List<'a>),
    /// One statement for each of these rows of parameters.
    Each(RowKind, Vec<Vec<Cell<'a>>>),
}

/// Whole jobs, and jobs of which only the terms are read; with a flag that tells them apart.
pub(crate) fn jobs<'a>(read_set: &ReadSet) -> List<'a> {
    List::of(read_set.jobs.union(&read_set.terms).map(|job| row![*job, read_set.jobs.contains(job)]))
}

/// The rows that are read while the locks are held, in this order; with the data of these jobs that
/// assignments contain.
pub(crate) fn unlocked<'a>(read_set: &'a ReadSet, facts: &BTreeSet<JobId>) -> Vec<Ask<'a>> {
    let mut asks = vec![
        Ask::Listed(RowKind::Facts, ids(facts)),
        Ask::Listed(RowKind::Cancels, numbers(read_set.cancels_of.iter().map(|session| session.0))),
        // The settings of a queue are read while the lock prevents changes.
        Ask::Listed(RowKind::LimitedQueues, names(&read_set.limited_queues)),
        Ask::Listed(RowKind::Started, names(&read_set.limited_queues)),
        Ask::Listed(RowKind::Limiters, numbers(read_set.limiters.iter().map(|id| id.number()))),
    ];
    let lines = read_set.lines.iter().map(|(line, count)| row![line.number(), limit(*count)]);
    asks.push(Ask::Listed(RowKind::Lines, List::of(lines)));
    let last_queued = read_set.last_queued.iter().map(|((queue, before), count)| {
        let QueuePosition { rank, occurrence } = *before;
        row![queue.as_str(), rank, occurrence.job, occurrence.number, limit(*count)].to_vec()
    });
    asks.push(Ask::Each(RowKind::LastQueued, last_queued.collect()));
    asks.push(Ask::Each(RowKind::Queues, read_set.queues.then(Vec::new).into_iter().collect()));
    let skipped = read_set.skipped.iter().map(|(job, last, reason)| row![*job, *last, *reason]);
    asks.extend([
        Ask::Listed(RowKind::LimitedQueues, names(&read_set.unstarted)),
        Ask::Listed(RowKind::Unstarted, names(&read_set.unstarted)),
        Ask::Listed(RowKind::QueuedLanes, names(&read_set.queued_lanes_of)),
        Ask::Listed(RowKind::Ended, executions(read_set.ended.iter().copied())),
        Ask::Listed(RowKind::Skipped, List::of(skipped)),
        Ask::Listed(RowKind::LastNotes, occurrences(&read_set.last_notes)),
        Ask::Listed(RowKind::Checkpoints, occurrences(&read_set.checkpoints)),
        Ask::Listed(RowKind::DeadLetters, occurrences(&read_set.dead_letters)),
        Ask::Listed(RowKind::LatestDeadLetters, ids(&read_set.latest_dead_letters)),
        Ask::Listed(RowKind::DeadOfJobs, ids(&read_set.dead_of_jobs)),
    ]);
    let keys = read_set.keys.iter().map(|key| row![key.owner.as_str(), key.kind, key.key.as_str()]);
    let children = read_set.children_of.iter().map(|(parent, count)| row![*parent, limit(*count)]);
    let resolutions = row![limit(limits::DEPENDENTS_PER_STEP_MAX + 1)].to_vec();
    let requests = read_set.requests.iter().map(|request| row![request.token.as_str(), request.key.as_str()]);
    asks.extend([
        Ask::Listed(RowKind::Keys, List::of(keys)),
        Ask::Listed(RowKind::Parents, ids(&read_set.parents_of)),
        Ask::Listed(RowKind::Children, List::of(children)),
        Ask::Each(RowKind::Resolutions, read_set.resolutions.then_some(resolutions).into_iter().collect()),
        Ask::Listed(RowKind::Requests, List::of(requests)),
    ]);
    asks
}
