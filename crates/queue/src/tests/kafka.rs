//! Kafka, on the brokers that librdkafka has for tests: they speak the protocol over TCP and keep everything in memory.
//! They are in this process, so each test has its own.

use super::faults::{
    an_absent_broker_is_reported_with_advice_and_without_the_password, fails, publishes, reconnects,
};
use super::{stage, streams};
use crate::conformance::{QueueStage, each_queue_case, hint, received};
use punctual_core::ports::{OutgoingEvent, ReadyQueue, ReadyQueueError};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::collections::BTreeMap;
use std::time::Duration;
use streams::Place;

pub(super) struct Brokers(MockCluster<'static, DefaultProducerContext>);

impl Brokers {
    pub fn start() -> Self {
        Brokers(MockCluster::new(1).unwrap())
    }

    pub fn url(&self) -> String {
        format!("kafka://{}", self.0.bootstrap_servers())
    }

    fn stage(&self) -> QueueStage {
        stage(&self.url())
    }

    fn place(&self) -> Place {
        Place::new(&self.url())
    }

    fn down(&self) {
        self.0.broker_down(-1).unwrap();
    }

    fn up(&self) {
        self.0.broker_up(-1).unwrap();
    }

    /// Answers take this long from now on.
    fn delayed(&self, by: Duration) {
        self.0.broker_round_trip_time(-1, by).unwrap();
    }
}

macro_rules! define {
    ($($case:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            let brokers = Brokers::start();
            crate::conformance::$case(brokers.stage()).await;
        })*
    };
}
each_queue_case!(define);

macro_rules! define_streams {
    ($($case:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            let brokers = Brokers::start();
            streams::$case(brokers.place()).await;
        })*
    };
}
define_streams! {
    events_arrive_in_order_and_leave_when_they_are_acknowledged,
    a_message_that_is_not_acknowledged_is_delivered_again,
    a_rejected_message_is_stored_separately,
    processes_share_the_messages,
}

#[tokio::test]
async fn brokers_that_are_back_are_used_again() {
    let brokers = Brokers::start();
    let stage = brokers.stage();
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    for round in 0..2 {
        brokers.down();
        fails(&here).await;
        fails(&peer).await;
        assert!(peer.publish(hint("lost")).await.is_err());
        brokers.up();
        reconnects(&here).await;
        reconnects(&peer).await;
        let lane = format!("round{round}");
        publishes(&peer, &lane).await;
        assert_eq!(received(&here).await, hint(&lane));
    }
}

#[tokio::test]
async fn the_watchdog_replaces_a_silent_connection() {
    let brokers = Brokers::start();
    let stage = brokers.stage();
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    brokers.delayed(Duration::from_secs(3_600));
    let error = fails(&here).await;
    assert!(matches!(error, ReadyQueueError::Unavailable(_)), "{error}");
    brokers.delayed(Duration::ZERO);
    reconnects(&here).await;
    publishes(&peer, "again").await;
    assert_eq!(received(&here).await, hint("again"));
}

#[tokio::test]
async fn absent_brokers_are_reported_with_advice_and_without_the_password() {
    an_absent_broker_is_reported_with_advice_and_without_the_password("kafka").await;
    streams::an_absent_broker_is_reported_without_the_password("kafka").await;
}

#[tokio::test]
async fn streams_use_brokers_that_are_back() {
    let brokers = Brokers::start();
    let place = brokers.place();
    let (sink, source) = (place.sink(), place.source("one"));
    sink.publish(&streams::events(0..1)).await.unwrap();
    source.acknowledge(&streams::received(&*source).await).await.unwrap();
    brokers.down();
    assert!(sink.publish(&streams::events(1..2)).await.is_err());
    brokers.up();
    streams::are_used_again(&*sink, &*source).await;
}

/// What the broker answers reaches the operator as advice.
#[tokio::test]
async fn a_user_without_rights_is_told_which_ones_are_missing() {
    let brokers = Brokers::start();
    let place = brokers.place();
    let sink = place.sink();
    sink.publish(&streams::events(0..1)).await.unwrap();
    brokers.0.request_errors(
        RDKafkaApiKey::Produce,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED; 3],
    );
    let error = sink.publish(&streams::events(1..2)).await.unwrap_err().to_string();
    let needs = format!("allow the user to write and describe the topic {}", place.topic);
    assert!(error.contains("denies access") && error.contains(&needs), "{error}");
}

#[tokio::test]
async fn a_topic_that_brokers_do_not_create_is_named() {
    let brokers = Brokers::start();
    let stage = brokers.stage();
    let topic = format!("{}.ready", stage.options.prefix.replace('/', "."));
    brokers.0.create_topic(&topic, 1, 1).unwrap();
    let unknown = RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    brokers.0.topic_error(&topic, unknown).unwrap();
    let error = stage.process("here").receive().await.unwrap_err().to_string();
    assert!(error.contains("create it") && error.contains(&topic), "{error}");
    brokers.0.topic_error(&topic, RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).unwrap();
    stage.connected("here").await;
}

/// Topics with several partitions: hints reach processes all the same, and the events of one job stay in order.
#[tokio::test]
async fn topics_may_have_several_partitions() {
    let brokers = Brokers::start();
    let stage = brokers.stage();
    brokers.0.create_topic(&format!("{}.ready", stage.options.prefix.replace('/', ".")), 7, 1).unwrap();
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    for number in 0..10 {
        peer.publish(hint(&format!("q{number}"))).await.unwrap();
        assert_eq!(received(&here).await, hint(&format!("q{number}")));
    }

    let place = brokers.place();
    brokers.0.create_topic(&place.topic, 7, 1).unwrap();
    let sent: Vec<OutgoingEvent> = streams::events(0..200)
        .into_iter()
        .enumerate()
        .map(|(number, event)| OutgoingEvent { subject: format!("job-{}", number % 20), ..event })
        .collect();
    let (sink, source) = (place.sink(), place.source("one"));
    for batch in sent.chunks(50) {
        sink.publish(batch).await.unwrap();
    }
    let (mut jobs, mut partitions) = (BTreeMap::<usize, Vec<usize>>::new(), BTreeMap::<String, usize>::new());
    while jobs.values().map(Vec::len).sum::<usize>() < sent.len() {
        let messages = streams::received(&*source).await;
        source.acknowledge(&messages).await.unwrap();
        for message in messages {
            let number: usize = streams::id(&message)["id-".len()..].parse().unwrap();
            jobs.entry(number % 20).or_default().push(number);
            *partitions.entry(message.receipt.split(':').nth(1).unwrap().to_owned()).or_default() += 1;
        }
    }
    assert!(jobs.values().all(|numbers| numbers.is_sorted()), "{jobs:?}");
    assert!(partitions.len() > 1, "{partitions:?}");
}

/// The group continues after what is finished, although later messages were finished first.
#[tokio::test]
async fn unfinished_messages_hold_back_the_offset() {
    let brokers = Brokers::start();
    let place = brokers.place();
    place.sink().publish(&streams::events(0..10)).await.unwrap();
    let source = place.source("one");
    let mut messages = vec![];
    while messages.len() < 10 {
        messages.extend(streams::received(&*source).await);
    }
    source.acknowledge(&messages[..3]).await.unwrap();
    source.acknowledge(&messages[5..]).await.unwrap();
    drop(source);
    let next = place.source("two");
    let again = streams::received(&*next).await;
    assert_eq!(streams::id(&again[0]), "id-3");
}

/// The id of a message without one: where it is, and when it was stored.
#[tokio::test]
async fn messages_without_an_id_get_one_that_no_other_has() {
    use rdkafka::producer::{FutureProducer, FutureRecord};
    let brokers = Brokers::start();
    let place = brokers.place();
    let producer: FutureProducer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", brokers.0.bootstrap_servers())
        .set("compression.type", "zstd")
        .create()
        .unwrap();
    for body in ["a".repeat(10_000), "b".repeat(10_000)] {
        let record = FutureRecord::<str, str>::to(&place.topic).partition(0).timestamp(1_700_000_000_000);
        producer.send(record.payload(&body), Duration::ZERO).await.unwrap();
    }
    let source = place.source("one");
    let mut messages = vec![];
    while messages.len() < 2 {
        messages.extend(streams::received(&*source).await);
    }
    let ids: Vec<String> = messages.iter().map(streams::id).collect();
    assert_eq!(ids, ["0:0:1700000000000", "0:1:1700000000000"]);
    assert_eq!(messages[1].body, "b".repeat(10_000).into_bytes());
}
