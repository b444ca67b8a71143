//! Timers of systemd with the services that they start.

use super::calendar::{self, CalendarEvent};
use super::fields::seconds;
use super::schedule::{SourceClock, SourceCron, SourceGap};
use super::systemd_unit::{UnitFile, specified, template_of, words};
use super::{Import, ImportContext, ImportEntry, JobDraft, NO_TIMEOUT_SECS, SourceFile};
use punctual_core::limits;
use punctual_core::recurrence::DstOverlap;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Timer settings that count from an event of the machine.
const SINCE_EVENTS: [&str; 3] = ["OnActiveSec", "OnBootSec", "OnStartupSec"];
/// Service settings that a job has, or that change nothing about its runs.
const KNOWN: [&str; 17] = [
    "Type",
    "ExecStart",
    "ExecStartPre",
    "ExecStartPost",
    "User",
    "Group",
    "WorkingDirectory",
    "Environment",
    "EnvironmentFile",
    "TimeoutStartSec",
    "TimeoutSec",
    "RuntimeMaxSec",
    "MemoryMax",
    "StandardOutput",
    "StandardError",
    "SyslogIdentifier",
    "RemainAfterExit",
];

pub fn import(files: &[SourceFile], context: &ImportContext) -> Import {
    let named = |file: &SourceFile| {
        let name = Path::new(&file.name).file_name().map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| file.name.clone())
    };
    let units: BTreeMap<String, UnitFile> =
        files.iter().map(|file| (named(file), UnitFile::parse(&file.text))).collect();
    let mut import = Import::default();
    for file in files {
        let unit = named(file);
        if unit.ends_with(".timer") {
            import.entries.push(timer(&unit, &units, context));
        } else if !unit.ends_with(".service") {
            let entry = ImportEntry::new(&file.name, "");
            import.entries.push(entry.impossible("it is neither a .timer nor a .service file"));
        }
    }
    import.notes.push(format!("times without a zone are in {}; --timezone chooses another", context.zone));
    import.notes.push(
        "as under systemd, a run that is still going on keeps the next one from starting, and failures are not retried"
            .to_owned(),
    );
    import
}

fn timer(unit: &str, units: &BTreeMap<String, UnitFile>, context: &ImportContext) -> ImportEntry {
    let timer = &units[unit];
    let events = timer.all("Timer", "OnCalendar");
    let stem = unit.trim_end_matches(".timer");
    let service_name = timer.last("Timer", "Unit").map_or_else(|| format!("{stem}.service"), str::to_owned);
    let mut entry = ImportEntry::new(unit, told(timer));
    if stem.ends_with('@') {
        return entry.impossible(format!(
            "it is a template: pass a copy for each instance, such as {stem}main.timer next to {stem}.service"
        ));
    }
    let template = || units.get(&template_of(&service_name)?);
    let Some(service) = units.get(&service_name).or_else(template) else {
        return entry.impossible(format!("its service is missing: pass {service_name} as well"));
    };
    let mut job = match command(&service_name, service, &mut entry) {
        Ok(job) => job,
        Err(error) => return entry.impossible(error),
    };
    add_conditions(&[timer, service], &mut entry);
    job.insert("name".to_owned(), json!(stem));
    if timer.is_on("Timer", "Persistent") {
        job.insert("misfire_policy".to_owned(), json!("RUN_ONCE"));
    }
    if let Some(delay) = timer.last("Timer", "RandomizedDelaySec") {
        match calendar::span_seconds(delay) {
            Some(0.0) => {}
            Some(delay) => {
                let most = limits::JITTER_MAX.as_secs_f64();
                if delay > most {
                    entry.changed(
                        "its RandomizedDelaySec is longer than 24 hours, the longest jitter of a job",
                    );
                }
                job.insert("jitter".to_owned(), json!(seconds(delay.min(most))));
            }
            None => return entry.impossible(format!("RandomizedDelaySec={delay} is not a time span")),
        }
    }
    for event in events {
        let mut job = job.clone();
        if let Err(error) = set_calendar(event, &mut job, &mut entry, context) {
            return entry.impossible(format!("OnCalendar={event}: {error}"));
        }
        entry.jobs.push(job);
    }
    if let Err(error) = add_monotonic(timer, &job, &mut entry) {
        return entry.impossible(error);
    }
    if entry.jobs.len() > 1 {
        entry.changed(format!(
            "it becomes {} jobs, one for each of its schedules, which may run at the same time",
            entry.jobs.len()
        ));
    }
    match entry.jobs.is_empty() {
        true if !has_since_events(timer) => entry.impossible("it has neither OnCalendar nor OnUnitActiveSec"),
        true => entry.impossible(
            "it only runs once after the start of the machine or of systemd: submit a job then, from a service",
        ),
        false => entry,
    }
}

/// A unit whose condition does not hold is not started.
fn add_conditions(units: &[&UnitFile], entry: &mut ImportEntry) {
    let mut conditions = Vec::new();
    for unit in units {
        let names =
            unit.names("Unit").filter(|name| name.starts_with("Condition") || name.starts_with("Assert"));
        for name in names {
            conditions.extend(unit.all("Unit", name).iter().map(|value| format!("{name}={value}")));
        }
    }
    if !conditions.is_empty() {
        entry.changed(format!(
            "it runs even if these conditions of systemd do not hold: {}",
            conditions.join(", ")
        ));
    }
}

/// The schedules of a timer in one line.
fn told(timer: &UnitFile) -> String {
    let names = timer.names("Timer").filter(|name| name.starts_with("On"));
    let told =
        names.flat_map(|name| timer.all("Timer", name).iter().map(move |value| format!("{name}={value}")));
    told.collect::<Vec<_>>().join(", ")
}

fn has_since_events(timer: &UnitFile) -> bool {
    SINCE_EVENTS.iter().any(|name| timer.last("Timer", name).is_some())
}

fn set_calendar(
    event: &str,
    job: &mut JobDraft,
    entry: &mut ImportEntry,
    context: &ImportContext,
) -> Result<(), String> {
    let CalendarEvent { pattern, zone } = calendar::parsed(event)?;
    // systemd-analyze calendar shows that skipped times do not run, and repeated ones run the first time.
    let clock = SourceClock::Known { gap: SourceGap::Skip, overlap: DstOverlap::First };
    let source = SourceCron { pattern, zone: zone.unwrap_or_else(|| context.zone.clone()), clock };
    entry.changes.extend(source.apply_to(job, context.now)?);
    Ok(())
}

/// Adds a job with an interval for a timer that counts from its last run.
fn add_monotonic(timer: &UnitFile, job: &JobDraft, entry: &mut ImportEntry) -> Result<(), String> {
    for name in ["OnUnitActiveSec", "OnUnitInactiveSec"] {
        for value in timer.all("Timer", name) {
            let span =
                calendar::span_seconds(value).ok_or_else(|| format!("{name}={value} is not a time span"))?;
            let mut job = job.clone();
            job.insert("interval".to_owned(), json!(seconds(span)));
            let from = if name == "OnUnitActiveSec" { "start" } else { "end" };
            entry.changed(format!(
                "systemd counts {value} from the {from} of the last run; the job runs every {value} from its creation on, \
                 whatever its runs do"
            ));
            entry.jobs.push(job);
        }
    }
    if has_since_events(timer) && !entry.jobs.is_empty() {
        entry.changed(
            "the run after the start of the machine (OnBootSec, OnStartupSec, OnActiveSec) is left out",
        );
    }
    Ok(())
}

/// The job of a service, without its schedule.
fn command(unit: &str, service: &UnitFile, entry: &mut ImportEntry) -> Result<JobDraft, String> {
    let specifier = |error: String| {
        format!("the specifier {error} in {unit} has a value on its machine only: replace it")
    };
    let get = |name: &str| -> Result<Option<String>, String> {
        service.last("Service", name).map(|value| specified(value, unit)).transpose().map_err(specifier)
    };
    let mut lines = Vec::new();
    for name in ["ExecStartPre", "ExecStart", "ExecStartPost"] {
        for line in service.all("Service", name) {
            lines.push(specified(line, unit).map_err(specifier)?);
        }
    }
    if service.all("Service", "ExecStart").is_empty() {
        return Err(format!("{unit} has no ExecStart"));
    }
    let (job_type, mut payload) = program(&lines, entry);
    let mut env = BTreeMap::new();
    for line in service.all("Service", "Environment") {
        for word in words(&specified(line, unit).map_err(specifier)?) {
            if let Some((name, value)) = word.split_once('=') {
                env.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    if !env.is_empty() {
        payload["env"] = json!(env);
    }
    match get("WorkingDirectory")? {
        Some(path) if path.starts_with('/') => payload["cwd"] = json!(path),
        Some(path) => entry
            .changed(format!("WorkingDirectory={path} is left out: write an absolute path as payload.cwd")),
        None => {}
    }
    let memory = get("MemoryMax")?.filter(|limit| limit != "infinity");
    if let Some(limit) = memory {
        payload["limits"] = json!({"memory": limit});
    }
    if let Some(user) = get("User")? {
        entry.changed(format!(
            "it ran as the user {user}; Punctual runs commands as the user of the worker, or by queue as \
             worker.run_as_by_queue says"
        ));
    }
    for file in service.all("Service", "EnvironmentFile") {
        entry.changed(format!(
            "its variables from {file} are left out: add them to payload.env, or read the file in a script"
        ));
    }
    let others: Vec<&str> = service.names("Service").filter(|name| !KNOWN.contains(name)).collect();
    if !others.is_empty() {
        entry.changed(format!("these settings of its service are left out: {}", others.join(", ")));
    }
    let names = ["RuntimeMaxSec", "TimeoutStartSec", "TimeoutSec"];
    let timeout = names.iter().find_map(|name| calendar::span_seconds(service.last("Service", name)?));
    let timeout = timeout.filter(|timeout| *timeout > 0.0).unwrap_or(NO_TIMEOUT_SECS as f64);
    let timeout = timeout.min(NO_TIMEOUT_SECS as f64);
    let fields = json!({
        "job_type": job_type,
        "payload": payload,
        "max_retries": 0,
        "timeout_secs": if timeout.fract() == 0.0 { json!(timeout as u64) } else { json!(timeout) },
    });
    Ok(if let Value::Object(fields) = fields { fields } else { JobDraft::new() })
}

/// The job type and payload of command lines. One line without variables needs no shell.
fn program(lines: &[String], entry: &mut ImportEntry) -> (&'static str, Value) {
    const PREFIXES: [char; 6] = ['@', '-', ':', '+', '!', '|'];
    let bare = |line: &str| line.trim_start_matches(PREFIXES).to_owned();
    let may_fail = |line: &str| line.chars().take_while(|one| PREFIXES.contains(one)).any(|one| one == '-');
    if lines.iter().any(|line| line.starts_with(['+', '!'])) {
        entry.changed(
            "its commands with + or ! ran with all privileges; in Punctual they have those of the worker",
        );
    }
    match lines {
        [line] if !line.contains('$') && !may_fail(line) => {
            ("process", json!({"command": words(&bare(line))}))
        }
        lines => {
            if lines.iter().any(|line| line.contains('$')) {
                entry.changed(
                    "the shell replaces its variables ($NAME) and interprets quotes, instead of systemd",
                );
            }
            let script = lines.iter().map(|line| match may_fail(line) {
                true => format!("{} || true", bare(line)),
                false => bare(line),
            });
            let script = std::iter::once("set -e".to_owned()).chain(script).collect::<Vec<_>>().join("\n");
            ("shell", json!({"script": script}))
        }
    }
}
