//! Runs that a user asks for: a job now, and a finished occurrence once more.

use super::secrets::SecretRules;
use super::{UseCase, UseCaseError, UseCases};
use punctual_core::control::Verb;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::job::JobSpec;
use punctual_core::occurrence::RunInput;
use punctual_core::ports::{ExecutionView, StoreError};
use serde_json::json;
use std::sync::Arc;

/// How to run a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunRequest {
    /// Replaces the payload of the job for this run. JSON text.
    pub payload: Option<String>,
    /// Runs next to open occurrences, whatever the job's overlap policy.
    pub despite_overlap: bool,
}

impl UseCases {
    /// Runs a job now; the schedule does not change. Returns the added execution.
    pub async fn trigger(&self, id: JobId, run: RunRequest) -> Result<ExecutionId, UseCaseError> {
        self.permit_on(UseCase::TriggerJob, format_args!("job {id}"))?;
        let RunRequest { payload, despite_overlap } = run;
        match &payload {
            Some(payload) => self.check_own_payload(id, payload).await?,
            None => self.check_in_scope(id).await?,
        }
        let has_payload = payload.is_some();
        let input = RunInput { payload, trace: self.trace.clone(), ..RunInput::default() };
        let input = Some(input).filter(|input| *input != RunInput::default()).map(Arc::new);
        let details = json!({ "payload": has_payload });
        let audit = match has_payload {
            true => self.audited_with(UseCase::TriggerJob, format_args!("job {id}"), &details),
            false => self.audited(UseCase::TriggerJob, format_args!("job {id}")),
        };
        let verb = Verb::Trigger { despite_overlap, input, scheduled_time: None };
        let controlled = self.engine.control(id, verb, audit).await;
        added(controlled.map_err(|error| UseCaseError::of_control(id, error))?.added)
    }

    /// Adds an occurrence that repeats the one of this execution, for the same nominal time. Returns the added
    /// execution.
    pub async fn rerun(&self, id: ExecutionId, run: RunRequest) -> Result<ExecutionId, UseCaseError> {
        self.permit_on(UseCase::RerunExecution, format_args!("execution {id}"))?;
        let occurrence = id.occurrence;
        let finished = match self.execution_in_scope(id).await? {
            ExecutionView::Finished(finished) => finished,
            ExecutionView::Live { .. } => return Err(UseCaseError::OccurrenceOpen(occurrence)),
        };
        if !self.store().open_executions(vec![occurrence]).await?.is_empty() {
            return Err(UseCaseError::OccurrenceOpen(occurrence));
        }
        let RunRequest { payload, despite_overlap } = run;
        let details = json!({ "payload": payload.is_some() });
        if let Some(payload) = &payload {
            self.check_own_payload(occurrence.job, payload).await?;
        }
        let payload = payload.or_else(|| finished.input.as_ref().and_then(|input| input.payload.clone()));
        let (repeats, trace) = (Some(occurrence.number), self.trace.clone());
        let input = Some(Arc::new(RunInput { payload, repeats, trace, ..RunInput::default() }));
        let audit = self.audited_with(UseCase::RerunExecution, format_args!("execution {id}"), &details);
        let verb = Verb::Trigger { despite_overlap, input, scheduled_time: Some(finished.scheduled_time) };
        let controlled = self.engine.control(occurrence.job, verb, audit).await;
        added(controlled.map_err(|error| UseCaseError::of_control(occurrence.job, error))?.added)
    }

    /// Checks a payload for one run of a job as if it were that of the job.
    async fn check_own_payload(&self, id: JobId, payload: &str) -> Result<(), UseCaseError> {
        let stored = self.job_in_scope(id).await?.job.spec;
        let spec = JobSpec { payload: payload.to_owned(), ..stored.clone() };
        let mut problems = spec.check().err().unwrap_or_default();
        problems.retain(|problem| problem.field == "payload");
        problems.extend(self.payload_problem(&spec, &mut SecretRules::default()).await?);
        if problems.is_empty() { Ok(()) } else { Err(UseCaseError::Invalid(problems)) }
    }
}

fn added(execution: Option<ExecutionId>) -> Result<ExecutionId, UseCaseError> {
    execution.ok_or_else(|| StoreError::Broken("a trigger that added nothing".to_owned()).into())
}
