//! How many round trips the common verbs need, and the effect of rows that are requested out of order.

use super::simulated_server::Called;
use super::*;
use punctual_core::ids::OccurrenceId;
use punctual_core::ports::{Beat, FireOutcome, FireRequest, ReportAnswer, SubmitOutcome};
use std::sync::Arc;

const ONE_ROUND: [&str; 3] = ["begin", "fetch", "commit"];

#[tokio::test]
async fn the_common_verbs_fetch_once_and_a_claim_and_a_fire_twice() {
    let mut store = Store::default();
    let session = store.open_session().await;
    assert_eq!(store.tables.calls(), ["begin", "commit"], "a new session needs no rows");

    store.apply(submit((0..50).map(job))).await;
    assert_eq!(store.tables.calls(), ONE_ROUND);

    // The lanes of other processes are queried outside of the transaction.
    let held = store.claim(session, 1, 30).await;
    assert_eq!(held.len(), 30);
    assert_eq!(store.tables.calls(), ["begin", "fetch", "fetch", "commit"]);

    let outcomes = store.report(session, &held, success()).await;
    assert!(outcomes.iter().all(|outcome| outcome.answer == ReportAnswer::Accepted));
    assert_eq!(store.tables.calls(), ONE_ROUND);

    store.apply(Write::Beat { now: at(4), beats: vec![Beat { session, beat: 1, draining: false }] }).await;
    assert_eq!(store.tables.calls(), ONE_ROUND);

    let later: Vec<_> = (100..110).map(|number| future_job(number, 60)).collect();
    store.apply(submit(later.clone())).await;
    assert_eq!(store.tables.calls(), ONE_ROUND);
    let fires = later.iter().map(|job| FireRequest { job: job.id, version: 1, reservation: None }).collect();
    let WriteReply::Fired(fired) =
        store.apply(Write::Fire { now: at(60), fires, calendars: Arc::default() }).await
    else {
        panic!()
    };
    assert!(fired.iter().all(|outcome| matches!(outcome, FireOutcome::Fired { .. })), "{fired:?}");
    assert_eq!(store.tables.calls(), ["begin", "fetch", "fetch", "commit"]);

    // A fire that comes too late locks no open occurrence: a claim would skip it.
    let late = vec![FireRequest { job: later[0].id, version: 1, reservation: None }];
    let WriteReply::Fired(fired) =
        store.apply(Write::Fire { now: at(60), fires: late, calendars: Arc::default() }).await
    else {
        panic!()
    };
    assert_eq!(fired, [FireOutcome::Conflict]);
    assert_eq!(store.tables.calls(), ONE_ROUND);
}

#[tokio::test]
async fn final_failures_and_an_empty_lane_take_no_further_rounds() {
    let mut store = Store::default();
    let session = store.open_session().await;
    store.apply(submit((0..5).map(job))).await;
    let held = store.claim(session, 1, 100).await;
    assert_eq!(held.len(), 5);
    store.tables.calls();
    store.report(session, &held, failure()).await;
    assert_eq!(store.tables.calls(), ONE_ROUND);
    assert_eq!(store.tables.database().dead.len(), 5);
    assert!(store.claim(session, 2, 100).await.is_empty());
    assert_eq!(store.tables.calls(), ONE_ROUND, "an exhausted lane is not queried again");
}

#[tokio::test]
async fn all_missing_rows_are_fetched_in_one_round() {
    let mut store = Store::default();
    let session = store.open_session().await;
    // Each has a child, so that the end of each must be resolved.
    let parents: Vec<Job> = (0..20).map(job).collect();
    let child = |(number, parent): (u64, &Job)| {
        let mut child = job(number);
        child.spec.settings.depends_on = vec![parent.id];
        child
    };
    let children: Vec<Job> = (100..).zip(&parents).map(child).collect();
    store.apply(submit(parents)).await;
    store.apply(submit(children)).await;
    let held = store.claim(session, 1, 100).await;
    assert_eq!(held.len(), 20);
    store.tables.calls();
    let outcomes = store.report(session, &held, success()).await;
    let released: usize = outcomes.iter().map(|outcome| outcome.effects.queued.len()).sum();
    assert_eq!(released, 20);
    let fetches = store.tables.calls().iter().filter(|call| **call == "fetch").count();
    assert!(fetches <= 6, "{fetches} rounds for 20 parents");
}

#[tokio::test]
async fn a_lock_that_comes_earlier_in_the_order_restarts_the_transaction() {
    let mut store = Store::default();
    let session = store.open_session().await;
    let parent = job(0);
    let mut child = job(1);
    child.spec.settings.depends_on = vec![parent.id];
    store.apply(submit([parent.clone()])).await;
    store.apply(submit([child.clone()])).await;
    let held = store.claim(session, 1, 1).await;
    store.tables.calls();
    // Only the live row shows that others depend on the parent, and the row of its job must be locked
    // before.
    store.report(session, &held, success()).await;
    let calls = std::mem::take(&mut store.tables.database().calls);
    let again = calls.iter().position(|call| *call == Called::Abandon).expect("it restarts");
    let Called::Fetch(first) = &calls[1] else { panic!("{calls:?}") };
    assert!(first.terms.is_empty() && !first.live.is_empty(), "{first:?}");
    let Called::Fetch(second) = &calls[again + 2] else { panic!("{calls:?}") };
    assert!(second.terms.contains(&parent.id), "{second:?}");
    assert!(second.live.contains(&OccurrenceId { job: parent.id, number: 1 }), "{second:?}");
    // A child's parents are read together with the lock of its row, or later.
    for call in &calls {
        if let Called::Fetch(read_set) = call
            && read_set.parents_of.contains(&child.id)
        {
            let earlier = calls.iter().take_while(|other| *other != call);
            let is_locked =
                |call: &Called| matches!(call, Called::Fetch(read_set) if read_set.terms.contains(&child.id));
            assert!(read_set.terms.contains(&child.id) || earlier.into_iter().any(is_locked), "{calls:?}");
        }
    }
}

#[tokio::test]
async fn a_conflict_is_retried_and_its_shares_are_counted_once() {
    let (mut calm, mut store) = (Store::default(), Store::default());
    store.tables.database().conflicts = 5;
    for store in [&mut calm, &mut store] {
        let WriteReply::Submitted(outcomes) = store.apply(submit((0..3).map(job))).await else { panic!() };
        assert!(outcomes.iter().all(|outcome| matches!(outcome, SubmitOutcome::Created(_))));
        store.apply(submit((3..6).map(job))).await;
    }
    assert_eq!(calm.tables.database().live, store.tables.database().live, "ranks are equal");
    assert_eq!(store.tables.database().counts.jobs.active, 6);
    assert_eq!(store.tables.calls().iter().filter(|call| **call == "abandon").count(), 5);
}

#[tokio::test]
async fn a_permanent_conflict_is_reported() {
    let mut store = Store::default();
    store.tables.database().conflicts = usize::MAX;
    let replies = store.run(&[submit([job(0)]), submit([job(1)])]).await;
    assert!(replies.iter().all(|reply| matches!(reply, Err(StoreError::Unavailable(_)))), "{replies:?}");
}

#[tokio::test]
async fn an_outage_fails_all_callers_and_changes_no_cache() {
    let mut store = Store::default();
    store.apply(submit([job(0)])).await;
    // The first may only be a connection that broke while it was idle.
    store.tables.database().outages = 2;
    let replies = store.run(&[submit([job(1)]), submit([job(2)])]).await;
    assert!(replies.iter().all(|reply| matches!(reply, Err(StoreError::Unavailable(_)))), "{replies:?}");
    assert_eq!(store.tables.database().jobs.len(), 1);
    store.apply(submit([job(1), job(2)])).await;
    assert_eq!(store.tables.database().jobs.len(), 3);
    store.tables.database().outages = 1;
    store.apply(submit([job(3)])).await;
    assert_eq!(store.tables.database().jobs.len(), 4);
}

#[tokio::test]
async fn a_submit_to_a_lane_that_another_process_has_deleted_creates_it_again() {
    let mut store = Store::default();
    store.apply(submit([job(0)])).await;
    store.tables.calls();
    store.tables.database().lanes_gone.insert(1);
    store.apply(submit([job(1)])).await;
    assert_eq!(store.tables.calls(), ["begin", "fetch", "abandon", "begin", "fetch", "commit"]);
    let database = store.tables.database();
    assert_eq!(database.lanes.len(), 2, "a number is never assigned twice");
    assert_eq!(database.jobs[&job(1).id].lane, 2);
}
