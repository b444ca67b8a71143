//! Dead letters: an occurrence that failed permanently leaves one, a redrive turns it into one more attempt,
//! a discard deletes it.

use super::control::{Effect, JudgedVerb};
use super::firing::{answers_each, state_behind};
use super::{AuditResult, Auditor, Occurrence, OccurrenceState, rule};
use punctual_core::control::Refusal;
use punctual_core::gates::{Gate, Gates};
use punctual_core::ids::{JobId, OccurrenceId};
use punctual_core::job::JobStatus;
use punctual_core::ports::ControlOutcome;
use punctual_core::schedule::OverlapPolicy;
use punctual_core::time::Timestamp;

impl Auditor {
    /// Runs the job's latest dead occurrence again.
    pub(super) fn retry(&mut self, id: JobId) -> JudgedVerb {
        let job = self.job(id)?;
        if job.status() == JobStatus::Cancelled {
            return Ok(Err(Refusal::Cancelled));
        }
        let latest = job.letters().max();
        match latest {
            None => Ok(Err(Refusal::NothingDead)),
            Some(number) => self.redrive_one(id.occurrence(number)),
        }
    }

    pub fn redriven(
        &mut self,
        now: Timestamp,
        dead: &[OccurrenceId],
        outcomes: &[ControlOutcome],
    ) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("redrive", dead.len(), outcomes.len())?;
        for (id, outcome) in dead.iter().zip(outcomes) {
            if self.is_dead(*id) {
                let effect = self.redrive_one(*id)?;
                self.acted(id.job, &format!("redrive of {id}"), effect, outcome)?;
            } else {
                self.is_not_there(id.job, outcome)?;
            }
        }
        Ok(())
    }

    fn is_dead(&self, id: OccurrenceId) -> bool {
        self.occurrence(id).is_ok_and(|one| one.state == OccurrenceState::Closed { dead: true })
    }

    /// The next attempt of the same occurrence, with a fresh budget and no expiry.
    fn redrive_one(&mut self, id: OccurrenceId) -> JudgedVerb {
        let (at, now, job) = (self.at, self.now, self.job(id.job)?);
        if job.status() == JobStatus::Cancelled {
            return Ok(Err(Refusal::Cancelled));
        }
        let settings = &job.spec().settings;
        if job.open.len() >= settings.max_open as usize {
            return Ok(Err(Refusal::Backlog));
        }
        if let Some(refusal) = self.revival_refusal(id.job)? {
            return Ok(Err(refusal));
        }
        let job = self.job_mut(id.job)?;
        let status = job.status();
        let is_allowed = job.spec().settings.overlap == OverlapPolicy::Allow;
        let mut gates = Gates::NONE;
        if !job.open.is_empty() && !is_allowed {
            gates = gates.with(Gate::Overlap);
        }
        if status == JobStatus::Paused {
            gates = gates.with(Gate::Paused);
        }
        let fresh = job.another(at, now);
        let Some(old) = job.occurrences.remove(&id.number) else { return Ok(Err(Refusal::NothingDead)) };
        let attempt = old.finished.len() as u32 + 1;
        let occurrence = Occurrence {
            origin: old.origin,
            scheduled_time: old.scheduled_time,
            attempt,
            first_of_drive: attempt,
            epoch: old.epoch,
            state: state_behind(gates),
            is_beside: is_allowed,
            finished: old.finished,
            ..fresh
        };
        self.add(id.job, id.number, occurrence, status)?;
        self.count("redrives");
        Ok(Ok(Effect { added: Some(id.attempt(attempt)), skipped: 0 }))
    }

    pub fn discarded(&mut self, dead: &[OccurrenceId], outcomes: &[bool]) -> AuditResult {
        answers_each("discard", dead.len(), outcomes.len())?;
        for (id, was_there) in dead.iter().zip(outcomes) {
            rule!(
                self.is_dead(*id) == *was_there,
                "a dead letter is discarded once",
                "{id}: {was_there}, it is {:?}",
                self.occurrence(*id)
            );
            if *was_there {
                self.set_dead_letter(id.job, id.number, false)?;
                self.count("dead letters discarded");
            }
        }
        Ok(())
    }

    /// Records whether a closed occurrence leaves a dead letter.
    pub(super) fn set_dead_letter(&mut self, job: JobId, number: u32, dead: bool) -> AuditResult {
        self.occurrence_mut(job.occurrence(number))?.0.state = OccurrenceState::Closed { dead };
        if !dead {
            self.forget_notes(job.occurrence(number));
        }
        Ok(())
    }

    /// All dead letters.
    pub fn letters(&self) -> Vec<OccurrenceId> {
        let letters = |(id, job): (&JobId, &super::JobModel)| {
            job.letters().map(|number| id.occurrence(number)).collect::<Vec<_>>()
        };
        self.jobs.iter().flat_map(letters).collect()
    }
}
