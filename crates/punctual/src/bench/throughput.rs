//! `punctual bench throughput`.

use crate::args;
use crate::bench::door::Door;
use crate::bench::floor::{self, Floor};
use crate::bench::stage::Stage;
use crate::bench::{PlaceArgs, grouped, machine, per_second, progress};
use crate::exit::Exit;
use crate::output::{OutputArgs, details};
use anyhow::Context;
use punctual_core::job::JobSpec;
use punctual_core::limits::{PAYLOAD_BYTES_MAX, SUBMIT_BATCH_MAX};
use punctual_worker::builtin_executors;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

#[derive(clap::Args)]
pub struct ThroughputArgs {
    /// How many jobs
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Jobs per submit
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=SUBMIT_BATCH_MAX as u64))]
    batch: u64,
    /// Submits under way at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..))]
    submitters: u64,
    /// Handlers that run at once
    #[arg(long, default_value_t = 64, value_parser = args::slots)]
    slots: usize,
    /// Executions held ready beyond the slots
    #[arg(long, default_value_t = 2_000)]
    prefetch: usize,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(2..=PAYLOAD_BYTES_MAX as u64))]
    payload_bytes: u64,
    /// Submit over HTTP on the loopback interface instead of within the process
    #[arg(long)]
    http: bool,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct ThroughputReport {
    jobs: u64,
    http: bool,
    batch: u64,
    submitters: u64,
    slots: usize,
    prefetch: usize,
    payload_bytes: u64,
    submit_per_second: f64,
    drain_per_second: f64,
    /// The rate of the first and the last tenth: whether it gets slower with time. Absent if a tenth was too
    /// short to be measured.
    drain_first_tenth_per_second: Option<f64>,
    drain_last_tenth_per_second: Option<f64>,
    /// The same verbs on the bare store, from one thread, in this run: the better of two measurements. The
    /// engine prepares and follows up on other threads, so it may come out above it.
    floor: Floor,
    submit_of_floor: f64,
    drain_of_floor: f64,
    load_before: f64,
    cpu_ms_per_1000_jobs: f64,
    peak_memory_bytes: u64,
    database_bytes_per_job: f64,
}

pub async fn run(args: ThroughputArgs) -> anyhow::Result<Exit> {
    let stage = Stage::set_up(&args.place).await?;
    let spec = no_op(args.payload_bytes as usize);
    let load_before = machine::load_average();
    let cpu_before = machine::cpu_time();
    let door = if args.http { Door::http(&stage, &spec).await? } else { Door::engine(&stage, &spec) };
    let submit_time = submit_all(&door, &args).await?;
    let drain = drain_all(&stage, &args).await?;
    let cpu = machine::cpu_time() - cpu_before;
    let peak_memory_bytes = machine::peak_memory_bytes()?;
    let database_bytes = directory_bytes(stage.dir())?;
    let floor = measure_floor(&stage, &spec, args.jobs as usize).await?;
    let submit_per_second = per_second(args.jobs, submit_time);
    let drain_per_second = per_second(args.jobs, drain.total);
    let report = ThroughputReport {
        jobs: args.jobs,
        http: args.http,
        batch: args.batch,
        submitters: args.submitters,
        slots: args.slots,
        prefetch: args.prefetch,
        payload_bytes: args.payload_bytes,
        submit_per_second,
        drain_per_second,
        drain_first_tenth_per_second: tenth_per_second(args.jobs, drain.first_tenth),
        drain_last_tenth_per_second: tenth_per_second(args.jobs, drain.last_tenth),
        floor,
        submit_of_floor: submit_per_second / floor.submit_per_second,
        drain_of_floor: drain_per_second / floor.drain_per_second,
        load_before,
        cpu_ms_per_1000_jobs: cpu.as_secs_f64() * 1e6 / args.jobs as f64,
        peak_memory_bytes,
        database_bytes_per_job: database_bytes as f64 / args.jobs as f64,
    };
    args.output.print(&report, describe)?;
    Ok(Exit::Done)
}

/// Looks are some milliseconds apart: the rate of a shorter time than this would be mostly chance.
const TENTH_MIN: Duration = Duration::from_millis(50);

fn tenth_per_second(jobs: u64, time: Duration) -> Option<f64> {
    (time >= TENTH_MIN).then(|| per_second(jobs / 10, time))
}

fn describe(report: &ThroughputReport) -> String {
    let of_floor = |rate: f64, floor: f64, share: f64| {
        format!(
            "{} jobs/s, {:.0} % of the {} of the bare store on one thread",
            grouped(rate),
            share * 100.0,
            grouped(floor)
        )
    };
    details([
        (
            "Jobs",
            Some(format!(
                "{} with {} bytes each{}",
                grouped(report.jobs as f64),
                report.payload_bytes,
                if report.http { ", submitted over HTTP" } else { "" }
            )),
        ),
        (
            "Submit",
            Some(of_floor(report.submit_per_second, report.floor.submit_per_second, report.submit_of_floor)),
        ),
        (
            "Drain",
            Some(of_floor(report.drain_per_second, report.floor.drain_per_second, report.drain_of_floor)),
        ),
        (
            "Drain over time",
            report.drain_first_tenth_per_second.zip(report.drain_last_tenth_per_second).map(
                |(first, last)| {
                    format!("{} jobs/s in the first tenth, {} in the last", grouped(first), grouped(last))
                },
            ),
        ),
        ("CPU", Some(format!("{:.1} ms per 1,000 jobs", report.cpu_ms_per_1000_jobs))),
        ("Peak memory", Some(format!("{:.0} MB", report.peak_memory_bytes as f64 / 1e6))),
        ("Disk", Some(format!("{:.0} bytes per job, history included", report.database_bytes_per_job))),
        ("Busy", machine::busy_warning(report.load_before)),
    ])
}

fn no_op(payload_bytes: usize) -> JobSpec {
    // A JSON string of exactly this size: the quotes count.
    let payload = format!("\"{}\"", "x".repeat(payload_bytes.saturating_sub(2)));
    JobSpec { payload, job_type: "noop".to_owned(), ..JobSpec::named("bench") }
}

async fn submit_all(door: &Door, args: &ThroughputArgs) -> anyhow::Result<Duration> {
    let bar = progress("submitting", args.jobs);
    let start = Instant::now();
    let mut under_way = JoinSet::new();
    let mut left = args.jobs;
    while left > 0 || !under_way.is_empty() {
        while left > 0 && (under_way.len() as u64) < args.submitters {
            let count = left.min(args.batch);
            left -= count;
            let door = door.clone();
            under_way.spawn(async move { door.submit(count as usize).await.map(|()| count) });
        }
        if let Some(done) = under_way.join_next().await {
            bar.inc(done.context("a submit broke off")??);
        }
    }
    let time = start.elapsed();
    bar.finish_and_clear();
    Ok(time)
}

struct DrainTimes {
    total: Duration,
    first_tenth: Duration,
    last_tenth: Duration,
}

/// How often the progress of the drain is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

async fn drain_all(stage: &Stage, args: &ThroughputArgs) -> anyhow::Result<DrainTimes> {
    let bar = progress("draining", args.jobs);
    let start = Instant::now();
    let worker = stage.start_worker(args.slots, args.prefetch, builtin_executors(&stage.host));
    let (mut first_tenth, mut until_last_tenth) = (None, None);
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    let total = loop {
        looks.tick().await;
        let done = stage.engine.counters().succeeded;
        let time = start.elapsed();
        bar.set_position(done);
        if done >= args.jobs / 10 {
            first_tenth.get_or_insert(time);
        }
        if done >= args.jobs - args.jobs / 10 {
            until_last_tenth.get_or_insert(time);
        }
        if done >= args.jobs {
            break time;
        }
    };
    bar.finish_and_clear();
    worker.stop().await?;
    Ok(DrainTimes {
        total,
        first_tenth: first_tenth.unwrap_or(total),
        last_tenth: total.saturating_sub(until_last_tenth.unwrap_or_default()),
    })
}

async fn measure_floor(stage: &Stage, spec: &JobSpec, jobs: usize) -> anyhow::Result<Floor> {
    let bar = progress("floor", 2);
    let (dir, host, spec) = (stage.dir().to_owned(), stage.host.clone(), spec.clone());
    let floor = tokio::task::spawn_blocking(move || {
        let first = floor::measure(&dir, &host, &spec, jobs)?;
        bar.inc(1);
        let second = floor::measure(&dir, &host, &spec, jobs)?;
        bar.finish_and_clear();
        Ok(first.better(second))
    });
    floor.await.context("the floor broke off")?
}

fn directory_bytes(dir: &std::path::Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(dir)? {
        total += entry?.metadata()?.len();
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_that_is_too_short_has_no_rate() {
        assert_eq!(tenth_per_second(1_000, Duration::from_millis(100)), Some(1_000.0));
        assert_eq!(tenth_per_second(1_000, Duration::from_millis(49)), None);
        assert_eq!(tenth_per_second(1_000, Duration::ZERO), None);
    }
}
