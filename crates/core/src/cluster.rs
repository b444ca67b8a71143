//! The rules of a cluster: how segments are distributed among schedulers, which member becomes the leader,
//! and what a member may assume that it holds.
//!
//! Every scheduler computes the same distribution from what it sees and carries out its own part of it; there
//! is no central coordinator. Views may differ for a moment, so that two schedulers try to acquire the same
//! segment, or none does. Coordination grants it to one, and the next scan corrects the rest. Correctness
//! does not depend on this module, because every fire is a compare-and-swap.

use crate::defects::{Defect, planted};
use crate::ids::{Segment, SegmentSet};
use crate::ports::{HeldLease, LeaseName, MemberId, Roster};
use crate::session::LeaseKeeper;
use crate::time::{Monotonic, Timestamp};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a member publishes about itself. Processes of different versions write and read it: a writer omits
/// fields it does not know, and a reader ignores them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Card {
    pub node_id: String,
    pub roles: Vec<String>,
    pub host: String,
    /// The address it listens on; empty if it does not listen.
    pub address: String,
    pub version: String,
    pub pid: u32,
    pub started_at: Timestamp,
    pub tzdb_version: String,
    pub store: String,
    pub schema_version: u32,
    /// The coordination it uses: `store`, `etcd`, `redis` or `zookeeper`. Older processes leave it out.
    pub coordination: String,
    /// Its counters since it started; zero counters are left out.
    pub counters: BTreeMap<String, u64>,
    /// How far its wall clock is ahead of the store's.
    pub clock_offset_us: i64,
    /// Whether it is eligible for segments and leadership: a scheduler whose clock is right, that reaches the
    /// store and is not about to leave.
    pub stands: bool,
    /// Where it receives hints of queued work from: `postgres`, `redis`, `nats`, `amqp` or `kafka`. Empty if it polls, and in older
    /// processes.
    pub ready_queue: String,
    /// Whether such hints arrive.
    pub is_receiving: bool,
    /// Warnings about this process for operators. Older processes leave them out.
    pub warnings: Vec<String>,
}

impl Card {
    pub fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Parses what a member wrote; `None` if the entry is malformed.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// The members that are eligible for segments and leadership.
pub fn standing(roster: &Roster) -> BTreeSet<MemberId> {
    let stands = |card: &str| Card::read(card).is_some_and(|card| card.stands);
    roster.members.iter().filter(|member| stands(&member.card)).map(|member| member.id.clone()).collect()
}

/// One member's part of the distribution.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moves {
    pub release: Vec<HeldLease>,
    pub take: Vec<LeaseName>,
}

impl Moves {
    pub fn is_empty(&self) -> bool {
        self.release.is_empty() && self.take.is_empty()
    }
}

/// What `me` must release and acquire, so that the numbers of segments of eligible members differ by one at
/// most.
///
/// - If the segments cannot be divided evenly, the members that hold most may keep one more. A balanced
///   cluster therefore stays as it is, and a change moves no more segments than necessary.
/// - Free segments go to members with too few, in the order of their ids.
/// - A member that is not eligible releases everything as soon as another member is eligible.
pub fn deal(me: &MemberId, roster: &Roster, standing: &BTreeSet<MemberId>) -> Moves {
    if standing.is_empty() {
        return Moves::default();
    }
    if !standing.contains(me) {
        let release =
            roster.held.iter().filter(|(_, holder)| holder == me).map(|(lease, _)| *lease).collect();
        return Moves { release, take: Vec::new() };
    }
    let counts = counts(roster, standing);
    let shares = shares(&counts);
    let mine: Vec<HeldLease> = segments_of(me, roster).map(|(lease, _)| lease).collect();
    let mut take: Vec<LeaseName> =
        free_for(me, roster, &counts, &shares).into_iter().map(LeaseName::Segment).collect();
    let has_leader = roster.held.iter().any(|(lease, _)| lease.name == LeaseName::Leader);
    if !has_leader && standing.first() == Some(me) {
        take.push(LeaseName::Leader);
    }
    Moves { release: mine.into_iter().skip(shares[me]).collect(), take }
}

/// How many segments each member holds or should hold.
type SegmentCounts<'a> = BTreeMap<&'a MemberId, usize>;

/// How many segments the eligible members hold.
fn counts<'a>(roster: &Roster, standing: &'a BTreeSet<MemberId>) -> SegmentCounts<'a> {
    let mut counts: SegmentCounts<'a> = standing.iter().map(|member| (member, 0)).collect();
    for (_, holder) in roster.held.iter().filter(|(lease, _)| segment(lease.name).is_some()) {
        if let Some(count) = counts.get_mut(holder) {
            *count += 1;
        }
    }
    counts
}

/// How many segments each eligible member should hold.
fn shares<'a>(counts: &SegmentCounts<'a>) -> SegmentCounts<'a> {
    let segments = usize::from(Segment::COUNT);
    let (least, over) = (segments / counts.len(), segments % counts.len());
    let mut by_count: Vec<(Reverse<usize>, &MemberId)> =
        counts.iter().map(|(member, count)| (Reverse(*count), *member)).collect();
    by_count.sort();
    let share = |(place, (_, member))| (member, least + usize::from(place < over));
    by_count.into_iter().enumerate().map(share).collect()
}

/// The free segments that go to `me`.
fn free_for(
    me: &MemberId,
    roster: &Roster,
    counts: &SegmentCounts<'_>,
    shares: &SegmentCounts<'_>,
) -> Vec<Segment> {
    let held: SegmentSet = roster.held.iter().filter_map(|(lease, _)| segment(lease.name)).collect();
    let mut free = SegmentSet::ALL.without(held).iter();
    for (member, share) in shares {
        let missing = share.saturating_sub(counts[member]);
        let theirs: Vec<Segment> = free.by_ref().take(missing).collect();
        if *member == me {
            return theirs;
        }
    }
    Vec::new()
}

fn segments_of<'a>(
    member: &'a MemberId,
    roster: &'a Roster,
) -> impl Iterator<Item = (HeldLease, Segment)> + 'a {
    let own = roster.held.iter().filter(move |(_, holder)| holder == member);
    own.filter_map(|(lease, _)| Some((*lease, segment(lease.name)?)))
}

fn segment(name: LeaseName) -> Option<Segment> {
    match name {
        LeaseName::Segment(segment) => Some(segment),
        LeaseName::Leader => None,
    }
}

/// What a member holds according to its last scan.
pub fn holdings(me: &MemberId, roster: &Roster) -> Holdings {
    let leads = roster.held.iter().any(|(lease, holder)| lease.name == LeaseName::Leader && holder == me);
    Holdings { segments: segments_of(me, roster).map(|(_, segment)| segment).collect(), leads }
}

/// What a scheduler owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    pub segments: SegmentSet,
    /// Whether it has the duties that only the leader has.
    pub leads: bool,
}

impl Holdings {
    pub const EVERYTHING: Holdings = Holdings { segments: SegmentSet::ALL, leads: true };
    pub const NOTHING: Holdings = Holdings { segments: SegmentSet::NONE, leads: false };
}

/// A scheduler's side of its membership: what it owns now.
///
/// While it is certain to be a member, it owns what it holds. It is certain until a fifth of its time to live
/// before another member may acquire what it holds, counted from the moment at which its last confirmed
/// heartbeat was *sent*. Before it has joined, after it was evicted, and whenever coordination has been
/// silent for too long, it owns everything. The others may be in the same position or gone: a due time that
/// no node owns is missed, while one that two nodes own is still fired once.
#[derive(Debug, Clone)]
pub struct Membership {
    ttl: Duration,
    joined_member: Option<JoinedMember>,
    /// What it held when it was last certain, for [`Defect::KeepOldSegments`].
    last: Holdings,
}

#[derive(Debug, Clone)]
struct JoinedMember {
    member: MemberId,
    keeper: LeaseKeeper,
    /// When the last answered scan was sent, and what it and later calls have shown.
    looked: Option<(Monotonic, Holdings)>,
}

impl Membership {
    pub fn new(ttl: Duration) -> Self {
        Membership { ttl, joined_member: None, last: Holdings::NOTHING }
    }

    pub fn member(&self) -> Option<&MemberId> {
        self.joined_member.as_ref().map(|joined_member| &joined_member.member)
    }

    pub fn joined(&mut self, member: MemberId, sent_at: Monotonic) {
        self.joined_member =
            Some(JoinedMember { member, keeper: LeaseKeeper::new(self.ttl, sent_at), looked: None });
    }

    pub fn beaten(&mut self, member: &MemberId, sent_at: Monotonic) {
        if let Some(joined_member) = self.seat_of(member) {
            joined_member.keeper.confirmed(sent_at);
        }
    }

    pub fn given_up(&mut self, member: &MemberId) {
        if self.seat_of(member).is_some() {
            self.joined_member = None;
        }
    }

    /// Sets what it holds, from a scan that was sent at this time.
    pub fn looked(&mut self, member: &MemberId, sent_at: Monotonic, holdings: Holdings) {
        if let Some(joined_member) = self.seat_of(member) {
            joined_member.looked = Some((sent_at, holdings));
            self.last = holdings;
        }
    }

    /// Whether it knows what it holds.
    pub fn has_looked(&self, member: &MemberId) -> bool {
        self.joined_member
            .as_ref()
            .is_some_and(|joined_member| joined_member.member == *member && joined_member.looked.is_some())
    }

    /// Records that a call of its own failed: what it holds is unknown until the next scan. It may hold
    /// nothing, without another member to take over.
    pub fn unsure(&mut self, member: &MemberId) {
        if let Some(joined_member) = self.seat_of(member) {
            joined_member.looked = None;
        }
    }

    /// Updates what it holds after a call of its own.
    pub fn moved(&mut self, member: &MemberId, change: impl FnOnce(&mut Holdings)) {
        if let Some((_, holdings)) =
            self.seat_of(member).and_then(|joined_member| joined_member.looked.as_mut())
        {
            change(holdings);
            self.last = *holdings;
        }
    }

    /// What it owns at `now`.
    pub fn holdings(&self, now: Monotonic) -> Holdings {
        let looked = self.joined_member.as_ref().and_then(|joined_member| joined_member.looked);
        let held = looked.filter(|_| self.is_coordinated(now)).map(|(_, holdings)| holdings);
        let without_coordination =
            if planted(Defect::KeepOldSegments) { self.last } else { Holdings::EVERYTHING };
        held.unwrap_or(without_coordination)
    }

    /// Whether it is certain to be a member.
    pub fn is_member(&self, now: Monotonic) -> bool {
        self.joined_member.as_ref().is_some_and(|joined_member| now < joined_member.keeper.stop_at())
    }

    /// Whether coordination can be relied upon: it owns what was distributed to it.
    pub fn is_coordinated(&self, now: Monotonic) -> bool {
        let looked = self.joined_member.as_ref().and_then(|joined_member| joined_member.looked);
        self.is_member(now) && looked.is_some_and(|(at, _)| now < at.plus(self.ttl))
    }

    fn seat_of(&mut self, member: &MemberId) -> Option<&mut JoinedMember> {
        self.joined_member.as_mut().filter(|joined_member| joined_member.member == *member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{LeaseEpoch, Member};
    use proptest::prelude::*;

    fn member(number: usize) -> MemberId {
        MemberId::new(format!("m{number:03}")).unwrap()
    }

    fn segment(index: usize) -> Segment {
        Segment::new(index as u8).unwrap()
    }

    /// A model of coordination: the members, and who holds which lease.
    #[derive(Debug, Clone)]
    struct Table {
        members: BTreeMap<MemberId, bool>,
        held: BTreeMap<LeaseName, MemberId>,
    }

    impl Table {
        fn of(standing: usize) -> Self {
            Table { members: (0..standing).map(|one| (member(one), true)).collect(), held: BTreeMap::new() }
        }

        fn roster(&self) -> Roster {
            let card = |stands| Card { stands, ..Card::default() }.written();
            let members = self.members.iter();
            let held = self.held.iter();
            let lease = |name| HeldLease { name, epoch: LeaseEpoch(1) };
            Roster {
                members: members.map(|(id, stands)| Member { id: id.clone(), card: card(*stands) }).collect(),
                held: held.map(|(name, holder)| (lease(*name), holder.clone())).collect(),
            }
        }

        /// One round: all members scan at the same time, then all act. Returns how many segments changed
        /// hands.
        fn round(&mut self) -> usize {
            let roster = self.roster();
            let standing = standing(&roster);
            let moves: Vec<(MemberId, Moves)> =
                self.members.keys().map(|me| (me.clone(), deal(me, &roster, &standing))).collect();
            let mut moved = 0;
            for (me, moves) in &moves {
                for lease in &moves.release {
                    assert_eq!(self.held.remove(&lease.name).as_ref(), Some(me));
                    moved += 1;
                }
            }
            for (me, moves) in moves {
                for name in moves.take {
                    assert!(!self.held.contains_key(&name), "two reach for {name} from the same view");
                    self.held.insert(name, me.clone());
                    moved += 1;
                }
            }
            moved
        }

        fn rounds(&mut self, count: usize) -> usize {
            (0..count).map(|_| self.round()).sum()
        }

        fn count(&self, holder: &MemberId) -> usize {
            let is_segment = |name: &LeaseName| matches!(name, LeaseName::Segment(_));
            self.held.iter().filter(|(name, by)| is_segment(name) && *by == holder).count()
        }

        fn counts(&self) -> Vec<usize> {
            let standing = self.members.iter().filter(|(_, stands)| **stands);
            standing.map(|(id, _)| self.count(id)).collect()
        }
    }

    fn is_balanced(counts: &[usize]) -> bool {
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        counts.iter().sum::<usize>() == 64 && most - least <= 1
    }

    proptest! {
        #[test]
        fn any_start_is_in_balance_after_a_few_rounds_and_stays_so(
            standing in 1usize..80,
            others in 0usize..4,
            starts in prop::collection::vec(prop::option::of(0usize..84), 64),
            leader in prop::option::of(0usize..84),
        ) {
            let mut table = Table::of(standing);
            table.members.extend((standing..standing + others).map(|one| (member(one), false)));
            let there = standing + others;
            let names = (0..64).map(|index| LeaseName::Segment(segment(index))).chain([LeaseName::Leader]);
            for (name, start) in names.zip(starts.into_iter().chain([leader])) {
                if let Some(holder) = start.filter(|holder| *holder < there) {
                    table.held.insert(name, member(holder));
                }
            }
            for _ in 0..3 {
                table.round();
                for one in 0..standing {
                    let most = 64usize.div_ceil(standing);
                    prop_assert!(table.count(&member(one)) <= most, "{:?}", table.counts());
                }
            }
            prop_assert!(is_balanced(&table.counts()), "{:?}", table.counts());
            prop_assert!(table.members[&table.held[&LeaseName::Leader]]);
            prop_assert_eq!(table.round(), 0);
        }

        #[test]
        fn one_who_comes_or_goes_moves_no_more_than_a_share(before in 1usize..32) {
            let mut table = Table::of(before);
            table.rounds(3);
            table.members.insert(member(before), true);
            let moved = table.rounds(3);
            // Released by one and acquired by the other.
            prop_assert!(moved <= 2 * 64usize.div_ceil(before + 1), "{moved} moves to {} schedulers", before + 1);
            prop_assert!(is_balanced(&table.counts()));
            let gone = member(0);
            table.members.remove(&gone);
            table.held.retain(|_, holder| *holder != gone);
            let moved = table.rounds(3);
            prop_assert!(moved <= 64usize.div_ceil(before + 1) + 1, "{moved} moves after one went");
            prop_assert!(is_balanced(&table.counts()));
        }

        #[test]
        fn with_views_of_different_age_nobody_holds_more_than_its_share(
            standing in 1usize..12,
            order in prop::collection::vec((0usize..12, 0usize..3), 60..80),
        ) {
            let mut table = Table::of(standing);
            let mut past = vec![table.roster()];
            for (one, age) in order {
                let me = member(one % standing);
                let seen = past[past.len().saturating_sub(1 + age)].clone();
                // A member knows what it holds itself.
                let mut seen = Roster { held: seen.held.into_iter().filter(|(_, by)| *by != me).collect(), ..seen };
                seen.held.extend(table.roster().held.into_iter().filter(|(_, by)| *by == me));
                let moves = deal(&me, &seen, &super::standing(&seen));
                for lease in moves.release {
                    table.held.remove(&lease.name);
                }
                for name in moves.take {
                    table.held.entry(name).or_insert_with(|| me.clone());
                }
                prop_assert!(table.count(&me) <= 64usize.div_ceil(standing));
                past.push(table.roster());
            }
            table.rounds(3);
            prop_assert!(is_balanced(&table.counts()), "{:?}", table.counts());
        }
    }

    #[test]
    fn who_does_not_stand_gives_up_everything_once_somebody_stands() {
        let mut table = Table::of(1);
        table.round();
        table.members.insert(member(0), false);
        assert_eq!(table.round(), 0, "there is no member to assign it to");
        table.members.insert(member(1), true);
        table.rounds(2);
        assert_eq!((table.count(&member(0)), table.count(&member(1))), (0, 64));
        assert_eq!(table.held[&LeaseName::Leader], member(1));
    }

    #[test]
    fn the_leader_stays_when_others_come() {
        let mut table = Table::of(0);
        table.members.insert(member(5), true);
        table.round();
        table.members.insert(member(1), true);
        table.rounds(3);
        assert_eq!(table.held[&LeaseName::Leader], member(5));
    }

    #[test]
    fn a_card_of_another_version_is_read_as_far_as_it_goes() {
        let card = Card::read(r#"{"node_id":"a-1","stands":true,"unheard_of":[1]}"#).unwrap();
        assert_eq!((card.node_id.as_str(), card.stands, card.pid), ("a-1", true, 0));
        assert_eq!(Card::read("not a card"), None);
        assert_eq!(Card::read(&card.written()), Some(card));
    }

    const TTL: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Monotonic {
        Monotonic::from_micros(millis * 1_000)
    }

    #[test]
    fn a_member_looks_after_what_it_holds_and_after_everything_when_it_cannot_be_sure() {
        let me = member(1);
        let few = Holdings { segments: [segment(3)].into_iter().collect(), leads: false };
        let mut membership = Membership::new(TTL);
        assert_eq!(membership.holdings(at(0)), Holdings::EVERYTHING);
        membership.joined(me.clone(), at(0));
        assert_eq!(membership.holdings(at(10)), Holdings::EVERYTHING);
        membership.looked(&me, at(10), few);
        assert_eq!(membership.holdings(at(20)), few);
        membership.moved(&me, |holdings| holdings.leads = true);
        assert!(membership.holdings(at(20)).leads);
        // Certain only until well before others may acquire what it holds.
        assert!(membership.is_coordinated(at(2_399)) && membership.is_member(at(2_399)));
        assert!(!membership.is_member(at(2_400)));
        assert_eq!(membership.holdings(at(2_400)), Holdings::EVERYTHING);
        membership.beaten(&me, at(2_450));
        assert_eq!(membership.holdings(at(2_500)).segments, few.segments);
        // Heartbeats alone are not enough: the distribution may have changed.
        membership.beaten(&me, at(3_000));
        assert_eq!(membership.holdings(at(3_010)), Holdings::EVERYTHING);
        membership.looked(&me, at(3_020), few);
        assert_eq!(membership.holdings(at(3_030)), few);
        membership.given_up(&me);
        assert_eq!(membership.holdings(at(3_040)), Holdings::EVERYTHING);
        // Answers to requests of an earlier member do not apply to the next one.
        membership.joined(member(2), at(3_050));
        membership.looked(&me, at(3_060), few);
        assert_eq!(membership.holdings(at(3_070)), Holdings::EVERYTHING);
    }
}
