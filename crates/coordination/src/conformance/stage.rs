//! What a case is played on: some ways into one cluster, one into another, and time.

use punctual_core::ids::SegmentSet;
use punctual_core::ports::{
    Coordination, HeldLease, Joining, LeaseEpoch, LeaseName, MemberId, Roster, Standing, Take,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Stage {
    /// Three nodes' ways into one cluster, in which nobody is.
    pub doors: Vec<Arc<dyn Coordination>>,
    /// A way into another cluster on the same server.
    pub elsewhere: Arc<dyn Coordination>,
    /// A time to live that the service keeps to.
    pub ttl: Duration,
    pub time: Time,
}

/// How time passes.
#[derive(Clone)]
pub enum Time {
    /// By itself.
    Real,
    /// When it is told to.
    Driven(Arc<dyn DrivenTime>),
}

/// A clock that stands still for all doors until it is moved.
pub trait DrivenTime: Send + Sync {
    fn pass(&self, duration: Duration);
}

/// How often something that must come about is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// After which nobody believes in it any more. Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

impl Stage {
    pub fn door(&self, number: usize) -> &dyn Coordination {
        &*self.doors[number % self.doors.len()]
    }

    /// The n-th member, through the n-th door.
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

    /// Takes what must be free; the epochs.
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

    /// Lets time pass until a member is given up that others look for through their doors, while these members go on
    /// beating. `sent_at` is from before it last said that it is alive: it may not be given up before its time is over.
    pub async fn until_given_up(&self, silent: usize, beating: &[usize], sent_at: Instant) {
        match &self.time {
            Time::Driven(time) => {
                let observer = silent + 1;
                assert!(self.ids(observer).await.contains(&id(silent)));
                time.pass(self.ttl - Duration::from_micros(1));
                for number in beating {
                    assert_eq!(self.beat(*number).await, Standing::Alive);
                }
                assert!(self.ids(observer).await.contains(&id(silent)), "it has a moment left");
                time.pass(Duration::from_micros(1));
                assert!(!self.ids(observer).await.contains(&id(silent)), "its time is over");
            }
            Time::Real => {
                let deadline = Instant::now() + PATIENCE;
                while self.ids(silent + 1).await.contains(&id(silent)) {
                    assert!(Instant::now() < deadline, "member {silent} is never given up");
                    for number in beating {
                        assert_eq!(self.beat(*number).await, Standing::Alive);
                    }
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                assert!(sent_at.elapsed() >= self.ttl, "given up after {:?} already", sent_at.elapsed());
            }
        }
    }

    /// Lets as much time pass as a member may be silent, in small steps; in between, does this.
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

/// What is answered to somebody who was given up.
pub fn given_up(count: usize) -> Vec<Take> {
    vec![Take::GivenUp; count]
}

/// The epoch of what is held.
pub fn epoch_of(take: &Take) -> Option<LeaseEpoch> {
    match take {
        Take::Held(epoch) => Some(*epoch),
        _ => None,
    }
}
