//! Isolation between transactions on different nodes of a Galera cluster, where locks do not extend to
//! other nodes.
//!
//! A write of another node is detected in two ways. If it arrives while a transaction holds a lock on the
//! row, the transaction is rolled back. If it does not arrive before the commit, the nodes compare what was
//! written, and the later of two transactions that wrote the same row is rolled back. Both are ordinary
//! conflicts. A row that was locked and only read is not compared. So a transaction that changes anything
//! also writes the rows that it has locked. Then everything that isolates two transactions on one server
//! isolates them on two nodes, and the verbs need not know.
//!
//! - Sessions, open occurrences and queues have a column for it, `touched`.
//! - Jobs have a separate row in `job_turns`, because a job's own row may be large. It is written as soon
//!   as the job is locked and before anything is read that belongs to the job, because later writes must
//!   find it locked. Schedules are locked only under their jobs.
//! - Rows that were loaded to be claimed and were not claimed affect no decision, and are not written.
//! - Lanes are locked by transactions that write their numbers, but not written: two nodes that submit to
//!   one lane would always conflict. So lanes are never deleted here.
//! - Names, numbers, queue settings, resolutions and requests are written anyway by the transactions that
//!   rely on them.
//!
//! A transaction that changes nothing has only read, and has read a single snapshot.

use super::connection::Connection;
use super::lists::{Statement, jobs, list};
use super::tables::sharing;
use crate::fault::Fault;
use crate::row_list;
use crate::unit_of_work::{LoadedRows, ReadSet, WriteSet};
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use std::collections::BTreeSet;

pub(crate) const TOUCH_SESSIONS: &str = concat!(
    "UPDATE ",
    list!(0 number int),
    " STRAIGHT_JOIN sessions FORCE INDEX (PRIMARY) ON sessions.id = given.number \
     SET sessions.touched = sessions.touched + 1"
);
pub(crate) const TOUCH_JOBS: &str = concat!(
    "INSERT INTO job_turns (job, touched) SELECT UNHEX(given.job), 1 FROM ",
    list!(0 job id),
    " ON DUPLICATE KEY UPDATE touched = job_turns.touched + 1"
);
pub(crate) const TOUCH_LIVE: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 occurrence int),
    " STRAIGHT_JOIN live FORCE INDEX (PRIMARY) ON live.job = UNHEX(given.job) \
     AND live.occurrence = given.occurrence SET live.touched = live.touched + 1"
);
pub(crate) const TOUCH_QUEUES: &str = concat!(
    "UPDATE ",
    list!(0 queue name),
    " STRAIGHT_JOIN queues FORCE INDEX (PRIMARY) ON queues.queue = given.queue \
     SET queues.touched = queues.touched + 1"
);
/// Deletes the rows of purged jobs.
pub(crate) const FORGET_TURNS: &str = concat!(
    "DELETE job_turns FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN job_turns FORCE INDEX (PRIMARY) ON job_turns.job = UNHEX(given.job)"
);

/// The rows that a transaction has locked, except jobs.
#[derive(Debug, Default)]
pub(crate) struct Relied {
    sessions: BTreeSet<SessionId>,
    live: BTreeSet<OccurrenceId>,
    queues: BTreeSet<String>,
}

impl Relied {
    /// Records the locked rows of a read set.
    pub fn note(&mut self, read_set: &ReadSet, found: &LoadedRows) {
        self.sessions.extend(found.sessions.iter().map(|session| session.id));
        let claimable: BTreeSet<OccurrenceId> = found.claims.iter().flatten().copied().collect();
        let is_relied_on = |id: &OccurrenceId| {
            !claimable.contains(id) || read_set.live.contains(id) || read_set.open_of_jobs.contains(&id.job)
        };
        self.live.extend(found.live.iter().map(|row| row.live.id).filter(is_relied_on));
        self.queues.extend(read_set.limited_queues.iter().cloned());
        self.queues.extend(read_set.unstarted.iter().cloned());
    }

    /// Writes the locked rows that are not in the write set.
    pub fn touches(mut self, write_set: &WriteSet) -> Vec<Statement> {
        // The flag may be set already, and an update that changes nothing is not written.
        self.sessions.extend(&write_set.attention);
        let written = write_set.sessions_updated.iter().map(|change| &change.id);
        for session in written.chain(&write_set.sessions_deleted) {
            self.sessions.remove(session);
        }
        let written = write_set.live_updated.iter().map(|row| &row.live.id);
        let written = written.chain(write_set.leased.iter().map(|leased| &leased.id));
        for id in written.chain(&write_set.live_deleted) {
            self.live.remove(id);
        }
        let lists = [
            (TOUCH_SESSIONS, row_list::numbers(self.sessions.iter().map(|session| session.0))),
            (TOUCH_LIVE, row_list::occurrences(&self.live)),
            (TOUCH_QUEUES, row_list::names(&self.queues)),
        ];
        lists.iter().flat_map(|(sql, list)| sharing(sql, list)).collect()
    }
}

/// Writes the rows in `job_turns` for these locked jobs, before anything else of them is read.
pub(crate) async fn touch_jobs<'a>(
    connection: &mut Connection,
    locked: impl IntoIterator<Item = &'a JobId>,
) -> Result<(), Fault> {
    for list in jobs(locked) {
        connection.run(TOUCH_JOBS, vec![list]).await?;
    }
    Ok(())
}
