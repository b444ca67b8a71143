//! What keeps transactions apart on the nodes of a Galera cluster, where locks end at the node.
//!
//! What another node has written comes in two ways. When it arrives while a transaction holds a lock on the row, the
//! transaction is undone. When it does not arrive before the commit, the nodes compare what was written, and whoever
//! wrote a row that another had written is undone. Both are conflicts like any other. A row that was locked and only read
//! is not compared. So a transaction that changes anything also writes the rows that it has locked: then whatever keeps two
//! transactions apart on one server keeps them apart on two nodes, and no verb has to know.
//!
//! - Sessions, open occurrences and queues have a column for it, `touched`.
//! - Jobs have a row beside them, in `job_turns`: theirs may be large. It is written as soon as the job is locked and before
//!   anything is read that belongs to the job, because what arrives later must find it locked. Schedules are locked under
//!   their jobs only.
//! - What was fetched to be claimed and was not taken decides nothing, and is left alone.
//! - Lanes are locked by those who write their numbers, and written by nobody: two nodes that submit to one lane would always
//!   be in each other's way. So no lane is deleted here.
//! - Names, numbers, what is set for queues, resolutions and requests are written by whoever relies on them anyway.
//!
//! A transaction that changes nothing has only looked, and looked at what was true at one time.

use super::connection::Connection;
use super::lists::{Statement, documents, jobs, list, numbers, occurrences};
use crate::draft::{Changes, Found, Wants};
use crate::fault::Fault;
use mysql_async::Value;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use std::borrow::Cow;
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
/// With the jobs that are gone for good.
pub(crate) const FORGET_TURNS: &str = concat!(
    "DELETE job_turns FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN job_turns FORCE INDEX (PRIMARY) ON job_turns.job = UNHEX(given.job)"
);

/// The rows that a transaction has locked, but for jobs.
#[derive(Debug, Default)]
pub(crate) struct Relied {
    sessions: BTreeSet<SessionId>,
    live: BTreeSet<OccurrenceId>,
    queues: BTreeSet<String>,
}

impl Relied {
    /// Notes what was locked of what was wanted.
    pub fn note(&mut self, wants: &Wants, found: &Found) {
        self.sessions.extend(found.sessions.iter().map(|session| session.id));
        let claimable: BTreeSet<OccurrenceId> = found.claims.iter().flatten().copied().collect();
        let is_relied_on = |id: &OccurrenceId| {
            !claimable.contains(id) || wants.live.contains(id) || wants.open_of_jobs.contains(&id.job)
        };
        self.live.extend(found.live.iter().map(|row| row.live.id).filter(is_relied_on));
        self.queues.extend(wants.limited_queues.iter().cloned());
        self.queues.extend(wants.unstarted.iter().cloned());
    }

    /// Writes what was locked and is not among the changes.
    pub fn touches(mut self, changes: &Changes) -> Vec<Statement> {
        // It may be set already, and what changes nothing is not written.
        self.sessions.extend(&changes.attention);
        let written = changes.sessions_updated.iter().map(|change| &change.id);
        for session in written.chain(&changes.sessions_deleted) {
            self.sessions.remove(session);
        }
        let written = changes.live_updated.iter().map(|row| &row.live.id);
        let written = written.chain(changes.leased.iter().map(|leased| &leased.id));
        for id in written.chain(&changes.live_deleted) {
            self.live.remove(id);
        }
        let queues = documents(&self.queues, |row, queue| {
            row.text(queue);
        });
        let lists = [
            (TOUCH_SESSIONS, numbers(self.sessions.iter().map(|session| session.0))),
            (TOUCH_LIVE, occurrences(&self.live)),
            (TOUCH_QUEUES, queues),
        ];
        lists.into_iter().flat_map(|(sql, lists)| lists.into_iter().map(move |list| one(sql, list))).collect()
    }
}

/// Writes what stands for these jobs, which are locked, before anything else of them is read.
pub(crate) async fn touch_jobs<'a>(
    connection: &mut Connection,
    locked: impl IntoIterator<Item = &'a JobId>,
) -> Result<(), Fault> {
    for list in jobs(locked) {
        connection.run(TOUCH_JOBS, vec![list]).await?;
    }
    Ok(())
}

fn one(sql: &'static str, list: Value) -> Statement {
    Statement { sql: Cow::Borrowed(sql), values: vec![list] }
}
