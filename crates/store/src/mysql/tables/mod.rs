//! Loads and writes the rows of a unit of work on one connection.

mod changed;
mod claims;
mod found;
mod wanted;

pub(crate) use changed::{DELETE_KEYS, DELETE_TAGS, FORGET_NOTES, FORGET_PARENTS, Writing};
pub(crate) use found::{read_checkpoint, read_limiter_row, read_queue};

use super::connection::Connection;
use super::galera::Relied;
use super::names::{intern, intern_workers, look_up, session_numbers, to_ask};
use super::options::{MySqlOptions, OptionsError, Target};
use crate::draft::{Changes, Connect, Found, KnownLanes, Tables, Wants};
use crate::fault::Fault;
use async_trait::async_trait;
pub(crate) use claims::LANES_WITH_WORK;
use mysql_async::Row;
use punctual_core::ports::QueueRow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wanted::{Fetching, QUEUES};
pub(crate) use wanted::{LIMITERS, STARTED};

/// Shards of counters. More than a cluster has writers, so that few of them share one.
const SHARDS: usize = 64;

/// The shard for this number. Two nodes of a cluster never share one: both would write the same row, and
/// the later one would have to restart.
pub(crate) fn shard_of(number: usize, node: Option<i64>) -> i64 {
    (number % SHARDS) as i64 + node.map_or(0, |node| node.clamp(0, NODES_MAX) * SHARDS as i64)
}

/// The maximum of nodes with separate shards, limited by the type of the shard column.
const NODES_MAX: i64 = 500;

/// Creates the writers' connections.
#[derive(Debug)]
pub(crate) struct MySqlConnect {
    target: Target,
    lanes: Arc<KnownLanes>,
    /// The first shard of this process; different in every process.
    first_shard: usize,
}

impl MySqlConnect {
    pub fn new(options: &MySqlOptions) -> Result<Self, OptionsError> {
        let first_shard = (options.seed % SHARDS as u64) as usize;
        Ok(MySqlConnect { target: options.target()?, lanes: Arc::default(), first_shard })
    }

    pub(super) async fn tables(&self, writer: usize) -> Result<MySqlTables, Fault> {
        Ok(MySqlTables {
            target: self.target.clone(),
            connection: Connection::writing(&self.target).await?,
            lanes: self.lanes.clone(),
            writer: self.first_shard + writer,
            queues: None,
            held_queues: BTreeSet::new(),
            relied: Relied::default(),
        })
    }
}

#[async_trait]
impl Connect for MySqlConnect {
    async fn connect(&self, writer: usize) -> Result<Box<dyn Tables>, Fault> {
        Ok(Box::new(self.tables(writer).await?))
    }
}

/// One connection for writes. When it is dropped its connection is closed, even in the middle of a
/// transaction.
#[derive(Debug)]
pub(crate) struct MySqlTables {
    target: Target,
    connection: Connection,
    lanes: Arc<KnownLanes>,
    /// Determines its shard of the counters.
    writer: usize,
    /// The settings of queues as this transaction read them.
    queues: Option<BTreeMap<String, QueueRow>>,
    /// The queues whose rows were locked at that time.
    held_queues: BTreeSet<String>,
    /// The rows that this transaction has locked, on a node of a cluster.
    relied: Relied,
}

impl MySqlTables {
    /// A connection without an open transaction.
    async fn at_rest(&mut self) -> Result<(), Fault> {
        if self.connection.is_broken() {
            self.connection = Connection::writing(&self.target).await?;
        }
        self.queues = None;
        self.held_queues.clear();
        self.relied = Relied::default();
        Ok(())
    }

    /// Whether the settings that this transaction has read are still valid, now that they are locked.
    async fn check_queues(&mut self, changes: &Changes) -> Result<(), Fault> {
        if changes.queues_deleted.is_empty()
            && changes.queues_put.iter().all(|row| self.held_queues.contains(&row.queue))
        {
            return Ok(());
        }
        self.connection.run(TAKE_QUEUES, vec![]).await?;
        let now = queues_by_name(&self.connection.all(QUEUES, vec![]).await?)?;
        let mut named = changes.queues_put.iter().map(|row| &row.queue).chain(&changes.queues_deleted);
        match &self.queues {
            Some(read) if named.any(|queue| read.get(queue) != now.get(queue)) => {
                Err(Fault::Conflict("what is set for a queue was changed by another transaction".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// From here on no other transaction changes queue settings. The row is written, because nodes of a cluster
/// do not see each other's locks but detect that both have written.
const TAKE_QUEUES: &str = "UPDATE numbers SET given = given + 1 WHERE name = 'queue'";

fn queues_by_name(rows: &[Row]) -> Result<BTreeMap<String, QueueRow>, Fault> {
    rows.iter().map(|row| read_queue(row).map(|row| (row.queue.clone(), row))).collect()
}

#[async_trait]
impl Tables for MySqlTables {
    async fn intern(&mut self, wants: &Wants) -> Result<Found, Fault> {
        self.at_rest().await?;
        let mut found = Found::default();
        if !wants.lanes.is_empty() {
            found.lanes = intern(&self.lanes, &mut self.connection, &wants.lanes).await?;
        }
        let (named, unknown) = self.lanes.known(&wants.lane_numbers);
        found.lanes.extend(named);
        if !unknown.is_empty() {
            found.lanes.extend(look_up(&self.lanes, &mut self.connection, unknown).await?);
        }
        if wants.lanes_to_ask {
            found.lanes_to_ask = to_ask(&self.lanes, &mut self.connection).await?;
        }
        if !wants.workers.is_empty() {
            found.workers = intern_workers(&mut self.connection, &wants.workers).await?;
        }
        if wants.new_sessions > 0 {
            found.new_sessions = session_numbers(&mut self.connection, wants.new_sessions).await?;
        }
        // A read alone has opened a transaction, too.
        self.connection.commit().await?;
        Ok(found)
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        self.at_rest().await?;
        self.connection.begin().await
    }

    async fn fetch(&mut self, wants: &Wants) -> Result<Found, Fault> {
        let found = Fetching::run(&mut self.connection, &self.lanes, wants).await?;
        if self.connection.node().is_some() {
            self.relied.note(wants, &found);
        }
        if wants.queues {
            self.queues = Some(found.queues.iter().map(|row| (row.queue.clone(), row.clone())).collect());
            let is_there = |queue: &&String| found.queues.iter().any(|row| row.queue == **queue);
            self.held_queues = wants.limited_queues.iter().filter(is_there).cloned().collect();
        }
        Ok(found)
    }

    async fn commit(&mut self, changes: &Changes) -> Result<(), Fault> {
        let node = self.connection.node();
        if node.is_some() && *changes == Changes::default() {
            // The transaction has only read, so the rows written to mark its locks are not needed.
            self.connection.roll_back().await;
            return Ok(());
        }
        self.check_queues(changes).await?;
        let relied = std::mem::take(&mut self.relied);
        let touches = if node.is_some() { relied.touches(changes) } else { vec![] };
        for statement in touches.into_iter().chain(Writing::of(changes, shard_of(self.writer, node))?) {
            self.connection.run(&statement.sql, statement.values).await?;
        }
        self.connection.commit().await
    }

    async fn abandon(&mut self) {
        self.connection.roll_back().await;
    }
}

#[cfg(test)]
pub(crate) mod statements {
    //! Exports for the tests of query plans.
    pub(crate) use super::changed::statements::*;
    pub(crate) use super::claims::{CLAIM, LANES_OF_QUEUE, end_of_lane, head_of_lane, lock_in_lane};
    pub(crate) use super::wanted::*;
}
