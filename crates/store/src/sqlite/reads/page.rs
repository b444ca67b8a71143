//! Rows are read one by one until a page is full, so that memory holds no more than one page.

use crate::fault::Fault;
use crate::lists::PageRoom;
use crate::malformed::pass_over;
use crate::sqlite::rows::located;
use punctual_core::ports::Page;
use rusqlite::{Params, Row, Statement};

/// One item of a page.
pub(crate) struct PageItem<T, C> {
    pub value: T,
    /// Its bytes of text.
    pub bytes: usize,
    /// The cursor of the page after it.
    pub cursor: C,
}

/// Reads a query until the page is full. Malformed rows are skipped. The query must return one readable row
/// more than there is room for, if there is one: that row shows whether there is a next page. So its limit
/// is a [`bound`](crate::sqlite::rows::bound).
pub(crate) fn page<T, C>(
    statement: &mut Statement<'_>,
    params: impl Params,
    mut room: PageRoom,
    mut read: impl FnMut(&Row<'_>) -> Result<PageItem<T, C>, Fault>,
) -> Result<Page<T, C>, Fault> {
    let mut rows = statement.query(params)?;
    let (mut items, mut last) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        if room.is_full() {
            return Ok(Page { items, next: last });
        }
        let Some(item) = pass_over(read(row).map_err(|fault| located(fault, row)))? else { continue };
        if !room.take(item.bytes) {
            return Ok(Page { items, next: last });
        }
        items.push(item.value);
        last = Some(item.cursor);
    }
    Ok(Page { items, next: None })
}
