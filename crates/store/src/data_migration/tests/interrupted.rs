//! Copies that are interrupted at any point, and continue.

use super::{WalkedStore, address, migrated};
use crate::data_migration::copy::DataMigration;
use crate::data_migration::{
    Cell, Cells, CopyProgress, CopyStage, CopyStart, DataMigrationError, Forked, Layout, Migrated,
    MigrationSide, Notes, Portion, StoreAddress, StoreRole,
};
use crate::fault::Fault;
use crate::sqlite::SqliteStore;
use crate::sqlite::tests::open;
use crate::{mysql, postgres};
use async_trait::async_trait;
use punctual_core::limits::MOVING_LEAVE_MAX;
use punctual_core::time::Timestamp;
use std::sync::Arc;

/// Rows per page, so that tables have several pages.
const PAGE_ROWS: usize = 7;

/// A side with small pages, whose connection breaks at the n-th write.
struct Breaking {
    side: Box<dyn MigrationSide>,
    /// Writes before the connection breaks.
    writes: usize,
    /// Whether the reply is lost: the rows are written.
    is_answer: bool,
}

impl Breaking {
    /// Counts a write. Returns whether to execute it.
    fn next(&mut self) -> Result<bool, Fault> {
        match self.writes.checked_sub(1) {
            Some(left) => {
                self.writes = left;
                Ok(true)
            }
            None if self.is_answer => Ok(false),
            None => Err(Fault::Away("the connection broke".to_owned())),
        }
    }

    fn answer(&self, is_whole: bool) -> Result<(), Fault> {
        if is_whole { Ok(()) } else { Err(Fault::Away("the answer was lost".to_owned())) }
    }
}

#[async_trait]
impl MigrationSide for Breaking {
    async fn identity(&mut self) -> Result<String, Fault> {
        self.side.identity().await
    }
    async fn users(&mut self) -> Result<Option<String>, Fault> {
        self.side.users().await
    }
    async fn count(&mut self, table: &'static Layout) -> Result<u64, Fault> {
        self.side.count(table).await
    }
    async fn page(
        &mut self,
        table: &'static Layout,
        after: Option<&[Cell<'_>]>,
    ) -> Result<Vec<Cells>, Fault> {
        let mut rows = self.side.page(table, after).await?;
        rows.truncate(PAGE_ROWS);
        Ok(rows)
    }
    async fn notes(&mut self) -> Result<Notes, Fault> {
        self.side.notes().await
    }
    async fn note(&mut self, name: &str, value: &str) -> Result<(), Fault> {
        let is_whole = self.next()?;
        self.side.note(name, value).await?;
        self.answer(is_whole)
    }
    async fn empty(&mut self, about_tables: &str) -> Result<(), Fault> {
        let is_whole = self.next()?;
        self.side.empty(about_tables).await?;
        self.answer(is_whole)
    }
    async fn put(&mut self, portion: Portion<'_>) -> Result<(), Fault> {
        let is_whole = self.next()?;
        self.side.put(portion).await?;
        self.answer(is_whole)
    }
    async fn settle(&mut self) -> Result<(), Fault> {
        let is_whole = self.next()?;
        self.side.settle().await?;
        self.answer(is_whole)
    }
    async fn release(&mut self) -> Result<(), Fault> {
        let is_whole = self.next()?;
        self.side.release().await?;
        self.answer(is_whole)
    }
    async fn fork(&mut self, now: Timestamp) -> Result<Forked, Fault> {
        self.side.fork(now).await
    }
}

/// A migration that breaks after this many writes.
async fn try_move(
    from: &StoreAddress,
    to: &StoreAddress,
    writes: usize,
    is_answer: bool,
) -> Result<Migrated, DataMigrationError> {
    let source = Breaking { side: from.open(StoreRole::Source).await?, writes: 0, is_answer: false };
    let target = Breaking { side: to.open(StoreRole::Target).await?, writes, is_answer };
    DataMigration {
        source: Box::new(source),
        target: Box::new(target),
        report_progress: &mut |_| (),
        leave_max: MOVING_LEAVE_MAX,
    }
    .run()
    .await
}

/// Repeats the migration until it is complete. Returns how often it broke.
async fn persist(from: &StoreAddress, to: &StoreAddress, writes: usize) -> (Migrated, usize) {
    for broke in 0..1_000 {
        match try_move(from, to, writes, broke % 2 == 0).await {
            Ok(moved) => return (moved, broke),
            Err(DataMigrationError::Store { end: StoreRole::Target, .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    panic!("it never ends");
}

#[tokio::test]
async fn a_migration_that_breaks_at_any_write_continues_with_the_next_try() {
    let walked = WalkedStore::new(2, 150).await;
    let whole = tempfile::tempdir().unwrap();
    let expected = migrated(&walked.address(), &address(whole.path())).await.unwrap();
    // The start takes fewer writes than these; it is tested separately below.
    for writes in [6, 7, 11, 23] {
        let dir = tempfile::tempdir().unwrap();
        let (moved, broke) = persist(&walked.address(), &address(dir.path()), writes).await;
        assert_eq!(moved.tables, expected.tables, "{writes}");
        assert!(broke > 0 && moved.beginning == CopyStart::Resumed, "{writes}: broke {broke} times");
    }
    for writes in 0..6 {
        for is_answer in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            try_move(&walked.address(), &address(dir.path()), writes, is_answer).await.unwrap_err();
            let moved = migrated(&walked.address(), &address(dir.path())).await.unwrap();
            assert_eq!(moved.tables, expected.tables, "{writes}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_to_postgres_that_breaks_continues() {
    let walked = &WalkedStore::new(3, 120).await;
    postgres::tests::database::TestDatabase::with(async |options| {
        let options = postgres::PostgresOptions { partition_width: crate::conformance::PORTION, ..options };
        breaks_and_continues(walked, &StoreAddress::Postgres(options)).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_to_mysql_that_breaks_continues() {
    let walked = &WalkedStore::new(4, 120).await;
    mysql::tests::database::TestDatabase::with(async |options| {
        breaks_and_continues(walked, &StoreAddress::MySql(options)).await;
    })
    .await;
}

async fn breaks_and_continues(walked: &WalkedStore, to: &StoreAddress) {
    let (there, broke) = persist(&walked.address(), to, 9).await;
    assert!(broke > 1 && there.beginning == CopyStart::Resumed, "{there:?}");
    // And back from it with small pages.
    let dir = tempfile::tempdir().unwrap();
    let (back, _) = persist(to, &address(dir.path()), 30).await;
    assert_eq!(back.tables, there.tables);
}

#[tokio::test]
async fn a_source_that_was_used_meanwhile_is_copied_again() {
    let walked = WalkedStore::new(5, 100).await;
    let dir = tempfile::tempdir().unwrap();
    try_move(&walked.address(), &address(dir.path()), 12, false).await.unwrap_err();
    let store: Arc<SqliteStore> = Arc::new(open(walked.dir.path()));
    submit_one(&store, &walked).await;
    drop(store);
    let moved = migrated(&walked.address(), &address(dir.path())).await.unwrap();
    assert_eq!(moved.beginning, CopyStart::Restarted);
}

async fn submit_one(store: &SqliteStore, walked: &WalkedStore) {
    use punctual_core::ports::{NewJob, Store};
    let job = crate::sqlite::tests::job(1_000_000);
    store.submit(walked.now, vec![NewJob { job, reservation: None }]).await.unwrap();
}

#[tokio::test]
async fn a_difference_is_found_and_the_next_try_copies_everything_again() {
    let walked = WalkedStore::new(6, 100).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let mut is_changed = false;
    let mut report_progress = |progress: CopyProgress| {
        if progress.stage == CopyStage::Verifying && !std::mem::replace(&mut is_changed, true) {
            super::change(&path, "UPDATE jobs SET payload = '2' WHERE id = (SELECT min(id) FROM jobs)");
        }
    };
    let error =
        crate::data_migration::migrate_data(&walked.address(), &address(dir.path()), &mut report_progress)
            .await
            .unwrap_err();
    let DataMigrationError::Differ(tables) = &error else { panic!("{error}") };
    assert!(
        matches!(tables.as_slice(), [one] if one.starts_with("jobs (the contents of its ")),
        "{tables:?}"
    );
    assert!(error.to_string().contains("repeat the command"), "{error}");
    let moved = migrated(&walked.address(), &address(dir.path())).await.unwrap();
    assert_eq!(moved.beginning, CopyStart::Restarted);
}

#[tokio::test]
async fn a_complete_copy_whose_last_answer_was_lost_is_recognised_until_it_is_used() {
    let walked = WalkedStore::new(10, 60).await;
    let dir = tempfile::tempdir().unwrap();
    let expected = migrated(&walked.address(), &address(dir.path())).await.unwrap();
    // A user who did not get the reply repeats the command.
    let again = migrated(&walked.address(), &address(dir.path())).await.unwrap();
    assert_eq!((again.beginning, &again.tables), (CopyStart::Resumed, &expected.tables));
    let store = Arc::new(open(dir.path()));
    submit_one(&store, &walked).await;
    drop(store);
    let error = migrated(&walked.address(), &address(dir.path())).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::TargetServed { .. }), "{error}");
    // A change that leaves all row counts the same is found as well, and the store can still be opened.
    let dir = tempfile::tempdir().unwrap();
    migrated(&walked.address(), &address(dir.path())).await.unwrap();
    super::change(dir.path(), "UPDATE jobs SET payload = '2' WHERE id = (SELECT min(id) FROM jobs)");
    let error = migrated(&walked.address(), &address(dir.path())).await.unwrap_err();
    assert!(matches!(error, DataMigrationError::TargetServed { .. }), "{error}");
    drop(open(dir.path()));
}
