//! Executions, their logs, and dead letters.

use super::super::operation::{Operation, Title};
use super::super::schema::{Schema, flag, text, the, time, whole};
use super::{DEAD_LETTERS, EXECUTIONS, NO_JOB, execution_id, job_id, paged, streaming};
use crate::openapi::types::OCCURRENCE;
use axum::http::Method;
use punctual_client::API_PREFIX;
use punctual_core::limits;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![of_job(), job_logs(), list(), show(), logs(), cancel(), events(), list_dead(), redrive(), discard()]
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
        .about(
            "Open and finished executions in one order, latest occurrence and attempt first; and ranges of skipped \
            occurrences. An execution keeps its place when it finishes, so that pages neither repeat nor lose one.",
        )
        .in_path("id", job_id())
        .fails(404, NO_JOB);
    paged(operation).answers(200, "One page.", "ExecutionPage")
}

fn job_logs() -> Operation {
    let title = title("getJobLogs", "What a job has written");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/jobs/{{id}}/logs"), title)
        .about(&format!(
            "From the first attempt of the latest run on, attempt by attempt, oldest line first. {FOLLOWING} of the \
             job, across its attempts and runs, and `end` once the job is finished."
        ))
        .in_path("id", job_id())
        .fails(404, NO_JOB);
    lines(operation)
}

const FOLLOWING: &str = "With `follow` the answer is a stream of server-sent events that goes on as long as lines may \
    come: a `line` event for every line";

/// Parameters that select log lines, as a page or as a stream.
fn lines(operation: Operation) -> Operation {
    let follow = flag(
        "Answer with a stream of events, each with an `id` to go on from. If left out, what `Accept` begins with \
            decides.",
    );
    let tail = whole(
        "Only the last so many; of a job, of its latest run. Not together with `cursor`.",
        0..=limits::PAGE_ITEMS_MAX as u64,
    );
    let operation = paged(operation)
        .in_query("follow", follow.otherwise(false))
        .in_query("tail", tail)
        .in_query("since", time("Only those written from this time on."))
        .in_query("until", time("Only those written before this time. Not together with `follow`."))
        .in_header("Last-Event-ID", last_event_id())
        .answers(200, "One page, or with `follow` all that comes.", "LogPage");
    streaming(operation, "`line` events with a `LogLine` each, and an `end` event with the `status` at last.")
}

fn last_event_id() -> Schema {
    text("Of a stream that broke off: the `id` of the last event that came, to go on after it.")
}

fn list() -> Operation {
    let title = title("listExecutions", "List executions of all jobs");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/executions"), title)
        .about(
            "Those with one status. What runs comes in an order of the store's own; what waits or is queued, latest \
            job first; what has finished, latest first. A filter looks at a bounded number of executions for each \
            page, so that a page may be short, even empty, while `next_cursor` says that there is more.",
        )
        .in_query("status", the("ExecutionStatus", "Which; in any case.").otherwise("RUNNING"))
        .in_query("queue", text("Only those of jobs of this queue."))
        .in_query("job_type", text("Only those of jobs of this type."))
        .in_query("worker", text("Only those that run or ran on the worker of this name."));
    paged(operation).answers(200, "One page.", "RunPage")
}

fn events() -> Operation {
    let title = title("listenToEvents", "Hear what happens to executions");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/events"), title)
        .about(
            "A stream of server-sent events that goes on until one side leaves. What has finished comes in the order \
            of the commits, each event with an `id`: connect again with it, and nothing is missed as long as history \
            is kept. What is open is told as it moves, without an `id`; whoever connects is shown all that runs.",
        )
        .in_query("job_id", the("JobId", "Only executions of this job."))
        .in_query("status", the("ExecutionStatus", "Only executions with this status; in any case."))
        .in_query("queue", text("Only executions of jobs of this queue."))
        .in_query("cursor", text("The `id` of the event after which to go on."))
        .in_header("Last-Event-ID", last_event_id())
        .answers_nothing(200, "All that happens from now on, or from where it was to go on.");
    streaming(
        operation,
        "`execution` events with an `Execution` each; `gap` if some of what finished is not kept any more, `stop` \
            before the server stops.",
    )
}

fn show() -> Operation {
    on_execution(Method::GET, "", title("getExecution", "Look at an execution"))
        .about("Whether it waits, runs or has ended.")
        .answers(200, "The execution.", "Execution")
}

fn logs() -> Operation {
    let operation = on_execution(Method::GET, "/logs", title("getLogs", "What an execution has written"))
        .about(&format!(
            "Oldest line first. With `follow_cursor` a later request reads what was written since. {FOLLOWING}, and \
             `end` once the execution is finished."
        ));
    lines(operation)
}

fn cancel() -> Operation {
    on_execution(Method::POST, "/cancel", title("cancelExecution", "Cancel an execution"))
        .about(
            "Ends it if it has not started, asks it to stop if it runs. The only execution of a \
            one-time job takes the job along.",
        )
        .may_take("Nothing", json!({}))
        .answers(200, "The execution as it is now.", "Execution")
        .fails(409, "It has ended.")
}

fn dead(id: &'static str, summary: &'static str) -> Title {
    Title { id, tag: DEAD_LETTERS, summary }
}

fn list_dead() -> Operation {
    let path = format!("{API_PREFIX}/dead-letters");
    let operation = Operation::new(Method::GET, path, dead("listDeadLetters", "List dead letters"))
        .about("Newest first.")
        .in_query("job_id", the("JobId", "Only those of this job."))
        .in_query("name", text("Only those of jobs with exactly this name."))
        .in_query("job_type", text("Only those of jobs of this type."))
        .in_query("queue", text("Only those of jobs of this queue."))
        .in_query("died_from", time("Only those that died from this time on."))
        .in_query("died_until", time("Only those that died before this time."))
        .in_query("error", text("Only those whose error contains this text."));
    paged(operation).answers(200, "One page.", "DeadLetterPage")
}

fn redrive() -> Operation {
    let path = format!("{API_PREFIX}/dead-letters/redrive");
    Operation::new(Method::POST, path, dead("redriveDeadLetters", "Run dead letters again"))
        .about(
            "Another attempt of each, with a fresh budget. By `ids`, or by a `filter`, step by step \
            until `next_cursor` is null.",
        )
        .takes("DeadLetterSelection", json!({"ids": [OCCURRENCE]}))
        .answers(200, "What became of them.", "RedriveAnswer")
}

fn discard() -> Operation {
    let path = format!("{API_PREFIX}/dead-letters/discard");
    Operation::new(Method::POST, path, dead("discardDeadLetters", "Delete dead letters"))
        .about("By `ids`, or by a `filter`, step by step until `next_cursor` is null.")
        .takes("DeadLetterSelection", json!({"filter": {"queue": "mail"}, "limit": 100}))
        .answers(200, "What became of them.", "DiscardAnswer")
}
