//! Secrets on their way to workers, and their removal from what workers report.
//!
//! The values are resolved when an execution is handed to a worker, and never stored. Rules, queues and secrets
//! may have changed since the job was submitted, so the rules are checked again. What workers report passes
//! through this module before it is stored, whichever node handed the execution out.

use crate::work::unavailable;
use crate::{Engine, EngineContext};
use punctual_core::ids::{ExecutionId, SessionId};
use punctual_core::lifecycle::Ending;
use punctual_core::limits;
use punctual_core::notes::{Checkpoint, Note};
use punctual_core::occurrence::ReportedEnd;
use punctual_core::ports::{
    Assignment, AuditEntry, AuditId, ExecutionView, LogLine, LogStream, OUTCOME_OK, Report, ReportAnswer,
    SecretCipher, SessionOpening, StoreError, WorkerPortError,
};
use punctual_core::sealed::is_sealed;
use punctual_core::secrets::{Redactor, SecretReference, may_have_references, references, resolved};
use punctual_core::time::Monotonic;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The action of the audit entry of an execution that got secrets.
const USE: &str = "secret.use";
/// What stands in place of a text that may contain secrets which this node cannot read.
const WITHHELD: &str =
    "[withheld: this server cannot decrypt the secrets of the job, so it cannot remove them]";

/// The worker of a session, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SecretUser {
    worker: String,
    /// The token of the session; empty for a worker in this process.
    token: String,
}

impl SecretUser {
    pub fn of(opening: &SessionOpening) -> Self {
        SecretUser { worker: opening.worker.clone(), token: opening.token.clone().unwrap_or_default() }
    }
}

/// How the texts of an execution are changed before they are stored.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one per report, and only for a moment")]
enum Redaction {
    Values(Redactor),
    /// The values are unknown here, so no text can be shown.
    Everything,
}

/// What this node remembers about secrets. All of it can be read again.
#[derive(Default)]
pub(crate) struct HeldSecrets {
    /// Executions that were handed out here or have reported here; `None` if they use no secrets.
    executions: Mutex<BTreeMap<ExecutionId, Option<Arc<Redaction>>>>,
    /// Those of executions by the names and values of their secrets: most executions use the same ones.
    shared: Mutex<BTreeMap<SecretValues, Weak<Redaction>>>,
    presence: Mutex<Presence>,
    workers: Mutex<BTreeMap<SessionId, SecretUser>>,
}

/// The values of secrets, by name.
type SecretValues = BTreeMap<String, String>;

/// Whether the store has any secret.
#[derive(Debug, Clone, Copy, Default)]
struct Presence {
    is_any: bool,
    /// When the store was last found without secrets.
    absent_at: Option<Monotonic>,
}

impl HeldSecrets {
    /// A session was opened here.
    pub fn opened(&self, session: SessionId, worker: SecretUser) {
        put(&self.workers, session, worker);
    }

    /// This node has stored a secret.
    pub fn are_present(&self) {
        lock(&self.presence).is_any = true;
    }

    fn remember(&self, execution: ExecutionId, redaction: Option<Arc<Redaction>>) {
        put(&self.executions, execution, redaction);
    }

    fn known(&self, execution: ExecutionId) -> Option<Option<Arc<Redaction>>> {
        lock(&self.executions).get(&execution).cloned()
    }

    /// Replaces these values.
    fn redaction_of(&self, values: &SecretValues) -> Arc<Redaction> {
        let mut shared = lock(&self.shared);
        if let Some(known) = shared.get(values).and_then(Weak::upgrade) {
            return known;
        }
        shared.retain(|_, redaction| redaction.strong_count() > 0);
        let redactor = Redactor::new(values.iter().map(|(name, value)| (&**name, &**value)));
        let redaction = Arc::new(Redaction::Values(redactor));
        shared.insert(values.clone(), Arc::downgrade(&redaction));
        redaction
    }

    /// The values need not stay in memory.
    fn forget(&self, execution: ExecutionId) {
        lock(&self.executions).remove(&execution);
    }
}

/// Adds an entry; when there are too many, the one of the oldest job or session goes.
fn put<K: Ord, V>(map: &Mutex<BTreeMap<K, V>>, key: K, value: V) {
    let mut map = lock(map);
    map.insert(key, value);
    if map.len() > limits::SECRET_HOLDERS_MAX {
        map.pop_first();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An execution that cannot get its secrets; the text is the error of the attempt.
struct Denied(String);

/// An execution with its secrets, by name.
struct Granted {
    assignment: Assignment,
    values: SecretValues,
}

impl Engine {
    /// The assignments as their worker gets them: with values in place of references. Attempts that may not use
    /// a secret, or whose secrets cannot be decrypted here, fail without reaching the worker.
    ///
    /// After an error, the worker resyncs and the executions are returned to the queue.
    pub(crate) async fn with_secrets(
        &self,
        session: SessionId,
        assignments: Vec<Assignment>,
    ) -> Result<Vec<Assignment>, WorkerPortError> {
        let context = &self.context;
        let Some(cipher) = &context.config.secret_cipher else { return Ok(assignments) };
        let (assignments, mut failed) = self.decrypted(session, assignments);
        let may_have = |assignment: &Assignment| may_have_references(&assignment.payload);
        let is_present = lock(&context.secrets.presence).is_any;
        let is_plain = assignments.is_empty() || !is_present && !assignments.iter().any(may_have);
        if is_plain && failed.is_empty() {
            return Ok(assignments);
        }
        let (mut ready, mut audit) = (Vec::with_capacity(assignments.len()), vec![]);
        for assignment in assignments {
            let found = match references(&assignment.payload) {
                Ok(found) if found.is_empty() => {
                    context.secrets.remember(assignment.execution, None);
                    ready.push(assignment);
                    continue;
                }
                found => found,
            };
            let lease = assignment.lease();
            let granted = match found {
                Ok(found) => context.granted(&**cipher, assignment, &found).await.map_err(unavailable)?,
                Err(problem) => Err(Denied(format!("{} {}", problem.field, problem.fix))),
            };
            match granted {
                Ok(Granted { assignment, values }) => {
                    let redaction = context.secrets.redaction_of(&values);
                    context.secrets.remember(assignment.execution, Some(redaction));
                    context.secrets.are_present();
                    audit.push(
                        context.use_entry(session, &assignment, values.keys().cloned().collect()).await,
                    );
                    ready.push(assignment);
                }
                Err(Denied(error)) => {
                    tracing::warn!(execution = %lease.execution, error, "an execution did not get its secrets");
                    failed.push(Report { session, lease, end: self.denied_end(error) });
                }
            }
        }
        if !audit.is_empty() {
            // Nothing is handed out that the log does not tell of.
            context.store.record_audit(audit).await.map_err(unavailable)?;
        }
        if !failed.is_empty() {
            // Not as a report of the worker: its error has no values that would have to be removed.
            self.reports.call(failed).await.map_err(unavailable)?;
        }
        // It may be empty although the poll sequence number is used: a worker that repeats the number resyncs.
        Ok(ready)
    }

    /// The assignments in plain text, and reports about those that cannot be decrypted here: an attempt must not run
    /// with other data than the job's.
    fn decrypted(&self, session: SessionId, assignments: Vec<Assignment>) -> (Vec<Assignment>, Vec<Report>) {
        let Some(sealed) = &self.context.sealed else { return (assignments, vec![]) };
        let is_plain = |assignment: &Assignment| {
            let checkpoint = assignment.checkpoint.as_ref();
            !is_sealed(&assignment.payload) && !checkpoint.is_some_and(|stored| is_sealed(stored.as_json()))
        };
        if assignments.iter().all(is_plain) {
            return (assignments, vec![]);
        }
        let (mut plain, mut failed) = (Vec::with_capacity(assignments.len()), vec![]);
        for assignment in assignments {
            let lease = assignment.lease();
            match sealed.open_assignment(assignment) {
                Ok(assignment) => plain.push(assignment),
                Err(error) => {
                    let error = error.to_string();
                    tracing::warn!(execution = %lease.execution, error, "an execution cannot be handed out");
                    failed.push(Report { session, lease, end: self.denied_end(error) });
                }
            }
        }
        (plain, failed)
    }

    /// The next attempt may succeed: rules, secrets and keys can be fixed.
    fn denied_end(&self, error: String) -> ReportedEnd {
        ReportedEnd {
            ending: Ending::Failed,
            retryable: true,
            next_at: None,
            started_at: None,
            completed_at: self.now(),
            error: Some(error),
            result: None,
        }
    }
}

impl EngineContext {
    async fn granted(
        &self,
        cipher: &dyn SecretCipher,
        assignment: Assignment,
        found: &[SecretReference],
    ) -> Result<Result<Granted, Denied>, StoreError> {
        let owners = self.store.job_owners(vec![assignment.execution.occurrence.job]).await?;
        let owner = owners.first().map_or("", |job| job.owner.as_str());
        let mut values = BTreeMap::new();
        for SecretReference { path, name, .. } in found {
            if values.contains_key(name) {
                continue;
            }
            let usable =
                self.store.secret(name).await?.filter(|secret| {
                    secret.about.rule.allows(owner, &assignment.queue, &assignment.job_type)
                });
            let Some(secret) = usable else {
                return Ok(Err(Denied(format!("{path} refers to the secret {name}: {NOT_USABLE}"))));
            };
            match cipher.open(&secret.sealed, &secret.own_binding()) {
                Ok(value) => drop(values.insert(name.clone(), value)),
                Err(error) => {
                    return Ok(Err(Denied(format!("{path} refers to the secret {name}: {error}"))));
                }
            }
        }
        let value = |name: &str| values.get(name).cloned().unwrap_or_default();
        let payload = resolved(&assignment.payload, found, value);
        Ok(Ok(Granted { assignment: Assignment { payload, ..assignment }, values }))
    }

    async fn use_entry(
        &self,
        session: SessionId,
        assignment: &Assignment,
        secrets: Vec<String>,
    ) -> AuditEntry {
        let SecretUser { worker, token } = self.user_of_secrets(session).await;
        let (at, execution) = (self.time.now(), assignment.execution);
        let details = json!({
            "secrets": secrets,
            "job": execution.occurrence.job.to_string(),
            "worker": worker,
            "session": session.to_string(),
        });
        let entry = AuditEntry {
            id: AuditId::new(at, self.host.random.next_u64()),
            at,
            token,
            name: worker,
            user: None,
            source: None,
            action: USE.to_owned(),
            object: format!("execution {execution}"),
            outcome: OUTCOME_OK.to_owned(),
            details: Some(details.to_string()),
        };
        entry.bounded()
    }

    /// The worker of a session that may have been opened on another node. Its name is for readers of the log only.
    async fn user_of_secrets(&self, session: SessionId) -> SecretUser {
        if let Some(known) = lock(&self.secrets.workers).get(&session) {
            return known.clone();
        }
        let sessions = self.store.sessions().await.unwrap_or_default();
        let Some(row) = sessions.into_iter().find(|row| row.pulse.session == session) else {
            return SecretUser::default();
        };
        let user = SecretUser { worker: row.worker, token: row.token.unwrap_or_default() };
        self.secrets.opened(session, user.clone());
        user
    }

    pub(crate) async fn without_secrets_in_reports(
        &self,
        mut reports: Vec<Report>,
    ) -> Result<Vec<Report>, StoreError> {
        for Report { lease, end, .. } in &mut reports {
            if (end.error.is_some() || end.result.is_some())
                && let Some(redaction) = self.redaction(lease.execution).await?
            {
                end.error = end.error.take().map(|error| redaction.text(error, limits::ERROR_BYTES_MAX));
                let json = |result| redaction.json(result, limits::RESULT_BYTES_MAX);
                end.result = end.result.take().map(json);
            }
        }
        Ok(reports)
    }

    /// Forgets the values of executions that have ended. A report of another lease may be wrong about that.
    pub(crate) fn forget_secrets(&self, reported: &[ExecutionId], answers: &[ReportAnswer]) {
        for (execution, answer) in reported.iter().zip(answers) {
            match answer {
                ReportAnswer::Accepted | ReportAnswer::AlreadyAccepted => self.secrets.forget(*execution),
                ReportAnswer::Stale => {}
            }
        }
    }

    pub(crate) async fn without_secrets_in_notes(
        &self,
        mut notes: Vec<Note>,
    ) -> Result<Vec<Note>, StoreError> {
        for Note { lease, progress, checkpoint, .. } in &mut notes {
            let message = progress.as_mut().and_then(|progress| progress.message.as_mut());
            if (message.is_some() || checkpoint.is_some())
                && let Some(redaction) = self.redaction(lease.execution).await?
            {
                if let Some(message) = message {
                    let bytes_max = limits::PROGRESS_MESSAGE_BYTES_MAX;
                    *message = redaction.text(std::mem::take(message), bytes_max);
                }
                // One that is null deletes the stored one.
                if let Some(given) = checkpoint.take_if(|given| !given.is_null()) {
                    let json = redaction.json(given.into_json(), limits::CHECKPOINT_BYTES_MAX);
                    *checkpoint = Checkpoint::new(json).ok();
                }
            }
        }
        Ok(notes)
    }

    pub(crate) async fn without_secrets_in_lines(
        &self,
        mut lines: Vec<LogLine>,
    ) -> Result<Vec<LogLine>, StoreError> {
        let mut streams: BTreeMap<(ExecutionId, u8), Vec<&mut String>> = BTreeMap::new();
        for LogLine { execution, stream, message, .. } in &mut lines {
            let stream = match stream {
                LogStream::Stdout => 0,
                LogStream::Stderr => 1,
                LogStream::Log => 2,
            };
            streams.entry((*execution, stream)).or_default().push(message);
        }
        for ((execution, _), mut messages) in streams {
            match self.redaction(execution).await?.as_deref() {
                None => {}
                Some(Redaction::Values(redactor)) => redactor.lines(&mut messages),
                Some(Redaction::Everything) => {
                    messages.into_iter().for_each(|message| WITHHELD.clone_into(message));
                }
            }
        }
        Ok(lines)
    }

    /// Whether an execution got the values of secrets.
    pub(crate) async fn uses_secrets(&self, execution: ExecutionId) -> Result<bool, StoreError> {
        Ok(self.redaction(execution).await?.is_some())
    }

    /// How the texts of an execution are changed; `None` if it uses no secrets.
    async fn redaction(&self, execution: ExecutionId) -> Result<Option<Arc<Redaction>>, StoreError> {
        let Some(cipher) = &self.config.secret_cipher else { return Ok(None) };
        if let Some(known) = self.secrets.known(execution) {
            return Ok(known);
        }
        // Handed out by another node, or before a restart.
        if !self.has_secrets().await? {
            return Ok(None);
        }
        let redaction = self.read_redaction(&**cipher, execution).await?;
        self.secrets.remember(execution, redaction.clone());
        Ok(redaction)
    }

    /// From the current payload of the job, the payload of the run and the current values.
    async fn read_redaction(
        &self,
        cipher: &dyn SecretCipher,
        execution: ExecutionId,
    ) -> Result<Option<Arc<Redaction>>, StoreError> {
        let job = execution.occurrence.job;
        let Some(view) = self.store.job(job).await? else { return Ok(None) };
        let input = self.store.execution(execution).await?.and_then(|view| match view {
            ExecutionView::Live { live, .. } => live.input,
            ExecutionView::Finished(finished) => finished.input,
        });
        let own = input.as_ref().and_then(|input| input.payload.as_deref());
        let payloads = || [&*view.job.spec.payload].into_iter().chain(own);
        if payloads().any(is_sealed) {
            tracing::warn!(%job, "the payload of a job cannot be decrypted, so neither can its secrets be removed from its output: the output is withheld");
            return Ok(Some(Arc::new(Redaction::Everything)));
        }
        let found = payloads().flat_map(|payload| references(payload).unwrap_or_default());
        let mut values = BTreeMap::new();
        for SecretReference { name, .. } in found {
            let Some(secret) = self.store.secret(&name).await? else { continue };
            match cipher.open(&secret.sealed, &secret.own_binding()) {
                Ok(value) => drop(values.insert(name, value)),
                Err(error) => {
                    tracing::warn!(%job, secret = name, %error, "cannot remove a secret from the output of a job: the output is withheld");
                    return Ok(Some(Arc::new(Redaction::Everything)));
                }
            }
        }
        Ok((!values.is_empty()).then(|| self.secrets.redaction_of(&values)))
    }

    async fn has_secrets(&self) -> Result<bool, StoreError> {
        let now = self.host.clock.monotonic();
        let known = *lock(&self.secrets.presence);
        let is_absent = known.absent_at.is_some_and(|at| now.since(at) < limits::SECRETS_ABSENT_FOR);
        if known.is_any || is_absent {
            return Ok(known.is_any);
        }
        let is_any = !self.store.secrets(None, 1).await?.items.is_empty();
        *lock(&self.secrets.presence) = Presence { is_any, absent_at: Some(now) };
        Ok(is_any)
    }
}

/// The end of a sentence about a secret that does not exist, or that the job may not use: the two cannot be told
/// apart.
pub(crate) const NOT_USABLE: &str =
    "there is no such secret, or its rules do not allow the owner, queue and job type of this job";

impl Redaction {
    fn text(&self, text: String, bytes_max: usize) -> String {
        match self {
            Redaction::Values(redactor) => redactor.text(text, bytes_max),
            Redaction::Everything => WITHHELD.to_owned(),
        }
    }

    fn json(&self, json: String, bytes_max: usize) -> String {
        match self {
            Redaction::Values(redactor) => redactor.json(json, bytes_max),
            Redaction::Everything => json!(WITHHELD).to_string(),
        }
    }
}
