//! The store as the nodes see it, behind connections that fail, stall and lose responses: the real SQLite
//! core, or the writers of the server stores over an in-memory database server. A call travels as a message
//! of the world, not of its caller: it is applied whether or not the caller still exists. The auditor
//! observes every call in the order in which it was applied or committed.

use crate::auditor::{AuditResult, AuditViolation, Auditor, JobContents, StoreContents};
use crate::host;
use crate::lock;
use crate::random::Rng;
use crate::reads::StoreReads;
use crate::world::World;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{
    DeadLetterQuery, ExecutionView, Host, JobCounts, JobQuery, JobView, NotedClock, StoreError, Write,
    WriteReply,
};
use punctual_core::queue::QueueChange;
use punctual_core::time::Timestamp;
use punctual_store::memory_server::{
    Commit, Isolation, MemoryServer, MemoryWriters, RoundTrip, ServerNetwork,
};
use punctual_store::sqlite::{SqliteCall, SqliteCore, SqliteReply, Upkeep, UpkeepReply};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Transactions between two comparisons of the store's counters with its rows.
const TRANSACTIONS_PER_RECOUNT: u64 = 50;
/// Rows that the final comparison reads at a time: few, so that paging is exercised.
const PAGE_ITEMS: usize = 7;

/// A server call is one of several of its transaction, so each fails this many times less often.
const CALLS_PER_TRANSACTION: u64 = 3;
/// The maximum of writers of a node.
const WRITERS_MAX: u64 = 4;

/// The database under the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    Sqlite,
    /// The unit of work over tables that behave like those of PostgreSQL.
    Postgres,
    /// The unit of work over tables that behave like those of MariaDB.
    MariaDb,
}

impl StoreKind {
    pub const ALL: [StoreKind; 3] = [StoreKind::Sqlite, StoreKind::Postgres, StoreKind::MariaDb];
}

pub struct SimDatabase {
    world: Arc<World>,
    tables: SimTables,
    rng: Mutex<Rng>,
    waiting: Mutex<Vec<WaitingCall>>,
    transactions: Mutex<u64>,
}

#[expect(clippy::large_enum_variant, reason = "there is one in a run")]
enum SimTables {
    Sqlite(Mutex<SqliteCore>),
    Server(Arc<MemoryServer>),
}

/// A call that has arrived and waits for its transaction.
struct WaitingCall {
    node: usize,
    call: SqliteCall,
    faults: StoreCallFaults,
    reply: oneshot::Sender<Result<SqliteReply, StoreError>>,
}

/// The faults of one call to the database.
#[derive(Debug, Clone, Copy)]
struct StoreCallFaults {
    travels: Duration,
    refused: bool,
    gathers: bool,
    returns: Duration,
    reply_lost: bool,
}

impl SimDatabase {
    pub fn new(world: Arc<World>, kind: StoreKind, rng: Rng) -> Result<Arc<Self>, StoreError> {
        let core = SqliteCore::open_in_memory()?;
        let (clock, spawn) = host::server(&world.executor);
        let server = |isolation, database: &Weak<SimDatabase>| {
            let network = Arc::new(ServerLink(database.clone()));
            SimTables::Server(MemoryServer::new(isolation, clock, spawn, network))
        };
        let rng = Mutex::new(rng);
        let (waiting, transactions) = (Mutex::default(), Mutex::default());
        Ok(Arc::new_cyclic(|database| {
            let tables = match kind {
                StoreKind::Sqlite => SimTables::Sqlite(Mutex::new(core)),
                StoreKind::Postgres => server(Isolation::Postgres, database),
                StoreKind::MariaDb => server(Isolation::MariaDb, database),
            };
            SimDatabase { world, tables, rng, waiting, transactions }
        }))
    }

    /// The writers of a node that has just started, if the store is on a server.
    pub fn writers(&self, node: usize, host: &Host) -> Option<MemoryWriters> {
        let SimTables::Server(server) = &self.tables else { return None };
        let writers = lock(&self.rng).between(1, WRITERS_MAX) as usize;
        Some(MemoryWriters::start(server, node, writers, host))
    }

    /// Carries a call to the store and its response back.
    pub async fn call(self: &Arc<Self>, node: usize, call: SqliteCall) -> Result<SqliteReply, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (database, faults) = (self.clone(), self.draw());
        self.world.executor.spawn_in_world(async move {
            let executor = &database.world.executor;
            executor.sleep(faults.travels).await;
            if faults.refused {
                let _ = reply.send(Err(unavailable("it cannot be reached")));
                return;
            }
            let core = match &database.tables {
                SimTables::Sqlite(core) => core,
                SimTables::Server(server) => {
                    let result = database.apply_upkeep(server, &call);
                    return database.answer(WaitingCall { node, call, faults, reply }, result);
                }
            };
            lock(&database.waiting).push(WaitingCall { node, call, faults, reply });
            if faults.gathers {
                executor.sleep(faults.returns).await;
            }
            database.apply_waiting(core);
        });
        answer.await.unwrap_or_else(|_| Err(unavailable("the answer is gone")))
    }

    /// Carries a read to the store and its response back.
    pub async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&World, &mut StoreReads<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let (database, faults) = (self.clone(), self.draw());
        self.world.executor.spawn_in_world(async move {
            let executor = &database.world.executor;
            executor.sleep(faults.travels).await;
            let mut result = Err(unavailable("it cannot be reached"));
            if !faults.refused {
                result = database.read_now(|reads| read(&database.world, reads));
                executor.sleep(faults.returns).await;
            }
            let _ =
                reply.send(if faults.reply_lost { Err(unavailable("the answer is lost")) } else { result });
        });
        answer.await.unwrap_or_else(|_| Err(unavailable("the answer is gone")))
    }

    /// Reads immediately, without virtual time or faults.
    pub fn read_now<T>(
        &self,
        read: impl FnOnce(&mut StoreReads<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.tables {
            SimTables::Sqlite(core) => read(&mut StoreReads::Sqlite(lock(core).reads())),
            SimTables::Server(server) => server.read(|database| read(&mut StoreReads::Memory(database))),
        }
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
        match &self.tables {
            SimTables::Sqlite(core) => {
                lock(core).restart();
                self.world.tell(|auditor| auditor.shares_are_forgotten());
            }
            SimTables::Server(server) => server.restart(),
        }
        self.world.note(format_args!("the store restarts"));
        self.world.count("restarts of the store");
    }

    fn draw(&self) -> StoreCallFaults {
        let network_faults = self.world.network_faults();
        let mut rng = lock(&self.rng);
        let mut latency = || {
            if rng.per_mille(network_faults.store_stalls) {
                self.world.count("store calls stalled");
                rng.millis(0, network_faults.stall_ms_max)
            } else {
                rng.millis(0, network_faults.store_latency_ms_max)
            }
        };
        let (travels, returns) = (latency(), latency());
        self.world.travels(travels + returns);
        StoreCallFaults {
            travels,
            returns,
            refused: rng.per_mille(network_faults.store_refuses),
            gathers: rng.per_mille(network_faults.store_gathers),
            reply_lost: rng.per_mille(network_faults.store_reply_lost),
        }
    }

    /// Runs maintenance on a server.
    fn apply_upkeep(&self, server: &MemoryServer, call: &SqliteCall) -> Result<SqliteReply, StoreError> {
        let SqliteCall::Upkeep(upkeep) = call else {
            return Err(StoreError::Broken(format!("{call:?} must go through the writers")));
        };
        let result = server.upkeep(upkeep).map(SqliteReply::Upkeep);
        // Rows that a transaction has locked are left for the next time.
        if result.is_ok() {
            self.world.audit(|auditor| applied(auditor, call, &result));
        }
        result
    }

    /// Applies all calls that have arrived as one batch.
    fn apply_waiting(&self, core: &Mutex<SqliteCore>) {
        let batch = std::mem::take(&mut *lock(&self.waiting));
        if batch.len() > 1 {
            self.world.count("batches of several writes");
        }
        let calls: Vec<SqliteCall> = batch.iter().map(|waiting| waiting.call.clone()).collect();
        let results = lock(core).apply(&calls);
        for (waiting, result) in batch.into_iter().zip(results) {
            self.world.audit(|auditor| applied(auditor, &waiting.call, &result));
            self.answer(waiting, result);
        }
        self.one_more_transaction();
    }

    /// Sends the response to a call that was applied.
    fn answer(&self, waiting: WaitingCall, result: Result<SqliteReply, StoreError>) {
        let WaitingCall { node, call, faults, reply } = waiting;
        self.world.note(format_args!("store for node {node}: {call:?} -> {result:?}"));
        let sleep = self.world.executor.sleep(faults.returns);
        let lost = faults.reply_lost;
        if lost {
            self.world.count("store answers lost");
        }
        self.world.executor.spawn_in_world(async move {
            sleep.await;
            let _ = reply.send(if lost { Err(unavailable("the answer is lost")) } else { result });
        });
    }

    fn one_more_transaction(&self) {
        let mut transactions = lock(&self.transactions);
        *transactions += 1;
        if transactions.is_multiple_of(TRANSACTIONS_PER_RECOUNT) {
            self.recount();
        }
    }

    fn counter_check(&self) -> Result<Vec<String>, StoreError> {
        match &self.tables {
            SimTables::Sqlite(core) => lock(core).counter_check(),
            SimTables::Server(server) => Ok(server.read(|database| database.counter_check())),
        }
    }

    fn integrity_check(&self) -> Result<Vec<String>, StoreError> {
        match &self.tables {
            SimTables::Sqlite(core) => lock(core).integrity_check(),
            SimTables::Server(server) => Ok(server.read(|database| database.integrity_check())),
        }
    }

    /// Compares the store's counters with its rows and with the model.
    fn recount(&self) {
        let problems = self.counter_check();
        self.world.audit(|auditor| {
            let wrong = |detail| AuditViolation { rule: "the counters match the rows", detail };
            match problems {
                Ok(problems) if problems.is_empty() => {}
                other => return Err(wrong(format!("{other:?}"))),
            }
            let limiters = auditor.limiters()?;
            let wait_lists: Vec<_> = limiters.iter().map(|(limiter, ..)| limiter.wait_list()).collect();
            let kept = self.read_now(|reads| reads.limiters(&wait_lists));
            let kept = kept.map_err(|error| wrong(error.to_string()))?;
            auditor.counted(&limiters, &kept)
        });
    }

    /// Everything that the reads return, and the problems that the store's own check finds.
    pub fn contents(&self) -> Result<(StoreContents, Vec<String>), StoreError> {
        let (contents, mut problems) = self.read_now(read_contents)?;
        problems.extend(self.integrity_check()?);
        Ok((contents, problems))
    }
}

/// The faults that a server's transactions meet.
struct ServerLink(Weak<SimDatabase>);

impl ServerNetwork for ServerLink {
    fn trip(&self) -> RoundTrip {
        let Some(database) = self.0.upgrade() else {
            return RoundTrip { out: Duration::ZERO, back: Duration::ZERO, is_refused: true, is_lost: true };
        };
        let faults = database.draw();
        let is_hit = |is_hit: bool| is_hit && lock(&database.rng).below(CALLS_PER_TRANSACTION) == 0;
        RoundTrip {
            out: faults.travels,
            back: faults.returns,
            is_refused: is_hit(faults.refused),
            is_lost: is_hit(faults.reply_lost),
        }
    }

    fn committed(&self, commit: Commit) {
        let Some(database) = self.0.upgrade() else { return };
        let Commit { node, began, writes } = commit;
        let world = &database.world;
        if writes.len() > 1 {
            world.count("batches of several writes");
        }
        for (write, result) in writes {
            world.note(format_args!("transaction of node {node}: {write:?} -> {result:?}"));
            let (call, result) = (SqliteCall::Write(write), result.map(SqliteReply::Write));
            world.audit(|auditor| applied(auditor.seen_since(began), &call, &result));
        }
        database.one_more_transaction();
    }

    fn count(&self, what: &'static str) {
        if let Some(database) = self.0.upgrade() {
            database.world.count(what);
        }
    }
}

fn read_contents(reads: &mut StoreReads<'_>) -> Result<(StoreContents, Vec<String>), StoreError> {
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
    let contents = StoreContents { jobs, dead_letters, depths, paused_queues, queues };
    Ok((contents, problems))
}

fn counts_of(views: &[JobView]) -> JobCounts {
    let mut counts = JobCounts::default();
    for view in views {
        *counts.of(view.status()) += 1;
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

fn applied(
    auditor: &mut Auditor,
    call: &SqliteCall,
    result: &Result<SqliteReply, StoreError>,
) -> AuditResult {
    let reply = result.as_ref().map_err(|error| AuditViolation {
        rule: "the store does not fail by itself",
        detail: format!("{call:?}: {error}"),
    })?;
    match (call, reply) {
        (SqliteCall::Write(write), SqliteReply::Write(reply)) => written(auditor, write, reply),
        (SqliteCall::Upkeep(upkeep), SqliteReply::Upkeep(reply)) => kept(auditor, upkeep, reply),
        (call, reply) => Err(not_in_kind(call, reply)),
    }
}

fn kept(auditor: &mut Auditor, upkeep: &Upkeep, reply: &UpkeepReply) -> AuditResult {
    use {Upkeep as U, UpkeepReply as R};
    match (upkeep, reply) {
        (U::Retain { horizon, limit }, R::Retained(retained)) => auditor.retained(*horizon, *limit, retained),
        (U::Retire { now, retirement }, R::Retired(retired)) => auditor.retired(*now, retirement, retired),
        (U::DeleteUnused { .. }, R::UnusedDeleted(_)) => Ok(()),
        (U::Purge { .. }, R::Purged(purged)) => auditor.purged(&purged.jobs),
        (upkeep, reply) => Err(not_in_kind(upkeep, reply)),
    }
}

fn not_in_kind(call: &impl Debug, reply: &impl Debug) -> AuditViolation {
    AuditViolation {
        rule: "every call gets an answer of its kind, and a cluster makes no other calls",
        detail: format!("{call:?} -> {reply:?}"),
    }
}

fn written(auditor: &mut Auditor, write: &Write, reply: &WriteReply) -> AuditResult {
    use {Write as W, WriteReply as R};
    match (write, reply) {
        (W::Submit { now, jobs }, R::Submitted(outcomes)) => {
            auditor.submitted(*now, jobs, outcomes)?;
            auditor.keys_are_held_once()
        }
        (W::Fire { now, fires, .. }, R::Fired(outcomes)) => auditor.fired(*now, fires, outcomes),
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
        (W::PauseQueue { now, queue, pausing }, R::QueuePaused(effects)) => {
            auditor.queue_paused(*now, queue, *pausing, effects)
        }
        (W::OrderSession { session, order }, R::SessionOrdered(outcome)) => {
            auditor.session_ordered(*session, *order, outcome)
        }
        (W::Admit { now, lines, limit }, R::Admitted(admitted)) => {
            auditor.admitted(*now, lines, *limit, admitted)
        }
        (W::SetQueue { queue, change: QueueChange::Replace(settings) }, R::QueueSet) => {
            auditor.queue_set(queue, settings.clone())
        }
        (W::BeginRequest { now, request }, R::RequestBegun(state)) => {
            auditor.request_begun(*now, request, state)
        }
        (W::AnswerRequest { request, answer }, R::RequestAnswered) => {
            auditor.request_answered(request, answer)
        }
        (write, reply) => Err(not_in_kind(write, reply)),
    }
}
