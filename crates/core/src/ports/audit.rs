//! The audit log: who has changed what. The transaction of a change writes its entry. The leader seals entries
//! afterwards: each gets the next number and a hash over the hash before it, so that no writer waits for
//! another, and an entry that is changed or removed later is noticed (decision 0034).

use crate::ids::{JobId, ParseIdError};
use crate::limits;
use crate::ports::{CancelOutcome, ControlOutcome, Page, StoreError, SubmitOutcome, Write, WriteReply};
use crate::time::Timestamp;
use async_trait::async_trait;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// The audit log of a store. [`Write::Audited`] adds the entries of changes to it.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Latest first.
    async fn audit(&self, query: AuditQuery) -> Result<Page<AuditRow, AuditId>, StoreError>;
    /// Both ends of the chain; `None` if somebody has removed their rows.
    async fn audit_ends(&self) -> Result<Option<ChainEnds>, StoreError>;
    /// Sealed entries after this number, in their order. Rows that cannot be read are left out.
    async fn audit_chain(&self, after: u64, limit: usize) -> Result<Vec<AuditRow>, StoreError>;
    /// How many entries are not sealed.
    async fn unsealed_audit(&self) -> Result<u64, StoreError>;
    /// Seals up to `limit` entries in the order of their ids. Concurrent callers continue the same chain.
    /// Returns how many it has sealed.
    async fn seal_audit(&self, limit: usize) -> Result<usize, StoreError>;
    /// Stores entries of requests whose change is not a [`Write`], or that were refused. Known ids are ignored.
    async fn record_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError>;
    /// Deletes up to `limit` entries from the beginning of the chain, as far as they are older than `before`.
    /// The last one of them becomes the chain's anchor. Returns how many it has deleted.
    async fn retain_audit(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError>;
}

/// An entry's id: a UUID version 7, so ids sort by the time of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditId(JobId);

impl AuditId {
    pub const MIN: AuditId = AuditId::from_bytes([0; 16]);
    pub const MAX: AuditId = AuditId::from_bytes([0xFF; 16]);

    pub fn new(now: Timestamp, entropy: u64) -> Self {
        AuditId(JobId::new(now, entropy))
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        AuditId(JobId::from_bytes(bytes))
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// No entry of this millisecond or later has a lower id.
    fn first_at(at: Timestamp) -> Self {
        let millis = u128::from((at.as_micros().max(0) / 1_000).unsigned_abs());
        AuditId::from_bytes((millis << 80).to_be_bytes())
    }

    /// The id of a part of a request that had to be stored in parts.
    fn part(self, place: usize) -> Self {
        AuditId::from_bytes(u128::from_be_bytes(*self.as_bytes()).wrapping_add(place as u128).to_be_bytes())
    }
}

impl fmt::Display for AuditId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for AuditId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(AuditId)
    }
}

/// One request that has changed something, or was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub id: AuditId,
    pub at: Timestamp,
    /// The id of the caller's token, and its name.
    pub token: String,
    pub name: String,
    pub user: Option<String>,
    /// The address from which the request came.
    pub source: Option<String>,
    /// The name of the use case, such as `job.pause`.
    pub action: String,
    /// Such as `queue mail`.
    pub object: String,
    /// `ok`, `3 of 4`, or `refused: ` and the reason.
    pub outcome: String,
    /// A small JSON document: what was before and after, or counts.
    pub details: Option<String>,
}

pub const OUTCOME_OK: &str = "ok";
/// The beginning of the outcome of a request that has changed nothing.
pub const OUTCOME_REFUSED: &str = "refused";

impl AuditEntry {
    /// The same entry with texts that every database can hold: of limited length, without control characters.
    pub fn bounded(self) -> Self {
        let details = self.details.map(|details| match details.len() {
            ..=limits::AUDIT_DETAILS_BYTES_MAX => details,
            bytes => json!({ "omitted_bytes": bytes }).to_string(),
        });
        AuditEntry {
            token: bounded(&self.token),
            name: bounded(&self.name),
            user: self.user.as_deref().map(bounded),
            source: self.source.as_deref().map(bounded),
            action: bounded(&self.action),
            object: bounded(&self.object),
            outcome: bounded(&self.outcome),
            details,
            ..self
        }
    }

    pub fn refused(self, reason: &str) -> Self {
        AuditEntry { outcome: bounded(&format!("{OUTCOME_REFUSED}: {reason}")), ..self }
    }

    /// The fields in a fixed order, each with its length.
    fn hash_into(&self, hash: &mut Sha256) {
        let mut field = |value: Option<&[u8]>| match value {
            Some(bytes) => {
                hash.update((bytes.len() as u64).to_be_bytes());
                hash.update(bytes);
            }
            None => hash.update(u64::MAX.to_be_bytes()),
        };
        field(Some(self.id.as_bytes()));
        field(Some(&self.at.as_micros().to_be_bytes()));
        for text in [&self.token, &self.name] {
            field(Some(text.as_bytes()));
        }
        for text in [&self.user, &self.source] {
            field(text.as_deref().map(str::as_bytes));
        }
        for text in [&self.action, &self.object, &self.outcome] {
            field(Some(text.as_bytes()));
        }
        field(self.details.as_deref().map(str::as_bytes));
    }
}

fn bounded(text: &str) -> String {
    let mut kept: String =
        text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    kept.truncate(kept.floor_char_boundary(limits::AUDIT_TEXT_BYTES_MAX));
    kept
}

/// An entry's place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    pub number: u64,
    pub hash: [u8; 32],
}

impl Seal {
    /// Before the first entry.
    pub const START: Seal = Seal { number: 0, hash: [0; 32] };

    /// The seal of the next entry: SHA-256 over this hash, the entry's number, and its fields.
    pub fn next(&self, entry: &AuditEntry) -> Seal {
        let number = self.number.saturating_add(1);
        let mut hash = Sha256::new();
        hash.update(self.hash);
        hash.update(number.to_be_bytes());
        entry.hash_into(&mut hash);
        Seal { number, hash: hash.finalize().into() }
    }
}

/// A stored entry. It is sealed within seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    pub entry: AuditEntry,
    pub seal: Option<Seal>,
}

/// Both ends of the stored chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainEnds {
    /// The last entry that retention has deleted.
    pub anchor: Seal,
    /// The last entry.
    pub head: Seal,
}

impl ChainEnds {
    pub const EMPTY: ChainEnds = ChainEnds { anchor: Seal::START, head: Seal::START };
}

/// Entries read for a verification, between two reads of the ends: meanwhile entries may be sealed and deleted.
#[derive(Debug, Clone)]
pub struct ChainPart {
    pub before: ChainEnds,
    pub rows: Vec<AuditRow>,
    pub after: ChainEnds,
    /// Whether `rows` ends because of a limit.
    pub is_cut_off: bool,
}

/// The chain is broken at this entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenChain {
    pub number: u64,
    pub problem: String,
}

/// What a verification of a part of the chain has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainCheck {
    /// Entries that are as they were sealed.
    pub checked: u64,
    /// The last one of them.
    pub last: Seal,
    pub broken: Option<BrokenChain>,
}

impl ChainCheck {
    /// Of a chain without ends: nothing tells how long it was.
    pub fn without_ends() -> Self {
        let problem =
            "the rows that name the first and the last entry (audit_chain) were removed or made unreadable";
        let problem = problem.to_owned();
        let broken = Some(BrokenChain { number: Seal::START.number, problem });
        ChainCheck { checked: 0, last: Seal::START, broken }
    }
}

impl ChainPart {
    /// Verifies the entries after number `after`, whose own row, if it was not deleted, is the first row.
    pub fn check(&self, after: u64) -> ChainCheck {
        let anchor = self.after.anchor;
        let mut check = ChainCheck { checked: 0, last: anchor, broken: None };
        let seals = self.rows.iter().filter_map(|row| Some((row.seal?, row)));
        let broken = |number, problem: &str| Some(BrokenChain { number, problem: problem.to_owned() });
        let has_first = || self.rows.iter().any(|row| row.seal.is_some_and(|seal| seal.number == after));
        if anchor.number > self.after.head.number {
            check.broken = broken(anchor.number, "more entries were deleted than were sealed (audit_chain)");
            return check;
        }
        if after > anchor.number && !has_first() {
            check.broken = broken(after, "it was removed");
            return check;
        }
        for (seal, row) in seals {
            if seal.number <= self.before.anchor.number && after == 0 {
                check.broken = broken(seal.number, "it was inserted before the oldest entry");
                return check;
            }
            if seal.number == after && after > anchor.number {
                check.last = seal;
                continue;
            }
            // Deleted since it was read.
            if seal.number <= anchor.number {
                continue;
            }
            let expected = check.last.next(&row.entry);
            check.broken = if seal.number > self.after.head.number {
                broken(seal.number, "it was inserted after the newest entry")
            } else if seal.number < expected.number {
                broken(seal.number, "it was inserted")
            } else if seal.number > expected.number {
                broken(expected.number, "it was removed")
            } else if seal.hash != expected.hash {
                broken(seal.number, "it was changed, or an entry was inserted or removed before it")
            } else {
                None
            };
            if check.broken.is_some() {
                return check;
            }
            check.checked += 1;
            check.last = seal;
        }
        let (last, head) = (check.last, self.before.head);
        if last.number < head.number && !self.is_cut_off {
            check.broken = broken(last.number + 1, "it was removed");
        } else if [head, self.after.head]
            .iter()
            .any(|head| head.number == last.number && head.hash != last.hash)
        {
            check.broken = broken(last.number, "it is not the entry that was sealed last");
        }
        check
    }
}

/// Filter for a list of entries, latest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    pub before: Option<AuditId>,
    pub limit: usize,
    pub token: Option<String>,
    pub user: Option<String>,
    /// The beginning of the action: `job.` for all actions on jobs.
    pub action: Option<String>,
    pub object: Option<String>,
    /// The beginning of the outcome.
    pub outcome: Option<String>,
    /// At this time or later.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

impl AuditQuery {
    /// Ids of entries that may match: from the first one to before the second one.
    pub fn bounds(&self) -> (AuditId, AuditId) {
        let until =
            self.until.map_or(AuditId::MAX, |at| AuditId::first_at(at.plus(Duration::from_millis(1))));
        let first = self.from.map_or(AuditId::MIN, AuditId::first_at);
        (first, self.before.map_or(until, |before| before.min(until)))
    }

    /// How many rows to read for a page.
    pub fn rows_to_read(&self) -> usize {
        let is_filtered = [&self.token, &self.user, &self.action, &self.object, &self.outcome]
            .iter()
            .any(|filter| filter.is_some());
        if is_filtered { limits::AUDIT_SCANNED_MAX } else { self.limit.min(limits::AUDIT_SCANNED_MAX) }
    }

    pub fn matches(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let begins = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| found.starts_with(wanted))
        };
        is(&self.token, Some(&entry.token))
            && is(&self.user, entry.user.as_deref())
            && is(&self.object, Some(&entry.object))
            && begins(&self.action, &entry.action)
            && begins(&self.outcome, &entry.outcome)
            && self.from.is_none_or(|from| entry.at >= from)
            && self.until.is_none_or(|until| entry.at < until)
    }

    /// The page of the first rows within the bounds, latest first. There may be more if as many were read as
    /// [`Self::rows_to_read`] says.
    pub fn page(&self, rows: Vec<AuditRow>, rows_read: usize) -> Page<AuditRow, AuditId> {
        let last_read = rows.last().map(|row| row.entry.id).filter(|_| rows_read >= self.rows_to_read());
        let mut items: Vec<AuditRow> = rows.into_iter().filter(|row| self.matches(&row.entry)).collect();
        let next = match items.len() > self.limit {
            true => items.get(self.limit.saturating_sub(1)).map(|row| row.entry.id),
            false => last_read,
        };
        items.truncate(self.limit);
        Page { items, next }
    }
}

/// An entry and the items of a write that it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedItems {
    pub entry: AuditEntry,
    pub items: Range<usize>,
    /// Items of the same request that were refused before.
    pub left_out: usize,
}

impl AuditedItems {
    /// The entry of a write with a single item, or of all its items.
    pub fn all_of(entry: AuditEntry, write: &Write) -> Self {
        AuditedItems { entry, items: 0..write.weight(), left_out: 0 }
    }

    /// The entry with the outcome of its items.
    pub fn answered(&self, reply: &WriteReply) -> AuditEntry {
        let results = results(reply);
        let results = &results[self.items.clone()];
        let total = results.len() + self.left_out;
        let done = results.iter().filter(|result| result.is_ok()).count();
        let outcome = match results.iter().find_map(|result| result.as_ref().err()) {
            _ if done == total => OUTCOME_OK.to_owned(),
            _ if done > 0 => format!("{done} of {total}"),
            Some(reason) => format!("{OUTCOME_REFUSED}: {reason}"),
            None => format!("{OUTCOME_REFUSED}: not valid"),
        };
        AuditEntry { outcome, ..self.entry.clone() }.bounded()
    }

    /// The parts of entries for the items before a place and from there on.
    pub(super) fn split(entries: &[AuditedItems], at: usize) -> [Vec<AuditedItems>; 2] {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for audited in entries {
            let Range { start, end } = audited.items;
            if start < at {
                left.push(AuditedItems { items: start..end.min(at), ..audited.clone() });
            }
            if end > at {
                let from = start.max(at);
                let entry = AuditEntry { id: audited.entry.id.part(from - start), ..audited.entry.clone() };
                let left_out = if start < at { 0 } else { audited.left_out };
                right.push(AuditedItems { entry, items: from - at..end - at, left_out });
            }
        }
        [left, right]
    }
}

/// What became of each item of a write; one for a write without items.
fn results(reply: &WriteReply) -> Vec<Result<(), String>> {
    let refused = |reason: String| Err(reason);
    let not_there = || refused("not found".to_owned());
    let submitted = |outcome: &SubmitOutcome| match outcome {
        SubmitOutcome::Created(_) | SubmitOutcome::AlreadyThere | SubmitOutcome::Existing(_) => Ok(()),
        SubmitOutcome::KeyTaken(job) => refused(format!("job {job} has this unique_key")),
        SubmitOutcome::BadParent { parent, .. } => refused(format!("cannot depend on job {parent}")),
        SubmitOutcome::QueueFull { queue, .. } => refused(format!("the queue {queue} is full")),
        SubmitOutcome::Unreadable(reason) => refused(reason.clone()),
    };
    let controlled = |outcome: &ControlOutcome| match outcome {
        ControlOutcome::Done(_) => Ok(()),
        ControlOutcome::Refused(refusal) => refused(refusal.to_string()),
        ControlOutcome::NotThere => not_there(),
    };
    let cancelled = |outcome: &CancelOutcome| match outcome {
        CancelOutcome::Cancelled(_) | CancelOutcome::Asked => Ok(()),
        CancelOutcome::Finished => refused("it has already ended".to_owned()),
        CancelOutcome::NotThere => not_there(),
    };
    match reply {
        WriteReply::Submitted(outcomes) => outcomes.iter().map(submitted).collect(),
        WriteReply::Controlled(outcomes) | WriteReply::Redriven(outcomes) => {
            outcomes.iter().map(controlled).collect()
        }
        WriteReply::Cancelled(outcomes) => outcomes.iter().map(cancelled).collect(),
        WriteReply::Discarded(existed) => {
            existed.iter().map(|existed| if *existed { Ok(()) } else { not_there() }).collect()
        }
        WriteReply::SessionOrdered(None) => vec![not_there()],
        WriteReply::SessionOrdered(Some(Err(_))) => vec![refused("the worker is draining".to_owned())],
        _ => vec![Ok(())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> AuditEntry {
        let at = Timestamp::from_micros(1_000_000 * i64::try_from(number).unwrap());
        AuditEntry {
            id: AuditId::new(at, number),
            at,
            token: "t1".to_owned(),
            name: "deploy".to_owned(),
            user: None,
            source: Some("127.0.0.1".to_owned()),
            action: "queue.pause".to_owned(),
            object: "queue mail".to_owned(),
            outcome: OUTCOME_OK.to_owned(),
            details: None,
        }
    }

    /// A chain of this many entries.
    fn chain(length: u64) -> Vec<AuditRow> {
        let mut last = Seal::START;
        let mut row = |number| {
            last = last.next(&entry(number));
            AuditRow { entry: entry(number), seal: Some(last) }
        };
        (1..=length).map(&mut row).collect()
    }

    fn part(rows: Vec<AuditRow>, ends: ChainEnds) -> ChainPart {
        ChainPart { before: ends, rows, after: ends, is_cut_off: false }
    }

    fn ends(rows: &[AuditRow]) -> ChainEnds {
        ChainEnds { anchor: Seal::START, head: rows.last().and_then(|row| row.seal).unwrap() }
    }

    #[test]
    fn a_chain_is_verified_whole_and_in_parts() {
        let rows = chain(5);
        let all = part(rows.clone(), ends(&rows)).check(0);
        assert_eq!((all.checked, all.last.number, all.broken), (5, 5, None));
        let first = ChainPart { is_cut_off: true, ..part(rows[..3].to_vec(), ends(&rows)) }.check(0);
        assert_eq!((first.checked, first.last.number, first.broken), (3, 3, None));
        let rest = part(rows[2..].to_vec(), ends(&rows)).check(3);
        assert_eq!((rest.checked, rest.last.number, rest.broken), (2, 5, None));
    }

    #[test]
    fn entries_may_be_sealed_and_deleted_during_a_verification() {
        let rows = chain(5);
        let before = ChainEnds { anchor: Seal::START, head: rows[3].seal.unwrap() };
        let after = ChainEnds { anchor: rows[1].seal.unwrap(), head: rows[4].seal.unwrap() };
        for read in [rows.clone(), rows[..4].to_vec(), rows[1..].to_vec(), rows[2..].to_vec()] {
            let check = ChainPart { before, rows: read, after, is_cut_off: false }.check(0);
            assert_eq!(check.broken, None);
        }
    }

    #[test]
    fn ends_that_do_not_fit_together_break_the_chain() {
        let rows = chain(4);
        let seal = |number: usize| rows[number - 1].seal.unwrap();
        let broken = |rows: &[AuditRow], ends: ChainEnds| part(rows.to_vec(), ends).check(0).broken;
        let swapped = ChainEnds { anchor: seal(4), head: seal(2) };
        assert!(broken(&rows[..0], swapped).is_some() && broken(&rows[..], swapped).is_some());
        // The last entry was deleted, and the head is the one before it, with the hash of the deleted one.
        let lowered = Seal { number: 3, ..seal(4) };
        let lowered = ChainEnds { anchor: Seal::START, head: lowered };
        assert_eq!(broken(&rows[..3], lowered).map(|broken| broken.number), Some(3));
        assert_eq!(broken(&rows[..0], lowered).map(|broken| broken.number), Some(1));
    }

    #[test]
    fn a_changed_removed_or_inserted_entry_breaks_the_chain() {
        let rows = chain(4);
        let ends = ends(&rows);
        let broken = |rows: Vec<AuditRow>| part(rows, ends).check(0).broken.map(|broken| broken.number);
        for number in 1..=4_u64 {
            let place = usize::try_from(number - 1).unwrap();
            let mut removed = rows.clone();
            removed.remove(place);
            assert_eq!(broken(removed), Some(number), "removed");
            let changes: [fn(&mut AuditEntry); 5] = [
                |entry| entry.outcome = "refused: no".to_owned(),
                |entry| entry.user = Some(String::new()),
                |entry| entry.source = None,
                |entry| entry.details = Some("{}".to_owned()),
                |entry| entry.at = Timestamp::EPOCH,
            ];
            for change in changes {
                let mut changed = rows.clone();
                change(&mut changed[place].entry);
                assert_eq!(broken(changed), Some(number), "changed");
            }
            let mut inserted = rows.clone();
            inserted.insert(place, AuditRow { entry: entry(9), seal: rows[place].seal });
            for row in &mut inserted[place + 1..] {
                row.seal = row.seal.map(|seal| Seal { number: seal.number + 1, ..seal });
            }
            assert_eq!(broken(inserted), Some(number), "inserted");
        }
        let mut doubled = rows.clone();
        doubled.insert(2, AuditRow { entry: entry(9), seal: rows[1].seal });
        assert_eq!(broken(doubled), Some(2));
        let mut appended = rows.clone();
        appended.push(AuditRow { entry: entry(9), seal: Some(ends.head.next(&entry(9))) });
        assert_eq!(broken(appended), Some(5));
        assert_eq!(broken(chain(3)), Some(4));
    }

    #[test]
    fn retention_leaves_an_anchor() {
        let rows = chain(5);
        let ends = ChainEnds { anchor: rows[1].seal.unwrap(), ..ends(&rows) };
        assert_eq!(part(rows[2..].to_vec(), ends).check(0).broken, None);
        let empty = ChainEnds { anchor: ends.head, ..ends };
        assert_eq!(part(vec![], empty).check(0).broken, None);
        assert_eq!(part(vec![rows[0].clone()], empty).check(0).broken.unwrap().number, 1);
    }

    #[test]
    fn pages_are_filtered_and_say_where_to_continue() {
        let rows: Vec<AuditRow> = chain(5).into_iter().rev().collect();
        let query = AuditQuery { limit: 2, ..AuditQuery::default() };
        let page = query.page(rows[..2].to_vec(), 2);
        assert_eq!((page.items.len(), page.next), (2, Some(rows[1].entry.id)));
        let query = AuditQuery { limit: 9, action: Some("queue.".to_owned()), ..AuditQuery::default() };
        assert_eq!(query.page(rows.clone(), 5).items.len(), 5);
        let query = AuditQuery { action: Some("job.".to_owned()), ..query };
        let page = query.page(rows.clone(), limits::AUDIT_SCANNED_MAX);
        assert_eq!((page.items.len(), page.next), (0, Some(rows[4].entry.id)));
        let times = AuditQuery {
            limit: 9,
            from: Some(rows[3].entry.at),
            until: Some(rows[1].entry.at),
            ..AuditQuery::default()
        };
        let (first, last) = times.bounds();
        let within = |row: &&AuditRow| (first..last).contains(&row.entry.id);
        let read: Vec<AuditRow> = rows.iter().filter(within).cloned().collect();
        assert_eq!(times.page(read, 3).items, rows[2..=3]);
    }

    #[test]
    fn the_parts_of_a_request_have_their_own_ids_and_outcomes() {
        let audited = AuditedItems { entry: entry(1), items: 1..5, left_out: 1 };
        let [left, right] = AuditedItems::split(std::slice::from_ref(&audited), 3);
        assert_eq!((left[0].items.clone(), right[0].items.clone()), (1..3, 0..2));
        assert_ne!(left[0].entry.id, right[0].entry.id);
        assert_eq!(left[0].answered(&WriteReply::Discarded(vec![false, true, true])).outcome, "2 of 3");
        assert_eq!(right[0].answered(&WriteReply::Discarded(vec![true, true])).outcome, "ok");
        let none = right[0].answered(&WriteReply::Discarded(vec![false, false]));
        assert_eq!(none.outcome, "refused: not found");
    }

    #[test]
    fn texts_are_bounded_and_have_no_control_characters() {
        let long = AuditEntry {
            object: "ü".repeat(limits::AUDIT_TEXT_BYTES_MAX),
            name: "a\nb\0".to_owned(),
            details: Some("x".repeat(limits::AUDIT_DETAILS_BYTES_MAX + 1)),
            ..entry(1)
        };
        let kept = long.bounded();
        assert!(kept.object.len() <= limits::AUDIT_TEXT_BYTES_MAX);
        assert_eq!(kept.name, "a\u{fffd}b\u{fffd}");
        assert_eq!(kept.details.unwrap(), r#"{"omitted_bytes":4097}"#);
    }
}
