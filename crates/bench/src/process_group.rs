//! Several processes of one kind on one database.

use crate::bench_server::{BenchSite, StageOptions};
use crate::pace::{LOOK_INTERVAL, Pace, PaceProgress, STALL_MAX};
use crate::pipe::{MachineMoment, ServerCounts};
use crate::process::NodeProcess;
use crate::progress;
use crate::usage::Processors;
use anyhow::bail;
use std::time::{Duration, Instant};

pub struct ProcessGroup {
    processes: Vec<NodeProcess>,
}

/// Work that the processes of a group share.
pub struct GroupWork {
    /// Title of the progress bar.
    pub title: &'static str,
    pub total: u64,
    pub begins_at: MachineMoment,
    /// What one process has done of it.
    pub done: fn(&ServerCounts) -> u64,
}

/// How a group did its work.
pub struct GroupPace {
    pub pace: Pace,
    /// The counters of each process at the end.
    pub counts: Vec<ServerCounts>,
    /// Share of the machine's CPU time in use during the run, by any process.
    pub processors_busy: f64,
    pub cpu_ms_per_1000: f64,
}

impl ProcessGroup {
    /// Starts this many processes, which connect to the database through `proxy` if it is given.
    pub async fn start(
        site: &BenchSite,
        options: StageOptions,
        count: u64,
        proxy: Option<&str>,
    ) -> anyhow::Result<Self> {
        let mut group = ProcessGroup { processes: Vec::new() };
        for _ in 0..count {
            group.processes.push(site.launch(options, proxy).await?.process);
        }
        Ok(group)
    }

    pub async fn counts(&mut self) -> anyhow::Result<Vec<ServerCounts>> {
        let mut all = Vec::with_capacity(self.processes.len());
        for process in &mut self.processes {
            all.push(process.counts().await?);
        }
        Ok(all)
    }

    /// The names of their workers.
    pub fn workers(&self) -> Vec<String> {
        self.processes.iter().map(NodeProcess::worker).collect()
    }

    /// Waits until the group has done all of the work.
    pub async fn watch(&mut self, work: GroupWork) -> anyhow::Result<GroupPace> {
        let GroupWork { title, total, begins_at, done } = work;
        let (before, cpu_before) = (Processors::now()?, self.cpu()?);
        let bar = progress(title, total);
        let mut looks = vec![PaceProgress { after: Duration::ZERO, done: 0 }];
        let mut interval = tokio::time::interval(LOOK_INTERVAL);
        let mut last_progress = Instant::now();
        let counts = loop {
            interval.tick().await;
            let counts = self.counts().await?;
            let sum: u64 = counts.iter().map(done).sum();
            if looks.last().is_none_or(|look| sum > look.done) {
                last_progress = Instant::now();
                let at = counts.iter().map(|counts| counts.at).max().unwrap_or(begins_at);
                looks.push(PaceProgress { after: at.since(begins_at), done: sum });
                bar.set_position(sum);
            }
            if sum >= total {
                break counts;
            }
            if last_progress.elapsed() > STALL_MAX {
                bail!("{title}: only {sum} of {total} are done, and no more for {STALL_MAX:?}");
            }
        };
        bar.finish_and_clear();
        let cpu = self.cpu()?.saturating_sub(cpu_before);
        Ok(GroupPace {
            pace: Pace::of(&looks),
            counts,
            processors_busy: Processors::now()?.busy_since(before),
            cpu_ms_per_1000: cpu.as_secs_f64() * 1e6 / total.max(1) as f64,
        })
    }

    /// CPU time that all processes have used.
    fn cpu(&self) -> anyhow::Result<Duration> {
        self.processes.iter().map(|process| Ok(process.usage()?.cpu)).sum()
    }
}
