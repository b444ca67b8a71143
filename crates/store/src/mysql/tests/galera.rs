//! Three nodes of a Galera cluster, each with its own store: transactions that locks isolate on one server are also
//! isolated between nodes.

mod cross_node_conflicts;
mod exclusive_work;
mod hosts;
mod membership;
mod races;

use super::database::client;
use crate::mysql::{MySqlOptions, create_database, drop_database};
use futures_util::FutureExt;
use hosts::eventually_succeeds;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use punctual_core::ports::StoreError;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the nodes: one URL with all hosts, of a user who may do everything.
const CLUSTER: &str = "PUNCTUAL_TEST_GALERA";

/// The cluster with a database that only this test uses.
struct Cluster {
    /// The URL with all hosts.
    url: String,
    name: String,
}

impl Cluster {
    /// Runs a test in its own database without tables.
    async fn with(test: impl AsyncFnOnce(&Cluster)) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let url = std::env::var(CLUSTER).unwrap_or_else(|_| {
            panic!(
                "{CLUSTER} is not set: run `cargo xtask test --full`, which starts a cluster for the tests"
            )
        });
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let cluster = Cluster { url, name: format!("punctual_nodes_{process}_{count}") };
        let server = MySqlOptions::new(&cluster.url);
        create_database(&server, &cluster.name).await.unwrap();
        cluster.wait_for_all_nodes().await;
        let outcome = AssertUnwindSafe(test(&cluster)).catch_unwind().await;
        drop_database(&server, &cluster.name).await.unwrap();
        if let Err(panic) = outcome {
            resume_unwind(panic);
        }
    }

    /// A node applies the changes of another one a moment later, also a new database.
    async fn wait_for_all_nodes(&self) {
        let (who, hosts) = self.parts();
        let (_, database) = self.url.rsplit_once('/').expect("a database that all nodes have");
        for host in hosts {
            let server = MySqlOptions::new(format!("{who}@{host}/{database}"));
            let mut client = client(&server).await;
            // The list of databases does not wait for what other nodes have done.
            eventually_succeeds("a look for the database", async || {
                let known: Vec<String> = client.query("SHOW DATABASES").await.unwrap();
                let is_known = known.contains(&self.name);
                is_known
                    .then_some(())
                    .ok_or_else(|| StoreError::Unavailable(format!("{host} knows {known:?}")))
            })
            .await;
            client.disconnect().await.unwrap();
        }
    }

    /// The user with a password, the hosts, and what comes after the database.
    fn parts(&self) -> (&str, Vec<&str>) {
        let (who, rest) = self.url.rsplit_once('@').expect("a user");
        (who, rest.split('/').next().unwrap_or_default().split(',').collect())
    }

    /// Options of a store that uses these nodes, in this order.
    fn through(&self, nodes: &[usize]) -> MySqlOptions {
        let (who, hosts) = self.parts();
        let hosts: Vec<&str> = nodes.iter().map(|node| hosts[*node]).collect();
        MySqlOptions::new(format!("{who}@{}/{}", hosts.join(","), self.name))
    }

    /// Options of one store for each node.
    fn nodes(&self) -> Vec<MySqlOptions> {
        (0..self.parts().1.len()).map(|node| self.through(&[node])).collect()
    }
}

/// Keeps the other nodes busy, so that the next commit of this node is ordered there but has not arrived yet: nodes
/// apply one transaction after the other.
async fn keep_the_others_busy(client: &mut Conn) {
    let make = "CREATE TABLE IF NOT EXISTS ballast (number BIGINT NOT NULL, text VARCHAR(200), PRIMARY KEY (number))";
    client.query_drop(make).await.unwrap();
    let fill = "REPLACE INTO ballast SELECT seq, REPEAT(MD5(RAND()), 5) FROM seq_1_to_40000";
    client.query_drop(fill).await.unwrap();
}
