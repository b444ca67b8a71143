//! One test per conformance case and adapter, and tests that apply to only one adapter.

mod ensemble;
mod etcd;
mod hosts;
mod private;
mod redis;
mod secured;
mod services;
mod store;
mod strange;
mod zookeeper;

mod server {
    //! The servers that are provided for the tests.

    use crate::CoordinationOptions;
    use punctual_core::ports::Coordination;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    pub use whatever::{door, eventually, takes_part};

    pub fn adapter(options: &CoordinationOptions) -> Arc<dyn Coordination> {
        match options {
            CoordinationOptions::Etcd(options) => Arc::new(crate::EtcdCoordination::new(options).unwrap()),
            CoordinationOptions::Redis(options) => Arc::new(crate::RedisCoordination::new(options).unwrap()),
            CoordinationOptions::ZooKeeper(options) => Arc::new(crate::ZooKeeperCoordination::new(options)),
            other => panic!("{other} has no server"),
        }
    }

    /// The URL of a server; panics with instructions if it is not set.
    pub fn url(variable: &str) -> String {
        std::env::var(variable).unwrap_or_else(|_| {
            panic!("{variable} is not set: run `cargo xtask test`, which starts servers for the tests")
        })
    }

    /// A prefix that no other cluster uses.
    pub fn prefix() -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
    }

    mod whatever {
        //! Helpers that apply to all services.

        use super::adapter;
        use punctual_core::ports::{
            Coordination, CoordinationError, Joining, LeaseName, MemberId, Standing, Take,
        };
        use std::sync::Arc;
        use std::time::{Duration, Instant};

        const PATIENCE: Duration = Duration::from_secs(60);
        const LOOK_EVERY: Duration = Duration::from_millis(20);

        pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
            let start = Instant::now();
            while !condition().await {
                assert!(start.elapsed() < PATIENCE, "never came true: {what}");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }

        pub fn door(url: &str) -> Arc<dyn Coordination> {
            adapter(&url.parse().unwrap())
        }

        /// Performs once the calls that a node makes all the time.
        pub async fn takes_part(url: &str) -> Result<(), CoordinationError> {
            let (door, member) = (door(url), MemberId::new("member").unwrap());
            let joining =
                Joining { member: member.clone(), card: "hers".to_owned(), ttl: Duration::from_secs(3) };
            assert_eq!(door.join(joining).await?, Standing::Alive);
            let taken = door.take(&member, vec![LeaseName::Leader]).await?;
            assert!(matches!(taken[0], Take::Held(_)), "{taken:?}");
            assert_eq!(door.beat(&member, "ours".to_owned()).await?, Standing::Alive);
            let seen = door.look().await?;
            assert_eq!((seen.members[0].card.as_str(), seen.held.len()), ("ours", 1));
            assert_eq!(door.release(&member, vec![seen.held[0].0]).await?, [true]);
            door.leave(&member).await
        }
    }
}
