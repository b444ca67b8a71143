//! `punctual job logs`: what a job's handler has written.

use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::job::which;
use crate::output::{Format, OutputArgs, print_raw, print_text, time_to_millis, yaml};
use punctual_client::{Client, ClientError, LogLineBody, LogStreamBody, LogsPage};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::limits;
use std::time::Duration;

/// The shortest and the longest pause between two looks at a log that is followed.
const FOLLOW_PAUSE_MIN: Duration = Duration::from_millis(100);
const FOLLOW_PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub struct LogsArgs {
    /// The job's id or name, or the id of a single execution
    #[arg(value_name = "JOB|EXECUTION")]
    writer: String,
    /// Go on showing what is written until the job, or the execution, is finished
    #[arg(short = 'f', long)]
    follow: bool,
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
        Ok(execution) => Writer::Execution(execution),
        Err(_) => Writer::Job(which::find(&client, &args.writer).await?),
    };
    if args.follow { follow(&args, &client, writer).await } else { show(&args, &client, writer).await }
}

/// Whose lines are meant.
#[derive(Clone, Copy)]
enum Writer {
    Job(JobId),
    Execution(ExecutionId),
}

impl Writer {
    async fn is_finished(self, client: &Client) -> Result<bool, ClientError> {
        Ok(match self {
            Writer::Job(job) => client.job(job).await?.is_finished(),
            Writer::Execution(execution) => client.execution(execution).await?.status.is_finished(),
        })
    }

    async fn lines(self, client: &Client, cursor: Option<&str>) -> Result<LogsPage, ClientError> {
        let limit = Some(limits::PAGE_ITEMS_MAX);
        match self {
            Writer::Job(job) => client.job_logs(job, limit, cursor).await,
            Writer::Execution(execution) => client.execution_logs(execution, limit, cursor).await,
        }
    }
}

async fn show(args: &LogsArgs, client: &Client, writer: Writer) -> anyhow::Result<Exit> {
    let mut cursor: Option<String> = None;
    let mut all = LogsPage { items: vec![], next_cursor: None, follow_cursor: None };
    loop {
        let page = writer.lines(client, cursor.as_deref()).await?;
        all.follow_cursor = page.follow_cursor;
        match args.output.format {
            Format::Table => print_lines(args, &page.items)?,
            Format::Json | Format::Yaml => all.items.extend(page.items),
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !args.output.is_table() {
        args.output.print(&all, |_| String::new())?;
    }
    Ok(Exit::Done)
}

/// Prints line by line: as JSON one object to a line, as YAML one item of a list after the other.
async fn follow(args: &LogsArgs, client: &Client, writer: Writer) -> anyhow::Result<Exit> {
    let mut cursor: Option<String> = None;
    let mut pause = FOLLOW_PAUSE_MIN;
    loop {
        // Asked before the lines are read: what is finished by now has written all of them.
        let is_finished = writer.is_finished(client).await?;
        let page = writer.lines(client, cursor.as_deref()).await?;
        print_lines(args, &page.items)?;
        pause = if page.items.is_empty() { (pause * 2).min(FOLLOW_PAUSE_MAX) } else { FOLLOW_PAUSE_MIN };
        cursor = page.follow_cursor.or(cursor);
        match (page.next_cursor, is_finished) {
            (Some(_), _) => {}
            (None, true) => return Ok(Exit::Done),
            (None, false) => tokio::time::sleep(pause).await,
        }
    }
}

fn print_lines(args: &LogsArgs, lines: &[LogLineBody]) -> anyhow::Result<()> {
    for line in lines {
        match args.output.format {
            Format::Json => print_text(&serde_json::to_string(line)?)?,
            Format::Yaml => print_text(&yaml(&[line])?)?,
            Format::Table if args.timestamps => print_raw(&with_origin(line))?,
            Format::Table => print_raw(&plain(line))?,
        }
    }
    Ok(())
}

/// What a command wrote, as it wrote it; what Punctual says about it is marked as such.
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
