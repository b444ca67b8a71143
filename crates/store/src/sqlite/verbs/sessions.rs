//! Sessions open, beat and are lost; what the lost ones held is recovered.

use super::begin::place_of;
use super::lease::{live_of_session, remove_session};
use super::report::{Recorded, Settling};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::names::intern_worker;
use crate::sqlite::rows::{Code, LiveRow, all, count, counter, decode, job_id, one};
use punctual_core::ids::{Epoch, SessionId};
use punctual_core::occurrence::{End, LiveState};
use punctual_core::ports::{Beat, BeatOutcome, LeaseRef, Recovered, SessionOpening};
use punctual_core::session::{Pulse, SessionDraining, SessionMode, SessionOrder};
use punctual_core::time::{Timestamp, duration_micros};
use rusqlite::{Connection, params};

const CANCELS_OF_SESSION: &str = "SELECT job, occurrence, attempt, epoch FROM live \
     WHERE session = ?1 AND state = 2 AND cancel_requested = 1";

pub(super) fn open_session(
    tx: &mut Tx<'_>,
    now: Timestamp,
    opening: SessionOpening,
) -> Result<SessionId, Fault> {
    let worker = intern_worker(tx.conn, &opening.worker)?;
    tx.conn
        .prepare_cached(
            "INSERT INTO sessions (worker, lease_us, embedded, job_types, slots, beat, turn, attention, lost, \
             opened_at, beaten_at, queues, version, host) VALUES (?1, ?2, ?3, ?4, ?5, 0, 0, 0, 0, ?6, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            worker,
            duration_micros(opening.lease),
            opening.embedded,
            serde_json::to_string(&opening.job_types)?,
            opening.slots,
            now.as_micros(),
            match opening.about.queues.as_slice() {
                [] => None,
                queues => Some(serde_json::to_string(queues)?),
            },
            opening.about.version,
            opening.about.host,
        ])?;
    Ok(SessionId(tx.conn.last_insert_rowid()))
}

pub(super) fn beat(tx: &mut Tx<'_>, now: Timestamp, beats: Vec<Beat>) -> Result<Vec<BeatOutcome>, Fault> {
    beats.into_iter().map(|beat| beat_one(tx.conn, now, beat)).collect()
}

fn beat_one(conn: &Connection, now: Timestamp, beat: Beat) -> Result<BeatOutcome, Fault> {
    let mut select =
        conn.prepare_cached("SELECT beat, attention, turn, mode FROM sessions WHERE id = ?1 AND lost = 0")?;
    let found = one(&mut select, [beat.session.0], |row| {
        let mode: SessionMode = decode(row, 3, "sessions.mode")?;
        Ok((count(row, 0, "sessions.beat")?, row.get::<_, bool>(1)?, count(row, 2, "sessions.turn")?, mode))
    })?;
    let Some((counted, attention, turn, mode)) = found else { return Ok(BeatOutcome::SessionLost) };
    if beat.beat > counted {
        conn.prepare_cached("UPDATE sessions SET beat = ?2, beaten_at = ?3 WHERE id = ?1")?
            .execute(params![beat.session.0, counter(beat.beat), now.as_micros()])?;
    }
    let cancel = if attention { cancels(conn, beat.session)? } else { vec![] };
    Ok(BeatOutcome::Counted { turn, cancel, drain: mode == SessionMode::Draining })
}

/// Carries out what people ask of a session.
pub(super) fn order(
    tx: &mut Tx<'_>,
    session: SessionId,
    order: SessionOrder,
) -> Result<Option<Result<SessionMode, SessionDraining>>, Fault> {
    let Some((_, mode)) = place_of(tx.conn, session)? else { return Ok(None) };
    let ordered = mode.ordered(order);
    if let Ok(ordered) = ordered
        && ordered != mode
    {
        tx.conn
            .prepare_cached("UPDATE sessions SET mode = ?2 WHERE id = ?1")?
            .execute(params![session.0, ordered.code()])?;
    }
    Ok(Some(ordered))
}

/// The leases whose cancel is requested. When none is left, the session needs no attention any more.
fn cancels(conn: &Connection, session: SessionId) -> Result<Vec<LeaseRef>, Fault> {
    let mut select = conn.prepare_cached(CANCELS_OF_SESSION)?;
    let leases = all(&mut select, [session.0], |row| {
        let execution = job_id(row, 0)?.occurrence(row.get(1)?).attempt(row.get(2)?);
        Ok(LeaseRef { execution, epoch: Epoch(row.get(3)?) })
    })?;
    if leases.is_empty() {
        conn.prepare_cached("UPDATE sessions SET attention = 0 WHERE id = ?1")?.execute([session.0])?;
    }
    Ok(leases)
}

pub(super) fn lose(tx: &mut Tx<'_>, silent: Vec<Pulse>) -> Result<Vec<bool>, Fault> {
    let mut update =
        tx.conn.prepare_cached("UPDATE sessions SET lost = 1 WHERE id = ?1 AND beat = ?2 AND lost = 0")?;
    let mut select = tx.conn.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND lost = 1")?;
    let mut lost = Vec::with_capacity(silent.len());
    for pulse in silent {
        let is_lost_by_this = update.execute(params![pulse.session.0, counter(pulse.beat)])? == 1;
        lost.push(is_lost_by_this || select.exists([pulse.session.0])?);
    }
    Ok(lost)
}

pub(super) fn lose_embedded(tx: &mut Tx<'_>) -> Result<usize, Fault> {
    Ok(tx.conn.execute("UPDATE sessions SET lost = 1 WHERE embedded = 1 AND lost = 0", [])?)
}

pub(super) fn recover(tx: &mut Tx<'_>, now: Timestamp, limit: usize) -> Result<Recovered, Fault> {
    let mut recovered = Recovered::default();
    for session in lost_sessions(tx.conn)? {
        let left = limit - recovered.lost.len();
        // One more than may be taken, to know whether that is all.
        let rows = live_of_session(tx.conn, session, left.saturating_add(1))?;
        for row in rows.iter().take(left) {
            let Recorded { is_retried, begun } = lose_execution(tx, row, now)?;
            recovered.begun.add(begun);
            recovered.retried += usize::from(is_retried);
            recovered.lost.push(row.live.execution());
        }
        if rows.len() > left {
            recovered.more = true;
            break;
        }
        remove_session(tx, session)?;
    }
    Ok(recovered)
}

fn lost_sessions(conn: &Connection) -> Result<Vec<SessionId>, Fault> {
    let mut select = conn.prepare_cached("SELECT id FROM sessions WHERE lost = 1 ORDER BY id")?;
    all(&mut select, [], |row| Ok(SessionId(row.get(0)?)))
}

/// Ends one execution of a lost session.
fn lose_execution(tx: &mut Tx<'_>, row: &LiveRow, now: Timestamp) -> Result<Recorded, Fault> {
    let LiveState::Running(lease) = row.live.state else {
        return Err(Fault::damaged("live_session", row.live.execution()));
    };
    let end = End::lost(lease.claimed_at, now);
    Settling::prepare(tx.conn)?.settle(tx.memory, row, lease, end, now)
}
