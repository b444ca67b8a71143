//! Kafka: one partition of one topic, which every process reads from its end without a consumer group.
//!
//! A consumer group would give each hint to one of its members. All hints use the first partition, so a topic with more
//! partitions costs no further connections. Kafka keeps what it receives: the retention of the topic limits how much,
//! and nothing reads it twice.
//!
//! librdkafka connects in the background and repeats what fails. Here a client that has failed is replaced, so that its
//! process knows when hints were missing.

use crate::options::{BrokerOpenError, BrokerOptions, SettingNames};
use crate::transport::{BrokerSubscription, BrokerTransport};
use async_trait::async_trait;
use futures_util::{FutureExt, TryFutureExt};
use punctual_core::limits::{BROKER_ANSWER_MAX, BROKER_CONFIRM_MAX};
use punctual_core::ports::ReadyQueueError;
use punctual_core::service_url::{Login, Tls, advice};
use punctual_tls::{TlsFileError, pem_file};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{Consumer, ConsumerContext, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The partition of hints.
const PARTITION: i32 = 0;
/// The pause before the next look at a topic that the broker is about to create, and how many there are.
const TOPIC_PAUSE: Duration = Duration::from_millis(100);
const TOPIC_TRIES_MAX: usize = 10;
/// The longest name of a topic.
const TOPIC_BYTES_MAX: usize = 249;

pub(crate) struct KafkaTransport {
    hosts: KafkaHosts,
    topic: String,
    publisher: tokio::sync::Mutex<Option<KafkaProducer>>,
}

/// The configured brokers.
#[derive(Clone)]
pub(crate) struct KafkaHosts {
    config: ClientConfig,
    /// For messages.
    pub address: String,
    names: SettingNames,
    /// The permissions that the user needs, for error messages.
    needs: String,
}

/// A client, and the reasons that librdkafka gives for its failures.
pub(crate) struct KafkaClient<T: Send + 'static> {
    client: Option<T>,
    pub reasons: KafkaReasons,
}

pub(crate) type KafkaProducer = KafkaClient<FutureProducer<KafkaReasons>>;
pub(crate) type KafkaConsumer = KafkaClient<StreamConsumer<KafkaReasons>>;

/// The last reason why a broker could not be used, and whether there is another one.
#[derive(Clone, Default)]
pub(crate) struct KafkaReasons {
    last: Arc<Mutex<Option<(RDKafkaErrorCode, String)>>>,
    all_down: Arc<Notify>,
}

struct KafkaSubscription {
    consumer: Arc<KafkaConsumer>,
    hosts: KafkaHosts,
}

impl ClientContext for KafkaReasons {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, line: &str) {
        tracing::debug!(facility, line, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            // This follows the reasons of each.
            Some(RDKafkaErrorCode::AllBrokersDown) => self.all_down.notify_one(),
            Some(code) => {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((code, reason.to_owned()));
            }
            None => {}
        }
    }
}

impl ConsumerContext for KafkaReasons {}

impl<T: Send> Deref for KafkaClient<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.client.as_ref().expect("only dropping takes it")
    }
}

/// Closing waits for answers of brokers, so another thread does it.
impl<T: Send> Drop for KafkaClient<T> {
    fn drop(&mut self) {
        let client = self.client.take();
        // Without a thread, the closure is dropped here, and the client with it.
        let _ = std::thread::Builder::new().name("kafka-close".to_owned()).spawn(move || drop(client));
    }
}

impl KafkaHosts {
    pub fn new(options: &BrokerOptions, needs: String) -> Result<Self, BrokerOpenError> {
        let mut config = ClientConfig::new();
        for (key, value) in [
            ("bootstrap.servers", options.address()),
            ("client.id", "punctual".to_owned()),
            ("security.protocol", protocol(options).to_owned()),
            ("socket.keepalive.enable", true.to_string()),
            ("socket.timeout.ms", BROKER_CONFIRM_MAX.as_millis().to_string()),
            // Instead of 10 s, so that a broker that is back is used soon.
            ("reconnect.backoff.max.ms", 1_000.to_string()),
            ("enable.metrics.push", false.to_string()),
        ] {
            config.set(key, value);
        }
        config.set_log_level(RDKafkaLogLevel::Error);
        if let Some(Login { user, password }) = &options.login {
            config.set("sasl.mechanism", options.sasl.word());
            config.set("sasl.username", user).set("sasl.password", &password.0);
        }
        if let Some(tls) = &options.tls {
            set_tls(&mut config, tls)?;
        }
        Ok(KafkaHosts { config, address: options.address(), names: options.names, needs })
    }

    /// A producer that gives up after this time, and keeps the order of what it sends.
    pub fn producer(&self, confirmed_within: Duration) -> Result<KafkaProducer, ReadyQueueError> {
        let mut config = self.config.clone();
        config.set("enable.idempotence", "true").set("linger.ms", "0");
        config.set("message.timeout.ms", confirmed_within.as_millis().to_string());
        let reasons = KafkaReasons::default();
        match config.create_with_context(reasons.clone()) {
            Ok(client) => Ok(KafkaClient { client: Some(client), reasons }),
            Err(error) => Err(self.failed(&error, &reasons)),
        }
    }

    /// A consumer that has neither a topic nor partitions yet. Offsets are committed by the caller.
    pub fn consumer(&self, settings: &[(&str, &str)]) -> Result<KafkaConsumer, ReadyQueueError> {
        let mut config = self.config.clone();
        config.set("enable.auto.commit", "false").set("allow.auto.create.topics", "true");
        for (key, value) in settings {
            config.set(*key, *value);
        }
        let reasons = KafkaReasons::default();
        match config.create_with_context(reasons.clone()) {
            Ok(client) => Ok(KafkaClient { client: Some(client), reasons }),
            Err(error) => Err(self.failed(&error, &reasons)),
        }
    }

    /// Waits until the topic exists: brokers create it now, if they are allowed to.
    pub async fn find_topic(
        &self,
        consumer: &Arc<KafkaConsumer>,
        topic: &str,
    ) -> Result<(), ReadyQueueError> {
        let mut last = RDKafkaErrorCode::UnknownTopicOrPartition;
        for _ in 0..TOPIC_TRIES_MAX {
            let (asked, topic) = (consumer.clone(), topic.to_owned());
            let answer = blocking(move || {
                let metadata = asked.fetch_metadata(Some(&topic), BROKER_ANSWER_MAX)?;
                let failed = metadata.topics().iter().find_map(|topic| topic.error());
                Ok(failed.map(RDKafkaErrorCode::from))
            });
            let answer = tokio::select! {
                biased;
                answer = answer => answer,
                error = consumer.failure() => Err(error),
            };
            match answer {
                Ok(None) => return Ok(()),
                Ok(Some(code)) if is_being_created(code) => last = code,
                Ok(Some(code)) => {
                    return Err(self.failed(&KafkaError::MetadataFetch(code), &consumer.reasons));
                }
                Err(error) => return Err(self.failed(&error, &consumer.reasons)),
            }
            tokio::time::sleep(TOPIC_PAUSE).await;
        }
        Err(self.failed(&KafkaError::MetadataFetch(last), &consumer.reasons))
    }

    /// An error for users. A call that was only not answered has failed for the last reason that librdkafka gave.
    pub fn failed(&self, error: &KafkaError, reasons: &KafkaReasons) -> ReadyQueueError {
        let (address, SettingNames { url, password_file }) = (&self.address, self.names);
        let reason = reasons.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (code, why) = match (error.rdkafka_error_code(), reason) {
            (Some(code), Some((reason, why))) if is_without_answer(code) => (Some(reason), why),
            (code, _) => (code, error.to_string()),
        };
        use RDKafkaErrorCode as Code;
        match code {
            Some(
                Code::Authentication
                | Code::SaslAuthenticationFailed
                | Code::UnsupportedSASLMechanism
                | Code::IllegalSASLState,
            ) => ReadyQueueError::Rejected(format!(
                "Kafka at {address} rejects the login: {why}; check user and password ({url}, {password_file}), and ?sasl= \
                 in {url}"
            )),
            Some(
                Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::ClusterAuthorizationFailed,
            ) => ReadyQueueError::Rejected(format!(
                "Kafka at {address} denies access: {why}; allow the user {}",
                self.needs
            )),
            Some(code) if is_being_created(code) => ReadyQueueError::Unavailable(format!(
                "Kafka at {address} does not create the topic: {why}; create it, or set auto.create.topics.enable on the \
                 brokers; needed: {}",
                self.needs
            )),
            Some(Code::MessageSizeTooLarge) => ReadyQueueError::Unavailable(format!(
                "Kafka at {address} does not accept a message of this size: raise max.message.bytes of the topic"
            )),
            _ => ReadyQueueError::Unavailable(format!(
                "Kafka at {address} cannot be used: {why}; {}",
                advice(&why, url)
            )),
        }
    }
}

impl KafkaProducer {
    /// Waits for confirmations, or until there is no broker to confirm anything. librdkafka would wait longer.
    pub async fn confirmed<T>(
        &self,
        confirmations: impl Future<Output = Result<T, KafkaError>>,
    ) -> Result<T, KafkaError> {
        // They may be back since. If they are not, librdkafka says so again when it has tried to connect.
        let _ = self.reasons.all_down.notified().now_or_never();
        tokio::select! {
            biased;
            confirmed = confirmations => confirmed,
            () = self.reasons.all_down.notified() => Err(KafkaError::Global(RDKafkaErrorCode::AllBrokersDown)),
        }
    }
}

impl KafkaConsumer {
    /// The next failure of a consumer that has no partitions yet.
    async fn failure(&self) -> KafkaError {
        loop {
            if let Err(error) = self.recv().await
                && !may_pass(&error)
            {
                return error;
            }
        }
    }
}

fn protocol(options: &BrokerOptions) -> &'static str {
    match (options.login.is_some(), options.tls.is_some()) {
        (false, false) => "plaintext",
        (false, true) => "ssl",
        (true, false) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    }
}

fn set_tls(config: &mut ClientConfig, tls: &Tls) -> Result<(), TlsFileError> {
    let text = |path: &Path| Ok::<_, TlsFileError>(String::from_utf8_lossy(&pem_file(path)?).into_owned());
    match &tls.ca {
        Some(ca) => config.set("ssl.ca.pem", text(ca)?),
        // The authorities that this machine trusts.
        None => config.set("ssl.ca.location", "probe"),
    };
    if let Some(identity) = &tls.identity {
        config.set("ssl.certificate.pem", text(&identity.certificate)?);
        config.set("ssl.key.pem", text(&identity.key)?);
    }
    Ok(())
}

/// Rejects names of topics that Kafka does not permit.
pub(crate) fn check_topic(topic: &str) -> Result<(), BrokerOpenError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if topic.len() <= TOPIC_BYTES_MAX && topic.chars().all(is_plain) {
        return Ok(());
    }
    Err(BrokerOpenError::Options(format!(
        "{topic} cannot be a topic of Kafka: use at most {TOPIC_BYTES_MAX} letters, digits, dots, dashes and underscores"
    )))
}

const fn is_being_created(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::LeaderNotAvailable
    )
}

const fn is_without_answer(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::Resolve
    )
}

/// Whether librdkafka reports trouble with one of several brokers, which it overcomes by itself.
pub(crate) fn may_pass(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(code, Some(RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve))
}

/// Runs a call that waits for brokers. It ends by itself even if its caller does not wait for it.
pub(crate) async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, KafkaError> {
    tokio::task::spawn_blocking(call).await.unwrap_or(Err(KafkaError::Canceled))
}

impl KafkaTransport {
    pub fn new(options: &BrokerOptions) -> Result<Self, BrokerOpenError> {
        let topic = format!("{}.ready", options.prefix.replace('/', "."));
        check_topic(&topic)?;
        let needs = format!("to read, write and describe the topic {topic}, and to read the group {topic}");
        Ok(KafkaTransport {
            hosts: KafkaHosts::new(options, needs)?,
            topic,
            publisher: tokio::sync::Mutex::default(),
        })
    }
}

#[async_trait]
impl BrokerTransport for KafkaTransport {
    async fn publish(&self, message: Vec<u8>) -> Result<(), ReadyQueueError> {
        let mut place = self.publisher.lock().await;
        // Taken out while it is used: a call that fails or is dropped leaves no broken client behind.
        let producer = match place.take() {
            Some(producer) => producer,
            None => self.hosts.producer(BROKER_ANSWER_MAX)?,
        };
        let record = FutureRecord::<(), [u8]>::to(&self.topic).partition(PARTITION).payload(&message);
        let sent = producer.send(record, BROKER_ANSWER_MAX).map_err(|(error, _)| error);
        let confirmed = producer.confirmed(sent).await;
        confirmed.map_err(|error| self.hosts.failed(&error, &producer.reasons))?;
        *place = Some(producer);
        Ok(())
    }

    async fn subscribe(&self) -> Result<Box<dyn BrokerSubscription>, ReadyQueueError> {
        // Partitions are assigned to a consumer with a group only. It does not join it, and commits nothing.
        let settings = [("group.id", self.topic.as_str()), ("auto.offset.reset", "error")];
        let consumer = Arc::new(self.hosts.consumer(&settings)?);
        self.hosts.find_topic(&consumer, &self.topic).await?;
        let failed = |error: KafkaError| self.hosts.failed(&error, &consumer.reasons);
        // Looked up now: "the end" would be looked up later, and skip hints that are sent until then.
        let (asked, topic) = (consumer.clone(), self.topic.clone());
        let end = blocking(move || Ok(asked.fetch_watermarks(&topic, PARTITION, BROKER_ANSWER_MAX)?.1));
        let mut places = TopicPartitionList::new();
        let end = Offset::Offset(end.await.map_err(failed)?);
        places.add_partition_offset(&self.topic, PARTITION, end).map_err(failed)?;
        consumer.assign(&places).map_err(failed)?;
        Ok(Box::new(KafkaSubscription { consumer, hosts: self.hosts.clone() }))
    }
}

#[async_trait]
impl BrokerSubscription for KafkaSubscription {
    async fn next(&mut self) -> Result<Vec<u8>, ReadyQueueError> {
        loop {
            match self.consumer.recv().await {
                Ok(message) => return Ok(message.payload().unwrap_or_default().to_vec()),
                Err(error) if may_pass(&error) => {}
                Err(error) => return Err(self.hosts.failed(&error, &self.consumer.reasons)),
            }
        }
    }
}
