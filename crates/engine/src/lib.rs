//! The engine: everything between the ports. It accepts submits, hands out work, takes results, and runs the
//! loops that react to the passing of time.
//!
//! It owns sequence and batching: which store verb follows which, what is batched into one call, and who is
//! notified afterwards. It also owns the use cases, which check what a caller may do. It must not decide
//! states (core does), know SQL (store does) or HTTP (api does). It holds nothing that would be missing after
//! a crash: look-ahead, waiting polls and counters are rebuilt from the store.
//!
//! Every loop is a reconciler: it takes no input, may run at any time and any number of times, does a bounded
//! amount of work, and is woken by a signal or a timer.

mod agenda;
mod audit;
mod batcher;
mod blobs;
mod calendars;
mod cluster;
mod cluster_pause;
mod control;
mod counters;
mod demand;
mod drive;
mod events;
mod history_reader;
mod intake;
mod lateness;
mod loops;
#[cfg(feature = "benches")]
#[doc(hidden)]
pub mod measured;
mod measures;
mod notify;
mod operations;
mod outbox;
mod pause;
mod peers;
mod poll_registry;
mod quota;
mod retention;
mod sealed_store;
mod secrets;
mod series;
mod submit;
mod timekeeper;
mod traces;
mod use_cases;
mod wait_lists;
mod wheel;
mod work;

pub use blobs::BlobConfig;
pub use cluster::{ClusterParticipation, ClusterSnapshot, NodeSeen};
pub use control::ControlError;
pub use counters::CounterSnapshot;
pub use drive::{Drive, Driven};
pub use events::{CommitListener, LogFollower, Touched};
pub use intake::{IntakeConfig, JobReader};
pub use measures::MeasureSnapshot;
pub use notify::NotificationConfig;
pub use operations::JobPatches;
pub use outbox::{EventsConfig, EventsState};
pub use peers::ReadyQueueState;
pub use quota::{Quota, QuotaLeft, RetryAfter, SubmitQuota, TokenBuckets};
pub use series::SeriesConfig;
pub use submit::{IdSource, SubmitError, SubmitRequest, Submitted};
pub use traces::{Exemplar, Exemplars, TracingConfig};
pub use use_cases::*;

use agenda::Agenda;
use audit::{AuditableItem, UnwrittenRefusals};
use batcher::Batcher;
use cluster::ClusterView;
use counters::EngineCounters;
use events::CommitEvents;
use futures_util::future::{join, join3, join4, join5};
use lateness::FireLateness;
use measures::Measures;
use peers::Peers;
use poll_registry::PollRegistry;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::Job;
use punctual_core::lifecycle::Status;
use punctual_core::limiter::Rate;
use punctual_core::limits;
use punctual_core::notes::{Note, NoteAnswer};
use punctual_core::ports::{
    Beat, BeatOutcome, CommitEffects, Host, Lane, LeaseRef, ReadyQueue, Report, ReportAnswer, SecretCipher,
    SlotReservation, SpanFigures, Store, StoreError,
};
use punctual_core::time::Timestamp;
use retention::Retention;
use sealed_store::SealedStore;
use std::sync::Arc;
use std::time::Duration;
use timekeeper::Timekeeper;
use traces::Traces;
use use_cases::HeldJobTypes;
use wait_lists::WaitLists;

/// The duties of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duties {
    /// Everything in the store: due times, silent sessions, dependents, and retention.
    Everything,
    /// This node's own commits, and the polls that wait here. The schedulers of the cluster do the rest.
    OwnCommits,
}

/// Settings that an operator may tune.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    pub duties: Duties,
    /// Whether other processes commit to the store, too.
    pub shares_store: bool,
    /// How far ahead due times are held in memory. At most [`wheel::SPAN_MAX`].
    pub look_ahead: Duration,
    /// How often due times are read from the store: the safety net for due times that this node did not
    /// commit itself.
    pub refill_interval: Duration,
    /// The longest time until waiting polls are checked without a wake-up: the most by which work is delayed
    /// that another process has queued without a notification.
    pub dispatch_interval: Duration,
    /// The same while notifications of other processes arrive, unless the counters show work that a claim did
    /// not get.
    pub dispatch_interval_hearing: Duration,
    /// The pause after a check that found such work.
    pub dispatch_interval_min: Duration,
    /// How often sessions are observed.
    pub recover_interval: Duration,
    /// How often retention runs.
    pub retain_interval: Duration,
    /// How long history and logs are kept.
    pub history_kept: Duration,
    /// How long jobs are kept after they have finished; `None` for ever. Jobs with dead letters are kept.
    pub jobs_kept: Option<Duration>,
    /// How long entries of the audit log are kept; `None` for ever.
    pub audit_kept: Option<Duration>,
    /// How often entries of the audit log are sealed, and refused requests written to it; `None` if nothing
    /// writes entries.
    pub audit_interval: Option<Duration>,
    /// How often operations on many jobs are looked for; `None` if nothing starts them.
    pub operations_interval: Option<Duration>,
    /// How long the store's clock must run evenly after a jump before anything is deleted by age.
    pub retention_hold: Duration,
    /// How often dependents are scanned that the end of a job has not reached.
    pub resolve_interval: Duration,
    /// How often the offset to the store's clock is measured.
    pub clock_interval: Duration,
    /// How often listeners are notified of what other processes have started.
    pub watch_interval: Duration,
    /// How long this node may be silent before other members take over what it owns.
    pub member_ttl: Duration,
    /// How far this machine's wall clock may be off the store's time. A node that is further off fires
    /// nothing.
    pub clock_offset_max: Duration,
    /// How many jobs each owner may submit to this node; `None` for no limit.
    pub submit_quota: Option<Rate>,
    /// What encrypts and decrypts secrets and the data of jobs; `None` where payloads have no references to secrets
    /// and nothing is encrypted.
    pub secret_cipher: Option<Arc<dyn SecretCipher>>,
    /// Whether new payloads, results and checkpoints are encrypted at rest. Needs a cipher with a key.
    pub encrypt_payloads: bool,
    /// What sends notifications; `None` where nothing is sent.
    pub notifications: Option<NotificationConfig>,
    /// How executions are rolled up for charts; `None` where they are not.
    pub series: Option<SeriesConfig>,
    /// The version of the time zone data. Stored due times are computed again when it changes; `None` leaves them.
    pub tzdb_version: Option<String>,
    /// Whether the leader logs every execution that ends.
    pub log_executions: bool,
    /// Whether lines of jobs are logged where they are stored, and errors with outcomes.
    pub log_output: bool,
    /// What applies merge patches to jobs; `None` where no operation updates jobs.
    pub job_patches: Option<Arc<dyn JobPatches>>,
    /// Where events are published for other systems; `None` for nowhere.
    pub events: Option<EventsConfig>,
    /// Where jobs of other systems come from; `None` for nowhere.
    pub intake: Option<IntakeConfig>,
    /// Where spans go; `None` for nowhere.
    pub tracing: Option<TracingConfig>,
    /// Where results go that are too large for the store; `None` for nowhere.
    pub blobs: Option<BlobConfig>,
}

impl EngineConfig {
    /// The settings for one of several processes on one store.
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
            audit_kept: Some(limits::AUDIT_KEPT_DEFAULT),
            audit_interval: Some(limits::AUDIT_SEAL_INTERVAL),
            operations_interval: Some(limits::OPERATIONS_INTERVAL),
            retention_hold: limits::RETENTION_HOLD,
            resolve_interval: Duration::from_secs(1),
            clock_interval: Duration::from_secs(1),
            watch_interval: Duration::from_secs(1),
            member_ttl: limits::MEMBER_TTL,
            clock_offset_max: limits::CLOCK_OFFSET_MAX,
            submit_quota: None,
            secret_cipher: None,
            encrypt_payloads: false,
            notifications: None,
            series: None,
            tzdb_version: None,
            log_executions: false,
            log_output: false,
            job_patches: None,
            events: None,
            intake: None,
            tracing: None,
            blobs: None,
        }
    }
}

/// One node's engine.
pub struct Engine {
    context: Arc<EngineContext>,
    submits: Batcher<AuditableItem<Job>, submit::SubmitResult>,
    reports: Batcher<Report, ReportAnswer>,
    beats: Batcher<Beat, BeatOutcome>,
    notes: Batcher<Note, NoteAnswer>,
    /// Held while the clock is driven: by one caller at a time, so that fires can be attributed to it.
    driving: tokio::sync::Mutex<()>,
}

/// What all parts of the engine share.
struct EngineContext {
    config: EngineConfig,
    host: Host,
    /// With the data of jobs in plain text.
    store: Arc<dyn Store>,
    /// The same store, for what concerns encryption; `None` without a cipher.
    sealed: Option<Arc<SealedStore>>,
    time: Timekeeper,
    poll_registry: PollRegistry,
    agenda: Agenda,
    /// Held while a batch is fired and counted.
    firing: tokio::sync::Mutex<()>,
    counters: Arc<EngineCounters>,
    measures: Measures,
    events: CommitEvents,
    peers: Peers,
    lines: WaitLists,
    cluster: ClusterView,
    lateness: FireLateness,
    demands: demand::Demands,
    retention: Retention,
    refusals: UnwrittenRefusals,
    /// Notified when an operation was started or cancelled on this node.
    operations: tokio::sync::Notify,
    overview: LastOverview,
    submit_quota: SubmitQuota,
    secrets: secrets::HeldSecrets,
    notify: notify::NotifySignals,
    outbox: outbox::Outbox,
    intake: intake::IntakeState,
    calendars: calendars::KnownCalendars,
    job_types: HeldJobTypes,
    /// `None` if no spans are recorded.
    traces: Option<Arc<Traces>>,
}

impl Engine {
    pub fn new(config: EngineConfig, host: Host, store: Arc<dyn Store>) -> Arc<Engine> {
        Engine::among_others(config, host, store, None)
    }

    /// An engine that shares its store with other processes, and hints of new work where there is a ready queue.
    pub fn among_others(
        config: EngineConfig,
        host: Host,
        store: Arc<dyn Store>,
        ready_queue: Option<Arc<dyn ReadyQueue>>,
    ) -> Arc<Engine> {
        Engine::in_cluster(config, host, store, ready_queue, None)
    }

    /// An engine that shares segments and the leader's duties with the other members of a cluster; without a
    /// participation it owns all of them.
    pub fn in_cluster(
        config: EngineConfig,
        host: Host,
        store: Arc<dyn Store>,
        ready_queue: Option<Arc<dyn ReadyQueue>>,
        participation: Option<ClusterParticipation>,
    ) -> Arc<Engine> {
        let sealed = config
            .secret_cipher
            .clone()
            .map(|cipher| Arc::new(SealedStore::new(store.clone(), cipher, config.encrypt_payloads)));
        let store = match &sealed {
            Some(sealed) => sealed.clone() as Arc<dyn Store>,
            None => store,
        };
        let context = Arc::new(EngineContext {
            time: Timekeeper::new(host.calendar.clone()),
            poll_registry: PollRegistry::default(),
            agenda: Agenda::new(config.look_ahead),
            firing: tokio::sync::Mutex::default(),
            counters: Arc::default(),
            measures: Measures::default(),
            events: CommitEvents::default(),
            peers: Peers::reached_by(ready_queue),
            lines: WaitLists::default(),
            cluster: ClusterView::new(participation, config.member_ttl),
            lateness: FireLateness::default(),
            demands: demand::Demands::default(),
            retention: Retention::new(config.retention_hold),
            refusals: UnwrittenRefusals::default(),
            operations: tokio::sync::Notify::new(),
            overview: LastOverview::default(),
            submit_quota: SubmitQuota::new(config.submit_quota),
            secrets: secrets::HeldSecrets::default(),
            notify: notify::NotifySignals::default(),
            outbox: outbox::Outbox::default(),
            intake: intake::IntakeState::default(),
            calendars: calendars::KnownCalendars::default(),
            job_types: HeldJobTypes::default(),
            traces: config.tracing.clone().map(|tracing| Traces::new(tracing, &host, store.clone())),
            config,
            host,
            store,
            sealed,
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

    /// Reads the store's time. Must succeed once before the engine is used.
    pub async fn start(&self) -> Result<(), StoreError> {
        self.context.time.sync(&*self.context.store).await?;
        self.context.cluster.heard_of_store(self.context.host.clock.monotonic());
        self.context.judge_clock();
        self.context.begin_publishing().await
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
        let peers = join4(
            loops::receive_hints(context),
            loops::publish_hints(context),
            loops::watch(context),
            loops::retime(context),
        );
        let outgoing = join(notify::notify(context), outbox::publish(context));
        let cluster = join5(
            loops::cluster(context),
            loops::retain(context),
            loops::alert(context),
            loops::audit(context),
            outgoing,
        );
        let limits = join(loops::admit(context), series::roll_up(context));
        let leading = join3(loops::operate(&self), loops::log_executions(context), intake::receive(&self));
        join5(punctual, cluster, peers, limits, leading).await;
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.context.store
    }

    /// The store's time, as estimated by this node; never ahead of it.
    pub fn now(&self) -> Timestamp {
        self.context.time.now()
    }

    /// Reports what commits of this node change from now on.
    pub fn listen(&self) -> CommitListener {
        self.context.events.listen()
    }

    /// Reports when a job may have more log lines.
    pub fn follow_logs(&self, job: JobId) -> LogFollower {
        self.context.events.follow_logs(job)
    }

    pub fn counters(&self) -> CounterSnapshot {
        self.context.counters.snapshot()
    }

    pub fn measures(&self) -> MeasureSnapshot {
        self.context.measures.snapshot()
    }

    /// Recorded runs for the histogram of durations.
    pub fn exemplars(&self) -> Exemplars {
        self.context.traces.as_ref().map(|traces| traces.exemplars()).unwrap_or_default()
    }

    /// The spans of this node; `None` if it records none.
    pub fn span_figures(&self) -> Option<SpanFigures> {
        self.context.traces.as_ref().map(|traces| traces.figures())
    }

    /// By how many microseconds the store's time is ahead of this machine's; negative if it is behind.
    pub fn clock_offset_us(&self) -> i64 {
        self.context.time.offset_us()
    }

    /// How far this machine's clock may be off before this node stops firing.
    pub fn clock_offset_max(&self) -> Duration {
        self.context.config.clock_offset_max
    }

    /// How long the oldest unfired schedule has been due, as seen by the leader; zero on other nodes.
    pub fn overdue(&self) -> Duration {
        self.context.lateness.overdue()
    }
}

impl EngineContext {
    /// Processes commit effects: answers waiting polls, announces queued work, and adds due times to the
    /// agenda.
    fn follow_up(
        &self,
        effects: impl IntoIterator<Item = CommitEffects>,
        reserved: poll_registry::ReservedSlots,
    ) {
        let mut assigned = Vec::new();
        let mut lanes: Vec<Lane> = Vec::new();
        for one in effects {
            self.lines.follow(&one);
            assigned.extend(one.assigned);
            lanes.extend(one.queued);
            for due in one.due {
                let now = self.time.now();
                self.note_fresh(&due, now);
                self.agenda.add(now, due);
            }
            self.count_ended(&one.ended);
        }
        self.counters.claimed.add(assigned.len() as u64);
        if !assigned.is_empty() {
            self.measures.leased(self.time.now(), assigned.iter().map(|(_, assignment)| assignment));
        }
        self.events.touched(assigned.iter().map(|(_, assignment)| assignment.execution.occurrence));
        let undelivered = self.poll_registry.settle(reserved, assigned);
        self.return_undelivered(undelivered);
        self.wake(lanes);
    }

    /// Counts executions by the status that a commit has recorded.
    fn count_ended(&self, ended: &[(ExecutionId, Status)]) {
        self.events.touched(ended.iter().map(|(execution, _)| execution.occurrence));
        for (_, status) in ended {
            self.counters.ended(*status);
        }
    }

    /// Wakes the polls that serve these lanes, on this node and on others.
    fn wake(&self, lanes: impl IntoIterator<Item = Lane>) {
        let lanes: std::collections::BTreeSet<Lane> = lanes.into_iter().collect();
        if !lanes.is_empty() {
            self.poll_registry.wake(&lanes);
            self.peers.queued(&lanes);
        }
    }

    /// Gives back leases of a poll whose caller no longer waits. Its worker would find out by a resync; this
    /// saves the executions the delay.
    fn return_undelivered(&self, undelivered: Vec<(SlotReservation, Vec<LeaseRef>)>) {
        for (reservation, leases) in undelivered {
            let (store, counters, now) = (self.store.clone(), self.counters.clone(), self.time.now());
            self.host.spawn.spawn(Box::pin(async move {
                match store.give_back(now, reservation.session, leases).await {
                    Ok(outcomes) => {
                        for (_, status) in outcomes.into_iter().flatten().flat_map(|effects| effects.ended) {
                            counters.ended(status);
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, session = %reservation.session, "undelivered work not given back; a resync will");
                    }
                }
            }));
        }
    }
}
