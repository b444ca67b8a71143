//! Coordination through a membership table, here in memory; the binary's tests use the real ones.

use crate::conformance::{DrivenTime, Stage, Time};
use crate::{CoordinationOptions, StoreCoordination, StoreSide, open};
use async_trait::async_trait;
use punctual_core::ports::{
    Clock, Coordination, Entries, HeldLease, Joining, LeaseName, LeaseRow, MalformedRow, MemberId,
    MemberPulse, MemberRow, MembershipTable, MembershipTableName, Standing, StoreError, Take, Task,
    release_rows, take_rows,
};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Default)]
struct Rows {
    members: BTreeMap<MemberId, MemberRow>,
    leases: BTreeMap<LeaseName, LeaseRow>,
    malformed: Vec<MalformedRow>,
    /// How often rows were cleared.
    cleared: u32,
}

#[derive(Default)]
struct MemoryRegister(Mutex<Rows>);

impl MemoryRegister {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap()
    }
}

impl Rows {
    fn remove(&mut self, member: &MemberId) {
        self.members.remove(member);
        for row in self.leases.values_mut().filter(|row| row.holder.as_ref() == Some(member)) {
            row.holder = None;
        }
    }
}

#[async_trait]
impl MembershipTable for MemoryRegister {
    async fn enter_member(&self, _now: Timestamp, joining: Joining) -> Result<(), StoreError> {
        let Joining { member, card, ttl } = joining;
        let mut rows = self.rows();
        let beat = rows.members.get(&member).map_or(0, |row| row.beat) + 1;
        rows.members.insert(member.clone(), MemberRow { id: member, beat, ttl, card });
        Ok(())
    }

    async fn beat_member(
        &self,
        _now: Timestamp,
        member: &MemberId,
        card: String,
    ) -> Result<Standing, StoreError> {
        let mut rows = self.rows();
        let Some(row) = rows.members.get_mut(member) else { return Ok(Standing::GivenUp) };
        (row.beat, row.card) = (row.beat + 1, card);
        Ok(Standing::Alive)
    }

    async fn entries(&self) -> Result<Entries, StoreError> {
        let rows = self.rows();
        let held = rows
            .leases
            .values()
            .filter_map(|row| Some((HeldLease { name: row.name, epoch: row.epoch }, row.holder.clone()?)));
        let members = rows.members.values().cloned().collect();
        Ok(Entries { members, held: held.collect(), malformed: rows.malformed.clone() })
    }

    async fn give_up_members(&self, silent: Vec<MemberPulse>) -> Result<Vec<bool>, StoreError> {
        let mut rows = self.rows();
        let give_up = |pulse: MemberPulse| {
            let is_silent = rows.members.get(&pulse.member).is_some_and(|row| row.beat == pulse.beat);
            if is_silent {
                rows.remove(&pulse.member);
            }
            is_silent
        };
        Ok(silent.into_iter().map(give_up).collect())
    }

    async fn take_leases(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, StoreError> {
        let mut rows = self.rows();
        let Some(row) = rows.members.get_mut(member) else { return Ok(vec![Take::GivenUp; names.len()]) };
        row.beat += 1;
        let taken = take_rows(rows.leases.values().cloned().collect(), member, &names);
        rows.leases.extend(taken.changed.into_iter().map(|row| (row.name, row)));
        Ok(taken.answers)
    }

    async fn release_leases(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, StoreError> {
        let mut rows = self.rows();
        let found: Vec<LeaseRow> = rows.leases.values().cloned().collect();
        let released = release_rows(&found, member, &held);
        for name in released.freed {
            rows.leases.entry(name).and_modify(|row| row.holder = None);
        }
        Ok(released.answers)
    }

    async fn remove_member(&self, member: &MemberId) -> Result<(), StoreError> {
        self.rows().remove(member);
        Ok(())
    }

    async fn clear_rows(&self, malformed: Vec<MalformedRow>) -> Result<(), StoreError> {
        let mut rows = self.rows();
        rows.malformed.retain(|row| !malformed.contains(row));
        rows.cleared += 1;
        Ok(())
    }
}

/// Driven elapsed time.
#[derive(Default)]
struct Driven(AtomicU64);

impl Clock for Driven {
    fn wall(&self) -> Timestamp {
        // As wrong as a clock can be: nothing depends on it.
        Timestamp::from_micros(-(self.0.load(Ordering::SeqCst) as i64))
    }

    fn monotonic(&self) -> Monotonic {
        Monotonic::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn sleep(&self, _duration: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

impl DrivenTime for Driven {
    fn pass(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

fn stage() -> Stage {
    let clock = Arc::new(Driven::default());
    let door = |membership_table: &Arc<MemoryRegister>| -> Arc<dyn Coordination> {
        let store = StoreSide { membership_table: membership_table.clone(), clock: clock.clone() };
        open(&CoordinationOptions::Store, store).unwrap()
    };
    let (here, there) = (Arc::new(MemoryRegister::default()), Arc::new(MemoryRegister::default()));
    Stage {
        doors: (0..3).map(|_| door(&here)).collect(),
        elsewhere: door(&there),
        ttl: Duration::from_secs(3),
        time: Time::Driven(clock),
    }
}

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {$(
        mod $module {
            $(#[tokio::test]
            async fn $case() {
                crate::conformance::$module::$case(super::stage()).await;
            })*
        }
    )*};
}
crate::each_coordination_case!(define);

fn joining(name: &str) -> Joining {
    let member = MemberId::new(name).unwrap();
    Joining { member, card: String::new(), ttl: Duration::from_secs(3) }
}

/// An observer that has just started evicts no member because of a clock.
#[tokio::test]
async fn each_observer_must_observe_the_silence_itself() {
    let (membership_table, clock) = (Arc::new(MemoryRegister::default()), Arc::new(Driven::default()));
    let early = StoreCoordination::new(membership_table.clone(), clock.clone());
    let late = StoreCoordination::new(membership_table.clone(), clock.clone());
    early.join(joining("silent")).await.unwrap();
    early.look().await.unwrap();
    clock.pass(Duration::from_secs(3));
    assert_eq!(late.look().await.unwrap().members.len(), 1, "it has not observed the member for long enough");
    assert_eq!(early.look().await.unwrap().members.len(), 0);
    assert_eq!(late.look().await.unwrap().members.len(), 0);
}

/// A heartbeat between the scan and the comparison saves the member.
#[tokio::test]
async fn a_heartbeat_at_the_last_moment_counts() {
    struct BeatsLast(MemoryRegister, MemberId);

    #[async_trait]
    impl MembershipTable for BeatsLast {
        async fn enter_member(&self, now: Timestamp, joining: Joining) -> Result<(), StoreError> {
            self.0.enter_member(now, joining).await
        }
        async fn beat_member(
            &self,
            now: Timestamp,
            member: &MemberId,
            card: String,
        ) -> Result<Standing, StoreError> {
            self.0.beat_member(now, member, card).await
        }
        async fn entries(&self) -> Result<Entries, StoreError> {
            self.0.entries().await
        }
        async fn give_up_members(&self, silent: Vec<MemberPulse>) -> Result<Vec<bool>, StoreError> {
            self.0.beat_member(Timestamp::from_micros(0), &self.1, "here".to_owned()).await?;
            self.0.give_up_members(silent).await
        }
        async fn take_leases(
            &self,
            member: &MemberId,
            names: Vec<LeaseName>,
        ) -> Result<Vec<Take>, StoreError> {
            self.0.take_leases(member, names).await
        }
        async fn release_leases(
            &self,
            member: &MemberId,
            held: Vec<HeldLease>,
        ) -> Result<Vec<bool>, StoreError> {
            self.0.release_leases(member, held).await
        }
        async fn remove_member(&self, member: &MemberId) -> Result<(), StoreError> {
            self.0.remove_member(member).await
        }
        async fn clear_rows(&self, malformed: Vec<MalformedRow>) -> Result<(), StoreError> {
            self.0.clear_rows(malformed).await
        }
    }

    let clock = Arc::new(Driven::default());
    let membership_table = BeatsLast(MemoryRegister::default(), joining("late").member);
    let coordination = StoreCoordination::new(Arc::new(membership_table), clock.clone());
    coordination.join(joining("late")).await.unwrap();
    coordination.look().await.unwrap();
    clock.pass(Duration::from_secs(3));
    let members = coordination.look().await.unwrap().members;
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].card, "here", "the returned entry is the current one");
}

/// Malformed rows are cleared once, and those of unknown leases are left unchanged.
#[tokio::test]
async fn malformed_rows_that_block_a_lease_are_cleared() {
    let row =
        |table, key: &str| MalformedRow { table, key: key.to_owned(), why: "its ttl_us is -1".to_owned() };
    let (membership_table, clock) = (Arc::new(MemoryRegister::default()), Arc::new(Driven::default()));
    let spoiled = [
        row(MembershipTableName::Members, "spoiled"),
        row(MembershipTableName::Leases, "leader"),
        row(MembershipTableName::Leases, "tail"),
    ];
    membership_table.rows().malformed = spoiled.to_vec();
    let coordination = StoreCoordination::new(membership_table.clone(), clock);
    coordination.join(joining("here")).await.unwrap();
    for _ in 0..2 {
        let roster = coordination.look().await.unwrap();
        assert_eq!(roster.members.len(), 1, "{roster:?}");
        assert_eq!(membership_table.rows().malformed, spoiled[2..]);
    }
    assert_eq!(membership_table.rows().cleared, 1);
}
