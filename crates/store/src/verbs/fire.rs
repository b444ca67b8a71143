//! Firing schedules: a compare-and-swap on the schedule's version, in the transaction that inserts the
//! fired occurrences.

use super::begin::{SlotReservations, effects_with, facts_of, schedule_due};
use super::control::ask_to_stop;
use super::missing_rows::each;
use super::{queues, settle, wait_lists};
use crate::fault::Fault;
use crate::rows::{LiveRow, Rows, Spent};
use punctual_core::calendar::Calendars;
use punctual_core::defects::{Defect, planted};
use punctual_core::job::JobStatus;
use punctual_core::occurrence::{Cancelled, Finished, Live, OccurrenceFlags};
use punctual_core::ports::{CommitEffects, FireOutcome, FireRequest, Lane, SlotReservation};
use punctual_core::schedule::{FirePlan, OverlapPolicy, Present, ScheduleState, SkipRange};
use punctual_core::time::Timestamp;

pub(super) fn fire<R: Rows>(
    rows: &mut R,
    now: Timestamp,
    fires: &[FireRequest],
    calendars: &Calendars,
) -> Result<Vec<FireOutcome>, Fault> {
    let mut reservations = SlotReservations::default();
    each(rows, fires, |rows, fire| fire_one(rows, &mut reservations, now, *fire, calendars))
}

fn fire_one<R: Rows>(
    rows: &mut R,
    reservations: &mut SlotReservations,
    now: Timestamp,
    fire: FireRequest,
    calendars: &Calendars,
) -> Result<FireOutcome, Fault> {
    let Some(row) = rows.schedule(fire.job)? else { return Ok(FireOutcome::Conflict) };
    let lane_id = row.lane;
    let lane = rows.lane(lane_id)?;
    let mut state = row.state;
    if state.version != fire.version {
        if !planted(Defect::DropVersionCheck) {
            return Ok(FireOutcome::Conflict);
        }
        state = state.remembered();
    }
    if state.due_at.is_none_or(|due_at| due_at > now) {
        return Ok(FireOutcome::NotDue);
    }
    let calendars = match calendars.of(state.calendars()) {
        Ok(calendars) => calendars,
        Err(unknown) => return Ok(FireOutcome::UnknownCalendar(unknown.to_owned())),
    };
    queues::weigh(rows, lane.queue())?;
    let (present, replaceable) = present(rows, &state)?;
    let present = Present { calendars, ..present };
    let open = present.open;
    let skipping = if queues::skips_schedules(rows)? { state.plan_skipped(now) } else { None };
    let plan = match skipping {
        Some(plan) => plan,
        None => state.plan(now, present, rows.shares()),
    };

    let skipped = plan.skipped.iter().map(|range| range.count).sum();
    record_skips(rows, &state, &plan.skipped)?;
    advance(rows, &state, &plan, now)?;
    if open > 0
        && !state.is_replay_waiting()
        && plan.next.as_ref().is_some_and(|next| next.is_replay_waiting())
    {
        // Occurrences that are opened later have the flag from the start.
        rows.add_flags_to_open(fire.job, OccurrenceFlags { followed: true, ..OccurrenceFlags::default() })?;
    }
    let occurrences = plan.fired.iter().map(|live| (live.id, live.scheduled_time)).collect();
    let replaced = replace(rows, &replaceable, plan.replaced, now)?;
    let is_over = plan.next.is_none();
    if is_over && open == 0 && plan.fired.is_empty() {
        // A paused job does not fire, so the job was active.
        rows.counters().job(Some(JobStatus::Active), Some(JobStatus::Completed));
    }
    let is_sole = is_over && open == 0 && plan.fired.len() == 1;
    let place = OccurrenceLane { lane_id, lane: &lane, is_sole };
    let mut effects = open_occurrences(rows, reservations, plan.fired, fire.reservation, now, place)?;
    effects.add(replaced);
    effects.due.extend(plan.next.as_ref().and_then(|next| schedule_due(next, &lane)));
    Ok(FireOutcome::Fired { effects, occurrences, skipped })
}

/// The current state of the job, as far as the rules need it, and the rows that may be replaced.
fn present<R: Rows>(rows: &mut R, state: &ScheduleState) -> Result<(Present, Vec<LiveRow>), Fault> {
    let job = state.job;
    let count = rows.count_open(job)?;
    let replaceable = match state.overlap.policy {
        OverlapPolicy::Replace if count.open > 0 => rows.open_of_job(job)?,
        _ => vec![],
    };
    let regular = replaceable.iter().map(|row| &row.live).filter(|live| !live.flags.replayed);
    let present = Present {
        replaceable: regular.cloned().collect(),
        waits_for_parents: state.depends && rows.has_parent(job)?,
        ..Present::from(count)
    };
    Ok((present, replaceable))
}

/// Replaces occurrences: those that have not started end, running ones are asked to stop.
fn replace<R: Rows>(
    rows: &mut R,
    open: &[LiveRow],
    replaced: Vec<Cancelled>,
    now: Timestamp,
) -> Result<CommitEffects, Fault> {
    let mut effects = CommitEffects::default();
    for one in replaced {
        match one {
            Cancelled::Closed(settled) => {
                let Finished { id, status, .. } = settled.finished;
                effects.ended.push((id, status));
                let row = open.iter().find(|row| row.live.id == id.occurrence);
                let row = row.ok_or_else(|| Fault::Missing(format!("live row of {id}")))?;
                effects.freed.extend(wait_lists::freed(rows, row)?);
                // The occurrence that replaces it keeps the job unfinished.
                settle::write(rows, row, settled, now)?;
            }
            Cancelled::Requested(live) => ask_to_stop(rows, &live)?,
        }
    }
    Ok(effects)
}

/// The lane of a new occurrence, and whether nothing else is left of its job.
#[derive(Clone, Copy)]
struct OccurrenceLane<'a> {
    lane_id: i64,
    lane: &'a Lane,
    is_sole: bool,
}

/// Inserts the fired occurrences. A slot reservation is for one slot, so the first occurrence takes it and
/// the others are queued.
fn open_occurrences<R: Rows>(
    rows: &mut R,
    reservations: &mut SlotReservations,
    fired: Vec<Live>,
    reservation: Option<SlotReservation>,
    now: Timestamp,
    OccurrenceLane { lane_id, lane, is_sole }: OccurrenceLane<'_>,
) -> Result<CommitEffects, Fault> {
    let mut all_effects = CommitEffects::default();
    let mut reservation = reservation;
    for live in fired {
        let place = reservation.take();
        let version = live.job_version;
        let live = wait_lists::pass_by_job(rows, live, lane, now)?;
        let live = reservations.place(rows, live, lane, place, version, now)?;
        let row = LiveRow { live, lane: lane_id, is_sole };
        rows.insert_live(&row)?;
        let facts = |rows: &mut R| facts_of(rows, row.live.id.job, lane);
        all_effects.add(effects_with(rows, &row.live, lane, place, facts)?);
    }
    all_effects.queued.dedup();
    Ok(all_effects)
}

/// Advances the schedule. When it is over, the job keeps what a later schedule needs to know.
fn advance<R: Rows>(
    rows: &mut R,
    state: &ScheduleState,
    plan: &FirePlan,
    now: Timestamp,
) -> Result<(), Fault> {
    if let Some(next) = &plan.next {
        return rows.advance_schedule(next);
    }
    rows.delete_schedule(state.job)?;
    if !state.schedule.is_one_shot() || plan.numbered > 1 {
        rows.keep_spent(state.job, Spent { numbered: plan.numbered, fired: plan.runs, at: now })?;
    }
    Ok(())
}

/// Records skipped occurrences. A range that directly follows a stored range with the same reason extends
/// that row: a job that is skipped every second for a day must not leave a row for every second.
pub(super) fn record_skips<R: Rows>(
    rows: &mut R,
    state: &ScheduleState,
    skipped: &[SkipRange],
) -> Result<(), Fault> {
    for range in skipped {
        let lengthened = match state.schedule.before(range.first) {
            Some(before) => rows.lengthen_skipped(state.job, before, range)?,
            None => false,
        };
        if !lengthened {
            rows.insert_skipped(state.job, range)?;
        }
    }
    Ok(())
}
