//! The ready queue over any broker: signs, checks and merges messages, and watches the connection.
//!
//! Every process receives every message, including its own. The watchdog relies on that: a process that has not
//! received one of its own messages for a while sends a ping, and reconnects if the ping does not come back. So a
//! subscription that a broker has forgotten, an exchange that was deleted or a dead connection is found within
//! seconds, although no call has failed. Until then hints are missing, and scans of the database find the work.

use crate::amqp::AmqpTransport;
#[cfg(feature = "kafka")]
use crate::kafka::KafkaTransport;
use crate::message::{MessageCodec, ReadyContent, ReadyMessage};
use crate::nats::NatsTransport;
use crate::options::{BrokerKind, BrokerOpenError, BrokerOptions};
use crate::redis::RedisTransport;
use crate::repeats::SeenMessages;
use crate::transport::{BrokerSubscription, BrokerTransport};
use async_trait::async_trait;
use futures_util::FutureExt;
use punctual_core::limits::{
    BROKER_ANSWER_MAX, BROKER_PING_INTERVAL, BROKER_PING_MAX, READY_MESSAGES_MERGED_MAX,
};
use punctual_core::ports::{ReadyHint, ReadyQueue, ReadyQueueError, ReadyQueueFigures};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until, timeout};

/// The identity of this process among those that share the queue, and the key that they share.
#[derive(Clone)]
pub struct QueueMember {
    /// Random text, new at each start of a process.
    pub sender: String,
    /// The key of the cluster.
    pub key: [u8; 32],
}

pub struct BrokerQueue {
    kind: BrokerKind,
    /// For messages.
    address: String,
    transport: Box<dyn BrokerTransport>,
    codec: MessageCodec,
    sender: String,
    last_number: AtomicU64,
    inbox: Mutex<Inbox>,
    rejected: AtomicU64,
    repeated: AtomicU64,
    watchdog_reconnects: AtomicU64,
    has_warned_of_rejected: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    watched: Option<Watched>,
    seen: SeenMessages,
}

/// A subscription with its watchdog.
struct Watched {
    subscription: Box<dyn BrokerSubscription>,
    /// When the next ping is due or, while a ping is in flight, when it must have come back.
    due: Instant,
    is_ping_under_way: bool,
}

impl Watched {
    /// A message of this process has arrived.
    fn delivered(&mut self) {
        (self.due, self.is_ping_under_way) = (Instant::now() + BROKER_PING_INTERVAL, false);
    }
}

impl BrokerQueue {
    /// Does not connect yet: a process starts without its broker.
    pub fn new(options: &BrokerOptions, member: QueueMember) -> Result<Self, BrokerOpenError> {
        let transport: Box<dyn BrokerTransport> = match options.kind {
            BrokerKind::Redis => Box::new(RedisTransport::new(options)?),
            BrokerKind::Nats => Box::new(NatsTransport::new(options)?),
            BrokerKind::Amqp => Box::new(AmqpTransport::new(options)?),
            #[cfg(feature = "kafka")]
            BrokerKind::Kafka => Box::new(KafkaTransport::new(options)?),
        };
        Ok(BrokerQueue {
            kind: options.kind,
            address: options.address(),
            transport,
            codec: MessageCodec::new(&member.key),
            sender: member.sender,
            last_number: AtomicU64::new(0),
            inbox: Mutex::default(),
            rejected: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            watchdog_reconnects: AtomicU64::new(0),
            has_warned_of_rejected: AtomicBool::new(false),
        })
    }

    async fn send(&self, content: ReadyContent) -> Result<(), ReadyQueueError> {
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let message = self.codec.write(ReadyMessage { from: self.sender.clone(), number, content });
        self.in_time(self.transport.publish(message)).await
    }

    /// Sends arbitrary bytes, as any program with access to the broker could.
    #[cfg(test)]
    pub(crate) async fn publish_bytes(&self, message: Vec<u8>) -> Result<(), ReadyQueueError> {
        self.transport.publish(message).await
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, ReadyQueueError>>,
    ) -> Result<T, ReadyQueueError> {
        timeout(BROKER_ANSWER_MAX, call).await.unwrap_or_else(|_| {
            Err(ReadyQueueError::Unavailable(format!(
                "{} at {} did not answer within {} s",
                self.kind.name(),
                self.address,
                BROKER_ANSWER_MAX.as_secs()
            )))
        })
    }

    /// Subscribes, and waits until a ping has come back: from then on hints arrive.
    async fn connect(&self, seen: &mut SeenMessages) -> Result<Watched, ReadyQueueError> {
        let subscription = self.in_time(self.transport.subscribe()).await?;
        let mut watched = Watched { subscription, due: Instant::now(), is_ping_under_way: false };
        self.keep_alive(&mut watched).await?;
        while watched.is_ping_under_way {
            // Hints that arrive meanwhile are part of "any lane".
            self.step(&mut watched, seen).await?;
        }
        Ok(watched)
    }

    /// Waits for messages or for the watchdog. Returns the hint in the messages; it is empty if there was none.
    async fn step(
        &self,
        watched: &mut Watched,
        seen: &mut SeenMessages,
    ) -> Result<ReadyHint, ReadyQueueError> {
        let mut hint = ReadyHint::default();
        tokio::select! {
            biased;
            message = watched.subscription.next() => {
                self.accept(&message?, watched, seen, &mut hint);
                for _ in 1..READY_MESSAGES_MERGED_MAX {
                    let Some(message) = watched.subscription.next().now_or_never() else { break };
                    self.accept(&message?, watched, seen, &mut hint);
                }
            }
            () = sleep_until(watched.due) => self.keep_alive(watched).await?,
        }
        Ok(hint)
    }

    async fn keep_alive(&self, watched: &mut Watched) -> Result<(), ReadyQueueError> {
        if watched.is_ping_under_way {
            self.watchdog_reconnects.fetch_add(1, Ordering::Relaxed);
            return Err(ReadyQueueError::Unavailable(format!(
                "{} at {} does not deliver: a message of this process did not come back within {} s; check that its \
                 user may publish and subscribe",
                self.kind.name(),
                self.address,
                BROKER_PING_MAX.as_secs()
            )));
        }
        self.send(ReadyContent::Ping).await?;
        (watched.due, watched.is_ping_under_way) = (Instant::now() + BROKER_PING_MAX, true);
        Ok(())
    }

    /// Adds a message to a hint, if it is a new one of another process of this cluster.
    fn accept(&self, bytes: &[u8], watched: &mut Watched, seen: &mut SeenMessages, hint: &mut ReadyHint) {
        let Some(ReadyMessage { from, number, content }) = self.codec.read(bytes) else {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            if !self.has_warned_of_rejected.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    broker = self.kind.word(),
                    "a message in the ready queue is not signed with the key of this cluster, or has another format; such \
                     messages are ignored"
                );
            }
            return;
        };
        if !seen.is_new(&from, number) {
            self.repeated.fetch_add(1, Ordering::Relaxed);
        } else if from == self.sender {
            watched.delivered();
        } else if let Some(more) = content.hint() {
            hint.merge(more);
        }
    }

    async fn receive_from(&self, inbox: &mut Inbox) -> Result<ReadyHint, ReadyQueueError> {
        let Inbox { watched, seen } = inbox;
        let Some(watched) = watched else {
            *watched = Some(self.connect(seen).await?);
            return Ok(ReadyHint::AnyLane);
        };
        loop {
            let hint = self.step(watched, seen).await?;
            if !hint.is_empty() {
                return Ok(hint);
            }
        }
    }
}

#[async_trait]
impl ReadyQueue for BrokerQueue {
    fn kind(&self) -> &'static str {
        self.kind.word()
    }

    async fn publish(&self, hint: ReadyHint) -> Result<(), ReadyQueueError> {
        if hint.is_empty() {
            return Ok(());
        }
        self.send(ReadyContent::of(hint)).await
    }

    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError> {
        let mut inbox = self.inbox.lock().await;
        let received = self.receive_from(&mut inbox).await;
        if received.is_err() {
            inbox.watched = None;
        }
        received
    }

    fn figures(&self) -> ReadyQueueFigures {
        ReadyQueueFigures {
            rejected: self.rejected.load(Ordering::Relaxed),
            repeated: self.repeated.load(Ordering::Relaxed),
            watchdog_reconnects: self.watchdog_reconnects.load(Ordering::Relaxed),
        }
    }
}
