//! Replays of missed occurrences wait for room and do not affect regular ones.

use crate::{HOUR, any_overlap, at, every, fired_at, run_all, state};
use proptest::prelude::*;
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::SessionId;
use punctual_core::limits;
use punctual_core::occurrence::{Cancelled, Live, LiveState};
use punctual_core::rank::Shares;
use punctual_core::schedule::{
    FirePlan, Misfire, Overlap, OverlapPolicy, Present, Recurring, Replay, Schedule, ScheduleState,
    SkipRange, SkipReason,
};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, VecDeque};

const BEHIND: LiveState = LiveState::Waiting(Gates::only(Gate::Overlap));

/// A job with open occurrences, and a worker that runs ready ones at once.
struct World {
    now: Timestamp,
    state: ScheduleState,
    /// The open occurrences, and when each ends if it runs.
    open: Vec<(Live, Option<Timestamp>)>,
    /// How long the next occurrences run, in milliseconds; the last value applies to all others.
    lengths_ms: VecDeque<i64>,
    replayed: Vec<Timestamp>,
    fates: BTreeMap<Timestamp, u32>,
    skipped: Vec<SkipRange>,
}

impl World {
    fn new(recurring: Recurring, overlap: Overlap) -> Self {
        World {
            now: at(0),
            state: ScheduleState { overlap, ..state(recurring, overlap.policy) },
            open: vec![],
            lengths_ms: VecDeque::from([0]),
            replayed: vec![],
            fates: BTreeMap::new(),
            skipped: vec![],
        }
    }

    fn recurring(&self) -> Recurring {
        match &self.state.schedule {
            Schedule::Recurring(recurring) => (**recurring).clone(),
            other => panic!("not recurring: {other:?}"),
        }
    }

    fn present(&self) -> Present {
        let count =
            |wanted: &dyn Fn(&Live) -> bool| self.open.iter().filter(|(live, _)| wanted(live)).count();
        let is_replaceable =
            |live: &&Live| self.state.overlap.policy == OverlapPolicy::Replace && !live.flags.replayed;
        let replaceable = self.open.iter().map(|(live, _)| live).filter(is_replaceable);
        Present {
            open: self.open.len(),
            behind: count(&|live| live.is_closed_by(Gate::Overlap)),
            replayed: count(&|live| live.flags.replayed),
            replayed_behind: count(&|live| live.flags.replayed && live.is_closed_by(Gate::Overlap)),
            replaceable: replaceable.cloned().collect(),
            waits_for_parents: false,
            calendars: vec![],
        }
    }

    fn fire(&mut self, now: Timestamp) -> FirePlan {
        self.now = self.now.max(now);
        let plan = self.state.plan(now, self.present(), &mut Shares::default());
        if !self.state.is_replay_waiting() && plan.next.as_ref().is_some_and(ScheduleState::is_replay_waiting)
        {
            self.open.iter_mut().for_each(|(live, _)| live.flags.followed = true);
        }
        for replaced in &plan.replaced {
            match replaced {
                Cancelled::Closed(settled) => {
                    self.open.retain(|(live, _)| live.execution() != settled.finished.id);
                }
                Cancelled::Requested(asked) => {
                    let found = self.open.iter_mut().find(|(live, _)| live.id == asked.id);
                    *found.expect("it is open") = (asked.clone(), Some(now.shifted(1_000)));
                }
            }
        }
        for live in &plan.fired {
            *self.fates.entry(live.scheduled_time).or_default() += 1;
            if live.flags.replayed {
                self.replayed.push(live.scheduled_time);
            }
            self.open.push((live.clone(), None));
        }
        let recurrence = self.recurring().recurrence;
        for range in &plan.skipped {
            let mut nominal = range.first;
            for _ in 0..range.count {
                *self.fates.entry(nominal).or_default() += 1;
                nominal = recurrence.next_time_after(nominal).expect("it goes on");
            }
        }
        self.skipped.extend(&plan.skipped);
        self.state = plan.next.clone().expect("it goes on");
        self.start(now);
        plan
    }

    /// Starts all ready occurrences.
    fn start(&mut self, now: Timestamp) {
        for (live, ends_at) in &mut self.open {
            if live.state == LiveState::Queued {
                *live = live.claimed(SessionId(1), 1, now).expect("it is ready");
                let length_ms = match self.lengths_ms.len() {
                    1 => self.lengths_ms[0],
                    _ => self.lengths_ms.pop_front().expect("there is one"),
                };
                *ends_at = Some(now.shifted(length_ms * 1_000));
            }
        }
    }

    fn first_end(&self) -> Option<Timestamp> {
        self.open.iter().filter_map(|(_, ends_at)| *ends_at).min()
    }

    /// Ends the first running occurrence as stores do: the next waiting one starts, and a waiting replay is
    /// woken.
    fn end_one(&mut self) {
        let now = self.first_end().expect("one runs");
        let ended = self.open.iter().position(|(_, ends_at)| *ends_at == Some(now)).expect("one runs");
        let (ended, _) = self.open.remove(ended);
        assert!(ended.flags.followed || !self.state.is_replay_waiting(), "a replay waits for it: {ended:?}");
        if self.open.iter().all(|(live, _)| live.is_closed_by(Gate::Overlap)) {
            let first = self.open.iter_mut().min_by_key(|(live, _)| (live.flags.replayed, live.id.number));
            if let Some((live, _)) = first {
                *live = live.gate_opened(Gate::Overlap, now).expect("it waits");
            }
        }
        self.start(now);
        if let Some(woken) = self.state.woken(now, &self.present()) {
            self.state = woken;
        }
    }

    /// Advances the time; schedules fire only while a scheduler is up.
    fn pass(&mut self, until: Timestamp, is_up: bool, mut check: impl FnMut(&World, &FirePlan)) {
        let from = std::mem::replace(&mut self.now, until);
        loop {
            let due_at = self.state.due_at.filter(|_| is_up).unwrap_or(Timestamp::MAX).max(from);
            let ends_at = self.first_end().unwrap_or(Timestamp::MAX);
            if due_at.min(ends_at) > until {
                return;
            }
            if ends_at <= due_at {
                self.end_one();
                self.runs_alone();
            } else {
                let plan = self.fire(due_at);
                check(self, &plan);
                self.runs_alone();
            }
        }
    }

    fn runs_alone(&self) {
        let running = self.open.iter().filter(|(live, _)| live.is_running()).count();
        let is_allowed = self.state.overlap.policy == OverlapPolicy::Allow;
        assert!(running <= 1 || is_allowed, "{running} run at once: {:?}", self.open);
    }

    /// How many open occurrences were not opened by a replay.
    fn regular(&self) -> usize {
        self.open.iter().filter(|(live, _)| !live.flags.replayed).count()
    }
}

fn overlap(policy: OverlapPolicy) -> Overlap {
    Overlap { policy, ..Overlap::default() }
}

fn missing(seconds: i64) -> Recurring {
    Recurring { misfire: run_all(), ..every(seconds) }
}

#[test]
fn a_week_down_is_replayed_in_full_under_every_policy() {
    for policy in [OverlapPolicy::Allow, OverlapPolicy::Skip, OverlapPolicy::Queue, OverlapPolicy::Replace] {
        let mut world = World::new(missing(60), overlap(policy));
        let back_at = at(7 * 24 * HOUR);
        world.lengths_ms = VecDeque::from([3_000]);
        world.fire(back_at);
        let mut until = back_at;
        while world.state.replay.is_some() {
            until = until.shifted(3_600_000_000);
            world.pass(until, true, |_, _| {});
            assert!(until < at(9 * 24 * HOUR), "{policy:?}: {:?}", world.state.replay);
        }
        assert_eq!(world.replayed.len(), 7 * 24 * 60 - 1, "{policy:?}: the latest is regular");
        assert!(world.replayed.is_sorted(), "{policy:?}");
        assert_eq!(world.skipped, [], "{policy:?}");
    }
}

#[test]
fn under_skip_one_is_replayed_at_a_time_and_a_regular_one_goes_next() {
    let mut world = World::new(missing(100), overlap(OverlapPolicy::Skip));
    world.lengths_ms = VecDeque::from([130_000, 1_000]);
    assert_eq!(fired_at(&world.fire(at(1_061))), [at(100)], "all are missed");
    assert_eq!(world.state.replay.as_ref().map(|replay| replay.next), Some(at(200)));
    assert_eq!(world.state.due_at, Some(at(1_061).plus(limits::REPLAY_RECHECK)), "it waits for room");

    let tried = world.fire(world.state.due_at.unwrap());
    assert_eq!((fired_at(&tried), tried.skipped), (vec![], vec![]));
    world.pass(at(1_100), true, |_, _| {});
    let states: Vec<_> = world.open.iter().map(|(live, _)| (live.scheduled_time, live.state)).collect();
    assert_eq!(states[1..], [(at(1_100), BEHIND)], "the regular one waits");
    world.pass(at(1_191), true, |_, _| {});
    assert!(world.open[0].0.is_running() && world.open[0].0.scheduled_time == at(1_100));
    world.pass(at(1_192), true, |_, _| {});
    assert_eq!((&world.replayed[..], &world.skipped[..]), (&[at(100), at(200)][..], &[][..]));
}

#[test]
fn under_skip_a_regular_one_that_waits_skips_the_next() {
    let mut world = World::new(missing(100), overlap(OverlapPolicy::Skip));
    world.lengths_ms = VecDeque::from([350_000, 1_000]);
    world.fire(at(1_061));
    world.pass(at(1_400), true, |_, _| {});
    let range = SkipRange { first: at(1_200), last: at(1_200), count: 1, reason: SkipReason::Overlap };
    let next = SkipRange { first: at(1_300), last: at(1_300), ..range };
    assert_eq!(world.skipped, [range, next, SkipRange { first: at(1_400), last: at(1_400), ..range }]);
}

#[test]
fn under_queue_a_replay_leaves_one_place_and_regular_ones_go_first() {
    let queue = Overlap { limit: 3, ..overlap(OverlapPolicy::Queue) };
    let mut world = World::new(missing(100), queue);
    world.lengths_ms = VecDeque::from([60_000]);
    assert_eq!(fired_at(&world.fire(at(1_061))), [at(100), at(200), at(300)]);
    let behind = |world: &World| world.present().behind;
    assert_eq!((behind(&world), world.state.is_replay_waiting()), (2, true));
    world.pass(at(1_100), true, |_, _| {});
    assert_eq!(behind(&world), 3);
    world.pass(at(1_121), true, |_, _| {});
    let running = world.open.iter().find(|(live, _)| live.is_running()).map(|(live, _)| live.scheduled_time);
    assert_eq!(running, Some(at(1_100)), "before those that are replayed");
}

#[test]
fn under_queue_with_one_place_no_regular_one_is_skipped_for_a_replay() {
    let queue = Overlap { limit: 1, ..overlap(OverlapPolicy::Queue) };
    let mut world = World::new(missing(100), queue);
    world.lengths_ms = VecDeque::from([250_000]);
    assert_eq!(fired_at(&world.fire(at(1_061))), [at(100)]);
    world.pass(at(1_200), true, |_, _| {});
    assert_eq!((world.open.len(), world.present().behind, &world.skipped[..]), (3, 2, &[][..]));
    world.pass(at(1_300), true, |_, _| {});
    assert_eq!(world.skipped.len(), 1, "one would run and one would wait");
}

#[test]
fn under_allow_a_replay_leaves_a_place_for_a_regular_one() {
    let allow = Overlap { max_open: 4, ..overlap(OverlapPolicy::Allow) };
    let mut world = World::new(missing(10), allow);
    world.lengths_ms = VecDeque::from([1_000_000_000]);
    let plan = world.fire(at(1_000));
    assert_eq!(fired_at(&plan), [at(1_000), at(10), at(20)], "one place is left");
    world.open.clear();
    world.state = world.state.woken(at(1_001), &Present::default()).expect("it waits");
    let plan = world.fire(at(1_001));
    assert_eq!(fired_at(&plan), [at(30), at(40), at(50)]);
    world.pass(at(1_040), true, |_, _| {});
    assert_eq!((world.regular(), &world.skipped[..]), (4, &[][..]), "as many as without a replay");
    world.pass(at(1_050), true, |_, _| {});
    let range = SkipRange { first: at(1_050), last: at(1_050), count: 1, reason: SkipReason::Backlog };
    assert_eq!(world.skipped, [range]);
}

#[test]
fn a_replay_goes_on_where_one_may_be_open_at_all() {
    let allow = Overlap { max_open: 1, ..overlap(OverlapPolicy::Allow) };
    let mut world = World::new(missing(100), allow);
    world.lengths_ms = VecDeque::from([10_000]);
    world.fire(at(1_061));
    world.pass(at(1_099), true, |_, _| {});
    assert_eq!(world.replayed, [100, 200, 300, 400].map(at));
}

#[test]
fn under_replace_nothing_that_is_replayed_is_replaced() {
    let mut world = World::new(missing(100), overlap(OverlapPolicy::Replace));
    world.lengths_ms = VecDeque::from([250_000, 30_000]);
    assert_eq!(fired_at(&world.fire(at(1_061))), [at(100)]);
    let mut replaced = vec![];
    world.pass(at(1_300), true, |_, plan| replaced.extend(plan.replaced.clone()));
    let times = replaced.iter().map(|replaced| match replaced {
        Cancelled::Closed(settled) => settled.finished.scheduled_time,
        Cancelled::Requested(live) => panic!("{live:?} runs"),
    });
    assert_eq!(times.collect::<Vec<_>>(), [at(1_100), at(1_200)], "later regular ones took their places");
    let open: Vec<_> = world.open.iter().map(|(live, _)| (live.scheduled_time, live.is_running())).collect();
    assert_eq!(open, [(at(100), true), (at(1_300), false)]);
}

#[test]
fn a_rate_is_kept_by_a_replay_that_has_waited() {
    let misfire = Misfire { replay_per_minute: Some(6), ..run_all() };
    let mut world = World::new(Recurring { misfire, ..every(100) }, overlap(OverlapPolicy::Skip));
    world.lengths_ms = VecDeque::from([32_000, 1_000]);
    world.fire(at(1_061));
    let mut fired = vec![];
    world.pass(at(1_099), true, |world, plan| {
        fired.extend(plan.fired.iter().map(|live| (world.open[0].0.available_at, live.scheduled_time)));
    });
    assert_eq!(fired, [(at(1_093), at(200))], "once there was room, and the next ten seconds later");
    assert_eq!(world.state.replay.as_ref().map(|replay| replay.due_at), Some(at(1_103)));
}

#[test]
fn how_many_are_left_counts_every_range() {
    let state = state(missing(10), OverlapPolicy::Skip);
    assert_eq!(state.replays_left(), 0);
    let replay = Replay {
        next: at(100),
        until: at(300),
        due_at: at(1_000),
        later: vec![(at(400), at(400)), (at(500), at(590))],
        waits: true,
        backfill: None,
    };
    assert_eq!(ScheduleState { replay: Some(replay), ..state }.replays_left(), 21 + 1 + 10);
}

#[test]
fn a_replay_that_waits_has_no_time_of_its_own() {
    let mut world = World::new(missing(100), overlap(OverlapPolicy::Skip));
    world.lengths_ms = VecDeque::from([30_000]);
    world.fire(at(1_061));
    assert_eq!((world.state.due_at, world.state.runs_at()), (Some(at(1_091)), Some(at(1_100))));
    let none = Present::default();
    assert_eq!(world.state.woken(at(1_062), &world.present()), None, "there is no room");
    let woken = world.state.woken(at(1_062), &none).unwrap();
    assert_eq!((woken.version, woken.due_at), (world.state.version + 1, Some(at(1_062))));
    assert_eq!(woken.woken(at(1_062), &none), None, "it is due already");
    assert_eq!(ScheduleState { due_at: None, ..world.state }.woken(at(1_062), &none), None, "it is held");
}

#[test]
fn a_replay_waits_for_a_clock_that_was_set_back() {
    let mut world = World::new(missing(100), overlap(OverlapPolicy::Skip));
    world.lengths_ms = VecDeque::from([30_000]);
    world.fire(at(1_061));
    let woken = world.state.woken(at(50), &Present::default()).unwrap();
    assert_eq!(woken.due_at, Some(at(200)), "not before its time");
    assert_eq!(woken.woken(at(51), &Present::default()), None);
    let plan = woken.plan(at(200), Present::default(), &mut Shares::default());
    assert_eq!(fired_at(&plan), [at(200)]);
    let replay = plan.next.unwrap().replay.unwrap();
    assert_eq!((replay.next, replay.due_at), (at(300), at(300)));
}

#[test]
fn what_is_missed_right_after_a_replay_is_part_of_it() {
    let misfire = Misfire { grace_ms: 0, ..run_all() };
    let mut world = World::new(Recurring { misfire, ..every(10) }, overlap(OverlapPolicy::Skip));
    world.lengths_ms = VecDeque::from([1_000_000]);
    for seconds in (11..1_000).step_by(10) {
        world.fire(at(seconds));
    }
    let replay = world.state.replay.clone().unwrap();
    assert_eq!((replay.next, replay.until, replay.later), (at(20), at(990), vec![]));
    assert_eq!(world.skipped, []);
}

proptest! {
    /// Whatever the policy, its limits, the outages and the durations of occurrences: every missed occurrence
    /// within the bounds runs once and in order, no job runs twice at once unless that is allowed, and a
    /// regular occurrence is skipped only because of other regular ones.
    #[test]
    fn a_replay_is_complete_and_regular_occurrences_do_not_suffer(
        policy in any_overlap(),
        limit in 1_u32..4,
        max_open in 1_u32..6,
        period in 1_i64..12,
        misfire_limit in prop::option::of(1_u32..20),
        replay_per_minute in prop::option::weighted(0.3, 6_u32..600),
        outages in prop::collection::vec((0_i64..60, 1_i64..400), 1..5),
        lengths_ms in prop::collection::vec(prop_oneof![0_i64..500, 0_i64..30_000], 0..60),
    ) {
        let misfire = Misfire { grace_ms: 5_000, limit: misfire_limit, replay_per_minute, ..run_all() };
        let mut world = World::new(Recurring { misfire, ..every(period) }, Overlap { policy, limit, max_open });
        world.lengths_ms = lengths_ms.into();
        // All later runs are short, so that there is room.
        world.lengths_ms.push_back(50);
        let recurrence = world.recurring().recurrence;
        let check = |world: &World, plan: &FirePlan| {
            assert!(plan.fired.len() <= limits::FIRES_PER_PLAN_MAX);
            for range in &plan.skipped {
                let others = world.regular();
                let is_right = match (range.reason, policy) {
                    (SkipReason::Misfire, _) => true,
                    (SkipReason::Backlog, _) => others >= max_open as usize,
                    (SkipReason::Overlap, OverlapPolicy::Queue) => others > limit as usize,
                    (SkipReason::Overlap, OverlapPolicy::Skip | OverlapPolicy::Replace) => others > 0,
                    _ => false,
                };
                assert!(is_right, "{range:?} beside {others} regular ones");
            }
        };
        let mut now = at(0);
        let (mut kept, mut dropped) = (0, 0);
        for (up, down) in outages {
            now = now.shifted(up * 1_000_000);
            world.pass(now, true, check);
            now = now.shifted(down * 1_000_000);
            world.pass(now, false, check);
            let oldest = now.shifted(-5_000_000);
            let missed = world.state.nominal.filter(|first| *first < oldest).map_or(0, |first| {
                recurrence.count_between(first.shifted(-1), oldest.shifted(-1))
            });
            let run = misfire_limit.map_or(missed, |limit| missed.min(u64::from(limit)));
            // Within the grace, all but the latest are replayed.
            let in_grace = world.state.nominal.map_or(0, |first| {
                recurrence.count_between(first.max(oldest).shifted(-1), now)
            });
            (kept, dropped) = (kept + run + in_grace.saturating_sub(1), dropped + missed - run);
        }
        let mut rounds = 0;
        while rounds == 0 || world.state.replay.is_some() {
            now = now.shifted(60_000_000);
            world.pass(now, true, check);
            rounds += 1;
            prop_assert!(rounds < 2_000, "{:?}", world.state);
        }
        prop_assert_eq!(world.replayed.len() as u64, kept);
        prop_assert!(world.replayed.is_sorted());
        let misfired = world.skipped.iter().filter(|range| range.reason == SkipReason::Misfire);
        prop_assert_eq!(misfired.map(|range| range.count).sum::<u64>(), dropped);
        let mut nominal = recurrence.next_time_after(at(0)).unwrap();
        while nominal < world.state.nominal.unwrap() {
            prop_assert_eq!(world.fates.remove(&nominal), Some(1), "{}", nominal);
            nominal = recurrence.next_time_after(nominal).unwrap();
        }
        prop_assert!(world.fates.is_empty());
    }
}
