//! Long random walks of calls. After every step the tables must agree with each other. At the end every job
//! must be finished, with each attempt once and no occurrence twice.

use super::{apply, at, job, keep};
use crate::sqlite::{SqliteCore, Upkeep};
use punctual_core::control::{Update, Verb};
use punctual_core::ids::{JobId, SegmentSet, SessionId};
use punctual_core::job::{Expiry, Job, JobStatus, Priority};
use punctual_core::lifecycle::Status;
use punctual_core::notes::{Checkpoint, Note, Progress};
use punctual_core::occurrence::{Finished, Origin};
use punctual_core::ports::{
    Assignment, Beat, BeatOutcome, Claim, ClaimOutcome, Control, DeadLetterQuery, DueKind, FireRequest,
    LookRequest, NewJob, Outcome, Pausing, Report, Retirement, SlotReservation, SubmitOutcome, Write,
    WriteReply,
};
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::retry::RetryPolicy;
use punctual_core::schedule::{OverlapPolicy, Recurring, Schedule};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const JOBS: u64 = 60;
const STEPS: usize = 500;

#[test]
fn every_job_of_a_random_walk_ends_once_with_consistent_tables() {
    for seed in 0..6 {
        let mut walk = Walk::new(seed, Company::WorkersOnly);
        walk.go();
        walk.check_ends();
        walk.check_each_job_succeeded_or_died();
    }
}

#[test]
fn a_random_walk_with_control_verbs_ends_with_consistent_tables() {
    let mut children = 0;
    for seed in 100..112 {
        let mut walk = Walk::new(seed, Company::People);
        walk.go();
        walk.check_ends();
        children += walk.check_children();
    }
    assert!(children > 0, "no child ran");
}

/// Which callers take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Plain jobs, and no control verbs.
    WorkersOnly,
    /// Jobs of all kinds, and users who control them.
    People,
    /// The same without maintenance: the journal contains everything that happened.
    PeopleOnly,
}

/// Writes and their replies.
pub(crate) type Journal = Vec<(Write, WriteReply)>;

struct Worker {
    session: SessionId,
    turn: u64,
    beat: u64,
    held: Vec<Assignment>,
}

pub(crate) struct Walk {
    seed: u64,
    company: Company,
    pub core: SqliteCore,
    /// All writes and their replies.
    pub journal: Journal,
    chance: u64,
    now: Timestamp,
    /// All submitted jobs.
    tried: Vec<Job>,
    created: BTreeSet<JobId>,
    rescheduled: BTreeSet<JobId>,
    worker: Worker,
}

impl Walk {
    pub fn new(seed: u64, company: Company) -> Self {
        let mut core = SqliteCore::open_in_memory().unwrap();
        let mut journal = vec![];
        let worker = open_worker(&mut core, &mut journal);
        let (tried, created, rescheduled) = (vec![], BTreeSet::new(), BTreeSet::new());
        Walk { seed, company, core, journal, chance: seed, now: at(0), tried, created, rescheduled, worker }
    }

    pub fn go(&mut self) {
        for step in 0..STEPS {
            let what = self.step();
            self.check_tables(&format!("step {step}, {what}"));
        }
        self.finish();
        self.check_tables("the end");
    }

    fn apply(&mut self, write: Write) -> WriteReply {
        let reply = apply(&mut self.core, write.clone());
        self.journal.push((write, reply.clone()));
        reply
    }

    fn check_tables(&self, when: &str) {
        let problems = self.core.integrity_check().unwrap();
        assert_eq!(problems, Vec::<String>::new(), "seed {}, after {when}", self.seed);
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

    /// Runs one step. Returns its name.
    fn step(&mut self) -> String {
        self.now = self.now.shifted(self.draw(10_000_000) as i64);
        if self.company != Company::WorkersOnly && self.draw(3) == 0 {
            return self.act();
        }
        match self.draw(13) {
            0 | 1 => self.submit(),
            2 | 3 => self.fire_and_look(),
            4..=6 => self.claim(),
            7 | 8 => self.report(),
            9 => self.give_back(),
            10 => self.beat(),
            11 => self.note(),
            _ if self.draw(4) == 0 => self.lose(),
            _ => return "a rest".to_owned(),
        }
        "work".to_owned()
    }

    fn submit(&mut self) {
        let number = self.tried.len() as u64;
        if number == JOBS {
            return;
        }
        let job = self.new_job(number);
        let reservation = (self.draw(3) == 0)
            .then_some(SlotReservation { session: self.worker.session, turn: self.worker.turn + 1 });
        let jobs = vec![NewJob { job: job.clone(), reservation }];
        let reply = self.apply(Write::Submit { now: self.now, jobs });
        let WriteReply::Submitted(mut outcomes) = reply else { panic!("{reply:?}") };
        if let Some(SubmitOutcome::Created(effects)) = outcomes.pop() {
            self.created.insert(job.id);
            self.worker.turn += u64::from(!effects.assigned.is_empty());
            self.worker.held.extend(effects.assigned.into_iter().map(|(_, assignment)| assignment));
        }
        self.tried.push(job);
    }

    fn new_job(&mut self, number: u64) -> Job {
        let now = self.now;
        let mut job = Job { created_at: now, updated_at: now, ..job(number) };
        job.spec.settings.retry = RetryPolicy::Ladder { steps_ms: vec![5_000] };
        if self.draw(2) == 0 {
            job.spec.settings.schedule = self.some_time();
        }
        if self.company == Company::WorkersOnly {
            return job;
        }
        job.spec.queue = self.pick(&["default", "bulk"]).to_owned();
        let settings = &mut job.spec.settings;
        settings.max_retries = self.draw(3) as u32;
        settings.overlap_limit = 2;
        settings.max_open = 4;
        settings.overlap = self.pick(&[
            OverlapPolicy::Skip,
            OverlapPolicy::Allow,
            OverlapPolicy::Queue,
            OverlapPolicy::Replace,
        ]);
        if self.draw(3) == 0 {
            settings.schedule = self.some_recurrence();
        }
        if self.draw(4) == 0 {
            settings.expiry = Some(Expiry::AfterMs(1 + self.draw(120_000)));
        }
        if self.draw(4) == 0 {
            settings.unique_key = Some(format!("u{}", self.draw(2)));
        }
        if self.draw(6) == 0 {
            settings.idempotency_key = Some(format!("i{}", self.draw(2)));
        }
        if settings.schedule.is_one_shot() && number > 0 && self.draw(2) == 0 {
            let parents = [self.draw(number), self.draw(number)].map(|n| super::job(n).id);
            settings.depends_on = BTreeSet::from(parents).into_iter().collect();
        }
        job
    }

    fn some_time(&mut self) -> Schedule {
        Schedule::OneTime { at: self.now.shifted(self.draw(600_000_000) as i64) }
    }

    fn some_recurrence(&mut self) -> Schedule {
        let every = format!("{}s", 3 + self.draw(30));
        let recurring = Recurring::new(RecurrenceSpec::interval(&every, self.now)).unwrap();
        Recurring { max_runs: Some(3 + self.draw(5) as u32), ..recurring }.into()
    }

    fn fire_and_look(&mut self) {
        let due = self.core.reads().due(SegmentSet::ALL, self.now, 10).unwrap();
        let (mut fires, mut looks) = (vec![], vec![]);
        for due in due {
            match due.what {
                DueKind::Schedule { job, version } => {
                    fires.push(FireRequest { job, version, reservation: None })
                }
                DueKind::Live { occurrence, attempt } => {
                    looks.push(LookRequest { occurrence, attempt, reservation: None });
                }
            }
        }
        // Twice, like two schedulers that scan at the same moment.
        for _ in 0..2 {
            self.apply(Write::Fire { now: self.now, fires: fires.clone(), calendars: Arc::default() });
            self.apply(Write::Look { now: self.now, looks: looks.clone() });
        }
    }

    fn claim(&mut self) {
        let Worker { session, turn, .. } = self.worker;
        let claim = Claim {
            session,
            turn: turn + 1,
            limit: self.draw(8) as usize,
            queues: vec![],
            job_types: vec!["noop".to_owned()],
        };
        let reply = self.apply(Write::Claim { now: self.now, claims: vec![claim] });
        let WriteReply::Claimed(mut outcomes) = reply else { panic!("{reply:?}") };
        let Some(ClaimOutcome::Claimed { assignments, .. }) = outcomes.pop() else { panic!("{outcomes:?}") };
        if !assignments.is_empty() {
            self.worker.turn += 1;
        }
        self.worker.held.extend(assignments);
    }

    fn report(&mut self) {
        let count = self.draw(6) as usize;
        let held: Vec<_> = self.worker.held.drain(..count.min(self.worker.held.len())).collect();
        let mut reports = vec![];
        for assignment in held {
            let outcome = match self.draw(4) {
                0 => Outcome::Failed { error: "no".to_owned(), retryable: self.draw(3) > 0, retry_at: None },
                _ => Outcome::Succeeded { result: None },
            };
            let end = outcome.into_end(self.now, self.now);
            let report = Report { session: self.worker.session, lease: assignment.lease(), end };
            // Twice, like a worker that did not get the reply.
            reports.extend([report.clone(), report]);
        }
        self.apply(Write::Report { now: self.now, reports });
    }

    /// Writes notes for everything that the session holds.
    fn note(&mut self) {
        let mut notes = vec![];
        for assignment in self.worker.held.clone() {
            let checkpoint = ["1", "null"][self.draw(2) as usize];
            notes.push(Note {
                session: self.worker.session,
                lease: assignment.lease(),
                number: None,
                progress: (self.draw(2) == 0).then(Progress::default),
                checkpoint: (self.draw(2) == 0).then(|| Checkpoint::new(checkpoint).unwrap()),
            });
        }
        self.apply(Write::Note { now: self.now, notes });
    }

    fn give_back(&mut self) {
        let leases = self.worker.held.pop().map(|assignment| assignment.lease()).into_iter().collect();
        let session = self.worker.session;
        self.apply(Write::GiveBack { now: self.now, session, leases });
    }

    /// Sends a heartbeat, and stops the executions that it is asked to stop.
    fn beat(&mut self) {
        self.worker.beat += 1;
        let Worker { session, beat, .. } = self.worker;
        let reply =
            self.apply(Write::Beat { now: self.now, beats: vec![Beat { session, beat, draining: false }] });
        let WriteReply::Beaten(mut outcomes) = reply else { panic!("{reply:?}") };
        let Some(BeatOutcome::Counted { cancel, .. }) = outcomes.pop() else { panic!("{outcomes:?}") };
        self.worker.held.retain(|assignment| !cancel.contains(&assignment.lease()));
        let end = Outcome::Cancelled.into_end(self.now, self.now);
        let reports = cancel.into_iter().map(|lease| Report { session, lease, end: end.clone() }).collect();
        self.apply(Write::Report { now: self.now, reports });
    }

    fn lose(&mut self) {
        let Worker { session, beat, .. } = self.worker;
        let pulse = Pulse { session, beat, lease: Duration::from_secs(6) };
        self.apply(Write::LoseSessions { now: self.now, silent: vec![pulse] });
        self.apply(Write::Recover { now: self.now, limit: 1_000 });
        self.worker = open_worker(&mut self.core, &mut self.journal);
    }

    /// Runs a control verb on a job, an execution, a dead letter or a queue. Returns its name.
    fn act(&mut self) -> String {
        if self.tried.is_empty() {
            return "nothing to act on".to_owned();
        }
        let job = self.pick(&self.tried.clone());
        match self.draw(16) {
            0 | 1 => self.control(job.id, Verb::Pause),
            2 | 3 => self.control(job.id, Verb::Resume),
            4 | 5 => self.control(job.id, Verb::trigger(false)),
            6 => self.control(job.id, Verb::trigger(true)),
            7 => self.control(job.id, Verb::Retry),
            8 if self.draw(2) == 0 => self.control(job.id, Verb::Cancel),
            8 if self.draw(2) == 0 => self.control(job.id, Verb::Delete),
            9 | 10 => self.update(&job),
            11 => self.cancel_one(job.id),
            12 | 13 => self.redrive_or_discard(),
            14 => self.pause_queue(),
            _ => self.run_maintenance(),
        }
    }

    fn control(&mut self, job: JobId, verb: Verb) -> String {
        let what = format!("{verb:?} of {job}");
        let controls = vec![Control { job, verb }];
        let reply = self.apply(Write::Control { now: self.now, controls });
        format!("{what}: {reply:?}")
    }

    fn update(&mut self, job: &Job) -> String {
        let Some(view) = self.core.reads().job(job.id).unwrap() else { return "no update".to_owned() };
        let mut spec = view.job.spec;
        match self.draw(5) {
            0 => spec.queue = self.pick(&["default", "bulk"]).to_owned(),
            1 => spec.priority = self.pick(&[Priority::MIN, Priority::DEFAULT, Priority::MAX]),
            2 => spec.settings.expiry = Some(Expiry::AfterMs(1 + self.draw(300_000))),
            3 => {
                spec.settings.overlap = self.pick(&[
                    OverlapPolicy::Skip,
                    OverlapPolicy::Allow,
                    OverlapPolicy::Queue,
                    OverlapPolicy::Replace,
                ]);
            }
            _ => {
                self.rescheduled.insert(job.id);
                let is_one_shot = spec.settings.schedule.is_one_shot();
                spec.settings.schedule = if is_one_shot { self.some_time() } else { self.some_recurrence() };
            }
        }
        self.control(job.id, Verb::Update(Box::new(Update { spec, expected_version: None })))
    }

    fn cancel_one(&mut self, job: JobId) -> String {
        let open = self.core.reads().job(job).unwrap().map(|view| view.open).unwrap_or_default();
        let executions = open.iter().take(1).map(|live| live.execution()).collect();
        format!("{:?}", self.apply(Write::Cancel { now: self.now, executions }))
    }

    fn redrive_or_discard(&mut self) -> String {
        let query = DeadLetterQuery { limit: 100, ..DeadLetterQuery::default() };
        let letters = self.core.reads().dead_letters(&query).unwrap().items;
        if letters.is_empty() {
            return "nothing is dead".to_owned();
        }
        let dead = vec![self.pick(&letters).occurrence];
        let write = match self.draw(4) {
            0 => Write::Discard { dead },
            _ => Write::Redrive { now: self.now, dead },
        };
        format!("{:?}", self.apply(write))
    }

    fn pause_queue(&mut self) -> String {
        let queue = self.pick(&["default", "bulk"]).to_owned();
        let pausing = self.pick(&[Pausing::Pause, Pausing::Resume]);
        format!("{:?}", self.apply(Write::PauseQueue { now: self.now, queue, pausing }))
    }

    fn run_maintenance(&mut self) -> String {
        let retirement =
            Retirement { finished_before: self.now.shifted(-900_000_000), after: None, limit: 10 };
        let what = if self.company == Company::People { self.draw(3) } else { 0 };
        match what {
            0 => format!("{:?}", self.apply(Write::Resolve { now: self.now, limit: 2 })),
            1 => format!("{:?}", keep(&mut self.core, Upkeep::Retire { now: self.now, retirement })),
            _ => format!("{:?}", keep(&mut self.core, Upkeep::Purge { before: self.now, limit: 3 })),
        }
    }

    /// Advances time and lets workers work until nothing is left to do.
    fn finish(&mut self) {
        while self.tried.len() < JOBS as usize {
            self.submit();
        }
        for queue in ["default", "bulk"] {
            let (queue, pausing) = (queue.to_owned(), Pausing::Resume);
            self.apply(Write::PauseQueue { now: self.now, queue, pausing });
        }
        for job in self.created.clone() {
            self.control(job, Verb::Resume);
        }
        for _round in 0..100_000 {
            self.now = self.now.shifted(20_000_000);
            self.fire_and_look();
            self.claim();
            self.report();
            self.beat();
            if self.rows("live") + self.rows("schedules") + self.rows("resolutions") == 0 {
                return;
            }
        }
        panic!("the walk does not end: seed {}", self.seed);
    }

    fn rows(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        self.core.connection().query_row(&count, [], |row| row.get(0)).unwrap()
    }

    fn check_ends(&mut self) {
        for job in self.created.clone() {
            let Some(view) = self.core.reads().job(job).unwrap() else { continue };
            let seed = self.seed;
            assert_ne!(view.status(), JobStatus::Paused, "seed {seed}, job {job}");
            for (number, attempts) in self.occurrences(job) {
                let what = format!("seed {seed}, occurrence {number} of {job}: {attempts:?}");
                assert!(attempts.iter().map(|end| end.id.attempt).eq(1..=attempts.len() as u32), "{what}");
                assert!(attempts.is_sorted_by_key(|end| end.epoch), "{what}");
                let success = attempts.iter().position(|end| end.status == Status::Succeeded);
                assert!(success.is_none_or(|at| at + 1 == attempts.len()), "{what}");
            }
        }
    }

    fn check_each_job_succeeded_or_died(&mut self) {
        let mut dead = 0;
        assert_eq!(self.created.len() as u64, JOBS);
        for job in self.created.clone() {
            let status = self.core.reads().job(job).unwrap().unwrap().status();
            let history = self.core.reads().history(job, None, 100).unwrap().items;
            let successes = history.iter().filter(|end| end.status == Status::Succeeded).count();
            let expected = if successes == 1 { JobStatus::Completed } else { JobStatus::Failed };
            assert_eq!((status, successes <= 1), (expected, true), "seed {}, job {job}", self.seed);
            dead += 1 - successes;
        }
        let query = DeadLetterQuery { limit: 1_000, ..DeadLetterQuery::default() };
        assert_eq!(self.core.reads().dead_letters(&query).unwrap().items.len(), dead, "seed {}", self.seed);
    }

    /// A child that was not triggered ran after the success of each of its parents. Returns how often that
    /// could be checked.
    fn check_children(&mut self) -> usize {
        let mut checked = 0;
        for child in self.tried.clone() {
            let is_by_itself = self.created.contains(&child.id) && !self.rescheduled.contains(&child.id);
            let runs = self.core.reads().history(child.id, None, 1_000).unwrap().items;
            let by_itself = |end: &&Finished| end.origin == Origin::Schedule && is_by_itself;
            let started = runs.iter().filter(by_itself).filter_map(|end| end.started_at).min();
            for parent in child.spec.settings.depends_on {
                let ends = self.core.reads().history(parent, None, 1_000).unwrap().items;
                let succeeded = |end: &&Finished| end.status == Status::Succeeded;
                let success = ends.iter().filter(succeeded).map(|end| end.completed_at).min();
                // The purge may have left any part of a deleted parent's history.
                let is_there = self.core.reads().job(parent).unwrap().is_some();
                if let Some(started) = started.filter(|_| is_there) {
                    assert!(
                        success.is_some_and(|at| at <= started),
                        "seed {}: {} {ends:?}",
                        self.seed,
                        child.id
                    );
                    checked += 1;
                }
            }
        }
        checked
    }

    fn occurrences(&mut self, job: JobId) -> BTreeMap<u32, Vec<Finished>> {
        let mut occurrences = BTreeMap::<u32, Vec<Finished>>::new();
        for end in self.core.reads().history(job, None, 1_000).unwrap().items.into_iter().rev() {
            occurrences.entry(end.id.occurrence.number).or_default().push(end);
        }
        occurrences
    }
}

fn open_worker(core: &mut SqliteCore, journal: &mut Journal) -> Worker {
    let write = Write::OpenSession { now: at(0), opening: super::opening() };
    let reply = apply(core, write.clone());
    let WriteReply::SessionOpened(session) = reply else { panic!("{reply:?}") };
    journal.push((write, reply));
    Worker { session, turn: 0, beat: 0, held: vec![] }
}
