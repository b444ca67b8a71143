//! Notes of a running handler: its progress, for users, and a checkpoint, for the next attempt.
//!
//! Progress belongs to an attempt. The checkpoint belongs to the occurrence: it survives failures, lost
//! workers and dead letters, and is removed when the occurrence ends in any other way. The store accepts a
//! note only in the live epoch of its lease, and only if it is newer than the last one: a late copy must not
//! replace a newer checkpoint with an older one (decision 0012).

use crate::defects::{Defect, planted};
use crate::documents::{DocumentProblem, check_document};
use crate::ids::{Epoch, OccurrenceId, SessionId};
use crate::limits;
use crate::occurrence::Live;
use crate::ports::LeaseRef;
use crate::sealed::{is_sealed, sealed_bytes_max};
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// Appended to a text that was truncated.
pub(crate) const CUT_MARK: &str = " […]";

/// A percentage from 0 to 100 in hundredths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(u16);

impl Percent {
    const HUNDREDTHS_MAX: u16 = 100 * 100;

    /// Rounds to hundredths; `None` unless between 0 and 100.
    pub fn new(percent: f64) -> Option<Self> {
        (0.0..=100.0).contains(&percent).then(|| Percent((percent * 100.0).round() as u16))
    }

    /// The nearest valid value; `None` for NaN.
    pub fn nearest(percent: f64) -> Option<Self> {
        Percent::new(percent.clamp(0.0, 100.0))
    }

    pub const fn from_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths > Self::HUNDREDTHS_MAX { None } else { Some(Percent(hundredths)) }
    }

    pub const fn hundredths(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 100.0)
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 % 100 {
            0 => serializer.serialize_u16(self.0 / 100),
            _ => serializer.serialize_f64(f64::from(self.0) / 100.0),
        }
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wrong = || de::Error::custom("must be a number from 0 to 100");
        let percent = f64::deserialize(deserializer).map_err(|_| wrong())?;
        Percent::new(percent).ok_or_else(wrong)
    }
}

/// The progress of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    #[serde(default)]
    pub percent: Option<Percent>,
    #[serde(default)]
    pub message: Option<String>,
}

impl Progress {
    /// Applies the limits: a message that is too long is truncated, an empty one becomes none.
    pub fn within_limits(mut self) -> Self {
        if let Some(message) = &mut self.message
            && message.len() > limits::PROGRESS_MESSAGE_BYTES_MAX
        {
            let room = limits::PROGRESS_MESSAGE_BYTES_MAX - CUT_MARK.len();
            message.truncate(message.floor_char_boundary(room));
            message.push_str(CUT_MARK);
        }
        self.message = self.message.filter(|message| !message.is_empty());
        self
    }

    pub fn is_empty(&self) -> bool {
        self.percent.is_none() && self.message.is_none()
    }
}

/// A document that a handler passes to the next attempt: JSON text. `null` means none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint(String);

/// The checkpoint exceeds the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the checkpoint has {bytes} bytes, more than the {} that are kept", limits::CHECKPOINT_BYTES_MAX)]
pub struct CheckpointTooLarge {
    pub bytes: usize,
}

/// Why a checkpoint is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointProblem {
    #[error(transparent)]
    TooLarge(#[from] CheckpointTooLarge),
    #[error("the checkpoint {0}")]
    Document(#[from] DocumentProblem),
}

impl Checkpoint {
    /// Accepts JSON text, unless it is too large or common parsers fail on it.
    pub fn new(json: impl Into<String>) -> Result<Self, CheckpointProblem> {
        let json = json.into();
        let bytes = json.len();
        if bytes > limits::CHECKPOINT_BYTES_MAX {
            return Err(CheckpointTooLarge { bytes }.into());
        }
        check_document(&json)?;
        Ok(Checkpoint(json))
    }

    /// A checkpoint from the store, which may be older than today's rules, or encrypted.
    pub fn stored(json: String) -> Result<Self, CheckpointTooLarge> {
        let bytes = json.len();
        let bytes_max = if is_sealed(&json) {
            sealed_bytes_max(limits::CHECKPOINT_BYTES_MAX)
        } else {
            limits::CHECKPOINT_BYTES_MAX
        };
        if bytes > bytes_max { Err(CheckpointTooLarge { bytes }) } else { Ok(Checkpoint(json)) }
    }

    /// Whether it obeys today's rules.
    pub fn is_readable(&self) -> bool {
        check_document(&self.0).is_ok()
    }

    pub fn as_json(&self) -> &str {
        &self.0
    }

    pub fn into_json(self) -> String {
        self.0
    }

    /// Whether it means that there is no checkpoint.
    pub fn is_null(&self) -> bool {
        self.0.trim() == "null"
    }
}

/// A note of a handler, to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub session: SessionId,
    pub lease: LeaseRef,
    /// Counts the notes of the lease, so that a late copy of an earlier one is recognised. `None` is newer
    /// than all.
    pub number: Option<u64>,
    /// `None` leaves the stored progress unchanged.
    pub progress: Option<Progress>,
    /// `None` leaves the stored checkpoint unchanged.
    pub checkpoint: Option<Checkpoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteAnswer {
    Accepted,
    /// This note, or a newer one of the same lease, was accepted before.
    AlreadyAccepted,
    /// Another lease has taken over, or the occurrence is closed: the note is ignored.
    Stale,
}

/// The note of an occurrence that was accepted last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastNote {
    pub epoch: Epoch,
    pub number: u64,
}

impl LastNote {
    /// The last note after this one is accepted.
    pub fn after(last: Option<LastNote>, note: &Note) -> LastNote {
        let epoch = note.lease.epoch;
        let before = last.filter(|last| last.epoch == epoch).map_or(0, |last| last.number);
        LastNote { epoch, number: note.number.unwrap_or(before.saturating_add(1)) }
    }
}

impl Live {
    /// Whether to accept a note.
    pub fn judge_note(&self, note: &Note, last: Option<LastNote>) -> NoteAnswer {
        let LeaseRef { execution, epoch } = note.lease;
        if self.held_by(note.session, execution, epoch).is_none() && !planted(Defect::AcceptStaleNote) {
            return NoteAnswer::Stale;
        }
        let is_known =
            |last: LastNote| last.epoch == epoch && note.number.is_some_and(|number| number <= last.number);
        if last.is_some_and(is_known) { NoteAnswer::AlreadyAccepted } else { NoteAnswer::Accepted }
    }
}

/// The notes of an occurrence, as shown to users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    pub occurrence: OccurrenceId,
    /// The attempt that reported the progress.
    pub attempt: u32,
    pub progress: Progress,
    /// When the last note was accepted.
    pub noted_at: Timestamp,
    /// The size of the checkpoint, if there is one.
    pub checkpoint_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::JobId;
    use crate::job::Priority;
    use crate::occurrence::Origin;
    use std::time::Duration;

    #[test]
    fn percents_are_numbers_from_0_to_100_in_hundredths() {
        let written = |percent| serde_json::to_string(&Percent::new(percent).unwrap()).unwrap();
        assert_eq!([0.0, 40.0, 33.333, 99.999, 0.1].map(written), ["0", "40", "33.33", "100", "0.1"]);
        for bad in ["-1", "100.01", "\"40\"", "null", "1e99"] {
            let error = serde_json::from_str::<Percent>(bad).unwrap_err().to_string();
            assert!(error.starts_with("must be a number from 0 to 100"), "{bad}: {error}");
        }
        assert_eq!(serde_json::from_str::<Percent>("12.34").unwrap().hundredths(), 1_234);
        assert_eq!([-5.0, 250.0].map(Percent::nearest), [0.0, 100.0].map(Percent::new));
        assert_eq!(Percent::nearest(f64::NAN), None);
        assert_eq!(Percent::from_hundredths(10_001), None);
    }

    #[test]
    fn a_long_message_is_cut_and_an_empty_one_is_none() {
        let said =
            |message: String| Progress { percent: None, message: Some(message) }.within_limits().message;
        assert_eq!(said(String::new()), None);
        assert_eq!(said("copying".to_owned()).as_deref(), Some("copying"));
        let long = said("ü".repeat(limits::PROGRESS_MESSAGE_BYTES_MAX)).unwrap();
        assert!(long.ends_with(CUT_MARK) && long.len() <= limits::PROGRESS_MESSAGE_BYTES_MAX, "{long}");
    }

    #[test]
    fn a_checkpoint_that_is_too_large_or_too_deep_names_the_limit() {
        let of_bytes = |bytes: usize| Checkpoint::new(format!("\"{}\"", "x".repeat(bytes - 2)));
        assert!(of_bytes(limits::CHECKPOINT_BYTES_MAX).is_ok());
        let error = of_bytes(limits::CHECKPOINT_BYTES_MAX + 1).unwrap_err();
        assert_eq!(error.to_string(), "the checkpoint has 65537 bytes, more than the 65536 that are kept");
        let error = Checkpoint::new("[".repeat(limits::JSON_DEPTH_MAX + 1)).unwrap_err();
        assert_eq!(error.to_string(), "the checkpoint nests arrays and objects more than 100 deep");
        let kept = Checkpoint::stored("[".repeat(limits::JSON_DEPTH_MAX + 1)).unwrap();
        assert!(!kept.is_readable(), "what was stored before can be read back");
    }

    #[test]
    fn a_note_counts_once_in_order_and_only_under_its_lease() {
        let id = JobId::new(Timestamp::EPOCH, 1).occurrence(1);
        let (session, now) = (SessionId(7), Timestamp::EPOCH);
        let fired = Live::fired(id, now, Origin::Schedule, 1, Priority::DEFAULT, now, Duration::ZERO);
        let live = fired.claimed(session, 1, now).unwrap();
        let note = |epoch, number| Note {
            session,
            lease: LeaseRef { execution: id.attempt(1), epoch: Epoch(epoch) },
            number,
            progress: None,
            checkpoint: None,
        };
        let last = Some(LastNote { epoch: Epoch(1), number: 5 });
        assert_eq!(live.judge_note(&note(1, Some(1)), None), NoteAnswer::Accepted);
        assert_eq!(live.judge_note(&note(1, Some(6)), last), NoteAnswer::Accepted);
        assert_eq!(live.judge_note(&note(1, None), last), NoteAnswer::Accepted);
        assert_eq!(live.judge_note(&note(1, Some(5)), last), NoteAnswer::AlreadyAccepted);
        assert_eq!(live.judge_note(&note(0, Some(9)), last), NoteAnswer::Stale);
        assert_eq!(live.judge_note(&note(2, Some(9)), last), NoteAnswer::Stale);
        let other = Note { session: SessionId(8), ..note(1, None) };
        assert_eq!(live.judge_note(&other, last), NoteAnswer::Stale);
        assert_eq!(fired.judge_note(&note(0, None), None), NoteAnswer::Stale, "it is not leased");
        let earlier = Some(LastNote { epoch: Epoch(0), number: 99 });
        assert_eq!(
            live.judge_note(&note(1, Some(1)), earlier),
            NoteAnswer::Accepted,
            "each lease starts its own count"
        );
        assert_eq!(LastNote::after(last, &note(1, None)), LastNote { epoch: Epoch(1), number: 6 });
        assert_eq!(LastNote::after(earlier, &note(1, None)), LastNote { epoch: Epoch(1), number: 1 });
    }
}
