//! Jobs in a JSON or YAML file. The server validates them, so that errors are the same as over HTTP.

use crate::job::control;
use crate::job::duplicate::DuplicateGuard;
use crate::job::parents::{FileJobState, JobFamily, Turn};
use crate::manifest::documents;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_client::{BatchAnswer, BatchItem, Client, ClientError, Problem};
use punctual_config::exit::{self, CliError, Exit};
use punctual_config::output::{OutputArgs, optional_time, table, tell};
use punctual_core::limits;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::Path;

/// Bytes of the jobs of one batch, well below the server's limit for one request.
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many names of jobs a message lists.
const NAMES_TOLD_MAX: usize = 10;
/// Up to how many rows of a file a table lists.
const TABLE_ROWS_MAX: usize = 50;

/// The contents of a file.
pub enum JobFile {
    One(Box<RawValue>),
    Many(Vec<Box<RawValue>>),
}

/// A file in the API's format of a batch.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchFile {
    jobs: Vec<Box<RawValue>>,
}

pub fn read(file: &Path) -> anyhow::Result<JobFile> {
    let documents = documents::read(file)?;
    let read: Result<Vec<JobFile>, _> = documents.iter().map(|document| parse(document.get())).collect();
    let mut read = read.map_err(|error| CliError::refused(format!("{}: {error}", file.display())))?;
    let read = if read.len() == 1 { read.remove(0) } else { JobFile::Many(all_of(read)) };
    match read {
        JobFile::Many(jobs) if jobs.is_empty() => {
            Err(CliError::refused(format!("{} contains no job", file.display())).into())
        }
        read => Ok(read),
    }
}

fn all_of(documents: Vec<JobFile>) -> Vec<Box<RawValue>> {
    let jobs = documents.into_iter().flat_map(|document| match document {
        JobFile::One(job) => vec![job],
        JobFile::Many(jobs) => jobs,
    });
    jobs.collect()
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

/// Submits many jobs.
pub struct JobBatches<'a> {
    pub client: &'a Client,
    pub request_key: Option<&'a str>,
    pub guard: DuplicateGuard<'a>,
    /// The lines of the jobs, if they are rows of a file. Each of these has an idempotency key.
    pub lines: Option<&'a [u64]>,
}

impl JobBatches<'_> {
    /// Submits the jobs in as many batches as necessary, parents before the jobs that name them. A rejected
    /// job does not affect the others.
    pub async fn submit(&self, jobs: &[Box<RawValue>], output: OutputArgs) -> anyhow::Result<Exit> {
        let mut items = vec![None; jobs.len()];
        let bar = progress(jobs.len());
        let submitted = self.submit_all(jobs, &mut items, &bar).await;
        bar.finish_and_clear();
        if submitted.is_err() {
            items.iter_mut().for_each(|item| {
                *item = item.take().or_else(|| {
                    Some(refused("no response arrived, so it is unknown whether the job was accepted"))
                })
            });
        }
        let answer = BatchAnswer { items: items.into_iter().flatten().collect() };
        if submitted.is_ok() || answer.items.iter().any(is_taken) {
            output.print(&answer, |answer| match self.lines {
                Some(_) if answer.items.len() > TABLE_ROWS_MAX => row_summary(answer),
                _ => batch_table(answer, jobs),
            })?;
        }
        let exit = match self.lines {
            None => tell_refused(&answer, jobs),
            Some(lines) => tell_refused_rows(&answer, lines),
        };
        submitted.map(|()| exit)
    }

    async fn submit_all(
        &self,
        jobs: &[Box<RawValue>],
        items: &mut [Option<BatchItem>],
        bar: &ProgressBar,
    ) -> anyhow::Result<()> {
        let family = JobFamily::of(jobs);
        for (item, why) in items.iter_mut().zip(self.guard.duplicates(jobs).await?) {
            *item = why.map(|why| refused(&why));
        }
        let mut number = 1;
        while items.iter().any(Option::is_none) {
            let ready = self.ready(&family, jobs, items).await?;
            if ready.is_empty() {
                // The remaining jobs wait for each other in a cycle.
                let waiting = items.iter_mut().filter(|item| item.is_none());
                waiting.for_each(|item| {
                    *item = Some(refused("depends_on forms a cycle back to the job itself"))
                });
            }
            let (places, ready): (Vec<usize>, Vec<Box<RawValue>>) = ready.into_iter().unzip();
            let (mut places, mut rest) = (places.into_iter(), ready.as_slice());
            while !rest.is_empty() {
                let (batch, after) = rest.split_at(batch_length(rest));
                let answers = self.client_of(number).submit_batch_json(batch).await?.items;
                for (within, (answer, place)) in answers.into_iter().zip(&mut places).enumerate() {
                    items[place] = Some(without_place(answer, within));
                }
                number += 1;
                rest = after;
                bar.inc(batch.len() as u64);
            }
        }
        Ok(())
    }

    /// The jobs that can be submitted now, each with its index. Jobs that can never be submitted are
    /// rejected.
    async fn ready(
        &self,
        family: &JobFamily,
        jobs: &[Box<RawValue>],
        items: &mut [Option<BatchItem>],
    ) -> anyhow::Result<Vec<(usize, Box<RawValue>)>> {
        let mut ready = Vec::new();
        let states: Vec<FileJobState> = items.iter().map(state_of).collect();
        for (place, job) in jobs.iter().enumerate().filter(|(place, _)| states[*place] == FileJobState::Open)
        {
            match family.turn(place, &states) {
                Turn::Waits => {}
                Turn::Hopeless(why) => items[place] = Some(refused(&why)),
                Turn::Ready(ids) => match family.with_ids(self.client, (place, job), ids).await {
                    Ok(job) => ready.push((place, job)),
                    Err(error) if error.is::<CliError>() => {
                        items[place] = Some(refused(&format!("depends_on: {error}")));
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(ready)
    }

    /// The client of one batch: a key identifies one request, and each batch is one.
    fn client_of(&self, number: usize) -> Client {
        match self.request_key {
            Some(key) if number > 1 => self.client.with_request_key(format!("{key}.{number}")),
            _ => self.client.clone(),
        }
    }
}

fn state_of(item: &Option<BatchItem>) -> FileJobState {
    match item {
        None => FileJobState::Open,
        Some(BatchItem::Submitted(submitted)) => FileJobState::Taken(submitted.job_id),
        Some(BatchItem::Refused { .. }) => FileJobState::Refused,
    }
}

/// A rejection by this command itself.
fn refused(why: &str) -> BatchItem {
    let error = Problem { detail: Some(why.to_owned()), ..Problem::new(422, "the job was not submitted") };
    BatchItem::Refused { error }
}

fn is_taken(item: &BatchItem) -> bool {
    matches!(item, BatchItem::Submitted(_))
}

/// Prints which jobs were rejected and why, and what happens if the file is submitted again.
fn tell_refused(answer: &BatchAnswer, jobs: &[Box<RawValue>]) -> Exit {
    let mut exit = Exit::Done;
    for (place, (item, job)) in answer.items.iter().zip(jobs).enumerate() {
        if let BatchItem::Refused { error } = item {
            let (number, name) = (place + 1, name_of(job));
            tell(&format!("refused job {number} of {} ({name}): {}", jobs.len(), told(error)));
            exit = Exit::Refused;
        }
    }
    let taken = answer.items.iter().zip(jobs).filter(|(item, _)| is_taken(item));
    let (keyed, plain): (Vec<_>, Vec<_>) = taken.partition(|(_, job)| has_key(job));
    if exit == Exit::Done || keyed.len() + plain.len() == 0 {
        return exit;
    }
    let were_taken = format!("{} of {} jobs were accepted", keyed.len() + plain.len(), jobs.len());
    if plain.is_empty() {
        tell(&format!(
            "note: {were_taken}; the file can be submitted again, because each job has an idempotency_key"
        ));
        return exit;
    }
    let names: Vec<String> = plain.iter().take(NAMES_TOLD_MAX).map(|(_, job)| name_of(job)).collect();
    let more = if plain.len() > names.len() { ", …" } else { "" };
    tell(&format!(
        "note: {were_taken}; submitting the file again would submit {} of them again ({}{more}): remove them from the file \
         first, and next time give every job an idempotency_key",
        plain.len(),
        names.join(", "),
    ));
    exit
}

/// Prints which rows were rejected and why.
fn tell_refused_rows(answer: &BatchAnswer, lines: &[u64]) -> Exit {
    let mut exit = Exit::Done;
    for (item, line) in answer.items.iter().zip(lines) {
        if let BatchItem::Refused { error } = item {
            tell(&format!("refused line {line}: {}", told(error)));
            exit = Exit::Refused;
        }
    }
    let existing =
        answer.items.iter().filter(|item| matches!(item, BatchItem::Submitted(job) if job.existing)).count();
    if exit != Exit::Done {
        tell(
            "note: correct these lines and submit the file again; lines that were accepted are not submitted twice",
        );
    } else if existing == answer.items.len() {
        tell("note: all of these jobs were submitted before; pass --resume-key KEY to submit them again");
    }
    exit
}

fn row_summary(answer: &BatchAnswer) -> String {
    let count = |is_one: fn(&BatchItem) -> bool| answer.items.iter().filter(|item| is_one(item)).count();
    let existing = count(|item| matches!(item, BatchItem::Submitted(job) if job.existing));
    let taken = count(is_taken);
    let refused = answer.items.len() - taken;
    format!("{} submitted, {existing} submitted before, {refused} refused", taken - existing)
}

/// A bar on stderr for several batches; invisible where stderr is not a terminal.
fn progress(jobs: usize) -> ProgressBar {
    if jobs <= limits::SUBMIT_BATCH_MAX {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len}  {per_sec}  {eta} left");
    ProgressBar::new(jobs as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Why one job of a file was refused. Anything that would affect the other jobs as well is an error.
pub fn refusal(error: anyhow::Error) -> anyhow::Result<(Problem, Exit)> {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Refused(problem)) if matches!(problem.status, 400 | 403 | 413) => {
            Ok(((**problem).clone(), exit::of_problem(problem)))
        }
        _ => control::refusal(error),
    }
}

/// The job with the names of its dependencies replaced by ids.
pub async fn with_parents(client: &Client, job: Box<RawValue>) -> anyhow::Result<Box<RawValue>> {
    let jobs = [job];
    JobFamily::of(&jobs).with_ids(client, (0, &jobs[0]), BTreeMap::new()).await.context("depends_on")
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

/// The outcome without the job's index in its batch, which is not its index in the file.
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

/// What is wrong with a job; of several fields, each on its own line.
fn told(error: &Problem) -> String {
    match &error.errors[..] {
        [] | [_] => error.detail.clone().unwrap_or_else(|| error.title.clone()),
        _ => error.to_string(),
    }
}

/// Whether submitting the job again would return the existing one.
fn has_key(job: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Keyed {
        idempotency_key: Option<String>,
    }
    serde_json::from_str::<Keyed>(job.get()).is_ok_and(|keyed| keyed.idempotency_key.is_some())
}

/// The name of the job; `-` if there is none.
pub fn name_of(job: &RawValue) -> String {
    #[derive(Deserialize)]
    struct NamedJob {
        name: String,
    }
    match serde_json::from_str::<NamedJob>(job.get()) {
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
}
