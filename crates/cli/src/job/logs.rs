//! `punctual job logs`: the log of a job's handler.

use crate::job::which;
use crate::reconnect::{RECONNECT_PAUSE, RECONNECT_TIME_MAX};
use punctual_client::{
    Client, ClientError, FollowedLine, FollowedLogs, LogLineBody, LogQuery, LogStreamBody, LogsPage,
};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{Format, OutputArgs, json_line, print_line, time_to_millis, yaml};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use punctual_core::time::Timestamp;
use std::time::Instant;

#[derive(clap::Args)]
pub struct LogsArgs {
    /// The job's id or name, or the id of a single execution
    #[arg(value_name = "JOB|EXECUTION")]
    writer: String,
    /// Keep showing new lines until the job or the execution is finished
    #[arg(short = 'f', long)]
    follow: bool,
    /// Only the last N lines, and with --follow all later ones
    #[arg(long, value_name = "N", value_parser = args::tail)]
    tail: Option<usize>,
    /// Only lines written from this time on, such as 2026-03-29T03:00:00Z
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    since: Option<Timestamp>,
    /// Only lines written before this time
    #[arg(long, value_name = "TIME", value_parser = args::time, conflicts_with = "follow")]
    until: Option<Timestamp>,
    /// Show when each line was written, by which attempt, and to which stream
    #[arg(short = 't', long)]
    timestamps: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: LogsArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let writer = match args.writer.parse() {
        Ok(execution) => LogWriter::Execution(execution),
        Err(_) => LogWriter::Job(which::find(&client, &args.writer).await?),
    };
    if args.follow { follow(&args, &client, writer).await } else { show(&args, &client, writer).await }
}

/// The execution or job whose lines are requested.
#[derive(Clone, Copy)]
enum LogWriter {
    Job(JobId),
    Execution(ExecutionId),
}

impl LogWriter {
    async fn lines(self, client: &Client, query: &LogQuery) -> Result<LogsPage, ClientError> {
        match self {
            LogWriter::Job(job) => client.job_log_lines(job, query).await,
            LogWriter::Execution(execution) => client.execution_log_lines(execution, query).await,
        }
    }

    async fn follow(
        self,
        client: &Client,
        query: &LogQuery,
        after: Option<&str>,
    ) -> Result<FollowedLogs, ClientError> {
        match self {
            LogWriter::Job(job) => client.follow_job_logs(job, query, after).await,
            LogWriter::Execution(execution) => client.follow_execution_logs(execution, query, after).await,
        }
    }
}

impl LogsArgs {
    fn query(&self) -> LogQuery {
        LogQuery { tail: self.tail, since: self.since, until: self.until, ..LogQuery::default() }
    }
}

async fn show(args: &LogsArgs, client: &Client, writer: LogWriter) -> anyhow::Result<Exit> {
    let mut query = LogQuery { limit: Some(limits::PAGE_ITEMS_MAX), ..args.query() };
    let mut all = LogsPage { items: vec![], next_cursor: None, follow_cursor: None, previous_cursor: None };
    let mut is_empty = true;
    loop {
        let page = writer.lines(client, &query).await?;
        is_empty &= page.items.is_empty();
        all.follow_cursor = page.follow_cursor;
        match args.output.format {
            Format::Table => print_lines(args, &page.items)?,
            Format::Json | Format::Yaml => all.items.extend(page.items),
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
        query.tail = None;
    }
    match args.output.is_table() {
        true if is_empty => tell_empty(args),
        true => {}
        false => args.output.print(&all, |_| String::new())?,
    }
    Ok(Exit::Done)
}

/// Says that there are no lines: nothing at all would look like a command that did not work.
fn tell_empty(args: &LogsArgs) {
    let is_part = args.tail == Some(0) || args.since.is_some() || args.until.is_some();
    let why = if is_part { "none match" } else { "nothing was written, or retention has deleted it" };
    eprintln!("note: no lines: {why}");
}

/// Prints line by line: as JSON one object per line, as YAML one list item after the other. If the server
/// becomes unavailable, waits for it, and does not repeat lines.
async fn follow(args: &LogsArgs, client: &Client, writer: LogWriter) -> anyhow::Result<Exit> {
    let mut seen = LogPosition { cursor: None, heard_at: None, is_empty: true };
    let mut client = client.clone();
    loop {
        match follow_once(args, &client, writer, &mut seen).await {
            Ok(Some(exit)) => return Ok(exit),
            Ok(None) => {}
            Err(error) => match error.downcast_ref::<ClientError>() {
                Some(gone) if gone.is_retryable() && seen.is_to_be_waited_for() => {}
                _ => return Err(error),
            },
        }
        tokio::time::sleep(RECONNECT_PAUSE).await;
        // A restarted server may listen on another address.
        client = args.connect.client().unwrap_or(client);
    }
}

/// The position in the log, when the server last responded, and whether no line was printed.
struct LogPosition {
    cursor: Option<String>,
    heard_at: Option<Instant>,
    is_empty: bool,
}

impl LogPosition {
    /// Whether the server has responded before and has not been unavailable for too long.
    fn is_to_be_waited_for(&self) -> bool {
        self.heard_at.is_some_and(|heard_at| heard_at.elapsed() < RECONNECT_TIME_MAX)
    }
}

/// Follows until the end, or until the connection ends (`None`).
async fn follow_once(
    args: &LogsArgs,
    client: &Client,
    writer: LogWriter,
    seen: &mut LogPosition,
) -> anyhow::Result<Option<Exit>> {
    let mut query = args.query();
    query.tail = query.tail.filter(|_| seen.cursor.is_none());
    let mut log = writer.follow(client, &query, seen.cursor.as_deref()).await?;
    seen.heard_at = Some(Instant::now());
    loop {
        let next = log.next().await;
        seen.cursor = log.cursor().map(str::to_owned);
        seen.heard_at = Some(Instant::now());
        match next? {
            Some(FollowedLine::Line(line)) => {
                seen.is_empty = false;
                print_lines(args, &[line])?;
            }
            Some(FollowedLine::End) => {
                if seen.is_empty && args.output.is_table() {
                    tell_empty(args);
                }
                return Ok(Some(Exit::Done));
            }
            None => return Ok(None),
        }
    }
}

fn print_lines(args: &LogsArgs, lines: &[LogLineBody]) -> anyhow::Result<()> {
    for line in lines {
        match args.output.format {
            Format::Json => print_line(&json_line(line)?)?,
            Format::Yaml => print_line(yaml(&[line])?.trim_end())?,
            Format::Table if args.timestamps => print_line(&with_origin(line))?,
            Format::Table => print_line(&plain(line))?,
        }
    }
    Ok(())
}

/// A command's output unchanged; Punctual's own lines are marked.
fn plain(line: &LogLineBody) -> String {
    match line.stream {
        LogStreamBody::Stdout | LogStreamBody::Stderr => line.message.clone(),
        LogStreamBody::Log => format!("[punctual] {}", line.message),
    }
}

fn with_origin(line: &LogLineBody) -> String {
    let stream = match line.stream {
        LogStreamBody::Stdout => "stdout",
        LogStreamBody::Stderr => "stderr",
        LogStreamBody::Log => "log",
    };
    let attempt = line.execution_id.attempt;
    format!("{} #{attempt} {stream:<6} {}", time_to_millis(line.timestamp), line.message)
}
