//! `punctual logs`: searches the logs of all jobs.

use punctual_client::{FoundLine, FoundLogs, LogLevelBody, LogSearch, LogStreamBody};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, one_line, tell, time, time_to_millis};
use punctual_core::time::Timestamp;
use std::time::{Duration, SystemTime};

#[derive(clap::Args)]
pub struct LogsArgs {
    /// Only lines of jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only lines of jobs that this handler runs
    #[arg(long = "type", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// Only lines of jobs of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only lines of jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only lines written from this time on, or within this duration, such as 2h
    #[arg(long, value_name = "TIME|DURATION", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only lines written before this time, or earlier than this duration ago
    #[arg(long, value_name = "TIME|DURATION", value_parser = moment)]
    until: Option<Timestamp>,
    /// Only lines with this text, in any case
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Only lines of this level or a more severe one: debug, info, warn or error
    #[arg(long, value_parser = args::small_word::<LogLevelBody>)]
    level: Option<LogLevelBody>,
    /// How many to show, the latest
    #[arg(long, default_value_t = 100, value_parser = args::limit)]
    limit: usize,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A time, or how long ago it was.
fn moment(text: &str) -> Result<Timestamp, String> {
    let Ok(span) = args::span(text) else { return args::time(text) };
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Ok(Timestamp::from_micros(0).plus(since_epoch).minus(span.get()))
}

pub async fn run(args: LogsArgs) -> anyhow::Result<Exit> {
    let search = LogSearch {
        queue: args.queue,
        job_type: args.job_type,
        owner: args.owner,
        tag: args.tag,
        since: args.since,
        until: args.until,
        grep: args.grep,
        level: args.level,
        limit: Some(args.limit),
    };
    let found = args.connect.client()?.search_logs(&search).await?;
    args.output.print(&found, told)?;
    if let Some(back_to) = found.searched.back_to {
        tell(&format!(
            "note: the search looked at {} executions that ended at or after {}, not at earlier ones: search on with --until {}, or \
             choose a queue or job type",
            found.searched.executions,
            time(back_to),
            back_to
        ));
    }
    Ok(Exit::Done)
}

fn told(found: &FoundLogs) -> String {
    if found.items.is_empty() {
        let searched = &found.searched;
        return format!("no matching line in {} lines of {} executions", searched.lines, searched.executions);
    }
    found.items.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(line: &FoundLine) -> String {
    let kind = match (&line.level, line.stream) {
        (Some(level), _) => level.as_str(),
        (None, LogStreamBody::Stdout) => "stdout",
        (None, LogStreamBody::Stderr) => "stderr",
        (None, LogStreamBody::Log) => "log",
    };
    let when = time_to_millis(line.timestamp);
    format!("{when}  {kind:6}  {}  {}", one_line(&line.job_name), line.message)
}
