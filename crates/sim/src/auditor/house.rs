//! Housekeeping: finished jobs go when they have been kept long enough, deleted ones when nothing of them is live,
//! and nothing else goes.

use super::{Auditor, JobModel, Verdict, rule};
use punctual_core::ids::JobId;
use punctual_core::job::JobMark;
use punctual_core::ports::{Retained, Retired, Retirement};
use punctual_core::time::Timestamp;

impl Auditor {
    pub fn retained(&mut self, retained: &Retained) -> Verdict {
        rule!(
            *retained == Retained::default(),
            "history is kept for as long as it should be",
            "{retained:?} went"
        );
        Ok(())
    }

    pub fn retired(&mut self, now: Timestamp, step: &Retirement, retired: &Retired) -> Verdict {
        self.not_ahead(now)?;
        let is_after = |id: &JobId| step.after.is_none_or(|after| *id > after);
        let looked_at = self.jobs.iter().filter(|(id, job)| is_after(id) && !job.is_purged).take(step.limit);
        let over: Vec<JobId> =
            looked_at.filter(|(_, job)| is_over(job, step.finished_before)).map(|(id, _)| *id).collect();
        rule!(
            over.len() as u64 == retired.jobs,
            "jobs go when they have been finished for long enough and left no dead letter",
            "before {}: expected {over:?}, got {retired:?}",
            step.finished_before
        );
        for id in over {
            self.job_mut(id)?.mark = JobMark::Deleted;
            self.forget(id)?;
            self.count("jobs retired");
        }
        Ok(())
    }

    pub fn purged(&mut self, jobs: &[JobId]) -> Verdict {
        for id in jobs {
            let job = self.job_mut(*id)?;
            rule!(
                job.mark == JobMark::Deleted && job.is_finished() && !job.is_purged,
                "only a deleted job of which nothing is live is purged",
                "job {id} is {:?} with {:?} open",
                job.mark,
                job.open
            );
            job.is_purged = true;
            self.count("jobs purged");
        }
        Ok(())
    }
}

fn is_over(job: &JobModel, before: Timestamp) -> bool {
    let latest = job.occurrences.values().rev().find_map(|occurrence| occurrence.finished.last());
    job.mark != JobMark::Deleted
        && job.is_finished()
        && job.changed_by_hand_at < before
        && latest.is_none_or(|attempt| attempt.completed_at < before)
        && job.letters().next().is_none()
}
