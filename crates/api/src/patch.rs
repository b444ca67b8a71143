//! Changes only some fields of a job: a JSON merge patch (RFC 7396) over the job as submitted.
//!
//! Fields that a patch does not name stay exactly as they are: the rhythm of an interval, the text of the
//! payload. Fields that it names displace those that they contradict. So a cron expression turns a one-time
//! job into a recurring one, and the patch need not name every field to remove.

use crate::error::ApiError;
use crate::json::{self, DocumentShape};
use crate::submission::{Basis, RECURRING_FIELDS, SCHEDULE_FIELDS, as_submitted, job_spec};
use punctual_client::{ScheduleType, SubmitJob};
use punctual_core::job::JobSpec;
use punctual_core::recurrence::{Recurrence, RecurrenceSpec};
use punctual_core::schedule::Schedule;
use punctual_core::time::Timestamp;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

type Fields = Map<String, Value>;

/// The job after the patch, or the errors in it.
pub fn patched(stored: &JobSpec, patch: &[u8], now: Timestamp) -> Result<JobSpec, ApiError> {
    let mut named: Fields = json::parse(patch, DocumentShape::Patch)?;
    let payload = match named.remove("payload") {
        None => stored.payload.clone(),
        Some(_) => merged_payload(&stored.payload, patch)?,
    };
    rename_calendar(&mut named)?;
    let names_schedule = named.keys().any(|field| is_schedule_field(field));
    let mut job = fields_of(as_submitted(stored))?;
    displace(&mut job, &named, kind_of(&stored.settings.schedule));
    refuse_lost_time(&job, &named)?;
    for (field, value) in named {
        put(&mut job, field, value);
    }
    let text = serde_json::to_vec(&job).map_err(internal)?;
    let job = json::parse_job(&text, DocumentShape::PatchedJob)?;
    let schedule = Some(&stored.settings.schedule);
    let basis = Basis { now, owner: &stored.owner, stored: schedule, keeps_schedule: !names_schedule };
    let spec = job_spec(job, basis).map_err(ApiError::invalid)?;
    Ok(JobSpec { payload, ..spec })
}

/// `calendar` is another spelling of `calendars`.
fn rename_calendar(named: &mut Fields) -> Result<(), ApiError> {
    let Some(written) = named.remove("calendar") else { return Ok(()) };
    let list = match written {
        Value::String(name) => Value::from(vec![name]),
        list => list,
    };
    match named.insert("calendars".to_owned(), list) {
        None => Ok(()),
        Some(_) => Err(ApiError::field(
            "calendar",
            "is another spelling of calendars: give one of the two".to_owned(),
        )),
    }
}

fn internal(error: serde_json::Error) -> ApiError {
    ApiError::Internal(format!("a job cannot be written as JSON: {error}"))
}

fn fields_of(job: SubmitJob) -> Result<Fields, ApiError> {
    match serde_json::to_value(job).map_err(internal)? {
        Value::Object(mut fields) => {
            // It follows from the other fields.
            fields.remove("schedule_type");
            Ok(fields)
        }
        other => Err(ApiError::Internal(format!("a job is not an object: {other}"))),
    }
}

fn is_schedule_field(name: &str) -> bool {
    name == "schedule_type" || SCHEDULE_FIELDS.iter().any(|(field, ..)| *field == name)
}

const fn kind_of(schedule: &Schedule) -> ScheduleType {
    match schedule {
        Schedule::Immediate => ScheduleType::Immediate,
        Schedule::OneTime { .. } => ScheduleType::OneTime,
        Schedule::Recurring(_) => ScheduleType::Recurring,
    }
}

/// The fields of which a recurring job has one.
const RULES: [&str; 4] = ["cron_expression", "interval", "rrule", "schedules"];

/// Whether the patch gives the field a value; null removes one.
fn gives(named: &Fields, field: &str) -> bool {
    named.get(field).is_some_and(|value| !value.is_null())
}

/// The schedule type that the patch asks for, if any.
fn wanted_kind(named: &Fields) -> Option<ScheduleType> {
    let said = named.get("schedule_type").and_then(|kind| ScheduleType::deserialize(kind).ok());
    let any_of = |fields: &[&str]| fields.iter().any(|field| gives(named, field));
    said.or_else(|| any_of(&RULES).then_some(ScheduleType::Recurring))
        .or_else(|| any_of(&["execute_at", "delay"]).then_some(ScheduleType::OneTime))
}

/// Removes the fields of the job that contradict the patch.
fn displace(job: &mut Fields, named: &Fields, kind: ScheduleType) {
    if wanted_kind(named).is_some_and(|wanted| wanted != kind) {
        for (field, ..) in SCHEDULE_FIELDS.iter().chain(&RECURRING_FIELDS) {
            job.remove(*field);
        }
    }
    for given in RULES.iter().filter(|rule| gives(named, rule)) {
        RULES.iter().filter(|other| *other != given).for_each(|other| drop(job.remove(*other)));
    }
    for (given, displaced) in [
        ("schedules", "dst_gap"),
        ("schedules", "dst_overlap"),
        ("delay", "execute_at"),
        ("expires_at", "expires_after"),
        ("expires_after", "expires_at"),
    ] {
        if gives(named, given) {
            job.remove(displaced);
        }
    }
    if named.get("interval").and_then(Value::as_str).is_some_and(is_elapsed) {
        ["dst_gap", "dst_overlap"].iter().for_each(|choice| drop(job.remove(*choice)));
    }
    for (field, word, bounds) in [
        ("misfire_policy", "RUN_ALL", &["misfire_limit", "max_lateness", "replay_rate"][..]),
        ("overlap_policy", "QUEUE", &["overlap_limit"][..]),
    ] {
        let is_other =
            |policy: &Value| !policy.as_str().is_some_and(|policy| policy.eq_ignore_ascii_case(word));
        if named.get(field).is_some_and(is_other) {
            bounds.iter().for_each(|bound| drop(job.remove(*bound)));
        }
    }
    if let (Some(Value::Object(retry)), Some(Value::Object(named))) =
        (job.get_mut("retry"), named.get("retry"))
    {
        displace_retry(retry, named);
    }
}

/// Whether clock changes do not affect the interval.
fn is_elapsed(interval: &str) -> bool {
    Recurrence::new(RecurrenceSpec::interval(interval, Timestamp::EPOCH))
        .is_ok_and(|recurrence| recurrence.is_elapsed())
}

/// Removes the retry delays that do not belong to the requested strategy.
fn displace_retry(retry: &mut Fields, named: &Fields) {
    let displaced: &[&str] = match named.get("strategy").map(Value::as_str) {
        Some(Some("ladder")) => &["delay", "max_delay"],
        Some(Some("fixed")) => &["max_delay", "steps"],
        Some(_) => &["steps"],
        None if gives(named, "steps") => &["strategy", "delay", "max_delay"],
        None if gives(named, "delay") && retry.contains_key("steps") => &["strategy", "steps"],
        // A default cap is dropped in favour of a longer delay.
        None if gives(named, "delay") && is_default_cap(retry) => &["max_delay"],
        None => &[],
    };
    for field in displaced {
        retry.remove(*field);
    }
}

fn is_default_cap(retry: &Fields) -> bool {
    retry.get("max_delay").is_some_and(|cap| cap == "1h" || Some(cap) == retry.get("delay"))
}

/// A job without its time would run at once, which is not what resetting a field should do.
fn refuse_lost_time(job: &Fields, named: &Fields) -> Result<(), ApiError> {
    for times in [&["cron_expression", "interval", "rrule"][..], &["execute_at", "delay"]] {
        let lost =
            times.iter().find(|time| job.contains_key(**time) && named.get(**time) == Some(&Value::Null));
        if let Some(time) = lost
            && !times.iter().any(|time| gives(named, time))
        {
            let fix =
                "cannot be taken away: give another time, or schedule_type IMMEDIATE to run the job at once";
            return Err(ApiError::field(*time, fix));
        }
    }
    Ok(())
}

/// Sets a value where the patch says. Nulls are kept: parsing the job treats them as absent and validates the
/// field names.
fn put(job: &mut Fields, field: String, value: Value) {
    match (job.get_mut(&field), value) {
        (Some(Value::Object(inner)), Value::Object(named)) if field == "retry" => {
            for (field, value) in named {
                inner.insert(field, value);
            }
        }
        (_, value) => {
            job.insert(field, value);
        }
    }
}

#[derive(Deserialize)]
struct PayloadOf<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

/// The new text of the payload: as in the patch, unless an object is merged into an object.
fn merged_payload(stored: &str, patch: &[u8]) -> Result<String, ApiError> {
    let Some(named) = json::parse::<PayloadOf<'_>>(patch, DocumentShape::Patch)?.payload else {
        return Ok("null".to_owned());
    };
    merged(Some(stored), named)
}

/// RFC 7396 on the text itself: whatever the patch does not name stays identical, however long its numbers or
/// deep its lists.
fn merged(target: Option<&str>, patch: &RawValue) -> Result<String, ApiError> {
    let Some(patch) = members(patch.get())? else { return Ok(patch.get().to_owned()) };
    let mut target = match target {
        Some(target) => members(target)?.unwrap_or_default(),
        None => vec![],
    };
    for (name, value) in patch {
        let place = target.iter().position(|(known, _)| *known == name);
        if value.get() == "null" {
            place.map(|place| target.remove(place));
            continue;
        }
        let text = merged(place.map(|place| target[place].1.get()), &value)?;
        let value = RawValue::from_string(text).map_err(internal)?;
        match place {
            Some(place) => target[place].1 = value,
            None => target.push((name, value)),
        }
    }
    let members = target.iter().map(|(name, value)| Ok(format!("{}:{value}", serde_json::to_string(name)?)));
    let members: Vec<String> = members.collect::<Result<_, serde_json::Error>>().map_err(internal)?;
    Ok(format!("{{{}}}", members.join(",")))
}

/// The members of an object in their order; `None` if the text is another kind of value.
fn members(text: &str) -> Result<Option<NamedValues>, ApiError> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let unreadable = |error| ApiError::field("payload", format!("cannot be merged: {error}"));
    serde_json::from_str::<OrderedMembers>(text).map(|members| Some(members.0)).map_err(unreadable)
}

/// The members of an object in their order.
type NamedValues = Vec<(String, Box<RawValue>)>;

struct OrderedMembers(NamedValues);

impl<'de> Deserialize<'de> for OrderedMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = OrderedMembers;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OrderedMembers, A::Error> {
                let mut members: NamedValues = vec![];
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    // Of duplicate names, the last one wins.
                    match members.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known = value,
                        None => members.push((name, value)),
                    }
                }
                Ok(OrderedMembers(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::job::{DEFAULT_OWNER, Expiry};
    use punctual_core::recurrence::{DstGap, DstOverlap, Rule};
    use punctual_core::retry::RetryPolicy;
    use punctual_core::schedule::OverlapPolicy;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn submitted() -> Timestamp {
        at("2026-11-15T08:30:00Z")
    }

    fn now() -> Timestamp {
        at("2026-11-15T08:40:00Z")
    }

    fn stored(json: &str) -> JobSpec {
        job_spec(serde_json::from_str(json).unwrap(), Basis::new(submitted(), DEFAULT_OWNER)).unwrap()
    }

    fn changed(job: &str, patch: &str) -> JobSpec {
        patched(&stored(job), patch.as_bytes(), now()).unwrap()
    }

    fn schedule_after(job: &str, patch: &str) -> Schedule {
        changed(job, patch).settings.schedule
    }

    fn refused(job: &str, patch: &str) -> String {
        match patched(&stored(job), patch.as_bytes(), now()) {
            Err(ApiError::InvalidFields(errors)) => format!("{} {}", errors[0].field, errors[0].detail),
            other => panic!("{patch} gave {other:?}"),
        }
    }

    const EVERYTHING: &str = r#"{"name":"x","job_type":"t","payload":{"b": 1.0e3,  "a":[ ]},"queue":"q","priority":7,
        "interval":"90m","timezone":"Europe/Berlin","misfire_policy":"RUN_ALL","misfire_limit":4,
        "misfire_grace":"5m","jitter":"1500ms","max_runs":9,"end_at":"2030-01-01T00:00:00Z",
        "overlap_policy":"QUEUE","overlap_limit":3,"max_open":77,"max_retries":2,
        "retry":{"steps":["1m","5m"],"fail_on":["LOST"],"timeout_growth":1.25},"timeout_secs":0.5,
        "expires_after":"1h","owner_id":"ann","idempotency_key":"i","unique_key":"u","tags":["a"],
        "result_overflow":"fail"}"#;

    #[test]
    fn what_a_patch_does_not_name_stays_exactly_as_it_is() {
        let job = stored(EVERYTHING);
        assert_eq!(changed(EVERYTHING, "{}"), job);
        assert_eq!(changed(EVERYTHING, r#"{"name":"y"}"#), JobSpec { name: "y".to_owned(), ..job.clone() });
        let mut expected = job;
        expected.settings.max_open = 5;
        assert_eq!(changed(EVERYTHING, r#"{"max_open":5}"#), expected);
        for job in [
            r#"{"name":"x"}"#,
            r#"{"name":"x","delay":"5m","overlap_policy":"ALLOW","expires_at":"2026-11-16T00:00:00Z"}"#,
            r#"{"name":"x","cron_expression":"H H * * *","start_at":"2026-11-16T00:00:00Z"}"#,
        ] {
            assert_eq!(changed(job, "{}"), stored(job), "{job}");
        }
    }

    #[test]
    fn an_interval_keeps_its_rhythm_unless_the_patch_changes_it() {
        let anchor = |patch| match schedule_after(r#"{"name":"x","interval":"1h"}"#, patch) {
            Schedule::Recurring(recurring) => match recurring.recurrence.spec().rule {
                Rule::Interval { anchor, .. } => anchor,
                _ => panic!("not an interval"),
            },
            other => panic!("not recurring: {other:?}"),
        };
        assert_eq!(anchor(r#"{"priority":1}"#), submitted());
        assert_eq!(anchor(r#"{"max_runs":1}"#), submitted());
        assert_eq!(anchor(r#"{"interval":"2h"}"#), now());
        assert_eq!(anchor(r#"{"start_at":"2026-01-01T00:00:00Z"}"#), at("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn null_resets_a_field_to_its_default() {
        let job = changed(
            EVERYTHING,
            r#"{"payload":null,"queue":null,"priority":null,"retry":null,"max_retries":null,"tags":null,
                "job_type":null,"expires_after":null,"max_runs":null}"#,
        );
        assert_eq!((job.payload.as_str(), job.queue.as_str(), job.priority.get()), ("null", "default", 5));
        assert_eq!((job.job_type.as_str(), job.settings.max_retries), ("x", 3));
        assert_eq!(job.settings.retry, RetryPolicy::default());
        assert_eq!((job.settings.expiry, job.settings.timeout_growth_pct), (None, 100));
        let inner = changed(EVERYTHING, r#"{"retry":{"fail_on":null}}"#).settings;
        assert_eq!((inner.fail_on.len(), inner.timeout_growth_pct), (0, 125));
        assert_eq!(refused(EVERYTHING, r#"{"name":null}"#), "name must be a string, not null");
    }

    #[test]
    fn a_time_of_another_kind_takes_the_place_of_all_that_belonged_to_the_old_one() {
        let one_time = r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z"}"#;
        let Schedule::Recurring(_) = schedule_after(one_time, r#"{"cron_expression":"@daily"}"#) else {
            panic!("not recurring");
        };
        let job = changed(EVERYTHING, r#"{"delay":"5m"}"#);
        assert_eq!(job.settings.schedule, Schedule::OneTime { at: at("2026-11-15T08:45:00Z") });
        assert_eq!((job.settings.overlap, job.settings.max_open), (OverlapPolicy::Queue, 1_000));
        assert_eq!(
            schedule_after(one_time, r#"{"delay":"1h"}"#),
            Schedule::OneTime { at: at("2026-11-15T09:40:00Z") }
        );
        assert_eq!(schedule_after(EVERYTHING, r#"{"schedule_type":"immediate"}"#), Schedule::Immediate);
        let Schedule::Recurring(cron) = schedule_after(EVERYTHING, r#"{"cron_expression":"0 9 * * *"}"#)
        else {
            panic!("not recurring");
        };
        assert_eq!((cron.recurrence.spec().zone.as_str(), cron.max_runs), ("Europe/Berlin", Some(9)));
    }

    #[test]
    fn a_job_does_not_lose_its_time_by_a_reset() {
        let lost =
            "cannot be taken away: give another time, or schedule_type IMMEDIATE to run the job at once";
        assert_eq!(refused(EVERYTHING, r#"{"interval":null}"#), format!("interval {lost}"));
        let one_time = r#"{"name":"x","execute_at":"2026-11-15T09:00:00Z"}"#;
        assert_eq!(refused(one_time, r#"{"execute_at":null}"#), format!("execute_at {lost}"));
        let moved = schedule_after(one_time, r#"{"execute_at":null,"delay":"20m"}"#);
        assert_eq!(moved, Schedule::OneTime { at: at("2026-11-15T09:00:00Z") });
    }

    #[test]
    fn a_patch_displaces_what_it_contradicts() {
        let waits = |job: &str, patch: &str| changed(job, patch).settings.retry;
        assert_eq!(
            waits(EVERYTHING, r#"{"retry":{"strategy":"fixed","delay":"5s"}}"#),
            RetryPolicy::Fixed { delay_ms: 5_000 }
        );
        assert_eq!(
            waits(r#"{"name":"x"}"#, r#"{"retry":{"steps":["1s"]}}"#),
            RetryPolicy::Ladder { steps_ms: vec![1_000] }
        );
        assert_eq!(
            waits(r#"{"name":"x"}"#, r#"{"retry":{"delay":"2h"}}"#),
            RetryPolicy::Exponential { delay_ms: 7_200_000, max_delay_ms: 7_200_000 }
        );
        let fixed = r#"{"name":"x","retry":{"strategy":"fixed","delay":"5s"}}"#;
        assert_eq!(waits(fixed, r#"{"retry":{"delay":"7s"}}"#), RetryPolicy::Fixed { delay_ms: 7_000 });
        assert_eq!(
            waits(fixed, r#"{"retry":{"strategy":"exponential"}}"#),
            RetryPolicy::Exponential { delay_ms: 5_000, max_delay_ms: 3_600_000 }
        );
        let settings = changed(EVERYTHING, r#"{"overlap_policy":"SKIP","misfire_policy":null}"#).settings;
        assert_eq!((settings.overlap, settings.overlap_limit), (OverlapPolicy::Skip, 10));
        let small_letters = changed(EVERYTHING, r#"{"overlap_policy":"queue","misfire_policy":"run_all"}"#);
        assert_eq!(small_letters, stored(EVERYTHING));
        let once = r#"{"name":"x","expires_after":"1h"}"#;
        let expiry = changed(once, r#"{"expires_at":"2026-11-16T00:00:00Z"}"#).settings.expiry;
        assert_eq!(expiry, Some(Expiry::At(at("2026-11-16T00:00:00Z"))));
    }

    #[test]
    fn an_elapsed_interval_displaces_choices_about_clock_changes() {
        let daily = r#"{"name":"x","cron_expression":"0 2 * * *","dst_gap":"SKIP","dst_overlap":"BOTH"}"#;
        let choices = |patch: &str| match schedule_after(daily, patch) {
            Schedule::Recurring(recurring) => {
                let spec = recurring.recurrence.spec();
                (spec.dst_gap, spec.dst_overlap)
            }
            other => panic!("not recurring: {other:?}"),
        };
        let kept = (Some(DstGap::Skip), Some(DstOverlap::Both));
        assert_eq!(choices(r#"{"cron_expression":"0 3 * * *"}"#), kept);
        assert_eq!(choices(r#"{"interval":"daily"}"#), kept);
        assert_eq!(choices(r#"{"interval":"90m"}"#), (None, None));
        assert_eq!(
            refused(daily, r#"{"interval":"90m","dst_gap":"SKIP"}"#),
            "dst_gap only applies to cron expressions and to intervals of days or longer: 90m is elapsed time, \
             which clock changes do not affect"
        );
    }

    /// A job as an earlier release stored it.
    fn stored_before(recurrence: &str) -> JobSpec {
        let mut job = stored(r#"{"name":"x"}"#);
        let schedule = format!(r#"{{"recurring":{{"recurrence":{recurrence}}}}}"#);
        job.settings.schedule = serde_json::from_str(&schedule).unwrap();
        job
    }

    #[test]
    fn a_job_of_an_earlier_release_keeps_its_schedule_until_a_patch_names_it() {
        let idle =
            r#"{"rule":{"interval":{"every":"90m","anchor":"2026-01-01T00:00:00Z"}},"dst_gap":"SKIP"}"#;
        let listed = r#"{"rule":{"cron":{"pattern":"0 9 * * ?,5"}}}"#;
        let repeated = r#"{"rule":{"cron":{"pattern":"*/15 0-6 * * *"}},"zone":"Europe/Berlin"}"#;
        for recurrence in [idle, listed, repeated] {
            let job = stored_before(recurrence);
            let expected = JobSpec { name: "y".to_owned(), ..job.clone() };
            assert_eq!(patched(&job, br#"{"name":"y"}"#, now()).unwrap(), expected, "{recurrence}");
        }
        let Schedule::Recurring(bounded) =
            patched(&stored_before(idle), br#"{"max_runs":5}"#, now()).unwrap().settings.schedule
        else {
            panic!("not recurring");
        };
        assert_eq!((bounded.recurrence.spec().dst_gap, bounded.max_runs), (None, Some(5)));
        assert!(patched(&stored_before(listed), br#"{"max_runs":5}"#, now()).is_err());
        let Schedule::Recurring(updated) =
            patched(&stored_before(repeated), br#"{"max_runs":5}"#, now()).unwrap().settings.schedule
        else {
            panic!("not recurring");
        };
        assert_eq!(
            updated.recurrence.dst_overlap(),
            DstOverlap::Both,
            "an updated schedule follows the new rule"
        );
    }

    #[test]
    fn payloads_are_merged_and_otherwise_kept_to_the_letter() {
        let payload = |patch: &str| changed(EVERYTHING, patch).payload;
        assert_eq!(payload(r#"{"priority":1}"#), r#"{"b": 1.0e3,  "a":[ ]}"#);
        assert_eq!(payload(r#"{"payload":[1, 2]}"#), "[1, 2]");
        assert_eq!(payload(r#"{"payload":{"b":null,"c":{"d":1}}}"#), r#"{"a":[ ],"c":{"d":1}}"#);
        assert_eq!(payload(r#"{"payload":{"a":{"x":null,"y":2}}}"#), r#"{"b":1.0e3,"a":{"y":2}}"#);
    }

    #[test]
    fn a_merge_keeps_what_no_number_or_text_type_could_hold() {
        let deep = "[".repeat(500) + &"]".repeat(500);
        for odd in
            ["1e999", r#""\ud800""#, "12345678901234567890123", "0.10000000000000000001", deep.as_str()]
        {
            let stored = format!(r#"{{"name":"x","payload":{{"keep":{odd},"b":0}}}}"#);
            let payload = changed(&stored, r#"{"payload":{"b":1}}"#).payload;
            assert_eq!(payload, format!(r#"{{"keep":{odd},"b":1}}"#));
        }
    }

    #[test]
    fn a_patch_with_unknown_fields_is_refused_even_if_it_resets_them() {
        assert_eq!(
            refused(EVERYTHING, r#"{"pirority":null}"#),
            "pirority is not a known field, did you mean priority?"
        );
        assert_eq!(refused(EVERYTHING, r#"{"retry":{"x":null}}"#), "retry.x is not a known field");
        assert_eq!(
            refused(r#"{"name":"x"}"#, r#"{"max_runs":3}"#),
            "max_runs only applies to recurring jobs: give cron_expression or interval, too"
        );
        assert!(matches!(patched(&stored(EVERYTHING), b"[]", now()), Err(ApiError::WrongShape { .. })));
    }
}
