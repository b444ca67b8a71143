//! The audit log: its cost, and entries that were changed outside the store.

use super::{apply, at, job, submit};
use crate::audit::AuditStatements;
use crate::reads::ReadKind;
use crate::sqlite::reads::statements::statement;
use crate::sqlite::statements::SqliteStatements;
use crate::sqlite::{AuditCall, SqliteCall, SqliteCore, SqliteReply};
use punctual_core::control::Verb;
use punctual_core::ports::{AuditEntry, AuditId, ChainCheck, ChainPart, Control, OUTCOME_OK, Write};

fn entry(number: u64) -> AuditEntry {
    let at = at(i64::try_from(number).unwrap());
    AuditEntry {
        id: AuditId::new(at, number),
        at,
        token: "t1".to_owned(),
        name: "deploy".to_owned(),
        user: None,
        source: None,
        action: "job.submit".to_owned(),
        object: format!("job {number}"),
        outcome: OUTCOME_OK.to_owned(),
        details: None,
    }
}

fn call(core: &mut SqliteCore, call: AuditCall) -> u64 {
    match core.apply(&[SqliteCall::Audit(call)]).pop() {
        Some(Ok(SqliteReply::Audited(count))) => count,
        other => panic!("{other:?}"),
    }
}

/// A store with this many sealed entries.
fn sealed(entries: u64) -> SqliteCore {
    let mut core = SqliteCore::open_in_memory().unwrap();
    call(&mut core, AuditCall::Record { entries: (1..=entries).map(entry).collect() });
    call(&mut core, AuditCall::Seal { limit: 100 });
    core
}

fn check(core: &mut SqliteCore) -> ChainCheck {
    let ends = core.reads().audit_ends().unwrap().unwrap();
    let rows = core.reads().audit_chain(0, 100).unwrap();
    ChainPart { before: ends, rows, after: ends, is_cut_off: false }.check(0)
}

#[test]
fn a_chain_without_its_ends_is_not_read() {
    for damage in [
        "DELETE FROM audit; DELETE FROM audit_chain",
        "DELETE FROM audit WHERE number = 2; UPDATE audit_chain SET number = number - 1",
        "UPDATE audit_chain SET hash = x''",
        "UPDATE audit_chain SET name = name || '2'",
    ] {
        let mut core = sealed(2);
        core.connection().execute_batch(damage).unwrap();
        assert_eq!(core.reads().audit_ends().unwrap(), None, "{damage}");
    }
}

#[test]
fn an_entry_costs_one_row_write_for_any_number_of_jobs() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    apply(&mut core, submit([job(0)]));
    let before = core.total_changes();
    apply(&mut core, submit((1..=100).map(job)));
    let plain = core.total_changes() - before;
    let before = core.total_changes();
    apply(&mut core, submit((101..=200).map(job)).audited(Some(entry(1))));
    assert_eq!(core.total_changes() - before, plain + 1);
    let before = core.total_changes();
    call(&mut core, AuditCall::Seal { limit: 100 });
    // The entry and the head of the chain.
    assert_eq!(core.total_changes() - before, 2);
    let before = core.total_changes();
    call(&mut core, AuditCall::Seal { limit: 100 });
    assert_eq!(core.total_changes() - before, 0);
}

#[test]
fn an_entry_that_was_changed_removed_or_inserted_is_found() {
    assert_eq!(check(&mut sealed(5)).broken, None);
    let columns = "id, at, token, name, action, object, outcome, number, hash";
    let copied = format!(
        "INSERT INTO audit ({columns}) SELECT zeroblob(16), at, token, name, action, object, outcome, {{}}, hash \
         FROM audit WHERE number = 2"
    );
    let tampered = [
        ("UPDATE audit SET outcome = 'refused: no' WHERE number = 3".to_owned(), 3),
        ("UPDATE audit SET user_id = 'mallory' WHERE number = 5".to_owned(), 5),
        ("UPDATE audit SET at = at + 1 WHERE number = 1".to_owned(), 1),
        ("UPDATE audit SET hash = zeroblob(32) WHERE number = 4".to_owned(), 4),
        // The row cannot be read any more.
        ("UPDATE audit SET hash = x'00' WHERE number = 4".to_owned(), 4),
        ("DELETE FROM audit WHERE number = 1".to_owned(), 1),
        ("DELETE FROM audit WHERE number = 2".to_owned(), 2),
        ("DELETE FROM audit WHERE number = 5".to_owned(), 5),
        ("DELETE FROM audit".to_owned(), 1),
        ("DELETE FROM audit WHERE number = 3; UPDATE audit SET number = 3 WHERE number = 4".to_owned(), 3),
        (
            format!(
                "UPDATE audit SET number = number + 1 WHERE number = 5; \
             UPDATE audit SET number = number + 1 WHERE number = 4; \
             UPDATE audit SET number = number + 1 WHERE number = 3; {}",
                copied.replace("{}", "3")
            ),
            3,
        ),
        (copied.replace("{}", "6"), 6),
    ];
    for (sql, number) in tampered {
        let mut core = sealed(5);
        core.connection().execute_batch(&sql).unwrap();
        let broken = check(&mut core).broken;
        assert_eq!(broken.as_ref().map(|broken| broken.number), Some(number), "{sql}: {broken:?}");
    }
}

#[test]
fn a_write_that_is_rolled_back_leaves_no_entry() {
    let mut core = SqliteCore::open_in_memory().unwrap();
    apply(&mut core, submit([job(1)]));
    core.connection().execute_batch("UPDATE jobs SET settings = 'no settings'").unwrap();
    let controls = vec![Control { job: job(1).id, verb: Verb::Pause }];
    let write = Write::Control { now: at(1), controls }.audited(Some(entry(1)));
    let reply = core.apply(&[SqliteCall::Write(write)]).pop();
    assert!(matches!(reply, Some(Err(_))), "{reply:?}");
    let count: i64 = core.connection().query_row("SELECT count(*) FROM audit", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 0);
}

#[test]
fn statements_of_the_audit_log_use_an_index() {
    let core = sealed(1);
    for (sql, index) in [
        (statement(ReadKind::AuditPage), "PRIMARY KEY"),
        (statement(ReadKind::AuditChain), "audit_number"),
        (statement(ReadKind::Unsealed), "audit_unsealed"),
        (statement(ReadKind::UnsealedCount), "audit_unsealed"),
        (SqliteStatements::DELETE, "audit_number"),
    ] {
        let mut explain = core.connection().prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let count = explain.parameter_count();
        let plan: Vec<String> = explain
            .query_map(rusqlite::params_from_iter(vec![1_i64; count]), |row| row.get(3))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert!(plan.len() == 1 && plan[0].contains(index), "{sql}: {plan:?}");
    }
}
