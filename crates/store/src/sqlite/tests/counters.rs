//! Stored counters: exact after every transaction (which every write in any test of this crate checks),
//! unaffected by rollbacks, and detected when they are wrong.

use super::{apply, apply_all, at, claim, future_job, job, open_session, report, submit};
use crate::sqlite::{SqliteCore, SqliteReply, Upkeep, UpkeepReply};
use punctual_core::control::Verb;
use punctual_core::ids::JobId;
use punctual_core::limiter::{QueueLimits, Rate};
use punctual_core::ports::{
    Control, ControlOutcome, Depth, JobCounts, Outcome, StoreError, SubmitOutcome, Write, WriteReply,
};
use punctual_core::queue::{QueueChange, QueueSettings};

fn depth(core: &mut SqliteCore) -> (u64, u64, u64) {
    match core.reads().depths().unwrap().as_slice() {
        [] => (0, 0, 0),
        [Depth { waiting, queued, running, .. }] => (*waiting, *queued, *running),
        more => panic!("expected one lane: {more:?}"),
    }
}

fn counts(core: &mut SqliteCore) -> JobCounts {
    core.reads().job_counts().unwrap()
}

fn control(core: &mut SqliteCore, job: JobId, verb: Verb) {
    match apply(core, Write::Control { now: at(5), controls: vec![Control { job, verb }] }) {
        WriteReply::Controlled(outcomes) => assert!(matches!(outcomes[0], ControlOutcome::Done(_))),
        other => panic!("{other:?}"),
    }
}

#[test]
fn counts_follow_jobs_from_submit_to_their_ends() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    apply(&mut core, submit((0..4).map(job).chain([future_job(9, 100)])));
    assert_eq!(depth(&mut core), (0, 4, 0));
    assert_eq!(counts(&mut core), JobCounts { active: 5, ..JobCounts::default() });

    let claimed = claim(&mut core, session, 1, 3);
    assert_eq!(depth(&mut core), (0, 1, 3));
    report(&mut core, session, &claimed[..1], Outcome::Succeeded { result: None });
    report(&mut core, session, &claimed[1..2], Outcome::failed_for_good("no".to_owned()));
    report(&mut core, session, &claimed[2..], Outcome::failed("no".to_owned()));
    assert_eq!(depth(&mut core), (1, 1, 0));
    let expected = JobCounts { active: 3, completed: 1, failed: 1, dead_letters: 1, ..JobCounts::default() };
    assert_eq!(counts(&mut core), expected);

    control(&mut core, future_job(9, 100).id, Verb::Pause);
    control(&mut core, job(3).id, Verb::Cancel);
    let expected = JobCounts { active: 1, paused: 1, cancelled: 1, ..expected };
    assert_eq!((depth(&mut core), counts(&mut core)), ((1, 0, 0), expected));
    for n in 0..4 {
        control(&mut core, job(n).id, Verb::Delete);
    }
    assert_eq!(depth(&mut core), (0, 0, 0));
    assert_eq!(counts(&mut core), JobCounts { paused: 1, ..JobCounts::default() });
}

#[test]
fn a_one_time_job_that_was_controlled_while_it_ran_is_counted_at_its_end() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    apply(&mut core, submit((0..2).map(job)));
    let claimed = claim(&mut core, session, 1, 2);
    // Each is the only occurrence left of its job, until these verbs.
    control(&mut core, job(0).id, Verb::trigger(true));
    control(&mut core, job(1).id, Verb::Pause);
    report(&mut core, session, &claimed, Outcome::Succeeded { result: None });
    assert_eq!(counts(&mut core), JobCounts { active: 1, completed: 1, ..JobCounts::default() });
}

/// Which jobs of a submit were stored.
fn is_kept(reply: &Result<WriteReply, StoreError>) -> Vec<bool> {
    let Ok(WriteReply::Submitted(outcomes)) = reply else { panic!("{reply:?}") };
    outcomes.iter().map(|outcome| matches!(outcome, SubmitOutcome::Created(_))).collect()
}

#[test]
fn a_rolled_back_write_is_not_counted() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    // One write of the transaction fails in the middle and is rolled back alone.
    core.connection()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON live WHEN NEW.priority = 9 \
             BEGIN SELECT raise(ABORT, 'refused'); END",
        )
        .unwrap();
    let mut refused = job(2);
    refused.spec.priority = punctual_core::job::Priority::new(9).unwrap();
    let writes = vec![submit([job(0)]), submit([job(1), refused]), submit([job(3)])];
    let replies = apply_all(&mut core, writes);
    assert_eq!(replies.iter().map(is_kept).collect::<Vec<_>>(), [vec![true], vec![true, false], vec![true]]);
    assert_eq!(depth(&mut core), (0, 3, 0));
    assert_eq!(counts(&mut core).active, 3);
}

#[test]
fn a_rolled_back_write_does_not_count_for_a_rate() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let limits = QueueLimits { rate: Some(Rate { count: 1, per_ms: 60_000 }), ..QueueLimits::default() };
    let settings = QueueSettings { max_depth: None, limits };
    apply(&mut core, Write::SetQueue { queue: "default".to_owned(), change: QueueChange::Replace(settings) });
    core.connection()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON live WHEN NEW.priority = 9 \
             BEGIN SELECT raise(ABORT, 'refused'); END",
        )
        .unwrap();
    let mut refused = job(1);
    refused.spec.priority = punctual_core::job::Priority::new(9).unwrap();
    let replies = apply_all(&mut core, vec![submit([refused]), submit([job(2)]), submit([job(3)])]);
    assert_eq!(replies.iter().map(is_kept).collect::<Vec<_>>(), [vec![false], vec![true], vec![true]]);
    assert_eq!(depth(&mut core), (1, 1, 0), "the second continues, the third waits for its time");
    apply(&mut core, submit([job(4)]));
    assert_eq!(depth(&mut core), (2, 1, 0), "and so does the next transaction");
    core.restart();
    apply(&mut core, submit([job(5)]));
    assert_eq!(depth(&mut core), (3, 1, 0), "and the next process");
}

#[test]
fn wrong_counters_are_found() {
    let breaks = [
        ("UPDATE lane_tallies SET queued = queued + 1", "a lane whose counters"),
        ("DELETE FROM lane_tallies", "a lane whose counters"),
        (
            "INSERT INTO lane_tallies (lane, waiting, queued, running) VALUES (77, 1, 0, 0)",
            "a lane whose counters",
        ),
        ("UPDATE job_tally SET completed = completed + 1, active = active - 1", "job counters that differ"),
        ("UPDATE job_tally SET dead_letters = 1", "a dead letter counter that differs"),
        ("DELETE FROM job_tally", "missing job counters"),
        ("UPDATE jobs SET mark = 1", "marked as sole"),
    ];
    for (sql, problem) in breaks {
        let mut core = SqliteCore::open_in_memory().unwrap();
        apply(&mut core, submit([job(0)]));
        assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new());
        core.connection().execute_batch(sql).unwrap();
        let problems = core.integrity_check().unwrap();
        assert!(problems.iter().any(|found| found.contains(problem)), "{sql}: {problems:?}");
    }
}

#[test]
fn wrong_counters_are_repaired() {
    let breaks = [
        ("UPDATE lane_tallies SET queued = queued + 1", "queued is 3 and should be 2"),
        ("DELETE FROM lane_tallies", "queued is 1 and should be 2"),
        ("INSERT INTO lane_tallies (lane, waiting, queued, running) VALUES (77, 1, 0, 0)", "lane 77"),
        ("INSERT INTO limiter_tallies (limiter, waiting, in_use) VALUES (-7, 0, 4)", "(-7): in_use is 4"),
        (
            "UPDATE job_tally SET completed = 1, dead_letters = 1",
            "completed is 1 and should be 0, dead_letters",
        ),
    ];
    for (sql, expected) in breaks {
        let mut core = SqliteCore::open_in_memory().unwrap();
        apply(&mut core, submit([job(0)]));
        core.connection().execute_batch(sql).unwrap();
        // The writer would correct counters that it remembers.
        core.restart();
        // Together with a write in the same transaction, whose counters are not written yet.
        let repair = [submit([job(1)]).into(), Upkeep::RepairCounters.into()];
        let repaired = match core.apply(&repair).pop().unwrap().unwrap() {
            SqliteReply::Upkeep(UpkeepReply::CountersRepaired(repaired)) => repaired,
            other => panic!("{other:?}"),
        };
        let repaired: Vec<String> = repaired.iter().map(ToString::to_string).collect();
        assert!(repaired.len() == 1 && repaired[0].contains(expected), "{sql}: {repaired:?}");
        assert_eq!(core.integrity_check().unwrap(), Vec::<String>::new(), "{sql}");
    }
}

#[test]
fn lanes_without_live_executions_have_no_counters() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    let session = open_session(&mut core);
    apply(&mut core, submit([job(0)]));
    let claimed = claim(&mut core, session, 1, 1);
    report(&mut core, session, &claimed, Outcome::Succeeded { result: None });
    let rows: i64 =
        core.connection().query_row("SELECT count(*) FROM lane_tallies", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}
