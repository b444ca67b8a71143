//! Loads and writes the rows of a unit of work on one connection.

mod claims;
mod read_set;
mod write_set;

pub(crate) use write_set::{queued_lane, sharing, statement, statements};

use super::connection::Connection;
use super::galera::Relied;
use super::names::{intern_workers, session_numbers};
use super::options::{MySqlOptions, OptionsError, Target};
use crate::fault::Fault;
use crate::server::loaded::read_queue;
use crate::server::names::{intern, look_up, to_ask};
use crate::server::queue_check::QueueCheck;
use crate::unit_of_work::{Connect, LaneCache, LoadedRows, ReadSet, Tables, WriteSet};
use async_trait::async_trait;
pub(crate) use claims::LANES_WITH_WORK;
use read_set::{Fetching, QUEUES};
pub(crate) use read_set::{LIMITERS, STARTED};
use std::sync::Arc;

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
    lanes: Arc<LaneCache>,
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
            queues: QueueCheck::default(),
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
    lanes: Arc<LaneCache>,
    /// Determines its shard of the counters.
    writer: usize,
    queues: QueueCheck,
    /// The rows that this transaction has locked, on a node of a cluster.
    relied: Relied,
}

impl MySqlTables {
    /// A connection without an open transaction.
    async fn idle_connection(&mut self) -> Result<(), Fault> {
        if self.connection.is_broken() {
            self.connection = Connection::writing(&self.target).await?;
        }
        self.queues = QueueCheck::default();
        self.relied = Relied::default();
        Ok(())
    }

    /// Whether the settings that this transaction has read are still valid, now that they are locked.
    async fn check_queues(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        if self.queues.is_unneeded(write_set) {
            return Ok(());
        }
        self.connection.run(TAKE_QUEUES, vec![]).await?;
        let rows = self.connection.all(QUEUES, vec![]).await?;
        self.queues.check(write_set, rows.iter().map(read_queue).collect::<Result<_, _>>()?)
    }
}

/// From here on no other transaction changes queue settings. The row is written, because nodes of a cluster
/// do not see each other's locks but detect that both have written.
const TAKE_QUEUES: &str = "UPDATE numbers SET given = given + 1 WHERE name = 'queue'";

#[async_trait]
impl Tables for MySqlTables {
    async fn intern(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        self.idle_connection().await?;
        let mut found = LoadedRows::default();
        if !read_set.lanes.is_empty() {
            found.lanes = intern(&self.lanes, &mut self.connection, &read_set.lanes).await?;
        }
        let (named, unknown) = self.lanes.known(&read_set.lane_numbers);
        found.lanes.extend(named);
        if !unknown.is_empty() {
            found.lanes.extend(look_up(&self.lanes, &mut self.connection, unknown).await?);
        }
        if read_set.lanes_to_ask {
            found.lanes_to_ask = to_ask(&self.lanes, &mut self.connection).await?;
        }
        if !read_set.workers.is_empty() {
            found.workers = intern_workers(&mut self.connection, &read_set.workers).await?;
        }
        if read_set.new_sessions > 0 {
            found.new_sessions = session_numbers(&mut self.connection, read_set.new_sessions).await?;
        }
        // A read alone has opened a transaction, too.
        self.connection.commit().await?;
        Ok(found)
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        self.idle_connection().await?;
        self.connection.begin().await
    }

    async fn fetch(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        let found = Fetching::run(&mut self.connection, &self.lanes, read_set).await?;
        if self.connection.node().is_some() {
            self.relied.note(read_set, &found);
        }
        self.queues.note(read_set, &found);
        Ok(found)
    }

    async fn commit(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        let node = self.connection.node();
        if node.is_some() && *write_set == WriteSet::default() {
            // The transaction has only read, so the rows written to mark its locks are not needed.
            self.connection.roll_back().await;
            return Ok(());
        }
        self.check_queues(write_set).await?;
        let relied = std::mem::take(&mut self.relied);
        let touches = if node.is_some() { relied.touches(write_set) } else { vec![] };
        for statement in touches.into_iter().chain(write_set::writes(write_set, shard_of(self.writer, node))?)
        {
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
    pub(crate) use super::claims::{CLAIM, LANES_OF_QUEUE, end_of_lane, head_of_lane, lock_in_lane};
    pub(crate) use super::read_set::*;
    pub(crate) use super::write_set::LEASE_ALIKE;
}
