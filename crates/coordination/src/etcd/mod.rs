//! Coordination through etcd: one etcd lease for each member, and keys attached to it.
//!
//! When the time to live of a member has passed, etcd removes its lease and all attached keys in one step. An
//! epoch is the revision in which a key was created: etcd counts revisions over all keys, and never goes
//! back.

mod gateway;
mod wire;

use crate::entered::{Entered, check_card};
use crate::malformed::{FREED, LEFT, MalformedEntries, MalformedEntryLog};
use crate::open::CoordinationOpenError;
use crate::options::EtcdOptions;
use async_trait::async_trait;
use gateway::{EtcdRefusal, Gateway};
use punctual_core::ports::{
    Coordination, CoordinationError, HeldLease, Joining, LeaseEpoch, LeaseName, Member, MemberId, Roster,
    Standing, Take,
};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wire::{Compare, EtcdOperation, EtcdTransaction, KeyValue};

pub struct EtcdCoordination {
    gateway: Gateway,
    prefix: String,
    entered: Entered,
    /// The last card of each member of this process: only changes are written.
    cards: Mutex<BTreeMap<MemberId, String>>,
    malformed_log: MalformedEntryLog,
}

/// Leases in one transaction. etcd accepts 128 operations by default, and there are fewer names than that.
const LEASES_PER_TRANSACTION_MAX: usize = 100;

impl EtcdCoordination {
    /// Does not connect yet.
    pub fn new(options: &EtcdOptions) -> Result<Self, CoordinationOpenError> {
        Ok(EtcdCoordination {
            gateway: Gateway::new(options)?,
            prefix: options.prefix.clone(),
            entered: Entered::default(),
            cards: Mutex::default(),
            malformed_log: MalformedEntryLog::default(),
        })
    }

    fn members(&self) -> String {
        format!("{}/members/", self.prefix)
    }

    fn leases(&self) -> String {
        format!("{}/leases/", self.prefix)
    }

    fn member_key(&self, member: &MemberId) -> String {
        format!("{}{member}", self.members())
    }

    fn lease_key(&self, name: LeaseName) -> String {
        format!("{}{name}", self.leases())
    }

    /// The number of the member's lease in etcd, derived from its id: a member that joins again finds the
    /// same.
    fn lease_id(&self, member: &MemberId) -> i64 {
        let digest = Sha256::digest(self.member_key(member));
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        // Neither negative nor zero; zero means any.
        (i64::from_be_bytes(first) & i64::MAX).max(1)
    }

    fn has_shown(&self, member: &MemberId, card: &str) -> bool {
        let cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        cards.get(member).is_some_and(|shown| shown == card)
    }

    fn note_shown(&self, member: &MemberId, card: Option<String>) {
        let mut cards = self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        match card {
            Some(card) => cards.insert(member.clone(), card),
            None => cards.remove(member),
        };
    }

    /// Writes the card of an existing member; returns whether it exists.
    async fn show(&self, member: &MemberId, card: &str) -> Result<bool, CoordinationError> {
        let key = self.member_key(member);
        let transaction = EtcdTransaction {
            compare: vec![Compare::exists(&key)],
            success: vec![EtcdOperation::put(&key, card, self.lease_id(member))],
            failure: vec![],
        };
        match self.gateway.transact(&transaction).await {
            Ok(answer) => Ok(answer.succeeded),
            Err(EtcdRefusal::NoSuchLease) => Ok(false),
            Err(refusal) => Err(self.gateway.failed(refusal)),
        }
    }

    /// The leases that are held, and whether this member exists, at one moment.
    async fn sight(&self, member: &MemberId) -> Result<LeasesSeen, CoordinationError> {
        let look = EtcdTransaction {
            compare: vec![Compare::exists(&self.member_key(member))],
            success: vec![EtcdOperation::range(&self.leases())],
            failure: vec![],
        };
        let answer = self.gateway.transact(&look).await.map_err(|refusal| self.gateway.failed(refusal))?;
        let rows = answer.ranges.into_iter().next().unwrap_or_default();
        let mut sight = LeasesSeen { is_there: answer.succeeded, held: BTreeMap::new(), blocking: vec![] };
        for row in rows {
            match self.read_lease(&row) {
                LeaseKey::Held(name, held) => drop(sight.held.insert(name, held)),
                LeaseKey::Blocking(_) => sight.blocking.push(row),
                LeaseKey::Unknown => {}
            }
        }
        Ok(sight)
    }

    fn read_lease(&self, row: &KeyValue) -> LeaseKey {
        let Some(name) = row.key.strip_prefix(&self.leases()).and_then(LeaseName::parse) else {
            return LeaseKey::Unknown;
        };
        match MemberId::new(row.value.as_str()) {
            None => LeaseKey::Blocking("its value is not a member id"),
            Some(_) if !row.is_leased => LeaseKey::Blocking("it is not attached to an etcd lease"),
            Some(holder) => LeaseKey::Held(name, (LeaseEpoch(row.create_revision), holder)),
        }
    }

    fn read_member(&self, row: &KeyValue) -> Result<MemberId, &'static str> {
        match row.key.strip_prefix(&self.members()).and_then(MemberId::new) {
            None => Err("its name is not a member id"),
            // It would never expire.
            Some(_) if !row.is_leased => Err("it is not attached to an etcd lease"),
            Some(id) => Ok(id),
        }
    }

    /// Removes malformed keys that block leases, unless they were written again meanwhile.
    async fn clear(&self, rows: &[KeyValue]) -> Result<(), CoordinationError> {
        for row in rows {
            let transaction = EtcdTransaction {
                compare: vec![Compare::unchanged(row)],
                success: vec![EtcdOperation::delete_row(row)],
                failure: vec![],
            };
            let done = self.gateway.transact(&transaction).await;
            done.map_err(|refusal| self.gateway.failed(refusal))?;
        }
        Ok(())
    }
}

struct LeasesSeen {
    is_there: bool,
    held: BTreeMap<LeaseName, (LeaseEpoch, MemberId)>,
    /// Keys of leases with malformed values.
    blocking: Vec<KeyValue>,
}

/// The meaning of a key under the prefix of leases.
enum LeaseKey {
    Held(LeaseName, (LeaseEpoch, MemberId)),
    /// One of our leases with a malformed value, and why it is malformed.
    Blocking(&'static str),
    Unknown,
}

/// etcd counts in seconds, and accepts no fewer than it needs to elect a leader. Rounded up, so that no
/// member is evicted too early.
fn seconds(ttl: Duration) -> i64 {
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX).max(1)
}

#[async_trait]
impl Coordination for EtcdCoordination {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        check_card(&joining.card)?;
        let Joining { member, card, ttl } = joining;
        if self.entered.has(&member) {
            return self.beat(&member, card).await;
        }
        let (lease, key) = (self.lease_id(&member), self.member_key(&member));
        match self.gateway.grant(lease, seconds(ttl)).await {
            // An earlier call whose answer was lost has created it; its remaining time may be counted from
            // then.
            Ok(()) | Err(EtcdRefusal::LeaseExists) => {}
            Err(refusal) => return Err(self.gateway.failed(refusal)),
        }
        let put = EtcdTransaction {
            compare: vec![],
            success: vec![EtcdOperation::put(&key, &card, lease)],
            failure: vec![],
        };
        self.gateway.transact(&put).await.map_err(|refusal| self.gateway.failed(refusal))?;
        let is_kept = self.gateway.keep_alive(lease).await.map_err(|refusal| self.gateway.failed(refusal))?;
        if !is_kept {
            return Ok(Standing::GivenUp);
        }
        self.entered.note(&member);
        self.note_shown(&member, Some(card));
        Ok(Standing::Alive)
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        check_card(&card)?;
        let kept = self.gateway.keep_alive(self.lease_id(member)).await;
        let mut is_there = kept.map_err(|refusal| self.gateway.failed(refusal))?;
        if is_there && !self.has_shown(member, &card) {
            is_there = self.show(member, &card).await?;
            self.note_shown(member, is_there.then_some(card));
        }
        Ok(if is_there { Standing::Alive } else { Standing::GivenUp })
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        let look = EtcdTransaction {
            compare: vec![],
            success: vec![EtcdOperation::range(&self.members()), EtcdOperation::range(&self.leases())],
            failure: vec![],
        };
        let answer = self.gateway.transact(&look).await.map_err(|refusal| self.gateway.failed(refusal))?;
        let [members, leases] = <[Vec<KeyValue>; 2]>::try_from(answer.ranges)
            .map_err(|_| self.gateway.failed(EtcdRefusal::Malformed("to a scan".to_owned())))?;
        let (mut roster, mut malformed, mut blocking) = (Roster::default(), MalformedEntries::new(), vec![]);
        for row in members {
            match self.read_member(&row) {
                Ok(id) => roster.members.push(Member { id, card: row.value }),
                Err(why) => drop(malformed.insert(row.key, format!("{why}; {LEFT}"))),
            }
        }
        let is_there = |holder: &MemberId| roster.members.iter().any(|member| member.id == *holder);
        for row in leases {
            let why = match self.read_lease(&row) {
                LeaseKey::Held(name, (epoch, holder)) if is_there(&holder) => {
                    roster.held.push((HeldLease { name, epoch }, holder));
                    continue;
                }
                LeaseKey::Unknown => {
                    malformed.insert(row.key, format!("its name is not a lease name; {LEFT}"));
                    continue;
                }
                LeaseKey::Held(..) => "its holder is not a member",
                LeaseKey::Blocking(why) => why,
            };
            malformed.insert(row.key.clone(), format!("{why}; {FREED}"));
            blocking.push(row);
        }
        self.malformed_log.found(malformed);
        self.clear(&blocking).await?;
        roster.members.sort_by(|one, other| one.id.cmp(&other.id));
        roster.held.sort();
        Ok(roster)
    }

    /// Acquires all free leases in one step. If another member was faster with some of them, it reads them
    /// again: each time at least one more lease is held, so the loop ends.
    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        loop {
            let sight = self.sight(member).await?;
            if !sight.is_there {
                return Ok(vec![Take::GivenUp; names.len()]);
            }
            if !sight.blocking.is_empty() {
                self.clear(&sight.blocking).await?;
                continue;
            }
            let mut free: Vec<LeaseName> =
                names.iter().copied().filter(|name| !sight.held.contains_key(name)).collect();
            free.sort_unstable();
            free.dedup();
            free.truncate(LEASES_PER_TRANSACTION_MAX);
            if free.is_empty() {
                let take = |name: &LeaseName| match &sight.held[name] {
                    (epoch, holder) if holder == member => Take::Held(*epoch),
                    (_, holder) => Take::HeldBy(holder.clone()),
                };
                return Ok(names.iter().map(take).collect());
            }
            let lease = self.lease_id(member);
            let keys: Vec<String> = free.iter().map(|name| self.lease_key(*name)).collect();
            let mut compare: Vec<Compare> = keys.iter().map(|key| Compare::absent(key)).collect();
            compare.push(Compare::exists(&self.member_key(member)));
            let success = keys.iter().map(|key| EtcdOperation::put(key, member.as_str(), lease)).collect();
            let transaction = EtcdTransaction { compare, success, failure: vec![] };
            match self.gateway.transact(&transaction).await {
                Ok(_) | Err(EtcdRefusal::NoSuchLease) => {}
                Err(refusal) => return Err(self.gateway.failed(refusal)),
            }
        }
    }

    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        let mut released = vec![false; held.len()];
        for (answer, lease) in released.iter_mut().zip(&held) {
            let key = self.lease_key(lease.name);
            let transaction = EtcdTransaction {
                compare: vec![
                    Compare::created_in(&key, lease.epoch.0),
                    Compare::value(&key, member.as_str()),
                ],
                success: vec![EtcdOperation::delete(&key)],
                failure: vec![],
            };
            let done = self.gateway.transact(&transaction).await;
            *answer = done.map_err(|refusal| self.gateway.failed(refusal))?.succeeded;
        }
        Ok(released)
    }

    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        self.note_shown(member, None);
        match self.gateway.revoke(self.lease_id(member)).await {
            Ok(()) | Err(EtcdRefusal::NoSuchLease) => Ok(()),
            Err(refusal) => Err(self.gateway.failed(refusal)),
        }
    }
}
