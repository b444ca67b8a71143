//! Tokens and users.

use super::page::PageItem;
use super::{AnyRow, Query, ReadKind, Reads};
use crate::codecs::limit;
use crate::directory::DirectoryRow;
use crate::fault::Fault;
use crate::row_list::row;
use punctual_core::ports::Page;

impl Reads<'_> {
    /// The token or user with this key.
    pub async fn found<T: DirectoryRow>(&mut self, read: ReadKind, key: &str) -> Result<Option<T>, Fault> {
        self.rows(Query::of(read, row![key])).await?.first().map(|row| T::read(row)).transpose()
    }

    /// Tokens or users by id.
    pub async fn listed_by_id<T: DirectoryRow>(
        &mut self,
        read: ReadKind,
        after: Option<&str>,
        wanted: usize,
    ) -> Result<Page<T, String>, Fault> {
        let query =
            |after: Option<String>, count| Query::of(read, row![after.unwrap_or_default(), limit(count)]);
        let item = |row: &AnyRow| {
            let (bytes, item) = (row.text(T::ABOUT)?.map_or(0, str::len), T::read(row)?);
            Ok(PageItem { bytes, cursor: item.id().to_owned(), item })
        };
        self.page(wanted, after.map(str::to_owned), query, item).await
    }
}
