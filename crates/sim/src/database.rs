//! The store as the nodes see it: the real SQLite core behind a connection that fails, stalls and loses
//! responses. A call travels as a message of the world, not of its caller: it is applied whether or not the
//! caller still exists. The auditor observes every call in the order in which it was applied.

use crate::auditor::{Auditor, Contents, JobContents, Verdict, Violation};
use crate::lock;
use crate::random::Rng;
use crate::world::World;
use punctual_core::job::JobStatus;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    DeadLetterQuery, ExecutionView, JobCounts, JobQuery, JobView, NotedClock, StoreError, Write, WriteReply,
};
use punctual_core::time::Timestamp;
use punctual_store::sqlite::{Call, Reads, Reply, SqliteCore, Upkeep, UpkeepReply};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// Transactions between two comparisons of the store's counters with its rows.
const TRANSACTIONS_PER_RECOUNT: u64 = 50;
/// Rows that the final comparison reads at a time: few, so that paging is exercised.
const PAGE_ITEMS: usize = 7;

pub struct Database {
    world: Arc<World>,
    core: Mutex<SqliteCore>,
    rng: Mutex<Rng>,
    waiting: Mutex<Vec<Waiting>>,
    transactions: Mutex<u64>,
}

/// A call that has arrived and waits for its transaction.
struct Waiting {
    node: usize,
    call: Call,
    fate: Fate,
    reply: oneshot::Sender<Result<Reply, StoreError>>,
}

/// The fate of one call.
#[derive(Debug, Clone, Copy)]
struct Fate {
    travels: Duration,
    refused: bool,
    gathers: bool,
    returns: Duration,
    reply_lost: bool,
}

impl Database {
    pub fn new(world: Arc<World>, rng: Rng) -> Result<Arc<Self>, StoreError> {
        let core = Mutex::new(SqliteCore::open_in_memory()?);
        let rng = Mutex::new(rng);
        let (waiting, transactions) = (Mutex::default(), Mutex::default());
        Ok(Arc::new(Database { world, core, rng, waiting, transactions }))
    }

    /// Carries a write to the store and its response back.
    pub async fn call(self: &Arc<Self>, node: usize, call: Call) -> Result<Reply, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (database, fate) = (self.clone(), self.draw());
        self.world.executor.spawn_in_world(async move {
            let executor = &database.world.executor;
            executor.sleep(fate.travels).await;
            if fate.refused {
                let _ = reply.send(Err(unavailable("it cannot be reached")));
                return;
            }
            lock(&database.waiting).push(Waiting { node, call, fate, reply });
            if fate.gathers {
                executor.sleep(fate.returns).await;
            }
            database.apply_waiting();
        });
        answer.await.unwrap_or_else(|_| Err(unavailable("the answer is gone")))
    }

    /// Carries a read to the store and its response back.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&World, &mut Reads<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (database, fate) = (self.clone(), self.draw());
        self.world.executor.spawn_in_world(async move {
            let executor = &database.world.executor;
            executor.sleep(fate.travels).await;
            let mut result = Err(unavailable("it cannot be reached"));
            if !fate.refused {
                result = read(&database.world, &mut lock(&database.core).reads());
                executor.sleep(fate.returns).await;
            }
            let _ = reply.send(if fate.reply_lost { Err(unavailable("the answer is lost")) } else { result });
        });
        answer.await.unwrap_or_else(|_| Err(unavailable("the answer is gone")))
    }

    /// Reads immediately, without virtual time or faults.
    pub fn read_now<T>(
        &self,
        read: impl FnOnce(&mut Reads<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        read(&mut lock(&self.core).reads())
    }

    /// The store's clock as retention reads it.
    pub fn noted_clock(&self) -> NotedClock {
        self.world.noted_clock()
    }

    pub fn note_clock(&self, at: Timestamp) {
        self.world.note_clock(at);
    }

    /// The store's process restarts: its memory is lost.
    pub fn restart(&self) {
        lock(&self.core).restart();
        self.world.tell(|auditor| auditor.shares_are_forgotten());
        self.world.note(format_args!("the store restarts"));
        self.world.count("restarts of the store");
    }

    fn draw(&self) -> Fate {
        let weather = self.world.weather();
        let mut rng = lock(&self.rng);
        let mut latency = || {
            if rng.per_mille(weather.store_stalls) {
                self.world.count("store calls stalled");
                rng.millis(0, weather.stall_ms_max)
            } else {
                rng.millis(0, weather.store_latency_ms_max)
            }
        };
        let (travels, returns) = (latency(), latency());
        self.world.travels(travels + returns);
        Fate {
            travels,
            returns,
            refused: rng.per_mille(weather.store_refuses),
            gathers: rng.per_mille(weather.store_gathers),
            reply_lost: rng.per_mille(weather.store_reply_lost),
        }
    }

    /// Applies all calls that have arrived as one batch.
    fn apply_waiting(&self) {
        let batch = std::mem::take(&mut *lock(&self.waiting));
        if batch.len() > 1 {
            self.world.count("batches of several writes");
        }
        let calls: Vec<Call> = batch.iter().map(|waiting| waiting.call.clone()).collect();
        let results = lock(&self.core).apply(&calls);
        for (Waiting { node, call, fate, reply }, result) in batch.into_iter().zip(results) {
            self.world.note(format_args!("store for node {node}: {call:?} -> {result:?}"));
            self.world.audit(|auditor| applied(auditor, &call, &result));
            let sleep = self.world.executor.sleep(fate.returns);
            let lost = fate.reply_lost;
            if lost {
                self.world.count("store answers lost");
            }
            self.world.executor.spawn_in_world(async move {
                sleep.await;
                let _ = reply.send(if lost { Err(unavailable("the answer is lost")) } else { result });
            });
        }
        let mut transactions = lock(&self.transactions);
        *transactions += 1;
        if transactions.is_multiple_of(TRANSACTIONS_PER_RECOUNT) {
            self.recount();
        }
    }

    /// Compares the store's counters with its rows and with the model.
    fn recount(&self) {
        let mut core = lock(&self.core);
        let problems = core.counter_check();
        self.world.audit(|auditor| {
            let wrong = |detail| Violation { rule: "the counters match the rows", detail };
            match problems {
                Ok(problems) if problems.is_empty() => {}
                other => return Err(wrong(format!("{other:?}"))),
            }
            let limiters = auditor.limiters()?;
            let lines: Vec<_> = limiters.iter().map(|(limiter, ..)| limiter.line()).collect();
            let kept = core.reads().limiters(&lines).map_err(|error| wrong(error.to_string()))?;
            auditor.counted(&limiters, &kept)
        });
    }

    /// Everything that the reads return, and what the store's own check finds wrong.
    pub fn contents(&self) -> Result<(Contents, Vec<String>), StoreError> {
        let mut core = lock(&self.core);
        let mut reads = core.reads();
        let mut views = Vec::new();
        let mut query = JobQuery { limit: PAGE_ITEMS, ..JobQuery::default() };
        loop {
            let page = reads.jobs(&query)?;
            views.extend(page.items);
            query.before = page.next;
            if query.before.is_none() {
                break;
            }
        }
        let mut jobs = Vec::with_capacity(views.len());
        let mut problems = Vec::new();
        let (counted, shown) = (reads.job_counts()?, counts_of(&views));
        if (JobCounts { dead_letters: 0, ..counted }) != shown {
            problems.push(format!("jobs are counted as {counted:?} and shown as {shown:?}"));
        }
        for view in views {
            let id = view.job.id;
            if reads.job(id)?.as_ref() != Some(&view) {
                problems.push(format!("job {id} reads differently alone and in a list"));
            }
            let history: Vec<Finished> = pages(|before| {
                let page = reads.history(id, before, PAGE_ITEMS)?;
                Ok((page.items, page.next))
            })?;
            for row in &history {
                if reads.execution(row.id)? != Some(ExecutionView::Finished(row.clone())) {
                    problems.push(format!("execution {} reads differently alone and in its history", row.id));
                }
            }
            let mut notes = Vec::new();
            for noted in reads.notes(id, u32::MAX, usize::MAX >> 1)? {
                let checkpoint = reads.checkpoint(noted.occurrence)?;
                notes.push((noted, checkpoint));
            }
            jobs.push(JobContents { skipped: reads.skipped(id, usize::MAX >> 1)?, view, history, notes });
        }
        let dead_letters = pages(|before| {
            let query = DeadLetterQuery { before, limit: PAGE_ITEMS, ..DeadLetterQuery::default() };
            let page = reads.dead_letters(&query)?;
            Ok((page.items, page.next))
        })?;
        let (depths, paused_queues, queues) = (reads.depths()?, reads.paused_queues()?, reads.queues()?);
        let contents = Contents { jobs, dead_letters, depths, paused_queues, queues };
        problems.extend(core.integrity_check()?);
        Ok((contents, problems))
    }
}

fn counts_of(views: &[JobView]) -> JobCounts {
    let mut counts = JobCounts::default();
    for view in views {
        let count = match view.status() {
            JobStatus::Active => &mut counts.active,
            JobStatus::Paused => &mut counts.paused,
            JobStatus::Completed => &mut counts.completed,
            JobStatus::Failed => &mut counts.failed,
            JobStatus::Cancelled => &mut counts.cancelled,
        };
        *count += 1;
    }
    counts
}

fn pages<T, C>(
    mut page: impl FnMut(Option<C>) -> Result<(Vec<T>, Option<C>), StoreError>,
) -> Result<Vec<T>, StoreError> {
    let (mut all, mut next) = page(None)?;
    while next.is_some() {
        let (items, after) = page(next)?;
        all.extend(items);
        next = after;
    }
    Ok(all)
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
}

fn applied(auditor: &mut Auditor, call: &Call, result: &Result<Reply, StoreError>) -> Verdict {
    let reply = result.as_ref().map_err(|error| Violation {
        rule: "the store does not fail by itself",
        detail: format!("{call:?}: {error}"),
    })?;
    match (call, reply) {
        (Call::Write(write), Reply::Write(reply)) => written(auditor, write, reply),
        (Call::Upkeep(upkeep), Reply::Upkeep(reply)) => kept(auditor, upkeep, reply),
        (call, reply) => Err(not_in_kind(call, reply)),
    }
}

fn kept(auditor: &mut Auditor, upkeep: &Upkeep, reply: &UpkeepReply) -> Verdict {
    use {Upkeep as U, UpkeepReply as R};
    match (upkeep, reply) {
        (U::Retain { horizon, limit }, R::Retained(retained)) => auditor.retained(*horizon, *limit, retained),
        (U::Retire { now, retirement }, R::Retired(retired)) => auditor.retired(*now, retirement, retired),
        (U::DeleteUnused { .. }, R::UnusedDeleted(_)) => Ok(()),
        (U::Purge { .. }, R::Purged(purged)) => auditor.purged(&purged.jobs),
        (upkeep, reply) => Err(not_in_kind(upkeep, reply)),
    }
}

fn not_in_kind(call: &impl Debug, reply: &impl Debug) -> Violation {
    Violation {
        rule: "every call is answered in kind, and none comes that a cluster does not make",
        detail: format!("{call:?} -> {reply:?}"),
    }
}

fn written(auditor: &mut Auditor, write: &Write, reply: &WriteReply) -> Verdict {
    use {Write as W, WriteReply as R};
    match (write, reply) {
        (W::Submit { now, jobs }, R::Submitted(outcomes)) => {
            auditor.submitted(*now, jobs, outcomes)?;
            auditor.keys_are_held_once()
        }
        (W::Fire { now, fires }, R::Fired(outcomes)) => auditor.fired(*now, fires, outcomes),
        (W::Look { now, looks }, R::Looked(outcomes)) => auditor.looked(*now, looks, outcomes),
        (W::Resolve { now, .. }, R::Resolved(resolved)) => auditor.resolved(*now, resolved),
        (W::Claim { now, claims }, R::Claimed(outcomes)) => auditor.claimed(*now, claims, outcomes),
        (W::Report { now, reports }, R::Reported(outcomes)) => auditor.reported(*now, reports, outcomes),
        (W::Note { now, notes }, R::Noted(answers)) => auditor.noted(*now, notes, answers),
        (W::GiveBack { now, session, leases }, R::GivenBack(outcomes)) => {
            auditor.given_back(*now, *session, leases, outcomes)
        }
        (W::Resync { now, resync }, R::Resynced(outcome)) => auditor.resynced(*now, resync, outcome),
        (W::OpenSession { now, opening }, R::SessionOpened(id)) => auditor.session_opened(*now, opening, *id),
        (W::Beat { now, beats }, R::Beaten(outcomes)) => auditor.beaten(*now, beats, outcomes),
        (W::LoseSessions { now, silent }, R::SessionsLost(outcomes)) => {
            auditor.sessions_lost(*now, silent, outcomes)
        }
        (W::Recover { now, .. }, R::Recovered(recovered)) => auditor.recovered(*now, recovered),
        (W::CloseSession { now, session }, R::SessionClosed(outcome)) => {
            auditor.session_closed(*now, *session, outcome)
        }
        (W::Control { now, controls }, R::Controlled(outcomes)) => {
            auditor.controlled(*now, controls, outcomes)?;
            auditor.keys_are_held_once()
        }
        (W::Cancel { now, executions }, R::Cancelled(outcomes)) => {
            auditor.cancelled(*now, executions, outcomes)
        }
        (W::Redrive { now, dead }, R::Redriven(outcomes)) => {
            auditor.redriven(*now, dead, outcomes)?;
            auditor.keys_are_held_once()
        }
        (W::Discard { dead }, R::Discarded(outcomes)) => auditor.discarded(dead, outcomes),
        (W::PauseQueue { now, queue, pausing }, R::QueuePaused(begun)) => {
            auditor.queue_paused(*now, queue, *pausing, begun)
        }
        (W::OrderSession { session, order }, R::SessionOrdered(outcome)) => {
            auditor.session_ordered(*session, *order, outcome)
        }
        (W::Admit { now, lines, limit }, R::Admitted(admitted)) => {
            auditor.admitted(*now, lines, *limit, admitted)
        }
        (W::SetQueue { queue, settings }, R::QueueSet) => auditor.queue_set(queue, settings.clone()),
        (W::BeginRequest { now, request }, R::RequestBegun(state)) => {
            auditor.request_begun(*now, request, state)
        }
        (W::AnswerRequest { request, answer }, R::RequestAnswered) => {
            auditor.request_answered(request, answer)
        }
        (write, reply) => Err(not_in_kind(write, reply)),
    }
}
