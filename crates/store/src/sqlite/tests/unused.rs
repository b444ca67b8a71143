//! Many names: their measured cost to the writer and readers, and that unused ones are deleted.

use super::{apply, at, claim, job, keep, open_session, opening, report, submit};
use crate::reads::ReadKind;
use crate::sqlite::active_lanes::{HAS_WORK, NEXT_LANE_WITH_WORK};
use crate::sqlite::names::{LANE_BY_NAME, LANE_BY_NUMBER};
use crate::sqlite::reads::statements::statement;
use crate::sqlite::tx::FIRST_OF_LANE;
use crate::sqlite::{SqliteCore, Upkeep, UpkeepReply};
use punctual_core::control::Verb;
use punctual_core::job::Job;
use punctual_core::limits;
use punctual_core::ports::{Control, Horizon, Outcome, Write};
use punctual_core::time::Timestamp;
use rusqlite::StatementStatus;

/// More than are remembered at once.
const LANES: u64 = 12_000;

fn in_lane(number: u64) -> Job {
    let mut job = job(number);
    job.spec.queue = format!("queue {number}");
    job
}

/// A store in which a job has run in each of this many lanes.
fn used(lanes: u64) -> SqliteCore {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    let mut turn = 0;
    for first in (0..lanes).step_by(1_000) {
        apply(&mut core, submit((first..lanes.min(first + 1_000)).map(in_lane)));
        loop {
            turn += 1;
            let claimed = claim(&mut core, session, turn, 100);
            if claimed.is_empty() {
                break;
            }
            report(&mut core, session, &claimed, Outcome::Succeeded { result: None });
        }
    }
    core
}

/// The work of the statements that look for lanes, in steps of SQLite's virtual machine.
fn steps(core: &SqliteCore) -> Vec<i32> {
    let statements = [
        LANE_BY_NAME,
        LANE_BY_NUMBER,
        NEXT_LANE_WITH_WORK,
        HAS_WORK,
        FIRST_OF_LANE,
        statement(ReadKind::Depths),
    ];
    let steps = |sql| core.connection().prepare_cached(sql).unwrap().reset_status(StatementStatus::VmStep);
    statements.into_iter().map(steps).collect()
}

/// One job from submit to end in a new lane, and an overview.
fn one_life(core: &mut SqliteCore, number: u64) -> Vec<i32> {
    steps(core);
    let session = open_session(core);
    apply(core, submit([in_lane(number)]));
    let claimed = claim(core, session, 1, 10);
    assert_eq!(claimed.len(), 1);
    report(core, session, &claimed, Outcome::Succeeded { result: None });
    assert_eq!(core.reads().depths().unwrap(), []);
    steps(core)
}

#[test]
fn the_cost_of_a_job_does_not_depend_on_unused_lanes() {
    let (mut empty, mut full) = (used(1), used(LANES));
    for core in [&mut empty, &mut full] {
        core.restart();
        one_life(core, 1_000_000);
    }
    assert_eq!(one_life(&mut empty, 1_000_001), one_life(&mut full, 1_000_001));
    empty.restart();
    full.restart();
    assert_eq!(one_life(&mut empty, 1_000_002), one_life(&mut full, 1_000_002), "after a start");
}

#[test]
fn the_cost_of_a_claim_does_not_depend_on_the_number_of_lanes_with_work() {
    let claims = |lanes: u64| {
        let mut core = SqliteCore::open_in_memory().unwrap();
        let session = open_session(&mut core);
        apply(&mut core, submit((0..lanes).map(in_lane)));
        core.restart();
        // The first claim after a start reads every lane once.
        assert_eq!(claim(&mut core, session, 1, 10).len(), 10);
        steps(&core);
        assert_eq!(claim(&mut core, session, 2, 10).len(), 10);
        steps(&core)
    };
    assert_eq!(claims(50), claims(2_000));
}

#[test]
fn the_cache_of_lanes_is_bounded() {
    let core = used(LANES);
    assert!(core.memory().lanes.count() <= 10_000);
    assert_eq!(core.memory().active.count(), 0, "nothing is live");
}

#[test]
fn retention_deletes_lanes_without_jobs_and_workers_without_sessions() {
    let mut core = used(50);
    let count = |core: &SqliteCore, table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        core.connection().query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    for number in 0..20 {
        let opening = punctual_core::ports::SessionOpening { worker: format!("w{number}"), ..opening() };
        apply(&mut core, Write::OpenSession { now: at(0), opening });
    }
    let silent = pulses(&mut core);
    apply(&mut core, Write::LoseSessions { now: at(5), silent });
    apply(&mut core, Write::Recover { now: at(6), limit: 1_000 });
    assert_eq!((count(&core, "sessions"), count(&core, "workers"), count(&core, "lanes")), (0, 21, 50));
    // The jobs of every second lane are deleted.
    let controls = (0..50).step_by(2).map(|n| Control { job: in_lane(n).id, verb: Verb::Delete }).collect();
    apply(&mut core, Write::Control { now: at(10), controls });
    keep(&mut core, Upkeep::Purge { before: at(1_000), limit: 1_000 });
    assert_eq!(count(&core, "lanes"), 25, "each lane is deleted with its last job");
    // Lanes that have lost their jobs in another way are found step by step.
    core.connection().execute_batch("DELETE FROM history; DELETE FROM jobs").unwrap();
    core.connection().execute_batch("UPDATE job_tally SET completed = 0").unwrap();
    let mut steps = 0;
    while retain(&mut core, at(2_000), 4) {
        steps += 1;
        assert!(steps < 100);
    }
    assert_eq!(count(&core, "lanes"), 1, "the highest number stays, so that no number is assigned twice");
    let later = at(2_000).plus(limits::WORKER_NAMES_KEPT).shifted(1_000_000);
    for _ in 0..100 {
        retain(&mut core, later, 4);
    }
    assert_eq!(count(&core, "workers"), 1);
    let session = open_session(&mut core);
    apply(&mut core, submit([in_lane(0)]));
    assert_eq!(claim(&mut core, session, 1, 10)[0].queue, "queue 0");
    assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
}

fn pulses(core: &mut SqliteCore) -> Vec<punctual_core::session::Pulse> {
    core.reads().sessions().unwrap().into_iter().map(|row| row.pulse).collect()
}

/// Returns whether there is more.
fn retain(core: &mut SqliteCore, now: Timestamp, limit: usize) -> bool {
    let horizon = Horizon { history: now, requests: now.minus(limits::REQUESTS_KEPT) };
    let UpkeepReply::Retained(retained) = keep(core, Upkeep::Retain { horizon, limit }) else { panic!() };
    let UpkeepReply::UnusedDeleted(more) = keep(core, Upkeep::DeleteUnused { limit }) else { panic!() };
    retained.more | more
}
