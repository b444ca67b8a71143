//! Takes part in the cluster: joins, sends heartbeats, scans, carries out this node's part of the
//! distribution, and leaves in order.

use crate::cluster::ClusterParticipation;
use crate::{Duties, Engine, EngineContext};
use futures_util::future::{join, select};
use punctual_core::cluster::{Holdings, Moves, deal, holdings, standing};
use punctual_core::ids::{Segment, SegmentSet};
use punctual_core::ports::{
    CoordinationError, HeldLease, Joining, LeaseName, MemberId, Roster, Standing, Take,
};
use std::pin::pin;

pub(crate) async fn cluster(context: &EngineContext) {
    let Some(participation) = &context.cluster.participation else { return };
    join(stay(context, participation), attend(context, participation)).await;
}

/// Stays a member: joins, and then sends heartbeats.
async fn stay(context: &EngineContext, participation: &ClusterParticipation) {
    let cluster = &context.cluster;
    // A lost answer may have made us a member: until the outcome is certain, the same id is retried.
    let mut candidate = new_member(context);
    loop {
        let answer = match cluster.member() {
            Some(member) => beat(context, participation, &member).await,
            None if cluster.is_leaving() => Ok(()),
            None => match join_as(context, participation, &candidate).await {
                Ok(Standing::Alive) => Ok(()),
                Ok(Standing::GivenUp) => {
                    candidate = new_member(context);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match answer {
            Ok(()) if cluster.member().is_some() => candidate = new_member(context),
            // Evicted: join again at once, with another id.
            Ok(()) if !cluster.is_leaving() => continue,
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "coordination does not answer; retrying");
                context.settle();
            }
        }
        context.host.clock.sleep(cluster.beat_interval()).await;
    }
}

fn new_member(context: &EngineContext) -> MemberId {
    // Ordered by time, so that the oldest member leads.
    let millis = context.time.now().as_micros() / 1_000;
    let text = format!("{millis:012x}-{:016x}", context.host.random.next_u64());
    MemberId::new(text).expect("hexadecimal digits are plain")
}

async fn join_as(
    context: &EngineContext,
    participation: &ClusterParticipation,
    member: &MemberId,
) -> Result<Standing, CoordinationError> {
    let (card, sent_at) = (context.card(participation), context.host.clock.monotonic());
    let joining = Joining { member: member.clone(), card: card.written(), ttl: context.cluster.ttl() };
    let standing = context.ask(participation.coordination.join(joining)).await?;
    if standing == Standing::Alive {
        context.cluster.membership(|membership| membership.joined(member.clone(), sent_at));
        context.cluster.told(card.stands);
        context.cluster.look_now.notify_one();
    }
    Ok(standing)
}

/// Sends a heartbeat with the current card.
async fn beat(
    context: &EngineContext,
    participation: &ClusterParticipation,
    member: &MemberId,
) -> Result<(), CoordinationError> {
    let (card, sent_at) = (context.card(participation), context.host.clock.monotonic());
    match context.ask(participation.coordination.beat(member, card.written())).await? {
        Standing::Alive => {
            context.cluster.membership(|membership| membership.beaten(member, sent_at));
            context.cluster.told(card.stands);
        }
        Standing::GivenUp => given_up(context, member),
    }
    Ok(())
}

fn given_up(context: &EngineContext, member: &MemberId) {
    if context.cluster.is_leaving() {
        return;
    }
    let host = context.cluster.participation.as_ref().map(|participation| participation.card.host.as_str());
    tracing::warn!(%member, host, "this process was silent for too long and was evicted; joining again");
    context.cluster.membership(|membership| membership.given_up(member));
    context.settle();
}

/// Scans the cluster periodically and carries out this node's part of the distribution.
async fn attend(context: &EngineContext, participation: &ClusterParticipation) {
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    loop {
        if let Err(error) = round(context, participation).await {
            tracing::warn!(%error, "the cluster state could not be read; retrying");
        }
        context.settle();
        let pause = context.host.clock.sleep(context.cluster.look_interval());
        select(pin!(context.cluster.look_now.notified()), pause).await;
    }
}

async fn round(
    context: &EngineContext,
    participation: &ClusterParticipation,
) -> Result<(), CoordinationError> {
    let _alone = context.cluster.moving.lock().await;
    let Some(member) = context.cluster.member().filter(|_| !context.cluster.is_leaving()) else {
        return Ok(());
    };
    // Others leave segments to this member that they expect it to acquire, so publish first that it is not
    // eligible.
    if context.stands() != context.cluster.told_stands() {
        beat(context, participation, &member).await?;
    }
    let sent_at = context.host.clock.monotonic();
    let roster = context.ask(participation.coordination.look()).await?;
    context.cluster.saw(&roster);
    if !roster.members.iter().any(|other| other.id == member) {
        // The next heartbeat will confirm it.
        return Ok(());
    }
    let mut standing = standing(&roster);
    if context.cluster.told_stands() {
        standing.insert(member.clone());
    } else {
        standing.remove(&member);
    }
    let moves = deal(&member, &roster, &standing);
    let kept = without(holdings(&member, &roster), &moves.release);
    let looked = || context.cluster.membership(|membership| membership.looked(&member, sent_at, kept));
    // This node stops owning segments before it releases them. A node that owned everything until now
    // continues to do so until it has acquired its share.
    let is_sure = context.cluster.membership(|membership| membership.has_looked(&member));
    if is_sure {
        looked();
        context.settle();
    }
    match carry_out(context, participation, &member, moves).await {
        Ok(Some(taken)) => {
            if !is_sure {
                looked();
            }
            context.cluster.membership(|membership| membership.moved(&member, |held| add(held, &taken)));
        }
        Ok(None) => given_up(context, &member),
        Err(error) => {
            context.cluster.membership(|membership| membership.unsure(&member));
            return Err(error);
        }
    }
    Ok(())
}

fn add(holdings: &mut Holdings, taken: &[LeaseName]) {
    let segments = taken.iter().filter_map(|name| segment(*name));
    holdings.segments = holdings.segments.iter().chain(segments).collect();
    holdings.leads |= taken.contains(&LeaseName::Leader);
}

fn without(holdings: Holdings, released: &[HeldLease]) -> Holdings {
    let gone: SegmentSet = released.iter().filter_map(|lease| segment(lease.name)).collect();
    let leads = holdings.leads && !released.iter().any(|lease| lease.name == LeaseName::Leader);
    Holdings { segments: holdings.segments.without(gone), leads }
}

fn segment(name: LeaseName) -> Option<Segment> {
    match name {
        LeaseName::Segment(segment) => Some(segment),
        LeaseName::Leader => None,
    }
}

/// The acquired leases; `None` if this member was evicted.
async fn carry_out(
    context: &EngineContext,
    participation: &ClusterParticipation,
    member: &MemberId,
    moves: Moves,
) -> Result<Option<Vec<LeaseName>>, CoordinationError> {
    if !moves.release.is_empty() {
        context.ask(participation.coordination.release(member, moves.release)).await?;
    }
    if moves.take.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let answers = context.ask(participation.coordination.take(member, moves.take.clone())).await?;
    if answers.contains(&Take::GivenUp) {
        return Ok(None);
    }
    let taken = moves.take.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Take::Held(_)));
    Ok(Some(taken.map(|(name, _)| *name).collect()))
}

impl Engine {
    /// Releases segments and leadership, and leaves the cluster. The loops continue meanwhile, and fire what
    /// is due until other members own it: call this before they are stopped, so that nothing is late. Takes a
    /// bounded time.
    pub async fn hand_over(&self) {
        let context = &self.context;
        let Some(participation) = &context.cluster.participation else { return };
        context.cluster.begin_leaving();
        let _alone = context.cluster.moving.lock().await;
        let Some(member) = context.cluster.member() else { return };
        if context.config.duties == Duties::Everything
            && let Err(error) = release_all(context, participation, &member).await
        {
            tracing::warn!(%error, "the leases of this process could not be released; other processes take \
                                    them over when they expire");
        }
        if let Err(error) = context.ask(participation.coordination.leave(&member)).await {
            tracing::debug!(%error, "this process could not leave the cluster; it will be evicted");
        }
    }
}

async fn release_all(
    context: &EngineContext,
    participation: &ClusterParticipation,
    member: &MemberId,
) -> Result<(), CoordinationError> {
    let clock = &context.host.clock;
    beat(context, participation, member).await?;
    let roster = context.ask(participation.coordination.look()).await?;
    let own = roster.held.iter().filter(|(_, holder)| holder == member);
    let own: Vec<HeldLease> = own.map(|(lease, _)| *lease).collect();
    context.cluster.membership(|membership| membership.moved(member, |held| *held = Holdings::NOTHING));
    context.settle();
    context.ask(participation.coordination.release(member, own)).await?;
    let until = clock.monotonic().plus(context.cluster.hand_over_time());
    let mut roster = roster;
    while clock.monotonic() < until && has_heirs(&roster, member) && !is_all_held(&roster, member) {
        clock.sleep(context.cluster.look_interval() / 5).await;
        roster = context.ask(participation.coordination.look()).await?;
    }
    if is_all_held(&roster, member) {
        // The new owners are reading what is due in them.
        clock.sleep(context.cluster.look_interval()).await;
    }
    Ok(())
}

/// Whether there is an eligible member to hand over to.
fn has_heirs(roster: &Roster, member: &MemberId) -> bool {
    standing(roster).iter().any(|other| other != member)
}

/// Whether other members hold all segments.
fn is_all_held(roster: &Roster, member: &MemberId) -> bool {
    let held = roster.held.iter().filter(|(_, holder)| holder != member);
    held.filter_map(|(lease, _)| segment(lease.name)).collect::<SegmentSet>() == SegmentSet::ALL
}
