//! A page that is filled row by row.

use crate::lists::Room;
use punctual_core::limits;
use punctual_core::ports::Page;

/// Rows to fetch at a time if a row may be large: a page is often full before it has all its items.
pub(super) const ROWS_AT_ONCE: usize = 100;

/// How many rows to fetch at a time for a page in which each row is an item: one more than it holds shows
/// whether there is a next page.
pub(super) fn rows_at_once(items: usize) -> usize {
    items.clamp(1, limits::PAGE_ITEMS_MAX).saturating_add(1).min(ROWS_AT_ONCE)
}

/// A page to which rows are added in the order of its list.
pub(super) struct Filling<T, C> {
    room: Room,
    items: Vec<T>,
    last: Option<C>,
}

impl<T, C> Filling<T, C> {
    /// A page for this many items, at most the maximum of a page.
    pub fn of(items: usize) -> Self {
        Filling { room: Room::of(items), items: Vec::new(), last: None }
    }

    /// Adds an item with this many bytes of text; the next page would continue after `cursor`. Returns
    /// `false` if it did not fit.
    pub fn add(&mut self, item: T, bytes: usize, cursor: C) -> bool {
        let has_room = self.room.take(bytes);
        if has_room {
            self.items.push(item);
            self.last = Some(cursor);
        }
        has_room
    }

    /// Skips a row that does not match. Returns `false` if nothing would fit after it, so that the page
    /// ends before it.
    pub fn pass(&mut self, cursor: C) -> bool {
        let has_room = !self.room.is_full();
        if has_room {
            self.last = Some(cursor);
        }
        has_room
    }

    /// Nothing follows.
    pub fn ended(self) -> Page<T, C> {
        Page { items: self.items, next: None }
    }

    /// More follows, or may follow.
    pub fn cut_off(self) -> Page<T, C> {
        Page { items: self.items, next: self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_after_the_last_row_that_it_holds_or_passed() {
        let mut page = Filling::of(2);
        assert!(page.add('a', 1, 1) && page.pass(2) && page.add('c', 1, 3));
        assert!(!page.add('d', 1, 4) && !page.pass(5));
        let page = page.cut_off();
        assert_eq!((page.items, page.next), (vec!['a', 'c'], Some(3)));
        assert_eq!(Filling::<char, u8>::of(1).ended().next, None);
    }
}
