//! One session with ZooKeeper. A task sends its requests in order, keeps the session alive, and continues it on
//! another server when the connection is lost. The session ends when its last client is dropped.
//!
//! It owns the protocol, and knows nothing of members and leases.

use super::wire::{
    AUTH, AUTH_XID, CLOSE, CREATE, DELETE, GET_CHILDREN, GET_DATA, NOTIFICATION_XID, NodeStat, PING,
    PING_XID, RecordReader, RecordWriter, SET_DATA, SYNC, take_frame,
};
use crate::options::ZooKeeperOptions;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// All permissions, in an access list.
const ALL: i32 = 31;
const EPHEMERAL: i32 = 1;
const ANY_VERSION: i32 = -1;
const PASSWORD_BYTES: usize = 16;
/// The pause after all hosts were tried.
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the node does not exist")]
    NoNode,
    #[error("not authorized")]
    NoAuth,
    #[error("the node was changed")]
    BadVersion,
    #[error("the node exists")]
    NodeExists,
    #[error("the node has children")]
    NotEmpty,
    #[error("the session has expired")]
    SessionExpired,
    #[error("the access list is invalid")]
    InvalidAcl,
    #[error("authentication failed")]
    AuthFailed,
    #[error("the operation is unknown to the server")]
    Unimplemented,
    #[error("too many others changed the node")]
    Contended,
    #[error("{0} is malformed")]
    Malformed(&'static str),
    #[error("error code {0}")]
    Other(i32),
    #[error("the connection was lost")]
    ConnectionLost,
    #[error("no answer")]
    Silent,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Error {
    const fn of_code(code: i32) -> Self {
        match code {
            -6 => Error::Unimplemented,
            -101 => Error::NoNode,
            -102 => Error::NoAuth,
            -103 => Error::BadVersion,
            -110 => Error::NodeExists,
            -111 => Error::NotEmpty,
            // Expired, or continued by another connection.
            -112 | -118 => Error::SessionExpired,
            -114 => Error::InvalidAcl,
            -115 => Error::AuthFailed,
            code => Error::Other(code),
        }
    }
}

/// Whether a node outlives its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    Persistent,
    Ephemeral,
}

/// Where the servers are, for all sessions of a process.
pub struct Ensemble {
    options: ZooKeeperOptions,
    /// Which host the next connection starts with: a host that does not answer must not hold up every call.
    next_host: AtomicUsize,
}

impl Ensemble {
    pub fn new(options: ZooKeeperOptions) -> Arc<Self> {
        Arc::new(Ensemble { options, next_host: AtomicUsize::new(0) })
    }

    fn next_host(&self) -> String {
        let number = self.next_host.fetch_add(1, Ordering::Relaxed);
        self.options.hosts[number % self.options.hosts.len()].to_string()
    }
}

/// A session; clones share it.
#[derive(Clone)]
pub struct ZooKeeperClient {
    requests: mpsc::UnboundedSender<ZooKeeperRequest>,
    session_id: i64,
    /// Whether only this login may use the nodes it creates.
    has_login: bool,
}

/// Receives the reply to a request, or why there is none.
type ReplySender = oneshot::Sender<Result<Vec<u8>, Error>>;

struct ZooKeeperRequest {
    operation: i32,
    fields: Vec<u8>,
    reply: ReplySender,
}

impl ZooKeeperClient {
    /// Starts a session at the first host that answers.
    pub async fn connect(ensemble: &Arc<Ensemble>, session_timeout: Duration) -> Result<Self, Error> {
        let mut session = SessionTask {
            ensemble: ensemble.clone(),
            timeout: session_timeout,
            id: 0,
            password: vec![0; PASSWORD_BYTES],
            zxid_seen: 0,
            heard_at: Instant::now(),
        };
        let stream = session.connect().await?;
        let (requests, received) = mpsc::unbounded_channel();
        let client =
            ZooKeeperClient { requests, session_id: session.id, has_login: ensemble.options.login.is_some() };
        tokio::spawn(session.run(stream, received));
        Ok(client)
    }

    pub const fn session_id(&self) -> i64 {
        self.session_id
    }

    /// Whether the session has ended permanently.
    pub fn is_ended(&self) -> bool {
        self.requests.is_closed()
    }

    /// Creates a node. With a login, only the same login can read and change it.
    pub async fn create(&self, path: &str, data: &[u8], kind: NodeKind) -> Result<NodeStat, Error> {
        let (scheme, id) = if self.has_login { ("auth", "") } else { ("world", "anyone") };
        let flags = if kind == NodeKind::Ephemeral { EPHEMERAL } else { 0 };
        let fields = RecordWriter::new().bytes(path).bytes(data);
        let fields = fields.int(1).int(ALL).bytes(scheme).bytes(id).int(flags);
        let reply = self.call(CREATE, fields).await?;
        let mut reply = RecordReader(&reply);
        reply.text()?;
        reply.stat()
    }

    /// Creates a persistent node and those above it, unless they exist.
    pub async fn create_folder(&self, path: &str) -> Result<(), Error> {
        let mut created = self.create(path, &[], NodeKind::Persistent).await;
        if let (Err(Error::NoNode), Some((above, _))) = (&created, path.rsplit_once('/')) {
            Box::pin(self.create_folder(above)).await?;
            created = self.create(path, &[], NodeKind::Persistent).await;
        }
        match created {
            Ok(_) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub async fn get_data(&self, path: &str) -> Result<(Vec<u8>, NodeStat), Error> {
        let reply = self.call(GET_DATA, RecordWriter::new().bytes(path).flag(false)).await?;
        let mut reply = RecordReader(&reply);
        Ok((reply.bytes()?, reply.stat()?))
    }

    pub async fn set_data(&self, path: &str, data: &[u8]) -> Result<(), Error> {
        self.call(SET_DATA, RecordWriter::new().bytes(path).bytes(data).int(ANY_VERSION)).await.map(drop)
    }

    pub async fn delete(&self, path: &str, version: i32) -> Result<(), Error> {
        self.call(DELETE, RecordWriter::new().bytes(path).int(version)).await.map(drop)
    }

    pub async fn list_children(&self, path: &str) -> Result<Vec<String>, Error> {
        let reply = self.call(GET_CHILDREN, RecordWriter::new().bytes(path).flag(false)).await?;
        RecordReader(&reply).texts()
    }

    /// Makes earlier writes through other servers visible.
    pub async fn sync(&self, path: &str) -> Result<(), Error> {
        self.call(SYNC, RecordWriter::new().bytes(path)).await.map(drop)
    }

    /// Ends the session, and with it all its ephemeral nodes, in one transaction.
    pub async fn close(&self) -> Result<(), Error> {
        self.call(CLOSE, RecordWriter::new()).await.map(drop)
    }

    async fn call(&self, operation: i32, fields: RecordWriter) -> Result<Vec<u8>, Error> {
        let (reply, answer) = oneshot::channel();
        let request = ZooKeeperRequest { operation, fields: fields.into_fields(), reply };
        self.requests.send(request).map_err(|_| Error::SessionExpired)?;
        answer.await.unwrap_or(Err(Error::SessionExpired))
    }
}

/// The task's side of a session.
struct SessionTask {
    ensemble: Arc<Ensemble>,
    /// After how long without contact ZooKeeper ends it.
    timeout: Duration,
    /// 0 before the first connection.
    id: i64,
    password: Vec<u8>,
    /// The latest transaction that a server has answered: no server that is behind it may continue the session.
    zxid_seen: i64,
    heard_at: Instant,
}

/// How a connection ends.
enum ConnectionEnd {
    Lost,
    OfSession,
}

impl SessionTask {
    async fn run(mut self, mut stream: TcpStream, mut requests: mpsc::UnboundedReceiver<ZooKeeperRequest>) {
        loop {
            if let ConnectionEnd::OfSession = self.serve(stream, &mut requests).await {
                return;
            }
            // A little longer than ZooKeeper, which counts from the last request that it has received.
            let deadline = self.heard_at + self.timeout * 7 / 5;
            stream = match timeout_at(deadline, self.reconnect()).await {
                Ok(Some(stream)) => stream,
                // Waiting requests are dropped, which returns an error to their callers.
                _ => return,
            };
        }
    }

    /// Tries until a server continues the session; `None` if none will.
    async fn reconnect(&mut self) -> Option<TcpStream> {
        loop {
            match self.connect().await {
                Ok(stream) => return Some(stream),
                Err(Error::SessionExpired | Error::AuthFailed) => return None,
                Err(_) => tokio::time::sleep(RECONNECT_PAUSE).await,
            }
        }
    }

    /// Starts or continues the session at the first host that answers.
    async fn connect(&mut self) -> Result<TcpStream, Error> {
        let mut failed = Error::Silent;
        for _ in 0..self.ensemble.options.hosts.len() {
            let host = self.ensemble.next_host();
            // Half of the time: a call that meets a silent host still reaches the next one.
            match timeout(self.silence_max() / 2, self.connect_to(&host)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error @ (Error::SessionExpired | Error::AuthFailed))) => return Err(error),
                Ok(Err(error)) => failed = error,
                Err(_) => failed = Error::Silent,
            }
        }
        Err(failed)
    }

    async fn connect_to(&mut self, host: &str) -> Result<TcpStream, Error> {
        let mut stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        let timeout_ms = i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX);
        let hello = RecordWriter::new().int(0).long(self.zxid_seen).int(timeout_ms).long(self.id);
        stream.write_all(&hello.bytes(&self.password).flag(false).frame()).await?;
        let mut received = Vec::new();
        let welcome = read_frame(&mut stream, &mut received).await?;
        let mut welcome = RecordReader(&welcome);
        let (_version, timeout_ms, id) = (welcome.int()?, welcome.int()?, welcome.long()?);
        let password = welcome.bytes()?;
        let Ok(timeout_ms @ 1..) = u64::try_from(timeout_ms) else { return Err(Error::SessionExpired) };
        if let Some(login) = &self.ensemble.options.login {
            let secret = format!("{}:{}", login.user, login.password.0);
            let auth = RecordWriter::request(AUTH_XID, AUTH).int(0).bytes("digest").bytes(secret);
            stream.write_all(&auth.frame()).await?;
            let reply = read_frame(&mut stream, &mut received).await?;
            let mut reply = RecordReader(&reply);
            let (_xid, _zxid, code) = (reply.int()?, reply.long()?, reply.int()?);
            if code != 0 {
                return Err(Error::of_code(code));
            }
        }
        (self.id, self.password, self.timeout) = (id, password, Duration::from_millis(timeout_ms));
        self.heard_at = Instant::now();
        Ok(stream)
    }

    /// How long a server may be silent before another one is tried: twice within the session's time.
    fn silence_max(&self) -> Duration {
        self.ensemble.options.answer_max.min(self.timeout * 2 / 5)
    }

    /// Sends requests and passes on their replies, until the connection or the session ends.
    async fn serve(
        &mut self,
        mut stream: TcpStream,
        requests: &mut mpsc::UnboundedReceiver<ZooKeeperRequest>,
    ) -> ConnectionEnd {
        let mut sent = SentRequests::default();
        let end = match self.exchange(&mut stream, requests, &mut sent).await {
            Ok(()) | Err(Error::SessionExpired | Error::AuthFailed) => ConnectionEnd::OfSession,
            Err(_) => ConnectionEnd::Lost,
        };
        if let ConnectionEnd::Lost = end {
            for (_, reply) in sent.waiting {
                let _ = reply.send(Err(Error::ConnectionLost));
            }
        }
        end
    }

    /// Returns when the session was closed.
    async fn exchange(
        &mut self,
        stream: &mut TcpStream,
        requests: &mut mpsc::UnboundedReceiver<ZooKeeperRequest>,
        sent: &mut SentRequests,
    ) -> Result<(), Error> {
        let silence_max = self.silence_max();
        let ping_interval = silence_max * 3 / 8;
        let (mut reader, mut writer) = stream.split();
        let mut received = Vec::new();
        let mut ping_at = Instant::now() + ping_interval;
        let mut is_closing = false;
        while !(is_closing && sent.waiting.is_empty()) {
            let frame = tokio::select! {
                biased;
                count = reader.read_buf(&mut received) => {
                    if count? == 0 {
                        return Err(Error::ConnectionLost);
                    }
                    self.heard_at = Instant::now();
                    while let Some(frame) = take_frame(&mut received)? {
                        self.answer(&frame, sent)?;
                    }
                    continue;
                }
                () = sleep_until(self.heard_at + silence_max) => return Err(Error::Silent),
                request = requests.recv(), if !is_closing => match request {
                    // Its caller no longer waits.
                    Some(request) if request.reply.is_closed() => continue,
                    Some(request) => {
                        is_closing = request.operation == CLOSE;
                        sent.add(request)
                    }
                    None => {
                        is_closing = true;
                        let reply = oneshot::channel().0;
                        sent.add(ZooKeeperRequest { operation: CLOSE, fields: vec![], reply })
                    }
                },
                () = sleep_until(ping_at) => RecordWriter::request(PING_XID, PING).frame(),
            };
            ping_at = Instant::now() + ping_interval;
            timeout(silence_max, writer.write_all(&frame)).await.map_err(|_| Error::Silent)??;
        }
        Ok(())
    }

    /// Passes a reply to its caller.
    fn answer(&mut self, frame: &[u8], sent: &mut SentRequests) -> Result<(), Error> {
        let mut reply = RecordReader(frame);
        let (xid, zxid, code) = (reply.int()?, reply.long()?, reply.int()?);
        if matches!(xid, PING_XID | NOTIFICATION_XID | AUTH_XID) {
            return Ok(());
        }
        self.zxid_seen = self.zxid_seen.max(zxid);
        let Some((_, caller)) = sent.waiting.pop_front().filter(|(expected, _)| *expected == xid) else {
            return Err(Error::Malformed("the order of replies"));
        };
        let outcome = if code == 0 { Ok(reply.0.to_vec()) } else { Err(Error::of_code(code)) };
        let is_over = matches!(outcome, Err(Error::SessionExpired | Error::AuthFailed));
        let _ = caller.send(outcome);
        if is_over { Err(Error::SessionExpired) } else { Ok(()) }
    }
}

/// The requests of a connection that wait for their replies, which come in order.
#[derive(Default)]
struct SentRequests {
    xid: i32,
    waiting: VecDeque<(i32, ReplySender)>,
}

impl SentRequests {
    /// Records a request; returns its frame.
    fn add(&mut self, request: ZooKeeperRequest) -> Vec<u8> {
        // From 1: the numbers below are reserved.
        self.xid = (self.xid % i32::MAX) + 1;
        self.waiting.push_back((self.xid, request.reply));
        RecordWriter::request(self.xid, request.operation).fields(&request.fields).frame()
    }
}

async fn read_frame(stream: &mut TcpStream, received: &mut Vec<u8>) -> Result<Vec<u8>, Error> {
    loop {
        if let Some(frame) = take_frame(received)? {
            return Ok(frame);
        }
        if stream.read_buf(received).await? == 0 {
            return Err(Error::ConnectionLost);
        }
    }
}
