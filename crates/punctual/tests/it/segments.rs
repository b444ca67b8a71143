//! Several schedulers on one PostgreSQL database divide all jobs: some are killed, some are paused beyond
//! their TTL, some are stopped, and no occurrence is missed or fired twice.

use crate::cluster::{Cluster, Process};
use crate::server::eventually;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, Segment};
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// The TTL of schedulers here: short, so that takeovers happen soon.
const TTL: &str = "1s";
/// How many leaders the test of leaders kills; the full number takes some minutes.
const LEADER_CHANGES: &str = "PUNCTUAL_TEST_LEADER_CHANGES";
const LEADER_CHANGES_DEFAULT: usize = 5;

impl Cluster {
    fn short_lived_scheduler(&self) -> Process {
        self.start(&["scheduler", "--health-listen", "127.0.0.1:0", "--coordination-ttl", TTL])
    }
}

/// The processes that fire, with the number of their segments.
async fn schedulers(api: &Process, cluster: &Cluster) -> Vec<Value> {
    let (status, page) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let nodes = page["items"].as_array().cloned().unwrap_or_default();
    nodes.into_iter().filter(|node| node["roles"] == json!(["scheduler"])).collect()
}

/// Waits until this many schedulers share all segments evenly, and one of them leads.
pub async fn shared_by(count: usize, api: &Process, cluster: &Cluster) {
    eventually(&format!("{count} schedulers share all segments"), async || {
        let nodes = schedulers(api, cluster).await;
        let shares: Vec<u64> = nodes.iter().map(|node| node["segments"].as_u64().unwrap()).collect();
        let leaders = nodes.iter().filter(|node| node["leader"] == true).count();
        let (least, most) = (shares.iter().min().unwrap_or(&0), shares.iter().max().unwrap_or(&0));
        shares.len() == count && shares.iter().sum::<u64>() == 64 && most - least <= 1 && leaders == 1
    })
    .await;
}

/// Jobs that fire every second, one in each segment.
async fn one_in_each_segment(api: &Process, cluster: &Cluster) -> Vec<JobId> {
    let job = json!({
        "name": "noop", "schedule_type": "RECURRING", "interval": "1s", "overlap_policy": "ALLOW", "max_retries": 3,
    });
    let mut jobs: BTreeMap<Segment, JobId> = BTreeMap::new();
    while jobs.len() < usize::from(Segment::COUNT) {
        let id = api.submit(cluster, job.clone()).await;
        if let Some(surplus) = jobs.insert(id.segment(), id) {
            let path = format!("/api/v1/jobs/{surplus}");
            let (status, body) = api.request(cluster, Method::DELETE, &path, None).await;
            assert!(status.is_success(), "{body}");
        }
    }
    jobs.into_values().collect()
}

/// The times that a job was fired for, and the runs of each. Several attempts of one occurrence are not a
/// second fire: the worker may have been too slow to keep its lease.
async fn fired(api: &Process, cluster: &Cluster, job: JobId) -> BTreeMap<Timestamp, Vec<Value>> {
    let mut fired: BTreeMap<Timestamp, Vec<Value>> = BTreeMap::new();
    let first = format!("/api/v1/jobs/{job}/executions?limit=1000");
    let mut next = Some(first.clone());
    while let Some(path) = next {
        let (status, page) = api.request(cluster, Method::GET, &path, None).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        for run in page["items"].as_array().expect("executions") {
            assert_ne!(run["status"], "SKIPPED", "{run}");
            fired.entry(scheduled(run)).or_default().push(run.clone());
        }
        next = page["next_cursor"].as_str().map(|cursor| format!("{first}&cursor={cursor}"));
    }
    fired
}

fn occurrence(run: &Value) -> OccurrenceId {
    let id: ExecutionId =
        run["execution_id"].as_str().expect("an id").parse().expect("the id of an execution");
    id.occurrence
}

fn scheduled(run: &Value) -> Timestamp {
    run["scheduled_time"].as_str().expect("a time").parse().expect("a time")
}

/// The time for which a job was last fired.
async fn latest(api: &Process, cluster: &Cluster, job: JobId) -> Option<Timestamp> {
    let path = format!("/api/v1/jobs/{job}/executions?limit=10");
    let (_, page) = api.request(cluster, Method::GET, &path, None).await;
    page["items"].as_array()?.iter().map(scheduled).max()
}

/// Waits until every job has fired some more times.
pub async fn go_on(api: &Process, cluster: &Cluster, jobs: &[JobId]) {
    for _ in 0..2 {
        let mut before = Vec::new();
        for job in jobs {
            before.push((*job, latest(api, cluster, *job).await));
        }
        for (job, before) in before {
            eventually("the job goes on", async || latest(api, cluster, job).await > before).await;
        }
    }
}

/// Each time of each job from its first to its last was fired once; returns all of these times.
pub async fn none_is_missed_or_doubled(
    api: &Process,
    cluster: &Cluster,
    jobs: &[JobId],
    step: Duration,
) -> BTreeSet<Timestamp> {
    let mut all = BTreeSet::new();
    for job in jobs {
        let fired = fired(api, cluster, *job).await;
        for (time, runs) in &fired {
            let occurrences: BTreeSet<OccurrenceId> = runs.iter().map(occurrence).collect();
            assert_eq!(occurrences.len(), 1, "{job} at {time}: {runs:?}");
        }
        let times: Vec<Timestamp> = fired.into_keys().collect();
        let gaps: BTreeSet<Duration> = times.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(gaps.iter().all(|gap| *gap == step), "{job}: {gaps:?}");
        all.extend(times);
    }
    all
}

/// The database and all processes are on this machine, so there is one clock.
fn now() -> Timestamp {
    Timestamp::from_micros(i64::try_from(UNIX_EPOCH.elapsed().unwrap().as_micros()).unwrap())
}

fn signal(process: &Process, signal: Signal) {
    kill_process(Pid::from_child(&process.child), signal).expect("it still runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_in_every_segment_goes_on_while_schedulers_die_stall_and_leave() {
    Cluster::with(async |cluster| {
        let (api, _worker) = (cluster.api(), cluster.worker("one"));
        let first = cluster.short_lived_scheduler();
        let second = cluster.short_lived_scheduler();
        shared_by(2, &api, cluster).await;
        let jobs = one_in_each_segment(&api, cluster).await;
        let third = cluster.short_lived_scheduler();
        shared_by(3, &api, cluster).await;
        go_on(&api, cluster, &jobs).await;

        first.kill();
        shared_by(2, &api, cluster).await;
        go_on(&api, cluster, &jobs).await;

        signal(&second, Signal::STOP);
        shared_by(1, &api, cluster).await;
        go_on(&api, cluster, &jobs).await;
        signal(&second, Signal::CONT);
        shared_by(2, &api, cluster).await;
        go_on(&api, cluster, &jobs).await;

        assert_eq!(third.stop(), Some(0));
        // It has handed over before it ended: no TTL has to expire.
        let nodes = schedulers(&api, cluster).await;
        assert_eq!((nodes.len(), &nodes[0]["segments"]), (1, &json!(64)), "{nodes:?}");
        go_on(&api, cluster, &jobs).await;
        none_is_missed_or_doubled(&api, cluster, &jobs, Duration::from_secs(1)).await;
        drop(second);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_die_one_after_the_other_and_no_fire_in_between_is_lost_or_doubled() {
    let changes = std::env::var(LEADER_CHANGES).ok();
    let changes = changes.map_or(LEADER_CHANGES_DEFAULT, |count| count.parse().expect("a number"));
    Cluster::with(async |cluster| {
        let (api, _worker) = (cluster.api(), cluster.worker("one"));
        let mut alive = vec![cluster.short_lived_scheduler(), cluster.short_lived_scheduler()];
        shared_by(2, &api, cluster).await;
        // Due several times while there is no leader.
        let job = json!({
            "name": "noop", "schedule_type": "RECURRING", "interval": "200ms", "overlap_policy": "ALLOW",
        });
        let mut jobs = Vec::new();
        for _ in 0..8 {
            jobs.push(api.submit(cluster, job.clone()).await);
        }
        let mut without_leader = Vec::new();
        for change in 0..changes {
            let nodes = schedulers(&api, cluster).await;
            let leader = nodes.iter().find(|node| node["leader"] == true).expect("somebody leads");
            let pid = leader["pid"].as_u64().unwrap();
            let place = alive.iter().position(|process| u64::from(process.child.id()) == pid).unwrap();
            alive.remove(place).kill();
            let killed_at = now();
            alive.push(cluster.short_lived_scheduler());
            eventually(&format!("leader {change} has a successor"), async || {
                let nodes = schedulers(&api, cluster).await;
                nodes.iter().any(|node| node["leader"] == true && node["pid"] != pid)
            })
            .await;
            without_leader.push(killed_at..now());
        }
        shared_by(2, &api, cluster).await;
        go_on(&api, cluster, &jobs).await;
        let fired = none_is_missed_or_doubled(&api, cluster, &jobs, Duration::from_millis(200)).await;
        for gap in without_leader {
            assert!(fired.range(gap.clone()).next().is_some(), "nothing was due in {gap:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_by_nobody_who_is_there_is_taken() {
    Cluster::with(async |cluster| {
        let api = cluster.api();
        let (_one, _two) = (cluster.short_lived_scheduler(), cluster.short_lived_scheduler());
        shared_by(2, &api, cluster).await;
        let (client, connection) =
            tokio_postgres::connect(&cluster.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("DELETE FROM cluster_members").await.unwrap();
        shared_by(2, &api, cluster).await;
        client.batch_execute("UPDATE cluster_leases SET holder = 'nobody'").await.unwrap();
        shared_by(2, &api, cluster).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_process_of_a_cluster_is_shown_with_what_it_does() {
    Cluster::with(async |cluster| {
        let (api, scheduler, worker) = (cluster.api(), cluster.scheduler(), cluster.worker("one"));
        shared_by(1, &api, cluster).await;
        eventually("all three are there", async || {
            let (_, page) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
            page["items"].as_array().is_some_and(|nodes| nodes.len() == 3)
        })
        .await;
        let (_, page) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
        let nodes = page["items"].as_array().unwrap();
        assert_eq!((&nodes[0]["roles"], &nodes[0]["answering"]), (&json!(["api"]), &json!(true)));
        for (process, role) in [(&api, "api"), (&scheduler, "scheduler"), (&worker, "worker")] {
            let node = nodes.iter().find(|node| node["pid"] == process.child.id()).expect("it is listed");
            assert_eq!((&node["roles"], &node["warnings"]), (&json!([role]), &json!([])));
        }
        // All processes together report what one of them has done.
        let job = api.submit(cluster, json!({"name": "noop", "delay": "2500ms"})).await;
        api.completes(cluster, job).await;
        eventually("what the scheduler fired is counted", async || {
            let (_, stats) = api.request(cluster, Method::GET, "/api/v1/stats", None).await;
            stats["processes"] == 3 && stats["counters"]["fired"] == 1
        })
        .await;
        assert_eq!((worker.stop(), scheduler.stop()), (Some(0), Some(0)));
        eventually("who has left is no longer there", async || {
            let (_, page) = api.request(cluster, Method::GET, "/api/v1/nodes", None).await;
            page["items"].as_array().is_some_and(|nodes| nodes.len() == 1)
        })
        .await;
    })
    .await;
}
