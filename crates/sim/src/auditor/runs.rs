//! Physical runs of handlers: none without a lease, none after it, no two of one occurrence at once.
//!
//! A node that is stopped and resumed cannot know at once that its lease is gone. Its runs are excused while it is
//! paused and for a moment after; they must have ended by then.

use super::{AuditResult, Auditor, rule};
use punctual_core::ids::{Epoch, ExecutionId, SessionId};
use punctual_core::ports::{Assignment, LeaseRef};
use punctual_core::time::Timestamp;
use std::time::Duration;

/// How long after it is resumed a node may still run executions that it has lost.
pub const RESUME_GRACE: Duration = Duration::from_millis(200);
/// How much longer than its timeout a run may last.
const TIMEOUT_SLACK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Succeeded,
    Failed,
    Snoozed,
    /// Its future was dropped: timeout, lost lease, crash.
    Dropped,
}

#[derive(Debug)]
pub struct RunModel {
    pub(super) node: usize,
    started_at: Timestamp,
    pub(super) end: Option<RunEnd>,
}

#[derive(Debug, Default)]
pub struct NodeModel {
    paused: bool,
    resumed_at: Option<Timestamp>,
    /// Its worker was asked to drain; it may have been restarted since.
    drained: bool,
}

impl Auditor {
    /// A worker has decided to start a handler: at this moment its lease must be valid.
    pub fn run_decided(&mut self, node: usize, slots: usize, assignment: &Assignment) -> AuditResult {
        let here = self.active.values().flatten().filter(|lease| self.runs[lease].node == node).count();
        rule!(
            here < slots || self.is_excused(node),
            "a worker runs no more at once than it has slots",
            "{} is to start on node {node}, where {here} run in {slots} slots",
            assignment.execution
        );
        self.is_not_given_back(assignment.lease())?;
        let lease = (assignment.execution, assignment.epoch);
        let Some(session) = self.grants.get(&lease).copied() else { return Ok(()) };
        rule!(
            self.holds(session, assignment.lease())?,
            "a worker starts nothing after its lease is gone",
            "{} {:?} of session {session} is to start on node {node}",
            assignment.execution,
            assignment.epoch
        );
        Ok(())
    }

    /// A handler begins to run.
    pub fn run_started(&mut self, node: usize, assignment: &Assignment) -> AuditResult {
        let (execution, id) = (assignment.execution, assignment.execution.occurrence);
        let lease = (execution, assignment.epoch);
        rule!(
            self.grants.contains_key(&lease),
            "a handler runs only under a lease",
            "{execution} {:?} on node {node}",
            assignment.epoch
        );
        rule!(
            !self.runs.contains_key(&lease),
            "a lease is run once",
            "{execution} {:?} was started before: {:?}",
            assignment.epoch,
            self.runs.get(&lease)
        );
        self.begins_with_checkpoint(assignment)?;
        for other in self.active.get(&id).into_iter().flatten() {
            let run = &self.runs[other];
            rule!(
                self.is_excused(run.node) || self.is_excused(node),
                "no two runs of one occurrence at once",
                "{execution} {:?} starts on node {node}, while {} {:?} runs on node {} since {}",
                assignment.epoch,
                other.0,
                other.1,
                run.node,
                run.started_at
            );
        }
        let job = self.job(id.job)?;
        if job.versions.iter().all(|spec| spec.settings.max_retries == 0) {
            // A redrive is another attempt, requested by a client.
            let first = self.occurrence(id)?.first_of_drive;
            let earlier =
                self.runs.range((id.attempt(first), Epoch(0))..=(id.attempt(u32::MAX), Epoch(u32::MAX)));
            // A snooze is no failure: the same attempt runs again.
            let earlier = earlier.filter(|(_, run)| run.end != Some(RunEnd::Snoozed));
            let earlier: Vec<ExecutionId> = earlier.map(|((execution, _), _)| *execution).collect();
            rule!(
                earlier.is_empty(),
                "max_retries 0 means at most one run",
                "{execution} starts on node {node} after {earlier:?}"
            );
            self.count("runs that may happen once");
        }
        self.held.remove(&assignment.lease());
        self.runs.insert(lease, RunModel { node, started_at: self.now, end: None });
        self.active.entry(id).or_default().insert(lease);
        self.count("runs started");
        Ok(())
    }

    pub fn run_ended(&mut self, assignment: &Assignment, end: RunEnd) -> AuditResult {
        let lease = (assignment.execution, assignment.epoch);
        let (now, id) = (self.now, assignment.execution.occurrence);
        let Some(run) = self.runs.get_mut(&lease) else { return Ok(()) };
        run.end = Some(end);
        let (node, lasted) = (run.node, now.since(run.started_at));
        if let Some(active) = self.active.get_mut(&id) {
            active.remove(&lease);
        }
        let was_paused = self.nodes.get(&node).is_some_and(|model| {
            model.paused || model.resumed_at.is_some_and(|at| at >= self.runs[&lease].started_at)
        });
        rule!(
            was_paused || lasted <= assignment.timeout + TIMEOUT_SLACK,
            "no run outlasts its timeout",
            "{} lasted {lasted:?} of {:?} on node {node}",
            assignment.execution,
            assignment.timeout
        );
        Ok(())
    }

    pub fn node_paused(&mut self, node: usize) {
        self.nodes.entry(node).or_default().paused = true;
    }

    pub fn node_drained(&mut self, node: usize) {
        self.nodes.entry(node).or_default().drained = true;
    }

    pub(super) fn is_draining(&self, node: usize) -> bool {
        self.nodes.get(&node).is_some_and(|model| model.drained)
    }

    pub fn node_resumed(&mut self, node: usize) {
        let now = self.now;
        let model = self.nodes.entry(node).or_default();
        (model.paused, model.resumed_at) = (false, Some(now));
    }

    /// Checked some time after a node was resumed: executions that it lost meanwhile must not run there any
    /// more.
    pub fn no_zombies_on(&mut self, node: usize) -> AuditResult {
        if self.is_excused(node) {
            return Ok(());
        }
        let here = |lease: &&(ExecutionId, Epoch)| self.runs[*lease].node == node;
        let leases: Vec<_> = self.active.values().flatten().filter(here).copied().collect();
        for (execution, epoch) in leases {
            let session = self.grants[&(execution, epoch)];
            let live = self.holds(session, LeaseRef { execution, epoch })?;
            rule!(
                live,
                "a resumed node stops executions that it has lost",
                "{execution} {epoch:?} still runs on node {node} without its lease"
            );
        }
        Ok(())
    }

    /// A session is being lost: its worker must already have stopped its handlers.
    pub(super) fn nothing_runs_under(&self, session: SessionId) -> AuditResult {
        for lease in self.active.values().flatten() {
            let run = &self.runs[lease];
            rule!(
                self.grants[lease] != session || self.is_excused(run.node),
                "a worker stops its handlers before its lease can be lost",
                "session {session} is lost while {} {:?} runs on node {} since {}",
                lease.0,
                lease.1,
                run.node,
                run.started_at
            );
        }
        Ok(())
    }

    /// Physical runs that have not ended.
    pub fn active_runs(&self) -> usize {
        self.active.values().map(|runs| runs.len()).sum()
    }

    fn is_excused(&self, node: usize) -> bool {
        self.nodes.get(&node).is_some_and(|model| {
            model.paused || model.resumed_at.is_some_and(|at| self.now.since(at) < RESUME_GRACE)
        })
    }
}
