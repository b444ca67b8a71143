//! Jobs: as submitted, as changed, as read; batches and previews.

use super::super::schema::{
    Schema, Schemas, any, flag, list, name, number, one_of, text, the, time, up_to, whole, words,
};
use super::{EXECUTION, JOB, page};
use punctual_client::{
    BatchAnswer, BatchRequest, ExecutionStatus, JobBody, LastExecution, OccurrencePreview, PreviewBody,
    PreviewRequest, RetryBody, RetryStrategy, ScheduleType, SubmitJob, SubmittedBody,
};
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::recurrence::{DstEffect, DstGap, DstOverlap};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy};
use serde_json::json;

pub fn describe(schemas: &mut Schemas) {
    words_of_jobs(schemas);
    retry(schemas);
    schemas.request::<SubmitJob>("SubmitJob", "A job as submitted. Only the name is required.", submitted());
    // In a patch nothing is required, and null resets a field.
    let patch =
        submitted().into_iter().map(|(field, schema)| (field, schema.sometimes().or_null())).collect();
    let about = "The fields of a job to change (JSON merge patch, RFC 7396): null resets a field to its \
                 default, fields that are not named stay unchanged.";
    schemas.request::<SubmitJob>("PatchJob", about, patch);
    read(schemas);
    batches(schemas);
    previews(schemas);
    page(schemas, "JobPage", "One page of jobs, newest first.", "Job");
}

const SCHEDULE_TYPES: [&str; 3] =
    [ScheduleType::Immediate.as_str(), ScheduleType::OneTime.as_str(), ScheduleType::Recurring.as_str()];

fn words_of_jobs(schemas: &mut Schemas) {
    schemas.add("JobStatus", words::<JobStatus>("The status of a job."));
    schemas
        .add("ScheduleType", one_of("What makes a job run. Case-insensitive in requests.", &SCHEDULE_TYPES));
    schemas.add(
        "DstGap",
        words::<DstGap>("What happens to a local time that clocks skip when they go forward."),
    );
    schemas.add(
        "DstOverlap",
        words::<DstOverlap>("What happens to a local time that clocks repeat when they go back."),
    );
    schemas.add(
        "MisfirePolicy",
        words::<MisfirePolicy>(
            "What happens to missed occurrences, that is, those later than the grace period: skip them, \
             run the latest one, or run all.",
        ),
    );
    schemas.add(
        "OverlapPolicy",
        words::<OverlapPolicy>(
            "What a fire does while the job has open occurrences: skip, run beside them, wait, or cancel \
             them and start when they have ended.",
        ),
    );
    let priority = Schema::default()
        .with(
            "description",
            "1 to 10, or `low`, `medium`, `high` for 2, 5, 8. One step equals ten seconds of waiting.",
        )
        .with(
            "anyOf",
            json!([
                {"type": "integer", "minimum": 1, "maximum": 10},
                {"type": "string", "enum": ["low", "medium", "high"]},
            ]),
        )
        .example(8);
    schemas.add("Priority", priority);
    let rate = Schema::default()
        .with("description", "A number per minute, or `10/m`, `2/s`.")
        .with(
            "anyOf",
            json!([
                {"type": "integer", "minimum": 1, "maximum": limits::REPLAY_RATE_MAX},
                {"type": "string", "pattern": "^ *[0-9]+ *(/ *(m|min|minute|s|sec|second) *)?$"},
            ]),
        )
        .example("10/m");
    schemas.add("ReplayRate", rate);
}

fn retry(schemas: &mut Schemas) {
    let duration = |about, example: &str| the("Duration", about).example(example);
    schemas.request::<RetryBody>(
        "Retry",
        "When to retry a failed attempt.",
        vec![
            ("strategy", words::<RetryStrategy>("How the delays grow.").otherwise("exponential")),
            (
                "delay",
                duration("The first delay; for `fixed` every delay. At most 366 days.", "60s")
                    .otherwise("60s"),
            ),
            (
                "max_delay",
                duration("The maximum delay of `exponential`. At most 366 days.", "1h").otherwise("1h"),
            ),
            (
                "steps",
                up_to(
                    limits::RETRY_STEPS_MAX,
                    list(
                        "The delays of `ladder`, in order; the last one repeats.",
                        the("Duration", "One delay."),
                    ),
                )
                .example(json!(["1m", "5m", "1h"])),
            ),
            (
                "fail_on",
                up_to(
                    limits::FAIL_ON_MAX,
                    list(
                        "Failures that are not retried: `TIMED_OUT`, `LOST`, or a part of the error \
                            message.",
                        text("One of them.").with("minLength", 1),
                    ),
                )
                .example(json!(["TIMED_OUT", "no such customer"])),
            ),
            (
                "timeout_growth",
                number(
                    "The factor by which the time limit grows with each retry; at most two decimals.",
                    1.0..=f64::from(limits::TIMEOUT_GROWTH_PCT_MAX) / 100.0,
                )
                .otherwise(1.0)
                .example(1.5),
            ),
        ],
    );
}

type Fields = Vec<(&'static str, Schema)>;

fn submitted() -> Fields {
    let mut fields = vec![
        ("name", name("The name of the job; at most 200 bytes.").needed().example("nightly-report")),
        (
            "job_type",
            name(
                "The handler that runs it; defaults to the name. `noop`, `sleep` and `http` are built in, \
                 `process` and `shell` where they are allowed.",
            )
            .example("http"),
        ),
        (
            "payload",
            any("Any JSON, passed to the handler unchanged; at most 256 KiB.")
                .example(json!({"url": "https://example.com/report"})),
        ),
        ("queue", name("Its queue: decides which workers may claim it.").otherwise("default")),
        ("priority", the("Priority", "Its priority in the queue.").otherwise(5)),
        ("schedule_type", the("ScheduleType", "Derived from the other fields if omitted.")),
        ("execute_at", time("Run once, at this time; a time in the past means now.")),
        ("delay", the("Duration", "Run once, after this long.").example("10m")),
    ];
    fields.extend(schedule());
    fields.extend(bounds());
    fields.extend(attempts());
    fields.extend(keys());
    fields
}

/// The fields of a recurring schedule; previews accept them too.
fn schedule() -> Fields {
    vec![
        (
            "cron_expression",
            text(
                "Repeat by a cron expression: five fields (minute first), six (second first) or seven \
                 (year last), or `@daily` and the like; `H` is a hash of owner and name.",
            )
            .with("minLength", 1)
            .example("0 9 * * MON-FRI"),
        ),
        (
            "interval",
            text(
                "Repeat at this interval: hours or less (`90s`, `PT3H`, `hourly`) in elapsed time, days or \
                 longer (`P1D`, `monthly`) as steps in the calendar of the time zone. From 100 ms to ten \
                 years.",
            )
            .with("minLength", 1)
            .example("90s"),
        ),
        (
            "timezone",
            text("The IANA name of the time zone of the schedule.")
                .with("minLength", 1)
                .otherwise("UTC")
                .example("Europe/Berlin"),
        ),
        ("dst_gap", the("DstGap", "Depends on the schedule if omitted.")),
        ("dst_overlap", the("DstOverlap", "Depends on the schedule if omitted.")),
        ("start_at", time("The first time at which it may run; an interval counts from here.")),
        ("end_at", time("The last time at which it may run.")),
    ]
}

fn bounds() -> Fields {
    let duration = |about, example: &str| the("Duration", about).example(example);
    vec![
        (
            "misfire_policy",
            the(
                "MisfirePolicy",
                "For recurring jobs. Missed occurrences that are replayed wait for room under \
                 `overlap_policy` and `max_open`.",
            )
            .otherwise("SKIP_MISSED"),
        ),
        (
            "misfire_grace",
            duration("How late an occurrence may be and still run normally; at most 24h.", "60s")
                .otherwise("60s"),
        ),
        (
            "misfire_limit",
            whole(
                "`RUN_ALL` runs only this many of the latest occurrences; all if omitted.",
                1..=u32::MAX.into(),
            ),
        ),
        ("max_lateness", duration("`RUN_ALL` runs none that is later than this; no limit if omitted.", "6h")),
        (
            "replay_rate",
            the("ReplayRate", "How fast `RUN_ALL` replays missed occurrences; all at once if omitted."),
        ),
        (
            "jitter",
            duration(
                "Delays each occurrence by up to this much, always by the same amount for one job and \
                 occurrence; at most 24h.",
                "5m",
            ),
        ),
        (
            "max_runs",
            whole("Ends the schedule after this many occurrences; no limit if omitted.", 1..=u32::MAX.into()),
        ),
        ("overlap_policy", the("OverlapPolicy", "For recurring jobs.").otherwise("SKIP")),
        (
            "overlap_limit",
            whole(
                "How many occurrences may wait under `QUEUE`; further ones are skipped, but a replay of \
                 missed ones waits.",
                1..=limits::OVERLAP_LIMIT_MAX.into(),
            )
            .otherwise(limits::OVERLAP_LIMIT_DEFAULT),
        ),
        (
            "max_open",
            whole(
                "How many occurrences may be open in total; further ones are skipped with reason \
                 `backlog`. A replay of missed occurrences waits instead, and the occurrences it has \
                 opened do not count for regular ones.",
                1..=limits::MAX_OPEN_MAX.into(),
            )
            .otherwise(limits::MAX_OPEN_DEFAULT),
        ),
    ]
}

fn attempts() -> Fields {
    vec![
        (
            "max_retries",
            whole(
                "Retries after the first attempt; 0 means at most once.",
                0..=limits::MAX_RETRIES_MAX.into(),
            )
            .otherwise(limits::MAX_RETRIES_DEFAULT),
        ),
        ("retry", the("Retry", "When to retry a failed attempt.")),
        (
            "timeout_secs",
            number(
                "The time limit of one attempt, in seconds; `0.5` is half a second.",
                0.001..=limits::TIMEOUT_MAX.as_secs_f64(),
            )
            .otherwise(limits::TIMEOUT_DEFAULT.as_secs()),
        ),
        (
            "expires_at",
            time("An execution that has not started by then ends `EXPIRED`; only for jobs that run once."),
        ),
        (
            "expires_after",
            the(
                "Duration",
                "The same, relative to each occurrence's scheduled time; at most ten years. Cannot be \
                 combined with `expires_at`.",
            )
            .example("1h"),
        ),
    ]
}

fn keys() -> Fields {
    let id = the("JobId", "A job that runs once.");
    vec![
        ("owner_id", name("The owner whose share of the queue it counts against.").otherwise("default")),
        (
            "idempotency_key",
            name(
                "Identifies one job of its owner for as long as that job is stored: submitting it again \
                 returns that job.",
            )
            .example("order-1138"),
        ),
        (
            "unique_key",
            name(
                "Identifies one unfinished job of its owner: submitting another one in the meantime is \
                 rejected with 409, which names that job.",
            )
            .example("sync-customer-17"),
        ),
        (
            "concurrency_key",
            name(
                "Names a resource that the job uses: its queue may limit how many executions with the same \
                 key run at once or start in a time span.",
            )
            .example("customer-17"),
        ),
        (
            "depends_on",
            up_to(limits::DEPENDS_ON_MAX, list("Jobs that must succeed before this one starts.", id))
                .example(json!([JOB])),
        ),
        (
            "tags",
            up_to(limits::TAGS_MAX, list("Labels to find it by.", name("One of them.")))
                .example(json!(["billing"])),
        ),
    ]
}

/// As submitted, with defaults filled in: fields that are present are not null.
fn shown(fields: Fields, always: &[&str]) -> Fields {
    let plain = |(field, schema): (&'static str, Schema)| {
        (field, if always.contains(&field) { schema.needed() } else { schema.sometimes() })
    };
    fields.into_iter().map(plain).collect()
}

fn read(schemas: &mut Schemas) {
    let always = ["name", "job_type", "queue", "schedule_type", "max_retries", "retry", "owner_id", "tags"];
    let mut fields = vec![("job_id", the("JobId", "The job."))];
    fields.extend(shown(submitted(), &always));
    for (field, schema) in &mut fields {
        match *field {
            "payload" => *schema = any("As submitted."),
            "priority" => *schema = whole("As a number, however it was submitted.", 1..=10),
            "timeout_secs" => *schema = schema.clone().needed(),
            "replay_rate" => *schema = text("So many a minute.").sometimes().example("10/m"),
            _ => {}
        }
    }
    fields.retain(|(field, _)| *field != "delay");
    fields.extend([
        (
            "schedule_description",
            text("The schedule in plain English.").sometimes().example(
                "At 09:00, \
            Monday to Friday, Europe/Berlin",
            ),
        ),
        ("status", the("JobStatus", "The status of the job.")),
        (
            "status_reason",
            text(
                "Why it has this status, if the status alone does not say it; for a single job also that \
                 no worker has a handler for it.",
            )
            .or_null(),
        ),
        (
            "next_run_time",
            time(
                "When the next occurrence runs; null if none is left or the only one is \
            running, while the job is paused, and while it waits for other jobs.",
            )
            .or_null(),
        ),
        ("next_retry_time", time("When a failed attempt is tried again.").or_null()),
        ("last_run_time", time("When the latest attempt started.").or_null()),
        ("last_error", text("The error of the latest finished attempt.").or_null()),
        ("last_execution", the("LastExecution", "The latest finished execution.").or_null()),
        ("result", any("The result of the latest finished execution, or null.")),
        (
            "execution_id",
            the(
                "ExecutionId",
                "The execution that a retry of the job has added; only in the response to the retry.",
            )
            .sometimes(),
        ),
        (
            "progress",
            the(
                "Progress",
                "The progress of its running execution; only where one job is shown, and only if it \
                 reports any.",
            )
            .sometimes(),
        ),
        ("version", whole("Incremented by every update.", 1..=u32::MAX.into())),
        ("created_at", time("When it was submitted.")),
        ("updated_at", time("When it was last changed.")),
    ]);
    schemas.answer::<JobBody>(
        "Job",
        "A job as read: as submitted, with its defaults filled in, and its current state.",
        fields,
    );
    schemas.answer::<LastExecution>(
        "LastExecution",
        "The latest finished execution of a job.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.").example(EXECUTION)),
            ("status", words::<ExecutionStatus>("How it ended.")),
            ("completed_at", time("When it ended.")),
        ],
    );
}

fn batches(schemas: &mut Schemas) {
    schemas.answer::<SubmittedBody>(
        "Submitted",
        "A job that is stored.",
        vec![
            ("job_id", the("JobId", "The job.")),
            ("status", the("JobStatus", "The status of the job.")),
            ("next_run_time", time("When it runs next.").or_null()),
            (
                "status_reason",
                text("Why it does not run when it should: present while the server is stopping.").sometimes(),
            ),
            (
                "existing",
                flag(
                    "An earlier submit with the same `idempotency_key` had created it: nothing new was \
                     stored.",
                )
                .sometimes(),
            ),
        ],
    );
    let jobs = list("The jobs.", the("SubmitJob", "One of them.")).with("minItems", 1);
    schemas.request::<BatchRequest>(
        "Batch",
        "Many jobs in one request; at most 8 MiB.",
        vec![("jobs", up_to(limits::SUBMIT_BATCH_MAX, jobs).needed())],
    );
    schemas.answer::<BatchAnswer>(
        "BatchAnswer",
        "One result per submitted job.",
        vec![("items", list("In the order of the request.", the("BatchItem", "The result for one job.")))],
    );
    let refused = json!({
        "type": "object", "required": ["error"],
        "properties": {"error": {"$ref": "#/components/schemas/Problem", "description": "Why it was not stored."}},
    });
    let item = Schema::default()
        .with("description", "A job that was stored, or why it was not.")
        .with("anyOf", json!([{"$ref": "#/components/schemas/Submitted"}, refused]));
    schemas.add("BatchItem", item);
}

fn previews(schemas: &mut Schemas) {
    let mut fields = schedule();
    fields.extend([
        ("name", name("The name of the future job: with its owner it decides what `H` stands for.")),
        ("owner_id", name("The owner of the future job.")),
        ("after", time("Occurrences after this time; now if omitted.")),
        ("count", whole("How many.", 1..=limits::PREVIEW_MAX as u64).otherwise(10)),
    ]);
    schemas.request::<PreviewRequest>("PreviewRequest", "A schedule to preview.", fields);
    schemas.answer::<PreviewBody>(
        "Preview",
        "A schedule in words, and its next occurrences.",
        vec![
            (
                "description",
                text("The schedule in plain English.").example(
                    "At minute 0 of every hour, \
                UTC",
                ),
            ),
            ("occurrences", list("The next ones.", the("OccurrencePreview", "One of them."))),
        ],
    );
    schemas.answer::<OccurrencePreview>(
        "OccurrencePreview",
        "One future occurrence.",
        vec![
            ("scheduled_time", time("When, in UTC.")),
            (
                "local_time",
                text("When, with the offset of the time zone.")
                    .with("format", "date-time")
                    .example("2026-11-15T09:30:00+01:00"),
            ),
            ("dst", words::<DstEffect>("How a daylight saving change affected it.").or_null()),
        ],
    );
}
