//! Coordination through the real stores: the conformance suite of `punctual-coordination`, each case on
//! SQLite, PostgreSQL and MariaDB.

use punctual_coordination::StoreCoordination;
use punctual_coordination::conformance::{DrivenTime, Stage, Time};
use punctual_core::ports::{Clock, Coordination, MembershipTable, Task};
use punctual_core::time::{Monotonic, Timestamp};
use punctual_store::mysql::{self, MySqlOptions, MySqlStore};
use punctual_store::postgres::{self, PostgresOptions, PostgresStore};
use punctual_store::sqlite::{SqliteOptions, SqliteStore};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

type Case = fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                super::on_all_stores(|stage| {
                    Box::pin(punctual_coordination::conformance::$module::$case(stage))
                })
                .await;
            })*
        }
    )*};
}
punctual_coordination::each_coordination_case!(define);

async fn on_all_stores(case: Case) {
    on_sqlite(case).await;
    on_postgres(case).await;
    on_mariadb(case).await;
}

/// A monotonic clock that the case drives, and a wall clock that is wrong.
#[derive(Default)]
struct Driven(AtomicU64);

impl Clock for Driven {
    fn wall(&self) -> Timestamp {
        Timestamp::from_micros(0)
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, _duration: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

impl DrivenTime for Driven {
    fn pass(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).expect("a short time");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

/// Three nodes on one store, and one on another.
fn stage(here: [Arc<dyn MembershipTable>; 3], there: Arc<dyn MembershipTable>) -> Stage {
    let clock = Arc::new(Driven::default());
    let door = |membership_table| -> Arc<dyn Coordination> {
        Arc::new(StoreCoordination::new(membership_table, clock.clone()))
    };
    Stage {
        doors: here.into_iter().map(door).collect(),
        elsewhere: door(there),
        ttl: Duration::from_secs(3),
        time: Time::Driven(clock.clone()),
    }
}

async fn on_sqlite(case: Case) {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let open = |dir: &tempfile::TempDir| {
        let options = SqliteOptions::new(dir.path());
        Arc::new(SqliteStore::open(&options, Arc::new(Driven::default())).expect("a store"))
    };
    let (one, other) = (open(&here), open(&there));
    case(stage([one.clone(), one.clone(), one], other)).await;
}

/// Two unused databases.
fn names() -> [String; 2] {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    [(); 2].map(|()| {
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        format!("punctual_cluster_{process}_{count}")
    })
}

fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run `cargo xtask test`, which starts a server for the tests")
    })
}

fn database(server: &str, name: &str) -> String {
    let (server, _) = server.rsplit_once('/').expect("a database");
    format!("{server}/{name}")
}

async fn on_postgres(case: Case) {
    let (server, names) = (server("PUNCTUAL_TEST_POSTGRES"), names());
    let whole = PostgresOptions::new(&server);
    let mut stores: Vec<Arc<PostgresStore>> = Vec::new();
    for name in &names {
        postgres::create_database(&whole, name).await.expect("a database");
    }
    for name in [&names[0], &names[0], &names[0], &names[1]] {
        let options = PostgresOptions::new(database(&server, name));
        stores.push(Arc::new(PostgresStore::open(&options).await.expect("a store")));
    }
    let [one, two, three, there] = <[_; 4]>::try_from(stores).ok().expect("four stores");
    case(stage([one, two, three], there)).await;
    for name in &names {
        postgres::drop_database(&whole, name).await.expect("it is dropped");
    }
}

async fn on_mariadb(case: Case) {
    let (server, names) = (server("PUNCTUAL_TEST_MARIADB"), names());
    let whole = MySqlOptions::new(&server);
    let mut stores: Vec<Arc<MySqlStore>> = Vec::new();
    for name in &names {
        mysql::create_database(&whole, name).await.expect("a database");
    }
    for name in [&names[0], &names[0], &names[0], &names[1]] {
        let options = MySqlOptions::new(database(&server, name));
        stores.push(Arc::new(MySqlStore::open(&options).await.expect("a store")));
    }
    let [one, two, three, there] = <[_; 4]>::try_from(stores).ok().expect("four stores");
    case(stage([one, two, three], there)).await;
    for name in &names {
        mysql::drop_database(&whole, name).await.expect("it is dropped");
    }
}
