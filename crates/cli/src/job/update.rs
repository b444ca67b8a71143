//! `punctual job update`: changes only the given fields.

use crate::job::bulk::{BulkArgs, BulkFilterArgs, FilterFields, MoreFilterArgs};
use crate::job::fields::{FieldArgs, field_name};
use crate::job::next;
use crate::job::which::OneJobOrAll;
use punctual_client::{JobBody, SubmitJob};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::OutputArgs;
use punctual_core::operation::BulkAction;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    which: OneJobOrAll,
    #[command(flatten)]
    bulk: BulkArgs,
    #[command(flatten)]
    filters: MoreFilterArgs,
    /// Fields to change as a JSON merge patch, or @FILE, such as '{"queue": "mail"}'. With --all, --name, --type, --queue,
    /// --priority and --tag select jobs, as for `job pause`, and new values for them come from here
    #[arg(long, value_parser = args::payload, value_name = "JSON")]
    patch: Option<Box<RawValue>>,
    /// A new name
    #[arg(long)]
    name: Option<String>,
    /// Run this command instead, with its arguments: a job of type process
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["job_type", "payload", "shell"])]
    command: Vec<String>,
    /// Run this script through sh instead: a job of type shell
    #[arg(long, value_name = "SCRIPT", allow_hyphen_values = true, conflicts_with_all = ["job_type", "payload"])]
    shell: Option<String>,
    /// JSON for the handler, or @FILE; an object is merged into the current payload, and null removes a key
    #[arg(long, value_parser = args::payload, allow_hyphen_values = true, value_name = "JSON")]
    payload: Option<Box<RawValue>>,
    /// Reset this field to its default, such as queue or retry.fail_on; can be given more than once
    #[arg(long, value_name = "FIELD")]
    unset: Vec<String>,
    /// Change nothing unless the job still has this version, as shown by `job show`
    #[arg(long, value_name = "VERSION", conflicts_with = "all")]
    if_version: Option<u32>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    fields: FieldArgs,
}

pub async fn run(args: UpdateArgs) -> anyhow::Result<Exit> {
    let (patch, filters) = args.patch()?;
    if args.bulk.is_meant() {
        let run = args.bulk.run_of(BulkAction::Update, filters).with_patch(to_raw_value(&patch)?);
        return run.run(&args.connect, args.output).await;
    }
    let client = args.connect.client()?;
    let id = args.which.id(&client).await?;
    let job = client.update(id, &patch, args.if_version).await?;
    let next = if args.output.is_table() { next::told(&client, &job).await } else { None };
    args.output.print(&job, |job| describe(job, next))?;
    Ok(Exit::Done)
}

fn describe(job: &JobBody, next: Option<String>) -> String {
    let next = next.map_or_else(String::new, |next| format!(", {next}"));
    format!("updated job {} ({}) to version {}{next}", job.job_id, job.name, job.version)
}

/// A merge patch; every value is passed on as written.
type Patch = BTreeMap<String, Box<RawValue>>;

impl UpdateArgs {
    /// What to change, and with --all of which jobs.
    fn patch(&self) -> anyhow::Result<(Patch, FilterFields)> {
        let (mut name, mut fields) = (self.name.clone(), self.fields.job());
        let filters = match self.bulk.is_meant() {
            true => BulkFilterArgs::taken_from(&mut name, &mut fields, &self.filters).fields(),
            false => vec![],
        };
        let has_name = name.is_some();
        let (job_type, payload) = match self.command_patch() {
            Some((job_type, payload)) => (Some(job_type.to_owned()), Some(to_raw_value(&payload)?)),
            None => (fields.job_type.clone(), self.payload.clone()),
        };
        let job = SubmitJob { name: name.unwrap_or_default(), job_type, payload, ..fields };
        let mut patch: Patch = serde_json::from_str(&serde_json::to_string(&job)?)?;
        if !has_name {
            patch.remove("name");
        }
        if let Some(more) = &self.patch {
            add_fields(&mut patch, more)?;
        }
        for field in &self.unset {
            unset(&mut patch, &field_name(field))?;
        }
        if patch.is_empty() {
            return Err(misunderstood(match filters.is_empty() {
                true => "nothing to change: pass at least one field, such as --priority high or --unset queue".to_owned(),
                false => "nothing to change: with --all, --name, --type, --queue, --priority and --tag select jobs; pass \
                          new values for these fields with --patch, such as --patch '{\"priority\": 8}'"
                    .to_owned(),
            }));
        }
        Ok((patch, filters))
    }

    /// The type and payload of a new command or script. The other kind is removed; the environment and limits
    /// stay.
    fn command_patch(&self) -> Option<(&'static str, serde_json::Value)> {
        match &self.shell {
            Some(script) => Some(("shell", json!({"script": script, "command": null}))),
            None if self.command.is_empty() => None,
            None => Some(("process", json!({"command": self.command, "script": null}))),
        }
    }
}

/// Adds the fields of a merge patch.
fn add_fields(patch: &mut Patch, more: &RawValue) -> anyhow::Result<()> {
    let more: Patch = serde_json::from_str(more.get()).map_err(|_| {
        misunderstood("--patch must be an object, such as '{\"queue\": \"mail\"}'".to_owned())
    })?;
    for (field, value) in more {
        if patch.contains_key(&field) {
            return Err(misunderstood(format!("--patch has the field {field}, which another flag sets too")));
        }
        patch.insert(field, value);
    }
    Ok(())
}

/// Sets a null at the path: `queue`, or `retry.fail_on` next to other retry fields.
fn unset(patch: &mut Patch, path: &str) -> anyhow::Result<()> {
    let (field, inner) = match path.split_once('.') {
        Some((field, inner)) => (field, Some(inner)),
        None => (path, None),
    };
    let contradicts = || misunderstood(format!("--unset {path} conflicts with another flag that sets it"));
    let value = match (inner, patch.get(field)) {
        (None, None) => RawValue::NULL.to_owned(),
        (None, Some(_)) => return Err(contradicts()),
        (Some(inner), before) => {
            let mut object: Patch = match before {
                Some(object) => serde_json::from_str(object.get()).map_err(|_| contradicts())?,
                None => Patch::new(),
            };
            if object.insert(inner.to_owned(), RawValue::NULL.to_owned()).is_some() {
                return Err(contradicts());
            }
            to_raw_value(&object)?
        }
    };
    patch.insert(field.to_owned(), value);
    Ok(())
}

fn misunderstood(message: String) -> anyhow::Error {
    CliError { exit: Exit::Misunderstood, message }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        update: UpdateArgs,
    }

    fn patch(line: &str) -> Result<String, String> {
        let line = Line::try_parse_from(["update", "job"].into_iter().chain(line.split_whitespace()));
        let patch = line.map_err(|error| error.to_string())?.update.patch();
        Ok(serde_json::to_string(&patch.map_err(|error| error.to_string())?.0).unwrap())
    }

    #[test]
    fn only_what_is_said_is_sent() {
        for (line, sent) in [
            ("--priority high", r#"{"priority":8}"#),
            ("--name report --timeout 500ms", r#"{"name":"report","timeout_secs":0.5}"#),
            (r#"--payload {"b":1.0e3,"a":null}"#, r#"{"payload":{"b":1.0e3,"a":null}}"#),
            ("--concurrency-key shop-7", r#"{"concurrency_key":"shop-7"}"#),
            ("--unset concurrency-key", r#"{"concurrency_key":null}"#),
            ("--unset queue --cron @daily", r#"{"cron_expression":"@daily","queue":null}"#),
            ("--timeout-growth 1.5 --unset fail-on", r#"{"retry":{"fail_on":null,"timeout_growth":1.5}}"#),
            ("--shell date", r#"{"job_type":"shell","payload":{"command":null,"script":"date"}}"#),
            ("-- ls -l", r#"{"job_type":"process","payload":{"command":["ls","-l"],"script":null}}"#),
            ("--unset retry", r#"{"retry":null}"#),
            ("--unset retry.delay --unset retry-steps", r#"{"retry":{"delay":null,"steps":null}}"#),
        ] {
            assert_eq!(patch(line).as_deref(), Ok(sent), "{line}");
        }
    }

    #[test]
    fn with_all_the_flags_of_filters_select_jobs_and_a_patch_has_their_new_values() {
        let all = |line: &str| {
            let line = Line::try_parse_from(["update", "--all"].into_iter().chain(line.split_whitespace()));
            let (patch, filters) = line.unwrap().update.patch().map_err(|error| error.to_string())?;
            let filters = serde_json::to_string(&filters).unwrap();
            Ok::<_, String>((serde_json::to_string(&patch).unwrap(), filters))
        };
        let (patch, filters) = all(
            r#"--tag a --tag b --queue mail --type noop --name n --priority 3 --status active --timezone UTC
                --patch {"tags":["c"],"queue":"other"}"#,
        )
        .unwrap();
        assert_eq!(patch, r#"{"queue":"other","tags":["c"],"timezone":"UTC"}"#);
        assert_eq!(
            filters,
            r#"[["name","n"],["job_type","noop"],["queue","mail"],["priority","3"],["tag","a"],["tag","b"],["status","ACTIVE"]]"#
        );
        // A field that is reset, and the type of a new command, are changes.
        let (patch, filters) = all("--unset queue --shell date -q x").unwrap();
        assert_eq!(
            (patch.as_str(), filters.as_str()),
            (
                r#"{"job_type":"shell","payload":{"command":null,"script":"date"},"queue":null}"#,
                r#"[["q","x"]]"#
            )
        );
        let refused = all("--where tag=a --priority high").unwrap_err();
        assert!(refused.contains("nothing to change: with --all"), "{refused}");
        let refused = all(r#"--timezone UTC --patch {"timezone":"x"}"#).unwrap_err();
        assert!(refused.contains("--patch has the field timezone"), "{refused}");
    }

    #[test]
    fn contradictions_and_empty_changes_are_refused() {
        for (line, said) in [
            ("", "nothing to change"),
            ("--queue mail --unset queue", "--unset queue conflicts with"),
            ("--fail-on LOST --unset retry.fail_on", "--unset retry.fail_on conflicts with"),
            ("--unset retry --unset fail-on", "--unset retry.fail_on conflicts with"),
            ("--shell date --payload 1", "cannot be used with"),
            ("--shell date -- ls", "cannot be used with"),
            ("--type noop -- ls", "cannot be used with"),
            ("--every 1h --cron @daily", "cannot be used with"),
            ("--expires-at 2026-11-15T08:30:00Z --expires-after 1h", "cannot be used with"),
        ] {
            let refused = patch(line).unwrap_err();
            assert!(refused.contains(said), "{line}: {refused}");
        }
    }
}
