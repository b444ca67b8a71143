//! The audit log on the wire.

use crate::client::{Client, ClientError};
use crate::page::Page;
use crate::wire::wire;
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

wire! {
    /// An entry of the audit log: a request that has changed something, or was refused.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub struct AuditEntryBody as "AuditEntry" {
        /// Its id. Ids sort by time.
        pub entry_id: String = text().example(JOB_EXAMPLE),
        /// When the request was made.
        pub at: Timestamp,
        /// The id of the caller's token.
        pub token_id: String = text().example("k3v8x0q2m7ab"),
        /// The name of the token.
        pub name: String = text().example("deploy"),
        /// The user, if the caller is one.
        pub user_id: Option<String> = text().example("u4c9d1e7f2gh"),
        /// The address that the request came from.
        pub source: Option<String> = text().example("192.0.2.7"),
        /// What was requested.
        pub action: String = text().example("queue.pause"),
        /// What it was about; empty for a request that was refused before that was read.
        pub object: String = text().example("queue mail"),
        /// `ok`; `3 of 4` if only some items of the request were changed; or `refused: ` and the reason.
        pub outcome: String = text().example("ok"),
        /// What was before and after, or counts.
        pub details: Option<Box<RawValue>> = any(),
        /// Its place in the chain; null until it is sealed, within seconds.
        pub number: Option<u64>,
        /// The hash over the entry before it and this one, in hexadecimal digits.
        pub hash: Option<String> = text(),
    }

    /// The result of verifying a part of the audit log's chain.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AuditCheckBody as "AuditCheck" {
        /// How many entries are as they were sealed.
        pub checked: u64,
        /// The first entry that is not; null if there is none.
        pub broken: Option<BrokenEntryBody>,
        /// Pass it as `after` to continue; null if the end was reached.
        pub next: Option<u64>,
        /// The number of the last entry that retention has deleted; 0 if it has deleted none.
        pub deleted_until: u64,
        /// The number of the last sealed entry.
        pub last_number: u64,
        /// Its hash. Keep it elsewhere to detect later whether the whole chain was replaced.
        pub last_hash: String = text(),
        /// How many entries are not in the chain yet: the newest ones, which are sealed within seconds while a
        /// scheduler runs. A change of them cannot be detected before.
        pub unsealed: u64,
    }

    /// An entry of the audit log that was changed, removed or inserted.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BrokenEntryBody as "BrokenAuditEntry" {
        /// Its number; 0 if the whole chain was damaged.
        pub number: u64,
        /// What is wrong.
        pub problem: String = text().example("it was removed"),
    }
}

/// Selects entries of the audit log. An omitted field matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct AuditFilter {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The beginning of the action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The beginning of the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Client {
    /// Entries of the audit log, latest first. A page may be short and still have a next one.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<Page<AuditEntryBody>, ClientError> {
        let page = [("limit", limit.map(|limit| limit.to_string())), ("cursor", cursor.map(str::to_owned))];
        let page: Vec<_> = page.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.send(self.request(Method::GET, "/audit").query(filter).query(&page)).await
    }

    /// Verifies the audit log after this number, one bounded step.
    pub async fn verify_audit(&self, after: u64) -> Result<AuditCheckBody, ClientError> {
        self.send(self.request(Method::GET, "/audit/verify").query(&[("after", after)])).await
    }
}
