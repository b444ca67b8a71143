//! Requests with a key: a request begun under a key is continued, and a stored response is repeated.

use super::{AuditResult, Auditor, rule};
use punctual_core::ports::{NewRequest, RequestKey, RequestState, StoredAnswer};
use punctual_core::time::Timestamp;

#[derive(Debug)]
pub(super) struct RequestModel {
    fingerprint: [u8; 32],
    at: Timestamp,
    seed: u64,
    /// With the true time of the response.
    answer: Option<(StoredAnswer, Timestamp)>,
}

impl Auditor {
    pub fn request_begun(&mut self, now: Timestamp, new: &NewRequest, state: &RequestState) -> AuditResult {
        self.not_ahead(now)?;
        let is_begun = matches!(state, RequestState::Begun { .. });
        let expected = match self.requests.get(&new.request) {
            None => {
                let NewRequest { request, fingerprint, seed } = new.clone();
                self.requests.insert(request, RequestModel { fingerprint, at: now, seed, answer: None });
                RequestState::Begun { at: now, seed, is_new: true }
            }
            Some(known) if known.fingerprint != new.fingerprint => RequestState::Mismatch,
            Some(known) => match &known.answer {
                // A server store may read the row before an answer that is committed while this call runs.
                Some((answer, answered_at)) if *answered_at <= now || !is_begun => {
                    RequestState::Answered(answer.clone())
                }
                _ => RequestState::Begun { at: known.at, seed: known.seed, is_new: false },
            },
        };
        rule!(
            *state == expected,
            "a request with a key is begun once",
            "{new:?}: expected {expected:?}, got {state:?}"
        );
        if !matches!(expected, RequestState::Begun { is_new: true, .. }) {
            self.count("requests repeated with their key");
        }
        Ok(())
    }

    pub fn request_answered(&mut self, request: &RequestKey, answer: &StoredAnswer) -> AuditResult {
        let now = self.now;
        let known = self.requests.get_mut(request);
        rule!(known.is_some(), "only a request that was begun is answered", "{request:?}");
        if let Some(known) = known {
            known.answer = Some((answer.clone(), now));
        }
        Ok(())
    }
}
