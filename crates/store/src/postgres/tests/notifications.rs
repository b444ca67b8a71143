//! A process' notifications reach the others, and not itself.

use super::database::{TestDatabase, client};
use crate::postgres::listen::PostgresWakes;
use punctual_core::ports::{Heard, Lane, Wakes};
use std::collections::BTreeSet;

#[tokio::test]
async fn lanes_are_heard_by_others_and_a_lost_connection_is_replaced() {
    TestDatabase::with(async |options| {
        let target = options.target().unwrap();
        let (one, other) = (PostgresWakes::new(&target), PostgresWakes::new(&target));
        for wakes in [&one, &other] {
            assert_eq!(
                wakes.heard().await.unwrap(),
                Heard::Anything,
                "a new line has missed what was told before"
            );
        }
        let lanes: BTreeSet<Lane> = [Lane::new("a", "x"), Lane::new("b\"", "y")].into();
        one.tell(lanes.clone()).await.unwrap();
        assert_eq!(other.heard().await.unwrap(), Heard::Queued(lanes));
        let many: BTreeSet<Lane> = (0..1_000).map(|n| Lane::new(format!("queue {n}"), "x")).collect();
        other.tell(many).await.unwrap();
        assert_eq!(
            one.heard().await.unwrap(),
            Heard::Anything,
            "its own word is left out, and the long one is short"
        );

        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        client(&options).await.query(end, &[]).await.unwrap();
        assert!(one.heard().await.is_err_and(|error| error.is_retryable()));
        assert_eq!(one.heard().await.unwrap(), Heard::Anything);
        let lanes: BTreeSet<Lane> = [Lane::new("a", "x")].into();
        if other.tell(lanes.clone()).await.is_err() {
            other.tell(lanes.clone()).await.unwrap();
        }
        assert_eq!(one.heard().await.unwrap(), Heard::Queued(lanes));
    })
    .await;
}
