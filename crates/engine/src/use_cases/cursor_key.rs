//! The key that all nodes of a store share, also across restarts. It hides positions in cursors from callers with a
//! limited scope, so that any node can continue a list, and signs messages between nodes.

use super::Access;
use punctual_core::access::Role;
use punctual_core::ports::{DirectoryChange, DirectoryOutcome, Store, StoreError, Token};
use punctual_core::time::Timestamp;

/// The row of the key. It is a token that has expired and has no known secret, so it cannot be used to log in; requests cannot
/// name it, and lists leave it out.
pub const CURSOR_KEY: &str = "cursorkey";

/// The key of this store. If it has none yet, `fresh` becomes the key, unless another node is faster. Each use derives
/// a key of its own from it.
pub async fn cluster_key(store: &dyn Store, now: Timestamp, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
    if let Some(row) = store.token(CURSOR_KEY).await? {
        return Ok(row.secret_sha256);
    }
    let row = Token::new(CURSOR_KEY, fresh, Role::Viewer, now);
    let row = Token { expires_at: Some(Timestamp::EPOCH), ..row };
    match store.change_directory(DirectoryChange::AddToken(row), None).await? {
        DirectoryOutcome::Exists(row) => Ok(row.secret_sha256),
        _ => Ok(fresh),
    }
}

impl Access {
    /// The key of this store, for cursors.
    pub async fn cursor_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        cluster_key(&*self.engine.context.store, self.now(), fresh).await
    }
}
