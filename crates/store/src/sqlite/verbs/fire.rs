//! Firing schedules: a compare-and-swap on the schedule's version in the transaction that inserts what it fired.

use super::begin::{JobFacts, Offers, assignment, schedule_due};
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    ADVANCE_SCHEDULE, Code, INSERT_LIVE, ScheduleRow, advance_schedule, counter, insert_live, limit, one,
    schedule_columns,
};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::JobId;
use punctual_core::limits;
use punctual_core::occurrence::{Live, LiveState};
use punctual_core::ports::{Begun, Fire, FireOutcome, Lane, Offer};
use punctual_core::schedule::{FirePlan, ScheduleState};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};

pub(crate) const SCHEDULE_OF_JOB: &str =
    concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE job = ?1");
pub(crate) const COUNT_OPEN: &str = "SELECT count(*) FROM (SELECT 1 FROM live WHERE job = ?1 LIMIT ?2)";
pub(crate) const LENGTHEN_SKIPPED: &str =
    "UPDATE skipped SET last = ?4, count = count + ?5 WHERE job = ?1 AND last = ?2 AND reason = ?3";

pub(super) fn fire(tx: &mut Tx<'_>, now: Timestamp, fires: Vec<Fire>) -> Result<Vec<FireOutcome>, Fault> {
    let mut offers = Offers::default();
    fires.into_iter().map(|fire| fire_one(tx, &mut offers, now, fire)).collect()
}

fn fire_one(tx: &mut Tx<'_>, offers: &mut Offers, now: Timestamp, fire: Fire) -> Result<FireOutcome, Fault> {
    let mut select = tx.conn.prepare_cached(SCHEDULE_OF_JOB)?;
    let Some(row) = one(&mut select, [fire.job.as_bytes()], ScheduleRow::read)? else {
        return Ok(FireOutcome::Conflict);
    };
    let lane_id = row.lane;
    let lane = tx.memory.lanes.lane(tx.conn, lane_id)?;
    let mut state = row.named(&lane);
    if state.version != fire.version {
        if !planted(Defect::DropVersionCheck) {
            return Ok(FireOutcome::Conflict);
        }
        state = state.remembered();
    }
    if state.due_at > now {
        return Ok(FireOutcome::NotDue);
    }
    let open = count_open(tx.conn, fire.job)?;
    let plan = state.plan(now, open, &mut tx.memory.shares);

    let skipped = plan.skipped.iter().map(|range| range.count).sum();
    record_skips(tx.conn, &state, &plan)?;
    advance(tx.conn, fire.job, plan.next.as_ref())?;
    let occurrences = plan.fired.iter().map(|live| (live.id, live.scheduled_time)).collect();
    let mut begun = open_occurrences(tx.conn, offers, plan.fired, fire.offer, now, (lane_id, &lane))?;
    begun.due = plan.next.as_ref().map(|next| schedule_due(next, &lane));
    Ok(FireOutcome::Fired { begun, occurrences, skipped })
}

/// How many occurrences of a job are open, as far as any rule cares.
fn count_open(conn: &Connection, job: JobId) -> Result<usize, Fault> {
    let mut select = conn.prepare_cached(COUNT_OPEN)?;
    let bound = limit(limits::OPEN_OCCURRENCES_MAX);
    let open = one(&mut select, params![job.as_bytes(), bound], |row| Ok(row.get::<_, u32>(0)?))?;
    Ok(open.unwrap_or(0) as usize)
}

/// Inserts what fired. An offer is one free place, so it takes the first occurrence and the rest queue.
fn open_occurrences(
    conn: &Connection,
    offers: &mut Offers,
    fired: Vec<Live>,
    offer: Option<Offer>,
    now: Timestamp,
    (lane_id, lane): (i64, &Lane),
) -> Result<Begun, Fault> {
    let mut insert = conn.prepare_cached(INSERT_LIVE)?;
    let mut begun = Begun::default();
    let mut offer = offer;
    for live in fired {
        let place = offer.take();
        let live = offers.place(conn, live, place, now)?;
        insert_live(&mut insert, &live, lane_id)?;
        match (live.state, place) {
            (LiveState::Running(_), Some(place)) => {
                let facts = JobFacts::find(conn, live.id.job, lane)?;
                begun.assigned.push((place, assignment(&live, lane, facts)));
            }
            _ => begun.queued = Some(lane.clone()),
        }
    }
    Ok(begun)
}

fn advance(conn: &Connection, job: JobId, next: Option<&ScheduleState>) -> Result<(), Fault> {
    match next {
        Some(next) => advance_schedule(&mut *conn.prepare_cached(ADVANCE_SCHEDULE)?, next),
        None => {
            conn.prepare_cached("DELETE FROM schedules WHERE job = ?1")?.execute([job.as_bytes()])?;
            Ok(())
        }
    }
}

/// Records what was skipped. A range whose first occurrence comes right after the last one of a row, for the same
/// reason, lengthens that row: a job that is skipped every second for a day must not leave a row for every
/// second.
fn record_skips(conn: &Connection, state: &ScheduleState, plan: &FirePlan) -> Result<(), Fault> {
    for range in &plan.skipped {
        let before = state.schedule.before(range.first).map(Timestamp::as_micros);
        let job = state.job.as_bytes();
        let lengthened = conn.prepare_cached(LENGTHEN_SKIPPED)?.execute(params![
            job,
            before,
            range.reason.code(),
            range.last.as_micros(),
            counter(range.count)
        ])?;
        if lengthened == 0 {
            conn.prepare_cached(
                "INSERT INTO skipped (job, first, last, count, reason) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                job,
                range.first.as_micros(),
                range.last.as_micros(),
                counter(range.count),
                range.reason.code(),
            ])?;
        }
    }
    Ok(())
}
