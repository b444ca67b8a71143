//! Due schedules and occurrences.

use super::Reads;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::malformed::readable;
use crate::server::rows::{DueEntry, read_due_live, read_due_schedule};
use deadpool_postgres::GenericClient;
use futures_util::future::try_join;
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{Due, StoreError};
use punctual_core::time::Timestamp;

pub(crate) const DUE_SCHEDULES: &str = "SELECT due.due_at, due.lane, due.job, due.version \
     FROM unnest($1::smallint[]) AS wanted (segment) CROSS JOIN LATERAL \
     (SELECT due_at, lane, job, version FROM schedules WHERE schedules.segment = wanted.segment AND due_at <= $2 \
     ORDER BY due_at LIMIT $3) AS due";
pub(crate) const DUE_LIVE: &str = "SELECT due.look_at, due.lane, due.job, due.occurrence, due.attempt \
     FROM unnest($1::smallint[]) AS wanted (segment) CROSS JOIN LATERAL \
     (SELECT look_at, lane, job, occurrence, attempt FROM live WHERE live.segment = wanted.segment \
     AND look_at IS NOT NULL AND look_at <= $2 ORDER BY look_at LIMIT $3) AS due";

impl<C: GenericClient> Reads<'_, C> {
    /// What becomes due in these segments up to `until`, earliest first, at most `count` of each kind and
    /// segment.
    pub async fn due(
        &self,
        segments: SegmentSet,
        until: Timestamp,
        count: usize,
    ) -> Result<Vec<Due>, StoreError> {
        Ok(self.due_in(segments, until, count).await?)
    }

    async fn due_in(&self, segments: SegmentSet, until: Timestamp, count: usize) -> Result<Vec<Due>, Fault> {
        let segments: Vec<i16> = segments.iter().map(|segment| i16::from(segment.index())).collect();
        let (until, most) = (until.as_micros(), limit(count));
        let (schedules, lives) = try_join(
            self.all(DUE_SCHEDULES, &[&segments, &until, &most]),
            self.all(DUE_LIVE, &[&segments, &until, &most]),
        )
        .await?;
        let schedules = schedules.iter().map(read_due_schedule);
        let mut found: Vec<DueEntry> = readable(schedules.chain(lives.iter().map(read_due_live)))?;
        found.sort_by_key(|(at, _, what)| (*at, *what));
        let lanes = self.named_lanes(found.iter().map(|(_, lane, _)| *lane)).await?;
        let due =
            found.into_iter().map(|(at, lane, what)| Ok(Due { at, lane: lanes.lane(lane)?.clone(), what }));
        readable(due)
    }
}
