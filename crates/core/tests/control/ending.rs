use crate::harness::{Harness, at, every, once, spec};
use punctual_core::control::{Change, Refusal, ScheduleChange, Verb};
use punctual_core::job::{JobStatus, StoredStatus};
use punctual_core::lifecycle::{Ending, Status};
use punctual_core::occurrence::GivenBack;
use punctual_core::schedule::{OverlapPolicy, Schedule};

const ENDINGS: [(Verb, StoredStatus); 2] =
    [(Verb::Cancel, StoredStatus::Cancelled), (Verb::Delete, StoredStatus::Deleted)];

#[test]
fn cancelling_or_deleting_removes_the_schedule_and_keeps_the_number() {
    for (verb, mark) in ENDINGS {
        for mut harness in [Harness::submitted(spec(every(10))), Harness::submitted(spec(once(10)))] {
            let change = harness.does(verb.clone(), at(5));
            assert_eq!(change.schedule, ScheduleChange::Remove);
            assert_eq!((harness.standing.job.mark, harness.standing.job.numbered), (mark, Some(0)));
            assert_eq!(harness.status(), JobStatus::Cancelled);
        }
        let mut harness = Harness::recurring(OverlapPolicy::Skip);
        harness.does(verb, at(15));
        assert_eq!(harness.standing.job.numbered, Some(1));
    }
}

#[test]
fn cancelling_or_deleting_drops_what_waits_and_asks_what_runs_to_stop() {
    for (verb, mark) in ENDINGS {
        let mut harness = Harness::running(OverlapPolicy::Queue);
        harness.fire(at(20));
        harness.fire(at(30));
        let change = harness.does(verb, at(35));
        assert_eq!(change.live.len(), 3);
        assert_eq!(harness.numbers(), [1]);
        assert!(harness.is_asked_to_stop(1));
        let ended: Vec<_> =
            harness.history.iter().map(|ended| (ended.id.occurrence.number, ended.status)).collect();
        assert_eq!(ended, [(2, Status::Cancelled), (3, Status::Cancelled)]);
        harness.end(1, Ending::Succeeded, at(36));
        assert_eq!((harness.history[2].status, harness.standing.job.mark), (Status::Cancelled, mark));
    }
}

#[test]
fn a_one_shot_that_has_not_started_ends_cancelled() {
    let mut harness = Harness::submitted(spec(Schedule::Immediate));
    harness.does(Verb::Cancel, at(1));
    assert_eq!((harness.status(), harness.numbers()), (JobStatus::Cancelled, vec![]));
    assert_eq!(harness.dead, []);
}

#[test]
fn a_paused_job_is_cancelled_like_an_active_one() {
    for (verb, _) in ENDINGS {
        let mut harness = Harness::running(OverlapPolicy::Queue);
        harness.fire(at(20));
        harness.does(Verb::Pause, at(21));
        harness.does(verb, at(22));
        assert_eq!((harness.status(), harness.numbers()), (JobStatus::Cancelled, vec![1]));
        assert_eq!(harness.standing.schedule, None);
    }
}

#[test]
fn what_was_asked_to_stop_before_is_not_asked_again() {
    let mut harness = Harness::cancelled();
    let change = harness.does(Verb::Delete, at(31));
    assert_eq!((change.live, change.schedule), (vec![], ScheduleChange::Keep));
    assert_eq!(harness.standing.job.mark, StoredStatus::Deleted);
    assert!(harness.is_asked_to_stop(1));
}

#[test]
fn cancelling_or_deleting_twice_changes_nothing() {
    for (verb, _) in ENDINGS {
        let mut harness = Harness::running(OverlapPolicy::Skip);
        harness.does(verb.clone(), at(12));
        assert_eq!(harness.asked(verb, at(13)), Ok(Change::default()));
    }
}

#[test]
fn a_job_that_finished_is_not_cancelled_but_can_be_deleted() {
    for (mut harness, status) in
        [(Harness::completed(), JobStatus::Completed), (Harness::failed(), JobStatus::Failed)]
    {
        assert_eq!(harness.asked(Verb::Cancel, at(30)), Err(Refusal::Finished(status)));
        let change = harness.does(Verb::Delete, at(30));
        assert_eq!((change.schedule, change.live), (ScheduleChange::Keep, vec![]));
        assert_eq!(harness.standing.job.mark, StoredStatus::Deleted);
    }
}

#[test]
fn a_deleted_job_stays_deleted() {
    let mut harness = Harness::running(OverlapPolicy::Skip);
    harness.does(Verb::Delete, at(12));
    assert_eq!(harness.asked(Verb::Cancel, at(13)), Ok(Change::default()));
    for verb in [Verb::Pause, Verb::Resume] {
        assert_eq!(harness.asked(verb, at(13)), Err(Refusal::Finished(JobStatus::Cancelled)));
    }
}

#[test]
fn a_cancelled_run_that_its_worker_gives_back_does_not_come_again() {
    let harness = Harness::cancelled();
    let given_back = harness.live(1).given_back(None, at(31)).unwrap();
    assert!(matches!(given_back, GivenBack::Closed(_)), "{given_back:?}");
}
