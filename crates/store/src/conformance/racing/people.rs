//! Races between calls of users, and with reports of workers.

use super::{RaceWorker, Nodes, Round};
use crate::conformance::directory::{full_token, plain_token, user};
use crate::conformance::fixture::{at, died, succeeded};
use punctual_core::control::{Refusal, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{
    Assignment, ControlOutcome, DeadLetterQuery, Horizon, JobCounts, ReportAnswer, Retirement, SubmitOutcome,
    DirectoryChange, DirectoryOutcome, Token,
};

/// Callers of the same submit.
const CALLERS: usize = 6;

pub(super) async fn one_submit_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let outcomes =
                round.many(CALLERS, |index| round.node(index).try_submit(at(1), round.job(0))).await;
            let known = |outcome: &SubmitOutcome| *outcome == SubmitOutcome::AlreadyThere;
            only_one_is_created(&round, &outcomes, known).await;
        })
        .await;
}

pub(super) async fn one_idempotency_key_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let named = |n: usize| {
                round.job_with(n as u32, |spec| spec.settings.idempotency_key = Some(round.queue()))
            };
            let outcomes =
                round.many(CALLERS, |index| round.node(index).try_submit(at(1), named(index))).await;
            let first = created(&outcomes).map(|index| named(index).id);
            let known =
                |outcome: &SubmitOutcome| first.is_some_and(|id| *outcome == SubmitOutcome::Existing(id));
            only_one_is_created(&round, &outcomes, known).await;
        })
        .await;
}

pub(super) async fn one_unique_key_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let outcomes =
                round.many(CALLERS, |index| round.node(index).try_submit(at(1), unique(&round, index))).await;
            let first = created(&outcomes).map(|index| unique(&round, index).id);
            let taken =
                |outcome: &SubmitOutcome| first.is_some_and(|id| *outcome == SubmitOutcome::KeyTaken(id));
            only_one_is_created(&round, &outcomes, taken).await;
        })
        .await;
}

pub(super) async fn one_first_token_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let token = |index: usize| plain_token(&round.queue(), index as u8);
            let add = |index: usize| {
                let change = DirectoryChange::AddToken(token(index));
                round.node(index).store.change_directory(change, None)
            };
            let outcomes = round.many(CALLERS, add).await.into_iter().map(Result::unwrap).enumerate();
            let replies: Vec<Token> = outcomes
                .map(|(index, outcome)| match outcome {
                    DirectoryOutcome::Exists(kept) => *kept,
                    _ => token(index),
                })
                .collect();
            let kept = round.here().store.token(&round.queue()).await.unwrap();
            assert!(
                replies.iter().all(|reply| Some(reply) == kept.as_ref()),
                "stored is {kept:?}, but the replies were {replies:?}"
            );
            assert!((0..CALLERS).any(|index| Some(token(index)) == kept), "{kept:?}");
        })
        .await;
}

pub(super) async fn one_rotation_of_a_token_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let token = |index: usize| full_token(&round.queue(), index as u8);
            round.here().store.put_token(token(CALLERS)).await.unwrap();
            let rotate = |index: usize| {
                let change = DirectoryChange::ReplaceToken { token: token(index), expected: token(CALLERS) };
                round.node(index).store.change_directory(change, None)
            };
            let replies = round.many(CALLERS, rotate).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
            let kept = round.here().store.token(&round.queue()).await.unwrap();
            let changed: Vec<usize> = (0..CALLERS).filter(|index| replies[*index] == DirectoryOutcome::Done).collect();
            assert_eq!(changed.len(), 1, "{replies:?}");
            assert_eq!(kept, Some(token(changed[0])));
        })
        .await;
}

pub(super) async fn one_email_address_from_many_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let new = |index: usize| user(&format!("{} {index}", round.queue()), &round.queue());
            let add = |index: usize| {
                round.node(index).store.change_directory(DirectoryChange::AddUser(new(index)), None)
            };
            let replies = round.many(CALLERS, add).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
            let kept = round.here().store.user_by_email(&round.queue()).await.unwrap();
            for (index, outcome) in replies.iter().enumerate() {
                let is_kept = kept.as_ref() == Some(&new(index));
                assert_eq!(
                    *outcome,
                    if is_kept { DirectoryOutcome::Done } else { DirectoryOutcome::Taken },
                    "{replies:?}"
                );
            }
            assert!(replies.contains(&DirectoryOutcome::Done), "{replies:?}");
        })
        .await;
}

fn created(outcomes: &[SubmitOutcome]) -> Option<usize> {
    outcomes.iter().position(|outcome| matches!(outcome, SubmitOutcome::Created(_)))
}

/// One submit succeeds, all others get the expected reply, and one execution can be claimed.
async fn only_one_is_created(
    round: &Round,
    outcomes: &[SubmitOutcome],
    is_expected: impl Fn(&SubmitOutcome) -> bool,
) {
    let count = outcomes.iter().filter(|outcome| matches!(outcome, SubmitOutcome::Created(_))).count();
    let expected = outcomes.iter().filter(|outcome| is_expected(outcome)).count();
    assert_eq!((count, expected), (1, CALLERS - 1), "{outcomes:?}");
    assert_eq!(round.depth().await, (0, 1, 0));
    round.worker(0).await.claim_only().await;
}

/// The n-th job of a round, with the unique key that all of them share.
fn unique(round: &Round, n: usize) -> Job {
    round.job_with(n as u32, |spec| spec.settings.unique_key = Some(round.queue()))
}

pub(super) async fn a_submit_against_the_end_of_the_holder_of_its_unique_key(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let [holder, next, third] = [0, 1, 2].map(|n| unique(&round, n));
            let (worker, running) = running(&round, holder.clone()).await;
            let submit = round.there().try_submit(at(3), next.clone());
            let (answer, submitted) = round.both(worker.report(at(3), &running, succeeded(3)), submit).await;
            assert_eq!(answer, ReportAnswer::Accepted);
            match submitted {
                SubmitOutcome::Created(_) => {}
                SubmitOutcome::KeyTaken(id) => {
                    assert_eq!(id, holder.id);
                    assert_eq!(round.here().store.job(next.id).await.unwrap(), None);
                    round.here().submit(at(4), next.clone()).await;
                }
                other => panic!("submitted: {other:?}"),
            }
            assert_eq!(round.there().try_submit(at(5), third).await, SubmitOutcome::KeyTaken(next.id));
            assert_eq!(round.here().status(holder.id).await, JobStatus::Completed);
            assert_eq!(round.here().status(next.id).await, JobStatus::Active);
        })
        .await;
}

pub(super) async fn a_child_against_the_success_of_its_parent(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let child = child_against_end(&round, succeeded(3)).await;
            let mut worker = round.worker(1).await;
            let running = worker.claim_only().await;
            assert_eq!(running.execution, child.occurrence(1).attempt(1));
            worker.end(at(11), &running, succeeded(11)).await;
            assert_eq!(round.here().status(child).await, JobStatus::Completed);
        })
        .await;
}

pub(super) async fn a_child_against_the_failure_of_its_parent(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let child = child_against_end(&round, died(3)).await;
            assert_eq!(round.here().ended(child).await, [(1, 1, Status::Skipped)]);
            assert_eq!(round.here().status(child).await, JobStatus::Failed);
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}

/// Submits a child while its parent ends, and resolves the child.
async fn child_against_end(round: &Round, end: ReportedEnd) -> JobId {
    let (worker, running) = running(round, round.job(0)).await;
    let child = child(round, &[0]);
    let submit = round.there().try_submit(at(3), child.clone());
    let (answer, submitted) = round.both(worker.report(at(3), &running, end), submit).await;
    assert_eq!(answer, ReportAnswer::Accepted);
    assert!(matches!(submitted, SubmitOutcome::Created(_)), "{submitted:?}");
    round.resolve_all().await;
    child.id
}

pub(super) async fn two_parents_that_succeed_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let child = two_parents_end(&round, [succeeded(4), succeeded(4)]).await;
            let running = round.worker(0).await.claim_only().await;
            assert_eq!(running.execution, child.occurrence(1).attempt(1));
        })
        .await;
}

pub(super) async fn two_parents_that_end_differently_at_once(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let child = two_parents_end(&round, [succeeded(4), died(4)]).await;
            assert_eq!(round.here().ended(child).await, [(1, 1, Status::Skipped)]);
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}

async fn two_parents_end(round: &Round, ends: [ReportedEnd; 2]) -> JobId {
    let child = child(round, &[0, 1]);
    for job in [round.job(0), round.job(1), child.clone()] {
        round.here().submit(at(1), job).await;
    }
    let (mut one, mut other) = (round.worker(0).await, round.worker(1).await);
    let [first, second] = [one.claim(1).await.remove(0), other.claim(1).await.remove(0)];
    let [end, another] = ends;
    let reports = round.both(one.report(at(4), &first, end), other.report(at(4), &second, another));
    assert_eq!(reports.await, (ReportAnswer::Accepted, ReportAnswer::Accepted));
    round.resolve_all().await;
    child.id
}

/// The last job of a round, which depends on others of it.
fn child(round: &Round, parents: &[u32]) -> Job {
    let depends_on = parents.iter().map(|n| round.job(*n).id).collect();
    round.job_with(9, |spec| spec.settings.depends_on = depends_on)
}

pub(super) async fn a_trigger_against_the_last_end(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let job = round.job(0).id;
            let (worker, running) = running(&round, round.job(0)).await;
            let despite_overlap = round.number.is_multiple_of(2);
            let trigger = round.there().control(at(3), job, Verb::trigger(despite_overlap));
            let (answer, triggered) = round.both(worker.report(at(3), &running, succeeded(3)), trigger).await;
            assert_eq!(answer, ReportAnswer::Accepted);
            assert_eq!(round.here().ended(job).await, [(1, 1, Status::Succeeded)]);
            match triggered {
                ControlOutcome::Done(done) => {
                    assert_eq!(done.added, Some(job.occurrence(2).attempt(1)));
                    assert_eq!(round.here().status(job).await, JobStatus::Active);
                    let mut worker = round.worker(1).await;
                    let second = worker.claim_only().await;
                    worker.end(at(5), &second, succeeded(5)).await;
                }
                ControlOutcome::Refused(Refusal::Overlap) => assert!(!despite_overlap, "it may run concurrently"),
                other => panic!("triggered: {other:?}"),
            }
            assert_eq!(round.here().status(job).await, JobStatus::Completed);
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}

pub(super) async fn a_redrive_against_a_discard(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let job = round.job(0).id;
            let (worker, running) = running(&round, round.job(0)).await;
            worker.end(at(3), &running, died(3)).await;
            let dead = job.occurrence(1);
            let discard = async { round.there().store.discard(vec![dead]).await.unwrap() };
            let (redriven, discarded) = round.both(round.here().redrive(at(4), dead), discard).await;
            let is_redriven = match redriven {
                ControlOutcome::Done(_) => true,
                ControlOutcome::NotThere => false,
                ControlOutcome::Refused(refusal) => panic!("redriven: {refusal}"),
            };
            assert_eq!(discarded, [!is_redriven], "exactly one of the calls took effect");
            let query = DeadLetterQuery { job: Some(job), limit: 10, ..DeadLetterQuery::default() };
            assert_eq!(round.here().store.dead_letters(query).await.unwrap().items, []);
            assert_eq!(round.depth().await, (0, u64::from(is_redriven), 0));
            let expected = if is_redriven { JobStatus::Active } else { JobStatus::Failed };
            assert_eq!(round.there().status(job).await, expected);
        })
        .await;
}

/// The last job of a lane is purged, and the lane with it, while the next one is submitted to it by a
/// process that has the lane cached.
pub(super) async fn a_submit_against_the_deletion_of_its_lane(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            for turn in 0..3_u32 {
                let now = i64::from(turn) * 100;
                let (first, second) = (round.job(turn * 2), round.job(turn * 2 + 1));
                let (worker, running) = running(&round, first.clone()).await;
                worker.end(at(now + 2), &running, succeeded(now + 2)).await;
                round.here().done(at(now + 3), first.id, Verb::Delete).await;
                let delete = async {
                    let store = &round.there().store;
                    store.purge(at(now + 1_000), 50).await.unwrap();
                    store.retain(Horizon { history: at(-1), requests: at(-1) }, 50).await.unwrap();
                };
                let (_, ()) = round.both(round.here().submit(at(now + 4), second.clone()), delete).await;
                assert_eq!(round.depth().await, (0, 1, 0));
                assert_eq!(round.there().view(second.id).await.job.spec.queue, round.queue());
                let mut other = round.worker(1).await;
                let claimed = other.claim_only().await;
                assert_eq!(
                    (claimed.execution.occurrence.job, claimed.queue.clone()),
                    (second.id, round.queue())
                );
                other.end(at(now + 5), &claimed, succeeded(now + 5)).await;
                round.there().done(at(now + 6), second.id, Verb::Delete).await;
            }
        })
        .await;
}

pub(super) async fn maintenance_against_all_the_rest(nodes: Nodes) {
    let harness = nodes.harnesses[0].clone();
    nodes
        .rounds(|round| async move {
            // It finishes and may be retired before it is triggered.
            let (worker, first) = running(&round, round.job(0)).await;
            let ((), effects) = round.both(sweep(&round), worker.end(at(3), &first, succeeded(3))).await;
            assert_eq!(effects.queued, []);
            let trigger = round.there().control(
                at(4),
                first.execution.occurrence.job,
                Verb::trigger(true),
            );
            let ((), triggered) = round.both(sweep(&round), trigger).await;
            match triggered {
                ControlOutcome::Done(_) => run_only(&round).await,
                ControlOutcome::NotThere => assert_eq!(round.depth().await, (0, 0, 0)),
                ControlOutcome::Refused(refusal) => panic!("triggered: {refusal}"),
            }
            // A dead letter keeps its job.
            let (worker, second) = running(&round, round.job(1)).await;
            let ((), _) = round.both(sweep(&round), worker.end(at(30), &second, died(30))).await;
            let ((), redriven) =
                round.both(sweep(&round), round.there().redrive(at(31), second.execution.occurrence)).await;
            assert!(matches!(redriven, ControlOutcome::Done(_)), "{redriven:?}");
            run_only(&round).await;
            // A running execution keeps its deleted job.
            let (worker, third) = running(&round, round.job(2)).await;
            let deleted = round.there().done(at(40), third.execution.occurrence.job, Verb::Delete);
            let ((), _) = round.both(sweep(&round), deleted).await;
            let ((), _) = round.both(sweep(&round), worker.end(at(41), &third, succeeded(41))).await;
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
    // Everything left has finished, and is deleted.
    let mut after = None;
    loop {
        let step = Retirement { finished_before: at(10_000), after, limit: 100 };
        after = harness.store.retire(at(20_000), step).await.unwrap().next;
        if after.is_none() {
            break;
        }
    }
    while harness.store.purge(at(30_000), 100).await.unwrap() {}
    assert_eq!(harness.store.job_counts().await.unwrap(), JobCounts::default());
    assert_eq!(harness.store.finished_after(0, 100).await.unwrap().items.len(), 0);
}

/// Runs maintenance with minimal retention times.
async fn sweep(round: &Round) {
    let store = &round.there().store;
    store.retain(Horizon { history: at(20), requests: at(20) }, 50).await.unwrap();
    let retirement = Retirement { finished_before: at(10_000), after: None, limit: 50 };
    store.retire(at(10_000), retirement).await.unwrap();
    store.purge(at(20_000), 50).await.unwrap();
}

/// Claims the only execution of the round, and ends it.
async fn run_only(round: &Round) {
    let mut worker = round.worker(1).await;
    let running = worker.claim_only().await;
    worker.end(at(51), &running, succeeded(51)).await;
}

/// Submits a job and claims it. Returns its worker and the assignment.
async fn running(round: &Round, job: Job) -> (RaceWorker, Assignment) {
    let mut worker = round.worker(0).await;
    round.here().submit(at(1), job).await;
    let running = worker.claim_only().await;
    (worker, running)
}
