//! Identifiers, each with its own type.
//!
//! An occurrence id consists of the job id and a number that counts the job's occurrences from 1. An
//! execution id adds the attempt number. The id therefore names its job, a job's rows are adjacent in every
//! index, and no second index is needed to find them (decision 0001).

use crate::limits;
use crate::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A job: a UUID version 7, so ids sort by the time of submission and inserts stay local in a B-tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(Uuid);

impl JobId {
    /// Creates an id from the time and 64 bits of randomness that the caller supplies. The twelve bits after
    /// the millisecond hold its fraction, so ids created within one millisecond still sort by time.
    pub fn new(now: Timestamp, entropy: u64) -> Self {
        let micros = now.as_micros().max(0);
        let millis = (micros / 1_000) as u128 & 0xFFFF_FFFF_FFFF;
        let fraction = ((micros % 1_000) * 4_096 / 1_000) as u128;
        let random = u128::from(entropy) & 0x3FFF_FFFF_FFFF_FFFF;
        JobId(Uuid::from_u128(millis << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random))
    }

    /// The time of creation, truncated to the millisecond.
    pub const fn made_at(&self) -> Timestamp {
        Timestamp::from_micros((self.0.as_u128() >> 80) as i64 * 1_000)
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        JobId(Uuid::from_bytes(bytes))
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Whether this text, in lower case, is the beginning of the id, or a part of it that is long enough.
    pub fn has_part(&self, text: &str) -> bool {
        let id = self.to_string();
        id.starts_with(text) || (text.len() >= limits::ID_PART_CHARS_MIN && id.contains(text))
    }

    /// The segment of this job. It never changes.
    pub const fn segment(&self) -> Segment {
        Segment(self.0.as_bytes()[15] % Segment::COUNT)
    }

    pub const fn occurrence(self, number: u32) -> OccurrenceId {
        OccurrenceId { job: self, number }
    }
}

/// The text is not an id of this kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {expected}: {text}")]
pub struct ParseIdError {
    expected: &'static str,
    text: String,
}

impl FromStr for JobId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "a job id (a UUID)";
        Uuid::try_parse(text).map(JobId).map_err(|_| ParseIdError { expected, text: text.to_owned() })
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// An operation on many jobs: a UUID version 7, like the id of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(JobId);

impl OperationId {
    pub fn new(now: Timestamp, entropy: u64) -> Self {
        OperationId(JobId::new(now, entropy))
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl FromStr for OperationId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "the id of an operation (a UUID)";
        text.parse()
            .map(OperationId)
            .map_err(|_: ParseIdError| ParseIdError { expected, text: text.to_owned() })
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A blob: a UUID version 7, like the id of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(JobId);

impl BlobId {
    pub fn new(now: Timestamp, entropy: u64) -> Self {
        BlobId(JobId::new(now, entropy))
    }

    /// When its upload began.
    pub const fn made_at(&self) -> Timestamp {
        self.0.made_at()
    }
}

impl FromStr for BlobId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "the id of a blob (a UUID)";
        text.parse().map(BlobId).map_err(|_: ParseIdError| ParseIdError { expected, text: text.to_owned() })
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One nominal fire of a job. Its text form is also the idempotency key that handlers receive: it is the same
/// for every attempt and every redrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OccurrenceId {
    pub job: JobId,
    /// Counts the job's occurrences from 1.
    pub number: u32,
}

impl OccurrenceId {
    pub const fn attempt(self, attempt: u32) -> ExecutionId {
        ExecutionId { occurrence: self, attempt }
    }
}

impl fmt::Display for OccurrenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.number)
    }
}

impl FromStr for OccurrenceId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error =
            || ParseIdError { expected: "an occurrence id (job id, dot, number)", text: text.to_owned() };
        let (job, number) = text.split_once('.').ok_or_else(error)?;
        let job = job.parse().map_err(|_| error())?;
        let number = parse_counter(number).ok_or_else(error)?;
        Ok(OccurrenceId { job, number })
    }
}

/// One attempt of one occurrence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId {
    pub occurrence: OccurrenceId,
    /// Counts the runs of the occurrence from 1.
    pub attempt: u32,
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.occurrence, self.attempt)
    }
}

impl FromStr for ExecutionId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseIdError {
            expected: "an execution id (job id, dot, number, dot, attempt)",
            text: text.to_owned(),
        };
        let (occurrence, attempt) = text.rsplit_once('.').ok_or_else(error)?;
        let occurrence = occurrence.parse().map_err(|_| error())?;
        let attempt = parse_counter(attempt).ok_or_else(error)?;
        Ok(ExecutionId { occurrence, attempt })
    }
}

/// Parses a decimal number of at least 1 without sign or leading zero, so that every id has exactly one
/// spelling.
fn parse_counter(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    if plain { text.parse().ok() } else { None }
}

macro_rules! text_id {
    ($($id:ty),*) => {$(
        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $id {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}
text_id!(JobId, OperationId, BlobId, OccurrenceId, ExecutionId);

/// One start of a worker. Assigned by the store, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(pub i64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the claims of an occurrence. Every write of a worker carries it. The store rejects an epoch lower
/// than its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    pub const fn next(self) -> Self {
        Epoch(self.0 + 1)
    }
}

/// One of 64 fixed partitions of all jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(u8);

impl Segment {
    pub const COUNT: u8 = 64;

    /// The segment with this index; `None` past the last.
    pub const fn new(index: u8) -> Option<Self> {
        if index < Self::COUNT { Some(Segment(index)) } else { None }
    }

    pub const fn index(self) -> u8 {
        self.0
    }
}

/// A set of segments, such as those that one scheduler owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentSet(u64);

impl SegmentSet {
    pub const ALL: SegmentSet = SegmentSet(u64::MAX);
    pub const NONE: SegmentSet = SegmentSet(0);

    pub const fn contains(self, segment: Segment) -> bool {
        self.0 >> segment.0 & 1 == 1
    }

    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The segments of this set that are not in the other one.
    pub const fn without(self, other: SegmentSet) -> SegmentSet {
        SegmentSet(self.0 & !other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Segment> {
        (0..Segment::COUNT).map(Segment).filter(move |segment| self.contains(*segment))
    }
}

impl FromIterator<Segment> for SegmentSet {
    fn from_iter<I: IntoIterator<Item = Segment>>(segments: I) -> Self {
        SegmentSet(segments.into_iter().fold(0, |bits, segment| bits | 1 << segment.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_id_is_its_beginning_or_long_enough() {
        let id: JobId = "01a1ed14-ae56-7dc6-bf2a-8bb8b586faee".parse().unwrap();
        for part in ["0", "01a1ed14", "01a1ed14-ae", "86faee", "8bb8b586faee", "bf2a-8bb", "4-ae56"] {
            assert!(id.has_part(part), "{part}");
        }
        for other in ["faee", "6faee", "86FAEE", "01a1ed14ae56", "bf2b-8bb8"] {
            assert!(!id.has_part(other), "{other}");
        }
    }

    #[test]
    fn ids_read_back_what_they_print() {
        let job = JobId::new(Timestamp::from_micros(1_763_195_400_123_456), 42);
        let execution = job.occurrence(12).attempt(3);
        assert_eq!(execution.to_string(), format!("{job}.12.3"));
        assert_eq!(execution.to_string().parse(), Ok(execution));
        assert_eq!(execution.occurrence.to_string().parse(), Ok(execution.occurrence));
        assert_eq!(job.made_at(), Timestamp::from_micros(1_763_195_400_123_000));
        assert_eq!(Uuid::parse_str(&job.to_string()).unwrap().get_version_num(), 7);
        for bad in [
            "",
            "x.1.1",
            &format!("{job}.0.1"),
            &format!("{job}.01.1"),
            &format!("{job}.1.+1"),
            &format!("{job}.1"),
        ] {
            assert!(bad.parse::<ExecutionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_sort_by_time_within_a_millisecond() {
        let ids: Vec<JobId> = (0..1_000)
            .map(|us| JobId::new(Timestamp::from_micros(1_763_195_400_000_000 + us), u64::MAX - us as u64))
            .collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
