//! The audit log of the server stores. It has its own connection, so that it never waits for a writer.

use super::changes::{TableChange, audit};
use super::connection::{
    Argument, OwnConnection, ServerCall, ServerConnection, TransactionFrame, retry_conflicts, value,
};
use super::list::{List, row};
use crate::audit::{ANCHOR, HEAD, ends, last_expired, read_audit, read_end, seals};
use crate::codecs::{counter, limit};
use crate::fault::Fault;
use crate::malformed::readable;
use punctual_core::ports::{AuditEntry, AuditId, AuditQuery, AuditRow, ChainEnds, Page, Seal};
use punctual_core::time::Timestamp;

/// The statements of a dialect.
pub(crate) trait AuditStatements: ServerConnection {
    /// How often a transaction is run because of conflicts.
    const AUDIT_TRIES: u32;
    /// Entries from an id to before another one, latest first, up to a limit.
    const AUDIT_PAGE: &'static str;
    /// Sealed entries after a number, up to a limit.
    const AUDIT_CHAIN: &'static str;
    /// Entries that are not sealed, up to a limit.
    const UNSEALED: &'static str;
    const ENDS: &'static str = "SELECT name, number, hash FROM audit_chain ORDER BY name";
    /// From here on no other transaction changes the chain.
    const LOCK_ENDS: &'static str = "SELECT name, number, hash FROM audit_chain ORDER BY name FOR UPDATE";
    /// Given a list of ids, numbers and hashes.
    const SEAL: &'static str;
    /// Given a number, a hash and the name of the end.
    const MOVE_END: &'static str;
    /// Given the last number.
    const DELETE: &'static str;
}

pub(crate) struct ServerAudit<C: AuditStatements> {
    own: OwnConnection<C>,
}

impl<C: AuditStatements> ServerAudit<C> {
    pub fn new(target: &C::Target) -> Self {
        ServerAudit { own: OwnConnection::new(target.clone()) }
    }

    pub async fn page(&self, query: &AuditQuery) -> Result<Page<AuditRow, AuditId>, Fault> {
        let (first, last) = query.bounds();
        let bounds = [value(first), value(last), value(limit(query.rows_to_read()))];
        let answer = self.own.send(ServerCall::new(C::AUDIT_PAGE, bounds)).await?;
        Ok(query.page(readable(answer.rows.iter().map(read_audit))?, answer.rows.len()))
    }

    pub async fn ends(&self) -> Result<ChainEnds, Fault> {
        let answer = self.own.send(ServerCall::new(C::ENDS, [])).await?;
        ends(answer.rows.iter().map(read_end).collect::<Result<_, _>>()?)
    }

    pub async fn chain(&self, after: u64, count: usize) -> Result<Vec<AuditRow>, Fault> {
        let call = ServerCall::new(C::AUDIT_CHAIN, [value(counter(after)), value(limit(count))]);
        readable(self.own.send(call).await?.rows.iter().map(read_audit))
    }

    pub async fn record(&self, entries: &[AuditEntry]) -> Result<(), Fault> {
        retry_conflicts!(C::AUDIT_TRIES, self.try_record(entries))
    }

    async fn try_record(&self, entries: &[AuditEntry]) -> Result<(), Fault> {
        let mut used = self.own.take().await?;
        used.connection.send(TransactionFrame::Begin, vec![]).await?;
        used.connection.commit_changes(vec![], vec![(TableChange::InsertAudit, audit(entries))]).await?;
        used.keep();
        Ok(())
    }

    /// Looks first, because most of the time there is nothing to seal.
    pub async fn seal(&self, count: usize) -> Result<usize, Fault> {
        let look = self.own.send(ServerCall::new(C::UNSEALED, [value(1_i64)])).await?;
        if look.rows.is_empty() {
            return Ok(0);
        }
        retry_conflicts!(C::AUDIT_TRIES, self.try_seal(count))
    }

    async fn try_seal(&self, count: usize) -> Result<usize, Fault> {
        let mut used = self.own.take().await?;
        let connection = &mut used.connection;
        let head = lock_ends(connection).await?.head;
        let unsealed = ServerCall::new(C::UNSEALED, [value(limit(count))]);
        let unsealed = connection.send_one(TransactionFrame::None, unsealed).await?.rows;
        let sealed = seals(head, &readable(unsealed.iter().map(read_audit))?);
        let mut calls = Vec::new();
        if let Some((_, last)) = sealed.last() {
            let rows = sealed.iter().map(|(id, seal)| row![*id, counter(seal.number), seal.hash]);
            calls.push(ServerCall::new(C::SEAL, [Argument::Rows(List::of(rows))]));
            calls.push(move_end::<C>(HEAD, *last));
        }
        connection.send(TransactionFrame::Commit, calls).await?;
        used.keep();
        Ok(sealed.len())
    }

    pub async fn retain(&self, before: Timestamp, count: usize) -> Result<u64, Fault> {
        retry_conflicts!(C::AUDIT_TRIES, self.try_retain(before, count))
    }

    async fn try_retain(&self, before: Timestamp, count: usize) -> Result<u64, Fault> {
        let mut used = self.own.take().await?;
        let connection = &mut used.connection;
        let anchor = lock_ends(connection).await?.anchor;
        let first = ServerCall::new(C::AUDIT_CHAIN, [value(counter(anchor.number)), value(limit(count))]);
        let first = connection.send_one(TransactionFrame::None, first).await?.rows;
        let last = last_expired(&readable(first.iter().map(read_audit))?, before);
        let mut calls = Vec::new();
        if let Some(last) = last {
            calls.push(ServerCall::new(C::DELETE, [value(counter(last.number))]));
            calls.push(move_end::<C>(ANCHOR, last));
        }
        connection.send(TransactionFrame::Commit, calls).await?;
        used.keep();
        Ok(last.map_or(0, |last| last.number - anchor.number))
    }
}

async fn lock_ends<C: AuditStatements>(connection: &mut C) -> Result<ChainEnds, Fault> {
    let locked = connection.send_one(TransactionFrame::Begin, ServerCall::new(C::LOCK_ENDS, [])).await?;
    ends(locked.rows.iter().map(read_end).collect::<Result<_, _>>()?)
}

fn move_end<C: AuditStatements>(name: &'static str, seal: Seal) -> ServerCall<'static> {
    ServerCall::new(C::MOVE_END, [value(counter(seal.number)), value(seal.hash), value(name)])
}

/// Implements the port for a store that has the field `audit`.
macro_rules! serve_audit {
    ($store:ty) => {
        const _: () = {
            use async_trait::async_trait;
            use punctual_core::ports::{
                AuditEntry, AuditId, AuditLog, AuditQuery, AuditRow, ChainEnds, Page, StoreError,
            };
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl AuditLog for $store {
                async fn audit(&self, query: AuditQuery) -> Result<Page<AuditRow, AuditId>, StoreError> {
                    Ok(self.audit.page(&query).await?)
                }

                async fn audit_ends(&self) -> Result<ChainEnds, StoreError> {
                    Ok(self.audit.ends().await?)
                }

                async fn audit_chain(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
                    Ok(self.audit.chain(after, limit).await?)
                }

                async fn seal_audit(&self, limit: usize) -> Result<usize, StoreError> {
                    Ok(self.audit.seal(limit).await?)
                }

                async fn record_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
                    Ok(self.audit.record(&entries).await?)
                }

                async fn retain_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
                    Ok(self.audit.retain(before, limit).await?)
                }
            }
        };
    };
}
pub(crate) use serve_audit;
