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
    let next = view.schedule.as_ref().map(|schedule| schedule.nominal);
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
    let Schedule::Interval { every_us, .. } = model.spec.settings.schedule else {
        rule!(ranges.is_empty(), "a one-shot job skips nothing", "job {id}: {ranges:?}");
        return Ok(());
    };
    let mut got = BTreeMap::new();
    for range in ranges {
        let mut nominal = range.first;
        for _ in 0..range.count {
            let earlier = got.insert(nominal, range.reason);
            rule!(earlier.is_none(), "no nominal time is skipped twice", "job {id}: {nominal} in {ranges:?}");
            nominal = nominal.shifted(every_us);
        }
        rule!(
            nominal == range.last.shifted(every_us),
            "a range counts what lies between its ends",
            "job {id}: {range:?}"
        );
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
    let Schedule::Interval { every_us, anchor, max_runs, end_at } = model.spec.settings.schedule else {
        rule!(model.fates.len() == 1, "a one-shot job fires once", "job {id}: {:?}", model.fates);
        return Ok(());
    };
    let times: Vec<Timestamp> = model.fates.keys().copied().collect();
    let regular = (0..).zip(&times).all(|(k, nominal)| anchor.shifted(k * every_us) == *nominal);
    rule!(regular, "every nominal time is accounted for", "job {id} from {anchor}: {times:?}");
    let fired = model.occurrences.len();
    let exhausted = max_runs.is_some_and(|runs| fired == runs as usize)
        || end_at.is_some_and(|end| anchor.shifted(times.len() as i64 * every_us) > end);
    rule!(
        exhausted,
        "a schedule ends at its last run or its end",
        "job {id} stopped after {fired} of {max_runs:?} runs and {} times, end {end_at:?}",
        times.len()
    );
    Ok(())
}
