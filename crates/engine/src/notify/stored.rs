//! Documents of notifications: typed reads and changes.

use punctual_core::notify::{Alert, Channel, Delivery, NotificationRule, Silence};
use punctual_core::ports::{
    Directory, DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, Page, Store, StoreError,
    StoredDocument,
};
use punctual_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The name of a document, with its kind.
pub(crate) type DocumentName = (DocumentKind, &'static str);

/// Up to where history was read.
pub(super) const HISTORY: DocumentName = (DocumentKind::Cursor, "notify");
/// Exists in a copy of a store: nothing is sent.
pub(crate) const STOPPED: DocumentName = (DocumentKind::Cursor, "notify-stopped");

/// The place of the leader in history and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NotifyCursor {
    pub history: u64,
    /// Until when missed runs were looked for.
    pub missed_until: Timestamp,
}

/// What jobs with `notify` need to be looked for. Marked once, and never unmarked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Used {
    History,
    Successes,
    Late,
    Missed,
}

impl Used {
    pub const ALL: [Used; 4] = [Used::History, Used::Successes, Used::Late, Used::Missed];

    fn document(self) -> DocumentName {
        match self {
            Used::History => HISTORY,
            Used::Successes => (DocumentKind::Cursor, "notify-successes"),
            Used::Late => (DocumentKind::Cursor, "notify-late"),
            Used::Missed => (DocumentKind::Cursor, "notify-missed"),
        }
    }
}

/// A stored value with its version.
#[derive(Debug, Clone)]
pub(crate) struct StoredAs<T> {
    pub name: String,
    pub version: u64,
    pub value: T,
}

/// The kind of documents that hold a type.
pub(crate) trait InDocument: Serialize + DeserializeOwned {
    const KIND: DocumentKind;
}

impl InDocument for Channel {
    const KIND: DocumentKind = DocumentKind::Channel;
}

impl InDocument for NotificationRule {
    const KIND: DocumentKind = DocumentKind::NotificationRule;
}

impl InDocument for Silence {
    const KIND: DocumentKind = DocumentKind::Silence;
}

impl InDocument for Alert {
    const KIND: DocumentKind = DocumentKind::Alert;
}

impl InDocument for Delivery {
    const KIND: DocumentKind = DocumentKind::Delivery;
}

pub(super) async fn mark_used(store: &dyn Store, now: Timestamp, used: Used) -> Result<(), StoreError> {
    let (kind, name) = used.document();
    if store.document(kind, name).await?.is_some() {
        return Ok(());
    }
    let body = match used {
        Used::History => {
            let ends_at = store.history_span().await?.ends_at;
            text(&NotifyCursor { history: ends_at, missed_until: now })?
        }
        Used::Successes | Used::Late | Used::Missed => "{}".to_owned(),
    };
    let document = StoredDocument { kind, name: name.to_owned(), version: 1, body };
    // Another process may have been first.
    store.change_directory(DirectoryChange::Documents(vec![DocumentChange::Add(document)]), None).await?;
    Ok(())
}

pub(super) async fn is_used(store: &dyn Store, used: Used) -> Result<bool, StoreError> {
    let (kind, name) = used.document();
    Ok(store.document(kind, name).await?.is_some())
}

pub(crate) async fn read<T: DeserializeOwned>(
    store: &dyn Directory,
    (kind, name): (DocumentKind, &str),
) -> Result<Option<StoredAs<T>>, StoreError> {
    Ok(store.document(kind, name).await?.and_then(parsed))
}

/// All documents of a kind after a name. Unreadable ones are left out, and logged.
pub(crate) async fn all<T: InDocument>(
    store: &dyn Directory,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<StoredAs<T>>, StoreError> {
    let (mut found, mut after) = (vec![], after.map(str::to_owned));
    loop {
        let page = page(store, after.as_deref(), limit).await?;
        found.extend(page.items);
        after = page.next;
        if after.is_none() || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}

/// The first of these documents.
async fn page<T: InDocument>(
    store: &dyn Directory,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<StoredAs<T>, String>, StoreError> {
    let page = store.documents(T::KIND, after, limit.min(punctual_core::limits::PAGE_ITEMS_MAX)).await?;
    Ok(Page { items: page.items.into_iter().filter_map(parsed).collect(), next: page.next })
}

fn parsed<T: DeserializeOwned>(document: StoredDocument) -> Option<StoredAs<T>> {
    match serde_json::from_str(&document.body) {
        Ok(value) => Some(StoredAs { name: document.name, version: document.version, value }),
        Err(error) => {
            let (kind, name) = (document.kind, &document.name);
            tracing::warn!(%error, ?kind, name, "a stored document cannot be read, and is ignored");
            None
        }
    }
}

fn text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Broken(error.to_string()))
}

pub(crate) fn add<T: InDocument>(name: &str, value: &T) -> Result<DocumentChange, StoreError> {
    let document = StoredDocument { kind: T::KIND, name: name.to_owned(), version: 1, body: text(value)? };
    Ok(DocumentChange::Add(document))
}

pub(crate) fn replace<T: InDocument>(stored: &StoredAs<T>) -> Result<DocumentChange, StoreError> {
    let (name, version, body) = (stored.name.clone(), stored.version + 1, text(&stored.value)?);
    Ok(DocumentChange::Replace(StoredDocument { kind: T::KIND, name, version, body }))
}

pub(crate) fn remove<T: InDocument>(stored: &StoredAs<T>) -> DocumentChange {
    DocumentChange::Remove { kind: T::KIND, name: stored.name.clone(), version: stored.version }
}

/// A cursor at a new place.
pub(crate) fn moved<T: Serialize>(cursor: &StoredAs<T>) -> Result<DocumentChange, StoreError> {
    let (name, version, body) = (cursor.name.clone(), cursor.version + 1, text(&cursor.value)?);
    Ok(DocumentChange::Replace(StoredDocument { kind: DocumentKind::Cursor, name, version, body }))
}

/// A cursor that does not exist yet.
pub(crate) fn begun(name: &str, value: &impl Serialize) -> Result<DocumentChange, StoreError> {
    let (kind, name, body) = (DocumentKind::Cursor, name.to_owned(), text(value)?);
    Ok(DocumentChange::Add(StoredDocument { kind, name, version: 1, body }))
}

/// Applies all changes or none. False if another process has changed one of the documents.
pub(crate) async fn commit(store: &dyn Store, changes: Vec<DocumentChange>) -> Result<bool, StoreError> {
    let outcome = store.change_directory(DirectoryChange::Documents(changes), None).await?;
    Ok(outcome == DirectoryOutcome::Done)
}
