//! The server: transactions over the tables, isolated by row locks.

use super::MemoryDatabase;
use super::database::Picked;
use super::row_locks::{LockMode, RowKey, RowLocks};
use crate::fault::Fault;
use crate::sqlite::{Upkeep, UpkeepReply};
use crate::unit_of_work::{LoadedRows, ReadSet, WriteSet};
use futures_util::future::{Either, select};
use punctual_core::defects::{Defect, planted};
use punctual_core::limits;
use punctual_core::ports::{Clock, QueueRow, Spawn, StoreError, Write, WriteReply};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Finished jobs with unresolved children that one transaction loads.
const RESOLUTIONS_MAX: usize = 64;

/// The database that the server behaves like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A connection sends all statements of a round at once.
    Postgres,
    /// A connection waits for the result of each statement before it sends the next one, so that other
    /// transactions run between them.
    MariaDb,
}

/// The network behaviour of one call to the server and its answer.
#[derive(Debug, Clone, Copy)]
pub struct RoundTrip {
    pub out: Duration,
    pub back: Duration,
    /// The connection breaks before the call arrives.
    pub is_refused: bool,
    /// The connection breaks before the answer arrives.
    pub is_lost: bool,
}

/// A transaction that was committed.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The node that sent it.
    pub node: usize,
    /// When it began, by the server's clock. It may not have seen what others committed later.
    pub began: Timestamp,
    pub writes: Vec<(Write, Result<WriteReply, StoreError>)>,
}

/// The network around the server, and an observer of its commits.
pub trait ServerNetwork: Send + Sync {
    fn trip(&self) -> RoundTrip;
    /// A transaction was committed. Called in the order of the commits.
    fn committed(&self, commit: Commit);
    /// Counts an interesting event.
    fn count(&self, what: &'static str);
}

/// A database server that the nodes of a simulation share.
pub struct MemoryServer {
    isolation: Isolation,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawn: Arc<dyn Spawn>,
    pub(super) network: Arc<dyn ServerNetwork>,
    state: Mutex<ServerState>,
}

#[derive(Default)]
struct ServerState {
    database: MemoryDatabase,
    locks: RowLocks,
    transactions: BTreeMap<u64, OpenTransaction>,
    transactions_given: u64,
}

/// An open transaction.
#[derive(Debug)]
struct OpenTransaction {
    began: Timestamp,
    calls: u64,
    is_idle: bool,
    /// The settings of queues as it has read them.
    queues: Option<BTreeMap<String, QueueRow>>,
    /// The queues whose rows were locked at that time.
    held_queues: BTreeSet<String>,
}

impl MemoryServer {
    /// A server with its own clock and tasks, which nodes do not stop.
    pub fn new(
        isolation: Isolation,
        clock: Arc<dyn Clock>,
        spawn: Arc<dyn Spawn>,
        network: Arc<dyn ServerNetwork>,
    ) -> Arc<Self> {
        Arc::new(MemoryServer { isolation, clock, spawn, network, state: Mutex::default() })
    }

    /// Reads what is committed.
    pub fn read<T>(&self, read: impl FnOnce(&mut MemoryDatabase) -> T) -> T {
        read(&mut self.state().database)
    }

    /// Runs maintenance, except where other transactions have locked rows.
    pub fn upkeep(&self, upkeep: &Upkeep) -> Result<UpkeepReply, StoreError> {
        let ServerState { database, locks, .. } = &mut *self.state();
        let is_free = |key: RowKey| locks.is_free(0, &key, LockMode::Exclusive);
        Ok(match upkeep {
            Upkeep::Retain { horizon, limit } => UpkeepReply::Retained(database.retain(*horizon, *limit)),
            Upkeep::DeleteUnused { .. } => {
                database.delete_unused(|lane| is_free(RowKey::Lane(lane)));
                UpkeepReply::UnusedDeleted(false)
            }
            Upkeep::Retire { now, retirement } => {
                let retired = database.retire(*now, *retirement, |job| is_free(RowKey::Job(job)));
                let locked = || StoreError::Unavailable("a job is locked".to_owned());
                UpkeepReply::Retired(retired.ok_or_else(locked)?)
            }
            Upkeep::Purge { before, limit } => {
                UpkeepReply::Purged(database.purge(*before, *limit, |job| is_free(RowKey::Job(job))))
            }
            other => return Err(StoreError::Broken(format!("a simulated server does not run {other:?}"))),
        })
    }

    /// The server restarts: all open transactions are rolled back.
    pub fn restart(&self) {
        let state = &mut *self.state();
        for transaction in std::mem::take(&mut state.transactions).into_keys() {
            state.locks.release(transaction);
        }
    }

    fn state(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state();
        state.transactions_given += 1;
        let transaction = state.transactions_given;
        let open = OpenTransaction {
            began: self.clock.wall(),
            calls: 0,
            is_idle: true,
            queues: None,
            held_queues: BTreeSet::new(),
        };
        state.transactions.insert(transaction, open);
        transaction
    }

    pub(super) fn intern(&self, read_set: &ReadSet) -> LoadedRows {
        self.state().database.intern(read_set)
    }

    /// Rolls back a transaction, if it is still open.
    pub(super) fn end(&self, transaction: u64) {
        let mut state = self.state();
        state.transactions.remove(&transaction);
        state.locks.release(transaction);
    }

    /// Rolls back a transaction whose client is gone, unless a call is in progress: its end notices that.
    pub(super) fn end_if_idle(&self, transaction: u64) {
        if self.state().transactions.get(&transaction).is_some_and(|open| open.is_idle) {
            self.end(transaction);
        }
    }

    /// A call of a transaction arrives.
    pub(super) fn call_begins(&self, transaction: u64) -> Result<(), Fault> {
        let mut state = self.state();
        let open = state.transactions.get_mut(&transaction).ok_or_else(rolled_back)?;
        (open.calls, open.is_idle) = (open.calls + 1, false);
        Ok(())
    }

    /// A call of a transaction has ended. The server ends transactions whose client sends nothing for long.
    pub(super) fn call_ends(self: &Arc<Self>, transaction: u64) {
        let mut state = self.state();
        let Some(open) = state.transactions.get_mut(&transaction) else { return };
        open.is_idle = true;
        let calls = open.calls;
        drop(state);
        let server = self.clone();
        self.spawn.spawn(Box::pin(async move {
            server.clock.sleep(limits::DATABASE_IDLE_TRANSACTION_MAX).await;
            let is_same = |open: &OpenTransaction| open.calls == calls && open.is_idle;
            if server.state().transactions.get(&transaction).is_some_and(is_same) {
                server.network.count("idle transactions ended");
                server.end(transaction);
            }
        }));
    }

    /// Locks and reads the rows of a read set, kind by kind.
    pub(super) async fn fetch(&self, transaction: u64, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        let lanes = read_set.held_lanes.iter().map(|lane| RowKey::Lane(*lane));
        self.lock_all(transaction, lanes, LockMode::Shared).await?;
        let mut picked = Picked {
            sessions: self.read(|database| database.wanted_sessions(read_set)),
            ..Picked::default()
        };
        self.statement(transaction, picked.sessions.iter().copied().map(RowKey::Session)).await?;
        let jobs = read_set.jobs.union(&read_set.terms).copied();
        picked.jobs = self.read(|database| jobs.filter(|job| database.jobs.contains_key(job)).collect());
        self.statement(transaction, picked.jobs.iter().copied().map(RowKey::Job)).await?;
        let schedules = read_set.schedules.iter().copied();
        picked.schedules =
            self.read(|database| schedules.filter(|job| database.schedules.contains_key(job)).collect());
        self.statement(transaction, picked.schedules.iter().copied().map(RowKey::Schedule)).await?;
        let wanted = self.read(|database| database.wanted_live(read_set));
        let unlocked = planted(Defect::ReadBeforeLock).then(|| self.read(|database| database.live.clone()));
        self.statement(transaction, wanted.iter().copied().map(RowKey::Live)).await?;
        self.claim(transaction, read_set, &mut picked);
        let queues = read_set.limited_queues.union(&read_set.unstarted).cloned().map(RowKey::Queue);
        self.statement(transaction, queues).await?;
        self.skip_locked(transaction, read_set, &mut picked);

        let mut state = self.state();
        let ServerState { database, transactions, .. } = &mut *state;
        let open = transactions.get_mut(&transaction).ok_or_else(rolled_back)?;
        // Rows that changed while the transaction waited for them must still be wanted.
        let sessions = database.wanted_sessions(read_set);
        picked.sessions.retain(|session| sessions.contains(session));
        picked.live.extend(database.wanted_live(read_set).intersection(&wanted));
        let mut found = database.find(read_set, picked);
        for row in &mut found.live {
            if let Some(before) = unlocked.as_ref().and_then(|rows| rows.get(&row.live.id)) {
                *row = before.clone();
            }
        }
        if read_set.queues {
            open.queues = Some(found.queues.iter().map(|row| (row.queue.clone(), row.clone())).collect());
            let is_there = |queue: &&String| found.queues.iter().any(|row| row.queue == **queue);
            open.held_queues = read_set.limited_queues.iter().filter(is_there).cloned().collect();
        }
        Ok(found)
    }

    /// Locks queued executions that no other transaction has locked.
    fn claim(&self, transaction: u64, read_set: &ReadSet, picked: &mut Picked) {
        let ServerState { database, locks, .. } = &mut *self.state();
        for wanted in &read_set.claims {
            let is_free = |id| locks.is_free(transaction, &RowKey::Live(id), LockMode::Exclusive);
            let claimed = database.claimable(wanted, is_free);
            for id in claimed.iter().filter(|_| !planted(Defect::ClaimUnlocked)) {
                locks.try_lock(transaction, &RowKey::Live(*id), LockMode::Exclusive);
            }
            picked.live.extend(&claimed);
            picked.claims.push(claimed);
        }
    }

    /// Locks heads of wait lists and resolutions that no other transaction has locked.
    fn skip_locked(&self, transaction: u64, read_set: &ReadSet, picked: &mut Picked) {
        let ServerState { database, locks, .. } = &mut *self.state();
        for (line, count) in &read_set.lines {
            let is_free = |id| locks.is_free(transaction, &RowKey::Live(id), LockMode::Exclusive);
            let heads = database.heads(*line, *count, is_free);
            for id in &heads {
                locks.try_lock(transaction, &RowKey::Live(*id), LockMode::Exclusive);
            }
            picked.live.extend(heads);
        }
        if read_set.resolutions {
            for parent in database.resolutions.keys() {
                if picked.resolutions.len() < RESOLUTIONS_MAX
                    && locks.try_lock(transaction, &RowKey::Resolution(*parent), LockMode::Exclusive)
                {
                    picked.resolutions.push(*parent);
                }
            }
        }
    }

    /// Writes the changes and commits. `writes` are the transaction's, with their replies.
    pub(super) async fn commit(
        &self,
        transaction: u64,
        node: usize,
        write_set: &WriteSet,
        writes: Vec<(Write, Result<WriteReply, StoreError>)>,
    ) -> Result<(), Fault> {
        self.check_queues(transaction, write_set).await?;
        self.lock_all(transaction, written_rows(write_set).into_iter(), LockMode::Exclusive).await?;
        self.next_statement().await?;
        let mut state = self.state();
        let began = state.transactions.get(&transaction).ok_or_else(rolled_back)?.began;
        state.database.write(write_set)?;
        drop(state);
        self.end(transaction);
        self.network.committed(Commit { node, began, writes });
        Ok(())
    }

    /// Whether the settings that this transaction has read are still valid, now that they are locked.
    async fn check_queues(&self, transaction: u64, write_set: &WriteSet) -> Result<(), Fault> {
        let held = self.state().transactions.get(&transaction).ok_or_else(rolled_back)?.held_queues.clone();
        if write_set.queues_deleted.is_empty()
            && write_set.queues_put.iter().all(|row| held.contains(&row.queue))
        {
            return Ok(());
        }
        self.lock(transaction, &RowKey::QueueSettings, LockMode::Exclusive).await?;
        let state = self.state();
        let read = state.transactions.get(&transaction).and_then(|open| open.queues.as_ref());
        let mut named = write_set.queues_put.iter().map(|row| &row.queue).chain(&write_set.queues_deleted);
        match read {
            Some(read) if named.any(|queue| read.get(queue) != state.database.queues.get(queue)) => {
                Err(Fault::Conflict("another transaction changed the settings of a queue".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// One statement that locks rows, if there are any.
    async fn statement(&self, transaction: u64, keys: impl Iterator<Item = RowKey>) -> Result<(), Fault> {
        let mut keys = keys.peekable();
        if keys.peek().is_some() {
            self.next_statement().await?;
        }
        self.lock_all(transaction, keys, LockMode::Exclusive).await
    }

    /// The next statement arrives.
    async fn next_statement(&self) -> Result<(), Fault> {
        if self.isolation == Isolation::Postgres {
            return Ok(());
        }
        let trip = self.network.trip();
        self.clock.sleep(trip.out).await;
        let is_broken = trip.is_refused || trip.is_lost;
        if is_broken { Err(Fault::Away("the connection was lost".to_owned())) } else { Ok(()) }
    }

    async fn lock_all(
        &self,
        transaction: u64,
        keys: impl Iterator<Item = RowKey>,
        mode: LockMode,
    ) -> Result<(), Fault> {
        for key in keys {
            self.lock(transaction, &key, mode).await?;
        }
        Ok(())
    }

    async fn lock(&self, transaction: u64, key: &RowKey, mode: LockMode) -> Result<(), Fault> {
        let mut timeout = self.clock.sleep(limits::DATABASE_LOCK_TIMEOUT);
        let mut has_waited = false;
        loop {
            let waiting = {
                let mut state = self.state();
                if !state.transactions.contains_key(&transaction) {
                    return Err(rolled_back());
                }
                if state.locks.try_lock(transaction, key, mode) {
                    return Ok(());
                }
                state.locks.wait(transaction, key)
            };
            let Ok(woken) = waiting else {
                self.network.count("deadlocks");
                return Err(Fault::Conflict(format!("deadlock on {key:?}")));
            };
            if !has_waited {
                self.network.count("waits for a row lock");
                has_waited = true;
            }
            match select(woken, timeout).await {
                Either::Left((_, left)) => timeout = left,
                Either::Right(_) => {
                    self.network.count("lock timeouts");
                    return Err(Fault::Conflict(format!("no lock on {key:?} in time")));
                }
            }
        }
    }
}

fn rolled_back() -> Fault {
    Fault::Away("the server has ended the transaction".to_owned())
}

/// The rows that a write set locks when it is written, in the order of its lists.
fn written_rows(write_set: &WriteSet) -> Vec<RowKey> {
    let sessions = write_set.sessions_updated.iter().map(|change| change.id);
    let sessions = sessions.chain(write_set.attention.iter().copied());
    let sessions = sessions.chain(write_set.sessions_deleted.iter().copied());
    let jobs = write_set.jobs_inserted.iter().chain(&write_set.jobs_updated).map(|row| row.job.id);
    let jobs = jobs.chain(write_set.marks.iter().map(|(job, _)| *job));
    let jobs = jobs.chain(write_set.numbered.iter().map(|numbered| numbered.job));
    let keys = write_set.keys_held.iter().chain(&write_set.keys_taken).map(|(key, _)| key.clone());
    let schedules = write_set.schedules_inserted.iter().chain(&write_set.schedules_updated);
    let schedules = schedules.map(|row| row.state.job).chain(write_set.schedules_deleted.iter().copied());
    let live = write_set.live_inserted.iter().map(|row| row.live.id);
    let live = live.chain(write_set.leased.iter().map(|leased| leased.id));
    let live = live.chain(write_set.live_updated.iter().map(|row| row.live.id));
    let live = live.chain(write_set.live_deleted.iter().copied());
    let resolutions = write_set.resolutions_inserted.iter().map(|(parent, _)| *parent);
    let resolutions = resolutions.chain(write_set.resolutions_deleted.iter().copied());
    let requests = write_set.requests_inserted.iter().map(|(new, _)| new.request.clone());
    let requests = requests.chain(write_set.requests_answered.iter().map(|(key, _)| key.clone()));
    let mut rows: Vec<RowKey> = sessions.map(RowKey::Session).collect();
    rows.extend(jobs.map(RowKey::Job));
    rows.extend(keys.map(RowKey::JobKey));
    rows.extend(schedules.map(RowKey::Schedule));
    rows.extend(live.map(RowKey::Live));
    rows.extend(resolutions.map(RowKey::Resolution));
    rows.extend(requests.map(RowKey::Request));
    rows
}
