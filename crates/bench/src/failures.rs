//! Failures beside a drain: a handler that fails, jobs for it at a steady rate, rules about them, and a notifier that counts
//! messages instead of sending them.

use crate::load;
use async_trait::async_trait;
use punctual_client::{Client, PriorityBody, SetChannel, SetRule, SubmitJob};
use punctual_core::job::{InvalidField, Priority};
use punctual_core::notify::{Channel, OutgoingMessage};
use punctual_core::ports::{ExecutionContext, Executor, Notifier, Outcome, SendError, Task};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const JOB_TYPE: &str = "bench-failing";
/// The owner of failing jobs: they do not wait behind the backlog of another owner.
const OWNER: &str = "bench-failing";
/// The pause between two submits of failing jobs.
const TICK: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);
/// Rules share so many channels.
const CHANNELS: u64 = 10;
/// No request goes there: the notifier only counts.
const CHANNEL_URL: &str = "https://receiver.example/";

/// A handler that always fails.
pub struct FailingHandler;

impl Executor for FailingHandler {
    fn job_types(&self) -> Vec<String> {
        vec![JOB_TYPE.to_owned()]
    }

    fn execute(&self, _context: ExecutionContext) -> Task<Outcome> {
        let error = "it fails on purpose".to_owned();
        Box::pin(async move { Outcome::Failed { error, retryable: false, retry_at: None } })
    }
}

/// Accepts every message, and counts its events.
#[derive(Debug, Default)]
pub struct CountingNotifier {
    events: AtomicU64,
}

impl CountingNotifier {
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Notifier for CountingNotifier {
    async fn send(&self, message: OutgoingMessage) -> Result<(), SendError> {
        self.events.fetch_add(message.count, Ordering::Relaxed);
        Ok(())
    }

    fn problems(&self, _channel: &Channel) -> Vec<InvalidField> {
        vec![]
    }

    fn configured(&self) -> &[(String, Channel)] {
        &[]
    }

    async fn ping(&self, _url: &str) -> Result<(), SendError> {
        Ok(())
    }
}

/// Failures that happen while other jobs are drained, and rules about them.
#[derive(Debug, Clone, Copy)]
pub struct FailureLoad {
    pub per_minute: u64,
    /// Each failing job is selected by one of so many rules; 0 for no rules.
    pub rules: u64,
}

impl FailureLoad {
    /// Sets all rules, each about jobs with a tag of its own.
    pub async fn set_rules(self, client: &Client) -> anyhow::Result<()> {
        if self.rules == 0 {
            return Ok(());
        }
        let channel: SetChannel = serde_json::from_value(json!({"type": "webhook", "url": CHANNEL_URL}))?;
        for number in 0..CHANNELS {
            client.set_channel(&channel_name(number), &channel).await?;
        }
        for number in 0..self.rules {
            let channel = channel_name(number % CHANNELS);
            let rule = json!({"events": ["failed"], "channels": [channel], "match": {"tags": [tag(number)]}});
            let rule: SetRule = serde_json::from_value(rule)?;
            client.set_notification_rule(&tag(number), &rule).await?;
        }
        Ok(())
    }

    fn job(self, number: u64) -> SubmitJob {
        SubmitJob {
            tags: number.checked_rem(self.rules).map(|rule| vec![tag(rule)]),
            owner_id: Some(OWNER.to_owned()),
            priority: Some(PriorityBody(Priority::MAX)),
            max_retries: Some(0),
            ..SubmitJob::named(JOB_TYPE)
        }
    }
}

fn tag(rule: u64) -> String {
    format!("team-{rule}")
}

fn channel_name(number: u64) -> String {
    format!("channel-{number}")
}

/// Submits failing jobs at the rate of the load.
pub struct FailureSubmitter {
    client: Client,
    load: FailureLoad,
    begun_at: Instant,
    submitted: u64,
}

impl FailureSubmitter {
    /// The jobs of the first tick are submitted at once, so that even the shortest drain has failures.
    pub async fn start(client: Client, load: FailureLoad) -> anyhow::Result<Self> {
        let mut submitter = FailureSubmitter { client, load, begun_at: Instant::now(), submitted: 0 };
        submitter.submit_due().await?;
        Ok(submitter)
    }

    /// Continues until the flag is set.
    pub async fn run(mut self, is_over: &AtomicBool) -> anyhow::Result<()> {
        loop {
            tokio::time::sleep(TICK).await;
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.submit_due().await?;
        }
    }

    async fn submit_due(&mut self) -> anyhow::Result<()> {
        let due = due_after(self.begun_at.elapsed() + TICK, self.load.per_minute);
        let jobs = (self.submitted..due).map(|number| self.load.job(number)).collect::<Vec<_>>();
        if !jobs.is_empty() {
            load::submit_batch(&self.client, &jobs).await?;
            self.submitted = due;
        }
        Ok(())
    }
}

/// How many jobs must have been submitted after this time.
fn due_after(time: Duration, per_minute: u64) -> u64 {
    (time.as_secs_f64() / MINUTE.as_secs_f64() * per_minute as f64).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_due_at_a_steady_rate_and_the_first_at_once() {
        assert_eq!(due_after(TICK, 1), 1);
        assert_eq!(due_after(TICK, 10_000), 17);
        assert_eq!(due_after(MINUTE, 10_000), 10_000);
    }

    #[test]
    fn each_failing_job_is_selected_by_one_rule() {
        let load = FailureLoad { per_minute: 60, rules: 3 };
        let tags = |number| load.job(number).tags.unwrap();
        assert_eq!([0, 2, 3].map(tags), [["team-0"], ["team-2"], ["team-0"]]);
        assert_eq!(FailureLoad { rules: 0, ..load }.job(7).tags, None);
    }
}
