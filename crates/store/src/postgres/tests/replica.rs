//! A primary with a real standby: which of the two is used for writes, and that lists of both are equally
//! good.

use super::waiting::eventually;
use crate::postgres::{OpenError, PostgresOptions, PostgresStore, create_database, drop_database};
use crate::sqlite::tests::job;
use punctual_core::ports::{JobQuery, NewJob, Store, StoreError};
use punctual_core::time::Timestamp;

/// Names both servers in one URL, the primary first, of a user who may create databases.
const SERVERS: &str = "PUNCTUAL_TEST_REPLICA";

/// A database on both servers: the URL of each.
struct Pair {
    primary: String,
    standby: String,
    both_ways: [String; 2],
}

impl Pair {
    /// Runs a test on an empty database, which is dropped afterwards.
    async fn with(name: &str, test: impl AsyncFnOnce(&Pair)) {
        let servers = std::env::var(SERVERS).unwrap_or_else(|_| {
            panic!("{SERVERS} is not set: run `cargo xtask test --full`, which starts clusters for the tests")
        });
        let options = PostgresOptions::new(&servers);
        drop_database(&options, name).await.unwrap();
        create_database(&options, name).await.unwrap();
        let hosts = servers.split(['@', '/']).nth(3).expect("hosts");
        let (primary, standby) = hosts.split_once(',').expect("two hosts");
        let base = &servers[..servers.rfind('/').expect("a URL with a database")];
        let at = |host: &str| format!("{}/{name}", base.replacen(hosts, host, 1));
        let both_ways = [at(hosts), at(&format!("{standby},{primary}"))];
        test(&Pair { primary: at(primary), standby: at(standby), both_ways }).await;
        drop_database(&options, name).await.unwrap();
    }
}

fn now() -> Timestamp {
    Timestamp::from_micros(1_763_195_500_000_000)
}

#[tokio::test]
async fn the_primary_is_found_in_any_position_and_a_standby_is_never_used() {
    Pair::with("replica_hosts", async |pair| {
        for (number, url) in (1..).zip(&pair.both_ways) {
            let store = PostgresStore::open(&PostgresOptions::new(url)).await.unwrap();
            store.submit(now(), vec![NewJob { job: job(number), reservation: None }]).await.unwrap();
            assert!(store.job(job(number).id).await.unwrap().is_some());
        }
        let error = PostgresStore::open(&PostgresOptions::new(&pair.standby)).await.map(drop).unwrap_err();
        let OpenError::Database { source: StoreError::Unavailable(reason), .. } = error else {
            panic!("{error:?}")
        };
        assert!(reason.ends_with("give the address of the primary"), "{reason}");
    })
    .await;
}

#[tokio::test]
async fn a_standby_lists_the_rows_of_its_primary() {
    Pair::with("replica_lists", async |pair| {
        let standby = Some(pair.standby.clone());
        let options = PostgresOptions { replica_url: standby, ..PostgresOptions::new(&pair.primary) };
        let store = PostgresStore::open(&options).await.unwrap();
        for number in 1..=20 {
            store.submit(now(), vec![NewJob { job: job(number), reservation: None }]).await.unwrap();
            eventually("it is listed", async || {
                let page = store.jobs(JobQuery { limit: 100, ..JobQuery::default() }).await.unwrap();
                page.items.iter().any(|view| view.job.id == job(number).id)
            })
            .await;
        }
    })
    .await;
}
