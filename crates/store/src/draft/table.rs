//! Rows of one table: as they were fetched, and as the transaction has left them. The difference is what is written.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

#[derive(Debug, Clone)]
pub(super) struct Table<K, V> {
    /// What the database said; `None` is a row that is known not to be there.
    fetched: BTreeMap<K, Option<V>>,
    /// What this transaction has written; `None` is a row that it has deleted.
    changed: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { fetched: BTreeMap::new(), changed: BTreeMap::new() }
    }
}

/// What became of one row.
pub(super) enum RowChange<'a, V> {
    Inserted(&'a V),
    Updated(&'a V),
    Deleted,
}

impl<K: Ord + Clone, V: Clone + PartialEq> Table<K, V> {
    /// The row as it stands; the outer `None` says that nobody knows.
    pub fn get(&self, key: &K) -> Option<Option<&V>> {
        self.changed.get(key).or_else(|| self.fetched.get(key)).map(Option::as_ref)
    }

    /// The row as it stands, if it is known and there.
    pub fn present(&self, key: &K) -> Option<&V> {
        self.get(key).flatten()
    }

    pub fn is_known(&self, key: &K) -> bool {
        self.changed.contains_key(key) || self.fetched.contains_key(key)
    }

    /// The row as the database has it, if it was fetched and is there.
    pub fn before(&self, key: &K) -> Option<&V> {
        self.fetched.get(key)?.as_ref()
    }

    /// Whether the database has said that there is no such row.
    pub fn was_absent(&self, key: &K) -> bool {
        matches!(self.fetched.get(key), Some(None))
    }

    pub fn put(&mut self, key: K, row: V) {
        self.changed.insert(key, Some(row));
    }

    pub fn remove(&mut self, key: K) {
        self.changed.insert(key, None);
    }

    pub fn fetch(&mut self, key: K, row: Option<V>) {
        self.fetched.insert(key, row);
    }

    /// Notes the rows that were found, and that the rest of what was wanted is not there.
    pub fn take_in<'k>(
        &mut self,
        wanted: impl IntoIterator<Item = &'k K>,
        found: impl IntoIterator<Item = (K, V)>,
    ) where
        K: 'k,
    {
        for key in wanted {
            self.fetched.insert(key.clone(), None);
        }
        for (key, row) in found {
            self.fetched.insert(key, Some(row));
        }
    }

    /// All known rows of a range that are there, in the order of their keys.
    pub fn range(&self, range: impl RangeBounds<K> + Clone) -> impl Iterator<Item = (&K, &V)> {
        let mut fetched = self.fetched.range(range.clone()).peekable();
        let mut changed = self.changed.range(range).peekable();
        let next = move || match (fetched.peek(), changed.peek()) {
            (Some((before, _)), Some((after, _))) => match before.cmp(after) {
                Ordering::Less => fetched.next(),
                Ordering::Equal => {
                    fetched.next();
                    changed.next()
                }
                Ordering::Greater => changed.next(),
            },
            (Some(_), None) => fetched.next(),
            (None, _) => changed.next(),
        };
        std::iter::from_fn(next).filter_map(|(key, row)| Some((key, row.as_ref()?)))
    }

    pub fn rows(&self) -> impl Iterator<Item = (&K, &V)> {
        self.range(..)
    }

    /// All rows that were fetched and found, whatever became of them.
    pub fn rows_before(&self) -> impl Iterator<Item = (&K, &V)> {
        self.range_before(..)
    }

    pub fn range_before(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        self.fetched.range(range).filter_map(|(key, row)| Some((key, row.as_ref()?)))
    }

    /// Forgets what the transaction has written, and keeps what was fetched.
    pub fn undo(&mut self) {
        self.changed.clear();
    }

    /// All that was put or removed, whether or not it was fetched.
    pub fn written(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.changed.iter().map(|(key, row)| (key, row.as_ref()))
    }

    /// The rows that differ from what was fetched, in the order of their keys. What was never fetched was not there:
    /// if it is all the same, the database refuses to insert it.
    pub fn changes(&self) -> impl Iterator<Item = (&K, RowChange<'_, V>)> {
        self.changed.iter().filter_map(|(key, now)| {
            let change = match (self.before(key), now) {
                (None, Some(row)) => RowChange::Inserted(row),
                (Some(before), Some(row)) if before != row => RowChange::Updated(row),
                (Some(_), None) => RowChange::Deleted,
                _ => return None,
            };
            Some((key, change))
        })
    }
}
