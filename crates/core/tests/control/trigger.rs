use crate::harness::{Harness, TRIGGER, TRIGGER_ANYWAY, at, every, once, spec, waiting, with};
use punctual_core::control::{LiveChange, Refusal, ScheduleChange, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::{Expiry, JobStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{LiveState, Next, Origin};
use punctual_core::schedule::{OverlapPolicy, Schedule};

const ALL: [OverlapPolicy; 4] =
    [OverlapPolicy::Skip, OverlapPolicy::Allow, OverlapPolicy::Queue, OverlapPolicy::Replace];

#[test]
fn a_trigger_adds_an_occurrence_that_can_start_now() {
    for policy in ALL {
        let mut harness = Harness::submitted(with(spec(every(10)), |settings| settings.overlap = policy));
        harness.does(TRIGGER, at(5));
        let live = harness.live(1);
        assert_eq!((live.state, live.origin, live.attempt), (LiveState::Queued, Origin::Trigger, 1));
        assert_eq!((live.scheduled_time, live.available_at), (at(5), at(5)));
    }
}

#[test]
fn a_trigger_never_moves_the_schedule() {
    for policy in ALL {
        let mut harness = Harness::submitted(with(spec(every(10)), |settings| settings.overlap = policy));
        let before = harness.schedule().clone();
        harness.does(TRIGGER, at(5));
        let after = harness.schedule().clone();
        assert_eq!((after.numbered, before.numbered), (1, 0));
        assert_eq!(punctual_core::schedule::ScheduleState { numbered: 0, ..after }, before);
    }
}

#[test]
fn fires_and_triggers_share_their_numbers() {
    let mut harness = Harness::recurring(OverlapPolicy::Allow);
    harness.does(TRIGGER, at(11));
    harness.does(TRIGGER, at(12));
    harness.fire(at(20));
    harness.does(TRIGGER, at(21));
    assert_eq!(harness.numbers(), [1, 2, 3, 4, 5]);
    let origins: Vec<Origin> = harness.standing.open.iter().map(|live| live.origin).collect();
    let (schedule, trigger) = (Origin::Schedule, Origin::Trigger);
    assert_eq!(origins, [schedule, trigger, trigger, schedule, trigger]);
    assert_eq!(harness.schedule().fired, 2, "max_runs counts what the schedule fired");
}

#[test]
fn a_one_time_job_triggered_before_its_time_runs_then_as_well() {
    let mut harness = Harness::submitted(spec(once(10)));
    harness.does(TRIGGER, at(5));
    harness.claim(1, at(6));
    harness.end(1, Ending::Succeeded, at(7));
    assert_eq!(harness.status(), JobStatus::Active);
    harness.fire(at(10));
    assert_eq!(harness.numbers(), [2]);
    assert_eq!(harness.state(2), LiveState::Queued);
}

#[test]
fn a_one_time_run_waits_behind_what_was_triggered_before_it() {
    for policy in [OverlapPolicy::Skip, OverlapPolicy::Queue] {
        let mut harness = Harness::submitted(with(spec(once(10)), |settings| settings.overlap = policy));
        harness.does(TRIGGER, at(5));
        harness.claim(1, at(6));
        harness.fire(at(10));
        assert_eq!(harness.state(2), waiting(&[Gate::Overlap]));
        harness.end(1, Ending::Succeeded, at(20));
        assert_eq!(harness.state(2), LiveState::Queued);
    }
}

#[test]
fn a_finished_one_shot_runs_again_under_the_next_number() {
    for mut harness in [Harness::completed(), Harness::failed()] {
        let change = harness.does(TRIGGER, at(30));
        assert_eq!(change.schedule, ScheduleChange::Keep);
        assert_eq!((harness.status(), harness.numbers()), (JobStatus::Active, vec![2]));
        assert_eq!(harness.standing.job.numbered, Some(2));
        harness.claim(2, at(31));
        harness.end(2, Ending::Succeeded, at(32));
        assert_eq!(harness.status(), JobStatus::Completed);
        harness.does(TRIGGER, at(33));
        assert_eq!(harness.numbers(), [3]);
    }
}

#[test]
fn under_skip_a_trigger_is_refused_while_an_occurrence_is_open() {
    for harness in [Harness::recurring(OverlapPolicy::Skip), Harness::running(OverlapPolicy::Skip)] {
        assert_eq!(harness.asked(TRIGGER, at(12)), Err(Refusal::Overlap));
    }
    let one_shot = Harness::submitted(spec(Schedule::Immediate));
    assert_eq!(one_shot.asked(TRIGGER, at(12)), Err(Refusal::Overlap));
}

#[test]
fn under_allow_a_trigger_runs_beside_what_is_open() {
    let mut harness = Harness::running(OverlapPolicy::Allow);
    harness.does(TRIGGER, at(12));
    assert_eq!(harness.state(2), LiveState::Queued);
}

#[test]
fn under_queue_a_trigger_waits_its_turn() {
    let mut harness = Harness::running(OverlapPolicy::Queue);
    harness.does(TRIGGER, at(12));
    harness.does(TRIGGER, at(13));
    assert_eq!([harness.state(2), harness.state(3)], [waiting(&[Gate::Overlap]); 2]);
    harness.end(1, Ending::Succeeded, at(14));
    assert_eq!([harness.state(2), harness.state(3)], [LiveState::Queued, waiting(&[Gate::Overlap])]);
}

#[test]
fn under_queue_a_trigger_is_refused_once_as_many_wait_as_may() {
    let limited = with(spec(every(10)), |settings| {
        settings.overlap = OverlapPolicy::Queue;
        settings.overlap_limit = 2;
    });
    let mut harness = Harness::submitted(limited);
    for second in 1..=3 {
        harness.does(TRIGGER, at(second));
    }
    assert_eq!(harness.asked(TRIGGER, at(4)), Err(Refusal::QueueFull));
    harness.does(TRIGGER_ANYWAY, at(4));
    assert_eq!(harness.state(4), LiveState::Queued);
}

#[test]
fn under_replace_a_trigger_cancels_what_has_not_started_and_starts_at_once() {
    let mut harness = Harness::recurring(OverlapPolicy::Replace);
    harness.does(TRIGGER, at(12));
    assert_eq!((harness.numbers(), harness.state(2)), (vec![2], LiveState::Queued));
    assert_eq!((harness.history[0].id.occurrence.number, harness.history[0].status), (1, Status::Cancelled));
}

#[test]
fn under_replace_a_trigger_asks_what_runs_to_stop_and_starts_when_it_has() {
    let mut harness = Harness::running(OverlapPolicy::Replace);
    harness.does(TRIGGER, at(12));
    assert!(harness.is_asked_to_stop(1));
    assert_eq!(harness.state(2), waiting(&[Gate::Overlap]));
    harness.does(TRIGGER, at(13));
    assert_eq!(harness.numbers(), [1, 3], "the one that waited has given way, too");
    harness.end(1, Ending::Succeeded, at(14));
    assert_eq!(harness.history.last().unwrap().status, Status::Cancelled);
    assert_eq!(harness.state(3), LiveState::Queued);
}

#[test]
fn a_one_shot_whose_run_is_replaced_is_not_cancelled_by_it() {
    let mut harness = Harness::submitted(with(spec(Schedule::Immediate), |settings| {
        settings.overlap = OverlapPolicy::Replace;
    }));
    let change = harness.does(TRIGGER, at(1));
    let closed = change.live.iter().find_map(|change| match change {
        LiveChange::Close(_, settled) => Some(&settled.next),
        _ => None,
    });
    assert_eq!(closed, Some(&Next::Closed { dead_letter: false, job_mark: None }));
    assert_eq!((harness.status(), harness.numbers()), (JobStatus::Active, vec![2]));
}

#[test]
fn a_trigger_despite_overlap_runs_beside_whatever_is_open() {
    for policy in ALL {
        let mut harness = Harness::running(policy);
        harness.does(TRIGGER_ANYWAY, at(12));
        assert_eq!(harness.state(2), LiveState::Queued, "{policy:?}");
        assert!(!harness.is_asked_to_stop(1));
    }
}

#[test]
fn no_trigger_goes_beyond_the_most_that_may_be_open() {
    let bounded = |policy| {
        let spec = with(spec(every(10)), |settings| (settings.overlap, settings.max_open) = (policy, 2));
        let mut harness = Harness::submitted(spec);
        harness.does(TRIGGER, at(1));
        harness.claim(1, at(2));
        harness.does(TRIGGER_ANYWAY, at(3));
        harness
    };
    for policy in ALL {
        assert_eq!(bounded(policy).asked(TRIGGER_ANYWAY, at(4)), Err(Refusal::Backlog), "{policy:?}");
    }
    for policy in [OverlapPolicy::Allow, OverlapPolicy::Queue] {
        assert_eq!(bounded(policy).asked(TRIGGER, at(4)), Err(Refusal::Backlog), "{policy:?}");
    }
    assert_eq!(bounded(OverlapPolicy::Skip).asked(TRIGGER, at(4)), Err(Refusal::Overlap));
    let mut replacing = bounded(OverlapPolicy::Replace);
    replacing.does(TRIGGER, at(4));
    assert_eq!(replacing.numbers(), [1, 3], "it takes the place of one that gives way");
}

#[test]
fn a_trigger_works_while_the_job_is_paused() {
    let mut harness = Harness::submitted(spec(every(10)));
    harness.does(Verb::Pause, at(1));
    harness.does(TRIGGER, at(2));
    assert_eq!((harness.status(), harness.state(1)), (JobStatus::Paused, LiveState::Queued));
    assert!(harness.live(1).flags.exempt);
    assert_eq!(harness.schedule().due_at, None);
    harness.claim(1, at(3));
    harness.end(1, Ending::Lost, at(4));
    assert_eq!(harness.state(1), LiveState::Queued, "its retries are not held either");
}

#[test]
fn a_trigger_obeys_overlap_with_what_a_pause_holds() {
    let mut harness = Harness::recurring(OverlapPolicy::Queue);
    harness.does(Verb::Pause, at(11));
    harness.does(TRIGGER, at(12));
    assert_eq!(harness.state(2), waiting(&[Gate::Overlap]));
    let mut held = Harness::recurring(OverlapPolicy::Skip);
    held.does(Verb::Pause, at(11));
    assert_eq!(held.asked(TRIGGER, at(12)), Err(Refusal::Overlap));
}

#[test]
fn a_trigger_expires_after_its_own_time_and_not_by_a_time_that_has_passed() {
    let expiring = |schedule: Schedule, expiry| {
        let mut harness = Harness::submitted(with(spec(schedule), |settings| settings.expiry = Some(expiry)));
        harness.does(TRIGGER, at(5));
        harness.live(1).expires_at
    };
    assert_eq!(expiring(every(10).into(), Expiry::AfterMs(3_000)), Some(at(8)));
    assert_eq!(expiring(once(100), Expiry::At(at(200))), Some(at(200)));
    assert_eq!(expiring(once(2), Expiry::At(at(4))), None);
}

#[test]
fn who_depends_on_the_job_waits_for_what_is_triggered_as_well() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.standing.open[0].flags.awaited = true;
    harness.does(TRIGGER_ANYWAY, at(1));
    assert!(harness.live(2).flags.awaited);
}

#[test]
fn a_cancelled_job_is_not_triggered() {
    assert_eq!(Harness::cancelled().asked(TRIGGER_ANYWAY, at(40)), Err(Refusal::Cancelled));
    let mut deleted = Harness::completed();
    deleted.does(Verb::Delete, at(30));
    assert_eq!(deleted.asked(TRIGGER, at(40)), Err(Refusal::Cancelled));
}
