//! Runs all tasks of all nodes on one thread in virtual time.
//!
//! The next ready task is drawn from the seed, so that a run explores an interleaving and a replay repeats
//! it; a library runtime would always take the same order. A task belongs to a home: the world or one node.
//! The tasks of a paused home wait, and those of a crashed home are dropped wherever they are. A crash can be
//! set to happen after any number of polls. Time has microsecond resolution and moves only when nothing is
//! ready.

use crate::lock;
use crate::random::Rng;
use punctual_core::ports::Task;
use punctual_core::time::Timestamp;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::oneshot;

/// Polls without time moving after which a run counts as a busy loop.
const POLLS_PER_INSTANT_MAX: u64 = 200_000;

/// Where a task runs: the world (which never fails) or one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home(usize);

impl Home {
    pub const WORLD: Home = Home(0);

    pub const fn node(node: usize) -> Self {
        Home(node + 1)
    }
}

/// One start of a home. Tasks that a dead incarnation spawns while it is dropped are dropped too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    home: Home,
    number: u32,
}

/// Why [`SimExecutor::run`] returned.
#[derive(Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The condition became true.
    Done,
    /// Virtual time reached the end.
    TimeUp,
    /// Nothing is ready and no timer is set.
    Idle,
    /// A task panicked, with its message.
    Panicked(String),
    /// Tasks keep waking each other without time passing.
    BusyLoop,
}

#[derive(Clone)]
pub struct SimExecutor {
    /// The true time at which the run begins.
    starts_at: Timestamp,
    state: Arc<Mutex<ExecutorState>>,
    woken: Arc<Mutex<Vec<u64>>>,
}

struct ExecutorState {
    now_us: u64,
    rng: Rng,
    next_task: u64,
    tasks: BTreeMap<u64, Slot>,
    ready: Vec<u64>,
    timers: BTreeMap<(u64, u64), Waker>,
    next_timer: u64,
    homes: Vec<HomeState>,
    polls: u64,
}

struct Slot {
    home: Home,
    /// Taken out while it is polled.
    future: Option<Task>,
    signal: Arc<Signal>,
}

struct Signal {
    task: u64,
    woken: Arc<Mutex<Vec<u64>>>,
    pending: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        if !self.pending.swap(true, Ordering::Relaxed) {
            lock(&self.woken).push(self.task);
        }
    }
}

#[derive(Default)]
struct HomeState {
    up: bool,
    paused: bool,
    incarnation: u32,
    /// Ready tasks that wait for the home to be resumed.
    parked: Vec<u64>,
    trip: Option<PlannedNodeFault>,
}

/// A fault that happens to a home after this many more polls of its tasks.
struct PlannedNodeFault {
    polls: u64,
    fault: NodeFault,
    happened: oneshot::Sender<()>,
}

/// A fault that can happen to a home between any two polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFault {
    Crash,
    Pause,
}

impl SimExecutor {
    /// An executor for the world and this many nodes, all of them down, starting at this true time.
    pub fn new(rng: Rng, nodes: usize, starts_at: Timestamp) -> Self {
        let mut homes: Vec<HomeState> = (0..=nodes).map(|_| HomeState::default()).collect();
        homes[Home::WORLD.0].up = true;
        SimExecutor {
            starts_at,
            state: Arc::new(Mutex::new(ExecutorState {
                now_us: 0,
                rng,
                next_task: 0,
                tasks: BTreeMap::new(),
                ready: Vec::new(),
                timers: BTreeMap::new(),
                next_timer: 0,
                homes,
                polls: 0,
            })),
            woken: Arc::default(),
        }
    }

    pub fn starts_at(&self) -> Timestamp {
        self.starts_at
    }

    /// Microseconds since the run began.
    pub fn now_us(&self) -> u64 {
        lock(&self.state).now_us
    }

    /// Polls so far, of all tasks.
    pub fn polls(&self) -> u64 {
        lock(&self.state).polls
    }

    pub fn spawn_in_world(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(Incarnation { home: Home::WORLD, number: 0 }, Box::pin(task));
    }

    /// Runs the task as long as this incarnation lives.
    pub fn spawn(&self, owner: Incarnation, task: Task) {
        let mut state = lock(&self.state);
        let home = &state.homes[owner.home.0];
        if !home.up || home.incarnation != owner.number {
            drop(state);
            return drop(task);
        }
        let id = state.next_task;
        state.next_task += 1;
        let signal =
            Arc::new(Signal { task: id, woken: self.woken.clone(), pending: AtomicBool::new(false) });
        state.tasks.insert(id, Slot { home: owner.home, future: Some(task), signal: signal.clone() });
        signal.wake();
    }

    pub fn sleep(&self, duration: Duration) -> VirtualSleep {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        VirtualSleep { executor: self.clone(), until_us: self.now_us().saturating_add(micros), timer: None }
    }

    /// Brings a home up and names its new incarnation.
    pub fn start(&self, home: Home) -> Incarnation {
        let mut state = lock(&self.state);
        let entry = &mut state.homes[home.0];
        assert!(!entry.up, "{home:?} is started while it is up");
        entry.up = true;
        entry.paused = false;
        entry.incarnation += 1;
        Incarnation { home, number: entry.incarnation }
    }

    pub fn is_up(&self, home: Home) -> bool {
        lock(&self.state).homes[home.0].up
    }

    pub fn is_paused(&self, home: Home) -> bool {
        lock(&self.state).homes[home.0].paused
    }

    pub fn pause(&self, home: Home) {
        lock(&self.state).homes[home.0].paused = true;
    }

    pub fn resume(&self, home: Home) {
        let mut state = lock(&self.state);
        state.homes[home.0].paused = false;
        let mut parked = std::mem::take(&mut state.homes[home.0].parked);
        state.ready.append(&mut parked);
    }

    /// Applies a fault to a home after this many more polls of its tasks; the receiver is notified when it
    /// has happened.
    pub fn fail_after(&self, home: Home, polls: u64, fault: NodeFault) -> oneshot::Receiver<()> {
        let (happened, receiver) = oneshot::channel();
        lock(&self.state).homes[home.0].trip = Some(PlannedNodeFault { polls, fault, happened });
        receiver
    }

    /// Cancels a fault that has not happened yet.
    pub fn disarm(&self, home: Home) {
        let trip = lock(&self.state).homes[home.0].trip.take();
        drop(trip);
    }

    /// Drops all tasks of a home, each at the await where it is.
    pub fn crash(&self, home: Home) {
        let mut state = lock(&self.state);
        let entry = &mut state.homes[home.0];
        entry.up = false;
        entry.paused = false;
        entry.parked.clear();
        let ids: Vec<u64> =
            state.tasks.iter().filter(|(_, slot)| slot.home == home).map(|(id, _)| *id).collect();
        let dropped: Vec<Slot> = ids.iter().filter_map(|id| state.tasks.remove(id)).collect();
        drop(state);
        // Destructors may wake, spawn and record, so none runs under the lock.
        drop(dropped);
    }

    /// Drops every task, to break reference cycles between tasks and the state that they share.
    pub fn shut_down(&self) {
        let mut state = lock(&self.state);
        state.homes.iter_mut().for_each(|home| home.up = false);
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        drop(tasks);
    }

    /// Runs until time is up, nothing can happen any more, or a condition holds: `halt` is checked after
    /// every poll, `done` only when nothing is ready, because it may be costly.
    pub fn run(&self, until_us: u64, halt: impl Fn() -> bool, done: impl Fn() -> bool) -> Stopped {
        let mut polls_this_instant = 0;
        loop {
            if halt() {
                return Stopped::Done;
            }
            match self.next_ready() {
                Some(id) => {
                    polls_this_instant += 1;
                    if polls_this_instant > POLLS_PER_INSTANT_MAX {
                        return Stopped::BusyLoop;
                    }
                    if let Err(message) = self.poll(id) {
                        return Stopped::Panicked(message);
                    }
                }
                None => {
                    if done() {
                        return Stopped::Done;
                    }
                    polls_this_instant = 0;
                    if let Some(stopped) = self.advance(until_us) {
                        return stopped;
                    }
                }
            }
        }
    }

    fn next_ready(&self) -> Option<u64> {
        let state = &mut *lock(&self.state);
        let mut woken = lock(&self.woken);
        // A channel's library may wake its waiters in random order: that must not matter.
        woken.sort_unstable();
        for id in woken.drain(..) {
            let Some(slot) = state.tasks.get(&id) else { continue };
            let home = &mut state.homes[slot.home.0];
            if home.paused { home.parked.push(id) } else { state.ready.push(id) }
        }
        while !state.ready.is_empty() {
            let chosen = state.rng.index(state.ready.len());
            let id = state.ready.swap_remove(chosen);
            let Some(slot) = state.tasks.get(&id) else { continue };
            let home = &mut state.homes[slot.home.0];
            if !home.paused {
                return Some(id);
            }
            home.parked.push(id);
        }
        None
    }

    fn poll(&self, id: u64) -> Result<(), String> {
        let (mut future, signal, home) = {
            let mut state = lock(&self.state);
            state.polls += 1;
            let Some(slot) = state.tasks.get_mut(&id) else { return Ok(()) };
            let Some(future) = slot.future.take() else { return Ok(()) };
            (future, slot.signal.clone(), slot.home)
        };
        signal.pending.store(false, Ordering::Relaxed);
        let waker = Waker::from(signal);
        let mut context = Context::from_waker(&waker);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)))
            .map_err(|panic| panic_message(&*panic))?;
        let finished = {
            let mut state = lock(&self.state);
            match state.tasks.get_mut(&id) {
                Some(slot) if polled.is_pending() => {
                    slot.future = Some(future);
                    None
                }
                _ => {
                    state.tasks.remove(&id);
                    Some(future)
                }
            }
        };
        drop(finished);
        if let Some(trip) = self.count_down(home) {
            match trip.fault {
                NodeFault::Crash => self.crash(home),
                NodeFault::Pause => self.pause(home),
            }
            let _ = trip.happened.send(());
        }
        Ok(())
    }

    fn count_down(&self, home: Home) -> Option<PlannedNodeFault> {
        let mut state = lock(&self.state);
        let trip = &mut state.homes[home.0].trip;
        match trip {
            Some(PlannedNodeFault { polls: 0, .. }) => trip.take(),
            Some(left) => {
                left.polls -= 1;
                None
            }
            None => None,
        }
    }

    fn advance(&self, until_us: u64) -> Option<Stopped> {
        let mut due = Vec::new();
        let mut state = lock(&self.state);
        let Some(at_us) = state.timers.keys().next().map(|(at_us, _)| *at_us) else {
            return Some(Stopped::Idle);
        };
        if at_us > until_us {
            state.now_us = until_us;
            return Some(Stopped::TimeUp);
        }
        state.now_us = state.now_us.max(at_us);
        while let Some(entry) = state.timers.first_entry() {
            if entry.key().0 > at_us {
                break;
            }
            due.push(entry.remove());
        }
        drop(state);
        due.into_iter().for_each(Waker::wake);
        None
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

/// Completes at its virtual time.
pub struct VirtualSleep {
    executor: SimExecutor,
    until_us: u64,
    timer: Option<(u64, u64)>,
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let executor = self.executor.clone();
        let mut state = lock(&executor.state);
        if state.now_us >= self.until_us {
            return Poll::Ready(());
        }
        let timer = self.timer.unwrap_or_else(|| {
            state.next_timer += 1;
            (self.until_us, state.next_timer)
        });
        let replaced = state.timers.insert(timer, context.waker().clone());
        drop(state);
        drop(replaced);
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = lock(&self.executor.state).timers.remove(&timer);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executor(seed: u64) -> SimExecutor {
        SimExecutor::new(Rng::new(seed), 2, Timestamp::EPOCH)
    }

    fn ticking(executor: &SimExecutor, log: &Arc<Mutex<Vec<u64>>>) -> Task {
        let (executor, log) = (executor.clone(), log.clone());
        Box::pin(async move {
            loop {
                executor.sleep(Duration::from_secs(1)).await;
                lock(&log).push(executor.now_us() / 1_000_000);
            }
        })
    }

    #[test]
    fn a_paused_home_makes_no_progress_until_it_is_resumed() {
        let (executor, log) = (executor(1), Arc::default());
        let node = executor.start(Home::node(0));
        executor.spawn(node, ticking(&executor, &log));
        executor.spawn_in_world(executor.sleep(Duration::from_secs(60)));
        executor.run(2_500_000, || false, || false);
        executor.pause(Home::node(0));
        executor.run(9_500_000, || false, || false);
        executor.resume(Home::node(0));
        executor.run(11_000_000, || false, || false);
        assert_eq!(*lock(&log), [1, 2, 9, 10]);
    }

    #[test]
    fn a_crashed_home_drops_its_tasks_and_those_they_spawn() {
        let (executor, log) = (executor(1), Arc::default());
        let node = executor.start(Home::node(0));
        executor.spawn(node, ticking(&executor, &log));
        let crashed = executor.fail_after(Home::node(0), 2, NodeFault::Crash);
        assert_eq!(executor.run(60_000_000, || false, || false), Stopped::Idle);
        assert!(crashed.blocking_recv().is_ok());
        executor.start(Home::node(0));
        executor.spawn(node, ticking(&executor, &log));
        assert_eq!(executor.run(60_000_000, || false, || false), Stopped::Idle);
        assert_eq!(*lock(&log), [1, 2]);
    }

    #[test]
    fn the_seed_decides_the_order_of_ready_tasks() {
        let order = |seed: u64| {
            let (executor, log) = (executor(seed), Arc::<Mutex<Vec<u64>>>::default());
            for n in 0..20 {
                let log = log.clone();
                executor.spawn_in_world(async move { lock(&log).push(n) });
            }
            executor.run(0, || false, || false);
            lock(&log).clone()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
