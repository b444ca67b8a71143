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
    schemas.add("ExecutionStatus", words::<ExecutionStatus>("Where an execution is in its life."));
    schemas.add("SkipReason", words::<SkipReason>("Why occurrences did not run."));
    schemas.answer::<ExecutionBody>(
        "Execution",
        "One attempt of one occurrence of a job.",
        vec![
            ("execution_id", the("ExecutionId", "The execution.")),
            ("job_id", the("JobId", "Its job.")),
            ("job_version", whole("Its job as it was then.", 1..=u32::MAX.into())),
            ("scheduled_time", time("The nominal time of the occurrence, the same for all its attempts.")),
            ("origin", words::<Origin>("What caused the occurrence.")),
            ("attempt_number", whole("Which attempt of the occurrence.", 1..=u32::MAX.into())),
            ("status", the("ExecutionStatus", "Where it is in its life.")),
            ("reason", text("Why it did not run.").or_null()),
            ("gates", list("What a waiting execution waits for.", words::<Gate>("One reason to wait."))),
            ("worker_id", text("Where it runs or ran.").or_null()),
            ("available_at", time("When this attempt could begin: later than scheduled for a retry.")),
            ("expires_at", time("When it ends unless it has started; null once it has ended.").or_null()),
            ("cancel_requested", flag("It runs and has been asked to stop.")),
            ("started_at", time("When it started.").or_null()),
            ("completed_at", time("When it ended.").or_null()),
            ("error_message", text("What the handler failed with; at most 8 KiB.").or_null()),
            ("result", any(
                    "What the handler left, or null; at most 64 KiB. One that was stored when there was no limit of \
                        its depth is shown as `{\"unreadable\": …, \"text\": …}`.",
                )),
            (
                "progress",
                the("Progress", "How far the attempt has come; null as long as it has not said so.")
                    .or_null(),
            ),
            (
                "checkpoint_bytes",
                count("The size of what the occurrence has saved for its next attempt; null if nothing.")
                    .or_null(),
            ),
            (
                "checkpoint",
                any(
                    "What was saved, at most 64 KiB; only where one execution is shown, and if there is any.",
                )
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
        "How far a handler says it has come.",
        vec![
            ("percent", number("How much of it is done.", 0.0..=100.0).or_null().example(40)),
            ("message", text("What it is at; at most 500 bytes.").or_null().example("page 5 of 12")),
            ("noted_at", time("When it last said something.")),
        ],
    );
    page(schemas, "RunPage", "One page of executions of any job.", "Execution");
    schemas.answer::<SkipRangeBody>(
        "SkipRange",
        "Consecutive occurrences that did not run, for one reason.",
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
            flag("Beside what is open, whatever the job's `overlap_policy`.").not_null().otherwise(false),
        )],
    );
    let nothing = Schema::default().with("type", "object").with("description", "Nothing: an empty object.");
    schemas.add("Nothing", nothing.with("additionalProperties", false));
}

fn logs(schemas: &mut Schemas) {
    schemas.add(
        "LogStream",
        words::<LogStreamBody>("A command's stdout or stderr, or the log that Punctual itself writes to."),
    );
    schemas.answer::<LogLineBody>(
        "LogLine",
        "One line that a handler has written.",
        vec![
            ("timestamp", time("When.")),
            ("stream", the("LogStream", "Where it was written to.")),
            ("level", text("How important it is; null for what a command has written.").or_null()),
            ("message", text("The line; at most 16 KiB.")),
            ("execution_id", the("ExecutionId", "The attempt that has written it.")),
        ],
    );
    schemas.answer::<LogsPage>(
        "LogPage",
        "One page of log lines, in the order in which they were written.",
        vec![
            ("items", list("The lines.", the("LogLine", "One of them."))),
            (
                "next_cursor",
                cursor(
                    "Opaque: give it back as `cursor` to read on; null when there are no \
                further lines now.",
                ),
            ),
            (
                "follow_cursor",
                cursor(
                    "Opaque: give it back as `cursor` to read what is written after this \
                page, now or later; null as long as nothing has run.",
                ),
            ),
        ],
    );
}

fn explanations(schemas: &mut Schemas) {
    schemas.answer::<ExplainBody>(
        "Explanation",
        "Why a job does what it does. The sentences are for people and may be worded differently in a \
            later version.",
        vec![
            ("job_id", the("JobId", "The job.")),
            ("status", the("JobStatus", "Where it is in its life.")),
            ("summary", text("The most telling sentence.")),
            ("sentences", list("All of them.", text("One of them."))),
            ("advice", advised("What may help, the most telling first; empty if nothing is in the way.")),
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
            ("status", the("ExecutionStatus", "Where it is in its life.")),
            ("sentences", list("Why.", text("One sentence."))),
        ],
    );
    schemas.answer::<RecentOccurrence>(
        "RecentOccurrence",
        "How an occurrence ended.",
        vec![
            ("scheduled_time", time("Its nominal time.")),
            ("status", the("ExecutionStatus", "Of its last attempt.")),
            ("reason", text("Why it ended like that, where the status alone does not say it.").or_null()),
            (
                "late_by",
                the(
                    "Duration",
                    "How long after its scheduled time its first attempt started; \
                null if it never did or is no longer kept.",
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
        "An occurrence that failed for good.",
        vec![
            ("occurrence_id", the("OccurrenceId", "The occurrence.")),
            ("job_id", the("JobId", "Its job.")),
            ("name", text("The job's name.")),
            ("job_type", text("The job's type.")),
            ("queue", text("The job's queue.")),
            ("attempts", count("How often it was tried.")),
            ("scheduled_time", time("The nominal time of the occurrence.")),
            ("died_at", time("When its last attempt ended.")),
            ("error_message", text("What that failed with.").or_null()),
        ],
    );
    page(schemas, "DeadLetterPage", "One page of dead letters, newest first.", "DeadLetter");
    schemas.request::<DeadLetterFilter>(
        "DeadLetterFilter",
        "Which dead letters are meant. Everything left out matches all.",
        vec![
            ("job_id", the("JobId", "Those of this job.")),
            ("name", text("Those of jobs with exactly this name.")),
            ("job_type", text("Those of jobs of this type.")),
            ("queue", text("Those of jobs of this queue.")),
            ("died_from", time("Those that died from this time on.")),
            ("died_until", time("Those that died before this time.")),
            ("error", text("Those whose error contains this text.")),
        ],
    );
    let ids =
        list("These.", the("OccurrenceId", "One of them.")).with("minItems", 1).example(json!([OCCURRENCE]));
    schemas.request::<DeadLetterSelection>(
        "DeadLetterSelection",
        "Dead letters to act on: either `ids`, or a `filter` of which one request takes a bounded step.",
        vec![
            ("ids", up_to(limits::STORE_BATCH_MAX, ids)),
            (
                "filter",
                the("DeadLetterFilter", "All that match; an empty one means all. Needs the role operator."),
            ),
            (
                "limit",
                whole("How many of the filter's to act on in this step.", 1..=limits::STORE_BATCH_MAX as u64)
                    .otherwise(limits::STORE_BATCH_MAX),
            ),
            ("cursor", text("Where the step before ended: its `next_cursor`. Only with a filter.")),
        ],
    );
    let refused = || list("Those that were left as they are.", the("RefusedLetter", "One of them."));
    let going_on = || cursor("Give it back as `cursor` to go on; null when nothing is left.");
    schemas.answer::<RedriveAnswer>(
        "RedriveAnswer",
        "What one step of a redrive did.",
        vec![("redriven", count("How many run again.")), ("refused", refused()), ("next_cursor", going_on())],
    );
    schemas.answer::<DiscardAnswer>(
        "DiscardAnswer",
        "What one step of a discard did.",
        vec![
            ("discarded", count("How many were deleted.")),
            ("refused", refused()),
            ("next_cursor", going_on()),
        ],
    );
    schemas.answer::<RefusedLetter>(
        "RefusedLetter",
        "A dead letter that was left as it is.",
        vec![("occurrence_id", the("OccurrenceId", "The occurrence.")), ("reason", text("Why."))],
    );
}
