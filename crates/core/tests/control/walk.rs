//! Random walks: the invariants hold whatever users do while a job fires, runs, fails and is retried.

use crate::harness::{Harness, TRIGGER, TRIGGER_ANYWAY, at, every, once, spec, with};
use proptest::prelude::*;
use punctual_core::control::{LiveChange, Update, Verb};
use punctual_core::gates::Gate;
use punctual_core::job::{Expiry, JobStatus, Priority, Settings, StoredStatus};
use punctual_core::lifecycle::Ending;
use punctual_core::occurrence::{LiveState, Origin};
use punctual_core::schedule::{Misfire, MisfirePolicy, OverlapPolicy, Recurring, Schedule};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
enum Step {
    Verb(Verb),
    Reschedule(Schedule),
    Reset(Change),
    /// Time passes, and what becomes due meanwhile is fired or updated.
    Wait(i64),
    /// Time passes without a scheduler.
    Outage(i64),
    Claim(usize),
    /// A single execution is cancelled.
    Cancel(usize),
    End(usize, Ending),
}

#[derive(Debug, Clone)]
enum Change {
    Priority(u8),
    Policy(OverlapPolicy),
    MaxRetries(u32),
    ExpiresAfter(Option<u64>),
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        Just(Schedule::Immediate),
        (0_i64..200).prop_map(once),
        Just(every(10).into()),
        (1_u32..6).prop_map(|max| Recurring { max_runs: Some(max), ..every(7) }.into()),
    ]
}

/// Policies under which a job does not run twice at once.
fn any_policy() -> impl Strategy<Value = OverlapPolicy> {
    prop_oneof![Just(OverlapPolicy::Skip), Just(OverlapPolicy::Queue), Just(OverlapPolicy::Replace)]
}

fn any_misfire() -> impl Strategy<Value = Misfire> {
    let policy = prop_oneof![
        Just(MisfirePolicy::SkipMissed),
        Just(MisfirePolicy::RunOnce),
        Just(MisfirePolicy::RunAll)
    ];
    (policy, 0_u64..60_000, prop::option::of(1_u32..60)).prop_map(|(policy, grace_ms, replay_per_minute)| {
        Misfire { policy, grace_ms, replay_per_minute, ..Misfire::default() }
    })
}

fn any_ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        3 => Just(Ending::Failed),
        2 => Just(Ending::Succeeded),
        1 => Just(Ending::Lost),
        1 => Just(Ending::TimedOut),
    ]
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (1_u8..=10).prop_map(Change::Priority),
        any_policy().prop_map(Change::Policy),
        (0_u32..3).prop_map(Change::MaxRetries),
        prop::option::of(1_u64..30_000).prop_map(Change::ExpiresAfter),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let verb = prop_oneof![
        6 => Just(TRIGGER),
        4 => Just(Verb::Retry),
        4 => Just(Verb::Pause),
        6 => Just(Verb::Resume),
        1 => Just(Verb::Cancel),
        1 => Just(Verb::Delete),
    ];
    prop_oneof![
        6 => verb.prop_map(Step::Verb),
        2 => any_schedule().prop_map(Step::Reschedule),
        2 => any_change().prop_map(Step::Reset),
        6 => (0_i64..40).prop_map(Step::Wait),
        1 => (0_i64..200).prop_map(Step::Outage),
        6 => any::<usize>().prop_map(Step::Claim),
        1 => any::<usize>().prop_map(Step::Cancel),
        6 => (any::<usize>(), any_ending()).prop_map(|(which, ending)| Step::End(which, ending)),
    ]
}

/// A job during a walk, with the data needed to check it.
struct Walk {
    harness: Harness,
    now: i64,
    /// All occurrence numbers that were ever assigned.
    given: BTreeSet<u32>,
    /// Whether a trigger has overridden the policy.
    is_overruled: bool,
}

impl Walk {
    fn new(schedule: Schedule, policy: OverlapPolicy, limit: u32) -> Self {
        let harness = Harness::submitted(with(spec(schedule), |settings| {
            *settings = Settings { overlap: policy, overlap_limit: limit, ..settings.clone() };
        }));
        let given = harness.numbers().into_iter().collect();
        Walk { harness, now: 0, given, is_overruled: false }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let before = self.harness.clone();
        match step {
            Step::Verb(verb) => self.does(verb)?,
            Step::Reschedule(schedule) => {
                let spec = self.harness.respecified(|settings| settings.schedule = schedule);
                self.does(Verb::Update(Box::new(Update { spec, expected_version: None })))?;
            }
            Step::Reset(change) => {
                let mut spec = self.harness.standing.job.spec.clone();
                match change {
                    Change::Priority(priority) => spec.priority = Priority::new(priority).unwrap(),
                    Change::Policy(policy) => spec.settings.overlap = policy,
                    Change::MaxRetries(retries) => spec.settings.max_retries = retries,
                    Change::ExpiresAfter(ms) => spec.settings.expiry = ms.map(Expiry::AfterMs),
                }
                self.does(Verb::Update(Box::new(Update { spec, expected_version: None })))?;
            }
            Step::Wait(seconds) => self.wait(seconds)?,
            Step::Outage(seconds) => self.now += seconds,
            Step::Claim(which) => {
                if let Some(number) = self.pick(which, |state| state == LiveState::Queued) {
                    self.harness.claim(number, at(self.now));
                }
            }
            Step::Cancel(which) => {
                if let Some(number) = self.pick(which, |_| true) {
                    self.harness.cancel(number, at(self.now));
                }
            }
            Step::End(which, ending) => {
                if let Some(number) = self.pick(which, |state| matches!(state, LiveState::Running(_))) {
                    self.harness.end(number, ending, at(self.now));
                }
            }
        }
        self.check(&before)
    }

    fn does(&mut self, verb: Verb) -> Result<(), TestCaseError> {
        let Ok(change) = self.harness.asked(verb.clone(), at(self.now)) else { return Ok(()) };
        for change in &change.live {
            if let LiveChange::Add(live) = change {
                let is_new = self.given.insert(live.id.number);
                prop_assert_eq!(is_new, verb != Verb::Retry, "{:?} gave {}", verb, live.id);
            }
        }
        if verb == TRIGGER {
            let times = |harness: &Harness| {
                harness.standing.schedule.clone().map(|row| (row.version, row.nominal, row.due_at, row.fired))
            };
            let before = times(&self.harness);
            self.harness.does(verb, at(self.now));
            prop_assert_eq!(times(&self.harness), before, "the trigger moved the schedule");
        } else {
            self.harness.does(verb, at(self.now));
        }
        Ok(())
    }

    fn wait(&mut self, seconds: i64) -> Result<(), TestCaseError> {
        for _ in 0..=seconds {
            let now = at(self.now);
            self.harness.look(now);
            let due_at = self.harness.standing.schedule.as_ref().and_then(|schedule| schedule.due_at);
            if due_at.is_some_and(|due_at| due_at <= now) {
                let before = self.harness.numbers();
                self.harness.fire(now);
                for number in self.harness.numbers().into_iter().filter(|number| !before.contains(number)) {
                    prop_assert!(self.given.insert(number), "{} was fired twice", number);
                }
            }
            self.now += 1;
        }
        Ok(())
    }

    fn pick(&self, which: usize, is_meant: impl Fn(LiveState) -> bool) -> Option<u32> {
        let open = self.harness.standing.open.iter().filter(|live| is_meant(live.state));
        let numbers: Vec<u32> = open.map(|live| live.id.number).collect();
        (!numbers.is_empty()).then(|| numbers[which % numbers.len()])
    }

    fn check(&self, before: &Harness) -> Result<(), TestCaseError> {
        let standing = &self.harness.standing;
        let (job, open) = (&standing.job, &standing.open);
        let behind = open.iter().filter(|live| live.is_closed_by(Gate::Overlap)).count();
        if !self.is_overruled {
            prop_assert!(open.len() - behind <= 1, "two at once: {:?}", open);
        }
        prop_assert!(open.is_empty() || behind < open.len(), "all wait behind each other: {:?}", open);
        for waiting in open.iter().filter(|live| live.is_closed_by(Gate::Overlap)) {
            let others = open.iter().filter(|live| live.id != waiting.id);
            for other in others {
                prop_assert!(other.flags.followed, "{} does not know of {}", other.id, waiting.id);
            }
        }
        let is_paused = job.mark == StoredStatus::Paused;
        for live in open {
            let is_free = live.state == LiveState::Queued;
            prop_assert!(!is_paused || !is_free || live.flags.exempt, "not held: {:?}", live);
            prop_assert!(is_paused || !live.is_closed_by(Gate::Paused), "held for ever: {:?}", live);
            prop_assert!(
                job.mark != StoredStatus::Active || !live.flags.exempt,
                "exempt from nothing: {:?}",
                live
            );
        }
        if let Some(schedule) = &standing.schedule {
            prop_assert_eq!(schedule.due_at.is_none(), is_paused, "{:?}", schedule);
            prop_assert_eq!(&schedule.schedule, &job.spec.settings.schedule);
            prop_assert!(schedule.numbered >= self.given.last().copied().unwrap_or(0));
            prop_assert_ne!(job.mark, StoredStatus::Failed);
        }
        if standing.status() == JobStatus::Cancelled {
            prop_assert_eq!(&standing.schedule, &None);
            for live in open {
                prop_assert!(self.harness.is_asked_to_stop(live.id.number), "still there: {:?}", live);
            }
        }
        prop_assert!(job.version >= before.standing.job.version);
        if let (Some(earlier), Some(later)) = (&before.standing.schedule, &standing.schedule) {
            prop_assert!(later.version >= earlier.version);
        }
        for earlier in &before.standing.open {
            if let Some(later) = open.iter().find(|live| live.id == earlier.id) {
                prop_assert!((later.attempt, later.epoch) >= (earlier.attempt, earlier.epoch));
            }
        }
        Ok(())
    }

    /// Resumes the job and lets all open occurrences end.
    fn heal(&mut self) -> Result<(), TestCaseError> {
        if self.harness.status() == JobStatus::Paused {
            self.harness.does(Verb::Resume, at(self.now));
        }
        self.harness.standing.schedule = None;
        for _ in 0..100 {
            self.now += 10_000;
            self.harness.look(at(self.now));
            let Some(live) = self
                .harness
                .standing
                .open
                .iter()
                .find(|live| live.is_running() || live.state == LiveState::Queued)
            else {
                break;
            };
            let number = live.id.number;
            if !live.is_running() {
                self.harness.claim(number, at(self.now));
            }
            self.harness.end(number, Ending::Succeeded, at(self.now));
        }
        prop_assert!(self.harness.standing.open.is_empty(), "stuck: {:?}", self.harness.standing.open);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_to_a_job_it_runs_once_at_a_time_and_nothing_is_stuck(
        schedule in any_schedule(),
        policy in any_policy(),
        limit in 1_u32..4,
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut walk = Walk::new(schedule, policy, limit);
        for step in steps {
            walk.step(step)?;
        }
        walk.heal()?;
    }

    #[test]
    fn whatever_runs_beside_others_nothing_is_stuck(
        schedule in any_schedule(),
        policy in prop_oneof![any_policy(), Just(OverlapPolicy::Allow)],
        steps in prop::collection::vec(
            prop_oneof![
                8 => any_step(),
                1 => Just(Step::Verb(TRIGGER_ANYWAY)),
                1 => Just(Step::Reset(Change::Policy(OverlapPolicy::Allow))),
            ],
            1..60,
        ),
    ) {
        let mut walk = Walk { is_overruled: true, ..Walk::new(schedule, policy, 3) };
        for step in steps {
            walk.step(step)?;
        }
        walk.heal()?;
    }

    /// Pauses, triggers and outages neither lose nor duplicate any time of a schedule.
    #[test]
    fn every_time_of_a_schedule_is_fired_or_skipped_once(
        policy in any_policy(),
        misfire in any_misfire(),
        jitter_ms in prop_oneof![Just(0_u64), 1_u64..30_000],
        steps in prop::collection::vec(
            any_step().prop_filter("the schedule stays", |step| {
                !matches!(step, Step::Reschedule(_) | Step::Verb(Verb::Cancel | Verb::Delete))
            }),
            1..60,
        ),
    ) {
        let recurring = Recurring { misfire, jitter_ms, ..every(10) };
        let mut walk = Walk::new(recurring.into(), policy, 2);
        for step in steps {
            walk.step(step)?;
        }
        if walk.harness.status() == JobStatus::Paused {
            walk.harness.does(Verb::Resume, at(walk.now));
        }
        let Harness { standing, history, skipped, .. } = &walk.harness;
        let finished = history.iter().filter(|row| row.origin == Origin::Schedule);
        let open = standing.open.iter().filter(|live| live.origin == Origin::Schedule);
        let fired: BTreeSet<u32> = finished
            .map(|row| row.id.occurrence.number)
            .chain(open.map(|live| live.id.number))
            .collect();
        let schedule = standing.schedule.as_ref().unwrap();
        let recurrence = every(10).recurrence;
        let count = |first: Timestamp, last| recurrence.count_between(first.shifted(-1), last);
        let replayed = schedule.replay.as_ref().map_or(0, |replay| {
            let later = replay.later.iter().map(|(first, last)| count(*first, *last));
            count(replay.next, replay.until) + later.sum::<u64>()
        });
        let dealt_with = fired.len() as u64 + skipped.iter().map(|range| range.count).sum::<u64>();
        let before = schedule.nominal.unwrap().shifted(-1);
        prop_assert_eq!(dealt_with + replayed, recurrence.count_between(at(0), before));
    }
}
