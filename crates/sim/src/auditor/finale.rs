//! The end of a run: compares all reads of the store with the model.

use super::{AuditResult, Auditor, JobModel, Life, OccurrenceFate, rule};
use punctual_core::ids::{Epoch, JobId, OccurrenceId};
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::Status;
use punctual_core::notes::{Checkpoint, Noted};
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, Depth, JobView, PausedQueue, QueueRow};
use punctual_core::schedule::{Schedule, SkipRange};
use punctual_core::time::Timestamp;
use punctual_engine::CounterSnapshot;
use std::collections::{BTreeMap, BTreeSet};

/// Everything that the store's reads return.
#[derive(Debug)]
pub struct StoreContents {
    pub jobs: Vec<JobContents>,
    pub dead_letters: Vec<DeadLetter>,
    pub depths: Vec<Depth>,
    pub paused_queues: Vec<PausedQueue>,
    pub queues: Vec<QueueRow>,
}

#[derive(Debug)]
pub struct JobContents {
    pub view: JobView,
    pub history: Vec<Finished>,
    pub skipped: Vec<SkipRange>,
    /// The notes of its occurrences, and their checkpoints.
    pub notes: Vec<(Noted, Option<Checkpoint>)>,
}

impl Auditor {
    pub fn compare(&self, contents: &StoreContents) -> AuditResult {
        let got: BTreeSet<JobId> = contents.jobs.iter().map(|job| job.view.job.id).collect();
        let kept = self.jobs.iter().filter(|(_, job)| job.mark != StoredStatus::Deleted);
        let expected: BTreeSet<JobId> = kept.map(|(id, _)| *id).collect();
        rule!(
            got == expected && got.len() == contents.jobs.len(),
            "the store lists every job once",
            "missing {:?}, unexpected {:?}, of {} listed",
            expected.difference(&got).collect::<Vec<_>>(),
            got.difference(&expected).collect::<Vec<_>>(),
            contents.jobs.len()
        );
        for job in &contents.jobs {
            let id = job.view.job.id;
            let model = self.job(id)?;
            compare_view(model, &job.view)?;
            compare_history(id, model, &job.history)?;
            compare_skips(id, model, &job.skipped, self.skips_kept_since)?;
        }
        for (id, model) in &self.jobs {
            model.lives.iter().try_for_each(|life| accounts_for_all(*id, life))?;
        }
        let paused: BTreeSet<&String> = contents.paused_queues.iter().map(|paused| &paused.queue).collect();
        rule!(
            paused.iter().copied().eq(&self.paused_queues),
            "paused queues stay paused",
            "{paused:?} are paused, expected {:?}",
            self.paused_queues
        );
        self.compare_queues(&contents.queues)?;
        self.compare_dead_letters(&contents.dead_letters)?;
        let notes: Vec<_> = contents.jobs.iter().flat_map(|job| job.notes.iter().cloned()).collect();
        self.compare_notes(&notes)?;
        let live: u64 =
            contents.depths.iter().map(|depth| depth.waiting + depth.queued + depth.running).sum();
        rule!(live == 0, "nothing is live after all jobs have finished", "{:?}", contents.depths);
        Ok(())
    }

    /// Engines count recorded outcomes: neither one engine nor all together may count an outcome that is not
    /// in history. They may count fewer, because a crash or a lost response loses counts.
    pub fn compare_counters(&self, counted: &[CounterSnapshot]) -> AuditResult {
        let finished = self.jobs.values().flat_map(|job| job.occurrences.values());
        let finished: Vec<Status> =
            finished.flat_map(|occurrence| occurrence.finished.iter().map(|one| one.status)).collect();
        // Schedules skip occurrences that history does not have.
        for status in Status::ALL.into_iter().filter(|status| *status != Status::Skipped) {
            let counted: u64 = counted.iter().map(|counters| counters.of(status)).sum();
            let recorded = finished.iter().filter(|one| **one == status).count() as u64;
            rule!(
                counted <= recorded,
                "counters match history",
                "{counted} executions are counted as {status:?}, {recorded} are in history"
            );
        }
        Ok(())
    }

    fn compare_dead_letters(&self, letters: &[DeadLetter]) -> AuditResult {
        let got: BTreeMap<OccurrenceId, (u32, Epoch)> =
            letters.iter().map(|letter| (letter.occurrence, (letter.attempts, letter.epoch))).collect();
        let mut expected = BTreeMap::new();
        for (id, job) in &self.jobs {
            for number in job.letters() {
                let occurrence = &job.occurrences[&number];
                expected.insert(id.occurrence(number), (occurrence.attempt, occurrence.epoch));
            }
        }
        rule!(
            got == expected && letters.len() == got.len(),
            "dead letters are exactly the occurrences that failed permanently",
            "expected {expected:?}, got {got:?}"
        );
        Ok(())
    }
}

fn compare_view(model: &JobModel, view: &JobView) -> AuditResult {
    let id = view.job.id;
    rule!(
        view.job.spec == *model.spec() && view.job.version == model.version(),
        "a job is kept as submitted or last updated",
        "{:?} is not {:?} in version {}",
        view.job,
        model.spec(),
        model.version()
    );
    rule!(
        view.status() == model.status(),
        "a job's status follows from its history",
        "job {id} is {:?}, expected {:?}",
        view.status(),
        model.status()
    );
    let due_at = view.schedule.as_ref().and_then(|schedule| schedule.due_at);
    rule!(
        due_at == model.due_at(id),
        "a schedule keeps its position",
        "job {id}: {due_at:?}, {:?}",
        model.schedule
    );
    Ok(())
}

fn compare_history(id: JobId, model: &JobModel, history: &[Finished]) -> AuditResult {
    let mut expected = Vec::new();
    for (number, occurrence) in model.occurrences.iter().rev() {
        let kept = occurrence.finished.iter().enumerate().filter(|(_, attempt)| !attempt.is_forgotten);
        for (index, attempt) in kept.rev() {
            expected.push((
                id.occurrence(*number).attempt(index as u32 + 1),
                (attempt.status, attempt.reason),
                attempt.epoch,
                attempt.session,
                (occurrence.scheduled_time, attempt.completed_at),
                (occurrence.origin, attempt.job_version),
            ));
        }
    }
    let got: Vec<_> = history
        .iter()
        .map(|row| {
            let status = (row.status, row.reason);
            let times = (row.scheduled_time, row.completed_at);
            (row.id, status, row.epoch, row.session, times, (row.origin, row.job_version))
        })
        .collect();
    let first = got.iter().zip(&expected).find(|(got, expected)| got != expected);
    rule!(
        got == expected,
        "history lists what happened, latest first",
        "job {id}: {} rows, expected {}, the first that differ are {first:?}",
        got.len(),
        expected.len()
    );
    let backwards = history.iter().find(|row| row.started_at.is_some_and(|start| start > row.completed_at));
    rule!(backwards.is_none(), "nothing ends before it starts", "{backwards:?}");
    Ok(())
}

fn compare_skips(
    id: JobId,
    model: &JobModel,
    ranges: &[SkipRange],
    kept_since: Option<Timestamp>,
) -> AuditResult {
    let mut expected: BTreeMap<(Timestamp, u8), usize> = BTreeMap::new();
    let fates = model.lives.iter().filter(|life| life.clockwork.is_some()).flat_map(|life| &life.fates);
    for (nominal, fate) in fates {
        if let OccurrenceFate::Skipped(reason) = fate {
            *expected.entry((*nominal, *reason as u8)).or_default() += 1;
        }
    }
    let counted: u64 = ranges.iter().map(|range| range.count).sum();
    // Old ranges are deleted as a whole.
    let is_whole = expected.keys().all(|(nominal, _)| kept_since.is_none_or(|since| *nominal >= since));
    let all = expected.values().sum::<usize>() as u64;
    rule!(
        if is_whole { counted == all } else { counted <= all },
        "skips are counted once each",
        "job {id}: expected {expected:?}, got {ranges:?}, kept since {kept_since:?}"
    );
    let (true, [life]) = (is_whole, &model.lives[..]) else {
        // Ranges of one schedule may extend those of the previous one, and old ones may have been deleted.
        let kept = expected.keys().filter(|(nominal, _)| kept_since.is_none_or(|since| *nominal >= since));
        for (nominal, reason) in kept {
            let covers = |range: &&SkipRange| {
                range.first <= *nominal && *nominal <= range.last && range.reason as u8 == *reason
            };
            rule!(
                ranges.iter().any(|range| covers(&range)),
                "skips are kept with their reasons",
                "job {id}: {nominal} is not in {ranges:?}"
            );
        }
        return Ok(());
    };
    let Some(clockwork) = &life.clockwork else { return Ok(()) };
    let mut got: BTreeMap<(Timestamp, u8), usize> = BTreeMap::new();
    for range in ranges {
        let (mut nominal, mut last) = (Some(range.first), None);
        for _ in 0..range.count {
            let Some(skipped) = nominal else { break };
            *got.entry((skipped, range.reason as u8)).or_default() += 1;
            last = nominal;
            nominal = clockwork.next_after(skipped);
        }
        rule!(last == Some(range.last), "a range counts what lies between its ends", "job {id}: {range:?}");
    }
    rule!(
        got == expected,
        "skips are kept with their reasons",
        "job {id}: expected {expected:?}, got {got:?}"
    );
    Ok(())
}

/// The nominal times are those of the schedule, from the first to the last, without gaps.
fn accounts_for_all(id: JobId, life: &Life) -> AuditResult {
    let (Schedule::Recurring(recurring), Some(clockwork)) = (&life.schedule, &life.clockwork) else {
        rule!(
            life.fates.len() == 1 || (life.is_cut_short && life.fates.is_empty()),
            "a one-shot job fires once",
            "job {id}: {:?}",
            life.fates
        );
        return Ok(());
    };
    // Times still to be replayed when the last run was used up stay undone.
    let times: BTreeSet<Timestamp> = life.fates.keys().chain(&life.undone).copied().collect();
    let mut due = Some(life.first);
    for nominal in &times {
        rule!(due == Some(*nominal), "every nominal time is accounted for", "job {id}: {due:?} of {times:?}");
        due = clockwork.next_after(*nominal);
    }
    let is_spent = recurring.max_runs.is_some_and(|runs| life.fired == runs);
    rule!(
        life.is_cut_short || is_spent || (due.is_none() && life.undone.is_empty()),
        "a schedule ends at its last run or its end",
        "job {id} stopped after {} of {:?} runs and {} times, next {due:?}, left {:?}",
        life.fired,
        recurring.max_runs,
        times.len(),
        life.undone
    );
    Ok(())
}
