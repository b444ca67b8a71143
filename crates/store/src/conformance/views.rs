//! Views and lists for users.

use super::fixture::{Harness, at, died, every, failed, job, job_with, once, succeeded};
use punctual_core::control::{Update, Verb};
use punctual_core::ids::JobId;
use punctual_core::job::{JobStatus, Priority};
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{
    DeadLetterQuery, Depth, ExecutionView, JobCounts, JobOwner, JobQuery, Lane, NewJob, ScheduleKind, Store,
};
use std::sync::Arc;

pub async fn what_is_not_there_is_not_found(store: Arc<dyn Store>) {
    let id = job(1).id;
    assert_eq!(store.job(id).await.unwrap(), None);
    assert_eq!(store.execution(id.occurrence(1).attempt(1)).await.unwrap(), None);
    let history = store.history(id, None, 10).await.unwrap();
    assert!(history.items.is_empty() && history.next.is_none());
    let jobs = store.jobs(JobQuery { limit: 10, ..JobQuery::default() }).await.unwrap();
    assert!(jobs.items.is_empty() && jobs.next.is_none());
    assert_eq!(store.skipped(id, 10).await.unwrap(), []);
    assert_eq!(store.dead_letters(DeadLetterQuery::default()).await.unwrap().items, []);
    assert_eq!(store.depths().await.unwrap(), []);
    assert_eq!(store.token("none").await.unwrap(), None);
}

pub async fn a_status_follows_the_life_of_a_job(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let job = job_with(1, |spec| spec.settings.schedule = once(100));
    let session = harness.open_session("w").await;
    let status = async || harness.view(job.id).await.status();
    harness.submit(at(1), job.clone()).await;
    assert_eq!(status().await, JobStatus::Active, "it is in the future");
    harness.fired(at(100), job.id, 1).await;
    assert_eq!(status().await, JobStatus::Active, "it is queued");
    let assignment = harness.claim_one(at(101), session, 1).await;
    assert_eq!(status().await, JobStatus::Active, "it runs");
    harness.accept(at(102), session, &assignment, succeeded(102)).await;
    assert_eq!(status().await, JobStatus::Completed);
}

pub async fn a_live_execution_names_its_worker(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    harness.submit(at(1), job(1)).await;
    let id = job(1).id.occurrence(1).attempt(1);
    let Some(ExecutionView::Live { live, worker: None }) = harness.store.execution(id).await.unwrap() else {
        panic!("it is queued");
    };
    assert_eq!(live.execution(), id);
    let assignment = harness.claim_one(at(2), session, 1).await;
    let Some(ExecutionView::Live { worker, .. }) = harness.store.execution(id).await.unwrap() else {
        panic!("it runs");
    };
    assert_eq!(worker.as_deref(), Some("w"));
    harness.accept(at(3), session, &assignment, failed(3)).await;
    let Some(ExecutionView::Finished(finished)) = harness.store.execution(id).await.unwrap() else {
        panic!("it has ended");
    };
    assert_eq!((finished.worker.as_deref(), finished.error.as_deref()), (Some("w"), Some("it broke")));
    let next = id.occurrence.attempt(2);
    let waiting = harness.store.execution(next).await.unwrap();
    assert!(matches!(waiting, Some(ExecutionView::Live { worker: None, .. })));
    assert_eq!(harness.store.execution(id.occurrence.attempt(3)).await.unwrap(), None);
}

pub async fn history_is_listed_latest_first_in_pages(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    let job = job_with(1, |spec| spec.settings.schedule = every(10));
    harness.submit(at(1), job.clone()).await;
    harness.submit(at(1), job_with(2, |spec| spec.job_type = "other".to_owned())).await;
    for round in 1..=5_u32 {
        let now = 10 * i64::from(round);
        harness.fired(at(now), job.id, round).await;
        let assignment = harness.claim_one(at(now), session, u64::from(round)).await;
        harness.accept(at(now + 1), session, &assignment, succeeded(now + 1)).await;
    }
    let mut before = None;
    let mut listed = Vec::new();
    for expected in [2, 2, 1] {
        let page = harness.store.history(job.id, before, 2).await.unwrap();
        assert_eq!(page.items.len(), expected);
        listed.extend(page.items.iter().map(|finished| finished.id.occurrence.number));
        before = page.next;
    }
    assert_eq!((listed, before), (vec![5, 4, 3, 2, 1], None));
    let last = harness.view(job.id).await.last_finished.expect("it has run");
    assert_eq!(last.id.occurrence.number, 5);
}

pub async fn jobs_are_listed_latest_first_in_pages(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for n in 1..=5 {
        harness.submit(at(1), job(n)).await;
    }
    let mut before = None;
    let mut listed = Vec::new();
    for expected in [2, 2, 1] {
        let page = harness.store.jobs(JobQuery { before, limit: 2, ..JobQuery::default() }).await.unwrap();
        assert_eq!(page.items.len(), expected);
        listed.extend(page.items.iter().map(|view| view.job.id));
        before = page.next;
    }
    assert_eq!((listed, before), ((1..=5).rev().map(|n| job(n).id).collect(), None));
}

pub async fn lists_filter_by_every_field(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    let special = job_with(2, |spec| {
        spec.name = "nightly".to_owned();
        spec.job_type = "mail".to_owned();
        spec.queue = "bulk".to_owned();
        spec.owner = "ann".to_owned();
        spec.priority = Priority::MAX;
    });
    harness.submit(at(1), special).await;
    harness.submit(at(1), job(3)).await;
    let text = |text: &str| Some(text.to_owned());
    let queries = [
        (JobQuery { name: text("nightly"), ..JobQuery::default() }, vec![2]),
        (JobQuery { name: text("report"), ..JobQuery::default() }, vec![3, 1]),
        (JobQuery { job_type: text("mail"), ..JobQuery::default() }, vec![2]),
        (JobQuery { queue: text("bulk"), ..JobQuery::default() }, vec![2]),
        (JobQuery { queue: text("default"), ..JobQuery::default() }, vec![3, 1]),
        (JobQuery { owner: text("ann"), ..JobQuery::default() }, vec![2]),
        (JobQuery { owner: text("default"), ..JobQuery::default() }, vec![3, 1]),
        (JobQuery { priority: Some(Priority::MAX), ..JobQuery::default() }, vec![2]),
        (JobQuery { priority: Some(Priority::MIN), ..JobQuery::default() }, vec![]),
        (JobQuery { owner: text("ann"), queue: text("default"), ..JobQuery::default() }, vec![]),
    ];
    for (query, expected) in queries {
        let expected: Vec<_> = expected.into_iter().map(|n| job(n).id).collect();
        assert_eq!(list(&harness, JobQuery { limit: 10, ..query.clone() }).await, expected, "{query:?}");
    }
}

pub async fn jobs_have_their_owners_and_lanes(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    let special = job_with(2, |spec| {
        spec.job_type = "mail".to_owned();
        spec.queue = "bulk".to_owned();
        spec.owner = "ann".to_owned();
    });
    harness.submit(at(1), special).await;
    assert_eq!(harness.store.job_owners(vec![]).await.unwrap(), []);
    let ids = [2, 3, 1].map(|number| job(number).id);
    let mut owners = harness.store.job_owners(ids.into()).await.unwrap();
    owners.sort_by_key(|of| of.job);
    let of = |number, owner: &str, lane| JobOwner { job: job(number).id, owner: owner.to_owned(), lane };
    let expected =
        [of(1, "default", Lane::new("default", "report")), of(2, "ann", Lane::new("bulk", "mail"))];
    assert_eq!(owners, expected);
}

pub async fn lists_filter_by_schedule_tags_and_text(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect::<Vec<_>>();
    harness.submit(at(1), job_with(1, |spec| spec.settings.tags = tags(&["EU", "mail"]))).await;
    harness.submit(at(1), job_with(2, |spec| spec.settings.tags = tags(&["eu-2"]))).await;
    let nightly = job_with(3, |spec| {
        spec.name = "Nightly Report".to_owned();
        spec.settings.schedule = every(60);
        spec.settings.tags = tags(&["mail"]);
    });
    harness.submit(at(1), nightly.clone()).await;
    harness.submit(at(1), job_with(4, |spec| spec.settings.schedule = once(100))).await;
    let text = |text: &str| JobQuery { text: Some(text.to_owned()), ..JobQuery::default() };
    let tagged = |wanted: &[&str]| JobQuery { tags: tags(wanted), ..JobQuery::default() };
    let scheduled = |kind| JobQuery { schedule: Some(kind), ..JobQuery::default() };
    let id = job(2).id.to_string();
    let queries = [
        (tagged(&["mail"]), vec![3, 1]),
        (tagged(&["mail", "EU"]), vec![1]),
        (tagged(&["EU", "mail", "no"]), vec![]),
        (tagged(&["eu"]), vec![]),
        (JobQuery { schedule: Some(ScheduleKind::Recurring), ..tagged(&["mail"]) }, vec![3]),
        (JobQuery { status: Some(JobStatus::Active), ..tagged(&["mail"]) }, vec![3, 1]),
        (JobQuery { status: Some(JobStatus::Paused), ..tagged(&["mail"]) }, vec![]),
        (scheduled(ScheduleKind::Immediate), vec![2, 1]),
        (scheduled(ScheduleKind::OneTime), vec![4]),
        (scheduled(ScheduleKind::Recurring), vec![3]),
        (text("nightly"), vec![3]),
        (text("REPORT"), vec![4, 3, 2, 1]),
        (text("eu"), vec![2, 1]),
        (text(&id), vec![2]),
        (text(&id[..id.len() - 1]), vec![2]),
        (text("nowhere"), vec![]),
        (JobQuery { tags: tags(&["mail"]), ..text("eu") }, vec![1]),
        (JobQuery { tags: tags(&["eu-2"]), ..text(&id) }, vec![2]),
        (JobQuery { tags: tags(&["mail"]), ..text(&id) }, vec![]),
    ];
    for (query, expected) in queries {
        let expected: Vec<_> = expected.into_iter().map(|n| job(n).id).collect();
        assert_eq!(list(&harness, JobQuery { limit: 10, ..query.clone() }).await, expected, "{query:?}");
    }
    let mut spec = nightly.spec.clone();
    spec.settings.tags = tags(&["new"]);
    harness.done(at(2), nightly.id, Verb::Update(Box::new(Update { spec, expected_version: None }))).await;
    let of_tag = async |tag| list(&harness, JobQuery { limit: 10, ..tagged(&[tag]) }).await;
    assert_eq!((of_tag("mail").await, of_tag("new").await), (vec![job(1).id], vec![job(3).id]));
    harness.done(at(3), job(1).id, Verb::Delete).await;
    assert_eq!(of_tag("mail").await, []);
    harness.store.purge(at(1_000_000), 100).await.unwrap();
    harness.submit(at(4), job(1)).await;
    assert_eq!(of_tag("EU").await, [], "a purged job leaves no tags behind");
}

pub async fn lists_filter_by_every_status(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    let ends = [
        succeeded(3),
        ReportedEnd { retryable: false, ..failed(3) },
        ReportedEnd { ending: Ending::Cancelled, ..failed(3) },
        failed(3),
    ];
    for (n, end) in (1..).zip(ends) {
        harness.submit(at(1), job(n)).await;
        let assignment = harness.claim_one(at(2), session, u64::from(n)).await;
        harness.accept(at(3), session, &assignment, end).await;
    }
    harness.submit(at(4), job(5)).await;
    harness.submit(at(4), job_with(6, |spec| spec.settings.schedule = every(10))).await;
    harness.fired(at(10), job(6).id, 1).await;
    harness.submit(at(4), job_with(7, |spec| spec.settings.schedule = once(100))).await;
    let expected = [
        (JobStatus::Completed, vec![1]),
        (JobStatus::Failed, vec![2]),
        (JobStatus::Cancelled, vec![3]),
        (JobStatus::Active, vec![7, 6, 5, 4]),
        (JobStatus::Paused, vec![]),
    ];
    for (status, numbers) in expected {
        let expected: Vec<_> = numbers.iter().map(|n| job(*n).id).collect();
        for limit in [1, 2, 10] {
            let query = JobQuery { status: Some(status), limit, ..JobQuery::default() };
            assert_eq!(list(&harness, query).await, expected, "{status:?} by {limit}");
        }
    }
}

pub async fn jobs_with_a_further_run_are_listed_without_the_others(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job(1)).await;
    for (n, schedule) in [(2, every(10)), (3, once(100)), (4, every(10)), (5, once(20)), (6, every(10))] {
        harness.submit(at(4), job_with(n, |spec| spec.settings.schedule = schedule.clone())).await;
    }
    harness.done(at(5), job(2).id, Verb::Pause).await;
    harness.done(at(5), job(4).id, Verb::Cancel).await;
    harness.fired(at(20), job(5).id, 1).await;
    let expected: Vec<_> = [6, 3, 2].map(|n| job(n).id).into();
    for limit in [1, 2, 10] {
        let query = JobQuery { scheduled: true, limit, ..JobQuery::default() };
        assert_eq!(list(&harness, query).await, expected, "by {limit}");
    }
    let named = JobQuery { scheduled: true, name: Some(job(3).spec.name), limit: 10, ..JobQuery::default() };
    assert!(list(&harness, named).await.contains(&job(3).id));
    let none = JobQuery { scheduled: true, name: Some("none".to_owned()), limit: 10, ..JobQuery::default() };
    assert_eq!(list(&harness, none).await, []);
}

pub async fn jobs_are_counted_by_status(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for n in 1..=4 {
        harness.submit(at(1), job(n)).await;
    }
    harness.submit(at(1), job_with(5, |spec| spec.settings.schedule = every(10))).await;
    worker.run(at(2), succeeded(2)).await;
    worker.run(at(2), died(2)).await;
    harness.done(at(3), job(3).id, Verb::Cancel).await;
    harness.done(at(3), job(5).id, Verb::Pause).await;
    let expected = JobCounts { active: 1, paused: 1, completed: 1, failed: 1, cancelled: 1, dead_letters: 1 };
    assert_eq!(harness.store.job_counts().await.unwrap(), expected);
    let dead = harness.dead_letters().await[0].occurrence;
    harness.redriven(at(4), dead).await;
    harness.done(at(4), job(3).id, Verb::Delete).await;
    let expected = JobCounts { active: 2, failed: 0, cancelled: 0, dead_letters: 0, ..expected };
    assert_eq!(harness.store.job_counts().await.unwrap(), expected);
}

pub async fn a_filtered_list_reaches_the_oldest_job_through_its_cursors(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    harness.submit(at(1), job_with(0, |spec| spec.owner = "ann".to_owned())).await;
    let flood = (1..=5_000).map(|n| NewJob { job: job(n), reservation: None }).collect();
    harness.store.submit(at(1), flood).await.unwrap();
    let query = JobQuery { owner: Some("ann".to_owned()), limit: 10, ..JobQuery::default() };
    assert_eq!(list(&harness, query).await, [job(0).id]);
}

pub async fn dead_letters_are_listed_latest_first_in_pages(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    for n in 1..=3 {
        harness.submit(at(1), job(n)).await;
        let assignment = harness.claim_one(at(2), session, u64::from(n)).await;
        harness.accept(at(3), session, &assignment, ReportedEnd { retryable: false, ..failed(3) }).await;
    }
    let first =
        harness.store.dead_letters(DeadLetterQuery { limit: 2, ..DeadLetterQuery::default() }).await.unwrap();
    let second = harness
        .store
        .dead_letters(DeadLetterQuery { before: first.next, limit: 2, ..DeadLetterQuery::default() })
        .await
        .unwrap();
    let listed: Vec<_> =
        first.items.iter().chain(&second.items).map(|letter| letter.occurrence.job).collect();
    assert_eq!(listed, [job(3).id, job(2).id, job(1).id]);
    assert_eq!((first.items.len(), second.next), (2, None));
}

pub async fn depths_count_what_is_live_by_lane(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let session = harness.open_session("w").await;
    for n in 1..=4 {
        harness.submit(at(i64::from(n)), job(n)).await;
    }
    harness.submit(at(9), job_with(5, |spec| spec.queue = "bulk".to_owned())).await;
    harness.submit(at(9), job_with(6, |spec| spec.settings.schedule = once(100))).await;
    let claimed = harness.claim(at(10), session, 1, 2).await;
    harness.accept(at(11), session, &claimed[0], failed(11)).await;
    let mut depths = harness.store.depths().await.unwrap();
    depths.sort_by(|a, b| a.lane.cmp(&b.lane));
    let bulk = Depth {
        lane: Lane::new("bulk", "report"),
        waiting: 0,
        queued: 1,
        running: 0,
        oldest_queued: Some(at(9)),
    };
    let default = Depth {
        lane: Lane::new("default", "report"),
        waiting: 1,
        queued: 2,
        running: 1,
        oldest_queued: Some(at(3)),
    };
    assert_eq!(depths, [bulk, default]);
}

/// Everything that a query finds, over all pages.
async fn list(harness: &Harness, query: JobQuery) -> Vec<JobId> {
    let mut query = query;
    let mut found = Vec::new();
    for _page in 0..100 {
        let page = harness.store.jobs(query.clone()).await.unwrap();
        assert!(page.items.len() <= query.limit);
        found.extend(page.items.iter().map(|view| view.job.id));
        match page.next {
            Some(next) => query.before = Some(next),
            None => return found,
        }
    }
    panic!("the list does not end: {query:?}");
}
