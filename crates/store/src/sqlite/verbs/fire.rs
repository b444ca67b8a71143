//! Firing schedules: a compare-and-swap on the schedule's version in the transaction that inserts what it fired.

use super::begin::{JobFacts, Offers, begun_with, schedule_due};
use super::control::{ask_to_stop, open_of_job};
use super::dependents::waits_for_parents;
use super::report::Settling;
use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{
    ADVANCE_SCHEDULE, Code, INSERT_LIVE, LiveRow, ScheduleRow, advance_schedule, counter, fired_column,
    insert_live, limit, one, schedule_columns,
};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::ExecutionId;
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::occurrence::{Cancelled, Finished, Live};
use punctual_core::ports::{Begun, Fire, FireOutcome, Lane, Offer};
use punctual_core::schedule::{FirePlan, OverlapPolicy, Present, ScheduleState, SkipRange};
use punctual_core::time::Timestamp;
use rusqlite::{Connection, params};

pub(crate) const SCHEDULE_OF_JOB: &str =
    concat!("SELECT ", schedule_columns!(), " FROM schedules WHERE job = ?1");
pub(crate) const COUNT_OPEN: &str = "SELECT count(*), coalesce(sum(behind), 0) \
     FROM (SELECT state = 0 AND (gates & 4) = 4 AS behind FROM live WHERE job = ?1 LIMIT ?2)";
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
    if state.due_at.is_none_or(|due_at| due_at > now) {
        return Ok(FireOutcome::NotDue);
    }
    let (present, replaceable) = present(tx.conn, &state)?;
    let open = present.open;
    let plan = state.plan(now, present, &mut tx.memory.shares);

    let skipped = plan.skipped.iter().map(|range| range.count).sum();
    record_skips(tx.conn, &state, &plan.skipped)?;
    advance(tx.conn, &state, &plan)?;
    let occurrences = plan.fired.iter().map(|live| (live.id, live.scheduled_time)).collect();
    let ended = replace(tx, &replaceable, plan.replaced, now)?;
    let is_over = plan.next.is_none();
    if is_over && open == 0 && plan.fired.is_empty() {
        // Nothing fires of a paused job, so it was active.
        tx.memory.tally.job(Some(JobStatus::Active), Some(JobStatus::Completed));
    }
    let is_sole = is_over && open == 0 && plan.fired.len() == 1;
    let place = Place { lane_id, lane: &lane, is_sole };
    let mut begun = open_occurrences(tx, offers, plan.fired, fire.offer, now, place)?;
    begun.ended.extend(ended);
    begun.due.extend(plan.next.as_ref().and_then(|next| schedule_due(next, &lane)));
    Ok(FireOutcome::Fired { begun, occurrences, skipped })
}

/// What there is of the job at this moment, as far as any rule cares; and the rows that may be replaced.
fn present(conn: &Connection, state: &ScheduleState) -> Result<(Present, Vec<LiveRow>), Fault> {
    let job = state.job;
    // More may be open than may be by now, and each that waits behind them counts.
    let bound = limit(limits::MAX_OPEN_MAX as usize);
    let mut select = conn.prepare_cached(COUNT_OPEN)?;
    let counts = one(&mut select, params![job.as_bytes(), bound], |row| {
        Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?))
    })?;
    let (open, behind) = counts.unwrap_or_default();
    let replaceable = match state.overlap.policy {
        OverlapPolicy::Replace if open > 0 => open_of_job(conn, job)?,
        _ => vec![],
    };
    let present = Present {
        open: open as usize,
        behind: behind as usize,
        replaceable: replaceable.iter().map(|row| row.live.clone()).collect(),
        waits_for_parents: state.depends && waits_for_parents(conn, job)?,
    };
    Ok((present, replaceable))
}

/// What gives way: the unstarted ends, the running is asked to stop.
fn replace(
    tx: &mut Tx<'_>,
    rows: &[LiveRow],
    replaced: Vec<Cancelled>,
    now: Timestamp,
) -> Result<Vec<(ExecutionId, Status)>, Fault> {
    let mut ended = Vec::new();
    for one in replaced {
        match one {
            Cancelled::Closed(settled) => {
                let Finished { id, status, .. } = settled.finished;
                ended.push((id, status));
                let row = rows.iter().find(|row| row.live.id == id.occurrence);
                let row = row.ok_or_else(|| Fault::Missing(format!("live row of {id}")))?;
                // The one that replaces it keeps the job unfinished.
                Settling::prepare(tx.conn)?.write(tx.memory, row, settled, now)?;
            }
            Cancelled::Requested(live) => ask_to_stop(tx.conn, &live)?,
        }
    }
    Ok(ended)
}

/// Where an occurrence comes to be open, and whether it is all that is left of its job.
#[derive(Clone, Copy)]
struct Place<'a> {
    lane_id: i64,
    lane: &'a Lane,
    is_sole: bool,
}

/// Inserts what fired. An offer is one free place, so it takes the first occurrence and the rest queue.
fn open_occurrences(
    tx: &mut Tx<'_>,
    offers: &mut Offers,
    fired: Vec<Live>,
    offer: Option<Offer>,
    now: Timestamp,
    Place { lane_id, lane, is_sole }: Place<'_>,
) -> Result<Begun, Fault> {
    let mut all_begun = Begun::default();
    let mut offer = offer;
    for live in fired {
        let place = offer.take();
        let version = live.job_version;
        let live = offers.place(tx, live, lane, place, version, now)?;
        let row = LiveRow { live, lane: lane_id, is_sole };
        insert_live(&mut *tx.conn.prepare_cached(INSERT_LIVE)?, &mut tx.memory.tally, &row)?;
        let facts = || JobFacts::find(tx.conn, row.live.id.job, lane);
        all_begun.add(begun_with(tx.conn, &row.live, lane, place, facts)?);
    }
    all_begun.queued.dedup();
    Ok(all_begun)
}

/// Moves the schedule on. When it is over, the job keeps the last number that was given and how often it ran.
fn advance(conn: &Connection, state: &ScheduleState, plan: &FirePlan) -> Result<(), Fault> {
    let job = state.job.as_bytes();
    if let Some(next) = &plan.next {
        return advance_schedule(&mut *conn.prepare_cached(ADVANCE_SCHEDULE)?, next);
    }
    conn.prepare_cached("DELETE FROM schedules WHERE job = ?1")?.execute([job])?;
    if !state.schedule.is_one_shot() || plan.numbered > 1 {
        conn.prepare_cached("UPDATE jobs SET numbered = ?2, fired = ?3 WHERE id = ?1")?.execute(params![
            job,
            plan.numbered,
            fired_column(plan.runs)
        ])?;
    }
    Ok(())
}

/// Records what was skipped. A range whose first occurrence comes right after the last one of a row, for the same
/// reason, lengthens that row: a job that is skipped every second for a day must not leave a row for every
/// second.
pub(super) fn record_skips(
    conn: &Connection,
    state: &ScheduleState,
    skipped: &[SkipRange],
) -> Result<(), Fault> {
    for range in skipped {
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
