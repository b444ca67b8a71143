//! The audit log.

use super::{Query, ReadKind, Reads};
use crate::audit::{ends, read_audit, read_end};
use crate::cells::read;
use crate::codecs::{counter, limit};
use crate::fault::Fault;
use crate::malformed::readable;
use crate::row_list::row;
use punctual_core::ports::{AuditId, AuditQuery, AuditRow, ChainEnds, Page};

impl Reads<'_> {
    pub async fn audit(&mut self, query: &AuditQuery) -> Result<Page<AuditRow, AuditId>, Fault> {
        let (first, last) = query.bounds();
        let bounds = row![first, last, limit(query.rows_to_read())];
        let fetched = self.rows(Query::of(ReadKind::AuditPage, bounds)).await?;
        Ok(query.page(readable(fetched.iter().map(read_audit))?, fetched.len()))
    }

    /// `None` if one of the rows was removed or is malformed.
    pub async fn audit_ends(&mut self) -> Result<Option<ChainEnds>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::AuditEnds, [])).await?;
        Ok(ends(&readable(fetched.iter().map(read_end))?))
    }

    /// Sealed entries after a number.
    pub async fn audit_chain(&mut self, after: u64, count: usize) -> Result<Vec<AuditRow>, Fault> {
        let fetched = self.rows(Query::of(ReadKind::AuditChain, row![counter(after), limit(count)])).await?;
        readable(fetched.iter().map(read_audit))
    }

    pub async fn has_unsealed_audit(&mut self) -> Result<bool, Fault> {
        Ok(self.rows(Query::of(ReadKind::Unsealed, row![1_i64])).await?.first().is_some())
    }

    /// How many entries are not sealed.
    pub async fn unsealed_audit(&mut self) -> Result<u64, Fault> {
        let fetched = self.rows(Query::of(ReadKind::UnsealedCount, [])).await?;
        read(fetched.only("the number of unsealed entries")?, 0, "unsealed")
    }
}
