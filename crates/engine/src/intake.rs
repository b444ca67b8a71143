//! Jobs from other systems: messages of a broker are submitted as the API submits requests, with the rights of a
//! configured owner.
//!
//! A message is acknowledged after its job is stored. If that is lost, the message is delivered again and finds its job
//! by the idempotency key that follows from its id, so each message creates one job. A message that is no valid job is
//! moved to the rejected ones with the reason. One that cannot be stored now is kept and tried again: the broker holds
//! the others meanwhile.

use crate::pause::ErrorPause;
use crate::{Access, Caller, Engine, RequestTry, SubmitError, UseCases};
use punctual_core::access::{GrantTerms, Role, Scope};
use punctual_core::job::{InvalidField, JobSpec};
use punctual_core::ports::{IncomingMessage, MessageSource};
use punctual_core::time::Timestamp;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the caller in the audit log.
const CALLER: &str = "intake";

/// What a node needs to receive jobs.
#[derive(Debug, Clone)]
pub struct IntakeConfig {
    pub source: Arc<dyn MessageSource>,
    pub reader: Arc<dyn JobReader>,
    /// The owner of the jobs. Messages cannot submit jobs of others.
    pub owner: String,
}

/// What reads a job from a message.
pub trait JobReader: fmt::Debug + Send + Sync {
    /// The job with an idempotency key, or what is wrong with the message.
    fn read(&self, message: &IncomingMessage, now: Timestamp, owner: &str) -> Result<JobSpec, String>;
}

/// Why no jobs are received, if so.
#[derive(Debug, Default)]
pub(crate) struct IntakeState(Mutex<Option<String>>);

impl IntakeState {
    pub fn error(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns what was there before.
    fn set(&self, error: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), error)
    }
}

pub(crate) async fn receive(engine: &Arc<Engine>) {
    let context = &engine.context;
    let Some(config) = &context.config.intake else { return };
    let cases = Access::new(engine.clone()).on_behalf_of(caller(&config.owner));
    let mut error_pause = ErrorPause::default();
    loop {
        match receive_once(engine, config, &cases).await {
            Ok(()) => {
                error_pause.succeeded();
                if context.intake.set(None).is_some() {
                    tracing::info!(broker = config.source.kind(), "messages with jobs are received again");
                }
            }
            Err(error) => {
                context.counters.intake_errors.add(1);
                if context.intake.set(Some(error.clone())).is_none() {
                    tracing::warn!(
                        broker = config.source.kind(),
                        error,
                        "messages with jobs cannot be received; retrying"
                    );
                }
                context.host.clock.sleep(error_pause.failed()).await;
            }
        }
    }
}

/// A caller that may submit jobs of one owner, and nothing else.
fn caller(owner: &str) -> Caller {
    let scope = Scope { owner: Some(owner.to_owned()), ..Scope::default() };
    let terms = GrantTerms { owner: Some(owner.to_owned()), scope, permissions: vec![] };
    Caller {
        token_id: CALLER.to_owned(),
        name: CALLER.to_owned(),
        user: None,
        session_of: None,
        is_stored: false,
        grant: terms.grant(Role::Submitter),
        source: None,
    }
}

async fn receive_once(engine: &Engine, config: &IntakeConfig, cases: &UseCases) -> Result<(), String> {
    let context = &engine.context;
    let mut left = config.source.receive().await.map_err(|error| error.to_string())?;
    let mut error_pause = ErrorPause::default();
    while !left.is_empty() {
        let Sorted { stored, rejected, later } = submit(config, cases, left, engine.now()).await;
        if !stored.is_empty() {
            config.source.acknowledge(&stored).await.map_err(|error| error.to_string())?;
            context.counters.intake_accepted.add(stored.len() as u64);
        }
        for (message, why) in &rejected {
            config.source.reject(message, why).await.map_err(|error| error.to_string())?;
            context.counters.intake_rejected.add(1);
            tracing::warn!(
                message = message.id.as_deref().unwrap_or("without an id"),
                why,
                "a message was rejected"
            );
        }
        let Some((_, why)) = later.first() else { return Ok(()) };
        if context.intake.set(Some(why.clone())).is_none() {
            tracing::warn!(
                error = why,
                messages = later.len(),
                "jobs of messages cannot be stored now; retrying"
            );
        }
        context.counters.intake_errors.add(1);
        context.host.clock.sleep(error_pause.failed()).await;
        left = later.into_iter().map(|(message, _)| message).collect();
    }
    Ok(())
}

/// Messages by what became of them.
#[derive(Default)]
struct Sorted {
    stored: Vec<IncomingMessage>,
    rejected: Vec<(IncomingMessage, String)>,
    /// Their jobs may be stored later.
    later: Vec<(IncomingMessage, String)>,
}

async fn submit(
    config: &IntakeConfig,
    cases: &UseCases,
    messages: Vec<IncomingMessage>,
    now: Timestamp,
) -> Sorted {
    let (mut sorted, mut valid, mut specs) = (Sorted::default(), vec![], vec![]);
    for message in messages {
        match config.reader.read(&message, now, &config.owner) {
            Ok(spec) => {
                specs.push(spec);
                valid.push(message);
            }
            Err(why) => sorted.rejected.push((message, why)),
        }
    }
    if specs.is_empty() {
        return sorted;
    }
    match cases.submit(specs, RequestTry { ids: None, is_repeated: false }).await {
        Err(error) => sorted.later.extend(valid.into_iter().map(|message| (message, error.to_string()))),
        Ok(answers) => {
            for (message, answer) in valid.into_iter().zip(answers) {
                match answer {
                    Ok(_) => sorted.stored.push(message),
                    Err(error) if may_pass(&error) => sorted.later.push((message, error.to_string())),
                    Err(error) => sorted.rejected.push((message, reason(&error))),
                }
            }
        }
    }
    sorted
}

fn may_pass(error: &SubmitError) -> bool {
    match error {
        SubmitError::QueueFull { .. } | SubmitError::QuotaReached { .. } | SubmitError::Unavailable(_) => {
            true
        }
        SubmitError::Invalid(_)
        | SubmitError::Forbidden(_)
        | SubmitError::KeyTaken(_)
        | SubmitError::Unreadable(_) => false,
    }
}

fn reason(error: &SubmitError) -> String {
    match error {
        SubmitError::Invalid(problems) => listed(problems),
        other => other.to_string(),
    }
}

/// All problems with their fields.
fn listed(problems: &[InvalidField]) -> String {
    let problems: Vec<String> =
        problems.iter().map(|problem| format!("{} {}", problem.field, problem.fix)).collect();
    problems.join("; ")
}
