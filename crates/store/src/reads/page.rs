//! Pages that are filled row by row.

use super::{AnyRow, Query, Reads};
use crate::fault::Fault;
use crate::lists::PageRoom;
use crate::malformed::skip_malformed;
use punctual_core::ports::Page;

/// A page to which rows are added in the order of its list.
pub(super) struct PageFilling<T, C> {
    pub room: PageRoom,
    items: Vec<T>,
    last: Option<C>,
}

impl<T, C> PageFilling<T, C> {
    /// A page for this many items, at most the maximum of a page.
    pub fn of(items: usize) -> Self {
        PageFilling { room: PageRoom::of(items), items: Vec::new(), last: None }
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

/// An item of a page, the bytes of its text, and where the list continues after it.
pub(super) struct PageItem<T, C> {
    pub item: T,
    pub bytes: usize,
    pub cursor: C,
}

impl Reads<'_> {
    /// A page in which each row is an item. The query gets the cursor and the number of rows to read.
    pub(super) async fn page<'q, T, C: Clone>(
        &mut self,
        wanted: usize,
        after: Option<C>,
        query: impl Fn(Option<C>, usize) -> Query<'q>,
        read: impl Fn(&AnyRow) -> Result<PageItem<T, C>, Fault>,
    ) -> Result<Page<T, C>, Fault> {
        let (mut page, mut after) = (PageFilling::of(wanted), after);
        let at_once = self.connection.batches().rows_of(wanted);
        loop {
            let fetched = self.rows(query(after.clone(), at_once)).await?;
            let mut is_past_any = false;
            for row in fetched.iter() {
                let Some(PageItem { item, bytes, cursor }) = skip_malformed(read(row))? else { continue };
                if !page.add(item, bytes, cursor.clone()) {
                    return Ok(page.cut_off());
                }
                (after, is_past_any) = (Some(cursor), true);
            }
            if fetched.is_cut_off() {
                return Ok(page.cut_off());
            }
            // If no row can be read, there is no cursor to continue from.
            if fetched.len() < at_once || !is_past_any {
                return Ok(page.ended());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_continues_after_the_last_row_that_it_holds_or_skipped() {
        let mut page = PageFilling::of(2);
        assert!(page.add('a', 1, 1) && page.pass(2) && page.add('c', 1, 3));
        assert!(!page.add('d', 1, 4) && !page.pass(5));
        let page = page.cut_off();
        assert_eq!((page.items, page.next), (vec!['a', 'c'], Some(3)));
        assert_eq!(PageFilling::<char, u8>::of(1).ended().next, None);
    }
}
