//! `punctual export`: jobs, channels, rules and silences as a file that `punctual apply` reads.

use crate::import;
use crate::job::list;
use crate::manifest::{LABEL, RawObject, fields_of, submittable, substitution};
use punctual_client::schema::{WireObject, names_of};
use punctual_client::{Client, ClientError, JobBody, JobFilter, MeBody, RetryBody, ScheduleType, SubmitJob};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{Format, OutputArgs, one_line, tell};
use punctual_core::access::Permission;
use punctual_core::job::JobStatus;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub struct ExportArgs {
    /// Only jobs with this tag; if given more than once, only jobs with all of them
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only jobs of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only jobs with exactly this name
    #[arg(long)]
    name: Option<String>,
    /// Only jobs that this handler runs
    #[arg(long = "type", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// Only jobs of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only jobs of this kind: IMMEDIATE, ONE_TIME or RECURRING
    #[arg(long, value_parser = args::word::<ScheduleType>)]
    schedule_type: Option<ScheduleType>,
    /// Only jobs with this status: ACTIVE, PAUSED, COMPLETED, FAILED or CANCELLED
    #[arg(long, value_parser = args::word::<JobStatus>)]
    status: Option<JobStatus>,
    /// Include finished jobs
    #[arg(long)]
    finished: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Output format
    #[arg(short = 'o', long = "output", value_enum, default_value_t)]
    format: FileFormat,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
pub enum FileFormat {
    #[default]
    Yaml,
    Json,
}

impl From<FileFormat> for Format {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Yaml => Format::Yaml,
            FileFormat::Json => Format::Json,
        }
    }
}

/// A file for `punctual apply`.
#[derive(Default, Serialize)]
pub struct ExportedFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<RawObject>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RawObject>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silences: Vec<RawObject>,
    pub jobs: Vec<RawObject>,
}

pub async fn run(args: ExportArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let me = client.me().await?;
    if !me.permissions.iter().any(|permission| permission == Permission::PayloadRead.word()) {
        let message = "an export contains payloads, and this token may not read them: use one with the permission payload:read";
        return Err(CliError::refused(message).into());
    }
    let jobs = listed(&client, &args).await?;
    refuse_namesakes(&jobs)?;
    for job in jobs.iter().filter(|job| may_be_unreadable(job)) {
        // The server refuses a job whose payload it cannot decrypt; a list has the reason in its place.
        client.job(job.job_id).await?;
    }
    let paused = jobs.iter().filter(|job| job.status == JobStatus::Paused).count();
    if paused > 0 {
        tell(&format!(
            "note: {paused} of the jobs are paused, which a file cannot express: after `apply` they are active"
        ));
    }
    let mut file = exported(&jobs, &me)?;
    let may_read = me.permissions.iter().any(|permission| permission == Permission::NotificationsRead.word());
    if may_read && !args.is_filtered() {
        add_notifications(&client, &mut file).await?;
    }
    OutputArgs::from(Format::from(args.format)).print(&file, |_| String::new())?;
    Ok(Exit::Done)
}

/// The jobs, in the order of their names.
async fn listed(client: &Client, args: &ExportArgs) -> anyhow::Result<Vec<JobBody>> {
    let filter = JobFilter {
        tags: args.tags.clone(),
        queue: args.queue.clone(),
        name: args.name.clone(),
        job_type: args.job_type.clone(),
        owner: args.owner.clone(),
        schedule_type: args.schedule_type,
        status: args.status,
        ..JobFilter::default()
    };
    let with_finished = args.finished || args.status.is_some();
    let mut jobs = list::collect(client, filter, usize::MAX).await?.items;
    jobs.retain(|job| with_finished || !job.is_finished());
    jobs.sort_by(|a, b| (&a.owner_id, &a.name, a.job_id).cmp(&(&b.owner_id, &b.name, b.job_id)));
    Ok(jobs)
}

/// Whether a reason may be in place of the payload.
fn may_be_unreadable(job: &JobBody) -> bool {
    let payload = job.payload.as_ref().and_then(|payload| serde_json::from_str(payload.get()).ok());
    payload.is_some_and(|fields: Map<String, Value>| fields.contains_key("unreadable"))
}

/// A file cannot have two jobs with the same owner and name.
fn refuse_namesakes(jobs: &[JobBody]) -> Result<(), CliError> {
    let is_same = |pair: &&[JobBody]| pair[0].owner_id == pair[1].owner_id && pair[0].name == pair[1].name;
    let same = jobs.windows(2).find(is_same);
    same.map_or(Ok(()), |pair| {
        Err(CliError::refused(format!(
            "the jobs {} and {} have the same owner and name, {}, which identify a job in a file: rename or delete one, or \
             export others only, such as with --schedule-type RECURRING, --tag or --queue",
            pair[0].job_id,
            pair[1].job_id,
            one_line(&pair[0].name)
        )))
    })
}

fn exported(jobs: &[JobBody], me: &MeBody) -> anyhow::Result<ExportedFile> {
    let managed_by = shared_label(jobs);
    let names: BTreeMap<String, &JobBody> = jobs.iter().map(|job| (job.job_id.to_string(), job)).collect();
    let defaults = Defaults::new()?;
    let mut written = Vec::with_capacity(jobs.len());
    for job in jobs {
        let mut fields: RawObject = serde_json::from_str(&serde_json::to_string(job)?)?;
        submittable(&mut fields);
        let mut tags = job.tags.clone();
        tags.retain(|tag| managed_by.is_none() || !tag.starts_with(LABEL));
        fields.set_to("tags", &tags)?;
        // Jobs get new ids where the file is applied.
        let parents = job.depends_on.iter().map(ToString::to_string).map(|id| match names.get(&id) {
            Some(parent) if parent.owner_id == job.owner_id => parent.name.clone(),
            _ => id,
        });
        fields.set_to("depends_on", &parents.collect::<Vec<_>>())?;
        defaults.leave_out(&mut fields, job, &me.owner_id)?;
        written.push(in_order(escaped(fields)?));
    }
    Ok(ExportedFile { managed_by, jobs: written, ..ExportedFile::default() })
}

impl ExportArgs {
    /// Whether only some jobs are asked for. Channels, rules and silences belong to all of them.
    fn is_filtered(&self) -> bool {
        let texts = [&self.queue, &self.name, &self.job_type, &self.owner];
        !self.tags.is_empty()
            || texts.iter().any(|text| text.is_some())
            || self.schedule_type.is_some()
            || self.status.is_some()
    }
}

/// Adds channels without their secret values, rules, and silences that have not ended.
async fn add_notifications(client: &Client, file: &mut ExportedFile) -> anyhow::Result<()> {
    for channel in client.channels().await?.items.iter().filter(|channel| !channel.configured) {
        let mut fields = fields_of::stored_channel(channel);
        for field in &channel.hidden {
            fields.remove(field);
            tell(&format!(
                "note: {field} of the channel {} is encrypted and not exported: store it with `punctual secret set \
                 NAME`, and write {field}: {{$secret: NAME}} to apply the file elsewhere",
                channel.name
            ));
        }
        file.channels.push(named(&channel.name, fields)?);
    }
    let listed = async { Ok((client.notification_rules().await?.items, client.silences().await?.items)) };
    let (rules, silences) = match listed.await {
        Ok(listed) => listed,
        // Tokens that are limited to some jobs cannot read them.
        Err(ClientError::Refused(problem)) if problem.status == 403 => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for rule in &rules {
        file.rules.push(named(&rule.name, fields_of::stored_rule(rule))?);
    }
    for silence in silences.iter().filter(|silence| silence.ends_at > import::now()) {
        file.silences.push(literal(fields_of::stored_silence(silence))?);
    }
    Ok(())
}

fn named(name: &str, fields: Map<String, Value>) -> anyhow::Result<RawObject> {
    let mut named = RawObject::default();
    named.set_to("name", name)?;
    for (name, value) in fields {
        named.set_to(&name, &value)?;
    }
    escaped(named)
}

/// The fields, with texts that `apply` takes literally.
fn literal(fields: Map<String, Value>) -> anyhow::Result<RawObject> {
    escaped(serde_json::from_str(&serde_json::to_string(&fields)?)?)
}

fn escaped(mut fields: RawObject) -> anyhow::Result<RawObject> {
    for (_, value) in fields.iter_mut() {
        *value = substitution::escaped(value).map_err(anyhow::Error::msg)?;
    }
    Ok(fields)
}

/// The label of all jobs, if each has it and no other.
fn shared_label(jobs: &[JobBody]) -> Option<String> {
    let label = |job: &JobBody| {
        let mut labels = job.tags.iter().filter_map(|tag| tag.strip_prefix(LABEL));
        labels.next().filter(|_| labels.next().is_none()).map(str::to_owned)
    };
    let first = label(jobs.first()?)?;
    jobs.iter().all(|job| label(job).as_ref() == Some(&first)).then_some(first)
}

/// The values that fields have if they are left out, as the server writes them.
struct Defaults {
    fields: RawObject,
    retry: RawObject,
}

impl Defaults {
    fn new() -> Result<Self, serde_json::Error> {
        let mut fields = schema_defaults::<SubmitJob>();
        fields.insert("name".to_owned(), Value::from("-"));
        let job: SubmitJob = serde_json::from_value(fields.into())?;
        let retry: RetryBody = serde_json::from_value(schema_defaults::<RetryBody>().into())?;
        Ok(Defaults {
            fields: serde_json::from_str(&serde_json::to_string(&job)?)?,
            retry: serde_json::from_str(&serde_json::to_string(&retry)?)?,
        })
    }

    /// Removes fields with their default values.
    fn leave_out(&self, fields: &mut RawObject, job: &JobBody, owner: &str) -> Result<(), serde_json::Error> {
        let mut retry: RawObject = fields.read("retry").unwrap_or_default();
        retry.retain(|name, value| !is_default(&self.retry, name, value));
        fields.set_to("retry", &retry)?;
        fields.retain(|name, value| match name {
            // They follow from the other fields.
            "schedule_type" => false,
            "job_type" => job.job_type != job.name,
            "owner_id" => job.owner_id != owner,
            "tags" | "depends_on" => value.get() != "[]",
            "retry" => value.get() != "{}",
            "name" => true,
            name => !is_default(&self.fields, name, value),
        });
        Ok(())
    }
}

fn is_default(defaults: &RawObject, name: &str, value: &RawValue) -> bool {
    defaults.get(name).is_some_and(|default| default.get() == value.get())
}

/// The defaults that the schema names.
fn schema_defaults<T: WireObject>() -> Map<String, Value> {
    let fields = T::fields().into_iter();
    fields.filter_map(|field| Some((field.name, field.schema.value().get("default")?.clone()))).collect()
}

/// The fields in the order of the documentation, the payload last.
pub fn in_order(mut fields: RawObject) -> RawObject {
    let mut ordered = RawObject::default();
    let payload = fields.remove("payload");
    for name in names_of::<SubmitJob>() {
        if let Some(value) = fields.remove(name) {
            ordered.set(name, value);
        }
    }
    if let Some(payload) = payload {
        ordered.set("payload", payload);
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_written_as_the_server_writes_them() {
        let Defaults { fields, retry } = Defaults::new().unwrap();
        assert_eq!(fields.get("misfire_grace").unwrap().get(), "\"1m\"");
        assert_eq!(fields.get("priority").unwrap().get(), "5");
        assert_eq!(fields.get("timezone").unwrap().get(), "\"UTC\"");
        assert_eq!(retry.get("max_delay").unwrap().get(), "\"1h\"");
        assert!(fields.get("payload").is_none() && fields.get("interval").is_none());
    }
}
