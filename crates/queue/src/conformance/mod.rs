//! The definition of a ready queue over a broker: cases that every broker passes, each in a separate cluster.

use crate::message::{MessageCodec, ReadyContent, ReadyMessage};
use crate::options::BrokerOptions;
use crate::queue::{BrokerQueue, QueueMember};
use punctual_core::limits::READY_HINT_LANES_MAX;
use punctual_core::ports::{Lane, ReadyHint, ReadyQueue};
use std::time::Duration;

/// How long an expected event may take. Generous, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The key of the clusters in the cases.
const KEY: [u8; 32] = [7; 32];

/// Processes of one cluster on a broker.
pub struct QueueStage {
    /// The place of the cluster.
    pub options: BrokerOptions,
}

impl QueueStage {
    /// One more process.
    pub fn process(&self, name: &str) -> BrokerQueue {
        self.process_with(name, KEY)
    }

    fn process_with(&self, name: &str, key: [u8; 32]) -> BrokerQueue {
        BrokerQueue::new(&self.options, QueueMember { sender: name.to_owned(), key }).unwrap()
    }

    /// One more process, after it has connected.
    pub async fn connected(&self, name: &str) -> BrokerQueue {
        let queue = self.process(name);
        assert_eq!(received(&queue).await, ReadyHint::AnyLane, "a new connection may have missed anything");
        queue
    }
}

pub fn hint(queue: &str) -> ReadyHint {
    ReadyHint::Lanes([Lane::new(queue, "noop")].into())
}

/// The next hint. Errors fail the case.
pub async fn received(queue: &BrokerQueue) -> ReadyHint {
    let received = tokio::time::timeout(PATIENCE, queue.receive()).await;
    received.expect("no hint arrived").unwrap_or_else(|error| panic!("{error}"))
}

/// Receives until a hint names this lane.
async fn receives_lane(queue: &BrokerQueue, lane: &str) {
    let ReadyHint::Lanes(wanted) = hint(lane) else { unreachable!("a hint with a lane") };
    loop {
        match received(queue).await {
            ReadyHint::Lanes(lanes) if lanes.is_superset(&wanted) => return,
            ReadyHint::Lanes(_) => {}
            ReadyHint::AnyLane => panic!("the queue has reconnected"),
        }
    }
}

pub async fn a_hint_reaches_every_other_process_and_not_its_sender(stage: QueueStage) {
    let (one, two, three) =
        (stage.connected("one").await, stage.connected("two").await, stage.connected("three").await);
    one.publish(hint("a")).await.unwrap();
    assert_eq!((received(&two).await, received(&three).await), (hint("a"), hint("a")));
    two.publish(hint("b")).await.unwrap();
    assert_eq!((received(&one).await, received(&three).await), (hint("b"), hint("b")));
    one.publish(ReadyHint::AnyLane).await.unwrap();
    assert_eq!(received(&two).await, ReadyHint::AnyLane);
}

pub async fn hints_that_wait_are_merged(stage: QueueStage) {
    let (busy, slow) = (stage.connected("busy").await, stage.connected("slow").await);
    for number in 0..100 {
        busy.publish(hint(&format!("q{number}"))).await.unwrap();
    }
    let (mut seen, mut calls) = (std::collections::BTreeSet::new(), 0);
    while seen.len() < 100 {
        let ReadyHint::Lanes(lanes) = received(&slow).await else { panic!("100 lanes fit into a hint") };
        seen.extend(lanes);
        calls += 1;
    }
    assert!(calls <= 100, "{calls}");
    let many =
        (0..=READY_HINT_LANES_MAX).map(|number| Lane::new(format!("{}{number}", "n".repeat(120)), "noop"));
    busy.publish(ReadyHint::Lanes(many.collect())).await.unwrap();
    assert_eq!(received(&slow).await, ReadyHint::AnyLane, "more lanes than one message holds");
}

pub async fn clusters_do_not_wake_each_other(stage: QueueStage) {
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    let elsewhere =
        QueueStage { options: stage.options.clone().below("elsewhere") }.connected("elsewhere").await;
    elsewhere.publish(hint("theirs")).await.unwrap();
    // Another key in the same place, as after a database was copied.
    let stranger = stage.process_with("stranger", [8; 32]);
    stranger.publish(hint("strange")).await.unwrap();
    // Messages of several connections have no order. This wait makes the foreign message arrive first.
    let foreign = async {
        while here.figures().rejected == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        hint = received(&here) => panic!("woken by another cluster: {hint:?}"),
        () = foreign => {}
    }
    peer.publish(hint("ours")).await.unwrap();
    assert_eq!(received(&here).await, hint("ours"));
}

pub async fn forged_and_strange_messages_are_ignored(stage: QueueStage) {
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    let lie = ReadyMessage { from: "peer".to_owned(), number: 99, content: ReadyContent::AnyLane };
    let forged = [
        MessageCodec::new(&[8; 32]).write(lie),
        b"".to_vec(),
        b"punctual-ready/1 x {}".to_vec(),
        vec![0xff; 100_000],
    ];
    for message in &forged {
        peer.publish_bytes(message.clone()).await.unwrap();
    }
    peer.publish(hint("true")).await.unwrap();
    assert_eq!(received(&here).await, hint("true"));
    assert_eq!(here.figures().rejected, forged.len() as u64);
}

pub async fn a_repeated_message_wakes_once(stage: QueueStage) {
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    let codec = MessageCodec::new(&KEY);
    let message = |number: u64, lane: &str| {
        let content = ReadyContent::of(hint(lane));
        codec.write(ReadyMessage { from: "third".to_owned(), number, content })
    };
    // Out of order, and each of them three times.
    for number in [5, 4, 6, 4, 5, 6, 6, 5, 4] {
        peer.publish_bytes(message(number, &format!("lane{number}"))).await.unwrap();
    }
    peer.publish(hint("last")).await.unwrap();
    receives_lane(&here, "last").await;
    assert_eq!(here.figures().repeated, 6);
}

pub async fn a_quiet_connection_stays(stage: QueueStage) {
    let (here, peer) = (stage.connected("here").await, stage.connected("peer").await);
    // Several pings pass through the broker while both wait.
    let waiting = tokio::time::timeout(
        punctual_core::limits::BROKER_PING_INTERVAL * 3,
        futures_util::future::join(here.receive(), peer.receive()),
    );
    assert!(waiting.await.is_err(), "a ping is no hint");
    peer.publish(hint("a")).await.unwrap();
    assert_eq!(received(&here).await, hint("a"));
    assert_eq!(here.figures().watchdog_reconnects, 0);
}

/// Passes the list of all cases to another macro, which generates one test for each.
macro_rules! each_queue_case {
    ($then:ident) => {
        $then! {
            a_hint_reaches_every_other_process_and_not_its_sender,
            hints_that_wait_are_merged,
            clusters_do_not_wake_each_other,
            forged_and_strange_messages_are_ignored,
            a_repeated_message_wakes_once,
            a_quiet_connection_stays,
        }
    };
}
pub(crate) use each_queue_case;
