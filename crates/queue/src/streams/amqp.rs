//! RabbitMQ: a durable topic exchange for events with a durable queue of the same name behind it, and a durable queue
//! for jobs. Publishing waits for the broker's confirmation; messages are acknowledged one by one.

use super::{REJECTED, in_time};
use crate::amqp::{AmqpHosts, OpenChannel};
use crate::options::{BrokerOpenError, BrokerOptions};
use async_trait::async_trait;
use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection, Consumer, ExchangeKind, PublisherConfirm};
use punctual_core::limits::{EVENTS_KEPT_MAX, INTAKE_BATCH_MAX, INTAKE_WAIT_MAX};
use punctual_core::ports::{BrokerError, EventSink, IncomingMessage, MessageSource, OutgoingEvent};
use std::fmt;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// A message that survives a restart of the broker.
const PERSISTENT: u8 = 2;
/// The longest id of a message, and the longest text of a header with the reason of a rejection, in bytes.
const ID_BYTES_MAX: usize = 255;
/// The routing keys of all events.
const EVERYTHING: &str = "#";

pub struct AmqpEvents {
    hosts: AmqpHosts,
    /// The name of the exchange and of the queue.
    topic: ShortString,
    publisher: Mutex<Option<OpenChannel>>,
}

impl AmqpEvents {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        let hosts = AmqpHosts::new(options, topic.to_owned())?;
        Ok(AmqpEvents { hosts, topic: topic.into(), publisher: Mutex::default() })
    }

    async fn open(&self) -> Result<OpenChannel, BrokerError> {
        let open = self.hosts.open().await?;
        let channel = self.declared(&open).await.map_err(|error| self.hosts.failed(&error))?;
        let confirmed = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirmed.map_err(|error| self.hosts.failed(&error))?;
        Ok(OpenChannel { channel, ..open })
    }

    /// A channel, after the exchange exists. One that exists is used with the queues that are bound to it.
    async fn declared(&self, open: &OpenChannel) -> lapin::Result<Channel> {
        let (topic, none) = (self.topic.clone(), FieldTable::default());
        let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
        let found =
            open.channel.exchange_declare(topic.clone(), ExchangeKind::Topic, passive, none.clone()).await;
        if found.is_ok() {
            return Ok(open.channel.clone());
        }
        // The failure has closed the channel.
        let channel = open.connection.create_channel().await?;
        declare_queue(&open.connection, &topic, bounded()).await?;
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(topic.clone(), ExchangeKind::Topic, durable, none.clone()).await?;
        let (queue, exchange) = (topic.clone(), topic);
        channel.queue_bind(queue, exchange, EVERYTHING.into(), QueueBindOptions::default(), none).await?;
        Ok(channel)
    }

    async fn publish_all(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError> {
        let mut place = self.publisher.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken connection behind.
        let open = match place.take().filter(|open| open.channel.status().connected()) {
            Some(open) => open,
            None => self.open().await?,
        };
        let mut confirmations = Vec::with_capacity(events.len());
        for event in events {
            let properties = BasicProperties::default()
                .with_content_type("application/cloudevents+json".into())
                .with_delivery_mode(PERSISTENT)
                .with_message_id(event.id.as_str().into())
                .with_type(event.kind.into());
            let (exchange, key) = (self.topic.clone(), event.kind.into());
            let sent = open
                .channel
                .basic_publish(exchange, key, mandatory(), event.body.as_bytes(), properties)
                .await;
            confirmations.push(sent.map_err(|error| self.hosts.failed(&error))?);
        }
        for confirmation in confirmations {
            confirmed(confirmation, &self.hosts, &self.topic).await?;
        }
        *place = Some(open);
        Ok(())
    }
}

/// The broker returns a message that no queue accepts.
fn mandatory() -> BasicPublishOptions {
    BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() }
}

async fn confirmed(
    sent: PublisherConfirm,
    hosts: &AmqpHosts,
    place: &ShortString,
) -> Result<(), BrokerError> {
    let address = &hosts.address;
    match sent.await.map_err(|error| hosts.failed(&error))? {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(_)) => Err(BrokerError(format!(
            "RabbitMQ at {address} has no queue for messages to {place}: bind a queue to the exchange, or delete the \
             exchange, so that both are created again"
        ))),
        Confirmation::Nack(_) | Confirmation::NotRequested => {
            Err(BrokerError(format!("RabbitMQ at {address} did not accept a message")))
        }
    }
}

/// A queue that drops its oldest messages when too many wait.
fn bounded() -> FieldTable {
    let mut bounds = FieldTable::default();
    bounds.insert("x-max-length".into(), AMQPValue::LongLongInt(EVENTS_KEPT_MAX));
    bounds.insert("x-overflow".into(), AMQPValue::LongString("drop-head".into()));
    bounds
}

/// Creates a durable queue, unless there is one with this name, whatever its type and bounds. Another process may
/// create it at the same moment.
async fn declare_queue(
    connection: &Connection,
    name: &ShortString,
    arguments: FieldTable,
) -> lapin::Result<()> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let none = FieldTable::default;
    let mut last = Ok(());
    for (options, arguments) in [(passive, none()), (durable, arguments), (passive, none())] {
        // A failure closes the channel that it happens on.
        let channel = connection.create_channel().await?;
        last = channel.queue_declare(name.clone(), options, arguments).await.map(drop);
        if last.is_ok() {
            break;
        }
    }
    last
}

impl fmt::Debug for AmqpEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AmqpEvents({})", self.topic)
    }
}

#[async_trait]
impl EventSink for AmqpEvents {
    fn kind(&self) -> &'static str {
        "amqp"
    }

    async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError> {
        in_time(self.publish_all(events)).await
    }
}

pub struct AmqpIntake {
    hosts: AmqpHosts,
    queue: ShortString,
    rejected: ShortString,
    state: Mutex<AmqpIntakeState>,
}

#[derive(Default)]
struct AmqpIntakeState {
    /// Counts connections: a receipt is valid only on its own connection.
    generation: u64,
    open: Option<OpenQueue>,
}

struct OpenQueue {
    messages: Consumer,
    open: OpenChannel,
}

impl AmqpIntake {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        let rejected = format!("{topic}{REJECTED}");
        Ok(AmqpIntake {
            hosts: AmqpHosts::new(options, format!("{topic} and {rejected}"))?,
            queue: topic.into(),
            rejected: rejected.into(),
            state: Mutex::default(),
        })
    }

    async fn connect(&self) -> Result<OpenQueue, BrokerError> {
        let open = self.hosts.open().await?;
        let messages = self.consume(&open).await.map_err(|error| self.hosts.failed(&error))?;
        Ok(OpenQueue { messages, open })
    }

    async fn consume(&self, open: &OpenChannel) -> lapin::Result<Consumer> {
        let OpenChannel { channel, connection } = open;
        declare_queue(connection, &self.queue, FieldTable::default()).await?;
        declare_queue(connection, &self.rejected, FieldTable::default()).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        channel.basic_qos(INTAKE_BATCH_MAX as u16, BasicQosOptions::default()).await?;
        let (queue, options) = (self.queue.clone(), BasicConsumeOptions::default());
        channel.basic_consume(queue, "".into(), options, FieldTable::default()).await
    }

    async fn receive_from(
        &self,
        open: &mut OpenQueue,
        generation: u64,
    ) -> Result<Vec<IncomingMessage>, BrokerError> {
        let ended = || {
            let address = &self.hosts.address;
            BrokerError(format!("RabbitMQ at {address} has ended the queue {}", self.queue))
        };
        let Ok(first) = timeout(INTAKE_WAIT_MAX, open.messages.next()).await else { return Ok(vec![]) };
        let mut next = Some(first);
        let mut received = vec![];
        while let Some(delivery) = next {
            let delivery = delivery.ok_or_else(ended)?.map_err(|error| self.hosts.failed(&error))?;
            let id = delivery.properties.message_id().as_ref().map(|id| id.as_str().to_owned());
            received.push(IncomingMessage {
                id: id.filter(|id| !id.is_empty()),
                receipt: format!("{generation}:{}", delivery.delivery_tag),
                body: delivery.data,
            });
            next = if received.len() < INTAKE_BATCH_MAX { open.messages.next().now_or_never() } else { None };
        }
        Ok(received)
    }

    async fn acknowledge_one(&self, state: &AmqpIntakeState, receipt: &str) -> Result<(), BrokerError> {
        let tag =
            receipt.split_once(':').filter(|(generation, _)| *generation == state.generation.to_string());
        let tag = tag.and_then(|(_, tag)| tag.parse().ok());
        // Messages of a lost connection are delivered again.
        let (Some(open), Some(tag)) = (&state.open, tag) else { return Ok(()) };
        let done = open.open.channel.basic_ack(tag, BasicAckOptions::default()).await;
        Ok(done.map_err(|error| self.hosts.failed(&error))?)
    }

    async fn move_to_rejected(
        &self,
        state: &AmqpIntakeState,
        message: &IncomingMessage,
        why: &str,
    ) -> Result<(), BrokerError> {
        let Some(open) = &state.open else { return Ok(()) };
        let mut headers = FieldTable::default();
        headers.insert("error".into(), AMQPValue::LongString(why.into()));
        let mut properties = BasicProperties::default().with_headers(headers).with_delivery_mode(PERSISTENT);
        if let Some(id) = message.id.as_deref().filter(|id| id.len() <= ID_BYTES_MAX) {
            properties = properties.with_message_id(id.into());
        }
        let (queue, body) = (self.rejected.clone(), &message.body);
        let sent = open.open.channel.basic_publish("".into(), queue, mandatory(), body, properties).await;
        confirmed(sent.map_err(|error| self.hosts.failed(&error))?, &self.hosts, &self.rejected).await?;
        self.acknowledge_one(state, &message.receipt).await
    }
}

impl fmt::Debug for AmqpIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AmqpIntake({})", self.queue)
    }
}

#[async_trait]
impl MessageSource for AmqpIntake {
    fn kind(&self) -> &'static str {
        "amqp"
    }

    async fn receive(&self) -> Result<Vec<IncomingMessage>, BrokerError> {
        let mut state = self.state.lock().await;
        let mut open = match state.open.take() {
            Some(open) => open,
            None => {
                state.generation += 1;
                in_time(self.connect()).await?
            }
        };
        let received = in_time(self.receive_from(&mut open, state.generation)).await?;
        state.open = Some(open);
        Ok(received)
    }

    async fn acknowledge(&self, messages: &[IncomingMessage]) -> Result<(), BrokerError> {
        let state = self.state.lock().await;
        in_time(async {
            for message in messages {
                self.acknowledge_one(&state, &message.receipt).await?;
            }
            Ok(())
        })
        .await
    }

    async fn reject(&self, message: &IncomingMessage, why: &str) -> Result<(), BrokerError> {
        let state = self.state.lock().await;
        in_time(self.move_to_rejected(&state, message, why)).await
    }
}
