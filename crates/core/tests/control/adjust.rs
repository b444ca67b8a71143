//! Skipping the next occurrence, running it at another time, and running past ones again.

use crate::harness::{Harness, TRIGGER, at, every, spec, with};
use punctual_core::control::{Backfill, NextRun, Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::{OverlapPolicy, Recurring, SkipRange, SkipReason};

fn next(nominal: i64) -> NextRun {
    NextRun { nominal: at(nominal) }
}

fn skipped(first: i64, last: i64, count: u64, reason: SkipReason) -> SkipRange {
    SkipRange { first: at(first), last: at(last), count, reason }
}

fn fill(from: i64, to: i64, limit: u32) -> Verb {
    Verb::Backfill(Backfill { from: at(from), to: at(to), limit, per_minute: None })
}

/// Every ten seconds, not fired yet.
fn fresh() -> Harness {
    Harness::submitted(spec(every(10)))
}

#[test]
fn the_next_occurrence_is_skipped_and_recorded() {
    let mut harness = fresh();
    harness.does(Verb::SkipNext(next(10)), at(3));
    assert_eq!(harness.skipped, [skipped(10, 10, 1, SkipReason::Requested)]);
    let state = harness.standing.schedule.clone().unwrap();
    assert_eq!((state.nominal, state.due_at, state.fired), (Some(at(20)), Some(at(20)), 0));
    assert_eq!(harness.asked(Verb::SkipNext(next(10)), at(4)), Err(Refusal::NotNext));
    harness.does(Verb::SkipNext(next(40)), at(5));
    let passed = [skipped(20, 30, 2, SkipReason::Calendar), skipped(40, 40, 1, SkipReason::Requested)];
    assert_eq!(harness.skipped[1..], passed, "what calendars exclude before it is recorded, too");
    assert_eq!(harness.asked(Verb::SkipNext(next(55)), at(6)), Err(Refusal::NotNext));
}

#[test]
fn other_time_zone_data_moves_the_next_occurrence_to_the_nearest_one() {
    let moved = |stored: i64, now: i64| {
        let mut harness = fresh();
        // As other data would have it.
        let state = harness.standing.schedule.as_mut().unwrap();
        (state.nominal, state.due_at) = (Some(at(stored)), Some(at(stored)));
        let version = state.version;
        harness.does(Verb::Retime, at(now));
        let state = harness.standing.schedule.clone().unwrap();
        assert_eq!(state.nominal, state.due_at);
        (state.nominal.unwrap(), state.version - version)
    };
    assert_eq!(moved(50, 3), (at(50), 0), "it is right");
    assert_eq!(moved(53, 3), (at(50), 1));
    assert_eq!(moved(57, 3), (at(60), 1));
    assert_eq!(moved(53, 51), (at(60), 1), "what is over does not come again");
    assert_eq!(moved(53, 53), (at(53), 0), "it is due");
    let mut paused = fresh();
    paused.does(Verb::Pause, at(1));
    paused.standing.schedule.as_mut().unwrap().nominal = Some(at(12));
    paused.does(Verb::Retime, at(2));
    let state = paused.standing.schedule.unwrap();
    assert_eq!((state.nominal, state.due_at), (Some(at(10)), None));
}

#[test]
fn a_schedule_that_is_skipped_to_its_end_is_over() {
    let mut harness =
        Harness::submitted(spec(Recurring { max_runs: None, ..crate::harness::until(15, every(10)) }));
    harness.does(Verb::SkipNext(next(10)), at(3));
    assert_eq!((harness.standing.schedule.is_none(), harness.status()), (true, JobStatus::Completed));
    assert_eq!(harness.asked(Verb::SkipNext(next(20)), at(4)), Err(Refusal::NothingNext));
    harness.does(TRIGGER, at(5));
    assert_eq!(harness.standing.open[0].id.number, 1, "numbers continue");
}

#[test]
fn the_next_occurrence_runs_at_another_time() {
    let mut harness = fresh();
    assert_eq!(
        harness.asked(Verb::RunNextAt { next: next(10), at: at(20) }, at(3)),
        Err(Refusal::BeyondNext(at(20)))
    );
    harness.does(Verb::RunNextAt { next: next(10), at: at(17) }, at(3));
    let live = harness.live(1).clone();
    assert_eq!((live.scheduled_time, live.available_at, live.origin), (at(10), at(17), Origin::Schedule));
    assert!(live.is_closed_by(Gate::Time) && live.input.unwrap().moved);
    let state = harness.standing.schedule.clone().unwrap();
    assert_eq!((state.nominal, state.fired, state.numbered), (Some(at(20)), 1, 1));
    assert_eq!(harness.skipped, []);
}

#[test]
fn a_moved_occurrence_obeys_overlap_and_the_number_of_runs() {
    let mut harness = Harness::running(OverlapPolicy::Skip);
    harness.does(Verb::RunNextAt { next: next(20), at: at(15) }, at(12));
    let moved = harness.live(2).clone();
    assert!(moved.is_closed_by(Gate::Overlap) && moved.is_closed_by(Gate::Time));
    let once = Recurring { max_runs: Some(1), ..every(10) };
    let mut harness = Harness::submitted(spec(once));
    harness.does(Verb::RunNextAt { next: next(10), at: at(5) }, at(5));
    assert!(harness.standing.schedule.is_none(), "it was the last run");
    assert_eq!(harness.status(), JobStatus::Active);
}

#[test]
fn past_occurrences_are_filled_in_next_to_the_schedule() {
    let mut harness =
        Harness::submitted(with(spec(every(10)), |settings| settings.overlap = OverlapPolicy::Allow));
    for second in [10, 20, 30] {
        harness.fire(at(second));
        harness.claim(second as u32 / 10, at(second + 1));
        harness.end(second as u32 / 10, Ending::Succeeded, at(second + 2));
    }
    assert_eq!(harness.asked(fill(31, 100, 10), at(33)), Err(Refusal::NothingToBackfill));
    harness.does(fill(0, 1_000, 2), at(33));
    assert_eq!(harness.asked(fill(0, 30, 10), at(33)), Err(Refusal::ReplayUnderWay));
    let state = harness.standing.schedule.clone().unwrap();
    assert_eq!((state.due_at, state.replays_left()), (Some(at(33)), 3 - 1));
    harness.fire(at(33));
    let open: Vec<_> = harness.standing.open.iter().map(|live| (live.scheduled_time, live.origin)).collect();
    assert_eq!(open, [(at(0), Origin::Backfill), (at(10), Origin::Backfill)]);
    let state = harness.standing.schedule.clone().unwrap();
    assert_eq!(
        (state.fired, state.nominal, state.replay),
        (3, Some(at(40)), None),
        "it does not count as runs"
    );
}

#[test]
fn a_backfill_waits_for_room_under_the_overlap_policy() {
    let mut harness = Harness::running(OverlapPolicy::Skip);
    harness.does(fill(0, 10, 10), at(12));
    harness.fire(at(12));
    let state = harness.standing.schedule.clone().unwrap();
    assert!(state.is_replay_waiting(), "{state:?}");
    harness.end(1, Ending::Succeeded, at(13));
    let state = harness.standing.schedule.clone().unwrap();
    assert_eq!(state.due_at, Some(at(13)));
    harness.fire(at(13));
    assert_eq!((harness.standing.open.len(), harness.skipped.len()), (1, 0));
}
