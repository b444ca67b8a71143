//! The connections of a server, the phase of each, and which of them to close when the limit is reached.
//!
//! A connection that waits for its client costs the server a slot and the client nothing. So those
//! connections are closed first: from the address that has the most of them, longest-waiting first. An
//! address with ten thousand slow connections displaces only its own. A request that is being processed is
//! never cut.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It has sent nothing or only part of a request head, or it has not yet read the end of a response.
    Waiting,
    /// The head has arrived, the body has not.
    Receiving,
    /// The request is complete: the server processes it or sends the response.
    Working,
    /// It has lost its slot and is about to be closed.
    Closing,
}

impl Phase {
    const ALL: [Phase; 4] = [Phase::Waiting, Phase::Receiving, Phase::Working, Phase::Closing];
}

/// The fraction of slots (one in this many) that is freed at once, so that a flood of new connections does
/// not scan all of them each time.
const DISPLACED_PART: usize = 128;

/// All open connections.
pub struct Connections {
    places_max: usize,
    /// Counts phase changes: the lower the number, the longer ago the change.
    turns: Arc<AtomicU64>,
    open: Mutex<OpenConnections>,
    /// Notified when a connection has ended.
    ended: Notify,
}

#[derive(Default)]
struct OpenConnections {
    places: BTreeMap<u64, Arc<ConnectionState>>,
    last: u64,
    /// How many of them are closing; these no longer take a slot.
    closing: usize,
}

impl Connections {
    pub fn new(places_max: usize) -> Self {
        Connections { places_max, turns: Arc::default(), open: Mutex::default(), ended: Notify::new() }
    }

    /// A slot for a new connection from this address, displacing another connection if necessary. `None` if
    /// all are processing requests.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let mut open = self.open();
        if open.places.len() - open.closing >= self.places_max && displace(&mut open, self.part()) == 0 {
            return None;
        }
        open.last += 1;
        let (number, turn) = (open.last, self.turns.fetch_add(1, Ordering::Relaxed));
        let place = Arc::new(ConnectionState {
            origin: origin(address),
            state: AtomicU64::new(state(Phase::Waiting, turn)),
            turns: self.turns.clone(),
            displaced: Notify::new(),
        });
        open.places.insert(number, place.clone());
        Some(ConnectionSlot { connections: self.clone(), number, place })
    }

    /// Frees slots early, because another resource that connections need has run out.
    pub fn displace(&self) -> usize {
        displace(&mut self.open(), self.part())
    }

    fn part(&self) -> usize {
        (self.places_max / DISPLACED_PART).max(1)
    }

    /// Waits until no connection is left.
    pub async fn all_ended(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open().places.is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Displaces up to `wanted` waiting connections and returns how many it displaced.
fn displace(open: &mut OpenConnections, wanted: usize) -> usize {
    let mut waiting: BTreeMap<IpAddr, Vec<(Phase, u64, Arc<ConnectionState>)>> = BTreeMap::new();
    for place in open.places.values() {
        let (phase, turn) = place.read();
        if matches!(phase, Phase::Waiting | Phase::Receiving) {
            waiting.entry(place.origin).or_default().push((phase, turn, place.clone()));
        }
    }
    let Some(mut chosen) = waiting.into_values().max_by_key(Vec::len) else { return 0 };
    chosen.sort_by_key(|(phase, turn, _)| (*phase == Phase::Receiving, *turn));
    let is_displaced =
        |(phase, turn, place): &(Phase, u64, Arc<ConnectionState>)| place.displace(*phase, *turn);
    let count = chosen.iter().filter(|candidate| is_displaced(candidate)).take(wanted).count();
    open.closing += count;
    count
}

/// The client that a connection counts for. A client with one IPv6 address controls its whole network, so
/// IPv6 counts by network.
pub fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

/// The state of one connection.
pub struct ConnectionState {
    origin: IpAddr,
    /// The phase and the turn in which it began, in one word, so that both change atomically.
    state: AtomicU64,
    turns: Arc<AtomicU64>,
    displaced: Notify,
}

const fn state(phase: Phase, turn: u64) -> u64 {
    turn << 2 | phase as u64
}

impl ConnectionState {
    fn read(&self) -> (Phase, u64) {
        let state = self.state.load(Ordering::Acquire);
        (Phase::ALL[(state & 3) as usize], state >> 2)
    }

    /// Enters the next phase, unless the connection was displaced.
    pub fn turn_to(&self, phase: Phase) -> bool {
        let next = state(phase, self.turns.fetch_add(1, Ordering::Relaxed));
        let change = |current| (current & 3 != Phase::Closing as u64).then_some(next);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }

    /// Displaces the connection if its phase and turn have not changed since they were read.
    fn displace(&self, phase: Phase, turn: u64) -> bool {
        let (seen, closing) = (state(phase, turn), state(Phase::Closing, turn));
        let was_there =
            self.state.compare_exchange(seen, closing, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if was_there {
            self.displaced.notify_one();
        }
        was_there
    }

    /// Waits until the connection is displaced.
    pub async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

/// A slot that is released on drop.
pub struct ConnectionSlot {
    connections: Arc<Connections>,
    number: u64,
    pub place: Arc<ConnectionState>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.places.remove(&self.number);
        if self.place.read().0 == Phase::Closing {
            open.closing -= 1;
        }
        drop(open);
        self.connections.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn phase(slot: &ConnectionSlot) -> Phase {
        slot.place.read().0
    }

    #[test]
    fn the_address_with_the_most_idle_connections_loses_the_oldest() {
        let connections = Arc::new(Connections::new(4));
        let other = connections.enter(OTHER).unwrap();
        let first = connections.enter(ONE).unwrap();
        let second = connections.enter(ONE).unwrap();
        let third = connections.enter(ONE).unwrap();
        assert!(first.place.turn_to(Phase::Working) && first.place.turn_to(Phase::Waiting));
        let newcomer = connections.enter(OTHER).unwrap();
        assert_eq!(phase(&second), Phase::Closing);
        for kept in [&other, &first, &third, &newcomer] {
            assert_eq!(phase(kept), Phase::Waiting);
        }
    }

    #[test]
    fn those_whose_body_arrives_go_after_those_that_have_not_begun() {
        let connections = Arc::new(Connections::new(2));
        let receiving = connections.enter(ONE).unwrap();
        receiving.place.turn_to(Phase::Receiving);
        let waiting = connections.enter(ONE).unwrap();
        let third = connections.enter(ONE).unwrap();
        assert_eq!((phase(&waiting), phase(&receiving)), (Phase::Closing, Phase::Receiving));
        third.place.turn_to(Phase::Working);
        let _fourth = connections.enter(ONE).unwrap();
        assert_eq!(phase(&receiving), Phase::Closing);
    }

    #[test]
    fn a_request_that_is_worked_on_keeps_its_place() {
        let connections = Arc::new(Connections::new(1));
        let busy = connections.enter(ONE).unwrap();
        assert!(busy.place.turn_to(Phase::Working));
        assert!(connections.enter(OTHER).is_none());
        drop(busy);
        assert!(connections.enter(OTHER).is_some());
    }

    #[test]
    fn a_connection_that_has_lost_its_place_begins_nothing() {
        let connections = Arc::new(Connections::new(1));
        let displaced = connections.enter(ONE).unwrap();
        let _newcomer = connections.enter(OTHER).unwrap();
        assert!(!displaced.place.turn_to(Phase::Working));
    }

    #[test]
    fn places_come_back_however_a_connection_ends() {
        let connections = Arc::new(Connections::new(2));
        for _ in 0..10 {
            let seats: Vec<ConnectionSlot> = (0..5).map(|_| connections.enter(ONE).unwrap()).collect();
            assert_eq!(seats.iter().filter(|slot| phase(slot) == Phase::Closing).count(), 3);
        }
        let open = connections.open();
        assert_eq!((open.places.len(), open.closing), (0, 0));
    }

    #[test]
    fn one_ipv6_network_counts_as_one_address() {
        let address = |text: &str| origin(text.parse().unwrap());
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
    }
}
