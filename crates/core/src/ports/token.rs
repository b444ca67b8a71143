//! API tokens and their roles.

use crate::time::Timestamp;

/// An API token; the secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The public part, by which it is found.
    pub id: String,
    pub secret_sha256: [u8; 32],
    pub role: Role,
    pub created_at: Timestamp,
}

/// What a token may do, each including the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    Viewer,
    Submitter,
    Operator,
    Admin,
}
