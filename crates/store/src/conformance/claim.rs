//! Claiming work.

use super::fixture::{Harness, at, job, job_with, trace};
use punctual_core::ids::SessionId;
use punctual_core::job::Priority;
use punctual_core::ports::{Assignment, Claim, ClaimOutcome, Store};
use punctual_core::rank::rank;
use punctual_core::trace_context::{RunTrace, SubmittedTrace};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub async fn an_assignment_carries_what_a_worker_needs(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let context = trace("a=1");
    let job = job_with(1, |spec| {
        spec.settings.trace = Some(SubmittedTrace { context: context.clone(), in_batch: true });
        spec.name = "nightly".to_owned();
        spec.queue = "bulk".to_owned();
        spec.payload = r#"{"rows":7}"#.to_owned();
        spec.settings.timeout_ms = 1_500;
    });
    harness.submit(at(1), job.clone()).await;
    let session = harness.open_session("w").await;
    let expected = Assignment {
        execution: job.id.occurrence(1).attempt(1),
        epoch: punctual_core::ids::Epoch(1),
        job_version: 1,
        name: "nightly".to_owned(),
        job_type: "report".to_owned(),
        queue: "bulk".to_owned(),
        payload: r#"{"rows":7}"#.to_owned(),
        timeout: Duration::from_millis(1_500),
        scheduled_time: at(1),
        available_at: at(1),
        rank: rank(at(1), Priority::DEFAULT, Duration::ZERO),
        checkpoint: None,
        result_overflow: Default::default(),
        trace: Some(RunTrace { context, is_linked: true }),
    };
    assert_eq!(harness.claim(at(2), session, 1, 10).await, [expected]);
}

pub async fn claims_go_by_rank_across_lanes(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let queues = ["a", "b", "a", "c", "b"];
    for (n, queue) in (1..).zip(queues) {
        let job = job_with(n, |spec| spec.queue = queue.to_owned());
        harness.submit(at(i64::from(n)), job).await;
    }
    let session = harness.open_session("w").await;
    let order = numbers(&harness.claim(at(20), session, 1, 10).await);
    assert_eq!(order, [1, 2, 3, 4, 5], "the execution that has waited longest is claimed first, whatever its lane");
}

pub async fn claims_go_by_rank_across_very_many_lanes_most_of_them_empty(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    let in_queue = |n: u32| job_with(n, |spec| spec.queue = format!("queue-{}", n % 100));
    for n in 1..=100 {
        harness.submit(at(i64::from(n)), in_queue(n)).await;
    }
    assert_eq!(harness.claim(at(200), session, 1, 100).await.len(), 100);
    for n in [103, 101, 102, 201] {
        harness.submit(at(i64::from(n)), in_queue(n)).await;
    }
    harness.submit(at(99), job_with(104, |spec| spec.job_type = "unserved".to_owned())).await;
    assert_eq!(numbers(&harness.claim(at(300), session, 2, 10).await), [101, 102, 103, 201]);
}

pub async fn high_priority_goes_first(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for (n, priority) in [(1, Priority::MIN), (2, Priority::DEFAULT), (3, Priority::MAX)] {
        harness.submit(at(i64::from(n)), job_with(n, |spec| spec.priority = priority)).await;
    }
    harness.submit(at(1_000), job_with(4, |spec| spec.priority = Priority::MAX)).await;
    let session = harness.open_session("w").await;
    let claimed = harness.claim(at(1_001), session, 1, 10).await;
    assert_eq!(numbers(&claimed), [3, 2, 1, 4], "an execution that has waited long is claimed before it");
}

pub async fn a_claim_takes_no_more_than_its_limit(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for n in 1..=5 {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let session = harness.open_session("w").await;
    assert_eq!(numbers(&harness.claim(at(9), session, 1, 2).await), [1, 2]);
    assert_eq!(harness.claim(at(9), session, 2, 0).await, []);
    assert_eq!(numbers(&harness.claim(at(9), session, 2, 10).await), [3, 4, 5]);
}

pub async fn a_claim_merges_many_lanes_in_order(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    // More lanes than a claim reads from at once, and one lane with far more than its share.
    let queue = |n: u32| if n.is_multiple_of(3) { format!("queue-{}", n % 30) } else { "crowded".to_owned() };
    for n in 1..=300 {
        harness.submit(at(i64::from(n)), job_with(n, |spec| spec.queue = queue(n))).await;
    }
    let session = harness.open_session("w").await;
    let first = harness.claim(at(900), session, 1, 250).await;
    assert_eq!(numbers(&first), (1..=250).collect::<Vec<_>>());
    let rest = harness.claim(at(900), session, 2, 250).await;
    assert_eq!(numbers(&rest), (251..=300).collect::<Vec<_>>());
}

pub async fn a_claim_skips_job_types_that_it_does_not_name(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for (n, job_type) in [(1, "report"), (2, "mail"), (3, "sweep")] {
        harness.submit(at(1), job_with(n, |spec| spec.job_type = job_type.to_owned())).await;
    }
    let session = harness.open_session("w").await;
    let claim = |turn, job_types: &[&str]| claim(session, turn, &[], job_types);
    assert_eq!(claimed(&harness, claim(1, &["mail", "sweep", "unheard of"])).await, [2, 3]);
    assert_eq!(claimed(&harness, claim(2, &[])).await, Vec::<u32>::new(), "an empty list of job types means none, not all");
    assert_eq!(claimed(&harness, claim(2, &["report"])).await, [1]);
}

pub async fn a_claim_skips_queues_that_it_does_not_name(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for (n, queue) in [(1, "default"), (2, "bulk"), (3, "slow")] {
        harness.submit(at(i64::from(n)), job_with(n, |spec| spec.queue = queue.to_owned())).await;
    }
    let session = harness.open_session("w").await;
    assert_eq!(claimed(&harness, claim(session, 1, &["bulk", "bulk", "other"], &["report"])).await, [2]);
    assert_eq!(claimed(&harness, claim(session, 2, &[], &["report"])).await, [1, 3], "an empty list of queues means all");
}

pub async fn an_empty_claim_leaves_its_turn_unused(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    assert_eq!(harness.claim(at(1), session, 1, 10).await, []);
    harness.submit(at(2), job(1)).await;
    harness.claim_one(at(3), session, 1).await;
}

pub async fn a_used_turn_is_stale(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    for n in 1..=3 {
        harness.submit(at(1), job(n)).await;
    }
    harness.claim_one(at(2), session, 1).await;
    assert_eq!(harness.try_claim(at(3), session, 1, 10).await, ClaimOutcome::StaleTurn);
    assert_eq!(harness.try_claim(at(3), session, 0, 10).await, ClaimOutcome::StaleTurn);
    assert_eq!(harness.claim(at(4), session, 2, 10).await.len(), 2);
}

pub async fn a_claim_of_an_unknown_or_lost_session_is_refused(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(1)).await;
    assert_eq!(harness.try_claim(at(2), SessionId(999), 1, 1).await, ClaimOutcome::SessionLost);
    harness.lose(at(2), session, 0).await;
    assert_eq!(harness.try_claim(at(3), session, 1, 1).await, ClaimOutcome::SessionLost);
    let other = harness.open_session("w").await;
    harness.claim_one(at(4), other, 1).await;
}

pub async fn every_claim_raises_the_epoch(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(1)).await;
    for turn in 1..=3 {
        let assignment = harness.claim_one(at(2), session, turn).await;
        assert_eq!((assignment.epoch.0, assignment.execution.attempt), (turn as u32, 1));
        harness.store.give_back(at(3), session, vec![assignment.lease()]).await.unwrap();
    }
}

pub async fn racing_claimers_get_disjoint_work(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for n in 0..200 {
        harness.submit(at(1), job_with(n, |spec| spec.queue = format!("queue-{}", n % 3))).await;
    }
    let claimers = (0..10).map(|n| {
        let harness = harness.clone();
        async move {
            let session = harness.open_session(&format!("w{n}")).await;
            let mut all = Vec::new();
            for turn in 1.. {
                let claimed = harness.claim(at(2), session, turn, 7).await;
                if claimed.is_empty() {
                    break;
                }
                all.extend(numbers(&claimed));
            }
            all
        }
    });
    let claimed: Vec<u32> = futures_util::future::join_all(claimers).await.concat();
    assert_eq!(claimed.len(), 200, "no execution is granted twice");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), (0..200).collect(), "every execution is granted");
}

pub async fn a_doubled_claim_is_granted_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for n in 1..=10 {
        harness.submit(at(1), job(n)).await;
    }
    let session = harness.open_session("w").await;
    let doubled = claim(session, 1, &[], &["report"]);
    let twice = vec![Claim { limit: 3, ..doubled.clone() }, Claim { limit: 3, ..doubled }];
    let outcomes = harness.store.claim(at(2), twice).await.unwrap();
    assert!(matches!(&outcomes[0], ClaimOutcome::Claimed { assignments, .. } if assignments.len() == 3));
    assert_eq!(outcomes[1], ClaimOutcome::StaleTurn);
}

fn claim(session: SessionId, turn: u64, queues: &[&str], job_types: &[&str]) -> Claim {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Claim { session, turn, limit: 100, queues: owned(queues), job_types: owned(job_types) }
}

async fn claimed(harness: &Harness, claim: Claim) -> Vec<u32> {
    match harness.claim_from(at(100), claim).await {
        ClaimOutcome::Claimed { assignments, .. } => numbers(&assignments),
        other => panic!("claimed: {other:?}"),
    }
}

/// The numbers of the jobs, as [`job`] assigns them.
fn numbers(assignments: &[Assignment]) -> Vec<u32> {
    let number_of = |id| (0..1_000).find(|n| job(*n).id == id).expect("a job of this case");
    assignments.iter().map(|assignment| number_of(assignment.execution.occurrence.job)).collect()
}
