//! A fault proxy in front of the database. It breaks connections where a test says: after a number of
//! messages, at the reply to a `COMMIT`, or all at once. It parses the frames of the protocol, and of their
//! contents only the start of a reply.

use crate::postgres::PostgresOptions;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The sender of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// The next fault. It happens once, on the first connection that gets there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Cuts the connection after this many more messages of this side have passed.
    CutAfter { messages: usize, of: Sender },
    /// Cuts the connection when the server reports a commit.
    LoseCommit,
}

/// Network faults of all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkFault {
    Fair,
    /// Nothing passes, and no connection is closed.
    Held,
    /// All connections are cut, and new ones are cut at once.
    Away,
}

/// A listener that forwards everything, and its faults.
pub(super) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: String,
    fault: Mutex<Option<Fault>>,
    network_fault: watch::Sender<NetworkFault>,
    /// Counts how often all connections were cut.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    /// A proxy in front of the database of these options, and options that lead through it.
    pub async fn before(options: &PostgresOptions) -> (Self, PostgresOptions) {
        let authority = options.url.split("://").nth(1).and_then(|rest| rest.split('/').next());
        let target = authority.and_then(|authority| authority.rsplit('@').next()).expect("a host").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let through = options.url.replace(&target, &address.to_string());
        let mark = if through.contains('?') { '&' } else { '?' };
        // Frames can only be parsed without encryption.
        let through = PostgresOptions { url: format!("{through}{mark}sslmode=disable"), ..options.clone() };
        let (network_fault, cuts) = (watch::Sender::new(NetworkFault::Fair), watch::Sender::new(0));
        let shared = Arc::new(Shared { target, fault: Mutex::new(None), network_fault, cuts });
        tokio::spawn(listen(listener, shared.clone()));
        (Proxy { address, shared }, through)
    }

    /// Sets the next fault and replaces an earlier one.
    pub fn arm(&self, fault: Fault) {
        *self.shared.fault() = Some(fault);
    }

    /// Clears the fault. Returns whether it has happened.
    pub fn disarm(&self) -> bool {
        self.shared.fault().take().is_none()
    }

    /// Cuts all existing connections; new ones pass.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Makes the database unreachable.
    pub fn go_away(&self) {
        self.shared.network_fault.send_replace(NetworkFault::Away);
        self.cut();
    }

    /// Nothing passes until the network recovers.
    pub fn hold(&self) {
        self.shared.network_fault.send_replace(NetworkFault::Held);
    }

    pub fn be_fair(&self) {
        self.shared.network_fault.send_replace(NetworkFault::Fair);
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Shared {
    fn fault(&self) -> MutexGuard<'_, Option<Fault>> {
        self.fault.lock().unwrap()
    }

    /// Whether the connection breaks instead of forwarding this message.
    fn breaks_at(&self, from: Sender, message: &[u8]) -> bool {
        let mut fault = self.fault();
        let breaks = match &mut *fault {
            Some(Fault::CutAfter { messages, of }) if *of == from => {
                let is_last = *messages == 0;
                *messages = messages.saturating_sub(1);
                is_last
            }
            Some(Fault::LoseCommit) => from == Sender::Server && is_commit(message),
            _ => false,
        };
        if breaks {
            *fault = None;
        }
        breaks
    }
}

/// Whether this is the reply to a `COMMIT` that has taken effect.
fn is_commit(message: &[u8]) -> bool {
    message.first() == Some(&b'C') && message.get(5..) == Some(b"COMMIT\0")
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(pass(client, shared.clone()));
    }
}

/// Serves one connection until one of its ends is closed or it breaks. Then both ends are closed.
async fn pass(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    if *shared.network_fault.borrow() == NetworkFault::Away {
        return;
    }
    let Ok(server) = TcpStream::connect(&shared.target).await else { return };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = pass_on(Sender::Client, from_client, to_server, &shared) => {}
        () = pass_on(Sender::Server, from_server, to_client, &shared) => {}
        _ = cuts.changed() => {}
    }
}

async fn pass_on(from: Sender, mut source: OwnedReadHalf, mut sink: OwnedWriteHalf, shared: &Shared) {
    let mut network_fault = shared.network_fault.subscribe();
    // Only the first message of a client has no type byte before its length.
    let mut head = if from == Sender::Client { 0 } else { 1 };
    let mut bytes = Vec::new();
    loop {
        while let Some(length) = frame(&bytes, head) {
            let message: Vec<u8> = bytes.drain(..length).collect();
            head = 1;
            if network_fault.wait_for(|network_fault| *network_fault != NetworkFault::Held).await.is_err()
                || shared.breaks_at(from, &message)
                || sink.write_all(&message).await.is_err()
            {
                return;
            }
        }
        match source.read_buf(&mut bytes).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// The length of the first message, if it is complete. The length includes itself, and not the type byte
/// before it.
fn frame(bytes: &[u8], head: usize) -> Option<usize> {
    let length = bytes.get(head..head + 4)?;
    let length = u32::from_be_bytes(length.try_into().ok()?) as usize + head;
    (bytes.len() >= length).then_some(length)
}
