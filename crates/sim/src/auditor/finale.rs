//! The end of a run: all that the store shows to people, compared with the model.

use super::{Auditor, Fate, JobModel, OccurrenceState, Verdict, rule};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::JobStatus;
use punctual_core::lifecycle::Status;
use punctual_core::occurrence::Finished;
use punctual_core::ports::{DeadLetter, Depth, JobView};
use punctual_core::schedule::{Schedule, SkipRange};
use punctual_core::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// All that the reads of the store show.
#[derive(Debug)]
pub struct Contents {
    pub jobs: Vec<JobContents>,
    pub dead_letters: Vec<DeadLetter>,
    pub depths: Vec<Depth>,
}

#[derive(Debug)]
pub struct JobContents {
    pub view: JobView,
    pub history: Vec<Finished>,
    pub skipped: Vec<SkipRange>,
}

impl Auditor {
    pub fn compare(&self, contents: &Contents) -> Verdict {
        let got: BTreeSet<JobId> = contents.jobs.iter().map(|job| job.view.job.id).collect();
        let expected: BTreeSet<JobId> = self.jobs.keys().copied().collect();
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
            compare_skips(id, model, &job.skipped)?;
            accounts_for_all(id, model)?;
        }
        self.compare_dead_letters(&contents.dead_letters)?;
        let live: u64 =
            contents.depths.iter().map(|depth| depth.waiting + depth.queued + depth.running).sum();
        rule!(live == 0, "nothing is live when all has finished", "{:?}", contents.depths);
        Ok(())
    }

    fn compare_dead_letters(&self, letters: &[DeadLetter]) -> Verdict {
        let got: BTreeMap<OccurrenceId, u32> =
            letters.iter().map(|letter| (letter.occurrence, letter.attempts)).collect();
        let mut expected = BTreeMap::new();
        for (id, job) in &self.jobs {
            for (number, occurrence) in &job.occurrences {
                if occurrence.state == (OccurrenceState::Closed { dead: true }) {
                    expected.insert(id.occurrence(*number), occurrence.attempt);
                }
            }
        }
        rule!(
            got == expected && letters.len() == got.len(),
            "dead letters are exactly the occurrences that failed for good",
            "expected {expected:?}, got {got:?}"
        );
        Ok(())
    }
}

fn compare_view(model: &JobModel, view: &JobView) -> Verdict {
    let id = view.job.id;
    rule!(
        view.job.spec == model.spec,
        "a job is kept as submitted",
        "{:?} is not {:?}",
        view.job,
        model.spec
    );
    let expected = if model.failed {
        JobStatus::Failed
    } else if model.next.is_some() || model.open > 0 {
        JobStatus::Active
    } else {
        JobStatus::Completed
    };
    rule!(
        view.status() == expected,
        "a job's status follows from what became of it",
        "job {id} is {:?}, expected {expected:?}",
        view.status()
    );
    let next = view.schedule.as_ref().map(|schedule| schedule.due_at);
    rule!(next == model.next, "a schedule stands where it was left", "job {id}: {next:?}, {:?}", model.next);
    Ok(())
}

fn compare_history(id: JobId, model: &JobModel, history: &[Finished]) -> Verdict {
    let mut expected = Vec::new();
    for (number, occurrence) in model.occurrences.iter().rev() {
        let settings = &model.spec.settings;
        rule!(
            occurrence.charged <= settings.max_retries + 1,
            "no more attempts are charged than max_retries allows",
            "{id}.{number}: {} of {}",
            occurrence.charged,
            settings.max_retries + 1
        );
        for (index, attempt) in occurrence.finished.iter().enumerate().rev() {
            expected.push((
                id.occurrence(*number).attempt(index as u32 + 1),
                attempt.status,
                attempt.epoch,
                Some(attempt.session),
                occurrence.scheduled_time,
            ));
        }
    }
    let got: Vec<_> =
        history.iter().map(|row| (row.id, row.status, row.epoch, row.session, row.scheduled_time)).collect();
    rule!(
        got == expected,
        "history is what happened, latest first",
        "job {id}: expected {expected:?}, got {got:?}"
    );
    let backwards = history.iter().find(|row| row.started_at.is_some_and(|start| start > row.completed_at));
    rule!(
        backwards.is_none_or(|row| row.status == Status::Lost),
        "nothing ends before it starts",
        "{backwards:?}"
    );
    Ok(())
}

fn compare_skips(id: JobId, model: &JobModel, ranges: &[SkipRange]) -> Verdict {
    let Some(clockwork) = &model.clockwork else {
        rule!(ranges.is_empty(), "a one-shot job skips nothing", "job {id}: {ranges:?}");
        return Ok(());
    };
    let mut got = BTreeMap::new();
    for range in ranges {
        let (mut nominal, mut last) = (Some(range.first), None);
        for _ in 0..range.count {
            let Some(skipped) = nominal else { break };
            let earlier = got.insert(skipped, range.reason);
            rule!(earlier.is_none(), "no nominal time is skipped twice", "job {id}: {skipped} in {ranges:?}");
            last = nominal;
            nominal = clockwork.next_after(skipped);
        }
        rule!(last == Some(range.last), "a range counts what lies between its ends", "job {id}: {range:?}");
    }
    let expected: BTreeMap<_, _> = model
        .fates
        .iter()
        .filter_map(|(nominal, fate)| match fate {
            Fate::Skipped(reason) => Some((*nominal, *reason)),
            Fate::Fired => None,
        })
        .collect();
    rule!(
        got == expected,
        "skips are kept with their reasons",
        "job {id}: expected {expected:?}, got {got:?}"
    );
    Ok(())
}

/// The nominal times are those of the schedule, from the first to the last, without a gap.
fn accounts_for_all(id: JobId, model: &JobModel) -> Verdict {
    let (Schedule::Recurring(recurring), Some(clockwork)) = (&model.spec.settings.schedule, &model.clockwork)
    else {
        rule!(model.fates.len() == 1, "a one-shot job fires once", "job {id}: {:?}", model.fates);
        return Ok(());
    };
    // What was to be replayed when the last run was used up stays undone.
    let undone = model.cursors.replay.iter().flatten();
    let times: BTreeSet<Timestamp> = model.fates.keys().chain(undone).copied().collect();
    let mut due = model.first;
    for nominal in &times {
        rule!(due == Some(*nominal), "every nominal time is accounted for", "job {id}: {due:?} of {times:?}");
        due = clockwork.next_after(*nominal);
    }
    let fired = model.occurrences.len();
    let is_spent = recurring.max_runs.is_some_and(|runs| fired == runs as usize);
    rule!(
        is_spent || (due.is_none() && model.cursors.replay.is_empty()),
        "a schedule ends at its last run or its end",
        "job {id} stopped after {fired} of {:?} runs and {} times, next {due:?}, left {:?}",
        recurring.max_runs,
        times.len(),
        model.cursors
    );
    Ok(())
}
