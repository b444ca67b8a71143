//! The definition of coordination: cases that every adapter passes, each in its own cluster.
//!
//! A case knows neither the adapter nor the speed of its clock. Where the clock is driven, time passes when
//! the case says so. Where it is real, the case waits for the expected event, and asserts only that it did
//! not happen too early.

#![expect(clippy::missing_panics_doc, reason = "a case that fails panics: that is how it reports")]

mod stage;

pub use stage::{DrivenTime, Stage, Time, all_names, names};

/// Passes the list of all cases, by module, to another macro, which generates one test for each.
#[macro_export]
macro_rules! each_coordination_case {
    ($then:ident) => {
        $then! {
            members {
                a_member_is_seen_with_its_card_until_it_leaves,
                joining_twice_is_joining_once,
                a_beat_shows_a_new_card,
                a_card_of_some_kilobytes_is_shown_and_a_larger_one_is_refused,
                clusters_do_not_see_each_other,
                who_never_joined_is_not_there,
            }
            leases {
                one_of_many_contenders_holds_each_lease,
                many_names_are_taken_at_once_and_kept_in_their_epochs,
                epochs_rise_with_every_holder,
                leaving_frees_at_once,
                a_stale_release_is_harmless,
                every_call_can_be_repeated,
            }
            silence {
                a_silent_member_is_given_up_in_its_time,
                a_member_that_beats_is_kept,
                who_was_given_up_is_told_and_cannot_come_back,
                a_lease_of_who_was_given_up_is_free_in_a_higher_epoch,
                a_look_shows_no_lease_of_who_is_not_there,
            }
        }
    };
}

macro_rules! define {
    ($($module:ident { $($case:ident),* $(,)? })*) => {
        $(pub mod $module;)*
    };
}
each_coordination_case!(define);
