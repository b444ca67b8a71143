//! Filters for dead letters.

use crate::job::which;
use anyhow::Context;
use punctual_client::{Client, DeadLetterFilter, Span};
use punctual_config::args;
use punctual_core::time::Timestamp;

#[derive(Debug, clap::Args)]
pub struct FilterArgs {
    /// Only those of this job, by id, or by name if only one job has it
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only those of jobs with exactly this name
    #[arg(long)]
    name: Option<String>,
    /// Only those of jobs that this handler runs
    #[arg(long = "type", value_name = "JOB_TYPE")]
    job_type: Option<String>,
    /// Only those of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only those of jobs of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only those that died from this time on: 2026-11-15T08:30:00Z, or 2h for the last two hours
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<FilterTime>,
    /// Only those that died before this time, or longer ago than this
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<FilterTime>,
    /// Only those whose error contains this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

/// An absolute time, or one relative to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterTime {
    At(Timestamp),
    Ago(Span),
}

pub(crate) fn moment(text: &str) -> Result<FilterTime, String> {
    if let Ok(ago) = text.parse() {
        return Ok(FilterTime::Ago(ago));
    }
    args::time(text).map(FilterTime::At).map_err(|fix| format!("{fix}, or a duration such as 2h"))
}

impl FilterArgs {
    /// The filter, with the job's id looked up and relative times resolved by the server's clock.
    pub async fn filter(self, client: &Client) -> anyhow::Result<DeadLetterFilter> {
        let job_id = match &self.job {
            Some(job) => Some(which::find(client, job).await.context("--job")?),
            None => None,
        };
        Ok(DeadLetterFilter {
            job_id,
            name: self.name,
            job_type: self.job_type,
            queue: self.queue,
            owner: self.owner,
            died_from: resolved(client, self.since).await?,
            died_until: resolved(client, self.until).await?,
            error: self.error,
        })
    }
}

pub(crate) async fn resolved(
    client: &Client,
    moment: Option<FilterTime>,
) -> anyhow::Result<Option<Timestamp>> {
    Ok(match moment {
        None => None,
        Some(FilterTime::At(at)) => Some(at),
        Some(FilterTime::Ago(ago)) => Some(client.clock().await?.now.minus(ago.get())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_seen_from_now() {
        assert_eq!(moment("2h"), Ok(FilterTime::Ago("2h".parse().unwrap())));
        assert_eq!(
            moment("2026-11-15T08:30:00Z"),
            Ok(FilterTime::At("2026-11-15T08:30:00Z".parse().unwrap()))
        );
        assert_eq!(
            moment("noon"),
            Err("must be a time such as 2026-11-15T08:30:00Z, not \"noon\", or a duration such as 2h"
                .to_owned())
        );
    }
}
