//! Jobs, and when they run next.

use super::super::operation::{Operation, Title};
use super::super::schema::{Schema, list as list_of, name, text, the, up_to, whole};
use super::{JOBS, NO_JOB, NO_PARAMETERS, SCHEDULES, job_id, paged};
use axum::http::Method;
use punctual_client::{API_PREFIX, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use punctual_core::limits;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations = vec![submit(), submit_batch(), list(), show(), replace(), patch(), delete()];
    operations.extend(verbs());
    operations.extend([trigger(), explain(), next(), preview()]);
    operations
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: JOBS, summary }
}

fn path(rest: &str) -> String {
    format!("{API_PREFIX}/jobs{rest}")
}

fn request_key() -> Schema {
    text(
        "Names this request: sent again within 24 hours with the same token, it does nothing and has the \
        same answer. 1 to 200 printable ASCII characters.",
    )
    .with("minLength", 1)
    .with("maxLength", limits::REQUEST_KEY_BYTES_MAX)
    .with("pattern", "^[ -~]+$")
}

const REPLAY: &str =
    "Not as things are now: a taken `unique_key` (the problem names the other job as `job_id`).";

const FULL: &str =
    "The queue holds as much as its `max_depth` allows, or the server is overloaded: nothing was taken.";

fn submit() -> Operation {
    Operation::new(Method::POST, path(""), title("submitJob", "Submit a job"))
        .about("Keeps one job and answers when it is durable. If a job with its `idempotency_key` is \
            there, that one is answered and nothing is kept.")
        .in_header(IDEMPOTENCY_KEY, request_key())
        .takes("SubmitJob", json!({
                "name": "nightly-report", "job_type": "http", "payload": {"url": "https://example.com/report"},
                "cron_expression": "0 3 * * *", "timezone": "Europe/Berlin",
            }))
        .answers(201, "The job is kept.", "Submitted")
        .with_header(201, "Location")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .answers(200, "A job with its `idempotency_key` was there: this is it.", "Job")
        .with_header(200, "Location")
        .with_header(200, IDEMPOTENT_REPLAYED)
        .fails(409, REPLAY)
        .fails(429, FULL)
        .with_header(429, "Retry-After")
}

fn submit_batch() -> Operation {
    Operation::new(Method::POST, path("/batch"), title("submitJobs", "Submit many jobs"))
        .about("Each job for itself: an invalid one does not keep the others out.")
        .in_header(IDEMPOTENCY_KEY, request_key())
        .takes(
            "Batch",
            json!({"jobs": [
                {"name": "first", "job_type": "noop"},
                {"name": "second", "job_type": "noop", "delay": "10m"},
            ]}),
        )
        .answers(201, "All are kept.", "BatchAnswer")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .answers(200, "Some are not kept.", "BatchAnswer")
        .with_header(200, IDEMPOTENT_REPLAYED)
        .fails(429, FULL)
        .with_header(429, "Retry-After")
}

fn list() -> Operation {
    let operation = Operation::new(Method::GET, path(""), title("listJobs", "List jobs"))
        .about(
            "Newest first. A filter looks at a bounded number of jobs for each page, so that a page may be short, even \
            empty, while `next_cursor` says that there is more.",
        )
        .in_query("status", the("JobStatus", "Only jobs with this status; in any case."))
        .in_query("name", text("Only jobs with exactly this name."))
        .in_query("job_type", text("Only jobs of this type."))
        .in_query("queue", text("Only jobs of this queue."))
        .in_query("owner", text("Only jobs of this owner."))
        .in_query("priority", the("Priority", "Only jobs with this priority; words in any case."))
        .in_query("schedule_type", the("ScheduleType", "Only jobs that run like this; in any case."))
        .in_query(
            "tag",
            up_to(
                limits::TAGS_MAX,
                list_of("Only jobs with this tag; given again, only those that have all.", name("A tag.")),
            ),
        )
        .in_query(
            "q",
            text("Only jobs with this text in their name, type or a tag, in any case, or whose id begins with it."),
        );
    paged(operation).answers(200, "One page.", "JobPage")
}

/// An operation on one job.
fn on_job(method: Method, rest: &str, title: Title) -> Operation {
    let path = path(&format!("/{{id}}{rest}"));
    let operation = Operation::new(method, path, title).in_path("id", job_id()).fails(404, NO_JOB);
    match rest {
        "" => operation.fails(405, "`batch` is not a job: it only takes `POST`.").with_header(405, "Allow"),
        _ => operation,
    }
}

fn answers_job(operation: Operation) -> Operation {
    operation.answers(200, "The job as it is now.", "Job").with_header(200, "ETag")
}

fn show() -> Operation {
    answers_job(on_job(Method::GET, "", title("getJob", "Look at a job")))
        .about("With its status, next run, last outcome and result.")
}

/// The `If-Match` condition of a change.
fn if_match() -> Schema {
    text(
        "The version that is to be changed, as the `ETag` of the job said it, with its quotes; `*` or \
        nothing for whichever there is.",
    )
    .with("pattern", "^(\"[0-9]{1,10}\"|\\*)$")
    .example("\"3\"")
}

fn changes(operation: Operation) -> Operation {
    answers_job(operation)
        .in_header("If-Match", if_match())
        .fails(409, "The job is cancelled, its `unique_key` is taken, or others go on changing it.")
        .fails(412, "The job has another version than `If-Match` names; `version` is the one it has.")
}

fn replace() -> Operation {
    changes(on_job(Method::PUT, "", title("replaceJob", "Describe a job anew")))
        .about("Takes a whole description; what it leaves out has its default again. Owner, keys and \
            dependencies are fixed.")
        .takes("SubmitJob", json!({
                "name": "nightly-report", "job_type": "http", "payload": {"url": "https://example.com/report"},
                "cron_expression": "0 4 * * *",
            }))
}

fn patch() -> Operation {
    changes(on_job(Method::PATCH, "", title("changeJob", "Change some fields of a job")))
        .about(
            "A JSON merge patch (RFC 7396): null resets a field to its default, what is not named \
            stays exactly as it is.",
        )
        .takes_as(
            &["application/json", "application/merge-patch+json"],
            "PatchJob",
            json!({"priority": 8, "retry": {"delay": "5s"}}),
        )
}

fn delete() -> Operation {
    on_job(Method::DELETE, "", title("deleteJob", "Delete a job"))
        .about("Cancels the job and hides it at once; its keys are free again.")
        .may_take("Nothing", json!({}))
        .answers_nothing(204, "It is gone.")
}

fn verbs() -> [Operation; 4] {
    let verb = |rest, title, about: &str| {
        answers_job(on_job(Method::POST, rest, title))
            .about(about)
            .may_take("Nothing", json!({}))
            .fails(409, "Not as things are now: the detail says why and what to do instead.")
    };
    [
        verb(
            "/pause",
            title("pauseJob", "Pause a job"),
            "Lets what runs finish and holds the rest. A job that is paused stays so.",
        ),
        verb(
            "/resume",
            title("resumeJob", "Resume a job"),
            "A recurring job skips what fell due meanwhile, a one-time job runs late.",
        ),
        verb(
            "/cancel",
            title("cancelJob", "Cancel a job"),
            "No more runs: what waits is dropped, what runs is asked to stop.",
        ),
        verb(
            "/retry",
            title("retryJob", "Retry a job"),
            "Another attempt of the latest dead occurrence, with a fresh budget; the answer has its \
                `execution_id`.",
        ),
    ]
}

fn trigger() -> Operation {
    on_job(Method::POST, "/trigger", title("triggerJob", "Run a job now"))
        .about("One more occurrence now, also while paused; the schedule does not move.")
        .in_header(IDEMPOTENCY_KEY, request_key())
        .may_take("Trigger", json!({"override": false}))
        .answers(201, "The execution that was added.", "Execution")
        .with_header(201, "Location")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .fails(
            409,
            "The overlap policy does not allow it, the job is cancelled, or nobody knows whether \
            an earlier request with this `Idempotency-Key` was carried out.",
        )
}

fn explain() -> Operation {
    on_job(Method::GET, "/explain", title("explainJob", "Why a job does what it does"))
        .about("In sentences for people and facts for programs.")
        .answers(200, "The explanation.", "Explanation")
        .fails(400, NO_PARAMETERS)
}

fn next() -> Operation {
    let title = Title { id: "previewJob", tag: SCHEDULES, summary: "When a job runs next" };
    on_job(Method::GET, "/next", title)
        .about(
            "The next nominal times of a recurring job; none if it has nothing left to fire or runs \
            only once.",
        )
        .in_query("count", whole("How many.", 1..=limits::PREVIEW_MAX as u64).otherwise(10))
        .answers(200, "The next occurrences.", "Preview")
        .fails(422, "`count` is out of bounds.")
}

fn preview() -> Operation {
    let title = Title { id: "previewSchedule", tag: SCHEDULES, summary: "When a schedule would run" };
    Operation::new(Method::POST, format!("{API_PREFIX}/schedules/preview"), title)
        .about("Keeps nothing. Occurrences that a change of clocks affects are marked.")
        .takes(
            "PreviewRequest",
            json!({"cron_expression": "30 2 * * *", "timezone": "Europe/Berlin", "count": 5}),
        )
        .answers(200, "The schedule in words, and its next occurrences.", "Preview")
}
