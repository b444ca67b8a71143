//! Triggering jobs.

use super::fixture::{Harness, at, behind, died, every, failed, job, job_with, lane, once, recurring_every, succeeded, trace};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::{Job, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{LiveState, Origin, RunInput};
use punctual_core::ports::{FireOutcome, LookOutcome, Store};
use punctual_core::schedule::{OverlapPolicy, Recurring};
use std::sync::Arc;

const TRIGGER: Verb = Verb::trigger(false);
const DESPITE: Verb = Verb::trigger(true);

pub async fn a_trigger_adds_an_occurrence_and_leaves_the_schedule(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    let triggered = harness.done(at(3), job.id, TRIGGER).await;
    assert_eq!(triggered.added, Some(job.id.occurrence(1).attempt(1)));
    assert_eq!(triggered.effects.queued, [lane()]);
    let live = harness.view(job.id).await.open.remove(0);
    assert_eq!((live.origin, live.scheduled_time, live.available_at), (Origin::Trigger, at(3), at(3)));
    assert_eq!(worker.run(at(4), succeeded(4)).await.0.occurrence.number, 1);
    assert_eq!(harness.due(at(10)).await, [at(10)]);
    assert_eq!(harness.fired(at(10), job.id, 1).await.0, 1);
}

pub async fn numbers_are_unique_across_fires_and_triggers(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = recurring(OverlapPolicy::Allow);
    job.spec.settings.schedule = Recurring { max_runs: Some(2), ..recurring_every(10) }.into();
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, TRIGGER).await;
    harness.fired(at(10), job.id, 1).await;
    harness.done(at(11), job.id, TRIGGER).await;
    harness.done(at(12), job.id, TRIGGER).await;
    harness.fired(at(20), job.id, 2).await;
    harness.done(at(21), job.id, TRIGGER).await;
    assert_eq!(worker.claim(at(30), 10).await.len(), 6);
    let numbers: Vec<u32> = harness.open(job.id).await.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "a trigger does not count as a run of the schedule");
}

pub async fn a_trigger_obeys_the_policy_skip_unless_told_otherwise(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, TRIGGER).await;
    assert_eq!(harness.refused(at(3), job.id, TRIGGER).await, Refusal::Overlap);
    harness.done(at(4), job.id, DESPITE).await;
    assert_eq!(harness.open(job.id).await, [(1, LiveState::Queued), (2, LiveState::Queued)]);
    assert_eq!(
        harness.store.skipped(job.id, 10).await.unwrap(),
        [],
        "the answer to the trigger reports it instead"
    );
}

pub async fn a_run_with_its_own_payload_keeps_it_through_retries_and_a_redrive(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut job = recurring(OverlapPolicy::Allow);
    job.spec.payload = "{\"own\":false}".to_owned();
    job.spec.settings.max_retries = 1;
    harness.submit(at(1), job.clone()).await;
    let (payload, context) = (Some("{\"own\": true}".to_owned()), trace(""));
    let input =
        RunInput { payload, repeats: Some(9), trace: Some(context.clone()), ..RunInput::default() };
    let input = Some(Arc::new(input));
    let trigger =
        Verb::Trigger { despite_overlap: false, input: input.clone(), scheduled_time: Some(at(0)) };
    let added = harness.done(at(2), job.id, trigger).await.added.unwrap();
    harness.done(at(2), job.id, TRIGGER).await;
    let own = worker.claim(at(3), 1).await.remove(0);
    let (theirs, plain) = (own.payload.as_str(), worker.claim(at(3), 1).await.remove(0));
    assert_eq!((own.execution, theirs, own.scheduled_time), (added, "{\"own\": true}", at(0)));
    assert_eq!(plain.payload, job.spec.payload);
    assert_eq!(own.trace_context(), Some(&context), "the run extends the trace of its trigger");
    assert_eq!(plain.trace, None);
    worker.end(at(4), &plain, succeeded(4)).await;
    worker.end(at(4), &own, failed(4)).await;
    let live = harness.view(job.id).await.open.remove(0);
    assert_eq!((live.attempt, &live.input), (2, &input), "a retry has the same payload");
    harness.look(live.available_at, live.execution(), None).await;
    let again = worker.claim(live.available_at, 1).await.remove(0);
    assert_eq!(again.payload, "{\"own\": true}");
    worker.end(live.available_at, &again, failed(4)).await;
    let ended = harness.store.history(job.id, None, 10).await.unwrap().items;
    let inputs: Vec<_> = ended.into_iter().map(|finished| finished.input).collect();
    assert_eq!(inputs, [None, input.clone(), input.clone()]);

    harness.done(live.available_at.shifted(1), job.id, Verb::Retry).await;
    let redriven = worker.claim(live.available_at.shifted(2), 1).await.remove(0);
    assert_eq!((redriven.execution.attempt, redriven.payload.as_str()), (3, "{\"own\": true}"));
}

pub async fn a_trigger_under_allow_runs_beside(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut allowed = recurring(OverlapPolicy::Allow);
    allowed.spec.settings.max_open = 2;
    harness.submit(at(1), allowed.clone()).await;
    harness.done(at(2), allowed.id, TRIGGER).await;
    harness.done(at(3), allowed.id, TRIGGER).await;
    assert_eq!(harness.open(allowed.id).await, [(1, LiveState::Queued), (2, LiveState::Queued)]);
    assert_eq!(harness.refused(at(4), allowed.id, TRIGGER).await, Refusal::Backlog);
}

pub async fn a_trigger_under_queue_waits_in_line_while_there_is_room(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let mut queued = recurring(OverlapPolicy::Queue);
    queued.spec.settings.overlap_limit = 1;
    harness.submit(at(1), queued.clone()).await;
    harness.done(at(2), queued.id, TRIGGER).await;
    let second = harness.done(at(3), queued.id, TRIGGER).await;
    assert_eq!(second.effects.queued, []);
    assert_eq!(harness.open(queued.id).await, [(1, LiveState::Queued), (2, behind(Gate::Overlap))]);
    assert_eq!(harness.refused(at(4), queued.id, TRIGGER).await, Refusal::QueueFull);
    assert_eq!(worker.run(at(5), succeeded(5)).await.1.queued, [lane()]);
    assert_eq!(worker.run(at(6), succeeded(6)).await.0, second.added.expect("it was added"));
}

pub async fn a_trigger_under_replace_takes_the_place_of_what_is_open(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Replace);
    harness.submit(at(1), job.clone()).await;
    let first = harness.done(at(2), job.id, TRIGGER).await.added.expect("it was added");
    let second = harness.done(at(3), job.id, TRIGGER).await;
    assert_eq!((second.effects.ended, second.asked), (vec![(first, Status::Cancelled)], vec![]));
    assert_eq!(harness.open(job.id).await, [(2, LiveState::Queued)]);

    let running = worker.claim_one(at(4)).await;
    let third = harness.done(at(5), job.id, TRIGGER).await;
    assert_eq!((third.effects.queued, third.asked), (vec![], vec![running.execution]));
    assert_eq!(worker.beat(at(6)).await, [running.lease()]);
    assert!(worker.is_idle(at(6)).await);
    assert_eq!(worker.end(at(7), &running, succeeded(7)).await.queued, [lane()]);
    assert_eq!(worker.claim_one(at(8)).await.execution, third.added.expect("it was added"));
}

pub async fn a_trigger_works_while_the_job_is_paused(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::Pause).await;
    assert_eq!(harness.done(at(3), job.id, TRIGGER).await.effects.queued, [lane()]);
    assert_eq!(harness.status(job.id).await, JobStatus::Paused);
    let (first, _) = worker.run(at(4), failed(4)).await;
    let next = first.occurrence.attempt(2);
    assert!(
        matches!(harness.look(at(100), next, None).await, LookOutcome::Opened(effects) if effects.queued == [lane()])
    );
    assert_eq!(worker.run(at(101), succeeded(101)).await.0, next, "the pause does not hold its retry either");
    assert_eq!(harness.due(at(9_999)).await, []);
}

pub async fn the_next_pause_holds_what_was_triggered_in_the_last(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.done(at(2), job.id, Verb::Pause).await;
    harness.done(at(3), job.id, TRIGGER).await;
    harness.done(at(4), job.id, Verb::Resume).await;
    let running = worker.claim_one(at(5)).await;
    harness.done(at(6), job.id, Verb::Pause).await;
    assert_eq!(worker.give_back(at(7), &running).await.queued, []);
    assert_eq!(harness.open(job.id).await, [(1, behind(Gate::Paused))]);
}

pub async fn a_trigger_makes_a_finished_job_active_again(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for (n, end, status) in [(1, succeeded(2), JobStatus::Completed), (2, died(2), JobStatus::Failed)] {
        harness.submit(at(1), job(n)).await;
        worker.run(at(2), end).await;
        assert_eq!(harness.status(job(n).id).await, status);
        let added = harness.done(at(3), job(n).id, TRIGGER).await.added;
        assert_eq!(added, Some(job(n).id.occurrence(2).attempt(1)));
        assert_eq!(harness.status(job(n).id).await, JobStatus::Active);
        worker.run(at(4), succeeded(4)).await;
        assert_eq!(harness.status(job(n).id).await, JobStatus::Completed);
        let again = harness.done(at(5), job(n).id, TRIGGER).await.added;
        assert_eq!(again, Some(job(n).id.occurrence(3).attempt(1)));
        worker.run(at(6), succeeded(6)).await;
    }
}

pub async fn a_cancelled_job_cannot_be_triggered(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    harness.done(at(2), job(1).id, Verb::Cancel).await;
    assert_eq!(harness.refused(at(3), job(1).id, DESPITE).await, Refusal::Cancelled);
}

pub async fn a_one_time_run_comes_after_what_was_triggered_before(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    harness.submit(at(1), job.clone()).await;
    harness.done(at(50), job.id, TRIGGER).await;
    let running = worker.claim_one(at(51)).await;
    let FireOutcome::Fired { effects, occurrences, skipped } = harness.fire(at(100), job.id, 1).await else {
        panic!("it is due");
    };
    assert_eq!((occurrences, skipped), (vec![(job.id.occurrence(2), at(100))], 0));
    assert_eq!(effects.queued, []);
    assert_eq!(harness.open(job.id).await[1], (2, behind(Gate::Overlap)));
    assert_eq!(worker.end(at(101), &running, died(101)).await.queued, [lane()]);
    worker.run(at(102), succeeded(102)).await;
    assert_eq!(harness.status(job.id).await, JobStatus::Completed, "the last occurrence decides");
}

fn recurring(overlap: OverlapPolicy) -> Job {
    job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = overlap;
    })
}
