//! The examples: the job of each, what it demonstrates, and the commands to inspect it.

use punctual_client::{Growth, RetryBody, RetryStrategy, Seconds, Span, SubmitJob};
use punctual_core::ids::JobId;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// The tag of all examples, by which they are found.
pub const TAG: &str = "demo";
/// The example that continues after the others; the demo does not wait for it.
pub const TICK: &str = "demo-tick";
/// How often the tick runs before it ends by itself, if it is not cleaned up.
const TICKS: u32 = 30;

pub struct Example {
    pub name: &'static str,
    /// The example that must succeed first.
    pub after: Option<&'static str>,
    /// What it demonstrates.
    pub what: &'static str,
    /// The commands to inspect it.
    pub look: &'static [&'static str],
    job: SubmitJob,
}

impl Example {
    /// The job to submit, given the ids of the jobs submitted before it.
    pub fn job(&self, ids: &BTreeMap<&'static str, JobId>) -> SubmitJob {
        let parent = self.after.and_then(|name| ids.get(name)).copied();
        SubmitJob {
            name: self.name.to_owned(),
            depends_on: parent.map(|parent| vec![parent]),
            tags: Some(vec![TAG.to_owned()]),
            ..self.job.clone()
        }
    }
}

pub fn all() -> Vec<Example> {
    vec![
        Example {
            name: TICK,
            after: None,
            what: "recurs: every 2 seconds, 30 times",
            look: &["punctual job history demo-tick", "punctual schedule preview --every 2s"],
            job: SubmitJob {
                job_type: Some("noop".to_owned()),
                interval: Some("2s".to_owned()),
                max_runs: Some(TICKS),
                ..SubmitJob::default()
            },
        },
        Example {
            name: "demo-flaky",
            after: None,
            what: "fails twice because its time limit is too short, and succeeds after the limit has grown",
            look: &["punctual job history demo-flaky", "punctual job explain demo-flaky"],
            job: SubmitJob {
                retry: Some(RetryBody {
                    timeout_growth: Some(Growth { percent: 250 }),
                    ..fixed(Duration::from_secs(1))
                }),
                ..sleep(2_000, Duration::from_millis(500))
            },
        },
        Example {
            name: "demo-hopeless",
            after: None,
            what: "fails permanently, and is kept as a dead letter",
            look: &[
                "punctual dlq list --name demo-hopeless",
                "punctual job explain demo-hopeless",
                "punctual job retry demo-hopeless",
            ],
            job: SubmitJob {
                max_retries: Some(1),
                retry: Some(fixed(Duration::from_secs(1))),
                ..sleep(60_000, Duration::from_secs(1))
            },
        },
        Example {
            name: "demo-extract",
            after: None,
            what: "is the first of a chain of three",
            look: &["punctual job show demo-extract"],
            job: sleep(2_000, Duration::from_secs(30)),
        },
        Example {
            name: "demo-transform",
            after: Some("demo-extract"),
            what: "waits until the first has succeeded",
            look: &["punctual job show demo-transform"],
            job: sleep(2_000, Duration::from_secs(30)),
        },
        Example {
            name: "demo-load",
            after: Some("demo-transform"),
            what: "waits until the second has succeeded",
            look: &["punctual job explain demo-load"],
            job: sleep(2_000, Duration::from_secs(30)),
        },
        Example {
            name: "demo-later",
            after: None,
            what: "runs once, 10 seconds after it was submitted",
            look: &["punctual job show demo-later"],
            job: SubmitJob {
                job_type: Some("noop".to_owned()),
                delay: Some(Span::from(Duration::from_secs(10))),
                ..SubmitJob::default()
            },
        },
        Example {
            name: "demo-nap",
            after: None,
            what: "sleeps for 12 seconds, with a time limit of 30",
            look: &["punctual job wait demo-nap"],
            job: sleep(12_000, Duration::from_secs(30)),
        },
    ]
}

/// A job that sleeps this long, with a timeout.
fn sleep(ms: u64, limit: Duration) -> SubmitJob {
    SubmitJob {
        job_type: Some("sleep".to_owned()),
        payload: RawValue::from_string(format!("{{\"ms\": {ms}}}")).ok(),
        timeout_secs: Some(Seconds::from(limit)),
        ..SubmitJob::default()
    }
}

fn fixed(pause: Duration) -> RetryBody {
    RetryBody { strategy: Some(RetryStrategy::Fixed), delay: Some(Span::from(pause)), ..RetryBody::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_follow_what_they_depend_on() {
        let all = all();
        for (place, example) in all.iter().enumerate() {
            if let Some(after) = example.after {
                assert!(all[..place].iter().any(|earlier| earlier.name == after), "{}", example.name);
            }
            assert!(example.look.iter().any(|command| command.contains(example.name)), "{}", example.name);
        }
    }
}
