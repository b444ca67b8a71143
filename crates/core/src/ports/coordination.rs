//! Coordination: who is in the cluster, and who looks after what.
//!
//! It saves work and decides nothing. Two nodes that believe they hold the same lease do the same work twice, and every
//! fire and outcome is compared and swapped in the store all the same; when coordination is away, every scheduler looks after everything.
//!
//! A *member* is one start of one node. It is alive as long as it beats; leases belong to members, as the leases of
//! executions belong to worker sessions, so that holding costs one beat however much is held. An `Err` means that nothing is known: the
//! call may or may not have taken effect. Every call can be repeated safely.

use crate::ids::Segment;
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

#[async_trait]
pub trait Coordination: Send + Sync {
    /// Enters the cluster. A member that enters again under its id is the same one, unless it was given up meanwhile: whoever
    /// was told once that it is alive only beats when it joins again through the same adapter. Services forget who is gone, so
    /// an id must not be used by anybody else.
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError>;

    /// Says that the member is alive, and what it says of itself now. A member that was given up cannot come back: it
    /// joins under a new id.
    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError>;

    /// The members that are alive and the leases that they hold, as one look saw them.
    ///
    /// Whoever looks also gives up members that have been silent for their whole time to live, where the service does not do so by
    /// itself: at the latest one look after that time.
    async fn look(&self) -> Result<Roster, CoordinationError>;

    /// Takes these leases as far as nobody who is alive holds them. One answer per name. What this member holds
    /// already it keeps, in its epoch.
    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError>;

    /// Lets go of leases. Whether each was held in this epoch; of one that was not, nothing changes.
    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError>;

    /// Leaves the cluster, and lets go of all that the member holds. Harmless if it is not there.
    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError>;
}

/// One start of one node: never used again after it was given up or has left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(String);

impl MemberId {
    /// The id with this text: letters, digits, `-` and `_`, at most 64 of them; `None` for any other.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        ((1..=64).contains(&text.len()) && text.bytes().all(plain)).then_some(MemberId(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseName {
    /// The duties that one node has for all.
    Leader,
    /// The due times of one slice of all jobs.
    Segment(Segment),
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseName::Leader => f.write_str("leader"),
            LeaseName::Segment(segment) => write!(f, "segment-{:02}", segment.index()),
        }
    }
}

impl LeaseName {
    /// The name that prints as this text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("segment-") {
            // Two digits, as it prints: one lease must not have two names.
            Some(index) => Segment::new(index.parse().ok()?)
                .map(LeaseName::Segment)
                .filter(|name| name.to_string() == text),
            None => (text == "leader").then_some(LeaseName::Leader),
        }
    }
}

/// Counts the holders of a lease: strictly higher with each new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseEpoch(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    pub member: MemberId,
    /// What the member says of itself, for others to read: a small document that coordination does not look into.
    pub card: String,
    /// How long it may be silent before it is given up.
    pub ttl: Duration,
}

/// How a member stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Alive,
    /// It was silent for too long, or has left: what it held is free or held by others.
    GivenUp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    Held(LeaseEpoch),
    HeldBy(MemberId),
    /// The member that asked was given up.
    GivenUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldLease {
    pub name: LeaseName,
    pub epoch: LeaseEpoch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: MemberId,
    pub card: String,
}

/// What one look saw.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roster {
    /// By id.
    pub members: Vec<Member>,
    /// Leases of members that are alive, by name.
    pub held: Vec<(HeldLease, MemberId)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoordinationError {
    /// It cannot be reached now; whether the call took effect is unknown.
    #[error("coordination is unavailable: {0}")]
    Unavailable(String),
    /// It answered in a way that our code does not expect, or refuses us for good.
    #[error("coordination failed: {0}")]
    Broken(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_as_they_print() {
        let names = crate::ids::SegmentSet::ALL.iter().map(LeaseName::Segment).chain([LeaseName::Leader]);
        for name in names {
            assert_eq!(LeaseName::parse(&name.to_string()), Some(name));
        }
        for wrong in
            ["", "segment-64", "segment-", "segment-x", "segment-7", "segment-007", "segment-+7", "leaders"]
        {
            assert_eq!(LeaseName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_of_members_are_plain() {
        assert!(MemberId::new("019d5902-1eda_A").is_some());
        for wrong in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert!(MemberId::new(wrong).is_none(), "{wrong}");
        }
    }
}
