//! How long the loss or the restart of one process is noticeable, with everything else healthy: measured from
//! outside, by the start times of handlers and the results of client requests.

use crate::cluster::{ChaosCluster, ClusterOptions};
use crate::lateness::{LATE, StartLateness, starts};
use crate::load::{ClientLoad, LoadOptions, calling};
use crate::member::{MemberProcess, now};
use crate::observed::{Attempts, Observed, OverlapAllowed, RequestedJob, Times};
use crate::plan::Role;
use crate::recorder::{CallBehaviour, CallOutcome, RecordedRun, Recorder};
use anyhow::{Context, Result, ensure};
use punctual_client::SubmitJob;
use punctual_core::ids::ExecutionId;
use punctual_core::schedule::OverlapPolicy;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Jobs that run every second, so that something is due at every moment.
const TICKING: usize = 60;
/// Jobs that are running when their worker is killed, and their duration: long enough that all of them run at
/// the same time.
const LONG: usize = 24;
const LONG_TAKES: Duration = Duration::from_secs(20);
/// How long the effects of an event are observed.
const AFTERMATH: Duration = Duration::from_secs(8);
/// Within this time, the executions of a killed worker must run again elsewhere.
const AGAIN_TIME_MAX: Duration = Duration::from_secs(60);
/// Longer than all measurements together.
const LASTS: Duration = Duration::from_secs(1_800);
/// Submits per second.
const SUBMITS_PER_SECOND: usize = 10;

/// The result of one measurement.
#[derive(Debug, Serialize)]
pub struct MeasuredFailover {
    pub what: String,
    pub unit: &'static str,
    pub median: f64,
    pub max: f64,
    pub samples: usize,
    pub note: String,
}

impl MeasuredFailover {
    fn of_seconds(what: impl Into<String>, mut samples: Vec<f64>, note: String) -> Self {
        samples.sort_by(f64::total_cmp);
        let round = |value: Option<&f64>| value.map_or(0.0, |value| (value * 1_000.0).round() / 1_000.0);
        MeasuredFailover {
            what: what.into(),
            unit: "s",
            median: round(samples.get(samples.len() / 2)),
            max: round(samples.last()),
            samples: samples.len(),
            note,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct FailoverReport {
    pub store: String,
    pub measured: Vec<MeasuredFailover>,
}

impl fmt::Display for FailoverReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "failover on {}", self.store)?;
        for MeasuredFailover { what, unit, median, max, samples, note } in &self.measured {
            writeln!(f, "  {what:44} median {median:6.3} {unit}, max {max:6.3} {unit} of {samples}; {note}")?;
        }
        Ok(())
    }
}

/// Runs all measurements, each on every process of its role. An upgrade to another binary, if requested,
/// comes first, and everything else is measured on the new binary.
pub async fn measure(options: &ClusterOptions, upgrade_to: Option<&Path>) -> Result<FailoverReport> {
    let recorder = Recorder::start(&options.folder).await?;
    let cluster = ChaosCluster::start(options).await?;
    let one_time = SUBMITS_PER_SECOND * usize::try_from(LASTS.as_secs())?;
    let load_options = LoadOptions { seed: 1, recurring: 0, one_time, lasts: LASTS, lease: options.lease };
    let load = ClientLoad::new(load_options, &recorder, cluster.clients()?);
    for index in 0..TICKING {
        let (job, wish) = ticking(index, &recorder)?;
        load.submit(job, wish).await.context("submit a recurring job")?;
    }
    let scene = Scene { cluster: &cluster, recorder: &recorder, load: &load };
    let measured = tokio::select! {
        measured = scene.measure_all(upgrade_to) => measured?,
        () = load.run() => anyhow::bail!("the load was over before the measurements"),
    };
    cluster.stop().await;
    Ok(FailoverReport { store: options.service.clone(), measured })
}

fn ticking(index: usize, recorder: &Recorder) -> Result<(SubmitJob, RequestedJob)> {
    let behaviour = CallBehaviour { takes: Duration::from_millis(20), failing_attempts: 0 };
    let key = format!("ticking-{index}");
    // Spread over the second, as independent jobs are.
    let first = now().plus(Duration::from_millis(3_000 + 1_000 * index as u64 / TICKING as u64));
    let job = SubmitJob {
        interval: Some("1s".to_owned()),
        start_at: Some(first),
        overlap_policy: Some(OverlapPolicy::Allow),
        ..calling(key.clone(), &recorder.url(behaviour))?
    };
    let times = Times::Every { first, step: Duration::from_secs(1), last: Timestamp::MAX };
    let attempts = Attempts::UntilItSucceeds;
    Ok((job, RequestedJob { key, times, overlap: OverlapAllowed::Allow, attempts, acknowledged: None }))
}

struct Scene<'a> {
    cluster: &'a ChaosCluster,
    recorder: &'a Recorder,
    load: &'a ClientLoad<'a>,
}

impl Scene<'_> {
    async fn measure_all(&self, upgrade_to: Option<&Path>) -> Result<Vec<MeasuredFailover>> {
        // By then all processes have discovered each other, and caches are warm.
        tokio::time::sleep(AFTERMATH).await;
        let mut measured = vec![self.calm().await?];
        if let Some(binary) = upgrade_to {
            measured.extend(self.upgraded(binary).await?);
        }
        measured.push(self.killed_schedulers().await?);
        measured.push(self.killed_workers().await?);
        let (schedulers, workers) = (Role::Scheduler, Role::Worker);
        measured.push(self.restarted("scheduler stopped and started: lateness", schedulers).await?);
        measured.push(self.restarted("worker stopped and started: lateness", workers).await?);
        measured.extend(self.rolled("rolling restart of all").await?);
        Ok(measured)
    }

    /// The lateness of starts that are due in a span of time.
    fn lateness(&self, from: Timestamp, until: Timestamp) -> Result<Vec<Duration>> {
        let observed = Observed { runs: self.recorder.runs()?, ..Observed::default() };
        let starts = starts(&observed).into_iter().filter(|start| from <= start.due && start.due <= until);
        Ok(starts.map(|start| start.late).collect())
    }

    /// Waits until everything due now has begun, or is very late.
    async fn aftermath(&self) {
        tokio::time::sleep(AFTERMATH).await;
    }

    async fn calm(&self) -> Result<MeasuredFailover> {
        let from = now();
        self.aftermath().await;
        let lateness = self.lateness(from, now().minus(LATE))?;
        let StartLateness { p99_ms, late, .. } = StartLateness::of(lateness.iter().copied());
        let samples = lateness.iter().map(Duration::as_secs_f64).collect();
        Ok(MeasuredFailover::of_seconds(
            "no fault: lateness",
            samples,
            format!("p99 {p99_ms} ms, {late} over 1 s"),
        ))
    }

    /// For each scheduler, the latest start of anything due after it was killed.
    async fn killed_schedulers(&self) -> Result<MeasuredFailover> {
        let (mut worst, mut late, mut all) = (Vec::new(), 0, 0);
        for member in self.cluster.of(Role::Scheduler) {
            let from = now();
            member.kill().await;
            self.aftermath().await;
            let lateness = StartLateness::of(self.lateness(from, now().minus(LATE))?);
            worst.push(lateness.max_ms / 1_000.0);
            late += lateness.late;
            all += lateness.count;
            member.start_again().await;
            self.aftermath().await;
        }
        let note = format!("{late} of {all} starts over 1 s late");
        Ok(MeasuredFailover::of_seconds("scheduler killed: latest start", worst, note))
    }

    /// How long until the executions of a killed worker run again elsewhere.
    async fn killed_workers(&self) -> Result<MeasuredFailover> {
        let mut again = Vec::new();
        for (round, member) in self.cluster.of(Role::Worker).enumerate() {
            self.begin_long(round).await?;
            let killed_at = now();
            member.kill().await;
            again.extend(self.ran_again(killed_at).await?);
            member.start_again().await;
        }
        ensure!(!again.is_empty(), "no worker was running anything when it was killed");
        // Executions that are still running would disturb the next measurement.
        tokio::time::sleep(LONG_TAKES + AFTERMATH).await;
        Ok(MeasuredFailover::of_seconds("worker killed: its jobs run elsewhere after", again, String::new()))
    }

    async fn begin_long(&self, round: usize) -> Result<()> {
        let url = self.recorder.url(CallBehaviour { takes: LONG_TAKES, failing_attempts: 0 });
        let mut waiting = BTreeSet::new();
        for index in 0..LONG {
            let key = format!("long-{round}-{index}");
            let wish = RequestedJob {
                key: key.clone(),
                times: Times::Once { at: None },
                overlap: OverlapAllowed::Allow,
                attempts: Attempts::UntilItSucceeds,
                acknowledged: None,
            };
            waiting.insert(self.load.submit(calling(key, &url)?, wish).await.context("submit a long job")?);
        }
        let start = Instant::now();
        while !waiting.is_empty() {
            ensure!(start.elapsed() < AGAIN_TIME_MAX, "long jobs did not begin");
            tokio::time::sleep(Duration::from_millis(50)).await;
            for run in self.recorder.runs()? {
                waiting.remove(&run.execution.occurrence.job);
            }
        }
        Ok(())
    }

    async fn ran_again(&self, killed_at: Timestamp) -> Result<Vec<f64>> {
        let start = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let runs = self.recorder.runs()?;
            let broken = runs.iter().filter(|run| {
                run.began < killed_at
                    && matches!(run.ended, Some((at, CallOutcome::BrokenOff)) if at >= killed_at && at.since(killed_at) < LATE)
            });
            let next = |broken: &RecordedRun| {
                let is_next = |run: &&RecordedRun| {
                    run.execution.occurrence == broken.execution.occurrence && run.attempt > broken.attempt
                };
                runs.iter().find(is_next).map(|run| run.began.since(killed_at).as_secs_f64())
            };
            let again: Option<Vec<f64>> = broken.map(next).collect();
            match again {
                Some(again) => return Ok(again),
                None => {
                    ensure!(
                        start.elapsed() < AGAIN_TIME_MAX,
                        "executions of a killed worker were not retried"
                    )
                }
            }
        }
    }

    /// For each process of a role, the latest start of anything due while it was stopped and started as an
    /// operator does.
    async fn restarted(&self, what: &'static str, role: Role) -> Result<MeasuredFailover> {
        let (mut worst, mut late, mut all) = (Vec::new(), 0, 0);
        let attempts_before = self.second_attempts()?;
        for member in self.cluster.of(role) {
            let from = now();
            restart(member).await;
            self.aftermath().await;
            let lateness = StartLateness::of(self.lateness(from, now().minus(LATE))?);
            worst.push(lateness.max_ms / 1_000.0);
            late += lateness.late;
            all += lateness.count;
        }
        let again = self.second_attempts()? - attempts_before;
        let note = format!("{late} of {all} starts over 1 s late, {again} ran again");
        Ok(MeasuredFailover::of_seconds(what, worst, note))
    }

    /// The database first, then all processes, as the upgrade guide says.
    async fn upgraded(&self, binary: &Path) -> Result<Vec<MeasuredFailover>> {
        self.cluster.migrate(binary).await?;
        for member in &self.cluster.members {
            member.set_binary(binary);
        }
        self.rolled("rolling upgrade of all").await
    }

    /// All processes in sequence, each as soon as the previous one is ready again.
    async fn rolled(&self, what: &str) -> Result<Vec<MeasuredFailover>> {
        let (from, attempts_before, asked_before) = (now(), self.second_attempts()?, self.load.asked().len());
        for member in &self.cluster.members {
            restart(member).await;
        }
        self.aftermath().await;
        let lateness = StartLateness::of(self.lateness(from, now().minus(LATE))?);
        let asked = self.load.asked().split_off(asked_before);
        let failed = asked.iter().filter(|one| one.failure.is_some()).count();
        let elsewhere = asked.iter().filter(|one| one.failure.is_none() && one.tries > 1).count();
        let again = self.second_attempts()? - attempts_before;
        let took = asked.iter().map(|one| one.until.since(one.from).as_secs_f64()).collect();
        let requests = format!(
            "{failed} of {} requests failed, {elsewhere} were answered by the other node",
            asked.len()
        );
        let starts =
            format!("{} of {} starts over 1 s late, {again} ran again", lateness.late, lateness.count);
        Ok(vec![
            MeasuredFailover::of_seconds(format!("{what}: requests take"), took, requests),
            MeasuredFailover::of_seconds(
                format!("{what}: latest start"),
                vec![lateness.max_ms / 1_000.0],
                starts,
            ),
        ])
    }

    /// Runs that were not the first of their occurrence, except those that follow a failure, which is
    /// intended.
    fn second_attempts(&self) -> Result<usize> {
        let runs = self.recorder.runs()?;
        let failed: BTreeSet<ExecutionId> = runs
            .iter()
            .filter(|run| matches!(run.ended, Some((_, CallOutcome::Failed))))
            .map(|run| run.execution)
            .collect();
        let is_again = |run: &&RecordedRun| {
            run.attempt > 1 && !failed.contains(&run.execution.occurrence.attempt(run.attempt - 1))
        };
        Ok(runs.iter().filter(is_again).count())
    }
}

async fn restart(member: &MemberProcess) {
    member.terminate().await;
    member.start_again().await;
}
