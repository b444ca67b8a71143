//! Selects and sorts jobs by what no index knows.

use crate::job::JobStatus;
use crate::payload_filter::{PayloadField, PayloadFilter};
use crate::ports::{JobQuery, JobView, ScheduleKind};
use crate::schedule::Schedule;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};
use std::time::Duration;

/// A condition on jobs that a list has read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobPredicate {
    /// Whether the latest finished execution failed.
    pub failing: Option<bool>,
    /// All of these match the payload.
    pub payload: Vec<PayloadFilter>,
    /// The payload has all of these fields.
    pub payload_has: Vec<PayloadField>,
    /// The job has none of these.
    pub not: ExcludedValues,
    pub created: TimeRange,
    pub next_run: TimeRange,
    /// When the latest finished execution ended.
    pub last_run: TimeRange,
}

/// Values that a job must not have.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ExcludedValues {
    pub statuses: Vec<JobStatus>,
    pub names: Vec<String>,
    pub job_types: Vec<String>,
    pub queues: Vec<String>,
    pub owners: Vec<String>,
    pub tags: Vec<String>,
}

impl ExcludedValues {
    fn has_any_of(&self, view: &JobView) -> bool {
        let spec = &view.job.spec;
        self.statuses.contains(&view.status())
            || self.names.contains(&spec.name)
            || self.job_types.contains(&spec.job_type)
            || self.queues.contains(&spec.queue)
            || self.owners.contains(&spec.owner)
            || spec.settings.tags.iter().any(|tag| self.tags.contains(tag))
    }
}

/// Times from one on and before another one. A job without the time is in the range of all times only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeRange {
    pub after: Option<Timestamp>,
    pub before: Option<Timestamp>,
}

impl TimeRange {
    fn has(&self, time: Option<Timestamp>) -> bool {
        if *self == TimeRange::default() {
            return true;
        }
        let is_within = |time: Timestamp| {
            self.after.is_none_or(|after| time >= after) && self.before.is_none_or(|before| time < before)
        };
        time.is_some_and(is_within)
    }
}

impl JobPredicate {
    pub fn is_everything(&self) -> bool {
        *self == JobPredicate::default()
    }

    /// The parameter that reads payloads, if there is one.
    pub fn payload_parameter(&self) -> Option<String> {
        let field = self.payload_has.first().map(|_| "payload_has".to_owned());
        self.payload.first().map(PayloadFilter::parameter).or(field)
    }

    pub fn matches(&self, view: &JobView) -> bool {
        let payload = &view.job.spec.payload;
        self.failing.is_none_or(|failing| view.is_failing() == failing)
            && !self.not.has_any_of(view)
            && self.created.has(Some(view.job.created_at))
            && self.next_run.has(view.next_run_time())
            && self.last_run.has(view.last_finished.as_ref().map(|last| last.completed_at))
            && self.payload.iter().all(|filter| filter.matches(payload))
            && self.payload_has.iter().all(|field| field.is_in(payload))
    }
}

impl JobQuery {
    /// Whether a list of these has the job. Does not know the text that the query may search for.
    pub fn selects(&self, view: &JobView) -> bool {
        let spec = &view.job.spec;
        let is =
            |wanted: &Option<String>, value: &String| wanted.as_ref().is_none_or(|wanted| wanted == value);
        let kind = match spec.settings.schedule {
            Schedule::Immediate => ScheduleKind::Immediate,
            Schedule::OneTime { .. } => ScheduleKind::OneTime,
            Schedule::Recurring(_) => ScheduleKind::Recurring,
        };
        self.before.is_none_or(|before| view.job.id < before)
            && self.status.is_none_or(|status| status == view.status())
            && is(&self.name, &spec.name)
            && is(&self.job_type, &spec.job_type)
            && is(&self.queue, &spec.queue)
            && is(&self.owner, &spec.owner)
            && self.priority.is_none_or(|priority| priority == spec.priority)
            && self.schedule.is_none_or(|schedule| schedule == kind)
            && self.tags.iter().all(|tag| spec.settings.tags.contains(tag))
    }
}

/// The order of a list, instead of the latest job first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOrder {
    /// The next to run first; jobs without a next run last.
    NextRun,
    Name,
    /// The highest first.
    Priority,
    /// The one whose latest execution ended last first; jobs that have not run last.
    LastRun,
    /// The latest first: by how long an execution has been ready, or by how late the latest one started.
    Lateness,
}

impl JobOrder {
    pub fn compare(self, one: &JobView, other: &JobView, now: Timestamp) -> Ordering {
        let ended = |view: &JobView| view.last_finished.as_ref().map(|last| last.completed_at);
        let order = match self {
            JobOrder::NextRun => {
                let time = |view: &JobView| view.next_run_time().unwrap_or(Timestamp::MAX);
                time(one).cmp(&time(other))
            }
            JobOrder::Name => one.job.spec.name.cmp(&other.job.spec.name),
            JobOrder::Priority => other.job.spec.priority.cmp(&one.job.spec.priority),
            JobOrder::LastRun => Reverse(ended(one)).cmp(&Reverse(ended(other))),
            JobOrder::Lateness => lateness(other, now).cmp(&lateness(one, now)),
        };
        order.then_with(|| other.job.id.cmp(&one.job.id))
    }
}

/// How long an execution of the job has been ready to start; or else how late its latest one started.
pub fn lateness(view: &JobView, now: Timestamp) -> Duration {
    let ready = view.open.iter().filter(|live| !live.is_running() && live.available_at <= now);
    let waiting = ready.map(|live| now.since(live.available_at)).max();
    let last = view.last_finished.as_ref();
    let started = last.and_then(|last| Some(last.started_at?.since(last.scheduled_time)));
    waiting.or(started).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::job::{Job, JobSpec, Priority, StoredStatus};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn view(name: &str, created: i64, change: impl FnOnce(&mut JobSpec)) -> JobView {
        let mut spec = JobSpec::named(name);
        change(&mut spec);
        let job = Job {
            id: JobId::new(at(created), 1),
            version: 1,
            mark: StoredStatus::Active,
            numbered: None,
            fired: 0,
            created_at: at(created),
            updated_at: at(created),
            spec,
        };
        JobView { job, schedule: None, open: vec![], last_finished: None }
    }

    #[test]
    fn excluded_values_and_time_ranges_select() {
        let report = view("report", 5, |spec| {
            spec.queue = "mail".to_owned();
            spec.settings.tags = vec!["nightly".to_owned()];
            spec.payload = r#"{"customer": {"id": 7}}"#.to_owned();
        });
        let texts = |text: &str| vec![text.to_owned()];
        let range = |after, before| TimeRange { after, before };
        let everything = JobPredicate::default();
        let field = |path: &str| vec![PayloadField::new(path).unwrap()];
        for (matches, predicate) in [
            (true, everything.clone()),
            (
                false,
                JobPredicate {
                    not: ExcludedValues { queues: texts("mail"), ..Default::default() },
                    ..everything.clone()
                },
            ),
            (
                false,
                JobPredicate {
                    not: ExcludedValues { tags: texts("nightly"), ..Default::default() },
                    ..everything.clone()
                },
            ),
            (
                true,
                JobPredicate {
                    not: ExcludedValues { tags: texts("weekly"), ..Default::default() },
                    ..everything.clone()
                },
            ),
            (true, JobPredicate { created: range(Some(at(5)), Some(at(6))), ..everything.clone() }),
            (false, JobPredicate { created: range(None, Some(at(5))), ..everything.clone() }),
            (false, JobPredicate { last_run: range(Some(at(0)), None), ..everything.clone() }),
            (true, JobPredicate { payload_has: field("customer.id"), ..everything.clone() }),
            (false, JobPredicate { payload_has: field("order"), ..everything }),
        ] {
            assert_eq!(predicate.matches(&report), matches, "{predicate:?}");
        }
    }

    #[test]
    fn jobs_are_sorted_by_name_or_priority_and_then_by_age() {
        let mut jobs =
            [view("b", 1, |_| {}), view("a", 2, |spec| spec.priority = Priority::MAX), view("a", 3, |_| {})];
        let sorted = |jobs: &mut [JobView], order: JobOrder| {
            jobs.sort_by(|one, other| order.compare(one, other, at(9)));
            jobs.iter().map(|view| view.job.created_at).collect::<Vec<_>>()
        };
        assert_eq!(sorted(&mut jobs, JobOrder::Name), [at(3), at(2), at(1)]);
        assert_eq!(sorted(&mut jobs, JobOrder::Priority), [at(2), at(3), at(1)]);
        assert_eq!(sorted(&mut jobs, JobOrder::LastRun), [at(3), at(2), at(1)]);
    }
}
