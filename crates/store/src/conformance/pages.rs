//! Pages are limited by the bytes of their contents, and lead to the next page.

use super::fixture::{Harness, at, died, every, failed, job, job_with, succeeded};
use punctual_core::control::Verb;
use punctual_core::ids::ExecutionId;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{
    Control, DeadLetterQuery, ExecutionQuery, ExecutionView, ExecutionWalk, JobQuery, LogLine, LogStream,
    Store,
};
use punctual_core::schedule::OverlapPolicy;
use std::sync::Arc;

/// Items of which four fit into a page and five do not.
const LARGE_BYTES: usize = limits::PAGE_BYTES_MAX / 4;
const PER_PAGE: usize = 4;
const COUNT: usize = 10;

/// A text of this many bytes that is also valid JSON.
fn large(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

/// Follows a list from its start to its end. Returns the items of each page. A macro, because an async
/// closure that borrows would not be `Send` as required for a case.
macro_rules! followed {
    ($place:ident => $page:expr) => {{
        let (mut $place, mut pages) = (None, Vec::new());
        loop {
            let page = $page.await.unwrap();
            pages.push(page.items);
            $place = page.next;
            if $place.is_none() || pages.len() > 2 * COUNT {
                break pages;
            }
        }
    }};
}

fn sizes<T>(pages: &[Vec<T>]) -> Vec<usize> {
    pages.iter().map(Vec::len).collect()
}

pub async fn a_page_of_jobs_is_bounded_by_its_payloads(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for number in 1..=COUNT as u32 {
        harness.submit(at(1), job_with(number, |spec| spec.payload = large(LARGE_BYTES))).await;
    }
    let latest_first: Vec<_> = (1..=COUNT as u32).rev().map(|number| job(number).id).collect();
    for name in [None, Some("report".to_owned())] {
        let query = |before| JobQuery { before, limit: 1_000, name: name.clone(), ..JobQuery::default() };
        let pages = followed!(before => harness.store.jobs(query(before)));
        assert_eq!(sizes(&pages), [PER_PAGE, PER_PAGE, 2], "by name {name:?}");
        let found: Vec<_> = pages.iter().flatten().map(|view| view.job.id).collect();
        assert_eq!(found, latest_first);
    }
}

pub async fn a_page_holds_one_item_however_large(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    for number in 1..=2 {
        harness
            .submit(at(1), job_with(number, |spec| spec.payload = large(limits::PAGE_BYTES_MAX + 1)))
            .await;
    }
    let query = |before| JobQuery { before, limit: 10, ..JobQuery::default() };
    assert_eq!(sizes(&followed!(before => harness.store.jobs(query(before)))), [1, 1]);
}

/// A job with ten ended executions, each with a large result. Returns them in the order of their ends.
async fn ended_with_large_results(harness: &Harness) -> Vec<ExecutionId> {
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| {
        spec.settings.schedule = every(5);
        spec.settings.overlap = OverlapPolicy::Allow;
    });
    harness.submit(at(1), job.clone()).await;
    harness.fired(at(5 * COUNT as i64), job.id, 1).await;
    let mut ended = Vec::new();
    for _ in 0..COUNT {
        let end = ReportedEnd { result: Some(large(LARGE_BYTES)), ..succeeded(200) };
        ended.push(worker.run(at(200), end).await.0);
    }
    ended
}

pub async fn pages_of_what_has_ended_are_bounded_by_results(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut ended = ended_with_large_results(&harness).await;
    let mut events = Vec::new();
    let mut after = 0;
    loop {
        let page = harness.store.finished_after(after, 100).await.unwrap();
        assert!(page.items.len() <= PER_PAGE, "{}", page.items.len());
        events.extend(page.items.iter().map(|event| event.finished.id));
        after = page.looked_to;
        if !page.more {
            break;
        }
    }
    assert_eq!(events, ended, "events");
    let listed = followed!(walk => {
        let walk = walk.unwrap_or(ExecutionWalk::Finished { status: Status::Succeeded, before: None });
        let (queue, job_type, owner, worker) = (None, None, None, None);
        harness.store.executions(ExecutionQuery { walk, limit: 1_000, queue, job_type, owner, worker, ended_from: None, ended_until: None })
    });
    assert_eq!(sizes(&listed), [PER_PAGE, PER_PAGE, 2], "executions");
    let listed = listed.iter().flatten().map(|item| match &item.view {
        ExecutionView::Finished(finished) => finished.id,
        ExecutionView::Live { live, .. } => live.execution(),
    });
    ended.reverse();
    assert_eq!(listed.collect::<Vec<_>>(), ended);
    let history = followed!(before => harness.store.history(job(1).id, before, 1_000));
    assert_eq!(sizes(&history), [PER_PAGE, PER_PAGE, 2], "history");
    ended.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(history.iter().flatten().map(|finished| finished.id).collect::<Vec<_>>(), ended);
}

/// Open executions of one job, many more than its view shows.
const OPEN: usize = 300;
/// Not a divisor of their number.
const LISTED_AT_ONCE: usize = 37;

pub async fn all_executions_of_a_job_are_listed_once_while_they_finish(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    let job = job_with(1, |spec| {
        spec.settings.schedule = every(1_000_000);
        spec.settings.overlap = OverlapPolicy::Allow;
    });
    harness.submit(at(1), job.clone()).await;
    let trigger = Control { job: job.id, verb: Verb::trigger(true) };
    harness.store.control(at(2), vec![trigger; OPEN + 20]).await.unwrap();
    for number in 0..20 {
        // Some are finished, others wait for their next attempt.
        let end = if number % 2 == 0 { succeeded(3) } else { failed(3) };
        worker.run(at(3), end).await;
    }
    let running = worker.claim_one(at(3)).await.execution;
    let before = harness.store.executions_of_job(job.id, None, limits::PAGE_ITEMS_MAX).await.unwrap();
    assert_eq!((before.items.len(), before.next), (OPEN + 30, None), "ten have a second attempt");
    let worker_of_running = before.items.iter().find(|view| view.id() == running).map(|view| match view {
        ExecutionView::Live { worker, .. } => worker.as_deref(),
        ExecutionView::Finished(_) => None,
    });
    assert_eq!(worker_of_running, Some(Some("w")));

    let (mut listed, mut place) = (Vec::new(), None);
    loop {
        let page = harness.store.executions_of_job(job.id, place, LISTED_AT_ONCE).await.unwrap();
        listed.extend(page.items.iter().map(ExecutionView::id));
        if page.next.is_none() {
            break;
        }
        assert_eq!((page.items.len(), page.next), (LISTED_AT_ONCE, listed.last().copied()));
        place = page.next;
        for number in 0..20 {
            let end = if number % 2 == 0 { succeeded(4) } else { failed(4) };
            worker.run(at(4), end).await;
        }
    }
    let expected: Vec<ExecutionId> = before.items.iter().map(ExecutionView::id).collect();
    let is_known = |id: &&ExecutionId| expected.contains(id);
    assert_eq!(listed.iter().filter(is_known).copied().collect::<Vec<_>>(), expected, "each once and in order");
    assert!(listed.is_sorted_by(|a, b| a > b), "attempts made meanwhile are listed in order");
}

pub async fn a_page_of_dead_letters_is_bounded_by_errors(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let mut worker = harness.worker().await;
    for number in 1..=COUNT as u32 {
        harness.submit(at(1), job(number)).await;
        worker.run(at(2), ReportedEnd { error: Some(large(LARGE_BYTES)), ..died(2) }).await;
    }
    let query = |before| DeadLetterQuery { before, limit: 1_000, ..DeadLetterQuery::default() };
    let pages = followed!(before => harness.store.dead_letters(query(before)));
    assert_eq!(sizes(&pages), [PER_PAGE, PER_PAGE, 2]);
}

pub async fn a_page_of_log_lines_is_bounded_by_what_they_say(store: Arc<dyn Store>) {
    let execution = job(1).id.occurrence(1).attempt(1);
    let line = |number: usize| LogLine {
        number: 0,
        execution,
        timestamp: at(number as i64),
        stream: LogStream::Stdout,
        message: large(LARGE_BYTES),
    };
    store.append_logs((0..COUNT).map(line).collect()).await.unwrap();
    let pages = followed!(after => store.logs(execution, after, 1_000));
    assert_eq!(sizes(&pages), [PER_PAGE, PER_PAGE, 2]);
    let last = store.last_logs(execution, None, 1_000).await.unwrap();
    let times: Vec<_> = last.iter().map(|line| line.timestamp).collect();
    assert_eq!(times, [at(6), at(7), at(8), at(9)], "the last ones that fit into a page");
    let older = store.last_logs(execution, Some(last[0].number), 3).await.unwrap();
    let times: Vec<_> = older.iter().map(|line| line.timestamp).collect();
    assert_eq!(times, [at(3), at(4), at(5)], "those before them");
}
