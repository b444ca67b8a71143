//! Hosts that are dead, silent or only replicas, dead connections, and servers that restart: an adapter with
//! another host uses it, without help.

use super::private::Private;
use super::server::{door, eventually, prefix, takes_part};
use crate::CoordinationOptions;
use punctual_core::ports::{Coordination, Joining, MemberId, Standing};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long a node waits for a call, with the default time to live, and how long its adapter waits for a
/// host.
const CALL_TIME_MAX: Duration = Duration::from_secs(1);
const ANSWER_MAX: Duration = Duration::from_millis(750);
const TTL: Duration = Duration::from_secs(3);

/// Opens it as a node does.
fn as_node(url: &str) -> Arc<dyn Coordination> {
    let options: CoordinationOptions = url.parse().unwrap();
    super::server::adapter(&options.answering_within(ANSWER_MAX))
}

/// Calls it as a node does: with a short time limit, and repeatedly.
async fn answered<T, E>(what: &str, mut call: impl AsyncFnMut() -> Result<T, E>) {
    eventually(what, async || matches!(tokio::time::timeout(CALL_TIME_MAX, call()).await, Ok(Ok(_)))).await;
}

/// A host that accepts connections and does not answer.
async fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

const SERVICES: [&str; 3] = ["redis", "etcd", "zookeeper"];

/// The error of a call to a host where another program listens that sends these bytes.
async fn error_from_other_service(scheme: &str, words: &'static [u8]) -> String {
    let (listener, address) = silent().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // All of these services let the client speak first.
            let _ = stream.read(&mut [0; 1_024]).await;
            let _ = stream.write_all(words).await;
        }
    });
    let said = takes_part(&format!("{scheme}://{address}")).await.unwrap_err().to_string();
    assert!(said.contains(&address) && said.contains("coordination.url"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[tokio::test]
async fn another_service_at_the_address_is_reported() {
    let said =
        error_from_other_service("redis", b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    assert!(said.contains("is not Redis"), "{said}");
    let page = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno";
    let said = error_from_other_service("etcd", page).await;
    assert!(said.contains("not the gateway of etcd"), "{said}");
    error_from_other_service("etcd", b"-ERR unknown command\r\n").await;
    error_from_other_service("zookeeper", b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
}

/// Puts another host before the only right one.
fn behind(url: &str, host: &str) -> String {
    url.replacen("://", &format!("://{host},"), 1)
}

#[tokio::test]
async fn a_dead_or_silent_host_is_skipped() {
    let (_listener, silent) = silent().await;
    for service in SERVICES {
        let server = Private::start(service).await;
        for bad in ["127.0.0.1:1", silent.as_str()] {
            let door = as_node(&behind(&server.url(), bad));
            let member = MemberId::new(prefix()).unwrap();
            let joining = Joining { member: member.clone(), card: String::new(), ttl: TTL };
            answered(&format!("{service} behind {bad} accepts a member"), async || {
                match door.join(joining.clone()).await {
                    Ok(Standing::Alive) => Ok(()),
                    other => Err(other),
                }
            })
            .await;
            answered(&format!("{service} behind {bad} is scanned"), async || door.look().await).await;
            assert_eq!(
                door.beat(&member, String::new()).await,
                Ok(Standing::Alive),
                "{service} behind {bad}"
            );
            door.leave(&member).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_restarted_server_is_used_again() {
    for service in SERVICES {
        let mut server = Private::start(service).await;
        let door = as_node(&server.url());
        let take_part = async |name: &str| {
            let member = MemberId::new(format!("{service}-{name}")).unwrap();
            let joining = Joining { member: member.clone(), card: String::new(), ttl: TTL };
            match door.join(joining).await {
                Ok(Standing::Alive) => door.look().await.map_err(Some),
                Ok(Standing::GivenUp) => Err(None),
                Err(error) => Err(Some(error)),
            }
        };
        answered(&format!("{service} accepts a member"), async || take_part("before").await).await;
        let name = server.servers[0].0.clone();
        server.kill(&name).await;
        let gone = tokio::time::timeout(CALL_TIME_MAX, door.look()).await;
        assert!(!matches!(gone, Ok(Ok(_))), "{service}: {gone:?}");
        server.start_again(&name).await;
        answered(&format!("{service} accepts a member again"), async || take_part("after").await).await;
    }
}

#[tokio::test]
async fn the_primary_of_redis_is_used_in_any_position() {
    let (primary, mut replica) = (Private::start("redis").await, Private::start("redis").await);
    let host = |server: &Private| server.url().split("://").nth(1).unwrap().to_owned();
    let (first, second) = (host(&replica), host(&primary));
    replica.say("redis", &format!("REPLICAOF {}", second.replacen(':', " ", 1))).await;
    let both = door(&format!("redis://{first},{second}"));
    let member = MemberId::new("member").unwrap();
    let joining = Joining { member: member.clone(), card: "here".to_owned(), ttl: TTL };
    answered("it joins at the primary", async || both.join(joining.clone()).await).await;
    let seen = door(&format!("redis://{second}")).look().await.unwrap();
    assert_eq!(seen.members[0].id, member);
    // The replica takes over, as after the loss of the primary.
    drop(primary);
    replica.say("redis", "REPLICAOF NO ONE").await;
    answered("it is scanned at the other host", async || both.look().await).await;
    let again = MemberId::new("member-again").unwrap();
    let joining = Joining { member: again, card: "here".to_owned(), ttl: TTL };
    answered("it joins there", async || both.join(joining.clone()).await).await;
    let said = takes_part(&format!("redis://{second}")).await.unwrap_err().to_string();
    assert!(said.contains(&second) && said.contains("coordination.url"), "{said}");
}

/// Forwards connections to a server. When `turned` becomes true, existing connections stay open but forward nothing.
async fn passage(to: String, turned: watch::Receiver<bool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (to, mut turned) = (to.clone(), turned.clone());
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await.unwrap();
                let is_old = !*turned.borrow_and_update();
                let led = tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => false,
                    _ = turned.changed(), if is_old => true,
                };
                if led {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

/// Calls with a short time limit: less than the adapter's own.
async fn briefly<T>(call: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_millis(300), call).await.ok()
}

#[tokio::test]
async fn a_dead_connection_is_replaced_after_a_caller_gives_up() {
    for service in ["redis", "etcd"] {
        let server = Private::start(service).await;
        let (turn, turned) = watch::channel(false);
        let (scheme, to) = server.url().split_once("://").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let way = as_node(&format!("{scheme}://{}", passage(to, turned).await));
        way.look().await.unwrap();
        turn.send(true).unwrap();
        assert!(briefly(way.look()).await.is_none(), "{service}: the connection is dead");
        eventually(&format!("{service} is reached by another connection"), async || {
            matches!(briefly(way.look()).await, Some(Ok(_)))
        })
        .await;
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_on_a_host_starts_with_the_next_one() {
    let (_listener, silent) = silent().await;
    for service in ["redis", "etcd"] {
        let server = Private::start(service).await;
        // Its own limit is longer than that of the caller.
        let way = door(&behind(&server.url(), &silent));
        assert!(briefly(way.look()).await.is_none(), "{service}: the first host does not answer");
        eventually(&format!("{service} is reached by its second host"), async || {
            matches!(briefly(way.look()).await, Some(Ok(_)))
        })
        .await;
    }
}
