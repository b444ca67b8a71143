//! Limits of notifications, roll-ups and metrics of jobs.

use std::time::Duration;

/// How often the leader looks for finished executions to roll up.
pub const SERIES_INTERVAL: Duration = Duration::from_secs(1);
/// How often roll-ups are written, and how late they are at most while the leader keeps up.
pub const SERIES_WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// The leader pauses this many times as long as a step of the roll-up took, so that it uses at most 2 % of a
/// processor. If executions finish faster than it reads, it catches up later.
pub const SERIES_PAUSE_FACTOR: u32 = 49;
/// The longest pause between two steps.
pub const SERIES_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Finished executions that one step reads.
pub const SERIES_ROWS_MAX: usize = 5_000;
/// Finished executions that are rolled up when roll-ups begin, the latest ones. Earlier ones are not.
pub const SERIES_FIRST_ROWS_MAX: u64 = 100_000;
/// Documents that a roll-up holds in memory before it writes them.
pub const SERIES_CHUNKS_HELD_MAX: usize = 60;
/// Queues, and job types, with figures of their own in a quarter of an hour. Further ones are added up.
pub const SERIES_NAMES_MAX: usize = 200;
/// Jobs with figures of their own in a quarter of an hour: the default, and the most.
pub const SERIES_JOBS_DEFAULT: usize = 50;
pub const SERIES_JOBS_MAX: usize = 500;
/// Jobs that are named to have figures of their own.
pub const SERIES_NAMED_JOBS_MAX: usize = 100;
/// How long figures are kept.
pub const SERIES_KEPT_DEFAULT: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Steps of one answer. A query with more is rejected.
pub const SERIES_POINTS_MAX: usize = 1_500;
/// Series of one answer: the default, and the most. Further ones are left out, those with the fewest executions.
pub const SERIES_SHOWN_DEFAULT: usize = 20;
pub const SERIES_SHOWN_MAX: usize = 100;
/// Jobs with metrics of their own, besides those that are named.
pub const METRIC_JOBS_MAX: usize = 1_000;
/// Series of named jobs in the metrics. Many owners may have jobs with a name; further ones are left out.
pub const METRIC_NAMED_JOBS_MAX: usize = 200;

/// Channels, rules and silences that a store may hold, of each. Further ones are rejected.
pub const CHANNELS_MAX: usize = 1_000;
pub const NOTIFICATION_RULES_MAX: usize = 10_000;
pub const SILENCES_MAX: usize = 1_000;
/// Bytes of a URL or another value of a channel. Larger ones are rejected.
pub const CHANNEL_VALUE_BYTES_MAX: usize = 4 * 1024;
/// Recipients of one channel.
pub const CHANNEL_RECIPIENTS_MAX: usize = 50;
/// Bytes of the template of a channel.
pub const CHANNEL_TEMPLATE_BYTES_MAX: usize = 16 * 1024;
/// Statements (`{% … %}`) of the template of a channel, and words and signs in one statement or expression. Templates with
/// more are rejected, because deep ones would use up the stack.
pub const CHANNEL_TEMPLATE_TAGS_MAX: usize = 200;
pub const CHANNEL_TEMPLATE_TOKENS_MAX: usize = 100;
/// Steps that the template of a channel may take. Beyond them, the default text is sent.
pub const CHANNEL_TEMPLATE_FUEL: u64 = 10_000;
/// Bytes of a text that a template makes, and of each text on the way. Beyond them, the default text is sent.
pub const CHANNEL_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Channels that a job or rule may name for an event.
pub const CHANNELS_PER_EVENT_MAX: usize = 20;
/// Failures in a row that a rule may ask for.
pub const RULE_FAILURES_MAX: u32 = 1_000;
/// The number of dead letters that a rule may compare with.
pub const RULE_DEAD_LETTERS_MAX: u64 = 10_000;
/// How late an execution starts before it counts as late, if nothing else is set.
pub const NOTIFY_LATE_DEFAULT: Duration = Duration::from_secs(60);
/// How long events of one group are collected before they are sent together, by default.
pub const NOTIFY_WINDOW_DEFAULT: Duration = Duration::from_secs(5);
pub const NOTIFY_WINDOW_MIN: Duration = Duration::from_secs(1);
pub const NOTIFY_WINDOW_MAX: Duration = Duration::from_secs(60);
/// How often a notification about a lasting problem is repeated, by default.
pub const NOTIFY_REPEAT_DEFAULT: Duration = Duration::from_secs(4 * 3_600);
/// How often the leader looks for events and for due deliveries.
pub const NOTIFY_INTERVAL: Duration = Duration::from_secs(1);
/// How often the leader looks for missed runs, old queues and long executions.
pub const NOTIFY_WATCH_INTERVAL: Duration = Duration::from_secs(5);
/// Finished executions that one step of notifications reads; the next step continues.
pub const NOTIFY_HISTORY_MAX: usize = 500;
/// Recurring jobs that one step checks for missed runs; the next step, a second later, continues.
pub const NOTIFY_JOBS_MAX: usize = 500;
/// Executions that have not started, and paused jobs, that one step checks for a time that is over; the next step
/// continues.
pub const NOTIFY_OVERDUE_MAX: usize = 200;
/// Alerts about missed runs beyond which jobs that run once raise no further ones.
pub const OVERDUE_ALERTS_MAX: usize = 1_000;
/// Alerts about jobs for which one step checks whether the job will run again.
pub const NOTIFY_OVER_MAX: usize = 100;
/// Jobs whose settings for notifications a node holds in memory.
pub const NOTIFY_JOBS_HELD_MAX: usize = 10_000;
/// Running executions that are compared with rules about long ones. Further ones are not looked at.
pub const NOTIFY_RUNNING_MAX: usize = 2_000;
/// Documents that one transaction of notifications changes at most; more events wait for the next one.
pub const NOTIFY_CHANGES_MAX: usize = 500;
/// Events that a delivery lists. Further ones are only counted.
pub const DELIVERY_EVENTS_MAX: usize = 20;
/// Bytes of an error message in an event. The rest is cut off.
pub const EVENT_ERROR_BYTES_MAX: usize = 1_000;
/// Lines of a log in a message.
pub const MESSAGE_LOG_LINES: usize = 10;
/// Waiting deliveries of one kind of event on one channel, and for one recipient. While there are as many, further events
/// join one of them. Incidents of PagerDuty and Opsgenie stay apart.
pub const DELIVERIES_PER_TARGET_MAX: usize = 100;
/// Waiting deliveries that the overview counts.
pub const DELIVERIES_COUNTED_MAX: usize = 1_000;
/// Deliveries that one step sends, at once.
pub const DELIVERIES_SENT_AT_ONCE: usize = 16;
/// How long an attempt to deliver may take.
pub const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause after the first attempt, and the longest one.
pub const DELIVERY_RETRY_MIN: Duration = Duration::from_secs(5);
pub const DELIVERY_RETRY_MAX: Duration = Duration::from_secs(3_600);
/// How long a delivery is tried before it is given up.
pub const DELIVERY_TRIED_FOR: Duration = Duration::from_secs(24 * 3_600);
/// Attempts in a row without an outcome, because the process ended during each. Then the delivery is given up: the
/// message may be the cause.
pub const DELIVERY_UNFINISHED_MAX: u32 = 20;
/// How long deliveries are listed after they were sent or given up.
pub const DELIVERIES_KEPT: Duration = Duration::from_secs(14 * 24 * 3_600);
/// How often the outbound heartbeat is sent.
pub const HEARTBEAT_URL_INTERVAL: Duration = Duration::from_secs(60);
/// Calendars of one mute.
pub const MUTE_CALENDARS_MAX: usize = 10;
/// Bounds of the percentage of usual durations in rules.
pub const RULE_USUAL_PERCENT_MIN: u32 = 100;
pub const RULE_USUAL_PERCENT_MAX: u32 = 10_000;
/// Recent runs of a job from which its usual duration is computed. With fewer, there is none.
pub const USUAL_RUNS_MIN: usize = 10;
pub const USUAL_RUNS_MAX: usize = 100;
/// Shorter runs are not compared with usual ones.
pub const USUAL_RUN_MIN: Duration = Duration::from_secs(1);
/// How long a node uses a usual duration before it computes it again.
pub const USUAL_REFRESH: Duration = Duration::from_secs(300);
/// How long a node is not ready before rules apply. A restart takes less.
pub const NODE_NOT_READY_AFTER: Duration = Duration::from_secs(30);
/// How long an alert about a lost worker is kept if the worker does not connect again.
pub const WORKER_LOST_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How long a link in a message can acknowledge its alert.
pub const ACK_LINK_VALID: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The longest silence.
pub const SILENCE_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Members and bytes of a `tracestate`. One with more members is ignored; of one with more bytes, members longer than
/// `TRACESTATE_MEMBER_BYTES_MAX` are left out, and then the last ones.
pub const TRACESTATE_MEMBERS_MAX: usize = 32;
pub const TRACESTATE_BYTES_MAX: usize = 512;
pub const TRACESTATE_MEMBER_BYTES_MAX: usize = 128;
/// Spans that wait to be sent to the collector. Further ones are dropped and counted.
pub const SPANS_WAITING_MAX: usize = 8_192;
/// Spans in one request to the collector.
pub const SPANS_BATCH_MAX: usize = 512;
/// How long spans are collected before they are sent together.
pub const SPANS_BATCH_DELAY: Duration = Duration::from_secs(1);
/// How often a batch is sent to a collector that does not accept it. After that, its spans are dropped and counted.
pub const SPANS_TRIES_MAX: u32 = 3;
/// How long the collector may take to answer.
pub const SPANS_SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses after requests that the collector did not accept: the first one, and the longest.
pub const SPANS_RETRY_MIN: Duration = Duration::from_secs(1);
pub const SPANS_RETRY_MAX: Duration = Duration::from_secs(30);
/// How long a process that stops tries to send its last spans.
pub const SPANS_FLUSH_MAX: Duration = Duration::from_secs(2);
/// Bytes of an error message in a span. The rest is cut off.
pub const SPAN_ERROR_BYTES_MAX: usize = 1_024;
/// Links of one span. Further ones are left out.
pub const SPAN_LINKS_MAX: usize = 128;
/// Running executions whose trace a node remembers. For others it reads the store.
pub const TRACED_RUNS_MAX: usize = 20_000;
/// Ends of executions, and fires, for which a node reads the store at once to complete their spans. Further ones have no
/// spans, and are counted as dropped.
pub const TRACED_READS_MAX: usize = 1_000;
/// Jobs whose name and trace a node remembers, and for how long.
pub const TRACED_JOBS_MAX: usize = 10_000;
pub const TRACED_JOB_AGE_MAX: Duration = Duration::from_secs(60);
/// Sessions whose worker's name a node remembers for spans.
pub const TRACED_SESSIONS_MAX: usize = 10_000;
