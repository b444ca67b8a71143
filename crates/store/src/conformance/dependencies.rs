//! Jobs that depend on others.

use super::fixture::{
    Harness, Worker, at, behind, died, every, failed, job, job_with, lane, once, succeeded,
};
use punctual_core::control::Verb;
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::JobId;
use punctual_core::job::{Expiry, Job, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::limits::DEPENDENTS_PER_STEP_MAX;
use punctual_core::occurrence::{ReportedEnd, LiveState};
use punctual_core::ports::{
    CommitEffects, FireOutcome, LookOutcome, NewJob, ParentProblem, Resolved, Store, SubmitOutcome,
};
use punctual_core::schedule::{OverlapPolicy, SkipReason};
use std::sync::Arc;

const TRIGGER: Verb = Verb::trigger(false);

pub async fn a_child_waits_until_all_its_parents_have_succeeded(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in [1, 2] {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    let reservation = Some(worker.reservation());
    let effects = harness.submit_to(at(3), child(3, &[1, 2]), reservation).await;
    assert_eq!(effects, CommitEffects::default(), "nothing of it can start");
    assert_eq!(harness.open(job(3).id).await, [(1, behind(Gate::Dependency))]);
    assert_eq!(worker.run(at(4), succeeded(4)).await.1, CommitEffects::default());
    assert_eq!(worker.run(at(5), succeeded(5)).await.1.queued, [lane()]);
    assert_eq!(worker.run(at(6), succeeded(6)).await.0, job(3).id.occurrence(1).attempt(1));
    assert_eq!(harness.status(job(3).id).await, JobStatus::Completed);
}

pub async fn a_repeated_submit_of_a_child_whose_parent_is_gone_is_known(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), child(2, &[1])).await;
    harness.done(at(3), job(1).id, Verb::Delete).await;
    assert_eq!(harness.try_submit(at(4), child(2, &[1])).await, SubmitOutcome::AlreadyThere);
}

pub async fn the_final_failure_of_one_parent_skips_the_child(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in [1, 2] {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    harness.submit(at(3), child(3, &[1, 2])).await;
    let execution = job(3).id.occurrence(1).attempt(1);
    assert_eq!(worker.run(at(4), died(4)).await.1, skipped(&[3]));
    let view = harness.view(job(3).id).await;
    assert_eq!((view.status(), view.open), (JobStatus::Failed, vec![]));
    let last = view.last_finished.expect("it was skipped");
    assert_eq!(
        (last.id, last.status, last.reason),
        (execution, Status::Skipped, Some(SkipReason::Dependency))
    );
    assert!(last.error.is_some_and(|error| error.contains(&job(1).id.to_string())));
    assert_eq!(harness.dead_letters().await.len(), 1, "only the parent can be redriven");
    assert_eq!(worker.run(at(5), succeeded(5)).await.1, CommitEffects::default());
}

pub async fn a_failure_that_is_retried_leaves_the_child_waiting(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), child(2, &[1])).await;
    let (first, _) = worker.run(at(3), failed(3)).await;
    assert_eq!(harness.open(job(2).id).await, [(1, behind(Gate::Dependency))]);
    harness.look(at(100), first.occurrence.attempt(2), None).await;
    assert_eq!(worker.run(at(101), succeeded(101)).await.1.queued, [lane()]);
}

pub async fn a_skipped_child_skips_its_own_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), child(2, &[1])).await;
    harness.submit(at(3), child(3, &[2])).await;
    let mut later = child(4, &[3]);
    later.spec.settings.schedule = once(500);
    harness.submit(at(4), later).await;
    assert_eq!(worker.run(at(5), died(5)).await.1, skipped(&[2, 3, 4]));
    for n in [2, 3, 4] {
        assert_eq!(harness.status(job(n).id).await, JobStatus::Failed, "job {n}");
    }
    assert_eq!(harness.due(at(9_999)).await, []);
}

pub async fn a_chain_runs_link_by_link(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    for n in 2..=4 {
        harness.submit(at(i64::from(n)), child(n, &[n - 1])).await;
    }
    for n in 1..=4 {
        let claimed = worker.claim(at(9), 10).await;
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].execution.occurrence.job, job(n).id);
        worker.end(at(9), &claimed[0], succeeded(9)).await;
    }
}

pub async fn a_child_whose_parents_are_done_waits_for_its_time(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let effects = harness.submit(at(2), later_child(2, &[1])).await;
    assert_eq!(effects.due[0].at, at(100));
    assert_eq!(worker.run(at(3), succeeded(3)).await.1, CommitEffects::default());
    assert_eq!(harness.due(at(100)).await, [at(100)]);
    let FireOutcome::Fired { effects, .. } = harness.fire(at(100), job(2).id, 1).await else {
        panic!("it is due")
    };
    assert_eq!(effects.queued, [lane()]);
}

pub async fn a_child_that_is_due_waits_for_its_parents(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), later_child(2, &[1])).await;
    let FireOutcome::Fired { effects, .. } = harness.fire(at(100), job(2).id, 1).await else {
        panic!("it is due")
    };
    assert_eq!(effects, CommitEffects::default());
    assert_eq!(harness.open(job(2).id).await, [(1, behind(Gate::Dependency))]);
    assert_eq!(worker.run(at(101), succeeded(101)).await.1.queued, [lane()]);
    assert_eq!(worker.claim_one(at(102)).await.scheduled_time, at(100));
}

pub async fn a_child_that_is_to_come_is_skipped_with_its_schedule(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), later_child(2, &[1])).await;
    assert_eq!(worker.run(at(3), died(3)).await.1, skipped(&[2]));
    let view = harness.view(job(2).id).await;
    assert_eq!((view.status(), view.schedule), (JobStatus::Failed, None));
    assert_eq!(harness.fire(at(100), job(2).id, 1).await, FireOutcome::Conflict);
}

pub async fn a_child_of_a_parent_that_is_done_starts_at_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), succeeded(2)).await;
    assert_eq!(harness.submit(at(3), child(2, &[1])).await.queued, [lane()]);
    assert_eq!(harness.open(job(2).id).await, [(1, LiveState::Queued)]);
}

pub async fn a_child_of_a_parent_that_did_not_succeed_is_skipped_at_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), died(2)).await;
    harness.submit(at(3), job(2)).await;
    harness.done(at(4), job(2).id, Verb::Cancel).await;
    assert_eq!(harness.submit(at(5), child(3, &[1])).await, skipped(&[3]));
    assert_eq!(harness.submit(at(5), later_child(4, &[2])).await, skipped(&[4]));
    for n in [3, 4] {
        assert_eq!(harness.status(job(n).id).await, JobStatus::Failed);
    }
    assert!(worker.is_idle(at(6)).await);
    assert_eq!(harness.due(at(9_999)).await, []);
}

pub async fn what_cannot_be_depended_on_is_refused(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job_with(1, |spec| spec.settings.schedule = every(10))).await;
    harness.submit(at(1), job(2)).await;
    harness.done(at(2), job(2).id, Verb::Delete).await;
    let problems =
        [(1, ParentProblem::Recurring), (2, ParentProblem::NotThere), (3, ParentProblem::NotThere)];
    for (parent, problem) in problems {
        let refused = SubmitOutcome::BadParent { parent: job(parent).id, problem };
        assert_eq!(harness.try_submit(at(3), child(9, &[parent])).await, refused);
        assert_eq!(harness.store.job(job(9).id).await.unwrap(), None, "nothing of it is stored");
    }
}

pub async fn a_batch_can_bring_parents_and_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let jobs = [job(1), child(2, &[1]), child(3, &[1, 2])].map(|job| NewJob { job, reservation: None });
    let outcomes = harness.store.submit(at(1), jobs.to_vec()).await.unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, SubmitOutcome::Created(_))));
    for n in 1..=3 {
        assert_eq!(worker.run(at(2), succeeded(2)).await.0.occurrence.job, job(n).id);
    }
}

pub async fn a_parent_that_is_cancelled_skips_its_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for (parent, verb) in [(1, Verb::Cancel), (3, Verb::Delete)] {
        harness.submit(at(1), job(parent)).await;
        harness.submit(at(2), child(parent + 1, &[parent])).await;
        let effects = harness.done(at(3), job(parent).id, verb).await.effects;
        assert!(effects.ended.contains(&skipped(&[parent + 1]).ended[0]), "{effects:?}");
        assert_eq!(harness.status(job(parent + 1).id).await, JobStatus::Failed);
    }
    harness.submit(at(1), job_with(5, |spec| spec.settings.schedule = once(100))).await;
    harness.submit(at(2), child(6, &[5])).await;
    assert_eq!(
        harness.done(at(3), job(5).id, Verb::Cancel).await.effects,
        skipped(&[6]),
        "before it was due"
    );

    harness.submit(at(1), job(7)).await;
    harness.submit(at(2), child(8, &[7])).await;
    let running = worker.claim_one(at(3)).await;
    assert_eq!(harness.done(at(4), job(7).id, Verb::Cancel).await.effects, CommitEffects::default());
    assert_eq!(worker.end(at(5), &running, succeeded(5)).await, skipped(&[8]), "when it has stopped");
}

/// A deleted parent is hidden at once, but its child waits until the parent's run has ended, however it
/// ends.
pub async fn a_parent_that_is_deleted_while_it_runs_skips_its_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for (round, parent) in [1, 3, 5].into_iter().enumerate() {
        let mut worker = harness.worker().await;
        harness.submit(at(1), job(parent)).await;
        harness.submit(at(2), child(parent + 1, &[parent])).await;
        let running = worker.claim_one(at(3)).await;
        assert_eq!(harness.done(at(4), job(parent).id, Verb::Delete).await.effects, CommitEffects::default());
        assert_eq!(harness.store.job(job(parent).id).await.unwrap(), None);
        assert_eq!(harness.open(job(parent + 1).id).await, [(1, behind(Gate::Dependency))]);
        harness.store.purge(at(900), 100).await.unwrap();
        let effects = match round {
            0 => worker.end(at(5), &running, succeeded(5)).await,
            1 => worker.give_back(at(5), &running).await,
            _ => worker.lose(at(9)).await.effects,
        };
        assert!(effects.ended.contains(&skipped(&[parent + 1]).ended[0]), "{effects:?}");
        assert_eq!(harness.ended(job(parent + 1).id).await, [(1, 1, Status::Skipped)]);
        assert_eq!(harness.status(job(parent + 1).id).await, JobStatus::Failed);
    }
}

pub async fn a_parent_that_expires_skips_its_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job_with(1, |spec| spec.settings.expiry = Some(Expiry::AfterMs(10_000)))).await;
    harness.submit(at(2), child(2, &[1])).await;
    let LookOutcome::Expired(effects) = harness.look(at(11), job(1).id.occurrence(1).attempt(1), None).await
    else {
        panic!("it has expired");
    };
    assert_eq!(effects.ended[1..], skipped(&[2]).ended);
    assert_eq!(harness.status(job(2).id).await, JobStatus::Failed);
}

pub async fn a_parent_that_is_lost_for_good_skips_its_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job_with(1, |spec| spec.settings.max_retries = 0)).await;
    harness.submit(at(2), child(2, &[1])).await;
    worker.claim_one(at(3)).await;
    assert_eq!(worker.lose(at(9)).await.effects, skipped(&[2]));
}

pub async fn very_many_children_are_released_in_steps(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = many_children(&harness, 5).await;
    worker.run(at(3), succeeded(3)).await;
    assert_eq!(worker.claim(at(4), 5_000).await.len(), DEPENDENTS_PER_STEP_MAX);
    let first = harness.store.resolve(at(4), 3).await.unwrap();
    assert_eq!((first.dependents, first.more), (3, true));
    assert!(first.effects.queued.contains(&lane()));
    let second = harness.store.resolve(at(4), 3).await.unwrap();
    assert_eq!((second.dependents, second.more), (2, false));
    assert_eq!(worker.claim(at(5), 5_000).await.len(), 5);
    assert_eq!(harness.store.resolve(at(6), 100).await.unwrap(), Resolved::default());
}

pub async fn very_many_children_are_skipped_in_steps(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = many_children(&harness, 5).await;
    let effects = worker.run(at(3), died(3)).await.1;
    assert_eq!(effects.ended.len(), DEPENDENTS_PER_STEP_MAX);
    let rest = harness.store.resolve(at(4), 100).await.unwrap();
    assert_eq!((rest.dependents, rest.effects.ended.len(), rest.more), (5, 5, false));
}

pub async fn a_child_that_is_due_between_two_steps_waits_for_its_turn(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = many_children(&harness, 0).await;
    // The child with the highest id is resolved last.
    let late = later_child(5_000, &[0]);
    harness.submit(at(2), late.clone()).await;
    worker.run(at(3), succeeded(3)).await;
    harness.fired(at(100), late.id, 1).await;
    assert_eq!(harness.open(late.id).await, [(1, behind(Gate::Dependency))]);
    assert_eq!(harness.store.resolve(at(101), 10).await.unwrap().dependents, 1);
    assert_eq!(harness.open(late.id).await, [(1, LiveState::Queued)]);
}

pub async fn a_child_that_was_cancelled_stays_cancelled(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let ends: [ReportedEnd; 2] = [succeeded(5), died(5)];
    for (parent, end) in [1, 4].into_iter().zip(ends) {
        harness.submit(at(1), job(parent)).await;
        harness.submit(at(2), child(parent + 1, &[parent])).await;
        harness.submit(at(2), later_child(parent + 2, &[parent])).await;
        for n in [parent + 1, parent + 2] {
            harness.done(at(3), job(n).id, Verb::Cancel).await;
        }
        assert_eq!(worker.run(at(5), end).await.1, CommitEffects::default());
        for n in [parent + 1, parent + 2] {
            assert_eq!(harness.status(job(n).id).await, JobStatus::Cancelled);
        }
    }
}

pub async fn a_child_that_was_deleted_stays_deleted(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), child(2, &[1])).await;
    harness.done(at(3), job(2).id, Verb::Delete).await;
    assert!(!harness.store.purge(at(1_000_000), 100).await.unwrap());
    assert_eq!(worker.run(at(4), succeeded(4)).await.1, CommitEffects::default());
    assert_eq!(harness.store.job(job(2).id).await.unwrap(), None);
}

pub async fn a_paused_child_is_released_and_still_held(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), child(2, &[1])).await;
    harness.done(at(3), job(2).id, Verb::Pause).await;
    let gates = Gates::only(Gate::Dependency).with(Gate::Paused);
    assert_eq!(harness.open(job(2).id).await, [(1, LiveState::Waiting(gates))]);
    assert_eq!(worker.run(at(4), succeeded(4)).await.1.queued, []);
    assert_eq!(harness.open(job(2).id).await, [(1, behind(Gate::Paused))]);
    assert_eq!(harness.done(at(5), job(2).id, Verb::Resume).await.effects.queued, [lane()]);
}

pub async fn a_redriven_parent_has_new_children_wait(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), child(2, &[1])).await;
    let (dead, _) = worker.run(at(3), died(3)).await;
    harness.redriven(at(4), dead.occurrence).await;
    harness.submit(at(5), child(3, &[1])).await;
    assert_eq!(worker.run(at(6), succeeded(6)).await.1.queued, [lane()]);
    assert_eq!(worker.claim(at(7), 10).await.len(), 1);
    assert_eq!(harness.status(job(2).id).await, JobStatus::Failed, "finished executions never change");
}

pub async fn a_parent_fails_when_nothing_of_it_can_succeed_any_more(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job_with(1, |spec| spec.settings.overlap = OverlapPolicy::Allow)).await;
    harness.done(at(2), job(1).id, TRIGGER).await;
    harness.submit(at(3), child(2, &[1])).await;
    assert_eq!(worker.run(at(4), died(4)).await.1, CommitEffects::default(), "the triggered one is open");
    assert_eq!(worker.run(at(5), succeeded(5)).await.1.queued, [lane()]);
}

pub async fn whichever_run_of_a_parent_ends_last_tells_its_children(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for (parent, order) in [(1, [0, 1]), (3, [1, 0])] {
        harness.submit(at(1), job_with(parent, |spec| spec.settings.overlap = OverlapPolicy::Allow)).await;
        harness.done(at(2), job(parent).id, TRIGGER).await;
        harness.submit(at(3), child(parent + 1, &[parent])).await;
        let mut running = worker.claim(at(4), 10).await;
        running.sort_by_key(|assignment| assignment.execution);
        let [first, last] = order.map(|place: usize| &running[place]);
        assert_eq!(worker.end(at(5), first, died(5)).await, CommitEffects::default());
        assert_eq!(worker.end(at(6), last, died(6)).await, skipped(&[parent + 1]));
    }
}

pub async fn a_parent_whose_run_is_replaced_keeps_its_children_waiting(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job_with(1, |spec| spec.settings.overlap = OverlapPolicy::Replace)).await;
    harness.submit(at(2), child(2, &[1])).await;
    let replaced = harness.done(at(3), job(1).id, TRIGGER).await;
    let first = job(1).id.occurrence(1).attempt(1);
    assert_eq!(replaced.effects.ended, [(first, Status::Cancelled)]);
    assert_eq!(worker.run(at(4), succeeded(4)).await.1.queued, [lane()]);
    assert_eq!(worker.claim_one(at(5)).await.execution.occurrence.job, job(2).id);
}

pub async fn a_run_in_line_behind_a_skipped_child_starts(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let mut queueing = child(2, &[1]);
    queueing.spec.settings.overlap = OverlapPolicy::Queue;
    harness.submit(at(2), queueing).await;
    harness.done(at(3), job(2).id, TRIGGER).await;
    let effects = worker.run(at(4), died(4)).await.1;
    assert_eq!((effects.ended, effects.queued), (skipped(&[2]).ended, vec![lane()]));
    assert_eq!(worker.claim_one(at(5)).await.execution, job(2).id.occurrence(2).attempt(1));
}

pub async fn a_skipped_child_that_was_triggered_before_goes_on_counting(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    harness.submit(at(2), later_child(2, &[1])).await;
    let parent = worker.claim_one(at(3)).await;
    harness.done(at(4), job(2).id, TRIGGER).await;
    worker.run(at(5), succeeded(5)).await;
    worker.end(at(6), &parent, died(6)).await;
    assert_eq!(harness.ended(job(2).id).await, [(1, 1, Status::Succeeded), (2, 1, Status::Skipped)]);
    let again = harness.done(at(7), job(2).id, TRIGGER).await.added;
    assert_eq!(again, Some(job(2).id.occurrence(3).attempt(1)));
}

fn child(number: u32, parents: &[u32]) -> Job {
    let depends_on: Vec<JobId> = parents.iter().map(|n| job(*n).id).collect();
    job_with(number, |spec| spec.settings.depends_on = depends_on)
}

/// A child that is due at second 100.
fn later_child(number: u32, parents: &[u32]) -> Job {
    let mut child = child(number, parents);
    child.spec.settings.schedule = once(100);
    child
}

/// The commit effects when these jobs are skipped.
fn skipped(numbers: &[u32]) -> CommitEffects {
    let ended = numbers.iter().map(|n| (job(*n).id.occurrence(1).attempt(1), Status::Skipped)).collect();
    CommitEffects { ended, ..CommitEffects::default() }
}

/// Job 0 with this many more children than one step resolves.
async fn many_children(harness: &Harness, more: usize) -> Worker {
    harness.submit(at(1), job(0)).await;
    let count = (DEPENDENTS_PER_STEP_MAX + more) as u32;
    let children = (1..=count).map(|n| NewJob { job: child(n, &[0]), reservation: None }).collect();
    harness.store.submit(at(2), children).await.unwrap();
    harness.worker().await
}
