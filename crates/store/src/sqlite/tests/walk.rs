//! A long walk of chosen-at-random calls, after which the tables must agree with each other and every job must
//! have come to its end exactly once.

use super::{apply, at, future_job, job, submit};
use crate::sqlite::{SqliteCore, Write, WriteReply};
use punctual_core::ids::{SegmentSet, SessionId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{
    Assignment, Claim, ClaimOutcome, DueKind, Fire, JobQuery, Outcome, Report, TimeGate,
};
use punctual_core::session::Pulse;
use punctual_core::time::Timestamp;
use std::time::Duration;

const JOBS: u64 = 200;

#[test]
fn every_job_of_a_random_walk_ends_once_and_the_tables_agree() {
    for seed in 0..8 {
        let mut walk = Walk::new(seed);
        for _step in 0..600 {
            walk.step();
        }
        assert_eq!(walk.core.integrity_check().unwrap(), Vec::<String>::new(), "seed {seed}");
        walk.finish();
        assert_eq!(walk.core.integrity_check().unwrap(), Vec::<String>::new(), "seed {seed}");
        walk.check_ends(seed);
    }
}

struct Worker {
    session: SessionId,
    turn: u64,
    held: Vec<Assignment>,
}

struct Walk {
    core: SqliteCore,
    chance: u64,
    now: Timestamp,
    submitted: u64,
    worker: Worker,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut core = SqliteCore::open_in_memory().unwrap();
        let worker = open_worker(&mut core);
        Walk { core, chance: seed, now: at(0), submitted: 0, worker }
    }

    /// A number below `bound` (splitmix).
    fn draw(&mut self, bound: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % bound
    }

    fn step(&mut self) {
        self.now = self.now.shifted(self.draw(20_000_000) as i64);
        match self.draw(10) {
            0 | 1 => self.submit(),
            2 => self.fire_and_open(),
            3..=5 => self.claim(),
            6 | 7 => self.report(),
            8 => self.give_back(),
            _ if self.draw(4) == 0 => self.lose(),
            _ => {}
        }
    }

    fn submit(&mut self) {
        if self.submitted == JOBS {
            return;
        }
        let number = self.submitted;
        self.submitted += 1;
        let job = if self.draw(2) == 0 { job(number) } else { future_job(number, self.draw(9_000) as i64) };
        apply(&mut self.core, submit([job]));
    }

    fn fire_and_open(&mut self) {
        let due = self.core.reads().due(SegmentSet::ALL, self.now, 10).unwrap();
        let (mut fires, mut gates) = (vec![], vec![]);
        for due in due {
            match due.what {
                DueKind::Schedule { job, version } => fires.push(Fire { job, version, offer: None }),
                DueKind::TimeGate { occurrence, attempt } => {
                    gates.push(TimeGate { occurrence, attempt, offer: None });
                }
            }
        }
        // Twice, as two schedulers do that look at the same moment.
        for _ in 0..2 {
            apply(&mut self.core, Write::Fire { now: self.now, fires: fires.clone() });
            apply(&mut self.core, Write::OpenTimeGates { now: self.now, gates: gates.clone() });
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
        let reply = apply(&mut self.core, Write::Claim { now: self.now, claims: vec![claim] });
        let WriteReply::Claimed(mut outcomes) = reply else { panic!("{reply:?}") };
        let Some(ClaimOutcome::Claimed(assignments)) = outcomes.pop() else { panic!("{outcomes:?}") };
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
                0 => Outcome::Failed { error: "no".to_owned(), retryable: self.draw(3) > 0 },
                _ => Outcome::Succeeded { result: None },
            };
            let end = outcome.into_end(self.now, self.now);
            let report = Report { session: self.worker.session, lease: assignment.lease(), end };
            // Twice, as a worker does whose answer was lost.
            reports.extend([report.clone(), report]);
        }
        apply(&mut self.core, Write::Report { now: self.now, reports });
    }

    fn give_back(&mut self) {
        let leases = self.worker.held.pop().map(|assignment| assignment.lease()).into_iter().collect();
        let session = self.worker.session;
        apply(&mut self.core, Write::GiveBack { now: self.now, session, leases });
    }

    fn lose(&mut self) {
        let pulse = Pulse { session: self.worker.session, beat: 0, lease: Duration::from_secs(6) };
        apply(&mut self.core, Write::LoseSessions { now: self.now, silent: vec![pulse] });
        apply(&mut self.core, Write::Recover { now: self.now, limit: 1_000 });
        self.worker = open_worker(&mut self.core);
    }

    /// Lets time pass and workers succeed until nothing is left to do.
    fn finish(&mut self) {
        while self.submitted < JOBS {
            self.submit();
        }
        for _round in 0..100_000 {
            self.now = self.now.shifted(60_000_000);
            self.fire_and_open();
            self.claim();
            self.report();
            let query = JobQuery { status: Some(JobStatus::Active), limit: 1, ..Default::default() };
            if self.core.reads().jobs(&query).unwrap().items.is_empty() {
                return;
            }
        }
        panic!("the walk does not end");
    }

    fn check_ends(&mut self, seed: u64) {
        let mut dead = 0;
        for number in 0..JOBS {
            let id = job(number).id;
            let view = self.core.reads().job(id).unwrap().unwrap();
            let history = self.core.reads().history(id, None, 100).unwrap().items;
            let attempts: Vec<_> = history.iter().rev().map(|finished| finished.id.attempt).collect();
            assert_eq!(attempts, (1..=history.len() as u32).collect::<Vec<_>>(), "seed {seed}, job {number}");
            let successes = history.iter().filter(|finished| finished.status == Status::Succeeded).count();
            match view.status() {
                JobStatus::Completed => assert_eq!(successes, 1, "seed {seed}, job {number}"),
                JobStatus::Failed => {
                    dead += 1;
                    assert_eq!(successes, 0, "seed {seed}, job {number}");
                }
                other => panic!("seed {seed}, job {number} is {other:?}"),
            }
        }
        assert_eq!(self.core.reads().dead_letters(None, 1_000).unwrap().items.len(), dead, "seed {seed}");
    }
}

fn open_worker(core: &mut SqliteCore) -> Worker {
    Worker { session: super::open_session(core), turn: 0, held: vec![] }
}
