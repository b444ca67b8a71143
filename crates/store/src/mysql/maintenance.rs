//! Maintenance: retention, deletion of old and deleted jobs, readiness, tokens and log lines. It has its
//! own connections, so that it never waits for a writer.

use super::connection::{Connection, OwnConnection};
use super::galera::{FORGET_TURNS, touch_jobs};
use super::lists::{Statement, documents, jobs, list, numbers};
use super::logs::Logs;
use super::options::{MySqlOptions, OptionsError, Target};
use super::partitions::{self, Parent, Partition};
use super::reads::TOKEN;
use super::tables::{shard_of, statement, statements};
use super::unused::{UnusedCursors, delete_lanes};
use crate::cells::{get, read};
use crate::codecs::{job_id, limit, time};
use crate::codes::Code;
use crate::counters::{self, Counts};
use crate::execution_log_quota::RemovedLines;
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::mysql::connection::for_update_of;
use crate::server::asks;
use crate::server::changes::{CHANGES_OF_RETIRED, Change, Changed, changes_of_counts};
use crate::server::list::{List, row};
use crate::server::rows::read_token;
use crate::stored_numbers::StoredNumber;
use mysql_async::Value;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::JobMark;
use punctual_core::limits;
use punctual_core::ports::{Horizon, LogLine, Retained, Retired, Retirement, StoreError, Token};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// The oldest rows outside the daily partitions. Reads as many rows as it may delete.
pub(crate) const OLD_HISTORY: &str =
    "SELECT place, completed_at FROM history PARTITION (p_first, p_rest) ORDER BY place LIMIT ?";
/// Without quotes, the name is a keyword of MariaDB here.
const DELETE_HISTORY: &str = concat!(
    "DELETE `history` FROM ",
    list!(0 place int, 1 completed_at int),
    " STRAIGHT_JOIN history FORCE INDEX (PRIMARY) ON history.place = given.place \
     AND history.completed_at = given.completed_at"
);
/// With regular maintenance these partitions are empty.
const RETAIN_LINES: &str = "DELETE FROM log_lines PARTITION (p_first, p_rest) WHERE number < ? LIMIT ?";
pub(crate) const OLD_SKIPPED: &str = "SELECT number FROM skipped FORCE INDEX (skipped_last) WHERE last < ? \
     ORDER BY last LIMIT ? FOR UPDATE SKIP LOCKED";
const DELETE_SKIPPED: &str = concat!(
    "DELETE skipped FROM ",
    list!(0 number int),
    " STRAIGHT_JOIN skipped FORCE INDEX (PRIMARY) ON skipped.number = given.number"
);
pub(crate) const RETAIN_REQUESTS: &str = "DELETE FROM requests WHERE begun_at < ? ORDER BY begun_at LIMIT ?";
/// A start that long ago no longer affects a rate limit: no interval is longer. There may be one row per
/// key, and an index would be written with every start. So each step reads a part of the table, from a
/// different position.
pub(crate) const OLD_PACES: &str = "SELECT limiter FROM \
     ((SELECT limiter, last_at FROM limiter_paces FORCE INDEX (PRIMARY) WHERE limiter >= ? ORDER BY limiter LIMIT ?) \
      UNION ALL (SELECT limiter, last_at FROM limiter_paces FORCE INDEX (PRIMARY) WHERE limiter < ? ORDER BY limiter LIMIT ?)) \
     AS looked_at WHERE last_at < ?";
pub(crate) const DELETE_PACES: &str = concat!(
    "DELETE limiter_paces FROM ",
    list!(0 limiter int, 1 bound int),
    " STRAIGHT_JOIN limiter_paces FORCE INDEX (PRIMARY) ON limiter_paces.limiter = given.limiter \
     WHERE limiter_paces.last_at < given.bound"
);
/// Tells readers of history up to where it is deleted.
const KEEP_RETAINED: &str = "UPDATE history_bounds SET retained = GREATEST(retained, ?) WHERE id = 1";
const KEEP_GIVEN: &str = "UPDATE history_bounds SET given = GREATEST(given, ?) WHERE id = 1";

pub(crate) const JOBS_AFTER: &str = "SELECT id, COALESCE(updated_at, created_at), mark FROM jobs \
     FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?";
pub(crate) const LOCK_JOBS: &str = concat!(
    "SELECT jobs.id FROM ",
    list!(0 job id, 1 bound int),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
     WHERE jobs.mark <> 4 AND COALESCE(jobs.updated_at, jobs.created_at) < given.bound",
    for_update_of!("jobs"),
    " SKIP LOCKED"
);
/// Of locked jobs, those without open, future or dead occurrences and without an end since then.
pub(crate) const OVER: &str = concat!(
    "SELECT jobs.id, jobs.mark FROM ",
    list!(0 job id, 1 bound int),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
     WHERE NOT EXISTS (SELECT 1 FROM schedules WHERE schedules.job = jobs.id) \
     AND NOT EXISTS (SELECT 1 FROM live WHERE live.job = jobs.id) \
     AND NOT EXISTS (SELECT 1 FROM dead_letters WHERE dead_letters.job = jobs.id) \
     AND NOT EXISTS (SELECT 1 FROM history FORCE INDEX (history_job) WHERE history.job = jobs.id \
       AND history.completed_at >= given.bound)"
);
const RETIRE: &str = concat!(
    "UPDATE ",
    list!(0 job id, 1 moment int),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job) \
     SET jobs.mark = 4, jobs.updated_at = given.moment"
);

/// A job with an execution that ended later stays, because readers of history may not have seen the end
/// yet.
pub(crate) const PURGEABLE: &str = "SELECT jobs.id FROM jobs FORCE INDEX (jobs_marked) WHERE jobs.mark = 4 \
     AND COALESCE(jobs.updated_at, jobs.created_at) < ? \
     AND NOT EXISTS (SELECT 1 FROM live WHERE live.job = jobs.id) \
     AND NOT EXISTS (SELECT 1 FROM history FORCE INDEX (history_job) WHERE history.job = jobs.id \
       AND history.completed_at >= ?) \
     ORDER BY jobs.id LIMIT ? FOR UPDATE SKIP LOCKED";
pub(crate) const HISTORY_OF_JOBS: &str = concat!(
    "SELECT history.place, history.completed_at FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN history FORCE INDEX (history_job) ON history.job = UNHEX(given.job) LIMIT ?"
);
pub(crate) const SKIPPED_OF_JOBS: &str = concat!(
    "SELECT skipped.number FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN skipped FORCE INDEX (skipped_job) ON skipped.job = UNHEX(given.job) LIMIT ?"
);
pub(crate) const LINES_OF_JOBS: &str = concat!(
    "SELECT log_lines.job, log_lines.occurrence, log_lines.attempt, log_lines.number FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) LIMIT ?"
);
const DELETE_LINES: &str = concat!(
    "DELETE log_lines FROM ",
    list!(0 job id, 1 occurrence int, 2 attempt int, 3 number int),
    " STRAIGHT_JOIN log_lines FORCE INDEX (PRIMARY) ON log_lines.job = UNHEX(given.job) \
     AND log_lines.occurrence = given.occurrence AND log_lines.attempt = given.attempt \
     AND log_lines.number = given.number"
);
const LANES_OF_JOBS: &str = concat!(
    "SELECT DISTINCT jobs.lane FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job)"
);
const DELETE_JOBS: &str = concat!(
    "DELETE jobs FROM ",
    list!(0 job id),
    " STRAIGHT_JOIN jobs FORCE INDEX (PRIMARY) ON jobs.id = UNHEX(given.job)"
);

const MARK: &str = "INSERT INTO probe (id, at) VALUES (?, ?) ON DUPLICATE KEY UPDATE at = VALUES(at)";
/// Like `MARK`, for numbers that never decrease.
pub(super) const RAISE_MARK: &str =
    "INSERT INTO probe (id, at) VALUES (?, ?) ON DUPLICATE KEY UPDATE at = GREATEST(at, VALUES(at))";
/// The session is locked briefly, so that the condition does not outlive it.
const KEEP_CONDITION: &str = "INSERT INTO session_conditions (session, document) \
     SELECT id, ? FROM sessions WHERE id = ? AND lost = 0 LOCK IN SHARE MODE \
     ON DUPLICATE KEY UPDATE document = VALUES(document)";
const PUT_TOKEN: &str = "INSERT INTO tokens (id, secret_sha256, role, created_at) VALUES (?, ?, ?, ?) \
     ON DUPLICATE KEY UPDATE secret_sha256 = VALUES(secret_sha256), role = VALUES(role), \
     created_at = VALUES(created_at)";
const ADD_TOKEN: &str = "INSERT INTO tokens (id, secret_sha256, role, created_at) VALUES (?, ?, ?, ?) \
     ON DUPLICATE KEY UPDATE id = VALUES(id)";

/// How often a verb is run because of conflicts, and the pause before the second run; it grows with each.
const TRIES: u32 = 12;
const PAUSE: Duration = Duration::from_millis(5);

/// Retries a verb that was rolled back in favour of another transaction.
macro_rules! again {
    ($verb:expr) => {{
        let mut tries = 1;
        loop {
            match $verb.await {
                Err(fault) if fault.is_conflict() && tries < TRIES => {
                    tokio::time::sleep(PAUSE * tries).await;
                    tries += 1;
                }
                done => break Ok(done?),
            }
        }
    }};
}

pub(crate) struct MySqlMaintenance {
    target: Target,
    partition_width: Duration,
    /// Determines its shard of the counters.
    writer: usize,
    own: OwnConnection,
    /// Separate, so that readiness does not wait for a partition to be dropped.
    probe: OwnConnection,
    logs: Logs,
    unused: UnusedCursors,
}

impl MySqlMaintenance {
    pub fn new(options: &MySqlOptions) -> Result<Self, OptionsError> {
        let target = options.target()?;
        Ok(MySqlMaintenance {
            partition_width: options.partition_width,
            // Differs from the numbers of the writers, unless there are too many of them.
            writer: (options.seed as usize).wrapping_sub(1),
            own: OwnConnection::new(target.clone()),
            probe: OwnConnection::new(target.clone()),
            logs: Logs::new(target.clone(), options.log_bytes_max),
            unused: UnusedCursors::default(),
            target,
        })
    }

    /// Log lines that were removed to keep within the limit.
    pub fn removed_lines(&self) -> RemovedLines {
        self.logs.removed()
    }

    pub async fn append_logs(&self, lines: Vec<LogLine>) -> Result<(), StoreError> {
        Ok(self.logs.append(&lines).await?)
    }

    /// Drops partitions of history and log lines that are completely older, until this many rows are gone.
    /// Also deletes old rows outside the daily partitions, old skipped ranges and old request replies. Rows
    /// that share a partition with newer ones stay until these are old, too.
    pub async fn retain(&self, horizon: Horizon, count: usize) -> Result<Retained, StoreError> {
        again!(self.try_retain(horizon, count))
    }

    async fn try_retain(&self, horizon: Horizon, count: usize) -> Result<Retained, Fault> {
        partitions::make_ahead(&self.target, self.partition_width).await?;
        let mut used = self.own.take().await?;
        let before = horizon.history;
        let history = self.retain_partitions(&mut used.connection, Parent::History, before, count).await?;
        let lines = self.retain_partitions(&mut used.connection, Parent::Lines, before, count).await?;
        let old_history = retain_history(&mut used.connection, before, count).await?;
        let bounds = vec![Value::Int(before.as_micros()), limit(count).into()];
        let old_lines = used.connection.run(RETAIN_LINES, bounds).await?;
        used.connection.commit().await?;
        let skipped = retain_skipped(&mut used.connection, before, count).await?;
        let bounds = vec![Value::Int(horizon.requests.as_micros()), limit(count).into()];
        let requests = used.connection.run(RETAIN_REQUESTS, bounds).await?;
        used.connection.commit().await?;
        retain_paces(&mut used.connection, horizon.requests, count).await?;
        let any_workers = self.unused.delete_workers(&mut used.connection, horizon, count).await?;
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
    pub async fn delete_unused(&self, count: usize) -> Result<bool, StoreError> {
        again!(self.try_delete_unused(count))
    }

    async fn try_delete_unused(&self, count: usize) -> Result<bool, Fault> {
        let mut used = self.own.take().await?;
        let counters = self.unused.delete_counters(&mut used.connection, count).await?;
        let lanes = self.unused.delete_lanes(&mut used.connection, count).await?;
        used.keep();
        Ok(counters | lanes)
    }

    async fn retain_partitions(
        &self,
        connection: &mut Connection,
        parent: Parent,
        before: Timestamp,
        count: usize,
    ) -> Result<Dropped, Fault> {
        let mut dropped = Dropped { rows: 0, more: false };
        let old = partitions::older_than(connection, parent, before.as_micros()).await?;
        connection.commit().await?;
        if old.is_empty() {
            return Ok(dropped);
        }
        let mut defining = Connection::defining(&self.target).await?;
        for partition in old {
            if dropped.rows >= count as u64 {
                dropped.more = true;
                break;
            }
            let rows = count_rows(connection, &partition).await?;
            if parent == Parent::History {
                note_retained(connection, &partition).await?;
            }
            // The DDL statement must not wait for this very transaction.
            connection.commit().await?;
            if !partitions::remove(&self.target, &mut defining, &partition).await? {
                tracing::debug!(
                    table = parent.table(),
                    "a partition could not be dropped now: the table is in use"
                );
                break;
            }
            dropped.rows += rows;
        }
        defining.close().await;
        Ok(dropped)
    }

    /// Marks finished jobs for deletion after their retention time.
    pub async fn retire(&self, now: Timestamp, step: Retirement) -> Result<Retired, StoreError> {
        again!(self.try_retire(now, step))
    }

    async fn try_retire(&self, now: Timestamp, step: Retirement) -> Result<Retired, Fault> {
        let mut used = self.own.take().await?;
        used.connection.begin().await?;
        let after: Vec<u8> = step.after.map_or_else(Vec::new, |job| job.as_bytes().to_vec());
        let bounds = vec![Value::Bytes(after), limit(step.limit).into()];
        let looked_at = used.connection.all(JOBS_AFTER, bounds).await?;
        let mut retired = Retired::default();
        let mut old = Vec::new();
        for row in &looked_at {
            let read = || Ok((read::<JobMark>(row, 2, "jobs.mark")?, time(row, 1)?));
            let Some((mark, changed_at)) = pass_over(read())? else { continue };
            if mark != JobMark::Deleted && changed_at < step.finished_before {
                old.push(job_id(row, 0)?);
            }
        }
        if looked_at.len() == step.limit {
            retired.next = looked_at.last().map(|row| job_id(row, 0)).transpose()?;
        }
        let before = step.finished_before;
        let shard = shard_of(self.writer, used.connection.node());
        retired.jobs = retire_jobs(&mut used.connection, Retiring { old, before, now, shard }).await?;
        used.connection.commit().await?;
        used.keep();
        Ok(retired)
    }

    /// Deletes the rest of deleted jobs without live executions: up to `count` rows of each kind. Returns
    /// whether there is more.
    pub async fn purge(&self, before: Timestamp, count: usize) -> Result<bool, StoreError> {
        again!(self.try_purge(before, count))
    }

    async fn try_purge(&self, before: Timestamp, count: usize) -> Result<bool, Fault> {
        let mut used = self.own.take().await?;
        used.connection.begin().await?;
        let before = Value::Int(before.as_micros());
        let rows = used.connection.all(PURGEABLE, vec![before.clone(), before, limit(count).into()]).await?;
        let purged: Vec<JobId> = rows.iter().map(|row| job_id(row, 0)).collect::<Result<_, _>>()?;
        let is_emptied = purge_rows(&mut used.connection, &purged, count).await?;
        let mut lanes = BTreeSet::new();
        if is_emptied {
            for list in jobs(&purged) {
                for row in used.connection.all(LANES_OF_JOBS, vec![list]).await? {
                    lanes.insert(get::<i64>(&row, 0)?);
                }
            }
            for sql in [statement(Change::DeleteTags), FORGET_TURNS, DELETE_JOBS] {
                run_lists(&mut used.connection, sql, jobs(&purged)).await?;
            }
        }
        used.connection.commit().await?;
        delete_lanes(&mut used.connection, lanes.into_iter().collect()).await?;
        used.keep();
        Ok(!is_emptied || (count > 0 && purged.len() == count))
    }

    pub async fn write_number(&self, mark: StoredNumber, at: Timestamp) -> Result<(), StoreError> {
        again!(self.write_once(MARK, vec![mark.id().into(), Value::Int(at.as_micros())]))
    }

    pub async fn keep_condition(
        &self,
        session: SessionId,
        condition: &WorkerCondition,
    ) -> Result<(), StoreError> {
        let document = serde_json::to_string(condition).map_err(Fault::from)?;
        again!(self.write_once(KEEP_CONDITION, vec![document.as_str().into(), Value::Int(session.0)]))
    }

    pub async fn put_token(&self, token: &Token) -> Result<(), StoreError> {
        again!(self.write_once(PUT_TOKEN, token_values(token)))
    }

    /// Stores a token unless one with its id exists. Returns the stored one.
    pub async fn add_token(&self, token: &Token) -> Result<Token, StoreError> {
        again!(self.try_add_token(token))
    }

    async fn try_add_token(&self, token: &Token) -> Result<Token, Fault> {
        let mut used = self.probe.take().await?;
        used.connection.run(ADD_TOKEN, token_values(token)).await?;
        // The state after the commit is the same for all nodes.
        used.connection.commit().await?;
        let row = used.connection.one(TOKEN, vec![token.id.as_str().into()]).await?;
        used.connection.commit().await?;
        used.keep();
        read_token(&row.ok_or_else(|| Fault::Missing(format!("the token {}", token.id)))?)
    }

    /// For an idempotent statement. A kept connection may be closed since, as all are after a restart of
    /// the server; then a new one is used.
    async fn write_once(&self, sql: &str, values: Vec<Value>) -> Result<(), Fault> {
        let mut used = self.probe.take().await?;
        let mut written = write(&mut used.connection, sql, values.clone()).await;
        if used.was_kept && written.as_ref().is_err_and(Fault::is_outage) {
            used.renew().await?;
            written = write(&mut used.connection, sql, values).await;
        }
        written?;
        used.keep();
        Ok(())
    }
}

async fn write(connection: &mut Connection, sql: &str, values: Vec<Value>) -> Result<(), Fault> {
    connection.run(sql, values).await?;
    connection.commit().await
}

fn token_values(token: &Token) -> Vec<Value> {
    vec![
        token.id.as_str().into(),
        token.secret_sha256.as_slice().into(),
        Value::Int(token.role.code()),
        Value::Int(token.created_at.as_micros()),
    ]
}

/// Partitions that were dropped.
struct Dropped {
    rows: u64,
    more: bool,
}

/// How many rows a partition has; an estimate of the server if there are very many.
pub(super) async fn count_rows(connection: &mut Connection, partition: &Partition) -> Result<u64, Fault> {
    let (table, name, most) = (partition.parent.table(), &partition.name, limits::PARTITION_ROWS_COUNTED_MAX);
    let counted =
        format!("SELECT COUNT(*) FROM (SELECT 1 FROM {table} PARTITION ({name}) LIMIT {most}) AS counted");
    let rows = connection.all_of_text(&counted).await?;
    let rows: i64 = get(rows.first().ok_or_else(|| Fault::Missing("a count".to_owned()))?, 0)?;
    Ok(if rows < most { rows.unsigned_abs() } else { partition.rows_guessed.max(most.unsigned_abs()) })
}

/// Records the last position of a partition of history before it is dropped.
async fn note_retained(connection: &mut Connection, partition: &Partition) -> Result<(), Fault> {
    let highest = format!("SELECT COALESCE(MAX(place), 0) FROM history PARTITION ({})", partition.name);
    let rows = connection.all_of_text(&highest).await?;
    let place: i64 = get(rows.first().ok_or_else(|| Fault::Missing("a place".to_owned()))?, 0)?;
    connection.run(KEEP_RETAINED, vec![place.into()]).await.map(drop)
}

/// Deletes old history outside the daily partitions, and records how far.
async fn retain_history(connection: &mut Connection, before: Timestamp, count: usize) -> Result<u64, Fault> {
    let rows = connection.all(OLD_HISTORY, vec![limit(count).into()]).await?;
    let places = read_places(&rows)?;
    let old: Vec<(i64, i64)> =
        places.into_iter().filter(|(_, completed_at)| *completed_at < before.as_micros()).collect();
    delete_history(connection, &old, KEEP_RETAINED).await?;
    connection.commit().await?;
    Ok(old.len() as u64)
}

fn read_places(rows: &[mysql_async::Row]) -> Result<Vec<(i64, i64)>, Fault> {
    rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
}

/// Deletes rows by position and time, and stores the highest position in a bound.
async fn delete_history(connection: &mut Connection, rows: &[(i64, i64)], bound: &str) -> Result<(), Fault> {
    let Some(highest) = rows.iter().map(|(place, _)| *place).max() else { return Ok(()) };
    let lists = documents(&List::of(rows.iter().map(|(place, completed_at)| row![*place, *completed_at])));
    run_lists(connection, DELETE_HISTORY, lists).await?;
    connection.run(bound, vec![highest.into()]).await.map(drop)
}

async fn retain_skipped(connection: &mut Connection, before: Timestamp, count: usize) -> Result<u64, Fault> {
    connection.begin().await?;
    let bounds = vec![Value::Int(before.as_micros()), limit(count).into()];
    let rows = connection.all(OLD_SKIPPED, bounds).await?;
    let old: Vec<i64> = rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
    run_lists(connection, DELETE_SKIPPED, numbers(old.iter().copied())).await?;
    connection.commit().await?;
    Ok(old.len() as u64)
}

async fn retain_paces(connection: &mut Connection, before: Timestamp, count: usize) -> Result<(), Fault> {
    let (from, most) = (Value::Int(counters::paces_from(before)), Value::from(limit(count)));
    let bounds = vec![from.clone(), most.clone(), from, most, Value::Int(before.as_micros())];
    let rows = connection.all(OLD_PACES, bounds).await?;
    let old: Vec<i64> = rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
    let old = documents(&List::of(old.iter().map(|limiter| row![*limiter, before])));
    run_lists(connection, DELETE_PACES, old).await?;
    connection.commit().await
}

/// Jobs that may be finished.
struct Retiring {
    old: Vec<JobId>,
    before: Timestamp,
    now: Timestamp,
    shard: i64,
}

/// Marks the jobs that are finished. Returns their number.
async fn retire_jobs(connection: &mut Connection, retiring: Retiring) -> Result<u64, Fault> {
    let Retiring { old, before, now, shard } = retiring;
    let with_time =
        |jobs: &[JobId], time: Timestamp| documents(&List::of(jobs.iter().map(|job| row![*job, time])));
    let mut locked = Vec::new();
    for list in with_time(&old, before) {
        for row in connection.all(LOCK_JOBS, vec![list]).await? {
            locked.push(job_id(&row, 0)?);
        }
    }
    if connection.node().is_some() {
        touch_jobs(connection, &locked).await?;
    }
    let (mut over, mut counts) = (Vec::new(), Counts::default());
    for list in with_time(&locked, before) {
        for row in connection.all(OVER, vec![list]).await? {
            over.push(job_id(&row, 0)?);
            if let Some(status) = counters::status(read(&row, 1, "jobs.mark")?, false) {
                counts.jobs[status as usize] -= 1;
            }
        }
    }
    run_lists(connection, RETIRE, with_time(&over, now)).await?;
    let mut changes: Vec<Changed<'_>> = CHANGES_OF_RETIRED.map(|change| (change, asks::ids(&over))).into();
    changes.extend(changes_of_counts(&counts, shard));
    for Statement { sql, values } in statements(changes) {
        connection.run(&sql, values).await?;
    }
    Ok(over.len() as u64)
}

/// Deletes up to `count` rows of each kind of what is left of these jobs. Returns whether that was all.
async fn purge_rows(connection: &mut Connection, purged: &[JobId], count: usize) -> Result<bool, Fault> {
    let mut is_emptied = true;
    for list in jobs(purged) {
        let bounds = vec![list, limit(count).into()];
        let places = read_places(&connection.all(HISTORY_OF_JOBS, bounds.clone()).await?)?;
        delete_history(connection, &places, KEEP_GIVEN).await?;
        let skipped = connection.all(SKIPPED_OF_JOBS, bounds.clone()).await?;
        let skipped: Vec<i64> = skipped.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
        run_lists(connection, DELETE_SKIPPED, numbers(skipped.iter().copied())).await?;
        let lines = connection.all(LINES_OF_JOBS, bounds).await?;
        delete_lines(connection, &lines).await?;
        is_emptied &= [places.len(), skipped.len(), lines.len()].iter().all(|rows| *rows < count);
    }
    Ok(is_emptied)
}

async fn delete_lines(connection: &mut Connection, rows: &[mysql_async::Row]) -> Result<(), Fault> {
    let keys: Vec<(JobId, [i64; 3])> = rows
        .iter()
        .map(|row| Ok((job_id(row, 0)?, [get(row, 1)?, get(row, 2)?, get(row, 3)?])))
        .collect::<Result<_, Fault>>()?;
    let lists =
        documents(&List::of(keys.iter().map(|(job, [one, two, three])| row![*job, *one, *two, *three])));
    run_lists(connection, DELETE_LINES, lists).await
}

async fn run_lists(connection: &mut Connection, sql: &str, lists: Vec<Value>) -> Result<(), Fault> {
    for list in lists {
        connection.run(sql, vec![list]).await?;
    }
    Ok(())
}
