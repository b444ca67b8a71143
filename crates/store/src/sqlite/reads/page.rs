//! Pages are bounded twice: by their items and by the bytes of what people have put into them. Rows are read one
//! by one until a page is full, so that no more is held in memory than one page.

use crate::sqlite::fault::Fault;
use punctual_core::limits;
use punctual_core::occurrence::Finished;
use punctual_core::ports::Page;
use rusqlite::{Params, Row, Statement};

/// What still fits into a page.
pub(crate) struct Room {
    items: usize,
    bytes: usize,
    is_empty: bool,
}

impl Room {
    /// For so many items, or as many as a page may have.
    pub fn of(items: usize) -> Self {
        Room { items: items.clamp(1, limits::PAGE_ITEMS_MAX), bytes: limits::PAGE_BYTES_MAX, is_empty: true }
    }

    /// Whether not even an item without any text would fit.
    pub fn is_full(&self) -> bool {
        self.items == 0
    }

    /// Takes the room that an item with so many bytes of text needs. The first item always fits: whoever follows
    /// the pages must get on.
    pub fn take(&mut self, bytes: usize) -> bool {
        if self.items == 0 || (bytes > self.bytes && !self.is_empty) {
            return false;
        }
        self.items -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.is_empty = false;
        true
    }
}

/// What one item of a page is made of.
pub(crate) struct Item<T, C> {
    pub value: T,
    /// Its bytes of text.
    pub bytes: usize,
    /// Where the page after it goes on.
    pub cursor: C,
}

/// Reads a query until the page is full. The query must yield one row more than there is room for, if there is one:
/// that tells whether there is a next page.
pub(crate) fn page<T, C>(
    statement: &mut Statement<'_>,
    params: impl Params,
    mut room: Room,
    mut read: impl FnMut(&Row<'_>) -> Result<Item<T, C>, Fault>,
) -> Result<Page<T, C>, Fault> {
    let mut rows = statement.query(params)?;
    let (mut items, mut last) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        if room.is_full() {
            return Ok(Page { items, next: last });
        }
        let item = read(row)?;
        if !room.take(item.bytes) {
            return Ok(Page { items, next: last });
        }
        items.push(item.value);
        last = Some(item.cursor);
    }
    Ok(Page { items, next: None })
}

/// The bytes of what a handler has said.
pub(crate) fn bytes_of(finished: &Finished) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    length(&finished.error) + length(&finished.result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_room_for_its_items_and_bytes_and_at_least_for_one() {
        let mut few = Room::of(2);
        assert!(few.take(1) && !few.is_full() && few.take(1) && few.is_full() && !few.take(0));
        let mut large = Room::of(10);
        assert!(large.take(limits::PAGE_BYTES_MAX + 1), "or nobody would ever get past it");
        assert!(!large.take(1));
        let mut exact = Room::of(10);
        assert!(exact.take(limits::PAGE_BYTES_MAX - 1) && exact.take(1) && !exact.take(1));
    }
}
