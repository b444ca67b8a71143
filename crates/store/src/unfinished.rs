//! How a store is marked as incomplete: the target of a data migration has a table of notes until
//! everything is copied and compared.

/// The table of these notes. It is not part of the schema.
pub(crate) const NOTES_TABLE: &str = "moving";

/// The error when a process tries to open such a store.
pub(crate) const UNFINISHED: &str = "it holds an unfinished copy of another store: repeat `punctual \
                                     migrate-data` until it is complete, or use another database";
