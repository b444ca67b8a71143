//! Sessions of browsers. A session is a token with an expiry, whose secret is in a cookie.

use super::audit::{SESSION_OPEN, session_entry};
use super::{Access, Caller};
use punctual_core::limits;
use punctual_core::ports::{DirectoryChange, StoreError, Token};
use punctual_core::time::Timestamp;
use serde_json::json;

/// Live sessions of all browsers. Beyond that, a login ends the oldest session.
const SESSIONS_MAX: usize = 10_000;
/// Live sessions of one user or token. Beyond that, a login ends the oldest one of them.
const SESSIONS_PER_PRINCIPAL_MAX: usize = 100;

impl Access {
    /// Stores the session of a browser that `caller` has just logged in with, and removes those that have
    /// expired.
    pub async fn open_session(&self, caller: &Caller, session: Token) -> Result<(), StoreError> {
        assert!(session.about.is_browser && session.expires_at.is_some(), "{session:?} is no session");
        let store = &self.engine.context.store;
        for outdated in self.outdated_sessions(&session).await? {
            store.change_directory(DirectoryChange::RemoveToken(outdated), None).await?;
        }
        let details = json!({ "role": session.role, "expires_at": session.expires_at });
        let entry = session_entry(&self.engine, caller, SESSION_OPEN, &session.id, Some(&details));
        store.change_directory(DirectoryChange::PutToken(session), Some(entry)).await.map(drop)
    }

    async fn outdated_sessions(&self, new: &Token) -> Result<Vec<String>, StoreError> {
        let (mut sessions, mut after) = (Vec::new(), None);
        loop {
            let page = self.engine.context.store.tokens(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
            sessions.extend(page.items.into_iter().filter(|token| token.about.is_browser));
            after = page.next;
            if after.is_none() {
                return Ok(outdated(sessions, new, self.engine.now()));
            }
        }
    }
}

/// Expired sessions, and the oldest of the others if there are too many of them for another one, in all or of
/// the same user or token.
fn outdated(sessions: Vec<Token>, new: &Token, now: Timestamp) -> Vec<String> {
    let (expired, mut live): (Vec<_>, Vec<_>) =
        sessions.into_iter().partition(|session| session.is_expired(now));
    live.sort_by_key(|session| session.created_at);
    let surplus = |count: usize, max: usize| (count + 1).saturating_sub(max);
    let is_own = |session: &&Token| {
        (&session.about.user, &session.about.session_of) == (&new.about.user, &new.about.session_of)
    };
    let own = live.iter().filter(is_own).count();
    let own: Vec<Token> =
        live.iter().filter(is_own).take(surplus(own, SESSIONS_PER_PRINCIPAL_MAX)).cloned().collect();
    live.retain(|session| !own.contains(session));
    let rest = surplus(live.len(), SESSIONS_MAX);
    let ended = expired.into_iter().chain(own).chain(live.into_iter().take(rest));
    ended.map(|session| session.id).collect()
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

    fn of(number: usize, user: String) -> Token {
        let token = session(number, Timestamp::MAX);
        Token { about: TokenAbout { user: Some(user), ..token.about }, ..token }
    }

    #[test]
    fn expired_sessions_go_and_the_oldest_make_room() {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(100_000));
        let later = now.plus(Duration::from_secs(1));
        let new = of(SESSIONS_MAX, "new".to_owned());
        assert_eq!(outdated(vec![session(1, now), session(2, later)], &new, now), ["1"]);
        let many =
            || (0..SESSIONS_MAX).rev().map(|number| of(number, format!("u{number}"))).collect::<Vec<_>>();
        assert_eq!(outdated(many(), &new, now), ["0"]);
        assert_eq!(outdated(many().split_off(1), &new, now), [""; 0]);
    }

    #[test]
    fn many_sessions_of_one_user_end_only_its_own() {
        let now = Timestamp::EPOCH.plus(Duration::from_secs(100_000));
        let mut sessions: Vec<Token> =
            (1..=SESSIONS_PER_PRINCIPAL_MAX).map(|number| of(number, "ann".to_owned())).collect();
        sessions.push(of(0, "bob".to_owned()));
        let new = |user: &str| of(SESSIONS_MAX, user.to_owned());
        assert_eq!(outdated(sessions.clone(), &new("ann"), now), ["1"]);
        assert_eq!(outdated(sessions, &new("bob"), now), [""; 0]);
    }
}
