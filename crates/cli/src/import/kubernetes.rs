//! CronJobs of Kubernetes. Their commands become commands of a worker's machine: images, volumes and the like stay
//! behind.

use super::fields::{at, text};
use super::schedule::{SourceClock, SourceCron, SourceGap};
use super::{Import, ImportContext, ImportEntry, JobDraft, NO_TIMEOUT_SECS, SourceFile};
use crate::manifest::documents;
use punctual_core::limits;
use punctual_core::recurrence::DstOverlap;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

pub fn import(files: &[SourceFile], context: &ImportContext) -> Result<Import, String> {
    let mut import = Import::default();
    for file in files {
        let read = documents::parsed(Path::new(&file.name), &file.text);
        let read = read.map_err(|error| format!("{}: {error}", file.name))?;
        for document in read {
            let value =
                serde_json::from_str(document.get()).map_err(|error| format!("{}: {error}", file.name))?;
            add(&file.name, &value, context, &mut import);
        }
    }
    import.notes.push(format!(
        "schedules without timeZone are in the zone of the controller, taken as {}; --timezone chooses another",
        context.zone
    ));
    import.notes.push(
        "to keep images, volumes and service accounts, leave the CronJob suspended in its cluster and let the job run \
         `kubectl create job --from=cronjob/NAME`"
            .to_owned(),
    );
    Ok(import)
}

fn add(file: &str, value: &Value, context: &ImportContext, import: &mut Import) {
    match value.get("kind").and_then(Value::as_str) {
        Some("List" | "CronJobList") => {
            for item in value.get("items").and_then(Value::as_array).into_iter().flatten() {
                add(file, item, context, import);
            }
        }
        Some("CronJob") => import.entries.push(cron_job(file, value, context)),
        kind => {
            let kind = kind.unwrap_or("a document without a kind");
            import.notes.push(format!("{file}: {kind} is left out; only CronJob is imported"));
        }
    }
}

fn cron_job(file: &str, value: &Value, context: &ImportContext) -> ImportEntry {
    let name = at(value, &["metadata", "name"]).and_then(Value::as_str).unwrap_or("unnamed");
    let empty = Map::new();
    let spec = value.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let schedule = text(spec, "schedule").unwrap_or_default();
    let mut entry = ImportEntry::new(format!("{file}: {name}"), &schedule);
    if text(spec, "suspend").as_deref() == Some("true") {
        let why = "it is suspended, and a file of jobs cannot say that a job is paused: set suspend to false and import \
                   it again, or leave it out";
        return entry.impossible(why);
    }
    let mut job = JobDraft::new();
    job.insert("name".to_owned(), json!(name));
    if let Some(namespace) = at(value, &["metadata", "namespace"]).and_then(Value::as_str) {
        job.insert("tags".to_owned(), json!([format!("namespace:{namespace}")]));
    }
    if let Err(error) = set_schedule(&schedule, spec, &mut job, &mut entry, context) {
        return entry.impossible(error);
    }
    let job_spec = at(value, &["spec", "jobTemplate", "spec"]).cloned().unwrap_or_default();
    if let Err(error) = set_command(&job_spec, &mut job, &mut entry) {
        return entry.impossible(error);
    }
    entry.jobs.push(job);
    entry
}

fn set_schedule(
    schedule: &str,
    spec: &Map<String, Value>,
    job: &mut JobDraft,
    entry: &mut ImportEntry,
    context: &ImportContext,
) -> Result<(), String> {
    let mut zone = text(spec, "timeZone").unwrap_or_else(|| context.zone.clone());
    let mut fields: Vec<&str> = schedule.split_whitespace().collect();
    if let Some(named) =
        fields.first().and_then(|field| field.strip_prefix("CRON_TZ=").or_else(|| field.strip_prefix("TZ=")))
    {
        zone = named.to_owned();
        fields.remove(0);
    }
    if let [word, span] = fields[..]
        && word == "@every"
    {
        job.insert("interval".to_owned(), json!(span));
        entry.changed(
            "Kubernetes counts the interval from the creation of the CronJob, Punctual from that of the job",
        );
    } else {
        let pattern = with_restricted_steps(&fields);
        // robfig/cron: times in a gap do not run, and repeated times run twice.
        let clock = SourceClock::Known { gap: SourceGap::Skip, overlap: DstOverlap::Both };
        let change = SourceCron { pattern, zone, clock }.apply_to(job, context.now)?;
        entry.changes.extend(change);
    }
    let overlap = match text(spec, "concurrencyPolicy").as_deref() {
        None | Some("Allow") => "ALLOW",
        Some("Forbid") => "SKIP",
        Some("Replace") => "REPLACE",
        Some(other) => return Err(format!("concurrencyPolicy {other} is not known")),
    };
    job.insert("overlap_policy".to_owned(), json!(overlap));
    // The controller starts the latest missed run, if it is not too late.
    match spec.get("startingDeadlineSeconds").and_then(Value::as_u64) {
        None => drop(job.insert("misfire_policy".to_owned(), json!("RUN_ONCE"))),
        Some(deadline) => {
            let deadline = deadline.max(1);
            job.insert("misfire_policy".to_owned(), json!("RUN_ALL"));
            job.insert("misfire_limit".to_owned(), json!(1));
            job.insert("max_lateness".to_owned(), json!(format!("{deadline}s")));
            if deadline < limits::MISFIRE_GRACE.as_secs() {
                job.insert("misfire_grace".to_owned(), json!(format!("{deadline}s")));
            }
        }
    }
    Ok(())
}

/// In robfig/cron, `*/n` with n above 1 restricts a day field; in Punctual, as in cron, it does not.
pub fn with_restricted_steps(fields: &[&str]) -> String {
    let restricted = |place: usize, field: &str| match (field.strip_prefix("*/"), place) {
        (Some("1"), _) | (None, _) => field.to_owned(),
        (Some(step), 2) => format!("1-31/{step}"),
        (Some(step), 4) => format!("0-6/{step}"),
        (Some(_), _) => field.to_owned(),
    };
    let both = fields.len() == 5 && [fields[2], fields[4]].iter().all(|field| !matches!(*field, "*" | "?"));
    let fields = fields.iter().enumerate();
    let fields: Vec<String> = fields
        .map(|(place, field)| if both { restricted(place, field) } else { (*field).to_owned() })
        .collect();
    fields.join(" ")
}

fn set_command(job_spec: &Value, job: &mut JobDraft, entry: &mut ImportEntry) -> Result<(), String> {
    let pod = at(job_spec, &["template", "spec"]).cloned().unwrap_or_default();
    let containers = pod.get("containers").and_then(Value::as_array).cloned().unwrap_or_default();
    let [container] = &containers[..] else {
        return Err(format!("it has {} containers; a job runs one command", containers.len()));
    };
    let image = container.get("image").and_then(Value::as_str).unwrap_or("its image");
    let list = |name: &str| -> Vec<String> {
        let list = container.get(name).and_then(Value::as_array).into_iter().flatten();
        list.map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect()
    };
    let command = list("command");
    if command.is_empty() {
        return Err(format!(
            "it runs the entry point of {image}, which the manifest does not name: add a command"
        ));
    }
    entry.changed(format!(
        "it ran in a container of {image}; the job runs its command on the machine of a worker"
    ));
    let environment = Environment::of(container, entry);
    let mut unresolved = BTreeSet::new();
    let words = command.into_iter().chain(list("args"));
    let command: Vec<String> = words.map(|word| environment.expanded(&word, &mut unresolved)).collect();
    for name in unresolved {
        entry.changed(format!(
            "Kubernetes replaced $({name}) in its command, and the manifest does not have the value: use the variable in a \
             script (job type shell), or write the value"
        ));
    }
    let mut payload = json!({"command": command});
    if !environment.env.is_empty() {
        payload["env"] = Value::Object(environment.env);
    }
    if let Some(directory) = container.get("workingDir").and_then(Value::as_str) {
        payload["cwd"] = json!(directory);
    }
    if let Some(memory) = at(container, &["resources", "limits", "memory"]).and_then(Value::as_str) {
        payload["limits"] = json!({"memory": memory.trim_end_matches('i')});
    }
    job.insert("job_type".to_owned(), json!("process"));
    job.insert("payload".to_owned(), payload);
    let retries = job_spec.get("backoffLimit").and_then(Value::as_u64).unwrap_or(6);
    job.insert("max_retries".to_owned(), json!(retries.min(limits::MAX_RETRIES_MAX.into())));
    job.insert("retry".to_owned(), json!({"strategy": "exponential", "delay": "10s", "max_delay": "6m"}));
    let deadline = job_spec.get("activeDeadlineSeconds").and_then(Value::as_u64);
    if deadline.is_some() {
        entry.changed("activeDeadlineSeconds limited all attempts together; timeout_secs limits each");
    }
    job.insert("timeout_secs".to_owned(), json!(deadline.unwrap_or(NO_TIMEOUT_SECS).min(NO_TIMEOUT_SECS)));
    for name in ["completions", "parallelism"] {
        if job_spec.get(name).and_then(Value::as_u64).is_some_and(|count| count > 1) {
            entry.changed(format!("{name} is left out: a run of a job is one command"));
        }
    }
    let left_out =
        ["initContainers", "volumes", "serviceAccountName", "nodeSelector", "tolerations", "affinity"];
    let left_out: Vec<&str> = left_out.into_iter().filter(|name| at(&pod, &[name]).is_some()).collect();
    if !left_out.is_empty() {
        entry.changed(format!("these parts of its pod are left out: {}", left_out.join(", ")));
    }
    Ok(())
}

/// The variables of a container.
#[derive(Default)]
struct Environment {
    /// Values, and references to secrets.
    env: Map<String, Value>,
    /// Those whose value only the cluster knows.
    unknown: BTreeSet<String>,
    /// Whether there are variables that the manifest does not name.
    has_others: bool,
}

impl Environment {
    fn of(container: &Value, entry: &mut ImportEntry) -> Self {
        let has_others = container.get("envFrom").is_some();
        let mut found = Environment { has_others, ..Environment::default() };
        for variable in container.get("env").and_then(Value::as_array).into_iter().flatten() {
            found.add(variable, entry);
        }
        if has_others {
            entry.changed("envFrom is left out: add the variables to payload.env");
        }
        found
    }

    /// Adds a variable, whose value may name variables before it. Secrets become references.
    fn add(&mut self, variable: &Value, entry: &mut ImportEntry) {
        let Some(name) = variable.get("name").and_then(Value::as_str) else { return };
        let secret = at(variable, &["valueFrom", "secretKeyRef"]);
        let value = match (variable.get("value"), secret) {
            (Some(value), _) => {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let mut unresolved = BTreeSet::new();
                let value = self.expanded(&value, &mut unresolved);
                for other in unresolved {
                    entry.changed(format!(
                        "Kubernetes replaced $({other}) in {name}, and the manifest does not have the value: write it"
                    ));
                }
                json!(value)
            }
            (None, Some(secret)) => {
                let part =
                    |name: &str| secret.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let secret = format!("{}-{}", part("name"), part("key"));
                entry.changed(format!(
                    "{name} comes from the secret {secret} of Punctual: punctual secret set {secret}"
                ));
                json!({"$secret": secret})
            }
            (None, None) => {
                entry.changed(format!("{name} is left out: its value comes from the cluster"));
                self.unknown.insert(name.to_owned());
                return;
            }
        };
        self.env.insert(name.to_owned(), value);
    }

    /// The text with values in place of `$(NAME)`, as Kubernetes expands it: `$$` is a dollar sign, and a reference to no
    /// variable stays as it is. So does one whose value is not in the manifest; `unresolved` gets its name.
    fn expanded(&self, text: &str, unresolved: &mut BTreeSet<String>) -> String {
        let (mut expanded, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('$') {
                expanded.push('$');
                rest = after;
                continue;
            }
            let Some((name, after)) = rest.strip_prefix('(').and_then(|reference| reference.split_once(')'))
            else {
                expanded.push('$');
                continue;
            };
            rest = after;
            match self.env.get(name) {
                Some(Value::String(value)) => expanded.push_str(value),
                secret => {
                    if secret.is_some() || self.unknown.contains(name) || self.has_others {
                        unresolved.insert(name.to_owned());
                    }
                    expanded.push_str(&format!("$({name})"));
                }
            }
        }
        expanded + rest
    }
}
