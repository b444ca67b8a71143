//! The same long random walk of calls through two stores: both must give the same reply to every call, and
//! everything visible must be the same along the way and at the end.
//!
//! The cases of this suite say what must be true; this walk finds differences between two adapters that no
//! case covers.

use super::directory::{document, full_token, plain_token, secret as full_secret, user};
use super::snapshot::{JobSnapshot, StoreSnapshot};
use punctual_core::control::{Update, Verb};
use punctual_core::ids::{JobId, SegmentSet, SessionId};
use punctual_core::job::{Expiry, Job, JobSpec, Priority, StoredStatus};
use punctual_core::limiter::{QueueLimits, Rate};
use punctual_core::notes::{Checkpoint, Note, Percent, Progress};
use punctual_core::ports::{
    Assignment, AuditEntry, Beat, BeatOutcome, Claim, ClaimOutcome, Control, DeadLetterQuery,
    DirectoryChange, DocumentChange, DocumentKind, Due, DueKind, FireRequest, Horizon, LogLine, LogStream,
    LookRequest, NewJob, NewRequest, Outcome, Pausing, Report, RequestKey, Resync, Retirement,
    SessionOpening, SlotReservation, Store, StoredAnswer, SubmitOutcome, WorkerAbout,
};
use punctual_core::queue::QueueSettings;
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{OverlapPolicy, Recurring, Schedule};
use punctual_core::session::{Pulse, SessionOrder};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

const JOBS: u64 = 80;
const WORKERS: usize = 2;
const LEASE: Duration = Duration::from_secs(6);
/// Steps between two complete comparisons.
const STEPS_BETWEEN_SIGHTS: usize = 20;
/// The partition width for stores that are opened for a walk.
pub const PORTION: Duration = Duration::from_secs(600);
const PORTION_US: i64 = PORTION.as_micros() as i64;
/// Lines that are shown before a difference, and about as many after it.
const LINES_BEFORE: usize = 40;
/// Rounds after which everything must have ended.
const LAST_ROUNDS_MAX: usize = 10_000;

/// Two stores to compare. Both are empty before the walk.
pub struct Pair {
    pub one: Arc<dyn Store>,
    pub other: Arc<dyn Store>,
}

/// Walks this many steps and then until nothing is left to do.
pub async fn walk_alike(pair: Pair, seed: u64, steps: usize) {
    let mut walk = Walk::new(pair, seed).await;
    for step in 1..=steps {
        walk.what = format!("step {step}");
        walk.step().await;
        if step % STEPS_BETWEEN_SIGHTS == 0 {
            walk.compare().await;
        }
    }
    walk.finish().await;
    walk.compare().await;
}

/// Walks this many steps and leaves everything in that state. Returns the time, and the submitted jobs.
#[cfg(test)]
pub(crate) async fn walk_partly(pair: Pair, seed: u64, steps: usize) -> (Timestamp, Vec<JobId>) {
    let mut walk = Walk::new(pair, seed).await;
    for step in 1..=steps {
        walk.what = format!("step {step}");
        walk.step().await;
    }
    (walk.now, walk.tried.iter().map(|job| job.id).collect())
}

/// Calls a verb of both stores and returns the reply, which must be the same. Arguments are values that can
/// be used twice.
macro_rules! both {
    ($walk:expr, $verb:ident($($argument:expr),* $(,)?)) => {{
        let one = $walk.pair.one.$verb($($argument.clone()),*).await;
        let other = $walk.pair.other.$verb($($argument.clone()),*).await;
        $walk.alike(stringify!($verb), one.unwrap(), other.unwrap())
    }};
}

struct Worker {
    name: String,
    session: SessionId,
    turn: u64,
    beat: u64,
    held: Vec<Assignment>,
}

struct Walk {
    pair: Pair,
    seed: u64,
    chance: u64,
    now: Timestamp,
    /// The current step, for messages about a difference.
    what: String,
    /// All submitted jobs.
    tried: Vec<Job>,
    workers: Vec<Worker>,
}

impl Walk {
    async fn new(pair: Pair, seed: u64) -> Self {
        let now = Timestamp::from_micros(1_763_195_400_000_000);
        let (tried, workers, what) = (vec![], vec![], "the beginning".to_owned());
        let mut walk = Walk { pair, seed, chance: seed, now, what, tried, workers };
        for number in 0..WORKERS {
            let worker = walk.open_worker(format!("worker {number}")).await;
            walk.workers.push(worker);
        }
        walk
    }

    fn alike<T: PartialEq + Debug>(&self, verb: &str, one: T, other: T) -> T {
        let Walk { seed, what, .. } = self;
        assert!(one == other, "seed {seed}, {what}, {verb}:\n{}", difference(&one, &other));
        one
    }

    /// Compares everything visible, and one job in detail.
    async fn compare(&mut self) {
        let now = self.now;
        let one = StoreSnapshot::of(&*self.pair.one, now).await;
        let other = StoreSnapshot::of(&*self.pair.other, now).await;
        self.alike("everything", one, other);
        for _ in 0..5 {
            let Some(job) = self.some_job().map(|job| job.id) else { return };
            let one = JobSnapshot::of(&*self.pair.one, job).await;
            let other = JobSnapshot::of(&*self.pair.other, job).await;
            self.alike("one job", one, other);
        }
    }

    /// A number below `bound` (splitmix).
    fn draw(&mut self, bound: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.draw(items.len() as u64) as usize].clone()
    }

    fn some_job(&mut self) -> Option<Job> {
        (!self.tried.is_empty()).then(|| self.pick(&self.tried.clone()))
    }

    async fn step(&mut self) {
        self.now = self.now.shifted(self.draw(10_000_000) as i64);
        let worker = self.draw(WORKERS as u64) as usize;
        match self.draw(32) {
            0..=3 => self.submit(worker).await,
            4..=6 => self.fire_and_look(worker).await,
            7..=10 => self.claim(worker).await,
            11..=13 => self.report(worker).await,
            14 => self.give_back(worker).await,
            15 => self.beat(worker).await,
            16 => self.note(worker).await,
            17 => self.leave_or_resync(worker).await,
            18 => self.log(worker).await,
            19 => self.order(worker).await,
            20..=24 => self.control().await,
            25 => self.cancel_some().await,
            26 => self.redrive_or_discard().await,
            27 => self.set_queue().await,
            30 | 31 => self.admit().await,
            28 => self.request().await,
            _ => self.run_maintenance().await,
        }
    }

    async fn open_worker(&mut self, name: String) -> Worker {
        let opening = SessionOpening {
            worker: name.clone(),
            lease: LEASE,
            embedded: self.draw(4) == 0,
            job_types: vec!["noop".to_owned()],
            slots: 3,
            about: WorkerAbout {
                queues: if self.draw(2) == 0 { vec![] } else { vec!["bulk".to_owned()] },
                version: Some("0.1.0".to_owned()),
                host: None,
            },
            token: self.pick(&[None, Some("t".to_owned())]),
        };
        let session = both!(self, open_session(self.now, opening));
        Worker { name, session, turn: 0, beat: 0, held: vec![] }
    }

    fn reservation(&self, worker: usize) -> SlotReservation {
        SlotReservation { session: self.workers[worker].session, turn: self.workers[worker].turn + 1 }
    }

    fn assigned(&mut self, worker: usize, assignments: Vec<Assignment>) {
        let worker = &mut self.workers[worker];
        worker.turn += u64::from(!assignments.is_empty());
        worker.held.extend(assignments);
    }

    async fn submit(&mut self, worker: usize) {
        let mut jobs = Vec::new();
        for _ in 0..=self.draw(3) {
            let number = self.tried.len() as u64;
            if number < JOBS {
                let job = self.new_job(number);
                self.tried.push(job.clone());
                jobs.push(NewJob { job, reservation: (self.draw(3) == 0).then(|| self.reservation(worker)) });
            }
        }
        // Twice, like a client that did not get the reply.
        for _ in 0..2 {
            let outcomes = both!(self, submit(self.now, jobs));
            let effects = outcomes.into_iter().filter_map(|outcome| match outcome {
                SubmitOutcome::Created(effects) => Some(effects.assigned),
                _ => None,
            });
            let assigned = effects.flatten().map(|(_, assignment)| assignment).collect();
            self.assigned(worker, assigned);
        }
    }

    fn new_job(&mut self, number: u64) -> Job {
        let mut spec = JobSpec::named("noop");
        spec.queue = self.pick(&["default", "bulk"]).to_owned();
        spec.owner = if self.draw(3) == 0 { "someone".to_owned() } else { spec.owner };
        spec.priority = self.pick(&[Priority::DEFAULT, Priority::DEFAULT, Priority::MAX]);
        let settings = &mut spec.settings;
        settings.tags = ["even", "third"]
            .iter()
            .zip([2, 3])
            .filter(|(_, n)| number.is_multiple_of(*n))
            .map(|(tag, _)| (*tag).to_owned())
            .collect();
        settings.retry = RetryPolicy::Ladder { steps_ms: vec![5_000] };
        settings.max_retries = self.draw(3) as u32;
        settings.overlap_limit = 2;
        settings.max_open = 4;
        settings.overlap = self.some_overlap();
        settings.schedule = match self.draw(3) {
            0 => self.some_time(),
            1 => self.some_recurrence(),
            _ => Schedule::Immediate,
        };
        settings.expiry = (self.draw(4) == 0).then(|| Expiry::AfterMs(1 + self.draw(120_000)));
        settings.unique_key = (self.draw(4) == 0).then(|| format!("u{}", self.draw(2)));
        settings.concurrency_key = (self.draw(2) == 0).then(|| format!("c{}", self.draw(3)));
        settings.idempotency_key = (self.draw(6) == 0).then(|| format!("i{}", self.draw(2)));
        if settings.schedule.is_one_shot() && number > 0 && self.draw(2) == 0 {
            let parents = [self.draw(number), self.draw(number)].map(|n| self.tried[n as usize].id);
            settings.depends_on = BTreeSet::from(parents).into_iter().collect();
        }
        let (id, now) = (JobId::new(self.now, number), self.now);
        let (version, mark, numbered, fired) = (1, StoredStatus::Active, None, 0);
        Job { id, version, mark, numbered, fired, created_at: now, updated_at: now, spec }
    }

    fn some_overlap(&mut self) -> OverlapPolicy {
        self.pick(&[OverlapPolicy::Skip, OverlapPolicy::Allow, OverlapPolicy::Queue, OverlapPolicy::Replace])
    }

    fn some_time(&mut self) -> Schedule {
        Schedule::OneTime { at: self.now.shifted(self.draw(600_000_000) as i64) }
    }

    fn some_recurrence(&mut self) -> Schedule {
        let every = format!("{}s", 3 + self.draw(30));
        let recurring = Recurring::new(RecurrenceSpec::interval(&every, self.now)).expect("it is valid");
        Recurring { max_runs: Some(3 + self.draw(5) as u32), ..recurring }.into()
    }

    async fn fire_and_look(&mut self, worker: usize) {
        let due: Vec<Due> = both!(self, due(SegmentSet::ALL, self.now, 1_000));
        let (mut fires, mut looks) = (vec![], vec![]);
        for Due { lane, what, .. } in due {
            let reservation = (self.draw(4) == 0).then(|| self.reservation(worker));
            match what {
                DueKind::Schedule { job, version } => fires.push(FireRequest { job, version, reservation }),
                DueKind::Live { occurrence, attempt } => {
                    looks.push(LookRequest {
                        occurrence,
                        attempt,
                        reservation: reservation.map(|reservation| (reservation, lane)),
                    });
                }
            }
        }
        // Twice, like two schedulers that scan at the same moment. The resync handles what a slot
        // reservation receives.
        for _ in 0..2 {
            both!(self, fire(self.now, fires));
            both!(self, look(self.now, looks));
        }
        if fires.iter().any(|fire| fire.reservation.is_some())
            || looks.iter().any(|look| look.reservation.is_some())
        {
            self.resync(worker).await;
        }
    }

    async fn claim(&mut self, worker: usize) {
        let SlotReservation { session, turn } = self.reservation(worker);
        let queues = if self.draw(3) == 0 { vec!["bulk".to_owned()] } else { vec![] };
        let limit = self.draw(8) as usize;
        let claim = Claim { session, turn, limit, queues, job_types: vec!["noop".to_owned()] };
        let outcomes = both!(self, claim(self.now, vec![claim.clone()]));
        let Some(ClaimOutcome::Claimed { assignments, .. }) = outcomes.into_iter().next() else { return };
        self.assigned(worker, assignments);
    }

    async fn report(&mut self, worker: usize) {
        let count = (self.draw(6) as usize).min(self.workers[worker].held.len());
        let held: Vec<_> = self.workers[worker].held.drain(..count).collect();
        let mut reports = vec![];
        for assignment in held {
            let outcome = match self.draw(4) {
                0 => Outcome::Failed { error: "no".to_owned(), retryable: self.draw(3) > 0, retry_at: None },
                _ => Outcome::Succeeded { result: Some("42".to_owned()) },
            };
            let end = outcome.into_end(self.now, self.now);
            let report = Report { session: self.workers[worker].session, lease: assignment.lease(), end };
            // Twice, like a worker that did not get the reply.
            reports.extend([report.clone(), report]);
        }
        both!(self, report(self.now, reports));
    }

    async fn give_back(&mut self, worker: usize) {
        let held = self.workers[worker].held.pop();
        let leases: Vec<_> = held.map(|assignment| assignment.lease()).into_iter().collect();
        both!(self, give_back(self.now, self.workers[worker].session, leases));
    }

    /// Sends a heartbeat, and stops the executions that it is asked to stop.
    async fn beat(&mut self, worker: usize) {
        self.workers[worker].beat += 1;
        let Worker { session, beat, .. } = self.workers[worker];
        let outcomes = both!(self, beat(self.now, vec![Beat { session, beat, draining: false }]));
        let Some(BeatOutcome::Counted { cancel, .. }) = outcomes.into_iter().next() else { return };
        self.workers[worker].held.retain(|assignment| !cancel.contains(&assignment.lease()));
        let end = Outcome::Cancelled.into_end(self.now, self.now);
        let reports: Vec<_> =
            cancel.into_iter().map(|lease| Report { session, lease, end: end.clone() }).collect();
        both!(self, report(self.now, reports));
    }

    /// Writes notes for everything that the worker holds.
    async fn note(&mut self, worker: usize) {
        let mut notes = vec![];
        for assignment in self.workers[worker].held.clone() {
            let checkpoint = self.pick(&["1", "null"]);
            let percent = Percent::from_hundredths(self.draw(10_001) as u16);
            let progress = Progress { percent, message: Some("on the way".to_owned()) };
            notes.push(Note {
                session: self.workers[worker].session,
                lease: assignment.lease(),
                number: None,
                progress: (self.draw(2) == 0).then_some(progress),
                checkpoint: (self.draw(2) == 0).then(|| Checkpoint::new(checkpoint).expect("it is small")),
            });
        }
        both!(self, note(self.now, notes));
    }

    async fn resync(&mut self, worker: usize) {
        let SlotReservation { session, turn } = self.reservation(worker);
        let held = self.workers[worker].held.iter().map(Assignment::lease).collect();
        let resync = Resync { session, turn, held };
        both!(self, resync(self.now, resync));
        // Slot reservations may have used the poll sequence number: a heartbeat finds the next free one.
        self.workers[worker].beat += 1;
        let beat = Beat { session, beat: self.workers[worker].beat, draining: false };
        let outcomes = both!(self, beat(self.now, vec![beat]));
        if let Some(BeatOutcome::Counted { turn, .. }) = outcomes.first() {
            self.workers[worker].turn = *turn;
        }
        let turn = self.workers[worker].turn + 1;
        let resync = Resync { turn, ..resync };
        both!(self, resync(self.now, resync));
        self.workers[worker].turn = turn;
    }

    /// Stops sending heartbeats, closes its session or resyncs.
    async fn leave_or_resync(&mut self, worker: usize) {
        let Worker { session, beat, .. } = self.workers[worker];
        match self.draw(4) {
            0 => {
                let silent = vec![Pulse { session, beat, lease: LEASE }];
                both!(self, lose_sessions(self.now, silent));
                let some = self.draw(4) as usize;
                both!(self, recover(self.now, some));
                both!(self, recover(self.now, 1_000));
            }
            1 => {
                both!(self, lose_embedded_sessions(self.now));
                both!(self, recover(self.now, 1_000));
            }
            2 => {
                both!(self, close_session(self.now, session));
            }
            _ => {
                self.workers[worker].held.pop();
                return self.resync(worker).await;
            }
        }
        for worker in 0..WORKERS {
            self.reopen_if_gone(worker).await;
        }
    }

    async fn reopen_if_gone(&mut self, worker: usize) {
        let sessions = both!(self, sessions());
        if sessions.iter().all(|row| row.pulse.session != self.workers[worker].session) {
            let name = self.workers[worker].name.clone();
            self.workers[worker] = self.open_worker(name).await;
        }
    }

    async fn log(&mut self, worker: usize) {
        let lines = self.workers[worker].held.iter().flat_map(|assignment| {
            [LogStream::Stdout, LogStream::Stderr, LogStream::Log].map(|stream| LogLine {
                number: 0,
                execution: assignment.execution,
                timestamp: self.now,
                stream,
                message: "something was done".to_owned(),
            })
        });
        let lines: Vec<LogLine> = lines.collect();
        both!(self, append_logs(lines));
    }

    async fn order(&mut self, worker: usize) {
        let order = self.pick(&[SessionOrder::Pause, SessionOrder::Resume, SessionOrder::Resume]);
        both!(self, order_session(self.workers[worker].session, order));
    }

    /// Applies a control verb to a job.
    async fn control(&mut self) {
        let Some(job) = self.some_job() else { return };
        let verb = match self.draw(12) {
            0 | 1 => Verb::Pause,
            2..=4 => Verb::Resume,
            5 | 6 => Verb::trigger(self.draw(2) == 0),
            7 => Verb::Retry,
            8 => self.pick(&[Verb::Cancel, Verb::Delete]),
            _ => match self.update(job.id).await {
                Some(update) => Verb::Update(Box::new(update)),
                None => return,
            },
        };
        self.what.push_str(&format!(", {verb:?}"));
        both!(self, control(self.now, vec![Control { job: job.id, verb: verb.clone() }]));
    }

    async fn update(&mut self, job: JobId) -> Option<Update> {
        let mut spec = both!(self, job(job))?.job.spec;
        match self.draw(6) {
            0 => spec.queue = self.pick(&["default", "bulk"]).to_owned(),
            1 => spec.priority = self.pick(&[Priority::MIN, Priority::DEFAULT, Priority::MAX]),
            2 => spec.settings.expiry = Some(Expiry::AfterMs(1 + self.draw(300_000))),
            3 => spec.settings.overlap = self.some_overlap(),
            4 => spec.settings.tags = vec!["even".to_owned(), "third".to_owned()],
            _ if spec.settings.schedule.is_one_shot() => spec.settings.schedule = self.some_time(),
            _ => spec.settings.schedule = self.some_recurrence(),
        }
        Some(Update { spec, expected_version: None })
    }

    async fn cancel_some(&mut self) {
        let Some(job) = self.some_job() else { return };
        let Some(view) = both!(self, job(job.id)) else { return };
        let executions: Vec<_> = view.open.iter().take(2).map(|live| live.execution()).collect();
        both!(self, cancel(self.now, executions));
    }

    async fn redrive_or_discard(&mut self) {
        let query = DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() };
        let one = self.pair.one.dead_letters(query).await.unwrap().items;
        let dead: Vec<_> = one.iter().map(|letter| letter.occurrence).take(3).collect();
        match self.draw(4) {
            0 => drop(both!(self, discard(dead))),
            _ => drop(both!(self, redrive(self.now, dead))),
        }
    }

    async fn set_queue(&mut self) {
        let queue = self.pick(&["default", "bulk"]).to_owned();
        if self.draw(3) == 0 {
            let max_depth = self.pick(&[None, Some(5), Some(500)]);
            let limits = self.limits();
            let settings = QueueSettings { max_depth, limits };
            return both!(self, set_queue(queue, settings));
        }
        let pausing = self.pick(&[Pausing::Pause, Pausing::Resume, Pausing::Resume]);
        both!(self, pause_queue(self.now, queue, pausing));
    }

    fn limits(&mut self) -> QueueLimits {
        let concurrency = self.pick(&[None, None, Some(1), Some(4)]);
        let key_concurrency = self.pick(&[None, Some(1), Some(2)]);
        let rate = self.pick(&[None, None, Some(Rate { count: 30, per_ms: 60_000 })]);
        let key_rate = self.pick(&[None, None, Some(Rate { count: 1, per_ms: 5_000 })]);
        let weights = self.pick(&[None, Some(("someone".to_owned(), 3))]).into_iter().collect();
        QueueLimits { concurrency, rate, key_concurrency, key_rate, weights }
    }

    /// Admits from wait lists that are not empty; both stores list them in the same order.
    async fn admit(&mut self) {
        let lines = both!(self, waiting_lines(None, 100)).items;
        both!(self, limiters(lines.clone()));
        let limit = self.pick(&[1, 3, 100]);
        both!(self, admit(self.now, lines, limit));
    }

    async fn request(&mut self) {
        let request = RequestKey { token: "t".to_owned(), key: format!("k{}", self.draw(5)) };
        let fingerprint = [self.draw(2) as u8; 32];
        let seed = self.draw(u64::MAX);
        let new = NewRequest { request: request.clone(), fingerprint, seed };
        both!(self, begin_request(self.now, new));
        if self.draw(2) == 0 {
            let answer = StoredAnswer { status: 201, location: None, body: "{}".to_owned() };
            both!(self, answer_request(request, answer));
        }
    }

    async fn run_maintenance(&mut self) {
        // A store may keep old rows in partitions of some minutes, and delete only whole ones.
        let long_ago = self.now.shifted(-900_000_000);
        let long_ago = Timestamp::from_micros(long_ago.as_micros() / PORTION_US * PORTION_US);
        match self.draw(5) {
            0 => drop(both!(self, resolve(self.now, 2))),
            1 => {
                let retirement = Retirement { finished_before: long_ago, after: None, limit: 10 };
                both!(self, retire(self.now, retirement));
            }
            2 => drop(both!(self, purge(self.now, 1_000))),
            3 => {
                both!(self, retain(Horizon { history: long_ago, requests: long_ago }, 1_000));
            }
            _ => {
                self.change_directory().await;
                both!(self, probe(self.now));
            }
        }
    }

    async fn change_directory(&mut self) {
        use DirectoryChange::{
            AddSecret, AddToken, AddUser, Documents, RemoveSecret, RemoveToken, RemoveUser, ReplaceSecret,
            ReplaceToken, ReplaceUser,
        };
        let (id, secret) = (format!("t{}", self.draw(9)), self.draw(3) as u8);
        both!(self, change_directory(AddToken(plain_token(&id, secret)), None::<AuditEntry>));
        let replace = ReplaceToken { token: full_token(&id, secret + 1), expected: plain_token(&id, secret) };
        both!(self, change_directory(replace, None::<AuditEntry>));
        both!(self, touch_tokens(vec![(id.clone(), self.now), ("t1".to_owned(), self.now)]));
        let user = user(&id, &format!("{}@example.org", self.draw(9)));
        let replace = ReplaceUser { user: user.clone(), expected: user.clone() };
        both!(self, change_directory(replace, None::<AuditEntry>));
        let add = AddUser(user);
        both!(self, change_directory(add, None::<AuditEntry>));
        let version = self.draw(3) + 1;
        let replace =
            ReplaceSecret { secret: full_secret(&id, version + 1), expected: full_secret(&id, version) };
        both!(self, change_directory(replace, None::<AuditEntry>));
        both!(self, change_directory(AddSecret(full_secret(&id, version)), None::<AuditEntry>));
        let change = match self.draw(3) {
            0 => DocumentChange::Add(document(&id, 1)),
            1 => DocumentChange::Replace(document(&id, version + 1)),
            _ => DocumentChange::Remove { kind: DocumentKind::View, name: id.clone(), version },
        };
        let changes = Documents(vec![change]);
        both!(self, change_directory(changes, None::<AuditEntry>));
        if self.draw(9) == 0 {
            both!(self, change_directory(RemoveSecret(full_secret(&id, version)), None::<AuditEntry>));
            both!(self, change_directory(RemoveToken(id.clone()), None::<AuditEntry>));
            let remove = RemoveUser { id, tokens: vec!["t".to_owned()] };
            both!(self, change_directory(remove, None::<AuditEntry>));
        }
        both!(self, put_token(full_token("t", secret)));
    }

    /// Advances time and lets workers work until nothing is left to do.
    async fn finish(&mut self) {
        self.what = "the end".to_owned();
        for queue in ["default", "bulk"] {
            let queue = queue.to_owned();
            both!(self, set_queue(queue, QueueSettings::default()));
            both!(self, pause_queue(self.now, queue, Pausing::Resume));
        }
        for job in self.tried.clone() {
            both!(self, control(self.now, vec![Control { job: job.id, verb: Verb::Resume }]));
        }
        for _round in 0..LAST_ROUNDS_MAX {
            self.now = self.now.shifted(20_000_000);
            both!(self, resolve(self.now, 1_000));
            self.fire_and_look(0).await;
            self.admit().await;
            for worker in 0..WORKERS {
                both!(self, order_session(self.workers[worker].session, SessionOrder::Resume));
                self.claim(worker).await;
                self.beat(worker).await;
                self.report(worker).await;
            }
            let counts = both!(self, job_counts());
            if counts.active == 0 && counts.paused == 0 {
                return;
            }
        }
        panic!("the walk does not end: seed {}", self.seed);
    }
}

/// The lines around the first difference, of both.
fn difference(one: &impl Debug, other: &impl Debug) -> String {
    let (one, other) = (format!("{one:#?}"), format!("{other:#?}"));
    let at = one.lines().zip(other.lines()).take_while(|(one, other)| one == other).count();
    let around = |text: &str| {
        let lines = text.lines().skip(at.saturating_sub(LINES_BEFORE)).take(2 * LINES_BEFORE);
        lines.collect::<Vec<_>>().join("\n")
    };
    format!("one:\n{}\nother:\n{}", around(&one), around(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two stores of the same kind do not differ: differences that the walk finds elsewhere are not caused
    /// by the walk.
    #[tokio::test]
    async fn two_embedded_stores_answer_alike() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = dirs.each_ref().map(|dir| Arc::new(crate::sqlite::tests::open(dir.path())));
        walk_alike(Pair { one, other }, 0, 300).await;
    }
}
