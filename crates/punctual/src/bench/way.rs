//! A longer way to a database: a proxy on the loopback interface that lets every byte arrive later by the same time, as a
//! network between two machines does. Bytes that are under way do not wait for each other.

use anyhow::Context;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

const PIECE_BYTES: usize = 64 * 1024;
/// Pieces under way in one direction: more than fits on any line that is worth measuring.
const PIECES_MAX: usize = 256;

/// Closed, with all connections over it, when it is dropped.
pub struct Way {
    /// Where it begins.
    pub address: String,
    passing: AbortHandle,
}

impl Way {
    /// Opens a way to an address on which an answer comes later by this much: half of it there, half of it back.
    pub async fn open(target: String, round_trip: Duration) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?.to_string();
        let passing = tokio::spawn(pass_all(listener, target, round_trip / 2)).abort_handle();
        Ok(Way { address, passing })
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.passing.abort();
    }
}

async fn pass_all(listener: TcpListener, target: String, delay: Duration) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(pass(client, target.clone(), delay));
        while connections.try_join_next().is_some() {}
    }
}

/// Passes on both directions, each until its end, which arrives as late as all else.
async fn pass(client: TcpStream, target: String, delay: Duration) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(pass_on(from_client, to_server, delay), pass_on(from_server, to_client, delay));
}

async fn pass_on(source: impl AsyncRead + Unpin, sink: impl AsyncWrite + Unpin, delay: Duration) {
    let (sender, receiver) = channel(PIECES_MAX);
    tokio::join!(take(source, sender, delay), deliver(sink, receiver));
}

/// Takes what comes, and says when it is to arrive.
async fn take(mut source: impl AsyncRead + Unpin, under_way: Sender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut bytes = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = source.read(&mut bytes).await {
        if under_way.send((Instant::now() + delay, bytes[..read].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver(mut sink: impl AsyncWrite + Unpin, mut under_way: Receiver<(Instant, Vec<u8>)>) {
    while let Some((arrives_at, bytes)) = under_way.recv().await {
        sleep_until(arrives_at).await;
        if sink.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = sink.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says everything again.
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

    #[tokio::test]
    async fn everything_arrives_in_order_and_not_before_its_time() {
        let round_trip = Duration::from_millis(40);
        let way = Way::open(echo().await, round_trip).await.unwrap();
        let (mut from, mut to) = TcpStream::connect(&way.address).await.unwrap().into_split();
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
        assert!(begun.elapsed() >= round_trip);
        from.read_exact(&mut got[1..]).await.unwrap();
        assert!(got == sent, "other bytes have arrived than were sent");
        assert_eq!(from.read(&mut got).await.unwrap(), 0, "the end arrives, too");
    }

    #[tokio::test]
    async fn a_way_that_is_dropped_is_closed() {
        let way = Way::open(echo().await, Duration::from_millis(2)).await.unwrap();
        let mut stream = TcpStream::connect(&way.address).await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 1);
        drop(way);
        assert!(stream.read_u8().await.is_err());
    }
}
