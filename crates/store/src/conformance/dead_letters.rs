//! Redriving, discarding and listing dead letters.

use super::fixture::{Harness, Worker, at, behind, died, every, failed, job, job_with, lane, succeeded};
use punctual_core::control::{Refusal, Verb};
use punctual_core::gates::Gate;
use punctual_core::ids::OccurrenceId;
use punctual_core::job::{DEFAULT_OWNER, Job, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{ReportedEnd, LiveState, Origin};
use punctual_core::ports::{ControlOutcome, DeadLetterQuery, Store};
use punctual_core::schedule::OverlapPolicy;
use std::sync::Arc;

pub async fn a_redrive_adds_the_next_attempt_to_the_same_occurrence(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (mut worker, dead) = with_dead_job(&harness).await;
    let redriven = harness.redriven(at(9), dead).await;
    assert_eq!((redriven.added, redriven.effects.queued), (Some(dead.attempt(2)), vec![lane()]));
    assert_eq!((harness.status(dead.job).await, harness.dead_letters().await), (JobStatus::Active, vec![]));
    let assignment = worker.claim_one(at(10)).await;
    assert_eq!((assignment.execution, assignment.scheduled_time), (dead.attempt(2), at(1)));
    worker.end(at(11), &assignment, succeeded(11)).await;
    assert_eq!(harness.status(dead.job).await, JobStatus::Completed);
    assert_eq!(harness.ended(dead.job).await, [(1, 1, Status::Failed), (1, 2, Status::Succeeded)]);
}

pub async fn a_redriven_occurrence_has_a_fresh_budget(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job_with(1, |spec| spec.settings.max_retries = 1)).await;
    let dead = job(1).id.occurrence(1);
    for (attempt, now) in [(1, 100), (3, 300)] {
        worker.run(at(now), failed(now)).await;
        harness.look(at(now + 99), dead.attempt(attempt + 1), None).await;
        worker.run(at(now + 99), failed(now + 99)).await;
        assert_eq!(harness.dead_letters().await[0].attempts, attempt + 1);
        assert_eq!(harness.status(dead.job).await, JobStatus::Failed);
        harness.redriven(at(now + 100), dead).await;
        assert_eq!(harness.view(dead.job).await.open[0].charged, 0);
    }
}

pub async fn the_epoch_of_a_redriven_occurrence_goes_on(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    for _ in 0..3 {
        let assignment = worker.claim_one(at(2)).await;
        worker.give_back(at(2), &assignment).await;
    }
    let last = worker.claim_one(at(3)).await;
    worker.end(at(4), &last, died(4)).await;
    assert_eq!((last.epoch.0, harness.dead_letters().await[0].epoch), (4, last.epoch));
    harness.redriven(at(5), last.execution.occurrence).await;
    assert_eq!(worker.claim_one(at(6)).await.epoch.0, 5);
}

pub async fn redriving_twice_finds_nothing(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (_, dead) = with_dead_job(&harness).await;
    let twice = harness.store.redrive(at(9), vec![dead, dead]).await.unwrap();
    assert!(matches!(twice[0], ControlOutcome::Done(_)));
    assert_eq!(twice[1], ControlOutcome::NotThere);
    assert_eq!(harness.redrive(at(10), job(2).id.occurrence(1)).await, ControlOutcome::NotThere);
}

pub async fn retrying_a_job_redrives_its_latest_dead_occurrence(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    assert_eq!(harness.refused(at(2), job.id, Verb::Retry).await, Refusal::NothingDead);
    harness.fired(at(20), job.id, 1).await;
    for _ in 0..2 {
        worker.run(at(21), died(21)).await;
    }
    for number in [2, 1] {
        let added = harness.done(at(22), job.id, Verb::Retry).await.added;
        assert_eq!(added, Some(job.id.occurrence(number).attempt(2)));
    }
    assert_eq!(harness.refused(at(23), job.id, Verb::Retry).await, Refusal::NothingDead);
    assert_eq!(worker.claim(at(24), 10).await.len(), 2);
}

pub async fn a_redrive_waits_behind_what_is_open(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for (n, policy) in [(1, OverlapPolicy::Skip), (2, OverlapPolicy::Queue), (3, OverlapPolicy::Replace)] {
        let job = job_with(n, |spec| {
            spec.settings.schedule = every(10);
            spec.settings.overlap = policy;
        });
        harness.submit(at(1), job.clone()).await;
        harness.fired(at(10), job.id, 1).await;
        worker.run(at(11), died(11)).await;
        harness.fired(at(20), job.id, 2).await;
        let running = worker.claim_one(at(21)).await;
        let redriven = harness.redriven(at(22), job.id.occurrence(1)).await;
        assert_eq!((redriven.effects.queued, redriven.asked), (vec![], vec![]), "{policy:?}");
        assert_eq!(harness.open(job.id).await[0], (1, behind(Gate::Overlap)), "{policy:?}");
        assert_eq!(worker.end(at(23), &running, succeeded(23)).await.queued, [lane()], "{policy:?}");
        assert_eq!(worker.run(at(24), succeeded(24)).await.0, job.id.occurrence(1).attempt(2));
    }
}

pub async fn a_redrive_under_allow_runs_beside_what_is_open(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    worker.run(at(11), died(11)).await;
    harness.fired(at(20), job.id, 2).await;
    harness.redriven(at(21), job.id.occurrence(1)).await;
    assert_eq!(harness.open(job.id).await, [(1, LiveState::Queued), (2, LiveState::Queued)]);
}

pub async fn a_redrive_of_a_paused_job_waits_for_the_resume(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    worker.run(at(11), died(11)).await;
    harness.done(at(12), job.id, Verb::Pause).await;
    assert_eq!(harness.redriven(at(13), job.id.occurrence(1)).await.effects.queued, []);
    assert_eq!(harness.done(at(14), job.id, Verb::Resume).await.effects.queued, [lane()]);
}

pub async fn a_cancelled_job_is_not_redriven(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(10), job.id, 1).await;
    worker.run(at(11), died(11)).await;
    harness.done(at(12), job.id, Verb::Cancel).await;
    let refused = ControlOutcome::Refused(Refusal::Cancelled);
    assert_eq!(harness.redrive(at(13), job.id.occurrence(1)).await, refused);
    assert_eq!(harness.refused(at(13), job.id, Verb::Retry).await, Refusal::Cancelled);
    assert_eq!(harness.dead_letters().await.len(), 1, "it is kept");
}

pub async fn a_discarded_dead_letter_is_gone(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (_, dead) = with_dead_job(&harness).await;
    assert_eq!(
        harness.store.discard(vec![dead, dead, job(2).id.occurrence(1)]).await.unwrap(),
        [true, false, false]
    );
    assert_eq!(harness.dead_letters().await, []);
    assert_eq!(harness.redrive(at(9), dead).await, ControlOutcome::NotThere);
    assert_eq!(harness.status(dead.job).await, JobStatus::Failed);
    assert_eq!(harness.ended(dead.job).await.len(), 1, "history keeps what happened");
}

pub async fn a_dead_letter_tells_what_died(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Skip);
    harness.submit(at(1), job.clone()).await;
    let trigger = harness.done(at(5), job.id, Verb::trigger(false)).await;
    let (execution, _) = worker.run(at(6), died(6)).await;
    assert_eq!(Some(execution), trigger.added);
    let letter = harness.dead_letters().await.remove(0);
    assert_eq!((letter.occurrence, letter.attempts, letter.epoch.0), (execution.occurrence, 1, 1));
    assert_eq!((letter.scheduled_time, letter.died_at), (at(5), at(6)));
    assert_eq!(letter.origin, Origin::Trigger);
}

pub async fn dead_letters_are_filtered_by_every_field(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let error = |seconds, text: &str| ReportedEnd { error: Some(text.to_owned()), ..died(seconds) };
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), error(2, "out of paper")).await;
    let special = job_with(2, |spec| {
        spec.name = "nightly".to_owned();
        spec.queue = "bulk".to_owned();
        spec.owner = "ann".to_owned();
    });
    harness.submit(at(3), special).await;
    worker.run(at(4), error(4, "100% wrong")).await;
    harness.submit(at(5), job(3)).await;
    worker.run(at(6), ReportedEnd { error: None, ..died(6) }).await;
    let text = |text: &str| Some(text.to_owned());
    let all = DeadLetterQuery { limit: 10, ..DeadLetterQuery::default() };
    let queries = [
        (DeadLetterQuery { job: Some(job(1).id), ..all.clone() }, vec![1]),
        (DeadLetterQuery { name: text("nightly"), ..all.clone() }, vec![2]),
        (DeadLetterQuery { name: text("report"), ..all.clone() }, vec![3, 1]),
        (DeadLetterQuery { job_type: text("report"), ..all.clone() }, vec![3, 2, 1]),
        (DeadLetterQuery { job_type: text("mail"), ..all.clone() }, vec![]),
        (DeadLetterQuery { queue: text("bulk"), ..all.clone() }, vec![2]),
        (DeadLetterQuery { owner: text("ann"), ..all.clone() }, vec![2]),
        (DeadLetterQuery { owner: text(DEFAULT_OWNER), ..all.clone() }, vec![3, 1]),
        (DeadLetterQuery { owner: text("bob"), ..all.clone() }, vec![]),
        (DeadLetterQuery { died_from: Some(at(4)), ..all.clone() }, vec![3, 2]),
        (DeadLetterQuery { died_until: Some(at(4)), ..all.clone() }, vec![1]),
        (DeadLetterQuery { died_from: Some(at(4)), died_until: Some(at(6)), ..all.clone() }, vec![2]),
        (DeadLetterQuery { error: text("paper"), ..all.clone() }, vec![1]),
        (DeadLetterQuery { error: text("0% w"), ..all.clone() }, vec![2]),
        (DeadLetterQuery { job: Some(job(1).id), error: text("wrong"), ..all.clone() }, vec![]),
    ];
    for (query, expected) in queries {
        let found = harness.store.dead_letters(query.clone()).await.unwrap().items;
        let found: Vec<_> = found.iter().map(|letter| letter.occurrence.job).collect();
        let expected: Vec<_> = expected.into_iter().map(|n| job(n).id).collect();
        assert_eq!(found, expected, "{query:?}");
    }
}

pub async fn filtered_dead_letters_are_listed_in_pages(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = recurring(OverlapPolicy::Allow);
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(50), job.id, 1).await;
    let other = job_with(2, |spec| {
        spec.queue = "bulk".to_owned();
        spec.owner = "ann".to_owned();
    });
    harness.submit(at(49), other).await;
    while let [assignment] = &worker.claim(at(51), 1).await[..] {
        worker.end(at(51), assignment, died(51)).await;
    }
    let all = DeadLetterQuery { limit: 2, ..DeadLetterQuery::default() };
    for mut query in [
        DeadLetterQuery { job: Some(job.id), ..all.clone() },
        DeadLetterQuery { queue: Some("default".to_owned()), ..all.clone() },
        DeadLetterQuery { owner: Some(DEFAULT_OWNER.to_owned()), ..all },
    ] {
        let mut found = Vec::new();
        for _page in 0..10 {
            let page = harness.store.dead_letters(query.clone()).await.unwrap();
            assert!(page.items.len() <= 2);
            found.extend(page.items.iter().map(|letter| letter.occurrence.number));
            query.before = page.next;
            if query.before.is_none() {
                break;
            }
        }
        assert_eq!(found, [5, 4, 3, 2, 1]);
    }
}

/// A worker whose first run has died, and the dead occurrence.
async fn with_dead_job(harness: &Harness) -> (Worker, OccurrenceId) {
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    let (execution, _) = worker.run(at(2), died(2)).await;
    assert_eq!(harness.status(job(1).id).await, JobStatus::Failed);
    (worker, execution.occurrence)
}

fn recurring(overlap: OverlapPolicy) -> Job {
    job_with(1, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = overlap;
    })
}
