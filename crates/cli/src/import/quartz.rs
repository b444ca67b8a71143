//! The XML file of Quartz' XMLSchedulingDataProcessorPlugin: jobs, and cron, simple and calendar-interval triggers.

use super::fields::seconds;
use super::quartz_cron;
use super::schedule::{SourceClock, SourceCron};
use super::{Import, ImportContext, ImportEntry, JobDraft, NO_TIMEOUT_SECS, SourceFile};
use roxmltree::{Document, Node};
use serde_json::{Map, Value, json};

pub fn import(files: &[SourceFile], context: &ImportContext) -> Result<Import, String> {
    let mut import = Import::default();
    for file in files {
        let document = Document::parse(&file.text).map_err(|error| format!("{}: {error}", file.name))?;
        let all = || document.descendants().filter(Node::is_element);
        let named = |name: &'static str| all().filter(move |node| node.tag_name().name() == name);
        let jobs: Vec<Node<'_, '_>> = named("job").collect();
        let triggers: Vec<Node<'_, '_>> =
            named("trigger").filter_map(|trigger| trigger.first_element_child()).collect();
        if jobs.is_empty() {
            return Err(format!("{}: has no <job>; expected a file with <job-scheduling-data>", file.name));
        }
        for trigger in &triggers {
            import.entries.push(entry(&file.name, *trigger, &jobs, context));
        }
        for job in jobs {
            let is_triggered = triggers.iter().any(|trigger| belongs(*trigger, job));
            if !is_triggered {
                let name = child(job, "name").unwrap_or_default();
                let entry = ImportEntry::new(format!("{}: {name}", file.name), "");
                import.entries.push(entry.impossible("it has no trigger: submit it when it is to run"));
            }
        }
    }
    import.notes.push(format!("times without a zone are in {}; --timezone chooses another", context.zone));
    import.notes.push(
        "each job needs a worker with a handler for its type, the name of the class: see the guide about writing workers. Its \
         job-data-map is the payload. A class with @DisallowConcurrentExecution needs overlap_policy: SKIP, which the file does \
         not say"
            .to_owned(),
    );
    Ok(import)
}

/// The text of a child element.
fn child(node: Node<'_, '_>, name: &str) -> Option<String> {
    let child = node.children().find(|child| child.tag_name().name() == name)?;
    child.text().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn group(node: Node<'_, '_>, name: &str) -> String {
    child(node, name).unwrap_or_else(|| "DEFAULT".to_owned())
}

fn belongs(trigger: Node<'_, '_>, job: Node<'_, '_>) -> bool {
    child(trigger, "job-name") == child(job, "name") && group(trigger, "job-group") == group(job, "group")
}

fn entry(file: &str, trigger: Node<'_, '_>, jobs: &[Node<'_, '_>], context: &ImportContext) -> ImportEntry {
    let trigger_name = child(trigger, "name").unwrap_or_default();
    let kind = trigger.tag_name().name();
    let source =
        ["cron-expression", "repeat-interval", "interval"].iter().find_map(|name| child(trigger, name));
    let mut entry = ImportEntry::new(format!("{file}: {trigger_name}"), source.clone().unwrap_or_default());
    let Some(job_node) = jobs.iter().find(|job| belongs(trigger, **job)) else {
        return entry.impossible("its job is not in the file");
    };
    let Some(class) = child(*job_node, "job-class") else {
        return entry.impossible("its job has no job-class");
    };
    let name = child(*job_node, "name").unwrap_or_default();
    let name = match jobs.iter().filter(|job| child(**job, "name").as_ref() == Some(&name)).count() {
        0 | 1 => name,
        _ => format!("{}.{name}", group(*job_node, "group")),
    };
    let mut data = data_map(*job_node);
    data.extend(data_map(trigger));
    let fields = json!({
        "name": name,
        "job_type": class,
        "payload": data,
        "max_retries": 0,
        "timeout_secs": NO_TIMEOUT_SECS,
        "overlap_policy": "ALLOW",
    });
    let Value::Object(mut job) = fields else { return entry };
    let set = match kind {
        "cron" => cron(trigger, &mut job, &mut entry, context),
        "simple" => simple(trigger, &mut job),
        "calendar-interval" => calendar_interval(trigger, &mut job, context),
        other => Err(format!("triggers of the kind {other} cannot be imported")),
    };
    let set = set.and_then(|()| bounds(trigger, &mut job, &mut entry, context));
    if let Err(error) = set {
        return entry.impossible(error);
    }
    if let Some(calendar) = child(trigger, "calendar-name") {
        entry.changed(format!("the days that its calendar {calendar} excludes are no longer excluded"));
    }
    if let Some(priority) = child(trigger, "priority").and_then(|priority| priority.parse::<i64>().ok()) {
        job.insert("priority".to_owned(), json!(priority.clamp(1, 10)));
    }
    entry.jobs.push(job);
    entry
}

fn data_map(node: Node<'_, '_>) -> Map<String, Value> {
    let Some(map) = node.children().find(|child| child.tag_name().name() == "job-data-map") else {
        return Map::new();
    };
    let entries = map.children().filter(|child| child.tag_name().name() == "entry");
    entries
        .filter_map(|entry| Some((child(entry, "key")?, json!(child(entry, "value").unwrap_or_default()))))
        .collect()
}

fn cron(
    trigger: Node<'_, '_>,
    job: &mut JobDraft,
    entry: &mut ImportEntry,
    context: &ImportContext,
) -> Result<(), String> {
    let expression = child(trigger, "cron-expression").ok_or("it has no cron-expression")?;
    let pattern = quartz_cron::pattern(&expression)?;
    let zone = child(trigger, "time-zone").unwrap_or_else(|| context.zone.clone());
    let clock = SourceClock::Unknown { program: "Quartz" };
    entry.changes.extend(SourceCron { pattern, zone, clock }.apply_to(job, context.now)?);
    misfire(trigger, job, "RUN_ONCE")
}

/// What to do with missed runs. The smart policy of Quartz depends on the kind of the trigger.
fn misfire(trigger: Node<'_, '_>, job: &mut JobDraft, smart: &str) -> Result<(), String> {
    let instruction = child(trigger, "misfire-instruction").unwrap_or_default();
    let policy = match instruction.trim_start_matches("MISFIRE_INSTRUCTION_") {
        "" | "SMART_POLICY" => smart,
        "FIRE_ONCE_NOW" | "FIRE_NOW" => "RUN_ONCE",
        "IGNORE_MISFIRE_POLICY" => "RUN_ALL",
        "DO_NOTHING" => "SKIP_MISSED",
        word if word.starts_with("RESCHEDULE_NEXT") => "SKIP_MISSED",
        word if word.starts_with("RESCHEDULE_NOW") => "RUN_ONCE",
        other => return Err(format!("misfire-instruction {other} is not known")),
    };
    if policy != "SKIP_MISSED" {
        job.insert("misfire_policy".to_owned(), json!(policy));
    }
    Ok(())
}

fn simple(trigger: Node<'_, '_>, job: &mut JobDraft) -> Result<(), String> {
    let count = child(trigger, "repeat-count").unwrap_or_else(|| "0".to_owned());
    let interval = child(trigger, "repeat-interval").and_then(|interval| interval.parse::<f64>().ok());
    match (count.as_str(), interval) {
        ("0" | "REPEAT_0", _) => Err("it runs once: submit a job with execute_at instead".to_owned()),
        (_, None) => Err("it has no repeat-interval in milliseconds".to_owned()),
        (_, Some(interval)) if interval < 100.0 => Err("its interval is shorter than 100 ms".to_owned()),
        (count, Some(interval)) => {
            job.insert("interval".to_owned(), json!(seconds(interval / 1_000.0)));
            match count.parse::<i64>() {
                Ok(count) if count > 0 => drop(job.insert("max_runs".to_owned(), json!(count + 1))),
                Ok(_) => {}
                Err(_) if count == "REPEAT_INDEFINITELY" => {}
                Err(_) => return Err(format!("repeat-count {count} is not a number")),
            }
            misfire(trigger, job, "RUN_ONCE")
        }
    }
}

fn calendar_interval(
    trigger: Node<'_, '_>,
    job: &mut JobDraft,
    context: &ImportContext,
) -> Result<(), String> {
    let count = child(trigger, "repeat-interval").unwrap_or_else(|| "1".to_owned());
    let count: u32 = count.parse().map_err(|_| format!("repeat-interval {count} is not a number"))?;
    let unit = child(trigger, "repeat-interval-unit").unwrap_or_default();
    let interval = match unit.as_str() {
        "SECOND" => format!("PT{count}S"),
        "MINUTE" => format!("PT{count}M"),
        "HOUR" => format!("PT{count}H"),
        "DAY" => format!("P{count}D"),
        "WEEK" => format!("P{count}W"),
        "MONTH" => format!("P{count}M"),
        "YEAR" => format!("P{count}Y"),
        other => return Err(format!("repeat-interval-unit {other} is not known")),
    };
    if !interval.starts_with("PT") && context.zone != "UTC" {
        job.insert("timezone".to_owned(), json!(context.zone));
    }
    job.insert("interval".to_owned(), json!(interval));
    misfire(trigger, job, "RUN_ONCE")
}

/// The first and the last time at which it may run.
fn bounds(
    trigger: Node<'_, '_>,
    job: &mut JobDraft,
    entry: &mut ImportEntry,
    context: &ImportContext,
) -> Result<(), String> {
    for (element, field) in [("start-time", "start_at"), ("end-time", "end_at")] {
        if let Some(text) = child(trigger, element) {
            let instant =
                instant(&text, &context.zone).ok_or_else(|| format!("{element} {text} is not a time"))?;
            job.insert(field.to_owned(), json!(instant));
        }
    }
    if child(trigger, "start-time-seconds-in-future").is_some() {
        entry.changed(
            "start-time-seconds-in-future is left out: Quartz counts it from the start of the scheduler",
        );
    }
    let counts_from_start = job.contains_key("interval") && !job.contains_key("start_at");
    if counts_from_start {
        entry.changed("Quartz counts the interval from the start of the scheduler, Punctual from the creation of the job");
    }
    Ok(())
}

/// A time with an offset, or a local time.
fn instant(text: &str, zone: &str) -> Option<String> {
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.to_string());
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    Some(local.in_tz(zone).ok()?.timestamp().to_string())
}
