//! Requests with a key, which can be repeated without doing anything twice.

use super::{UseCaseError, UseCases};
use crate::IdSource;
use punctual_core::access::Permission;
use punctual_core::ports::{NewRequest, RequestKey, RequestState, StoredAnswer};
use punctual_core::time::Timestamp;

/// One try of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestTry {
    /// The source of ids for what it creates; `None` without a key.
    pub ids: Option<IdSource>,
    /// An earlier try was not answered, but may have taken effect.
    pub is_repeated: bool,
}

impl RequestTry {
    /// The time of the first try.
    pub fn began_at(&self, now: Timestamp) -> Timestamp {
        self.ids.map_or(now, |ids| ids.at)
    }
}

impl UseCases {
    /// Records that a request of the caller with this key is in progress, unless one is recorded already.
    pub async fn begin_request(
        &self,
        key: String,
        fingerprint: [u8; 32],
        seed: u64,
    ) -> Result<RequestState, UseCaseError> {
        self.caller.check_permission(Permission::JobsWrite)?;
        let request = NewRequest { request: self.request_key(key), fingerprint, seed };
        Ok(self.store().begin_request(self.now(), request).await?)
    }

    /// Stores the response for repeats.
    pub async fn answer_request(&self, key: String, answer: StoredAnswer) -> Result<(), UseCaseError> {
        self.caller.check_permission(Permission::JobsWrite)?;
        Ok(self.store().answer_request(self.request_key(key), answer).await?)
    }

    fn request_key(&self, key: String) -> RequestKey {
        RequestKey { token: self.caller.token_id.clone(), key }
    }
}
