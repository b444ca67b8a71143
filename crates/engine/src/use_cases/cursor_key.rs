//! The key that hides positions in cursors from callers with a limited scope. All nodes of a store share it, also
//! across restarts, so that any of them can continue a list.

use super::Access;
use punctual_core::access::Role;
use punctual_core::ports::{DirectoryChange, DirectoryOutcome, StoreError, Token};
use punctual_core::time::Timestamp;

/// The row of the key. It is a token that has expired and has no known secret, so it lets nobody in; requests cannot
/// name it, and lists leave it out.
pub(super) const CURSOR_KEY: &str = "cursorkey";

impl Access {
    /// The key of this store. If it has none yet, `fresh` becomes the key, unless another node is faster.
    pub async fn cursor_key(&self, fresh: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let store = &self.engine.context.store;
        if let Some(row) = store.token(CURSOR_KEY).await? {
            return Ok(row.secret_sha256);
        }
        let row = Token::new(CURSOR_KEY, fresh, Role::Viewer, self.now());
        let row = Token { expires_at: Some(Timestamp::EPOCH), ..row };
        match store.change_directory(DirectoryChange::AddToken(row), None).await? {
            DirectoryOutcome::Exists(row) => Ok(row.secret_sha256),
            _ => Ok(fresh),
        }
    }
}
