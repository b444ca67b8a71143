//! Ensembles of three that lose a server, including the leading one, while members contend for leases.
//!
//! At all times, no two members hold a lease in the same epoch, and each new holder's epoch is higher than
//! all before it. As long as two of three servers are up, every member
//! eventually holds a lease again.

use super::private::Private;
use super::services::{ETCD, ZOOKEEPER};
use crate::conformance::Stage;
use punctual_core::ports::{
    CoordinationError, HeldLease, Joining, LeaseEpoch, LeaseName, MemberId, Standing, Take,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Long enough that a new leader is usually elected before any time to live has passed.
const TTL: Duration = Duration::from_secs(4);
const CONTENDERS: usize = 3;
const LOOK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

/// All answers to members, in order.
#[derive(Default)]
struct ContenderLog {
    holders: Mutex<BTreeMap<(LeaseName, LeaseEpoch), MemberId>>,
    /// Rounds in which each contender has held a lease.
    rounds: [AtomicU64; CONTENDERS],
    is_over: AtomicBool,
}

impl ContenderLog {
    fn held(&self, lease: HeldLease, member: &MemberId) {
        let mut holders = self.holders.lock().unwrap();
        let holder = holders.entry((lease.name, lease.epoch)).or_insert_with(|| member.clone());
        assert_eq!(holder, member, "{lease:?} is held by two");
    }

    /// The highest epoch of each name in any answer.
    fn highest(&self) -> BTreeMap<LeaseName, LeaseEpoch> {
        self.holders.lock().unwrap().keys().copied().collect()
    }

    /// Records an acquired lease: with a higher epoch than all before, or kept from an earlier round.
    fn taken(&self, lease: HeldLease, member: &MemberId, before: &BTreeMap<LeaseName, LeaseEpoch>) {
        let known = before.get(&lease.name);
        let is_kept = self.holders.lock().unwrap().get(&(lease.name, lease.epoch)) == Some(member);
        assert!(is_kept || known.is_none_or(|known| *known < lease.epoch), "{lease:?} after {known:?}");
        self.held(lease, member);
    }

    /// Waits until every contender has held a lease twice from now on: a round that was in progress counts
    /// once.
    async fn progress(&self) {
        let rounds = |log: &ContenderLog| log.rounds.each_ref().map(|rounds| rounds.load(Ordering::SeqCst));
        let before = rounds(self);
        eventually(async || rounds(self).iter().zip(before).all(|(now, before)| *now >= before + 2)).await;
    }
}

/// Joins, acquires, scans and releases, and joins again when it was evicted.
async fn contend(stage: Arc<Stage>, log: Arc<ContenderLog>, number: usize) {
    let names: Vec<LeaseName> = crate::conformance::names(6);
    let mut start = 0;
    'starts: while !log.is_over.load(Ordering::SeqCst) {
        start += 1;
        let member = MemberId::new(format!("node-{number}-{start}")).unwrap();
        let door = stage.door(number);
        let joining = Joining { member: member.clone(), card: String::new(), ttl: TTL };
        let Ok(Standing::Alive) = door.join(joining).await else {
            // The pace of a contender, not a wait for something.
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        };
        while !log.is_over.load(Ordering::SeqCst) {
            match round(&stage, &log, &member, number, &names).await {
                Ok(Standing::Alive) => {}
                Ok(Standing::GivenUp) => continue 'starts,
                // An unknown outcome is retried. The pace of a contender, not a wait for something.
                Err(CoordinationError::Unavailable(_)) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn round(
    stage: &Stage,
    log: &ContenderLog,
    member: &MemberId,
    number: usize,
    names: &[LeaseName],
) -> Result<Standing, CoordinationError> {
    let door = stage.door(number);
    if door.beat(member, String::new()).await? == Standing::GivenUp {
        return Ok(Standing::GivenUp);
    }
    let (mut held, before) = (Vec::new(), log.highest());
    for (name, take) in names.iter().zip(door.take(member, names.to_vec()).await?) {
        match take {
            Take::Held(epoch) => held.push(HeldLease { name: *name, epoch }),
            Take::HeldBy(_) => {}
            Take::GivenUp => return Ok(Standing::GivenUp),
        }
    }
    held.iter().for_each(|lease| log.taken(*lease, member, &before));
    for (lease, holder) in door.look().await?.held {
        log.held(lease, &holder);
    }
    door.release(member, held.clone()).await?;
    if !held.is_empty() {
        log.rounds[number].fetch_add(1, Ordering::SeqCst);
    }
    // Lets the others proceed: a pace, not a wait for something.
    tokio::time::sleep(LOOK_EVERY).await;
    Ok(Standing::Alive)
}

/// The server that reports to be the leader.
async fn leader(ensemble: &Private, leads: impl AsyncFn(&str) -> bool) -> String {
    let leading = Mutex::new(None);
    eventually(async || {
        for (name, url) in &ensemble.servers {
            if leads(url.split("://").nth(1).unwrap()).await {
                *leading.lock().unwrap() = Some(name.clone());
                return true;
            }
        }
        false
    })
    .await;
    leading.into_inner().unwrap().unwrap()
}

async fn eventually(condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < deadline, "the condition never became true");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn loses_servers(mut ensemble: Private, stage: Stage, leads: impl AsyncFn(&str) -> bool) {
    let (stage, log) = (Arc::new(stage), Arc::new(ContenderLog::default()));
    let contenders: Vec<_> =
        (0..CONTENDERS).map(|number| tokio::spawn(contend(stage.clone(), log.clone(), number))).collect();
    log.progress().await;
    for _ in 0..2 {
        let leading = leader(&ensemble, &leads).await;
        let other = ensemble.servers.iter().map(|(name, _)| name).find(|name| **name != leading);
        let other = other.unwrap().clone();
        for lost in [other, leading] {
            ensemble.kill(&lost).await;
            log.progress().await;
            ensemble.start_again(&lost).await;
            log.progress().await;
        }
    }
    log.is_over.store(true, Ordering::SeqCst);
    for contender in contenders {
        contender.await.unwrap();
    }
}

/// The answer of a server to some bytes, until it closes the connection; empty if it is down.
async fn ask(host: &str, words: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(host).await?;
        stream.write_all(words.as_bytes()).await?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&said).into_owned())
    };
    match tokio::time::timeout(Duration::from_secs(5), asked).await {
        Ok(Ok(said)) => said,
        _ => String::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_loses_servers_under_contention() {
    let ensemble = Private::start("etcd-cluster").await;
    let stage = ETCD.stage_at(&ensemble.url());
    loses_servers(ensemble, stage, async |host: &str| {
        let said = ask(
            host,
            &format!(
                "POST /v3/maintenance/status HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            ),
        )
        .await;
        let number = |field: &str| {
            let rest = said.split(&format!("\"{field}\":\"")).nth(1)?;
            Some(rest.split('"').next()?.to_owned())
        };
        number("leader").is_some() && number("leader") == number("member_id")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_loses_servers_under_contention() {
    let ensemble = Private::start("zookeeper-cluster").await;
    let stage = ZOOKEEPER.stage_at(&ensemble.url());
    loses_servers(ensemble, stage, async |host: &str| ask(host, "srvr").await.contains("Mode: leader")).await;
}
