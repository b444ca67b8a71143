//! The cost of limits: runs the same jobs without limits and with them, alternating, so that other load on the
//! machine affects both alike.

use crate::bench_server::StageOptions;
use crate::noops::NoOps;
use crate::units::{grouped, percent};
use punctual_client::{SetQueue, StartRate};
use punctual_core::limiter::Rate;
use punctual_core::limits::CONCURRENCY_MAX;
use serde::Serialize;

/// Number of measurements of each variant.
const ROUNDS: usize = 2;
/// The jobs share this many keys.
const KEYS: u64 = 100;
/// The highest rate that can be set; each key uses a small part of it. The queue as a whole has no rate limit,
/// because the highest possible one is below the measured rate.
const KEY_RATE: StartRate = StartRate(Rate { count: 10_000, per_ms: 1_000 });
/// The queue's concurrency limit is this many times the executions that the worker holds, so that the worker never
/// waits for a wait list.
const ROOM_FOR_WORKERS: usize = 5;

/// The remaining throughput when every execution passes the limits of its queue and its key.
#[derive(Debug, Serialize)]
pub struct LimitsReport {
    rounds: usize,
    keys: u64,
    without: QueueSide,
    /// Limits with room for all executions: each is counted, and none waits for long.
    room: LimitedSide,
    /// A queue limit for which most jobs must wait on the wait list.
    line: LimitedSide,
}

/// One variant of the queue settings, over all rounds.
#[derive(Debug, Clone, Default, Serialize)]
struct QueueSide {
    /// Executions that succeeded.
    succeeded: u64,
    /// Jobs that were on a wait list before the drain began.
    in_line: u64,
    submit_per_second: f64,
    drain_per_second: f64,
    drain_per_second_by_round: Vec<f64>,
    together_per_second: f64,
    together_per_second_by_round: Vec<f64>,
    /// CPU time of the server alone, for submit and drain separately and then for both at once.
    drain_server_cpu_ms_per_1000_jobs: f64,
    together_server_cpu_ms_per_1000_jobs: f64,
}

#[derive(Debug, Serialize)]
struct LimitedSide {
    settings: SetQueue,
    #[serde(flatten)]
    side: QueueSide,
    /// The rates as shares of those without limits.
    of_without: LimitedShares,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct LimitedShares {
    submit: f64,
    drain: f64,
    together: f64,
}

/// Measures the same no-ops without limits, with limits that have room, and with a wait list.
pub async fn measure(work: NoOps<'_>) -> anyhow::Result<LimitsReport> {
    let settings = [None, Some(with_room()), Some(with_line(work.stage))];
    let mut sums: [Sum; 3] = Default::default();
    for round in 0..ROUNDS {
        let mut turns: Vec<usize> = (0..settings.len()).collect();
        // Alternate the order, so that a steady change on the machine affects all variants alike.
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let work = NoOps { keys: KEYS, queue: settings[turn].as_ref(), ..work };
            sums[turn].add(work).await?;
        }
    }
    let [without, room, line] = sums.map(|sum| sum.side(work.jobs));
    let [_, with_room, with_line] = settings.map(Option::unwrap_or_default);
    Ok(LimitsReport {
        rounds: ROUNDS,
        keys: KEYS,
        room: LimitedSide::beside(&without, with_room, room),
        line: LimitedSide::beside(&without, with_line, line),
        without,
    })
}

fn with_room() -> SetQueue {
    limits(CONCURRENCY_MAX)
}

fn with_line(stage: StageOptions) -> SetQueue {
    limits(u32::try_from((stage.slots + stage.prefetch) * ROOM_FOR_WORKERS).unwrap_or(CONCURRENCY_MAX))
}

/// A key may use the whole limit of its queue: executions wait for the queue, never for their key.
fn limits(concurrency: u32) -> SetQueue {
    SetQueue {
        concurrency: Some(concurrency),
        key_concurrency: Some(concurrency),
        key_rate: Some(KEY_RATE),
        ..SetQueue::default()
    }
}

/// Totals of one variant so far.
#[derive(Debug, Default)]
struct Sum {
    side: QueueSide,
    submit_seconds: f64,
    drain_seconds: f64,
    together_seconds: f64,
}

impl Sum {
    async fn add(&mut self, work: NoOps<'_>) -> anyhow::Result<()> {
        let (drained, together) = (work.drain().await?, work.together().await?);
        let side = &mut self.side;
        side.succeeded += drained.succeeded + together.succeeded;
        side.in_line = drained.in_line;
        side.drain_per_second_by_round.push(drained.pace.per_second);
        side.together_per_second_by_round.push(together.pace.per_second);
        side.drain_server_cpu_ms_per_1000_jobs += drained.cost.server_cpu_ms_per_1000_jobs / ROUNDS as f64;
        side.together_server_cpu_ms_per_1000_jobs +=
            together.cost.server_cpu_ms_per_1000_jobs / ROUNDS as f64;
        self.submit_seconds += drained.submit_seconds;
        self.drain_seconds += drained.pace.seconds;
        self.together_seconds += together.pace.seconds;
        Ok(())
    }

    fn side(self, jobs: u64) -> QueueSide {
        let rate = |seconds: f64| (jobs * ROUNDS as u64) as f64 / seconds.max(1e-9);
        QueueSide {
            submit_per_second: rate(self.submit_seconds),
            drain_per_second: rate(self.drain_seconds),
            together_per_second: rate(self.together_seconds),
            ..self.side
        }
    }
}

impl LimitedSide {
    fn beside(without: &QueueSide, settings: SetQueue, side: QueueSide) -> Self {
        let of_without = LimitedShares {
            submit: side.submit_per_second / without.submit_per_second,
            drain: side.drain_per_second / without.drain_per_second,
            together: side.together_per_second / without.together_per_second,
        };
        LimitedSide { settings, side, of_without }
    }

    fn describe(&self) -> String {
        let LimitedShares { submit, drain, together } = self.of_without;
        format!(
            "{} of the rate without limits for submits, {} for drains, {} for both at once",
            percent(submit),
            percent(drain),
            percent(together)
        )
    }
}

impl LimitsReport {
    pub fn rows(&self) -> [(&'static str, Option<String>); 5] {
        let rates = |side: &QueueSide| {
            format!(
                "{} jobs/s to submit, {} to drain, {} both at once",
                grouped(side.submit_per_second),
                grouped(side.drain_per_second),
                grouped(side.together_per_second)
            )
        };
        let waiting = format!("; {} wait at first", grouped(self.line.side.in_line as f64));
        [
            ("Without limits", Some(rates(&self.without))),
            ("Limits with room", Some(self.room.describe())),
            ("", Some(rates(&self.room.side))),
            ("Limits with a wait list", Some(self.line.describe())),
            ("", Some(rates(&self.line.side) + &waiting)),
        ]
    }
}
