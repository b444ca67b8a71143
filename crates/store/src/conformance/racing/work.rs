//! Races of workers that claim, report and return work.

use super::{RaceWorker, Nodes, Round, TRIES_MAX};
use crate::conformance::fixture::{LEASE, at, failed, succeeded};
use punctual_core::ids::ExecutionId;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    Assignment, Beat, BeatOutcome, CancelOutcome, ClaimOutcome, NewJob, Report, ReportAnswer, ResyncOutcome,
};
use punctual_core::session::Pulse;
use std::collections::BTreeSet;

/// Jobs that the claimers of one round share.
const SHARED: u32 = 40;

pub(super) async fn two_claimers_share_all_there_is(nodes: Nodes) {
    nodes.fewer_rounds(2, |round| claimers_share_all_there_is(round, 2)).await;
}

pub(super) async fn eight_claimers_share_all_there_is(nodes: Nodes) {
    nodes.fewer_rounds(4, |round| claimers_share_all_there_is(round, 8)).await;
}

async fn claimers_share_all_there_is(round: Round, claimers: usize) {
    let jobs = (0..SHARED).map(|n| NewJob { job: round.job(n), reservation: None }).collect();
    round.here().store.submit(at(1), jobs).await.unwrap();
    let claimed = round.many(claimers, |index| claim_all(&round, index)).await;
    let claimed: Vec<ExecutionId> = claimed.concat();
    let all: BTreeSet<ExecutionId> = (0..SHARED).map(|n| round.job(n).id.occurrence(1).attempt(1)).collect();
    assert_eq!(claimed.len(), all.len(), "no execution is claimed twice");
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>(), all, "every execution is claimed");
    assert_eq!(round.depth().await, (0, 0, SHARED.into()));
}

/// Claims until nothing is left.
async fn claim_all(round: &Round, index: usize) -> Vec<ExecutionId> {
    let mut worker = round.worker(index).await;
    let mut all = Vec::new();
    loop {
        let claimed = worker.claim(7).await;
        if claimed.is_empty() {
            return all;
        }
        all.extend(claimed.iter().map(|assignment| assignment.execution));
    }
}

pub(super) async fn a_claim_against_a_cancel(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let mut worker = round.worker(0).await;
            let job = round.job(0).id;
            round.here().submit(at(1), round.job(0)).await;
            let execution = job.occurrence(1).attempt(1);
            let cancel = round.there().cancel(at(2), execution);
            let (claimed, cancelled) = round.both(worker.claim(10), cancel).await;
            match cancelled {
                CancelOutcome::Cancelled(_) => assert_eq!(claimed, [], "it has ended"),
                CancelOutcome::Asked => {
                    assert_eq!(claimed.len(), 1, "the worker that holds it was asked to stop");
                    let beat = Beat { session: worker.session, beat: 1, draining: false };
                    let heard = round.there().store.beat(at(3), vec![beat]).await.unwrap().remove(0);
                    let lease = claimed[0].lease();
                    assert!(matches!(heard, BeatOutcome::Counted { cancel, .. } if cancel == [lease]));
                    worker.end(at(3), &claimed[0], failed(3)).await;
                }
                other => panic!("cancelled: {other:?}"),
            }
            assert_eq!(round.there().ended(job).await, [(1, 1, Status::Cancelled)]);
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}

/// Whichever comes first, the reply to the report matches history.
pub(super) async fn a_report_against_a_cancel(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let mut worker = round.worker(0).await;
            let job = round.job(0).id;
            round.here().submit(at(1), round.job(0)).await;
            let running = worker.claim_only().await;
            let report = Report { session: worker.session, lease: running.lease(), end: succeeded(3) };
            let reported = round.here().store.report(at(3), vec![report.clone()]);
            let cancel = round.there().cancel(at(3), running.execution);
            let (reported, cancelled) = round.both(reported, cancel).await;
            let outcome = reported.unwrap().remove(0);
            assert_eq!(outcome.answer, ReportAnswer::Accepted);
            let recorded = match cancelled {
                CancelOutcome::Asked => Status::Cancelled,
                CancelOutcome::Finished => Status::Succeeded,
                other => panic!("cancelled: {other:?}"),
            };
            assert_eq!(outcome.recorded, Some(recorded));
            assert_eq!(round.there().ended(job).await, [(1, 1, recorded)]);
            let repeated = round.here().store.report(at(4), vec![report]).await.unwrap().remove(0);
            assert_eq!((repeated.answer, repeated.recorded), (ReportAnswer::AlreadyAccepted, None));
        })
        .await;
}

pub(super) async fn a_claim_against_a_give_back(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let (mut one, mut other) = (round.worker(0).await, round.worker(1).await);
            round.here().submit(at(1), round.job(0)).await;
            let first = one.claim_only().await;
            let (given_back, claimed) = round.both(one.give_back(at(3), &first), other.claim(10)).await;
            assert!(matches!(given_back[..], [Some(_)]), "it held the lease: {given_back:?}");
            goes_to_the_other(&round, &one, &mut other, claimed).await;
        })
        .await;
}

pub(super) async fn a_claim_against_a_resync_of_another(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let (mut one, mut other) = (round.worker(0).await, round.worker(1).await);
            round.here().submit(at(1), round.job(0)).await;
            one.claim_only().await;
            let (resynced, claimed) = round.both(one.resync(at(3)), other.claim(10)).await;
            assert!(matches!(resynced, ResyncOutcome::GivenBack(effects) if effects.len() == 1));
            goes_to_the_other(&round, &one, &mut other, claimed).await;
        })
        .await;
}

/// The other worker, and only that one, holds or can claim the execution that this one returned.
async fn goes_to_the_other(round: &Round, one: &RaceWorker, other: &mut RaceWorker, mut claimed: Vec<Assignment>) {
    if claimed.is_empty() {
        claimed = other.claim(10).await;
    }
    assert_eq!(claimed.iter().map(|next| next.epoch.0).collect::<Vec<_>>(), [2]);
    let mut former = claimed[0].clone();
    former.epoch.0 = 1;
    assert_eq!(one.report(at(5), &former, succeeded(5)).await, ReportAnswer::Stale);
    assert_eq!(round.depth().await, (0, 0, 1));
    other.end(at(6), &claimed[0], succeeded(6)).await;
    let job = claimed[0].execution.occurrence.job;
    assert_eq!(round.there().ended(job).await, [(1, 1, Status::Succeeded)]);
}

pub(super) async fn a_claim_against_a_resync_with_the_same_turn(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let worker = round.worker(0).await;
            let again = RaceWorker {
                harness: round.there().clone(),
                queue: round.queue(),
                claims: round.nodes.claims.clone(),
                ..worker
            };
            round.here().submit(at(1), round.job(0)).await;
            let (claimed, resynced) = round.both(worker.try_claim(10), again.resync(at(2))).await;
            let running = match (claimed, resynced) {
                (ClaimOutcome::Claimed { assignments, .. }, ResyncOutcome::StaleTurn) => assignments.len(),
                (ClaimOutcome::StaleTurn, ResyncOutcome::GivenBack(effects)) => {
                    assert_eq!(effects, []);
                    0
                }
                other => panic!("the poll sequence number was used by both or by none: {other:?}"),
            };
            assert_eq!(round.depth().await, (0, 1 - running as u64, running as u64));
        })
        .await;
}

pub(super) async fn a_report_against_the_loss_of_its_session(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let (mut worker, mut other) = (round.worker(0).await, round.worker(1).await);
            let job = round.job(0).id;
            round.here().submit(at(1), round.job(0)).await;
            let running = worker.claim_only().await;
            let store = &round.there().store;
            let (answer, ()) = round
                .both(worker.report(at(3), &running, succeeded(3)), async {
                    let pulse = Pulse { session: worker.session, beat: 0, lease: LEASE };
                    store.lose_sessions(at(3), vec![pulse]).await.unwrap();
                    store.recover(at(3), 1_000).await.unwrap();
                })
                .await;
            recovered(&round).await;
            let ended = round.there().ended(job).await;
            match answer {
                ReportAnswer::Accepted => assert_eq!(ended, [(1, 1, Status::Succeeded)]),
                ReportAnswer::Stale => {
                    assert_eq!(ended, [(1, 1, Status::Lost)]);
                    let next = claim_unlocked(&mut other).await;
                    assert_eq!(next.execution, job.occurrence(1).attempt(2));
                    other.end(at(101), &next, succeeded(101)).await;
                }
                ReportAnswer::AlreadyAccepted => panic!("it was reported once"),
            }
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}

/// Claims the only execution of its queue. Another round that runs recovery may have it locked for a
/// moment, and claims skip locked rows.
async fn claim_unlocked(hand: &mut RaceWorker) -> Assignment {
    for _ in 0..TRIES_MAX {
        if let Some(claimed) = hand.claim(10).await.pop() {
            return claimed;
        }
    }
    panic!("the recovered execution is never claimed");
}

/// Waits until no lost session holds anything: another round may be about to recover it.
async fn recovered(round: &Round) {
    for _ in 0..TRIES_MAX {
        let open = round.there().open(round.job(0).id).await;
        if !open.iter().any(|(_, state)| matches!(state, LiveState::Running { .. })) {
            return;
        }
        round.there().store.recover(at(4), 1_000).await.unwrap();
    }
    panic!("the executions of a lost session are never recovered");
}

pub(super) async fn one_report_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let mut worker = round.worker(0).await;
            let job = round.job(0).id;
            round.here().submit(at(1), round.job(0)).await;
            let running = worker.claim_only().await;
            let (session, running) = (worker.session, &running);
            let report = |index| round.node(index).report(at(3), session, running, succeeded(3));
            let outcomes = round.many(4, report).await;
            let count = |answer| outcomes.iter().filter(|outcome| outcome.answer == answer).count();
            assert_eq!((count(ReportAnswer::Accepted), count(ReportAnswer::AlreadyAccepted)), (1, 3));
            assert_eq!(round.there().ended(job).await, [(1, 1, Status::Succeeded)]);
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}
