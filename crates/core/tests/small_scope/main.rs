//! An exhaustive search of all interleavings in a small model, with core's real rules.
//!
//! Two schedulers, two workers and an observer share a store with two jobs: a one-shot that may be retried
//! once, and a recurring one with two occurrences that run at most once each. The store's verbs do
//! compare-and-swap as `ports::Store` says and leave every decision to core. Any party may stop for any time
//! between two steps, so a paused worker, a late fire or a gate opened twice needs no separate step.
//!
//! [`Bounds`] names everything that keeps a search finite: faults (crash, lost answer, duplicate message,
//! give-back, cancel) share one budget, sessions and heartbeats are few, and time is not counted. Everything
//! at once is still too much, so there are several searches with different bounds. Within its bounds, each
//! search is complete. The broken rules at the end show that a search detects violations.

mod store;
mod world;

use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use store::{Broken, ONE_SHOT, RECURRING};
use world::{Bounds, Scope, property};

/// All parties and jobs, but no fault except silence.
const WHOLE_HOUSE: Bounds = Bounds {
    jobs: &[ONE_SHOT, RECURRING],
    schedulers: 2,
    sessions: 2,
    slots: 1,
    faults: 0,
    is_observed: true,
};
/// Schedulers race while messages are lost; no session is lost.
const SCHEDULERS_RACE: Bounds = Bounds { faults: 2, is_observed: false, ..WHOLE_HOUSE };
/// One occurrence with every pair of faults, and what follows a lost session.
const RETRIED: Bounds = Bounds { jobs: &[ONE_SHOT], schedulers: 1, sessions: 3, faults: 2, ..WHOLE_HOUSE };
/// Workers that hold two leases at once, so that a resync keeps one and returns the other.
const TWO_LEASES: Bounds = Bounds { jobs: &[RECURRING], schedulers: 1, slots: 2, faults: 2, ..WHOLE_HOUSE };

/// Searches completely and expects no violation.
fn holds(bounds: Bounds) {
    let checker = Scope { bounds, broken: None }.checker().spawn_bfs().join();
    for (name, path) in checker.discoveries() {
        assert!(!property::is_guarantee(name), "not so: {name}\n{:#?}", path.into_actions());
    }
    assert!(checker.is_done(), "the search was cut short");
    println!(
        "{} states, {} different ones, at most {} steps deep",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
}

/// Expects that the search finds this: a violation if a rule is broken, otherwise an example.
fn finds(bounds: Bounds, broken: Option<Broken>, name: &'static str) {
    let found = HasDiscoveries::AllOf(BTreeSet::from([name]));
    let checker = Scope { bounds, broken }.checker().finish_when(found).spawn_bfs().join();
    let path = checker.discovery(name);
    assert!(path.is_some(), "not found in {} states: {name}", checker.unique_state_count());
    println!("{name}: {:#?}", path.map(|path| path.into_actions()));
}

fn finds_violation(bounds: Bounds, broken: Broken, name: &'static str) {
    assert!(property::is_guarantee(name));
    finds(bounds, Some(broken), name);
}

#[test]
fn the_whole_house_keeps_its_guarantees() {
    holds(WHOLE_HOUSE);
}

#[test]
fn racing_schedulers_keep_the_guarantees() {
    holds(SCHEDULERS_RACE);
}

#[test]
fn an_occurrence_keeps_the_guarantees_through_every_pair_of_faults() {
    holds(RETRIED);
}

#[test]
fn workers_with_two_leases_keep_the_guarantees() {
    holds(TWO_LEASES);
}

#[test]
fn everything_can_succeed() {
    finds(SCHEDULERS_RACE, None, property::EVERYTHING_SUCCEEDS);
}

#[test]
fn what_fails_or_is_lost_can_be_retried_and_succeed() {
    finds(RETRIED, None, property::FAILED_THEN_SUCCEEDED);
    finds(RETRIED, None, property::LOST_THEN_SUCCEEDED);
}

#[test]
fn a_loss_is_final_for_what_runs_at_most_once() {
    finds(TWO_LEASES, None, property::LOST_FOR_GOOD);
}

#[test]
fn what_runs_and_what_waits_can_be_cancelled() {
    finds(RETRIED, None, property::CANCELLED_WHILE_RUNNING);
    finds(RETRIED, None, property::CANCELLED_WHILE_WAITING);
}

/// The reason for poll sequence numbers and resyncs: a copy of a poll that was answered empty may still be
/// granted.
#[test]
fn a_late_copy_of_a_poll_can_lease_unnoticed_until_the_next_turn() {
    finds(SCHEDULERS_RACE, None, property::LEASED_UNNOTICED);
}

#[test]
fn firing_from_an_old_reading_is_noticed() {
    finds_violation(SCHEDULERS_RACE, Broken::FireWithoutVersion, property::FIRED_ONCE);
}

#[test]
fn accepting_a_report_of_any_epoch_is_noticed() {
    finds_violation(RETRIED, Broken::AnyEpoch, property::HOLDS_WHAT_IT_BELIEVES);
}

#[test]
fn losing_a_session_without_comparing_its_beat_is_noticed() {
    finds_violation(WHOLE_HOUSE, Broken::LoseWithoutComparing, property::ONLY_SILENT_SESSIONS_ARE_LOST);
}

#[test]
fn opening_a_gate_twice_is_noticed() {
    finds_violation(RETRIED, Broken::OpenGateTwice, property::HOLDS_WHAT_IT_BELIEVES);
}

#[test]
fn dropping_a_retry_is_noticed() {
    finds_violation(RETRIED, Broken::LoseRetry, property::NOTHING_IS_FORGOTTEN);
}

#[test]
fn granting_a_turn_twice_is_noticed() {
    finds_violation(SCHEDULERS_RACE, Broken::AnyTurn, property::UNKNOWN_LEASES_ARE_REVEALED);
}

#[test]
fn obeying_a_late_resync_is_noticed() {
    finds_violation(TWO_LEASES, Broken::AnyTurn, property::HOLDS_WHAT_IT_BELIEVES);
}

#[test]
fn forgetting_a_cancel_on_give_back_is_noticed() {
    finds_violation(RETRIED, Broken::GiveBackForgetsCancel, property::CANCEL_IS_HONOURED);
}

#[test]
fn recovering_from_a_live_session_is_noticed() {
    finds_violation(RETRIED, Broken::RecoverFromAnyone, property::HOLDS_WHAT_IT_BELIEVES);
}

#[test]
fn retrying_a_loss_without_charge_is_noticed() {
    finds_violation(RETRIED, Broken::LossIsFree, property::WITHIN_BUDGET);
}
