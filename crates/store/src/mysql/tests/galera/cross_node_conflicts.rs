//! Two transactions on two nodes that rely on the same row. The second has locked it before the first has
//! written it. The second commits either after the first write has arrived at its node, or while that write
//! is ordered before it and has not arrived: then the locks of neither node detect the conflict.

use super::{Cluster, keep_the_others_busy};
use crate::mysql::MySqlOptions;
use crate::mysql::connection::Connection;
use crate::mysql::migrate::prepare;
use crate::mysql::options::SEE_ALL_NODES;
use crate::mysql::tables::MySqlTables;
use crate::mysql::tests::database::client;
use crate::mysql::tests::database::query;
use crate::mysql::tests::dialect::tables;
use crate::mysql::tests::fixture::{at, id, job, lane, queued, write};
use crate::rows::{JobKey, KeyKind, LiveRow};
use crate::unit_of_work::{DependencyRow, NewSession, ReadSet, SessionChange, Tables, WriteSet};
use mysql_async::prelude::Queryable;
use punctual_core::ids::{Epoch, SessionId};
use punctual_core::job::StoredStatus;
use punctual_core::occurrence::{Lease, Live, LiveState};
use punctual_core::ports::{QueueRow, SessionOpening, WorkerAbout};
use punctual_core::queue::QueueSettings;
use punctual_core::session::SessionMode;
use std::time::Duration;

/// The initial state: a session with attention set, two jobs, the first queued and the second run by the
/// session, and a queue with a limit.
struct ConflictSetup {
    lane: i64,
    session: SessionId,
}

impl ConflictSetup {
    async fn set(tables: &mut MySqlTables) -> Self {
        let lane = lane(tables, "mail").await;
        let names = ReadSet { workers: ["w".to_owned()].into(), new_sessions: 1, ..ReadSet::default() };
        let names = tables.intern(&names).await.unwrap();
        let session = names.new_sessions[0];
        let opening = SessionOpening {
            worker: "w".to_owned(),
            lease: Duration::from_secs(6),
            embedded: false,
            job_types: vec!["report".to_owned()],
            slots: 4,
            about: WorkerAbout::default(),
            token: None,
        };
        let stage = ConflictSetup { lane, session };
        let bounded = QueueSettings::holding(Some(5));
        let write_set = WriteSet {
            sessions_inserted: vec![NewSession {
                id: session,
                worker: names.workers[0].1,
                opening,
                opened_at: at(0),
            }],
            attention: vec![session],
            jobs_inserted: vec![job(1, lane), job(2, lane)],
            live_inserted: vec![queued(1, lane), stage.running()],
            queues_put: vec![QueueRow { settings: bounded, ..QueueRow::unset("mail") }],
            ..WriteSet::default()
        };
        write(tables, &write_set).await;
        stage
    }

    fn running(&self) -> LiveRow {
        let LiveRow { live, .. } = queued(2, self.lane);
        let lease = Lease { session: self.session, claimed_at: at(1), cancel_requested: false };
        let state = LiveState::Running(lease);
        LiveRow { live: Live { state, epoch: Epoch(1), ..live }, lane: self.lane, is_sole: false }
    }

    fn session_with(&self, change: impl FnOnce(&mut SessionChange)) -> WriteSet {
        let mut updated = SessionChange {
            id: self.session,
            turn: 0,
            beat: 1,
            beaten_at: at(1),
            mode: SessionMode::Open,
            attention: true,
            lost: false,
        };
        change(&mut updated);
        WriteSet { sessions_updated: vec![updated], ..WriteSet::default() }
    }
}

/// A change that conflicts with no other transaction.
fn something(number: u32) -> WriteSet {
    let key = JobKey { owner: "ann".to_owned(), kind: KeyKind::Unique, key: format!("key {number}") };
    WriteSet { keys_held: vec![(key, id(number))], ..WriteSet::default() }
}

/// When the first transaction's write arrives at the node of the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    BeforeTheCommit,
    Later,
}

/// Waits until a node has everything that was committed before.
async fn has_arrived(node: &MySqlOptions) {
    let mut client = client(node).await;
    client.query_drop(SEE_ALL_NODES).await.unwrap();
    client.query_drop("SELECT COUNT(*) FROM numbers").await.unwrap();
}

/// Both load the same rows, the first commits, and then the second gets a conflict.
async fn is_a_conflict(
    read_set: impl Fn(&ConflictSetup) -> ReadSet,
    write_set: impl Fn(&ConflictSetup) -> [WriteSet; 2],
) {
    for arrival in [Arrival::BeforeTheCommit, Arrival::Later] {
        is_one_conflict(arrival, &read_set, &write_set).await;
    }
}

async fn is_one_conflict(
    arrival: Arrival,
    read_set: impl Fn(&ConflictSetup) -> ReadSet,
    write_set: impl Fn(&ConflictSetup) -> [WriteSet; 2],
) {
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        let (mut one, mut other) = (tables(&nodes[0]).await, tables(&nodes[1]).await);
        let stage = ConflictSetup::set(&mut one).await;
        let read_set = read_set(&stage);
        for tables in [&mut one, &mut other] {
            tables.begin().await.unwrap();
            tables.fetch(&read_set).await.unwrap();
        }
        let [first, second] = write_set(&stage);
        if arrival == Arrival::Later {
            keep_the_others_busy(&mut client(&nodes[0]).await).await;
        }
        one.commit(&first).await.unwrap();
        if arrival == Arrival::BeforeTheCommit {
            has_arrived(&nodes[1]).await;
        }
        let Err(fault) = other.commit(&second).await else {
            panic!("{arrival:?}: it committed although a row that it relied on had changed")
        };
        assert!(fault.is_conflict(), "{arrival:?}: {fault}");
        other.abandon().await;
        again(&mut other, &read_set, &second, &nodes[2]).await;
    })
    .await;
}

/// Run again, it sees the changes of the first transaction and succeeds.
async fn again(other: &mut MySqlTables, read_set: &ReadSet, write_set: &WriteSet, elsewhere: &MySqlOptions) {
    other.begin().await.unwrap();
    other.fetch(read_set).await.unwrap();
    other.commit(write_set).await.unwrap();
    let mut elsewhere = tables(elsewhere).await;
    for (key, job) in &write_set.keys_held {
        elsewhere.begin().await.unwrap();
        let asked = ReadSet { keys: [key.clone()].into(), ..ReadSet::default() };
        let found = elsewhere.fetch(&asked).await.unwrap();
        assert_eq!(
            found.keys,
            [(key.clone(), *job)],
            "a commit that one node acknowledged is visible on all nodes"
        );
        elsewhere.abandon().await;
    }
}

/// A child is submitted while its parent ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_ends_and_is_read() {
    let depends = |_: &ConflictSetup| {
        let ended = WriteSet { marks: vec![(id(1), StoredStatus::Failed)], ..WriteSet::default() };
        let child = DependencyRow { parent: id(1), child: id(2) };
        [ended, WriteSet { dependencies_inserted: vec![child], ..WriteSet::default() }]
    };
    is_a_conflict(|_| ReadSet { terms: [id(1)].into(), ..ReadSet::default() }, depends).await;
}

/// Two parents of one child end at once: each sees the other as unfinished, and neither would release the
/// child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_both_read() {
    let read_set = |_: &ConflictSetup| ReadSet { terms: [id(1)].into(), ..ReadSet::default() };
    is_a_conflict(read_set, |_| [something(1), something(2)]).await;
}

/// As whole jobs, which are locked by the same rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_job_and_its_terms() {
    let read_set = |_: &ConflictSetup| ReadSet { jobs: [id(1)].into(), ..ReadSet::default() };
    is_a_conflict(read_set, |_| [something(1), something(2)]).await;
}

/// An execution is leased to a session that is marked lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_lost_and_read() {
    let read_set = |stage: &ConflictSetup| ReadSet { sessions: [stage.session].into(), ..ReadSet::default() };
    let write_set = |stage: &ConflictSetup| [stage.session_with(|session| session.lost = true), something(2)];
    is_a_conflict(read_set, write_set).await;
}

/// A cancel is requested while the session receives all requests: the flag is already set, and must stay
/// set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_received_requests_is_asked_again() {
    let write_set = |stage: &ConflictSetup| {
        let heard = stage.session_with(|session| session.attention = false);
        [heard, WriteSet { attention: vec![stage.session], ..WriteSet::default() }]
    };
    // It sets the flag without loading the session, so it does not matter what has arrived before.
    is_one_conflict(Arrival::Later, |_| ReadSet { terms: [id(9)].into(), ..ReadSet::default() }, write_set)
        .await;
}

/// A note is written for an execution that ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_that_ends_and_is_read() {
    let read_set = |_: &ConflictSetup| ReadSet { live: [id(1).occurrence(1)].into(), ..ReadSet::default() };
    let write_set = |_: &ConflictSetup| {
        let ended = WriteSet { live_deleted: vec![id(1).occurrence(1)], ..WriteSet::default() };
        [ended, something(2)]
    };
    is_a_conflict(read_set, write_set).await;
}

/// The last execution of a job fails while another one ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_open_occurrences_of_a_job() {
    let read_set = |_: &ConflictSetup| ReadSet { open_of_jobs: [id(1)].into(), ..ReadSet::default() };
    is_a_conflict(read_set, |_| [something(1), something(2)]).await;
}

/// A worker reports its leases while one of them is taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_leases_of_a_session() {
    let read_set =
        |stage: &ConflictSetup| ReadSet { held_by: [(stage.session, 10)].into(), ..ReadSet::default() };
    let write_set = |_: &ConflictSetup| {
        let ended = WriteSet { live_deleted: vec![id(2).occurrence(1)], ..WriteSet::default() };
        [ended, something(2)]
    };
    is_a_conflict(read_set, write_set).await;
}

/// Two submits see the last free slot of a queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_free_slot_of_a_queue() {
    let read_set =
        |_: &ConflictSetup| ReadSet { unstarted: ["mail".to_owned()].into(), ..ReadSet::default() };
    is_a_conflict(read_set, |_| [something(1), something(2)]).await;
}

/// Two users set the same queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_settings_of_a_queue() {
    let read_set = |_: &ConflictSetup| ReadSet { queues: true, ..ReadSet::default() };
    let put = |paused_at, max_depth| {
        let row =
            QueueRow { paused_at, settings: QueueSettings::holding(max_depth), ..QueueRow::unset("mail") };
        WriteSet { queues_put: vec![row], ..WriteSet::default() }
    };
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        let (mut one, mut other) = (tables(&nodes[0]).await, tables(&nodes[1]).await);
        let stage = ConflictSetup::set(&mut one).await;
        for tables in [&mut one, &mut other] {
            tables.begin().await.unwrap();
            tables.fetch(&read_set(&stage)).await.unwrap();
        }
        keep_the_others_busy(&mut client(&nodes[0]).await).await;
        one.commit(&put(Some(at(1)), Some(5))).await.unwrap();
        let fault =
            other.commit(&put(None, Some(6))).await.expect_err("the other transaction committed first");
        assert!(fault.is_conflict(), "{fault}");
        other.abandon().await;
        other.begin().await.unwrap();
        let found = other.fetch(&read_set(&stage)).await.unwrap();
        assert_eq!(found.queues[0].paused_at, Some(at(1)), "the retry sees the change");
        other.abandon().await;
    })
    .await;
}

/// Executions that were loaded for a claim and not claimed do not block a claim on another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_that_were_not_claimed_do_not_conflict() {
    use crate::unit_of_work::RequestedClaims;
    Cluster::with(async |cluster| {
        let nodes = cluster.nodes();
        let mut one = tables(&nodes[0]).await;
        let stage = ConflictSetup::set(&mut one).await;
        let claims = vec![RequestedClaims { lanes: vec![stage.lane], count: 1 }];
        one.begin().await.unwrap();
        let found = one.fetch(&ReadSet { claims, ..ReadSet::default() }).await.unwrap();
        assert_eq!(found.claims, [vec![id(1).occurrence(1)]]);
        one.commit(&something(1)).await.unwrap();
        let touched = "SELECT COUNT(*) FROM live WHERE touched > 0";
        assert_eq!(query::<i64>(&nodes[0], touched).await, [0]);
    })
    .await;
}

/// A node has rolled back a transaction without reporting it: the rest of it is not committed alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rest_of_a_rolled_back_transaction_is_not_committed() {
    Cluster::with(async |cluster| {
        let node = &cluster.nodes()[0];
        prepare(node).await.unwrap();
        let mut connection = Connection::writing(&node.target().unwrap()).await.unwrap();
        let given = async || query::<i64>(node, "SELECT given FROM numbers WHERE name = 'lane'").await;
        for (is_undone, expected) in [(true, 0), (false, 7)] {
            connection.begin().await.unwrap();
            connection.all("SELECT given FROM numbers FOR UPDATE", vec![]).await.unwrap();
            if is_undone {
                connection.run_text("ROLLBACK").await.unwrap();
            }
            connection.run_text("UPDATE numbers SET given = 7 WHERE name = 'lane'").await.unwrap();
            let committed = connection.commit().await;
            assert_eq!(committed.is_err_and(|fault| fault.is_conflict()), is_undone);
            connection.roll_back().await;
            assert_eq!(given().await, [expected]);
        }
        connection.close().await;
    })
    .await;
}
