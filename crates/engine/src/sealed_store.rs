//! The store as the rest of the engine sees it: data of jobs that is encrypted at rest is plain here. This is the
//! only place that encrypts payloads, results, checkpoints and stored answers, and the only one that decrypts them.
//!
//! Rows of both kinds can always be read. A payload or checkpoint that this node cannot decrypt stays as it is
//! stored, so that a list does not fail because of one row: [`is_sealed`] recognises it, and what hands it out or
//! shows it says why. Assignments are decrypted on their way to the worker ([`SealedStore::open_assignment`]), where
//! an attempt can fail with the reason.

use async_trait::async_trait;
use punctual_core::control::{Reseal, Verb};
use punctual_core::health::WorkerCondition;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SegmentSet, SessionId};
use punctual_core::job::Job;
use punctual_core::limiter::{LimiterId, LimiterUse, WaitList};
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::{Finished, RunInput};
use punctual_core::ports::*;
use punctual_core::schedule::SkipRange;
use punctual_core::sealed::{SealedPlace, Undecryptable, is_sealed, key_of, open, seal};
use punctual_core::time::Timestamp;
use std::sync::Arc;

pub(crate) struct SealedStore {
    inner: Arc<dyn Store>,
    cipher: Arc<dyn SecretCipher>,
    /// Whether new data is encrypted. Encrypted rows are decrypted in any case.
    encrypts: bool,
}

/// What a step of a rotation has done with payloads.
pub(crate) struct PayloadsResealed {
    pub resealed: usize,
    pub unreadable: Vec<Undecryptable>,
    /// The job after which the next step continues; `None` at the end.
    pub next: Option<JobId>,
}

impl SealedStore {
    pub fn new(inner: Arc<dyn Store>, cipher: Arc<dyn SecretCipher>, encrypts: bool) -> Self {
        SealedStore { inner, cipher, encrypts }
    }

    pub fn open(&self, place: SealedPlace<'_>, stored: &str) -> Result<String, Undecryptable> {
        open(&*self.cipher, place, stored)
    }

    /// The assignment in plain text.
    pub fn open_assignment(&self, mut assignment: Assignment) -> Result<Assignment, Undecryptable> {
        let occurrence = assignment.execution.occurrence;
        if is_sealed(&assignment.payload) {
            assignment.payload = self.open(SealedPlace::Payload(occurrence.job), &assignment.payload)?;
        }
        if let Some(stored) = assignment.checkpoint.take_if(|checkpoint| is_sealed(checkpoint.as_json())) {
            let json = self.open(SealedPlace::Checkpoint(occurrence), stored.as_json())?;
            assignment.checkpoint = Checkpoint::stored(json).ok();
        }
        Ok(assignment)
    }

    /// Encrypts the payloads of the next jobs with the current key, up to `limit`: those under another key, and
    /// plain ones if new payloads are encrypted.
    pub async fn reseal_payloads(
        &self,
        now: Timestamp,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<PayloadsResealed, StoreError> {
        let page = self.inner.jobs(JobQuery { before, limit, ..JobQuery::default() }).await?;
        let current = self.cipher.current_key();
        let is_outdated = |payload: &str| match key_of(payload) {
            Some(key_id) => current.as_deref() != Some(key_id),
            None => self.encrypts,
        };
        let (mut controls, mut unreadable) = (Vec::new(), Vec::new());
        for Job { id, spec, .. } in page.items.into_iter().map(|view| view.job) {
            if !is_outdated(&spec.payload) {
                continue;
            }
            match self.open(SealedPlace::Payload(id), &spec.payload) {
                Ok(plain) => {
                    let to = self.sealed(SealedPlace::Payload(id), &plain)?;
                    let verb = Verb::Reseal(Box::new(Reseal { from: spec.payload, to }));
                    controls.push(Control { job: id, verb });
                }
                Err(error) => unreadable.push(error),
            }
        }
        let resealed = controls.len();
        if resealed > 0 {
            self.inner.control(now, controls).await?;
        }
        Ok(PayloadsResealed { resealed, unreadable, next: page.next })
    }

    pub fn sealed(&self, place: SealedPlace<'_>, text: &str) -> Result<String, StoreError> {
        let failed = |error| StoreError::Broken(format!("{place} cannot be encrypted: {error}"));
        seal(&*self.cipher, place, text).map_err(failed)
    }

    /// Encrypts the data of a write.
    async fn seal(&self, write: &mut Write) -> Result<(), StoreError> {
        let mut write = write;
        while let Write::Audited { write: audited, .. } = write {
            write = audited;
        }
        match write {
            Write::Submit { jobs, .. } => {
                for NewJob { job, .. } in jobs {
                    job.spec.payload = self.sealed(SealedPlace::Payload(job.id), &job.spec.payload)?;
                }
            }
            Write::Control { controls, .. } => {
                for Control { job, verb } in controls {
                    match verb {
                        Verb::Update(update) => {
                            update.spec.payload = self.updated_payload(*job, &update.spec.payload).await?;
                        }
                        Verb::Trigger { input: Some(input), .. } => {
                            *input = Arc::new(self.sealed_input(*job, input)?);
                        }
                        _ => {}
                    }
                }
            }
            Write::Report { reports, .. } => {
                for Report { lease, end, .. } in reports {
                    if let Some(result) = &mut end.result {
                        *result = self.sealed(SealedPlace::Result(lease.execution), result)?;
                    }
                }
            }
            Write::Note { notes, .. } => {
                for note in notes {
                    // One that is null deletes the stored one.
                    if let Some(plain) = note.checkpoint.as_ref().filter(|given| !given.is_null()) {
                        let place = SealedPlace::Checkpoint(note.lease.execution.occurrence);
                        let stored = Checkpoint::stored(self.sealed(place, plain.as_json())?);
                        let too_large = |error| StoreError::Broken(format!("{place}: {error}"));
                        note.checkpoint = Some(stored.map_err(too_large)?);
                    }
                }
            }
            Write::AnswerRequest { request, answer } => {
                answer.body = self.sealed(SealedPlace::Answer(request), &answer.body)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The stored form of a payload in an update. One that does not change keeps its form: an update that changes
    /// nothing must stay one.
    async fn updated_payload(&self, job: JobId, payload: &str) -> Result<String, StoreError> {
        let stored =
            self.inner.job(job).await?.map(|view| view.job.spec.payload).filter(|text| is_sealed(text));
        let place = SealedPlace::Payload(job);
        match stored {
            Some(stored) if self.open(place, &stored).is_ok_and(|plain| plain == payload) => Ok(stored),
            _ => self.sealed(place, payload),
        }
    }

    /// A payload that this node could not decrypt is repeated as it is stored.
    fn sealed_input(&self, job: JobId, input: &RunInput) -> Result<RunInput, StoreError> {
        let payload = match &input.payload {
            Some(plain) if !is_sealed(plain) => Some(self.sealed(SealedPlace::Payload(job), plain)?),
            stored => stored.clone(),
        };
        Ok(RunInput { payload, ..input.clone() })
    }

    /// The payload of a run in plain text, if it has one of its own and this node can decrypt it.
    fn open_input(&self, job: JobId, input: &mut Option<Arc<RunInput>>) {
        let Some(input) = input else { return };
        if let Some(stored) = input.payload.as_deref().filter(|text| is_sealed(text))
            && let Ok(plain) = self.open(SealedPlace::Payload(job), stored)
        {
            *input = Arc::new(RunInput { payload: Some(plain), ..RunInput::clone(input) });
        }
    }

    fn open_view(&self, view: &mut JobView) {
        let Job { id, spec, .. } = &mut view.job;
        if is_sealed(&spec.payload)
            && let Ok(plain) = self.open(SealedPlace::Payload(*id), &spec.payload)
        {
            spec.payload = plain;
        }
        view.last_finished.as_mut().into_iter().for_each(|finished| self.open_finished(finished));
    }

    /// An execution whose result cannot be decrypted has none, and its error says so.
    fn open_finished(&self, finished: &mut Finished) {
        self.open_input(finished.id.occurrence.job, &mut finished.input);
        let Some(stored) = finished.result.take_if(|result| is_sealed(result)) else { return };
        match self.open(SealedPlace::Result(finished.id), &stored) {
            Ok(plain) => finished.result = Some(plain),
            Err(why) => {
                finished.error = Some(match finished.error.take() {
                    Some(error) => format!("{error}; {why}"),
                    None => why.to_string(),
                });
            }
        }
    }

    fn open_execution(&self, view: &mut ExecutionView) {
        match view {
            ExecutionView::Finished(finished) => self.open_finished(finished),
            ExecutionView::Live { live, .. } => self.open_input(live.id.job, &mut live.input),
        }
    }
}

/// Implements the ports of a store: with these methods, and by forwarding the others.
macro_rules! forwarding {
    ($($port:ident { $($own:tt)* } forwards {
        $($name:ident($($argument:ident: $type:ty),*) -> $found:ty;)*
    })*) => {$(
        #[async_trait]
        impl $port for SealedStore {
            $($own)*

            $(async fn $name(&self, $($argument: $type),*) -> Result<$found, StoreError> {
                self.inner.$name($($argument),*).await
            })*
        }
    )*};
}

forwarding! {
    Store {
        async fn write(&self, mut write: Write) -> Result<WriteReply, StoreError> {
            if self.encrypts {
                self.seal(&mut write).await?;
            }
            let Write::BeginRequest { request: NewRequest { request, .. }, .. } = &write else {
                return self.inner.write(write).await;
            };
            let request = request.clone();
            let mut reply = self.inner.write(write).await?;
            if let WriteReply::RequestBegun(RequestState::Answered(answer)) = &mut reply
                && is_sealed(&answer.body)
            {
                let failed = |error: Undecryptable| StoreError::Broken(error.to_string());
                answer.body = self.open(SealedPlace::Answer(&request), &answer.body).map_err(failed)?;
            }
            Ok(reply)
        }

        async fn job(&self, id: JobId) -> Result<Option<JobView>, StoreError> {
            let mut view = self.inner.job(id).await?;
            view.as_mut().into_iter().for_each(|view| self.open_view(view));
            Ok(view)
        }

        async fn jobs(&self, query: JobQuery) -> Result<Page<JobView, JobId>, StoreError> {
            let mut page = self.inner.jobs(query).await?;
            page.items.iter_mut().for_each(|view| self.open_view(view));
            Ok(page)
        }

        async fn history(
            &self,
            job: JobId,
            before: Option<ExecutionId>,
            limit: usize,
        ) -> Result<Page<Finished, ExecutionId>, StoreError> {
            let mut page = self.inner.history(job, before, limit).await?;
            page.items.iter_mut().for_each(|finished| self.open_finished(finished));
            Ok(page)
        }

        async fn executions_of_job(
            &self,
            job: JobId,
            before: Option<ExecutionId>,
            limit: usize,
        ) -> Result<Page<ExecutionView, ExecutionId>, StoreError> {
            let mut page = self.inner.executions_of_job(job, before, limit).await?;
            page.items.iter_mut().for_each(|view| self.open_execution(view));
            Ok(page)
        }

        async fn execution(&self, id: ExecutionId) -> Result<Option<ExecutionView>, StoreError> {
            let mut view = self.inner.execution(id).await?;
            view.as_mut().into_iter().for_each(|view| self.open_execution(view));
            Ok(view)
        }

        async fn executions(
            &self,
            query: ExecutionQuery,
        ) -> Result<Page<ListedExecution, ExecutionWalk>, StoreError> {
            let mut page = self.inner.executions(query).await?;
            page.items.iter_mut().for_each(|listed| self.open_execution(&mut listed.view));
            Ok(page)
        }

        async fn finished_after(&self, after: u64, limit: usize) -> Result<FinishedPage, StoreError> {
            let mut page = self.inner.finished_after(after, limit).await?;
            page.items.iter_mut().for_each(|event| self.open_finished(&mut event.finished));
            Ok(page)
        }

        async fn checkpoint(&self, occurrence: OccurrenceId) -> Result<Option<Checkpoint>, StoreError> {
            let stored = self.inner.checkpoint(occurrence).await?;
            Ok(stored.map(|stored| {
                let plain = self.open(SealedPlace::Checkpoint(occurrence), stored.as_json());
                plain.ok().and_then(|json| Checkpoint::stored(json).ok()).unwrap_or(stored)
            }))
        }

        fn health(&self) -> StoreHealth {
            self.inner.health()
        }
    } forwards {
        clock() -> Timestamp;
        due(segments: SegmentSet, until: Timestamp, limit: usize) -> Vec<Due>;
        keep_condition(session: SessionId, condition: WorkerCondition) -> ();
        sessions() -> Vec<SessionRow>;
        token_of_session(session: SessionId) -> Option<String>;
        holdings() -> Vec<(SessionId, u64)>;
        job_owners(jobs: Vec<JobId>) -> Vec<JobOwner>;
        named_job(owner: String, name: String) -> Option<JobId>;
        run_times_after(after: u64, limit: usize) -> RunTimesPage;
        history_span() -> HistorySpan;
        open_executions(ids: Vec<OccurrenceId>) -> Vec<OpenExecution>;
        running(after: Option<RunningPlace>, limit: usize) -> Page<OpenExecution, RunningPlace>;
        notes(job: JobId, up_to: u32, limit: usize) -> Vec<Noted>;
        skipped(job: JobId, limit: usize) -> Vec<SkipRange>;
        dead_letters(query: DeadLetterQuery) -> Page<DeadLetter, u64>;
        queues() -> Vec<QueueRow>;
        waiting_lines(after: Option<LimiterId>, limit: usize) -> Page<WaitList, LimiterId>;
        limiters(lines: Vec<WaitList>) -> Vec<LimiterUse>;
        paused_queues() -> Vec<PausedQueue>;
        ahead(occurrence: OccurrenceId, limit: usize) -> Option<usize>;
        depths() -> Vec<Depth>;
        job_counts() -> JobCounts;
        figures() -> StoreFigures;
        append_logs(lines: Vec<LogLine>) -> ();
        logs(execution: ExecutionId, after: Option<u64>, limit: usize) -> Page<LogLine, u64>;
        last_logs(execution: ExecutionId, before: Option<u64>, count: usize) -> Vec<LogLine>;
        logs_removed_until() -> Option<Timestamp>;
        noted_clock() -> NotedClock;
        note_clock(at: Timestamp) -> ();
        retain(horizon: Horizon, limit: usize) -> Retained;
        delete_unused(limit: usize) -> bool;
        retire(now: Timestamp, retirement: Retirement) -> Retired;
        purge(before: Timestamp, limit: usize) -> bool;
        probe(now: Timestamp) -> ();
    }

    Directory {
    } forwards {
        change_directory(change: DirectoryChange, entry: Option<AuditEntry>) -> DirectoryOutcome;
        token(id: &str) -> Option<Token>;
        tokens(after: Option<&str>, limit: usize) -> Page<Token, String>;
        touch_tokens(used: Vec<(String, Timestamp)>) -> ();
        user(id: &str) -> Option<User>;
        user_by_email(email: &str) -> Option<User>;
        users(after: Option<&str>, limit: usize) -> Page<User, String>;
        secret(name: &str) -> Option<StoredSecret>;
        secrets(after: Option<&str>, limit: usize) -> Page<StoredSecret, String>;
        document(kind: DocumentKind, name: &str) -> Option<StoredDocument>;
        documents(kind: DocumentKind, after: Option<&str>, limit: usize) -> Page<StoredDocument, String>;
    }

    AuditLog {
    } forwards {
        audit(query: AuditQuery) -> Page<AuditRow, AuditId>;
        audit_ends() -> Option<ChainEnds>;
        audit_chain(after: u64, limit: usize) -> Vec<AuditRow>;
        unsealed_audit() -> u64;
        seal_audit(limit: usize) -> usize;
        record_audit(entries: Vec<AuditEntry>) -> ();
        retain_audit(before: Timestamp, limit: usize) -> u64;
    }
}
