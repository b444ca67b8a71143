//! The ports: what the rules need from the outside world. Only the binary and the simulator name concrete
//! adapters.

mod audit;
mod blobs;
mod broker_messages;
mod cipher;
mod coordination;
mod denial;
mod directory;
mod executions;
mod executor;
mod figures;
mod host;
mod logs;
mod machine;
mod maintenance;
mod membership_table;
mod notifier;
mod page;
mod queues;
mod ready_queue;
mod spans;
mod store;
mod verbs;
mod wait_lists;
mod worker;
mod write;

pub use audit::{
    AuditEntry, AuditId, AuditLog, AuditQuery, AuditRow, AuditedItems, BrokenChain, ChainCheck, ChainEnds,
    ChainPart, OUTCOME_OK, OUTCOME_REFUSED, Seal,
};
pub use blobs::{BlobError, BlobKeys, BlobParts, BlobSource, BlobStore};
pub use broker_messages::{BrokerError, EventSink, IncomingMessage, MessageSource, OutgoingEvent};
pub use cipher::{CipherError, SealedValue, SecretCipher};
pub use coordination::*;
pub use denial::Denial;
pub use directory::{
    BoundedAddition, Directory, DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind,
    DocumentLimit, DocumentShare, DocumentStep, ParentToken, ReplacedSecret, SecretAbout, StoredDocument,
    StoredSecret, Token, TokenAbout, User, UserAbout,
};
pub use executions::{
    ExecutionQuery, ExecutionView, ExecutionWalk, FinishedEvent, FinishedPage, HistorySpan, JobOwner,
    ListedExecution, OpenExecution, RunTimes, RunTimesPage, RunningPlace,
};
pub use executor::{
    ExecutionContext, Executor, LogSink, NoteError, NoteSink, Outcome, ResultSink, Stop, StopSignal,
};
pub use figures::{Depth, JobCounts, StoreFigures, StoreHealth};
pub use host::{Clock, DrivenClock, Host, Random, Spawn, Task};
pub use logs::{LogLine, LogStream};
pub use machine::Machine;
pub use maintenance::{Horizon, NotedClock, Retained, Retired, Retirement};
pub use membership_table::{
    Entries, LeaseRow, MalformedRow, MemberPulse, MemberRow, MembershipTable, MembershipTableName, Released,
    Taken, release_rows, take_rows,
};
pub use notifier::{Notifier, SendError};
pub use page::Page;
pub use queues::{PausedQueue, Pausing, QueueRow};
pub use ready_queue::{ReadyHint, ReadyQueue, ReadyQueueError, ReadyQueueFigures};
pub use spans::{FinishedSpan, SpanEvent, SpanFigures, SpanKind, SpanSink, SpanValue};
pub use store::*;
pub use verbs::*;
pub use wait_lists::Admitted;
pub use worker::*;
pub use write::{Write, WriteReply};
