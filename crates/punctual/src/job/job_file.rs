//! Jobs in a JSON or YAML file. What a job may be is for the server to say, so that errors are the same as over HTTP.

use crate::exit::{CliError, Exit};
use crate::output::{OutputArgs, optional_time, table};
use anyhow::Context;
use punctual_client::{BatchAnswer, BatchItem, Client, Problem};
use punctual_core::limits;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::io::Read;
use std::path::Path;

/// Bytes of the jobs of one batch, well within what the server takes in one request.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a file holds.
pub enum JobFile {
    One(Box<RawValue>),
    Many(Vec<Box<RawValue>>),
}

/// A file as the API takes a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchFile {
    jobs: Vec<Box<RawValue>>,
}

pub fn read(file: &Path) -> anyhow::Result<JobFile> {
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let read = match is_yaml(file, &text) {
        true => from_yaml(&text),
        false => parse(&text).map_err(|error| error.to_string()),
    };
    let read = read.map_err(|error| CliError::refused(format!("{}: {error}", file.display())))?;
    match read {
        JobFile::Many(jobs) if jobs.is_empty() => {
            Err(CliError::refused(format!("{} holds no job", file.display())).into())
        }
        read => Ok(read),
    }
}

/// Whether a file is YAML: by its name, and from standard input by how it begins. What begins like JSON is read as
/// JSON, so that numbers reach the server as they were written.
fn is_yaml(file: &Path, text: &str) -> bool {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("yaml" | "yml") => true,
        Some("json") => false,
        _ => !text.trim_start().starts_with(['{', '[']),
    }
}

/// The same as JSON: only `true` and `false` are booleans, as in YAML 1.2.
fn from_yaml(text: &str) -> Result<JobFile, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let read: serde_json::Value =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    parse(&read.to_string()).map_err(|error| error.to_string())
}

fn parse(text: &str) -> Result<JobFile, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map(JobFile::Many);
    }
    match serde_json::from_str::<BatchFile>(text) {
        Ok(batch) => Ok(JobFile::Many(batch.jobs)),
        Err(_) => serde_json::from_str(text).map(JobFile::One),
    }
}

/// Where many jobs go.
pub struct Batches<'a> {
    pub client: &'a Client,
    pub request_key: Option<&'a str>,
}

impl Batches<'_> {
    /// Submits the jobs in as many batches as it takes. One refused job does not keep the others out.
    pub async fn submit(&self, jobs: &[Box<RawValue>], output: OutputArgs) -> anyhow::Result<Exit> {
        let mut answer = BatchAnswer { items: Vec::with_capacity(jobs.len()) };
        let mut rest = jobs;
        for number in 1.. {
            let (batch, after) = rest.split_at(batch_length(rest));
            let items = self.client_of(number).submit_batch_json(batch).await?.items;
            let items = items.into_iter().enumerate().map(|(place, item)| without_place(item, place));
            answer.items.extend(items);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        output.print(&answer, |answer| batch_table(answer, jobs))?;
        Ok(tell_refused(&answer, jobs))
    }

    /// The client of one batch: a key names one request, and each batch is one.
    fn client_of(&self, number: usize) -> Client {
        match self.request_key {
            Some(key) if number > 1 => self.client.with_request_key(format!("{key}.{number}")),
            _ => self.client.clone(),
        }
    }
}

fn tell_refused(answer: &BatchAnswer, jobs: &[Box<RawValue>]) -> Exit {
    let mut exit = Exit::Done;
    for (place, (item, job)) in answer.items.iter().zip(jobs).enumerate() {
        if let BatchItem::Refused { error } = item {
            let (number, name) = (place + 1, name_of(job));
            eprintln!("refused job {number} of {} ({name}): {}", jobs.len(), told(error));
            exit = Exit::Refused;
        }
    }
    exit
}

fn batch_table(answer: &BatchAnswer, jobs: &[Box<RawValue>]) -> String {
    let rows = answer.items.iter().zip(jobs).map(|(item, job)| match item {
        BatchItem::Submitted(submitted) => {
            vec![name_of(job), submitted.job_id.to_string(), optional_time(submitted.next_run_time)]
        }
        BatchItem::Refused { .. } => vec![name_of(job), "refused".to_owned(), "-".to_owned()],
    });
    table(&["NAME", "JOB", "NEXT RUN"], rows)
}

/// How many of the jobs, at least one, fit into the next batch.
fn batch_length(jobs: &[Box<RawValue>]) -> usize {
    let mut bytes = 0;
    let fitting = jobs.iter().take(limits::SUBMIT_BATCH_MAX).take_while(|job| {
        bytes += job.get().len() + 1;
        bytes <= BATCH_BYTES_MAX
    });
    fitting.count().max(1)
}

/// The outcome without the job's place in its batch, which is not its place in the file.
fn without_place(mut item: BatchItem, place: usize) -> BatchItem {
    if let BatchItem::Refused { error } = &mut item {
        let place = format!("jobs[{place}].");
        error.detail = error.detail.as_ref().map(|detail| detail.replace(&place, ""));
        for field in &mut error.errors {
            field.field = field.field.replace(&place, "");
        }
    }
    item
}

fn told(error: &Problem) -> &str {
    error.detail.as_deref().unwrap_or(&error.title)
}

fn name_of(job: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    match serde_json::from_str::<Named>(job.get()) {
        Ok(named) if !named.name.is_empty() => named.name,
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_by_count_and_by_bytes() {
        let job = |bytes: usize| RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
        assert_eq!(batch_length(&vec![job(1); limits::SUBMIT_BATCH_MAX + 1]), limits::SUBMIT_BATCH_MAX);
        assert_eq!(batch_length(&vec![job(1_000_000); 10]), 4);
        assert_eq!(batch_length(&[job(BATCH_BYTES_MAX)]), 1);
    }

    #[test]
    fn a_file_holds_one_job_or_many() {
        let count = |text: &str| match parse(text) {
            Ok(JobFile::One(_)) => Some(1),
            Ok(JobFile::Many(jobs)) => Some(jobs.len()),
            Err(_) => None,
        };
        let one = r#"{"name":"a"}"#;
        let files = [one.to_owned(), format!("[{one},{one}]"), format!(r#"{{"jobs":[{one},{one},{one}]}}"#)];
        assert_eq!(files.map(|text| count(&text)), [Some(1), Some(2), Some(3)]);
        assert_eq!(count("{"), None);
    }

    #[test]
    fn yaml_is_read_as_the_json_that_it_stands_for() {
        let text = "jobs:\n- name: no\n  payload: {ms: 5, on: true}\n- name: b\n  delay: 1h\n";
        let Ok(JobFile::Many(jobs)) = from_yaml(text) else { panic!("a list of jobs") };
        assert_eq!(jobs[0].get(), r#"{"name":"no","payload":{"ms":5,"on":true}}"#);
        assert_eq!(jobs[1].get(), r#"{"delay":"1h","name":"b"}"#);
        assert!(matches!(from_yaml("name: a\n"), Ok(JobFile::One(_))));
        assert!(from_yaml("name: [").is_err());
        let kinds = ["jobs.yaml", "jobs.yml", "jobs.json", "-"].map(|name| is_yaml(Path::new(name), " [1]"));
        assert_eq!(kinds, [true, true, false, false]);
        assert!(is_yaml(Path::new("-"), "- name: a"));
    }
}
