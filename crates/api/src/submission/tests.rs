//! What a submitted job means, and what is wrong with it.

use super::*;
use punctual_core::job::DEFAULT_OWNER;
use punctual_core::schedule::Overlap;

fn now() -> Timestamp {
    "2026-11-15T08:30:00Z".parse().unwrap()
}

fn spec(json: &str) -> Result<JobSpec, Vec<InvalidField>> {
    job_spec(serde_json::from_str(json).unwrap(), Basis::new(now(), DEFAULT_OWNER))
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
        Recurring::new(RecurrenceSpec::interval("PT1H", now())).unwrap().into()
    );
}

fn next_of(json: &str) -> Option<Timestamp> {
    match schedule_of(json) {
        Schedule::Recurring(recurring) => recurring.recurrence.next_time_after(now()),
        other => panic!("not recurring: {other:?}"),
    }
}

#[test]
fn an_interval_begins_one_interval_from_now_or_in_the_rhythm_of_its_start() {
    assert_eq!(next_of(r#"{"name":"x","interval":"1h"}"#), Some(at("2026-11-15T09:30:00Z")));
    let past = r#"{"name":"x","interval":"1h","start_at":"2025-01-01T00:10:00Z"}"#;
    assert_eq!(next_of(past), Some(at("2026-11-15T09:10:00Z")));
    let months = r#"{"name":"x","interval":"monthly","timezone":"Europe/Berlin"}"#;
    assert_eq!(next_of(months), Some(at("2026-12-15T08:30:00Z")));
}

#[test]
fn a_hash_in_a_cron_expression_depends_on_owner_and_name() {
    let next = |owner: &str, name: &str| {
        next_of(&format!(r#"{{"name":"{name}","owner_id":"{owner}","cron_expression":"H H * * *"}}"#))
    };
    assert_eq!(next("ann", "a"), next("ann", "a"));
    assert_ne!(next("ann", "a"), next("ann", "b"));
    assert_ne!(next("ann", "a"), next("ben", "a"));
}

#[test]
fn the_answer_to_missed_runs_is_taken_over() {
    let json = r#"{"name":"x","cron_expression":"@daily","misfire_policy":"RUN_ALL","misfire_grace":"5m",
        "misfire_limit":9,"max_lateness":"1d","replay_rate":"2/s","jitter":"30s"}"#;
    let Schedule::Recurring(recurring) = schedule_of(json) else { panic!("not recurring") };
    let misfire = Misfire {
        policy: MisfirePolicy::RunAll,
        grace_ms: 300_000,
        limit: Some(9),
        max_lateness_ms: Some(86_400_000),
        replay_per_minute: Some(120),
    };
    assert_eq!((recurring.misfire, recurring.jitter_ms), (misfire, 30_000));
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
        (
            r#"{"name":"x","max_runs":3}"#,
            "max_runs only applies to recurring jobs: give cron_expression or interval, too",
        ),
        (
            r#"{"name":"x","cron_expression":"@daily","interval":"1h"}"#,
            "interval cannot be combined with cron_expression: give one of the two",
        ),
        (
            r#"{"name":"x","cron_expression":"@daily","misfire_limit":3}"#,
            "misfire_limit only applies to misfire_policy RUN_ALL",
        ),
        (
            r#"{"name":"x","cron_expression":"@daily","overlap_policy":"REPLACE","overlap_limit":3}"#,
            "overlap_limit only applies to overlap_policy QUEUE",
        ),
        (
            r#"{"name":"x","max_open":3}"#,
            "max_open only applies to recurring jobs: give cron_expression or interval, too",
        ),
        (
            r#"{"name":"x","expires_at":"2026-11-15T09:00:00Z","expires_after":"1h"}"#,
            "expires_after cannot be combined with expires_at: give one of the two",
        ),
        (
            r#"{"name":"x","cron_expression":"0 25 * * *"}"#,
            "cron_expression is not a cron expression: hour 25 is out of range, use 0–23 (column 3)",
        ),
        (
            r#"{"name":"x","cron_expression":"@daily","timezone":"Europe/Berlim"}"#,
            "timezone is not known: unknown time zone Europe/Berlim, did you mean Europe/Berlin?",
        ),
        (
            r#"{"name":"x","schedule_type":"ONE_TIME"}"#,
            "execute_at is needed for schedule_type ONE_TIME (or give delay)",
        ),
        (
            r#"{"name":"x","schedule_type":"RECURRING"}"#,
            "cron_expression is needed for schedule_type RECURRING (or give interval)",
        ),
        (
            r#"{"name":"x","retry":{"strategy":"fixed","max_delay":"1h"}}"#,
            "retry.max_delay only applies to retry.strategy exponential",
        ),
    ] {
        assert_eq!(refused(json), [problem], "{json}");
    }
}

#[test]
fn what_controls_a_job_is_taken_over() {
    let json = r#"{"name":"x","interval":"1h","overlap_policy":"QUEUE","overlap_limit":3,"max_open":50,
        "expires_after":"5m","unique_key":"u","idempotency_key":"i",
        "retry":{"fail_on":["TIMED_OUT","no such file"],"timeout_growth":1.5}}"#;
    let settings = spec(json).unwrap().settings;
    assert_eq!(settings.overlap(), Overlap { policy: OverlapPolicy::Queue, limit: 3, max_open: 50 });
    assert_eq!(settings.expiry, Some(Expiry::AfterMs(300_000)));
    assert_eq!((settings.unique_key.as_deref(), settings.idempotency_key.as_deref()), (Some("u"), Some("i")));
    assert_eq!(settings.fail_on, ["TIMED_OUT", "no such file"]);
    assert_eq!((settings.timeout_growth_pct, settings.retry), (150, RetryPolicy::default()));
}

#[test]
fn the_rhythm_of_an_unchanged_rule_goes_on() {
    let hour = r#"{"name":"x","interval":"1h"}"#;
    let stored = schedule_of(hour);
    let later = now().plus(std::time::Duration::from_secs(600));
    let basis = Basis { stored: Some(&stored), ..Basis::new(later, DEFAULT_OWNER) };
    let again = |json: &str| schedule(&serde_json::from_str(json).unwrap(), basis).unwrap();
    assert_eq!(again(hour), stored);
    let anchor = |schedule: &Schedule| match schedule {
        Schedule::Recurring(recurring) => match recurring.recurrence.spec().rule {
            Rule::Interval { anchor, .. } => anchor,
            _ => panic!("a cron rule"),
        },
        other => panic!("not recurring: {other:?}"),
    };
    assert_eq!(anchor(&again(r#"{"name":"x","interval":"1h","jitter":"5s"}"#)), now());
    assert_eq!(anchor(&again(r#"{"name":"x","interval":"2h"}"#)), later);

    let hashed = r#"{"name":"x","cron_expression":"H H * * *"}"#;
    let stored = schedule_of(hashed);
    let renamed: SubmitJob = serde_json::from_str(&hashed.replace("\"x\"", "\"y\"")).unwrap();
    let basis = Basis { stored: Some(&stored), ..basis };
    assert_eq!(schedule(&renamed, basis), Ok(stored.clone()));
    assert_ne!(schedule(&renamed, Basis::new(later, DEFAULT_OWNER)), Ok(stored));
}

#[test]
fn everything_wrong_is_told_at_once() {
    // The engine checks the bounds of a job without contradictions.
    let problems = |json: &str| spec(json).and_then(|spec| spec.check()).unwrap_err();
    for (json, wrong) in [
        (r#""cron_expression":"99 * * * *","timezone":"X","jitter":"9d""#, "timezone cron_expression jitter"),
        (
            r#""interval":"1h","max_runs":0,"jitter":"9d","misfire_grace":"2d""#,
            "max_runs jitter misfire_grace",
        ),
        (
            r#""interval":"1h","misfire_limit":3,"replay_rate":5,"timezone":"X""#,
            "misfire_limit replay_rate timezone",
        ),
        (r#""max_runs":3,"timezone":"UTC","timeout_secs":0"#, "timezone max_runs timeout_secs"),
        (r#""schedule_type":"IMMEDIATE","delay":"1m","interval":"1h""#, "delay interval"),
        (r#""retry":{"strategy":"fixed","max_delay":"1h","steps":["1m"]}"#, "retry.max_delay retry.steps"),
    ] {
        let problems = problems(&format!(r#"{{"name":"x",{json}}}"#)).into_iter();
        let found: Vec<String> = problems.map(|problem| problem.field).collect();
        assert_eq!(found.join(" "), wrong, "{json}");
    }
    let problems = refused(r#"{"name":"","schedule_type":"ONE_TIME","max_retries":5000,"job_type":"x"}"#);
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn retries_take_their_defaults() {
    let retry = |json: &str| spec(&format!(r#"{{"name":"x","retry":{json}}}"#)).unwrap().settings.retry;
    assert_eq!(retry("{}"), RetryPolicy::default());
    assert_eq!(retry(r#"{"strategy":"fixed","delay":"5s"}"#), RetryPolicy::Fixed { delay_ms: 5_000 });
    assert_eq!(retry(r#"{"steps":["1m","5m"]}"#), RetryPolicy::Ladder { steps_ms: vec![60_000, 300_000] });
    assert_eq!(
        retry(r#"{"delay":"2h"}"#),
        RetryPolicy::Exponential { delay_ms: 7_200_000, max_delay_ms: 7_200_000 }
    );
}
