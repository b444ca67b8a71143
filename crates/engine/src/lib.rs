//! The engine: everything between the ports. It takes submits, hands out and takes back work, and runs the
//! loops that let time pass.
//!
//! It owns sequence and batching: which store verb follows which, what is gathered into one call, who is told
//! afterwards. It must not decide states (core does), know SQL (store does) or HTTP (api does). It holds nothing
//! that would be missed after a crash: look-ahead, parked polls and counters are rebuilt from the store.
//!
//! Every loop is a reconciler: it takes no input, may run at any time and any number of times, does a bounded
//! amount of work, and is woken by a signal or a timer.

mod agenda;
mod batcher;
mod control;
mod counters;
mod desk;
mod drive;
mod events;
mod loops;
#[cfg(feature = "benches")]
#[doc(hidden)]
pub mod measured;
mod measures;
mod others;
mod pause;
mod submit;
mod timekeeper;
mod wheel;
mod work;

pub use control::ControlError;
pub use counters::CounterSnapshot;
pub use drive::{Drive, Driven};
pub use events::{Listener, LogFollower, Touched};
pub use measures::MeasureSnapshot;
pub use submit::{IdSource, SubmitError, Submitted};

use agenda::Agenda;
use batcher::Batcher;
use counters::Counters;
use desk::Desk;
use events::Events;
use futures_util::future::{join3, join5};
use measures::Measures;
use others::Others;
use punctual_core::ids::{ExecutionId, JobId, SegmentSet};
use punctual_core::job::Job;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Beat, BeatOutcome, Begun, Host, Lane, LeaseRef, Offer, Report, ReportAnswer, Store, StoreError, Wakes,
};
use punctual_core::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use timekeeper::Timekeeper;

/// What a node looks after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duties {
    /// All that is in the store: whatever falls due, silent sessions, dependents, what has been kept long enough.
    Everything,
    /// What this node commits itself, and the polls that wait here. The rest is left to the schedulers of the cluster.
    OwnCommits,
}

/// What an operator may tune.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub duties: Duties,
    /// Whether other processes commit to the store, too.
    pub shares_store: bool,
    /// How far ahead due times are held in memory. At most [`wheel::SPAN_MAX`].
    pub look_ahead: Duration,
    /// How often the store is asked for due times: the safety net under what this node committed itself.
    pub refill_interval: Duration,
    /// How long at most parked polls are not checked because nobody woke them: so late is work found that another
    /// process has queued without a word.
    pub dispatch_interval: Duration,
    /// The same while others can be heard.
    pub dispatch_interval_hearing: Duration,
    /// How soon they are checked again after a check that found such work.
    pub dispatch_interval_min: Duration,
    /// How often sessions are observed.
    pub recover_interval: Duration,
    /// How often old history is looked for.
    pub retain_interval: Duration,
    /// How long history and logs are kept.
    pub history_kept: Duration,
    /// How long jobs are kept after they have finished; `None` for good. Those with dead letters stay.
    pub jobs_kept: Option<Duration>,
    /// How often dependents are looked for that the end of a job has not reached.
    pub resolve_interval: Duration,
    /// How often the offset to the store's clock is measured.
    pub clock_interval: Duration,
    /// How often listeners are told what other processes have started.
    pub watch_interval: Duration,
    pub segments: SegmentSet,
}

impl EngineConfig {
    /// For one of several processes on one store.
    pub fn sharing_store(self, duties: Duties) -> Self {
        let look_ahead = match duties {
            Duties::Everything => self.look_ahead,
            Duties::OwnCommits => limits::OWN_LOOK_AHEAD,
        };
        EngineConfig {
            duties,
            shares_store: true,
            look_ahead,
            dispatch_interval: limits::LOOK_PAUSE_MAX,
            ..self
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            duties: Duties::Everything,
            shares_store: false,
            look_ahead: Duration::from_secs(5),
            refill_interval: Duration::from_secs(1),
            dispatch_interval: Duration::from_secs(1),
            dispatch_interval_hearing: limits::LOOK_PAUSE_HEARING,
            dispatch_interval_min: limits::LOOK_PAUSE_MIN,
            recover_interval: Duration::from_secs(1),
            retain_interval: Duration::from_secs(60),
            history_kept: Duration::from_secs(30 * 24 * 3_600),
            jobs_kept: None,
            resolve_interval: Duration::from_secs(1),
            clock_interval: Duration::from_secs(1),
            watch_interval: Duration::from_secs(1),
            segments: SegmentSet::ALL,
        }
    }
}

/// One node's engine.
pub struct Engine {
    context: Arc<Context>,
    submits: Batcher<Job, submit::Kept>,
    reports: Batcher<Report, ReportAnswer>,
    beats: Batcher<Beat, BeatOutcome>,
    notes: Batcher<Note, NoteAnswer>,
    /// Held by whoever drives the clock: one at a time, so that what was fired on the way is known.
    driving: tokio::sync::Mutex<()>,
}

/// What all parts of the engine share.
struct Context {
    config: EngineConfig,
    host: Host,
    store: Arc<dyn Store>,
    time: Timekeeper,
    desk: Desk,
    agenda: Agenda,
    /// Held while a batch is fired and counted.
    firing: tokio::sync::Mutex<()>,
    counters: Counters,
    measures: Measures,
    events: Events,
    others: Others,
}

impl Engine {
    pub fn new(config: EngineConfig, host: Host, store: Arc<dyn Store>) -> Arc<Engine> {
        Engine::among_others(config, host, store, None)
    }

    /// An engine whose store carries words between the processes that share it.
    pub fn among_others(
        config: EngineConfig,
        host: Host,
        store: Arc<dyn Store>,
        wakes: Option<Arc<dyn Wakes>>,
    ) -> Arc<Engine> {
        let context = Arc::new(Context {
            time: Timekeeper::new(host.calendar.clone()),
            desk: Desk::default(),
            agenda: Agenda::new(config.look_ahead),
            firing: tokio::sync::Mutex::default(),
            counters: Counters::default(),
            measures: Measures::default(),
            events: Events::default(),
            others: Others::reached_by(wakes),
            config,
            host,
            store,
        });
        Arc::new(Engine {
            submits: context.clone().submit_batcher(),
            reports: context.clone().report_batcher(),
            beats: context.clone().beat_batcher(),
            notes: context.clone().note_batcher(),
            driving: tokio::sync::Mutex::default(),
            context,
        })
    }

    /// Learns the store's time. Nothing may be asked of the engine before this has succeeded once.
    pub async fn start(&self) -> Result<(), StoreError> {
        self.context.time.sync(&*self.context.store).await
    }

    /// Runs all loops for as long as the future is polled.
    pub async fn run(self: Arc<Self>) {
        let context = &self.context;
        let punctual = join5(
            loops::keep_time(context),
            loops::fire(context),
            loops::dispatch(context),
            loops::recover(context),
            loops::resolve(context),
        );
        let others = join3(loops::hear(context), loops::tell(context), loops::watch(context));
        join3(punctual, loops::retain(context), others).await;
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.context.store
    }

    /// The store's time, as well as this node knows it; never ahead of it.
    pub fn now(&self) -> Timestamp {
        self.context.time.now()
    }

    /// Tells what commits of this node touch from now on.
    pub fn listen(&self) -> Listener {
        self.context.events.listen()
    }

    /// Tells when there may be more to read of a job's logs.
    pub fn follow_logs(&self, job: JobId) -> LogFollower {
        self.context.events.follow_logs(job)
    }

    pub fn counters(&self) -> CounterSnapshot {
        self.context.counters.snapshot()
    }

    pub fn measures(&self) -> MeasureSnapshot {
        self.context.measures.snapshot()
    }

    /// By how many microseconds the store's time is ahead of this machine's; negative if it is behind.
    pub fn clock_offset_us(&self) -> i64 {
        self.now().as_micros().saturating_sub(self.context.host.clock.wall().as_micros())
    }
}

impl Context {
    /// Passes on what a commit brought about: answers to parked polls, work in lanes, times to remember.
    fn follow_up(&self, begun: impl IntoIterator<Item = Begun>, reservation: desk::Reservation) {
        let mut assigned = Vec::new();
        let mut lanes: Vec<Lane> = Vec::new();
        for one in begun {
            assigned.extend(one.assigned);
            lanes.extend(one.queued);
            for due in one.due {
                self.agenda.add(self.time.now(), due);
            }
            self.count_ended(&one.ended);
        }
        self.counters.claimed.add(assigned.len() as u64);
        if !assigned.is_empty() {
            self.measures.leased(self.time.now(), assigned.iter().map(|(_, assignment)| assignment));
        }
        self.events.touched(assigned.iter().map(|(_, assignment)| assignment.execution.occurrence));
        let undelivered = self.desk.settle(reservation, assigned);
        self.return_undelivered(undelivered);
        self.wake(lanes);
    }

    fn count_ended(&self, ended: &[(ExecutionId, Status)]) {
        self.events.touched(ended.iter().map(|(execution, _)| execution.occurrence));
        for (_, status) in ended {
            match status {
                Status::Cancelled => self.counters.cancelled.add(1),
                Status::Skipped => self.counters.skipped.add(1),
                Status::Expired => self.counters.expired.add(1),
                other => debug_assert!(false, "{other:?} ends nothing that has not started"),
            }
        }
    }

    /// Lets the dispatch loop look at the polls that these lanes concern, here and elsewhere.
    fn wake(&self, lanes: impl IntoIterator<Item = Lane>) {
        let lanes: std::collections::BTreeSet<Lane> = lanes.into_iter().collect();
        if !lanes.is_empty() {
            self.desk.wake(&lanes);
            self.others.queued(&lanes);
        }
    }

    /// Gives back what was leased to a poll whose asker is gone. Its worker would find out by a resync; this
    /// spares the executions the wait.
    fn return_undelivered(&self, undelivered: Vec<(Offer, Vec<LeaseRef>)>) {
        for (offer, leases) in undelivered {
            let (store, now) = (self.store.clone(), self.time.now());
            self.host.spawn.spawn(Box::pin(async move {
                if let Err(error) = store.give_back(now, offer.session, leases).await {
                    tracing::debug!(%error, session = %offer.session, "undelivered work not given back; a resync will");
                }
            }));
        }
    }
}
