//! Due schedules and occurrences.

use super::{Query, ReadKind, Reads};
use crate::codecs::limit;
use crate::fault::Fault;
use crate::malformed::readable;
use crate::reads::rows::{DueEntry, read_due_live, read_due_schedule};
use crate::row_list::{self, row};
use punctual_core::ids::SegmentSet;
use punctual_core::ports::Due;
use punctual_core::time::Timestamp;

impl Reads<'_> {
    /// Due times in these segments up to `until`, earliest first, at most `count` of each kind and segment.
    pub async fn due(
        &mut self,
        segments: SegmentSet,
        until: Timestamp,
        count: usize,
    ) -> Result<Vec<Due>, Fault> {
        let query = |read| {
            let segments = row_list::numbers(segments.iter().map(|segment| segment.index().into()));
            Query::listed(read, segments).with(row![until, limit(count)])
        };
        let [schedules, lives] =
            self.fetch([query(ReadKind::DueSchedules), query(ReadKind::DueLive)]).await?;
        let schedules = schedules.iter().map(read_due_schedule);
        let mut found: Vec<DueEntry> = readable(schedules.chain(lives.iter().map(read_due_live)))?;
        found.sort_by_key(|(at, _, what)| (*at, *what));
        let lanes = self.lanes(found.iter().map(|(_, lane, _)| *lane)).await?;
        let due =
            found.into_iter().map(|(at, lane, what)| Ok(Due { at, lane: lanes.lane(lane)?.clone(), what }));
        readable(due)
    }
}
