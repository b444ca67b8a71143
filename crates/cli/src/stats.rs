//! `punctual stats`.

use crate::pause;
use punctual_client::{LiveBody, LookedAtBody, StatsBody};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, optional_time, table, time};
use std::fmt::Write as _;

#[derive(clap::Args)]
pub struct StatsArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: StatsArgs) -> anyhow::Result<Exit> {
    let stats = args.connect.client()?.stats().await?;
    args.output.print(&stats, stats_table)?;
    Ok(Exit::Done)
}

fn stats_table(stats: &StatsBody) -> String {
    let counted = &stats.counters;
    let counters = [
        ("submitted", counted.submitted),
        ("fired", counted.fired),
        ("skipped", counted.skipped),
        ("succeeded", counted.succeeded),
        ("failed", counted.failed),
        ("timed out", counted.timed_out),
        ("cancelled", counted.cancelled),
        ("expired", counted.expired),
        ("snoozed", counted.snoozed),
        ("lost", counted.lost),
        ("retried", counted.retried),
    ];
    let mut text =
        stats.pause.as_ref().map_or_else(String::new, |pause| format!("{}\n\n", pause::told(pause)));
    text += if stats.looked_at.is_some() { "Your jobs:\n" } else { "Jobs:\n" };
    text += &jobs(stats);
    match (stats.looked_at, stats.processes) {
        (Some(LookedAtBody { jobs, executions, complete: false }), _) => {
            let _ = write!(text, "\n(counted from the latest {jobs} jobs and {executions} live executions)");
        }
        (Some(_), _) => {}
        (None, 0 | 1) => text += "\n\nSince the server started:\n",
        (None, processes) => {
            let _ = write!(text, "\n\nBy {processes} processes, since each of them started:\n");
        }
    }
    if stats.looked_at.is_none() {
        text += &table(
            &["WHAT", "COUNT"],
            counters.into_iter().map(|(what, count)| vec![what.to_owned(), count.to_string()]),
        );
        text += "\n(fired: started by a schedule; immediate jobs are queued without being fired)";
    }
    text += "\n\nLive:\n";
    text += &lanes(stats);
    text += "\n\nWorkers:\n";
    text += &workers(stats);
    if stats.truncated {
        let LiveBody { lanes, sessions, .. } = stats.live;
        let _ = write!(
            text,
            "\n\nthis list is truncated: {lanes} pairs of queue and type are in use and {sessions} workers are connected; \
             `punctual queue list` and `punctual workers list` show all"
        );
    }
    text
}

fn jobs(stats: &StatsBody) -> String {
    let jobs = &stats.jobs;
    let counts = [jobs.active, jobs.paused, jobs.completed, jobs.failed, jobs.cancelled, jobs.dead_letters];
    let headers = ["ACTIVE", "PAUSED", "COMPLETED", "FAILED", "CANCELLED", "DEAD LETTERS"];
    table(&headers, [counts.map(|count| count.to_string()).to_vec()])
}

fn lanes(stats: &StatsBody) -> String {
    if stats.queues.is_empty() {
        return "nothing is waiting or running".to_owned();
    }
    let rows = stats.queues.iter().map(|lane| {
        vec![
            lane.queue.clone(),
            lane.job_type.clone(),
            lane.waiting.to_string(),
            lane.queued.to_string(),
            lane.running.to_string(),
            optional_time(lane.oldest_queued_at),
        ]
    });
    table(&["QUEUE", "TYPE", "WAITING", "QUEUED", "RUNNING", "OLDEST QUEUED"], rows)
}

fn workers(stats: &StatsBody) -> String {
    if stats.workers.is_empty() {
        return "no worker is connected".to_owned();
    }
    let rows = stats.workers.iter().map(|worker| {
        vec![
            worker.worker_id.clone(),
            worker.slots.to_string(),
            worker.job_types.join(", "),
            time(worker.started_at),
        ]
    });
    table(&["WORKER", "SLOTS", "TYPES", "STARTED"], rows)
}
