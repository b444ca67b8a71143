//! How a store shows that it is not complete: the target of a move has a table of notes until all is there and compared.

/// The table of these notes. It is no part of the schema.
pub(crate) const NOTES_TABLE: &str = "moving";

/// What is said to those who want to open such a store.
pub(crate) const UNFINISHED: &str = "it holds the unfinished copy of another store: repeat `punctual migrate-data` until it \
                                     says that all was moved, or begin with another database";
