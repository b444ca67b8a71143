//! Runs transactions one after the other on one connection: load rows, run the verbs in memory, load
//! missing rows, write.

use super::memory::{LaneNames, WriterMemory, unknown_lanes};
use super::{ReadSet, Tables, UnitOfWork};
use crate::fault::Fault;
use crate::verbs::perform;
use punctual_core::defects::{Defect, planted};
use punctual_core::ids::SessionId;
use punctual_core::ports::{Host, StoreError, Write, WriteReply};
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Load rounds of one transaction, including restarts. More would be a bug: a verb that never has enough
/// rows.
const ROUNDS_MAX: usize = 64;
/// Rounds after which a transaction leaves optional work to others.
const ROUNDS_UNTIL_LATE: usize = 24;
/// Retries of a transaction after conflicts. After that its callers get an error and must retry later.
const CONFLICTS_MAX: u32 = 12;
/// The pause after the first conflict; it grows with each.
const CONFLICT_PAUSE: Duration = Duration::from_millis(2);
/// The longest pause between two tries.
const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(100);

/// Runs writes on a connection.
pub(crate) struct Runner<'a> {
    pub tables: &'a mut dyn Tables,
    pub memory: &'a WriterMemory,
    pub host: &'a Host,
}

/// The result of writes that shared a transaction.
enum Ran {
    Committed,
    /// They cannot share one.
    Apart,
}

impl Runner<'_> {
    /// Runs all writes in one transaction and returns a reply for each. A write that fails on its own is
    /// left out, and the others run without it.
    pub async fn run(&mut self, writes: &[Write]) -> Vec<Result<WriteReply, StoreError>> {
        let mut answers = PendingReplies { writes, replies: vec![None; writes.len()] };
        let replies = match self.run_together(&mut answers).await {
            Ok(Ran::Committed) => answers.all(),
            Ok(Ran::Apart) => {
                let mut replies = Vec::with_capacity(writes.len());
                for write in writes {
                    replies.push(self.run_alone(write).await);
                }
                replies
            }
            Err(fault) => answers.all_or(&StoreError::from(fault)),
        };
        let mut settled = Vec::with_capacity(writes.len());
        for (write, reply) in writes.iter().zip(replies) {
            settled.push(match reply {
                Err(error @ StoreError::Broken(_)) => self.run_in_parts(write, error).await,
                reply => reply,
            });
        }
        settled
    }

    /// Runs a write again in parts if one item fails, so that only that item fails.
    async fn run_in_parts(&mut self, write: &Write, error: StoreError) -> Result<WriteReply, StoreError> {
        tracing::warn!(%error, "a write failed and was undone");
        let Some((left, right)) = write.halves() else {
            return write.refused(&error.to_string()).ok_or(error);
        };
        let mut replies = Vec::with_capacity(2);
        for half in [left, right] {
            replies.push(match self.run_alone(&half).await {
                Err(error @ StoreError::Broken(_)) => Box::pin(self.run_in_parts(&half, error)).await?,
                reply => reply?,
            });
        }
        let (right, left) = (replies.pop(), replies.pop());
        left.zip(right).and_then(|(left, right)| left.joined(right)).ok_or(error)
    }

    async fn run_alone(&mut self, write: &Write) -> Result<WriteReply, StoreError> {
        let mut answers = PendingReplies { writes: std::slice::from_ref(write), replies: vec![None] };
        match self.run_together(&mut answers).await {
            Ok(Ran::Committed) => answers.all().pop().unwrap_or_else(unanswered),
            Ok(Ran::Apart) => Err(StoreError::Broken("one call reverts its own changes".to_owned())),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Runs the writes that have no reply yet, and retries while there are conflicts.
    async fn run_together(&mut self, answers: &mut PendingReplies<'_>) -> Result<Ran, Fault> {
        let read_set = self.first_wants(answers.writes).await?;
        let mut run = TransactionRun::new(read_set);
        let mut conflicts = 0;
        loop {
            let fault = match self.transaction(&mut run, answers).await {
                Ok(Some(ran)) => return Ok(ran),
                // A row that was requested last must be locked first.
                Ok(None) => continue,
                Err(fault) => fault,
            };
            self.tables.abandon().await;
            if fault.is_conflict() && run.is_committing && planted(Defect::AnswerDespiteConflict) {
                return Ok(Ran::Committed);
            }
            if fault.is_conflict() && conflicts < CONFLICTS_MAX {
                conflicts += 1;
                (run.beginnings, run.rounds) = (0, 0);
                self.pause(conflicts).await;
            } else if run.is_worth_another_connection(&fault) {
                run.has_reconnected = true;
                (run.beginnings, run.rounds) = (0, 0);
            } else if fault.is_conflict() || fault.is_outage() || answers.open().count() <= 1 {
                return Err(fault);
            } else {
                // One of them may be the cause.
                return Ok(Ran::Apart);
            }
        }
    }

    /// The rows that the writes certainly need. Claims must know the lanes in which other processes have
    /// queued executions.
    async fn first_wants(&mut self, writes: &[Write]) -> Result<ReadSet, Fault> {
        let read_set = ReadSet::of(writes, &self.memory.copy());
        if !read_set.lanes_to_ask {
            return Ok(read_set);
        }
        let begun = self.memory.begin_to_ask();
        let found = match self.tables.intern(&ReadSet { lanes_to_ask: true, ..ReadSet::default() }).await {
            Ok(found) => found,
            Err(fault) => {
                self.tables.abandon().await;
                return Err(fault);
            }
        };
        self.memory.lanes_to_ask(begun, &found, latest_claim(writes));
        Ok(ReadSet { lanes_to_ask: false, ..ReadSet::of(writes, &self.memory.copy()) })
    }

    async fn pause(&mut self, conflicts: u32) {
        let longest =
            CONFLICT_PAUSE.saturating_mul(conflicts.saturating_mul(conflicts)).min(CONFLICT_PAUSE_MAX);
        // Random, so that transactions that conflicted once do not conflict again.
        let part = (self.host.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        self.host.clock.sleep(longest.mul_f64(part)).await;
    }

    /// Runs one transaction. Returns `None` if it must restart with a more complete read set.
    async fn transaction(
        &mut self,
        run: &mut TransactionRun,
        answers: &mut PendingReplies<'_>,
    ) -> Result<Option<Ran>, Fault> {
        answers.forget();
        run.is_committing = false;
        run.beginnings += 1;
        if run.beginnings > ROUNDS_MAX {
            return Err(Fault::Missing(format!(
                "still unknown after {ROUNDS_MAX} restarts: {:?}",
                run.read_set
            )));
        }
        self.intern(run).await?;
        let mut unit = UnitOfWork::new(self.memory.copy());
        unit.give_numbers(run.workers.clone(), run.sessions.clone());
        unit.give_lanes(run.lanes.clone());
        self.tables.begin().await?;
        let mut read_set = run.read_set.without_names();
        read_set.held_lanes.extend(unit.numbers_of(&run.read_set.lanes));
        loop {
            if read_set != ReadSet::default() {
                self.fetch(run, &mut unit, &read_set).await?;
            }
            if answers.perform(&mut unit) {
                break;
            }
            let missing = unit.missing();
            if missing == ReadSet::default() {
                return Err(Fault::Missing(
                    "a verb stopped without naming the rows that it needs".to_owned(),
                ));
            }
            run.read_set.merge(missing.clone());
            unit.undo();
            if unit.must_begin_again(&missing) {
                self.tables.abandon().await;
                self.forget_lanes(run, &unit.gone_lanes());
                return Ok(None);
            }
            read_set = missing;
        }
        if unit.is_tangled() {
            self.tables.abandon().await;
            return Ok(Some(Ran::Apart));
        }
        run.is_committing = true;
        self.tables.answering(answers.writes, &answers.replies);
        self.tables.commit(&unit.write_set()).await?;
        self.memory.keep(unit.learned());
        Ok(Some(Ran::Committed))
    }

    async fn fetch(
        &mut self,
        run: &mut TransactionRun,
        unit: &mut UnitOfWork,
        read_set: &ReadSet,
    ) -> Result<(), Fault> {
        run.rounds += 1;
        if run.rounds > ROUNDS_MAX {
            return Err(Fault::Missing(format!("still unknown after {ROUNDS_MAX} rounds: {read_set:?}")));
        }
        if run.rounds > ROUNDS_UNTIL_LATE {
            unit.be_late();
        }
        let found = self.tables.fetch(read_set).await?;
        self.memory.learn_lanes(&found);
        unit.add_loaded(read_set, found);
        Ok(())
    }

    /// Creates the names that are requested and unknown. They stay even if the transaction is rolled back.
    async fn intern(&mut self, run: &mut TransactionRun) -> Result<(), Fault> {
        let mut read_set = unknown_lanes(&run.read_set, &run.lanes, &self.memory.copy());
        read_set.workers =
            run.read_set.workers.iter().filter(|name| !run.workers.contains_key(*name)).cloned().collect();
        read_set.new_sessions = run.read_set.new_sessions.saturating_sub(run.sessions.len());
        if !read_set.has_names() {
            return Ok(());
        }
        let found = self.tables.intern(&read_set).await?;
        self.memory.learn_lanes(&found);
        run.lanes.learn(&found.lanes);
        run.workers.extend(found.workers);
        run.sessions.extend(found.new_sessions);
        let unknown = unknown_lanes(&run.read_set, &run.lanes, &self.memory.copy());
        match unknown.lane_numbers.first() {
            Some(number) => Err(Fault::Missing(format!("lane {number}"))),
            None => Ok(()),
        }
    }

    /// Removes lanes that another process has deleted.
    fn forget_lanes(&self, run: &mut TransactionRun, gone: &[i64]) {
        if !gone.is_empty() {
            self.memory.forget_lanes(gone);
            gone.iter().for_each(|number| run.lanes.remove(*number));
            run.read_set.held_lanes.clear();
        }
    }
}

/// The state of a transaction that may run more than once.
struct TransactionRun {
    read_set: ReadSet,
    /// Names of lanes that were created or looked up for it, in addition to the remembered ones.
    lanes: LaneNames,
    beginnings: usize,
    rounds: usize,
    workers: BTreeMap<String, i64>,
    sessions: Vec<SessionId>,
    /// Whether it may have taken effect.
    is_committing: bool,
    /// Whether it was restarted because its connection broke.
    has_reconnected: bool,
}

impl TransactionRun {
    fn new(read_set: ReadSet) -> Self {
        TransactionRun {
            read_set,
            lanes: LaneNames::default(),
            beginnings: 0,
            rounds: 0,
            workers: BTreeMap::new(),
            sessions: vec![],
            is_committing: false,
            has_reconnected: false,
        }
    }

    /// Whether a connection that may have been dead for a long time broke before anything was sent to be
    /// committed: for example, the database was restarted while no writes came in.
    fn is_worth_another_connection(&self, fault: &Fault) -> bool {
        let is_unsent = !self.is_committing || planted(Defect::RetryLostCommit);
        matches!(fault, Fault::Away(_)) && is_unsent && !self.has_reconnected
    }
}

/// The writes of a transaction, and their known replies.
struct PendingReplies<'w> {
    writes: &'w [Write],
    replies: Vec<Option<Result<WriteReply, StoreError>>>,
}

impl PendingReplies<'_> {
    /// The writes that have not failed on their own.
    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.writes.len()).filter(|at| !matches!(self.replies[*at], Some(Err(_))))
    }

    /// Discards the replies of a transaction that was rolled back: in another one even a failure may not
    /// occur.
    fn forget(&mut self) {
        self.replies.fill(None);
    }

    /// Runs all open writes over the unit of work. Returns whether nothing was missing.
    fn perform(&mut self, unit: &mut UnitOfWork) -> bool {
        'again: loop {
            let mut is_complete = true;
            for at in self.open().collect::<Vec<_>>() {
                match perform(unit, &self.writes[at]) {
                    Ok(reply) => {
                        unit.keep();
                        self.replies[at] = Some(Ok(reply));
                    }
                    Err(fault) if fault.is_unloaded() => is_complete = false,
                    // After rows were missing, faults are meaningless, because they may come from the
                    // missing rows.
                    Err(_) if !is_complete => {}
                    Err(fault) => {
                        self.replies[at] = Some(Err(fault.into()));
                        unit.undo();
                        continue 'again;
                    }
                }
            }
            return is_complete;
        }
    }

    fn all(self) -> Vec<Result<WriteReply, StoreError>> {
        self.replies.into_iter().map(|reply| reply.unwrap_or_else(unanswered)).collect()
    }

    /// The errors of writes that failed on their own, and this error for all others.
    fn all_or(self, error: &StoreError) -> Vec<Result<WriteReply, StoreError>> {
        let failed = |reply: Option<Result<WriteReply, StoreError>>| reply.filter(Result::is_err);
        self.replies.into_iter().map(|reply| failed(reply).unwrap_or_else(|| Err(error.clone()))).collect()
    }
}

fn latest_claim(writes: &[Write]) -> Option<Timestamp> {
    let time = |write: &Write| match write {
        Write::Claim { now, .. } => Some(*now),
        _ => None,
    };
    writes.iter().filter_map(time).max()
}

fn unanswered<T>() -> Result<T, StoreError> {
    Err(StoreError::Broken("a call was not answered".to_owned()))
}
