//! `punctual schedule`: previews a recurring schedule without a job.

use crate::job::fields::given;
use clap::Subcommand;
use punctual_client::{OccurrencePreview, PreviewBody, PreviewRequest, Span};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, table, time, time_to_millis};
use punctual_core::recurrence::{DstEffect, DstGap, DstOverlap};
use punctual_core::time::Timestamp;

#[derive(Subcommand)]
pub enum ScheduleCommand {
    /// Describe a schedule and show its next fire times
    Preview(PreviewArgs),
}

#[derive(clap::Args)]
pub struct PreviewArgs {
    #[command(flatten)]
    pattern: PatternArgs,
    /// Time zone of the schedule, such as Europe/Berlin; by default UTC
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// How to handle local times that a DST change skips: SKIP or RUN_AFTER
    #[arg(long, value_name = "CHOICE", value_parser = args::word::<DstGap>)]
    dst_gap: Option<DstGap>,
    /// When to run at local times that a DST change repeats: FIRST, SECOND or BOTH
    #[arg(long, value_name = "CHOICE", value_parser = args::word::<DstOverlap>)]
    dst_overlap: Option<DstOverlap>,
    /// A calendar of the server; can be given more than once. Times that it excludes are marked
    #[arg(long = "calendar", value_name = "NAME")]
    calendars: Vec<String>,
    /// Count an interval from this time, and show no runs before it
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    start_at: Option<Timestamp>,
    /// Show no runs after this time
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    end_at: Option<Timestamp>,
    /// Show no more than this many runs
    #[arg(long, value_name = "COUNT")]
    max_runs: Option<u32>,
    /// Spread the starts over this time; the preview says only by how much
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    jitter: Option<Span>,
    /// The name of the planned job: with its owner it determines the value of H
    #[arg(long)]
    name: Option<String>,
    /// The owner of the planned job
    #[arg(long)]
    owner: Option<String>,
    /// Show runs after this time; by default now
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    after: Option<Timestamp>,
    /// How many to show
    #[arg(long, default_value_t = 10)]
    count: usize,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// One of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct PatternArgs {
    /// A cron expression, such as "30 2 * * MON-FRI"
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// An interval, such as 90s, 1h or daily
    #[arg(long, value_name = "INTERVAL")]
    every: Option<String>,
    /// A recurrence rule of RFC 5545, such as "FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=0"
    #[arg(long, value_name = "RULE")]
    rrule: Option<String>,
}

impl PatternArgs {
    /// Whether its times depend on the job.
    fn has_hash(&self) -> bool {
        let mut words =
            self.cron.iter().flat_map(|cron| cron.split(|letter: char| !letter.is_alphanumeric()));
        words.any(|word| word.eq_ignore_ascii_case("H"))
    }
}

pub async fn run(command: ScheduleCommand) -> anyhow::Result<Exit> {
    let ScheduleCommand::Preview(args) = command;
    let lacks_name = args.pattern.has_hash() && args.name.is_none();
    let request = PreviewRequest {
        cron_expression: args.pattern.cron,
        interval: args.pattern.every,
        rrule: args.pattern.rrule,
        calendars: given(&args.calendars),
        calendar: None,
        schedules: None,
        timezone: args.timezone,
        dst_gap: args.dst_gap,
        dst_overlap: args.dst_overlap,
        start_at: args.start_at,
        end_at: args.end_at,
        max_runs: args.max_runs,
        jitter: args.jitter,
        name: args.name,
        owner_id: args.owner,
        after: args.after,
        count: Some(args.count),
    };
    let preview = args.connect.client()?.preview(&request).await?;
    args.output.print(&preview, preview_table)?;
    if lacks_name {
        eprintln!(
            "note: the value of H depends on the job's name and owner: pass --name, and --owner if there is one"
        );
    }
    Ok(Exit::Done)
}

fn preview_table(preview: &PreviewBody) -> String {
    if preview.occurrences.is_empty() {
        return format!("{}\n\nno runs", preview.description);
    }
    let table = table(&["UTC", "LOCAL", "CLOCK CHANGE"], occurrence_rows(&preview.occurrences));
    format!("{}\n\n{table}", preview.description)
}

/// Each with its time in UTC, its local time, and how a clock change affects it.
pub fn occurrence_rows(occurrences: &[OccurrencePreview]) -> Vec<Vec<String>> {
    let to_millis = occurrences.iter().any(|occurrence| millis(occurrence.scheduled_time) > 0);
    let rows = occurrences.iter().map(|occurrence| {
        let effect = match (&occurrence.excluded_by, occurrence.dst) {
            (Some(calendar), _) => format!("skipped: calendar {calendar}"),
            (None, None) => String::new(),
            (None, Some(DstEffect::RunAfterGap)) => "skipped by a DST change: runs right after".to_owned(),
            (None, Some(DstEffect::OverlapFirst)) => "repeated by a DST change: the first".to_owned(),
            (None, Some(DstEffect::OverlapSecond)) => "repeated by a DST change: the second".to_owned(),
        };
        let (utc, local) = (occurrence.scheduled_time, &occurrence.local_time);
        let (utc, local) = match to_millis {
            true => (time_to_millis(utc), local_time(local, utc)),
            false => (time(utc), local.clone()),
        };
        vec![utc, local, effect]
    });
    rows.collect()
}

/// Milliseconds within the second.
fn millis(time: Timestamp) -> i64 {
    time.as_micros().rem_euclid(1_000_000) / 1_000
}

/// A local time such as `2026-11-15T08:30:00.5+01:00` with all its milliseconds, which are the same in UTC.
fn local_time(local: &str, utc: Timestamp) -> String {
    let date_and_time = "2026-11-15T08:30:00".len();
    let Some((start, rest)) = local.split_at_checked(date_and_time) else { return local.to_owned() };
    let zone = rest.trim_start_matches(|letter: char| letter == '.' || letter.is_ascii_digit());
    format!("{start}.{:03}{zone}", millis(utc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_and_local_times_are_equally_exact_and_a_schedule_without_runs_says_so() {
        let occurrence = |utc: &str, local: &str| OccurrencePreview {
            scheduled_time: utc.parse().unwrap(),
            local_time: local.to_owned(),
            dst: None,
            due_at: None,
            schedule: None,
            excluded_by: None,
        };
        let body = |occurrences| PreviewBody {
            description: "Every day".to_owned(),
            dst_gap: None,
            dst_overlap: None,
            occurrences,
        };
        let shown = |occurrences| {
            preview_table(&body(occurrences)).lines().skip(3).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(preview_table(&body(vec![])), "Every day\n\nno runs");
        let whole = occurrence("2026-11-15T08:30:00Z", "2026-11-15T09:30:00+01:00");
        assert_eq!(shown(vec![whole.clone()]), ["2026-11-15T08:30:00Z  2026-11-15T09:30:00+01:00"]);
        let part = occurrence("2026-11-15T08:30:00.144219Z", "2026-11-15T09:30:00.144219+01:00");
        assert_eq!(
            shown(vec![whole, part]),
            [
                "2026-11-15T08:30:00.000Z  2026-11-15T09:30:00.000+01:00",
                "2026-11-15T08:30:00.144Z  2026-11-15T09:30:00.144+01:00"
            ]
        );
    }
}
