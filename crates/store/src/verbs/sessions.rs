//! Opening sessions, heartbeats and lost sessions; recovery of the executions that lost sessions held.

use super::missing_rows::{Gaps, each};
use super::settle::{Recorded, settle};
use crate::fault::Fault;
use crate::rows::{LiveRow, Rows};
use punctual_core::ids::SessionId;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{LiveState, ReportedEnd};
use punctual_core::ports::{Beat, BeatOutcome, LeaseRef, Recovered, SessionOpening};
use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use punctual_core::time::Timestamp;

pub(super) fn open_session<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    opening: &SessionOpening,
) -> Result<SessionId, Fault> {
    rows.insert_session(opening, now)
}

pub(super) fn beat<R: Rows>(rows: &mut R, now: Timestamp, beats: &[Beat]) -> Result<Vec<BeatOutcome>, Fault> {
    each(rows, beats, |rows, beat| beat_one(rows, now, *beat))
}

fn beat_one<R: Rows>(rows: &mut R, now: Timestamp, beat: Beat) -> Result<BeatOutcome, Fault> {
    let Some(place) = rows.session(beat.session)? else { return Ok(BeatOutcome::SessionLost) };
    if beat.beat > place.beat {
        rows.set_beat(beat.session, beat.beat, now)?;
    }
    let mode = if beat.draining { SessionMode::Draining } else { place.mode };
    if mode != place.mode {
        rows.set_mode(beat.session, mode)?;
    }
    let cancel = if place.attention { cancels(rows, beat.session)? } else { vec![] };
    Ok(BeatOutcome::Counted { turn: place.turn, cancel, drain: mode == SessionMode::Draining })
}

/// Executes an order of a user to a session.
pub(super) fn order<R: Rows>(
    rows: &mut R,
    session: SessionId,
    order: SessionOrder,
) -> Result<Option<Result<SessionMode, SessionDraining>>, Fault> {
    let Some(place) = rows.session(session)? else { return Ok(None) };
    let ordered = place.mode.ordered(order);
    if let Ok(ordered) = ordered
        && ordered != place.mode
    {
        rows.set_mode(session, ordered)?;
    }
    Ok(Some(ordered))
}

/// The leases for which a cancel was requested. If there are none, clears the session's attention.
fn cancels<R: Rows>(rows: &mut R, session: SessionId) -> Result<Vec<LeaseRef>, Fault> {
    let leases = rows.cancels_of(session)?;
    if leases.is_empty() {
        rows.set_attention(session, false)?;
    }
    Ok(leases)
}

pub(super) fn lose<R: Rows>(rows: &mut R, silent: &[Pulse]) -> Result<Vec<bool>, Fault> {
    each(rows, silent, |rows, pulse| rows.lose_session(pulse.session, pulse.beat))
}

pub(super) fn lose_embedded<R: Rows>(rows: &mut R) -> Result<usize, Fault> {
    rows.lose_embedded_sessions()
}

pub(super) fn recover<R: Rows>(rows: &mut R, now: Timestamp, limit: usize) -> Result<Recovered, Fault> {
    let mut recovered = Recovered::default();
    let mut gaps = Gaps::default();
    for session in rows.lost_sessions()? {
        let left = limit - recovered.ended.len();
        // One more than the limit, to know whether there are more.
        let Some(held) = gaps.pass(rows.held_by(session, left.saturating_add(1)))? else { continue };
        for row in held.iter().take(left) {
            // If rows are missing, the verb runs again; only the number of executions matters here.
            let mut recorded = Status::Lost;
            if let Some(Recorded { status, is_retried, effects }) =
                gaps.skip_malformed(lose_execution(rows, row, now))?
            {
                recovered.effects.add(effects);
                recovered.retried.extend(is_retried.then(|| row.live.execution()));
                recorded = status;
            }
            recovered.ended.push((row.live.execution(), recorded));
        }
        if held.len() > left {
            recovered.more = true;
            break;
        }
        rows.delete_session(session)?;
    }
    gaps.close(recovered)
}

/// Ends one execution of a lost session.
fn lose_execution<R: Rows>(rows: &mut R, row: &LiveRow, now: Timestamp) -> Result<Recorded, Fault> {
    let LiveState::Running(lease) = row.live.state else {
        return Err(Fault::damaged("live_session", row.live.execution()));
    };
    let end = ReportedEnd::lost(lease.claimed_at, now);
    settle(rows, row, lease, end, now)
}
