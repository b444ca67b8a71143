//! The audit log: many write entries while others seal them.

use super::{HEAD_STARTS, Nodes};
use crate::conformance::audit::{entries, entry, verified};

/// Entries of each round.
const ENTRIES: u32 = 6;
/// Calls that seal at once.
const SEALERS: usize = 4;

pub(super) async fn sealers_continue_one_chain(nodes: Nodes) {
    let here = nodes.harnesses[0].clone();
    nodes
        .rounds(|round| async move {
            let number = |index: u32| round.number * ENTRIES + index;
            for index in 0..ENTRIES {
                round.node(index as usize).store.record_audit(vec![entry(number(index))]).await.unwrap();
            }
            let step = 1 + (round.number % HEAD_STARTS) as usize;
            let sealed = round.many(SEALERS, |index| round.node(index).store.seal_audit(step)).await;
            assert!(sealed.iter().all(Result::is_ok), "{sealed:?}");
        })
        .await;
    while here.store.seal_audit(100).await.unwrap() > 0 {}
    let written = entries(&*here.store).await;
    assert!(written.iter().all(|row| row.seal.is_some()));
    assert_eq!(verified(&*here.store).await, written.len() as u64);
}
