//! Writes that share a transaction see the changes of the writes before them.

use super::*;
use punctual_core::control::Verb;
use punctual_core::ids::OccurrenceId;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{Control, ControlOutcome, SubmitOutcome};
use std::collections::BTreeSet;

#[tokio::test]
async fn two_claims_over_the_same_lane_take_different_executions() {
    let mut store = Store::default();
    let (one, other) = (store.open_session().await, store.open_session().await);
    store.apply(submit((0..10).map(job))).await;
    store.claim(one, 1, 0).await;
    store.tables.calls();
    let replies = store.run(&[claim(one, 1, 4), claim(other, 1, 4), claim(one, 2, 4)]).await;
    assert_eq!(store.tables.calls(), ["begin", "fetch", "fetch", "commit"]);
    let held: Vec<Vec<Assignment>> = replies.into_iter().map(|reply| assignments(reply.unwrap())).collect();
    assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
    let taken: Vec<_> = held.iter().flatten().map(|assignment| assignment.execution).collect();
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 10);
    assert!(taken.is_sorted(), "in the order of ranks: {taken:?}");
}

#[tokio::test]
async fn claims_over_lanes_that_overlap_take_the_lowest_of_each() {
    let mut store = Store::default();
    let session = store.open_session().await;
    let in_queue = |number: u64, queue: &str| {
        let mut job = job(number);
        job.spec.queue = queue.to_owned();
        job
    };
    let jobs = (0..12).map(|number| in_queue(number, ["a", "b", "c"][number as usize % 3]));
    store.apply(submit(jobs)).await;
    let claim_from = |turn: u64, queues: &[&str], limit: usize| {
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        let claim = Claim { session, turn, limit, queues, job_types: vec!["noop".to_owned()] };
        Write::Claim { now: at(2), claims: vec![claim] }
    };
    let writes = [claim_from(1, &["a", "b"], 3), claim_from(2, &["b", "c"], 3), claim_from(3, &[], 100)];
    let replies = store.run(&writes).await;
    let numbers = |reply: Result<WriteReply, StoreError>| -> Vec<u64> {
        let number = |assignment: Assignment| {
            (0..12).find(|number| job(*number).id == assignment.execution.occurrence.job).unwrap()
        };
        assignments(reply.unwrap()).into_iter().map(number).collect()
    };
    let taken: Vec<Vec<u64>> = replies.into_iter().map(numbers).collect();
    assert_eq!(taken, [vec![0, 1, 3], vec![2, 4, 5], vec![6, 7, 8, 9, 10, 11]]);
}

#[tokio::test]
async fn an_execution_that_one_write_queues_is_claimed_and_reported_by_the_next() {
    let mut store = Store::default();
    let session = store.open_session().await;
    store.apply(submit([job(0)])).await;
    let held = store.run(&[submit([job(1)]), claim(session, 1, 5)]).await.pop().unwrap().unwrap();
    let held = assignments(held);
    assert_eq!(held.len(), 2);
    let again = report(session, &held, success());
    let replies = store.run(&[again.clone(), again, claim(session, 2, 5)]).await;
    let answers: Vec<Vec<String>> = replies[..2]
        .iter()
        .map(|reply| match reply {
            Ok(WriteReply::Reported(outcomes)) => {
                outcomes.iter().map(|outcome| format!("{:?}", outcome.answer)).collect()
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(answers, [vec!["Accepted"; 2], vec!["AlreadyAccepted"; 2]]);
    assert!(store.tables.database().live.is_empty());
    assert_eq!(store.tables.database().counts.lanes.len(), 0);
}

#[tokio::test]
async fn a_unique_key_is_assigned_once_in_a_transaction_and_taken_over_after_the_end() {
    let mut store = Store::default();
    let session = store.open_session().await;
    let keyed = |number: u64| {
        let mut job = job(number);
        job.spec.settings.unique_key = Some("k".to_owned());
        job
    };
    let WriteReply::Submitted(outcomes) = store.apply(submit([keyed(0), keyed(1)])).await else { panic!() };
    assert!(
        matches!(outcomes[..], [SubmitOutcome::Created(_), SubmitOutcome::KeyTaken(holder)] if holder == job(0).id)
    );
    let held = store.claim(session, 1, 5).await;
    let replies = store.run(&[report(session, &held, success()), submit([keyed(1)])]).await;
    let Ok(WriteReply::Submitted(outcomes)) = &replies[1] else { panic!("{replies:?}") };
    assert!(matches!(outcomes[..], [SubmitOutcome::Created(_)]), "{outcomes:?}");
    assert!(store.tables.database().keys.values().eq([&job(1).id]));
}

#[tokio::test]
async fn the_last_of_two_parents_that_end_together_releases_the_child() {
    let mut store = Store::default();
    let session = store.open_session().await;
    let mut child = job(2);
    child.spec.settings.depends_on = vec![job(0).id, job(1).id];
    store.apply(submit([job(0), job(1), child.clone()])).await;
    let held = store.claim(session, 1, 5).await;
    assert_eq!(held.len(), 2);
    let reports: Vec<Write> =
        held.iter().map(|one| report(session, std::slice::from_ref(one), success())).collect();
    for reply in store.run(&reports).await {
        reply.unwrap();
    }
    let first = OccurrenceId { job: child.id, number: 1 };
    assert_eq!(store.tables.database().live[&first].live.state, LiveState::Queued);
    assert!(
        store.tables.database().dependencies.is_empty() && store.tables.database().resolutions.is_empty()
    );
}

#[tokio::test]
async fn a_chain_of_failures_is_resolved_in_steps() {
    let mut store = Store::default();
    let session = store.open_session().await;
    let chain = 60;
    for number in 0..chain {
        let mut link = job(number);
        link.spec.settings.depends_on =
            number.checked_sub(1).map(|before| job(before).id).into_iter().collect();
        store.apply(submit([link])).await;
    }
    let held = store.claim(session, 1, 5).await;
    store.report(session, &held, failure()).await;
    for _ in 0..chain {
        store.apply(Write::Resolve { now: at(4), limit: 1_000 }).await;
    }
    let database = store.tables.database();
    assert!(database.live.is_empty() && database.resolutions.is_empty() && database.dependencies.is_empty());
    assert_eq!(database.history.len(), chain as usize);
}

#[tokio::test]
async fn a_dead_letter_that_is_redriven_and_fails_again_in_one_batch_takes_two_transactions() {
    let mut store = Store::default();
    let session = store.open_session().await;
    store.apply(submit([job(0)])).await;
    let held = store.claim(session, 1, 1).await;
    store.report(session, &held, failure()).await;
    let retry = Write::Control { now: at(4), controls: vec![Control { job: job(0).id, verb: Verb::Retry }] };
    // A rehearsal shows what the claim of the same batch will return.
    let mut rehearsal = Store::default();
    let other = rehearsal.open_session().await;
    rehearsal.apply(submit([job(0)])).await;
    let first = rehearsal.claim(other, 1, 1).await;
    rehearsal.report(other, &first, failure()).await;
    rehearsal.apply(retry.clone()).await;
    let second = rehearsal.claim(other, 2, 1).await;
    let replies = store.run(&[retry, claim(session, 2, 1), report(session, &second, failure())]).await;
    assert!(
        matches!(&replies[0], Ok(WriteReply::Controlled(outcomes)) if matches!(outcomes[..], [ControlOutcome::Done(_)]))
    );
    assert_eq!(assignments(replies[1].clone().unwrap()), second);
    assert!(replies[2].is_ok());
    let database = store.tables.database();
    assert_eq!((database.dead.len(), database.counts.jobs.dead_letters), (1, 1));
    assert_eq!(database.history.len(), 2);
}

#[tokio::test]
async fn a_failed_write_does_not_affect_the_others() {
    let mut store = Store::default();
    let session = store.open_session().await;
    store.apply(submit([job(0)])).await;
    store.claim(session, 1, 0).await;
    // A row that Punctual cannot have written: a queued execution whose job is gone.
    let damaged = job(0).id;
    store.tables.database().jobs.remove(&damaged);
    let replies = store.run(&[submit([job(1)]), claim(session, 1, 5), submit([job(2)])]).await;
    assert!(replies[0].is_ok() && replies[2].is_ok(), "{replies:?}");
    let claimed = assignments(replies.into_iter().nth(1).unwrap().unwrap());
    let claimed: Vec<_> = claimed.iter().map(|one| one.execution.occurrence.job).collect();
    assert!(
        claimed.contains(&job(1).id) && !claimed.contains(&damaged),
        "the malformed row is skipped: {claimed:?}"
    );
    let database = store.tables.database();
    assert!(database.jobs.keys().eq([&job(1).id, &job(2).id]));
}
