//! The facts that explain the state of a job.

use super::own_work::session_in_scope;
use super::{EligibleWorkers, UseCase, UseCaseError, UseCases, lane_of};
use punctual_core::cluster_pause::ClusterPause;
use punctual_core::gates::Gate;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::limiter::{LimiterId, LimiterUse, QueueLimits, WaitList};
use punctual_core::limits;
use punctual_core::notes::Noted;
use punctual_core::occurrence::{Finished, Live, LiveState};
use punctual_core::ports::{
    DeadLetter, DeadLetterQuery, Depth, ExecutionQuery, ExecutionView, ExecutionWalk, JobView, Lane,
    ListedExecution, OPEN_IN_VIEW_MAX, SessionRow, StoreError,
};
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Finished executions that are read.
const HISTORY_MAX: usize = 50;
/// Running executions that are read, and as many queued ones, to list the holders of a limit.
const HOLDERS_LOOKED_AT: usize = 200;
/// Skipped ranges that are read.
const SKIPPED_MAX: usize = 10;

/// Everything that the state of a job depends on.
#[derive(Debug, Clone)]
pub struct ExplainedFacts {
    pub now: Timestamp,
    pub view: JobView,
    /// Jobs that it depends on and that have not succeeded yet.
    pub parents: Vec<ParentJob>,
    pub sessions: Vec<SessionRow>,
    pub depths: Vec<Depth>,
    /// The pause of the whole cluster, if there is one.
    pub cluster_pause: Option<ClusterPause>,
    /// Since when the job's queue has been paused, if it is.
    pub queue_paused_at: Option<Timestamp>,
    /// Why the queue's settings cannot be read.
    pub queue_unreadable: Option<String>,
    /// How many executions are ahead of each queued one.
    pub ahead: BTreeMap<OccurrenceId, usize>,
    /// Latest first.
    pub skipped: Vec<SkipRange>,
    /// Latest occurrence and attempt first.
    pub history: Vec<Finished>,
    /// The latest dead letter.
    pub dead: Option<DeadLetter>,
    /// The name and current status of the job that caused the latest finished run to be skipped, if there is
    /// one.
    pub blamed: Option<(String, JobStatus)>,
    /// When the last of the jobs that it depends on ended, as far as they still exist.
    pub parents_ended_at: Option<Timestamp>,
    /// The server is shutting down: nothing starts until it is restarted. The engine does not know; the server
    /// sets it.
    pub is_stopping: bool,
    /// Notes of the open occurrences.
    pub notes: Vec<Noted>,
    /// Open executions that the view does not contain.
    pub more_open: MoreOpen,
    /// The limits of the job's queue.
    pub limits: QueueLimits,
    /// The use of the limiters on whose wait lists its executions are.
    pub lines: BTreeMap<LimiterId, LimiterUse>,
    /// The executions that count against the full ones of these limiters, as far as they were read: those
    /// that cannot run, then running ones by start time, then the rest.
    pub holders: BTreeMap<LimiterId, Vec<LimitHolder>>,
}

/// Open executions of a job that its view does not contain.
#[derive(Debug, Clone, Copy)]
pub struct MoreOpen {
    pub counted: usize,
    /// Whether the count is complete: only a bounded number of executions is read.
    pub is_all: bool,
}

impl MoreOpen {
    pub const NONE: MoreOpen = MoreOpen { counted: 0, is_all: true };
}

/// A job that another one depends on.
#[derive(Debug, Clone)]
pub struct ParentJob {
    pub id: JobId,
    /// Its name and status; `None` if it was deleted before it succeeded. In that case its running executions
    /// are being stopped, and the jobs that depend on it are skipped after that.
    pub known: Option<(String, JobStatus)>,
}

/// An execution that counts against a limit.
#[derive(Debug, Clone)]
pub struct LimitHolder {
    pub execution: ExecutionId,
    pub job_name: String,
    pub lane: Lane,
    /// The worker that runs it and its start time; `None` while it is queued.
    pub runs: Option<(String, Timestamp)>,
}

impl LimitHolder {
    fn of(listed: &ListedExecution, live: &Live, worker: &Option<String>) -> Self {
        let runs = match live.state {
            LiveState::Running(lease) => {
                Some((worker.clone().unwrap_or_else(|| lease.session.to_string()), lease.claimed_at))
            }
            LiveState::Queued | LiveState::Waiting(_) => None,
        };
        LimitHolder {
            execution: live.execution(),
            job_name: listed.job_name.clone(),
            lane: Lane::new(&listed.queue, &listed.job_type),
            runs,
        }
    }

    /// Whether no connected worker takes it.
    fn is_stuck(&self, sessions: &[SessionRow]) -> bool {
        self.runs.is_none() && EligibleWorkers::in_lane(&self.lane, sessions).open.is_empty()
    }
}

impl UseCases {
    pub async fn explain(&self, id: JobId) -> Result<ExplainedFacts, UseCaseError> {
        self.permit_on(UseCase::ExplainJob, format_args!("job {id}"))?;
        let mut view = self.shown(self.job_in_scope(id).await?);
        let store = self.store();
        let more_open = self.choose_open(&mut view).await?;
        let dead = DeadLetterQuery { job: Some(id), limit: 1, ..DeadLetterQuery::default() };
        let own_lane = lane_of(&view.job.spec);
        let sessions = self.sessions_shown(&own_lane).await?;
        let mut depths = store.depths().await?;
        depths.retain(|depth| depth.lane == own_lane || self.sees_lane(&depth.lane));
        let row = store.queues().await?.into_iter().find(|row| row.queue == view.job.spec.queue);
        let (queue_paused_at, queue_unreadable) =
            row.as_ref().map_or((None, None), |row| (row.paused_at, row.unreadable.clone()));
        let limits = row.map(|row| row.settings.limits).unwrap_or_default();
        let lines = self.lines(&view).await?;
        Ok(ExplainedFacts {
            parents: self.unfinished_parents(&view).await?,
            depths,
            cluster_pause: self.current_pause().await?,
            queue_paused_at,
            queue_unreadable,
            ahead: self.ahead(&view).await?,
            skipped: store.skipped(id, SKIPPED_MAX).await?,
            history: self.past(id).await?,
            dead: store.dead_letters(dead).await?.items.into_iter().next(),
            blamed: self.blamed(&view).await?,
            parents_ended_at: self.parents_ended_at(&view).await?,
            is_stopping: false,
            notes: self.open_notes(&view).await?,
            holders: self.holders(full(&lines, &limits), &sessions).await?,
            lines: lines.into_iter().map(|(line, used)| (line.id(), used)).collect(),
            limits,
            sessions,
            now: self.now(),
            more_open,
            view,
        })
    }

    /// The connected workers. A caller that may not see all of them sees those that can run the job, and of the
    /// others what its list of workers shows.
    async fn sessions_shown(&self, lane: &Lane) -> Result<Vec<SessionRow>, StoreError> {
        let sessions = self.store().sessions().await?;
        if !self.is_limited() {
            return Ok(sessions);
        }
        let scope = &self.caller.grant.scope;
        let can_run = |row: &SessionRow| row.has_handler(lane.job_type()) && row.serves(lane.queue());
        let shown = |row| if can_run(&row) { Some(row) } else { session_in_scope(scope, row) };
        Ok(sessions.into_iter().filter_map(shown).collect())
    }

    async fn past(&self, id: JobId) -> Result<Vec<Finished>, StoreError> {
        let page = self.store().history(id, None, HISTORY_MAX).await?;
        Ok(page.items.into_iter().map(|finished| self.shown_finished(finished)).collect())
    }

    /// A job may have more open executions than its view contains. Puts the most important ones into the
    /// view: running ones, then the earliest. Returns how many are left out.
    async fn choose_open(&self, view: &mut JobView) -> Result<MoreOpen, StoreError> {
        if view.open.len() < OPEN_IN_VIEW_MAX {
            return Ok(MoreOpen::NONE);
        }
        let page = self.store().executions_of_job(view.job.id, None, limits::PAGE_ITEMS_MAX).await?;
        let is_all = page.next.is_none();
        let open = page.items.into_iter().filter_map(|item| match item {
            ExecutionView::Live { live, .. } => Some(live),
            ExecutionView::Finished(_) => None,
        });
        let mut open: Vec<Live> = open.collect();
        let counted = open.len().saturating_sub(OPEN_IN_VIEW_MAX);
        if counted > 0 {
            open.sort_by_key(|live| (!live.is_running(), live.id.number));
            open.truncate(OPEN_IN_VIEW_MAX);
            open.sort_by_key(|live| Reverse(live.id.number));
            view.open = open;
        }
        Ok(MoreOpen { counted, is_all })
    }

    /// The jobs that this one waits for or will wait for.
    async fn unfinished_parents(&self, view: &JobView) -> Result<Vec<ParentJob>, StoreError> {
        let waits = view.open.iter().any(|live| live.is_closed_by(Gate::Dependency));
        let mut parents = Vec::new();
        for id in view.job.spec.settings.depends_on.iter().filter(|_| waits || view.schedule.is_some()) {
            let parent = self.store().job(*id).await?;
            let known = parent.map(|parent| (self.name_of(&parent), parent.status()));
            let is_over = match &known {
                Some((_, status)) => *status == JobStatus::Completed,
                None => self.has_succeeded(*id).await?,
            };
            if !is_over {
                parents.push(ParentJob { id: *id, known });
            }
        }
        Ok(parents)
    }

    /// Whether a deleted job had succeeded, judging by what is left of it. If nothing is left, it had: a job
    /// that ends otherwise takes its children with it.
    async fn has_succeeded(&self, gone: JobId) -> Result<bool, StoreError> {
        // It runs once; each trigger adds an occurrence.
        let numbers = 1..=OPEN_IN_VIEW_MAX as u32;
        let occurrences = numbers.map(|number| gone.occurrence(number)).collect();
        let open = self.store().open_executions(occurrences).await?;
        let last = self.store().history(gone, None, 1).await?.items.into_iter().next();
        Ok(open.is_empty() && last.is_none_or(|last| last.status == Status::Succeeded))
    }

    /// When the last of the jobs that this finished job depended on ended.
    async fn parents_ended_at(&self, view: &JobView) -> Result<Option<Timestamp>, StoreError> {
        let mut latest = None;
        for id in view.job.spec.settings.depends_on.iter().filter(|_| view.last_finished.is_some()) {
            let ended = self.store().job(*id).await?.and_then(|parent| parent.last_finished);
            latest = latest.max(ended.map(|ended| ended.completed_at));
        }
        Ok(latest)
    }

    async fn open_notes(&self, view: &JobView) -> Result<Vec<Noted>, StoreError> {
        if !view.open.iter().any(|live| live.flags.noted) {
            return Ok(vec![]);
        }
        self.store().notes(view.job.id, u32::MAX, limits::PAGE_ITEMS_MAX).await
    }

    /// The use of the limiters that executions of the job wait for.
    async fn lines(&self, view: &JobView) -> Result<Vec<(WaitList, LimiterUse)>, StoreError> {
        let waiting = view.open.iter().filter_map(|live| Some((live.line?, live.limiter)));
        let lines: BTreeSet<WaitList> = waiting
            .map(|(line, key)| WaitList {
                queue: view.job.spec.queue.clone(),
                key: key.filter(|key| *key == line),
            })
            .collect();
        let lines: Vec<WaitList> = lines.into_iter().collect();
        if lines.is_empty() {
            return Ok(vec![]);
        }
        let mut used = self.store().limiters(lines.clone()).await?;
        if self.is_limited() {
            // How much others have there is not for this caller.
            used.iter_mut().for_each(|used| used.waiting = 0);
        }
        Ok(lines.into_iter().zip(used).collect())
    }

    /// The executions that count against these limiters of a queue: queued and running ones; for a key, those
    /// with that key. Those outside of the caller's scope are left out.
    async fn holders(
        &self,
        lines: Vec<WaitList>,
        sessions: &[SessionRow],
    ) -> Result<BTreeMap<LimiterId, Vec<LimitHolder>>, StoreError> {
        let Some(queue) = lines.first().map(|line| line.queue.clone()) else { return Ok(BTreeMap::new()) };
        let mut started = Vec::new();
        for walk in [ExecutionWalk::Running { after: None }, ExecutionWalk::Queued { before: None }] {
            let limit = HOLDERS_LOOKED_AT;
            let queue = Some(queue.clone());
            let query = ExecutionQuery {
                walk,
                limit,
                queue,
                job_type: None,
                owner: None,
                worker: None,
                ended_from: None,
                ended_until: None,
            };
            started.extend(self.store().executions(query).await?.items);
        }
        let visible = self.in_scope(started.iter().map(|listed| listed.view.id().occurrence.job)).await?;
        started.retain(|listed| visible.has(listed.view.id().occurrence.job));
        let counts = |line: &WaitList, live: &Live| line.key.is_none() || live.limiter == line.key;
        let holders_of = |line: &WaitList| {
            let holder = |listed: &ListedExecution| match &listed.view {
                ExecutionView::Live { live, worker } if counts(line, live) => {
                    Some(LimitHolder::of(listed, live, worker))
                }
                _ => None,
            };
            in_order(started.iter().filter_map(holder).collect(), sessions)
        };
        Ok(lines.iter().map(|line| (line.id(), holders_of(line))).collect())
    }

    async fn ahead(&self, view: &JobView) -> Result<BTreeMap<OccurrenceId, usize>, StoreError> {
        let mut ahead = BTreeMap::new();
        for live in view.open.iter().filter(|live| matches!(live.state, LiveState::Queued)) {
            if let Some(count) = self.store().ahead(live.id, limits::POSITION_MAX).await? {
                ahead.insert(live.id, count);
            }
        }
        Ok(ahead)
    }
}

/// The wait lists that move only after an execution that counts there has ended.
fn full(lines: &[(WaitList, LimiterUse)], limits: &QueueLimits) -> Vec<WaitList> {
    let is_full = |line: &WaitList, used: &LimiterUse| {
        limits.of(line).concurrency.is_some_and(|most| used.in_use >= u64::from(most))
    };
    lines.iter().filter(|(line, used)| is_full(line, used)).map(|(line, _)| line.clone()).collect()
}

/// Those that cannot run, then running ones by start time, then the rest.
fn in_order(mut holders: Vec<LimitHolder>, sessions: &[SessionRow]) -> Vec<LimitHolder> {
    holders.sort_by_cached_key(|holder| {
        let since = holder.runs.as_ref().map(|(_, since)| *since);
        (!holder.is_stuck(sessions), since.is_none(), since, holder.execution)
    });
    holders
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::SessionId;
    use punctual_core::ports::WorkerAbout;
    use punctual_core::session::{Pulse, SessionMode};

    #[test]
    fn those_that_cannot_run_come_first_then_the_longest_there() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let holder = |number, name: &str, since: Option<i64>| LimitHolder {
            execution: JobId::new(at(0), number).occurrence(1).attempt(1),
            job_name: name.to_owned(),
            lane: Lane::new("default", name),
            runs: since.map(|since| ("w".to_owned(), at(since))),
        };
        let worker = SessionRow {
            pulse: Pulse { session: SessionId(1), beat: 1, lease: std::time::Duration::from_secs(30) },
            worker: "w".to_owned(),
            embedded: true,
            job_types: vec!["queued".to_owned()],
            slots: 4,
            about: WorkerAbout::default(),
            token: None,
            condition: None,
            mode: SessionMode::Open,
            opened_at: at(0),
            beaten_at: at(0),
        };
        let holders = vec![
            holder(1, "late", Some(9)),
            holder(3, "queued", None),
            holder(2, "early", Some(1)),
            holder(4, "stuck", None),
        ];
        let names: Vec<String> =
            in_order(holders, &[worker]).into_iter().map(|holder| holder.job_name).collect();
        assert_eq!(names, ["stuck", "early", "late", "queued"]);
    }
}
