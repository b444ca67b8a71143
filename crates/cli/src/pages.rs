//! Paged lists.

use punctual_client::{ClientError, Page};
use punctual_config::output::{OutputArgs, tell};
use punctual_core::limits;

/// As many items as requested, over as many pages as necessary; `read` gets the number of items wanted and
/// the cursor.
pub async fn collect<T>(
    limit: usize,
    mut cursor: Option<String>,
    mut read: impl AsyncFnMut(usize, Option<String>) -> Result<Page<T>, ClientError>,
) -> Result<Page<T>, ClientError> {
    let mut items = Vec::new();
    loop {
        let wanted = (limit - items.len()).clamp(1, limits::PAGE_ITEMS_MAX);
        let page = read(wanted, cursor).await?;
        items.extend(page.items);
        if page.next_cursor.is_none() || items.len() >= limit {
            return Ok(Page { items, next_cursor: page.next_cursor });
        }
        cursor = page.next_cursor;
    }
}

/// Says how to continue a list that has more items. Programs find the cursor in the list itself.
pub fn tell_more(output: OutputArgs, cursor: Option<&str>) {
    if output.is_table() {
        tell_cursor(cursor);
    }
}

pub fn tell_cursor(cursor: Option<&str>) {
    if let Some(cursor) = cursor {
        tell(&format!("more with --cursor {cursor}"));
    }
}
