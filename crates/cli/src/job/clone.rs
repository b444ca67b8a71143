//! `punctual job clone`: submits a copy of a job, with other values where flags give them.

use crate::job::duplicate::DuplicateGuard;
use crate::job::fields::FieldArgs;
use crate::job::outlook;
use crate::job::which::WhichJob;
use crate::manifest::{RawObject, submittable};
use punctual_client::{Client, JobBody, SubmitJob};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::OutputArgs;
use punctual_core::access::Permission;
use serde_json::value::RawValue;

/// Appended to the name of a copy.
const COPY: &str = "-copy";
/// Fields that decide when a job runs. Another kind of schedule replaces all of them.
const SCHEDULE: [&str; 8] =
    ["schedule_type", "execute_at", "delay", "cron_expression", "interval", "rrule", "schedules", "start_at"];
/// Fields that only a recurring job may have.
const RECURRING: [&str; 16] = [
    "calendar",
    "calendars",
    "timezone",
    "dst_gap",
    "dst_overlap",
    "end_at",
    "misfire_policy",
    "misfire_grace",
    "misfire_limit",
    "max_lateness",
    "replay_rate",
    "jitter",
    "max_runs",
    "overlap_policy",
    "overlap_limit",
    "max_open",
];
/// Fields that identify one job.
const OWN: [&str; 2] = ["idempotency_key", "unique_key"];

#[derive(clap::Args)]
pub struct CloneArgs {
    #[command(flatten)]
    which: WhichJob,
    /// The name of the copy; by default the name of the job and -copy
    #[arg(long)]
    name: Option<String>,
    /// JSON for the handler instead of the payload of the job, or @FILE to read it from a file
    #[arg(long, value_parser = args::payload, allow_hyphen_values = true, value_name = "JSON")]
    payload: Option<Box<RawValue>>,
    /// Submit it even if an unfinished recurring job has its name
    #[arg(long)]
    allow_duplicate: bool,
    /// Print the copy and do not submit it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    fields: FieldArgs,
}

pub async fn run(args: CloneArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let original = client.job(args.which.id(&client).await?).await?;
    if args.payload.is_none() {
        needs_payload(&client).await?;
    }
    let copy = args.copy(&original)?;
    if args.dry_run {
        args.output.print(&copy, |copy| serde_json::to_string_pretty(copy).unwrap_or_default())?;
        return Ok(Exit::Done);
    }
    DuplicateGuard { client: &client, is_off: args.allow_duplicate }.check(&copy).await?;
    let submitted = client.submit_json(&serde_json::value::to_raw_value(&copy)?).await?;
    let job = client.job(submitted.job_id).await.ok();
    let outlook = outlook::outlook(&client, &submitted, job.as_ref()).await;
    args.output.print(&submitted, |submitted| {
        format!("submitted job {} as a copy of {}, {}", submitted.job_id, original.job_id, outlook.text)
    })?;
    Ok(Exit::Done)
}

/// A copy has the payload, which not everyone may read.
async fn needs_payload(client: &Client) -> anyhow::Result<()> {
    let me = client.me().await?;
    match me.permissions.iter().any(|permission| permission == Permission::PayloadRead.word()) {
        true => Ok(()),
        false => {
            let message = "a copy has the payload of the job, and this token may not read it: pass --payload, or use a token with \
                           the permission payload:read";
            Err(CliError::refused(message).into())
        }
    }
}

impl CloneArgs {
    fn copy(&self, original: &JobBody) -> anyhow::Result<RawObject> {
        let mut copy: RawObject = serde_json::from_str(&serde_json::to_string(original)?)?;
        submittable(&mut copy);
        copy.retain(|name, _| !OWN.contains(&name));
        let name = self.name.clone().unwrap_or_else(|| format!("{}{COPY}", original.name));
        if original.job_type == original.name {
            // The type was the default: the copy needs the same handler.
            copy.set_to("job_type", &original.job_type)?;
        }
        let payload = self.payload.clone();
        let given = SubmitJob { name, payload, ..self.fields.job() };
        let given: RawObject = serde_json::from_str(&serde_json::to_string(&given)?)?;
        let is_given = |name: &str| given.get(name).is_some();
        let becomes_single = is_given("execute_at") || is_given("delay");
        if becomes_single || ["cron_expression", "interval", "rrule"].into_iter().any(is_given) {
            copy.retain(|name, _| !(SCHEDULE.contains(&name) || becomes_single && RECURRING.contains(&name)));
        }
        for name in given.names() {
            if let Some(value) = given.get(name) {
                copy.set(name, value.to_owned());
            }
        }
        Ok(copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        clone: CloneArgs,
    }

    fn copy(job: &str, line: &str) -> String {
        let line = Line::try_parse_from(["clone", "job"].into_iter().chain(line.split_whitespace())).unwrap();
        let state = r#""status":"ACTIVE","status_reason":null,"next_run_time":null,"next_retry_time":null,"last_run_time":null,
            "last_error":null,"last_execution":null,"version":3,"created_at":"2026-11-15T08:30:00Z","updated_at":"2026-11-15T08:30:00Z",
            "queue":"q","priority":5,"max_retries":3,"retry":{},"timeout_secs":60,"owner_id":"me","tags":[]"#;
        let job = format!(r#"{{"job_id":"0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11",{job},{state}}}"#);
        let copy = line.clone.copy(&serde_json::from_str(&job).unwrap()).unwrap();
        let mut copy = copy;
        copy.retain(|name, _| {
            !["priority", "max_retries", "retry", "timeout_secs", "owner_id", "tags"].contains(&name)
        });
        serde_json::to_string(&copy).unwrap()
    }

    #[test]
    fn a_copy_has_everything_but_identity_and_takes_overrides() {
        let job = r#""name":"a","job_type":"a","payload":{"n":1.50},"schedule_type":"RECURRING","cron_expression":"@daily",
            "timezone":"Europe/Berlin","idempotency_key":"k","unique_key":"u","overlap_policy":"SKIP""#;
        assert_eq!(
            copy(job, "--queue r"),
            r#"{"name":"a-copy","payload":{"n":1.50},"job_type":"a","queue":"r","schedule_type":"RECURRING","cron_expression":"@daily","timezone":"Europe/Berlin","overlap_policy":"SKIP"}"#
        );
        assert_eq!(
            copy(job, "--name b --delay 5m --payload 7"),
            r#"{"name":"b","payload":7,"job_type":"a","queue":"q","delay":"5m"}"#
        );
        assert_eq!(
            copy(job, "--every 1h"),
            r#"{"name":"a-copy","payload":{"n":1.50},"job_type":"a","queue":"q","timezone":"Europe/Berlin","overlap_policy":"SKIP","interval":"1h"}"#
        );
        let job = r#""name":"a","job_type":"a","payload":1,"schedule_type":"RECURRING",
            "schedules":[{"interval":"1h"},{"cron_expression":"@daily"}],"calendars":["holidays"]"#;
        assert_eq!(
            copy(job, "--rrule FREQ=DAILY"),
            r#"{"name":"a-copy","payload":1,"job_type":"a","queue":"q","calendars":["holidays"],"rrule":"FREQ=DAILY"}"#
        );
        assert_eq!(
            copy(job, "--at 2026-11-15T08:30:00Z"),
            r#"{"name":"a-copy","payload":1,"job_type":"a","queue":"q","execute_at":"2026-11-15T08:30:00Z"}"#
        );
        let job = r#""name":"a","job_type":"a","payload":1,"schedule_type":"RECURRING","rrule":"FREQ=DAILY""#;
        assert_eq!(
            copy(job, "--cron @hourly"),
            r#"{"name":"a-copy","payload":1,"job_type":"a","queue":"q","cron_expression":"@hourly"}"#
        );
    }
}
