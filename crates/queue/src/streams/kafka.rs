//! Kafka: a topic for events, and a topic with a consumer group for jobs.
//!
//! Kafka has no acknowledgement of a single message. The group has one offset for each partition, and it is committed
//! after the jobs of all messages before it are stored. The engine finishes every message that it has received before
//! it asks for more, so a partition is given away only between messages.

use super::{REJECTED, in_time};
use crate::kafka::{KafkaConsumer, KafkaHosts, KafkaProducer, blocking, check_topic, may_pass};
use crate::options::{BrokerOpenError, BrokerOptions};
use async_trait::async_trait;
use futures_util::FutureExt;
use punctual_core::limits::{BROKER_CONFIRM_MAX, INTAKE_BATCH_MAX, INTAKE_REDELIVER_AFTER, INTAKE_WAIT_MAX};
use punctual_core::ports::{BrokerError, EventSink, IncomingMessage, MessageSource, OutgoingEvent};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// The header with the id of a message.
const ID: &str = "id";
/// How long the broker may take to store a message: shorter than a call may take, so that the reason of a failure is
/// known.
const STORED_WITHIN: Duration = BROKER_CONFIRM_MAX.saturating_sub(Duration::from_secs(2));
/// How long a process may be busy with its messages, such as while the database is away, before its partitions are
/// given to others.
const BUSY_MAX: Duration = Duration::from_secs(60);

/// A producer, replaced after errors.
struct KafkaSender {
    hosts: KafkaHosts,
    open: Mutex<Option<KafkaProducer>>,
}

/// A message to send.
struct KafkaRecord<'a> {
    topic: &'a str,
    key: Option<&'a str>,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

impl KafkaSender {
    /// Sends messages, and waits until all of them are stored.
    async fn send(&self, records: impl Iterator<Item = KafkaRecord<'_>>) -> Result<(), BrokerError> {
        let mut place = self.open.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken client behind.
        let producer = match place.take() {
            Some(producer) => producer,
            None => self.hosts.producer(STORED_WITHIN)?,
        };
        let failed = |error: &KafkaError| self.hosts.failed(error, &producer.reasons);
        let mut confirmations = vec![];
        for KafkaRecord { topic, key, headers, body } in records {
            let headers = headers.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
                all.insert(Header { key, value: Some(*value) })
            });
            let mut record = FutureRecord::<str, [u8]>::to(topic).headers(headers).payload(body);
            if let Some(key) = key {
                record = record.key(key);
            }
            confirmations.push(producer.send_result(record).map_err(|(error, _)| failed(&error))?);
        }
        let confirmed = producer.confirmed(async {
            for confirmation in confirmations {
                let stored = confirmation.await.map_err(|_| KafkaError::Canceled)?;
                stored.map_err(|(error, _)| error)?;
            }
            Ok(())
        });
        confirmed.await.map_err(|error| failed(&error))?;
        *place = Some(producer);
        Ok(())
    }
}

pub struct KafkaEvents {
    sender: KafkaSender,
    topic: String,
}

impl KafkaEvents {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        check_topic(topic)?;
        let hosts = KafkaHosts::new(options, format!("to write and describe the topic {topic}"))?;
        Ok(KafkaEvents { sender: KafkaSender { hosts, open: Mutex::default() }, topic: topic.to_owned() })
    }
}

impl fmt::Debug for KafkaEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KafkaEvents({})", self.topic)
    }
}

#[async_trait]
impl EventSink for KafkaEvents {
    fn kind(&self) -> &'static str {
        "kafka"
    }

    async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError> {
        let headers: Vec<_> = events
            .iter()
            .map(|event| {
                [
                    ("content-type", "application/cloudevents+json; charset=UTF-8"),
                    (ID, event.id.as_str()),
                    ("type", event.kind),
                ]
            })
            .collect();
        let records = events.iter().zip(&headers).map(|(event, headers)| KafkaRecord {
            topic: &self.topic,
            key: Some(&event.subject),
            headers,
            body: event.body.as_bytes(),
        });
        in_time(self.sender.send(records)).await
    }
}

pub struct KafkaIntake {
    topic: String,
    rejected: String,
    sender: KafkaSender,
    state: Mutex<KafkaIntakeState>,
}

#[derive(Default)]
struct KafkaIntakeState {
    /// Counts consumers: a receipt is valid only for its own.
    generation: u64,
    open: Option<OpenConsumer>,
}

struct OpenConsumer {
    consumer: Arc<KafkaConsumer>,
    partitions: BTreeMap<i32, ReceivedOffsets>,
}

/// What was received from a partition.
#[derive(Default)]
struct ReceivedOffsets {
    /// Neither acknowledged nor rejected yet.
    unfinished: BTreeSet<i64>,
    /// The offset after the last one that was received.
    next: i64,
}

impl ReceivedOffsets {
    fn received(&mut self, offset: i64) {
        self.unfinished.insert(offset);
        self.next = offset + 1;
    }

    /// The first message that must be delivered again after a crash.
    fn committed(&self) -> i64 {
        self.unfinished.first().copied().unwrap_or(self.next)
    }
}

impl KafkaIntake {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        let rejected = format!("{topic}{REJECTED}");
        check_topic(&rejected)?;
        let needs = format!(
            "to read and describe the topic {topic} and the group {topic}, and to write to {rejected}"
        );
        let sender = KafkaSender { hosts: KafkaHosts::new(options, needs)?, open: Mutex::default() };
        Ok(KafkaIntake { topic: topic.to_owned(), rejected, sender, state: Mutex::default() })
    }

    /// Joins the group, which takes effect later: while messages are received.
    async fn connect(&self) -> Result<OpenConsumer, BrokerError> {
        let (session, busy) =
            (INTAKE_REDELIVER_AFTER.as_millis().to_string(), BUSY_MAX.as_millis().to_string());
        let hosts = &self.sender.hosts;
        let consumer = Arc::new(hosts.consumer(&[
            ("group.id", &self.topic),
            ("auto.offset.reset", "earliest"),
            ("session.timeout.ms", &session),
            ("max.poll.interval.ms", &busy),
        ])?);
        hosts.find_topic(&consumer, &self.topic).await?;
        let joined = consumer.subscribe(&[&self.topic]);
        joined.map_err(|error| hosts.failed(&error, &consumer.reasons))?;
        Ok(OpenConsumer { consumer, partitions: BTreeMap::new() })
    }

    async fn receive_from(
        &self,
        open: &mut OpenConsumer,
        generation: u64,
    ) -> Result<Vec<IncomingMessage>, BrokerError> {
        let OpenConsumer { consumer, partitions } = open;
        let until = Instant::now() + INTAKE_WAIT_MAX;
        let mut received = vec![];
        while received.len() < INTAKE_BATCH_MAX {
            let next = if received.is_empty() {
                timeout_at(until, consumer.recv()).await.ok()
            } else {
                consumer.recv().now_or_never()
            };
            match next {
                None => break,
                Some(Ok(message)) => {
                    partitions.entry(message.partition()).or_default().received(message.offset());
                    received.push(incoming(&message, generation));
                }
                Some(Err(error)) if may_pass(&error) => {}
                Some(Err(error)) => return Err(self.sender.hosts.failed(&error, &consumer.reasons).into()),
            }
        }
        Ok(received)
    }

    /// Commits the offsets of the partitions whose messages are finished.
    async fn finish(
        &self,
        open: &mut OpenConsumer,
        generation: u64,
        receipts: impl Iterator<Item = &String>,
    ) -> Result<(), BrokerError> {
        let mut finished = BTreeSet::new();
        // Messages of a consumer that was replaced are delivered again.
        for receipt in receipts {
            if let Some((partition, offset)) = place(receipt, generation)
                && let Some(received) = open.partitions.get_mut(&partition)
                && received.unfinished.remove(&offset)
            {
                finished.insert(partition);
            }
        }
        if finished.is_empty() {
            return Ok(());
        }
        let consumer = open.consumer.clone();
        let mut offsets = TopicPartitionList::new();
        let failed = |error: KafkaError| self.sender.hosts.failed(&error, &open.consumer.reasons);
        for partition in finished {
            let offset = Offset::Offset(open.partitions[&partition].committed());
            offsets.add_partition_offset(&self.topic, partition, offset).map_err(failed)?;
        }
        let committed = blocking(move || consumer.commit(&offsets, CommitMode::Sync)).await;
        Ok(committed.map_err(failed)?)
    }
}

/// A message with its receipt, `GENERATION:PARTITION:OFFSET`. Its own id, if it has one, is in a header. The time of the
/// record is part of the other id: offsets begin again after a topic was deleted.
fn incoming(message: &BorrowedMessage<'_>, generation: u64) -> IncomingMessage {
    let (partition, offset) = (message.partition(), message.offset());
    let header = message.headers().and_then(|headers| headers.iter().find(|header| header.key == ID));
    let given = header.and_then(|header| std::str::from_utf8(header.value?).ok()).filter(|id| !id.is_empty());
    let time = message.timestamp().to_millis().unwrap_or_default();
    IncomingMessage {
        id: Some(given.map_or_else(|| format!("{partition}:{offset}:{time}"), str::to_owned)),
        body: message.payload().unwrap_or_default().to_vec(),
        receipt: format!("{generation}:{partition}:{offset}"),
    }
}

/// The partition and the offset of a receipt of this consumer.
fn place(receipt: &str, generation: u64) -> Option<(i32, i64)> {
    let (given, place) = receipt.split_once(':')?;
    let (partition, offset) = place.split_once(':')?;
    (given == generation.to_string()).then_some((partition.parse().ok()?, offset.parse().ok()?))
}

impl fmt::Debug for KafkaIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KafkaIntake({})", self.topic)
    }
}

#[async_trait]
impl MessageSource for KafkaIntake {
    fn kind(&self) -> &'static str {
        "kafka"
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
        let mut state = self.state.lock().await;
        // A consumer that could not commit is replaced: then unfinished messages are delivered again.
        let Some(mut open) = state.open.take() else { return Ok(()) };
        let receipts = messages.iter().map(|message| &message.receipt);
        in_time(self.finish(&mut open, state.generation, receipts)).await?;
        state.open = Some(open);
        Ok(())
    }

    async fn reject(&self, message: &IncomingMessage, why: &str) -> Result<(), BrokerError> {
        let mut state = self.state.lock().await;
        let Some(mut open) = state.open.take() else { return Ok(()) };
        let headers = [(ID, message.id.as_deref().unwrap_or_default()), ("error", why)];
        let record = KafkaRecord { topic: &self.rejected, key: None, headers: &headers, body: &message.body };
        in_time(async {
            self.sender.send(std::iter::once(record)).await?;
            self.finish(&mut open, state.generation, std::iter::once(&message.receipt)).await
        })
        .await?;
        state.open = Some(open);
        Ok(())
    }
}
