//! A process' notifications reach the others, and not itself.

use super::database::{TestDatabase, client};
use crate::postgres::listen::PostgresReadyQueue;
use punctual_core::ports::{Lane, ReadyHint, ReadyQueue, ReadyQueueError};

#[tokio::test]
async fn notifications_reach_other_processes_and_a_lost_connection_is_replaced() {
    TestDatabase::with(async |options| {
        let target = options.target().unwrap();
        let (one, other) = (PostgresReadyQueue::new(&target), PostgresReadyQueue::new(&target));
        for queue in [&one, &other] {
            assert_eq!(
                queue.receive().await.unwrap(),
                ReadyHint::AnyLane,
                "a new connection has missed earlier notifications"
            );
        }
        let lanes = ReadyHint::Lanes([Lane::new("a", "x"), Lane::new("b\"", "y")].into());
        one.publish(lanes.clone()).await.unwrap();
        assert_eq!(other.receive().await.unwrap(), lanes);
        let many = ReadyHint::Lanes((0..1_000).map(|n| Lane::new(format!("queue {n}"), "x")).collect());
        other.publish(many).await.unwrap();
        assert_eq!(
            one.receive().await.unwrap(),
            ReadyHint::AnyLane,
            "its own notification is ignored, and a long one is sent in short form"
        );

        let end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()";
        client(&options).await.query(end, &[]).await.unwrap();
        assert!(one.receive().await.is_err_and(|error| matches!(error, ReadyQueueError::Unavailable(_))));
        assert_eq!(one.receive().await.unwrap(), ReadyHint::AnyLane);
        let lanes = ReadyHint::Lanes([Lane::new("a", "x")].into());
        if other.publish(lanes.clone()).await.is_err() {
            other.publish(lanes.clone()).await.unwrap();
        }
        assert_eq!(one.receive().await.unwrap(), lanes);
    })
    .await;
}
