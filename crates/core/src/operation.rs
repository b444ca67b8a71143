//! Operations: one action on everything that a filter selects, in steps. An operation is a stored document that a
//! reconciler advances by compare-and-swap, so it survives restarts and changes of the leader.
//!
//! A step is *planned* before it is performed: the stored plan names each job with what must not have changed since.
//! A leader that finds a plan performs it, once more if need be, and records its outcome. Each action on a planned item can
//! be repeated without a second effect.

use crate::access::{Grant, Permission, Role, Scope};
use crate::ids::{ExecutionId, JobId, OccurrenceId, OperationId};
use crate::job_predicate::JobPredicate;
use crate::limits;
use crate::ports::{DeadLetter, DeadLetterQuery, JobQuery, RunningPlace};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is done to each job or execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkAction {
    Pause,
    Resume,
    Cancel,
    Delete,
    Retry,
    Trigger,
    Update,
}

impl BulkAction {
    pub const ALL: [BulkAction; 7] = [
        BulkAction::Pause,
        BulkAction::Resume,
        BulkAction::Cancel,
        BulkAction::Delete,
        BulkAction::Retry,
        BulkAction::Trigger,
        BulkAction::Update,
    ];

    pub fn word(self) -> &'static str {
        match self {
            BulkAction::Pause => "pause",
            BulkAction::Resume => "resume",
            BulkAction::Cancel => "cancel",
            BulkAction::Delete => "delete",
            BulkAction::Retry => "retry",
            BulkAction::Trigger => "trigger",
            BulkAction::Update => "update",
        }
    }
}

impl fmt::Display for BulkAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What an operation acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BulkTarget {
    #[default]
    Jobs,
    Executions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum OperationStatus {
    Running,
    /// Everything that matched was acted on or refused.
    Completed,
    /// A user has stopped it. Completed steps are not undone.
    Cancelled,
    /// It cannot go on, because its token or user has lost the right to.
    Failed,
}

impl OperationStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            OperationStatus::Running => "RUNNING",
            OperationStatus::Completed => "COMPLETED",
            OperationStatus::Cancelled => "CANCELLED",
            OperationStatus::Failed => "FAILED",
        }
    }
}

/// What an operation acts on, and how far it has read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "an operation has one, for as long as it runs")]
pub enum BulkSelection {
    Jobs { query: JobQuery, predicate: JobPredicate },
    Executions(OpenSelection),
    DeadLetters(DeadLetterQuery),
}

impl BulkSelection {
    pub fn target(&self) -> BulkTarget {
        match self {
            BulkSelection::Jobs { .. } => BulkTarget::Jobs,
            BulkSelection::Executions(_) | BulkSelection::DeadLetters(_) => BulkTarget::Executions,
        }
    }
}

/// The state of an execution that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpenState {
    Waiting,
    Queued,
    Running,
}

/// Open executions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenSelection {
    /// The states that are left to read; the first one is being read.
    pub states: Vec<OpenState>,
    /// Where the list of waiting or queued executions continues.
    pub before: Option<OccurrenceId>,
    /// Where the list of running executions continues.
    pub after: Option<RunningPlace>,
    pub queue: Option<String>,
    pub job_type: Option<String>,
    pub owner: Option<String>,
    pub worker: Option<String>,
}

impl OpenSelection {
    /// Continues with the next state. Returns whether there is one.
    pub fn next_state(&mut self) -> bool {
        (self.before, self.after) = (None, None);
        self.states.drain(..self.states.len().min(1));
        !self.states.is_empty()
    }
}

/// Who has started an operation, with what it was allowed at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    pub token_id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The token with which a browser has logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_of: Option<String>,
    /// Whether its token is in the store.
    pub is_stored: bool,
    /// Whether its token is the session of a browser, which ends when the user logs out.
    #[serde(default)]
    pub is_browser: bool,
    pub role: Role,
    pub permissions: Vec<Permission>,
    pub owner: String,
    pub scope: Scope,
}

impl Requester {
    /// What it was allowed when it started the operation.
    pub fn grant(&self) -> Grant {
        Grant {
            role: self.role,
            permissions: self.permissions.iter().copied().collect(),
            owner: self.owner.clone(),
            scope: self.scope.clone(),
        }
    }
}

/// An item of a step. The number and the attempt make it repeatable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedItem {
    pub job: JobId,
    /// For a trigger the last occurrence before it; otherwise the occurrence to act on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The execution to act on; of a dead letter, the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

impl PlannedItem {
    pub fn job(job: JobId) -> Self {
        PlannedItem { job, number: None, attempt: None }
    }

    pub fn occurrence(id: OccurrenceId) -> Self {
        PlannedItem { job: id.job, number: Some(id.number), attempt: None }
    }

    pub fn letter(letter: &DeadLetter) -> Self {
        PlannedItem { attempt: Some(letter.attempts), ..PlannedItem::occurrence(letter.occurrence) }
    }

    pub fn execution(id: ExecutionId) -> Self {
        PlannedItem { attempt: Some(id.attempt), ..PlannedItem::occurrence(id.occurrence) }
    }

    pub fn occurrence_id(&self) -> Option<OccurrenceId> {
        self.number.map(|number| self.job.occurrence(number))
    }

    pub fn execution_id(&self) -> Option<ExecutionId> {
        Some(self.occurrence_id()?.attempt(self.attempt?))
    }
}

/// An item that was left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRefusal {
    /// The id of the job, occurrence or execution.
    pub id: String,
    pub reason: String,
}

/// How many items matched when the operation was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MatchedCount {
    pub count: u64,
    /// Whether all were counted. Counting stops at [`limits::BULK_COUNTED_MAX`].
    pub is_exact: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BulkOperation {
    pub id: OperationId,
    pub action: BulkAction,
    pub selection: BulkSelection,
    /// The filter as it was sent.
    pub filter: String,
    /// The merge patch of an update, in its stored form: it may be encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    pub requester: Requester,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    pub matched: MatchedCount,
    /// Counts the steps that were planned.
    #[serde(default)]
    pub step: u64,
    /// The items of the current step; empty between steps.
    #[serde(default)]
    pub planned: Vec<PlannedItem>,
    /// Whether no step follows the current one.
    #[serde(default)]
    pub is_read: bool,
    #[serde(default)]
    pub done: u64,
    #[serde(default)]
    pub refused: u64,
    /// The first refusals.
    #[serde(default)]
    pub refusals: Vec<ItemRefusal>,
    #[serde(default)]
    pub is_cancelling: bool,
    pub status: OperationStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The part of an operation that a step was planned to do.
#[derive(Debug, Clone, PartialEq)]
pub struct StepPlan {
    pub items: Vec<PlannedItem>,
    /// The selection after these items.
    pub selection: BulkSelection,
    /// Whether nothing follows.
    pub is_last: bool,
}

/// What became of a planned item.
pub type ItemOutcome = Result<(), ItemRefusal>;

impl BulkOperation {
    /// The next step. It is to be stored before it is performed.
    pub fn plan(&mut self, plan: StepPlan, now: Timestamp) {
        self.selection = plan.selection;
        self.is_read = plan.is_last;
        self.planned = plan.items;
        self.step += 1;
        self.updated_at = now;
        if self.planned.is_empty() {
            self.settle(now);
        }
    }

    /// Records the outcome of a step, unless it is recorded already.
    pub fn record(&mut self, step: u64, outcomes: Vec<ItemOutcome>, now: Timestamp) {
        if self.step != step || self.planned.is_empty() {
            return;
        }
        self.planned.clear();
        for outcome in outcomes {
            match outcome {
                Ok(()) => self.done += 1,
                Err(refusal) => {
                    self.refused += 1;
                    if self.refusals.len() < limits::BULK_REFUSALS_MAX {
                        self.refusals.push(refusal);
                    }
                }
            }
        }
        self.updated_at = now;
        self.settle(now);
    }

    /// Stops it after the current step. Returns whether anything changes.
    pub fn cancel(&mut self, now: Timestamp) -> bool {
        if self.status != OperationStatus::Running || self.is_cancelling {
            return false;
        }
        self.is_cancelling = true;
        self.updated_at = now;
        self.settle(now);
        true
    }

    /// Ends it, because it cannot go on.
    pub fn fail(&mut self, reason: String, now: Timestamp) {
        self.planned.clear();
        self.failure = Some(reason);
        self.end(OperationStatus::Failed, now);
    }

    pub fn is_finished(&self) -> bool {
        self.status != OperationStatus::Running
    }

    /// Ends it between two steps if there is no next one.
    fn settle(&mut self, now: Timestamp) {
        if !self.planned.is_empty() {
            return;
        }
        if self.is_cancelling {
            self.end(OperationStatus::Cancelled, now);
        } else if self.is_read {
            self.end(OperationStatus::Completed, now);
        }
    }

    fn end(&mut self, status: OperationStatus, now: Timestamp) {
        self.status = status;
        self.updated_at = now;
        self.finished_at = Some(now);
    }

    /// The name of its document. Running operations follow finished ones, and within both the latest is first, so
    /// that reading either from its beginning costs nothing for the other.
    pub fn document_name(&self) -> String {
        document_name(self.id, self.is_finished())
    }
}

/// The beginning of the names of running operations.
pub const RUNNING_OPERATIONS: &str = "2-";
/// The beginning of the names of finished operations.
pub const FINISHED_OPERATIONS: &str = "1-";

pub fn document_name(id: OperationId, is_finished: bool) -> String {
    let prefix = if is_finished { FINISHED_OPERATIONS } else { RUNNING_OPERATIONS };
    let mut name = prefix.to_owned();
    for byte in id.as_bytes() {
        name += &format!("{:02x}", !byte);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn operation() -> BulkOperation {
        BulkOperation {
            id: OperationId::new(at(1), 7),
            action: BulkAction::Pause,
            selection: BulkSelection::Jobs { query: JobQuery::default(), predicate: JobPredicate::default() },
            filter: "{}".to_owned(),
            patch: None,
            requester: Requester {
                token_id: "t".to_owned(),
                name: "ops".to_owned(),
                user: None,
                session_of: None,
                is_stored: true,
                is_browser: false,
                role: Role::Operator,
                permissions: Role::Operator.permissions().iter().collect(),
                owner: "default".to_owned(),
                scope: Scope::default(),
            },
            created_at: at(1),
            updated_at: at(1),
            finished_at: None,
            matched: MatchedCount { count: 3, is_exact: true },
            step: 0,
            planned: vec![],
            is_read: false,
            done: 0,
            refused: 0,
            refusals: vec![],
            is_cancelling: false,
            status: OperationStatus::Running,
            failure: None,
        }
    }

    fn planned(operation: &mut BulkOperation, items: u64, is_last: bool) {
        let items = (0..items).map(|number| PlannedItem::job(JobId::new(at(0), number))).collect();
        let selection = operation.selection.clone();
        operation.plan(StepPlan { items, selection, is_last }, at(2));
    }

    fn refused() -> ItemOutcome {
        Err(ItemRefusal { id: "x".to_owned(), reason: "no".to_owned() })
    }

    #[test]
    fn an_operation_ends_when_its_last_step_is_recorded() {
        let mut operation = operation();
        planned(&mut operation, 2, false);
        operation.record(1, vec![Ok(()), refused()], at(3));
        assert_eq!((operation.done, operation.refused, operation.status), (1, 1, OperationStatus::Running));
        planned(&mut operation, 1, true);
        assert_eq!(operation.status, OperationStatus::Running);
        operation.record(2, vec![Ok(())], at(4));
        assert_eq!((operation.done, operation.status), (2, OperationStatus::Completed));
        assert_eq!(operation.finished_at, Some(at(4)));
    }

    #[test]
    fn the_outcome_of_a_step_counts_once() {
        let mut operation = operation();
        planned(&mut operation, 1, false);
        operation.record(1, vec![Ok(())], at(3));
        operation.record(1, vec![Ok(())], at(3));
        planned(&mut operation, 1, false);
        operation.record(1, vec![Ok(())], at(3));
        assert_eq!((operation.done, operation.planned.len()), (1, 1));
    }

    #[test]
    fn a_cancel_waits_for_the_step_that_is_under_way() {
        let mut idle = operation();
        assert!(idle.cancel(at(2)));
        assert_eq!(idle.status, OperationStatus::Cancelled);
        let mut busy = operation();
        planned(&mut busy, 1, false);
        assert!(busy.cancel(at(2)) && !busy.cancel(at(2)));
        assert_eq!(busy.status, OperationStatus::Running);
        busy.record(1, vec![Ok(())], at(3));
        assert_eq!((busy.done, busy.status), (1, OperationStatus::Cancelled));
        assert!(!busy.cancel(at(4)), "it is finished");
    }

    #[test]
    fn refusals_are_counted_and_the_first_are_kept() {
        let mut operation = operation();
        let many = limits::BULK_REFUSALS_MAX + 5;
        planned(&mut operation, many as u64, true);
        operation.record(1, vec![refused(); many], at(3));
        assert_eq!((operation.refused, operation.refusals.len()), (many as u64, limits::BULK_REFUSALS_MAX));
    }

    #[test]
    fn later_operations_have_lower_names_and_running_ones_come_last() {
        let (old, new) = (OperationId::new(at(1), 1), OperationId::new(at(2), 1));
        assert!(document_name(new, true) < document_name(old, true));
        assert!(document_name(old, true) < document_name(new, false));
    }

    #[test]
    fn an_operation_is_read_as_it_was_written() {
        let mut operation = operation();
        planned(&mut operation, 2, false);
        let text = serde_json::to_string(&operation).unwrap();
        assert_eq!(serde_json::from_str::<BulkOperation>(&text).unwrap(), operation);
    }
}
