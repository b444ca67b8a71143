//! The audit log, the same for every database: its rows, and sealing and retention over the statements of a
//! dialect. [`crate::reads`] shows it.

use crate::cells::{RowCells, read};
use crate::codecs::{counter, limit};
use crate::fault::Fault;
use crate::layout::AuditColumns;
use crate::malformed::readable;
use crate::row_list::{List, row};
use crate::server::connection::{Argument, ServerCall, StatementVerb, Statements, TransactionFrame, value};
use async_trait::async_trait;
use punctual_core::ports::{AuditEntry, AuditId, AuditRow, ChainEnds, Seal};
use punctual_core::time::Timestamp;
use std::borrow::Cow;

/// A change of the audit log, apart from the entries of writes.
#[derive(Debug, Clone, PartialEq)]
pub enum AuditCall {
    Seal { limit: usize },
    Record { entries: Vec<AuditEntry> },
    Retain { before: Timestamp, limit: usize },
}

impl AuditCall {
    /// The approximate work in rows.
    pub(crate) fn weight(&self) -> usize {
        let rows = match self {
            AuditCall::Seal { limit } | AuditCall::Retain { limit, .. } => *limit,
            AuditCall::Record { entries } => entries.len(),
        };
        rows.max(1)
    }
}

/// The statements of a dialect.
#[async_trait]
pub(crate) trait AuditStatements: Statements {
    /// Sealed entries after a number, up to a limit.
    const AUDIT_CHAIN: &'static str;
    /// Entries that are not sealed, up to a limit.
    const UNSEALED: &'static str;
    /// From here on no other transaction changes the chain.
    const LOCK_ENDS: &'static str;
    /// Given a list of ids, numbers and hashes.
    const SEAL: &'static str;
    /// Given a number, a hash and the name of the end.
    const MOVE_END: &'static str;
    /// Given the last number.
    const DELETE: &'static str;

    /// Inserts entries that are not there, and commits the open transaction.
    async fn commit_entries(&mut self, entries: &[AuditEntry]) -> Result<(), Fault>;
}

/// Returns how many entries were sealed, written or deleted.
#[async_trait]
impl<C: AuditStatements> StatementVerb<C> for AuditCall {
    type Reply = u64;

    async fn perform(&self, connection: &mut C) -> Result<u64, Fault> {
        match self {
            AuditCall::Seal { limit } => seal(connection, *limit).await,
            AuditCall::Record { entries } => {
                connection.send(TransactionFrame::Begin, vec![]).await?;
                connection.commit_entries(entries).await?;
                Ok(entries.len() as u64)
            }
            AuditCall::Retain { before, limit } => retain(connection, *before, *limit).await,
        }
    }
}

async fn seal<C: AuditStatements>(connection: &mut C, count: usize) -> Result<u64, Fault> {
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
    Ok(sealed.len() as u64)
}

async fn retain<C: AuditStatements>(
    connection: &mut C,
    before: Timestamp,
    count: usize,
) -> Result<u64, Fault> {
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
    Ok(last.map_or(0, |last| last.number - anchor.number))
}

async fn lock_ends<C: AuditStatements>(connection: &mut C) -> Result<ChainEnds, Fault> {
    let locked = connection.send_one(TransactionFrame::Begin, ServerCall::new(C::LOCK_ENDS, [])).await?;
    needed_ends(&locked.rows.iter().map(read_end).collect::<Result<Vec<_>, _>>()?)
}

fn move_end<C: AuditStatements>(name: &'static str, seal: Seal) -> ServerCall<'static> {
    ServerCall::new(C::MOVE_END, [value(counter(seal.number)), value(seal.hash), value(name)])
}

/// The names of the rows of `audit_chain`.
const ANCHOR: &str = "anchor";
const HEAD: &str = "head";

impl<'a> AuditColumns<'a> {
    /// The columns of an entry that is not sealed.
    pub fn of(entry: &'a AuditEntry) -> Self {
        AuditColumns {
            id: entry.id,
            at: entry.at,
            token: Cow::Borrowed(&entry.token),
            name: Cow::Borrowed(&entry.name),
            user_id: entry.user.as_deref().map(Cow::Borrowed),
            source: entry.source.as_deref().map(Cow::Borrowed),
            action: Cow::Borrowed(&entry.action),
            object: Cow::Borrowed(&entry.object),
            outcome: Cow::Borrowed(&entry.outcome),
            details: entry.details.as_deref().map(Cow::Borrowed),
            number: None,
            hash: None,
        }
    }
}

/// Reads the columns of `audit`.
pub(crate) fn read_audit(row: &(impl RowCells + ?Sized)) -> Result<AuditRow, Fault> {
    let columns = AuditColumns::read(row, 0)?;
    let seal = columns.number.zip(columns.hash).map(|(number, hash)| Seal { number, hash });
    let entry = AuditEntry {
        id: columns.id,
        at: columns.at,
        token: columns.token.into_owned(),
        name: columns.name.into_owned(),
        user: columns.user_id.map(Cow::into_owned),
        source: columns.source.map(Cow::into_owned),
        action: columns.action.into_owned(),
        object: columns.object.into_owned(),
        outcome: columns.outcome.into_owned(),
        details: columns.details.map(Cow::into_owned),
    };
    Ok(AuditRow { entry, seal })
}

/// Reads the name, number and hash of a row of `audit_chain`.
pub(crate) fn read_end(row: &(impl RowCells + ?Sized)) -> Result<(String, Seal), Fault> {
    let seal = Seal { number: read(row, 1, "audit_chain.number")?, hash: read(row, 2, "audit_chain.hash")? };
    Ok((read(row, 0, "audit_chain.name")?, seal))
}

/// The ends of the chain; `None` if one of their rows was removed.
pub(crate) fn ends(rows: &[(String, Seal)]) -> Option<ChainEnds> {
    let end = |name: &str| rows.iter().find(|(found, _)| found == name).map(|(_, seal)| *seal);
    Some(ChainEnds { anchor: end(ANCHOR)?, head: end(HEAD)? })
}

/// The same for a change of the chain, which needs them.
pub(crate) fn needed_ends(rows: &[(String, Seal)]) -> Result<ChainEnds, Fault> {
    ends(rows).ok_or_else(|| Fault::Missing("the rows of audit_chain".to_owned()))
}

/// The seals of these entries, which continue the chain after `head`.
fn seals(head: Seal, entries: &[AuditRow]) -> Vec<(AuditId, Seal)> {
    let mut last = head;
    let next = |row: &AuditRow| {
        last = last.next(&row.entry);
        (row.entry.id, last)
    };
    entries.iter().map(next).collect()
}

/// Of the first entries of the chain, the last one before the first that is not older.
fn last_expired(rows: &[AuditRow], before: Timestamp) -> Option<Seal> {
    rows.iter().take_while(|row| row.entry.at < before).last().and_then(|row| row.seal)
}

/// Implements the port for a store with `audit_call`, which sends an [`AuditCall`], and reads.
macro_rules! serve_audit {
    ($store:ty) => {
        const _: () = {
            use crate::audit::AuditCall;
            use async_trait::async_trait;
            use punctual_core::ports::{
                AuditEntry, AuditId, AuditLog, AuditQuery, AuditRow, ChainEnds, Page, StoreError,
            };
            use punctual_core::time::Timestamp;

            #[async_trait]
            impl AuditLog for $store {
                async fn audit(&self, query: AuditQuery) -> Result<Page<AuditRow, AuditId>, StoreError> {
                    read!(self.readers, reads => reads.audit(&query))
                }

                async fn audit_ends(&self) -> Result<Option<ChainEnds>, StoreError> {
                    read!(self.readers, reads => reads.audit_ends())
                }

                async fn audit_chain(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
                    read!(self.readers, reads => reads.audit_chain(after, limit))
                }

                async fn unsealed_audit(&self) -> Result<u64, StoreError> {
                    read!(self.readers, reads => reads.unsealed_audit())
                }

                /// Reads first, because most of the time there is nothing to seal.
                async fn seal_audit(&self, limit: usize) -> Result<usize, StoreError> {
                    let has_unsealed: Result<bool, StoreError> =
                        read!(self.readers, reads => reads.has_unsealed_audit());
                    if !has_unsealed? {
                        return Ok(0);
                    }
                    Ok(self.audit_call(AuditCall::Seal { limit }).await? as usize)
                }

                async fn record_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
                    self.audit_call(AuditCall::Record { entries }).await.map(drop)
                }

                async fn retain_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
                    self.audit_call(AuditCall::Retain { before, limit }).await
                }
            }
        };
    };
}
pub(crate) use serve_audit;
