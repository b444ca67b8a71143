//! Tokens, users and the caller on the wire.

use crate::client::{Client, ClientError, segment};
use crate::duration::Span;
use crate::page::Page;
use crate::wire::wire;
use punctual_core::access::{Permission, Role};
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::borrow::Cow;
use std::str::FromStr;

wire! {
    /// A token to create.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct CreateToken as "CreateToken" {
        /// What it is for, such as the name of a service.
        pub name: String = name().example("deploy"),
        /// Its role, which decides what it may do. Required unless `user_id` is given.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "optional_word")]
        pub role: Option<Role> = words::<Role>().example("submitter"),
        /// The owner of the jobs that it submits and, unless `all_owners` is true, the only one whose jobs it
        /// reaches. A submitter without one is its own owner, by its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner_id: Option<String> = name().example("team-mail"),
        /// Whether it reaches the jobs of all owners. By default true for a token without an owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub all_owners: Option<bool>,
        /// The queues that it is limited to, as names in which `*` stands for any text; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "empty_if_null")]
        pub queues: Vec<String> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A queue, or a pattern."))).example(vec!["mail-*"]),
        /// The job types that it is limited to, as names in which `*` stands for any text; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "empty_if_null")]
        pub job_types: Vec<String> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A job type, or a pattern."))).example(vec!["send-*"]),
        /// Permissions beyond those of its role.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "words_or_empty_if_null")]
        pub permissions: Vec<Permission> = list(words::<Permission>().about("A permission.")),
        /// When it stops working; by default never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<Timestamp>,
        /// How long it works, in place of `expires_at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_after: Option<Span> = the("Duration").example("30d"),
        /// The user to whom it belongs. It may then do what the user may, and has no role, owner, scope or
        /// permissions of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub user_id: Option<String> = name().example(USER_EXAMPLE),
    }

    /// A token. Of its secret, the server keeps only a hash.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TokenBody as "Token" {
        /// Its public id.
        pub token_id: String = text().example(TOKEN_EXAMPLE),
        /// The whole token, for the header `Authorization: Bearer`. Only in the answer to the request that made
        /// it: it cannot be read again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub secret: Option<String> = text(),
        /// What it is for.
        pub name: String = text().example("deploy"),
        /// Its role. For a token of a user, the user's, as are its owner, scope and permissions.
        pub role: String = words::<Role>(),
        /// The owner of the jobs that it submits without naming one; null for the default owner.
        pub owner_id: Option<String> = text().example("team-mail"),
        /// It reaches the jobs of all owners, not only those of `owner_id`.
        pub all_owners: bool,
        /// The queues that it is limited to; empty for all.
        pub queues: Vec<String> = list(text().about("A queue, or a pattern.")),
        /// The job types that it is limited to; empty for all.
        pub job_types: Vec<String> = list(text().about("A job type, or a pattern.")),
        /// Permissions beyond those of its role.
        pub permissions: Vec<String> = list(words::<Permission>().about("A permission.")),
        /// The user to whom it belongs.
        pub user_id: Option<String> = text().example(USER_EXAMPLE),
        /// It is the session of a browser.
        #[serde(default)]
        pub browser: bool,
        /// When it was created.
        pub created_at: Timestamp,
        /// When it stops working; null for never.
        pub expires_at: Option<Timestamp>,
        /// When it was last used, to about a minute; null if never.
        pub last_used_at: Option<Timestamp>,
        /// Until when the secret before the last rotation works; omitted if it does not work any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub old_secret_until: Option<Timestamp>,
    }

    /// How to rotate a token.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct RotateToken as "RotateToken" {
        /// For how long the old secret works beside the new one, at most 7 days. `0s` ends it at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub overlap: Option<Span> = the("Duration").otherwise("1h"),
        /// When it stops working from now on; by default as before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<Timestamp>,
        /// How long it works from now on, in place of `expires_at`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires_after: Option<Span> = the("Duration").example("30d"),
    }
}

wire! {
    /// A user to add.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct CreateUser as "CreateUser" {
        /// The email address, by which users log in. Case does not matter.
        pub email: String = name().example("ann@example.org"),
        /// The name to show.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub display_name: Option<String> = text().example("Ann Example"),
        /// The role, which decides what the user may do.
        #[serde(deserialize_with = "word")]
        pub role: Role = words::<Role>().example("operator"),
        /// The owner of the jobs that the user submits and, unless `all_owners` is true, the only one whose jobs
        /// the user reaches. Users of a team have the same one. A submitter without one is the owner, by the
        /// email address.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner_id: Option<String> = name().example("team-mail"),
        /// Whether the user reaches the jobs of all owners. By default true for a user without an owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub all_owners: Option<bool>,
        /// The queues that the user is limited to, as names in which `*` stands for any text; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "empty_if_null")]
        pub queues: Vec<String> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A queue, or a pattern."))).example(vec!["mail-*"]),
        /// The job types that the user is limited to, as names in which `*` stands for any text; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "empty_if_null")]
        pub job_types: Vec<String> =
            up_to(limits::SCOPE_PATTERNS_MAX, list(name().about("A job type, or a pattern."))).example(vec!["send-*"]),
        /// Permissions beyond those of the role.
        #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "words_or_empty_if_null")]
        pub permissions: Vec<Permission> = list(words::<Permission>().about("A permission.")),
        /// How the user prefers to be notified, such as `email` or `slack`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub notification_channel: Option<String> = text().example("email"),
    }

    /// A user.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct UserBody as "User" {
        /// The id.
        pub user_id: String = text().example(USER_EXAMPLE),
        /// The email address, in lower case.
        pub email: String = text().example("ann@example.org"),
        /// The name to show.
        pub display_name: Option<String> = text().example("Ann Example"),
        /// The role.
        pub role: String = words::<Role>(),
        /// The owner of the jobs that the user submits without naming one; null for the default owner.
        pub owner_id: Option<String> = text().example("team-mail"),
        /// The user reaches the jobs of all owners, not only those of `owner_id`.
        pub all_owners: bool,
        /// The queues that the user is limited to; empty for all.
        pub queues: Vec<String> = list(text().about("A queue, or a pattern.")),
        /// The job types that the user is limited to; empty for all.
        pub job_types: Vec<String> = list(text().about("A job type, or a pattern.")),
        /// Permissions beyond those of the role.
        pub permissions: Vec<String> = list(words::<Permission>().about("A permission.")),
        /// How the user prefers to be notified.
        pub notification_channel: Option<String> = text().example("email"),
        /// The user may not log in, and tokens of the user do not work.
        pub disabled: bool,
        /// When the user was added.
        pub created_at: Timestamp,
    }
}

wire! {
    /// The caller: its token and what it may do.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct MeBody as "Me" {
        /// The public id of the token.
        pub token_id: String = text().example(TOKEN_EXAMPLE),
        /// The name of the token, or of the user.
        #[serde(default)]
        pub name: String = text().example("deploy"),
        /// The role.
        pub role: String = words::<Role>(),
        /// The user, if the caller is one.
        #[serde(default)]
        pub user_id: Option<String> = text().example(USER_EXAMPLE),
        /// The owner of the jobs that it submits without naming one.
        #[serde(default)]
        pub owner_id: String = text().example("team-mail"),
        /// It reaches the jobs of all owners, not only those of `owner_id`.
        #[serde(default)]
        pub all_owners: bool,
        /// The queues that it is limited to; empty for all.
        #[serde(default)]
        pub queues: Vec<String> = list(text().about("A queue, or a pattern.")),
        /// The job types that it is limited to; empty for all.
        #[serde(default)]
        pub job_types: Vec<String> = list(text().about("A job type, or a pattern.")),
        /// All permissions: those of the role, and further ones.
        #[serde(default)]
        pub permissions: Vec<String> = list(words::<Permission>().about("A permission.")),
    }
}

/// Ids in examples.
#[cfg(feature = "schema")]
const TOKEN_EXAMPLE: &str = "k3v8x0q2m7ab";
#[cfg(feature = "schema")]
const USER_EXAMPLE: &str = "u4c9d1e7f2gh";

/// A word of an enum. Serde's own errors about enums do not say what is expected.
struct Word<T>(T);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map(Word).map_err(de::Error::custom)
    }
}

fn word<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(deserializer: D) -> Result<T, D::Error> {
    Word::deserialize(deserializer).map(|word| word.0)
}

fn optional_word<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Word<T>>::deserialize(deserializer)?.map(|word| word.0))
}

fn words_or_empty_if_null<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let words = Option::<Vec<Word<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(words.into_iter().map(|word| word.0).collect())
}

fn empty_if_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Client {
    /// All tokens, by id.
    pub async fn tokens(&self) -> Result<Page<TokenBody>, ClientError> {
        self.all_pages("/tokens").await
    }

    pub async fn token(&self, id: &str) -> Result<TokenBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/tokens/{}", segment(id)))).await
    }

    /// Creates a token; only this response has its secret.
    pub async fn create_token(&self, token: &CreateToken) -> Result<TokenBody, ClientError> {
        self.send(self.request(Method::POST, "/tokens").json(token)).await
    }

    /// Changes only the fields that the patch names (RFC 7396; null resets a field to its default).
    pub async fn update_token(&self, id: &str, patch: &impl Serialize) -> Result<TokenBody, ClientError> {
        self.send(self.request(Method::PATCH, &format!("/tokens/{}", segment(id))).json(patch)).await
    }

    /// Gives a token a new secret; only this response has it.
    pub async fn rotate_token(&self, id: &str, how: &RotateToken) -> Result<TokenBody, ClientError> {
        self.send(self.request(Method::POST, &format!("/tokens/{}/rotate", segment(id))).json(how)).await
    }

    /// Removes a token. The sessions of workers that it opened end.
    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        self.exchange(self.request(Method::DELETE, &format!("/tokens/{}", segment(id)))).await.map(|_| ())
    }

    /// All users, by id.
    pub async fn users(&self) -> Result<Page<UserBody>, ClientError> {
        self.all_pages("/users").await
    }

    /// A user by id or email address.
    pub async fn user(&self, user: &str) -> Result<UserBody, ClientError> {
        self.send(self.request(Method::GET, &format!("/users/{}", segment(user)))).await
    }

    pub async fn add_user(&self, user: &CreateUser) -> Result<UserBody, ClientError> {
        self.send(self.request(Method::POST, "/users").json(user)).await
    }

    /// Changes only the fields that the patch names (RFC 7396; null resets a field to its default).
    pub async fn update_user(&self, user: &str, patch: &impl Serialize) -> Result<UserBody, ClientError> {
        self.send(self.request(Method::PATCH, &format!("/users/{}", segment(user))).json(patch)).await
    }

    /// Removes a user and the tokens that belong to it.
    pub async fn remove_user(&self, user: &str) -> Result<(), ClientError> {
        self.exchange(self.request(Method::DELETE, &format!("/users/{}", segment(user)))).await.map(|_| ())
    }

    /// The identity of this client on the server.
    pub async fn me(&self) -> Result<MeBody, ClientError> {
        self.send(self.request(Method::GET, "/me")).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_absent_fields_of_a_request_are_the_same() {
        let full: CreateToken = serde_json::from_str(
            r#"{"name":"a","role":null,"queues":null,"job_types":null,"permissions":null,"expires_after":null}"#,
        )
        .unwrap();
        assert_eq!(full, CreateToken { name: "a".to_owned(), ..CreateToken::default() });
        assert_eq!(serde_json::to_string(&full).unwrap(), r#"{"name":"a"}"#);
        assert!(serde_json::from_str::<CreateToken>(r#"{"name":"a","scope":"x"}"#).is_err());
    }

    #[test]
    fn a_secret_is_only_there_if_it_is_told() {
        let text = r#"{"token_id":"a","name":"n","role":"poet","owner_id":null,"all_owners":true,"queues":[],
            "job_types":[],"permissions":["poems:read"],"user_id":null,"created_at":"2026-11-15T08:30:00Z",
            "expires_at":null,"last_used_at":null,"colour":"red"}"#;
        let token: TokenBody = serde_json::from_str(text).unwrap();
        assert_eq!((token.role.as_str(), token.secret.as_deref()), ("poet", None), "of a later version");
        let written = serde_json::to_value(&token).unwrap();
        assert!(written.get("secret").is_none() && written["expires_at"].is_null());
    }
}
