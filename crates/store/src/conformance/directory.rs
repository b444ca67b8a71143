//! Tokens, users and secrets.

use super::fixture::at;
use punctual_core::access::{GrantTerms, NamePattern, Permission, Role, Scope};
use punctual_core::ports::{
    Page, ParentToken, ReplacedSecret, SealedValue, SecretAbout, Store, StoredSecret, Token, TokenAbout, User,
    UserAbout, UserOutcome,
};
use punctual_core::secrets::SecretRule;
use std::sync::Arc;

/// A token with nothing but what it needs.
pub(super) fn plain_token(id: &str, secret: u8) -> Token {
    Token {
        id: id.to_owned(),
        secret_sha256: [secret; 32],
        role: Role::Admin,
        created_at: at(1),
        expires_at: None,
        last_used_at: None,
        about: TokenAbout::default(),
    }
}

/// A token with a value in every column.
pub(super) fn full_token(id: &str, secret: u8) -> Token {
    Token {
        role: Role::Worker,
        expires_at: Some(at(500)),
        last_used_at: Some(at(3)),
        about: TokenAbout {
            name: "\"nightly\" ü".to_owned(),
            terms: terms(Permission::AuditRead),
            user: Some("u1".to_owned()),
            replaced: Some(ReplacedSecret { secret_sha256: [255; 32], until: at(9) }),
            is_browser: true,
            session_of: Some(ParentToken { id: "t0".to_owned(), secret_sha256: [1; 32] }),
        },
        ..plain_token(id, secret)
    }
}

fn terms(permission: Permission) -> GrantTerms {
    let owner = Some("ann".to_owned());
    let scope = Scope { owner: owner.clone(), queues: vec![NamePattern::new("mail-*")], job_types: vec![] };
    GrantTerms { owner, scope, permissions: vec![permission] }
}

/// A user with a value in every column.
pub(super) fn user(id: &str, email: &str) -> User {
    User {
        id: id.to_owned(),
        email: email.to_owned(),
        role: Role::Operator,
        created_at: at(1),
        about: UserAbout {
            display_name: Some("Ann Ü".to_owned()),
            terms: terms(Permission::PayloadRead),
            notification_channel: Some("email".to_owned()),
            is_disabled: true,
        },
    }
}

pub async fn a_token_is_found_by_its_id_and_can_be_replaced(store: Arc<dyn Store>) {
    for token in [plain_token("t1", 7), full_token("t1", 8), plain_token("t1", 9)] {
        store.put_token(token.clone()).await.unwrap();
        assert_eq!(store.token("t1").await.unwrap(), Some(token));
    }
    assert_eq!(store.token("t2").await.unwrap(), None);
}

pub async fn a_token_is_added_only_where_none_has_its_id(store: Arc<dyn Store>) {
    let (first, second) = (plain_token("t1", 7), full_token("t1", 8));
    assert_eq!(store.add_token(first.clone()).await.unwrap(), first);
    assert_eq!(store.add_token(second.clone()).await.unwrap(), first);
    // A caller that got no reply repeats the call.
    assert_eq!(store.add_token(first.clone()).await.unwrap(), first);
    assert_eq!(store.token("t1").await.unwrap(), Some(first));
    store.put_token(second.clone()).await.unwrap();
    assert_eq!(store.add_token(Token { role: Role::Viewer, ..second.clone() }).await.unwrap(), second);
}

pub async fn a_token_is_changed_only_while_it_has_the_expected_secret(store: Arc<dyn Store>) {
    let changed = full_token("t1", 8);
    assert!(!store.replace_token(changed.clone(), [7; 32]).await.unwrap(), "it is not there");
    store.put_token(Token { last_used_at: Some(at(20)), ..plain_token("t1", 7) }).await.unwrap();
    assert!(!store.replace_token(changed.clone(), [9; 32]).await.unwrap());
    assert_eq!(store.token("t1").await.unwrap().unwrap().secret_sha256, [7; 32]);
    assert!(store.replace_token(changed.clone(), [7; 32]).await.unwrap());
    let stored = Token { last_used_at: Some(at(20)), ..changed.clone() };
    assert_eq!(store.token("t1").await.unwrap(), Some(stored), "all but the last use");
    assert!(!store.replace_token(changed.clone(), [7; 32]).await.unwrap(), "its secret is another one now");
    assert!(store.replace_token(changed, [8; 32]).await.unwrap(), "even if nothing changes");
}

pub async fn a_removed_token_is_gone(store: Arc<dyn Store>) {
    store.put_token(plain_token("t1", 7)).await.unwrap();
    store.put_token(plain_token("t2", 7)).await.unwrap();
    assert!(store.remove_token("t1").await.unwrap());
    assert!(!store.remove_token("t1").await.unwrap());
    assert_eq!(store.token("t1").await.unwrap(), None);
    assert!(store.token("t2").await.unwrap().is_some());
}

pub async fn tokens_are_listed_by_id_in_pages(store: Arc<dyn Store>) {
    assert_eq!(store.tokens(None, 2).await.unwrap(), Page { items: vec![], next: None });
    // In the order of bytes.
    let ids = ["B", "a", "a-", "a1", "b"];
    for id in ids.iter().rev() {
        store.put_token(full_token(id, 7)).await.unwrap();
    }
    let expected: Vec<Token> = ids.iter().map(|id| full_token(id, 7)).collect();
    let mut after: Option<String> = None;
    for items in expected.chunks(2) {
        let page = store.tokens(after.as_deref(), 2).await.unwrap();
        assert_eq!(page.items, items);
        after = page.next;
    }
    assert_eq!(after, None);
    assert_eq!(store.tokens(Some("a"), 9).await.unwrap(), Page { items: expected[2..].to_vec(), next: None });
}

pub async fn the_last_use_of_a_token_only_grows(store: Arc<dyn Store>) {
    for id in ["t1", "t2", "t3"] {
        store.put_token(plain_token(id, 7)).await.unwrap();
    }
    store.touch_tokens(vec![]).await.unwrap();
    let touch = async |used: &[(&str, i64)]| {
        let used = used.iter().map(|(id, seconds)| ((*id).to_owned(), at(*seconds))).collect();
        store.touch_tokens(used).await.unwrap();
        let tokens = store.tokens(None, 9).await.unwrap().items;
        tokens.into_iter().map(|token| token.last_used_at).collect::<Vec<_>>()
    };
    let used = touch(&[("t2", 7), ("gone", 9), ("t1", 5), ("t2", 6)]).await;
    assert_eq!(used, [Some(at(5)), Some(at(7)), None]);
    let used = touch(&[("t1", 6), ("t2", 3), ("t3", 1)]).await;
    assert_eq!(used, [Some(at(6)), Some(at(7)), Some(at(1))]);
    assert_eq!(store.token("gone").await.unwrap(), None);
}

pub async fn an_email_address_belongs_to_one_user(store: Arc<dyn Store>) {
    let ann = user("u1", "ann@example.org");
    assert_eq!(store.add_user(ann.clone()).await.unwrap(), UserOutcome::Stored);
    for taken in [user("u1", "other@example.org"), user("u2", "ann@example.org")] {
        assert_eq!(store.add_user(taken).await.unwrap(), UserOutcome::Taken);
    }
    let bob = User { about: UserAbout::default(), role: Role::Viewer, ..user("u2", "bob@example.org") };
    assert_eq!(store.replace_user(bob.clone(), bob.clone()).await.unwrap(), UserOutcome::NotThere);
    assert_eq!(store.add_user(bob.clone()).await.unwrap(), UserOutcome::Stored);
    let as_ann = User { email: ann.email.clone(), ..bob.clone() };
    assert_eq!(store.replace_user(as_ann.clone(), bob.clone()).await.unwrap(), UserOutcome::Taken);
    assert_eq!(store.user("u2").await.unwrap(), Some(bob.clone()));
    assert!(store.remove_user("u1").await.unwrap());
    assert!(!store.remove_user("u1").await.unwrap());
    let replaced = store.replace_user(as_ann.clone(), bob.clone()).await.unwrap();
    assert_eq!(replaced, UserOutcome::Stored, "it is free again");
    assert_eq!(store.user_by_email("ann@example.org").await.unwrap(), Some(as_ann));
    assert_eq!(store.user_by_email("bob@example.org").await.unwrap(), None);
    assert_eq!(store.user("u1").await.unwrap(), None);
}

pub async fn users_are_changed_and_listed_by_id_in_pages(store: Arc<dyn Store>) {
    assert_eq!(store.users(None, 2).await.unwrap(), Page { items: vec![], next: None });
    let users = ["U", "u", "u1"].map(|id| user(id, &format!("{id}@example.org")));
    for new in users.iter().rev() {
        assert_eq!(store.add_user(new.clone()).await.unwrap(), UserOutcome::Stored);
        assert_eq!(store.user(&new.id).await.unwrap().as_ref(), Some(new));
    }
    let changed = User { role: Role::Admin, about: UserAbout::default(), ..users[1].clone() };
    for expected in [&users[1], &changed] {
        assert_eq!(store.replace_user(changed.clone(), expected.clone()).await.unwrap(), UserOutcome::Stored);
    }
    let disabled = UserAbout { is_disabled: true, ..UserAbout::default() };
    for outdated in [users[1].clone(), User { about: disabled, ..changed.clone() }] {
        let other = User { role: Role::Viewer, ..changed.clone() };
        assert_eq!(store.replace_user(other, outdated.clone()).await.unwrap(), UserOutcome::Changed);
        assert_eq!(store.replace_user(outdated.clone(), outdated).await.unwrap(), UserOutcome::Changed);
    }
    let [first, _, last] = users;
    let page = store.users(None, 2).await.unwrap();
    assert_eq!(page, Page { items: vec![first, changed], next: Some("u".to_owned()) });
    let page = store.users(page.next.as_deref(), 2).await.unwrap();
    assert_eq!(page, Page { items: vec![last], next: None });
}

/// A secret with a value in every column.
pub(super) fn secret(name: &str, version: u64) -> StoredSecret {
    let patterns = |names: &[&str]| names.iter().map(|name| NamePattern::new(*name)).collect();
    StoredSecret {
        name: name.to_owned(),
        version,
        sealed: SealedValue { key_id: format!("key{version}"), text: "c2VhbGVk".to_owned() },
        about: SecretAbout {
            rule: SecretRule {
                owners: patterns(&["ann", "team-*"]),
                queues: patterns(&["mail-*"]),
                job_types: patterns(&["send"]),
            },
            created_at: at(1),
            set_at: at(2),
            set_by: "ann".to_owned(),
        },
    }
}

pub async fn a_secret_is_added_once_and_changed_only_in_the_expected_version(store: Arc<dyn Store>) {
    assert_eq!(store.secret("db").await.unwrap(), None);
    assert!(!store.replace_secret(secret("db", 2), 1).await.unwrap());
    assert!(store.add_secret(secret("db", 1)).await.unwrap());
    assert!(!store.add_secret(secret("db", 7)).await.unwrap());
    assert_eq!(store.secret("db").await.unwrap(), Some(secret("db", 1)));
    assert!(store.add_secret(secret("DB", 9)).await.unwrap(), "case matters");
    let plain = StoredSecret {
        about: SecretAbout { rule: SecretRule::default(), ..secret("db", 2).about },
        ..secret("db", 2)
    };
    assert!(store.replace_secret(plain.clone(), 1).await.unwrap());
    assert!(!store.replace_secret(secret("db", 2), 1).await.unwrap());
    assert_eq!(store.secret("db").await.unwrap(), Some(plain));
    assert!(store.remove_secret("db").await.unwrap());
    assert!(!store.remove_secret("db").await.unwrap());
    assert_eq!(store.secret("db").await.unwrap(), None);
    assert_eq!(store.secret("DB").await.unwrap(), Some(secret("DB", 9)));
}

pub async fn secrets_are_listed_by_name_in_pages(store: Arc<dyn Store>) {
    assert_eq!(store.secrets(None, 2).await.unwrap(), Page { items: vec![], next: None });
    let secrets = ["A", "a.1", "b"].map(|name| secret(name, 1));
    for new in secrets.iter().rev() {
        assert!(store.add_secret(new.clone()).await.unwrap());
    }
    let first = store.secrets(None, 2).await.unwrap();
    assert_eq!(first.items, secrets[..2]);
    let rest = store.secrets(first.next.as_deref(), 2).await.unwrap();
    assert_eq!(rest, Page { items: secrets[2..].to_vec(), next: None });
}
