//! The wire types of the HTTP API and a client for it.
//!
//! The wire types own names and spellings, nothing else: the API and core decide what a value means and
//! whether it is valid. This crate must not know the engine, any store, or HTTP servers.
//!
//! With the feature `schema` it also describes them (`schema`), for the server's OpenAPI document (decision
//! 0032).
//!
//! With the feature `worker` it also provides workers with handlers in Rust (`worker`), which run on the same
//! code as the server's own worker (decision 0008).

mod access;
mod advice;
mod audit;
mod bulk;
mod by_name;
mod calendar;
mod client;
mod clock;
mod dead_letter;
mod duration;
mod events;
mod execution;
mod explain;
mod guard;
#[cfg(feature = "worker")]
pub mod host;
mod job;
mod job_list;
mod job_type;
mod logs;
mod moment;
mod notification;
mod object;
mod page;
mod pause;
mod priority;
mod problem;
pub mod protocol;
mod queue;
mod remote;
mod results;
mod retries;
mod retry;
mod scaling;
mod schedule;
#[cfg(feature = "schema")]
pub mod schema;
mod secret;
mod series;
mod stats;
mod stream;
mod tls;
mod view;
mod wire;
mod word;
#[cfg(feature = "worker")]
pub mod worker;
mod workers;

pub use access::{CreateToken, CreateUser, MeBody, RotateToken, TokenBody, UserBody};
pub use advice::{Advice, AdvisedAction};
pub use audit::{AuditCheckBody, AuditEntryBody, AuditFilter, BrokenEntryBody};
pub use bulk::{BulkAnswer, BulkItem, BulkRefusal, BulkRequest, OperationBody};
pub use by_name::{PlannedPut, PutAction, PutJob};
pub use calendar::{
    BackfillBody, BackfillRequest, CalendarBody, CalendarEntryBody, RunNextAt, SetCalendar, SkippedEventBody,
};
pub use client::{Client, ClientError};
pub use clock::{ClockBody, ClockMode, ClockMoved, MoveClock};
pub use dead_letter::{
    DeadLetterBody, DeadLetterFilter, DeadLetterSelection, DiscardAnswer, RedriveAnswer, RefusedLetter,
};
pub use duration::{ParseSpanError, Seconds, Span};
pub use events::{EventFilter, Events, StreamedEvent};
pub use execution::{
    ExecutionBody, ExecutionFilter, ExecutionStatus, ProgressBody, SkipRangeBody, TriggerRequest,
};
pub use explain::{ExecutionExplained, ExplainBody, RecentOccurrence};
pub use job::{
    BatchAnswer, BatchItem, BatchRequest, JobBody, JobState, LastExecution, ScheduleType, SubmitJob,
    SubmittedBody,
};
pub use job_list::JobFilter;
pub use job_type::{JobTypeBody, SetJobType};
pub use logs::{
    FollowedLine, FollowedLogs, FoundLine, FoundLogs, LogLevelBody, LogLineBody, LogQuery, LogSearch,
    LogStreamBody, LogsPage, SearchedLogs,
};
pub use moment::time_fix;
pub use notification::{
    AddSilence, AlertBody, ChannelBody, ChannelNames, ChannelTested, DeliveryBody, EscalationBody, MuteBody,
    NotificationsBody, NotifyBody, RuleBody, SelectorBody, SetChannel, SetRule, SilenceBody,
};
pub use page::{ComparedBody, ExecutionsPage, JobsPage, Page};
pub use pause::{PauseBody, SetPause};
pub use priority::PriorityBody;
pub use problem::{FieldError, Problem};
pub use queue::{ParseStartRateError, QueueBody, SetQueue, StartRate};
pub use remote::RemotePort;
pub use results::ResultDownload;
pub use retry::{Growth, RetryBody, RetryStrategy};
pub use scaling::{ScalingBody, ScalingPage};
pub use schedule::{
    JobFiresBody, OccurrencePreview, ParseRateError, PreviewBody, PreviewRequest, RecurrenceBody, ReplayRate,
};
pub use secret::{RotateSecrets, RotatedSecrets, SecretBody, SetSecret};
pub use series::{SeriesBody, SeriesPage};
pub use stats::{CountersBody, JobsBody, LaneBody, LiveBody, LookedAtBody, StatsBody, WorkerBody};
pub use tls::{ClientTls, ClientTlsError, Distrust, Identity};
pub use view::{SetView, SettingBody, SettingsBody, ViewBody};
pub use workers::{ConditionBody, NodeBody, WorkerSessionBody, WorkerState};

/// The path prefix of the API.
pub const API_PREFIX: &str = "/api/v1";
/// The header that identifies a request, so that repeating it has no further effect.
pub const IDEMPOTENCY_KEY: &str = "Idempotency-Key";
/// The header of a stored response that is returned again.
pub const IDEMPOTENT_REPLAYED: &str = "Idempotent-Replayed";
