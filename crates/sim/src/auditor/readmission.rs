//! Re-admission after limits become tighter: queued executions return to the wait list, last in rank first
//! and a step at a time, and keep their rank. Until it is complete, no wait list of the queue moves.

use super::limiters::Limiter;
use super::{AuditViolation, Auditor, OccurrenceState};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::OccurrenceId;
use punctual_core::limiter::{QueueLimits, Rate};
use punctual_core::limits::PLACED_PER_STEP_MAX;

/// The re-admission of a queue, and its progress.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ExpectedReadmission {
    /// Executions with a key return to the wait list of their key.
    keys: bool,
    /// All others return as well, not only those that exceed the limit.
    all: bool,
    /// Everything from here on has been processed.
    reached: Option<(i64, OccurrenceId)>,
}

fn is_fewer(most: Option<u32>, had: Option<u32>) -> bool {
    most.is_some_and(|most| had.is_none_or(|had| most < had))
}

fn is_slower(rate: Option<Rate>, had: Option<Rate>) -> bool {
    let step_ns = |rate: Rate| rate.per_ms * 1_000_000 / u64::from(rate.count);
    rate.is_some_and(|rate| had.is_none_or(|had| step_ns(rate) > step_ns(had)))
}

impl Auditor {
    /// The limits of a queue have changed.
    pub(super) fn limits_set(
        &mut self,
        queue: &str,
        had: &QueueLimits,
        limits: &QueueLimits,
    ) -> Result<(), AuditViolation> {
        let all = is_slower(limits.rate, had.rate);
        let keys =
            is_slower(limits.key_rate, had.key_rate) || is_fewer(limits.key_concurrency, had.key_concurrency);
        if !limits.hold_anything() || self.in_use(&Limiter::of_queue(queue))? == 0 {
            self.limiters.readmission.remove(queue);
        } else if all || keys || is_fewer(limits.concurrency, had.concurrency) {
            let limiter = Limiter::of_queue(queue);
            self.limiters.known.entry(limiter.wait_list()).or_insert(limiter);
            let was = self.limiters.readmission.get(queue).copied();
            if was.is_some_and(|was| was.reached.is_some()) {
                self.count("limits that become tighter again during re-admission");
            }
            let was = was.unwrap_or_default();
            let readmission =
                ExpectedReadmission { keys: keys || was.keys, all: all || was.all, reached: None };
            self.limiters.readmission.insert(queue.to_owned(), readmission);
            if self.queued.iter().any(|id| self.job(id.job).is_ok_and(|job| job.spec().queue == queue)) {
                self.count("limits that become tighter over a backlog");
            }
        }
        Ok(())
    }

    /// One step of a queue's re-admission; returns whether it was the last one.
    pub(super) fn readmit(
        &mut self,
        of_queue: &Limiter,
        readmission: ExpectedReadmission,
        count: usize,
    ) -> Result<bool, AuditViolation> {
        let most = self.limit_of(of_queue).concurrency.map_or(u64::MAX, u64::from);
        let mut too_many = self.in_use(of_queue)?.saturating_sub(most);
        let is_for_all = readmission.keys || readmission.all;
        let mut asked = count.min(PLACED_PER_STEP_MAX);
        if !is_for_all {
            asked = asked.min(usize::try_from(too_many).unwrap_or(usize::MAX));
        }
        let places = self.last_queued(&of_queue.queue, readmission, asked)?;
        for (_, id) in &places {
            let key = if readmission.keys { self.key_of(id.job)? } else { None };
            let wait_list = match &key {
                None if !readmission.all && too_many == 0 => continue,
                key => key.clone().unwrap_or_else(|| of_queue.clone()),
            };
            self.goes_back(*id, key, wait_list)?;
            too_many = too_many.saturating_sub(1);
        }
        let is_done = places.len() < asked || !is_for_all && too_many == 0;
        if is_done {
            self.limiters.readmission.remove(&of_queue.queue);
            if readmission.all {
                self.counts_what_runs(of_queue)?;
            }
        } else {
            let reached = places.last().copied().or(readmission.reached);
            self.limiters
                .readmission
                .insert(of_queue.queue.clone(), ExpectedReadmission { reached, ..readmission });
            self.count("steps of re-admission that were not the last");
        }
        self.limiters.stuck_since.remove(of_queue);
        Ok(is_done)
    }

    /// An execution that was returned unstarted stays admitted, unless the limits have become tighter since
    /// it was admitted.
    pub(super) fn keeps_place(&mut self, id: OccurrenceId) -> Result<(), AuditViolation> {
        let key = self.key_of(id.job)?;
        let of_queue = Limiter::of_queue(&self.job(id.job)?.spec().queue);
        let had = self.occurrence(id)?.limiter.clone();
        let wait_list = match &key {
            Some(limiter) if key != had || self.has_too_many(limiter)? => limiter.clone(),
            _ if self.has_too_many(&of_queue)? => of_queue,
            _ => return Ok(()),
        };
        self.count("executions returned to a tighter limit");
        self.goes_back(id, key, wait_list.clone())?;
        self.joined(wait_list.wait_list());
        Ok(())
    }

    fn has_too_many(&self, limiter: &Limiter) -> Result<bool, AuditViolation> {
        let most = self.limit_of(limiter).concurrency.map_or(u64::MAX, u64::from);
        Ok(self.in_use(limiter)? > most)
    }

    /// The last queued executions that have not been processed.
    fn last_queued(
        &self,
        queue: &str,
        readmission: ExpectedReadmission,
        count: usize,
    ) -> Result<Vec<(i64, OccurrenceId)>, AuditViolation> {
        let mut places = Vec::new();
        for id in &self.queued {
            if self.job(id.job)?.spec().queue == queue {
                places.push((self.occurrence(*id)?.place.rank_us, *id));
            }
        }
        places.retain(|place| readmission.reached.is_none_or(|reached| *place < reached));
        places.sort_unstable();
        Ok(places.into_iter().rev().take(count).collect())
    }

    fn goes_back(
        &mut self,
        id: OccurrenceId,
        key: Option<Limiter>,
        wait_list: Limiter,
    ) -> Result<(), AuditViolation> {
        let (occurrence, _) = self.occurrence_mut(id)?;
        occurrence.state = OccurrenceState::Waiting(Gates::only(Gate::Concurrency));
        if key.is_some() {
            occurrence.limiter = key;
        }
        occurrence.wait_list = Some(wait_list.clone());
        self.placed(id);
        self.limiters.known.entry(wait_list.wait_list()).or_insert(wait_list);
        self.count("executions that return to a wait list");
        Ok(())
    }
}
