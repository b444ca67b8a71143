//! Maintenance: retention, deletion of old and deleted jobs, and readiness. It has its own connections, so
//! that it never waits for a writer.

use super::changes::{CHANGES_OF_RETIRED, Changed, changes_of_counts};
use super::connection::{
    Argument, OwnConnection, ServerAnswer, ServerCall, TransactionFrame, retry_conflicts, value,
};
use super::partitions::{PartitionedTables, drop_older};
use super::unused::{UnusedCursors, UnusedStatements, delete_lanes};
use crate::cells::{ColumnKind, get, read};
use crate::codecs::{job_id, limit};
use crate::counters::{self, CounterChanges};
use crate::fault::Fault;
use crate::malformed::skip_malformed;
use crate::row_list::{self, List};
use crate::stored_numbers::StoredNumber;
use async_trait::async_trait;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::StoredStatus;
use punctual_core::ports::{Horizon, Retained, Retired, Retirement};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// How rows are deleted: at once, by a statement that returns them, or by a second statement with the rows
/// that the first has found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion {
    pub find: &'static str,
    /// The second statement, and the columns that it needs of each row.
    pub delete: Option<(&'static str, &'static [ColumnKind])>,
}

/// The statements of a dialect. "Bound" is a time in microseconds.
#[async_trait]
pub(crate) trait MaintenanceStatements: UnusedStatements + PartitionedTables {
    /// How often a verb is run because of conflicts.
    const TRIES: u32;
    /// Given a bound and a limit.
    const RETAIN_SKIPPED: Deletion;
    const RETAIN_REQUESTS: &'static str;
    /// Given a position and a limit, the same again, and a bound; the bound is also given to the second
    /// statement. A start that long ago no longer affects a rate limit: no interval is longer. There may be
    /// one row per key, and an index would be written with every start. So each step reads a part of the
    /// table, from a different position.
    const RETAIN_PACES: Deletion;
    /// The id, the time of the last change and the mark of jobs after an id, up to a limit.
    const JOBS_AFTER: &'static str;
    /// Of these jobs, those that are not deleted and have not changed since the bound.
    const LOCK_JOBS: &'static str;
    /// Of locked jobs, those without open, future or dead occurrences, without an end since the bound, and that were not
    /// put by their name, with their marks.
    const OVER: &'static str;
    const RETIRE: &'static str;
    /// Deleted jobs without live executions, given a bound twice and a limit. A job with an execution that
    /// ended later stays, because readers of history may not have seen the end yet.
    const PURGEABLE: &'static str;
    /// Rows of history, whose first column is their position, of log lines and of skipped ranges, given
    /// jobs and a limit.
    const PURGE: [Deletion; 3];
    /// Tells readers of history which positions were assigned.
    const KEEP_GIVEN: &'static str;
    /// Given a document and a session. The session cannot be deleted meanwhile, so the condition does not
    /// outlive it.
    const KEEP_CONDITION: &'static str;
    const WRITE_NUMBER: &'static str;

    /// The statements that delete the rest of jobs. Some of them return the jobs' lanes.
    fn purge_jobs() -> Vec<&'static str>;

    /// Deletes rows of history and log lines outside the daily partitions, up to this many of each.
    async fn retain_rest(&mut self, before: Timestamp, count: usize) -> Result<[u64; 2], Fault>;

    /// Records that these jobs are locked, before anything else of them is read.
    async fn note_locked(&mut self, jobs: &[JobId]) -> Result<(), Fault>;

    fn forget_lanes(shared: &Self::Shared, lanes: &[i64]);

    /// The shard of the counters to which this connection adds.
    fn shard(&self, shared: &Self::Shared) -> i64;
}

pub(crate) struct Maintenance<C: MaintenanceStatements> {
    pub shared: C::Shared,
    pub own: OwnConnection<C>,
    /// Separate, so that readiness and the directory do not wait for a partition to be dropped.
    pub probe: OwnConnection<C>,
    unused: UnusedCursors,
}

impl<C: MaintenanceStatements> Maintenance<C> {
    pub fn new(shared: C::Shared, target: &C::Target) -> Self {
        let [own, probe] = [(); 2].map(|()| OwnConnection::new(target.clone()));
        Maintenance { shared, own, probe, unused: UnusedCursors::default() }
    }

    /// Drops partitions of history and log lines that are completely older, until this many rows are gone.
    /// Also deletes old skipped ranges and old request replies. Rows that share a partition with newer ones
    /// stay until these are old, too.
    pub async fn retain(&self, horizon: Horizon, count: usize) -> Result<Retained, Fault> {
        retry_conflicts!(C::TRIES, self.try_retain(horizon, count))
    }

    async fn try_retain(&self, horizon: Horizon, count: usize) -> Result<Retained, Fault> {
        let mut used = self.own.take().await?;
        let connection = &mut used.connection;
        connection.make_ahead(&self.shared).await?;
        let [history, lines] = drop_older(connection, &self.shared, horizon.history, count).await?;
        let [old_history, old_lines] = connection.retain_rest(horizon.history, count).await?;
        let bounds = |before: Timestamp| vec![value(before), value(limit(count))];
        let skipped = delete(connection, C::RETAIN_SKIPPED, bounds(horizon.history), vec![]).await?;
        let requests = ServerCall::new(C::RETAIN_REQUESTS, bounds(horizon.requests));
        let requests = connection.send_alone(requests).await?.count;
        let from = [value(counters::paces_from(horizon.requests)), value(limit(count))];
        let bound = || value(horizon.requests);
        let parts = from.clone().into_iter().chain(from).chain([bound()]).collect();
        delete(connection, C::RETAIN_PACES, parts, vec![bound()]).await?;
        let any_workers = self.unused.delete_workers(connection, horizon, count).await?;
        used.keep();
        let is_cut_off = count > 0 && [old_history, old_lines, skipped, requests].contains(&(count as u64));
        Ok(Retained {
            history: history.rows + old_history,
            logs: lines.rows + old_lines,
            skipped,
            requests,
            more: is_cut_off || any_workers || history.more || lines.more,
        })
    }

    /// Deletes counters and names of lanes that nothing uses. Returns whether there may be more.
    pub async fn delete_unused(&self, count: usize) -> Result<bool, Fault> {
        retry_conflicts!(C::TRIES, self.try_delete_unused(count))
    }

    async fn try_delete_unused(&self, count: usize) -> Result<bool, Fault> {
        let mut used = self.own.take().await?;
        let more_counters = self.unused.delete_counters(&mut used.connection, count).await?;
        let (lanes, more_lanes) = self.unused.delete_lanes(&mut used.connection, count).await?;
        C::forget_lanes(&self.shared, &lanes);
        used.keep();
        Ok(more_counters || (!lanes.is_empty() && more_lanes))
    }

    /// Marks finished jobs for deletion after their retention time.
    pub async fn retire(&self, now: Timestamp, step: Retirement) -> Result<Retired, Fault> {
        retry_conflicts!(C::TRIES, self.try_retire(now, step))
    }

    async fn try_retire(&self, now: Timestamp, step: Retirement) -> Result<Retired, Fault> {
        let mut used = self.own.take().await?;
        let after = step.after.unwrap_or(JobId::from_bytes([0; 16]));
        let page = ServerCall::new(C::JOBS_AFTER, [value(after), value(limit(step.limit))]);
        let looked_at = used.connection.send_one(TransactionFrame::None, page).await?.rows;
        let mut retired = Retired::default();
        let mut old = Vec::new();
        for row in &looked_at {
            let read = || {
                Ok((
                    read::<StoredStatus>(row, 2, "jobs.mark")?,
                    read::<Timestamp>(row, 1, "jobs.updated_at")?,
                ))
            };
            let Some((mark, changed_at)) = skip_malformed(read())? else { continue };
            if mark != StoredStatus::Deleted && changed_at < step.finished_before {
                old.push(job_id(row, 0)?);
            }
        }
        if looked_at.len() == step.limit {
            retired.next = looked_at.last().map(|row| job_id(row, 0)).transpose()?;
        }
        if old.is_empty() {
            used.connection.settle().await?;
        } else {
            retired.jobs = self.retire_jobs(&mut used.connection, old, step.finished_before, now).await?;
        }
        used.keep();
        Ok(retired)
    }

    /// Marks the jobs that are finished. Returns their number.
    async fn retire_jobs(
        &self,
        connection: &mut C,
        old: Vec<JobId>,
        before: Timestamp,
        now: Timestamp,
    ) -> Result<u64, Fault> {
        let of =
            |sql, jobs: &[JobId], at| ServerCall::new(sql, [Argument::Rows(row_list::ids(jobs)), value(at)]);
        let locked = connection.send_one(TransactionFrame::Begin, of(C::LOCK_JOBS, &old, before)).await?;
        let locked: Vec<JobId> = locked.column()?;
        connection.note_locked(&locked).await?;
        let (mut over, mut counts) = (Vec::new(), CounterChanges::default());
        for row in connection.send_one(TransactionFrame::None, of(C::OVER, &locked, before)).await?.rows {
            over.push(job_id(&row, 0)?);
            if let Some(status) = counters::status(read(&row, 1, "jobs.mark")?, false) {
                *counts.jobs.of(status) -= 1;
            }
        }
        let mut changes: Vec<Changed<'_>> = Vec::new();
        if !over.is_empty() {
            changes.extend(CHANGES_OF_RETIRED.map(|change| (change, row_list::ids(&over))));
            changes.extend(changes_of_counts(&counts, connection.shard(&self.shared)));
        }
        connection.commit_changes(vec![of(C::RETIRE, &over, now)], changes).await?;
        Ok(over.len() as u64)
    }

    /// Deletes the rest of deleted jobs without live executions: up to `count` rows of each kind. Returns
    /// whether there is more.
    pub async fn purge(&self, before: Timestamp, count: usize) -> Result<bool, Fault> {
        retry_conflicts!(C::TRIES, self.try_purge(before, count))
    }

    async fn try_purge(&self, before: Timestamp, count: usize) -> Result<bool, Fault> {
        let mut used = self.own.take().await?;
        let connection = &mut used.connection;
        let bounds = [value(before), value(before), value(limit(count))];
        let jobs =
            connection.send_one(TransactionFrame::Begin, ServerCall::new(C::PURGEABLE, bounds)).await?;
        let jobs: Vec<JobId> = jobs.column()?;
        let is_emptied = purge_rows(connection, &jobs, count).await?;
        let last = if is_emptied { C::purge_jobs() } else { vec![] };
        let calls = last.into_iter().map(|sql| ServerCall::new(sql, [Argument::Rows(row_list::ids(&jobs))]));
        let mut lanes = BTreeSet::new();
        for answer in connection.send(TransactionFrame::Commit, calls.collect()).await? {
            lanes.extend(answer.column::<i64>()?);
        }
        let gone = delete_lanes(connection, lanes.into_iter().collect()).await?;
        C::forget_lanes(&self.shared, &gone);
        used.keep();
        Ok(!is_emptied || (count > 0 && jobs.len() == count))
    }

    pub async fn write_number(&self, number: StoredNumber, at: Timestamp) -> Result<(), Fault> {
        self.write(ServerCall::new(C::WRITE_NUMBER, [value(number.id()), value(at)])).await
    }

    pub async fn keep_condition(&self, session: SessionId, condition: &WorkerCondition) -> Result<(), Fault> {
        let document = serde_json::to_string(condition)?;
        self.write(ServerCall::new(C::KEEP_CONDITION, [value(document), value(session)])).await
    }

    /// For an idempotent statement.
    async fn write(&self, call: ServerCall<'_>) -> Result<(), Fault> {
        retry_conflicts!(C::TRIES, self.probe.send(call.clone())).map(drop)
    }
}

/// Deletes rows in one transaction. Returns their number. `again` is given to the second statement as well.
async fn delete<C: MaintenanceStatements>(
    connection: &mut C,
    deletion: Deletion,
    bounds: Vec<Argument<'_>>,
    again: Vec<Argument<'_>>,
) -> Result<u64, Fault> {
    let find = ServerCall::new(deletion.find, bounds);
    let Some((sql, columns)) = deletion.delete else { return Ok(connection.send_alone(find).await?.count) };
    let found = connection.send_one(TransactionFrame::Begin, find).await?.rows;
    let list = Argument::Rows(List::read(&found, columns)?);
    connection
        .send_one(TransactionFrame::Commit, ServerCall::new(sql, [list].into_iter().chain(again)))
        .await?;
    Ok(found.len() as u64)
}

/// Deletes up to `count` rows of each kind of what is left of these jobs. Returns whether that was all.
async fn purge_rows<C: MaintenanceStatements>(
    connection: &mut C,
    jobs: &[JobId],
    count: usize,
) -> Result<bool, Fault> {
    if jobs.is_empty() {
        return Ok(true);
    }
    let find = |deletion: Deletion| {
        ServerCall::new(deletion.find, [Argument::Rows(row_list::ids(jobs)), value(limit(count))])
    };
    let found: Vec<ServerAnswer<C::Row>> =
        connection.send(TransactionFrame::None, C::PURGE.map(find).into()).await?;
    let mut deletions = Vec::new();
    for (found, deletion) in found.iter().zip(C::PURGE) {
        if let Some((sql, columns)) = deletion.delete {
            deletions.push(ServerCall::new(sql, [Argument::Rows(List::read(&found.rows, columns)?)]));
        }
    }
    let places = found[0].rows.iter().map(|row| get::<i64>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    if let Some(highest) = places.into_iter().max() {
        deletions.push(ServerCall::new(C::KEEP_GIVEN, [value(highest)]));
    }
    connection.send(TransactionFrame::None, deletions).await?;
    Ok(found.iter().all(|found| found.rows.len() < count))
}
