//! Coordination through the store: members send heartbeats to rows, and each scan evicts silent members.
//!
//! The scanning node measures the silence on its own monotonic clock, and evicts by a compare-and-swap on the
//! count: no clock of a database or of another node matters.

use crate::entered::{Entered, check_card};
use crate::malformed::{MalformedEntries, MalformedEntryLog};
use async_trait::async_trait;
use punctual_core::cluster::Card;
use punctual_core::ports::{
    Clock, Coordination, CoordinationError, DISK_FULL, Entries, HeldLease, Joining, LeaseName, MalformedRow,
    Member, MemberId, MemberPulse, MembershipTable, MembershipTableName, Roster, Standing, StoreError, Take,
};
use punctual_core::silence::{Reading, Watch};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

pub struct StoreCoordination {
    membership_table: Arc<dyn MembershipTable>,
    clock: Arc<dyn Clock>,
    watch: Mutex<Watch<MemberId>>,
    entered: Entered,
    malformed_log: MalformedEntryLog,
}

impl StoreCoordination {
    pub fn new(membership_table: Arc<dyn MembershipTable>, clock: Arc<dyn Clock>) -> Self {
        StoreCoordination {
            membership_table,
            clock,
            watch: Mutex::default(),
            entered: Entered::default(),
            malformed_log: MalformedEntryLog::default(),
        }
    }

    /// The members whose counter has not changed for their whole time to live, as far as this observer has
    /// seen.
    ///
    /// The time of an observation is after the read: a count may have been written until then. A member that
    /// is evicted later did not send a heartbeat between that time and the comparison of the count.
    fn silent(&self, entries: &Entries) -> Vec<MemberPulse> {
        let now = self.clock.monotonic();
        let readings: BTreeMap<MemberId, Reading> = entries
            .members
            .iter()
            .map(|row| (row.id.clone(), Reading { beat: row.beat, ttl: row.ttl }))
            .collect();
        let silent = {
            let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
            watch.observe(now, readings)
        };
        let is_silent = |id: &MemberId| silent.contains(id);
        let pulses = entries.members.iter().filter(|row| is_silent(&row.id));
        pulses.map(|row| MemberPulse { member: row.id.clone(), beat: row.beat }).collect()
    }
}

#[async_trait]
impl Coordination for StoreCoordination {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        check_card(&joining.card)?;
        if self.entered.has(&joining.member) {
            return self.beat(&joining.member, joining.card).await;
        }
        let member = joining.member.clone();
        self.membership_table.enter_member(self.clock.wall(), joining).await.map_err(failed)?;
        self.entered.note(&member);
        Ok(Standing::Alive)
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        check_card(&card)?;
        self.membership_table.beat_member(self.clock.wall(), member, card).await.map_err(failed)
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        let mut entries = self.membership_table.entries().await.map_err(failed)?;
        self.malformed_log.found(malformed(&entries));
        let blocking: Vec<MalformedRow> =
            entries.malformed.iter().filter(|row| row.is_in_the_way()).cloned().collect();
        if !blocking.is_empty() {
            self.membership_table.clear_rows(blocking).await.map_err(failed)?;
            entries = self.membership_table.entries().await.map_err(failed)?;
        }
        let silent = self.silent(&entries);
        if !silent.is_empty() {
            let members: Vec<MemberId> = silent.iter().map(|pulse| pulse.member.clone()).collect();
            let given_up = self.membership_table.give_up_members(silent).await.map_err(failed)?;
            for (member, is_given_up) in members.iter().zip(given_up) {
                if is_given_up {
                    let host = host(&entries, member);
                    tracing::warn!(%member, host, "a member of the cluster was silent for too long and is evicted");
                }
            }
            // A member that has sent a heartbeat at the last moment is alive, and one that another node has
            // evicted is not.
            entries = self.membership_table.entries().await.map_err(failed)?;
        }
        let ghosts = ghosts(&entries);
        if !ghosts.is_empty() {
            for member in &ghosts {
                tracing::warn!(%member, "a process that is not a member of the cluster holds segments; they are freed");
                self.membership_table.remove_member(member).await.map_err(failed)?;
            }
            entries = self.membership_table.entries().await.map_err(failed)?;
        }
        Ok(roster(entries))
    }

    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        self.membership_table.take_leases(member, names).await.map_err(failed)
    }

    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        self.membership_table.release_leases(member, held).await.map_err(failed)
    }

    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        self.membership_table.remove_member(member).await.map_err(failed)
    }
}

/// The machine that a member names in its card, for log messages; `None` if it names none.
fn host(entries: &Entries, member: &MemberId) -> Option<String> {
    let row = entries.members.iter().find(|row| row.id == *member)?;
    Card::read(&row.card).map(|card| card.host)
}

/// Holders that are not members. Removing a member frees its leases in the same transaction, so another
/// program has written to these tables, or a part of them was restored. Their leases would never become free.
fn ghosts(entries: &Entries) -> BTreeSet<MemberId> {
    let is_ghost = |holder: &&MemberId| !entries.members.iter().any(|row| row.id == **holder);
    entries.held.iter().map(|(_, holder)| holder).filter(is_ghost).cloned().collect()
}

fn malformed(entries: &Entries) -> MalformedEntries {
    let describe = |row: &MalformedRow| {
        let (table, cleared) = match row.table {
            MembershipTableName::Members => ("cluster_members", "it is removed"),
            MembershipTableName::Leases => ("cluster_leases", "it is freed"),
        };
        let becomes = if row.is_in_the_way() { cleared } else { "it is left unchanged; remove the row" };
        (format!("{table}: {}", row.key), format!("{}; {becomes}", row.why))
    };
    entries.malformed.iter().map(describe).collect()
}

fn roster(entries: Entries) -> Roster {
    let members = entries.members.into_iter().map(|row| Member { id: row.id, card: row.card }).collect();
    Roster { members, held: entries.held }
}

fn failed(error: StoreError) -> CoordinationError {
    match error {
        StoreError::Unavailable(said) => CoordinationError::Unavailable(format!("the store: {said}")),
        StoreError::DiskFull => CoordinationError::Unavailable(DISK_FULL.to_owned()),
        StoreError::Denied(denial, said) => {
            CoordinationError::Unavailable(format!("the store: {denial}: {said}"))
        }
        StoreError::Broken(said) => CoordinationError::Broken(format!("the store: {said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ports::MemberRow;
    use std::time::Duration;

    #[test]
    fn a_member_is_logged_with_its_host() {
        let row = |id: &str, card: String| {
            let id = MemberId::new(id).unwrap();
            MemberRow { id, beat: 1, ttl: Duration::from_secs(3), card }
        };
        let card = Card { host: "db-7".to_owned(), ..Card::default() }.written();
        let members = vec![row("known", card), row("strange", "x".to_owned())];
        let entries = Entries { members, ..Entries::default() };
        let host_of = |id: &str| host(&entries, &MemberId::new(id).unwrap());
        assert_eq!(host_of("known").as_deref(), Some("db-7"));
        assert_eq!((host_of("strange"), host_of("gone")), (None, None));
    }
}
