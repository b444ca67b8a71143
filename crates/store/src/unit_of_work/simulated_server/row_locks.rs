//! Row locks: which transaction holds which, which waits for which, and whether there is a deadlock.

use crate::rows::JobKey;
use punctual_core::ids::{JobId, OccurrenceId, SessionId};
use punctual_core::ports::RequestKey;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;

/// A row that a transaction locks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RowKey {
    Lane(i64),
    Session(SessionId),
    Job(JobId),
    JobKey(JobKey),
    Schedule(JobId),
    Live(OccurrenceId),
    Resolution(JobId),
    Queue(String),
    /// All changes of queue settings.
    QueueSettings,
    Request(RequestKey),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    Shared,
    Exclusive,
}

/// Each of several transactions waits for another one of them.
#[derive(Debug)]
pub(super) struct Deadlock;

#[derive(Debug, Default)]
pub(super) struct RowLocks {
    holders: BTreeMap<RowKey, BTreeMap<u64, LockMode>>,
    held: BTreeMap<u64, BTreeSet<RowKey>>,
    waiting_for: BTreeMap<u64, RowKey>,
    wakers: BTreeMap<RowKey, Vec<oneshot::Sender<()>>>,
}

impl LockMode {
    fn excludes(self, other: LockMode) -> bool {
        self == LockMode::Exclusive || other == LockMode::Exclusive
    }
}

impl RowLocks {
    /// Locks a row, unless another transaction has a lock on it that excludes this one.
    pub fn try_lock(&mut self, transaction: u64, key: &RowKey, mode: LockMode) -> bool {
        self.waiting_for.remove(&transaction);
        if !self.is_free(transaction, key, mode) {
            return false;
        }
        let holders = self.holders.entry(key.clone()).or_default();
        let held = holders.entry(transaction).or_insert(mode);
        if mode == LockMode::Exclusive {
            *held = mode;
        }
        self.held.entry(transaction).or_default().insert(key.clone());
        true
    }

    /// Whether no other transaction excludes this one.
    pub fn is_free(&self, transaction: u64, key: &RowKey, mode: LockMode) -> bool {
        let Some(holders) = self.holders.get(key) else { return true };
        holders.iter().all(|(holder, held)| *holder == transaction || !mode.excludes(*held))
    }

    /// Waits for a row that another transaction has locked. The receiver is notified when it is worth
    /// another try.
    pub fn wait(&mut self, transaction: u64, key: &RowKey) -> Result<oneshot::Receiver<()>, Deadlock> {
        self.waiting_for.insert(transaction, key.clone());
        if self.reaches(transaction, transaction, &mut BTreeSet::new()) {
            self.waiting_for.remove(&transaction);
            return Err(Deadlock);
        }
        let (waker, woken) = oneshot::channel();
        self.wakers.entry(key.clone()).or_default().push(waker);
        Ok(woken)
    }

    /// Whether a transaction waits for another one, directly or through others.
    fn reaches(&self, from: u64, to: u64, seen: &mut BTreeSet<u64>) -> bool {
        let Some(key) = self.waiting_for.get(&from) else { return false };
        let holders = self.holders.get(key).into_iter().flat_map(BTreeMap::keys).copied();
        holders
            .filter(|holder| *holder != from)
            .any(|holder| holder == to || (seen.insert(holder) && self.reaches(holder, to, seen)))
    }

    /// Releases everything that a transaction holds.
    pub fn release(&mut self, transaction: u64) {
        self.waiting_for.remove(&transaction);
        for key in self.held.remove(&transaction).unwrap_or_default() {
            if let Some(holders) = self.holders.get_mut(&key) {
                holders.remove(&transaction);
                if holders.is_empty() {
                    self.holders.remove(&key);
                }
            }
            for waker in self.wakers.remove(&key).unwrap_or_default() {
                // The waiter may have given up.
                let _ = waker.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(number: i64) -> RowKey {
        RowKey::Lane(number)
    }

    #[test]
    fn an_exclusive_lock_waits_for_all_shared_ones() {
        let mut locks = RowLocks::default();
        assert!(locks.try_lock(1, &lane(1), LockMode::Shared));
        assert!(locks.try_lock(2, &lane(1), LockMode::Shared));
        assert!(!locks.try_lock(3, &lane(1), LockMode::Exclusive));
        let mut woken = locks.wait(3, &lane(1)).unwrap();
        locks.release(1);
        assert!(woken.try_recv().is_ok());
        assert!(!locks.try_lock(3, &lane(1), LockMode::Exclusive));
        locks.release(2);
        assert!(locks.try_lock(3, &lane(1), LockMode::Exclusive));
    }

    #[test]
    fn a_cycle_of_waiting_transactions_is_a_deadlock() {
        let mut locks = RowLocks::default();
        for number in 1..=3 {
            assert!(locks.try_lock(number, &lane(number as i64), LockMode::Exclusive));
        }
        assert!(locks.wait(1, &lane(2)).is_ok());
        assert!(locks.wait(2, &lane(3)).is_ok());
        assert!(locks.wait(3, &lane(1)).is_err());
        locks.release(3);
        assert!(locks.try_lock(2, &lane(3), LockMode::Exclusive));
    }
}
