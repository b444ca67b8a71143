//! Limits of queues and of keys within them. A ready execution passes if there is room and none waits;
//! otherwise it joins the wait list. A wait list moves by rank and only as far as there is room. Where there
//! is room, nothing waits for long.

use super::firing::state_behind;
use super::readmission::ExpectedReadmission;
use super::shares::goes_before;
use super::{AuditResult, AuditViolation, Auditor, Occurrence, OccurrenceState, SETTLING, rule};
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::limiter::{Limit, LimiterId, LimiterUse, QueueLimits, Rate, WaitList};
use punctual_core::ports::{Admitted, Page};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an execution may stay on a wait list that has room, without faults: until all wait lists are
/// scanned, plus a few round trips to the store.
const MOVES_WITHIN: Duration = Duration::from_secs(3);

/// A limit of a queue, or of one key within it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limiter {
    pub queue: String,
    pub key: Option<String>,
}

impl Limiter {
    pub(super) fn of_queue(queue: &str) -> Self {
        Limiter { queue: queue.to_owned(), key: None }
    }

    /// The store's name for its wait list.
    pub fn wait_list(&self) -> WaitList {
        let key = self.key.as_ref().map(|key| LimiterId::of_key(&self.queue, key));
        WaitList { queue: self.queue.clone(), key }
    }
}

/// The model of limits, besides the wait lists.
#[derive(Debug, Default)]
pub(super) struct AuditedLimiters {
    /// Every limiter that was ever used, by the name of its wait list.
    pub known: BTreeMap<WaitList, Limiter>,
    /// The queues with a re-admission in progress.
    pub readmission: BTreeMap<String, ExpectedReadmission>,
    paces: BTreeMap<Limiter, LimiterStarts>,
    /// The wait lists on which something waits although there is room, and since when that has been observed.
    pub stuck_since: BTreeMap<Limiter, Timestamp>,
}

/// The starts of a limiter with a rate.
#[derive(Debug)]
struct LimiterStarts {
    /// The slot time of the latest start.
    slot: Timestamp,
    /// The last rate that was applied.
    rate: Rate,
    /// The starts since that rate applies.
    starts: Vec<Timestamp>,
}

/// Microseconds between two starts, and how much of a delay is made up for: a tenth of the period.
fn step_and_slack_us(rate: Rate) -> (i64, i64) {
    let step_ns = rate.per_ms as i64 * 1_000_000 / i64::from(rate.count);
    (step_ns / 1_000, step_ns * i64::from(rate.count / 10) / 1_000)
}

impl Auditor {
    pub(super) fn limits_of(&self, queue: &str) -> Option<&QueueLimits> {
        self.queue_settings.get(queue).map(|settings| &settings.limits)
    }

    pub(super) fn limit_of(&self, limiter: &Limiter) -> Limit {
        let Some(limits) = self.limits_of(&limiter.queue) else { return Limit::default() };
        match limiter.key {
            Some(_) => Limit { concurrency: limits.key_concurrency, rate: limits.key_rate },
            None => Limit { concurrency: limits.concurrency, rate: limits.rate },
        }
    }

    /// The limiter of the job's key, if its queue limits keys.
    pub(super) fn key_of(&self, job: JobId) -> Result<Option<Limiter>, AuditViolation> {
        let spec = self.job(job)?.spec();
        let of_keys = self.limits_of(&spec.queue).map(|limits| (limits.key_concurrency, limits.key_rate));
        let is_limited = of_keys.is_some_and(|limits| limits != (None, None));
        let key = spec.settings.concurrency_key.clone().filter(|_| is_limited);
        Ok(key.map(|key| Limiter { queue: spec.queue.clone(), key: Some(key) }))
    }

    fn all_open(&self) -> impl Iterator<Item = (OccurrenceId, &Occurrence)> {
        self.jobs.iter().flat_map(|(id, job)| {
            job.open.iter().map(|number| (id.occurrence(*number), &job.occurrences[number]))
        })
    }

    /// What counts against a limit: everything queued or running, and for a key also what waits for its
    /// queue.
    pub(super) fn in_use(&self, limiter: &Limiter) -> Result<u64, AuditViolation> {
        let mut in_use = 0;
        if limiter.key.is_none() {
            for id in self.queued.iter().chain(&self.running) {
                in_use += u64::from(self.job(id.job)?.spec().queue == limiter.queue);
            }
            return Ok(in_use);
        }
        for (_, one) in self.all_open().filter(|(_, one)| one.limiter.as_ref() == Some(limiter)) {
            let is_past = one.wait_list.as_ref().is_some_and(|wait_list| wait_list != limiter);
            let is_started = matches!(one.state, OccurrenceState::Queued | OccurrenceState::Running { .. });
            in_use += u64::from(is_past || is_started);
        }
        Ok(in_use)
    }

    /// The occurrences on a wait list, in order.
    fn wait_list(&self, limiter: &Limiter) -> Vec<OccurrenceId> {
        let waits = |(_, one): &(OccurrenceId, &Occurrence)| one.wait_list.as_ref() == Some(limiter);
        let mut wait_list: Vec<_> =
            self.all_open().filter(waits).map(|(id, one)| (one.place.rank_us, id)).collect();
        wait_list.sort_unstable();
        wait_list.into_iter().map(|(_, id)| id).collect()
    }

    /// Whether nothing passes the limits of a queue: a paused queue uses none of them, and during a
    /// re-admission the order is not known yet.
    fn is_holding_wait_lists(&self, queue: &str) -> bool {
        self.paused_queues.contains(queue) || self.limiters.readmission.contains_key(queue)
    }

    /// How many more may pass now.
    fn room(&self, limiter: &Limiter, at: Timestamp) -> Result<u64, AuditViolation> {
        if self.is_holding_wait_lists(&limiter.queue) {
            return Ok(0);
        }
        let limit = self.limit_of(limiter);
        let mut room = u64::MAX;
        if let Some(most) = limit.concurrency {
            room = u64::from(most).saturating_sub(self.in_use(limiter)?);
        }
        if let Some(rate) = limit.rate {
            let (step_us, _) = step_and_slack_us(rate);
            let late_us = at.as_micros() - self.next_slot(limiter, rate, at).as_micros();
            room = room.min(if late_us < 0 { 0 } else { 1 + (late_us / step_us).unsigned_abs() });
        }
        Ok(room)
    }

    /// The earliest slot time of the next start.
    fn next_slot(&self, limiter: &Limiter, rate: Rate, at: Timestamp) -> Timestamp {
        let (step_us, slack_us) = step_and_slack_us(rate);
        let pace = self.limiters.paces.get(limiter);
        pace.map_or(at, |pace| pace.slot.shifted(step_us).max(at.shifted(-slack_us)))
    }

    /// Records a start: in no period may there be more starts than the rate and a tenth, by the times of the
    /// nodes that admitted them.
    fn starts(&mut self, limiter: &Limiter) -> AuditResult {
        let Some(rate) = self.limit_of(limiter).rate else { return Ok(()) };
        let at = self.at;
        let slot = self.next_slot(limiter, rate, at);
        let pace = self.limiters.paces.entry(limiter.clone()).or_insert(LimiterStarts {
            slot,
            rate,
            starts: vec![],
        });
        if pace.rate != rate {
            (pace.rate, pace.starts) = (rate, vec![]);
        }
        pace.slot = slot;
        pace.starts.push(at);
        let span = Duration::from_millis(rate.per_ms);
        let before = pace.starts.iter().filter(|start| **start <= at && at.since(**start) < span).count();
        let after = pace.starts.iter().filter(|start| **start >= at && start.since(at) < span).count();
        let most = (rate.count + rate.count / 10 + 1) as usize;
        rule!(
            before.max(after) <= most,
            "no span has more than a tenth too many starts",
            "{limiter:?} allows {rate}: {before} started in the span before {at}, {after} in that after it"
        );
        self.count("paced starts");
        Ok(())
    }

    /// A rate has reached the whole backlog: what runs counts as if it had just started, unless starts were counted
    /// within the last period.
    pub(super) fn counts_what_runs(&mut self, limiter: &Limiter) -> AuditResult {
        let Some(rate) = self.limit_of(limiter).rate else { return Ok(()) };
        let running = self.in_use(limiter)?.min(rate.count.into());
        let at = self.at;
        let since = at.shifted(-(rate.per_ms as i64) * 1_000);
        if running == 0 || self.limiters.paces.get(limiter).is_some_and(|pace| pace.slot > since) {
            return Ok(());
        }
        let step_ns = rate.per_ms as i64 * 1_000_000 / i64::from(rate.count);
        let slot = at.shifted(step_ns * (running as i64 - 1) / 1_000);
        let starts = LimiterStarts { slot, rate, starts: vec![] };
        self.limiters.paces.entry(limiter.clone()).or_insert(starts).slot = slot;
        self.count("executions that ran when a rate was set");
        Ok(())
    }

    /// Whether an execution passes without waiting.
    fn passes(&mut self, limiter: &Limiter) -> Result<bool, AuditViolation> {
        self.limiters.known.entry(limiter.wait_list()).or_insert_with(|| limiter.clone());
        let is_free = self.wait_list(limiter).is_empty() && self.room(limiter, self.at)? > 0;
        if self.paused_queues.contains(&limiter.queue) {
            self.count("executions that wait for a paused queue with limits");
        }
        if is_free {
            self.starts(limiter)?;
        }
        Ok(is_free)
    }

    /// No other gate is closed: the occurrence passes the limits of its queue, or joins their wait lists. It
    /// counts against neither while that is decided.
    pub(super) fn becomes_ready(&mut self, id: OccurrenceId) -> AuditResult {
        let key = self.key_of(id.job)?;
        let (occurrence, _) = self.occurrence_mut(id)?;
        (occurrence.limiter, occurrence.wait_list) = (key.clone(), None);
        occurrence.state = OccurrenceState::Waiting(Gates::NONE);
        self.placed(id);
        let (wait_list, passed) = match key {
            Some(key) if !self.passes(&key)? => (Some(key), None),
            key => (self.behind_queue(id)?, key),
        };
        self.set_wait_list(id, wait_list, passed)
    }

    /// The limiter of its queue on whose wait list an occurrence must wait after it has passed the limit of
    /// its key, if any.
    fn behind_queue(&mut self, id: OccurrenceId) -> Result<Option<Limiter>, AuditViolation> {
        let of_queue = Limiter::of_queue(&self.job(id.job)?.spec().queue);
        let is_limited = self.limit_of(&of_queue) != Limit::default();
        Ok(if is_limited && !self.passes(&of_queue)? { Some(of_queue) } else { None })
    }

    /// Puts the occurrence on a wait list, or on none, and records that it has passed the limit of its key if
    /// there is one.
    fn set_wait_list(
        &mut self,
        id: OccurrenceId,
        wait_list: Option<Limiter>,
        passed: Option<Limiter>,
    ) -> AuditResult {
        let (occurrence, _) = self.occurrence_mut(id)?;
        let gates = if wait_list.is_some() { Gates::only(Gate::Concurrency) } else { Gates::NONE };
        occurrence.state = state_behind(gates);
        occurrence.wait_list = wait_list.clone();
        self.placed(id);
        if let Some(key) = passed {
            self.within_limit(id, &key)?;
        }
        let Some(wait_list) = wait_list else {
            let of_queue = Limiter::of_queue(&self.job(id.job)?.spec().queue);
            return self.within_limit(id, &of_queue);
        };
        self.limiters.known.entry(wait_list.wait_list()).or_insert_with(|| wait_list.clone());
        self.joined(wait_list.wait_list());
        self.count("executions on a wait list");
        Ok(())
    }

    /// An occurrence that passed a limit must be within that limit now.
    fn within_limit(&mut self, id: OccurrenceId, limiter: &Limiter) -> AuditResult {
        let Some(most) = self.limit_of(limiter).concurrency else { return Ok(()) };
        let in_use = self.in_use(limiter)?;
        rule!(
            in_use <= u64::from(most),
            "no more are queued or run at once than a limit says",
            "{id} makes {in_use} of {limiter:?}, which allows {most}"
        );
        self.count("executions within a limit");
        Ok(())
    }

    /// Unstarted executions of a job go through the limits again when the job moves to another queue or key.
    pub(super) fn readmit_job(&mut self, job: JobId) -> AuditResult {
        let key = self.key_of(job)?;
        let of_queue = Limiter::of_queue(&self.job(job)?.spec().queue);
        let of_queue = Some(of_queue).filter(|limiter| self.limit_of(limiter) != Limit::default());
        for number in self.job(job)?.open.clone() {
            let id = job.occurrence(number);
            let (occurrence, _) = self.occurrence_mut(id)?;
            let was = (occurrence.state, occurrence.limiter.clone(), occurrence.wait_list.clone());
            let gates = match occurrence.state {
                OccurrenceState::Queued => Gates::NONE,
                OccurrenceState::Waiting(gates) if occurrence.wait_list.is_some() => {
                    gates.without(Gate::Concurrency)
                }
                _ => continue,
            };
            let wait_list = key.clone().or(of_queue.clone()).filter(|_| gates.is_empty());
            let gates = if wait_list.is_some() { Gates::only(Gate::Concurrency) } else { gates };
            let is = (state_behind(gates), key.clone(), wait_list.clone());
            (occurrence.state, occurrence.limiter, occurrence.wait_list) = is.clone();
            if is != was {
                self.placed(id);
                self.count("executions that move to another wait list");
                if let Some(wait_list) = wait_list {
                    self.limiters.known.entry(wait_list.wait_list()).or_insert_with(|| wait_list.clone());
                    self.joined(wait_list.wait_list());
                }
            }
        }
        Ok(())
    }

    /// Wait lists have moved: each as far as there was room, and by rank.
    pub fn admitted(
        &mut self,
        now: Timestamp,
        wait_lists: &[WaitList],
        count: usize,
        admitted: &Admitted,
    ) -> AuditResult {
        self.not_ahead(now)?;
        let (mut waiting, mut more, mut is_look_due) = (vec![], vec![], false);
        for wait_list in wait_lists {
            // The execution that was about to join it may have moved elsewhere in the same commit.
            let Some(limiter) = self.limiters.known.get(wait_list).cloned() else { continue };
            let readmission = self.limiters.readmission.get(&limiter.queue).filter(|_| limiter.key.is_none());
            if let Some(readmission) = readmission.copied() {
                let is_done = self.readmit(&limiter, readmission, count)?;
                is_look_due |= is_done;
                more.extend((!is_done).then(|| wait_list.clone()));
                waiting.extend((!self.wait_list(&limiter).is_empty()).then(|| (wait_list.clone(), None)));
                continue;
            }
            let heads = self.heads(&limiter, count)?;
            for id in &heads {
                self.let_out(*id, &limiter)?;
            }
            if !heads.is_empty() {
                self.limiters.stuck_since.remove(&limiter);
                self.count("wait lists moved");
            }
            if !self.wait_list(&limiter).is_empty() {
                if !heads.is_empty() && self.room(&limiter, now)? > 0 {
                    more.push(wait_list.clone());
                }
                waiting.push((wait_list.clone(), self.opens_at(&limiter)?));
            }
        }
        rule!(
            admitted.waiting == waiting && admitted.more == more && admitted.is_look_due == is_look_due,
            "a wait list advances as far as there is room",
            "expected {waiting:?} to wait and {more:?} to continue, a scan to be due: {is_look_due}, got {admitted:?}"
        );
        self.announced(&admitted.effects)
    }

    /// The next executions to be admitted.
    fn heads(&self, limiter: &Limiter, count: usize) -> Result<Vec<OccurrenceId>, AuditViolation> {
        let room = usize::try_from(self.room(limiter, self.at)?).unwrap_or(usize::MAX);
        let wait_list = self.wait_list(limiter);
        let (heads, rest) = wait_list.split_at(room.min(count).min(wait_list.len()));
        for (goes, stays) in heads.last().into_iter().flat_map(|last| rest.iter().map(move |id| (last, id))) {
            let of = |id: OccurrenceId| self.occurrence(id).map(|one| (id.attempt(one.attempt), one.place));
            goes_before(of(*goes)?, of(*stays)?)?;
        }
        Ok(heads.to_vec())
    }

    fn let_out(&mut self, id: OccurrenceId, limiter: &Limiter) -> AuditResult {
        let (occurrence, _) = self.occurrence_mut(id)?;
        let OccurrenceState::Waiting(gates) = occurrence.state else { return Ok(()) };
        let left = gates.without(Gate::Concurrency);
        (occurrence.state, occurrence.wait_list) = (OccurrenceState::Waiting(left), None);
        if !left.is_empty() {
            self.placed(id);
            self.count("executions that leave a wait list for another gate");
            return Ok(());
        }
        self.starts(limiter)?;
        let passed = Some(limiter.clone()).filter(|limiter| limiter.key.is_some());
        let wait_list = if passed.is_some() { self.behind_queue(id)? } else { None };
        self.set_wait_list(id, wait_list, passed)
    }

    /// When time alone makes room.
    fn opens_at(&self, limiter: &Limiter) -> Result<Option<Timestamp>, AuditViolation> {
        if self.is_holding_wait_lists(&limiter.queue) {
            return Ok(None);
        }
        let limit = self.limit_of(limiter);
        let (Some(rate), Some(pace)) = (limit.rate, self.limiters.paces.get(limiter)) else {
            return Ok(None);
        };
        let in_use = self.in_use(limiter)?;
        let is_full = limit.concurrency.is_some_and(|most| in_use >= u64::from(most));
        Ok((!is_full).then(|| pace.slot.shifted(step_and_slack_us(rate).0)))
    }

    /// All limiters that were ever used, with their waiting and counted executions.
    pub fn limiters(&self) -> Result<Vec<(Limiter, u64, u64)>, AuditViolation> {
        let of = |limiter: &Limiter| {
            Ok((limiter.clone(), self.wait_list(limiter).len() as u64, self.in_use(limiter)?))
        };
        self.limiters.known.values().map(of).collect()
    }

    /// The store's counters match the model.
    pub fn counted(&self, of: &[(Limiter, u64, u64)], kept: &[LimiterUse]) -> AuditResult {
        for ((limiter, waiting, in_use), kept) in of.iter().zip(kept) {
            rule!(
                (kept.waiting, kept.in_use) == (*waiting, *in_use),
                "the counters of a limit match its executions",
                "{limiter:?}: {waiting} wait and {in_use} count, kept is {kept:?}"
            );
        }
        Ok(())
    }

    /// Checks a page of all wait lists.
    pub fn read_wait_lists(
        &mut self,
        after: Option<LimiterId>,
        limit: usize,
        page: &Page<WaitList, LimiterId>,
    ) -> AuditResult {
        let waited_in = self.all_open().filter_map(|(_, one)| one.wait_list.as_ref().map(Limiter::wait_list));
        let mut waited_in: BTreeMap<LimiterId, WaitList> =
            waited_in.map(|wait_list| (wait_list.id(), wait_list)).collect();
        waited_in.retain(|id, _| after.is_none_or(|after| *id > after));
        let next = waited_in.keys().nth(limit - 1).copied();
        waited_in.retain(|id, _| next.is_none_or(|next| *id <= next));
        let mut expected: BTreeSet<WaitList> = waited_in.into_values().collect();
        if after.is_none() {
            expected.extend(self.limiters.readmission.keys().map(|queue| WaitList::of_queue(queue)));
        }
        rule!(
            page.items.iter().collect::<BTreeSet<_>>() == expected.iter().collect() && page.next == next,
            "all wait lists are found that have entries or are being re-admitted, and no others",
            "expected {expected:?} and then those after {next:?}, got {page:?}"
        );
        if after.is_some() {
            self.count("further pages of wait lists");
        }
        Ok(())
    }

    /// Without faults, nothing stays for long on a wait list that has room.
    pub fn no_stuck_wait_lists(&mut self) -> AuditResult {
        let now = self.now;
        let waited_in: BTreeSet<Limiter> =
            self.all_open().filter_map(|(_, one)| one.wait_list.clone()).collect();
        let mut stuck = BTreeMap::new();
        for limiter in waited_in {
            if self.room(&limiter, now)? > 0 {
                let since = self.limiters.stuck_since.get(&limiter).copied().unwrap_or(now);
                stuck.insert(limiter, since);
            }
        }
        for queue in self.limiters.readmission.keys() {
            let limiter = Limiter::of_queue(queue);
            let since = self.limiters.stuck_since.get(&limiter).copied().unwrap_or(now);
            stuck.insert(limiter, since);
        }
        self.limiters.stuck_since = stuck;
        let Some(settled) = self.calm_since.map(|since| since.plus(SETTLING)) else { return Ok(()) };
        for (limiter, since) in &self.limiters.stuck_since {
            rule!(
                now.since(settled.max(*since)) <= MOVES_WITHIN,
                "nothing stays on a wait list while there is room",
                "{:?} wait for {limiter:?}, which has had room or a pending re-admission since {since}",
                self.wait_list(limiter)
            );
        }
        Ok(())
    }
}
