//! Events to other systems and messages from them, on every broker.

use super::{NATS, RABBITMQ, REDIS, options, url};
use crate::options::{BrokerOptions, SettingNames};
use crate::streams::{event_sink, message_source};
use punctual_core::limits::INTAKE_BATCH_MAX;
use punctual_core::ports::{EventSink, IncomingMessage, MessageSource, OutgoingEvent};
use punctual_test_servers::Servers;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A topic that no other test uses.
pub(super) struct Place {
    options: BrokerOptions,
    pub topic: String,
}

impl Place {
    pub fn new(url: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let topic = format!("test-{}-{number}.events", std::process::id());
        Place { options: options(url).configured_as(SettingNames::EVENTS), topic }
    }

    pub fn sink(&self) -> Arc<dyn EventSink> {
        event_sink(&self.options, &self.topic).unwrap()
    }

    pub fn source(&self, consumer: &str) -> Arc<dyn MessageSource> {
        message_source(&self.options, &self.topic, consumer).unwrap()
    }

    pub fn rejected(&self) -> Arc<dyn MessageSource> {
        message_source(&self.options, &format!("{}.rejected", self.topic), "rejected").unwrap()
    }
}

pub(super) fn events(numbers: std::ops::Range<usize>) -> Vec<OutgoingEvent> {
    let event = |number: usize| OutgoingEvent {
        id: format!("id-{number}"),
        kind: "punctual.execution.finished",
        subject: "job-1".to_owned(),
        body: format!("{{\"number\":{number}}}"),
    };
    numbers.map(event).collect()
}

/// Receives until there are some messages. Errors fail the test.
pub(super) async fn received(source: &dyn MessageSource) -> Vec<IncomingMessage> {
    let start = Instant::now();
    loop {
        let messages = source.receive().await.unwrap_or_else(|error| panic!("{error}"));
        if !messages.is_empty() {
            return messages;
        }
        assert!(start.elapsed() < PATIENCE, "no message arrived");
    }
}

pub(super) fn id(message: &IncomingMessage) -> String {
    message.id.clone().expect("the sender has given an id")
}

pub(super) async fn events_arrive_in_order_and_leave_when_they_are_acknowledged(place: Place) {
    let (sink, source) = (place.sink(), place.source("one"));
    let sent = events(0..250);
    for batch in sent.chunks(100) {
        sink.publish(batch).await.unwrap();
    }
    let mut arrived = vec![];
    while arrived.len() < sent.len() {
        let messages = received(&*source).await;
        assert!(messages.len() <= INTAKE_BATCH_MAX, "{}", messages.len());
        source.acknowledge(&messages).await.unwrap();
        arrived.extend(messages);
    }
    let arrived: Vec<(String, Vec<u8>)> =
        arrived.iter().map(|message| (id(message), message.body.clone())).collect();
    let sent: Vec<(String, Vec<u8>)> =
        sent.into_iter().map(|event| (event.id, event.body.into_bytes())).collect();
    assert_eq!(arrived, sent);
    // Another process finds only new messages.
    let other = place.source("other");
    drop(source);
    assert_eq!(other.receive().await.unwrap(), []);
    sink.publish(&events(900..901)).await.unwrap();
    assert_eq!(id(&received(&*other).await[0]), "id-900");
}

pub(super) async fn a_message_that_is_not_acknowledged_is_delivered_again(place: Place) {
    place.sink().publish(&events(0..10)).await.unwrap();
    let lost = place.source("lost");
    let mut held = BTreeSet::new();
    while held.len() < 10 {
        held.extend(received(&*lost).await.iter().map(id));
    }
    drop(lost);
    let next = place.source("next");
    let mut again = BTreeSet::new();
    while again.len() < 10 {
        let messages = received(&*next).await;
        next.acknowledge(&messages).await.unwrap();
        again.extend(messages.iter().map(id));
    }
    assert_eq!(again, held);
}

pub(super) async fn a_rejected_message_is_stored_separately(place: Place) {
    place.sink().publish(&events(0..2)).await.unwrap();
    let source = place.source("one");
    let mut messages = vec![];
    while messages.len() < 2 {
        messages.extend(received(&*source).await);
    }
    source.reject(&messages[0], "it is no job:\nline 2").await.unwrap();
    source.acknowledge(&messages[1..]).await.unwrap();
    let rejected = received(&*place.rejected()).await;
    assert_eq!(
        rejected.iter().map(|message| message.body.clone()).collect::<Vec<_>>(),
        [messages[0].body.clone()]
    );
    drop(source);
    assert_eq!(place.source("two").receive().await.unwrap(), [], "it was moved");
}

pub(super) async fn processes_share_the_messages(place: Place) {
    let (one, two) = (place.source("one"), place.source("two"));
    // Both are connected before there is anything.
    assert_eq!((one.receive().await.unwrap(), two.receive().await.unwrap()), (vec![], vec![]));
    place.sink().publish(&events(0..300)).await.unwrap();
    let mut seen = BTreeMap::<String, usize>::new();
    let mut is_repeated = false;
    while seen.len() < 300 {
        for source in [&one, &two] {
            let messages = source.receive().await.unwrap();
            if !messages.is_empty()
                && let Err(error) = source.acknowledge(&messages).await
            {
                // Kafka may still be dividing the partitions. Then it delivers these messages again.
                assert!(error.to_string().contains("rebalance"), "{error}");
                is_repeated = true;
            }
            messages.iter().for_each(|message| *seen.entry(id(message)).or_default() += 1);
        }
    }
    assert!(is_repeated || seen.values().all(|times| *times == 1), "{seen:?}");
}

async fn a_restarted_broker_is_used_again(service: &'static str) {
    let mut servers = Servers::start(service).unwrap();
    let place = Place::new(&servers.all()[0].url);
    let (sink, source) = (place.sink(), place.source("one"));
    sink.publish(&events(0..1)).await.unwrap();
    let messages = received(&*source).await;
    source.acknowledge(&messages).await.unwrap();
    let name = servers.all()[0].name.clone();
    servers.kill(&name).unwrap();
    assert!(sink.publish(&events(1..2)).await.is_err());
    servers.start_again(&name).unwrap();
    are_used_again(&*sink, &*source).await;
}

/// Both find a broker that is back, and what it was given meanwhile.
pub(super) async fn are_used_again(sink: &dyn EventSink, source: &dyn MessageSource) {
    let start = Instant::now();
    while sink.publish(&events(2..3)).await.is_err() {
        assert!(start.elapsed() < PATIENCE, "the sink does not connect again");
    }
    loop {
        assert!(start.elapsed() < PATIENCE, "the source does not connect again");
        let Ok(messages) = source.receive().await else { continue };
        if messages.iter().any(|message| id(message) == "id-2") {
            return;
        }
    }
}

pub(super) async fn an_absent_broker_is_reported_without_the_password(scheme: &str) {
    let place = Place::new(&format!("{scheme}://ann:topsecret@127.0.0.1:1"));
    let sent = place.sink().publish(&events(0..1)).await.unwrap_err();
    let received = place.source("one").receive().await.unwrap_err();
    for said in [sent.to_string(), received.to_string()] {
        assert!(said.contains("127.0.0.1:1") && said.contains("events.url"), "{said}");
        assert!(!said.contains("topsecret"), "{said}");
    }
}

macro_rules! define_for {
    ($module:ident $service:ident $scheme:literal) => {
        mod $module {
            use super::{Place, url};

            #[tokio::test]
            async fn events_arrive_in_order_and_leave_when_they_are_acknowledged() {
                let place = Place::new(&url(super::$service));
                super::events_arrive_in_order_and_leave_when_they_are_acknowledged(place).await;
            }

            #[tokio::test]
            async fn a_message_that_is_not_acknowledged_is_delivered_again() {
                let place = Place::new(&url(super::$service));
                super::a_message_that_is_not_acknowledged_is_delivered_again(place).await;
            }

            #[tokio::test]
            async fn a_rejected_message_is_stored_separately() {
                let place = Place::new(&url(super::$service));
                super::a_rejected_message_is_stored_separately(place).await;
            }

            #[tokio::test]
            async fn processes_share_the_messages() {
                super::processes_share_the_messages(Place::new(&url(super::$service))).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_restarted_broker_is_used_again() {
                super::a_restarted_broker_is_used_again(super::$service).await;
            }

            #[tokio::test]
            async fn an_absent_broker_is_reported_without_the_password() {
                super::an_absent_broker_is_reported_without_the_password($scheme).await;
            }
        }
    };
}
define_for! { redis REDIS "redis" }
define_for! { nats NATS "nats" }
define_for! { rabbitmq RABBITMQ "amqp" }

/// What was in the stream is lost with it. Everything after that arrives.
#[tokio::test(flavor = "multi_thread")]
async fn redis_that_is_emptied_gets_its_group_again() {
    let mut servers = Servers::start(REDIS).unwrap();
    let place = Place::new(&servers.all()[0].url);
    let (sink, source) = (place.sink(), place.source("one"));
    sink.publish(&events(0..1)).await.unwrap();
    let messages = received(&*source).await;
    servers.sql(REDIS, "FLUSHALL").unwrap();
    source.acknowledge(&messages).await.unwrap();
    sink.publish(&events(1..3)).await.unwrap();
    let mut arrived = vec![];
    while arrived.len() < 2 {
        arrived.extend(received(&*source).await.iter().map(id));
    }
    assert_eq!(arrived, ["id-1", "id-2"]);
}

#[tokio::test]
async fn redis_keeps_the_reason_of_a_rejection() {
    let place = Place::new(&url(REDIS));
    place.sink().publish(&events(0..1)).await.unwrap();
    let source = place.source("one");
    let messages = received(&*source).await;
    source.reject(&messages[0], "name: is missing").await.unwrap();
    let client = ::redis::Client::open(url(REDIS)).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut range = ::redis::cmd("XRANGE");
    range.arg(format!("{}.rejected", place.topic)).arg("-").arg("+");
    let kept: Vec<(String, BTreeMap<String, String>)> = range.query_async(&mut connection).await.unwrap();
    assert_eq!(kept[0].1["error"], "name: is missing");
    assert_eq!(kept[0].1["id"], "id-0");
}

/// RabbitMQ drops messages to an exchange without a queue. Events must not be lost that way.
#[tokio::test]
async fn rabbitmq_without_a_queue_for_events_says_so() {
    let place = Place::new(&url(RABBITMQ));
    let properties = lapin::ConnectionProperties::default();
    let operator = lapin::Connection::connect(&format!("{}/%2f", url(RABBITMQ)), properties).await.unwrap();
    let channel = operator.create_channel().await.unwrap();
    let (topic, kind) = (place.topic.as_str().into(), lapin::ExchangeKind::Topic);
    channel.exchange_declare(topic, kind, Default::default(), Default::default()).await.unwrap();
    let error = place.sink().publish(&events(0..1)).await.unwrap_err().to_string();
    assert!(error.contains("bind a queue"), "{error}");
}
