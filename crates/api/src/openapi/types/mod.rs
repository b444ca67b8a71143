//! The schemas of all wire types, by topic.

mod executions;
mod jobs;
mod server;
mod worker;

use super::schema::{Schemas, count, flag, list, one_of, text, the, up_to, whole};
use punctual_client::{Advice, AdvisedAction, FieldError, Problem};
use punctual_core::limits;

pub fn all() -> Schemas {
    let mut schemas = Schemas::default();
    values(&mut schemas);
    problems(&mut schemas);
    jobs::describe(&mut schemas);
    executions::describe(&mut schemas);
    server::describe(&mut schemas);
    worker::describe(&mut schemas);
    schemas
}

/// The UUID part of an id, without the parts that follow in longer ids.
const UUID: &str = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
pub const JOB: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11";
pub const OCCURRENCE: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11.7";
pub const EXECUTION: &str = "0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11.7.1";

fn values(schemas: &mut Schemas) {
    let job = text("The id of a job: a UUID, ordered by submission.").with("format", "uuid").example(JOB);
    schemas.add("JobId", job);
    let occurrence = text(
        "The id of an occurrence: job id, dot, number. It is also the idempotency key of its \
            attempts.",
    )
    .with("pattern", format!("^{UUID}\\.[1-9][0-9]{{0,9}}$"))
    .example(OCCURRENCE);
    schemas.add("OccurrenceId", occurrence);
    let execution = text("The id of an execution: job id, dot, occurrence, dot, attempt.")
        .with("pattern", format!("^{UUID}\\.[1-9][0-9]{{0,9}}\\.[1-9][0-9]{{0,9}}$"))
        .example(EXECUTION);
    schemas.add("ExecutionId", execution);
    let part = |unit| format!("([0-9]+(\\.[0-9]{{1,9}})?{unit})?");
    let short: String = ["w", "d", "h", "m", "s", "ms", "us"].map(part).concat();
    let iso = format!("P{}(T{})?", ["W", "D"].map(part).concat(), ["H", "M", "S"].map(part).concat());
    let about = "A duration: `30s`, `5m`, `1h30m`, `1d`, `250ms`, or ISO 8601 such as `PT3H`. Each unit \
                 once, longer before shorter; months and years have no fixed length and are rejected.";
    let duration = text(about)
        .with("pattern", format!("^({iso}|{short})$"))
        .with("minLength", 2)
        .with("maxLength", 100)
        .example("1h30m");
    schemas.add("Duration", duration);
}

fn problems(schemas: &mut Schemas) {
    schemas.answer::<Problem>(
        "Problem",
        "What went wrong (RFC 9457).",
        vec![
            (
                "type",
                text("The kind of problem, for programs: `about:blank` when the status says everything.")
                    .with("format", "uri-reference")
                    .otherwise("about:blank"),
            ),
            (
                "title",
                text("A short, fixed description of the problem.").example("the request has invalid fields"),
            ),
            ("status", whole("The HTTP status of the response.", 400..=599).example(422)),
            ("detail", text("What happened and what to do about it.").sometimes()),
            (
                "errors",
                list("What is wrong with the request, by field.", the("FieldError", "One field."))
                    .sometimes(),
            ),
            ("job_id", the("JobId", "The other job that causes the conflict.").sometimes()),
            (
                "version",
                whole("The current version of the job, where another one was expected.", 1..=u32::MAX.into())
                    .sometimes(),
            ),
            (
                "retry_after_secs",
                count("After how many seconds a retry makes sense, as in `Retry-After`.").sometimes(),
            ),
            ("advice", advised("Actions that may help.").sometimes()),
        ],
    );
    advice(schemas);
    schemas.answer::<FieldError>(
        "FieldError",
        "What is wrong with one field, parameter or header.",
        vec![
            ("field", text("Its name as in the request, with its path.").example("retry.steps[1]")),
            (
                "detail",
                text("What is expected; it follows the name.").example("must be a duration such as 30s"),
            ),
        ],
    );
}

/// A list of advice.
fn advised(about: &str) -> super::schema::Schema {
    list(about, the("Advice", "One way."))
}

fn advice(schemas: &mut Schemas) {
    let words: Vec<&str> = AdvisedAction::KNOWN.iter().map(|action| action.as_str()).collect();
    schemas.answer::<Advice>(
        "Advice",
        "An action that may help, for programs. The other members say what it applies to; those that do \
         not belong to the action are omitted.",
        vec![
            (
                "action",
                one_of("What to do. Later versions may add actions: ignore those you do not know.", &words),
            ),
            ("job_id", the("JobId", "For `*_job`: the job.").sometimes()),
            ("queue", text("For `*_queue`: the queue.").sometimes()),
            (
                "worker_id",
                text(
                    "For `resume_worker`: the worker's name, or its session id if other sessions have the \
                      same name.",
                )
                .sometimes(),
            ),
            ("occurrence_id", the("OccurrenceId", "For `redrive_dead_letter`: its occurrence.").sometimes()),
            (
                "override",
                flag("For `trigger_job`: run beside open occurrences, whatever the overlap policy.")
                    .sometimes(),
            ),
            (
                "version",
                whole("For `change_version`: the version to name in `If-Match`.", 1..=u32::MAX.into())
                    .sometimes(),
            ),
        ],
    );
}

/// The cursor at the end of a page.
fn cursor(about: &str) -> super::schema::Schema {
    text(about).or_null().example("jobs~0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11")
}

const NEXT: &str = "Opaque: pass it as `cursor` to read on; null on the last page.";

fn page(schemas: &mut Schemas, name: &'static str, about: &str, item: &str) {
    schemas.answer::<punctual_client::Page<serde::de::IgnoredAny>>(
        name,
        about,
        vec![
            (
                "items",
                up_to(
                    limits::PAGE_ITEMS_MAX,
                    list(
                        "A page may be shorter than its limit and still have a next one.",
                        the(item, "One of them."),
                    ),
                ),
            ),
            ("next_cursor", cursor(NEXT)),
        ],
    );
}
