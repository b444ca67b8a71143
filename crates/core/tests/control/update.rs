use crate::harness::{
    Harness, RETRY_DELAY, TRIGGER, TRIGGER_ANYWAY, at, every, once, spec, until, waiting, with,
};
use punctual_core::control::{Change, Refusal, ScheduleChange, Update, Verb};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::JobId;
use punctual_core::job::{Expiry, JobSpec, JobStatus, Priority, StoredStatus};
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::LiveState;
use punctual_core::schedule::{
    Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule, SkipRange, SkipReason,
};

fn update(spec: JobSpec) -> Verb {
    Verb::Update(Box::new(Update { spec, expected_version: None }))
}

fn urgent(spec: &JobSpec) -> JobSpec {
    JobSpec { priority: Priority::MAX, ..spec.clone() }
}

#[test]
fn an_update_made_from_an_old_version_is_refused() {
    let mut harness = Harness::recurring(OverlapPolicy::Skip);
    harness.is_updated(urgent(&harness.standing.job.spec), at(11));
    let spec = harness.respecified(|settings| settings.max_retries = 9);
    let from = |version| Verb::Update(Box::new(Update { spec: spec.clone(), expected_version: version }));
    assert_eq!(harness.asked(from(Some(1)), at(12)), Err(Refusal::Stale { version: 2 }));
    assert!(harness.asked(from(Some(2)), at(12)).is_ok());
    assert!(harness.asked(from(None), at(12)).is_ok());
}

#[test]
fn what_names_a_job_cannot_be_changed() {
    let harness = Harness::recurring(OverlapPolicy::Skip);
    let owner = JobSpec { owner: "someone else".to_owned(), ..harness.standing.job.spec.clone() };
    assert_eq!(harness.asked(update(owner), at(11)), Err(Refusal::Fixed("owner_id")));
    let key = || Some("nightly".to_owned());
    for (field, spec) in [
        ("idempotency_key", harness.respecified(|settings| settings.idempotency_key = key())),
        ("unique_key", harness.respecified(|settings| settings.unique_key = key())),
        ("depends_on", harness.respecified(|settings| settings.depends_on = vec![JobId::new(at(0), 7)])),
    ] {
        assert_eq!(harness.asked(update(spec), at(11)), Err(Refusal::Fixed(field)));
    }
}

#[test]
fn an_update_to_the_same_changes_nothing() {
    let harness = Harness::running(OverlapPolicy::Skip);
    let same = harness.standing.job.spec.clone();
    assert_eq!(harness.asked(update(same), at(12)), Ok(Change::default()));
}

#[test]
fn a_cancelled_job_is_not_updated() {
    let harness = Harness::cancelled();
    let spec = urgent(&harness.standing.job.spec);
    assert_eq!(harness.asked(update(spec), at(40)), Err(Refusal::Cancelled));
}

#[test]
fn an_update_raises_the_version_and_leaves_a_finished_job_finished() {
    for mut harness in [Harness::completed(), Harness::failed()] {
        let status = harness.status();
        let change = harness.is_updated(urgent(&harness.standing.job.spec), at(30));
        assert_eq!((change.schedule, change.live), (ScheduleChange::Keep, vec![]));
        assert_eq!((harness.status(), harness.standing.job.version), (status, 2));
        assert_eq!(harness.standing.job.updated_at, at(30));
    }
}

#[test]
fn a_new_priority_changes_the_rank_of_queued_executions() {
    let mut harness = Harness::running(OverlapPolicy::Allow);
    harness.fire(at(20));
    let before = harness.clone();
    harness.is_updated(urgent(&harness.standing.job.spec), at(25));
    assert!(harness.live(2).rank < before.live(2).rank);
    assert_eq!(harness.live(2).available_at, at(20), "it keeps the time that it has waited");
    assert_eq!(harness.schedule().priority, Priority::MAX);
    assert_eq!(harness.state(1), before.state(1));
    harness.end(1, Ending::Lost, at(26));
    assert!(harness.live(1).rank < harness.live(2).rank, "what comes back has its new place as well");
}

#[test]
fn an_unchanged_priority_leaves_everyone_at_their_place() {
    let mut harness = Harness::recurring(OverlapPolicy::Allow);
    let payload = JobSpec { payload: "1".to_owned(), ..harness.standing.job.spec.clone() };
    let change = harness.is_updated(payload, at(12));
    assert_eq!(change.live, []);
    assert_eq!(harness.live(1).job_version, 1, "the next claim says by which version it runs");
}

#[test]
fn other_limits_wake_a_replay_that_waits_for_room() {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() };
    let mut harness = Harness::submitted(spec(Recurring { misfire, ..every(100) }));
    harness.fire(at(1_000));
    assert!(harness.schedule().is_replay_waiting() && harness.live(1).flags.followed);
    let (version, due_at) = (harness.schedule().version, harness.schedule().due_at);
    let payload = JobSpec { payload: "1".to_owned(), ..harness.standing.job.spec.clone() };
    harness.is_updated(payload, at(1_001));
    assert_eq!(harness.schedule().due_at, due_at, "the limits are the same");
    let allow = harness.respecified(|settings| settings.overlap = OverlapPolicy::Allow);
    harness.is_updated(allow, at(1_002));
    assert_eq!((harness.schedule().version, harness.schedule().due_at), (version + 2, Some(at(1_002))));
    harness.fire(at(1_002));
    assert_eq!(harness.live(2).scheduled_time, at(100));
}

#[test]
fn what_is_triggered_while_a_replay_waits_wakes_it() {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() };
    let mut harness = Harness::submitted(spec(Recurring { misfire, ..every(100) }));
    harness.fire(at(1_000));
    harness.does(TRIGGER_ANYWAY, at(1_001));
    harness.cancel(1, at(1_001));
    assert_ne!(harness.schedule().due_at, Some(at(1_001)), "another one is open");
    harness.cancel(2, at(1_002));
    assert_eq!(harness.schedule().due_at, Some(at(1_002)));
}

#[test]
fn an_unchanged_schedule_keeps_its_nominal_time_and_replay() {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, replay_per_minute: Some(1), ..Misfire::default() };
    let recurring = Recurring { misfire, ..every(100) };
    let mut harness =
        Harness::submitted(with(spec(recurring), |settings| settings.overlap = OverlapPolicy::Allow));
    harness.fire(at(1_000));
    let before = harness.schedule().clone();
    assert!(before.replay.is_some());
    let mut spec = harness.respecified(|settings| settings.expiry = Some(Expiry::AfterMs(5)));
    spec.queue = "slow".to_owned();
    harness.is_updated(spec, at(1_099));
    let after = harness.schedule().clone();
    assert_eq!((after.queue.as_str(), after.expiry), ("slow", Some(Expiry::AfterMs(5))));
    assert_eq!((after.version, after.job_version), (before.version + 1, 2));
    assert_eq!((after.nominal, after.due_at, after.replay), (before.nominal, before.due_at, before.replay));
}

#[test]
fn other_settings_of_the_same_recurrence_keep_its_nominal_time_and_replay() {
    let misfire =
        |rate| Misfire { policy: MisfirePolicy::RunAll, replay_per_minute: Some(rate), ..Misfire::default() };
    let mut harness = Harness::submitted(spec(Recurring { misfire: misfire(1), ..every(100) }));
    harness.fire(at(1_000));
    let before = harness.schedule().clone();
    assert!(before.replay.is_some());
    let faster = Recurring { misfire: misfire(60), max_runs: Some(99), ..every(100) };
    let change =
        harness.is_updated(harness.respecified(|settings| settings.schedule = faster.into()), at(1_101));
    let after = harness.schedule().clone();
    assert_eq!((after.nominal, after.replay), (Some(at(1_100)), before.replay), "due, and not yet fired");
    assert_eq!((after.fired, after.version, change.skipped), (before.fired, before.version + 1, vec![]));
}

#[test]
fn a_delayed_occurrence_is_not_lost_when_the_delay_changes() {
    let mut harness = Harness::submitted(spec(Recurring { jitter_ms: 3_000_000, ..every(10_000) }));
    assert!(harness.schedule().due_at > Some(at(10_000)));
    let prompt = every(10_000);
    harness.is_updated(harness.respecified(|settings| settings.schedule = prompt.into()), at(10_000));
    assert_eq!((harness.schedule().nominal, harness.schedule().due_at), (Some(at(10_000)), Some(at(10_000))));
}

#[test]
fn what_an_update_stops_from_being_replayed_is_skipped() {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, replay_per_minute: Some(1), ..Misfire::default() };
    let mut harness = Harness::submitted(spec(Recurring { misfire, ..every(100) }));
    harness.fire(at(1_000));
    let spent = Recurring { max_runs: Some(1), ..every(100) };
    for schedule in [every(100), every(7), spent] {
        let mut harness = harness.clone();
        let replay = harness.schedule().replay.clone().unwrap();
        let left = harness.schedule().replays_left();
        let change = harness
            .is_updated(harness.respecified(|settings| settings.schedule = schedule.into()), at(1_001));
        let skipped =
            SkipRange { first: replay.next, last: replay.until, count: left, reason: SkipReason::Misfire };
        assert_eq!(change.skipped, [skipped]);
        assert!(harness.standing.schedule.is_none_or(|schedule| schedule.replay.is_none()));
    }
}

#[test]
fn a_single_run_waits_for_a_replayed_one_that_it_does_not_replace() {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() };
    let mut harness = Harness::submitted(with(spec(Recurring { misfire, ..every(100) }), |settings| {
        settings.overlap = OverlapPolicy::Replace;
    }));
    harness.fire(at(1_061));
    assert!(harness.live(1).flags.replayed);
    harness.claim(1, at(1_062));
    harness.is_updated(harness.respecified(|settings| settings.schedule = Schedule::Immediate), at(1_063));
    harness.fire(at(1_063));
    assert_eq!(harness.state(2), LiveState::Waiting(Gates::only(Gate::Overlap)));
    assert!(harness.live(1).is_running(), "it is not asked to stop");
}

#[test]
fn a_changed_schedule_is_computed_from_now_and_counts_the_runs_it_has_had() {
    let mut harness = Harness::recurring(OverlapPolicy::Allow);
    harness.fire(at(20));
    let before = harness.schedule().clone();
    harness.is_updated(harness.respecified(|settings| settings.schedule = every(7).into()), at(25));
    let after = harness.schedule();
    assert_eq!((after.nominal, after.due_at), (Some(at(28)), Some(at(28))));
    assert_eq!((after.fired, after.numbered, after.version), (2, 2, before.version + 1));
    assert_eq!(harness.numbers(), [1, 2], "open occurrences continue");
}

#[test]
fn a_schedule_whose_runs_are_used_up_by_the_update_is_removed() {
    let mut harness = Harness::recurring(OverlapPolicy::Allow);
    harness.fire(at(20));
    let runs = |max| Recurring { max_runs: Some(max), ..every(10) };
    let mut more = harness.clone();
    more.is_updated(more.respecified(|settings| settings.schedule = runs(3).into()), at(25));
    assert_eq!(more.schedule().nominal, Some(at(30)));
    let change =
        harness.is_updated(harness.respecified(|settings| settings.schedule = runs(2).into()), at(25));
    assert_eq!(change.schedule, ScheduleChange::Remove);
    assert_eq!((harness.status(), harness.standing.job.numbered), (JobStatus::Active, Some(2)));
}

#[test]
fn a_schedule_that_has_ended_by_the_update_is_removed() {
    let mut harness = Harness::submitted(spec(every(10)));
    let ended = until(15, every(10));
    harness.is_updated(harness.respecified(|settings| settings.schedule = ended.into()), at(19));
    assert_eq!((harness.status(), harness.standing.job.numbered), (JobStatus::Completed, Some(0)));
}

#[test]
fn a_one_time_job_moves_to_its_new_time() {
    for (time, expected) in [(50, 50), (2, 2)] {
        let mut harness = Harness::submitted(spec(once(10)));
        harness.is_updated(harness.respecified(|settings| settings.schedule = once(time)), at(5));
        assert_eq!(
            (harness.schedule().nominal, harness.schedule().due_at),
            (Some(at(expected)), Some(at(expected)))
        );
    }
    let mut harness = Harness::submitted(spec(once(10)));
    harness.is_updated(harness.respecified(|settings| settings.schedule = Schedule::Immediate), at(5));
    assert_eq!(harness.schedule().due_at, Some(at(5)));
}

#[test]
fn a_one_shot_that_has_not_started_is_postponed() {
    let mut harness = Harness::submitted(with(spec(once(10)), |settings| {
        settings.expiry = Some(Expiry::AfterMs(1_000));
    }));
    harness.fire(at(10));
    let change = harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(10));
    assert_eq!(change.schedule, ScheduleChange::Keep);
    let live = harness.live(1);
    assert_eq!((live.state, live.available_at), (waiting(&[Gate::Time]), at(60)));
    assert_eq!((live.scheduled_time, live.expires_at), (at(60), Some(at(61))));
    harness.look(at(59));
    assert_eq!(harness.state(1), waiting(&[Gate::Time]));
    harness.look(at(60));
    assert_eq!(harness.state(1), LiveState::Queued);
}

#[test]
fn a_postponed_one_shot_can_be_brought_forward_again() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(1));
    assert_eq!(harness.state(1), waiting(&[Gate::Time]));
    harness.is_updated(harness.respecified(|settings| settings.schedule = Schedule::Immediate), at(2));
    let live = harness.live(1);
    assert_eq!((live.state, live.available_at, live.scheduled_time), (LiveState::Queued, at(2), at(2)));
}

#[test]
fn a_postponed_one_shot_still_waits_for_what_it_depends_on() {
    let dependent =
        with(spec(Schedule::Immediate), |settings| settings.depends_on = vec![JobId::new(at(0), 7)]);
    let mut harness = Harness::submitted_behind(dependent, true);
    harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(1));
    assert_eq!(harness.state(1), waiting(&[Gate::Time, Gate::Dependency]));
    harness.look(at(60));
    assert_eq!(harness.state(1), waiting(&[Gate::Dependency]));
}

#[test]
fn a_postponed_one_shot_that_is_paused_stays_held() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.does(Verb::Pause, at(1));
    harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(2));
    assert_eq!(harness.state(1), waiting(&[Gate::Time, Gate::Paused]));
    harness.does(Verb::Resume, at(3));
    assert_eq!(harness.state(1), waiting(&[Gate::Time]));
}

#[test]
fn what_has_started_is_not_postponed_and_the_new_run_waits_for_its_end() {
    for is_retrying in [false, true] {
        let mut harness = Harness::submitted(spec(Schedule::Immediate));
        harness.claim(1, at(1));
        if is_retrying {
            harness.end(1, Ending::Failed, at(2));
        }
        let before = harness.live(1).clone();
        harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(3));
        assert_eq!(harness.live(1).state, before.state);
        assert_eq!(harness.live(1).available_at, before.available_at);
        assert_eq!((harness.schedule().due_at, harness.schedule().numbered), (Some(at(60)), 1));
        harness.fire(at(60));
        assert_eq!(harness.state(2), waiting(&[Gate::Overlap]));
        if is_retrying {
            harness.look(at(2 + RETRY_DELAY));
            harness.claim(1, at(61));
        }
        harness.end(1, Ending::Succeeded, at(62));
        assert_eq!(harness.state(2), LiveState::Queued);
    }
}

#[test]
fn a_recurring_job_made_one_time_stops_recurring() {
    let mut harness = Harness::recurring(OverlapPolicy::Skip);
    let before = harness.live(1).clone();
    harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(15));
    assert_eq!((harness.schedule().due_at, &harness.schedule().schedule), (Some(at(60)), &once(60)));
    assert_eq!(harness.live(1).scheduled_time, before.scheduled_time);
    assert_eq!(harness.state(1), LiveState::Queued);
    harness.fire(at(60));
    assert_eq!((harness.numbers(), harness.state(2)), (vec![1, 2], waiting(&[Gate::Overlap])));
}

#[test]
fn a_one_shot_made_recurring_keeps_its_open_run_and_goes_on_counting() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.is_updated(harness.respecified(|settings| settings.schedule = every(10).into()), at(12));
    assert_eq!(harness.state(1), LiveState::Queued);
    let schedule = harness.schedule();
    assert_eq!((schedule.due_at, schedule.fired, schedule.numbered), (Some(at(20)), 0, 1));
}

#[test]
fn a_paused_job_stays_held_under_its_new_schedule() {
    for schedule in [every(7).into(), once(60), Schedule::Immediate] {
        let mut harness = Harness::submitted(spec(every(10)));
        harness.does(Verb::Pause, at(1));
        harness.is_updated(harness.respecified(|settings| settings.schedule = schedule), at(2));
        assert_eq!((harness.status(), harness.schedule().due_at), (JobStatus::Paused, None));
        let change = harness.does(Verb::Resume, at(3));
        assert_eq!(change.skipped, []);
        assert!(harness.schedule().due_at.is_some());
    }
}

#[test]
fn a_finished_one_shot_that_is_rescheduled_is_active_again() {
    for mut harness in [Harness::failed(), Harness::completed()] {
        harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(30));
        assert_eq!(harness.status(), JobStatus::Active);
        assert_eq!((harness.schedule().due_at, harness.schedule().numbered), (Some(at(60)), 1));
        harness.fire(at(60));
        assert_eq!((harness.numbers(), harness.state(2)), (vec![2], LiveState::Queued));
    }
}

#[test]
fn an_update_that_comes_late_does_not_take_the_job_back_in_time() {
    let mut harness = Harness::recurring(OverlapPolicy::Skip);
    harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(18));
    // The update is based on the state before second 10 was fired.
    harness.is_updated(harness.respecified(|settings| settings.schedule = every(10).into()), at(4));
    assert_eq!(
        harness.schedule().due_at,
        Some(at(20)),
        "what was due before the last change is accounted for"
    );
    assert_eq!(harness.standing.job.updated_at, at(18));
}

#[test]
fn a_failed_one_shot_given_a_schedule_that_has_ended_stays_failed() {
    let mut harness = Harness::failed();
    let ended = until(25, every(10));
    harness.is_updated(harness.respecified(|settings| settings.schedule = ended.into()), at(30));
    assert_eq!((harness.status(), &harness.standing.schedule), (JobStatus::Failed, &None));
}

#[test]
fn a_job_that_completed_while_paused_is_active_under_a_new_schedule() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.claim(1, at(1));
    harness.does(Verb::Pause, at(2));
    harness.end(1, Ending::Succeeded, at(3));
    harness.is_updated(harness.respecified(|settings| settings.schedule = once(60)), at(4));
    assert_eq!((harness.standing.job.mark, harness.schedule().due_at), (StoredStatus::Active, Some(at(60))));
}

#[test]
fn a_new_expiry_applies_to_what_the_schedule_fired_and_has_not_started() {
    let mut harness = Harness::running(OverlapPolicy::Allow);
    harness.fire(at(20));
    harness.does(TRIGGER, at(21));
    harness
        .is_updated(harness.respecified(|settings| settings.expiry = Some(Expiry::AfterMs(5_000))), at(22));
    let expiries = harness.standing.open.iter().map(|live| live.expires_at).collect::<Vec<_>>();
    assert_eq!(expiries, [None, Some(at(25)), None]);
}

#[test]
fn under_a_new_policy_those_that_run_know_that_others_may_wait_behind_them() {
    let mut harness = Harness::running(OverlapPolicy::Skip);
    assert!(!harness.live(1).flags.followed);
    harness.is_updated(harness.respecified(|settings| settings.overlap = OverlapPolicy::Queue), at(12));
    harness.fire(at(20));
    assert_eq!(harness.state(2), waiting(&[Gate::Overlap]));
    harness.end(1, Ending::Succeeded, at(21));
    assert_eq!(harness.state(2), LiveState::Queued);
}

#[test]
fn a_job_that_others_depend_on_does_not_become_recurring() {
    let mut harness = Harness::submitted(spec(once(20)));
    let recurring = JobSpec { settings: spec(every(10)).settings, ..harness.standing.job.spec.clone() };
    harness.standing.schedule.as_mut().unwrap().awaited = true;
    assert_eq!(harness.asked(update(recurring.clone()), at(11)), Err(Refusal::Awaited));
    harness.standing.schedule.as_mut().unwrap().awaited = false;
    assert!(harness.asked(update(recurring), at(11)).is_ok());
}

#[test]
fn runs_before_a_schedule_was_spent_count_when_it_is_renewed() {
    let runs = |max| spec(Recurring { max_runs: Some(max), ..every(10) });
    let mut harness = Harness::submitted(runs(1));
    harness.fire(at(10));
    harness.claim(1, at(10));
    harness.end(1, Ending::Succeeded, at(11));
    assert_eq!(harness.status(), JobStatus::Completed);
    harness.is_updated(runs(2), at(12));
    assert_eq!((harness.schedule().fired, harness.schedule().numbered), (1, 1));
    harness.fire(at(20));
    assert_eq!(harness.standing.schedule, None, "the second run was the last");
}

#[test]
fn triggers_do_not_count_as_runs_when_a_spent_schedule_is_renewed() {
    let runs = |max| spec(Recurring { max_runs: Some(max), ..every(10) });
    let mut harness = Harness::submitted(runs(1));
    harness.fire(at(10));
    harness.claim(1, at(10));
    harness.end(1, Ending::Succeeded, at(11));
    harness.does(TRIGGER, at(12));
    harness.claim(2, at(12));
    harness.end(2, Ending::Succeeded, at(13));
    harness.is_updated(runs(2), at(14));
    assert_eq!((harness.schedule().fired, harness.schedule().numbered), (1, 2));
}

#[test]
fn a_node_whose_time_lies_behind_does_not_let_a_new_schedule_repeat_the_last_run() {
    let mut harness = Harness::submitted(spec(every(10)));
    harness.fire(at(20));
    let jittered = Recurring { jitter_ms: 1, ..every(10) };
    harness.is_updated(harness.respecified(|settings| settings.schedule = jittered.into()), at(15));
    assert_eq!(harness.schedule().nominal, Some(at(30)));
}

#[test]
fn nor_what_the_schedule_before_the_last_one_has_run() {
    let mut harness = Harness::submitted(spec(every(10)));
    harness.fire(at(20));
    let other = until(99, every(27));
    harness.is_updated(harness.respecified(|settings| settings.schedule = other.into()), at(15));
    assert_eq!(harness.schedule().nominal, Some(at(27)));
    harness.is_updated(harness.respecified(|settings| settings.schedule = every(10).into()), at(15));
    assert_eq!(harness.schedule().nominal, Some(at(30)));
}

#[test]
fn nor_does_it_repeat_what_a_resume_has_skipped_up_to_the_end() {
    let mut harness = Harness::submitted(spec(until(25, every(10))));
    harness.does(Verb::Pause, at(5));
    assert_eq!(harness.does(Verb::Resume, at(30)).schedule, ScheduleChange::Remove);
    harness.is_updated(harness.respecified(|settings| settings.schedule = every(10).into()), at(12));
    assert_eq!(harness.schedule().nominal, Some(at(40)));
}
