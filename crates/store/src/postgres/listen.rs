//! Notifications between processes: `NOTIFY` on one connection, outside of the writing transactions
//! (inside, it would serialize their commits), and `LISTEN` on another, which is reopened after it breaks.

use super::connection::{TlsStream, handshake};
use super::options::Target;
use super::wire::{OwnWire, StatementCall, value};
use crate::fault::Fault;
use async_trait::async_trait;
use punctual_core::ports::{Heard, Lane, StoreError, Wakes};
use std::collections::BTreeSet;
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

pub(crate) struct PostgresWakes {
    target: Target,
    notifier: OwnWire,
    /// The server process that sends our notifications: these can be ignored.
    teller: AtomicI32,
    listening: Mutex<Option<Listening>>,
}

/// A connection that listens. Only the task that waits for notifications polls it.
struct Listening {
    /// Dropping it closes the connection.
    _client: Client,
    connection: Connection<Socket, TlsStream>,
}

impl PostgresWakes {
    pub fn new(target: &Target) -> Self {
        PostgresWakes {
            target: target.clone(),
            notifier: OwnWire::new(target.clone()),
            teller: AtomicI32::new(0),
            listening: Mutex::new(None),
        }
    }

    async fn try_tell(&self, lanes: &BTreeSet<Lane>) -> Result<(), Fault> {
        let mut used = self.notifier.take().await?;
        self.teller.store(used.connection.process, Ordering::Relaxed);
        used.connection.run_one(StatementCall::new(NOTIFY, [value(CHANNEL), value(payload(lanes)?)])).await?;
        used.keep();
        Ok(())
    }

    async fn try_hear(&self) -> Result<Heard, Fault> {
        let mut place = self.listening.lock().await;
        let Some(listening) = place.as_mut() else {
            *place = Some(Listening::open(&self.target).await?);
            return Ok(Heard::Anything);
        };
        loop {
            match listening.next().await {
                Ok(told) if told.process_id() == self.teller.load(Ordering::Relaxed) => {}
                Ok(told) => return Ok(understood(told.payload())),
                Err(fault) => {
                    *place = None;
                    return Err(fault);
                }
            }
        }
    }
}

#[async_trait]
impl Wakes for PostgresWakes {
    async fn tell(&self, lanes: BTreeSet<Lane>) -> Result<(), StoreError> {
        if lanes.is_empty() { Ok(()) } else { Ok(self.try_tell(&lanes).await?) }
    }

    async fn heard(&self) -> Result<Heard, StoreError> {
        Ok(self.try_hear().await?)
    }
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
            Some(Ok(AsyncMessage::Notification(told))) => return Poll::Ready(Ok(told)),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error.into())),
            None => return Poll::Ready(Err(Fault::Away("the connection that listens has ended".to_owned()))),
        }
    }
}

fn payload(lanes: &BTreeSet<Lane>) -> Result<String, Fault> {
    let names: Vec<(&str, &str)> = lanes.iter().map(|lane| (lane.queue(), lane.job_type())).collect();
    let text = serde_json::to_string(&names)?;
    Ok(if text.len() > PAYLOAD_BYTES_MAX { ANYTHING.to_owned() } else { text })
}

/// A payload that cannot be parsed may mean anything: a newer version has sent it.
fn understood(payload: &str) -> Heard {
    match serde_json::from_str::<Vec<(String, String)>>(payload) {
        Ok(names) => {
            Heard::Queued(names.into_iter().map(|(queue, job_type)| Lane::new(queue, job_type)).collect())
        }
        Err(_) => Heard::Anything,
    }
}
