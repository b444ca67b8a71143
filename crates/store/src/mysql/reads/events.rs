//! Events of executions for readers that follow them: finished executions ordered by position, and the
//! state of open ones.
//!
//! Positions are AUTO_INCREMENT numbers, which are assigned before transactions commit: a row may appear
//! below an existing one. So a follower does not go past a missing number until the row after it has
//! existed for [`SETTLE_TIME_S`]. By then the number was abandoned, or its row was deleted, or its
//! transaction has taken longer than any of ours should: **a follower may miss what such a transaction
//! appends**; lists and lookups still show it. Where Galera assigns only every n-th number, each step is
//! such a gap, and every row is reported after it has settled.
//!
//! The database's own clock tells how long a row has existed (`appended_at`). The end time of its execution
//! comes from a worker.

use super::Reads;
use super::keys::{json_of_numbers, json_of_occurrences, key};
use super::page::rows_at_once;
use crate::cells::{get, read};
use crate::codecs::{FINISHED_COLUMNS, counter, limit, read_finished, read_live};
use crate::fault::Fault;
use crate::layout::{mysql_history_columns as history_columns, mysql_live_columns as live_columns};
use crate::lists::{Room, bytes_of};
use crate::malformed::{pass_over, readable};
use crate::rows::LiveRow;
use mysql_async::Row;
use punctual_core::ids::{OccurrenceId, SessionId};
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{FinishedEvent, FinishedPage, HistorySpan, OpenExecution, Page, RunningPlace};
use std::collections::{BTreeMap, BTreeSet};

/// How long a row after a missing number is held back from followers, in seconds: longer than transactions
/// take.
const SETTLE_TIME_S: u32 = 2;

/// Whether a row has existed for the settle time.
macro_rules! is_settled {
    () => {
        "history.appended_at <= UTC_TIMESTAMP(6) - INTERVAL ? SECOND"
    };
}
pub(crate) const FINISHED_AFTER: &str = concat!(
    "SELECT ",
    history_columns!(),
    ", workers.name, history.place, jobs.lane, ",
    is_settled!(),
    " FROM history FORCE INDEX (PRIMARY) LEFT JOIN workers ON workers.id = history.worker \
     LEFT JOIN jobs ON jobs.id = history.job WHERE history.place > ? ORDER BY history.place LIMIT ?"
);
/// The latest rows, for the end of history.
pub(crate) const RECENT: &str = concat!(
    "SELECT history.place, ",
    is_settled!(),
    " FROM history FORCE INDEX (PRIMARY) WHERE history.place < ? ORDER BY history.place DESC LIMIT ?"
);
const BOUNDS: &str = "SELECT given, retained FROM history_bounds WHERE id = 1";
/// Rows of [`RECENT`] to fetch at a time, and to read in all. If more rows have not settled, the reported
/// end of history is where the read ended: a follower that starts there gets some events that are not quite
/// new.
const RECENT_AT_ONCE: usize = 1_000;
const RECENT_LOOKED_AT_MAX: usize = 20_000;

pub(crate) const OPEN: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM JSON_TABLE(?, '$[*]' COLUMNS (job CHAR(32) PATH '$[0]', number BIGINT PATH '$[1]')) AS wanted \
     STRAIGHT_JOIN live ON live.job = UNHEX(wanted.job) AND live.occurrence = wanted.number"
);
/// Only running executions have a session. The comparison of triples is spelled out: neither server uses an
/// index for `(a, b, c) > (?, ?, ?)`.
pub(crate) const RUNNING: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (live_session) WHERE live.session > ? \
     OR (live.session = ? AND (live.job > ? OR (live.job = ? AND live.occurrence > ?))) \
     ORDER BY live.session, live.job, live.occurrence LIMIT ?"
);
pub(crate) const RUNNING_FIRST: &str = concat!(
    "SELECT ",
    live_columns!(),
    " FROM live FORCE INDEX (live_session) WHERE live.session IS NOT NULL \
     ORDER BY live.session, live.job, live.occurrence LIMIT ?"
);
pub(crate) const WORKERS_OF_SESSIONS: &str = "SELECT sessions.id, workers.name \
     FROM JSON_TABLE(?, '$[*]' COLUMNS (session BIGINT PATH '$[0]')) AS wanted \
     STRAIGHT_JOIN sessions ON sessions.id = wanted.session STRAIGHT_JOIN workers ON workers.id = sessions.worker";

impl Reads {
    /// Executions that finished after a position in history, ordered by position.
    pub async fn finished_after(&mut self, after: u64, wanted: usize) -> Result<FinishedPage, Fault> {
        let wanted = wanted.clamp(1, limits::PAGE_ITEMS_MAX);
        let mut page = FinishedPage { items: vec![], looked_to: after, more: false };
        let (mut room, mut looked_at) = (Room::of(wanted), 0);
        let mut gaps = HistoryGaps::default();
        while looked_at < wanted {
            let at_once = rows_at_once(wanted).min(wanted - looked_at);
            let bounds = (SETTLE_TIME_S, counter(page.looked_to), limit(at_once));
            let rows = self.all(FINISHED_AFTER, bounds).await?;
            for row in &rows {
                let place = read(row, FINISHED_COLUMNS, "history.place")?;
                let is_settled: bool = get(row, FINISHED_COLUMNS + 2)?;
                if place > page.looked_to + 1 && !is_settled && self.may_be_filled(&mut gaps, place).await? {
                    return Ok(page);
                }
                // A job without a row is gone. A job that is only marked as deleted is still reported.
                let lane = match get::<Option<i64>>(row, FINISHED_COLUMNS + 1)? {
                    Some(lane) => pass_over(self.lane(lane).await)?,
                    None => None,
                };
                if let Some(lane) = lane
                    && let Some(finished) = pass_over(read_finished(row, 0))?
                {
                    if !room.take(bytes_of(&finished)) {
                        page.more = true;
                        return Ok(page);
                    }
                    let queue = lane.queue().to_owned();
                    page.items.push(FinishedEvent { place, queue, finished });
                }
                page.looked_to = place;
                looked_at += 1;
            }
            if rows.len() < at_once {
                return Ok(page);
            }
        }
        page.more = true;
        Ok(page)
    }

    /// Whether a missing number before this position may still appear: not if deletion has passed it.
    async fn may_be_filled(&mut self, gaps: &mut HistoryGaps, place: u64) -> Result<bool, Fault> {
        let deleted = match gaps.deleted {
            Some(deleted) => deleted,
            None => self.history_bounds().await?.deleted(),
        };
        gaps.deleted = Some(deleted);
        Ok(place > deleted + 1)
    }

    /// The range of positions in history.
    pub async fn history_span(&mut self) -> Result<HistorySpan, Fault> {
        self.begin_snapshot().await?;
        let bounds = self.history_bounds().await?;
        let recent = self.recent().await?;
        self.end_snapshot().await?;
        let ends_at = last_settled(bounds.deleted(), &recent).max(bounds.deleted());
        Ok(HistorySpan { begins_after: bounds.retained, ends_at })
    }

    async fn history_bounds(&mut self) -> Result<Bounds, Fault> {
        let row = self.one(BOUNDS, ()).await?.ok_or_else(|| Fault::Missing("history_bounds".to_owned()))?;
        Ok(Bounds {
            given: read(&row, 0, "history_bounds.given")?,
            retained: read(&row, 1, "history_bounds.retained")?,
        })
    }

    /// The positions after the last settled row, and that row's.
    async fn recent(&mut self) -> Result<Recent, Fault> {
        let (mut recent, mut before) = (Recent::default(), i64::MAX);
        while recent.places.len() < RECENT_LOOKED_AT_MAX {
            let rows = self.all(RECENT, (SETTLE_TIME_S, before, limit(RECENT_AT_ONCE))).await?;
            for row in &rows {
                let Some(place) = pass_over(read(row, 0, "history.place"))? else { continue };
                if get::<bool>(row, 1)? {
                    recent.base = Some(place);
                    return Ok(recent);
                }
                recent.places.insert(place);
                before = counter(place);
            }
            if rows.len() < RECENT_AT_ONCE {
                return Ok(recent);
            }
        }
        recent.base = recent.places.first().copied();
        Ok(recent)
    }

    /// The state of these occurrences, if they are open.
    pub async fn open_executions(&mut self, ids: &[OccurrenceId]) -> Result<Vec<OpenExecution>, Fault> {
        if ids.is_empty() {
            return Ok(vec![]);
        }
        self.begin_snapshot().await?;
        let rows = self.all(OPEN, (json_of_occurrences(ids.iter().copied()),)).await?;
        let rows = readable(rows.iter().map(|row| read_live(row, 0)))?;
        let open = self.named(rows).await?;
        self.end_snapshot().await?;
        let mut open: BTreeMap<OccurrenceId, OpenExecution> =
            open.into_iter().map(|one| (one.live.id, one)).collect();
        Ok(ids.iter().filter_map(|id| open.remove(id)).collect())
    }

    /// Running executions, a page at a time.
    pub async fn running(
        &mut self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<Page<OpenExecution, RunningPlace>, Fault> {
        let wanted = wanted.clamp(1, limits::PAGE_ITEMS_MAX);
        self.begin_snapshot().await?;
        let RunningPage { rows, read } = self.running_after(after, wanted).await?;
        let next = rows.last().filter(|_| read == wanted).and_then(place_of);
        let items = self.named(rows).await?;
        self.end_snapshot().await?;
        Ok(Page { items, next })
    }

    pub(super) async fn running_after(
        &mut self,
        after: Option<RunningPlace>,
        wanted: usize,
    ) -> Result<RunningPage, Fault> {
        let rows = match after {
            None => self.all(RUNNING_FIRST, (limit(wanted),)).await?,
            Some(RunningPlace { session: SessionId(session), occurrence: OccurrenceId { job, number } }) => {
                let bounds = (session, session, key(job), key(job), number, limit(wanted));
                self.all(RUNNING, bounds).await?
            }
        };
        let read = rows.len();
        Ok(RunningPage { rows: readable(rows.iter().map(|row| read_live(row, 0)))?, read })
    }

    /// Adds the names that rows refer to by number.
    pub(super) async fn named(&mut self, rows: Vec<LiveRow>) -> Result<Vec<OpenExecution>, Fault> {
        let sessions: BTreeSet<i64> = rows.iter().filter_map(session_of).collect();
        let workers = self.workers_of(sessions).await?;
        let mut open = Vec::with_capacity(rows.len());
        for row in rows {
            let worker = session_of(&row).and_then(|session| workers.get(&session)).cloned();
            let Some(lane) = pass_over(self.lane(row.lane).await)? else { continue };
            let (queue, job_type) = (lane.queue().to_owned(), lane.job_type().to_owned());
            open.push(OpenExecution { live: row.live, worker, queue, job_type });
        }
        Ok(open)
    }

    async fn workers_of(&mut self, sessions: BTreeSet<i64>) -> Result<BTreeMap<i64, String>, Fault> {
        if sessions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let rows = self.all(WORKERS_OF_SESSIONS, (json_of_numbers(sessions),)).await?;
        rows.iter().map(|row: &Row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }
}

/// Running executions, and how many rows were read: some may be malformed.
pub(super) struct RunningPage {
    pub rows: Vec<LiveRow>,
    pub read: usize,
}

/// What is known about missing numbers.
#[derive(Debug, Default)]
struct HistoryGaps {
    /// The last position of a deleted row, looked up at the first gap.
    deleted: Option<u64>,
}

/// What is known about deleted rows.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    given: u64,
    retained: u64,
}

impl Bounds {
    /// The last position of a deleted row. A deleted row had existed for long, and so had everything before
    /// it.
    fn deleted(self) -> u64 {
        self.given.max(self.retained)
    }
}

/// The end of history.
#[derive(Debug, Default)]
struct Recent {
    /// A position up to which everything has settled; `None` if all of history is recent.
    base: Option<u64>,
    /// The positions after it.
    places: BTreeSet<u64>,
}

/// The last position before the first missing number that may still appear.
fn last_settled(deleted: u64, recent: &Recent) -> u64 {
    let mut last = recent.base.unwrap_or(0);
    for place in &recent.places {
        if *place > last.max(deleted) + 1 {
            break;
        }
        last = last.max(*place);
    }
    last
}

pub(super) fn place_of(row: &LiveRow) -> Option<RunningPlace> {
    session_of(row).map(|session| RunningPlace { session: SessionId(session), occurrence: row.live.id })
}

fn session_of(row: &LiveRow) -> Option<i64> {
    match row.live.state {
        LiveState::Running(lease) => Some(lease.session.0),
        LiveState::Waiting(_) | LiveState::Queued => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: Option<u64>, places: &[u64], deleted: u64, expected: u64) {
        let recent = Recent { base, places: places.iter().copied().collect() };
        assert_eq!(last_settled(deleted, &recent), expected, "{recent:?} deleted {deleted}");
    }

    #[test]
    fn history_ends_before_the_first_number_that_may_still_appear() {
        check(None, &[], 0, 0);
        check(None, &[1, 2, 3], 0, 3);
        check(None, &[2, 3], 0, 0);
        check(Some(7), &[8, 9, 11, 12], 0, 9);
        check(Some(7), &[], 0, 7);
        check(Some(7), &[9], 0, 7);
    }

    #[test]
    fn what_was_deleted_is_no_gap() {
        check(None, &[3, 4], 2, 4);
        check(Some(7), &[10, 11, 13], 9, 11);
        check(Some(7), &[9, 12], 10, 9);
    }
}
