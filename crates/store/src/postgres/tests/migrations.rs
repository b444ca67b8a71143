//! A database is migrated once, by the first process, and never back.

use super::database::{TestDatabase, client};
use crate::inventory::NO_TABLES;
use crate::postgres::migrate::{self, MigrateError, VERSION, prepare, status, up, verify};
use crate::postgres::{PostgresOptions, create_database, drop_database};
use futures_util::future::join_all;

async fn empty(options: &PostgresOptions) {
    client(options).await.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
}

#[tokio::test]
async fn steps_are_applied_once_and_reported() {
    TestDatabase::with(async |options| {
        empty(&options).await;
        let before = status(&options).await.unwrap();
        assert_eq!((before.version, before.version_known, before.applied.len()), (0, VERSION, 0));
        assert_eq!(before.pending.len(), VERSION);
        assert_eq!(up(&options).await.unwrap(), before.pending);
        assert_eq!(up(&options).await.unwrap(), Vec::<String>::new());
        let after = status(&options).await.unwrap();
        assert_eq!((after.version, after.applied, after.pending.len()), (VERSION, before.pending, 0));
        assert_eq!(verify(&options).await.unwrap(), Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn nodes_that_start_together_take_turns() {
    TestDatabase::with(async |options| {
        empty(&options).await;
        let applied = join_all((0..4).map(|_| up(&options))).await;
        let applied: Vec<String> = applied.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(applied.len(), VERSION, "each step was applied by one of them");
        let client = client(&options).await;
        let clusters =
            client.query_one("SELECT count(*), min(schema_version) FROM punctual", &[]).await.unwrap();
        assert_eq!((clusters.get::<_, i64>(0), clusters.get::<_, i32>(1) as usize), (1, VERSION));
    })
    .await;
}

#[tokio::test]
async fn a_newer_database_is_rejected() {
    TestDatabase::with(async |options| {
        let newer = "UPDATE punctual SET schema_version = 99; \
             INSERT INTO migrations (version, name, sha256, applied_at) VALUES (99, '0099_later', '', 0)";
        client(&options).await.batch_execute(newer).await.unwrap();
        let refused = MigrateError::Newer { found: 99, known: VERSION };
        assert_eq!(up(&options).await, Err(refused.clone()));
        assert_eq!(verify(&options).await, Err(refused.clone()));
        assert_eq!(prepare(&options.target().unwrap()).await, Err(refused.clone()));
        assert!(refused.to_string().contains("run the newer binary"), "{refused}");
    })
    .await;
}

#[tokio::test]
async fn a_step_that_differs_is_reported() {
    TestDatabase::with(async |options| {
        client(&options).await.batch_execute("UPDATE migrations SET sha256 = 'changed'").await.unwrap();
        let problems = verify(&options).await.unwrap();
        assert_eq!(problems.len(), VERSION);
        assert!(problems[0].starts_with(migrate::STEPS[0].name), "{problems:?}");
    })
    .await;
}

#[tokio::test]
async fn manual_changes_of_tables_are_reported() {
    TestDatabase::with(async |options| {
        let client = client(&options).await;
        let changed = "DROP INDEX live_claim; DROP TABLE dead_letters; ALTER TABLE jobs ADD foo int; \
             ALTER TABLE live ALTER rank TYPE text; CREATE INDEX jobs_of_mine ON jobs (lane); CREATE TABLE mine (id int)";
        client.batch_execute(changed).await.unwrap();
        let problems = [
            "the table dead_letters is missing",
            "the column jobs.foo is not part of the schema",
            "the column live.rank holds text not null, not bigint not null",
            "the index live_claim of live is missing",
        ];
        assert_eq!(verify(&options).await.unwrap(), problems);
        let left: i64 = client.query_one("SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()", &[]).await.unwrap().get(0);
        assert_eq!(left, 0, "the tables created for the comparison are gone");
        client.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
        assert_eq!(verify(&options).await.unwrap(), [NO_TABLES]);
    })
    .await;
}

#[tokio::test]
async fn a_step_that_fails_leaves_nothing_behind() {
    TestDatabase::with(async |options| {
        let client = client(&options).await;
        let mut steps = migrate::STEPS.to_vec();
        steps.push(migrate::MigrationStep {
            name: "broken",
            sql: "CREATE TABLE half (id integer); SELECT no_such_column",
        });
        assert!(migrate::apply(&client, &steps).await.is_err());
        let half = client.query_one("SELECT to_regclass('half') IS NULL", &[]).await.unwrap();
        assert!(half.get::<_, bool>(0), "the table exists");
        assert_eq!(status(&options).await.unwrap().version, VERSION);
    })
    .await;
}

#[tokio::test]
async fn positions_continue_in_a_database_from_another_server() {
    TestDatabase::with(async |options| {
        let client = client(&options).await;
        let maintenance = super::dialect::maintenance(&options);
        let base = "SELECT place_base FROM punctual";
        maintenance.open().await.unwrap();
        assert_eq!(client.query_one(base, &[]).await.unwrap().get::<_, i64>(0), 0);
        let far = 5_000_000_000_000_i64;
        client.execute("UPDATE history_bounds SET given = $1", &[&(far << 20)]).await.unwrap();
        maintenance.open().await.unwrap();
        maintenance.open().await.unwrap();
        let next = "SELECT pg_current_xact_id()::text::bigint + place_base FROM punctual";
        let next: i64 = client.query_one(next, &[]).await.unwrap().get(0);
        assert!(next > far && next < far + 1_000_000, "{next}");
    })
    .await;
}

#[tokio::test]
async fn another_database_is_created_and_dropped() {
    TestDatabase::with(async |options| {
        let client = client(&options).await;
        let own: String = client.query_one("SELECT current_database()::text", &[]).await.unwrap().get(0);
        let beside = format!("{own}_beside");
        let sql = "SELECT 1 FROM pg_database WHERE datname = $1";
        create_database(&options, &beside).await.unwrap();
        assert!(client.query_opt(sql, &[&beside]).await.unwrap().is_some());
        drop_database(&options, &beside).await.unwrap();
        drop_database(&options, &beside).await.unwrap();
        assert!(client.query_opt(sql, &[&beside]).await.unwrap().is_none());
        for wrong in ["", "a\"; DROP TABLE jobs; --", own.as_str()] {
            assert!(drop_database(&options, wrong).await.is_err(), "{wrong}");
        }
    })
    .await;
}
