//! Explains a job's state in plain English: a pure function from facts to sentences. The engine gathers the
//! facts.

mod line;
mod open;
mod past;
mod replay;
#[cfg(test)]
mod tests;

use crate::{reasons, submission, views};
use punctual_client::{Advice, ExecutionExplained, ExplainBody, Span};
use punctual_core::job::JobStatus;
use punctual_core::occurrence::{Finished, Live, LiveState};
use punctual_core::ports::{Lane, SessionRow};
use punctual_core::schedule::{Schedule, ScheduleState, SkipReason};
use punctual_core::session::SessionMode;
use punctual_core::time::Timestamp;
use punctual_engine::{
    EligibleWorkers, ExplainedFacts, MoreOpen, ParentJob, lane_of, next_run_time, parent_to_blame,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// Skipped ranges and parents that are listed in sentences; the rest are only counted.
const TOLD_MAX: usize = 5;
/// Starts later than this are reported as late.
const LATE_MIN: Duration = Duration::from_secs(1);

pub fn explain(facts: ExplainedFacts) -> ExplainBody {
    let most_telling = most_telling(&facts);
    let explained = |live: &Live| {
        let is_named = facts.view.open.len() > 1 && most_telling.is_some_and(|telling| telling.id == live.id);
        ExecutionExplained {
            execution_id: live.execution(),
            status: live.state().into(),
            sentences: open::sentences(live, is_named, &facts),
        }
    };
    let mut executions: Vec<ExecutionExplained> = facts.view.open.iter().map(explained).collect();
    let mut sentences = about_status(&facts);
    sentences.extend(queue_unreadable(&facts));
    sentences.extend(queue_paused(&facts));
    sentences.extend(past::failing(&facts));
    sentences.extend(next_run(&facts));
    sentences.extend(more_open(&facts));
    let told = most_telling.and_then(|live| {
        executions.iter().find(|told| told.execution_id == live.execution())?.sentences.first()
    });
    let summary = told.or(sentences.first()).cloned();
    let summary = summary.unwrap_or_else(|| "The job has nothing left to run.".to_owned());
    sentences.extend(past::sentences(&facts));
    sentences.retain(|sentence| *sentence != summary);
    // Executions do not repeat what is reported for the job, but they do repeat what the summary took from
    // one of them.
    for execution in &mut executions {
        execution.sentences.retain(|sentence| !sentences.contains(sentence));
    }
    sentences.insert(0, summary.clone());
    ExplainBody {
        job_id: facts.view.job.id,
        status: facts.view.status(),
        summary,
        sentences,
        advice: advice(&facts),
        executions,
        next_run_time: next_run_time(&facts.view),
        recent: past::recent(&facts),
        skipped: facts.skipped.into_iter().map(views::skip_range).collect(),
    }
}

/// A sentence saying that not all open executions are explained, if so.
fn more_open(facts: &ExplainedFacts) -> Option<String> {
    let (shown, id) = (facts.view.open.len(), facts.view.job.id);
    let more = match facts.more_open {
        MoreOpen { counted: 0, is_all: true } => return None,
        MoreOpen { counted: 0, is_all: false } => "there may be more".to_owned(),
        MoreOpen { counted, is_all: true } => format!("{counted} more are not"),
        MoreOpen { counted, is_all: false } => format!("at least {counted} more are not"),
    };
    Some(format!(
        "{shown} of its open executions are explained here, {more}: `punctual job history {id}` lists all."
    ))
}

/// Actions that may fix what blocks the job or what has failed.
fn advice(facts: &ExplainedFacts) -> Vec<Advice> {
    let job = &facts.view.job;
    let mut advice = Vec::new();
    if facts.view.status() == JobStatus::Paused {
        advice.push(Advice::resume_job(job.id));
    }
    if facts.queue_paused_at.is_some() && queue_paused(facts).is_some() {
        advice.push(Advice::resume_queue(&job.spec.queue));
    }
    advice.extend(paused_in_the_way(facts).into_iter().map(Advice::resume_worker));
    if let Some(last) = skipped_for_parent(facts) {
        let parent =
            parent_to_blame(last, &job.spec).filter(|_| parent_status(facts) == Some(JobStatus::Failed));
        advice.extend(parent.map(Advice::retry_job));
        advice.push(Advice::trigger_job(job.id));
    }
    let redriven = facts.dead.as_ref().filter(|_| facts.view.status() != JobStatus::Cancelled);
    advice.extend(redriven.map(|letter| Advice::redrive(letter.occurrence)));
    advice
}

/// Paused workers that block a queued execution: one of the job, or one that counts against a limit the job
/// waits for.
fn paused_in_the_way(facts: &ExplainedFacts) -> BTreeSet<String> {
    let is_queued = facts.view.open.iter().any(|live| matches!(live.state, LiveState::Queued));
    let own = is_queued.then(|| lane_of(&facts.view.job.spec));
    let holders = facts.holders.values().flatten().filter(|holder| holder.runs.is_none());
    let lanes: BTreeSet<Lane> = own.into_iter().chain(holders.map(|holder| holder.lane.clone())).collect();
    let in_the_way =
        lanes.iter().flat_map(|lane| EligibleWorkers::in_lane(lane, &facts.sessions).in_the_way().to_vec());
    let paused = in_the_way.filter(|row| row.mode == SessionMode::Paused);
    paused.map(|row| unmistakable(row, &facts.sessions)).collect()
}

/// The worker's name as its routes accept it. A name that several sessions share is ambiguous, so the session
/// id is used then.
fn unmistakable(row: &SessionRow, sessions: &[SessionRow]) -> String {
    let is_shared = sessions.iter().filter(|other| other.worker == row.worker).count() > 1;
    if is_shared { row.pulse.session.to_string() } else { row.worker.clone() }
}

/// The most important execution: a running one, else the earliest. A job status other than ACTIVE is more
/// important than an execution that does not run.
fn most_telling(facts: &ExplainedFacts) -> Option<&Live> {
    let open = &facts.view.open;
    let first_in_line = || open.iter().min_by_key(|live| live.id.number);
    let is_active = facts.view.status() == JobStatus::Active;
    open.iter().find(|live| live.is_running()).or_else(|| first_in_line().filter(|_| is_active))
}

/// What a status other than ACTIVE means for this job.
fn about_status(facts: &ExplainedFacts) -> Vec<String> {
    let reason = || status_reason(facts).unwrap_or_else(|| "the reason is no longer kept".to_owned());
    match facts.view.status() {
        JobStatus::Active => vec![],
        JobStatus::Paused => {
            vec!["The job is paused: it starts no executions until it is resumed.".to_owned()]
        }
        JobStatus::Completed => vec!["The job is completed: it has nothing left to run.".to_owned()],
        JobStatus::Cancelled => vec![format!("The job is cancelled: {}.", reason())],
        JobStatus::Failed => {
            let mut said = vec![format!("The job has failed: {}.", reason())];
            said.extend(skipped_for_parent(facts).map(|_| after_skip(facts)));
            said
        }
    }
}

/// The latest run, if the job failed because it was skipped on account of another job.
fn skipped_for_parent(facts: &ExplainedFacts) -> Option<&Finished> {
    let last = facts.view.last_finished.as_ref().filter(|_| facts.view.status() == JobStatus::Failed)?;
    (last.reason == Some(SkipReason::Dependency)).then_some(last)
}

/// The current status of the job that caused the skip.
fn parent_status(facts: &ExplainedFacts) -> Option<JobStatus> {
    facts.blamed.as_ref().map(|(_, status)| *status)
}

/// What to do about a job that was skipped on account of another job.
fn after_skip(facts: &ExplainedFacts) -> String {
    let said = match parent_status(facts) {
        Some(JobStatus::Failed) => {
            "It does not run again by itself: fix and retry that job, and trigger this one once that job \
             has succeeded."
        }
        Some(JobStatus::Completed) => "That job has now succeeded: trigger this one to run it.",
        Some(JobStatus::Active | JobStatus::Paused) => {
            "It does not run again by itself: that job is active again; trigger this one once that job has \
             succeeded."
        }
        Some(JobStatus::Cancelled) | None => {
            "It does not run again by itself: trigger it to run it without that job."
        }
    };
    said.to_owned()
}

fn status_reason(facts: &ExplainedFacts) -> Option<String> {
    reasons::of_status(&facts.view, blamed_name(facts))
}

fn blamed_name(facts: &ExplainedFacts) -> Option<&str> {
    facts.blamed.as_ref().map(|(name, _)| name.as_str())
}

/// A sentence saying that the cluster or the job's queue is paused, while the job still has executions to start.
fn queue_paused(facts: &ExplainedFacts) -> Option<String> {
    let is_unfinished = matches!(facts.view.status(), JobStatus::Active | JobStatus::Paused);
    if let Some(pause) = facts.cluster_pause.as_ref().filter(|_| is_unfinished) {
        let since = when(pause.paused_at, facts.now);
        let end = pause.until.map_or_else(
            || "until it is resumed with `punctual unpause`".to_owned(),
            |until| format!("until {}", when(until, facts.now)),
        );
        let skips = if pause.skips { ", and recurring runs are skipped" } else { "" };
        return Some(format!(
            "The whole cluster has been paused since {since} ({}): it starts no executions {end}{skips}.",
            pause.reason
        ));
    }
    let paused_at = facts.queue_paused_at.filter(|_| is_unfinished)?;
    let (queue, since) = (&facts.view.job.spec.queue, when(paused_at, facts.now));
    Some(format!(
        "The queue {queue} has been paused since {since}: it starts no executions until it is resumed."
    ))
}

fn queue_unreadable(facts: &ExplainedFacts) -> Option<String> {
    let is_unfinished = matches!(facts.view.status(), JobStatus::Active | JobStatus::Paused);
    let reason = facts.queue_unreadable.as_ref().filter(|_| is_unfinished)?;
    let queue = &facts.view.job.spec.queue;
    Some(format!(
        "The settings of the queue {queue} cannot be read ({reason}): it starts no executions until they \
         are set again, for example with `punctual queue set {queue} --max-depth none`."
    ))
}

/// A fire that is overdue by more than this was not picked up: schedulers scan every second.
const FIRE_OVERDUE: Duration = Duration::from_secs(10);

fn next_run(facts: &ExplainedFacts) -> Vec<String> {
    let Some(state) = &facts.view.schedule else { return vec![] };
    let mut said = Vec::new();
    let by = match submission::in_words(&state.schedule) {
        Some(_) if state.is_replay_next() => "to replay a missed occurrence".to_owned(),
        Some(description) => format!("by its schedule: {description}"),
        None => "once".to_owned(),
    };
    match (state.runs_at(), state.nominal) {
        (Some(due_at), _) if facts.now.since(due_at) > FIRE_OVERDUE => {
            said.push(format!(
                "It was due at {}, {by}, and no scheduler has fired it yet: check that a scheduler is \
                 running and keeps up.",
                when(due_at, facts.now)
            ));
        }
        (Some(due_at), _) => {
            said.push(format!("It runs next at {}, {by}{}.", when(due_at, facts.now), runs_left(state)));
        }
        // Only a replay is left, and it waits for room.
        (None, _) if state.due_at.is_some() => {}
        (None, Some(nominal)) if nominal > facts.now => {
            said.push(format!("If it is resumed before {}, it runs then, {by}.", when(nominal, facts.now)));
        }
        (None, _) if state.schedule.is_one_shot() => {
            said.push("Once it is resumed, it runs immediately.".to_owned());
        }
        (None, _) => said.push(format!("Once it is resumed, it continues {by}.")),
    }
    said.extend(replay::sentence(state, facts));
    if let Some(doomed) = doomed(facts) {
        said.push(doomed);
    } else if !facts.parents.is_empty() {
        said.push(format!("When it is due, it also waits for {}.", parents(&facts.parents)));
    }
    said
}

/// A sentence saying that the job will be skipped, because a job that it depends on was deleted before it
/// succeeded.
fn doomed(facts: &ExplainedFacts) -> Option<String> {
    let deleted = facts.parents.iter().find(|parent| parent.known.is_none())?;
    Some(format!(
        "Job {}, which it depends on, was deleted before it succeeded: once the run of that job has stopped, this one is \
         skipped with reason dependency. To run it without that job, trigger it then, or submit it again without \
         depends_on.",
        deleted.id
    ))
}

fn runs_left(state: &ScheduleState) -> String {
    let max_runs = match &state.schedule {
        Schedule::Recurring(recurring) => recurring.max_runs,
        _ => None,
    };
    max_runs.map_or(String::new(), |max| format!("; {} of {max} runs have started", state.fired))
}

/// The jobs it waits for, by id, name and status.
fn parents(parents: &[ParentJob]) -> String {
    let one = |parent: &ParentJob| match &parent.known {
        Some((name, status)) => format!("job {} ({name}, {})", parent.id, status.as_str()),
        None => format!("job {} (deleted)", parent.id),
    };
    listed(parents.iter().map(one).collect(), parents.len())
}

/// A list in a sentence, cut to a readable length.
fn listed(mut items: Vec<String>, count: usize) -> String {
    items.truncate(TOLD_MAX);
    if count > items.len() {
        items.push(format!("{} more", count - items.len()));
    }
    match items.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// An error in brackets, to follow the thing it is about.
fn in_brackets(error: Option<&str>) -> String {
    error.map_or(String::new(), |error| format!(" ({})", reasons::first_line(error)))
}

/// A time and its distance from now.
fn when(at: Timestamp, now: Timestamp) -> String {
    match at > now {
        true => format!("{at} (in {})", rough(at.since(now))),
        false => format!("{at} ({} ago)", rough(now.since(at))),
    }
}

/// A duration rounded for reading.
fn rough(length: Duration) -> Span {
    let unit = match length.as_secs() {
        0 => Duration::from_millis(1),
        1..3_600 => Duration::from_secs(1),
        3_600..86_400 => Duration::from_secs(60),
        _ => Duration::from_secs(3_600),
    };
    let whole = length.as_micros() / unit.as_micros() * unit.as_micros();
    Duration::from_micros(u64::try_from(whole).unwrap_or(u64::MAX)).into()
}
