//! The ends of attempts: history, then the next attempt or the end of the occurrence, and the consequences of that.

use super::begin::{effects, schedule_due};
use super::{dependents, wait_lists};
use crate::counters;
use crate::fault::Fault;
use crate::rows::{JobTerms, LiveRow, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::limits;
use punctual_core::occurrence::{Lease, Live, Next, OccurrenceFlags, ReportedEnd, Settled};
use punctual_core::ports::CommitEffects;
use punctual_core::schedule::Present;
use punctual_core::time::Timestamp;

/// The result of an attempt that has ended.
pub(super) struct Recorded {
    /// The status in history.
    pub status: Status,
    pub is_retried: bool,
    pub effects: CommitEffects,
}

/// Ends an attempt according to the rules.
pub(super) fn settle<R: Rows>(
    rows: &mut R,
    row: &LiveRow,
    held: Lease,
    end: ReportedEnd,
    now: Timestamp,
) -> Result<Recorded, Fault> {
    let is_plain_success = end.ending == Ending::Succeeded && !held.cancel_requested;
    // The common case needs nothing from the wide job row.
    let terms = if is_plain_success { None } else { rows.terms_of(row.live.id.job)? };
    let settled = row.live.settled(end, terms.as_ref().map(JobTerms::terms), now)?;
    record(rows, row, settled, now)
}

/// Records an attempt that has ended, and everything that follows from it.
pub(super) fn record<R: Rows>(
    rows: &mut R,
    row: &LiveRow,
    settled: Settled,
    now: Timestamp,
) -> Result<Recorded, Fault> {
    let (id, status) = (settled.finished.id, settled.finished.status);
    let freed = wait_lists::freed(rows, row)?;
    match write(rows, row, settled, now)? {
        SettledState::Retried(next) => {
            let lane = rows.lane(row.lane)?;
            let effects = CommitEffects { freed, ..effects(&next, &lane) };
            return Ok(Recorded { status, is_retried: true, effects });
        }
        SettledState::Closed(JobAfterEnd::Something) => {}
        SettledState::Closed(JobAfterEnd::Nothing { before, after }) => {
            rows.counters().job(counters::status(before, true), counters::status(after, false));
        }
    }
    let mut effects = CommitEffects { freed, ..CommitEffects::default() };
    if !row.live.is_running() {
        effects.ended.push((id, status));
    }
    let flags = row.live.flags;
    if flags.followed || flags.awaited {
        effects.add(follow(rows, id.occurrence.job, flags, status == Status::Succeeded, now)?);
    }
    Ok(Recorded { status, is_retried: false, effects })
}

/// The new state of a live row whose attempt has ended.
pub(super) enum SettledState {
    Retried(Live),
    Closed(JobAfterEnd),
}

/// Whether a job is unfinished after one of its occurrences has ended.
pub(super) enum JobAfterEnd {
    Something,
    Nothing { before: StoredStatus, after: StoredStatus },
}

/// Records an attempt that has ended. The caller must count a change of the job's status.
pub(super) fn write<R: Rows>(
    rows: &mut R,
    row: &LiveRow,
    settled: Settled,
    now: Timestamp,
) -> Result<SettledState, Fault> {
    let worker = match settled.finished.session {
        Some(session) => rows.worker_of(session)?,
        None => None,
    };
    rows.append_history(&settled.finished, worker)?;
    match settled.next {
        Next::Retry(next) => {
            rows.update_live(row, &next)?;
            Ok(SettledState::Retried(next))
        }
        Next::Closed { dead_letter, job_mark } => {
            let left = close(rows, row, job_mark)?;
            if dead_letter {
                rows.insert_dead_letter(&settled.finished, row.live.flags.noted, now)?;
            } else if row.live.flags.noted {
                rows.forget_notes(row.live.id)?;
            }
            Ok(SettledState::Closed(left))
        }
    }
}

/// Deletes the live row. If nothing is left of a one-shot job that did not succeed, sets its stored status.
fn close<R: Rows>(rows: &mut R, row: &LiveRow, mark: Option<StoredStatus>) -> Result<JobAfterEnd, Fault> {
    let job = row.live.id.job;
    rows.delete_live(row)?;
    // The common case: nothing is left, and no lookup is needed to know that.
    if row.is_sole && mark.is_none() {
        return Ok(JobAfterEnd::Nothing { before: StoredStatus::Active, after: StoredStatus::Active });
    }
    if rows.is_unfinished(job)? {
        return Ok(JobAfterEnd::Something);
    }
    // The status of a job with a malformed row is unknown, so its counters stay as they are.
    let Some(before) = rows.mark_of(job)? else { return Ok(JobAfterEnd::Something) };
    if let Some(mark) = mark {
        rows.set_mark(job, mark)?;
    }
    Ok(JobAfterEnd::Nothing { before, after: mark.unwrap_or(before) })
}

/// Handles the end of an occurrence with these flags: the next waiting occurrence may start, a replay that
/// waits for room is retried, and dependent jobs are resolved.
pub(super) fn follow<R: Rows>(
    rows: &mut R,
    job: JobId,
    flags: OccurrenceFlags,
    succeeded: bool,
    now: Timestamp,
) -> Result<CommitEffects, Fault> {
    let mut effects = CommitEffects::default();
    if flags.followed && !planted(Defect::ForgetFollower) {
        effects.add(start_next_waiting(rows, job, now)?);
        effects.add(wake_replay(rows, job, now)?);
    }
    if flags.awaited {
        dependents::ended(rows, job, succeeded)?;
        effects.add(dependents::resolve(rows, now, limits::DEPENDENTS_PER_STEP_MAX)?.effects);
    }
    Ok(effects)
}

/// Makes a replay that waits for room due, if there is room now.
fn wake_replay<R: Rows>(rows: &mut R, job: JobId, now: Timestamp) -> Result<CommitEffects, Fault> {
    let Some(row) = rows.schedule(job)?.filter(|row| row.state.sleeps(now)) else {
        return Ok(CommitEffects::default());
    };
    let left = Present::from(rows.count_open(job)?);
    let Some(woken) = row.state.woken(now, &left) else { return Ok(CommitEffects::default()) };
    rows.advance_schedule(&woken)?;
    let lane = rows.lane(row.lane)?;
    Ok(CommitEffects { due: schedule_due(&woken, &lane).into_iter().collect(), ..CommitEffects::default() })
}

/// Opens the overlap gate of the first occurrence behind it, unless an occurrence is open that does not
/// wait there.
pub(super) fn start_next_waiting<R: Rows>(
    rows: &mut R,
    job: JobId,
    now: Timestamp,
) -> Result<CommitEffects, Fault> {
    if rows.has_open_not_waiting(job)? {
        return Ok(CommitEffects::default());
    }
    let Some(row) = rows.first_behind(job, Gate::Overlap)? else { return Ok(CommitEffects::default()) };
    let lane = rows.lane(row.lane)?;
    let opened = row.live.gate_opened(Gate::Overlap, now)?;
    let opened = wait_lists::pass_by_job(rows, opened, &lane, now)?;
    rows.update_live(&row, &opened)?;
    Ok(effects(&opened, &lane))
}
