//! Rows of one table: as loaded, and as changed by the transaction. The difference is the write set.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

#[derive(Debug, Clone)]
pub(super) struct Table<K, V> {
    /// As in the database; `None` is a row that is known not to exist.
    fetched: BTreeMap<K, Option<V>>,
    /// As written by this transaction; `None` is a row that it has deleted.
    changed: BTreeMap<K, Option<V>>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { fetched: BTreeMap::new(), changed: BTreeMap::new() }
    }
}

/// The change of one row.
pub(super) enum RowChange<'a, V> {
    Inserted(&'a V),
    Updated(&'a V),
    Deleted,
}

impl<K: Ord + Clone, V: Clone + PartialEq> Table<K, V> {
    /// The current row; the outer `None` means unknown.
    pub fn get(&self, key: &K) -> Option<Option<&V>> {
        self.changed.get(key).or_else(|| self.fetched.get(key)).map(Option::as_ref)
    }

    /// The current row, if it is known and exists.
    pub fn present(&self, key: &K) -> Option<&V> {
        self.get(key).flatten()
    }

    pub fn is_known(&self, key: &K) -> bool {
        self.changed.contains_key(key) || self.fetched.contains_key(key)
    }

    /// The row in the database, if it was loaded and exists.
    pub fn before(&self, key: &K) -> Option<&V> {
        self.fetched.get(key)?.as_ref()
    }

    /// Whether the row is known not to exist in the database.
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

    /// Adds the rows that were found, and marks the other requested rows as missing.
    pub fn add_loaded<'k>(
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

    /// All known existing rows of a range, ordered by key.
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

    /// All rows that were loaded and found, including those changed since.
    pub fn rows_before(&self) -> impl Iterator<Item = (&K, &V)> {
        self.range_before(..)
    }

    pub fn range_before(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        self.fetched.range(range).filter_map(|(key, row)| Some((key, row.as_ref()?)))
    }

    /// Discards what the transaction has written; loaded rows stay.
    pub fn undo(&mut self) {
        self.changed.clear();
    }

    /// All rows that were written or deleted, whether or not they were loaded.
    pub fn written(&self) -> impl Iterator<Item = (&K, Option<&V>)> {
        self.changed.iter().map(|(key, row)| (key, row.as_ref()))
    }

    /// The rows that differ from the loaded ones, ordered by key. A row that was never loaded counts as
    /// missing: if it exists after all, the database rejects the insert.
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
