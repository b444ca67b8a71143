//! Limits of brokers: ready queues, published events, and jobs in messages.

use std::time::Duration;

/// The most lanes that one hint of a ready queue lists; more become "any lane".
pub const READY_HINT_LANES_MAX: usize = 256;
/// The longest message to a broker, in bytes. A hint with more lanes says "any lane"; a longer message that
/// arrives is rejected.
pub const READY_MESSAGE_BYTES_MAX: usize = 32 * 1024;
/// The most messages of a broker that are merged into one hint.
pub const READY_MESSAGES_MERGED_MAX: usize = 1_000;
/// The most processes whose last messages are remembered, to recognize repeated ones.
pub const READY_SENDERS_MAX: usize = 1_024;
/// How long a broker may take to accept a connection or a message.
pub const BROKER_ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a process receives no message of its own before it sends a ping to itself through the broker.
pub const BROKER_PING_INTERVAL: Duration = Duration::from_secs(2);
/// How long such a ping may take before the process reconnects. Until it has, it polls the database.
pub const BROKER_PING_MAX: Duration = Duration::from_secs(2);
/// How often the leader looks for finished executions to publish as events.
pub const EVENTS_INTERVAL: Duration = Duration::from_millis(500);
/// Finished executions that are published together; the cursor moves after all of them were confirmed.
pub const EVENTS_BATCH_MAX: usize = 500;
/// The same while events contain payloads.
pub const EVENTS_WITH_PAYLOAD_BATCH_MAX: usize = 50;
/// Events that a broker keeps for consumers, in a stream or queue that Punctual has created. Beyond it, the broker
/// drops the oldest.
pub const EVENTS_KEPT_MAX: i64 = 1_000_000;
/// How long a broker may take to confirm a batch of events, or what was received.
pub const BROKER_CONFIRM_MAX: Duration = Duration::from_secs(10);
/// Messages with jobs that are received and committed together.
pub const INTAKE_BATCH_MAX: usize = 100;
/// How long a process may hold a received message before the broker delivers it to another one.
pub const INTAKE_REDELIVER_AFTER: Duration = Duration::from_secs(10);
/// How long one call waits for messages before it checks the connection.
pub const INTAKE_WAIT_MAX: Duration = Duration::from_secs(1);
/// The longest message with a job, in bytes: the body of a request and a CloudEvent around it. Longer ones are
/// rejected.
pub const INTAKE_MESSAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
