//! Ready queues over brokers: adapters of the port `ReadyQueue` for Redis, NATS, RabbitMQ and, with the
//! feature `kafka`, Kafka. And events to, and jobs
//! from, other systems through the same brokers: `EventSink` and `MessageSource`, in [`streams`].
//!
//! The broker wakes, the database ranks. A message only says that a lane has work; its receiver claims from the
//! store. So a broker can lose, repeat, delay and reorder messages, and every program that can write to it can replay
//! them. All of this costs time, but does not change which execution runs, where, or how often.
//!
//! [`BrokerQueue`] is the same for all brokers: it signs and checks messages, recognizes repeated ones, and pings
//! itself through the broker, so that a connection that is open but silent is replaced. A broker is a `BrokerTransport`:
//! it sends bytes to every process that subscribes. All pass one suite, `conformance`.

mod amqp;
mod amqp_tls;
#[cfg(test)]
mod conformance;
#[cfg(feature = "kafka")]
mod kafka;
mod message;
mod nats;
mod options;
mod queue;
mod redis;
mod repeats;
mod streams;
#[cfg(test)]
mod tests;
mod transport;

pub use options::{BrokerKind, BrokerOpenError, BrokerOptions, SaslMechanism, SettingNames};
pub use queue::{BrokerQueue, QueueMember};
pub use streams::{event_sink, message_source};
