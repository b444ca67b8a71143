//! The simulator detects broken rules: each planted defect is caught.

use punctual_core::defects::Defect;
use punctual_sim::{SimOptions, StoreKind, simulate};

/// Seeds within which a defect must be detected.
const SEEDS_MAX: u64 = 1_000;

/// Finds a seed that breaks a rule with the defect and none without it.
#[track_caller]
fn check(defect: Defect) {
    let caught = (first_seed(defect)..SEEDS_MAX).find_map(|seed| {
        let store = match Defect::OF_SERVER_STORES.contains(&defect) {
            false => StoreKind::Sqlite,
            true if seed % 2 == 0 => StoreKind::Postgres,
            true => StoreKind::MariaDb,
        };
        let sound = SimOptions::on(seed, store);
        let violation = simulate(SimOptions { defect: Some(defect), ..sound }).violation?;
        let is_sound_without = simulate(sound).violation.is_none();
        is_sound_without.then_some((seed, violation.rule))
    });
    let (seed, rule) = caught.unwrap_or_else(|| panic!("{defect:?} goes unnoticed in {SEEDS_MAX} seeds"));
    println!("{defect:?} is caught by seed {seed}: {rule}");
}

/// The first seed to try, for defects that few seeds reveal: any seed below a thousand would do.
fn first_seed(defect: Defect) -> u64 {
    match defect {
        Defect::LoseWakeUp | Defect::PassTheLine | Defect::AdmitTheLast | Defect::ForgetLine => 12,
        Defect::ForgetPace => 40,
        Defect::RetryLostCommit => 45,
        Defect::AcceptStaleNote => 46,
        Defect::KeepOldSegments => 62,
        Defect::RestartUnchanged => 84,
        _ => 0,
    }
}

#[test]
fn a_fire_that_ignores_the_version_is_caught() {
    check(Defect::DropVersionCheck);
}

#[test]
fn a_report_that_ignores_the_epoch_is_caught() {
    check(Defect::DropEpoch);
}

#[test]
fn a_session_that_is_lost_by_the_wall_clock_is_caught() {
    check(Defect::ExpireByWallClock);
}

#[test]
fn a_gate_that_opens_twice_is_caught() {
    check(Defect::OpenGateTwice);
}

#[test]
fn a_retry_that_is_dropped_is_caught() {
    check(Defect::LoseRetry);
}

#[test]
fn a_poll_sequence_number_that_is_granted_twice_is_caught() {
    check(Defect::DropTurn);
}

#[test]
fn a_handler_that_outlives_its_lease_is_caught() {
    check(Defect::KeepRunningWithoutLease);
}

#[test]
fn a_retry_that_forgets_a_pause_is_caught() {
    check(Defect::ForgetPause);
}

#[test]
fn a_follower_that_is_forgotten_is_caught() {
    check(Defect::ForgetFollower);
}

#[test]
fn a_dependent_that_any_parent_releases_is_caught() {
    check(Defect::ReleaseByAnyParent);
}

#[test]
fn a_claim_of_an_expired_execution_is_caught() {
    check(Defect::ClaimExpired);
}

#[test]
fn a_unique_key_with_two_holders_is_caught() {
    check(Defect::AdmitSecondHolder);
}

#[test]
fn a_note_that_ignores_the_epoch_is_caught() {
    check(Defect::AcceptStaleNote);
}

#[test]
fn a_counter_mismatch_is_caught() {
    check(Defect::DriftTally);
}

#[test]
fn a_claim_of_a_paused_session_is_caught() {
    check(Defect::ClaimWhilePaused);
}

#[test]
fn a_queue_that_accepts_too_much_is_caught() {
    check(Defect::ExceedMaxDepth);
}

#[test]
fn a_lost_wake_up_is_caught() {
    check(Defect::LoseWakeUp);
}

#[test]
fn a_cursor_that_skips_a_row_of_history_is_caught() {
    check(Defect::SkipHistoryRow);
}

#[test]
fn a_scheduler_that_keeps_its_old_segments_is_caught() {
    check(Defect::KeepOldSegments);
}

#[test]
fn a_segment_that_is_taken_and_not_scanned_is_caught() {
    check(Defect::ForgetTakenSegment);
}

#[test]
fn a_limit_that_admits_one_too_many_is_caught() {
    check(Defect::AdmitOneTooMany);
}

#[test]
fn overtaking_on_a_wait_list_is_caught() {
    check(Defect::PassTheLine);
}

#[test]
fn a_wait_list_that_advances_from_its_end_is_caught() {
    check(Defect::AdmitTheLast);
}

#[test]
fn a_rate_that_forgets_its_last_start_is_caught() {
    check(Defect::ForgetPace);
}

#[test]
fn room_that_is_not_freed_is_caught() {
    check(Defect::KeepPlaceOfEnded);
}

#[test]
fn a_wait_list_that_is_never_scanned_is_caught() {
    check(Defect::ForgetLine);
}

#[test]
fn a_wait_list_of_a_paused_queue_that_advances_is_caught() {
    check(Defect::MoveWhilePaused);
}

#[test]
fn a_limit_that_ignores_queued_executions_is_caught() {
    check(Defect::ForgetBacklog);
}

#[test]
fn a_worker_that_runs_returned_work_is_caught() {
    check(Defect::KeepWhatIsGivenBack);
}

#[test]
fn retention_by_a_clock_that_jumped_is_caught() {
    check(Defect::RetainThroughClockJump);
}

#[test]
fn a_replay_that_is_dropped_for_lack_of_room_is_caught() {
    check(Defect::CutReplay);
}

#[test]
fn a_regular_occurrence_that_is_skipped_for_a_replay_is_caught() {
    check(Defect::SkipForReplay);
}

#[test]
fn a_schedule_that_an_update_restarts_is_caught() {
    check(Defect::RestartUnchanged);
}

#[test]
fn a_claim_without_locks_is_caught() {
    check(Defect::ClaimUnlocked);
}

#[test]
fn a_row_that_was_read_before_it_was_locked_is_caught() {
    check(Defect::ReadBeforeLock);
}

#[test]
fn an_answer_after_a_rollback_is_caught() {
    check(Defect::AnswerDespiteConflict);
}

#[test]
fn a_second_run_after_a_lost_commit_is_caught() {
    check(Defect::RetryLostCommit);
}

#[test]
fn a_row_of_a_batch_that_is_not_written_is_caught() {
    check(Defect::DropRowOfBatch);
}

#[test]
fn a_counter_that_is_added_twice_is_caught() {
    check(Defect::CountAgainOnRetry);
}

#[test]
fn every_defect_has_its_test() {
    let tested = include_str!("defects.rs");
    for defect in Defect::ALL {
        assert!(tested.contains(&format!("check(Defect::{defect:?});")), "{defect:?} has no test");
    }
}

#[test]
fn the_guide_says_how_many_defects_are_planted() {
    let guide = include_str!("../../../docs/guides/how-we-test.md").replace('\n', " ");
    let sentence = format!("{} defects are planted one at a time", Defect::ALL.len());
    assert!(guide.contains(&sentence), "the guide does not say: {sentence}");
}
