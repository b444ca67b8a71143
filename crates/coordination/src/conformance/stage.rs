//! The environment of a case: some connections to one cluster, one to another, and time.

use punctual_core::ids::SegmentSet;
use punctual_core::ports::{
    Coordination, HeldLease, Joining, LeaseEpoch, LeaseName, MemberId, Roster, Standing, Take,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Stage {
    /// Connections of three nodes to one cluster without members.
    pub doors: Vec<Arc<dyn Coordination>>,
    /// A connection to another cluster on the same server.
    pub elsewhere: Arc<dyn Coordination>,
    /// A time to live that the service supports.
    pub ttl: Duration,
    pub time: Time,
}

/// How time passes.
#[derive(Clone)]
pub enum Time {
    /// Passes by itself.
    Real,
    /// Passes when the case moves it.
    Driven(Arc<dyn DrivenTime>),
}

/// A clock that does not advance for all connections until it is moved.
pub trait DrivenTime: Send + Sync {
    fn pass(&self, duration: Duration);
}

/// How often to check for an expected event.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The time after which a case fails. Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

impl Stage {
    pub fn door(&self, number: usize) -> &dyn Coordination {
        &*self.doors[number % self.doors.len()]
    }

    /// Joins as the n-th member, through the n-th connection.
    pub async fn join(&self, number: usize) {
        let joined = self.door(number).join(self.joining(number)).await;
        assert_eq!(joined, Ok(Standing::Alive), "member {number}");
    }

    pub fn joining(&self, number: usize) -> Joining {
        Joining { member: id(number), card: card(number), ttl: self.ttl }
    }

    pub async fn beat(&self, number: usize) -> Standing {
        self.door(number).beat(&id(number), card(number)).await.unwrap()
    }

    pub async fn take(&self, number: usize, names: &[LeaseName]) -> Vec<Take> {
        self.door(number).take(&id(number), names.to_vec()).await.unwrap()
    }

    /// Acquires leases that must be free; returns them with their epochs.
    pub async fn hold(&self, number: usize, names: &[LeaseName]) -> Vec<HeldLease> {
        let taken = self.take(number, names).await;
        let lease = |(name, take): (&LeaseName, Take)| match take {
            Take::Held(epoch) => HeldLease { name: *name, epoch },
            other => panic!("{name} for member {number}: {other:?}"),
        };
        names.iter().zip(taken).map(lease).collect()
    }

    pub async fn release(&self, number: usize, held: &[HeldLease]) -> Vec<bool> {
        self.door(number).release(&id(number), held.to_vec()).await.unwrap()
    }

    pub async fn look(&self, door: usize) -> Roster {
        self.door(door).look().await.unwrap()
    }

    pub async fn ids(&self, door: usize) -> Vec<MemberId> {
        self.look(door).await.members.into_iter().map(|member| member.id).collect()
    }

    /// Lets time pass until other members see that a member is evicted, while these members continue to send
    /// heartbeats. `sent_at` is from before its last sign of life: it must not be evicted before its time to
    /// live has passed.
    pub async fn until_given_up(&self, silent: usize, beating: &[usize], sent_at: Instant) {
        match &self.time {
            Time::Driven(time) => {
                let observer = silent + 1;
                assert!(self.ids(observer).await.contains(&id(silent)));
                time.pass(self.ttl - Duration::from_micros(1));
                for number in beating {
                    assert_eq!(self.beat(*number).await, Standing::Alive);
                }
                assert!(self.ids(observer).await.contains(&id(silent)), "its time to live has not passed");
                time.pass(Duration::from_micros(1));
                assert!(!self.ids(observer).await.contains(&id(silent)), "its time to live has passed");
            }
            Time::Real => {
                let deadline = Instant::now() + PATIENCE;
                while self.ids(silent + 1).await.contains(&id(silent)) {
                    assert!(Instant::now() < deadline, "member {silent} is never evicted");
                    for number in beating {
                        assert_eq!(self.beat(*number).await, Standing::Alive);
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                assert!(sent_at.elapsed() >= self.ttl, "evicted after {:?} already", sent_at.elapsed());
            }
        }
    }

    /// Lets a whole time to live pass in small steps, and calls this in between.
    pub async fn through_a_lifetime(&self, between: impl AsyncFn()) {
        match &self.time {
            Time::Driven(time) => {
                for _ in 0..10 {
                    time.pass(self.ttl / 5);
                    between().await;
                }
            }
            Time::Real => {
                let end = Instant::now() + self.ttl * 2;
                while Instant::now() < end {
                    between().await;
                    tokio::time::sleep(LOOK_EVERY.min(self.ttl / 5)).await;
                }
            }
        }
    }
}

pub fn id(number: usize) -> MemberId {
    MemberId::new(format!("node-{number}")).unwrap()
}

pub fn card(number: usize) -> String {
    format!("{{\"name\": \"{number}\", \"quoted\": \"ä 🦀 \\\\ %\"}}")
}

/// The leader and all segments.
pub fn all_names() -> Vec<LeaseName> {
    [LeaseName::Leader].into_iter().chain(SegmentSet::ALL.iter().map(LeaseName::Segment)).collect()
}

pub fn names(count: usize) -> Vec<LeaseName> {
    all_names().into_iter().take(count).collect()
}

/// The answers to an evicted member.
pub fn given_up(count: usize) -> Vec<Take> {
    vec![Take::GivenUp; count]
}

/// The epoch of a lease that is held.
pub fn epoch_of(take: &Take) -> Option<LeaseEpoch> {
    match take {
        Take::Held(epoch) => Some(*epoch),
        _ => None,
    }
}
