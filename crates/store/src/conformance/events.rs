//! Following history by position, and looking up open executions.

use super::fixture::{Harness, at, behind, died, failed, job, job_with, once, succeeded};
use punctual_core::control::Verb;
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::{DEFAULT_OWNER, JobSpec, Priority};
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::LiveState;
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, FinishedPage, HistorySpan, Horizon, ListedExecution,
    RunTimes, Store,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub async fn what_finished_is_followed_in_the_order_of_the_commits(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=3 {
        harness.submit(at(1), job_with(number, |spec| spec.queue = format!("queue {number}"))).await;
    }
    let claimed = worker.claim(at(2), 10).await;
    for (seconds, place) in [(3, 2), (4, 0), (5, 1)] {
        worker.end(at(seconds), &claimed[place], succeeded(seconds)).await;
    }
    let page = harness.store.finished_after(0, 2).await.unwrap();
    assert_eq!(executions(&page), [claimed[2].execution, claimed[0].execution]);
    assert_eq!(page.items[0].queue, "queue 3");
    assert!(page.more);
    let rest = harness.store.finished_after(page.looked_to, 2).await.unwrap();
    assert_eq!(executions(&rest), [claimed[1].execution]);
    assert!(!rest.more);
    let nothing = harness.store.finished_after(rest.looked_to, 2).await.unwrap();
    assert_eq!((executions(&nothing), nothing.looked_to), (vec![], rest.looked_to));
    let span = harness.store.history_span().await.unwrap();
    assert_eq!(span, HistorySpan { begins_after: 0, ends_at: rest.looked_to });
}

pub async fn times_of_runs_are_followed_with_their_jobs(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let named = |spec: &mut JobSpec| {
        (spec.queue, spec.name, spec.owner) = ("images".to_owned(), "resize".to_owned(), "ann".to_owned());
    };
    harness.submit(at(1), job_with(1, named)).await;
    let (first, _) = worker.run(at(2), failed(3)).await;
    harness.submit(at(4), job(2)).await;
    worker.run(at(5), succeeded(6)).await;
    let page = harness.store.run_times_after(0, 1).await.unwrap();
    let whole = harness.store.finished_after(0, 1).await.unwrap().items.remove(0).finished;
    assert_eq!(whole.id, first);
    let RunTimes { owner, job_name, lane, .. } = &page.items[0];
    assert_eq!((owner.as_str(), job_name.as_str()), ("ann", "resize"));
    assert_eq!((lane.queue(), lane.job_type()), ("images", job(1).spec.job_type.as_str()));
    let times = |run: &RunTimes| (run.scheduled_time, run.available_at, run.started_at, run.completed_at);
    assert_eq!(
        times(&page.items[0]),
        (whole.scheduled_time, whole.available_at, whole.started_at, whole.completed_at)
    );
    assert_eq!((page.items[0].status, page.items[0].attempt, page.more), (Status::Failed, 1, true));
    assert_eq!(page.items[0].origin, whole.origin);
    let rest = harness.store.run_times_after(page.looked_to, 10).await.unwrap();
    assert_eq!((rest.items.len(), rest.items[0].owner.as_str(), rest.more), (1, DEFAULT_OWNER, false));
    let nothing = harness.store.run_times_after(rest.looked_to, 10).await.unwrap();
    assert_eq!((nothing.items, nothing.looked_to), (vec![], rest.looked_to));
}

pub async fn places_are_never_given_twice(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    harness.submit(at(1), job(1)).await;
    worker.run(at(2), succeeded(2)).await;
    let seen = harness.store.finished_after(0, 10).await.unwrap().looked_to;
    harness.done(at(3), job(1).id, Verb::Delete).await;
    harness.store.purge(at(1_000_000), 100).await.unwrap();
    assert_eq!(harness.store.history_span().await.unwrap(), HistorySpan { begins_after: 0, ends_at: seen });
    harness.submit(at(4), job(2)).await;
    let (second, _) = worker.run(at(5), succeeded(5)).await;
    let page = harness.store.finished_after(seen, 10).await.unwrap();
    assert_eq!(executions(&page), [second], "although the latest row was deleted");
}

pub async fn what_retention_took_away_is_told(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=3 {
        harness.submit(at(1), job(number)).await;
        worker.run(at(i64::from(number) * 10), succeeded(i64::from(number) * 10)).await;
    }
    let places: Vec<u64> =
        harness.store.finished_after(0, 10).await.unwrap().items.iter().map(|event| event.place).collect();
    harness.store.retain(Horizon { history: at(25), requests: at(0) }, 100).await.unwrap();
    let span = harness.store.history_span().await.unwrap();
    assert_eq!(span, HistorySpan { begins_after: places[1], ends_at: places[2] });
    harness.store.retain(Horizon { history: at(99), requests: at(0) }, 100).await.unwrap();
    let span = harness.store.history_span().await.unwrap();
    assert_eq!(span, HistorySpan { begins_after: places[2], ends_at: places[2] });
    assert_eq!(harness.store.finished_after(0, 10).await.unwrap().items, []);
}

pub async fn what_belonged_to_deleted_jobs_is_told_until_they_are_purged(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=2 {
        harness.submit(at(1), job(number)).await;
        worker.run(at(2), succeeded(2)).await;
    }
    harness.submit(at(1), job(3)).await;
    for number in [2, 3] {
        harness.done(at(3), job(number).id, Verb::Delete).await;
    }
    let page = harness.store.finished_after(0, 10).await.unwrap();
    let all = [1, 2, 3].map(|number| job(number).id.occurrence(1).attempt(1));
    assert_eq!(executions(&page), all, "including executions that the deletion ended");
    assert_eq!(page.items[2].finished.status, Status::Cancelled);
    harness.store.purge(at(4), 100).await.unwrap();
    let page = harness.store.finished_after(0, 10).await.unwrap();
    assert_eq!(executions(&page), all[..1]);
}

pub async fn open_executions_are_shown_as_they_stand(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=3 {
        harness.submit(at(1), job(number)).await;
    }
    worker.run(at(2), failed(2)).await;
    let running = worker.claim_one(at(3)).await;
    let ids = (1..=4).map(|number| job(number).id.occurrence(1)).collect();
    let open = harness.store.open_executions(ids).await.unwrap();
    let seen: Vec<_> = open.iter().map(|one| (one.live.attempt, one.live.state)).collect();
    assert_eq!(seen[0], (2, behind(Gate::Time)));
    assert!(matches!(seen[1], (1, LiveState::Running(_))), "{seen:?}");
    assert_eq!(seen[2..], [(1, LiveState::Queued)]);
    assert_eq!((open[1].live.execution(), open[1].worker.as_deref()), (running.execution, Some("w")));
    assert_eq!(open[0].queue, "default");
}

pub async fn all_that_runs_is_walked_over_in_pages(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let (mut first, mut second) = (harness.worker().await, harness.worker().await);
    for number in 1..=7 {
        harness.submit(at(1), job(number)).await;
    }
    harness.submit(at(1), job_with(8, |spec| spec.settings.schedule = once(100))).await;
    let mut expected: Vec<ExecutionId> = Vec::new();
    for worker in [&mut first, &mut second] {
        expected.extend(worker.claim(at(2), 3).await.iter().map(|assignment| assignment.execution));
    }
    let mut walked = Vec::new();
    let mut after = None;
    loop {
        let page = harness.store.running(after, 2).await.unwrap();
        walked.extend(page.items.iter().map(|one| one.live.execution()));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    walked.sort();
    expected.sort();
    assert_eq!(walked, expected, "each once, and none that is queued or in the future");
}

/// Everything of one kind.
fn listing(walk: ExecutionWalk) -> ExecutionQuery {
    ExecutionQuery {
        walk,
        limit: 10,
        queue: None,
        job_type: None,
        owner: None,
        worker: None,
        ended_from: None,
        ended_until: None,
    }
}

const RUNNING: ExecutionWalk = ExecutionWalk::Running { after: None };
const QUEUED: ExecutionWalk = ExecutionWalk::Queued { before: None };
const WAITING: ExecutionWalk = ExecutionWalk::Waiting { before: None };

const fn ended(status: Status) -> ExecutionWalk {
    ExecutionWalk::Finished { status, before: None }
}

fn id_of(listed: &ListedExecution) -> ExecutionId {
    match &listed.view {
        ExecutionView::Live { live, .. } => live.execution(),
        ExecutionView::Finished(finished) => finished.id,
    }
}

/// The ids of all pages.
async fn walked(harness: &Harness, mut query: ExecutionQuery) -> Vec<ExecutionId> {
    let mut ids = Vec::new();
    loop {
        let page = harness.store.executions(query.clone()).await.unwrap();
        ids.extend(page.items.iter().map(id_of));
        match page.next {
            Some(next) => query.walk = next,
            None => return ids,
        }
    }
}

pub async fn executions_of_all_jobs_are_listed_by_how_they_stand(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=5 {
        harness.submit(at(1), job(number)).await;
    }
    let (failed_one, _) = worker.run(at(2), failed(2)).await;
    let (first, _) = worker.run(at(3), succeeded(3)).await;
    let (second, _) = worker.run(at(4), succeeded(4)).await;
    let runs = worker.claim_one(at(5)).await.execution;
    let queued = job(5).id.occurrence(1).attempt(1);
    let retry = failed_one.occurrence.attempt(2);
    assert_eq!(walked(&harness, listing(RUNNING)).await, [runs]);
    assert_eq!(walked(&harness, listing(QUEUED)).await, [queued]);
    assert_eq!(walked(&harness, listing(WAITING)).await, [retry]);
    assert_eq!(walked(&harness, listing(ended(Status::Succeeded))).await, [second, first], "latest first");
    assert_eq!(walked(&harness, listing(ended(Status::Failed))).await, [failed_one]);
    assert_eq!(walked(&harness, listing(ended(Status::Lost))).await, []);
    let page = harness.store.executions(listing(RUNNING)).await.unwrap();
    let spec = job(4).spec;
    let shown = &page.items[0];
    assert_eq!((&shown.job_name, &shown.job_type, &shown.queue), (&spec.name, &spec.job_type, &spec.queue));
    assert_eq!(shown.max_retries, spec.settings.max_retries);
    assert!(matches!(&shown.view, ExecutionView::Live { worker: Some(name), .. } if name == "w"));
    for id in [failed_one, first, runs, queued] {
        harness.done(at(6), id.occurrence.job, Verb::Delete).await;
    }
    for walk in [RUNNING, QUEUED, WAITING, ended(Status::Failed)] {
        assert_eq!(walked(&harness, listing(walk)).await, [], "{walk:?}: deleted jobs are hidden");
    }
    assert_eq!(walked(&harness, listing(ended(Status::Succeeded))).await, [second]);
}

pub async fn queued_executions_are_listed_in_the_order_of_claims(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for number in 1..=12 {
        let change = |spec: &mut JobSpec| {
            spec.queue = if number == 12 { "other" } else { "mail" }.to_owned();
            spec.job_type = format!("type {}", number % 3);
            spec.priority = Priority::new(if number % 2 == 0 { 9 } else { 2 }).unwrap();
        };
        harness.submit(at(1), job_with(number, change)).await;
    }
    let next = async |limit, job_type: Option<&str>| -> Vec<u32> {
        let job_type = job_type.map(str::to_owned);
        let query =
            ExecutionQuery { queue: Some("mail".to_owned()), limit, job_type, ..listing(ExecutionWalk::Next) };
        let page = harness.store.executions(query).await.unwrap();
        assert_eq!(page.next, None, "one page");
        let number = |listed| (1..=12).find(|number| job(*number).id == id_of(listed).occurrence.job).unwrap();
        page.items.iter().map(number).collect()
    };
    assert_eq!(next(100, None).await, [2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11]);
    assert_eq!(next(3, None).await, [2, 4, 6]);
    assert_eq!(next(100, Some("type 0")).await, [6, 3, 9]);
    let nowhere = ExecutionQuery { queue: Some("nowhere".to_owned()), ..listing(ExecutionWalk::Next) };
    assert_eq!(walked(&harness, nowhere).await, []);
}

pub async fn executions_that_ended_within_a_time_are_found_from_its_end(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    const COUNT: u32 = 20;
    for number in 1..=COUNT {
        harness.submit(at(1), job(number)).await;
    }
    let mut ended = BTreeMap::new();
    for number in 0..COUNT {
        let seconds = 100 + 600 * i64::from(number);
        let time = at(seconds);
        let status = if number % 5 == 4 { died(seconds) } else { succeeded(seconds) };
        ended.insert(time, worker.run(time, status).await.0);
    }
    let within = async |from: Option<i64>, until: Option<i64>| {
        let walk = ExecutionWalk::Finished { status: Status::Succeeded, before: None };
        let query =
            ExecutionQuery { ended_from: from.map(at), ended_until: until.map(at), limit: 3, ..listing(walk) };
        walked(&harness, query).await
    };
    let expected = |from: i64, until: i64| -> Vec<ExecutionId> {
        let is_shown = |index: &usize| index % 5 != 4;
        let all: Vec<_> = ended.iter().enumerate().collect();
        let chosen = all.into_iter().rev().filter(|(index, (time, _))| {
            is_shown(index) && **time >= at(from) && **time < at(until)
        });
        chosen.map(|(_, (_, id))| *id).collect()
    };
    for (from, until) in [(0, 20_000), (0, 100), (0, 101), (700, 5_500), (11_500, 11_501), (11_501, 20_000)] {
        assert_eq!(within(Some(from), Some(until)).await, expected(from, until), "{from} to {until}");
    }
    assert_eq!(within(None, Some(4_000)).await, expected(0, 4_000));
    assert_eq!(within(Some(4_000), None).await, expected(4_000, 20_000));
}

pub async fn a_list_of_executions_is_filtered_and_goes_on(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=9 {
        let queue = if number % 2 == 0 { "even" } else { "odd" };
        harness.submit(at(1), job_with(number, |spec| spec.queue = queue.to_owned())).await;
    }
    let of = async |walk, queue: &str| {
        let queue = Some(queue.to_owned());
        let mut ids = walked(&harness, ExecutionQuery { queue, limit: 2, ..listing(walk) }).await;
        ids.sort();
        ids
    };
    let numbered = |numbers: &[u32]| -> Vec<ExecutionId> {
        numbers.iter().map(|number| job(*number).id.occurrence(1).attempt(1)).collect()
    };
    assert_eq!(of(QUEUED, "even").await, numbered(&[2, 4, 6, 8]));
    let claimed = worker.claim(at(2), 9).await;
    assert_eq!(of(QUEUED, "even").await, []);
    assert_eq!(of(RUNNING, "odd").await, numbered(&[1, 3, 5, 7, 9]));
    for assignment in &claimed {
        worker.end(at(3), assignment, succeeded(3)).await;
    }
    assert_eq!(of(ended(Status::Succeeded), "odd").await, numbered(&[1, 3, 5, 7, 9]));
    let by = |worker: &str| ExecutionQuery {
        worker: Some(worker.to_owned()),
        limit: 4,
        ..listing(ended(Status::Succeeded))
    };
    assert_eq!((walked(&harness, by("w")).await.len(), walked(&harness, by("x")).await.len()), (9, 0));
    let other = ExecutionQuery { job_type: Some("another".to_owned()), ..by("w") };
    assert_eq!(walked(&harness, other).await, []);
}

pub async fn a_list_of_executions_is_filtered_by_owner_and_goes_on(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=9 {
        let owner = ["ann", "bob", DEFAULT_OWNER][number as usize % 3];
        harness.submit(at(1), job_with(number, |spec| spec.owner = owner.to_owned())).await;
    }
    let of = async |walk, owner: &str| {
        let owner = Some(owner.to_owned());
        let ids = walked(&harness, ExecutionQuery { owner, limit: 2, ..listing(walk) }).await;
        let mut jobs: Vec<JobId> = ids.iter().map(|id| id.occurrence.job).collect();
        jobs.sort();
        jobs
    };
    let numbered = |numbers: [u32; 3]| numbers.map(|number| job(number).id);
    let all =
        [("ann", numbered([3, 6, 9])), ("bob", numbered([1, 4, 7])), (DEFAULT_OWNER, numbered([2, 5, 8]))];
    for (owner, jobs) in all {
        assert_eq!(of(QUEUED, owner).await, jobs);
    }
    assert_eq!(of(QUEUED, "nobody").await, []);
    let claimed = worker.claim(at(2), 9).await;
    for (owner, jobs) in all {
        assert_eq!(of(RUNNING, owner).await, jobs);
    }
    for assignment in &claimed {
        worker.end(at(3), assignment, failed(3)).await;
    }
    for (owner, jobs) in all {
        assert_eq!(of(WAITING, owner).await, jobs);
        assert_eq!(of(ended(Status::Failed), owner).await, jobs);
    }
}

fn executions(page: &FinishedPage) -> Vec<ExecutionId> {
    page.items.iter().map(|event| event.finished.id).collect()
}
