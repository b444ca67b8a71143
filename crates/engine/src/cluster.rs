//! This node's part in a cluster: what it owns now, and what it publishes about itself.
//!
//! Ownership is computed on every request, because a membership expires by itself. `settle` updates the
//! agenda, and is called after everything that may have changed the ownership.

use crate::agenda::segment_of;
use crate::{Duties, Engine, EngineContext};
use futures_util::future::{Either, select};
use punctual_core::cluster::{Card, Holdings, Membership, holdings};
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::{JobId, SegmentSet};
use punctual_core::limits;
use punctual_core::ports::{Coordination, CoordinationError, Due, DueKind, MemberId, Roster};
use punctual_core::time::{Monotonic, Timestamp};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How a process takes part in a cluster.
#[derive(Clone)]
pub struct ClusterParticipation {
    pub coordination: Arc<dyn Coordination>,
    /// The card that it publishes; values that change over time are filled in.
    pub card: Card,
}

/// A member of the cluster, as seen by a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSeen {
    pub member: MemberId,
    /// `None` if this version cannot parse it.
    pub card: Option<Card>,
    pub holdings: Holdings,
    /// Whether it is this process.
    pub is_self: bool,
}

/// The status of this process, without a call to coordination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSnapshot {
    /// Whether it is configured to be part of a cluster.
    pub takes_part: bool,
    /// Whether it is part of it now: coordination answers, and it is a member.
    pub is_coordinated: bool,
    /// Members seen by its last scan; zero for a process that does not scan.
    pub members: usize,
    /// Segments that it owns.
    pub segments: usize,
    pub leads: bool,
    /// Whether its clock is too far off for it to fire anything.
    pub is_off: bool,
}

pub(crate) struct ClusterView {
    pub(crate) participation: Option<ClusterParticipation>,
    ttl: Duration,
    state: Mutex<ClusterState>,
    /// Held during a round of scanning and moving, so that a hand-over does not run concurrently.
    pub(crate) moving: tokio::sync::Mutex<()>,
    /// Notified when a scan is needed now.
    pub(crate) look_now: Notify,
}

struct ClusterState {
    membership: Membership,
    is_leaving: bool,
    /// The ownership that the agenda reflects.
    settled: Holdings,
    was_coordinated: bool,
    /// Until when this node still fires segments that it has released.
    handing_over_until: Timestamp,
    fresh: FreshJobs,
    /// Segments were acquired that have not been scanned yet.
    is_scan_due: bool,
    members: usize,
    /// The eligibility that was last published.
    told_stands: bool,
    is_off: bool,
    /// When the store last answered with its time.
    heard_at: Monotonic,
    /// Segments that are never scanned, by [`Defect::ForgetTakenSegment`].
    forgotten: SegmentSet,
}

/// Jobs whose schedules were submitted or changed here within the last one to two spans of time.
#[derive(Debug, Default)]
struct FreshJobs {
    since: Timestamp,
    young: BTreeSet<JobId>,
    old: BTreeSet<JobId>,
}

impl FreshJobs {
    fn add(&mut self, job: JobId, now: Timestamp, span: Duration) {
        self.grow_old(now, span);
        self.young.insert(job);
    }

    fn contains(&mut self, job: JobId, now: Timestamp, span: Duration) -> bool {
        self.grow_old(now, span);
        self.young.contains(&job) || self.old.contains(&job)
    }

    fn grow_old(&mut self, now: Timestamp, span: Duration) {
        if now >= self.since.plus(span) {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
    }
}

impl ClusterView {
    pub(crate) fn new(participation: Option<ClusterParticipation>, ttl: Duration) -> Self {
        let state = ClusterState {
            membership: Membership::new(ttl),
            is_leaving: false,
            settled: Holdings::NOTHING,
            was_coordinated: false,
            handing_over_until: Timestamp::EPOCH,
            fresh: FreshJobs::default(),
            is_scan_due: true,
            members: 0,
            told_stands: false,
            is_off: false,
            heard_at: Monotonic::default(),
            forgotten: SegmentSet::NONE,
        };
        ClusterView {
            participation,
            ttl,
            state: Mutex::new(state),
            moving: tokio::sync::Mutex::default(),
            look_now: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn beat_interval(&self) -> Duration {
        self.ttl / 5
    }

    pub(crate) fn look_interval(&self) -> Duration {
        self.ttl / 6
    }

    /// How long a call may take before it counts as failed: three in sequence fit between two heartbeats that
    /// keep a member alive.
    pub(crate) fn call_time_max(&self) -> Duration {
        self.ttl / 3
    }

    /// How long released segments are still fired here: until their new owner has scanned, acquired and read
    /// them.
    pub(crate) fn hand_over_time(&self) -> Duration {
        self.look_interval() * 3
    }

    pub(crate) fn member(&self) -> Option<MemberId> {
        self.state().membership.member().cloned()
    }

    pub(crate) fn membership<T>(&self, change: impl FnOnce(&mut Membership) -> T) -> T {
        change(&mut self.state().membership)
    }

    pub(crate) fn saw(&self, roster: &Roster) {
        self.state().members = roster.members.len();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.state().is_leaving
    }

    pub(crate) fn begin_leaving(&self) {
        self.state().is_leaving = true;
    }

    pub(crate) fn told(&self, stands: bool) {
        self.state().told_stands = stands;
    }

    pub(crate) fn told_stands(&self) -> bool {
        self.state().told_stands
    }

    pub(crate) fn heard_of_store(&self, at: Monotonic) {
        self.state().heard_at = at;
    }

    /// Whether segments were acquired since the last call.
    pub(crate) fn take_scan(&self) -> bool {
        std::mem::take(&mut self.state().is_scan_due)
    }
}

impl EngineContext {
    /// What this node owns now.
    pub(crate) fn holdings(&self) -> Holdings {
        let state = self.cluster.state();
        let everything_if = |held| if held { Holdings::EVERYTHING } else { Holdings::NOTHING };
        match &self.cluster.participation {
            _ if self.config.duties == Duties::OwnCommits || state.is_off => Holdings::NOTHING,
            None => everything_if(true),
            Some(_) => state.membership.holdings(self.host.clock.monotonic()),
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.holdings().leads
    }

    /// The segments to scan.
    pub(crate) fn scanned(&self) -> SegmentSet {
        self.holdings().segments.without(self.cluster.state().forgotten)
    }

    /// Whether this node is eligible for segments and leadership.
    pub(crate) fn stands(&self) -> bool {
        let state = self.cluster.state();
        let silence = self.host.clock.monotonic().since(state.heard_at);
        self.config.duties == Duties::Everything
            && !state.is_leaving
            && !state.is_off
            && silence <= limits::STORE_SILENCE_MAX
    }

    /// The current card of this node.
    pub(crate) fn card(&self, participation: &ClusterParticipation) -> Card {
        let counted = self.counters.snapshot();
        let counters = counted.named().filter(|(_, count)| *count > 0);
        Card {
            clock_offset_us: -self.time.offset_us(),
            stands: self.stands(),
            ready_queue: self.peers.state().map_or_else(String::new, |queue| queue.kind.to_owned()),
            is_receiving: self.peers.is_receiving(),
            warnings: self.warnings(),
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            ..participation.card.clone()
        }
    }

    /// Updates the agenda to the current ownership. Acquired segments are scanned at once; entries of
    /// released ones are kept only until another node has taken over.
    pub(crate) fn settle(&self) {
        let held = self.holdings();
        let coordinated = self.is_coordinated();
        let mut state = self.cluster.state();
        let before = std::mem::replace(&mut state.settled, held);
        let was_coordinated = std::mem::replace(&mut state.was_coordinated, coordinated);
        let came = held.segments.without(before.segments);
        let went = before.segments.without(held.segments);
        if !came.is_empty() {
            state.is_scan_due = true;
            if planted(Defect::ForgetTakenSegment) && coordinated && !before.segments.is_empty() {
                state.forgotten = came;
            }
        }
        let until = self.time.now().plus(self.cluster.hand_over_time());
        if !went.is_empty() {
            state.handing_over_until = until;
        }
        drop(state);
        if !went.is_empty() {
            self.agenda.keep(held.segments, until);
        }
        if !came.is_empty() {
            self.agenda.wake();
        }
        if (came, went) != (SegmentSet::NONE, SegmentSet::NONE) && self.cluster.participation.is_some() {
            self.counters.rebalances.add(1);
            tracing::info!(
                segments = held.segments.len(),
                came = came.len(),
                went = went.len(),
                "this process now fires other segments"
            );
        }
        if before.leads != held.leads && self.cluster.participation.is_some() {
            let said = if held.leads {
                "this process is now the leader"
            } else {
                "this process is no longer the leader"
            };
            tracing::info!("{said}");
        }
        if was_coordinated && !coordinated {
            tracing::warn!(
                "coordination is unavailable; until it is back, every scheduler fires all segments"
            );
        }
    }

    /// Adds the next due times of schedules that were fired here to the agenda, if this node owns them.
    /// Otherwise a node that once fired a schedule of another owner would keep firing it, in competition with
    /// the owner, for as long as the schedule lasts. The exception are schedules that were submitted or
    /// changed here a moment ago: this node continues to fire them until their owner has read them.
    pub(crate) fn hold_next(&self, due: Vec<Due>) {
        let (now, own) = (self.time.now(), self.scanned());
        for due in due {
            let is_held = own.contains(segment_of(&due)) || self.is_fired_here_as_well(&due, now);
            if is_held {
                self.agenda.add(now, due);
            }
        }
    }

    fn is_fired_here_as_well(&self, due: &Due, now: Timestamp) -> bool {
        let DueKind::Schedule { job, .. } = due.what else { return true };
        let (mut state, span) = (self.cluster.state(), self.config.refill_interval);
        let is_near = due.at <= now.plus(span);
        due.at <= state.handing_over_until || (is_near && state.fresh.contains(job, now, span))
    }

    /// Records a schedule that was submitted or changed here and is due before its owner reads it.
    pub(crate) fn note_fresh(&self, due: &Due, now: Timestamp) {
        let span = self.config.refill_interval;
        if let DueKind::Schedule { job, .. } = due.what
            && due.at <= now.plus(span)
            && !self.scanned().contains(segment_of(due))
        {
            self.cluster.state().fresh.add(job, now, span);
        }
    }

    /// Whether this node is a member; for a scheduler, also whether it knows what it owns.
    pub(crate) fn is_coordinated(&self) -> bool {
        let (state, now) = (self.cluster.state(), self.host.clock.monotonic());
        match self.config.duties {
            Duties::Everything => state.membership.is_coordinated(now),
            Duties::OwnCommits => state.membership.is_member(now),
        }
    }

    /// Stops or resumes firing, depending on whether this node's wall clock agrees with the store's time.
    pub(crate) fn judge_clock(&self) {
        let offset = Duration::from_micros(self.time.offset_us().unsigned_abs());
        let is_off = offset > self.config.clock_offset_max;
        let was_off = std::mem::replace(&mut self.cluster.state().is_off, is_off);
        if is_off != was_off {
            self.agenda.set_closed(is_off);
            if is_off {
                tracing::error!(
                    ?offset,
                    limit = ?self.config.clock_offset_max,
                    "the clocks of this machine and the store differ too much: nothing is fired here until \
                     they agree"
                );
            } else {
                tracing::info!("the clocks of this machine and the store agree again");
            }
            self.cluster.look_now.notify_one();
        }
        self.settle();
    }

    /// Makes a call to coordination with a time limit.
    pub(crate) async fn ask<T>(
        &self,
        call: impl Future<Output = Result<T, CoordinationError>>,
    ) -> Result<T, CoordinationError> {
        let limit = self.cluster.call_time_max();
        let answer = match select(pin!(call), self.host.clock.sleep(limit)).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(CoordinationError::Unavailable(format!("no answer within {limit:?}"))),
        };
        if answer.is_err() {
            self.counters.coordination_errors.add(1);
        }
        answer
    }
}

impl Engine {
    /// Whether this process has the duties of the leader. True if it is the only one, and while coordination
    /// is unavailable.
    pub fn leads(&self) -> bool {
        self.context.leads()
    }

    pub fn cluster(&self) -> ClusterSnapshot {
        let context = &self.context;
        let held = context.holdings();
        let is_coordinated = context.is_coordinated();
        let state = context.cluster.state();
        ClusterSnapshot {
            takes_part: context.cluster.participation.is_some(),
            is_coordinated,
            members: state.members,
            segments: held.segments.len(),
            leads: held.leads,
            is_off: state.is_off,
        }
    }

    /// All members of the cluster, from a new scan; `None` if there is no coordination.
    pub async fn nodes(&self) -> Option<Result<Vec<NodeSeen>, CoordinationError>> {
        let participation = self.context.cluster.participation.as_ref()?;
        Some(self.context.ask(participation.coordination.look()).await.map(|roster| {
            self.context.cluster.saw(&roster);
            self.seen(&roster)
        }))
    }

    fn seen(&self, roster: &Roster) -> Vec<NodeSeen> {
        let own = self.context.cluster.member();
        let seen = roster.members.iter().map(|member| NodeSeen {
            member: member.id.clone(),
            card: Card::read(&member.card),
            holdings: holdings(&member.id, roster),
            is_self: own.as_ref() == Some(&member.id),
        });
        seen.collect()
    }
}
