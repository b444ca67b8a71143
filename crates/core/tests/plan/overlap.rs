//! Fires while occurrences are open, and what a schedule passes on to the occurrences that it fires.

use crate::{at, every, fired_at, plan, state};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::SessionId;
use punctual_core::job::Expiry;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::{Cancelled, Live, LiveState, OccurrenceFlags, Origin};
use punctual_core::rank::Shares;
use punctual_core::schedule::{
    FirePlan, Overlap, OverlapPolicy, Present, Schedule, ScheduleState, SkipRange, SkipReason,
};

const BEHIND: LiveState = LiveState::Waiting(Gates::only(Gate::Overlap));

fn beside(state: &ScheduleState, now: i64, present: Present) -> FirePlan {
    state.plan(at(now), present, &mut Shares::default())
}

/// Fires under this policy at second 10 and again at `now`, while the occurrence of the first fire is open.
fn beside_first(policy: OverlapPolicy, now: i64, is_running: bool) -> (Live, FirePlan) {
    let first = plan(&state(every(10), policy), 10);
    let mut live = first.fired[0].clone();
    if is_running {
        live = live.claimed(SessionId(1), 1, at(11)).unwrap();
    }
    let present = Present { open: 1, replaceable: vec![live.clone()], ..Present::default() };
    (live, beside(&first.next.unwrap(), now, present))
}

fn states(plan: &FirePlan) -> Vec<LiveState> {
    plan.fired.iter().map(|live| live.state).collect()
}

fn skipped(first: i64, last: i64, count: u64, reason: SkipReason) -> SkipRange {
    SkipRange { first: at(first), last: at(last), count, reason }
}

#[test]
fn under_queue_each_occurrence_waits_behind_the_one_before() {
    let plan = plan(&state(every(10), OverlapPolicy::Queue), 30);
    assert_eq!(states(&plan), [LiveState::Queued, BEHIND, BEHIND]);
    assert!(plan.fired.iter().all(|live| live.flags.followed));
    assert_eq!((plan.numbered, plan.replaced), (3, vec![]));
}

#[test]
fn under_queue_what_exceeds_the_limit_is_skipped() {
    let overlap = Overlap { policy: OverlapPolicy::Queue, limit: 2, ..Overlap::default() };
    let queue = ScheduleState { overlap, ..state(every(10), OverlapPolicy::Queue) };
    let none_open = plan(&queue, 50);
    assert_eq!(states(&none_open), [LiveState::Queued, BEHIND, BEHIND]);
    assert_eq!(none_open.skipped, [skipped(40, 50, 2, SkipReason::Overlap)]);
    let one_waits = beside(&queue, 30, Present { open: 2, behind: 1, ..Present::default() });
    assert_eq!((fired_at(&one_waits), states(&one_waits)), (vec![at(10)], vec![BEHIND]));
    assert_eq!(one_waits.skipped, [skipped(20, 30, 2, SkipReason::Overlap)]);
}

#[test]
fn no_more_are_open_than_may_be() {
    for policy in [OverlapPolicy::Allow, OverlapPolicy::Queue] {
        let bounded =
            ScheduleState { overlap: Overlap { policy, limit: 10, max_open: 3 }, ..state(every(10), policy) };
        let plan = beside(&bounded, 40, Present { open: 1, ..Present::default() });
        assert_eq!(fired_at(&plan), [at(10), at(20)], "{policy:?}");
        assert_eq!(plan.skipped, [skipped(30, 40, 2, SkipReason::Backlog)], "{policy:?}");
    }
}

#[test]
fn under_replace_what_has_not_started_gives_way_and_the_new_one_starts_at_once() {
    let (open, plan) = beside_first(OverlapPolicy::Replace, 20, false);
    assert_eq!((fired_at(&plan), states(&plan)), (vec![at(20)], vec![LiveState::Queued]));
    let [Cancelled::Closed(settled)] = &plan.replaced[..] else { panic!("{:?}", plan.replaced) };
    assert_eq!((settled.finished.id, settled.finished.status), (open.execution(), Status::Cancelled));
}

#[test]
fn under_replace_what_runs_is_asked_to_stop_and_the_new_one_waits_for_it() {
    let (open, plan) = beside_first(OverlapPolicy::Replace, 20, true);
    assert_eq!((states(&plan), plan.fired[0].id.number), (vec![BEHIND], 2));
    let [Cancelled::Requested(asked)] = &plan.replaced[..] else { panic!("{:?}", plan.replaced) };
    assert_eq!(asked.id, open.id);

    let present = Present {
        open: 2,
        replaceable: vec![asked.clone(), plan.fired[0].clone()],
        behind: 1,
        ..Present::default()
    };
    let again = beside(&plan.next.unwrap(), 30, present);
    assert_eq!(states(&again), [BEHIND], "the first one still runs");
    let [Cancelled::Closed(settled)] = &again.replaced[..] else { panic!("{:?}", again.replaced) };
    assert_eq!(settled.finished.id.occurrence.number, 2);
}

#[test]
fn under_replace_only_the_latest_of_several_that_are_due_is_opened() {
    for is_running in [false, true] {
        let (_, plan) = beside_first(OverlapPolicy::Replace, 50, is_running);
        assert_eq!((fired_at(&plan), plan.numbered), (vec![at(50)], 2));
        assert_eq!(states(&plan), [if is_running { BEHIND } else { LiveState::Queued }]);
        assert_eq!(plan.skipped, [skipped(20, 40, 3, SkipReason::Overlap)]);
        assert_eq!((plan.replaced.len(), plan.next.unwrap().fired), (1, 2));
    }
}

#[test]
fn a_trigger_gives_way_to_an_occurrence_that_fires_late() {
    let replace = state(every(10), OverlapPolicy::Replace);
    let triggered = Live { origin: Origin::Trigger, ..plan(&replace, 12).fired[0].clone() };
    let triggered = Live { scheduled_time: at(11), ..triggered };
    let present = Present { open: 1, replaceable: vec![triggered], ..Present::default() };
    let late = beside(&replace, 12, present);
    assert_eq!((fired_at(&late), late.replaced.len()), (vec![at(10)], 1));
}

#[test]
fn what_fires_beside_some_that_wait_knows_of_them() {
    let present = |behind| Present { open: 2, behind, ..Present::default() };
    let allow = state(every(10), OverlapPolicy::Allow);
    assert!(!beside(&allow, 10, present(0)).fired[0].flags.followed);
    assert!(beside(&allow, 10, present(1)).fired[0].flags.followed);
}

#[test]
fn an_occurrence_expires_counted_from_its_scheduled_time() {
    let expiring = |schedule: Schedule, expiry| {
        let state = ScheduleState { expiry, ..state(schedule, OverlapPolicy::Allow) };
        plan(&state, 25).fired.iter().map(|live| live.expires_at).collect::<Vec<_>>()
    };
    let after = Some(Expiry::AfterMs(30_000));
    assert_eq!(expiring(every(10).into(), after), [Some(at(40)), Some(at(50))]);
    assert_eq!(expiring(Schedule::OneTime { at: at(5) }, after), [Some(at(35))]);
    assert_eq!(expiring(Schedule::OneTime { at: at(5) }, Some(Expiry::At(at(60)))), [Some(at(60))]);
    assert_eq!(expiring(every(10).into(), None), [None, None]);
}

#[test]
fn a_one_time_job_waits_for_those_that_it_depends_on() {
    let once = state(Schedule::OneTime { at: at(5) }, OverlapPolicy::Skip);
    let waits = beside(&once, 5, Present { waits_for_parents: true, ..Present::default() });
    assert_eq!(states(&waits), [LiveState::Waiting(Gates::only(Gate::Dependency))]);
    assert_eq!((waits.numbered, waits.next), (1, None));
    assert_eq!(states(&plan(&once, 5)), [LiveState::Queued]);
}

#[test]
fn a_one_time_job_is_not_skipped_but_waits_behind_what_is_open() {
    let once = |policy| state(Schedule::OneTime { at: at(5) }, policy);
    let open = Present { open: 1, waits_for_parents: true, ..Present::default() };
    for policy in [OverlapPolicy::Skip, OverlapPolicy::Queue] {
        let plan = beside(&once(policy), 5, open.clone());
        let gates = Gates::only(Gate::Dependency).with(Gate::Overlap);
        assert_eq!((states(&plan), plan.skipped), (vec![LiveState::Waiting(gates)], vec![]));
    }
    let beside_others = beside(&once(OverlapPolicy::Allow), 5, Present { open: 1, ..Present::default() });
    assert_eq!(states(&beside_others), [LiveState::Queued]);

    let running = plan(&once(OverlapPolicy::Replace), 5).fired[0].claimed(SessionId(1), 1, at(6)).unwrap();
    let present = Present { open: 1, replaceable: vec![running], ..Present::default() };
    let replacing = beside(&once(OverlapPolicy::Replace), 7, present);
    assert_eq!(states(&replacing), [BEHIND]);
    assert!(matches!(replacing.replaced[..], [Cancelled::Requested(_)]));
}

#[test]
fn an_occurrence_knows_who_waits_for_its_job() {
    for schedule in [Schedule::OneTime { at: at(5) }, every(5).into()] {
        for awaited in [false, true] {
            let state = ScheduleState { awaited, ..state(schedule.clone(), OverlapPolicy::Skip) };
            assert_eq!(
                plan(&state, 5).fired[0].flags,
                OccurrenceFlags { awaited, ..OccurrenceFlags::default() }
            );
        }
    }
}

#[test]
fn numbers_go_on_from_what_triggers_took() {
    let numbered = ScheduleState { numbered: 7, ..state(every(10), OverlapPolicy::Allow) };
    let plan = plan(&numbered, 20);
    assert_eq!(plan.fired.iter().map(|live| live.id.number).collect::<Vec<_>>(), [8, 9]);
    let next = plan.next.unwrap();
    assert_eq!((plan.numbered, next.numbered, next.fired), (9, 9, 2));
}
