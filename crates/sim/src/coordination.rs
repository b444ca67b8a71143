//! Coordination as the nodes see it: a model of such a service behind a connection that fails, stalls and
//! loses responses. It can be unavailable for a long time or permanently, and it evicts members early
//! although they renew in time.
//!
//! A call travels as a message of the world, not of its caller: it is applied whether or not the caller still
//! exists.

use crate::lock;
use crate::random::Rng;
use crate::world::World;
use async_trait::async_trait;
use punctual_core::ids::SegmentSet;
use punctual_core::ports::{
    Coordination, CoordinationError, HeldLease, Joining, LeaseEpoch, LeaseName, Member, MemberId, Roster,
    Standing, Take,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// The maximum time before a caller learns that the service is unavailable.
const AWAY_NOTICED_MS_MAX: u64 = 3_000;

pub struct CoordinationService {
    world: Arc<World>,
    rng: Mutex<Rng>,
    state: Mutex<ServiceState>,
}

#[derive(Default)]
struct ServiceState {
    is_away: bool,
    members: BTreeMap<MemberId, MemberEntry>,
    /// Former members.
    gone: BTreeSet<MemberId>,
    leases: BTreeMap<LeaseName, ServiceLease>,
}

struct MemberEntry {
    card: String,
    ttl: Duration,
    beaten_at_us: u64,
}

struct ServiceLease {
    epoch: LeaseEpoch,
    holder: Option<MemberId>,
}

/// The faults of one call to the service.
struct ServiceCallFaults {
    travels: Duration,
    returns: Duration,
    refused: bool,
    reply_lost: bool,
}

impl CoordinationService {
    pub fn new(world: Arc<World>, rng: Rng) -> Arc<Self> {
        Arc::new(CoordinationService { world, rng: Mutex::new(rng), state: Mutex::default() })
    }

    pub fn set_away(&self, is_away: bool) {
        self.world.note(format_args!("coordination is {}", if is_away { "away" } else { "back" }));
        lock(&self.state).is_away = is_away;
    }

    pub fn is_away(&self) -> bool {
        lock(&self.state).is_away
    }

    /// Evicts a member that is alive.
    pub fn evict_early(&self) {
        let mut state = lock(&self.state);
        let members: Vec<MemberId> = state.members.keys().cloned().collect();
        if members.is_empty() {
            return;
        }
        let member = lock(&self.rng).pick(&members).clone();
        state.remove(&member);
        drop(state);
        self.world.note(format_args!("coordination expires {member} too early"));
        self.world.count("members expired early");
    }

    /// The number of segments of each member that holds any, and the number of leaders.
    pub fn segment_counts(&self) -> (Vec<usize>, usize) {
        let mut state = lock(&self.state);
        state.expire(self.world.executor.now_us());
        let mut held: BTreeMap<&MemberId, usize> = BTreeMap::new();
        let mut leaders = 0;
        for (name, lease) in &state.leases {
            match (name, &lease.holder) {
                (LeaseName::Leader, Some(_)) => leaders += 1,
                (LeaseName::Segment(_), Some(holder)) => *held.entry(holder).or_default() += 1,
                (_, None) => {}
            }
        }
        (held.into_values().collect(), leaders)
    }

    async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        node: usize,
        call: impl FnOnce(&mut ServiceState) -> T + Send + 'static,
    ) -> Result<T, CoordinationError> {
        let (reply, answer) = oneshot::channel();
        let (service, faults) = (self.clone(), self.draw());
        self.world.executor.spawn_in_world(async move {
            let executor = &service.world.executor;
            executor.sleep(faults.travels).await;
            if faults.refused || service.is_away() {
                let _ = reply.send(Err(unavailable("it cannot be reached")));
                return;
            }
            let result = {
                let mut state = lock(&service.state);
                state.expire(executor.now_us());
                call(&mut state)
            };
            service.world.note(format_args!("coordination for node {node}"));
            executor.sleep(faults.returns).await;
            let _ = reply.send(if faults.reply_lost {
                service.world.count("answers of coordination lost");
                Err(unavailable("the answer is lost"))
            } else {
                Ok(result)
            });
        });
        answer.await.unwrap_or_else(|_| Err(unavailable("the answer is gone")))
    }

    fn draw(&self) -> ServiceCallFaults {
        let network_faults = self.world.network_faults();
        let is_away = self.is_away();
        let mut rng = lock(&self.rng);
        let mut latency = || match rng.per_mille(network_faults.coordination_stalls) {
            true => rng.millis(0, network_faults.stall_ms_max),
            false => rng.millis(0, network_faults.store_latency_ms_max),
        };
        let (travels, returns) = (latency(), latency());
        let travels = if is_away { rng.millis(0, AWAY_NOTICED_MS_MAX) } else { travels };
        ServiceCallFaults {
            travels,
            returns,
            refused: rng.per_mille(network_faults.coordination_refuses),
            reply_lost: rng.per_mille(network_faults.coordination_reply_lost),
        }
    }
}

impl ServiceState {
    fn expire(&mut self, now_us: u64) {
        let silent =
            |entry: &MemberEntry| now_us.saturating_sub(entry.beaten_at_us) >= entry.ttl.as_micros() as u64;
        let silent: Vec<MemberId> =
            self.members.iter().filter(|(_, entry)| silent(entry)).map(|(id, _)| id.clone()).collect();
        silent.iter().for_each(|member| self.remove(member));
    }

    fn remove(&mut self, member: &MemberId) {
        if self.members.remove(member).is_some() {
            self.gone.insert(member.clone());
        }
        for lease in self.leases.values_mut().filter(|lease| lease.holder.as_ref() == Some(member)) {
            lease.holder = None;
        }
    }

    fn beat(&mut self, now_us: u64, member: &MemberId, card: String) -> Standing {
        match self.members.get_mut(member) {
            Some(entry) => {
                (entry.card, entry.beaten_at_us) = (card, now_us);
                Standing::Alive
            }
            None => Standing::GivenUp,
        }
    }

    fn take(&mut self, member: &MemberId, name: LeaseName) -> Take {
        if !self.members.contains_key(member) {
            return Take::GivenUp;
        }
        let lease = self.leases.entry(name).or_insert(ServiceLease { epoch: LeaseEpoch(0), holder: None });
        match &lease.holder {
            Some(holder) if holder == member => Take::Held(lease.epoch),
            Some(holder) => Take::HeldBy(holder.clone()),
            None => {
                *lease = ServiceLease { epoch: LeaseEpoch(lease.epoch.0 + 1), holder: Some(member.clone()) };
                Take::Held(lease.epoch)
            }
        }
    }

    fn release(&mut self, member: &MemberId, held: HeldLease) -> bool {
        let Some(lease) = self.leases.get_mut(&held.name) else { return false };
        let is_held = lease.holder.as_ref() == Some(member) && lease.epoch == held.epoch;
        if is_held {
            lease.holder = None;
        }
        is_held
    }

    fn roster(&self) -> Roster {
        let member =
            |(id, entry): (&MemberId, &MemberEntry)| Member { id: id.clone(), card: entry.card.clone() };
        let held = self.leases.iter().filter_map(|(name, lease)| {
            Some((HeldLease { name: *name, epoch: lease.epoch }, lease.holder.clone()?))
        });
        Roster { members: self.members.iter().map(member).collect(), held: held.collect() }
    }
}

fn unavailable(why: &str) -> CoordinationError {
    CoordinationError::Unavailable(why.to_owned())
}

/// One node's connection to coordination.
pub struct NodeCoordination {
    pub service: Arc<CoordinationService>,
    pub node: usize,
}

#[async_trait]
impl Coordination for NodeCoordination {
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError> {
        let executor = self.service.world.executor.clone();
        let Joining { member, card, ttl } = joining;
        self.service
            .call(self.node, move |state| {
                if state.gone.contains(&member) {
                    return Standing::GivenUp;
                }
                let beaten_at_us = executor.now_us();
                state.members.insert(member, MemberEntry { card, ttl, beaten_at_us });
                Standing::Alive
            })
            .await
    }

    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError> {
        let (executor, member) = (self.service.world.executor.clone(), member.clone());
        self.service.call(self.node, move |state| state.beat(executor.now_us(), &member, card)).await
    }

    async fn look(&self) -> Result<Roster, CoordinationError> {
        self.service.call(self.node, |state| state.roster()).await
    }

    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError> {
        let member = member.clone();
        let take =
            move |state: &mut ServiceState| names.iter().map(|name| state.take(&member, *name)).collect();
        self.service.call(self.node, take).await
    }

    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError> {
        let member = member.clone();
        let release =
            move |state: &mut ServiceState| held.iter().map(|lease| state.release(&member, *lease)).collect();
        self.service.call(self.node, release).await
    }

    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError> {
        let member = member.clone();
        self.service.call(self.node, move |state| state.remove(&member)).await
    }
}

/// The number of segments.
pub const SEGMENTS: usize = SegmentSet::ALL.len();
