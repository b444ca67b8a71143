//! Executions, their logs, and dead letters.

use super::super::operation::{Operation, Title};
use super::jobs::request_key;
use super::{DEAD_LETTERS, EXECUTIONS, NO_JOB, execution_id, job_id, paged, streaming};
use axum::http::Method;
use punctual_client::schema::OCCURRENCE_EXAMPLE;
use punctual_client::schema::{Schema, flag, one_of, text, the, time, whole};
use punctual_client::{API_PREFIX, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED};
use punctual_core::limits;
use punctual_engine::UseCase;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    let mut operations =
        vec![of_job(), job_logs(), list(), show(), result(), logs(), cancel(), rerun(), events()];
    operations.extend([search_logs(), list_dead(), redrive(), discard()]);
    operations
}

fn title(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: EXECUTIONS, summary }
}

fn on_execution(method: Method, rest: &str, title: Title) -> Operation {
    Operation::new(method, format!("{API_PREFIX}/executions/{{id}}{rest}"), title)
        .in_path("id", execution_id())
        .fails(404, "There is no such execution.")
}

fn of_job() -> Operation {
    let title = title("listExecutionsOfJob", "List the executions of a job");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/jobs/{{id}}/executions"), title)
        .needs(UseCase::ReadExecutions)
        .about(
            "Open and finished executions in one order, latest occurrence and attempt first; and ranges of \
             skipped occurrences. An execution keeps its position when it finishes, so pages neither \
             repeat nor miss one.",
        )
        .in_path("id", job_id())
        .fails(404, NO_JOB);
    paged(operation).answers(200, "One page.", "ExecutionPage")
}

fn job_logs() -> Operation {
    let title = title("getJobLogs", "Log lines of a job");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/jobs/{{id}}/logs"), title)
        .needs(UseCase::ReadLogs)
        .about(&format!(
            "Starts with the first attempt of the latest run, attempt by attempt, oldest line first. \
             {FOLLOWING} of the job, across its attempts and runs, and `end` once the job is finished."
        ))
        .in_path("id", job_id())
        .fails(404, NO_JOB);
    lines(operation)
}

const FOLLOWING: &str = "With `follow` the response is a stream of server-sent events that stays open as \
                         long as lines may follow: a `line` event for every line";

/// Parameters that select log lines, as a page or as a stream.
fn lines(operation: Operation) -> Operation {
    let follow = flag().about(
        "Respond with a stream of events, each with an `id` to resume from. If omitted, the first media \
         type in `Accept` decides.",
    );
    let tail = whole(0..=limits::PAGE_ITEMS_MAX as u64).about(
        "Only this many of the last lines; for a job, of its latest run. Cannot be combined with `cursor`.",
    );
    let operation = paged(operation)
        .in_query("follow", follow.otherwise(false))
        .in_query("tail", tail)
        .in_query(
            "before",
            text().about(
                "The `previous_cursor` of a page: the last `limit` lines before it. Cannot be combined with `tail` or \
                 `follow`.",
            ),
        )
        .in_query("tag", text().about("Only lines of jobs that have this tag."))
        .in_query("since", time().about("Only lines written at or after this time."))
        .in_query(
            "until",
            time().about("Only lines written before this time. Cannot be combined with `follow`."),
        )
        .in_header("Last-Event-ID", last_event_id())
        .answers(200, "One page, or with `follow` a stream of lines.", "LogPage");
    streaming(operation, "`line` events with a `LogLine` each, and finally an `end` event with the `status`.")
}

fn search_logs() -> Operation {
    let title = title("searchLogs", "Search the logs of all jobs");
    Operation::new(Method::GET, format!("{API_PREFIX}/logs"), title)
        .needs(UseCase::SearchLogs)
        .about(
            "The latest matching lines of executions that run or are kept in history. A search examines a bounded number of \
             executions and lines, the latest first, and `searched` says how far it looked: pass its `back_to` as `until` to \
             search on.",
        )
        .in_query("queue", text().about("Only lines of jobs of this queue."))
        .in_query("job_type", text().about("Only lines of jobs of this type."))
        .in_query("owner", text().about("Only lines of jobs of this owner."))
        .in_query("since", time().about("Only lines written at or after this time."))
        .in_query("until", time().about("Only lines written before this time."))
        .in_query("grep", text().about("Only lines with this text, in any case."))
        .in_query("level", the("LogLevel").about("Only lines of this level or a more severe one."))
        .in_query(
            "limit",
            whole(1..=limits::PAGE_ITEMS_MAX as u64)
                .about("The maximum number of lines.")
                .otherwise(limits::PAGE_ITEMS_DEFAULT),
        )
        .answers(200, "The lines, and how far the search looked.", "FoundLogs")
        .fails(400, "A parameter is unknown or out of range.")
}

fn last_event_id() -> Schema {
    text().about("For an interrupted stream: the `id` of the last event received, to resume after it.")
}

fn list() -> Operation {
    let title = title("listExecutions", "List executions of all jobs");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/executions"), title)
        .needs(UseCase::ReadExecutions)
        .about(
            "All executions with one status. The order of running executions is defined by the store; \
             waiting and queued ones are sorted by job, latest first; finished ones latest first. A filter \
             examines a bounded number of executions for each page, so a page may be short or even empty \
             while `next_cursor` says that there is more.",
        )
        .in_query(
            "status",
            the("ExecutionStatus").about("The status; case-insensitive.").otherwise("RUNNING"),
        )
        .in_query("queue", text().about("Only executions of jobs of this queue."))
        .in_query("job_type", text().about("Only executions of jobs of this type."))
        .in_query("owner", text().about("Only executions of jobs of this owner."))
        .in_query("worker", text().about("Only executions that run or ran on the worker with this name."))
        .in_query("ended_from", time().about("Only executions that ended at or after this time."))
        .in_query(
            "ended_until",
            time().about("Only executions that ended before this time. The list begins there, however old it is."),
        )
        .in_query(
            "order",
            one_of(&["claim"]).about(
                "With `status=QUEUED` and a `queue`: the executions that workers claim next, in that order, on one page. \
                 A worker takes the first of the job types that it runs.",
            ),
        );
    paged(operation).answers(200, "One page.", "RunPage")
}

fn events() -> Operation {
    let title = title("listenToEvents", "Stream execution events");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/events"), title)
        .needs(UseCase::ReadEvents)
        .about(
            "A stream of server-sent events that stays open until either side closes it. Finished \
             executions come in commit order, each event with an `id`: reconnect with it, and no event is \
             missed as long as history is kept. Changes of open executions are sent as they happen, \
             without an `id`; a new connection first receives all running executions.",
        )
        .in_query("job_id", the("JobId").about("Only executions of this job."))
        .in_query(
            "status",
            the("ExecutionStatus").about("Only executions with this status; case-insensitive."),
        )
        .in_query("queue", text().about("Only executions of jobs of this queue."))
        .in_query("cursor", text().about("The `id` of the event after which to resume."))
        .in_header("Last-Event-ID", last_event_id())
        .answers_nothing(200, "All events from now on, or from where the stream resumes.");
    streaming(
        operation,
        "`execution` events with an `Execution` each; `gap` if some finished executions are no longer \
         stored, `stop` before the server stops.",
    )
}

fn show() -> Operation {
    on_execution(Method::GET, "", title("getExecution", "Get an execution"))
        .needs(UseCase::ReadExecutions)
        .about("Whether it is waiting, running or finished.")
        .answers(200, "The execution.", "Execution")
}

fn result() -> Operation {
    on_execution(Method::GET, "/result", title("getResult", "Get the result of an execution"))
        .needs(UseCase::ReadResult)
        .about(
            "The result alone, however large it is: also one that is stored as a blob (`result_overflow`), whose reference \
             is the `result` of the execution.",
        )
        .answers_as(200, "The result, any JSON.", "application/json", json!({}))
        .fails(404, "There is no such execution, it has no result, or its blob does not exist.")
}

fn logs() -> Operation {
    let operation = on_execution(Method::GET, "/logs", title("getLogs", "Log lines of an execution"))
        .needs(UseCase::ReadLogs)
        .about(&format!(
            "Oldest line first. With `follow_cursor` a later request reads the lines written since. \
             {FOLLOWING}, and `end` once the execution is finished."
        ));
    lines(operation)
}

fn cancel() -> Operation {
    on_execution(Method::POST, "/cancel", title("cancelExecution", "Cancel an execution"))
        .needs(UseCase::CancelExecution)
        .about(
            "Ends it if it has not started, asks it to stop if it is running. Cancelling the only \
             execution of a one-time job also cancels the job.",
        )
        .may_take("Nothing", json!({}))
        .answers(200, "The execution in its current state.", "Execution")
        .fails(409, "It has already ended.")
}

fn rerun() -> Operation {
    on_execution(Method::POST, "/rerun", title("rerunExecution", "Run a finished occurrence again"))
        .needs(UseCase::RerunExecution)
        .about(
            "Adds a new occurrence with the same `scheduled_time` that names in `repeats` the one it repeats. \
             Finished executions do not change. Without a payload it has the payload of the repeated run if that had \
             one of its own, otherwise the current payload of the job.",
        )
        .in_header(IDEMPOTENCY_KEY, request_key())
        .may_take("Trigger", json!({"payload": {"day": "2026-03-01"}}))
        .answers(201, "The execution that was added.", "Execution")
        .with_header(201, "Location")
        .with_header(201, IDEMPOTENT_REPLAYED)
        .fails(409, "The occurrence is still open, the overlap policy does not allow another run, or the job is cancelled.")
}

fn dead(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: DEAD_LETTERS, summary }
}

fn list_dead() -> Operation {
    let path = format!("{API_PREFIX}/dead-letters");
    let operation = Operation::new(Method::GET, path, dead("listDeadLetters", "List dead letters"))
        .needs(UseCase::ReadDeadLetters)
        .about("Newest first.")
        .in_query("job_id", the("JobId").about("Only dead letters of this job."))
        .in_query("name", text().about("Only dead letters of jobs with exactly this name."))
        .in_query("job_type", text().about("Only dead letters of jobs of this type."))
        .in_query("queue", text().about("Only dead letters of jobs of this queue."))
        .in_query("owner", text().about("Only dead letters of jobs of this owner."))
        .in_query("died_from", time().about("Only dead letters created at or after this time."))
        .in_query("died_until", time().about("Only dead letters created before this time."))
        .in_query("error", text().about("Only dead letters whose error contains this text."));
    paged(operation).answers(200, "One page.", "DeadLetterPage")
}

fn redrive() -> Operation {
    let path = format!("{API_PREFIX}/dead-letters/redrive");
    Operation::new(Method::POST, path, dead("redriveDeadLetters", "Run dead letters again"))
        .needs(UseCase::Redrive)
        .about(
            "Another attempt of each, with a fresh retry budget. Select by `ids`, or by a `filter`, \
             repeated until `next_cursor` is null.",
        )
        .takes("DeadLetterSelection", json!({"ids": [OCCURRENCE_EXAMPLE]}))
        .answers(200, "The outcome of each.", "RedriveAnswer")
}

fn discard() -> Operation {
    let path = format!("{API_PREFIX}/dead-letters/discard");
    Operation::new(Method::POST, path, dead("discardDeadLetters", "Delete dead letters"))
        .needs(UseCase::Discard)
        .about("Select by `ids`, or by a `filter`, repeated until `next_cursor` is null.")
        .takes("DeadLetterSelection", json!({"filter": {"queue": "mail"}, "limit": 100}))
        .answers(200, "The outcome of each.", "DiscardAnswer")
}
