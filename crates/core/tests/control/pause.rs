use crate::harness::{Harness, RETRY_DELAY, TRIGGER, at, every, once, spec, until, waiting, with};
use punctual_core::control::{Change, Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::LiveState;
use punctual_core::schedule::{
    Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule, SkipRange, SkipReason,
};

#[test]
fn a_pause_holds_the_schedule_and_what_has_not_started_but_not_what_runs() {
    let mut harness = Harness::running(OverlapPolicy::Queue);
    harness.fire(at(20));
    harness.does(TRIGGER, at(21));
    let before = harness.clone();
    harness.does(Verb::Pause, at(22));
    assert_eq!(harness.status(), JobStatus::Paused);
    assert_eq!(harness.schedule().due_at, None);
    assert_eq!(harness.schedule().nominal, Some(at(30)));
    assert!(harness.schedule().version > before.schedule().version);
    assert_eq!(harness.live(1), before.live(1));
    for number in [2, 3] {
        assert_eq!(harness.state(number), waiting(&[Gate::Overlap, Gate::Paused]));
    }
}

#[test]
fn a_pause_holds_what_is_queued_and_what_waits_for_its_retry() {
    let mut harness = Harness::running(OverlapPolicy::Allow);
    harness.fire(at(20));
    harness.end(1, Ending::Failed, at(21));
    harness.does(Verb::Pause, at(22));
    assert_eq!(harness.state(1), waiting(&[Gate::Time, Gate::Paused]));
    assert_eq!(harness.state(2), waiting(&[Gate::Paused]));
    harness.look(at(21 + RETRY_DELAY));
    assert_eq!(harness.state(1), waiting(&[Gate::Paused]));
}

#[test]
fn what_ran_when_its_job_was_paused_finishes_and_its_retry_is_held() {
    let mut harness = Harness::running(OverlapPolicy::Skip);
    harness.does(Verb::Pause, at(12));
    harness.end(1, Ending::Lost, at(13));
    assert_eq!(harness.state(1), waiting(&[Gate::Paused]));
    harness.does(Verb::Resume, at(14));
    assert_eq!(harness.state(1), LiveState::Queued);
}

#[test]
fn a_resume_skips_what_fell_due_as_one_range() {
    let mut harness = Harness::recurring(OverlapPolicy::Skip);
    harness.does(Verb::Pause, at(15));
    let change = harness.does(Verb::Resume, at(1_000_004));
    let range = SkipRange { first: at(20), last: at(1_000_000), count: 99_999, reason: SkipReason::Paused };
    assert_eq!(change.skipped, [range]);
    assert_eq!(harness.status(), JobStatus::Active);
    assert_eq!(harness.state(1), LiveState::Queued);
    let schedule = harness.schedule();
    assert_eq!((schedule.nominal, schedule.due_at), (Some(at(1_000_010)), Some(at(1_000_010))));
    assert_eq!((schedule.fired, schedule.numbered), (1, 1));
}

#[test]
fn a_resume_before_anything_fell_due_skips_nothing() {
    let mut harness = Harness::recurring(OverlapPolicy::Skip);
    harness.does(Verb::Pause, at(11));
    let change = harness.does(Verb::Resume, at(19));
    assert_eq!(change.skipped, []);
    assert_eq!((harness.schedule().nominal, harness.schedule().due_at), (Some(at(20)), Some(at(20))));
}

#[test]
fn what_jitter_delays_beyond_the_resume_has_not_fallen_due() {
    let jittered = Recurring { jitter_ms: 3_600_000, ..every(7_200) };
    let mut harness = Harness::submitted(spec(jittered));
    let due_at = harness.schedule().due_at.unwrap();
    assert!(due_at > at(7_200 + 1), "the delay of this job's first occurrence is too short for the test");
    harness.does(Verb::Pause, at(7_000));
    let mut late = harness.clone();
    assert_eq!(harness.does(Verb::Resume, at(7_201)).skipped, []);
    assert_eq!((harness.schedule().nominal, harness.schedule().due_at), (Some(at(7_200)), Some(due_at)));
    let skipped = late.does(Verb::Resume, due_at).skipped;
    assert_eq!((skipped[0].first, skipped[0].last, skipped[0].count), (at(7_200), at(7_200), 1));
    assert_eq!(late.schedule().nominal, Some(at(14_400)));
}

#[test]
fn a_one_time_job_paused_over_its_time_runs_late() {
    let mut harness = Harness::submitted(spec(once(10)));
    harness.does(Verb::Pause, at(5));
    assert_eq!(harness.schedule().due_at, None);
    let change = harness.does(Verb::Resume, at(500));
    assert_eq!(change.skipped, []);
    assert_eq!(harness.schedule().due_at, Some(at(10)));
    harness.fire(at(500));
    assert_eq!((harness.state(1), harness.live(1).scheduled_time), (LiveState::Queued, at(10)));
}

#[test]
fn a_replay_goes_on_after_the_resume() {
    let misfire =
        Misfire { policy: MisfirePolicy::RunAll, replay_per_minute: Some(60), ..Misfire::default() };
    let recurring = Recurring { misfire, ..every(100) };
    let mut harness =
        Harness::submitted(with(spec(recurring), |settings| settings.overlap = OverlapPolicy::Allow));
    harness.fire(at(1_000));
    let replay = harness.schedule().replay.clone().unwrap();
    assert_eq!(replay.next, at(200));
    harness.does(Verb::Pause, at(1_000));
    let change = harness.does(Verb::Resume, at(1_250));
    assert_eq!(change.skipped[0].count, 2);
    let resumed = harness.schedule().replay.clone().unwrap();
    assert_eq!((resumed.next, resumed.until, resumed.due_at), (replay.next, replay.until, at(1_250)));
    assert_eq!((harness.schedule().nominal, harness.schedule().due_at), (Some(at(1_300)), Some(at(1_250))));
}

#[test]
fn a_replay_that_waits_for_room_is_tried_when_the_job_is_resumed() {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() };
    let mut harness = Harness::submitted(spec(Recurring { misfire, ..every(100) }));
    harness.fire(at(1_000));
    assert!(harness.schedule().is_replay_waiting());
    harness.does(Verb::Pause, at(1_001));
    harness.cancel(1, at(1_002));
    assert_eq!(harness.schedule().due_at, None, "its end does not wake what is held");
    harness.does(Verb::Resume, at(1_003));
    assert_eq!(harness.schedule().due_at, Some(at(1_003)));
    harness.fire(at(1_003));
    assert_eq!(harness.live(2).scheduled_time, at(100));
}

#[test]
fn a_resume_after_the_end_removes_the_schedule_and_keeps_the_number() {
    let mut harness = Harness::submitted(spec(until(35, every(10))));
    harness.fire(at(10));
    harness.claim(1, at(11));
    harness.end(1, Ending::Succeeded, at(12));
    harness.does(Verb::Pause, at(15));
    let change = harness.does(Verb::Resume, at(99));
    let range = SkipRange { first: at(20), last: at(30), count: 2, reason: SkipReason::Paused };
    assert_eq!(change.skipped, [range]);
    assert_eq!((&harness.standing.schedule, harness.standing.job.numbered), (&None, Some(1)));
    assert_eq!(harness.status(), JobStatus::Completed);
    harness.does(TRIGGER, at(100));
    assert_eq!(harness.numbers(), [2]);
}

#[test]
fn a_paused_one_shot_still_completes_or_fails_with_what_ran() {
    for (ending, status) in [(Ending::Succeeded, JobStatus::Completed), (Ending::Failed, JobStatus::Failed)] {
        let mut harness =
            Harness::submitted(with(spec(Schedule::Immediate), |settings| settings.max_retries = 0));
        harness.claim(1, at(1));
        harness.does(Verb::Pause, at(2));
        assert_eq!(harness.status(), JobStatus::Paused);
        harness.end(1, ending, at(3));
        assert_eq!(harness.status(), status);
        assert_eq!(harness.asked(Verb::Resume, at(4)), Err(Refusal::Finished(status)));
    }
}

#[test]
fn what_is_held_expires_all_the_same() {
    let expiring = with(spec(Schedule::Immediate), |settings| {
        settings.expiry = Some(punctual_core::job::Expiry::AfterMs(30_000));
    });
    let mut harness = Harness::submitted(expiring);
    harness.does(Verb::Pause, at(1));
    harness.look(at(30));
    assert_eq!(harness.history[0].status, Status::Expired);
    assert_eq!(harness.status(), JobStatus::Failed);
}

#[test]
fn pausing_and_resuming_twice_changes_nothing() {
    let mut harness = Harness::recurring(OverlapPolicy::Skip);
    assert_eq!(harness.asked(Verb::Resume, at(11)), Ok(Change::default()));
    harness.does(Verb::Pause, at(12));
    assert_eq!(harness.asked(Verb::Pause, at(13)), Ok(Change::default()));
}

#[test]
fn a_second_pause_holds_what_was_triggered_during_the_first() {
    let mut harness = Harness::submitted(spec(every(10)));
    harness.does(Verb::Pause, at(1));
    harness.does(TRIGGER, at(2));
    harness.claim(1, at(3));
    harness.does(Verb::Resume, at(4));
    harness.does(Verb::Pause, at(5));
    harness.end(1, Ending::Lost, at(6));
    assert_eq!(harness.state(1), waiting(&[Gate::Paused]));
}

#[test]
fn a_finished_job_is_neither_paused_nor_resumed() {
    for (harness, status) in [
        (Harness::completed(), JobStatus::Completed),
        (Harness::failed(), JobStatus::Failed),
        (Harness::cancelled(), JobStatus::Cancelled),
    ] {
        for verb in [Verb::Pause, Verb::Resume] {
            assert_eq!(harness.asked(verb, at(50)), Err(Refusal::Finished(status)));
        }
    }
}

#[test]
fn a_pause_is_over_once_nothing_of_the_job_is_left() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.claim(1, at(1));
    harness.does(Verb::Pause, at(2));
    harness.end(1, Ending::Succeeded, at(3));
    harness.does(TRIGGER, at(4));
    assert_eq!((harness.status(), harness.standing.job.mark), (JobStatus::Active, StoredStatus::Active));
    assert!(!harness.live(2).flags.exempt);
}
