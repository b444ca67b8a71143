//! Jobs, and when they run next.

use super::super::operation::{Operation, Title};
use super::{JOBS, NO_JOB, NO_PARAMETERS, SCHEDULES, job_id, paged};
use axum::http::Method;
use punctual_client::schema::{Schema, flag, list as list_of, name, one_of, text, the, time, up_to, whole};
use punctual_client::{API_PREFIX, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use punctual_core::limits;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![submit(), submit_batch(), list(), show(), replace(), patch(), delete()];
    operations.extend([show_by_name(), put_by_name(), plan_by_name()]);
    operations.extend(verbs());
    operations.extend([trigger(), explain(), next(), preview(), fires()]);
    operations
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: JOBS, summary }
}

fn path(rest: &str) -> String {
    format!("{API_PREFIX}/jobs{rest}")
}

pub(super) fn request_key() -> Schema {
    text()
        .about(
            "Identifies this request: repeated within 24 hours with the same token, it has no effect and \
         returns the same response. 1 to 200 printable ASCII characters.",
        )
        .with("minLength", 1)
        .with("maxLength", limits::REQUEST_KEY_BYTES_MAX)
        .with("pattern", "^[ -~]+$")
}

const REPLAY: &str = "The current state does not allow this: the `unique_key` is taken (the problem names the other job as \
     `job_id`).";

const FULL: &str = "The queue has reached its `max_depth`, the owner its submit quota or the user or token its rate limit, too many requests \
     without a valid token came from its address, or the server is overloaded: the request was not processed.";

fn submit() -> Operation {
    Operation::new(Method::POST, path(""), title("submitJob", "Submit a job"))
        .needs(UseCase::Submit)
        .about("Stores one job and responds when it is durable. If a job with its `idempotency_key` \
                exists, that job is returned and nothing is stored.")
        .in_header(IDEMPOTENCY_KEY, request_key())
        .takes("SubmitJob", json!({
                "name": "nightly-report", "job_type": "http", "payload": {"url": "https://example.com/report"},
                "cron_expression": "0 3 * * *", "timezone": "Europe/Berlin",
            }))
        .answers(201, "The job is stored.", "Submitted")
        .with_header(201, "Location")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .answers(200, "A job with its `idempotency_key` already existed; this is that job.", "Job")
        .with_header(200, "Location")
        .with_header(200, IDEMPOTENT_REPLAYED)
        .fails(409, REPLAY)
        .fails(429, FULL)
        .with_header(429, "Retry-After")
        .with_rate_headers(429)
}

fn submit_batch() -> Operation {
    Operation::new(Method::POST, path("/batch"), title("submitJobs", "Submit many jobs"))
        .needs(UseCase::Submit)
        .about(
            "Each job is handled independently: an invalid job does not prevent the others from being \
                stored.",
        )
        .in_header(IDEMPOTENCY_KEY, request_key())
        .takes(
            "Batch",
            json!({"jobs": [
                {"name": "first", "job_type": "noop"},
                {"name": "second", "job_type": "noop", "delay": "10m"},
            ]}),
        )
        .answers(201, "All jobs are stored.", "BatchAnswer")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .answers(200, "Some jobs are not stored.", "BatchAnswer")
        .with_header(200, IDEMPOTENT_REPLAYED)
        .fails(429, FULL)
        .with_header(429, "Retry-After")
        .with_rate_headers(429)
}

fn list() -> Operation {
    let operation = Operation::new(Method::GET, path(""), title("listJobs", "List jobs"))
        .needs(UseCase::ReadJobs)
        .about(
            "Newest first. A filter examines a bounded number of jobs for each page, so a page may be \
             short or even empty while `next_cursor` says that there is more.",
        )
        .in_query("status", the("JobStatus").about("Only jobs with this status; case-insensitive."))
        .in_query("name", text().about("Only jobs with exactly this name."))
        .in_query("job_type", text().about("Only jobs of this type."))
        .in_query("queue", text().about("Only jobs of this queue."))
        .in_query("owner", text().about("Only jobs of this owner."))
        .in_query(
            "priority",
            the("Priority").about("Only jobs with this priority; words are case-insensitive."),
        )
        .in_query(
            "schedule_type",
            the("ScheduleType").about("Only jobs with this schedule type; case-insensitive."),
        )
        .in_query(
            "tag",
            up_to(
                limits::TAGS_MAX,
                list_of(name().about("A tag."))
                    .about("Only jobs with this tag; if repeated, only jobs that have all of them."),
            ),
        )
        .in_query(
            "q",
            text().about(
                "Only jobs with this text in their name, type or a tag, case-insensitive, or whose id \
                  begins with it; with 6 characters or more, whose id contains it.",
            ),
        )
        .in_query(
            "failing",
            flag().about(
                "Only jobs whose latest finished execution failed, timed out or was lost; with false, the others. \
                 A recurring job stays `ACTIVE` when a run fails, so `status` does not find it.",
            ),
        )
        .in_query(
            "payload.FIELD",
            text().about(
                "Only jobs whose payload has this scalar in a field, such as `payload.customer=42` or \
                 `payload.order.id=A-7`; up to 8 of them, and all must match. Needs `payload:read`.",
            ),
        )
        .in_query(
            "payload_has",
            text().about("Only jobs whose payload has this field, such as `order.id`; repeatable. Needs `payload:read`."),
        )
        .in_query("not_status", the("JobStatus").about("Only jobs without this status; repeatable."))
        .in_query("not_name", text().about("Only jobs without this name; repeatable."))
        .in_query("not_job_type", text().about("Only jobs without this type; repeatable."))
        .in_query("not_queue", text().about("Only jobs that are not in this queue; repeatable."))
        .in_query("not_owner", text().about("Only jobs that do not belong to this owner; repeatable."))
        .in_query("not_tag", text().about("Only jobs without this tag; repeatable."))
        .in_query("created_after", time().about("Only jobs submitted at or after this time."))
        .in_query("created_before", time().about("Only jobs submitted before this time."))
        .in_query("next_run_after", time().about("Only jobs whose next run is at or after this time."))
        .in_query("next_run_before", time().about("Only jobs whose next run is before this time."))
        .in_query("last_run_after", time().about("Only jobs whose latest execution ended at or after this time."))
        .in_query("last_run_before", time().about("Only jobs whose latest execution ended before this time."))
        .in_query(
            "sort",
            one_of(&["next_run", "name", "priority", "last_run", "lateness"]).about(
                "Another order than the latest first. A bounded number of jobs is compared, `compared` says how many, and \
                 there is one page.",
            ),
        );
    paged(operation)
        .answers(200, "One page.", "JobPage")
        .fails(422, "A filter on a payload field, and payloads are encrypted at rest.")
}

/// An operation on one job.
fn on_job(method: Method, rest: &str, title: Title) -> Operation {
    let path = path(&format!("/{{id}}{rest}"));
    let operation = Operation::new(method, path, title).in_path("id", job_id()).fails(404, NO_JOB);
    match rest {
        "" => operation
            .fails(405, "`batch` is not a job: this path only accepts `POST`.")
            .with_header(405, "Allow"),
        _ => operation,
    }
}

fn answers_job(operation: Operation) -> Operation {
    operation.answers(200, "The job in its current state.", "Job").with_header(200, "ETag")
}

fn show() -> Operation {
    answers_job(on_job(Method::GET, "", title("getJob", "Get a job")))
        .needs(UseCase::ReadJobs)
        .about("Includes its status, next run, last outcome and result.")
}

/// The `If-Match` condition of a change.
fn if_match() -> Schema {
    text()
        .about(
            "The version to change, as in the `ETag` of the job, including its quotes; `*` or no header for \
         any version.",
        )
        .with("pattern", "^(\"[0-9]{1,10}\"|\\*)$")
        .example("\"3\"")
}

fn changes(operation: Operation) -> Operation {
    answers_job(operation)
        .in_header("If-Match", if_match())
        .fails(409, "The job is cancelled, its `unique_key` is taken, or other requests keep changing it.")
        .fails(412, "The job has a different version than `If-Match` names; `version` is its current one.")
}

fn replace() -> Operation {
    changes(on_job(Method::PUT, "", title("replaceJob", "Replace a job")))
        .needs(UseCase::UpdateJob)
        .about("Takes a complete description; omitted fields get their defaults. Owner, keys and \
                dependencies are fixed.")
        .takes("SubmitJob", json!({
                "name": "nightly-report", "job_type": "http", "payload": {"url": "https://example.com/report"},
                "cron_expression": "0 4 * * *",
            }))
}

fn show_by_name() -> Operation {
    let title = title("getNamedJob", "Get the job that a name identifies");
    answers_job(Operation::new(Method::GET, by_name(""), title))
        .needs(UseCase::ReadJobs)
        .about("The job that was put by this name, finished or not.")
        .in_path("name", job_name())
        .in_query("owner", name().about("Its owner; that of the token if omitted."))
        .fails(404, "No job of the owner was put by this name. Others may have the name.")
}

fn put_by_name() -> Operation {
    Operation::new(Method::PUT, by_name(""), title("putJob", "Create or replace the job with a name"))
        .needs(UseCase::Submit)
        .about(
            "Owner and name identify the job, finished or not, until it is deleted. A job that does not exist is \
             created, one that exists gets this description: omitted fields get their defaults, and an unchanged \
             interval or one-time job keeps its times. An unchanged description changes nothing. An unfinished job \
             that was submitted with this name is taken over; several of them are a conflict.",
        )
        .in_path("name", job_name())
        .in_header("If-Match", text().about("Replace the job only if it has this ETag."))
        .takes("PutJob", put_example())
        .answers(201, "The job was created.", "Job")
        .with_header(201, "Location")
        .with_header(201, "ETag")
        .answers(200, "The job was replaced, or is unchanged.", "Job")
        .with_header(200, "ETag")
        .fails(404, "`If-Match` was sent, and there is no job with this name.")
        .fails(409, "Several unfinished jobs have this name, which the problem lists, or the job is cancelled.")
        .fails(412, "The job has another version, which the problem names.")
        .fails(429, FULL)
        .with_header(429, "Retry-After")
        .with_rate_headers(429)
}

fn plan_by_name() -> Operation {
    Operation::new(Method::POST, by_name("/plan"), title("planJob", "Compare a job with its stored version"))
        .needs(UseCase::Submit)
        .about("Checks everything that `putJob` checks, responds with what it would do, and changes nothing.")
        .in_path("name", job_name())
        .takes("PutJob", put_example())
        .answers(200, "What would be done.", "PlannedPut")
        .fails(
            409,
            "Several unfinished jobs have this name, which the problem lists, or the job is cancelled.",
        )
}

fn by_name(rest: &str) -> String {
    path(&format!("/by-name/{{name}}{rest}"))
}

fn job_name() -> Schema {
    name().about("The name of the job.")
}

fn put_example() -> serde_json::Value {
    json!({
        "job_type": "http", "payload": {"url": "https://example.com/report"}, "cron_expression": "0 4 * * *",
    })
}

fn patch() -> Operation {
    changes(on_job(Method::PATCH, "", title("changeJob", "Change some fields of a job")))
        .needs(UseCase::UpdateJob)
        .about(
            "A JSON merge patch (RFC 7396): null resets a field to its default, fields that are not named \
             stay exactly as they are.",
        )
        .takes_as(
            &["application/json", "application/merge-patch+json"],
            "PatchJob",
            json!({"priority": 8, "retry": {"delay": "5s"}}),
        )
}

fn delete() -> Operation {
    on_job(Method::DELETE, "", title("deleteJob", "Delete a job"))
        .needs(UseCase::DeleteJob)
        .about("Cancels the job and hides it immediately; its keys can be used again.")
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "The job is deleted.")
}

fn verbs() -> [Operation; 4] {
    let verb = |rest, title, case, about: &str| {
        answers_job(on_job(Method::POST, rest, title))
            .needs(case)
            .about(about)
            .may_take("Nothing", json!({}))
            .fails(409, "The current state does not allow this: the detail says why and what to do instead.")
    };
    [
        verb(
            "/pause",
            title("pauseJob", "Pause a job"),
            UseCase::PauseJob,
            "Lets running executions finish and starts no others. Pausing a paused job has no effect.",
        ),
        verb(
            "/resume",
            title("resumeJob", "Resume a job"),
            UseCase::ResumeJob,
            "A recurring job skips the occurrences that were due while it was paused, a one-time job runs \
             late.",
        ),
        verb(
            "/cancel",
            title("cancelJob", "Cancel a job"),
            UseCase::CancelJob,
            "The job does not run again: waiting executions are dropped, running ones are asked to stop.",
        ),
        verb(
            "/retry",
            title("retryJob", "Retry a job"),
            UseCase::RetryJob,
            "Another attempt of the latest dead occurrence, with a fresh retry budget; the response has \
             its `execution_id`.",
        ),
    ]
}

fn trigger() -> Operation {
    on_job(Method::POST, "/trigger", title("triggerJob", "Run a job now"))
        .needs(UseCase::TriggerJob)
        .about("One more occurrence now, also while the job is paused; the schedule does not change.")
        .in_header(IDEMPOTENCY_KEY, request_key())
        .may_take("Trigger", json!({"override": false}))
        .answers(201, "The execution that was added.", "Execution")
        .with_header(201, "Location")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .fails(
            409,
            "The overlap policy does not allow it, the job is cancelled, or it is unknown whether an \
             earlier request with this `Idempotency-Key` was carried out.",
        )
}

fn explain() -> Operation {
    on_job(Method::GET, "/explain", title("explainJob", "Explain a job"))
        .needs(UseCase::ExplainJob)
        .about("Why the job is in its current state, in sentences for people and facts for programs.")
        .answers(200, "The explanation.", "Explanation")
        .fails(400, NO_PARAMETERS)
}

fn next() -> Operation {
    let title = Title { id: "previewJob", tag: SCHEDULES, summary: "When a job runs next" };
    on_job(Method::GET, "/next", title)
        .needs(UseCase::ReadJobs)
        .about(
            "The next nominal times of a recurring job, as many as `max_runs` leaves; empty if none is left or the \
             job runs only once.",
        )
        .in_query("count", whole(1..=limits::PREVIEW_MAX as u64).about("How many.").otherwise(10))
        .answers(200, "The next occurrences.", "Preview")
        .fails(422, "`count` is out of range.")
}

fn preview() -> Operation {
    let title = Title { id: "previewSchedule", tag: SCHEDULES, summary: "When a schedule would run" };
    Operation::new(Method::POST, format!("{API_PREFIX}/schedules/preview"), title)
        .needs(UseCase::PreviewSchedule)
        .about("Stores nothing. Occurrences affected by a daylight saving change are marked.")
        .takes(
            "PreviewRequest",
            json!({"cron_expression": "30 2 * * *", "timezone": "Europe/Berlin", "count": 5}),
        )
        .answers(200, "The schedule in words, and its next occurrences.", "Preview")
}

fn fires() -> Operation {
    let title = Title { id: "listFires", tag: SCHEDULES, summary: "When all jobs run" };
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/fires"), title)
        .needs(UseCase::ReadJobs)
        .about(
            "The calendar: active jobs that fire within a range of time, newest job first, with their next nominal \
             times in it. Fires of the past are not listed: see executions. Each page examines a bounded number of \
             jobs, so a page may be short or even empty while `next_cursor` says that there is more.",
        )
        .in_query("from", time().about("The beginning of the range; now if omitted."))
        .in_query(
            "until",
            time().about("The end of the range, at most 400 days later; one day later if omitted."),
        )
        .in_query(
            "per_job",
            whole(1..=limits::PREVIEW_MAX as u64)
                .about("How many fires of each job to list; `count` counts all of them.")
                .otherwise(limits::FIRES_PER_JOB_DEFAULT as u64),
        )
        .in_query("name", text().about("Only jobs with exactly this name."))
        .in_query("job_type", text().about("Only jobs of this type."))
        .in_query("queue", text().about("Only jobs of this queue."))
        .in_query("owner", text().about("Only jobs of this owner."))
        .in_query(
            "tag",
            up_to(
                limits::TAGS_MAX,
                list_of(name().about("A tag."))
                    .about("Only jobs with this tag; if repeated, only jobs that have all of them."),
            ),
        );
    paged(operation).answers(200, "One page.", "JobFiresPage")
}
