//! Tokens, users, secrets and documents.

use super::audit::{entries, entry};
use super::fixture::at;
use punctual_core::access::{GrantTerms, NamePattern, Permission, Role, Scope};
use punctual_core::ports::{
    BoundedAddition, DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, DocumentLimit, DocumentShare, Page, ParentToken, ReplacedSecret, SealedValue, SecretAbout, Store, StoredDocument, StoredSecret, Token, TokenAbout, User,
    UserAbout,
};
use punctual_core::secrets::SecretRule;
use std::sync::Arc;

/// A token with only the required columns set.
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

/// Applies a change without an entry.
pub(super) async fn changed(store: &dyn Store, change: DirectoryChange) -> DirectoryOutcome {
    store.change_directory(change, None).await.unwrap()
}

async fn replaced(store: &dyn Store, token: &Token, expected: &Token) -> bool {
    let change = DirectoryChange::ReplaceToken { token: token.clone(), expected: expected.clone() };
    changed(store, change).await == DirectoryOutcome::Done
}

async fn replaced_user(store: &dyn Store, user: &User, expected: &User) -> DirectoryOutcome {
    let change = DirectoryChange::ReplaceUser { user: user.clone(), expected: expected.clone() };
    changed(store, change).await
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
    let add = |token: &Token| changed(&*store, DirectoryChange::AddToken(token.clone()));
    assert_eq!(add(&first).await, DirectoryOutcome::Done);
    assert_eq!(add(&second).await, DirectoryOutcome::Exists(Box::new(first.clone())));
    // A caller that got no reply repeats the call.
    assert_eq!(add(&first).await, DirectoryOutcome::Done);
    assert_eq!(store.token("t1").await.unwrap(), Some(first));
    store.put_token(second.clone()).await.unwrap();
    let third = Token { role: Role::Viewer, ..second.clone() };
    assert_eq!(add(&third).await, DirectoryOutcome::Exists(Box::new(second)));
}

pub async fn a_token_is_changed_only_while_it_is_as_expected(store: Arc<dyn Store>) {
    let (old, new) = (plain_token("t1", 7), full_token("t1", 8));
    assert!(!replaced(&*store, &new, &old).await, "it does not exist");
    store.put_token(Token { last_used_at: Some(at(20)), ..old.clone() }).await.unwrap();
    let others = [
        plain_token("t1", 9),
        Token { role: Role::Viewer, ..old.clone() },
        Token { expires_at: Some(at(500)), ..old.clone() },
        Token { about: new.about.clone(), ..old.clone() },
    ];
    for other in others {
        assert!(!replaced(&*store, &new, &other).await, "{other:?}");
    }
    assert_eq!(store.token("t1").await.unwrap().unwrap().secret_sha256, [7; 32]);
    assert!(replaced(&*store, &new, &old).await, "the last use is not compared");
    let stored = Token { last_used_at: Some(at(20)), ..new.clone() };
    assert_eq!(store.token("t1").await.unwrap(), Some(stored), "everything except the last use");
    assert!(!replaced(&*store, &new, &old).await, "its secret has changed");
    assert!(!replaced(&*store, &old, &Token { expires_at: None, ..new.clone() }).await);
    assert!(replaced(&*store, &new, &new).await, "even if nothing changes");
}

/// The entry exists if and only if the change took effect.
pub async fn a_change_of_tokens_or_users_and_its_entry_are_one(store: Arc<dyn Store>) {
    use DirectoryChange::{AddToken, AddUser, PutToken, RemoveToken, RemoveUser, ReplaceToken, ReplaceUser};
    use DirectoryOutcome::{Changed, Done, Exists, NotThere, Taken};
    let (token, rotated) = (plain_token("t1", 7), full_token("t1", 8));
    let (ann, bob) = (user("u1", "ann@example.org"), user("u2", "bob@example.org"));
    let disabled = User { about: UserAbout::default(), ..ann.clone() };
    let replace = |token: &Token, expected: &Token| ReplaceToken {
        token: token.clone(),
        expected: expected.clone(),
    };
    let replace_user = |user: &User, expected: &User| ReplaceUser {
        user: user.clone(),
        expected: expected.clone(),
    };
    let remove_user = || RemoveUser { id: "u1".to_owned(), tokens: vec!["t1".to_owned(), "t2".to_owned()] };
    let changes = [
        (AddToken(token.clone()), Done),
        (AddToken(rotated.clone()), Exists(Box::new(token.clone()))),
        (replace(&rotated, &token), Done),
        (replace(&rotated, &token), Changed),
        (PutToken(token.clone()), Done),
        (RemoveToken("t2".to_owned()), NotThere),
        (RemoveToken("t1".to_owned()), Done),
        (PutToken(token.clone()), Done),
        (PutToken(plain_token("t2", 7)), Done),
        (PutToken(plain_token("t3", 7)), Done),
        (AddUser(ann.clone()), Done),
        (AddUser(user("u3", "ann@example.org")), Taken),
        (replace_user(&disabled, &ann), Done),
        (replace_user(&disabled, &ann), Changed),
        (replace_user(&bob, &bob), NotThere),
        (remove_user(), Done),
        (remove_user(), NotThere),
    ];
    let mut expected = Vec::new();
    for (number, (change, outcome)) in (1..).zip(changes) {
        let reply = store.change_directory(change.clone(), Some(entry(number))).await.unwrap();
        assert_eq!(reply, outcome, "{change:?}");
        if outcome == Done {
            expected.insert(0, entry(number));
        }
        let stored: Vec<_> = entries(&*store).await.into_iter().map(|row| row.entry).collect();
        assert_eq!(stored, expected, "{change:?}");
    }
    let left: Vec<String> = store.tokens(None, 9).await.unwrap().items.into_iter().map(|token| token.id).collect();
    assert_eq!(left, ["t3"], "a user goes with its tokens");
    // A caller that got no reply repeats the call.
    store.change_directory(PutToken(token.clone()), Some(entry(99))).await.unwrap();
    store.change_directory(PutToken(token), Some(entry(99))).await.unwrap();
    assert_eq!(entries(&*store).await.len(), expected.len() + 1);
}

pub async fn a_removed_token_is_gone(store: Arc<dyn Store>) {
    store.put_token(plain_token("t1", 7)).await.unwrap();
    store.put_token(plain_token("t2", 7)).await.unwrap();
    let remove = || changed(&*store, DirectoryChange::RemoveToken("t1".to_owned()));
    assert_eq!(remove().await, DirectoryOutcome::Done);
    assert_eq!(remove().await, DirectoryOutcome::NotThere);
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
    assert_eq!(changed(&*store, DirectoryChange::AddUser(ann.clone())).await, DirectoryOutcome::Done);
    for taken in [user("u1", "other@example.org"), user("u2", "ann@example.org")] {
        assert_eq!(changed(&*store, DirectoryChange::AddUser(taken)).await, DirectoryOutcome::Taken);
    }
    let bob = User { about: UserAbout::default(), role: Role::Viewer, ..user("u2", "bob@example.org") };
    assert_eq!(replaced_user(&*store, &bob, &bob).await, DirectoryOutcome::NotThere);
    assert_eq!(changed(&*store, DirectoryChange::AddUser(bob.clone())).await, DirectoryOutcome::Done);
    let as_ann = User { email: ann.email.clone(), ..bob.clone() };
    assert_eq!(replaced_user(&*store, &as_ann, &bob).await, DirectoryOutcome::Taken);
    assert_eq!(store.user("u2").await.unwrap(), Some(bob.clone()));
    let remove = || DirectoryChange::RemoveUser { id: "u1".to_owned(), tokens: vec![] };
    assert_eq!(changed(&*store, remove()).await, DirectoryOutcome::Done);
    assert_eq!(changed(&*store, remove()).await, DirectoryOutcome::NotThere);
    let replaced = replaced_user(&*store, &as_ann, &bob).await;
    assert_eq!(replaced, DirectoryOutcome::Done, "it is free again");
    assert_eq!(store.user_by_email("ann@example.org").await.unwrap(), Some(as_ann));
    assert_eq!(store.user_by_email("bob@example.org").await.unwrap(), None);
    assert_eq!(store.user("u1").await.unwrap(), None);
}

pub async fn users_are_changed_and_listed_by_id_in_pages(store: Arc<dyn Store>) {
    assert_eq!(store.users(None, 2).await.unwrap(), Page { items: vec![], next: None });
    let users = ["U", "u", "u1"].map(|id| user(id, &format!("{id}@example.org")));
    for new in users.iter().rev() {
        assert_eq!(changed(&*store, DirectoryChange::AddUser(new.clone())).await, DirectoryOutcome::Done);
        assert_eq!(store.user(&new.id).await.unwrap().as_ref(), Some(new));
    }
    let promoted = User { role: Role::Admin, about: UserAbout::default(), ..users[1].clone() };
    for expected in [&users[1], &promoted] {
        assert_eq!(replaced_user(&*store, &promoted, expected).await, DirectoryOutcome::Done);
    }
    let disabled = UserAbout { is_disabled: true, ..UserAbout::default() };
    for outdated in [users[1].clone(), User { about: disabled, ..promoted.clone() }] {
        let other = User { role: Role::Viewer, ..promoted.clone() };
        assert_eq!(replaced_user(&*store, &other, &outdated).await, DirectoryOutcome::Changed);
        assert_eq!(replaced_user(&*store, &outdated, &outdated).await, DirectoryOutcome::Changed);
    }
    let [first, _, last] = users;
    let page = store.users(None, 2).await.unwrap();
    assert_eq!(page, Page { items: vec![first, promoted], next: Some("u".to_owned()) });
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

async fn replaced_secret(store: &dyn Store, new: StoredSecret) -> DirectoryOutcome {
    let change = DirectoryChange::ReplaceSecret { secret: new, expected: secret("db", 1) };
    changed(store, change).await
}

pub async fn a_secret_is_added_once_and_changed_only_in_the_expected_version(store: Arc<dyn Store>) {
    assert_eq!(store.secret("db").await.unwrap(), None);
    assert_eq!(replaced_secret(&*store, secret("db", 2)).await, DirectoryOutcome::Changed);
    assert_eq!(changed(&*store, DirectoryChange::AddSecret(secret("db", 1))).await, DirectoryOutcome::Done);
    assert_eq!(changed(&*store, DirectoryChange::AddSecret(secret("db", 7))).await, DirectoryOutcome::Taken);
    assert_eq!(store.secret("db").await.unwrap(), Some(secret("db", 1)));
    assert_eq!(changed(&*store, DirectoryChange::AddSecret(secret("DB", 9))).await, DirectoryOutcome::Done, "case matters");
    let plain = StoredSecret {
        about: SecretAbout { rule: SecretRule::default(), ..secret("db", 2).about },
        ..secret("db", 2)
    };
    assert_eq!(replaced_secret(&*store, plain.clone()).await, DirectoryOutcome::Done);
    assert_eq!(replaced_secret(&*store, secret("db", 2)).await, DirectoryOutcome::Changed);
    assert_eq!(store.secret("db").await.unwrap(), Some(plain));
    let remove = |secret: StoredSecret| changed(&*store, DirectoryChange::RemoveSecret(secret));
    assert_eq!(remove(secret("db", 1)).await, DirectoryOutcome::Changed, "the stored one is another version");
    assert_eq!(remove(secret("db", 2)).await, DirectoryOutcome::Done);
    assert_eq!(remove(secret("db", 2)).await, DirectoryOutcome::Changed);
    assert_eq!(store.secret("db").await.unwrap(), None);
    // A new secret has the version of an old one with the same name, and another encrypted value.
    let sealed = SealedValue { key_id: "key1".to_owned(), text: "C2VhbGVk".to_owned() };
    let new = StoredSecret { sealed, ..secret("db", 1) };
    assert_eq!(changed(&*store, DirectoryChange::AddSecret(new.clone())).await, DirectoryOutcome::Done);
    assert_eq!(replaced_secret(&*store, secret("db", 2)).await, DirectoryOutcome::Changed);
    assert_eq!(remove(secret("db", 1)).await, DirectoryOutcome::Changed);
    assert_eq!(store.secret("db").await.unwrap(), Some(new));
    assert_eq!(store.secret("DB").await.unwrap(), Some(secret("DB", 9)));
}

pub async fn secrets_are_listed_by_name_in_pages(store: Arc<dyn Store>) {
    assert_eq!(store.secrets(None, 2).await.unwrap(), Page { items: vec![], next: None });
    let secrets = ["A", "a.1", "b"].map(|name| secret(name, 1));
    for new in secrets.iter().rev() {
        assert_eq!(changed(&*store, DirectoryChange::AddSecret(new.clone())).await, DirectoryOutcome::Done);
    }
    let first = store.secrets(None, 2).await.unwrap();
    assert_eq!(first.items, secrets[..2]);
    let rest = store.secrets(first.next.as_deref(), 2).await.unwrap();
    assert_eq!(rest, Page { items: secrets[2..].to_vec(), next: None });
}

/// A version of a document.
pub(super) fn document(name: &str, version: u64) -> StoredDocument {
    let body = format!("{{\"version\":{version},\"ü\":\"'\\\\\"}}");
    StoredDocument { kind: DocumentKind::View, name: name.to_owned(), version, body }
}

async fn change_documents(store: &dyn Store, changes: &[DocumentChange]) -> DirectoryOutcome {
    changed(store, DirectoryChange::Documents(changes.to_vec())).await
}

fn removal(name: &str, version: u64) -> DocumentChange {
    DocumentChange::Remove { kind: DocumentKind::View, name: name.to_owned(), version }
}

pub async fn documents_change_by_version_and_all_or_none(store: Arc<dyn Store>) {
    use DirectoryOutcome::{Changed, Done, NotThere, Taken};
    use DocumentChange::{Add, Replace};
    let names = async || {
        let page = store.documents(DocumentKind::View, None, 9).await.unwrap();
        page.items.into_iter().map(|document| (document.name, document.version)).collect::<Vec<_>>()
    };
    let named = |documents: &[(&str, u64)]| -> Vec<(String, u64)> {
        documents.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
    };
    assert_eq!(change_documents(&*store, &[]).await, Done);
    assert_eq!(store.document(DocumentKind::View, "a").await.unwrap(), None);
    let both = [Add(document("b", 1)), Add(document("a", 1))];
    assert_eq!(change_documents(&*store, &both).await, Done);
    assert_eq!(store.document(DocumentKind::View, "a").await.unwrap(), Some(document("a", 1)));
    assert_eq!(change_documents(&*store, &both).await, Done, "a caller that got no reply repeats the call");
    for (changes, outcome) in [
        (vec![Add(document("c", 1)), Add(document("a", 2))], Taken),
        (vec![Add(document("c", 1)), Replace(document("a", 3))], Changed),
        (vec![Replace(document("a", 2)), Replace(document("c", 2))], NotThere),
        (vec![Replace(document("a", 2)), removal("b", 2)], Changed),
        (vec![Replace(document("a", 2)), removal("c", 1)], NotThere),
        (vec![removal("c", 1)], NotThere),
        // Part of it already has the requested state: another change did that.
        (vec![Add(document("a", 1)), Add(document("c", 1))], Changed),
    ] {
        assert_eq!(change_documents(&*store, &changes).await, outcome, "{changes:?}");
        assert_eq!(names().await, named(&[("a", 1), ("b", 1)]), "{changes:?}");
    }
    let changes = [Replace(document("a", 2)), removal("b", 1), Add(document("A", 1))];
    for _ in 0..2 {
        assert_eq!(change_documents(&*store, &changes).await, Done);
        assert_eq!(names().await, named(&[("A", 1), ("a", 2)]), "in the order of bytes");
    }
}

pub async fn documents_are_listed_by_kind_and_name_in_pages(store: Arc<dyn Store>) {
    let kinds = [DocumentKind::Silence, DocumentKind::View, DocumentKind::Series];
    for kind in kinds {
        assert_eq!(store.documents(kind, None, 2).await.unwrap(), Page { items: vec![], next: None });
    }
    let of = |kind| ["x", "y/z", "z"].map(|name| StoredDocument { kind, ..document(name, 1) });
    let all: Vec<_> = kinds.into_iter().flat_map(of).map(DocumentChange::Add).collect();
    assert_eq!(change_documents(&*store, &all).await, DirectoryOutcome::Done);
    for kind in kinds {
        let first = store.documents(kind, None, 2).await.unwrap();
        assert_eq!(first, Page { items: of(kind)[..2].to_vec(), next: Some("y/z".to_owned()) });
        let rest = store.documents(kind, first.next.as_deref(), 2).await.unwrap();
        assert_eq!(rest, Page { items: of(kind)[2..].to_vec(), next: None });
        let all = store.documents(kind, None, 3).await.unwrap();
        assert_eq!(all.items, of(kind));
    }
    assert_eq!(store.document(DocumentKind::Calendar, "x").await.unwrap(), None);
}

pub async fn a_document_changes_once_when_many_change_it(store: Arc<dyn Store>) {
    let attempts = (1..=6).map(|number| {
        let (store, body) = (store.clone(), format!("{{\"by\":{number}}}"));
        async move {
            let add = DocumentChange::Add(StoredDocument { body, ..document("racing", 1) });
            changed(&*store, DirectoryChange::Documents(vec![add])).await
        }
    });
    let outcomes = futures_util::future::join_all(attempts).await;
    let done = outcomes.iter().filter(|outcome| **outcome == DirectoryOutcome::Done).count();
    assert_eq!(done, 1, "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, DirectoryOutcome::Done | DirectoryOutcome::Taken)));
}

pub async fn additions_at_once_do_not_exceed_their_limit(store: Arc<dyn Store>) {
    const MAX: usize = 3;
    let add = async |name: &str| {
        let limit = DocumentLimit { after: "2-", max: MAX, share: None };
        store.add_within(document(name, 1), limit, None).await.unwrap()
    };
    // Names before the limit's first one do not count.
    for finished in ["1-a", "1-b", "1-c"] {
        assert_eq!(changed(&*store, DirectoryChange::Documents(vec![DocumentChange::Add(document(finished, 1))])).await, DirectoryOutcome::Done);
    }
    let names: Vec<String> = (0..3 * MAX).map(|number| format!("2-{number}")).collect();
    let outcomes = futures_util::future::join_all(names.iter().map(|name| add(name))).await;
    let stored = store.documents(DocumentKind::View, Some("2-"), 100).await.unwrap().items;
    assert_eq!(stored.len(), MAX, "{outcomes:?}");
    let count = |wanted: BoundedAddition| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    assert_eq!((count(BoundedAddition::Done), count(BoundedAddition::Full)), (MAX, 2 * MAX), "{outcomes:?}");
    assert_eq!(add(&stored[0].name).await, BoundedAddition::Taken, "a repeated call");
    assert_eq!(change_documents(&*store, &[removal(&stored[0].name, 1)]).await, DirectoryOutcome::Done);
    assert_eq!(add("2-x").await, BoundedAddition::Done, "there is room again");
    assert_eq!(add("2-y").await, BoundedAddition::Full);
    // One sort may have a part of the room.
    let of_sort = async |name: &str, max: usize, sort: &str| {
        let counts = |document: &StoredDocument| document.name.starts_with(sort);
        let limit = DocumentLimit { after: "3-", max: 3, share: Some(DocumentShare { max, counts: &counts }) };
        store.add_within(document(name, 1), limit, None).await.unwrap()
    };
    assert_eq!(of_sort("3-a-1", 2, "3-a-").await, BoundedAddition::Done);
    assert_eq!(of_sort("3-a-2", 2, "3-a-").await, BoundedAddition::Done);
    assert_eq!(of_sort("3-a-3", 2, "3-a-").await, BoundedAddition::ShareFull);
    assert_eq!(of_sort("3-b-1", 2, "3-b-").await, BoundedAddition::Done);
    assert_eq!(of_sort("3-b-2", 2, "3-b-").await, BoundedAddition::Full);
}
