//! Limits: a ready execution passes the limits of its queue or joins a wait list, and executions leave the
//! wait lists when there is room (decision 0023). The adapters update the counters together with the rows;
//! the verbs do not.

use super::begin::effects;
use super::missing_rows::each;
use super::queues;
use super::readmission::readmit;
use crate::fault::Fault;
use crate::rows::{LiveRow, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::gates::Gate;
use punctual_core::job::Job;
use punctual_core::limiter::{LimiterId, WaitList};
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Admitted, CommitEffects, Lane, QueueRow};
use punctual_core::time::Timestamp;

/// Lets a ready execution pass if the limits of its queue have room; otherwise puts it on a wait list. A
/// queue without limits costs one lookup in memory. `key` is called for the job's `concurrency_key` only if
/// keys are limited.
pub(super) fn pass<R: Rows>(
    rows: &mut R,
    live: Live,
    lane: &Lane,
    now: Timestamp,
    key: impl FnOnce(&mut R) -> Result<Option<String>, Fault>,
) -> Result<Live, Fault> {
    if live.state != LiveState::Queued {
        return Ok(live);
    }
    let Some(queue) = limited(rows, lane.queue())? else {
        // It may come from a queue that had limits.
        return Ok(Live { limiter: None, ..live });
    };
    let key = if queue.settings.limits.of_key().is_none() { None } else { key(rows)? };
    let limiter = key.map(|key| LimiterId::of_key(lane.queue(), &key));
    let live = Live { limiter, ..live };
    if let Some(key) = limiter
        && !passes(rows, &WaitList { queue: lane.queue().to_owned(), key: Some(key) }, &queue, now)?
    {
        return Ok(live.in_line(key)?);
    }
    past_key(rows, live, &queue, now)
}

/// The same, reading the key from the wide row of the job.
pub(super) fn pass_by_job<R: Rows>(
    rows: &mut R,
    live: Live,
    lane: &Lane,
    now: Timestamp,
) -> Result<Live, Fault> {
    let job = live.id.job;
    pass(rows, live, lane, now, |rows| {
        Ok(rows.terms_of(job)?.and_then(|terms| terms.settings.concurrency_key))
    })
}

/// Continues with an execution that has passed the limit of its key, if there was one.
fn past_key<R: Rows>(rows: &mut R, live: Live, queue: &QueueRow, now: Timestamp) -> Result<Live, Fault> {
    let line = WaitList::of_queue(&queue.queue);
    if queue.settings.limits.of_queue().is_none() || passes(rows, &line, queue, now)? {
        return Ok(live);
    }
    Ok(live.in_line(line.id())?)
}

/// Whether the wait list may move, is empty and its limit has room. If so, counts one more start.
fn passes<R: Rows>(rows: &mut R, line: &WaitList, queue: &QueueRow, now: Timestamp) -> Result<bool, Fault> {
    if is_holding_wait_lists(rows, queue)? {
        return Ok(false);
    }
    let limit = queue.settings.limits.of(line);
    let used = rows.limiter(line)?;
    let is_waited_in = used.waiting > 0 && !planted(Defect::PassTheLine);
    if is_waited_in || limit.room(&used, now) == 0 {
        return Ok(false);
    }
    if let Some(at) = limit.start_of_one(used.last_at, now) {
        rows.set_last_start(line.id(), at)?;
    }
    Ok(true)
}

/// The state of an execution that is returned unstarted: it stays admitted. It joins a wait list only if limits have
/// become tighter since, so that the limit is exceeded or it was not admitted under its key. A start that was counted
/// for it is not counted again.
pub(super) fn stay_admitted<R: Rows>(
    rows: &mut R,
    live: Live,
    lane: &Lane,
    key: Option<&str>,
) -> Result<Live, Fault> {
    let Some(queue) = limited(rows, lane.queue())?.filter(|_| live.state == LiveState::Queued) else {
        return Ok(live);
    };
    let limits = &queue.settings.limits;
    if let Some(key) = key.filter(|_| !limits.of_key().is_none()) {
        let key = LimiterId::of_key(lane.queue(), key);
        let line = WaitList { queue: lane.queue().to_owned(), key: Some(key) };
        if live.limiter != Some(key) || has_too_many(rows, &line, &queue)? {
            return Ok(Live { limiter: Some(key), ..live }.in_line(key)?);
        }
    }
    let line = WaitList::of_queue(lane.queue());
    if has_too_many(rows, &line, &queue)? {
        return Ok(live.in_line(line.id())?);
    }
    Ok(live)
}

/// Whether a limit is exceeded. Without a limit nothing is looked up.
fn has_too_many<R: Rows>(rows: &mut R, line: &WaitList, queue: &QueueRow) -> Result<bool, Fault> {
    let limit = queue.settings.limits.of(line);
    Ok(limit.concurrency.is_some() && limit.is_exceeded(&rows.limiter(line)?))
}

/// The queue, if it has limits.
fn limited<R: Rows>(rows: &mut R, queue: &str) -> Result<Option<QueueRow>, Fault> {
    Ok(rows.queue(queue)?.filter(|row| row.settings.limits.hold_anything()))
}

/// Whether nothing may pass the limits of a queue for now, so that no start is counted.
fn is_holding_wait_lists<R: Rows>(rows: &mut R, queue: &QueueRow) -> Result<bool, Fault> {
    let is_held = queue.holds_its_lines() || queues::is_cluster_paused(rows)?;
    Ok(is_held && !planted(Defect::MoveWhilePaused))
}

/// The wait lists that may move after this row has ended or has gone back to waiting. It may miss a queue
/// that just got its first limit; the regular scan of all wait lists finds that.
pub(super) fn freed<R: Rows>(rows: &mut R, row: &LiveRow) -> Result<Vec<WaitList>, Fault> {
    if !row.live.counts_for_queue() && !row.live.counts_for_key() {
        return Ok(vec![]);
    }
    let lane = rows.lane(row.lane)?;
    let seen = rows.queue_as_seen(lane.queue())?;
    if !seen.is_some_and(|row| row.settings.limits.hold_anything()) {
        return Ok(vec![]);
    }
    let key = row.live.limiter.map(|key| WaitList { queue: lane.queue().to_owned(), key: Some(key) });
    Ok([WaitList::of_queue(lane.queue())].into_iter().chain(key).collect())
}

/// Re-admits the unstarted open occurrences of a job whose queue or key has changed. Occurrences that run
/// keep counting where they are, and do not wait again.
pub(super) fn readmit_job<R: Rows>(
    rows: &mut R,
    job: &Job,
    lane: &Lane,
    now: Timestamp,
) -> Result<CommitEffects, Fault> {
    let limits = rows.queue(lane.queue())?.map(|row| row.settings.limits).unwrap_or_default();
    let key = job.spec.settings.concurrency_key.as_deref().filter(|_| !limits.of_key().is_none());
    let limiter = key.map(|key| LimiterId::of_key(lane.queue(), key));
    let queue = (!limits.of_queue().is_none()).then(|| LimiterId::of_queue(lane.queue()));
    let mut all_effects = CommitEffects::default();
    for row in rows.open_of_job(job.id)? {
        let ready = match row.live.state {
            LiveState::Queued => row.live.clone(),
            LiveState::Waiting(_) if row.live.line.is_some() => {
                row.live.gate_opened(Gate::Concurrency, now)?
            }
            _ => continue,
        };
        let ready = Live { limiter, ..ready };
        let placed = match limiter.or(queue).filter(|_| ready.state == LiveState::Queued) {
            Some(line) => ready.in_line(line)?,
            None => ready,
        };
        if placed != row.live {
            rows.update_live(&row, &placed)?;
            all_effects.add(effects(&placed, lane));
        }
    }
    Ok(all_effects)
}

/// Admits the heads of these wait lists as far as there is room, up to `count` of each. In a queue whose
/// limits have become tighter, this happens only after re-admission is complete.
pub(super) fn admit<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    lines: &[WaitList],
    count: usize,
) -> Result<Admitted, Fault> {
    let mut admitted = Admitted::default();
    for one in each(rows, lines, |rows, line| admit_one(rows, now, line, count))? {
        admitted.effects.add(one.effects);
        admitted.waiting.extend(one.waiting);
        admitted.more.extend(one.more);
        admitted.is_look_due |= one.is_look_due;
    }
    Ok(admitted)
}

fn admit_one<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    line: &WaitList,
    count: usize,
) -> Result<Admitted, Fault> {
    let queue = rows.queue(&line.queue)?.unwrap_or_else(|| QueueRow::unset(&line.queue));
    if let Some(readmission) = queue.readmission.filter(|_| line.key.is_none()) {
        return readmit(rows, queue, readmission, now, count);
    }
    let limit = queue.settings.limits.of(line);
    let used = rows.limiter(line)?;
    let mut admitted = Admitted::default();
    if is_holding_wait_lists(rows, &queue)? {
        admitted.waiting.extend((used.waiting > 0).then(|| (line.clone(), None)));
        return Ok(admitted);
    }
    let room = limit.room(&used, now).min(used.waiting);
    if room > 0 {
        let heads = heads(rows, line, usize::try_from(room).unwrap_or(usize::MAX).min(count))?;
        for row in &heads {
            admitted.effects.add(admit_first(rows, row, line, &queue, now)?);
        }
        let left = rows.limiter(line)?;
        let has_more = !heads.is_empty() && left.waiting > 0 && limit.room(&left, now) > 0;
        admitted.more.extend(has_more.then(|| line.clone()));
    }
    let left = rows.limiter(line)?;
    if left.waiting > 0 {
        admitted.waiting.push((line.clone(), limit.opens_at(&left)));
    }
    Ok(admitted)
}

/// The executions to admit next.
fn heads<R: Rows>(rows: &mut R, line: &WaitList, count: usize) -> Result<Vec<LiveRow>, Fault> {
    if !planted(Defect::AdmitTheLast) {
        return rows.first_on_wait_list(line, count);
    }
    let all = rows.first_on_wait_list(line, usize::MAX)?;
    Ok(all.into_iter().rev().take(count).collect())
}

/// Admits the first execution of the wait list. If another gate holds it, it leaves the wait list and
/// returns when that gate opens.
fn admit_first<R: Rows>(
    rows: &mut R,
    row: &LiveRow,
    line: &WaitList,
    queue: &QueueRow,
    now: Timestamp,
) -> Result<CommitEffects, Fault> {
    let mut live = row.live.gate_opened(Gate::Concurrency, now)?;
    if live.state == LiveState::Queued {
        let used = rows.limiter(line)?;
        let limit = queue.settings.limits.of(line);
        let start = limit.start_of_one(used.last_at, now).filter(|_| !planted(Defect::ForgetPace));
        if let Some(at) = start {
            rows.set_last_start(line.id(), at)?;
        }
        if line.key.is_some() {
            live = past_key(rows, live, queue, now)?;
        }
    }
    rows.update_live(row, &live)?;
    let lane = rows.lane(row.lane)?;
    Ok(effects(&live, &lane))
}
