//! `punctual import`: schedules of other programs as a file that `punctual apply` reads, with a report of every
//! entry. Each format has a module of pure functions from texts to entries; this one reads and writes.

mod calendar;
mod celery;
mod crontab;
mod fields;
mod kubernetes;
mod python;
mod quartz;
mod quartz_cron;
mod report;
mod schedule;
mod sidekiq;
mod systemd;
mod systemd_unit;
#[cfg(test)]
mod tests;

use crate::apply;
use crate::export::{ExportedFile, FileFormat, in_order};
use crate::manifest::{Manifest, RawObject, documents, substitution};
use anyhow::Context;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{Format, OutputArgs, print_text, tell, yaml};
use punctual_core::names::name_problem;
use punctual_core::time::Timestamp;
use schedule::FireTables;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The longest time limit that a job can have, for programs that have none.
const NO_TIMEOUT_SECS: u64 = punctual_core::limits::TIMEOUT_MAX.as_secs();

#[derive(clap::Args)]
pub struct ImportArgs {
    /// Where the files come from
    #[arg(value_enum)]
    kind: SourceKind,
    /// The files to import (- for standard input)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Time zone of entries that name none; by default the zone of this machine, for Kubernetes and Celery UTC
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// The label of the jobs, which `apply --prune` needs
    #[arg(long, value_name = "NAME")]
    managed_by: Option<String>,
    /// The queue of jobs whose entries name none
    #[arg(long)]
    queue: Option<String>,
    /// The sixth column of a crontab is a user, as in /etc/crontab; assumed for that file and for directories named cron.d
    #[arg(long)]
    system: bool,
    /// Write the jobs to this file, and the report to standard output
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Write the report to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Create or update the jobs at once, as `punctual apply` does
    #[arg(long, conflicts_with = "write")]
    apply: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Format of the jobs
    #[arg(short = 'o', long = "output", value_enum, default_value_t)]
    format: FileFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SourceKind {
    /// A crontab of a user or of the system
    Crontab,
    /// systemd timers, with their services
    Systemd,
    /// Manifests with CronJobs
    #[value(alias = "k8s")]
    Kubernetes,
    /// The YAML file of sidekiq-cron
    SidekiqCron,
    /// The beat_schedule of Celery, as Python or JSON
    CeleryBeat,
    /// The XML file of Quartz with jobs and triggers
    Quartz,
}

/// A file to import.
pub struct SourceFile {
    /// Its path, for messages.
    pub name: String,
    pub text: String,
}

/// What all formats need to know.
pub struct ImportContext {
    /// The zone of entries that name none.
    pub zone: String,
    pub now: Timestamp,
    /// Whether each line of a crontab has a user.
    pub has_users: bool,
}

/// What files contain: entries that become jobs, or do not.
#[derive(Default, Serialize)]
pub struct Import {
    /// Remarks about all entries.
    pub notes: Vec<String>,
    pub entries: Vec<ImportEntry>,
}

/// What became of one entry.
#[derive(Serialize)]
pub struct ImportEntry {
    /// File, and line or name.
    pub place: String,
    /// The schedule, or the first line, as written.
    pub source: String,
    /// The names of its jobs.
    #[serde(serialize_with = "names_alone")]
    pub jobs: Vec<JobDraft>,
    pub changes: Vec<MeaningChange>,
    /// Why no job can do the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impossible: Option<String>,
}

/// A job under construction: its fields.
pub type JobDraft = Map<String, Value>;

/// A difference between what an entry means and what its jobs do.
#[derive(Debug, PartialEq, Serialize)]
pub struct MeaningChange {
    pub what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fires: Option<FireTables>,
}

impl ImportEntry {
    pub fn new(place: impl Into<String>, source: impl Into<String>) -> Self {
        let (place, source) = (place.into(), source.into());
        ImportEntry { place, source, jobs: vec![], changes: vec![], impossible: None }
    }

    pub fn changed(&mut self, what: impl Into<String>) {
        self.changes.push(MeaningChange { what: what.into(), fires: None });
    }

    /// An entry without jobs.
    pub fn impossible(mut self, why: impl Into<String>) -> Self {
        self.jobs.clear();
        self.changes.clear();
        self.impossible = Some(why.into());
        self
    }
}

fn names_alone<S: serde::Serializer>(jobs: &[JobDraft], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(jobs.iter().map(|job| job.get("name")))
}

pub async fn run(args: ImportArgs) -> anyhow::Result<Exit> {
    let files = sources(&args)?;
    let context = ImportContext {
        zone: zone(&args)?,
        now: now(),
        has_users: args.system || args.files.iter().any(|file| is_of_system(file)),
    };
    let mut import = imported(args.kind, &files, &context).map_err(CliError::refused)?;
    finish(&mut import, args.queue.as_deref());
    let told = report::told(&import, args.kind.word());
    if let Some(file) = &args.report {
        write(file, &serde_json::to_string_pretty(&import)?)?;
    }
    let jobs = import.entries.iter().flat_map(|entry| &entry.jobs);
    let jobs = jobs.map(file_entry).collect::<Result<Vec<_>, _>>()?;
    let file = ExportedFile { managed_by: args.managed_by.clone(), jobs, ..ExportedFile::default() };
    if args.apply {
        tell(&told);
        return apply_file(&args, &file).await;
    }
    match &args.write {
        Some(path) => {
            let text = match args.format {
                FileFormat::Yaml => yaml(&file)?,
                FileFormat::Json => serde_json::to_string_pretty(&file)?,
            };
            write(path, &text)?;
            print_text(&told)?;
        }
        None => {
            tell(&told);
            OutputArgs::from(Format::from(args.format)).print(&file, |_| String::new())?;
        }
    }
    Ok(Exit::Done)
}

/// The entries of files in this format. An error concerns a whole file.
fn imported(kind: SourceKind, files: &[SourceFile], context: &ImportContext) -> Result<Import, String> {
    match kind {
        SourceKind::Crontab => Ok(crontab::import(files, context)),
        SourceKind::Systemd => Ok(systemd::import(files, context)),
        SourceKind::Kubernetes => kubernetes::import(files, context),
        SourceKind::SidekiqCron => sidekiq::import(files, context),
        SourceKind::CeleryBeat => celery::import(files, context),
        SourceKind::Quartz => quartz::import(files, context),
    }
}

impl SourceKind {
    const fn word(self) -> &'static str {
        match self {
            SourceKind::Crontab => "cron",
            SourceKind::Systemd => "systemd",
            SourceKind::Kubernetes => "Kubernetes",
            SourceKind::SidekiqCron => "sidekiq-cron",
            SourceKind::CeleryBeat => "Celery",
            SourceKind::Quartz => "Quartz",
        }
    }
}

/// Gives every job a name of its own, and its queue.
fn finish(import: &mut Import, queue: Option<&str>) {
    let mut names = BTreeSet::new();
    for job in import.entries.iter_mut().flat_map(|entry| &mut entry.jobs) {
        let name = job.get("name").and_then(Value::as_str).unwrap_or_default();
        let name: String = name.chars().filter(|one| !one.is_control()).collect();
        let mut name = name.trim().to_owned();
        while name_problem(&name).is_some_and(|_| name.len() > 100) {
            name.pop();
        }
        if name_problem(&name).is_some() {
            name = "imported".to_owned();
        }
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !names.contains(name));
        let name = free.unwrap_or(name);
        names.insert(name.clone());
        job.insert("name".to_owned(), Value::from(name));
        if let (Some(queue), None) = (queue, job.get("queue")) {
            job.insert("queue".to_owned(), Value::from(queue));
        }
    }
}

/// A job as a file has it: its texts are literal.
fn file_entry(job: &JobDraft) -> anyhow::Result<RawObject> {
    let mut fields: RawObject = serde_json::from_str(&serde_json::to_string(job)?)?;
    for (_, value) in fields.iter_mut() {
        *value = substitution::escaped(value).map_err(anyhow::Error::msg)?;
    }
    Ok(in_order(fields))
}

async fn apply_file(args: &ImportArgs, file: &ExportedFile) -> anyhow::Result<Exit> {
    if file.jobs.is_empty() {
        return Err(CliError::refused("there is no job to apply").into());
    }
    let client = args.connect.client()?;
    let me = client.me().await?;
    let manifest = Manifest::of_document("import", &serde_json::value::to_raw_value(file)?, &me.owner_id)?;
    apply::carry_out(&client, &me, &manifest, false, OutputArgs::from(Format::Table)).await
}

fn sources(args: &ImportArgs) -> anyhow::Result<Vec<SourceFile>> {
    let mut paths = args.files.clone();
    if args.kind == SourceKind::Systemd {
        // The service of a timer is usually next to it.
        let services = args.files.iter().filter_map(|file| service_of(file));
        let missing: BTreeSet<PathBuf> = services.filter(|service| !paths.contains(service)).collect();
        paths.extend(missing);
    }
    let read =
        |path: &PathBuf| Ok(SourceFile { name: path.display().to_string(), text: documents::text_of(path)? });
    paths.iter().map(read).collect()
}

/// The file of the service next to a timer, or that of its template.
fn service_of(timer: &Path) -> Option<PathBuf> {
    let service = timer.with_extension("service");
    let name = service.file_name()?.to_string_lossy().into_owned();
    let template = systemd_unit::template_of(&name).map(|template| service.with_file_name(template));
    [Some(service), template].into_iter().flatten().find(|file| file.is_file())
}

/// Whether the lines of a crontab have a column for users.
fn is_of_system(file: &Path) -> bool {
    file == Path::new("/etc/crontab") || file.parent().is_some_and(|parent| parent.ends_with("cron.d"))
}

fn zone(args: &ImportArgs) -> anyhow::Result<String> {
    if let Some(zone) = &args.timezone {
        schedule::check_zone(zone).map_err(|error| CliError::refused(format!("--timezone: {error}")))?;
        return Ok(zone.clone());
    }
    Ok(match args.kind {
        SourceKind::Kubernetes | SourceKind::CeleryBeat => "UTC".to_owned(),
        _ => zone_of_machine().unwrap_or_else(|| "UTC".to_owned()),
    })
}

/// The zone of this machine, as cron and systemd find it.
fn zone_of_machine() -> Option<String> {
    let from_variable = std::env::var("TZ").ok().map(|zone| zone.trim_start_matches(':').to_owned());
    let from_link = || {
        let link = std::fs::read_link("/etc/localtime").ok()?;
        let (_, zone) = link.to_str()?.split_once("zoneinfo/")?;
        Some(zone.to_owned())
    };
    let from_file = || Some(std::fs::read_to_string("/etc/timezone").ok()?.trim().to_owned());
    let candidates = [from_variable, from_link(), from_file()].into_iter().flatten();
    candidates.into_iter().find(|zone| schedule::check_zone(zone).is_ok())
}

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(0).plus(since)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
