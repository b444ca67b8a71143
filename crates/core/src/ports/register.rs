//! The register: rows in which a store keeps who is in the cluster and who holds what, so that a cluster needs nothing
//! beside its store.
//!
//! It compares and swaps and knows no time to live: whether a member has been silent for too long is for those who look to
//! say ([`crate::silence`]). Every verb is one transaction and can be repeated safely. `now` is kept for people to read and
//! decides nothing.

use super::coordination::{HeldLease, Joining, LeaseEpoch, LeaseName, MemberId, Standing, Take};
use super::store::StoreError;
use crate::time::Timestamp;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::time::Duration;

#[async_trait]
pub trait Register: Send + Sync {
    /// Adds a member. One that is there already stays the same, with this card and time to live.
    async fn enter_member(&self, now: Timestamp, joining: Joining) -> Result<(), StoreError>;

    /// Raises a member's counter and keeps its card.
    async fn beat_member(
        &self,
        now: Timestamp,
        member: &MemberId,
        card: String,
    ) -> Result<Standing, StoreError>;

    /// All members and the leases that they hold, as they were at one moment.
    async fn entries(&self) -> Result<Entries, StoreError>;

    /// Removes members whose counter still stands where it was seen, and frees what they hold. Whether each was removed by
    /// this call.
    async fn give_up_members(&self, silent: Vec<MemberPulse>) -> Result<Vec<bool>, StoreError>;

    /// Takes what is free for a member, by the rule of [`take_rows`]; one answer per name. Taking counts as a beat.
    async fn take_leases(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, StoreError>;

    /// Frees leases, by the rule of [`release_rows`]; whether each was held.
    async fn release_leases(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, StoreError>;

    /// Removes a member, and frees what it holds. Harmless if it is not there.
    async fn remove_member(&self, member: &MemberId) -> Result<(), StoreError>;

    /// Removes odd rows of members, with what they hold, and frees leases whose rows are odd still. Whoever is removed and
    /// alive is told with its next beat. Leases of unknown names stay as they are.
    async fn clear_rows(&self, odd: Vec<OddRow>) -> Result<(), StoreError>;
}

/// What was read of a register.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries {
    /// By id.
    pub members: Vec<MemberRow>,
    /// What is held, by name.
    pub held: Vec<(HeldLease, MemberId)>,
    /// What cannot be read, and is neither a member nor held by one.
    pub odd: Vec<OddRow>,
}

/// A row that none of us has written as it is: by somebody else, or damaged since. It stands for nobody, so that it keeps
/// nobody from anything.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OddRow {
    pub table: RegisterTable,
    /// What stands where its id or name should.
    pub key: String,
    /// Which column, and what it holds.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegisterTable {
    Members,
    Leases,
}

impl OddRow {
    /// Whether it can be cleared. A lease of an unknown name is in nobody's way, and a later version may know it.
    pub fn is_in_the_way(&self) -> bool {
        self.table == RegisterTable::Members || LeaseName::parse(&self.key).is_some()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    pub id: MemberId,
    pub beat: u64,
    pub ttl: Duration,
    pub card: String,
}

/// A member with the count that somebody saw.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberPulse {
    pub member: MemberId,
    pub beat: u64,
}

/// A lease as its row says. It stays when nobody holds it: its epoch goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    pub name: LeaseName,
    /// Of the latest holder.
    pub epoch: LeaseEpoch,
    pub holder: Option<MemberId>,
}

/// What becomes of rows that a member wants.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    /// In the order of the names.
    pub answers: Vec<Take>,
    /// Rows to be written, by name. Those that were not found are new.
    pub changed: Vec<LeaseRow>,
}

/// What a member who is alive gets of these names: what is free, in the next epoch, and what it holds, in its own. Rows that
/// are not there were never held.
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

/// What becomes of rows that a member lets go of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Whether each was held in its epoch, in the order asked.
    pub answers: Vec<bool>,
    /// Names that are free now.
    pub freed: Vec<LeaseName>,
}

/// Frees what a member holds in the epoch that it names. Anything else is not its own any more, and stays as it is.
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
