//! Made-up jobs, with the rows that the rules would have created.

use super::BaselineOptions;
use crate::fault::Fault;
use crate::rows::LiveRow;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::occurrence::{Finished, Live, ReportedEnd};
use punctual_core::ports::Outcome;
use punctual_core::rank::Shares;
use punctual_core::schedule::{Beginning, Schedule, ScheduleState, begin};
use punctual_core::time::Timestamp;
use std::ops::Range;

/// The creation time of the jobs, in microseconds.
pub(crate) const NOW_US: i64 = 1_763_195_400_000_000;
/// How far ahead the future jobs begin, in microseconds: a year.
const AHEAD_US: i64 = 365 * 24 * 3_600 * 1_000_000;

pub(crate) const SESSION: SessionId = SessionId(1);
pub(crate) const LANE: i64 = 1;

impl BaselineOptions {
    /// The job numbers of each batch.
    pub(crate) fn batches(self) -> impl Iterator<Item = Range<usize>> {
        let (jobs, batch) = (self.jobs.max(1), self.batch.max(1));
        (0..jobs).step_by(batch).map(move |start| start..jobs.min(start + batch))
    }
}

/// The n-th no-op job and its first execution.
pub(crate) fn due_job(number: usize, payload_bytes: usize) -> (Job, LiveRow) {
    let job = job(number, Schedule::Immediate, payload_bytes);
    match begin(&job, job.created_at, false, &mut Shares::default()) {
        Beginning::Due(live) => (job, LiveRow { live, lane: LANE, is_sole: true }),
        other => unreachable!("an immediate job is due at once: {other:?}"),
    }
}

/// The n-th job of the distant future and its schedule.
pub(crate) fn future_job(number: usize, payload_bytes: usize) -> (Job, ScheduleState) {
    let at = Timestamp::from_micros(NOW_US + AHEAD_US + number as i64 * 1_000);
    let job = job(number, Schedule::OneTime { at }, payload_bytes);
    match begin(&job, job.created_at, false, &mut Shares::default()) {
        Beginning::Later(state) => (job, state),
        other => unreachable!("a job of next year is due later: {other:?}"),
    }
}

fn job(number: usize, schedule: Schedule, payload_bytes: usize) -> Job {
    let now = Timestamp::from_micros(NOW_US + number as i64);
    let mut spec = JobSpec::named("noop");
    spec.payload = payload(payload_bytes);
    spec.settings.schedule = schedule;
    Job {
        id: JobId::new(now, number as u64),
        version: 1,
        mark: StoredStatus::Active,
        numbered: None,
        fired: 0,
        created_at: now,
        updated_at: now,
        spec,
    }
}

/// A JSON string of exactly this size: the quotes count.
pub(crate) fn payload(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes.saturating_sub(2)))
}

/// The history entry of an execution that succeeded.
pub(crate) fn finished(live: &Live) -> Result<Finished, Fault> {
    let now = live.available_at;
    let end: ReportedEnd = Outcome::Succeeded { result: None }.into_end(now, now);
    Ok(live.claimed(SESSION, 1, now)?.settled(end, None, now)?.finished)
}
