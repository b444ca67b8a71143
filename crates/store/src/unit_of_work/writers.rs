//! Several writers, each with its own connection and runner, that share the callers' writes.
//!
//! A writer takes all waiting writes, up to a limit, into one transaction. When the database is
//! unavailable, callers get an error at once or after one attempt to connect; they never queue for an
//! unavailable database.

use super::Tables;
use super::memory::WriterMemory;
use super::runner::Runner;
use crate::fault::Fault;
use async_trait::async_trait;
use futures_util::future::{Either, select};
use punctual_core::histogram::{Histogram, ITEMS, SHORT_US};
use punctual_core::ports::{Host, StoreError, Write, WriteReply};
use punctual_core::time::Monotonic;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc, oneshot};

/// Rows per transaction, by the weight of its writes; the rest goes into the next one.
const TRANSACTION_ROWS_MAX: usize = 2_000;
/// Requests that wait for a writer; further callers wait until there is room.
const WAITING_MAX: usize = 4_096;
/// How long a writer tries to connect before its callers get the error that the database is unavailable.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a transaction may take, including retries. Then its connection is closed, and it is unknown
/// whether it took effect.
const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(30);
/// The pause after a failed attempt to connect; until the next one callers get an error at once.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Creates the writers' connections.
#[async_trait]
pub(crate) trait Connect: Send + Sync {
    /// A connection for the writer with this index.
    async fn connect(&self, writer: usize) -> Result<Box<dyn Tables>, Fault>;
}

/// State of the writers, for metrics.
#[derive(Debug)]
pub(crate) struct WriterFigures {
    pub transaction_time: Histogram,
    pub transaction_writes: Histogram,
}

/// When this value is dropped, the writers complete all writes that were sent before and end.
pub(crate) struct Writers {
    sender: mpsc::Sender<WriteRequest>,
    figures: Arc<WriterFigures>,
    /// Each is closed when its writer has ended.
    ends: Vec<oneshot::Receiver<()>>,
}

struct WriteRequest {
    write: Write,
    answer: oneshot::Sender<Result<WriteReply, StoreError>>,
}

impl Writers {
    /// Starts this many writers, each with its own connection. They connect on the first write.
    pub fn start(writers: usize, connect: Arc<dyn Connect>, host: &Host) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let memory = Arc::new(WriterMemory::default());
        let figures = Arc::new(WriterFigures {
            transaction_time: Histogram::new(SHORT_US),
            transaction_writes: Histogram::new(ITEMS),
        });
        let start = |index: usize| {
            let writer = WriterLoop {
                index,
                connect: connect.clone(),
                memory: memory.clone(),
                figures: figures.clone(),
                host: host.clone(),
                connection: WriterConnection::None,
            };
            let (end, ended) = oneshot::channel();
            let work = writer.work(receiver.clone());
            host.spawn.spawn(Box::pin(async move {
                work.await;
                // The receiver is gone if nothing waits for the end.
                let _ = end.send(());
            }));
            ended
        };
        let ends = (0..writers.max(1)).map(start).collect();
        Writers { sender, figures, ends }
    }

    /// Sends a write to the next free writer.
    pub async fn write(&self, write: Write) -> Result<WriteReply, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.sender.send(WriteRequest { write, answer }).await.map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    pub fn figures(&self) -> &WriterFigures {
        &self.figures
    }

    /// Waits until everything that was sent is done.
    pub async fn close(self) {
        let Writers { sender, ends, .. } = self;
        drop(sender);
        for end in ends {
            if end.await.is_err() {
                tracing::error!("a writer of the store has panicked");
            }
        }
    }
}

/// The state of a writer's connection.
enum WriterConnection {
    None,
    Made(Box<dyn Tables>),
    /// The last attempt to connect failed.
    Away {
        error: StoreError,
        until: Monotonic,
        pause: Duration,
    },
}

struct WriterLoop {
    index: usize,
    connect: Arc<dyn Connect>,
    memory: Arc<WriterMemory>,
    figures: Arc<WriterFigures>,
    host: Host,
    connection: WriterConnection,
}

impl WriterLoop {
    async fn work(mut self, receiver: Arc<Mutex<mpsc::Receiver<WriteRequest>>>) {
        loop {
            // The other writers take the next batch while this one writes, so the receiver must not stay
            // locked until then.
            let next = next_batch(&mut *receiver.lock().await).await;
            let Some(batch) = next else { break };
            let (writes, answers): (Vec<_>, Vec<_>) =
                batch.into_iter().map(|request| (request.write, request.answer)).unzip();
            let count = writes.len();
            let replies = match self.connected().await {
                Ok(tables) => self.transact(tables, writes).await,
                Err(error) => vec![Err(error); count],
            };
            for (answer, reply) in answers.into_iter().zip(replies) {
                // The receiver is gone if the caller was cancelled.
                let _ = answer.send(reply);
            }
        }
    }

    /// Returns the connection, and connects if there is none.
    async fn connected(&mut self) -> Result<Box<dyn Tables>, StoreError> {
        let last_pause = match std::mem::replace(&mut self.connection, WriterConnection::None) {
            WriterConnection::Made(tables) => return Ok(tables),
            WriterConnection::None => Duration::ZERO,
            WriterConnection::Away { error, until, pause } => {
                if self.host.clock.monotonic() < until {
                    self.connection = WriterConnection::Away { error: error.clone(), until, pause };
                    return Err(error);
                }
                pause
            }
        };
        let timeout = self.host.clock.sleep(CONNECT_TIME_MAX);
        let error = match select(self.connect.connect(self.index), timeout).await {
            Either::Left((Ok(tables), _)) => return Ok(tables),
            Either::Left((Err(Fault::Denied(denial, said)), _)) => StoreError::Denied(denial, said),
            Either::Left((Err(fault), _)) => StoreError::Unavailable(fault.to_string()),
            Either::Right(_) => StoreError::Unavailable(format!("no connection within {CONNECT_TIME_MAX:?}")),
        };
        let pause = (last_pause * 2).clamp(RECONNECT_PAUSE_MIN, RECONNECT_PAUSE_MAX);
        let until = self.host.clock.monotonic().plus(pause);
        self.connection = WriterConnection::Away { error: error.clone(), until, pause };
        Err(error)
    }

    /// Runs the writes in a separate task, so that a panic or a hanging connection costs only this
    /// transaction.
    async fn transact(
        &mut self,
        mut tables: Box<dyn Tables>,
        writes: Vec<Write>,
    ) -> Vec<Result<WriteReply, StoreError>> {
        let count = writes.len();
        let (memory, host) = (self.memory.clone(), self.host.clone());
        let began = host.clock.monotonic();
        let (done, ran) = oneshot::channel();
        self.host.spawn.spawn(Box::pin(async move {
            let timeout = host.clock.sleep(TRANSACTION_TIME_MAX);
            let mut runner = Runner { tables: &mut *tables, memory: &memory, host: &host };
            let replies = match select(pin!(runner.run(&writes)), timeout).await {
                Either::Left((replies, _)) => Some(replies),
                Either::Right(_) => None,
            };
            let _ = done.send(replies.map(|replies| (tables, replies)));
        }));
        let ran = ran.await;
        self.figures.transaction_time.observe_duration(self.host.clock.monotonic().since(began));
        self.figures.transaction_writes.observe(count as u64);
        match ran {
            Ok(Some((tables, replies))) => {
                // After an outage the state of the connection is unknown.
                if !replies.iter().any(|reply| matches!(reply, Err(StoreError::Unavailable(_)))) {
                    self.connection = WriterConnection::Made(tables);
                }
                replies
            }
            Ok(None) => {
                let error = format!("no answer within {TRANSACTION_TIME_MAX:?}");
                vec![Err(StoreError::Unavailable(error)); count]
            }
            Err(_) => vec![Err(StoreError::Broken("a transaction panicked".to_owned())); count],
        }
    }
}

/// The waiting writes up to the limit; `None` when all senders are gone.
async fn next_batch(receiver: &mut mpsc::Receiver<WriteRequest>) -> Option<Vec<WriteRequest>> {
    let first = receiver.recv().await?;
    let mut rows = first.write.weight();
    let mut batch = vec![first];
    while rows < TRANSACTION_ROWS_MAX
        && let Ok(next) = receiver.try_recv()
    {
        rows = rows.saturating_add(next.write.weight());
        batch.push(next);
    }
    Some(batch)
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_owned())
}
