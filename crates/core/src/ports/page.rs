//! Lists that are read a page at a time.

/// A page of a list and where the next one starts. A page may be shorter than its limit, even empty, and
/// still have a next one: the store reads a bounded number of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T, C> {
    pub items: Vec<T>,
    pub next: Option<C>,
}
