//! Events to other systems, and messages with jobs from them. Unlike hints, the broker stores these: in a Redis
//! stream, a JetStream stream, a durable RabbitMQ queue, or a Kafka topic.
//!
//! Missing streams, exchanges, queues and topics are created. Existing ones are not changed, so that the operator of the broker
//! can choose their retention and replication. All brokers pass one suite, in `tests/streams.rs`.

mod amqp;
#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod redis;

use crate::options::{BrokerKind, BrokerOpenError, BrokerOptions};
use amqp::{AmqpEvents, AmqpIntake};
#[cfg(feature = "kafka")]
use kafka::{KafkaEvents, KafkaIntake};
use nats::{NatsEvents, NatsIntake};
use punctual_core::limits::BROKER_CONFIRM_MAX;
use punctual_core::ports::{BrokerError, EventSink, MessageSource};
use redis::{RedisEvents, RedisIntake};
use std::sync::Arc;
use tokio::time::timeout;

/// The suffix of the topic for messages that cannot be parsed.
const REJECTED: &str = ".rejected";
/// The consumer group of a cluster's processes.
const GROUP: &str = "punctual";

/// Publishes events to a topic. Does not connect yet.
pub fn event_sink(options: &BrokerOptions, topic: &str) -> Result<Arc<dyn EventSink>, BrokerOpenError> {
    Ok(match options.kind {
        BrokerKind::Redis => Arc::new(RedisEvents::new(options, topic)?),
        BrokerKind::Nats => Arc::new(NatsEvents::new(options, topic)?),
        BrokerKind::Amqp => Arc::new(AmqpEvents::new(options, topic)?),
        #[cfg(feature = "kafka")]
        BrokerKind::Kafka => Arc::new(KafkaEvents::new(options, topic)?),
    })
}

/// Receives messages of a topic, which all processes share. `consumer` is random text, new at each start of a process.
/// Does not connect yet.
pub fn message_source(
    options: &BrokerOptions,
    topic: &str,
    consumer: &str,
) -> Result<Arc<dyn MessageSource>, BrokerOpenError> {
    Ok(match options.kind {
        BrokerKind::Redis => Arc::new(RedisIntake::new(options, topic, consumer)?),
        BrokerKind::Nats => Arc::new(NatsIntake::new(options, topic)?),
        BrokerKind::Amqp => Arc::new(AmqpIntake::new(options, topic)?),
        #[cfg(feature = "kafka")]
        BrokerKind::Kafka => Arc::new(KafkaIntake::new(options, topic)?),
    })
}

/// Fails a call that a broker does not answer.
async fn in_time<T>(call: impl Future<Output = Result<T, BrokerError>>) -> Result<T, BrokerError> {
    timeout(BROKER_CONFIRM_MAX, call).await.unwrap_or_else(|_| {
        Err(BrokerError(format!("the broker did not answer within {} s", BROKER_CONFIRM_MAX.as_secs())))
    })
}
