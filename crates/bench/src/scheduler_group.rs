//! Several schedulers on one database, each in its own process.

use crate::bench_server::{BenchSite, StageOptions};
use crate::node::ServerPart;
use crate::pace::Pace;
use crate::pipe::{MachineMoment, ServerCounts};
use crate::process_group::{GroupWork, ProcessGroup};
use anyhow::bail;
use punctual_client::host;
use punctual_core::ids::Segment;
use punctual_core::time::Timestamp;
use serde::Serialize;
use std::time::{Duration, Instant};

/// How long the schedulers may take to distribute the segments, and the interval at which that is checked.
const BALANCE_MAX: Duration = Duration::from_secs(60);
const BALANCE_PAUSE: Duration = Duration::from_millis(50);

pub struct SchedulerGroup(ProcessGroup);

/// The result of firing all due times.
#[derive(Debug, Serialize)]
pub struct GroupFires {
    /// From the common due time of all jobs until the last one was fired.
    #[serde(rename = "fires")]
    pub pace: Pace,
    /// Fires of each scheduler.
    pub fired_by: Vec<u64>,
    /// Fires that were rejected because another scheduler had already fired them.
    pub conflicts: u64,
    /// Share of the machine's CPU time in use during the run, by any process.
    pub processors_busy: f64,
    pub scheduler_cpu_ms_per_1000_fires: f64,
}

impl SchedulerGroup {
    /// Starts this many schedulers and waits until each owns its share of the segments. They connect to the database
    /// through `proxy` if it is given.
    pub async fn start(site: &BenchSite, count: u64, proxy: Option<&str>) -> anyhow::Result<Self> {
        let options = StageOptions { part: ServerPart::Scheduler, ..StageOptions::USUAL };
        let mut group = ProcessGroup::start(site, options, count, proxy).await?;
        let gives_up_at = Instant::now() + BALANCE_MAX;
        loop {
            let counts = group.counts().await?;
            if is_balanced(&counts) {
                return Ok(SchedulerGroup(group));
            }
            if Instant::now() > gives_up_at {
                let held: Vec<_> = counts.iter().map(|counts| counts.segments).collect();
                bail!("{count} schedulers have not divided the segments within {BALANCE_MAX:?}: {held:?}");
            }
            tokio::time::sleep(BALANCE_PAUSE).await;
        }
    }

    /// Waits from the due time of the jobs until all of them are fired.
    pub async fn fire(&mut self, jobs: u64, due_at: Timestamp) -> anyhow::Result<GroupFires> {
        let begins_at = MachineMoment::of_due(due_at, host::wall_time());
        tokio::time::sleep(begins_at.since(MachineMoment::now())).await;
        let work = GroupWork { title: "firing", total: jobs, begins_at, done: |counts| counts.fired };
        let fired = self.0.watch(work).await?;
        Ok(GroupFires {
            pace: fired.pace,
            fired_by: fired.counts.iter().map(|counts| counts.fired).collect(),
            conflicts: fired.counts.iter().map(|counts| counts.fire_conflicts).sum(),
            processors_busy: fired.processors_busy,
            scheduler_cpu_ms_per_1000_fires: fired.cpu_ms_per_1000,
        })
    }
}

/// Whether every segment has an owner, and the schedulers own equal numbers of segments, give or take one.
fn is_balanced(counts: &[ServerCounts]) -> bool {
    let held: Option<Vec<u64>> = counts.iter().map(|counts| counts.segments).collect();
    held.is_some_and(|held| {
        let (least, most) = (held.iter().min(), held.iter().max());
        held.iter().sum::<u64>() == u64::from(Segment::COUNT)
            && least.zip(most).is_some_and(|(least, most)| most - least <= 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(segments: Option<u64>) -> ServerCounts {
        ServerCounts {
            at: MachineMoment::from_millis(0),
            succeeded: 0,
            otherwise: 0,
            failed: 0,
            lost: 0,
            fired: 0,
            fire_conflicts: 0,
            segments,
            notified_events: 0,
        }
    }

    #[test]
    fn segments_are_balanced_when_all_are_owned_and_evenly() {
        let balanced =
            |held: &[Option<u64>]| is_balanced(&held.iter().copied().map(counts).collect::<Vec<_>>());
        assert!(balanced(&[Some(64)]));
        assert!(balanced(&[Some(21), Some(22), Some(21)]));
        assert!(!balanced(&[Some(64), None]), "one scheduler has not joined yet");
        assert!(!balanced(&[Some(64), Some(64)]), "both own every segment");
        assert!(!balanced(&[Some(40), Some(24)]));
        assert!(!balanced(&[Some(32), Some(31)]), "one segment has no owner");
    }
}
