//! Executions, their logs, and dead letters.

use super::super::operation::{Operation, Title};
use super::super::schema::{text, the, time};
use super::{DEAD_LETTERS, EXECUTIONS, NO_JOB, execution_id, job_id, paged};
use crate::openapi::types::OCCURRENCE;
use axum::http::Method;
use punctual_client::API_PREFIX;
use serde_json::json;

pub fn operations() -> Vec<Operation> {
    vec![of_job(), job_logs(), show(), logs(), cancel(), list_dead(), redrive(), discard()]
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
    let title = title("listExecutions", "List the executions of a job");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/jobs/{{id}}/executions"), title)
        .about("Open executions first, then history, newest first; and ranges of skipped occurrences.")
        .in_path("id", job_id())
        .fails(404, NO_JOB);
    paged(operation).answers(200, "One page.", "ExecutionPage")
}

fn job_logs() -> Operation {
    let title = title("getJobLogs", "What a job has written");
    let operation = Operation::new(Method::GET, format!("{API_PREFIX}/jobs/{{id}}/logs"), title)
        .about("From the first attempt of the latest run on, attempt by attempt, oldest line first.")
        .in_path("id", job_id())
        .fails(404, NO_JOB);
    paged(operation).answers(200, "One page.", "LogPage")
}

fn show() -> Operation {
    on_execution(Method::GET, "", title("getExecution", "Look at an execution"))
        .about("Whether it waits, runs or has ended.")
        .answers(200, "The execution.", "Execution")
}

fn logs() -> Operation {
    let operation = on_execution(Method::GET, "/logs", title("getLogs", "What an execution has written"))
        .about("Oldest line first. With `follow_cursor` a later request reads what was written since.");
    paged(operation).answers(200, "One page.", "LogPage")
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
