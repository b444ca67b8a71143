//! `punctual calendar`: days and times at which jobs do not run, or at which alone they run.

use crate::list_args::ListArgs;
use clap::Subcommand;
use punctual_client::{CalendarBody, CalendarEntryBody, Page, SetCalendar};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, shortened, table, tell};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum CalendarCommand {
    /// List calendars
    List(ListArgs),
    /// Show a calendar with its entries
    Show(NameArgs),
    /// Create or replace a calendar
    Set(SetArgs),
    /// Create or replace a calendar from the events of an iCalendar file (.ics)
    Import(ImportArgs),
    /// Remove a calendar that no unfinished job, rule or channel uses
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub struct NameArgs {
    /// The calendar's name
    #[arg(value_name = "CALENDAR")]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The calendar's name
    #[arg(value_name = "CALENDAR")]
    name: String,
    /// Remove it although jobs, rules or channels use it; they go on without it
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What every calendar has.
#[derive(clap::Args)]
struct AboutArgs {
    /// The calendar's name
    #[arg(value_name = "CALENDAR")]
    name: String,
    /// Time zone of its days and times, such as Europe/Berlin; by default UTC
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// Let jobs run only at these times, instead of at all others
    #[arg(long)]
    only: bool,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct SetArgs {
    #[command(flatten)]
    about: AboutArgs,
    #[command(flatten)]
    times: TimeArgs,
}

/// At least one of these.
#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct TimeArgs {
    /// Weekdays, such as SAT or MON-FRI; can be given more than once
    #[arg(long = "weekday", value_name = "DAYS")]
    weekdays: Vec<String>,
    /// A date, such as 2026-12-25, 2026-12-24/2026-12-31 or, every year, 12-25; can be given more than once
    #[arg(long = "date", value_name = "DATE")]
    dates: Vec<String>,
    /// Times of day, such as 09:00-17:30; with weekdays or dates, only on these; can be given more than once
    #[arg(long = "time", value_name = "TIMES")]
    times: Vec<String>,
    /// A file with the whole calendar as JSON, as `punctual calendar show -o json` prints it
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with_all = ["weekdays", "dates", "times"])]
    file: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct ImportArgs {
    #[command(flatten)]
    about: AboutArgs,
    /// The iCalendar file
    #[arg(long, short = 'f', value_name = "FILE")]
    file: PathBuf,
}

pub async fn run(command: CalendarCommand) -> anyhow::Result<Exit> {
    match command {
        CalendarCommand::List(args) => {
            let page = args.connect.client()?.calendars().await?;
            args.output.print(&page, calendars_table)?;
            Ok(Exit::Done)
        }
        CalendarCommand::Show(args) => {
            let calendar = args.connect.client()?.calendar(&args.name).await?;
            args.output.print(&calendar, details)?;
            Ok(Exit::Done)
        }
        CalendarCommand::Set(SetArgs { about, times }) => {
            let calendar = match &times.file {
                Some(file) => from_file(file)?,
                None => SetCalendar { entries: Some(times.entries()), ..SetCalendar::default() },
            };
            about.put(calendar).await
        }
        CalendarCommand::Import(ImportArgs { about, file }) => {
            let text = read(&file)?;
            about.put(SetCalendar { icalendar: Some(text), ..SetCalendar::default() }).await
        }
        CalendarCommand::Remove(args) => {
            let client = args.connect.client()?;
            match args.force {
                true => client.remove_calendar_in_use(&args.name).await?,
                false => client.remove_calendar(&args.name).await?,
            }
            tell(&format!("removed calendar {}", args.name));
            Ok(Exit::Done)
        }
    }
}

fn read(file: &PathBuf) -> anyhow::Result<String> {
    std::fs::read_to_string(file).map_err(|error| anyhow::anyhow!("cannot read {}: {error}", file.display()))
}

fn from_file(file: &PathBuf) -> anyhow::Result<SetCalendar> {
    let invalid = |error| anyhow::anyhow!("{} is not a calendar: {error}", file.display());
    let stored: CalendarFile = serde_json::from_str(&read(file)?).map_err(invalid)?;
    let CalendarFile { description, timezone, mode, entries } = stored;
    Ok(SetCalendar { description, timezone, mode, entries: Some(entries), icalendar: None })
}

/// A calendar as shown; what the server adds is ignored.
#[derive(serde::Deserialize)]
struct CalendarFile {
    description: Option<String>,
    timezone: Option<String>,
    mode: Option<String>,
    entries: Vec<CalendarEntryBody>,
}

impl TimeArgs {
    /// Weekdays and dates are alternatives; times restrict both.
    fn entries(&self) -> Vec<CalendarEntryBody> {
        let times = &self.times;
        let mut entries = Vec::new();
        let mut add = |weekdays: &[String], dates: &[String]| {
            let (weekdays, dates) = (weekdays.to_vec(), dates.to_vec());
            entries.push(CalendarEntryBody { summary: None, weekdays, dates, times: times.clone() });
        };
        if !self.weekdays.is_empty() {
            add(&self.weekdays, &[]);
        }
        if !self.dates.is_empty() || self.weekdays.is_empty() {
            add(&[], &self.dates);
        }
        entries
    }
}

impl AboutArgs {
    async fn put(self, calendar: SetCalendar) -> anyhow::Result<Exit> {
        let calendar = SetCalendar {
            description: self.description.or(calendar.description),
            timezone: self.timezone.or(calendar.timezone),
            mode: self.only.then(|| "only".to_owned()).or(calendar.mode),
            ..calendar
        };
        let stored = self.connect.client()?.set_calendar(&self.name, &calendar).await?;
        for event in &stored.skipped_events {
            let summary = event.summary.as_deref().unwrap_or("(no summary)");
            let what =
                if event.imported_until.is_some() { "is in the calendar without" } else { "was left out:" };
            tell(&format!("warning: line {}: {summary} {what} {}", event.line, event.reason));
        }
        let is_whole = stored.skipped_events.iter().all(|event| event.imported_until.is_some());
        self.output.print(&stored, |calendar| {
            format!(
                "set calendar {} (version {}, {} entries)",
                calendar.name,
                calendar.version,
                calendar.entries.len()
            )
        })?;
        Ok(if is_whole { Exit::Done } else { Exit::Refused })
    }
}

fn calendars_table(page: &Page<CalendarBody>) -> String {
    if page.items.is_empty() {
        return "no calendars".to_owned();
    }
    let row = |calendar: &CalendarBody| {
        vec![
            calendar.name.clone(),
            calendar.mode.clone(),
            calendar.timezone.clone(),
            calendar.entries.len().to_string(),
            shortened(calendar.description.as_deref().unwrap_or("-"), 60),
        ]
    };
    table(&["CALENDAR", "MODE", "TIME ZONE", "ENTRIES", "DESCRIPTION"], page.items.iter().map(row))
}

fn details(calendar: &CalendarBody) -> String {
    let said = match calendar.mode.as_str() {
        "only" => "jobs run only at these times",
        _ => "jobs do not run at these times",
    };
    let words =
        |list: &[String]| if list.is_empty() { "-".to_owned() } else { shortened(&list.join(", "), 60) };
    let row = |entry: &CalendarEntryBody| {
        let summary = entry.summary.clone().unwrap_or_else(|| "-".to_owned());
        vec![words(&entry.weekdays), words(&entry.dates), words(&entry.times), shortened(&summary, 40)]
    };
    let table = table(&["WEEKDAYS", "DATES", "TIMES", "SUMMARY"], calendar.entries.iter().map(row));
    format!("{} (version {}): {said}, {}\n\n{table}", calendar.name, calendar.version, calendar.timezone)
}
