//! Races of fires with other fires, with changes by users, and with the end of the last occurrence.

use super::{Nodes, Round};
use crate::conformance::fixture::{at, every, failed, succeeded};
use punctual_core::control::{Update, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobStatus};
use punctual_core::lifecycle::Status;
use punctual_core::ports::{ControlOutcome, FireRequest, FireOutcome, NewJob, ReportAnswer};
use punctual_core::schedule::OverlapPolicy;
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

/// Schedules that several schedulers fire together, and how often.
const SCHEDULES: u32 = 20;
const TIMES: u32 = 8;

pub(super) async fn two_schedulers_fire_each_time_once(nodes: Nodes) {
    nodes.fewer_rounds(6, |round| schedulers_fire_each_time_once(round, 2)).await;
}

pub(super) async fn eight_schedulers_fire_each_time_once(nodes: Nodes) {
    nodes.fewer_rounds(12, |round| schedulers_fire_each_time_once(round, 8)).await;
}

async fn schedulers_fire_each_time_once(round: Round, schedulers: usize) {
    let jobs: Vec<Job> = (0..SCHEDULES).map(|n| recurring(&round, n, OverlapPolicy::Allow)).collect();
    let new = jobs.iter().map(|job| NewJob { job: job.clone(), reservation: None }).collect();
    round.here().store.submit(at(1), new).await.unwrap();
    let mut replied: Vec<(JobId, Timestamp)> = Vec::new();
    for version in 1..=TIMES {
        let fired = round.many(schedulers, |index| fire_all(&round, index, &jobs, version)).await;
        replied.extend(fired.concat());
    }
    let mut worker = round.worker(0).await;
    let mut shown = Vec::new();
    loop {
        let claimed = worker.claim(100).await;
        if claimed.is_empty() {
            break;
        }
        shown.extend(claimed.iter().map(|next| (next.execution.occurrence.job, next.scheduled_time)));
    }
    let times = (1..=TIMES).map(|time| at(10 * i64::from(time)));
    let all: BTreeSet<_> = times.flat_map(|time| jobs.iter().map(move |job| (job.id, time))).collect();
    for (fired, what) in [(replied, "replied"), (shown, "shown")] {
        assert_eq!(fired.len(), all.len(), "{what}: nothing fires twice");
        assert_eq!(fired.into_iter().collect::<BTreeSet<_>>(), all, "{what}: nothing is left out");
    }
}

/// Fires all jobs, in a different order for each scheduler. Returns the occurrences that its replies report
/// as fired.
async fn fire_all(round: &Round, index: usize, jobs: &[Job], version: u32) -> Vec<(JobId, Timestamp)> {
    let mut fires: Vec<FireRequest> = jobs.iter().map(|job| FireRequest { job: job.id, version, reservation: None }).collect();
    fires.rotate_left(index % jobs.len());
    let now = at(10 * i64::from(version));
    let outcomes = round.node(index).store.fire(now, fires).await.unwrap();
    let mut fired = Vec::new();
    for outcome in outcomes {
        match outcome {
            FireOutcome::Fired { occurrences, .. } => {
                fired.extend(occurrences.iter().map(|(id, nominal)| (id.job, *nominal)));
            }
            FireOutcome::Conflict => {}
            FireOutcome::NotDue | FireOutcome::UnknownCalendar(_) => panic!("it is due at {now:?}"),
        }
    }
    fired
}

pub(super) async fn a_fire_against_an_update(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let job = submitted(&round, OverlapPolicy::Skip).await;
            let mut spec = job.spec.clone();
            spec.payload = r#"{"rows":7}"#.to_owned();
            let update = Verb::Update(Box::new(Update { spec: spec.clone(), expected_version: Some(1) }));
            let fire = round.here().fire(at(10), job.id, 1);
            let (fired, updated) = round.both(fire, round.there().control(at(10), job.id, update)).await;
            assert!(matches!(&updated, ControlOutcome::Done(done) if done.version == 2), "{updated:?}");
            if fired == FireOutcome::Conflict {
                let version = round.here().view(job.id).await.schedule.expect("the schedule has further runs").version;
                round.there().fired(at(10), job.id, version).await;
            }
            let view = round.there().view(job.id).await;
            assert_eq!((view.job.version, view.job.spec), (2, spec.clone()));
            assert_eq!(view.open.iter().map(|live| live.scheduled_time).collect::<Vec<_>>(), [at(10)]);
            assert_eq!(view.schedule.and_then(|schedule| schedule.due_at), Some(at(20)));
            let claimed = round.worker(0).await.claim_only().await;
            assert_eq!((claimed.payload, claimed.job_version), (spec.payload, 2));
        })
        .await;
}

pub(super) async fn a_fire_against_a_pause(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let job = submitted(&round, OverlapPolicy::Skip).await;
            let fire = round.here().fire(at(10), job.id, 1);
            let (fired, paused) = round.both(fire, round.there().done(at(10), job.id, Verb::Pause)).await;
            assert_eq!(paused.effects.queued, []);
            let mut worker = round.worker(0).await;
            assert_eq!(worker.claim(10).await, [], "a pause holds unstarted executions");
            assert_eq!(round.here().status(job.id).await, JobStatus::Paused);
            let resumed = round.there().done(at(12), job.id, Verb::Resume).await;
            let runs = match fired {
                FireOutcome::Fired { .. } => 1,
                FireOutcome::Conflict | FireOutcome::NotDue | FireOutcome::UnknownCalendar(_) => 0,
            };
            assert_eq!(resumed.skipped, 1 - runs, "it either fires or is skipped");
            assert_eq!(worker.claim(10).await.len() as u64, runs);
            let schedule = round.here().view(job.id).await.schedule.expect("the schedule has further runs");
            assert_eq!(schedule.due_at, Some(at(20)));
        })
        .await;
}

pub(super) async fn a_fire_against_a_delete(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let job = submitted(&round, OverlapPolicy::Skip).await;
            let fire = round.here().fire(at(10), job.id, 1);
            let (_, deleted) = round.both(fire, round.there().control(at(10), job.id, Verb::Delete)).await;
            assert!(matches!(deleted, ControlOutcome::Done(_)), "{deleted:?}");
            assert_eq!(round.worker(0).await.claim(10).await, []);
            assert_eq!(round.here().store.job(job.id).await.unwrap(), None);
            let open = round.here().store.open_executions(vec![job.id.occurrence(1)]).await.unwrap();
            assert_eq!(open, []);
            assert_eq!(round.here().fire(at(20), job.id, 2).await, FireOutcome::Conflict);
            assert_eq!(round.depth().await, (0, 0, 0));
        })
        .await;
}

pub(super) async fn a_fire_against_a_report_under_queue(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let met = fire_against_report(&round, OverlapPolicy::Queue).await;
            assert_eq!((met.fired, met.skipped), (1, 0));
            assert_eq!(round.there().ended(met.job).await, [(1, 1, Status::Succeeded)]);
            // Whether it had to wait or not, it can run by now.
            let next = round.worker(1).await.claim_only().await;
            assert_eq!(next.execution, met.job.occurrence(2).attempt(1));
        })
        .await;
}

pub(super) async fn a_fire_against_a_report_under_replace(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let met = fire_against_report(&round, OverlapPolicy::Replace).await;
            assert_eq!((met.fired, met.skipped), (1, 0));
            assert_eq!(round.there().ended(met.job).await.len(), 1, "the run ended once");
            let mut worker = round.worker(1).await;
            let next = worker.claim_only().await;
            assert_eq!(next.execution, met.job.occurrence(2).attempt(1));
            worker.end(at(22), &next, failed(22)).await;
            assert_eq!(
                round.there().ended(met.job).await[1],
                (2, 1, Status::Failed),
                "it was not asked to stop"
            );
        })
        .await;
}

pub(super) async fn a_fire_against_a_report_under_skip(nodes: Nodes) {
    nodes
        .rounds(|round| async move {
            let met = fire_against_report(&round, OverlapPolicy::Skip).await;
            assert_eq!(met.fired + met.skipped, 1);
            assert_eq!(round.there().ended(met.job).await, [(1, 1, Status::Succeeded)]);
            let ranges = round.there().store.skipped(met.job, 10).await.unwrap();
            assert_eq!(ranges.iter().map(|range| range.count).sum::<u64>(), met.skipped);
            assert_eq!(round.worker(1).await.claim(10).await.len() as u64, met.fired);
        })
        .await;
}

/// The result of a fire that races with the end of the previous occurrence.
struct Met {
    job: JobId,
    fired: u64,
    skipped: u64,
}

async fn fire_against_report(round: &Round, overlap: OverlapPolicy) -> Met {
    let mut worker = round.worker(0).await;
    let job = submitted(round, overlap).await.id;
    round.here().fired(at(10), job, 1).await;
    let running = worker.claim_only().await;
    let fire = round.there().fired(at(20), job, 2);
    let report = worker.report(at(20), &running, succeeded(20));
    let ((fired, skipped, next), answer) = round.both(fire, report).await;
    assert_eq!(answer, ReportAnswer::Accepted);
    assert_eq!(next.map(|due| due.at), Some(at(30)));
    Met { job, fired: fired as u64, skipped }
}

/// The n-th job of a round, every ten seconds.
fn recurring(round: &Round, n: u32, overlap: OverlapPolicy) -> Job {
    round.job_with(n, |spec| {
        spec.settings.schedule = every(10);
        spec.settings.overlap = overlap;
    })
}

async fn submitted(round: &Round, overlap: OverlapPolicy) -> Job {
    let job = recurring(round, 0, overlap);
    round.here().submit(at(1), job.clone()).await;
    job
}
