//! From a submitted job to the core's description of it. Contradictions are refused here, with the field that
//! is in the way; limits are checked by core.

use punctual_client::{RetryBody, RetryStrategy, ScheduleType, Span, SubmitJob};
use punctual_core::job::{DEFAULT_OWNER, DEFAULT_QUEUE, InvalidField, JobSpec, Priority, Settings};
use punctual_core::limits;
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::Schedule;
use punctual_core::time::{Timestamp, duration_micros};
use std::time::Duration;

/// The job that was meant, or all that is wrong with it.
pub fn job_spec(job: SubmitJob, now: Timestamp) -> Result<JobSpec, Vec<InvalidField>> {
    let mut problems = Vec::new();
    let schedule = schedule(&job, now).unwrap_or_else(|problem| {
        problems.push(problem);
        Schedule::Immediate
    });
    let retry = match job.retry.map_or(Ok(RetryPolicy::default()), retry_policy) {
        Ok(retry) => retry,
        Err(problem) => {
            problems.push(problem);
            RetryPolicy::default()
        }
    };
    let defaults = Settings::default();
    let spec = JobSpec {
        job_type: job.job_type.unwrap_or_else(|| job.name.clone()),
        name: job.name,
        queue: job.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
        owner: job.owner_id.unwrap_or_else(|| DEFAULT_OWNER.to_owned()),
        priority: job.priority.map_or(Priority::DEFAULT, |priority| priority.0),
        payload: job.payload.map_or_else(|| "null".to_owned(), |payload| Box::<str>::from(payload).into()),
        settings: Settings {
            schedule,
            overlap: job.overlap_policy.unwrap_or_default(),
            max_retries: job.max_retries.unwrap_or(defaults.max_retries),
            retry,
            timeout_ms: job.timeout_secs.map_or(defaults.timeout_ms, |timeout| timeout.as_millis()),
            tags: job.tags.unwrap_or_default(),
        },
    };
    if problems.is_empty() {
        return Ok(spec);
    }
    // The engine checks what it gets; here nothing gets there, and whoever asks wants to hear it all at once.
    problems.extend(spec.check().err().into_iter().flatten());
    Err(problems)
}

fn schedule(job: &SubmitJob, now: Timestamp) -> Result<Schedule, InvalidField> {
    refuse_contradictions(job)?;
    let missing = |field, kind: ScheduleType, or| {
        InvalidField::new(field, format!("is needed for schedule_type {}{or}", kind.as_str()))
    };
    match (job.schedule_type, job.interval, job.execute_at, job.delay) {
        (_, Some(every), _, _) => interval(job, every.get(), now),
        (_, None, Some(at), _) => Ok(Schedule::OneTime { at }),
        (_, None, None, Some(delay)) => Ok(Schedule::OneTime { at: now.plus(delay.get()) }),
        (Some(kind @ ScheduleType::OneTime), None, None, None) => {
            Err(missing("execute_at", kind, " (or give delay)"))
        }
        (Some(kind @ ScheduleType::Recurring), None, None, None) => Err(missing("interval", kind, "")),
        (Some(ScheduleType::Immediate) | None, None, None, None) => Ok(Schedule::Immediate),
    }
}

/// The schedule fields that were given, each with the kind of schedule that it belongs to.
fn given(job: &SubmitJob) -> impl Iterator<Item = (&'static str, ScheduleType)> {
    [
        ("execute_at", ScheduleType::OneTime, job.execute_at.is_some()),
        ("delay", ScheduleType::OneTime, job.delay.is_some()),
        ("interval", ScheduleType::Recurring, job.interval.is_some()),
        ("max_runs", ScheduleType::Recurring, job.max_runs.is_some()),
        ("start_at", ScheduleType::Recurring, job.start_at.is_some()),
        ("end_at", ScheduleType::Recurring, job.end_at.is_some()),
    ]
    .into_iter()
    .filter_map(|(field, kind, is_given)| is_given.then_some((field, kind)))
}

fn refuse_contradictions(job: &SubmitJob) -> Result<(), InvalidField> {
    if let Some(said) = job.schedule_type
        && let Some((field, kind)) = given(job).find(|(_, kind)| *kind != said)
    {
        return Err(InvalidField::new(
            field,
            format!(
                "belongs to schedule_type {}, not {}: leave out one of the two",
                kind.as_str(),
                said.as_str()
            ),
        ));
    }
    if job.execute_at.is_some() && job.delay.is_some() {
        return Err(InvalidField::new("delay", "cannot be combined with execute_at: give one of the two"));
    }
    if job.interval.is_some()
        && let Some((field, _)) = given(job).find(|(_, kind)| *kind == ScheduleType::OneTime)
    {
        return Err(InvalidField::new(
            field,
            "cannot be combined with interval: give start_at for the first run",
        ));
    }
    let bounds = given(job).find(|(field, kind)| *kind == ScheduleType::Recurring && *field != "interval");
    match bounds {
        Some((field, _)) if job.interval.is_none() => {
            Err(InvalidField::new(field, "only applies to recurring jobs: give interval, too"))
        }
        _ => Ok(()),
    }
}

fn interval(job: &SubmitJob, every: Duration, now: Timestamp) -> Result<Schedule, InvalidField> {
    let every_us = duration_micros(every);
    let anchor = match job.start_at {
        None => now.plus(every),
        Some(start) => first_not_before(now, start, every),
    };
    if let Some(end_at) = job.end_at
        && end_at < anchor
    {
        return Err(InvalidField::new("end_at", format!("must not be before the first run, at {anchor}")));
    }
    Ok(Schedule::Interval { every_us, anchor, max_runs: job.max_runs, end_at: job.end_at })
}

/// The first of the times counted from `start` that is not past: what lies before the job's own beginning was
/// not missed.
fn first_not_before(now: Timestamp, start: Timestamp, every: Duration) -> Timestamp {
    if start >= now || every < limits::INTERVAL_MIN {
        return start;
    }
    let every_us = duration_micros(every);
    let behind_us = now.as_micros().saturating_sub(start.as_micros());
    let steps = behind_us / every_us + i64::from(behind_us % every_us != 0);
    start.shifted(steps.saturating_mul(every_us))
}

fn retry_policy(retry: RetryBody) -> Result<RetryPolicy, InvalidField> {
    let strategy = retry.strategy.unwrap_or(match retry.steps {
        Some(_) => RetryStrategy::Ladder,
        None => RetryStrategy::Exponential,
    });
    let stray = |field: &str, is_given: bool, belongs: &str| {
        if is_given {
            Err(InvalidField::new(format!("retry.{field}"), format!("only applies to strategy {belongs}")))
        } else {
            Ok(())
        }
    };
    let RetryPolicy::Exponential { delay_ms, max_delay_ms } = RetryPolicy::default() else {
        unreachable!("the default is exponential");
    };
    let delay_ms = retry.delay.map_or(delay_ms, millis);
    match strategy {
        RetryStrategy::Exponential => {
            stray("steps", retry.steps.is_some(), "ladder")?;
            // A long first delay without a cap of its own means a constant one, not a contradiction.
            let max_delay_ms = retry.max_delay.map_or(max_delay_ms.max(delay_ms), millis);
            Ok(RetryPolicy::Exponential { delay_ms, max_delay_ms })
        }
        RetryStrategy::Fixed => {
            stray("steps", retry.steps.is_some(), "ladder")?;
            stray("max_delay", retry.max_delay.is_some(), "exponential")?;
            Ok(RetryPolicy::Fixed { delay_ms })
        }
        RetryStrategy::Ladder => {
            stray("delay", retry.delay.is_some(), "exponential or fixed")?;
            stray("max_delay", retry.max_delay.is_some(), "exponential")?;
            let steps = retry.steps.unwrap_or_default();
            Ok(RetryPolicy::Ladder { steps_ms: steps.into_iter().map(millis).collect() })
        }
    }
}

fn millis(span: Span) -> u64 {
    u64::try_from(span.get().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T08:30:00Z".parse().unwrap()
    }

    fn spec(json: &str) -> Result<JobSpec, Vec<InvalidField>> {
        job_spec(serde_json::from_str(json).unwrap(), now())
    }

    fn schedule_of(json: &str) -> Schedule {
        spec(json).unwrap().settings.schedule
    }

    fn refused(json: &str) -> Vec<String> {
        spec(json).unwrap_err().into_iter().map(|problem| problem.to_string()).collect()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_is_enough() {
        assert_eq!(spec(r#"{"name":"report"}"#), Ok(JobSpec::named("report")));
    }

    #[test]
    fn the_schedule_type_follows_from_the_fields() {
        assert_eq!(
            schedule_of(r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z"}"#),
            Schedule::OneTime { at: at("2026-11-15T09:00:00Z") }
        );
        assert_eq!(
            schedule_of(r#"{"name":"x","delay":"5m"}"#),
            Schedule::OneTime { at: at("2026-11-15T08:35:00Z") }
        );
        assert_eq!(
            schedule_of(r#"{"name":"x","interval":"PT1H"}"#),
            Schedule::Interval {
                every_us: 3_600_000_000,
                anchor: at("2026-11-15T09:30:00Z"),
                max_runs: None,
                end_at: None
            }
        );
    }

    #[test]
    fn an_interval_with_a_past_start_keeps_its_rhythm_and_begins_now() {
        let Schedule::Interval { anchor, .. } =
            schedule_of(r#"{"name":"x","interval":"1h","start_at":"2025-01-01T00:10:00Z"}"#)
        else {
            panic!("not an interval");
        };
        assert_eq!(anchor, at("2026-11-15T09:10:00Z"));
        let Schedule::Interval { anchor, .. } =
            schedule_of(r#"{"name":"x","interval":"1h","start_at":"2026-11-15T08:30:00Z"}"#)
        else {
            panic!("not an interval");
        };
        assert_eq!(anchor, now());
    }

    #[test]
    fn contradictions_name_the_field_in_the_way() {
        for (json, problem) in [
            (
                r#"{"name":"x","schedule_type":"IMMEDIATE","execute_at":"2026-11-15T09:00:00Z"}"#,
                "execute_at belongs to schedule_type ONE_TIME, not IMMEDIATE: leave out one of the two",
            ),
            (
                r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z","delay":"5m"}"#,
                "delay cannot be combined with execute_at: give one of the two",
            ),
            (
                r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z","interval":"5m"}"#,
                "execute_at cannot be combined with interval: give start_at for the first run",
            ),
            (r#"{"name":"x","max_runs":3}"#, "max_runs only applies to recurring jobs: give interval, too"),
            (
                r#"{"name":"x","schedule_type":"ONE_TIME"}"#,
                "execute_at is needed for schedule_type ONE_TIME (or give delay)",
            ),
            (r#"{"name":"x","schedule_type":"RECURRING"}"#, "interval is needed for schedule_type RECURRING"),
            (
                r#"{"name":"x","interval":"1h","end_at":"2026-11-15T09:00:00Z"}"#,
                "end_at must not be before the first run, at 2026-11-15T09:30:00Z",
            ),
            (
                r#"{"name":"x","retry":{"strategy":"fixed","max_delay":"1h"}}"#,
                "retry.max_delay only applies to strategy exponential",
            ),
        ] {
            assert_eq!(refused(json), [problem], "{json}");
        }
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let problems = refused(r#"{"name":"","schedule_type":"ONE_TIME","max_retries":5000,"job_type":"x"}"#);
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn retries_take_their_defaults() {
        let retry = |json: &str| spec(&format!(r#"{{"name":"x","retry":{json}}}"#)).unwrap().settings.retry;
        assert_eq!(retry("{}"), RetryPolicy::default());
        assert_eq!(retry(r#"{"strategy":"fixed","delay":"5s"}"#), RetryPolicy::Fixed { delay_ms: 5_000 });
        assert_eq!(
            retry(r#"{"steps":["1m","5m"]}"#),
            RetryPolicy::Ladder { steps_ms: vec![60_000, 300_000] }
        );
        assert_eq!(
            retry(r#"{"delay":"2h"}"#),
            RetryPolicy::Exponential { delay_ms: 7_200_000, max_delay_ms: 7_200_000 }
        );
    }
}
