//! This node's part in a cluster: what it looks after now, and what it tells the others of itself.
//!
//! What is looked after is computed anew whenever somebody asks, because a membership runs out by itself. `settle` makes the
//! agenda follow, and is called after everything that may have changed it.

use crate::agenda::segment_of;
use crate::{Context, Duties, Engine};
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
pub struct Seat {
    pub coordination: Arc<dyn Coordination>,
    /// What it says of itself; what changes with time is filled in.
    pub card: Card,
}

/// A member of the cluster, as a look saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSeen {
    pub member: MemberId,
    /// `None` if it says nothing that this version understands.
    pub card: Option<Card>,
    pub holdings: Holdings,
    /// Whether it is this process.
    pub is_self: bool,
}

/// How this process stands, without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterSnapshot {
    /// Whether it takes part in a cluster at all.
    pub takes_part: bool,
    /// Whether it does so now: coordination answers, and it is a member.
    pub is_coordinated: bool,
    /// Members that its last look saw; of one that does not look, none.
    pub members: usize,
    /// Segments that it looks after.
    pub segments: usize,
    pub leads: bool,
    /// Whether its clock is too far off for it to fire anything.
    pub is_off: bool,
}

pub(crate) struct Cluster {
    pub(crate) seat: Option<Seat>,
    ttl: Duration,
    state: Mutex<State>,
    /// Held during a round of looking and moving, so that whoever hands over is alone.
    pub(crate) moving: tokio::sync::Mutex<()>,
    /// Told when there is something new to look at.
    pub(crate) look_now: Notify,
}

struct State {
    membership: Membership,
    is_leaving: bool,
    /// What the agenda follows.
    settled: Holdings,
    was_coordinated: bool,
    /// Until when what has gone is still fired here.
    handing_over_until: Timestamp,
    fresh: Fresh,
    /// Segments have come that were not scanned yet.
    is_scan_due: bool,
    members: usize,
    /// What the others were last told about standing.
    told_stands: bool,
    is_off: bool,
    /// When the store last told its time.
    heard_at: Monotonic,
    /// Segments that are never scanned, by [`Defect::ForgetTakenSegment`].
    forgotten: SegmentSet,
}

/// Jobs whose schedules were submitted or changed here within a span of time, or at most two.
#[derive(Debug, Default)]
struct Fresh {
    since: Timestamp,
    young: BTreeSet<JobId>,
    old: BTreeSet<JobId>,
}

impl Fresh {
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

impl Cluster {
    pub(crate) fn new(seat: Option<Seat>, ttl: Duration) -> Self {
        let state = State {
            membership: Membership::new(ttl),
            is_leaving: false,
            settled: Holdings::NOTHING,
            was_coordinated: false,
            handing_over_until: Timestamp::EPOCH,
            fresh: Fresh::default(),
            is_scan_due: true,
            members: 0,
            told_stands: false,
            is_off: false,
            heard_at: Monotonic::default(),
            forgotten: SegmentSet::NONE,
        };
        Cluster {
            seat,
            ttl,
            state: Mutex::new(state),
            moving: tokio::sync::Mutex::default(),
            look_now: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
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

    /// How long a call may take before it counts as failed: three in a row fit between two beats that keep a member.
    pub(crate) fn call_time_max(&self) -> Duration {
        self.ttl / 3
    }

    /// How long what was released is still fired here: until whoever takes it has looked, taken and read it.
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

    /// Whether segments have come since this was last asked.
    pub(crate) fn take_scan(&self) -> bool {
        std::mem::take(&mut self.state().is_scan_due)
    }
}

impl Context {
    /// What this node looks after now.
    pub(crate) fn holdings(&self) -> Holdings {
        let state = self.cluster.state();
        let everything_if = |held| if held { Holdings::EVERYTHING } else { Holdings::NOTHING };
        match &self.cluster.seat {
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

    /// Whether segments and leadership may be given to this node.
    pub(crate) fn stands(&self) -> bool {
        let state = self.cluster.state();
        let silence = self.host.clock.monotonic().since(state.heard_at);
        self.config.duties == Duties::Everything
            && !state.is_leaving
            && !state.is_off
            && silence <= limits::STORE_SILENCE_MAX
    }

    /// What this node says of itself now.
    pub(crate) fn card(&self, seat: &Seat) -> Card {
        let counted = self.counters.snapshot();
        let counters = counted.named().filter(|(_, count)| *count > 0);
        Card {
            clock_offset_us: -self.time.offset_us(),
            stands: self.stands(),
            warnings: self.warnings(),
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            ..seat.card.clone()
        }
    }

    /// Lets the agenda follow what is looked after: what has come is scanned at once, what has gone is held only for as
    /// long as it takes another to look after it.
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
        if (came, went) != (SegmentSet::NONE, SegmentSet::NONE) && self.cluster.seat.is_some() {
            self.counters.rebalances.add(1);
            tracing::info!(
                segments = held.segments.len(),
                came = came.len(),
                went = went.len(),
                "looking after other segments"
            );
        }
        if before.leads != held.leads && self.cluster.seat.is_some() {
            let said = if held.leads { "this process leads now" } else { "this process no longer leads" };
            tracing::info!("{said}");
        }
        if was_coordinated && !coordinated {
            tracing::warn!("coordination is away; until it is back, every scheduler looks after everything");
        }
    }

    /// Holds when schedules that were fired here are due next, where they are looked after here. Whoever has fired one that
    /// others look after would otherwise fire the next one, too, and so on for as long as the schedule lasts, against them.
    /// Only what was submitted or changed here a moment ago is gone on with until they have read it.
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

    /// Takes note of a schedule that was submitted or changed here, and that is due before those who look after it read it.
    pub(crate) fn note_fresh(&self, due: &Due, now: Timestamp) {
        let span = self.config.refill_interval;
        if let DueKind::Schedule { job, .. } = due.what
            && due.at <= now.plus(span)
            && !self.scanned().contains(segment_of(due))
        {
            self.cluster.state().fresh.add(job, now, span);
        }
    }

    /// Whether this node is a member; of a scheduler, also whether it knows what it is to look after.
    pub(crate) fn is_coordinated(&self) -> bool {
        let (state, now) = (self.cluster.state(), self.host.clock.monotonic());
        match self.config.duties {
            Duties::Everything => state.membership.is_coordinated(now),
            Duties::OwnCommits => state.membership.is_member(now),
        }
    }

    /// Stops or resumes firing, as this node's wall clock agrees with the store's time or not.
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
                    "this machine's clock and the store's are too far apart: nothing is fired here until they agree"
                );
            } else {
                tracing::info!("this machine's clock and the store's agree again");
            }
            self.cluster.look_now.notify_one();
        }
        self.settle();
    }

    /// Asks coordination something, for a bounded time.
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
    /// Whether this process has the duties that one has for all. True where it is the only one, and while coordination is
    /// away.
    pub fn leads(&self) -> bool {
        self.context.leads()
    }

    pub fn cluster(&self) -> ClusterSnapshot {
        let context = &self.context;
        let held = context.holdings();
        let is_coordinated = context.is_coordinated();
        let state = context.cluster.state();
        ClusterSnapshot {
            takes_part: context.cluster.seat.is_some(),
            is_coordinated,
            members: state.members,
            segments: held.segments.len(),
            leads: held.leads,
            is_off: state.is_off,
        }
    }

    /// All members of the cluster, by a look of their own; `None` where there is no coordination.
    pub async fn nodes(&self) -> Option<Result<Vec<NodeSeen>, CoordinationError>> {
        let seat = self.context.cluster.seat.as_ref()?;
        Some(self.context.ask(seat.coordination.look()).await.map(|roster| {
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
