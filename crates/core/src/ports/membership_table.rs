//! The membership table: rows in which a store keeps the members of the cluster and their leases, so that a
//! cluster needs nothing besides its store.
//!
//! It does compare-and-swap and does not know the time to live: the observers decide whether a member has
//! been silent for too long ([`crate::silence`]). Every verb is one transaction and can be repeated safely.
//! `now` is stored for users to read and decides nothing.

use super::coordination::{HeldLease, Joining, LeaseEpoch, LeaseName, MemberId, Standing, Take};
use super::store::StoreError;
use crate::time::Timestamp;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

#[async_trait]
pub trait MembershipTable: Send + Sync {
    /// Adds a member. An existing one stays the same, with this card and time to live.
    async fn enter_member(&self, now: Timestamp, joining: Joining) -> Result<(), StoreError>;

    /// Increments a member's counter and stores its card.
    async fn beat_member(
        &self,
        now: Timestamp,
        member: &MemberId,
        card: String,
    ) -> Result<Standing, StoreError>;

    /// All members and their leases, at one moment.
    async fn entries(&self) -> Result<Entries, StoreError>;

    /// Removes members whose counter has not changed since it was read, and frees their leases. Returns
    /// whether this call removed each.
    async fn give_up_members(&self, silent: Vec<MemberPulse>) -> Result<Vec<bool>, StoreError>;

    /// Acquires free leases for a member, by the rule of [`take_rows`]; one answer per name. Counts as a
    /// heartbeat.
    async fn take_leases(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, StoreError>;

    /// Frees leases, by the rule of [`release_rows`]; returns whether each was held.
    async fn release_leases(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, StoreError>;

    /// Removes a member and frees its leases. Does nothing if there is no such member.
    async fn remove_member(&self, member: &MemberId) -> Result<(), StoreError>;

    /// Removes member rows that are still malformed, with their leases, and frees leases whose rows are still
    /// malformed. A removed member that is alive learns of it with its next heartbeat. Leases with unknown
    /// names are left unchanged.
    async fn clear_rows(&self, malformed: Vec<MalformedRow>) -> Result<(), StoreError>;
}

/// The content of the membership table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// Ordered by id.
    pub members: Vec<MemberRow>,
    /// Leases that are held, ordered by name.
    pub held: Vec<(HeldLease, MemberId)>,
    /// Malformed rows: neither members nor held leases.
    pub malformed: Vec<MalformedRow>,
}

/// A malformed row: written by another program, or damaged since. It represents no member, so that it blocks
/// nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MalformedRow {
    pub table: MembershipTableName,
    /// The value in place of its id or name.
    pub key: String,
    /// Which column is malformed, and its value.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MembershipTableName {
    Members,
    Leases,
}

impl MalformedRow {
    /// Whether it can be cleared. A lease with an unknown name blocks nothing, and a later version may know
    /// it.
    pub fn is_in_the_way(&self) -> bool {
        self.table == MembershipTableName::Members || LeaseName::parse(&self.key).is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    pub id: MemberId,
    pub beat: u64,
    pub ttl: Duration,
    pub card: String,
}

/// A member with the counter that an observer read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberPulse {
    pub member: MemberId,
    pub beat: u64,
}

/// The row of a lease. It stays when the lease is free, because its epoch continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    pub name: LeaseName,
    /// That of the latest holder.
    pub epoch: LeaseEpoch,
    pub holder: Option<MemberId>,
}

/// The result of acquiring leases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// In the order of the names.
    pub answers: Vec<Take>,
    /// Rows to be written, ordered by name. Those that were not loaded are new.
    pub changed: Vec<LeaseRow>,
}

/// What a live member gets of these names: free leases with the next epoch, and leases that it already holds
/// with their own. A lease without a row was never held.
pub fn take_rows(found: Vec<LeaseRow>, member: &MemberId, names: &[LeaseName]) -> Taken {
    let mut rows: BTreeMap<LeaseName, LeaseRow> = found.into_iter().map(|row| (row.name, row)).collect();
    let mut changed = BTreeMap::new();
    let mut take = |name: &LeaseName| {
        let row = rows.entry(*name).or_insert(LeaseRow { name: *name, epoch: LeaseEpoch(0), holder: None });
        match &row.holder {
            Some(holder) if holder != member => return Take::HeldBy(holder.clone()),
            Some(_) => {}
            None => {
                *row = LeaseRow {
                    name: *name,
                    epoch: LeaseEpoch(row.epoch.0 + 1),
                    holder: Some(member.clone()),
                };
                changed.insert(*name, row.clone());
            }
        }
        Take::Held(row.epoch)
    };
    let answers = names.iter().map(&mut take).collect();
    Taken { answers, changed: changed.into_values().collect() }
}

/// The result of releasing leases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Whether each was held in its epoch, in the order of the request.
    pub answers: Vec<bool>,
    /// Names of leases that are now free.
    pub freed: Vec<LeaseName>,
}

/// Frees the leases that a member holds in the given epochs. Any other lease no longer belongs to it and is
/// left unchanged.
pub fn release_rows(found: &[LeaseRow], member: &MemberId, held: &[HeldLease]) -> Released {
    let mut released = Released::default();
    for lease in held {
        let is_held = found.iter().any(|row| {
            row.name == lease.name && row.epoch == lease.epoch && row.holder.as_ref() == Some(member)
        });
        let is_first = !released.freed.contains(&lease.name);
        released.answers.push(is_held && is_first);
        if is_held && is_first {
            released.freed.push(lease.name);
        }
    }
    released.freed.sort_unstable();
    released
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Segment;

    fn member(name: &str) -> MemberId {
        MemberId::new(name).unwrap()
    }

    fn segment(index: u8) -> LeaseName {
        LeaseName::Segment(Segment::new(index).unwrap())
    }

    fn row(name: LeaseName, epoch: u64, holder: Option<&str>) -> LeaseRow {
        LeaseRow { name, epoch: LeaseEpoch(epoch), holder: holder.map(member) }
    }

    #[test]
    fn what_is_free_is_taken_in_the_next_epoch() {
        let found =
            vec![row(segment(1), 4, None), row(segment(2), 7, Some("other")), row(segment(3), 2, Some("me"))];
        let names = [segment(3), segment(2), segment(1), LeaseName::Leader, segment(1)];
        let taken = take_rows(found, &member("me"), &names);
        let held = |epoch| Take::Held(LeaseEpoch(epoch));
        assert_eq!(taken.answers, [held(2), Take::HeldBy(member("other")), held(5), held(1), held(5)]);
        let written = [row(LeaseName::Leader, 1, Some("me")), row(segment(1), 5, Some("me"))];
        assert_eq!(taken.changed, written);
    }

    #[test]
    fn only_the_holder_in_its_epoch_lets_go() {
        let found = [row(segment(1), 4, Some("me")), row(segment(2), 7, Some("other"))];
        let held = |name, epoch| HeldLease { name, epoch: LeaseEpoch(epoch) };
        let asked = [held(segment(1), 3), held(segment(1), 4), held(segment(1), 4), held(segment(2), 7)];
        let released = release_rows(&found, &member("me"), &asked);
        assert_eq!(released.answers, [false, true, false, false]);
        assert_eq!(released.freed, [segment(1)]);
    }
}
