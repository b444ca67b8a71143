//! Notes of handlers: accepted only under a live lease, each note once and in order. An attempt begins with
//! the last accepted checkpoint of its occurrence. Nothing is left of ended occurrences, except for dead
//! letters.

use super::firing::answers_each;
use super::{AuditResult, AuditViolation, Auditor, rule};
use punctual_core::ids::{Epoch, ExecutionId, OccurrenceId};
use punctual_core::notes::{Checkpoint, Note, NoteAnswer, Noted, Progress};
use punctual_core::ports::{Assignment, LeaseRef};
use punctual_core::time::Timestamp;

/// The notes of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NotesModel {
    last: (Epoch, u64),
    progress: (u32, Progress),
    noted_at: Timestamp,
    checkpoint: Option<Checkpoint>,
}

/// The answer that a handler got about its checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is stored.
    Kept,
    /// The outcome is unknown, or it was rejected.
    Doubtful,
}

impl Auditor {
    pub fn noted(&mut self, now: Timestamp, notes: &[Note], answers: &[NoteAnswer]) -> AuditResult {
        self.not_ahead(now)?;
        answers_each("note", notes.len(), answers.len())?;
        for (note, answer) in notes.iter().zip(answers) {
            let expected = self.expected_answer(note)?;
            let id = note.lease.execution.occurrence;
            rule!(
                *answer == expected,
                "a note counts once, in order, and only from the holder of the lease",
                "{note:?}: expected {expected:?}, got {answer:?}; the occurrence is {:?}, noted is {:?}",
                self.occurrence(id)?,
                self.notes.get(&id)
            );
            match expected {
                NoteAnswer::Accepted => self.note_accepted(now, note),
                NoteAnswer::AlreadyAccepted => self.count("repeated notes recognised"),
                NoteAnswer::Stale => self.count("stale notes refused"),
            }
        }
        Ok(())
    }

    fn expected_answer(&self, note: &Note) -> Result<NoteAnswer, AuditViolation> {
        if !self.holds(note.session, note.lease)? {
            return Ok(NoteAnswer::Stale);
        }
        let last = self.notes.get(&note.lease.execution.occurrence).map(|model| model.last);
        let is_known = |(epoch, number): (Epoch, u64)| {
            epoch == note.lease.epoch && note.number.is_some_and(|this| this <= number)
        };
        Ok(if last.is_some_and(is_known) { NoteAnswer::AlreadyAccepted } else { NoteAnswer::Accepted })
    }

    fn note_accepted(&mut self, now: Timestamp, note: &Note) {
        let LeaseRef { execution, epoch } = note.lease;
        let before = self.notes.remove(&execution.occurrence);
        let counted =
            before.as_ref().filter(|before| before.last.0 == epoch).map_or(0, |before| before.last.1);
        let (progress, checkpoint) = match before {
            Some(before) => (before.progress, before.checkpoint),
            None => ((execution.attempt, Progress::default()), None),
        };
        if let Some(checkpoint) = &note.checkpoint {
            self.saved.insert((execution, epoch), checkpoint.clone());
        }
        let model = NotesModel {
            last: (epoch, note.number.unwrap_or(counted + 1)),
            progress: note.progress.clone().map_or(progress, |progress| (execution.attempt, progress)),
            noted_at: now,
            checkpoint: note.checkpoint.clone().or(checkpoint),
        };
        self.notes.insert(execution.occurrence, model);
        self.count("notes kept");
    }

    /// A lease comes with the last checkpoint of its occurrence.
    pub(super) fn comes_with_checkpoint(&mut self, assignment: &Assignment) -> AuditResult {
        let model = self.notes.get(&assignment.execution.occurrence);
        let expected = model.and_then(|model| model.checkpoint.as_ref());
        rule!(
            assignment.checkpoint.as_ref() == expected,
            "an attempt begins with the last accepted checkpoint of its occurrence",
            "{} {:?} was leased with {:?}, expected {expected:?}",
            assignment.execution,
            assignment.epoch,
            assignment.checkpoint
        );
        if let Some(checkpoint) = &assignment.checkpoint {
            self.handed_over.insert((assignment.execution, assignment.epoch), checkpoint.clone());
            self.count("leases with a checkpoint");
        }
        Ok(())
    }

    /// A handler begins with the checkpoint that its lease came with.
    pub(super) fn begins_with_checkpoint(&mut self, assignment: &Assignment) -> AuditResult {
        let expected = self.handed_over.get(&(assignment.execution, assignment.epoch));
        rule!(
            assignment.checkpoint.as_ref() == expected,
            "a handler gets the checkpoint of its lease",
            "{} {:?} begins with {:?}, leased was {expected:?}",
            assignment.execution,
            assignment.epoch,
            assignment.checkpoint
        );
        Ok(())
    }

    /// A handler got the answer about its checkpoint.
    pub fn checkpoint_answered(
        &mut self,
        execution: ExecutionId,
        epoch: Epoch,
        checkpoint: &Checkpoint,
        saved: Saved,
    ) -> AuditResult {
        if saved == Saved::Doubtful {
            self.count("checkpoints with unknown outcome");
            return Ok(());
        }
        let kept = self.saved.get(&(execution, epoch));
        rule!(
            kept == Some(checkpoint),
            "a checkpoint that its handler calls saved was accepted",
            "{execution} {epoch:?} was informed that {checkpoint:?} is saved, accepted last was {kept:?}"
        );
        self.count("checkpoints saved");
        Ok(())
    }

    /// An occurrence has ended without a dead letter, or its dead letter was removed.
    pub(super) fn forget_notes(&mut self, id: OccurrenceId) {
        self.notes.remove(&id);
    }

    /// Only dead occurrences have notes left.
    pub(super) fn compare_notes(&self, found: &[(Noted, Option<Checkpoint>)]) -> AuditResult {
        let mut expected: Vec<(Noted, Option<Checkpoint>)> = Vec::new();
        for (id, model) in &self.notes {
            let (attempt, progress) = model.progress.clone();
            let checkpoint_bytes =
                model.checkpoint.as_ref().map(|checkpoint| checkpoint.as_json().len() as u64);
            let noted =
                Noted { occurrence: *id, attempt, progress, noted_at: model.noted_at, checkpoint_bytes };
            expected.push((noted, model.checkpoint.clone()));
        }
        let mut found = found.to_vec();
        found.sort_by_key(|(noted, _)| noted.occurrence);
        rule!(
            found == expected,
            "notes are kept for dead occurrences, as they were last accepted, and for nothing else",
            "expected {expected:?}, found {found:?}"
        );
        Ok(())
    }
}
