//! Rows of the audit log, the same for every database, and what sealing and retention compute from them.

use crate::cells::{RowCells, read};
use crate::fault::Fault;
use crate::layout::AuditColumns;
use punctual_core::ports::{AuditEntry, AuditId, AuditRow, ChainEnds, Seal};
use punctual_core::time::Timestamp;
use std::borrow::Cow;

/// The names of the rows of `audit_chain`.
pub(crate) const ANCHOR: &str = "anchor";
pub(crate) const HEAD: &str = "head";

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

pub(crate) fn ends(rows: Vec<(String, Seal)>) -> Result<ChainEnds, Fault> {
    let end = |name: &str| {
        let found = rows.iter().find(|(found, _)| found == name);
        found.map(|(_, seal)| *seal).ok_or_else(|| Fault::Missing(format!("the row {name} of audit_chain")))
    };
    Ok(ChainEnds { anchor: end(ANCHOR)?, head: end(HEAD)? })
}

/// The seals of these entries, which continue the chain after `head`.
pub(crate) fn seals(head: Seal, entries: &[AuditRow]) -> Vec<(AuditId, Seal)> {
    let mut last = head;
    let next = |row: &AuditRow| {
        last = last.next(&row.entry);
        (row.entry.id, last)
    };
    entries.iter().map(next).collect()
}

/// Of the first entries of the chain, the last one before the first that is not older.
pub(crate) fn last_expired(rows: &[AuditRow], before: Timestamp) -> Option<Seal> {
    rows.iter().take_while(|row| row.entry.at < before).last().and_then(|row| row.seal)
}
