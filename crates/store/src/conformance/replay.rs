//! Replays of missed occurrences that wait for room.

use super::fixture::{Harness, Worker, at, behind, died, failed, job_with, recurring_every, succeeded};
use punctual_core::control::{Update, Verb};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::job::{Job, Settings};
use punctual_core::limits;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{CancelOutcome, CommitEffects, Due, DueKind, Store};
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{
    Misfire, MisfirePolicy, OverlapPolicy, Recurring, ScheduleState, SkipRange, SkipReason,
};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// A job every hundred seconds that replays all missed occurrences.
fn replaying(policy: OverlapPolicy, change: impl FnOnce(&mut Settings)) -> Job {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() };
    job_with(1, |spec| {
        let settings = &mut spec.settings;
        settings.schedule = Recurring { misfire, ..recurring_every(100) }.into();
        settings.overlap = policy;
        settings.max_retries = 1;
        settings.retry = RetryPolicy::Ladder { steps_ms: vec![1_000] };
        change(settings);
    })
}

/// Submits the job and first fires it at second 1,061, when ten occurrences are missed and none is in
/// grace.
async fn down_until_1061(store: Arc<dyn Store>, job: Job) -> (Harness, Worker, JobId) {
    let harness = Harness::new(store);
    let id = job.id;
    harness.submit(at(1), job).await;
    let worker = harness.worker().await;
    harness.fired(at(1_061), id, 1).await;
    (harness, worker, id)
}

async fn schedule(harness: &Harness, id: JobId) -> ScheduleState {
    harness.view(id).await.schedule.expect("the schedule has further runs")
}

/// Fires the current schedule. Returns how many nominal times it opened.
async fn fire(harness: &Harness, now: Timestamp, id: JobId) -> usize {
    let version = schedule(harness, id).await.version;
    harness.fired(now, id, version).await.0
}

/// The open nominal times, ordered by number, and the state of each.
async fn open(harness: &Harness, id: JobId) -> Vec<(Timestamp, LiveState)> {
    let open = harness.view(id).await.open;
    open.iter().rev().map(|live| (live.scheduled_time, live.state)).collect()
}

/// Whether a commit has made the schedule due.
fn wakes(effects: &CommitEffects, now: Timestamp, id: JobId) -> bool {
    let is_woken =
        |due: &Due| due.at == now && matches!(due.what, DueKind::Schedule { job, .. } if job == id);
    effects.due.iter().any(is_woken)
}

pub async fn a_replay_waits_for_room_instead_of_being_cut(store: Arc<dyn Store>) {
    let (harness, mut worker, id) = down_until_1061(store, replaying(OverlapPolicy::Skip, |_| {})).await;
    assert_eq!(open(&harness, id).await, [(at(100), LiveState::Queued)]);
    let state = schedule(&harness, id).await;
    let replay = state.replay.clone().expect("nine are left");
    assert_eq!((replay.next, replay.until, replay.waits), (at(200), at(1_000), true));
    assert_eq!(state.due_at, Some(at(1_061).plus(limits::REPLAY_RECHECK)));

    let tried_at = at(1_061).plus(limits::REPLAY_RECHECK);
    assert_eq!(fire(&harness, tried_at, id).await, 0, "there is no room");
    for number in 2..=10 {
        let now = tried_at.shifted(i64::from(number) * 100_000);
        let (ended, effects) = worker.run(now, succeeded(1_067)).await;
        assert_eq!(ended.occurrence.number, number - 1);
        assert!(wakes(&effects, now, id), "{effects:?}");
        assert_eq!(harness.due(now).await, [now]);
        assert_eq!(fire(&harness, now, id).await, 1);
        assert_eq!(open(&harness, id).await, [(at(i64::from(number) * 100), LiveState::Queued)]);
    }
    assert_eq!(schedule(&harness, id).await.replay, None);
    assert_eq!(harness.store.skipped(id, 10).await.unwrap(), []);
}

/// The grace is six times the interval here.
pub async fn all_that_were_found_late_run_even_within_the_grace(store: Arc<dyn Store>) {
    let misfire = Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() };
    let job = replaying(OverlapPolicy::Skip, |settings| {
        settings.schedule = Recurring { misfire, ..recurring_every(10) }.into();
    });
    let (harness, id) = (Harness::new(store), job.id);
    harness.submit(at(1), job).await;
    let mut worker = harness.worker().await;
    assert_eq!(fire(&harness, at(105), id).await, 1);
    assert_eq!(open(&harness, id).await, [(at(100), LiveState::Queued)], "the latest is regular");
    for earlier in 1..=9 {
        let now = at(105).shifted(earlier * 100_000);
        worker.run(now, succeeded(106)).await;
        assert_eq!(fire(&harness, now, id).await, 1);
        assert_eq!(open(&harness, id).await, [(at(earlier * 10), LiveState::Queued)]);
    }
    assert_eq!(schedule(&harness, id).await.replay, None);
    assert_eq!(harness.store.skipped(id, 10).await.unwrap(), []);
}

pub async fn a_regular_occurrence_waits_behind_a_replayed_one_and_goes_next(store: Arc<dyn Store>) {
    let (harness, mut worker, id) = down_until_1061(store, replaying(OverlapPolicy::Skip, |_| {})).await;
    let first = worker.claim_one(at(1_062)).await;
    assert_eq!(fire(&harness, at(1_100), id).await, 1);
    assert_eq!(open(&harness, id).await[1..], [(at(1_100), behind(Gate::Overlap))]);
    let effects = worker.end(at(1_101), &first, succeeded(1_101)).await;
    assert!(!wakes(&effects, at(1_101), id), "the regular occurrence goes first");
    assert_eq!(open(&harness, id).await, [(at(1_100), LiveState::Queued)]);
    let (_, effects) = worker.run(at(1_102), succeeded(1_102)).await;
    assert!(wakes(&effects, at(1_102), id));

    assert_eq!(fire(&harness, at(1_102), id).await, 1);
    worker.claim_one(at(1_103)).await;
    fire(&harness, at(1_200), id).await;
    fire(&harness, at(1_300), id).await;
    let skipped = harness.store.skipped(id, 10).await.unwrap();
    assert_eq!(skipped.iter().map(|range| (range.first, range.count)).collect::<Vec<_>>(), [(at(1_300), 1)]);
    assert_eq!(skipped[0].reason, SkipReason::Overlap, "one regular occurrence waits already");
}

pub async fn a_replay_fills_the_line_but_for_one_place_and_lets_regular_ones_go_first(store: Arc<dyn Store>) {
    let job = replaying(OverlapPolicy::Queue, |settings| settings.overlap_limit = 3);
    let (harness, mut worker, id) = down_until_1061(store, job).await;
    let gated = behind(Gate::Overlap);
    assert_eq!(open(&harness, id).await, [(at(100), LiveState::Queued), (at(200), gated), (at(300), gated)]);
    fire(&harness, at(1_100), id).await;
    let (_, effects) = worker.run(at(1_101), succeeded(1_101)).await;
    assert_eq!(
        open(&harness, id).await,
        [(at(200), gated), (at(300), gated), (at(1_100), LiveState::Queued)]
    );
    assert!(!wakes(&effects, at(1_101), id), "the room is reserved");
    let (_, effects) = worker.run(at(1_102), succeeded(1_102)).await;
    assert!(wakes(&effects, at(1_102), id));
    fire(&harness, at(1_102), id).await;
    assert_eq!(open(&harness, id).await, [(at(200), LiveState::Queued), (at(300), gated), (at(400), gated)]);
}

pub async fn a_replay_beside_others_leaves_room_for_a_regular_occurrence(store: Arc<dyn Store>) {
    let job = replaying(OverlapPolicy::Allow, |settings| settings.max_open = 3);
    let (harness, mut worker, id) = down_until_1061(store, job).await;
    assert_eq!(open(&harness, id).await.len(), 2);
    for (now, count) in [(1_100, 3), (1_200, 4), (1_300, 5), (1_400, 5)] {
        fire(&harness, at(now), id).await;
        assert_eq!(open(&harness, id).await.len(), count, "at {now}");
    }
    let skipped = harness.store.skipped(id, 10).await.unwrap();
    assert_eq!((skipped.len(), skipped[0].first), (1, at(1_400)), "three regular ones are open");
    let running = worker.claim(at(1_401), 10).await;
    for assignment in &running[..3] {
        let effects = worker.end(at(1_402), assignment, succeeded(1_402)).await;
        assert!(!wakes(&effects, at(1_402), id));
    }
    let effects = worker.end(at(1_402), &running[3], succeeded(1_402)).await;
    assert!(wakes(&effects, at(1_402), id));
    assert_eq!(fire(&harness, at(1_402), id).await, 1);
}

pub async fn a_replaced_occurrence_is_never_a_replayed_one(store: Arc<dyn Store>) {
    let (harness, mut worker, id) = down_until_1061(store, replaying(OverlapPolicy::Replace, |_| {})).await;
    let replayed = worker.claim_one(at(1_062)).await;
    fire(&harness, at(1_100), id).await;
    fire(&harness, at(1_200), id).await;
    assert!(worker.beat(at(1_201)).await.is_empty(), "it is not asked to stop");
    assert_eq!(open(&harness, id).await[1..], [(at(1_200), behind(Gate::Overlap))]);
    worker.end(at(1_202), &replayed, succeeded(1_202)).await;
    assert_eq!(open(&harness, id).await, [(at(1_200), LiveState::Queued)]);
}

pub async fn a_replay_is_woken_however_an_occurrence_ends(store: Arc<dyn Store>) {
    let job = replaying(OverlapPolicy::Skip, |_| {});
    let (harness, mut worker, id) = down_until_1061(store, job).await;
    // An occurrence that is retried keeps its room; one that has failed permanently does not.
    let effects = worker.run(at(1_062), failed(1_062)).await.1;
    assert!(!wakes(&effects, at(1_062), id));
    harness.look(at(1_100), harness.view(id).await.open[0].execution(), None).await;
    fire(&harness, at(1_100), id).await;
    worker.run(at(1_101), died(1_101)).await;
    let (_, effects) = worker.run(at(1_102), died(1_102)).await;
    assert!(wakes(&effects, at(1_102), id), "the regular occurrence has failed permanently");
    assert_eq!(fire(&harness, at(1_102), id).await, 1);

    let execution = harness.view(id).await.open[0].execution();
    let CancelOutcome::Cancelled(effects) = harness.cancel(at(1_103), execution).await else {
        panic!("queued")
    };
    assert!(wakes(&effects, at(1_103), id));
    assert_eq!(fire(&harness, at(1_103), id).await, 1);

    let held = worker.claim_one(at(1_104)).await;
    harness.cancel(at(1_105), held.execution).await;
    let effects = worker.give_back(at(1_106), &held).await;
    assert!(wakes(&effects, at(1_106), id));
    assert_eq!(fire(&harness, at(1_106), id).await, 1);

    let held = worker.claim_one(at(1_107)).await;
    harness.cancel(at(1_108), held.execution).await;
    let recovered = worker.lose(at(1_109)).await;
    assert!(wakes(&recovered.effects, at(1_109), id));
    assert_eq!(fire(&harness, at(1_109), id).await, 1);
}

pub async fn what_was_open_before_a_replay_wakes_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = replaying(OverlapPolicy::Skip, |_| {});
    let id = job.id;
    harness.submit(at(1), job).await;
    let mut worker = harness.worker().await;
    harness.fired(at(100), id, 1).await;
    let running = worker.claim_one(at(101)).await;
    assert_eq!(fire(&harness, at(1_061), id).await, 0, "one occurrence ran during the whole outage");
    let effects = worker.end(at(1_062), &running, succeeded(1_062)).await;
    assert!(wakes(&effects, at(1_062), id));
    assert_eq!(fire(&harness, at(1_062), id).await, 1);
    assert_eq!(open(&harness, id).await, [(at(200), LiveState::Queued)]);
}

pub async fn a_replay_that_waits_is_held_by_a_pause_and_tried_by_the_resume(store: Arc<dyn Store>) {
    let (harness, mut worker, id) = down_until_1061(store, replaying(OverlapPolicy::Skip, |_| {})).await;
    let running = worker.claim_one(at(1_062)).await;
    harness.done(at(1_063), id, Verb::Pause).await;
    let effects = worker.end(at(1_064), &running, succeeded(1_064)).await;
    assert_eq!((effects.due, harness.due(at(2_000)).await), (vec![], vec![]));
    let controlled = harness.done(at(1_070), id, Verb::Resume).await;
    assert!(wakes(&controlled.effects, at(1_070), id));
    assert_eq!(fire(&harness, at(1_070), id).await, 1);
}

pub async fn higher_limits_wake_a_replay(store: Arc<dyn Store>) {
    let job = replaying(OverlapPolicy::Allow, |settings| settings.max_open = 2);
    let (harness, _, id) = down_until_1061(store, job).await;
    assert_eq!(open(&harness, id).await.len(), 1);
    let mut spec = harness.view(id).await.job.spec;
    spec.settings.max_open = 5;
    let update = Verb::Update(Box::new(Update { spec, expected_version: None }));
    let controlled = harness.done(at(1_062), id, update).await;
    assert!(wakes(&controlled.effects, at(1_062), id));
    assert_eq!(fire(&harness, at(1_062), id).await, 3);
}

pub async fn an_update_keeps_a_replay_or_skips_the_rest_of_it(store: Arc<dyn Store>) {
    let (harness, mut worker, id) = down_until_1061(store, replaying(OverlapPolicy::Skip, |_| {})).await;
    let update = async |now, policy| {
        let mut spec = harness.view(id).await.job.spec;
        let misfire = Misfire { policy, replay_per_minute: Some(600), ..Misfire::default() };
        spec.settings.schedule = Recurring { misfire, ..recurring_every(100) }.into();
        let update = Update { spec, expected_version: None };
        harness.done(now, id, Verb::Update(Box::new(update))).await.skipped
    };
    assert_eq!(update(at(1_062), MisfirePolicy::RunAll).await, 0);
    worker.run(at(1_063), succeeded(1_063)).await;
    assert_eq!(fire(&harness, at(1_063), id).await, 1, "the replay was woken");
    assert_eq!(open(&harness, id).await, [(at(200), LiveState::Queued)]);
    assert_eq!(update(at(1_064), MisfirePolicy::SkipMissed).await, 8);
    let state = schedule(&harness, id).await;
    assert_eq!((state.replay, state.nominal), (None, Some(at(1_100))));
    let skipped = SkipRange { first: at(300), last: at(1_000), count: 8, reason: SkipReason::Misfire };
    assert_eq!(harness.store.skipped(id, 10).await.unwrap(), [skipped]);
}
