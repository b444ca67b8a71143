//! The directory: tokens and users, and what each of them may do; secrets, with encrypted values; and small documents
//! that users and the cluster keep beside jobs.

use crate::access::{Grant, GrantTerms, Role};
use crate::ports::{AuditEntry, Page, SealedValue, StoreError};
use crate::secrets::SecretRule;
use crate::time::Timestamp;
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The tokens, users, secrets and documents of a store. These tables are small and change rarely.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Applies a change, and stores its audit entry in the same transaction if the change takes effect. It can be
    /// repeated safely.
    async fn change_directory(
        &self,
        change: DirectoryChange,
        entry: Option<AuditEntry>,
    ) -> Result<DirectoryOutcome, StoreError>;
    async fn token(&self, id: &str) -> Result<Option<Token>, StoreError>;
    /// All tokens by id.
    async fn tokens(&self, after: Option<&str>, limit: usize) -> Result<Page<Token, String>, StoreError>;
    /// Records when tokens were last used. Earlier times than the stored ones and unknown ids are ignored.
    async fn touch_tokens(&self, used: Vec<(String, Timestamp)>) -> Result<(), StoreError>;

    async fn user(&self, id: &str) -> Result<Option<User>, StoreError>;
    async fn user_by_email(&self, email: &str) -> Result<Option<User>, StoreError>;
    /// All users by id.
    async fn users(&self, after: Option<&str>, limit: usize) -> Result<Page<User, String>, StoreError>;

    async fn secret(&self, name: &str) -> Result<Option<StoredSecret>, StoreError>;
    /// All secrets by name.
    async fn secrets(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<StoredSecret, String>, StoreError>;
    async fn document(&self, kind: DocumentKind, name: &str) -> Result<Option<StoredDocument>, StoreError>;
    /// All documents of a kind, in the byte order of their names.
    async fn documents(
        &self,
        kind: DocumentKind,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<StoredDocument, String>, StoreError>;
    /// Adds a document if the limit has room for it. Of concurrent additions one succeeds, and the others count again: each
    /// changes a common document, whose version it has read before it counted.
    async fn add_within(
        &self,
        document: StoredDocument,
        limit: DocumentLimit<'_>,
        entry: Option<AuditEntry>,
    ) -> Result<BoundedAddition, StoreError> {
        let DocumentLimit { after, max, share } = limit;
        let (kind, name) = (document.kind, document.name.as_str());
        let additions = format!("{ADDITIONS}{}", kind.word());
        // All that may succeed before this one, and as many again for those that make room meanwhile.
        for _ in 0..=2 * max {
            let last = self.document(DocumentKind::Cursor, &additions).await?;
            if self.document(kind, name).await?.is_some() {
                return Ok(BoundedAddition::Taken);
            }
            let present = self.documents(kind, Some(after), max).await?.items;
            if present.len() >= max {
                return Ok(BoundedAddition::Full);
            }
            if let Some(share) = &share
                && present.iter().filter(|document| (share.counts)(document)).count() >= share.max
            {
                return Ok(BoundedAddition::ShareFull);
            }
            let counted = match last {
                Some(last) => DocumentChange::Replace(last.changed(&name)),
                None => DocumentChange::Add(StoredDocument::new(DocumentKind::Cursor, &additions, &name)),
            };
            let changes = DirectoryChange::Documents(vec![counted, DocumentChange::Add(document.clone())]);
            if self.change_directory(changes, entry.clone()).await? == DirectoryOutcome::Done {
                return Ok(BoundedAddition::Done);
            }
        }
        Ok(BoundedAddition::Raced)
    }
    /// Stores a token without an entry, in place of one with the same id.
    async fn put_token(&self, token: Token) -> Result<(), StoreError> {
        self.change_directory(DirectoryChange::PutToken(token), None).await.map(drop)
    }
}

/// Begins the names of the documents that bounded additions of one kind have in common.
const ADDITIONS: &str = "additions-";

/// How many documents of a kind may have names after a text.
#[derive(Clone, Copy)]
pub struct DocumentLimit<'a> {
    pub after: &'a str,
    pub max: usize,
    pub share: Option<DocumentShare<'a>>,
}

/// How many of them may be of one sort, so that others find room.
#[derive(Clone, Copy)]
pub struct DocumentShare<'a> {
    pub max: usize,
    pub counts: &'a (dyn Fn(&StoredDocument) -> bool + Sync),
}

/// What became of an addition within a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundedAddition {
    Done,
    /// The limit is reached.
    Full,
    /// The share is used up.
    ShareFull,
    /// A document of its kind has its name.
    Taken,
    /// Other additions were always faster.
    Raced,
}

/// A change of tokens, users, secrets or documents.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "changes are rare, and each exists only while it is applied")]
pub enum DirectoryChange {
    /// Stores a token, in place of one with the same id.
    PutToken(Token),
    /// Stores a token unless one with its id exists: of concurrent callers one succeeds.
    AddToken(Token),
    /// Stores a changed token if the stored one is still as expected, apart from its last use, which stays.
    ReplaceToken {
        token: Token,
        expected: Token,
    },
    RemoveToken(String),
    AddUser(User),
    /// Stores a changed user if the stored one is still as expected.
    ReplaceUser {
        user: User,
        expected: User,
    },
    /// Removes a user and these tokens.
    RemoveUser {
        id: String,
        tokens: Vec<String>,
    },
    /// Stores a secret unless one has its name.
    AddSecret(StoredSecret),
    /// Stores a changed secret if the stored one still has the version and the encrypted value that are expected.
    /// The version alone does not tell: after a removal, it begins at 1 again.
    ReplaceSecret {
        secret: StoredSecret,
        expected: StoredSecret,
    },
    /// Removes a secret if the stored one still is this one, by the same comparison.
    RemoveSecret(StoredSecret),
    /// Changes documents, all or none. No two changes may concern the same document.
    Documents(Vec<DocumentChange>),
}

/// A change of one document, by compare-and-swap on its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentChange {
    /// Stores a document unless one of its kind has its name.
    Add(StoredDocument),
    /// Stores a changed document if the stored one has the version before.
    Replace(StoredDocument),
    /// Removes a document if it has this version.
    Remove { kind: DocumentKind, name: String, version: u64 },
}

impl DocumentChange {
    /// The document that it concerns.
    pub fn key(&self) -> (DocumentKind, &str) {
        match self {
            DocumentChange::Add(document) | DocumentChange::Replace(document) => {
                (document.kind, &document.name)
            }
            DocumentChange::Remove { kind, name, .. } => (*kind, name),
        }
    }

    /// Whether the change can be made, given the stored document.
    pub fn step(&self, stored: Option<&StoredDocument>) -> DocumentStep {
        use DirectoryOutcome::{Changed, NotThere, Taken};
        match (self, stored) {
            (DocumentChange::Add(_), None) => DocumentStep::Ready,
            (DocumentChange::Add(new) | DocumentChange::Replace(new), Some(stored)) if new == stored => {
                DocumentStep::Made
            }
            (DocumentChange::Add(_), Some(_)) => DocumentStep::Refused(Taken),
            (DocumentChange::Replace(_), None) => DocumentStep::Refused(NotThere),
            (DocumentChange::Replace(new), Some(stored)) if stored.version + 1 == new.version => {
                DocumentStep::Ready
            }
            (DocumentChange::Remove { version, .. }, Some(stored)) if stored.version == *version => {
                DocumentStep::Ready
            }
            (DocumentChange::Remove { .. }, None) => DocumentStep::Removed,
            (DocumentChange::Replace(_) | DocumentChange::Remove { .. }, Some(_)) => {
                DocumentStep::Refused(Changed)
            }
        }
    }
}

/// Whether a change of a document can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentStep {
    Ready,
    /// The document is as the change would leave it.
    Made,
    /// There is nothing to remove.
    Removed,
    Refused(DirectoryOutcome),
}

impl DocumentStep {
    /// What becomes of a list of changes with these steps: `None` if all of them are to be made. A caller that got no
    /// reply repeats its call, and the store answers that it is done.
    pub fn outcome(steps: &[DocumentStep]) -> Option<DirectoryOutcome> {
        let refused = steps.iter().find_map(|step| match step {
            DocumentStep::Refused(outcome) => Some(outcome.clone()),
            _ => None,
        });
        if refused.is_some() || steps.iter().all(|step| *step == DocumentStep::Ready) {
            return refused;
        }
        if !steps.contains(&DocumentStep::Ready) && steps.contains(&DocumentStep::Made) {
            return Some(DirectoryOutcome::Done);
        }
        let is_removed = steps.contains(&DocumentStep::Removed);
        Some(if is_removed { DirectoryOutcome::NotThere } else { DirectoryOutcome::Changed })
    }
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryOutcome {
    Done,
    /// Another token has the id.
    Exists(Box<Token>),
    /// Another user has the email address or the id, or another secret or document the name.
    Taken,
    NotThere,
    /// What is stored is not as expected.
    Changed,
}

/// An API token; the secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The public part, by which it is found.
    pub id: String,
    pub secret_sha256: [u8; 32],
    pub role: Role,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to about a minute.
    pub last_used_at: Option<Timestamp>,
    pub about: TokenAbout,
}

/// The rest of a token, stored as one document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenAbout {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(flatten)]
    pub terms: GrantTerms,
    /// The user to whom it belongs. Its role, owner, scope and permissions are then those of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The secret before the last rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced: Option<ReplacedSecret>,
    /// Whether it is the session of a browser.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_browser: bool,
    /// The token that a browser logged in with. The session works only as long as that one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_of: Option<ParentToken>,
}

/// The token behind the session of a browser, and the secret that was shown at the login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentToken {
    pub id: String,
    pub secret_sha256: [u8; 32],
}

/// A secret that still works for a while after a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedSecret {
    pub secret_sha256: [u8; 32],
    pub until: Timestamp,
}

impl Token {
    /// A token for everything that its role may do, without an end.
    pub fn new(id: impl Into<String>, secret_sha256: [u8; 32], role: Role, created_at: Timestamp) -> Self {
        let id = id.into();
        let about = TokenAbout { name: id.clone(), ..TokenAbout::default() };
        Token { id, secret_sha256, role, created_at, expires_at: None, last_used_at: None, about }
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// What it may do, unless it belongs to a user.
    pub fn grant(&self) -> Grant {
        self.about.terms.grant(self.role)
    }
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub id: String,
    /// In lower case, and unique.
    pub email: String,
    pub role: Role,
    pub created_at: Timestamp,
    pub about: UserAbout,
}

/// The rest of a user, stored as one document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UserAbout {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(flatten)]
    pub terms: GrantTerms,
    /// How the user prefers to be notified, such as `email` or `slack`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notification_channel: Option<String>,
    /// Whether the user may not log in, and tokens of the user do not work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_disabled: bool,
}

impl User {
    pub fn grant(&self) -> Grant {
        self.about.terms.grant(self.role)
    }
}

/// A secret. Only a node with the key can read its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSecret {
    pub name: String,
    /// Counts the times that it was written. A rotation of keys counts too.
    pub version: u64,
    pub sealed: SealedValue,
    pub about: SecretAbout,
}

/// The rest of a secret, stored as one document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretAbout {
    pub rule: SecretRule,
    pub created_at: Timestamp,
    /// When its value or its rule was set.
    pub set_at: Timestamp,
    /// The name of the token or user that set it.
    pub set_by: String,
}

impl StoredSecret {
    /// What its value is encrypted together with. A value that is copied to another row, or whose rule is changed
    /// in the database, cannot be decrypted.
    pub fn bound_to(name: &str, version: u64, rule: &SecretRule) -> Vec<u8> {
        serde_json::json!(["punctual secret", name, version, rule]).to_string().into_bytes()
    }

    pub fn own_binding(&self) -> Vec<u8> {
        StoredSecret::bound_to(&self.name, self.version, &self.about.rule)
    }
}

/// What a document is about. Documents are stored under the word of their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DocumentKind {
    /// The state of an alert that history cannot show.
    Alert,
    Calendar,
    /// Where notifications are sent.
    Channel,
    ClusterPause,
    /// How far a loop has read.
    Cursor,
    /// A notification to send, or one that was sent.
    Delivery,
    JobType,
    NotificationRule,
    /// An action on many jobs.
    Operation,
    /// Figures of one minute.
    Series,
    Silence,
    /// A list with its filters, as a user has saved it.
    View,
}

impl DocumentKind {
    pub const ALL: [DocumentKind; 12] = [
        DocumentKind::Alert,
        DocumentKind::Calendar,
        DocumentKind::Channel,
        DocumentKind::ClusterPause,
        DocumentKind::Cursor,
        DocumentKind::Delivery,
        DocumentKind::JobType,
        DocumentKind::NotificationRule,
        DocumentKind::Operation,
        DocumentKind::Series,
        DocumentKind::Silence,
        DocumentKind::View,
    ];

    pub fn word(self) -> &'static str {
        match self {
            DocumentKind::Alert => "alert",
            DocumentKind::Calendar => "calendar",
            DocumentKind::Channel => "channel",
            DocumentKind::ClusterPause => "cluster-pause",
            DocumentKind::Cursor => "cursor",
            DocumentKind::Delivery => "delivery",
            DocumentKind::JobType => "job-type",
            DocumentKind::NotificationRule => "notification-rule",
            DocumentKind::Operation => "operation",
            DocumentKind::Series => "series",
            DocumentKind::Silence => "silence",
            DocumentKind::View => "view",
        }
    }
}

/// A JSON document of a user or of the cluster, found by its kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    pub kind: DocumentKind,
    /// At most [`crate::limits::DOCUMENT_NAME_BYTES_MAX`].
    pub name: String,
    /// Counts the times that it was written, from 1.
    pub version: u64,
    /// At most [`crate::limits::DOCUMENT_BYTES_MAX`].
    pub body: String,
}

impl StoredDocument {
    /// The first version of a document.
    pub fn new(kind: DocumentKind, name: impl Into<String>, body: &impl Serialize) -> Self {
        StoredDocument { kind, name: name.into(), version: 1, body: to_json(body) }
    }

    /// The next version of this document.
    #[must_use]
    pub fn changed(&self, body: &impl Serialize) -> Self {
        StoredDocument { version: self.version + 1, body: to_json(body), ..self.clone() }
    }

    /// Reads its body. A body that does not fit is a damaged row, or one of a later release.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, StoreError> {
        serde_json::from_str(&self.body).map_err(|error| {
            StoreError::Broken(format!("the {} {:?} cannot be read: {error}", self.kind.word(), self.name))
        })
    }
}

fn to_json(body: &impl Serialize) -> String {
    serde_json::to_string(body).expect("documents have keys that are texts")
}
