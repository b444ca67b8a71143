//! Runs that did not happen: occurrences of recurring jobs without a start, and jobs that run once whose time is over.

use super::facts::JobFacts;
use super::reasons;
use super::reconciler::{NotifyFindings, RaisedAlert, Reconciler};
use crate::EngineContext;
use punctual_core::gates::Gate;
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::{Job, JobStatus};
use punctual_core::limits;
use punctual_core::notify::{EventKind, NotificationEvent, RuleEvent};
use punctual_core::occurrence::{Live, LiveState, Origin};
use punctual_core::ports::{
    ExecutionQuery, ExecutionView, ExecutionWalk, JobQuery, JobView, ScheduleKind, StoreError,
};
use punctual_core::schedule::{Recurring, Schedule, SkipRange, SkipReason};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Occurrences that are looked up one by one. A message names only the number of further ones.
const OCCURRENCES_MAX: usize = 50;
/// Skipped ranges that are read.
const SKIPPED_MAX: usize = 10;
/// Jobs that one read returns.
const JOBS_PAGE: usize = 100;

/// The places of the walks for missed runs.
#[derive(Default)]
pub(super) struct MissedWalks {
    sweep: Option<Sweep>,
    overdue: Option<OverdueWalk>,
    /// The scheduled time of the run that ended the last alert about missed runs of a job.
    recovered: BTreeMap<JobId, Timestamp>,
    /// The schedules of jobs that changed while this node leads, and since when they have had them.
    schedules: BTreeMap<JobId, (Recurring, Timestamp)>,
}

impl MissedWalks {
    /// Remembers that a run has ended an alert about missed runs.
    pub fn note_recovery(&mut self, job: JobId, scheduled_time: Timestamp) {
        if self.recovered.len() >= limits::NOTIFY_JOBS_HELD_MAX {
            self.recovered.clear();
        }
        self.recovered.insert(job, scheduled_time);
    }

    /// Since when the job has had its schedule: other changes, such as of its priority, do not count. A node that does
    /// not know takes the last change of any kind.
    fn scheduled_since(&mut self, job: &Job, recurring: &Recurring) -> Timestamp {
        let known = self.schedules.get(&job.id).filter(|(known, _)| known.recurrence == recurring.recurrence);
        if let Some((_, since)) = known {
            return *since;
        }
        if self.schedules.len() >= limits::NOTIFY_JOBS_HELD_MAX {
            self.schedules.clear();
        }
        let since = job.created_at.max(job.updated_at);
        self.schedules.insert(job.id, (recurring.clone(), since));
        since
    }
}

/// A walk through all recurring jobs, for the missed runs of one span of time.
#[derive(Debug, Clone, Copy)]
struct Sweep {
    until: Timestamp,
    before: Option<JobId>,
}

/// A walk through executions that have not started, and through paused jobs with a time.
#[derive(Debug, Clone, Copy)]
enum OverdueWalk {
    Queued(Option<OccurrenceId>),
    Waiting(Option<OccurrenceId>),
    Paused(Option<JobId>),
}

impl Reconciler {
    /// Begins or continues the walks. Returns until when missed runs are now known, if that changed.
    pub(super) async fn look_for_missed(
        &mut self,
        context: &EngineContext,
        since: Timestamp,
        is_due: bool,
        findings: &mut NotifyFindings,
    ) -> Result<Option<Timestamp>, StoreError> {
        if !self.used.missed {
            self.watch.missed = MissedWalks::default();
            return Ok(is_due.then(|| context.time.now()));
        }
        if is_due || self.watch.missed.overdue.is_some() {
            self.overdue(context, findings).await?;
        }
        if is_due || self.watch.missed.sweep.is_some() {
            return self.sweep(context, since, findings).await;
        }
        Ok(None)
    }

    /// Continues the walk through recurring jobs; returns its end when it is complete.
    async fn sweep(
        &mut self,
        context: &EngineContext,
        since: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<Option<Timestamp>, StoreError> {
        let begun = Sweep { until: context.time.now(), before: None };
        let mut sweep = self.watch.missed.sweep.take().unwrap_or(begun);
        let mut looked_at = 0;
        while looked_at < limits::NOTIFY_JOBS_MAX && findings.len() < limits::NOTIFY_CHANGES_MAX {
            let query = JobQuery {
                before: sweep.before,
                limit: JOBS_PAGE,
                schedule: Some(ScheduleKind::Recurring),
                ..JobQuery::default()
            };
            let page = context.store.jobs(query).await?;
            looked_at += page.items.len().max(1);
            for view in &page.items {
                self.missed(context, view, since, sweep.until, findings).await?;
            }
            sweep.before = page.next;
            if sweep.before.is_none() {
                return Ok(Some(sweep.until));
            }
        }
        self.watch.missed.sweep = Some(sweep);
        Ok(None)
    }

    /// Occurrences whose grace ended in this span without a start.
    async fn missed(
        &mut self,
        context: &EngineContext,
        view: &JobView,
        since: Timestamp,
        until: Timestamp,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let is_unfinished = matches!(view.status(), JobStatus::Active | JobStatus::Paused);
        let (true, Schedule::Recurring(recurring)) = (is_unfinished, &view.job.spec.settings.schedule) else {
            return Ok(());
        };
        let facts = self.completed(context, JobFacts::of(&view.job)).await?;
        if !self.wants_missed(&facts) {
            return Ok(());
        }
        let span = MissedSpan {
            since,
            until,
            scheduled_since: self.watch.missed.scheduled_since(&view.job, recurring),
        };
        let Some(found) = unstarted(context, view, recurring, span).await? else { return Ok(()) };
        // Earlier runs belong to the alert that this run has ended.
        if self.watch.missed.recovered.get(&facts.id).is_some_and(|recovered| found.last < *recovered) {
            return Ok(());
        }
        let why = reasons::of_missed(context, view, found.skipped, found.open.as_ref()).await?;
        let kind = EventKind::Missed;
        let id = format!("{}:{}:{}", kind.word(), facts.id, found.last);
        let event = NotificationEvent {
            scheduled_time: Some(found.last),
            occurrences: Some(found.count),
            ..facts.event(&self.config, id, kind, found.first, found.sentence(&why))
        };
        let name = facts.alert(kind);
        let raised = RaisedAlert { name: &name, event, occurrences: found.count, rule: None, now: until };
        self.raise(raised, |known, _| known.targets_for(&facts, kind, until, |_| true), findings);
        Ok(())
    }

    /// Whether the job or a rule asks for missed runs. A rule about all jobs does not mean those that start as soon as
    /// they are submitted: work that waits is a matter of its queue.
    fn wants_missed(&self, facts: &JobFacts) -> bool {
        let is_wanted = |place: &usize| self.rules[*place].1.has(RuleEvent::Missed);
        !facts.notify.on_missed.is_empty() || (!facts.is_immediate && facts.rules.iter().any(is_wanted))
    }

    /// Continues the walk through executions and jobs that have not started.
    async fn overdue(
        &mut self,
        context: &EngineContext,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let mut walk = self.watch.missed.overdue.take().unwrap_or(OverdueWalk::Queued(None));
        let mut looked_at = 0;
        while looked_at < limits::NOTIFY_OVERDUE_MAX {
            let (count, next) = match walk {
                OverdueWalk::Queued(before) => {
                    let (count, last) =
                        self.overdue_of(context, ExecutionWalk::Queued { before }, findings).await?;
                    (
                        count,
                        Some(last.map_or(OverdueWalk::Waiting(None), |last| OverdueWalk::Queued(Some(last)))),
                    )
                }
                OverdueWalk::Waiting(before) => {
                    let (count, last) =
                        self.overdue_of(context, ExecutionWalk::Waiting { before }, findings).await?;
                    (
                        count,
                        Some(last.map_or(OverdueWalk::Paused(None), |last| OverdueWalk::Waiting(Some(last)))),
                    )
                }
                OverdueWalk::Paused(before) => {
                    let (count, last) = self.overdue_paused(context, before, findings).await?;
                    (count, last.map(|last| OverdueWalk::Paused(Some(last))))
                }
            };
            looked_at += count.max(1);
            match next {
                Some(next) => walk = next,
                None => return Ok(()),
            }
        }
        self.watch.missed.overdue = Some(walk);
        Ok(())
    }

    /// The next executions of a walk. Returns how many there were, and where the walk continues.
    async fn overdue_of(
        &mut self,
        context: &EngineContext,
        walk: ExecutionWalk,
        findings: &mut NotifyFindings,
    ) -> Result<(usize, Option<OccurrenceId>), StoreError> {
        let limit = JOBS_PAGE;
        let query = ExecutionQuery {
            walk,
            limit,
            queue: None,
            job_type: None,
            owner: None,
            worker: None,
            ended_from: None,
            ended_until: None,
        };
        let listed = context.store.executions(query).await?.items;
        let last = listed.last().filter(|_| listed.len() == limit).map(|last| last.view.id().occurrence);
        let now = context.time.now();
        for listed in &listed {
            let ExecutionView::Live { live, .. } = &listed.view else { continue };
            if is_overdue(live, now) {
                self.raise_overdue(context, live.id.job, live.scheduled_time, Some(live), findings).await?;
            }
        }
        Ok((listed.len(), last))
    }

    /// The next paused jobs that have not been fired.
    async fn overdue_paused(
        &mut self,
        context: &EngineContext,
        before: Option<JobId>,
        findings: &mut NotifyFindings,
    ) -> Result<(usize, Option<JobId>), StoreError> {
        let query = JobQuery {
            before,
            limit: JOBS_PAGE,
            status: Some(JobStatus::Paused),
            schedule: Some(ScheduleKind::OneTime),
            ..JobQuery::default()
        };
        let page = context.store.jobs(query).await?;
        let now = context.time.now();
        for view in page.items.iter().filter(|view| view.open.is_empty()) {
            let nominal = view.schedule.as_ref().and_then(|schedule| schedule.nominal);
            if let Some(at) = nominal.filter(|at| at.plus(limits::MISFIRE_GRACE) < now) {
                self.raise_overdue(context, view.job.id, at, None, findings).await?;
            }
        }
        Ok((page.items.len(), page.next))
    }

    /// A job that runs once should have started at this time.
    async fn raise_overdue(
        &mut self,
        context: &EngineContext,
        job: JobId,
        at: Timestamp,
        open: Option<&Live>,
        findings: &mut NotifyFindings,
    ) -> Result<(), StoreError> {
        let version = open.map_or(0, |live| live.job_version);
        let Some(facts) = self.facts(context, job, version).await? else { return Ok(()) };
        let kind = EventKind::Missed;
        let name = facts.alert(kind);
        let known = self.alerts.get(&name);
        let is_notified = known.is_some_and(|stored| stored.alert.notified_at.is_some());
        let of_missed = self.alerts.range("missed~".to_owned().."missed~~".to_owned());
        let is_full = known.is_none() && of_missed.count() >= limits::OVERDUE_ALERTS_MAX;
        if facts.is_recurring || is_notified || is_full || !self.wants_missed(&facts) {
            return Ok(());
        }
        let Some(view) = context.store.job(job).await? else { return Ok(()) };
        let why = reasons::of_missed(context, &view, None, open).await?;
        let event = NotificationEvent {
            scheduled_time: Some(at),
            execution_id: open.map(Live::execution),
            ..facts.event(
                &self.config,
                format!("{}:{job}:{at}", kind.word()),
                kind,
                at,
                format!("The run of {at} did not start. {why}"),
            )
        };
        let now = context.time.now();
        let raised = RaisedAlert { name: &name, event, occurrences: 1, rule: None, now };
        self.raise(raised, |known, _| known.targets_for(&facts, kind, now, |_| true), findings);
        Ok(())
    }
}

/// Whether an execution should have started, and no other job or user has put it off.
fn is_overdue(live: &Live, now: Timestamp) -> bool {
    let due = live.scheduled_time.max(live.available_at);
    let is_moved = live.input.as_ref().is_some_and(|input| input.moved);
    live.attempt == 1
        && live.origin == Origin::Schedule
        && !is_moved
        && !live.is_closed_by(Gate::Dependency)
        && due.plus(limits::MISFIRE_GRACE) < now
}

/// The span in which the grace of occurrences ended.
struct MissedSpan {
    since: Timestamp,
    until: Timestamp,
    /// Times before belong to another schedule.
    scheduled_since: Timestamp,
}

/// Occurrences that did not start.
struct Unstarted {
    first: Timestamp,
    last: Timestamp,
    count: u64,
    skipped: Option<SkipReason>,
    /// The last one that is open and has not started.
    open: Option<Live>,
}

/// The occurrences of a job whose grace ended in this span without a start; `None` if there are none.
async fn unstarted(
    context: &EngineContext,
    view: &JobView,
    recurring: &Recurring,
    span: MissedSpan,
) -> Result<Option<Unstarted>, StoreError> {
    let grace = Duration::from_millis(recurring.misfire.grace_ms.saturating_add(recurring.jitter_ms));
    let since = span.since.minus(grace).max(span.scheduled_since);
    let until = span.until.minus(grace);
    let recurrence = &recurring.recurrence;
    let mut times = vec![];
    let mut after = since;
    while times.len() < OCCURRENCES_MAX
        && let Some(next) = recurrence.next_time_after(after).filter(|next| *next <= until)
    {
        times.push(next);
        after = next;
    }
    let Some(latest) = times.last().copied() else { return Ok(None) };
    let latest = recurrence.last_time_at_or_before(until).unwrap_or(latest);
    let store = &context.store;
    let page = store.executions_of_job(view.job.id, None, OCCURRENCES_MAX * 2).await?;
    let (mut started, mut open) = (BTreeSet::new(), BTreeMap::new());
    for execution in page.items {
        match execution {
            ExecutionView::Finished(one) if one.origin == Origin::Schedule && one.started_at.is_some() => {
                started.insert(one.scheduled_time);
            }
            ExecutionView::Live { live, .. } if live.origin == Origin::Schedule => {
                // A later attempt waits for its retry: it has started before. Users have asked for those that moved.
                let is_moved = live.input.as_ref().is_some_and(|input| input.moved);
                if matches!(live.state, LiveState::Running(_)) || live.attempt > 1 || is_moved {
                    started.insert(live.scheduled_time);
                } else {
                    open.insert(live.scheduled_time, live);
                }
            }
            _ => {}
        }
    }
    let skips = store.skipped(view.job.id, SKIPPED_MAX).await?;
    let range = |at: Timestamp| skips.iter().find(|range: &&SkipRange| range.first <= at && at <= range.last);
    let is_missing = |at: &&Timestamp| {
        !started.contains(*at) && range(**at).is_none_or(|range| !is_intended(range.reason))
    };
    let missing: Vec<Timestamp> = times.iter().filter(is_missing).copied().collect();
    let (Some(first), Some(last)) = (missing.first().copied(), missing.last().copied()) else {
        return Ok(None);
    };
    let is_all = times.len() < OCCURRENCES_MAX;
    let last = if is_all { last } else { latest };
    let count = if is_all { missing.len() as u64 } else { recurrence.count_between(since, until) };
    // If others were skipped because one waits, the reason is why that one waits.
    let open = open.into_values().next_back();
    let skipped = range(last).filter(|_| open.is_none()).map(|range| range.reason);
    Ok(Some(Unstarted { first, last, count, skipped, open }))
}

/// Whether users have asked for skips of this kind.
const fn is_intended(reason: SkipReason) -> bool {
    matches!(reason, SkipReason::Calendar | SkipReason::Requested)
}

impl Unstarted {
    fn sentence(&self, why: &str) -> String {
        match self.count {
            1 => format!("The run of {} did not start. {why}", self.last),
            count => format!("{count} runs did not start, the first of {}. {why}", self.first),
        }
    }
}
