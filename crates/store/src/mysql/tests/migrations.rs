//! A database is migrated once, by the first process, and never back.

use super::database::TestDatabase;
use super::database::{query, run};
use crate::inventory::NO_TABLES;
use crate::mysql::migrate::{self, MigrateError, VERSION, prepare, status, up, verify};
use crate::mysql::{MySqlOptions, create_database, drop_database};
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::panic::{AssertUnwindSafe, resume_unwind};

/// Runs a test in a database without tables.
async fn with_empty<F: Future<Output = ()>>(name: &str, test: impl Fn(MySqlOptions) -> F) {
    TestDatabase::with(async |options| {
        let name = format!("punctual_empty_{name}_{}", std::process::id());
        create_database(&options, &name).await.unwrap();
        let (server, _) = options.url.rsplit_once('/').unwrap();
        let empty = MySqlOptions { url: format!("{server}/{name}"), ..options.clone() };
        let outcome = AssertUnwindSafe(test(empty)).catch_unwind().await;
        drop_database(&options, &name).await.unwrap();
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_are_applied_once_and_reported() {
    with_empty("once", async |options| {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_together_take_turns() {
    with_empty("together", async |options| {
        let applied = join_all((0..4).map(|_| up(&options))).await;
        let applied: Vec<String> = applied.into_iter().flat_map(Result::unwrap).collect();
        assert_eq!(applied.len(), VERSION, "each step was applied by one of them");
        assert_eq!(
            query::<i64>(&options, "SELECT COUNT(*) FROM punctual WHERE LENGTH(cluster) = 16").await,
            [1]
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_database_is_rejected_and_an_older_one_is_not_changed() {
    with_empty("newer", async |options| {
        up(&options).await.unwrap();
        run(
            &options,
            "INSERT INTO migrations (version, name, sha256, applied_at) VALUES (99, '0099_later', '', 0)",
        )
        .await;
        let refused = MigrateError::Newer { found: 99, known: VERSION };
        assert_eq!(up(&options).await, Err(refused.clone()));
        assert_eq!(verify(&options).await, Err(refused.clone()));
        assert_eq!(prepare(&options).await, Err(refused.clone()));
        assert!(refused.to_string().contains("run the newer binary"), "{refused}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_step_is_run_again_from_its_start() {
    with_empty("again", async |options| {
        up(&options).await.unwrap();
        let clusters = "SELECT HEX(cluster) FROM punctual";
        let cluster: Vec<String> = query(&options, clusters).await;
        run(&options, "UPDATE numbers SET given = 7 WHERE name = 'lane'").await;
        run(&options, "DELETE FROM migrations").await;
        run(&options, "DROP TABLE log_lines").await;
        assert_eq!(up(&options).await.unwrap().len(), VERSION);
        assert_eq!(query::<String>(&options, clusters).await, cluster);
        assert_eq!(query::<i64>(&options, "SELECT given FROM numbers WHERE name = 'lane'").await, [7]);
        assert_eq!(query::<i64>(&options, "SELECT COUNT(*) FROM log_lines").await, [0]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_steps_are_reported() {
    with_empty("verify", async |options| {
        up(&options).await.unwrap();
        run(&options, "UPDATE migrations SET sha256 = 'changed'").await;
        run(&options, "ALTER TABLE job_tags CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
            .await;
        let problems = verify(&options).await.unwrap();
        assert_eq!(problems.len(), VERSION + 1, "{problems:?}");
        assert!(problems[0].starts_with(migrate::STEPS[0].name), "{problems:?}");
        assert!(problems[VERSION].contains("job_tags"), "{problems:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manual_changes_of_tables_are_reported() {
    with_empty("changed", async |options| {
        assert_eq!(verify(&options).await.unwrap(), [NO_TABLES]);
        up(&options).await.unwrap();
        for change in [
            "DROP INDEX live_claim ON live",
            "DROP TABLE dead_letters",
            "ALTER TABLE jobs ADD foo INT",
            "ALTER TABLE lanes MODIFY queue VARCHAR(200) CHARACTER SET latin1 COLLATE latin1_bin",
            "ALTER TABLE skipped ENGINE = MyISAM",
            "CREATE INDEX jobs_of_mine ON jobs (lane)",
        ] {
            run(&options, change).await;
        }
        let problems = verify(&options).await.unwrap();
        assert_eq!(
            problems[..4],
            [
                "the table dead_letters is missing",
                "the column jobs.foo is not part of the schema",
                "the column lanes.queue holds varchar, not varchar not null",
                "the index live_claim of live is missing",
            ]
        );
        assert!(problems[4].starts_with("the table skipped uses MyISAM"), "{problems:?}");
        assert_eq!(problems.len(), 5, "{problems:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_fails_is_not_counted() {
    with_empty("fails", async |options| {
        let mut steps = migrate::STEPS.to_vec();
        steps.push(migrate::MigrationStep { name: "broken", sql: "SELECT no_such_column;\n" });
        let target = options.target().unwrap();
        assert!(migrate::apply(&target, &steps).await.is_err());
        assert_eq!(status(&options).await.unwrap().version, VERSION);
        assert_eq!(migrate::apply(&target, migrate::STEPS).await, Ok(vec![]), "the lease was released");
    })
    .await;
}
