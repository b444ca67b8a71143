//! All named schemas. Those of wire types follow from their declarations; enums of `core` and values that have
//! no struct are described here.

use super::schemas::Schemas;
use punctual_client::protocol::{
    AssignmentBody, DemandAnswer, DemandRequest, GiveBackRequest, HeartbeatAnswer, HeartbeatRequest,
    LeaseBody, LogsRequest, NewLogLine, NoteBody, NotesAnswer, NotesRequest, OpenSession, PollAnswer,
    PollRequest, ProgressNote, ReportBody, ReportRequest, ReportsAnswer, ResyncRequest, SessionBody, Verdict,
};
use punctual_client::schema::{
    CURSOR_EXAMPLE, Direction, EXECUTION_EXAMPLE, Field, JOB_EXAMPLE, OCCURRENCE_EXAMPLE, Schema, WireObject,
    list, object, one_of, text, the, up_to, whole, words,
};
use punctual_client::{
    AddSilence, Advice, AlertBody, AuditCheckBody, AuditEntryBody, BatchAnswer, BatchRequest,
    BrokenEntryBody, ChannelBody, ChannelTested, ClockBody, ClockMoved, ConditionBody, CountersBody,
    CreateToken, CreateUser, DeadLetterBody, DeadLetterFilter, DeadLetterSelection, DeliveryBody,
    DiscardAnswer, EscalationBody, ExecutionBody, ExecutionExplained, ExecutionStatus, ExecutionsPage,
    ExplainBody, FieldError, JobBody, JobFiresBody, JobsBody, LaneBody, LastExecution, LiveBody, LogLineBody,
    LogStreamBody, LogsPage, LookedAtBody, MeBody, MoveClock, MuteBody, NodeBody, NotificationsBody,
    NotifyBody, OccurrencePreview, PlannedPut, PreviewBody, PreviewRequest, Problem, ProgressBody, QueueBody,
    RecentOccurrence, RecurrenceBody, RedriveAnswer, RefusedLetter, RetryBody, RotateSecrets, RotateToken,
    RotatedSecrets, RuleBody, ScalingBody, ScalingPage, ScheduleType, SecretBody, SelectorBody, SeriesBody,
    SeriesPage, SetChannel, SetQueue, SetRule, SetSecret, SilenceBody, SkipRangeBody, StatsBody, SubmitJob,
    SubmittedBody, TokenBody, TriggerRequest, UserBody, WorkerBody, WorkerSessionBody,
};
use punctual_client::{
    BackfillBody, BackfillRequest, BulkAnswer, BulkItem, BulkRefusal, BulkRequest, CalendarBody,
    CalendarEntryBody, ComparedBody, JobsPage, OperationBody, PauseBody, RunNextAt, SetCalendar, SetPause,
    SetView, SettingBody, SettingsBody, SkippedEventBody, ViewBody,
};
use punctual_client::{FoundLine, FoundLogs, JobTypeBody, LogLevelBody, SearchedLogs, SetJobType};
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::recurrence::{DstGap, DstOverlap};
use punctual_core::schedule::{MisfirePolicy, OverlapPolicy, SkipReason};
use serde_json::json;

pub fn all() -> Schemas {
    let mut schemas = Schemas::default();
    wire_types(&mut schemas);
    jobs(&mut schemas);
    queues(&mut schemas);
    tokens(&mut schemas);
    users(&mut schemas);
    values(&mut schemas);
    enums(&mut schemas);
    pages(&mut schemas);
    health(&mut schemas);
    schemas
}

fn wire_types(schemas: &mut Schemas) {
    macro_rules! all {
        ($($type:ty),* $(,)?) => { $(schemas.of::<$type>();)* };
    }
    all![
        AddSilence,
        Advice,
        AlertBody,
        AssignmentBody,
        ChannelBody,
        ChannelTested,
        DeliveryBody,
        EscalationBody,
        MuteBody,
        NotificationsBody,
        NotifyBody,
        RuleBody,
        SelectorBody,
        SetChannel,
        SetRule,
        SilenceBody,
        AuditCheckBody,
        AuditEntryBody,
        BatchAnswer,
        BatchRequest,
        BrokenEntryBody,
        BulkAnswer,
        BulkItem,
        BulkRefusal,
        BulkRequest,
        ClockBody,
        ClockMoved,
        ComparedBody,
        ConditionBody,
        CountersBody,
        BackfillBody,
        BackfillRequest,
        CalendarBody,
        CalendarEntryBody,
        CreateToken,
        CreateUser,
        DeadLetterBody,
        DeadLetterFilter,
        DeadLetterSelection,
        DemandAnswer,
        DemandRequest,
        DiscardAnswer,
        ExecutionBody,
        ExecutionExplained,
        ExecutionsPage,
        ExplainBody,
        FieldError,
        GiveBackRequest,
        HeartbeatAnswer,
        HeartbeatRequest,
        JobFiresBody,
        JobsBody,
        JobsPage,
        LaneBody,
        LastExecution,
        LeaseBody,
        LiveBody,
        LookedAtBody,
        LogLineBody,
        LogsPage,
        LogsRequest,
        MeBody,
        MoveClock,
        NewLogLine,
        NodeBody,
        NoteBody,
        NotesAnswer,
        NotesRequest,
        OccurrencePreview,
        OperationBody,
        OpenSession,
        PauseBody,
        PlannedPut,
        PollAnswer,
        PollRequest,
        PreviewBody,
        PreviewRequest,
        RecurrenceBody,
        Problem,
        ProgressBody,
        ProgressNote,
        QueueBody,
        RecentOccurrence,
        RedriveAnswer,
        RefusedLetter,
        ReportBody,
        ReportRequest,
        ReportsAnswer,
        ResyncRequest,
        RetryBody,
        RotateSecrets,
        RotateToken,
        RotatedSecrets,
        RunNextAt,
        ScalingBody,
        ScalingPage,
        SeriesBody,
        SeriesPage,
        SessionBody,
        SetCalendar,
        SetView,
        SettingBody,
        SettingsBody,
        ViewBody,
        SkippedEventBody,
        SecretBody,
        SetPause,
        SetQueue,
        SetSecret,
        SetJobType,
        JobTypeBody,
        FoundLogs,
        FoundLine,
        SearchedLogs,
        SkipRangeBody,
        StatsBody,
        SubmitJob,
        SubmittedBody,
        TokenBody,
        TriggerRequest,
        UserBody,
        WorkerBody,
        WorkerSessionBody,
    ];
}

fn jobs(schemas: &mut Schemas) {
    // In a patch nothing is required, and null resets a field.
    let patch = SubmitJob::fields()
        .into_iter()
        .map(|field| Field { schema: field.schema.sometimes().or_null(), ..field });
    let about = "The fields of a job to change (JSON merge patch, RFC 7396): null resets a field to its default, \
                 fields that are not named stay unchanged.";
    schemas.add("PatchJob", object(about, Direction::Request, patch.collect()));
    let put = SubmitJob::fields().into_iter().map(|field| match field.name.as_str() {
        "name" => Field { schema: field.schema.sometimes(), ..field },
        _ => field,
    });
    let about = "A job with the name in the path. All fields are optional.";
    schemas.add("PutJob", object(about, Direction::Request, put.collect()));
    // Some fields are always written in one of the forms in which they can be submitted.
    let read = JobBody::fields().into_iter().map(|field| {
        let schema = match field.name.as_str() {
            "priority" => whole(1..=10).about("As a number, however it was submitted."),
            "replay_rate" => text().about("So many a minute.").example("10/m"),
            _ => return field,
        };
        Field { schema, ..field }
    });
    schemas.add(JobBody::NAME, object(&JobBody::about(), JobBody::DIRECTION, read.collect()));
    let refused = json!({
        "type": "object", "required": ["error"],
        "properties": {"error": {"$ref": "#/components/schemas/Problem", "description": "Why it was not stored."}},
    });
    let item = Schema::default()
        .about("A job that was stored, or why it was not.")
        .with("anyOf", json!([{"$ref": "#/components/schemas/Submitted"}, refused]));
    schemas.add("BatchItem", item);
}

fn queues(schemas: &mut Schemas) {
    let patch = SetQueue::fields()
        .into_iter()
        .map(|field| Field { schema: field.schema.sometimes().or_null(), ..field });
    let about = "The settings of a queue to change (JSON merge patch, RFC 7396): null removes a limit, and in `weights` the \
                 weight of an owner; fields that are not named stay unchanged.";
    schemas.add("PatchQueue", object(about, Direction::Request, patch.collect()));
}

fn tokens(schemas: &mut Schemas) {
    let patch = CreateToken::fields()
        .into_iter()
        .filter(|field| field.name != "user_id")
        .map(|field| Field { schema: field.schema.sometimes().or_null(), ..field });
    let about = "The fields of a token to change (JSON merge patch, RFC 7396): null resets a field to its default, \
                 fields that are not named stay unchanged.";
    schemas.add("PatchToken", object(about, Direction::Request, patch.collect()));
}

fn users(schemas: &mut Schemas) {
    let disabled = UserBody::fields().into_iter().filter(|field| field.name == "disabled");
    let patch = CreateUser::fields()
        .into_iter()
        .chain(disabled)
        .map(|field| Field { schema: field.schema.sometimes().or_null(), ..field });
    let about = "The fields of a user to change (JSON merge patch, RFC 7396): null resets a field to its default, \
                 fields that are not named stay unchanged.";
    schemas.add("PatchUser", object(about, Direction::Request, patch.collect()));
}

/// The UUID part of an id, without the parts that follow in longer ids.
const UUID: &str = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";

fn values(schemas: &mut Schemas) {
    let job = text().about("The id of a job: a UUID, ordered by submission.").with("format", "uuid");
    schemas.add("JobId", job.example(JOB_EXAMPLE));
    let operation = text().about("The id of an operation: a UUID.").with("format", "uuid");
    schemas.add("OperationId", operation.example(JOB_EXAMPLE));
    let occurrence = text()
        .about(
            "The id of an occurrence: job id, dot, number. It is also the idempotency key of its attempts.",
        )
        .with("pattern", format!("^{UUID}\\.[1-9][0-9]{{0,9}}$"))
        .example(OCCURRENCE_EXAMPLE);
    schemas.add("OccurrenceId", occurrence);
    let execution = text()
        .about("The id of an execution: job id, dot, occurrence, dot, attempt.")
        .with("pattern", format!("^{UUID}\\.[1-9][0-9]{{0,9}}\\.[1-9][0-9]{{0,9}}$"))
        .example(EXECUTION_EXAMPLE);
    schemas.add("ExecutionId", execution);
    let part = |unit| format!("([0-9]+(\\.[0-9]{{1,9}})?{unit})?");
    let short: String = ["w", "d", "h", "m", "s", "ms", "us"].map(part).concat();
    let iso = format!("P{}(T{})?", ["W", "D"].map(part).concat(), ["H", "M", "S"].map(part).concat());
    let duration = text()
        .about(
            "A duration: `30s`, `5m`, `1h30m`, `1d`, `250ms`, or ISO 8601 such as `PT3H`. Each unit once, \
             longer before shorter; months and years have no fixed length and are rejected.",
        )
        .with("pattern", format!("^({iso}|{short})$"))
        .with("minLength", 2)
        .with("maxLength", 100)
        .example("1h30m");
    schemas.add("Duration", duration);
    let priority = Schema::default()
        .about("1 to 10, or `low`, `medium`, `high` for 2, 5, 8. One step equals ten seconds of waiting.")
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
        .about("A number per minute, or `10/m`, `2/s`.")
        .with(
            "anyOf",
            json!([
                {"type": "integer", "minimum": 1, "maximum": limits::REPLAY_RATE_MAX},
                {"type": "string", "pattern": "^ *[0-9]+ *(/ *(m|min|minute|s|sec|second) *)?$"},
            ]),
        )
        .example("10/m");
    schemas.add("ReplayRate", rate);
    let channels = Schema::default().about("The name of a channel, or a list of names.").with(
        "anyOf",
        json!([
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": limits::CHANNELS_PER_EVENT_MAX},
        ]),
    );
    schemas.add("ChannelNames", channels.example("ops"));
    let reference = json!({
        "type": "object",
        "properties": {"$secret": {"type": "string", "description": "The name of a secret."}},
        "required": ["$secret"],
        "additionalProperties": false,
    });
    let secret = Schema::default().about("A text, or a reference to a secret.").with(
        "anyOf",
        json!([{"type": "string", "minLength": 1, "maxLength": limits::CHANNEL_VALUE_BYTES_MAX}, reference]),
    );
    schemas.add("SecretText", secret.example(json!({"$secret": "webhook-key"})));
    let nothing = Schema::of("object").about("Nothing: an empty object.");
    schemas.add("Nothing", nothing.with("additionalProperties", false));
}

const SCHEDULE_TYPES: [&str; 3] =
    [ScheduleType::Immediate.as_str(), ScheduleType::OneTime.as_str(), ScheduleType::Recurring.as_str()];

fn enums(schemas: &mut Schemas) {
    let mut add = |name: &str, words: Schema, about: &str| schemas.add(name, words.about(about));
    add("JobStatus", words::<JobStatus>(), "The status of a job.");
    add("ScheduleType", one_of(&SCHEDULE_TYPES), "What makes a job run. Case-insensitive in requests.");
    add(
        "DstGap",
        words::<DstGap>(),
        "What happens to a local time that clocks skip when they go forward. Case-insensitive in requests.",
    );
    add(
        "DstOverlap",
        words::<DstOverlap>(),
        "What happens to a local time that clocks repeat when they go back. Case-insensitive in requests.",
    );
    add(
        "MisfirePolicy",
        words::<MisfirePolicy>(),
        "What happens to missed occurrences, that is, those later than the grace period: skip them, run the \
         latest one, or run all. Case-insensitive in requests.",
    );
    add(
        "OverlapPolicy",
        words::<OverlapPolicy>(),
        "What a fire does while the job has open occurrences: skip, run beside them, wait, or cancel them and \
         start when they have ended. Case-insensitive in requests.",
    );
    add("ExecutionStatus", words::<ExecutionStatus>(), "The state of an execution.");
    add("SkipReason", words::<SkipReason>(), "Why occurrences did not run.");
    add("LogLevel", words::<LogLevelBody>(), "The severity of a line.");
    add("LogStream", words::<LogStreamBody>(), "A command's stdout or stderr, or Punctual's own messages.");
    add(
        "Verdict",
        words::<Verdict>(),
        "`already_accepted`: the same report was already received; or this note, or a newer one. `stale`: the \
         lease is gone, and the message has no effect.",
    );
}

/// Pages of lists: one Rust type for all of them.
fn pages(schemas: &mut Schemas) {
    for (name, item, about) in [
        ("JobFiresPage", "JobFires", "One page of jobs that fire within a range of time."),
        ("RunPage", "Execution", "One page of executions of any job."),
        ("OperationPage", "Operation", "One page of operations, running ones first."),
        ("DeadLetterPage", "DeadLetter", "One page of dead letters, newest first."),
        ("QueuePage", "Queue", "All queues that have live executions, are paused or have settings."),
        ("WorkerPage", "WorkerSession", "All sessions that are neither lost nor closed."),
        ("TokenPage", "Token", "One page of tokens."),
        ("SecretPage", "Secret", "One page of secrets."),
        ("CalendarPage", "Calendar", "One page of calendars."),
        ("JobTypePage", "JobType", "One page of job types with a schema."),
        ("ViewPage", "View", "The views of the caller."),
        ("AuditEntryPage", "AuditEntry", "One page of entries of the audit log, latest first."),
        ("UserPage", "User", "One page of users."),
        ("NodePage", "Node", "All processes of the cluster that are alive."),
        ("ChannelPage", "Channel", "One page of channels."),
        ("NotificationRulePage", "NotificationRule", "One page of rules."),
        ("SilencePage", "Silence", "One page of silences, latest first."),
        ("AlertPage", "Alert", "One page of alerts."),
        (
            "DeliveryPage",
            "Delivery",
            "One page of deliveries: those that wait first, then the others, latest first.",
        ),
    ] {
        let items = up_to(limits::PAGE_ITEMS_MAX, list(the(item)))
            .about("A page may be shorter than its limit and still have a next one.");
        let cursor = text()
            .about("Opaque: pass it as `cursor` to read on; null on the last page.")
            .or_null()
            .example(CURSOR_EXAMPLE);
        let page = Schema::of("object")
            .about(about)
            .with("properties", json!({"items": items.value(), "next_cursor": cursor.value()}))
            .with("x-order", json!(["items", "next_cursor"]))
            .with("required", json!(["items", "next_cursor"]));
        schemas.add(name, page);
    }
}

/// These have no Rust types: only people and load balancers read them.
fn health(schemas: &mut Schemas) {
    let status = |about, words: &[&str]| {
        Schema::of("object")
            .about(about)
            .with("required", json!(["status"]))
            .with("properties", json!({"status": one_of(words).about("The status.").value()}))
    };
    schemas.add("Live", status("The process answers.", &["live"]));
    let ready_queue = one_of(&["connected", "disconnected"]).about(
        "Whether hints of queued work arrive from other processes; absent if nothing carries them. Without hints the \
         process polls the database, so it is ready in both cases.",
    );
    let statuses = one_of(&["ready", "stopping"]).about("The status.");
    let ready = status("Whether the server can serve.", &[])
        .with("properties", json!({"status": statuses.value(), "ready_queue": ready_queue.value()}));
    schemas.add("Ready", ready);
    let index = Schema::of("object")
        .about("The links.")
        .with("required", json!(["name", "version"]))
        .with("additionalProperties", json!({"type": "string"}));
    schemas.add("Index", index);
}
