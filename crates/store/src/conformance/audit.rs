//! The audit log.

use super::fixture::{Harness, at, job, job_with};
use punctual_core::control::Verb;
use punctual_core::ports::{
    AuditEntry, AuditId, AuditQuery, AuditRow, AuditedItems, ChainPart, Control, NewJob, OUTCOME_OK, Pausing,
    Seal, Store, Write, WriteReply,
};
use std::sync::Arc;

/// The n-th entry of a case; ids are ordered by number.
pub(super) fn entry(number: u32) -> AuditEntry {
    let at = at(i64::from(number));
    AuditEntry {
        id: AuditId::new(at, u64::from(number)),
        at,
        token: "t1".to_owned(),
        name: "deploy".to_owned(),
        user: (number % 2 == 1).then(|| "ann".to_owned()),
        source: Some("192.0.2.7".to_owned()),
        action: "queue.pause".to_owned(),
        object: format!("queue {number}"),
        outcome: OUTCOME_OK.to_owned(),
        details: Some(r#"{"a":"ü \" \\ \u0000"}"#.to_owned()),
    }
}

pub(super) async fn entries(store: &dyn Store) -> Vec<AuditRow> {
    store.audit(AuditQuery { limit: 1_000, ..AuditQuery::default() }).await.unwrap().items
}

/// Fails unless the chain is complete; returns its length.
pub(super) async fn verified(store: &dyn Store) -> u64 {
    let ends = store.audit_ends().await.unwrap().unwrap();
    let rows = store.audit_chain(ends.anchor.number, 10_000).await.unwrap();
    let check = ChainPart { before: ends, rows, after: ends, is_cut_off: false }.check(0);
    assert_eq!(check.broken, None);
    assert_eq!(check.last, ends.head);
    check.checked
}

fn submit(numbers: impl IntoIterator<Item = u32>) -> Write {
    let new = |number| NewJob { job: job(number), reservation: None };
    Write::Submit { now: at(1), jobs: numbers.into_iter().map(new).collect() }
}

pub async fn the_entry_of_a_change_is_written_with_it(store: Arc<dyn Store>) {
    let reply = store.write(submit([1]).audited(Some(entry(1)))).await.unwrap();
    assert!(matches!(reply, WriteReply::Submitted(outcomes) if outcomes.len() == 1));
    let pause = Write::PauseQueue { now: at(2), queue: "mail".to_owned(), pausing: Pausing::Pause };
    store.write(pause.audited(Some(entry(2)))).await.unwrap();
    store.write(submit([2])).await.unwrap();
    let written = entries(&*store).await;
    let expected = [entry(2), entry(1)].map(|entry| AuditRow { entry, seal: None });
    assert_eq!(written, expected);
}

pub async fn a_refused_change_leaves_its_refusal(store: Arc<dyn Store>) {
    let control = |verb| Write::Control { now: at(1), controls: vec![Control { job: job(7).id, verb }] };
    store.write(control(Verb::Pause).audited(Some(entry(1)))).await.unwrap();
    let executions = vec![job(7).id.occurrence(1).attempt(1)];
    let cancel = Write::Cancel { now: at(1), executions };
    store.write(cancel.audited(Some(entry(2)))).await.unwrap();
    Harness::new(store.clone()).submit(at(1), job(7)).await;
    store.write(control(Verb::Retry).audited(Some(entry(3)))).await.unwrap();
    let outcomes: Vec<String> = entries(&*store).await.into_iter().map(|row| row.entry.outcome).collect();
    assert!(outcomes[0].starts_with("refused: "), "{outcomes:?}");
    assert_eq!(outcomes[1..], ["refused: not found", "refused: not found"]);
}

pub async fn a_batch_has_one_entry_with_its_count(store: Arc<dyn Store>) {
    let taken = |number| job_with(number, |spec| spec.settings.unique_key = Some("k".to_owned()));
    let jobs = [job(1), taken(2), taken(3), job(4), taken(5)];
    let jobs = jobs.map(|job| NewJob { job, reservation: None }).to_vec();
    let audited = |number, items| AuditedItems { entry: entry(number), items, left_out: 0 };
    let parts = vec![audited(1, 0..3), audited(2, 3..4), audited(3, 4..5)];
    store.write(Write::Submit { now: at(1), jobs }.audited_in_parts(parts)).await.unwrap();
    let outcomes: Vec<String> = entries(&*store).await.into_iter().map(|row| row.entry.outcome).collect();
    assert_eq!(outcomes[0], format!("refused: job {} has this unique_key", taken(2).id));
    assert_eq!(outcomes[1..], ["ok", "2 of 3"]);
}

pub async fn a_repeated_write_has_one_entry(store: Arc<dyn Store>) {
    for _ in 0..2 {
        store.write(submit([1]).audited(Some(entry(1)))).await.unwrap();
        store.record_audit(vec![entry(2), entry(2)]).await.unwrap();
    }
    assert_eq!(entries(&*store).await.len(), 2);
    store.seal_audit(10).await.unwrap();
    store.record_audit(vec![entry(2)]).await.unwrap();
    assert_eq!(entries(&*store).await[0].seal.unwrap().number, 2, "it stays sealed");
}

pub async fn entries_are_sealed_in_order_and_in_steps(store: Arc<dyn Store>) {
    assert_eq!(store.seal_audit(10).await.unwrap(), 0);
    assert_eq!(store.audit_ends().await.unwrap().unwrap().head, Seal::START);
    store.record_audit([3, 1, 2].map(entry).to_vec()).await.unwrap();
    assert_eq!(store.unsealed_audit().await.unwrap(), 3);
    assert_eq!(store.seal_audit(2).await.unwrap(), 2);
    assert_eq!(store.unsealed_audit().await.unwrap(), 1);
    assert_eq!(store.seal_audit(2).await.unwrap(), 1);
    assert_eq!(store.unsealed_audit().await.unwrap(), 0);
    // An entry of a transaction that committed later.
    store.record_audit(vec![entry(0)]).await.unwrap();
    assert_eq!(store.seal_audit(2).await.unwrap(), 1);
    let chain = store.audit_chain(0, 10).await.unwrap();
    let numbers: Vec<_> =
        chain.iter().map(|row| (row.seal.unwrap().number, row.entry.object.clone())).collect();
    let named = |number: u64, object: &str| (number, object.to_owned());
    assert_eq!(numbers, [named(1, "queue 1"), named(2, "queue 2"), named(3, "queue 3"), named(4, "queue 0")]);
    assert_eq!(store.audit_chain(2, 1).await.unwrap(), chain[2..3]);
    assert_eq!(verified(&*store).await, 4);
}

pub async fn retention_deletes_the_beginning_of_the_chain(store: Arc<dyn Store>) {
    store.record_audit((1..=6).map(entry).collect()).await.unwrap();
    store.seal_audit(10).await.unwrap();
    // Sealed late, and older than the others.
    store.record_audit(vec![entry(0)]).await.unwrap();
    assert_eq!(store.retain_audit(at(1), 10).await.unwrap(), 0);
    assert_eq!(store.retain_audit(at(5), 3).await.unwrap(), 3);
    assert_eq!(verified(&*store).await, 3);
    assert_eq!(store.retain_audit(at(5), 3).await.unwrap(), 1);
    assert_eq!(store.retain_audit(at(5), 3).await.unwrap(), 0);
    assert_eq!(store.seal_audit(10).await.unwrap(), 1);
    assert_eq!(verified(&*store).await, 3);
    assert_eq!(store.audit_ends().await.unwrap().unwrap().anchor.number, 4);
    assert_eq!(store.retain_audit(at(9), 10).await.unwrap(), 3);
    assert_eq!(verified(&*store).await, 0);
    store.record_audit(vec![entry(9)]).await.unwrap();
    store.seal_audit(10).await.unwrap();
    assert_eq!(store.audit_ends().await.unwrap().unwrap().head.number, 8);
    assert_eq!(verified(&*store).await, 1);
}

pub async fn entries_are_found_by_what_they_say(store: Arc<dyn Store>) {
    let mut all: Vec<AuditEntry> = (1..=6).map(entry).collect();
    all[1].token = "t2".to_owned();
    all[2].action = "job.submit".to_owned();
    all[3] = all[3].clone().refused("no");
    store.record_audit(all.clone()).await.unwrap();
    let found = async |query: AuditQuery| {
        let page = store.audit(AuditQuery { limit: 10, ..query }).await.unwrap();
        page.items.into_iter().map(|row| row.entry.object).collect::<Vec<_>>()
    };
    let text = |text: &str| Some(text.to_owned());
    let none = AuditQuery::default;
    assert_eq!(found(AuditQuery { token: text("t2"), ..none() }).await, ["queue 2"]);
    assert_eq!(found(AuditQuery { user: text("ann"), ..none() }).await, ["queue 5", "queue 3", "queue 1"]);
    assert_eq!(found(AuditQuery { action: text("job."), ..none() }).await, ["queue 3"]);
    assert_eq!(found(AuditQuery { object: text("queue 6"), ..none() }).await, ["queue 6"]);
    assert_eq!(found(AuditQuery { outcome: text("refused"), ..none() }).await, ["queue 4"]);
    let times = AuditQuery { from: Some(at(2)), until: Some(at(4)), ..none() };
    assert_eq!(found(times).await, ["queue 3", "queue 2"]);
    let mut query = AuditQuery { limit: 4, ..none() };
    let first = store.audit(query.clone()).await.unwrap();
    query.before = first.next;
    let second = store.audit(query).await.unwrap();
    let listed: Vec<AuditEntry> = first.items.into_iter().chain(second.items).map(|row| row.entry).collect();
    all.reverse();
    assert_eq!(listed, all);
}
