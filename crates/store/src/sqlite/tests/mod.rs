//! Tests of this adapter: the conformance suite, and what only SQLite can be asked.

mod budget;
mod conformance;
mod files;
mod outages;
mod plans;

use crate::sqlite::{SqliteOptions, SqliteStore};
use punctual_core::ports::{Clock, Task};
use punctual_core::time::{Monotonic, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000)
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(0)
    }

    fn sleep(&self, _duration: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(&SqliteOptions::new(dir), Arc::new(Still)).unwrap()
}
