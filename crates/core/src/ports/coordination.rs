//! Coordination: the members of the cluster, and which member owns what.
//!
//! It saves work and decides nothing. Two nodes that both believe to hold a lease do the same work twice, but
//! every fire and outcome is still a compare-and-swap in the store. When coordination is unavailable, every
//! scheduler owns everything.
//!
//! A *member* is one start of one node. It is alive as long as it sends heartbeats. Leases belong to members,
//! as the leases of executions belong to worker sessions, so that one heartbeat keeps all leases of a member.
//! An `Err` means that nothing is known: the call may or may not have taken effect. Every call can be
//! repeated safely.

use crate::ids::Segment;
use async_trait::async_trait;
use std::fmt;
use std::time::Duration;

#[async_trait]
pub trait Coordination: Send + Sync {
    /// Joins the cluster. A member that joins again with the same id is the same member, unless it was
    /// evicted meanwhile. A member that this adapter has once reported as alive only sends a heartbeat when
    /// it joins again. Services forget members that are gone, so an id must not be reused by another node.
    async fn join(&self, joining: Joining) -> Result<Standing, CoordinationError>;

    /// Sends a heartbeat with the member's current card. An evicted member cannot come back: it joins with a
    /// new id.
    async fn beat(&self, member: &MemberId, card: String) -> Result<Standing, CoordinationError>;

    /// The live members and their leases, from one scan.
    ///
    /// The scan also evicts members that have been silent for their whole time to live, where the service
    /// does not do so itself: at the latest one scan after that time.
    async fn look(&self) -> Result<Roster, CoordinationError>;

    /// Acquires those of these leases that no live member holds. One answer per name. A lease that this
    /// member already holds keeps its epoch.
    async fn take(&self, member: &MemberId, names: Vec<LeaseName>) -> Result<Vec<Take>, CoordinationError>;

    /// Releases leases. Returns whether each was held in this epoch; a lease that was not is left unchanged.
    async fn release(&self, member: &MemberId, held: Vec<HeldLease>) -> Result<Vec<bool>, CoordinationError>;

    /// Leaves the cluster and releases everything that the member holds. Does nothing if there is no such
    /// member.
    async fn leave(&self, member: &MemberId) -> Result<(), CoordinationError>;
}

/// One start of one node. Never reused after the member was evicted or has left.
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

/// What a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseName {
    /// The duties that one node performs for the cluster.
    Leader,
    /// The due times of one segment.
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
    /// Parses the text form of a name.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("segment-") {
            // Exactly two digits, as printed: a lease must not have two names.
            Some(index) => Segment::new(index.parse().ok()?)
                .map(LeaseName::Segment)
                .filter(|name| name.to_string() == text),
            None => (text == "leader").then_some(LeaseName::Leader),
        }
    }
}

/// Counts the holders of a lease: it increases with each new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseEpoch(pub u64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joining {
    pub member: MemberId,
    /// What the member publishes about itself: a small document that coordination does not interpret.
    pub card: String,
    /// How long it may be silent before it is evicted.
    pub ttl: Duration,
}

/// The status of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Alive,
    /// It was silent for too long, or has left: its leases are free or held by others.
    GivenUp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    Held(LeaseEpoch),
    HeldBy(MemberId),
    /// The calling member was evicted.
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

/// The result of one scan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Roster {
    /// Ordered by id.
    pub members: Vec<Member>,
    /// Leases of live members, ordered by name.
    pub held: Vec<(HeldLease, MemberId)>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoordinationError {
    /// It cannot be reached now; whether the call took effect is unknown.
    #[error("coordination is unavailable: {0}")]
    Unavailable(String),
    /// It answered in an unexpected way, or rejects us permanently.
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
