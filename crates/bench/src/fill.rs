//! `punctual bench fill`: a data directory with a long past, for measurements of a server that starts with it.

use crate::units::{grouped, per_second};
use crate::{JOBS_MAX, progress, space};
use anyhow::Context;
use punctual_client::host;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details};
use punctual_engine::EngineConfig;
use punctual_store::baseline::{Past, RUNS_PER_JOB, RowProgress};
use punctual_store::sqlite::keep_past;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of an execution and of a job without its payload, on disk.
const EXECUTION_BYTES: u64 = 350;
const JOB_BYTES: u64 = 800;
/// The history stays this much below the retention time: a server that starts with it deletes nothing for that long.
const MARGIN: Duration = Duration::from_secs(24 * 3_600);

#[derive(clap::Args)]
pub struct FillArgs {
    /// A directory without jobs; it is created if it does not exist
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// How many finished executions to write, ten of each job, spread over the retention time of the history
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    executions: u64,
    /// Bytes of each job's payload
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(20..=10_000))]
    payload_bytes: u64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct FillReport {
    data_dir: PathBuf,
    jobs: u64,
    executions: u64,
    executions_per_second: f64,
}

pub async fn run(args: FillArgs) -> anyhow::Result<Exit> {
    let FillArgs { data_dir, executions, payload_bytes, output } = args;
    std::fs::create_dir_all(&data_dir).map_err(|error| {
        CliError::cannot_start(format!("--data-dir {}: cannot be created: {error}", data_dir.display()))
    })?;
    let jobs = executions.div_ceil(RUNS_PER_JOB);
    let bytes = executions * EXECUTION_BYTES + jobs * (JOB_BYTES + payload_bytes);
    space::DiskModel::of_dir(&data_dir)
        .must_hold(&format!("--executions {}", grouped(executions as f64)), bytes)?;
    let past = Past {
        executions,
        until: host::wall_time(),
        span: EngineConfig::default().history_kept.saturating_sub(MARGIN),
        payload_bytes: payload_bytes as usize,
    };
    let bar = progress("executions", executions);
    let shown = bar.clone();
    let written: RowProgress = Arc::new(move |rows| shown.inc(rows));
    let (begun, place) = (Instant::now(), data_dir.clone());
    let kept = tokio::task::spawn_blocking(move || keep_past(&place, past, &written)).await;
    bar.finish_and_clear();
    kept.context("writing the history was interrupted")?
        .map_err(|error| CliError::cannot_start(format!("--data-dir: {error}")))?;
    let executions_per_second = per_second(executions, begun.elapsed());
    output.print(&FillReport { data_dir, jobs, executions, executions_per_second }, describe)?;
    Ok(Exit::Done)
}

fn describe(report: &FillReport) -> String {
    let FillReport { data_dir, jobs, executions, executions_per_second } = report;
    details([
        ("Jobs", Some(format!("{}, all finished", grouped(*jobs as f64)))),
        (
            "Executions",
            Some(format!("{}, {} per second", grouped(*executions as f64), grouped(*executions_per_second))),
        ),
        ("Serve", Some(format!("punctual serve --data-dir {}", data_dir.display()))),
    ])
}
