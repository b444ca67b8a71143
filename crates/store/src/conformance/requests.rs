//! Requests with an idempotency key.

use super::fixture::{Harness, at};
use punctual_core::limits::REQUESTS_KEPT;
use punctual_core::ports::{Horizon, NewRequest, RequestKey, RequestState, Store, StoredAnswer};
use std::sync::Arc;

pub async fn a_new_request_is_begun_by_its_first_call(store: Arc<dyn Store>) {
    let state = store.begin_request(at(1), request("ann", "k1", 7)).await.unwrap();
    assert_eq!(state, RequestState::Begun { at: at(1), seed: 7, is_new: true });
}

pub async fn a_repeated_request_goes_on_with_the_first_time_and_seed(store: Arc<dyn Store>) {
    store.begin_request(at(1), request("ann", "k1", u64::MAX)).await.unwrap();
    let again = store.begin_request(at(9), request("ann", "k1", 8)).await.unwrap();
    assert_eq!(again, RequestState::Begun { at: at(1), seed: u64::MAX, is_new: false });
}

pub async fn an_answered_request_is_answered_again(store: Arc<dyn Store>) {
    let answers = [
        StoredAnswer { status: 201, location: Some("/jobs/1".to_owned()), body: "{}".to_owned() },
        StoredAnswer { status: 204, location: None, body: String::new() },
    ];
    for (key, answer) in ["k1", "k2"].into_iter().zip(answers) {
        let new = request("ann", key, 7);
        store.begin_request(at(1), new.clone()).await.unwrap();
        store.answer_request(new.request.clone(), answer.clone()).await.unwrap();
        assert_eq!(store.begin_request(at(2), new).await.unwrap(), RequestState::Answered(answer));
    }
}

pub async fn an_answer_to_a_request_that_was_never_begun_is_not_kept(store: Arc<dyn Store>) {
    let new = request("ann", "k1", 7);
    let answer = StoredAnswer { status: 200, location: None, body: "{}".to_owned() };
    store.answer_request(new.request.clone(), answer).await.unwrap();
    let state = store.begin_request(at(2), new).await.unwrap();
    assert!(matches!(state, RequestState::Begun { is_new: true, .. }));
}

pub async fn a_key_used_for_something_else_is_noticed(store: Arc<dyn Store>) {
    let new = request("ann", "k1", 7);
    let other = NewRequest { fingerprint: [9; 32], ..new.clone() };
    store.begin_request(at(1), new.clone()).await.unwrap();
    assert_eq!(store.begin_request(at(2), other.clone()).await.unwrap(), RequestState::Mismatch);
    let answer = StoredAnswer { status: 200, location: None, body: "{}".to_owned() };
    store.answer_request(new.request, answer).await.unwrap();
    assert_eq!(store.begin_request(at(3), other).await.unwrap(), RequestState::Mismatch);
}

pub async fn tokens_have_keys_of_their_own(store: Arc<dyn Store>) {
    store.begin_request(at(1), request("ann", "k1", 7)).await.unwrap();
    for (token, key) in [("bob", "k1"), ("ann", "k2")] {
        let state = store.begin_request(at(2), request(token, key, 8)).await.unwrap();
        assert_eq!(state, RequestState::Begun { at: at(2), seed: 8, is_new: true });
    }
}

pub async fn racing_requests_with_one_key_begin_once(store: Arc<dyn Store>) {
    let harness = Harness::new(store);
    let calls = (0..20).map(|seed| harness.store.begin_request(at(1), request("ann", "k1", seed)));
    let states = futures_util::future::join_all(calls).await;
    let is_new = |state: &RequestState| matches!(state, RequestState::Begun { is_new: true, .. });
    assert_eq!(states.iter().filter(|state| is_new(state.as_ref().unwrap())).count(), 1);
}

pub async fn a_request_is_forgotten_after_a_day(store: Arc<dyn Store>) {
    for (key, seconds) in [("k1", 0), ("k2", 1), ("k3", 2)] {
        store.begin_request(at(seconds), request("ann", key, 7)).await.unwrap();
    }
    let now = at(2).plus(REQUESTS_KEPT);
    let horizon = Horizon { history: at(-1), requests: now.minus(REQUESTS_KEPT) };
    let first = store.retain(horizon, 1).await.unwrap();
    assert_eq!((first.requests, first.more), (1, true));
    let second = store.retain(horizon, 10).await.unwrap();
    assert_eq!((second.requests, second.more), (1, false));
    for (key, is_forgotten) in [("k1", true), ("k2", true), ("k3", false)] {
        let state = store.begin_request(now, request("ann", key, 8)).await.unwrap();
        assert_eq!(matches!(state, RequestState::Begun { is_new: true, .. }), is_forgotten, "{key}");
    }
}

fn request(token: &str, key: &str, seed: u64) -> NewRequest {
    let request = RequestKey { token: token.to_owned(), key: key.to_owned() };
    NewRequest { request, fingerprint: [1; 32], seed }
}
