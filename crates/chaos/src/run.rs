//! One run: a cluster, its load, a plan of faults, and then a phase without faults in which everything must
//! finish by itself.

use crate::checker::{self, notifications};
use crate::cluster::{ChaosCluster, ClusterOptions};
use crate::history;
use crate::load::{ClientLoad, LoadOptions};
use crate::member::now;
use crate::nemesis::inject_faults;
use crate::observed::Observed;
use crate::plan::{FaultKind, FaultPlan, Role};
use crate::receiver::Receiver;
use crate::recorder::Recorder;
use crate::report::{ChaosReport, RunParameters};
use anyhow::{Context, Result, ensure};
use punctual_client::Client;
use punctual_core::time::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Time to submit the recurring jobs before the first of them is due: a fixed part, and a part for each of
/// them.
const HEAD_START: Duration = Duration::from_secs(3);
const HEAD_START_EACH: Duration = Duration::from_millis(100);
/// The time limit for everything to finish after all faults have ended.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(120);
/// The time limit for the last messages to arrive after that: longer than the pause after a try whose process was killed.
const MESSAGES_TIME_MAX: Duration = Duration::from_secs(90);
/// The channel and the rule of notifications.
const CHANNEL: &str = "receiver";
/// Pause between two checks of that.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

pub struct RunOptions {
    pub cluster: ClusterOptions,
    pub seed: u64,
    pub plan: FaultPlan,
    pub recurring: usize,
    pub one_time: usize,
    /// Whether a plan that lacks a kind of fault is an error.
    pub wants_every_kind: bool,
}

pub async fn run(options: &RunOptions) -> Result<ChaosReport> {
    let RunOptions { cluster: cluster_options, seed, plan, .. } = options;
    std::fs::create_dir_all(&cluster_options.folder)?;
    let recorder = Recorder::start(&cluster_options.folder).await?;
    let receiver = Receiver::start(&cluster_options.folder).await?;
    let cluster = ChaosCluster::start(cluster_options).await?;
    let load_options = LoadOptions {
        seed: *seed,
        recurring: options.recurring,
        one_time: options.one_time,
        lasts: plan.lasts,
        lease: cluster_options.lease,
    };
    let load = ClientLoad::new(load_options, &recorder, cluster.clients()?);
    notify(&load.nodes()[0], &receiver).await?;
    let head_start = HEAD_START + HEAD_START_EACH * u32::try_from(options.recurring)?;
    let from = whole_second(now().plus(head_start));
    load.submit_recurring(from).await?;
    let unserved = load.submit_unserved(from).await?;
    ensure!(now() < from, "submitting the recurring jobs took longer than {} s", head_start.as_secs());
    tokio::time::sleep(from.since(now())).await;
    let (faults, ()) = futures_util::future::join(inject_faults(&cluster, plan), load.run()).await;
    let faults = faults?;
    let settled = settle(&load).await;
    let mut observed = Observed {
        apis: cluster.of(Role::Api).map(|member| member.name.clone()).collect(),
        runs: recorder.runs()?,
        jobs: history::read_all(&load.nodes()[0]).await.context("read the history of all jobs")?,
        faults,
        unordered_ends: cluster.unordered_ends(),
        ..Observed::default()
    };
    (observed.wishes, observed.asked) = load.into_observed();
    observed.unserved.push(unserved);
    receive_all(&mut observed, &receiver).await;
    write_down(&observed, &cluster_options.folder)?;
    cluster.stop().await;
    if options.wants_every_kind {
        let kinds: BTreeSet<FaultKind> = observed.faults.iter().map(|fault| fault.kind).collect();
        ensure!(kinds.len() == FaultKind::ALL.len(), "not all kinds of faults were injected: only {kinds:?}");
    }
    let verdict = checker::judge(&observed);
    let about = RunParameters {
        store: cluster_options.service.clone(),
        seed: *seed,
        topology: cluster_options.topology,
        from,
        lasted: plan.lasts,
        settled,
    };
    Ok(ChaosReport::new(about, &observed, verdict))
}

/// Has failures, and jobs that do not run, reported to the receiver.
async fn notify(node: &Client, receiver: &Receiver) -> Result<()> {
    let channel = json!({"type": "webhook", "url": receiver.url()});
    node.set_channel(CHANNEL, &serde_json::from_value(channel)?).await.context("set the channel")?;
    let rule = json!({"events": ["failed", "missed"], "channels": [CHANNEL]});
    node.set_notification_rule(CHANNEL, &serde_json::from_value(rule)?).await.context("set the rule")?;
    Ok(())
}

/// Waits until no message is missing, or for too long.
async fn receive_all(observed: &mut Observed, receiver: &Receiver) {
    let start = Instant::now();
    loop {
        observed.messages = receiver.messages();
        if !notifications::is_any_missing(observed) || start.elapsed() >= MESSAGES_TIME_MAX {
            return;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}

/// Writes the checked history to a file, for debugging.
fn write_down(observed: &Observed, folder: &Path) -> Result<()> {
    let mut file = BufWriter::new(File::create(folder.join("history.jsonl"))?);
    for job in &observed.jobs {
        writeln!(file, "{}", serde_json::to_string(job)?)?;
    }
    Ok(file.flush()?)
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_micros(at.as_micros() / 1_000_000 * 1_000_000)
}

/// Waits until all jobs are finished.
async fn settle(load: &ClientLoad<'_>) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < SETTLE_TIME_MAX {
        // A request without a response is repeated; only the final state is checked.
        if matches!(history::unfinished(&load.nodes()[0]).await, Ok(0)) {
            return Some(start.elapsed());
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    None
}
