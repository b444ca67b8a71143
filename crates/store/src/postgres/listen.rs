//! The ready queue of the database: `NOTIFY` on one connection, outside of the writing transactions
//! (inside, it would serialize their commits), and `LISTEN` on another, which is reopened after it breaks.

use super::connection::{TlsStream, handshake};
use super::options::Target;
use super::wire::{OwnWire, StatementCall, value};
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::ports::{Lane, ReadyHint, ReadyQueue, ReadyQueueError, StoreError};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::Mutex;
use tokio_postgres::{AsyncMessage, Client, Connection, Notification, Socket};

/// The channel for lanes with work.
pub(crate) const CHANNEL: &str = "punctual_queued";
const LISTEN: &str = "LISTEN punctual_queued";
const NOTIFY: &str = "SELECT pg_notify($1, $2)";
/// The size limit of a notification in bytes; PostgreSQL accepts fewer than 8000. A longer one is sent as
/// [`ANYTHING`].
const PAYLOAD_BYTES_MAX: usize = 7_999;
/// There may be work in any lane.
const ANYTHING: &str = "*";

pub(crate) struct PostgresReadyQueue {
    target: Target,
    notifier: OwnWire,
    /// The server process that sends our notifications: these can be ignored.
    sender_process: AtomicI32,
    listening: Mutex<Option<Listening>>,
}

/// A connection that listens. Only the task that waits for notifications polls it.
struct Listening {
    /// Dropping it closes the connection.
    _client: Client,
    connection: Connection<Socket, TlsStream>,
}

impl PostgresReadyQueue {
    pub fn new(target: &Target) -> Self {
        PostgresReadyQueue {
            target: target.clone(),
            notifier: OwnWire::new(target.clone()),
            sender_process: AtomicI32::new(0),
            listening: Mutex::new(None),
        }
    }

    async fn try_publish(&self, hint: &ReadyHint) -> Result<(), Fault> {
        let mut used = self.notifier.take().await?;
        self.sender_process.store(used.connection.process, Ordering::Relaxed);
        used.connection.run_one(StatementCall::new(NOTIFY, [value(CHANNEL), value(payload(hint)?)])).await?;
        used.keep();
        Ok(())
    }

    async fn try_receive(&self) -> Result<ReadyHint, Fault> {
        let mut place = self.listening.lock().await;
        let Some(listening) = place.as_mut() else {
            *place = Some(Listening::open(&self.target).await?);
            return Ok(ReadyHint::AnyLane);
        };
        loop {
            match listening.next().await {
                Ok(notification)
                    if notification.process_id() == self.sender_process.load(Ordering::Relaxed) => {}
                Ok(notification) => return Ok(understood(notification.payload())),
                Err(fault) => {
                    *place = None;
                    return Err(fault);
                }
            }
        }
    }
}

#[async_trait]
impl ReadyQueue for PostgresReadyQueue {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    async fn publish(&self, hint: ReadyHint) -> Result<(), ReadyQueueError> {
        if hint.is_empty() { Ok(()) } else { self.try_publish(&hint).await.map_err(unavailable) }
    }

    async fn receive(&self) -> Result<ReadyHint, ReadyQueueError> {
        self.try_receive().await.map_err(unavailable)
    }
}

fn unavailable(fault: Fault) -> ReadyQueueError {
    ReadyQueueError::Unavailable(StoreError::from(fault).to_string())
}

impl Listening {
    async fn open(target: &Target) -> Result<Self, Fault> {
        let (client, mut connection) = handshake(target).await?;
        {
            let mut listen = pin!(client.batch_execute(LISTEN));
            poll_fn(|context| {
                // The first poll sends the statement, and it progresses only if the connection does.
                // Notifications in between do not matter: a process that starts to listen scans everything.
                let listened = listen.as_mut().poll(context).map_err(Fault::from);
                match poll_notification(&mut connection, context) {
                    Poll::Ready(Err(fault)) if listened.is_pending() => Poll::Ready(Err(fault)),
                    _ if listened.is_pending() => listen.as_mut().poll(context).map_err(Fault::from),
                    _ => listened,
                }
            })
            .await?;
        }
        Ok(Listening { _client: client, connection })
    }

    async fn next(&mut self) -> Result<Notification, Fault> {
        poll_fn(|context| poll_notification(&mut self.connection, context)).await
    }
}

fn poll_notification(
    connection: &mut Connection<Socket, TlsStream>,
    context: &mut Context<'_>,
) -> Poll<Result<Notification, Fault>> {
    loop {
        match ready!(connection.poll_message(context)) {
            Some(Ok(AsyncMessage::Notification(notification))) => return Poll::Ready(Ok(notification)),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error.into())),
            None => return Poll::Ready(Err(Fault::Away("the connection that listens has ended".to_owned()))),
        }
    }
}

fn payload(hint: &ReadyHint) -> Result<String, Fault> {
    let ReadyHint::Lanes(lanes) = hint else { return Ok(ANYTHING.to_owned()) };
    let names: Vec<(&str, &str)> = lanes.iter().map(|lane| (lane.queue(), lane.job_type())).collect();
    let text = serde_json::to_string(&names)?;
    Ok(if text.len() > PAYLOAD_BYTES_MAX { ANYTHING.to_owned() } else { text })
}

/// A payload that cannot be parsed may mean anything: a newer version has sent it.
fn understood(payload: &str) -> ReadyHint {
    match serde_json::from_str::<Vec<(String, String)>>(payload) {
        Ok(names) => {
            ReadyHint::Lanes(names.into_iter().map(|(queue, job_type)| Lane::new(queue, job_type)).collect())
        }
        Err(_) => ReadyHint::AnyLane,
    }
}
