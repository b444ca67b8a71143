use crate::harness::{Harness, TRIGGER, TRIGGER_ANYWAY, at, waiting};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::ids::Epoch;
use punctual_core::job::{Expiry, JobStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::{LiveState, Origin};
use punctual_core::schedule::OverlapPolicy;

/// A recurring job whose first occurrence failed twice, and so finally, at second 18.
fn with_a_dead_one(policy: OverlapPolicy) -> Harness {
    let mut harness = Harness::running(policy);
    harness.end(1, Ending::Failed, at(12));
    harness.look(at(17));
    harness.claim(1, at(17));
    harness.end(1, Ending::Failed, at(18));
    assert_eq!((harness.dead.len(), harness.numbers()), (1, vec![]));
    harness
}

#[test]
fn a_redrive_is_the_next_attempt_of_the_same_occurrence_with_a_fresh_budget() {
    let mut harness = with_a_dead_one(OverlapPolicy::Skip);
    harness.does(Verb::Retry, at(19));
    let live = harness.live(1);
    assert_eq!((live.attempt, live.charged, live.epoch), (3, 0, Epoch(2)));
    assert_eq!((live.state, live.available_at), (LiveState::Queued, at(19)));
    assert_eq!((live.scheduled_time, live.origin), (at(10), Origin::Schedule));
    harness.claim(1, at(20));
    assert_eq!(harness.live(1).epoch, Epoch(3));
    harness.end(1, Ending::Failed, at(21));
    assert_eq!(harness.live(1).attempt, 4, "the budget is fresh");
}

#[test]
fn a_redrive_takes_no_number_and_does_not_move_the_schedule() {
    let mut harness = with_a_dead_one(OverlapPolicy::Skip);
    let before = harness.schedule().clone();
    harness.does(Verb::Retry, at(19));
    assert_eq!(*harness.schedule(), before);
}

#[test]
fn a_failed_job_is_active_again_when_it_is_retried() {
    let mut harness = Harness::failed();
    harness.does(Verb::Retry, at(30));
    assert_eq!((harness.status(), harness.numbers()), (JobStatus::Active, vec![1]));
    harness.claim(1, at(31));
    harness.end(1, Ending::Succeeded, at(32));
    assert_eq!(harness.status(), JobStatus::Completed);
    let statuses: Vec<Status> = harness.history.iter().map(|finished| finished.status).collect();
    assert_eq!(statuses, [Status::Failed, Status::Succeeded]);
}

#[test]
fn a_redriven_occurrence_waits_behind_open_ones_and_they_are_told() {
    for policy in [OverlapPolicy::Skip, OverlapPolicy::Queue, OverlapPolicy::Replace] {
        let mut harness = with_a_dead_one(policy);
        harness.fire(at(20));
        harness.claim(2, at(21));
        harness.does(Verb::Retry, at(22));
        assert_eq!(harness.state(1), waiting(&[Gate::Overlap]), "{policy:?}");
        assert!(harness.live(2).flags.followed && !harness.is_asked_to_stop(2), "{policy:?}");
        harness.end(2, Ending::Succeeded, at(23));
        assert_eq!(harness.state(1), LiveState::Queued, "{policy:?}");
    }
}

#[test]
fn redriven_occurrences_take_their_turns() {
    let mut harness = with_a_dead_one(OverlapPolicy::Skip);
    harness.fire(at(20));
    harness.claim(2, at(21));
    let dead = harness.dead.clone();
    harness.does(TRIGGER_ANYWAY, at(22));
    harness.does(Verb::Retry, at(23));
    let other = punctual_core::ports::DeadLetter {
        occurrence: dead[0].occurrence.job.occurrence(99),
        ..dead[0].clone()
    };
    let change = harness.standing.redriven(&other, at(24)).unwrap();
    harness.write(change);
    assert_eq!([harness.state(1), harness.state(99)], [waiting(&[Gate::Overlap]); 2]);
    harness.end(2, Ending::Succeeded, at(25));
    assert_eq!(harness.state(1), waiting(&[Gate::Overlap]), "3 is still open");
    harness.claim(3, at(26));
    harness.end(3, Ending::Succeeded, at(27));
    assert_eq!([harness.state(1), harness.state(99)], [LiveState::Queued, waiting(&[Gate::Overlap])]);
    harness.claim(1, at(28));
    harness.end(1, Ending::Succeeded, at(29));
    assert_eq!(harness.state(99), LiveState::Queued);
}

#[test]
fn a_redriven_occurrence_runs_beside_others_where_overlap_is_allowed() {
    let mut harness = with_a_dead_one(OverlapPolicy::Allow);
    harness.fire(at(20));
    harness.does(Verb::Retry, at(22));
    assert_eq!(harness.state(1), LiveState::Queued);
    assert!(!harness.live(2).flags.followed);
}

#[test]
fn a_redriven_occurrence_of_a_paused_job_is_held() {
    let mut harness = with_a_dead_one(OverlapPolicy::Skip);
    let mut behind = harness.clone();
    harness.does(Verb::Pause, at(19));
    harness.does(Verb::Retry, at(20));
    assert_eq!((harness.status(), harness.state(1)), (JobStatus::Paused, waiting(&[Gate::Paused])));
    harness.does(Verb::Resume, at(21));
    assert_eq!(harness.state(1), LiveState::Queued);

    behind.fire(at(20));
    behind.claim(2, at(21));
    behind.does(Verb::Pause, at(22));
    behind.does(Verb::Retry, at(23));
    assert_eq!(behind.state(1), waiting(&[Gate::Overlap, Gate::Paused]));
}

#[test]
fn a_redriven_occurrence_does_not_expire() {
    let mut harness = with_a_dead_one(OverlapPolicy::Skip);
    harness.is_updated(harness.respecified(|settings| settings.expiry = Some(Expiry::AfterMs(1))), at(19));
    harness.does(Verb::Retry, at(20));
    assert_eq!(harness.live(1).expires_at, None);
    harness.is_updated(harness.respecified(|settings| settings.expiry = Some(Expiry::AfterMs(2))), at(21));
    assert_eq!(harness.live(1).expires_at, None);
}

#[test]
fn a_redrive_is_refused_when_too_many_are_open_or_nothing_is_dead_or_the_job_is_cancelled() {
    let mut harness = with_a_dead_one(OverlapPolicy::Allow);
    harness.is_updated(harness.respecified(|settings| settings.max_open = 1), at(19));
    harness.does(TRIGGER, at(20));
    assert_eq!(harness.asked(Verb::Retry, at(21)), Err(Refusal::Backlog));
    assert_eq!(Harness::completed().asked(Verb::Retry, at(30)), Err(Refusal::NothingDead));
    let mut cancelled = with_a_dead_one(OverlapPolicy::Skip);
    cancelled.does(Verb::Cancel, at(19));
    assert_eq!(cancelled.asked(Verb::Retry, at(20)), Err(Refusal::Cancelled));
}
