//! Maintenance: retention, deletion of old and deleted jobs, readiness and tokens. It has its own
//! connection, so that it never waits for a writer.

use super::guard::{Duty, Guard};
use super::partitions::{Parent, Partition};
use super::reads::TOKEN;
use super::rows::{code, uuid};
use super::tables::Shared;
use super::tables::write_set::calls;
use super::unused::{UnusedCursors, delete_lanes};
use super::wire::{Call, Frame, OwnWire, Parameter, Wire, value};
use crate::cells::{get, read};
use crate::codecs::{job_id, limit, time};
use crate::counters::{self, Counts};
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::server::asks;
use crate::server::changes::{CHANGES_OF_RETIRED, Changed, changes_of_counts};
use crate::server::rows::read_token;
use crate::stored_numbers::StoredNumber;
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::JobMark;
use punctual_core::limits;
use punctual_core::ports::{Horizon, Retained, Retired, Retirement, Token};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;
use tokio_postgres::Row;
use uuid::Uuid;

/// The database's time, which all nodes use.
pub(crate) const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

const RETAIN_SKIPPED: &str = "DELETE FROM skipped WHERE number IN \
     (SELECT number FROM skipped WHERE last < $1 ORDER BY last LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1";
const RETAIN_REQUESTS: &str = "DELETE FROM requests USING \
     (SELECT token, key FROM requests WHERE begun_at < $1 ORDER BY begun_at LIMIT $2 FOR UPDATE SKIP LOCKED) AS old \
     WHERE requests.token = old.token AND requests.key = old.key RETURNING 1";
/// A start that long ago no longer affects a rate limit: no interval is longer. There may be one row per
/// key, and an index would be written with every start. So each step reads a part of the table, from a
/// different position.
pub(crate) const RETAIN_PACES: &str = "DELETE FROM limiter_paces WHERE limiter = ANY(ARRAY(\
       SELECT limiter FROM limiter_paces WHERE limiter = ANY(ARRAY(\
           (SELECT limiter FROM limiter_paces WHERE limiter >= $3 ORDER BY limiter LIMIT $2) \
           UNION ALL (SELECT limiter FROM limiter_paces WHERE limiter < $3 ORDER BY limiter LIMIT $2))) \
       AND last_at < $1 FOR UPDATE SKIP LOCKED))";
/// Tells readers of history up to where it is deleted.
const KEEP_RETAINED: &str =
    "UPDATE history_bounds SET retained = greatest(retained, $1) WHERE id = 1 AND retained < $1";
const KEEP_GIVEN: &str = "UPDATE history_bounds SET given = greatest(given, $1) WHERE id = 1 AND given < $1";

const JOBS_AFTER: &str = "SELECT id, coalesce(updated_at, created_at), mark FROM jobs \
     WHERE id > $1 ORDER BY id LIMIT $2";
const LOCK_JOBS: &str = "SELECT id FROM jobs WHERE id = ANY($1) AND mark <> 4 \
     AND coalesce(updated_at, created_at) < $2 ORDER BY id FOR UPDATE SKIP LOCKED";
/// Of locked jobs, those without open, future or dead occurrences and without an end since then. Each is
/// looked up separately: a plan with joins would read whole tables for a handful of jobs.
const OVER: &str = "SELECT id, mark FROM jobs WHERE id = ANY($1) \
     AND (SELECT count(*) FROM (SELECT 1 FROM schedules WHERE schedules.job = jobs.id LIMIT 1) AS one) = 0 \
     AND (SELECT count(*) FROM (SELECT 1 FROM live WHERE live.job = jobs.id LIMIT 1) AS one) = 0 \
     AND (SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE dead_letters.job = jobs.id LIMIT 1) AS one) = 0 \
     AND (SELECT count(*) FROM (SELECT 1 FROM history WHERE history.job = jobs.id \
       AND history.completed_at >= $2 LIMIT 1) AS one) = 0 ORDER BY id";
const RETIRE: &str = "UPDATE jobs SET mark = 4, updated_at = $2 WHERE id = ANY($1)";

const PURGEABLE: &str = "SELECT id FROM jobs WHERE mark = 4 AND mark <> 0 AND coalesce(updated_at, created_at) < $1 \
     AND (SELECT count(*) FROM (SELECT 1 FROM live WHERE live.job = jobs.id LIMIT 1) AS one) = 0 \
     AND (SELECT count(*) FROM (SELECT 1 FROM history WHERE history.job = jobs.id \
       AND history.completed_at >= $1 LIMIT 1) AS one) = 0 \
     ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED";
const PURGE_HISTORY: &str = "DELETE FROM history USING \
     (SELECT job, occurrence, attempt, completed_at FROM history WHERE job = ANY($1) LIMIT $2) AS old \
     WHERE history.job = old.job AND history.occurrence = old.occurrence AND history.attempt = old.attempt \
     AND history.completed_at = old.completed_at RETURNING history.place";
const PURGE_LINES: &str = "DELETE FROM lines USING \
     (SELECT job, occurrence, attempt, number FROM lines WHERE job = ANY($1) LIMIT $2) AS old \
     WHERE lines.job = old.job AND lines.occurrence = old.occurrence AND lines.attempt = old.attempt \
     AND lines.number = old.number RETURNING 1";
const PURGE_SKIPPED: &str = "DELETE FROM skipped WHERE number IN \
     (SELECT number FROM skipped WHERE job = ANY($1) LIMIT $2) RETURNING 1";
const PURGE_TAGS: &str = "DELETE FROM job_tags WHERE job = ANY($1)";
const PURGE_JOBS: &str = "DELETE FROM jobs WHERE id = ANY($1) RETURNING lane";

/// The session cannot be deleted meanwhile, so the condition does not outlive it. Heartbeats are not
/// blocked.
const KEEP_CONDITION: &str = "INSERT INTO session_conditions (session, document) \
     SELECT id, $2::text FROM sessions WHERE id = $1 AND NOT lost FOR KEY SHARE \
     ON CONFLICT (session) DO UPDATE SET document = excluded.document";
const MARK: &str =
    "INSERT INTO probe (id, at) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET at = excluded.at";
/// Like `MARK`, for numbers that never decrease.
pub(super) const RAISE_MARK: &str = "INSERT INTO probe (id, at) VALUES ($1, $2) \
     ON CONFLICT (id) DO UPDATE SET at = greatest(probe.at, excluded.at)";
const PUT_TOKEN: &str = "INSERT INTO tokens (id, secret_sha256, role, created_at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (id) DO UPDATE SET secret_sha256 = excluded.secret_sha256, role = excluded.role, \
     created_at = excluded.created_at";
const ADD_TOKEN: &str = "INSERT INTO tokens (id, secret_sha256, role, created_at) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (id) DO NOTHING";

/// Runs the maintenance.
pub(crate) struct PostgresMaintenance {
    shared: Shared,
    own: OwnWire,
    /// Separate, so that readiness does not wait for a partition to be dropped.
    probe: OwnWire,
    unused: UnusedCursors,
}

impl PostgresMaintenance {
    pub fn new(shared: Shared) -> Self {
        let (own, probe) = (OwnWire::new(shared.target.clone()), OwnWire::new(shared.target.clone()));
        PostgresMaintenance { shared, own, probe, unused: UnusedCursors::default() }
    }

    /// Must be called before anything is written. Creates today's partitions. Makes positions in history
    /// continue after the existing ones, in case the database comes from another server.
    pub async fn open(&self) -> Result<(), Fault> {
        let mut used = self.own.take().await?;
        keep_places_growing(&mut used.wire).await?;
        let now = clock(&mut used.wire).await?;
        self.shared.partitions.make_ahead(used.wire.client(), now).await?;
        used.keep();
        Ok(())
    }

    /// Drops partitions of history and log lines that are completely older, until this many rows are gone,
    /// and deletes old skipped ranges and request replies. Rows that share a partition with newer ones stay
    /// until these are old, too.
    pub async fn retain(&self, horizon: Horizon, count: usize) -> Result<Retained, Fault> {
        let mut used = self.own.take().await?;
        let now = clock(&mut used.wire).await?;
        self.shared.partitions.make_ahead(used.wire.client(), now).await?;
        let [history, lines] = self.retain_partitions(&mut used.wire, horizon.history, count).await?;
        let old = |sql, before: Timestamp| Call::new(sql, [value(before.as_micros()), value(limit(count))]);
        let skipped = used.wire.run_one(old(RETAIN_SKIPPED, horizon.history)).await?.len();
        let requests = used.wire.run_one(old(RETAIN_REQUESTS, horizon.requests)).await?.len();
        let paces = [
            value(horizon.requests.as_micros()),
            value(limit(count)),
            value(counters::paces_from(horizon.requests)),
        ];
        used.wire.run_one(Call::new(RETAIN_PACES, paces)).await?;
        let any_workers = self.unused.delete_workers(&mut used.wire, horizon, count).await?;
        used.keep();
        let is_cut_off = count > 0 && [skipped, requests].contains(&count);
        Ok(Retained {
            history: history.rows,
            logs: lines.rows,
            skipped: skipped as u64,
            requests: requests as u64,
            more: is_cut_off || any_workers || history.more || lines.more,
        })
    }

    /// Deletes counters and names of lanes that nothing uses. Returns whether there may be more.
    pub async fn delete_unused(&self, count: usize) -> Result<bool, Fault> {
        let mut used = self.own.take().await?;
        let counters = self.unused.delete_counters(&mut used.wire, count).await?;
        let lanes = self.unused.delete_lanes(&mut used.wire, &self.shared.lanes, count).await?;
        used.keep();
        Ok(counters | lanes)
    }

    /// Drops old partitions, unless another node does so now: two nodes that drop the same partition could
    /// mistake each other's work, or a partition that was created again meanwhile, for their own.
    async fn retain_partitions(
        &self,
        wire: &mut Wire,
        before: Timestamp,
        count: usize,
    ) -> Result<[Dropped; Parent::ALL.len()], Fault> {
        let mut dropped = [Dropped::default(); Parent::ALL.len()];
        if !self.has_partitions_older_than(wire, before).await? {
            return Ok(dropped);
        }
        let Some(guard) = Guard::take(&self.shared.target, Duty::Retention).await? else {
            return Ok(dropped);
        };
        for (dropped, parent) in dropped.iter_mut().zip(Parent::ALL) {
            *dropped = self.drop_partitions(wire, &guard, Old { parent, before, count }).await?;
        }
        guard.release().await?;
        Ok(dropped)
    }

    async fn has_partitions_older_than(&self, wire: &Wire, before: Timestamp) -> Result<bool, Fault> {
        for parent in Parent::ALL {
            if !self.shared.partitions.older_than(wire.client(), parent, before).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn drop_partitions(&self, wire: &mut Wire, guard: &Guard, old: Old) -> Result<Dropped, Fault> {
        let Old { parent, before, count } = old;
        let partitions = &self.shared.partitions;
        let mut dropped = Dropped::default();
        for partition in partitions.older_than(wire.client(), parent, before).await? {
            if dropped.rows >= count as u64 {
                dropped.more = true;
                break;
            }
            guard.must_be_held().await?;
            let rows = count_rows(wire, &partition).await?;
            if parent == Parent::History {
                note_retained(wire, &partition).await?;
            }
            match partitions.remove(wire.client(), &partition).await {
                Ok(()) => dropped.rows += rows,
                // A backup, for example, reads for hours. The partition is no longer visible; the rest
                // waits.
                Err(fault) if fault.is_conflict() => {
                    tracing::info!(partition = partition.name, %fault, "an old partition is still being read");
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(dropped)
    }

    /// Marks finished jobs for deletion after their retention time.
    pub async fn retire(&self, now: Timestamp, step: Retirement) -> Result<Retired, Fault> {
        let mut used = self.own.take().await?;
        let after = step.after.map_or(Uuid::nil(), uuid);
        let bounds = [value(after), value(limit(step.limit))];
        let looked_at = used.wire.run_one(Call::new(JOBS_AFTER, bounds)).await?;
        let mut retired = Retired::default();
        let mut old = Vec::new();
        for row in &looked_at {
            let read = || Ok((read::<JobMark>(row, 2, "jobs.mark")?, time(row, 1)?));
            let Some((mark, changed_at)) = pass_over(read())? else { continue };
            if mark != JobMark::Deleted && changed_at < step.finished_before {
                old.push(get::<Uuid>(row, 0)?);
            }
        }
        if looked_at.len() == step.limit {
            retired.next = looked_at.last().map(|row| job_id(row, 0)).transpose()?;
        }
        if !old.is_empty() {
            retired.jobs = retire_jobs(&mut used.wire, &old, step.finished_before, now).await?;
        }
        used.keep();
        Ok(retired)
    }

    /// Deletes the rest of deleted jobs without live executions: up to `count` rows of each kind. A job
    /// with an execution that ended after `before` stays, because readers of history may not have seen the
    /// end yet. Returns whether there is more.
    pub async fn purge(&self, before: Timestamp, count: usize) -> Result<bool, Fault> {
        let mut used = self.own.take().await?;
        let bounds = [value(before.as_micros()), value(limit(count))];
        let rows = used.wire.run(Frame::Begin, vec![Call::new(PURGEABLE, bounds)]).await?.remove(0);
        let jobs: Vec<Uuid> = rows.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
        let is_emptied = purge_rows(&mut used.wire, &jobs, count).await?;
        let last: &[&'static str] = if is_emptied { &[PURGE_TAGS, PURGE_JOBS] } else { &[] };
        let calls = last.iter().map(|sql| Call::new(sql, [value(jobs.as_slice())])).collect();
        let gone = used.wire.run(Frame::Commit, calls).await?;
        let lanes = gone.last().into_iter().flatten().map(|row| get(row, 0));
        let lanes = lanes.collect::<Result<BTreeSet<i64>, Fault>>()?;
        delete_lanes(&mut used.wire, &self.shared.lanes, lanes.into_iter().collect()).await?;
        used.keep();
        Ok(!is_emptied || (count > 0 && jobs.len() == count))
    }

    pub async fn write_number(&self, mark: StoredNumber, at: Timestamp) -> Result<(), Fault> {
        let mut used = self.probe.take().await?;
        used.wire.run_one(Call::new(MARK, [value(mark.id()), value(at.as_micros())])).await?;
        used.keep();
        Ok(())
    }

    pub async fn keep_condition(&self, session: SessionId, condition: &WorkerCondition) -> Result<(), Fault> {
        let document = serde_json::to_string(condition)?;
        let mut used = self.probe.take().await?;
        let values = [value(session.0), value(document.as_str())];
        used.wire.run_one(Call::new(KEEP_CONDITION, values)).await?;
        used.keep();
        Ok(())
    }

    pub async fn put_token(&self, token: &Token) -> Result<(), Fault> {
        let mut used = self.probe.take().await?;
        used.wire.run_one(Call::new(PUT_TOKEN, token_values(token))).await?;
        used.keep();
        Ok(())
    }

    /// Stores a token unless one with its id exists. Returns the stored one.
    pub async fn add_token(&self, token: &Token) -> Result<Token, Fault> {
        let mut used = self.probe.take().await?;
        used.wire.run_one(Call::new(ADD_TOKEN, token_values(token))).await?;
        // The state after the commit is the same for all nodes.
        let kept = used.wire.run_one(Call::new(TOKEN, [value(token.id.as_str())])).await?;
        used.keep();
        read_token(kept.first().ok_or_else(|| Fault::Missing(format!("the token {}", token.id)))?)
    }
}

fn token_values(token: &Token) -> [Parameter<'_>; 4] {
    [
        value(token.id.as_str()),
        value(token.secret_sha256.as_slice()),
        value(code(token.role)),
        value(token.created_at.as_micros()),
    ]
}

/// Partitions to drop.
#[derive(Clone, Copy)]
struct Old {
    parent: Parent,
    before: Timestamp,
    /// Rows after which the rest waits.
    count: usize,
}

/// Partitions that were dropped.
#[derive(Clone, Copy, Default)]
struct Dropped {
    rows: u64,
    more: bool,
}

pub(crate) async fn clock(wire: &mut Wire) -> Result<Timestamp, Fault> {
    let rows = wire.run_one(Call::new(CLOCK, [])).await?;
    rows.first().map_or_else(|| Err(Fault::Missing("the time".to_owned())), |row| time(row, 0))
}

/// The server numbers transactions. A database that was restored on another server finds lower numbers
/// there. The offset that is added to them is raised so far that new positions come after all that were
/// ever assigned.
async fn keep_places_growing(wire: &mut Wire) -> Result<(), Fault> {
    let sql = "UPDATE punctual SET place_base = given.last + 1 - pg_current_xact_id()::text::bigint \
         FROM (SELECT greatest((SELECT max(place) FROM history), max(given), max(retained)) >> 20 AS last \
               FROM history_bounds) AS given \
         WHERE id = 1 AND given.last >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + place_base";
    if wire.client().execute(sql, &[]).await? > 0 {
        tracing::warn!(
            "the database was moved to another server: history positions continue above the previous ones"
        );
    }
    Ok(())
}

/// How many rows are dropped with a partition; an estimate of the database if there are very many.
pub(super) async fn count_rows(wire: &Wire, partition: &Partition) -> Result<u64, Fault> {
    let (client, name) = (wire.client(), &partition.name);
    if client.query_one("SELECT to_regclass($1) IS NULL", &[name]).await?.try_get(0)? {
        return Ok(0);
    }
    let most = limits::PARTITION_ROWS_COUNTED_MAX;
    let counted = format!("SELECT count(*) FROM (SELECT 1 FROM {name} LIMIT {most}) AS counted");
    let rows: i64 = client.query_one(&counted, &[]).await?.try_get(0)?;
    if rows < most {
        return Ok(rows.unsigned_abs());
    }
    let guessed = "SELECT greatest(reltuples, $2)::bigint FROM pg_class WHERE oid = to_regclass($1)";
    let rows: i64 = client.query_one(guessed, &[name, &(most as f32)]).await?.try_get(0)?;
    Ok(rows.unsigned_abs())
}

/// Records the last position of a partition of history before it is dropped.
async fn note_retained(wire: &mut Wire, partition: &Partition) -> Result<(), Fault> {
    let client = wire.client();
    if client.query_one("SELECT to_regclass($1) IS NULL", &[&partition.name]).await?.try_get(0)? {
        return Ok(());
    }
    let highest = format!("SELECT coalesce(max(place), 0) FROM {}", partition.name);
    let place: i64 = client.query_one(&highest, &[]).await?.try_get(0)?;
    wire.run_one(Call::new(KEEP_RETAINED, [value(place)])).await?;
    Ok(())
}

/// Marks the jobs that are finished. Returns their number.
async fn retire_jobs(wire: &mut Wire, old: &[Uuid], before: Timestamp, now: Timestamp) -> Result<u64, Fault> {
    let bounds = || [value(old), value(before.as_micros())];
    let locked = wire.run(Frame::Begin, vec![Call::new(LOCK_JOBS, bounds())]).await?.remove(0);
    let locked: Vec<Uuid> = locked.iter().map(|row| get(row, 0)).collect::<Result<_, _>>()?;
    let over = wire.run_one(Call::new(OVER, [value(locked), value(before.as_micros())])).await?;
    let mut counts = Counts::default();
    let mut jobs = Vec::with_capacity(over.len());
    for row in &over {
        jobs.push(get::<Uuid>(row, 0)?);
        if let Some(status) = counters::status(read(row, 1, "jobs.mark")?, false) {
            counts.jobs[status as usize] -= 1;
        }
    }
    let mut statements = Vec::new();
    if !jobs.is_empty() {
        statements.push(Call::new(RETIRE, [value(jobs.as_slice()), value(now.as_micros())]));
        let ids = jobs.iter().map(|job| JobId::from_bytes(*job.as_bytes())).collect::<Vec<_>>();
        let mut changes: Vec<Changed<'_>> = CHANGES_OF_RETIRED.map(|change| (change, asks::ids(&ids))).into();
        changes.extend(changes_of_counts(&counts, i64::from(wire.shard)));
        statements.extend(calls(changes));
    }
    wire.run(Frame::Commit, statements).await?;
    Ok(jobs.len() as u64)
}

/// Deletes up to `count` rows of each kind of what is left of these jobs. Returns whether that was all.
async fn purge_rows(wire: &mut Wire, jobs: &[Uuid], count: usize) -> Result<bool, Fault> {
    if jobs.is_empty() {
        return Ok(true);
    }
    let rest = |sql| Call::new(sql, [value(jobs), value(limit(count))]);
    let calls = vec![rest(PURGE_HISTORY), rest(PURGE_LINES), rest(PURGE_SKIPPED)];
    let gone: Vec<Vec<Row>> = wire.run(Frame::None, calls).await?;
    let places = gone[0].iter().map(|row| get::<i64>(row, 0)).collect::<Result<Vec<_>, _>>()?;
    if let Some(highest) = places.into_iter().max() {
        wire.run_one(Call::new(KEEP_GIVEN, [value(highest)])).await?;
    }
    Ok(gone.iter().all(|rows| rows.len() < count))
}
