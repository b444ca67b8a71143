//! What one fire of a schedule does, with outages, policies and clock changes.

mod overlap;
mod replay;

use proptest::prelude::*;
use punctual_core::ids::JobId;
use punctual_core::job::{Job, JobSpec, StoredStatus};
use punctual_core::limits;
use punctual_core::rank::Shares;
use punctual_core::recurrence::RecurrenceSpec;
use punctual_core::schedule::{
    Beginning, FirePlan, Misfire, MisfirePolicy, OverlapPolicy, Present, Recurring, Schedule, ScheduleState,
    SkipRange, SkipReason, begin,
};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_195_400_000_000 + seconds * SECOND)
}

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn begun(schedule: impl Into<Schedule>, overlap: OverlapPolicy, created_at: Timestamp) -> ScheduleState {
    let mut spec = JobSpec::named("report");
    spec.settings.schedule = schedule.into();
    spec.settings.overlap = overlap;
    let (id, mark) = (JobId::new(created_at, 1), StoredStatus::Active);
    let job =
        Job { id, version: 1, mark, numbered: None, fired: 0, created_at, updated_at: created_at, spec };
    match begin(&job, created_at, false, &mut Shares::default()) {
        Beginning::Later(state) => state,
        other => panic!("does not begin later: {other:?}"),
    }
}

fn state(schedule: impl Into<Schedule>, overlap: OverlapPolicy) -> ScheduleState {
    begun(schedule, overlap, at(0))
}

fn every(seconds: i64) -> Recurring {
    Recurring::new(RecurrenceSpec::interval(&format!("{seconds}s"), at(0))).unwrap()
}

/// Fires every second, with this misfire policy.
fn every_second(misfire: Misfire) -> ScheduleState {
    state(Recurring { misfire, ..every(1) }, OverlapPolicy::Allow)
}

fn until(end: i64, recurring: Recurring) -> Recurring {
    let spec = RecurrenceSpec { end_at: Some(at(end)), ..recurring.recurrence.spec().clone() };
    Recurring { recurrence: Recurring::new(spec).unwrap().recurrence, ..recurring }
}

fn run_all() -> Misfire {
    Misfire { policy: MisfirePolicy::RunAll, ..Misfire::default() }
}

fn plan(state: &ScheduleState, now: i64) -> FirePlan {
    plan_at(state, at(now))
}

/// Fires while no occurrence of the job is open.
fn plan_at(state: &ScheduleState, now: Timestamp) -> FirePlan {
    plan_beside(state, now, 0)
}

/// Fires while this many occurrences are open.
fn plan_beside(state: &ScheduleState, now: Timestamp, open: usize) -> FirePlan {
    state.plan(now, Present { open, ..Present::default() }, &mut Shares::default())
}

fn fired_at(plan: &FirePlan) -> Vec<Timestamp> {
    plan.fired.iter().map(|live| live.scheduled_time).collect()
}

fn missed(first: i64, last: i64) -> SkipRange {
    let count = (last - first + 1) as u64;
    SkipRange { first: at(first), last: at(last), count, reason: SkipReason::Misfire }
}

/// Fires repeatedly at one moment until nothing is due, as if each occurrence had finished at once.
fn drain(
    mut state: ScheduleState,
    now: Timestamp,
) -> (Vec<Timestamp>, Vec<SkipRange>, Option<ScheduleState>) {
    let (mut fired, mut skipped) = (vec![], vec![]);
    while state.due_at.unwrap() <= now {
        let plan = plan_at(&state, now);
        assert!(plan.fired.len() <= limits::FIRES_PER_PLAN_MAX);
        fired.extend(fired_at(&plan));
        skipped.extend(plan.skipped);
        match plan.next {
            Some(next) => state = next,
            None => return (fired, skipped, None),
        }
    }
    (fired, skipped, Some(state))
}

#[test]
fn the_next_nominal_time_comes_from_the_previous_one_not_from_now() {
    let plan = plan(&state(every(10), OverlapPolicy::Skip), 13);
    assert_eq!(fired_at(&plan), [at(10)]);
    let next = plan.next.unwrap();
    assert_eq!((next.nominal, next.due_at, next.version, next.fired), (Some(at(20)), Some(at(20)), 2, 1));
}

#[test]
fn a_one_time_job_runs_late_rather_than_never() {
    let plan = plan(&state(Schedule::OneTime { at: at(5) }, OverlapPolicy::Skip), 1_000_000);
    assert_eq!((fired_at(&plan), plan.next), (vec![at(5)], None));
}

#[test]
fn what_lies_before_the_job_was_created_was_not_missed() {
    let state = begun(every(10), OverlapPolicy::Skip, at(1_003));
    assert_eq!(state.nominal, Some(at(1_010)));
}

#[test]
fn a_schedule_that_ended_before_its_job_began_has_nothing_to_fire() {
    let mut spec = JobSpec::named("report");
    spec.settings.schedule = until(50, every(10)).into();
    let (id, created_at) = (JobId::new(at(60), 1), at(60));
    let mark = StoredStatus::Active;
    let job =
        Job { id, version: 1, mark, numbered: None, fired: 0, created_at, updated_at: created_at, spec };
    assert_eq!(begin(&job, at(60), false, &mut Shares::default()), Beginning::Over);
}

#[test]
fn an_open_occurrence_skips_the_next_unless_overlap_is_allowed() {
    let skip = plan_beside(&state(every(10), OverlapPolicy::Skip), at(30), 1);
    assert_eq!(fired_at(&skip), []);
    let range = SkipRange { first: at(10), last: at(30), count: 3, reason: SkipReason::Overlap };
    assert_eq!(skip.skipped, [range]);
    assert_eq!(skip.next.unwrap().fired, 0);
    let allow = plan_beside(&state(every(10), OverlapPolicy::Allow), at(30), 1);
    assert_eq!(fired_at(&allow), [at(10), at(20), at(30)]);
}

#[test]
fn a_job_with_too_many_open_occurrences_skips_for_backlog() {
    let state = state(every(10), OverlapPolicy::Allow);
    let plan = plan_beside(&state, at(10), limits::MAX_OPEN_DEFAULT as usize);
    let range = SkipRange { first: at(10), last: at(10), count: 1, reason: SkipReason::Backlog };
    assert_eq!(plan.skipped, [range]);
}

#[test]
fn a_schedule_ends_at_its_last_run_or_its_end() {
    let runs = Recurring { max_runs: Some(2), ..every(10) };
    for recurring in [runs, until(25, every(10))] {
        let plan = plan(&state(recurring, OverlapPolicy::Allow), 50);
        assert_eq!((fired_at(&plan), plan.next), (vec![at(10), at(20)], None));
    }
}

#[test]
fn a_schedule_missed_beyond_its_end_is_skipped_to_the_end_only() {
    let plan = plan(&state(until(25, every(10)), OverlapPolicy::Allow), 5_000);
    let range = SkipRange { first: at(10), last: at(20), count: 2, reason: SkipReason::Misfire };
    assert_eq!(plan.skipped, [range]);
    assert_eq!((plan.fired, plan.next), (vec![], None));
}

#[test]
fn three_hours_down_skip_all_but_the_grace() {
    let plan = plan(&every_second(Misfire::default()), 3 * HOUR);
    assert_eq!(plan.skipped, [missed(1, 3 * HOUR - 61)]);
    assert_eq!(plan.fired.len(), 61);
    assert_eq!(fired_at(&plan).first(), Some(&at(3 * HOUR - 60)));
    assert_eq!(plan.next.unwrap().nominal, Some(at(3 * HOUR + 1)));
}

#[test]
fn a_year_down_is_one_range_whatever_the_policy() {
    let year = 365 * 86_400;
    let skip = plan(&every_second(Misfire::default()), year);
    assert_eq!(skip.skipped, [missed(1, year - 61)]);
    let all = plan(&every_second(Misfire { limit: Some(10), ..run_all() }), year);
    assert_eq!(all.skipped, [missed(1, year - 71)]);
    assert_eq!(all.fired.len(), 71);
}

#[test]
fn grace_includes_its_edge() {
    let grace = |grace_ms| Recurring { misfire: Misfire { grace_ms, ..Misfire::default() }, ..every(10) };
    let found = |grace_ms, now: Timestamp| {
        let plan = plan_at(&state(grace(grace_ms), OverlapPolicy::Allow), now);
        (plan.fired.len(), plan.skipped.len())
    };
    assert_eq!(found(5_000, at(15)), (1, 0));
    assert_eq!(found(5_000, at(15).shifted(1)), (0, 1));
    assert_eq!(found(0, at(10)), (1, 0));
    assert_eq!(found(0, at(10).shifted(1)), (0, 1));
}

#[test]
fn run_once_runs_the_latest_missed_if_none_is_in_grace() {
    let once = Misfire { policy: MisfirePolicy::RunOnce, ..Misfire::default() };
    let hourly = |now| {
        let recurring = Recurring { misfire: once.clone(), ..every(HOUR) };
        plan(&state(recurring, OverlapPolicy::Skip), now)
    };
    let late = hourly(3 * HOUR + 600);
    assert_eq!(fired_at(&late), [at(3 * HOUR)]);
    assert_eq!(
        (late.skipped[0].first, late.skipped[0].last, late.skipped[0].count),
        (at(HOUR), at(2 * HOUR), 2)
    );
    let next = late.next.unwrap();
    assert_eq!((next.nominal, next.replay), (Some(at(4 * HOUR)), None));

    let in_grace = hourly(3 * HOUR + 60);
    assert_eq!(fired_at(&in_grace), [at(3 * HOUR)], "it stands for those that were missed");
    assert_eq!(in_grace.skipped[0].count, 2);

    let only_one = hourly(HOUR + 600);
    assert_eq!((fired_at(&only_one), only_one.skipped), (vec![at(HOUR)], vec![]));

    let second = plan(&every_second(once.clone()), 3 * HOUR);
    assert_eq!((second.fired.len(), second.skipped), (61, vec![missed(1, 3 * HOUR - 61)]));
}

#[test]
fn run_once_runs_the_last_of_a_schedule_that_has_ended() {
    let misfire = Misfire { policy: MisfirePolicy::RunOnce, ..Misfire::default() };
    let ended = until(2 * HOUR, Recurring { misfire, ..every(HOUR) });
    let plan = plan(&state(ended, OverlapPolicy::Skip), 9 * HOUR);
    assert_eq!((fired_at(&plan), plan.next), (vec![at(2 * HOUR)], None));
}

#[test]
fn run_all_runs_every_missed_one_once() {
    let (mut fired, skipped, next) = drain(every_second(run_all()), at(3 * HOUR));
    fired.sort_unstable();
    assert_eq!(fired, (1..=3 * HOUR).map(at).collect::<Vec<_>>());
    assert_eq!(skipped, []);
    let next = next.unwrap();
    assert_eq!((next.nominal, next.replay), (Some(at(3 * HOUR + 1)), None));
}

#[test]
fn run_all_is_bounded_by_limit_and_lateness() {
    let bounded = |misfire| {
        let (fired, skipped, _) = drain(every_second(misfire), at(3 * HOUR));
        (fired.len(), skipped)
    };
    let limit = Misfire { limit: Some(100), ..run_all() };
    assert_eq!(bounded(limit), (161, vec![missed(1, 3 * HOUR - 161)]));
    let lateness = Misfire { max_lateness_ms: Some(600_000), ..run_all() };
    assert_eq!(bounded(lateness.clone()), (601, vec![missed(1, 3 * HOUR - 601)]));
    assert_eq!(bounded(Misfire { limit: Some(5), ..lateness }), (66, vec![missed(1, 3 * HOUR - 66)]));
    let within_grace = Misfire { max_lateness_ms: Some(1_000), ..run_all() };
    assert_eq!(bounded(within_grace), (61, vec![missed(1, 3 * HOUR - 61)]));
}

#[test]
fn a_replay_keeps_its_rate_and_regular_occurrences_stay_on_time() {
    let misfire = Misfire { grace_ms: 0, replay_per_minute: Some(60), limit: Some(5), ..run_all() };
    let recurring = Recurring { misfire, ..every(2) };
    let mut state = state(recurring, OverlapPolicy::Allow);
    let first = plan(&state, 1_000);
    assert_eq!(fired_at(&first), [at(1_000), at(990)], "the regular one, and the first of the replay");
    state = first.next.unwrap();
    let mut runs = vec![];
    for _ in 0..7 {
        let now = state.due_at.unwrap();
        let plan = plan_at(&state, now);
        runs.extend(fired_at(&plan).into_iter().map(|nominal| (now, nominal)));
        state = plan.next.unwrap();
    }
    let expected = [
        (1_001, 992),
        (1_002, 1_002),
        (1_002, 994),
        (1_003, 996),
        (1_004, 1_004),
        (1_004, 998),
        (1_006, 1_006),
        (1_008, 1_008),
        (1_010, 1_010),
    ];
    assert_eq!(runs[..9], expected.map(|(now, nominal)| (at(now), at(nominal))));
    assert_eq!(state.replay, None);
}

#[test]
fn a_replay_that_was_held_up_goes_on_at_its_rate() {
    let misfire = Misfire { replay_per_minute: Some(6), limit: Some(20), ..run_all() };
    let state = state(Recurring { misfire, ..every(HOUR) }, OverlapPolicy::Allow);
    let first = plan(&state, 30 * HOUR + 600).next.unwrap();
    assert_eq!(first.due_at, Some(at(30 * HOUR + 610)));
    let held_up = plan(&first, 30 * HOUR + 900);
    assert_eq!(held_up.fired.len(), 1);
    assert_eq!(held_up.next.unwrap().due_at, Some(at(30 * HOUR + 909)));
}

#[test]
fn a_second_outage_queues_behind_the_replay_of_the_first() {
    let misfire = Misfire { replay_per_minute: Some(1), ..run_all() };
    let mut state = state(Recurring { misfire, ..every(60) }, OverlapPolicy::Allow);
    let first = plan(&state, 330);
    assert_eq!(fired_at(&first), [at(300), at(60)]);
    state = first.next.unwrap();
    let second = plan(&state, 630);
    assert_eq!(fired_at(&second), [at(600), at(120)]);
    state = second.next.unwrap();
    let mut fired = vec![];
    while state.replay.is_some() {
        let plan = plan_at(&state, state.due_at.unwrap());
        fired.extend(fired_at(&plan));
        state = plan.next.unwrap();
    }
    fired.retain(|nominal| *nominal < at(600));
    assert_eq!(fired, [180, 240, 360, 420, 480, 540].map(at));
}

#[test]
fn a_schedule_ends_when_both_its_cursors_have() {
    let misfire = Misfire { replay_per_minute: Some(1), ..run_all() };
    let mut state = state(until(180, Recurring { misfire, ..every(60) }), OverlapPolicy::Allow);
    let first = plan(&state, 600);
    assert_eq!(fired_at(&first), [at(60)]);
    state = first.next.unwrap();
    assert_eq!((state.nominal, state.due_at), (None, Some(at(660))));
    state = plan(&state, 660).next.unwrap();
    let last = plan(&state, 720);
    assert_eq!((fired_at(&last), last.next), (vec![at(180)], None));
}

#[test]
fn max_runs_counts_replayed_occurrences() {
    let recurring = Recurring { misfire: run_all(), max_runs: Some(3), ..every(60) };
    let plan = plan(&state(recurring, OverlapPolicy::Allow), 600);
    assert_eq!((fired_at(&plan), plan.next), (vec![at(600), at(60), at(120)], None));
}

#[test]
fn jitter_delays_each_start_by_a_fixed_amount_within_its_bound() {
    let jittered = Recurring { jitter_ms: 5_000, ..every(60) };
    let mut current = state(jittered.clone(), OverlapPolicy::Allow);
    assert_eq!(current, state(jittered, OverlapPolicy::Allow));
    let mut delays = std::collections::BTreeSet::new();
    for run in 1..=50 {
        assert_eq!(current.nominal, Some(at(60 * run)));
        let delay = current.due_at.unwrap().since(at(60 * run));
        assert!(delay.as_millis() <= 5_000, "{delay:?}");
        delays.insert(delay);
        let plan = plan_at(&current, current.due_at.unwrap());
        assert_eq!(fired_at(&plan), [at(60 * run)]);
        current = plan.next.unwrap();
    }
    assert!(delays.len() > 40);
}

#[test]
fn jitter_widens_the_grace() {
    let misfire = Misfire { grace_ms: 1_000, ..Misfire::default() };
    let jittered = Recurring { jitter_ms: 9_000, misfire, ..every(60) };
    let state = state(jittered, OverlapPolicy::Allow);
    assert_eq!(plan(&state, 70).fired.len(), 1);
    assert_eq!(plan(&state, 71).skipped, [SkipRange { last: at(60), count: 1, ..missed(60, 60) }]);
}

/// All fires of a cron pattern in a zone during a period, each found on time.
fn fires(pattern: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    let recurring = Recurring::new(RecurrenceSpec::cron(pattern, 0).in_zone(zone)).unwrap();
    let mut state = begun(recurring, OverlapPolicy::Allow, time(from));
    let mut fired = vec![];
    while state.due_at.unwrap() <= time(to) {
        let plan = plan_at(&state, state.due_at.unwrap());
        fired.extend(fired_at(&plan).iter().map(Timestamp::to_string));
        state = plan.next.unwrap();
    }
    fired
}

#[test]
fn a_daily_job_runs_once_on_days_that_change_clocks() {
    let spring = fires("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-30T12:00:00Z");
    assert_eq!(spring, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    let autumn = fires("30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-26T12:00:00Z");
    assert_eq!(autumn, ["2026-10-24T00:30:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
}

#[test]
fn a_quarter_hourly_job_never_pauses_when_clocks_change() {
    for (from, to) in
        [("2026-03-29T00:00:00Z", "2026-03-29T03:00:00Z"), ("2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z")]
    {
        assert_eq!(fires("*/15 * * * *", "Europe/Berlin", from, to).len(), 12);
    }
}

#[test]
fn a_week_down_over_a_change_of_clocks_counts_local_hours() {
    let recurring = Recurring::new(RecurrenceSpec::cron("0 * * * *", 0).in_zone("Europe/Berlin")).unwrap();
    let state = begun(recurring, OverlapPolicy::Allow, time("2026-10-22T00:00:00Z"));
    let plan = plan_at(&state, time("2026-10-29T00:30:00Z"));
    assert_eq!(plan.skipped[0].count, 7 * 24);
}

fn any_misfire() -> impl Strategy<Value = Misfire> {
    let policy = prop_oneof![
        Just(MisfirePolicy::SkipMissed),
        Just(MisfirePolicy::RunOnce),
        Just(MisfirePolicy::RunAll)
    ];
    let bound = |max: u32| prop::option::of(1..max);
    (policy, 0_u64..20_000, bound(40), prop::option::of(0_u64..200_000), bound(600)).prop_map(
        |(policy, grace_ms, limit, max_lateness_ms, replay_per_minute)| Misfire {
            policy,
            grace_ms,
            limit,
            max_lateness_ms,
            replay_per_minute,
        },
    )
}

fn any_overlap() -> impl Strategy<Value = OverlapPolicy> {
    prop_oneof![
        Just(OverlapPolicy::Skip),
        Just(OverlapPolicy::Allow),
        Just(OverlapPolicy::Queue),
        Just(OverlapPolicy::Replace)
    ]
}

proptest! {
    /// However late a schedule is found, every nominal time up to now is fired or skipped, once, or waits in
    /// the replay; nothing runs early, and a plan stays small.
    #[test]
    fn every_nominal_time_is_accounted_for_once(
        misfire in any_misfire(),
        pattern in prop_oneof![Just("* * * * * *"), Just("*/7 * * * * *"), Just("13,14 * * * * *"), Just("* * * * *")],
        jitter_ms in prop_oneof![Just(0_u64), 1_u64..3_000],
        overlap in any_overlap(),
        waits in prop::collection::vec(prop_oneof![0_i64..3_000_000, 0_i64..300_000_000], 1..30),
    ) {
        let recurrence = Recurring::new(RecurrenceSpec::cron(pattern, 0)).unwrap();
        let recurring = Recurring { misfire, jitter_ms, ..recurrence };
        let mut state = state(recurring.clone(), overlap);
        let mut fates: BTreeMap<Timestamp, u64> = BTreeMap::new();
        let mut now = at(0);
        for wait in waits {
            now = state.due_at.unwrap().max(now).shifted(wait);
            let plan = plan_at(&state, now);
            prop_assert!(plan.fired.len() <= limits::FIRES_PER_PLAN_MAX);
            for nominal in fired_at(&plan) {
                prop_assert!(nominal <= now);
                *fates.entry(nominal).or_default() += 1;
            }
            for range in &plan.skipped {
                let mut nominal = range.first;
                for _ in 0..range.count {
                    *fates.entry(nominal).or_default() += 1;
                    prop_assert!(nominal <= range.last);
                    nominal = recurring.recurrence.next_time_after(nominal).unwrap();
                }
                prop_assert!(nominal > range.last);
            }
            state = plan.next.unwrap();
            prop_assert!(state.nominal.is_some());
        }
        let mut waiting = vec![];
        if let Some(replay) = &state.replay {
            waiting.push((replay.next, replay.until));
            waiting.extend(replay.later.iter().copied());
        }
        let mut nominal = recurring.recurrence.next_time_after(at(0)).unwrap();
        while nominal < state.nominal.unwrap() {
            let waits = waiting.iter().filter(|(first, last)| (*first..=*last).contains(&nominal)).count();
            let dealt_with = fates.remove(&nominal).unwrap_or(0);
            prop_assert_eq!(dealt_with + waits as u64, 1, "{} of {:?}", nominal, &state);
            nominal = recurring.recurrence.next_time_after(nominal).unwrap();
        }
        prop_assert!(fates.is_empty(), "beyond the cursor: {:?}", fates);
    }
}
