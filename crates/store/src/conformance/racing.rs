//! Concurrent calls: whichever comes first, the state of the store afterwards is the result of some order
//! of the calls.
//!
//! A case consists of many rounds of one race, some of them at the same time. Every round has its own queue
//! and jobs, and a different head start, so that the calls meet in one transaction, in two concurrent ones,
//! and one after the other. [`between_nodes`] runs the same races between several nodes of one database.

use super::fixture::{Harness, at, job_with};
use futures_util::stream::{self, StreamExt};
use punctual_core::ids::SessionId;
use punctual_core::job::{Job, JobSpec};
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, CommitEffects, Depth, ReportAnswer, Resync, ResyncOutcome, Store,
};
use punctual_core::time::Timestamp;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

macro_rules! races {
    ($($topic:ident { $($case:ident),* $(,)? })*) => {
        $(mod $topic;)*

        $($(pub async fn $case(store: Arc<dyn Store>) {
            $topic::$case(Nodes::of(vec![store])).await;
        })*)*

        /// The same races, with the calls of a round spread over nodes that share a database.
        pub mod between_nodes {
            use super::{Arc, Nodes, Store};

            $($(pub async fn $case(stores: Vec<Arc<dyn Store>>) {
                super::$topic::$case(Nodes::of(stores)).await;
            })*)*
        }
    };
}

races! {
    work {
        two_claimers_share_all_there_is,
        eight_claimers_share_all_there_is,
        a_claim_against_a_cancel,
        a_report_against_a_cancel,
        a_claim_against_a_give_back,
        a_claim_against_a_resync_of_another,
        a_claim_against_a_resync_with_the_same_turn,
        a_report_against_the_loss_of_its_session,
        one_report_from_many_at_once,
    }
    time {
        two_schedulers_fire_each_time_once,
        eight_schedulers_fire_each_time_once,
        a_fire_against_an_update,
        a_fire_against_a_pause,
        a_fire_against_a_delete,
        a_fire_against_a_report_under_queue,
        a_fire_against_a_report_under_replace,
        a_fire_against_a_report_under_skip,
    }
    people {
        one_submit_from_many_at_once,
        one_idempotency_key_from_many_at_once,
        one_unique_key_from_many_at_once,
        one_first_token_from_many_at_once,
        one_rotation_of_a_token_from_many_at_once,
        one_email_address_from_many_at_once,
        a_submit_against_the_end_of_the_holder_of_its_unique_key,
        a_child_against_the_success_of_its_parent,
        a_child_against_the_failure_of_its_parent,
        two_parents_that_succeed_at_once,
        two_parents_that_end_differently_at_once,
        a_trigger_against_the_last_end,
        a_redrive_against_a_discard,
        a_submit_against_the_deletion_of_its_lane,
        maintenance_against_all_the_rest,
    }
    audit {
        sealers_continue_one_chain,
    }
}

/// Rounds of one race, unless `PUNCTUAL_RACING_ROUNDS` names another number.
const ROUNDS_DEFAULT: u32 = 40;
/// The maximum of rounds whose jobs are all created before the first schedule is due.
const ROUNDS_MAX: u32 = 240;
/// Rounds of one race that run at the same time.
const BESIDE: usize = 8;
/// The maximum of jobs per round. All are created, a millisecond apart, before the first schedule is due.
const JOBS_PER_ROUND: u32 = 40;
/// The number of different head starts of a call, in yields of the runtime.
const HEAD_STARTS: u32 = 5;
/// Calls after which an expected result counts as missing.
const TRIES_MAX: usize = 1_000;

/// The nodes that share a database.
#[derive(Clone)]
struct Nodes {
    harnesses: Vec<Harness>,
    /// Counts claims. Each is a second after the last, because a node may not know of a new lane for that
    /// long.
    claims: Arc<AtomicI64>,
}

impl Nodes {
    fn of(stores: Vec<Arc<dyn Store>>) -> Self {
        Nodes { harnesses: stores.into_iter().map(Harness::new).collect(), claims: Arc::default() }
    }

    /// Runs all rounds of a race.
    async fn rounds<R: Future<Output = ()> + Send + 'static>(self, race: impl Fn(Round) -> R) {
        self.fewer_rounds(1, race).await;
    }

    /// Runs one in this many rounds, for races whose rounds take long.
    async fn fewer_rounds<R>(self, one_in: u32, race: impl Fn(Round) -> R)
    where
        R: Future<Output = ()> + Send + 'static,
    {
        let named = std::env::var("PUNCTUAL_RACING_ROUNDS");
        let rounds = named.map_or(ROUNDS_DEFAULT, |text| text.parse().expect("a number of rounds"));
        let count = rounds.min(ROUNDS_MAX).div_ceil(one_in);
        let races = (0..count).map(|number| race(Round { number, nodes: self.clone() }));
        let mut ended = stream::iter(races).map(tokio::spawn).buffer_unordered(BESIDE);
        while let Some(ended) = ended.next().await {
            if let Err(error) = ended {
                resume_unwind(error.into_panic());
            }
        }
    }
}

/// One race.
struct Round {
    number: u32,
    nodes: Nodes,
}

impl Round {
    /// The node with this index; there may be just one node.
    fn node(&self, index: usize) -> &Harness {
        let harnesses = &self.nodes.harnesses;
        &harnesses[(self.number as usize + index) % harnesses.len()]
    }

    fn here(&self) -> &Harness {
        self.node(0)
    }

    fn there(&self) -> &Harness {
        self.node(1)
    }

    /// A separate queue, so that concurrent rounds take nothing from it.
    fn queue(&self) -> String {
        format!("round-{}", self.number)
    }

    /// The n-th job of this round.
    fn job(&self, n: u32) -> Job {
        self.job_with(n, |_| {})
    }

    fn job_with(&self, n: u32, change: impl FnOnce(&mut JobSpec)) -> Job {
        assert!(n < JOBS_PER_ROUND, "no number is left for job {n}");
        job_with(self.number * JOBS_PER_ROUND + n, |spec| {
            spec.queue = self.queue();
            change(spec);
        })
    }

    /// A worker at the node with this index.
    async fn worker(&self, index: usize) -> RaceWorker {
        let harness = self.node(index).clone();
        let session = harness.open_session(&format!("w{index}")).await;
        RaceWorker { harness, session, turn: 0, queue: self.queue(), claims: self.nodes.claims.clone() }
    }

    /// The store's counters of this round's queue.
    async fn depth(&self) -> (u64, u64, u64) {
        let depths = self.here().store.depths().await.unwrap();
        let is_ours = |depth: &&Depth| depth.lane.queue() == self.queue();
        let ours = depths.iter().find(is_ours);
        ours.map_or((0, 0, 0), |depth| (depth.waiting, depth.queued, depth.running))
    }

    /// Runs two calls at once; which of them starts slightly earlier differs from round to round.
    async fn both<A, B>(&self, one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
        let (first, second) = (self.number % HEAD_STARTS, self.number / HEAD_STARTS % HEAD_STARTS);
        futures_util::future::join(after(first, one), after(second, other)).await
    }

    /// Runs the same call once for each index, all at once.
    async fn many<T, F: Future<Output = T>>(&self, count: usize, call: impl Fn(usize) -> F) -> Vec<T> {
        let head_start = |index: usize| (self.number + 1).wrapping_mul(index as u32) % HEAD_STARTS;
        futures_util::future::join_all((0..count).map(|index| after(head_start(index), call(index)))).await
    }

    /// Releases and skips all dependents that are not resolved yet.
    async fn resolve_all(&self) {
        for _ in 0..TRIES_MAX {
            if !self.here().store.resolve(at(900), 1_000).await.unwrap().more {
                return;
            }
        }
        panic!("resolving never finishes");
    }
}

/// A worker of one round, which claims from its queue and tracks its poll sequence numbers.
struct RaceWorker {
    harness: Harness,
    session: SessionId,
    turn: u64,
    queue: String,
    claims: Arc<AtomicI64>,
}

impl RaceWorker {
    async fn try_claim(&self, limit: usize) -> ClaimOutcome {
        let now = at(1_000 + self.claims.fetch_add(1, Ordering::Relaxed));
        let (queues, job_types) = (vec![self.queue.clone()], vec!["report".to_owned()]);
        let claim = Claim { session: self.session, turn: self.turn + 1, limit, queues, job_types };
        self.harness.claim_from(now, claim).await
    }

    async fn claim(&mut self, limit: usize) -> Vec<Assignment> {
        match self.try_claim(limit).await {
            ClaimOutcome::Claimed { assignments, .. } => {
                self.turn += u64::from(!assignments.is_empty());
                assignments
            }
            other => panic!("claimed: {other:?}"),
        }
    }

    /// Claims everything in its queue, which must be exactly one execution.
    async fn claim_only(&mut self) -> Assignment {
        let mut claimed = self.claim(10).await;
        assert_eq!(claimed.len(), 1, "{claimed:?}");
        claimed.remove(0)
    }

    async fn report(&self, now: Timestamp, of: &Assignment, end: ReportedEnd) -> ReportAnswer {
        self.harness.report(now, self.session, of, end).await.answer
    }

    /// Reports an end that must be accepted.
    async fn end(&self, now: Timestamp, of: &Assignment, end: ReportedEnd) -> CommitEffects {
        self.harness.accept(now, self.session, of, end).await
    }

    async fn give_back(&self, now: Timestamp, of: &Assignment) -> Vec<Option<CommitEffects>> {
        self.harness.store.give_back(now, self.session, vec![of.lease()]).await.unwrap()
    }

    /// Returns everything it holds, with its next poll sequence number.
    async fn resync(&self, now: Timestamp) -> ResyncOutcome {
        let resync = Resync { session: self.session, turn: self.turn + 1, held: vec![] };
        self.harness.store.resync(now, resync).await.unwrap()
    }
}

/// Starts a call after this many yields to the runtime.
async fn after<T>(turns: u32, call: impl Future<Output = T>) -> T {
    for _ in 0..turns {
        tokio::task::yield_now().await;
    }
    call.await
}
