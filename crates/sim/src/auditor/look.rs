//! Time passes: gates open and executions expire, on time and not before.

use super::attempts::AttemptEnd;
use super::firing::answers_each;
use super::{AuditResult, AuditViolation, Auditor, SETTLING, rule};
use punctual_core::gates::Gate;
use punctual_core::ids::{OccurrenceId, SegmentSet};
use punctual_core::job::StoredStatus;
use punctual_core::lifecycle::Status;
use punctual_core::ports::{Due, DueKind, LookOutcome, LookRequest};
use punctual_core::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long something may stay overdue after the last fault: until dead nodes are evicted and their segments
/// reassigned.
const OVERDUE_MAX: Duration = Duration::from_secs(60);

impl Auditor {
    pub fn looked(&mut self, now: Timestamp, looks: &[LookRequest], outcomes: &[LookOutcome]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("look", looks.len(), outcomes.len())?;
        for (look, outcome) in looks.iter().zip(outcomes) {
            self.looked_at(look, outcome)?;
        }
        Ok(())
    }

    fn looked_at(&mut self, look: &LookRequest, outcome: &LookOutcome) -> AuditResult {
        let (id, at) = (look.occurrence, self.at);
        let occurrence = self.occurrence(id)?;
        let is_current = occurrence.attempt == look.attempt && !occurrence.is_closed();
        let (state, look_at, is_expired) =
            (occurrence.state, occurrence.look_at(), occurrence.is_expired(at));
        let due_at = look_at.map(|due_at| due_at.max(occurrence.changed_at));
        match outcome {
            LookOutcome::Opened(effects) => {
                rule!(
                    is_current && !is_expired && look_at.is_some_and(|due_at| due_at <= at),
                    "a time gate opens once, and not before its time",
                    "{id}.{} was opened at {at} while it was {state:?} until {look_at:?}",
                    look.attempt
                );
                self.on_time("a retry", due_at.unwrap_or(at))?;
                self.open_gate(id, Gate::Time)?;
                self.count("time gates opened");
                self.announced(effects)
            }
            LookOutcome::Expired(effects) => {
                rule!(
                    is_current && is_expired,
                    "only an unstarted execution past its expiry expires",
                    "{id}.{} expired at {at} while it was {state:?} until {look_at:?}",
                    look.attempt
                );
                self.on_time("an expiry", due_at.unwrap_or(at))?;
                self.expire(id)?;
                self.announced(effects)
            }
            LookOutcome::Conflict => {
                rule!(
                    !is_current || look_at.is_none(),
                    "a scan is refused only when there is nothing to do",
                    "{id}.{} is {state:?} until {look_at:?} and was refused",
                    look.attempt
                );
                self.count("conflicts on gates");
                Ok(())
            }
            LookOutcome::NotDue => {
                rule!(
                    is_current && look_at.is_some_and(|due_at| due_at > at),
                    "a scan is too early only before its time",
                    "{id}.{} is {state:?} until {look_at:?} and was refused at {at}",
                    look.attempt
                );
                Ok(())
            }
        }
    }

    /// It expires before it has started.
    pub(super) fn expire(&mut self, id: OccurrenceId) -> Result<(), AuditViolation> {
        let at = self.at;
        let occurrence = self.occurrence(id)?;
        let (execution, dead) = (id.attempt(occurrence.attempt), occurrence.charged > 0);
        self.ended_unstarted(execution, Status::Expired);
        let ended = AttemptEnd { dead, ..AttemptEnd::unstarted(Status::Expired, at) };
        self.close(id, ended, Some(StoredStatus::Failed))?;
        self.count("occurrences expired");
        self.follow(id.job, false)?;
        self.wake_replay(id.job)
    }

    /// Checks a read of due times: everything up to `until`, unless the limit cut it off.
    pub fn read_due(
        &mut self,
        segments: SegmentSet,
        until: Timestamp,
        limit: usize,
        due: &[Due],
    ) -> AuditResult {
        let got: BTreeSet<(Timestamp, DueKind)> = due.iter().map(|due| (due.at, due.what)).collect();
        rule!(got.len() == due.len(), "every due time is read once", "{due:?}");
        let expected = self.all_due(segments, until);
        if expected.len() < limit {
            rule!(
                got == expected,
                "a read returns all due times and nothing else",
                "until {until}: expected {expected:?}, got {got:?}"
            );
        }
        Ok(())
    }

    /// Without faults nothing stays overdue: every segment has an owner.
    pub fn nothing_is_overdue(&mut self) -> AuditResult {
        let Some(settled) = self.calm_since.map(|since| since.plus(SETTLING)) else { return Ok(()) };
        let patient_since = self.now.minus(OVERDUE_MAX);
        if patient_since < settled {
            return Ok(());
        }
        let overdue = self.all_due(SegmentSet::ALL, patient_since).into_iter().find(|(_, what)| {
            let changed_at = match what {
                DueKind::Schedule { job, .. } => {
                    self.job(*job).ok().and_then(|job| job.schedule.as_ref()).map(|one| one.changed_at)
                }
                DueKind::Live { occurrence, .. } => {
                    self.occurrence(*occurrence).ok().map(|one| one.changed_at)
                }
            };
            changed_at.is_some_and(|at| at <= patient_since)
        });
        rule!(overdue.is_none(), "without faults nothing stays due", "{overdue:?} at {}", self.now);
        Ok(())
    }

    fn all_due(&self, segments: SegmentSet, until: Timestamp) -> BTreeSet<(Timestamp, DueKind)> {
        let mut all = BTreeSet::new();
        for (id, job) in self.jobs.iter().filter(|(id, _)| segments.contains(id.segment())) {
            if let (Some(at), Some(schedule)) = (job.due_at(*id), &job.schedule) {
                all.insert((at, DueKind::Schedule { job: *id, version: schedule.version }));
            }
            for number in &job.open {
                let one = &job.occurrences[number];
                if let Some(at) = one.look_at() {
                    let (occurrence, attempt) = (id.occurrence(*number), one.attempt);
                    all.insert((at, DueKind::Live { occurrence, attempt }));
                }
            }
        }
        all.retain(|(at, _)| *at <= until);
        all
    }
}
