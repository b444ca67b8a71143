//! Converts the store's views to wire types.

use crate::{reasons, submission};
use punctual_client::{
    DeadLetterBody, ExecutionBody, ExecutionStatus, JobBody, JobState, LaneBody, LastExecution,
    OccurrencePreview, PreviewBody, ProgressBody, QueueBody, SkipRangeBody, SubmitJob, SubmittedBody,
    WorkerBody, WorkerSessionBody, WorkerState,
};
use punctual_core::calendar::{NamedCalendars, excluded_by};
use punctual_core::documents::check_document;
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::notes::{Noted, Progress};
use punctual_core::occurrence::{Finished, Live, LiveState, RunInput};
use punctual_core::ports::{
    DeadLetter, Depth, ExecutionView, JobView, ListedExecution, QueueRow, SessionRow,
};
use punctual_core::recurrence::{PreviewedFire, Rule};
use punctual_core::schedule::{Recurring, Schedule, SkipRange};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use punctual_engine::{QueueView, Submitted, WorkerView, next_run_time};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

pub fn submitted(submitted: Submitted) -> SubmittedBody {
    SubmittedBody {
        job_id: submitted.job,
        status: submitted.status,
        next_run_time: submitted.next_run_time,
        status_reason: None,
        existing: submitted.is_existing,
    }
}

pub fn job(view: JobView) -> JobBody {
    let status = view.status();
    let status_reason = reasons::of_status(&view, None);
    let next_run_time = next_run_time(&view);
    let retried = view.open.iter().find(|live| waits_for_retry(live));
    let next_retry_time = retried.map(|live| live.available_at);
    let last = view.last_finished;
    let last_started = last.as_ref().and_then(|last| last.started_at);
    let last_run_time = view.open.iter().find_map(claimed_at).or(last_started);
    let job = view.job;
    let state = JobState {
        schedule_description: submission::in_words(&job.spec.settings.schedule),
        interval_anchor: interval_anchor(&job.spec.settings.schedule),
        status,
        status_reason,
        next_run_time,
        next_retry_time,
        last_run_time,
        last_error: last.as_ref().and_then(|last| last.error.clone()),
        last_execution: last.as_ref().map(|last| LastExecution {
            execution_id: last.id,
            status: last.status.into(),
            completed_at: last.completed_at,
        }),
        result: last.and_then(|last| last.result).and_then(raw_json),
        execution_id: None,
        progress: None,
        version: job.version,
        created_at: job.created_at,
        updated_at: job.updated_at,
    };
    let described = submission::as_submitted(&job.spec);
    JobBody::new(job.id, SubmitJob { payload: payload(job.spec.payload), ..described }, state)
}

/// The time from which an interval without `start_at` counts.
pub fn interval_anchor(schedule: &Schedule) -> Option<Timestamp> {
    let Schedule::Recurring(recurring) = schedule else { return None };
    match (&recurring.recurrence.spec().rule, recurring.recurrence.spec().start_at) {
        (Rule::Interval { anchor, .. } | Rule::Rrule { anchor, .. }, None) => Some(*anchor),
        _ => None,
    }
}

/// The payload of a job; none if the caller may not read it.
pub fn payload(text: String) -> Option<Box<RawValue>> {
    if text.is_empty() { None } else { raw_json(text) }
}

pub fn claimed_at(live: &Live) -> Option<Timestamp> {
    match live.state {
        LiveState::Running(lease) => Some(lease.claimed_at),
        LiveState::Waiting(_) | LiveState::Queued => None,
    }
}

pub fn waits_for_retry(live: &Live) -> bool {
    live.attempt > 1 && live.is_closed_by(Gate::Time) && !live.is_closed_by(Gate::Paused)
}

/// A recurring schedule in words, and these occurrences of it. Their delays by jitter are known only for a job.
pub fn preview(
    recurring: &Recurring,
    fires: Vec<PreviewedFire>,
    job: Option<JobId>,
    calendars: &NamedCalendars,
) -> PreviewBody {
    let recurrence = &recurring.recurrence;
    // Each of several schedules has its own choices, and the description names them.
    let follows_clocks = recurrence.follows_clocks() && recurrence.parts().next().is_none();
    PreviewBody {
        description: recurring.describe(),
        dst_gap: follows_clocks.then(|| recurrence.dst_gap()),
        dst_overlap: follows_clocks.then(|| recurrence.dst_overlap()),
        occurrences: occurrences(recurring, fires, job, calendars),
    }
}

/// One occurrence, without what calendars say about it.
pub fn occurrence(fire: PreviewedFire, due_at: Option<Timestamp>) -> OccurrencePreview {
    let PreviewedFire { at: scheduled_time, local: local_time, dst, schedule } = fire;
    OccurrencePreview { scheduled_time, local_time, dst, due_at, excluded_by: None, schedule }
}

/// Occurrences of a schedule, with the calendars that exclude them.
pub fn occurrences(
    recurring: &Recurring,
    fires: Vec<PreviewedFire>,
    job: Option<JobId>,
    calendars: &NamedCalendars,
) -> Vec<OccurrencePreview> {
    let shown = |fire: PreviewedFire| {
        let at = fire.at;
        let due_at = job.map(|job| recurring.due_at(job, at)).filter(|due_at| *due_at != at);
        let excluded_by = excluded_by(calendars, at).map(str::to_owned);
        OccurrencePreview { excluded_by, ..occurrence(fire, due_at) }
    };
    fires.into_iter().map(shown).collect()
}

pub fn live(live: &Live, worker: Option<String>) -> ExecutionBody {
    let gates = match live.state {
        LiveState::Waiting(gates) => gates,
        LiveState::Queued | LiveState::Running(_) => Gates::NONE,
    };
    ExecutionBody {
        execution_id: live.execution(),
        job_id: live.id.job,
        job_version: live.job_version,
        scheduled_time: live.scheduled_time,
        origin: live.origin,
        attempt_number: live.attempt,
        status: live.state().into(),
        reason: None,
        gates: gates.iter().collect(),
        worker_id: worker,
        available_at: live.available_at,
        expires_at: live.expires_at,
        cancel_requested: matches!(live.state, LiveState::Running(lease) if lease.cancel_requested),
        started_at: claimed_at(live),
        completed_at: None,
        error_message: None,
        result: None,
        payload: own_payload(live.input.as_deref()),
        repeats: repeats(live.id, live.input.as_deref()),
        moved: live.input.as_ref().is_some_and(|input| input.moved),
        chosen_by_handler: live.input.as_ref().is_some_and(|input| input.chosen),
        progress: None,
        checkpoint_bytes: None,
        checkpoint: None,
        name: None,
        job_type: None,
        queue: None,
        max_retries: None,
    }
}

fn own_payload(input: Option<&RunInput>) -> Option<Box<RawValue>> {
    input.and_then(|input| input.payload.clone()).and_then(raw_json)
}

fn repeats(id: OccurrenceId, input: Option<&RunInput>) -> Option<OccurrenceId> {
    input.and_then(|input| input.repeats).map(|number| id.job.occurrence(number))
}

pub fn finished(finished: Finished) -> ExecutionBody {
    ExecutionBody {
        execution_id: finished.id,
        job_id: finished.id.occurrence.job,
        job_version: finished.job_version,
        scheduled_time: finished.scheduled_time,
        origin: finished.origin,
        attempt_number: finished.id.attempt,
        status: ExecutionStatus::from(finished.status),
        reason: finished.reason.map(reasons::word_of),
        gates: vec![],
        worker_id: finished.worker,
        available_at: finished.available_at,
        expires_at: None,
        cancel_requested: false,
        started_at: finished.started_at,
        completed_at: Some(finished.completed_at),
        error_message: finished.error,
        result: finished.result.and_then(raw_json),
        payload: own_payload(finished.input.as_deref()),
        repeats: repeats(finished.id.occurrence, finished.input.as_deref()),
        moved: finished.input.as_ref().is_some_and(|input| input.moved),
        chosen_by_handler: finished.input.as_ref().is_some_and(|input| input.chosen),
        progress: None,
        checkpoint_bytes: None,
        checkpoint: None,
        name: None,
        job_type: None,
        queue: None,
        max_retries: None,
    }
}

/// Adds the notes of its occurrence to an execution.
pub fn add_notes(execution: &mut ExecutionBody, noted: &Noted) {
    if noted.occurrence != execution.execution_id.occurrence {
        return;
    }
    if noted.attempt == execution.attempt_number {
        execution.progress = progress(noted);
    }
    execution.checkpoint_bytes = noted.checkpoint_bytes;
}

/// The progress of the attempt, if it has noted any.
pub fn progress(noted: &Noted) -> Option<ProgressBody> {
    let Progress { percent, message } = noted.progress.clone();
    (!noted.progress.is_empty()).then_some(ProgressBody { percent, message, noted_at: noted.noted_at })
}

pub fn skip_range(range: SkipRange) -> SkipRangeBody {
    SkipRangeBody { first: range.first, last: range.last, count: range.count, reason: range.reason }
}

pub fn dead_letter(letter: DeadLetter) -> DeadLetterBody {
    DeadLetterBody {
        occurrence_id: letter.occurrence,
        job_id: letter.occurrence.job,
        name: letter.job_name,
        job_type: letter.job_type,
        queue: letter.queue,
        attempts: letter.attempts,
        scheduled_time: letter.scheduled_time,
        died_at: letter.died_at,
        error_message: letter.error,
    }
}

pub fn lane(depth: &Depth) -> LaneBody {
    LaneBody {
        queue: depth.lane.queue().to_owned(),
        job_type: depth.lane.job_type().to_owned(),
        waiting: depth.waiting,
        queued: depth.queued,
        running: depth.running,
        oldest_queued_at: depth.oldest_queued,
    }
}

pub fn execution(view: ExecutionView) -> ExecutionBody {
    match view {
        ExecutionView::Live { live: open, worker } => live(&open, worker),
        ExecutionView::Finished(ended) => finished(ended),
    }
}

/// An execution in a list across jobs, with the names of its job.
pub fn listed(listed: ListedExecution) -> ExecutionBody {
    ExecutionBody {
        name: Some(listed.job_name),
        job_type: Some(listed.job_type),
        queue: Some(listed.queue),
        max_retries: Some(listed.max_retries),
        ..execution(listed.view)
    }
}

pub fn queue(view: QueueView) -> QueueBody {
    let paused = view.row.is_held();
    let QueueRow { queue, paused_at, settings, unreadable, .. } = view.row;
    QueueBody {
        queue,
        paused,
        paused_at,
        unreadable,
        in_line: view.in_line,
        waiting: view.waiting,
        queued: view.queued,
        running: view.running,
        oldest_queued_at: view.oldest_queued,
        settings: settings.into(),
    }
}

pub fn worker(session: &SessionRow) -> WorkerBody {
    WorkerBody {
        slots: session.slots_now(),
        worker_id: session.worker.clone(),
        job_types: session.job_types.clone(),
        started_at: session.opened_at,
        last_heartbeat_at: session.beaten_at,
    }
}

pub fn worker_session(view: WorkerView) -> WorkerSessionBody {
    let WorkerView { row, running, is_partial } = view;
    let slots = row.slots_now();
    let takes_work = row.mode.gets_work() && row.refuses().is_empty();
    let free_slots = if takes_work { u64::from(slots).saturating_sub(running) } else { 0 };
    WorkerSessionBody {
        session_id: row.pulse.session,
        worker_id: row.worker,
        state: worker_state(row.mode),
        embedded: row.embedded,
        version: row.about.version,
        host: row.about.host,
        slots,
        running,
        free_slots: (!is_partial).then_some(free_slots),
        job_types: row.job_types,
        queues: row.about.queues,
        started_at: row.opened_at,
        last_heartbeat_at: row.beaten_at,
        condition: row.condition.map(Into::into),
    }
}

const fn worker_state(mode: SessionMode) -> WorkerState {
    match mode {
        SessionMode::Open => WorkerState::Open,
        SessionMode::Paused => WorkerState::Paused,
        SessionMode::Draining => WorkerState::Draining,
    }
}

/// JSON text unchanged; `None` if it is not JSON, which only a damaged store could cause. A document from
/// before the depth limit is shown as text, so that the rest of the page can be parsed.
pub fn raw_json(text: String) -> Option<Box<RawValue>> {
    match check_document(&text) {
        Ok(()) => RawValue::from_string(text).ok(),
        Err(problem) => to_raw_value(&json!({ "unreadable": problem.to_string(), "text": text })).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::ids::JobId;
    use punctual_core::job::{Job, JobSpec, Priority, StoredStatus};
    use punctual_core::occurrence::Origin;
    use std::time::Duration;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn view(state: LiveState) -> JobView {
        let id = JobId::new(at(0), 1);
        let spec = JobSpec::named("report");
        let (mark, numbered) = (StoredStatus::Active, None);
        let job =
            Job { id, version: 3, mark, numbered, fired: 0, created_at: at(0), updated_at: at(0), spec };
        let live = Live::fired(
            id.occurrence(1),
            at(5),
            Origin::Schedule,
            3,
            Priority::DEFAULT,
            at(5),
            Duration::ZERO,
        );
        JobView { job, schedule: None, open: vec![Live { state, ..live }], last_finished: None }
    }

    #[test]
    fn a_stored_document_that_is_too_deep_is_shown_as_text() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(raw_json(nested(100)).unwrap().get(), nested(100));
        let shown = raw_json(nested(30_000)).unwrap();
        let shown: serde_json::Value = serde_json::from_str(shown.get()).expect("every reader can read it");
        assert_eq!(shown["unreadable"], "nests arrays and objects more than 100 deep");
        assert_eq!(shown["text"], nested(30_000));
    }

    #[test]
    fn a_run_that_waits_for_something_without_a_time_has_none() {
        assert_eq!(job(view(LiveState::Queued)).next_run_time, Some(at(5)));
        let behind = |gate| job(view(LiveState::Waiting(Gates::only(gate)))).next_run_time;
        assert_eq!(behind(Gate::Time), Some(at(5)));
        assert_eq!([Gate::Dependency, Gate::Overlap, Gate::Paused].map(behind), [None; 3]);
        let mut retried = view(LiveState::Waiting(Gates::only(Gate::Time).with(Gate::Paused)));
        retried.open[0].attempt = 2;
        assert_eq!(job(retried.clone()).next_retry_time, None);
        retried.open[0].state = LiveState::Waiting(Gates::only(Gate::Time));
        assert_eq!(job(retried).next_retry_time, Some(at(5)));
    }
}
