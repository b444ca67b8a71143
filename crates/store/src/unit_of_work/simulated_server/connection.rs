//! Connections to the server, which may break at any call, and the writers that use them.

use super::server::MemoryServer;
use crate::fault::Fault;
use crate::unit_of_work::{Connect, LoadedRows, ReadSet, Tables, WriteSet, Writers};
use async_trait::async_trait;
use punctual_core::ports::{Host, StoreError, Write, WriteReply};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The writers of one node.
pub struct MemoryWriters(Writers);

impl MemoryWriters {
    /// Starts this many writers on the node's host.
    pub fn start(server: &Arc<MemoryServer>, node: usize, writers: usize, host: &Host) -> Self {
        let connect = MemoryConnect { server: server.clone(), node };
        MemoryWriters(Writers::start(writers, Arc::new(connect), host))
    }

    pub async fn write(&self, write: Write) -> Result<WriteReply, StoreError> {
        self.0.write(write).await
    }
}

struct MemoryConnect {
    server: Arc<MemoryServer>,
    node: usize,
}

#[async_trait]
impl Connect for MemoryConnect {
    async fn connect(&self, _writer: usize) -> Result<Box<dyn Tables>, Fault> {
        let (server, node) = (self.server.clone(), self.node);
        let mut connection =
            MemoryConnection { server, node, transaction: None, is_broken: true, replies: vec![] };
        connection.repair().await?;
        Ok(Box::new(connection))
    }
}

/// One connection. When it is dropped, the server rolls back its transaction.
struct MemoryConnection {
    server: Arc<MemoryServer>,
    node: usize,
    transaction: Option<u64>,
    is_broken: bool,
    replies: Vec<(Write, Result<WriteReply, StoreError>)>,
}

impl MemoryConnection {
    /// Connects again after the connection broke.
    async fn repair(&mut self) -> Result<(), Fault> {
        if self.is_broken {
            self.is_broken = false;
            self.call(|_| async { Ok(()) }).await?;
        }
        Ok(())
    }

    /// Sends a call and waits for its answer. The server completes a call even if its client is gone.
    async fn call<T, F>(
        &mut self,
        work: impl FnOnce(Arc<MemoryServer>) -> F + Send + 'static,
    ) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Fault>> + Send,
    {
        let (server, transaction, trip) = (self.server.clone(), self.transaction, self.server.network.trip());
        let (reply, answer) = oneshot::channel();
        self.server.spawn.spawn(Box::pin(async move {
            let end = || transaction.into_iter().for_each(|transaction| server.end(transaction));
            server.clock.sleep(trip.out).await;
            if trip.is_refused {
                end();
                let _ = reply.send(Err(Fault::Away("the connection was lost".to_owned())));
                return;
            }
            let result = match transaction.map_or(Ok(()), |transaction| server.call_begins(transaction)) {
                Ok(()) => work(server.clone()).await,
                Err(fault) => Err(fault),
            };
            if result.is_err() || trip.is_lost || reply.is_closed() {
                end();
            } else {
                transaction.into_iter().for_each(|transaction| server.call_ends(transaction));
            }
            server.clock.sleep(trip.back).await;
            let lost = || Err(Fault::Away("the answer was lost".to_owned()));
            let _ = reply.send(if trip.is_lost { lost() } else { result });
        }));
        let result = answer.await.unwrap_or_else(|_| Err(Fault::Away("the server is gone".to_owned())));
        self.is_broken |= matches!(result, Err(Fault::Away(_)));
        result
    }
}

#[async_trait]
impl Tables for MemoryConnection {
    async fn intern(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        self.repair().await?;
        let read_set = read_set.clone();
        self.call(move |server| async move { Ok(server.intern(&read_set)) }).await
    }

    async fn begin(&mut self) -> Result<(), Fault> {
        self.repair().await?;
        self.transaction = Some(self.server.begin());
        Ok(())
    }

    async fn fetch(&mut self, read_set: &ReadSet) -> Result<LoadedRows, Fault> {
        let transaction = self.transaction.ok_or_else(no_transaction)?;
        let read_set = read_set.clone();
        self.call(move |server| async move { server.fetch(transaction, &read_set).await }).await
    }

    fn answering(&mut self, writes: &[Write], replies: &[Option<Result<WriteReply, StoreError>>]) {
        let replies =
            writes.iter().zip(replies).filter_map(|(write, reply)| Some((write.clone(), reply.clone()?)));
        self.replies = replies.collect();
    }

    async fn commit(&mut self, write_set: &WriteSet) -> Result<(), Fault> {
        let transaction = self.transaction.ok_or_else(no_transaction)?;
        let (node, write_set, replies) = (self.node, write_set.clone(), std::mem::take(&mut self.replies));
        let committed = self
            .call(move |server| async move { server.commit(transaction, node, &write_set, replies).await })
            .await;
        if matches!(committed, Err(Fault::Away(_))) {
            self.server.network.count("commits with unknown outcome");
        }
        committed?;
        self.transaction = None;
        Ok(())
    }

    async fn abandon(&mut self) {
        let Some(transaction) = self.transaction else { return };
        if !self.is_broken {
            // A rollback that fails breaks the connection, which also rolls back.
            let _ = self
                .call(move |server| async move {
                    server.end(transaction);
                    Ok(())
                })
                .await;
        }
        self.transaction = None;
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        let Some(transaction) = self.transaction else { return };
        let (server, trip) = (self.server.clone(), self.server.network.trip());
        self.server.spawn.spawn(Box::pin(async move {
            server.clock.sleep(trip.out).await;
            server.end_if_idle(transaction);
        }));
    }
}

fn no_transaction() -> Fault {
    Fault::Missing("a transaction".to_owned())
}
