//! Executions, their logs, explanations of jobs, and dead letters.

use super::super::schema::{
    Schema, Schemas, any, count, flag, list, number, text, the, time, up_to, whole, words,
};
use super::{NEXT, OCCURRENCE, advised, cursor, page};
use punctual_client::{
    DeadLetterBody, DeadLetterFilter, DeadLetterSelection, DiscardAnswer, ExecutionBody, ExecutionExplained,
    ExecutionStatus, ExecutionsPage, ExplainBody, LogLineBody, LogStreamBody, LogsPage, ProgressBody,
    RecentOccurrence, RedriveAnswer, RefusedLetter, SkipRangeBody, TriggerRequest,
};
use punctual_core::gates::Gate;
use punctual_core::limits;
use punctual_core::occurrence::Origin;
use punctual_core::schedule::SkipReason;
use serde_json::json;

pub fn describe(schemas: &mut Schemas) {
    executions(schemas);
    logs(schemas);
    explanations(schemas);
    dead_letters(schemas);
}

fn executions(schemas: &mut Schemas) {
    schemas.add("ExecutionStatus", words::<ExecutionStatus>("The state of an execution."));
    schemas.add("SkipReason", words::<SkipReason>("Why occurrences did not run."));
    schemas.answer::<ExecutionBody>(
        "Execution",
        "One attempt of one occurrence of a job.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.")),
            ("job_id", the("JobId", "Its job.")),
            ("job_version", whole("The version of its job at that time.", 1..=u32::MAX.into())),
            ("scheduled_time", time("The nominal time of the occurrence, the same for all its attempts.")),
            ("origin", words::<Origin>("What caused the occurrence.")),
            (
                "attempt_number",
                whole("The number of the attempt within the occurrence.", 1..=u32::MAX.into()),
            ),
            ("status", the("ExecutionStatus", "The state of the execution.")),
            ("reason", text("Why it did not run.").or_null()),
            ("gates", list("What a waiting execution waits for.", words::<Gate>("One reason to wait."))),
            ("worker_id", text("The worker that runs or ran it.").or_null()),
            ("available_at", time("When this attempt could start: later than scheduled for a retry.")),
            ("expires_at", time("When it expires unless it has started; null once it has ended.").or_null()),
            ("cancel_requested", flag("It is running and has been asked to stop.")),
            ("started_at", time("When it started.").or_null()),
            ("completed_at", time("When it ended.").or_null()),
            ("error_message", text("The error of the handler; at most 8 KiB.").or_null()),
            (
                "result",
                any("The result of the handler, or null; at most 64 KiB. A result stored before its depth \
                     was limited is shown as `{\"unreadable\": …, \"text\": …}`."),
            ),
            (
                "progress",
                the("Progress", "The progress of the attempt; null until it reports any.").or_null(),
            ),
            (
                "checkpoint_bytes",
                count(
                    "The size of the checkpoint that the occurrence has saved for its next attempt; null \
                       if there is none.",
                )
                .or_null(),
            ),
            (
                "checkpoint",
                any("The checkpoint, at most 64 KiB; only where one execution is shown, and only if there \
                     is one.")
                .sometimes(),
            ),
            ("name", text("The name of its job; only where executions of all jobs are listed.").sometimes()),
            ("job_type", text("The type of its job; only in that list.").sometimes()),
            ("queue", text("The queue of its job; only in that list.").sometimes()),
            (
                "max_retries",
                whole("The retries that its job allows; only in that list.", 0..=u32::MAX.into()).sometimes(),
            ),
        ],
    );
    schemas.answer::<ProgressBody>(
        "Progress",
        "Progress as reported by a handler.",
        vec![
            ("percent", number("The completed share.", 0.0..=100.0).or_null().example(40)),
            ("message", text("The current step; at most 500 bytes.").or_null().example("page 5 of 12")),
            ("noted_at", time("When it was last reported.")),
        ],
    );
    page(schemas, "RunPage", "One page of executions of any job.", "Execution");
    schemas.answer::<SkipRangeBody>(
        "SkipRange",
        "Consecutive occurrences that did not run, for the same reason.",
        vec![
            ("first", time("The nominal time of the first.")),
            ("last", time("The nominal time of the last.")),
            ("count", count("How many.")),
            ("reason", the("SkipReason", "Why.")),
        ],
    );
    schemas.answer::<ExecutionsPage>(
        "ExecutionPage",
        "One page of a job's executions, open and finished in one order: latest occurrence and attempt first.",
        vec![
            ("items", list("The executions.", the("Execution", "One of them."))),
            (
                "skipped",
                list(
                    "Occurrences that did not run, latest first; on the first page only.",
                    the("SkipRange", "Some of them."),
                ),
            ),
            ("next_cursor", cursor(NEXT)),
        ],
    );
    schemas.request::<TriggerRequest>(
        "Trigger",
        "How to trigger a job.",
        vec![(
            "override",
            flag("Run beside open occurrences, whatever the job's `overlap_policy`.")
                .not_null()
                .otherwise(false),
        )],
    );
    let nothing = Schema::default().with("type", "object").with("description", "Nothing: an empty object.");
    schemas.add("Nothing", nothing.with("additionalProperties", false));
}

fn logs(schemas: &mut Schemas) {
    schemas.add(
        "LogStream",
        words::<LogStreamBody>("A command's stdout or stderr, or Punctual's own messages."),
    );
    schemas.answer::<LogLineBody>(
        "LogLine",
        "One line that a handler has written.",
        vec![
            ("timestamp", time("When.")),
            ("stream", the("LogStream", "Which stream it was written to.")),
            ("level", text("The severity; null for output of a command.").or_null()),
            ("message", text("The line; at most 16 KiB.")),
            ("execution_id", the("ExecutionId", "The attempt that wrote it.")),
        ],
    );
    schemas.answer::<LogsPage>(
        "LogPage",
        "One page of log lines, in the order in which they were written.",
        vec![
            ("items", list("The lines.", the("LogLine", "One of them."))),
            (
                "next_cursor",
                cursor("Opaque: pass it as `cursor` to read on; null when there are no further lines now."),
            ),
            (
                "follow_cursor",
                cursor(
                    "Opaque: pass it as `cursor` to read what is written after this page, now or later; \
                     null as long as nothing has run.",
                ),
            ),
        ],
    );
}

fn explanations(schemas: &mut Schemas) {
    schemas.answer::<ExplainBody>(
        "Explanation",
        "Why a job is in its current state. The sentences are for people and may be worded differently in \
         a later version.",
        vec![
            ("job_id", the("JobId", "The job.")),
            ("status", the("JobStatus", "The status of the job.")),
            ("summary", text("The most important sentence.")),
            ("sentences", list("All sentences.", text("One of them."))),
            (
                "advice",
                advised("Actions that may help, the most important first; empty if nothing blocks the job."),
            ),
            (
                "executions",
                list(
                    "The open executions, latest first; at most 10.",
                    the("ExecutionExplained", "One of them."),
                ),
            ),
            ("next_run_time", time("When the next occurrence runs.").or_null()),
            (
                "skipped",
                list(
                    "Occurrences that did not run, latest first; at most 10 ranges.",
                    the("SkipRange", "Some of them."),
                ),
            ),
            (
                "recent",
                list(
                    "The latest finished occurrences, latest first; at most 10.",
                    the("RecentOccurrence", "One of them."),
                ),
            ),
        ],
    );
    schemas.answer::<ExecutionExplained>(
        "ExecutionExplained",
        "Why an open execution is where it is.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.")),
            ("status", the("ExecutionStatus", "The state of the execution.")),
            ("sentences", list("Why.", text("One sentence."))),
        ],
    );
    schemas.answer::<RecentOccurrence>(
        "RecentOccurrence",
        "How an occurrence ended.",
        vec![
            ("scheduled_time", time("Its nominal time.")),
            ("status", the("ExecutionStatus", "The status of its last attempt.")),
            ("reason", text("Why it ended like that, if the status alone does not say it.").or_null()),
            (
                "late_by",
                the(
                    "Duration",
                    "How long after its scheduled time its first attempt started; null if it never did or \
                     that attempt is no longer stored.",
                )
                .or_null(),
            ),
            ("attempts", count("Attempts that were started.")),
        ],
    );
}

fn dead_letters(schemas: &mut Schemas) {
    schemas.answer::<DeadLetterBody>(
        "DeadLetter",
        "An occurrence that failed permanently.",
        vec![
            ("occurrence_id", the("OccurrenceId", "The occurrence.")),
            ("job_id", the("JobId", "Its job.")),
            ("name", text("The job's name.")),
            ("job_type", text("The job's type.")),
            ("queue", text("The job's queue.")),
            ("attempts", count("The number of attempts.")),
            ("scheduled_time", time("The nominal time of the occurrence.")),
            ("died_at", time("When its last attempt ended.")),
            ("error_message", text("The error of the last attempt.").or_null()),
        ],
    );
    page(schemas, "DeadLetterPage", "One page of dead letters, newest first.", "DeadLetter");
    schemas.request::<DeadLetterFilter>(
        "DeadLetterFilter",
        "Selects dead letters. An omitted field matches all.",
        vec![
            ("job_id", the("JobId", "Dead letters of this job.")),
            ("name", text("Dead letters of jobs with exactly this name.")),
            ("job_type", text("Dead letters of jobs of this type.")),
            ("queue", text("Dead letters of jobs of this queue.")),
            ("died_from", time("Dead letters created at or after this time.")),
            ("died_until", time("Dead letters created before this time.")),
            ("error", text("Dead letters whose error contains this text.")),
        ],
    );
    let ids =
        list("These.", the("OccurrenceId", "One of them.")).with("minItems", 1).example(json!([OCCURRENCE]));
    schemas.request::<DeadLetterSelection>(
        "DeadLetterSelection",
        "Dead letters to act on: either `ids`, or a `filter` of which one request handles a bounded \
         number.",
        vec![
            ("ids", up_to(limits::STORE_BATCH_MAX, ids)),
            (
                "filter",
                the(
                    "DeadLetterFilter",
                    "All that match; an empty filter means all. Needs the role operator.",
                ),
            ),
            (
                "limit",
                whole("How many matches to act on in this request.", 1..=limits::STORE_BATCH_MAX as u64)
                    .otherwise(limits::STORE_BATCH_MAX),
            ),
            ("cursor", text("Where the previous request ended: its `next_cursor`. Only with a filter.")),
        ],
    );
    let refused = || list("Those that were left unchanged.", the("RefusedLetter", "One of them."));
    let going_on = || cursor("Pass it as `cursor` to continue; null when nothing is left.");
    schemas.answer::<RedriveAnswer>(
        "RedriveAnswer",
        "The result of one redrive request.",
        vec![("redriven", count("How many run again.")), ("refused", refused()), ("next_cursor", going_on())],
    );
    schemas.answer::<DiscardAnswer>(
        "DiscardAnswer",
        "The result of one discard request.",
        vec![
            ("discarded", count("How many were deleted.")),
            ("refused", refused()),
            ("next_cursor", going_on()),
        ],
    );
    schemas.answer::<RefusedLetter>(
        "RefusedLetter",
        "A dead letter that was left unchanged.",
        vec![("occurrence_id", the("OccurrenceId", "The occurrence.")), ("reason", text("Why."))],
    );
}
