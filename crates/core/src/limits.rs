//! Every limit of Punctual, by name, with its unit last. The comment of each says what happens when it is
//! reached.

mod brokers;
mod calendars;
mod observe;

pub use brokers::*;
pub use calendars::*;
pub use observe::*;

use std::time::Duration;

/// Bytes of a job's name, type, queue, owner, tags and keys, and of a worker's name. Longer ones are rejected
/// with the field's name.
pub const NAME_BYTES_MAX: usize = 200;

/// Characters that a part of a job's id must have to be searched for; a shorter text matches the beginning only. Ids
/// are ordered by time, so their ends tell them apart, and short ends match by chance.
pub const ID_PART_CHARS_MIN: usize = 6;
/// Bytes of a job's payload as JSON. Larger ones are rejected; store large data elsewhere and pass a
/// reference.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Nesting depth of arrays and objects in a request, a result or a checkpoint. A deeper request or checkpoint
/// is rejected. A deeper result of a handler fails the attempt without retry. A deeper last line of a command
/// or body of an HTTP response is not a JSON result. API responses add a few levels around a document; many
/// parsers stop at 128.
pub const JSON_DEPTH_MAX: usize = 100;
/// Tags of one job. More are rejected.
pub const TAGS_MAX: usize = 32;
/// Jobs in one batch submit. More are rejected; split the batch.
pub const SUBMIT_BATCH_MAX: usize = 10_000;
/// Retries after the first attempt. More are rejected.
pub const MAX_RETRIES_MAX: u32 = 1_000;
/// Steps of a retry ladder. More are rejected.
pub const RETRY_STEPS_MAX: usize = 100;
/// How far in the future a handler may choose its next attempt, and how long it may snooze. A report with more is
/// rejected; a command or web call that asks for more gets this.
pub const CHOSEN_DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// Schedules of one job. More are rejected.
pub const SCHEDULES_OF_JOB_MAX: usize = 16;
/// The shortest distance between two occurrences of one of several schedules of a job. Closer ones are rejected.
pub const SCHEDULES_SPACING_MIN: Duration = Duration::from_secs(60);
/// Occurrences of a job's schedules, without the most frequent one, that a count compares with those of the others, so that
/// those at the same instant count once.
pub const SCHEDULES_COMPARED_MAX: usize = 5_000;
/// Occurrences of all schedules of a job that a count steps through if there are too many to compare. In a range with more of
/// them, those at the same instant count once for each schedule.
pub const SCHEDULES_STEPPED_MAX: u64 = 50_000;
/// How often the leader checks whether the time zone data has changed, and how soon after a failure or while it does
/// not lead.
pub const RETIME_INTERVAL: Duration = Duration::from_secs(300);
pub const RETIME_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Files that a directory of time zone data may contain. More are rejected.
pub const ZONE_FILES_MAX: usize = 5_000;
/// Snoozes of one occurrence. One more is a failure.
pub const SNOOZES_MAX: u32 = 100;
/// Longest timeout of one attempt. Longer ones are rejected.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Shortest interval of a recurring job. Shorter ones are rejected.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest interval of a recurring job. Longer ones are rejected.
pub const INTERVAL_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);
/// Bytes stored of an attempt's error message, including the truncation mark. The rest is cut off, and the
/// cut is marked.
pub const ERROR_BYTES_MAX: usize = 8 * 1024;
/// Bytes of an attempt's result as JSON. A larger result fails the attempt without retry, so that it is
/// noticed; a longer last line of a command is not a result.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a result that is stored as a blob, which `blobs.size_max` lowers. A larger one fails the attempt without retry.
pub const BLOB_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of a blob that are in memory at once, for each that is written or read.
pub const BLOB_PART_BYTES: usize = 64 * 1024;
/// How long a blob is kept that no execution refers to: the report of its execution follows the upload.
pub const BLOB_UNUSED_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How often the leader looks for blobs that no execution refers to.
pub const BLOB_SWEEP_INTERVAL: Duration = Duration::from_secs(3_600);
/// Occurrences that one fire of one schedule may create; the rest follow in the next fire.
pub const FIRES_PER_PLAN_MAX: usize = 100;
/// Open occurrences of a job that does not set `max_open`. Further ones are skipped with reason `backlog`.
pub const MAX_OPEN_DEFAULT: u32 = 1_000;
/// Highest `max_open`. A higher one is rejected.
pub const MAX_OPEN_MAX: u32 = 10_000;
/// Open occurrences of a job that a transaction reads. Replayed ones do not count against `max_open` for
/// regular ones, so up to twice as many can be open during a replay.
pub const OPEN_OF_JOB_MAX: usize = 2 * MAX_OPEN_MAX as usize;
/// Occurrences that wait for an open one under `QUEUE` when the job does not set `overlap_limit`. Further
/// ones are skipped with reason `overlap`.
pub const OVERLAP_LIMIT_DEFAULT: u32 = 10;
/// Highest `overlap_limit`. A higher one is rejected.
pub const OVERLAP_LIMIT_MAX: u32 = 1_000;
/// Jobs that one job may depend on. More are rejected.
pub const DEPENDS_ON_MAX: usize = 100;
/// Dependents of finished jobs that one transaction releases or skips; the rest follow in the next ones.
pub const DEPENDENTS_PER_STEP_MAX: usize = 1_000;
/// Highest `max_depth` of a queue. A higher one is rejected; null means no limit.
pub const QUEUE_DEPTH_MAX: u64 = 1_000_000_000_000;
/// Event listeners and log followers that one server serves at once. Further ones are asked to retry later.
pub const EVENT_LISTENERS_MAX: usize = 256;
/// Commits whose events are buffered for one listener. A listener that falls further behind gets the running
/// executions again.
pub const EVENT_COMMITS_WAITING_MAX: usize = 1_024;
/// Texts of `retry.fail_on`. More are rejected.
pub const FAIL_ON_MAX: usize = 32;
/// Highest `retry.timeout_growth`, in percent. A higher one is rejected.
pub const TIMEOUT_GROWTH_PCT_MAX: u32 = 1_000;
/// Executions ahead in the queue that an explanation counts; it says when there are more.
pub const POSITION_MAX: usize = 10_000;
/// Bytes of an `Idempotency-Key` header. Longer ones are rejected.
pub const REQUEST_KEY_BYTES_MAX: usize = 200;
/// Items of one page of a list. A larger `limit` is rejected.
pub const PAGE_ITEMS_MAX: usize = 1_000;
/// Pages of 2,000 unfinished jobs that are searched for one with a given name, when a job is put by a name that
/// identifies none yet. An older one is only found if its schedule has a further run ([`NAMED_SCHEDULES_PAGES_MAX`]).
pub const NAME_SEARCH_PAGES_MAX: usize = 5;
/// Pages of 2,000 jobs with a further run that are searched in the same way. If there are more such jobs, the put is
/// refused: a new job could double the schedule of an older one.
pub const NAMED_SCHEDULES_PAGES_MAX: usize = 500;
/// Bytes of payloads, results, errors and log lines in one page. A page that would have more ends sooner,
/// after at least one item, and returns where to continue.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Filters on fields of payloads in one request. More are rejected.
pub const PAYLOAD_FILTERS_MAX: usize = 8;
/// Bytes of the field, and of the value, of a filter on payloads. Longer ones are rejected.
pub const PAYLOAD_FILTER_BYTES_MAX: usize = 500;
/// Items that a list with page numbers reaches, in the routes for other job APIs. A page beyond it is rejected:
/// a page number costs reading everything before it, and a cursor does not.
pub const NUMBERED_ITEMS_MAX: usize = 10_000;
/// Items of a page when the caller sets no limit.
pub const PAGE_ITEMS_DEFAULT: usize = 100;
/// Items of one store transaction that the engine batches from many callers; the rest go into the next one.
pub const STORE_BATCH_MAX: usize = 1_000;
/// Executions that one poll may receive.
pub const POLL_CAPACITY_MAX: usize = 5_000;
/// Executions that one poll over HTTP may request: their payloads are sent in one response. More are
/// rejected.
pub const REMOTE_POLL_CAPACITY_MAX: usize = 100;
/// Longest time that a poll over HTTP may wait. Longer ones are rejected: a proxy would cut them off.
pub const REMOTE_POLL_WAIT_MAX: Duration = Duration::from_secs(30);
/// Job types, and queues, that one worker may name. More are rejected.
pub const WORKER_LANES_MAX: usize = 1_000;
/// Slots that a worker may have. More are rejected.
pub const WORKER_SLOTS_MAX: u32 = 5_000;
/// A worker prefetches no more executions than it will start within this time, based on how long runs take.
pub const PREFETCH_TIME: Duration = Duration::from_millis(100);
/// How long a worker holds a prefetched execution without a slot for it. Then it gives the execution back,
/// unstarted.
pub const HELD_TIME_MAX: Duration = Duration::from_millis(500);
/// How often a worker reports its condition, with one of its heartbeats: its load and the state of its
/// machine are at most this old. Each report writes the session's row once more; with every heartbeat it
/// would be twice as often.
pub const CONDITION_INTERVAL: Duration = Duration::from_secs(5);
/// Reasons for which a remote worker may refuse work. More are rejected, and so are reasons longer than a
/// name.
pub const REFUSAL_REASONS_MAX: usize = 10;
/// How often a worker with adaptive slots checks whether to change their number.
pub const SLOTS_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long an execution must have waited before a worker adds slots for it.
pub const SLOTS_WAIT_MIN: Duration = Duration::from_millis(250);
/// Minimum time between two additions of slots.
pub const SLOTS_GROW_PAUSE: Duration = Duration::from_secs(2);
/// How long at most half of a worker's slots must have been in use before it removes some, and the pause
/// until it removes more.
pub const SLOTS_IDLE_MIN: Duration = Duration::from_secs(30);
pub const SLOTS_SHRINK_PAUSE: Duration = Duration::from_secs(10);
/// How long executions may wait before more workers are requested, when the caller names no time; and the
/// longest time.
pub const TARGET_WAIT_DEFAULT: Duration = Duration::from_secs(10);
pub const TARGET_WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Slots of a worker that does not set them.
pub const WORKER_SLOTS_DEFAULT: u32 = 16;
/// How often scale hooks are evaluated.
pub const SCALE_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How old an answer about the demand may be: within this time all callers of one node get the same.
pub const DEMAND_KEPT: Duration = Duration::from_secs(1);
/// Leases that one request may name, and so the most that a remote worker may hold. More are rejected.
pub const LEASES_NAMED_MAX: usize = 10_000;
/// Outcomes in one report over HTTP. More are rejected; split the report.
pub const REMOTE_REPORTS_MAX: usize = 1_000;
/// Highest heartbeat count and poll sequence number of a remote worker: the largest integer that every JSON
/// parser represents exactly.
pub const REMOTE_COUNT_MAX: u64 = (1 << 53) - 1;
/// Bytes of one log line. The rest is cut off, and the cut is marked.
pub const LOG_LINE_BYTES_MAX: usize = 16 * 1024;
/// Lines stored of one execution, not counting those that say that the limit is reached. A last line says
/// that the rest was dropped.
pub const LOG_LINES_PER_EXECUTION_MAX: usize = 50_000;
/// Bytes stored of the lines of one execution. A last line says that the rest was dropped.
pub const LOG_BYTES_PER_EXECUTION_MAX: usize = 8 * 1024 * 1024;
/// Default of the bytes that all stored log lines may take up. Beyond it the oldest are removed, and their
/// log shows a line that says so.
pub const LOGS_BYTES_DEFAULT: u64 = 10 << 30;
/// The lowest value that can be configured.
pub const LOGS_BYTES_MIN: u64 = 1 << 20;
/// Lines that one transaction removes to enforce that limit; the rest follow in the next ones.
pub const LOGS_REMOVED_PER_STEP_MAX: usize = 1_000;
/// Bytes of one execution's lines that a worker buffers. A handler that writes more waits until there is
/// room.
pub const LOG_BYTES_WAITING_MAX: usize = 256 * 1024;
/// Lines that a worker sends in one call; the rest go into the next one.
pub const LOG_BATCH_LINES_MAX: usize = 1_000;
/// How long a worker batches lines before it sends them.
pub const LOG_FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// How long the end of an execution waits for its last lines and notes to be stored. Then it is reported
/// without them.
pub const LAST_FLUSH_MAX: Duration = Duration::from_secs(5);

/// Bytes of a checkpoint as JSON. A larger one is rejected with an error to the handler.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Bytes stored of a progress message. The rest is cut off, and the cut is marked.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 500;
/// How long a worker batches progress before it sends the latest. An execution that ends sooner causes no
/// write.
pub const PROGRESS_FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How long a handler waits until its checkpoint is stored. Then it gets an error that says that the outcome
/// is unknown.
pub const CHECKPOINT_WAIT_MAX: Duration = Duration::from_secs(60);
/// Notes in one request over HTTP. More are rejected; split the request.
pub const REMOTE_NOTES_MAX: usize = 1_000;
/// Bytes of a checkpoint that a web call sends in a header. A larger one is left out, and the log says so.
pub const HTTP_CHECKPOINT_BYTES_MAX: usize = 8 * 1024;
/// Malformed lines of a command's notes that are shown in its log. For the rest, the log only says that there
/// are more.
pub const BAD_NOTES_SHOWN_MAX: usize = 10;

/// Default time that a command may take to end after SIGTERM, before SIGKILL.
pub const KILL_GRACE_DEFAULT: Duration = Duration::from_secs(5);
/// Longest such time. Longer ones are rejected.
pub const KILL_GRACE_MAX: Duration = Duration::from_secs(60);
/// How long, beyond the grace, a killed process tree may take to disappear. Then its end is reported
/// regardless.
pub const KILL_TIME_MAX: Duration = Duration::from_secs(30);
/// How long, beyond the grace, the shim of a command may take to end it. Then the worker kills the command
/// itself.
pub const SHIM_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a starting worker waits for commands of earlier workers to end. Then it reports which are left.
pub const LEFTOVERS_WAIT_MAX: Duration = Duration::from_secs(10);
/// Cgroup directories that a starting worker scans for such commands. Further ones are not scanned.
pub const CGROUPS_SCANNED_MAX: usize = 10_000;
/// Last stderr lines of a failed command that its error shows.
pub const STDERR_TAIL_LINES_MAX: usize = 10;
/// Bytes of each of these lines. The rest is cut off, and the cut is marked.
pub const STDERR_TAIL_LINE_BYTES_MAX: usize = 500;

/// Bytes stored of the response to a web call, as JSON. The rest is not read, and the cut is marked. Lower
/// than the limit for results, so that no response fails a call because of its size.
pub const HTTP_RESPONSE_BYTES_MAX: usize = 60 * 1024;
/// Bytes of a response's status line and headers. A call whose response has more fails and is retried.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a response's body that the error message repeats. The rest is not read, and the cut is marked.
pub const HTTP_ERROR_BODY_BYTES_MAX: usize = 512;
/// How long a failed call waits for those bytes.
pub const HTTP_ERROR_BODY_WAIT_MAX: Duration = Duration::from_secs(2);
/// The shortest time until a web call is repeated: a `Retry-After` of 0 or in the past must not call a busy server without
/// a pause.
pub const HTTP_RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that a web call follows. A longer one counts as this.
pub const HTTP_RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How long a web call may take to resolve, connect to and handshake with its server. Then it fails and is
/// retried.
pub const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle connections to one host that are kept for further calls, and how long. Others are closed.
pub const HTTP_IDLE_PER_HOST_MAX: usize = 4;
pub const HTTP_IDLE_MAX: Duration = Duration::from_secs(20);

/// Occurrences that one preview may show. A larger `count` is rejected.
pub const PREVIEW_MAX: usize = 1_000;
/// Fires that one page of the calendar lists, beyond those of its last job. The next page continues.
pub const FIRES_MAX: usize = 10_000;
/// Fires of each job that the calendar lists by default. More are only counted.
pub const FIRES_PER_JOB_DEFAULT: usize = 100;
/// How far the calendar looks by default, and at most. A longer range is rejected.
pub const FIRES_RANGE_DEFAULT: Duration = Duration::from_secs(86_400);
pub const FIRES_RANGE_MAX: Duration = Duration::from_secs(400 * 86_400);
/// Longest jitter of a recurring job. A longer one is rejected.
pub const JITTER_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Longest grace for late occurrences. Longer ones are rejected.
pub const MISFIRE_GRACE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Missed occurrences that a job may replay per minute. A higher rate is rejected.
pub const REPLAY_RATE_MAX: u32 = 6_000;
/// Outages whose missed occurrences one job replays at a time. Occurrences missed in further outages are
/// skipped.
pub const REPLAY_RANGES_MAX: usize = 16;
/// How far a delayed replay may exceed its rate to catch up.
pub const REPLAY_CATCH_UP: Duration = Duration::from_secs(1);
/// The longest time until a replay that waits for room is tried again. The end of an occurrence wakes it at
/// once; this covers a lost wake-up.
pub const REPLAY_RECHECK: Duration = Duration::from_secs(30);

/// Due times that one request to advance a driven clock may pass. The response says how far it got; send
/// another request.
pub const ADVANCE_STEPS_MAX: usize = 10_000;
/// How long such a request may take in real time before it returns how far it got.
pub const ADVANCE_TIME_MAX: Duration = Duration::from_secs(30);

/// How late an occurrence may be found and still run normally.
pub const MISFIRE_GRACE: Duration = Duration::from_secs(60);
/// Default time limit of an attempt.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3_600);
/// Default number of retries after the first attempt.
pub const MAX_RETRIES_DEFAULT: u32 = 3;
/// How long a session's heartbeat counter must stay unchanged, on one observer's clock, before its executions
/// are lost.
pub const SESSION_LEASE: Duration = Duration::from_secs(6);
/// Shortest and longest lease that a worker may request.
pub const SESSION_LEASE_MIN: Duration = Duration::from_millis(500);
pub const SESSION_LEASE_MAX: Duration = Duration::from_secs(600);
/// Shortest pause between two scans for work that another process has queued without a notification: after a
/// scan that found some. Each scan that finds nothing doubles the pause.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest such pause where processes that share a store cannot notify each other: work that one of them
/// queues while all are idle starts at most this much later.
pub const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);
/// The pause while notifications of other processes arrive: a scan then only finds work whose notification
/// was lost. For rows that a claim skipped because they were locked, the shorter pauses apply.
pub const LOOK_PAUSE_HEARING: Duration = Duration::from_secs(5);
/// Pause between two notifications to other processes about claimable work. Work that is queued meanwhile is
/// announced in one.
pub const TELL_PAUSE: Duration = Duration::from_millis(10);
/// How long a process may be silent before it is evicted from its cluster and others take over its segments.
/// It sends a heartbeat once per fifth of this and scans the other members once per sixth. The segments of a
/// process that dies are fired elsewhere after this time, plus one scan to notice the last heartbeat and one
/// to notice the silence: within 4 s in all.
pub const MEMBER_TTL: Duration = Duration::from_secs(3);
/// Shortest and longest such time. A shorter one would treat a pause of the machine as a death; a longer one
/// would delay failover too much.
pub const MEMBER_TTL_MIN: Duration = Duration::from_millis(500);
pub const MEMBER_TTL_MAX: Duration = Duration::from_secs(60);
/// A time to live above this was not written by Punctual and is not used: a dead member with it would never
/// be evicted. Higher than the maximum above, so that the maximum can be raised while an older version still
/// runs.
pub const MEMBER_TTL_BELIEVED_MAX: Duration = Duration::from_secs(3_600);
/// How long a scheduler may get no answer from the store before it is no longer eligible for segments: it
/// could not fire them.
pub const STORE_SILENCE_MAX: Duration = Duration::from_secs(5);
/// Default of how far a machine's wall clock may be off the store's time. A node that is further off fires
/// nothing. A machine with a synchronised clock is never off by as much, and half of the grace for late
/// occurrences remains to fix it. Without this limit, a store whose clock has jumped would make every node
/// fire occurrences that are not due.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(30);
/// Lowest and highest value that can be configured.
pub const CLOCK_OFFSET_MAX_LEAST: Duration = Duration::from_secs(1);
pub const CLOCK_OFFSET_MAX_MOST: Duration = Duration::from_secs(366 * 24 * 3_600);
/// A fire later than this after its due time counts as late: longer than a failover takes.
pub const FIRE_LATE: Duration = Duration::from_secs(5);
/// Minimum time between two log messages about late fires.
pub const LATENESS_TOLD_PAUSE: Duration = Duration::from_secs(60);
/// How often the leader scans for overdue schedules that have not fired.
pub const OVERDUE_LOOK_PAUSE: Duration = Duration::from_secs(10);
/// How far ahead a process without segments keeps the due times of its own commits in memory. Later times are
/// found by the scans of schedulers, at least twice before they are due.
pub const OWN_LOOK_AHEAD: Duration = Duration::from_secs(2);
/// Running executions that one scan compares to tell listeners what other processes have started. If there
/// are more, some are not announced before they end.
pub const WATCHED_RUNNING_MAX: usize = 10_000;
/// First and longest pause of a loop after a store error. Each error doubles it, and a success resets it.
pub const STORE_ERROR_PAUSE_MIN: Duration = Duration::from_millis(100);
pub const STORE_ERROR_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pairs of queue and job type with their own metrics; the others are added up.
pub const METRIC_LANES_MAX: usize = 200;
/// Lanes that `/stats` shows. If there are more, it shows the fullest ones and says that there are more.
pub const STATS_LANES_MAX: usize = 200;
/// Pages that are read for the figures of a caller with a limited scope. If there are more, `/stats` says so.
pub const OWN_PAGES_READ_MAX: usize = 5;
/// Workers that `/stats` shows. If there are more, it shows the first ones and says so; `/workers` lists all
/// in pages.
pub const STATS_WORKERS_MAX: usize = 100;
/// How long one scan of all lanes and workers is used for `/stats`, `/queues`, `/autoscaling` and `/metrics`.
pub const OVERVIEW_KEPT: Duration = Duration::from_secs(1);
/// The number of lanes in use plus workers from which on such a scan is cached. With fewer, every request
/// makes its own.
pub const OVERVIEW_KEPT_FROM: usize = 500;
/// Rows that a scan of all lanes reads to find since when the oldest execution of each lane has been queued.
/// With many lanes, it reads fewer rows of each.
pub const OLDEST_ROWS_MAX: usize = 10_000;
/// How long the remains of a deleted job are kept after its last execution has ended, so that event listeners
/// receive the end.
pub const DELETED_KEPT: Duration = Duration::from_secs(10);
/// How long the store's clock must run evenly after it jumped, or after a start with a clock that is far from
/// the last record, before retention deletes anything by age.
pub const RETENTION_HOLD: Duration = Duration::from_secs(600);
/// The most that the store's clock may move more or less than the monotonic clock between two runs of
/// retention, about a minute apart. A larger step is a jump, and retention waits.
pub const RETENTION_CLOCK_STEP_MAX: Duration = Duration::from_secs(60);
/// How far the store's clock may be from the record of the last steady reading when a process starts. If it
/// is further away, retention waits: the clock is wrong, or no process ran for that long.
pub const RETENTION_NOTE_AGE_MAX: Duration = Duration::from_secs(3_600);
/// How long the name of a worker without sessions is kept beyond history, which may refer to it: history is
/// dropped by partition, and the clocks of nodes may differ a little.
pub const WORKER_NAMES_KEPT: Duration = Duration::from_secs(2 * 24 * 3_600);
/// How long the response to a request with an `Idempotency-Key` is replayed.
pub const REQUESTS_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Longest time after which an occurrence expires. A longer one is rejected.
pub const EXPIRES_AFTER_MAX: Duration = INTERVAL_MAX;

/// Default number of connections to a database server that read.
pub const DATABASE_READERS_DEFAULT: usize = 8;
/// Default number of connections to a database server that write.
pub const DATABASE_WRITERS_DEFAULT: usize = 4;
/// How long connecting to a database server may take. Then the store is unavailable.
pub const DATABASE_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Hosts that the URL of a database may name: nodes of one cluster. The first that answers is used.
pub const DATABASE_HOSTS_MAX: usize = 16;
/// How long connecting to one of several hosts may take. Then the next one is tried.
pub const DATABASE_HOST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long a read waits for a free connection. Then the store is unavailable.
pub const DATABASE_POOL_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long one read may take, with all its statements. Then its connection is closed, and the store is
/// unavailable.
pub const DATABASE_READ_TIME_MAX: Duration = Duration::from_secs(60);
/// How long lists are read from the primary after a read from its replica failed.
pub const REPLICA_REST: Duration = Duration::from_secs(30);
/// The maximum replication lag at which lists are read from a replica.
pub const REPLICA_BEHIND_MAX: Duration = Duration::from_secs(10);
/// How often the lag of a replica is checked, as long as lists are read.
pub const REPLICA_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long one statement may take. Then the database cancels it, and the store is unavailable.
pub const DATABASE_STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a statement that reads whole tables may take, where a user has asked for that.
pub const DATABASE_CHECK_TIMEOUT: Duration = Duration::from_secs(3_600);
/// How long a statement waits for a row that another transaction has locked. Then it is a conflict, and is
/// retried.
pub const DATABASE_LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a transaction may stay open without a statement, so that the locks of a node that hangs, or was
/// cut off, are released. Shorter than a lease of the default length: otherwise the locks of one node would
/// keep others from sending heartbeats and reports. Between two of our statements only a rule or two is
/// evaluated, and a transaction that the database ends is retried.
pub const DATABASE_IDLE_TRANSACTION_MAX: Duration = Duration::from_secs(3);
const _: () = assert!(
    DATABASE_IDLE_TRANSACTION_MAX.as_millis() * 5 < SESSION_LEASE.as_millis() * 4,
    "a worker stops its handlers after four fifths of its lease; a lock of somebody who hangs must be gone by then"
);
/// How long a database server may be silent before its connection counts as dead.
pub const DATABASE_SILENCE_MAX: Duration = Duration::from_secs(15);
/// Rows that one statement reads from a list, where a database reads lists from a document. The rest go into
/// the next one.
pub const DATABASE_LIST_ROWS_MAX: usize = 2_000;
/// Bytes of one statement with its values, except for a single larger row. The rest go into the next one.
/// MariaDB accepts 16 MiB by default, MySQL 64.
pub const DATABASE_PACKET_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The period that one partition of history and logs covers on a database server. Data is kept up to that
/// much longer, because retention drops whole partitions.
pub const PARTITION_WIDTH: Duration = Duration::from_secs(24 * 3_600);
/// Partitions that are created ahead of time.
pub const PARTITIONS_AHEAD: i64 = 3;
/// Rows of a partition that are counted before it is dropped; for more, the database's estimate is reported.
pub const PARTITION_ROWS_COUNTED_MAX: i64 = 100_000;

/// Rows that a data migration reads from one store and writes to another at a time, in one transaction.
pub const MOVING_PAGE_ROWS_MAX: usize = 5_000;
/// Bytes of these rows, except for a single larger row. The rest go with the next ones.
pub const MOVING_PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a data migration waits for processes that were just stopped to disappear from a database. Then it
/// is rejected.
pub const MOVING_LEAVE_MAX: Duration = Duration::from_secs(5);

/// Bytes of a member's card. Every heartbeat carries it, and every scan reads the cards of all members.
pub const MEMBER_CARD_BYTES_MAX: usize = 16 * 1024;

/// Executions that a limit may let run at once. A higher limit would not restrict any real cluster.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// Starts that a rate may name.
pub const RATE_COUNT_MAX: u32 = 1_000_000;
/// Shortest period of a rate. Express a shorter one as a higher count in a longer period.
pub const RATE_SPAN_MIN: Duration = Duration::from_secs(1);
/// Longest period of a rate.
pub const RATE_SPAN_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Shortest time between two starts that a rate may imply.
pub const RATE_STEP_MIN: Duration = Duration::from_micros(100);
/// A stored start of a rate that is further ahead than this, and than the period of the rate, was written by a clock
/// that has been set back since.
pub const RATE_AHEAD_MAX: Duration = Duration::from_secs(60);
/// Owners whose weights one queue may set.
pub const QUEUE_WEIGHTS_MAX: usize = 1_000;
/// Highest weight of an owner.
pub const OWNER_WEIGHT_MAX: u32 = 1_000;
/// Executions that one step admits from a wait list. The rest follow in the next one.
pub const ADMITTED_PER_STEP_MAX: usize = 1_000;
/// Executions that one step of re-admission checks when a limit has become tighter. Their rows are locked,
/// and work that becomes ready in the queue waits, for the duration of a step.
pub const PLACED_PER_STEP_MAX: usize = 500;
/// Wait lists that one scan finds, and one step serves. The rest follow, a page at a time.
pub const LINES_PER_STEP_MAX: usize = 1_000;
/// Pause between two pages of a scan of all wait lists: at most ten thousand lists are scanned per second,
/// whether or not they have room.
pub const LINES_PAGE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a coordination service may take to answer a call or accept a connection. Then its next host is
/// tried, or the call fails: a slower heartbeat is useless.
pub const COORDINATION_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often all wait lists with entries are scanned: the most by which a list is delayed when the
/// notification of its room was lost.
pub const LINES_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a response of such a service: the cards of a large cluster.
pub const COORDINATION_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a start may check the structure of each SQLite file. A file that takes longer is sampled, and the
/// background check covers the rest.
pub const START_CHECK_MAX: Duration = Duration::from_millis(500);
/// Rows that a start reads from each end of every table of such a file, and at each sampled position in
/// between.
pub const START_SAMPLE_ROWS: usize = 64;
/// Positions between the ends of a table that a start samples, where rows are numbered.
pub const START_SAMPLE_PLACES: i64 = 8;
/// How long one step of the background check may hold its snapshot of a SQLite file. The write-ahead log
/// cannot be reset meanwhile.
pub const CHECK_STEP_MAX: Duration = Duration::from_millis(100);
/// How long a background check may check the structure of a file or table at once. Larger ones are covered by
/// reading all rows and index entries, in steps.
pub const CHECK_STRUCTURE_MAX: Duration = Duration::from_millis(500);
/// The background check rests this many times as long as it has worked: five percent of one processor.
pub const CHECK_REST_FACTOR: u32 = 19;
/// How soon a background check starts after a read or write has met damage.
pub const CHECK_TRIGGER_INTERVAL: Duration = Duration::from_secs(1);
/// Rows that the background check reads at once within a step.
pub const CHECK_ROWS: usize = 64;
/// Problems that are listed for one damaged file. The check stops there.
pub const DAMAGE_LISTED_MAX: usize = 20;

/// Pages of jobs that a sorted list compares. If there are more, the answer says so.
pub const SORTED_PAGES_MAX: usize = 5;
/// Due times of each kind and segment that a list by next run reads, and how many of their jobs it reads.
pub const NEXT_RUNS_READ: usize = 48;
pub const NEXT_RUNS_COMPARED: usize = 2_000;
/// Pages of jobs that are read for those that use a channel, a secret or a calendar, before it is removed. If there are
/// more, the removal must be forced.
pub const USES_PAGES_MAX: usize = 20;
/// Rules, channels, users and jobs that the refusal names. Further ones are counted.
pub const USES_NAMED_MAX: usize = 10;
/// Values that a filter may exclude, of each kind. More are rejected.
pub const EXCLUDED_VALUES_MAX: usize = 32;
/// Items of one step of an operation on many jobs; the rest follow in the next steps.
pub const BULK_STEP_MAX: usize = 100;
/// Jobs or executions that are counted before an operation starts. If there are more, the answer says so.
pub const BULK_COUNTED_MAX: usize = 10_000;
/// Pages that are read to count them. If there are more, the answer says so.
pub const BULK_COUNTED_PAGES_MAX: usize = 100;
/// Items that the answer to a dry run shows.
pub const BULK_SAMPLE_MAX: usize = 10;
/// Refusals that an operation lists. Further ones are only counted.
pub const BULK_REFUSALS_MAX: usize = 100;
/// Bytes of the reason of a refusal. The rest is cut off.
pub const BULK_REASON_BYTES_MAX: usize = 300;
/// Bytes of the filter and of the patch of an operation. Larger ones are rejected.
pub const BULK_TEXT_BYTES_MAX: usize = 256 * 1024;
/// Occurrences that are searched for the trigger of an operation that was interrupted.
pub const BULK_TRIGGER_SEARCH_MAX: u32 = 50;
/// Operations that run at the same time. A further one is rejected.
pub const OPERATIONS_RUNNING_MAX: usize = 20;
/// Operations of one owner that run at the same time. A further one is rejected, so that other owners find room.
pub const OPERATIONS_OF_OWNER_MAX: usize = 10;
/// How long finished operations are kept.
pub const OPERATIONS_KEPT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How often the leader scans for operations that it was not notified of.
pub const OPERATIONS_INTERVAL: Duration = Duration::from_secs(1);
/// How often the leader deletes old operations.
pub const OPERATIONS_RETAIN_INTERVAL: Duration = Duration::from_secs(3_600);

/// Patterns for queues, and for job types, that the scope of a token or user may have.
pub const SCOPE_PATTERNS_MAX: usize = 100;
/// Tokens that a store may hold, without the sessions of browsers.
pub const TOKENS_MAX: usize = 10_000;
/// Users that a store may hold.
pub const USERS_MAX: usize = 10_000;
/// How long the old secret of a rotated token works by default.
pub const TOKEN_OVERLAP_DEFAULT: Duration = Duration::from_secs(3_600);
/// The longest time for which the old secret of a rotated token may work.
pub const TOKEN_OVERLAP_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Bytes of the name of a secret. Longer ones are rejected.
pub const SECRET_NAME_BYTES_MAX: usize = 100;
/// Bytes of the value of a secret. Larger ones are rejected.
pub const SECRET_VALUE_BYTES_MAX: usize = 32 * 1024;
/// Secrets that a store may hold.
pub const SECRETS_MAX: usize = 10_000;
/// References to secrets in one payload. More are rejected.
pub const SECRET_REFERENCES_MAX: usize = 32;
/// Bytes of the place of a reference in errors. Longer ones are cut.
pub const SECRET_PATH_BYTES_MAX: usize = 500;
/// Characters from which on a value, or a line of a value, is replaced in the output of handlers. Shorter ones
/// would also match ordinary words.
pub const SECRET_REDACTED_CHARS_MIN: usize = 6;
/// Texts that are searched for in the output of one execution: values, their encodings, and their lines, the
/// longest lines first. Others are not replaced on their own.
pub const SECRET_REDACTED_TEXTS_MAX: usize = 1_000;
/// The total bytes of these texts. All values fit.
pub const SECRET_REDACTED_BYTES_MAX: usize = 2 * SECRET_REFERENCES_MAX * SECRET_VALUE_BYTES_MAX;
/// Secrets that one call encrypts with the current key; it returns where to continue.
pub const SECRETS_ROTATED_MAX: usize = 100;
/// Jobs whose payloads one call of a rotation checks; it returns where to continue.
pub const PAYLOADS_ROTATED_MAX: usize = 500;
/// Keys for secrets that a server may have: the current one, and older ones that still decrypt.
pub const SECRET_KEYS_MAX: usize = 10;
/// Executions whose secrets a node holds in memory, to replace them in what workers report. For others it reads
/// them again.
pub const SECRET_HOLDERS_MAX: usize = 10_000;
/// How long a node that knows of no secret assumes that there is none before it looks again.
pub const SECRETS_ABSENT_FOR: Duration = Duration::from_secs(1);

/// Executions that one search of logs examines. The answer says how far it looked.
pub const LOG_SEARCH_EXECUTIONS_MAX: usize = 2_000;
/// Lines that one search of logs reads. The answer says how far it looked.
pub const LOG_SEARCH_LINES_MAX: usize = 200_000;

/// Bytes of the schema of a job type. Larger ones are rejected.
pub const JOB_TYPE_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Different patterns of one schema. More are rejected.
pub const SCHEMA_PATTERNS_MAX: usize = 100;
/// Memory of one compiled pattern. Larger ones are rejected.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 512 * 1024;
/// Memory of all compiled patterns of one schema. Schemas with more are rejected.
pub const SCHEMA_PATTERNS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Memory that one search with a pattern uses to be fast. With less, it is slower.
pub const SCHEMA_PATTERN_CACHE_BYTES: usize = 128 * 1024;
/// Steps to compare one payload with a schema. Alternatives, long texts and large patterns take many.
pub const SCHEMA_STEPS_MAX: u64 = 100_000;
/// Bytes of texts that are one step.
pub const SCHEMA_TEXT_BYTES_PER_STEP: usize = 256;
/// Items or members of a value that are one step, besides the steps to compare each.
pub const SCHEMA_ITEMS_PER_STEP: usize = 16;
/// A search for a pattern takes as many steps as its text has bytes, times the memory of the compiled pattern, divided
/// by this.
pub const SCHEMA_PATTERN_BYTES_PER_STEP: u64 = 32 * 1024;
/// Memory of all schemas that a node holds ready for comparisons. Beyond it they are dropped, and compiled on use.
pub const SCHEMAS_HELD_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Job types with a schema. More are rejected.
pub const JOB_TYPES_MAX: usize = 1_000;
/// How long a node checks payloads by the schemas that it has read before it reads them again.
pub const JOB_TYPES_KEPT_FOR: Duration = Duration::from_secs(2);

/// Principals, owners or addresses whose use of a quota is counted one by one. While all of them are in use,
/// the remaining ones are counted together.
pub const QUOTA_NAMES_MAX: usize = 20_000;
/// How often at most names that are no longer in use are searched to make room for others.
pub const QUOTA_SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Requests per second of one user or token by default, and how many may come at once. Further ones are
/// answered 429. More than one server with two cores answers.
pub const RATE_LIMIT_DEFAULT: u32 = 50_000;
pub const RATE_BURST_DEFAULT: u32 = 100_000;
/// Requests per second without a valid token from one address by default, and how many may come at once.
/// Further ones are answered 429, whatever their token.
pub const AUTH_FAILURE_LIMIT_DEFAULT: u32 = 100;
pub const AUTH_FAILURE_BURST_DEFAULT: u32 = 10_000;
/// The highest value of these limits that can be configured.
pub const RATE_LIMIT_MAX: u32 = 1_000_000_000;
/// Credentials that the server remembers as valid, so that it still accepts them from an address with too many
/// failures. When there are more, it forgets all of them.
pub const PROVEN_CREDENTIALS_MAX: usize = 10_000;

/// Bytes of a text in an entry of the audit log, such as the name of its object. The rest is cut off.
pub const AUDIT_TEXT_BYTES_MAX: usize = 300;
/// Bytes of the details of an entry of the audit log. Larger ones are omitted, with their size.
pub const AUDIT_DETAILS_BYTES_MAX: usize = 4 * 1024;
/// Ids that the details of one entry of the audit log name; the entry has the number of all.
pub const AUDIT_IDS_MAX: usize = 20;
/// Entries of the audit log that one page of a filtered list reads. A page that finds fewer than it may hold
/// returns where to continue.
pub const AUDIT_SCANNED_MAX: usize = 2_000;
/// Entries of the audit log that one call verifies; it returns where to continue.
pub const AUDIT_VERIFIED_MAX: usize = 2_000;
/// How long entries of the audit log are kept if nothing is set.
pub const AUDIT_KEPT_DEFAULT: Duration = Duration::from_secs(365 * 24 * 3_600);
/// How often the leader seals new entries of the audit log, and refusals are written to it.
pub const AUDIT_SEAL_INTERVAL: Duration = Duration::from_secs(1);
/// Entries of the audit log that one transaction seals; the rest follow in the next ones.
pub const AUDIT_SEALED_MAX: usize = 1_000;
/// Refused requests of one token that are written to the audit log in each period. The others are counted in one
/// more entry.
pub const AUDIT_REFUSALS_PER_TOKEN_MAX: usize = 10;
pub const AUDIT_REFUSALS_PERIOD: Duration = Duration::from_secs(60);
/// Refused requests that wait to be written to the audit log, and tokens whose refused requests are counted.
/// Further ones are only logged.
pub const AUDIT_REFUSALS_WAITING_MAX: usize = 1_000;

/// Bytes of the name of a stored document, such as a calendar or a channel.
pub const DOCUMENT_NAME_BYTES_MAX: usize = 250;
/// Bytes of the body of a stored document.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Saved views of one token or user. Saving another one is a 409.
pub const VIEWS_OF_CALLER_MAX: usize = 100;
/// Bytes of the query of a saved view, and of the name of its page. Longer ones are rejected.
pub const VIEW_QUERY_BYTES_MAX: usize = 4_096;
pub const VIEW_PAGE_BYTES_MAX: usize = 40;
