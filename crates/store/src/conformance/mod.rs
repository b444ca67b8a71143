//! The definition of a store's behaviour: cases that every adapter passes, each with its own empty
//! database.
//!
//! A case is a plain async function over the port. It must not know which adapter it runs on, and it brings
//! its own times: no case waits.

#![expect(clippy::missing_panics_doc, reason = "a case that fails panics: that is how it reports")]

#[cfg(test)]
pub(crate) mod counter_mismatches;
mod fixture;
#[cfg(test)]
pub(crate) mod malformed_rows;
pub mod membership;
mod snapshot;
mod walk;

pub use walk::{PORTION, Pair, walk_alike};
#[cfg(test)]
pub(crate) use {snapshot::all_of, walk::walk_partly};

use punctual_core::limits;
use punctual_core::ports::{DeadLetterQuery, JobCounts, JobQuery, Store};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// One case, to be run with an empty store.
pub type Case = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Checks that a store's counters match what it shows; adapters call it after each case.
pub async fn counts_agree(store: &dyn Store) {
    let mut counted = store.job_counts().await.unwrap();
    let mut query = JobQuery { limit: limits::PAGE_ITEMS_MAX, ..JobQuery::default() };
    let mut shown = JobCounts { dead_letters: counted.dead_letters, ..JobCounts::default() };
    loop {
        let page = store.jobs(query.clone()).await.unwrap();
        for view in &page.items {
            *shown.of(view.status()) += 1;
        }
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    assert_eq!(counted, shown);
    let mut query = DeadLetterQuery { limit: limits::PAGE_ITEMS_MAX, ..DeadLetterQuery::default() };
    loop {
        let page = store.dead_letters(query.clone()).await.unwrap();
        counted.dead_letters -= page.items.len() as u64;
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    assert_eq!(counted.dead_letters, 0, "dead letters that are counted and not shown");
}

/// Passes the list of all cases, by module, to another macro: to this module's own for [`CASES`], and to an
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
            keys {
                an_idempotency_key_names_one_job,
                an_idempotency_key_names_its_job_after_that_has_finished,
                a_repeated_submit_of_a_keyed_job_is_already_there,
                the_first_of_a_batch_gets_the_key,
                racing_submits_with_one_key_create_one_job,
                owners_have_keys_of_their_own,
                a_key_names_either_one_job_or_one_unfinished_job,
                a_deleted_job_frees_its_keys,
                a_retired_job_frees_its_keys,
                a_job_that_was_put_by_its_name_keeps_it_until_it_is_deleted,
                racing_puts_by_one_name_create_one_job,
                an_update_may_let_a_free_name_identify_the_job,
                a_name_identifies_one_job_that_was_put_by_it,
                a_unique_key_admits_one_unfinished_job,
                every_end_of_a_job_gives_its_unique_key_free,
                a_cancelled_job_keeps_its_unique_key_while_it_runs,
                a_finished_job_whose_unique_key_was_taken_cannot_begin_again,
            }
            dependencies {
                a_child_waits_until_all_its_parents_have_succeeded,
                a_repeated_submit_of_a_child_whose_parent_is_gone_is_known,
                the_final_failure_of_one_parent_skips_the_child,
                a_failure_that_is_retried_leaves_the_child_waiting,
                a_skipped_child_skips_its_own_children,
                a_chain_runs_link_by_link,
                a_child_whose_parents_are_done_waits_for_its_time,
                a_child_that_is_due_waits_for_its_parents,
                a_child_that_is_to_come_is_skipped_with_its_schedule,
                a_child_of_a_parent_that_is_done_starts_at_once,
                a_child_of_a_parent_that_did_not_succeed_is_skipped_at_once,
                what_cannot_be_depended_on_is_refused,
                a_batch_can_bring_parents_and_children,
                a_parent_that_is_cancelled_skips_its_children,
                a_parent_that_is_deleted_while_it_runs_skips_its_children,
                a_parent_that_expires_skips_its_children,
                a_parent_that_is_lost_for_good_skips_its_children,
                very_many_children_are_released_in_steps,
                very_many_children_are_skipped_in_steps,
                a_child_that_is_due_between_two_steps_waits_for_its_turn,
                a_child_that_was_cancelled_stays_cancelled,
                a_child_that_was_deleted_stays_deleted,
                a_paused_child_is_released_and_still_held,
                a_redriven_parent_has_new_children_wait,
                a_parent_fails_when_nothing_of_it_can_succeed_any_more,
                whichever_run_of_a_parent_ends_last_tells_its_children,
                a_parent_whose_run_is_replaced_keeps_its_children_waiting,
                a_run_in_line_behind_a_skipped_child_starts,
                a_skipped_child_that_was_triggered_before_goes_on_counting,
            }
            time {
                due_lists_what_falls_due_in_order,
                due_is_limited_per_segment_and_looks_only_at_its_segments,
                a_fire_opens_the_occurrence_of_a_one_time_job,
                a_fire_before_its_time_is_not_due,
                an_expiry_beyond_the_calendar_can_be_read,
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
            overlap {
                queued_occurrences_start_one_after_the_other,
                the_line_moves_on_although_fewer_may_be_open_by_now,
                occurrences_queue_up_to_the_limit,
                the_line_moves_on_however_its_first_one_ends,
                one_in_line_can_leave_it,
                the_line_waits_for_the_retries_of_its_first_one,
                a_replaced_occurrence_that_has_not_started_is_cancelled,
                a_replaced_run_is_asked_to_stop_and_its_successor_waits_for_the_end,
                a_successor_starts_when_the_worker_of_the_replaced_run_is_lost,
                a_successor_starts_when_the_replaced_run_is_given_back,
                a_successor_that_waits_is_replaced_in_turn,
                no_more_than_max_open_occurrences_are_open,
            }
            replay {
                a_replay_waits_for_room_instead_of_being_cut,
                all_that_were_found_late_run_even_within_the_grace,
                a_regular_occurrence_waits_behind_a_replayed_one_and_goes_next,
                a_replay_fills_the_line_but_for_one_place_and_lets_regular_ones_go_first,
                a_replay_beside_others_leaves_room_for_a_regular_occurrence,
                a_replaced_occurrence_is_never_a_replayed_one,
                a_replay_is_woken_however_an_occurrence_ends,
                what_was_open_before_a_replay_wakes_it,
                a_replay_that_waits_is_held_by_a_pause_and_tried_by_the_resume,
                higher_limits_wake_a_replay,
                an_update_keeps_a_replay_or_skips_the_rest_of_it,
            }
            gates {
                a_failed_attempt_waits_behind_its_time_gate,
                a_time_gate_opens_when_its_time_has_come,
                a_time_gate_does_not_open_before_its_time,
                a_time_gate_opens_once,
                a_time_gate_of_another_attempt_conflicts,
                an_opened_gate_leases_to_a_valid_offer,
                an_offer_made_for_another_lane_is_not_taken,
            }
            expiry {
                what_is_queued_expires_when_it_is_looked_at,
                what_has_expired_is_not_claimed,
                what_is_claimed_in_time_does_not_expire,
                what_comes_back_after_its_expiry_is_not_claimed_again,
                what_waits_for_its_retry_expires,
                a_retry_keeps_the_expiry_of_its_occurrence,
                a_retry_that_would_come_after_the_expiry_is_a_dead_letter,
                what_a_pause_holds_expires_all_the_same,
                each_fire_of_a_recurring_job_expires_for_itself,
                an_offer_does_not_take_what_has_expired,
                a_run_found_after_its_expiry_ends_at_its_first_look,
                a_redriven_occurrence_does_not_expire,
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
            queues {
                nothing_of_a_paused_queue_is_claimed,
                a_resumed_queue_names_all_its_lanes,
                an_offer_takes_nothing_of_a_paused_queue,
                one_batch_of_offered_jobs_heeds_each_queue,
                what_runs_of_a_paused_queue_finishes_and_goes_back,
                a_paused_cluster_hands_out_nothing,
                paused_queues_are_listed,
                an_execution_knows_how_many_go_before_it,
            }
            depth {
                a_full_queue_refuses_what_would_join_it,
                what_waits_counts_as_much_as_what_is_queued,
                a_batch_fills_a_queue_to_its_limit_and_no_further,
                racing_submits_never_exceed_the_limit,
                what_was_accepted_for_later_is_never_refused,
                a_repeated_submit_to_a_full_queue_is_known,
                a_limit_holds_until_it_is_taken_away,
                settings_of_queues_are_listed_with_their_pauses,
            }
            wait_lists {
                no_more_of_a_queue_run_at_once_than_it_allows,
                lines_are_found_a_page_at_a_time,
                each_key_has_a_limit_of_its_own,
                what_has_passed_its_key_waits_for_its_queue,
                a_line_goes_by_rank,
                an_attempt_that_waits_for_its_retry_holds_no_place,
                an_execution_that_left_a_wait_list_is_not_waited_for,
                a_pause_holds_no_place,
                what_comes_back_or_is_lost_keeps_its_place,
                a_limit_that_is_raised_or_taken_away_lets_more_go_on,
                a_limit_of_a_queue_counts_what_was_there_before,
                starts_are_paced_by_a_rate,
                a_rate_that_is_changed_holds_at_once,
                a_paused_queue_spends_nothing_of_its_limits,
                what_has_left_a_queue_no_longer_counts_there,
                each_key_is_paced_by_itself,
                an_update_takes_a_place_in_the_other_queue,
                an_update_takes_a_place_under_the_other_key,
                what_follows_takes_its_place_in_line,
                limits_are_kept_with_their_queue,
                racing_workers_never_exceed_a_limit,
            }
            readmission {
                a_limit_reaches_what_is_queued,
                a_rate_reaches_all_that_is_queued_in_steps,
                a_limit_of_keys_reaches_those_who_have_one,
                a_limit_of_the_queue_leaves_keys_as_they_are,
                what_runs_goes_on_and_counts,
                what_runs_when_a_rate_is_set_counts_as_started,
                what_is_given_back_keeps_its_place_while_there_is_one,
                what_is_given_back_takes_the_place_of_its_key,
                what_goes_back_in_line_can_expire_there,
                a_limit_that_is_raised_reaches_nobody,
                a_limit_that_is_taken_away_on_the_way_lets_all_go_on,
                what_leaves_the_queue_on_the_way_is_left_alone,
                two_at_once_have_everybody_take_one_place,
            }
            events {
                what_finished_is_followed_in_the_order_of_the_commits,
                times_of_runs_are_followed_with_their_jobs,
                places_are_never_given_twice,
                what_retention_took_away_is_told,
                what_belonged_to_deleted_jobs_is_told_until_they_are_purged,
                open_executions_are_shown_as_they_stand,
                all_that_runs_is_walked_over_in_pages,
                executions_of_all_jobs_are_listed_by_how_they_stand,
                a_list_of_executions_is_filtered_and_goes_on,
                a_list_of_executions_is_filtered_by_owner_and_goes_on,
                queued_executions_are_listed_in_the_order_of_claims,
                executions_that_ended_within_a_time_are_found_from_its_end,
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
                a_snoozed_attempt_comes_again_and_is_not_charged,
                no_retries_means_at_most_once,
                a_cancelled_run_ends_the_job_cancelled,
                a_recurring_job_outlives_a_failed_occurrence,
                one_call_settles_many_reports_in_order,
                an_error_that_the_job_calls_final_is_not_retried,
                a_loss_that_the_job_calls_final_is_not_retried,
                a_growing_timeout_grows_with_every_charged_attempt,
            }
            notes {
                what_is_noted_is_shown_until_the_occurrence_succeeds,
                the_next_attempt_begins_with_the_last_checkpoint,
                a_checkpoint_comes_along_with_an_offer,
                a_checkpoint_survives_a_lost_worker_and_a_give_back,
                a_note_counts_only_under_its_live_lease,
                a_late_copy_of_a_note_does_not_undo_a_newer_one,
                a_null_checkpoint_forgets_the_one_before,
                a_dead_letter_keeps_its_notes_for_a_redrive,
                a_discarded_dead_letter_takes_its_notes_along,
                every_other_end_takes_the_notes_along,
                what_runs_of_a_deleted_job_may_still_note_and_leaves_nothing,
                a_deleted_job_takes_the_notes_of_its_dead_letters_along,
                an_update_leaves_what_is_noted,
            }
            sessions {
                sessions_are_listed_until_they_close,
                a_session_has_its_token_until_it_is_closed_or_recovered,
                what_a_worker_told_last_is_kept_for_as_long_as_its_session,
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
                a_paused_session_gets_no_work_and_keeps_what_it_has,
                a_draining_session_is_told_with_its_beat,
                a_session_that_says_that_it_drains_gets_no_work_and_stays_so,
            }
            pause {
                a_pause_holds_what_is_queued,
                a_pause_lets_what_runs_finish,
                a_paused_schedule_does_not_fall_due,
                a_one_time_job_whose_time_passed_in_a_pause_runs_late,
                a_job_resumed_before_its_time_waits_for_it,
                what_fell_due_in_a_pause_is_skipped_as_one_range,
                a_schedule_that_ended_in_a_pause_completes_the_job_on_resume,
                a_retry_that_falls_due_in_a_pause_waits_for_the_resume,
                what_comes_back_in_a_pause_is_held,
                pausing_twice_is_pausing_once,
                what_has_finished_cannot_be_paused_or_resumed,
            }
            adjust {
                a_schedule_fires_only_under_calendars_that_the_caller_knows,
                the_next_occurrence_is_skipped_or_moved,
                a_backfill_runs_past_occurrences,
            }
            trigger {
                a_trigger_adds_an_occurrence_and_leaves_the_schedule,
                numbers_are_unique_across_fires_and_triggers,
                a_trigger_obeys_the_policy_skip_unless_told_otherwise,
                a_run_with_its_own_payload_keeps_it_through_retries_and_a_redrive,
                a_trigger_under_allow_runs_beside,
                a_trigger_under_queue_waits_in_line_while_there_is_room,
                a_trigger_under_replace_takes_the_place_of_what_is_open,
                a_trigger_works_while_the_job_is_paused,
                the_next_pause_holds_what_was_triggered_in_the_last,
                a_trigger_makes_a_finished_job_active_again,
                a_cancelled_job_cannot_be_triggered,
                a_one_time_run_comes_after_what_was_triggered_before,
            }
            cancel {
                a_cancelled_job_does_not_fire,
                cancelling_a_job_ends_what_is_queued,
                cancelling_a_job_ends_what_waits_for_its_retry,
                cancelling_a_job_asks_what_runs_to_stop,
                a_cancelled_run_is_never_retried,
                cancelling_a_job_takes_all_its_occurrences,
                a_paused_job_can_be_cancelled,
                cancelling_twice_is_cancelling_once,
                what_has_finished_cannot_be_cancelled,
                cancelling_an_execution_that_has_not_started_ends_it,
                cancelling_an_execution_that_runs_asks_its_worker,
                an_outcome_accepted_before_the_cancel_stands,
                cancelling_names_one_attempt,
                a_recurring_job_outlives_a_cancelled_execution,
            }
            unused {
                a_lane_that_went_with_its_last_job_is_there_again_for_the_next,
                names_in_use_stay,
                a_job_moves_to_a_lane_that_was_deleted,
                claims_find_what_is_queued_among_many_lanes,
            }
            update {
                an_update_names_the_version_it_was_made_from,
                an_update_that_changes_nothing_keeps_the_version,
                another_stored_form_of_a_payload_is_no_update,
                what_names_a_job_cannot_be_changed,
                a_new_queue_or_job_type_moves_what_is_queued,
                a_new_queue_moves_what_waits_for_its_retry,
                a_new_queue_moves_the_retry_of_what_runs,
                a_new_queue_moves_what_is_to_come,
                a_new_priority_reorders_what_is_queued,
                the_next_claim_runs_by_the_new_description,
                what_runs_keeps_the_version_it_was_claimed_by,
                a_gate_that_opens_to_an_offer_hands_out_the_new_description,
                a_new_schedule_counts_from_now,
                a_schedule_that_is_renewed_from_behind_repeats_no_time_of_the_spent_one,
                a_run_that_has_not_started_moves_to_its_new_time,
                a_finished_job_with_a_new_time_runs_again,
                a_paused_job_stays_paused_under_its_new_description,
                a_cancelled_job_cannot_be_updated,
                an_update_that_moves_nothing_wakes_nobody,
            }
            delete {
                a_deleted_job_is_hidden_everywhere,
                a_page_without_deleted_jobs_still_leads_on,
                deleting_ends_what_has_not_started,
                what_runs_of_a_deleted_job_still_reports,
                a_purge_removes_what_is_left_of_deleted_jobs,
                a_purge_waits_for_what_runs,
                a_purge_leaves_what_has_just_ended,
                a_purge_is_bounded_and_says_when_there_is_more,
            }
            dead_letters {
                a_redrive_adds_the_next_attempt_to_the_same_occurrence,
                a_redriven_occurrence_has_a_fresh_budget,
                the_epoch_of_a_redriven_occurrence_goes_on,
                redriving_twice_finds_nothing,
                retrying_a_job_redrives_its_latest_dead_occurrence,
                a_redrive_waits_behind_what_is_open,
                a_redrive_under_allow_runs_beside_what_is_open,
                a_redrive_of_a_paused_job_waits_for_the_resume,
                a_cancelled_job_is_not_redriven,
                a_discarded_dead_letter_is_gone,
                a_dead_letter_tells_what_died,
                dead_letters_are_filtered_by_every_field,
                filtered_dead_letters_are_listed_in_pages,
            }
            requests {
                a_new_request_is_begun_by_its_first_call,
                a_repeated_request_goes_on_with_the_first_time_and_seed,
                an_answered_request_is_answered_again,
                an_answer_to_a_request_that_was_never_begun_is_not_kept,
                a_key_used_for_something_else_is_noticed,
                tokens_have_keys_of_their_own,
                racing_requests_with_one_key_begin_once,
                a_request_is_forgotten_after_a_day,
            }
            views {
                what_is_not_there_is_not_found,
                a_status_follows_the_life_of_a_job,
                a_live_execution_names_its_worker,
                history_is_listed_latest_first_in_pages,
                jobs_are_listed_latest_first_in_pages,
                lists_filter_by_every_field,
                jobs_have_their_owners_and_lanes,
                lists_filter_by_schedule_tags_and_text,
                lists_filter_by_every_status,
                jobs_with_a_further_run_are_listed_without_the_others,
                a_filtered_list_reaches_the_oldest_job_through_its_cursors,
                dead_letters_are_listed_latest_first_in_pages,
                depths_count_what_is_live_by_lane,
                jobs_are_counted_by_status,
            }
            pages {
                a_page_of_jobs_is_bounded_by_its_payloads,
                a_page_holds_one_item_however_large,
                pages_of_what_has_ended_are_bounded_by_results,
                all_executions_of_a_job_are_listed_once_while_they_finish,
                a_page_of_dead_letters_is_bounded_by_errors,
                a_page_of_log_lines_is_bounded_by_what_they_say,
            }
            directory {
                a_token_is_found_by_its_id_and_can_be_replaced,
                a_token_is_added_only_where_none_has_its_id,
                a_token_is_changed_only_while_it_is_as_expected,
                a_change_of_tokens_or_users_and_its_entry_are_one,
                a_removed_token_is_gone,
                tokens_are_listed_by_id_in_pages,
                the_last_use_of_a_token_only_grows,
                an_email_address_belongs_to_one_user,
                users_are_changed_and_listed_by_id_in_pages,
                a_secret_is_added_once_and_changed_only_in_the_expected_version,
                secrets_are_listed_by_name_in_pages,
                documents_change_by_version_and_all_or_none,
                documents_are_listed_by_kind_and_name_in_pages,
                a_document_changes_once_when_many_change_it,
                additions_at_once_do_not_exceed_their_limit,
            }
            maintenance {
                log_lines_are_read_in_order_and_in_pages,
                log_lines_of_other_executions_stay_out,
                a_log_is_kept_within_its_bounds,
                retention_deletes_only_what_is_older,
                retention_is_bounded_and_says_when_there_is_more,
                the_note_of_a_steady_clock_is_kept_and_replaced,
                jobs_that_finished_long_ago_are_retired,
                a_job_with_a_dead_letter_is_not_retired,
                every_finished_status_is_retired,
                retirement_walks_over_the_jobs_in_steps,
                retention_reaches_skipped_ranges,
                retention_reaches_starts_that_pace_nothing_any_more,
            }
            audit {
                the_entry_of_a_change_is_written_with_it,
                a_refused_change_leaves_its_refusal,
                a_batch_has_one_entry_with_its_count,
                a_repeated_write_has_one_entry,
                entries_are_sealed_in_order_and_in_steps,
                retention_deletes_the_beginning_of_the_chain,
                entries_are_found_by_what_they_say,
            }
            racing {
                two_claimers_share_all_there_is,
                eight_claimers_share_all_there_is,
                a_claim_against_a_cancel,
                a_report_against_a_cancel,
                a_claim_against_a_give_back,
                a_claim_against_a_resync_of_another,
                a_claim_against_a_resync_with_the_same_turn,
                a_report_against_the_loss_of_its_session,
                one_report_from_many_at_once,
                two_schedulers_fire_each_time_once,
                eight_schedulers_fire_each_time_once,
                a_fire_against_an_update,
                a_fire_against_a_pause,
                a_fire_against_a_delete,
                a_fire_against_a_report_under_queue,
                a_fire_against_a_report_under_replace,
                a_fire_against_a_report_under_skip,
                one_submit_from_many_at_once,
                one_idempotency_key_from_many_at_once,
                one_unique_key_from_many_at_once,
                one_first_token_from_many_at_once,
                one_rotation_of_a_token_from_many_at_once,
                one_email_address_from_many_at_once,
                a_submit_against_the_end_of_the_holder_of_its_unique_key,
                a_child_against_the_success_of_its_parent,
                a_child_against_the_failure_of_its_parent,
                two_parents_that_succeed_at_once,
                two_parents_that_end_differently_at_once,
                a_trigger_against_the_last_end,
                a_redrive_against_a_discard,
                a_submit_against_the_deletion_of_its_lane,
                maintenance_against_all_the_rest,
                sealers_continue_one_chain,
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
