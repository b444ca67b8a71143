//! Why an open execution is in its current state.

use super::{ExplainedFacts, doomed, in_brackets, line, listed, parents, queue_paused, rough, when};
use crate::{reasons, views};
use punctual_client::ExecutionStatus;
use punctual_core::gates::Gate;
use punctual_core::job::JobSpec;
use punctual_core::lifecycle::Status;
use punctual_core::limits;
use punctual_core::occurrence::{Finished, Lease, Live, LiveState};
use punctual_core::ports::SessionRow;
use punctual_core::schedule::OverlapPolicy;
use punctual_core::session::SessionMode;
use punctual_engine::{EligibleWorkers, lane_of};

/// The most important sentence first. It names the execution if it will also be shown elsewhere.
pub fn sentences(live: &Live, is_named: bool, facts: &ExplainedFacts) -> Vec<String> {
    let mut said = match live.state {
        LiveState::Running(lease) => running(live, lease, facts),
        LiveState::Waiting(gates) => gates.iter().flat_map(|gate| closed(gate, live, facts)).collect(),
        LiveState::Queued => queued(live, facts),
    };
    let is_of_queue = said.first() == queue_paused(facts).as_ref();
    if let Some(first) = said.first_mut().filter(|_| is_named && !is_of_queue) {
        *first = format!("{}: {first}", live.execution());
    }
    said.extend(noted(live, facts));
    if live.is_running() {
        return said;
    }
    if let Some(expires_at) = live.expires_at {
        said.push(format!("It expires at {} unless it has started by then.", when(expires_at, facts.now)));
    }
    said
}

/// The progress of a running execution, or the checkpoint that the next attempt starts from.
fn noted(live: &Live, facts: &ExplainedFacts) -> Option<String> {
    let noted = facts.notes.iter().find(|noted| noted.occurrence == live.id)?;
    if !live.is_running() {
        let bytes = noted.checkpoint_bytes?;
        return Some(format!("Attempt {} starts with a checkpoint of {bytes} bytes.", live.attempt));
    }
    let progress = views::progress(noted).filter(|_| noted.attempt == live.attempt)?;
    Some(format!("Its progress is {progress}, reported at {}.", when(noted.noted_at, facts.now)))
}

fn running(live: &Live, lease: Lease, facts: &ExplainedFacts) -> Vec<String> {
    let session = facts.sessions.iter().find(|row| row.pulse.session == lease.session);
    let place = session
        .map_or("a worker that is no longer connected".to_owned(), |row| format!("worker {}", row.worker));
    let job = &facts.view.job;
    let terms = if live.job_version == job.version {
        format!("with a time limit of {}", rough(job.spec.settings.timeout_after(live.charged)))
    } else {
        // The limit that applied to it is no longer known.
        format!("with version {} of the job, which has changed since then", live.job_version)
    };
    let since = when(lease.claimed_at, facts.now);
    let mut said =
        vec![format!("Attempt {} has been running on {place} since {since}, {terms}.", live.attempt)];
    if session.is_none() {
        said.push("It counts as lost once its worker's lease has expired.".to_owned());
    }
    if lease.cancel_requested {
        said.push(
            "It has been asked to stop and will end cancelled, whatever its handler reports.".to_owned(),
        );
    }
    said
}

/// The explanation of one closed gate.
fn closed(gate: Gate, live: &Live, facts: &ExplainedFacts) -> Vec<String> {
    let said = match gate {
        Gate::Concurrency => return line::sentences(live, facts),
        Gate::Time => waits_for_time(live, facts),
        Gate::Dependency if facts.parents.is_empty() => {
            "It waited for other jobs, which have now all succeeded: it becomes ready shortly.".to_owned()
        }
        Gate::Dependency => {
            doomed(facts).unwrap_or_else(|| format!("It waits for {} to succeed.", parents(&facts.parents)))
        }
        Gate::Overlap => waits_behind(live, facts),
        // The job's own explanation says how to resume it.
        Gate::Paused => "It waits because the job is paused.".to_owned(),
    };
    vec![said]
}

fn waits_for_time(live: &Live, facts: &ExplainedFacts) -> String {
    let until = when(live.available_at, facts.now);
    let input = live.input.as_deref();
    let is_chosen = input.is_some_and(|input| input.chosen);
    let before_this = facts.history.iter().find(|finished| finished.id.occurrence == live.id);
    if is_chosen && before_this.is_none_or(|before| before.status == Status::Snoozed) {
        let count = input.map_or(0, |input| input.snoozes);
        return format!(
            "Attempt {} waits until {until}: its handler has snoozed it, {count} of at most {} times.",
            live.attempt,
            limits::SNOOZES_MAX
        );
    }
    if live.charged == 0 {
        return format!("It waits until {until}.");
    }
    let chosen = if is_chosen { ", at a time chosen by the handler" } else { "" };
    let before = facts.history.iter().find(|finished| finished.id.occurrence == live.id);
    let after = before.map_or("a failure".to_owned(), failed);
    let max_retries = facts.view.job.spec.settings.max_retries;
    format!(
        "Attempt {} waits until {until}: it is retry {} of {max_retries}{chosen}, after {after}.",
        live.attempt, live.charged
    )
}

fn failed(before: &Finished) -> String {
    let status = ExecutionStatus::from(before.status);
    let error = in_brackets(before.error.as_deref());
    format!("attempt {} ended {status}{error}", before.id.attempt)
}

fn waits_behind(live: &Live, facts: &ExplainedFacts) -> String {
    let policy = match facts.view.job.spec.settings.overlap {
        OverlapPolicy::Skip => "SKIP",
        OverlapPolicy::Allow => "ALLOW",
        OverlapPolicy::Queue => "QUEUE",
        OverlapPolicy::Replace => "REPLACE",
    };
    let others = || facts.view.open.iter().filter(|other| other.id != live.id);
    let holders: Vec<String> = others()
        .filter(|other| !other.is_closed_by(Gate::Overlap))
        .map(|other| other.execution().to_string())
        .collect();
    let place = |live: &Live| (live.flags.replayed, live.id.number);
    let ahead =
        others().filter(|other| other.is_closed_by(Gate::Overlap) && place(other) < place(live)).count();
    let behind = match holders.len() {
        0 => "an earlier occurrence of the job has".to_owned(),
        1 => format!("{} has", holders[0]),
        count => format!("{} have", listed(holders, count)),
    };
    let queue = match ahead {
        0 => String::new(),
        1 => ", and another one waits before it".to_owned(),
        count => format!(", and {count} others wait before it"),
    };
    format!("It waits until {behind} ended (overlap_policy {policy}){queue}.")
}

/// Why a queued execution has not been claimed yet.
fn queued(live: &Live, facts: &ExplainedFacts) -> Vec<String> {
    let spec = &facts.view.job.spec;
    let mut said: Vec<String> = queue_paused(facts).into_iter().collect();
    if facts.is_stopping {
        said.push(
            "The server is stopping: executions that have not started run after its next start.".to_owned(),
        );
    }
    let able = EligibleWorkers::in_lane(&lane_of(spec), &facts.sessions);
    said.extend(match (able.open.as_slice(), able.held.as_slice()) {
        ([], []) => Some(nobody_able(spec, &facts.sessions)),
        ([], held) => Some(all_held(held)),
        _ => None,
    });
    match facts.ahead.get(&live.id) {
        None | Some(0) => {}
        Some(1) => said.push("One execution of the same queue and type is ahead of it.".to_owned()),
        Some(&ahead) => {
            let at_least = if ahead >= limits::POSITION_MAX { "At least " } else { "" };
            said.push(format!("{at_least}{ahead} executions of the same queue and type are ahead of it."));
        }
    }
    if let Some(busy) = all_busy(&able.open, facts) {
        said.push(busy);
    }
    if said.is_empty() && facts.queue_unreadable.is_none() {
        said.push("Nothing blocks it: a worker will claim it shortly.".to_owned());
    }
    said.push(format!("It has been ready since {}.", when(live.available_at, facts.now)));
    said
}

/// Why the workers that could run it do not: all of them are paused, are draining or refuse work.
fn all_held(held: &[&SessionRow]) -> String {
    match held {
        [row] => {
            let until = match row.mode {
                SessionMode::Draining => "is draining: it takes no more work".to_owned(),
                SessionMode::Paused => "is paused: it takes no work until it is resumed".to_owned(),
                SessionMode::Open => {
                    let reasons = row.refuses().join("; ");
                    format!("refuses work until it has enough resources ({reasons})")
                }
            };
            format!("Worker {}, the only one with its handler, {until}.", row.worker)
        }
        _ => {
            let which = listed(held.iter().map(|row| reasons::of_holding(row)).collect(), held.len());
            format!("All {} workers that have its handler take no new work: {which}.", held.len())
        }
    }
}

/// Why no worker could run it.
fn nobody_able(spec: &JobSpec, sessions: &[SessionRow]) -> String {
    let elsewhere: Vec<String> = sessions
        .iter()
        .filter(|row| row.has_handler(&spec.job_type))
        .map(|row| {
            format!("{} serves {}", row.worker, listed(row.about.queues.clone(), row.about.queues.len()))
        })
        .collect();
    if elsewhere.is_empty() {
        return no_handler(&spec.job_type, sessions);
    }
    let (queue, count) = (&spec.queue, elsewhere.len());
    format!(
        "No connected worker that has its handler serves the queue {queue}: {}.",
        listed(elsewhere, count)
    )
}

fn no_handler(job_type: &str, sessions: &[SessionRow]) -> String {
    if sessions.is_empty() {
        return format!("No worker is connected; it needs one that has a handler for {job_type}.");
    }
    let handlers = |row: &SessionRow| match row.job_types.as_slice() {
        [] => format!("{} has none", row.worker),
        types => format!("{} has {}", row.worker, listed(types.to_vec(), types.len())),
    };
    let there = listed(sessions.iter().map(handlers).collect(), sessions.len());
    format!("No connected worker has a handler for {job_type}: {there}.")
}

/// Reports that the workers that could run it are full, as far as the server can tell.
fn all_busy(able: &[&SessionRow], facts: &ExplainedFacts) -> Option<String> {
    let slots: u64 = able.iter().map(|row| u64::from(row.slots_now())).sum();
    let theirs =
        |job_type: &str| able.iter().any(|row| row.job_types.iter().any(|theirs| theirs == job_type));
    let lanes = facts.depths.iter().filter(|depth| theirs(depth.lane.job_type()));
    let running = lanes.map(|depth| depth.running).fold(0, u64::saturating_add);
    if able.is_empty() || running < slots {
        return None;
    }
    let workers = match able.len() {
        1 => format!("worker {}, the only one with its handler,", able[0].worker),
        count => format!("the {count} workers that have its handler"),
    };
    let slots = if slots == 1 { "The only slot".to_owned() } else { format!("All {slots} slots") };
    let are = if slots.starts_with("The") { "is" } else { "are" };
    Some(format!("{slots} of {workers} {are} busy."))
}
