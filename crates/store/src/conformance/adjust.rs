//! Calendars of schedules, and single occurrences of recurring jobs.

use super::fixture::{Harness, at, job, recurring_every, succeeded};
use punctual_core::calendar::{Calendar, Calendars};
use punctual_core::control::{Backfill, NextRun, Refusal, Verb};
use punctual_core::job::Job;
use punctual_core::occurrence::Origin;
use punctual_core::ports::{FireOutcome, FireRequest, Store};
use punctual_core::schedule::{OverlapPolicy, Recurring, SkipRange, SkipReason};
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// A job for every ten seconds.
fn every_ten(calendars: &[&str]) -> Job {
    let mut job = job(1);
    let calendars = calendars.iter().map(|name| (*name).to_owned()).collect();
    job.spec.settings.schedule = Recurring { calendars, ..recurring_every(10) }.into();
    job.spec.settings.overlap = OverlapPolicy::Allow;
    job
}

/// A calendar that excludes everything, or nothing.
fn calendar(excludes: bool) -> Arc<Calendars> {
    let mode = if excludes { "exclude" } else { "only" };
    let json = format!(r#"{{"mode":"{mode}","entries":[{{"weekdays":["MON-SUN"]}}]}}"#);
    let calendar = Calendar::new(serde_json::from_str(&json).unwrap()).unwrap();
    Arc::new(Calendars::new([("closed".to_owned(), calendar)]))
}

async fn fire(harness: &Harness, now: Timestamp, job: &Job, version: u32, calendars: Arc<Calendars>) -> FireOutcome {
    let fire = FireRequest { job: job.id, version, reservation: None };
    harness.store.fire_under(now, vec![fire], calendars).await.unwrap().remove(0)
}

pub async fn a_schedule_fires_only_under_calendars_that_the_caller_knows(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = every_ten(&["closed"]);
    harness.submit(at(1), job.clone()).await;
    let unknown = fire(&harness, at(10), &job, 1, Arc::default()).await;
    assert_eq!(unknown, FireOutcome::UnknownCalendar("closed".to_owned()));
    assert_eq!(harness.due(at(10)).await, [at(10)], "nothing has changed");
    for (now, version) in [(10, 1), (20, 2)] {
        let skipped = fire(&harness, at(now), &job, version, calendar(true)).await;
        assert!(matches!(&skipped, FireOutcome::Fired { occurrences, skipped: 1, .. } if occurrences.is_empty()));
    }
    let reason = SkipReason::Calendar;
    let range = SkipRange { first: at(10), last: at(20), count: 2, reason };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range], "neighbours are one range");
    let fired = fire(&harness, at(30), &job, 3, calendar(false)).await;
    assert!(matches!(&fired, FireOutcome::Fired { occurrences, .. } if occurrences.len() == 1), "{fired:?}");
    let mut missing = Calendars::default();
    missing.set_missing("closed");
    let fired = fire(&harness, at(40), &job, 4, Arc::new(missing)).await;
    assert!(matches!(&fired, FireOutcome::Fired { occurrences, .. } if occurrences.len() == 1), "{fired:?}");
}

pub async fn the_next_occurrence_is_skipped_or_moved(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = every_ten(&[]);
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::SkipNext(NextRun { nominal: at(10) })).await;
    let next = NextRun { nominal: at(20) };
    let moved = harness.done(at(3), job.id, Verb::RunNextAt { next, at: at(25) }).await;
    assert_eq!(moved.added, Some(job.id.occurrence(1).attempt(1)));
    let refused = harness.refused(at(4), job.id, Verb::SkipNext(next)).await;
    assert_eq!(refused, Refusal::NotNext);
    let mut due = harness.due(at(100)).await;
    due.sort();
    assert_eq!(due, [at(25), at(30)]);
    let live = harness.view(job.id).await.open.remove(0);
    assert_eq!((live.scheduled_time, live.available_at), (at(20), at(25)));
    assert!(live.input.as_ref().is_some_and(|input| input.moved));
    assert_eq!(worker.claim(at(24), 1).await, []);
    harness.look(at(25), live.execution(), None).await;
    assert_eq!(worker.run(at(25), succeeded(26)).await.0, live.execution());
    let reason = SkipReason::Requested;
    let range = SkipRange { first: at(10), last: at(10), count: 1, reason };
    assert_eq!(harness.store.skipped(job.id, 10).await.unwrap(), [range]);
}

pub async fn a_backfill_runs_past_occurrences(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = every_ten(&[]);
    harness.submit(at(1), job.clone()).await;
    for (now, version) in [(10, 1), (20, 2), (30, 3)] {
        harness.fired(at(now), job.id, version).await;
        worker.run(at(now), succeeded(now)).await;
    }
    let backfill = Backfill { from: at(5), to: at(25), limit: 100, per_minute: Some(60) };
    harness.done(at(33), job.id, Verb::Backfill(backfill)).await;
    assert_eq!(harness.refused(at(33), job.id, Verb::Backfill(backfill)).await, Refusal::ReplayUnderWay);
    assert_eq!(harness.due(at(33)).await, [at(33)]);
    let version = harness.view(job.id).await.schedule.unwrap().version;
    harness.fired(at(33), job.id, version).await;
    assert_eq!(harness.due(at(34)).await, [at(34)], "at its rate");
    harness.fired(at(34), job.id, version + 1).await;
    let open = harness.view(job.id).await.open;
    let mut filled: Vec<_> = open.iter().map(|live| (live.scheduled_time, live.origin)).collect();
    filled.sort_by_key(|(scheduled_time, _)| *scheduled_time);
    assert_eq!(filled, [(at(10), Origin::Backfill), (at(20), Origin::Backfill)]);
    let state = harness.view(job.id).await.schedule.unwrap();
    assert_eq!((state.fired, state.numbered, state.replay, state.due_at), (3, 5, None, Some(at(40))));
}
