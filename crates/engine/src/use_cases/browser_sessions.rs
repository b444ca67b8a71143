//! Sessions of browsers. A session is a token with an expiry, whose secret is in a cookie.

use super::Access;
use punctual_core::limits;
use punctual_core::ports::{StoreError, Token};
use punctual_core::time::Timestamp;

/// Live sessions of all browsers. Beyond that, a login ends the oldest session.
const SESSIONS_MAX: usize = 10_000;

impl Access {
    /// Stores the session of a browser that has just logged in, and removes those that have expired.
    pub async fn open_session(&self, session: Token) -> Result<(), StoreError> {
        assert!(session.about.is_browser && session.expires_at.is_some(), "{session:?} is no session");
        let store = &self.engine.context.store;
        for outdated in self.outdated_sessions().await? {
            store.remove_token(&outdated).await?;
        }
        store.put_token(session).await
    }

    async fn outdated_sessions(&self) -> Result<Vec<String>, StoreError> {
        let (mut sessions, mut after) = (Vec::new(), None);
        loop {
            let page = self.engine.context.store.tokens(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
            sessions.extend(page.items.into_iter().filter(|token| token.about.is_browser));
            after = page.next;
            if after.is_none() {
                return Ok(outdated(sessions, self.engine.now()));
            }
        }
    }
}

/// Expired sessions, and the oldest of the others if there are too many of them for another one.
fn outdated(sessions: Vec<Token>, now: Timestamp) -> Vec<String> {
    let (expired, mut live): (Vec<_>, Vec<_>) =
        sessions.into_iter().partition(|session| session.is_expired(now));
    live.sort_by_key(|session| session.created_at);
    let surplus = (live.len() + 1).saturating_sub(SESSIONS_MAX);
    expired.into_iter().chain(live.into_iter().take(surplus)).map(|session| session.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::access::Role;
    use punctual_core::ports::TokenAbout;
    use std::time::Duration;

    fn session(number: usize, expires_at: Timestamp) -> Token {
        Token {
            id: number.to_string(),
            secret_sha256: [0; 32],
            role: Role::Viewer,
            created_at: Timestamp::EPOCH.plus(Duration::from_secs(number as u64)),
            expires_at: Some(expires_at),
            last_used_at: None,
            about: TokenAbout { is_browser: true, ..TokenAbout::default() },
        }
    }

    #[test]
    fn expired_sessions_go_and_the_oldest_make_room() {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(100_000));
        let later = now.plus(Duration::from_secs(1));
        assert_eq!(outdated(vec![session(1, now), session(2, later)], now), ["1"]);
        let many = || (0..SESSIONS_MAX).rev().map(|number| session(number, later)).collect::<Vec<_>>();
        assert_eq!(outdated(many(), now), ["0"]);
        assert_eq!(outdated(many().split_off(1), now), [""; 0]);
    }
}
