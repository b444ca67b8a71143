//! Re-admission of queued executions after the limits of their queue have become tighter: in bounded steps,
//! the last in rank first (decision 0023).

use super::begin::effects;
use super::missing_rows::each;
use crate::fault::Fault;
use crate::rows::{LiveRow, Rows};
use punctual_core::limiter::{LimiterId, WaitList};
use punctual_core::limits;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Admitted, CommitEffects, QueueRow};
use punctual_core::readmission::{QueuePosition, Readmission};
use punctual_core::time::Timestamp;

/// One step, of at most `count` executions. Until the last step is done, the wait lists of the queue do not
/// move. Otherwise an admitted execution would have to go back, or would pass others that have to go back.
/// Until then, joined wait lists are not reported in the commit effects.
pub(super) fn readmit<R: Rows>(
    rows: &mut R,
    queue: QueueRow,
    readmission: Readmission,
    now: Timestamp,
    count: usize,
) -> Result<Admitted, Fault> {
    let line = WaitList::of_queue(&queue.queue);
    let used = rows.limiter(&line)?;
    let most = queue.settings.limits.concurrency;
    let mut too_many = most.map_or(0, |most| used.in_use.saturating_sub(u64::from(most)));
    let mut asked = count.min(limits::PLACED_PER_STEP_MAX);
    if !readmission.is_for_all() {
        asked = asked.min(usize::try_from(too_many).unwrap_or(usize::MAX));
    }
    let places = last_queued(rows, &queue, readmission, asked)?;
    let mut all_effects = CommitEffects::default();
    for (row, key) in
        each(rows, &places, |rows, place| queued(rows, &queue, readmission, place))?.into_iter().flatten()
    {
        let placed = match key {
            Some(key) => Live { limiter: Some(key), ..row.live.clone() }.in_line(key)?,
            None if readmission.all || too_many > 0 => row.live.in_line(line.id())?,
            None => continue,
        };
        rows.update_live(&row, &placed)?;
        let lane = rows.lane(row.lane)?;
        all_effects.due.extend(effects(&placed, &lane).due);
        too_many = too_many.saturating_sub(1);
    }
    let is_done = places.len() < asked || !readmission.is_for_all() && too_many == 0;
    if is_done && readmission.all {
        // Everything that counts now is running: it was claimed before the rate reached it.
        let at = queue.settings.limits.of_queue().start_of_running(&rows.limiter(&line)?, now);
        at.map_or(Ok(()), |at| rows.set_last_start(line.id(), at))?;
    }
    let reached = places.last().copied().or(readmission.reached);
    let left = (!is_done).then_some(Readmission { reached, ..readmission });
    rows.put_queue(&QueueRow { readmission: left, ..queue })?;
    let mut admitted = Admitted { effects: all_effects, is_look_due: is_done, ..Admitted::default() };
    if rows.limiter(&line)?.waiting > 0 {
        admitted.waiting.push((line.clone(), None));
    }
    admitted.more.extend((!is_done).then_some(line));
    Ok(admitted)
}

/// The positions of the last queued executions that no step has handled yet.
fn last_queued<R: Rows>(
    rows: &mut R,
    queue: &QueueRow,
    readmission: Readmission,
    count: usize,
) -> Result<Vec<QueuePosition>, Fault> {
    if count == 0 {
        return Ok(vec![]);
    }
    rows.last_queued(&queue.queue, readmission.reached.unwrap_or(QueuePosition::LAST), count)
}

/// The execution at this position if it is still queued there, and the limiter of its key if it has to go
/// back to that limit.
fn queued<R: Rows>(
    rows: &mut R,
    queue: &QueueRow,
    readmission: Readmission,
    place: &QueuePosition,
) -> Result<Option<(LiveRow, Option<LimiterId>)>, Fault> {
    // Both are requested before either is used, so that one round loads them.
    let found = rows.live(place.occurrence);
    let is_keyed = readmission.keys && !queue.settings.limits.of_key().is_none();
    let terms = if is_keyed { rows.terms_of(place.occurrence.job)? } else { None };
    let Some(row) = found?.filter(|row| row.live.state == LiveState::Queued) else { return Ok(None) };
    if rows.lane(row.lane)?.queue() != queue.queue {
        return Ok(None);
    }
    let key = terms.and_then(|terms| terms.settings.concurrency_key);
    Ok(Some((row, key.map(|key| LimiterId::of_key(&queue.queue, &key)))))
}
