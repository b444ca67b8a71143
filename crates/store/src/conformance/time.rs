//! Due times and fires.

use super::fixture::{Harness, at, every, job, job_with, once, recurring_every, succeeded};
use punctual_core::ids::{JobId, SegmentSet};
use punctual_core::job::{Expiry, Job, JobStatus};
use punctual_core::ports::{DueKind, FireRequest, FireOutcome, SlotReservation, Store};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{
    Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule, SkipRange, SkipReason,
};
use punctual_core::time::Timestamp;
use std::sync::Arc;

pub async fn due_lists_what_falls_due_in_order(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for (n, seconds) in [(1, 300), (2, 100), (3, 200), (4, 900)] {
        harness.submit(at(1), job_with(n, |spec| spec.settings.schedule = once(seconds))).await;
    }
    harness.submit(at(1), job(5)).await;
    let due = harness.store.due(SegmentSet::ALL, at(300), 10).await.unwrap();
    let found: Vec<_> = due.iter().map(|due| (due.at, due.what)).collect();
    let schedule = |n| DueKind::Schedule { job: job(n).id, version: 1 };
    assert_eq!(found, [(at(100), schedule(2)), (at(200), schedule(3)), (at(300), schedule(1))]);
}

pub async fn due_is_limited_per_segment_and_looks_only_at_its_segments(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    // Numbers that differ by 64 are in the same segment.
    for n in [0, 64, 128, 1] {
        harness.submit(at(1), job_with(n, |spec| spec.settings.schedule = once(100 + i64::from(n)))).await;
    }
    let limited = harness.store.due(SegmentSet::ALL, at(1_000), 2).await.unwrap();
    let found: Vec<_> = limited.iter().map(|due| due.at).collect();
    assert_eq!(found, [at(100), at(101), at(164)]);
    let all = harness.store.due(SegmentSet::ALL, at(1_000), 10).await.unwrap();
    assert_eq!(all.len(), 4);
}

pub async fn a_fire_opens_the_occurrence_of_a_one_time_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    let FireOutcome::Fired { effects, occurrences, skipped } = harness.fire(at(101), job.id, 1).await else {
        panic!("it is due");
    };
    assert_eq!((occurrences, skipped), (vec![(job.id.occurrence(1), at(100))], 0));
    assert!(effects.queued.len() == 1 && effects.due.is_empty() && effects.assigned.is_empty());
    let view = harness.view(job.id).await;
    assert_eq!((view.status(), view.schedule), (JobStatus::Active, None));
    assert_eq!((view.open[0].scheduled_time, view.open[0].available_at), (at(100), at(101)));
}

pub async fn a_fire_before_its_time_is_not_due(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    assert_eq!(harness.fire(at(99), job.id, 1).await, FireOutcome::NotDue);
    assert_eq!(harness.fired(at(100), job.id, 1).await.0, 1);
}

pub async fn an_expiry_beyond_the_calendar_can_be_read(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| {
        spec.settings.schedule = Schedule::OneTime { at: Timestamp::MAX };
        spec.settings.expiry = Some(Expiry::AfterMs(86_400_000));
    });
    harness.submit(at(1), job.clone()).await;
    assert_eq!(harness.fired(Timestamp::MAX, job.id, 1).await.0, 1);
    let open = harness.view(job.id).await.open;
    assert!(open.len() == 1 && open[0].expires_at >= Some(Timestamp::MAX), "{open:?}");
}

pub async fn a_second_fire_of_the_same_version_conflicts(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let recurring = recurring(1, every(10), OverlapPolicy::Allow);
    let one_time = job_with(2, |spec| spec.settings.schedule = once(10));
    for job in [recurring, one_time] {
        harness.submit(at(1), job.clone()).await;
        harness.fired(at(10), job.id, 1).await;
        assert_eq!(harness.fire(at(30), job.id, 1).await, FireOutcome::Conflict);
        assert_eq!(harness.view(job.id).await.open.len(), 1);
    }
}

pub async fn a_fire_of_an_unknown_job_conflicts(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    assert_eq!(harness.fire(at(1), JobId::new(at(0), 7), 1).await, FireOutcome::Conflict);
}

pub async fn racing_fires_of_one_version_fire_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = recurring(1, every(10), OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    let fires = (0..20).map(|_| harness.fire(at(10), job.id, 1));
    let outcomes = futures_util::future::join_all(fires).await;
    let fired = outcomes.iter().filter(|outcome| matches!(outcome, FireOutcome::Fired { .. })).count();
    let conflicts = outcomes.iter().filter(|outcome| **outcome == FireOutcome::Conflict).count();
    assert_eq!((fired, conflicts), (1, 19));
    assert_eq!(harness.view(job.id).await.open.len(), 1);
}

pub async fn an_interval_advances_from_its_nominal_time(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = recurring(1, every(10), OverlapPolicy::Skip);
    assert_eq!(harness.submit(at(1), job.clone()).await.due[0].at, at(10));
    let (fired, skipped, due) = harness.fired(at(13), job.id, 1).await;
    let due = due.expect("the schedule has further runs");
    assert_eq!((fired, skipped, due.at), (1, 0, at(20)));
    assert_eq!(due.what, DueKind::Schedule { job: job.id, version: 2 });
    let schedule = harness.view(job.id).await.schedule.expect("the schedule has further runs");
    assert_eq!((schedule.version, schedule.nominal, schedule.fired), (2, Some(at(20)), 1));
    assert_eq!(schedule.schedule, every(10));
}

pub async fn an_overlapping_fire_is_skipped(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = recurring(1, every(10), OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    let (fired, skipped, due) = harness.fired(at(20), job.id, 2).await;
    assert_eq!((fired, skipped, due.expect("the schedule has further runs").at), (0, 1, at(30)));
    let range = SkipRange { first: at(20), last: at(20), count: 1, reason: SkipReason::Overlap };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);

    let session = harness.open_session("w").await;
    let assignment = harness.claim_one(at(21), session, 1).await;
    harness.accept(at(22), session, &assignment, succeeded(22)).await;
    assert_eq!(harness.fired(at(30), job.id, 3).await.0, 1, "nothing is open any more");
}

pub async fn consecutive_skips_are_one_range(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = recurring(1, every(10), OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    for round in 2..=5 {
        harness.fired(at(10 * i64::from(round)), job.id, round).await;
    }
    let first = SkipRange { first: at(20), last: at(50), count: 4, reason: SkipReason::Overlap };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [first]);

    let session = harness.open_session("w").await;
    let assignment = harness.claim_one(at(51), session, 1).await;
    harness.accept(at(52), session, &assignment, succeeded(52)).await;
    harness.fired(at(60), job.id, 6).await;
    harness.fired(at(70), job.id, 7).await;
    let second = SkipRange { first: at(70), last: at(70), count: 1, reason: SkipReason::Overlap };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [second, first], "a fire lies between them");
}

pub async fn missed_occurrences_are_one_range(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = recurring(1, every(10), OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    let (fired, skipped, due) = harness.fired(at(1_000), job.id, 1).await;
    assert_eq!((fired, skipped, due.expect("the schedule has further runs").at), (7, 93, at(1_010)), "a minute of grace");
    let range = SkipRange { first: at(10), last: at(930), count: 93, reason: SkipReason::Misfire };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
}

pub async fn missed_occurrences_are_replayed_beside_the_regular_ones(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let misfire = Misfire {
        policy: MisfirePolicy::RunAll,
        grace_ms: 10_000,
        limit: Some(2),
        replay_per_minute: Some(12),
        ..Misfire::default()
    };
    let job = recurring(1, Recurring { misfire, ..recurring_every(10) }.into(), OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    let (fired, skipped, due) = harness.fired(at(1_000), job.id, 1).await;
    assert_eq!((fired, skipped, due.expect("the schedule has further runs").at), (2, 96, at(1_005)), "the replay comes first");
    let schedule = harness.view(job.id).await.schedule.expect("the schedule has further runs");
    let replay = schedule.replay.expect("two are left of it");
    assert_eq!((replay.next, replay.until, replay.due_at), (at(980), at(990), at(1_005)));
    assert_eq!((schedule.nominal, schedule.due_at), (Some(at(1_010)), Some(at(1_005))));
    let (fired, skipped, due) = harness.fired(at(1_005), job.id, 2).await;
    assert_eq!((fired, skipped, due.expect("the schedule has further runs").at), (1, 0, at(1_010)));
    let (fired, skipped, due) = harness.fired(at(1_010), job.id, 3).await;
    assert_eq!(
        (fired, skipped, due.expect("the schedule has further runs").at),
        (2, 0, at(1_020)),
        "a regular and a replayed one"
    );
    assert_eq!(harness.view(job.id).await.schedule.expect("the schedule has further runs").replay, None);
    let range = SkipRange { first: at(10), last: at(960), count: 96, reason: SkipReason::Misfire };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
}

pub async fn a_replay_outlives_the_end_of_its_schedule(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let misfire =
        Misfire { policy: MisfirePolicy::RunAll, replay_per_minute: Some(60), ..Misfire::default() };
    let spec = RecurrenceSpec { end_at: Some(at(20)), ..recurring_every(10).recurrence.spec().clone() };
    let ended = Recurring { misfire, ..Recurring::new(spec).expect("it is valid") };
    let job = recurring(1, ended.into(), OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    let (fired, skipped, due) = harness.fired(at(500), job.id, 1).await;
    assert_eq!((fired, skipped, due.expect("one is left").at), (1, 0, at(501)));
    let schedule = harness.view(job.id).await.schedule.expect("one is left");
    assert_eq!((schedule.nominal, schedule.due_at), (None, Some(at(501))));
    assert_eq!(harness.fired(at(501), job.id, 2).await, (1, 0, None));
}

pub async fn a_schedule_that_ended_before_its_job_began_completes_it(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let spec = RecurrenceSpec { end_at: Some(at(-5)), ..RecurrenceSpec::interval("10s", at(-100)) };
    let job = recurring(1, Recurring::new(spec).expect("it is valid").into(), OverlapPolicy::Skip);
    let effects = harness.submit(at(1), job.clone()).await;
    assert!(effects.due.is_empty() && effects.queued.is_empty());
    let view = harness.view(job.id).await;
    assert_eq!((view.status(), view.schedule), (JobStatus::Completed, None));
}

pub async fn an_exhausted_schedule_completes_the_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let twice = Recurring { max_runs: Some(2), ..recurring_every(10) }.into();
    let job = recurring(1, twice, OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    assert!(harness.fired(at(10), job.id, 1).await.2.is_some());
    assert!(harness.fired(at(20), job.id, 2).await.2.is_none());
    let view = harness.view(job.id).await;
    assert_eq!((view.status(), view.schedule, view.open.len()), (JobStatus::Active, None, 2));
    let session = harness.open_session("w").await;
    for assignment in harness.claim(at(21), session, 1, 10).await {
        harness.accept(at(22), session, &assignment, succeeded(22)).await;
    }
    assert_eq!(harness.view(job.id).await.status(), JobStatus::Completed);
}

pub async fn an_offer_takes_the_first_occurrence_of_a_fire(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    let reservation = Some(SlotReservation { session, turn: 1 });
    let job = recurring(1, every(10), OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    let outcome = harness
        .store
        .fire(at(30), vec![FireRequest { job: job.id, version: 1, reservation }])
        .await
        .unwrap()
        .remove(0);
    let FireOutcome::Fired { effects, occurrences, .. } = outcome else { panic!("it is due") };
    assert_eq!(occurrences.len(), 3);
    let assigned: Vec<_> = effects.assigned.iter().map(|(_, assignment)| assignment.scheduled_time).collect();
    assert_eq!(assigned, [at(10)], "a reservation is one free slot");
    assert_eq!(effects.queued.len(), 1);
    assert_eq!(harness.claim(at(31), session, 2, 10).await.len(), 2);
}

fn recurring(number: u32, schedule: Schedule, overlap: OverlapPolicy) -> Job {
    job_with(number, |spec| {
        spec.settings.schedule = schedule;
        spec.settings.overlap = overlap;
    })
}
