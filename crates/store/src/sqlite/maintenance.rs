//! Maintenance: retention and readiness. Each database does it differently, so it is not part of the verbs.

use super::rows::{all, bound, decode, job_id, limit, one, one_readable, time, up_to};
use super::tx::Tx;
use super::write::{Purged, Upkeep, UpkeepReply};
use super::{counter_mismatch, unused};
use crate::codes::Code;
use crate::fault::Fault;
use crate::rows::{KeyKind, Rows};
use crate::stored_numbers::StoredNumber;
use crate::{counters, verbs};
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::StoredStatus;
use punctual_core::ports::{Horizon, Retained, Retired, Retirement};
use punctual_core::time::Timestamp;
use rusqlite::params;
use std::collections::BTreeSet;

/// History is appended in the order of completion, so the oldest rows come first. The statement reads only
/// as many rows as it may delete, never the whole table.
const RETAIN_HISTORY: &str = "DELETE FROM history WHERE completed_at < ?1 \
     AND seq IN (SELECT seq FROM history ORDER BY seq LIMIT ?2) RETURNING seq";
const KEEP_BOUNDS: &str =
    "UPDATE history_bounds SET given = max(given, ?1), retained = max(retained, ?2) WHERE id = 1";
const RETAIN_SKIPPED: &str =
    "DELETE FROM skipped WHERE last < ?1 AND seq IN (SELECT seq FROM skipped ORDER BY seq LIMIT ?2)";
pub(crate) const RETAIN_REQUESTS: &str = "DELETE FROM requests WHERE (token, key) IN \
     (SELECT token, key FROM requests WHERE begun_at < ?1 ORDER BY begun_at LIMIT ?2)";
/// A start that long ago no longer affects a rate limit: no interval is longer. There may be one row per
/// key, and an index would be written with every start. So each step reads a part of the table, from a
/// different position.
pub(crate) const RETAIN_PACES: &str = "DELETE FROM limiter_paces WHERE last_at < ?1 AND limiter IN \
     (SELECT limiter FROM (SELECT limiter FROM limiter_paces WHERE limiter >= ?3 ORDER BY limiter LIMIT ?2) \
      UNION ALL SELECT limiter FROM (SELECT limiter FROM limiter_paces WHERE limiter < ?3 ORDER BY limiter LIMIT ?2))";
pub(crate) const JOBS_AFTER: &str =
    "SELECT id, coalesce(updated_at, created_at), mark FROM jobs WHERE id > ?1 ORDER BY id LIMIT ?2";
pub(crate) const LAST_COMPLETED: &str = "SELECT completed_at FROM history WHERE job = ?1 \
     ORDER BY occurrence DESC, attempt DESC LIMIT 1";
pub(crate) const PURGEABLE: &str = "SELECT id FROM jobs WHERE mark = 4 AND mark <> 0 \
     AND coalesce(updated_at, created_at) < ?2 AND NOT EXISTS (SELECT 1 FROM live WHERE job = id) LIMIT ?1";
/// Whether one of the latest executions ended at this time or later. It reads a bounded number of
/// executions.
const ENDED_SINCE: &str = "SELECT 1 FROM (SELECT completed_at FROM history WHERE job = ?1 \
     ORDER BY occurrence DESC, attempt DESC LIMIT 1000) WHERE completed_at >= ?2";
const KEEP_CONDITION: &str = "INSERT OR REPLACE INTO session_conditions (session, document) \
     SELECT id, ?2 FROM sessions WHERE id = ?1 AND lost = 0";
const PURGE_HISTORY: &str =
    "DELETE FROM history WHERE seq IN (SELECT seq FROM history WHERE job = ?1 LIMIT ?2)";
const PURGE_SKIPPED: &str =
    "DELETE FROM skipped WHERE seq IN (SELECT seq FROM skipped WHERE job = ?1 LIMIT ?2)";

pub(crate) fn perform(tx: &mut Tx<'_>, upkeep: &Upkeep) -> Result<UpkeepReply, Fault> {
    Ok(match upkeep {
        Upkeep::Retain { horizon, limit } => UpkeepReply::Retained(retain(tx, *horizon, *limit)?),
        Upkeep::Retire { now, retirement } => UpkeepReply::Retired(retire(tx, *now, *retirement)?),
        Upkeep::DeleteUnused { limit } => UpkeepReply::UnusedDeleted(unused::delete_lanes(tx, *limit)?),
        Upkeep::Purge { before, limit } => UpkeepReply::Purged(purge(tx, *before, *limit)?),
        Upkeep::Probe { now } => {
            write_number(tx, StoredNumber::Probe, *now)?;
            UpkeepReply::Probed
        }
        Upkeep::NoteClock { at } => {
            write_number(tx, StoredNumber::SteadyClock, *at)?;
            UpkeepReply::ClockNoted
        }
        Upkeep::KeepCondition { session, condition } => {
            keep_condition(tx, *session, condition)?;
            UpkeepReply::ConditionKept
        }
        Upkeep::RepairCounters => {
            UpkeepReply::CountersRepaired(counter_mismatch::repair(tx.conn, tx.memory)?)
        }
    })
}

fn keep_condition(tx: &mut Tx<'_>, session: SessionId, condition: &WorkerCondition) -> Result<(), Fault> {
    let document = serde_json::to_string(condition)?;
    tx.conn.prepare_cached(KEEP_CONDITION)?.execute(params![session.0, document])?;
    Ok(())
}

fn retain(tx: &mut Tx<'_>, horizon: Horizon, count: usize) -> Result<Retained, Fault> {
    let history = retain_history(tx, horizon.history, count)?;
    let run = |sql: &str, before: Timestamp| -> Result<usize, Fault> {
        Ok(tx.conn.prepare_cached(sql)?.execute(params![before.as_micros(), limit(count)])?)
    };
    let skipped = run(RETAIN_SKIPPED, horizon.history)?;
    let requests = run(RETAIN_REQUESTS, horizon.requests)?;
    let paces = params![horizon.requests.as_micros(), limit(count), counters::paces_from(horizon.requests)];
    if tx.conn.prepare_cached(RETAIN_PACES)?.execute(paces)? > 0 {
        tx.memory.written.forget();
    }
    let any_workers = unused::delete_workers(tx, horizon, count)?;
    let more = count > 0 && (any_workers || [history, skipped, requests].contains(&count));
    Ok(Retained {
        history: history as u64,
        logs: 0,
        skipped: skipped as u64,
        requests: requests as u64,
        more,
    })
}

/// Deletes old history, and records how far, so that readers of events learn what is missing.
fn retain_history(tx: &mut Tx<'_>, before: Timestamp, count: usize) -> Result<usize, Fault> {
    let given = tx.memory.history.given(tx.conn)?;
    let mut delete = tx.conn.prepare_cached(RETAIN_HISTORY)?;
    let deleted: Vec<i64> =
        all(&mut delete, params![before.as_micros(), limit(count)], |row| Ok(row.get(0)?))?;
    if let Some(last) = deleted.iter().max() {
        tx.conn.prepare_cached(KEEP_BOUNDS)?.execute(params![given, last])?;
    }
    Ok(deleted.len())
}

/// Marks finished jobs for deletion after their retention time.
fn retire(tx: &mut Tx<'_>, now: Timestamp, step: Retirement) -> Result<Retired, Fault> {
    let after: &[u8] = step.after.as_ref().map_or(&[], |id| id.as_bytes());
    let mut select = tx.conn.prepare_cached(JOBS_AFTER)?;
    let looked_at = up_to(step.limit, &mut select, params![after, bound(step.limit)], |row| {
        Ok((job_id(row, 0)?, time(row, 1)?, decode::<StoredStatus>(row, 2, "jobs.mark")?))
    })?;
    let mut retired = Retired::default();
    for (job, changed_at, mark) in &looked_at {
        if *mark == StoredStatus::Deleted || !is_over(tx, *job, *changed_at, step.finished_before)? {
            continue;
        }
        tx.conn
            .prepare_cached("UPDATE jobs SET mark = ?2, updated_at = ?3 WHERE id = ?1")?
            .execute(params![job.as_bytes(), StoredStatus::Deleted.code(), now.as_micros()])?;
        verbs::forget(tx, *job)?;
        tx.memory.counters.job(counters::status(*mark, false), None);
        retired.jobs += 1;
    }
    retired.next = looked_at.last().map(|(job, ..)| *job).filter(|_| looked_at.len() == step.limit);
    Ok(retired)
}

/// Whether a job finished before this time, left no dead letter, and was not put by its name: such a job keeps its name
/// until a user deletes it.
fn is_over(tx: &mut Tx<'_>, job: JobId, changed_at: Timestamp, before: Timestamp) -> Result<bool, Fault> {
    if changed_at >= before || tx.is_unfinished(job)? {
        return Ok(false);
    }
    let named = params![job.as_bytes(), KeyKind::Name.code()];
    if tx.conn.prepare_cached("SELECT 1 FROM job_keys WHERE job = ?1 AND kind = ?2")?.exists(named)? {
        return Ok(false);
    }
    let last =
        one_readable(&mut *tx.conn.prepare_cached(LAST_COMPLETED)?, [job.as_bytes()], |row| time(row, 0))?;
    let mut dead = tx.conn.prepare_cached("SELECT 1 FROM dead_letters WHERE job = ?1")?;
    Ok(last.is_none_or(|last| last < before) && !dead.exists([job.as_bytes()])?)
}

/// Deletes the rest of deleted jobs without live executions: up to `count` rows in all. A job with an
/// execution that ended after `before` stays, because readers of events may not have seen the end yet.
fn purge(tx: &mut Tx<'_>, before: Timestamp, count: usize) -> Result<Purged, Fault> {
    let mut select = tx.conn.prepare_cached(PURGEABLE)?;
    let bounds = params![bound(count), before.as_micros()];
    let jobs = up_to(count, &mut select, bounds, |row| job_id(row, 0))?;
    let mut purged = Purged { jobs: vec![], more: false };
    let mut is_cut_off = jobs.len() == count;
    let mut left = count;
    let mut lanes = BTreeSet::new();
    if !jobs.is_empty() {
        let given = tx.memory.history.given(tx.conn)?;
        tx.conn.prepare_cached(KEEP_BOUNDS)?.execute(params![given, 0])?;
    }
    for job in jobs {
        if tx.conn.prepare_cached(ENDED_SINCE)?.exists(params![job.as_bytes(), before.as_micros()])? {
            continue;
        }
        for sql in [PURGE_HISTORY, PURGE_SKIPPED] {
            let bounds = params![job.as_bytes(), limit(left)];
            left -= tx.conn.prepare_cached(sql)?.execute(bounds)?;
        }
        if left == 0 {
            is_cut_off = true;
            break;
        }
        tx.forget_tags(job)?;
        let mut delete = tx.conn.prepare_cached("DELETE FROM jobs WHERE id = ?1 RETURNING lane")?;
        lanes.extend(one(&mut delete, [job.as_bytes()], |row| Ok(row.get::<_, i64>(0)?))?);
        left -= 1;
        purged.jobs.push(job);
    }
    unused::forget_these_lanes(tx, lanes)?;
    // If nothing could be deleted, the jobs are not old enough, and an immediate retry would not help.
    purged.more = is_cut_off && left < count;
    Ok(purged)
}

fn write_number(tx: &mut Tx<'_>, mark: StoredNumber, at: Timestamp) -> Result<(), Fault> {
    tx.conn
        .prepare_cached("INSERT INTO probe (id, at) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET at = ?2")?
        .execute(params![mark.id(), at.as_micros()])?;
    Ok(())
}
