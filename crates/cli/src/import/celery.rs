//! The schedule of Celery beat: the dictionary `beat_schedule` of a Python file, or the same as JSON.

use super::fields::{seconds, text};
use super::python::{self, PythonValue};
use super::schedule::{SourceClock, SourceCron, both_days, check_zone};
use super::{Import, ImportContext, ImportEntry, JobDraft, NO_TIMEOUT_SECS, SourceFile};
use serde_json::{Map, Value, json};

/// The names of the schedule in Python files, with and without Django's prefix.
const SCHEDULES: [&str; 3] = ["beat_schedule", "CELERY_BEAT_SCHEDULE", "CELERYBEAT_SCHEDULE"];
const ZONES: [&str; 2] = ["timezone", "CELERY_TIMEZONE"];
/// The fields of `crontab(…)`, in its order, and their places in a cron expression.
const FIELDS: [(&str, usize); 5] =
    [("minute", 0), ("hour", 1), ("day_of_week", 4), ("day_of_month", 2), ("month_of_year", 3)];

pub fn import(files: &[SourceFile], context: &ImportContext) -> Result<Import, String> {
    let mut import = Import::default();
    for file in files {
        let in_file = |error: String| format!("{}: {error}", file.name);
        let (schedule, zone) = match file.text.trim_start().starts_with('{') {
            // JSON is read as Python: only its constants have other names, and none of them is needed.
            true => {
                let json: Value =
                    serde_json::from_str(&file.text).map_err(|error| in_file(error.to_string()))?;
                (from_json(&json), None)
            }
            false => from_python(&file.text).map_err(in_file)?,
        };
        let zone = zone.filter(|zone| check_zone(zone).is_ok()).unwrap_or_else(|| context.zone.clone());
        let PythonValue::Dict(entries) = schedule else {
            return Err(in_file("the schedule must be a dictionary of entries by name".to_owned()));
        };
        for (name, entry) in &entries {
            let name = name.text().unwrap_or("unnamed");
            let place = ImportEntry::new(format!("{}: {name}", file.name), written(entry.get("schedule")));
            import.entries.push(imported(name, entry, &zone, place, context));
        }
    }
    import.notes.push(
        "each job needs a worker with a handler for its type, the name of the task: see the guide about writing workers. Its \
         arguments are payload.args and payload.kwargs. Failures are not retried, and there is no time limit (at most 7 days)"
            .to_owned(),
    );
    Ok(import)
}

/// The schedule of a Python file and its zone.
fn from_python(text: &str) -> Result<(PythonValue, Option<String>), String> {
    let value = |names: &[&str]| names.iter().find_map(|name| assigned(text, name));
    let schedule = value(&SCHEDULES).ok_or(
        "has no assignment to beat_schedule, CELERY_BEAT_SCHEDULE or CELERYBEAT_SCHEDULE; a file that begins with { is read \
         as JSON",
    )?;
    let zone = value(&ZONES).and_then(|zone| python::parsed(zone).ok());
    Ok((python::parsed(schedule)?, zone.and_then(|zone| zone.text().map(str::to_owned))))
}

/// What follows `name =` at the start of a line; an object may be before the name.
fn assigned<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.match_indices(name).find_map(|(start, _)| {
        let line = text[..start].rsplit('\n').next().unwrap_or_default();
        let is_assigned = line.is_empty() || (line.ends_with('.') && !line.trim_start().starts_with('#'));
        let value = text[start + name.len()..].trim_start().strip_prefix('=')?;
        (is_assigned && !value.starts_with('=')).then_some(value)
    })
}

/// JSON in terms of Python. An object of crontab fields or with `every` and `period` is a schedule.
fn from_json(value: &Value) -> PythonValue {
    match value {
        Value::Null => PythonValue::None,
        Value::Bool(flag) => PythonValue::Bool(*flag),
        Value::Number(number) => PythonValue::Number(number.as_f64().unwrap_or_default()),
        Value::String(text) => PythonValue::Text(text.clone()),
        Value::Array(items) => PythonValue::List(items.iter().map(from_json).collect()),
        Value::Object(fields) => PythonValue::Dict(
            fields.iter().map(|(name, value)| (PythonValue::Text(name.clone()), from_json(value))).collect(),
        ),
    }
}

/// The schedule as a line of the report.
fn written(schedule: Option<&PythonValue>) -> String {
    match schedule {
        None => String::new(),
        Some(PythonValue::Call(name, items, named)) => {
            let items = items.iter().map(|item| written(Some(item)));
            let named = named.iter().map(|(name, value)| format!("{name}={}", written(Some(value))));
            format!("{name}({})", items.chain(named).collect::<Vec<_>>().join(", "))
        }
        Some(value) => value.json().map_or_else(|error| error, |value| value.to_string()),
    }
}

fn imported(
    name: &str,
    fields: &PythonValue,
    zone: &str,
    mut entry: ImportEntry,
    context: &ImportContext,
) -> ImportEntry {
    let Some(task) = fields.get("task").and_then(PythonValue::text) else {
        return entry.impossible("its task is missing or not a text");
    };
    let mut job = JobDraft::new();
    job.insert("name".to_owned(), json!(name));
    job.insert("job_type".to_owned(), json!(task));
    let data = |name: &str, empty: Value| fields.get(name).map_or(Ok(empty), PythonValue::json);
    let payload = data("args", json!([])).and_then(|args| Ok((args, data("kwargs", json!({}))?)));
    let options = match (payload, data("options", json!({}))) {
        (Ok((args, kwargs)), Ok(Value::Object(options))) => {
            job.insert("payload".to_owned(), json!({"args": args, "kwargs": kwargs}));
            options
        }
        (Err(error), _) | (_, Err(error)) => return entry.impossible(error),
        (_, Ok(_)) => return entry.impossible("its options are not a dictionary"),
    };
    job.insert("max_retries".to_owned(), json!(0));
    job.insert("timeout_secs".to_owned(), json!(NO_TIMEOUT_SECS));
    job.insert("overlap_policy".to_owned(), json!("ALLOW"));
    set_options(&options, &mut job, &mut entry);
    let Some(schedule) = fields.get("schedule") else { return entry.impossible("it has no schedule") };
    if let Err(error) = set_schedule(schedule, zone, &mut job, &mut entry, context) {
        return entry.impossible(error);
    }
    entry.jobs.push(job);
    entry
}

fn set_options(options: &Map<String, Value>, job: &mut JobDraft, entry: &mut ImportEntry) {
    for (name, value) in options {
        match (name.as_str(), value) {
            ("queue", Value::String(queue)) => drop(job.insert("queue".to_owned(), json!(queue))),
            ("expires", Value::Number(number)) => {
                let expires = seconds(number.as_f64().unwrap_or_default().max(1.0));
                job.insert("expires_after".to_owned(), json!(expires));
            }
            (name, _) => entry.changed(format!("the option {name} is left out")),
        }
    }
}

fn set_schedule(
    schedule: &PythonValue,
    zone: &str,
    job: &mut JobDraft,
    entry: &mut ImportEntry,
    context: &ImportContext,
) -> Result<(), String> {
    if let Some(fields) = crontab_fields(schedule)? {
        let [minute, hour, day, month, week_day] = fields;
        let (day, week_day) = both_days(&day, &week_day).ok_or_else(|| {
            format!(
                "Celery runs it on days that match both day_of_month {day} and day_of_week {week_day}; a cron expression \
                 with both means either of them. Check one of them in the handler"
            )
        })?;
        let pattern = [minute, hour, day, month, week_day].join(" ");
        let source =
            SourceCron { pattern, zone: zone.to_owned(), clock: SourceClock::Unknown { program: "Celery" } };
        entry.changes.extend(source.apply_to(job, context.now)?);
        // Beat remembers the last run of each entry, and starts one that it missed.
        job.insert("misfire_policy".to_owned(), json!("RUN_ONCE"));
        return Ok(());
    }
    let every = interval(schedule)?;
    if every < 0.1 {
        return Err("its interval is shorter than 100 ms".to_owned());
    }
    job.insert("interval".to_owned(), json!(seconds(every)));
    Ok(())
}

/// The five fields in the order of cron, if the schedule is a crontab.
fn crontab_fields(schedule: &PythonValue) -> Result<Option<[String; 5]>, String> {
    let given: Vec<(String, PythonValue)> = match schedule {
        PythonValue::Call(name, items, named) if name == "crontab" => {
            let items =
                FIELDS.iter().zip(items).map(|((name, _), value)| ((*name).to_owned(), value.clone()));
            items.chain(named.clone()).collect()
        }
        PythonValue::Dict(members) if schedule.get("every").is_none() => members
            .iter()
            .map(|(name, value)| (name.text().unwrap_or_default().to_owned(), value.clone()))
            .collect(),
        _ => return Ok(None),
    };
    let mut fields = ["*"; 5].map(str::to_owned);
    for (name, value) in given {
        match FIELDS.iter().find(|(field, _)| *field == name) {
            Some((_, place)) => fields[*place] = cron_field(&name, &value)?,
            None => return Err(format!("{name} is not a field of a crontab that can be imported")),
        }
    }
    Ok(Some(fields))
}

/// A field: a number, a text, or a list of both.
fn cron_field(name: &str, value: &PythonValue) -> Result<String, String> {
    let item = |value: &PythonValue| match value {
        PythonValue::Number(number) => Ok(number.to_string()),
        PythonValue::Text(text) => Ok(text.clone()),
        _ => Err(format!("{name} must be a number, a text or a list of them")),
    };
    let text = match value {
        PythonValue::List(items) => items.iter().map(item).collect::<Result<Vec<_>, _>>()?.join(","),
        value => item(value)?,
    };
    // Names of days and months may be written out.
    let mut short = String::new();
    for run in text.split_inclusive(|one: char| !one.is_ascii_alphabetic()) {
        let letters = run.trim_end_matches(|one: char| !one.is_ascii_alphabetic());
        short += &letters[..letters.len().min(3)].to_ascii_uppercase();
        short += &run[letters.len()..];
    }
    Ok(short.replace(' ', ""))
}

/// The seconds of a number, of `timedelta(…)`, `schedule(…)`, or of `every` and `period`.
fn interval(schedule: &PythonValue) -> Result<f64, String> {
    match schedule {
        PythonValue::Number(number) => Ok(*number),
        PythonValue::Call(name, items, named) if name == "timedelta" => {
            let places = ["days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks"];
            let items = places.iter().zip(items).map(|(name, value)| ((*name).to_owned(), value.clone()));
            items.chain(named.clone()).try_fold(0.0, |sum, (name, value)| match value {
                PythonValue::Number(number) => Ok(sum + number * unit(&name)?),
                _ => Err(format!("{name} of timedelta must be a number")),
            })
        }
        PythonValue::Call(name, items, named) if name == "schedule" => {
            let every = items
                .first()
                .or_else(|| named.iter().find(|(name, _)| name == "run_every").map(|(_, value)| value));
            every.ok_or("schedule(…) has no run_every".to_owned()).and_then(interval)
        }
        PythonValue::Call(name, ..) if name == "solar" => {
            Err("it follows the sun (solar), which no schedule of Punctual does".to_owned())
        }
        PythonValue::Dict(_) => {
            let json = schedule.json()?;
            let fields = json.as_object().cloned().unwrap_or_default();
            let every = fields.get("every").and_then(Value::as_f64).ok_or("every must be a number")?;
            Ok(every * unit(text(&fields, "period").as_deref().unwrap_or("seconds"))?)
        }
        PythonValue::Name(name) => {
            Err(format!("its schedule is {name}, whose value is elsewhere: write it here"))
        }
        PythonValue::Call(name, ..) => Err(format!("the schedule {name}(…) is not known")),
        _ => Err("its schedule is not a number, crontab(…), timedelta(…) or schedule(…)".to_owned()),
    }
}

fn unit(name: &str) -> Result<f64, String> {
    Ok(match name {
        "microseconds" => 0.000_001,
        "milliseconds" => 0.001,
        "seconds" => 1.0,
        "minutes" => 60.0,
        "hours" => 3_600.0,
        "days" => 86_400.0,
        "weeks" => 604_800.0,
        other => return Err(format!("{other} is not a unit of time")),
    })
}
