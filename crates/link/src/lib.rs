//! A fault proxy: forwards TCP connections on this machine and can cut, hold and delay them. Benchmarks use
//! it to put a distance between a node and its database, and the chaos suite to cause network faults. It
//! knows nothing of the forwarded data.
//!
//! A delay shifts every byte by the same time, as between two machines: bytes in flight do not wait for each
//! other.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

const PIECE_BYTES: usize = 64 * 1024;
/// Chunks in flight in one direction: more than fits on any connection worth measuring.
const PIECES_MAX: usize = 256;

/// The network faults of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    Fair,
    /// Connections are closed, and new ones end at once.
    Cut,
    /// Nothing passes in either direction. Data sent meanwhile arrives afterwards, as when a network
    /// recovers.
    Held,
    RequestsHeld,
    AnswersHeld,
    /// All data arrives this much later, in each direction.
    Slow(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowDirection {
    Requests,
    Answers,
}

impl NetworkFault {
    fn lets_through(self, direction: FlowDirection) -> bool {
        match self {
            NetworkFault::Fair | NetworkFault::Slow(_) => true,
            NetworkFault::Cut | NetworkFault::Held => false,
            NetworkFault::RequestsHeld => direction == FlowDirection::Answers,
            NetworkFault::AnswersHeld => direction == FlowDirection::Requests,
        }
    }

    fn delay(self) -> Duration {
        match self {
            NetworkFault::Slow(delay) => delay,
            _ => Duration::ZERO,
        }
    }
}

/// A proxy to a server whose address may change. Dropping it closes it and all its connections.
#[derive(Debug)]
pub struct Link {
    /// The address to connect to.
    pub address: String,
    target: watch::Sender<String>,
    network_fault: watch::Sender<NetworkFault>,
    passing: AbortHandle,
}

impl Link {
    /// Opens a proxy. Connections are refused until there is a target.
    pub async fn open(target: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (target, network_fault) =
            (watch::Sender::new(target.to_owned()), watch::Sender::new(NetworkFault::Fair));
        let passing = tokio::spawn(pass_all(listener, target.subscribe(), network_fault.subscribe()));
        Ok(Link { address, target, network_fault, passing: passing.abort_handle() })
    }

    /// Sets the target of new connections.
    pub fn set_target(&self, target: &str) {
        self.target.send_replace(target.to_owned());
    }

    pub fn set(&self, network_fault: NetworkFault) {
        self.network_fault.send_replace(network_fault);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

async fn pass_all(
    listener: TcpListener,
    target: watch::Receiver<String>,
    network_fault: watch::Receiver<NetworkFault>,
) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let target = target.borrow().clone();
        connections.spawn(pass(client, target, network_fault.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Forwards both directions, each until its end, which is delayed like the data.
async fn pass(client: TcpStream, target: String, mut network_fault: watch::Receiver<NetworkFault>) {
    if *network_fault.borrow() == NetworkFault::Cut || target.is_empty() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (there, back) = (network_fault.clone(), network_fault.clone());
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let both = async {
        tokio::join!(
            pass_on(from_client, to_server, there, FlowDirection::Requests),
            pass_on(from_server, to_client, back, FlowDirection::Answers),
        )
    };
    tokio::select! {
        _ = both => {}
        _ = network_fault.wait_for(|network_fault| *network_fault == NetworkFault::Cut) => {}
    }
}

async fn pass_on(
    source: impl AsyncRead + Unpin,
    sink: impl AsyncWrite + Unpin,
    network_fault: watch::Receiver<NetworkFault>,
    direction: FlowDirection,
) {
    let (sender, receiver) = channel(PIECES_MAX);
    tokio::join!(
        take(source, sender, network_fault.clone()),
        deliver(sink, receiver, network_fault, direction)
    );
}

/// A chunk, and when it is to arrive.
type DelayedChunk = (Instant, Vec<u8>);

async fn take(
    mut source: impl AsyncRead + Unpin,
    under_way: Sender<DelayedChunk>,
    network_fault: watch::Receiver<NetworkFault>,
) {
    let mut bytes = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = source.read(&mut bytes).await {
        let arrives_at = Instant::now() + network_fault.borrow().delay();
        if under_way.send((arrives_at, bytes[..read].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver(
    mut sink: impl AsyncWrite + Unpin,
    mut under_way: Receiver<DelayedChunk>,
    mut network_fault: watch::Receiver<NetworkFault>,
    direction: FlowDirection,
) {
    while let Some((arrives_at, bytes)) = under_way.recv().await {
        sleep_until(arrives_at).await;
        if network_fault.wait_for(|network_fault| network_fault.lets_through(direction)).await.is_err() {
            return;
        }
        if sink.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // While connections are held, their end does not pass either.
    if network_fault.wait_for(|network_fault| network_fault.lets_through(direction)).await.is_ok() {
        let _ = sink.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that echoes everything.
    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    /// A proxy to an echo server, and a working connection through it.
    async fn connected() -> (Link, TcpStream) {
        let link = Link::open(&echo().await).await.unwrap();
        let mut stream = TcpStream::connect(&link.address).await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        (link, stream)
    }

    #[tokio::test]
    async fn held_data_arrives_when_the_connection_recovers() {
        let (link, mut stream) = connected().await;
        for network_fault in [NetworkFault::Held, NetworkFault::RequestsHeld, NetworkFault::AnswersHeld] {
            link.set(network_fault);
            stream.write_u8(2).await.unwrap();
            // A timeout is the only way to see that nothing arrives.
            let early = tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await;
            assert!(early.is_err(), "{network_fault:?} let it through");
            link.set(NetworkFault::Slow(Duration::from_millis(1)));
            assert_eq!(stream.read_u8().await.unwrap(), 2);
        }
    }

    #[tokio::test]
    async fn a_cut_proxy_breaks_connections_and_refuses_new_ones() {
        let (link, mut stream) = connected().await;
        link.set(NetworkFault::Cut);
        assert!(stream.read_u8().await.is_err());
        let mut second = TcpStream::connect(&link.address).await.unwrap();
        assert!(second.read_u8().await.is_err());
        link.set(NetworkFault::Fair);
        let mut third = TcpStream::connect(&link.address).await.unwrap();
        third.write_u8(3).await.unwrap();
        assert_eq!(third.read_u8().await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_changed_target_applies_to_new_connections() {
        let link = Link::open("").await.unwrap();
        let mut early = TcpStream::connect(&link.address).await.unwrap();
        assert!(early.read_u8().await.is_err(), "there is no target yet");
        link.set_target(&echo().await);
        let mut stream = TcpStream::connect(&link.address).await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
    }

    #[tokio::test]
    async fn delayed_data_arrives_in_order_and_not_too_early() {
        let delay = Duration::from_millis(20);
        let link = Link::open(&echo().await).await.unwrap();
        link.set(NetworkFault::Slow(delay));
        let (mut from, mut to) = TcpStream::connect(&link.address).await.unwrap().into_split();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0] ^ 7).collect();
        let begun = Instant::now();
        let mut got = vec![0; sent.len()];
        tokio::spawn({
            let sent = sent.clone();
            async move {
                to.write_all(&sent).await.unwrap();
                to.shutdown().await.unwrap();
            }
        });
        from.read_exact(&mut got[..1]).await.unwrap();
        assert!(begun.elapsed() >= delay * 2);
        from.read_exact(&mut got[1..]).await.unwrap();
        assert!(got == sent, "other bytes have arrived than were sent");
        assert_eq!(from.read(&mut got).await.unwrap(), 0, "the end arrives, too");
    }

    #[tokio::test]
    async fn a_dropped_proxy_is_closed() {
        let (link, mut stream) = connected().await;
        drop(link);
        assert!(stream.read_u8().await.is_err());
    }
}
