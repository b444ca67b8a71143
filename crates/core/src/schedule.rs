//! When a job fires: what is to come of a job ([`ScheduleState`]) and the plan of one fire.
//!
//! The next nominal time comes from the previous nominal time, never from now, so a late fire does not shift
//! the ones after it.

use crate::ids::JobId;
use crate::job::{Job, Priority};
use crate::limits;
use crate::occurrence::{Live, Origin};
use crate::rank::Shares;
use crate::time::{Timestamp, duration_micros};
use serde::{Deserialize, Serialize};

/// When a job runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// As soon as it is submitted.
    #[default]
    Immediate,
    /// Once, at or after a time.
    OneTime { at: Timestamp },
    /// Again and again, `every_us` apart on elapsed time, counted from the anchor.
    Interval { every_us: i64, anchor: Timestamp, max_runs: Option<u32>, end_at: Option<Timestamp> },
}

impl Schedule {
    pub const fn is_immediate(&self) -> bool {
        matches!(self, Schedule::Immediate)
    }

    /// Whether the job fires at most once.
    pub const fn is_one_shot(&self) -> bool {
        matches!(self, Schedule::Immediate | Schedule::OneTime { .. })
    }

    /// The field that is wrong and what would be right, if anything is.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        match self {
            Schedule::Immediate => None,
            Schedule::OneTime { at } => {
                (*at > Timestamp::MAX).then(|| ("execute_at", "must be before 9999-12-30".to_owned()))
            }
            Schedule::Interval { every_us, max_runs, .. } => {
                let (min, max) =
                    (duration_micros(limits::INTERVAL_MIN), duration_micros(limits::INTERVAL_MAX));
                if *every_us < min || *every_us > max {
                    return Some((
                        "interval",
                        format!("must be between {:?} and 10 years", limits::INTERVAL_MIN),
                    ));
                }
                (*max_runs == Some(0)).then(|| ("max_runs", "must be at least 1".to_owned()))
            }
        }
    }
}

/// What a fire does while the job has occurrences open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OverlapPolicy {
    /// The new occurrence is skipped: a job does not run twice at once.
    #[default]
    Skip,
    /// It runs beside them.
    Allow,
}

/// Why occurrences did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    Overlap,
    Misfire,
    Paused,
    Calendar,
    Dependency,
    Backlog,
}

/// Consecutive occurrences that did not run, for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipRange {
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u64,
    pub reason: SkipReason,
}

/// What is still to come of a job: its narrow row beside the wide one. A job without one has nothing left to
/// fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleState {
    pub job: JobId,
    /// Raised by every fire and every change of the schedule; a fire compares and swaps on it.
    pub version: u32,
    /// The next nominal time.
    pub nominal: Timestamp,
    /// When to look: the nominal time plus what delays it.
    pub due_at: Timestamp,
    /// Occurrences fired so far.
    pub fired: u32,
    pub job_version: u32,
    pub queue: String,
    pub job_type: String,
    pub owner: String,
    pub priority: Priority,
    pub overlap: OverlapPolicy,
    pub schedule: Schedule,
}

/// How a submitted job begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Beginning {
    /// It is due: its first and only occurrence is open from the start.
    Due(Live),
    Later(ScheduleState),
}

/// Decides how a new job begins.
pub fn begin(job: &Job, now: Timestamp, shares: &mut Shares) -> Beginning {
    let spec = &job.spec;
    let nominal = match &spec.settings.schedule {
        Schedule::Immediate => return due(job, now, now, shares),
        Schedule::OneTime { at } if *at <= now => return due(job, *at, now, shares),
        Schedule::OneTime { at } => *at,
        Schedule::Interval { anchor, .. } => *anchor,
    };
    Beginning::Later(ScheduleState {
        job: job.id,
        version: 1,
        nominal,
        due_at: nominal,
        fired: 0,
        job_version: job.version,
        queue: spec.queue.clone(),
        job_type: spec.job_type.clone(),
        owner: spec.owner.clone(),
        priority: spec.priority,
        overlap: spec.settings.overlap,
        schedule: spec.settings.schedule.clone(),
    })
}

/// Whether a job with this schedule, submitted now, is due at once.
pub fn is_due_at_once(schedule: &Schedule, now: Timestamp) -> bool {
    match schedule {
        Schedule::Immediate => true,
        Schedule::OneTime { at } => *at <= now,
        Schedule::Interval { .. } => false,
    }
}

fn due(job: &Job, scheduled_time: Timestamp, now: Timestamp, shares: &mut Shares) -> Beginning {
    let lag = shares.lag(&job.spec.queue, &job.spec.owner, now);
    Beginning::Due(Live::fired(
        job.id.occurrence(1),
        scheduled_time,
        Origin::Schedule,
        job.version,
        job.spec.priority,
        now,
        lag,
    ))
}

/// What one fire of a schedule does, all of it in one commit.
#[derive(Debug, Clone, PartialEq)]
pub struct FirePlan {
    pub fired: Vec<Live>,
    pub skipped: Vec<SkipRange>,
    /// What is to come afterwards; `None` when the schedule is exhausted.
    pub next: Option<ScheduleState>,
}

impl ScheduleState {
    /// The plan for a schedule found due at `now`, with `open` occurrences of its job open at this moment.
    pub fn plan(&self, now: Timestamp, open: usize, shares: &mut Shares) -> FirePlan {
        debug_assert!(self.due_at <= now, "fired at {now}, due at {}", self.due_at);
        match self.schedule {
            Schedule::Immediate | Schedule::OneTime { .. } => {
                // One-time jobs are never missed: they run late.
                FirePlan {
                    fired: vec![self.occurrence(self.fired + 1, self.nominal, now, shares)],
                    skipped: vec![],
                    next: None,
                }
            }
            Schedule::Interval { every_us, max_runs, end_at, .. } => {
                let window = Window {
                    every_us,
                    end_at: end_at.unwrap_or(Timestamp::MAX),
                    max_runs: max_runs.unwrap_or(u32::MAX),
                };
                self.plan_interval(window, now, open, shares)
            }
        }
    }

    fn plan_interval(&self, window: Window, now: Timestamp, open: usize, shares: &mut Shares) -> FirePlan {
        let mut plan = FirePlan { fired: vec![], skipped: vec![], next: None };
        let (nominal, missed) = window.skip_missed(self.nominal, now.minus(limits::MISFIRE_GRACE));
        let mut next = ScheduleState { version: self.version + 1, nominal, ..self.clone() };
        plan.skipped.extend(missed);
        let mut open = open;
        let mut rounds = 0;
        while next.nominal <= now && window.admits(&next) && rounds < limits::FIRES_PER_PLAN_MAX {
            rounds += 1;
            match self.overlap {
                OverlapPolicy::Skip if open > 0 => {
                    push_skip(&mut plan.skipped, next.nominal, SkipReason::Overlap)
                }
                _ if open >= limits::OPEN_OCCURRENCES_MAX => {
                    push_skip(&mut plan.skipped, next.nominal, SkipReason::Backlog);
                }
                _ => {
                    next.fired += 1;
                    open += 1;
                    plan.fired.push(self.occurrence(next.fired, next.nominal, now, shares));
                }
            }
            next.nominal = next.nominal.shifted(window.every_us);
        }
        next.due_at = next.nominal;
        plan.next = window.admits(&next).then_some(next);
        plan
    }

    /// This schedule as a scheduler remembers it that missed its last fire: what a fire goes by under
    /// [`crate::defects::Defect::DropVersionCheck`].
    pub fn remembered(&self) -> ScheduleState {
        let nominal = match self.schedule {
            Schedule::Interval { every_us, .. } if self.fired > 0 => self.nominal.shifted(-every_us),
            _ => self.nominal,
        };
        ScheduleState { nominal, due_at: nominal, ..self.clone() }
    }

    fn occurrence(&self, number: u32, nominal: Timestamp, now: Timestamp, shares: &mut Shares) -> Live {
        let lag = shares.lag(&self.queue, &self.owner, now);
        Live::fired(
            self.job.occurrence(number),
            nominal,
            Origin::Schedule,
            self.job_version,
            self.priority,
            now,
            lag,
        )
    }
}

/// The bounds of an interval schedule.
#[derive(Clone, Copy)]
struct Window {
    every_us: i64,
    end_at: Timestamp,
    max_runs: u32,
}

impl Window {
    fn admits(&self, next: &ScheduleState) -> bool {
        next.nominal <= self.end_at && next.fired < self.max_runs
    }

    /// The first nominal time at or after `oldest`, and the range before it that is skipped: by arithmetic, so
    /// that a year of downtime costs no more than a minute.
    fn skip_missed(&self, nominal: Timestamp, oldest: Timestamp) -> (Timestamp, Option<SkipRange>) {
        let oldest = oldest.min(self.end_at.shifted(1));
        let behind_us = oldest.as_micros().saturating_sub(nominal.as_micros());
        if behind_us <= 0 {
            return (nominal, None);
        }
        let count = (behind_us + self.every_us - 1) / self.every_us;
        let first_kept = nominal.shifted(count.saturating_mul(self.every_us));
        let range = SkipRange {
            first: nominal,
            last: first_kept.shifted(-self.every_us),
            count: count as u64,
            reason: SkipReason::Misfire,
        };
        (first_kept, Some(range))
    }
}

fn push_skip(ranges: &mut Vec<SkipRange>, nominal: Timestamp, reason: SkipReason) {
    match ranges.last_mut() {
        Some(last) if last.reason == reason => {
            last.last = nominal;
            last.count += 1;
        }
        _ => ranges.push(SkipRange { first: nominal, last: nominal, count: 1, reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{JobMark, JobSpec};

    const SECOND: i64 = 1_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_763_195_400_000_000 + seconds * SECOND)
    }

    fn state(schedule: Schedule, overlap: OverlapPolicy) -> ScheduleState {
        let mut spec = JobSpec::named("report");
        spec.settings.schedule = schedule;
        spec.settings.overlap = overlap;
        let job = Job {
            id: JobId::new(at(0), 1),
            version: 1,
            mark: JobMark::Active,
            created_at: at(0),
            updated_at: at(0),
            spec,
        };
        match begin(&job, at(0), &mut Shares::default()) {
            Beginning::Later(state) => state,
            Beginning::Due(live) => panic!("due at once: {live:?}"),
        }
    }

    fn every(seconds: i64) -> Schedule {
        Schedule::Interval { every_us: seconds * SECOND, anchor: at(seconds), max_runs: None, end_at: None }
    }

    fn fired_at(plan: &FirePlan) -> Vec<Timestamp> {
        plan.fired.iter().map(|live| live.scheduled_time).collect()
    }

    #[test]
    fn the_next_nominal_time_comes_from_the_previous_one_not_from_now() {
        let plan = state(every(10), OverlapPolicy::Skip).plan(at(13), 0, &mut Shares::default());
        assert_eq!(fired_at(&plan), [at(10)]);
        let next = plan.next.unwrap();
        assert_eq!((next.nominal, next.version, next.fired), (at(20), 2, 1));
    }

    #[test]
    fn a_one_time_job_runs_late_rather_than_never() {
        let plan = state(Schedule::OneTime { at: at(5) }, OverlapPolicy::Skip).plan(
            at(1_000_000),
            0,
            &mut Shares::default(),
        );
        assert_eq!(fired_at(&plan), [at(5)]);
        assert_eq!(plan.next, None);
    }

    #[test]
    fn a_year_of_downtime_costs_one_range() {
        let year = 365 * 86_400;
        let plan = state(every(1), OverlapPolicy::Allow).plan(at(year), 0, &mut Shares::default());
        assert_eq!(plan.skipped.len(), 1);
        let range = plan.skipped[0];
        assert_eq!((range.first, range.last, range.count), (at(1), at(year - 61), year as u64 - 61));
        assert_eq!(range.reason, SkipReason::Misfire);
        assert_eq!(fired_at(&plan).first(), Some(&at(year - 60)));
        assert_eq!(plan.fired.len(), 61);
        assert_eq!(plan.next.unwrap().nominal, at(year + 1));
    }

    #[test]
    fn an_open_occurrence_skips_the_next_unless_overlap_is_allowed() {
        let skip = state(every(10), OverlapPolicy::Skip).plan(at(30), 1, &mut Shares::default());
        assert_eq!(fired_at(&skip), []);
        assert_eq!(
            skip.skipped,
            [SkipRange { first: at(10), last: at(30), count: 3, reason: SkipReason::Overlap }]
        );
        assert_eq!(skip.next.unwrap().fired, 0);
        let allow = state(every(10), OverlapPolicy::Allow).plan(at(30), 1, &mut Shares::default());
        assert_eq!(fired_at(&allow), [at(10), at(20), at(30)]);
    }

    #[test]
    fn a_job_with_too_many_open_occurrences_skips_for_backlog() {
        let plan = state(every(10), OverlapPolicy::Allow).plan(
            at(10),
            limits::OPEN_OCCURRENCES_MAX,
            &mut Shares::default(),
        );
        assert_eq!(
            plan.skipped,
            [SkipRange { first: at(10), last: at(10), count: 1, reason: SkipReason::Backlog }]
        );
    }

    #[test]
    fn a_schedule_ends_at_its_last_run_or_its_end() {
        let runs =
            Schedule::Interval { every_us: 10 * SECOND, anchor: at(10), max_runs: Some(2), end_at: None };
        let plan = state(runs, OverlapPolicy::Allow).plan(at(50), 0, &mut Shares::default());
        assert_eq!((fired_at(&plan), plan.next), (vec![at(10), at(20)], None));
        let end = Schedule::Interval {
            every_us: 10 * SECOND,
            anchor: at(10),
            max_runs: None,
            end_at: Some(at(25)),
        };
        let plan = state(end, OverlapPolicy::Allow).plan(at(50), 0, &mut Shares::default());
        assert_eq!((fired_at(&plan), plan.next), (vec![at(10), at(20)], None));
    }

    #[test]
    fn a_schedule_missed_beyond_its_end_is_skipped_to_the_end_only() {
        let end = Schedule::Interval {
            every_us: 10 * SECOND,
            anchor: at(10),
            max_runs: None,
            end_at: Some(at(25)),
        };
        let plan = state(end, OverlapPolicy::Allow).plan(at(5_000), 0, &mut Shares::default());
        assert_eq!(
            plan.skipped,
            [SkipRange { first: at(10), last: at(20), count: 2, reason: SkipReason::Misfire }]
        );
        assert_eq!((plan.fired, plan.next), (vec![], None));
    }
}
