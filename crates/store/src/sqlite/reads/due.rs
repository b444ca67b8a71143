//! Due schedules and occurrences.

use super::Reads;
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::sqlite::rows::{bound, job_id, time, up_to};
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{Due, DueKind, StoreError};
use punctual_core::time::Timestamp;
use rusqlite::{Row, params};

pub(crate) const DUE_SCHEDULES: &str = "SELECT due_at, lane, job, version FROM schedules \
     WHERE segment = ?1 AND due_at <= ?2 ORDER BY due_at LIMIT ?3";
pub(crate) const DUE_LIVE: &str = "SELECT look_at, lane, job, occurrence, attempt FROM live \
     WHERE segment = ?1 AND look_at IS NOT NULL AND look_at <= ?2 ORDER BY look_at LIMIT ?3";

impl Reads<'_> {
    /// What becomes due in these segments up to `until`, earliest first, at most `count` of each kind and
    /// segment.
    pub fn due(
        &mut self,
        segments: SegmentSet,
        until: Timestamp,
        count: usize,
    ) -> Result<Vec<Due>, StoreError> {
        Ok(self.due_in(segments, until, count)?)
    }

    fn due_in(&mut self, segments: SegmentSet, until: Timestamp, count: usize) -> Result<Vec<Due>, Fault> {
        let mut schedules = self.conn.prepare_cached(DUE_SCHEDULES)?;
        let mut lives = self.conn.prepare_cached(DUE_LIVE)?;
        let mut found = Vec::new();
        for segment in segments.iter() {
            let bounds = params![segment.index(), until.as_micros(), bound(count)];
            found.extend(up_to(count, &mut schedules, bounds, read_schedule)?);
            found.extend(up_to(count, &mut lives, bounds, read_live)?);
        }
        found.sort_by_key(|(at, _, what)| (*at, *what));
        let mut due = Vec::with_capacity(found.len());
        for (at, lane, what) in found {
            let lane = pass_over(self.lanes.lane(self.conn, lane))?;
            due.extend(lane.map(|lane| Due { at, lane, what }));
        }
        Ok(due)
    }
}

type DueEntry = (Timestamp, i64, DueKind);

fn read_schedule(row: &Row<'_>) -> Result<DueEntry, Fault> {
    let what = DueKind::Schedule { job: job_id(row, 2)?, version: row.get(3)? };
    Ok((time(row, 0)?, row.get(1)?, what))
}

fn read_live(row: &Row<'_>) -> Result<DueEntry, Fault> {
    let occurrence = job_id(row, 2)?.occurrence(row.get(3)?);
    Ok((time(row, 0)?, row.get(1)?, DueKind::Live { occurrence, attempt: row.get(4)? }))
}
