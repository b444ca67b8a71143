//! A connection to an in-memory database that one test owns. It records the calls, checks their order and the
//! locks, and fails on demand.

use super::locks::Locks;
use crate::fault::Fault;
use crate::unit_of_work::simulated_server::MemoryDatabase;
use crate::unit_of_work::{LoadedRows, ReadSet, Tables, WriteSet};
use async_trait::async_trait;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct TestDatabase {
    rows: MemoryDatabase,
    /// The calls of transactions.
    pub calls: Vec<Called>,
    /// Commits that will conflict with another transaction.
    pub conflicts: usize,
    /// Calls that will find the database unavailable.
    pub outages: usize,
}

impl Deref for TestDatabase {
    type Target = MemoryDatabase;

    fn deref(&self) -> &MemoryDatabase {
        &self.rows
    }
}

impl DerefMut for TestDatabase {
    fn deref_mut(&mut self) -> &mut MemoryDatabase {
        &mut self.rows
    }
}

impl TestDatabase {
    fn meet_outage(&mut self) -> Result<(), Fault> {
        if self.outages == 0 {
            return Ok(());
        }
        self.outages -= 1;
        Err(Fault::Away("the database does not answer".to_owned()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Called {
    Begin,
    Fetch(Box<ReadSet>),
    Commit,
    Abandon,
}

#[derive(Default, Clone)]
pub(super) struct MemoryTables {
    shared: Arc<Mutex<TestDatabase>>,
    is_begun: bool,
    locks: Locks,
}

impl MemoryTables {
    pub fn database(&self) -> MutexGuard<'_, TestDatabase> {
        self.shared.lock().unwrap()
    }

    /// The calls since the last time this was called, without the read sets.
    pub fn calls(&self) -> Vec<&'static str> {
        let calls = std::mem::take(&mut self.database().calls);
        let name = |call: &Called| match call {
            Called::Begin => "begin",
            Called::Fetch(_) => "fetch",
            Called::Commit => "commit",
            Called::Abandon => "abandon",
        };
        calls.iter().map(name).collect()
    }
}

#[async_trait]
impl Tables for MemoryTables {
    async fn intern(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        assert!(!self.is_begun, "names are created outside of transactions");
        let mut database = self.database();
        database.meet_outage()?;
        Ok(database.intern(read_set))
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        assert!(!self.is_begun, "one transaction at a time");
        self.is_begun = true;
        self.locks = Locks::default();
        let mut database = self.database();
        database.calls.push(Called::Begin);
        database.meet_outage()
    }

    async fn fetch(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        assert!(self.is_begun, "rows are locked within a transaction");
        let mut database = self.database();
        database.calls.push(Called::Fetch(Box::new(read_set.clone())));
        database.meet_outage()?;
        let found = database.find_all(read_set);
        drop(database);
        self.locks.fetched(read_set, &found);
        Ok(found)
    }

    async fn commit(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        assert!(self.is_begun, "there is something to commit");
        let mut database = self.database();
        database.calls.push(Called::Commit);
        database.meet_outage()?;
        if database.conflicts > 0 {
            database.conflicts -= 1;
            return Err(Fault::Conflict("chosen to conflict".to_owned()));
        }
        self.locks.committing(write_set, &database);
        database.write(write_set)?;
        drop(database);
        self.is_begun = false;
        Ok(())
    }

    async fn abandon(&mut self) {
        self.is_begun = false;
        self.database().calls.push(Called::Abandon);
    }
}
