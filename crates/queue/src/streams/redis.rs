//! Redis and Valkey: a stream for events, and a stream with a consumer group for jobs.
//!
//! If a consumer does not acknowledge a message for a while, another one claims it, so a killed process leaves no
//! message behind.

use super::{GROUP, REJECTED, in_time};
use crate::options::{BrokerOpenError, BrokerOptions};
use crate::redis::RedisHosts;
use async_trait::async_trait;
use punctual_core::limits::{EVENTS_KEPT_MAX, INTAKE_BATCH_MAX, INTAKE_REDELIVER_AFTER, INTAKE_WAIT_MAX};
use punctual_core::ports::{BrokerError, EventSink, IncomingMessage, MessageSource, OutgoingEvent};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError};
use std::collections::BTreeMap;
use std::fmt;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The field with the JSON text of a message, and that with its id.
const DATA: &str = "data";
const ID: &str = "id";
/// The first characters of errors about a group that exists, and about one that does not.
const GROUP_EXISTS: &str = "BUSYGROUP";
const NO_GROUP: &str = "NOGROUP";
/// That of errors about keys of another node.
const MOVED: &str = "MOVED";

/// A connection to the primary, replaced after errors.
struct RedisConnection {
    hosts: RedisHosts,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl RedisConnection {
    fn new(options: &BrokerOptions, needs: String) -> Result<Self, BrokerOpenError> {
        Ok(RedisConnection { hosts: RedisHosts::new(options, needs)?, open: Mutex::default() })
    }

    /// Runs commands, and returns the answers to all of them.
    async fn run<T: FromRedisValue>(&self, commands: &redis::Pipeline) -> Result<Vec<T>, Failed> {
        let mut place = self.open.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken connection behind.
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => self.hosts.primary().await.map_err(|error| Failed { error: error.into(), code: None })?.1,
        };
        let mut answers: Result<Vec<T>, RedisError> = commands.query_async(&mut connection).await;
        // Each node of a cluster has a part of the keys. All commands of a call have the same one.
        if let Some(node) = answers.as_ref().err().and_then(moved_to) {
            connection =
                self.hosts.node(&node).await.map_err(|error| Failed { error: error.into(), code: None })?;
            answers = commands.query_async(&mut connection).await;
        }
        let answers = answers.map_err(|error| {
            let said = self.hosts.said(&error).into();
            let first =
                error.into_server_errors().and_then(|errors| Some(errors.first()?.1.code().to_owned()));
            Failed { error: said, code: first }
        })?;
        *place = Some(connection);
        Ok(answers)
    }
}

/// The node of a cluster that has the key, as `HOST:PORT`.
fn moved_to(error: &RedisError) -> Option<String> {
    let errors = error.clone().into_server_errors()?;
    let (_, first) = errors.first()?;
    // `MOVED SLOT HOST:PORT`
    let node = first.details().filter(|_| first.code() == MOVED)?.split_whitespace().nth(1)?;
    Some(node.to_owned())
}

/// A call that has failed, with the code of Redis if it has answered.
struct Failed {
    error: BrokerError,
    code: Option<String>,
}

impl From<Failed> for BrokerError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

pub struct RedisEvents {
    connection: RedisConnection,
    stream: String,
}

impl RedisEvents {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        let needs = format!("XADD on the stream {topic}");
        Ok(RedisEvents { connection: RedisConnection::new(options, needs)?, stream: topic.to_owned() })
    }
}

impl fmt::Debug for RedisEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisEvents({})", self.stream)
    }
}

#[async_trait]
impl EventSink for RedisEvents {
    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError> {
        let mut pipeline = redis::pipe();
        for event in events {
            let add =
                pipeline.cmd("XADD").arg(&self.stream).arg("MAXLEN").arg("~").arg(EVENTS_KEPT_MAX).arg("*");
            add.arg(ID).arg(&event.id).arg("type").arg(event.kind).arg(DATA).arg(&event.body);
        }
        let places: Vec<String> = in_time(async { Ok(self.connection.run(&pipeline).await?) }).await?;
        if places.len() == events.len() {
            return Ok(());
        }
        Err(BrokerError(format!("Redis confirmed {} of {} events", places.len(), events.len())))
    }
}

pub struct RedisIntake {
    connection: RedisConnection,
    stream: String,
    consumer: String,
    /// When to claim messages of other consumers next.
    claims_at: Mutex<Option<Instant>>,
}

/// Entries of a stream: their ids and fields. A deleted entry has no fields.
type StreamEntries = Vec<(String, Option<BTreeMap<String, Vec<u8>>>)>;

impl RedisIntake {
    pub fn new(options: &BrokerOptions, topic: &str, consumer: &str) -> Result<Self, BrokerOpenError> {
        let needs = format!(
            "XGROUP, XREADGROUP, XAUTOCLAIM, XACK and XADD on the streams {topic} and {topic}{REJECTED}"
        );
        Ok(RedisIntake {
            connection: RedisConnection::new(options, needs)?,
            stream: topic.to_owned(),
            consumer: consumer.to_owned(),
            claims_at: Mutex::default(),
        })
    }

    /// Messages that other consumers received and did not acknowledge in time.
    async fn left_behind(&self) -> Result<StreamEntries, Failed> {
        let mut claims_at = self.claims_at.lock().await;
        if claims_at.is_some_and(|at| Instant::now() < at) {
            return Ok(vec![]);
        }
        let mut pipeline = redis::pipe();
        let idle_ms = INTAKE_REDELIVER_AFTER.as_millis() as u64;
        let claim = pipeline.cmd("XAUTOCLAIM").arg(&self.stream).arg(GROUP).arg(&self.consumer).arg(idle_ms);
        claim.arg("0-0").arg("COUNT").arg(INTAKE_BATCH_MAX);
        // The answers of Redis 6 and 7 differ after the entries.
        let answers: Vec<Vec<redis::Value>> = self.connection.run(&pipeline).await?;
        let entries = answers.into_iter().flatten().nth(1).map(redis::from_redis_value::<StreamEntries>);
        let entries = entries.transpose().map_err(|error| Failed {
            error: BrokerError(format!("Redis answered XAUTOCLAIM in an unknown form: {error}")),
            code: None,
        })?;
        let entries = entries.unwrap_or_default();
        // While there are some, there may be more.
        *claims_at = entries.is_empty().then(|| Instant::now() + INTAKE_REDELIVER_AFTER / 4);
        Ok(entries)
    }

    async fn new_ones(&self) -> Result<StreamEntries, Failed> {
        let mut pipeline = redis::pipe();
        let read = pipeline.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg(&self.consumer);
        read.arg("COUNT").arg(INTAKE_BATCH_MAX).arg("BLOCK").arg(INTAKE_WAIT_MAX.as_millis() as u64);
        read.arg("STREAMS").arg(&self.stream).arg(">");
        let answers: Vec<Option<Vec<(String, StreamEntries)>>> = self.connection.run(&pipeline).await?;
        let streams = answers.into_iter().flatten().flatten();
        Ok(streams.flat_map(|(_, entries)| entries).collect())
    }

    async fn next(&self) -> Result<StreamEntries, Failed> {
        let entries = self.left_behind().await?;
        if entries.is_empty() { self.new_ones().await } else { Ok(entries) }
    }

    async fn create_group(&self) -> Result<(), BrokerError> {
        let mut pipeline = redis::pipe();
        pipeline.cmd("XGROUP").arg("CREATE").arg(&self.stream).arg(GROUP).arg("0").arg("MKSTREAM");
        match self.connection.run::<String>(&pipeline).await {
            Err(failed) if failed.code.as_deref() != Some(GROUP_EXISTS) => Err(failed.error),
            _ => Ok(()),
        }
    }

    async fn acknowledge_ids(&self, ids: impl Iterator<Item = &String>) -> Result<(), BrokerError> {
        let mut pipeline = redis::pipe();
        let acknowledge = pipeline.cmd("XACK").arg(&self.stream).arg(GROUP);
        ids.for_each(|id| {
            acknowledge.arg(id);
        });
        self.connection.run::<i64>(&pipeline).await?;
        Ok(())
    }
}

impl fmt::Debug for RedisIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisIntake({})", self.stream)
    }
}

#[async_trait]
impl MessageSource for RedisIntake {
    fn kind(&self) -> &'static str {
        "redis"
    }

    async fn receive(&self) -> Result<Vec<IncomingMessage>, BrokerError> {
        let receiving = async {
            match self.next().await {
                Err(failed) if failed.code.as_deref() == Some(NO_GROUP) => {
                    self.create_group().await?;
                    Ok(self.next().await?)
                }
                answer => Ok(answer?),
            }
        };
        let entries = in_time(receiving).await?;
        // Entries that were deleted meanwhile need nothing: Redis has removed them from the group.
        let messages = entries.into_iter().filter_map(|(place, fields)| {
            let mut fields = fields?;
            let given =
                fields.remove(ID).and_then(|id| String::from_utf8(id).ok()).filter(|id| !id.is_empty());
            let body = match fields.remove(DATA) {
                Some(body) => body,
                // A single field needs no name.
                None if fields.len() == 1 => fields.into_values().next().unwrap_or_default(),
                None => vec![],
            };
            Some(IncomingMessage { id: Some(given.unwrap_or_else(|| place.clone())), body, receipt: place })
        });
        Ok(messages.collect())
    }

    async fn acknowledge(&self, messages: &[IncomingMessage]) -> Result<(), BrokerError> {
        in_time(self.acknowledge_ids(messages.iter().map(|message| &message.receipt))).await
    }

    async fn reject(&self, message: &IncomingMessage, why: &str) -> Result<(), BrokerError> {
        let mut pipeline = redis::pipe();
        let add = pipeline.cmd("XADD").arg(format!("{}{REJECTED}", self.stream)).arg("*");
        add.arg(ID).arg(message.id.as_deref().unwrap_or_default());
        add.arg("error").arg(why).arg(DATA).arg(&message.body);
        in_time(async {
            self.connection.run::<String>(&pipeline).await?;
            self.acknowledge_ids([&message.receipt].into_iter()).await
        })
        .await
    }
}
