//! NATS: a JetStream stream for events, and one with a durable consumer for jobs.
//!
//! JetStream is a set of requests with JSON on core NATS. The few that are needed here are written out, because the
//! client's own module would add crates for hundreds of others.

use super::{GROUP, REJECTED, in_time};
use crate::nats::NatsServers;
use crate::options::{BrokerOpenError, BrokerOptions};
use async_nats::connection::State;
use async_nats::{Client, HeaderMap, Message, RequestErrorKind, Subscriber};
use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use punctual_core::limits::{EVENTS_KEPT_MAX, INTAKE_BATCH_MAX, INTAKE_REDELIVER_AFTER, INTAKE_WAIT_MAX};
use punctual_core::ports::{BrokerError, EventSink, IncomingMessage, MessageSource, OutgoingEvent};
use serde_json::{Value, json};
use std::fmt;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The header by which JetStream recognizes repeated messages.
const MESSAGE_ID: &str = "Nats-Msg-Id";
/// The code of JetStream for a stream or consumer that does not exist.
const NOT_FOUND: i64 = 404;

/// A connection, replaced after errors, and the name of a subject with its stream.
struct JetStream {
    servers: NatsServers,
    subject: String,
    stream: String,
}

impl JetStream {
    fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        Ok(JetStream {
            servers: NatsServers::new(options)?,
            subject: topic.replace('/', "."),
            stream: topic.chars().map(|letter| if is_plain(letter) { letter } else { '_' }).collect(),
        })
    }

    /// A request to JetStream's API. `Ok(Err(_))` is an error response.
    async fn ask(
        &self,
        client: &Client,
        call: &str,
        body: &Value,
    ) -> Result<Result<Value, JetStreamError>, BrokerError> {
        let answer = client.request(format!("$JS.API.{call}"), body.to_string().into()).await;
        let answer = answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => BrokerError(format!(
                "NATS at {} has no JetStream: start nats-server with --jetstream, or allow the user to publish to $JS.API.>",
                self.servers.address
            )),
            _ => self.servers.failed(&error).into(),
        })?;
        parsed(&answer)
    }

    /// Creates the stream, unless there is one for the subject. Returns its name.
    async fn ensure_stream(
        &self,
        client: &Client,
        subject: &str,
        stream: &str,
        retention: Value,
    ) -> Result<String, BrokerError> {
        if let Some(name) = self.stream_of(client, subject).await? {
            return Ok(name);
        }
        let mut config =
            json!({ "name": stream, "subjects": [subject], "storage": "file", "num_replicas": 1 });
        for (key, value) in retention.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let created = self.ask(client, &format!("STREAM.CREATE.{stream}"), &config).await?;
        match created {
            Ok(_) => Ok(stream.to_owned()),
            // Another process may have created it at the same moment.
            Err(error) => {
                self.stream_of(client, subject).await?.ok_or_else(|| refused("create a stream")(error))
            }
        }
    }

    /// The stream that has a subject.
    async fn stream_of(&self, client: &Client, subject: &str) -> Result<Option<String>, BrokerError> {
        let found = self.ask(client, "STREAM.NAMES", &json!({ "subject": subject })).await?;
        let found = found.map_err(refused("find a stream"))?;
        Ok(found["streams"][0].as_str().map(str::to_owned))
    }

    /// Publishes a message, and waits until a stream has stored it. `Ok(false)` if no stream has the subject.
    async fn publish(&self, client: &Client, sent: Sent<'_>) -> Result<bool, BrokerError> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent.headers {
            // A header is one line.
            let line: String =
                value.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
            headers.insert(*name, line.as_str());
        }
        let body = sent.body.to_vec().into();
        match client.request_with_headers(sent.subject.to_owned(), headers, body).await {
            Ok(answer) => parsed(&answer)?.map(|_| true).map_err(refused("publish")),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(false),
            Err(error) => Err(self.servers.failed(&error).into()),
        }
    }
}

/// A message to publish.
struct Sent<'a> {
    subject: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

/// An error in an answer of JetStream.
struct JetStreamError {
    code: i64,
    description: String,
}

fn parsed(answer: &Message) -> Result<Result<Value, JetStreamError>, BrokerError> {
    let answer: Value = serde_json::from_slice(&answer.payload)
        .map_err(|error| BrokerError(format!("NATS answered with something that is not JSON: {error}")))?;
    if answer["error"].is_null() {
        return Ok(Ok(answer));
    }
    let error = &answer["error"];
    let description = error["description"].as_str().unwrap_or("unknown error").to_owned();
    Ok(Err(JetStreamError { code: error["code"].as_i64().unwrap_or_default(), description }))
}

fn refused(what: &'static str) -> impl Fn(JetStreamError) -> BrokerError {
    move |error| {
        BrokerError(format!("JetStream could not {what}: {} (code {})", error.description, error.code))
    }
}

fn no_stream(subject: &str) -> BrokerError {
    BrokerError(format!("no stream of JetStream has the subject {subject}"))
}

pub struct NatsEvents {
    jet_stream: JetStream,
    client: Mutex<Option<Client>>,
}

impl NatsEvents {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        Ok(NatsEvents { jet_stream: JetStream::new(options, topic)?, client: Mutex::default() })
    }

    async fn publish_all(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError> {
        let jet_stream = &self.jet_stream;
        let mut place = self.client.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken connection behind.
        let client = match place.take().filter(|client| client.connection_state() == State::Connected) {
            Some(client) => client,
            None => jet_stream.servers.connect().await?,
        };
        let publish = async |event: &OutgoingEvent| {
            let headers = [(MESSAGE_ID, event.id.as_str()), ("type", event.kind)];
            let sent = Sent { subject: &jet_stream.subject, headers: &headers, body: event.body.as_bytes() };
            jet_stream.publish(&client, sent).await
        };
        let Some((first, others)) = events.split_first() else { return Ok(()) };
        if !publish(first).await? {
            let retention = json!({ "retention": "limits", "max_msgs": EVENTS_KEPT_MAX, "discard": "old" });
            jet_stream.ensure_stream(&client, &jet_stream.subject, &jet_stream.stream, retention).await?;
            if !publish(first).await? {
                return Err(no_stream(&jet_stream.subject));
            }
        }
        for stored in join_all(others.iter().map(publish)).await {
            if !stored? {
                return Err(no_stream(&jet_stream.subject));
            }
        }
        *place = Some(client);
        Ok(())
    }
}

impl fmt::Debug for NatsEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NatsEvents({})", self.jet_stream.subject)
    }
}

#[async_trait]
impl EventSink for NatsEvents {
    fn kind(&self) -> &'static str {
        "nats"
    }

    async fn publish(&self, events: &[OutgoingEvent]) -> Result<(), BrokerError> {
        in_time(self.publish_all(events)).await
    }
}

pub struct NatsIntake {
    jet_stream: JetStream,
    open: Mutex<Option<OpenIntake>>,
}

struct OpenIntake {
    client: Client,
    messages: Subscriber,
    stream: String,
}

impl NatsIntake {
    pub fn new(options: &BrokerOptions, topic: &str) -> Result<Self, BrokerOpenError> {
        Ok(NatsIntake { jet_stream: JetStream::new(options, topic)?, open: Mutex::default() })
    }

    async fn connect(&self) -> Result<OpenIntake, BrokerError> {
        let JetStream { servers, subject, stream } = &self.jet_stream;
        let client = servers.connect().await?;
        // Messages that were acknowledged are deleted, and no others.
        let retention = json!({ "retention": "workqueue" });
        let stream = self.jet_stream.ensure_stream(&client, subject, stream, retention).await?;
        let deliver_to = format!("punctual.intake.{stream}");
        let messages = client.queue_subscribe(deliver_to.clone(), GROUP.to_owned()).await;
        let messages = messages.map_err(|error| servers.failed(&error))?;
        let about = self.jet_stream.ask(&client, &consumer("INFO", &stream), &json!({})).await?;
        match about {
            Ok(_) => {}
            Err(error) if error.code == NOT_FOUND => {
                let config = json!({
                    "durable_name": GROUP,
                    "deliver_subject": deliver_to,
                    "deliver_group": GROUP,
                    "filter_subject": subject,
                    "deliver_policy": "all",
                    "ack_policy": "explicit",
                    "ack_wait": INTAKE_REDELIVER_AFTER.as_nanos() as u64,
                    "max_ack_pending": 10 * INTAKE_BATCH_MAX,
                });
                let request = json!({ "stream_name": stream, "config": config });
                let created =
                    self.jet_stream.ask(&client, &consumer("DURABLE.CREATE", &stream), &request).await?;
                created.map_err(refused("create a consumer"))?;
            }
            Err(error) => return Err(refused("read a consumer")(error)),
        }
        Ok(OpenIntake { client, messages, stream })
    }

    async fn receive_from(&self, open: &mut OpenIntake) -> Result<Vec<IncomingMessage>, BrokerError> {
        let closed = || BrokerError("NATS has closed the subscription".to_owned());
        let first = match timeout(INTAKE_WAIT_MAX, open.messages.next()).await {
            Ok(message) => message.ok_or_else(closed)?,
            Err(_) => {
                // Nothing arrives from a consumer that was deleted, nor through a dead connection.
                let about =
                    self.jet_stream.ask(&open.client, &consumer("INFO", &open.stream), &json!({})).await?;
                about.map_err(refused("read a consumer"))?;
                return Ok(vec![]);
            }
        };
        let mut received = vec![first];
        while received.len() < INTAKE_BATCH_MAX {
            let Some(message) = open.messages.next().now_or_never() else { break };
            received.push(message.ok_or_else(closed)?);
        }
        Ok(received.into_iter().filter_map(incoming).collect())
    }

    /// Acknowledges messages, and waits until the server has received that.
    async fn acknowledge_all(&self, open: &OpenIntake, receipts: &[&str]) -> Result<(), BrokerError> {
        for receipt in receipts {
            let sent = open.client.publish((*receipt).to_owned(), "+ACK".into()).await;
            sent.map_err(|error| self.jet_stream.servers.failed(&error))?;
        }
        open.client.flush().await.map_err(|error| self.jet_stream.servers.failed(&error))?;
        Ok(())
    }

    async fn move_to_rejected(
        &self,
        open: &OpenIntake,
        message: &IncomingMessage,
        why: &str,
    ) -> Result<(), BrokerError> {
        let subject = format!("{}{REJECTED}", self.jet_stream.subject);
        let headers = [("id", message.id.as_deref().unwrap_or_default()), ("error", why)];
        let sent = || Sent { subject: &subject, headers: &headers, body: &message.body };
        if !self.jet_stream.publish(&open.client, sent()).await? {
            let stream = format!("{}_rejected", self.jet_stream.stream);
            let retention = json!({ "retention": "limits", "max_msgs": EVENTS_KEPT_MAX, "discard": "old" });
            self.jet_stream.ensure_stream(&open.client, &subject, &stream, retention).await?;
            if !self.jet_stream.publish(&open.client, sent()).await? {
                return Err(no_stream(&subject));
            }
        }
        self.acknowledge_all(open, &[&message.receipt]).await
    }
}

fn consumer(call: &str, stream: &str) -> String {
    format!("CONSUMER.{call}.{stream}.{GROUP}")
}

/// A message of a consumer. Its reply subject contains the stream and the position in it:
/// `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.PLACE.CONSUMER_PLACE.TIME.PENDING[.TOKEN]`.
fn incoming(message: Message) -> Option<IncomingMessage> {
    let receipt = message.reply?.to_string();
    let given =
        message.headers.as_ref().and_then(|headers| headers.get(MESSAGE_ID)).map(|id| id.as_str().to_owned());
    let parts: Vec<&str> = receipt.split('.').collect();
    let first = if parts.len() >= 11 { 4 } else { 2 };
    let place = || Some(format!("{}:{}", parts.get(first)?, parts.get(first + 3)?));
    let id = given.filter(|id| !id.is_empty()).or_else(place);
    Some(IncomingMessage { id, body: message.payload.to_vec(), receipt })
}

impl fmt::Debug for NatsIntake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NatsIntake({})", self.jet_stream.subject)
    }
}

#[async_trait]
impl MessageSource for NatsIntake {
    fn kind(&self) -> &'static str {
        "nats"
    }

    async fn receive(&self) -> Result<Vec<IncomingMessage>, BrokerError> {
        let mut place = self.open.lock().await;
        let mut open = match place.take() {
            Some(open) => open,
            None => in_time(self.connect()).await?,
        };
        let received = in_time(self.receive_from(&mut open)).await?;
        *place = Some(open);
        Ok(received)
    }

    async fn acknowledge(&self, messages: &[IncomingMessage]) -> Result<(), BrokerError> {
        let place = self.open.lock().await;
        // Messages of a lost connection are delivered again.
        let Some(open) = &*place else { return Ok(()) };
        let receipts: Vec<&str> = messages.iter().map(|message| message.receipt.as_str()).collect();
        in_time(self.acknowledge_all(open, &receipts)).await
    }

    async fn reject(&self, message: &IncomingMessage, why: &str) -> Result<(), BrokerError> {
        let place = self.open.lock().await;
        let Some(open) = &*place else { return Ok(()) };
        in_time(self.move_to_rejected(open, message, why)).await
    }
}
