//! Every limit of Punctual, by name, with its unit last. What happens when one is reached is said beside it.

use std::time::Duration;

/// Bytes of a job's name, type, queue, owner, tags and keys, and of a worker's name. Longer ones are refused with the field's name.
pub const NAME_BYTES_MAX: usize = 200;
/// Bytes of a job's payload as JSON. Larger ones are refused; put large data elsewhere and pass a reference.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Arrays and objects inside of each other in a request, a result or a checkpoint. A deeper request or checkpoint is
/// refused; a deeper result of a handler fails the attempt for good, and a deeper last line of a command or body of an
/// HTTP answer is no JSON result. Answers put a few more around a document; many readers stop at 128.
pub const JSON_DEPTH_MAX: usize = 100;
/// Tags of one job. More are refused.
pub const TAGS_MAX: usize = 32;
/// Jobs in one batch submit. More are refused; split the batch.
pub const SUBMIT_BATCH_MAX: usize = 10_000;
/// Retries after the first attempt. More are refused.
pub const MAX_RETRIES_MAX: u32 = 1_000;
/// Steps of a retry ladder. More are refused.
pub const RETRY_STEPS_MAX: usize = 100;
/// Longest timeout of one attempt. Longer ones are refused.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Shortest interval of a recurring job. Shorter ones are refused.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest interval of a recurring job. Longer ones are refused.
pub const INTERVAL_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);
/// Bytes kept of an attempt's error message, with the mark. The rest is cut off, and the cut is marked.
pub const ERROR_BYTES_MAX: usize = 8 * 1024;
/// Bytes of an attempt's result as JSON. A larger result fails the attempt for good, so that it is noticed; a longer last
/// line of a command is no result.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Occurrences that one fire of one schedule may create; the rest follow in the next round.
pub const FIRES_PER_PLAN_MAX: usize = 100;
/// Open occurrences of a job that names no `max_open`. Further ones are skipped with reason `backlog`.
pub const MAX_OPEN_DEFAULT: u32 = 1_000;
/// Highest `max_open`. A higher one is refused.
pub const MAX_OPEN_MAX: u32 = 10_000;
/// Open occurrences of a job that a transaction reads. Replayed ones do not count against `max_open` for regular ones, so
/// up to twice as many can be open while a replay is under way.
pub const OPEN_OF_JOB_MAX: usize = 2 * MAX_OPEN_MAX as usize;
/// Occurrences that wait behind an open one under `QUEUE` when the job names no `overlap_limit`. Further ones
/// are skipped with reason `overlap`.
pub const OVERLAP_LIMIT_DEFAULT: u32 = 10;
/// Highest `overlap_limit`. A higher one is refused.
pub const OVERLAP_LIMIT_MAX: u32 = 1_000;
/// Jobs that one job may depend on. More are refused.
pub const DEPENDS_ON_MAX: usize = 100;
/// Dependents of finished jobs that one transaction releases or skips; the rest follow in the next ones.
pub const DEPENDENTS_PER_STEP_MAX: usize = 1_000;
/// Highest `max_depth` of a queue. A higher one is refused; null is no limit at all.
pub const QUEUE_DEPTH_MAX: u64 = 1_000_000_000_000;
/// Listeners to events and followers of logs that one server serves at once. Further ones are told to come back.
pub const EVENT_LISTENERS_MAX: usize = 256;
/// Commits of which the moves wait for one listener. One that lags further behind is shown what runs anew.
pub const EVENT_COMMITS_WAITING_MAX: usize = 1_024;
/// Texts of `retry.fail_on`. More are refused.
pub const FAIL_ON_MAX: usize = 32;
/// Highest `retry.timeout_growth`, in percent. A higher one is refused.
pub const TIMEOUT_GROWTH_PCT_MAX: u32 = 1_000;
/// Executions ahead in the queue that an explanation counts; of more it says so.
pub const POSITION_MAX: usize = 10_000;
/// Bytes of an `Idempotency-Key` header. Longer ones are refused.
pub const REQUEST_KEY_BYTES_MAX: usize = 200;
/// Items of one page of a list. A larger `limit` is refused.
pub const PAGE_ITEMS_MAX: usize = 1_000;
/// Bytes of payloads, results, errors and log lines in one page. A page that would have more ends sooner, after at
/// least one item, and says where to go on.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Items of a page when the caller names no limit.
pub const PAGE_ITEMS_DEFAULT: usize = 100;
/// Items of one store transaction that the engine gathers from many callers; the rest go into the next one.
pub const STORE_BATCH_MAX: usize = 1_000;
/// Executions that one poll may receive.
pub const POLL_CAPACITY_MAX: usize = 5_000;
/// Executions that one poll over HTTP may ask for: their payloads are answered in one piece. More are refused.
pub const REMOTE_POLL_CAPACITY_MAX: usize = 100;
/// Longest time that a poll over HTTP may wait. Longer ones are refused: something in between would cut them off.
pub const REMOTE_POLL_WAIT_MAX: Duration = Duration::from_secs(30);
/// Job types, and queues, that one worker may name. More are refused.
pub const WORKER_LANES_MAX: usize = 1_000;
/// Slots that a worker may have. More are refused.
pub const WORKER_SLOTS_MAX: u32 = 5_000;
/// A worker holds no more executions ready than it will start within this time, going by how long runs take.
pub const PREFETCH_TIME: Duration = Duration::from_millis(100);
/// How long a worker holds an execution ready without a slot for it. Then it goes back, unstarted.
pub const HELD_TIME_MAX: Duration = Duration::from_millis(500);
/// How often a worker tells how it is, with one of its heartbeats: what it says of its load and its machine is this old at
/// most. Each time its session's row is written once more; with every heartbeat it would be twice as often.
pub const CONDITION_INTERVAL: Duration = Duration::from_secs(5);
/// Reasons for which a worker elsewhere may refuse work. More are refused, and so are longer ones than a name.
pub const REFUSAL_REASONS_MAX: usize = 10;
/// How often a worker whose slots adapt looks whether they should.
pub const SLOTS_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long something must have waited before a worker makes more slots for it.
pub const SLOTS_WAIT_MIN: Duration = Duration::from_millis(250);
/// Pause between two times that a worker makes more slots.
pub const SLOTS_GROW_PAUSE: Duration = Duration::from_secs(2);
/// How long less than half of a worker's slots must have been in use before it gives some up, and the pause until it gives
/// up more.
pub const SLOTS_IDLE_MIN: Duration = Duration::from_secs(30);
pub const SLOTS_SHRINK_PAUSE: Duration = Duration::from_secs(10);
/// How long executions may wait before more workers are asked for, when whoever asks names no time; and the longest time.
pub const TARGET_WAIT_DEFAULT: Duration = Duration::from_secs(10);
pub const TARGET_WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Slots of a worker that names none.
pub const WORKER_SLOTS_DEFAULT: u32 = 16;
/// How often scale hooks are looked at.
pub const SCALE_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How old an answer about what waits may be: within this time all who ask one node get the same.
pub const DEMAND_KEPT: Duration = Duration::from_secs(1);
/// Leases that one request may name, and so those that a worker elsewhere may hold. More are refused.
pub const LEASES_NAMED_MAX: usize = 10_000;
/// Outcomes in one report over HTTP. More are refused; split the report.
pub const REMOTE_REPORTS_MAX: usize = 1_000;
/// Highest beat and turn that a worker elsewhere may count to: the last number that every JSON reader keeps exact.
pub const REMOTE_COUNT_MAX: u64 = (1 << 53) - 1;
/// Bytes of one log line. The rest is cut off, and the cut is marked.
pub const LOG_LINE_BYTES_MAX: usize = 16 * 1024;
/// Lines kept of one execution, beside those that say that it is full. A last line says that the rest was dropped.
pub const LOG_LINES_PER_EXECUTION_MAX: usize = 50_000;
/// Bytes kept of the lines of one execution. A last line says that the rest was dropped.
pub const LOG_BYTES_PER_EXECUTION_MAX: usize = 8 * 1024 * 1024;
/// Bytes that all stored log lines may take up, unless the configuration says otherwise. Beyond it the oldest are removed,
/// and whoever reads their log finds a line that says so.
pub const LOGS_BYTES_DEFAULT: u64 = 10 << 30;
/// The least that the configuration may say.
pub const LOGS_BYTES_MIN: u64 = 1 << 20;
/// Lines that one transaction removes to keep within that limit; the rest follows in the next ones.
pub const LOGS_REMOVED_PER_STEP_MAX: usize = 1_000;
/// Bytes of one execution's lines that wait in a worker. A handler that writes more waits until there is room.
pub const LOG_BYTES_WAITING_MAX: usize = 256 * 1024;
/// Lines that a worker sends in one call; the rest go into the next one.
pub const LOG_BATCH_LINES_MAX: usize = 1_000;
/// How long a worker gathers lines before it sends them.
pub const LOG_FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// How long the end of an execution waits for its last lines and notes to be kept. Then it is told without them.
pub const LAST_FLUSH_MAX: Duration = Duration::from_secs(5);

/// Bytes of a checkpoint as JSON. A larger one is refused, and the handler is told so.
pub const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;
/// Bytes kept of the message of a progress. The rest is cut off, and the cut is marked.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 500;
/// How long a worker gathers progress before it sends the latest. What ends sooner costs the house nothing.
pub const PROGRESS_FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How long a handler waits until its checkpoint is kept. Then it is told that nobody knows whether it is.
pub const CHECKPOINT_WAIT_MAX: Duration = Duration::from_secs(60);
/// Notes in one request over HTTP. More are refused; split the request.
pub const REMOTE_NOTES_MAX: usize = 1_000;
/// Bytes of a checkpoint that a web call carries in a header. A larger one is left out, and the log says so.
pub const HTTP_CHECKPOINT_BYTES_MAX: usize = 8 * 1024;
/// Lines of a command's notes that cannot be read and are shown in its log. Of the rest it says only that there are.
pub const BAD_NOTES_SHOWN_MAX: usize = 10;

/// How long a command may take to end after SIGTERM, when its job names no time, before SIGKILL.
pub const KILL_GRACE_DEFAULT: Duration = Duration::from_secs(5);
/// Longest such time. Longer ones are refused.
pub const KILL_GRACE_MAX: Duration = Duration::from_secs(60);
/// How long, beyond the grace, a killed process tree may take to be gone. Then its end is told regardless.
pub const KILL_TIME_MAX: Duration = Duration::from_secs(30);
/// How long, beyond the grace, the shim of a command may take to end it. Then the worker kills the command itself.
pub const SHIM_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a worker that starts waits for commands of workers that are gone to end. Then it says which are left.
pub const LEFTOVERS_WAIT_MAX: Duration = Duration::from_secs(10);
/// Directories of cgroups that a worker looks through for such commands when it starts. Others are not looked at.
pub const CGROUPS_SCANNED_MAX: usize = 10_000;
/// Last lines of a failed command's stderr that its error shows.
pub const STDERR_TAIL_LINES_MAX: usize = 10;
/// Bytes of each of these lines. The rest is cut off, and the cut is marked.
pub const STDERR_TAIL_LINE_BYTES_MAX: usize = 500;

/// Bytes kept of the answer to a web call, as JSON. The rest is not read, and the cut is marked. Less than a result
/// may have, so that no answer fails a call for its size.
pub const HTTP_RESPONSE_BYTES_MAX: usize = 60 * 1024;
/// Bytes of an answer's status line and headers. A call whose answer has more fails and is tried again.
pub const HTTP_HEAD_BYTES_MAX: usize = 64 * 1024;
/// Bytes of an answer's body that are repeated in the error message. The rest is not read, and the cut is marked.
pub const HTTP_ERROR_BODY_BYTES_MAX: usize = 512;
/// How long a failed call waits for those bytes.
pub const HTTP_ERROR_BODY_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a web call may take to find, reach and greet its server. Then it fails and is tried again.
pub const HTTP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections to one host that are kept for further calls, and how long. Others are closed.
pub const HTTP_IDLE_PER_HOST_MAX: usize = 4;
pub const HTTP_IDLE_MAX: Duration = Duration::from_secs(20);

/// Occurrences that one preview may show. A larger `count` is refused.
pub const PREVIEW_MAX: usize = 1_000;
/// Most by which a recurring job's starts may be spread. More is refused.
pub const JITTER_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Longest grace for late occurrences. Longer ones are refused.
pub const MISFIRE_GRACE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Missed occurrences that a job may make up for in a minute. A higher rate is refused.
pub const REPLAY_RATE_MAX: u32 = 6_000;
/// Outages whose missed occurrences one job makes up for at a time. What further ones missed is skipped.
pub const REPLAY_RANGES_MAX: usize = 16;
/// How far a replay that was held up may run ahead of its rate to be back in step.
pub const REPLAY_CATCH_UP: Duration = Duration::from_secs(1);
/// How long a replay that waits for room waits at most before it is tried again. The end of an occurrence wakes it at
/// once; this covers the case that the wake-up is lost.
pub const REPLAY_RECHECK: Duration = Duration::from_secs(30);

/// Due times that one request to advance a driven clock may pass. It answers how far it got; ask again.
pub const ADVANCE_STEPS_MAX: usize = 10_000;
/// How long such a request may take in real time before it answers how far it got.
pub const ADVANCE_TIME_MAX: Duration = Duration::from_secs(30);

/// How late an occurrence may be found and still simply run.
pub const MISFIRE_GRACE: Duration = Duration::from_secs(60);
/// Time limit of an attempt whose job names none.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(3_600);
/// Retries after the first attempt when the job names none.
pub const MAX_RETRIES_DEFAULT: u32 = 3;
/// How long a session's beat counter must stand still, on one observer's clock, before its work is lost.
pub const SESSION_LEASE: Duration = Duration::from_secs(6);
/// Shortest and longest lease that a worker may ask for.
pub const SESSION_LEASE_MIN: Duration = Duration::from_millis(500);
pub const SESSION_LEASE_MAX: Duration = Duration::from_secs(600);
/// Shortest pause between two looks for work that another process has queued and nobody told of: after a look that found
/// some. Each look that finds nothing doubles the pause.
pub const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest such pause where processes that share a store cannot tell each other: what one of them queues while all are
/// idle starts at most so much later.
pub const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);
/// The pause while others can be heard: a look then only finds what was told in vain. What a claim passed over because it
/// was locked is looked for as if nobody could be heard.
pub const LOOK_PAUSE_HEARING: Duration = Duration::from_secs(5);
/// Pause between two words to others about work that they could claim. What is queued meanwhile is told in one.
pub const TELL_PAUSE: Duration = Duration::from_millis(10);
/// How long a process may be silent before it is given up as a member of its cluster, and what it looks after goes to others.
/// It beats once per fifth of this and looks at the others once per sixth: segments of one that dies are fired elsewhere
/// within this time, one look to notice the last beat and one to notice the silence, 4 s in all.
pub const MEMBER_TTL: Duration = Duration::from_secs(3);
/// Shortest and longest such time: a pause of the machine must not look like a death, and nobody wants to wait longer.
pub const MEMBER_TTL_MIN: Duration = Duration::from_millis(500);
pub const MEMBER_TTL_MAX: Duration = Duration::from_secs(60);
/// A time to live that is read and is longer than this was not written by any of us: who has died would never be given up.
/// Longer than the above, so that it can be raised while an older version still runs.
pub const MEMBER_TTL_BELIEVED_MAX: Duration = Duration::from_secs(3_600);
/// How long a scheduler may hear nothing from the store before it no longer stands for segments: it could not fire them.
pub const STORE_SILENCE_MAX: Duration = Duration::from_secs(5);
/// How far a machine's wall clock may be off the store's time, unless the configuration says otherwise. A node that is further
/// off fires nothing. No machine that keeps time is off by as much, and half of the grace for late occurrences is left
/// to mend it; it matters because a store whose clock has leapt would otherwise make everybody fire what is not due.
pub const CLOCK_OFFSET_MAX: Duration = Duration::from_secs(30);
/// Least and most that the configuration may say.
pub const CLOCK_OFFSET_MAX_LEAST: Duration = Duration::from_secs(1);
pub const CLOCK_OFFSET_MAX_MOST: Duration = Duration::from_secs(366 * 24 * 3_600);
/// A fire that comes later than this after its due time counts as late: longer than a failover takes.
pub const FIRE_LATE: Duration = Duration::from_secs(5);
/// How often at most the log tells of late fires.
pub const LATENESS_TOLD_PAUSE: Duration = Duration::from_secs(60);
/// How often the leader looks for what is due and not fired.
pub const OVERDUE_LOOK_PAUSE: Duration = Duration::from_secs(10);
/// How far ahead a process that looks after nothing but its own commits remembers what they made due. Later times are
/// found by the scans of schedulers, at least twice before they have come.
pub const OWN_LOOK_AHEAD: Duration = Duration::from_secs(2);
/// Running executions that one look compares to tell listeners what other processes have started. Of more, some are not
/// told before they end.
pub const WATCHED_RUNNING_MAX: usize = 10_000;
/// First and longest pause after the store failed a loop. Each failure doubles it, and a success ends it.
pub const STORE_ERROR_PAUSE_MIN: Duration = Duration::from_millis(100);
pub const STORE_ERROR_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Pairs of queue and job type that metrics show apart; what is in others is added up.
pub const METRIC_LANES_MAX: usize = 200;
/// Lanes that `/stats` shows: of more, those that hold most, and it says that there are more.
pub const STATS_LANES_MAX: usize = 200;
/// Workers that `/stats` shows. Of more it shows the first, and says so; `/workers` lists all in pages.
pub const STATS_WORKERS_MAX: usize = 100;
/// How long one look at all lanes and workers answers `/stats`, `/queues`, `/autoscaling` and `/metrics`.
pub const OVERVIEW_KEPT: Duration = Duration::from_secs(1);
/// Lanes in use and workers together, from which on such a look is kept. With fewer, every answer is of its own moment.
pub const OVERVIEW_KEPT_FROM: usize = 500;
/// Rows that a look at all lanes reads to tell since when the oldest of each lane has been queued: where lanes are many, fewer
/// of each are read.
pub const OLDEST_ROWS_MAX: usize = 10_000;
/// How long what is left of a deleted job is kept after its last execution has ended, so that whoever listens to
/// events is told of the end.
pub const DELETED_KEPT: Duration = Duration::from_secs(10);
/// How long the store's clock must run evenly after it jumped, or after a start with a clock that is far from the last note,
/// before retention deletes anything by age.
pub const RETENTION_HOLD: Duration = Duration::from_secs(600);
/// The most that the store's clock may move more or less than the monotonic clock between two looks of retention, about a
/// minute apart. A larger step is a jump, and retention waits.
pub const RETENTION_CLOCK_STEP_MAX: Duration = Duration::from_secs(60);
/// How far the store's clock may be from the note of the last steady look when a process starts. If it is further away,
/// retention waits: the clock is wrong, or no process ran for that long.
pub const RETENTION_NOTE_AGE_MAX: Duration = Duration::from_secs(3_600);
/// How long the name of a worker without sessions is kept beyond history, which may name it: history goes by the partition,
/// and nodes may disagree a little about the time.
pub const WORKER_NAMES_KEPT: Duration = Duration::from_secs(2 * 24 * 3_600);
/// How long the answer to a request with an `Idempotency-Key` is replayed.
pub const REQUESTS_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// Longest time after which an occurrence expires. A longer one is refused.
pub const EXPIRES_AFTER_MAX: Duration = INTERVAL_MAX;

/// Connections to a database server that read, when the configuration names no number.
pub const DATABASE_READERS_DEFAULT: usize = 8;
/// Connections to a database server that write, when the configuration names no number.
pub const DATABASE_WRITERS_DEFAULT: usize = 4;
/// How long a connection to a database server may take to be made. Then the store is unavailable.
pub const DATABASE_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Hosts that the URL of a database may name: nodes of one cluster, of which the first that answers is used.
pub const DATABASE_HOSTS_MAX: usize = 16;
/// How long one of several hosts may take to be connected to. Then the next one is tried.
pub const DATABASE_HOST_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long a read waits for a free connection. Then the store is unavailable.
pub const DATABASE_POOL_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long one read may take, with all its statements. Then its connection is given up, and the store is unavailable.
pub const DATABASE_READ_TIME_MAX: Duration = Duration::from_secs(60);
/// How long lists are read from the primary after its replica could not be read from.
pub const REPLICA_REST: Duration = Duration::from_secs(30);
/// How far behind a replica may be for lists to be read from it.
pub const REPLICA_BEHIND_MAX: Duration = Duration::from_secs(10);
/// How often it is looked how far behind a replica is, as long as lists are read.
pub const REPLICA_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long one statement may take. Then the database ends it, and the store is unavailable.
pub const DATABASE_STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one statement may take that reads whole tables, where people have asked for that.
pub const DATABASE_CHECK_TIMEOUT: Duration = Duration::from_secs(3_600);
/// How long a statement waits for a row that another transaction has locked. Then it is a conflict, and tried again.
pub const DATABASE_LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a transaction may stay open without a statement, so that a node that hangs, or was cut off, lets go of its locks.
/// Shorter than a lease of the default length: else what one node has locked keeps others from beating and reporting. Between
/// two statements of ours lies no more than a rule or two, and what the database gives up is run again.
pub const DATABASE_IDLE_TRANSACTION_MAX: Duration = Duration::from_secs(3);
const _: () = assert!(
    DATABASE_IDLE_TRANSACTION_MAX.as_millis() * 5 < SESSION_LEASE.as_millis() * 4,
    "a worker stops its handlers after four fifths of its lease; a lock of somebody who hangs must be gone by then"
);
/// How long a database server may be silent before its connection counts as dead.
pub const DATABASE_SILENCE_MAX: Duration = Duration::from_secs(15);
/// Rows that one statement takes from a list, where a database reads lists out of a document. The rest goes in the next one.
pub const DATABASE_LIST_ROWS_MAX: usize = 2_000;
/// Bytes of one statement with its values, beside a single row that is larger. The rest goes in the next one. MariaDB takes
/// 16 MiB by default, MySQL 64.
pub const DATABASE_PACKET_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How much time one partition of history and logs covers on a database server. What is kept goes back that much further
/// at most, because retention drops whole partitions.
pub const PARTITION_WIDTH: Duration = Duration::from_secs(24 * 3_600);
/// Partitions that are made ahead of time.
pub const PARTITIONS_AHEAD: i64 = 3;
/// Rows of a partition that are counted before it is dropped; of more, the database's own estimate is told.
pub const PARTITION_ROWS_COUNTED_MAX: i64 = 100_000;

/// Rows that are read from one store and written to another at a time, in one transaction.
pub const MOVING_PAGE_ROWS_MAX: usize = 5_000;
/// Bytes of these rows, beside a single row that is larger. The rest goes with the next ones.
pub const MOVING_PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a move waits for those who were just stopped to be gone from a database. Then it is refused.
pub const MOVING_LEAVE_MAX: Duration = Duration::from_secs(5);

/// Bytes of what a member of the cluster says of itself. Every beat carries it, and every look reads those of all.
pub const MEMBER_CARD_BYTES_MAX: usize = 16 * 1024;

/// Executions that a limit may let run at once. A higher one limits nothing that a cluster could run.
pub const CONCURRENCY_MAX: u32 = 1_000_000;
/// Starts that a rate may name.
pub const RATE_COUNT_MAX: u32 = 1_000_000;
/// The span of a rate, at least: shorter ones are said as more often in a longer one.
pub const RATE_SPAN_MIN: Duration = Duration::from_secs(1);
/// The same, at most.
pub const RATE_SPAN_MAX: Duration = Duration::from_secs(24 * 3_600);
/// The time between two starts that a rate comes to, at least.
pub const RATE_STEP_MIN: Duration = Duration::from_micros(100);
/// A start that a rate goes by and that lies further ahead than this was written by a clock that has been set back since.
pub const RATE_AHEAD_MAX: Duration = Duration::from_secs(60);
/// Owners whose weights one queue may name.
pub const QUEUE_WEIGHTS_MAX: usize = 1_000;
/// The weight of an owner, at most.
pub const OWNER_WEIGHT_MAX: u32 = 1_000;
/// Executions that one step lets out of a line. The rest follows in the next one.
pub const ADMITTED_PER_STEP_MAX: usize = 1_000;
/// Executions that one step has take their places again when a limit has become tighter. Their rows are locked, and work
/// that becomes ready in the queue waits, for as long as a step takes.
pub const PLACED_PER_STEP_MAX: usize = 500;
/// Lines that one look finds, and one step lets move. The rest follows, a page at a time.
pub const LINES_PER_STEP_MAX: usize = 1_000;
/// Between two pages of a look at all lines: ten thousand lines a second at most are looked at, whether or not they can move.
pub const LINES_PAGE_INTERVAL: Duration = Duration::from_millis(100);
/// How long a service of coordination may take to answer a call, or to take a connection. Then its next host is asked, or the
/// call has failed: a beat that takes longer is of no use to anybody.
pub const COORDINATION_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often all lines are looked for in which anybody waits: so late does one move whose room nobody has told of.
pub const LINES_LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of an answer of such a service: the cards of a large cluster.
pub const COORDINATION_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a start may check the structure of each SQLite file. A file that takes longer is sampled, and the background
/// check covers the rest.
pub const START_CHECK_MAX: Duration = Duration::from_millis(500);
/// Rows that a start reads from each end of every table of such a file, and from each place in between.
pub const START_SAMPLE_ROWS: usize = 64;
/// Places between the ends of a table that a start samples, where rows are numbered.
pub const START_SAMPLE_PLACES: i64 = 8;
/// How long one step of the background check may hold its view of a SQLite file. The write-ahead log cannot be reset for
/// as long.
pub const CHECK_STEP_MAX: Duration = Duration::from_millis(100);
/// How long a background check may check the structure of a file or table at once. Larger ones are covered by reading all
/// rows and index entries, in steps.
pub const CHECK_STRUCTURE_MAX: Duration = Duration::from_millis(500);
/// The background check rests this many times as long as it has worked: five percent of one processor.
pub const CHECK_REST_FACTOR: u32 = 19;
/// Rows that the background check reads at once within a step.
pub const CHECK_ROWS: usize = 64;
/// Problems that are listed of one damaged file. More are not looked for.
pub const DAMAGE_LISTED_MAX: usize = 20;
