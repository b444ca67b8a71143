//! Due schedules and occurrences.

use super::Reads;
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::server::rows::{read_due_live, read_due_schedule};
use crate::sqlite::rows::{bound, up_to};
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{Due, StoreError};
use punctual_core::time::Timestamp;
use rusqlite::params;

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
            found.extend(up_to(count, &mut schedules, bounds, |row| read_due_schedule(row))?);
            found.extend(up_to(count, &mut lives, bounds, |row| read_due_live(row))?);
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
