//! The definition of what a store does: cases that every adapter passes, each with an empty database of its own.
//!
//! A case is a plain async function over the port. It must not know which adapter it runs on, and brings its
//! own times: no case waits.

#![expect(clippy::missing_panics_doc, reason = "a case that fails panics: that is how it reports")]

mod fixture;

use punctual_core::ports::Store;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// One case, ready to be run with an empty store.
pub type Case = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Hands the list of all cases, by module, to another macro: to this module's own for [`CASES`], and to an
/// adapter's for one test per case.
#[macro_export]
macro_rules! each_conformance_case {
    ($then:ident) => {
        $then! {
            submit {
                a_submitted_job_is_queued,
                a_repeated_submit_is_already_there,
                a_job_reads_back_as_it_was_written,
                a_valid_offer_leases_the_job,
                one_offer_takes_all_jobs_of_its_call,
                an_offer_with_a_used_turn_queues,
                an_offer_from_the_future_queues,
                an_offer_of_a_lost_session_queues,
                a_one_time_job_waits_for_its_time,
                a_one_time_job_of_the_past_is_due_at_once,
                a_thousand_concurrent_submits_are_neither_lost_nor_doubled,
            }
            time {
                due_lists_what_falls_due_in_order,
                due_is_limited_per_segment_and_looks_only_at_its_segments,
                a_fire_opens_the_occurrence_of_a_one_time_job,
                a_fire_before_its_time_is_not_due,
                a_second_fire_of_the_same_version_conflicts,
                a_fire_of_an_unknown_job_conflicts,
                racing_fires_of_one_version_fire_once,
                an_interval_advances_from_its_nominal_time,
                an_overlapping_fire_is_skipped,
                consecutive_skips_are_one_range,
                missed_occurrences_are_one_range,
                missed_occurrences_are_replayed_beside_the_regular_ones,
                a_replay_outlives_the_end_of_its_schedule,
                a_schedule_that_ended_before_its_job_began_completes_it,
                an_exhausted_schedule_completes_the_job,
                an_offer_takes_the_first_occurrence_of_a_fire,
            }
            gates {
                a_failed_attempt_waits_behind_its_time_gate,
                a_time_gate_opens_when_its_time_has_come,
                a_time_gate_does_not_open_before_its_time,
                a_time_gate_opens_once,
                a_time_gate_of_another_attempt_conflicts,
                an_opened_gate_leases_to_a_valid_offer,
            }
            claim {
                an_assignment_carries_what_a_worker_needs,
                claims_go_by_rank_across_lanes,
                claims_go_by_rank_across_very_many_lanes_most_of_them_empty,
                high_priority_goes_first,
                a_claim_takes_no_more_than_its_limit,
                a_claim_merges_many_lanes_in_order,
                a_claim_skips_job_types_that_it_does_not_name,
                a_claim_skips_queues_that_it_does_not_name,
                an_empty_claim_leaves_its_turn_unused,
                a_used_turn_is_stale,
                a_claim_of_an_unknown_or_lost_session_is_refused,
                every_claim_raises_the_epoch,
                racing_claimers_get_disjoint_work,
                a_doubled_claim_is_granted_once,
            }
            report {
                a_success_closes_the_occurrence,
                a_repeated_report_was_accepted_already,
                a_report_of_an_earlier_epoch_is_stale,
                a_report_of_another_session_is_stale,
                a_report_of_an_unknown_execution_is_stale,
                a_timed_out_attempt_is_retried,
                an_exhausted_job_fails_and_leaves_a_dead_letter,
                an_error_that_is_not_retryable_ends_the_job,
                no_retries_means_at_most_once,
                a_cancelled_run_ends_the_job_cancelled,
                a_recurring_job_outlives_a_failed_occurrence,
                one_call_settles_many_reports_in_order,
            }
            sessions {
                sessions_are_listed_until_they_close,
                session_ids_are_never_reused,
                a_beat_raises_the_counter_and_never_lowers_it,
                a_beat_defeats_an_observer_that_saw_the_old_count,
                a_lost_session_cannot_come_back,
                a_lost_execution_is_charged_and_retried_at_once,
                a_late_report_of_a_lost_execution_is_stale,
                a_lost_execution_without_retries_is_a_dead_letter,
                recovery_is_bounded_and_says_when_there_is_more,
                losing_embedded_sessions_spares_the_others,
                work_given_back_is_neither_charged_nor_numbered,
                work_given_back_returns_to_its_place,
                giving_back_a_lease_that_is_gone_does_nothing,
                a_resync_gives_back_only_what_is_not_held,
                a_resync_uses_up_its_turn,
                a_resync_with_a_used_turn_is_stale,
                a_closed_session_gives_back_all_it_holds,
            }
            views {
                what_is_not_there_is_not_found,
                a_status_follows_the_life_of_a_job,
                a_live_execution_names_its_worker,
                history_is_listed_latest_first_in_pages,
                jobs_are_listed_latest_first_in_pages,
                lists_filter_by_every_field,
                lists_filter_by_every_status,
                a_filtered_list_reaches_the_oldest_job_through_its_cursors,
                dead_letters_are_listed_latest_first_in_pages,
                depths_count_what_is_live_by_lane,
            }
            house {
                log_lines_are_read_in_order_and_in_pages,
                log_lines_of_other_executions_stay_out,
                retention_deletes_only_what_is_older,
                retention_is_bounded_and_says_when_there_is_more,
                a_token_is_found_by_its_id_and_can_be_replaced,
            }
        }
    };
}

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {
        $(pub mod $module;)*

        /// All cases by name.
        pub const CASES: &[(&str, Case)] = &[$($((
            concat!(stringify!($module), "::", stringify!($case)),
            |store| Box::pin($module::$case(store)),
        )),*),*];
    };
}
each_conformance_case!(define);
