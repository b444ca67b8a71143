//! Logs, retention and tokens.

use super::fixture::{House, at, job, succeeded};
use punctual_core::ids::ExecutionId;
use punctual_core::ports::{LogLine, LogStream, Role, Store, Token};
use std::sync::Arc;

pub async fn log_lines_are_read_in_order_and_in_pages(store: Arc<dyn Store>) {
    let execution = job(1).id.occurrence(1).attempt(1);
    let streams = [LogStream::Stdout, LogStream::Stderr, LogStream::Log];
    let lines = (0..5).map(|n| LogLine { stream: streams[n % 3], ..line(execution, n) }).collect();
    store.append_logs(lines).await.unwrap();
    let mut after = None;
    let mut read = Vec::new();
    for expected in [2, 2, 1] {
        let page = store.logs(execution, after, 2).await.unwrap();
        assert_eq!(page.items.len(), expected);
        read.extend(page.items);
        after = page.next;
    }
    assert_eq!(after, None);
    assert!(read.is_sorted_by_key(|line| line.number));
    for (n, found) in read.iter().enumerate() {
        let expected = LogLine { number: found.number, stream: streams[n % 3], ..line(execution, n) };
        assert_eq!(*found, expected);
    }
    let followed = store.logs(execution, Some(read[4].number), 10).await.unwrap();
    assert_eq!(followed.items, []);
    store.append_logs(vec![line(execution, 9)]).await.unwrap();
    assert_eq!(store.logs(execution, Some(read[4].number), 10).await.unwrap().items[0].message, "line 9");
}

pub async fn log_lines_of_other_executions_stay_out(store: Arc<dyn Store>) {
    let first = job(1).id.occurrence(1).attempt(1);
    for other in [first, first.occurrence.attempt(2), job(1).id.occurrence(2).attempt(1)] {
        store.append_logs(vec![line(other, 1)]).await.unwrap();
    }
    assert_eq!(store.logs(first, None, 10).await.unwrap().items.len(), 1);
}

pub async fn retention_deletes_only_what_is_older(store: Arc<dyn Store>) {
    let house = House::new(store);
    finish_jobs(&house, 4).await;
    let retained = house.store.retain(at(12), 100).await.unwrap();
    assert_eq!((retained.history, retained.logs, retained.more), (2, 2, false));
    for n in 0..4 {
        let id = job(n).id;
        let kept = n >= 2;
        assert_eq!(house.store.history(id, None, 10).await.unwrap().items.len() == 1, kept, "job {n}");
        let execution = id.occurrence(1).attempt(1);
        assert_eq!(house.store.logs(execution, None, 10).await.unwrap().items.len() == 1, kept, "job {n}");
    }
    let again = house.store.retain(at(12), 100).await.unwrap();
    assert_eq!((again.history, again.logs), (0, 0));
}

pub async fn retention_is_bounded_and_says_when_there_is_more(store: Arc<dyn Store>) {
    let house = House::new(store);
    finish_jobs(&house, 5).await;
    let first = house.store.retain(at(1_000), 3).await.unwrap();
    assert_eq!((first.history, first.logs, first.more), (3, 3, true));
    let second = house.store.retain(at(1_000), 3).await.unwrap();
    assert_eq!((second.history, second.logs, second.more), (2, 2, false));
}

pub async fn a_token_is_found_by_its_id_and_can_be_replaced(store: Arc<dyn Store>) {
    let token =
        Token { id: "t1".to_owned(), secret_sha256: [7; 32], role: Role::Viewer, created_at: at(1) };
    store.put_token(token.clone()).await.unwrap();
    assert_eq!(store.token("t1").await.unwrap(), Some(token.clone()));
    let replaced = Token { secret_sha256: [8; 32], role: Role::Admin, created_at: at(2), ..token };
    store.put_token(replaced.clone()).await.unwrap();
    assert_eq!(store.token("t1").await.unwrap(), Some(replaced));
    assert_eq!(store.token("t2").await.unwrap(), None);
}

fn line(execution: ExecutionId, n: usize) -> LogLine {
    LogLine {
        number: 0,
        execution,
        timestamp: at(10 + n as i64),
        stream: LogStream::Stdout,
        message: format!("line {n}"),
    }
}

/// Runs jobs 0 to `count`, each ending at second 10 plus its number with one log line.
async fn finish_jobs(house: &House, count: u32) {
    let session = house.open_session("w").await;
    for n in 0..count {
        house.submit(at(1), job(n)).await;
        let assignment = house.claim_one(at(2), session, u64::from(n) + 1).await;
        let end_at = 10 + i64::from(n);
        house.accept(at(end_at), session, &assignment, succeeded(end_at)).await;
        house.store.append_logs(vec![line(assignment.execution, n as usize)]).await.unwrap();
    }
}
