//! Units of work, for databases across a network: rows are loaded together, the verbs run over them in
//! memory, and the changes are written together.
//!
//! A [`UnitOfWork`] answers the verbs from the loaded rows. It adds missing rows to its read set,
//! [`ReadSet`], and the verb stops. After all writes of the transaction have been tried, one round loads
//! everything that was missing, and the writes run again from the beginning. [`Runner`](runner::Runner)
//! does that for one connection. [`Writers`] owns several runners and distributes the callers' writes. This
//! module knows no database: that is behind [`Tables`].

mod collect;
mod dependencies;
mod lane_cache;
mod lanes;
mod limiters;
mod loaded;
mod lookups;
mod memory;
mod open;
mod read_planning;
mod read_set;
mod readmission;
mod row_access;
mod runner;
#[cfg(any(test, feature = "memory-tables"))]
pub(crate) mod simulated_server;
mod skips;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod write_set;
mod writers;

use crate::counters::Counters;
use crate::fault::Fault;
use crate::rows::{AssignedJob, EndedAttempt, JobKey, JobRow, JobTerms, LiveRow, RequestRow, ScheduleRow};
use dependencies::Dependencies;
use lanes::UnitLanes;
use limiters::Limiters;
use memory::{LaneNames, Learned, Remembered};
use open::OpenOccurrences;
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::notes::{Checkpoint, LastNote};
use punctual_core::ports::{
    AuditEntry, AuditId, DeadLetter, LeaseRef, NewRequest, QueueRow, RequestKey, StoredAnswer,
};
use punctual_core::rank::Shares;
use punctual_core::time::Timestamp;
use read_planning::LockStage;
use readmission::LastQueued;
use skips::Skips;
use std::collections::{BTreeMap, BTreeSet};
use table::Table;

pub(crate) use {
    lane_cache::{LANES_ASKED_MAX, LaneCache, LanesToRead, NamedLanes, name_in},
    loaded::{LanesToAsk, LoadedLimiter, LoadedRows, LoadedSession, LoadedSkip},
    read_set::{ReadSet, RequestedClaims},
    tables::Tables,
    write_set::{
        DependencyRow, EndedRow, Leased, NewDeadLetter, NewSession, NoteChange, Numbered, SessionChange,
        WriteSet,
    },
    writers::{Connect, Writers},
};

/// The rows of one transaction.
pub(crate) struct UnitOfWork {
    /// Rows that were requested and are not loaded.
    read_set: ReadSet,
    /// The last kind of rows that was locked.
    locked: LockStage,
    /// Whether so many rounds have passed that optional work is left to another transaction.
    is_late: bool,
    /// Whether the writes of this transaction cannot be expressed in one write set, so that each needs its
    /// own transaction.
    is_tangled: bool,

    remembered: Remembered,
    shares: Option<Shares>,
    counters: Counters,
    worker_numbers: BTreeMap<String, i64>,
    new_sessions: Vec<SessionId>,

    sessions: Table<SessionId, LoadedSession>,
    opened: BTreeMap<SessionId, NewSession>,
    has_lost_sessions: bool,
    has_embedded_sessions: bool,
    attention: BTreeSet<SessionId>,
    cancels: BTreeMap<SessionId, BTreeSet<LeaseRef>>,

    jobs: Table<JobId, JobRow>,
    terms: Table<JobId, JobTerms>,
    facts: Table<JobId, AssignedJob>,
    numbered: BTreeMap<JobId, Numbered>,
    tags_forgotten: BTreeSet<JobId>,
    tags_put: BTreeMap<JobId, Vec<String>>,
    keys: Table<JobKey, JobId>,
    keys_freed: BTreeSet<JobId>,
    schedules: Table<JobId, ScheduleRow>,
    open: OpenOccurrences,

    queues: Table<String, QueueRow>,
    has_queues: bool,
    unstarted: BTreeMap<String, u64>,
    lanes: UnitLanes,
    limiters: Limiters,
    last_queued: LastQueued,

    history: Vec<EndedRow>,
    ended: Table<ExecutionId, EndedAttempt>,
    skips: Skips,
    dead: Table<OccurrenceId, DeadLetter>,
    new_dead_letters: BTreeMap<OccurrenceId, NewDeadLetter>,
    /// The latest dead letter of each job in the database.
    latest_dead: BTreeMap<JobId, Option<OccurrenceId>>,
    /// All dead letters of a job in the database.
    dead_of_jobs: BTreeMap<JobId, BTreeSet<OccurrenceId>>,
    dead_forgotten: BTreeSet<JobId>,

    dependencies: Dependencies,

    notes: Table<OccurrenceId, LastNote>,
    note_changes: BTreeMap<OccurrenceId, NoteChange>,
    checkpoints: Table<OccurrenceId, Checkpoint>,
    notes_forgotten: BTreeSet<OccurrenceId>,
    notes_of_jobs_forgotten: BTreeSet<JobId>,

    requests: Table<RequestKey, RequestRow>,
    requests_inserted: BTreeMap<RequestKey, (NewRequest, Timestamp)>,
    requests_answered: BTreeMap<RequestKey, StoredAnswer>,
    audit: BTreeMap<AuditId, AuditEntry>,
}

impl UnitOfWork {
    pub fn new(remembered: Remembered) -> Self {
        UnitOfWork {
            remembered,
            read_set: ReadSet::default(),
            locked: LockStage::Nothing,
            is_late: false,
            is_tangled: false,
            shares: None,
            counters: Counters::default(),
            worker_numbers: BTreeMap::new(),
            new_sessions: vec![],
            sessions: Table::default(),
            opened: BTreeMap::new(),
            has_lost_sessions: false,
            has_embedded_sessions: false,
            attention: BTreeSet::new(),
            cancels: BTreeMap::new(),
            jobs: Table::default(),
            terms: Table::default(),
            facts: Table::default(),
            numbered: BTreeMap::new(),
            tags_forgotten: BTreeSet::new(),
            tags_put: BTreeMap::new(),
            keys: Table::default(),
            keys_freed: BTreeSet::new(),
            schedules: Table::default(),
            open: OpenOccurrences::default(),
            queues: Table::default(),
            has_queues: false,
            unstarted: BTreeMap::new(),
            lanes: UnitLanes::default(),
            limiters: Limiters::default(),
            last_queued: LastQueued::default(),
            history: vec![],
            ended: Table::default(),
            skips: Skips::default(),
            dead: Table::default(),
            new_dead_letters: BTreeMap::new(),
            latest_dead: BTreeMap::new(),
            dead_of_jobs: BTreeMap::new(),
            dead_forgotten: BTreeSet::new(),
            dependencies: Dependencies::default(),
            notes: Table::default(),
            note_changes: BTreeMap::new(),
            checkpoints: Table::default(),
            notes_forgotten: BTreeSet::new(),
            notes_of_jobs_forgotten: BTreeSet::new(),
            requests: Table::default(),
            requests_inserted: BTreeMap::new(),
            requests_answered: BTreeMap::new(),
            audit: BTreeMap::new(),
        }
    }

    /// Adds the loaded rows. Requested rows that were not found are known not to exist.
    pub fn add_loaded(&mut self, read_set: &ReadSet, found: LoadedRows) {
        self.locked = self.locked.max(read_set.last_stage().unwrap_or_default());
        self.lanes.add_loaded(read_set, &found);
        self.limiters.add_loaded(read_set, &found);
        self.last_queued.add_loaded(read_set, found.last_queued);
        self.add_loaded_sessions(read_set, found.sessions, found.cancels);
        self.jobs.add_loaded(&read_set.jobs, found.jobs.into_iter().map(|row| (row.job.id, row)));
        self.terms.add_loaded(&read_set.terms, found.terms);
        self.facts.add_loaded(&read_set.facts, found.facts);
        self.keys.add_loaded(&read_set.keys, found.keys);
        self.schedules
            .add_loaded(&read_set.schedules, found.schedules.into_iter().map(|row| (row.state.job, row)));
        self.open.add_loaded(read_set, found.live, &found.claims);
        if read_set.queues {
            self.has_queues = true;
            self.queues.add_loaded([], found.queues.into_iter().map(|row| (row.queue.clone(), row)));
        }
        self.unstarted.extend(read_set.unstarted.iter().map(|queue| (queue.clone(), 0)));
        self.unstarted.extend(found.unstarted);
        self.ended.add_loaded(&read_set.ended, found.ended);
        self.skips.add_loaded(&read_set.skipped, found.skipped);
        self.add_loaded_dead(read_set, found.dead_letters, found.latest_dead_letters, found.dead_of_jobs);
        self.dependencies.add_loaded(read_set, &found.parents, &found.children);
        if read_set.resolutions {
            self.dependencies.add_loaded_resolutions(found.resolutions);
        }
        self.notes.add_loaded(&read_set.last_notes, found.last_notes);
        self.checkpoints.add_loaded(&read_set.checkpoints, found.checkpoints);
        self.requests.add_loaded(&read_set.requests, found.requests);
    }

    /// Adds names of lanes to the remembered ones.
    pub fn give_lanes(&mut self, lanes: LaneNames) {
        self.lanes = UnitLanes::with(lanes);
    }

    /// Provides numbers to use: of workers by name, and of new sessions.
    pub fn give_numbers(&mut self, workers: BTreeMap<String, i64>, sessions: Vec<SessionId>) {
        self.worker_numbers = workers;
        self.new_sessions = sessions;
    }

    fn add_loaded_sessions(
        &mut self,
        read_set: &ReadSet,
        found: Vec<LoadedSession>,
        cancels: Vec<(SessionId, LeaseRef)>,
    ) {
        self.sessions.add_loaded(&read_set.sessions, found.into_iter().map(|session| (session.id, session)));
        self.has_lost_sessions |= read_set.lost_sessions;
        self.has_embedded_sessions |= read_set.embedded_sessions;
        for session in &read_set.cancels_of {
            self.cancels.insert(*session, BTreeSet::new());
        }
        for (session, lease) in cancels {
            self.cancels.entry(session).or_default().insert(lease);
        }
    }

    fn add_loaded_dead(
        &mut self,
        read_set: &ReadSet,
        letters: Vec<DeadLetter>,
        latest: Vec<DeadLetter>,
        dead_of_jobs: Vec<OccurrenceId>,
    ) {
        for job in &read_set.latest_dead_letters {
            self.latest_dead.insert(*job, None);
        }
        for letter in &latest {
            self.latest_dead.insert(letter.occurrence.job, Some(letter.occurrence));
        }
        let found = letters.into_iter().chain(latest).map(|letter| (letter.occurrence, letter));
        self.dead.add_loaded(&read_set.dead_letters, found);
        for job in &read_set.dead_of_jobs {
            self.dead_of_jobs.insert(*job, BTreeSet::new());
        }
        for id in dead_of_jobs {
            self.dead_of_jobs.entry(id.job).or_default().insert(id);
        }
    }

    /// Discards what the verbs have written and requested; loaded rows stay.
    pub fn undo(&mut self) {
        self.read_set = ReadSet::default();
        self.is_tangled = false;
        self.shares = None;
        if !planted(Defect::CountAgainOnRetry) {
            self.counters.forget();
        }
        self.sessions.undo();
        self.opened.clear();
        self.attention.clear();
        self.jobs.undo();
        self.terms.undo();
        self.facts.undo();
        self.numbered.clear();
        self.tags_forgotten.clear();
        self.tags_put.clear();
        self.keys.undo();
        self.keys_freed.clear();
        self.schedules.undo();
        self.open.undo();
        self.queues.undo();
        self.history.clear();
        self.ended.undo();
        self.skips.undo();
        self.dead.undo();
        self.new_dead_letters.clear();
        self.dead_forgotten.clear();
        self.dependencies.undo();
        self.notes.undo();
        self.note_changes.clear();
        self.checkpoints.undo();
        self.notes_forgotten.clear();
        self.notes_of_jobs_forgotten.clear();
        self.requests.undo();
        self.requests_inserted.clear();
        self.requests_answered.clear();
        self.audit.clear();
    }

    /// The current write is complete.
    pub fn keep(&mut self) {
        self.counters.keep();
    }

    pub fn is_tangled(&self) -> bool {
        self.is_tangled
    }

    /// From now on, optional work is left to another transaction.
    pub fn be_late(&mut self) {
        self.is_late = true;
    }

    /// The rows that were requested and are not loaded.
    pub fn missing(&mut self) -> ReadSet {
        let mut missing = std::mem::take(&mut self.read_set);
        if missing.locks_jobs() {
            // The holder of a key is reliable only after the holder's job is locked.
            missing.keys.extend(self.keys.rows_before().map(|(key, _)| key.clone()));
        }
        missing
    }

    /// Whether the missing rows must be locked before rows that are locked already, or are created outside
    /// of transactions.
    pub fn must_begin_again(&self, missing: &ReadSet) -> bool {
        missing.has_names() || missing.first_stage().is_some_and(|stage| stage < self.locked)
    }

    /// Facts that others may use after the transaction is committed.
    pub fn learned(&mut self) -> Learned {
        let mut workers: BTreeMap<SessionId, Option<i64>> =
            self.sessions.rows().map(|(id, session)| (*id, Some(session.worker))).collect();
        for (id, _) in self.sessions.rows_before() {
            workers.entry(*id).or_insert(None);
        }
        let queues = self
            .has_queues
            .then(|| self.queues.rows().map(|(name, row)| (name.clone(), row.clone())).collect());
        Learned { shares: self.shares.take(), workers, queues, queued: self.lanes_queued_in() }
    }

    // Building blocks of the answers to the verbs.

    /// Stops the verb: the read set has grown.
    fn unloaded<T>(&self) -> Result<T, Fault> {
        Err(Fault::Unloaded)
    }

    fn has_lock(&self, job: JobId) -> bool {
        self.jobs.is_known(&job) || self.terms.is_known(&job)
    }

    /// Whether the database has no such job, and so nothing that belongs to it.
    fn is_new(&self, job: JobId) -> bool {
        self.jobs.was_absent(&job) || self.terms.was_absent(&job)
    }

    /// Continues only if the job's row is locked: a verb that depends on the job as a whole locks it first.
    fn lock(&mut self, job: JobId) -> Result<(), Fault> {
        if self.has_lock(job) {
            return Ok(());
        }
        self.read_set.add_job_as_a_whole(job);
        self.unloaded()
    }

    /// Continues only if all open occurrences of the job are loaded.
    fn need_open(&mut self, job: JobId) -> Result<(), Fault> {
        self.lock(job)?;
        if self.open.is_whole_job(job) || self.is_new(job) {
            return Ok(());
        }
        if !self.schedules.is_known(&job) {
            self.read_set.schedules.insert(job);
        }
        self.read_set.open_of_jobs.insert(job);
        self.unloaded()
    }

    fn need_live(&mut self, id: OccurrenceId) -> Result<Option<&LiveRow>, Fault> {
        if !self.open.is_known(id) && !self.is_new(id.job) {
            self.read_set.live.insert(id);
            return self.unloaded();
        }
        Ok(self.open.rows.present(&id))
    }

    fn need_schedule(&mut self, job: JobId) -> Result<Option<&ScheduleRow>, Fault> {
        if !self.schedules.is_known(&job) && !self.is_new(job) {
            self.read_set.add_job_as_a_whole(job);
            return self.unloaded();
        }
        Ok(self.schedules.present(&job))
    }

    fn need_session(&mut self, session: SessionId) -> Result<Option<&LoadedSession>, Fault> {
        if !self.sessions.is_known(&session) {
            self.read_set.sessions.insert(session);
            return self.unloaded();
        }
        Ok(self.sessions.present(&session))
    }

    fn need_queues(&mut self) -> Result<(), Fault> {
        if self.has_queues {
            return Ok(());
        }
        self.read_set.queues = true;
        self.unloaded()
    }

    /// Continues only if all jobs are loaded that this one still waits for. They are read under the lock of
    /// its row. Otherwise two parents that end at the same time would each see the other as unfinished, and
    /// neither would release the child.
    fn need_parents(&mut self, child: JobId) -> Result<(), Fault> {
        if self.is_new(child) || (self.has_lock(child) && self.dependencies.knows_parents_of(child)) {
            return Ok(());
        }
        if !self.has_lock(child) {
            self.read_set.add_job_as_a_whole(child);
        }
        self.read_set.parents_of.insert(child);
        self.unloaded()
    }

    fn need_resolutions(&mut self) -> Result<(), Fault> {
        if self.dependencies.has_resolutions {
            return Ok(());
        }
        self.read_set.resolutions = true;
        self.unloaded()
    }
}
