//! The schedule of sidekiq-cron: a map of names, or a list, with `cron` and `class`.

use super::fields::text;
use super::kubernetes::with_restricted_steps;
use super::schedule::{SourceClock, SourceCron, check_zone};
use super::{Import, ImportContext, ImportEntry, JobDraft, SourceFile};
use crate::manifest::documents;
use serde_json::{Map, Value, json};
use std::path::Path;

pub fn import(files: &[SourceFile], context: &ImportContext) -> Result<Import, String> {
    let mut import = Import::default();
    for file in files {
        if file.text.contains("<%") {
            return Err(format!("{}: contains ERB (<% … %>): render it first", file.name));
        }
        let read = documents::parsed(Path::new(&file.name), &file.text);
        for document in read.map_err(|error| format!("{}: {error}", file.name))? {
            let value: Value =
                serde_json::from_str(document.get()).map_err(|error| format!("{}: {error}", file.name))?;
            for (name, fields) in named(&value).map_err(|error| format!("{}: {error}", file.name))? {
                import.entries.push(entry(&file.name, &name, &fields, context));
            }
        }
    }
    import.notes.push(format!("times without a zone are in {}; --timezone chooses another", context.zone));
    import.notes.push(
        "each job needs a worker with a handler for its type, the name of the class: see the guide about writing workers. \
         Its arguments are payload.args. Failures are retried as Punctual does by default; Sidekiq's retries are in the class"
            .to_owned(),
    );
    Ok(import)
}

/// An entry and its fields.
type NamedEntry = (String, Map<String, Value>);

/// The entries by name. Keys may be written as symbols.
fn named(value: &Value) -> Result<Vec<NamedEntry>, String> {
    let plain = |fields: &Map<String, Value>| -> Map<String, Value> {
        fields.iter().map(|(name, value)| (name.trim_start_matches(':').to_owned(), value.clone())).collect()
    };
    match value {
        Value::Object(entries) => {
            let entries = entries.iter().map(|(name, fields)| match fields {
                Value::Object(fields) => Ok((name.clone(), plain(fields))),
                _ => Err(format!("{name} must be an object with cron and class")),
            });
            entries.collect()
        }
        Value::Array(entries) => {
            let entries = entries.iter().map(|fields| match fields {
                Value::Object(fields) => {
                    let fields = plain(fields);
                    let name = text(&fields, "name").ok_or("an entry has no name")?;
                    Ok((name, fields))
                }
                _ => Err("an entry is not an object".to_owned()),
            });
            entries.collect()
        }
        _ => Err("must be a map or a list of jobs with cron and class".to_owned()),
    }
}

fn entry(file: &str, name: &str, fields: &Map<String, Value>, context: &ImportContext) -> ImportEntry {
    let cron = text(fields, "cron").unwrap_or_default();
    let mut entry = ImportEntry::new(format!("{file}: {name}"), &cron);
    let Some(class) = text(fields, "class").or_else(|| text(fields, "klass")) else {
        return entry.impossible("it has no class");
    };
    if text(fields, "status").as_deref() == Some("disabled") {
        return entry.impossible("it is disabled, and a file of jobs cannot say that a job is paused");
    }
    let args = match fields.get("args") {
        None | Some(Value::Null) => json!([]),
        Some(list @ Value::Array(_)) => list.clone(),
        Some(one) => json!([one]),
    };
    let mut job = JobDraft::new();
    job.insert("name".to_owned(), json!(name));
    job.insert("job_type".to_owned(), json!(class));
    job.insert("payload".to_owned(), json!({"args": args}));
    job.insert("overlap_policy".to_owned(), json!("ALLOW"));
    if let Some(queue) = text(fields, "queue") {
        job.insert("queue".to_owned(), json!(queue));
    }
    if let Err(error) = set_schedule(&cron, &mut job, &mut entry, context) {
        return entry.impossible(error);
    }
    for name in ["date_as_argument", "symbolize_args"] {
        if text(fields, name).as_deref() == Some("true") {
            entry.changed(format!(
                "{name} is left out: handlers get the scheduled time of the run from Punctual"
            ));
        }
    }
    entry.jobs.push(job);
    entry
}

fn set_schedule(
    cron: &str,
    job: &mut JobDraft,
    entry: &mut ImportEntry,
    context: &ImportContext,
) -> Result<(), String> {
    if cron.is_empty() {
        return Err("it has no cron".to_owned());
    }
    let lower = cron.to_ascii_lowercase();
    if let Some(natural) = lower.strip_prefix("every ") {
        job.insert(
            "interval".to_owned(),
            json!(interval(natural).ok_or_else(|| {
                format!("the schedule \"{cron}\" is in words: write it as a cron expression")
            })?),
        );
        entry.changed(
            "sidekiq-cron runs it at round times; the job runs at this interval from its creation on",
        );
        return Ok(());
    }
    let mut words: Vec<&str> = cron.split_whitespace().collect();
    let mut zone = context.zone.clone();
    if let Some(last) = words.last()
        && words.len() > 1
        && last.starts_with(|one: char| one.is_ascii_alphabetic())
        && last.len() > 3
        && check_zone(last).is_ok()
    {
        zone = (*last).to_owned();
        words.pop();
    }
    if words.iter().any(|word| word.contains('&') || (word.contains('%') && !word.contains('H'))) {
        return Err("& and % in a day field have no equivalent in a cron expression".to_owned());
    }
    let clock = SourceClock::Unknown { program: "sidekiq-cron" };
    let source = SourceCron { pattern: with_restricted_steps(&words), zone, clock };
    entry.changes.extend(source.apply_to(job, context.now)?);
    Ok(())
}

/// `5 minutes` or `hour` as an interval.
fn interval(words: &str) -> Option<String> {
    let words: Vec<&str> = words.split_whitespace().collect();
    let (count, unit) = match words[..] {
        [unit] => (1, unit),
        [count, unit] => (count.parse::<u32>().ok()?, unit),
        _ => return None,
    };
    let unit = match unit.trim_end_matches('s') {
        "second" | "sec" => "s",
        "minute" | "min" => "m",
        "hour" => "h",
        _ => return None,
    };
    Some(format!("{count}{unit}"))
}
