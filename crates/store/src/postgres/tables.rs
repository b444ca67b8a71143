//! Loads and writes the rows of a unit of work on one connection.

pub(crate) mod read_set;
pub(crate) mod write_set;

use super::claim_cursors::{ClaimCursors, ClaimScan};
use super::options::{OptionsError, PostgresOptions, Target};
use super::partitions::{PartitionedTable, Partitions};
use super::wire::{StatementCall, TransactionFrame, Wire, column, value};
use crate::cells::get;
use crate::codecs::limit;
use crate::fault::Fault;
use crate::server::loaded::{Gathering, lanes_of, read_queue};
use crate::server::names::{intern, look_up, to_ask};
use crate::server::queue_check::QueueCheck;
use crate::unit_of_work::{Connect, LaneCache, LoadedRows, NamedLanes, ReadSet, Tables, WriteSet};
use async_trait::async_trait;
use punctual_core::ids::{JobId, SessionId};
use punctual_core::occurrence::LiveState;
use read_set::{QUEUES, ReadRound};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use write_set::writes;

const INSERT_WORKERS: &str = "INSERT INTO workers (name) SELECT * FROM unnest($1::text[]) ON CONFLICT (name) \
     DO UPDATE SET unused_since = NULL WHERE workers.unused_since IS NOT NULL";
const WORKERS: &str = "SELECT name, id FROM workers WHERE name = ANY($1)";
const SESSION_NUMBERS: &str = "SELECT nextval('session_numbers') FROM generate_series(1, $1::bigint)";
/// Serializes changes of queue settings, because nothing else locks them.
const LOCK_QUEUES: &str = "LOCK TABLE queues IN SHARE ROW EXCLUSIVE MODE";

/// Shared by all connections of a process: the location of the database, and data that never changes.
#[derive(Clone)]
pub(crate) struct SharedDatabase {
    pub target: Target,
    pub lanes: Arc<LaneCache>,
    pub partitions: Arc<Partitions>,
    pub cursors: Arc<ClaimCursors>,
}

impl SharedDatabase {
    pub fn new(options: &PostgresOptions) -> Result<Self, OptionsError> {
        let target = options.target()?;
        let partitions = Arc::new(Partitions::new(target.clone(), options.partition_width));
        Ok(SharedDatabase { target, lanes: Arc::default(), partitions, cursors: Arc::default() })
    }
}

#[async_trait]
impl Connect for SharedDatabase {
    async fn connect(&self, _writer: usize) -> Result<Box<dyn Tables>, Fault> {
        Ok(Box::new(PostgresTables::connect(self.clone()).await?))
    }
}

/// One connection for writes.
pub(crate) struct PostgresTables {
    shared: SharedDatabase,
    /// `None` after it broke, until it is needed again.
    wire: Option<Wire>,
    stage: TransactionState,
    queues: QueueCheck,
}

/// How often a claim doubles the number of requested rows because some are malformed.
const ROUNDS_PAST_MALFORMED_MAX: usize = 8;

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransactionState {
    Idle,
    /// It will begin together with its first statement.
    Requested,
    Open,
}

impl PostgresTables {
    pub async fn connect(shared: SharedDatabase) -> Result<Self, Fault> {
        let wire = Some(Wire::connect(&shared.target).await?);
        Ok(PostgresTables { shared, wire, stage: TransactionState::Idle, queues: QueueCheck::default() })
    }

    /// The connection, without an open transaction of an earlier caller.
    async fn idle_wire(&mut self) -> Result<&mut Wire, Fault> {
        if self.stage == TransactionState::Open {
            self.abandon().await;
        }
        self.stage = TransactionState::Idle;
        if self.wire.as_ref().is_none_or(Wire::is_closed) {
            self.wire = Some(Wire::connect(&self.shared.target).await?);
        }
        self.wire()
    }

    /// The connection in its current state: one that broke in the middle of a transaction is not reopened.
    fn wire(&mut self) -> Result<&mut Wire, Fault> {
        self.wire.as_mut().ok_or_else(|| Fault::Away("the connection was lost".to_owned()))
    }

    /// Runs a round inside the transaction, which begins with its first statement.
    async fn gather(&mut self, round: ReadRound<'_>, gathering: &mut Gathering) -> Result<(), Fault> {
        if round.calls.is_empty() {
            return Ok(());
        }
        let frame = if self.stage == TransactionState::Requested {
            TransactionFrame::Begin
        } else {
            TransactionFrame::None
        };
        self.stage = TransactionState::Open;
        let ReadRound { parts, calls } = round;
        let answers = self.wire()?.run(frame, calls).await?;
        let mut lanes = BTreeSet::new();
        for (part, rows) in parts.iter().zip(&answers) {
            lanes.extend(lanes_of(*part, rows)?);
        }
        let named = self.name_lanes(&lanes, gathering).await?;
        for (part, rows) in parts.iter().zip(&answers) {
            gathering.take(*part, rows, &named)?;
        }
        Ok(())
    }

    /// Scans lanes from the start if fewer rows were found than requested, and records what was found.
    async fn look_again(
        &mut self,
        read_set: &ReadSet,
        scan: ClaimScan,
        gathering: &mut Gathering,
    ) -> Result<(), Fault> {
        let cursors = Arc::clone(&self.shared.cursors);
        let lanes = |index: &usize| read_set.claims[*index].lanes.as_slice();
        let mut again = gathering.short_claims(&read_set.claims);
        again.retain(|index| cursors.leaves_out(scan, lanes(index)));
        if !again.is_empty() {
            self.gather(ReadRound::claims(read_set, &again, &cursors), gathering).await?;
        }
        cursors.found(gathering.claimed_places());
        for index in gathering.short_claims(&read_set.claims) {
            cursors.emptied(lanes(&index));
        }
        Ok(())
    }

    /// Reads further in lanes whose first rows are malformed.
    async fn look_past_malformed(
        &mut self,
        read_set: &ReadSet,
        gathering: &mut Gathering,
    ) -> Result<(), Fault> {
        let cursors = Arc::clone(&self.shared.cursors);
        let mut wider = read_set.claims.clone();
        for _ in 0..ROUNDS_PAST_MALFORMED_MAX {
            let mut again = Vec::new();
            for (index, wanted) in wider.iter_mut().enumerate() {
                if gathering.found_claims(index) < read_set.claims[index].count
                    && let Some(more) = gathering.wider(index, wanted)
                {
                    *wanted = more;
                    again.push(index);
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            let read_set = ReadSet { claims: wider.clone(), ..ReadSet::default() };
            self.gather(ReadRound::claims(&read_set, &again, &cursors), gathering).await?;
        }
        Ok(())
    }

    /// The names of these lanes; names that had to be looked up are also passed to the unit of work.
    async fn name_lanes(
        &mut self,
        numbers: &BTreeSet<i64>,
        gathering: &mut Gathering,
    ) -> Result<NamedLanes, Fault> {
        let lanes = Arc::clone(&self.shared.lanes);
        let (mut named, unknown) = lanes.known(numbers);
        if !unknown.is_empty() {
            let learned = look_up(&lanes, self.wire()?, unknown).await?;
            named.extend(learned.iter().cloned());
            gathering.learn_lanes(learned);
        }
        Ok(named)
    }

    /// Whether the settings that this transaction has read are still valid, now that they are locked.
    async fn check_queues(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        if self.queues.is_unneeded(write_set) {
            return Ok(());
        }
        let frame = if self.stage == TransactionState::Requested {
            TransactionFrame::Begin
        } else {
            TransactionFrame::None
        };
        self.stage = TransactionState::Open;
        let calls = vec![StatementCall::new(LOCK_QUEUES, []), StatementCall::new(QUEUES, [])];
        let rows = self.wire()?.run(frame, calls).await?.pop().unwrap_or_default();
        self.queues.check(write_set, rows.iter().map(read_queue).collect::<Result<_, _>>()?)
    }
}

#[async_trait]
impl Tables for PostgresTables {
    async fn intern(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        let lanes = Arc::clone(&self.shared.lanes);
        let wire = self.idle_wire().await?;
        let mut found = LoadedRows::default();
        if !read_set.lanes.is_empty() {
            found.lanes = intern(&lanes, wire, &read_set.lanes).await?;
        }
        let (named, unknown) = lanes.known(&read_set.lane_numbers);
        found.lanes.extend(named);
        if !unknown.is_empty() {
            found.lanes.extend(look_up(&lanes, wire, unknown).await?);
        }
        if read_set.lanes_to_ask {
            found.lanes_to_ask = to_ask(&lanes, wire).await?;
        }
        if !read_set.workers.is_empty() {
            let names = || column(read_set.workers.iter().map(String::as_str));
            wire.run_one(StatementCall::new(INSERT_WORKERS, [names()])).await?;
            for row in wire.run_one(StatementCall::new(WORKERS, [names()])).await? {
                found.workers.push((get(&row, 0)?, get(&row, 1)?));
            }
        }
        if read_set.new_sessions > 0 {
            let count = value(limit(read_set.new_sessions));
            for row in wire.run_one(StatementCall::new(SESSION_NUMBERS, [count])).await? {
                found.new_sessions.push(SessionId(get(&row, 0)?));
            }
        }
        Ok(found)
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        self.idle_wire().await?;
        self.stage = TransactionState::Requested;
        self.queues = QueueCheck::default();
        Ok(())
    }

    async fn fetch(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        let mut gathering = Gathering::new(read_set.claims.len());
        let cursors = Arc::clone(&self.shared.cursors);
        let began = Instant::now();
        let scan = cursors.next_scan(began);
        self.gather(ReadRound::of(read_set, &cursors, scan), &mut gathering).await?;
        if !read_set.claims.is_empty() {
            if scan == ClaimScan::Whole {
                cursors.scanned_whole(began, Instant::now());
            }
            self.look_again(read_set, scan, &mut gathering).await?;
            self.look_past_malformed(read_set, &mut gathering).await?;
        }
        // The claimable executions are known only now, and the claims need their jobs' data.
        let jobs: BTreeSet<JobId> = gathering.claimed().map(|id| id.job).collect();
        let unknown: Vec<JobId> = jobs.difference(&read_set.facts).copied().collect();
        if !unknown.is_empty() {
            self.gather(ReadRound::facts(&unknown), &mut gathering).await?;
        }
        let found = gathering.finish();
        self.queues.note(read_set, &found);
        Ok(found)
    }

    async fn commit(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        self.shared
            .partitions
            .ensure(
                PartitionedTable::History,
                write_set.history.iter().map(|row| row.finished.completed_at.as_micros()),
            )
            .await?;
        self.check_queues(write_set).await?;
        let shard = self.wire()?.shard;
        let calls = writes(write_set, shard)?;
        let frame = match self.stage {
            TransactionState::Open => TransactionFrame::Commit,
            _ if calls.is_empty() => TransactionFrame::None,
            _ => TransactionFrame::BeginAndCommit,
        };
        self.stage = TransactionState::Open;
        let written = self.wire()?.run(frame, calls).await;
        if matches!(&written, Err(fault) if fault.is_conflict()) {
            // A partition may have been dropped.
            self.shared.partitions.forget();
        }
        written?;
        self.stage = TransactionState::Idle;
        let queued = write_set.live_inserted.iter().chain(&write_set.live_updated);
        let queued = queued.filter(|row| row.live.state == LiveState::Queued);
        self.shared.cursors.queued(queued.map(|row| (row.lane, row.live.rank)));
        Ok(())
    }

    async fn abandon(&mut self) {
        if self.stage == TransactionState::Open
            && let Some(wire) = &self.wire
            && (wire.is_closed() || wire.roll_back().await.is_err())
        {
            self.wire = None;
        }
        self.stage = TransactionState::Idle;
        self.queues = QueueCheck::default();
    }
}
