//! `punctual type`: schemas that the payloads of job types must match.

use crate::list_args::ListArgs;
use crate::manifest::documents;
use clap::Subcommand;
use punctual_client::{JobTypeBody, Page, SetJobType};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, print_text, table, time};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum TypeCommand {
    /// Set the JSON Schema that payloads of new and changed jobs of a type must match
    Set(SetArgs),
    /// List job types with a schema
    List(ListArgs),
    /// Show the schema of a job type
    Show(ShowArgs),
    /// Remove the schemas of job types: their payloads are no longer checked
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub struct SetArgs {
    /// The job type
    #[arg(value_name = "JOB_TYPE", value_parser = args::path_name)]
    name: String,
    /// A JSON or YAML file with the schema (- for standard input)
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,
    /// What the jobs do, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    /// The job type
    #[arg(value_name = "JOB_TYPE", value_parser = args::path_name)]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The job types
    #[arg(value_name = "JOB_TYPE", required = true, value_parser = args::path_name)]
    names: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub async fn run(command: TypeCommand) -> anyhow::Result<Exit> {
    match command {
        TypeCommand::Set(args) => {
            let mut documents = documents::read(&args.schema)?;
            let schema = match (documents.pop(), documents.is_empty()) {
                (Some(schema), true) => schema,
                _ => {
                    let message = format!("{} must contain one schema", args.schema.display());
                    return Err(CliError::refused(message).into());
                }
            };
            let body = SetJobType { schema, description: args.description };
            let set = args.connect.client()?.set_job_type(&args.name, &body).await?;
            args.output
                .print(&set, |set| format!("set the schema of {} (version {})", set.name, set.version))?;
        }
        TypeCommand::List(args) => {
            let job_types = args.connect.client()?.job_types().await?;
            args.output.print(&job_types, job_types_table)?;
        }
        TypeCommand::Show(args) => {
            let job_type = args.connect.client()?.job_type(&args.name).await?;
            args.output.print(&job_type, described)?;
        }
        TypeCommand::Remove(args) => {
            let client = args.connect.client()?;
            for name in &args.names {
                client.remove_job_type(name).await?;
                print_text(&format!("removed the schema of {name}"))?;
            }
        }
    }
    Ok(Exit::Done)
}

fn job_types_table(job_types: &Page<JobTypeBody>) -> String {
    if job_types.items.is_empty() {
        return "no job type has a schema; punctual type set JOB_TYPE --schema FILE sets one".to_owned();
    }
    let rows = job_types.items.iter().map(|one| {
        let description = one.description.clone().unwrap_or_default();
        let enforced = if one.not_enforced.is_none() { "yes" } else { "no" }.to_owned();
        let (version, set_by) = (one.version.to_string(), one.set_by.clone());
        vec![one.name.clone(), version, enforced, time(one.set_at), set_by, description]
    });
    table(&["JOB TYPE", "VERSION", "ENFORCED", "SET AT", "SET BY", "DESCRIPTION"], rows)
}

/// Why payloads of a job type are not checked, and what to do.
fn not_enforced(name: &str, reason: &str) -> String {
    format!("{reason}; set a schema that this server accepts: `punctual type set {name} --schema FILE`")
}

fn described(job_type: &JobTypeBody) -> String {
    let head = details([
        ("Job type", Some(job_type.name.clone())),
        ("Description", job_type.description.clone()),
        ("Version", Some(job_type.version.to_string())),
        ("Set", Some(format!("{} by {}", time(job_type.set_at), job_type.set_by))),
        ("Not enforced", job_type.not_enforced.as_ref().map(|reason| not_enforced(&job_type.name, reason))),
    ]);
    let schema: Option<serde_json::Value> = serde_json::from_str(job_type.schema.get()).ok();
    let schema = schema.and_then(|schema| serde_json::to_string_pretty(&schema).ok());
    format!("{head}\n\n{}", schema.unwrap_or_else(|| job_type.schema.get().to_owned()))
}
