//! Everything visible of a store, without the numbers that each store assigns differently: positions in
//! history, and the numbers of dead letters and log lines.

use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    DeadLetter, DeadLetterQuery, Depth, DocumentKind, Due, ExecutionQuery, ExecutionView, ExecutionWalk,
    JobCounts, JobQuery, JobView, ListedExecution, LogLine, OpenExecution, PausedQueue, QueueRow,
    ScheduleKind, SessionRow, Store, StoredDocument, StoredSecret, Token, User,
};
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;

/// Items per page, so that every list has several pages.
const PAGE: usize = 7;
/// A limit where the exact number does not matter.
const MANY: usize = 1_000;

/// Everything at once.
#[derive(Debug, PartialEq)]
pub(super) struct StoreSnapshot {
    due: Vec<Due>,
    sessions: Vec<SessionRow>,
    holdings: Vec<(SessionId, u64)>,
    queues: Vec<QueueRow>,
    paused: Vec<PausedQueue>,
    depths: Vec<Depth>,
    counts: JobCounts,
    token: Option<Token>,
    tokens: Vec<Vec<Token>>,
    users: Vec<Vec<User>>,
    secrets: Vec<Vec<StoredSecret>>,
    documents: Vec<Vec<StoredDocument>>,
    finished: Vec<(String, Finished)>,
    running: Vec<Vec<OpenExecution>>,
    listed: Vec<Vec<Vec<ListedExecution>>>,
    dead: Vec<DeadLetters>,
    jobs: Vec<Vec<Vec<JobView>>>,
}

impl StoreSnapshot {
    pub async fn of(store: &dyn Store, now: Timestamp) -> Self {
        let mut depths = store.depths().await.unwrap();
        depths.sort_by(|a, b| a.lane.cmp(&b.lane));
        StoreSnapshot {
            due: store.due(SegmentSet::ALL, now, MANY).await.unwrap(),
            sessions: store.sessions().await.unwrap(),
            holdings: store.holdings().await.unwrap(),
            queues: store.queues().await.unwrap(),
            paused: store.paused_queues().await.unwrap(),
            depths,
            counts: store.job_counts().await.unwrap(),
            token: store.token("t").await.unwrap(),
            tokens: all_tokens(store).await,
            users: all_users(store).await,
            secrets: all_secrets(store).await,
            documents: all_documents(store).await,
            finished: finished(store).await,
            running: running(store).await,
            listed: all_executions(store).await,
            dead: all_dead_letters(store).await,
            jobs: all_jobs(store).await,
        }
    }
}

/// Everything visible of one job.
#[derive(Debug, PartialEq)]
pub(super) struct JobSnapshot {
    view: Option<JobView>,
    history: Vec<Vec<Finished>>,
    skipped: Vec<SkipRange>,
    noted: Vec<Noted>,
    checkpoint: Option<Checkpoint>,
    ahead: Option<usize>,
    execution: Option<ExecutionView>,
    open: Vec<OpenExecution>,
    lines: Vec<Vec<LogLine>>,
    last_lines: Vec<LogLine>,
}

impl JobSnapshot {
    pub async fn of(store: &dyn Store, job: JobId) -> Self {
        let view = store.job(job).await.unwrap();
        let history = pages(async |before| {
            let page = store.history(job, before, 3).await.unwrap();
            (page.items, page.next)
        })
        .await;
        let latest = view.as_ref().and_then(|view| view.open.first()).map(|live| live.execution());
        let latest = latest.or_else(|| Some(history.first()?.first()?.id));
        let execution = latest.unwrap_or(job.occurrence(1).attempt(1));
        let occurrence = execution.occurrence;
        let ids: Vec<OccurrenceId> = (1..=occurrence.number + 1).map(|n| job.occurrence(n)).collect();
        let last_lines = store.last_logs(execution, None, 2).await.unwrap();
        JobSnapshot {
            view,
            history,
            skipped: store.skipped(job, MANY).await.unwrap(),
            noted: store.notes(job, occurrence.number, MANY).await.unwrap(),
            checkpoint: store.checkpoint(occurrence).await.unwrap(),
            ahead: store.ahead(occurrence, MANY).await.unwrap(),
            execution: store.execution(execution).await.unwrap(),
            open: store.open_executions(ids).await.unwrap(),
            lines: lines(store, execution).await,
            last_lines: unnumbered(last_lines),
        }
    }
}

/// Everything visible of a store and of these jobs, as text for comparison.
#[cfg(test)]
pub(crate) async fn all_of(store: &dyn Store, now: Timestamp, jobs: &[JobId]) -> String {
    let mut seen = format!("{:#?}", StoreSnapshot::of(store, now).await);
    for job in jobs {
        seen.push_str(&format!("\n{job}: {:#?}", JobSnapshot::of(store, *job).await));
    }
    seen
}

/// Follows a list to its end. Returns the items of each page.
async fn pages<T, C>(mut page: impl AsyncFnMut(Option<C>) -> (Vec<T>, Option<C>)) -> Vec<Vec<T>> {
    let (mut pages, mut place) = (Vec::new(), None);
    loop {
        let (items, next) = page(place).await;
        pages.push(items);
        place = next;
        if place.is_none() {
            return pages;
        }
    }
}

async fn all_tokens(store: &dyn Store) -> Vec<Vec<Token>> {
    pages(async |after: Option<String>| {
        let page = store.tokens(after.as_deref(), PAGE).await.unwrap();
        (page.items, page.next)
    })
    .await
}

async fn all_users(store: &dyn Store) -> Vec<Vec<User>> {
    pages(async |after: Option<String>| {
        let page = store.users(after.as_deref(), PAGE).await.unwrap();
        (page.items, page.next)
    })
    .await
}

async fn all_secrets(store: &dyn Store) -> Vec<Vec<StoredSecret>> {
    pages(async |after: Option<String>| {
        let page = store.secrets(after.as_deref(), PAGE).await.unwrap();
        (page.items, page.next)
    })
    .await
}

async fn all_documents(store: &dyn Store) -> Vec<Vec<StoredDocument>> {
    let mut documents = Vec::new();
    for kind in DocumentKind::ALL {
        documents.extend(
            pages(async |after: Option<String>| {
                let page = store.documents(kind, after.as_deref(), PAGE).await.unwrap();
                (page.items, page.next)
            })
            .await,
        );
    }
    documents
}

async fn finished(store: &dyn Store) -> Vec<(String, Finished)> {
    let (mut finished, mut after) = (Vec::new(), 0);
    loop {
        let page = store.finished_after(after, PAGE).await.unwrap();
        finished.extend(page.items.into_iter().map(|event| (event.queue, event.finished)));
        after = page.looked_to;
        if !page.more {
            return finished;
        }
    }
}

async fn running(store: &dyn Store) -> Vec<Vec<OpenExecution>> {
    pages(async |after| {
        let page = store.running(after, PAGE).await.unwrap();
        (page.items, page.next)
    })
    .await
}

async fn lines(store: &dyn Store, execution: ExecutionId) -> Vec<Vec<LogLine>> {
    pages(async |after| {
        let page = store.logs(execution, after, 2).await.unwrap();
        (unnumbered(page.items), page.next)
    })
    .await
}

fn unnumbered(mut lines: Vec<LogLine>) -> Vec<LogLine> {
    lines.iter_mut().for_each(|line| line.number = 0);
    lines
}

/// By state, and some of them by queue, by owner and by worker.
async fn all_executions(store: &dyn Store) -> Vec<Vec<Vec<ListedExecution>>> {
    let ended = |status| ExecutionWalk::Finished { status, before: None };
    let walks = [
        ExecutionWalk::Running { after: None },
        ExecutionWalk::Queued { before: None },
        ExecutionWalk::Waiting { before: None },
        ended(Status::Succeeded),
        ended(Status::Failed),
        ended(Status::Cancelled),
        ended(Status::Lost),
        ended(Status::Skipped),
        ended(Status::Expired),
        ended(Status::Snoozed),
    ];
    let mut seen = Vec::new();
    for walk in walks {
        let filters = [
            [None; 3],
            [Some("bulk"), None, None],
            [None, Some("someone"), None],
            [None, None, Some("worker 1")],
        ];
        for [queue, owner, worker] in filters {
            let query = |walk| ExecutionQuery {
                walk,
                limit: PAGE,
                queue: queue.map(str::to_owned),
                job_type: None,
                owner: owner.map(str::to_owned),
                worker: worker.map(str::to_owned),
                ended_from: None,
                ended_until: None,
            };
            let listed = pages(async |place: Option<ExecutionWalk>| {
                let page = store.executions(query(place.unwrap_or(walk))).await.unwrap();
                (page.items, page.next)
            });
            seen.push(listed.await);
        }
    }
    seen
}

/// A list of dead letters. The order of those from one commit is up to the store.
#[derive(Debug, PartialEq)]
struct DeadLetters {
    sizes_of_pages: Vec<usize>,
    are_latest_first: bool,
    letters: Vec<DeadLetter>,
}

async fn all_dead_letters(store: &dyn Store) -> Vec<DeadLetters> {
    let all = DeadLetterQuery { limit: PAGE, ..DeadLetterQuery::default() };
    let queries = [
        all.clone(),
        DeadLetterQuery { queue: Some("bulk".to_owned()), ..all.clone() },
        DeadLetterQuery { owner: Some("someone".to_owned()), ..all.clone() },
        DeadLetterQuery { error: Some("no".to_owned()), job_type: Some("noop".to_owned()), ..all },
    ];
    let mut seen = Vec::new();
    for query in queries {
        let letters = pages(async |before| {
            let page = store.dead_letters(DeadLetterQuery { before, ..query.clone() }).await.unwrap();
            let unnumbered = page.items.into_iter().map(|letter| DeadLetter { number: 0, ..letter });
            (unnumbered.collect(), page.next)
        });
        let pages = letters.await;
        let sizes_of_pages = pages.iter().map(Vec::len).collect();
        let mut letters = pages.concat();
        let are_latest_first = letters.is_sorted_by(|a, b| a.died_at >= b.died_at);
        letters.sort_by_key(|letter| (letter.died_at, letter.occurrence));
        seen.push(DeadLetters { sizes_of_pages, are_latest_first, letters });
    }
    seen
}

/// By every status, and some by other filters.
async fn all_jobs(store: &dyn Store) -> Vec<Vec<Vec<JobView>>> {
    let all = JobQuery { limit: PAGE, ..JobQuery::default() };
    let statuses =
        [JobStatus::Active, JobStatus::Paused, JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled];
    let mut queries: Vec<JobQuery> =
        statuses.into_iter().map(|status| JobQuery { status: Some(status), ..all.clone() }).collect();
    queries.extend([
        all.clone(),
        JobQuery { queue: Some("bulk".to_owned()), ..all.clone() },
        JobQuery { schedule: Some(ScheduleKind::Recurring), ..all.clone() },
        JobQuery { tags: vec!["even".to_owned()], ..all.clone() },
        JobQuery { tags: vec!["even".to_owned(), "third".to_owned()], ..all.clone() },
        JobQuery { tags: vec!["third".to_owned()], status: Some(JobStatus::Completed), ..all.clone() },
        JobQuery { text: Some("HIRD".to_owned()), ..all.clone() },
        JobQuery { owner: Some("someone".to_owned()), ..all },
    ]);
    let mut seen = Vec::new();
    for query in queries {
        let jobs = pages(async |before| {
            let page = store.jobs(JobQuery { before, ..query.clone() }).await.unwrap();
            (page.items, page.next)
        });
        seen.push(jobs.await);
    }
    seen
}
