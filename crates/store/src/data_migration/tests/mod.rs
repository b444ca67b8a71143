//! Migrations between all databases: what arrives, what is rejected, and what happens to interrupted ones.

mod forked;
mod interrupted;
mod refused;
mod round_trip;

use super::{DataMigrationError, Migrated, StoreAddress, migrate_data};
use crate::conformance::{Pair, walk_partly};
use crate::sqlite::tests::open;
use punctual_core::ids::JobId;
use punctual_core::ports::Store;
use punctual_core::time::Timestamp;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// An embedded store after a random walk, with executions that happen to be open, running, dead or noted.
struct WalkedStore {
    dir: TempDir,
    now: Timestamp,
    jobs: Vec<JobId>,
}

impl WalkedStore {
    async fn new(seed: u64, steps: usize) -> Self {
        let (dir, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pair = Pair { one: Arc::new(open(dir.path())), other: Arc::new(open(beside.path())) };
        let (now, jobs) = walk_partly(pair, seed, steps).await;
        WalkedStore { dir, now, jobs }
    }

    fn address(&self) -> StoreAddress {
        address(self.dir.path())
    }

    /// The state after every migration: sessions are lost.
    fn lose_sessions(&self) {
        change(self.dir.path(), "UPDATE sessions SET lost = 1");
    }

    async fn seen_in(&self, store: &dyn Store) -> String {
        crate::conformance::all_of(store, self.now, &self.jobs).await
    }
}

fn address(dir: &Path) -> StoreAddress {
    StoreAddress::Sqlite(dir.to_owned())
}

async fn migrated(from: &StoreAddress, to: &StoreAddress) -> Result<Migrated, DataMigrationError> {
    migrate_data(from, to, &mut |_| ()).await
}

/// Changes the main file directly.
fn change(dir: &Path, sql: &str) {
    Connection::open(dir.join("punctual.db")).unwrap().execute_batch(sql).unwrap();
}
