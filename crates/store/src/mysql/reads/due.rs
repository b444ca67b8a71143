//! Due schedules and occurrences.

use super::Reads;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::malformed::pass_over;
use crate::server::rows::{read_due_live, read_due_schedule};
use punctual_core::ids::SegmentSet;
use punctual_core::ports::Due;
use punctual_core::time::Timestamp;

/// Each segment is a separate branch with its own limit. The segments of a process rarely change, and so
/// does the statement.
pub(crate) fn due_schedules(segments: SegmentSet) -> String {
    each(segments, |segment| {
        format!(
            "(SELECT due_at, lane, job, version FROM schedules FORCE INDEX (schedules_due) \
             WHERE segment = {segment} AND due_at <= ? ORDER BY due_at LIMIT ?)"
        )
    })
}

pub(crate) fn due_live(segments: SegmentSet) -> String {
    each(segments, |segment| {
        format!(
            "(SELECT look_at, lane, job, occurrence, attempt FROM live FORCE INDEX (live_due) \
             WHERE segment = {segment} AND look_at <= ? ORDER BY look_at LIMIT ?)"
        )
    })
}

fn each(segments: SegmentSet, branch: impl Fn(u8) -> String) -> String {
    let branches: Vec<String> = segments.iter().map(|segment| branch(segment.index())).collect();
    branches.join(" UNION ALL ")
}

impl Reads {
    /// What becomes due in these segments up to `until`, earliest first, at most `count` of each kind and
    /// segment.
    pub async fn due(
        &mut self,
        segments: SegmentSet,
        until: Timestamp,
        count: usize,
    ) -> Result<Vec<Due>, Fault> {
        let branches = segments.iter().count();
        if branches == 0 {
            return Ok(vec![]);
        }
        let bounds = [until.as_micros(), limit(count)].repeat(branches);
        let mut found = Vec::new();
        for row in self.all(&due_schedules(segments), bounds.clone()).await? {
            found.extend(pass_over(read_due_schedule(&row))?);
        }
        for row in self.all(&due_live(segments), bounds).await? {
            found.extend(pass_over(read_due_live(&row))?);
        }
        found.sort_by_key(|(at, _, what)| (*at, *what));
        let mut due = Vec::with_capacity(found.len());
        for (at, lane, what) in found {
            let lane = pass_over(self.lane(lane).await)?;
            due.extend(lane.map(|lane| Due { at, lane, what }));
        }
        Ok(due)
    }
}
